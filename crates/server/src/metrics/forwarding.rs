//! Counters of requests that are passed to other replicas.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Page;

/// What is passed on, by the endpoint that it came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardedKind {
    /// A chat request.
    Chat,
    /// A client that comes back to a turn.
    Resume,
    Stop,
    /// The output of a client tool, or what a user grants.
    Answer,
    /// A stored chat, which is read or deleted.
    Stored,
    Live,
}

const KINDS: [&str; 6] = ["chat", "resume", "stop", "answer", "stored", "live"];

/// Why something could not be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopFailure {
    /// The chat had another owner already.
    Moved,
    Unreachable,
    /// The owner broke off before its answer began.
    Broken,
    /// The owner did not recognise this replica.
    Refused,
}

const FAILURES: [&str; 4] = ["moved", "unreachable", "broken", "refused"];
const DIRECTIONS: [&str; 2] = ["sent", "received"];

/// The counters of one replica since its start.
#[derive(Debug, Default)]
pub struct ForwardingMetrics {
    requests: [AtomicU64; KINDS.len()],
    failures: [AtomicU64; FAILURES.len()],
    bytes: [AtomicU64; DIRECTIONS.len()],
}

impl ForwardingMetrics {
    pub fn passed(&self, kind: ForwardedKind) {
        self.requests[kind as usize].fetch_add(1, Relaxed);
    }

    pub fn failed(&self, why: HopFailure) {
        self.failures[why as usize].fetch_add(1, Relaxed);
    }

    pub fn sent(&self, bytes: usize) {
        self.bytes[0].fetch_add(bytes as u64, Relaxed);
    }

    pub fn received(&self, bytes: usize) {
        self.bytes[1].fetch_add(bytes as u64, Relaxed);
    }

    /// The bytes that were sent to owners and received from them.
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes[0].load(Relaxed), self.bytes[1].load(Relaxed))
    }

    pub(super) fn write(&self, page: &mut Page) {
        page.counters(
            "forwarded_requests_total",
            "Requests that were passed to the replica that owns their chat, by endpoint.",
            "kind",
            &KINDS,
            &self.requests,
        );
        page.counters(
            "forwarded_bytes_total",
            "Bytes of bodies and WebSockets that were passed to owners and back.",
            "direction",
            &DIRECTIONS,
            &self.bytes,
        );
        page.counters(
            "forwarding_failures_total",
            "Attempts to pass a request on that failed, by reason; most are followed by another attempt.",
            "reason",
            &FAILURES,
            &self.failures,
        );
    }
}
