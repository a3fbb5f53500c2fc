//! Audit rows in SQLite.

use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::outbox::Audit;
use adk_bridge_protocol::time::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use super::chats;
use crate::store::encoded::{from_sql, to_sql};
use crate::store::{AuditEntry, AuditPage, AuditRow, ChatRef, MAX_AUDIT_ROWS, StoreError};

pub(super) async fn append(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    audit: &[AuditEntry],
) -> Result<(), StoreError> {
    chats::key_of(connection, chat).await?;
    insert(connection, chat, audit).await
}

/// Adds rows for a chat that is known to be the user's.
pub(super) async fn insert(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    audit: &[AuditEntry],
) -> Result<(), StoreError> {
    for entry in audit {
        let audit = &entry.audit;
        sqlx::query(
            "INSERT INTO audit (at, user, chat_id, turn_id, connection_id, kind, tool_call_id,
                                tool_name, approval_id, transport, dialect, reason, input_hash, replica)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )
        .bind(to_sql(entry.at.as_millis()))
        .bind(chat.user.as_str())
        .bind(chat.id.as_str())
        .bind(&entry.turn_id)
        .bind(&entry.connection_id)
        .bind(audit.kind.as_str())
        .bind(audit.call_id.as_ref().map(CallId::as_str))
        .bind(&audit.tool)
        .bind(audit.approval_id.as_ref().map(ApprovalId::as_str))
        .bind(&entry.transport)
        .bind(&entry.dialect)
        .bind(&audit.reason)
        .bind(&audit.input_hash)
        .bind(&entry.replica)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
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
