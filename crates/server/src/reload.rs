//! A new configuration in a running server: keys, limits, agents and origins change, and no connection is dropped.
//!
//! ```text
//!   SIGHUP ──▶ read and check ──▶ make the agents that are new ──▶ everything is replaced
//!                    └─────────────────────┴── what is wrong is logged, and nothing changes
//! ```
//!
//! What has begun ends as it began. What only a start can change is named, and stays as it is.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use adk_bridge_agents::tool::{ServerTool, ToolSpec};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::agent_kinds::AgentKinds;
use crate::agent_list::{Agents, Assembly, made_of, redrafts};
use crate::auth::{RunningWays, Ways};
use crate::config::{Config, Current, Limits, Live, Server, Tools};
use crate::connections::Bounds;
use crate::mcp::McpServers;
use crate::retention::CurrentAges;
use crate::secrets;
use crate::server::{self, AgentWatch, StartError};
use crate::transport::App;

/// What agents are made with.
#[derive(Clone)]
pub(crate) struct Makers {
    pub(crate) kinds: Arc<AgentKinds>,
    pub(crate) tools: Vec<Arc<dyn ServerTool>>,
    pub(crate) client_tools: Vec<ToolSpec>,
    pub(crate) mcp: Arc<McpServers>,
    pub(crate) directory: PathBuf,
}

/// Gives a running server another configuration.
pub struct Reloader {
    pub(crate) app: App,
    /// Missing if the program has its own login.
    pub(crate) login: Option<RunningWays>,
    /// Missing if the program has its own agents.
    pub(crate) makers: Option<Makers>,
    pub(crate) bounds: Arc<Current<Bounds>>,
    pub(crate) watch: std::sync::Mutex<AgentWatch>,
    pub(crate) retention: Arc<CurrentAges>,
    /// The configuration that counts, as it was given.
    pub(crate) current: Mutex<Config>,
}

/// What another configuration has changed. It names keys and agents, never values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reloaded {
    pub changed: Vec<String>,
    /// Keys that only a start can change.
    pub needs_restart: Vec<String>,
}

impl Reloader {
    /// Takes over what can change while the server runs. After an error everything is as it was.
    pub async fn reload(&self, new: Config) -> Result<Reloaded, StartError> {
        let mut current = self.current.lock().await;
        // Errors may quote what is new.
        secrets::keep(&new);
        let mut effective = effective(&current, &new, self.makers.is_some());
        let login = self.login(&effective)?;
        if login.is_none() {
            effective.auth = current.auth.clone();
        }
        let agents = self.agents(&current, &effective).await?;

        let has_new_agents = agents.is_some();
        let reloaded = Reloaded {
            changed: changed(&current, &effective),
            needs_restart: different_keys(&effective, &new),
        };
        if let Some(agents) = agents {
            self.app.chats().shared().agents.replace_by(&agents);
        }
        if let Some((login, other)) = login {
            login.replace(other, &effective);
        }
        self.apply(&effective);
        *current = effective;
        self.app.chats().note_budgets();
        if has_new_agents {
            self.follow_agents().await;
        }
        Ok(reloaded)
    }

    /// The ways to log in of a new configuration, if they can replace those that there are.
    fn login(&self, new: &Config) -> Result<Option<(&RunningWays, Ways)>, StartError> {
        let Some(login) = &self.login else {
            return Ok(None);
        };
        // Providers send users back to the address of before.
        if !new.auth.check(&new.server).is_empty() {
            return Ok(None);
        }
        let other = login.others(new)?;
        other.count(&self.app.chats().shared().metrics);
        // With the first key, and with the last one gone, other clients may come, and from elsewhere.
        let is_same = other.requires_credentials() == login.authenticator().requires_credentials();
        Ok(is_same.then_some((login, other)))
    }

