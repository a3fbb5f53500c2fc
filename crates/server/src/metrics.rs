//! Counters, and their text form for Prometheus.
//!
//! Counting a piece of an answer costs a few relaxed additions.

mod admission;
mod cluster;
mod forwarding;
mod histogram;
mod work;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use adk_bridge_protocol::outbox::AuditKind;
use adk_bridge_protocol::reply::EndReason;

pub use admission::{AdmissionMetrics, RefusedBy};
pub use cluster::{ClusterFigures, ClusterMetrics, FencedBy, OwnerChange};
pub use forwarding::{ForwardedKind, ForwardingMetrics, HopFailure};
use histogram::{Buckets, Histogram};
use work::WorkMetrics;
pub use work::{AgentMetrics, SpanExports, StoreOperation, StoreTimer};

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
const REFUSED: [&str; 5] = [
    "no_credentials",
    "wrong",
    "expired",
    "foreign",
    "unavailable",
];
const LOGINS: [&str; 5] = [
    "completed",
    "denied",
    "not_accepted",
    "unknown",
    "unavailable",
];
const REMOVED: [&str; 5] = ["chats", "files", "recordings", "audit_rows", "usage_rows"];
const BUDGETS: [&str; 2] = ["tokens", "cost"];
const BACKGROUND: [&str; 4] = ["audit_seal", "retention", "provider_keys", "audit_loss"];
const TOOL_RUNS: [&str; 4] = ["started", "finished", "failed", "unknown"];

/// The counters of one server since its start.
#[derive(Debug, Default)]
pub struct Metrics {
    turns: Turns,
    chunks: AtomicU64,
    bytes: AtomicU64,
    approvals: [AtomicU64; APPROVALS.len()],
    refused_answers: AtomicU64,
    tool_runs: [AtomicU64; TOOL_RUNS.len()],
    agent_failures: AtomicU64,
    clients: Clients,
    upkeep: Upkeep,
    admission: Arc<AdmissionMetrics>,
    work: WorkMetrics,
    cluster: ClusterMetrics,
}

#[derive(Debug, Default)]
struct Turns {
    started: AtomicU64,
    ended: [AtomicU64; RESULTS.len()],
    over_budget: [AtomicU64; BUDGETS.len()],
}

/// What is done while nobody waits.
#[derive(Debug, Default)]
struct Upkeep {
    removed: [AtomicU64; REMOVED.len()],
    failed: [AtomicU64; BACKGROUND.len()],
}

/// How many there are at the moment, how many were not let in, and how many have logged in.
#[derive(Debug, Default)]
struct Clients {
    readers: AtomicU64,
    sockets: AtomicU64,
    refused: [AtomicU64; REFUSED.len()],
    logins: [AtomicU64; LOGINS.len()],
}

/// What is deleted because it is too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    Chats,
    Files,
    Recordings,
    AuditRows,
    UsageRows,
}

/// Why a request is refused whose user is to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedFor {
    NoCredentials,
    Wrong,
    Expired,
    /// Another page may have made the browser send its cookie.
    Foreign,
    /// They cannot be checked at the moment.
    Unavailable,
}

/// What becomes of a login with the page, when its provider has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginResult {
    Completed,
    /// By the provider, or the user.
    Denied,
    /// What the provider says is not accepted here.
    NotAccepted,
    /// It was not begun here.
    Unknown,
    /// The provider or the store is away.
    Unavailable,
}

