//! The commands of a chat, and how they are refused when the chat cannot be served.

use std::collections::VecDeque;

use adk_bridge_protocol::calls::Outcome;
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::{CallId, MessageId};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::error::ChatError;
use super::live::{AnswerTo, LiveCommand, RequestOrigin};
use super::readers::Answer;
use super::request::ChatRequest;
use crate::files::address::Base;

/// What endpoints ask of a chat. Boxed in its channel, which has room for dozens in every chat in use.
pub enum Command {
    Post {
        request: Box<ChatRequest>,
        origin: RequestOrigin,
        answer: AnswerTo,
    },
    Resume {
        dialect: Dialect,
        sdk: Sdk,
        base: Base,
        /// Without an answer there is nothing to read.
        answer: oneshot::Sender<Result<Option<Answer>, ChatError>>,
    },
    /// A page has loaded the messages up to this one. If the current one was missing, the page asks for it later.
    Listed {
        last: Option<MessageId>,
        /// Those of them that no client had before.
        news: Vec<MessageId>,
        answer: oneshot::Sender<()>,
    },
    Stop {
        answer: oneshot::Sender<Result<(), ChatError>>,
    },
    ToolOutput {
        call_id: CallId,
        outcome: Box<Outcome>,
        answer: oneshot::Sender<Result<(), ChatError>>,
    },
    /// The user has granted what an agent asked for, or has refused it.
    Credential {
        call_id: CallId,
        decision: Box<CredentialDecision>,
        answer: oneshot::Sender<Result<(), ChatError>>,
    },
    Live(LiveCommand),
    /// The server has started: continue what was interrupted.
    Boot,
    /// The chat is being deleted: everything stops.
    Close {
        answer: oneshot::Sender<Result<(), ChatError>>,
    },
    /// The replica is about to stop: give the chat to another one, as soon as nothing is under way or at this time.
    HandOver {
        until: Instant,
        /// Dropped when the task has ended and all that waited for it is passed on.
        answer: oneshot::Sender<()>,
    },
    /// The replica was dead to the others: another one may have the chat. The task looks for itself.
    LetGo,
    /// The server is stopping: store everything, so that the next start can continue.
    ShutDown {
        answer: oneshot::Sender<()>,
    },
}

/// What a task leaves behind when its chat may have another owner.
#[derive(Default)]
pub(super) struct Left {
    /// Taken, but not begun.
    pub(super) commands: VecDeque<Command>,
    /// Those who wait until the chat is given back, and these commands have found its next owner.
    pub(super) waiting: Vec<oneshot::Sender<()>>,
}

impl Command {
    /// Whether its answer goes to a live connection.
    pub(super) fn is_live(&self) -> bool {
        match self {
            Self::Live(_) => true,
            Self::Post { answer, .. } => matches!(answer, AnswerTo::Live { .. }),
            _ => false,
        }
    }

    /// Tells whoever waits for its answer that there is none, and why.
    pub(super) fn refuse(self, refusal: ChatError) {
        match self {
            Self::Post {
                answer: AnswerTo::Request(answer),
                ..
            } => drop(answer.send(Err(refusal))),
            Self::Live(LiveCommand::Attach { answer, .. }) => drop(answer.send(Err(refusal))),
            // The connection is being closed.
            Self::Post { .. } | Self::Live(_) | Self::Boot | Self::LetGo => {}
            Self::ToolOutput { answer, .. }
            | Self::Credential { answer, .. }
            | Self::Stop { answer }
            | Self::Close { answer } => drop(answer.send(Err(refusal))),
            Self::Resume { answer, .. } => drop(answer.send(match refusal.is_not_found() {
                true => Ok(None),
                false => Err(refusal),
            })),
            Self::Listed { answer, .. }
            | Self::HandOver { answer, .. }
            | Self::ShutDown { answer } => drop(answer.send(())),
        }
    }
}

/// What a user has decided about credentials.
pub enum CredentialDecision {
    /// What the agent is to be sent. It holds secrets.
    Granted(Value),
    /// Why not, for the user and the model.
    Refused(String),
}

/// Refuses all commands, because the chat cannot be served.
pub(super) async fn refuse_all(
    mut queue: VecDeque<Command>,
    commands: &mut mpsc::Receiver<Box<Command>>,
    refusal: impl Fn() -> ChatError,
) {
    commands.close();
    while let Some(command) = commands.recv().await {
        queue.push_back(*command);
    }
    for command in queue {
        command.refuse(refusal());
    }
}
