//! The inputs of a reply, and the context that comes with each of them.

use super::{Answer, EndReason, LaterResult, Policy, ToolProgress, ToolQuestion};
use crate::calls::{IdSource, Outcome};
use crate::event::Event;
use crate::id::CallId;
use crate::time::Timestamp;

/// Something that happened to a reply.
#[derive(Debug)]
pub enum Input<'a> {
    /// The user has written; the agent is to answer.
    Begin(Audience),
    /// A call of an earlier reply has its result; the agent is to go on with it.
    BeginWithResult(&'a LaterResult, Audience),
    /// The agent said something.
    Event(&'a Event<'a>),
    /// The agent said something in a live conversation, in which it cannot have a human asked.
    LiveEvent(&'a Event<'a>),
    /// The agent's run is over.
    RunEnded(RunEnd),
    /// A request brought answers of the client, possibly old ones. `None`: it does not want a turn.
    Answers(&'a [Answer<'a>], Option<Audience>),
    /// A server tool is done.
    ToolFinished {
        /// The call.
        call: &'a CallId,
        /// What it came to.
        outcome: Outcome,
    },
    /// The tool of a running call asks the user something.
    ToolAsks {
        /// The call.
        call: &'a CallId,
        /// The question.
        question: &'a ToolQuestion,
    },
    /// A tool does not wait for the answer to its question any more.
    QuestionWithdrawn {
        /// The question.
        question: &'a CallId,
    },
    /// The tool of a running call says how far it is.
    ToolProgress {
        /// The call.
        call: &'a CallId,
        /// How far it is.
        progress: &'a ToolProgress,
    },
    /// Time has passed.
    Tick,
    /// Something else comes next: a turn that is held for its client ends now.
    EndHold,
    /// The reply is to end.
    Close(CloseReason),
    /// A newer message takes its place. The answers in that message are taken first, if something waits for them.
    Supersede(&'a [Answer<'a>]),
    /// The process has started again.
    Boot,
}

/// How a run of the agent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// It said everything.
    Done,
    /// In the middle of the agent's answer.
    Cut,
    /// With a message that a user can act on.
    Failed(String),
}

/// Why a reply is closed from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The user pressed stop.
    Stopped,
    /// A newer message took its place.
    Superseded,
}

/// Who is at the other end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// A request whose answer ends with the turn.
    Request,
    /// A request over a connection that stays.
    Connection,
    /// One answer in a separate frame over such a connection: its client does not wait for the end of a turn.
    Frame,
    /// Nobody: the turn was opened by a deadline or a restart.
    Unattended,
}

/// What a reply needs from outside with every input.
pub struct Context<'g> {
    /// The time.
    pub now: Timestamp,
    /// Where new ids come from.
    pub ids: &'g mut dyn IdSource,
    /// What is known of tools.
    pub policy: &'g dyn Policy,
}

/// Why an input changed nothing. That is harmless, but the driver of the reply should log it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it means")]
pub enum Ignored {
    #[error("the reply has begun before")]
    AlreadyBegun,
    #[error("an event arrived after its run had ended")]
    StrayEvent,
    #[error("a run ended that was not under way")]
    StrayRunEnd,
    #[error("a tool finished whose call is not running")]
    StrayOutcome,
    #[error("a question was withdrawn that is not open")]
    StrayQuestion,
    #[error("a tool reported its progress, whose call is not running, or which nobody reads")]
    StrayProgress,
    #[error("the reply has ended before")]
    AlreadyEnded,
}

impl From<CloseReason> for EndReason {
    fn from(why: CloseReason) -> Self {
        match why {
            CloseReason::Stopped => Self::Stopped,
            CloseReason::Superseded => Self::Superseded,
        }
    }
}
