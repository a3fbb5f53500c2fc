//! How SQLite is opened and written to: one writer, a few readers, and a new writer after a failure.

use std::path::Path;
use std::str::FromStr as _;
use std::sync::PoisonError;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, SqlSafeStr as _, SqliteConnection};
use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::sync::Sync;

use crate::store::{MAX_BODY_BYTES, StoreError};

/// How long a statement waits for another connection's lock. Only a writer that is being replaced holds one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a caller waits for its turn. A store that is behind by more is not going to catch up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads wait for the disk at most; more connections than this would not make it faster.
const READERS: usize = 4;

/// What a reader keeps in memory, as SQLite counts it (a negative number of KiB). It reads whole histories, each of them
/// rarely twice: the operating system has the pages anyway.
const READER_CACHE: &str = "-256";

/// What the writer keeps in memory, counted likewise: the upper levels of the indexes, and what one commit changes.
const WRITER_CACHE: &str = "-1024";

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
            why: Box::new(other),
        },
    })?;
    pool.close().await;
    Ok(())
}

/// Connections that only read: one statement each time, which sees one moment of the database.
pub(super) struct Readers {
    options: SqliteConnectOptions,
    idle: std::sync::Mutex<Vec<SqliteConnection>>,
    room: Semaphore,
}

/// A connection that is read from. Dropping it closes it: nobody could tell what it was doing.
pub(super) struct Reading<'r> {
    readers: &'r Readers,
    connection: SqliteConnection,
    _permit: SemaphorePermit<'r>,
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            options: options(path)
                .pragma("query_only", "ON")
                .pragma("cache_size", READER_CACHE),
            idle: std::sync::Mutex::default(),
            room: Semaphore::new(READERS),
        }
    }

    pub(super) async fn begin(&self) -> Result<Reading<'_>, StoreError> {
        let permit = timeout(PATIENCE, self.room.acquire())
            .await
            .map_err(|_| StoreError::Busy)?
            .map_err(|_| StoreError::Busy)?;
        let idle = self.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => SqliteConnection::connect_with(&self.options).await?,
        };
        Ok(Reading {
            readers: self,
            connection,
            _permit: permit,
        })
    }

    pub(super) async fn close(&self) -> Result<(), StoreError> {
        self.room.close();
        let idle = std::mem::take(&mut *self.lock());
        for connection in idle {
            connection.close().await?;
        }
        Ok(())
    }

    /// A list of connections is whole even if somebody panicked who held it.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<SqliteConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading<'_> {
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }

    /// Gives the connection back.
    pub(super) fn end<T>(self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        let usable = matches!(result, Ok(_) | Err(StoreError::NotFound(_)));
        if usable && !self.readers.room.is_closed() {
            self.readers.lock().push(self.connection);
        }
        result
    }
}

/// The one connection that writes.
pub(super) struct Writer {
    options: SqliteConnectOptions,
    slot: Mutex<Option<Ready>>,
    sync: Sync,
}

/// A connection outside of any transaction.
struct Ready {
    connection: SqliteConnection,
    durable: Durable,
}

/// What a write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    /// The end of the process at once, and that of the machine a moment later; it costs no wait for the disk.
    Process,
    /// The end of the machine: a payment that was journaled as started stays so after a power cut.
    Machine,
}

/// A transaction that is being written. Dropping it undoes it, together with its connection: SQLite ends a transaction
/// by itself after some failures, so that nobody could tell what state the connection is in.
pub(super) struct Writing<'w> {
    slot: MutexGuard<'w, Option<Ready>>,
    ready: Ready,
    sync: &'w Sync,
}

impl Writer {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            options: options(path).pragma("cache_size", WRITER_CACHE),
            slot: Mutex::new(None),
            sync: Sync::of_log(path),
        }
    }

    /// Waits for its turn and begins a transaction.
    pub(super) async fn begin(&self, durable: Durable) -> Result<Writing<'_>, StoreError> {
        let mut writing = self.turn(durable).await?;
        sqlx::query("BEGIN IMMEDIATE")
            .execute(writing.connection())
            .await?;
        Ok(writing)
    }

    /// Waits for its turn, for work whose first journey begins the transaction by itself.
    pub(super) async fn turn(&self, durable: Durable) -> Result<Writing<'_>, StoreError> {
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
            // It takes effect when it is prepared: a statement that was kept would do nothing.
            .persistent(false)
            .execute(&mut ready.connection)
            .await?;
            ready.durable = durable;
        }
        Ok(Writing {
            slot,
            ready,
            sync: &self.sync,
        })
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

    /// Ends work that has ended its transaction itself, or was one statement.
    pub(super) fn ended<T>(self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if matches!(result, Ok(_) | Err(StoreError::NotFound(_))) {
            self.keep();
        }
        result
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
        self.keep();
        result
    }

    /// Leaves the connection to the next one.
    fn keep(mut self) {
        if self.ready.durable == Durable::Process {
            self.sync.soon();
        }
        *self.slot = Some(self.ready);
    }
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
            why: Box::new(error),
        },
    }
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        // The log of statements costs more than the statements, even where nobody reads it.
        .disable_statement_logging()
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
    Migrator::with_migrations(vec![
        migration(
            1,
            "store",
            include_str!("../../../migrations/0001_store.sql"),
        ),
        migration(
            2,
            "waiting",
            include_str!("../../../migrations/0002_waiting.sql"),
        ),
    ])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The setting takes effect when it is prepared, and statements are kept: it must be prepared every time.
    #[tokio::test]
    async fn every_write_is_as_durable_as_it_is_asked_to_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        prepare(&path).await.unwrap();
        let writer = Writer::new(&path);
        for _ in 0..3 {
            for (durable, level) in [(Durable::Process, 1), (Durable::Machine, 2)] {
                let mut writing = writer.begin(durable).await.unwrap();
                let set: i64 = sqlx::query_scalar("PRAGMA synchronous")
                    .fetch_one(writing.connection())
                    .await
                    .unwrap();
                writing.end(Ok(())).await.unwrap();
                assert_eq!(set, level, "{durable:?}");
            }
        }
    }
}
