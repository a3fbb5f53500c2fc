//! Chats: made, found, listed, renamed, deleted.

use adk_bridge_protocol::approval::Time;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use super::{from_sql, to_sql};
use crate::store::{Before, Chat, ChatRef, ListedChat, MAX_LISTED, StoreError, Thing};

pub(super) async fn create(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    now: Time,
) -> Result<Chat, StoreError> {
    sqlx::query(
        "INSERT INTO chats (id, user, created_at, updated_at) VALUES (?1, ?2, ?3, ?3)
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(chat.id)
    .bind(chat.user)
    .bind(to_sql(now))
    .execute(&mut *connection)
    .await?;
    find(connection, chat)
        .await?
        .ok_or(StoreError::NotFound(Thing::Chat))
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

/// Marks a chat as changed, or refuses it like [`check`].
pub(super) async fn touch(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    now: Time,
) -> Result<(), StoreError> {
    // A clock that was set back does not send a chat down the list.
    let touched = sqlx::query(
        "UPDATE chats SET updated_at = max(updated_at, ?3) WHERE id = ?1 AND user = ?2",
    )
    .bind(chat.id)
    .bind(chat.user)
    .bind(to_sql(now))
    .execute(connection)
    .await?;
    found(touched.rows_affected())
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
                 WHERE approvals.chat_id = chats.id AND approvals.state = 'requested') AS waiting
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
