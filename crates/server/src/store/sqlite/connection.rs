//! Connections to SQLite: one writer, a few readers, and a new writer after a failure.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection as _, SqlSafeStr as _, SqliteConnection, SqlitePool};
use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::time::Timestamp;

use super::batch_thread::BatchThread;
use super::credentials::{self, Cleaning};
use super::look::directory_of;
use super::reserve::Reserve;
use super::statement_batch::{StatementBatch, StatementResult};
use super::sync::Sync;
use super::with_suffix;
use crate::store::encoded::to_sql;

use crate::failpoint::failpoint;
use crate::store::{MAX_BODY_BYTES, StoreError, WriteProblem};

/// The queue of the store itself, which has no user.
pub(super) const STORE: &UserId = &UserId::literal("");

/// How long a statement waits for another connection's lock. Only a writer that is being replaced holds one.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a test write waits for another connection's lock: a health check needs a quick answer.
const TRY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a caller waits for the writer. A store that lags by more will not catch up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many users' queues are remembered before those that are empty are forgotten.
const MAX_QUEUES: usize = 256;

/// Reads only wait for the disk; more connections would not make it faster.
const READERS: usize = 4;

/// The cache of a reader, as SQLite counts it (a negative number of KiB). It reads whole histories, rarely twice, and
/// the operating system caches the pages anyway.
const READER_CACHE: &str = "-256";

/// The cache of the writer, counted likewise: the upper levels of the indexes, and what one commit changes.
pub(super) const WRITER_CACHE: &str = "-1024";

/// What SQLite has for a page of the database, and adds to it in the log.
const PAGE_BYTES: u64 = 4096;
const FRAME_BYTES: u64 = 24;

/// The mark that the first migration leaves in a database.
pub(super) const APPLICATION_ID: i64 = 1_094_994_754;

