//! Text and reasoning as chunks: a reader that has a part of a text gets the rest.

use std::borrow::Cow;

use crate::chunk::{Chunk, Str};
use crate::json_text::Json;
use crate::message::{ReasoningPart, TextPart, TextState, text_id};

/// What a reader has of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SeenText {
    bytes: usize,
    /// Whether the reader can be sent more for the same part.
    is_open: bool,
}

impl SeenText {
    /// For a reader that has all of it and whose stream is still open.
    pub(super) fn all_of(text: &str, state: Option<TextState>) -> Self {
        Self {
            bytes: text.len(),
            is_open: state == Some(TextState::Streaming),
        }
    }

    /// For a reader that got it over another stream: the missing rest comes as a separate part.
    pub(super) fn closed(self) -> Self {
        Self {
            is_open: false,
            ..self
        }
    }
}

/// What text and reasoning have in common.
pub(super) struct Prose<'p> {
    kind: Kind,
    id: Str<'p>,
    text: &'p str,
    is_done: bool,
    metadata: Option<&'p Json>,
    citations: Option<&'p Json>,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Reasoning,
}

impl<'p> Prose<'p> {
    pub(super) fn text(part: &'p TextPart, index: usize) -> Self {
        Self {
            kind: Kind::Text,
            id: Cow::Owned(text_id(index)),
            text: &part.text,
            is_done: part.state != Some(TextState::Streaming),
            metadata: part.provider_metadata.as_ref(),
            citations: part.citations.as_ref(),
        }
    }

    pub(super) fn reasoning(part: &'p ReasoningPart, index: usize) -> Self {
        Self {
            kind: Kind::Reasoning,
            id: match &part.id {
                Some(id) => Cow::Borrowed(id),
                None => Cow::Owned(text_id(index)),
            },
            text: &part.text,
            is_done: part.state != Some(TextState::Streaming),
            metadata: part.provider_metadata.as_ref(),
            citations: None,
        }
    }

    /// Writes what a reader lacks, and returns what it has afterwards.
    pub(super) fn update(
        &self,
        has: Option<SeenText>,
        emit: &mut dyn FnMut(&Chunk<'_>),
    ) -> SeenText {
        let (bytes, is_open) = has.map_or((0, false), |seen| (seen.bytes, seen.is_open));
        let rest = self.text.get(bytes..).unwrap_or_default();
        // A part that is still growing must be open for the reader, even if there is nothing new in it yet.
        let is_complete = has.is_some() && !is_open && rest.is_empty() && self.is_done;
        if !is_complete {
            if !is_open {
                emit(&self.start());
            }
            if !rest.is_empty() {
                emit(&self.delta(rest));
            }
            if self.is_done {
                emit(&self.end());
            }
        }
        SeenText {
            bytes: bytes + rest.len(),
            is_open: !self.is_done,
        }
    }

    fn start(&self) -> Chunk<'_> {
        let id = Cow::Borrowed(self.id.as_ref());
        // Metadata is sent with the end if there is one, because signatures arrive there.
        let provider_metadata = self.metadata.filter(|_| !self.is_done).cloned();
        match self.kind {
            Kind::Text => Chunk::TextStart {
                id,
                provider_metadata,
            },
            Kind::Reasoning => Chunk::ReasoningStart {
                id,
                provider_metadata,
            },
        }
    }

    fn delta<'d>(&'d self, delta: &'d str) -> Chunk<'d> {
        let id = self.id.as_ref();
        match self.kind {
            Kind::Text => Chunk::text_delta(id, delta),
            Kind::Reasoning => Chunk::reasoning_delta(id, delta),
        }
    }

    fn end(&self) -> Chunk<'_> {
        let id = Cow::Borrowed(self.id.as_ref());
        let provider_metadata = self.metadata.cloned();
        match self.kind {
            Kind::Text => Chunk::TextEnd {
                id,
                provider_metadata,
                citations: self.citations.cloned(),
            },
            Kind::Reasoning => Chunk::ReasoningEnd {
                id,
                provider_metadata,
            },
        }
    }
}
