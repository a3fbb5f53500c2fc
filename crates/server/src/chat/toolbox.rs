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
        // Tools of sources may ask the user while they run, which is a client tool.
        let leaves_calls = !self.sources.is_empty() || runners.any(|on| on == RunsOn::Client);
        self.may_ask || dialect == Dialect::Held && leaves_calls
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

    /// The tool that runs a call, or what its outcome says instead. The list of a source may have changed since it was decided
    /// whether the call asks: what needs approval by now runs only if the call has it.
    pub fn runner_of(&self, name: &str, is_approved: bool) -> Result<Arc<dyn ServerTool>, String> {
        let (tool, asks) = match self.own_spec(name) {
            Some(_) => (self.server.get(name).cloned(), false),
            None => match self.sourced(name) {
                Some((tool, rule)) => (Some(tool), rule.needs_approval),
                None => (None, false),
            },
        };
        match tool {
            // Approved before a restart or a change that removed the tool.
            None => Err(format!("there is no tool named {name:?}")),
            Some(_) if asks && !is_approved => {
                Err("not run: by now this tool needs approval; call it again".to_owned())
            }
            Some(tool) => Ok(tool),
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use adk_bridge_agents::agent::BoxFuture;
    use adk_bridge_agents::tool::ToolCall;
    use adk_bridge_protocol::calls::Outcome;
    use serde_json::json;

    use super::*;

    struct Listed(ToolSpec);

    impl ServerTool for Listed {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn run(&self, _call: ToolCall) -> BoxFuture<'_, Outcome> {
            Box::pin(std::future::ready(Outcome::error("only listed")))
        }
    }

    /// A source whose tool `mine__write` is not there, does not ask, or asks.
    #[derive(Default)]
    struct Changing(Mutex<Option<bool>>);

    impl ToolSource for Changing {
        fn name(&self) -> &str {
            "mine"
        }

        fn prefix(&self) -> &str {
            "mine__"
        }

        fn tools(&self) -> Arc<[Arc<dyn ServerTool>]> {
            let asks = *self.0.lock().unwrap();
            let spec = || ToolSpec::server("mine__write", "", json!({"type": "object"}));
            let spec = asks.map(|asks| match asks {
                true => spec().with_approval(),
                false => spec(),
            });
            let tools = spec.into_iter();
            tools
                .map(|spec| Arc::new(Listed(spec)) as Arc<dyn ServerTool>)
                .collect()
        }

        fn may_ask(&self) -> bool {
            true
        }

        fn problem(&self) -> Option<String> {
            (self.0.lock().unwrap().is_none()).then(|| "still starting".to_owned())
        }

        fn unavailable(&self, name: &str) -> Option<Arc<dyn ServerTool>> {
            self.problem()?;
            Some(Arc::new(Listed(ToolSpec::server(name, "", json!({})))))
        }
    }

    /// A call is judged by one list, and may be run by the next.
    #[test]
    fn a_tool_that_asks_by_now_does_not_run_without_approval() {
        let source = Arc::new(Changing::default());
        let toolbox = Toolbox::new(Vec::new(), Vec::new(), &[], Limits::default()).unwrap();
        let offered = OfferedSource {
            source: source.clone(),
            named: None,
            approval: Vec::new(),
        };
        let toolbox = toolbox.offering(vec![offered]).unwrap();
        let name = "mine__write";
        for before in [None, Some(false)] {
            *source.0.lock().unwrap() = before;
            assert!(!toolbox.tool(name).unwrap().needs_approval);
            assert!(toolbox.runner_of(name, false).is_ok());
            *source.0.lock().unwrap() = Some(true);
            let refusal = toolbox.runner_of(name, false).err().unwrap();
            assert!(refusal.starts_with("not run: "), "{refusal}");
            assert!(toolbox.runner_of(name, true).is_ok());
        }
        assert!(toolbox.runner_of("other", true).is_err());
    }
}
