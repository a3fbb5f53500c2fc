//! What is stored of a reply, and how one ends.

use serde::{Deserialize, Serialize};

use crate::calls::Calls;
use crate::message::Message;

/// What is stored of a reply: enough to continue after a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub message: Message,
    pub calls: Calls,
    /// Whether a run of the agent was under way.
    pub asking: bool,
    pub steps: u32,
    pub retried: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndReason>,
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EndReason {
    Finished,
    Failed,
    Stopped,
    Superseded,
    /// The answer grew beyond its limit.
    TooLong,
    /// The process ended while the model was answering.
    Interrupted,
    /// The user's speech, or the end of a live connection, came before the end of the answer.
    Cut,
}

impl EndReason {
    /// The value of `metadata.ended` for an answer that is not complete.
    pub(super) fn word(self) -> Option<&'static str> {
        match self {
            Self::Finished => None,
            Self::Failed => Some("failed"),
            Self::Stopped => Some("stopped"),
            Self::Superseded => Some("superseded"),
            Self::TooLong => Some("too-long"),
            Self::Interrupted | Self::Cut => Some("interrupted"),
        }
    }
}