/// Migrates the database, after it was inspected. A new one is created under another name and renamed when it is
/// complete: a process that is killed in between leaves nothing that the next start cannot read.
pub(super) async fn prepare(path: &Path) -> Result<(), StoreError> {
    let is_new = std::fs::metadata(path).map_or(true, |found| found.len() == 0);
    if !is_new {
        return migrate(path, path).await;
    }
    let failed = StoreError::io("making the database");
    let draft = with_suffix(path, "-new");
    for suffix in ["", "-journal", "-wal", "-shm"] {
        match std::fs::remove_file(with_suffix(&draft, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    migrate(&draft, path).await?;
    failpoint("before", "database");
    std::fs::rename(&draft, path).map_err(failed)?;
    // Makes the new name survive a power cut. Systems on which a directory cannot be opened do so on their own.
    if let Ok(directory) = std::fs::File::open(directory_of(path)) {
        let _ = directory.sync_all();
    }
    failpoint("after", "database");
    Ok(())
}

/// Runs the migrations that a file lacks; `path` is the name that errors give it.
async fn migrate(file: &Path, path: &Path) -> Result<(), StoreError> {
    let failed = |error| explain(error, path);
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect_with(options(file))
        .await
        .map_err(failed)?;
    failpoint("before", "migration");
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
    failpoint("after", "migration");
    let cleaned = withhold_credentials(&pool, file).await;
    // The last connection brings the log into the file and removes it.
    pool.close().await;
    match cleaned {
        Ok(Some(copy)) => replace(file, &copy).await,
        Ok(None) => Ok(()),
        Err(error) => {
            let error = explain(error, path);
            tracing::warn!(%error, "credentials that an agent asked for before this version are still in the database; \
                the next start tries again to remove them");
            Ok(())
        }
    }
}

/// How many migrations a database lacks; refuses one that a newer version has written.
pub(super) async fn versions(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<usize, StoreError> {
    let applied = sqlx::query_scalar("SELECT version FROM _sqlx_migrations");
    let applied: Vec<i64> = applied
        .fetch_all(connection)
        .await
        .map_err(|error| explain(error, path))?;
    let known = migrations();
    match applied.iter().find(|it| !known.version_exists(**it)) {
        Some(schema) => Err(StoreError::Newer {
            database: path.to_owned(),
            schema: *schema,
        }),
        None => {
            let pending = known.iter().filter(|it| !applied.contains(&it.version));
            Ok(pending.count())
        }
    }
}

/// Removes credentials that were stored before they were withheld. Returns the copy that is to replace the file.
async fn withhold_credentials(pool: &SqlitePool, file: &Path) -> sqlx::Result<Option<PathBuf>> {
    let mut connection = pool.acquire().await?;
    match credentials::rewrite(&mut connection).await? {
        Cleaning::Done => Ok(None),
        Cleaning::CopyNeeded => {
            let copy = with_suffix(file, "-new");
            credentials::copy(&mut connection, &copy).await?;
            Ok(Some(copy))
        }
    }
}

/// Puts a copy in the place of a database that nobody has open.
async fn replace(file: &Path, copy: &Path) -> Result<(), StoreError> {
    let failed = StoreError::io("replacing the database by a copy without credentials");
    let synced = std::fs::File::open(copy).and_then(|copy| copy.sync_all());
    synced.map_err(StoreError::io("making a copy of the database"))?;
    failpoint("before", "copy");
    std::fs::rename(copy, file).map_err(failed)?;
    if let Ok(directory) = std::fs::File::open(directory_of(file)) {
        let _ = directory.sync_all();
    }
    failpoint("after", "copy");
    let mut connection = SqliteConnection::connect_with(&options(file)).await?;
    credentials::drop_list(&mut connection).await?;
    connection.close().await?;
    Ok(())
}

/// Read-only connections: each statement sees one snapshot of the database.
pub(super) struct Readers {
    options: SqliteConnectOptions,
    idle: std::sync::Mutex<Vec<SqliteConnection>>,
    room: Semaphore,
}

/// A connection that is being read from. Dropping it closes it, because its state is then unknown.
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

    /// Readers of a database that nobody may have open. A file without a log next to it is written by nobody, and nothing is
    /// created next to it.
    pub(super) fn of_unchanged(path: &Path) -> Self {
        Self {
            options: SqliteConnectOptions::new()
                .filename(path)
                .disable_statement_logging()
                .read_only(true)
                .immutable(!with_suffix(path, "-wal").exists())
                .busy_timeout(BUSY_TIMEOUT)
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

    /// Poisoning is ignored: no critical section can leave the list inconsistent.
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

/// The connections that write, one at a time. It is fair between users: however much one user writes, the others wait for at most
/// one of those writes.
pub(super) struct Writer {
    options: SqliteConnectOptions,
    /// The writes of one user queue here, before they compete with those of others.
    queues: std::sync::Mutex<HashMap<UserId, Weak<Mutex<()>>>>,
    slot: Mutex<Option<Ready>>,
    batches: BatchThread,
    sync: Sync,
    reserve: Arc<Reserve>,
    /// How many pages the log has when it is checkpointed.
    log_pages: u64,
}

/// A connection outside of any transaction.
struct Ready {
    connection: SqliteConnection,
    durable: Durability,
    /// Whether it never checkpoints the log.
    keeps_log: bool,
}

/// How durable a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// Survives the end of the process at once, and a crash of the machine a moment later; does not wait for the disk.
    Process,
    /// Survives a crash of the machine: a payment that was journaled as started stays so after a power cut.
    Machine,
}

/// A transaction that is being written. Dropping it rolls it back and closes the connection: SQLite ends a transaction
/// on its own after some failures, so the state of the connection is unknown.
pub(super) struct Writing<'w> {
    slot: MutexGuard<'w, Option<Ready>>,
    ready: Ready,
    writer: &'w Writer,
    _head_of_queue: OwnedMutexGuard<()>,
}

impl Writer {
    pub(super) fn new(path: &Path, reserve: Arc<Reserve>, log_pages: u64) -> Self {
        let log_bytes = log_pages * (PAGE_BYTES + FRAME_BYTES);
        Self {
            options: options(path)
                .pragma("cache_size", WRITER_CACHE)
                .pragma("wal_autocheckpoint", log_pages.to_string())
                // The log shrinks again after a large write.
                .pragma("journal_size_limit", log_bytes.to_string()),
            queues: std::sync::Mutex::default(),
            slot: Mutex::new(None),
            batches: BatchThread::new(path, log_pages, log_bytes),
            sync: Sync::of_log(path),
            reserve,
            log_pages,
        }
    }

    /// Waits until the connection is free and begins a transaction.
    pub(super) async fn begin(
        &self,
        user: &UserId,
        durable: Durability,
    ) -> Result<Writing<'_>, StoreError> {
        let mut writing = self.turn(user, durable).await?;
        sqlx::query("BEGIN IMMEDIATE")
            .execute(writing.connection())
            .await?;
        Ok(writing)
    }

    /// Waits until the connection is free, for work whose first batch of statements begins the transaction.
    pub(super) async fn turn(
        &self,
        user: &UserId,
        durable: Durability,
    ) -> Result<Writing<'_>, StoreError> {
        let queue = self.queue_of(user);
        let waiting = async { (queue.lock_owned().await, self.slot.lock().await) };
        let (head_of_queue, mut slot) = timeout(PATIENCE, waiting)
            .await
            .map_err(|_| StoreError::Busy)?;
        let mut ready = match slot.take() {
            Some(ready) => ready,
            None => Ready {
                connection: SqliteConnection::connect_with(&self.options).await?,
                durable: Durability::Machine,
                keeps_log: false,
            },
        };
        if ready.keeps_log {
            set(&mut ready.connection, "wal_autocheckpoint", self.log_pages).await?;
            ready.keeps_log = false;
        }
        if ready.durable != durable {
            sqlx::query(match durable {
                Durability::Process => "PRAGMA synchronous = NORMAL",
                Durability::Machine => "PRAGMA synchronous = FULL",
            })
            // It takes effect when it is prepared: a cached statement would do nothing.
            .persistent(false)
            .execute(&mut ready.connection)
            .await?;
            ready.durable = durable;
        }
        Ok(Writing {
            slot,
            ready,
            writer: self,
            _head_of_queue: head_of_queue,
        })
    }

    /// Waits a moment until the connection is free and writes a little.
    pub(super) async fn try_write(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut writing = timeout(TRY_TIMEOUT, self.turn(STORE, Durability::Process))
            .await
            .map_err(|_| StoreError::Busy)??;
        let tried = async {
            let connection = writing.connection();
            set(connection, "busy_timeout", TRY_TIMEOUT.as_millis()).await?;
            sqlx::query("UPDATE store SET tried_at = ?1")
                .bind(to_sql(now.as_millis()))
                .execute(&mut *connection)
                .await?;
            set(connection, "busy_timeout", BUSY_TIMEOUT.as_millis()).await
        };
        let result = tried.await.map_err(StoreError::from);
        writing.release_after(result)
    }

    /// Checkpoints and truncates the log, as far as possible.
    pub(super) async fn shorten_log(&self) {
        if let Ok(mut writing) = self.turn(STORE, Durability::Machine).await {
            let done = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
                .fetch_one(writing.connection())
                .await;
            let _ = writing.release_after(done.map(|_| ()).map_err(StoreError::from));
        }
    }

    fn queue_of(&self, user: &UserId) -> Arc<Mutex<()>> {
        // Poisoning is ignored: no critical section can leave the map inconsistent.
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(user).and_then(Weak::upgrade) {
            return queue;
        }
        if queues.len() >= MAX_QUEUES {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::new(Mutex::new(()));
        queues.insert(user.to_owned(), Arc::downgrade(&queue));
        queue
    }

    pub(super) async fn close(&self) -> Result<(), StoreError> {
        self.batches.close().await;
        if let Some(ready) = self.slot.lock().await.take() {
            ready.connection.close().await?;
        }
        Ok(())
    }
}

/// Sets a pragma of the connection. It takes effect when it is prepared, so it is prepared every time.
async fn set(
    connection: &mut SqliteConnection,
    name: &'static str,
    value: impl std::fmt::Display,
) -> Result<(), sqlx::Error> {
    let sql = format!("PRAGMA {name} = {value}");
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(connection)
        .await
        .map(|_| ())
}

impl Writing<'_> {
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.ready.connection
    }

    /// Runs a batch that is a whole transaction.
    pub(super) async fn run(
        &mut self,
        batch: StatementBatch,
    ) -> Result<Vec<StatementResult>, sqlx::Error> {
        let batch = Arc::new(batch);
        if self.ready.durable == Durability::Process
            && let Some(results) = self.writer.batches.run(&batch).await
        {
            return Ok(results);
        }
        batch.run(self.connection()).await
    }

    /// Keeps writes in the log until the next write: a checkpoint may need more room than there is.
    pub(super) async fn keep_log(&mut self) -> Result<(), StoreError> {
        set(self.connection(), "wal_autocheckpoint", 0).await?;
        self.ready.keeps_log = true;
        Ok(())
    }

    /// Returns the connection after work that ended its transaction itself, or was one statement.
    pub(super) fn release_after<T>(self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if matches!(result, Ok(_) | Err(StoreError::NotFound(_))) {
            self.keep();
        }
        result
    }

    /// Ends the transaction: commits a success, rolls back an error.
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

    /// Makes the connection available again.
    fn keep(mut self) {
        if self.ready.durable == Durability::Process {
            self.writer.sync.soon();
        }
        // The reserve was given up for a deletion, and there may be room for it again.
        self.writer.reserve.take_if_missing();
        *self.slot = Some(self.ready);
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        explain(error, Path::new("the database"))
    }
}

pub(super) fn explain(error: sqlx::Error, database: &Path) -> StoreError {
    const SQLITE_BUSY: u32 = 5;
    const SQLITE_LOCKED: u32 = 6;
    const SQLITE_READONLY: u32 = 8;
    const SQLITE_IOERR: u32 = 10;
    const SQLITE_IOERR_SHMSIZE: u32 = 4874;
    const SQLITE_CORRUPT: u32 = 11;
    const SQLITE_FULL: u32 = 13;
    const SQLITE_TOOBIG: u32 = 18;
    const SQLITE_NOTADB: u32 = 26;

    let extended = error
        .as_database_error()
        .and_then(|error| error.code())
        .and_then(|code| u32::from_str(&code).ok());
    // The lower byte is the kind of an extended code.
    let code = extended.map(|code| code & 0xff);
    match (code, &error) {
        (Some(SQLITE_BUSY | SQLITE_LOCKED), _) => StoreError::Unwritable(WriteProblem::Locked),
        (Some(SQLITE_READONLY), _) => StoreError::Unwritable(WriteProblem::ReadOnly),
        (Some(SQLITE_FULL), _) => StoreError::Unwritable(WriteProblem::Full),
        // The index of the log could not grow.
        (Some(SQLITE_IOERR), _) if extended == Some(SQLITE_IOERR_SHMSIZE) => {
            StoreError::Unwritable(WriteProblem::Full)
        }
        (_, sqlx::Error::PoolTimedOut) => StoreError::Busy,
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
        // Logging of statements costs more than the statements, even if the log is not read.
        .disable_statement_logging()
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
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
        migration(
            3,
            "ids of users",
            include_str!("../../../migrations/0003_ids_of_users.sql"),
        ),
        migration(
            4,
            "branches",
            include_str!("../../../migrations/0004_branches.sql"),
        ),
        migration(
            5,
            "refused",
            include_str!("../../../migrations/0005_refused.sql"),
        ),
        migration(
            6,
            "bytes",
            include_str!("../../../migrations/0006_bytes.sql"),
        ),
        migration(
            7,
            "open replies",
            include_str!("../../../migrations/0007_open_replies.sql"),
        ),
        migration(
            8,
            "credentials",
            include_str!("../../../migrations/0008_credentials.sql"),
        ),
        migration(
            9,
            "agents",
            include_str!("../../../migrations/0009_agents.sql"),
        ),
        migration(
            11,
            "state bytes",
            include_str!("../../../migrations/0011_state_bytes.sql"),
        ),
        migration(
            12,
            "replica",
            include_str!("../../../migrations/0012_replica.sql"),
        ),
        migration(
            13,
            "grown texts",
            include_str!("../../../migrations/0013_grown_texts.sql"),
        ),
        migration(
            14,
            "audit chain",
            include_str!("../../../migrations/0014_audit_chain.sql"),
        ),
        migration(
            16,
            "logins",
            include_str!("../../../migrations/0016_logins.sql"),
        ),
        migration(
            17,
            "usage",
            include_str!("../../../migrations/0017_usage.sql"),
        ),
    ])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::store::sqlite::reserve::log_pages;

    #[test]
    fn every_migration_is_run() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".sql"))
            .collect();
        files.sort();
        let known: Vec<String> = migrations()
            .iter()
            .map(|it| format!("{:04}_{}.sql", it.version, it.description.replace(' ', "_")))
            .collect();
        assert_eq!(known, files);
    }

    fn writer(path: &Path) -> Writer {
        let reserve = Reserve::next_to(path);
        let pages = log_pages(reserve.bytes());
        Writer::new(path, Arc::new(reserve), pages)
    }

    #[tokio::test]
    async fn what_keeps_it_from_being_written_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        prepare(&path).await.unwrap();
        let run = async |connection: &mut SqliteConnection, sql: &'static str| {
            let done = sqlx::raw_sql(sql).execute(connection).await;
            done.map(|_| ()).map_err(StoreError::from)
        };
        let mut holder = SqliteConnection::connect_with(&options(&path))
            .await
            .unwrap();
        for (set, held, trouble) in [
            // SQLite never sets it below the current size.
            ("PRAGMA max_page_count = 1", false, WriteProblem::Full),
            ("PRAGMA query_only = ON", false, WriteProblem::ReadOnly),
            ("PRAGMA busy_timeout = 1", true, WriteProblem::Locked),
        ] {
            let mut connection = SqliteConnection::connect_with(&options(&path))
                .await
                .unwrap();
            run(&mut connection, set).await.unwrap();
            if held {
                run(&mut holder, "BEGIN IMMEDIATE").await.unwrap();
            }
            let failed = run(
                &mut connection,
                "INSERT INTO deleted_files VALUES (hex(zeroblob(1000000)))",
            );
            assert_eq!(failed.await.unwrap_err().trouble(), Some(trouble), "{set}");
        }
    }

    /// The setting takes effect when it is prepared, and statements are cached: it must be prepared every time.
    #[tokio::test]
    async fn every_write_is_as_durable_as_it_is_asked_to_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        prepare(&path).await.unwrap();
        let writer = writer(&path);
        for _ in 0..3 {
            for (durable, level) in [(Durability::Process, 1), (Durability::Machine, 2)] {
                let mut writing = writer
                    .begin(&UserId::literal("alice"), durable)
                    .await
                    .unwrap();
                let set: i64 = sqlx::query_scalar("PRAGMA synchronous")
                    .fetch_one(writing.connection())
                    .await
                    .unwrap();
                writing.end(Ok(())).await.unwrap();
                assert_eq!(set, level, "{durable:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_user_waits_for_one_write_of_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        prepare(&path).await.unwrap();
        let writer = writer(&path);
        let first = writer
            .begin(&UserId::literal("alice"), Durability::Process)
            .await
            .unwrap();
        let order = std::sync::Mutex::new(Vec::new());
        let write = async |user: &'static str| {
            let writing = writer
                .begin(&user.into(), Durability::Process)
                .await
                .unwrap();
            order.lock().unwrap().push(user);
            writing.end(Ok(())).await.unwrap();
        };
        let alice = futures_util::future::join_all((0..5).map(|_| write("alice")));
        let (_, (), ()) = tokio::join!(alice, write("bob"), async {
            tokio::task::yield_now().await;
            first.end(Ok(())).await.unwrap();
        });
        let order = order.into_inner().unwrap();
        let place = order.iter().position(|user| *user == "bob").unwrap();
        assert!(place <= 1, "{order:?}");
    }
}
