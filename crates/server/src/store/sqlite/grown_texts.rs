//! What texts of open replies have grown by since they were stored.

use sqlx::{Row as _, SqliteConnection};

use adk_bridge_protocol::message::Growth;

use crate::store::encoded::{count, decode, encode};
use crate::store::{GrownReply, StoreError};

/// Rows as JSON, for one statement.
pub(super) fn encoded(replies: &[GrownReply]) -> Result<String, StoreError> {
    let mut rows = Vec::new();
    for reply in replies {
        for growth in &reply.texts {
            rows.push((
                reply.user.as_str(),
                reply.chat_id.as_str(),
                reply.message_id.as_str(),
                growth.part,
                growth.at,
                growth.checksum,
                encode(&growth.text)?,
            ));
        }
    }
    encode(&rows)
}

/// One statement for all of them, in a transaction of its own.
pub(super) async fn insert(
    connection: &mut SqliteConnection,
    rows: String,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT OR REPLACE INTO grown_texts (message, part, at, checksum, text)
         SELECT messages.seq, row.value ->> 3, row.value ->> 4, row.value ->> 5, row.value ->> 6
         FROM json_each(?1) AS row
         JOIN chats ON chats.user = row.value ->> 0 AND chats.id = row.value ->> 1
         JOIN messages ON messages.chat = chats.key AND messages.id = row.value ->> 2 AND cut_in IS NULL AND open = 1",
    )
    .bind(rows)
    .execute(connection)
    .await?;
    Ok(())
}

/// The pieces that belong to a message.
pub(super) async fn of_message(
    connection: &mut SqliteConnection,
    seq: i64,
) -> Result<Vec<Growth>, StoreError> {
    let rows = sqlx::query("SELECT part, at, checksum, text FROM grown_texts WHERE message = ?1")
        .bind(seq)
        .fetch_all(connection)
        .await?;
    let growth = |row: &sqlx::sqlite::SqliteRow| {
        Ok(Growth {
            part: count(row.try_get(0)?),
            at: count(row.try_get(1)?),
            checksum: row.try_get(2)?,
            text: decode(row.try_get(3)?, "a checkpoint")?,
        })
    };
    rows.iter().map(growth).collect()
}
