//! The trace of a chat: which spans its turns, its agent's runs and its tools are, and what requests to others carry.
//!
//! ```text
//!   request span ──▶ invoke_agent (a turn) ──┬─ chat (also spoken), or the run of an ADK server ──▶ its tools, as far as events show
//!        ▲                  │   ▲            ├─ execute_tool
//!        │                  ▼   │ link       └─ approval.requested, approval.approved, … with the wait
//!   the next request ──▶ invoke_agent (the next turn of the same reply)
//! ```
//!
//! A turn belongs to the trace of its request. A request that names no trace goes on with that of the reply. Nothing here is
//! done for a piece of an answer, unless spans are recorded.

mod agent_run;
mod content;
mod tool;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use adk_bridge_agents::agent::{AgentRequest, Starting};
use adk_bridge_agents::tool::{ServerTool, ToolCall};
use adk_bridge_agents::trace_context::TraceContext;
use adk_bridge_protocol::id::{ChatId, MessageId};
use adk_bridge_protocol::outbox::{Audit, AuditKind};
use adk_bridge_protocol::reply::EndReason;
use adk_bridge_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::context::ChatContext;
use crate::agent_kinds::provider_of;
use crate::agent_list::ServedAgent;
use crate::metrics::result_of;
use crate::store::StoreError;
use crate::telemetry::{Attribute, RequestTrace, Span, SpanKind, Tracer, attribute, note_trace};

pub(in crate::chat) use agent_run::RunSpan;
use tool::TracedTool;

/// What the state of a chat keeps of its trace, while a reply waits.
const KEY: &str = "trace";
/// How many events wait for the next turn, and how many approvals are remembered: a reply asks for fewer.
const MAX_KEPT: usize = 64;

/// The trace of one chat.
#[derive(Clone)]
pub(super) struct ChatTrace {
    tracer: Tracer,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// That of the last request: the next turn is for it.
    request: RequestTrace,
    /// That of the reply, if a turn of it has begun.
    reply: Option<ReplyTrace>,
    /// The turn that is open, if spans are recorded.
    turn: Option<Span>,
    usage: Usage,
    /// What happened between turns.
    events: Vec<Event>,
    /// Whether the store has something that is not true any more.
    is_kept: bool,
}

/// The trace of a reply that may go on in another turn.
struct ReplyTrace {
    message: MessageId,
    /// The last turn of it.
    turn: TraceContext,
    /// When approvals were asked for.
    asked: BTreeMap<String, Timestamp>,
}

struct Event {
    name: &'static str,
    at: Timestamp,
    attributes: Vec<Attribute>,
}

/// The tokens of model calls, as far as they are reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    input: Option<u64>,
    cached: Option<u64>,
    output: Option<u64>,
}

/// The form in which the trace of a waiting reply is kept.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    message: MessageId,
    traceparent: String,
    #[serde(default)]
    tracestate: String,
    asked: BTreeMap<String, Timestamp>,
}

/// What the span of a turn says.
pub(super) struct TurnSpan<'t> {
    pub(super) served: &'t ServedAgent,
    pub(super) chat: &'t ChatId,
    pub(super) reply: Option<&'t MessageId>,
    pub(super) turn: &'t str,
    pub(super) transport: &'static str,
}

impl ChatTrace {
    pub(super) fn new(tracer: Tracer) -> Self {
        Self {
            tracer,
            state: Arc::default(),
        }
    }

    /// Notes the trace of a request, for the turn that it begins or continues.
    pub(super) fn request_came(&self, trace: &RequestTrace) {
        note_trace(&trace.context);
        self.lock().request.clone_from(trace);
    }

    /// What belongs to the open turn, or to what comes next.
    pub(super) fn current(&self) -> TraceContext {
        let state = self.lock();
        match (&state.turn, &state.reply) {
            (Some(turn), _) => turn.context().clone(),
            (None, Some(reply)) if !state.request.is_given => reply.turn.clone(),
            _ => state.request.context.clone(),
        }
    }

    // Turns.

    pub(super) fn turn_begins(&self, turn: &TurnSpan<'_>) {
        let mut state = self.lock();
        // Turns that nobody asks for have no request.
        let request = std::mem::take(&mut state.request);
        let earlier = (state.reply.as_ref()).filter(|earlier| Some(&earlier.message) == turn.reply);
        let earlier = earlier.map(|earlier| earlier.turn.clone());
        let earlier = earlier.filter(|earlier| !earlier.is_none());
        let (parent, linked) = match earlier {
            None => (request.context, TraceContext::default()),
            Some(earlier) if request.is_given => (request.context, earlier),
            Some(earlier) => (earlier, request.context),
        };
        let mut span = (self.tracer).start(SpanKind::Internal, &parent, || turn.described());
        let context = span.as_ref().map_or(parent, |span| span.context().clone());
        if let Some(span) = &mut span {
            span.link(&linked);
            for event in std::mem::take(&mut state.events) {
                event.add_to(span);
            }
        }
        note_trace(&context);
        let asked = match (state.reply.take(), turn.reply) {
            (Some(reply), Some(message)) if reply.message == *message => reply.asked,
            _ => BTreeMap::new(),
        };
        state.reply = turn.reply.map(|message| ReplyTrace {
            message: message.clone(),
            turn: context,
            asked,
        });
        state.turn = span;
    }

