//! How agents are made from the configuration, with their tools and rules.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use adk_bridge_agents::agent::{Agent, MemoryModel};

use super::apps::Apps;
use super::{Agents, Entry, ServedAgent};
use crate::agent_kinds::{AgentKinds, adk};
use crate::config::{self, Config, ConfigError};
use crate::mcp::McpServers;
use crate::reload::Makers;
use crate::server::{StartError, registry, toolbox};

/// Everything that an agent is made of.
pub(crate) struct Assembly {
    config: Config,
    makers: Makers,
    /// Whether there may be more than one agent.
    several: bool,
}

/// An agent that has no tools yet, or an ADK server whose apps become agents.
pub(crate) enum Draft {
    One {
        config: Box<Config>,
        agent: Arc<dyn Agent>,
    },
    Apps {
        config: Box<Config>,
    },
    /// One that is there already.
    Known(Entry),
}

/// Makes the agents that the configuration names, without their tools. What is wrong with each is said with its name.
pub(crate) async fn drafts(kinds: &AgentKinds, config: &Config) -> Result<Vec<Draft>, StartError> {
    redrafts(kinds, config, &[]).await
}

/// The same, with those that are there already and would be made of the same again.
pub(crate) async fn redrafts(
    kinds: &AgentKinds,
    config: &Config,
    before: &[(String, Entry)],
) -> Result<Vec<Draft>, StartError> {
    let (mut drafts, mut errors) = (Vec::new(), Vec::new());
    for settings in config.each_agent() {
        let source = made_of(config, settings);
        let known = before.iter().find(|(made_of, _)| *made_of == source);
        if let Some((_, entry)) = known {
            drafts.push(Draft::Known(entry.clone()));
            continue;
        }
        match draft(kinds, config.of_agent(settings)).await {
            Ok(draft) => drafts.push(draft),
            Err(error) => errors.push(in_agent(config, settings, error)),
        }
    }
    together(errors)?;
    Ok(drafts)
}

/// Everything of a configuration that an agent depends on, to see whether another one would make it differently. It holds
/// secrets.
pub(crate) fn made_of(config: &Config, settings: &config::Agent) -> String {
    let own = config.of_agent(settings);
    // Other entries' ids are those that an app cannot have.
    let others = settings.apps.as_ref().map(|_| {
        let agents = config.each_agent().iter();
        agents.map(|agent| &agent.id).collect::<Vec<_>>()
    });
    let parts = (
        (own.agent, own.approval, own.tools, own.demo),
        own.limits.agent_silence,
        (config.has_several_agents(), &config.approval.tools, others),
    );
    serde_json::to_string(&parts).unwrap_or_default()
}

/// What is wrong with the agents of a configuration, as far as that can be found out without asking anybody.
pub(crate) async fn problems(kinds: AgentKinds, config: &Config) -> Vec<StartError> {
    let mut config = config.clone();
    // Their tools are known when they run.
    let servers: Vec<String> = (config.tools.mcp.iter())
        .map(|server| format!("{}__", server.name))
        .collect();
    let is_own = |name: &String| !servers.iter().any(|prefix| name.starts_with(prefix));
    config.approval.tools.retain(is_own);
    for agent in config.agents.iter_mut().chain([&mut config.agent]) {
        agent.approval_tools.retain(is_own);
        if let Some(tools) = &mut agent.tools {
            tools.retain(is_own);
        }
    }
    let (mut drafts, mut errors) = (Vec::new(), Vec::new());
    for settings in config.each_agent() {
        if !settings.is_sound() || settings.apps.is_some() {
            continue;
        }
        let own = Box::new(config.of_agent(settings));
        match kinds.construct(&own).await {
            Ok(agent) => drafts.push(Draft::One { config: own, agent }),
            Err(error) => errors.push(in_agent(&config, settings, error)),
        }
    }
    let makers = Makers {
        kinds: Arc::new(kinds),
        tools: Vec::new(),
        client_tools: Vec::new(),
        mcp: Arc::new(McpServers::default()),
        directory: config.server.data_dir.clone(),
    };
    let mut assembly = Assembly::new(config.clone(), makers);
    assembly.several = config.has_several_agents();
    for draft in drafts {
        if let Draft::One { config: own, agent } = draft
            && let Err(error) = assembly.served(&own, agent)
        {
            errors.push(in_agent(&config, &own.agent, error));
        }
    }
    errors
}

