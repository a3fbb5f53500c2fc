//! The audit as JSON lines: a line that says what it is, its rows with the seals over them in between, and a line at the end.

use std::collections::VecDeque;
use std::sync::Arc;

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::chain::ChainedRow;
use super::seal::Seal;
use super::source::AuditTrail;
use crate::store::{MAX_AUDIT_ROWS, Store, StoreError};

/// How many seals are read at once.
const SEALS: u32 = 100;

/// A line of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
#[expect(
    clippy::large_enum_variant,
    reason = "few are held at once, and nearly all are rows"
)]
pub enum Line {
    Audit(Header),
    Row(ChainedRow),
    Seal(Seal),
    End(End),
}

/// What an export begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The form of the lines.
    pub version: u32,
    /// The id of the store.
    pub store: String,
    pub at: Timestamp,
    /// Whose rows these are, chat by chat and without seals; without a user, everybody's in the order of their ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
    /// It has the rows after this one.
    pub after: u64,
    /// Rows through this one were given up because of their age.
    pub removed: u64,
    /// Rows through this one may be older than chains.
    pub unchained: u64,
    /// Rows through this one were written, as the database counts them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub written: u64,
}

pub(super) const VERSION: u32 = 1;

/// What an export ends with, so that one that was cut off is noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub rows: u64,
    pub seals: u64,
}

/// An export that is under way; it holds one page.
pub struct Exported {
    from: From,
    end: End,
    stage: Stage,
}

enum From {
    Whole {
        trail: Arc<dyn AuditTrail>,
        after: u64,
        at: Timestamp,
        /// Seals that come next; none are left if it is empty after it was filled.
        seals: VecDeque<Seal>,
        last_seal: u64,
        /// The last row and the last seal that were there at the beginning.
        until: u64,
        until_seal: u64,
    },
    User {
        store: Arc<dyn Store>,
        user: UserId,
        after: Option<(ChatId, u64)>,
        at: Timestamp,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Rows,
    Done,
}

/// Everybody's rows after one.
pub fn whole_audit(trail: Arc<dyn AuditTrail>, after: u64, at: Timestamp) -> Exported {
    Exported::new(From::Whole {
        trail,
        after,
        at,
        seals: VecDeque::new(),
        last_seal: 0,
        until: 0,
        until_seal: 0,
    })
}

impl Exported {
    /// The rows of one user.
    pub fn of_user(store: Arc<dyn Store>, user: UserId, at: Timestamp) -> Self {
        Self::new(From::User {
            store,
            user,
            after: None,
            at,
        })
    }

    fn new(from: From) -> Self {
        Self {
            from,
            end: End::default(),
            stage: Stage::Begin,
        }
    }

    /// The next lines; none at the end.
    pub async fn next(&mut self) -> Result<Vec<Line>, StoreError> {
        match self.stage {
            Stage::Begin => {
                self.stage = Stage::Rows;
                let header = self.from.begin().await?;
                Ok(vec![Line::Audit(header)])
            }
            Stage::Rows => {
                let mut lines = self.from.lines().await?;
                for line in &lines {
                    match line {
                        Line::Row(_) => self.end.rows += 1,
                        Line::Seal(_) => self.end.seals += 1,
                        Line::Audit(_) | Line::End(_) => {}
                    }
                }
                if lines.is_empty() {
                    self.stage = Stage::Done;
                    lines.push(Line::End(self.end));
                }
                Ok(lines)
            }
            Stage::Done => Ok(Vec::new()),
        }
    }

    /// The same as text, each line with its end.
    pub async fn next_text(&mut self) -> Result<Vec<u8>, StoreError> {
        let mut text = Vec::new();
        for line in self.next().await? {
            serde_json::to_writer(&mut text, &line).map_err(|error| StoreError::Io {
                doing: "writing the audit",
                why: Box::new(error),
            })?;
            text.push(b'\n');
        }
        Ok(text)
    }
}

impl From {
    async fn begin(&mut self) -> Result<Header, StoreError> {
        match self {
            Self::Whole {
                trail,
                after,
                at,
                until,
                until_seal,
                last_seal,
                ..
            } => {
                let state = trail.audit_state().await?;
                *until = trail.audit_end().await?;
                *until_seal = state.seal.as_ref().map_or(0, |seal| seal.number);
                // A seal covers rows before `after` only if it is older than the first one that reaches further.
                *last_seal = first_seal(&**trail, *after).await?;
                Ok(Header {
                    version: VERSION,
                    at: *at,
                    user: None,
                    after: *after,
                    removed: state.removed(),
                    unchained: state.unchained(),
                    written: state.written,
                    store: state.store,
                })
            }
            Self::User {
                store, user, at, ..
            } => {
                let state = store.audit_state().await?;
                Ok(Header {
                    version: VERSION,
                    at: *at,
                    user: Some(user.clone()),
                    after: 0,
                    removed: state.removed(),
                    unchained: state.unchained(),
                    written: 0,
                    store: state.store,
                })
            }
        }
    }

    async fn lines(&mut self) -> Result<Vec<Line>, StoreError> {
        match self {
            Self::Whole {
                trail,
                after,
                seals,
                last_seal,
                until,
                until_seal,
                ..
            } => {
                let mut rows = trail.audit_rows(*after, MAX_AUDIT_ROWS).await?;
                rows.retain(|row| row.row.id <= *until);
                let mut lines = Vec::with_capacity(rows.len() + 1);
                for row in &rows {
                    *after = row.row.id;
                    push_seals(
                        &**trail,
                        seals,
                        (last_seal, *until_seal),
                        *after,
                        &mut lines,
                    )
                    .await?;
                    lines.push(Line::Row(row.clone()));
                }
                if rows.is_empty() {
                    push_seals(
                        &**trail,
                        seals,
                        (last_seal, *until_seal),
                        u64::MAX,
                        &mut lines,
                    )
                    .await?;
                }
                Ok(lines)
            }
            Self::User {
                store, user, after, ..
            } => {
                let cursor = after.as_ref().map(|(chat, id)| (chat, *id));
                let rows = store.audit_of_user(user, cursor, MAX_AUDIT_ROWS).await?;
                if let Some(last) = rows.last() {
                    *after = Some((last.row.chat_id.clone(), last.row.id));
                }
                Ok(rows.into_iter().map(Line::Row).collect())
            }
        }
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The number of the last seal that covers nothing after a row.
async fn first_seal(trail: &dyn AuditTrail, after: u64) -> Result<u64, StoreError> {
    let mut number = 0;
    loop {
        let seals = trail.audit_seals(number, SEALS).await?;
        if seals.is_empty() || after == 0 {
            return Ok(number);
        }
        for seal in seals {
            if seal.through > after {
                return Ok(number);
            }
            number = seal.number;
        }
    }
}

/// Adds the seals that reach no further than before a row, which follows them.
async fn push_seals(
    trail: &dyn AuditTrail,
    seals: &mut VecDeque<Seal>,
    (last, until): (&mut u64, u64),
    row: u64,
    lines: &mut Vec<Line>,
) -> Result<(), StoreError> {
    loop {
        if seals.is_empty() && *last < until {
            let mut more = trail.audit_seals(*last, SEALS).await?;
            more.retain(|seal| seal.number <= until);
            // One that is missing at the end is not waited for.
            *last = more.last().map_or(until, |seal| seal.number);
            seals.extend(more);
        }
        match seals.pop_front_if(|seal| seal.through < row) {
            Some(seal) => lines.push(Line::Seal(seal)),
            None => return Ok(()),
        }
    }
}
