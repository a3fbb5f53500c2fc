//! Chats: made, found, listed, renamed, deleted.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::PostgresStore;
use super::text::{loaded, stored};
use crate::store::encoded::{from_sql, to_sql};
use crate::store::{
    Chat, ChatCursor, ChatRef, Entity, ListedChat, MAX_LISTED, MAX_TITLES, OldChat, StoreError,
};

pub(super) async fn create(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    now: Timestamp,
) -> Result<Chat, StoreError> {
    let rows = store.write(|| {
        sqlx::query(
            "SELECT id, title, created_at, updated_at, generation, agent
             FROM adk_bridge.create_chat($1, $2, $3, $4)",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(store.epoch(chat))
        .bind(to_sql(now.as_millis()))
    });
    first(&rows.await?)
}

pub(super) async fn find(
    store: &PostgresStore,
    chat: ChatRef<'_>,
) -> Result<Option<Chat>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT id, title, created_at, updated_at, generation, agent
             FROM adk_bridge.chats WHERE user_id = $1 AND id = $2",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
    });
    rows.await?.first().map(read).transpose()
}

/// The columns of a chat in a list.
const LISTED: &str = "SELECT c.id, c.title, c.created_at, c.updated_at, c.generation, c.agent,
        (SELECT count(*) FROM adk_bridge.approvals a
         WHERE a.chat = c.key AND a.state = 'requested') AS waiting,
        ARRAY(SELECT o.name
              FROM adk_bridge.messages m, unnest(m.owed) WITH ORDINALITY AS o (name, place)
              WHERE m.chat = c.key AND m.open AND m.state = 'waiting'
              ORDER BY m.seq, o.place) AS owed
     FROM adk_bridge.chats c";

/// What comes after a chat in a list; the parameters are the user, the place of that chat, and how many.
const AFTER: &str = "WHERE c.user_id = $1 AND (c.updated_at, c.id) < ($2, $3)
     ORDER BY c.updated_at DESC, c.id DESC LIMIT $4";

pub(super) async fn list(
    store: &PostgresStore,
    user: &UserId,
    limit: u32,
    before: Option<ChatCursor<'_>>,
) -> Result<Vec<ListedChat>, StoreError> {
    let before = before.unwrap_or(ChatCursor::START);
    let rows = store.read(|| {
        sqlx::query(AssertSqlSafe(format!("{LISTED} {AFTER}")))
            .bind(stored(user.as_str()))
            .bind(to_sql(before.updated.as_millis()))
            .bind(stored(before.id.as_str()))
            .bind(i64::from(limit.min(MAX_LISTED)))
    });
    rows.await?.iter().map(read_listed).collect()
}

pub(super) async fn listed(
    store: &PostgresStore,
    user: &UserId,
    ids: &[ChatId],
) -> Result<Vec<ListedChat>, StoreError> {
    let ids: Vec<String> = ids.iter().map(|id| stored(id.as_str()).into()).collect();
    let rows = store.read(|| {
        sqlx::query(AssertSqlSafe(format!(
            "{LISTED} WHERE c.user_id = $1 AND c.id = ANY ($2)
             ORDER BY c.updated_at DESC, c.id DESC"
        )))
        .bind(stored(user.as_str()))
        .bind(ids.clone())
    });
    rows.await?.iter().map(read_listed).collect()
}

pub(super) async fn titles(
    store: &PostgresStore,
    user: &UserId,
    limit: u32,
    before: Option<ChatCursor<'_>>,
) -> Result<Vec<Chat>, StoreError> {
    let before = before.unwrap_or(ChatCursor::START);
    let rows = store.read(|| {
        sqlx::query(AssertSqlSafe(format!(
            "SELECT c.id, c.title, c.created_at, c.updated_at, c.generation, c.agent
             FROM adk_bridge.chats c {AFTER}"
        )))
        .bind(stored(user.as_str()))
        .bind(to_sql(before.updated.as_millis()))
        .bind(stored(before.id.as_str()))
        .bind(i64::from(limit.min(MAX_TITLES)))
    });
    rows.await?.iter().map(read).collect()
}

fn read_listed(row: &PgRow) -> Result<ListedChat, StoreError> {
    let owed: Vec<String> = row.try_get("owed")?;
    Ok(ListedChat {
        chat: read(row)?,
        waiting: from_sql(row.try_get("waiting")?),
        owed: owed.into_iter().map(loaded).collect(),
    })
}

pub(super) async fn old(
    store: &PostgresStore,
    before: Timestamp,
    after: u64,
    limit: u32,
) -> Result<Vec<OldChat>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT c.key, c.user_id, c.id FROM adk_bridge.chats c
             WHERE c.key > $1 AND c.updated_at < $2
               AND NOT EXISTS (SELECT 1 FROM adk_bridge.messages m WHERE m.chat = c.key AND m.open)
             ORDER BY c.key LIMIT $3",
        )
        .bind(to_sql(after))
        .bind(to_sql(before.as_millis()))
        .bind(i64::from(limit))
    });
    let old = |row: &PgRow| {
        Ok(OldChat {
            row: from_sql(row.try_get(0)?),
            user: loaded(row.try_get(1)?).into(),
            chat_id: loaded(row.try_get(2)?).into(),
        })
    };
    rows.await?.iter().map(old).collect()
}

pub(super) async fn set_title(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    title: &str,
) -> Result<(), StoreError> {
    let done = store.write(|| {
        sqlx::query("SELECT adk_bridge.set_title($1, $2, $3, $4)")
            .bind(stored(chat.user.as_str()))
            .bind(stored(chat.id.as_str()))
            .bind(store.epoch(chat))
            .bind(stored(title))
    });
    done.await.map(|_| ())
}

pub(super) async fn delete(
    store: &PostgresStore,
    chat: ChatRef<'_>,
) -> Result<Vec<String>, StoreError> {
    let attempts = AtomicU32::new(0);
    let rows = store.write(|| {
        attempts.fetch_add(1, Relaxed);
        sqlx::query("SELECT adk_bridge.delete_chat($1, $2, $3)")
            .bind(stored(chat.user.as_str()))
            .bind(stored(chat.id.as_str()))
            .bind(store.epoch(chat))
    });
    match rows.await {
        Ok(rows) => (rows.iter()).map(|row| Ok(row.try_get(0)?)).collect(),
        // Deleted by an attempt of which we did not hear. Its files are remembered as deleted.
        Err(StoreError::NotFound(Entity::Chat)) if attempts.load(Relaxed) > 1 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The chat that a function has returned.
pub(super) fn first(rows: &[PgRow]) -> Result<Chat, StoreError> {
    rows.first()
        .map(read)
        .unwrap_or(Err(StoreError::NotFound(Entity::Chat)))
}

fn read(row: &PgRow) -> Result<Chat, StoreError> {
    let optional = |text: Option<String>| text.map(loaded);
    Ok(Chat {
        id: loaded(row.try_get("id")?).into(),
        title: optional(row.try_get("title")?),
        created: Timestamp::from_millis(from_sql(row.try_get("created_at")?)),
        updated: Timestamp::from_millis(from_sql(row.try_get("updated_at")?)),
        generation: from_sql(row.try_get("generation")?),
        agent: optional(row.try_get("agent")?),
    })
}
