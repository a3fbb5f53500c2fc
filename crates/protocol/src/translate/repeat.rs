//! Recognises what a complete event repeats of the deltas before it.

use std::hash::{DefaultHasher, Hasher as _};

use super::author::{Author, Kind};
use crate::event::Part;

/// What has been streamed of one kind of text: enough to recognise it when it is repeated, and nothing more.
#[derive(Debug, Clone, Default)]
pub(super) struct Streamed {
    bytes: usize,
    /// Reads bytes as a stream: it does not matter where the text was cut into pieces.
    hasher: DefaultHasher,
}

impl Streamed {
    pub(super) fn push(&mut self, text: &str) {
        self.bytes += text.len();
        self.hasher.write(text.as_bytes());
    }

    /// What `whole` adds to the streamed text; `None` if it does not begin with that text.
    pub(super) fn rest_of<'t>(&self, whole: &'t str) -> Option<&'t str> {
        let (begun, rest) = whole.split_at_checked(self.bytes)?;
        let mut seen = Self::default();
        seen.push(begun);
        (seen == *self).then_some(rest)
    }
}

impl PartialEq for Streamed {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.hasher.finish() == other.hasher.finish()
    }
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
    has_file: bool,
    has_code: bool,
}

/// How many bytes to skip; `All` if a complete event contradicts what has been shown.
#[derive(Debug, Clone, Copy)]
enum Skip {
    Bytes(usize),
    All,
}

impl Repeat {
    pub(super) fn of(author: &Author, parts: &[Part<'_>], partial: bool) -> Self {
        if partial {
            return Self {
                text: Skip::Bytes(0),
                thought: Skip::Bytes(0),
                files: 0,
                codes: 0,
                has_text: false,
                has_thought: false,
                has_file: false,
                has_code: false,
            };
        }
        let of_kind = |thought: bool| {
            parts
                .iter()
                .filter(move |part| (part.thought == Some(true)) == thought)
                .filter_map(|part| part.text.as_deref())
        };
        Self {
            text: Skip::over(&author.text, of_kind(false)),
            thought: Skip::over(&author.thought, of_kind(true)),
            files: author.files,
            codes: author.codes,
            has_text: of_kind(false).next().is_some(),
            has_thought: of_kind(true).next().is_some(),
            has_file: parts
                .iter()
                .any(|part| part.inline_data.is_some() || part.file_data.is_some()),
            has_code: parts
                .iter()
                .any(|part| part.executable_code.is_some() || part.code_execution_result.is_some()),
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

    pub(super) fn has_words(&self) -> bool {
        self.has_text || self.has_thought
    }

    /// Forgets the kinds of content that a complete event has repeated: what follows of them is new.
    pub(super) fn forget_repeated(&self, author: &mut Author) {
        if self.has_text {
            author.text = Streamed::default();
        }
        if self.has_thought {
            author.thought = Streamed::default();
        }
        if self.has_file {
            author.files = 0;
        }
        if self.has_code {
            author.codes = 0;
        }
    }
}

impl Skip {
    fn over<'t>(streamed: &Streamed, pieces: impl Iterator<Item = &'t str>) -> Self {
        let mut seen = Streamed::default();
        for piece in pieces {
            let taken = piece.len().min(streamed.bytes - seen.bytes);
            let Some(begun) = piece.get(..taken) else {
                return Self::All;
            };
            seen.push(begun);
        }
        if seen == *streamed {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Streamed;

    proptest! {
        #[test]
        fn pieces_make_no_difference(pieces in prop::collection::vec("[a-zé素]{0,20}", 1..20)) {
            let mut streamed = Streamed::default();
            pieces.iter().for_each(|piece| streamed.push(piece));
            let whole = pieces.concat();
            let more = format!("{whole}more");
            prop_assert_eq!(streamed.rest_of(&more), Some("more"));
            streamed.push("other");
            prop_assert_eq!(streamed.rest_of(&more), None);
        }
    }
}
