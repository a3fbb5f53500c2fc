//! A thread with a connection of its own that runs batches of statements, and answers once for all of a batch.
//!
//! sqlx wakes its caller for every result of every statement, which costs more than the statements of an ordinary turn.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, Value as Owned, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql, params_from_iter};
use tokio::sync::oneshot;

use super::connection::WRITER_CACHE;
use super::statement_batch::{Row, StatementBatch, StatementResult, Value};

/// More than there are different statements in such batches.
const PREPARED: usize = 64;

/// Runs batches that are whole transactions and do not wait for the disk. Its caller holds the writer, so that the two
/// connections do not wait for each other.
pub(super) struct BatchThread {
    settings: Settings,
    running: Mutex<Option<Running>>,
}

/// What the connection is opened with.
#[derive(Clone)]
struct Settings {
    database: PathBuf,
    log_pages: u64,
    log_bytes: u64,
}

struct Running {
    jobs: Sender<Job>,
    /// Fails when the connection is closed.
    closed: oneshot::Receiver<()>,
}

struct Job {
    batch: Arc<StatementBatch>,
    answer: oneshot::Sender<Option<Vec<StatementResult>>>,
}

impl BatchThread {
    pub(super) fn new(database: &Path, log_pages: u64, log_bytes: u64) -> Self {
        Self {
            settings: Settings {
                database: database.to_owned(),
                log_pages,
                log_bytes,
            },
            running: Mutex::default(),
        }
    }

    /// Runs a batch that is a whole transaction. `None` if it failed; then nothing has changed, and whoever runs it again
    /// learns why.
    pub(super) async fn run(&self, batch: &Arc<StatementBatch>) -> Option<Vec<StatementResult>> {
        let (answer, answered) = oneshot::channel();
        let batch = batch.clone();
        self.send(Job { batch, answer });
        answered.await.ok().flatten()
    }

    /// Closes the connection.
    pub(super) async fn close(&self) {
        let running = self.lock().take();
        if let Some(Running { jobs, closed }) = running {
            drop(jobs);
            let _ = closed.await;
        }
    }

    /// A job that cannot be sent is dropped, and so is its answer.
    fn send(&self, job: Job) {
        let mut running = self.lock();
        if running.is_none() {
            *running = Running::start(&self.settings);
        }
        let sent = running
            .as_ref()
            .is_some_and(|running| running.jobs.send(job).is_ok());
        if !sent {
            *running = None;
        }
    }

    /// Poisoning is ignored: no critical section can leave it inconsistent.
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn start(settings: &Settings) -> Option<Self> {
        let (jobs, received) = channel();
        let (closing, closed) = oneshot::channel();
        let settings = settings.clone();
        let thread = std::thread::Builder::new()
            .name("sqlite-batches".to_owned())
            .spawn(move || {
                serve(&settings, &received);
                drop(closing);
            });
        thread.is_ok().then_some(Self { jobs, closed })
    }
}

fn serve(settings: &Settings, jobs: &Receiver<Job>) {
    let mut kept = None;
    for Job { batch, answer } in jobs {
        let connection = match kept.take() {
            Some(connection) => Ok(connection),
            None => settings.open(),
        };
        let done = connection.and_then(|connection| {
            let results = run(&connection, &batch);
            // A connection that does not get out of its transaction is closed.
            if connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok() {
                kept = Some(connection);
            }
            results
        });
        let _ = answer.send(done.ok());
    }
}

fn run(connection: &Connection, batch: &StatementBatch) -> rusqlite::Result<Vec<StatementResult>> {
    let results = batch.statements().iter().map(|statement| {
        let mut prepared = connection.prepare_cached(&statement.sql)?;
        let columns = prepared.column_count();
        let mut rows = prepared.query(params_from_iter(&statement.values))?;
        let mut read = Vec::new();
        while let Some(row) = rows.next()? {
            let values = (0..columns).map(|column| match row.get(column)? {
                Owned::Integer(number) => Ok(Value::Integer(number)),
                Owned::Text(text) => Ok(Value::from(text)),
                Owned::Null => Ok(Value::Null),
                other => Err(rusqlite::Error::InvalidColumnType(
                    column,
                    String::new(),
                    other.data_type(),
                )),
            });
            read.push(Row::of(values.collect::<rusqlite::Result<_>>()?));
        }
        Ok(StatementResult {
            rows: read,
            changed: connection.changes(),
        })
    });
    results.collect()
}

impl Settings {
    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.database, flags)?;
        // sqlx waits for a lock, when it tries again.
        connection.busy_timeout(Duration::ZERO)?;
        connection.set_prepared_statement_cache_capacity(PREPARED);
        let Self {
            log_pages,
            log_bytes,
            ..
        } = self;
        connection.execute_batch(&format!(
            "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;
             PRAGMA cache_size = {WRITER_CACHE}; PRAGMA wal_autocheckpoint = {log_pages};
             PRAGMA journal_size_limit = {log_bytes};"
        ))?;
        Ok(connection)
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}
