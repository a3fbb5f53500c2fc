//! Every endpoint of a chat at a replica that does not own it: the client cannot tell the difference.

use std::sync::Arc;

use adk_bridge_testkit::users::{ALICE, BOB, BOB_KEY};
use adk_bridge_testkit::{JSON, asking, folded, text_of};
use serde_json::{Value, json};

use crate::rig::Fleet;

const PAYMENT: &str = r#"call process_payment {"amount": 5, "recipient": "Hanako"}"#;
/// How many races one run tries; the issue asks for a thousand, which `RACES=1000` runs.
const RACES: usize = 40;

#[tokio::test]
async fn a_turn_is_begun_read_and_stopped_through_any_replica() {
    let (fleet, a, b) = Fleet::pair("").await;
    let mut owned = a.ask("c", "slow 100000").await;
    owned.event().await.unwrap();
    assert_eq!(fleet.owners.owner_of("c"), Some(a.address));

    // Reading along.
    let mut resumed = b.open("GET", "/api/chat/c/stream", "").await;
    assert_eq!(resumed.status, 200);
    for (name, value) in [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("x-vercel-ai-ui-message-stream", "v1"),
        ("x-chat-id", "c"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(resumed.header(name), Some(value));
    }
    resumed.events_until("text-delta").await;
    // Another user sees nothing of it.
    let other = b
        .send_with("GET", "/api/chat/c/stream", &[BOB], "")
        .await
        .status;
    assert_eq!(other, 204);
    let listed = b.send("GET", "/api/chats/c", "").await;
    assert_eq!(listed.json()["messages"].as_array().unwrap().len(), 1);
    // A refusal has the words and the form of the owner.
    let output = json!({"toolCallId": "none", "output": 1});
    let refused = b.post("/api/chat/c/tool-output", &output).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (404, "not_found")
    );

    assert_eq!(b.send("POST", "/api/chat/c/stop", "").await.status, 204);
    for mut answer in [owned, resumed] {
        assert_eq!(answer.events().await.last().unwrap(), "[DONE]");
    }
    assert_eq!(fleet.owners.owner_of("c"), Some(a.address));
    for (kind, count) in [("resume", 1), ("stored", 1), ("answer", 1), ("stop", 1)] {
        let name = format!("adk_bridge_forwarded_requests_total{{kind=\"{kind}\"}}");
        assert_eq!(b.count(&name).await, count, "{kind}");
        assert_eq!(a.count(&name).await, 0, "{kind}");
    }
    assert_eq!(b.send("DELETE", "/api/chats/c", "").await.status, 204);
    assert_eq!(a.send("GET", "/api/chats/c", "").await.status, 404);
}

#[tokio::test]
async fn a_decision_at_another_replica_counts_and_the_next_message_follows_it() {
    let (fleet, a, b) = Fleet::pair("").await;
    let events = a.ask("c", PAYMENT).await.events().await;
    let (question, asked) = asked(&events);
    let answered = b.post("/api/chat", &decided(&question, asked, true)).await;
    assert_eq!(answered.status, 200);
    let events = events_of(&answered.body);
    assert!(events.iter().any(|it| it.contains("tool-output-available")));
    assert_eq!(fleet.owners.owner_of("c"), Some(a.address));
    let said = b.ask("c", "say hi").await.events().await;
    assert_eq!(text_of(&folded(&said)), "hi");
}

/// The refusal of a request has the form that its client wants, whoever refuses it.
#[tokio::test]
async fn a_refusal_comes_back_as_it_is() {
    let (_fleet, a, b) = Fleet::pair("").await;
    let mut busy = a.ask("c", "slow 100000").await;
    busy.event().await.unwrap();
    let body = json!({"id": "c", "messages": [{"id": "x", "role": "user", "parts": []}]});
    for replica in [&a, &b] {
        let refused = replica.post("/api/chat", &body).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (422, "bad_message")
        );
        assert!(refused.is_in_words(), "{refused:?}");
        let headers = [JSON, ("accept", "application/json"), ALICE];
        let refused = replica
            .send_with("POST", "/api/chat", &headers, body.to_string())
            .await;
        assert_eq!(refused.json()["error"]["code"], "bad_message");
    }
}

