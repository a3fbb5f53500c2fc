//! The state that tools keep for a chat, in SQLite.

use serde_json::Value;
use sqlx::SqliteConnection;

use super::chats;
use crate::store::encoded::{decode, encode};
use crate::store::{Change, ChatRef, StoreError};

pub(super) async fn get(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    key: &str,
) -> Result<Option<Value>, StoreError> {
    let owner = chats::key_of(connection, chat).await?;
    stored(connection, &owner, key).await
}

pub(super) async fn update(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    key: &str,
    change: Change<'_>,
) -> Result<Value, StoreError> {
    let owner = chats::key_of(connection, chat).await?;
    let before = stored(connection, &owner, key).await?;
    let (after, result) = change(before);
    match after {
        Some(value) => {
            sqlx::query(
                "INSERT INTO chat_state (chat, key, value) VALUES (?1, ?2, ?3)
                 ON CONFLICT (chat, key) DO UPDATE SET value = excluded.value",
            )
            .bind(&owner)
            .bind(key)
            .bind(encode(&value)?)
            .execute(connection)
            .await?
        }
        None => {
            sqlx::query("DELETE FROM chat_state WHERE chat = ?1 AND key = ?2")
                .bind(&owner)
                .bind(key)
                .execute(connection)
                .await?
        }
    };
    Ok(result)
}

async fn stored(
    connection: &mut SqliteConnection,
    owner: &str,
    key: &str,
) -> Result<Option<Value>, StoreError> {
    let json: Option<String> =
        sqlx::query_scalar("SELECT value FROM chat_state WHERE chat = ?1 AND key = ?2")
            .bind(owner)
            .bind(key)
            .fetch_optional(connection)
            .await?;
    json.map(|json| decode(&json, "the state of a chat"))
        .transpose()
}
