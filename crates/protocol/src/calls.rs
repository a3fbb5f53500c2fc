//! The tool calls of one reply: where each runs, what it waits for, and its outcome.
//!
//! ```text
//!   Streaming ──▶ Received ──┬─ server tool ───────────────▶ Running ─────────┐
//!                            ├─ client tool ───────▶ AwaitingClient ──────────┤
//!                            ├─ runs remotely ────────────▶ Running ──────────┼─▶ Settled
//!                            └─ needs a human ─▶ Asked ─▶ Decided ─┬─ yes ─▶ (as above)
//!                                                  │               └─ no ─────▶ Settled(Denied)
//!                                                  └─ expired, superseded ────▶ Settled
//!
//!   a running tool asks the user (`asked_by`) ─▶ AwaitingClient ─▶ Settled, and the tool goes on
//! ```

use serde::{Deserialize, Serialize};

use crate::approval::Approval;
use crate::event::{REQUEST_CREDENTIAL, REQUEST_INPUT};
use crate::id::{ApprovalId, CallId};
use crate::json_text::Json;
use crate::time::Timestamp;

/// One tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// The bridge's own id.
    pub id: CallId,
    /// The id that the model or the ADK server gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// The arguments as they were when the call was made: nothing that a client sends changes them.
    pub input: Json,
    /// The model call that made it, counted within the reply.
    pub step: u32,
    /// The agent that made it, if its events name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The call whose running tool asks this, as far as its server tells; nothing if an agent made the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<CallId>,
    /// Where the tool runs.
    pub runs_on: RunsOn,
    /// Whether it may run again after a crash.
    #[serde(default)]
    pub idempotent: bool,
    /// The question whether it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// How far it is.
    pub state: CallState,
    /// An output that came before the approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<Outcome>,
    /// Whether the settled call has been shown to the front end.
    #[serde(default)]
    pub announced: bool,
    /// Whether the outcome or the decision has been reported to a remote agent.
    #[serde(default)]
    pub reported: bool,
}

/// The agent that made a call: several agents of one app may ask at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The agent that called.
    pub author: String,
    /// Its branch among agents that speak at once.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// Whether it is a step of a workflow that stopped here and goes on by itself once it is answered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_workflow: bool,
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

/// How far a call is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase")]
pub enum CallState {
    /// The model still writes the arguments.
    Streaming,
    /// Complete; the bridge acts on it when the model call has ended.
    Received,
    /// Waits for a human; its approval says until when.
    Asked,
    /// A human decided; its approval says what.
    Decided,
    /// Journaled as started.
    Running,
    /// Waits for the front end's output.
    AwaitingClient {
        /// When it is given up.
        expires: Timestamp,
    },
    /// It has come to something.
    Settled {
        /// What that is.
        how: Settlement,
    },
}

/// How a call was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Settlement {
    /// It ran, and has an output.
    Output,
    /// A remote agent's long-running tool returned something and may finish later.
    Interim,
    /// It failed.
    Error,
    /// It was denied.
    Denied,
    /// Nobody decided, or ran it, in time.
    Expired,
    /// The user wrote something else instead.
    Superseded,
    /// A crash came between start and end, so it is unknown whether the tool ran.
    Unknown,
}

/// The outcome of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It ran.
    Output {
        /// What it returned.
        value: Json,
        /// Files beside it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<File>,
    },
    /// It failed.
    Error {
        /// Why, for the model and the user.
        text: String,
    },
}

/// A file that a tool made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// What kind of file it is.
    pub media_type: String,
    /// Where its content is.
    pub url: String,
}

/// Ids come from outside: the protocol knows no randomness.
pub trait IdSource: Send {
    /// A new id for a call; `given` is the one that the model uses.
    fn call(&mut self, given: Option<&str>) -> CallId;
    /// A new id for an approval; `given` is the one under which a remote agent asked.
    fn approval(&mut self, given: Option<&str>) -> ApprovalId;
    /// How the user can grant what a remote agent asks for; `None` if that is impossible here. The arguments hold secrets,
    /// and go nowhere else.
    fn credential(&mut self, _request: &CredentialRequest<'_>) -> Option<GrantBy> {
        None
    }
    /// Where a file that the agent made (`data` is base64) will be stored; `None` leaves it in the message, as a data
    /// URL.
    fn file(&mut self, _media_type: &str, _data: &str) -> Option<File> {
        None
    }
}

/// Credentials that a remote agent asks for.
#[derive(Debug)]
pub struct CredentialRequest<'a> {
    /// The call that is shown to the user.
    pub call: &'a CallId,
    /// All that the agent said about them.
    pub args: &'a Json,
    /// Until when they can be granted.
    pub expires: Timestamp,
}

/// How a user grants credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantBy {
    /// At the provider, which this address leads to.
    Link(String),
    /// With a key or a password that the front end asks for.
    Secret,
}

/// The calls of a reply.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Calls(Vec<Call>);