    /// The agents of a configuration, if they are others than before. Those that would be made of the same stay.
    async fn agents(&self, old: &Config, new: &Config) -> Result<Option<Agents>, StartError> {
        let Some(makers) = self.makers.clone() else {
            return Ok(None);
        };
        let sources = |config: &Config| -> Vec<String> {
            let agents = config.each_agent().iter();
            agents.map(|agent| made_of(config, agent)).collect()
        };
        let before = sources(old);
        if before == sources(new) {
            return Ok(None);
        }
        let entries = self.app.chats().shared().agents.entries();
        let before: Vec<_> = before.into_iter().zip(entries).collect();
        let drafts = redrafts(&makers.kinds, new, &before).await?;
        let assembly = Assembly::new(new.clone(), makers);
        Ok(Some(assembly.agents(drafts).await?))
    }

    fn apply(&self, config: &Config) {
        let (app, shared) = (&self.app, self.app.chats().shared());
        let requires_credentials = app.access().requires_credentials();
        let shares = server::shares(config, shared.agents.descriptors_per_turn());
        let bounds = server::bounds(config, requires_credentials, shares);
        let limits = &config.limits;
        app.access().allow(config);
        app.intake().limit(limits);
        app.unread()
            .limit(limits.unread_bytes, limits.unread_bytes_per_user);
        let sockets = server::sockets_per_user(config.server.max_sockets, bounds);
        app.sockets().limit(sockets);
        self.bounds.set(bounds);
        self.retention.set(config.retention);
        shared.users.hold_for(config);
        shared.files.limit(server::quota(config));
        shared.spending.follow(&config.budget);
        shared.settings.set(server::chat_settings(config));
        shared.capacity.loaded.limit(limits);
        let allowed = server::allowed(config, requires_credentials, shares.turns);
        shared.capacity.admission.limit(allowed);
        let mut config = config.clone();
        // The real port, if the system has chosen it.
        config.server.listen = app.config().server.listen;
        app.set_config(config);
    }

    /// Looks after the agents that there are now, and goes on with what waited for those that have come.
    async fn follow_agents(&self) {
        let chats = self.app.chats();
        let watch = AgentWatch::begin(chats);
        // Poisoning is ignored: the value is only replaced.
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = watch;
        if let Err(error) = chats.boot().await {
            tracing::warn!(%error, "the chats of agents that have come cannot be continued yet");
        }
    }
}

/// The new configuration, as far as a running server can take it over. Every section is named, so that somebody decides about
/// a new one. docs/configuration.md says what this does.
fn effective(old: &Config, new: &Config, takes_agents: bool) -> Config {
    let agents = if takes_agents { new } else { old };
    Config {
        server: Server {
            allowed_origins: new.server.allowed_origins.clone(),
            allowed_hosts: new.server.allowed_hosts.clone(),
            max_sockets: new.server.max_sockets,
            ..old.server.clone()
        },
        auth: new.auth.clone(),
        tls: old.tls.clone(),
        agent: agents.agent.clone(),
        agents: agents.agents.clone(),
        approval: agents.approval.clone(),
        tools: Tools {
            timeout: new.tools.timeout,
            client_timeout: agents.tools.client_timeout,
            mcp: old.tools.mcp.clone(),
        },
        live: Live {
            keep_recordings: new.live.keep_recordings,
            ..old.live.clone()
        },
        demo: agents.demo.clone(),
        store: old.store.clone(),
        cluster: old.cluster.clone(),
        files: old.files.clone(),
        audit: old.audit.clone(),
        retention: new.retention,
        budget: new.budget.clone(),
        limits: Limits {
            write_stall: old.limits.write_stall,
            body_time: old.limits.body_time,
            agent_silence: agents.limits.agent_silence,
            ..new.limits.clone()
        },
        log: old.log,
        telemetry: old.telemetry,
    }
}

/// Whether a running server takes over what differs between two configurations, for the reference.
#[cfg(test)]
pub(crate) fn is_taken_over(old: &Config, new: &Config) -> bool {
    assert_ne!(different_keys(old, new), Vec::<String>::new());
    different_keys(&effective(old, new, true), new).is_empty()
}

