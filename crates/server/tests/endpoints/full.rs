//! Chats and users that have as much as they may have: what is refused, what is not lost, and what makes room.

use serde_json::{Value, json};

use crate::support::http::Response;
use crate::support::{Bridge, JSON, asking, folded, text_of, types};

const KEYS: &str = "
[[auth.api_keys]]
key = \"alice-secret-0123456789\"
user = \"alice\"
[[auth.api_keys]]
key = \"bob-secret-9876543210\"
user = \"bob\"
";
const ALICE: (&str, &str) = ("authorization", "Bearer alice-secret-0123456789");
const BOB: (&str, &str) = ("authorization", "Bearer bob-secret-9876543210");

fn bridge(limits: &str) -> Bridge {
    Bridge::configured(&format!(
        "{KEYS}[demo]\npace = \"0ms\"\n[limits]\n{limits}\n"
    ))
}

/// A message with so many bytes that say nothing, and what it says.
fn long(id: &str, bytes: usize, says: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [
        {"type": "data-x", "data": "x".repeat(bytes)}, {"type": "text", "text": says}]})
}

async fn post(bridge: &Bridge, user: (&str, &str), chat: &str, messages: &[Value]) -> Response {
    let body = json!({"id": chat, "messages": messages}).to_string();
    bridge.send("POST", "/api/chat", &[JSON, user], body).await
}

async fn shown(bridge: &Bridge, chat: &str) -> Value {
    let path = format!("/api/chats/{chat}");
    bridge.send("GET", &path, &[ALICE], "").await.json()
}

#[track_caller]
fn assert_full(refused: &Response) {
    let said = (refused.status, refused.code());
    assert_eq!(said, (422, "chat_full".to_owned()), "{refused:?}");
    let said = refused.message();
    assert!(said.contains("limits.chat_bytes") && said.contains("start a new chat"));
}

/// Messages count as files do: after a crash, and until their chat is deleted.
#[tokio::test]
async fn messages_of_one_user_are_bounded() {
    let mut bridge = bridge("stored_bytes_per_user = 5000");
    let say = |id: &str| [long(id, 1_500, "say hi")];
    assert_eq!(post(&bridge, ALICE, "one", &say("u1")).await.status, 200);
    assert_eq!(post(&bridge, ALICE, "two", &say("u1")).await.status, 200);
    for restarts in 0..2 {
        let refused = post(&bridge, ALICE, "two", &say("u2")).await;
        let said = (refused.status, refused.code());
        assert_eq!(
            said,
            (429, "storage_full".to_owned()),
            "{restarts} restarts"
        );
        assert!(refused.message().contains("limits.stored_bytes_per_user"));
        let chat = shown(&bridge, "two").await;
        assert_eq!(chat["messages"].as_array().unwrap().len(), 2);
        // A short one fits.
        let short = [long(&format!("s{restarts}"), 1, "say hi")];
        assert_eq!(post(&bridge, ALICE, "three", &short).await.status, 200);
        bridge.kill_and_restart();
    }
    assert_eq!(post(&bridge, BOB, "his", &say("u1")).await.status, 200);
    let deleted = bridge.send("DELETE", "/api/chats/one", &[ALICE], "").await;
    assert_eq!(deleted.status, 204);
    assert_eq!(post(&bridge, ALICE, "two", &say("u2")).await.status, 200);
}

#[tokio::test]
async fn messages_of_all_users_are_bounded() {
    let bridge = bridge("stored_bytes = 5000");
    let say = |id: &str| [long(id, 3_000, "say hi")];
    assert_eq!(post(&bridge, ALICE, "one", &say("u1")).await.status, 200);
    let refused = post(&bridge, BOB, "his", &say("u1")).await;
    let code = refused.header("x-error-code");
    assert_eq!((refused.status, code), (503, Some("storage_full")));
    assert!(refused.message().contains("(limits.stored_bytes)"));
}

