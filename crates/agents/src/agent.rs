//! The trait of an agent, and the requests that it gets.
//!
//! ```text
//!   Agent::start(AgentRequest) ──▶ AgentRun ──▶ read() ──▶ events(piece, sink) ──▶ … ──▶ finish(sink)
//! ```
//!
//! A run is one model call, or a whole run of a remote agent. A piece from the network is given back to the run that
//! read it, which passes its events to a sink by reference: nothing is copied. Every piece costs a virtual call and a
//! box, which is little compared with reading it from the network.

use std::collections::BTreeMap;
use std::sync::Arc;

use adk_bridge_protocol::event::{Content, Event};
use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::Response;
use bytes::Bytes;
use serde_json::Value;

use crate::adk_server::{AdkServer, ServerTraits};
use crate::error::AgentError;
use crate::live::LiveAgent;
use crate::token::Tokens;
use crate::tool::ToolSpec;
use crate::trace_context::TraceContext;

/// What the traits return instead of `async fn`, so that they can be used as objects.
pub use futures_util::future::BoxFuture;

/// A run that is being started. Dropping it cancels the request.
pub type Starting = BoxFuture<'static, Result<Box<dyn AgentRun>, AgentError>>;

/// Takes the events of a run as they are read. They borrow from the read buffer.
pub type EventSink<'s> = &'s mut (dyn FnMut(&Event<'_>) + Send);

/// An agent. One value answers in all chats.
pub trait Agent: Send + Sync {
    fn info(&self) -> AgentInfo;

    /// How much of a conversation it needs; decides which [`AgentRequest`] it gets.
    fn memory(&self) -> MemoryModel;

    /// Starts a run. The future outlives the request, so it must copy what it needs before it is returned.
    fn start(&self, request: AgentRequest<'_>) -> Starting;

    /// Its support for speech, if it has any. Both share what it remembers of a chat.
    fn live(&self) -> Option<&dyn LiveAgent> {
        None
    }

    /// The tools that it runs itself, as far as it lists them, without those of the bridge.
    fn tools(&self) -> BoxFuture<'_, Result<Vec<ToolSpec>, AgentError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Whether it could be asked now, as far as the bridge can tell without asking it: its token can be fetched.
    fn check(&self) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Reaches for it without asking it anything that costs or is kept, for the person who looks whether a configuration
    /// works. What cannot be tried that way counts as reached.
    fn reach(&self) -> BoxFuture<'_, Result<(), AgentError>> {
        self.check()
    }

    /// The tokens of its requests, if each user brings an own one: they are noted with every request of a user.
    fn user_tokens(&self) -> Option<&Tokens> {
        None
    }

    /// The ADK server that it is an app of, to look whether both are there.
    fn adk_server(&self) -> Option<&AdkServer> {
        None
    }

    /// Deletes what the agent has of a deleted chat. The user does not wait for it, and failures are only logged.
    fn forget(&self, _chat: DeletedChat) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A shared agent is an agent, too.
impl<A: Agent + ?Sized> Agent for Arc<A> {
    fn info(&self) -> AgentInfo {
        (**self).info()
    }

    fn memory(&self) -> MemoryModel {
        (**self).memory()
    }

    fn start(&self, request: AgentRequest<'_>) -> Starting {
        (**self).start(request)
    }

    fn live(&self) -> Option<&dyn LiveAgent> {
        (**self).live()
    }

    fn tools(&self) -> BoxFuture<'_, Result<Vec<ToolSpec>, AgentError>> {
        (**self).tools()
    }

    fn check(&self) -> BoxFuture<'_, Result<(), AgentError>> {
        (**self).check()
    }

    fn reach(&self) -> BoxFuture<'_, Result<(), AgentError>> {
        (**self).reach()
    }

    fn user_tokens(&self) -> Option<&Tokens> {
        (**self).user_tokens()
    }

    fn adk_server(&self) -> Option<&AdkServer> {
        (**self).adk_server()
    }

    fn forget(&self, chat: DeletedChat) -> BoxFuture<'static, ()> {
        (**self).forget(chat)
    }
}

