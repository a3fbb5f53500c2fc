//! Requests in every form that clients write them in: all are taken, and nothing of them is lost.

use serde_json::{Value, json};

use crate::support::{Bridge, JSON, asking};

#[tokio::test]
async fn unknown_fields_and_older_forms_are_taken() {
    let bridge = Bridge::start();
    let said = json!([{"type": "text", "text": "say hi"}]);
    for (chat, message) in [
        (
            "parts",
            json!({"role": "user", "parts": said, "createdAt": "2026-01-01", "future": {"a": [1]}}),
        ),
        ("content", json!({"role": "user", "content": "say hi"})),
        ("entries", json!({"role": "user", "content": said})),
        (
            "attachments",
            json!({"role": "user", "experimental_attachments": said}),
        ),
        (
            "both",
            json!({"id": "m", "role": "user", "content": "say hi", "parts": said}),
        ),
    ] {
        let body = json!({
            "id": chat, "messages": [message], "messageId": null, "trigger": null, "dialect": null,
            "sdk": null, "model": "x", "webSearch": false, "body": [[[]]],
        });
        let response = bridge.post("/api/chat", &body).await;
        assert_eq!(response.status, 200, "{chat}");
        assert!(
            String::from_utf8_lossy(&response.body).contains("hi"),
            "{chat}"
        );
    }
}

#[tokio::test]
async fn the_last_message_may_come_alone() {
    let bridge = Bridge::start();
    for (id, said) in [("m1", "say one"), ("m2", "say two")] {
        let message = json!({"id": id, "role": "user", "parts": [{"type": "text", "text": said}]});
        let body = json!({"id": "alone", "message": message});
        let response = bridge.post("/api/chat", &body).await;
        assert_eq!(response.status, 200, "{response:?}");
    }
    let chat = bridge.get("/api/chats/alone").await.json();
    assert_eq!(chat["messages"].as_array().map(Vec::len), Some(4), "{chat}");
}

#[tokio::test]
async fn half_a_character_is_no_reason_to_refuse_the_rest() {
    let bridge = Bridge::start();
    let body = asking("half", "say XX there")
        .to_string()
        .replace("XX", r"\ud83d");
    let response = bridge.send("POST", "/api/chat", &[JSON], body).await;
    assert_eq!(response.status, 200, "{response:?}");
    let said = String::from_utf8_lossy(&response.body).into_owned();
    assert!(
        said.contains('\u{fffd}') && said.contains("there"),
        "{said}"
    );
}

#[tokio::test]
async fn a_message_keeps_the_parts_that_only_the_front_end_knows() {
    let bridge = Bridge::start();
    let mood = json!({"type": "data-mood", "data": {"good": true}});
    for number in [1, 2] {
        let mut request = asking("parts", "say hi");
        request["messages"][0]["id"] = json!(number.to_string());
        add_part(&mut request, &mood);
        assert_eq!(bridge.post("/api/chat", &request).await.status, 200);
    }
    let chat = bridge.get("/api/chats/parts").await.json();
    for index in [0, 2] {
        assert_eq!(chat["messages"][index]["parts"][1], mood, "{chat}");
    }
}

#[tokio::test]
async fn the_content_of_a_file_is_found_in_every_form_of_a_data_url() {
    let bridge = Bridge::start();
    for (chat, url) in [
        ("base64", "data:text/plain;base64,aGVsbG8="),
        ("lines", "data:text/plain;base64,aGVs\nbG8="),
        ("plain", "data:text/plain,hel%6Co"),
    ] {
        let mut request = asking(chat, "say hi");
        let file = json!({"type": "file", "mediaType": "text/plain", "url": url});
        add_part(&mut request, &file);
        assert_eq!(bridge.post("/api/chat", &request).await.status, 200);
        let kept = bridge.get(&format!("/api/chats/{chat}")).await.json();
        let url = &kept["messages"][0]["parts"][1]["url"];
        let file = bridge.get(url.as_str().unwrap_or_default()).await;
        assert_eq!(file.body, b"hello", "{kept}");
    }
}

/// A new message takes back what is asked; one that is refused does not.
#[tokio::test]
async fn a_refused_message_takes_no_question_back() {
    let bridge = Bridge::start();
    let ask = "call process_payment {\"amount\": 5, \"recipient\": \"A\"}";
    bridge.ask("asked", ask).await.events().await;
    let asked = bridge.last_message("asked").await;
    for url in [
        "/api/files/00000000000000000000000000000000",
        "blob:http://localhost/1",
    ] {
        let mut request = asking("asked", "say look");
        let file = json!({"type": "file", "mediaType": "image/png", "url": url});
        add_part(&mut request, &file);
        let refused = bridge.post("/api/chat", &request).await;
        assert_eq!(refused.status, 422, "{refused:?}");
        assert_eq!(bridge.last_message("asked").await, asked);
    }
    let calls = asked["parts"].as_array().unwrap().iter();
    assert!(calls.last().unwrap()["state"] == "approval-requested");
}

fn add_part(request: &mut Value, part: &Value) {
    let parts = request["messages"][0]["parts"].as_array_mut().unwrap();
    parts.push(part.clone());
}
