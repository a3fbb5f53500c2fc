//! Memory that clients can make the server hold: limits for one user and for all.

use adk_bridge_protocol::id::UserId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::config::{Current, Limits};

/// When to try again: active clients soon release what is held for them.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);

/// This much of a [`Tally`] is not counted: short-lived bytes need no check, and a connection has buffers of this size
/// anyway.
const FREE_BYTES: usize = 4 * 1024;
/// A tally is counted in steps of this size, so that the budget is checked once for many deltas.
const STEP_BYTES: usize = 16 * 1024;

/// For bodies and WebSocket messages that are arriving, or wait for their chat.
pub fn unfinished(limits: &Limits) -> Arc<Budget> {
    let purpose = Purpose {
        what: "unfinished requests",
        total_key: "limits.unfinished_bytes",
        per_user_key: "limits.unfinished_bytes_per_user",
    };
    let (total, per_user) = (limits.unfinished_bytes, limits.unfinished_bytes_per_user);
    Budget::new(purpose, total, per_user)
}

/// For answers that clients have not taken yet.
pub fn unread(limits: &Limits) -> Arc<Budget> {
    let purpose = Purpose {
        what: "unread answers",
        total_key: "limits.unread_bytes",
        per_user_key: "limits.unread_bytes_per_user",
    };
    let (total, per_user) = (limits.unread_bytes, limits.unread_bytes_per_user);
    Budget::new(purpose, total, per_user)
}

/// How many bytes a chat that is answered holds for each byte of its messages: the message, what the model is sent, and
/// that as JSON.
pub const LOADED_COPIES: usize = 3;

/// For the chats that are in memory: their histories, the requests to their agents with all files, and the growing
/// answers.
pub fn loaded(limits: &Limits) -> Arc<Budget> {
    let purpose = Purpose {
        what: "chats that are being answered",
        total_key: "limits.loaded_bytes",
        per_user_key: "limits.loaded_bytes_per_user",
    };
    let (total, per_user) = (limits.loaded_bytes, limits.loaded_bytes_per_user);
    Budget::new(purpose, total, per_user)
}

/// Bytes of one kind, counted in all and for each user.
#[derive(Debug)]
pub struct Budget {
    purpose: Purpose,
    bounds: Current<BudgetBounds>,
    held: Mutex<HeldBytes>,
}

#[derive(Debug, Clone, Copy)]
struct BudgetBounds {
    total: usize,
    per_user: usize,
}

/// What the bytes are, for the message of a refusal.
#[derive(Debug)]
pub struct Purpose {
    pub what: &'static str,
    /// The configuration keys of both limits.
    pub total_key: &'static str,
    pub per_user_key: &'static str,
}

/// Why more bytes cannot be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error(
        "too many bytes of {what} are held for this user ({key}); try again in a moment, or with fewer at once"
    )]
    User {
        what: &'static str,
        key: &'static str,
    },
    #[error("too many bytes of {what} are held for all users ({key}); try again in a moment")]
    Total {
        what: &'static str,
        key: &'static str,
    },
}

#[derive(Debug, Default)]
struct HeldBytes {
    all: usize,
    /// Users who hold nothing are not in it.
    users: HashMap<UserId, usize>,
}

/// Bytes that are held for a user. They are released when this is dropped.
#[derive(Debug)]
pub struct Hold {
    budget: Arc<Budget>,
    user: UserId,
    bytes: usize,
}

impl Budget {
    pub fn new(purpose: Purpose, total: usize, per_user: usize) -> Arc<Self> {
        Arc::new(Self {
            purpose,
            bounds: Current::new(BudgetBounds { total, per_user }),
            held: Mutex::default(),
        })
    }

    /// What may be held for all users together.
    pub fn total(&self) -> usize {
        self.bounds.get().total
    }

    /// What is held from here on is within these bounds.
    pub fn limit(&self, total: usize, per_user: usize) {
        self.bounds.set(BudgetBounds { total, per_user });
    }

    /// What is held for all users together.
    pub fn held(&self) -> usize {
        self.lock().all
    }

    /// A hold of nothing yet.
    pub fn hold(self: &Arc<Self>, user: &UserId) -> Hold {
        Hold {
            budget: self.clone(),
            user: user.to_owned(),
            bytes: 0,
        }
    }

    /// Poisoning is ignored: no critical section can leave the numbers inconsistent.
    fn lock(&self) -> MutexGuard<'_, HeldBytes> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hold {
    /// Holds this many bytes from here on; if that is refused, as many as before.
    ///
    /// A single hold is never refused, however large: other limits bound one body, frame or answer.
    pub fn resize(&mut self, bytes: usize) -> Result<(), BudgetError> {
        self.set(bytes, false)
    }

