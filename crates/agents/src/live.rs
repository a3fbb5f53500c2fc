//! Speech: agents that support a voice conversation over an open connection.
//!
//! ```text
//!   LiveAgent::connect(LiveRequest) ──▶ LiveConnection ──▶ send(input), read() ──▶ events(message, sink)
//! ```
//!
//! All live agents emit ADK events and take the same inputs. [`renewal`] decides when a connection is renewed;
//! implementations of these traits never reconnect on their own.

pub mod renewal;

use std::time::Duration;

use adk_bridge_protocol::event::{Content, Event};
use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::outbox::Response;

#[cfg(doc)]
use crate::agent::MemoryModel;
use crate::agent::{BoxFuture, SessionRequest};
use crate::error::AgentError;
use crate::tool::ToolSpec;
use crate::trace_context::TraceContext;

pub use crate::live_socket::{NO_CODE, Read};

/// A connection that is being opened. Dropping it cancels that.
pub type Connecting = BoxFuture<'static, Result<Box<dyn LiveConnection>, ConnectError>>;

/// Takes what a connection receives; it borrows from the message.
pub type IncomingSink<'s> = &'s mut (dyn FnMut(Incoming<'_>) + Send);

/// The part of an [`Agent`](crate::agent::Agent) that supports speech.
pub trait LiveAgent: Send + Sync {
    /// The model that speaks, if known.
    fn model(&self) -> Option<&str>;

    /// Opens a connection. The future outlives the request, so it must copy what it needs before it is returned.
    fn connect(&self, request: LiveRequest<'_>) -> Connecting;
}

/// One open connection for speech.
pub trait LiveConnection: Send {
    /// The calls whose results the other side waits for, by its own ids.
    fn open_calls(&self) -> &[String];

    fn send<'c>(&'c mut self, input: LiveInput<'c>) -> BoxFuture<'c, Result<(), AgentError>>;

    /// The next message. Cancel-safe. Nothing follows [`Read::Closed`].
    fn read(&mut self) -> BoxFuture<'_, Read>;

    /// Who speaks in a message, if anyone does: after silence, a turn begins with it. Words that belong to an earlier
    /// turn do not count.
    fn speaker(&self, message: &[u8]) -> Option<Speaker>;

    /// Passes what a message says to the sink.
    fn events(&mut self, message: &[u8], sink: IncomingSink<'_>) -> Result<(), AgentError>;

    /// Called after [`Read::Quiet`]: nothing more will come of the turn.
    fn on_quiet(&mut self, _sink: IncomingSink<'_>) {}

    /// The events to store since the last call; see [`crate::agent::PastMessage::said`].
    fn take_said(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Why it ended, for the user, if the other side gives a reason; with a code if another try is pointless.
    fn explain_close(&self, _code: u16, _reason: &str) -> Option<ConnectError> {
        None
    }

    /// Whether the other side automatically answers what was left unanswered in its session.
    fn answers_history(&self) -> bool {
        false
    }

    /// Expects an answer to what was asked before the connection was open.
    fn expect_answer(&mut self) {}

    /// Closes the connection. Waits for the other side if its session has one writer at a time.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// Whether the other side waits for the result of this call, named by its own id.
    fn knows(&self, call: &str) -> bool {
        self.open_calls().iter().any(|open| open == call)
    }

    /// Whether it waits for all of these results.
    fn knows_all(&self, responses: &[Response]) -> bool {
        responses.iter().all(|response| self.knows(&response.id))
    }
}

/// How a connection begins, in the form of the agent's [`MemoryModel`].
#[derive(Debug)]
pub enum LiveRequest<'r> {
    /// For [`MemoryModel::Stateless`].
    Conversation(LiveSetup<'r>),
    /// For [`MemoryModel::Session`]: in the session of the chat.
    Session {
        request: SessionRequest,
        modality: Modality,
    },
}

impl<'r> LiveRequest<'r> {
    /// The request of a stateless agent.
    pub fn into_conversation(self) -> Result<LiveSetup<'r>, ConnectError> {
        match self {
            Self::Conversation(setup) => Ok(setup),
            Self::Session { .. } => Err(wrong_form("Stateless")),
        }
    }

    /// The request of an agent with a session.
    pub fn into_session(self) -> Result<(SessionRequest, Modality), ConnectError> {
        match self {
            Self::Session { request, modality } => Ok((request, modality)),
            Self::Conversation(_) => Err(wrong_form("Session")),
        }
    }
}

fn wrong_form(memory: &str) -> ConnectError {
    ConnectError {
        error: AgentError::wrong_form(memory),
        code: None,
    }
}

/// The setup of a connection that is sent the conversation.
#[derive(Debug)]
pub struct LiveSetup<'s> {
    /// Who speaks.
    pub user: UserId,
    /// The conversation so far or, with a handle, the part that its session does not know.
    pub contents: Vec<Content<'s>>,
    /// Whether the model should answer these contents.
    pub answer: bool,
    pub modality: Modality,
    pub activity: Activity,
    pub tools: &'s [ToolSpec],
    /// The session to resume.
    pub handle: Option<&'s str>,
    /// The trace that the connection belongs to.
    pub trace: TraceContext,
}

/// How the model answers. It cannot change during a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modality {
    Audio,
    Text,
}

/// How the bounds of the user's speech are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// The model detects them.
    Detected,
    /// The user marks them with a key.
    Explicit,
}

/// What is sent.
#[derive(Debug)]
pub enum LiveInput<'i> {
    /// PCM16 mono, 16 kHz.
    Audio(&'i [u8]),
    Video {
        media_type: &'i str,
        data: &'i [u8],
    },
    /// The user's written words.
    Text(&'i str),
    /// Turns of the conversation, to be answered or only to be remembered.
    Contents {
        turns: &'i [Content<'i>],
        answer: bool,
    },
    ActivityStart,
    ActivityEnd,
    /// No more audio for now.
    AudioStreamEnd,
    /// The results of all calls that are open.
    Responses(&'i [Response]),
}

/// What a connection receives.
#[derive(Debug)]
pub enum Incoming<'e> {
    Event(&'e Event<'e>),
    /// The connection is closed in this time.
    GoAway(Duration),
    /// The newest handle; without one, the session cannot be resumed at the moment.
    Resumable(Option<String>),
    /// The model no longer waits for the results of these calls.
    Cancelled(Vec<String>),
}

/// One side of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    User,
    Model,
}

/// Why a connection was not opened, and with which code the other side closed it.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ConnectError {
    pub error: AgentError,
    pub code: Option<u16>,
}
