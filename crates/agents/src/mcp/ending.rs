//! Why a connection ended, as far as the transport knows.

use std::sync::{Arc, Mutex, PoisonError};

/// Holds the first reason that was given.
#[derive(Debug, Clone, Default)]
pub(super) struct Ending(Arc<Mutex<Option<String>>>);

impl Ending {
    /// Keeps the reason, unless there is one.
    pub(super) fn note(&self, reason: impl Into<String>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert_with(|| reason.into());
    }

    pub(super) fn reason(&self) -> Option<String> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clone()
    }
}
