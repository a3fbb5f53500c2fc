//! Chunks as the clients' schemas see them: what is accepted, what is refused, and what each version is sent.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use adk_bridge_protocol::chunk::{Chunk, ChunkError, FinishReason, Sdk};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Every type with all of its fields, and the names of those that must be there.
fn full() -> Vec<(Value, &'static str)> {
    let pm = || json!({"google": {"thoughtSignature": "c2ln"}});
    let call = |kind: &str, more: Value| {
        let mut chunk = json!({"type": kind, "toolCallId": "c1", "toolName": "weather", "providerExecuted": true,
            "providerMetadata": pm(), "toolMetadata": {"a": 1}, "dynamic": false, "title": "Weather"});
        chunk
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        chunk
    };
    vec![
        (
            json!({"type": "start", "messageId": "m1", "messageMetadata": {"a": 1}}),
            "",
        ),
        (
            json!({"type": "finish", "finishReason": "content-filter", "messageMetadata": 1}),
            "",
        ),
        (json!({"type": "abort", "reason": "stopped"}), ""),
        (json!({"type": "error", "errorText": "broken"}), "errorText"),
        (
            json!({"type": "message-metadata", "messageMetadata": []}),
            "messageMetadata",
        ),
        (json!({"type": "start-step"}), ""),
        (json!({"type": "finish-step"}), ""),
        (json!({"type": "reset-step"}), ""),
        (
            json!({"type": "text-start", "id": "t", "providerMetadata": pm()}),
            "id",
        ),
        (
            json!({"type": "text-delta", "id": "t", "delta": "\"é\n", "providerMetadata": pm()}),
            "id delta",
        ),
        (
            json!({"type": "text-end", "id": "t", "providerMetadata": pm(), "citations": [
                {"source": {"type": "source", "sourceType": "url", "id": "s", "url": "u"}, "startIndex": 1}]}),
            "id",
        ),
        (
            json!({"type": "reasoning-start", "id": "r", "providerMetadata": pm()}),
            "id",
        ),
        (
            json!({"type": "reasoning-delta", "id": "r", "delta": "hm", "providerMetadata": pm()}),
            "id delta",
        ),
        (
            json!({"type": "reasoning-end", "id": "r", "providerMetadata": pm()}),
            "id",
        ),
        (
            call("tool-input-start", json!({"inputEncoding": "text"})),
            "toolCallId toolName",
        ),
        (
            json!({"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": "{"}),
            "toolCallId inputTextDelta",
        ),
        (
            call("tool-input-available", json!({"input": null})),
            "toolCallId toolName input",
        ),
        (
            call(
                "tool-input-error",
                json!({"input": [1], "errorText": "bad"}),
            ),
            "toolCallId toolName input errorText",
        ),
        (
            json!({"type": "tool-approval-request", "approvalId": "a1", "toolCallId": "c1", "approvalDescriptor": {"k": 1},
                "inputSchemaInput": null, "signature": "s", "reason": "money", "isAutomatic": true}),
            "approvalId toolCallId",
        ),
        (
            json!({"type": "tool-approval-response", "approvalId": "a1", "approved": false, "reason": "no",
                "providerExecuted": true, "providerMetadata": pm()}),
            "approvalId approved",
        ),
        (
            json!({"type": "tool-output-available", "toolCallId": "c1", "output": {"t": 1}, "providerExecuted": true,
                "providerMetadata": pm(), "toolMetadata": {}, "dynamic": true, "preliminary": true}),
            "toolCallId output",
        ),
        (
            json!({"type": "tool-output-error", "toolCallId": "c1", "errorText": "x", "providerExecuted": true,
                "providerMetadata": pm(), "toolMetadata": {}, "dynamic": true}),
            "toolCallId errorText",
        ),
        (
            json!({"type": "tool-output-denied", "toolCallId": "c1"}),
            "toolCallId",
        ),
        (
            json!({"type": "source-url", "sourceId": "s", "url": "u", "title": "t", "providerMetadata": pm()}),
            "sourceId url",
        ),
        (
            json!({"type": "source-document", "sourceId": "s", "mediaType": "m", "title": "t", "filename": "f",
                "providerMetadata": pm()}),
            "sourceId mediaType title",
        ),
        (
            json!({"type": "file", "url": "u", "mediaType": "m", "providerMetadata": pm()}),
            "url mediaType",
        ),
        (
            json!({"type": "reasoning-file", "url": "u", "mediaType": "m", "providerMetadata": pm()}),
            "url mediaType",
        ),
        (
            json!({"type": "custom", "kind": "a.b", "providerMetadata": pm()}),
            "kind",
        ),
        (
            json!({"type": "steering-message", "id": "s", "parts": [{"type": "text", "text": "x"},
                {"type": "file", "mediaType": "m", "url": "u", "filename": "f", "providerReference": {"a": "b"}}]}),
            "id parts",
        ),
        (
            json!({"type": "data-weather", "id": "d", "data": null, "transient": true}),
            "data",
        ),
    ]
}

