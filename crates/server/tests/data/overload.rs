//! More clients than the server may answer at once: those that it takes are answered to their end, the others are told so.

use reqwest::{Method, Response};
use serde_json::json;
use tempfile::TempDir;

use crate::served::{Bridge, read, says};

/// How many turns are allowed.
const TURNS: usize = 4;
const PAY: &str = "call process_payment {\"amount\": 5, \"recipient\": \"Hanako\"}";

async fn ask(bridge: &Bridge, chat: &str, text: &str) -> Response {
    let message =
        json!({"id": format!("{chat}-{}", text.len()), "role": "user", "parts": says(text)});
    let body = json!({"id": chat, "messages": [message]});
    bridge.post("/api/chat", &body).await
}

/// What a client is told that is not answered now.
async fn refusal(response: Response) -> String {
    assert_eq!(response.status(), 503);
    let wait = response.headers()["retry-after"].to_str().unwrap();
    assert!(wait.parse::<u64>().unwrap() > 0);
    let body = read(response).await;
    assert_eq!(body["error"]["code"], "unavailable");
    body["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn four_times_more_clients_than_turns() {
    let dir = TempDir::new().unwrap();
    let config = format!("[demo]\npace = \"5ms\"\n[limits]\nturns = {TURNS}\n");
    let bridge = Bridge::serve(dir.path(), &config);
    bridge.say("asks", says(PAY), "native").await;
    let mut asked = bridge.json("/api/chats/asks").await["messages"][1].clone();

    let mut running = Vec::new();
    for number in 0..TURNS {
        let mut answer = ask(&bridge, &format!("c{number}"), "slow 100000").await;
        assert_eq!(answer.status(), 200);
        assert!(answer.chunk().await.unwrap().is_some());
        running.push(answer);
    }
    for number in TURNS..4 * TURNS {
        let refused = ask(&bridge, &format!("c{number}"), "say hi").await;
        assert!(refusal(refused).await.contains("limits.turns = 4"));
    }
    // Nothing is left of them; and a question that waits is answered nevertheless.
    let chats = bridge.json("/api/chats").await;
    assert_eq!(chats.as_array().unwrap().len(), TURNS + 1);
    let parts = asked["parts"].as_array_mut().unwrap();
    let part = parts
        .iter_mut()
        .find(|it| it["type"] == "tool-process_payment");
    let part = part.unwrap();
    part["state"] = json!("approval-responded");
    part["approval"]["approved"] = json!(true);
    let body = json!({"id": "asks", "messages": [asked]});
    let answered = bridge.post("/api/chat", &body).await;
    assert_eq!(answered.status(), 200);
    let text = answered.text().await.unwrap();
    assert!(text.contains("tool-output-available"), "{text}");

    // Those that were taken go on to their ends.
    for (number, mut answer) in running.into_iter().enumerate() {
        assert!(answer.chunk().await.unwrap().is_some(), "{number}");
        let path = format!("/api/chat/c{number}/stop");
        let stopped = bridge.request(Method::POST, &path).send().await.unwrap();
        assert_eq!(stopped.status(), 204);
        let rest = answer.text().await.unwrap();
        assert!(
            rest.trim_end().ends_with("data: [DONE]"),
            "{number}: {rest}"
        );
    }
    // There is room again, for each that was refused.
    for number in TURNS..4 * TURNS {
        let answer = ask(&bridge, &format!("c{number}"), "say hi").await;
        assert_eq!(answer.status(), 200);
        assert!(answer.text().await.unwrap().contains("[DONE]"));
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_turn_begins_when_memory_is_short() {
    let dir = TempDir::new().unwrap();
    // Less than any process has.
    let bridge = Bridge::serve(dir.path(), "[limits]\nmemory_bytes = 1000000\n");
    let refused = ask(&bridge, "c", "say hi").await;
    let said = refusal(refused).await;
    assert!(said.contains("limits.memory_bytes"), "{said}");
    // Everything else is as it was.
    assert_eq!(bridge.json("/api/chats").await, json!([]));
    assert_eq!(bridge.get("/ready").await.status(), 200);
}
