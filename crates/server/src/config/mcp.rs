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

    fn problems(&self) -> Vec<String> {
        let (command, url) = (self.command.as_deref(), self.url.as_deref());
        let (args, env) = (!self.args.is_empty(), self.env.pairs());
        let is_bad = |name: &str| name.is_empty() || name.contains(['=', '\0']);
        let rules = [
            (
                !is_server_name(&self.name),
                format!(
                    "name: write letters, digits, '-' and '_', beginning with a letter, without \"__\" and not ending with '_', at \
                     most {MAX_SERVER_NAME} of them"
                ),
            ),
            (
                command.is_none() && url.is_none(),
                "write the command that starts the server, or its url".to_owned(),
            ),
            (
                command.is_some() && url.is_some(),
                "command, url: write one of them".to_owned(),
            ),
            (command == Some(""), "command: name a program".to_owned()),
            (
                command.is_some() && !self.headers.pairs().is_empty(),
                "headers: only a url has them; write env for a command".to_owned(),
            ),
            (
                command.is_none() && url.is_some() && (args || !env.is_empty()),
                "args, env: only a command has them; write headers for a url".to_owned(),
            ),
            (
                env.iter().any(|(name, _)| is_bad(name)),
                "env: names of variables are not empty and have no '='".to_owned(),
            ),
        ];
        let broken = rules.into_iter().filter(|(is_broken, _)| *is_broken);
        broken.map(|(_, problem)| problem).collect()
    }
}

/// What is wrong with servers that cannot be started.
pub(super) fn check(tools: &Tools) -> Vec<ConfigError> {
    let mut problems = Vec::new();
    let mut names = HashSet::new();
    for server in &tools.mcp {
        let name = &server.name;
        problems.extend(server.problems().into_iter().map(|problem| {
            let name = name.clone();
            ConfigError::OfMcp { name, problem }
        }));
        if !names.insert(name) {
            let name = name.clone();
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
