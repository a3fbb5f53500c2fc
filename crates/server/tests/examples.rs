//! The examples as a Rust team would copy them: an agent and a tool of their own, served to a front end.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "../examples/own_agent.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "its main function is not run here"
)]
mod own_agent;
#[path = "../../../examples/rust/src/main.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "its main function is not run here"
)]
mod own_tool;

use std::net::SocketAddr;

use adk_bridge::config::Config;
use adk_bridge::{Server, StartError};
use adk_bridge_demo::scripted_gemini::{Options, serve};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

#[tokio::test]
async fn an_agent_of_ones_own_answers() {
    let directory = TempDir::new().unwrap();
    let server = own_agent::bridge(config(&directory)).build().await.unwrap();
    let bridge = Bridge::serve(server);
    let agent = bridge.get("/api/agent").await;
    assert_eq!(
        (&agent["name"], &agent["tools"]),
        (&json!("echo"), &json!([]))
    );
    let chunks = bridge.post(&[user("u1", "good morning, echo")]).await;
    let words: Vec<&str> = chunks
        .iter()
        .filter_map(|chunk| chunk["delta"].as_str())
        .collect();
    assert_eq!(words.concat(), "good morning, echo", "{chunks:#?}");
    let last = chunks.last().unwrap();
    assert_eq!(
        (&last["type"], &last["finishReason"]),
        (&json!("finish"), &json!("stop"))
    );
    // What an agent says of its failure reaches the user.
    let file =
        json!({"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,aGk="});
    let wordless = json!({"id": "u2", "role": "user", "parts": [file]});
    let chunks = bridge.post(&[wordless]).await;
    let error = chunks.last().unwrap()["errorText"].as_str().unwrap();
    assert!(error.contains("an echo needs words"), "{error}");
    bridge.stop().await;
}

#[tokio::test]
async fn a_tool_of_ones_own_runs_once_it_is_approved() {
    let directory = TempDir::new().unwrap();
    let mut config = config(&directory);
    config.agent.kind = "gemini".into();
    config.agent.base_url = Some(scripted_gemini().await);
    // Any variable that is set: the scripted model takes every key.
    config.agent.api_key_env = Some("PATH".into());
    let server = own_tool::bridge(config).build().await.unwrap();
    let bridge = Bridge::serve(server);
    let agent = bridge.get("/api/agent").await;
    let tools = agent["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1, "no other tool is offered: {tools:?}");
    assert_eq!(tools[0]["name"], "refund_order");
    assert_eq!(tools[0]["needsApproval"], true);

    let asks = "call refund_order {\"order\": \"A-17\", \"amount\": 25}";
    let mut messages = Vec::new();
    // The chat remembers what was given back before.
    for (approved, refunded) in [(true, Some(25.0)), (false, None), (true, Some(50.0))] {
        messages.push(user(&format!("u{}", messages.len()), asks));
        let chunks = bridge.post(&messages).await;
        assert_eq!(count(&chunks, "tool-approval-request"), 1, "{chunks:#?}");
        assert_eq!(count(&chunks, "tool-output-available"), 0, "{chunks:#?}");
        messages = bridge.messages().await;
        decide(messages.last_mut().unwrap(), approved);
        let chunks = bridge.post(&messages).await;
        let outputs = chunks.iter().filter_map(|chunk| chunk.get("output"));
        let expected = refunded.map(|sum| json!({"refunded": sum}));
        assert_eq!(
            outputs.collect::<Vec<_>>(),
            Vec::from_iter(&expected),
            "{chunks:#?}"
        );
        assert_eq!(chunks.last().unwrap()["type"], "finish", "{chunks:#?}");
        messages = bridge.messages().await;
    }
    bridge.stop().await;
}

fn config(directory: &TempDir) -> Config {
    let mut config = Config::default();
    config.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.server.data_dir = directory.path().join("data");
    config
}

async fn scripted_gemini() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = Options {
        pace: std::time::Duration::ZERO,
        ..Options::default()
    };
    tokio::spawn(serve(listener, options, std::future::pending()));
    format!("http://{address}")
}

/// A server that answers until it is stopped.
struct Bridge {
    address: SocketAddr,
    http: reqwest::Client,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), StartError>>,
}

impl Bridge {
    fn serve(server: Server) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self {
            address: server.address(),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            stop,
            serving: tokio::spawn(server.serve_until(async {
                let _ = stopped.await;
            })),
        }
    }

    async fn get(&self, path: &str) -> Value {
        let url = format!("http://{}{path}", self.address);
        let response = self.http.get(url).send().await.unwrap();
        assert_eq!(response.status(), 200);
        serde_json::from_str(&response.text().await.unwrap()).unwrap()
    }

    /// The chat as a front end finds it again.
    async fn messages(&self) -> Vec<Value> {
        let chat = self.get("/api/chats/chat-1").await;
        chat["messages"].as_array().unwrap().clone()
    }

    /// Posts as `useChat` does, and reads the stream to its end.
    async fn post(&self, messages: &[Value]) -> Vec<Value> {
        let request = self.http.post(format!("http://{}/api/chat", self.address));
        let request = request.header("content-type", "application/json");
        let body = json!({"id": "chat-1", "messages": messages}).to_string();
        let response = request.body(body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let stream = response.text().await.unwrap();
        let data = stream
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        let chunks = data.filter(|data| *data != "[DONE]");
        chunks
            .map(|chunk| serde_json::from_str(chunk).unwrap())
            .collect()
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap().unwrap();
    }
}

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]})
}

fn count(chunks: &[Value], kind: &str) -> usize {
    chunks.iter().filter(|chunk| chunk["type"] == kind).count()
}

/// Writes the user's decision into a message that asks.
fn decide(message: &mut Value, approved: bool) {
    let parts = message["parts"].as_array_mut().unwrap();
    let tool = parts
        .iter_mut()
        .find(|part| part["state"] == "approval-requested")
        .unwrap();
    tool["state"] = json!("approval-responded");
    tool["approval"]["approved"] = json!(approved);
}
