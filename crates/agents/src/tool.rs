//! Tool: what a model may call, where it runs, and what holds for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use adk_bridge_protocol::calls::{Outcome, RunsOn};
use adk_bridge_protocol::reply::ToolRule;
use serde_json::Value;

/// What a model is told about a tool, and what holds for it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    pub runs_on: RunsOn,
    pub needs_approval: bool,
    /// Whether it may be run again after a crash in the middle of a run.
    pub idempotent: bool,
}

/// A tool that runs in the bridge. It never waits for a human: that is data in the store.
pub trait ServerTool: Send + Sync {
    fn spec(&self) -> &ToolSpec;
    /// Runs once with the arguments that were stored when the call was made. Dropping the future cancels it.
    fn run(&self, call: ToolCall) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>>;
    /// A chat is deleted: what the tool has of it outside of the chat's state goes too.
    fn forget<'t>(
        &'t self,
        _chat_id: &'t str,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 't>> {
        Box::pin(async { Ok(()) })
    }
}

/// One run of a tool.
#[derive(Clone)]
pub struct ToolCall {
    pub chat_id: String,
    pub call_id: String,
    pub input: Value,
    /// What the tools of a chat remember between calls.
    pub state: Arc<dyn ChatState>,
}

/// From the stored value to the value to store and what the caller gets.
pub type StateChange<'s> = Box<dyn FnOnce(Option<Value>) -> (Option<Value>, Value) + Send + 's>;

/// The state of one chat, kept by the store.
pub trait ChatState: Send + Sync {
    /// Reads a value, changes it and stores it, with nothing in between. Returns what `change` returned.
    fn update<'s>(
        &'s self,
        key: &'s str,
        change: StateChange<'s>,
    ) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 's>>;
}

impl ToolSpec {
    pub fn rule(&self) -> ToolRule {
        ToolRule {
            runs_on: self.runs_on,
            needs_approval: self.needs_approval,
            idempotent: self.idempotent,
        }
    }
}
