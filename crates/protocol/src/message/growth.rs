//! What the texts of a message have grown by since it was stored, so that only that has to be stored.
//!
//! A piece of text says where it belongs: to which part, after how many bytes, and with which checksum of those bytes. So
//! it can be put only where it came from, whatever else was stored meanwhile and in whichever order.

use super::{Message, Part};

/// How long the texts of a message were when it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// By part; parts without text have none.
    texts: Vec<Option<Length>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Length {
    bytes: usize,
    checksum: Checksum,
}

/// What one text has grown by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// The place of the part in the message.
    pub part: usize,
    /// How many bytes of the text come before it.
    pub at: usize,
    /// Of those bytes.
    pub checksum: i64,
    /// What is new.
    pub text: String,
}

impl Extent {
    /// How far a message has come.
    pub fn of(message: &Message) -> Self {
        let length = |text: &str| Length {
            bytes: text.len(),
            checksum: Checksum::default().with(text),
        };
        let texts = message.parts.iter().map(text_of);
        Self {
            texts: texts.map(|text| text.map(length)).collect(),
        }
    }

    /// What the texts of the message have grown by, which counts as stored from here on. `None` if more than texts has
    /// changed; nothing else is noticed in a part that stays.
    pub fn grow(&mut self, message: &Message) -> Option<Vec<Growth>> {
        if self.texts.len() != message.parts.len() {
            return None;
        }
        let mut grown = Vec::new();
        for (part, (stored, now)) in self.texts.iter_mut().zip(&message.parts).enumerate() {
            let (stored, text) = match (stored, text_of(now)) {
                (Some(stored), Some(text)) => (stored, text),
                (None, None) => continue,
                _ => return None,
            };
            let added = text.get(stored.bytes..)?;
            if !added.is_empty() {
                grown.push(Growth {
                    part,
                    at: stored.bytes,
                    checksum: stored.checksum.as_i64(),
                    text: added.to_owned(),
                });
                stored.bytes = text.len();
                stored.checksum = stored.checksum.with(added);
            }
        }
        Some(grown)
    }
}

impl Message {
    /// Adds pieces of text, in any order, to the texts that they belong to. Others are left out.
    pub fn grow(&mut self, pieces: &[Growth]) {
        for (index, part) in self.parts.iter_mut().enumerate() {
            let (Part::Text(super::TextPart { text, .. })
            | Part::Reasoning(super::ReasoningPart { text, .. })) = part
            else {
                continue;
            };
            let mut checksum = Checksum::default().with(text);
            let next = |text: &str, checksum: Checksum| {
                pieces.iter().find(|piece| {
                    (piece.part, piece.at, piece.checksum) == (index, text.len(), checksum.as_i64())
                        && !piece.text.is_empty()
                })
            };
            while let Some(piece) = next(text, checksum) {
                text.push_str(&piece.text);
                checksum = checksum.with(&piece.text);
            }
        }
    }
}

fn text_of(part: &Part) -> Option<&str> {
    match part {
        Part::Text(text) => Some(&text.text),
        Part::Reasoning(reasoning) => Some(&reasoning.text),
        _ => None,
    }
}

/// FNV-1a of 64 bits: it is stored, so it must not change, and it goes on where it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    #[must_use]
    fn with(self, text: &str) -> Self {
        let add = |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(text.bytes().fold(self.0, add))
    }

    /// As databases have numbers.
    fn as_i64(self) -> i64 {
        self.0.cast_signed()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::message::{ReasoningPart, TextPart};

    fn text(text: &str) -> Part {
        Part::Text(TextPart {
            text: text.into(),
            ..TextPart::default()
        })
    }

    fn reasoning(text: &str) -> Part {
        Part::Reasoning(ReasoningPart {
            text: text.into(),
            ..ReasoningPart::default()
        })
    }

    fn message(parts: Vec<Part>) -> Message {
        Message {
            parts,
            ..Message::assistant("m1")
        }
    }

    #[test]
    fn pieces_make_a_stored_message_what_it_was() {
        let stored = message(vec![Part::StepStart, reasoning("Hm"), text("One")]);
        let mut extent = Extent::of(&stored);
        let states = [
            ("Hm", "One, two"),
            ("Hm, hm", "One, two"),
            ("Hm, hm", "One, two"),
            ("Hm, hm.", "One, two, drei ß"),
        ];
        let (mut pieces, mut last) = (Vec::new(), stored.clone());
        for (thought, said) in states {
            last = message(vec![Part::StepStart, reasoning(thought), text(said)]);
            pieces.push(extent.grow(&last).unwrap());
        }
        assert_eq!(
            pieces.iter().map(Vec::len).collect::<Vec<_>>(),
            [1, 1, 0, 2]
        );
        let pieces: Vec<Growth> = pieces.into_iter().rev().flatten().collect();
        let mut loaded = stored;
        loaded.grow(&pieces);
        assert_eq!(loaded, last);
        loaded.grow(&pieces);
        assert_eq!(loaded, last, "pieces that are in it already");
    }

    #[test]
    fn a_piece_goes_nowhere_but_where_it_came_from() {
        let mut extent = Extent::of(&message(vec![text("Hello")]));
        let pieces = extent.grow(&message(vec![text("Hello world")])).unwrap();
        for other in [
            vec![text("Hellö")],
            vec![text("Hell")],
            vec![text("Hello world")],
            vec![Part::StepStart, text("Hello")],
            vec![],
        ] {
            let mut loaded = message(other.clone());
            loaded.grow(&pieces);
            assert_eq!(loaded, message(other));
        }
    }

    #[test]
    fn other_changes_are_not_growth() {
        let stored = message(vec![text("Hello")]);
        for other in [
            vec![text("Hello"), text("")],
            vec![],
            vec![text("Hell")],
            vec![Part::StepStart],
            // The end of what was stored is in the middle of a letter.
            vec![text("HellöX")],
        ] {
            assert_eq!(Extent::of(&stored).grow(&message(other)), None);
        }
    }
}
