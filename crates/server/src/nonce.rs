//! Random numbers that are used once: whoever comes with one again is refused.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use adk_bridge_protocol::time::Timestamp;

/// How many are remembered in one period; more requests than a replica can answer in that time.
const MAX_NONCES: usize = 1 << 20;

/// 128 random bits.
pub(crate) type Nonce = [u64; 2];

/// A new one, if the system has random numbers.
pub(crate) fn new() -> Option<Nonce> {
    Some([getrandom::u64().ok()?, getrandom::u64().ok()?])
}

/// The nonces that were used in the last while, in two periods: the older one is forgotten as a whole.
#[derive(Debug)]
pub(crate) struct UsedNonces {
    period: Duration,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    now: HashSet<Nonce>,
    before: HashSet<Nonce>,
    /// When the current period ends.
    until: Timestamp,
}

impl UsedNonces {
    /// Each is remembered for a period at least.
    pub(crate) fn new(period: Duration) -> Self {
        Self {
            period,
            used: Mutex::default(),
        }
    }

    /// Notes a use. Returns false if it is not the first, or if there are too many to remember.
    pub(crate) fn insert(&self, nonce: Nonce, now: Timestamp) -> bool {
        // Poisoning is ignored: no critical section can leave the sets inconsistent.
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= used.until {
            let is_long_ago = now >= used.until + self.period;
            used.before = std::mem::take(&mut used.now);
            if is_long_ago {
                used.before.clear();
            }
            used.until = now + self.period;
        }
        !used.before.contains(&nonce) && used.now.len() < MAX_NONCES && used.now.insert(nonce)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_is_remembered_for_a_period_and_not_forever() {
        let used = UsedNonces::new(Duration::from_secs(10));
        let at = |seconds: u64| Timestamp::from_millis(1_000_000 + seconds * 1_000);
        for begun in [0, 5, 9, 30, 100] {
            let nonce = new().unwrap();
            assert!(used.insert(nonce, at(begun)));
            for later in 0..10 {
                assert!(!used.insert(nonce, at(begun + later)), "{begun} {later}");
            }
        }
        used.insert(new().unwrap(), at(200));
        let used = used.used.lock().unwrap();
        assert_eq!(used.now.len() + used.before.len(), 1);
    }
}
