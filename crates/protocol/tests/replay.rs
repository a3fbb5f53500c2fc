//! A message that is replayed folds to itself, whatever is in it; what v6 cannot carry is listed here.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::fold::Fold;
use adk_bridge_protocol::message::replay::{Cursor, catch_up, finish_step, replay, start};
use adk_bridge_protocol::message::{
    ApprovalField, DataPart, Extra, FilePart, Location, Message, Part, ReasoningPart,
    SourceDocumentPart, SourceUrlPart, TextPart, TextState, ToolPart, ToolState,
};
use proptest::prelude::*;
use serde_json::{Value, json};

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_folds_to_the_message(message in message(), sdk in sdk()) {
        let mut fold = Fold::new(sdk, "");
        replay(&message, sdk, &mut |chunk| fold.apply(chunk).unwrap());
        let mut folded = fold.into_message();
        // Empty metadata is what makes a client show a last step that has no parts.
        if folded.metadata == Some(json!({}).into()) && matches!(message.parts.last(), Some(Part::StepStart)) {
            folded.metadata.clone_from(&message.metadata);
        }
        prop_assert_eq!(folded, carried(&message, sdk));
    }

    /// A reader that has the message as it was before gets the rest, and nothing twice.
    #[test]
    fn a_catch_up_folds_to_the_message(message in message(), sdk in sdk(), cut in 0..100usize, age in 0..6u8) {
        let earlier = earlier(&message, cut, age);
        let mut fold = Fold::new(sdk, "");
        let mut cursor = Cursor::nothing();
        start(&earlier, &mut |chunk| fold.apply(chunk).unwrap());
        catch_up(&earlier, &mut cursor, sdk, &mut |chunk| fold.apply(chunk).unwrap());
        let mut more = Vec::new();
        catch_up(&message, &mut cursor, sdk, &mut |chunk| {
            fold.apply(chunk).unwrap();
            more.push(format!("{chunk:?}"));
        });
        finish_step(&mut cursor, &mut |chunk| fold.apply(chunk).unwrap());
        if let Some(metadata) = &message.metadata {
            fold.apply(&Chunk::MessageMetadata { message_metadata: metadata.clone() }).unwrap();
        }
        prop_assert_eq!(fold.into_message(), carried(&message, sdk));
        let mut again = 0;
        catch_up(&message, &mut cursor, sdk, &mut |_| again += 1);
        prop_assert_eq!(again, 0, "nothing is sent twice after {:?}", more);
    }

    /// A client that sends its own copy, whole or trimmed, never gets a chunk that it cannot fold.
    #[test]
    fn any_client_can_fold_its_catch_up(message in message(), sdk in sdk(), kept in prop::collection::vec(any::<bool>(), 12), age in 0..6u8) {
        let mut theirs = earlier(&message, 100, age);
        let mut keep = kept.into_iter().chain(std::iter::repeat(true));
        theirs.parts.retain(|_| keep.next() == Some(true));
        let mut cursor = Cursor::of_client(&theirs, &message);
        let mut fold = Fold::onto(sdk, theirs);
        let mut refused = None;
        catch_up(&message, &mut cursor, sdk, &mut |chunk| {
            if let Err(error) = fold.apply(chunk) {
                refused = Some(error.to_string());
            }
        });
        prop_assert_eq!(refused, None);
    }
}

