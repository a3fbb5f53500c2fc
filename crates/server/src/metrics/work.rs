//! Histograms of the work on answers: by agent, of the store, of the queues of chats; and what becomes of spans.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use adk_bridge_protocol::json_text::Json;

use super::histogram::{Buckets, Histogram};
use super::{Metrics, Page};
use crate::store::Spent;

/// From a fast local model to one that thinks.
const FIRST_CHUNK: Buckets = Buckets::times(&[
    10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
    30_000_000,
]);
/// From a delta alone to a machine that is overloaded.
const ADDED: Buckets = Buckets::times(&[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 1_000_000,
]);
/// From a word to a long conversation.
const TOKENS: Buckets = Buckets::counts(&[
    10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000,
]);
/// From a write to memory to a disk, or a database, in trouble.
const STORE: Buckets = Buckets::times(&[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
    5_000_000,
]);
/// Doubling: most of the time nothing waits.
const WAITING: Buckets = Buckets::counts(&[0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024]);

/// How many agents have counters of their own; the rest, if apps come and go without end, share those of `other`.
const MAX_AGENTS: usize = 100;
const OTHER: &str = "other";

const OPERATIONS: [&str; 4] = ["begin", "commit", "checkpoint", "load"];
const EXPORTS: [&str; 2] = ["sent", "failed"];

/// What the store does while a user waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOperation {
    /// A question and its reply.
    Begin,
    /// A change of a reply.
    Commit,
    /// A growing message.
    Checkpoint,
    /// A chat is read.
    Load,
}

/// The histograms of one server since its start.
#[derive(Debug, Default)]
pub(super) struct WorkMetrics {
    agents: RwLock<BTreeMap<String, Arc<AgentMetrics>>>,
    store: [Histogram; OPERATIONS.len()],
    /// How many operations of the store are under way, and how many each has found.
    storing: AtomicU64,
    store_queue: Histogram,
    commands: Histogram,
    exports: Arc<SpanExports>,
}

/// The histograms of one agent.
#[derive(Debug, Default)]
pub struct AgentMetrics {
    first_chunk: Histogram,
    added: Histogram,
    input_tokens: Histogram,
    output_tokens: Histogram,
    spent: SpentMetrics,
}

/// What is counted because there is a budget.
#[derive(Debug, Default)]
struct SpentMetrics {
    tokens: AtomicU64,
    /// In billionths.
    cost: AtomicU64,
    uncounted: AtomicU64,
}

/// Attempts to send spans to a collector.
#[derive(Debug, Default)]
pub struct SpanExports([AtomicU64; EXPORTS.len()]);

/// An operation of the store that is under way.
pub struct StoreTimer {
    metrics: Arc<Metrics>,
    operation: StoreOperation,
    began: Instant,
}

impl AgentMetrics {
    /// The time from a request to the first output of the agent.
    pub fn first_chunk(&self, delay: Duration) {
        self.first_chunk.time(delay, &FIRST_CHUNK);
    }

    /// The time from a piece of the answer to its chunks, on their way to readers.
    pub fn passed_on(&self, after: Duration) {
        self.added.time(after, &ADDED);
    }

    /// What was counted in the budget of a user.
    pub fn spent(&self, new: Spent) {
        self.spent.tokens.fetch_add(new.tokens.total(), Relaxed);
        self.spent.cost.fetch_add(new.cost, Relaxed);
    }

    /// An answer of which the agent has not reported what it used.
    pub fn not_counted(&self) {
        self.spent.uncounted.fetch_add(1, Relaxed);
    }

    /// The tokens of a reply that has ended, as its metadata has them.
    pub fn reply_ended(&self, metadata: Option<&Json>) {
        let Some(usage) = metadata.and_then(|metadata| metadata.get("usage")) else {
            return;
        };
        for (name, histogram) in [
            ("inputTokens", &self.input_tokens),
            ("outputTokens", &self.output_tokens),
        ] {
            let count = usage.get(name).and_then(|count| count.read::<u64>().ok());
            if let Some(count) = count {
                histogram.count(count, &TOKENS);
            }
        }
    }
}

impl SpanExports {
    pub fn counted(&self, is_sent: bool) {
        self.0[usize::from(!is_sent)].fetch_add(1, Relaxed);
    }
}

impl StoreTimer {
    pub(super) fn begin(metrics: Arc<Metrics>, operation: StoreOperation) -> Self {
        let work = &metrics.work;
        let waiting = work.storing.fetch_add(1, Relaxed);
        work.store_queue.count(waiting, &WAITING);
        Self {
            metrics,
            operation,
            began: Instant::now(),
        }
    }
}

impl Drop for StoreTimer {
    fn drop(&mut self) {
        let work = &self.metrics.work;
        work.storing.fetch_sub(1, Relaxed);
        work.store[self.operation as usize].time(self.began.elapsed(), &STORE);
    }
}

impl WorkMetrics {
    pub(super) fn agent(&self, id: &str) -> Arc<AgentMetrics> {
        // Poisoning is ignored: no critical section can leave the map inconsistent.
        let known = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(agent) = known.get(id) {
            return agent.clone();
        }
        let id = if known.len() < MAX_AGENTS { id } else { OTHER };
        drop(known);
        let mut known = self.agents.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(id.to_owned()).or_default().clone()
    }

    pub(super) fn command_queued(&self, waiting: usize) {
        self.commands.count(waiting as u64, &WAITING);
    }

    pub(super) fn span_exports(&self) -> &Arc<SpanExports> {
        &self.exports
    }

