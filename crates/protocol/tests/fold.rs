//! Folding by example and by property; the comparison with the real AI SDK is `conformance fold`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use adk_bridge_protocol::chunk::{Chunk, FinishReason, Sdk};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::fold::{Fold, FoldError};
use adk_bridge_protocol::message::{Location, Message};
use proptest::prelude::*;
use serde_json::{Value, json};

fn chunk(value: &Value) -> Chunk<'static> {
    Chunk::parse(&value.to_string()).unwrap()
}

fn fold(sdk: Sdk, prior: Option<Value>, chunks: &[Value]) -> Result<Value, FoldError> {
    let mut fold = match prior {
        Some(prior) => Fold::onto(
            sdk,
            Message::parse(Json::from(prior).raw(), &Location::Root("prior")).unwrap(),
        ),
        None => Fold::new(sdk, "m"),
    };
    chunks
        .iter()
        .try_for_each(|value| fold.apply(&chunk(value)))?;
    Ok(serde_json::to_value(fold.into_message()).unwrap())
}

fn parts(sdk: Sdk, chunks: &[Value]) -> Value {
    fold(sdk, None, chunks).unwrap()["parts"].clone()
}

#[test]
fn a_turn_with_a_tool_becomes_one_message() {
    let message = fold(
        Sdk::V6,
        None,
        &[
            json!({"type": "start", "messageId": "m1", "messageMetadata": {"model": "g", "usage": {"in": 1}}}),
            json!({"type": "start-step"}),
            json!({"type": "reasoning-start", "id": "r"}),
            json!({"type": "reasoning-delta", "id": "r", "delta": "hm"}),
            json!({"type": "reasoning-end", "id": "r", "providerMetadata": {"google": {"sig": "x"}}}),
            json!({"type": "tool-input-start", "toolCallId": "c1", "toolName": "weather"}),
            json!({"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": "{\"city\":\"Ro"}),
            json!({"type": "tool-input-available", "toolCallId": "c1", "toolName": "weather", "input": {"city": "Rome"}}),
            json!({"type": "tool-approval-request", "approvalId": "a1", "toolCallId": "c1"}),
            json!({"type": "tool-output-available", "toolCallId": "c1", "output": {"t": 21}}),
            json!({"type": "finish-step"}),
            json!({"type": "start-step"}),
            json!({"type": "text-start", "id": "t"}),
            json!({"type": "text-delta", "id": "t", "delta": "21 "}),
            json!({"type": "text-delta", "id": "t", "delta": "degrees"}),
            json!({"type": "text-end", "id": "t"}),
            json!({"type": "data-note", "id": "n", "data": 1}),
            json!({"type": "data-note", "id": "n", "data": 2}),
            json!({"type": "data-note", "data": 3, "transient": true}),
            json!({"type": "finish-step"}),
            json!({"type": "finish", "finishReason": "stop", "messageMetadata": {"usage": {"out": 2}, "model": null}}),
        ],
    );
    let expected = json!({
        "id": "m1", "role": "assistant", "metadata": {"model": null, "usage": {"in": 1, "out": 2}},
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "id": "r", "text": "hm", "state": "done", "providerMetadata": {"google": {"sig": "x"}}},
            {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {"city": "Rome"},
             "output": {"t": 21}, "approval": {"id": "a1"}},
            {"type": "step-start"},
            {"type": "text", "text": "21 degrees", "state": "done"},
            {"type": "data-note", "id": "n", "data": 2},
        ],
    });
    assert_eq!(message.unwrap(), expected);
}

#[test]
fn the_versions_differ_where_the_table_says_so() {
    let open = json!({"type": "text-start", "id": "t"});
    let late = [
        open.clone(),
        json!({"type": "finish-step"}),
        json!({"type": "text-delta", "id": "t", "delta": "x"}),
    ];
    assert!(matches!(
        fold(Sdk::V6, None, &late),
        Err(FoldError::NotOpen {
            chunk: "text-delta",
            ..
        })
    ));
    assert_eq!(parts(Sdk::V7, &late)[0]["text"], "x");

    let refused = [
        json!({"type": "tool-input-error", "toolCallId": "c", "toolName": "t", "input": 1, "errorText": "e"}),
    ];
    let part = parts(Sdk::V6, &refused)[0].clone();
    assert_eq!((part.get("input"), &part["rawInput"]), (None, &json!(1)));
    let part = parts(Sdk::V7, &refused)[0].clone();
    assert_eq!((&part["input"], part.get("rawInput")), (&json!(1), None));

    let source = json!({"type": "source", "sourceType": "url", "id": "s", "url": "u"});
    let cited = [
        open,
        json!({"type": "text-end", "id": "t", "citations": [{"source": source}]}),
    ];
    assert_eq!(parts(Sdk::V6, &cited)[0].get("citations"), None);
    assert_eq!(parts(Sdk::V7, &cited)[0]["citations"][0]["source"], source);

    let asked = [
        json!({"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {}}),
        json!({"type": "tool-approval-request", "toolCallId": "c", "approvalId": "a", "reason": "r", "isAutomatic": true}),
    ];
    assert_eq!(parts(Sdk::V6, &asked)[0]["approval"], json!({"id": "a"}));
    assert_eq!(
        parts(Sdk::V7, &asked)[0]["approval"],
        json!({"id": "a", "requestReason": "r", "isAutomatic": true})
    );

    let negative = [
        json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "t"}),
        json!({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "[-"}),
    ];
    assert_eq!(parts(Sdk::V6, &negative)[0].get("input"), None);
    assert_eq!(parts(Sdk::V7, &negative)[0]["input"], json!([]));

    assert_eq!(
        fold(Sdk::V6, None, &[json!({"type": "reset-step"})]),
        Err(FoldError::Newer)
    );
}