/// A crash took the text that a client has, and the agent later begins another one in the same words.
#[test]
fn a_lost_text_hides_nothing_that_came_later() {
    let text = |text: &str| {
        Part::Text(TextPart {
            text: text.to_owned(),
            state: Some(TextState::Done),
            ..TextPart::default()
        })
    };
    let call = |state: ToolState| {
        let mut tool = ToolPart::new("c".into(), "look");
        tool.state = state;
        tool.error_text = Some("too late".to_owned());
        Part::Tool(Box::new(tool))
    };
    let mut ours = Message::assistant("m");
    ours.parts = vec![
        Part::StepStart,
        call(ToolState::OutputError),
        Part::StepStart,
        text("Let me see."),
    ];
    for theirs in [
        vec![
            Part::StepStart,
            text("Let"),
            call(ToolState::InputAvailable),
        ],
        vec![Part::StepStart, text("Let")],
        vec![text("Let"), call(ToolState::InputAvailable)],
    ] {
        let mut message = Message::assistant("m");
        message.parts = theirs;
        let mut cursor = Cursor::of_client(&message, &ours);
        let mut fold = Fold::onto(Sdk::V6, message);
        catch_up(&ours, &mut cursor, Sdk::V6, &mut |chunk| {
            fold.apply(chunk).unwrap()
        });
        let parts = &fold.message().parts;
        let tool = parts.iter().find_map(Part::as_tool).unwrap();
        assert_eq!(tool.state, ToolState::OutputError);
        assert_eq!(parts[parts.len() - 2..], ours.parts[2..], "{parts:?}");
    }
}

/// What a reader gets of a call that it has in one state, and that is in another: the table of `replay/tools.rs`.
#[test]
fn a_call_goes_on_from_where_the_reader_has_it() {
    let call =
        |state: &str| json!({"type": "tool-pay", "toolCallId": "c", "state": state, "input": {}});
    let asked = |state: &str, approval: Value| {
        let mut part = call(state);
        part["approval"] = approval;
        part
    };
    let streaming = json!({"type": "tool-pay", "toolCallId": "c", "state": "input-streaming", "rawInput": "{\"a\""});
    let further = json!({"type": "tool-pay", "toolCallId": "c", "state": "input-streaming", "rawInput": "{\"a\":1"});
    let input = call("input-available");
    let requested = asked("approval-requested", json!({"id": "a"}));
    let answered = asked("approval-responded", json!({"id": "a", "approved": true}));
    let settled = asked("output-available", json!({"id": "a", "approved": true}));
    let again = asked("approval-requested", json!({"id": "b"}));
    let broken = json!({"type": "tool-pay", "toolCallId": "c", "state": "output-error", "errorText": "cut off",
                        "input": {"a": 1}, "rawInput": "{\"a\":1"});
    let refused = json!({"type": "tool-pay", "toolCallId": "c", "state": "output-error", "errorText": "bad", "rawInput": 1});
    // A call that is a question itself, as in dialect `adk`.
    let question = |id: &str| {
        json!({"type": "tool-adk_request_confirmation", "toolCallId": id, "state": "approval-requested", "input": {},
               "approval": {"id": id}})
    };
    let (first, second) = (question("q1"), question("q2"));

    let nothing = Value::Null;
    let cases = [
        (&nothing, &streaming, "input-start input-delta"),
        (&nothing, &input, "input-start input-available"),
        (
            &nothing,
            &requested,
            "input-start input-available approval-request",
        ),
        (
            &nothing,
            &answered,
            "input-start input-available approval-request approval-response",
        ),
        (
            &nothing,
            &settled,
            "input-start input-available approval-request approval-response output-available",
        ),
        (&streaming, &streaming, ""),
        (&streaming, &further, "input-delta"),
        (&streaming, &input, "input-available"),
        (
            &streaming,
            &settled,
            "input-available approval-request approval-response output-available",
        ),
        (&input, &input, ""),
        (&input, &streaming, ""),
        (&input, &requested, "approval-request"),
        (
            &input,
            &settled,
            "approval-request approval-response output-available",
        ),
        (&requested, &requested, ""),
        (&requested, &answered, "approval-response"),
        (&requested, &settled, "approval-response output-available"),
        (&requested, &again, "approval-request"),
        (&answered, &answered, ""),
        (&answered, &settled, "output-available"),
        (&answered, &again, "approval-request"),
        (&settled, &settled, ""),
        (&settled, &again, ""),
        (&nothing, &broken, "input-start input-delta output-error"),
        (&streaming, &broken, "input-delta output-error"),
        (&further, &broken, "output-error"),
        (&input, &broken, "output-error"),
        (&nothing, &refused, "input-start input-error"),
        (&streaming, &refused, "input-error"),
        (&input, &refused, "output-error"),
        (
            &first,
            &second,
            "output-error input-start input-available approval-request",
        ),
    ];
    for (has, there_is, chunks) in cases {
        for sdk in [Sdk::V6, Sdk::V7] {
            let expected: Vec<String> = chunks
                .split_ascii_whitespace()
                .filter(|kind| sdk == Sdk::V7 || *kind != "approval-response")
                .map(|kind| format!("tool-{kind}"))
                .collect();
            let sent = sent(has, there_is, sdk);
            assert_eq!(sent, expected, "{has} to {there_is} ({sdk:?})");
        }
    }
}