    pub(super) fn turn_ended(&self, ended: Option<EndReason>) {
        let mut state = self.lock();
        let usage = std::mem::take(&mut state.usage);
        if let Some(mut span) = state.turn.take() {
            span.set("adk_bridge.turn.result", result_of(ended));
            usage.show(&mut span);
            if ended == Some(EndReason::Failed) {
                span.fail("agent_failed");
            }
        }
        if ended.is_some() {
            state.reply = None;
        }
    }

    /// Keeps the trace of a reply that waits: the chat may leave memory, or get another owner.
    pub(super) async fn keep(&self, context: &ChatContext) {
        if !self.tracer.is_on() {
            return;
        }
        let kept = self.to_keep();
        if kept.is_none() && !std::mem::take(&mut self.lock().is_kept) {
            return;
        }
        let is_kept = kept.is_some();
        let write = Box::new(move |_| (kept, Value::Null));
        let stored = context.store.update_state(context.chat(), KEY, write).await;
        match stored {
            Ok(_) => self.lock().is_kept = is_kept,
            Err(StoreError::NotFound(_)) => {}
            Err(error) => {
                context.note_refused_write(&error);
                let chat = context.chat_id().as_str();
                // The next turn of the reply is a trace of its own.
                tracing::warn!(chat, %error, "the trace of chat {chat} cannot be stored");
            }
        }
    }

    fn to_keep(&self) -> Option<Value> {
        let state = self.lock();
        let reply = state.reply.as_ref()?;
        serde_json::to_value(Kept {
            message: reply.message.clone(),
            traceparent: reply.turn.traceparent()?,
            tracestate: reply.turn.tracestate().unwrap_or_default().to_owned(),
            asked: reply.asked.clone(),
        })
        .ok()
    }

    /// Reads what was kept of a reply that waits.
    pub(super) async fn load(&self, context: &ChatContext) {
        if !self.tracer.is_on() {
            return;
        }
        let stored = context.store.state(context.chat(), KEY).await;
        let kept = stored.ok().flatten();
        let kept = kept.and_then(|kept| serde_json::from_value::<Kept>(kept).ok());
        if let Some(kept) = kept {
            let mut state = self.lock();
            state.is_kept = true;
            state.reply = Some(ReplyTrace {
                message: kept.message,
                turn: TraceContext::read(&kept.traceparent, &kept.tracestate),
                asked: kept.asked,
            });
        }
    }

    // What happens in them.

    /// Adds what the audit says of approvals to the turn, or to the next one if none is open.
    pub(super) fn audited(&self, row: &Audit, at: Timestamp) {
        if !self.tracer.is_on()
            || matches!(
                row.kind,
                AuditKind::ToolStarted | AuditKind::ToolFinished | AuditKind::ToolFailed
            )
        {
            return;
        }
        let mut state = self.lock();
        let mut attributes = Vec::new();
        let ids = [
            ("gen_ai.tool.name", row.tool.as_deref()),
            (
                "gen_ai.tool.call.id",
                row.call_id.as_ref().map(|id| id.as_str()),
            ),
            (
                "adk_bridge.approval.id",
                row.approval_id.as_ref().map(|id| id.as_str()),
            ),
        ];
        for (name, id) in ids {
            attributes.extend(id.and_then(content::as_id).map(|id| attribute(name, id)));
        }
        if let (Some(id), Some(reply)) = (&row.approval_id, &mut state.reply) {
            match row.kind {
                AuditKind::ApprovalRequested if reply.asked.len() < MAX_KEPT => {
                    reply.asked.insert(id.as_str().to_owned(), at);
                }
                AuditKind::ApprovalApproved
                | AuditKind::ApprovalDenied
                | AuditKind::ApprovalExpired
                | AuditKind::ApprovalSuperseded => {
                    if let Some(asked) = reply.asked.remove(id.as_str()) {
                        let wait = at.as_millis().saturating_sub(asked.as_millis());
                        let wait = Duration::from_millis(wait).as_secs_f64();
                        attributes.push(attribute("adk_bridge.approval.wait", wait));
                    }
                }
                _ => {}
            }
        }
        let name = row.kind.as_str();
        let event = Event {
            name,
            at,
            attributes,
        };
        let State { turn, events, .. } = &mut *state;
        match turn {
            Some(turn) => event.add_to(turn),
            None if events.len() < MAX_KEPT => events.push(event),
            None => {}
        }
    }

    /// Starts a run of the agent as a part of the turn.
    pub(super) fn start_run(&self, served: &ServedAgent, request: AgentRequest<'_>) -> Starting {
        let current = self.current();
        match RunSpan::begin(self, served, &request, &current) {
            None => served.agent().start(request.in_trace(current)),
            Some(span) => {
                let request = request.in_trace(span.context().clone());
                span.around(served.agent().start(request))
            }
        }
    }

