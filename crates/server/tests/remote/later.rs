//! Results of long-running tools that come after the turn: each is told to the agent once, and the chat goes on with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::stand_in::{ReceivedRequest, StandIn, events, refused, well};
use crate::support::socket::Client;
use crate::support::{Bridge, JSON, asking, folded, text_of, within};

/// The call of a tool that returns a ticket.
const CALL: &str = "fc-1";

fn said(author: &str, parts: Value) -> Value {
    json!({"author": author, "content": {"role": "model", "parts": parts}})
}

fn stream(all: &[Value]) -> Vec<u8> {
    let lines = all.iter().map(|event| format!("data: {event}\n\n"));
    events(lines.collect::<String>())
}

/// Orders something, asks for a confirmation, or tells what it was given.
fn shop(asked: &ReceivedRequest) -> Vec<u8> {
    if asked.path != "/run_sse" {
        return well(asked);
    }
    let parts = &asked.body["newMessage"]["parts"];
    let text = parts[0]["text"].as_str().unwrap_or_default();
    let call = |id: &str, name: &str, args: Value| json!({"functionCall": {"id": id, "name": name, "args": args}});
    if text == "order" {
        let mut called = said("shop", json!([call(CALL, "order", json!({"what": "tea"}))]));
        called["longRunningToolIds"] = json!([CALL]);
        let response =
            json!({"functionResponse": {"id": CALL, "name": "order", "response": {"ticket": 7}}});
        return stream(&[
            called,
            said("shop", json!([response])),
            said("shop", json!([{"text": "ordered"}])),
        ]);
    }
    if text == "pay" {
        let original = json!({"id": "fc-2", "name": "pay", "args": {}});
        let mut question = said(
            "shop",
            json!([call(
                "ask-1",
                "adk_request_confirmation",
                json!({"originalFunctionCall": original, "toolConfirmation": {"hint": "?", "confirmed": false}})
            )]),
        );
        question["longRunningToolIds"] = json!(["ask-1"]);
        return stream(&[
            said("shop", json!([call("fc-2", "pay", json!({}))])),
            question,
        ]);
    }
    if parts[0]["functionResponse"]["id"] == "ask-1" {
        let paid =
            json!({"functionResponse": {"id": "fc-2", "name": "pay", "response": {"paid": true}}});
        return stream(&[
            said("shop", json!([paid])),
            said("shop", json!([{"text": "paid"}])),
        ]);
    }
    let given = parts[0]["functionResponse"]["response"].to_string();
    stream(&[said("shop", json!([{"text": format!("given {given}")}]))])
}

async fn order(bridge: &Bridge, chat: &str) -> Value {
    let message = folded(&bridge.ask(chat, "order").await.events().await);
    assert_eq!(text_of(&message), "ordered");
    assert_eq!(message["parts"][1]["output"], json!({"ticket": 7}));
    message["parts"][1]["toolCallId"].clone()
}

async fn finish(bridge: &Bridge, chat: &str, call: &Value, result: Value) -> (u16, String) {
    let mut body = json!({"toolCallId": call});
    for (name, value) in result.as_object().unwrap() {
        body[name] = value.clone();
    }
    let answer = bridge
        .post(&format!("/api/chat/{chat}/tool-output"), &body)
        .await;
    match answer.status {
        204 => (204, String::new()),
        status => (status, answer.code()),
    }
}

async fn messages(bridge: &Bridge, chat: &str) -> Vec<Value> {
    let shown = bridge.get(&format!("/api/chats/{chat}")).await.json();
    shown["messages"].as_array().unwrap().clone()
}