/// Several errors as one.
fn together(mut errors: Vec<StartError>) -> Result<(), StartError> {
    if errors.len() < 2 {
        return errors.pop().map_or(Ok(()), Err);
    }
    let mut problems = Vec::new();
    for error in errors {
        match error {
            StartError::Config(error) => problems.extend(error.each()),
            other => return Err(other),
        }
    }
    Ok(ConfigError::all(problems)?)
}

/// Drafts of agents that the program made itself.
pub(crate) fn drafts_of(agents: Vec<Arc<dyn Agent>>, config: &Config) -> Vec<Draft> {
    let several = agents.len() > 1;
    let draft = |agent: Arc<dyn Agent>| {
        let mut own = config.of_agent(&config.agent);
        if several {
            // Added again for those agents that have them.
            own.approval.tools.clone_from(&config.agent.approval_tools);
        }
        let info = agent.info();
        own.agent.id = Some(info.id);
        own.agent.name = Some(info.name);
        Draft::One {
            config: Box::new(own),
            agent,
        }
    };
    agents.into_iter().map(draft).collect()
}

async fn draft(kinds: &AgentKinds, config: Config) -> Result<Draft, StartError> {
    let config = Box::new(config);
    if config.agent.apps.is_some() {
        return Ok(Draft::Apps { config });
    }
    let agent = kinds.make(&config).await?;
    Ok(Draft::One { config, agent })
}

impl Assembly {
    pub(crate) fn new(config: Config, makers: Makers) -> Self {
        Self {
            config,
            makers,
            several: false,
        }
    }

    /// Gives agents their tools, and looks for apps once.
    pub(crate) async fn agents(mut self, drafts: Vec<Draft>) -> Result<Agents, StartError> {
        let is_one = matches!(
            drafts.as_slice(),
            [Draft::One { .. } | Draft::Known(Entry::One(_))]
        );
        self.several = !is_one;
        let this = Arc::new(self);
        let mut ids = HashSet::new();
        for draft in &drafts {
            let id = match draft {
                Draft::One { config, agent } => {
                    config.agent.id.clone().unwrap_or_else(|| agent.info().id)
                }
                Draft::Known(Entry::One(agent)) => agent.id().to_owned(),
                Draft::Known(Entry::Apps(_)) | Draft::Apps { .. } => continue,
            };
            config::check_id(&id)?;
            if !ids.insert(id.clone()) {
                return Err(ConfigError::TwoAgents { id }.into());
            }
        }
        let mut entries = Vec::new();
        for draft in drafts {
            entries.push(match draft {
                Draft::Known(entry) => entry,
                Draft::One { config, agent } => {
                    let settings = config.agent.clone();
                    let served = this.served(&config, agent);
                    let served =
                        served.map_err(|error| in_agent(&this.config, &settings, error))?;
                    Entry::One(Arc::new(served))
                }
                Draft::Apps { config } => {
                    let settings = config.agent.clone();
                    let server = adk::lister(&config)
                        .await
                        .map_err(|error| in_agent(&this.config, &settings, error))?;
                    Entry::Apps(Arc::new(Apps::new(
                        settings,
                        ids.clone(),
                        server,
                        this.clone(),
                    )))
                }
            });
        }
        let agents = Agents::new(entries);
        this.check_global_approvals(&agents)?;
        let all = agents.all();
        let mut run_here = all.iter().map(|it| it.agent().memory());
        if !this.makers.mcp.is_empty() && !run_here.any(|memory| memory == MemoryModel::Stateless) {
            return Err(StartError::NoAgentForMcp);
        }
        tokio::join!(agents.look(), agents.look_at_named());
        agents.forget_news();
        Ok(agents)
    }

