//! Seals the audit while the server runs, and gives up rows that are too old.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use adk_bridge_protocol::time::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::seal::{Covered, Seal, SealContext, SealKey, SealMark};
use super::source::AuditState;
use crate::chat::now;
use crate::cluster::Cluster;
use crate::metrics::{Background, Metrics};
use crate::store::{Store, StoreError};

/// How often the audit is sealed, if there is something new. What an intruder takes back within this time leaves no trace
/// but in the chain of a chat that goes on, and in the ids of SQLite.
const EVERY: Duration = Duration::from_secs(60);
/// Replicas do not all look at the same moment.
const SPREAD: Duration = Duration::from_secs(10);
/// How long the last seal may take when the server stops.
const AT_THE_END: Duration = Duration::from_secs(1);
/// How long another key is a problem after it was last met: both replicas seal every minute if there is something new.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);
/// How many rows are read at once, and how many a seal covers at most: its list of ids stays short.
const PAGE: u32 = 1_000;
const MAX_ROWS: u64 = 10_000;

/// Seals an audit.
#[derive(Clone)]
pub struct Sealing {
    store: Arc<dyn Store>,
    key: Option<SealKey>,
    made: Arc<Mutex<Made>>,
}

/// What this process knows of seals, its own and those of others.
#[derive(Default)]
struct Made {
    /// The number of its last one.
    last: Option<u64>,
    /// When one of somebody else with another key came after that.
    other_key: Option<Instant>,
    /// The newest one that was there, whoever made it, and the row through which it reaches.
    seen: Option<(SealMark, u64)>,
    /// Whether one that was there has gone since [`Sealing::takes_loss`].
    is_lost: bool,
}

/// Seals the audit every now and then, until it is dropped.
pub struct SealTask {
    sealing: Sealing,
    task: JoinHandle<()>,
}

impl Sealing {
    pub fn new(store: Arc<dyn Store>, key: Option<SealKey>) -> Self {
        Self {
            store,
            key,
            made: Arc::default(),
        }
    }

