//! A cluster: several replicas on one database, each chat owned by one of them.
//!
//! ```text
//!             take                     release: the task leaves memory
//!   nobody ─────────▶ owned by A ──────────────────────────────────────▶ nobody
//!                        │ A is dead: no heartbeat for a lease, or it left
//!                        └───────────── take ─────────▶ owned by B       (A's writes are fenced)
//! ```
//!
//! Every `take` begins a new [`Epoch`]. What an owner stores is conditional on its epoch, in the same transaction, so that
//! whoever was paused or cut off cannot store anything once another has taken the chat. A replica that could not renew its
//! [`Lease`] in time also tells nobody anything more: it begins a new [`Life`], and whatever it owned in the one before is
//! for others to take.

mod lease;
mod ownership;
mod reach;
mod state;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

pub use lease::{Lease, Moment};
pub use ownership::{
    Claim, Epoch, Heartbeat, Instance, Joined, Orphan, OwnedChat, Ownership, Peer, Replica,
};
pub use reach::PROBE;
pub use state::{ClusterState, Problem};

use crate::chat::now;
use crate::metrics::{ClusterFigures, Metrics};
use crate::store::{ChatRef, StoreError};
use state::States;

/// How often a replica shows that it lives.
const BEAT: Duration = Duration::from_secs(1);
/// How long a question to the database may take before it is asked again.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often to try again to join.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// How far the clock of a replica may be from the database's. Deadlines of questions are off by as much.
pub const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(2);

/// This process among the others.
pub struct Cluster {
    ownership: Arc<dyn Ownership>,
    /// Replaced when a lease is lost.
    life: RwLock<Arc<Life>>,
    key: Vec<u8>,
    /// Whether it takes no more chats, because it is about to stop.
    draining: AtomicBool,
    /// Asks for a heartbeat now.
    hurry: Notify,
    /// Changes when another life begins.
    begun: watch::Sender<()>,
    states: States,
    metrics: Arc<Metrics>,
}

/// One life of this replica, from joining to the loss of its lease.
#[derive(Debug)]
pub struct Life {
    replica: Replica,
    lease: Lease,
}

/// A chat that this replica owns.
#[derive(Debug, Clone)]
pub struct Owned {
    life: Arc<Life>,
    epoch: Epoch,
}

