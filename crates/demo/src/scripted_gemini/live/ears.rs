//! The hearing of the scripted model: detects the bounds of speech by its energy, and reads its words.
//!
//! ```text
//!            40 ms of sound                      `silence` of silence, or the end of the stream
//!  Quiet ───────────────────▶ Speech (Began) ─────────────────────────────────────────────────▶ Quiet (Ended)
//! ```
//!
//! Time is the time of the audio, never the clock's: the same samples give the same turns, however fast they arrive.
//! With explicit activity, only [`Ears::open`] and [`Ears::close`] move between the two states.

use std::collections::VecDeque;

use super::tones;

/// The resolution at which sound and silence are distinguished.
const FRAME_MS: usize = 10;
/// Anything quieter is silence: somewhat above the level of a microphone in a quiet room.
const LOUD: f64 = 400.0;
/// A click is shorter than this.
const ONSET_MS: usize = 40;
/// A word begins before the moment at which it is recognised as speech.
const PREROLL_MS: usize = 200;
/// Google's default if the setup names no time.
const SILENCE_MS: usize = 500;
/// Only the beginning of longer speech is kept.
const MAX_SPEECH_MS: usize = 60_000;

/// What happened to the user's speech.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SpeechEvent {
    Began,
    Ended(String),
}

#[derive(Debug)]
pub(super) struct Ears {
    /// Whether the bounds of speech are detected here; otherwise the sender marks them.
    detects: bool,
    silence_ms: usize,
    rate: u32,
    /// Samples that do not fill a frame yet.
    rest: Vec<i16>,
    preroll: VecDeque<i16>,
    loud_ms: usize,
    speech: Option<Speech>,
}

#[derive(Debug, Default)]
struct Speech {
    samples: Vec<i16>,
    silent_ms: usize,
}

impl Ears {
    pub(super) fn new(detects: bool, silence_ms: Option<usize>) -> Self {
        Self {
            detects,
            silence_ms: silence_ms.filter(|ms| *ms > 0).unwrap_or(SILENCE_MS),
            rate: 16_000,
            rest: Vec::new(),
            preroll: VecDeque::new(),
            loud_ms: 0,
            speech: None,
        }
    }

    pub(super) fn hear(&mut self, samples: &[i16], rate: u32) -> Vec<SpeechEvent> {
        if rate != self.rate {
            self.rate = rate;
            self.rest.clear();
            self.preroll.clear();
        }
        let mut heard = Vec::new();
        let frame = self.samples_in(FRAME_MS);
        self.rest.extend_from_slice(samples);
        let whole = self.rest.len() / frame * frame;
        let rest = self.rest.split_off(whole);
        let frames = std::mem::replace(&mut self.rest, rest);
        for frame in frames.chunks_exact(frame) {
            heard.extend(self.frame(frame));
        }
        heard
    }

    /// The sender says that speech begins.
    pub(super) fn open(&mut self) -> bool {
        let opens = self.speech.is_none();
        self.speech.get_or_insert_default();
        opens
    }

    /// The sender says that speech ends, or that no more audio comes for now.
    pub(super) fn close(&mut self) -> Option<SpeechEvent> {
        let rest = std::mem::take(&mut self.rest);
        if let Some(speech) = &mut self.speech {
            speech.samples.extend(rest);
        }
        self.end()
    }

    fn end(&mut self) -> Option<SpeechEvent> {
        self.loud_ms = 0;
        self.preroll.clear();
        let speech = self.speech.take()?;
        Some(SpeechEvent::Ended(words(&speech.samples, self.rate)))
    }

    fn frame(&mut self, frame: &[i16]) -> Option<SpeechEvent> {
        let loud = tones::level(frame) >= LOUD;
        let most = self.samples_in(MAX_SPEECH_MS);
        if let Some(speech) = &mut self.speech {
            if speech.samples.len() < most {
                speech.samples.extend_from_slice(frame);
            }
            speech.silent_ms = if loud { 0 } else { speech.silent_ms + FRAME_MS };
            let over = self.detects && speech.silent_ms >= self.silence_ms;
            // Samples that do not fill a frame yet come after this speech.
            return over.then(|| self.end()).flatten();
        }
        if !self.detects {
            return None;
        }
        self.preroll.extend(frame);
        let surplus = self
            .preroll
            .len()
            .saturating_sub(self.samples_in(PREROLL_MS));
        self.preroll.drain(..surplus);
        self.loud_ms = match loud {
            true => self.loud_ms + FRAME_MS,
            false => self.loud_ms.saturating_sub(FRAME_MS),
        };
        if self.loud_ms < ONSET_MS {
            return None;
        }
        self.loud_ms = 0;
        self.speech = Some(Speech {
            samples: std::mem::take(&mut self.preroll).into(),
            silent_ms: 0,
        });
        Some(SpeechEvent::Began)
    }

