//! Whether the store can be written to, found out by writing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

use super::now;
use crate::files::{FileError, Files};
use crate::store::{Store, StoreError, WriteProblem};

/// How long a result is reused: the store is written at most once in this time, and a bucket asked.
const HOLDS: Duration = Duration::from_secs(1);
/// How long an attempt may take. Health checks commonly wait a few seconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a server that is ready may lack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Whether files can be read and stored. A server whose bucket is away serves everything else.
    pub has_files: bool,
    /// The ids of agents that cannot be asked, because the bridge has no token for them.
    pub without_token: Vec<String>,
}

/// The last answer: whether there are files.
#[derive(Default)]
pub(super) struct Readiness {
    last: Mutex<Option<(Instant, Result<bool, NotReady>)>>,
    bucket: BucketLooks,
}

/// What looks at a bucket have shown.
#[derive(Default)]
struct BucketLooks {
    /// Held by the look that is under way.
    under_way: Arc<Mutex<()>>,
    /// Whether the bucket answered the last one.
    last: watch::Sender<Option<bool>>,
}

impl Readiness {
    /// Checks, or returns the result of a moment ago. Concurrent callers wait for the same result.
    pub(super) async fn look(
        &self,
        store: &dyn Store,
        files: &Arc<Files>,
    ) -> Result<bool, NotReady> {
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < HOLDS
        {
            return answer.clone();
        }
        let probed = async {
            match files.is_remote() {
                true => Ok(self.bucket.answers(files).await),
                false => files.probe().await.map(|()| true),
            }
        };
        let (stored, probed) = tokio::join!(
            timeout(PATIENCE, store.try_write(now())),
            timeout(PATIENCE, probed)
        );
        let (answer, why) = match (stored, probed) {
            (Ok(Ok(())), Ok(Ok(has_files))) => (Ok(has_files), String::new()),
            (Ok(Err(error)), _) | (_, Ok(Err(FileError::Store(error)))) => {
                (Err(NotReady::from(&error)), error.to_string())
            }
            (_, Ok(Err(error))) => (Err(NotReady::Unusable), error.to_string()),
            _ => (Err(NotReady::Slow), NotReady::Slow.to_string()),
        };
        let before = last.as_ref().map(|(_, answer)| answer);
        if before.unwrap_or(&Ok(true)) != &answer {
            match &answer {
                Ok(true) => tracing::info!("the store and the files can be written to again"),
                Ok(false) => {
                    tracing::error!("the bucket of files.url does not answer: there are no files");
                }
                Err(_) => tracing::error!("the server is not ready: {why}"),
            }
        }
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

impl BucketLooks {
    /// Whether the bucket has answered the last look. The next one begins, and nobody waits for it: one that hangs would make
    /// health checks hang, and they would take away a server that can do everything else. Only before the first one has
    /// ended it is waited for, and not for long.
    async fn answers(&self, files: &Arc<Files>) -> bool {
        if let Ok(alone) = self.under_way.clone().try_lock_owned() {
            let (files, last) = (files.clone(), self.last.clone());
            tokio::spawn(async move {
                let looked = timeout(PATIENCE, files.probe()).await;
                last.send_replace(Some(matches!(looked, Ok(Ok(())))));
                drop(alone);
            });
        }
        let mut last = self.last.subscribe();
        let first = timeout(HOLDS, last.wait_for(Option::is_some)).await;
        matches!(first, Ok(Ok(answered)) if *answered == Some(true))
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
    #[error("the database cannot be reached; the log says why")]
    Unreachable,
    #[error("{doing} failed; the log says why")]
    Failed { doing: &'static str },
    #[error("the store cannot be used; the log says why")]
    Unusable,
    #[error("the store could not be tested")]
    NotTried,
    /// In a cluster.
    #[error("this replica is about to stop; ask another one")]
    Draining,
    #[error(
        "this replica could not show the database in time that it lives; it tries to join the others again"
    )]
    Alone,
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
            StoreError::Unreachable { .. } => Self::Unreachable,
            StoreError::Io { doing, .. } => Self::Failed { doing },
            _ => Self::Unusable,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use object_store::aws::AmazonS3Builder;
    use tokio::net::TcpListener;

    use super::*;
    use crate::store::DataDir;
    use crate::store::sqlite::SqliteStore;

    #[tokio::test]
    async fn a_bucket_that_never_answers_holds_nobody_up() {
        // As the program does before it makes a client.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let data = Arc::new(DataDir::open(directory.path()).unwrap());
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(data.clone(), None).await.unwrap());
        // Connections are taken by the system, and nobody reads what comes.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let objects = AmazonS3Builder::new()
            .with_endpoint(format!("http://{}", listener.local_addr().unwrap()))
            .with_allow_http(true)
            .with_region("nowhere")
            .with_bucket_name("bucket")
            .with_access_key_id("key")
            .with_secret_access_key("secret")
            .build();
        let files = Arc::new(Files::of_bucket(Arc::new(objects.unwrap()), store.clone()));
        let readiness = Readiness::default();
        for _ in 0..2 {
            assert_eq!(readiness.look(&*store, &files).await, Ok(false));
            let look = &readiness.bucket.under_way;
            assert!(
                look.try_lock().is_err(),
                "the look at the bucket was waited for"
            );
            drop(look.lock().await);
        }
    }
}
