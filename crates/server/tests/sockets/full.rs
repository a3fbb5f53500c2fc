//! Chats that are as long as they may be, over `/live` and the AI SDK's own transport.

use serde_json::{Value, json};

use crate::client::Client;
use crate::support::{Bridge, within};

const LIMITS: &str = "[demo]\npace = \"0ms\"\n[limits]\nchat_bytes = 10000\n";

fn long(id: &str, bytes: usize, says: &str) -> Value {
    json!([{"id": id, "role": "user", "parts": [
        {"type": "data-x", "data": "x".repeat(bytes)}, {"type": "text", "text": says}]}])
}

fn said(chunks: &[Value]) -> String {
    chunks
        .iter()
        .filter_map(|it| it["delta"].as_str())
        .collect()
}

#[tokio::test]
async fn a_full_chat_refuses_a_live_message_and_goes_on() {
    let bridge = Bridge::configured(LIMITS);
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    client
        .send(json!({"type": "message", "messages": long("u1", 6_000, "say one")}))
        .await;
    assert_eq!(said(&client.turn().await.1), "one");
    let before = bridge.get("/api/chats/c").await.json();
    client
        .send(
            json!({"type": "message", "requestId": "r", "messages": long("u2", 6_000, "say two")}),
        )
        .await;
    let refused = client.control().await;
    assert_eq!(refused["type"], "error", "{refused}");
    assert_eq!(refused["code"], "chat_full", "{refused}");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("limits.chat_bytes")
    );
    assert_eq!(bridge.get("/api/chats/c").await.json(), before);
    client
        .send(json!({"type": "message", "messages": long("u2", 10, "say two")}))
        .await;
    assert_eq!(said(&client.turn().await.1), "two");
}

#[tokio::test]
async fn an_output_that_is_too_long_is_refused_and_the_call_stays_open() {
    let bridge = Bridge::configured(&LIMITS.replace("10000", "100000"));
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    client
        .send(json!({"type": "message", "messages": long("u1", 10, "call change_bgm {\"track\": 1}")}))
        .await;
    let (_, chunks) = client.turn().await;
    let call = chunks.iter().find_map(|it| it.get("toolCallId")).unwrap();
    let result = |output: Value| json!({"type": "tool_result", "toolCallId": call, "status": "approved", "result": output});
    client.send(result(json!("x".repeat(150_000)))).await;
    let refused = client.control().await;
    assert_eq!(refused["code"], "chat_full", "{refused}");
    client.send(result(json!("done"))).await;
    let (_, chunks) = client.turn().await;
    assert!(
        chunks
            .iter()
            .any(|it| it["type"] == "tool-output-available")
    );
}

#[tokio::test]
async fn a_full_chat_refuses_a_request_of_the_stock_transport() {
    let bridge = Bridge::configured(LIMITS);
    let mut client = Client::open(&bridge, "/api/chat/ws").await;
    let send = |request: &str, bytes: usize, says: &str| {
        json!({"type": "send", "requestId": request, "id": "c", "trigger": "submit-message",
               "messages": long(&format!("u-{request}"), bytes, says), "headers": {}, "body": {}})
    };
    for (request, bytes, ends) in [("a", 6_000, "end"), ("b", 6_000, "error"), ("c", 10, "end")] {
        client.send(send(request, bytes, "say hi")).await;
        let last = loop {
            let frame = client.json().await;
            assert_eq!(frame["requestId"], request, "{frame}");
            if frame["type"] == "end" || frame["type"] == "error" {
                break frame;
            }
        };
        assert_eq!(last["type"], ends, "{last}");
        assert_eq!(
            last.to_string().contains("limits.chat_bytes"),
            ends == "error"
        );
    }
}

const PAY: &str = "call process_payment {\"amount\": 5, \"recipient\": \"x\"}";

/// Waits until no chat is in memory.
async fn rests(bridge: &Bridge) {
    let rests = async {
        loop {
            let metrics = bridge.get("/metrics").await.body;
            let held = "adk_bridge_loaded_bytes 0\n";
            if String::from_utf8_lossy(&metrics).contains(held) {
                break;
            }
        }
    };
    within(rests).await;
}

async fn audited(bridge: &Bridge, chat: &str) -> Vec<Value> {
    let rows = bridge.get(&format!("/api/audit?chat={chat}")).await.json();
    let rows = rows.as_array().unwrap();
    rows.iter().map(|row| row["kind"].clone()).collect()
}

/// A question is let go of while nobody answers, and answered all the same.
#[tokio::test]
async fn a_chat_that_rests_is_there_again_when_it_is_needed() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    client.say(PAY).await;
    let (_, chunks) = client.turn().await;
    let asked = chunks
        .iter()
        .find(|it| it["type"] == "tool-approval-request");
    let call = asked.unwrap()["toolCallId"].clone();
    rests(&bridge).await;
    client.check_alive().await;
    client
        .send(json!({"type": "tool_result", "toolCallId": call, "status": "approved"}))
        .await;
    let (_, chunks) = client.turn().await;
    assert!(
        chunks
            .iter()
            .any(|it| it["type"] == "tool-output-available"),
        "{chunks:?}"
    );
    assert_eq!(
        audited(&bridge, "c").await,
        [
            "approval.requested",
            "approval.approved",
            "tool.started",
            "tool.finished"
        ]
    );
}

/// What time and its user bring to a chat that rests is recorded as it would be otherwise.
#[tokio::test]
async fn a_question_of_a_chat_that_rests_expires_and_is_withdrawn() {
    let bridge = Bridge::configured("[approval]\ntimeout = \"12s\"\n");
    for chat in ["expires", "stopped", "deleted"] {
        let answer = bridge.ask(chat, PAY).await.whole().await;
        assert_eq!(answer.status, 200);
    }
    rests(&bridge).await;
    let stopped = bridge.send("POST", "/api/chat/stopped/stop", &[], "").await;
    assert_eq!(stopped.status, 204);
    let deleted = bridge.send("DELETE", "/api/chats/deleted", &[], "").await;
    assert_eq!(deleted.status, 204);
    for chat in ["stopped", "deleted"] {
        let kinds = audited(&bridge, chat).await;
        assert_eq!(kinds.len(), 2, "{chat}: {kinds:?}");
    }
    let expired = async { while audited(&bridge, "expires").await.len() < 2 {} };
    within(expired).await;
    let kinds = audited(&bridge, "expires").await;
    assert_eq!(kinds, ["approval.requested", "approval.expired"]);
}
