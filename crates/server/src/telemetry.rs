//! What operators see of requests, chats and agents while they run: the log, and traces.
//!
//! ```text
//!   request ── traceparent ──▶ request span ──▶ invoke_agent ──┬─ chat, or the run of an ADK server ──▶ traceparent
//!                                  (here)       (chat/trace.rs) └─ execute_tool ──▶ traceparent, _meta of MCP
//! ```
//!
//! | module | knows |
//! |---|---|
//! | `log` | one line per event, as text or as JSON |
//! | `request` | the line and the span of a request, and the trace that it belongs to |
//! | `tracer` | whether spans are recorded, as the `OTEL_…` variables say, and how they begin |
//! | `collector` | where they are sent, and what the log says of that |
//! | `current` | the trace that a line of the log belongs to |
//!
//! The context of a trace is passed on whether or not spans are recorded here.

mod collector;
mod current;
mod log;
mod request;
mod tracer;

pub use adk_bridge_agents::trace_context::TraceContext;
pub use current::{in_trace, note_trace};
pub use log::set_up;
pub use request::{RequestLine, RequestTrace};
pub(crate) use tracer::secrets_of_environment;
pub use tracer::{Attribute, Span, SpanKind, Tracer, TracerError, attribute};
