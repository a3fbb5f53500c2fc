//! Counters of owners: chats that a replica takes and lets go of, and what it passes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::histogram::{Buckets, Histogram};
use super::{ForwardingMetrics, Page};

/// A lease, and what comes after it.
const TAKEOVERS: Buckets = Buckets::times(&[
    1_000_000, 2_000_000, 3_000_000, 5_000_000, 6_000_000, 7_000_000, 10_000_000, 30_000_000,
    60_000_000,
]);
const OWNER_CHANGES: [&str; 2] = ["request", "takeover"];
const LET_GO: [&str; 2] = ["store", "lease"];

/// Why a chat gets another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerChange {
    /// A request came for it.
    Request,
    /// Nobody went on with it.
    TakeOver,
}

/// Who noticed that a chat has another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FencedBy {
    /// It refused a write.
    Store,
    /// It ran out.
    Lease,
}

/// The counters of one replica since its start.
#[derive(Debug, Default)]
pub struct ClusterMetrics {
    owner_changes: [AtomicU64; OWNER_CHANGES.len()],
    fenced: AtomicU64,
    let_go: [AtomicU64; LET_GO.len()],
    leases_lost: AtomicU64,
    takeovers: Histogram,
    forwarding: Arc<ForwardingMetrics>,
}

/// What is counted of a cluster at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterFigures {
    /// The living replicas that take chats.
    pub replicas: usize,
    /// How far the clock of the database is ahead of ours.
    pub clock_millis: i64,
}

impl ClusterMetrics {
    pub(super) fn forwarding(&self) -> &Arc<ForwardingMetrics> {
        &self.forwarding
    }

    /// Counts a chat that this replica has taken.
    pub fn chat_taken(&self, why: OwnerChange) {
        self.owner_changes[why as usize].fetch_add(1, Relaxed);
    }

    /// The time from the last sign of life of a dead owner until the chat has another.
    pub fn taken_over(&self, after: Duration) {
        self.takeovers.time(after, &TAKEOVERS);
    }

    /// Counts a write that the store has refused because the chat has another owner.
    pub fn fenced(&self) {
        self.fenced.fetch_add(1, Relaxed);
    }

    /// Counts a chat that this replica lets go of because it has another owner, or may have one.
    pub fn let_go(&self, by: FencedBy) {
        self.let_go[by as usize].fetch_add(1, Relaxed);
    }

    pub fn lease_lost(&self) {
        self.leases_lost.fetch_add(1, Relaxed);
    }

    pub(super) fn write(&self, figures: ClusterFigures, page: &mut Page) {
        page.counters(
            "owner_changes_total",
            "Chats that this replica has taken: for a request, or because nobody went on with them.",
            "why",
            &OWNER_CHANGES,
            &self.owner_changes,
        );
        page.counter(
            "fenced_total",
            "Writes of this replica that were refused because another one had taken the chat.",
            &self.fenced,
        );
        page.counters(
            "chats_let_go_total",
            "Chats that this replica has let go of: the store refused a write, or its lease ran out.",
            "by",
            &LET_GO,
            &self.let_go,
        );
        page.counter(
            "leases_lost_total",
            "How often this replica could not show in time that it lives.",
            &self.leases_lost,
        );
        page.histogram(
            "takeover_seconds",
            "Time from the last sign of life of a dead owner until the chat has another.",
            &TAKEOVERS,
            &self.takeovers,
        );
        page.gauge(
            "replicas",
            "Living replicas that take chats.",
            figures.replicas as u64,
        );
        page.head(
            "clock_difference_seconds",
            "gauge",
            "How far the clock of the database is ahead of this machine's.",
        );
        #[expect(clippy::cast_precision_loss, reason = "it is shown to people")]
        let seconds = figures.clock_millis as f64 / 1_000.0;
        page.line("clock_difference_seconds", seconds);
        self.forwarding.write(page);
    }
}
