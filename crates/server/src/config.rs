//! Configuration: a TOML file, then environment variables `ADK_BRIDGE__SECTION__KEY`, then the command line.

mod audit;
mod auth;
mod budget;
mod check;
mod cluster;
mod current;
mod files;
mod limits;
mod list;
mod log;
mod mcp;
mod reading;
#[cfg(test)]
mod reference;
mod retention;
mod session_state;
mod span;
mod store;
mod store_requests;
mod tls;
mod token;
mod vertex;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use adk_bridge_protocol::dialect::Dialect;
use figment::Figment;
use figment::error::Kind;
use figment::providers::{Env, Format as _, Serialized, Toml};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use audit::Audit;
pub use auth::{ApiKey, Auth, Login, Oidc, Proxy, RoleNames};
pub use budget::{AgentBudget, Budget, DayBegins, Offset, Price};
pub use check::check_id;
pub use cluster::Cluster;
pub use current::Current;
pub use files::{Files, FilesPlace, Provider};
pub use limits::Limits;
pub use log::{Log, LogFormat, Telemetry};
pub use mcp::{Mcp, McpApproval};
pub use retention::Retention;
pub use session_state::SessionState;
pub use span::Span;
pub use store::Store;
pub use store_requests::StoreRequests;
pub use tls::Tls;
pub use token::{Token, TokenKind};
pub use vertex::Vertex;

pub(crate) use reading::Reading;

/// Everything that can be set. Unknown keys are refused by name.
///
/// What is said of sections and keys here is what docs/configuration.md says.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub server: Server,
    pub auth: Auth,
    pub tls: Tls,
    pub agent: Agent,
    /// Several agents, instead of `[agent]`: each has an id and any keys of `[agent]`. The first is the default. A chat
    /// belongs to the agent of its first message; requests name one with `agent`, and `GET /api/agents` lists them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<Agent>,
    pub approval: Approval,
    pub tools: Tools,
    pub live: Live,
    pub demo: Demo,
    pub store: Store,
    pub cluster: Cluster,
    pub files: Files,
    pub audit: Audit,
    pub retention: Retention,
    pub budget: Budget,
    pub limits: Limits,
    pub log: Log,
    pub telemetry: Telemetry,
}

/// Where the bridge listens, from which pages it may be used, and how large things may be.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// The address to listen on; port 0 picks one. An address that other machines can reach requires a way to log in
    /// (`[auth]`).
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// The directory in which chats and files are stored. Only one server can use it at a time.
    #[schemars(with = "String")]
    pub data_dir: PathBuf,
    /// Origins of pages that may use the bridge in addition to its own, exactly as browsers send them:
    /// `"http://localhost:3000"`.
    #[serde(deserialize_with = "list::words")]
    pub allowed_origins: Vec<String>,
    /// Host names of the bridge in addition to `localhost`, without a port, if a proxy forwards the `Host` of its clients:
    /// `"chat.example.org"`. If the bridge listens on an address that other machines can reach, an empty list allows every
    /// name.
    #[serde(deserialize_with = "list::words")]
    pub allowed_hosts: Vec<String>,
    /// Front ends of other systems that are served unchanged. `"adk-stream-protocol"` adds its paths (`POST /stream` and
    /// `POST /clear-sessions`, which deletes all chats of its user), its header `X-API-Key`, and what its requests leave out;
    /// `"adk-stream-protocol:adk"` is the same for its versions before 28 December 2025.
    #[serde(deserialize_with = "list::words")]
    pub compat: Vec<String>,
    /// The origin at which browsers reach the bridge, such as `"https://chat.example.com"`, if it cannot be derived from their
    /// requests: URLs of files start with it. If it is not set they start with the origin of the request, and are relative for
    /// the bridge's own page. Logins with the page need it, unless the bridge listens on a loopback address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// The largest request, and the largest file.
    #[schemars(range(min = 1))]
    pub max_body_bytes: usize,
    /// The largest JSON request, and the largest WebSocket frame: three photographs as data URLs. Upload larger files. Never
    /// more than `server.max_body_bytes`.
    #[schemars(range(min = 1))]
    pub max_json_bytes: usize,
    /// The longest answer; a longer one ends with the finish reason `length`.
    #[schemars(range(min = 1))]
    pub max_answer_bytes: usize,
    /// How many WebSockets one user may have open. Fewer if `limits.connections` allows fewer: at most three quarters of what
    /// one user may have in use; the log says so at the start.
    pub max_sockets: usize,
    /// The address at which other replicas of a cluster reach this one, such as `"http://10.0.0.5:8080"`. By default that of
    /// `server.listen`, if it is one of this machine; a replica on another machine needs it. Only with PostgreSQL
    /// (`store.url`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
    /// How long answers may go on when a replica of a cluster is asked to stop. The others are taken over by another replica.
    /// Without PostgreSQL (`store.url`) it has no effect.
    pub drain: Span,
}

