//! A real bridge with MCP servers: ones that answer, crash, hang, change and lie.
//!
//! | module | holds |
//! |---|---|
//! | `scripted` | a program that is such a server |
//! | `tools` | calls, approval, and what results become |
//! | `elicitation` | what a server asks the user while its tool runs, and how far it is |
//! | `faults` | servers that end, hang, send too much, or are not there |
//! | `over_http` | the same over HTTP |
//! | `settings` | configurations that cannot be used |

#![cfg(feature = "demo")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use adk_bridge_testkit::{Bridge, folded, within};
use serde_json::{Value, json};
use tempfile::TempDir;

mod elicitation;
mod faults;
mod over_http;
mod scripted;
mod settings;
mod tools;

/// A bridge with one scripted server named `mine`, which is there.
async fn bridge(manner: &str, more: &str) -> (Bridge, TempDir) {
    let records = TempDir::new().unwrap();
    let toml = scripted::server("mine", manner, records.path(), more);
    let bridge = Bridge::configured(&toml);
    // On a busy machine, a server may come later than the bridge waits for it.
    until_available(&bridge).await;
    (bridge, records)
}

/// The tool part of an answer to `call NAME {arguments}`.
async fn call(bridge: &Bridge, chat: &str, tool: &str, arguments: &Value) -> Value {
    let mut answer = bridge.ask(chat, &format!("call {tool} {arguments}")).await;
    assert_eq!(answer.status, 200);
    let message = folded(&answer.events().await);
    tool_part(&message)
}

fn tool_part(message: &Value) -> Value {
    let parts = message["parts"].as_array().unwrap();
    let is_tool = |part: &&Value| part["toolCallId"].is_string();
    parts.iter().find(is_tool).unwrap().clone()
}

/// Posts the last message of a chat with a decision, and returns its tool part after it.
async fn decide(bridge: &Bridge, chat: &str, approved: bool) -> Value {
    let stored = bridge.get(&format!("/api/chats/{chat}")).await.json();
    let mut messages = stored["messages"].clone();
    let last = messages.as_array_mut().unwrap().last_mut().unwrap();
    for part in last["parts"].as_array_mut().unwrap() {
        if part["state"] == "approval-requested" {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(approved);
        }
    }
    let body = json!({"id": chat, "trigger": "submit-message", "messages": messages});
    let answer = bridge.post("/api/chat", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.message());
    tool_part(&bridge.settled_message(chat).await)
}

/// The names of the tools of the default agent that begin like this.
async fn offered(bridge: &Bridge, prefix: &str) -> Vec<String> {
    let agent = bridge.get("/api/agent").await.json();
    let tools = agent["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    let names = names.filter(|name| name.starts_with(prefix));
    names.map(str::to_owned).collect()
}

/// Waits until something holds.
async fn until<F: Future<Output = bool>>(what: impl Fn() -> F) {
    within(async {
        while !what().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Waits until the servers of a bridge are available.
async fn until_available(bridge: &Bridge) {
    until(|| async { bridge.get("/ready").await.json()["unavailableTools"].is_null() }).await;
}

fn received(records: &TempDir) -> Vec<Value> {
    scripted::received("mine", records.path())
}

fn calls(records: &Path, tool: &str) -> usize {
    scripted::calls("mine", tool, records)
}
