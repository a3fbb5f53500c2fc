//! A model behind chat completions, asked over HTTP.
//!
//! | module | holds |
//! |---|---|
//! | `streams` | answers in every form that servers have for them (`fixtures/openai`), cut anywhere |
//! | `requests` | what conversations look like when they are sent |
//! | `refusals` | servers that refuse, and what is tried again |

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod refusals;
mod requests;
mod streams;

use adk_bridge_agents::agent::{Agent, AgentRequest, AgentRun, ChatKey, ConversationRequest};
use adk_bridge_agents::error::AgentError;
use adk_bridge_agents::openai::{OpenAi, Settings};
use adk_bridge_agents::tool::ToolSpec;
use adk_bridge_agents::trace_context::TraceContext;
use adk_bridge_protocol::event::{Content, Event, Part};
use adk_bridge_testkit::stand_in::StandIn;
use serde_json::{Value, json};

const KEY: &str = "a-key-of-a-model";

/// An agent whose model is played by a stand-in.
fn agent(stand_in: &StandIn) -> OpenAi {
    agent_with(stand_in, |_| {})
}

fn agent_with(stand_in: &StandIn, change: impl FnOnce(&mut Settings)) -> OpenAi {
    let mut settings = Settings {
        base_url: format!("http://{}/v1", stand_in.address),
        model: "m".into(),
        tokens: None,
        api_key: Some(KEY.into()),
        headers: Vec::new(),
        instruction: None,
        store: None,
    };
    change(&mut settings);
    OpenAi::new(settings).unwrap()
}

async fn start(
    agent: &OpenAi,
    contents: Vec<Content<'_>>,
    tools: &[ToolSpec],
) -> Result<Box<dyn AgentRun>, AgentError> {
    let request = AgentRequest::Conversation(ConversationRequest {
        chat: ChatKey {
            user: "alice".into(),
            id: "chat".into(),
        },
        contents,
        tools,
        trace: TraceContext::default(),
    });
    agent.start(request).await
}

/// Asks a question and reads the answer to its end: its events, and how it failed.
async fn ask(agent: &OpenAi) -> (Vec<Value>, Result<(), AgentError>) {
    let mut events = Vec::new();
    let question = vec![Content::new("user", vec![Part::text("hello")])];
    let mut run = match start(agent, question, &[]).await {
        Ok(run) => run,
        Err(error) => return (events, Err(error)),
    };
    let ended = loop {
        match run.read().await {
            Ok(Some(piece)) => {
                if let Err(error) = run.events(&piece, &mut |event| events.push(seen(event))) {
                    break Err(error);
                }
            }
            Ok(None) => break run.finish(&mut |event| events.push(seen(event))),
            Err(error) => break Err(error),
        }
    };
    (events, ended)
}

/// An event, with the field that is not written.
fn seen(event: &Event<'_>) -> Value {
    let mut value = serde_json::to_value(event).unwrap();
    let part = event.parts().first();
    if let Some(text) = part.and_then(|part| part.function_call.as_ref()?.args_text.as_deref()) {
        value["argsText"] = json!(text);
    }
    value
}