#[test]
fn a_refused_chunk_has_its_error() {
    let id = || "x".to_owned();
    for (value, expected) in [
        (
            json!({"type": "text-delta", "id": "x", "delta": ""}),
            FoldError::NotOpen {
                chunk: "text-delta",
                first: "text-start",
                id: id(),
            },
        ),
        (
            json!({"type": "reasoning-end", "id": "x"}),
            FoldError::NotOpen {
                chunk: "reasoning-end",
                first: "reasoning-start",
                id: id(),
            },
        ),
        (
            json!({"type": "tool-input-delta", "toolCallId": "x", "inputTextDelta": ""}),
            FoldError::NotOpen {
                chunk: "tool-input-delta",
                first: "tool-input-start",
                id: id(),
            },
        ),
        (
            json!({"type": "tool-output-error", "toolCallId": "x", "errorText": ""}),
            FoldError::UnknownCall(id()),
        ),
        (
            json!({"type": "tool-approval-response", "approvalId": "x", "approved": true}),
            FoldError::UnknownApproval(id()),
        ),
        (
            json!({"type": "error", "errorText": "broken"}),
            FoldError::Reported("broken".to_owned()),
        ),
    ] {
        assert_eq!(fold(Sdk::V7, None, &[value]), Err(expected));
    }
}

#[test]
fn a_message_is_continued_or_replaced() {
    let prior = json!({"id": "m", "role": "assistant", "metadata": {"a": 1}, "kept": true, "parts": [
        {"type": "tool-t", "toolCallId": "c", "state": "input-streaming", "rawInput": "{\"a\":", "input": {}}]});
    let delta = json!({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "1"});
    let start = |id: &str| json!({"type": "start", "messageId": id});
    let message = fold(Sdk::V6, Some(prior.clone()), &[start("m"), delta.clone()]).unwrap();
    assert_eq!(
        (&message["parts"][0]["input"], &message["kept"]),
        (&json!({"a": 1}), &json!(true))
    );
    let message = fold(Sdk::V6, Some(prior.clone()), &[start("other")]).unwrap();
    assert_eq!(
        message,
        json!({"id": "other", "role": "assistant", "parts": []})
    );
    let refused = fold(Sdk::V6, Some(prior.clone()), &[start("other"), delta]);
    assert!(matches!(refused, Err(FoldError::NotOpen { .. })));
    let mut question = prior;
    question["role"] = json!("user");
    let message = fold(Sdk::V6, Some(question), &[]).unwrap();
    assert_eq!(
        message,
        json!({"id": "m", "role": "assistant", "parts": []})
    );
}

#[test]
fn the_finish_reason_is_kept() {
    let mut fold = Fold::new(Sdk::V6, "m");
    fold.apply(&Chunk::finish(FinishReason::Length)).unwrap();
    fold.apply(&Chunk::Finish {
        finish_reason: None,
        message_metadata: None,
    })
    .unwrap();
    assert_eq!(fold.finish_reason(), Some(FinishReason::Length));
}

#[test]
fn a_shared_message_stays_as_it_was_and_is_copied_only_while_it_is_held() {
    let mut fold = Fold::new(Sdk::V7, "m");
    let calls = json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "t"});
    let writes = json!({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "[1"});
    for known in [json!({"type": "text-start", "id": "t"}), calls] {
        fold.apply(&chunk(&known)).unwrap();
    }
    let say = |fold: &mut Fold| fold.apply(&Chunk::text_delta("t", "well ")).unwrap();
    say(&mut fold);
    let shared = fold.share();
    assert!(
        std::ptr::eq(&*shared, fold.unsettled()),
        "nothing is copied"
    );
    let before = shared.clone();
    say(&mut fold);
    assert_eq!(shared, before);
    assert_ne!(*shared, *fold.unsettled());
    drop((shared, before));

    let shared = std::ptr::from_ref(&*fold.share());
    say(&mut fold);
    assert!(std::ptr::eq(shared, fold.unsettled()), "nobody holds it");
    // An input that is still arriving is in what is shared, and lags in the message.
    fold.apply(&chunk(&writes)).unwrap();
    let shared = fold.share();
    assert_ne!(*shared, *fold.unsettled());
    assert_eq!(*shared, *fold.message());
}

