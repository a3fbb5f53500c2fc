//! What belongs to a chat besides its messages: the audit, agents' events, files; and what belongs to the store as a
//! whole.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use adk_bridge_protocol::id::{ApprovalId, CallId, MessageId, UserId};
use adk_bridge_protocol::outbox::Audit;
use adk_bridge_protocol::time::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::connection::Statement;
use super::messages::texts;
use super::text::{loaded, stored};
use super::{PostgresStore, write_name};
use crate::store::encoded::{fits, from_sql, to_sql};
use crate::store::{
    AuditEntry, AuditFilter, AuditPage, AuditRow, ChatRef, DeletedFile, Entity, FileRow,
    MAX_AUDIT_ROWS, OldFiles, StoreError, StoredEvent,
};

/// Rows of the audit, as columns.
pub(super) struct AuditColumns<'a>(pub(super) &'a [AuditEntry]);

impl AuditColumns<'_> {
    pub(super) fn bind<'s>(&self, statement: Statement<'s>) -> Statement<'s> {
        let column = |of: fn(&AuditEntry) -> Option<&str>| -> Vec<Option<String>> {
            let text = |entry| of(entry).map(|text| stored(text).into_owned());
            self.0.iter().map(text).collect()
        };
        let at = |entry: &AuditEntry| to_sql(entry.at.as_millis());
        statement
            .bind(self.0.iter().map(at).collect::<Vec<i64>>())
            .bind(column(|entry| entry.turn_id.as_deref()))
            .bind(column(|entry| entry.connection_id.as_deref()))
            .bind(column(|entry| Some(entry.audit.kind.as_str())))
            .bind(column(|entry| {
                entry.audit.call_id.as_ref().map(CallId::as_str)
            }))
            .bind(column(|entry| entry.audit.tool.as_deref()))
            .bind(column(|entry| {
                entry.audit.approval_id.as_ref().map(ApprovalId::as_str)
            }))
            .bind(column(|entry| entry.transport.as_deref()))
            .bind(column(|entry| entry.dialect.as_deref()))
            .bind(column(|entry| entry.audit.reason.as_deref()))
            .bind(column(|entry| entry.audit.input_hash.as_deref()))
            .bind(column(|entry| entry.replica.as_deref()))
    }
}

pub(super) async fn append_audit(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    audit: &[AuditEntry],
) -> Result<(), StoreError> {
    let (name, number) = (write_name(), store.next_number());
    let done = store.write(|| {
        let statement = sqlx::query(
            "SELECT adk_bridge.append_audit(
                 $1, $2, $3, $4::uuid, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(store.epoch(chat))
        .bind(&name)
        .bind(number);
        AuditColumns(audit).bind(statement)
    });
    done.await.map(|_| ())
}

pub(super) async fn audit(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    page: AuditPage,
) -> Result<Vec<AuditRow>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT id, at, chat_id, turn_id, connection_id, kind, tool_call_id, tool_name, approval_id, user_id,
                    transport, dialect, reason, input_hash, replica
             FROM adk_bridge.audit WHERE user_id = $1 AND chat_id = $2 AND id > $3 ORDER BY id LIMIT $4",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(to_sql(page.after))
        .bind(i64::from(page.limit.min(MAX_AUDIT_ROWS)))
    });
    let rows = rows.await?;
    if rows.is_empty() && page.after == 0 {
        exists(store, chat).await?;
    }
    rows.iter().map(audit_row).collect()
}

pub(super) async fn audit_of_all(
    store: &PostgresStore,
    of: AuditFilter<'_>,
    page: AuditPage,
) -> Result<Vec<AuditRow>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT id, at, chat_id, turn_id, connection_id, kind, tool_call_id, tool_name, approval_id, user_id,
                    transport, dialect, reason, input_hash, replica
             FROM adk_bridge.audit
             WHERE user_id = coalesce($1, user_id) AND chat_id = coalesce($2, chat_id) AND id > $3 ORDER BY id LIMIT $4",
        )
        .bind(of.user.map(|user| stored(user.as_str())))
        .bind(of.chat.map(|chat| stored(chat.as_str())))
        .bind(to_sql(page.after))
        .bind(i64::from(page.limit.min(MAX_AUDIT_ROWS)))
    });
    rows.await?.iter().map(audit_row).collect()
}

