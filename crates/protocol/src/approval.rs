//! Approval: a human's decision on one tool call, made once.
//!
//! ```text
//!                    ┌── answered yes ──▶ Approved ┐
//!                    ├── answered no ───▶ Denied   │  the same answer again: `Repeated`
//!     Requested ─────┤                             ├─ any other answer: refused
//!                    ├── time ran out ──▶ Expired  │
//!                    └── a typed message, ▶ Superseded
//!                        or stop
//! ```
//!
//! The arguments that the human was asked about are the ones that run, whatever a client sends back.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::id::ApprovalId;
use crate::json_text::{Json, Level};
use crate::message::Extra;
use crate::time::Timestamp;

/// How far the clock may be set back, for example by NTP, before an open request expires because its age is unknown.
const MAX_CLOCK_STEP: Duration = Duration::from_secs(60);

/// One request for a human's decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// What the answer names; in the `adk` dialect also the id of the confirmation's own tool call.
    pub id: ApprovalId,
    /// The id under which a remote ADK server asked, and under which it is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<String>,
    /// What is shown to the user about the question.
    pub hint: String,
    /// The payload that a remote agent's tool wants filled in, with its suggestions. It is sent back with the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
    /// The payload as the human filled it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled_in: Option<Json>,
    /// SHA-256 of the arguments in canonical form, for the audit.
    pub input_hash: String,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it expires if nobody answers.
    pub expires_at: Timestamp,
    /// What has become of it.
    pub state: ApprovalState,
}

/// What has become of an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum ApprovalState {
    /// Nobody has decided.
    Requested,
    /// Somebody agreed.
    Approved {
        /// Why, if it was said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Somebody refused.
    Denied {
        /// Why, if it was said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Nobody answered in time.
    Expired,
    /// The user wrote something else.
    Superseded,
}

/// The effect of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// It decided.
    Decided,
    /// It repeats the decision. Every request of a client repeats its old answers.
    Repeated,
}

/// Why an answer changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it means")]
pub enum Refusal {
    #[error("no approval with this id was asked for in this reply")]
    Unknown,
    #[error("this approval was answered differently before; the first answer counts")]
    Contradicts,
    #[error("this approval expired before the answer came")]
    Expired,
    #[error("this approval was superseded before the answer came")]
    Superseded,
    #[error("this call runs on the server; a client cannot supply its output")]
    NotAClientTool,
    #[error("this call has an output already; the first one counts")]
    AlreadySettled,
    #[error("no call with this id was made in this reply")]
    UnknownCall,
    #[error("this answer is neither a clear yes nor a clear no; the question stays open")]
    Unclear,
    #[error("this answer does not fit the form of the question; the question stays open")]
    Unfit,
}

impl Approval {
    /// Whether it still waits for a decision.
    pub fn is_open(&self) -> bool {
        self.state == ApprovalState::Requested
    }

    /// Whether fields next to an answer name this approval, or none.
    pub fn is_meant_by(&self, fields: &Extra) -> bool {
        let named = fields.get("approvalId");
        named.is_none_or(|id| id.as_str().is_some_and(|id| self.id == *id))
    }

    /// The decision, if there was one.
    pub fn verdict(&self) -> Option<bool> {
        match self.state {
            ApprovalState::Approved { .. } => Some(true),
            ApprovalState::Denied { .. } => Some(false),
            _ => None,
        }
    }

    /// Why somebody decided as they did, if they said so.
    pub fn reason(&self) -> Option<&str> {
        match &self.state {
            ApprovalState::Approved { reason } | ApprovalState::Denied { reason } => {
                reason.as_deref()
            }
            _ => None,
        }
    }

    /// Takes an answer. Approving and denying are one path; only what follows differs.
    pub fn answer(
        &mut self,
        approved: bool,
        reason: Option<&str>,
        now: Timestamp,
    ) -> Result<Answered, Refusal> {
        let answered = self.judge(approved, now)?;
        if answered == Answered::Decided {
            let reason = reason.map(str::to_owned);
            self.state = if approved {
                ApprovalState::Approved { reason }
            } else {
                ApprovalState::Denied { reason }
            };
        }
        Ok(answered)
    }

    /// What effect an answer would have.
    pub fn judge(&self, approved: bool, now: Timestamp) -> Result<Answered, Refusal> {
        match &self.state {
            ApprovalState::Requested if !self.is_due(now) => Ok(Answered::Decided),
            ApprovalState::Approved { .. } if approved => Ok(Answered::Repeated),
            ApprovalState::Denied { .. } if !approved => Ok(Answered::Repeated),
            ApprovalState::Approved { .. } | ApprovalState::Denied { .. } => {
                Err(Refusal::Contradicts)
            }
            ApprovalState::Requested | ApprovalState::Expired => Err(Refusal::Expired),
            ApprovalState::Superseded => Err(Refusal::Superseded),
        }
    }

