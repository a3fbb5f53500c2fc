//! Only a clear yes approves and only a clear no denies, by whatever way an answer comes.
//!
//! Everything else is refused, and the question can be answered afterwards.
//! `consent.json` has the answers: parts of a message (`parts`, and `confirmations` in the dialect `adk`), `tool-result`
//! entries (`results`), results as parts of a user's message (`user_parts`), frames of `/live` (`frames`) and bodies for
//! `tool-output` (`outputs`), each with what it means.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::{Client, Said};
use crate::support::{Bridge, asking};
use crate::voice::audit;

const PAYMENT: &str = "{\"amount\": 5, \"recipient\": \"Hanako\"}";
/// More at once would only make the machine slower.
const AT_ONCE: usize = 6;

#[derive(Deserialize)]
struct Table {
    parts: Vec<Row>,
    confirmations: Vec<Row>,
    results: Vec<Entry>,
    user_parts: Vec<Entry>,
    frames: Vec<Frame>,
    outputs: Vec<Value>,
}

#[derive(Debug, Clone, Deserialize)]
struct Row {
    means: Means,
    /// What a client makes of the part that asks; two of them say two things.
    parts: Vec<Value>,
}

#[derive(Debug, Clone, Deserialize)]
struct Entry {
    means: Means,
    entry: Value,
}

#[derive(Debug, Clone, Deserialize)]
struct Frame {
    means: Means,
    frame: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Means {
    Yes,
    No,
    /// Nobody has answered.
    Nothing,
    Refused,
}

/// How a message with an answer in it comes.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    Http,
    Live,
    Stock,
}

pub const WAYS: [Way; 3] = [Way::Http, Way::Live, Way::Stock];

fn table() -> Table {
    serde_json::from_str(include_str!("consent.json")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_in_a_message() {
    each_message(|bridge, chat, asked, row, way, dialect| async move {
        let answered = asked.with(&row.parts);
        let refused = send(&bridge, way, &chat, dialect, &answered).await;
        assert_eq!(refused, row.means == Means::Refused);
        check_meaning(&bridge, &chat, row.means).await;
    })
    .await;
}

/// The same parts where a front end puts them into a message of the user's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_in_a_message_of_the_user() {
    each_message(|bridge, chat, asked, row, way, dialect| async move {
        let answered = asked.with(&row.parts);
        let parts = answered[1]["parts"].as_array().unwrap();
        let parts = &parts[asked.part..asked.part + row.parts.len()];
        let message = json!({"id": "u2", "role": "user", "parts": parts});
        let refused = send(&bridge, way, &chat, dialect, &[message]).await;
        assert_eq!(refused, row.means == Means::Refused);
        check_meaning(&bridge, &chat, row.means).await;
    })
    .await;
}

/// What a message that was open to doubt, or was not, has come to.
async fn check_meaning(bridge: &Bridge, chat: &str, means: Means) {
    match means {
        Means::Yes => check(bridge, chat, &["approval.approved", "tool.started"]).await,
        Means::No => check(bridge, chat, &["approval.denied"]).await,
        Means::Nothing | Means::Refused => check_open(bridge, chat).await,
    }
}

/// A result for the call or for its question, in a message of the user's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_in_a_result() {
    let mut cases = Vec::new();
    for row in table().results {
        for dialect in ["native", "adk"] {
            cases.extend([(row.clone(), dialect, false), (row.clone(), dialect, true)]);
        }
    }
    all(
        cases,
        |bridge, chat, (row, dialect, by_approval)| async move {
            let asked = Asked::new(&bridge, &chat, dialect).await;
            let mut entry = row.entry.clone();
            entry["type"] = json!("tool-result");
            entry["toolCallId"] = match by_approval {
                true => asked.approval.clone(),
                false => asked.call.clone(),
            };
            let message = json!({"id": "u2", "role": "user", "content": [entry]});
            let body = json!({"id": chat, "messages": [message], "dialect": dialect});
            let response = bridge.post("/api/chat", &body).await;
            match row.means {
                Means::Yes => check(&bridge, &chat, &["approval.approved", "tool.started"]).await,
                Means::No => check(&bridge, &chat, &["approval.denied"]).await,
                Means::Nothing | Means::Refused => {
                    assert_eq!(response.code(), "bad_value", "{response:?}");
                    check_open(&bridge, &chat).await;
                }
            }
        },
    )
    .await;
}

