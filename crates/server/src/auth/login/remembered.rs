//! Logins that were looked up lately.
//!
//! One that has ended meanwhile is not put back by a request that had read it before.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a login that was looked up counts: so much later than elsewhere, a replica knows that a user has logged out.
const LOOKED_UP_FOR: Duration = Duration::from_secs(5);
/// How many are remembered; one that is forgotten is looked up again.
const MAX_REMEMBERED: usize = 10_000;

/// What was looked up, by the ids of logins.
#[derive(Debug)]
pub(super) struct Remembered<T>(Mutex<Found<T>>);

#[derive(Debug)]
struct Found<T> {
    of: HashMap<String, (T, Instant)>,
    /// When something was forgotten last. What was looked up before may be that, and is not remembered.
    forgot: Option<Instant>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self(Mutex::new(Found {
            of: HashMap::new(),
            forgot: None,
        }))
    }
}

impl<T: Clone> Remembered<T> {
    pub(super) fn get(&self, id: &str) -> Option<T> {
        let found = self.lock();
        let (found, at) = found.of.get(id)?;
        (at.elapsed() < LOOKED_UP_FOR).then(|| found.clone())
    }

    /// Remembers what was found by a look that began at this time.
    pub(super) fn insert(&self, id: &str, found: T, at: Instant) {
        let mut all = self.lock();
        if all.forgot.is_some_and(|forgot| at <= forgot) {
            return;
        }
        if all.of.len() >= MAX_REMEMBERED {
            all.of.retain(|_, (_, at)| at.elapsed() < LOOKED_UP_FOR);
            if all.of.len() >= MAX_REMEMBERED {
                all.of.clear();
            }
        }
        all.of.insert(id.to_owned(), (found, at));
    }

    /// Forgets what has ended: what was looked up of it before now counts no longer.
    pub(super) fn forget(&self, has_ended: impl Fn(&str, &T) -> bool) {
        let mut all = self.lock();
        all.of.retain(|id, (found, _)| !has_ended(id, found));
        all.forgot = Some(Instant::now());
    }

    /// Poisoning is ignored: no critical section can leave the map inconsistent.
    fn lock(&self) -> MutexGuard<'_, Found<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_not_put_back_by_who_read_it_before() {
        let remembered = Remembered::default();
        let before = Instant::now();
        remembered.insert("a", "alice", before);
        remembered.insert("b", "bob", before);
        assert_eq!(remembered.get("a"), Some("alice"));
        // A request reads the row of a login; before it remembers that, the login ends.
        let read = Instant::now();
        remembered.forget(|id, _| id == "a");
        remembered.insert("a", "alice", read);
        assert_eq!(
            (remembered.get("a"), remembered.get("b")),
            (None, Some("bob"))
        );
        // The same with all logins of a user, of which this one was not remembered.
        remembered.forget(|_, user| *user == "carol");
        remembered.insert("c", "carol", read);
        assert_eq!(remembered.get("c"), None);
        let later = Instant::now() + Duration::from_millis(1);
        remembered.insert("c", "carol", later);
        assert_eq!(remembered.get("c"), Some("carol"));
    }

    #[test]
    fn a_bounded_number_is_remembered() {
        let remembered = Remembered::default();
        let now = Instant::now();
        for number in 0..=MAX_REMEMBERED {
            remembered.insert(&number.to_string(), number, now);
        }
        assert!(remembered.lock().of.len() <= MAX_REMEMBERED);
    }
}
