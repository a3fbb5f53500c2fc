//! `kind = "adk"`: an app of an ADK server.

use std::sync::Arc;

use adk_bridge_agents::adk_server::{AdkServer, Settings};
use adk_bridge_agents::agent::Agent;
use adk_bridge_agents::token::Tokens;
use adk_bridge_protocol::calls::RunsOn;
use tokio::time::timeout;

use super::{refused, tokens, try_token};
use crate::agent_list::LOOK_TIME;
use crate::config::{self, Config};
use crate::server::StartError;

/// Where `adk api_server` and `adk web` listen by default.
pub(crate) const LOCAL: &str = "http://127.0.0.1:8000";

pub(super) async fn make(config: &Config) -> Result<Arc<dyn Agent>, StartError> {
    let (server, tokens) = unasked(config)?;
    try_token(tokens.as_deref()).await?;
    find(&server).await?;
    let guarded = &config.approval.tools;
    if guarded.is_empty() {
        // There are only warnings to give, and the server need not be there yet.
        let server = server.clone();
        tokio::spawn(async move { look_at(&server, &[]).await });
    } else {
        look_at(&server, guarded).await?;
    }
    Ok(Arc::new(server))
}

/// The ADK server of an entry, to ask it for its apps.
pub(crate) async fn lister(config: &Config) -> Result<AdkServer, StartError> {
    let (server, tokens) = connected(&config.agent)?;
    try_token(tokens.as_deref()).await?;
    Ok(server)
}

/// The agent, as far as it can be made without asking anybody.
pub(super) fn construct(config: &Config) -> Result<Arc<dyn Agent>, StartError> {
    Ok(Arc::new(unasked(config)?.0))
}

fn unasked(config: &Config) -> Result<(AdkServer, Option<Arc<Tokens>>), StartError> {
    check(&config.agent)?;
    let (server, tokens) = connected(&config.agent)?;
    Ok(match config.limits.agent_silence {
        Some(silence) => (server.patient_for(silence.0), tokens),
        None => (server, tokens),
    })
}

fn connected(settings: &config::Agent) -> Result<(AdkServer, Option<Arc<Tokens>>), StartError> {
    let base_url = settings.base_url.as_deref().unwrap_or(LOCAL);
    let tokens = tokens(settings.token.as_ref(), base_url)?;
    let server = AdkServer::new(Settings {
        base_url: base_url.to_owned(),
        app: settings.app.clone().unwrap_or_default(),
        headers: settings.headers.pairs(),
        tokens: tokens.clone(),
    })?;
    Ok((server, tokens))
}

/// Finds out what the server is, if it is there, and refuses an app that it does not have. It may also come up after the
/// bridge, and some servers do not list their apps.
async fn find(server: &AdkServer) -> Result<(), StartError> {
    let (app, url) = (server.app(), server.url());
    match timeout(LOOK_TIME, server.traits()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::warn!(kind = %error.kind(), detail = error.detail(), "what the ADK server at {url} is will be found out when it is there");
            return Ok(());
        }
        Err(_) => {
            tracing::warn!("the ADK server at {url} does not say in time what it is");
            return Ok(());
        }
    }
    match timeout(LOOK_TIME, server.list_apps()).await {
        Ok(Ok(apps)) if !apps.is_empty() && apps.iter().all(|name| name != app) => {
            let apps = apps.join(", ");
            let problem = format!(
                "the ADK server at {url} has no app {app:?}, only {apps}; name one of them"
            );
            Err(refused("agent.app", &problem))
        }
        _ => Ok(()),
    }
}

/// What an ADK server's agent has of its own cannot be set here.
fn check(settings: &config::Agent) -> Result<(), StartError> {
    if settings.app.as_deref().is_none_or(str::is_empty) {
        return Err(refused(
            "agent.app",
            "name the app of the ADK server; GET /list-apps there lists them",
        ));
    }
    check_own(settings)
}

/// The same, wherever the agent runs.
pub(super) fn check_own(settings: &config::Agent) -> Result<(), StartError> {
    let (key, problem) = if !settings.client_tools.is_empty() {
        (
            "agent.client_tools",
            "an ADK agent has its own: make it a LongRunningFunctionTool there, and the front end runs it",
        )
    } else if settings.tools.is_some() {
        ("agent.tools", "an ADK agent has its own tools")
    } else if settings.instruction.is_some() {
        ("agent.instruction", "an ADK agent has its own instruction")
    } else {
        return Ok(());
    };
    Err(refused(key, problem))
}

/// Says at once what would go wrong later, as far as the ADK server tells; it may come up after the bridge.
async fn look_at(server: &AdkServer, guarded: &[String]) -> Result<(), StartError> {
    let (app, url) = (server.app(), server.url());
    let info = match server.app_info().await {
        Ok(info) => info,
        Err(error) => {
            tracing::warn!(kind = %error.kind(), detail = error.detail(), "the app {app:?} cannot be looked up on the ADK server; is it running?");
            None
        }
    };
    if info.is_none() {
        let apps = server.apps().await;
        if !apps.is_empty() && apps.iter().all(|name| name != app) {
            tracing::warn!(
                "the ADK server at {url} has no app {app:?}, only {}; correct agent.app",
                apps.join(", ")
            );
        }
    }
    let Some(info) = info else {
        if !guarded.is_empty() {
            tracing::warn!(
                "the ADK server at {url} does not report the tools of {app:?}: if it runs a tool of \
                 approval.tools without asking, the answer ends with an error"
            );
        }
        return Ok(());
    };
    for name in guarded {
        match info.tools.iter().find(|tool| tool.name == *name) {
            None => {
                let problem = format!("the app {app:?} has no tool named {name:?}");
                return Err(refused("approval.tools", &problem));
            }
            Some(tool) if tool.runs_on == RunsOn::Client => {}
            Some(_) => tracing::info!(
                "{name} is run by the ADK server, which must ask for confirmation itself (require_confirmation); a run \
                 without it ends the answer with an error"
            ),
        }
    }
    Ok(())
}
