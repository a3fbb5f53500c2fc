//! The user's input that waits for a connection: bounded, the oldest audio is dropped first.

use std::collections::VecDeque;

use bytes::Bytes;

/// How much audio waits for a connection: fifteen seconds, as long as one may take to open.
pub(crate) const MAX_AUDIO_BYTES: usize = 15 * 32_000;
/// How many pictures wait: older ones are useless to a model that looks once a second.
pub(crate) const MAX_PICTURES: usize = 2;
/// How many items wait in all: small pieces of audio, and key presses.
pub(crate) const MAX_ITEMS: usize = 1_024;
/// A hundred milliseconds of audio.
const PIECE_BYTES: usize = 3_200;

/// One input of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UserInput {
    Audio(Bytes),
    Picture { data: Bytes, media_type: String },
    ActivityStart,
    ActivityEnd,
    AudioStreamEnd,
}

#[derive(Debug, Default)]
pub(crate) struct InputQueue {
    items: VecDeque<UserInput>,
    audio_bytes: usize,
}

/// How the bounds of speech are known when it is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bounds {
    /// The model detects them.
    Heard,
    /// A key marks them; `pressed`: it is still held down.
    Key { pressed: bool },
}

impl InputQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn push(&mut self, item: UserInput) {
        match &item {
            UserInput::Audio(pcm) => self.audio_bytes += pcm.len(),
            UserInput::Picture { .. } => {
                let pictures = self.items.iter().filter(|it| is_picture(it)).count();
                if pictures >= MAX_PICTURES {
                    self.remove_first(is_picture);
                }
            }
            UserInput::ActivityStart | UserInput::ActivityEnd | UserInput::AudioStreamEnd => {}
        }
        self.items.push_back(item);
        self.trim();
    }

    pub(super) fn pop(&mut self) -> Option<UserInput> {
        let item = self.items.pop_front();
        if let Some(UserInput::Audio(pcm)) = &item {
            self.audio_bytes -= pcm.len();
        }
        item
    }

    /// Drops pictures, which are large and useless later.
    pub(super) fn forget_pictures(&mut self) {
        self.items.retain(|item| !is_picture(item));
    }

    /// Puts unanswered speech in front, as one piece. Audio that waits is its end, and is not sent twice.
    pub(super) fn say_again(&mut self, speech: &[u8], bounds: Bounds) {
        let recent = speech.len().saturating_sub(MAX_AUDIO_BYTES) & !1;
        let speech = &speech[recent..];
        if speech.is_empty() {
            return;
        }
        self.items.retain(is_unrelated_to_speech);
        self.audio_bytes = speech.len();
        if bounds == (Bounds::Key { pressed: false }) {
            self.items.push_front(UserInput::ActivityEnd);
        }
        for piece in speech.chunks(PIECE_BYTES).rev() {
            let piece = Bytes::copy_from_slice(piece);
            self.items.push_front(UserInput::Audio(piece));
        }
        if bounds != Bounds::Heard {
            self.items.push_front(UserInput::ActivityStart);
        }
        self.trim();
    }

    /// Adapts the queue to a new connection: one that detects the bounds of speech gets no keys, and one that does not
    /// gets a key with every audio.
    pub(super) fn fit(&mut self, bounds: Bounds) {
        let Bounds::Key { pressed } = bounds else {
            return self.items.retain(|item| !is_key(item));
        };
        let mut active = false;
        for item in std::mem::take(&mut self.items) {
            let (before, after) = match item {
                UserInput::Audio(_) | UserInput::ActivityStart => (true, true),
                UserInput::ActivityEnd => (active, false),
                UserInput::Picture { .. } | UserInput::AudioStreamEnd => (active, active),
            };
            if before && !active {
                self.items.push_back(UserInput::ActivityStart);
            }
            if !is_key(&item) || active && !after {
                self.items.push_back(item);
            }
            active = after;
        }
        match (active, pressed) {
            (false, true) => self.items.push_back(UserInput::ActivityStart),
            (true, false) => self.items.push_back(UserInput::ActivityEnd),
            _ => {}
        }
        self.trim();
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.items.len(), self.audio_bytes)
    }

    fn trim(&mut self) {
        while self.audio_bytes > MAX_AUDIO_BYTES || self.items.len() > MAX_ITEMS {
            // Keys are kept because they mark where the remaining audio begins and ends.
            if !self.remove_first(is_audio) && self.pop().is_none() {
                return;
            }
        }
    }

    fn remove_first(&mut self, is_it: fn(&UserInput) -> bool) -> bool {
        let Some(first) = self.items.iter().position(is_it) else {
            return false;
        };
        if let Some(UserInput::Audio(pcm)) = self.items.remove(first) {
            self.audio_bytes -= pcm.len();
        }
        true
    }
}

fn is_audio(item: &UserInput) -> bool {
    matches!(item, UserInput::Audio(_))
}

fn is_key(item: &UserInput) -> bool {
    matches!(item, UserInput::ActivityStart | UserInput::ActivityEnd)
}

/// Whether it is neither speech nor marks the bounds of speech.
fn is_unrelated_to_speech(item: &UserInput) -> bool {
    matches!(item, UserInput::Picture { .. } | UserInput::AudioStreamEnd)
}

fn is_picture(item: &UserInput) -> bool {
    matches!(item, UserInput::Picture { .. })
}
