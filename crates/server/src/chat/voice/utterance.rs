//! The user's utterance in a turn: a message whose text arrives in pieces.

use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::message::{Extra, FilePart, Message, Part, Role, TextPart};

use crate::chat::attachments;
use crate::store::FileRow;

/// How many bytes of the user's text are kept for a turn: hours of speech.
const MAX_WORDS_BYTES: usize = 256 * 1024;

pub(in crate::chat) struct Utterance {
    message: Message,
    words: String,
    /// Whether it differs from what is stored.
    changed: bool,
}

impl Utterance {
    /// An empty utterance, in a message with this id.
    pub(in crate::chat) fn new(id: MessageId) -> Self {
        Self {
            message: Message {
                id,
                role: Role::User,
                metadata: None,
                parts: Vec::new(),
                extra: Extra::default(),
            },
            words: String::new(),
            changed: false,
        }
    }

    pub(in crate::chat) fn message(&self) -> &Message {
        &self.message
    }

    /// Adds a transcription: pieces first, then the whole.
    pub(in crate::chat) fn add_transcription(&mut self, text: &str, finished: bool) {
        match finished {
            true => text.clone_into(&mut self.words),
            false => self.words.push_str(text),
        }
        let kept = self.words.floor_char_boundary(MAX_WORDS_BYTES);
        self.words.truncate(kept);
        self.changed = true;
        let said = Part::Text(TextPart {
            text: self.words.clone(),
            ..TextPart::default()
        });
        match self.message.parts.first_mut() {
            Some(first @ Part::Text(_)) => *first = said,
            _ => self.message.parts.insert(0, said),
        }
    }

    pub(in crate::chat) fn has_recording(&self) -> bool {
        let parts = &self.message.parts;
        parts.iter().any(|part| matches!(part, Part::File(_)))
    }

    pub(in crate::chat) fn add_recording(&mut self, file: FileRow) {
        self.message.parts.push(Part::File(FilePart {
            media_type: file.media_type,
            url: attachments::url_of(&file.id),
            filename: Some(attachments::RECORDING.to_owned()),
            provider_metadata: None,
            extra: Extra::default(),
        }));
        self.changed = true;
    }

    /// The message, if it has to be stored again.
    pub(in crate::chat) fn take_changed(&mut self) -> Option<Message> {
        std::mem::take(&mut self.changed).then(|| self.message.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(utterance: &Utterance) -> Option<&str> {
        match utterance.message().parts.first() {
            Some(Part::Text(part)) => Some(&part.text),
            _ => None,
        }
    }

    #[test]
    fn pieces_become_a_whole_and_are_stored_when_they_change() {
        let mut utterance = Utterance::new("m".into());
        assert!(utterance.take_changed().is_none());
        utterance.add_transcription("good ", false);
        utterance.add_transcription("moaning", false);
        assert_eq!(text_of(&utterance), Some("good moaning"));
        utterance.add_transcription("good morning", true);
        assert_eq!(text_of(&utterance), Some("good morning"));
        assert!(utterance.take_changed().is_some());
        assert!(utterance.take_changed().is_none());
    }

    #[test]
    fn endless_words_are_cut_between_characters() {
        let mut utterance = Utterance::new("m".into());
        for _ in 0..MAX_WORDS_BYTES / 3 + 10 {
            utterance.add_transcription("語", false);
        }
        assert_eq!(
            text_of(&utterance).map(str::len),
            Some(MAX_WORDS_BYTES / 3 * 3)
        );
    }
}
