//! An MCP server of the configuration: `[[tools.mcp]]`.

use std::collections::HashSet;

use adk_bridge_agents::mcp::{Access, Approval, MAX_SERVER_NAME, McpSettings, is_server_name};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{ConfigError, Headers, Tools, list};

/// An MCP server: a program that is started (`command`), or the address of a server (`url`).
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mcp {
    /// Names the server; names of its tools begin with it. Letters, digits, `-` and `_`, beginning with a letter. Every server
    /// needs its own.
    pub name: String,
    /// A program that speaks MCP over its standard input and output. It gets `PATH`, `HOME` and the like, and `env`; nothing else
    /// of the bridge's environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The arguments of the program, such as `["-y", "@modelcontextprotocol/server-filesystem", "/srv/files"]`.
    pub args: Vec<String>,
    /// Variables in the environment of the program, such as `{ LOG_LEVEL = "error" }`.
    pub env: Headers,
    /// The URL of a server (streamable HTTP), instead of `command`. Redirects are not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of every request to the URL, such as `{ authorization = "Bearer …" }`.
    pub headers: Headers,
    /// Which of its tools are offered, by the server's own names for them; all by default.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "list::some_words"
    )]
    pub tools: Option<Vec<String>>,
    /// Which of its tools need approval: `"unless-read-only"` (those that do not say `readOnlyHint: true`, which is the server's
    /// own word), `"always"`, `"never"`, or the names of some. If one of the names is not there, all need it.
    pub approval: McpApproval,
}

/// `"unless-read-only"`, `"always"`, `"never"`, or a list of names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct McpApproval(pub Approval);

const UNLESS_READ_ONLY: &str = "unless-read-only";
const ALWAYS: &str = "always";
const NEVER: &str = "never";

impl Mcp {
    /// What the server is started with. Call it after the configuration was checked.
    pub fn settings(&self) -> McpSettings {
        let access = match (&self.command, &self.url) {
            (Some(command), _) => Access::Command {
                command: command.clone(),
                args: self.args.clone(),
                env: self.env.pairs(),
            },
            (None, url) => Access::Url {
                url: url.clone().unwrap_or_default(),
                headers: self.headers.pairs(),
            },
        };
        McpSettings {
            name: self.name.clone(),
            access,
            tools: self.tools.clone(),
            approval: self.approval.0.clone(),
        }
    }

    fn problem(&self) -> Option<String> {
        let problem = match (&self.command, &self.url) {
            _ if !is_server_name(&self.name) => {
                return Some(format!(
                    "name: write letters, digits, '-' and '_', beginning with a letter, without \"__\" and not ending with '_', at \
                     most {MAX_SERVER_NAME} of them"
                ));
            }
            (None, None) => "write the command that starts the server, or its url",
            (Some(_), Some(_)) => "command, url: write one of them",
            (Some(command), _) if command.is_empty() => "command: name a program",
            (Some(_), _) if !self.headers.pairs().is_empty() => {
                "headers: only a url has them; write env for a command"
            }
            (_, Some(_)) if !self.args.is_empty() || !self.env.pairs().is_empty() => {
                "args, env: only a command has them; write headers for a url"
            }
            _ if (self.env.pairs().iter())
                .any(|(name, _)| name.is_empty() || name.contains(['=', '\0'])) =>
            {
                "env: names of variables are not empty and have no '='"
            }
            _ => return None,
        };
        Some(problem.to_owned())
    }
}

/// What is wrong with servers that cannot be started.
pub(super) fn check(tools: &Tools) -> Vec<ConfigError> {
    let mut problems = Vec::new();
    let mut names = HashSet::new();
    for server in &tools.mcp {
        let name = server.name.clone();
        if let Some(problem) = server.problem() {
            problems.push(ConfigError::OfMcp { name, problem });
        } else if !names.insert(&server.name) {
            problems.push(ConfigError::TwoMcp { name });
        }
    }
    problems
}

impl<'de> Deserialize<'de> for McpApproval {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Word(String),
            Names(Vec<String>),
        }
        let approval = match Form::deserialize(from) {
            Ok(Form::Word(word)) if word == UNLESS_READ_ONLY => Approval::UnlessReadOnly,
            Ok(Form::Word(word)) if word == ALWAYS => Approval::Always,
            Ok(Form::Word(word)) if word == NEVER => Approval::Never,
            Ok(Form::Names(names)) => Approval::Named(names),
            _ => {
                return Err(de::Error::custom(
                    "write \"unless-read-only\", \"always\", \"never\", or a list of names of tools",
                ));
            }
        };
        Ok(Self(approval))
    }
}

impl JsonSchema for McpApproval {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "McpApproval".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {"enum": [UNLESS_READ_ONLY, ALWAYS, NEVER]},
                {"type": "array", "items": {"type": "string"}},
            ]
        })
    }
}

impl Serialize for McpApproval {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Approval::UnlessReadOnly => to.serialize_str(UNLESS_READ_ONLY),
            Approval::Always => to.serialize_str(ALWAYS),
            Approval::Never => to.serialize_str(NEVER),
            Approval::Named(names) => names.serialize(to),
        }
    }
}