const MAY_BE_NULL: [&str; 6] = [
    "input",
    "output",
    "data",
    "messageMetadata",
    "approvalDescriptor",
    "inputSchemaInput",
];

fn parse(value: &Value) -> Result<Chunk<'static>, ChunkError> {
    Chunk::parse(&value.to_string())
}

fn written(chunk: &Chunk<'_>, sdk: Sdk) -> Option<Value> {
    let mut out = b"before".to_vec();
    let wrote = chunk.write(sdk, &mut out);
    let json = out.strip_prefix(b"before").unwrap();
    assert_eq!(wrote, !json.is_empty());
    wrote.then(|| serde_json::from_slice(json).unwrap())
}

#[test]
fn every_chunk_is_written_as_it_was_read() {
    for (chunk, _) in full() {
        assert_eq!(written(&parse(&chunk).unwrap(), Sdk::V7).unwrap(), chunk);
    }
}

#[test]
fn the_type_comes_first_and_nothing_absent_is_written() {
    let mut out = Vec::new();
    assert!(Chunk::text_start("t").write(Sdk::V6, &mut out));
    assert!(Chunk::text_delta("t", "a\"b\u{1}é").write(Sdk::V6, &mut out));
    assert!(Chunk::finish(FinishReason::Stop).write(Sdk::V6, &mut out));
    let expected = concat!(
        r#"{"type":"text-start","id":"t"}"#,
        r#"{"type":"text-delta","id":"t","delta":"a\"b\u0001é"}"#,
        r#"{"type":"finish","finishReason":"stop"}"#
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn the_short_way_writes_what_the_long_one_does() {
    for chunk in [
        Chunk::text_delta("t\"", "\u{7f}\\"),
        Chunk::reasoning_delta("r", ""),
    ] {
        assert_eq!(
            written(&chunk, Sdk::V6).unwrap(),
            serde_json::to_value(&chunk).unwrap()
        );
    }
}

#[test]
fn a_field_of_the_wrong_type_is_refused_by_name() {
    for (chunk, required) in full() {
        let required: Vec<&str> = required.split(' ').collect();
        for name in chunk
            .as_object()
            .unwrap()
            .keys()
            .filter(|name| *name != "type")
        {
            let mut wrong = vec![];
            if !MAY_BE_NULL.contains(&name.as_str()) {
                wrong.extend([json!(null), json!(3), json!([1])]);
            }
            for value in wrong {
                let mut chunk = chunk.clone();
                chunk[name] = value;
                let error = parse(&chunk).unwrap_err();
                assert!(
                    error.to_string().contains(&format!("`{name}`")),
                    "{chunk}: {error}"
                );
            }
            let mut chunk = chunk.clone();
            chunk.as_object_mut().unwrap().shift_remove(name);
            let without = parse(&chunk);
            assert_eq!(
                without.is_err(),
                required.contains(&name.as_str()),
                "{chunk}: {without:?}"
            );
        }
    }
}

#[test]
fn strange_texts_are_refused() {
    for text in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"type":1}"#,
        r#"{"type":"data"}"#,
        r#"{"type":"tool-approval"}"#,
        r#"{"type":"text-start","id":"t","providerMetadata":{"a":1}}"#,
        r#"{"type":"finish","finishReason":"STOP"}"#,
        r#"{"type":"text-end","id":"t","citations":[{"source":{}}]}"#,
        r#"{"type":"steering-message","id":"t","parts":[{"type":"image"}]}"#,
        r#"{"type":"error","errorText":"\ud800"}"#,
        "{\"type\":\"start\"} x",
    ] {
        assert!(Chunk::parse(text).is_err(), "{text}");
    }
    let error = Chunk::parse("{\"type\":\n nope}").unwrap_err();
    assert!(
        matches!(
            error,
            ChunkError::Json {
                line: 2,
                column: 3,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn unknown_fields_are_ignored() {
    assert_eq!(
        parse(&json!({"type": "start-step", "title": null, "x": 1})).unwrap(),
        Chunk::StartStep
    );
}

#[test]
fn a_v6_client_is_sent_nothing_of_v7() {
    let newer = [
        "tool-approval-response",
        "custom",
        "reasoning-file",
        "reset-step",
        "steering-message",
    ];
    for (chunk, _) in full() {
        let kind = chunk["type"].as_str().unwrap();
        let parsed = parse(&chunk).unwrap();
        let sent = written(&parsed, Sdk::V6);
        assert_eq!(parsed.since() == Sdk::V7, newer.contains(&kind));
        assert_eq!(sent.is_none(), newer.contains(&kind));
        if let Some(sent) = sent {
            let mut expected = chunk.as_object().unwrap().clone();
            match kind {
                "text-end" => drop(expected.shift_remove("citations")),
                kind if kind.starts_with("tool-") && expected.contains_key("toolMetadata") => {
                    drop(expected.shift_remove("toolMetadata"));
                }
                "tool-approval-request" => {
                    expected.retain(|name, _| name != "reason" && name != "isAutomatic")
                }
                _ => {}
            }
            assert_eq!(sent, Value::Object(expected));
        }
    }
    let interrupted = Chunk::finish(FinishReason::Interrupted);
    assert_eq!(
        written(&interrupted, Sdk::V6).unwrap()["finishReason"],
        "other"
    );
    assert_eq!(
        written(&interrupted, Sdk::V7).unwrap()["finishReason"],
        "interrupted"
    );
}

#[test]
fn finish_reasons_of_agents() {
    for (agent, expected) in [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content-filter"),
        ("RECITATION", "content-filter"),
        ("BLOCKLIST", "content-filter"),
        ("PROHIBITED_CONTENT", "content-filter"),
        ("SPII", "content-filter"),
        ("IMAGE_SAFETY", "content-filter"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("UNEXPECTED_TOOL_CALL", "error"),
        ("OTHER", "other"),
        ("FINISH_REASON_UNSPECIFIED", "other"),
        ("", "other"),
        ("stop", "other"),
    ] {
        assert_eq!(
            serde_json::to_value(FinishReason::from_agent(agent)).unwrap(),
            expected,
            "{agent}"
        );
    }
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    for open in ["[", "{\"a\":"] {
        let text = format!(r#"{{"type":"data-x","data":{}"#, open.repeat(100_000));
        assert!(matches!(Chunk::parse(&text), Err(ChunkError::Json { .. })));
    }
}

#[test]
fn a_big_chunk_is_read() {
    let delta = "a\\\"é".repeat(1_000_000);
    let chunk = json!({"type": "text-delta", "id": "t", "delta": delta});
    assert_eq!(parse(&chunk).unwrap(), Chunk::text_delta("t", delta));
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z]{1,3}", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_a_chunk_or_an_error(text in ".{0,200}") {
        let _ = Chunk::parse(&text);
    }

    #[test]
    fn a_damaged_chunk_is_a_chunk_or_an_error(
        which in any::<prop::sample::Index>(), field in any::<prop::sample::Index>(), value in json_value(),
        cut in any::<prop::sample::Index>(),
    ) {
        let (mut chunk, _) = which.get(&full()).clone();
        let name = field.get(&chunk.as_object().unwrap().keys().cloned().collect::<Vec<_>>()).clone();
        chunk[&name] = value;
        match parse(&chunk) {
            Ok(parsed) => {
                let again = written(&parsed, Sdk::V7).unwrap();
                prop_assert_eq!(parse(&again).unwrap(), parsed);
            }
            Err(error) => prop_assert!(!matches!(error, ChunkError::Form { .. }), "{}", error),
        }
        let text = chunk.to_string();
        let mut end = cut.index(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        prop_assert!(Chunk::parse(&text[..end]).is_err());
    }
}
