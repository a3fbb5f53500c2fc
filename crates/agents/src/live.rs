//! Who is spoken with: a model of Google's live interface, or an ADK server.
//!
//! A closed set, as the agents are. Both are read as ADK events, and both take the same inputs.

use adk_bridge_protocol::outbox::Response;

use crate::adk_server::{AdkConnection, AdkServer};
use crate::agent::AgentError;
use crate::gemini_live::{self, GeminiLive};

pub use crate::gemini_live::{
    Activity, ConnectError, Incoming, IncomingSink, LiveInput, LiveSetup, Modality, Speaker,
};
pub use crate::live_socket::{NO_CODE, Read};

/// Who is spoken with.
#[derive(Debug, Clone)]
pub enum Voice {
    Gemini(GeminiLive),
    Adk(AdkServer),
}

/// One connection held open for speech.
#[derive(Debug)]
pub enum LiveConnection {
    Gemini(gemini_live::LiveConnection),
    Adk(AdkConnection),
}

impl Voice {
    /// The model that speaks, where that is known.
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Gemini(gemini) => Some(gemini.model()),
            Self::Adk(_) => None,
        }
    }
}

impl LiveConnection {
    /// Whether the other side waits for the result of this call, named by its own id.
    pub fn knows(&self, call: &str) -> bool {
        self.open_calls().iter().any(|open| open == call)
    }

    /// Whether it waits for all of these results.
    pub fn knows_all(&self, responses: &[Response]) -> bool {
        responses.iter().all(|response| self.knows(&response.id))
    }

    pub fn open_calls(&self) -> &[String] {
        match self {
            Self::Gemini(connection) => connection.open_calls(),
            Self::Adk(connection) => connection.open_calls(),
        }
    }

    pub async fn send(&mut self, input: LiveInput<'_>) -> Result<(), AgentError> {
        match self {
            Self::Gemini(connection) => connection.send(input).await,
            Self::Adk(connection) => connection.send(input).await,
        }
    }

    /// The next message. May be dropped and called again. After [`Read::Closed`] there is nothing more.
    pub async fn read(&mut self) -> Read {
        match self {
            Self::Gemini(connection) => connection.read().await,
            Self::Adk(connection) => connection.read().await,
        }
    }

    /// Who speaks in a message, if anybody does: where nobody spoke, a turn begins with it.
    pub fn speaker(&self, message: &[u8]) -> Option<Speaker> {
        match self {
            Self::Gemini(_) => gemini_live::speaker(message),
            Self::Adk(connection) => connection.speaker(message),
        }
    }

    /// Hands over what a message says.
    pub fn events(&mut self, message: &[u8], sink: IncomingSink<'_>) -> Result<(), AgentError> {
        match self {
            Self::Gemini(connection) => connection.events(message, sink),
            Self::Adk(connection) => connection.events(message, sink),
        }
    }

    /// Nothing came in the time in which something must: what was said is all.
    pub fn quiet(&mut self, sink: IncomingSink<'_>) {
        match self {
            Self::Gemini(connection) => connection.quiet(sink),
            Self::Adk(connection) => connection.quiet(sink),
        }
    }

    /// What is to be remembered since the last time; see [`crate::agent::Past::said`].
    pub fn take_said(&mut self) -> Vec<String> {
        match self {
            Self::Gemini(_) => Vec::new(),
            Self::Adk(connection) => connection.take_said(),
        }
    }

    /// Why it ended, for the user, where the other side says so.
    pub fn lost(&self, reason: &str) -> Option<AgentError> {
        match self {
            Self::Gemini(_) => None,
            Self::Adk(connection) => Some(connection.lost(reason)),
        }
    }

    /// Says goodbye. An ADK server is waited for: its session has one writer at a time.
    pub async fn close(self) {
        match self {
            Self::Gemini(connection) => connection.close().await,
            Self::Adk(connection) => connection.close().await,
        }
    }
}
