//! A replica's own view of its lease, on its own clock.
//!
//! The database counts a lease from when it hears a heartbeat, the replica from before it sent it, and gives it up a part
//! of the lease earlier. So a replica stops before others may begin, whatever the two clocks show.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The part of a lease that a replica does not use: clocks run at slightly different speeds, and what is being written
/// takes a moment.
const UNUSED: u32 = 5;

/// A lost lease; it never comes back.
const LOST: u64 = 0;

/// How long a replica may store and tell anything.
#[derive(Debug)]
pub struct Lease {
    /// In milliseconds of [`Moment`], or [`LOST`].
    until: AtomicU64,
    length: Duration,
}

/// A moment on this machine's clock, which goes on while the process or the machine is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    #[cfg(target_os = "linux")]
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
        // Never 0, which means that a lease is lost.
        Self(seconds * 1_000 + nanos / 1_000_000 + 1)
    }

    #[cfg(not(target_os = "linux"))]
    pub fn now() -> Self {
        use std::sync::OnceLock;
        use std::time::Instant;
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        let since = BEGAN.get_or_init(Instant::now).elapsed().as_millis();
        Self(u64::try_from(since).unwrap_or(u64::MAX) + 1)
    }

    #[cfg(test)]
    pub(super) fn at(millis: u64) -> Self {
        Self(millis)
    }

    fn after(self, span: Duration) -> Self {
        Self(self.0 + u64::try_from(span.as_millis()).unwrap_or(u64::MAX / 2))
    }

    /// How long it is until then.
    fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

impl Lease {
    /// A lease of this length that was asked for at a moment, and granted.
    pub fn new(asked: Moment, length: Duration) -> Self {
        let length = length - length / UNUSED;
        Self {
            until: AtomicU64::new(asked.after(length).0),
            length,
        }
    }

    /// Whether the replica may still store and tell. Once it may not, it never may again.
    pub fn is_held(&self) -> bool {
        self.is_held_at(Moment::now())
    }

    pub(super) fn is_held_at(&self, now: Moment) -> bool {
        loop {
            let until = self.until.load(Relaxed);
            if now.0 < until {
                return true;
            }
            // Nobody may renew what somebody has seen run out.
            let ended = (self.until).compare_exchange(until, LOST, Relaxed, Relaxed);
            if until == LOST || ended.is_ok() {
                return false;
            }
        }
    }

    /// Renews it with a heartbeat that was sent at a moment. Returns whether it was still held.
    pub fn renew(&self, sent: Moment) -> bool {
        self.renew_at(sent, Moment::now())
    }

    pub(super) fn renew_at(&self, sent: Moment, now: Moment) -> bool {
        let renewed = sent.after(self.length).0;
        loop {
            let until = self.until.load(Relaxed);
            if now.0 >= until {
                return self.is_held_at(now);
            }
            let longer = renewed.max(until);
            let renewed = (self.until).compare_exchange(until, longer, Relaxed, Relaxed);
            if renewed.is_ok() {
                return true;
            }
        }
    }

    /// Gives it up.
    pub fn end(&self) {
        self.until.store(LOST, Relaxed);
    }

    /// How long it lasts from now.
    pub fn remaining(&self) -> Duration {
        Moment::now().until(Moment(self.until.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(5);

    #[test]
    fn it_ends_before_the_database_lets_others_begin() {
        let lease = Lease::new(Moment(1), LENGTH);
        assert!(lease.is_held_at(Moment(4_000)));
        assert!(!lease.is_held_at(Moment(4_001)));
        let lease = Lease::new(Moment(1), LENGTH);
        assert!(lease.renew_at(Moment(1_001), Moment(3_000)));
        assert!(lease.is_held_at(Moment(5_000)));
        assert!(!lease.is_held_at(Moment(5_001)));
    }

    #[test]
    fn what_has_run_out_is_not_renewed() {
        let lease = Lease::new(Moment(1), LENGTH);
        assert!(!lease.renew_at(Moment(4_000), Moment(4_001)));
        assert!(!lease.is_held_at(Moment(1)), "it was seen to run out");
        let lease = Lease::new(Moment(1), LENGTH);
        lease.end();
        assert!(!lease.renew_at(Moment(2), Moment(2)));
    }

    #[test]
    fn a_late_heartbeat_does_not_shorten_it() {
        let lease = Lease::new(Moment(1_001), LENGTH);
        assert!(lease.renew_at(Moment(501), Moment(2_000)));
        assert!(lease.is_held_at(Moment(5_000)));
    }
}
