//! The tools of the agent, and the rules for them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use adk_bridge_agents::tool::{ServerTool, ToolSource, ToolSpec};
use adk_bridge_protocol::calls::RunsOn;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::reply::{Limits, Policy, Runner, ToolRule};

/// Every tool that the model may call.
pub struct Toolbox {
    specs: Vec<ToolSpec>,
    server: HashMap<String, Arc<dyn ServerTool>>,
    /// Tools that come and go, in addition to those above.
    sources: Vec<OfferedSource>,
    runner: Runner,
    /// Tools of a remote agent that must not run without approval.
    guarded: Vec<String>,
    may_ask: bool,
    limits: Limits,
}

/// Tools of a source that an agent is offered.
#[derive(Clone)]
pub struct OfferedSource {
    pub source: Arc<dyn ToolSource>,
    /// Only those with these names.
    pub named: Option<Vec<String>>,
    /// Those that need approval whatever the source says.
    pub approval: Vec<String>,
}

/// A configuration with impossible tools.
#[derive(Debug, thiserror::Error)]
pub enum ToolboxError {
    #[error("approval.tools: there is no tool named {0:?}")]
    Unknown(String),
    #[error("agent.client_tools: there is another tool named {0:?}")]
    Twice(String),
    #[error(
        "tools.mcp: the tool {tool:?} begins with {prefix:?}; give the MCP server another name"
    )]
    Prefix { prefix: String, tool: String },
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
            sources: Vec::new(),
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
            sources: Vec::new(),
            runner: Runner::Remote,
            guarded,
            may_ask: true,
            limits,
        }
    }

    /// The same, with tools that come and go.
    pub fn offering(self, sources: Vec<OfferedSource>) -> Result<Self, ToolboxError> {
        for offered in &sources {
            let prefix = offered.source.prefix();
            if let Some(spec) = self.specs.iter().find(|spec| spec.name.starts_with(prefix)) {
                return Err(ToolboxError::Prefix {
                    prefix: prefix.to_owned(),
                    tool: spec.name.clone(),
                });
            }
        }
        Ok(Self {
            may_ask: self.may_ask || sources.iter().any(OfferedSource::may_ask),
            sources,
            ..self
        })
    }

    /// Says that the tools of a remote agent never ask, which the bridge cannot know.
    pub fn that_never_asks(self) -> Result<Self, ToolboxError> {
        let asks = self.specs.iter().filter(|spec| spec.needs_approval);
        let sources = self.sources.iter().filter(|source| source.may_ask());
        let sources = sources.map(|offered| format!("{}*", offered.source.prefix()));
        let mut asks = (asks.map(|spec| spec.name.clone()))
            .chain(self.guarded.iter().cloned())
            .chain(sources);
        match asks.next() {
            Some(name) => Err(ToolboxError::Asks(name)),
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
            sources: self.sources.clone(),
            runner: self.runner,
            guarded: self.guarded.clone(),
            limits: self.limits,
        }
    }

    /// The descriptions of all tools that are there now.
    pub fn specs(&self) -> Cow<'_, [ToolSpec]> {
        if self.sources.is_empty() {
            return Cow::Borrowed(&self.specs);
        }
        let mut specs = self.specs.clone();
        for offered in &self.sources {
            for tool in &*offered.source.tools() {
                if offered.has(&tool.spec().name) {
                    specs.push(offered.with_rules(tool.spec()));
                }
            }
        }
        Cow::Owned(specs)
    }

    /// Whether a tool of this name is there, or may come.
    pub fn may_have(&self, name: &str) -> bool {
        self.tool(name).is_some() || self.sources.iter().any(|source| source.has(name))
    }

    /// Why some tools cannot run now, in words for users.
    pub fn problems(&self) -> Vec<String> {
        let problems = self.sources.iter();
        problems.filter_map(|it| it.source.problem()).collect()
    }

    /// The names of sources whose tools cannot run now.
    pub fn unavailable(&self) -> impl Iterator<Item = String> {
        let away = self.sources.iter();
        let away = away.filter(|offered| offered.source.problem().is_some());
        away.map(|offered| offered.source.name().to_owned())
    }

    fn own_spec(&self, name: &str) -> Option<&ToolSpec> {
        self.specs.iter().find(|spec| spec.name == name)
    }

    /// A tool of a source, and its rule.
    fn sourced(&self, name: &str) -> Option<(Arc<dyn ServerTool>, ToolRule)> {
        let offered = self.sources.iter().find(|offered| offered.has(name))?;
        let tools = offered.source.tools();
        let tool = tools.iter().find(|tool| tool.spec().name == name);
        let tool = tool.cloned().or_else(|| offered.source.unavailable(name))?;
        let rule = offered.with_rules(tool.spec()).rule();
        Some((tool, rule))
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
        match self.own_spec(name) {
            Some(_) => self.server.get(name).cloned(),
            None => self.sourced(name).map(|(tool, _)| tool),
        }
    }
}

impl OfferedSource {
    /// Whether a tool of this name is offered, if the source has it.
    pub fn has(&self, name: &str) -> bool {
        let is_named = |names: &Vec<String>| names.iter().any(|named| named == name);
        name.starts_with(self.source.prefix()) && self.named.as_ref().is_none_or(is_named)
    }

    fn may_ask(&self) -> bool {
        self.source.may_ask() || !self.approval.is_empty()
    }

    fn with_rules(&self, spec: &ToolSpec) -> ToolSpec {
        ToolSpec {
            needs_approval: spec.needs_approval || self.approval.contains(&spec.name),
            ..spec.clone()
        }
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
        let Some(spec) = self.own_spec(name) else {
            return self.sourced(name).map(|(_, rule)| rule);
        };
        let runs = spec.runs_on != RunsOn::Server || self.server.contains_key(name);
        runs.then(|| spec.rule())
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}
