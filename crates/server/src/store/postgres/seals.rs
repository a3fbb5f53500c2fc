//! The audit as a whole in PostgreSQL: all rows, and the seals over them.

use std::path::PathBuf;
use std::time::Duration;

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::connection::Statement;
use super::records::{self, audit_row};
use super::text::{loaded, stored};
use crate::audit::AuditState;
use crate::audit::chain::{ChainedRow, Link};
use crate::audit::seal::Seal;
use crate::store::encoded::{from_sql, to_sql};
use crate::store::{MAX_AUDIT_ROWS, StoreError};

/// How long the end of the audit may take to find: longer than writers are waited for.
const END: Duration = Duration::from_secs(5);

/// Refuses a database of a version without seals.
pub(super) async fn check_known(store: &PostgresStore) -> Result<(), StoreError> {
    let rows = store
        .read(|| sqlx::query("SELECT to_regclass('adk_bridge.audit_seals') IS NOT NULL"))
        .await?;
    let known = rows.first().map(|row| row.try_get(0)).transpose()?;
    match known {
        Some(true) => Ok(()),
        _ => Err(StoreError::NotChained {
            database: PathBuf::from(&store.shared.place),
        }),
    }
}

pub(super) async fn state(store: &PostgresStore) -> Result<AuditState, StoreError> {
    let (id, _) = records::identity(store).await?;
    let rows = store
        .read(|| sqlx::query("SELECT * FROM adk_bridge.audit_seals ORDER BY number DESC LIMIT 1"));
    let seal = rows.await?.first().map(seal).transpose()?;
    let mut unchained = 0;
    if seal.is_none() {
        let rows = store.read(|| {
            sqlx::query("SELECT coalesce(max(id), 0) FROM adk_bridge.audit WHERE hash IS NULL")
        });
        let rows = rows.await?;
        unchained = rows
            .first()
            .map(|row| row.try_get(0))
            .transpose()?
            .unwrap_or(0);
    }
    Ok(AuditState {
        store: id,
        seal,
        unchained: from_sql(unchained),
        // Its counter goes on when a transaction is rolled back, and proves nothing.
        written: 0,
    })
}

pub(super) async fn end(store: &PostgresStore) -> Result<u64, StoreError> {
    // Once: a writer that is slow is not waited for again and again, since others wait behind.
    let connections = &store.shared.connections;
    let statement = sqlx::query("SELECT adk_bridge.audit_end()");
    let rows = connections.fetch_once(statement, END).await?;
    let end = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(from_sql(end.unwrap_or_default()))
}

pub(super) async fn all(
    store: &PostgresStore,
    after: u64,
    limit: u32,
) -> Result<Vec<ChainedRow>, StoreError> {
    chained(store, || {
        sqlx::query("SELECT * FROM adk_bridge.audit WHERE id > $1 ORDER BY id LIMIT $2")
            .bind(to_sql(after))
            .bind(i64::from(limit.min(MAX_AUDIT_ROWS)))
    })
    .await
}

pub(super) async fn of_user(
    store: &PostgresStore,
    user: &UserId,
    after: Option<(&ChatId, u64)>,
    limit: u32,
) -> Result<Vec<ChainedRow>, StoreError> {
    let (chat, id) = after.map_or(("", 0), |(chat, id)| (chat.as_str(), id));
    chained(store, || {
        sqlx::query(
            "SELECT * FROM adk_bridge.audit WHERE user_id = $1 AND (chat_id, id) > ($2, $3)
             ORDER BY chat_id, id LIMIT $4",
        )
        .bind(stored(user.as_str()))
        .bind(stored(chat))
        .bind(to_sql(id))
        .bind(i64::from(limit.min(MAX_AUDIT_ROWS)))
    })
    .await
}