/// A client that posts after the reply went on without it shows what it had to show, and what it came up with itself.
#[test]
fn a_client_gets_the_outcome_that_counts() {
    let output = |output: Value| json!({"type": "tool-read_mail", "toolCallId": "c", "state": "output-available", "input": {}, "output": output});
    let error = json!({"type": "tool-read_mail", "toolCallId": "c", "state": "output-error", "input": {}, "errorText": "denied"});
    let open = json!({"type": "tool-read_mail", "toolCallId": "c", "state": "input-available", "input": {}});
    let (pending, result) = (
        output(json!({"pending": true})),
        output(json!({"of": "alice"})),
    );
    let done = output(json!("done"));
    for (theirs, ours, chunks) in [
        (&pending, &result, &["tool-output-available"][..]),
        (&pending, &error, &["tool-output-error"]),
        (&pending, &pending, &[]),
        (&pending, &open, &[]),
        (&done, &error, &["tool-output-error"]),
        (&error, &done, &["tool-output-available"]),
        (&error, &error, &[]),
        (&done, &open, &[]),
        // What the client has supplied may be stored in another form.
        (&done, &result, &[]),
    ] {
        let (theirs, ours) = (message_of(theirs), message_of(ours));
        let mut cursor = Cursor::of_client(&theirs, &ours);
        assert_eq!(
            caught_up(&ours, &mut cursor, Sdk::V7),
            chunks,
            "{theirs:?} to {ours:?}"
        );
        assert_eq!(
            caught_up(&ours, &mut cursor, Sdk::V7),
            [""; 0],
            "a second time"
        );
    }
}

/// The types of the chunks that a reader gets which has the one part, and is to have the other.
fn sent(has: &Value, there_is: &Value, sdk: Sdk) -> Vec<String> {
    let mut cursor = Cursor::all_of(&message_of(has), false);
    caught_up(&message_of(there_is), &mut cursor, sdk)
}

/// The types of the chunks that a reader lacks.
fn caught_up(message: &Message, cursor: &mut Cursor, sdk: Sdk) -> Vec<String> {
    let mut kinds = Vec::new();
    catch_up(message, cursor, sdk, &mut |chunk| {
        let chunk = serde_json::to_value(chunk).unwrap();
        kinds.push(chunk["type"].as_str().unwrap().to_owned());
    });
    kinds
}

/// A message with this part, or with none.
fn message_of(part: &Value) -> Message {
    let parts: Vec<&Value> = Some(part)
        .filter(|part| !part.is_null())
        .into_iter()
        .collect();
    let message = json!({"id": "m", "role": "assistant", "parts": parts});
    Message::parse(Json::from(message).raw(), &Location::Root("message")).unwrap()
}

/// A text that began empty is not cut when it grows.
#[test]
fn a_reader_of_an_empty_text_gets_all_of_it() {
    let text = |text: &str| {
        let mut message = Message::assistant("m");
        message.parts.push(Part::Text(TextPart {
            text: text.to_owned(),
            state: Some(TextState::Streaming),
            ..TextPart::default()
        }));
        message
    };
    let mut cursor = Cursor::all_of(&text(""), false);
    let mut chunks = Vec::new();
    catch_up(&text("Hello"), &mut cursor, Sdk::V6, &mut |chunk| {
        chunks.push(serde_json::to_value(chunk).unwrap());
    });
    assert_eq!(
        chunks,
        [json!({"type": "text-delta", "id": "t0", "delta": "Hello"})]
    );
}

