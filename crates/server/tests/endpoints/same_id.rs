//! Chats of two users with the same id: neither sees, touches or even notices the other's.

use serde_json::{Value, json};

use crate::support::http::Response;
use crate::support::users::{ALICE, BOB, KEYS};
use crate::support::{Bridge, JSON, asking};

const PNG: (&str, &str) = ("content-type", "image/png");
/// In a path or a body, the id that is asked for.
const ID: &str = "THE-ID";

/// Every endpoint that takes a chat id is asked by Bob for Alice's chat and for one that nobody has, in an order in which
/// the chats come to be, are used and are deleted. The answers are the same to the byte, but for what is random.
#[tokio::test]
async fn an_id_that_somebody_has_is_as_free_as_any() {
    let bridge = Bridge::configured(&format!(
        "{KEYS}[[agent.client_tools]]\nname = \"pick_colour\"\n"
    ));
    let asked = asking(
        "taken-id",
        "call pick_colour {} && call process_payment {\"amount\": 1, \"recipient\": \"x\"}",
    );
    let response = bridge
        .send("POST", "/api/chat", &[JSON, ALICE], asked.to_string())
        .await;
    assert_eq!(response.status, 200);
    let before = alices(&bridge).await;
    let message = &before[0]["messages"][1];
    let part = |kind: &str| {
        let mut parts = message["parts"].as_array().unwrap().iter();
        parts.find(|part| part["type"] == kind).unwrap().clone()
    };
    let output = json!({"toolCallId": part("tool-pick_colour")["toolCallId"], "output": "red"});
    let mut answer = message.clone();
    for part in answer["parts"].as_array_mut().unwrap() {
        if part["type"] == "tool-process_payment" {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(true);
        }
    }
    let approved = json!({"id": ID, "messages": [answer]}).to_string();
    let typed = asking(ID, "say mine").to_string();
    let again = json!({"id": ID, "trigger": "regenerate-message", "messages": [{
        "role": "user", "parts": [{"type": "text", "text": "say mine again"}],
    }]})
    .to_string();
    let (output, title) = (output.to_string(), json!({"title": "mine"}).to_string());
    let picture = "\u{89}PNG\r\n\u{1a}\n";
    let asked: &[(&str, &str, &str)] = &[
        // Nothing of it is his.
        ("GET", "/api/chat/THE-ID/stream", ""),
        ("POST", "/api/chat/THE-ID/stop", ""),
        ("POST", "/api/chat/THE-ID/tool-output", &output),
        ("GET", "/api/chats/THE-ID", ""),
        ("GET", "/api/chats/THE-ID?dialect=adk", ""),
        ("PATCH", "/api/chats/THE-ID", &title),
        ("DELETE", "/api/chats/THE-ID", ""),
        ("GET", "/api/audit?chat=THE-ID", ""),
        // He begins one: by an answer to a question of hers, or by words of his own.
        ("POST", "/api/chat", &approved),
        ("POST", "/api/chat", &typed),
        ("GET", "/api/chats/THE-ID", ""),
        ("POST", "/api/chat", &again),
        ("POST", "/api/chat/THE-ID/tool-output", &output),
        ("POST", "/api/chat", &approved),
        ("GET", "/api/audit?chat=THE-ID", ""),
        ("PATCH", "/api/chats/THE-ID", &title),
        ("POST", "/api/chat/THE-ID/stop", ""),
        ("GET", "/api/chats/THE-ID?dialect=adk", ""),
        ("DELETE", "/api/chats/THE-ID", ""),
        ("GET", "/api/chats/THE-ID", ""),
        // Or by a file.
        ("POST", "/api/files?chat=THE-ID", "words"),
        ("POST", "/api/files?chat=THE-ID", picture),
        ("GET", "/api/chats/THE-ID", ""),
        ("DELETE", "/api/chats/THE-ID", ""),
    ];
    for (step, (method, path, body)) in asked.iter().enumerate() {
        let kind = if path.starts_with("/api/files") {
            PNG
        } else {
            JSON
        };
        let mut answers = Vec::new();
        for id in ["taken-id", "fresh-id"] {
            let (path, body) = (path.replace(ID, id), body.replace(ID, id));
            let answer = bridge.send(method, &path, &[kind, BOB], body).await;
            assert!(answer.status < 500, "{step} {method} {path}");
            answers.push(without_chance(&answer, id));
        }
        assert_eq!(answers[0], answers[1], "{step} {method} {path} {body:.60}");
        assert_eq!(alices(&bridge).await, before, "{step} {method} {path}");
    }
    // She answers her own question, and pays once.
    let body = approved.replace(ID, "taken-id");
    let paid = bridge.send("POST", "/api/chat", &[JSON, ALICE], body).await;
    assert_eq!(paid.status, 200);
    let kinds = alices(&bridge).await[1].to_string();
    assert_eq!(kinds.matches("tool.started").count(), 1, "{kinds}");
}

/// What Alice sees of her chat.
async fn alices(bridge: &Bridge) -> [Value; 2] {
    let get = async |path: &str| bridge.send("GET", path, &[ALICE], "").await.json();
    [
        get("/api/chats/taken-id").await,
        get("/api/audit?chat=taken-id").await,
    ]
}

/// An answer without its date, and with every random id, time and number of that length made the same.
fn without_chance(answer: &Response, id: &str) -> String {
    let mut text = format!("{}\n", answer.status);
    for (name, value) in &answer.headers {
        if name != "date" {
            text += &format!("{name}: {}\n", value.replace(id, ID));
        }
    }
    text += &String::from_utf8_lossy(&answer.body).replace(id, ID);
    let mut plain = String::new();
    let mut run = String::new();
    for character in text.chars().chain(['\n']) {
        if matches!(character, '0'..='9' | 'a'..='f' | '-') {
            run.push(character);
            continue;
        }
        plain += if run.len() >= 8 { "#" } else { &run };
        run.clear();
        plain.push(character);
    }
    plain
}
