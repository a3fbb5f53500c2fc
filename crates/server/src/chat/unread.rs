//! Unread bytes of answers, counted for every endpoint against `limits.unread_bytes`.
//!
//! ```text
//!   piece made ── add ──▶ waits in the channel ──▶ its endpoint writes it ──▶ asks for the next one ── remove
//!                  │
//!                  └─ refused: the answer is given up, and the turn goes on
//! ```

use adk_bridge_protocol::id::UserId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::budget::{Budget, Tally};

/// The unread bytes of one user, in all answers.
#[derive(Debug)]
pub struct UnreadAnswers {
    budget: Arc<Budget>,
    user: Arc<UserId>,
}

impl UnreadAnswers {
    pub fn new(budget: Arc<Budget>, user: Arc<UserId>) -> Self {
        Self { budget, user }
    }

    /// Without limits, for tests.
    #[cfg(test)]
    pub fn for_tests() -> Self {
        let limits = crate::config::Limits::default();
        Self::new(crate::budget::unread(&limits), Arc::new("alice".into()))
    }

    /// Begins to count one answer.
    pub(super) fn begin(&self) -> Arc<UnreadAnswer> {
        Arc::new(UnreadAnswer {
            tally: Tally::new(self.budget.hold(&self.user)),
            given_up: AtomicBool::new(false),
            cut: AtomicBool::new(false),
        })
    }
}

/// The unread bytes of one answer.
#[derive(Debug)]
pub(super) struct UnreadAnswer {
    pub(super) tally: Tally,
    given_up: AtomicBool,
    cut: AtomicBool,
}

impl UnreadAnswer {
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Relaxed);
    }

    /// Ends the answer without a last chunk: its reader goes on elsewhere.
    pub(super) fn cut(&self) {
        self.cut.store(true, Relaxed);
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Relaxed)
    }

    /// Whether the answer ends early because too much of it was not read.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Relaxed)
    }
}