/// Who answers; for several agents see `[[agents]]`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Agent {
    /// Names the agent in requests and chats; by default its app, or its kind. Letters, digits, `-`, `_`, `.` and `~`. A chat
    /// keeps the id of its agent, so keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What users see; by default what the agent calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the agent is. Programs built on the bridge may add kinds.
    ///
    /// - `"demo"`: a scripted model inside the process, which needs no key. It needs the cargo feature of that name, which is
    ///   on by default.
    /// - `"gemini"`: Google's models.
    /// - `"openai"`: OpenAI's models, or any other behind the same interface, such as a local one of llama.cpp, Ollama, vLLM
    ///   or LM Studio.
    /// - `"adk"`: an agent of an ADK server.
    /// - `"agent-engine"`: an ADK agent in Google's Agent Engine. It needs `base_url`, and gets a Google access token unless
    ///   `token` is set.
    pub kind: String,
    /// The model. By default the newest of Google's fast models; `kind = "openai"` has no default: write the name that its
    /// server has for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The model for voice conversations over `/live`.
    pub live_model: String,
    /// A model that behaves as the live model does, such as `"gemini-2.5-flash-live"`, if the name of the live model is
    /// misleading, such as a proxy's alias. Live models of different generations take different messages, and the generation
    /// is read from the name: 2.x, 3.0 to 3.7, 3.8 and newer, or extended thinking. Other names are treated as the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_acts_like: Option<String>,
    /// Whether Google may store requests and answers of `kind = "gemini"`. New paid projects store them for weeks unless a
    /// request forbids it, so `false` does. `true` allows it; `"project"` says nothing, and the setting of the project decides,
    /// which servers that do not know the field need, such as a proxy of Vertex AI. The same for `kind = "openai"`, where other
    /// servers than OpenAI's are only sent a `true`.
    pub store_requests: StoreRequests,
    /// The URL of the agent, or of the model.
    ///
    /// - `kind = "gemini"`: without `/v1beta` and what follows it; by default Google's.
    /// - `kind = "openai"`: without `/chat/completions`; by default `https://api.openai.com/v1`. Local models:
    ///   `http://127.0.0.1:8080/v1` (llama.cpp), `http://127.0.0.1:11434/v1` (Ollama), `http://127.0.0.1:8000/v1` (vLLM),
    ///   `http://127.0.0.1:1234/v1` (LM Studio).
    /// - `kind = "adk"`: without `/run_sse`; by default `http://127.0.0.1:8000`. The `/api` of servers in Go is found.
    /// - `kind = "agent-engine"`: without `:query`, as in
    ///   `https://LOCATION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/LOCATION/reasoningEngines/ID`, or the
    ///   address of a container that `adk deploy agent_engine` made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// For `kind = "gemini"`: the model of a project in Vertex AI, instead of a key. A Google access token is sent unless
    /// `token` is set, and `base_url` is derived from the location. `store_requests` has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vertex: Option<Vertex>,
    /// For `kind = "adk"`: the name of the app on the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// For `kind = "adk"`, instead of `app`: `"*"` makes every app of the server an agent, including those that are added
    /// later. Their ids are the names of the apps, or `ID.APP` if there is an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apps: Option<String>,
    /// For `kind = "adk"`, `"agent-engine"` and `"openai"`: headers of every request to the server, such as
    /// `{ authorization = "Bearer …" }`.
    pub headers: Headers,
    /// A token that expires, sent as `Bearer …` with every request to the agent, and renewed before it ends. For
    /// `kind = "adk"`, `"agent-engine"` and `"openai"`, and for `"gemini"` with `vertex`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// The environment variable that holds the model's API key. By default `GEMINI_API_KEY` for `kind = "gemini"`. For
    /// `kind = "openai"` it is `OPENAI_API_KEY` with OpenAI's own `base_url`; other servers are sent a key only if this names its
    /// variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The system instruction of the model; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// Which of the registered tools the model gets: the demo's, those of MCP servers (`[[tools.mcp]]`), and those that a
    /// program built on the bridge adds. By default those of all MCP servers; of the demo's tools, `kind = "demo"` gets all, and
    /// `kind = "gemini"` and `"openai"` none, so that no real model gets a fake payment tool. `NAME__*` stands for all tools of
    /// an MCP server.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "list::some_words"
    )]
    pub tools: Option<Vec<String>>,
    /// How many model calls one answer may take.
    #[schemars(range(min = 1))]
    pub max_steps: u32,
    /// Tools that are declared to the model and run by the front end. For tools that it does not
    /// implement, the bridge's own page asks the user for the output, with a form if `output_schema` describes it.
    pub client_tools: Vec<ClientTool>,
    /// Tools of this agent that need approval, in addition to `approval.tools`.
    #[serde(deserialize_with = "list::words")]
    pub approval_tools: Vec<String>,
    /// `approval.may_ask` for this agent; by default that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_ask: Option<bool>,
    /// For `kind = "adk"` and `"agent-engine"`: what the session of every chat begins with, for instructions such as
    /// `You help {user_name}`. In its texts, `{user}` is the user of the request, as `[auth]` knows it, and `{claims.NAME}` a claim
    /// about the user (`auth.api_keys`); a key whose claim the user does not have is left out. `{{` and `}}` are braces. Front
    /// ends cannot change these keys. A key that begins with `user:` is kept for the user across chats. For example
    /// `{ user_name = "{user}", mail = "{claims.email}", locale = "en" }`.
    pub state: SessionState,
}

