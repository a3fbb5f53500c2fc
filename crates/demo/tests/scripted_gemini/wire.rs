//! The wire: framing, keys, failures on demand, pace.

use std::time::Duration;

use adk_bridge_demo::scripted_gemini::{LineEnd, Options, PACE};
use serde_json::{Value, json};

use super::{MODEL, Server, events, outline, parts, prompt, text};

#[tokio::test]
async fn streams_are_framed_as_asked() {
    let body = prompt("say one two", &[]);
    let crlf = Server::start().await;
    let lf = Server::with(Options {
        line_end: LineEnd::Lf,
        ..Options::default()
    })
    .await;
    for (server, end) in [(&crlf, "\r\n\r\n"), (&lf, "\n\n")] {
        let response = server
            .post(&format!("{MODEL}:streamGenerateContent?alt=sse"), &body)
            .await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let stream = response.text().await.unwrap();
        assert!(stream.ends_with(&format!("}}{end}")), "{stream:?}");
        assert_eq!(stream.matches(&format!("}}{end}")).count(), 2);
        assert_eq!(
            stream.matches("\r").count(),
            if end == "\n\n" { 0 } else { 4 }
        );
    }
    for words in ["say one two", "blocked", "empty"] {
        let response = crlf
            .post(
                &format!("{MODEL}:streamGenerateContent"),
                &prompt(words, &[]),
            )
            .await;
        assert_eq!(
            response.headers()["content-type"],
            "application/json; charset=UTF-8"
        );
        let array: Vec<Value> = response.json().await.unwrap();
        let streamed = crlf.stream(MODEL, &prompt(words, &[])).await;
        assert_eq!(outline(&array), outline(&streamed));
        assert_eq!(array.len(), streamed.len());
    }
}

#[tokio::test]
async fn a_key_is_needed() {
    let open = Server::start().await;
    let closed = Server::with(Options {
        keys: vec!["right".into()],
        ..Options::default()
    })
    .await;
    let cases = [
        (&open, None, "", 403, "PERMISSION_DENIED"),
        (&open, Some(""), "", 403, "PERMISSION_DENIED"),
        (&open, Some("any"), "", 200, ""),
        (&open, None, "?key=any", 200, ""),
        (&closed, Some("wrong"), "", 400, "INVALID_ARGUMENT"),
        (&closed, None, "?key=wrong", 400, "INVALID_ARGUMENT"),
        (&closed, None, "", 403, "PERMISSION_DENIED"),
        (&closed, Some("right"), "", 200, ""),
        (&closed, None, "?key=right", 200, ""),
    ];
    for (server, header, query, code, status) in cases {
        let models = format!("{}/v1beta/models{query}", server.url);
        let answer = format!(
            "{}/v1beta/models/{MODEL}:generateContent{query}",
            server.url
        );
        let requests = [
            server.http.get(models),
            server.http.post(answer).json(&prompt("hello", &[])),
        ];
        for mut request in requests {
            if let Some(key) = header {
                request = request.header("x-goog-api-key", key);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), code, "{header:?} {query}");
            let body: Value = response.json().await.unwrap();
            assert_eq!(body["error"]["status"].as_str().unwrap_or_default(), status);
        }
    }
}

#[tokio::test]
async fn errors_have_googles_form() {
    let server = Server::start().await;
    let cases = [
        ("http 400", 400, "INVALID_ARGUMENT"),
        ("http 403", 403, "PERMISSION_DENIED"),
        ("http 404", 404, "NOT_FOUND"),
        ("http 429", 429, "RESOURCE_EXHAUSTED"),
        ("http 500", 500, "INTERNAL"),
        ("http 503", 503, "UNAVAILABLE"),
        ("http 504", 504, "DEADLINE_EXCEEDED"),
        ("say never heard then http 503", 503, "UNAVAILABLE"),
    ];
    for (words, code, status) in cases {
        for method in ["generateContent", "streamGenerateContent?alt=sse"] {
            let response = server
                .post(&format!("{MODEL}:{method}"), &prompt(words, &[]))
                .await;
            assert_eq!(response.status(), code, "{words}");
            let error = response.json::<Value>().await.unwrap()["error"].take();
            assert_eq!(
                (&error["code"], &error["status"]),
                (&json!(code), &json!(status))
            );
            assert!(!error["message"].as_str().unwrap().is_empty());
            let details = error["details"].as_array().cloned().unwrap_or_default();
            let delays: Vec<_> = details
                .iter()
                .filter_map(|detail| detail["retryDelay"].as_str())
                .collect();
            assert_eq!(delays, if code == 429 { vec!["1s"] } else { vec![] });
        }
    }
}

#[tokio::test]
async fn failures_end_after_as_many_as_asked_for() {
    let server = Server::start().await;
    let body = prompt("http 503 twice then say back", &[]);
    let other = prompt("http 503 once", &[]);
    // Another conversation is counted separately, and after the answer the count starts again.
    for round in 0..2 {
        for code in [503, 503, 200] {
            assert_eq!(server.refusal(MODEL, &body).await.0, code, "round {round}");
        }
        assert_eq!(server.refusal(MODEL, &other).await.0, 503);
        assert_eq!(
            outline(&server.stream(MODEL, &other).await),
            r#""It worked this time." STOP"#
        );
    }
}

