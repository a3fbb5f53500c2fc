//! Replies that were set aside: they wait for a human while the conversation goes on by voice.
//!
//! ```text
//!                   speech begins a turn, and the reply only waits
//!     current ───────────────────────────────────────────────────▶ parked
//!        ▲                                                            │
//!        └── an answer, an output, its time: as soon as nothing runs ─┘
//! ```
//!
//! One that is taken up again is the last of the conversation: what comes of it is news. In the store, and on a page, its
//! message stays where it was.

use adk_bridge_protocol::approval::Time;
use adk_bridge_protocol::message::Role;
use adk_bridge_protocol::reply::{Input, Reply, Why};

use super::live::{LiveAsk, LiveCommand};
use super::now;
use super::task::{Command, Task};

/// How many questions may wait beside the conversation; nobody keeps more in mind.
const MAX_PARKED: usize = 16;
/// How many answers to them may wait for a turn to end.
const MAX_LATER: usize = 32;

impl Task {
    /// Sets the current reply aside if all that it does is wait.
    pub(super) fn park(&mut self) -> bool {
        let waits =
            |reply: &Reply| reply.ended().is_none() && reply.turn().is_none() && reply.is_at_rest();
        if self.parked.len() >= MAX_PARKED || !self.reply.as_ref().is_some_and(waits) {
            return false;
        }
        if let Some(reply) = self.reply.take() {
            self.history.push(reply.message().clone());
            self.parked.push(reply);
        }
        true
    }

    /// Takes up the reply that a command is for, if it was set aside. Gives the command back, unless it has to wait.
    pub(super) fn take_up_for(&mut self, command: Command) -> Option<Command> {
        let id = match &command {
            Command::Post { request, .. } if request.last().role == Role::Assistant => {
                Some(request.last().id.clone())
            }
            Command::ToolOutput { call_id, .. } => self.parked_with(call_id),
            Command::Live(LiveCommand::Ask {
                ask: LiveAsk::ToolResult(result),
                ..
            }) => self.parked_with(&result.tool_call_id),
            Command::Live(LiveCommand::Ask {
                ask: LiveAsk::Message(request),
                ..
            }) if request.last().role == Role::Assistant => Some(request.last().id.clone()),
            _ => None,
        };
        let Some(id) = id.filter(|id| self.is_parked(id)) else {
            return Some(command);
        };
        if self.take_up(&id) || self.later.len() >= MAX_LATER {
            return Some(command);
        }
        self.later.push_back(command);
        None
    }

    /// The next command that waited for a turn to end.
    pub(super) fn next_later(&mut self) -> Option<Command> {
        if self.is_busy() {
            return None;
        }
        self.later.pop_front()
    }

    /// Makes a reply that was set aside the current one, unless something runs.
    pub(super) fn take_up(&mut self, id: &str) -> bool {
        let Some(index) = self.parked.iter().position(|it| it.message().id == id) else {
            return false;
        };
        if self.is_busy() {
            return false;
        }
        if let Some(current) = self.reply.take() {
            self.history.push(current.message().clone());
            if current.ended().is_none() {
                self.parked.push(current);
            }
        }
        let reply = self.parked.remove(index);
        self.history.retain(|message| message.id != id);
        self.reply = Some(reply);
        self.upstream_reordered();
        true
    }

    /// When the first of them has waited too long.
    pub(super) fn parked_deadline(&self) -> Option<Time> {
        let waiting = self.parked.iter().filter_map(Reply::deadline).min();
        waiting.filter(|_| !self.is_busy())
    }

    /// Settles what has waited too long.
    pub(super) async fn expire_parked(&mut self) {
        let due = |reply: &&Reply| reply.deadline().is_some_and(|at| at <= now());
        while let Some(id) = self
            .parked
            .iter()
            .find(due)
            .map(|it| it.message().id.clone())
        {
            if !self.take_up(&id) {
                return;
            }
            self.feed(Input::Tick).await;
        }
    }

    /// Ends one of them, as a newer message or the end of the chat does. Returns whether there was one.
    pub(super) async fn close_parked(&mut self, why: Why) -> bool {
        let Some(id) = self.parked.first().map(|it| it.message().id.clone()) else {
            return false;
        };
        if self.take_up(&id) {
            self.feed(Input::Close(why)).await;
        }
        true
    }

    fn is_busy(&self) -> bool {
        self.reply
            .as_ref()
            .is_some_and(|reply| reply.turn().is_some() || !reply.is_at_rest())
    }

    fn is_parked(&self, id: &str) -> bool {
        self.parked.iter().any(|reply| reply.message().id == id)
    }

    /// The message of the reply that has this call, or asks under this id.
    fn parked_with(&self, id: &str) -> Option<String> {
        let has = |reply: &&Reply| {
            reply.calls().iter().any(|call| {
                call.id == id || call.approval.as_ref().is_some_and(|asked| asked.id == id)
            })
        };
        let current = self.reply.as_ref().filter(|reply| has(reply));
        let parked = self.parked.iter().find(has);
        parked
            .filter(|_| current.is_none())
            .map(|it| it.message().id.clone())
    }
}
