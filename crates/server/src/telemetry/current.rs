//! The trace that the running task works for: lines of the log name it.

use std::cell::RefCell;

use adk_bridge_agents::trace_context::TraceContext;
use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    static TRACE: RefCell<TraceContext>;
}

/// Runs a future whose lines in the log belong to this trace.
pub fn in_trace<F: Future>(
    trace: TraceContext,
    future: F,
) -> TaskLocalFuture<RefCell<TraceContext>, F> {
    TRACE.scope(RefCell::new(trace), future)
}

/// From here on, what runs in [`in_trace`] belongs to this one.
pub fn note_trace(trace: &TraceContext) {
    // Elsewhere there is nothing to note it for.
    let _ = TRACE.try_with(|current| current.replace(trace.clone()));
}

/// The trace of the running task, if there is one.
pub(super) fn trace() -> TraceContext {
    TRACE
        .try_with(|current| current.borrow().clone())
        .unwrap_or_default()
}
