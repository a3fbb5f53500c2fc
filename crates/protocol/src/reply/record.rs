//! What is stored of a reply, and how one ends.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::calls::{Call, CallState, Calls};
use crate::message::{Growth, Message, Part};

/// How often one step is begun again: a step that keeps killing its owners must end.
const MAX_RETRIES: u8 = 5;

/// What is stored of a reply: enough to continue after a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The message, shared with the reply: a long one is not copied to be stored.
    pub message: Arc<Message>,
    /// Its calls.
    pub calls: Calls,
    /// Whether a run of the agent was under way.
    pub asking: bool,
    /// How often the model was asked.
    pub steps: u32,
    /// How often the step that is asked for was asked again.
    #[serde(default)]
    pub retried: Retries,
    /// How the reply ended; none while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndReason>,
}

impl Record {
    /// Adds pieces of text that were stored apart from the message, as [`Message::grow`] does.
    pub fn grow(&mut self, pieces: &[Growth]) {
        if !pieces.is_empty() {
            Arc::make_mut(&mut self.message).grow(pieces);
        }
    }

    /// Takes back what the model wrote in the step that a crash interrupted, so that [`Input::Boot`](super::Input::Boot)
    /// asks for all of it again. A reader that is attached afterwards gets a message without it. Returns whether there was
    /// such a step: nothing of it may have begun, and it must not have been asked for too often.
    pub fn begin_step_again(&mut self) -> bool {
        let is_of_step = |call: &Call| call.step == self.steps;
        let is_begun =
            |call: &Call| !matches!(call.state, CallState::Streaming | CallState::Received);
        if !self.asking
            || self.ended.is_some()
            || self.retried.count >= MAX_RETRIES
            || self
                .calls
                .iter()
                .any(|call| is_of_step(call) && is_begun(call))
        {
            return false;
        }
        let parts = &self.message.parts;
        let Some(step) = parts
            .iter()
            .rposition(|part| matches!(part, Part::StepStart))
        else {
            return false;
        };
        Arc::make_mut(&mut self.message).parts.truncate(step + 1);
        self.calls.retain(|call| !is_of_step(call));
        self.retried.granted = true;
        true
    }
}

/// How often a step was asked again after a crash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retries {
    count: u8,
    /// Whether it may be asked for once more, however often it was before.
    granted: bool,
}

impl Retries {
    /// Whether [`Input::Boot`](super::Input::Boot) asks for the step again. Once, unless it is begun again.
    pub(super) fn may_ask(self) -> bool {
        self.count == 0 || self.granted
    }

    pub(super) fn and_one_more(self) -> Self {
        Self {
            count: self.count.saturating_add(1),
            granted: false,
        }
    }
}

impl Serialize for Retries {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(self.count)
    }
}

/// Older records say only whether.
impl<'de> Deserialize<'de> for Retries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Whether(bool),
            Count(u8),
        }
        let count = match Form::deserialize(from)? {
            Form::Whether(retried) => retried.into(),
            Form::Count(count) => count,
        };
        Ok(Self {
            count,
            granted: false,
        })
    }
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EndReason {
    /// The agent said everything.
    Finished,
    /// Something failed.
    Failed,
    /// The user stopped it.
    Stopped,
    /// The user wrote something else.
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn record(retried: Value, step: u32, state: &str, ended: Value) -> Record {
        let call = json!({
            "id": "c", "name": "pay", "input": {}, "step": step, "runsOn": "server", "state": {"is": state},
        });
        let parts = json!([
            {"type": "step-start"}, {"type": "text", "text": "before"},
            {"type": "step-start"}, {"type": "text", "text": "in the mid"},
        ]);
        let message = json!({"id": "m", "role": "assistant", "parts": parts});
        let record = json!({
            "message": message, "calls": [call], "asking": true, "steps": 2, "retried": retried, "ended": ended,
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn only_a_step_of_which_nothing_has_begun_is_begun_again() {
        for (record, calls) in [
            (record(json!(0), 2, "received", json!(null)), Some(0)),
            (record(json!(true), 2, "streaming", json!(null)), Some(0)),
            // Of the step before.
            (record(json!(4), 1, "running", json!(null)), Some(1)),
            (record(json!(5), 2, "received", json!(null)), None),
            (record(json!(0), 2, "running", json!(null)), None),
            (record(json!(0), 2, "asked", json!(null)), None),
            (record(json!(0), 2, "received", json!("stopped")), None),
        ] {
            let mut again = record.clone();
            assert_eq!(again.begin_step_again(), calls.is_some(), "{record:?}");
            match calls {
                Some(calls) => {
                    assert_eq!(again.message.parts, record.message.parts[..3]);
                    assert_eq!(again.calls.len(), calls);
                    assert!(again.retried.may_ask());
                }
                None => assert_eq!(again, record),
            }
        }
    }

    #[test]
    fn a_step_is_asked_for_once_more_after_a_restart() {
        let twice = Retries::default().and_one_more();
        assert!(Retries::default().may_ask() && !twice.may_ask());
        let stored: Retries = serde_json::from_value(json!(twice)).unwrap();
        assert_eq!(stored, twice);
    }
}
