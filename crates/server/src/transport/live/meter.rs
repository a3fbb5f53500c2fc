//! How much speech and how many pictures a live connection may send.
//!
//! A token bucket for each: refilled at the allowed rate, and each frame takes its bytes out of it. A microphone never
//! empties it; what a client buffered while its network stalled fits in at once.

use std::time::Duration;

use adk_bridge_protocol::wire::live::{MAX_AUDIO_BYTES, MAX_VIDEO_FRAME_BYTES};
use tokio::time::Instant;

use crate::chat::live::LiveInput;
use crate::config;

/// How long a full bucket lasts beyond its rate: longer than a stall that a connection survives (three heartbeats pass
/// without a byte before it is closed).
const BURST: Duration = Duration::from_secs(30);

pub(super) struct Meter {
    audio: Bucket,
    video: Bucket,
}

struct Bucket {
    rate: usize,
    capacity: u64,
    left: u64,
    at: Instant,
}

impl Meter {
    pub(super) fn new(limits: &config::Live, now: Instant) -> Self {
        Self {
            audio: Bucket::new(limits.max_audio_bytes_per_second, MAX_AUDIO_BYTES, now),
            video: Bucket::new(
                limits.max_video_bytes_per_second,
                MAX_VIDEO_FRAME_BYTES,
                now,
            ),
        }
    }

    /// Counts input for the model; returns an error if it is too much.
    pub(super) fn count(&mut self, input: &LiveInput, now: Instant) -> Result<(), String> {
        let (what, bucket, bytes) = match input {
            LiveInput::Audio { pcm, .. } => ("speech", &mut self.audio, pcm.len()),
            LiveInput::Picture { data, .. } => ("pictures", &mut self.video, data.len()),
            LiveInput::AudioControl(_) | LiveInput::Modality(_) => return Ok(()),
        };
        match bucket.take(bytes, now) {
            true => Ok(()),
            false => Err(format!(
                "more {what} than {} bytes per second; send at the rate of recording",
                bucket.rate
            )),
        }
    }
}

impl Bucket {
    /// `largest`: what must fit in, whatever the rate.
    fn new(rate: usize, largest: usize, now: Instant) -> Self {
        let capacity = (rate as u64).saturating_mul(BURST.as_secs());
        let capacity = capacity.max(largest as u64);
        Self {
            rate,
            capacity,
            left: capacity,
            at: now,
        }
    }

    fn take(&mut self, bytes: usize, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at);
        let refill = passed.as_micros().saturating_mul(self.rate as u128) / 1_000_000;
        // The clock advances only by whole bytes, or frames in quick succession would refill nothing.
        if refill > 0 {
            let refill = u64::try_from(refill).unwrap_or(u64::MAX);
            self.left = self.left.saturating_add(refill).min(self.capacity);
            self.at = now;
        }
        match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Over any time, no client sends more than the rate allows plus what the bucket held; one that keeps to the rate is
        /// never refused.
        #[test]
        fn the_rate_is_kept_and_is_free(
            frames in prop::collection::vec((0_u64..2_000, 0_usize..400_000), 1..200),
            rate in 1_000_usize..200_000,
        ) {
            let begin = Instant::now();
            let mut bucket = Bucket::new(rate, MAX_AUDIO_BYTES, begin);
            let mut steady = Bucket::new(rate, MAX_AUDIO_BYTES, begin);
            let (mut millis, mut taken) = (0, 0_u64);
            for (pause, bytes) in frames {
                millis += pause;
                let now = begin + Duration::from_millis(millis);
                if bucket.take(bytes, now) {
                    taken += bytes as u64;
                }
                let allowed = bucket.capacity + millis * rate as u64 / 1_000;
                prop_assert!(taken <= allowed, "{taken} of {allowed}");
                let due = usize::try_from(pause).unwrap_or(0) * rate / 1_000;
                prop_assert!(steady.take(due, now));
            }
        }
    }
}