/// Why a replica cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(
        "cluster.name: another replica is called {name:?}, at {address}; give each its own name, or wait until that one has \
         stopped"
    )]
    NameTaken { name: String, address: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a chat can be neither taken nor found elsewhere.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error("this replica is not one of the cluster at the moment; try again in a moment")]
    Alone,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Owned {
    /// Whether it may still store and tell.
    pub fn is_held(&self) -> bool {
        self.life.lease.is_held()
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn life(&self) -> &Arc<Life> {
        &self.life
    }

    /// The name of the replica.
    pub fn replica(&self) -> &str {
        &self.life.replica.peer.name
    }
}

impl Life {
    /// Whether it may still store and tell.
    pub fn is_held(&self) -> bool {
        self.lease.is_held()
    }
}

impl Cluster {
    /// Joins the others. The row of a replica with this name that has crashed is waited out. `key` is the secret that all
    /// replicas share.
    pub async fn join(
        ownership: Arc<dyn Ownership>,
        me: Peer,
        lease: Duration,
        key: Vec<u8>,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, JoinError> {
        let replica = Replica {
            peer: me,
            instance: Instance::new(),
            lease,
        };
        let mut silent_before = Duration::ZERO;
        let began = Instant::now();
        loop {
            let sent = Moment::now();
            match ownership.join(&replica).await? {
                Joined::Member { .. } => {
                    let life = Life {
                        lease: Lease::new(sent, lease),
                        replica,
                    };
                    return Ok(Arc::new(Self {
                        ownership,
                        life: RwLock::new(Arc::new(life)),
                        key,
                        draining: AtomicBool::new(false),
                        hurry: Notify::new(),
                        begun: watch::Sender::default(),
                        states: States::default(),
                        metrics,
                    }));
                }
                // One that has just given a sign of life is not dead.
                Joined::NameTaken { by, silent, lease }
                    if silent < silent_before || began.elapsed() > lease + BEAT =>
                {
                    return Err(JoinError::NameTaken {
                        name: by.name,
                        address: by.address.to_string(),
                    });
                }
                Joined::NameTaken { by, silent, .. } => {
                    if silent_before.is_zero() {
                        tracing::info!(
                            "a replica called {:?} gave its last sign of life {silent:?} ago; waiting until it is dead",
                            by.name
                        );
                    }
                    silent_before = silent;
                    sleep(TRY_AGAIN).await;
                }
            }
        }
    }

    /// What this replica is called, and where others reach it.
    pub fn me(&self) -> Peer {
        self.life().replica.peer.clone()
    }

    /// How long a replica without a sign of life counts as living.
    pub fn lease(&self) -> Duration {
        self.life().replica.lease
    }

    /// The secret that all replicas share.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The other living replicas that take chats.
    pub fn peers(&self) -> Vec<Peer> {
        self.states.peers()
    }

    /// How the cluster looks from here.
    pub fn state(&self) -> ClusterState {
        let is_member = self.life().is_held();
        self.states
            .state(self.me().name, is_member, self.is_draining())
    }

    /// Notes that files are where no other replica finds them.
    pub fn note_own_files(&self, own: bool) {
        self.states.note_own_files(own);
    }

    /// Notes whether somebody else seals the audit with another key.
    pub fn note_audit_key(&self, differs: bool) {
        self.states.note_audit_key(differs);
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Takes no more chats while there are others that can.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
        self.hurry.notify_one();
    }

    /// The owner of a chat, if it is another replica.
    pub async fn owner(&self, chat: ChatRef<'_>) -> Result<Option<Peer>, StoreError> {
        let life = self.life();
        let owner = self.ownership.owner(chat).await?;
        Ok(owner.filter(|owner| owner.name != life.replica.peer.name))
    }

    /// The replica that a request for a chat goes to, if it is not this one.
    pub async fn elsewhere(&self, chat: ChatRef<'_>) -> Result<Option<Peer>, StoreError> {
        match self.is_draining() {
            true => self.other_for(chat).await,
            false => self.owner(chat).await,
        }
    }

    /// Takes a chat for this replica, or says who has it.
    pub async fn claim(&self, chat: ChatRef<'_>) -> Result<Result<Owned, Peer>, ClaimError> {
        let life = self.held_life().await.ok_or(ClaimError::Alone)?;
        if self.is_draining()
            && let Some(other) = self.other_for(chat).await?
        {
            return Ok(Err(other));
        }
        match self.ownership.take(chat, &life.replica).await? {
            Claim::Mine { epoch, silent } => {
                if let Some(silent) = silent {
                    self.metrics.cluster().taken_over(silent);
                }
                Ok(Ok(Owned { life, epoch }))
            }
            Claim::OwnedBy(peer) => Ok(Err(peer)),
        }
    }

    /// This life, or the next one if its lease is lost and the next one begins soon.
    async fn held_life(&self) -> Option<Arc<Life>> {
        let life = self.life();
        if life.is_held() {
            return Some(life);
        }
        let began = self.begun.subscribe();
        let next = async {
            let mut began = began;
            loop {
                let life = self.life();
                if life.is_held() {
                    return Some(life);
                }
                began.changed().await.ok()?;
            }
        };
        timeout(PATIENCE, next).await.ok().flatten()
    }

    /// Who serves a chat while this replica takes none: its owner, or one of the others, the same for all requests.
    async fn other_for(&self, chat: ChatRef<'_>) -> Result<Option<Peer>, StoreError> {
        if let Some(owner) = self.owner(chat).await? {
            return Ok(Some(owner));
        }
        let peers = self.peers();
        let mut hasher = DefaultHasher::new();
        (chat.user.as_str(), chat.id.as_str()).hash(&mut hasher);
        let index = hasher.finish().checked_rem(peers.len() as u64);
        Ok(index.and_then(|index| peers.into_iter().nth(index as usize)))
    }

    /// Gives a chat back. What cannot be given back now is found by the next look at [`Cluster::owned`].
    pub async fn release(&self, chat: ChatRef<'_>, owned: &Owned) {
        let replica = &owned.life.replica;
        // Others take what belongs to a life that is over.
        if !owned.is_held() {
            return;
        }
        let released = self.ownership.release(chat, owned.epoch, replica);
        match timeout(PATIENCE, released).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(chat = %chat.id, %error, "the chat {} cannot be given back now", chat.id);
            }
            Err(_) => {
                tracing::warn!(chat = %chat.id, "the chat {} could not be given back in time", chat.id);
            }
        }
    }

    /// Some chats that this replica owns: those after an epoch, and how it owns them.
    pub async fn owned(
        &self,
        after: Epoch,
        limit: u32,
    ) -> Result<Vec<(OwnedChat, Owned)>, StoreError> {
        let life = self.life();
        let chats = self.ownership.owned(&life.replica, after, limit).await?;
        let owned = |chat: OwnedChat| {
            let (life, epoch) = (life.clone(), chat.epoch);
            (chat, Owned { life, epoch })
        };
        Ok(chats.into_iter().map(owned).collect())
    }

    /// Chats that need an owner.
    pub async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>, StoreError> {
        let life = self.life();
        if !life.is_held() || self.is_draining() {
            return Ok(Vec::new());
        }
        self.ownership.orphans(limit).await
    }

    /// Shows that this replica lives until the future is dropped. `lost` is called when it was dead to the others, and has
    /// to let go of everything.
    pub async fn live(&self, mut lost: impl FnMut()) {
        let mut next = Instant::now() + BEAT;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = self.hurry.notified() => {}
            }
            next = Instant::now() + BEAT;
            if self.beat().await {
                continue;
            }
            self.life().lease.end();
            self.metrics.cluster().lease_lost();
            tracing::error!(
                "this replica could not show in time that it lives, and lets go of its chats; others go on with them"
            );
            lost();
            self.begin_another_life().await;
        }
    }

    /// One heartbeat. Returns whether the replica still lives.
    async fn beat(&self) -> bool {
        let life = self.life();
        let (sent, before) = (Moment::now(), now());
        let beat = self.ownership.heartbeat(&life.replica, self.is_draining());
        let patience = life.lease.remaining().min(PATIENCE);
        match timeout(patience, beat).await {
            Ok(Ok(Heartbeat::Alive { now: theirs, peers })) => {
                let lives = life.lease.renew(sent);
                self.states.note_peers(peers);
                self.states.note_clock(before, theirs, now());
                self.states.note_heard(true);
                return lives;
            }
            Ok(Ok(Heartbeat::Dead)) => return false,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the database could not be shown that this replica lives");
            }
            Err(_) => tracing::warn!("the database does not answer"),
        }
        self.states.note_heard(false);
        life.is_held()
    }

    /// Joins again, with nothing from the life before.
    async fn begin_another_life(&self) {
        let before = self.life();
        let replica = Replica {
            instance: Instance::new(),
            ..before.replica.clone()
        };
        loop {
            let join = async {
                // Others need not wait until its row is old.
                self.ownership.leave(&before.replica).await?;
                let sent = Moment::now();
                self.ownership
                    .join(&replica)
                    .await
                    .map(|joined| (sent, joined))
            };
            match timeout(PATIENCE, join).await {
                Ok(Ok((sent, Joined::Member { .. }))) => {
                    let lease = Lease::new(sent, replica.lease);
                    let life = Arc::new(Life { replica, lease });
                    *self.life.write().unwrap_or_else(PoisonError::into_inner) = life;
                    self.begun.send_replace(());
                    self.states.note_heard(true);
                    self.states.solved(Problem::NameTaken);
                    tracing::info!("this replica has joined the others again");
                    return;
                }
                Ok(Ok((_, Joined::NameTaken { by, .. }))) => {
                    let words = format!("another replica is called {:?} (cluster.name)", by.name);
                    self.states.report(Problem::NameTaken, words);
                }
                Ok(Err(error)) => tracing::warn!(%error, "this replica cannot join the others yet"),
                Err(_) => tracing::warn!("this replica cannot join the others yet: no answer"),
            }
            sleep(TRY_AGAIN).await;
        }
    }

    /// Leaves the others: what it owned belongs to nobody.
    pub async fn leave(&self) {
        let life = self.life();
        life.lease.end();
        let left = timeout(PATIENCE, self.ownership.leave(&life.replica)).await;
        if !matches!(left, Ok(Ok(()))) {
            tracing::warn!(
                "the others were not informed that this replica stops; they notice after a lease"
            );
        }
    }

    /// What is counted of it at the moment.
    pub fn figures(&self) -> ClusterFigures {
        ClusterFigures {
            // Itself, unless it takes none.
            replicas: self.peers().len() + usize::from(!self.is_draining()),
            clock_millis: self.states.clock_millis(),
        }
    }

    fn life(&self) -> Arc<Life> {
        // Poisoning is ignored: the value is replaced whole.
        let life = self.life.read().unwrap_or_else(PoisonError::into_inner);
        life.clone()
    }
}

#[cfg(test)]
mod tests;