/// Names and values; the values may be secret.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Headers(BTreeMap<String, String>);

/// A tool of the front end: described to the model, run by the front end.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientTool {
    /// The name that the model calls: letters, digits, `_`, `-` and `.`, at most 64 of them, beginning with a letter or `_`.
    pub name: String,
    /// What the tool does, for the model.
    #[serde(default)]
    pub description: String,
    /// The JSON schema of its arguments, such as
    /// `{ type = "object", properties = { item = { type = "string" } }, required = ["item"] }`.
    #[serde(default = "any_object")]
    #[schemars(extend("type" = "object"))]
    pub input_schema: Value,
    /// The JSON schema of an answer, for front ends that ask their users for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = "object"))]
    pub output_schema: Option<Value>,
    /// Whether the user is asked before it runs.
    #[serde(default)]
    pub approval: bool,
}

/// Which tools ask before they run, and how long they wait.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Approval {
    /// Tools that need approval in addition to those that declare it. With `kind = "adk"`: tools that must not run without
    /// approval. For client tools the bridge asks; for the others the ADK server must ask (`require_confirmation`), and if it
    /// runs one without asking, the answer ends with an error. With several agents: those of any of them.
    #[serde(deserialize_with = "list::words")]
    pub tools: Vec<String>,
    /// How long an approval waits for an answer.
    #[schemars(extend("x-at-least" = "1ms"))]
    pub timeout: Span,
    /// For `kind = "adk"`: whether its tools may ask for confirmation, which the server does not report. If none of them does,
    /// `false` lets answers stream word by word in the dialects that withhold them until the last answer. For front ends that
    /// read `held`, it also says that no tool waits for them (long-running ones).
    pub may_ask: bool,
}

/// How long tools may take, and those of MCP servers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tools {
    /// How long a tool may run on the server, not counting the time in which its MCP server asks the user.
    #[schemars(extend("x-at-least" = "1ms"))]
    pub timeout: Span,
    /// How long the front end may take to run a tool.
    #[schemars(extend("x-at-least" = "1ms"))]
    pub client_timeout: Span,
    /// MCP servers, whose tools agents of kind `demo`, `gemini` and `openai` are offered as `NAME__TOOL`, unless `agent.tools`
    /// lists others. A server that ends is started again; `GET /ready` lists those that are not available.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<Mcp>,
}

/// Voice conversations, and WebSockets.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Live {
    /// Whether voice conversations are stored as audio files.
    pub keep_recordings: bool,
    /// How often the client of a WebSocket is pinged; it is closed after three pings without a response.
    #[schemars(extend("x-at-least" = "1ms"))]
    pub heartbeat: Span,
    /// How fast one connection may send speech, with bursts of half a minute. Speech is 32000 bytes a second.
    #[schemars(range(min = 32000))]
    pub max_audio_bytes_per_second: usize,
    /// How fast one connection may send pictures, with bursts of half a minute.
    #[schemars(range(min = 1))]
    pub max_video_bytes_per_second: usize,
}

/// The scripted model of `kind = "demo"`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Demo {
    /// The time between two pieces of the scripted model's answer.
    pub pace: Span,
}

/// Values from the command line.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub listen: Option<SocketAddr>,
    pub data_dir: Option<PathBuf>,
    pub agent: Option<String>,
}

/// Why the configuration cannot be used; the message names the key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{0} is not a file; name a configuration file that exists")]
    Missing(PathBuf),
    #[error("{file}: {problem}")]
    Syntax { file: String, problem: String },
    #[error(transparent)]
    Bad(Box<figment::Error>),
    #[error("{key}: {problem}")]
    Value { key: &'static str, problem: String },
    #[error("agents {id:?}: {problem}")]
    OfAgent { id: String, problem: String },
    #[error("agents: two agents have the id {id:?}; give each its own")]
    TwoAgents { id: String },
    #[error(
        "[agent] and [[agents]] are both set; make [agent] an entry of [[agents]], or leave one of them out \
         (ADK_BRIDGE__AGENT__… and --agent count as [agent])"
    )]
    BothForms,
    #[error("tools.mcp {name:?}: {problem}")]
    OfMcp { name: String, problem: String },
    #[error("tools.mcp: two servers have the name {name:?}; give each its own")]
    TwoMcp { name: String },
    #[error("{section}: this is a section and has no value; write its keys below [{section}]")]
    Section { section: String },
    #[error("{} problems:{}", .0.len(), listed(.0))]
    Several(Vec<Self>),
}

fn listed(problems: &[ConfigError]) -> String {
    let lines = problems.iter().map(|problem| format!("\n  {problem}"));
    lines.collect()
}

impl ConfigError {
    /// A value that is not allowed, and what to write instead.
    pub fn value(key: &'static str, problem: impl Into<String>) -> Self {
        Self::Value {
            key,
            problem: problem.into(),
        }
    }

    /// All problems as one, if there are any.
    pub fn all(mut problems: Vec<Self>) -> Result<(), Self> {
        match problems.len() {
            0 => Ok(()),
            1 => Err(problems.remove(0)),
            _ => Err(Self::Several(problems)),
        }
    }

