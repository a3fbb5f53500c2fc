//! What SQLite holds for the whole store: its identity, its secrets, and how much each user has stored.

use adk_bridge_protocol::id::UserId;
use sqlx::{Row as _, SqliteConnection};

use crate::store::StoreError;
use crate::store::encoded::from_sql;

/// The id of the database, and whether it has no chats.
pub(super) async fn identity(
    connection: &mut SqliteConnection,
) -> Result<(String, bool), StoreError> {
    let row = sqlx::query("SELECT id, NOT EXISTS (SELECT 1 FROM chats) FROM store")
        .fetch_one(connection)
        .await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

pub(super) async fn secret(
    connection: &mut SqliteConnection,
    name: &str,
    fresh: &[u8],
) -> Result<Vec<u8>, StoreError> {
    sqlx::query("INSERT INTO secrets (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING")
        .bind(name)
        .bind(fresh)
        .execute(&mut *connection)
        .await?;
    Ok(
        sqlx::query_scalar("SELECT value FROM secrets WHERE name = ?1")
            .bind(name)
            .fetch_one(connection)
            .await?,
    )
}

pub(super) async fn stored_bytes(
    connection: &mut SqliteConnection,
) -> Result<Vec<(UserId, u64)>, StoreError> {
    // Hidden chats are nobody's.
    sqlx::query(
        "SELECT user, sum(bytes) FROM
             (SELECT user, bytes FROM chats
              UNION ALL
              SELECT user, files.bytes FROM files JOIN chats ON key = files.chat)
         WHERE user <> '' GROUP BY user",
    )
    .fetch_all(connection)
    .await?
    .iter()
    .map(|row| {
        Ok((
            row.try_get::<String, _>(0)?.into(),
            from_sql(row.try_get(1)?),
        ))
    })
    .collect()
}

pub(super) async fn stored_bytes_of(
    connection: &mut SqliteConnection,
    user: &UserId,
) -> Result<u64, StoreError> {
    let bytes = sqlx::query_scalar(
        "SELECT coalesce((SELECT sum(bytes) FROM chats WHERE user = ?1), 0)
             + coalesce((SELECT sum(files.bytes) FROM files JOIN chats ON key = files.chat WHERE user = ?1), 0)",
    )
    .bind(user.as_str())
    .fetch_one(connection)
    .await?;
    Ok(from_sql(bytes))
}