pub(super) fn audit_row(row: &PgRow) -> Result<AuditRow, StoreError> {
    let text = |column: &str| -> Result<Option<String>, StoreError> {
        let text: Option<String> = row.try_get(column)?;
        Ok(text.map(loaded))
    };
    Ok(AuditRow {
        id: from_sql(row.try_get("id")?),
        at: Timestamp::from_millis(from_sql(row.try_get("at")?)),
        chat_id: loaded(row.try_get("chat_id")?).into(),
        turn_id: text("turn_id")?,
        connection_id: text("connection_id")?,
        kind: row.try_get("kind")?,
        tool_call_id: text("tool_call_id")?.map(CallId::from),
        tool_name: text("tool_name")?,
        approval_id: text("approval_id")?.map(ApprovalId::from),
        user: loaded(row.try_get("user_id")?).into(),
        transport: text("transport")?,
        dialect: text("dialect")?,
        reason: text("reason")?,
        input_hash: text("input_hash")?,
        replica: text("replica")?,
    })
}

pub(super) async fn has_refused(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    audit: &Audit,
) -> Result<bool, StoreError> {
    // An id may be absent in both. The kind is written out, since the index holds this kind only.
    let rows = store.read(|| {
        sqlx::query(
            "SELECT 1 FROM adk_bridge.audit
             WHERE user_id = $1 AND chat_id = $2 AND kind = 'answer.refused'
               AND tool_call_id IS NOT DISTINCT FROM $3 AND approval_id IS NOT DISTINCT FROM $4
               AND reason IS NOT DISTINCT FROM $5 LIMIT 1",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(audit.call_id.as_ref().map(|id| stored(id.as_str())))
        .bind(audit.approval_id.as_ref().map(|id| stored(id.as_str())))
        .bind(audit.reason.as_deref().map(stored))
    });
    Ok(!rows.await?.is_empty())
}

pub(super) async fn append_events(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    generation: u64,
    message_id: &MessageId,
    events: Vec<String>,
) -> Result<(), StoreError> {
    let (name, number) = (write_name(), store.next_number());
    let mut bodies = Vec::with_capacity(events.len());
    for body in events {
        fits(body.len())?;
        bodies.push(match stored(&body) {
            Cow::Borrowed(_) => body,
            Cow::Owned(escaped) => escaped,
        });
    }
    let done = store.write(|| {
        sqlx::query("SELECT adk_bridge.append_events($1, $2, $3, $4::uuid, $5, $6, $7, $8)")
            .bind(stored(chat.user.as_str()))
            .bind(stored(chat.id.as_str()))
            .bind(store.epoch(chat))
            .bind(&name)
            .bind(number)
            .bind(to_sql(generation))
            .bind(stored(message_id.as_str()))
            .bind(&bodies)
    });
    done.await.map(|_| ())
}

pub(super) async fn events(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    generation: u64,
) -> Result<Vec<StoredEvent>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT e.message_id, e.body FROM adk_bridge.chats c
             LEFT JOIN adk_bridge.events e ON e.chat = c.key AND e.generation = $3
             WHERE c.user_id = $1 AND c.id = $2 ORDER BY e.seq",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(to_sql(generation))
    });
    let rows = rows.await?;
    if rows.is_empty() {
        return Err(StoreError::NotFound(Entity::Chat));
    }
    let event = |row: &PgRow| {
        let message_id: Option<String> = row.try_get(0)?;
        let Some(message_id) = message_id else {
            return Ok(None);
        };
        Ok(Some(StoredEvent {
            message_id: loaded(message_id).into(),
            body: loaded(row.try_get(1)?),
        }))
    };
    rows.iter()
        .filter_map(|row| event(row).transpose())
        .collect()
}

