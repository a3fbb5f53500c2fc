//! `kind = "demo"`: a scripted model inside the process, which needs no key, and the demo's tools.

use std::path::Path;
use std::sync::Arc;

use adk_bridge_agents::agent::Agent;
use adk_bridge_agents::tool_registry::{Offer, ToolRegistry, ToolRegistryError};
use adk_bridge_demo::agent::{Demo, KIND, Settings};
use adk_bridge_demo::tools::{self, Options};

use super::gemini::{MODEL, live_generation};
use crate::config::Config;
use crate::server::StartError;
use crate::store::make_private;

/// The sample users of the demo's database tools.
const DATABASE: &str = "sample.sqlite";

pub(super) async fn make(config: &Config) -> Result<Arc<dyn Agent>, StartError> {
    let demo = Demo::start(Settings {
        model: (config.agent.model.clone()).unwrap_or_else(|| MODEL.into()),
        live_model: config.agent.live_model.clone(),
        live_generation: live_generation(config)?,
        instruction: config.agent.instruction.clone(),
        pace: config.demo.pace.0,
        silence: config.limits.agent_silence.map(|silence| silence.0),
    });
    Ok(Arc::new(demo.await?))
}

/// Registers the demo's tools. An agent of another kind gets one of them only where the configuration names it: no real
/// model is offered a payment that only plays.
pub(crate) fn register_tools(
    registry: &mut ToolRegistry,
    agent: &dyn Agent,
    directory: &Path,
) -> Result<(), ToolRegistryError> {
    for end in ["", "-wal", "-shm"] {
        make_private(&directory.join(format!("{DATABASE}{end}")));
    }
    let offer = match agent.info().kind == KIND {
        true => Offer::ByDefault,
        false => Offer::WhenNamed,
    };
    let options = Options {
        database: Some(directory.join(DATABASE)),
        ..Options::default()
    };
    tools::register(registry, options, offer)
}