#[tokio::test]
async fn connections_are_cut_where_asked_for() {
    let server = Server::start().await;
    let cases = [
        ("say half an answer then cut", "half an answer"),
        ("cut", "This answer breaks off before its"),
        ("cut before", ""),
    ];
    for (words, expected) in cases {
        let target = format!("{MODEL}:streamGenerateContent?alt=sse");
        let mut response = server.post(&target, &prompt(words, &[])).await;
        assert_eq!(response.status(), 200);
        let mut received = Vec::new();
        let ended_well = loop {
            match response.chunk().await {
                Ok(Some(bytes)) => received.extend_from_slice(&bytes),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        assert!(!ended_well, "{words}");
        let chunks = events(&String::from_utf8(received).unwrap());
        assert_eq!(text(&chunks), expected);
        assert!(
            chunks
                .iter()
                .all(|chunk| chunk["candidates"][0].get("finishReason").is_none())
        );

        let whole = server
            .post(&format!("{MODEL}:generateContent"), &prompt(words, &[]))
            .await;
        assert!(whole.bytes().await.is_err(), "{words}");
    }
}

#[tokio::test]
async fn an_error_may_come_midway() {
    let server = Server::start().await;
    let body = prompt("say half then http 503 midway", &[]);
    let chunks = server.stream(MODEL, &body).await;
    assert_eq!(text(&chunks), "half");
    assert_eq!(chunks[chunks.len() - 1]["error"]["code"], 503);
    assert_eq!(server.refusal(MODEL, &body).await.0, 503);
}

#[tokio::test]
async fn a_blocked_prompt_has_no_candidates() {
    let server = Server::start().await;
    let chunks = server.stream(MODEL, &prompt("blocked", &[])).await;
    assert_eq!(chunks.len(), 1);
    assert!(chunks[0].get("candidates").is_none());
    assert_eq!(
        chunks[0]["promptFeedback"]["blockReason"],
        "PROHIBITED_CONTENT"
    );
}

#[tokio::test]
async fn calls_bear_ids_only_where_asked_for() {
    let body = prompt("call a && call b", &["a", "b"]);
    for call_ids in [false, true] {
        let server = Server::with(Options {
            call_ids,
            ..Options::default()
        })
        .await;
        let said = parts(&server.stream(MODEL, &body).await);
        let ids: Vec<_> = said
            .iter()
            .filter_map(|part| part["functionCall"]["id"].as_str())
            .collect();
        assert_eq!(ids.len(), if call_ids { 2 } else { 0 });
        assert!(ids.len() < 2 || ids[0] != ids[1]);
    }
}

#[tokio::test]
async fn tokens_are_counted_and_models_listed() {
    let server = Server::start().await;
    let count = async |body: Value| {
        let response = server.post(&format!("{MODEL}:countTokens"), &body).await;
        response.json::<Value>().await.unwrap()["totalTokens"]
            .as_u64()
            .unwrap()
    };
    let short = count(prompt("say hello", &[])).await;
    assert!(short < count(prompt(&"say hello ".repeat(9), &[])).await);
    assert_eq!(
        short,
        count(json!({"generateContentRequest": prompt("say hello", &[])})).await
    );
    let chunks = server.stream(MODEL, &prompt("say hello", &[])).await;
    assert_eq!(chunks[0]["usageMetadata"]["promptTokenCount"], short);

    let get = async |path: &str| {
        let request = server
            .http
            .get(format!("{}/v1beta/models{path}", server.url));
        request
            .header("x-goog-api-key", "key")
            .send()
            .await
            .unwrap()
    };
    let list: Value = get("").await.json().await.unwrap();
    let names: Vec<_> = list["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| &model["name"])
        .collect();
    assert!(names.contains(&&json!("models/gemini-3.8-flash")));
    let one: Value = get("/gemini-3.8-flash").await.json().await.unwrap();
    assert_eq!(one["name"], "models/gemini-3.8-flash");
    assert_eq!(get("/gemini-0").await.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn pieces_come_at_their_pace() {
    // Time stands still but for the waiting that the server does.
    let server = Server::paced(Options::default()).await;
    let start = tokio::time::Instant::now();
    server
        .stream(MODEL, &prompt("say one two three four", &[]))
        .await;
    let taken = start.elapsed();
    assert!(taken >= 4 * PACE, "{taken:?}");
    let start = tokio::time::Instant::now();
    server.stream(MODEL, &prompt("slow 4", &[])).await;
    assert!(
        start.elapsed() >= Duration::from_millis(1200),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_long_answer_is_whole() {
    let server = Server::start().await;
    let chunks = server.stream(MODEL, &prompt("long 5000", &[])).await;
    assert_eq!(chunks.len(), 5000);
    let answer = text(&chunks);
    let numbers = answer
        .trim_end_matches('.')
        .split(' ')
        .map(|word| word.strip_prefix("word").unwrap());
    assert!(numbers.eq((1..=5000).map(|number: u32| number.to_string())));
}
