//! Two thousand requests gone wrong: whatever comes, the bridge refuses it with a reason and lives.
//!
//! The seed is fixed, so a failure comes again; it is named with the request in the failure's message.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::support::http::Connection;
use crate::support::{Bridge, Random, text_of, within};

const SEED: u64 = 0x05ee_d0fd_0025;
const LANES: u64 = 4;
const REQUESTS_PER_LANE: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_odd_requests_get_a_reason_and_leave_the_bridge_alive() {
    eprintln!("seed {SEED:#x}");
    let mut bridge = Bridge::configured("[server]\ncompat = [\"adk-stream-protocol\"]");
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| tokio::spawn(send_odd_requests(bridge.address, Random::new(SEED + lane))))
        .collect();
    let mut tally = std::collections::BTreeMap::new();
    for lane in lanes {
        for status in lane.await.unwrap() {
            *tally.entry(status).or_insert(0) += 1;
        }
    }
    eprintln!("answers by status: {tally:?}");
    // A generator that only ever reaches one kind of answer shows nothing.
    for status in [200, 204, 400, 404, 405, 415, 422] {
        assert!(tally.contains_key(&status), "{status}: {tally:?}");
    }
    assert!(bridge.is_alive());
    let events = bridge.ask("after", "say still here").await.events().await;
    assert_eq!(text_of(&crate::support::folded(&events)), "still here");
    assert!(!bridge.log().contains("panicked"), "{}", bridge.log());
}

async fn send_odd_requests(address: std::net::SocketAddr, mut random: Random) -> Vec<u16> {
    let mut connection = Connection::open(address).await;
    let mut statuses = Vec::new();
    while statuses.len() < REQUESTS_PER_LANE {
        let odd = Odd::new(&mut random);
        let bytes = odd.bytes(address);
        connection.write(&bytes).await;
        if odd.is_cut {
            let _ = within(connection.stream.shutdown()).await;
        }
        let Some(answer) = connection.try_answer(&odd.method).await else {
            assert!(odd.is_cut, "no answer to {odd:?}");
            connection = Connection::open(address).await;
            continue;
        };
        let (response, back) = answer.whole_and_connection().await;
        assert!(response.status < 500, "{response:?} to {odd:?}");
        let closes = response.header("connection") == Some("close");
        if response.status == 200 && response.header("content-type") == Some("text/event-stream") {
            let done = odd.method == "HEAD" || response.body.ends_with(b"data: [DONE]\n\n");
            assert!(done, "{response:?} to {odd:?}");
        } else if response.status >= 400 && odd.method != "HEAD" {
            // Input that is not HTTP at all never reaches an endpoint.
            let is_http = !(closes && response.body.is_empty());
            assert!(
                !is_http || !response.code().is_empty(),
                "{response:?} to {odd:?}"
            );
        }
        statuses.push(response.status);
        connection = if closes || odd.is_cut {
            Connection::open(address).await
        } else {
            back
        };
    }
    statuses
}

#[derive(Debug)]
struct Odd {
    method: String,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    /// The body ends before its announced length.
    is_cut: bool,
}

impl Odd {
    fn new(random: &mut Random) -> Self {
        let chat = format!("odd{}", random.below(12));
        let is_output = random.one_in(8);
        let mut value = if is_output {
            json!({"toolCallId": "call_1", "output": {"a": 1}})
        } else {
            request(random, &chat)
        };
        for _ in 0..random.below(3) {
            mutate_value(&mut value, random);
        }
        let mut body = value.to_string().into_bytes();
        if random.one_in(3) {
            mutate_text(&mut body, random);
        }
        let path = match random.below(20) {
            0..16 if is_output => format!("/api/chat/{chat}/tool-output"),
            0..4 if !is_output => "/stream".to_owned(),
            0..16 => "/api/chat".to_owned(),
            _ => path(random, &chat),
        };
        let method = match random.below(10) {
            0 => random.pick(&[
                "GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW", "post",
            ]),
            1 if !["/api/chat", "/stream"].contains(&path.as_str()) => "GET",
            _ => "POST",
        };
        let mut headers = Vec::new();
        if !random.one_in(5) {
            headers.push(("content-type".into(), b"application/json".to_vec()));
        }
        for _ in 0..random.below(3) {
            headers.push(header(random));
        }
        Self {
            method: method.to_owned(),
            path,
            headers,
            body,
            is_cut: random.one_in(40),
        }
    }

