//! JSON of very many small values, which as a tree would take a hundred times its bytes.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::rig::{ALICE, MB, Rig};
use crate::support::http::Response;
use crate::support::{JSON, asking};

/// How many objects a value has: close to the most that one body may have.
const OBJECTS: usize = 70_000;
const AT_ONCE: usize = 20;
const IN_A_ROW: usize = 40;
/// The scripted model takes its time to read what it is to call.
const CALLS: usize = 4;

/// 560 kB of JSON as text: a tree of it here would only cost this process time.
fn objects() -> String {
    let mut text = r#"{"a":0},"#.repeat(OBJECTS);
    text.pop();
    format!("[{text}]")
}

/// Lets the agent call a tool of the page, and returns the message with the call and the call's id.
async fn call(rig: &Rig, chat: &str) -> (Value, String) {
    let asked = rig
        .post(&asking(chat, r#"call change_bgm {"track": 1}"#))
        .await;
    assert_eq!(asked.status, 200);
    let shown = rig.get(&format!("/api/chats/{chat}")).await.json();
    let message = shown["messages"][1].clone();
    let parts = message["parts"].as_array().unwrap();
    let id = parts.iter().find_map(|part| part["toolCallId"].as_str());
    let id = id.unwrap().to_owned();
    (message, id)
}

/// The answer of the call, in its message.
async fn answer(rig: &Rig, chat: &str, message: &Value, id: &str, output: &str) -> Response {
    let part = format!(
        r#"{{"type":"tool-change_bgm","toolCallId":"{id}","state":"output-available","input":{{"track":1}},"output":{output}}}"#
    );
    let message = json!({"id": message["id"], "role": "assistant", "parts": ["PART"]});
    let body = json!({"id": chat, "messages": [message]}).to_string();
    let body = body.replace(r#""PART""#, &part);
    rig.bridge
        .send("POST", "/api/chat", &[JSON, ALICE], body)
        .await
}

#[tokio::test]
async fn outputs_of_very_many_values_at_once_cost_a_few_times_their_bytes() {
    let mut rig = Rig::start("").await;
    let output = objects();
    let chats: Vec<String> = (0..AT_ONCE).map(|number| format!("c{number}")).collect();
    let mut calls = Vec::new();
    for chat in &chats {
        calls.push(call(&rig, chat).await);
    }
    rig.bridge.forget_peak();
    let answers = chats
        .iter()
        .zip(&calls)
        .map(|(chat, (message, id))| answer(&rig, chat, message, id, &output));
    let mut taken = 0;
    for answer in join_all(answers).await {
        match answer.status {
            200 => taken += 1,
            status => assert!([429, 503].contains(&status), "{status}"),
        }
    }
    assert!(taken > 0);
    rig.serves_bob().await;
    assert!(rig.peak() < 400 * MB, "{} MB", rig.peak() / MB);
    rig.recovers().await;
}

#[tokio::test]
async fn outputs_of_very_many_values_one_after_another_leave_nothing_behind() {
    let mut rig = Rig::start("").await;
    let output = objects();
    for number in 0..IN_A_ROW {
        let chat = format!("c{number}");
        let (_, id) = call(&rig, &chat).await;
        let body = format!(r#"{{"toolCallId":"{id}","output":{output}}}"#);
        let path = format!("/api/chat/{chat}/tool-output");
        let taken = rig.bridge.send("POST", &path, &[JSON, ALICE], body).await;
        assert_eq!(taken.status, 204, "{number}");
    }
    assert!(rig.peak() < 200 * MB, "{} MB", rig.peak() / MB);
    rig.recovers().await;
}

#[tokio::test]
async fn arguments_of_very_many_values_cost_a_few_times_their_bytes() {
    let mut rig = Rig::start("").await;
    let says = format!(r#"call get_weather {{"location":{}}}"#, objects());
    let asked = (0..CALLS).map(|number| {
        let body = asking(&format!("c{number}"), &says);
        let rig = &rig;
        async move { rig.post(&body).await }
    });
    let mut taken = 0;
    for answer in join_all(asked).await {
        match answer.status {
            200 => taken += 1,
            status => assert!([429, 503].contains(&status), "{status}"),
        }
    }
    assert!(taken > 0);
    rig.serves_bob().await;
    assert!(rig.peak() < 400 * MB, "{} MB", rig.peak() / MB);
    rig.recovers().await;
}
