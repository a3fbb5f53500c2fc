//! Configuration: a TOML file, then environment variables `ADK_BRIDGE__SECTION__KEY`, then the command line.

mod check;
mod span;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::Figment;
use figment::providers::{Env, Format as _, Serialized, Toml};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use span::Span;

/// Everything that can be set. Unknown keys are refused by name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub server: Server,
    pub auth: Auth,
    pub agent: Agent,
    pub approval: Approval,
    pub tools: Tools,
    pub live: Live,
    pub demo: Demo,
    pub store: Store,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    pub listen: SocketAddr,
    pub data_dir: PathBuf,
    /// Origins of pages that may use the bridge beside its own, exactly as browsers send them.
    pub allowed_origins: Vec<String>,
    pub max_body_bytes: usize,
    pub max_answer_bytes: usize,
    /// How many WebSockets one user may have open.
    pub max_sockets: usize,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// Without any, only a loopback address may be bound.
    pub api_keys: Vec<ApiKey>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKey {
    pub key: String,
    pub user: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    #[default]
    Demo,
    Gemini,
    Adk,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agent {
    pub kind: AgentKind,
    pub model: String,
    /// The model that is spoken with.
    pub live_model: String,
    /// Google's where the agent is Gemini, this machine's where it is an ADK server, unless it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The app of an ADK server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// Added to every request to an ADK server.
    pub headers: Headers,
    /// The environment variable that holds the key, so that the file holds none.
    pub api_key_env: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// The demo's tools to offer; all of them where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    pub max_steps: u32,
    pub client_tools: Vec<ClientTool>,
}

/// Names and values, of which the values may be secret.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Headers(BTreeMap<String, String>);

/// A tool of the front end's own: told to the model, run by the front end.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientTool {
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default = "any_object")]
    pub input_schema: Value,
    /// What an answer looks like, told to front ends that ask their users for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    #[serde(default)]
    pub approval: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Approval {
    /// Tools that need approval beside those that say so themselves.
    pub tools: Vec<String>,
    pub timeout: Span,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tools {
    pub timeout: Span,
    pub client_timeout: Span,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Live {
    pub keep_recordings: bool,
    /// How often the client of a WebSocket is asked for a sign of life.
    pub heartbeat: Span,
    /// How fast one connection may send speech, and pictures.
    pub max_audio_bytes_per_second: usize,
    pub max_video_bytes_per_second: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Demo {
    /// Between two pieces of the scripted model's answer.
    pub pace: Span,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// `sqlite:PATH`; `adk-bridge.db` in the data directory where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// What the command line sets.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub listen: Option<SocketAddr>,
    pub data_dir: Option<PathBuf>,
    pub agent: Option<AgentKind>,
}

/// Why the configuration cannot be used; the message names the key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{0} is no file; name a configuration file that is there")]
    Missing(PathBuf),
    #[error(transparent)]
    Bad(Box<figment::Error>),
    #[error("{key}: {problem}")]
    Value { key: &'static str, problem: String },
}

impl Config {
    /// Reads the configuration; a file that was asked for must exist.
    pub fn load(file: Option<&Path>, overrides: &Overrides) -> Result<Self, ConfigError> {
        let mut figment = Figment::from(Serialized::defaults(Self::default()));
        if let Some(file) = file {
            if !file.is_file() {
                return Err(ConfigError::Missing(file.to_owned()));
            }
            figment = figment.merge(Toml::file_exact(file));
        }
        figment = figment.merge(Env::prefixed("ADK_BRIDGE__").split("__"));
        let mut config: Self = figment.extract().map_err(without_secrets)?;
        if let Some(listen) = overrides.listen {
            config.server.listen = listen;
        }
        if let Some(data_dir) = &overrides.data_dir {
            config.server.data_dir.clone_from(data_dir);
        }
        if let Some(kind) = overrides.agent {
            config.agent.kind = kind;
        }
        config.check()?;
        Ok(config)
    }
}

impl Agent {
    pub fn base_url(&self) -> &str {
        match (&self.base_url, self.kind) {
            (Some(url), _) => url,
            (None, AgentKind::Adk) => LOCAL_ADK,
            (None, AgentKind::Demo | AgentKind::Gemini) => GOOGLE,
        }
    }
}

impl Headers {
    pub fn pairs(&self) -> Vec<(String, String)> {
        let pairs = self.0.iter();
        pairs
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// Where Google serves its models.
const GOOGLE: &str = "https://generativelanguage.googleapis.com";
/// Where `adk api_server` and `adk web` listen by themselves.
const LOCAL_ADK: &str = "http://127.0.0.1:8000";

/// An error quotes the value that is wrong; below `auth` and in headers that may be a secret.
fn without_secrets(error: figment::Error) -> ConfigError {
    if error.path.iter().any(|key| key == "headers") {
        return ConfigError::Value {
            key: "agent.headers",
            problem: "write { NAME = \"value\" }, with text for every value".to_owned(),
        };
    }
    if error.path.first().is_some_and(|section| section == "auth") {
        return ConfigError::Value {
            key: "auth.api_keys",
            problem: "write a list of { key = \"…\", user = \"…\" }, and nothing else in [auth]"
                .to_owned(),
        };
    }
    ConfigError::Bad(Box::new(error))
}

/// 16-bit samples at 16 kHz.
const SPEECH_BYTES_PER_SECOND: usize = 32_000;

fn any_object() -> Value {
    serde_json::json!({"type": "object"})
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            data_dir: PathBuf::from("./data"),
            allowed_origins: Vec::new(),
            // A few photographs as data URLs.
            max_body_bytes: 32 * 1024 * 1024,
            max_answer_bytes: 16 * 1024 * 1024,
            // A person has a few tabs; a program with one key may serve many people.
            max_sockets: 1000,
        }
    }
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            kind: AgentKind::Demo,
            model: "gemini-2.5-flash".into(),
            live_model: "gemini-2.5-flash-native-audio-preview-12-2025".into(),
            base_url: None,
            app: None,
            headers: Headers::default(),
            api_key_env: "GEMINI_API_KEY".into(),
            instruction: None,
            tools: None,
            max_steps: 25,
            client_tools: Vec::new(),
        }
    }
}

impl Default for Approval {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            timeout: Span(Duration::from_secs(5 * 60)),
        }
    }
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            timeout: Span(Duration::from_secs(60)),
            client_timeout: Span(Duration::from_secs(2 * 60)),
        }
    }
}

