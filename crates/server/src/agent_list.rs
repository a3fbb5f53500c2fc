//! The agents behind one bridge: each with its id, its tools and its rules.
//!
//! ```text
//!   [[agents]] ──┬─ one agent ──────────────────────────────┐
//!                └─ apps = "*" ── looked at again and again ┴──▶ Agents ── by id ──▶ the task of a chat
//! ```
//!
//! The first entry is the default. An agent that is gone keeps its chats: they can be read, and nothing else answers in them.

mod apps;
mod assembly;
mod presence;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adk_bridge_agents::agent::{Agent, AgentInfo, AgentRequest, MemoryModel, Starting};
use adk_bridge_agents::error::{AgentError, AgentErrorKind};
use adk_bridge_agents::token::Tokens;
use adk_bridge_agents::tool::ToolSpec;
use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::reply::Limits;
use arc_swap::ArcSwap;
use axum::http::HeaderMap;
use futures_util::future::join_all;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::auth::Identity;
use crate::chat::toolbox::Toolbox;
use crate::config::SessionState;
use apps::Apps;
pub(crate) use apps::LOOK_TIME;
pub(crate) use assembly::{Assembly, drafts, drafts_of, made_of, problems, redrafts};
use presence::Presence;

/// How long a list waits for an agent to tell its tools.
const LISTING_TIME: Duration = Duration::from_secs(5);
/// How long a source of tokens may take to count as one that works. Health checks commonly wait a few seconds.
const CHECK_TIME: Duration = Duration::from_secs(3);
/// The longest id of an agent: it is part of URLs, and a column of every chat.
pub const MAX_AGENT_ID: usize = 64;

/// One agent, and what chats need to know about it.
pub struct ServedAgent {
    id: String,
    name: String,
    agent: Arc<dyn Agent>,
    tools: Arc<Toolbox>,
    /// The schemas of answers to its client tools, for front ends that ask their users for them.
    output_schemas: HashMap<String, Value>,
    /// What its sessions begin with.
    session_state: SessionState,
    /// Whether its app was there at the last look.
    presence: Mutex<Presence>,
}

/// All agents of a server.
pub struct Agents {
    /// Replaced as a whole when the configuration is loaded again.
    entries: ArcSwap<Vec<Entry>>,
    /// Whether agents have come since [`Agents::have_come`] was asked.
    news: AtomicBool,
    come: Notify,
}

/// An entry of the configuration.
#[derive(Clone)]
pub(crate) enum Entry {
    One(Arc<ServedAgent>),
    Apps(Arc<Apps>),
}

/// Why no agent can begin a chat that names none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAgent {
    #[error(
        "the agents of {name:?} are not known, because their server cannot be reached; try again in a moment"
    )]
    Unreachable { name: String },
    #[error(
        "the server of {name:?} has no app that could answer; start one there, or name another agent"
    )]
    Empty { name: String },
}

/// What front ends learn about an agent.
pub struct AgentSummary {
    pub info: AgentInfo,
    pub live_model: Option<String>,
    pub modalities: &'static [&'static str],
    pub tools: Vec<ListedTool>,
    pub is_default: bool,
    /// Whether it could be asked for its tools just now.
    pub is_reachable: bool,
}

/// A tool of an agent, with what the configuration adds to it.
pub struct ListedTool {
    pub spec: ToolSpec,
    pub output_schema: Option<Value>,
}

/// Whether an id can stand in a URL as it is.
pub fn is_agent_id(id: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    // A path of dots means another place.
    (1..=MAX_AGENT_ID).contains(&id.len())
        && id.bytes().all(is_safe)
        && !id.bytes().all(|byte| byte == b'.')
}

