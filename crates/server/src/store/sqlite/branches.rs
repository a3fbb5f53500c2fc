//! Branches: cut messages are kept, and a front end may return to them.

use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::message::Message;
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection};

use super::chats;
use super::connection::Writing;
use super::statement_batch::StatementBatch;
use crate::store::encoded::{decode_message, from_sql, to_sql};
use crate::store::{ChatRef, Conflict, MessageState, OutlineEntry, StoreError};

/// Whether a client has had a message: it sent it, or is known to have got it.
pub(super) const SEEN: &str = "(reply IS NULL AND heard = 0
     OR EXISTS (SELECT 1 FROM seen WHERE seen.seq = messages.seq))";

pub(super) async fn outline(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<Vec<OutlineEntry>, StoreError> {
    let key = chats::key_of(connection, chat).await?;
    sqlx::query(AssertSqlSafe(format!(
        "SELECT seq, id, cut_in, state, reply IS NOT NULL AS is_reply, {SEEN} AS seen
         FROM messages WHERE chat = ?1 ORDER BY seq",
    )))
    .bind(key)
    .fetch_all(connection)
    .await?
    .iter()
    .map(|row| {
        Ok(OutlineEntry {
            place: from_sql(row.try_get("seq")?),
            id: row.try_get::<String, _>("id")?.into(),
            cut_in: row.try_get::<Option<i64>, _>("cut_in")?.map(from_sql),
            state: MessageState::from_word(row.try_get("state")?)?,
            is_reply: row.try_get("is_reply")?,
            seen: row.try_get("seen")?,
        })
    })
    .collect()
}

pub(super) async fn message_at(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    place: u64,
) -> Result<Option<Message>, StoreError> {
    let key = chats::key_of(connection, chat).await?;
    let body: Option<String> =
        sqlx::query_scalar("SELECT body FROM messages WHERE chat = ?1 AND seq = ?2")
            .bind(key)
            .bind(to_sql(place))
            .fetch_optional(connection)
            .await?;
    body.map(|body| decode_message(&body, "a stored message"))
        .transpose()
}

pub(super) async fn mark_seen(
    writing: &mut Writing<'_>,
    chat: ChatRef<'_>,
    ids: &[MessageId],
) -> Result<(), StoreError> {
    let batch = StatementBatch::new()
        .then(
            "INSERT OR IGNORE INTO seen (seq)
             SELECT seq FROM chats JOIN messages ON chat = key
             WHERE user = ? AND chats.id = ? AND cut_in IS NULL
               AND messages.id IN (SELECT value FROM json_each(?))
               AND (reply IS NOT NULL OR heard = 1)",
        )
        .bind(chat.user.as_str())
        .bind(chat.id.as_str())
        .bind(serde_json::json!(ids).to_string());
    let done = writing.run(batch).await?;
    if done.first().is_some_and(|noted| noted.changed > 0) {
        return Ok(());
    }
    chats::key_of(writing.connection(), chat).await.map(|_| ())
}

/// Shows the messages at these places and hides all others. Returns the generation that begins with it.
pub(super) async fn show(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    places: &[u64],
) -> Result<Option<u64>, StoreError> {
    let key = chats::key_of(connection, chat).await?;
    let places: Vec<i64> = places.iter().map(|place| to_sql(*place)).collect();
    let places = serde_json::json!(places).to_string();
    let open = sqlx::query(
        "SELECT 1 FROM messages WHERE chat = ?1 AND open = 1 AND cut_in IS NULL
           AND seq NOT IN (SELECT value FROM json_each(?2))",
    )
    .bind(&key)
    .bind(&places)
    .fetch_optional(&mut *connection)
    .await?;
    if open.is_some() {
        return Err(Conflict::ReplyOpen.into());
    }
    // Hidden first: one that is shown again may have the id of one that was shown.
    for statement in [
        "UPDATE messages
         SET cut_in = (SELECT generation + 1 FROM chats WHERE key = messages.chat)
         WHERE chat = ?1 AND cut_in IS NULL AND seq NOT IN (SELECT value FROM json_each(?2))",
        "UPDATE messages SET cut_in = NULL
         WHERE chat = ?1 AND cut_in IS NOT NULL AND seq IN (SELECT value FROM json_each(?2))",
    ] {
        sqlx::query(statement)
            .bind(&key)
            .bind(&places)
            .execute(&mut *connection)
            .await?;
    }
    next_generation(connection, &key).await.map(Some)
}

pub(super) async fn next_generation(
    connection: &mut SqliteConnection,
    key: &str,
) -> Result<u64, StoreError> {
    let generation: i64 = sqlx::query_scalar(
        "UPDATE chats SET generation = generation + 1 WHERE key = ?1 RETURNING generation",
    )
    .bind(key)
    .fetch_one(connection)
    .await?;
    Ok(from_sql(generation))
}
