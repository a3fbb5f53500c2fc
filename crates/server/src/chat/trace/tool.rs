//! The span of a tool that the bridge runs.

use std::sync::{Arc, Mutex, PoisonError};

use adk_bridge_agents::agent::BoxFuture;
use adk_bridge_agents::tool::{ServerTool, ToolCall, ToolSpec};
use adk_bridge_agents::trace_context::TraceContext;
use adk_bridge_protocol::calls::Outcome;
use adk_bridge_protocol::id::{ChatId, UserId};

use super::content;
use crate::telemetry::{Span, SpanKind, Tracer, attribute, in_trace};

/// A tool whose one run is a span.
pub(super) struct TracedTool {
    tool: Arc<dyn ServerTool>,
    context: TraceContext,
    /// Until it runs.
    span: Mutex<Option<Span>>,
    content: bool,
}

impl TracedTool {
    /// Nothing if no spans are recorded.
    pub(super) fn begin(
        tracer: &Tracer,
        tool: &Arc<dyn ServerTool>,
        call: &ToolCall,
    ) -> Option<Self> {
        let name = &tool.spec().name;
        let mut span = tracer.start(SpanKind::Internal, &call.trace, || {
            let mut attributes = vec![
                attribute("gen_ai.operation.name", "execute_tool"),
                attribute("gen_ai.tool.name", name.clone()),
                attribute("gen_ai.tool.type", "function"),
            ];
            let id = content::as_id(call.call_id.as_str());
            attributes.extend(id.map(|id| attribute("gen_ai.tool.call.id", id)));
            (format!("execute_tool {name}"), attributes)
        })?;
        if tracer.has_content() {
            span.set("gen_ai.tool.call.arguments", content::json(&call.input));
        }
        Some(Self {
            tool: tool.clone(),
            context: span.context().clone(),
            span: Mutex::new(Some(span)),
            content: tracer.has_content(),
        })
    }

    pub(super) fn context(&self) -> TraceContext {
        self.context.clone()
    }
}

impl ServerTool for TracedTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn run(&self, call: ToolCall) -> BoxFuture<'_, Outcome> {
        // Poisoning is ignored: the span is taken whole.
        let span = self
            .span
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut running = Running(span);
        let run = in_trace(self.context.clone(), self.tool.run(call));
        Box::pin(async move {
            let outcome = run.await;
            if let Some(mut span) = running.0.take() {
                match &outcome {
                    Outcome::Output { value, .. } if self.content => {
                        span.set("gen_ai.tool.call.result", content::json(value));
                    }
                    Outcome::Output { .. } => {}
                    Outcome::Error { text } => {
                        if self.content {
                            span.set("gen_ai.tool.call.result", content::text(text));
                        }
                        span.fail("tool_error");
                    }
                }
            }
            outcome
        })
    }

    fn forget<'t>(
        &'t self,
        user: &'t UserId,
        chat_id: &'t ChatId,
    ) -> BoxFuture<'t, Result<(), String>> {
        self.tool.forget(user, chat_id)
    }
}

/// A run that does not come to its end has taken too long, has crashed, or was left behind.
struct Running(Option<Span>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(span) = &mut self.0 {
            span.fail("not_finished");
        }
    }
}
