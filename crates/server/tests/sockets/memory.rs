//! JSON that would cost many times its bytes, sent to a process with little memory: it lives, serves others, and gives
//! the memory back.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, FIN, TEXT};
use crate::support::{Bridge, JSON, text_of};

const MB: usize = 1024 * 1024;
/// What the process may have, in addresses: stacks, heaps and the program itself are part of it.
const ADDRESSES: usize = 2 * 1024 * MB;
/// The largest body that is sent here.
const LARGE: usize = 4 * MB;
/// What reading one may take beyond its bytes: the tree of as many values as are allowed.
const TREE: usize = 64 * MB;
/// How near memory must come to where it began.
const LEFT: usize = 50 * MB;
/// How long that may take.
const GIVING_BACK: Duration = Duration::from_secs(60);

fn bridge() -> Bridge {
    Bridge::bounded(
        &format!("[server]\nmax_json_bytes = {}\n", 2 * LARGE),
        ADDRESSES,
    )
}

/// Lists in lists, as deep as is taken at all, over and over.
fn brackets(bytes: usize) -> String {
    let some = format!("{}{},", "[".repeat(100), "]".repeat(100));
    format!("[{}0]", some.repeat(bytes / some.len()))
}

fn objects(bytes: usize) -> String {
    format!("[{}0]", r#"{"a":0},"#.repeat(bytes / 8))
}

/// A request with an unknown field, and one with an unknown part.
fn with_field(chat: &str, value: &str) -> String {
    format!(
        r#"{{"id":"{chat}","x":{value},"messages":[{{"role":"user","parts":[{{"type":"text","text":"hello"}}]}}]}}"#
    )
}

fn with_part(chat: &str, value: &str) -> String {
    format!(
        r#"{{"id":"{chat}","messages":[{{"role":"user","parts":[{{"type":"text","text":"hello"}},{{"type":"data-x","data":{value}}}]}}]}}"#
    )
}

/// Waits until memory is near where it began.
async fn given_back(bridge: &Bridge, start: usize) {
    let until = Instant::now() + GIVING_BACK;
    while bridge.memory() > start + LEFT {
        let (memory, start) = (bridge.memory() / MB, start / MB);
        assert!(
            Instant::now() < until,
            "{memory} MB are kept, of {start} at the start"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A turn of somebody else, from the question to the last word.
async fn served(bridge: &Bridge, chat: &str) {
    let answer = bridge.ask(chat, "hello").await;
    assert_eq!(answer.status, 200);
    answer.whole().await;
    assert_ne!(text_of(&bridge.settled_message(chat).await), "");
}

#[tokio::test]
async fn one_body_costs_a_few_times_its_bytes_whatever_its_shape() {
    let bridge = bridge();
    served(&bridge, "other").await;
    let start = bridge.memory();
    let string = |unit: &str| format!("\"{}\"", unit.repeat(LARGE / unit.len()));
    let keys: String = (0..LARGE / 16).map(|n| format!("\"key{n}\":0,")).collect();
    let parts = r#"{"type":"step-start"},"#.repeat(LARGE / 22);
    let messages = r#"{"role":"user","parts":[{"type":"text","text":"a"}]},"#.repeat(LARGE / 53);
    // As much as is accepted: many values, and a long text in addition.
    let most = format!(
        "[{},\"{}\"]",
        brackets(250_000),
        "x".repeat(LARGE - 250_000)
    );
    let cases = [
        ("lists in a field", with_field("a", &brackets(LARGE)), 413),
        ("objects in a field", with_field("b", &objects(LARGE)), 413),
        (
            "keys in a field",
            with_field("c", &format!("{{{keys}\"a\":0}}")),
            413,
        ),
        ("a string in a field", with_field("d", &string("x")), 200),
        ("lists in a part", with_part("e", &brackets(LARGE)), 413),
        ("objects in a part", with_part("f", &objects(LARGE)), 413),
        ("a string in a part", with_part("g", &string("x")), 200),
        ("escapes", with_part("h", &string(r"\u0041")), 200),
        (
            "halves of characters",
            with_part("i", &string(r"\ud83d")),
            200,
        ),
        ("as much as is taken", with_part("j", &most), 200),
        (
            "parts",
            with_part("k", &format!("0}},{parts}{{\"type\":\"step-start\"")),
            413,
        ),
        (
            "messages",
            format!(r#"{{"id":"l","messages":[{messages}{{}}]}}"#),
            413,
        ),
        ("no end", "[".repeat(LARGE), 413),
        ("no JSON", "x".repeat(LARGE), 400),
    ];
    for (name, body, status) in cases {
        given_back(&bridge, start).await;
        bridge.forget_peak();
        let before = bridge.memory();
        let response = bridge.send("POST", "/api/chat", &[JSON], &body).await;
        assert_eq!(response.status, status, "{name}");
        if status == 413 {
            assert_eq!(response.code(), "too_many_values", "{name}");
            assert!(
                response.message().contains("150000 values"),
                "{}",
                response.message()
            );
        }
        let peak = bridge.peak().saturating_sub(before);
        let allowed = 3 * body.len() + TREE;
        assert!(
            peak <= allowed,
            "{name}: {} MB of {}",
            peak / MB,
            allowed / MB
        );
    }
    served(&bridge, "other-2").await;
    given_back(&bridge, start).await;
}

#[tokio::test]
async fn many_at_once_take_their_time_and_others_are_served() {
    let mut bridge = bridge();
    served(&bridge, "other").await;
    let start = bridge.memory();
    bridge.forget_peak();
    let heavy = format!("[{},\"{}\"]", brackets(250_000), "x".repeat(MB));
    let bodies = [
        with_field("a", &brackets(LARGE)),
        with_field("b", &objects(LARGE)),
        with_part("c", &heavy),
        with_part("d", &heavy),
        with_part("e", &heavy),
        with_part("f", &heavy),
    ];
    let to = &bridge;
    let attack = bodies.iter().map(|body| async move {
        for _ in 0..2 {
            to.send("POST", "/api/chat", &[JSON], body).await;
        }
    });
    let others = async {
        for turn in 0..2 {
            served(&bridge, &format!("other-{turn}")).await;
            assert_eq!(bridge.get("/health").await.status, 200);
        }
    };
    tokio::join!(futures_util::future::join_all(attack), others);
    assert!(bridge.is_alive());
    given_back(&bridge, start).await;
}

#[tokio::test]
async fn frames_are_read_as_bodies_are() {
    let mut bridge = bridge();
    served(&bridge, "other").await;
    let start = bridge.memory();
    let user = json!([{"role": "user", "parts": [{"type": "text", "text": "hello"}]}]);
    for value in [brackets(LARGE), objects(LARGE)] {
        bridge.forget_peak();
        let before = bridge.memory();
        let mut live = Client::open(&bridge, "/live?chat=live").await;
        let mut stock = Client::open(&bridge, "/api/chat/ws").await;
        let frame =
            format!(r#"{{"type":"message","requestId":"r1","x":{value},"messages":{user}}}"#);
        live.frame(FIN | TEXT, frame.as_bytes()).await;
        let error = live.control().await;
        assert_eq!(
            (&error["code"], &error["requestId"]),
            (&json!("too_many_values"), &json!("r1"))
        );
        let frame = format!(
            r#"{{"type":"send","requestId":"r2","id":"stock","trigger":"submit-message","body":{value},"messages":{user}}}"#
        );
        stock.frame(FIN | TEXT, frame.as_bytes()).await;
        let error: Value = stock.json().await;
        assert_eq!(
            (&error["type"], &error["requestId"]),
            (&json!("error"), &json!("r2"))
        );
        assert!(
            error["errorText"]
                .as_str()
                .unwrap()
                .contains("150000 values"),
            "{error}"
        );
        // Both go on.
        live.check_alive().await;
        live.say("hello").await;
        assert!(
            live.turn()
                .await
                .1
                .iter()
                .any(|chunk| chunk["type"] == "text-delta")
        );
        let frame = format!(r#"{{"type":"send","requestId":"r3","id":"stock","messages":{user}}}"#);
        stock.text(&frame).await;
        assert_eq!(stock.json().await["type"], "start");
        let peak = bridge.peak().saturating_sub(before);
        assert!(peak <= 3 * LARGE + TREE, "{} MB", peak / MB);
    }
    assert!(bridge.is_alive());
    given_back(&bridge, start).await;
}

#[tokio::test]
async fn what_is_stored_is_read_for_many_at_once() {
    let mut bridge = bridge();
    served(&bridge, "other").await;
    let start = bridge.memory();
    // What was 5.4 MB of brackets is refused; these are the most that can be stored at once, and as many bytes as text.
    assert_eq!(
        bridge
            .send(
                "POST",
                "/api/chat",
                &[JSON],
                with_part("s", &brackets(5 * MB))
            )
            .await
            .status,
        413
    );
    let stored = format!("[{},\"{}\"]", brackets(250_000), "x".repeat(MB));
    for _ in 0..2 {
        let response = bridge
            .send("POST", "/api/chat", &[JSON], with_part("s", &stored))
            .await;
        assert_eq!(response.status, 200);
    }
    given_back(&bridge, start + 4 * stored.len()).await;
    bridge.forget_peak();
    let before = bridge.memory();
    let gets = (0..6).map(|_| bridge.get("/api/chats/s"));
    let answers = futures_util::future::join_all(gets).await;
    for answer in answers {
        assert_eq!(answer.status, 200);
        assert!(answer.body.len() > 2 * MB);
    }
    let peak = bridge.peak().saturating_sub(before);
    // Two such texts are read at once where two threads are free.
    let allowed = 6 * 2 * 3 * stored.len() + 2 * TREE;
    assert!(peak <= allowed, "{} MB of {}", peak / MB, allowed / MB);
    assert!(bridge.is_alive());
    served(&bridge, "other-2").await;
}
