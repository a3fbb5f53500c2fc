//! What a request means for a chat: an answer to its reply, or something new, possibly after a cut in the history.

use std::collections::HashSet;

use adk_bridge_protocol::history::user_parts;
use adk_bridge_protocol::message::{Message, Part, Role};

use super::kept;
use super::request::ChatRequest;
use super::task::new_id;
use crate::error::AppError;
use crate::store::Cut;

/// What is to be done with a request.
#[derive(Debug)]
pub(super) enum Plan {
    /// Answers to the current reply; or to an older one, which is given.
    Answer(Option<Message>),
    /// A new message, after a cut where the request goes back.
    Submit {
        messages: Vec<Message>,
        cut: Option<CutAt>,
    },
    Refuse(AppError),
}

/// Where the history ends before something new comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CutAt {
    After(String),
    From(String),
}

impl CutAt {
    pub(super) fn for_store(cut: Option<&Self>) -> Cut<'_> {
        match cut {
            None => Cut::Nothing,
            Some(Self::After(id)) => Cut::After(id),
            Some(Self::From(id)) => Cut::From(id),
        }
    }

    pub(super) fn apply(&self, history: &mut Vec<Message>) {
        let position = |id: &str| history.iter().position(|message| message.id == id);
        match self {
            Self::After(id) => {
                if let Some(position) = position(id) {
                    history.truncate(position + 1);
                }
            }
            Self::From(id) => {
                if let Some(position) = position(id) {
                    history.truncate(position);
                }
            }
        }
    }
}

impl ChatRequest {
    /// The message that counts: the server has the others.
    pub fn last(&self) -> &Message {
        // `parse` refuses a request without messages.
        &self.messages[self.messages.len() - 1]
    }
}

/// Decides what a request means. `current` is the message of the current reply.
pub(super) fn plan(
    request: &ChatRequest,
    history: &[Message],
    current: Option<&Message>,
    known: bool,
) -> Plan {
    let last = request.last();
    if last.role == Role::User
        && let Some(error) = kept::unreadable(last)
    {
        return Plan::Refuse(error);
    }
    let stored = || history.iter().find(|message| message.id == last.id);
    match last.role {
        Role::System => Plan::Refuse(AppError::unprocessable(
            "bad_message",
            "the last message must be the user's, or the assistant's with answers",
        )),
        Role::User if user_parts(last).is_empty() => Plan::Refuse(AppError::unprocessable(
            "bad_message",
            "the last message says nothing; send text or files in its parts",
        )),
        Role::Assistant if current.is_some_and(|current| current.id == last.id) => {
            Plan::Answer(None)
        }
        Role::Assistant if !known => Plan::Refuse(AppError::not_found("chat")),
        Role::Assistant => match stored() {
            Some(older) => Plan::Answer(Some(older.clone())),
            None => Plan::Refuse(AppError::conflict(format!(
                "the message {:?} is not part of this chat; load the chat again",
                last.id
            ))),
        },
        Role::User => match stored() {
            // The same words again: only what followed them goes.
            Some(same) if same.parts == last.parts => Plan::Submit {
                messages: Vec::new(),
                cut: Some(CutAt::After(last.id.clone())),
            },
            Some(_) => Plan::Submit {
                messages: vec![last.clone()],
                cut: Some(CutAt::From(last.id.clone())),
            },
            None if known => Plan::Submit {
                messages: vec![with_id(last.clone())],
                cut: None,
            },
            None => match twice(&request.messages) {
                Some(id) => Plan::Refuse(AppError::unprocessable(
                    "bad_message",
                    format!("two messages have the id {id:?}; give each its own"),
                )),
                None => Plan::Submit {
                    messages: rebuilt(&request.messages),
                    cut: None,
                },
            },
        },
    }
}

/// A chat that the server has never seen: what was said is taken over, what is claimed to have happened is not. The last
/// message is what is said just now, and is kept whole as in any other chat.
fn rebuilt(messages: &[Message]) -> Vec<Message> {
    let last = messages.len().saturating_sub(1);
    messages
        .iter()
        .enumerate()
        .filter(|(_, message)| message.role != Role::System)
        .map(|(index, message)| {
            let mut message = with_id(message.clone());
            message
                .parts
                .retain(|part| index == last || matches!(part, Part::Text(_) | Part::File(_)));
            message
        })
        .filter(|message| !message.parts.is_empty())
        .collect()
}

/// An id that more than one message has.
fn twice(messages: &[Message]) -> Option<&str> {
    let mut seen = HashSet::new();
    messages
        .iter()
        .map(|message| message.id.as_str())
        .find(|id| !id.is_empty() && !seen.insert(*id))
}

fn with_id(mut message: Message) -> Message {
    if message.id.is_empty() {
        message.id = new_id("msg");
    }
    message
}
