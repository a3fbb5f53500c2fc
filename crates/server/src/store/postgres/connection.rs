//! Connections to PostgreSQL: a few that are kept, and new ones after a failure.
//!
//! Every statement is written so that it can be repeated, and is, for as long as the database is away: see [`Failure`].
//!
//! ```text
//!   take one of `store.connections` ─▶ run ─┬─ result, or refused ───────────▶ kept for the next
//!                ▲                          ├─ deadlock ─▶ kept, again
//!                └──── a moment later ──────┴─ lost ─▶ this one and all others of its time are closed, again
//! ```

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{Connection as _, Executor as _, PgConnection, Postgres, Row as _};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error::{self, Failure};
use crate::store::StoreError;
use crate::store::patience::{self, PATIENCE};

/// How long one attempt may take: the longest message is stored in less.
const ATTEMPT: Duration = Duration::from_secs(15);

/// How long making a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// How long to wait before the next attempt, at first and at most.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a connection is kept without being used: firewalls forget connections that say nothing.
const IDLE: Duration = Duration::from_secs(120);

/// Begins a transaction of several statements. If this process is stopped in the middle of it, the database ends it soon:
/// nobody waits for its locks longer than for its lease.
const BEGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '2s'";

/// A statement with its parameters.
pub(in crate::store) type Statement<'s> = Query<'s, Postgres, PgArguments>;

/// The connections of one store.
pub(super) struct Connections {
    options: PgConnectOptions,
    /// Whether a connection leads to the same server process for as long as it lives. If not, a statement has to be prepared
    /// and run within one transaction.
    prepares: bool,
    idle: std::sync::Mutex<Vec<Idle>>,
    room: Semaphore,
    /// Counts lost connections. Those that are older than the last loss are not used again.
    losses: AtomicU64,
    /// How many writes were given up by their callers and are still under way. Whoever comes after sees what became of them.
    unsettled: watch::Sender<usize>,
}

/// What a connection is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    Read,
    Write,
}

struct Idle {
    connection: PgConnection,
    made_after: u64,
    since: Instant,
}

/// A connection that is being used. Dropping it closes it, because its state is then unknown; a write that is under way is
/// waited for before.
pub(super) struct InUse<'c> {
    connections: &'c Connections,
    /// None when it was given back.
    connection: Option<PgConnection>,
    intent: Intent,
    made_after: u64,
    _permit: SemaphorePermit<'c>,
}

impl Connections {
    pub(super) fn new(options: PgConnectOptions, most: usize, prepares: bool) -> Self {
        Self {
            options,
            prepares,
            idle: std::sync::Mutex::default(),
            room: Semaphore::new(most),
            losses: AtomicU64::new(0),
            unsettled: watch::Sender::new(0),
        }
    }

