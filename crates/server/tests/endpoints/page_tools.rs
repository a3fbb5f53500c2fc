//! Tools that a page declares in its requests: called by the model, run by the page, known until others are declared.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::socket::Client;
use crate::support::{Bridge, JSON, asking, folded, text_of, within};

fn tools() -> Value {
    json!([{"name": "open_tab", "description": "Opens a tab of the page.",
            "inputSchema": {"type": "object", "properties": {"tab": {"type": "string"}}}}])
}

fn declaring(chat: &str, text: &str, tools: Value) -> Value {
    let mut request = asking(chat, text);
    request["tools"] = tools;
    request
}

async fn ask(bridge: &Bridge, request: &Value) -> Value {
    let body = request.to_string();
    let mut answer = bridge.open("POST", "/api/chat", &[JSON], &body).await;
    assert_eq!(answer.status, 200, "{request}");
    folded(&answer.events().await)
}

/// The last tool part of a message.
fn call(message: &Value) -> &Value {
    let parts = message["parts"].as_array().unwrap();
    let is_tool = |part: &&Value| part["type"].as_str().unwrap().starts_with("tool-");
    parts.iter().rev().find(is_tool).unwrap()
}

async fn output(bridge: &Bridge, chat: &str, call: &Value) -> u16 {
    let body = json!({"toolCallId": call["toolCallId"], "output": {"opened": true}});
    let path = format!("/api/chat/{chat}/tool-output");
    bridge.post(&path, &body).await.status
}

const OPEN: &str = r#"call open_tab {"tab": "mail"}"#;

#[tokio::test]
async fn the_model_calls_a_tool_of_the_page_until_others_are_declared() {
    let mut bridge = Bridge::start();
    let message = ask(&bridge, &declaring("c", OPEN, tools())).await;
    let called = call(&message);
    assert_eq!(called["type"], "tool-open_tab");
    assert_eq!(called["state"], "input-available");
    assert_eq!(called["input"], json!({"tab": "mail"}));
    // The continuation happens in another process, which has to know the tool to call it again.
    bridge.kill_and_restart();
    assert_eq!(output(&bridge, "c", called).await, 204);
    let message = bridge.settled_message("c").await;
    assert_eq!(call(&message)["output"], json!({"opened": true}));
    let again = ask(&bridge, &asking("c", OPEN)).await;
    assert_eq!(call(&again)["state"], "input-available");
    // Other tools take their place, also while a call of one waits.
    let other = json!([{"name": "close_tab", "approval": true}]);
    let asked = ask(&bridge, &declaring("c", "call close_tab {}", other)).await;
    assert_eq!(call(&asked)["state"], "approval-requested");
    let unknown = ask(&bridge, &asking("c", OPEN)).await;
    assert!(
        !json!(unknown["parts"])
            .to_string()
            .contains("input-available"),
        "{unknown}"
    );
    // None at all.
    let none = ask(&bridge, &declaring("c", "call close_tab {}", json!([]))).await;
    assert!(
        !json!(none["parts"])
            .to_string()
            .contains("approval-requested"),
        "{none}"
    );
    // They are the chat's, not the agent's.
    let other_chat = ask(&bridge, &asking("d", OPEN)).await;
    assert!(
        !json!(other_chat["parts"])
            .to_string()
            .contains("input-available")
    );
    let listed = bridge.get("/api/agent").await.json();
    assert!(!listed["tools"].to_string().contains("_tab"), "{listed}");
}

