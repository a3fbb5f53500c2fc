//! Words as tones and back: lets a test or a program speak to the scripted model without a human voice.
//!
//! Every byte of the text (UTF-8) is a burst of two simultaneous sines, 40 ms long, followed by 20 ms of silence. The
//! low four bits choose `450 + 75 n` Hz, the high four bits `1800 + 75 n` Hz. The byte 2 opens the text, the byte 3
//! closes it. The gaps separate the bursts, so the sample rate, the silence around the text and the size of the pieces
//! do not matter.

use std::f64::consts::TAU;

const LOW_HZ: f64 = 450.0;
const HIGH_HZ: f64 = 1_800.0;
/// Three bins of a window of 40 ms: neighbours cannot be confused.
const STEP_HZ: f64 = 75.0;
const TONES: usize = 16;
const BURST_MS: usize = 40;
const GAP_MS: usize = 20;
/// The amplitude of each sine: loud, and far from clipping.
const AMPLITUDE: f64 = 7_000.0;
const OPENING: u8 = 2;
const CLOSING: u8 = 3;

/// The resolution at which bursts and gaps are distinguished.
const HOP_MS: usize = 5;
/// Shorter sounds are clicks; longer ones are not bursts.
const BURST_RANGE_MS: std::ops::RangeInclusive<usize> = 20..=70;
/// The share of a burst's power that its two tones must have; speech never comes close.
const MIN_SHARE: f64 = 0.5;

/// The text as mono PCM samples at this rate.
pub fn speak(text: &str, rate: u32) -> Vec<i16> {
    let rate = rate as usize;
    let (burst, gap) = (rate * BURST_MS / 1_000, rate * GAP_MS / 1_000);
    let bytes = std::iter::once(OPENING)
        .chain(text.bytes())
        .chain([CLOSING]);
    let mut samples = Vec::new();
    for byte in bytes {
        let low = LOW_HZ + STEP_HZ * f64::from(byte & 15);
        let high = HIGH_HZ + STEP_HZ * f64::from(byte >> 4);
        samples.extend((0..burst).map(|at| {
            let time = TAU * at as f64 / rate as f64;
            (AMPLITUDE * ((low * time).sin() + (high * time).sin())) as i16
        }));
        samples.extend(std::iter::repeat_n(0, gap));
    }
    samples
}

/// The text that these samples spell, if they spell any.
pub(super) fn read(samples: &[i16], rate: u32) -> Option<String> {
    let hop = (rate as usize * HOP_MS / 1_000).max(1);
    let levels: Vec<f64> = samples.chunks(hop).map(level).collect();
    let peak = levels.iter().copied().fold(0.0, f64::max);
    let threshold = peak / 3.0;
    let mut bytes = Vec::new();
    let mut start = None;
    for (at, level) in levels.iter().copied().chain([0.0]).enumerate() {
        match (start, level > threshold) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                start = None;
                let length = (at - from) * HOP_MS;
                if length < *BURST_RANGE_MS.start() {
                    continue;
                }
                if length > *BURST_RANGE_MS.end() {
                    return None;
                }
                // The first and the last hop are only partly inside the burst.
                let inner = samples.get((from + 1) * hop..(at - 1) * hop)?;
                bytes.push(byte(inner, rate)?);
            }
            _ => {}
        }
    }
    let text = bytes.strip_prefix(&[OPENING])?.strip_suffix(&[CLOSING])?;
    String::from_utf8(text.to_vec()).ok()
}

/// The root mean square.
pub(super) fn level(samples: &[i16]) -> f64 {
    let sum: f64 = samples.iter().map(|it| f64::from(*it).powi(2)).sum();
    (sum / samples.len().max(1) as f64).sqrt()
}

fn byte(samples: &[i16], rate: u32) -> Option<u8> {
    let loudest = |base: f64| {
        (0..TONES)
            .map(|tone| (tone, share(samples, base + STEP_HZ * tone as f64, rate)))
            .max_by(|one, other| one.1.total_cmp(&other.1))
            .unwrap_or_default()
    };
    let ((low, low_share), (high, high_share)) = (loudest(LOW_HZ), loudest(HIGH_HZ));
    let both = low_share + high_share >= MIN_SHARE && low_share.min(high_share) >= MIN_SHARE / 5.0;
    both.then(|| u8::try_from(high << 4 | low).ok()).flatten()
}

/// The share of the power at a frequency, by Goertzel's filter.
fn share(samples: &[i16], hz: f64, rate: u32) -> f64 {
    let factor = 2.0 * (TAU * hz / f64::from(rate)).cos();
    let (mut last, mut before, mut energy) = (0.0, 0.0, 0.0);
    for sample in samples {
        let sample = f64::from(*sample);
        (last, before) = (sample + factor * last - before, last);
        energy += sample * sample;
    }
    let power = last * last + before * before - factor * last * before;
    match energy > 0.0 {
        true => 2.0 * power / (samples.len() as f64 * energy),
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use adk_bridge_testkit::Random;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn what_is_spoken_is_read(
            text in "[ -~äé日本🙂]{0,12}",
            lead in 0usize..700,
            noise in 0i16..300,
            gain in 0.1f64..1.4,
            rate in prop::sample::select(vec![8_000u32, 16_000, 24_000]),
        ) {
            let mut samples = vec![0; lead];
            samples.extend(speak(&text, rate));
            samples.extend(vec![0; 333]);
            let mut random = Random::new(1);
            for sample in &mut samples {
                let hiss = if noise == 0 { 0 } else { random.below(2 * noise - 1) - (noise - 1) };
                *sample = ((f64::from(*sample) * gain) as i16).saturating_add(hiss);
            }
            prop_assert_eq!(read(&samples, rate), Some(text));
        }

        #[test]
        fn any_sound_is_read_without_harm(samples in prop::collection::vec(any::<i16>(), 0..4_000)) {
            prop_assert_eq!(read(&samples, 16_000), None);
        }
    }

    #[test]
    fn a_tone_is_no_text() {
        let tone: Vec<i16> = (0..16_000)
            .map(|at| (8_000.0 * (TAU * 440.0 * f64::from(at) / 16_000.0).sin()) as i16)
            .collect();
        assert_eq!(read(&tone, 16_000), None);
        assert_eq!(read(&[], 16_000), None);
    }
}
