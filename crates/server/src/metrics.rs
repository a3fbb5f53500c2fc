//! Counters, and their text form for Prometheus.
//!
//! Counting a piece of an answer costs a few relaxed additions.

mod cluster;
mod forwarding;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use adk_bridge_protocol::outbox::AuditKind;
use adk_bridge_protocol::reply::EndReason;

pub use cluster::{ClusterFigures, ClusterMetrics, FencedBy, OwnerChange};
pub use forwarding::{ForwardedKind, ForwardingMetrics, HopFailure};

/// Upper bounds of the buckets for the first-chunk delay, in milliseconds: from a fast local model to one that thinks.
const DELAYS: [u64; 11] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000,
];

const RESULTS: [&str; 7] = [
    "finished",
    "waiting",
    "failed",
    "stopped",
    "superseded",
    "too_long",
    "interrupted",
];
const APPROVALS: [&str; 5] = ["requested", "approved", "denied", "expired", "superseded"];
const TOOL_RUNS: [&str; 4] = ["started", "finished", "failed", "unknown"];

/// The counters of one server since its start.
#[derive(Debug, Default)]
pub struct Metrics {
    turns_started: AtomicU64,
    turns_ended: [AtomicU64; RESULTS.len()],
    chunks: AtomicU64,
    bytes: AtomicU64,
    approvals: [AtomicU64; APPROVALS.len()],
    refused_answers: AtomicU64,
    tool_runs: [AtomicU64; TOOL_RUNS.len()],
    agent_failures: AtomicU64,
    readers: AtomicU64,
    sockets: AtomicU64,
    delays: Histogram,
    cluster: ClusterMetrics,
}

/// How many buckets a histogram may have: one more than there are bounds, since the last has none.
const BUCKETS: usize = 12;

/// Times, counted by their length.
#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    millis: AtomicU64,
}

impl Histogram {
    /// Counts a time; the bounds are in milliseconds.
    fn count(&self, time: Duration, bounds: &[u64]) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let bucket = bounds.partition_point(|limit| *limit < millis);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.millis.fetch_add(millis, Relaxed);
    }
}

/// The label for how a turn ended; a turn that waits for its client has not ended its reply.
pub fn result_of(ended: Option<EndReason>) -> &'static str {
    RESULTS[result_index(ended)]
}

impl Metrics {
    /// The counters of requests that are passed to other replicas.
    pub fn forwarding(&self) -> &Arc<ForwardingMetrics> {
        self.cluster.forwarding()
    }

    /// The counters of owners.
    pub fn cluster(&self) -> &ClusterMetrics {
        &self.cluster
    }

    pub fn turn_started(&self) {
        self.turns_started.fetch_add(1, Relaxed);
    }

    pub fn turn_ended(&self, ended: Option<EndReason>) {
        self.turns_ended[result_index(ended)].fetch_add(1, Relaxed);
    }

    pub fn chunks(&self, count: usize) {
        self.chunks.fetch_add(count as u64, Relaxed);
    }

