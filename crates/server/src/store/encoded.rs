//! What stores write into their columns: messages and records as JSON, states as words.

use std::borrow::Cow;
use std::sync::Arc;

use adk_bridge_protocol::approval::ApprovalState;
use adk_bridge_protocol::calls::{Call, CallState, Calls, RunsOn, Settlement};
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::reply::{EndReason, Record, Retries};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{AuditEntry, CommittedSize, MAX_BODY_BYTES, MessageState, StoreError, StoredMessage};
use crate::parsing::{self, ParsingError, Room};

/// A record as it is stored.
pub(super) struct EncodedRecord {
    /// Shared with the statements that store it.
    pub(super) body: Arc<str>,
    pub(super) reply: Arc<str>,
}

/// A record without its message, which is stored with the other messages of the chat.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordFields<'r> {
    calls: Cow<'r, Calls>,
    asking: bool,
    steps: u32,
    #[serde(default)]
    retried: Retries,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<EndReason>,
}

impl EncodedRecord {
    pub(super) fn new(record: &Record) -> Result<Self, StoreError> {
        // Named one by one, so that a new field is not forgotten here.
        let Record {
            message,
            calls,
            asking,
            steps,
            retried,
            ended,
        } = record;
        Ok(Self {
            body: encode(message)?.into(),
            reply: encode(&RecordFields {
                calls: Cow::Borrowed(calls),
                asking: *asking,
                steps: *steps,
                retried: *retried,
                ended: *ended,
            })?
            .into(),
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.body.len() + self.reply.len()
    }

    /// What was committed, if this much is kept of the chat now.
    pub(super) fn committed(&self, kept: i64) -> CommittedSize {
        CommittedSize {
            message: self.body.len(),
            kept: from_sql(kept),
        }
    }
}

/// The record of a reply from its columns.
pub(super) fn decode_record(reply: &str, body: &str) -> Result<Record, StoreError> {
    let rest: RecordFields<'_> = decode(reply, "the record of a reply")?;
    Ok(Record {
        message: decode_message(body, "the message of a reply")?.into(),
        calls: rest.calls.into_owned(),
        asking: rest.asking,
        steps: rest.steps,
        retried: rest.retried,
        ended: rest.ended,
    })
}

/// Whether something was decided, has run or is about to run.
pub(super) fn must_last(record: &Record, audit: &[AuditEntry]) -> bool {
    !audit.is_empty() || record.calls.iter().any(is_running)
}

/// Whether only the message and its state have to be stored.
pub(super) fn is_plain(record: &Record, audit: &[AuditEntry]) -> bool {
    let bare = |call: &Call| call.approval.is_none() && call.runs_on != RunsOn::Server;
    audit.is_empty() && record.calls.iter().all(bare)
}

pub(super) fn state_of(record: &Record) -> MessageState {
    if record.ended.is_some() {
        MessageState::Done
    } else if !record.asking && record.calls.iter().any(is_question_of_tool) {
        // The tool that asks runs on, and nobody reads it.
        MessageState::Waiting
    } else if record.asking || record.calls.iter().any(is_running_here) {
        MessageState::Running
    } else if record.calls.iter().any(Call::waits_for_client) {
        MessageState::Waiting
    } else {
        MessageState::Running
    }
}

fn is_question_of_tool(call: &Call) -> bool {
    call.is_asked_by_a_tool() && call.is_open()
}

pub(super) fn is_open(record: &Record) -> bool {
    record.ended.is_none() || record.calls.iter().any(is_running)
}

fn is_running(call: &Call) -> bool {
    call.state == CallState::Running
}

/// A remote agent's call does not go on between its runs, whatever it waits for.
fn is_running_here(call: &Call) -> bool {
    is_running(call) && call.runs_on == RunsOn::Server
}

pub(super) fn approval_word(state: &ApprovalState) -> &'static str {
    match state {
        ApprovalState::Requested => "requested",
        ApprovalState::Approved { .. } => "approved",
        ApprovalState::Denied { .. } => "denied",
        ApprovalState::Expired => "expired",
        ApprovalState::Superseded => "superseded",
    }
}

pub(super) fn outcome_word(how: Settlement) -> &'static str {
    match how {
        // A server tool has no interim output.
        Settlement::Output | Settlement::Interim => "output",
        Settlement::Error => "error",
        Settlement::Denied => "denied",
        Settlement::Expired => "expired",
        Settlement::Superseded => "superseded",
        Settlement::Unknown => "unknown",
    }
}

/// A message that has not been parsed.
pub(super) struct UnparsedMessage {
    pub(super) place: u64,
    pub(super) state: String,
    pub(super) body: String,
    pub(super) seen: bool,
}

/// Parses a history; a large one in the memory that was reserved for it.
pub(super) async fn parse(
    rows: Vec<UnparsedMessage>,
    room: Room,
) -> Result<Vec<StoredMessage>, StoreError> {
    let parse = |rows: Vec<UnparsedMessage>| {
        rows.into_iter()
            .map(|row| {
                Ok(StoredMessage {
                    place: row.place,
                    message: decode_message(&row.body, "a stored message")?,
                    state: MessageState::from_word(&row.state)?,
                    seen: row.seen,
                })
            })
            .collect()
    };
    if room.is_some() {
        return parsing::read_in(room, move || parse(rows))
            .await
            .map_err(unread)?;
    }
    let cost = parsing::cost(rows.iter().map(|row| row.body.as_bytes()));
    parsing::read(cost, move || parse(rows))
        .await
        .map_err(unread)?
}

pub(super) fn unread(error: ParsingError) -> StoreError {
    StoreError::Io {
        doing: "parsing the history",
        why: Box::new(error),
    }
}

impl MessageState {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Waiting => "waiting",
            Self::Running => "running",
        }
    }

    pub(super) fn from_word(word: &str) -> Result<Self, StoreError> {
        [Self::Done, Self::Waiting, Self::Running]
            .into_iter()
            .find(|state| state.word() == word)
            .ok_or_else(|| StoreError::Corrupt {
                what: format!("the state {word} of a stored message"),
            })
    }
}

/// Serialises a value for one column.
pub(super) fn encode(value: &impl Serialize) -> Result<String, StoreError> {
    let json = serde_json::to_string(value).map_err(|error| StoreError::Io {
        doing: "writing JSON",
        why: Box::new(error),
    })?;
    fits(json.len())?;
    Ok(json)
}

/// Reads stored JSON; `what` names it in an error. Depth was limited when the value came in: inside a message it is
/// nested deeper than in the request.
pub(super) fn decode<T: DeserializeOwned>(json: &str, what: &str) -> Result<T, StoreError> {
    let mut reader = serde_json::Deserializer::from_str(json);
    reader.disable_recursion_limit();
    T::deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| StoreError::Corrupt {
            what: format!("{what} ({error})"),
        })
}

/// The same for a message, without copying anything twice.
pub(super) fn decode_message(json: &str, what: &str) -> Result<Message, StoreError> {
    Message::from_stored(json).map_err(|error| StoreError::Corrupt {
        what: format!("{what} ({error})"),
    })
}

/// Refuses values that are too large for one column.
pub(super) fn fits(bytes: usize) -> Result<(), StoreError> {
    if bytes > MAX_BODY_BYTES {
        return Err(StoreError::TooLarge {
            bytes,
            limit: MAX_BODY_BYTES,
        });
    }
    Ok(())
}

/// Times are far below the largest signed number; a larger one is not genuine.
pub(super) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Nothing negative is stored.
pub(super) fn from_sql(number: i64) -> u64 {
    number.try_into().unwrap_or(0)
}

/// Counts are never negative.
pub(super) fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