    /// `cluster`: who is informed that another replica has another key.
    pub fn begin(self, cluster: Option<Arc<Cluster>>, metrics: Arc<Metrics>) -> SealTask {
        let sealing = self.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = seal_all(&sealing, now()).await {
                    tracing::warn!(%error, "the audit is not sealed; it is tried again in a minute");
                    metrics.background_failed(Background::AuditSeal);
                }
                if sealing.takes_loss() {
                    metrics.background_failed(Background::AuditLoss);
                }
                if let Some(cluster) = &cluster {
                    cluster.note_audit_key(sealing.meets_another_key());
                }
                sleep(EVERY + SPREAD.mul_f64(fraction())).await;
            }
        });
        SealTask {
            sealing: self,
            task,
        }
    }

    /// Whether somebody else has sealed with another key, or without one, after this process had sealed. One that is
    /// replaced by this process seals before; two that go on have different configurations.
    pub fn meets_another_key(&self) -> bool {
        let met = self.lock().other_key;
        met.is_some_and(|at| at.elapsed() < REMEMBERED)
    }

    /// Compares the newest seal with those of this process. Returns whether this process has sealed before.
    fn note_newest(&self, newest: Option<&Seal>) -> bool {
        let mut made = self.lock();
        if let (Some(last), Some(newest)) = (made.last, newest)
            && newest.number > last
            && newest.key_id.as_deref() != self.key.as_ref().map(SealKey::id)
        {
            made.other_key = Some(Instant::now());
        }
        made.last.is_some()
    }

    /// Whether a seal that this process has seen is gone, or another one: said once.
    pub fn takes_loss(&self) -> bool {
        std::mem::take(&mut self.lock().is_lost)
    }

    /// Compares the store with the newest seal that this process has seen. Who takes the newest rows back together with their
    /// seals leaves an audit that holds; only who has seen the seals can tell.
    async fn look_for_seen(&self, state: &AuditState) -> Result<(), StoreError> {
        let before = state.seal.as_ref();
        let seen = self.lock().seen.clone();
        if let Some((seen, through)) = seen {
            let there = match before {
                Some(before) if before.number > seen.number => {
                    let seals = self.store.audit_seals(seen.number.saturating_sub(1), 1);
                    seals.await?.first().map(Seal::mark)
                }
                before => before.map(Seal::mark),
            };
            // Another replica may just have given it up, with old rows.
            if there.as_ref() != Some(&seen) && through > self.store.audit_state().await?.removed()
            {
                tracing::error!(
                    "seal {seen} of the audit is not there any more: rows through {through} were taken back"
                );
                self.lock().is_lost = true;
            }
        }
        self.lock().seen = before.map(|before| (before.mark(), before.through));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Made> {
        // Poisoning is ignored: no critical section can leave it inconsistent.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a seal over the rows since the last one, as many as a seal covers. Returns none if there is nothing to seal, or
    /// another replica was faster. `removed`: the row through which rows are given up.
    async fn seal(&self, removed: Option<u64>, now: Timestamp) -> Result<Option<Seal>, StoreError> {
        let state = self.store.audit_state().await?;
        self.look_for_seen(&state).await?;
        let before = state.seal.as_ref();
        let after = before.map_or(0, |before| before.through);
        let key_id = self.key.as_ref().map(SealKey::id);
        let has_sealed = self.note_newest(before);
        // What was sealed before a key was set, or with the key before this one, is signed with this one: once, since
        // somebody else may do the same with another one.
        let is_to_sign = !has_sealed
            && key_id.is_some()
            && before.is_some_and(|it| it.key_id.as_deref() != key_id);
        let has_more = !self.store.audit_rows(after, 1).await?.is_empty();
        if !has_more && removed.is_none() && !is_to_sign {
            return Ok(None);
        }
        let end = self.store.audit_end().await?.max(after);
        let (mut covered, mut last) = (Covered::default(), after);
        let through = loop {
            let rows = self.store.audit_rows(last, PAGE).await?;
            let known = rows.iter().take_while(|row| row.row.id <= end);
            let mut count = 0;
            for row in known {
                covered.push(row);
                last = row.row.id;
                count += 1;
            }
            if count < PAGE {
                break end;
            }
            if covered.count() >= MAX_ROWS {
                break last;
            }
        };
        let context = SealContext {
            store: &state.store,
            before,
            through,
            removed: state.removed().max(removed.unwrap_or_default()),
            unchained: state.unchained(),
            at: now,
            key: self.key.as_ref(),
        };
        let seal = Seal::new(covered, context);
        let is_added = self.store.add_seal(&seal).await?;
        if is_added {
            let mut made = self.lock();
            made.last = Some(seal.number);
            made.seen = Some((seal.mark(), seal.through));
        }
        Ok(is_added.then_some(seal))
    }

    /// Gives up rows that are older than a time, as far as seals reach whose rows all are, and removes them. At most so many
    /// rows are looked at; returns how many were removed.
    pub async fn remove_older(
        &self,
        before: Timestamp,
        at_most: u64,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let removed = self.store.audit_state().await?.removed();
        let (mut last_old, mut looked_at) = (removed, 0);
        'rows: while looked_at < at_most {
            let rows = self.store.audit_rows(last_old, PAGE).await?;
            if rows.is_empty() {
                break;
            }
            for row in rows {
                if row.row.at >= before || looked_at == at_most {
                    break 'rows;
                }
                last_old = row.row.id;
                looked_at += 1;
            }
        }
        let mut through = removed;
        if last_old > removed {
            let mut number = 0;
            'seals: loop {
                let seals = self.store.audit_seals(number, PAGE).await?;
                let Some(last) = seals.last() else { break };
                number = last.number;
                for seal in seals {
                    // A seal over no rows may reach as far as one that covers some.
                    if seal.through > last_old {
                        break 'seals;
                    }
                    through = seal.through;
                }
            }
        }
        if through > removed {
            self.seal(Some(through), now).await?;
        }
        // What an interrupted run has left goes too.
        let mut gone = 0;
        loop {
            let some = self.store.remove_audit(PAGE).await?;
            if some == 0 {
                return Ok(gone);
            }
            gone += some;
        }
    }
}

/// Seals everything that there is. Returns the newest seal, if there is a new one.
pub async fn seal_all(sealing: &Sealing, now: Timestamp) -> Result<Option<Seal>, StoreError> {
    let mut newest: Option<Seal> = None;
    while let Some(seal) = sealing.seal(None, now).await? {
        newest = Some(seal);
    }
    if let Some(seal) = &newest {
        tracing::info!(
            "the audit is sealed through row {}: {}",
            seal.through,
            seal.mark()
        );
    }
    Ok(newest)
}

impl SealTask {
    pub fn sealing(&self) -> &Sealing {
        &self.sealing
    }

    /// Seals what the last moments brought.
    pub async fn end(&self) {
        self.task.abort();
        match timeout(AT_THE_END, seal_all(&self.sealing, now())).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the end of the audit is not sealed"),
            Err(_) => tracing::warn!("the end of the audit is not sealed: it took too long"),
        }
    }
}

impl Drop for SealTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Between 0 and 1.
pub(crate) fn fraction() -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "only a share of a time")]
    let random = Uuid::new_v4().as_u64_pair().0 as f64;
    #[allow(clippy::cast_precision_loss, reason = "only a share of a time")]
    let most = u64::MAX as f64;
    random / most
}
