//! Replies: a record with its message, approvals, tool runs and audit, written together or not at all.

use std::borrow::Cow;
use std::collections::HashMap;

use adk_bridge_protocol::approval::{Approval, ApprovalState, Time};
use adk_bridge_protocol::calls::{Call, CallState, Calls, RunsOn, Settled};
use adk_bridge_protocol::reply::{Ended, Record};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use super::journey::Journey;
use super::messages::{decode, encode};
use super::{chats, extras, messages, to_sql};
use crate::store::{
    AuditEntry, Chat, ChatRef, Conflict, MessageState, OpenReply, Opening, StoreError, Thing,
};

/// A record as it is stored.
#[derive(Clone)]
pub(super) struct Encoded {
    body: String,
    reply: String,
}

/// A record without its message, which is stored once, with the others of the chat.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rest<'r> {
    calls: Cow<'r, Calls>,
    asking: bool,
    steps: u32,
    retried: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Ended>,
}

impl Encoded {
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
            body: encode(message)?,
            reply: encode(&Rest {
                calls: Cow::Borrowed(calls),
                asking: *asking,
                steps: *steps,
                retried: *retried,
                ended: *ended,
            })?,
        })
    }
}

/// A reply that is not in the store.
pub(super) struct NewReply<'r> {
    pub(super) id: &'r str,
    state: MessageState,
    open: bool,
    encoded: Encoded,
}

impl<'r> NewReply<'r> {
    pub(super) fn new(record: &'r Record, encoded: Encoded) -> Self {
        Self {
            id: &record.message.id,
            state: state_of(record),
            open: is_open(record),
            encoded,
        }
    }

    /// Adds a statement that puts it at the end of the chat; it changes nothing where the id is taken, and tells nothing
    /// of somebody else's chat.
    pub(super) fn insert(self, journey: Journey, chat: ChatRef<'_>) -> Journey {
        journey
            .then(
                "INSERT INTO messages (chat_id, id, state, open, reply, body)
                 SELECT ?, ?, ?, ?, ?, ?
                 WHERE NOT EXISTS (SELECT 1 FROM messages WHERE chat_id = ? AND id = ?)
                   AND EXISTS (SELECT 1 FROM chats WHERE id = ? AND user = ?)",
            )
            .bind(chat.id)
            .bind(self.id)
            .bind(self.state.word())
            .bind(self.open)
            .bind(self.encoded.reply)
            .bind(self.encoded.body)
            .bind(chat.id)
            .bind(self.id)
            .bind(chat.id)
            .bind(chat.user)
    }
}

/// Whether something was decided, has run or is about to.
pub(super) fn must_last(record: &Record, audit: &[AuditEntry]) -> bool {
    !audit.is_empty() || record.calls.iter().any(is_running)
}

/// Begins a transaction and writes everything that begins a reply into it.
pub(super) async fn begin(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    opening: Opening<'_>,
    record: &Record,
    encoded: Encoded,
    audit: &[AuditEntry],
    now: Time,
) -> Result<Chat, StoreError> {
    let reply = NewReply::new(record, encoded);
    let found = messages::begin(connection, chat, opening, reply, now).await?;
    store_approvals(connection, chat, record).await?;
    journal_runs(connection, chat, record, now).await?;
    extras::insert_audit(connection, chat, audit).await?;
    Ok(found)
}

/// Whether nothing is stored but the message and how far it is.
pub(super) fn is_plain(record: &Record, audit: &[AuditEntry]) -> bool {
    let bare = |call: &Call| call.approval.is_none() && call.runs_on != RunsOn::Server;
    audit.is_empty() && record.calls.iter().all(bare)
}

/// A whole commit of a reply that is stored already and plain, in one journey. Says false where it is not stored, and
/// has then done nothing.
pub(super) async fn rewrite(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    record: &Record,
    encoded: Encoded,
    now: Time,
) -> Result<bool, StoreError> {
    let done = update(Journey::begin(), chat, record, encoded)
        .then(
            "UPDATE chats SET updated_at = max(updated_at, ?)
             WHERE id = ? AND user = ? AND changes() > 0",
        )
        .bind(to_sql(now))
        .bind(chat.id)
        .bind(chat.user)
        .then("COMMIT")
        .run(connection)
        .await
        .map_err(constraint)?;
    Ok(done.get(1).is_some_and(|updated| updated.changed > 0))
}

/// Begins a transaction and writes into it.
pub(super) async fn commit(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    record: &Record,
    encoded: Encoded,
    audit: &[AuditEntry],
    now: Time,
) -> Result<(), StoreError> {
    let journey = chats::touch(Journey::begin(), chat, None, now);
    let done = update(journey, chat, record, encoded.clone())
        .run(connection)
        .await
        .map_err(constraint)?;
    chats::found_in(done.get(1))?;
    if done.get(2).is_none_or(|updated| updated.changed == 0) {
        insert(connection, chat, record, encoded).await?;
    }
    store_approvals(connection, chat, record).await?;
    journal_runs(connection, chat, record, now).await?;
    extras::insert_audit(connection, chat, audit).await
}

