//! Syncs commits to the disk that did not wait for it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How much of a conversation a power cut may lose. Waiting for the disk in every turn would cost as much CPU as the
/// rest of the turn in the store; once in a second costs nothing.
const WITHIN: Duration = Duration::from_secs(1);

/// Syncs the log of the database some time after it was written to.
pub(super) struct Sync {
    log: PathBuf,
    due: Arc<AtomicBool>,
}

impl Sync {
    pub(super) fn of_log(database: &Path) -> Self {
        Self {
            log: super::with_suffix(database, "-wal"),
            due: Arc::default(),
        }
    }

    /// To be called after a write that has not waited for the disk.
    pub(super) fn soon(&self) {
        if self.due.swap(true, Ordering::Relaxed) {
            return;
        }
        let (log, due) = (self.log.clone(), self.due.clone());
        tokio::spawn(async move {
            tokio::time::sleep(WITHIN).await;
            due.store(false, Ordering::Relaxed);
            // SQLite has no lock on its log, so closing this handle releases none.
            let synced = tokio::task::spawn_blocking(move || {
                File::open(&log).and_then(|log| log.sync_data())
            });
            match synced.await {
                Ok(Ok(())) => {}
                // Closed meanwhile: the last connection checkpoints the log and removes it.
                Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
                Ok(Err(error)) => tracing::warn!(%error, "the log of the database is not synced"),
                Err(error) => tracing::warn!(%error, "the log of the database is not synced"),
            }
        });
    }
}
