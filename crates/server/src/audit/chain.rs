//! The chain of a chat's audit rows: what is hashed of each, and how it holds on to the one before.

use std::fmt::Write as _;

use adk_bridge_protocol::id::{ApprovalId, CallId};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::store::{AuditRow, escaped};

/// What begins the text that is hashed; the next form of it has another number.
const FORM: &str = "row 1";

/// How a row is chained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// The id of the chat's row before this one, and its hash unless that is older than chains.
    pub previous: Option<u64>,
    pub previous_hash: Option<String>,
    /// The chain has the reason by its digest, so that the reason can be erased; the salt is erased with it, or the digest
    /// of a short reason could be guessed.
    pub reason_salt: Option<String>,
    pub reason_hash: Option<String>,
    pub hash: String,
}

/// A row with its link; rows that are older than chains have none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainedRow {
    #[serde(flatten)]
    pub row: AuditRow,
    #[serde(flatten)]
    pub link: Option<Link>,
}

/// The end of a chat's chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainEnd {
    pub id: u64,
    pub hash: Option<String>,
}

impl Link {
    /// The link of a row that comes after `end`. The id of the row is not a part of it: a database gives it later.
    pub fn new(end: Option<&ChainEnd>, row: &AuditRow, salt: impl FnOnce() -> String) -> Self {
        let salt = row.reason.is_some().then(salt);
        let reason = row.reason.as_deref().zip(salt.as_deref());
        let mut link = Self {
            previous: end.map(|end| end.id),
            previous_hash: end.and_then(|end| end.hash.clone()),
            reason_hash: reason.map(|(reason, salt)| reason_hash(salt, reason)),
            reason_salt: salt,
            hash: String::new(),
        };
        link.hash = link.hash_of(row);
        link
    }

    /// The hash that a row has with this link.
    pub fn hash_of(&self, row: &AuditRow) -> String {
        let mut text = String::with_capacity(512);
        text.push_str(FORM);
        let number = |number: u64| Some(number.to_string());
        let previous = self.previous.and_then(number);
        let at = number(row.at.as_millis());
        for field in [
            self.previous_hash.as_deref(),
            previous.as_deref(),
            at.as_deref(),
            Some(row.user.as_str()),
            Some(row.chat_id.as_str()),
            row.turn_id.as_deref(),
            row.connection_id.as_deref(),
            Some(&row.kind),
            row.tool_call_id.as_ref().map(CallId::as_str),
            row.tool_name.as_deref(),
            row.approval_id.as_ref().map(ApprovalId::as_str),
            row.transport.as_deref(),
            row.dialect.as_deref(),
            self.reason_hash.as_deref(),
            row.input_hash.as_deref(),
            row.replica.as_deref(),
        ] {
            push_field(&mut text, field);
        }
        sha256_hex(&text)
    }

    /// Whether the reason of a row is the one that was chained, or was erased.
    pub fn has_reason_of(&self, row: &AuditRow) -> bool {
        match (&row.reason, &self.reason_salt, &self.reason_hash) {
            (None, None, _) => true,
            (Some(reason), Some(salt), Some(hash)) => reason_hash(salt, reason) == *hash,
            _ => false,
        }
    }
}

fn reason_hash(salt: &str, reason: &str) -> String {
    sha256_hex(&format!("{salt}:{}", escaped(reason)))
}

/// Adds a value as it is hashed: its length and itself, so that no two lists of values look the same. Text is hashed as
/// PostgreSQL stores it, where the hash is computed by the database.
pub(super) fn push_field(text: &mut String, field: Option<&str>) {
    match field.map(escaped) {
        None => text.push('-'),
        Some(field) => {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}:{field}", field.len());
        }
    }
}

pub(super) fn sha256_hex(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use adk_bridge_protocol::time::Timestamp;

    use super::*;

    pub(in crate::audit) fn row(id: u64, chat: &str, reason: Option<&str>) -> AuditRow {
        AuditRow {
            id,
            at: Timestamp::from_millis(id * 1_000),
            chat_id: chat.into(),
            turn_id: None,
            connection_id: None,
            kind: "approval.denied".to_owned(),
            tool_call_id: Some("call-1".into()),
            tool_name: Some("process_payment".to_owned()),
            approval_id: None,
            user: "alice".into(),
            transport: Some("sse".to_owned()),
            dialect: None,
            reason: reason.map(str::to_owned),
            input_hash: None,
            replica: None,
        }
    }

    /// Rows of one chat, chained.
    pub(in crate::audit) fn chained(rows: impl IntoIterator<Item = AuditRow>) -> Vec<ChainedRow> {
        let mut end = None;
        let chain = |row: AuditRow| {
            let link = Link::new(end.as_ref(), &row, || "5a17".to_owned());
            end = Some(ChainEnd {
                id: row.id,
                hash: Some(link.hash.clone()),
            });
            ChainedRow {
                row,
                link: Some(link),
            }
        };
        rows.into_iter().map(chain).collect()
    }

    #[test]
    fn every_value_counts() {
        let row = row(1, "c", Some("no"));
        let link = Link::new(None, &row, || "salt".to_owned());
        assert_eq!(link.hash_of(&row), link.hash);
        let changes: [fn(&mut AuditRow); 13] = [
            |it| it.at = Timestamp::from_millis(7),
            |it| it.chat_id = "d".into(),
            |it| it.turn_id = Some(String::new()),
            |it| it.connection_id = Some("c".to_owned()),
            |it| it.kind = "approval.approved".to_owned(),
            |it| it.tool_call_id = None,
            |it| it.tool_name = Some("process_paymen".to_owned()),
            |it| it.approval_id = Some("t".into()),
            |it| it.user = "bob".into(),
            |it| it.transport = None,
            |it| it.dialect = Some("sse".to_owned()),
            |it| it.input_hash = Some("h".to_owned()),
            |it| it.replica = Some("b".to_owned()),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut changed = row.clone();
            change(&mut changed);
            assert_ne!(link.hash_of(&changed), link.hash, "{index}");
        }
        // A value that moves to the next column is another one.
        let mut moved = row.clone();
        moved.dialect = moved.transport.take();
        assert_ne!(link.hash_of(&moved), link.hash);
        assert!(link.has_reason_of(&row));
        let mut other = row.clone();
        other.reason = Some("yes".to_owned());
        assert!(!link.has_reason_of(&other));
    }

    #[test]
    fn a_reason_can_be_erased() {
        let mut row = row(1, "c", Some("because Hanako said so"));
        let mut link = Link::new(None, &row, || "salt".to_owned());
        row.reason = None;
        assert!(!link.has_reason_of(&row), "the salt stays");
        link.reason_salt = None;
        assert!(link.has_reason_of(&row));
        assert_eq!(link.hash_of(&row), link.hash);
    }

    #[test]
    fn a_row_is_read_as_it_is_written() {
        for row in chained([row(1, "c", Some("no")), row(2, "c", None)]) {
            let line = serde_json::to_string(&row).unwrap();
            assert_eq!(serde_json::from_str::<ChainedRow>(&line).unwrap(), row);
            let bare = ChainedRow { link: None, ..row };
            let line = serde_json::to_string(&bare).unwrap();
            assert_eq!(serde_json::from_str::<ChainedRow>(&line).unwrap(), bare);
        }
    }
}
