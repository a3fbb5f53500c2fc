//! An answer that is being spoken, piece by piece.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

use super::super::answer::{Answer, End, Piece};
use super::super::chunks::words;
use super::super::script::{Call, Line};

const SAMPLES_PER_MILLISECOND: u64 = 24;

/// The next step of an answer.
#[derive(Debug)]
pub(super) enum Cue {
    Words(String),
    Part(Value),
    Calls(Vec<Call>),
    Line(Line),
    /// Everything is generated; it may still be playing.
    Generated,
    Complete(End, Option<Value>),
}

pub(super) struct Speech {
    cues: Box<dyn Iterator<Item = Cue> + Send>,
    /// The text so far.
    pub(super) said: String,
    pace: Duration,
    /// How long everything so far takes to play.
    sound: Duration,
    /// How long the answer has been going on.
    spent: Duration,
    generated: bool,
}

impl Speech {
    pub(super) fn new(answer: Answer, pace: Duration) -> Self {
        let mut calls = Vec::new();
        let mut others = VecDeque::new();
        for piece in answer.pieces {
            match piece {
                Piece::Call(call) => calls.push(call),
                // Pictures cannot be spoken.
                Piece::Picture(_) => {}
                other => others.push_back(other),
            }
        }
        let spoken = others.into_iter().flat_map(cues);
        let cues: Box<dyn Iterator<Item = Cue> + Send> = match calls.is_empty() {
            false => Box::new(spoken.chain([Cue::Calls(calls)])),
            true => Box::new(
                spoken.chain([Cue::Generated, Cue::Complete(answer.end, answer.grounding)]),
            ),
        };
        Self {
            cues,
            said: String::new(),
            pace,
            sound: Duration::ZERO,
            spent: Duration::ZERO,
            generated: false,
        }
    }

    /// Only these words.
    pub(super) fn of_words(words: &str, pace: Duration) -> Self {
        let answer = Answer {
            pieces: vec![Piece::Text(words.to_owned())],
            ..Answer::default()
        };
        Self::new(answer, pace)
    }

    /// A turn is complete only when it has been heard: until then it can be interrupted. Without a pace, it does not
    /// wait.
    pub(super) fn pause(&self) -> Duration {
        match self.generated && !self.pace.is_zero() {
            true => self.sound.saturating_sub(self.spent).max(self.pace),
            false => self.pace,
        }
    }

    pub(super) fn next(&mut self) -> Cue {
        self.spent += self.pause();
        let cue = self.cues.next();
        self.generated |= matches!(cue, Some(Cue::Generated));
        cue.unwrap_or(Cue::Complete(End::Stop, None))
    }

    pub(super) fn sounded(&mut self, samples: usize) {
        self.sound += Duration::from_millis(samples as u64 / SAMPLES_PER_MILLISECOND);
    }

    pub(super) fn sound(&self) -> Duration {
        self.sound
    }
}

fn cues(piece: Piece) -> Box<dyn Iterator<Item = Cue> + Send> {
    match piece {
        Piece::Text(text) => Box::new(words(text).map(Cue::Words)),
        Piece::Thought(text) => Box::new(
            words(text).map(|text| Cue::Part(serde_json::json!({"text": text, "thought": true}))),
        ),
        Piece::Words(count) => Box::new((1..=count).map(move |number| {
            let space = if number < count { " " } else { "." };
            Cue::Words(format!("word{number}{space}"))
        })),
        Piece::Whole(part) => Box::new(std::iter::once(Cue::Part(part))),
        Piece::Line(line) => Box::new(std::iter::once(Cue::Line(line))),
        Piece::Call(_) | Piece::Picture(_) => Box::new(std::iter::empty()),
    }
}
