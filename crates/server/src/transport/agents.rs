//! Endpoints for what is known of the agents.

use std::sync::{Arc, LazyLock};

use adk_bridge_protocol::calls::RunsOn;
use axum::Json;
use axum::extract::{Path, State};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::error::AppError;
use crate::agent_list::{AgentSummary, ListedTool};
use crate::chat::request::check_id;
use crate::chat::{ChatError, Chats, new_id};
use crate::config::Config;

/// Shows a front end that was disconnected whether the same process answers again.
static INSTANCE: LazyLock<String> = LazyLock::new(|| new_id("instance"));

/// An agent, for front ends.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Agent")]
#[serde(rename_all = "camelCase")]
pub struct ShownAgent {
    pub id: String,
    /// What users see.
    pub name: String,
    /// Its `agent.kind`.
    pub kind: String,
    pub model: Option<String>,
    pub live_model: Option<String>,
    pub modalities: &'static [&'static str],
    pub tools: Vec<ShownTool>,
    /// What it cannot do: phrases that follow "it cannot".
    pub limitations: Vec<String>,
    /// The ADK server that it is an app of, if it is one and the server has been there.
    pub server: Option<ShownServer>,
    /// Whether it answers requests that name no agent.
    pub default: bool,
    /// `unreachable` if it could not be asked for its tools just now.
    #[schemars(extend("enum" = ["ready", "unreachable"]))]
    pub status: &'static str,
    /// How long an approval waits for an answer.
    #[schemars(with = "u64")]
    pub approval_timeout_ms: u128,
    /// Changes with every restart of the server.
    pub instance: &'static str,
}

/// What an ADK server has shown of itself.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AdkServer")]
#[serde(rename_all = "camelCase")]
pub struct ShownServer {
    /// For people.
    pub name: String,
    /// `unknown` if it is none of those with an ADK.
    pub language: &'static str,
    pub version: Option<String>,
    /// What its endpoints are below.
    pub prefix: Option<String>,
    /// Whether it has `/run_live`.
    pub voice: bool,
    /// Whether it describes the tools of its apps.
    pub app_info: bool,
    /// Whether a new session has the id that the bridge wants.
    pub session_ids: bool,
    /// How a new session learns what was said before.
    #[schemars(extend("enum" = ["events", "message"]))]
    pub restoring: &'static str,
}

/// A tool of an agent.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tool")]
#[serde(rename_all = "camelCase")]
pub struct ShownTool {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// Where it runs: in the front end, or behind the bridge.
    #[schemars(extend("enum" = ["client", "server"]))]
    pub runs_on: &'static str,
    pub needs_approval: bool,
    /// JSON Schema of the output, if it is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

/// All agents that are there, the default first.
pub async fn list(
    State(chats): State<Chats>,
    State(config): State<Arc<Config>>,
) -> Json<Vec<ShownAgent>> {
    let all = chats.shared().agents.summaries().await;
    Json(all.iter().map(|agent| shown(agent, &config)).collect())
}

/// The default agent.
pub async fn default(
    State(chats): State<Chats>,
    State(config): State<Arc<Config>>,
) -> Result<Json<ShownAgent>, AppError> {
    let agents = &chats.shared().agents;
    let agent = agents.default_or_look().await?;
    Ok(Json(shown(&agents.summary(&agent).await, &config)))
}

pub async fn one(
    State(chats): State<Chats>,
    State(config): State<Arc<Config>>,
    Path(id): Path<String>,
) -> Result<Json<ShownAgent>, AppError> {
    check_id("agent", &id)?;
    let agents = &chats.shared().agents;
    let Some(agent) = agents.find_or_look(&id).await else {
        agents.may_be_away(&id)?;
        return Err(ChatError::UnknownAgent { id }.into());
    };
    Ok(Json(shown(&agents.summary(&agent).await, &config)))
}

fn shown(agent: &AgentSummary, config: &Config) -> ShownAgent {
    let server = agent.info.server.as_ref().map(|traits| ShownServer {
        name: traits.to_string(),
        language: traits.language().word(),
        version: traits.version().map(|version| version.to_string()),
        prefix: traits.prefix().map(|prefix| format!("/{prefix}")),
        voice: traits.has_voice(),
        app_info: traits.describes_apps(),
        session_ids: traits.takes_session_id(),
        restoring: match traits.takes_events() {
            true => "events",
            false => "message",
        },
    });
    ShownAgent {
        id: agent.info.id.clone(),
        name: agent.info.name.clone(),
        kind: agent.info.kind.clone(),
        model: agent.info.model.clone(),
        live_model: agent.live_model.clone(),
        modalities: agent.modalities,
        tools: agent.tools.iter().map(tool).collect(),
        limitations: agent.info.limitations.clone(),
        server,
        default: agent.is_default,
        status: match agent.is_reachable {
            true => "ready",
            false => "unreachable",
        },
        approval_timeout_ms: config.approval.timeout.0.as_millis(),
        instance: INSTANCE.as_str(),
    }
}

fn tool(listed: &ListedTool) -> ShownTool {
    let spec = &listed.spec;
    ShownTool {
        name: spec.name.clone(),
        description: spec.description.clone(),
        input_schema: spec.input_schema.clone(),
        runs_on: match spec.runs_on {
            RunsOn::Client => "client",
            RunsOn::Server | RunsOn::Remote => "server",
        },
        needs_approval: spec.needs_approval,
        output_schema: listed.output_schema.clone(),
    }
}