#[tokio::test]
async fn a_full_chat_takes_no_more_and_loses_nothing() {
    let bridge = bridge("chat_bytes = 10000");
    let first = long("u1", 6_000, "say one");
    assert_eq!(
        post(&bridge, ALICE, "c", std::slice::from_ref(&first))
            .await
            .status,
        200
    );
    let before = shown(&bridge, "c").await;
    for messages in [
        vec![long("u2", 6_000, "say two")],
        vec![
            first,
            before["messages"][1].clone(),
            long("u2", 6_000, "say two"),
        ],
    ] {
        assert_full(&post(&bridge, ALICE, "c", &messages).await);
        assert_eq!(shown(&bridge, "c").await, before);
    }
    // A new chat that would be too long from its beginning.
    assert_full(&post(&bridge, ALICE, "new", &[long("u1", 11_000, "say one")]).await);
    let path = "/api/chats/new";
    assert_eq!(bridge.send("GET", path, &[ALICE], "").await.status, 404);
    // Short words fit, and so does a message in place of the first one.
    let short = [long("u2", 10, "say two")];
    assert_eq!(post(&bridge, ALICE, "c", &short).await.status, 200);
    let edited = [long("u1", 8_000, "say else")];
    assert_eq!(post(&bridge, ALICE, "c", &edited).await.status, 200);
    let chat = shown(&bridge, "c").await;
    assert_eq!(chat["messages"].as_array().unwrap().len(), 2);
    assert_eq!(text_of(&chat["messages"][1]), "else");
    // A list without what was said before makes room as well.
    let other = [long("u0", 10, "say zero"), long("u3", 6_000, "say three")];
    assert_full(&post(&bridge, ALICE, "c", &other[1..]).await);
    assert_eq!(post(&bridge, ALICE, "new", &other).await.status, 200);
}

#[tokio::test]
async fn an_answer_ends_where_its_chat_is_full() {
    let bridge = bridge("chat_bytes = 80000");
    let mut answer = bridge
        .open(
            "POST",
            "/api/chat",
            &[JSON, ALICE],
            &asking("c", "long 20000").to_string(),
        )
        .await;
    let events = answer.events().await;
    assert!(
        events
            .iter()
            .any(|event| event.contains("\"finishReason\":\"length\""))
    );
    assert!(!types(&events).contains(&"error".to_owned()));
    let text = text_of(&folded(&events));
    assert!(
        text.len() > 70_000 && text.len() < 100_000,
        "{}",
        text.len()
    );
    let chat = shown(&bridge, "c").await;
    assert_eq!(text_of(&chat["messages"][1]), text);
    assert_full(&post(&bridge, ALICE, "c", &[long("u2", 10, "say on")]).await);
}

#[tokio::test]
async fn an_output_that_is_too_long_leaves_its_call_open() {
    let bridge = bridge("chat_bytes = 100000");
    let ask = asking("c", r#"call change_bgm {"track": 1}"#).to_string();
    let asked = bridge.send("POST", "/api/chat", &[JSON, ALICE], ask).await;
    assert_eq!(asked.status, 200);
    let before = shown(&bridge, "c").await;
    let mut message = before["messages"][1].clone();
    let parts = message["parts"].as_array_mut().unwrap();
    let part = parts
        .iter_mut()
        .find(|it| it["toolCallId"].is_string())
        .unwrap();
    let call = part["toolCallId"].clone();
    let output = json!("x".repeat(150_000));
    part["state"] = json!("output-available");
    part["output"] = output.clone();
    let path = "/api/chat/c/tool-output";
    let body = json!({"toolCallId": call, "output": output}).to_string();
    assert_full(&bridge.send("POST", path, &[JSON, ALICE], body).await);
    assert_full(&post(&bridge, ALICE, "c", &[message]).await);
    assert_eq!(shown(&bridge, "c").await, before);
    let body = json!({"toolCallId": call, "output": "done"}).to_string();
    let taken = bridge.send("POST", path, &[JSON, ALICE], body).await;
    assert_eq!(taken.status, 204);
}

/// Answers that together take more memory than there may be wait for each other, and all of them come to their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_find_no_room_wait_and_complete() {
    const WORDS: usize = 20_000;
    let bridge =
        bridge("chat_bytes = 500000\nloaded_bytes = 1500000\nloaded_bytes_per_user = 600000");
    let bodies: Vec<String> = (0..4)
        .map(|number| asking(&format!("c{number}"), &format!("long {WORDS}")).to_string())
        .collect();
    let asked = bodies
        .iter()
        .map(|body| bridge.open("POST", "/api/chat", &[JSON, ALICE], body));
    let answers = futures_util::future::join_all(asked).await;
    let read = answers.into_iter().map(|mut answer| async move {
        assert_eq!(answer.status, 200);
        text_of(&folded(&answer.events().await))
    });
    for text in futures_util::future::join_all(read).await {
        assert_eq!(text, crate::support::words(WORDS));
    }
}
