//! Why an agent did not answer, in kinds that a caller can act on.

use std::fmt;
use std::time::Duration;

use adk_bridge_protocol::event::EventError;

use crate::secrets;

/// Why an agent did not answer. The message is for the user, the detail for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    kind: AgentErrorKind,
    message: String,
    detail: String,
}

/// What a caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentErrorKind {
    /// It cannot be reached, does not answer in time or broke off: asking again later may help.
    Unreachable,
    /// It does not accept the bridge's credentials: its operator has to act.
    Unauthorized,
    /// It was asked too often: asking again helps, after this time if it names one.
    Quota { retry_after: Option<Duration> },
    /// It refuses the request, or its configuration is wrong: the same request would be refused again.
    Rejected,
    /// Its answer cannot be understood, or the bridge itself failed.
    Broken,
}

impl AgentError {
    pub fn new(
        kind: AgentErrorKind,
        message: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            message: message.into(),
            detail: detail.into(),
        }
    }

    pub fn unreachable(message: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(AgentErrorKind::Unreachable, message, detail)
    }

    pub fn unauthorized(message: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(AgentErrorKind::Unauthorized, message, detail)
    }

    pub fn quota(
        message: impl Into<String>,
        detail: impl Into<String>,
        retry_after: Option<Duration>,
    ) -> Self {
        Self::new(AgentErrorKind::Quota { retry_after }, message, detail)
    }

    pub fn rejected(message: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(AgentErrorKind::Rejected, message, detail)
    }

    pub fn broken(message: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(AgentErrorKind::Broken, message, detail)
    }

    /// An agent of one memory model was asked in the form of the other.
    pub(crate) fn wrong_form(memory: &str) -> Self {
        Self::broken(
            "the agent was asked in a form that it does not understand",
            format!("an agent of MemoryModel::{memory} got the request of the other one"),
        )
    }

    /// The same, with more detail for the log.
    pub(crate) fn and_detail(mut self, detail: &str) -> Self {
        self.detail = format!("{}; {detail}", self.detail);
        self
    }

    pub fn kind(&self) -> AgentErrorKind {
        self.kind
    }

    /// A message that the user can act on.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// For the log: where and how it happened, never content.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

/// The word for the log.
impl fmt::Display for AgentErrorKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unreachable => "unreachable",
            Self::Unauthorized => "unauthorized",
            Self::Quota { .. } => "quota",
            Self::Rejected => "rejected",
            Self::Broken => "broken",
        })
    }
}

/// How much of a foreign error message is shown: a sentence or two.
pub(crate) const MAX_SAID_BYTES: usize = 300;

/// The beginning of a foreign error message, which may quote a whole request: secrets are hidden before the text is
/// cut, so that none is cut in two.
pub fn shortened(said: &str) -> String {
    let said = secrets::hide_from_users(said);
    let end = said.floor_char_boundary(MAX_SAID_BYTES);
    match end < said.len() {
        true => format!("{}…", &said[..end]),
        false => said.into_owned(),
    }
}

/// What the log says of a foreign error message at its usual levels: only its length, since it may quote users. Level
/// `debug` has the text.
pub fn withheld(said: &str) -> String {
    tracing::debug!(said = shortened(said), "the words of an agent");
    format!("{} bytes of text", said.len())
}

/// Where JSON cannot be read, without quoting it: content does not belong in a log.
pub(crate) fn place_of(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    format!(
        "{:?} error at line {line}, column {column}",
        error.classify()
    )
}

/// The same for an event.
pub(crate) fn place_in_event(error: &EventError) -> String {
    match error {
        EventError::TooLong { .. } | EventError::TooManyValues(_) => error.to_string(),
        EventError::Malformed { line, column, .. } => {
            format!("not an ADK event: line {line}, column {column}")
        }
    }
}
