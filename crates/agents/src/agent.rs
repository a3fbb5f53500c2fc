//! Agent: who answers.
//!
//! A run is one model call, or a whole run of a remote ADK server. The agents are a closed set, and a piece of an answer
//! passes through here for every few words: an enum hands it on without a box or a virtual call.

use std::pin::Pin;
use std::sync::Arc;

use adk_bridge_protocol::event::{Content, Event};
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::Response;
use bytes::Bytes;
use serde_json::Value;

use crate::adk_server::{AdkRun, AdkServer};
use crate::gemini::{Gemini, GeminiRun};
use crate::tool::ToolSpec;

/// Who answers.
#[derive(Debug, Clone)]
pub enum Agent {
    Gemini(Gemini),
    Adk(AdkServer),
}

/// One answer of an agent, as it comes.
#[derive(Debug)]
pub enum AgentRun {
    Gemini(GeminiRun),
    Adk(AdkRun),
}

/// An answer that is being asked for. Dropping it takes the question back.
pub type Starting = Pin<Box<dyn Future<Output = Result<AgentRun, AgentError>> + Send>>;

/// What an agent is asked that is told everything every time.
#[derive(Debug)]
pub struct Request<'r> {
    pub contents: Vec<Content<'r>>,
    pub tools: &'r [ToolSpec],
}

/// What an agent is asked that remembers what it was told.
pub struct SessionRequest {
    pub chat_id: String,
    pub user: String,
    /// How often the history was cut: every cut makes the agent's own memory void.
    pub generation: u64,
    pub news: News,
    pub memory: Arc<dyn Memory>,
}

/// What has happened since an agent was asked last.
#[derive(Debug)]
pub enum News {
    /// The user has written this content.
    Message(Value),
    Responses(Vec<Response>),
}

/// What is kept of a chat for an agent that remembers; read when the agent has forgotten.
pub trait Memory: Send + Sync {
    /// How the agent knows this generation of the conversation, in its own words; nothing where it does not yet.
    fn session(&self) -> Recall<'_, Option<Value>>;
    fn set_session(&self, session: Value) -> Recall<'_, ()>;
    /// Everything before the news, oldest first; the reply that the news belong to comes last.
    fn past(&self) -> Recall<'_, Vec<Past>>;
}

/// One message of the past.
#[derive(Debug)]
pub struct Past {
    pub message: Message,
    /// What the agent said in it and was told in between, as it went over the wire.
    pub said: Vec<String>,
}

pub type Recall<'m, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'm>>;

/// Why an agent did not answer. The message is for the user, the detail for the log.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    pub message: String,
    pub detail: String,
}

/// Takes the events of a run as they are read. They borrow from the read buffer.
pub type EventSink<'s> = &'s mut (dyn FnMut(&Event<'_>) + Send);

impl Agent {
    /// The model behind it, where that is known.
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Gemini(gemini) => Some(gemini.model()),
            Self::Adk(_) => None,
        }
    }
}

impl AgentRun {
    /// The next piece of the answer, as the network brings it; nothing at its end. May be dropped and called again.
    pub async fn read(&mut self) -> Result<Option<Bytes>, AgentError> {
        match self {
            Self::Gemini(run) => run.read().await,
            Self::Adk(run) => run.read().await,
        }
    }

    /// Hands the events of a piece to the sink.
    pub fn events(&mut self, piece: &[u8], sink: EventSink<'_>) -> Result<(), AgentError> {
        match self {
            Self::Gemini(run) => run.events(piece, sink),
            Self::Adk(run) => run.events(piece, sink),
        }
    }

    /// Hands over what the end of the answer completes.
    pub fn finish(&mut self, sink: EventSink<'_>) -> Result<(), AgentError> {
        match self {
            Self::Gemini(run) => run.finish(sink),
            Self::Adk(run) => run.finish(),
        }
    }

    /// What is to be remembered of the run since the last time; see [`Past::said`].
    pub fn take_said(&mut self) -> Vec<String> {
        match self {
            Self::Gemini(_) => Vec::new(),
            Self::Adk(run) => run.take_said(),
        }
    }
}