    pub fn sent(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts approvals and tools by their audit rows.
    pub fn audited(&self, kind: AuditKind) {
        let counter = match kind {
            AuditKind::ApprovalRequested => &self.approvals[0],
            AuditKind::ApprovalApproved => &self.approvals[1],
            AuditKind::ApprovalDenied => &self.approvals[2],
            AuditKind::ApprovalExpired => &self.approvals[3],
            AuditKind::ApprovalSuperseded => &self.approvals[4],
            AuditKind::AnswerRefused => &self.refused_answers,
            AuditKind::ToolStarted => &self.tool_runs[0],
            AuditKind::ToolFinished => &self.tool_runs[1],
            AuditKind::ToolFailed => &self.tool_runs[2],
            AuditKind::ToolOutcomeUnknown => &self.tool_runs[3],
            AuditKind::ApprovalUnsupported | AuditKind::ToolRanDespiteDenial => return,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub fn agent_failed(&self) {
        self.agent_failures.fetch_add(1, Relaxed);
    }

    pub fn reader_came(&self) {
        self.readers.fetch_add(1, Relaxed);
    }

    pub fn reader_went(&self) {
        self.readers.fetch_sub(1, Relaxed);
    }

    pub fn socket_opened(&self) {
        self.sockets.fetch_add(1, Relaxed);
    }

    pub fn socket_closed(&self) {
        self.sockets.fetch_sub(1, Relaxed);
    }

    /// The time from a request to the first output of the agent.
    pub fn first_chunk(&self, delay: Duration) {
        self.delays.count(delay, &DELAYS);
    }

    /// All counters in Prometheus' text form.
    pub fn text(
        &self,
        open_chats: usize,
        loaded_bytes: usize,
        cluster: Option<ClusterFigures>,
    ) -> String {
        let mut page = Page::default();
        page.counter(
            "turns_started_total",
            "Turns that were started.",
            &self.turns_started,
        );
        page.counters(
            "turns_ended_total",
            "Turns that ended, by result; a waiting one continues when the client answers.",
            "result",
            &RESULTS,
            &self.turns_ended,
        );
        page.counter("chunks_total", "Chunks of all turns.", &self.chunks);
        page.counter(
            "sent_bytes_total",
            "Bytes streamed to readers.",
            &self.bytes,
        );
        page.counters(
            "approvals_total",
            "Approvals by event.",
            "event",
            &APPROVALS,
            &self.approvals,
        );
        page.counter(
            "refused_answers_total",
            "Client answers that were refused.",
            &self.refused_answers,
        );
        page.counters(
            "tool_runs_total",
            "Tool runs by event.",
            "event",
            &TOOL_RUNS,
            &self.tool_runs,
        );
        page.counter(
            "agent_failures_total",
            "Agent runs that failed.",
            &self.agent_failures,
        );
        page.gauge("open_chats", "Chats in use.", open_chats as u64);
        page.gauge(
            "loaded_bytes",
            "Bytes that chats hold in memory, of limits.loaded_bytes.",
            loaded_bytes as u64,
        );
        page.gauge(
            "readers",
            "Clients that are reading a turn.",
            self.readers.load(Relaxed),
        );
        page.gauge("sockets", "Open WebSockets.", self.sockets.load(Relaxed));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let tasks = runtime.metrics().num_alive_tasks();
            page.gauge("tasks", "Tasks of the async runtime.", tasks as u64);
        }
        self.delays(&mut page);
        if let Some(figures) = cluster {
            self.cluster.write(figures, &mut page);
        }
        page.text
    }

    fn delays(&self, page: &mut Page) {
        page.histogram(
            "first_chunk_seconds",
            "Time from a request to the first chunk of the agent's answer.",
            &DELAYS,
            &self.delays,
        );
    }
}

fn result_index(ended: Option<EndReason>) -> usize {
    match ended {
        Some(EndReason::Finished) => 0,
        None => 1,
        Some(EndReason::Failed) => 2,
        Some(EndReason::Stopped) => 3,
        Some(EndReason::Superseded) => 4,
        Some(EndReason::TooLong) => 5,
        Some(EndReason::Interrupted | EndReason::Cut) => 6,
    }
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// The bounds are in milliseconds.
    fn histogram(&mut self, name: &str, help: &str, bounds: &[u64], times: &Histogram) {
        self.head(name, "histogram", help);
        let mut count = 0;
        for (index, bucket) in times.buckets[..=bounds.len()].iter().enumerate() {
            count += bucket.load(Relaxed);
            let limit = bounds.get(index).map_or_else(
                || "+Inf".to_owned(),
                |millis| Duration::from_millis(*millis).as_secs_f64().to_string(),
            );
            self.line(&format!("{name}_bucket{{le=\"{limit}\"}}"), count);
        }
        let sum = Duration::from_millis(times.millis.load(Relaxed)).as_secs_f64();
        self.line(&format!("{name}_sum"), sum);
        self.line(&format!("{name}_count"), count);
    }

    fn counter(&mut self, name: &str, help: &str, value: &AtomicU64) {
        self.head(name, "counter", help);
        self.line(name, value.load(Relaxed));
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        words: &[&str],
        values: &[AtomicU64],
    ) {
        self.head(name, "counter", help);
        for (word, value) in words.iter().zip(values) {
            self.line(
                &format!("{name}{{{label}=\"{word}\"}}"),
                value.load(Relaxed),
            );
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        self.line(name, value);
    }

    // Writing to a string cannot fail.
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP adk_bridge_{name} {help}");
        let _ = writeln!(self.text, "# TYPE adk_bridge_{name} {kind}");
    }

    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "adk_bridge_{name} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_fall_into_their_buckets() {
        let metrics = Metrics::default();
        for millis in [0, 10, 11, 30_000, 30_001, 90_000] {
            metrics.first_chunk(Duration::from_millis(millis));
        }
        let text = metrics.text(0, 0, None);
        for line in [
            "adk_bridge_first_chunk_seconds_bucket{le=\"0.01\"} 2",
            "adk_bridge_first_chunk_seconds_bucket{le=\"0.025\"} 3",
            "adk_bridge_first_chunk_seconds_bucket{le=\"10\"} 3",
            "adk_bridge_first_chunk_seconds_bucket{le=\"30\"} 4",
            "adk_bridge_first_chunk_seconds_bucket{le=\"+Inf\"} 6",
            "adk_bridge_first_chunk_seconds_sum 150.022",
            "adk_bridge_first_chunk_seconds_count 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