impl Default for Live {
    fn default() -> Self {
        Self {
            keep_recordings: true,
            // Proxies commonly close after a minute of silence.
            heartbeat: Span(Duration::from_secs(20)),
            // Four times as fast as anybody speaks: a client may catch up.
            max_audio_bytes_per_second: 4 * SPEECH_BYTES_PER_SECOND,
            // Models look at one picture a second, and a large one has as many bytes.
            max_video_bytes_per_second: 1_000_000,
        }
    }
}

impl Default for Demo {
    fn default() -> Self {
        Self {
            pace: Span(Duration::from_millis(30)),
        }
    }
}

/// A value is never printed.
impl std::fmt::Debug for Headers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

/// A key is never printed.
impl std::fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ApiKey")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::check::is_origin;
    use super::*;

    #[test]
    fn bad_values_are_named() {
        let cases = [
            ("[server]\nlisten = \"0.0.0.0:80\"", "server.listen"),
            ("[server]\nlistn = \"127.0.0.1:80\"", "listn"),
            ("[approval]\ntimeout = \"soon\"", "approval.timeout"),
            ("[agent]\nmax_steps = 0", "agent.max_steps"),
            ("[agent]\nkind = \"oracle\"", "agent.kind"),
            ("[agent]\nbase_url = \"localhost:8000\"", "agent.base_url"),
            (
                "[[auth.api_keys]]\nkey = \"short\"\nuser = \"a\"",
                "auth.api_keys",
            ),
            (
                "[[agent.client_tools]]\nname = \"no spaces\"",
                "client_tools",
            ),
            ("[agent]\nkind = \"adk\"", "agent.app"),
            (
                "[agent]\nkind = \"adk\"\napp = \"a\"\ninstruction = \"b\"",
                "agent.instruction",
            ),
            (
                "[agent]\nkind = \"adk\"\napp = \"a\"\ntools = []",
                "agent.tools",
            ),
            (
                "[agent]\nkind = \"adk\"\napp = \"a\"\n[[agent.client_tools]]\nname = \"b\"",
                "agent.client_tools",
            ),
            ("[agent]\nheaders = { a = 1 }", "agent.headers"),
            (
                "[server]\nallowed_origins = [\"*\"]",
                "server.allowed_origins",
            ),
            (
                "[server]\nallowed_origins = [\"localhost:3000\"]",
                "server.allowed_origins",
            ),
            (
                "[server]\nallowed_origins = [\"http://a.example/\"]",
                "server.allowed_origins",
            ),
            (
                "[server]\nallowed_origins = [\"http://A.example\"]",
                "server.allowed_origins",
            ),
            ("[server]\nmax_body_bytes = 0", "server.max_body_bytes"),
            ("[server]\nmax_answer_bytes = 0", "server.max_answer_bytes"),
            ("[approval]\ntimeout = \"0s\"", "approval.timeout"),
            ("[tools]\ntimeout = \"0s\"", "tools.timeout"),
            ("[tools]\nclient_timeout = \"0s\"", "tools.client_timeout"),
            ("[agent]\nmodel = \"\"", "agent.model"),
            ("[agent]\nbase_url = \"localhost:8000\"", "agent.base_url"),
            ("[agent]\nbase_url = \"not an address\"", "agent.base_url"),
            (
                "[[agent.client_tools]]\nname = \"a\"\ninput_schema = \"b\"",
                "agent.client_tools.input_schema",
            ),
        ];
        for (toml, key) in cases {
            let figment =
                Figment::from(Serialized::defaults(Config::default())).merge(Toml::string(toml));
            let error = match figment.extract::<Config>() {
                Ok(config) => config.check().unwrap_err().to_string(),
                Err(error) => without_secrets(error).to_string(),
            };
            assert!(error.contains(key), "{toml}: {error}");
        }
    }

    #[test]
    fn origins_are_what_browsers_send() {
        for origin in ["http://localhost:3000", "https://app.example", "null"] {
            assert!(is_origin(origin), "{origin}");
        }
        for origin in [
            "http://localhost:3000/",
            "https://app.example/chat",
            "https://App.example",
            "app.example",
            "https://*.example",
            "*",
            "",
        ] {
            assert!(!is_origin(origin), "{origin}");
        }
    }

    const EXAMPLE: &str = include_str!("../../../adk-bridge.example.toml");

    #[test]
    fn the_example_holds_the_defaults() {
        let figment = Figment::from(Serialized::defaults(Config::default()));
        let read = |figment: &Figment| -> Value {
            let config: Config = figment.extract().unwrap();
            config.check().unwrap();
            serde_json::to_value(config).unwrap()
        };
        let defaults = read(&figment);
        assert_eq!(read(&figment.merge(Toml::string(EXAMPLE))), defaults);
    }

    #[test]
    fn the_example_names_every_key() {
        // Keys that are not set are not written, so they are set here.
        let mut config = Config::default();
        config.agent.instruction = Some(String::new());
        config.agent.tools = Some(Vec::new());
        config.agent.base_url = Some(String::new());
        config.agent.app = Some(String::new());
        config.store.url = Some(String::new());
        let tool = ClientTool {
            name: String::new(),
            description: String::new(),
            input_schema: Value::Null,
            output_schema: Some(Value::Null),
            approval: true,
        };
        let mut wanted: Vec<String> = Vec::new();
        let keys_of = |value: &Value| -> Vec<String> {
            let keys = value.as_object().unwrap().keys();
            keys.map(|key| format!("{key} = ")).collect()
        };
        let sections = serde_json::to_value(&config).unwrap();
        for (section, keys) in sections.as_object().unwrap() {
            wanted.push(format!("[{section}]"));
            wanted.extend(keys_of(keys));
        }
        wanted.extend(keys_of(&serde_json::to_value(tool).unwrap()));
        for begin in wanted {
            let is_there = EXAMPLE
                .lines()
                .any(|line| line.trim_start_matches("# ").starts_with(&begin));
            assert!(is_there, "adk-bridge.example.toml lacks {begin:?}");
        }
    }
}
