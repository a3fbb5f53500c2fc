//! What an ADK server says about an app: its agents and their tools.

use std::collections::HashSet;
use std::time::Duration;

use adk_bridge_protocol::calls::RunsOn;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::wire::json;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::client::{AdkClient, Failure};
use crate::error::AgentError;
use crate::tool::ToolSpec;

/// ADK's description for the model that a tool answers later. There is no field for it.
const LONG_RUNNING: &str = "This is a long-running operation.";

/// How long an answer is cached: many pages may ask, and changes of an agent should show soon.
const KEEP: Duration = Duration::from_secs(5);

/// How long the description of an app, or the list of apps, may be; `GET /api/agents` repeats much of it.
const MAX_BYTES: usize = 2 * 1024 * 1024;
/// How many tools of an app are shown; models take far fewer.
const MAX_TOOLS: usize = 512;

/// An app as the server describes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AppInfo {
    pub description: String,
    /// The tools of all its agents. The server does not say which of them ask for confirmation.
    pub tools: Vec<ToolSpec>,
}

/// The last answer. Callers during a request wait for it instead of starting another one.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Option<(Instant, Answer)>>);

type Answer = Result<Option<AppInfo>, AgentError>;

impl Cache {
    pub(super) async fn get(&self, client: &AdkClient) -> Answer {
        let mut last = self.0.lock().await;
        if let Some((asked, answer)) = &*last
            && asked.elapsed() < KEEP
        {
            return answer.clone();
        }
        let answer = ask(client).await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

async fn ask(client: &AdkClient) -> Result<Option<AppInfo>, AgentError> {
    if client.traits().await?.describes_apps == Some(false) {
        return Ok(None);
    }
    let learn = |does| client.learn(|traits| traits.describes_apps = Some(does));
    match client.get(&["apps", client.app(), "app-info"]).await {
        Ok(info) => {
            learn(true);
            check_size(&info, "description of the app")?;
            Ok(Some(read(&info.to_value())))
        }
        Err(Failure::NotFound(_)) => {
            // Servers in other languages and old ones do not have this, if it is not the app that is missing.
            if names(client).await.iter().any(|name| name == client.app()) {
                learn(false);
            }
            Ok(None)
        }
        // The root of the app is not a model.
        Err(Failure::Refused(_)) => Ok(None),
        Err(failure) => Err(failure.into_error()),
    }
}

/// The names of the server's apps; none if it does not list them.
pub(super) async fn names(client: &AdkClient) -> Vec<String> {
    listed(client).await.unwrap_or_default()
}

/// The names of the server's apps.
pub(super) async fn listed(client: &AdkClient) -> Result<Vec<String>, AgentError> {
    let names = client.get(&["list-apps"]).await;
    let names = names.map_err(Failure::into_error)?;
    check_size(&names, "list of apps")?;
    names.read().map_err(|error| {
        AgentError::broken(
            "the ADK server's list of apps could not be understood",
            error.to_string(),
        )
    })
}

/// Refuses what would take much more memory than it is worth.
pub(super) fn check_size(answer: &Json, what: &str) -> Result<(), AgentError> {
    let text = answer.text().as_bytes();
    if text.len() <= MAX_BYTES && json::check(text).is_ok() {
        return Ok(());
    }
    Err(AgentError::broken(
        format!("the ADK server's {what} is too long to be read"),
        format!("{} bytes", text.len()),
    ))
}

pub(super) fn read(info: &Value) -> AppInfo {
    let text = |of: &Value, key: &str| {
        of.get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let agents = info.get("agents").and_then(Value::as_object);
    let declared = agents
        .into_iter()
        .flat_map(|agents| agents.values())
        .filter_map(|agent| agent.get("tools")?.as_array())
        .flatten()
        .filter_map(|tool| {
            let camel = tool.get("functionDeclarations");
            camel
                .or_else(|| tool.get("function_declarations"))?
                .as_array()
        })
        .flatten();
    let mut tools: Vec<ToolSpec> = Vec::new();
    let mut names = HashSet::new();
    for tool in declared {
        let (name, description) = (text(tool, "name"), text(tool, "description"));
        if name.is_empty() || !names.insert(name.clone()) {
            continue;
        }
        if tools.len() == MAX_TOOLS {
            break;
        }
        let schema = [
            "parametersJsonSchema",
            "parameters_json_schema",
            "parameters",
        ]
        .iter()
        .find_map(|key| tool.get(key).filter(|schema| schema.is_object()));
        tools.push(ToolSpec {
            runs_on: if description.contains(LONG_RUNNING) {
                RunsOn::Client
            } else {
                RunsOn::Remote
            },
            name,
            description,
            input_schema: schema.map_or_else(|| json!({"type": "object"}), json_schema),
            needs_approval: false,
            idempotent: false,
        });
    }
    AppInfo {
        description: text(info, "description"),
        tools,
    }
}

/// Google's own schemas name types in capitals.
fn json_schema(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| {
                let value = match value {
                    Value::String(kind) if key == "type" => json!(kind.to_lowercase()),
                    other => json_schema(other),
                };
                (key.clone(), value)
            })
            .collect(),
        Value::Array(items) => items.iter().map(json_schema).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_not_read() {
        for (text, is_read) in [
            ("[]".to_owned(), true),
            (format!("\"{}\"", "x".repeat(MAX_BYTES)), false),
            (format!("[{}0]", "0,".repeat(json::MAX_VALUES)), false),
        ] {
            let answer = Json::parse(&text).unwrap();
            assert_eq!(check_size(&answer, "list").is_ok(), is_read);
        }
        let tools: Vec<Value> = (0..=MAX_TOOLS)
            .map(|number| json!({"name": format!("t{number}")}))
            .collect();
        let info = json!({"agents": {"a": {"tools": [{"functionDeclarations": tools}]}}});
        assert_eq!(read(&info).tools.len(), MAX_TOOLS);
    }

    #[test]
    fn tools_of_all_agents_are_read() {
        let info = json!({"name": "a", "rootAgentName": "root", "description": "d", "agents": {
            "root": {"tools": [
                {"functionDeclarations": [{"name": "get", "description": "Gets.",
                    "parametersJsonSchema": {"type": "object", "properties": {"type": {"type": "string"}}}}]},
                {"functionDeclarations": [{"name": "pick", "description": format!("Picks. NOTE: {LONG_RUNNING}")}]},
            ]},
            "sub": {"tools": [{"function_declarations": [
                {"name": "get"}, {"name": "old", "parameters": {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}}},
                {}, null,
            ]}, {"googleSearch": {}}]},
            "none": {}, "odd": null,
        }});
        let read = read(&info);
        assert_eq!(read.description, "d");
        let tools: Vec<_> = read
            .tools
            .iter()
            .map(|tool| (tool.name.as_str(), tool.runs_on))
            .collect();
        assert_eq!(
            tools,
            [
                ("get", RunsOn::Remote),
                ("pick", RunsOn::Client),
                ("old", RunsOn::Remote)
            ]
        );
        assert_eq!(
            read.tools[0].input_schema["properties"]["type"]["type"],
            "string"
        );
        assert_eq!(read.tools[1].input_schema, json!({"type": "object"}));
        assert_eq!(
            read.tools[2].input_schema,
            json!({"type": "object", "properties": {"n": {"type": "integer"}}})
        );
        for odd in [
            json!(null),
            json!([]),
            json!({"agents": []}),
            json!({"agents": {"a": {"tools": {}}}}),
        ] {
            assert_eq!(super::read(&odd), AppInfo::default());
        }
    }
}
