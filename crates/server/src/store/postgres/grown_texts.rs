//! What texts of open replies have grown by since they were stored.

use adk_bridge_protocol::message::Growth;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::{PostgresStore, stored};
use crate::store::encoded::{count, decode, encode, to_sql};
use crate::store::{GrownReply, StoreError};

/// The columns of the rows, as PostgreSQL takes many rows at once.
#[derive(Default)]
struct Columns {
    users: Vec<String>,
    chats: Vec<String>,
    epochs: Vec<Option<i64>>,
    ids: Vec<String>,
    parts: Vec<i32>,
    at: Vec<i64>,
    checksums: Vec<i64>,
    texts: Vec<String>,
}

/// One statement for all of them. Returns the places of those that are left out because somebody else is writing their rows.
pub(super) async fn insert(
    store: &PostgresStore,
    replies: &[GrownReply],
) -> Result<Vec<usize>, StoreError> {
    let mut rows = Columns::default();
    let mut places = Vec::new();
    for (place, reply) in replies.iter().enumerate() {
        for growth in &reply.texts {
            places.push(place);
            rows.users.push(stored(reply.user.as_str()).into_owned());
            rows.chats.push(stored(reply.chat_id.as_str()).into_owned());
            rows.epochs
                .push(reply.epoch.map(|epoch| to_sql(epoch.get())));
            rows.ids
                .push(stored(reply.message_id.as_str()).into_owned());
            // No message has more parts.
            rows.parts
                .push(i32::try_from(growth.part).unwrap_or(i32::MAX));
            rows.at.push(to_sql(growth.at as u64));
            rows.checksums.push(growth.checksum);
            rows.texts.push(encode(&growth.text)?);
        }
    }
    let done = store.write(|| {
        sqlx::query("SELECT adk_bridge.grow_texts($1, $2, $3, $4, $5, $6, $7, $8)")
            .bind(&rows.users)
            .bind(&rows.chats)
            .bind(&rows.epochs)
            .bind(&rows.ids)
            .bind(&rows.parts)
            .bind(&rows.at)
            .bind(&rows.checksums)
            .bind(&rows.texts)
    });
    let mut left_out = Vec::new();
    for row in done.await? {
        let piece = count(row.try_get(0)?);
        left_out.extend(places.get(piece.wrapping_sub(1)));
    }
    Ok(left_out)
}

/// The pieces that belong to a message, but for those of owners before the one whose writes the chat has.
pub(super) async fn of_message(store: &PostgresStore, seq: i64) -> Result<Vec<Growth>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT g.part, g.at, g.checksum, g.text FROM adk_bridge.grown_texts g
             JOIN adk_bridge.messages m ON m.seq = g.message JOIN adk_bridge.chats c ON c.key = m.chat
             WHERE g.message = $1 AND g.epoch >= coalesce(c.write_epoch, 0)",
        )
        .bind(seq)
    });
    let growth = |row: &PgRow| {
        Ok(Growth {
            part: count(i64::from(row.try_get::<i32, _>(0)?)),
            at: count(row.try_get(1)?),
            checksum: row.try_get(2)?,
            text: decode(row.try_get(3)?, "a checkpoint")?,
        })
    };
    rows.await?.iter().map(growth).collect()
}