    pub(super) fn write(&self, page: &mut Page) {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        for (name, help, buckets, of) in [
            (
                "first_chunk_seconds",
                "Time from a request to the first chunk of the agent's answer.",
                &FIRST_CHUNK,
                (|agent| &agent.first_chunk) as fn(&AgentMetrics) -> &Histogram,
            ),
            (
                "added_delay_seconds",
                "Time from a piece of the agent's answer to its chunks, on their way to the readers.",
                &ADDED,
                |agent| &agent.added,
            ),
            (
                "input_tokens",
                "Tokens that went into the model calls of a reply, as the agent reports them.",
                &TOKENS,
                |agent| &agent.input_tokens,
            ),
            (
                "output_tokens",
                "Tokens that came out of the model calls of a reply, as the agent reports them.",
                &TOKENS,
                |agent| &agent.output_tokens,
            ),
        ] {
            let all = agents.iter().map(|(id, agent)| (id.as_str(), of(agent)));
            page.histograms((name, help), buckets, "agent", all);
        }
        for (name, help, of) in [
            (
                "spent_tokens_total",
                "Tokens that were counted in budgets of users, by agent.",
                (|spent| spent.tokens.load(Relaxed).to_string()) as fn(&SpentMetrics) -> String,
            ),
            (
                "spent_cost_total",
                "What tokens of budgets have cost, in the currency of [budget], by agent.",
                |spent| cost(spent.cost.load(Relaxed)),
            ),
            (
                "uncounted_replies_total",
                "Replies that count nothing in [budget], because their agent did not report what it used.",
                |spent| spent.uncounted.load(Relaxed).to_string(),
            ),
        ] {
            page.head(name, "counter", help);
            for (id, agent) in agents.iter() {
                page.line(&format!("{name}{{agent=\"{id}\"}}"), of(&agent.spent));
            }
        }
        drop(agents);
        let head = (
            "store_seconds",
            "Time that operations of the store take while a user waits.",
        );
        let operations = OPERATIONS.into_iter().zip(&self.store);
        page.histograms(head, &STORE, "operation", operations);
        page.histogram(
            "store_queue_depth",
            "Operations of the store that were under way when another began.",
            &WAITING,
            &self.store_queue,
        );
        page.histogram(
            "chat_queue_depth",
            "Commands that waited for a chat when another came.",
            &WAITING,
            &self.commands,
        );
        page.counters(
            "span_exports_total",
            "Attempts to send spans to an OpenTelemetry collector, by result.",
            "result",
            &EXPORTS,
            &self.exports.0,
        );
    }
}

/// Billionths as a decimal number.
#[expect(clippy::cast_precision_loss, reason = "it is shown to people")]
fn cost(billionths: u64) -> String {
    (billionths as f64 / 1e9).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_counted_is_on_the_page() {
        let metrics = Arc::new(Metrics::default());
        let agent = metrics.agent("helper");
        agent.first_chunk(Duration::from_millis(11));
        agent.passed_on(Duration::from_micros(60));
        agent.reply_ended(Some(
            &serde_json::json!({"usage": {"inputTokens": 11, "outputTokens": 2}}).into(),
        ));
        agent.reply_ended(Some(
            &serde_json::json!({"usage": {"outputTokens": 3}}).into(),
        ));
        agent.reply_ended(None);
        let tokens = crate::store::Tokens {
            input: 5,
            cached: 1,
            output: 2,
        };
        agent.spent(Spent {
            tokens,
            cost: 1_500_000_000,
        });
        agent.not_counted();
        metrics.over_budget("cost");
        let first = metrics.store(StoreOperation::Commit);
        drop(metrics.store(StoreOperation::Load));
        drop(first);
        metrics.command_queued(3);
        metrics.span_exports().counted(true);
        let text = metrics.text(0, 0, None);
        for line in [
            "first_chunk_seconds_bucket{agent=\"helper\",le=\"0.01\"} 0",
            "first_chunk_seconds_bucket{agent=\"helper\",le=\"0.025\"} 1",
            "first_chunk_seconds_sum{agent=\"helper\"} 0.011",
            "added_delay_seconds_bucket{agent=\"helper\",le=\"0.0001\"} 1",
            "input_tokens_count{agent=\"helper\"} 1",
            "output_tokens_count{agent=\"helper\"} 2",
            "output_tokens_sum{agent=\"helper\"} 5",
            "spent_tokens_total{agent=\"helper\"} 7",
            "spent_cost_total{agent=\"helper\"} 1.5",
            "uncounted_replies_total{agent=\"helper\"} 1",
            "budget_refused_total{limit=\"tokens\"} 0",
            "budget_refused_total{limit=\"cost\"} 1",
            "store_seconds_count{operation=\"commit\"} 1",
            "store_seconds_count{operation=\"load\"} 1",
            "store_seconds_count{operation=\"begin\"} 0",
            "store_queue_depth_bucket{le=\"0\"} 1",
            "store_queue_depth_bucket{le=\"1\"} 2",
            "chat_queue_depth_bucket{le=\"2\"} 0",
            "chat_queue_depth_bucket{le=\"4\"} 1",
            "chat_queue_depth_count 1",
            "span_exports_total{result=\"sent\"} 1",
            "span_exports_total{result=\"failed\"} 0",
        ] {
            let line = format!("adk_bridge_{line}");
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    #[test]
    fn agents_without_end_share_counters() {
        let metrics = Metrics::default();
        for number in 0..2 * MAX_AGENTS {
            metrics.agent(&format!("a{number}"));
        }
        let text = metrics.text(0, 0, None);
        let counts = text
            .lines()
            .filter(|line| line.contains("input_tokens_count"));
        assert_eq!(counts.count(), MAX_AGENTS + 1);
        assert!(text.contains("input_tokens_count{agent=\"other\"}"));
    }
}
