//! The rules for a configuration that go beyond the types of its values.

use adk_bridge_agents::tool::is_tool_name;
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderName, Uri};
use serde_json::Value;

use super::{
    ADK_STREAM_PROTOCOL, Agent, Config, ConfigError, EARLY_ADK_STREAM_PROTOCOL,
    SPEECH_BYTES_PER_SECOND,
};
use crate::agent_list::{MAX_AGENT_ID, is_agent_id};
use crate::budget::LOADED_COPIES;

impl Config {
    /// Refuses an address that other machines can reach if no credentials are required.
    pub(crate) fn check_address(&self, requires_credentials: bool) -> Result<(), ConfigError> {
        if self.server.listen.ip().is_loopback() || requires_credentials {
            return Ok(());
        }
        Err(ConfigError::Value {
            key: "server.listen",
            problem: "without auth.api_keys, auth.oidc or auth.proxy only a loopback address may be bound; set one, or listen on 127.0.0.1".to_owned(),
        })
    }

    /// Refuses values that no server can use.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        ConfigError::all(self.problems())
    }

    /// The same for a server with a store of its own, which knows what a cluster needs.
    pub(crate) fn check_with_own_store(&self) -> Result<(), ConfigError> {
        ConfigError::all(self.problems_beside_cluster())
    }

    /// Everything that no server can use. Values that only one kind of agent needs are checked by that kind.
    pub(crate) fn problems(&self) -> Vec<ConfigError> {
        let mut problems = self.problems_beside_cluster();
        problems.extend(super::cluster::check(self));
        problems
    }

    fn problems_beside_cluster(&self) -> Vec<ConfigError> {
        let mut problems = Vec::new();
        let mut bad = |key, problem: &str| problems.push(ConfigError::value(key, problem));
        if !self.server.allowed_origins.iter().all(|it| is_origin(it)) {
            bad(
                "server.allowed_origins",
                "write each as browsers send it, such as \"http://localhost:3000\", without a slash at the end; \"null\" cannot be allowed",
            );
        }
        if !self.server.allowed_hosts.iter().all(|it| is_host(it)) {
            bad(
                "server.allowed_hosts",
                "write each name as it appears in a URL, such as \"chat.example.org\", without scheme, port or slash",
            );
        }
        let known = [ADK_STREAM_PROTOCOL, EARLY_ADK_STREAM_PROTOCOL];
        let compat = &self.server.compat;
        if compat.len() > 1 || !compat.iter().all(|it| known.contains(&it.as_str())) {
            bad(
                "server.compat",
                "list \"adk-stream-protocol\", or \"adk-stream-protocol:adk\" for its versions before 28 December 2025",
            );
        }
        let public = self.server.public_url.as_deref();
        if public.is_some_and(|url| !is_http(url) || !is_origin(url.trim_end_matches('/'))) {
            bad(
                "server.public_url",
                "write where browsers reach the bridge, such as \"https://chat.example.com\", without a path",
            );
        }
        for (key, limit) in [
            ("server.max_body_bytes", self.server.max_body_bytes),
            ("server.max_json_bytes", self.server.max_json_bytes),
            ("server.max_answer_bytes", self.server.max_answer_bytes),
            ("limits.unfinished_bytes", self.limits.unfinished_bytes),
            (
                "limits.unfinished_bytes_per_user",
                self.limits.unfinished_bytes_per_user,
            ),
            ("limits.unread_bytes", self.limits.unread_bytes),
            (
                "limits.unread_bytes_per_user",
                self.limits.unread_bytes_per_user,
            ),
            ("limits.chat_bytes", self.limits.chat_bytes),
            ("limits.loaded_bytes", self.limits.loaded_bytes),
            (
                "limits.loaded_bytes_per_user",
                self.limits.loaded_bytes_per_user,
            ),
            ("limits.files_per_request", self.limits.files_per_request),
        ] {
            if limit == 0 {
                bad(key, "must be greater than 0");
            }
        }
        if self.limits.chat_bytes.saturating_mul(LOADED_COPIES) > self.limits.loaded_bytes {
            bad(
                "limits.loaded_bytes",
                "must be at least three times limits.chat_bytes, or a long chat could not be answered",
            );
        }
        for (key, span) in [
            ("approval.timeout", self.approval.timeout),
            ("tools.timeout", self.tools.timeout),
            ("tools.client_timeout", self.tools.client_timeout),
            ("live.heartbeat", self.live.heartbeat),
            ("limits.write_stall", self.limits.write_stall),
            ("limits.body_time", self.limits.body_time),
        ] {
            if span.0.is_zero() {
                bad(key, "must be greater than 0s");
            }
        }
        for (key, positive) in self.limits.positive() {
            if !positive {
                bad(key, "must be greater than 0");
            }
        }
        if self.live.max_audio_bytes_per_second < SPEECH_BYTES_PER_SECOND {
            bad(
                "live.max_audio_bytes_per_second",
                "must be at least 32000, the data rate of speech",
            );
        }
        if self.live.max_video_bytes_per_second == 0 {
            bad("live.max_video_bytes_per_second", "must be greater than 0");
        }
        problems.extend(self.files.check());
        problems.extend(self.store.check());
        problems.extend(self.auth.check(&self.server));
        problems.extend(self.audit.check());
        problems.extend(self.retention.check());
        problems.extend(self.budget.check(self.agent_ids().as_deref()));
        problems.extend(super::mcp::check(&self.tools));
        problems.extend(self.check_agents());
        problems.extend(self.check_user_tokens());
        problems
    }

    /// The ids of all agents, unless some are only known when the agents are there.
    fn agent_ids(&self) -> Option<Vec<&str>> {
        let agents = self.each_agent().iter();
        agents
            .map(|agent| agent.id.as_deref().filter(|_| agent.apps.is_none()))
            .collect()
    }

    /// The bridge's own keys are no tokens of users, and are sent to no agent.
    fn check_user_tokens(&self) -> Vec<ConfigError> {
        let holds_keys = |header: &HeaderName| {
            header == AUTHORIZATION
                || header.as_str() == "x-api-key" && self.server.original_dialect().is_some()
        };
        // What proves who a user is here would prove it elsewhere in the bridge's name.
        let proxy = self.auth.proxy.as_ref().and_then(|it| it.header().ok());
        let logs_in = |header: &HeaderName| header == COOKIE || proxy.as_ref() == Some(header);
        let agents = self.each_agent().iter();
        let headers: Vec<HeaderName> = agents
            .filter_map(|agent| agent.token.as_ref()?.from())
            .collect();
        let mut problems = Vec::new();
        let mut bad = |problem: &str| problems.push(ConfigError::value("agent.token", problem));
        if headers.iter().any(logs_in) {
            bad(
                "this header holds what logs users in to the bridge, which no agent may get; name another one with from",
            );
        }
        if !self.auth.api_keys.is_empty() && headers.iter().any(holds_keys) {
            bad(
                "this header holds the keys of auth.api_keys, which no agent may get; have users' tokens sent in another one, \
                 and name it with from",
            );
        }
        problems
    }

    /// Ids are checked again when the agents are there: some have their own.
    fn check_agents(&self) -> Vec<ConfigError> {
        let [_, ..] = self.agents.as_slice() else {
            return check_agent(&self.agent);
        };
        let mut problems = Vec::new();
        let mut ids = std::collections::HashSet::new();
        let mut unnamed = 0;
        for agent in &self.agents {
            let problem = |problem: String| ConfigError::OfAgent {
                id: agent.own_id().to_owned(),
                problem,
            };
            problems.extend(check_agent(agent).into_iter().map(|error| {
                let text = error.to_string();
                problem(text.strip_prefix("agent.").unwrap_or(&text).to_owned())
            }));
            match (&agent.id, &agent.apps) {
                (Some(id), _) if !ids.insert(id) => {
                    problems.push(ConfigError::TwoAgents { id: id.clone() });
                }
                (Some(_), _) => {}
                (None, Some(_)) => unnamed += 1,
                (None, None) => {
                    let say = "id: every entry of [[agents]] has one; it stands in URLs and in every chat";
                    problems.push(problem(say.to_owned()));
                }
            }
            if unnamed > 1 {
                let say = "id: two servers with apps = \"*\" may have apps of the same name; give each an id, which the \
                           ids of their agents begin with";
                problems.push(problem(say.to_owned()));
            }
        }
        problems
    }
}

