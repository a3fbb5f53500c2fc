//! Rewrites what was stored before credentials were withheld, and makes a copy of the database without what it had there.
//!
//! ```text
//!   0008 lists rows ──▶ each is rewritten, a few per transaction ──▶ a copy replaces the file ──▶ the list is dropped
//! ```
//!
//! A process that ends in between begins again where it stopped. SQLite leaves what was overwritten in unused parts of
//! the file; only a copy has none of it.

use std::path::Path;

use adk_bridge_protocol::credentials::{shown_request, withhold};
use adk_bridge_protocol::json_text::Json;
use serde_json::value::RawValue;
use sqlx::{Connection as _, Row as _, SqliteConnection};

use super::with_suffix;
use crate::failpoint::failpoint;
use crate::store::make_private;

/// How many rows are rewritten in one transaction: messages may be long, and the log holds them twice.
const ROWS: i64 = 64;

/// What is left to be done after the rows have been looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cleaning {
    /// The database holds no list of rows.
    Done,
    /// Rows were rewritten; unused parts of the file may still hold what they had.
    CopyNeeded,
}

/// Rewrites the rows that are listed.
pub(super) async fn rewrite(connection: &mut SqliteConnection) -> sqlx::Result<Cleaning> {
    let listed: Option<i64> = sqlx::query_scalar(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'credentials'",
    )
    .fetch_optional(&mut *connection)
    .await?;
    if listed.is_none() {
        return Ok(Cleaning::Done);
    }
    while rewrite_some(connection).await? > 0 {
        failpoint("during", "credentials");
    }
    let rewritten: i64 = sqlx::query_scalar("SELECT count(*) FROM credentials")
        .fetch_one(&mut *connection)
        .await?;
    if rewritten > 0 {
        return Ok(Cleaning::CopyNeeded);
    }
    drop_list(connection).await?;
    Ok(Cleaning::Done)
}

pub(super) async fn drop_list(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    sqlx::query("DROP TABLE credentials")
        .execute(connection)
        .await
        .map(drop)
}

/// Copies what the database holds to a new file.
pub(super) async fn copy(connection: &mut SqliteConnection, to: &Path) -> sqlx::Result<()> {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let _ = std::fs::remove_file(with_suffix(to, suffix));
    }
    // SQLite takes a file that is empty.
    std::fs::File::create(to)?;
    make_private(to);
    sqlx::query("VACUUM INTO ?1")
        .bind(to.to_string_lossy().into_owned())
        .execute(connection)
        .await
        .map(drop)
}

/// Rewrites the next rows. Returns how many there were.
async fn rewrite_some(connection: &mut SqliteConnection) -> sqlx::Result<usize> {
    let mut transaction = connection.begin().await?;
    let rows = sqlx::query("SELECT source, row FROM credentials WHERE done = 0 LIMIT ?1")
        .bind(ROWS)
        .fetch_all(&mut *transaction)
        .await?;
    for row in &rows {
        let (source, row): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        let is_rewritten = match source.as_str() {
            "messages" => rewrite_message(&mut transaction, row).await?,
            "events" => rewrite_event(&mut transaction, row).await?,
            _ => rewrite_approval(&mut transaction, row).await?,
        };
        let finished = match is_rewritten {
            true => "UPDATE credentials SET done = 1 WHERE source = ?1 AND row = ?2",
            false => "DELETE FROM credentials WHERE source = ?1 AND row = ?2",
        };
        sqlx::query(finished)
            .bind(source)
            .bind(row)
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    Ok(rows.len())
}

async fn rewrite_message(connection: &mut SqliteConnection, seq: i64) -> sqlx::Result<bool> {
    let Some(row) = sqlx::query("SELECT chat, body, reply FROM messages WHERE seq = ?1")
        .bind(seq)
        .fetch_optional(&mut *connection)
        .await?
    else {
        return Ok(false);
    };
    let (chat, body, reply): (String, String, Option<String>) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let new_body = said_by_agent(&body).then(|| rest_of(&body)).flatten();
    let new_reply = reply.as_deref().and_then(rest_of);
    if new_body.is_none() && new_reply.is_none() {
        return Ok(false);
    }
    let length = |old: &str, new: &Option<String>| {
        new.as_ref()
            .map_or(0, |new| as_number(new.len()) - as_number(old.len()))
    };
    let grown = length(&body, &new_body) + length(reply.as_deref().unwrap_or_default(), &new_reply);
    sqlx::query("UPDATE messages SET body = ?2, reply = ?3 WHERE seq = ?1")
        .bind(seq)
        .bind(new_body.unwrap_or(body))
        .bind(new_reply.or(reply))
        .execute(&mut *connection)
        .await?;
    count(connection, &chat, grown).await?;
    Ok(true)
}

async fn rewrite_event(connection: &mut SqliteConnection, seq: i64) -> sqlx::Result<bool> {
    let row = sqlx::query("SELECT chat, body FROM events WHERE seq = ?1")
        .bind(seq)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = row else { return Ok(false) };
    let (chat, body): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let Some(new) = rest_of(&body) else {
        return Ok(false);
    };
    let grown = as_number(new.len()) - as_number(body.len());
    sqlx::query("UPDATE events SET body = ?2 WHERE seq = ?1")
        .bind(seq)
        .bind(new)
        .execute(&mut *connection)
        .await?;
    count(connection, &chat, grown).await?;
    Ok(true)
}

async fn rewrite_approval(connection: &mut SqliteConnection, row: i64) -> sqlx::Result<bool> {
    let input: Option<String> = sqlx::query_scalar("SELECT input FROM approvals WHERE rowid = ?1")
        .bind(row)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(input) = input else { return Ok(false) };
    let shown = shown_request(&Json::parse(&input).unwrap_or_default());
    sqlx::query("UPDATE approvals SET input = ?2 WHERE rowid = ?1")
        .bind(row)
        .bind(shown.to_string())
        .execute(connection)
        .await?;
    Ok(true)
}

/// Notes how much longer what a chat keeps has become.
async fn count(connection: &mut SqliteConnection, chat: &str, grown: i64) -> sqlx::Result<()> {
    sqlx::query("UPDATE chats SET bytes = max(bytes + ?2, 0) WHERE key = ?1")
        .bind(chat)
        .bind(grown)
        .execute(connection)
        .await
        .map(drop)
}

/// What users wrote is theirs.
fn said_by_agent(body: &str) -> bool {
    let role = Json::parse(body).ok().and_then(|body| body.get("role"));
    role == Some("assistant".into())
}

fn rest_of(text: &str) -> Option<String> {
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    withhold(raw).map(|rest| rest.to_string())
}

fn as_number(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