    /// Holds this many bytes from here on, even beyond the limits: they count against all others.
    pub fn force(&mut self, bytes: usize) {
        // Nothing is refused.
        let _ = self.set(bytes, true);
    }

    /// How many bytes it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn set(&mut self, bytes: usize, beyond: bool) -> Result<(), BudgetError> {
        let budget = &self.budget;
        let mut held = budget.lock();
        let others = held.all - self.bytes;
        let own = held.users.get(&self.user).copied().unwrap_or_default() - self.bytes;
        let purpose = &budget.purpose;
        let bounds = budget.bounds.get();
        let grows = bytes > self.bytes && !beyond;
        if grows && own > 0 && own.saturating_add(bytes) > bounds.per_user {
            return Err(BudgetError::User {
                what: purpose.what,
                key: purpose.per_user_key,
            });
        }
        if grows && others > 0 && others.saturating_add(bytes) > bounds.total {
            return Err(BudgetError::Total {
                what: purpose.what,
                key: purpose.total_key,
            });
        }
        held.all = others + bytes;
        if own + bytes == 0 {
            held.users.remove(&self.user);
        } else if let Some(count) = held.users.get_mut(&self.user) {
            *count = own + bytes;
        } else {
            held.users.insert(self.user.clone(), own + bytes);
        }
        drop(held);
        self.bytes = bytes;
        Ok(())
    }

    /// Ties the hold to bytes: it ends when the last reference to them does.
    pub fn tie_to(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(HeldBuffer { bytes, _hold: self })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Holding less is never refused.
        let _ = self.resize(0);
    }
}

struct HeldBuffer<H> {
    bytes: Bytes,
    _hold: H,
}

impl<H> AsRef<[u8]> for HeldBuffer<H> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes of one user that come and go in many small pieces.
///
/// Adding and removing costs an atomic operation; the budget is checked only when the sum has grown or shrunk by a
/// step.
#[derive(Debug)]
pub struct Tally {
    bytes: AtomicUsize,
    /// How many of them the budget counts.
    counted: AtomicUsize,
    hold: Mutex<Hold>,
}

impl Tally {
    pub fn new(hold: Hold) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
            hold: Mutex::new(hold),
        }
    }

    /// Adds bytes, unless that is refused.
    pub fn add(&self, bytes: usize) -> Result<(), BudgetError> {
        let all = self.bytes.fetch_add(bytes, SeqCst) + bytes;
        if all <= FREE_BYTES.max(self.counted.load(SeqCst)) {
            return Ok(());
        }
        let counted = self.count();
        if counted.is_err() {
            self.subtract(bytes);
        }
        counted
    }

    /// Adds bytes that are too few to be refused.
    pub fn add_a_few(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, SeqCst);
    }

    /// Removes bytes that were added.
    pub fn remove(&self, bytes: usize) {
        if self.subtract(bytes) + STEP_BYTES <= self.counted.load(SeqCst) {
            // Counting less is never refused.
            let _ = self.count();
        }
    }

    /// Removes everything, because all of it was dropped.
    pub fn clear(&self) {
        self.bytes.store(0, SeqCst);
        // Counting less is never refused.
        let _ = self.count();
    }

    /// Adds bytes until the last reference to them is dropped.
    pub fn tie(self: &Arc<Self>, bytes: Bytes) -> Result<Bytes, BudgetError> {
        let hold = self.hold(bytes.len())?;
        Ok(Bytes::from_owner(HeldBuffer { bytes, _hold: hold }))
    }

    /// Adds this many bytes until the returned entry is dropped.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Result<TallyEntry, BudgetError> {
        self.add(bytes)?;
        Ok(TallyEntry {
            tally: self.clone(),
            bytes,
        })
    }

    /// Returns what is left. It may have been cleared meanwhile.
    fn subtract(&self, bytes: usize) -> usize {
        let less = |all: usize| Some(all.saturating_sub(bytes));
        let before = self.bytes.fetch_update(SeqCst, SeqCst, less);
        before.unwrap_or_default().saturating_sub(bytes)
    }

    fn count(&self) -> Result<(), BudgetError> {
        // Poisoning is ignored: no critical section can leave the number inconsistent.
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let all = self.bytes.load(SeqCst);
            let count = match all {
                0..=FREE_BYTES => 0,
                more => more.next_multiple_of(STEP_BYTES),
            };
            hold.resize(count)?;
            self.counted.store(count, SeqCst);
            // A concurrent `add` may still have seen the old number.
            if self.bytes.load(SeqCst) <= FREE_BYTES.max(count) {
                return Ok(());
            }
        }
    }
}

/// Bytes of a tally. They are removed when this is dropped.
#[derive(Debug)]
pub struct TallyEntry {
    tally: Arc<Tally>,
    bytes: usize,
}