/// What nobody waits for, and is tried again when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    AuditSeal,
    Retention,
    /// The keys of an OpenID provider, or of the proxy.
    ProviderKeys,
    /// A seal of the audit is gone that was there: somebody has taken rows back.
    AuditLoss,
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
        self.turns.started.fetch_add(1, Relaxed);
    }

    pub fn turn_ended(&self, ended: Option<EndReason>) {
        self.turns.ended[result_index(ended)].fetch_add(1, Relaxed);
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
        self.clients.readers.fetch_add(1, Relaxed);
    }

    pub fn reader_went(&self) {
        self.clients.readers.fetch_sub(1, Relaxed);
    }

    pub fn socket_opened(&self) {
        self.clients.sockets.fetch_add(1, Relaxed);
    }

    pub fn socket_closed(&self) {
        self.clients.sockets.fetch_sub(1, Relaxed);
    }

    pub fn refused(&self, why: RefusedFor) {
        let reason = match why {
            RefusedFor::NoCredentials => 0,
            RefusedFor::Wrong => 1,
            RefusedFor::Expired => 2,
            RefusedFor::Foreign => 3,
            RefusedFor::Unavailable => 4,
        };
        self.clients.refused[reason].fetch_add(1, Relaxed);
    }

    pub fn login(&self, result: LoginResult) {
        let result = match result {
            LoginResult::Completed => 0,
            LoginResult::Denied => 1,
            LoginResult::NotAccepted => 2,
            LoginResult::Unknown => 3,
            LoginResult::Unavailable => 4,
        };
        self.clients.logins[result].fetch_add(1, Relaxed);
    }

    /// Counts what was too old.
    pub fn removed(&self, what: Removed, how_many: u64) {
        self.upkeep.removed[what as usize].fetch_add(how_many, Relaxed);
    }

    /// Counts a turn that was refused because a budget is used up: of tokens, or of cost.
    pub fn over_budget(&self, unit: &str) {
        if let Some(index) = BUDGETS.iter().position(|known| *known == unit) {
            self.turns.over_budget[index].fetch_add(1, Relaxed);
        }
    }

    /// Counts what has failed and is tried again.
    pub fn background_failed(&self, what: Background) {
        self.upkeep.failed[what as usize].fetch_add(1, Relaxed);
    }

    /// What is counted of turns that do not begin.
    pub fn admission(&self) -> &Arc<AdmissionMetrics> {
        &self.admission
    }

    /// What is counted of one agent.
    pub fn agent(&self, id: &str) -> Arc<AgentMetrics> {
        self.work.agent(id)
    }

    /// Counts an operation of the store, until what is returned is dropped.
    pub fn store(self: &Arc<Self>, operation: StoreOperation) -> StoreTimer {
        StoreTimer::begin(self.clone(), operation)
    }

    /// Counts a command that finds this many waiting for its chat.
    pub fn command_queued(&self, waiting: usize) {
        self.work.command_queued(waiting);
    }

    /// Counts what is sent to a collector of spans.
    pub fn span_exports(&self) -> &Arc<SpanExports> {
        self.work.span_exports()
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
            &self.turns.started,
        );
        page.counters(
            "turns_ended_total",
            "Turns that ended, by result; a waiting one continues when the client answers.",
            "result",
            &RESULTS,
            &self.turns.ended,
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
            self.clients.readers.load(Relaxed),
        );
        page.gauge(
            "sockets",
            "Open WebSockets.",
            self.clients.sockets.load(Relaxed),
        );
        page.counters(
            "retention_deleted_total",
            "What was deleted because of its age.",
            "what",
            &REMOVED,
            &self.upkeep.removed,
        );
        page.counters(
            "refused_credentials_total",
            "Requests that were refused because of who sent them, by reason.",
            "reason",
            &REFUSED,
            &self.clients.refused,
        );
        page.counters(
            "logins_total",
            "Logins with the page, by result.",
            "result",
            &LOGINS,
            &self.clients.logins,
        );
        page.counters(
            "budget_refused_total",
            "Turns that were refused because the budget of their user is used up, by what it limits.",
            "limit",
            &BUDGETS,
            &self.turns.over_budget,
        );
        page.counters(
            "background_failures_total",
            "Failures of what is done in the background and tried again.",
            "task",
            &BACKGROUND,
            &self.upkeep.failed,
        );
        self.admission.write(&mut page);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let tasks = runtime.metrics().num_alive_tasks();
            page.gauge("tasks", "Tasks of the async runtime.", tasks as u64);
        }
        self.work.write(&mut page);
        if let Some(figures) = cluster {
            self.cluster.write(figures, &mut page);
        }
        page.text
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
    /// One histogram for each value of a label, or one without.
    fn histograms<'h>(
        &mut self,
        (name, help): (&str, &str),
        buckets: &Buckets,
        label: &str,
        all: impl IntoIterator<Item = (&'h str, &'h Histogram)>,
    ) {
        self.head(name, "histogram", help);
        for (value, histogram) in all {
            let of = match label {
                "" => String::new(),
                label => format!("{label}=\"{value}\""),
            };
            let (comma, braces) = match of.is_empty() {
                true => ("", String::new()),
                false => (",", format!("{{{of}}}")),
            };
            let mut count = 0;
            for (bound, more) in histogram.counts(buckets) {
                count += more;
                self.line(
                    &format!("{name}_bucket{{{of}{comma}le=\"{bound}\"}}"),
                    count,
                );
            }
            self.line(&format!("{name}_sum{braces}"), histogram.sum(buckets));
            self.line(&format!("{name}_count{braces}"), count);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, buckets: &Buckets, histogram: &Histogram) {
        self.histograms((name, help), buckets, "", [("", histogram)]);
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
