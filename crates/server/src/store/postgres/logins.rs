//! Logins with the page, in PostgreSQL, by statements that can be repeated.

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::time::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::text::{loaded, stored};
use crate::store::encoded::{from_sql, to_sql};
use crate::store::{LoginRow, MAX_LOGINS, StoreError};

pub(super) async fn add(
    store: &PostgresStore,
    login: &LoginRow,
    unused_since: Timestamp,
) -> Result<(), StoreError> {
    // Locked rows are skipped: another replica removes them, and two never wait for each other.
    let done = store.write(|| {
        sqlx::query(
            "WITH over AS (
                 SELECT id FROM adk_bridge.logins
                 WHERE (ends_at <= $4 OR seen_at <= $7 OR user_id = $2 AND id IN
                     (SELECT id FROM adk_bridge.logins WHERE user_id = $2 AND id <> $1
                      ORDER BY created_at DESC, id OFFSET $8)) AND id <> $1
                 FOR UPDATE SKIP LOCKED
             ), gone AS (
                 DELETE FROM adk_bridge.logins WHERE id IN (SELECT id FROM over)
             )
             INSERT INTO adk_bridge.logins (id, user_id, body, created_at, seen_at, ends_at)
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING",
        )
        .bind(&login.id)
        .bind(stored(login.user.as_str()))
        .bind(stored(&login.body))
        .bind(to_sql(login.created.as_millis()))
        .bind(to_sql(login.seen.as_millis()))
        .bind(to_sql(login.ends.as_millis()))
        .bind(to_sql(unused_since.as_millis()))
        .bind(i64::from(MAX_LOGINS) - 1)
    });
    done.await.map(|_| ())
}

pub(super) async fn find(store: &PostgresStore, id: &str) -> Result<Option<LoginRow>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT id, user_id, body, created_at, seen_at, ends_at FROM adk_bridge.logins WHERE id = $1",
        )
        .bind(id)
    });
    rows.await?.first().map(read).transpose()
}

pub(super) async fn of_user(
    store: &PostgresStore,
    user: &UserId,
) -> Result<Vec<LoginRow>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT id, user_id, body, created_at, seen_at, ends_at FROM adk_bridge.logins WHERE user_id = $1
             ORDER BY created_at DESC, id",
        )
        .bind(stored(user.as_str()))
    });
    rows.await?.iter().map(read).collect()
}

pub(super) async fn see(store: &PostgresStore, id: &str, at: Timestamp) -> Result<(), StoreError> {
    let done = store.write(|| {
        sqlx::query("UPDATE adk_bridge.logins SET seen_at = greatest(seen_at, $2) WHERE id = $1")
            .bind(id)
            .bind(to_sql(at.as_millis()))
    });
    done.await.map(|_| ())
}

pub(super) async fn end(store: &PostgresStore, id: &str) -> Result<(), StoreError> {
    let done = store.write(|| sqlx::query("DELETE FROM adk_bridge.logins WHERE id = $1").bind(id));
    done.await.map(|_| ())
}

pub(super) async fn end_all_of(store: &PostgresStore, user: &UserId) -> Result<u64, StoreError> {
    let rows = store.write(|| {
        sqlx::query("DELETE FROM adk_bridge.logins WHERE user_id = $1 RETURNING id")
            .bind(stored(user.as_str()))
    });
    Ok(rows.await?.len() as u64)
}

fn read(row: &PgRow) -> Result<LoginRow, StoreError> {
    let time = |column: &str| -> Result<Timestamp, StoreError> {
        Ok(Timestamp::from_millis(from_sql(row.try_get(column)?)))
    };
    Ok(LoginRow {
        id: row.try_get("id")?,
        user: loaded(row.try_get("user_id")?).into(),
        body: loaded(row.try_get("body")?),
        created: time("created_at")?,
        seen: time("seen_at")?,
        ends: time("ends_at")?,
    })
}
