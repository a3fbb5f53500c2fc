//! `kind = "gemini"`: a model of Google's, or of whoever speaks as Google does.

use std::sync::Arc;

use adk_bridge_agents::agent::Agent;
use adk_bridge_agents::gemini::{Gemini, Settings, Vertex};
use adk_bridge_agents::gemini_live::Generation;
use adk_bridge_agents::token::Tokens;

use super::{refused, try_token};
use crate::config::{self, Config};
use crate::server::StartError;

/// The model that is asked if the configuration names none.
pub(crate) const MODEL: &str = "gemini-3.8-flash";
/// The variable that holds the key, by convention.
pub(crate) const KEY_VARIABLE: &str = "GEMINI_API_KEY";

/// Where Google serves its models.
const GOOGLE: &str = "https://generativelanguage.googleapis.com";

pub(super) async fn make(config: &Config) -> Result<Arc<dyn Agent>, StartError> {
    let (gemini, tokens) = unasked(config)?;
    try_token(tokens.as_deref()).await?;
    Ok(Arc::new(gemini))
}

/// The agent, as far as it can be made without asking anybody.
pub(super) fn construct(config: &Config) -> Result<Arc<dyn Agent>, StartError> {
    Ok(Arc::new(unasked(config)?.0))
}

fn unasked(config: &Config) -> Result<(Gemini, Option<Arc<Tokens>>), StartError> {
    let settings = &config.agent;
    let (mut gemini, tokens) = match &settings.vertex {
        None => (with_key(settings)?, None),
        Some(vertex) => in_vertex(settings, vertex)?,
    };
    if let Some(generation) = live_generation(config)? {
        gemini = gemini.with_live_generation(generation);
    }
    if let Some(silence) = config.limits.agent_silence {
        gemini = gemini.patient_for(silence.0);
    }
    Ok((gemini, tokens))
}

fn with_key(agent: &config::Agent) -> Result<Gemini, StartError> {
    let variable = agent.api_key_env.as_deref().unwrap_or(KEY_VARIABLE);
    let api_key = std::env::var(variable).unwrap_or_default();
    if api_key.trim().is_empty() {
        return Err(refused(
            "agent.api_key_env",
            "the environment variable that it names is not set, or empty; put the model's API key there",
        ));
    }
    let base_url = agent.base_url.as_deref().unwrap_or(GOOGLE);
    let gemini = Gemini::new(settings(agent, base_url, api_key))?;
    Ok(gemini
        .storing(agent.store_requests.0)
        .with_live_model(&agent.live_model))
}

fn in_vertex(
    agent: &config::Agent,
    vertex: &config::Vertex,
) -> Result<(Gemini, Option<Arc<Tokens>>), StartError> {
    let url = vertex.url();
    let base_url = agent.base_url.as_deref().unwrap_or(&url);
    let google = config::Token::of_google();
    let token = agent.token.as_ref().unwrap_or(&google);
    let tokens = Arc::new(Tokens::new(token.source(base_url)?, token.header()));
    let place = Vertex {
        project: vertex.project.clone(),
        location: vertex.location.clone(),
        tokens: tokens.clone(),
    };
    let settings = settings(agent, base_url, String::new());
    let gemini = Gemini::on_vertex(settings, place)?.with_live_model(&agent.live_model);
    Ok((gemini, Some(tokens)))
}

fn settings(agent: &config::Agent, base_url: &str, api_key: String) -> Settings {
    Settings {
        base_url: base_url.to_owned(),
        model: agent.model.clone().unwrap_or_else(|| MODEL.into()),
        api_key,
        instruction: agent.instruction.clone(),
    }
}

/// The generation of the live model, where the configuration says it.
pub(super) fn live_generation(config: &Config) -> Result<Option<Generation>, StartError> {
    let Some(like) = &config.agent.live_acts_like else {
        return Ok(None);
    };
    match Generation::named(like) {
        Some(generation) => Ok(Some(generation)),
        None => Err(refused(
            "agent.live_acts_like",
            "write the name of a Gemini model with its version, such as \"gemini-3.8-live\" or \"gemini-2.5-flash\"",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_named_by_a_model() {
        let read = |like: Option<&str>| {
            let mut config = Config::default();
            config.agent.live_acts_like = like.map(str::to_owned);
            live_generation(&config)
        };
        assert!(matches!(read(None), Ok(None)));
        let second = read(Some("gemini-2.5-flash-live"));
        assert!(matches!(second, Ok(Some(Generation::Second))));
        for nothing in ["", "voice", "gemini-live-latest"] {
            let error = read(Some(nothing)).unwrap_err().to_string();
            assert!(error.contains("agent.live_acts_like"), "{error}");
        }
    }
}
