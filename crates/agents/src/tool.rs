//! Tools: what a model may call, where it runs, and its rules.

use std::sync::Arc;

use adk_bridge_protocol::calls::{Outcome, RunsOn};
use adk_bridge_protocol::id::{CallId, ChatId, UserId};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::reply::{ToolAnswer, ToolProgress, ToolRule};
use serde_json::Value;

use crate::agent::BoxFuture;
use crate::trace_context::TraceContext;

/// The description of a tool for the model, and its rules.
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

/// The longest name of a tool that models take.
const MAX_NAME_BYTES: usize = 64;

/// Whether models take this name, Gemini among them.
pub fn is_tool_name(name: &str) -> bool {
    let first = name.as_bytes().first();
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    first.is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_')
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(is_known)
}

/// A tool that runs in the bridge. It never waits for a human: that is data in the store. The exception is a tool whose
/// server asks while it runs ([`UserLink`]).
pub trait ServerTool: Send + Sync {
    fn spec(&self) -> &ToolSpec;
    /// Runs once with the arguments that were stored when the call was made. Dropping the future cancels it.
    fn run(&self, call: ToolCall) -> BoxFuture<'_, Outcome>;
    /// Deletes what the tool has of a deleted chat outside of the chat's state.
    fn forget<'t>(
        &'t self,
        _user: &'t UserId,
        _chat_id: &'t ChatId,
    ) -> BoxFuture<'t, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

/// Tools that come and go while the server runs.
pub trait ToolSource: Send + Sync {
    fn name(&self) -> &str;
    /// What all names of its tools begin with. No other source has the same, and none begins with another's.
    fn prefix(&self) -> &str;
    /// The tools that are there now, or were when it was last available.
    fn tools(&self) -> Arc<[Arc<dyn ServerTool>]>;
    /// Whether a tool of it may ever need approval.
    fn may_ask(&self) -> bool;
    /// Why its tools cannot run now, in words for users.
    fn problem(&self) -> Option<String>;
    /// A tool that it does not have as far as is known, and that only says why: it is not available, so it may have it.
    fn unavailable(&self, name: &str) -> Option<Arc<dyn ServerTool>>;
}

/// One run of a tool.
#[derive(Clone)]
pub struct ToolCall {
    /// The owner of the chat: two users may have chats with the same id.
    pub user: UserId,
    pub chat_id: ChatId,
    pub call_id: CallId,
    pub input: Json,
    /// What the tools of a chat remember between calls.
    pub state: Arc<dyn ChatState>,
    /// Who the tool may ask, and tell how far it is.
    pub user_link: Arc<dyn UserLink>,
    /// The trace that its requests to other programs belong to.
    pub trace: TraceContext,
}

/// What a running tool may ask and tell the user.
pub trait UserLink: Send + Sync {
    /// Asks the user. Dropping the future withdraws the question. A restart of the bridge closes it, and the outcome of the
    /// tool is unknown then.
    fn ask(&self, question: UserQuestion) -> BoxFuture<'static, ToolAnswer>;
    /// Stops the time that the tool may take, until what is returned is dropped.
    fn pause(&self) -> Box<dyn Send>;
    /// Says how far the tool is. What comes too often is left out.
    fn report(&self, progress: ToolProgress);
}

/// A question of a running tool.
#[derive(Debug, Clone, PartialEq)]
pub struct UserQuestion {
    /// Who asks, by the name that the configuration gives to it.
    pub server: String,
    pub message: String,
    /// JSON Schema of the answer, as MCP allows it.
    pub schema: Json,
}

/// Where nobody can be asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl UserLink for Nobody {
    fn ask(&self, _question: UserQuestion) -> BoxFuture<'static, ToolAnswer> {
        Box::pin(async { ToolAnswer::Cancelled })
    }

    fn pause(&self) -> Box<dyn Send> {
        Box::new(())
    }

    fn report(&self, _progress: ToolProgress) {}
}

/// Maps the stored value to the value to store and the value to return.
pub type StateChange<'s> = Box<dyn FnOnce(Option<Value>) -> (Option<Value>, Value) + Send + 's>;

/// The state of one chat, kept by the store.
pub trait ChatState: Send + Sync {
    /// Reads a value, changes it and stores it, atomically. Returns what `change` returned.
    fn update<'s>(
        &'s self,
        key: &'s str,
        change: StateChange<'s>,
    ) -> BoxFuture<'s, Result<Value, String>>;
}

impl ToolSpec {
    /// A tool that runs in the bridge, without approval.
    pub fn server(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            input_schema,
            runs_on: RunsOn::Server,
            needs_approval: false,
            idempotent: false,
        }
    }

    /// A tool that the front end runs.
    pub fn client(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
    ) -> Self {
        Self {
            runs_on: RunsOn::Client,
            ..Self::server(name, description, input_schema)
        }
    }

    /// The same, with approval by a human.
    #[must_use]
    pub fn with_approval(self) -> Self {
        Self {
            needs_approval: true,
            ..self
        }
    }

    pub fn rule(&self) -> ToolRule {
        ToolRule {
            runs_on: self.runs_on,
            needs_approval: self.needs_approval,
            idempotent: self.idempotent,
        }
    }
}
