//! How chats get this replica as their owner and lose it again, where there are several replicas.
//!
//! A chat is claimed before its task begins and given back after it has ended, so whatever a task does is done by the owner.
//! A request for a chat that another replica owns is refused with [`ChatError::Elsewhere`] before anything has happened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adk_bridge_protocol::id::{ChatId, UserId};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use super::error::ChatError;
use super::{Chats, Command};
use crate::cluster::{Cluster, ClusterState, Epoch, Owned};
use crate::metrics::OwnerChange;
use crate::store::{ChatRef, StoreError};

/// How often a replica looks for chats that nobody goes on with; each waits a little longer or shorter, so that they do not
/// all look at the same moment.
const LOOK: Duration = Duration::from_millis(800);
const SPREAD: Duration = Duration::from_millis(400);
/// How many chats are taken over in one go.
const AT_ONCE: u32 = 64;
/// How many of its own chats a replica looks at in one go.
const LOOKED_AT: u32 = 256;
/// How long a chat whose time to leave has come may take to be stored and given back. A database that is away would be
/// waited for much longer, and whoever stops a process does not wait.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// A chat that cannot be continued (its agent may be away, or its history too large) is tried again after this time, then
/// after twice as long each time up to the longest.
const TRY_AGAIN: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// After this time it counts as new.
const FORGOTTEN: Duration = Duration::from_secs(120);

/// Claims under way, so that no chat is claimed twice at once: the second claim would fence the first.
#[derive(Default)]
pub(super) struct Claims(Mutex<HashMap<(UserId, ChatId), Gate>>);

type Gate = Arc<tokio::sync::Mutex<()>>;

/// Chats that were taken over lately: when each was, and how long it is left alone since.
#[derive(Default)]
pub(super) struct TriedChats(HashMap<(UserId, ChatId), (Instant, Duration)>);

impl TriedChats {
    /// Whether a chat may be tried now. It is noted.
    fn may_try(&mut self, user: &UserId, chat_id: &ChatId, now: Instant) -> bool {
        self.0.retain(|_, (at, _)| *at + FORGOTTEN > now);
        let key = (user.clone(), chat_id.clone());
        match self.0.get_mut(&key) {
            Some((at, rest)) if *at + *rest > now => false,
            Some((at, rest)) => {
                (*at, *rest) = (now, (*rest * 2).min(LONGEST));
                true
            }
            None => {
                self.0.insert(key, (now, TRY_AGAIN));
                true
            }
        }
    }
}

impl Claims {
    /// Begins a claim; it goes on when its gate is free.
    pub(super) fn begin(&self, user: &UserId, chat_id: &ChatId) -> UnderWay<'_> {
        let key = (user.clone(), chat_id.clone());
        let gate = self.lock().entry(key.clone()).or_default().clone();
        UnderWay {
            claims: self,
            key,
            gate,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(UserId, ChatId), Gate>> {
        // Poisoning is ignored: no critical section can leave the map inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claim that is under way. Dropped, also unfinished, it leaves nothing behind.
pub(super) struct UnderWay<'c> {
    claims: &'c Claims,
    key: (UserId, ChatId),
    gate: Gate,
}

impl UnderWay<'_> {
    /// Passed by one claim of a chat at a time.
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut gates = self.claims.lock();
        // This one and the map's: nobody else waits.
        if Arc::strong_count(&self.gate) == 2 {
            gates.remove(&self.key);
        }
    }
}

impl Chats {
    /// The task of a chat. In a cluster, one begins only when this replica owns the chat.
    pub(super) async fn task_of(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        why: OwnerChange,
    ) -> Result<mpsc::Sender<Box<Command>>, ChatError> {
        let Some(cluster) = &self.shared.cluster else {
            return Ok(self.task_or_new(user, chat_id, None));
        };
        if let Some(task) = self.task_in_use(user, chat_id) {
            return Ok(task);
        }
        let (chats, cluster) = (self.clone(), cluster.clone());
        let (user, chat_id) = (user.clone(), chat_id.clone());
        // In a task of its own: a client that leaves in the middle would leave a chat that is owned and has no task.
        let claim = async move { chats.claim(&cluster, &user, &chat_id, why).await };
        let claimed = tokio::spawn(claim).await;
        claimed.unwrap_or(Err(ChatError::TaskEnded))
    }