/// Refuses an id that could not stand in a URL.
pub fn check_id(id: &str) -> Result<(), ConfigError> {
    if is_agent_id(id) {
        return Ok(());
    }
    let problem = format!(
        "{id:?} cannot stand in a URL; write an id of letters, digits, '-', '_', '.' and '~', at most {MAX_AGENT_ID} of them"
    );
    Err(ConfigError::value("agent.id", problem))
}

/// What every kind of agent needs.
pub(super) fn check_agent(agent: &Agent) -> Vec<ConfigError> {
    let mut problems = Vec::new();
    let mut bad = |key, problem: &str| problems.push(ConfigError::value(key, problem));
    if agent
        .name
        .as_deref()
        .is_some_and(|name| name.trim().is_empty())
    {
        bad("agent.name", "write what users see, or leave the key out");
    }
    match agent.apps.as_deref() {
        None => {}
        Some("*") if agent.kind != "adk" => {
            bad(
                "agent.apps",
                "only kind = \"adk\" has apps; remove this key",
            );
        }
        Some("*") if agent.app.is_some() => {
            bad(
                "agent.apps",
                "name one app, or write apps = \"*\", but not both",
            );
        }
        Some("*") => {}
        Some(_) => {
            bad(
                "agent.apps",
                "write \"*\" for all apps, or name one with app",
            );
        }
    }
    if agent.model.as_deref() == Some("") {
        bad("agent.model", "name a model, or leave the key out");
    }
    if !agent.base_url.as_deref().is_none_or(is_http) {
        bad(
            "agent.base_url",
            "write a URL that starts with http:// or https://",
        );
    }
    if agent.max_steps == 0 {
        bad("agent.max_steps", "at least one step is needed");
    }
    for tool in &agent.client_tools {
        if !is_tool_name(&tool.name) {
            bad(
                "agent.client_tools.name",
                "a tool's name is made of letters, digits, '_', '-' and '.', at most 64 of them, and begins with a letter or '_'",
            );
        }
        if !tool.input_schema.is_object() {
            bad(
                "agent.client_tools.input_schema",
                "a schema is a table, such as { type = \"object\" }",
            );
        }
        if !tool.output_schema.as_ref().is_none_or(Value::is_object) {
            bad(
                "agent.client_tools.output_schema",
                "a schema is a table, such as { type = \"object\" }; leave the key out if there is none",
            );
        }
    }
    problems.extend(agent.id.as_deref().and_then(|id| check_id(id).err()));
    let vertex = agent.vertex.as_ref();
    problems.extend(vertex.map_or_else(Vec::new, |vertex| vertex.check(agent)));
    let token = agent.token.as_ref();
    problems.extend(token.map_or_else(Vec::new, |token| token.check(agent)));
    problems.extend(agent.state.check());
    problems
}

/// Whether a browser could send this as an origin: a scheme and a host, and nothing after them.
pub(super) fn is_origin(text: &str) -> bool {
    let is_place = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '*', ' ']);
    let named = text.split_once("://");
    // Every page without an address has the origin "null": to allow it is to allow all of them.
    named.is_some_and(|(scheme, host)| !scheme.is_empty() && is_place(host))
        && text == text.to_ascii_lowercase()
}

/// A name or an address, and nothing else; IPv6 without brackets.
fn is_host(text: &str) -> bool {
    let is_name = !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    is_name || text.parse::<std::net::IpAddr>().is_ok()
}

pub(super) fn is_http(text: &str) -> bool {
    let begins = text.starts_with("http://") || text.starts_with("https://");
    begins
        && text
            .parse::<Uri>()
            .is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()))
}
