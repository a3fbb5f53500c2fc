//! Replies: a record with its message, approvals, tool runs and audit, written together or not at all.

use std::collections::HashMap;

use adk_bridge_protocol::approval::Approval;
use adk_bridge_protocol::calls::{Call, CallState, RunsOn};
use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::reply::Record;
use adk_bridge_protocol::time::Timestamp;
use sqlx::error::ErrorKind;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use super::connection::Writing;
use super::messages::{EncodedOpening, IfTaken};
use super::statement_batch::StatementBatch;
use super::{audit, chats, grown_texts, messages};
use crate::store::encoded::{
    EncodedRecord, approval_word, decode_record, encode, is_open, outcome_word, state_of, to_sql,
};
use crate::store::{
    AuditEntry, Chat, ChatRef, CommittedSize, Conflict, Entity, MessageState, OpenReply, StoreError,
};

/// The rows of a stored reply; the parameter is its id.
const STORED: &str = "FROM messages
     WHERE chat = key AND messages.id = ? AND cut_in IS NULL AND reply IS NOT NULL";

/// A reply that is not stored yet.
pub(super) struct NewReply<'r> {
    pub(super) id: &'r MessageId,
    state: MessageState,
    open: bool,
    encoded: EncodedRecord,
}

impl<'r> NewReply<'r> {
    pub(super) fn new(record: &'r Record, encoded: EncodedRecord) -> Self {
        Self {
            id: &record.message.id,
            state: state_of(record),
            open: is_open(record),
            encoded,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.encoded.bytes()
    }

    /// Adds a statement that puts it at the end of the chat.
    pub(super) fn insert(
        &self,
        batch: StatementBatch,
        chat: ChatRef<'_>,
        if_taken: IfTaken,
    ) -> StatementBatch {
        // No chat is found if it has a message of this id, shown or cut.
        batch
            .then(match if_taken {
                IfTaken::Skip => {
                    "INSERT INTO messages (id, state, open, reply, body, chat)
                     SELECT ?, ?, ?, ?, ?, key FROM chats WHERE user = ? AND chats.id = ? AND NOT EXISTS
                         (SELECT 1 FROM messages WHERE chat = key AND messages.id = ?)"
                }
                // And messages belong to a chat.
                IfTaken::Fail => {
                    "INSERT INTO messages (id, state, open, reply, body, chat) VALUES (?, ?, ?, ?, ?,
                         (SELECT key FROM chats WHERE user = ? AND id = ? AND NOT EXISTS
                             (SELECT 1 FROM messages WHERE chat = key AND messages.id = ?)))"
                }
            })
            .bind(self.id.as_str())
            .bind(self.state.word())
            .bind(self.open)
            .bind(self.encoded.reply.clone())
            .bind(self.encoded.body.clone())
            .bind(chat.user.as_str())
            .bind(chat.id.as_str())
            .bind(self.id.as_str())
    }
}

/// Begins a transaction and writes everything that begins a reply into it.
pub(super) async fn begin(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    opening: &EncodedOpening<'_>,
    record: &Record,
    audit: &[AuditEntry],
    now: Timestamp,
) -> Result<Chat, StoreError> {
    let found = messages::begin(connection, chat, opening, now).await?;
    store_approvals(connection, &found.key, record).await?;
    journal_runs(connection, &found.key, record, now).await?;
    audit::insert(connection, chat, audit).await?;
    Ok(found.chat)
}