pub(super) async fn add_file(store: &PostgresStore, file: &FileRow) -> Result<(), StoreError> {
    let chat = ChatRef {
        user: &file.user,
        id: &file.chat_id,
    };
    let attempts = AtomicU32::new(0);
    let done = store.write(|| {
        let repeated = attempts.fetch_add(1, Relaxed) > 0;
        sqlx::query("SELECT adk_bridge.add_file($1, $2, $3, $4, $5, $6, $7, $8, $9)")
            .bind(stored(chat.user.as_str()))
            .bind(stored(chat.id.as_str()))
            .bind(store.epoch(chat))
            .bind(stored(&file.id))
            .bind(stored(&file.media_type))
            .bind(to_sql(file.bytes))
            .bind(file.name.as_deref().map(stored))
            .bind(to_sql(file.created.as_millis()))
            .bind(repeated)
    });
    done.await.map(|_| ())
}

pub(super) async fn file(
    store: &PostgresStore,
    user: Option<&UserId>,
    id: &str,
) -> Result<Option<FileRow>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT f.id, c.id AS chat_id, c.user_id, f.media_type, f.bytes, f.name, f.created_at
             FROM adk_bridge.files f JOIN adk_bridge.chats c ON c.key = f.chat
             WHERE f.id = $1 AND c.user_id = coalesce($2, c.user_id)",
        )
        .bind(stored(id))
        .bind(user.map(|user| stored(user.as_str())))
    });
    rows.await?.first().map(file_row).transpose()
}

fn file_row(row: &PgRow) -> Result<FileRow, StoreError> {
    let name: Option<String> = row.try_get("name")?;
    Ok(FileRow {
        id: loaded(row.try_get("id")?),
        chat_id: loaded(row.try_get("chat_id")?).into(),
        user: loaded(row.try_get("user_id")?).into(),
        media_type: loaded(row.try_get("media_type")?),
        bytes: from_sql(row.try_get("bytes")?),
        name: name.map(loaded),
        created: Timestamp::from_millis(from_sql(row.try_get("created_at")?)),
    })
}

pub(super) async fn files_of_user(
    store: &PostgresStore,
    user: &UserId,
    after: &str,
    limit: u32,
) -> Result<Vec<FileRow>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT f.id, c.id AS chat_id, c.user_id, f.media_type, f.bytes, f.name, f.created_at
             FROM adk_bridge.chats c JOIN adk_bridge.files f ON f.chat = c.key
             WHERE c.user_id = $1 AND f.id > $2 ORDER BY f.id LIMIT $3",
        )
        .bind(stored(user.as_str()))
        .bind(stored(after))
        .bind(i64::from(limit))
    });
    rows.await?.iter().map(file_row).collect()
}

pub(super) async fn delete_old_files(
    store: &PostgresStore,
    before: Timestamp,
    which: OldFiles,
    limit: u32,
) -> Result<Vec<DeletedFile>, StoreError> {
    // What an attempt has deleted of which we did not hear is remembered as deleted.
    let rows = store.write(|| {
        sqlx::query("SELECT user_id, id FROM adk_bridge.delete_old_files($1, $2, $3)")
            .bind(to_sql(before.as_millis()))
            .bind(which == OldFiles::Recordings)
            .bind(i64::from(limit))
    });
    let deleted = |row: &PgRow| {
        Ok(DeletedFile {
            user: loaded(row.try_get(0)?).into(),
            id: loaded(row.try_get(1)?),
        })
    };
    rows.await?.iter().map(deleted).collect()
}

pub(super) async fn begin_job(
    store: &PostgresStore,
    name: &str,
    hold: Duration,
) -> Result<bool, StoreError> {
    let rows = store.write(|| {
        sqlx::query("SELECT adk_bridge.begin_job($1, make_interval(secs => $2))")
            .bind(name)
            .bind(hold.as_secs_f64())
    });
    let rows = rows.await?;
    let begun = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(begun.unwrap_or(false))
}

