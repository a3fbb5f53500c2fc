//! Limits: what one user, or somebody without a key, cannot keep from others.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::http::Response;
use crate::support::users::{ALICE, BOB, KEYS};
use crate::support::{Bridge, JSON, asking, folded, text_of, within, words};

const TEXT: (&str, &str) = ("content-type", "text/plain");

fn limits(toml: &str) -> String {
    format!("{KEYS}[limits]\n{toml}\n")
}

/// A refusal that says when to come back, and which limit it is.
fn assert_refused(response: &Response, status: u16, key: &str) {
    let said = String::from_utf8_lossy(&response.body);
    assert_eq!(response.status, status, "{said}");
    assert!(said.contains(key), "{said}");
    let after: Option<u64> = response
        .header("retry-after")
        .and_then(|it| it.parse().ok());
    assert!(after.is_some_and(|seconds| seconds > 0), "{response:?}");
}

/// Whoever watches the server learns how it is.
async fn assert_serves(bridge: &Bridge) {
    for path in ["/health", "/ready"] {
        let answer = bridge.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
}

/// Another user is served, whatever the first one holds.
async fn assert_serves_bob(bridge: &Bridge) {
    assert_serves(bridge).await;
    let body = asking("his", "say hi").to_string();
    let mut answer = bridge.open("POST", "/api/chat", &[JSON, BOB], &body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(text_of(&folded(&answer.events().await)), "hi");
}

/// Accepted turns can reach their agent, whoever else is connected; the others are refused in words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_hundred_turns_complete_or_are_refused_before_they_begin() {
    const TURNS: usize = 600;
    adk_bridge::descriptors::raise();
    let bridge = Arc::new(Bridge::with_files("", 1_024));
    let all_sent = Arc::new(tokio::sync::Barrier::new(TURNS + 1));
    let clients: Vec<_> = (0..TURNS)
        .map(|number| {
            let (bridge, all_sent) = (bridge.clone(), all_sent.clone());
            tokio::spawn(async move {
                let mut connection = bridge.connect().await;
                let body = asking(&format!("chat{number}"), "long 20").to_string();
                connection
                    .request("POST", "/api/chat", &[JSON], body.as_bytes())
                    .await;
                // Nobody reads before everybody has asked.
                within(all_sent.wait()).await;
                let mut answer = connection.answer("POST").await;
                if answer.status == 200 {
                    let events = answer.events().await;
                    assert_eq!(text_of(&folded(&events)), words(20), "{events:?}");
                    return true;
                }
                assert_refused(&answer.whole().await, 503, "limits.");
                false
            })
        })
        .collect();
    within(all_sent.wait()).await;
    assert_serves(&bridge).await;
    let mut complete = 0;
    for client in clients {
        complete += usize::from(client.await.unwrap());
    }
    assert!(complete > 0);
    let metrics = String::from_utf8(bridge.get("/metrics").await.body).unwrap();
    let began = format!("adk_bridge_turns_started_total {complete}\n");
    let finished = format!("adk_bridge_turns_ended_total{{result=\"finished\"}} {complete}\n");
    assert!(metrics.contains(&began), "{complete}: {metrics}");
    assert!(metrics.contains(&finished), "{complete}: {metrics}");
}

#[tokio::test]
async fn silent_connections_give_way() {
    let bridge = Bridge::with_files("", 256);
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(TcpStream::connect(bridge.address).await.unwrap());
    }
    for _ in 0..20 {
        assert_eq!(bridge.get("/health").await.status, 200);
    }
    let events = bridge.ask("among", "say hi").await.events().await;
    assert_eq!(text_of(&folded(&events)), "hi");
    drop(silent);
}

#[tokio::test]
async fn connections_that_are_in_use_do_not_give_way() {
    let bridge = Bridge::configured("[limits]\nconnections = 3\n");
    let mut streams = Vec::new();
    for number in 0..3 {
        streams.push(bridge.ask(&format!("c{number}"), "slow 5000").await);
    }
    let refused = bridge.get("/api/chats").await;
    assert_refused(&refused, 503, "limits.connections");
    // It can be read even by a client that sends more than is looked at.
    let long = asking("long", &"x".repeat(50_000));
    let refused = bridge.post("/api/chat", &long).await;
    assert_refused(&refused, 503, "limits.connections");
    assert_serves(&bridge).await;
    assert_eq!(bridge.get("/metrics").await.status, 200);
    for mut stream in streams {
        stream.events_until("word5 ").await;
    }
}

#[tokio::test]
async fn one_users_streams_leave_connections_for_others() {
    let bridge = Bridge::with_files(KEYS, 256);
    let body = asking("long", "slow 100000").to_string();
    let mut first = bridge
        .open("POST", "/api/chat", &[JSON, ALICE], &body)
        .await;
    first.events_until("word1 ").await;
    let mut streams = vec![first];
    let refused = loop {
        let stream = bridge.open("GET", "/api/chat/long/stream", &[ALICE], "");
        let stream = stream.await;
        if stream.status != 200 {
            break stream.whole().await;
        }
        streams.push(stream);
        assert!(streams.len() < 100, "there is no limit");
    };
    assert_refused(&refused, 429, "limits.connections_per_user");
    assert_serves_bob(&bridge).await;
    // What she closes she can have again.
    streams.truncate(1);
    let taken = async {
        loop {
            let listed = bridge.send("GET", "/api/chats", &[ALICE], "").await;
            if listed.status == 200 {
                return;
            }
            assert_refused(&listed, 429, "limits.connections_per_user");
        }
    };
    within(taken).await;
}