/// Overwrites a plain reply that is stored already, and marks its chat as changed at a time, in one batch. Returns `None`,
/// and changes nothing, if it is not stored.
pub(super) async fn overwrite(
    writing: &mut Writing<'_>,
    chat: ChatRef<'_>,
    record: &Record,
    encoded: &EncodedRecord,
    changed: Option<Timestamp>,
) -> Result<Option<CommittedSize>, StoreError> {
    let id = record.message.id.as_str();
    let change = changed.map_or("", |_| "updated_at = max(updated_at, ?),");
    let mut batch = StatementBatch::begin().then(format!(
        "UPDATE chats SET {change}
             bytes = bytes + ? - (SELECT octet_length(body) + octet_length(reply) {STORED})
         WHERE user = ? AND id = ? AND EXISTS (SELECT 1 {STORED})
         RETURNING bytes"
    ));
    if let Some(at) = changed {
        batch = batch.bind(to_sql(at.as_millis()));
    }
    let batch = batch
        .bind(to_sql(encoded.bytes() as u64))
        .bind(id)
        .bind(chat.user.as_str())
        .bind(chat.id.as_str())
        .bind(id);
    let batch = update(batch, chat, record, encoded).then("COMMIT");
    let done = writing.run(batch).await.map_err(constraint)?;
    let counted = done.get(1).and_then(|done| done.rows.first());
    Ok(counted.map(|row| encoded.committed(row.integer(0))))
}

/// Begins a transaction and writes into it.
pub(super) async fn commit(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    record: &Record,
    encoded: EncodedRecord,
    audit: &[AuditEntry],
    now: Timestamp,
) -> Result<CommittedSize, StoreError> {
    let batch = StatementBatch::begin()
        .then(format!(
            "UPDATE chats SET updated_at = max(updated_at, ?),
                 bytes = bytes + ? - coalesce((SELECT octet_length(body) + octet_length(reply) {STORED}), 0)
             WHERE user = ? AND id = ?
             RETURNING bytes, key"
        ))
        .bind(to_sql(now.as_millis()))
        .bind(to_sql(encoded.bytes() as u64))
        .bind(record.message.id.as_str())
        .bind(chat.user.as_str())
        .bind(chat.id.as_str());
    let done = update(batch, chat, record, &encoded)
        .run(connection)
        .await
        .map_err(constraint)?;
    let touched = done.get(1).and_then(|done| done.rows.first());
    let touched = touched.ok_or(StoreError::NotFound(Entity::Chat))?;
    let key = touched.text(1).unwrap_or_default();
    let committed = encoded.committed(touched.integer(0));
    if done.get(2).is_none_or(|updated| updated.changed == 0) {
        insert(connection, chat, key, record, encoded).await?;
    }
    store_approvals(connection, key, record).await?;
    journal_runs(connection, key, record, now).await?;
    audit::insert(connection, chat, audit).await?;
    Ok(committed)
}

pub(super) async fn checkpoint(
    writing: &mut Writing<'_>,
    chat: ChatRef<'_>,
    record: &Record,
    encoded: &EncodedRecord,
) -> Result<(), StoreError> {
    let stored = overwrite(writing, chat, record, encoded, None).await?;
    if stored.is_some() {
        return Ok(());
    }
    chats::key_of(writing.connection(), chat).await?;
    Err(StoreError::NotFound(Entity::Message))
}

pub(super) async fn open_all(
    connection: &mut SqliteConnection,
) -> Result<Vec<OpenReply>, StoreError> {
    // The sign keeps SQLite from reading every message there is in this order, rather than the index of open replies.
    sqlx::query(
        "SELECT chats.user, chats.id FROM messages JOIN chats ON key = messages.chat
         WHERE messages.open = 1 AND chats.user <> '' ORDER BY +messages.seq",
    )
    .fetch_all(connection)
    .await?
    .iter()
    .map(|row| {
        Ok(OpenReply {
            user: row.try_get::<String, _>(0)?.into(),
            chat_id: row.try_get::<String, _>(1)?.into(),
        })
    })
    .collect()
}

