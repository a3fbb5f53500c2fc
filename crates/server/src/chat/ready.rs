//! Whether the store can be written to, found out by writing.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::now;
use crate::files::Files;
use crate::store::{Store, StoreError, WriteProblem};

/// How long a result is reused: the store is written at most once in this time.
const HOLDS: Duration = Duration::from_secs(1);
/// How long an attempt may take. Health checks commonly wait a few seconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// The last answer.
#[derive(Default)]
pub(super) struct Readiness {
    last: Mutex<Option<(Instant, Result<(), NotReady>)>>,
}

impl Readiness {
    /// Checks, or returns the result of a moment ago. Concurrent callers wait for the same result.
    pub(super) async fn look(&self, store: &dyn Store, files: &Files) -> Result<(), NotReady> {
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < HOLDS
        {
            return answer.clone();
        }
        let tried = timeout(PATIENCE, async {
            store.try_write(now()).await?;
            files.try_write().await
        });
        let (answer, why) = match tried.await {
            Ok(Ok(())) => (Ok(()), String::new()),
            Ok(Err(error)) => (Err(NotReady::from(&error)), error.to_string()),
            Err(_) => (Err(NotReady::Slow), NotReady::Slow.to_string()),
        };
        let before = last.as_ref().map(|(_, answer)| answer);
        if before.unwrap_or(&Ok(())) != &answer {
            match &answer {
                Ok(()) => tracing::info!("the store can be written to again"),
                Err(_) => tracing::error!("the server is not ready: {why}"),
            }
        }
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

/// Why the server is not ready. Anyone may ask, so paths of this machine are only in the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("{0}")]
    Unwritable(WriteProblem),
    #[error("the store takes too long to write; check the disk")]
    Slow,
    #[error("the store is busy; try again in a moment")]
    Busy,
    #[error("{doing} failed; the log says why")]
    Failed { doing: &'static str },
    #[error("the store cannot be used; the log says why")]
    Unusable,
    #[error("the store could not be tested")]
    NotTried,
    /// By the names of the entries that have no agents.
    #[error("no agent is there yet; the servers of these cannot be reached: {}", .0.join(", "))]
    NoAgent(Vec<String>),
    /// By the ids of all agents.
    #[error("the bridge has no token for any agent; the log says why: {}", .0.join(", "))]
    NoToken(Vec<String>),
}

impl From<&StoreError> for NotReady {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Unwritable(trouble) => Self::Unwritable(*trouble),
            StoreError::Busy => Self::Busy,
            StoreError::Io { doing, .. } => Self::Failed { doing },
            _ => Self::Unusable,
        }
    }
}
