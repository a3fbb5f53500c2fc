//! What the AI SDK's own clients and older front ends meet: refusals in words, answers as text, requests without an id.

use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::support::{Bridge, JSON, asking, folded, text_of, types, within};

const PAYMENT: &str = r#"call process_payment {"amount": 5, "recipient": "Hanako"}"#;

/// A stock page shows the whole body of a refused request to its user.
#[tokio::test]
async fn a_refusal_is_plain_text_unless_json_is_requested() {
    let bridge = Bridge::start();
    let bad = json!({"id": "a", "messages": []}).to_string();
    let said = "a request needs at least one message";
    for (accept, in_words) in [
        (None, true),
        (Some("*/*"), true),
        (Some("text/event-stream"), true),
        (Some("text/plain"), true),
        (Some("application/json"), false),
        (Some("text/event-stream, application/json;q=0.9"), false),
        (Some("Application/JSON"), false),
    ] {
        let mut headers = vec![JSON];
        headers.extend(accept.map(|accept| ("accept", accept)));
        let refused = bridge.send("POST", "/api/chat", &headers, &bad).await;
        assert_eq!(refused.code(), "missing_field", "{accept:?}");
        assert_eq!(refused.message(), said, "{accept:?}");
        assert_eq!(refused.is_in_words(), in_words, "{accept:?}");
    }
    for path in ["/api/chat/a/stream", "/api/chat/a/stream/"] {
        let resume = bridge.get(&format!("{path}?dialect=klingon")).await;
        assert_eq!(resume.code(), "bad_dialect");
        assert!(resume.is_in_words());
    }
    // What is refused before anything is read, too.
    let evil = [JSON, ("origin", "https://evil.example")];
    let refused = bridge.send("POST", "/api/chat", &evil, &bad).await;
    assert_eq!(refused.code(), "foreign_origin");
    assert!(refused.is_in_words() && refused.message().contains("server.allowed_origins"));
    for path in ["/api/chats/none", "/api/chat/none/stop", "/api/audit"] {
        let method = if path.ends_with("stop") {
            "POST"
        } else {
            "GET"
        };
        let refused = bridge.send(method, path, &[], "").await;
        assert!(
            !refused.code().is_empty() && !refused.is_in_words(),
            "{path}"
        );
    }
}

/// Servers of pages may put a slash behind every address (`trailingSlash` of Next.js).
#[tokio::test]
async fn a_slash_behind_the_address_is_as_good() {
    let bridge = Bridge::start();
    let answer = bridge.post("/api/chat/", &asking("c", "say hi")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(String::from_utf8_lossy(&answer.body).contains("hi"));
    let bad = json!({"id": "c", "messages": []});
    let refused = bridge.post("/api/chat/", &bad).await;
    assert_eq!(refused.code(), "missing_field");
    assert!(refused.is_in_words());
    assert_eq!(bridge.get("/api/chat/c/stream/").await.status, 204);
}

#[tokio::test]
async fn who_asks_for_text_gets_text_as_it_comes() {
    let bridge = Bridge::start();
    let text = [JSON, ("accept", "text/plain")];
    let asked = asking("text", "say 20 °C").to_string();
    let answer = bridge.send("POST", "/api/chat", &text, asked).await;
    assert_eq!(answer.status, 200);
    for (name, value) in [
        ("content-type", "text/plain; charset=utf-8"),
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
        ("x-vercel-ai-ui-message-stream", ""),
    ] {
        assert_eq!(answer.header(name).unwrap_or_default(), value, "{name}");
    }
    assert_eq!(String::from_utf8(answer.body).unwrap(), "20 °C");

    // What is no text is said in words, and the question waits as always.
    let asked = asking("asks", PAYMENT).to_string();
    let answer = bridge.send("POST", "/api/chat", &text, asked).await;
    let said = String::from_utf8(answer.body).unwrap();
    assert!(
        said.contains("process_payment") && said.ends_with(']'),
        "{said}"
    );
    let waits = bridge.last_message("asks").await.to_string();
    assert!(waits.contains("approval-requested"), "{waits}");

    // A client of the stream that also takes text gets the stream.
    let both = [JSON, ("accept", "text/event-stream, text/plain")];
    let asked = asking("both", "say hi").to_string();
    let answer = bridge.send("POST", "/api/chat", &both, asked).await;
    assert!(answer.body.starts_with(b"data: "));
}

#[tokio::test]
async fn text_that_fails_is_cut_off_behind_the_reason() {
    let bridge = Bridge::start();
    let text = [JSON, ("accept", "text/plain")];
    let mut connection = bridge.connect().await;
    let asked = asking("fails", "http 400").to_string();
    connection
        .request("POST", "/api/chat", &text, asked.as_bytes())
        .await;
    let mut raw = Vec::new();
    let _ = within(connection.stream.read_to_end(&mut raw)).await;
    let raw = String::from_utf8_lossy(&raw);
    assert!(raw.contains("\r\n["), "{raw}");
    assert!(!raw.ends_with("0\r\n\r\n"), "it looks complete: {raw}");
}

#[tokio::test]
async fn a_request_without_an_id_begins_a_chat_and_gets_its_id() {
    let bridge = Bridge::start();
    let mut ids = Vec::new();
    for id in [None, Some(Value::Null)] {
        let mut request = asking("", "say second");
        let fields = request.as_object_mut().unwrap();
        fields.remove("id");
        fields.extend(id.map(|id| ("id".to_owned(), id)));
        request["messages"] = json!([
            {"id": "u1", "role": "user", "content": "say first"},
            {"id": "a1", "role": "assistant", "content": "first"},
            {"id": "u2", "role": "user", "content": "say second"},
        ]);
        let mut answer = bridge
            .open("POST", "/api/chat", &[JSON], &request.to_string())
            .await;
        assert_eq!(answer.status, 200);
        let id = answer.header("x-chat-id").unwrap().to_owned();
        assert_eq!(text_of(&folded(&answer.events().await)), "second");
        let chat = bridge.get(&format!("/api/chats/{id}")).await.json();
        assert_eq!(chat["messages"].as_array().unwrap().len(), 4, "{chat}");
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1]);
}