impl Origin {
    /// Who the answers to its questions are sent to, together with those of others that have the same. Agents that were
    /// called like tools (`helper@call-id`) are resumed by their caller, which takes all answers at once.
    fn addressee(&self) -> (&str, &str) {
        let is_task = |step: &str| step.contains('@');
        let mut end = 0;
        for step in self.branch.split('.') {
            if is_task(step) {
                return ("", self.branch[..end].trim_end_matches('.'));
            }
            end += step.len() + 1;
        }
        (&self.author, &self.branch)
    }
}

impl Call {
    /// Whether the call has not come to anything yet.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, CallState::Settled { .. })
    }

    /// Whether the answers to both calls are sent to the agent together.
    pub(crate) fn is_answered_with(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.origin.as_ref(), other.origin.as_ref());
        mine.map(Origin::addressee) == theirs.map(Origin::addressee)
    }

    /// Whether it was made by an agent that works on the other call.
    pub(crate) fn is_part_of(&self, other: &Self) -> bool {
        let branch = self.origin.as_ref().map(|origin| origin.branch.as_str());
        other
            .model_id
            .as_deref()
            .is_some_and(|id| tasks_of(branch.unwrap_or_default()).any(|task| task == id))
    }

    /// Whether only the front end can continue it.
    pub fn waits_for_client(&self) -> bool {
        matches!(
            self.state,
            CallState::Asked | CallState::AwaitingClient { .. }
        )
    }

    /// Whether the client's answer, or the action on a decision, is still to come.
    pub(crate) fn is_pending(&self) -> bool {
        self.waits_for_client() || self.state == CallState::Decided
    }

    /// Whether a remote agent works on it, without a question to a human.
    pub(crate) fn is_underway_elsewhere(&self) -> bool {
        self.state == CallState::Running
            && self.runs_on == RunsOn::Remote
            && self.approval.is_none()
    }

    /// Whether its name says that a human is asked, who takes longer than a program.
    pub fn asks_a_human(&self) -> bool {
        self.name == REQUEST_INPUT || self.asks_for_credentials()
    }

    /// Whether the user is to grant something: the answer holds secrets and takes another way than a client's outputs.
    pub fn asks_for_credentials(&self) -> bool {
        self.name == REQUEST_CREDENTIAL
    }

    /// Whether a human has approved it.
    pub fn is_approved(&self) -> bool {
        self.approval.as_ref().and_then(Approval::verdict) == Some(true)
    }

    /// Whether it is an approved client tool whose output has not come.
    pub fn is_half_answered(&self) -> bool {
        matches!(self.state, CallState::AwaitingClient { .. }) && self.is_approved()
    }

    pub(crate) fn settle(&mut self, how: Settlement) {
        self.state = CallState::Settled { how };
    }

    /// What the call came to.
    pub fn settled(&self) -> Option<Settlement> {
        match self.state {
            CallState::Settled { how } => Some(how),
            _ => None,
        }
    }

    /// When it expires.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.state {
            CallState::Asked => self.approval.as_ref().map(|approval| approval.expires_at),
            CallState::AwaitingClient { expires } => Some(expires),
            _ => None,
        }
    }

    /// Whether it has expired, or its age is unknown because the clock was set back.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        match (&self.state, &self.approval) {
            (CallState::Asked, Some(approval)) => approval.is_due(now),
            _ => self.deadline().is_some_and(|at| at <= now),
        }
    }
}

impl Calls {
    /// The calls, in the order of the model.
    pub fn iter(&self) -> std::slice::Iter<'_, Call> {
        self.0.iter()
    }

    /// How many calls there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no call.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn retain(&mut self, keep: impl FnMut(&Call) -> bool) {
        self.0.retain(keep);
    }

    pub(crate) fn push(&mut self, call: Call) -> usize {
        self.0.push(call);
        self.0.len() - 1
    }

    /// The call with this id.
    pub fn by_id(&self, id: &CallId) -> Option<&Call> {
        self.0.iter().rev().find(|call| call.id == *id)
    }

    pub(crate) fn index_of(&self, id: &CallId) -> Option<usize> {
        self.0.iter().rposition(|call| call.id == *id)
    }

    pub(crate) fn index_of_model_id(&self, model_id: &str) -> Option<usize> {
        self.0
            .iter()
            .rposition(|call| call.model_id.as_deref() == Some(model_id))
    }

    pub(crate) fn index_of_approval(&self, id: &ApprovalId) -> Option<usize> {
        self.0.iter().rposition(|call| {
            call.approval
                .as_ref()
                .is_some_and(|approval| approval.id == *id)
        })
    }

    pub(crate) fn open(&self) -> impl Iterator<Item = &Call> {
        self.0.iter().filter(|call| call.is_open())
    }

    pub(crate) fn any_open(&self) -> bool {
        self.open().next().is_some()
    }
}

/// The calls that an agent works on: ADK names the branch of an agent that was called like a tool after the call,
/// `helper@call-id`.
pub(crate) fn tasks_of(branch: &str) -> impl Iterator<Item = &str> {
    let steps = branch.split('.').filter_map(|step| step.split_once('@'));
    steps.map(|(_, id)| id)
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