/// The last message, once there are so many.
async fn message(bridge: &Bridge, chat: &str, number: usize) -> Value {
    let wait = async {
        loop {
            let all = messages(bridge, chat).await;
            if all.len() >= number {
                return all.last().unwrap().clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(wait).await
}

/// How many answers were refused.
async fn refusals(bridge: &Bridge) -> usize {
    let rows = bridge.get("/api/audit?chat=c").await.json();
    let rows = rows.as_array().unwrap().iter();
    rows.filter(|row| row["kind"] == "answer.refused").count()
}

/// What the agent was sent as results, of each run.
fn results(stand_in: &StandIn) -> Vec<Value> {
    let runs = stand_in.asked("/run_sse").into_iter();
    let parts = runs.map(|run| run.body["newMessage"]["parts"].clone());
    parts
        .filter(|parts| parts[0]["functionResponse"].is_object())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_continues_the_chat_once() {
    let stand_in = StandIn::start(shop).await;
    let bridge = Bridge::configured(&stand_in.toml());
    let call = order(&bridge, "c").await;
    let (delivered, other) = (
        json!({"output": {"delivered": true}}),
        json!({"output": {"delivered": false}}),
    );
    assert_eq!(finish(&bridge, "c", &call, delivered.clone()).await.0, 204);
    let reply = message(&bridge, "c", 3).await;
    assert_eq!(text_of(&reply), r#"given {"delivered":true}"#);
    // A message of its own, which shows the call with its result and names the first one.
    let all = messages(&bridge, "c").await;
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(all[1]["parts"][1]["output"], json!({"ticket": 7}));
    let part = &all[2]["parts"][1];
    assert_eq!(part["type"], "tool-order");
    assert_eq!(part["input"], json!({"what": "tea"}));
    assert_eq!(part["output"], delivered["output"]);
    assert_eq!(part["callProviderMetadata"]["adk"]["resultOf"], call);
    assert_ne!(part["toolCallId"], call);
    let told = json!([{"functionResponse": {"id": CALL, "name": "order", "response": {"delivered": true}}}]);
    assert_eq!(results(&stand_in), std::slice::from_ref(&told));
    // Once.
    for again in [&delivered, &other] {
        let refused = finish(&bridge, "c", &call, again.clone()).await;
        assert_eq!(refused, (409, "conflict".into()));
    }
    // The call that shows it has an output as any other call has.
    let shown = &part["toolCallId"];
    assert_eq!(finish(&bridge, "c", shown, delivered).await.0, 204);
    assert_eq!(finish(&bridge, "c", shown, other).await.0, 409);
    let unknown = finish(&bridge, "c", &json!("call_x"), json!({"output": 1})).await;
    assert_eq!(unknown, (404, "not_found".into()));
    let elsewhere = finish(&bridge, "d", &call, json!({"output": 1})).await;
    assert_eq!(elsewhere, (404, "not_found".into()));
    assert_eq!(results(&stand_in).len(), 1);
    assert_eq!(refusals(&bridge).await, 3);
    // The front end repeats what it shows, and goes on.
    let mut list = messages(&bridge, "c").await;
    list.push(json!({"id": "u2", "role": "user", "parts": [{"type": "text", "text": "order"}]}));
    let body = json!({"id": "c", "messages": list}).to_string();
    let mut answer = bridge.open("POST", "/api/chat", &[JSON], &body).await;
    assert_eq!(text_of(&folded(&answer.events().await)), "ordered");
    assert_eq!(refusals(&bridge).await, 3);
    assert_eq!(messages(&bridge, "c").await.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_a_result_and_what_waits_for_the_user_goes_on_waiting() {
    let stand_in = StandIn::start(shop).await;
    let mut bridge = Bridge::configured(&stand_in.toml());
    let call = order(&bridge, "c").await;
    let asked = folded(&bridge.ask("c", "pay").await.events().await);
    assert_eq!(
        asked["parts"].as_array().unwrap().last().unwrap()["state"],
        "approval-requested"
    );
    // In another process, and with an open question.
    bridge.kill_and_restart();
    assert_eq!(
        finish(&bridge, "c", &call, json!({"errorText": "sold out"}))
            .await
            .0,
        204
    );
    let reply = message(&bridge, "c", 5).await;
    assert_eq!(text_of(&reply), r#"given {"error":"sold out"}"#);
    assert_eq!(reply["parts"][1]["state"], "output-error");
    // The question can still be answered.
    let all = messages(&bridge, "c").await;
    let mut question = all
        .iter()
        .find(|message| message["id"] == asked["id"])
        .unwrap()
        .clone();
    let part = question["parts"]
        .as_array_mut()
        .unwrap()
        .last_mut()
        .unwrap();
    assert_eq!(part["state"], "approval-requested", "{all:?}");
    part["state"] = json!("approval-responded");
    part["approval"]["approved"] = json!(true);
    let body = json!({"id": "c", "messages": [question]}).to_string();
    let mut answer = bridge.open("POST", "/api/chat", &[JSON], &body).await;
    assert_eq!(answer.status, 200);
    let events = answer.events().await;
    assert!(
        events.join("\n").contains(r#""delta":"paid""#),
        "{events:?}"
    );
    // And a result that has come does not come again, after all this.
    assert_eq!(
        finish(&bridge, "c", &call, json!({"output": 1})).await.0,
        409
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_lost_knows_the_call() {
    let runs = Arc::new(AtomicUsize::new(0));
    let stand_in = StandIn::start(move |asked| {
        let is_second = asked.path == "/run_sse" && runs.fetch_add(1, Ordering::SeqCst) == 1;
        match is_second {
            true => refused(404, "application/json", r#"{"detail":"Session not found"}"#),
            false => shop(asked),
        }
    })
    .await;
    let bridge = Bridge::configured(&stand_in.toml());
    let call = order(&bridge, "c").await;
    assert_eq!(
        finish(&bridge, "c", &call, json!({"output": "here"}))
            .await
            .0,
        204
    );
    let reply = message(&bridge, "c", 3).await;
    assert_eq!(text_of(&reply), r#"given {"result":"here"}"#);
    let restored = stand_in.asked("/sessions").last().unwrap().body["events"].clone();
    let parts: Vec<Value> = restored
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|event| event["content"]["parts"].as_array().unwrap().clone())
        .collect();
    let kinds: Vec<&str> = parts
        .iter()
        .map(|part| part.as_object().unwrap().keys().next().unwrap().as_str())
        .collect();
    assert_eq!(
        kinds,
        ["text", "functionCall", "functionResponse", "text"],
        "{restored}"
    );
    assert!(!restored.to_string().contains("here"), "{restored}");
}

/// The agent may not have got it, so it may be handed in again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_whose_answer_failed_can_be_handed_in_again() {
    let runs = Arc::new(AtomicUsize::new(0));
    let stand_in = StandIn::start(move |asked| {
        let is_second = asked.path == "/run_sse" && runs.fetch_add(1, Ordering::SeqCst) == 1;
        match is_second {
            true => refused(403, "text/plain", "not now"),
            false => shop(asked),
        }
    })
    .await;
    let bridge = Bridge::configured(&stand_in.toml());
    let call = order(&bridge, "c").await;
    let result = json!({"output": {"delivered": true}});
    assert_eq!(finish(&bridge, "c", &call, result.clone()).await.0, 204);
    let failed = message(&bridge, "c", 3).await;
    assert_eq!(failed["metadata"]["ended"], "failed", "{failed}");
    assert_eq!(finish(&bridge, "c", &call, result.clone()).await.0, 204);
    let reply = message(&bridge, "c", 4).await;
    assert_eq!(text_of(&reply), r#"given {"delivered":true}"#);
    assert_eq!(finish(&bridge, "c", &call, result).await.0, 409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_client_sees_the_turn_and_a_page_finds_the_message() {
    let stand_in = StandIn::start(shop).await;
    let bridge = Bridge::configured(&stand_in.toml());
    let mut live = Client::open(&bridge, "/live?chat=c").await;
    let messages = asking("c", "order")["messages"].clone();
    live.send(json!({"type": "message", "messages": messages}))
        .await;
    let (_, chunks) = live.turn().await;
    let called = chunks
        .iter()
        .find(|chunk| chunk["type"] == "tool-input-available")
        .unwrap();
    let call = called["toolCallId"].clone();
    assert_eq!(
        finish(&bridge, "c", &call, json!({"output": {"delivered": true}}))
            .await
            .0,
        204
    );
    let (_, chunks) = live.turn().await;
    let kinds: Vec<&str> = chunks
        .iter()
        .map(|chunk| chunk["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds[..5],
        [
            "start",
            "start-step",
            "tool-input-start",
            "tool-input-available",
            "tool-output-available"
        ]
    );
    assert!(
        kinds.contains(&"text-delta") && kinds.ends_with(&["finish"]),
        "{kinds:?}"
    );
    live.check_alive().await;
}

/// The result is stored when the process dies, and the agent has not been asked: it is handed in again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_before_the_agent_is_asked_loses_no_result() {
    let stand_in = StandIn::start(shop).await;
    let mut bridge = Bridge::with(&stand_in.toml(), |command| {
        command.env("ADK_BRIDGE_FAILPOINT", "before-model:2");
    });
    let call = order(&bridge, "c").await;
    let result = json!({"output": {"delivered": true}});
    let body = json!({"toolCallId": call, "output": result["output"]}).to_string();
    let mut connection = bridge.connect().await;
    let path = "/api/chat/c/tool-output";
    connection
        .request("POST", path, &[JSON], body.as_bytes())
        .await;
    let _ = connection.try_answer("POST").await;
    bridge.kill_and_restart();
    let ended = async {
        loop {
            let last = message(&bridge, "c", 3).await;
            if last["metadata"]["ended"] == "interrupted" {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let interrupted = within(ended).await;
    assert_eq!(interrupted["parts"][1]["output"], result["output"]);
    assert!(results(&stand_in).is_empty());
    assert_eq!(finish(&bridge, "c", &call, result.clone()).await.0, 204);
    let reply = message(&bridge, "c", 4).await;
    assert_eq!(text_of(&reply), r#"given {"delivered":true}"#);
    assert_eq!(finish(&bridge, "c", &call, result).await.0, 409);
    assert_eq!(results(&stand_in).len(), 1);
}