/// How a question is answered in a message of the user's, and what comes of it.
#[tokio::test]
async fn answers_in_a_message_of_the_user_count_where_they_are_clear() {
    let entry = |id: &Value, result: Value| json!({"type": "tool-result", "toolCallId": id, "result": result});
    let part = |id: &Value, approved: Value| {
        json!({
            "type": "tool-adk_request_confirmation", "toolCallId": id, "toolName": "adk_request_confirmation",
            "state": "approval-responded", "approval": {"id": id, "approved": approved},
        })
    };
    let bridge = Bridge::start();
    let mut number = 0;
    for named in [true, false] {
        for dialect in ["native", "adk"] {
            for by_question in [true, false] {
                for (form, word, ran) in [
                    ("entry", json!({"confirmed": true}), Some(true)),
                    ("entry", json!({"approved": true}), Some(true)),
                    ("entry", json!({"approved": false}), Some(false)),
                    (
                        "entry",
                        json!({"confirmed": false, "approved": false}),
                        Some(false),
                    ),
                    ("part", json!(true), Some(true)),
                    ("part", json!(false), Some(false)),
                    ("entry", json!({"confirmed": true, "approved": false}), None),
                    ("entry", json!({"confirmed": "true"}), None),
                    ("entry", json!({"approved": 1}), None),
                    ("entry", json!({"approved": null}), None),
                    ("part", json!("yes"), None),
                ] {
                    number += 1;
                    let case = format!("{named} {dialect} {by_question} {form} {word}");
                    let chat = format!("chat-{number}");
                    bridge.ask(&chat, PAYMENT).await.events().await;
                    let asked = bridge.last_message(&chat).await;
                    let call = &asked["parts"][1];
                    let id = match by_question {
                        true => &call["approval"]["id"],
                        false => &call["toolCallId"],
                    };
                    let message = match form {
                        "entry" => json!({"role": "user", "content": [entry(id, word)]}),
                        _ => json!({"role": "user", "parts": [part(id, word)]}),
                    };
                    let mut body = json!({"messages": [message], "dialect": dialect});
                    if named {
                        body["id"] = json!(chat);
                    }
                    let response = bridge.post("/api/chat", &body).await;
                    let after = bridge.last_message(&chat).await;
                    match ran {
                        None => {
                            // A part whose flag is none cannot be read.
                            let code = match form {
                                "part" => "bad_message",
                                _ => "bad_value",
                            };
                            assert_eq!(response.code(), code, "{case}");
                            assert_eq!(after, asked, "{case}");
                        }
                        Some(ran) => {
                            assert_eq!(response.status, 200, "{case}: {response:?}");
                            let state = if ran {
                                "output-available"
                            } else {
                                "output-denied"
                            };
                            assert_eq!(after["parts"][1]["state"], state, "{case}: {after}");
                        }
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn an_answer_of_the_user_that_has_no_question_is_refused() {
    let bridge = Bridge::start();
    bridge.ask("asks", PAYMENT).await.events().await;
    let asked = bridge.last_message("asks").await;
    let call = asked["parts"][1]["toolCallId"].clone();
    let result = json!({"type": "tool-result", "toolCallId": call, "result": {"approved": true}});
    let words = json!({"type": "text", "text": "say more"});
    let other = json!({"type": "tool-result", "toolCallId": "other", "result": {"approved": true}});
    let question = &asked["parts"][1]["approval"]["id"];
    let decided = |call: &str, question: &Value, output: Value| {
        json!({
            "type": "tool-process_payment", "toolCallId": call, "state": "output-available", "output": output,
            "approval": {"id": question, "approved": true},
        })
    };
    let id = call.as_str().unwrap();
    for (content, status) in [
        (json!([result, words]), 422),
        (json!([result, other]), 422),
        (json!([other]), 409),
        // It names two calls, or says two things.
        (json!([decided("other", question, json!({}))]), 422),
        (json!([decided(id, &json!("other"), json!({}))]), 422),
        (
            json!([decided(id, question, json!({"confirmed": false}))]),
            422,
        ),
    ] {
        let body = json!({"id": "asks", "messages": [{"role": "user", "content": content}]});
        let refused = bridge.post("/api/chat", &body).await;
        assert_eq!(refused.status, status, "{content}: {refused:?}");
        assert_eq!(bridge.last_message("asks").await, asked, "{content}");
    }
}

#[tokio::test]
async fn the_output_of_a_client_tool_may_come_from_the_user() {
    let bridge = Bridge::configured("[[agent.client_tools]]\nname = \"pick_colour\"\n");
    bridge
        .ask("colours", "call pick_colour {}")
        .await
        .events()
        .await;
    let call = bridge.last_message("colours").await["parts"][1]["toolCallId"].clone();
    let entry = json!({"type": "tool-result", "toolCallId": call, "result": {"colour": "red"}});
    let body = json!({"messages": [{"role": "user", "parts": [entry]}]});
    let mut answer = bridge
        .open("POST", "/api/chat", &[JSON], &body.to_string())
        .await;
    assert_eq!(answer.header("x-chat-id"), Some("colours"));
    let events = answer.events().await;
    assert!(
        types(&events).contains(&"text-delta".to_owned()),
        "{events:?}"
    );
    let after = bridge.last_message("colours").await;
    assert_eq!(after["parts"][1]["output"], json!({"colour": "red"}));
}

/// When nobody has to decide any more, the words of a client tool's output are its own.
#[tokio::test]
async fn the_output_of_an_approved_client_tool_is_no_decision() {
    let bridge = Bridge::start();
    for (chat, result) in [
        ("yes", json!({"confirmed": true})),
        ("no", json!({"confirmed": false})),
        ("odd", json!({"approved": "maybe"})),
    ] {
        bridge
            .ask(chat, "call get_location {}")
            .await
            .events()
            .await;
        let asked = bridge.last_message(chat).await;
        let call = asked["parts"][1]["toolCallId"].clone();
        let mut part = asked["parts"][1].clone();
        part["state"] = json!("approval-responded");
        part["approval"]["approved"] = json!(true);
        let entry = json!({"type": "tool-result", "toolCallId": call, "result": result});
        for part in [part, entry] {
            let body = json!({"id": chat, "messages": [{"role": "user", "parts": [part]}]});
            let response = bridge.post("/api/chat", &body).await;
            assert_eq!(response.status, 200, "{chat}: {response:?}");
        }
        let after = bridge.last_message(chat).await;
        assert_eq!(after["parts"][1]["state"], "output-available", "{after}");
        assert_eq!(after["parts"][1]["output"], result, "{after}");
    }
}

/// What a browser, a cache or a page elsewhere may do with an answer.
#[tokio::test]
async fn answers_are_for_who_asked() {
    let bridge = Bridge::start();
    bridge.ask("kept", "say hi").await.events().await;
    for path in [
        "/api/chats",
        "/api/chats/kept",
        "/api/chats/none",
        "/api/audit?chat=kept",
        "/api/agent",
        "/metrics",
    ] {
        let answer = bridge.get(path).await;
        for (name, value) in [
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
    }
}
