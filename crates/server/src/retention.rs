//! Retention: what is older than the configuration allows is deleted, a little at a time.

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::time::Timestamp;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::audit::{Sealing, fraction};
use crate::chat::{Chats, now};
use crate::config::{Current, Retention as Ages, Span};
use crate::metrics::{Background, Removed};
use crate::store::{OldFiles, StoreError};

/// How often the bridge looks for what is too old. Ages are days; nobody waits for this.
const EVERY: Duration = Duration::from_secs(10 * 60);
/// Replicas do not all look at the same moment.
const SPREAD: Duration = Duration::from_secs(60);
/// How many chats or files are asked for at once. Between two batches others have the store.
const BATCH: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);
/// The most that one look deletes of each kind; the next look goes on.
const MOST: u64 = 20_000;
/// The name under which one of several replicas looks.
const JOB: &str = "retention";

/// Deletes what is too old.
pub struct Retention {
    chats: Chats,
    sealing: Sealing,
    ages: Arc<CurrentAges>,
}

/// How long things are kept at the moment.
#[derive(Debug)]
pub(crate) struct CurrentAges {
    ages: Current<Ages>,
    changed: Notify,
}

/// What one look has deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub chats: u64,
    pub files: u64,
    pub recordings: u64,
    pub audit: u64,
    pub usage: u64,
}

/// Looks every now and then, until it is dropped.
pub struct RetentionTask {
    task: JoinHandle<()>,
    ages: Arc<CurrentAges>,
}

impl CurrentAges {
    /// What is older than this is deleted, from the look on that comes now.
    pub(crate) fn set(&self, ages: Ages) {
        self.ages.set(ages);
        self.changed.notify_one();
    }
}

impl Retention {
    pub fn new(chats: Chats, sealing: Sealing, ages: Ages) -> Self {
        Self {
            chats,
            sealing,
            ages: Arc::new(CurrentAges {
                ages: Current::new(ages),
                changed: Notify::new(),
            }),
        }
    }

    pub fn begin(self) -> RetentionTask {
        let ages = self.ages.clone();
        let task = tokio::spawn(async move {
            loop {
                if self.ages.ages.get().keeps_everything() {
                    self.ages.changed.notified().await;
                    continue;
                }
                let store = &self.chats.shared().store;
                match store.begin_job(JOB, EVERY).await {
                    Ok(true) => self.look().await,
                    // Another replica does it.
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(%error, "what is too old is not deleted yet");
                        self.failed();
                    }
                }
                let next = EVERY + SPREAD.mul_f64(fraction());
                // Other ages may make more of it too old.
                let _ = timeout(next, self.ages.changed.notified()).await;
            }
        });
        RetentionTask { task, ages }
    }

    async fn look(&self) {
        match self.sweep(now()).await {
            Ok(swept) if swept == Swept::default() => {}
            Ok(swept) => {
                let Swept {
                    chats,
                    files,
                    recordings,
                    audit,
                    usage,
                } = swept;
                tracing::info!(
                    "too old, and deleted: {chats} chats, {files} files, {recordings} recordings, {audit} rows of the audit, \
                     {usage} rows of usage"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "not everything that is too old is deleted; the next look goes on");
                self.failed();
            }
        }
    }

    /// Deletes what is too old at a time.
    pub async fn sweep(&self, now: Timestamp) -> Result<Swept, StoreError> {
        let before = |age: Option<Span>| {
            let millis = u64::try_from(age?.0.as_millis()).ok()?;
            now.as_millis()
                .checked_sub(millis)
                .map(Timestamp::from_millis)
        };
        let (mut swept, ages) = (Swept::default(), self.ages.ages.get());
        if let Some(before) = before(ages.chats) {
            swept.chats = self.old_chats(before).await?;
            self.count(Removed::Chats, swept.chats);
        }
        if let Some(before) = before(ages.recordings) {
            swept.recordings = self.old_files(before, OldFiles::Recordings).await?;
            self.count(Removed::Recordings, swept.recordings);
        }
        if let Some(before) = before(ages.files) {
            swept.files = self.old_files(before, OldFiles::All).await?;
            self.count(Removed::Files, swept.files);
        }
        if let Some(before) = before(ages.audit) {
            swept.audit = self.sealing.remove_older(before, MOST, now).await?;
            self.count(Removed::AuditRows, swept.audit);
        }
        if let Some(before) = before(ages.usage) {
            swept.usage = self.old_usage(before).await?;
            self.count(Removed::UsageRows, swept.usage);
        }
        Ok(swept)
    }

    async fn old_chats(&self, before: Timestamp) -> Result<u64, StoreError> {
        let store = &self.chats.shared().store;
        let (mut deleted, mut last) = (0, 0);
        while deleted < MOST {
            let old = store.old_chats(before, last, BATCH).await?;
            let Some(end) = old.last() else { break };
            last = end.row;
            for chat in &old {
                let (user, id) = (&chat.user, &chat.chat_id);
                match self.chats.delete_if_older(user, id, before).await {
                    Ok(true) => deleted += 1,
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(chat = %id, %error, "the chat {id} is too old and not deleted yet");
                    }
                }
            }
            sleep(PAUSE).await;
        }
        Ok(deleted)
    }

    async fn old_files(&self, before: Timestamp, which: OldFiles) -> Result<u64, StoreError> {
        let files = &self.chats.shared().files;
        let mut deleted = 0;
        while deleted < MOST {
            let some = files.delete_old(before, which, BATCH).await?;
            deleted += some;
            if some < u64::from(BATCH) {
                break;
            }
            sleep(PAUSE).await;
        }
        Ok(deleted)
    }

    async fn old_usage(&self, before: Timestamp) -> Result<u64, StoreError> {
        let shared = self.chats.shared();
        let day = shared.spending.day_before(before);
        let mut deleted = 0;
        while deleted < MOST {
            let some = shared.store.delete_old_usage(day, BATCH).await?;
            deleted += some;
            if some < u64::from(BATCH) {
                break;
            }
            sleep(PAUSE).await;
        }
        Ok(deleted)
    }

    fn failed(&self) {
        let metrics = &self.chats.shared().metrics;
        metrics.background_failed(Background::Retention);
    }

    fn count(&self, what: Removed, how_many: u64) {
        self.chats.shared().metrics.removed(what, how_many);
    }
}

impl RetentionTask {
    pub(crate) fn ages(&self) -> Arc<CurrentAges> {
        self.ages.clone()
    }
}

impl Drop for RetentionTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}
