//! Tools of MCP servers: programs that the bridge starts, or servers that it reaches over HTTP.
//!
//! ```text
//!                ┌───────────── after a pause ─────────────┐
//!                ▼                                         │
//!   Starting ── connect, list tools ──▶ Ready ── ends ──▶ Down
//!                └───────────── fails ─────────────────────▲
//! ```
//!
//! | module | knows |
//! |---|---|
//! | `supervisor` | the states above, and when tools are listed again |
//! | `stdio`, `http` | the two ways to a server, with their bounds |
//! | `listing` | which of the listed tools are offered, under which name, and which of them ask |
//! | `call`, `result` | one call, and what its result becomes |
//! | `questions` | what a server asks the user while it works on a call, and how far it is |
//!
//! A call is sent at most once. What a server sends that nobody asked for is ignored.

mod call;
mod ending;
pub(crate) mod fuzzing;
mod http;
mod listing;
mod questions;
mod result;
mod stdio;
mod supervisor;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rmcp::service::{Peer, RoleClient};
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::error::shortened;
use crate::tool::{ServerTool, ToolSource, ToolSpec};
use questions::RunningCalls;
pub(crate) use result::read as read_result;

/// Stands between the name of a server and that of its tool.
pub const SEPARATOR: &str = "__";
/// The longest name of a server: it leaves room for the names of tools.
pub const MAX_SERVER_NAME: usize = 32;
/// The largest message that a server may send: a photograph or two as base64.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// What the tool is called that says why a server has none.
const UNAVAILABLE: &str = "unavailable";
/// How long stopping a server may take.
const STOP_TIME: Duration = Duration::from_secs(3);

/// An MCP server of the configuration.
#[derive(Debug, Clone)]
pub struct McpSettings {
    pub name: String,
    pub access: Access,
    /// Its tools that are offered, by the names that the server uses; all if it is not set.
    pub tools: Option<Vec<String>>,
    pub approval: Approval,
}

/// How a server is reached.
#[derive(Clone)]
pub enum Access {
    /// A program that the bridge starts; its environment is minimal apart from `env`.
    Command {
        command: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
    },
    Url {
        url: String,
        headers: Vec<(String, String)>,
    },
}

/// Which tools of a server need approval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Approval {
    /// Those that do not say that they only read.
    #[default]
    UnlessReadOnly,
    Always,
    Never,
    /// These, by the names that the server uses. If one of them is not there, all: it may be misspelled.
    Named(Vec<String>),
}

/// Why a server of the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    #[error("{command:?} cannot be started ({source}); write a command that exists, or its path")]
    Command {
        command: String,
        source: std::io::Error,
    },
    #[error("{0}")]
    Url(String),
}

/// A server that is kept running until this is dropped.
pub struct McpServer {
    shared: Arc<Shared>,
    prefix: String,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What the supervisor, the tools and the toolbox know of a server.
struct Shared {
    settings: McpSettings,
    state: RwLock<State>,
    /// The first attempt to connect has ended.
    tried: watch::Sender<bool>,
}

struct State {
    phase: Phase,
    tools: Arc<[Arc<dyn ServerTool>]>,
}

#[derive(Clone)]
enum Phase {
    Starting,
    Ready(Connection),
    Down { reason: String },
}

/// A connection to a server that has introduced itself.
#[derive(Clone)]
struct Connection {
    peer: Peer<RoleClient>,
    /// A call has found it broken.
    broken: Arc<Notify>,
    calls: Arc<RunningCalls>,
}

/// Whether a server can have this name: letters, digits, `-` and `_`, beginning with a letter. Where the name ends in that
/// of a tool must be clear, so it has no `__` and does not end with `_`.
pub fn is_server_name(name: &str) -> bool {
    name.len() <= MAX_SERVER_NAME
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && !name.ends_with('_')
        && !name.contains(SEPARATOR)
        && (name.bytes()).all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

impl McpServer {
    /// Starts the program, or begins to connect. [`McpServer::tried`] waits for the outcome.
    pub fn start(settings: McpSettings) -> Result<Self, McpError> {
        let first = supervisor::Way::open(&settings)?;
        let prefix = format!("{}{SEPARATOR}", settings.name);
        let shared = Arc::new(Shared {
            settings,
            state: RwLock::new(State {
                phase: Phase::Starting,
                tools: Arc::default(),
            }),
            tried: watch::Sender::new(false),
        });
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(supervisor::run(shared.clone(), first, stopped));
        Ok(Self {
            shared,
            prefix,
            stop,
            task,
        })
    }

    /// Waits until the first attempt to connect has ended.
    pub async fn tried(&self) {
        // The supervisor never ends before it has tried, unless it is stopped.
        let _ = self.shared.tried.subscribe().wait_for(|tried| *tried).await;
    }

    /// Closes the connection and lets a program end in order.
    pub async fn stop(&self) {
        let _ = self.stop.send(true);
        let ended = async {
            while !self.task.is_finished() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if timeout(STOP_TIME, ended).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ToolSource for McpServer {
    fn name(&self) -> &str {
        self.shared.name()
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn tools(&self) -> Arc<[Arc<dyn ServerTool>]> {
        let tools = self.shared.read(|state| state.tools.clone());
        match self.shared.problem() {
            // The model is to know why it lacks them, and may say so.
            Some(problem) if tools.is_empty() => {
                let name = format!("{}{UNAVAILABLE}", self.prefix);
                let said = format!(
                    "Tools whose names begin with {} cannot be used now: {problem}.",
                    self.prefix
                );
                Arc::new([self.shared.unavailable(&name, &said)])
            }
            _ => tools,
        }
    }

    fn may_ask(&self) -> bool {
        self.shared.settings.approval != Approval::Never
    }

    fn problem(&self) -> Option<String> {
        self.shared.problem()
    }

    fn unavailable(&self, name: &str) -> Option<Arc<dyn ServerTool>> {
        name.strip_prefix(&self.prefix)?;
        let problem = self.problem()?;
        Some(self.shared.unavailable(name, &problem))
    }
}

impl Shared {
    fn name(&self) -> &str {
        &self.settings.name
    }

    // Poisoning is ignored: every change is a single assignment.
    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn phase(&self) -> Phase {
        self.read(|state| state.phase.clone())
    }

    /// A tool that only says why it cannot run.
    fn unavailable(self: &Arc<Self>, name: &str, description: &str) -> Arc<dyn ServerTool> {
        let spec = ToolSpec::server(
            name,
            description,
            json!({"type": "object", "properties": {}}),
        );
        Arc::new(call::McpTool::new(spec, String::new(), self.clone()))
    }

    fn problem(&self) -> Option<String> {
        let name = self.name();
        match self.phase() {
            Phase::Ready(_) => None,
            Phase::Starting => Some(format!("the MCP server {name:?} is still starting")),
            Phase::Down { reason } => Some(format!(
                "the MCP server {name:?} is not available: {}",
                shortened(&reason)
            )),
        }
    }
}

/// Never prints arguments or values, which may be secret.
impl std::fmt::Debug for Access {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Command { command, .. } => command,
            Self::Url { .. } => "a URL",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_servers_end_where_it_is_clear() {
        for name in [
            "a",
            "git-hub",
            "my_tools",
            "a1",
            &"a".repeat(MAX_SERVER_NAME),
        ] {
            assert!(is_server_name(name), "{name}");
        }
        let long = "a".repeat(MAX_SERVER_NAME + 1);
        for name in ["", "_a", "1a", "a_", "a__b", "a b", "a.b", "ä", &long] {
            assert!(!is_server_name(name), "{name}");
        }
    }
}
