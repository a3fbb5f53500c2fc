//! The frames of the AI SDK's own transport; the transport itself is tried in `web/chat`.

use serde_json::{Value, json};

use crate::client::{BINARY, Client, FIN};
use crate::support::Bridge;

fn send(request: &str, chat: &str, text: &str) -> Value {
    json!({
        "type": "send", "requestId": request, "id": chat, "trigger": "submit-message",
        "messages": [{"id": format!("u-{request}"), "role": "user", "parts": [{"type": "text", "text": text}]}],
        "headers": {}, "body": {},
    })
}

/// Reads until every one of these requests has ended; returns its chunks.
async fn ends(client: &mut Client, requests: &[&str]) -> Vec<Vec<Value>> {
    let mut chunks = vec![Vec::new(); requests.len()];
    let mut open = requests.len();
    while open > 0 {
        let frame = client.json().await;
        let of = requests
            .iter()
            .position(|request| frame["requestId"] == *request);
        let chunks = &mut chunks[of.unwrap_or_else(|| panic!("{frame}"))];
        match frame["type"].as_str().unwrap() {
            "start" => assert!(chunks.is_empty()),
            "chunk" => {
                assert_eq!(frame["sequence"], chunks.len());
                chunks.push(frame["chunk"].clone());
            }
            "end" => open -= 1,
            _ => panic!("{frame}"),
        }
    }
    chunks
}

fn text(chunks: &[Value]) -> String {
    chunks
        .iter()
        .filter_map(|chunk| chunk["delta"].as_str())
        .collect()
}

#[tokio::test]
async fn several_chats_share_a_socket() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/api/chat/ws").await;
    let requests = ["a", "b", "c"];
    for request in requests {
        client
            .send(send(
                request,
                &format!("chat-{request}"),
                &format!("slow 5 then say {request}"),
            ))
            .await;
    }
    for (request, chunks) in requests.iter().zip(ends(&mut client, &requests).await) {
        assert!(text(&chunks).ends_with(request), "{chunks:?}");
        assert_eq!(chunks.first().unwrap()["type"], "start");
        assert_eq!(chunks.last().unwrap()["type"], "finish");
    }
    let audit = bridge.get("/api/audit?chat=chat-a").await.json();
    assert_eq!(audit, json!([]));
}

#[tokio::test]
async fn a_request_that_may_not_begin_is_refused_by_name_and_the_others_go_on() {
    let bridge = Bridge::configured("[limits]\nturns = 2\n");
    let mut client = Client::open(&bridge, "/api/chat/ws").await;
    for (request, chat) in [("a", "one"), ("other", "two")] {
        client.send(send(request, chat, "slow 1000")).await;
        loop {
            let frame = client.json().await;
            if frame["requestId"] == request && frame["type"] == "chunk" {
                break;
            }
        }
    }
    client.send(send("b", "three", "hello")).await;
    let refused = loop {
        let frame = client.json().await;
        if frame["requestId"] == "b" {
            break frame;
        }
    };
    assert_eq!(refused["type"], "error");
    let message = refused["errorText"].as_str().unwrap();
    assert!(message.contains("limits.turns"), "{message}");
    client
        .send(json!({"type": "abort", "requestId": "a"}))
        .await;
    let stopped = bridge.settled_message("one").await;
    assert_eq!(stopped["metadata"]["ended"], "stopped");
    while client.json().await["requestId"] != "other" {}
}