/// A result without an `approval` as a part of the user's message: of the call, or of the confirmation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_in_a_result_part_of_the_user() {
    let mut cases = Vec::new();
    for row in table().user_parts {
        for way in WAYS {
            cases.extend([(row.clone(), way, false), (row.clone(), way, true)]);
        }
    }
    all(cases, |bridge, chat, (row, way, by_approval)| async move {
        let asked = Asked::new(&bridge, &chat, "native").await;
        let mut part = row.entry.clone();
        (part["type"], part["toolCallId"]) = match by_approval {
            true => (json!("tool-adk_request_confirmation"), asked.approval),
            false => (json!("tool-process_payment"), asked.call),
        };
        let message = json!({"id": "u2", "role": "user", "parts": [part]});
        let refused = send(&bridge, way, &chat, "native", &[message]).await;
        assert_eq!(refused, row.means == Means::Refused);
        check_meaning(&bridge, &chat, row.means).await;
    })
    .await;
}

/// Two copies of one message in a request say two things, in whichever order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_and_another_in_an_older_copy() {
    let mut cases = Vec::new();
    for row in table().parts {
        if row.means == Means::Refused {
            cases.extend([(row.clone(), false), (row, true)]);
        }
    }
    all(cases, |bridge, chat, (row, older)| async move {
        let asked = Asked::new(&bridge, &chat, "native").await;
        let yes = json!({"state": "approval-responded", "approval": {"approved": true}});
        let (mut first, mut last) = (asked.with(&row.parts), asked.with(&[yes]));
        if older {
            std::mem::swap(&mut first, &mut last);
        }
        first.push(last.remove(1));
        assert!(send(&bridge, Way::Http, &chat, "native", &first).await);
        check_open(&bridge, &chat).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_with_a_newer_message() {
    each_message(|bridge, chat, asked, row, way, dialect| async move {
        let mut messages = asked.with(&row.parts);
        messages.push(user("u2", "say go on"));
        let refused = send(&bridge, way, &chat, dialect, &messages).await;
        assert_eq!(refused, row.means == Means::Refused);
        match row.means {
            Means::Yes => check(&bridge, &chat, &["approval.approved", "tool.started"]).await,
            Means::No => check(&bridge, &chat, &["approval.denied"]).await,
            Means::Nothing => check(&bridge, &chat, &["approval.superseded"]).await,
            Means::Refused => check_open(&bridge, &chat).await,
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_when_the_reply_is_over() {
    each_message(|bridge, chat, asked, row, way, dialect| async move {
        let stop = format!("/api/chat/{chat}/stop");
        assert_eq!(bridge.post(&stop, &json!({})).await.status, 204);
        let mut messages = asked.with(&row.parts);
        send(&bridge, way, &chat, dialect, &messages).await;
        check(&bridge, &chat, &["approval.superseded"]).await;
        messages.push(user("u2", "say go on"));
        send(&bridge, way, &chat, dialect, &messages).await;
        check(&bridge, &chat, &["approval.superseded"]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_in_a_frame() {
    let mut cases = Vec::new();
    for row in table().frames {
        for (dialect, by_approval) in [("native", false), ("native", true), ("adk", true)] {
            cases.push((row.clone(), dialect, by_approval));
        }
    }
    all(
        cases,
        |bridge, chat, (row, dialect, by_approval)| async move {
            let asked = Asked::new(&bridge, &chat, dialect).await;
            let mut client = Client::open(&bridge, &live(&chat, dialect)).await;
            let mut frame = row.frame.clone();
            frame["type"] = json!("tool_result");
            frame["toolCallId"] = match by_approval {
                true => asked.approval.clone(),
                false => asked.call.clone(),
            };
            client.send(frame).await;
            let error = loop {
                match client.said().await {
                    Said::Control(control) if control["type"] == "error" => break Some(control),
                    Said::Control(control) if control["type"] == "turn-end" => break None,
                    _ => {}
                }
            };
            match row.means {
                Means::Yes => check(&bridge, &chat, &["approval.approved", "tool.started"]).await,
                Means::No => check(&bridge, &chat, &["approval.denied"]).await,
                Means::Nothing | Means::Refused => {
                    let error = error.clone().expect("it is refused");
                    let code = error["code"].as_str().unwrap();
                    let named = ["bad_value", "wrong_type", "missing_field"].contains(&code);
                    assert!(named, "{error}");
                    check_open(&bridge, &chat).await;
                }
            }
            let refused = matches!(row.means, Means::Refused);
            assert_eq!(error.is_some(), refused, "{error:?}");
        },
    )
    .await;
}

/// A decision in a message that the chat does not have is refused and recorded, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_in_an_unknown_message() {
    let bridge = Bridge::configured("");
    let asked = Asked::new(&bridge, "c", "native").await;
    let yes = json!({"state": "approval-responded", "approval": {"approved": true}});
    let mut messages = asked.with(&[yes]);
    messages[1]["id"] = json!("unknown");
    for _ in 0..2 {
        let body = json!({"id": "c", "messages": messages});
        assert_eq!(bridge.post("/api/chat", &body).await.status, 409);
        let kinds = audit(&bridge, "c").await;
        assert_eq!(kinds, ["approval.requested", "answer.refused"]);
    }
    check_open(&bridge, "c").await;
}

/// A client tool may be approved and have failed; only words that deny its approval contradict the yes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_tool_that_is_approved_may_fail() {
    let yes = json!({"approved": true});
    let cases = [
        (
            true,
            json!({"state": "output-available", "output": {"status": "lost"}, "approval": yes}),
        ),
        (
            true,
            json!({"state": "output-error", "errorText": "no signal", "approval": yes}),
        ),
        (
            true,
            json!({"state": "output-error", "errorText": "x", "isError": true, "approval": yes}),
        ),
        (
            false,
            json!({"state": "output-error", "errorText": "x", "confirmed": false, "approval": yes}),
        ),
        (
            false,
            json!({"state": "output-available", "output": 1, "errorText": "x", "approval": yes}),
        ),
        (
            false,
            json!({"state": "approval-responded", "errorText": "x", "approval": yes}),
        ),
        (
            false,
            json!({"state": "output-available", "output": {"confirmed": false}, "approval": yes}),
        ),
    ];
    all(
        cases.to_vec(),
        |bridge, chat, (is_yes, answer)| async move {
            let asked = Asked::about(&bridge, &chat, "native", "get_location", "{}").await;
            let refused = send(&bridge, Way::Http, &chat, "native", &asked.with(&[answer])).await;
            assert_eq!(refused, !is_yes);
            match is_yes {
                true => check(&bridge, &chat, &["approval.approved"]).await,
                false => check_open(&bridge, &chat).await,
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_is_no_answer() {
    let mut cases = Vec::new();
    for row in table().outputs {
        cases.extend([(row.clone(), false), (row, true)]);
    }
    all(cases, |bridge, chat, (mut body, by_approval)| async move {
        let asked = Asked::new(&bridge, &chat, "native").await;
        body["toolCallId"] = match by_approval {
            true => asked.approval.clone(),
            false => asked.call.clone(),
        };
        let path = format!("/api/chat/{chat}/tool-output");
        let status = bridge.post(&path, &body).await.status;
        assert!((400..500).contains(&status), "{status}");
        check_open(&bridge, &chat).await;
    })
    .await;
}

/// A call, mostly a payment, that waits for an answer, as the page of a client has it.
struct Asked {
    messages: Vec<Value>,
    /// Where the part is that asks.
    part: usize,
    approval: Value,
    call: Value,
}

impl Asked {
    async fn new(bridge: &Bridge, chat: &str, dialect: &str) -> Self {
        Self::about(bridge, chat, dialect, "process_payment", PAYMENT).await
    }

    async fn about(bridge: &Bridge, chat: &str, dialect: &str, tool: &str, input: &str) -> Self {
        let mut request = asking(chat, &format!("call {tool} {input}"));
        request["messages"][0]["id"] = json!("u1");
        request["dialect"] = json!(dialect);
        assert_eq!(bridge.post("/api/chat", &request).await.status, 200);
        let path = format!("/api/chats/{chat}?dialect={dialect}");
        let shown = bridge.get(&path).await.json();
        let messages = shown["messages"].as_array().unwrap().clone();
        let parts = messages[1]["parts"].as_array().unwrap();
        let of = |kind: &str| parts.iter().position(|part| part["type"] == kind).unwrap();
        let called = of(&format!("tool-{tool}"));
        let part = match dialect {
            "adk" => of("tool-adk_request_confirmation"),
            _ => called,
        };
        Self {
            approval: parts[part]["approval"]["id"].clone(),
            call: parts[called]["toolCallId"].clone(),
            messages,
            part,
        }
    }

    /// The messages of a client that has answered.
    fn with(&self, answers: &[Value]) -> Vec<Value> {
        let mut messages = self.messages.clone();
        let parts = messages[1]["parts"].as_array_mut().unwrap();
        let asking = parts.remove(self.part);
        for (index, answer) in answers.iter().enumerate() {
            let mut part = asking.clone();
            for (field, value) in answer.as_object().unwrap() {
                part[field] = value.clone();
            }
            // A row may name another question, or none (`null`).
            if let Some(approval) = part["approval"].as_object_mut() {
                match approval.get("id") {
                    None => drop(approval.insert("id".into(), self.approval.clone())),
                    Some(Value::Null) => drop(approval.remove("id")),
                    Some(_) => {}
                }
            }
            parts.insert(self.part + index, part);
        }
        messages
    }
}

/// Runs every row of both dialects by every way.
async fn each_message<F>(
    run: impl Fn(Arc<Bridge>, String, Asked, Row, Way, &'static str) -> F
    + Clone
    + Send
    + Sync
    + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let Table {
        parts,
        confirmations,
        ..
    } = table();
    let mut cases = Vec::new();
    for (dialect, rows) in [("native", parts), ("adk", confirmations)] {
        for row in rows {
            cases.extend(WAYS.map(|way| (row.clone(), way, dialect)));
        }
    }
    all(cases, move |bridge, chat, (row, way, dialect)| {
        let run = run.clone();
        async move {
            let asked = Asked::new(&bridge, &chat, dialect).await;
            run(bridge, chat, asked, row, way, dialect).await;
        }
    })
    .await;
}

/// Runs every case in a chat of its own, and names those that fail.
async fn all<C, F>(cases: Vec<C>, run: impl Fn(Arc<Bridge>, String, C) -> F)
where
    C: std::fmt::Debug + Clone,
    F: Future<Output = ()> + Send + 'static,
{
    let bridge = Arc::new(Bridge::configured(
        "[limits]\nrefused_answers_per_minute = 100000\n",
    ));
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut runs = JoinSet::new();
    let mut names = std::collections::HashMap::new();
    for (number, case) in cases.into_iter().enumerate() {
        let name = format!("{case:?}");
        let run = run(bridge.clone(), format!("c{number}"), case);
        let room = room.clone();
        let task = runs.spawn(async move {
            let _turn = room.acquire().await;
            run.await;
        });
        names.insert(task.id(), name);
    }
    let mut failed = Vec::new();
    while let Some(done) = runs.join_next().await {
        if let Err(error) = done {
            failed.push(format!("{}: {error}", names[&error.id()]));
        }
    }
    assert!(
        failed.is_empty(),
        "{} fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// Sends messages and reads what comes of them. Returns whether they were refused.
pub async fn send(
    bridge: &Bridge,
    way: Way,
    chat: &str,
    dialect: &str,
    messages: &[Value],
) -> bool {
    match way {
        Way::Http => {
            let body = json!({"id": chat, "messages": messages, "dialect": dialect});
            let response = bridge.post("/api/chat", &body).await;
            assert!([200, 422].contains(&response.status), "{response:?}");
            response.status == 422
        }
        Way::Live => {
            let mut client = Client::open(bridge, &live(chat, dialect)).await;
            client
                .send(json!({"type": "message", "messages": messages}))
                .await;
            loop {
                match client.said().await {
                    Said::Control(control) if control["type"] == "error" => return true,
                    Said::Control(control) if control["type"] == "turn-end" => return false,
                    _ => {}
                }
            }
        }
        Way::Stock => {
            let mut client = Client::open(bridge, "/api/chat/ws").await;
            client
                .send(json!({
                    "type": "send", "requestId": "r", "id": chat, "trigger": "submit-message",
                    "messages": messages, "headers": {}, "body": {"dialect": dialect},
                }))
                .await;
            loop {
                match client.json().await["type"].as_str().unwrap() {
                    "error" => return true,
                    "end" => return false,
                    _ => {}
                }
            }
        }
    }
}

fn live(chat: &str, dialect: &str) -> String {
    format!("/live?chat={chat}&dialect={dialect}")
}

pub fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]})
}

/// What the audit says of decisions and runs is this, each once.
async fn check(bridge: &Bridge, chat: &str, expected: &[&str]) {
    let decisive = [
        "approval.approved",
        "approval.denied",
        "approval.superseded",
        "tool.started",
    ];
    let mut kinds = audit(bridge, chat).await;
    kinds.retain(|kind| decisive.contains(&kind.as_str()));
    assert_eq!(kinds, expected);
}

/// Nothing was decided, and the true answer counts.
async fn check_open(bridge: &Bridge, chat: &str) {
    check(bridge, chat, &[]).await;
    let shown = bridge.get(&format!("/api/chats/{chat}")).await.json();
    let mut messages = shown["messages"].as_array().unwrap().clone();
    assert_eq!(messages.len(), 2, "{shown}");
    for part in messages[1]["parts"].as_array_mut().unwrap() {
        if part["state"] == "approval-requested" {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(false);
        }
    }
    let body = json!({"id": chat, "messages": messages});
    assert_eq!(bridge.post("/api/chat", &body).await.status, 200);
    check(bridge, chat, &["approval.denied"]).await;
}
