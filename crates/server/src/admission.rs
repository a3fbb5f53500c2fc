//! Admission: what may begin, for one user and for all of them together.
//!
//! Everything is refused before it changes anything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adk_bridge_protocol::id::UserId;
use tokio::time::Instant;

use crate::config::Current;
use crate::metrics::{AdmissionMetrics, RefusedBy};
use crate::process_memory::ProcessMemory;

/// When to try again: turns and uploads take seconds.
const SOON: Duration = Duration::from_secs(2);
/// Answers to questions may use this share in addition: a decision should not be refused because others chat.
const ANSWERS_SHARE: usize = 4;
/// The same for memory: an answer needs little, and what waits for it is held already.
const ANSWERS_MEMORY_SHARE: u64 = 10;
/// When to try again if memory is short: turns that run have to end first.
const MEMORY_RETURNS: Duration = Duration::from_secs(5);
/// How long a user whose answers were refused too often is kept from answering: a page that sent the same answer in a loop
/// must be usable again soon after it was closed.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How many users are remembered before those with nothing under way are forgotten.
const REMEMBERED: usize = 1_024;

/// The limits; see `[limits]` in the configuration.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionLimits {
    pub turns: usize,
    pub turns_per_user: usize,
    pub uploads_per_user: usize,
    pub refused_answers_per_minute: u32,
    /// Bytes of memory of this process; none is no limit.
    pub memory: Option<u64>,
}

/// Which limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    #[error(
        "the server is already answering {running} chats (limits.turns = {limit}); try again in a moment"
    )]
    Turns { running: usize, limit: usize },
    #[error(
        "the server uses {used} of {limit} bytes of memory (limits.memory_bytes); try again in a moment"
    )]
    Memory { used: u64, limit: u64 },
    #[error(
        "{running} of your chats are being answered (limits.turns_per_user = {limit}); wait for one to end"
    )]
    UserTurns { running: usize, limit: usize },
    #[error(
        "{limit} of your uploads are in progress (limits.uploads_per_user); send this one later"
    )]
    UserUploads { limit: usize },
    #[error(
        "too many of your answers were refused (limits.refused_answers_per_minute = {limit}); load the chat again and \
         answer what it asks"
    )]
    RefusedAnswers { limit: u32, wait: Duration },
}

impl AdmissionError {
    /// When to try again.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::RefusedAnswers { wait, .. } => *wait,
            Self::Memory { .. } => MEMORY_RETURNS,
            Self::Turns { .. } | Self::UserTurns { .. } | Self::UserUploads { .. } => SOON,
        }
    }
}

/// What is under way, and who began it.
#[derive(Debug)]
pub struct Admission {
    allowed: Current<AdmissionLimits>,
    used: Mutex<TotalUsage>,
    memory: ProcessMemory,
    counted: Arc<AdmissionMetrics>,
}

#[derive(Debug, Default)]
struct TotalUsage {
    turns: usize,
    users: HashMap<UserId, UserUsage>,
}

#[derive(Debug, Default)]
struct UserUsage {
    turns: usize,
    uploads: usize,
    refused: Option<RefusedAnswers>,
}

/// Refused answers, which are forgotten at a steady rate.
#[derive(Debug)]
struct RefusedAnswers {
    count: f64,
    at: Instant,
}

/// What a turn begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnStart {
    /// A message, or speech.
    Message,
    /// The answer to something that was asked.
    Answer,
}

/// The right to have something under way, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    user: UserId,
    what: Resource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resource {
    Turn,
    Upload,
}

impl Admission {
    pub fn new(allowed: AdmissionLimits) -> Arc<Self> {
        Self::counted(allowed, Arc::default())
    }

    /// One that counts what it refuses.
    pub fn counted(allowed: AdmissionLimits, counted: Arc<AdmissionMetrics>) -> Arc<Self> {
        counted.allow_memory(allowed.memory);
        Arc::new(Self {
            allowed: Current::new(allowed),
            used: Mutex::default(),
            memory: ProcessMemory::default(),
            counted,
        })
    }

