//! Agent: who answers.
//!
//! A run is one model call, or a whole run of a remote ADK server. The agents are a closed set, and a piece of an answer
//! passes through here for every few words: an enum hands it on without a box or a virtual call.

use std::pin::Pin;

use adk_bridge_protocol::event::{Content, Event};
use adk_bridge_protocol::outbox::Response;
use adk_bridge_protocol::reply::Runner;
use bytes::Bytes;

use crate::gemini::{Gemini, GeminiRun};
use crate::tool::ToolSpec;

/// Who answers.
#[derive(Debug, Clone)]
pub enum Agent {
    Gemini(Gemini),
}

/// One answer of an agent, as it comes.
#[derive(Debug)]
pub enum AgentRun {
    Gemini(GeminiRun),
}

/// An answer that is being asked for. Dropping it takes the question back.
pub type Starting = Pin<Box<dyn Future<Output = Result<AgentRun, AgentError>> + Send>>;

/// What an agent is asked.
#[derive(Debug)]
pub struct Request<'r> {
    pub chat_id: &'r str,
    pub user: &'r str,
    /// The conversation, for agents that are told everything every time.
    pub contents: Vec<Content<'r>>,
    /// What is new, for agents that remember the rest.
    pub news: News<'r>,
    pub tools: &'r [ToolSpec],
}

/// What has happened since an agent was asked last.
#[derive(Debug)]
pub enum News<'r> {
    Message(Content<'r>),
    Responses(&'r [Response]),
}

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
    /// Who runs the tools that it calls.
    pub fn runner(&self) -> Runner {
        match self {
            Self::Gemini(_) => Runner::Bridge,
        }
    }

    /// The model behind it, where that is known.
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Gemini(gemini) => Some(gemini.model()),
        }
    }

    /// Asks the agent.
    pub fn start(&self, request: &Request<'_>) -> Starting {
        match self {
            Self::Gemini(gemini) => {
                let starting = gemini.start(request);
                Box::pin(async move { starting.await.map(AgentRun::Gemini) })
            }
        }
    }
}

impl AgentRun {
    /// The next piece of the answer, as the network brings it; nothing at its end. May be dropped and called again.
    pub async fn read(&mut self) -> Result<Option<Bytes>, AgentError> {
        match self {
            Self::Gemini(run) => run.read().await,
        }
    }

    /// Hands the events of a piece to the sink.
    pub fn events(&mut self, piece: &[u8], sink: EventSink<'_>) -> Result<(), AgentError> {
        match self {
            Self::Gemini(run) => run.events(piece, sink),
        }
    }

    /// Hands over what the end of the answer completes.
    pub fn finish(&mut self, sink: EventSink<'_>) -> Result<(), AgentError> {
        match self {
            Self::Gemini(run) => run.finish(sink),
        }
    }
}