    /// Expires an open request whose time is up. Returns whether it did.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        self.end(self.is_due(now), ApprovalState::Expired)
    }

    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        now >= self.expires_at || now + MAX_CLOCK_STEP < self.asked_at
    }

    /// Ends an open request that will not be answered. Returns whether it did.
    pub fn supersede(&mut self) -> bool {
        self.end(true, ApprovalState::Superseded)
    }

    fn end(&mut self, due: bool, state: ApprovalState) -> bool {
        let ends = due && self.is_open();
        if ends {
            self.state = state;
        }
        ends
    }
}

/// The hash of a call's arguments: equal arguments give equal hashes, whatever the order of their keys.
pub fn input_hash(input: &Json) -> String {
    let mut hasher = Sha256::new();
    hash_canonical(input.raw(), &mut hasher);
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        for nibble in [byte >> 4, byte & 15] {
            hex.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
    hex
}

fn hash_canonical(value: &RawValue, hasher: &mut Sha256) {
    match Level::of(value) {
        Level::Fields(mut fields) => {
            fields.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            hasher.update(b"{");
            for (key, value) in fields {
                hasher.update(Json::from(key.as_ref()).text());
                hasher.update(b":");
                hash_canonical(value, hasher);
                hasher.update(b",");
            }
            hasher.update(b"}");
        }
        Level::Items(items) => {
            hasher.update(b"[");
            for item in items {
                hash_canonical(item, hasher);
                hasher.update(b",");
            }
            hasher.update(b"]");
        }
        Level::Leaf(leaf) => hasher.update(leaf),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ASKED: Timestamp = Timestamp::from_millis(1_000);
    const BEFORE: Timestamp = Timestamp::from_millis(1_999);
    const EXPIRES: Timestamp = Timestamp::from_millis(2_000);

    #[test]
    fn every_move() {
        use ApprovalState as S;
        let approved = || S::Approved { reason: None };
        let denied = || S::Denied { reason: None };
        let cases = [
            (
                S::Requested,
                true,
                BEFORE,
                Ok(Answered::Decided),
                approved(),
            ),
            (S::Requested, false, BEFORE, Ok(Answered::Decided), denied()),
            (
                S::Requested,
                true,
                EXPIRES,
                Err(Refusal::Expired),
                S::Requested,
            ),
            (
                approved(),
                true,
                EXPIRES + Duration::from_millis(9),
                Ok(Answered::Repeated),
                approved(),
            ),
            (
                approved(),
                false,
                ASKED,
                Err(Refusal::Contradicts),
                approved(),
            ),
            (denied(), false, ASKED, Ok(Answered::Repeated), denied()),
            (denied(), true, ASKED, Err(Refusal::Contradicts), denied()),
            (S::Expired, true, ASKED, Err(Refusal::Expired), S::Expired),
            (
                S::Superseded,
                false,
                ASKED,
                Err(Refusal::Superseded),
                S::Superseded,
            ),
        ];
        for (before, approve, now, result, after) in cases {
            let mut approval = approval(before.clone());
            assert_eq!(approval.answer(approve, None, now), result, "{before:?}");
            assert_eq!(approval.state, after, "{before:?}");
        }
    }

    #[test]
    fn ends_only_while_open() {
        for state in [
            ApprovalState::Approved { reason: None },
            ApprovalState::Denied { reason: None },
            ApprovalState::Expired,
            ApprovalState::Superseded,
        ] {
            let mut ended = approval(state.clone());
            assert!(!ended.expire(EXPIRES) && !ended.supersede());
            assert_eq!(ended.state, state);
        }
        let mut open = approval(ApprovalState::Requested);
        assert!(!open.expire(BEFORE) && open.expire(EXPIRES));
    }

    #[test]
    fn a_clock_that_is_set_back_lengthens_no_consent() {
        let corrected = Timestamp::from_millis(600_000);
        let asked_at = corrected + MAX_CLOCK_STEP;
        let asked = || Approval {
            asked_at,
            expires_at: asked_at + Duration::from_secs(1),
            ..approval(ApprovalState::Requested)
        };
        // A small correction of the clock does not affect the user.
        assert!(!asked().expire(corrected));
        assert_eq!(asked().answer(true, None, corrected), Ok(Answered::Decided));
        let earlier = Timestamp::from_millis(599_999);
        assert!(asked().expire(earlier));
        assert_eq!(asked().answer(true, None, earlier), Err(Refusal::Expired));
    }

    #[test]
    fn hashes_ignore_the_order_of_keys_and_nothing_else() {
        let hash = |value: serde_json::Value| input_hash(&value.into());
        assert_eq!(
            hash(json!({"a": 1, "b": [2]})),
            hash(json!({"b": [2], "a": 1}))
        );
        assert_ne!(hash(json!({"a": 1})), hash(json!({"a": "1"})));
        assert_ne!(hash(json!([[1], 2])), hash(json!([[1, 2]])));
    }

    fn approval(state: ApprovalState) -> Approval {
        Approval {
            id: "a1".into(),
            remote_id: None,
            hint: String::new(),
            payload: None,
            filled_in: None,
            input_hash: String::new(),
            asked_at: ASKED,
            expires_at: EXPIRES,
            state,
        }
    }
}
