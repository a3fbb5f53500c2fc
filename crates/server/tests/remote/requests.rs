//! What the bridge sends to an ADK server, and what it does not.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;

use crate::stand_in::{ReceivedRequest, StandIn, events, fine, ok, pieces, refused, toml, well};
use crate::support::{Bridge, JSON, asking, folded, refused as refused_to_start, text_of, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_headers_are_sent_and_those_of_browsers_are_not() {
    let stand_in = StandIn::start(well).await;
    let toml =
        stand_in.toml() + "headers = { authorization = \"Bearer s3cret\", x-tenant = \"blue\" }\n";
    let bridge = Bridge::configured(&toml);
    let headers = [
        JSON,
        ("origin", &format!("http://{}", bridge.address)),
        ("cookie", "session=1"),
        ("referer", "http://page/"),
        ("user-agent", "Browser"),
        ("x-forwarded-for", "127.0.0.1"),
        ("accept-language", "ja"),
    ];
    let body = asking("c", "hello").to_string();
    let mut answer = bridge.open("POST", "/api/chat", &headers, &body).await;
    assert_eq!(text_of(&folded(&answer.events().await)), "fine");
    let asked = stand_in.asked("/");
    assert!(asked.len() >= 2, "{asked:?}");
    for ReceivedRequest { head, .. } in &asked {
        assert!(head.contains("\nauthorization: bearer s3cret"), "{head}");
        assert!(head.contains("\nx-tenant: blue"), "{head}");
        for foreign in [
            "origin",
            "cookie",
            "referer",
            "browser",
            "forwarded",
            "language",
        ] {
            assert!(!head.contains(foreign), "{foreign} in {head}");
        }
    }
    assert!(!bridge.log().contains("s3cret"), "{}", bridge.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_ask_about_the_agent_ask_its_server_once() {
    let stand_in = StandIn::start(well).await;
    let bridge = Bridge::configured(&stand_in.toml());
    let asking = (0..20).map(|_| bridge.open("GET", "/api/agent", &[], ""));
    for answer in futures_util::future::join_all(asking).await {
        assert_eq!(answer.status, 200);
    }
    // Once more is for a machine so busy that the first answer is out of date meanwhile.
    let asked = stand_in.asked("/app-info").len();
    assert!((1..=2).contains(&asked), "{asked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_session_for_one_chat() {
    let stand_in = StandIn::start(well).await;
    let bridge = Bridge::configured(&stand_in.toml());
    for text in ["one", "two"] {
        bridge.ask("chat/1?", text).await.events().await;
    }
    let created = stand_in.asked("/sessions");
    assert_eq!(created.len(), 1, "{created:?}");
    assert_eq!(created[0].path, "/apps/app/users/local/sessions");
    assert_eq!(created[0].body, json!({"sessionId": "chat/1?"}));
    let runs: Vec<_> = stand_in
        .asked("/run_sse")
        .into_iter()
        .map(|asked| asked.body)
        .collect();
    let run = |text: &str| {
        json!({
            "appName": "app", "userId": "local", "sessionId": "chat/1?", "streaming": true,
            "newMessage": {"role": "user", "parts": [{"text": text}]},
        })
    };
    assert_eq!(runs, [run("one"), run("two")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_names_sessions_itself() {
    let stand_in = StandIn::start(|asked| {
        let named = asked.body.get("sessionId");
        match asked.path.as_str() {
            path if path.ends_with("/sessions") && named.is_some() => refused(
                400,
                "application/json",
                r#"{"detail":"User-provided session ids are not supported"}"#,
            ),
            path if path.ends_with("/sessions") => ok(&json!({"id": "17"})),
            "/run_sse" if named != Some(&json!("17")) => {
                refused(404, "application/json", r#"{"detail":"Session not found"}"#)
            }
            _ => well(asked),
        }
    })
    .await;
    let bridge = Bridge::configured(&stand_in.toml());
    for _ in 0..2 {
        let events = bridge.ask("c", "hello").await.events().await;
        assert_eq!(text_of(&folded(&events)), "fine");
    }
    assert_eq!(stand_in.asked("/sessions").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_artifact_that_cannot_be_had_does_not_stop_the_answer() {
    let saved = json!({"author": "app", "actions": {"artifactDelta": {"a/b.png": 3, "": null}}});
    let stream = format!("data: {saved}\n\n{}", fine());
    let stand_in = StandIn::start(move |asked| match asked.path.as_str() {
        "/run_sse" => events(&stream),
        _ => well(asked),
    })
    .await;
    let bridge = Bridge::configured(&stand_in.toml());
    let answer = bridge.ask("c", "hello").await.events().await;
    assert_eq!(text_of(&folded(&answer)), "fine");
    let asked = stand_in.asked("/artifacts/a%2Fb.png/versions/3");
    assert_eq!(asked.len(), 1, "{:?}", stand_in.asked("/"));
}

/// The end of the stream may be there before the artifact is known, since all of it arrives at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_artifact_is_fetched_wherever_its_event_is_in_a_stream() {
    let text = |partial: bool, text: &str| {
        json!({"author": "app", "partial": partial,
               "content": {"role": "model", "parts": [{"text": text}]}})
    };
    let saved = json!({"author": "app", "actions": {"artifactDelta": {"note.txt": 0}}});
    let said = [
        text(true, "one "),
        text(true, "two"),
        text(false, "one two"),
    ];
    for place in 0..=said.len() {
        let mut stream = said.to_vec();
        stream.insert(place, saved.clone());
        let stand_in = StandIn::start(move |asked| match asked.path.as_str() {
            "/run_sse" => pieces(&stream),
            path if path.contains("/artifacts/") => {
                ok(&json!({"inlineData": {"mimeType": "text/plain", "data": "aGVsbG8="}}))
            }
            _ => well(asked),
        })
        .await;
        let bridge = Bridge::configured(&stand_in.toml());
        for turn in ["first", "second", "third"] {
            let message = folded(&bridge.ask(turn, "hello").await.events().await);
            assert_eq!(text_of(&message), "one two", "{place}");
            let parts = message["parts"].as_array().unwrap();
            let files = parts.iter().filter(|part| part["type"] == "file").count();
            assert_eq!(files, 1, "{place}, {turn}: {message}");
        }
    }
}

/// What comes after it, such as a broken end, is not looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_answer_is_too_long_has_not_failed() {
    let text = "word ".repeat(200);
    let event = json!({"author": "app", "partial": true,
                       "content": {"role": "model", "parts": [{"text": text}]}});
    let mut stream = pieces(&vec![event; 40]);
    let end = b"0\r\n\r\n".len();
    stream.truncate(stream.len() - end);
    let stand_in = StandIn::start(move |asked| match asked.path.as_str() {
        "/run_sse" => stream.clone(),
        _ => well(asked),
    })
    .await;
    let toml = format!("{}\n[server]\nmax_answer_bytes = 5000\n", stand_in.toml());
    let bridge = Bridge::configured(&toml);
    for turn in ["first", "second", "third"] {
        let events = bridge.ask(turn, "hello").await.events().await;
        let finish = events
            .iter()
            .any(|event| event.contains(r#""finishReason":"length""#));
        assert!(finish, "{events:?}");
    }
    let metrics = bridge.send("GET", "/metrics", &[], "").await.body;
    let metrics = String::from_utf8(metrics).unwrap();
    let mut lines = metrics.lines();
    let failures = lines.find(|line| line.starts_with("adk_bridge_agent_failures_total"));
    assert_eq!(failures, Some("adk_bridge_agent_failures_total 0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_being_restarted_is_waited_for() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let bridge = Bridge::configured(&toml(address));
    let mut answer = bridge.ask("c", "hello").await;
    let stand_in = StandIn::start_at(address, well).await;
    assert_eq!(text_of(&folded(&answer.events().await)), "fine");
    assert_eq!(stand_in.asked("/run_sse").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_chat_takes_all_its_sessions_along() {
    let stand_in = StandIn::start(well).await;
    let bridge = Bridge::configured(&stand_in.toml());
    let message = json!({"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hello"}]});
    let ask = json!({"id": "c", "messages": [message]});
    // The second time it is a regenerate, which begins a session that the server names.
    for _ in 0..2 {
        bridge.post("/api/chat", &ask).await;
    }
    assert_eq!(
        bridge.send("DELETE", "/api/chats/c", &[], "").await.status,
        204
    );
    let deleted = || {
        let all = stand_in.asked("/sessions/");
        let deleted = all.iter().filter(|asked| asked.head.starts_with("delete"));
        deleted.map(|asked| asked.path.clone()).collect::<Vec<_>>()
    };
    within(async {
        while deleted().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let sessions = "/apps/app/users/local/sessions";
    assert_eq!(
        deleted(),
        [format!("{sessions}/c"), format!("{sessions}/chosen")]
    );
}

#[test]
fn settings_that_cannot_be_are_refused_at_the_start() {
    let adk = "[agent]\nkind = \"adk\"\napp = \"a\"\n";
    for (toml, words) in [
        ("base_url = \"somewhere\"", "agent.base_url"),
        ("base_url = \"ftp://x/\"", "agent.base_url"),
        ("headers = { \"a b\" = \"c\" }", "agent.headers"),
        (
            "headers = { Content-Length = \"1\" }",
            "agent.headers: content-length belongs to the connection",
        ),
        ("headers = { a = \"s3cret\\u0000\" }", "agent.headers"),
    ] {
        let said = refused_to_start(&format!("{adk}{toml}\n"), |_| {});
        assert!(
            said.contains(words) && !said.contains("s3cret"),
            "{toml}: {said}"
        );
    }
}