    /// The key that it is about, with those above it; the text may begin with the last of them. Ids of entries are left out.
    pub(crate) fn key(&self) -> String {
        let (above, problem) = match self {
            Self::Value { key, problem } => (*key, problem.as_str()),
            Self::OfAgent { problem, .. } => ("agents", problem.as_str()),
            Self::TwoAgents { .. } => ("agents", "id: "),
            Self::OfMcp { problem, .. } => ("tools.mcp", problem.as_str()),
            Self::TwoMcp { .. } => ("tools.mcp", "name: "),
            Self::Section { section } => (section.as_str(), ""),
            Self::Missing(_)
            | Self::Syntax { .. }
            | Self::Bad(_)
            | Self::BothForms
            | Self::Several(_) => return String::new(),
        };
        let is_key = |text: &str| {
            let is_part = |byte: u8| byte.is_ascii_lowercase() || b"_.".contains(&byte);
            !text.is_empty() && text.bytes().all(is_part)
        };
        match problem.split_once(": ") {
            Some((key, _)) if is_key(key) => format!("{above}.{key}"),
            _ => above.to_owned(),
        }
    }

    /// Each problem on its own.
    pub fn each(self) -> Vec<Self> {
        match self {
            Self::Several(problems) => problems,
            one => vec![one],
        }
    }
}

impl Config {
    /// Reads the configuration; a file that was asked for must exist.
    pub fn load(file: Option<&Path>, overrides: &Overrides) -> Result<Self, ConfigError> {
        let (config, problems) = Self::read(file, overrides);
        ConfigError::all(problems)?;
        Ok(config)
    }

    /// Reads the text of a configuration file, without the environment.
    pub(crate) fn read_text(toml: &str) -> (Self, Vec<ConfigError>) {
        let defaults = Figment::from(Serialized::defaults(Self::default()));
        let reading = Reading::of(&defaults.merge(Toml::string(toml)));
        reading.with_rules().into_parts()
    }

    /// Reads the configuration as far as that is possible, and says everything that is wrong with it.
    pub fn read(file: Option<&Path>, overrides: &Overrides) -> (Self, Vec<ConfigError>) {
        Self::reading(file, overrides).into_parts()
    }

    /// The same, for callers that have more rules.
    pub(crate) fn reading(file: Option<&Path>, overrides: &Overrides) -> Reading {
        let mut figment = Figment::from(Serialized::defaults(Self::default()));
        if let Some(file) = file {
            if !file.is_file() {
                return Reading::failed(ConfigError::Missing(file.to_owned())).with_rules();
            }
            figment = figment.merge(Toml::file_exact(file));
        }
        figment = figment.merge(Env::prefixed("ADK_BRIDGE__").split("__"));
        let mut reading = Reading::of(&figment);
        let config = &mut reading.config;
        let has_both =
            !config.agents.is_empty() && (is_given(file, "agent") || overrides.agent.is_some());
        if let Some(listen) = overrides.listen {
            config.server.listen = listen;
        }
        if let Some(data_dir) = &overrides.data_dir {
            config.server.data_dir.clone_from(data_dir);
        }
        if let Some(kind) = &overrides.agent {
            config.agent.kind.clone_from(kind);
        }
        if has_both {
            reading.add(ConfigError::BothForms);
        }
        reading.with_rules()
    }
}

/// Whether the file or the environment has this section; the defaults have every one.
fn is_given(file: Option<&Path>, section: &str) -> bool {
    let mut given = Figment::new();
    if let Some(file) = file {
        given = given.merge(Toml::file_exact(file));
    }
    let given = given.merge(Env::prefixed("ADK_BRIDGE__").split("__"));
    given.find_value(section).is_ok()
}

/// Several agents in one configuration.
impl Config {
    /// The settings of all agents; the default comes first.
    pub fn each_agent(&self) -> &[Agent] {
        match self.agents.as_slice() {
            [] => std::slice::from_ref(&self.agent),
            several => several,
        }
    }

    /// Whether there may be more than one agent.
    pub fn has_several_agents(&self) -> bool {
        self.agents.len() > 1 || self.each_agent().iter().any(|agent| agent.apps.is_some())
    }

    /// The configuration as one of its agents sees it. Where there are several, `approval.tools` are those of all of them.
    pub fn of_agent(&self, agent: &Agent) -> Self {
        let mut own = self.clone();
        own.agents.clear();
        own.agent = agent.clone();
        if self.has_several_agents() {
            own.approval.tools.clear();
        }
        let named = agent.approval_tools.iter().cloned();
        own.approval.tools.extend(named);
        own.approval.may_ask = agent.may_ask.unwrap_or(self.approval.may_ask);
        own
    }
}

impl Agent {
    /// Whether nothing is wrong with it, as far as its settings tell.
    pub(crate) fn is_sound(&self) -> bool {
        check::check_agent(self).is_empty()
    }

    /// What it is called where no agent has been made yet.
    pub fn own_id(&self) -> &str {
        let id = self.id.as_deref().or(self.app.as_deref());
        id.unwrap_or(&self.kind)
    }
}

/// The system whose front end can be served with nothing changed but its backend's address.
pub const ADK_STREAM_PROTOCOL: &str = "adk-stream-protocol";