async fn chained<'s>(
    store: &PostgresStore,
    statement: impl Fn() -> Statement<'s>,
) -> Result<Vec<ChainedRow>, StoreError> {
    let read = |row: &PgRow| {
        let previous: Option<i64> = row.try_get("previous")?;
        let hash: Option<String> = row.try_get("hash")?;
        let link = hash.map(|hash| -> Result<Link, sqlx::Error> {
            Ok(Link {
                previous: previous.map(from_sql),
                previous_hash: row.try_get("previous_hash")?,
                reason_salt: row.try_get("reason_salt")?,
                reason_hash: row.try_get("reason_hash")?,
                hash,
            })
        });
        Ok(ChainedRow {
            row: audit_row(row)?,
            link: link.transpose()?,
        })
    };
    store.read(statement).await?.iter().map(read).collect()
}

pub(super) async fn list(
    store: &PostgresStore,
    after: u64,
    limit: u32,
) -> Result<Vec<Seal>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT * FROM adk_bridge.audit_seals WHERE number > $1 ORDER BY number LIMIT $2",
        )
        .bind(to_sql(after))
        .bind(i64::from(limit))
    });
    rows.await?.iter().map(seal).collect()
}

pub(super) async fn add(store: &PostgresStore, seal: &Seal) -> Result<bool, StoreError> {
    let ids = seal.ids.to_string();
    let rows = store.write(|| {
        sqlx::query(
            "WITH added AS (
                 INSERT INTO adk_bridge.audit_seals
                     (number, previous_hash, after_row, through_row, row_count, row_ids, digest, removed_row,
                      unchained_row, at, hash, key_id, signature)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
                 ON CONFLICT (number) DO NOTHING RETURNING 1)
             -- A write that is repeated finds its own row.
             SELECT EXISTS (SELECT 1 FROM added)
                 OR EXISTS (SELECT 1 FROM adk_bridge.audit_seals s WHERE s.number = $1 AND s.hash = $11)",
        )
        .bind(to_sql(seal.number))
        .bind(&seal.previous_hash)
        .bind(to_sql(seal.after))
        .bind(to_sql(seal.through))
        .bind(to_sql(seal.ids.count()))
        .bind(&ids)
        .bind(&seal.digest)
        .bind(to_sql(seal.removed))
        .bind(to_sql(seal.unchained))
        .bind(to_sql(seal.at.as_millis()))
        .bind(&seal.hash)
        .bind(&seal.key_id)
        .bind(&seal.signature)
    });
    let rows = rows.await?;
    let added = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(added.unwrap_or(false))
}

pub(super) async fn remove_rows(store: &PostgresStore, limit: u32) -> Result<u64, StoreError> {
    let rows =
        store.write(|| sqlx::query("SELECT adk_bridge.remove_audit($1)").bind(i64::from(limit)));
    count(&rows.await?)
}

pub(super) async fn erase_reasons(
    store: &PostgresStore,
    user: &UserId,
    limit: u32,
) -> Result<u64, StoreError> {
    let rows = store.write(|| {
        sqlx::query("SELECT adk_bridge.erase_reasons($1, $2)")
            .bind(stored(user.as_str()))
            .bind(i64::from(limit))
    });
    count(&rows.await?)
}

fn count(rows: &[PgRow]) -> Result<u64, StoreError> {
    let count: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(from_sql(count.unwrap_or_default()))
}

fn seal(row: &PgRow) -> Result<Seal, StoreError> {
    let number = |column: &str| -> Result<u64, sqlx::Error> { Ok(from_sql(row.try_get(column)?)) };
    let ids: String = loaded(row.try_get("row_ids")?);
    Ok(Seal {
        number: number("number")?,
        previous_hash: row.try_get("previous_hash")?,
        after: number("after_row")?,
        through: number("through_row")?,
        ids: ids.parse().map_err(|_| StoreError::Corrupt {
            what: "a seal of the audit".to_owned(),
        })?,
        digest: row.try_get("digest")?,
        removed: number("removed_row")?,
        unchained: number("unchained_row")?,
        at: Timestamp::from_millis(number("at")?),
        hash: row.try_get("hash")?,
        key_id: row.try_get("key_id")?,
        signature: row.try_get("signature")?,
    })
}
