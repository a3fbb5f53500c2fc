//! `apps = "*"`: one agent for each app that an ADK server lists, looked for again while the server runs.
//!
//! A server that cannot be reached keeps the agents that it had: they are still there when it comes back. Only a list
//! that was read takes an app away.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adk_bridge_agents::adk_server::AdkServer;
use adk_bridge_agents::error::{AgentError, shortened};
use tokio::time::{Instant, timeout};

use super::{Assembly, NoAgent, ServedAgent, is_agent_id};
use crate::config;

/// How long a look may take: a start and a request wait for it.
pub(crate) const LOOK_TIME: Duration = Duration::from_secs(2);
/// How often a server that answers is looked at: apps come and go with deployments.
pub(super) const REFRESH: Duration = Duration::from_secs(30);
/// How often a server that does not answer is looked at: it may be starting.
pub(super) const RETRY: Duration = Duration::from_secs(2);
/// How long a look is good for a request that looks for what is not there; otherwise such requests would be passed on.
const FRESH: Duration = Duration::from_millis(500);
/// How many apps of one server become agents; a longer list is cut, and that is said.
const MAX_APPS: usize = 200;
/// How many apps of a list are named where people read it: a list may be a megabyte of them.
pub(super) const MAX_NAMED: usize = 8;
/// Artifacts are fetched while the run continues.
pub(super) const DESCRIPTORS_PER_TURN: usize = 2;

/// The apps of one ADK server.
pub(crate) struct Apps {
    /// What the entry is called where people read it.
    name: String,
    /// What the ids of its agents begin with, if it is not nothing.
    prefix: Option<String>,
    settings: config::Agent,
    /// Ids that other entries have.
    taken: HashSet<String>,
    server: AdkServer,
    assembly: Arc<Assembly>,
    /// Held while the server is looked at, with the end of the last look.
    looked: tokio::sync::Mutex<Option<Instant>>,
    found: Mutex<Found>,
}

/// What the last look has brought.
#[derive(Default)]
struct Found {
    agents: Vec<Arc<ServedAgent>>,
    is_reachable: bool,
    /// Why some apps are no agents, or there are none.
    note: Option<String>,
}

impl Apps {
    pub(super) fn new(
        settings: config::Agent,
        taken: HashSet<String>,
        server: AdkServer,
        assembly: Arc<Assembly>,
    ) -> Self {
        let prefix = settings.id.clone();
        Self {
            name: settings.own_id().to_owned(),
            prefix,
            settings,
            taken,
            server,
            assembly,
            looked: tokio::sync::Mutex::default(),
            found: Mutex::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether an app of this server could have this id.
    pub(super) fn may_have(&self, id: &str) -> bool {
        match &self.prefix {
            Some(prefix) => id
                .strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.starts_with('.')),
            None => !self.taken.contains(id),
        }
    }

    pub(super) fn agents(&self) -> Vec<Arc<ServedAgent>> {
        self.lock().agents.clone()
    }

    pub(super) fn is_reachable(&self) -> bool {
        self.lock().is_reachable
    }

    pub(super) fn note(&self) -> Option<String> {
        self.lock().note.clone()
    }

    pub(super) fn first(&self) -> Result<Arc<ServedAgent>, NoAgent> {
        let found = self.lock();
        found.agents.first().cloned().ok_or_else(|| {
            let name = self.name.clone();
            match found.is_reachable {
                true => NoAgent::Empty { name },
                false => NoAgent::Unreachable { name },
            }
        })
    }

    pub(super) fn next_look(&self) -> Duration {
        match self.is_reachable() {
            true => REFRESH,
            false => RETRY,
        }
    }

    /// Looks at the server, unless that was done a moment ago. Says whether agents have come.
    pub(super) async fn look(&self) -> bool {
        let mut looked = self.looked.lock().await;
        if looked.is_some_and(|at| at.elapsed() < FRESH) {
            return false;
        }
        let listed = timeout(LOOK_TIME, self.server.list_apps()).await;
        let has_new = match listed {
            Ok(Ok(apps)) => self.take(apps).await,
            Ok(Err(error)) => self.lost(Some(&error)),
            Err(_) => self.lost(None),
        };
        *looked = Some(Instant::now());
        has_new
    }

    /// Takes the server's list.
    async fn take(&self, apps: Vec<String>) -> bool {
        let before = self.agents();
        let (mut agents, mut left_out) = (Vec::new(), Vec::new());
        let mut ids = self.taken.clone();
        let is_cut = apps.len() > MAX_APPS;
        for app in apps.into_iter().take(MAX_APPS) {
            let id = match &self.prefix {
                Some(prefix) => format!("{prefix}.{app}"),
                None => app.clone(),
            };
            if let Some(known) = before.iter().find(|agent| agent.id() == id) {
                if ids.insert(id) {
                    agents.push(known.clone());
                }
                continue;
            }
            // An app whose name is a path of dots would be looked for elsewhere.
            let problem = if !is_agent_id(&id) || !is_agent_id(&app) {
                "its id could not stand in a URL".to_owned()
            } else if !ids.insert(id.clone()) {
                "another agent has its id".to_owned()
            } else {
                match self.assembly.app(&self.settings, &id, &app).await {
                    Ok(agent) => {
                        agents.push(Arc::new(agent));
                        continue;
                    }
                    Err(error) => error.to_string(),
                }
            };
            left_out.push(format!("{:?} ({problem})", shortened(&app)));
        }
        let unnamed = left_out.len().saturating_sub(MAX_NAMED);
        left_out.truncate(MAX_NAMED);
        if unnamed > 0 {
            left_out.push(format!("{unnamed} more"));
        }
        if is_cut {
            left_out.push(format!("all after the first {MAX_APPS}"));
        }
        let name = &self.name;
        let note = if !left_out.is_empty() {
            Some(format!(
                "{name}: these apps are left out: {}",
                left_out.join(", ")
            ))
        } else if agents.is_empty() {
            Some(format!(
                "{name}: the ADK server at {} has no apps",
                self.server.url()
            ))
        } else {
            None
        };
        let has = |all: &[Arc<ServedAgent>], id: &str| all.iter().any(|agent| agent.id() == id);
        for agent in agents.iter().filter(|agent| !has(&before, agent.id())) {
            tracing::info!(agent = agent.id(), "the agent {} is there", agent.id());
        }
        for agent in before.iter().filter(|agent| !has(&agents, agent.id())) {
            tracing::warn!(
                agent = agent.id(),
                "the agent {} is gone: the ADK server does not list its app any more",
                agent.id()
            );
        }
        let has_new = agents.iter().any(|agent| !has(&before, agent.id()));
        let mut found = self.lock();
        if note != found.note
            && let Some(note) = &note
        {
            tracing::warn!("{note}");
        }
        *found = Found {
            agents,
            is_reachable: true,
            note,
        };
        has_new
    }

    /// The server did not answer, or without a list.
    fn lost(&self, error: Option<&AgentError>) -> bool {
        let (name, url) = (&self.name, self.server.url());
        let note = match error {
            Some(error) => format!(
                "{name}: the apps of the ADK server at {url} cannot be listed ({}); it is asked again",
                error.kind()
            ),
            None => format!("{name}: the ADK server at {url} does not answer; it is asked again"),
        };
        let mut found = self.lock();
        if found.note.as_ref() != Some(&note) {
            let detail = error.map(AgentError::detail).unwrap_or_default();
            tracing::warn!(detail, "{note}");
        }
        found.is_reachable = false;
        found.note = Some(note);
        false
    }

    /// Poisoning is ignored: no critical section can leave the list inconsistent.
    fn lock(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