impl Drop for TallyEntry {
    fn drop(&mut self) {
        self.tally.remove(self.bytes);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn budget() -> Arc<Budget> {
        budget_of(100, 60)
    }

    fn budget_of(total: usize, per_user: usize) -> Arc<Budget> {
        let purpose = Purpose {
            what: "things",
            total_key: "limits.things",
            per_user_key: "limits.things_per_user",
        };
        Budget::new(purpose, total, per_user)
    }

    #[test]
    fn both_limits_are_kept_and_refusals_name_them() {
        let budget = budget();
        let (mut one, mut two) = (
            budget.hold(&UserId::literal("alice")),
            budget.hold(&UserId::literal("alice")),
        );
        one.resize(40).unwrap();
        let refused = two.resize(21).unwrap_err();
        assert!(matches!(refused, BudgetError::User { .. }));
        assert!(refused.to_string().contains("(limits.things_per_user)"));
        two.resize(20).unwrap();
        let mut three = budget.hold(&UserId::literal("bob"));
        let refused = three.resize(41).unwrap_err();
        assert!(matches!(refused, BudgetError::Total { .. }));
        assert!(refused.to_string().contains("(limits.things)"));
        three.resize(40).unwrap();
        drop(one);
        three.resize(60).unwrap();
    }

    #[test]
    fn what_is_alone_is_never_refused() {
        let budget = budget();
        let mut large = budget.hold(&UserId::literal("alice"));
        large.resize(1000).unwrap();
        assert!(budget.hold(&UserId::literal("bob")).resize(1).is_err());
        assert!(budget.hold(&UserId::literal("alice")).resize(1).is_err());
        large.resize(99).unwrap();
        budget.hold(&UserId::literal("bob")).resize(1).unwrap();
    }

    #[test]
    fn what_is_forced_counts_for_everybody_else() {
        let budget = budget();
        let (mut one, mut two) = (
            budget.hold(&UserId::literal("alice")),
            budget.hold(&UserId::literal("alice")),
        );
        one.resize(50).unwrap();
        two.force(70);
        assert_eq!((two.bytes(), budget.lock().all), (70, 120));
        assert!(one.resize(51).is_err() && budget.hold(&UserId::literal("bob")).resize(1).is_err());
        two.resize(10).unwrap();
        budget.hold(&UserId::literal("bob")).resize(40).unwrap();
    }

    #[test]
    fn a_hold_lasts_as_long_as_the_bytes_that_it_is_tied_to() {
        let budget = budget();
        let mut hold = budget.hold(&UserId::literal("alice"));
        hold.resize(7).unwrap();
        let bytes = hold.tie_to(Bytes::from_static(b"content"));
        let part = bytes.slice(3..);
        drop(bytes);
        assert_eq!((&part[..], budget.lock().all), (&b"tent"[..], 7));
        drop(part);
        assert_eq!(budget.lock().all, 0);
        assert!(budget.lock().users.is_empty());
    }

    #[test]
    fn a_tally_asks_the_budget_in_steps_and_gives_everything_back() {
        let budget = budget_of(10 * STEP_BYTES, 4 * STEP_BYTES);
        let held = || budget.lock().all;
        let (one, two) = (
            Arc::new(Tally::new(budget.hold(&UserId::literal("alice")))),
            Tally::new(budget.hold(&UserId::literal("alice"))),
        );
        one.add(FREE_BYTES).unwrap();
        assert_eq!(held(), 0);
        one.add(1).unwrap();
        assert_eq!(held(), STEP_BYTES);
        one.add(STEP_BYTES - FREE_BYTES - 1).unwrap();
        assert_eq!(held(), STEP_BYTES);
        let bytes = one.tie(Bytes::from(vec![7; STEP_BYTES])).unwrap();
        assert_eq!(held(), 2 * STEP_BYTES);
        two.add(2 * STEP_BYTES + 1).unwrap_err();
        two.add(2 * STEP_BYTES).unwrap();
        drop(bytes);
        assert_eq!(held(), 3 * STEP_BYTES);
        one.remove(STEP_BYTES);
        assert_eq!(held(), 2 * STEP_BYTES);
        two.clear();
        assert_eq!(held(), 0);
        assert!(budget.lock().users.is_empty());
    }

    #[test]
    fn a_tally_that_grows_and_shrinks_at_once_counts_what_it_has() {
        let budget = budget_of(usize::MAX, usize::MAX);
        let tally = Tally::new(budget.hold(&UserId::literal("alice")));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for size in (0..2_000).map(|round| (round * 7_919) % (3 * STEP_BYTES)) {
                        tally.add(size).unwrap();
                        tally.remove(size);
                    }
                });
            }
        });
        assert!(budget.lock().all <= STEP_BYTES);
        drop(tally);
        assert_eq!(budget.lock().all, 0);
    }
}
