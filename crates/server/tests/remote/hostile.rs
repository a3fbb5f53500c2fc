//! Whatever an ADK server sends, a chat gets at worst one clear error, and goes on.
//!
//! The seed is fixed, so a failure comes again; it is named with the stream in the failure's message.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adk_bridge_testkit::Random;
use adk_bridge_testkit::fixtures::recordings_in;
use serde_json::{Value, json};

use crate::stand_in::{
    ReceivedRequest, StandIn, events, fine, ok, redirected, refused, text_of, well,
};
use crate::support::{Bridge, asking, folded, text_of as text_of_message, types, within};

const SEED: u64 = 0x0ad4_5eed;
const LANES: usize = 4;
const CHANGES_PER_RECORDING: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recordings_gone_wrong() {
    let mut random = Random::new(SEED);
    let mut streams: Vec<Vec<u8>> = Vec::new();
    for path in recordings() {
        let lines = data_lines(&path);
        streams.push(stream_of(&lines));
        for _ in 0..CHANGES_PER_RECORDING {
            streams.push(spoil(&lines, &mut random));
        }
    }
    assert!(streams.len() > 300, "{} streams", streams.len());
    let tally = play(streams.into_iter().map(events).collect()).await;
    // A generator that only ever reaches one kind of end shows nothing.
    assert!(tally.errors > 30 && tally.fine > 30, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_none() {
    let html = "<html><body>Bad Gateway</body></html>";
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (refused(500, "text/html", html), "failed: 500"),
        (
            refused(502, "application/json", r#"{"detail":"the sun is down"}"#),
            "the sun is down",
        ),
        (
            refused(
                401,
                "application/json",
                r#"{"error":{"message":"no token"}}"#,
            ),
            "no token; see agent.headers",
        ),
        (
            refused(
                422,
                "application/json",
                r#"{"detail":[{"msg":"Field required"}]}"#,
            ),
            "Field required",
        ),
        (
            refused(
                404,
                "application/json",
                r#"{"detail":"Agent not found: 'app'"}"#,
            ),
            "Agent not found: 'app'",
        ),
        (refused(429, "text/plain", "slow down"), "429"),
        (ok(&json!([{"author": "app"}])), "not an ADK server"),
        (refused(200, "text/html", html), "not an ADK server"),
        (b"HTTP/1.1 200 OK\r\n".to_vec(), "cannot be reached"),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "cannot be reached"),
        (Vec::new(), "cannot be reached"),
        (cut_in_the_body(), "broke in the middle"),
        (
            events("data: {\"author\":\"app\",\"content\":{\"role\":\"model\",\"parts\":[{\"te"),
            "was cut off",
        ),
        (events(b"data: \xff\xfe{}\n\n"), "cannot be parsed"),
        (
            events("data: {\n\ndata: nonsense\n\n".to_owned() + &fine()),
            "not an ADK event",
        ),
        (
            events(["data: ".as_bytes(), &vec![b'x'; 17 * 1024 * 1024]].concat()),
            "cannot be parsed",
        ),
        (
            events(
                r#"data: {"error":"ValueError: boom","error_details":{"error_type":"ValueError"}}"#
                    .to_owned()
                    + "\n\n",
            ),
            "ValueError: boom",
        ),
        (
            events(
                "data: {\"author\":\"app\",\"actions\":{\"stateDelta\":{\"n\":1}}}\n\n"
                    .repeat(10_001),
            ),
            "does not end",
        ),
        (
            events(
                "data: {\"author\":\"app\",\"errorCode\":\"X\",\"errorMessage\":\"said\"}\n\ndata: {\"error\":\"X: said again\"}\n\n",
            ),
            "X: said",
        ),
    ];
    let (answers, words): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    let stand_in = server(answers).await;
    let bridge = Bridge::configured(&stand_in.toml());
    for (index, words) in words.iter().enumerate() {
        let chat = format!("c{index}");
        let errors = ask(&bridge, &chat, index).await.1;
        assert_eq!(errors.len(), 1, "{words}: {errors:?}");
        assert!(errors[0].contains(words), "{words}: {errors:?}");
        // Where the agent is concerns its operator, who finds it in the log.
        let address = stand_in.address.to_string();
        assert!(!errors[0].contains(&address), "{errors:?}");
        assert_usable(&bridge, &chat).await;
    }
    let log = bridge.log();
    assert!(log.contains(&stand_in.address.to_string()), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

/// A server that leads elsewhere is not followed, at any of its endpoints: nobody else gets its headers and messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_are_not_followed() {
    let apps = |asked: &ReceivedRequest| match asked.path.as_str() {
        "/list-apps" => ok(&json!(["app"])),
        _ => well(asked),
    };
    let elsewhere = StandIn::start(apps).await;
    for status in [302, 307] {
        for (leading, name) in [
            ("/run_sse", "app = \"app\""),
            ("/sessions", "app = \"app\""),
            ("/list-apps", "app = \"app\""),
            ("/list-apps", "apps = \"*\""),
        ] {
            let place = elsewhere.address;
            let stand_in = StandIn::start(move |asked| match asked.path.ends_with(leading) {
                true => redirected(status, &format!("http://{place}{}", asked.path)),
                false => apps(asked),
            })
            .await;
            let headers = "headers = { authorization = \"Bearer planted-0123456789\" }\n";
            let toml = stand_in.toml().replace("app = \"app\"", name) + headers;
            let bridge = Bridge::configured(&toml);
            let answer = bridge.post("/api/chat", &asking("c", "hello")).await;
            let case = format!("{status} {leading} {name}");
            // A server need not list its apps, unless they are what is wanted.
            match (leading, name) {
                ("/list-apps", "apps = \"*\"") => {
                    assert_eq!(answer.header("x-error-code"), Some("no_agent"), "{case}");
                }
                ("/list-apps", _) => assert_eq!(answer.status, 200, "{case}"),
                _ => {
                    let said = String::from_utf8_lossy(&answer.body);
                    assert!(said.contains("correct agent.base_url"), "{case}: {said}");
                }
            }
            let led = stand_in.asked(leading);
            let has_key = |asked: &ReceivedRequest| asked.head.contains("planted-0123456789");
            assert!(!led.is_empty() && led.iter().all(has_key), "{case}");
            assert!(elsewhere.asked("").is_empty(), "{case}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_nobody_knows_are_passed_over() {
    let stream = [
        json!({"kind": "telemetry", "payload": {"deep": [1, {"x": null}]}}),
        json!({"author": "app", "content": null, "actions": null, "longRunningToolIds": null, "partial": null}),
        json!({"author": "app", "content": {"role": "model", "parts": [{"hologram": {"url": "x"}}, {"text": null}]}}),
        json!({"author": "app", "content": {"role": "model", "parts": [{"text": "fine", "mood": 3}]}, "newField": []}),
    ];
    let lines: Vec<String> = stream.iter().map(Value::to_string).collect();
    let text = format!(
        ": hello\nevent: odd\nretry: 5\n\n{}data: [DONE]\n\n",
        String::from_utf8(stream_of(&lines)).unwrap()
    );
    let stand_in = server(vec![events(text)]).await;
    let bridge = Bridge::configured(&stand_in.toml());
    let (message, errors) = ask(&bridge, "c0", 0).await;
    assert_eq!(
        (text_of_message(&message).as_str(), errors.len()),
        ("fine", 0)
    );
}

/// Ids of sessions become parts of URLs.
#[tokio::test]
async fn sessions_with_impossible_ids() {
    let given = Arc::new(Mutex::new(json!("")));
    let next = given.clone();
    let stand_in = StandIn::start(move |asked| match asked.path.as_str() {
        path if path.ends_with("/sessions") => match &*next.lock().unwrap() {
            Value::Null => well(asked),
            id => ok(&json!({"id": id, "events": []})),
        },
        _ => well(asked),
    })
    .await;
    let bridge = Bridge::configured(&stand_in.toml());
    for (number, id) in ["", ".", "..", &"x".repeat(2_000)].iter().enumerate() {
        *given.lock().unwrap() = json!(id);
        let chat = format!("c{number}");
        let said = bridge.ask(&chat, "hello").await.events().await.concat();
        assert!(said.contains("cannot be part of a URL"), "{id}: {said}");
        *given.lock().unwrap() = Value::Null;
        assert_usable(&bridge, &chat).await;
    }
    // Odd letters are only letters.
    *given.lock().unwrap() = json!("../a b?c#d%2e\u{1}");
    bridge.ask("odd", "hello").await.events().await;
    assert_usable(&bridge, "odd").await;
    bridge.send("DELETE", "/api/chats/odd", &[], "").await;
    let path = "/apps/app/users/local/sessions/..%2Fa%20b%3Fc%23d%252e%01";
    within(async {
        while stand_in.asked(path).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Every question is stored before it is asked; those that come at once are stored at once, whatever the message holds.
#[tokio::test]
async fn a_burst_of_questions_takes_little_memory() {
    let text = "x".repeat(1 << 20);
    let said = json!({"author": "app", "content": {"role": "model", "parts": [{"text": text}]}});
    let question = |number: usize| {
        let call = json!({"id": format!("c{number}"), "name": "rm", "args": {}});
        let args = json!({"originalFunctionCall": call, "toolConfirmation": {"confirmed": false}});
        let asks =
            json!({"id": format!("q{number}"), "name": "adk_request_confirmation", "args": args});
        let asks = json!({"author": "app", "content": {"parts": [{"functionCall": asks}]}});
        format!("data: {asks}\n\n")
    };
    let questions: String = (0..400).map(question).collect();
    let stand_in = server(vec![events(format!("data: {said}\n\n{questions}"))]).await;
    let bridge = Bridge::configured(&stand_in.toml());
    assert_usable(&bridge, "before").await;
    let before = bridge.memory();
    bridge.forget_peak();
    let (message, errors) = ask(&bridge, "c0", 0).await;
    assert_eq!(errors, [""; 0]);
    let parts = message["parts"].as_array().unwrap();
    let asked = parts
        .iter()
        .filter(|part| part["state"] == "approval-requested");
    assert_eq!(asked.count(), 400);
    let grown = bridge.peak().saturating_sub(before);
    assert!(grown < 100 << 20, "{} MB", grown >> 20);
}

#[derive(Debug, Default)]
struct Tally {
    fine: usize,
    errors: usize,
}

/// Plays every answer in a chat of its own, which must be usable afterwards.
async fn play(answers: Vec<Vec<u8>>) -> Tally {
    let (count, bodies) = (answers.len(), answers.clone());
    let stand_in = server(answers).await;
    let bridge = Arc::new(Bridge::configured(&stand_in.toml()));
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| {
            let (bridge, bodies) = (bridge.clone(), bodies.clone());
            tokio::spawn(async move {
                let mut tally = Tally::default();
                for index in (lane..count).step_by(LANES) {
                    let chat = format!("c{index}");
                    let (_, errors) = ask(&bridge, &chat, index).await;
                    let stream = String::from_utf8_lossy(&bodies[index]);
                    assert!(errors.len() <= 1, "{errors:?} to {stream}");
                    match errors.len() {
                        0 => tally.fine += 1,
                        _ => tally.errors += 1,
                    }
                    assert_usable(&bridge, &chat).await;
                }
                tally
            })
        })
        .collect();
    let mut tally = Tally::default();
    for lane in lanes {
        let part = lane.await.unwrap();
        tally.fine += part.fine;
        tally.errors += part.errors;
    }
    assert!(!bridge.log().contains("panicked"), "{}", bridge.log());
    tally
}

/// Answers `play N` with the Nth answer and everything else well.
async fn server(answers: Vec<Vec<u8>>) -> StandIn {
    StandIn::start(move |asked| {
        let number = text_of(asked).strip_prefix("play ");
        match number.and_then(|number| number.parse::<usize>().ok()) {
            Some(number) if asked.path == "/run_sse" => answers[number].clone(),
            _ => well(asked),
        }
    })
    .await
}

/// Has an answer played: the message that comes of it, and the errors.
async fn ask(bridge: &Bridge, chat: &str, number: usize) -> (Value, Vec<String>) {
    let mut answer = bridge.ask(chat, &format!("play {number}")).await;
    assert_eq!(answer.status, 200);
    let events = answer.events().await;
    let ends = ["finish", "error", "abort"];
    let types = types(&events);
    let terminal = types.iter().filter(|kind| ends.contains(&kind.as_str()));
    assert_eq!(terminal.count(), 1, "{events:?}");
    let errors = events
        .iter()
        .filter_map(|json| serde_json::from_str::<Value>(json).ok())
        .filter(|chunk| chunk["type"] == "error")
        .map(|chunk| chunk["errorText"].as_str().unwrap().to_owned())
        .collect();
    // A client stops at an error and keeps what came before it.
    let shown: Vec<String> = events
        .into_iter()
        .filter(|json| !json.starts_with(r#"{"type":"error""#))
        .collect();
    (folded(&shown), errors)
}

async fn assert_usable(bridge: &Bridge, chat: &str) {
    let events = bridge.ask(chat, "hello").await.events().await;
    assert_eq!(text_of_message(&folded(&events)), "fine", "{chat}");
}

fn cut_in_the_body() -> Vec<u8> {
    let fine = fine();
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{fine}\r\n", fine.len()).into_bytes()
}

fn recordings() -> Vec<PathBuf> {
    ["gemini", "gemini_answers", "agents", "scripted", "odd"]
        .into_iter()
        .flat_map(recordings_in)
        .filter(|path| {
            let kind = path.extension().unwrap_or_default();
            kind == "sse" || kind == "jsonl"
        })
        .collect()
}

/// The events of a recording, as they stand behind `data:`.
fn data_lines(path: &Path) -> Vec<String> {
    let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    text.lines()
        .map(|line| line.strip_prefix("data: ").unwrap_or(line).to_owned())
        .filter(|line| !line.trim().is_empty())
        .collect()
}

fn stream_of(lines: &[String]) -> Vec<u8> {
    let frames = lines.iter().map(|line| format!("data: {line}\n\n"));
    frames.collect::<String>().into_bytes()
}

/// A stream with one to three things wrong.
fn spoil(lines: &[String], random: &mut Random) -> Vec<u8> {
    let mut lines = lines.to_vec();
    if lines.is_empty() {
        lines.push("{}".to_owned());
    }
    for _ in 0..=random.below(2) {
        let at = random.below(lines.len());
        match random.below(7) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[at].clone()),
            2 => lines.insert(at, r#"{"kind":"unheard of","content":7}"#.to_owned()),
            3 => {
                let other = random.below(lines.len());
                lines.swap(at, other);
            }
            _ => {
                if let Ok(mut event) = serde_json::from_str::<Value>(&lines[at]) {
                    change(&mut event, random);
                    lines[at] = event.to_string();
                }
            }
        }
        if lines.is_empty() {
            return Vec::new();
        }
    }
    let mut stream = stream_of(&lines);
    match random.below(6) {
        0 => {
            let at = random.below(stream.len());
            stream[at] = u8::try_from(random.below(256)).unwrap();
        }
        1 => stream.truncate(random.below(stream.len())),
        _ => {}
    }
    stream
}

/// Replaces one value somewhere in the tree, or takes it away.
fn change(value: &mut Value, random: &mut Random) {
    match value {
        Value::Object(fields) if !fields.is_empty() && random.below(6) > 0 => {
            let at = random.below(fields.len());
            let key = fields.keys().nth(at).unwrap().clone();
            if random.below(8) == 0 {
                fields.remove(&key);
            } else {
                change(&mut fields[&key], random);
            }
        }
        Value::Array(items) if !items.is_empty() && random.below(6) > 0 => {
            let at = random.below(items.len());
            change(&mut items[at], random);
        }
        other => {
            *other = match random.below(8) {
                0 => Value::Null,
                1 => json!(-1.5e300),
                2 => json!(""),
                3 => json!([]),
                4 => json!({}),
                5 => json!(true),
                6 => json!("\u{0}\u{202e}\n\n"),
                _ => (0..90).fold(json!(1), |inner, _| json!([inner])),
            }
        }
    }
}
