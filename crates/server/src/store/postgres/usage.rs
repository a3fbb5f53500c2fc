//! What users have used of agents, in PostgreSQL, by statements that can be repeated.

use adk_bridge_protocol::id::UserId;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::text::{loaded, stored};
use crate::store::encoded::{from_sql, to_sql};
use crate::store::{ChatRef, ReplyUsage, Spent, StoreError, Tokens, UsageRow};

pub(super) async fn count(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    reply: ReplyUsage<'_>,
) -> Result<Spent, StoreError> {
    let (so_far, price) = (reply.so_far.bounded(), reply.price);
    let rows = store.write(|| {
        sqlx::query(
            "SELECT new_input, new_cached, new_output, new_cost
             FROM adk_bridge.count_usage($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(store.epoch(chat))
        .bind(stored(reply.message_id.as_str()))
        .bind(stored(reply.agent))
        .bind(to_sql(reply.day))
        .bind(to_sql(so_far.input))
        .bind(to_sql(so_far.cached))
        .bind(to_sql(so_far.output))
        .bind(to_sql(price.input))
        .bind(to_sql(price.cached))
        .bind(to_sql(price.output))
    });
    let rows = rows.await?;
    spent(rows.first().ok_or(StoreError::Busy)?)
}

pub(super) async fn of_day(
    store: &PostgresStore,
    user: &UserId,
    day: u64,
) -> Result<Vec<UsageRow>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT input, cached, output, cost, day, agent FROM adk_bridge.usage
             WHERE user_id = $1 AND day = $2 ORDER BY agent",
        )
        .bind(stored(user.as_str()))
        .bind(to_sql(day))
    });
    rows.await?.iter().map(row).collect()
}

pub(super) async fn of_user(
    store: &PostgresStore,
    user: &UserId,
    after: Option<(u64, &str)>,
    limit: u32,
) -> Result<Vec<UsageRow>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT input, cached, output, cost, day, agent FROM adk_bridge.usage
             WHERE user_id = $1 AND ($2::bigint IS NULL OR (day, agent) > ($2, $3)) ORDER BY day, agent LIMIT $4",
        )
        .bind(stored(user.as_str()))
        .bind(after.map(|(day, _)| to_sql(day)))
        .bind(after.map(|(_, agent)| stored(agent)))
        .bind(i64::from(limit))
    });
    rows.await?.iter().map(row).collect()
}

pub(super) async fn delete_before(
    store: &PostgresStore,
    day: u64,
    limit: u32,
) -> Result<u64, StoreError> {
    let rows = store.write(|| {
        sqlx::query(
            "DELETE FROM adk_bridge.usage u USING
                 (SELECT user_id, day, agent FROM adk_bridge.usage WHERE day < $1 ORDER BY day LIMIT $2) old
             WHERE u.user_id = old.user_id AND u.day = old.day AND u.agent = old.agent RETURNING u.day",
        )
        .bind(to_sql(day))
        .bind(i64::from(limit))
    });
    Ok(rows.await?.len() as u64)
}

pub(super) async fn erase(store: &PostgresStore, user: &UserId) -> Result<u64, StoreError> {
    let rows = store.write(|| {
        sqlx::query("DELETE FROM adk_bridge.usage WHERE user_id = $1 RETURNING day")
            .bind(stored(user.as_str()))
    });
    Ok(rows.await?.len() as u64)
}

fn row(row: &PgRow) -> Result<UsageRow, StoreError> {
    Ok(UsageRow {
        day: from_sql(row.try_get("day")?),
        agent: loaded(row.try_get("agent")?),
        spent: spent(row)?,
    })
}

/// What is in the first four columns.
fn spent(row: &PgRow) -> Result<Spent, StoreError> {
    Ok(Spent {
        tokens: Tokens {
            input: from_sql(row.try_get(0)?),
            cached: from_sql(row.try_get(1)?),
            output: from_sql(row.try_get(2)?),
        },
        cost: from_sql(row.try_get(3)?),
    })
}
