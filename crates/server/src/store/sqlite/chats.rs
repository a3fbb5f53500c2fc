//! Chats: made, found, listed, renamed, deleted.

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection};

use super::statement_batch::{Row, StatementBatch, StatementResult};
use crate::store::encoded::{decode, from_sql, to_sql};
use crate::store::{
    Chat, ChatCursor, ChatRef, Entity, ListedChat, MAX_LISTED, MAX_TITLES, OldChat, StoreError,
};

/// How many rows of a hidden chat are deleted at once. Each may be a page of the log, which has to fit into the room that
/// is kept for this.
const DELETED_TOGETHER: i64 = 32;

/// A chat that the user has.
pub(super) struct FoundChat {
    /// The key by which all rows of the chat refer to it.
    pub(super) key: String,
    pub(super) chat: Chat,
}

pub(super) async fn create(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    now: Timestamp,
) -> Result<Chat, StoreError> {
    let done = StatementBatch::new()
        .then(
            "INSERT INTO chats (key, user, id, created_at, updated_at)
             VALUES (lower(hex(randomblob(8))), ?, ?, ?, ?)
             ON CONFLICT (user, id) DO NOTHING",
        )
        .bind(chat.user.as_str())
        .bind(chat.id.as_str())
        .bind(to_sql(now.as_millis()))
        .bind(to_sql(now.as_millis()))
        .then(
            "SELECT id, title, created_at, updated_at, generation, agent, key FROM chats
             WHERE user = ? AND id = ?",
        )
        .bind(chat.user.as_str())
        .bind(chat.id.as_str())
        .run(connection)
        .await?;
    Ok(found_in(done.get(1))?.chat)
}

/// What changes in a chat when messages are added to it.
#[derive(Clone, Copy)]
pub(super) struct Addition<'a> {
    /// Its title, if it has none.
    pub(super) title: Option<&'a str>,
    /// Its agent, if it has none.
    pub(super) agent: Option<&'a str>,
    /// How many bytes are added.
    pub(super) bytes: usize,
    pub(super) now: Timestamp,
}

