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
//! The arguments are those that were there when the human was asked: they are what runs, whatever a client sends back.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Milliseconds since the Unix epoch. Time is always an argument.
pub type Time = u64;

/// One request for a human's decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// What the answer names; in the `adk` dialect also the id of the confirmation's own tool call.
    pub id: String,
    /// The id under which a remote ADK server asked, and under which it is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<String>,
    pub hint: String,
    /// What a remote agent's tool wants filled in, as it suggests it. It goes back with the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// What the human made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled_in: Option<Value>,
    /// SHA-256 of the arguments in canonical form, for the audit.
    pub input_hash: String,
    pub asked_at: Time,
    pub expires_at: Time,
    pub state: ApprovalState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum ApprovalState {
    Requested,
    Approved {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    Denied {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    Expired,
    Superseded,
}

/// What an answer came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// It decided.
    Decided,
    /// It says again what had been decided. Every request of a client repeats its old answers.
    Repeated,
}

/// Why an answer changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
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
}

impl Approval {
    pub fn is_open(&self) -> bool {
        self.state == ApprovalState::Requested
    }

    /// The decision, if there was one.
    pub fn verdict(&self) -> Option<bool> {
        match self.state {
            ApprovalState::Approved { .. } => Some(true),
            ApprovalState::Denied { .. } => Some(false),
            _ => None,
        }
    }

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
        now: Time,
    ) -> Result<Answered, Refusal> {
        match &self.state {
            ApprovalState::Requested if now < self.expires_at => {
                let reason = reason.map(str::to_owned);
                self.state = if approved {
                    ApprovalState::Approved { reason }
                } else {
                    ApprovalState::Denied { reason }
                };
                Ok(Answered::Decided)
            }
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
    pub fn expire(&mut self, now: Time) -> bool {
        self.end(now >= self.expires_at, ApprovalState::Expired)
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
pub fn input_hash(input: &Value) -> String {
    let mut hasher = Sha256::new();
    hash_canonical(input, &mut hasher);
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        for nibble in [byte >> 4, byte & 15] {
            hex.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
    hex
}

fn hash_canonical(value: &Value, hasher: &mut Sha256) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            hasher.update(b"{");
            for key in keys {
                hasher.update(Value::String(key.clone()).to_string());
                hasher.update(b":");
                hash_canonical(&fields[key], hasher);
                hasher.update(b",");
            }
            hasher.update(b"}");
        }
        Value::Array(items) => {
            hasher.update(b"[");
            for item in items {
                hash_canonical(item, hasher);
                hasher.update(b",");
            }
            hasher.update(b"]");
        }
        leaf => hasher.update(leaf.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ASKED: Time = 1_000;
    const EXPIRES: Time = 2_000;

    #[test]
    fn every_move() {
        use ApprovalState as S;
        let approved = || S::Approved { reason: None };
        let denied = || S::Denied { reason: None };
        let cases = [
            (
                S::Requested,
                true,
                EXPIRES - 1,
                Ok(Answered::Decided),
                approved(),
            ),
            (
                S::Requested,
                false,
                EXPIRES - 1,
                Ok(Answered::Decided),
                denied(),
            ),
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
                EXPIRES + 9,
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
        assert!(!open.expire(EXPIRES - 1) && open.expire(EXPIRES));
    }

    #[test]
    fn hashes_ignore_the_order_of_keys_and_nothing_else() {
        let hash = |value| input_hash(&value);
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
