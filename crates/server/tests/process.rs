//! What surrounds the chat: metrics, the log, the end of the process, the scripted Gemini as a command.

#![cfg(feature = "demo")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::process::Command;

use adk_bridge_testkit::process::binary;
use adk_bridge_testkit::served::{Bridge, chunks, of_type, read, says, text};
use adk_bridge_testkit::users::{ALICE_KEY as KEY, KEYS};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

const FAST: &str = "[demo]\npace = \"0ms\"\n";

#[tokio::test]
async fn metrics_count_what_happened() {
    let dir = TempDir::new().unwrap();
    let config = format!("{KEYS}{FAST}");
    let mut bridge = Bridge::serve(dir.path(), &config);
    assert_eq!(bridge.get("/metrics").await.status(), 401);
    bridge.with_key(KEY);
    let weather = bridge.say("a", says("weather in Tokyo"), "native").await;
    bridge
        .say("b", says("pay Hanako 50 dollars"), "native")
        .await;
    bridge.say("c", says("http 400"), "native").await;
    let response = bridge.get("/metrics").await;
    assert_eq!(
        response.headers()["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let text = response.text().await.unwrap();
    let value = |name: &str| -> f64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("adk_bridge_{name} ")));
        line.unwrap_or_else(|| panic!("{name} in {text}"))
            .parse()
            .unwrap()
    };
    for (name, expected) in [
        ("turns_started_total", 3.0),
        ("turns_ended_total{result=\"finished\"}", 1.0),
        ("turns_ended_total{result=\"waiting\"}", 1.0),
        ("turns_ended_total{result=\"failed\"}", 1.0),
        ("approvals_total{event=\"requested\"}", 1.0),
        ("approvals_total{event=\"approved\"}", 0.0),
        ("tool_runs_total{event=\"started\"}", 1.0),
        ("tool_runs_total{event=\"finished\"}", 1.0),
        ("agent_failures_total", 1.0),
        ("first_chunk_seconds_count{agent=\"demo\"}", 2.0),
        ("store_seconds_count{operation=\"begin\"}", 3.0),
        ("readers", 0.0),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    // One waits for an answer; the others may have left memory.
    assert!((1.0..=3.0).contains(&value("open_chats")), "{text}");
    assert!(value("chunks_total") >= weather.len() as f64);
    assert!(value("sent_bytes_total") > value("chunks_total"));
}

#[tokio::test]
async fn the_log_names_ids_and_nothing_that_was_said() {
    let dir = TempDir::new().unwrap();
    let config = format!("{KEYS}{FAST}");
    let mut bridge = Bridge::serve(dir.path(), &config);
    bridge.with_key(KEY);
    bridge
        .say(
            "chat-1",
            says("say Rumpelstilzchen then http 400"),
            "native",
        )
        .await;
    let ids = ["mine-17", "not mine\"17"].map(|id| {
        let request = bridge.request(Method::GET, "/api/chats?secret=abc");
        request.header("x-request-id", id)
    });
    let [kept, replaced] = ids;
    let id_of = |response: reqwest::Response| response.headers()["x-request-id"].clone();
    assert_eq!(id_of(kept.send().await.unwrap()), "mine-17");
    let own = id_of(replaced.send().await.unwrap());
    assert!(own.to_str().unwrap().starts_with("req_"));
    bridge.terminate();
    bridge.wait().await;
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    for wanted in [
        "POST /api/chat: 200",
        "GET /api/chats: 200 request=\"mine-17\"",
        "of chat chat-1 ended: failed chat=\"chat-1\"",
    ] {
        assert!(log.contains(wanted), "{wanted} in {log}");
    }
    for secret in ["Rumpelstilzchen", KEY, "secret=abc"] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}

#[tokio::test]
async fn every_signal_that_asks_to_end_is_obeyed_in_order() {
    for name in ["-TERM", "-INT"] {
        let dir = TempDir::new().unwrap();
        let bridge = Bridge::serve(dir.path(), "");
        bridge.signal(name);
        assert_eq!(bridge.wait().await.code(), Some(0), "{name}");
    }
}

#[tokio::test]
async fn a_stop_of_the_server_keeps_the_partial_answer_and_open_questions() {
    let dir = TempDir::new().unwrap();
    let config = "[demo]\npace = \"20ms\"\n";
    let bridge = Bridge::serve(dir.path(), config);
    let asked = bridge
        .say("asked", says("pay Hanako 50 dollars"), "native")
        .await;
    assert_eq!(of_type(&asked, "tool-approval-request").len(), 1);
    let message = json!({"id": "m", "role": "user", "parts": says("long 100000")});
    let body = json!({"id": "cut", "messages": [message]});
    let mut response = bridge.post("/api/chat", &body).await;
    let mut stream = Vec::new();
    while let Some(piece) = response.chunk().await.unwrap() {
        stream.extend_from_slice(&piece);
        let said = String::from_utf8_lossy(&stream);
        if said.matches("text-delta").count() == 3 {
            bridge.terminate();
        }
    }
    let stream = chunks(&String::from_utf8(stream).unwrap());
    let shown = stream.last().unwrap();
    assert_eq!(shown["type"], "error");
    assert!(
        shown["errorText"].as_str().unwrap().contains("restarted"),
        "{shown}"
    );
    assert_eq!(bridge.wait().await.code(), Some(0));

    let bridge = Bridge::serve(dir.path(), config);
    // The chat is taken up at once, but not before the first request: resume waits for that.
    assert_eq!(bridge.get("/api/chat/cut/stream").await.status(), 204);
    let kept = bridge.json("/api/chats/cut").await;
    let answer = &kept["messages"][1];
    assert_eq!(answer["metadata"]["ended"], "interrupted", "{answer}");
    let parts = answer["parts"].as_array().unwrap();
    let kept: Vec<&str> = parts
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect();
    assert_eq!(kept, [text(&stream)]);
    let chats = bridge.json("/api/chats").await;
    let open = chats
        .as_array()
        .unwrap()
        .iter()
        .find(|chat| chat["id"] == "asked");
    assert_eq!(open.unwrap()["pendingApprovals"], 1);
}

#[tokio::test]
async fn the_scripted_gemini_is_a_server_of_its_own() {
    let dir = TempDir::new().unwrap();
    let mut command = Command::new(binary());
    command.args(["fake-gemini", "--pace", "0ms"]);
    let gemini = Bridge::start(dir.path(), &mut command);
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "say hello"}]}]});
    let response = gemini
        .request(
            Method::POST,
            "/v1beta/models/gemini-3.8-flash:generateContent",
        )
        .header("x-goog-api-key", "any")
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let answer: Value = read(response).await;
    assert_eq!(
        answer["candidates"][0]["content"]["parts"][0]["text"],
        "hello"
    );
    gemini.terminate();
    assert_eq!(gemini.wait().await.code(), Some(0));
}