pub(super) async fn file_ids(store: &PostgresStore) -> Result<Vec<String>, StoreError> {
    let rows = store.read(|| sqlx::query("SELECT id FROM adk_bridge.files"));
    first_column(&rows.await?)
}

pub(super) async fn deleted_files(store: &PostgresStore) -> Result<Vec<String>, StoreError> {
    let rows = store.read(|| sqlx::query("SELECT id FROM adk_bridge.deleted_files"));
    first_column(&rows.await?)
}

pub(super) async fn forget_deleted_files(
    store: &PostgresStore,
    ids: &[String],
) -> Result<(), StoreError> {
    let ids = texts(ids.iter().map(String::as_str));
    let done = store.write(|| {
        sqlx::query("DELETE FROM adk_bridge.deleted_files WHERE id = ANY ($1)").bind(&ids)
    });
    done.await.map(|_| ())
}

pub(super) async fn secret(
    store: &PostgresStore,
    name: &str,
    fresh: &[u8],
) -> Result<Vec<u8>, StoreError> {
    let rows = store.write(|| {
        sqlx::query("SELECT adk_bridge.secret($1, $2)")
            .bind(stored(name))
            .bind(fresh)
    });
    let rows = rows.await?;
    let secret = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(secret.unwrap_or_default())
}

pub(super) async fn stored_bytes(store: &PostgresStore) -> Result<Vec<(UserId, u64)>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT user_id, sum(bytes)::bigint FROM
                 (SELECT user_id, bytes FROM adk_bridge.chats
                  UNION ALL
                  SELECT c.user_id, f.bytes FROM adk_bridge.files f JOIN adk_bridge.chats c ON c.key = f.chat) AS all_of
             GROUP BY user_id",
        )
    });
    let of_user = |row: &PgRow| {
        Ok((
            UserId::from(loaded(row.try_get(0)?)),
            from_sql(row.try_get(1)?),
        ))
    };
    rows.await?.iter().map(of_user).collect()
}

pub(super) async fn stored_bytes_of(
    store: &PostgresStore,
    user: &UserId,
) -> Result<u64, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT (coalesce((SELECT sum(bytes) FROM adk_bridge.chats WHERE user_id = $1), 0)
                 + coalesce((SELECT sum(f.bytes) FROM adk_bridge.files f JOIN adk_bridge.chats c ON c.key = f.chat
                             WHERE c.user_id = $1), 0))::bigint",
        )
        .bind(stored(user.as_str()))
    });
    let rows = rows.await?;
    let bytes = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(from_sql(bytes.unwrap_or_default()))
}

/// The id of the database, and whether it has no chats.
pub(super) async fn identity(store: &PostgresStore) -> Result<(String, bool), StoreError> {
    let rows = store.read(|| {
        sqlx::query("SELECT id, NOT EXISTS (SELECT 1 FROM adk_bridge.chats) FROM adk_bridge.store")
    });
    let rows = rows.await?;
    let row = rows.first().ok_or_else(|| StoreError::Corrupt {
        what: "the identity of the database".to_owned(),
    })?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// Whether a store is being moved here.
pub(super) async fn is_unfinished(store: &PostgresStore) -> Result<bool, StoreError> {
    let rows =
        store.read(|| sqlx::query("SELECT 1 FROM adk_bridge.transfer WHERE finished_at IS NULL"));
    Ok(!rows.await?.is_empty())
}

async fn exists(store: &PostgresStore, chat: ChatRef<'_>) -> Result<(), StoreError> {
    let found = super::chats::find(store, chat).await?;
    found.map(|_| ()).ok_or(StoreError::NotFound(Entity::Chat))
}

fn first_column(rows: &[PgRow]) -> Result<Vec<String>, StoreError> {
    let text = |row: &PgRow| Ok(loaded(row.try_get(0)?));
    rows.iter().map(text).collect()
}
