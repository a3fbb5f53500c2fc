//! The events of remote agents in SQLite.

use adk_bridge_protocol::id::MessageId;
use sqlx::{Row as _, SqliteConnection};

use super::chats;
use crate::store::encoded::{fits, to_sql};
use crate::store::{ChatRef, StoreError, StoredEvent};

pub(super) async fn append(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    generation: u64,
    message_id: &MessageId,
    events: Vec<String>,
) -> Result<(), StoreError> {
    let key = chats::key_of(connection, chat).await?;
    for body in events {
        fits(body.len())?;
        sqlx::query(
            "INSERT INTO events (chat, generation, message_id, body) VALUES (?1, ?2, ?3, ?4)",
        )
        .bind(&key)
        .bind(to_sql(generation))
        .bind(message_id.as_str())
        .bind(body)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

pub(super) async fn list(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    generation: u64,
) -> Result<Vec<StoredEvent>, StoreError> {
    let key = chats::key_of(connection, chat).await?;
    sqlx::query(
        "SELECT message_id, body FROM events WHERE chat = ?1 AND generation = ?2 ORDER BY seq",
    )
    .bind(&key)
    .bind(to_sql(generation))
    .fetch_all(connection)
    .await?
    .iter()
    .map(|row| {
        Ok(StoredEvent {
            message_id: row.try_get::<String, _>(0)?.into(),
            body: row.try_get(1)?,
        })
    })
    .collect()
}