#[tokio::test]
async fn a_turn_is_resumed_on_another_socket_and_aborted_there() {
    let bridge = Bridge::start();
    let mut first = Client::open(&bridge, "/api/chat/ws").await;
    first.send(send("a", "c", "slow 1000")).await;
    while !first.json().await.to_string().contains("word1 ") {}
    let mut second = Client::open(&bridge, "/api/chat/ws").await;
    second
        .send(json!({"type": "resume", "requestId": "r", "id": "c", "headers": {}, "body": {}}))
        .await;
    assert_eq!(
        second.json().await,
        json!({"type": "start", "requestId": "r"})
    );
    while !second.json().await.to_string().contains("word1 ") {}
    drop(first);
    second
        .send(json!({"type": "abort", "requestId": "r"}))
        .await;
    let message = bridge.settled_message("c").await;
    assert_eq!(message["metadata"]["ended"], "stopped");
    second
        .send(json!({"type": "resume", "requestId": "s", "id": "c", "headers": {}, "body": {}}))
        .await;
    let answer = loop {
        let frame = second.json().await;
        if frame["requestId"] == "s" {
            break frame;
        }
    };
    assert_eq!(answer["type"], "no-active");
}

/// Who asks again over the same socket has read what came before. Another socket says nothing of it.
#[tokio::test]
async fn an_answer_is_deleted_by_who_has_read_it() {
    for (endpoint, same) in [
        ("/api/chat/ws", true),
        ("/api/chat/ws", false),
        ("/live?chat=c", true),
        ("/live?chat=c", false),
    ] {
        let bridge = Bridge::start();
        let mut client = Client::open(&bridge, endpoint).await;
        let user = |id: &str, text: &str| json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]});
        let (first, second) = (user("u1", "say one"), user("u2", "say two"));
        for (request, messages) in [
            ("a", vec![first.clone()]),
            ("b", vec![first.clone(), second]),
        ] {
            let mut frame = send(request, "c", "");
            frame["messages"] = json!(messages);
            let is_live = endpoint.starts_with("/live");
            if is_live {
                frame["type"] = json!("message");
            }
            client.send(frame).await;
            match is_live {
                true => drop(client.turn().await),
                false => drop(ends(&mut client, &[request]).await),
            }
            if !same {
                client = Client::open(&bridge, endpoint).await;
            }
        }
        let shown = bridge.get("/api/chats/c").await.json();
        let shown = shown["messages"].as_array().unwrap().iter();
        let roles: Vec<&str> = shown.map(|it| it["role"].as_str().unwrap()).collect();
        let expected: &[&str] = match same {
            true => &["user", "user", "assistant"],
            false => &["user", "assistant", "user", "assistant"],
        };
        assert_eq!(roles, expected, "{endpoint} {same}");
    }
}

/// What the user sends after a stop must not be stopped by it.
#[tokio::test]
async fn an_abort_stops_only_what_came_before_it() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/api/chat/ws").await;
    for round in 0..10 {
        let (long, short) = (format!("long{round}"), format!("short{round}"));
        client.send(send(&long, "c", "slow 1000")).await;
        if round % 2 == 0 {
            while client.json().await["requestId"] != json!(long) {}
        }
        client
            .send(json!({"type": "abort", "requestId": long}))
            .await;
        client.send(send(&short, "c", "say go on")).await;
        let mut said = String::new();
        loop {
            let frame = client.json().await;
            if frame["requestId"] == json!(short) {
                said += frame["chunk"]["delta"].as_str().unwrap_or_default();
                if frame["type"] == "end" {
                    break;
                }
                assert_ne!(frame["type"], "error", "{frame}");
            }
        }
        assert_eq!(said, "go on", "round {round}");
    }
}

#[tokio::test]
async fn what_is_refused_fails_its_own_request_only() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/api/chat/ws").await;
    client.send(send("good", "c", "slow 10")).await;
    client.text("nonsense").await;
    client.frame(FIN | BINARY, b"x").await;
    client
        .send(json!({"type": "sned", "requestId": "bad"}))
        .await;
    client
        .send(json!({"type": "send", "requestId": "bad", "id": "c", "messages": []}))
        .await;
    client
        .send(json!({"type": "resume", "requestId": "bad", "id": "c", "body": {"dialect": "x"}}))
        .await;
    client
        .send(json!({"type": "resume", "requestId": "bad", "id": ""}))
        .await;
    client
        .send(json!({"type": "abort", "requestId": "nobody"}))
        .await;
    let (mut errors, mut ended) = (Vec::new(), false);
    while errors.len() < 6 || !ended {
        let frame = client.json().await;
        match (
            frame["requestId"].as_str().unwrap(),
            frame["type"].as_str().unwrap(),
        ) {
            ("good", "end") => ended = true,
            ("good", kind) => assert!(kind == "start" || kind == "chunk", "{frame}"),
            (request, kind) => {
                assert_eq!(kind, "error", "{frame}");
                errors.push(request.to_owned());
            }
        }
    }
    assert_eq!(errors, ["", "", "bad", "bad", "bad", "bad"]);
}

