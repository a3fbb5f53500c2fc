//! Logins with the page, in SQLite.

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::time::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use crate::store::encoded::{from_sql, to_sql};
use crate::store::{LoginRow, MAX_LOGINS, StoreError};

pub(super) async fn add(
    connection: &mut SqliteConnection,
    login: &LoginRow,
    unused_since: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM logins WHERE ends_at <= ?1 OR seen_at <= ?2")
        .bind(to_sql(login.created.as_millis()))
        .bind(to_sql(unused_since.as_millis()))
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "DELETE FROM logins WHERE user = ?1 AND id NOT IN
             (SELECT id FROM logins WHERE user = ?1 ORDER BY created_at DESC, id LIMIT ?2)",
    )
    .bind(login.user.as_str())
    .bind(i64::from(MAX_LOGINS) - 1)
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "INSERT INTO logins (id, user, body, created_at, seen_at, ends_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )
    .bind(&login.id)
    .bind(login.user.as_str())
    .bind(&login.body)
    .bind(to_sql(login.created.as_millis()))
    .bind(to_sql(login.seen.as_millis()))
    .bind(to_sql(login.ends.as_millis()))
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn find(
    connection: &mut SqliteConnection,
    id: &str,
) -> Result<Option<LoginRow>, StoreError> {
    let found = sqlx::query(
        "SELECT id, user, body, created_at, seen_at, ends_at FROM logins WHERE id = ?1",
    )
    .bind(id)
    .fetch_optional(connection)
    .await?;
    found.as_ref().map(read).transpose()
}

pub(super) async fn of_user(
    connection: &mut SqliteConnection,
    user: &UserId,
) -> Result<Vec<LoginRow>, StoreError> {
    let found = sqlx::query(
        "SELECT id, user, body, created_at, seen_at, ends_at FROM logins WHERE user = ?1
         ORDER BY created_at DESC, id",
    )
    .bind(user.as_str())
    .fetch_all(connection)
    .await?;
    found.iter().map(read).collect()
}

pub(super) async fn see(
    connection: &mut SqliteConnection,
    id: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE logins SET seen_at = max(seen_at, ?2) WHERE id = ?1")
        .bind(id)
        .bind(to_sql(at.as_millis()))
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn end(connection: &mut SqliteConnection, id: &str) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM logins WHERE id = ?1")
        .bind(id)
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn end_all_of(
    connection: &mut SqliteConnection,
    user: &UserId,
) -> Result<u64, StoreError> {
    let ended = sqlx::query("DELETE FROM logins WHERE user = ?1")
        .bind(user.as_str())
        .execute(connection)
        .await?;
    Ok(ended.rows_affected())
}

fn read(row: &SqliteRow) -> Result<LoginRow, StoreError> {
    let time = |column: &str| -> Result<Timestamp, StoreError> {
        Ok(Timestamp::from_millis(from_sql(row.try_get(column)?)))
    };
    Ok(LoginRow {
        id: row.try_get("id")?,
        user: row.try_get::<String, _>("user")?.into(),
        body: row.try_get("body")?,
        created: time("created_at")?,
        seen: time("seen_at")?,
        ends: time("ends_at")?,
    })
}
