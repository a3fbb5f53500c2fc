//! Recordings of a turn: the user's audio from the first sound on, and the model's, both limited in length.

use std::fmt;

use adk_bridge_protocol::audio::{self, PcmFormat};
use adk_bridge_protocol::base64;
use adk_bridge_protocol::event::Event;

/// How much audio of each side is kept for a turn: two minutes of the user, somewhat less of the model.
const MAX_BYTES: usize = 2 * 60 * 32_000;
/// Half a second of the silence before speech is kept.
const LEAD_BYTES: usize = 16_000;
/// Louder than this is speech.
const LOUD: u16 = 500;

/// The user's audio since the last turn. Only the end of very long speech is kept, and almost no silence.
#[derive(Default)]
pub(crate) struct UserAudio {
    pcm: Vec<u8>,
    has_speech: bool,
}

/// The model's audio in a turn. Only the beginning of a very long turn is kept.
#[derive(Default)]
pub(crate) struct ModelAudio {
    pcm: Vec<u8>,
}

impl UserAudio {
    pub(crate) fn push(&mut self, pcm: &[u8]) {
        let before = self.pcm.len();
        self.pcm.extend_from_slice(pcm);
        if !self.has_speech {
            let at = first_loud(pcm).map(|at| before + at);
            self.has_speech = at.is_some();
            let silent = at.unwrap_or(self.pcm.len());
            self.drop_first(silent.saturating_sub(LEAD_BYTES));
        }
        let surplus = self.pcm.len().saturating_sub(MAX_BYTES);
        // Moving the rest takes time, so it is not done for every piece.
        if surplus > MAX_BYTES / 8 {
            self.drop_first(surplus);
        }
    }

    /// The speech without the silence before it; empty if nobody spoke.
    pub(crate) fn speech(&self) -> &[u8] {
        match self.has_speech {
            true => &self.pcm,
            false => &[],
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn wav(&self) -> Option<Vec<u8>> {
        wav(self.speech(), PcmFormat::MICROPHONE)
    }

    fn drop_first(&mut self, bytes: usize) {
        self.pcm.drain(..bytes & !1);
    }
}

impl fmt::Debug for UserAudio {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "UserAudio({} bytes)", self.pcm.len())
    }
}

impl ModelAudio {
    pub(crate) fn take_in(&mut self, event: &Event<'_>) {
        for part in event.parts() {
            if let Some(blob) = &part.inline_data
                && let Some(kind) = blob.mime_type.as_deref()
                && kind.starts_with("audio/pcm")
                && self.pcm.len() < MAX_BYTES
                && let Some(Ok(pcm)) = blob.data.as_deref().map(base64::decode)
            {
                let room = MAX_BYTES - self.pcm.len();
                self.pcm.extend_from_slice(&pcm[..pcm.len().min(room)]);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn wav(&self) -> Option<Vec<u8>> {
        wav(&self.pcm, PcmFormat::MODEL)
    }
}

/// Whether there may be speech in it.
pub(crate) fn is_loud(pcm: &[u8]) -> bool {
    first_loud(pcm).is_some()
}

fn first_loud(pcm: &[u8]) -> Option<usize> {
    let loud = |pair: &[u8]| i16::from_le_bytes([pair[0], pair[1]]).unsigned_abs() > LOUD;
    pcm.chunks_exact(2).position(loud).map(|at| 2 * at)
}

fn wav(pcm: &[u8], format: PcmFormat) -> Option<Vec<u8>> {
    (!pcm.is_empty())
        .then(|| audio::wav(pcm, format).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use adk_bridge_protocol::event::{Blob, Content, Part};
    use proptest::prelude::*;

    use super::*;

    const SILENCE: [u8; 2] = [0, 0];
    const SOUND: [u8; 2] = [0, 64];

    proptest! {
        /// However the audio is split into pieces, the end of the speech is kept, with half a second before it.
        #[test]
        fn speech_is_kept_to_its_end(
            lead in 0_usize..40_000, said in 1_usize..40_000, piece in 1_usize..2_000,
        ) {
            let all = [SILENCE.repeat(lead), SOUND.repeat(said)].concat();
            let mut heard = UserAudio::default();
            for piece in all.chunks(2 * piece) {
                heard.push(piece);
            }
            let kept = 2 * (said + lead.min(LEAD_BYTES / 2));
            prop_assert_eq!(heard.speech(), &all[all.len() - kept..]);
        }
    }

    #[test]
    fn endless_audio_stays_bounded() {
        let hour = 60 * 60 * 10;
        let mut heard = UserAudio::default();
        for _ in 0..hour {
            heard.push(&SILENCE.repeat(1_600));
            assert!(heard.pcm.len() <= LEAD_BYTES);
        }
        assert!(heard.speech().is_empty());
        assert_eq!(heard.wav(), None);
        for _ in 0..hour {
            heard.push(&SOUND.repeat(1_600));
            assert!(heard.pcm.len() <= MAX_BYTES + MAX_BYTES / 8);
        }
        let data = base64::encode(&SOUND.repeat(100_000));
        let part = Part {
            inline_data: Some(Box::new(Blob {
                mime_type: Some("audio/pcm;rate=24000".into()),
                data: Some(data.as_str().into()),
                display_name: None,
            })),
            ..Part::default()
        };
        let event = Event {
            content: Some(Content::new("model", vec![part])),
            ..Event::default()
        };
        let mut sounded = ModelAudio::default();
        for _ in 0..100 {
            sounded.take_in(&event);
        }
        assert_eq!(sounded.pcm.len(), MAX_BYTES);
    }
}