/// An aborted request makes room at once, whether its chat has taken it up or not.
#[tokio::test]
async fn too_many_requests_wait_for_none() {
    let bridge = Bridge::start();
    for is_taken_up in [true, false] {
        let mut client = Client::open(&bridge, "/api/chat/ws").await;
        let name = |number: i32| format!("chat{number}-{is_taken_up}");
        for number in 0..33 {
            let id = format!("r{number}");
            client.send(send(&id, &name(number), "slow 1000")).await;
        }
        let mut is_refused = false;
        let mut see = |frame: &Value| {
            if frame["type"] == "error" {
                assert_eq!(frame["requestId"], "r32", "{frame}");
                is_refused = true;
            }
        };
        let mut waits = is_taken_up;
        while waits {
            let frame = client.json().await;
            see(&frame);
            waits = frame["requestId"] != "r0";
        }
        client
            .send(json!({"type": "abort", "requestId": "r0"}))
            .await;
        client.send(send("after", &name(33), "say room")).await;
        let mut said = String::new();
        loop {
            let frame = client.json().await;
            see(&frame);
            if frame["requestId"] == "after" {
                said += frame["chunk"]["delta"].as_str().unwrap_or_default();
                if frame["type"] == "end" {
                    break;
                }
            }
        }
        assert!(is_refused);
        assert_eq!(said, "room");
    }
}

/// A question is asked before the process dies, and answered after: the call runs, once.
#[tokio::test]
async fn a_question_outlives_the_process() {
    let mut bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/api/chat/ws").await;
    let pay = "call process_payment {\"amount\": 5, \"recipient\": \"Ken\"}";
    client.send(send("a", "c", pay)).await;
    let asked = ends(&mut client, &["a"]).await.remove(0);
    let question = asked
        .iter()
        .find(|chunk| chunk["type"] == "tool-approval-request")
        .unwrap();
    bridge.kill_and_restart();
    let mut client = Client::open(&bridge, "/api/chat/ws").await;
    // Nothing runs, so there is nothing to resume; the page has the question from the list of messages.
    client
        .send(json!({"type": "resume", "requestId": "r", "id": "c", "headers": {}, "body": {}}))
        .await;
    assert_eq!(client.json().await["type"], "no-active");
    let mut message = bridge.last_message("c").await;
    let parts = message["parts"].as_array_mut().unwrap();
    let part = parts
        .iter_mut()
        .find(|part| part["toolCallId"] == question["toolCallId"])
        .unwrap();
    assert_eq!(part["state"], "approval-requested");
    part["state"] = json!("approval-responded");
    part["approval"] = json!({"id": question["approvalId"], "approved": true});
    client
        .send(json!({
            "type": "send", "requestId": "b", "id": "c", "trigger": "submit-message", "messageId": message["id"],
            "messages": [message], "headers": {}, "body": {},
        }))
        .await;
    let paid = ends(&mut client, &["b"]).await.remove(0);
    assert_eq!(paid[0]["messageId"], asked[0]["messageId"]);
    let outputs = paid
        .iter()
        .filter(|chunk| chunk["type"] == "tool-output-available");
    assert_eq!(outputs.count(), 1, "{paid:?}");
    assert!(text(&paid).contains("Ken"), "{paid:?}");
    let rows = crate::voice::audit(&bridge, "c").await;
    let runs = rows.iter().filter(|kind| *kind == "tool.started").count();
    assert_eq!(runs, 1, "{rows:?}");
}
