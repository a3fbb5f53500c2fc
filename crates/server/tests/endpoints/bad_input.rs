//! What is refused, with which status and code; always in one form, never by silence.

use serde_json::{Value, json};

use crate::support::{Bridge, JSON, asking, within};

#[tokio::test]
async fn bodies_that_are_no_chat_request() {
    let bridge = Bridge::start();
    let text = |text: &str| json!({"role": "user", "parts": [{"type": "text", "text": text}]});
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let with = |field: &str, value: Value| {
        let mut request = asking("bad", "say hi");
        request[field] = value;
        request.to_string()
    };
    let message = |message: Value| with("messages", json!([message]));
    let with_file = |url: &str| {
        let file = json!({"type": "file", "mediaType": "image/png", "url": url});
        json!({"role": "user", "parts": [{"type": "text", "text": "say hi"}, file]})
    };
    let long_id = "x".repeat(201);
    let many: Vec<Value> = (0..10_001).map(|_| text("x")).collect();
    let cases: Vec<(&str, String, u16, &str, &str)> = vec![
        ("empty", String::new(), 400, "bad_json", "EOF"),
        ("no JSON", "hello".into(), 400, "bad_json", "not JSON"),
        (
            "cut off",
            with("x", json!(1))[..40].into(),
            400,
            "bad_json",
            "EOF",
        ),
        ("two values", "{}{}".into(), 400, "bad_json", "trailing"),
        (
            "too deep",
            deep(100_000),
            400,
            "bad_json",
            "recursion limit",
        ),
        (
            "deep in a field",
            format!(r#"{{"id":"bad","x":{}}}"#, deep(200)),
            400,
            "bad_json",
            "recursion",
        ),
        ("a list", "[]".into(), 422, "wrong_type", "object"),
        ("null", "null".into(), 422, "wrong_type", "object"),
        (
            "nothing in it",
            "{}".into(),
            422,
            "missing_field",
            "messages",
        ),
        (
            "a version that knows no approvals",
            with("sdk", json!(5)),
            422,
            "bad_sdk",
            "upgrade",
        ),
        (
            "a version that there is not yet",
            with("sdk", json!("8")),
            422,
            "bad_sdk",
            "6 or 7",
        ),
        (
            "a version that is none",
            with("sdk", json!({"odd": true})),
            422,
            "bad_sdk",
            "6 or 7",
        ),
        (
            "a system message before others",
            with(
                "messages",
                json!([{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]),
            ),
            422,
            "bad_message",
            "agent.instruction",
        ),
        (
            "a program as a file",
            message(json!({"role": "user", "parts": [
                {"type": "file", "mediaType": "image/png", "url": "javascript://%0aalert(1)"}
            ]})),
            422,
            "bad_message",
            "parts[0].url",
        ),
        (
            "an id that is a number",
            with("id", json!(7)),
            422,
            "wrong_type",
            "id",
        ),
        (
            "an empty id",
            with("id", json!("")),
            422,
            "bad_id",
            "1 to 200",
        ),
        (
            "an id too long",
            with("id", json!(long_id)),
            422,
            "bad_id",
            "1 to 200",
        ),
        (
            "no messages",
            json!({"id": "bad"}).to_string(),
            422,
            "missing_field",
            "messages",
        ),
        (
            "messages that are null",
            with("messages", Value::Null),
            422,
            "bad_message",
            "messages",
        ),
        (
            "messages that are text",
            with("messages", json!("hi")),
            422,
            "bad_message",
            "messages",
        ),
        (
            "messages that are empty",
            with("messages", json!([])),
            422,
            "missing_field",
            "at least one",
        ),
        (
            "too many messages",
            with("messages", json!(many)),
            422,
            "bad_message",
            "10001",
        ),
        (
            "too many parts",
            message(
                json!({"role": "user", "parts": vec![json!({"type": "text", "text": "x"}); 10_001]}),
            ),
            422,
            "bad_message",
            "10001",
        ),
        (
            "a message that is text",
            message(json!("hi")),
            422,
            "bad_message",
            "messages[0]",
        ),
        (
            "no role",
            message(json!({"parts": []})),
            422,
            "bad_message",
            "role",
        ),
        (
            "an unknown role",
            message(json!({"role": "tool", "parts": []})),
            422,
            "bad_message",
            "tool",
        ),
        (
            "neither parts nor content",
            message(json!({"role": "user"})),
            422,
            "bad_message",
            "parts",
        ),
        (
            "parts that are text",
            message(json!({"role": "user", "parts": "hi"})),
            422,
            "bad_message",
            "parts",
        ),
        (
            "a part without type",
            message(json!({"role": "user", "parts": [{"text": "hi"}]})),
            422,
            "bad_message",
            "parts[0]",
        ),
        (
            "text that is a number",
            message(json!({"role": "user", "parts": [{"type": "text", "text": 5}]})),
            422,
            "bad_message",
            "text",
        ),
        (
            "content that is a number",
            message(json!({"role": "user", "content": 5})),
            422,
            "bad_message",
            "content",
        ),
        (
            "an unknown form of content",
            message(json!({"role": "user", "content": [{"type": "hologram", "data": "x"}]})),
            422,
            "bad_message",
            "hologram",
        ),
        (
            "an unknown attachment",
            message(json!({"role": "user", "experimental_attachments": [{"type": "hologram"}]})),
            422,
            "bad_message",
            "hologram",
        ),
        (
            "a message that says nothing",
            message(json!({"role": "user", "parts": []})),
            422,
            "bad_message",
            "is empty",
        ),
        (
            "a message of empty words",
            message(json!({"role": "user", "parts": [{"type": "text", "text": ""}]})),
            422,
            "bad_message",
            "is empty",
        ),
        (
            "a message that says nothing to a model",
            message(json!({"role": "user", "parts": [{"type": "data-mood", "data": "good"}]})),
            422,
            "bad_message",
            "is empty",
        ),
        (
            "a file that is no base64",
            message(with_file("data:image/png;base64,!!!")),
            422,
            "bad_message",
            "parts[1].url",
        ),
        (
            "a file that only the browser has",
            message(with_file("blob:http://localhost/1")),
            422,
            "bad_message",
            "data URL",
        ),
        (
            "a file that the chat does not have",
            message(with_file("/api/files/00000000000000000000000000000000")),
            422,
            "unknown_file",
            "upload it again",
        ),
        (
            "a message id too long",
            message(
                json!({"id": long_id, "role": "user", "parts": [{"type": "text", "text": "x"}]}),
            ),
            422,
            "bad_id",
            "message",
        ),
        (
            "a call id too long",
            message(
                json!({"role": "assistant", "parts": [{"type": "tool-x", "toolCallId": long_id, "state": "input-available", "input": {}}]}),
            ),
            422,
            "bad_id",
            "toolCallId",
        ),
        (
            "a system message last",
            message(json!({"role": "system", "parts": [{"type": "text", "text": "x"}]})),
            422,
            "bad_message",
            "agent.instruction",
        ),
        (
            "an answer to nothing",
            message(json!({"id": "m", "role": "assistant", "parts": []})),
            404,
            "not_found",
            "no such chat",
        ),
        (
            "an unknown dialect",
            with("dialect", json!("klingon")),
            422,
            "bad_dialect",
            "klingon",
        ),
        (
            "a dialect that is a number",
            with("dialect", json!(1)),
            422,
            "wrong_type",
            "dialect",
        ),
        (
            "an unknown trigger",
            with("trigger", json!("explode")),
            422,
            "bad_trigger",
            "explode",
        ),
        (
            "a trigger that is a book",
            with("trigger", json!("é".repeat(50_000))),
            422,
            "bad_trigger",
            "trigger is",
        ),
        (
            "a trigger that is a list",
            with("trigger", json!([])),
            422,
            "wrong_type",
            "trigger",
        ),
        (
            "the same message twice",
            with(
                "messages",
                json!([{"id": "a", "role": "user", "content": "x"}, {"id": "a", "role": "user", "content": "x"}]),
            ),
            422,
            "bad_message",
            "two messages",
        ),
    ];
    for (name, body, status, code, said) in cases {
        let response = bridge.send("POST", "/api/chat", &[JSON], &body).await;
        let (got, message) = (response.code(), response.message());
        assert_eq!(
            (response.status, got.as_str()),
            (status, code),
            "{name}: {message}"
        );
        assert!(message.contains(said), "{name}: {message}");
        assert!(message.len() < 1000, "{name}: {} bytes", message.len());
    }
    let mut bytes = asking("bad", "say hi").to_string().into_bytes();
    let at = bytes.len() - 8;
    bytes[at] = 0xff;
    let response = bridge.send("POST", "/api/chat", &[JSON], &bytes).await;
    assert_eq!(
        (response.status, response.code().as_str()),
        (400, "bad_json")
    );
    assert_eq!(
        bridge.get("/api/chats").await.json(),
        json!([]),
        "nothing is left of them"
    );
}

#[tokio::test]
async fn content_types() {
    let bridge = Bridge::start();
    let body = asking("types", "say hi").to_string();
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "multipart/form-data; boundary=x",
        "",
        "\u{e9}",
    ] {
        let headers = [("content-type", kind)];
        for path in ["/api/chat", "/api/chat/types/tool-output"] {
            let response = bridge.send("POST", path, &headers, &body).await;
            assert_eq!(
                (response.status, response.code().as_str()),
                (415, "not_json"),
                "{kind}"
            );
        }
    }
    for kind in ["application/json", "Application/JSON; charset=utf-8"] {
        let response = bridge
            .send("POST", "/api/chat", &[("content-type", kind)], &body)
            .await;
        assert_eq!(response.status, 200, "{kind}");
    }
    assert_eq!(
        bridge.send("POST", "/api/chat", &[], &body).await.status,
        200
    );
}

#[tokio::test]
async fn outputs_that_are_none() {
    let bridge = Bridge::start();
    bridge.ask("outputs", "say hi").await.events().await;
    let long = "x".repeat(201);
    for (body, status, code) in [
        ("no JSON".to_owned(), 400, "bad_json"),
        (
            format!("{{\"toolCallId\":\"a\",\"output\":{}", "[".repeat(100_000)),
            400,
            "bad_json",
        ),
        ("[]".into(), 422, "bad_output"),
        (json!({"output": 1}).to_string(), 422, "bad_output"),
        (
            json!({"toolCallId": 1, "output": 1}).to_string(),
            422,
            "bad_output",
        ),
        (json!({"toolCallId": "a"}).to_string(), 422, "bad_output"),
        (
            json!({"toolCallId": "a", "output": 1, "errorText": "x"}).to_string(),
            422,
            "bad_output",
        ),
        (
            json!({"toolCallId": "a", "errorText": 1}).to_string(),
            422,
            "bad_output",
        ),
        (
            json!({"toolCallId": long, "output": 1}).to_string(),
            422,
            "bad_id",
        ),
        (
            json!({"toolCallId": "", "output": 1}).to_string(),
            422,
            "bad_id",
        ),
        (
            json!({"toolCallId": "a", "output": 1}).to_string(),
            404,
            "not_found",
        ),
    ] {
        let path = "/api/chat/outputs/tool-output";
        let response = bridge.send("POST", path, &[JSON], &body).await;
        assert_eq!(
            (response.status, response.code().as_str()),
            (status, code),
            "{body:.80}"
        );
    }
}

#[tokio::test]
async fn addresses() {
    let bridge = Bridge::start();
    let long = "x".repeat(4000);
    for (method, path, status, code) in [
        ("GET", "/api/audit".to_owned(), 422, "missing_field"),
        ("GET", "/api/audit?chat=unknown".into(), 404, "not_found"),
        ("GET", "/api/audit?chat=a&chat=b".into(), 400, "bad_request"),
        ("GET", "/api/chats/unknown".into(), 404, "not_found"),
        (
            "GET",
            "/api/chats/unknown?dialect=klingon".into(),
            422,
            "bad_dialect",
        ),
        (
            "GET",
            "/api/chat/unknown/stream?dialect=klingon".into(),
            422,
            "bad_dialect",
        ),
        (
            "GET",
            "/api/chat/unknown/stream?sdk=many".into(),
            422,
            "bad_sdk",
        ),
        ("GET", "/api/chats/%FF%FE".into(), 400, "bad_request"),
        ("GET", "/api/chats/".into(), 404, "not_found"),
        ("POST", "/api/chat//stop".into(), 422, "bad_id"),
        ("GET", format!("/api/chats/{long}"), 404, "not_found"),
        ("DELETE", format!("/api/chats/{long}"), 404, "not_found"),
        ("POST", format!("/api/chat/{long}/stop"), 422, "bad_id"),
    ] {
        let response = bridge.send(method, &path, &[], "").await;
        assert_eq!(
            (response.status, response.code().as_str()),
            (status, code),
            "{path:.60}"
        );
    }
}

#[tokio::test]
async fn bodies_that_are_too_large_or_cut_off() {
    let bridge = Bridge::configured("[server]\nmax_body_bytes = 100000\n");
    let body = asking("large", &"x".repeat(3_000_000)).to_string();
    for path in [
        "/api/chat",
        "/api/chat/large/tool-output",
        "/api/files?chat=large",
    ] {
        let response = bridge.send("POST", path, &[JSON], &body).await;
        assert_eq!(
            (response.status, response.code().as_str()),
            (413, "too_large"),
            "{path}"
        );
        assert!(response.message().contains("100000"));
    }
    // A client that waits for `100 Continue` is refused before it sends anything.
    let mut connection = bridge.connect().await;
    let headers = [
        JSON,
        ("expect", "100-continue"),
        ("content-length", "3000000"),
    ];
    connection.request("POST", "/api/chat", &headers, b"").await;
    let response = connection.answer("POST").await.whole().await;
    assert_eq!(
        (response.status, response.code().as_str()),
        (413, "too_large")
    );
    // Without a length it is counted as it comes.
    let mut connection = bridge.connect().await;
    let headers = [JSON, ("transfer-encoding", "chunked")];
    let chunk = format!("186A1\r\n{}\r\n0\r\n\r\n", " ".repeat(100_001));
    connection
        .request("POST", "/api/chat", &headers, chunk.as_bytes())
        .await;
    let response = connection.answer("POST").await.whole().await;
    assert_eq!(
        (response.status, response.code().as_str()),
        (413, "too_large")
    );

    // The client says that it sends more than it does.
    let body = asking("cut", "say hi").to_string();
    let length = (body.len() + 10).to_string();
    for path in ["/api/chat", "/api/files?chat=cut"] {
        let mut connection = bridge.connect().await;
        let headers = [JSON, ("content-length", length.as_str())];
        connection
            .request("POST", path, &headers, body.as_bytes())
            .await;
        within(tokio::io::AsyncWriteExt::shutdown(&mut connection.stream))
            .await
            .unwrap();
        if let Some(answer) = connection.try_answer("POST").await {
            let response = answer.whole().await;
            assert_eq!(
                (response.status, response.code().as_str()),
                (400, "bad_body"),
                "{path}"
            );
        }
    }
    assert_eq!(bridge.get("/api/chats").await.json(), json!([]));
}