pub(super) async fn open_in(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<Vec<Record>, StoreError> {
    let rows = sqlx::query(
        "SELECT reply, body, seq FROM chats
         JOIN messages ON messages.chat = chats.key AND open = 1
         WHERE user = ?1 AND chats.id = ?2 ORDER BY seq",
    )
    .bind(chat.user.as_str())
    .bind(chat.id.as_str())
    .fetch_all(&mut *connection)
    .await?;
    let mut records = Vec::with_capacity(rows.len());
    for row in rows {
        let mut record = decode_record(row.try_get(0)?, row.try_get(1)?)?;
        let grown = grown_texts::of_message(connection, row.try_get(2)?).await?;
        record.grow(&grown);
        records.push(record);
    }
    Ok(records)
}

pub(super) async fn of_message(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    message_id: &MessageId,
) -> Result<Option<Record>, StoreError> {
    let row = sqlx::query(
        "SELECT reply, body FROM chats
         LEFT JOIN messages ON messages.chat = chats.key AND messages.id = ?3
                            AND cut_in IS NULL AND reply IS NOT NULL
         WHERE user = ?1 AND chats.id = ?2",
    )
    .bind(chat.user.as_str())
    .bind(chat.id.as_str())
    .bind(message_id.as_str())
    .fetch_optional(connection)
    .await?;
    record_of(row)
}

/// The record in a row of a chat: no row means no chat, an empty one no reply.
fn record_of(row: Option<SqliteRow>) -> Result<Option<Record>, StoreError> {
    let row = row.ok_or(StoreError::NotFound(Entity::Chat))?;
    let Some(rest) = row.try_get(0)? else {
        return Ok(None);
    };
    decode_record(rest, row.try_get(1)?).map(Some)
}

/// Adds a statement that overwrites a stored reply; it changes nothing if there is no such reply or chat.
fn update(
    batch: StatementBatch,
    chat: ChatRef<'_>,
    record: &Record,
    encoded: &EncodedRecord,
) -> StatementBatch {
    batch
        .then(
            "UPDATE messages SET state = ?, open = ?, reply = ?, body = ?
             WHERE chat = (SELECT key FROM chats WHERE user = ? AND chats.id = ?)
               AND id = ? AND cut_in IS NULL AND reply IS NOT NULL",
        )
        .bind(state_of(record).word())
        .bind(is_open(record))
        .bind(encoded.reply.clone())
        .bind(encoded.body.clone())
        .bind(chat.user.as_str())
        .bind(chat.id.as_str())
        .bind(record.message.id.as_str())
}

/// Puts a new reply at the end of the chat.
async fn insert(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    key: &str,
    record: &Record,
    encoded: EncodedRecord,
) -> Result<(), StoreError> {
    let insert = NewReply::new(record, encoded).insert(StatementBatch::new(), chat, IfTaken::Skip);
    let done = insert.run(connection).await.map_err(constraint)?;
    if done.first().is_some_and(|inserted| inserted.changed == 1) {
        return Ok(());
    }
    let id = record.message.id.clone();
    let shown =
        sqlx::query("SELECT 1 FROM messages WHERE chat = ?1 AND id = ?2 AND cut_in IS NULL")
            .bind(key)
            .bind(id.as_str())
            .fetch_optional(connection)
            .await?;
    Err(match shown {
        Some(_) => Conflict::MessageExists { id },
        None => Conflict::ReplyCut { id },
    }
    .into())
}

/// Stores new approvals, and decides open ones. A decision never changes: a different one is a conflict.
async fn store_approvals(
    connection: &mut SqliteConnection,
    chat: &str,
    record: &Record,
) -> Result<(), StoreError> {
    let asked = || {
        record
            .calls
            .iter()
            .filter_map(|call| Some((call, call.approval.as_ref()?)))
    };
    if asked().next().is_none() {
        return Ok(());
    }
    let stored: HashMap<String, (String, Option<String>)> =
        sqlx::query("SELECT id, state, reason FROM approvals WHERE chat = ?1 AND message_id = ?2")
            .bind(chat)
            .bind(record.message.id.as_str())
            .fetch_all(&mut *connection)
            .await?
            .iter()
            .map(|row| Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?))))
            .collect::<Result<_, sqlx::Error>>()?;
    for (call, approval) in asked() {
        let word = approval_word(&approval.state);
        match stored.get(approval.id.as_str()) {
            None => ask(connection, chat, record, call, approval).await?,
            Some((state, reason)) if state == word && reason.as_deref() == approval.reason() => {}
            Some((state, _)) => {
                let decided = sqlx::query(
                    "UPDATE approvals SET state = ?3, reason = ?4
                     WHERE chat = ?1 AND id = ?2 AND state = 'requested'",
                )
                .bind(chat)
                .bind(approval.id.as_str())
                .bind(word)
                .bind(approval.reason())
                .execute(&mut *connection)
                .await?;
                if decided.rows_affected() == 0 {
                    return Err(contradiction(approval, state).into());
                }
            }
        }
    }
    Ok(())
}

