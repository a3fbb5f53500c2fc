//! Agent: who answers.
//!
//! A run is one model call, or a whole run of a remote ADK server.

use adk_bridge_protocol::event::{Content, Event};
use adk_bridge_protocol::outbox::Response;

use crate::tool::ToolSpec;

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