    /// What begins from here on is within these limits.
    pub fn limit(&self, allowed: AdmissionLimits) {
        self.counted.allow_memory(allowed.memory);
        self.allowed.set(allowed);
    }

    /// Admits a turn of a chat that has none under way.
    pub fn turn(
        self: &Arc<Self>,
        user: &UserId,
        begins: TurnStart,
    ) -> Result<Permit, AdmissionError> {
        let mut used = self.lock();
        let checked = self.check_turn(&used, user, begins);
        checked.map_err(|error| self.refuse(error))?;
        used.turns += 1;
        used.of(user).turns += 1;
        Ok(self.permit(user, Resource::Turn))
    }

    /// Whether a turn would be admitted now.
    pub fn has_room(&self, user: &UserId, begins: TurnStart) -> Result<(), AdmissionError> {
        let checked = self.check_turn(&self.lock(), user, begins);
        checked.map_err(|error| self.refuse(error))
    }

    pub fn upload(self: &Arc<Self>, user: &UserId) -> Result<Permit, AdmissionError> {
        let mut used = self.lock();
        let limit = self.allowed.get().uploads_per_user;
        let of_user = used.of(user);
        if of_user.uploads >= limit {
            return Err(self.refuse(AdmissionError::UserUploads { limit }));
        }
        of_user.uploads += 1;
        Ok(self.permit(user, Resource::Upload))
    }

    /// Notes answers of a user that were refused, each of which is a row of the audit.
    pub fn note_refused(&self, user: &UserId, count: usize) {
        self.note_refused_at(user, count, Instant::now());
    }

    /// Refuses a user whose answers were refused too often.
    pub fn check_refused(&self, user: &UserId) -> Result<(), AdmissionError> {
        let checked = self.check_refused_at(user, Instant::now());
        checked.map_err(|error| self.refuse(error))
    }

    fn refuse(&self, error: AdmissionError) -> AdmissionError {
        self.counted.refused(match error {
            AdmissionError::Turns { .. } => RefusedBy::Turns,
            AdmissionError::Memory { .. } => RefusedBy::Memory,
            AdmissionError::UserTurns { .. } => RefusedBy::TurnsPerUser,
            AdmissionError::UserUploads { .. } => RefusedBy::UploadsPerUser,
            AdmissionError::RefusedAnswers { .. } => RefusedBy::RefusedAnswers,
        });
        error
    }

    fn check_turn(
        &self,
        used: &TotalUsage,
        user: &UserId,
        begins: TurnStart,
    ) -> Result<(), AdmissionError> {
        let most = |limit: usize| match begins {
            TurnStart::Message => limit,
            TurnStart::Answer => limit.saturating_add(limit.div_ceil(ANSWERS_SHARE)),
        };
        // What runs already is never stopped for memory: whoever comes is refused while there is room for the others to end.
        let allowed = self.allowed.get();
        if let Some(limit) = allowed.memory
            && let Some(used) = self.memory.bytes()
            && used >= memory_for(limit, begins)
        {
            return Err(AdmissionError::Memory { used, limit });
        }
        let limit = allowed.turns;
        if used.turns >= most(limit) {
            return Err(AdmissionError::Turns {
                running: used.turns,
                limit,
            });
        }
        let running = used.users.get(user).map_or(0, |of_user| of_user.turns);
        let limit = self.allowed.get().turns_per_user;
        if running >= most(limit) {
            return Err(AdmissionError::UserTurns { running, limit });
        }
        Ok(())
    }

    fn note_refused_at(&self, user: &UserId, count: usize, now: Instant) {
        if count == 0 {
            return;
        }
        let mut used = self.lock();
        let rate = self.refused_per_second();
        let refused = &mut used.of(user).refused;
        let before = refused
            .as_ref()
            .map_or(0.0, |before| before.left(rate, now));
        #[allow(clippy::cast_precision_loss, reason = "a few thousand at most")]
        let count = (before + count as f64).min(self.most_refused());
        *refused = Some(RefusedAnswers { count, at: now });
    }

