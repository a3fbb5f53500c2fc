//! The voice of the scripted model: speech-like sound, 24 kHz PCM16 mono, always the same for the same word.
//!
//! Every letter sounds for 60 ms and a space is 60 ms of silence, so the length of a text is the length of its sound.

use std::f32::consts::TAU;

pub const SAMPLES_PER_LETTER: usize = 1_440;

const RATE: f32 = 24_000.0;
/// The pitch varies in this range, as in speech.
const LOWEST_HZ: f32 = 110.0;
const SPAN_HZ: u32 = 80;
const HARMONICS: usize = 5;
const LOUDNESS: f32 = 5_000.0;
/// Letters fade in and out over this many samples to avoid clicks.
const FADE: usize = 120;

/// The sound of a piece of text.
pub fn sound(text: &str) -> Vec<i16> {
    let mut samples = Vec::with_capacity(text.chars().count() * SAMPLES_PER_LETTER);
    let mut phase = 0.0_f32;
    for letter in text.chars() {
        if letter.is_whitespace() {
            samples.extend(std::iter::repeat_n(0, SAMPLES_PER_LETTER));
            continue;
        }
        let code = u32::from(letter).wrapping_mul(2_654_435_761) >> 8;
        let pitch = LOWEST_HZ + (code % SPAN_HZ) as f32;
        // The strength of the harmonics makes the vowel.
        let weights: [f32; HARMONICS] =
            std::array::from_fn(|n| ((code >> (3 * n)) & 7) as f32 / 7.0 + 0.2 / (n + 1) as f32);
        let total: f32 = weights.iter().sum();
        for at in 0..SAMPLES_PER_LETTER {
            phase = (phase + pitch / RATE).fract();
            let wave: f32 = weights
                .iter()
                .zip(1_u8..)
                .map(|(weight, n)| weight * (TAU * phase * f32::from(n)).sin())
                .sum();
            let fade = at.min(SAMPLES_PER_LETTER - 1 - at).min(FADE) as f32 / FADE as f32;
            samples.push((LOUDNESS * fade * wave / total) as i16);
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_word_sounds_the_same_and_no_other_does() {
        let (one, other) = (sound("Tokyo is"), sound("Kyoto is"));
        assert_eq!(one, sound("Tokyo is"));
        assert_ne!(one, other);
        assert_eq!(one.len(), 8 * SAMPLES_PER_LETTER);
        assert!(one.iter().any(|sample| sample.abs() > 2_000));
        assert!(one.iter().all(|sample| sample.abs() < 6_000));
    }
}
