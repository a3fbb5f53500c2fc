//! Recognises in a complete event what was streamed before it.

use super::{Kind, Translator};
use crate::event::Part;

/// What has been streamed of one kind of text: enough to recognise it when it is repeated, and nothing more.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Streamed {
    bytes: usize,
    hash: u64,
}

impl Streamed {
    pub(super) fn push(&mut self, text: &str) {
        self.bytes += text.len();
        self.hash = hash(self.hash, text);
    }

    /// What `whole` adds to what has been streamed; nothing where it does not begin with it.
    pub(super) fn rest_of<'t>(&self, whole: &'t str) -> Option<&'t str> {
        let (begun, rest) = whole.split_at_checked(self.bytes)?;
        (hash(0, begun) == self.hash).then_some(rest)
    }
}

/// FNV-1a: does not depend on how the text was cut into pieces.
fn hash(state: u64, text: &str) -> u64 {
    let start = if state == 0 {
        0xcbf2_9ce4_8422_2325
    } else {
        state
    };
    text.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// How much of a complete event is a repeat of what was streamed before it.
#[derive(Debug)]
pub(super) struct Repeat {
    text: Skip,
    thought: Skip,
    files: usize,
    codes: usize,
    has_text: bool,
    has_thought: bool,
}

/// How many bytes to pass over; `All` where a complete event contradicts what has been shown.
#[derive(Debug, Clone, Copy)]
enum Skip {
    Bytes(usize),
    All,
}

impl Repeat {
    pub(super) fn of(translator: &Translator, parts: &[Part<'_>], partial: bool) -> Self {
        if partial {
            return Self {
                text: Skip::Bytes(0),
                thought: Skip::Bytes(0),
                files: 0,
                codes: 0,
                has_text: false,
                has_thought: false,
            };
        }
        let of_kind = |thought: bool| {
            parts
                .iter()
                .filter(move |part| (part.thought == Some(true)) == thought)
                .filter_map(|part| part.text.as_deref())
        };
        Self {
            text: Skip::over(&translator.text, of_kind(false)),
            thought: Skip::over(&translator.thought, of_kind(true)),
            files: translator.files,
            codes: translator.codes,
            has_text: of_kind(false).next().is_some(),
            has_thought: of_kind(true).next().is_some(),
        }
    }

    pub(super) fn rest<'t>(&mut self, kind: Kind, text: &'t str) -> &'t str {
        let skip = match kind {
            Kind::Text => &mut self.text,
            Kind::Thought => &mut self.thought,
        };
        match skip {
            Skip::All => "",
            Skip::Bytes(bytes) => {
                let passed = (*bytes).min(text.len());
                *bytes -= passed;
                text.get(passed..).unwrap_or_default()
            }
        }
    }

    pub(super) fn skip_file(&mut self) -> bool {
        take_one(&mut self.files)
    }

    pub(super) fn skip_code(&mut self) -> bool {
        take_one(&mut self.codes)
    }

    /// A complete event closes what it repeated: the next one of its kind is new.
    pub(super) fn done(&self, translator: &mut Translator) {
        if self.has_text {
            translator.text = Streamed::default();
        }
        if self.has_thought {
            translator.thought = Streamed::default();
        }
    }
}

impl Skip {
    fn over<'t>(streamed: &Streamed, pieces: impl Iterator<Item = &'t str>) -> Self {
        let mut left = streamed.bytes;
        let mut seen = 0;
        for piece in pieces {
            let taken = left.min(piece.len());
            let Some(begun) = piece.get(..taken) else {
                return Self::All;
            };
            if taken > 0 {
                seen = hash(seen, begun);
            }
            left -= taken;
        }
        if streamed.bytes == 0 || left == 0 && seen == streamed.hash {
            Self::Bytes(streamed.bytes)
        } else {
            Self::All
        }
    }
}

fn take_one(count: &mut usize) -> bool {
    let some = *count > 0;
    *count = count.saturating_sub(1);
    some
}
