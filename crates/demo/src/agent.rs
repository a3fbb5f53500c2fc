//! The demo's agent: the Gemini agent of production, pointed at a scripted model.

use std::time::Duration;

use adk_bridge_agents::agent::{Agent, AgentInfo, AgentRequest, MemoryModel, Starting};
use adk_bridge_agents::error::AgentError;
use adk_bridge_agents::gemini::{self, Gemini};
use adk_bridge_agents::gemini_live::Generation;
use adk_bridge_agents::live::LiveAgent;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::scripted_gemini::{Options, serve};

/// Its name in `agent.kind`.
pub const KIND: &str = "demo";

/// An agent with its own scripted Gemini, which stops with it.
#[derive(Debug)]
pub struct Demo {
    gemini: Gemini,
    model: AbortHandle,
}

/// The settings of a Gemini agent that the demo has, too.
#[derive(Debug, Clone)]
pub struct Settings {
    pub model: String,
    pub live_model: String,
    /// The generation that the live model is treated as; by default the one that its name says.
    pub live_generation: Option<Generation>,
    pub instruction: Option<String>,
    /// The time between two pieces of an answer.
    pub pace: Duration,
    /// How long the model may send nothing; by default as long as Google's.
    pub silence: Option<Duration>,
}

impl Demo {
    /// Starts the model on a port of this machine.
    pub async fn start(settings: Settings) -> Result<Self, AgentError> {
        let no_port = |error: std::io::Error| {
            AgentError::unreachable("the demo has no port", error.to_string())
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(no_port)?;
        let address = listener.local_addr().map_err(no_port)?;
        let options = Options {
            pace: settings.pace,
            ..Options::default()
        };
        let mut gemini = Gemini::new(gemini::Settings {
            base_url: format!("http://{address}"),
            model: settings.model,
            // Any key is accepted.
            api_key: KIND.to_owned(),
            instruction: settings.instruction,
        })?
        .with_live_model(settings.live_model);
        if let Some(generation) = settings.live_generation {
            gemini = gemini.with_live_generation(generation);
        }
        if let Some(silence) = settings.silence {
            gemini = gemini.patient_for(silence);
        }
        let model = tokio::spawn(serve(listener, options, std::future::pending()));
        Ok(Self {
            gemini,
            model: model.abort_handle(),
        })
    }
}

impl Agent for Demo {
    fn info(&self) -> AgentInfo {
        let mut info = AgentInfo::new(KIND);
        info.model = self.gemini.info().model;
        // Both ends of the connection to the model are in this process.
        info.descriptors_per_turn = 2;
        info
    }

    fn memory(&self) -> MemoryModel {
        self.gemini.memory()
    }

    fn start(&self, request: AgentRequest<'_>) -> Starting {
        self.gemini.start(request)
    }

    fn live(&self) -> Option<&dyn LiveAgent> {
        self.gemini.live()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.model.abort();
    }
}