/// Parsing at every delta would take hours here.
#[test]
fn a_long_streamed_input_takes_linear_time() {
    const DELTAS: usize = 200_000;
    let mut fold = Fold::new(Sdk::V7, "m");
    fold.apply(&chunk(
        &json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "t"}),
    ))
    .unwrap();
    let delta = |text: &'static str| Chunk::ToolInputDelta {
        tool_call_id: "c".into(),
        input_text_delta: text.into(),
    };
    fold.apply(&delta("[0")).unwrap();
    for _ in 0..DELTAS {
        fold.apply(&delta(", 12345678")).unwrap();
    }
    let message = serde_json::to_value(fold.message()).unwrap();
    assert_eq!(
        message["parts"][0]["input"].as_array().unwrap().len(),
        DELTAS + 1
    );
}

/// Chunks with few ids, so that many fit and many do not.
fn any_chunk() -> impl Strategy<Value = Value> {
    let id = || prop::sample::select(vec!["0", "1"]);
    let text = || {
        prop::sample::select(vec![
            "{\"a\":", "[1,", "\"x", "tru", "}", "-", "\\u00", "é", "",
        ])
    };
    prop_oneof![
        id().prop_map(|id| json!({"type": "text-start", "id": id})),
        (id(), text()).prop_map(|(id, delta)| json!({"type": "text-delta", "id": id, "delta": delta})),
        id().prop_map(|id| json!({"type": "text-end", "id": id})),
        id().prop_map(|id| json!({"type": "reasoning-start", "id": id})),
        (id(), text()).prop_map(|(id, delta)| json!({"type": "reasoning-delta", "id": id, "delta": delta})),
        id().prop_map(|id| json!({"type": "reasoning-end", "id": id})),
        (id(), any::<bool>())
            .prop_map(|(id, d)| json!({"type": "tool-input-start", "toolCallId": id, "toolName": "t", "dynamic": d})),
        (id(), text()).prop_map(|(id, t)| json!({"type": "tool-input-delta", "toolCallId": id, "inputTextDelta": t})),
        (id(), any::<bool>()).prop_map(
            |(id, d)| json!({"type": "tool-input-available", "toolCallId": id, "toolName": "t", "input": 1, "dynamic": d})
        ),
        id().prop_map(
            |id| json!({"type": "tool-input-error", "toolCallId": id, "toolName": "t", "input": 1, "errorText": "e"})
        ),
        id().prop_map(|id| json!({"type": "tool-output-available", "toolCallId": id, "output": 1})),
        id().prop_map(|id| json!({"type": "tool-output-error", "toolCallId": id, "errorText": "e"})),
        id().prop_map(|id| json!({"type": "tool-approval-request", "toolCallId": id, "approvalId": id})),
        id().prop_map(|id| json!({"type": "tool-approval-response", "approvalId": id, "approved": true})),
        id().prop_map(|id| json!({"type": "start", "messageId": id})),
        prop::sample::select(vec![
            json!({"type": "start-step"}), json!({"type": "finish-step"}), json!({"type": "reset-step"}),
            json!({"type": "error", "errorText": "e"}), json!({"type": "data-x", "id": "0", "data": 1}),
            json!({"type": "message-metadata", "messageMetadata": {"a": {"b": 1}}}),
            json!({"type": "message-metadata", "messageMetadata": "text"}),
        ]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_refused_chunk_changes_nothing_and_looking_neither(
        chunks in prop::collection::vec((any_chunk(), any::<bool>()), 0..40), v7 in any::<bool>(),
    ) {
        let sdk = if v7 { Sdk::V7 } else { Sdk::V6 };
        let mut watched = Fold::new(sdk, "m");
        let mut unwatched = Fold::new(sdk, "m");
        for (value, look) in &chunks {
            let chunk = chunk(value);
            let before = watched.clone().into_message();
            let result = watched.apply(&chunk);
            prop_assert_eq!(&result, &unwatched.apply(&chunk));
            if result.is_err() {
                prop_assert_eq!(&before, &watched.clone().into_message(), "{}", value);
            }
            if *look {
                watched.message();
            }
        }
        prop_assert_eq!(watched.into_message(), unwatched.into_message());
    }
}
