//! The seals of the audit in SQLite.

use adk_bridge_protocol::time::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use super::whole_store;
use crate::audit::AuditState;
use crate::audit::seal::Seal;
use crate::store::StoreError;
use crate::store::encoded::{from_sql, to_sql};

/// Whether a database has seals, and is one of ours.
pub(super) async fn are_known(connection: &mut SqliteConnection) -> Result<bool, StoreError> {
    let found = sqlx::query("SELECT 1 FROM sqlite_schema WHERE name = 'audit_seals'")
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

pub(super) async fn state(connection: &mut SqliteConnection) -> Result<AuditState, StoreError> {
    let (store, _) = whole_store::identity(&mut *connection).await?;
    let seal = sqlx::query("SELECT * FROM audit_seals ORDER BY number DESC LIMIT 1")
        .fetch_optional(&mut *connection)
        .await?;
    let seal = seal.as_ref().map(read).transpose()?;
    let unchained = match &seal {
        Some(_) => 0,
        None => {
            sqlx::query_scalar("SELECT coalesce(max(id), 0) FROM audit WHERE hash IS NULL")
                .fetch_one(&mut *connection)
                .await?
        }
    };
    // Counts ids even if their rows are gone.
    let written = sqlx::query_scalar("SELECT seq FROM sqlite_sequence WHERE name = 'audit'")
        .fetch_optional(connection)
        .await?;
    Ok(AuditState {
        store,
        seal,
        unchained: from_sql(unchained),
        written: from_sql(written.unwrap_or_default()),
    })
}

pub(super) async fn list(
    connection: &mut SqliteConnection,
    after: u64,
    limit: u32,
) -> Result<Vec<Seal>, StoreError> {
    sqlx::query("SELECT * FROM audit_seals WHERE number > ?1 ORDER BY number LIMIT ?2")
        .bind(to_sql(after))
        .bind(limit)
        .fetch_all(connection)
        .await?
        .iter()
        .map(read)
        .collect()
}

pub(super) async fn add(
    connection: &mut SqliteConnection,
    seal: &Seal,
) -> Result<bool, StoreError> {
    let added = sqlx::query(
        "INSERT INTO audit_seals (number, previous_hash, after_row, through_row, row_count, row_ids, digest,
                                  removed_row, unchained_row, at, hash, key_id, signature)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13
         WHERE NOT EXISTS (SELECT 1 FROM audit_seals WHERE number = ?1)",
    )
    .bind(to_sql(seal.number))
    .bind(&seal.previous_hash)
    .bind(to_sql(seal.after))
    .bind(to_sql(seal.through))
    .bind(to_sql(seal.ids.count()))
    .bind(seal.ids.to_string())
    .bind(&seal.digest)
    .bind(to_sql(seal.removed))
    .bind(to_sql(seal.unchained))
    .bind(to_sql(seal.at.as_millis()))
    .bind(&seal.hash)
    .bind(&seal.key_id)
    .bind(&seal.signature)
    .execute(connection)
    .await?;
    Ok(added.rows_affected() > 0)
}

pub(super) async fn remove_rows(
    connection: &mut SqliteConnection,
    limit: u32,
) -> Result<u64, StoreError> {
    let removed = sqlx::query(
        "DELETE FROM audit WHERE id IN
             (SELECT id FROM audit
              WHERE id <= (SELECT removed_row FROM audit_seals ORDER BY number DESC LIMIT 1) ORDER BY id LIMIT ?1)",
    )
    .bind(limit)
    .execute(&mut *connection)
    .await?
    .rows_affected();
    if removed == 0 {
        sqlx::query(
            "DELETE FROM audit_seals WHERE number < (SELECT max(number) FROM audit_seals)
                 AND through_row <= (SELECT removed_row FROM audit_seals ORDER BY number DESC LIMIT 1)",
        )
        .execute(connection)
        .await?;
    }
    Ok(removed)
}

fn read(row: &SqliteRow) -> Result<Seal, StoreError> {
    let number = |column: &str| -> Result<u64, sqlx::Error> { Ok(from_sql(row.try_get(column)?)) };
    let ids: &str = row.try_get("row_ids")?;
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
