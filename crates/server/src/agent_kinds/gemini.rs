//! `kind = "gemini"`: a model of Google's, or of whoever speaks as Google does.

use std::sync::Arc;

use adk_bridge_agents::agent::Agent;
use adk_bridge_agents::gemini::{Gemini, Settings};

use super::refused;
use crate::config::Config;
use crate::server::StartError;

/// Where Google serves its models.
const GOOGLE: &str = "https://generativelanguage.googleapis.com";

pub(super) async fn make(config: &Config) -> Result<Arc<dyn Agent>, StartError> {
    let settings = &config.agent;
    let api_key = std::env::var(&settings.api_key_env).unwrap_or_default();
    if api_key.trim().is_empty() {
        return Err(refused(
            "agent.api_key_env",
            "the environment variable that it names is not set, or empty; put the model's API key there",
        ));
    }
    let base_url = settings.base_url.as_deref().unwrap_or(GOOGLE);
    let mut gemini = Gemini::new(Settings {
        base_url: base_url.to_owned(),
        model: settings.model.clone(),
        api_key,
        instruction: settings.instruction.clone(),
    })?
    .storing(settings.store_requests.0)
    .with_live_model(&settings.live_model);
    if let Some(silence) = config.limits.agent_silence {
        gemini = gemini.patient_for(silence.0);
    }
    Ok(Arc::new(gemini))
}
