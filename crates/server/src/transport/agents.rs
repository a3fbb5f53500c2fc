//! Endpoints for what is known of the agents.

use std::sync::{Arc, LazyLock};

use adk_bridge_protocol::calls::RunsOn;
use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::error::AppError;
use crate::agent_list::{AgentSummary, ListedTool};
use crate::chat::request::check_id;
use crate::chat::{ChatError, Chats, new_id};
use crate::config::Config;

/// Shows a front end that was disconnected whether the same process answers again.
static INSTANCE: LazyLock<String> = LazyLock::new(|| new_id("instance"));

/// All agents that are there, the default first.
pub async fn list(State(chats): State<Chats>, State(config): State<Arc<Config>>) -> Json<Value> {
    let all = chats.shared().agents.summaries().await;
    Json(all.iter().map(|agent| shown(agent, &config)).collect())
}

/// The default agent.
pub async fn default(
    State(chats): State<Chats>,
    State(config): State<Arc<Config>>,
) -> Result<Json<Value>, AppError> {
    let agents = &chats.shared().agents;
    let agent = agents.default_or_look().await?;
    Ok(Json(shown(&agents.summary(&agent).await, &config)))
}

pub async fn one(
    State(chats): State<Chats>,
    State(config): State<Arc<Config>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, AppError> {
    check_id("agent", &id)?;
    let agents = &chats.shared().agents;
    let Some(agent) = agents.find_or_look(&id).await else {
        agents.may_be_away(&id)?;
        return Err(ChatError::UnknownAgent { id }.into());
    };
    Ok(Json(shown(&agents.summary(&agent).await, &config)))
}

fn shown(agent: &AgentSummary, config: &Config) -> Value {
    let server = agent.info.server.as_ref().map(|traits| {
        json!({
            "name": traits.to_string(),
            "language": traits.language().word(),
            "version": traits.version(),
            "prefix": traits.prefix().map(|prefix| format!("/{prefix}")),
            "voice": traits.has_voice(),
            "appInfo": traits.describes_apps(),
            "sessionIds": traits.takes_session_id(),
            "restoring": if traits.takes_events() { "events" } else { "message" },
        })
    });
    json!({
        "id": agent.info.id,
        "name": agent.info.name,
        "kind": agent.info.kind,
        "model": agent.info.model,
        "liveModel": agent.live_model,
        "modalities": agent.modalities,
        "tools": agent.tools.iter().map(tool).collect::<Vec<_>>(),
        "limitations": agent.info.limitations,
        "server": server,
        "default": agent.is_default,
        "status": if agent.is_reachable { "ready" } else { "unreachable" },
        "approvalTimeoutMs": config.approval.timeout.0.as_millis(),
        "instance": *INSTANCE,
    })
}

fn tool(
    ListedTool {
        spec,
        output_schema,
    }: &ListedTool,
) -> Value {
    let mut listed = json!({
        "name": spec.name,
        "description": spec.description,
        "inputSchema": spec.input_schema,
        "runsOn": match spec.runs_on {
            RunsOn::Client => "client",
            RunsOn::Server | RunsOn::Remote => "server",
        },
        "needsApproval": spec.needs_approval,
    });
    if let Some(schema) = output_schema {
        listed["outputSchema"] = schema.clone();
    }
    listed
}
