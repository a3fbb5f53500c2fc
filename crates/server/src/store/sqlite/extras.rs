//! What a chat has besides messages: audit rows, the state of its tools, agents' events, files.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use serde_json::Value;

use super::messages::{decode, encode, fits};
use super::{chats, from_sql, to_sql};
use crate::store::{AuditEntry, AuditRow, Change, ChatRef, FileRow, StoreError, StoredEvent};

pub(super) async fn append_audit(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    audit: &[AuditEntry],
) -> Result<(), StoreError> {
    chats::check(connection, chat).await?;
    insert_audit(connection, chat, audit).await
}

/// Adds rows for a chat that is known to be the user's.
pub(super) async fn insert_audit(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    audit: &[AuditEntry],
) -> Result<(), StoreError> {
    for entry in audit {
        let audit = &entry.audit;
        sqlx::query(
            "INSERT INTO audit (at, user, chat_id, turn_id, connection_id, kind, tool_call_id,
                                tool_name, approval_id, transport, dialect, reason, input_hash)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )
        .bind(to_sql(entry.at))
        .bind(chat.user)
        .bind(chat.id)
        .bind(&entry.turn_id)
        .bind(&entry.connection_id)
        .bind(audit.kind.as_str())
        .bind(&audit.call_id)
        .bind(&audit.tool)
        .bind(&audit.approval_id)
        .bind(&entry.transport)
        .bind(&entry.dialect)
        .bind(&audit.reason)
        .bind(&audit.input_hash)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

pub(super) async fn audit(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<Vec<AuditRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, at, chat_id, turn_id, connection_id, kind, tool_call_id, tool_name,
                approval_id, user, transport, dialect, reason, input_hash
         FROM audit WHERE user = ?1 AND chat_id = ?2 ORDER BY id",
    )
    .bind(chat.user)
    .bind(chat.id)
    .fetch_all(&mut *connection)
    .await?;
    if rows.is_empty() {
        chats::check(connection, chat).await?;
    }
    rows.iter().map(read_audit).collect()
}

pub(super) async fn update_state(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    key: &str,
    change: Change<'_>,
) -> Result<Value, StoreError> {
    chats::check(connection, chat).await?;
    let before: Option<String> =
        sqlx::query_scalar("SELECT value FROM chat_state WHERE chat_id = ?1 AND key = ?2")
            .bind(chat.id)
            .bind(key)
            .fetch_optional(&mut *connection)
            .await?;
    let before = before
        .map(|json| decode(&json, "the state of a chat"))
        .transpose()?;
    let (after, result) = change(before);
    match after {
        Some(value) => {
            sqlx::query(
                "INSERT INTO chat_state (chat_id, key, value) VALUES (?1, ?2, ?3)
                 ON CONFLICT (chat_id, key) DO UPDATE SET value = excluded.value",
            )
            .bind(chat.id)
            .bind(key)
            .bind(encode(&value)?)
            .execute(connection)
            .await?
        }
        None => {
            sqlx::query("DELETE FROM chat_state WHERE chat_id = ?1 AND key = ?2")
                .bind(chat.id)
                .bind(key)
                .execute(connection)
                .await?
        }
    };
    Ok(result)
}

pub(super) async fn append_events(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    generation: u64,
    message_id: &str,
    events: Vec<String>,
) -> Result<(), StoreError> {
    chats::check(connection, chat).await?;
    for body in events {
        fits(body.len())?;
        sqlx::query(
            "INSERT INTO events (chat_id, generation, message_id, body) VALUES (?1, ?2, ?3, ?4)",
        )
        .bind(chat.id)
        .bind(to_sql(generation))
        .bind(message_id)
        .bind(body)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

pub(super) async fn events(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    generation: u64,
) -> Result<Vec<StoredEvent>, StoreError> {
    chats::check(connection, chat).await?;
    sqlx::query(
        "SELECT message_id, body FROM events WHERE chat_id = ?1 AND generation = ?2 ORDER BY seq",
    )
    .bind(chat.id)
    .bind(to_sql(generation))
    .fetch_all(connection)
    .await?
    .iter()
    .map(|row| {
        Ok(StoredEvent {
            message_id: row.try_get(0)?,
            body: row.try_get(1)?,
        })
    })
    .collect()
}

pub(super) async fn add_file(
    connection: &mut SqliteConnection,
    file: &FileRow,
) -> Result<(), StoreError> {
    let chat = ChatRef {
        user: &file.user,
        id: &file.chat_id,
    };
    chats::check(connection, chat).await?;
    sqlx::query(
        "INSERT INTO files (id, chat_id, user, media_type, bytes, name, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )
    .bind(&file.id)
    .bind(&file.chat_id)
    .bind(&file.user)
    .bind(&file.media_type)
    .bind(to_sql(file.bytes))
    .bind(&file.name)
    .bind(to_sql(file.created))
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn file(
    connection: &mut SqliteConnection,
    user: &str,
    id: &str,
) -> Result<Option<FileRow>, StoreError> {
    sqlx::query(
        "SELECT id, chat_id, user, media_type, bytes, name, created_at FROM files
         WHERE id = ?1 AND user = ?2",
    )
    .bind(id)
    .bind(user)
    .fetch_optional(connection)
    .await?
    .map(|row| {
        Ok(FileRow {
            id: row.try_get("id")?,
            chat_id: row.try_get("chat_id")?,
            user: row.try_get("user")?,
            media_type: row.try_get("media_type")?,
            bytes: from_sql(row.try_get("bytes")?),
            name: row.try_get("name")?,
            created: from_sql(row.try_get("created_at")?),
        })
    })
    .transpose()
}

pub(super) async fn file_ids(connection: &mut SqliteConnection) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar("SELECT id FROM files")
        .fetch_all(connection)
        .await?)
}

fn read_audit(row: &SqliteRow) -> Result<AuditRow, StoreError> {
    Ok(AuditRow {
        id: from_sql(row.try_get("id")?),
        at: from_sql(row.try_get("at")?),
        chat_id: row.try_get("chat_id")?,
        turn_id: row.try_get("turn_id")?,
        connection_id: row.try_get("connection_id")?,
        kind: row.try_get("kind")?,
        tool_call_id: row.try_get("tool_call_id")?,
        tool_name: row.try_get("tool_name")?,
        approval_id: row.try_get("approval_id")?,
        user: row.try_get("user")?,
        transport: row.try_get("transport")?,
        dialect: row.try_get("dialect")?,
        reason: row.try_get("reason")?,
        input_hash: row.try_get("input_hash")?,
    })
}
