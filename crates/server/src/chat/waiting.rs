//! Replies that wait for a human while the conversation continues by voice or with a later result, and answers to them
//! that wait for a turn to end.
//!
//! ```text
//!            speech or a later result begins a turn, and the reply only waits
//!     current ───────────────────────────────────────────────────▶ waiting
//!        ▲                                                            │
//!        └── an answer, an output, its time: as soon as nothing runs ─┘
//! ```
//!
//! A resumed reply is the last of the conversation, because its results are new. In the store, and on a page, its
//! message stays where it was.

use std::collections::VecDeque;

use adk_bridge_protocol::id::{CallId, MessageId};
use adk_bridge_protocol::message::Role;
use adk_bridge_protocol::reply::Reply;
use adk_bridge_protocol::time::Timestamp;

use super::command::Command;
use super::live::{LiveAsk, LiveCommand};

/// How many questions may wait during the conversation; nobody keeps more in mind.
const MAX_WAITING: usize = 16;
/// How many answers to them may wait for a turn to end.
const MAX_LATER: usize = 32;

#[derive(Default)]
pub(super) struct WaitingReplies {
    replies: Vec<Reply>,
    later: VecDeque<Command>,
}

impl WaitingReplies {
    pub(super) fn load(&mut self, replies: Vec<Reply>) {
        self.replies = replies;
    }

    pub(super) fn clear(&mut self) {
        self.replies.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Reply> {
        self.replies.iter()
    }

    pub(super) fn has_room(&self) -> bool {
        self.replies.len() < MAX_WAITING
    }

    pub(super) fn push(&mut self, reply: Reply) {
        self.replies.push(reply);
    }

    pub(super) fn take(&mut self, id: &MessageId) -> Option<Reply> {
        let index = self.replies.iter().position(|it| it.message().id == *id)?;
        Some(self.replies.remove(index))
    }

    pub(super) fn contains(&self, id: &MessageId) -> bool {
        self.replies.iter().any(|reply| reply.message().id == *id)
    }

    pub(super) fn first_id(&self) -> Option<MessageId> {
        self.replies.first().map(|it| it.message().id.clone())
    }

    /// When the first of them expires.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.replies.iter().filter_map(Reply::deadline).min()
    }

    /// One that has expired.
    pub(super) fn due(&self, now: Timestamp) -> Option<MessageId> {
        let due = |reply: &&Reply| reply.deadline().is_some_and(|at| at <= now);
        self.replies
            .iter()
            .find(due)
            .map(|it| it.message().id.clone())
    }

    /// Keeps a command until the turn has ended. Returns it if too many wait.
    pub(super) fn defer(&mut self, command: Command) -> Option<Command> {
        if self.later.len() >= MAX_LATER {
            return Some(command);
        }
        self.later.push_back(command);
        None
    }

    /// Whether commands wait for a turn to end.
    pub(super) fn has_deferred(&self) -> bool {
        !self.later.is_empty()
    }

    /// The next command that waited for a turn to end.
    pub(super) fn next_deferred(&mut self) -> Option<Command> {
        self.later.pop_front()
    }

    /// The message of the waiting reply that a command is for, unless the current reply has what it names.
    pub(super) fn named_by(&self, command: &Command, current: Option<&Reply>) -> Option<MessageId> {
        let id = match command {
            Command::Post { request, .. }
            | Command::Live(LiveCommand::Ask {
                ask: LiveAsk::Message(request),
                ..
            }) if request.last().role == Role::Assistant => Some(request.last().id.clone()),
            Command::ToolOutput { call_id, .. } | Command::Credential { call_id, .. } => {
                self.with_call(call_id, current)
            }
            Command::Live(LiveCommand::Ask {
                ask: LiveAsk::ToolResult(result),
                ..
            }) => self.with_call(&result.tool_call_id, current),
            _ => None,
        };
        id.filter(|id| self.contains(id))
    }

    /// The message of the reply that has this call, or asks under this id.
    fn with_call(&self, id: &CallId, current: Option<&Reply>) -> Option<MessageId> {
        let approval = id.to_approval();
        let has = |reply: &Reply| {
            reply.calls().iter().any(|call| {
                call.id == *id || call.approval.as_ref().is_some_and(|it| it.id == approval)
            })
        };
        if current.is_some_and(has) {
            return None;
        }
        let waiting = self.replies.iter().find(|reply| has(reply))?;
        Some(waiting.message().id.clone())
    }
}
