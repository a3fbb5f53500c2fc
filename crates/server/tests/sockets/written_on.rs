//! A decision that was made counts: answers that come with a newer message are taken before it supersedes what is left.

use serde_json::{Value, json};

use crate::client::Client;
use crate::consent::{WAYS, Way, send, user};
use crate::support::{Bridge, text_of};
use crate::voice::{self, speak, turn};

const FIRST: &str = "call process_payment {\"amount\": 10, \"recipient\": \"Hanako\"}";
const SECOND: &str = "call process_payment {\"amount\": 20, \"recipient\": \"Ken\"}";

/// What is asked, what the client has made of its parts when the user writes on, and what becomes of it.
struct Case {
    name: &'static str,
    asked: String,
    /// For each call what the client says of it: a decision, an output, or both.
    said: [(Option<bool>, Option<Value>); 2],
    states: [&'static str; 2],
    /// What the audit has of decisions and runs, in any order.
    audit: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let location = json!({"latitude": 1, "longitude": 2});
    let two = format!("{FIRST} && {SECOND}");
    vec![
        Case {
            name: "one of two is approved",
            asked: two.clone(),
            said: [(Some(true), None), (None, None)],
            states: ["output-available", "output-error"],
            audit: &[
                "approval.approved",
                "approval.superseded",
                "tool.finished",
                "tool.started",
            ],
        },
        Case {
            name: "the other one is approved",
            asked: two.clone(),
            said: [(None, None), (Some(true), None)],
            states: ["output-error", "output-available"],
            audit: &[
                "approval.approved",
                "approval.superseded",
                "tool.finished",
                "tool.started",
            ],
        },
        Case {
            name: "one is denied",
            asked: two.clone(),
            said: [(None, None), (Some(false), None)],
            states: ["output-error", "output-denied"],
            audit: &["approval.denied", "approval.superseded"],
        },
        Case {
            name: "one is approved and one denied",
            asked: two.clone(),
            said: [(Some(false), None), (Some(true), None)],
            states: ["output-denied", "output-available"],
            audit: &[
                "approval.approved",
                "approval.denied",
                "tool.finished",
                "tool.started",
            ],
        },
        Case {
            name: "nobody has answered",
            asked: two,
            said: [(None, None), (None, None)],
            states: ["output-error", "output-error"],
            audit: &["approval.superseded", "approval.superseded"],
        },
        Case {
            name: "a client tool brings its output",
            asked: format!("call pick_color {{}} && {SECOND}"),
            said: [(None, Some(json!("teal"))), (None, None)],
            states: ["output-available", "output-error"],
            audit: &["approval.superseded", "tool.finished"],
        },
        Case {
            name: "a client tool brings its approval and its output",
            asked: format!("call get_location {{}} && {SECOND}"),
            said: [(Some(true), Some(location)), (Some(true), None)],
            states: ["output-available", "output-available"],
            audit: &[
                "approval.approved",
                "approval.approved",
                "tool.finished",
                "tool.finished",
                "tool.started",
            ],
        },
        Case {
            name: "a client tool was approved and has no output",
            asked: format!("call get_location {{}} && {SECOND}"),
            said: [(Some(true), None), (None, None)],
            states: ["output-error", "output-error"],
            audit: &["approval.approved", "approval.superseded"],
        },
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_decided_counts_and_the_rest_is_superseded() {
    let bridge = Bridge::configured("[[agent.client_tools]]\nname = \"pick_color\"");
    for case in cases() {
        for dialect in ["native", "adk"] {
            for way in WAYS {
                let chat = format!("{} {dialect} {way:?}", case.name).replace(' ', "-");
                ask(&bridge, &chat, dialect, &case.asked).await;
                let mut messages = shown(&bridge, &chat, dialect).await;
                for (index, said) in case.said.iter().enumerate() {
                    answer(&mut messages[1], index, said, dialect);
                }
                messages.push(user("u2", "say go on"));
                assert!(
                    !send(&bridge, way, &chat, dialect, &messages).await,
                    "{chat}"
                );

                let stored = shown(&bridge, &chat, "native").await;
                let states: Vec<_> = calls(&stored[1])
                    .iter()
                    .map(|it| it["state"].clone())
                    .collect();
                assert_eq!(states, case.states, "{chat}: {}", stored[1]);
                for (call, (approved, _)) in calls(&stored[1]).iter().zip(&case.said) {
                    let Some(error_text) = call["errorText"].as_str() else {
                        continue;
                    };
                    let expected = match approved {
                        Some(_) => "it may have run in the front end",
                        None => "went on without an answer",
                    };
                    assert!(error_text.contains(expected), "{chat}: {error_text}");
                }
                assert_eq!(text_of(&stored[3]), "go on", "{chat}");
                let mut kinds = voice::audit(&bridge, &chat).await;
                kinds.retain(|kind| kind != "approval.requested");
                kinds.sort();
                assert_eq!(kinds, case.audit, "{chat}");

                // A client repeats what it holds with every message; that is no news.
                messages.push(stored[3].clone());
                messages.push(user("u3", "say again"));
                assert!(
                    !send(&bridge, way, &chat, dialect, &messages).await,
                    "{chat}"
                );
                let after = shown(&bridge, &chat, "native").await;
                assert_eq!(after[..4], stored[..], "{chat}");
                let rows = voice::audit(&bridge, &chat).await;
                let runs = rows.iter().filter(|kind| *kind == "tool.started").count();
                assert_eq!(
                    runs,
                    case.audit
                        .iter()
                        .filter(|kind| **kind == "tool.started")
                        .count()
                );
            }
        }
    }
}

/// A request of a plain client over `/live` gets its own turn, and nothing of the older message before it.
#[tokio::test]
async fn the_turn_of_the_newer_message_comes_alone() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    client.say(&format!("{FIRST} && {SECOND}")).await;
    client.turn().await;
    let mut messages = shown(&bridge, "c", "native").await;
    answer(&mut messages[1], 0, &(Some(true), None), "native");
    messages.push(user("u2", "say go on"));
    client
        .send(json!({"type": "message", "messages": messages}))
        .await;
    let (_, chunks) = client.turn().await;
    let said: String = chunks
        .iter()
        .filter_map(|it| it["delta"].as_str())
        .collect();
    assert_eq!(said, "go on");
    assert_ne!(chunks[0]["messageId"], messages[1]["id"]);
    client.check_alive().await;
    let stored = shown(&bridge, "c", "native").await;
    assert_eq!(calls(&stored[1])[0]["state"], "output-available");
}

/// The same if the decision came over another endpoint before, and its tool still runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_still_runs_is_not_sent_before_the_newer_message() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    client.say(&format!("{FIRST} && {SECOND}")).await;
    client.turn().await;
    let mut messages = shown(&bridge, "c", "native").await;
    answer(&mut messages[1], 0, &(Some(true), None), "native");
    let write = async {
        until_started(&bridge).await;
        client.say("say go on").await;
        client.turn().await.1
    };
    let (refused, chunks) = tokio::join!(
        send(&bridge, Way::Http, "c", "native", &messages),
        crate::support::within(write),
    );
    assert!(!refused);
    assert_ne!(chunks[0]["messageId"], messages[1]["id"], "{chunks:?}");
    let said: String = chunks
        .iter()
        .filter_map(|it| it["delta"].as_str())
        .collect();
    assert_eq!(said, "go on");
    client.check_alive().await;
    let stored = shown(&bridge, "c", "native").await;
    assert_eq!(calls(&stored[1])[0]["state"], "output-available");
}

/// Questions that wait in older messages while the conversation goes on by voice.
#[tokio::test]
async fn older_questions_that_speech_left_open() {
    let bridge = Bridge::start();
    for way in WAYS {
        let chat = format!("{way:?}");
        let mut client = Client::open(&bridge, &format!("/live?chat={chat}")).await;
        for said in ["pay Hanako 50 dollars", "pay Ken 20 dollars"] {
            speak(&mut client, said).await;
            turn(&mut client).await;
            speak(&mut client, "say hm").await;
            turn(&mut client).await;
        }
        client.leave().await;
        let mut messages = shown(&bridge, &chat, "native").await;
        let asking: Vec<usize> = (0..messages.len())
            .filter(|&index| !calls(&messages[index]).is_empty())
            .collect();
        assert_eq!(asking.len(), 2, "{messages:?}");
        answer(&mut messages[asking[0]], 0, &(Some(true), None), "native");
        messages.push(user("u2", "say go on"));
        assert!(!send(&bridge, way, &chat, "native", &messages).await);

        let stored = shown(&bridge, &chat, "native").await;
        for (index, state) in asking.iter().zip(["output-available", "output-error"]) {
            assert_eq!(
                calls(&stored[*index])[0]["state"],
                state,
                "{chat}: {stored:?}"
            );
        }
        let rows = voice::audit(&bridge, &chat).await;
        for (kind, times) in [
            ("approval.approved", 1),
            ("tool.started", 1),
            ("approval.superseded", 1),
        ] {
            let found = rows.iter().filter(|row| *row == kind).count();
            assert_eq!(found, times, "{chat}: {kind}: {rows:?}");
        }
    }
}

/// Answers to a question that is not open any more change nothing, also while the tool of another still runs.
#[tokio::test]
async fn a_second_message_finds_nothing_open() {
    let bridge = Bridge::start();
    ask(&bridge, "c", "native", &format!("{FIRST} && {SECOND}")).await;
    let mut first = shown(&bridge, "c", "native").await;
    let mut second = first.clone();
    answer(&mut first[1], 0, &(Some(true), None), "native");
    first.push(user("u2", "say one"));
    answer(&mut second[1], 0, &(Some(false), None), "native");
    answer(&mut second[1], 1, &(Some(true), None), "native");
    second.push(user("u3", "say two"));
    let (one, two) = tokio::join!(
        send(&bridge, Way::Http, "c", "native", &first),
        send_after_start(&bridge, &second),
    );
    assert!(!one && !two);
    let rows = voice::audit(&bridge, "c").await;
    for (kind, times) in [
        ("approval.approved", 1),
        ("approval.superseded", 1),
        ("approval.denied", 0),
        ("tool.started", 1),
        ("tool.finished", 1),
        ("answer.refused", 2),
    ] {
        let found = rows.iter().filter(|row| *row == kind).count();
        assert_eq!(found, times, "{kind}: {rows:?}");
    }
}

async fn send_after_start(bridge: &Bridge, messages: &[Value]) -> bool {
    until_started(bridge).await;
    send(bridge, Way::Http, "c", "native", messages).await
}

async fn until_started(bridge: &Bridge) {
    let started = async {
        while !voice::audit(bridge, "c")
            .await
            .contains(&"tool.started".to_owned())
        {}
    };
    crate::support::within(started).await;
}

async fn ask(bridge: &Bridge, chat: &str, dialect: &str, text: &str) {
    let body = json!({"id": chat, "messages": [user("u1", text)], "dialect": dialect});
    assert_eq!(bridge.post("/api/chat", &body).await.status, 200);
}

async fn shown(bridge: &Bridge, chat: &str, dialect: &str) -> Vec<Value> {
    let chat = bridge
        .get(&format!("/api/chats/{chat}?dialect={dialect}"))
        .await
        .json();
    chat["messages"].as_array().unwrap().clone()
}

/// The calls of a message, without the confirmations that ask about them.
fn calls(message: &Value) -> Vec<&Value> {
    let parts = message["parts"].as_array().unwrap().iter();
    parts.filter(|part| is_call(part)).collect()
}

fn is_call(part: &Value) -> bool {
    let kind = part["type"].as_str().unwrap();
    kind.starts_with("tool-") && kind != "tool-adk_request_confirmation"
}

/// What a client makes of the parts of a call.
fn answer(message: &mut Value, index: usize, said: &(Option<bool>, Option<Value>), dialect: &str) {
    let call = calls(message)[index]["toolCallId"].clone();
    for part in message["parts"].as_array_mut().unwrap() {
        let confirms = part["input"]["originalFunctionCall"]["id"] == call;
        let is_call = part["toolCallId"] == call;
        let asks = if dialect == "adk" { confirms } else { is_call };
        if let (Some(approved), true) = (said.0, asks) {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(approved);
        }
        if let (Some(output), true) = (&said.1, is_call) {
            part["state"] = json!("output-available");
            part["output"] = output.clone();
        }
    }
}
