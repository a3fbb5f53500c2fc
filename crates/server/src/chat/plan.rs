//! What a request means for a chat: an answer to its reply, or something new, possibly after a cut in the history.

use std::collections::HashSet;

use adk_bridge_protocol::dialect::file_of_image;
use adk_bridge_protocol::history::user_parts;
use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::message::{Message, Part, Role};

use super::attachments;
use super::conversation::Conversation;
use super::error::ChatError;
use super::loaded::json_bytes;
use super::request::ChatRequest;
use super::task::new_id;
use crate::store::Cut;

/// What is to be done with a request.
#[derive(Debug)]
pub(super) enum Plan {
    /// Answers to the current reply, or to an older one, whose message is given.
    Answer(Option<Message>),
    /// A new message, after a cut if the request goes back.
    Submit {
        messages: Vec<Message>,
        cut: Option<CutAt>,
    },
    Refuse(ChatError),
}

/// Where the history ends before something new.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CutAt {
    After(MessageId),
    From(MessageId),
    /// Everything except the messages at these places of the store; `left` has those messages.
    AllBut {
        places: Vec<u64>,
        left: Vec<Message>,
    },
}

impl CutAt {
    pub(super) fn for_store(cut: Option<&Self>) -> Cut<'_> {
        match cut {
            None => Cut::Nothing,
            Some(Self::After(id)) => Cut::After(id),
            Some(Self::From(id)) => Cut::From(id),
            Some(Self::AllBut { places, .. }) => Cut::AllBut(places),
        }
    }

    /// How many bytes of a history remain, as JSON.
    pub(super) fn bytes_left<'m>(&self, history: impl Iterator<Item = &'m Message>) -> usize {
        let history: Vec<&Message> = history.collect();
        self.left(history).into_iter().map(json_bytes).sum()
    }

    /// The messages of a history that remain.
    pub(super) fn left<'m>(&'m self, mut history: Vec<&'m Message>) -> Vec<&'m Message> {
        let place = |id: &MessageId| history.iter().position(|message| message.id == *id);
        let end = match self {
            Self::After(id) => place(id).map(|place| place + 1),
            Self::From(id) => place(id),
            Self::AllBut { left, .. } => return left.iter().collect(),
        };
        history.truncate(end.unwrap_or(usize::MAX));
        history
    }

    pub(super) fn apply(&self, history: &mut Vec<Message>) {
        let position = |id: &MessageId| history.iter().position(|message| message.id == *id);
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
            Self::AllBut { left, .. } => history.clone_from(left),
        }
    }
}

impl ChatRequest {
    /// The message that counts: the server has the others.
    pub fn last(&self) -> &Message {
        // `parse` refuses a request without messages.
        &self.messages[self.messages.len() - 1]
    }

    pub(super) fn replace_last(&mut self, message: Message) {
        self.messages.pop();
        self.messages.push(message);
    }

    /// The copies of older messages that come with it.
    pub(super) fn older(&self) -> &[Message] {
        &self.messages[..self.messages.len() - 1]
    }

    /// The same, and those that only hold answers.
    pub(super) fn older_answers(&self) -> impl Iterator<Item = &Message> {
        self.older().iter().chain(&self.answered)
    }
}

/// Decides what a request means. `current` is the message of the current reply.
pub(super) fn plan(
    request: &ChatRequest,
    conversation: &Conversation,
    current: Option<&Message>,
) -> Plan {
    let last = request.last();
    if last.role == Role::User
        && let Some(error) = attachments::unreadable(last)
    {
        return Plan::Refuse(error);
    }
    let (stored, known) = (|| conversation.find(&last.id), conversation.is_known());
    if last.role == Role::User
        && let Some(id) = twice(&request.messages)
    {
        let id = id.to_owned();
        return Plan::Refuse(ChatError::DuplicateMessageId { id });
    }
    match last.role {
        Role::System => Plan::Refuse(ChatError::LastMessageIsSystem),
        Role::User if user_parts(last).is_empty() => Plan::Refuse(ChatError::EmptyMessage),
        Role::Assistant if current.is_some_and(|current| current.id == last.id) => {
            Plan::Answer(None)
        }
        Role::Assistant if !known => Plan::Refuse(ChatError::NoSuchChat),
        Role::Assistant => match stored() {
            Some(older) => Plan::Answer(Some(older.clone())),
            None => Plan::Refuse(ChatError::MessageNotInChat {
                id: last.id.clone(),
            }),
        },
        Role::User => match stored() {
            // The same text again: only what followed it is cut.
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
            None => Plan::Submit {
                messages: rebuilt(&request.messages),
                cut: None,
            },
        },
    }
}

/// The history of a chat that the server has never seen. The last message is new, and is kept whole as in any other chat.
fn rebuilt(messages: &[Message]) -> Vec<Message> {
    let Some((last, earlier)) = messages.split_last() else {
        return Vec::new();
    };
    let last = std::iter::once(with_id(last.clone()));
    earlier.iter().filter_map(taken_over).chain(last).collect()
}

/// What is taken over of a message that the server has never seen: what it says, not claims about what happened.
pub(super) fn taken_over(message: &Message) -> Option<Message> {
    let mut message = with_id(message.clone());
    message.parts = (message.parts.into_iter())
        .filter_map(|part| match part {
            Part::Text(_) | Part::File(_) => Some(part),
            Part::Data(data) => file_of_image(&data).map(Part::File),
            _ => None,
        })
        .collect();
    (message.role != Role::System && !message.parts.is_empty()).then_some(message)
}

/// An id that more than one message has.
fn twice(messages: &[Message]) -> Option<&MessageId> {
    let mut seen = HashSet::new();
    messages
        .iter()
        .map(|message| &message.id)
        .find(|id| !id.is_empty() && !seen.insert(*id))
}

fn with_id(mut message: Message) -> Message {
    if message.id.is_empty() {
        message.id = new_id("msg").into();
    }
    message
}