    fn bytes(&self, address: std::net::SocketAddr) -> Vec<u8> {
        let length = self.body.len() + if self.is_cut { 1 } else { 0 };
        let mut bytes = format!(
            "{} {} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n",
            self.method, self.path
        )
        .into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A request as clients send it.
fn request(random: &mut Random, chat: &str) -> Value {
    let text = random.pick(&[
        "say hi",
        "call roll_dice {\"sides\": 6}",
        "call process_payment {\"amount\": 5, \"recipient\": \"Hanako\"}",
        "call change_bgm {\"track_name\": \"one\"} && call get_weather {\"location\": \"Tokyo\"}",
        "http 400",
        "safety",
    ]);
    let user = json!({"id": format!("u{}", random.below(4)), "role": "user", "parts": [{"type": "text", "text": text}]});
    let message = match random.below(6) {
        0 => json!({"role": "user", "content": text}),
        1 => {
            json!({"role": "user", "content": [{"type": "text", "text": text}, {"type": "tool-result", "toolCallId": "a", "result": 1}]})
        }
        2 => {
            json!({"role": "user", "experimental_attachments": [{"type": "text", "text": text}, {"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="}]})
        }
        3 => json!({"id": "a1", "role": "assistant", "parts": [
            {"type": "step-start"},
            {"type": "tool-process_payment", "toolCallId": "call_1", "state": "approval-responded", "input": {"amount": 1},
             "approval": {"id": "approval_1", "approved": true, "reason": "yes"}},
            {"type": "tool-change_bgm", "toolCallId": "call_2", "state": "output-available", "input": {}, "output": "ok"},
        ]}),
        4 => {
            json!({"id": "u9", "role": "user", "parts": [{"type": "text", "text": text}, {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,aGk="}]})
        }
        _ => user.clone(),
    };
    let messages = if random.one_in(3) {
        json!([user, message])
    } else {
        json!([message])
    };
    let trigger = random.pick(&["submit-message", "regenerate-message"]);
    let dialect = random.pick(&["native", "adk", "held"]);
    json!({"id": chat, "messages": messages, "trigger": trigger, "messageId": "u1", "dialect": dialect, "sdk": 7})
}

/// Puts something odd in place of any value in the tree, or takes it away, or doubles it.
pub(crate) fn mutate_value(value: &mut Value, random: &mut Random) {
    let descend = !random.one_in(4);
    match value {
        Value::Object(fields) if descend && !fields.is_empty() => {
            let at = random.below(fields.len());
            let key = fields.keys().nth(at).cloned().unwrap();
            match random.below(8) {
                0 => drop(fields.remove(&key)),
                1 => {
                    let moved = fields.remove(&key).unwrap();
                    fields.insert(format!("{key}\u{0}é"), moved);
                }
                _ => mutate_value(&mut fields[&key], random),
            }
        }
        Value::Array(items) if descend && !items.is_empty() => {
            let at = random.below(items.len());
            match random.below(8) {
                0 => drop(items.remove(at)),
                1 => {
                    let copy = items[at].clone();
                    items.extend(std::iter::repeat_n(copy, 1 + random.below(5)));
                }
                _ => mutate_value(&mut items[at], random),
            }
        }
        other => *other = odd_value(random),
    }
}

pub(crate) fn odd_value(random: &mut Random) -> Value {
    let depth = 20 + random.below(150);
    match random.below(16) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(1e308),
        4 => json!(u64::MAX),
        5 => json!(""),
        6 => json!("x".repeat(5_000)),
        7 => json!([]),
        8 => json!({}),
        9 => (0..depth).fold(json!(1), |inner, _| json!([inner])),
        10 => (0..depth).fold(json!(1), |inner, _| json!({"a": inner})),
        11 => json!("\u{0}\u{1}\u{7f}\u{2028}\u{feff}"),
        12 => json!("日本🎉\r\n\ndata: [DONE]\n\n"),
        13 => json!({"__proto__": {"type": "text"}, "type": "text"}),
        14 => json!("../../etc/passwd"),
        _ => json!([[], {}, null, "a", 0.1]),
    }
}

pub(crate) fn mutate_text(body: &mut Vec<u8>, random: &mut Random) {
    if body.is_empty() {
        return;
    }
    let at = random.below(body.len());
    let end = (at + random.below(30)).min(body.len());
    match random.below(6) {
        0 => body.truncate(at),
        1 => drop(body.drain(at..end)),
        2 => {
            let copy = body[at..end].to_vec();
            body.splice(at..at, copy);
        }
        3 => {
            let noise: Vec<u8> = (0..8).map(|_| random.byte()).collect();
            body.splice(at..at, noise);
        }
        4 => {
            // The same key again, right at the beginning.
            let doubled = random.pick(&[
                r#""id":"twice","#,
                r#""messages":[],"#,
                r#""messages":7,"#,
                r#""dialect":"adk","#,
            ]);
            let after = usize::from(body[0] == b'{');
            body.splice(after..after, doubled.bytes());
        }
        _ => {
            let piece = random.pick(&[
                "\\ud800",
                "1e999",
                "-",
                "\\u0000",
                "]",
                "{",
                "\"",
                "99999999999999999999999",
                "NaN",
                "\t\n",
            ]);
            body.splice(at..at, piece.bytes());
        }
    }
}

fn path(random: &mut Random, chat: &str) -> String {
    let endpoint = random.pick(&["stream", "stop", "tool-output", "nothing", ""]);
    match random.below(10) {
        0 | 1 => format!("/api/chat/{chat}/{endpoint}"),
        2 => format!("/api/chats/{chat}"),
        3 => format!("/api/chats/%{:02x}%{:02X}", random.byte(), random.byte()),
        4 => format!("/api/audit?chat={chat}&x=%{:02x}", random.byte()),
        5 => format!(
            "/api/chats/{chat}?dialect={}&sdk={}",
            random.pick(&["adk", "held", "native", "%00"]),
            random.below(1000)
        ),
        6 => format!(
            "/api/chat/{}/{endpoint}",
            "y".repeat(random.below(3000) + 1)
        ),
        7 => "/api/chats/../../..//etc/%2e%2e/".to_owned(),
        8 => random
            .pick(&[
                "/",
                "/health",
                "/ready",
                "/api/agent",
                "/api/chats",
                "/metrics",
                "/live",
                "*",
            ])
            .to_owned(),
        _ => format!(
            "/{}",
            random.pick(&[
                "?",
                "?chat",
                "api?&&&===",
                "%",
                "%zz",
                "api/chat?dialect=adk"
            ])
        ),
    }
}

pub(crate) fn header(random: &mut Random) -> (String, Vec<u8>) {
    let (name, value) = match random.below(9) {
        0 => (
            "content-type",
            random.pick(&[
                "text/plain",
                "application/json;charset=utf-16",
                ";",
                "application/JSON",
            ]),
        ),
        1 => ("content-encoding", random.pick(&["gzip", "br", "identity"])),
        2 => (
            "origin",
            random.pick(&["null", "http://evil.example", "http://127.0.0.1:1", ""]),
        ),
        3 => (
            "authorization",
            random.pick(&["Bearer", "Bearer x", "Basic eDp5", "\t"]),
        ),
        4 => (
            "accept",
            random.pick(&["text/event-stream", "image/png", "*/*;q=0"]),
        ),
        5 => ("expect", "100-continue"),
        6 => ("range", "bytes=0-1"),
        7 => {
            return (
                "x-odd".into(),
                (0..40).map(|_| random.byte() | 0x80).collect(),
            );
        }
        _ => return ("x-long".into(), vec![b'z'; random.below(6_000)]),
    };
    (name.to_owned(), value.as_bytes().to_vec())
}
