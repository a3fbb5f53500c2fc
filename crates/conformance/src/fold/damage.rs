//! Turns a legal stream into an illegal one.

use adk_bridge_testkit::Random;
use serde_json::{Value, json};

use super::stream::IDS;
use super::values::Values as _;

/// Breaks a stream somewhere, in a way that a client notices or may notice.
pub(crate) fn damage(random: &mut Random, chunks: &mut Vec<Value>, v7: bool) -> &'static str {
    let at = random.below(chunks.len() + 1);
    let (kind, chunk) = match random.below(if v7 { 20 } else { 16 }) {
        0 => (
            "unknown-text",
            json!({"type": "text-delta", "id": "nobody", "delta": "x"}),
        ),
        1 => (
            "text-delta",
            json!({"type": "text-delta", "id": random.pick(&IDS), "delta": "x"}),
        ),
        2 => (
            "text-end",
            json!({"type": "text-end", "id": random.pick(&IDS)}),
        ),
        3 => (
            "reasoning-delta",
            json!({"type": "reasoning-delta", "id": random.pick(&IDS), "delta": "x"}),
        ),
        4 => (
            "reasoning-end",
            json!({"type": "reasoning-end", "id": random.pick(&IDS)}),
        ),
        5 => (
            "input-delta",
            json!({"type": "tool-input-delta", "toolCallId": "call-0", "inputTextDelta": "{"}),
        ),
        6 => (
            "output",
            json!({"type": "tool-output-available", "toolCallId": "call-1", "output": 1}),
        ),
        7 => (
            "unknown-call",
            json!({"type": "tool-output-denied", "toolCallId": "nobody"}),
        ),
        8 => (
            "approval",
            json!({"type": "tool-approval-request", "approvalId": "x", "toolCallId": "call-2"}),
        ),
        9 => ("error", json!({"type": "error", "errorText": "broken"})),
        10 => (
            "metadata",
            json!({"type": "message-metadata", "messageMetadata": random.json(1)}),
        ),
        11..=15 => return break_schema(random, chunks),
        16..=18 => return reset_input(random, chunks),
        _ => (
            "approval-response",
            json!({"type": "tool-approval-response", "approvalId": "nobody", "approved": true}),
        ),
    };
    chunks.insert(at, chunk);
    kind
}

/// Continues an input that a reset has taken back.
fn reset_input(random: &mut Random, chunks: &mut Vec<Value>) -> &'static str {
    let started = chunks
        .iter()
        .filter(|chunk| chunk["type"] == "tool-input-start");
    let ids: Vec<Value> = started.map(|chunk| chunk["toolCallId"].clone()).collect();
    if !ids.is_empty() {
        let id = random.pick(&ids);
        chunks.push(json!({"type": "reset-step"}));
        chunks.push(json!({"type": "tool-input-delta", "toolCallId": id, "inputTextDelta": "1"}));
    }
    "reset-input"
}

fn break_schema(random: &mut Random, chunks: &mut Vec<Value>) -> &'static str {
    if chunks.is_empty() || random.one_in(6) {
        chunks.push(random.pick(&[
            json!({"type": "tool-approval"}),
            json!({"type": "data"}),
            json!({"id": "x"}),
            json!([]),
            json!(null),
            json!({"type": null}),
            json!({"type": "finish", "finishReason": "STOP"}),
            json!({"type": "data-pcm"}),
            json!({"type": "message-metadata"}),
        ]));
        return "unknown-type";
    }
    let at = random.below(chunks.len());
    let Some(fields) = chunks[at].as_object_mut() else {
        return "no-object";
    };
    let names: Vec<String> = fields.keys().cloned().collect();
    let name = random.pick(&names);
    match random.below(3) {
        0 => drop(fields.shift_remove(&name)),
        1 => drop(fields.insert(name, Value::Null)),
        _ => drop(fields.insert(
            name,
            random.pick(&[
                json!(7),
                json!([]),
                json!({"a": 1}),
                json!("x"),
                json!(true),
            ]),
        )),
    }
    "schema"
}
