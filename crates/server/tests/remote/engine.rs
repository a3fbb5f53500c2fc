//! An agent engine, as bytes: where it is asked, with which token, and what becomes of answers that are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::stand_in::{ReceivedRequest, StandIn, ok, redirected, refused};
use crate::support::{Bridge, folded, text_of};

const ENGINE: &str = "/v1/projects/p/locations/l/reasoningEngines/4711";

/// A stream of lines.
fn lines(lines: &[Value]) -> Vec<u8> {
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    text(&body)
}

fn text(body: &str) -> Vec<u8> {
    refused(200, "application/json", body)
}

fn words(said: &str) -> Value {
    json!({"author": "app", "invocation_id": "i", "content": {"role": "model", "parts": [{"text": said}]}})
}

fn method(asked: &ReceivedRequest) -> &str {
    asked.body["class_method"].as_str().unwrap_or_default()
}

fn sessions(asked: &ReceivedRequest) -> Vec<u8> {
    match method(asked) {
        "async_create_session" => ok(&json!({"output": {"id": "s1"}})),
        "async_list_sessions" => ok(&json!({"output": {"sessions": [{"id": "s1"}]}})),
        _ => ok(&json!({"output": null})),
    }
}

fn toml(stand_in: &StandIn) -> String {
    let address = stand_in.address;
    format!("[agent]\nkind = \"agent-engine\"\nbase_url = \"http://{address}{ENGINE}\"\n")
}

async fn shown(bridge: &Bridge, chat: &str) -> (String, Vec<String>) {
    let events = bridge.ask(chat, "hello").await.events().await;
    let chunks = events
        .iter()
        .filter_map(|it| serde_json::from_str::<Value>(it).ok());
    let errors = chunks.filter_map(|chunk| chunk["errorText"].as_str().map(str::to_owned));
    match errors.collect::<Vec<_>>() {
        errors if errors.is_empty() => (text_of(&folded(&events)), errors),
        errors => (String::new(), errors),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn methods_are_called_with_an_access_token() {
    let metadata = StandIn::start(|_| {
        ok(&json!({"access_token": "ya29.of-the-engine", "expires_in": 3600, "token_type": "Bearer"}))
    })
    .await;
    let stand_in = StandIn::start(|asked| match asked.path.ends_with(":query") {
        true => sessions(asked),
        false => lines(&[words("fine")]),
    })
    .await;
    let bridge = Bridge::with(&toml(&stand_in), |command| {
        command
            .env_remove("GOOGLE_APPLICATION_CREDENTIALS")
            .env("CLOUDSDK_CONFIG", "/nowhere")
            .env("GCE_METADATA_HOST", metadata.address.to_string());
    });
    let (said, errors) = shown(&bridge, "c").await;
    assert_eq!((said.as_str(), errors.len()), ("fine", 0));
    let asked = stand_in.asked(ENGINE);
    let calls: Vec<_> = asked
        .iter()
        .map(|it| (it.path.as_str(), method(it)))
        .collect();
    let (query, stream) = (
        format!("{ENGINE}:query"),
        format!("{ENGINE}:streamQuery?alt=sse"),
    );
    assert_eq!(
        calls,
        [
            (query.as_str(), "async_create_session"),
            (stream.as_str(), "async_stream_query")
        ]
    );
    for asked in &asked {
        assert!(
            asked
                .head
                .contains("\nauthorization: bearer ya29.of-the-engine"),
            "{}",
            asked.head
        );
    }
    let input = &asked[1].body["input"];
    assert_eq!(input["session_id"], "s1");
    assert_eq!(input["message"]["parts"][0]["text"], "hello");
    assert_eq!(input["run_config"], json!({"streaming_mode": "sse"}));
}

/// Answers that are none end with one error, and the next answer is shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_answers_anything() {
    let way = Arc::new(AtomicUsize::new(0));
    let current = way.clone();
    let stand_in = StandIn::start(move |asked| {
        if asked.path.ends_with(":query") {
            return sessions(asked);
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(200), "}".repeat(200));
        let deep = format!("{{\"content\": {{\"parts\": {deep}}}}}\n");
        match current.load(Ordering::Relaxed) {
            0 => text("this is no JSON\n"),
            1 => text("{\"content\": {\"parts\": [{\"text\": \"cut"),
            2 => text(&"x".repeat(17 * 1024 * 1024)),
            3 => text(&deep),
            4 => refused(
                400,
                "application/json",
                r#"{"error": {"message": "bad input"}}"#,
            ),
            5 => refused(500, "text/plain", "oh"),
            6 => lines(&[json!({"error": {"code": 400, "message": "the engine says no"}})]),
            7 => lines(&[json!({"code": 498, "message": "the engine gives up"})]),
            _ => lines(&[words("fine")]),
        }
    })
    .await;
    let headers = "headers = { authorization = \"Bearer own-token-12345\" }\n";
    let bridge = Bridge::configured(&(toml(&stand_in) + headers));
    assert_eq!(shown(&bridge, "c").await.1.len(), 1);
    for number in 0..8 {
        way.store(number, Ordering::Relaxed);
        let (_, errors) = shown(&bridge, "c").await;
        assert_eq!(errors.len(), 1, "{number}: {errors:?}");
        assert!(errors[0].len() < 600, "{number}");
        way.store(99, Ordering::Relaxed);
        let (said, errors) = shown(&bridge, "c").await;
        assert_eq!((said.as_str(), errors.len()), ("fine", 0), "{number}");
    }
    let asked = stand_in.asked(ENGINE);
    assert!(
        asked
            .iter()
            .all(|it| it.head.contains("\nauthorization: bearer own-token-12345"))
    );
}

/// An engine that leads elsewhere is not followed: nobody else gets its token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_of_an_engine_are_not_followed() {
    let answers = |asked: &ReceivedRequest| match asked.path.ends_with(":query") {
        true => sessions(asked),
        false => lines(&[words("fine")]),
    };
    let elsewhere = StandIn::start(answers).await;
    for status in [302, 307] {
        for leading in [":query", ":streamQuery"] {
            let place = elsewhere.address;
            let stand_in = StandIn::start(move |asked| match asked.path.contains(leading) {
                true => redirected(status, &format!("http://{place}{}", asked.path)),
                false => answers(asked),
            })
            .await;
            let headers = "headers = { authorization = \"Bearer own-token-12345\" }\n";
            let bridge = Bridge::configured(&(toml(&stand_in) + headers));
            let (_, errors) = shown(&bridge, "c").await;
            assert_eq!(errors.len(), 1, "{status} {leading}: {errors:?}");
            let led = stand_in.asked(leading);
            let has_token = |asked: &ReceivedRequest| asked.head.contains("own-token-12345");
            assert!(!led.is_empty() && led.iter().all(has_token));
            assert!(elsewhere.asked("").is_empty(), "{status} {leading}");
        }
    }
}
