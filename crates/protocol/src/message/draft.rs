//! The message of a reply while it is being made.

use std::borrow::Cow;
use std::sync::Arc;

use super::fold::Fold;
use super::{Message, Part};
use crate::chunk::Chunk;
use crate::id::{ApprovalId, MessageId};
use crate::json_text::Json;
use crate::sdk::Sdk;

/// The message while it is being made: every chunk that is sent is also folded into it, so the two cannot differ.
#[derive(Debug)]
pub(crate) struct Draft {
    fold: Fold,
}

impl Draft {
    pub(crate) fn new(id: impl Into<MessageId>) -> Self {
        Self {
            fold: Fold::new(Sdk::NEWEST, id),
        }
    }

    pub(crate) fn onto(message: Message) -> Self {
        Self {
            fold: Fold::onto(Sdk::NEWEST, message),
        }
    }

    pub(crate) fn message(&self) -> &Message {
        self.fold.unsettled()
    }

    pub(crate) fn into_message(self) -> Message {
        self.fold.into_message()
    }

    /// The message, including inputs that are still arriving.
    pub(crate) fn snapshot(&self) -> Cow<'_, Message> {
        self.fold.snapshot()
    }

    /// The same, to be stored.
    pub(crate) fn share(&self) -> Arc<Message> {
        self.fold.share()
    }

    /// Folds a chunk that only the stored message shows.
    pub(crate) fn apply(&mut self, chunk: &Chunk<'_>) {
        let folded = self.fold.apply(chunk);
        // An `error` chunk ends a fold by design; anything else would be a chunk that no client accepts.
        debug_assert!(
            folded.is_ok() || matches!(chunk, Chunk::Error { .. }),
            "{folded:?} {chunk:?}"
        );
    }

    /// Stores what a human filled in with a decision, in the same place as the client.
    pub(crate) fn fill_in(&mut self, approval_id: &ApprovalId, payload: &Json) {
        let parts = &mut self.fold.message_mut().parts;
        let mut approvals = parts.iter_mut().rev().filter_map(|part| match part {
            Part::Tool(tool) => tool.approval.as_mut(),
            _ => None,
        });
        if let Some(approval) = approvals.find(|other| other.id.as_ref() == Some(approval_id)) {
            approval.extra.insert("payload", payload);
        }
    }

    /// The index of the next part. Ids of text parts are made from it, so a replay of the message finds the same ids.
    pub(crate) fn next_index(&self) -> usize {
        self.message().parts.len()
    }

    /// Whether the current step has a tool call: the stock predicates check nothing else.
    pub(crate) fn step_has_tools(&self) -> bool {
        self.message()
            .parts
            .iter()
            .rev()
            .take_while(|part| !matches!(part, Part::StepStart))
            .any(|part| matches!(part, Part::Tool(_)))
    }
}
