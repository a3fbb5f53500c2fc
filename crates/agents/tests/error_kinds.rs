//! Why a Gemini did not answer, in the kinds that a caller acts on, against the scripted Gemini.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_agents::agent::{Agent, AgentRequest, ChatKey, ConversationRequest};
use adk_bridge_agents::error::{AgentError, AgentErrorKind};
use adk_bridge_agents::gemini::{Gemini, Settings};
use adk_bridge_agents::trace_context::TraceContext;
use adk_bridge_demo::scripted_gemini::{Options, serve};
use adk_bridge_protocol::event::{Content, Part};

const KEY: &str = "a-key-of-google";
const MODEL: &str = "gemini-3.8-flash";

#[tokio::test]
async fn a_failure_has_the_kind_that_a_caller_acts_on() {
    let url = scripted().await;
    let retry_after = Some(Duration::from_secs(1));
    for (key, model, said, kind) in [
        ("other", MODEL, "say hello", AgentErrorKind::Unauthorized),
        (KEY, "nonsense", "say hello", AgentErrorKind::Rejected),
        (KEY, MODEL, "http 400", AgentErrorKind::Rejected),
        (KEY, MODEL, "http 403", AgentErrorKind::Unauthorized),
        (
            KEY,
            MODEL,
            "http 429",
            AgentErrorKind::Quota { retry_after },
        ),
        (KEY, MODEL, "http 500 midway", AgentErrorKind::Unreachable),
        (KEY, MODEL, "say half then cut", AgentErrorKind::Unreachable),
    ] {
        let agent = gemini(&url, key, model);
        let error = ask(&*agent, said).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{said:?}: {error:?}");
        assert!(!error.message().is_empty() && !error.detail().contains(KEY));
    }
    ask(&*gemini(&url, KEY, MODEL), "say hello").await.unwrap();
}

/// Nobody listens at this address any more.
#[tokio::test]
async fn nobody_there_is_unreachable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = ask(&*gemini(&url, KEY, MODEL), "say hello").await;
    assert_eq!(error.unwrap_err().kind(), AgentErrorKind::Unreachable);
}

async fn scripted() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let options = Options {
        keys: vec![KEY.into()],
        pace: Duration::ZERO,
        ..Options::default()
    };
    tokio::spawn(serve(listener, options, std::future::pending()));
    url
}

fn gemini(url: &str, key: &str, model: &str) -> Arc<dyn Agent> {
    let settings = Settings {
        base_url: url.into(),
        model: model.into(),
        api_key: key.into(),
        instruction: None,
    };
    Arc::new(Gemini::new(settings).unwrap())
}

/// Asks, and reads the answer to its end.
async fn ask(agent: &dyn Agent, said: &str) -> Result<(), AgentError> {
    let request = AgentRequest::Conversation(ConversationRequest {
        chat: ChatKey {
            user: "alice".into(),
            id: "chat".into(),
        },
        contents: vec![Content::new("user", vec![Part::text(said)])],
        tools: &[],
        trace: TraceContext::default(),
    });
    let mut run = agent.start(request).await?;
    while let Some(piece) = run.read().await? {
        run.events(&piece, &mut |_| {})?;
    }
    run.finish(&mut |_| {})
}
