//! The turn of a chat, for the log, the metrics and the audit: which one, where it came from, how long it takes.

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::outbox::{Audit, AuditKind, Commit};
use adk_bridge_protocol::reply::Reply;
use tokio::time::Instant;
use uuid::Uuid;

use super::context::ChatContext;
use super::live::RequestOrigin;
use super::task::new_id;
use super::trace::TurnSpan;
use crate::metrics::{AgentMetrics, result_of};
use crate::store::AuditEntry;
use adk_bridge_protocol::time::Timestamp;

/// The turn that is open, or the last one.
pub(super) struct TurnRecord {
    id: String,
    origin: Origin,
    clock: Option<Clock>,
    /// When the request for the next turn arrived.
    arrived: Option<Instant>,
}

/// Where a turn came from.
#[derive(Debug, Clone, Copy)]
struct Origin {
    transport: &'static str,
    connection: Option<Uuid>,
    dialect: Dialect,
}

/// What is measured of an open turn.
struct Clock {
    began: Instant,
    /// What is counted of the agent that answers.
    agent: Arc<AgentMetrics>,
    /// Whether a first chunk has been sent.
    has_spoken: bool,
}

impl TurnRecord {
    pub(super) fn new() -> Self {
        Self {
            id: new_id("turn"),
            origin: Origin {
                transport: "none",
                connection: None,
                dialect: Dialect::Native,
            },
            clock: None,
            arrived: None,
        }
    }

    /// Notes when a request arrived that may begin a turn.
    pub(super) fn request_arrived(&mut self) {
        self.arrived = Some(Instant::now());
    }

    /// Names the next turn, and where it comes from.
    pub(super) fn name(&mut self, origin: RequestOrigin, dialect: Dialect) {
        self.id = new_id("turn");
        self.origin = Origin {
            transport: origin.transport,
            connection: origin.connection,
            dialect,
        };
    }

    pub(super) fn is_open(&self) -> bool {
        self.clock.is_some()
    }

    /// `reply`: the message that the turn is a part of.
    pub(super) fn begin(&mut self, context: &ChatContext, reply: Option<&MessageId>) {
        context.metrics.turn_started();
        let served = context.served();
        context.trace().turn_begins(&TurnSpan {
            served: &served,
            chat: context.chat_id(),
            reply,
            turn: &self.id,
            transport: self.origin.transport,
        });
        self.clock = Some(Clock {
            began: self.arrived.take().unwrap_or_else(Instant::now),
            agent: context.metrics.agent(served.id()),
            has_spoken: false,
        });
    }

    /// Notes that chunks are sent; the first of a turn is measured.
    pub(super) fn chunk_sent(&mut self) {
        if let Some(clock) = self.clock.as_mut().filter(|clock| !clock.has_spoken) {
            clock.has_spoken = true;
            clock.agent.first_chunk(clock.began.elapsed());
        }
    }

    /// Counts how long a piece of the agent's answer was on its way through the bridge.
    pub(super) fn passed_on(&self, after: Duration) {
        if let Some(clock) = &self.clock {
            clock.agent.passed_on(after);
        }
    }

    pub(super) fn end(&mut self, reply: &Reply, context: &ChatContext) {
        let (message, ended) = (reply.message(), reply.ended());
        // A turn that began and ended with the same input.
        if self.clock.is_none() {
            self.begin(context, Some(&message.id));
        }
        context.metrics.turn_ended(ended);
        if let (Some(clock), Some(_)) = (&self.clock, ended) {
            clock.agent.reply_ended(message.metadata.as_ref());
        }
        let (chat, turn, result) = (context.chat_id().as_str(), &self.id, result_of(ended));
        let millis = self
            .clock
            .take()
            .map(|clock| clock.began.elapsed().as_millis());
        tracing::info!(
            chat,
            turn,
            result,
            millis,
            "the turn {turn} of chat {chat} ended: {result}"
        );
        context.trace().turn_ended(ended);
    }

    /// Forgets a turn that could not be stored.
    pub(super) fn abandon(&mut self) {
        self.clock = None;
    }

    /// When a turn with this time limit must be over.
    pub(super) fn limit(&self, time: Duration) -> Option<Instant> {
        self.clock.as_ref()?.began.checked_add(time)
    }

    /// Rows of the audit with where they came from.
    pub(super) fn audit_entries(
        &self,
        audit: &[Audit],
        at: Timestamp,
        replica: Option<&str>,
    ) -> Vec<AuditEntry> {
        audit
            .iter()
            .map(|audit| AuditEntry {
                at,
                turn_id: Some(self.id.clone()),
                connection_id: self.origin.connection.map(|id| id.to_string()),
                transport: Some(self.origin.transport.to_owned()),
                dialect: Some(self.origin.dialect.as_str().to_owned()),
                replica: replica.map(str::to_owned),
                audit: audit.clone(),
            })
            .collect()
    }
}

/// Names what a commit makes durable; tests kill the process before and after each.
pub(super) fn step_of(commit: &Commit) -> &'static str {
    let record = &commit.record;
    let has = |kinds: &[AuditKind]| commit.audit.iter().any(|row| kinds.contains(&row.kind));
    if has(&[AuditKind::ApprovalRequested]) {
        "question"
    } else if has(&[AuditKind::ApprovalApproved, AuditKind::ApprovalDenied]) {
        "decision"
    } else if has(&[AuditKind::ToolStarted]) {
        "start"
    } else if has(&[AuditKind::ToolFinished, AuditKind::ToolFailed]) {
        "outcome"
    } else if record.ended.is_some() {
        "end"
    } else if record.asking {
        "asking"
    } else {
        "pause"
    }
}