/// Two contradicting answers to one question at the same moment, each at another replica: one counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_answers_at_two_replicas_one_counts() {
    let races = std::env::var("RACES").ok().and_then(|it| it.parse().ok());
    // Each race has a loser.
    let limits = "[limits]\nrefused_answers_per_minute = 100000\n";
    let (fleet, a, b) = Fleet::pair(limits).await;
    let (a, b) = (Arc::new(a), Arc::new(b));
    for race in 0..races.unwrap_or(RACES) {
        let chat = format!("c{race}");
        let mut answer = a.ask(&chat, PAYMENT).await;
        assert_eq!(answer.status, 200, "{race}");
        let events = answer.events().await;
        let (mut question, asked) = asked(&events);
        question["id"] = json!(chat);
        let mut racers = Vec::new();
        for (replica, approved) in [(&a, race % 2 == 0), (&b, race % 2 == 1)] {
            let (replica, body) = (replica.clone(), decided(&question, asked.clone(), approved));
            racers.push(tokio::spawn(async move {
                (approved, replica.post("/api/chat", &body).await)
            }));
        }
        let mut answers = Vec::new();
        for racer in racers {
            answers.push(racer.await.unwrap());
        }
        let audit = b.send("GET", &format!("/api/audit?chat={chat}"), "").await;
        let audit = audit.json();
        let kinds = |kind: &str| {
            let rows = audit.as_array().unwrap().iter();
            rows.filter(|row| row["kind"] == kind).count()
        };
        let (yes, no) = (kinds("approval.approved"), kinds("approval.denied"));
        assert_eq!(yes + no, 1, "{race}: {audit}");
        assert_eq!(kinds("tool.started"), yes, "{race}: {audit}");
        // The one that did not count was told: refused, or shown what was decided.
        let counted = yes == 1;
        for (approved, answer) in answers {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let shows = match counted {
                true => text.contains("tool-output-available"),
                false => text.contains("tool-output-denied"),
            };
            let is_told = match approved == counted {
                true => shows,
                false => shows || answer.status == 409,
            };
            assert!(
                is_told,
                "{race} {approved} {counted}: {} {text}",
                answer.status
            );
        }
        assert_eq!(kinds("answer.refused"), 1, "{race}: {audit}");
    }
    drop(fleet);
}

/// What every replica answers needs no owner, and costs no hop.
#[tokio::test]
async fn what_is_stored_is_read_anywhere() {
    let (_fleet, a, b) = Fleet::pair("").await;
    let mut owned = a.ask("c", "slow 100000").await;
    owned.event().await.unwrap();
    let upload = b
        .send_with(
            "POST",
            "/api/files?chat=c",
            &[ALICE, ("content-type", "text/plain")],
            "hello",
        )
        .await;
    assert!(upload.status < 500, "{upload:?}");
    for path in ["/api/chats", "/api/audit?chat=c", "/api/agents"] {
        assert_eq!(b.send("GET", path, "").await.status, 200, "{path}");
    }
    let title = json!({"title": "a title"}).to_string();
    assert_eq!(b.send("PATCH", "/api/chats/c", title).await.status, 204);
    let chats = a.send("GET", "/api/chats", "").await.json();
    assert_eq!(chats[0]["title"], "a title");
    let name = "adk_bridge_forwarded_bytes_total{direction=\"received\"}";
    assert_eq!(b.count(name).await, 0);
}

/// Bob's requests reach his chat, not Alice's of the same name, through whichever replica.
#[tokio::test]
async fn the_owner_knows_whose_request_it_is() {
    let (_fleet, a, b) = Fleet::pair("").await;
    let mut hers = a.ask("c", "slow 100000").await;
    hers.event().await.unwrap();
    let key = format!("Bearer {BOB_KEY}");
    let bob = [("authorization", key.as_str()), JSON];
    let body = asking("c", "say mine").to_string();
    let his = a.send_with("POST", "/api/chat", &bob, &body).await;
    assert_eq!(his.status, 200);
    let listed = b.send_with("GET", "/api/chats/c", &bob, "").await.json();
    assert_eq!(text_of(&listed["messages"][1]), "mine");
    let no_key = b.send_with("GET", "/api/chats/c", &[], "").await;
    assert_eq!(no_key.status, 401);
}