/// Adds a statement that creates the chat if it does not exist, and marks it as changed. [`found_in`] reads its result.
pub(super) fn make_or_touch(
    batch: StatementBatch,
    chat: ChatRef<'_>,
    addition: Addition<'_>,
) -> StatementBatch {
    batch
        .then(
            "INSERT INTO chats (key, user, id, title, agent, created_at, updated_at, bytes)
             VALUES (lower(hex(randomblob(8))), ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (user, id) DO UPDATE
             SET updated_at = max(updated_at, excluded.updated_at),
                 title = coalesce(title, excluded.title),
                 agent = coalesce(agent, excluded.agent),
                 bytes = bytes + excluded.bytes
             RETURNING id, title, created_at, updated_at, generation, agent, key",
        )
        .bind(chat.user.as_str())
        .bind(chat.id.as_str())
        .bind(addition.title)
        .bind(addition.agent)
        .bind(to_sql(addition.now.as_millis()))
        .bind(to_sql(addition.now.as_millis()))
        .bind(to_sql(addition.bytes as u64))
}

/// Like [`make_or_touch`], but creates no chat.
pub(super) fn touch(
    batch: StatementBatch,
    chat: ChatRef<'_>,
    addition: Addition<'_>,
) -> StatementBatch {
    // A clock that was set back does not move a chat down the list.
    batch
        .then(
            "UPDATE chats SET updated_at = max(updated_at, ?), title = coalesce(title, ?), bytes = bytes + ?
             WHERE user = ? AND id = ?
             RETURNING id, title, created_at, updated_at, generation, agent, key",
        )
        .bind(to_sql(addition.now.as_millis()))
        .bind(addition.title)
        .bind(to_sql(addition.bytes as u64))
        .bind(chat.user.as_str())
        .bind(chat.id.as_str())
}

/// The chat in a statement's result; an error if the user does not have it.
pub(super) fn found_in(done: Option<&StatementResult>) -> Result<FoundChat, StoreError> {
    match done.and_then(|done| done.rows.first()) {
        Some(row) => Ok(FoundChat {
            chat: read(row),
            key: row.text(6).unwrap_or_default().to_owned(),
        }),
        None => Err(StoreError::NotFound(Entity::Chat)),
    }
}

pub(super) async fn find(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<Option<Chat>, StoreError> {
    sqlx::query(
        "SELECT id, title, created_at, updated_at, generation, agent FROM chats WHERE user = ?1 AND id = ?2",
    )
    .bind(chat.user.as_str())
    .bind(chat.id.as_str())
    .fetch_optional(connection)
    .await?
    .map(|row| Ok(read(&Row::read(&row)?)))
    .transpose()
}

/// The key by which all rows of a chat refer to it; an error if the user does not have the chat.
pub(super) async fn key_of(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<String, StoreError> {
    sqlx::query_scalar("SELECT key FROM chats WHERE user = ?1 AND id = ?2")
        .bind(chat.user.as_str())
        .bind(chat.id.as_str())
        .fetch_optional(connection)
        .await?
        .ok_or(StoreError::NotFound(Entity::Chat))
}

/// The columns of a chat in a list.
const LISTED: &str = "SELECT id, title, created_at, updated_at, generation, agent,
        (SELECT count(*) FROM approvals
         WHERE approvals.chat = chats.key AND approvals.state = 'requested') AS waiting,
        (SELECT json_group_array(call.value ->> '$.name')
         FROM messages, json_each(messages.reply, '$.calls') AS call
         WHERE messages.chat = chats.key AND messages.open = 1 AND messages.state = 'waiting'
           AND call.value ->> '$.state.is' = 'awaitingClient') AS owed
     FROM chats";

/// What comes after a chat in a list; the parameters are the user, the place of that chat, and how many.
const AFTER: &str = "WHERE user = ?1 AND (updated_at, id) < (?2, ?3)
     ORDER BY updated_at DESC, id DESC
     LIMIT ?4";

pub(super) async fn list(
    connection: &mut SqliteConnection,
    user: &UserId,
    limit: u32,
    before: Option<ChatCursor<'_>>,
) -> Result<Vec<ListedChat>, StoreError> {
    let before = before.unwrap_or(ChatCursor::START);
    sqlx::query(AssertSqlSafe(format!("{LISTED} {AFTER}")))
        .bind(user.as_str())
        .bind(to_sql(before.updated.as_millis()))
        .bind(before.id.as_str())
        .bind(limit.min(MAX_LISTED))
        .fetch_all(connection)
        .await?
        .iter()
        .map(read_listed)
        .collect()
}

pub(super) async fn listed(
    connection: &mut SqliteConnection,
    user: &UserId,
    ids: &[ChatId],
) -> Result<Vec<ListedChat>, StoreError> {
    sqlx::query(AssertSqlSafe(format!(
        "{LISTED} WHERE user = ?1 AND id IN (SELECT value FROM json_each(?2))
         ORDER BY updated_at DESC, id DESC"
    )))
    .bind(user.as_str())
    .bind(serde_json::json!(ids).to_string())
    .fetch_all(connection)
    .await?
    .iter()
    .map(read_listed)
    .collect()
}

pub(super) async fn titles(
    connection: &mut SqliteConnection,
    user: &UserId,
    limit: u32,
    before: Option<ChatCursor<'_>>,
) -> Result<Vec<Chat>, StoreError> {
    let before = before.unwrap_or(ChatCursor::START);
    sqlx::query(AssertSqlSafe(format!(
        "SELECT id, title, created_at, updated_at, generation, agent FROM chats {AFTER}"
    )))
    .bind(user.as_str())
    .bind(to_sql(before.updated.as_millis()))
    .bind(before.id.as_str())
    .bind(limit.min(MAX_TITLES))
    .fetch_all(connection)
    .await?
    .iter()
    .map(|row| Ok(read(&Row::read(row)?)))
    .collect()
}

fn read_listed(row: &SqliteRow) -> Result<ListedChat, StoreError> {
    Ok(ListedChat {
        chat: read(&Row::read(row)?),
        waiting: from_sql(row.try_get("waiting")?),
        owed: decode(row.try_get("owed")?, "the tools of a chat")?,
    })
}

pub(super) async fn old(
    connection: &mut SqliteConnection,
    before: Timestamp,
    after: u64,
    limit: u32,
) -> Result<Vec<OldChat>, StoreError> {
    sqlx::query(
        "SELECT rowid, user, id FROM chats
         WHERE rowid > ?1 AND updated_at < ?2 AND user <> ''
           AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.chat = chats.key AND open = 1)
         ORDER BY rowid LIMIT ?3",
    )
    .bind(to_sql(after))
    .bind(to_sql(before.as_millis()))
    .bind(limit)
    .fetch_all(connection)
    .await?
    .iter()
    .map(|row| {
        Ok(OldChat {
            row: from_sql(row.try_get(0)?),
            user: row.try_get::<String, _>(1)?.into(),
            chat_id: row.try_get::<String, _>(2)?.into(),
        })
    })
    .collect()
}

pub(super) async fn set_title(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    title: &str,
) -> Result<(), StoreError> {
    let renamed = sqlx::query("UPDATE chats SET title = ?3 WHERE user = ?1 AND id = ?2")
        .bind(chat.user.as_str())
        .bind(chat.id.as_str())
        .bind(title)
        .execute(connection)
        .await?;
    found(renamed.rows_affected())
}

pub(super) async fn delete(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<Vec<String>, StoreError> {
    let key = key_of(connection, chat).await?;
    let files = mark_files(connection, &key).await?;
    // Everything that refers to the chat goes with it.
    sqlx::query("DELETE FROM chats WHERE key = ?1")
        .bind(&key)
        .execute(connection)
        .await?;
    Ok(files)
}

/// Hides a chat from its user without deleting its rows, which needs almost no room. No user has an empty name.
pub(super) async fn hide(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<Vec<String>, StoreError> {
    let key = key_of(connection, chat).await?;
    let files = mark_files(connection, &key).await?;
    sqlx::query("UPDATE chats SET user = '', id = key WHERE key = ?1")
        .bind(&key)
        .execute(connection)
        .await?;
    Ok(files)
}

/// Deletes some rows of hidden chats. Returns whether there may be more.
pub(super) async fn delete_hidden(connection: &mut SqliteConnection) -> Result<bool, StoreError> {
    for sql in [
        "DELETE FROM messages WHERE seq IN (SELECT seq FROM chats JOIN messages ON chat = key
                                            WHERE user = '' LIMIT ?1)",
        "DELETE FROM events WHERE seq IN (SELECT seq FROM chats JOIN events ON chat = key
                                          WHERE user = '' LIMIT ?1)",
        // The other rows of a chat are few, and are deleted with it.
        "DELETE FROM chats WHERE key IN (SELECT key FROM chats WHERE user = '' LIMIT ?1)",
    ] {
        let deleted = sqlx::query(sql)
            .bind(DELETED_TOGETHER)
            .execute(&mut *connection)
            .await?;
        if deleted.rows_affected() > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Remembers the files of a chat as deleted, and returns them.
async fn mark_files(
    connection: &mut SqliteConnection,
    key: &str,
) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar(
        "INSERT INTO deleted_files (id) SELECT id FROM files WHERE chat = ?1 RETURNING id",
    )
    .bind(key)
    .fetch_all(connection)
    .await?)
}

fn found(rows: u64) -> Result<(), StoreError> {
    if rows == 0 {
        return Err(StoreError::NotFound(Entity::Chat));
    }
    Ok(())
}

/// The chat in a row that begins with its columns.
fn read(row: &Row) -> Chat {
    let text = |column| row.text(column).map(str::to_owned);
    let number = |column| from_sql(row.integer(column));
    Chat {
        id: text(0).unwrap_or_default().into(),
        title: text(1),
        created: Timestamp::from_millis(number(2)),
        updated: Timestamp::from_millis(number(3)),
        generation: number(4),
        agent: text(5),
    }
}
