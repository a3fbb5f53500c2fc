//! `kind = "openai"`: a model behind chat completions, OpenAI's own or a local one.

use std::sync::Arc;

use adk_bridge_agents::agent::Agent;
use adk_bridge_agents::gemini::Storing;
use adk_bridge_agents::openai::{OPENAI, OpenAi, Settings};
use adk_bridge_agents::token::Tokens;

use super::{refused, tokens, try_token};
use crate::config::{self, Config};
use crate::server::StartError;

/// The variable that holds the key of OpenAI's own models, by convention. No other server is sent that key.
const KEY_VARIABLE: &str = "OPENAI_API_KEY";

pub(super) async fn make(config: &Config) -> Result<Arc<dyn Agent>, StartError> {
    let (openai, tokens) = unasked(config)?;
    try_token(tokens.as_deref()).await?;
    Ok(Arc::new(openai))
}

/// The agent, as far as it can be made without asking anybody.
pub(super) fn construct(config: &Config) -> Result<Arc<dyn Agent>, StartError> {
    Ok(Arc::new(unasked(config)?.0))
}

fn unasked(config: &Config) -> Result<(OpenAi, Option<Arc<Tokens>>), StartError> {
    let settings = &config.agent;
    let Some(model) = settings.model.clone() else {
        return Err(refused(
            "agent.model",
            "name the model, as its server calls it; GET /v1/models there lists them",
        ));
    };
    let base_url = settings.base_url.as_deref().unwrap_or(OPENAI);
    let tokens = tokens(settings.token.as_ref(), base_url)?;
    let mut openai = OpenAi::new(Settings {
        base_url: base_url.to_owned(),
        model,
        api_key: match tokens {
            Some(_) => None,
            None => api_key(settings)?,
        },
        tokens: tokens.clone(),
        headers: settings.headers.pairs(),
        instruction: settings.instruction.clone(),
        store: store(settings),
    })?;
    if let Some(silence) = config.limits.agent_silence {
        openai = openai.patient_for(silence.0);
    }
    Ok((openai, tokens))
}

/// The variable that holds the key, if there is to be one.
pub(crate) fn key_variable(settings: &config::Agent) -> Option<&str> {
    let by_default = is_own(settings).then_some(KEY_VARIABLE);
    settings.api_key_env.as_deref().or(by_default)
}

fn api_key(settings: &config::Agent) -> Result<Option<String>, StartError> {
    let Some(variable) = key_variable(settings) else {
        return Ok(None);
    };
    let key = std::env::var(variable).unwrap_or_default();
    match key.trim() {
        "" => Err(refused(
            "agent.api_key_env",
            &format!(
                "the environment variable {variable} is not set, or empty; put the model's API key there, or name a \
                 server that needs none with agent.base_url"
            ),
        )),
        key => Ok(Some(key.to_owned())),
    }
}

/// What requests say about being stored. A server that is not OpenAI's may refuse a field that it does not know, and has
/// nothing to be forbidden: there, only a yes is sent.
fn store(settings: &config::Agent) -> Option<bool> {
    match settings.store_requests.0 {
        Storing::Never => is_own(settings).then_some(false),
        Storing::Always => Some(true),
        Storing::ByProject => None,
    }
}

/// Whether the model is served by OpenAI itself: only there are its key and its own fields at home.
fn is_own(settings: &config::Agent) -> bool {
    let Some(base_url) = settings.base_url.as_deref() else {
        return true;
    };
    let host = base_url.parse::<axum::http::Uri>().ok();
    let host = host.as_ref().and_then(|url| url.host());
    host.is_some_and(|host| host == "api.openai.com" || host.ends_with(".api.openai.com"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_openai_is_for_openai() {
        for (base_url, named, variable) in [
            (None, None, Some(KEY_VARIABLE)),
            (Some(OPENAI), None, Some(KEY_VARIABLE)),
            (
                Some("https://eu.api.openai.com/v1"),
                None,
                Some(KEY_VARIABLE),
            ),
            (Some(OPENAI), Some("MINE"), Some("MINE")),
            (Some("http://127.0.0.1:11434/v1"), None, None),
            (Some("https://api.openai.com.evil.example/v1"), None, None),
            (Some("https://api.openai.com@evil.example/v1"), None, None),
            (Some("https://evil-api.openai.com/v1"), None, None),
            (
                Some("https://gateway.example/v1"),
                Some("MINE"),
                Some("MINE"),
            ),
        ] {
            let settings = config::Agent {
                kind: "openai".into(),
                base_url: base_url.map(str::to_owned),
                api_key_env: named.map(str::to_owned),
                ..config::Agent::default()
            };
            assert_eq!(key_variable(&settings), variable, "{base_url:?}");
        }
    }
}