    async fn claim(
        &self,
        cluster: &Cluster,
        user: &UserId,
        chat_id: &ChatId,
        why: OwnerChange,
    ) -> Result<mpsc::Sender<Box<Command>>, ChatError> {
        let claim = self.claims.begin(user, chat_id);
        let _alone = claim.gate.lock().await;
        if let Some(task) = self.task_in_use(user, chat_id) {
            return Ok(task);
        }
        let chat = ChatRef { user, id: chat_id };
        match cluster.claim(chat).await? {
            Ok(owned) => {
                self.shared.metrics.cluster().chat_taken(why);
                Ok(self.task_or_new(user, chat_id, Some(owned)))
            }
            Err(peer) => Err(ChatError::Elsewhere(peer)),
        }
    }

    fn task_in_use(&self, user: &UserId, chat_id: &ChatId) -> Option<mpsc::Sender<Box<Command>>> {
        let key = (user.to_owned(), chat_id.to_owned());
        let tasks = self.lock();
        tasks.get(&key).filter(|task| !task.is_closed()).cloned()
    }

    /// Gives back a chat whose task has ended.
    pub(super) async fn release(&self, user: &UserId, chat_id: &ChatId, owned: Option<Owned>) {
        if let (Some(cluster), Some(owned)) = (&self.shared.cluster, owned) {
            let chat = ChatRef { user, id: chat_id };
            cluster.release(chat, &owned).await;
        }
    }

    /// Whether a chat may have a turn that can be resumed, here or at another replica.
    pub async fn may_be_running(&self, user: &UserId, chat_id: &ChatId) -> Result<bool, ChatError> {
        if self.is_in_use(user, chat_id) {
            return Ok(true);
        }
        let Some(cluster) = &self.shared.cluster else {
            return Ok(false);
        };
        let chat = ChatRef { user, id: chat_id };
        if cluster.owner(chat).await?.is_some() {
            return Ok(true);
        }
        Ok(self.shared.store.history_size(chat).await?.open > 0)
    }

    /// What to say of a request that is refused here: perhaps another replica owns the chat, and does not refuse it.
    pub(super) async fn elsewhere_or(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        refusal: ChatError,
    ) -> ChatError {
        let Some(cluster) = &self.shared.cluster else {
            return refusal;
        };
        if self.is_in_use(user, chat_id) {
            return refusal;
        }
        let chat = ChatRef { user, id: chat_id };
        match cluster.owner(chat).await {
            Ok(Some(owner)) => ChatError::Elsewhere(owner),
            Ok(None) | Err(_) => refusal,
        }
    }

    /// How the cluster looks from here, if there is one.
    pub fn cluster_state(&self) -> Option<ClusterState> {
        self.shared.cluster.as_ref().map(|cluster| cluster.state())
    }

    /// Takes over chats that nobody goes on with: what was interrupted continues, and deadlines are kept. Returns how many.
    pub(super) async fn take_over(&self, tried: &mut TriedChats) -> Result<usize, StoreError> {
        let Some(cluster) = &self.shared.cluster else {
            return Ok(0);
        };
        let mut taken = 0;
        loop {
            let orphans = cluster.orphans(AT_ONCE).await?;
            let before = taken;
            for orphan in &orphans {
                let (user, chat_id) = (&orphan.user, &orphan.chat_id);
                if self.is_in_use(user, chat_id) || !tried.may_try(user, chat_id, Instant::now()) {
                    continue;
                }
                match self.task_of(user, chat_id, OwnerChange::TakeOver).await {
                    Ok(task) => {
                        // A task with a full queue is awake already.
                        let _ = task.try_send(Box::new(Command::Boot));
                        taken += 1;
                        tracing::info!(chat = %chat_id, "the chat {chat_id} is taken over");
                    }
                    // Another replica was faster.
                    Err(ChatError::Elsewhere(_)) => {}
                    Err(error) => {
                        tracing::warn!(chat = %chat_id, %error, "the chat {chat_id} cannot be taken over yet");
                    }
                }
            }
            if orphans.len() < AT_ONCE as usize || taken == before {
                return Ok(taken);
            }
        }
    }