    /// The agent for an app of an ADK server.
    pub(super) async fn app(
        &self,
        settings: &config::Agent,
        id: &str,
        app: &str,
    ) -> Result<ServedAgent, StartError> {
        let mut config = self.config.of_agent(settings);
        config.agent.id = Some(id.to_owned());
        config.agent.name = Some(app.to_owned());
        config.agent.app = Some(app.to_owned());
        config.agent.apps = None;
        let agent = self.makers.kinds.make(&config).await?;
        self.served(&config, agent)
    }

    /// An agent with its tools. `config`: the configuration as this agent sees it.
    fn served(&self, config: &Config, agent: Arc<dyn Agent>) -> Result<ServedAgent, StartError> {
        // Where there are others, an agent that runs its own tools leaves those of the program to them.
        let (server, client) = match self.several && agent.memory() == MemoryModel::Session {
            true => (Vec::new(), Vec::new()),
            false => (self.makers.tools.clone(), self.makers.client_tools.clone()),
        };
        let registry = registry(server, client, &*agent, &self.makers.directory)?;
        let mut config = config.clone();
        if self.several {
            let has = |name: &String| {
                let named = config.agent.tools.as_deref();
                let named = named.map(|names| self.makers.mcp.without_own(names));
                let offered = registry.offered(named.as_deref());
                let offered = offered.unwrap_or_default();
                let mut sources = self.makers.mcp.offered(&config).into_iter();
                let own = config.agent.client_tools.iter().map(|tool| &tool.name);
                let mut names = (offered.server.iter().map(|tool| &tool.spec().name))
                    .chain(offered.client.iter().map(|spec| &spec.name))
                    .chain(own);
                agent.memory() == MemoryModel::Session
                    || names.any(|it| it == name)
                    || sources.any(|source| source.has(name))
            };
            let shared = self.config.approval.tools.iter().filter(|name| has(name));
            let shared: Vec<String> = shared.cloned().collect();
            config.approval.tools.extend(shared);
        }
        let tools = toolbox(&config, &*agent, &registry, &self.makers.mcp)?;
        let info = agent.info();
        let settings = &config.agent;
        let schemas: HashMap<_, _> = (settings.client_tools.iter())
            .filter_map(|tool| Some((tool.name.clone(), tool.output_schema.clone()?)))
            .collect();
        let state = settings.state.clone();
        if !state.is_empty() && agent.memory() == MemoryModel::Stateless {
            let problem =
                "this agent has no session; write what it is to know into agent.instruction";
            return Err(ConfigError::value("agent.state", problem).into());
        }
        let id = settings.id.clone().unwrap_or(info.id);
        let name = settings.name.clone().unwrap_or(info.name);
        let served = ServedAgent::new(id, name, agent, tools);
        Ok(served
            .with_output_schemas(schemas)
            .with_session_state(state))
    }

    /// With several agents, a tool of `approval.tools` is one of any of them; one that nobody has is a mistake. Agents that
    /// run their own tools may have it.
    fn check_global_approvals(&self, agents: &Agents) -> Result<(), StartError> {
        if !self.several {
            return Ok(());
        }
        let all = agents.all();
        let is_known = |name: &String| {
            !agents.sources().is_empty() || all.iter().any(|it| it.tools().may_have(name))
        };
        match self
            .config
            .approval
            .tools
            .iter()
            .find(|name| !is_known(name))
        {
            None => Ok(()),
            Some(name) => {
                let problem = format!("no agent has a tool named {name:?}");
                Err(ConfigError::value("approval.tools", problem).into())
            }
        }
    }
}

/// Says which of several agents an error is about.
fn in_agent(config: &Config, settings: &config::Agent, error: StartError) -> StartError {
    if config.agents.is_empty() {
        return error;
    }
    let problem = error.to_string();
    let problem = problem.strip_prefix("agent.").unwrap_or(&problem);
    let id = settings.own_id().to_owned();
    let problem = problem.to_owned();
    ConfigError::OfAgent { id, problem }.into()
}
