//! What users have used of agents, in SQLite.

use adk_bridge_protocol::id::UserId;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use super::chats;
use crate::store::encoded::{from_sql, to_sql};
use crate::store::{ChatRef, Entity, ReplyUsage, Spent, StoreError, Tokens, UsageRow};

pub(super) async fn count(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    reply: ReplyUsage<'_>,
) -> Result<Spent, StoreError> {
    let key = chats::key_of(connection, chat).await?;
    let found = sqlx::query(
        "SELECT seq, coalesce(input, 0), coalesce(cached, 0), coalesce(output, 0)
         FROM messages LEFT JOIN counted_usage ON message = seq
         WHERE chat = ?1 AND id = ?2 AND reply IS NOT NULL ORDER BY seq DESC LIMIT 1",
    )
    .bind(key)
    .bind(reply.message_id.as_str())
    .fetch_optional(&mut *connection)
    .await?
    .ok_or(StoreError::NotFound(Entity::Message))?;
    let seq: i64 = found.try_get(0)?;
    let so_far = reply.so_far.bounded();
    let new = so_far.since(tokens(&found, 1)?).at(reply.price);
    if new.tokens.total() == 0 {
        return Ok(new);
    }
    sqlx::query(
        "INSERT INTO counted_usage (message, input, cached, output) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (message) DO UPDATE
         SET input = max(input, excluded.input), cached = max(cached, excluded.cached),
             output = max(output, excluded.output)",
    )
    .bind(seq)
    .bind(to_sql(so_far.input))
    .bind(to_sql(so_far.cached))
    .bind(to_sql(so_far.output))
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "INSERT INTO usage (user, day, agent, input, cached, output, cost) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (user, day, agent) DO UPDATE
         SET input = input + excluded.input, cached = cached + excluded.cached,
             output = output + excluded.output, cost = cost + excluded.cost",
    )
    .bind(chat.user.as_str())
    .bind(to_sql(reply.day))
    .bind(reply.agent)
    .bind(to_sql(new.tokens.input))
    .bind(to_sql(new.tokens.cached))
    .bind(to_sql(new.tokens.output))
    .bind(to_sql(new.cost))
    .execute(connection)
    .await?;
    Ok(new)
}

pub(super) async fn of_day(
    connection: &mut SqliteConnection,
    user: &UserId,
    day: u64,
) -> Result<Vec<UsageRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT input, cached, output, cost, day, agent FROM usage WHERE user = ?1 AND day = ?2 ORDER BY agent",
    )
    .bind(user.as_str())
    .bind(to_sql(day))
    .fetch_all(connection)
    .await?;
    rows.iter().map(row).collect()
}

pub(super) async fn of_user(
    connection: &mut SqliteConnection,
    user: &UserId,
    after: Option<(u64, &str)>,
    limit: u32,
) -> Result<Vec<UsageRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT input, cached, output, cost, day, agent FROM usage
         WHERE user = ?1 AND (?2 IS NULL OR (day, agent) > (?2, ?3)) ORDER BY day, agent LIMIT ?4",
    )
    .bind(user.as_str())
    .bind(after.map(|(day, _)| to_sql(day)))
    .bind(after.map(|(_, agent)| agent))
    .bind(limit)
    .fetch_all(connection)
    .await?;
    rows.iter().map(row).collect()
}

pub(super) async fn delete_before(
    connection: &mut SqliteConnection,
    day: u64,
    limit: u32,
) -> Result<u64, StoreError> {
    let deleted = sqlx::query(
        "DELETE FROM usage WHERE rowid IN (SELECT rowid FROM usage WHERE day < ?1 ORDER BY day LIMIT ?2)",
    )
    .bind(to_sql(day))
    .bind(limit)
    .execute(connection)
    .await?;
    Ok(deleted.rows_affected())
}

pub(super) async fn erase(
    connection: &mut SqliteConnection,
    user: &UserId,
) -> Result<u64, StoreError> {
    let erased = sqlx::query("DELETE FROM usage WHERE user = ?1")
        .bind(user.as_str())
        .execute(connection)
        .await?;
    Ok(erased.rows_affected())
}

fn row(row: &SqliteRow) -> Result<UsageRow, StoreError> {
    Ok(UsageRow {
        day: from_sql(row.try_get("day")?),
        agent: row.try_get("agent")?,
        spent: Spent {
            tokens: tokens(row, 0)?,
            cost: from_sql(row.try_get("cost")?),
        },
    })
}

/// The tokens in three columns.
fn tokens(row: &SqliteRow, first: usize) -> Result<Tokens, StoreError> {
    Ok(Tokens {
        input: from_sql(row.try_get(first)?),
        cached: from_sql(row.try_get(first + 1)?),
        output: from_sql(row.try_get(first + 2)?),
    })
}
