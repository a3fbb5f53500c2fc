//! Chats: made, found, listed, renamed, deleted.

use adk_bridge_protocol::approval::Time;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use super::journey::{Done, Journey};
use super::messages::decode;
use super::{from_sql, to_sql};
use crate::store::{Before, Chat, ChatRef, ListedChat, MAX_LISTED, StoreError, Thing};

pub(super) async fn create(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    now: Time,
) -> Result<Chat, StoreError> {
    let done = Journey::new()
        .then(
            "INSERT INTO chats (id, user, created_at, updated_at) VALUES (?, ?, ?, ?)
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(chat.id)
        .bind(chat.user)
        .bind(to_sql(now))
        .bind(to_sql(now))
        .then(
            "SELECT id, title, created_at, updated_at, generation FROM chats
             WHERE id = ? AND user = ?",
        )
        .bind(chat.id)
        .bind(chat.user)
        .run(connection)
        .await?;
    found_in(done.get(1))
}

/// Adds a statement that makes the chat if it is not there, marks it as changed, and gives it a title if it has none.
/// [`found_in`] reads what it comes to.
pub(super) fn make_or_touch(
    journey: Journey,
    chat: ChatRef<'_>,
    title: Option<&str>,
    now: Time,
) -> Journey {
    journey
        .then(
            "INSERT INTO chats (id, user, title, created_at, updated_at) VALUES (?, ?, ?, ?, ?)
             ON CONFLICT (id) DO UPDATE
             SET updated_at = max(updated_at, excluded.updated_at),
                 title = coalesce(title, excluded.title)
             WHERE user = excluded.user
             RETURNING id, title, created_at, updated_at, generation",
        )
        .bind(chat.id)
        .bind(chat.user)
        .bind(title)
        .bind(to_sql(now))
        .bind(to_sql(now))
}

/// As [`make_or_touch`], and makes none.
pub(super) fn touch(
    journey: Journey,
    chat: ChatRef<'_>,
    title: Option<&str>,
    now: Time,
) -> Journey {
    // A clock that was set back does not send a chat down the list.
    journey
        .then(
            "UPDATE chats SET updated_at = max(updated_at, ?), title = coalesce(title, ?)
             WHERE id = ? AND user = ?
             RETURNING id, title, created_at, updated_at, generation",
        )
        .bind(to_sql(now))
        .bind(title)
        .bind(chat.id)
        .bind(chat.user)
}

/// The chat that a statement was about; one that the user does not have is refused.
pub(super) fn found_in(done: Option<&Done>) -> Result<Chat, StoreError> {
    match done.and_then(|done| done.rows.first()) {
        Some(row) => read(row),
        None => Err(StoreError::NotFound(Thing::Chat)),
    }
}

pub(super) async fn find(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<Option<Chat>, StoreError> {
    sqlx::query(
        "SELECT id, title, created_at, updated_at, generation FROM chats WHERE id = ?1 AND user = ?2",
    )
    .bind(chat.id)
    .bind(chat.user)
    .fetch_optional(connection)
    .await?
    .map(|row| read(&row))
    .transpose()
}

/// Refuses a chat that the user does not have.
pub(super) async fn check(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<(), StoreError> {
    sqlx::query("SELECT 1 FROM chats WHERE id = ?1 AND user = ?2")
        .bind(chat.id)
        .bind(chat.user)
        .fetch_optional(connection)
        .await?
        .map(|_| ())
        .ok_or(StoreError::NotFound(Thing::Chat))
}

pub(super) async fn list(
    connection: &mut SqliteConnection,
    user: &str,
    limit: u32,
    before: Option<Before<'_>>,
) -> Result<Vec<ListedChat>, StoreError> {
    let before = before.unwrap_or(Before {
        updated: u64::MAX,
        id: "",
    });
    sqlx::query(
        "SELECT id, title, created_at, updated_at, generation,
                (SELECT count(*) FROM approvals
                 WHERE approvals.chat_id = chats.id AND approvals.state = 'requested') AS waiting,
                (SELECT json_group_array(call.value ->> '$.name')
                 FROM messages, json_each(messages.reply, '$.calls') AS call
                 WHERE messages.chat_id = chats.id AND messages.open = 1 AND messages.state = 'waiting'
                   AND call.value ->> '$.state.is' = 'awaitingClient') AS owed
         FROM chats
         WHERE user = ?1 AND (updated_at, id) < (?2, ?3)
         ORDER BY updated_at DESC, id DESC
         LIMIT ?4",
    )
    .bind(user)
    .bind(to_sql(before.updated))
    .bind(before.id)
    .bind(limit.min(MAX_LISTED))
    .fetch_all(connection)
    .await?
    .iter()
    .map(|row| {
        Ok(ListedChat {
            chat: read(row)?,
            waiting: from_sql(row.try_get("waiting")?),
            owed: decode(row.try_get("owed")?, "the tools of a chat")?,
        })
    })
    .collect()
}

pub(super) async fn set_title(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    title: &str,
) -> Result<(), StoreError> {
    let renamed = sqlx::query("UPDATE chats SET title = ?3 WHERE id = ?1 AND user = ?2")
        .bind(chat.id)
        .bind(chat.user)
        .bind(title)
        .execute(connection)
        .await?;
    found(renamed.rows_affected())
}

pub(super) async fn delete(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<Vec<String>, StoreError> {
    check(connection, chat).await?;
    let files = sqlx::query_scalar("SELECT id FROM files WHERE chat_id = ?1")
        .bind(chat.id)
        .fetch_all(&mut *connection)
        .await?;
    // Everything that refers to the chat goes with it.
    sqlx::query("DELETE FROM chats WHERE id = ?1")
        .bind(chat.id)
        .execute(connection)
        .await?;
    Ok(files)
}

fn found(rows: u64) -> Result<(), StoreError> {
    if rows == 0 {
        return Err(StoreError::NotFound(Thing::Chat));
    }
    Ok(())
}

fn read(row: &SqliteRow) -> Result<Chat, StoreError> {
    Ok(Chat {
        id: row.try_get("id")?,
        title: row.try_get("title")?,
        created: from_sql(row.try_get("created_at")?),
        updated: from_sql(row.try_get("updated_at")?),
        generation: from_sql(row.try_get("generation")?),
    })
}