/// The same for its versions before 28 December 2025, which look for approvals in calls of their own.
pub const EARLY_ADK_STREAM_PROTOCOL: &str = "adk-stream-protocol:adk";

impl Server {
    /// The dialect of the front end of adk-stream-protocol, if it is served.
    pub fn original_dialect(&self) -> Option<Dialect> {
        self.compat.iter().find_map(|listed| match listed.as_str() {
            ADK_STREAM_PROTOCOL => Some(Dialect::Held),
            EARLY_ADK_STREAM_PROTOCOL => Some(Dialect::Adk),
            _ => None,
        })
    }

    /// The largest JSON that is accepted. Reading it costs several times its size, so it may be smaller than a file.
    pub fn max_json(&self) -> usize {
        self.max_json_bytes.min(self.max_body_bytes)
    }
}

impl Headers {
    /// Whether there is a header of this name.
    pub fn has(&self, name: &axum::http::HeaderName) -> bool {
        (self.0.keys()).any(|given| given.eq_ignore_ascii_case(name.as_str()))
    }

    pub fn pairs(&self) -> Vec<(String, String)> {
        let pairs = self.0.iter();
        pairs
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// Removes values that may be secret from an error: those below `auth`, of headers, and in the place of a section. If a
/// file cannot be read at all, the error quotes a line, and any line may hold a secret.
fn without_secrets(error: figment::Error) -> ConfigError {
    if let Kind::Message(text) = &error.kind
        && text.contains('\n')
    {
        let source = error
            .metadata
            .as_ref()
            .and_then(|from| from.source.as_ref());
        let is_quoted = |line: &&str| {
            line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit())
                .starts_with('|')
        };
        let problem: Vec<&str> = text.lines().filter(|line| !is_quoted(line)).collect();
        return ConfigError::Syntax {
            file: source.map_or_else(|| "the configuration".to_owned(), ToString::to_string),
            problem: problem.join("; "),
        };
    }
    if let [tools, mcp, ..] = error.path.as_slice()
        && tools == "tools"
        && mcp == "mcp"
        && (error.path.iter()).any(|key| matches!(key.as_str(), "headers" | "env" | "args"))
    {
        return ConfigError::Value {
            key: "tools.mcp",
            problem: "write args = [\"…\"], env = { NAME = \"value\" } and headers = { NAME = \"value\" }, with text for \
                      every value"
                .to_owned(),
        };
    }
    if error.path.iter().any(|key| key == "headers") {
        return ConfigError::Value {
            key: "agent.headers",
            problem: "write { NAME = \"value\" }, with text for every value".to_owned(),
        };
    }
    if error.path.iter().any(|key| key == "token") {
        return ConfigError::Value {
            key: "agent.token",
            problem: format!(
                "{}write {{ kind = \"google-id-token\" }}, {{ kind = \"google-access-token\" }}, \
                 {{ kind = \"file\", path = \"…\" }} or {{ kind = \"user\", from = \"HEADER\" }}; a token itself goes to agent.headers",
                auth::wrong_key(&error)
            ),
        };
    }
    if let [section, key] = error.path.as_slice()
        && key == "key"
        && matches!(section.as_str(), "audit" | "cluster")
    {
        return ConfigError::Value {
            key: match section.as_str() {
                "audit" => "audit.key",
                _ => "cluster.key",
            },
            problem: "write a text of at least 16 characters".to_owned(),
        };
    }
    if error.path.first().is_some_and(|section| section == "auth") {
        return auth::without_secrets(&error);
    }
    // If the key is forgotten, its value stands in the place of the section, alone or in a list; it may be an address
    // with a password.
    let is_index = |key: &String| key.bytes().all(|byte| byte.is_ascii_digit());
    if let Kind::InvalidType(..) | Kind::InvalidValue(..) = &error.kind
        && let Some((section, keys)) = error.path.split_first()
        && keys.iter().all(is_index)
    {
        return ConfigError::Section {
            section: section.clone(),
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
            allowed_hosts: Vec::new(),
            compat: Vec::new(),
            public_url: None,
            // A long recording, or a book with pictures.
            max_body_bytes: 32 * 1024 * 1024,
            // Three photographs as data URLs, which front ends send again with every message. More is uploaded as
            // files.
            max_json_bytes: 16 * 1024 * 1024,
            max_answer_bytes: 16 * 1024 * 1024,
            // A person has a few tabs; a program with one key may serve many people.
            max_sockets: 1000,
            advertise: None,
            // Most answers end in this time, and service managers commonly wait 30 seconds before they kill.
            drain: Span(Duration::from_secs(20)),
        }
    }
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            id: None,
            name: None,
            kind: "demo".into(),
            model: None,
            live_model: "gemini-3.8-live".into(),
            live_acts_like: None,
            store_requests: StoreRequests::default(),
            base_url: None,
            vertex: None,
            app: None,
            apps: None,
            headers: Headers::default(),
            token: None,
            api_key_env: None,
            instruction: None,
            tools: None,
            max_steps: 25,
            client_tools: Vec::new(),
            approval_tools: Vec::new(),
            may_ask: None,
            state: SessionState::default(),
        }
    }
}