impl ServedAgent {
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        agent: Arc<dyn Agent>,
        tools: Toolbox,
    ) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            agent,
            tools: Arc::new(tools),
            output_schemas: HashMap::new(),
            session_state: SessionState::default(),
            presence: Mutex::default(),
        }
    }

    pub(crate) fn with_output_schemas(self, output_schemas: HashMap<String, Value>) -> Self {
        Self {
            output_schemas,
            ..self
        }
    }

    pub(crate) fn with_session_state(self, session_state: SessionState) -> Self {
        Self {
            session_state,
            ..self
        }
    }

    /// The agent of a chat whose agent is not known yet. It refuses everything and knows no tool, so that nothing runs with
    /// the rules of another one.
    pub(crate) fn nobody() -> Arc<Self> {
        let tools = Toolbox::remote(Vec::new(), Limits::default());
        Arc::new(Self::new("", "", Arc::new(Nobody), tools))
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn agent(&self) -> &Arc<dyn Agent> {
        &self.agent
    }

    pub fn tools(&self) -> &Arc<Toolbox> {
        &self.tools
    }

    pub(crate) fn session_state(&self) -> &SessionState {
        &self.session_state
    }

    /// What it says about itself, under the id and name that it has here.
    pub fn info(&self) -> AgentInfo {
        let mut info = self.agent.info();
        info.id.clone_from(&self.id);
        info.name.clone_from(&self.name);
        let problems = self.tools.problems().into_iter();
        let problems = problems.map(|problem| format!("use all of its tools: {problem}"));
        info.limitations.extend(problems);
        info
    }

    /// Its tools, including those that it runs itself, as far as it lists them.
    async fn listed_tools(&self) -> Result<Vec<ListedTool>, AgentError> {
        let specs = match self.agent.memory() {
            MemoryModel::Stateless => self.tools.specs().into_owned(),
            MemoryModel::Session => {
                let mut specs = self.agent.tools().await?;
                for spec in &mut specs {
                    spec.needs_approval = self.tools.is_guarded(&spec.name);
                }
                specs
            }
        };
        Ok(specs
            .into_iter()
            .map(|spec| ListedTool {
                output_schema: self.output_schemas.get(&spec.name).cloned(),
                spec,
            })
            .collect())
    }

    async fn summary(&self, is_default: bool) -> AgentSummary {
        let listed = timeout(LISTING_TIME, self.listed_tools()).await;
        let (tools, is_reachable) = match listed {
            Ok(Ok(tools)) => (tools, true),
            Ok(Err(error)) => {
                tracing::warn!(agent = self.id, kind = %error.kind(), detail = error.detail(), "the tools of the agent {} cannot be queried", self.id);
                (Vec::new(), error.kind() != AgentErrorKind::Unreachable)
            }
            Err(_) => (Vec::new(), false),
        };
        let live = self.agent.live();
        AgentSummary {
            info: self.info(),
            live_model: live.and_then(|live| live.model()).map(str::to_owned),
            modalities: match live {
                Some(_) => &["text", "audio"],
                None => &["text"],
            },
            tools,
            is_default,
            is_reachable,
        }
    }
}

