//! What agents really send, and the same with something broken in it.

use adk_bridge_protocol::wire::recording::Recording;
use adk_bridge_testkit::Random;
use adk_bridge_testkit::fixtures::{RECORDED, recordings_in};
use serde_json::{Value, json};

/// Every recorded event, the handmade odd ones included.
pub(crate) fn recorded() -> Vec<Value> {
    let mut events = Vec::new();
    for path in RECORDED.iter().flat_map(|folder| recordings_in(folder)) {
        let bytes = std::fs::read(path).unwrap();
        let lines = Recording::new(&bytes).into_iter().flatten().flatten();
        events.extend(lines.filter_map(|line| serde_json::from_str(&line.json).ok()));
    }
    assert!(events.len() > 500, "{} events", events.len());
    events
}

/// Breaks a few things in `value`; what it takes the pieces from is `others`.
pub(crate) fn damage(value: &mut Value, others: &[Value], random: &mut Random) {
    for _ in 0..=random.below(3) {
        let other = &others[random.below(others.len())];
        let piece = match random.below(4) {
            0 => any_node(&mut other.clone(), random).clone(),
            _ => random.pick(&oddities()),
        };
        let node = any_node(value, random);
        match (random.below(4), node) {
            (0, Value::Array(items)) if !items.is_empty() => {
                let again = items[random.below(items.len())].clone();
                items.push(again);
            }
            (0, Value::Object(fields)) if !fields.is_empty() => {
                let key = fields.keys().nth(random.below(fields.len())).cloned();
                fields.remove(&key.unwrap_or_default());
            }
            (1, Value::Object(fields)) => {
                let key = random.pick(&FIELDS);
                fields.insert(key.to_owned(), piece);
            }
            (_, node) => *node = piece,
        }
    }
}

/// Breaks the text itself.
pub(crate) fn damage_text(text: &str, random: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() + 1);
        match random.below(3) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => {
                bytes.remove(at);
            }
            _ => bytes.insert(at, random.pick(b"{}[]\",:\\0e-n \t\x01")),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Fields that mean something somewhere, put where they may mean nothing.
const FIELDS: [&str; 16] = [
    "partial",
    "turnComplete",
    "interrupted",
    "author",
    "errorCode",
    "errorMessage",
    "finishReason",
    "content",
    "functionCall",
    "functionResponse",
    "id",
    "name",
    "args",
    "willContinue",
    "outputTranscription",
    "error",
];

fn oddities() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(false),
        json!(-1),
        json!(1e308),
        json!(u64::MAX),
        json!(""),
        json!("user"),
        json!("adk_request_confirmation"),
        json!("\u{0}\u{1f}\u{2028}\"\\\n"),
        json!("STOP"),
        json!([]),
        json!({}),
        json!([null, {}]),
        json!({"parts": [{"text": "x"}]}),
        json!("x".repeat(3_000)),
    ]
}

/// A value somewhere inside of `value`, or itself.
fn any_node<'v>(value: &'v mut Value, random: &mut Random) -> &'v mut Value {
    let len = match value {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    };
    if len == 0 || random.one_in(5) {
        return value;
    }
    let nth = random.below(len);
    let inner = match value {
        Value::Array(items) => items.get_mut(nth),
        Value::Object(fields) => fields.values_mut().nth(nth),
        _ => None,
    };
    any_node(inner.unwrap(), random)
}
