//! How long a task lives: what came before it, when something last happened, when it has to leave.

use std::time::Duration;

use tokio::time::Instant;

/// How long the readers of an owner that is gone are expected back: they notice, and try again for a while.
const READERS_COME_BACK: Duration = Duration::from_secs(60);

/// The life of a task, between the owner of its chat before and the one after. Without a cluster there is neither.
#[derive(Debug)]
pub(super) struct Lifetime {
    /// When something last happened.
    pub(super) active_at: Instant,
    /// Whether it is not known yet what the owner before has left open.
    unexamined: bool,
    /// Until when readers that were cut with that owner are expected back.
    readers_back_until: Option<Instant>,
    /// When the chat has to be given to another replica, if this one is about to stop.
    leaving: Option<Instant>,
}

impl Lifetime {
    /// `shared`: whether the chat may have had another owner.
    pub(super) fn new(shared: bool) -> Self {
        Self {
            active_at: Instant::now(),
            unexamined: shared,
            readers_back_until: None,
            leaving: None,
        }
    }

    // The owner before.

    pub(super) fn is_unexamined(&self) -> bool {
        self.unexamined
    }

    /// Notes what the owner before has left: whether something is open.
    pub(super) fn note_left(&mut self, is_open: bool) {
        if std::mem::take(&mut self.unexamined) && is_open {
            self.readers_back_until = Some(Instant::now() + READERS_COME_BACK);
        }
    }

    /// Whether readers of that owner may come back, who lack the end of what it sent.
    pub(super) fn expects_readers(&self) -> bool {
        let until = self.readers_back_until;
        until.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn readers_back_until(&self) -> Option<Instant> {
        self.readers_back_until
    }

    /// Notes that whoever was cut off is back.
    pub(super) fn readers_are_back(&mut self) {
        self.readers_back_until = None;
    }

    // The owner after.

    pub(super) fn leave_by(&mut self, until: Instant) {
        self.leaving = Some(until);
    }

    pub(super) fn leaving(&self) -> Option<Instant> {
        self.leaving
    }
}
