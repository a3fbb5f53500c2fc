//! Whatever stands where Gemini should be, a chat gets its words or one error that says what to do, and goes on.

use serde_json::{Value, json};

use crate::stand_in::{ReceivedRequest, StandIn, events, ok, refused};
use crate::support::{Bridge, folded, text_of as text_of_message};

const KEY: &str = "a-key-of-google";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_none() {
    let html = "<html><body>Welcome</body></html>";
    let fails = |reason: &str| {
        let candidate = json!({"finishReason": reason, "finishMessage": "it went wrong"});
        events(data(&json!({"candidates": [candidate]})))
    };
    let google = |code: u16, message: &str| {
        let error = json!({"error": {"code": code, "message": message, "status": "X"}});
        refused(code, "application/json", &error.to_string())
    };
    play(vec![
        (google(400, "no such field"), "no such field"),
        (google(401, "who are you"), "refuses the API key"),
        (google(404, "no such model"), "no such model"),
        (google(404, "no such model"), "set agent.model"),
        (google(503, "gone for good"), "set agent.model"),
        (refused(404, "text/html", html), "404"),
        (refused(400, "text/html", &"x".repeat(1_000_000)), "400"),
        (elsewhere(), "correct agent.base_url"),
        (refused(200, "text/html", html), "check agent.base_url"),
        (ok(&json!([{"candidates": []}])), "check agent.base_url"),
        (events(""), "was cut off"),
        (events("data: {}\n\n"), "was cut off"),
        (events("data: {\n\n"), "cannot be parsed"),
        (events(b"data: \xff\n\n"), "cannot be parsed"),
        (fails("MALFORMED_FUNCTION_CALL"), "it went wrong"),
        (fails("UNEXPECTED_TOOL_CALL"), "it went wrong"),
        (fails("TOO_MANY_TOOL_CALLS"), "it went wrong"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_in_another_dress() {
    play(vec![
        (events(fine() + "data: [DONE]\n\n"), "fine"),
        (events(fine().replace('\n', "\r")), "fine"),
        (
            events(String::from("\u{feff}: hello\n\n") + &fine()),
            "fine",
        ),
        (http_without_type(&fine()), "fine"),
    ])
    .await;
}

/// A payment that only plays is nothing for a real model, unless somebody says that it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_tool_is_offered_that_was_not_named() {
    let stand_in = StandIn::start(|_| events(fine())).await;
    for (tools, names) in [
        ("", vec![]),
        ("tools = []\n", vec![]),
        ("tools = [\"roll_dice\"]\n", vec!["roll_dice"]),
    ] {
        let address = stand_in.address;
        let toml = format!("[agent]\nkind = \"gemini\"\nbase_url = \"http://{address}\"\n{tools}");
        let bridge = Bridge::with(&toml, |command| {
            command.env("GEMINI_API_KEY", KEY);
        });
        bridge.ask("c", "hello").await.events().await;
        let agent = bridge.get("/api/agent").await.json();
        assert_eq!(names_in(&agent["tools"]), names, "{tools}");
        let asked = stand_in.asked("/v1beta").pop().unwrap();
        let sent = &asked.body["tools"][0]["functionDeclarations"];
        assert_eq!(names_in(sent), names, "{tools}");
    }
}

/// New projects of Google's store requests that do not forbid it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_not_stored_unless_somebody_says_so() {
    let stand_in = StandIn::start(|_| events(fine())).await;
    for (line, expected) in [
        ("", json!(false)),
        ("store_requests = true\n", json!(true)),
        ("store_requests = \"project\"\n", Value::Null),
    ] {
        let address = stand_in.address;
        let toml = format!("[agent]\nkind = \"gemini\"\nbase_url = \"http://{address}\"\n{line}");
        let bridge = Bridge::with(&toml, |command| {
            command.env("GEMINI_API_KEY", KEY);
        });
        bridge.ask("c", "hello").await.events().await;
        let asked = stand_in.asked("/v1beta").pop().unwrap();
        assert_eq!(asked.body["store"], expected, "{line}");
    }
}

fn names_in(tools: &Value) -> Vec<&str> {
    let tools = tools.as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["name"].as_str()).collect()
}

/// Asks once for every answer, and once more: words or one error come, and the next question is answered.
async fn play(cases: Vec<(Vec<u8>, &str)>) {
    let (answers, words): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    let stand_in = StandIn::start(move |asked| {
        let index: Option<usize> = said(asked).parse().ok();
        index.map_or_else(|| events(fine()), |index| answers[index].clone())
    })
    .await;
    let toml = format!(
        "[agent]\nkind = \"gemini\"\nbase_url = \"http://{}\"\n",
        stand_in.address
    );
    let bridge = Bridge::with(&toml, |command| {
        command.env("GEMINI_API_KEY", KEY);
    });
    for (index, words) in words.iter().enumerate() {
        let chat = format!("c{index}");
        let events = bridge.ask(&chat, &index.to_string()).await.events().await;
        let sent: Vec<String> = events
            .iter()
            .filter_map(|event| serde_json::from_str::<Value>(event).ok())
            .filter_map(|chunk| {
                Some(
                    chunk["errorText"]
                        .as_str()
                        .or(chunk["delta"].as_str())?
                        .to_owned(),
                )
            })
            .collect();
        assert_eq!(sent.len(), 1, "{words}: {events:?}");
        assert!(sent[0].contains(words), "{words}: {sent:?}");
        let next = bridge.ask(&chat, "go on").await.events().await;
        assert_eq!(text_of_message(&folded(&next)), "fine", "{words}");
    }
    // Nobody but the host that was named sees the key.
    assert_eq!(stand_in.asked("/elsewhere").len(), 0);
    let log = bridge.log();
    assert!(!log.contains("panicked") && !log.contains(KEY), "{log}");
}

fn fine() -> String {
    let content = json!({"role": "model", "parts": [{"text": "fine"}]});
    data(&json!({"candidates": [{"content": content, "finishReason": "STOP"}]}))
}

fn data(chunk: &Value) -> String {
    format!("data: {chunk}\n\n")
}

fn elsewhere() -> Vec<u8> {
    b"HTTP/1.1 307 Moved\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".to_vec()
}

fn http_without_type(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}").into_bytes()
}

/// The user's last words.
fn said(asked: &ReceivedRequest) -> &str {
    let contents = asked.body["contents"].as_array();
    let last = contents.and_then(|contents| contents.last());
    last.and_then(|content| content["parts"][0]["text"].as_str())
        .unwrap_or_default()
}
