//! What a configuration must hold beyond the types of its values.

use std::collections::BTreeMap;

use axum::http::Uri;

use super::{Agent, AgentKind, Config, ConfigError, SPEECH_BYTES_PER_SECOND};

/// A shorter key can be guessed.
const MIN_KEY_BYTES: usize = 16;

impl Config {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let bad = |key, problem: &str| {
            Err(ConfigError::Value {
                key,
                problem: problem.to_owned(),
            })
        };
        if !self.server.listen.ip().is_loopback() && self.auth.api_keys.is_empty() {
            return bad(
                "server.listen",
                "without auth.api_keys only a loopback address may be bound; set a key, or listen on 127.0.0.1",
            );
        }
        let mut keys = BTreeMap::new();
        for key in &self.auth.api_keys {
            if key.key.len() < MIN_KEY_BYTES {
                return bad("auth.api_keys", "a key must have at least 16 characters");
            }
            if key.user.is_empty() || keys.insert(&key.key, &key.user).is_some() {
                return bad(
                    "auth.api_keys",
                    "every key needs a user, and no key may occur twice",
                );
            }
        }
        if !self.server.allowed_origins.iter().all(|it| is_origin(it)) {
            return bad(
                "server.allowed_origins",
                "write each as browsers send it, such as \"http://localhost:3000\", without a slash at the end",
            );
        }
        for (key, limit) in [
            ("server.max_body_bytes", self.server.max_body_bytes),
            ("server.max_answer_bytes", self.server.max_answer_bytes),
        ] {
            if limit == 0 {
                return bad(key, "it must be more than 0");
            }
        }
        for (key, span) in [
            ("approval.timeout", self.approval.timeout),
            ("tools.timeout", self.tools.timeout),
            ("tools.client_timeout", self.tools.client_timeout),
            ("live.heartbeat", self.live.heartbeat),
        ] {
            if span.0.is_zero() {
                return bad(key, "it must be longer than nothing");
            }
        }
        if self.agent.model.is_empty() {
            return bad("agent.model", "name a model, or leave the key out");
        }
        if !is_http(self.agent.base_url()) {
            return bad(
                "agent.base_url",
                "write an address that begins with http:// or https://",
            );
        }
        if self.live.max_audio_bytes_per_second < SPEECH_BYTES_PER_SECOND {
            return bad(
                "live.max_audio_bytes_per_second",
                "speech itself has 32000 bytes a second",
            );
        }
        if self.live.max_video_bytes_per_second == 0 {
            return bad("live.max_video_bytes_per_second", "it must be more than 0");
        }
        if self.agent.max_steps == 0 {
            return bad("agent.max_steps", "at least one step is needed");
        }
        for tool in &self.agent.client_tools {
            if !is_tool_name(&tool.name) {
                return bad(
                    "agent.client_tools.name",
                    "a tool's name is made of letters, digits, '_', '-' and '.', at most 64 of them",
                );
            }
            if !tool.input_schema.is_object() {
                return bad(
                    "agent.client_tools.input_schema",
                    "a schema is a table, such as { type = \"object\" }",
                );
            }
        }
        let key = std::env::var(&self.agent.api_key_env).unwrap_or_default();
        if self.agent.kind == AgentKind::Gemini && key.trim().is_empty() {
            return bad(
                "agent.api_key_env",
                "the environment variable that it names is not set, or empty; put the model's API key there",
            );
        }
        if self.agent.kind == AgentKind::Adk {
            return self.agent.check_adk();
        }
        Ok(())
    }
}

impl Agent {
    /// What an ADK server's agent has of its own cannot be set here.
    fn check_adk(&self) -> Result<(), ConfigError> {
        let (key, problem) = if self.app.as_deref().is_none_or(str::is_empty) {
            (
                "agent.app",
                "name the app of the ADK server; GET /list-apps there lists them",
            )
        } else if !self.client_tools.is_empty() {
            (
                "agent.client_tools",
                "an ADK agent has its own: make it a LongRunningFunctionTool there, and the front end runs it",
            )
        } else if self.tools.is_some() {
            ("agent.tools", "an ADK agent has its own tools")
        } else if self.instruction.is_some() {
            ("agent.instruction", "an ADK agent has its own instruction")
        } else {
            return Ok(());
        };
        Err(ConfigError::Value {
            key,
            problem: problem.to_owned(),
        })
    }
}

fn is_tool_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// Whether a browser could send this: a scheme and a host, and nothing behind them.
pub(super) fn is_origin(text: &str) -> bool {
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '*', ' ']);
    let named = text.split_once("://");
    let whole = named.is_some_and(|(scheme, host)| !scheme.is_empty() && is_host(host));
    // A page without a place, such as a file, has this one.
    (whole || text == "null") && text == text.to_ascii_lowercase()
}

fn is_http(text: &str) -> bool {
    let begins = text.starts_with("http://") || text.starts_with("https://");
    begins
        && text
            .parse::<Uri>()
            .is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()))
}
