//! When the words of an ADK server's agent reach a client, in each dialect.

use serde_json::{Value, json};

use crate::stand_in::{ReceivedRequest, StandIn, pieces, well};
use crate::support::{Bridge, JSON, asking, types};

/// A run in which the agent speaks before and after a call of its own tool.
fn run(asked: &ReceivedRequest) -> Vec<u8> {
    if asked.path != "/run_sse" {
        return well(asked);
    }
    let part = |role: &str, part: Value| json!({"author": "agent", "content": {"role": role, "parts": [part]}});
    let name = "get_weather";
    let events = [
        part("model", json!({"text": "Let me look."})),
        part(
            "model",
            json!({"functionCall": {"id": "f1", "name": name, "args": {}}}),
        ),
        part(
            "user",
            json!({"functionResponse": {"id": "f1", "name": name, "response": {}}}),
        ),
        part("model", json!({"text": "It rains."})),
    ];
    pieces(&events)
}

/// An ADK server does not report which of its tools ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_come_at_once_where_nothing_can_be_asked() {
    for may_ask in [true, false] {
        let stand_in = StandIn::start(run).await;
        let toml = format!("{}\n[approval]\nmay_ask = {may_ask}\n", stand_in.toml());
        let bridge = Bridge::configured(&toml);
        let native = shape(&bridge, "native", "hello").await;
        assert_eq!(native[1], "text-start", "{native:?}");
        for dialect in ["adk", "held"] {
            let shown = shape(&bridge, dialect, "hello").await;
            match may_ask {
                false => assert_eq!(shown, native, "{dialect}"),
                true => assert_eq!(shown[1], "tool-input-start", "{dialect}: {shown:?}"),
            }
        }
    }
}

/// The same for a model whose tools the bridge runs: here it knows which of them ask.
#[tokio::test]
async fn words_come_at_once_where_no_tool_needs_approval() {
    let bridge = Bridge::configured("[agent]\ntools = [\"get_weather\"]\n");
    let asked = "say let me look then call get_weather {\"location\": \"Oslo\"}";
    let native = shape(&bridge, "native", asked).await;
    assert_eq!(native[1], "text-start", "{native:?}");
    for dialect in ["adk", "held"] {
        assert_eq!(shape(&bridge, dialect, asked).await, native, "{dialect}");
    }
}

/// The types of the chunks that a client gets, without those of steps and without repetitions.
async fn shape(bridge: &Bridge, dialect: &str, text: &str) -> Vec<String> {
    let mut body = asking(dialect, text);
    body["dialect"] = json!(dialect);
    let mut answer = bridge
        .open("POST", "/api/chat", &[JSON], &body.to_string())
        .await;
    let mut types = types(&answer.events().await);
    types.retain(|kind| !kind.ends_with("-step"));
    types.dedup();
    types
}