    fn samples_in(&self, milliseconds: usize) -> usize {
        (self.rate as usize * milliseconds / 1_000).max(1)
    }
}

/// The spoken words; a sound that spells nothing is described.
fn words(samples: &[i16], rate: u32) -> String {
    if let Some(text) = tones::read(samples, rate) {
        return text;
    }
    let frame = (rate as usize * FRAME_MS / 1_000).max(1);
    let loud: Vec<&[i16]> = samples
        .chunks(frame)
        .filter(|frame| tones::level(frame) >= LOUD)
        .collect();
    let seconds = (loud.len() * FRAME_MS) as f64 / 1_000.0;
    if loud.is_empty() {
        return "a silence".into();
    }
    let loud = loud.concat();
    let pairs = loud.windows(2);
    let crossings = pairs.filter(|two| (two[0] < 0) != (two[1] < 0)).count();
    let hertz = crossings as f64 / 2.0 / seconds;
    format!("a sound of {seconds:.1} seconds at about {hertz:.0} Hz")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silence(ms: usize) -> Vec<i16> {
        vec![0; 16 * ms]
    }

    fn tone(hertz: f64, ms: u32) -> Vec<i16> {
        (0..16 * ms)
            .map(|at| {
                (6_000.0 * (std::f64::consts::TAU * hertz * f64::from(at) / 16_000.0).sin()) as i16
            })
            .collect()
    }

    fn ended(text: &str) -> SpeechEvent {
        SpeechEvent::Ended(text.into())
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(16))]

        #[test]
        fn pieces_do_not_matter(piece in 1usize..3_000, lead in 0usize..400) {
            let audio = [silence(lead), tones::speak("hi", 16_000), silence(600), tones::speak("you", 16_000), silence(600)];
            let mut ears = Ears::new(true, None);
            let heard: Vec<_> = audio.concat().chunks(piece).flat_map(|it| ears.hear(it, 16_000)).collect();
            proptest::prop_assert_eq!(heard, vec![SpeechEvent::Began, ended("hi"), SpeechEvent::Began, ended("you")]);
        }
    }

    /// The end of one speech and the beginning of the next, in one piece that is not a whole number of frames.
    #[test]
    fn a_piece_may_hold_an_end_and_a_beginning() {
        let (hi, you) = (tones::speak("hi", 16_000), tones::speak("you", 16_000));
        for cut in (0..you.len()).step_by(37) {
            let mut ears = Ears::new(true, None);
            assert_eq!(ears.hear(&hi, 16_000), [SpeechEvent::Began]);
            let mut heard = ears.hear(&[silence(600), you[..cut].to_vec()].concat(), 16_000);
            heard.extend(ears.hear(&[you[cut..].to_vec(), silence(600)].concat(), 16_000));
            assert_eq!(
                heard,
                [ended("hi"), SpeechEvent::Began, ended("you")],
                "{cut}"
            );
        }
    }

    #[test]
    fn speech_ends_with_silence_or_with_its_stream() {
        let mut ears = Ears::new(true, Some(200));
        assert_eq!(ears.hear(&tone(440.0, 1_000), 16_000), [SpeechEvent::Began]);
        assert_eq!(ears.hear(&silence(190), 16_000), []);
        assert_eq!(
            ears.hear(&silence(10), 16_000),
            [ended("a sound of 1.0 seconds at about 440 Hz")]
        );
        assert_eq!(ears.hear(&tone(440.0, 30), 16_000), [], "a click");
        assert_eq!(ears.close(), None);
        assert_eq!(
            ears.hear(&tones::speak("wait", 16_000), 16_000),
            [SpeechEvent::Began]
        );
        assert_eq!(ears.close(), Some(ended("wait")));
    }

    #[test]
    fn explicit_activity_alone_opens_and_closes() {
        let mut ears = Ears::new(false, None);
        assert_eq!(ears.hear(&tone(440.0, 500), 16_000), []);
        assert!(ears.open());
        assert!(!ears.open());
        let said = [tones::speak("one", 16_000), silence(2_000)].concat();
        assert_eq!(ears.hear(&said, 16_000), []);
        assert_eq!(ears.close(), Some(ended("one")));
        assert!(ears.open());
        assert_eq!(ears.close(), Some(ended("a silence")));
    }
}