    fn check_refused_at(&self, user: &UserId, now: Instant) -> Result<(), AdmissionError> {
        let mut used = self.lock();
        let Some(of_user) = used.users.get_mut(user) else {
            return Ok(());
        };
        let rate = self.refused_per_second();
        let limit = self.allowed.get().refused_answers_per_minute;
        let left = of_user
            .refused
            .as_ref()
            .map_or(0.0, |it| it.left(rate, now));
        if left == 0.0 {
            of_user.refused = None;
        }
        let over = left - f64::from(limit);
        if over < 0.0 {
            return Ok(());
        }
        // A second more, so that a client that returns then is not refused again.
        let wait = Duration::try_from_secs_f64(over / rate).unwrap_or(Duration::MAX);
        Err(AdmissionError::RefusedAnswers {
            limit,
            wait: wait.saturating_add(Duration::from_secs(1)),
        })
    }

    /// How many refused answers are remembered: the user has to wait for [`LONGEST_WAIT`] at most, however many there were.
    fn most_refused(&self) -> f64 {
        let limit = f64::from(self.allowed.get().refused_answers_per_minute);
        limit + self.refused_per_second() * LONGEST_WAIT.as_secs_f64()
    }

    fn refused_per_second(&self) -> f64 {
        f64::from(self.allowed.get().refused_answers_per_minute) / 60.0
    }

    fn permit(self: &Arc<Self>, user: &UserId, what: Resource) -> Permit {
        Permit {
            admission: self.clone(),
            user: user.to_owned(),
            what,
        }
    }