async fn ask(
    connection: &mut SqliteConnection,
    chat: &str,
    record: &Record,
    call: &Call,
    approval: &Approval,
) -> Result<(), StoreError> {
    let inserted = sqlx::query(
        "INSERT INTO approvals (chat, id, message_id, call_id, tool, input, input_hash,
                                asked_at, expires_at, state, reason)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT DO NOTHING",
    )
    .bind(chat)
    .bind(approval.id.as_str())
    .bind(record.message.id.as_str())
    .bind(call.id.as_str())
    .bind(&call.name)
    .bind(encode(&call.input)?)
    .bind(&approval.input_hash)
    .bind(to_sql(approval.asked_at.as_millis()))
    .bind(to_sql(approval.expires_at.as_millis()))
    .bind(approval_word(&approval.state))
    .bind(approval.reason())
    .execute(connection)
    .await?;
    if inserted.rows_affected() == 0 {
        return Err(contradiction(approval, "part of another reply").into());
    }
    Ok(())
}

/// Journals the runs of server tools. Those of a remote agent are its own, and may be run again.
async fn journal_runs(
    connection: &mut SqliteConnection,
    chat: &str,
    record: &Record,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mine = || {
        record.calls.iter().filter(|call| {
            call.runs_on == RunsOn::Server
                && (call.state == CallState::Running || call.settled().is_some())
        })
    };
    if mine().next().is_none() {
        return Ok(());
    }
    let stored: HashMap<String, Option<String>> =
        sqlx::query("SELECT call_id, outcome FROM tool_runs WHERE chat = ?1 AND message_id = ?2")
            .bind(chat)
            .bind(record.message.id.as_str())
            .fetch_all(&mut *connection)
            .await?
            .iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .collect::<Result<_, sqlx::Error>>()?;
    for call in mine() {
        let changed = match (call.settled(), stored.get(call.id.as_str())) {
            // Settled without having run, or run again because it is idempotent.
            (Some(_), None) | (None, Some(None)) => continue,
            (Some(how), Some(Some(outcome))) if outcome_word(how) == outcome => continue,
            (None, None) => sqlx::query(
                "INSERT INTO tool_runs (chat, call_id, message_id, tool, started_at)
                     VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT DO NOTHING",
            )
            .bind(chat)
            .bind(call.id.as_str())
            .bind(record.message.id.as_str())
            .bind(&call.name)
            .bind(to_sql(now.as_millis()))
            .execute(&mut *connection)
            .await?
            .rows_affected(),
            (Some(how), Some(None)) => sqlx::query(
                "UPDATE tool_runs SET finished_at = ?3, outcome = ?4
                     WHERE chat = ?1 AND call_id = ?2 AND finished_at IS NULL",
            )
            .bind(chat)
            .bind(call.id.as_str())
            .bind(to_sql(now.as_millis()))
            .bind(outcome_word(how))
            .execute(&mut *connection)
            .await?
            .rows_affected(),
            (_, Some(Some(_))) => 0,
        };
        if changed == 0 {
            let call_id = call.id.clone();
            return Err(Conflict::ToolRan { call_id }.into());
        }
    }
    Ok(())
}

fn contradiction(approval: &Approval, stored: &str) -> Conflict {
    Conflict::Approval {
        id: approval.id.clone(),
        stored: stored.to_owned(),
    }
}

/// Whether a statement was refused because of what is stored already.
pub(super) fn is_constraint(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|violated| {
        violated.is_unique_violation() || violated.kind() == ErrorKind::NotNullViolation
    })
}

/// Errors of the database's own constraints: a second open reply in a chat, and messages without a chat.
pub(super) fn constraint(error: sqlx::Error) -> StoreError {
    match error.as_database_error() {
        Some(violated) if violated.is_unique_violation() => Conflict::ReplyOpen.into(),
        Some(violated) if violated.kind() == ErrorKind::NotNullViolation => {
            StoreError::NotFound(Entity::Chat)
        }
        _ => error.into(),
    }
}
