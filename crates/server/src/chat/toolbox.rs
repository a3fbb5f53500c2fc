//! The tools of the agent, and the rules for them.

use std::collections::HashMap;
use std::sync::Arc;

use adk_bridge_agents::tool::{ServerTool, ToolSpec};
use adk_bridge_protocol::calls::RunsOn;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::reply::{Limits, Policy, Runner, ToolRule};

/// Every tool that the model may call.
pub struct Toolbox {
    specs: Vec<ToolSpec>,
    server: HashMap<String, Arc<dyn ServerTool>>,
    runner: Runner,
    /// Tools of a remote agent that must not run without approval.
    guarded: Vec<String>,
    may_ask: bool,
    limits: Limits,
}

/// A configuration with impossible tools.
#[derive(Debug, thiserror::Error)]
pub enum ToolboxError {
    #[error("approval.tools: there is no tool named {0:?}")]
    Unknown(String),
    #[error("agent.client_tools: there is another tool named {0:?}")]
    Twice(String),
    #[error("approval.may_ask: the tool {0:?} needs approval; remove this key")]
    Asks(String),
}

impl Toolbox {
    pub fn new(
        server: Vec<Arc<dyn ServerTool>>,
        client: Vec<ToolSpec>,
        approval: &[String],
        limits: Limits,
    ) -> Result<Self, ToolboxError> {
        let mut specs: Vec<ToolSpec> = server.iter().map(|tool| tool.spec().clone()).collect();
        specs.extend(client);
        for name in approval {
            let spec = specs
                .iter_mut()
                .find(|spec| spec.name == *name)
                .ok_or_else(|| ToolboxError::Unknown(name.clone()))?;
            spec.needs_approval = true;
        }
        let mut names = std::collections::HashSet::new();
        if let Some(twice) = specs.iter().find(|spec| !names.insert(spec.name.as_str())) {
            return Err(ToolboxError::Twice(twice.name.clone()));
        }
        let server = server
            .into_iter()
            .map(|tool| (tool.spec().name.clone(), tool))
            .collect();
        Ok(Self {
            may_ask: specs.iter().any(|spec| spec.needs_approval),
            specs,
            server,
            runner: Runner::Bridge,
            guarded: Vec::new(),
            limits,
        })
    }

    /// For an agent that runs its own tools: the bridge knows only which of them must not run without approval.
    pub fn remote(guarded: Vec<String>, limits: Limits) -> Self {
        Self {
            specs: Vec::new(),
            server: HashMap::new(),
            runner: Runner::Remote,
            guarded,
            may_ask: true,
            limits,
        }
    }

    /// Says that the tools of a remote agent never ask, which the bridge cannot know.
    pub fn that_never_asks(self) -> Result<Self, ToolboxError> {
        let asks = self.specs.iter().filter(|spec| spec.needs_approval);
        let mut asks = asks.map(|spec| &spec.name).chain(&self.guarded);
        match asks.next() {
            Some(name) => Err(ToolboxError::Asks(name.clone())),
            None => Ok(Self {
                may_ask: false,
                ..self
            }),
        }
    }

    /// The same, and tools that the front end runs, with other names.
    pub(super) fn with_client_tools(&self, client: &[ToolSpec]) -> Self {
        let mut specs = self.specs.clone();
        specs.extend_from_slice(client);
        Self {
            may_ask: self.may_ask || client.iter().any(|spec| spec.needs_approval),
            specs,
            server: self.server.clone(),
            runner: self.runner,
            guarded: self.guarded.clone(),
            limits: self.limits,
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.specs.iter().any(|spec| spec.name == name)
    }

    pub fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    /// Whether clients of this dialect have to be kept from taking text or outcomes for the end of an answer: those of
    /// `held` would keep the output of a client tool to themselves.
    pub fn withholds(&self, dialect: Dialect) -> bool {
        let mut runners = self.specs.iter().map(|spec| spec.runs_on);
        self.may_ask || dialect == Dialect::Held && runners.any(|on| on == RunsOn::Client)
    }

    /// Whether a tool of a remote agent must not run without approval.
    pub fn is_guarded(&self, name: &str) -> bool {
        self.guarded.iter().any(|guarded| guarded == name)
    }

    /// Makes the tools forget a chat. A failure is only logged: the chat is gone nevertheless.
    pub async fn forget(&self, user: &UserId, chat_id: &ChatId) {
        for (name, tool) in &self.server {
            if let Err(error) = tool.forget(user, chat_id).await {
                tracing::warn!(chat = chat_id.as_str(), tool = %name, %error, "a tool cannot delete its data of a chat");
            }
        }
    }

    pub fn server_tool(&self, name: &str) -> Option<Arc<dyn ServerTool>> {
        self.server.get(name).cloned()
    }
}

impl Policy for Toolbox {
    fn runner(&self) -> Runner {
        self.runner
    }

    fn tool(&self, name: &str) -> Option<ToolRule> {
        if self.runner == Runner::Remote {
            return Some(ToolRule {
                runs_on: RunsOn::Remote,
                needs_approval: self.is_guarded(name),
                idempotent: false,
            });
        }
        let spec = self.specs.iter().find(|spec| spec.name == name)?;
        let runs = spec.runs_on != RunsOn::Server || self.server.contains_key(name);
        runs.then(|| spec.rule())
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}