/// A request that is larger than all buffers on its way arrives whole.
#[tokio::test]
async fn a_large_request_is_passed_on_whole() {
    let (_fleet, a, b) = Fleet::pair("").await;
    let mut owned = a.ask("c", "slow 100000").await;
    owned.event().await.unwrap();
    let mut body = asking("c", "say hi");
    body["padding"] = json!("x".repeat(3_000_000));
    let mut said = b.open("POST", "/api/chat", &body.to_string()).await;
    assert_eq!(text_of(&folded(&said.events().await)), "hi");
    let sent = "adk_bridge_forwarded_bytes_total{direction=\"sent\"}";
    assert!(b.count(sent).await > 3_000_000);
}

/// The limits of turns are those of the owner: whoever passes a request on has no turn.
#[tokio::test]
async fn a_replica_without_room_for_a_turn_passes_requests_on() {
    let (_fleet, a, b) = Fleet::pair("[limits]\nturns = 1\n").await;
    let mut theirs = a.ask("theirs", "slow 100000").await;
    theirs.event().await.unwrap();
    let mut ours = b.ask("ours", "slow 100000").await;
    ours.event().await.unwrap();
    let refused = b
        .send("POST", "/api/chat", asking("new", "say hi").to_string())
        .await;
    assert_eq!(refused.status, 503);
    let mut said = b.ask("theirs", "say hi").await;
    assert_eq!(said.status, 200);
    assert_eq!(text_of(&folded(&said.events().await)), "hi");
}

/// A connection counts for its user where it comes in, and nowhere else.
#[tokio::test]
async fn a_hop_is_not_counted_again_for_its_user() {
    let (_fleet, a, b) = Fleet::pair("[limits]\nconnections_per_user = 2\n").await;
    let mut owned = a.ask("c", "slow 100000").await;
    owned.event().await.unwrap();
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut reader = b.open("GET", "/api/chat/c/stream", "").await;
        assert_eq!(reader.status, 200);
        reader.event().await.unwrap();
        readers.push(reader);
    }
    let direct = a.open("GET", "/api/chat/c/stream", "").await;
    assert_eq!(direct.status, 200, "two of her own at the owner");
    for replica in [&a, &b] {
        assert_eq!(replica.send("GET", "/api/chats", "").await.status, 429);
    }
}

/// The endpoints of the original front end.
#[tokio::test]
async fn the_original_front_end_may_ask_any_replica() {
    let compat = "[server]\ncompat = [\"adk-stream-protocol\"]\n";
    let (fleet, a, b) = Fleet::pair(compat).await;
    let mut owned = a.ask("c", "slow 100000").await;
    owned.event().await.unwrap();
    let mut said = b
        .open("POST", "/stream", &asking("c", "say hi").to_string())
        .await;
    assert_eq!(said.status, 200);
    assert!(said.events().await.iter().any(|it| it.contains("\"hi\"")));
    let mut theirs = a.ask("theirs", "slow 100000").await;
    theirs.event().await.unwrap();
    b.ask("ours", "say hi").await.events().await;
    assert_eq!(b.send("POST", "/clear-sessions", "").await.status, 200);
    let left = a.send("GET", "/api/chats", "").await.json();
    assert_eq!(left, json!([]), "{:?}", fleet.owners.owner_of("theirs"));
}

/// The question of a turn, and the assistant's message with it.
fn asked(events: &[String]) -> (Value, Value) {
    let message = folded(events);
    (json!({"id": "c"}), message)
}

/// The request with a decision.
fn decided(question: &Value, mut message: Value, approved: bool) -> Value {
    let mut decided = 0;
    for part in message["parts"].as_array_mut().unwrap() {
        if part["state"] == "approval-requested" {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(approved);
            decided += 1;
        }
    }
    assert_eq!(decided, 1, "{message}");
    let user = json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": PAYMENT}]});
    json!({"id": question["id"], "messages": [user, message]})
}

fn events_of(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    let events = text
        .split("\n\n")
        .filter_map(|it| it.strip_prefix("data: "));
    events.map(str::to_owned).collect()
}