/// One run of an agent, read as it comes.
pub trait AgentRun: Send {
    /// The next piece of the answer, as it comes from the network; nothing at its end. Cancel-safe.
    fn read(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, AgentError>>;

    /// Passes the events of a piece to the sink.
    fn events(&mut self, piece: &[u8], sink: EventSink<'_>) -> Result<(), AgentError>;

    /// Passes the events that the end of the answer completes, and fails if the answer is incomplete.
    fn finish(&mut self, _sink: EventSink<'_>) -> Result<(), AgentError> {
        Ok(())
    }

    /// The events of the run to store since the last call; see [`PastMessage::said`].
    fn take_said(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// What an agent says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentInfo {
    /// Names it among the agents of a server.
    pub id: String,
    /// What users see.
    pub name: String,
    /// Its `agent.kind`.
    pub kind: String,
    /// The model behind it, if known.
    pub model: Option<String>,
    /// What it cannot do, unlike other agents: each is a phrase that follows "it cannot".
    pub limitations: Vec<String>,
    /// The ADK server that it is an app of, if it is one and the server has been found.
    pub server: Option<ServerTraits>,
    /// How many files of this process one turn keeps open.
    pub descriptors_per_turn: usize,
}

impl AgentInfo {
    /// An agent with the name of its kind. The other fields can be changed.
    pub fn new(kind: impl Into<String>) -> Self {
        let kind = kind.into();
        Self {
            id: kind.clone(),
            name: kind.clone(),
            kind,
            model: None,
            limitations: Vec::new(),
            server: None,
            descriptors_per_turn: 1,
        }
    }
}

/// How much of a conversation an agent must be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryModel {
    /// Everything, every time. The bridge runs its tools.
    Stateless,
    /// Only what is new: it remembers the rest in a session, and runs its own tools.
    Session,
}

/// A request to an agent, in the form of its [`MemoryModel`].
#[derive(Debug)]
pub enum AgentRequest<'r> {
    /// For [`MemoryModel::Stateless`].
    Conversation(ConversationRequest<'r>),
    /// For [`MemoryModel::Session`].
    Session(SessionRequest),
}

impl<'r> AgentRequest<'r> {
    /// The same, as a part of this trace.
    #[must_use]
    pub fn in_trace(mut self, trace: TraceContext) -> Self {
        match &mut self {
            Self::Conversation(request) => request.trace = trace,
            Self::Session(request) => request.trace = trace,
        }
        self
    }

    /// The request of a stateless agent.
    pub fn into_conversation(self) -> Result<ConversationRequest<'r>, AgentError> {
        match self {
            Self::Conversation(request) => Ok(request),
            Self::Session(_) => Err(AgentError::wrong_form("Stateless")),
        }
    }

    /// The request of an agent with a session.
    pub fn into_session(self) -> Result<SessionRequest, AgentError> {
        match self {
            Self::Session(request) => Ok(request),
            Self::Conversation(_) => Err(AgentError::wrong_form("Session")),
        }
    }
}

/// A whole conversation, to be answered.
#[derive(Debug)]
pub struct ConversationRequest<'r> {
    pub chat: ChatKey,
    pub contents: Vec<Content<'r>>,
    /// What the model may call; the bridge runs it.
    pub tools: &'r [ToolSpec],
    /// The trace that requests to the model belong to.
    pub trace: TraceContext,
}

/// What is new in a conversation that the agent remembers.
pub struct SessionRequest {
    pub chat: ChatKey,
    /// How often the history was cut: every cut invalidates the agent's own memory.
    pub generation: u64,
    pub input: NewInput,
    pub handed_in: HandedIn,
    pub store: Arc<dyn SessionStore>,
    /// The trace that requests to the agent belong to.
    pub trace: TraceContext,
}

/// What the front end and the configuration hand in to a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HandedIn {
    /// What the session begins with. One that began with something else learns of it with the next run.
    pub state: BTreeMap<String, Json>,
    /// What changes with this run.
    pub state_delta: BTreeMap<String, Json>,
    /// What the events of this run are marked with.
    pub custom_metadata: Option<Json>,
}

impl HandedIn {
    /// What a session that begins with this run begins with.
    pub(crate) fn at_start(&self) -> BTreeMap<String, Json> {
        let all = self.state.iter().chain(&self.state_delta);
        all.map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

/// Identifies a chat: two users may have chats with the same id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChatKey {
    pub user: UserId,
    pub id: ChatId,
}

/// A deleted chat, and the sessions that [`SessionStore::set_session`] stored for it.
#[derive(Debug, Clone)]
pub struct DeletedChat {
    pub chat: ChatKey,
    pub sessions: Vec<Value>,
}

/// What has happened since the last run.
#[derive(Debug)]
pub enum NewInput {
    /// The user has written this content.
    Message(Json),
    Responses(Vec<Response>),
}

/// What is stored of a chat for an agent with a session; read when the agent has lost the session.
pub trait SessionStore: Send + Sync {
    /// The agent's own id of the session for this generation of the conversation, if there is one yet.
    fn session(&self) -> BoxFuture<'_, Result<Option<Value>, String>>;
    fn set_session(&self, session: Value) -> BoxFuture<'_, Result<(), String>>;
    /// Everything before the new input, oldest first; the reply that the input belongs to comes last.
    fn past(&self) -> BoxFuture<'_, Result<Vec<PastMessage>, String>>;
}

/// One message of the past.
#[derive(Debug)]
pub struct PastMessage {
    pub message: Message,
    /// The raw events of the agent in this message, and what it was sent in between.
    pub said: Vec<String>,
}

/// Shows the chat, never its content.
impl std::fmt::Debug for SessionRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SessionRequest")
            .field("chat", &self.chat)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}
