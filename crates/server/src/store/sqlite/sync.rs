//! Brings to the disk what was committed without waiting for it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How much of a conversation a power cut may take: what was said in so much time. A wait for the disk with every turn
/// would cost as much CPU as the rest of the turn in the store, and one in a second costs nothing.
const WITHIN: Duration = Duration::from_secs(1);

/// Syncs the log of the database some time after it was written to.
pub(super) struct Sync {
    log: PathBuf,
    due: Arc<AtomicBool>,
}

impl Sync {
    pub(super) fn of_log(database: &Path) -> Self {
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        Self {
            log: log.into(),
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
            // SQLite holds no lock on its log, so that closing this handle takes none away.
            let synced = tokio::task::spawn_blocking(move || {
                File::open(&log).and_then(|log| log.sync_data())
            });
            match synced.await {
                Ok(Ok(())) => {}
                // Closed meanwhile: the last connection brings the log into the database and removes it.
                Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
                Ok(Err(error)) => tracing::warn!(%error, "the log of the database is not synced"),
                Err(error) => tracing::warn!(%error, "the log of the database is not synced"),
            }
        });
    }
}
