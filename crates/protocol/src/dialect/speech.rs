//! How much of the model's speech a reader has been sent in a turn.

use serde_json::json;

use crate::base64;
use crate::chunk::{Chunk, DataChunk};
use crate::json_text::Json;

/// The type of a piece of the model's speech.
pub(super) const SPEECH: &str = "data-pcm";

/// The media type of a recording.
const RECORDING: &str = "audio/wav";

/// Two bytes a sample, one channel: what the bridge sends.
const BYTES_PER_SAMPLE: usize = 2;

/// The speech of a turn: 16-bit samples of one channel.
#[derive(Debug, Default)]
pub(super) struct Speech {
    chunks: usize,
    bytes: usize,
    sample_rate: u64,
}

impl Speech {
    /// Counts a chunk if it is speech.
    pub(super) fn count(&mut self, chunk: &DataChunk<'_>) {
        let field = |name| {
            (chunk.kind == SPEECH)
                .then(|| chunk.data.get(name))
                .flatten()
        };
        let (Some(samples), Some(rate)) = (field("chunk"), field("sampleRate")) else {
            return;
        };
        self.chunks += 1;
        self.bytes += samples
            .as_str()
            .map_or(0, |text| base64::decoded_len(&text));
        self.sample_rate = rate.read().unwrap_or(self.sample_rate);
    }

    /// Whether a chunk is the recording of speech that was counted: a front end that learns how much there was makes its own.
    pub(super) fn is_recorded_in(&self, chunk: &Chunk<'_>) -> bool {
        self.chunks > 0
            && matches!(chunk, Chunk::File { media_type, .. } if media_type == RECORDING)
    }

    /// What a front end needs in order to build a recording; nothing if there was no speech.
    pub(super) fn totals(&self) -> Option<Json> {
        let bytes_per_second = self.sample_rate as f64 * BYTES_PER_SAMPLE as f64;
        (self.chunks > 0 && self.sample_rate > 0).then(|| {
            json!({
                "chunks": self.chunks,
                "bytes": self.bytes,
                "sampleRate": self.sample_rate,
                "duration": self.bytes as f64 / bytes_per_second,
            })
            .into()
        })
    }
}
