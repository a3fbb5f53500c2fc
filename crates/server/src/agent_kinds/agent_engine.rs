//! `kind = "agent-engine"`: an ADK app in Agent Engine.

use std::sync::Arc;

use adk_bridge_agents::adk_server::{AgentEngine, Settings};
use adk_bridge_agents::agent::Agent;
use adk_bridge_agents::token::Tokens;
use axum::http::header::AUTHORIZATION;

use super::{adk, refused, tokens, try_token};
use crate::config::{Config, Token};
use crate::server::StartError;

/// The kind, and what its agent is called unless it has a name.
const KIND: &str = "agent-engine";

pub(super) async fn make(config: &Config) -> Result<Arc<dyn Agent>, StartError> {
    let (engine, tokens) = unasked(config)?;
    try_token(tokens.as_deref()).await?;
    Ok(engine)
}

/// The agent, as far as it can be made without asking anybody.
pub(super) fn construct(config: &Config) -> Result<Arc<dyn Agent>, StartError> {
    Ok(unasked(config)?.0)
}

type Unasked = (Arc<dyn Agent>, Option<Arc<Tokens>>);

fn unasked(config: &Config) -> Result<Unasked, StartError> {
    let settings = &config.agent;
    adk::check_own(settings)?;
    let Some(base_url) = settings.base_url.as_deref() else {
        return Err(refused(
            "agent.base_url",
            "write the address of the engine, https://LOCATION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/LOCATION/reasoningEngines/ID",
        ));
    };
    let google = Token::of_google();
    let token = match &settings.token {
        None if settings.headers.has(&AUTHORIZATION) => None,
        token => Some(token.as_ref().unwrap_or(&google)),
    };
    let tokens = tokens(token, base_url)?;
    let mut engine = AgentEngine::new(Settings {
        base_url: base_url.to_owned(),
        app: settings.app.clone().unwrap_or_else(|| KIND.to_owned()),
        headers: settings.headers.pairs(),
        tokens: tokens.clone(),
    })?;
    if let Some(silence) = config.limits.agent_silence {
        engine = engine.patient_for(silence.0);
    }
    Ok((Arc::new(engine), tokens))
}
