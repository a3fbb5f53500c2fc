//! More clients than the server may answer at once: those that it takes are answered to their end, the others are told so.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::{Method, Response};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::served::{self, Bridge, read, says};

/// How many turns are allowed, and how many clients ask.
const TURNS: usize = 8;
const CLIENTS: usize = 4 * TURNS;
/// What each client wants answered, besides the first question.
const ANSWERS: usize = 3;
/// Several times what a debug build needs for so few turns.
const CEILING: usize = 512 * 1024 * 1024;
/// When to ask again if no answer ends meanwhile.
const AGAIN: Duration = Duration::from_millis(50);
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

/// The same for a minute, with the times of first chunks, is `cargo xtask bench overload`.
#[tokio::test]
async fn four_times_more_clients_than_turns() {
    let dir = TempDir::new().unwrap();
    let config =
        format!("[demo]\npace = \"5ms\"\n[limits]\nturns = {TURNS}\nmemory_bytes = {CEILING}\n");
    let bridge = Bridge::serve(dir.path(), &config);
    bridge.say("asks", says(PAY), "native").await;
    let mut asked = bridge.json("/api/chats/asks").await["messages"][1].clone();

    // All at once, with answers that do not end: as many as are allowed are taken, and nobody else.
    let chats: Vec<String> = (0..CLIENTS).map(|number| format!("c{number}")).collect();
    let answers = join_all(chats.iter().map(|chat| ask(&bridge, chat, "slow 100000"))).await;
    let (mut running, mut refusals) = (Vec::new(), 0);
    for (chat, mut answer) in chats.iter().zip(answers) {
        if answer.status() == 200 {
            assert!(answer.chunk().await.unwrap().is_some(), "{chat}");
            running.push((chat, answer));
            continue;
        }
        refusals += 1;
        assert!(refusal(answer).await.contains("limits.turns = 8"), "{chat}");
    }
    assert_eq!((running.len(), refusals), (TURNS, CLIENTS - TURNS));
    // Nothing is left of them; and a question that waits is answered nevertheless.
    let listed = bridge.json("/api/chats").await;
    assert_eq!(listed.as_array().unwrap().len(), TURNS + 1);
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
    for (chat, mut answer) in running {
        assert!(answer.chunk().await.unwrap().is_some(), "{chat}");
        let path = format!("/api/chat/{chat}/stop");
        let stopped = bridge.request(Method::POST, &path).send().await.unwrap();
        assert_eq!(stopped.status(), 204);
        let rest = answer.text().await.unwrap();
        assert!(rest.trim_end().ends_with("data: [DONE]"), "{chat}: {rest}");
    }
    // Everybody asks again, and whoever is refused asks once more when an answer has ended: all get all of theirs.
    let ended = Notify::new();
    let refused_later = join_all(
        chats
            .iter()
            .map(|chat| answered_in_turn(&bridge, chat, &ended)),
    );
    refusals += refused_later.await.into_iter().sum::<usize>();
    let metrics = bridge.get("/metrics").await.text().await.unwrap();
    // The question of the payment, and its answer.
    for line in [
        format!("turns_started_total {}", 2 + TURNS + CLIENTS * ANSWERS),
        format!("refused_total{{limit=\"turns\"}} {refusals}"),
        "refused_total{limit=\"memory_bytes\"} 0".to_owned(),
        format!("memory_ceiling_bytes {CEILING}"),
    ] {
        let line = format!("adk_bridge_{line}");
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
    #[cfg(target_os = "linux")]
    assert!(bridge.peak() < CEILING, "{}", bridge.peak());
}

/// Asks until all answers have come, whole. Returns how often it was refused.
async fn answered_in_turn(bridge: &Bridge, chat: &str, ended: &Notify) -> usize {
    let mut refusals = 0;
    for number in 0..ANSWERS {
        let text = format!("say this is answer {number} of {chat}");
        loop {
            // Before asking, so that no end is missed.
            let next_end = ended.notified();
            tokio::pin!(next_end);
            next_end.as_mut().enable();
            let answer = ask(bridge, &format!("{chat}-{number}"), &text).await;
            if answer.status() == 200 {
                let stream = answer.text().await.unwrap();
                let said: String = served::chunks(&stream)
                    .iter()
                    .filter_map(|chunk| chunk["delta"].as_str())
                    .collect();
                assert_eq!(format!("say {said}"), text);
                ended.notify_waiters();
                break;
            }
            assert!(refusal(answer).await.contains("limits.turns = 8"));
            refusals += 1;
            // The last one that runs may have ended before its permit was returned.
            tokio::select! {
                () = next_end => {}
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }
    refusals
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