pub(super) async fn checkpoint(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    record: &Record,
    encoded: Encoded,
) -> Result<(), StoreError> {
    let done = update(Journey::new(), chat, record, encoded)
        .run(connection)
        .await
        .map_err(constraint)?;
    if done.first().is_some_and(|updated| updated.changed > 0) {
        return Ok(());
    }
    chats::check(connection, chat).await?;
    Err(StoreError::NotFound(Thing::Message))
}

pub(super) async fn open_all(
    connection: &mut SqliteConnection,
) -> Result<Vec<OpenReply>, StoreError> {
    sqlx::query(
        "SELECT chats.user, chats.id FROM messages JOIN chats ON chats.id = messages.chat_id
         WHERE messages.open = 1 ORDER BY messages.seq",
    )
    .fetch_all(connection)
    .await?
    .iter()
    .map(|row| {
        Ok(OpenReply {
            user: row.try_get(0)?,
            chat_id: row.try_get(1)?,
        })
    })
    .collect()
}

pub(super) async fn open_in(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<Vec<Record>, StoreError> {
    let rows = sqlx::query(
        "SELECT reply, body FROM chats
         JOIN messages ON messages.chat_id = chats.id AND open = 1
         WHERE chats.id = ?1 AND user = ?2 ORDER BY seq",
    )
    .bind(chat.id)
    .bind(chat.user)
    .fetch_all(connection)
    .await?;
    let records: Result<Vec<_>, _> = rows.into_iter().map(|row| record_of(Some(row))).collect();
    Ok(records?.into_iter().flatten().collect())
}

pub(super) async fn of_message(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    message_id: &str,
) -> Result<Option<Record>, StoreError> {
    let row = sqlx::query(
        "SELECT reply, body FROM chats
         LEFT JOIN messages ON messages.chat_id = chats.id AND messages.id = ?3
                            AND cut_in IS NULL AND reply IS NOT NULL
         WHERE chats.id = ?1 AND user = ?2",
    )
    .bind(chat.id)
    .bind(chat.user)
    .bind(message_id)
    .fetch_optional(connection)
    .await?;
    record_of(row)
}

/// The record in a row of a chat: no row is no chat, an empty one no reply.
fn record_of(row: Option<SqliteRow>) -> Result<Option<Record>, StoreError> {
    let row = row.ok_or(StoreError::NotFound(Thing::Chat))?;
    let Some(rest) = row.try_get(0)? else {
        return Ok(None);
    };
    let rest: Rest<'_> = decode(rest, "the record of a reply")?;
    Ok(Some(Record {
        message: decode(row.try_get(1)?, "the message of a reply")?,
        calls: rest.calls.into_owned(),
        asking: rest.asking,
        steps: rest.steps,
        retried: rest.retried,
        ended: rest.ended,
    }))
}

/// Adds a statement that writes over a reply which is stored already; where there is none, nor the chat, it changes
/// nothing.
fn update(journey: Journey, chat: ChatRef<'_>, record: &Record, encoded: Encoded) -> Journey {
    journey
        .then(
            "UPDATE messages SET state = ?, open = ?, reply = ?, body = ?
             WHERE chat_id = ? AND id = ? AND cut_in IS NULL AND reply IS NOT NULL
               AND EXISTS (SELECT 1 FROM chats WHERE id = ? AND user = ?)",
        )
        .bind(state_of(record).word())
        .bind(is_open(record))
        .bind(encoded.reply)
        .bind(encoded.body)
        .bind(chat.id)
        .bind(&record.message.id)
        .bind(chat.id)
        .bind(chat.user)
}

/// Puts a new reply at the end of the chat.
async fn insert(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    record: &Record,
    encoded: Encoded,
) -> Result<(), StoreError> {
    let done = NewReply::new(record, encoded)
        .insert(Journey::new(), chat)
        .run(connection)
        .await
        .map_err(constraint)?;
    if done.first().is_some_and(|inserted| inserted.changed == 1) {
        return Ok(());
    }
    let id = record.message.id.clone();
    let shown =
        sqlx::query("SELECT 1 FROM messages WHERE chat_id = ?1 AND id = ?2 AND cut_in IS NULL")
            .bind(chat.id)
            .bind(&id)
            .fetch_optional(connection)
            .await?;
    Err(match shown {
        Some(_) => Conflict::MessageExists { id },
        None => Conflict::ReplyCut { id },
    }
    .into())
}

/// Stores new approvals, and decides open ones. What was decided stays as it is: anything else is a conflict.
async fn store_approvals(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
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
    let stored: HashMap<String, (String, Option<String>)> = sqlx::query(
        "SELECT id, state, reason FROM approvals WHERE chat_id = ?1 AND message_id = ?2",
    )
    .bind(chat.id)
    .bind(&record.message.id)
    .fetch_all(&mut *connection)
    .await?
    .iter()
    .map(|row| Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?))))
    .collect::<Result<_, sqlx::Error>>()?;
    for (call, approval) in asked() {
        let word = approval_word(&approval.state);
        match stored.get(&approval.id) {
            None => ask(connection, chat, record, call, approval).await?,
            Some((state, reason)) if state == word && reason.as_deref() == approval.reason() => {}
            Some((state, _)) => {
                let decided = sqlx::query(
                    "UPDATE approvals SET state = ?3, reason = ?4
                     WHERE chat_id = ?1 AND id = ?2 AND state = 'requested'",
                )
                .bind(chat.id)
                .bind(&approval.id)
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
    chat: ChatRef<'_>,
    record: &Record,
    call: &Call,
    approval: &Approval,
) -> Result<(), StoreError> {
    let inserted = sqlx::query(
        "INSERT INTO approvals (chat_id, id, message_id, call_id, tool, input, input_hash,
                                asked_at, expires_at, state, reason)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT DO NOTHING",
    )
    .bind(chat.id)
    .bind(&approval.id)
    .bind(&record.message.id)
    .bind(&call.id)
    .bind(&call.name)
    .bind(encode(&call.input)?)
    .bind(&approval.input_hash)
    .bind(to_sql(approval.asked_at))
    .bind(to_sql(approval.expires_at))
    .bind(approval_word(&approval.state))
    .bind(approval.reason())
    .execute(connection)
    .await?;
    if inserted.rows_affected() == 0 {
        return Err(contradiction(approval, "part of another reply").into());
    }
    Ok(())
}

/// Journals the runs of server tools. Remote ones are the remote server's, and may be told to run again.
async fn journal_runs(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    record: &Record,
    now: Time,
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
    let stored: HashMap<String, Option<String>> = sqlx::query(
        "SELECT call_id, outcome FROM tool_runs WHERE chat_id = ?1 AND message_id = ?2",
    )
    .bind(chat.id)
    .bind(&record.message.id)
    .fetch_all(&mut *connection)
    .await?
    .iter()
    .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
    .collect::<Result<_, sqlx::Error>>()?;
    for call in mine() {
        let changed = match (call.settled(), stored.get(&call.id)) {
            // Settled without ever having run, or being run again because it may be.
            (Some(_), None) | (None, Some(None)) => continue,
            (Some(how), Some(Some(outcome))) if outcome_word(how) == outcome => continue,
            (None, None) => sqlx::query(
                "INSERT INTO tool_runs (chat_id, call_id, message_id, tool, started_at)
                     VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT DO NOTHING",
            )
            .bind(chat.id)
            .bind(&call.id)
            .bind(&record.message.id)
            .bind(&call.name)
            .bind(to_sql(now))
            .execute(&mut *connection)
            .await?
            .rows_affected(),
            (Some(how), Some(None)) => sqlx::query(
                "UPDATE tool_runs SET finished_at = ?3, outcome = ?4
                     WHERE chat_id = ?1 AND call_id = ?2 AND finished_at IS NULL",
            )
            .bind(chat.id)
            .bind(&call.id)
            .bind(to_sql(now))
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

fn state_of(record: &Record) -> MessageState {
    if record.ended.is_some() {
        MessageState::Done
    } else if record.asking || record.calls.iter().any(is_running) {
        MessageState::Running
    } else if record.calls.iter().any(Call::waits_for_client) {
        MessageState::Waiting
    } else {
        MessageState::Running
    }
}

fn is_open(record: &Record) -> bool {
    record.ended.is_none() || record.calls.iter().any(is_running)
}

fn is_running(call: &Call) -> bool {
    call.state == CallState::Running
}

fn contradiction(approval: &Approval, stored: &str) -> Conflict {
    Conflict::Approval {
        id: approval.id.clone(),
        stored: stored.to_owned(),
    }
}

/// What the database itself refuses: a second open reply in a chat, and messages without a chat.
pub(super) fn constraint(error: sqlx::Error) -> StoreError {
    match error.as_database_error() {
        Some(violated) if violated.is_unique_violation() => Conflict::ReplyOpen.into(),
        Some(violated) if violated.is_foreign_key_violation() => StoreError::NotFound(Thing::Chat),
        _ => error.into(),
    }
}

fn approval_word(state: &ApprovalState) -> &'static str {
    match state {
        ApprovalState::Requested => "requested",
        ApprovalState::Approved { .. } => "approved",
        ApprovalState::Denied { .. } => "denied",
        ApprovalState::Expired => "expired",
        ApprovalState::Superseded => "superseded",
    }
}

fn outcome_word(how: Settled) -> &'static str {
    match how {
        Settled::Output => "output",
        Settled::Error => "error",
        Settled::Denied => "denied",
        Settled::Expired => "expired",
        Settled::Superseded => "superseded",
        Settled::Unknown => "unknown",
    }
}
