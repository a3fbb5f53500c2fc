//! Conversations with every kind of part that a model can be sent, written by hand and generated.

use serde_json::{Value, json};

use crate::Random;

/// A conversation that has every kind of part for a model once.
pub fn by_hand() -> Value {
    let signed = json!({"google": {"thoughtSignature": "c2lnbmF0dXJl"}});
    let step = json!({"type": "step-start"});
    let tool = |id: &str, fields: Value| {
        let mut part = json!({"type": "tool-search", "toolCallId": id, "input": {"query": "a"}});
        part.as_object_mut()
            .into_iter()
            .zip(fields.as_object())
            .for_each(|(part, fields)| part.extend(fields.clone()));
        part
    };
    json!([
        {"id": "s", "role": "system", "parts": [{"type": "text", "text": "Be kind."}]},
        {"id": "u1", "role": "user", "parts": [
            {"type": "text", "text": "What is this, and where?\n\"…\""},
            {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="},
            {"type": "file", "mediaType": "application/pdf", "url": "https://example.com/a.pdf"},
            {"type": "file", "mediaType": "video/mp4", "url": "gs://bucket/a.mp4"},
        ]},
        {"id": "a1", "role": "assistant", "parts": [
            step,
            {"type": "reasoning", "text": "Let me think.", "state": "done", "providerMetadata": signed},
            {"type": "text", "text": "Let me look.", "state": "done", "providerMetadata": signed},
            tool("c1", json!({"state": "output-available", "output": {"rows": [1, 2.5, null]},
                "callProviderMetadata": signed})),
            {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="},
            tool("c2", json!({"state": "output-available", "output": "three rows"})),
            {"type": "file", "mediaType": "image/jpeg", "url": "https://example.com/a.jpg"},
            step,
            tool("c3", json!({"state": "output-error", "errorText": "no such table"})),
            tool("c4", json!({"state": "output-denied", "approval": {"id": "p4", "approved": false, "reason": "too dear"}})),
            tool("c5", json!({"state": "approval-responded", "approval": {"id": "p5", "approved": false}})),
            tool("c6", json!({"state": "approval-responded", "approval": {"id": "p6", "approved": true}})),
            tool("c7", json!({"state": "approval-requested", "approval": {"id": "p7"}})),
            tool("c8", json!({"state": "input-available"})),
            tool("c9", json!({"state": "input-streaming"})),
            {"type": "dynamic-tool", "toolName": "roll-dice", "toolCallId": "c10", "state": "output-available",
             "input": {}, "output": null},
            step,
            {"type": "data-executable-code", "data": {"language": "PYTHON", "code": "print(1)"}},
            {"type": "data-code-execution-result", "data": {"outcome": "OUTCOME_OK", "output": "1\n"}},
            {"type": "data-note", "data": {"not": "for the model"}},
            {"type": "source-url", "sourceId": "s1", "url": "https://example.com"},
            {"type": "text", "text": "One.", "state": "done"},
            {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="},
        ]},
        {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "Thanks"}]},
    ])
}

/// A conversation of a few messages; always the same for the same seed.
pub fn generated(seed: u64) -> Value {
    let mut random = Random::new(seed);
    let mut calls = 0;
    let messages = (0..1 + random.below(5)).map(|index| {
        let (role, parts) = if index % 2 == 0 {
            ("user", user_parts(&mut random))
        } else {
            ("assistant", assistant_parts(&mut random, &mut calls))
        };
        json!({"id": format!("m{index}"), "role": role, "parts": parts})
    });
    Value::Array(messages.collect())
}

fn user_parts(random: &mut Random) -> Vec<Value> {
    (0..1 + random.below(3))
        .map(|_| {
            if random.one_in(3) {
                file(random)
            } else {
                text(random)
            }
        })
        .collect()
}

fn assistant_parts(random: &mut Random, calls: &mut u32) -> Vec<Value> {
    let mut parts = Vec::new();
    for _ in 0..1 + random.below(3) {
        parts.push(json!({"type": "step-start"}));
        for _ in 0..random.below(6) {
            let part = match random.below(12) {
                0 | 1 => text(random),
                2 => {
                    let mut thought = text(random);
                    thought["type"] = json!("reasoning");
                    thought
                }
                3 => file(random),
                4 => {
                    json!({"type": "data-executable-code", "data": {"language": "PYTHON", "code": "print(1)"}})
                }
                5 => json!({"type": "data-code-execution-result",
                    "data": {"outcome": random.pick(&["OUTCOME_OK", "OUTCOME_FAILED"]), "output": "1"}}),
                6 => json!({"type": "source-url", "sourceId": "s", "url": "https://example.com"}),
                _ => {
                    *calls += 1;
                    tool(random, *calls)
                }
            };
            parts.push(part);
        }
    }
    parts
}

fn text(random: &mut Random) -> Value {
    let text = random.pick(&["", "Hello", "Grüße 😀", "a\nb\t\"c\"\\", "{\"a\": 1}"]);
    let mut part = json!({"type": "text", "text": text, "state": "done"});
    if random.one_in(4) {
        part["providerMetadata"] = json!({"google": {"thoughtSignature": "c2lnbmF0dXJl"}});
    }
    part
}

fn file(random: &mut Random) -> Value {
    let (media_type, url) = random.pick(&[
        ("image/png", "data:image/png;base64,iVBORw0KGgo="),
        ("audio/wav", "data:audio/wav;base64,UklGRg=="),
        ("application/pdf", "https://example.com/a.pdf"),
        ("video/mp4", "gs://bucket/a.mp4"),
    ]);
    json!({"type": "file", "mediaType": media_type, "url": url})
}

fn tool(random: &mut Random, number: u32) -> Value {
    let input = random.pick(&[
        json!({}),
        json!({"query": "a", "limit": 3, "deep": {"x": [null, true, 0.5]}}),
    ]);
    let name = random.pick(&["search", "process_payment"]);
    let mut part =
        json!({"type": format!("tool-{name}"), "toolCallId": format!("c{number}"), "input": input});
    if random.one_in(4) {
        part["callProviderMetadata"] = json!({"google": {"thoughtSignature": "c2ln"}});
    }
    let (state, fields) = random.pick(&[
        ("input-streaming", json!({})),
        ("input-available", json!({})),
        ("approval-requested", json!({"approval": {"id": "a"}})),
        (
            "approval-responded",
            json!({"approval": {"id": "a", "approved": true}}),
        ),
        (
            "approval-responded",
            json!({"approval": {"id": "a", "approved": false, "reason": "no"}}),
        ),
        ("output-available", json!({"output": {"rows": 3}})),
        (
            "output-available",
            json!({"output": {"error": "in words of its own", "code": 7}}),
        ),
        ("output-available", json!({"output": [1, 2]})),
        ("output-available", json!({"output": "text"})),
        ("output-available", json!({"output": null})),
        ("output-error", json!({"errorText": "broken"})),
        (
            "output-denied",
            json!({"approval": {"id": "a", "approved": false, "reason": "too dear"}}),
        ),
        (
            "output-denied",
            json!({"approval": {"id": "a", "approved": false}}),
        ),
    ]);
    part["state"] = json!(state);
    for (key, value) in fields.as_object().into_iter().flatten() {
        part[key] = value.clone();
    }
    part
}
