//! Moves a store from SQLite into PostgreSQL, a few rows at a time.
//!
//! ```text
//!   begun ── rows, table by table, with how far it has come ──▶ counted ──▶ finished
//!     ▲            │ interrupted
//!     └────────────┘ goes on after the last row that is there
//! ```

mod copy;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _,
    SqliteConnection,
};

use super::postgres::{self, PostgresConfig, PostgresStore};
use super::sqlite::{DATABASE, SqliteStore};
use super::{DataDir, Store as _, StoreError};
use crate::failpoint::failpoint;
use copy::Lines;
use tables::{TABLES, Table};

/// How many rows are moved at once, and how many bytes they have unless a single one has more.
const ROWS: i64 = 1_000;
const BYTES: i64 = 8 * 1024 * 1024;

/// A replica that gave a sign of life in this time is running.
const RUNNING: &str = "1 minute";

/// What was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transferred {
    /// How many rows each table has, by its name.
    pub rows: Vec<(&'static str, u64)>,
    /// How many of them were moved by an earlier run.
    pub earlier: u64,
    /// Whether there was nothing left to do.
    pub was_finished: bool,
}

/// Why nothing was moved, or not everything.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("{} has no database; name a data directory, or a SQLite database", .0.display())]
    NoSource(PathBuf),
    #[error(
        "the target has chats or an audit that do not come from this source; name an empty database"
    )]
    OtherData,
    #[error(
        "a bridge uses the target, or did within the last minute; stop it, and wait a minute if it was killed"
    )]
    TargetInUse,
    #[error(
        "the source has changed since it was moved, or a part of it; name an empty database, and begin again. What the target \
         has stays there: a bridge may have used it since"
    )]
    Changed,
    #[error(
        "{table}: the source has {expected} rows and the target {found}; the target is not used"
    )]
    Differs {
        table: &'static str,
        expected: i64,
        found: i64,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Moves everything but the content of files. `from`: a data directory or a database.
pub async fn transfer(from: &Path, to: &str) -> Result<Transferred, TransferError> {
    let database = match from.is_dir() {
        true => from.join(DATABASE),
        false => from.to_owned(),
    };
    if !database.is_file() {
        return Err(TransferError::NoSource(from.to_owned()));
    }
    // Locked until the end: a bridge that runs on it is named, and none can be started. Brought up to date on the way.
    let data = Arc::new(DataDir::open(directory_of(from))?);
    let source = SqliteStore::open(data, Some(&database)).await?;
    let target = PostgresStore::open_unfinished(PostgresConfig {
        url: to,
        connections: 1,
        prepared_statements: Some(false),
    });
    let target = target.await?;
    let moving = async {
        let mut moving = Moving {
            source: reader(&database).await?,
            target: connect(to).await?,
        };
        moving.run().await
    };
    let moved = moving.await;
    target.close().await?;
    source.close().await?;
    moved
}

/// The data directory that `from` is, or the one in which it is a database.
pub fn directory_of(from: &Path) -> &Path {
    match from.parent() {
        _ if from.is_dir() => from,
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// A move that is under way.
struct Moving {
    source: SqliteConnection,
    target: PgConnection,
}

impl Moving {
    async fn run(&mut self) -> Result<Transferred, TransferError> {
        let was_finished = self.begin().await?;
        let earlier = self.present().await?;
        if !was_finished {
            for table in &TABLES {
                while self.batch(table).await? {
                    failpoint("after", "batch");
                }
            }
        }
        let rows = match was_finished {
            // It has been used since.
            true => self.counts().await?,
            false => self.verify().await?,
        };
        if !was_finished {
            self.finish().await?;
        }
        Ok(Transferred {
            rows,
            earlier,
            was_finished,
        })
    }

    /// Notes what is moved, or finds that it was begun before. Returns whether it has finished.
    async fn begin(&mut self) -> Result<bool, TransferError> {
        let running = format!(
            "SELECT EXISTS (SELECT 1 FROM adk_bridge.replicas WHERE heartbeat > now() - interval '{RUNNING}')"
        );
        if self.ask::<bool>(running).await? {
            return Err(TransferError::TargetInUse);
        }
        let id: String = sqlx::query_scalar("SELECT id FROM store")
            .fetch_one(&mut self.source)
            .await
            .map_err(StoreError::from)?;
        let fingerprint = self.fingerprint().await?;
        let sql = "SELECT source, fingerprint, finished_at IS NOT NULL FROM adk_bridge.transfer";
        let begun = self.target.fetch_optional(sqlx::raw_sql(sql)).await;
        let begun = begun.map_err(StoreError::from)?;
        if let Some(row) = begun {
            let source: String = row.try_get(0).map_err(StoreError::from)?;
            let stored: String = row.try_get(1).map_err(StoreError::from)?;
            let finished: bool = row.try_get(2).map_err(StoreError::from)?;
            return match (source == id, stored == fingerprint) {
                (false, _) => Err(TransferError::OtherData),
                (true, false) => Err(TransferError::Changed),
                (true, true) => Ok(finished),
            };
        }
        let other = "SELECT EXISTS (SELECT 1 FROM adk_bridge.chats) OR EXISTS (SELECT 1 FROM adk_bridge.audit)
                         OR EXISTS (SELECT 1 FROM adk_bridge.secrets)";
        if self.ask::<bool>(other.to_owned()).await? {
            return Err(TransferError::OtherData);
        }
        let note =
            sqlx::query("INSERT INTO adk_bridge.transfer (source, fingerprint) VALUES ($1, $2)");
        self.write(note.bind(id).bind(fingerprint)).await?;
        Ok(false)
    }

    /// What tells whether the source has changed: every turn changes some of it.
    async fn fingerprint(&mut self) -> Result<String, StoreError> {
        let row = sqlx::query(
            "SELECT (SELECT printf('%d %d %d', count(*), coalesce(sum(bytes), 0), coalesce(max(updated_at), 0)) FROM chats),
                    (SELECT printf('%d %d', count(*), coalesce(max(seq), 0)) FROM messages),
                    (SELECT printf('%d %d', count(*), coalesce(max(id), 0)) FROM audit),
                    (SELECT printf('%d', count(*)) FROM files),
                    (SELECT printf('%d %d %d', count(*), coalesce(max(message), 0), coalesce(sum(octet_length(text)), 0))
                     FROM grown_texts),
                    (SELECT printf('%d', schema_version) FROM pragma_schema_version)",
        )
        .fetch_one(&mut self.source)
        .await?;
        let parts: Result<Vec<String>, sqlx::Error> =
            (0..6).map(|part| row.try_get(part)).collect();
        Ok(parts?.join(", "))
    }

    /// Moves some rows of a table, with how far it has come. Returns whether there may be more.
    async fn batch(&mut self, table: &Table) -> Result<bool, TransferError> {
        let last = format!(
            "SELECT coalesce((SELECT last_row FROM adk_bridge.transferred WHERE table_name = '{}'), 0)",
            table.name
        );
        let after: i64 = self.ask(last).await?;
        let Some(until) = self.reach(table, after).await? else {
            return Ok(false);
        };
        let columns: Vec<&str> = (table.columns.iter())
            .map(|column| column.expression)
            .collect();
        let rows = sqlx::query(AssertSqlSafe(format!(
            "SELECT {} FROM {} AND {row} > ?1 AND {row} <= ?2 ORDER BY {row}",
            columns.join(", "),
            table.source,
            row = table.row,
        )))
        .bind(after)
        .bind(until)
        .fetch_all(&mut self.source)
        .await
        .map_err(StoreError::from)?;
        let mut lines = Lines::default();
        for row in &rows {
            let mut line = lines.line();
            for (index, column) in table.columns.iter().enumerate() {
                column.write(row, index, &mut line)?;
            }
        }
        self.put(table, lines, until).await?;
        Ok(true)
    }

    /// The last row that the next batch takes; none if there are no more.
    async fn reach(&mut self, table: &Table, after: i64) -> Result<Option<i64>, StoreError> {
        let rows = sqlx::query(AssertSqlSafe(format!(
            "SELECT {row}, {} FROM {} AND {row} > ?1 ORDER BY {row} LIMIT {ROWS}",
            table.bytes,
            table.source,
            row = table.row,
        )))
        .bind(after)
        .fetch_all(&mut self.source)
        .await?;
        let (mut until, mut bytes) = (None, 0);
        for row in rows {
            let length: i64 = row.try_get(1)?;
            bytes += length;
            if until.is_some() && bytes > BYTES {
                break;
            }
            until = Some(row.try_get(0)?);
        }
        Ok(until)
    }

    async fn put(&mut self, table: &Table, lines: Lines, until: i64) -> Result<(), StoreError> {
        let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
        let statement = format!(
            "COPY adk_bridge.{} ({}) FROM STDIN",
            table.name,
            names.join(", ")
        );
        let mut transaction = self.target.begin().await?;
        let mut copy = transaction.copy_in_raw(&statement).await?;
        copy.send(lines.into_bytes()).await?;
        copy.finish().await?;
        let note = format!(
            "INSERT INTO adk_bridge.transferred (table_name, last_row) VALUES ('{}', {until})
             ON CONFLICT (table_name) DO UPDATE SET last_row = excluded.last_row",
            table.name
        );
        transaction
            .execute(sqlx::raw_sql(AssertSqlSafe(note)))
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// How many rows there are already.
    async fn present(&mut self) -> Result<u64, TransferError> {
        let counts = self.counts().await?;
        Ok(counts.iter().map(|(_, rows)| rows).sum())
    }

    async fn counts(&mut self) -> Result<Vec<(&'static str, u64)>, TransferError> {
        let mut counts = Vec::new();
        for table in &TABLES {
            let sql = format!("SELECT count(*) FROM adk_bridge.{}", table.name);
            let found: i64 = self.ask(sql).await?;
            counts.push((table.name, super::encoded::from_sql(found)));
        }
        Ok(counts)
    }

    /// Compares both sides.
    async fn verify(&mut self) -> Result<Vec<(&'static str, u64)>, TransferError> {
        let found = self.counts().await?;
        for (table, (_, found)) in TABLES.iter().zip(&found) {
            let sql = format!("SELECT count(*) FROM {}", table.source);
            let expected: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
                .fetch_one(&mut self.source)
                .await
                .map_err(StoreError::from)?;
            let found = super::encoded::to_sql(*found);
            if expected != found {
                return Err(TransferError::Differs {
                    table: table.name,
                    expected,
                    found,
                });
            }
        }
        Ok(found)
    }

    /// Lets new rows be counted on, takes over the identity of the source, and opens the target to bridges.
    async fn finish(&mut self) -> Result<(), TransferError> {
        let sql = "
            SELECT setval(pg_get_serial_sequence('adk_bridge.chats', 'key'), max(key)) FROM adk_bridge.chats;
            SELECT setval(pg_get_serial_sequence('adk_bridge.messages', 'seq'), max(seq)) FROM adk_bridge.messages;
            SELECT setval(pg_get_serial_sequence('adk_bridge.events', 'seq'), max(seq)) FROM adk_bridge.events;
            -- Rows of the audit that were given up had ids too, and no id is given twice.
            SELECT setval(pg_get_serial_sequence('adk_bridge.audit', 'id'), max(last.id))
            FROM (SELECT max(id) AS id FROM adk_bridge.audit
                  UNION ALL SELECT nullif(max(through_row), 0) FROM adk_bridge.audit_seals) AS last;
            UPDATE adk_bridge.store SET id = (SELECT source FROM adk_bridge.transfer);
            UPDATE adk_bridge.transfer SET finished_at = now()";
        let done = self.target.execute(sqlx::raw_sql(sql)).await;
        done.map_err(StoreError::from)?;
        Ok(())
    }

    async fn ask<T>(&mut self, sql: String) -> Result<T, StoreError>
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        let row = self
            .target
            .fetch_one(sqlx::raw_sql(AssertSqlSafe(sql)))
            .await?;
        Ok(row.try_get(0)?)
    }

    async fn write(&mut self, statement: postgres::Statement<'_>) -> Result<(), StoreError> {
        let mut transaction = self.target.begin().await?;
        transaction.execute(statement.persistent(false)).await?;
        transaction.commit().await?;
        Ok(())
    }
}

async fn reader(database: &Path) -> Result<SqliteConnection, StoreError> {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .read_only(true)
        .disable_statement_logging();
    Ok(SqliteConnection::connect_with(&options).await?)
}

async fn connect(url: &str) -> Result<PgConnection, StoreError> {
    let (options, _): (PgConnectOptions, _) = postgres::options(url)?;
    Ok(PgConnection::connect_with(&options).await?)
}