    /// The span of an answer of a live agent; nothing if no spans are recorded.
    pub(super) fn begin_live_run(&self, served: &ServedAgent, chat: &ChatId) -> Option<RunSpan> {
        RunSpan::begin_live(self, served, chat, &self.current())
    }

    /// Whether spans are recorded.
    pub(super) fn is_on(&self) -> bool {
        self.tracer.is_on()
    }

    /// Makes the run of a tool a part of the turn.
    pub(super) fn tool(
        &self,
        tool: Arc<dyn ServerTool>,
        mut call: ToolCall,
    ) -> (Arc<dyn ServerTool>, ToolCall) {
        call.trace = self.current();
        match TracedTool::begin(&self.tracer, &tool, &call) {
            None => (tool, call),
            Some(traced) => {
                call.trace = traced.context();
                (Arc::new(traced), call)
            }
        }
    }

    /// Adds the tokens of a run to those of the turn.
    fn count(&self, usage: Usage) {
        self.lock().usage.add(usage);
    }

    /// Poisoning is ignored: no critical section can leave the state inconsistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnSpan<'_> {
    fn described(&self) -> (String, Vec<Attribute>) {
        let info = self.served.info();
        let mut attributes = agent_attributes(self.served, info.model.clone());
        attributes.push(attribute("gen_ai.operation.name", "invoke_agent"));
        attributes.push(attribute(
            "gen_ai.conversation.id",
            hidden(self.chat.as_str()),
        ));
        attributes.push(attribute("adk_bridge.turn.id", self.turn.to_owned()));
        attributes.push(attribute("adk_bridge.transport", self.transport));
        if let Some(reply) = self.reply.and_then(|reply| content::as_id(reply.as_str())) {
            attributes.push(attribute("adk_bridge.reply.id", reply));
        }
        (format!("invoke_agent {}", info.name), attributes)
    }
}

/// What spans say of the agent.
fn agent_attributes(served: &ServedAgent, model: Option<String>) -> Vec<Attribute> {
    let info = served.info();
    let mut attributes = vec![
        attribute("gen_ai.provider.name", provider_of(&info.kind).to_owned()),
        attribute("gen_ai.agent.id", info.id),
        attribute("gen_ai.agent.name", info.name),
    ];
    attributes.extend(model.map(|model| attribute("gen_ai.request.model", model)));
    attributes
}

/// An id that a client has chosen, without secrets of the bridge.
fn hidden(id: &str) -> String {
    crate::secrets::hide(id).into()
}

impl Event {
    fn add_to(self, span: &mut Span) {
        let at = UNIX_EPOCH + Duration::from_millis(self.at.as_millis());
        span.event(self.name, at, self.attributes);
    }
}

impl Usage {
    fn add(&mut self, more: Self) {
        let pairs = [
            (&mut self.input, more.input),
            (&mut self.cached, more.cached),
            (&mut self.output, more.output),
        ];
        for (sum, count) in pairs {
            if let Some(count) = count {
                *sum = Some(sum.unwrap_or(0).saturating_add(count));
            }
        }
    }

    fn show(self, span: &mut Span) {
        for (name, count) in [
            ("gen_ai.usage.input_tokens", self.input),
            ("gen_ai.usage.cache_read.input_tokens", self.cached),
            ("gen_ai.usage.output_tokens", self.output),
        ] {
            if let Some(count) = count {
                span.set(name, i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const B: &str = "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    fn request(parent: &str) -> RequestTrace {
        RequestTrace {
            context: TraceContext::read(parent, "a=1"),
            is_given: true,
        }
    }

    /// Without an exporter, what came in is what goes out: that of the request, or else that of the reply.
    #[test]
    fn a_turn_belongs_to_the_trace_of_its_request_or_else_of_its_reply() {
        let trace = ChatTrace::new(Tracer::default());
        let (served, chat) = (ServedAgent::nobody(), ChatId::from("c"));
        let turn = |reply: &str| {
            let reply = MessageId::from(reply);
            let turn = TurnSpan {
                served: &served,
                chat: &chat,
                reply: Some(&reply),
                turn: "turn",
                transport: "http",
            };
            trace.turn_begins(&turn);
            trace.current()
        };
        assert!(turn("r0").is_none());
        trace.turn_ended(Some(EndReason::Finished));
        trace.request_came(&request(A));
        assert_eq!(turn("r1"), request(A).context);
        trace.turn_ended(None);
        // An approval that nobody answers, and one that is answered without a trace, and with one.
        assert_eq!(turn("r1"), request(A).context);
        trace.turn_ended(None);
        trace.request_came(&RequestTrace::default());
        assert_eq!(turn("r1"), request(A).context);
        trace.turn_ended(None);
        trace.request_came(&request(B));
        assert_eq!(turn("r1"), request(B).context);
        assert_eq!(trace.current().tracestate(), Some("a=1"));
        trace.turn_ended(Some(EndReason::Finished));
        // Another reply has its own.
        trace.request_came(&RequestTrace::default());
        assert!(turn("r2").is_none());
    }
}