impl Agents {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        Self {
            entries: ArcSwap::from_pointee(entries),
            news: AtomicBool::new(false),
            come: Notify::new(),
        }
    }

    /// The entries of the configuration, in their order.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.load().to_vec()
    }

    /// Has these from here on. What an agent that is gone has begun goes on, and nothing new begins with it.
    pub(crate) fn replace_by(&self, others: &Self) {
        self.entries.store(others.entries.load_full());
    }

    /// A single agent.
    pub fn one(agent: ServedAgent) -> Self {
        Self::new(vec![Entry::One(Arc::new(agent))])
    }

    /// All agents that are there now; the default comes first.
    pub fn all(&self) -> Vec<Arc<ServedAgent>> {
        let mut all: Vec<Arc<ServedAgent>> = Vec::new();
        for entry in self.entries.load().iter() {
            match entry {
                Entry::One(agent) => all.push(agent.clone()),
                Entry::Apps(apps) => all.extend(apps.agents()),
            }
        }
        all
    }

    pub fn find(&self, id: &str) -> Option<Arc<ServedAgent>> {
        self.entries.load().iter().find_map(|entry| match entry {
            Entry::One(agent) => (agent.id == id).then(|| agent.clone()),
            Entry::Apps(apps) => apps.agents().into_iter().find(|agent| agent.id == id),
        })
    }

    /// The agent of chats that name none: the first of the first entry. Another entry never takes its place, because a chat
    /// keeps the agent that it began with.
    pub fn default_agent(&self) -> Result<Arc<ServedAgent>, NoAgent> {
        match self.entries.load().first() {
            Some(Entry::One(agent)) => Ok(agent.clone()),
            Some(Entry::Apps(apps)) => apps.first(),
            None => Err(NoAgent::Empty {
                name: "this bridge".to_owned(),
            }),
        }
    }

    /// Finds an agent that may have come since the last look.
    pub async fn find_or_look(&self, id: &str) -> Option<Arc<ServedAgent>> {
        if let Some(found) = self.find(id) {
            return Some(found);
        }
        self.look().await;
        self.find(id)
    }

    /// Why an agent may only seem not to be there: a server that cannot be reached may have it.
    pub fn may_be_away(&self, id: &str) -> Result<(), NoAgent> {
        let sources = self.sources();
        let mut away = sources.iter().filter(|apps| !apps.is_reachable());
        match away.find(|apps| apps.may_have(id)) {
            None => Ok(()),
            Some(apps) => Err(NoAgent::Unreachable {
                name: apps.name().to_owned(),
            }),
        }
    }

    /// The default, which may have come since the last look.
    pub async fn default_or_look(&self) -> Result<Arc<ServedAgent>, NoAgent> {
        if let Ok(found) = self.default_agent() {
            return Ok(found);
        }
        self.look().await;
        self.default_agent()
    }

    /// Looks which apps are there, unless that was done a moment ago.
    pub async fn look(&self) {
        let sources = self.sources();
        let looks = sources.iter().map(|apps| apps.look());
        if join_all(looks).await.contains(&true) {
            self.news.store(true, Ordering::Relaxed);
            self.come.notify_waiters();
        }
    }

    /// What was found so far is nothing new.
    fn forget_news(&self) {
        self.news.store(false, Ordering::Relaxed);
    }

    /// Looks after this time, or when another look has found agents. Says whether any have come since the last call.
    pub(crate) async fn have_come(&self, wait: Duration) -> bool {
        if timeout(wait, self.come.notified()).await.is_err() {
            self.look().await;
        }
        self.news.swap(false, Ordering::Relaxed)
    }

    /// When the next look is due; never if no entry finds its agents by itself.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        self.sources().iter().map(|apps| apps.next_look()).min()
    }

    /// The entries whose servers could not be reached at the last look, by name.
    pub fn unreachable(&self) -> Vec<String> {
        let entries = self.entries.load();
        let away = entries.iter().filter_map(|entry| match entry {
            Entry::One(agent) => (agent.presence() == Presence::Away).then(|| agent.id()),
            Entry::Apps(apps) => (!apps.is_reachable()).then(|| apps.name()),
        });
        away.map(str::to_owned).collect()
    }

    /// The agents whose servers did not have their apps at the last look, by id.
    pub fn missing_apps(&self) -> Vec<String> {
        let named = self.named();
        let missing = (named.iter()).filter(|agent| agent.presence() == Presence::Missing);
        missing.map(|agent| agent.id.clone()).collect()
    }

    /// Looks once whether the apps that the configuration names are there.
    async fn look_at_named(&self) {
        join_all(self.watched().iter().map(|agent| agent.look())).await;
    }

    /// The agents whose servers are to be looked at again and again.
    pub(crate) fn watched(&self) -> Vec<Arc<ServedAgent>> {
        let mut named = self.named();
        named.retain(|agent| agent.is_watched());
        named
    }

    /// The agents that the bridge has no token for, by id.
    pub async fn without_token(&self) -> Vec<String> {
        let all = self.all();
        let checks = all
            .iter()
            .map(|agent| timeout(CHECK_TIME, agent.agent.check()));
        let checks = join_all(checks).await;
        let failed = all
            .iter()
            .zip(checks)
            .filter(|(_, check)| !matches!(check, Ok(Ok(()))));
        failed.map(|(agent, _)| agent.id.clone()).collect()
    }

    /// Notes the own token of a user, for the agents that are asked with it.
    pub(crate) fn note_tokens(&self, identity: &Identity) {
        self.each_with_user_tokens(|tokens| {
            tokens.note(&identity.user, identity.token(), identity.token_headers());
        });
    }

    /// Forgets the own token of a user.
    pub(crate) fn forget_tokens(&self, user: &UserId) {
        self.each_with_user_tokens(|tokens| tokens.forget(user));
    }

    /// Those headers of a request that have tokens for agents.
    pub(crate) fn token_headers(&self, headers: &HeaderMap) -> HeaderMap {
        let mut found = HeaderMap::new();
        self.each_with_user_tokens(|tokens| {
            if let Some(name) = tokens.brought_by()
                && let Some(value) = headers.get(name)
            {
                let mut value = value.clone();
                value.set_sensitive(true);
                found.insert(name.clone(), value);
            }
        });
        found
    }

    fn each_with_user_tokens(&self, mut visit: impl FnMut(&Tokens)) {
        let mut visit = |agent: &ServedAgent| {
            if let Some(tokens) = agent.agent.user_tokens() {
                visit(tokens);
            }
        };
        for entry in self.entries.load().iter() {
            match entry {
                Entry::One(agent) => visit(agent),
                Entry::Apps(apps) => apps.agents().iter().for_each(|agent| visit(agent)),
            }
        }
    }

    /// The sources of tools that are not available, by name.
    pub fn without_tools(&self) -> Vec<String> {
        let all = self.all();
        let names = all.iter().flat_map(|agent| agent.tools.unavailable());
        let names: BTreeSet<String> = names.collect();
        names.into_iter().collect()
    }

    /// Why entries whose agents are found by themselves have none, or not all, for the person who starts the server.
    pub fn notes(&self) -> Vec<String> {
        self.sources()
            .iter()
            .filter_map(|apps| apps.note())
            .collect()
    }

    /// How many files one turn keeps open at most.
    pub fn descriptors_per_turn(&self) -> usize {
        let entries = self.entries.load();
        let all = entries.iter().map(|entry| match entry {
            Entry::One(agent) => agent.agent.info().descriptors_per_turn,
            Entry::Apps(_) => apps::DESCRIPTORS_PER_TURN,
        });
        all.max().unwrap_or(1)
    }

    /// What front ends learn about all agents.
    pub async fn summaries(&self) -> Vec<AgentSummary> {
        self.look().await;
        let default = self.default_agent().ok();
        let all = self.all();
        let is_default =
            |agent: &Arc<ServedAgent>| default.as_ref().is_some_and(|it| it.id == agent.id);
        join_all(all.iter().map(|agent| agent.summary(is_default(agent)))).await
    }

    /// What front ends learn about one agent.
    pub async fn summary(&self, agent: &ServedAgent) -> AgentSummary {
        let is_default = self.default_agent().is_ok_and(|it| it.id == agent.id);
        agent.summary(is_default).await
    }

    fn named(&self) -> Vec<Arc<ServedAgent>> {
        let entries = self.entries.load();
        let named = entries.iter().filter_map(|entry| match entry {
            Entry::One(agent) => Some(agent.clone()),
            Entry::Apps(_) => None,
        });
        named.collect()
    }

    fn sources(&self) -> Vec<Arc<Apps>> {
        let entries = self.entries.load();
        let sources = entries.iter().filter_map(|entry| match entry {
            Entry::One(_) => None,
            Entry::Apps(apps) => Some(apps.clone()),
        });
        sources.collect()
    }
}

/// See [`ServedAgent::nobody`].
struct Nobody;

impl Agent for Nobody {
    fn info(&self) -> AgentInfo {
        AgentInfo::new("none")
    }

    fn memory(&self) -> MemoryModel {
        MemoryModel::Stateless
    }

    fn start(&self, _request: AgentRequest<'_>) -> Starting {
        let refusal = AgentError::rejected("the agent of this chat is not known", "");
        Box::pin(std::future::ready(Err(refusal)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stands_in_a_url_as_it_is() {
        for id in ["a", "weather", "my-app_2.0~x", &"a".repeat(MAX_AGENT_ID)] {
            assert!(is_agent_id(id), "{id}");
        }
        let long = "a".repeat(MAX_AGENT_ID + 1);
        for id in [
            "", ".", "..", "a b", "a/b", "a%20b", "é", "a?b", "a#b", &long,
        ] {
            assert!(!is_agent_id(id), "{id}");
        }
    }
}