/// What a configuration changes, for the log.
fn changed(old: &Config, new: &Config) -> Vec<String> {
    let mut changed = different_keys(old, new);
    changed.retain(|key| !key.starts_with("agent"));
    let sources = |config: &Config| -> Vec<(String, String)> {
        let agents = config.each_agent().iter();
        agents
            .map(|agent| (agent.own_id().to_owned(), made_of(config, agent)))
            .collect()
    };
    let (old, new) = (sources(old), sources(new));
    for (id, source) in &new {
        match old.iter().find(|(known, _)| known == id) {
            None => changed.push(format!("agent {id} added")),
            Some((_, before)) if before != source => changed.push(format!("agent {id} changed")),
            Some(_) => {}
        }
    }
    for (id, _) in &old {
        if !new.iter().any(|(known, _)| known == id) {
            changed.push(format!("agent {id} removed"));
        }
    }
    if old.first().map(|(id, _)| id) != new.first().map(|(id, _)| id) {
        changed.push("the default agent".to_owned());
    }
    changed
}

/// The keys whose values differ.
fn different_keys(one: &Config, other: &Config) -> Vec<String> {
    let (one, other) = (value_of(one), value_of(other));
    let mut keys = Vec::new();
    for section in names(&one, &other) {
        let (a, b) = (&one[&section], &other[&section]);
        if !a.is_object() && !b.is_object() {
            keys.extend((a != b).then_some(section));
            continue;
        }
        let different = names(a, b).into_iter().filter(|key| a[key] != b[key]);
        keys.extend(different.map(|key| format!("{section}.{key}")));
    }
    keys
}

fn names(one: &Value, other: &Value) -> BTreeSet<String> {
    let both = [one, other].into_iter().filter_map(Value::as_object);
    both.flat_map(|object| object.keys().cloned()).collect()
}

fn value_of(config: &Config) -> Value {
    // Every value came from text.
    serde_json::to_value(config).unwrap_or_default()
}

impl fmt::Display for Reloaded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.changed.as_slice() {
            [] => formatter.write_str("nothing has changed"),
            changed => write!(formatter, "changed: {}", changed.join(", ")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use figment::Figment;
    use figment::providers::{Format as _, Serialized, Toml};

    use super::*;

    fn config(toml: &str) -> Config {
        let defaults = Figment::from(Serialized::defaults(Config::default()));
        defaults.merge(Toml::string(toml)).extract().unwrap()
    }

    #[test]
    fn what_changes_is_named_and_never_shown() {
        let old = config(
            "[auth]\napi_keys = [{ key = \"PLANTED-0123456789\", user = \"a\" }]\n\
             [[agents]]\nid = \"one\"\n[[agents]]\nid = \"two\"",
        );
        let new = config(
            "[auth]\napi_keys = [{ key = \"PLANTED-9876543210\", user = \"a\" }]\n[limits]\nturns = 3\n\
             [[agents]]\nid = \"two\"\ninstruction = \"PLANTED\"\n[[agents]]\nid = \"three\"",
        );
        assert_eq!(changed(&old, &old), Vec::<String>::new());
        let said = changed(&old, &new);
        for part in [
            "auth.api_keys",
            "limits.turns",
            "agent three added",
            "agent two changed",
            "agent one removed",
            "the default agent",
        ] {
            assert!(said.iter().any(|it| it == part), "{part} in {said:?}");
        }
        assert_eq!(said.len(), 6, "{said:?}");
        assert!(!said.join(" ").contains("PLANTED"));
    }

    #[test]
    fn what_nothing_takes_over_needs_a_restart() {
        let old = config("");
        let new = config(
            "[auth.login]\nidle = \"1h\"\n[retention]\nchats = \"90d\"\n[audit]\nkey_env = \"A\"\n[log]\nformat = \"json\"\n\
             [telemetry]\ncontent = true\n[agent]\nid = \"a\"\n[demo]\npace = \"1s\"\n[limits]\nturns = 3\nagent_silence = \"1m\"",
        );
        let left = |takes_agents| different_keys(&effective(&old, &new, takes_agents), &new);
        let always = ["audit.key_env", "log.format", "telemetry.content"];
        assert_eq!(left(true), always);
        // The agents of a program are what it made them.
        let agents = left(false);
        let more = ["agent.id", "demo.pace", "limits.agent_silence"];
        assert_eq!(agents.len(), always.len() + more.len(), "{agents:?}");
        assert!(
            more.iter().all(|key| agents.iter().any(|it| it == key)),
            "{agents:?}"
        );
    }
}
