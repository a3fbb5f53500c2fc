//! The tool calls of one reply: where each runs, what it waits for, what became of it.
//!
//! ```text
//!   Streaming ──▶ Received ──┬─ server tool ───────────────▶ Running ─────────┐
//!                            ├─ client tool ───────▶ AwaitingClient ──────────┤
//!                            ├─ runs remotely ────────────▶ Running ──────────┼─▶ Settled
//!                            └─ needs a human ─▶ Asked ─▶ Decided ─┬─ yes ─▶ (as above)
//!                                                  │               └─ no ─────▶ Settled(Denied)
//!                                                  └─ expired, superseded ────▶ Settled
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approval::{Approval, Time};
use crate::event::REQUEST_INPUT;

/// One tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// The bridge's own id, which front ends see.
    pub id: String,
    /// The id that the model or the ADK server gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    pub name: String,
    /// The arguments as they were when the call was made: nothing that a client sends changes them.
    pub input: Value,
    /// The model call that made it, counted within the reply.
    pub step: u32,
    pub runs_on: RunsOn,
    #[serde(default)]
    pub idempotent: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    pub state: CallState,
    /// An output that came before the approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<Outcome>,
    /// Whether the front end has been told how the call was settled.
    #[serde(default)]
    pub announced: bool,
    /// Whether a remote agent has been told the outcome or the decision.
    #[serde(default)]
    pub reported: bool,
}

/// Where a tool runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunsOn {
    /// In the bridge.
    Server,
    /// In the front end.
    Client,
    /// In a remote ADK server.
    Remote,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase")]
pub enum CallState {
    /// The model still writes the arguments.
    Streaming,
    /// Complete, and not acted on before the model has finished speaking.
    Received,
    /// Waits for a human; its approval says until when.
    Asked,
    /// A human decided; its approval says what.
    Decided,
    /// Journaled as started.
    Running,
    /// Waits for the front end's output.
    AwaitingClient {
        expires: Time,
    },
    Settled {
        how: Settled,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Settled {
    Output,
    Error,
    Denied,
    Expired,
    Superseded,
    /// A crash came between start and end: it is not known whether the tool ran.
    Unknown,
}

/// What a tool came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    Output {
        value: Value,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<File>,
    },
    Error {
        text: String,
    },
}

/// A file that a tool made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    pub media_type: String,
    pub url: String,
}

/// Ids come from outside: the protocol knows no randomness.
pub trait Ids {
    /// A new id for a call; `given` is the one that the model uses.
    fn call(&mut self, given: Option<&str>) -> String;
    /// A new id for an approval; `given` is the one under which a remote agent asked.
    fn approval(&mut self, given: Option<&str>) -> String;
    /// Where a file that the agent made (`data` is base64) will be kept; without a place it stays in the message, as a
    /// data URL.
    fn file(&mut self, _media_type: &str, _data: &str) -> Option<File> {
        None
    }
}

/// The calls of a reply.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Calls(Vec<Call>);

impl Call {
    pub fn is_open(&self) -> bool {
        !matches!(self.state, CallState::Settled { .. })
    }

    /// Whether only the front end can move it on.
    pub fn waits_for_client(&self) -> bool {
        matches!(
            self.state,
            CallState::Asked | CallState::AwaitingClient { .. }
        )
    }

    /// Whether a remote agent works on it, and nobody has been asked about it.
    pub(crate) fn is_underway_elsewhere(&self) -> bool {
        self.state == CallState::Running
            && self.runs_on == RunsOn::Remote
            && self.approval.is_none()
    }

    /// Whether by its name a human is asked, who takes longer than a program.
    pub fn asks_a_human(&self) -> bool {
        self.name == REQUEST_INPUT
    }

    /// Whether it is a client tool that a human approved and whose output has not come.
    pub fn is_half_answered(&self) -> bool {
        matches!(self.state, CallState::AwaitingClient { .. })
            && self.approval.as_ref().and_then(Approval::verdict) == Some(true)
    }

    pub(crate) fn settle(&mut self, how: Settled) {
        self.state = CallState::Settled { how };
    }

    pub fn settled(&self) -> Option<Settled> {
        match self.state {
            CallState::Settled { how } => Some(how),
            _ => None,
        }
    }

    /// The moment at which it is settled by itself.
    pub fn deadline(&self) -> Option<Time> {
        match self.state {
            CallState::Asked => self.approval.as_ref().map(|approval| approval.expires_at),
            CallState::AwaitingClient { expires } => Some(expires),
            _ => None,
        }
    }
}

impl Calls {
    pub fn iter(&self) -> std::slice::Iter<'_, Call> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, call: Call) -> usize {
        self.0.push(call);
        self.0.len() - 1
    }

    pub fn by_id(&self, id: &str) -> Option<&Call> {
        self.0.iter().rev().find(|call| call.id == id)
    }

    pub(crate) fn index_of(&self, id: &str) -> Option<usize> {
        self.0.iter().rposition(|call| call.id == id)
    }

    pub(crate) fn index_of_model_id(&self, model_id: &str) -> Option<usize> {
        self.0
            .iter()
            .rposition(|call| call.model_id.as_deref() == Some(model_id))
    }

    pub(crate) fn index_of_approval(&self, id: &str) -> Option<usize> {
        self.0.iter().rposition(|call| {
            call.approval
                .as_ref()
                .is_some_and(|approval| approval.id == id)
        })
    }

    pub(crate) fn open(&self) -> impl Iterator<Item = &Call> {
        self.0.iter().filter(|call| call.is_open())
    }

    pub(crate) fn any_open(&self) -> bool {
        self.open().next().is_some()
    }
}

impl std::ops::Index<usize> for Calls {
    type Output = Call;
    fn index(&self, index: usize) -> &Call {
        &self.0[index]
    }
}

impl std::ops::IndexMut<usize> for Calls {
    fn index_mut(&mut self, index: usize) -> &mut Call {
        &mut self.0[index]
    }
}
