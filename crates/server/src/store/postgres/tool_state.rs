//! The state that tools keep for a chat, in PostgreSQL.

use serde_json::Value;
use sqlx::Row as _;
use tokio::time::Instant;

use super::PostgresStore;
use super::connection::{InUse, Intent, PAUSE, in_time};
use super::error::Failure;
use super::text::stored;
use crate::store::encoded::{decode, encode};
use crate::store::patience::PATIENCE;
use crate::store::{Change, ChatRef, Entity, StoreError};

pub(super) async fn get(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    key: &str,
) -> Result<Option<Value>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT s.value FROM adk_bridge.chats c
             LEFT JOIN adk_bridge.chat_state s ON s.chat = c.key AND s.key = $3
             WHERE c.user_id = $1 AND c.id = $2",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(stored(key))
    });
    let rows = rows.await?;
    let row = rows.first().ok_or(StoreError::NotFound(Entity::Chat))?;
    value_of(row.try_get(0)?)
}

/// How far a change has come.
enum Changing<'c> {
    Wanted(Change<'c>),
    Tried(Tried),
}

/// A change that was asked for, and may be stored or not.
#[derive(Clone)]
struct Tried {
    before: Option<String>,
    after: Option<String>,
    result: Value,
}

pub(super) async fn update(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    key: &str,
    change: Change<'_>,
) -> Result<Value, StoreError> {
    let connections = &store.shared.connections;
    let until = Instant::now() + PATIENCE;
    let mut pause = PAUSE;
    let mut changing = Some(Changing::Wanted(change));
    loop {
        let mut connection = match connections.take(Intent::Write, until).await {
            Ok(connection) => connection,
            Err(failure) => {
                connections.rest(failure, &mut pause, until).await?;
                continue;
            }
        };
        let done = in_time(until, async {
            connection.begin().await?;
            let done = change_in(&mut connection, store, chat, key, &mut changing).await;
            connection.end(done).await
        });
        let done = done.await;
        match connection.give_back(done) {
            Ok(result) => return Ok(result),
            Err(failure) => connections.rest(failure, &mut pause, until).await?,
        }
    }
}

/// Changes the value within a transaction. A change of which we do not know whether it was stored is compared with what is
/// there.
async fn change_in(
    connection: &mut InUse<'_>,
    store: &PostgresStore,
    chat: ChatRef<'_>,
    key: &str,
    changing: &mut Option<Changing<'_>>,
) -> Result<Value, Failure> {
    let locking = sqlx::query("SELECT chat, value FROM adk_bridge.locked_state($1, $2, $3, $4)")
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(store.epoch(chat))
        .bind(stored(key));
    let rows = connection.fetch_within(locking).await?;
    let row = (rows.first()).ok_or(Failure::Final(StoreError::NotFound(Entity::Chat)))?;
    let locked: i64 = row.try_get(0)?;
    let now: Option<String> = row.try_get(1)?;
    let tried = match changing.take() {
        Some(Changing::Tried(tried)) => tried,
        Some(Changing::Wanted(change)) => asked(change, now.clone()).map_err(Failure::Final)?,
        // It could not be asked.
        None => return Err(Failure::Final(StoreError::Busy)),
    };
    *changing = Some(Changing::Tried(tried.clone()));
    if now == tried.after {
        return Ok(tried.result);
    }
    if now != tried.before {
        // Somebody else has changed it since.
        return Err(Failure::Final(StoreError::Busy));
    }
    let setting = sqlx::query("SELECT adk_bridge.set_state($1, $2, $3)")
        .bind(locked)
        .bind(stored(key))
        .bind(tried.after);
    connection.fetch_within(setting).await?;
    Ok(tried.result)
}

fn asked(change: Change<'_>, before: Option<String>) -> Result<Tried, StoreError> {
    let (after, result) = change(value_of(before.as_deref())?);
    Ok(Tried {
        before,
        after: after.as_ref().map(encode).transpose()?,
        result,
    })
}

fn value_of(json: Option<&str>) -> Result<Option<Value>, StoreError> {
    json.map(|json| decode(json, "the state of a chat"))
        .transpose()
}