/// What a client of a version can receive of a message.
fn carried(message: &Message, sdk: Sdk) -> Message {
    let mut message = message.clone();
    for part in &mut message.parts {
        match part {
            // The answer to an approval has no chunk in v6.
            Part::Tool(tool) if sdk == Sdk::V6 => {
                if let Some(approval) = &mut tool.approval {
                    approval.approved = None;
                    approval.reason = None;
                }
                if tool.state == ToolState::ApprovalResponded {
                    tool.state = ToolState::ApprovalRequested;
                }
            }
            _ => {}
        }
    }
    message
}

/// The message as a reader may have had it: fewer parts, shorter texts, calls that had not come so far.
fn earlier(message: &Message, cut: usize, age: u8) -> Message {
    let mut message = message.clone();
    message.parts.truncate(cut % (message.parts.len() + 1));
    if cut == 100 {
        message.parts.clear();
    }
    message.metadata = None;
    let last = message.parts.len().saturating_sub(1);
    for (index, part) in message.parts.iter_mut().enumerate() {
        match part {
            // Only the last text grows: before a step ends, or anything else comes, it is closed.
            Part::Text(text) if age > 2 && index == last => {
                let half = text.text.len() / 2;
                text.text.truncate(text.text.floor_char_boundary(half));
                text.state = Some(TextState::Streaming);
                text.provider_metadata = None;
            }
            Part::Tool(tool) if age > 0 => {
                let asked = tool.approval.is_some();
                tool.output = None;
                tool.error_text = None;
                tool.result_provider_metadata = None;
                match (age, asked) {
                    (1, true) => {
                        tool.state = ToolState::ApprovalRequested;
                        if let Some(approval) = &mut tool.approval {
                            approval.approved = None;
                            approval.reason = None;
                        }
                    }
                    _ if tool.state != ToolState::InputStreaming => {
                        tool.state = ToolState::InputAvailable;
                        tool.approval = None;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    message
}

fn sdk() -> impl Strategy<Value = Sdk> {
    prop_oneof![Just(Sdk::V6), Just(Sdk::V7)]
}

fn message() -> impl Strategy<Value = Message> {
    (
        prop::collection::vec(part(), 0..9),
        prop::option::of(Just(Json::from(
            json!({"usage": {"totalTokens": 3}, "author": "agent"}),
        ))),
    )
        .prop_map(|(parts, metadata)| {
            let mut message = Message::assistant("message-1");
            message.metadata = metadata;
            message.parts.push(Part::StepStart);
            let last = parts.len().saturating_sub(1);
            for (index, mut part) in parts.into_iter().enumerate() {
                match &mut part {
                    Part::Text(TextPart { state, .. })
                    | Part::Reasoning(ReasoningPart { state, .. })
                        if index < last =>
                    {
                        *state = Some(TextState::Done);
                    }
                    _ => {}
                }
                match &mut part {
                    Part::Reasoning(reasoning) => {
                        if reasoning.state == Some(TextState::Streaming) {
                            reasoning.provider_metadata = None;
                        }
                        reasoning.id = Some(format!("t{}", message.parts.len()));
                    }
                    Part::Tool(tool) => {
                        tool.call_id = format!("call-{index}").into();
                        if let Some(approval) = &mut tool.approval {
                            approval.id = Some(format!("approval-{index}").into());
                        }
                    }
                    // A signature comes with the last piece of a text.
                    Part::Text(text) if text.state == Some(TextState::Streaming) => {
                        text.provider_metadata = None;
                    }
                    Part::Data(data) => data.id = Some(format!("data-{index}")),
                    _ => {}
                }
                message.parts.push(part);
            }
            message
        })
}

fn part() -> impl Strategy<Value = Part> {
    let signed = prop::option::of(Just(Json::from(
        json!({"google": {"thoughtSignature": "c2ln"}}),
    )));
    let state = prop_oneof![4 => Just(TextState::Done), 1 => Just(TextState::Streaming)];
    prop_oneof![
        4 => (".{0,12}", state.clone(), signed.clone()).prop_map(|(text, state, metadata)| {
            Part::Text(TextPart { text, state: Some(state), provider_metadata: metadata, ..TextPart::default() })
        }),
        2 => (".{1,12}", state, signed.clone()).prop_map(|(text, state, metadata)| {
            Part::Reasoning(ReasoningPart { text, state: Some(state), provider_metadata: metadata, ..ReasoningPart::default() })
        }),
        6 => (tool_state(), any::<bool>(), signed, prop::option::of(Just("a title".to_owned())), any::<bool>())
            .prop_map(|((state, approval), dynamic, metadata, title, fails)| {
                Part::Tool(Box::new(tool(state, approval, dynamic, metadata, title, fails)))
            }),
        2 => Just(Part::StepStart),
        1 => Just(Part::File(FilePart {
            media_type: "image/png".into(), url: "data:image/png;base64,AAAA".into(), ..FilePart::default()
        })),
        1 => Just(Part::SourceUrl(SourceUrlPart {
            source_id: "s1".into(), url: "https://example.com".into(), title: Some("e".into()),
            provider_metadata: None, extra: Extra::default(),
        })),
        1 => Just(Part::SourceDocument(SourceDocumentPart {
            source_id: "s2".into(), media_type: "text/plain".into(), title: "t".into(), filename: Some("f".into()),
            provider_metadata: None, extra: Extra::default(),
        })),
        1 => Just(Part::Data(DataPart {
            kind: "data-image".into(), id: None, data: json!({"mediaType": "image/png"}).into(), extra: Extra::default(),
        })),
    ]
}

/// The states that a call can be in, with the approval that belongs to each.
fn tool_state() -> impl Strategy<Value = (ToolState, Option<Option<bool>>)> {
    prop_oneof![
        Just((ToolState::InputStreaming, None)),
        Just((ToolState::InputAvailable, None)),
        Just((ToolState::ApprovalRequested, Some(None))),
        any::<bool>().prop_map(|answer| (ToolState::ApprovalResponded, Some(Some(answer)))),
        Just((ToolState::OutputAvailable, None)),
        Just((ToolState::OutputAvailable, Some(Some(true)))),
        Just((ToolState::OutputError, None)),
        Just((ToolState::OutputError, Some(None))),
        Just((ToolState::OutputError, Some(Some(true)))),
        Just((ToolState::OutputDenied, Some(Some(false)))),
    ]
}

fn tool(
    state: ToolState,
    approval: Option<Option<bool>>,
    dynamic: bool,
    metadata: Option<Json>,
    title: Option<String>,
    empty: bool,
) -> ToolPart {
    let mut tool = ToolPart {
        name: "pay".into(),
        dynamic,
        title,
        call_provider_metadata: metadata,
        ..ToolPart::default()
    };
    match &state {
        ToolState::InputStreaming if empty => {}
        ToolState::InputStreaming => {
            tool.raw_input = Some(json!("{\"amount\":1").into());
            tool.input = Some(json!({"amount": 1}).into());
        }
        _ => {
            tool.input = Some(if empty {
                Json::empty()
            } else {
                json!({"amount": 10}).into()
            })
        }
    }
    match &state {
        ToolState::OutputAvailable => {
            tool.output = Some(if empty {
                Json::null()
            } else {
                json!({"paid": true}).into()
            });
        }
        ToolState::OutputError => tool.error_text = Some("no".into()),
        _ => {}
    }
    tool.approval = approval.map(|approved| ApprovalField {
        id: Some("approval-1".into()),
        approved,
        reason: approved.and_then(|approved| (!approved).then(|| "too much".to_owned())),
        extra: Extra::default(),
    });
    tool.state = state;
    tool
}
