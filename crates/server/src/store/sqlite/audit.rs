//! Audit rows in SQLite.

use adk_bridge_protocol::id::{ApprovalId, CallId, ChatId, UserId};
use adk_bridge_protocol::outbox::Audit;
use adk_bridge_protocol::time::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};
use uuid::Uuid;

use super::chats;
use crate::audit::chain::{ChainEnd, ChainedRow, Link};
use crate::store::encoded::{from_sql, to_sql};
use crate::store::{
    AuditEntry, AuditFilter, AuditPage, AuditRow, ChatRef, MAX_AUDIT_ROWS, StoreError,
};

pub(super) async fn append(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    audit: &[AuditEntry],
) -> Result<(), StoreError> {
    chats::key_of(connection, chat).await?;
    insert(connection, chat, audit).await
}

/// Adds rows for a chat that is known to be the user's, at the end of its chain.
pub(super) async fn insert(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    audit: &[AuditEntry],
) -> Result<(), StoreError> {
    if audit.is_empty() {
        return Ok(());
    }
    let end = sqlx::query(
        "SELECT id, hash FROM audit WHERE user = ?1 AND chat_id = ?2 ORDER BY id DESC LIMIT 1",
    )
    .bind(chat.user.as_str())
    .bind(chat.id.as_str())
    .fetch_optional(&mut *connection)
    .await?;
    let end_of = |row: SqliteRow| -> Result<ChainEnd, sqlx::Error> {
        Ok(ChainEnd {
            id: from_sql(row.try_get(0)?),
            hash: row.try_get(1)?,
        })
    };
    let mut end = end.map(end_of).transpose()?;
    for entry in audit {
        let row = row_of(chat, entry);
        let link = Link::new(end.as_ref(), &row, || Uuid::new_v4().simple().to_string());
        let added = sqlx::query(
            "INSERT INTO audit (at, user, chat_id, turn_id, connection_id, kind, tool_call_id,
                                tool_name, approval_id, transport, dialect, reason, input_hash, replica,
                                previous, previous_hash, reason_salt, reason_hash, hash)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
        )
        .bind(to_sql(row.at.as_millis()))
        .bind(row.user.as_str())
        .bind(row.chat_id.as_str())
        .bind(&row.turn_id)
        .bind(&row.connection_id)
        .bind(&row.kind)
        .bind(row.tool_call_id.as_ref().map(CallId::as_str))
        .bind(&row.tool_name)
        .bind(row.approval_id.as_ref().map(ApprovalId::as_str))
        .bind(&row.transport)
        .bind(&row.dialect)
        .bind(&row.reason)
        .bind(&row.input_hash)
        .bind(&row.replica)
        .bind(link.previous.map(to_sql))
        .bind(&link.previous_hash)
        .bind(&link.reason_salt)
        .bind(&link.reason_hash)
        .bind(&link.hash)
        .execute(&mut *connection)
        .await?;
        end = Some(ChainEnd {
            id: from_sql(added.last_insert_rowid()),
            hash: Some(link.hash),
        });
    }
    Ok(())
}

/// A row that has no id yet.
fn row_of(chat: ChatRef<'_>, entry: &AuditEntry) -> AuditRow {
    // Named one by one, so that a new field is not forgotten here.
    let AuditEntry {
        at,
        turn_id,
        connection_id,
        transport,
        dialect,
        replica,
        audit,
    } = entry.clone();
    AuditRow {
        id: 0,
        at,
        chat_id: chat.id.clone(),
        turn_id,
        connection_id,
        kind: audit.kind.as_str().to_owned(),
        tool_call_id: audit.call_id,
        tool_name: audit.tool,
        approval_id: audit.approval_id,
        user: chat.user.clone(),
        transport,
        dialect,
        reason: audit.reason,
        input_hash: audit.input_hash,
        replica,
    }
}

pub(super) async fn list(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    page: AuditPage,
) -> Result<Vec<AuditRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, at, chat_id, turn_id, connection_id, kind, tool_call_id, tool_name,
                approval_id, user, transport, dialect, reason, input_hash, replica
         FROM audit WHERE user = ?1 AND chat_id = ?2 AND id > ?3 ORDER BY id LIMIT ?4",
    )
    .bind(chat.user.as_str())
    .bind(chat.id.as_str())
    .bind(to_sql(page.after))
    .bind(page.limit.min(MAX_AUDIT_ROWS))
    .fetch_all(&mut *connection)
    .await?;
    if rows.is_empty() && page.after == 0 {
        chats::key_of(connection, chat).await?;
    }
    rows.iter().map(read_row).collect()
}