impl Default for Approval {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            timeout: Span(Duration::from_secs(5 * 60)),
            may_ask: true,
        }
    }
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            timeout: Span(Duration::from_secs(60)),
            client_timeout: Span(Duration::from_secs(2 * 60)),
            mcp: Vec::new(),
        }
    }
}

impl Default for Live {
    fn default() -> Self {
        Self {
            keep_recordings: true,
            // Proxies commonly close after a minute of silence.
            heartbeat: Span(Duration::from_secs(20)),
            // Four times the speed of speech, so that a client can catch up.
            max_audio_bytes_per_second: 4 * SPEECH_BYTES_PER_SECOND,
            // Models look at one picture per second, and a large picture has this many bytes.
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

/// Never prints a value.
impl std::fmt::Debug for Headers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::check::is_origin;
    use super::*;

    #[test]
    fn bad_values_are_named() {
        let cases = [
            ("[server]\nlistn = \"127.0.0.1:80\"", "listn"),
            ("[approval]\ntimeout = \"soon\"", "approval.timeout"),
            ("[audit]\nkey = 1234567890123456789", "audit.key"),
            ("[audit]\nkey = \"short\"", "audit.key"),
            (
                "[audit]\nkey_env = \"NO_SUCH_VARIABLE_OF_A_TEST\"",
                "audit.key_env",
            ),
            ("[retention]\nchats = \"0d\"", "retention.chats"),
            ("[retention]\nusage = \"0d\"", "retention.usage"),
            ("[budget]\ntokens_per_day = 0", "budget.tokens_per_day"),
            ("[budget]\ntokens_per_day = -1", "budget.tokens_per_day"),
            (
                "[budget]\ncost_per_day = nan\nprice = { input = 1, output = 1 }",
                "budget.cost_per_day",
            ),
            ("[budget]\ncost_per_day = 1", "budget.cost_per_day"),
            (
                "[budget]\ncost_per_day = 1\n[agent]\nid = \"a\"",
                "the agent \"a\" have no price",
            ),
            (
                "[budget]\nprice = { input = -1, output = 1 }",
                "budget.price",
            ),
            ("[budget]\nprice = { input = 1 }", "budget.price"),
            (
                "[budget]\ncurrency = \"a very long currency\"",
                "budget.currency",
            ),
            ("[budget]\nday_begins = \"midnight\"", "budget.day_begins"),
            (
                "[agent]\nid = \"a\"\n[[budget.agents]]\nid = \"nobody\"",
                "budget.agents.id",
            ),
            (
                "[[budget.agents]]\nid = \"demo\"\ncost_per_day = 1",
                "budget.agents.cost_per_day",
            ),
            (
                "[[budget.agents]]\nid = \"demo\"\n[[budget.agents]]\nid = \"demo\"",
                "two entries",
            ),
            ("[retention]\naudit = 90", "retention.audit"),
            ("[limits]\nmemory_bytes = 0", "limits.memory_bytes"),
            ("[agent]\nmax_steps = 0", "agent.max_steps"),
            ("[agent]\nid = \"a b\"", "agent.id"),
            ("[agent]\nname = \" \"", "agent.name"),
            ("[agent]\napps = \"*\"", "agent.apps"),
            ("[agent]\nkind = \"adk\"\napps = \"some\"", "agent.apps"),
            (
                "[agent]\nkind = \"adk\"\napp = \"a\"\napps = \"*\"",
                "agent.apps",
            ),
            ("[agent]\nbase_url = \"localhost:8000\"", "agent.base_url"),
            (
                "[[auth.api_keys]]\nkey = \"short\"\nuser = \"a\"",
                "auth.api_keys",
            ),
            (
                "[[agent.client_tools]]\nname = \"no spaces\"",
                "client_tools",
            ),
            (
                "[[auth.api_keys]]\nuser = \"a\"",
                "either key or key_sha256",
            ),
            (
                "[[auth.api_keys]]\nkey_sha256 = \"abc\"\nuser = \"a\"",
                "64 hexadecimal digits",
            ),
            (
                "[[auth.api_keys]]\nkey = \"0123456789abcdef\"\nuser = \"a\"\nroles = [\"root\"]",
                "auth.api_keys",
            ),
            (
                "[[auth.oidc]]\nissuer = \"http://login.example.com\"\naudience = \"a\"",
                "auth.oidc: issuer",
            ),
            (
                "[[auth.oidc]]\nissuer = \"https://login.example.com\"",
                "set audience",
            ),
            (
                "[[auth.oidc]]\nissuer = \"https://a.example\"\naudience = [\"\"]\nclient_id = \"a\"",
                "auth.oidc: audience",
            ),
            (
                "[[auth.oidc]]\nissuer = \"https://a.example\"\naudience = \"a\"\nalgorithms = [\"HS256\"]",
                "auth.oidc",
            ),
            (
                "[[auth.oidc]]\nissuer = \"https://a.example\"\naudience = \"a\"\nalgorithms = []",
                "algorithms",
            ),
            (
                "[[auth.oidc]]\nissuer = \"https://a.example\"\naudience = \"a\"\nroles_claim = \"groups\"",
                "roles_claim",
            ),
            (
                "[[auth.oidc]]\nissuer = \"https://a.example\"\naudience = \"a\"\nname = \"proxy\"",
                "\"proxy\" is taken",
            ),
            (
                "[[auth.oidc]]\nissuer = \"https://a.example/x\"\naudience = \"a\"\n\
                 [[auth.oidc]]\nissuer = \"https://a.example/y\"\naudience = \"a\"",
                "two providers have the name",
            ),
            (
                "[server]\nlisten = \"0.0.0.0:80\"\n[[auth.oidc]]\nissuer = \"https://a.example\"\nclient_id = \"a\"",
                "server.public_url",
            ),
            (
                "[server]\npublic_url = \"http://a.example\"\n[[auth.oidc]]\nissuer = \"https://a.example\"\nclient_id = \"a\"",
                "server.public_url",
            ),
            (
                "[auth.proxy]\nheader = \"cookie\"\njwks_url = \"https://a.example\"\naudience = \"a\"",
                "auth.proxy: header",
            ),
            (
                "[auth.proxy]\nheader = \"x-a\"\njwks_url = \"http://a.example\"\naudience = \"a\"",
                "auth.proxy: jwks_url",
            ),
            ("[auth.login]\nidle = \"0s\"", "auth.login.idle"),
            (
                "[agent]\nkind = \"adk\"\ntoken = { kind = \"user\", from = \"cookie\" }",
                "agent.token",
            ),
            ("[agent]\nheaders = { a = 1 }", "agent.headers"),
            ("[agent]\ntoken = { kind = \"magic\" }", "agent.token"),
            (
                "[agent]\nkind = \"gemini\"\nvertex = { project = \"a/b\", location = \"us\" }",
                "agent.vertex",
            ),
            (
                "[agent]\nkind = \"gemini\"\nvertex = { project = \"a\", location = \"\" }",
                "agent.vertex",
            ),
            (
                "[agent]\nkind = \"adk\"\nvertex = { project = \"a\", location = \"us\" }",
                "agent.vertex",
            ),
            (
                "[agent]\nkind = \"gemini\"\ntoken = { kind = \"google-access-token\" }",
                "agent.token",
            ),
            ("[agent]\ntoken = { path = \"a\" }", "agent.token"),
            (
                "[agent]\nkind = \"openai\"\napi_key_env = \"A\"\ntoken = { kind = \"file\", path = \"a\" }",
                "agent.token",
            ),
            (
                "[agent]\nkind = \"adk\"\ntoken = { kind = \"file\" }",
                "agent.token",
            ),
            (
                "[agent]\nkind = \"adk\"\ntoken = { kind = \"google-id-token\", path = \"a\" }",
                "agent.token",
            ),
            (
                "[agent]\nkind = \"adk\"\ntoken = { kind = \"file\", path = \"a\", audience = \"b\" }",
                "only kind = \"google-id-token\"",
            ),
            (
                "[agent]\nkind = \"adk\"\ntoken = { kind = \"google-id-token\", scopes = [\"a\"] }",
                "only kind = \"google-access-token\"",
            ),
            (
                "[agent]\nkind = \"adk\"\ntoken = { kind = \"file\", path = \"a\", header = \"b c\" }",
                "name of a header",
            ),
            (
                "[agent]\nkind = \"adk\"\nheaders = { Authorization = \"a\" }\ntoken = { kind = \"google-id-token\" }",
                "agent.headers",
            ),
            (
                "[agent]\nkind = \"adk\"\nbase_url = \"http://u:p@host\"\ntoken = { kind = \"google-id-token\" }",
                "agent.token: agent.base_url",
            ),
            ("[agent]\ntoken = { kind = \"google-id-token\" }", "demo"),
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
            (
                "[server]\nallowed_origins = [\"null\"]",
                "server.allowed_origins",
            ),
            ("[server]\nallowed_hosts = [\"*\"]", "server.allowed_hosts"),
            (
                "[server]\nallowed_hosts = [\"https://a.example\"]",
                "server.allowed_hosts",
            ),
            (
                "[server]\nallowed_hosts = [\"a.example:443\"]",
                "server.allowed_hosts",
            ),
            (
                "[server]\nallowed_hosts = [\"*.example\"]",
                "server.allowed_hosts",
            ),
            ("[server]\nallowed_hosts = 5", "server.allowed_hosts"),
            ("[server]\nmax_body_bytes = 0", "server.max_body_bytes"),
            ("[server]\nmax_json_bytes = 0", "server.max_json_bytes"),
            ("[server]\nmax_answer_bytes = 0", "server.max_answer_bytes"),
            ("[approval]\ntimeout = \"0s\"", "approval.timeout"),
            ("[limits]\nwrite_stall = \"0s\"", "limits.write_stall"),
            ("[limits]\nbody_time = \"0s\"", "limits.body_time"),
            ("[limits]\nunread_bytes = 0", "limits.unread_bytes"),
            ("[limits]\nchat_bytes = 0", "limits.chat_bytes"),
            ("[limits]\nloaded_bytes = 1000", "limits.loaded_bytes"),
            (
                "[limits]\nfiles_per_request = 0",
                "limits.files_per_request",
            ),
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
    fn no_error_quotes_a_secret() {
        let cases = [
            "[auth]\napi_keys = [{ key = \"PLANTED\", user = alice }]",
            "[auth]\napi_keys = [{ key = \"PLANTED\"\nuser = \"alice\" }]",
            "[auth]\napi_keys = \"PLANTED\"",
            "[agent]\nheaders = { authorization = \"Bearer PLANTED }",
            "[agent]\nheaders = \"PLANTED\"",
            "[agent]\ntoken = \"PLANTED\"",
            "[agent]\ntoken = { kind = \"PLANTED\" }",
            "[agent]\ntoken = { PLANTED = \"file\" }",
            "[[auth.api_keys]]\nPLANTED = \"alice\"",
            "[[auth.api_keys]]\nplanted_secret_in_small_letters = \"alice\"",
            "[[auth.oidc]]\nclient_secret = { PLANTED = 5 }",
            "[[auth.oidc]]\nissuer = \"a\"\nroles = { PLANTED = 5 }",
            "[store]\nurl = \"postgres://user:PLANTED@host/",
            "store = \"postgres://user:PLANTED@host/\"",
            "agent = \"http://user:PLANTED@host/\"",
            "limits = [\"PLANTED\"]",
        ];
        for toml in cases {
            let figment = Figment::from(Serialized::defaults(Config::default()));
            let error = figment.merge(Toml::string(toml)).extract::<Config>();
            let said = without_secrets(error.unwrap_err()).to_string();
            assert!(!said.to_uppercase().contains("PLANTED"), "{said}");
            let names = [
                "line",
                "auth.api_keys",
                "agent.headers",
                "agent.token",
                "auth.oidc",
                "below [",
            ];
            assert!(names.iter().any(|name| said.contains(name)), "{said}");
        }
    }

    #[test]
    fn origins_are_what_browsers_send() {
        for origin in ["http://localhost:3000", "https://app.example"] {
            assert!(is_origin(origin), "{origin}");
        }
        for origin in [
            "http://localhost:3000/",
            "https://app.example/chat",
            "https://App.example",
            "app.example",
            "https://*.example",
            "null",
            "*",
            "",
        ] {
            assert!(!is_origin(origin), "{origin}");
        }
    }

    /// What a file with this text is refused with.
    fn refusal(toml: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), toml).unwrap();
        let loaded = Config::load(Some(file.path()), &Overrides::default());
        loaded
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn agents_are_refused_by_name() {
        let one = "[[agents]]\nid = \"one\"\n";
        let apps = "[[agents]]\nkind = \"adk\"\napps = \"*\"\n";
        for (toml, words) in [
            (
                format!("{one}[agent]\nkind = \"demo\""),
                vec!["[agent]", "[[agents]]", "both"],
            ),
            (format!("{one}{one}"), vec!["two agents", "\"one\""]),
            (
                "[[agents]]\nkind = \"gemini\"".into(),
                vec!["agents \"gemini\"", "id:"],
            ),
            (
                format!("{one}max_steps = 0"),
                vec!["agents \"one\"", "max_steps"],
            ),
            (format!("{one}modl = \"x\""), vec!["modl"]),
            (
                "[[agents]]\nid = \"a/b\"".into(),
                vec!["agents \"a/b\"", "URL", "letters"],
            ),
            ("[[agents]]\nid = \"\"".into(), vec!["id:", "URL"]),
            ("[[agents]]\nid = \"..\"".into(), vec!["id:", "URL"]),
            (
                format!("{apps}{apps}"),
                vec!["agents \"adk\"", "apps", "give each an id"],
            ),
            (
                format!("{one}apps = \"*\""),
                vec!["agents \"one\"", "apps:", "adk"],
            ),
        ] {
            let said = refusal(&toml);
            for word in words {
                assert!(said.contains(word), "{toml}: {said}");
            }
        }
        for toml in [
            format!("{one}[[agents]]\nid = \"two\""),
            format!("{one}{apps}"),
            format!("{apps}{apps}id = \"b\""),
            "[agent]\nid = \"own\"".into(),
            "[agent]\nkind = \"adk\"\napps = \"*\"".into(),
        ] {
            assert_eq!(refusal(&toml), "", "{toml}");
        }
    }

    #[test]
    fn each_agent_has_its_own_rules() {
        let toml = "[approval]\ntools = [\"a\"]\n[[agents]]\nid = \"one\"\nmax_steps = 3\n\
                    [[agents]]\nid = \"two\"\napproval_tools = [\"b\"]\nmay_ask = false";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), toml).unwrap();
        let config = Config::load(Some(file.path()), &Overrides::default()).unwrap();
        let own: Vec<Config> = (config.each_agent().iter())
            .map(|agent| config.of_agent(agent))
            .collect();
        assert_eq!((own[0].agent.max_steps, own[1].agent.max_steps), (3, 25));
        // What holds for all agents is added where a tool of that name is there.
        assert!(own[0].approval.tools.is_empty());
        assert_eq!(own[1].approval.tools, ["b"]);
        assert!(own[0].approval.may_ask && !own[1].approval.may_ask);
        let mut alone = Config::default();
        alone.approval.tools = vec!["a".into()];
        assert_eq!(alone.of_agent(&alone.agent).approval.tools, ["a"]);
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
}
