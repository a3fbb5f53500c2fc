//! What is refused because a limit is reached, and how near the memory of the process is to its own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Page;
use crate::process_memory;

/// The keys below `limits` that a refusal names.
const LIMITS: [&str; 5] = [
    "turns",
    "turns_per_user",
    "memory_bytes",
    "uploads_per_user",
    "refused_answers_per_minute",
];

/// Which limit has refused something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedBy {
    Turns,
    TurnsPerUser,
    Memory,
    UploadsPerUser,
    RefusedAnswers,
}

/// The refusals of one server since its start.
#[derive(Debug, Default)]
pub struct AdmissionMetrics {
    refused: [AtomicU64; LIMITS.len()],
    /// 0 is no ceiling.
    ceiling: AtomicU64,
}

impl AdmissionMetrics {
    pub fn refused(&self, by: RefusedBy) {
        self.refused[by as usize].fetch_add(1, Relaxed);
    }

    /// Notes at how many bytes of memory no further turn begins.
    pub fn allow_memory(&self, ceiling: Option<u64>) {
        self.ceiling.store(ceiling.unwrap_or_default(), Relaxed);
    }

    pub(super) fn write(&self, page: &mut Page) {
        page.counters(
            "refused_total",
            "Turns, uploads and answers that were refused, by the key of the limit in [limits].",
            "limit",
            &LIMITS,
            &self.refused,
        );
        page.gauge(
            "memory_bytes",
            "Bytes of memory that the process uses, 0 where the system does not say.",
            process_memory::resident().unwrap_or_default(),
        );
        page.gauge(
            "memory_ceiling_bytes",
            "Bytes of memory at which no further turn begins, 0 if there is no ceiling.",
            self.ceiling.load(Relaxed),
        );
    }
}
