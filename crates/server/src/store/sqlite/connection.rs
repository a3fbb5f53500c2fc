//! How SQLite is opened and written to: one writer, a few readers, and a new writer after a failure.

use std::path::Path;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Connection as _, SqlSafeStr as _, Sqlite, SqliteConnection, Transaction};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

use crate::store::{MAX_BODY_BYTES, StoreError};

/// How long a statement waits for another connection's lock. Only a writer that is being replaced holds one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a caller waits for its turn. A store that is behind by more is not going to catch up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads wait for the disk at most; more connections than this would not make it faster.
const READERS: u32 = 4;

/// What the log may keep on disk after a large write.
const LOG_BYTES: &str = "67108864";

/// What the first migration marks a database with.
const APPLICATION_ID: i64 = 1_094_994_754;

/// Brings the database up to date. A file that is no database of ours is left alone.
pub(super) async fn prepare(path: &Path) -> Result<(), StoreError> {
    let failed = |error| explain(error, path);
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect_with(options(path))
        .await
        .map_err(failed)?;
    let id: i64 = sqlx::query_scalar("PRAGMA application_id")
        .fetch_one(&pool)
        .await
        .map_err(failed)?;
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema")
        .fetch_one(&pool)
        .await
        .map_err(failed)?;
    if tables > 0 && id != APPLICATION_ID {
        return Err(StoreError::NotOurs {
            database: path.to_owned(),
        });
    }
    migrations().run(&pool).await.map_err(|error| match error {
        MigrateError::VersionMissing(schema) => StoreError::Newer {
            database: path.to_owned(),
            schema,
        },
        MigrateError::VersionMismatch(schema) => StoreError::Corrupt {
            what: format!("schema {schema} of {}", path.display()),
        },
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            explain(error, path)
        }
        other => StoreError::Io {
            doing: "bringing the database up to date",
            source: Box::new(other),
        },
    })?;
    pool.close().await;
    Ok(())
}

/// Connections that only read.
pub(super) fn readers(path: &Path) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(PATIENCE)
        .idle_timeout(None)
        .max_lifetime(None)
        // A connection to a file does not go away by itself.
        .test_before_acquire(false)
        .connect_lazy_with(options(path).pragma("query_only", "ON"))
}

/// The one connection that writes.
pub(super) struct Writer {
    options: SqliteConnectOptions,
    slot: Mutex<Option<Ready>>,
}

/// A connection outside of any transaction.
struct Ready {
    connection: SqliteConnection,
    durable: Durable,
}

/// What a write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    /// The end of the process; it costs no wait for the disk.
    Process,
    /// The end of the machine: a payment that was journaled as started stays so after a power cut.
    Machine,
}

/// A transaction that is being written. Dropping it undoes it, together with its connection: SQLite ends a transaction
/// by itself after some failures, so that nobody could tell what state the connection is in.
pub(super) struct Writing<'w> {
    slot: MutexGuard<'w, Option<Ready>>,
    ready: Ready,
}

impl Writer {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            options: options(path),
            slot: Mutex::new(None),
        }
    }

    /// Waits for its turn and begins a transaction.
    pub(super) async fn begin(&self, durable: Durable) -> Result<Writing<'_>, StoreError> {
        let mut slot = timeout(PATIENCE, self.slot.lock())
            .await
            .map_err(|_| StoreError::Busy)?;
        let mut ready = match slot.take() {
            Some(ready) => ready,
            None => Ready {
                connection: SqliteConnection::connect_with(&self.options).await?,
                durable: Durable::Machine,
            },
        };
        if ready.durable != durable {
            sqlx::query(match durable {
                Durable::Process => "PRAGMA synchronous = NORMAL",
                Durable::Machine => "PRAGMA synchronous = FULL",
            })
            .execute(&mut ready.connection)
            .await?;
            ready.durable = durable;
        }
        sqlx::query("BEGIN IMMEDIATE")
            .execute(&mut ready.connection)
            .await?;
        Ok(Writing { slot, ready })
    }

    pub(super) async fn close(&self) -> Result<(), StoreError> {
        if let Some(ready) = self.slot.lock().await.take() {
            ready.connection.close().await?;
        }
        Ok(())
    }
}

impl Writing<'_> {
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.ready.connection
    }

    /// Ends the transaction: a success is kept, a refusal leaves nothing behind.
    pub(super) async fn end<T>(mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        match &result {
            Ok(_) => {
                sqlx::query("COMMIT").execute(self.connection()).await?;
            }
            Err(
                StoreError::NotFound(_) | StoreError::Conflict(_) | StoreError::TooLarge { .. },
            ) => {
                sqlx::query("ROLLBACK").execute(self.connection()).await?;
            }
            Err(_) => return result,
        }
        *self.slot = Some(self.ready);
        result
    }
}

/// Reads from one moment of the database.
pub(super) async fn snapshot(readers: &SqlitePool) -> Result<Transaction<'_, Sqlite>, StoreError> {
    Ok(readers.begin().await?)
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        explain(error, Path::new("the database"))
    }
}

fn explain(error: sqlx::Error, database: &Path) -> StoreError {
    const SQLITE_BUSY: u32 = 5;
    const SQLITE_LOCKED: u32 = 6;
    const SQLITE_CORRUPT: u32 = 11;
    const SQLITE_TOOBIG: u32 = 18;
    const SQLITE_NOTADB: u32 = 26;

    // The lower byte is the kind of an extended code.
    let code = error
        .as_database_error()
        .and_then(|error| error.code())
        .and_then(|code| u32::from_str(&code).ok())
        .map(|code| code & 0xff);
    match (code, &error) {
        (Some(SQLITE_BUSY | SQLITE_LOCKED), _) | (_, sqlx::Error::PoolTimedOut) => StoreError::Busy,
        (Some(SQLITE_CORRUPT | SQLITE_NOTADB), _) => StoreError::Corrupt {
            what: database.display().to_string(),
        },
        (Some(SQLITE_TOOBIG), _) => StoreError::TooLarge {
            bytes: MAX_BODY_BYTES.saturating_add(1),
            limit: MAX_BODY_BYTES,
        },
        (_, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => StoreError::Corrupt {
            what: format!("a row of {} ({error})", database.display()),
        },
        _ => StoreError::Io {
            doing: "using the database",
            source: Box::new(error),
        },
    }
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("journal_size_limit", LOG_BYTES)
        // Sorting and temporary tables hold conversations; they stay out of the system's temporary directory.
        .pragma("temp_store", "MEMORY")
}

fn migrations() -> Migrator {
    let migration = |version, description: &'static str, sql: &'static str| {
        Migration::new(
            version,
            description.into(),
            MigrationType::Simple,
            sql.into_sql_str(),
            false,
        )
    };
    Migrator::with_migrations(vec![migration(
        1,
        "store",
        include_str!("../../../migrations/0001_store.sql"),
    )])
}