pub(super) async fn list_all(
    connection: &mut SqliteConnection,
    of: AuditFilter<'_>,
    page: AuditPage,
) -> Result<Vec<AuditRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, at, chat_id, turn_id, connection_id, kind, tool_call_id, tool_name,
                approval_id, user, transport, dialect, reason, input_hash, replica
         FROM audit WHERE user = coalesce(?1, user) AND chat_id = coalesce(?2, chat_id) AND id > ?3
         ORDER BY id LIMIT ?4",
    )
    .bind(of.user.map(UserId::as_str))
    .bind(of.chat.map(ChatId::as_str))
    .bind(to_sql(page.after))
    .bind(page.limit.min(MAX_AUDIT_ROWS))
    .fetch_all(connection)
    .await?;
    rows.iter().map(read_row).collect()
}

pub(super) async fn has_refused(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    audit: &Audit,
) -> Result<bool, StoreError> {
    // `IS`, since an id may be absent in both. The kind is written out, since the index holds this kind only.
    let found = sqlx::query(
        "SELECT 1 FROM audit WHERE user = ?1 AND chat_id = ?2 AND tool_call_id IS ?3
         AND approval_id IS ?4 AND kind = 'answer.refused' AND reason IS ?5 LIMIT 1",
    )
    .bind(chat.user.as_str())
    .bind(chat.id.as_str())
    .bind(audit.call_id.as_ref().map(CallId::as_str))
    .bind(audit.approval_id.as_ref().map(ApprovalId::as_str))
    .bind(&audit.reason)
    .fetch_optional(connection)
    .await?;
    Ok(found.is_some())
}

/// The rows of a user after one of a chat, chat by chat.
pub(super) async fn of_user(
    connection: &mut SqliteConnection,
    user: &UserId,
    after: Option<(&ChatId, u64)>,
    limit: u32,
) -> Result<Vec<ChainedRow>, StoreError> {
    let (chat, id) = after.map_or(("", 0), |(chat, id)| (chat.as_str(), id));
    sqlx::query(
        "SELECT * FROM audit WHERE user = ?1 AND (chat_id, id) > (?2, ?3) ORDER BY chat_id, id LIMIT ?4",
    )
    .bind(user.as_str())
    .bind(chat)
    .bind(to_sql(id))
    .bind(limit.min(MAX_AUDIT_ROWS))
    .fetch_all(connection)
    .await?
    .iter()
    .map(read_chained)
    .collect()
}

/// The rows of everybody after one.
pub(super) async fn all(
    connection: &mut SqliteConnection,
    after: u64,
    limit: u32,
) -> Result<Vec<ChainedRow>, StoreError> {
    sqlx::query("SELECT * FROM audit WHERE id > ?1 ORDER BY id LIMIT ?2")
        .bind(to_sql(after))
        .bind(limit.min(MAX_AUDIT_ROWS))
        .fetch_all(connection)
        .await?
        .iter()
        .map(read_chained)
        .collect()
}

/// The last row.
pub(super) async fn end(connection: &mut SqliteConnection) -> Result<u64, StoreError> {
    let end = sqlx::query_scalar("SELECT coalesce(max(id), 0) FROM audit")
        .fetch_one(connection)
        .await?;
    Ok(from_sql(end))
}

pub(super) async fn erase_reasons(
    connection: &mut SqliteConnection,
    user: &UserId,
    limit: u32,
) -> Result<u64, StoreError> {
    let erased = sqlx::query(
        "UPDATE audit SET reason = NULL, reason_salt = NULL WHERE id IN
             (SELECT id FROM audit WHERE user = ?1 AND (reason IS NOT NULL OR reason_salt IS NOT NULL) LIMIT ?2)",
    )
    .bind(user.as_str())
    .bind(limit)
    .execute(connection)
    .await?;
    Ok(erased.rows_affected())
}

fn read_chained(row: &SqliteRow) -> Result<ChainedRow, StoreError> {
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
        row: read_row(row)?,
        link: link.transpose()?,
    })
}

fn read_row(row: &SqliteRow) -> Result<AuditRow, StoreError> {
    let call_id: Option<String> = row.try_get("tool_call_id")?;
    let approval_id: Option<String> = row.try_get("approval_id")?;
    Ok(AuditRow {
        id: from_sql(row.try_get("id")?),
        at: Timestamp::from_millis(from_sql(row.try_get("at")?)),
        chat_id: row.try_get::<String, _>("chat_id")?.into(),
        turn_id: row.try_get("turn_id")?,
        connection_id: row.try_get("connection_id")?,
        kind: row.try_get("kind")?,
        tool_call_id: call_id.map(CallId::from),
        tool_name: row.try_get("tool_name")?,
        approval_id: approval_id.map(ApprovalId::from),
        user: row.try_get::<String, _>("user")?.into(),
        transport: row.try_get("transport")?,
        dialect: row.try_get("dialect")?,
        reason: row.try_get("reason")?,
        input_hash: row.try_get("input_hash")?,
        replica: row.try_get("replica")?,
    })
}