#[tokio::test]
async fn one_users_unfinished_bodies_leave_connections_for_others() {
    let bridge = Bridge::with_files(KEYS, 256);
    let mut bodies = Vec::new();
    let refused = loop {
        let mut connection = bridge.connect().await;
        // The server asks for the body when it begins to read it.
        let headers = [
            JSON,
            ALICE,
            ("content-length", "1000"),
            ("expect", "100-continue"),
        ];
        connection.request("POST", "/api/chat", &headers, b"").await;
        let mut status = [0; 12];
        while within(connection.stream.peek(&mut status)).await.unwrap() < status.len() {}
        if &status != b"HTTP/1.1 100" {
            break connection.answer("POST").await.whole().await;
        }
        connection.write(b"{").await;
        bodies.push(connection);
        assert!(bodies.len() < 100, "there is no limit");
    };
    assert_refused(&refused, 429, "limits.connections_per_user");
    assert_serves_bob(&bridge).await;
}

#[tokio::test]
async fn heads_are_bounded() {
    let bridge = Bridge::start();
    let long = "x".repeat(30_000);
    let taken = bridge
        .send("GET", "/health", &[("x-long", &long)], "")
        .await;
    assert_eq!(taken.status, 200);
    let mut connection = bridge.connect().await;
    connection
        .write(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-long: ")
        .await;
    // It is refused before it is over; what is written after that may fail.
    connection.write(&vec![b'x'; 100_000]).await;
    let refused = connection.try_answer("GET").await;
    assert!(refused.is_none_or(|answer| answer.status == 431));
}

#[tokio::test]
async fn turns_of_one_user_are_bounded_and_others_go_on() {
    let bridge = Bridge::configured(&limits("turns_per_user = 2"));
    let post = async |user, chat: &str, text: &str| {
        let body = asking(chat, text).to_string();
        bridge.open("POST", "/api/chat", &[JSON, user], &body).await
    };
    let mut running = Vec::new();
    for chat in ["one", "two"] {
        let mut answer = post(ALICE, chat, "slow 5000").await;
        assert_eq!(answer.status, 200);
        answer.events_until("word2 ").await;
        running.push(answer);
    }
    let refused = post(ALICE, "three", "say hi").await.whole().await;
    assert_refused(&refused, 429, "limits.turns_per_user");
    let chats = bridge.send("GET", "/api/chats", &[ALICE], "").await.json();
    assert_eq!(
        chats.as_array().map(Vec::len),
        Some(2),
        "nothing came of it"
    );
    let events = post(BOB, "his", "say hi").await.events().await;
    assert_eq!(text_of(&folded(&events)), "hi");
    // A chat that has a turn keeps its right to one.
    let events = post(ALICE, "one", "say changed").await.events().await;
    assert_eq!(text_of(&folded(&events)), "changed");
    let taken = async {
        loop {
            let mut answer = post(ALICE, "three", "say hi").await;
            if answer.status == 200 {
                return answer.events().await;
            }
        }
    };
    assert_eq!(text_of(&folded(&within(taken).await)), "hi");
}

#[tokio::test]
async fn files_of_one_user_are_bounded() {
    let mut bridge = Bridge::configured(&limits("stored_bytes_per_user = 1000"));
    let file = "a".repeat(600);
    macro_rules! upload {
        ($user:expr, $chat:expr) => {{
            let path = format!("/api/files?chat={}", $chat);
            bridge.send("POST", &path, &[TEXT, $user], &file).await
        }};
    }
    assert_eq!(upload!(ALICE, "one").status, 201);
    for restarts in 0..2 {
        let refused = upload!(ALICE, "two");
        assert_eq!(refused.status, 429, "after {restarts} restarts");
        assert_eq!(refused.code(), "storage_full");
        let url = format!("data:text/plain,{file}{file}");
        let part = json!({"type": "file", "mediaType": "text/plain", "url": url});
        let message = json!({"role": "user", "parts": [part]});
        let body = json!({"id": "three", "messages": [message]}).to_string();
        let refused = bridge.send("POST", "/api/chat", &[JSON, ALICE], body).await;
        assert_eq!(
            (refused.status, refused.code()),
            (429, "storage_full".into())
        );
        let chats = bridge.send("GET", "/api/chats", &[ALICE], "").await.json();
        assert_eq!(chats.as_array().map(Vec::len), Some(1), "{chats}");
        bridge.kill_and_restart();
    }
    assert_eq!(upload!(BOB, "his").status, 201);
    let deleted = bridge.send("DELETE", "/api/chats/one", &[ALICE], "").await;
    assert_eq!(deleted.status, 204);
    assert_eq!(upload!(ALICE, "two").status, 201);
}

#[tokio::test]
async fn a_flood_of_wrong_answers_leaves_few_rows() {
    const REQUESTS: usize = 20;
    let bridge = Bridge::configured(&limits("refused_answers_per_minute = 50"));
    let ask = asking(
        "hers",
        r#"call process_payment {"amount":5,"recipient":"x"}"#,
    )
    .to_string();
    let asked = bridge.send("POST", "/api/chat", &[JSON, ALICE], ask).await;
    assert_eq!(asked.status, 200);
    let chat = bridge
        .send("GET", "/api/chats/hers", &[ALICE], "")
        .await
        .json();
    let mut message = chat["messages"][1].clone();
    let parts = (0..2_000).map(|number| {
        json!({"type": "tool-pay", "toolCallId": format!("c{number}"), "state": "approval-responded", "input": {},
               "approval": {"id": format!("a{number}"), "approved": true}})
    });
    message["parts"] = parts.collect();
    let body = json!({"id": "hers", "messages": [message]}).to_string();
    let mut refused = 0;
    for _ in 0..REQUESTS {
        let response = bridge
            .send("POST", "/api/chat", &[JSON, ALICE], &body)
            .await;
        if response.status != 200 {
            assert_refused(&response, 429, "limits.refused_answers_per_minute");
            refused += 1;
        }
    }
    assert!(refused > 0, "it never stops");
    let taken = REQUESTS - refused;
    let rows = bridge
        .send("GET", "/api/audit?chat=hers", &[ALICE], "")
        .await
        .json();
    let is_refusal = |row: &&Value| row["kind"] == "answer.refused";
    let rows = rows.as_array().unwrap().iter().filter(is_refusal).count();
    assert!(rows > 0 && rows <= 20 * taken, "{rows} rows of {taken}");
    let ask = asking("his", "say hi").to_string();
    let other = bridge.send("POST", "/api/chat", &[JSON, BOB], ask).await;
    assert_eq!(other.status, 200);
}

#[tokio::test]
async fn an_address_with_many_wrong_keys_has_to_wait() {
    let bridge = Bridge::configured(&limits("wrong_keys_per_minute = 3"));
    let wrong = ("authorization", "Bearer a-guess-of-somebody");
    let mut statuses = Vec::new();
    for _ in 0..30 {
        let response = bridge.send("GET", "/api/chats", &[wrong], "").await;
        if response.status == 429 {
            assert_refused(&response, 429, "limits.wrong_keys_per_minute");
        }
        statuses.push(response.status);
    }
    assert_eq!(statuses[..3], [401; 3]);
    assert!(statuses.contains(&429), "{statuses:?}");
    let right = bridge.send("GET", "/api/chats", &[ALICE], "").await;
    assert_eq!(right.status, 200, "who has a key is not locked out");
    let log = bridge.log();
    let warnings = log
        .lines()
        .filter(|line| line.contains("wrong keys came from"));
    assert_eq!(warnings.count(), 1, "{log}");
    assert!(!log.contains("a-guess"), "{log}");
}

/// Whatever a client names its chats, the log has lines of the bridge's own only.
#[tokio::test]
async fn no_line_of_the_log_can_be_forged() {
    let bridge = Bridge::with("", |command| {
        command.env("RUST_LOG", "debug");
    });
    let forged = "2026-01-01T00:00:00Z  INFO forged: payment approved";
    let ids = [
        format!("a\n{forged}"),
        format!("b\r{forged}"),
        format!("c\u{2028}{forged}\u{1b}[2K\u{202e}"),
    ];
    for id in &ids {
        let events = bridge.ask(id, "say hi").await.events().await;
        assert_eq!(text_of(&folded(&events)), "hi");
    }
    let foreign = [JSON, ("origin", "https://elsewhere.example")];
    bridge.send("POST", "/api/chat", &foreign, "{}").await;
    bridge.send("GET", "/no%0Asuch", &[], "").await;
    bridge.send("PUT", "/api/chat", &[], "").await;
    let log = bridge.log();
    assert!(
        log.contains("forged: payment approved"),
        "the ids are there: {log}"
    );
    let is_forged = |line: &str| line.starts_with(forged) || line.starts_with("2026-01-01");
    assert!(!log.split(['\n', '\r', '\u{2028}']).any(is_forged), "{log}");
    assert!(!log.contains(['\u{1b}', '\u{202e}']), "{log}");
    for line in [
        "POST /api/chat: 403 foreign_origin",
        "GET /no%0Asuch: 404 not_found",
        "PUT /api/chat: 405 method_not_allowed",
    ] {
        assert!(log.contains(line), "{line} in {log}");
    }
}

#[tokio::test]
async fn unused_tickets_say_when_to_come_back() {
    let bridge = Bridge::start();
    let mut last = bridge.send("POST", "/api/ticket", &[], "").await;
    for _ in 0..64 {
        last = bridge.send("POST", "/api/ticket", &[], "").await;
    }
    assert_refused(&last, 429, "tickets");
}