    /// Gives back chats that this replica owns and does not serve, so that whoever looks for them finds them: one may not have
    /// been given back in time, or a claim that was repeated may have arrived twice. Looks at some, those after an epoch;
    /// returns after which to look next.
    async fn give_back_unserved(&self, after: Epoch) -> Result<Epoch, StoreError> {
        let Some(cluster) = &self.shared.cluster else {
            return Ok(after);
        };
        let owned = cluster.owned(after, LOOKED_AT).await?;
        let next = match owned.last() {
            Some((last, _)) if owned.len() == LOOKED_AT as usize => last.epoch,
            _ => Epoch::FIRST,
        };
        for (chat, owned) in owned {
            let (user, chat_id) = (&chat.user, &chat.chat_id);
            if self.is_in_use(user, chat_id) {
                continue;
            }
            let claim = self.claims.begin(user, chat_id);
            // Who claims it at this moment serves it at the next.
            let Ok(_alone) = claim.gate.try_lock() else {
                continue;
            };
            if !self.is_in_use(user, chat_id) {
                tracing::info!(chat = %chat_id, "the chat {chat_id} is owned and not served; it is given back");
                let chat = ChatRef { user, id: chat_id };
                cluster.release(chat, &owned).await;
            }
        }
        Ok(next)
    }

    /// Lives among the other replicas until what is returned is dropped: heartbeats, take-overs, a look at who can be
    /// reached.
    pub fn live_in_cluster(&self) -> ClusterTasks {
        let Some(cluster) = self.shared.cluster.clone() else {
            return ClusterTasks(Vec::new());
        };
        let (beating, chats) = (cluster.clone(), self.clone());
        let beats = tokio::spawn(async move { beating.live(|| chats.let_go_of_all()).await });
        let looks = tokio::spawn(async move { cluster.look_around().await });
        let chats = self.clone();
        let sweeps = tokio::spawn(async move {
            let (mut tried, mut after) = (TriedChats::default(), Epoch::FIRST);
            loop {
                let spread =
                    SPREAD.mul_f64(Uuid::new_v4().as_u64_pair().0 as f64 / u64::MAX as f64);
                sleep(LOOK + spread).await;
                match chats.give_back_unserved(after).await {
                    Ok(next) => after = next,
                    Err(error) => {
                        tracing::debug!(%error, "chats of this replica cannot be looked through");
                    }
                }
                if let Err(error) = chats.take_over(&mut tried).await {
                    tracing::debug!(%error, "chats that nobody goes on with cannot be looked for");
                }
            }
        });
        ClusterTasks(vec![beats, looks, sweeps])
    }

    /// Wakes all tasks, so that those let go of their chats that this replica may not own any more.
    fn let_go_of_all(&self) {
        for task in self.lock().values() {
            // A task with a full queue is awake already.
            let _ = task.try_send(Box::new(Command::LetGo));
        }
    }

    /// Gives all chats to other replicas: idle ones at once, the others when nothing is under way any more or the time is
    /// over. One that cannot be stored or given back then is left: others take it over.
    pub async fn hand_over(&self, until: Instant) {
        let handed_over = self.tell_all(|answer| Command::HandOver { until, answer });
        if timeout_at(until + LAST_WRITES, handed_over).await.is_err() {
            tracing::warn!(
                "some chats could not be handed over in time; others take them over when this replica is gone"
            );
        }
    }
}

/// What a replica does all the time; dropped, it stops.
pub struct ClusterTasks(Vec<JoinHandle<()>>);

impl Drop for ClusterTasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_claim_that_is_given_up_leaves_nothing_behind() {
        let (user, chat) = (UserId::from("alice"), ChatId::from("chat-1"));
        let claims = Claims::default();
        let first = claims.begin(&user, &chat);
        let alone = first.gate.lock().await;
        let second = async {
            let claim = claims.begin(&user, &chat);
            let _alone = claim.gate.lock().await;
        };
        assert!(tokio::time::timeout(Duration::ZERO, second).await.is_err());
        assert_eq!(claims.lock().len(), 1, "the first goes on");
        drop(alone);
        drop(first);
        assert!(claims.lock().is_empty());
    }

    #[tokio::test]
    async fn what_cannot_be_continued_is_tried_ever_more_rarely() {
        let (user, chat) = (UserId::from("alice"), ChatId::from("chat-1"));
        let (began, mut tried) = (Instant::now(), TriedChats::default());
        let tenths = |tenth: u32| began + Duration::from_millis(100) * tenth;
        let times: Vec<u32> = (0..3_000)
            .filter(|&tenth| tried.may_try(&user, &chat, tenths(tenth)))
            .collect();
        assert_eq!(times[..6], [0, 5, 15, 35, 75, 155]);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 300));
        assert!(tried.may_try(&user, &chat, tenths(9_000)));
        assert!(
            tried.may_try(&user, &chat, tenths(9_005)),
            "it counts as new"
        );
    }
}
