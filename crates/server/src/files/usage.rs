//! How many bytes of files and messages each user has, and may have.
//!
//! Counted at start and then kept in memory. If several processes share the data, the count is taken from the store again:
//! that of a user when an upload begins, and all of it now and then.

use adk_bridge_protocol::id::UserId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::FileError;
use crate::config::Current;

/// How many bytes may be kept; see `[limits]` in the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Quota {
    pub in_all: u64,
    pub per_user: u64,
}

#[derive(Debug)]
pub(super) struct Usage {
    quota: Current<Quota>,
    counted: Mutex<StoredBytes>,
}

#[derive(Debug, Default)]
struct StoredBytes {
    in_all: u64,
    users: HashMap<UserId, u64>,
}

impl Usage {
    pub(super) fn new(quota: Quota, counted: Vec<(UserId, u64)>) -> Self {
        Self {
            quota: Current::new(quota),
            counted: Mutex::new(StoredBytes::of(counted)),
        }
    }

    /// What is stored from here on is within this quota.
    pub(super) fn limit(&self, quota: Quota) {
        self.quota.set(quota);
    }

    /// Whether a user may store this much more; 0: whether the user has not reached the limit.
    pub(super) fn check(&self, user: &UserId, bytes: u64) -> Result<(), FileError> {
        self.lock().check(self.quota.get(), user, bytes)
    }

    /// Counts bytes for a user who may keep them.
    pub(super) fn take(&self, user: &UserId, bytes: u64) -> Result<(), FileError> {
        let mut counted = self.lock();
        counted.check(self.quota.get(), user, bytes)?;
        counted.add(user, bytes);
        Ok(())
    }

    /// Counts bytes that are kept in any case.
    pub(super) fn add(&self, user: &UserId, bytes: u64) {
        self.lock().add(user, bytes);
    }

    pub(super) fn remove(&self, user: &UserId, bytes: u64) {
        let mut counted = self.lock();
        counted.in_all = counted.in_all.saturating_sub(bytes);
        if let Some(kept) = counted.users.get_mut(user) {
            *kept = kept.saturating_sub(bytes);
            if *kept == 0 {
                counted.users.remove(user);
            }
        }
    }

    /// Counts something that has grown or shrunk.
    pub(super) fn replace(&self, user: &UserId, before: u64, now: u64) {
        if now > before {
            self.add(user, now - before);
        } else if before > now {
            self.remove(user, before - now);
        }
    }

    /// Takes over what the store has of a user.
    pub(super) fn set(&self, user: &UserId, bytes: u64) {
        let before = self.lock().users.get(user).copied().unwrap_or(0);
        self.replace(user, before, bytes);
    }

    /// Takes over what the store has.
    pub(super) fn reset(&self, counted: Vec<(UserId, u64)>) {
        *self.lock() = StoredBytes::of(counted);
    }

    /// Poisoning is ignored: no critical section can leave the counters inconsistent.
    fn lock(&self) -> MutexGuard<'_, StoredBytes> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoredBytes {
    fn of(counted: Vec<(UserId, u64)>) -> Self {
        let users: HashMap<UserId, u64> = counted.into_iter().collect();
        Self {
            in_all: users.values().sum(),
            users,
        }
    }

    fn check(&self, quota: Quota, user: &UserId, bytes: u64) -> Result<(), FileError> {
        let kept = self.users.get(user).copied().unwrap_or(0);
        // Without new bytes, only the limit itself is checked.
        let more = bytes.max(1);
        if kept.saturating_add(more) > quota.per_user {
            return Err(FileError::UserFull {
                kept,
                limit: quota.per_user,
            });
        }
        if bytes > 0 && self.in_all.saturating_add(bytes) > quota.in_all {
            return Err(FileError::Full {
                limit: quota.in_all,
            });
        }
        Ok(())
    }

    fn add(&mut self, user: &UserId, bytes: u64) {
        self.in_all = self.in_all.saturating_add(bytes);
        let kept = self.users.entry(user.to_owned()).or_default();
        *kept = kept.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_bounded_for_each_user_and_in_all() {
        let quota = Quota {
            in_all: 100,
            per_user: 60,
        };
        let usage = Usage::new(quota, vec![("alice".into(), 50)]);
        assert!(usage.take(&UserId::literal("alice"), 10).is_ok());
        assert!(matches!(
            usage.take(&UserId::literal("alice"), 1),
            Err(FileError::UserFull { kept: 60, .. })
        ));
        assert!(usage.check(&UserId::literal("alice"), 0).is_err());
        assert!(matches!(
            usage.take(&UserId::literal("bob"), 41),
            Err(FileError::Full { limit: 100 })
        ));
        assert!(
            usage.take(&UserId::literal("bob"), 40).is_ok()
                && usage.check(&UserId::literal("bob"), 0).is_ok()
        );
        usage.remove(&UserId::literal("alice"), 60);
        assert!(usage.take(&UserId::literal("bob"), 20).is_ok());
        usage.replace(&UserId::literal("bob"), 20, 30);
        usage.replace(&UserId::literal("bob"), 30, 25);
        assert_eq!(usage.lock().users["bob"], 65);
        usage.add(&UserId::literal("bob"), 1000);
        usage.remove(&UserId::literal("bob"), 2000);
        assert_eq!(usage.lock().in_all, 0);
        // Another process has stored something, and something else was deleted there.
        usage.reset(vec![("alice".into(), 30), ("bob".into(), 10)]);
        usage.set(&UserId::literal("alice"), 50);
        usage.set(&UserId::literal("bob"), 0);
        let counted = usage.lock();
        assert_eq!((counted.in_all, counted.users.len()), (50, 1));
    }
}