    /// Poisoning is ignored: no critical section can leave the counters inconsistent.
    fn lock(&self) -> MutexGuard<'_, TotalUsage> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Below how much memory a turn may begin.
fn memory_for(limit: u64, begins: TurnStart) -> u64 {
    match begins {
        TurnStart::Message => limit,
        TurnStart::Answer => limit.saturating_add(limit / ANSWERS_MEMORY_SHARE),
    }
}

impl TotalUsage {
    fn of(&mut self, user: &UserId) -> &mut UserUsage {
        if self.users.len() >= REMEMBERED {
            self.users.retain(|_, it| !it.is_idle());
        }
        self.users.entry(user.to_owned()).or_default()
    }
}

impl UserUsage {
    fn is_idle(&self) -> bool {
        self.turns == 0 && self.uploads == 0 && self.refused.is_none()
    }
}

impl RefusedAnswers {
    fn left(&self, rate: f64, now: Instant) -> f64 {
        let forgotten = now.saturating_duration_since(self.at).as_secs_f64() * rate;
        (self.count - forgotten).max(0.0)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut used = self.admission.lock();
        if self.what == Resource::Turn {
            used.turns -= 1;
        }
        if let Some(of_user) = used.users.get_mut(&self.user) {
            match self.what {
                Resource::Turn => of_user.turns -= 1,
                Resource::Upload => of_user.uploads -= 1,
            }
            if of_user.is_idle() {
                used.users.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn admission() -> Arc<Admission> {
        Admission::new(AdmissionLimits {
            turns: 4,
            turns_per_user: 2,
            uploads_per_user: 1,
            refused_answers_per_minute: 60,
            memory: None,
        })
    }

    #[test]
    fn new_turns_are_refused_before_memory_runs_out() {
        let with = |limit| {
            let mut allowed = admission().allowed.get();
            allowed.memory = Some(limit);
            let mut admission = Arc::into_inner(Admission::new(allowed)).unwrap();
            admission.memory = ProcessMemory::fixed(1_000);
            Arc::new(admission)
        };
        let alice = UserId::literal("alice");
        for (limit, message, answer) in [
            (1_001, true, true),
            (1_000, false, true),
            (910, false, true),
            (909, false, false),
        ] {
            let admission = with(limit);
            let admits = |begins| admission.turn(&alice, begins).is_ok();
            assert_eq!(admits(TurnStart::Message), message, "{limit}");
            assert_eq!(admits(TurnStart::Answer), answer, "{limit}");
        }
        let refused = with(10).has_room(&alice, TurnStart::Message).unwrap_err();
        assert!(refused.to_string().contains("limits.memory_bytes"));
        assert_eq!(refused.retry_after(), MEMORY_RETURNS);
    }

    #[test]
    fn turns_are_bounded_for_each_user_and_in_all() {
        let admission = admission();
        let turn = |user: &str, begins| admission.turn(&user.into(), begins);
        let alice: Vec<_> = (0..2)
            .map(|_| turn("alice", TurnStart::Message).unwrap())
            .collect();
        let refused = turn("alice", TurnStart::Message).unwrap_err();
        assert!(matches!(refused, AdmissionError::UserTurns { .. }));
        let answer = turn("alice", TurnStart::Answer).unwrap();
        assert!(turn("alice", TurnStart::Answer).is_err());
        let bob = turn("bob", TurnStart::Message).unwrap();
        let refused = turn("carol", TurnStart::Message).unwrap_err();
        assert!(matches!(refused, AdmissionError::Turns { .. }));
        drop((alice, answer, bob));
        assert!(turn("alice", TurnStart::Message).is_ok());
        assert!(admission.lock().users.is_empty(), "nothing is left of them");
    }

    #[test]
    fn uploads_are_bounded_for_each_user() {
        let admission = admission();
        let first = admission.upload(&UserId::literal("alice")).unwrap();
        let refused = admission.upload(&UserId::literal("alice")).unwrap_err();
        assert_eq!(refused, AdmissionError::UserUploads { limit: 1 });
        assert!(admission.upload(&UserId::literal("bob")).is_ok());
        drop(first);
        assert!(admission.upload(&UserId::literal("alice")).is_ok());
    }

    #[test]
    fn refused_answers_are_forgotten_with_time() {
        let (admission, now) = (admission(), Instant::now());
        admission.note_refused_at(&UserId::literal("alice"), 59, now);
        assert!(
            admission
                .check_refused_at(&UserId::literal("alice"), now)
                .is_ok()
        );
        admission.note_refused_at(&UserId::literal("alice"), 11, now);
        let refused = admission
            .check_refused_at(&UserId::literal("alice"), now)
            .unwrap_err();
        assert_eq!(refused.retry_after(), Duration::from_secs(11));
        assert!(
            admission
                .check_refused_at(&UserId::literal("bob"), now)
                .is_ok()
        );
        let later = now + Duration::from_secs(11);
        assert!(
            admission
                .check_refused_at(&UserId::literal("alice"), later)
                .is_ok()
        );
        let much_later = now + Duration::from_secs(100);
        assert!(
            admission
                .check_refused_at(&UserId::literal("alice"), much_later)
                .is_ok()
        );
        assert!(
            admission
                .turn(&UserId::literal("alice"), TurnStart::Message)
                .is_ok()
        );
        assert!(admission.lock().users.is_empty(), "nothing is left of her");
    }

    #[test]
    fn a_user_whose_answers_were_refused_in_a_loop_does_not_wait_for_hours() {
        let (admission, now, alice) = (admission(), Instant::now(), UserId::literal("alice"));
        for _ in 0..10_000 {
            admission.note_refused_at(&alice, 20, now);
        }
        let refused = admission.check_refused_at(&alice, now).unwrap_err();
        let second = Duration::from_secs(1);
        assert_eq!(refused.retry_after(), LONGEST_WAIT + second);
        let later = now + LONGEST_WAIT + second;
        assert!(admission.check_refused_at(&alice, later).is_ok());
    }
}