/// An expired call continues without a request, and the model may call the tool again.
#[tokio::test]
async fn a_continuation_without_a_request_knows_them() {
    let mut bridge = Bridge::configured("[tools]\nclient_timeout = \"1ms\"\n");
    let message = ask(&bridge, &declaring("c", OPEN, tools())).await;
    assert_eq!(call(&message)["type"], "tool-open_tab");
    bridge.kill_and_restart();
    let told = async {
        loop {
            let message = bridge.settled_message("c").await;
            if !text_of(&message).is_empty() {
                return message;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let message = within(told).await;
    assert_eq!(call(&message)["state"], "output-error");
    assert!(text_of(&message).contains("open_tab"), "{message}");
}

#[tokio::test]
async fn tools_that_cannot_be_declared_are_refused_before_anything_happens() {
    let toml = "[[agent.client_tools]]\nname = \"open_door\"\n";
    let bridge = Bridge::configured(toml);
    let many: Vec<Value> = (0..65).map(|n| json!({"name": format!("t{n}")})).collect();
    let cases = [
        (
            json!([{"name": "get_weather"}]),
            422,
            "bad_value",
            "get_weather",
        ),
        (
            json!([{"name": "open_door"}]),
            422,
            "bad_value",
            "open_door",
        ),
        (json!([{"name": "a b"}]), 422, "bad_value", "a b"),
        (
            json!([{"name": "a"}, {"name": "a"}]),
            422,
            "bad_value",
            "\"a\"",
        ),
        (json!([{}]), 422, "wrong_type", "tools[0].name"),
        (
            json!([{"name": "a", "approval": "no"}]),
            422,
            "wrong_type",
            "approval",
        ),
        (
            json!([{"name": "a", "inputSchema": 1}]),
            422,
            "wrong_type",
            "inputSchema",
        ),
        (
            json!([{"name": "a", "description": "x".repeat(70_000)}]),
            413,
            "too_large",
            "65536",
        ),
        (json!(many), 413, "too_large", "65"),
    ];
    let mut live = Client::open(&bridge, "/live?chat=live").await;
    let mut stock = Client::open(&bridge, "/api/chat/ws").await;
    for (tools, status, code, word) in cases {
        let request = declaring("c", "say hi", tools.clone());
        let refusal = bridge.post("/api/chat", &request).await;
        assert_eq!(
            (refusal.status, refusal.code().as_str()),
            (status, code),
            "{word}"
        );
        assert!(refusal.message().contains(word), "{}", refusal.message());
        let messages = &request["messages"];
        live.send(json!({"type": "message", "messages": messages, "tools": tools}))
            .await;
        assert_eq!(live.control().await["code"], code);
        let send = json!({"type": "send", "requestId": "r", "id": "ws", "messages": messages,
                          "trigger": "submit-message", "body": {"tools": tools}});
        stock.send(send).await;
        let error = stock.json().await;
        assert_eq!(error["type"], "error");
        assert!(
            error["errorText"].as_str().unwrap().contains(word),
            "{error}"
        );
    }
    assert_eq!(bridge.get("/api/chats").await.json(), json!([]));
    // Other systems send an object under this name, which is not for the bridge.
    let message = ask(
        &bridge,
        &declaring("c", "say hi", json!({"get_weather": {}})),
    )
    .await;
    assert_eq!(text_of(&message), "hi");
}

#[tokio::test]
async fn sockets_declare_tools_as_requests_do() {
    let bridge = Bridge::start();
    let messages = asking("x", OPEN)["messages"].clone();
    let mut live = Client::open(&bridge, "/live?chat=live").await;
    live.send(json!({"type": "message", "messages": messages, "tools": tools()}))
        .await;
    let (_, chunks) = live.turn().await;
    let called = chunks
        .iter()
        .find(|chunk| chunk["type"] == "tool-input-available");
    let id = called.unwrap()["toolCallId"].clone();
    live.send(json!({"type": "tool_result", "toolCallId": id, "result": {"opened": true}}))
        .await;
    let (_, chunks) = live.turn().await;
    assert_eq!(chunks[1]["type"], "tool-output-available", "{chunks:?}");
    let mut stock = Client::open(&bridge, "/api/chat/ws").await;
    let send = json!({"type": "send", "requestId": "r", "id": "ws", "messages": messages,
                      "trigger": "submit-message", "body": {"tools": tools()}});
    stock.send(send).await;
    let mut frames = String::new();
    loop {
        let frame = stock.json().await;
        frames += &frame.to_string();
        if frame["type"] == "end" {
            break;
        }
    }
    assert!(frames.contains(r#""toolName":"open_tab""#), "{frames}");
}

/// What is declared counts towards what a user may keep.
#[tokio::test]
async fn declared_tools_take_room() {
    let bridge = Bridge::configured("[limits]\nstored_bytes_per_user = 30000\n");
    let large = json!([{"name": "a", "description": "x".repeat(8_000)}]);
    let mut statuses = Vec::new();
    for chat in ["a", "b", "c", "d", "e", "f"] {
        let request = declaring(chat, "say hi", large.clone());
        let answer = bridge.post("/api/chat", &request).await;
        let code = match answer.status {
            200 => String::new(),
            _ => answer.code(),
        };
        statuses.push((answer.status, code));
    }
    assert_eq!(statuses[0].0, 200);
    let full = (429, "storage_full".to_owned());
    assert_eq!(statuses.last(), Some(&full), "{statuses:?}");
    let kept = bridge.get("/api/chats").await.json();
    let taken = statuses.iter().filter(|status| status.0 == 200).count();
    assert_eq!(kept.as_array().unwrap().len(), taken);
    assert!((2..=3).contains(&taken), "{statuses:?}");
}
