//! The rows of files in SQLite; their content is on the disk.

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::time::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use super::chats;
use crate::store::encoded::{from_sql, to_sql};
use crate::store::{ChatRef, DeletedFile, FileRow, OldFiles, StoreError};

pub(super) async fn add(
    connection: &mut SqliteConnection,
    file: &FileRow,
) -> Result<(), StoreError> {
    let chat = ChatRef {
        user: &file.user,
        id: &file.chat_id,
    };
    let key = chats::key_of(connection, chat).await?;
    sqlx::query(
        "INSERT INTO files (id, chat, media_type, bytes, name, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )
    .bind(&file.id)
    .bind(&key)
    .bind(&file.media_type)
    .bind(to_sql(file.bytes))
    .bind(&file.name)
    .bind(to_sql(file.created.as_millis()))
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn get(
    connection: &mut SqliteConnection,
    user: Option<&UserId>,
    id: &str,
) -> Result<Option<FileRow>, StoreError> {
    sqlx::query(
        "SELECT files.id, chats.id AS chat_id, user, media_type, files.bytes, name, files.created_at
         FROM files JOIN chats ON key = files.chat
         WHERE files.id = ?1 AND user = coalesce(?2, user)",
    )
    .bind(id)
    .bind(user.map(UserId::as_str))
    .fetch_optional(connection)
    .await?
    .as_ref()
    .map(read)
    .transpose()
}

pub(super) async fn of_user(
    connection: &mut SqliteConnection,
    user: &UserId,
    after: &str,
    limit: u32,
) -> Result<Vec<FileRow>, StoreError> {
    sqlx::query(
        "SELECT files.id, chats.id AS chat_id, user, media_type, files.bytes, name, files.created_at
         FROM chats JOIN files ON files.chat = key
         WHERE user = ?1 AND files.id > ?2 ORDER BY files.id LIMIT ?3",
    )
    .bind(user.as_str())
    .bind(after)
    .bind(limit)
    .fetch_all(connection)
    .await?
    .iter()
    .map(read)
    .collect()
}

/// Moves files that are older than a time to those that are deleted.
pub(super) async fn delete_old(
    connection: &mut SqliteConnection,
    before: Timestamp,
    which: OldFiles,
    limit: u32,
) -> Result<Vec<DeletedFile>, StoreError> {
    let old = sqlx::query(
        "SELECT files.id, user FROM files JOIN chats ON key = files.chat
         WHERE files.created_at < ?1
           AND (NOT ?2 OR media_type = 'audio/wav' AND coalesce(name, 'speech.wav') = 'speech.wav')
         LIMIT ?3",
    )
    .bind(to_sql(before.as_millis()))
    .bind(which == OldFiles::Recordings)
    .bind(limit)
    .fetch_all(&mut *connection)
    .await?;
    let mut deleted = Vec::with_capacity(old.len());
    for row in old {
        let id: String = row.try_get(0)?;
        for sql in [
            "INSERT INTO deleted_files (id) VALUES (?1) ON CONFLICT DO NOTHING",
            "DELETE FROM files WHERE id = ?1",
        ] {
            sqlx::query(sql).bind(&id).execute(&mut *connection).await?;
        }
        deleted.push(DeletedFile {
            user: row.try_get::<String, _>(1)?.into(),
            id,
        });
    }
    Ok(deleted)
}

fn read(row: &SqliteRow) -> Result<FileRow, StoreError> {
    Ok(FileRow {
        id: row.try_get("id")?,
        chat_id: row.try_get::<String, _>("chat_id")?.into(),
        user: row.try_get::<String, _>("user")?.into(),
        media_type: row.try_get("media_type")?,
        bytes: from_sql(row.try_get("bytes")?),
        name: row.try_get("name")?,
        created: Timestamp::from_millis(from_sql(row.try_get("created_at")?)),
    })
}

pub(super) async fn ids(connection: &mut SqliteConnection) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar("SELECT id FROM files")
        .fetch_all(connection)
        .await?)
}

pub(super) async fn deleted(connection: &mut SqliteConnection) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar("SELECT id FROM deleted_files")
        .fetch_all(connection)
        .await?)
}

pub(super) async fn forget_deleted(
    connection: &mut SqliteConnection,
    ids: &[String],
) -> Result<(), StoreError> {
    for id in ids {
        sqlx::query("DELETE FROM deleted_files WHERE id = ?1")
            .bind(id)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}