    /// Runs one statement in a transaction of its own, and again if its connection is lost.
    pub(super) async fn fetch<'s>(
        &self,
        intent: Intent,
        statement: impl Fn() -> Statement<'s>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let patience = match intent {
            Intent::Read => patience::of_reads(),
            Intent::Write => PATIENCE,
        };
        let until = Instant::now() + patience;
        let mut pause = PAUSE;
        loop {
            let failure = match self.attempt(intent, statement(), until).await {
                Ok(rows) => return Ok(rows),
                Err(failure) => failure,
            };
            self.rest(failure, &mut pause, until).await?;
        }
    }

    /// Runs one statement once, and waits for at most this long.
    pub(super) async fn fetch_once(
        &self,
        statement: Statement<'_>,
        wait: Duration,
    ) -> Result<Vec<PgRow>, StoreError> {
        let tried = self
            .attempt(Intent::Read, statement, Instant::now() + wait)
            .await;
        tried.map_err(Failure::into_error)
    }

    /// Waits before another attempt, unless there is no point in it or no time for it.
    pub(super) async fn rest(
        &self,
        failure: Failure,
        pause: &mut Duration,
        until: Instant,
    ) -> Result<(), StoreError> {
        if let Failure::Final(error) = failure {
            return Err(error);
        }
        if Instant::now() + *pause >= until {
            return Err(failure.into_error());
        }
        sleep(*pause).await;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    async fn attempt(
        &self,
        intent: Intent,
        statement: Statement<'_>,
        until: Instant,
    ) -> Result<Vec<PgRow>, Failure> {
        let mut connection = self.take(intent, until).await?;
        let done = in_time(until, async {
            if self.prepares {
                return connection.fetch(statement).await;
            }
            connection.begin().await?;
            let rows = connection.fetch_within(statement).await;
            connection.end(rows).await
        });
        let done = done.await;
        connection.give_back(done)
    }

    /// A connection that waits, or a new one.
    pub(super) async fn take(&self, intent: Intent, until: Instant) -> Result<InUse<'_>, Failure> {
        let busy = |_| Failure::Final(StoreError::Busy);
        if *self.unsettled.borrow() > 0 {
            let mut unsettled = self.unsettled.subscribe();
            let settled = unsettled.wait_for(|writes| *writes == 0);
            let _ = timeout_at(until, settled).await.map_err(busy)?;
        }
        let permit = timeout_at(until, self.room.acquire()).await;
        let permit = permit.map_err(busy)?;
        let permit = permit.map_err(|_| Failure::Final(StoreError::Busy))?;
        let losses = self.losses.load(Relaxed);
        let connection = match self.waiting(losses) {
            Some(connection) => connection,
            None => {
                let connecting = timeout(CONNECT, PgConnection::connect_with(&self.options));
                match timeout_at(until, connecting).await {
                    Ok(Ok(connected)) => connected.map_err(error::unconnected)?,
                    _ => return Err(error::too_slow()),
                }
            }
        };
        Ok(InUse {
            connections: self,
            connection: Some(connection),
            intent,
            made_after: losses,
            _permit: permit,
        })
    }

    /// A connection that waits and can be used.
    fn waiting(&self, losses: u64) -> Option<PgConnection> {
        loop {
            let idle = self.lock().pop()?;
            if idle.made_after == losses && idle.since.elapsed() < IDLE {
                return Some(idle.connection);
            }
        }
    }

    pub(super) async fn close(&self) {
        self.room.close();
        let idle = std::mem::take(&mut *self.lock());
        // What was committed is committed, whether or not we say goodbye.
        let closing = idle.into_iter().map(|idle| idle.connection.close());
        let _ = timeout(CONNECT, join_all(closing)).await;
    }

    /// Poisoning is ignored: no critical section can leave the list inconsistent.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InUse<'_> {
    async fn fetch(&mut self, statement: Statement<'_>) -> Result<Vec<PgRow>, Failure> {
        Ok(self.connection()?.fetch_all(statement).await?)
    }

    /// The same within a transaction of several statements.
    pub(super) async fn fetch_within(
        &mut self,
        statement: Statement<'_>,
    ) -> Result<Vec<PgRow>, Failure> {
        let prepares = self.connections.prepares;
        self.fetch(statement.persistent(prepares)).await
    }

    /// Runs several statements without parameters.
    pub(super) async fn run(&mut self, sql: &'static str) -> Result<(), Failure> {
        self.connection()?.execute(sqlx::raw_sql(sql)).await?;
        Ok(())
    }

    pub(super) async fn begin(&mut self) -> Result<(), Failure> {
        self.run(BEGIN).await
    }

    /// Commits a success, rolls back a failure.
    pub(super) async fn end<T>(&mut self, done: Result<T, Failure>) -> Result<T, Failure> {
        match &done {
            Ok(_) => self.run("COMMIT").await?,
            Err(Failure::Lost(_)) => {}
            Err(_) => self.run("ROLLBACK").await?,
        }
        done
    }

    fn connection(&mut self) -> Result<&mut PgConnection, Failure> {
        // It is there until it is given back.
        self.connection
            .as_mut()
            .ok_or(Failure::Final(StoreError::Busy))
    }

    pub(super) fn give_back<T>(mut self, done: Result<T, Failure>) -> Result<T, Failure> {
        let connections = self.connections;
        let connection = self.connection.take();
        match (&done, connection) {
            (Err(Failure::Lost(_)), _) => {
                // The first to find out closes all others with it.
                let (seen, next) = (self.made_after, self.made_after + 1);
                let _ = (connections.losses).compare_exchange(seen, next, Relaxed, Relaxed);
            }
            (_, Some(connection)) if !connections.room.is_closed() => {
                connections.lock().push(Idle {
                    connection,
                    made_after: self.made_after,
                    since: Instant::now(),
                });
            }
            _ => {}
        }
        done
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let (Some(mut connection), Intent::Write) = (self.connection.take(), self.intent) else {
            return;
        };
        // The caller has given up in the middle. The database may not have begun yet.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let unsettled = self.connections.unsettled.clone();
        unsettled.send_modify(|writes| *writes += 1);
        runtime.spawn(async move {
            let ended = async {
                connection.ping().await?;
                // For a transaction that was not committed.
                connection.execute(sqlx::raw_sql("ROLLBACK")).await
            };
            let _ = timeout(ATTEMPT, ended).await;
            drop(connection);
            unsettled.send_modify(|writes| *writes -= 1);
        });
    }
}

/// One attempt at some work.
pub(super) async fn in_time<T>(
    until: Instant,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let done = timeout_at(until.min(Instant::now() + ATTEMPT), work).await;
    done.unwrap_or_else(|_| Err(error::too_slow()))
}

/// Whether a connection keeps its server process, found out with two of them: through a pooler that gives them another one
/// for every transaction, both soon meet the same process, or one meets two.
pub(super) async fn keeps_its_process(options: &PgConnectOptions) -> Result<bool, StoreError> {
    /// How often each is asked. A busy pooler hardly ever gives both the same answers every time.
    const ASKED: usize = 8;

    let connect = || async {
        let connected = timeout(CONNECT, PgConnection::connect_with(options)).await;
        match connected {
            Ok(connected) => connected.map_err(error::unconnected),
            Err(_) => Err(error::too_slow()),
        }
        .map_err(Failure::into_error)
    };
    let mut both = [connect().await?, connect().await?];
    let mut seen: [Option<i32>; 2] = [None; 2];
    let mut keeps = true;
    for _ in 0..ASKED {
        for (connection, seen) in both.iter_mut().zip(&mut seen) {
            let row = connection.fetch_one(sqlx::raw_sql("SELECT pg_backend_pid()"));
            let process: i32 = row
                .await
                .map_err(|error| Failure::from(error).into_error())?
                .try_get(0)
                .map_err(|error| Failure::from(error).into_error())?;
            keeps &= seen.is_none_or(|seen| seen == process);
            *seen = Some(process);
        }
        keeps &= seen[0] != seen[1];
    }
    for connection in both {
        let _ = connection.close().await;
    }
    Ok(keeps)
}
