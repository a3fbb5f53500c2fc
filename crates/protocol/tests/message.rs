//! Messages in every form that clients send: what they become, what is refused and where, and that nothing is lost.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use adk_bridge_protocol::chunk::InputEncoding;
use adk_bridge_protocol::id::ApprovalId;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::parse::{Defect, MAX_MESSAGES, MAX_PARTS, parse_messages};
use adk_bridge_protocol::message::*;
use proptest::option::of;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn one(message: Value) -> Result<Value, String> {
    let messages =
        parse_messages(Json::from(json!([message])).raw()).map_err(|error| error.to_string())?;
    Ok(serde_json::to_value(&messages[0]).unwrap())
}

fn parts(message: Value) -> Value {
    one(message).unwrap()["parts"].clone()
}

#[test]
fn a_ui_message_comes_out_as_it_came_in() {
    for message in [
        json!({"id": "m1", "role": "assistant", "parts": [
            {"type": "step-start"},
            {"type": "text", "text": "Let me look.", "state": "done", "providerMetadata": {"a": {"b": 1}}},
            {"type": "reasoning", "id": "r", "text": "hm", "state": "streaming"},
            {"type": "tool-weather", "toolCallId": "c1", "state": "approval-responded", "input": {"city": "Rome"},
             "approval": {"id": "ap1", "approved": true, "descriptor": {"x": [null]}}},
            {"type": "tool-weather", "toolCallId": "c2", "state": "input-streaming", "rawInput": "{\"ci", "input": {}},
            {"type": "dynamic-tool", "toolName": "x-y", "toolCallId": "c3", "state": "output-available", "input": null,
             "output": null, "preliminary": true, "providerExecuted": false, "title": "t", "toolMetadata": {}},
            {"type": "tool-old", "toolCallId": "c4", "state": "call", "args": [1]},
            {"type": "file", "mediaType": "image/png", "url": "blob:x", "filename": "a.png", "providerReference": {}},
            {"type": "source-url", "sourceId": "s", "url": "u", "title": "t"},
            {"type": "source-document", "sourceId": "s", "mediaType": "m", "title": "t", "filename": "f"},
            {"type": "data-weather", "id": "d", "data": [1], "transient": false},
            {"type": "hologram", "depth": {"a": null}},
        ], "metadata": {"k": [1, null]}, "createdAt": "2025-01-01"}),
        json!({"id": "", "role": "system", "parts": []}),
        json!({"id": "m", "role": "user", "parts": [{"type": "text", "text": "a"}], "content": "something else"}),
    ] {
        assert_eq!(one(message.clone()).unwrap(), message);
    }
}

#[test]
fn every_form_becomes_parts() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let png = |url: &str| json!({"type": "file", "mediaType": "image/png", "url": url});
    let url = "data:image/png;base64,+/8=";
    let user = |fields: Value| {
        let mut message = json!({"id": "m", "role": "user"});
        message
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        message
    };
    let result = |fields: Value| {
        let mut part = json!({"type": "tool-get", "toolCallId": "c"});
        part.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        part
    };
    let done = |output: Value| result(json!({"state": "output-available", "output": output}));
    let failed = |text: &str| result(json!({"state": "output-error", "errorText": text}));
    let entry = |more: Value| {
        let mut entry = json!({"type": "tool-result", "toolCallId": "c", "toolName": "get"});
        entry
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        user(json!({"content": [entry]}))
    };
    for (message, expected) in [
        (user(json!({"content": "hi"})), json!([text("hi")])),
        (user(json!({"content": ""})), json!([])),
        (
            user(json!({"content": "", "parts": [text("hi")]})),
            json!([text("hi")]),
        ),
        (
            user(json!({"content": "hi", "parts": []})),
            json!([text("hi")]),
        ),
        (
            user(json!({"content": [text("a"), text("b")]})),
            json!([text("a"), text("b")]),
        ),
        (
            user(json!({"experimental_attachments": [
                text("what is it?"), {"type": "image", "data": "-_8", "media_type": "image/png"}]})),
            json!([text("what is it?"), png(url)]),
        ),
        (
            user(json!({"content": "what?", "experimental_attachments": [
                text("what?"), {"type": "image", "data": "data:image/png;base64,+/8=", "mediaType": "image/png"}]})),
            json!([text("what?"), png(url)]),
        ),
        (
            user(json!({"parts": [text("x")], "experimental_attachments": [
                {"name": "a.png", "contentType": "image/png", "url": url}]})),
            json!([text("x"), {"type": "file", "mediaType": "image/png", "url": url, "filename": "a.png"}]),
        ),
        (
            user(json!({"content": [{"type": "image", "image": "data:image/png;base64,-_8"}]})),
            json!([png(url)]),
        ),
        (
            user(
                json!({"content": [{"type": "image", "image": "https://x/a.png", "mimeType": "image/png"}]}),
            ),
            json!([png("https://x/a.png")]),
        ),
        (
            user(json!({"parts": [{"type": "image", "data": "+/\n8=", "mediaType": "image/png"}]})),
            json!([png(url)]),
        ),
        (
            user(
                json!({"content": [{"type": "file", "data": "+/8=", "mediaType": "image/png", "filename": "f"}]}),
            ),
            json!([{"type": "file", "mediaType": "image/png", "url": url, "filename": "f"}]),
        ),
        (
            user(
                json!({"content": [{"type": "tool-call", "toolCallId": "c", "toolName": "get", "args": {"a": 1}}]}),
            ),
            json!([result(
                json!({"state": "input-available", "input": {"a": 1}})
            )]),
        ),
        (
            entry(json!({"result": {"a": 1}})),
            json!([done(json!({"a": 1}))]),
        ),
        (entry(json!({"output": null})), json!([done(json!(null))])),
        (
            entry(json!({"output": {"type": "json", "value": [1]}})),
            json!([done(json!([1]))]),
        ),
        (
            entry(json!({"output": {"type": "json", "other": 1}})),
            json!([done(json!({"type": "json", "other": 1}))]),
        ),
        (
            entry(json!({"output": {"type": "error-text", "value": "no"}})),
            json!([failed("no")]),
        ),
        (
            entry(json!({"result": {"code": 1}, "isError": true})),
            json!([failed("{\"code\":1}")]),
        ),
        (
            user(json!({"content": [{"type": "tool-result", "toolCallId": "c", "result": 1}]})),
            json!([{"type": "tool-", "toolCallId": "c", "state": "output-available", "output": 1}]),
        ),
        (
            user(json!({"content": "", "parts": [
                {"type": "tool-adk_request_confirmation", "state": "approval-responded", "approval": {"approved": true}},
                {"type": "tool-search", "state": "output-error", "error": "Network timeout", "title": null}]})),
            json!([
                {"type": "tool-adk_request_confirmation", "toolCallId": "", "state": "approval-responded",
                 "approval": {"approved": true}},
                {"type": "tool-search", "toolCallId": "", "state": "output-error", "error": "Network timeout"}]),
        ),
    ] {
        assert_eq!(parts(message.clone()), expected, "{message}");
    }
}

#[test]
fn what_is_not_understood_is_refused_by_name_and_place() {
    let user = |fields: Value| {
        let mut message = json!({"role": "user"});
        message
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        message
    };
    let part = |part: Value| user(json!({"parts": [{"type": "step-start"}, part]}));
    for (message, expected) in [
        (json!(3), "messages[0]: expected an object, found a number"),
        (json!({"parts": []}), "messages[0].role: missing"),
        (
            json!({"role": "tool", "content": []}),
            "messages[0].role: role `tool` is not understood",
        ),
        (
            json!({"role": "data", "parts": []}),
            "`data` is not understood",
        ),
        (user(json!({})), "messages[0].parts: missing"),
        (
            user(json!({"id": 1, "parts": []})),
            "messages[0].id: expected a string",
        ),
        (
            user(json!({"parts": {}})),
            "messages[0].parts: expected an array",
        ),
        (
            user(json!({"content": 1})),
            "messages[0].content: expected a string or an array",
        ),
        (
            user(json!({"content": true, "parts": [{"type": "step-start"}]})),
            "messages[0].content: expected",
        ),
        (
            user(json!({"content": [{"type": "input_audio"}]})),
            "messages[0].content[0]: entry type `input_audio`",
        ),
        (
            user(json!({"content": "", "toolInvocations": [{}]})),
            "`toolInvocations` is not understood",
        ),
        (
            user(json!({"experimental_attachments": [{"type": "video"}]})),
            "experimental_attachments[0]: entry type `video`",
        ),
        (
            user(json!({"content": [{"type": "image", "data": "?", "mediaType": "image/png"}]})),
            "content[0].data: expected base64",
        ),
        (
            user(json!({"content": [{"type": "image", "data": "aaaa"}]})),
            "content[0].mediaType: missing",
        ),
        (
            user(json!({"content": [{"type": "image", "image": "data:x"}]})),
            "content[0].url: expected base64",
        ),
        (
            user(json!({"content": [{"type": "image"}]})),
            "content[0].data: missing",
        ),
        (
            user(json!({"content": [{"type": "tool-result"}]})),
            "content[0].output: missing",
        ),
        (part(json!("x")), "messages[0].parts[1]: expected an object"),
        (part(json!({})), "messages[0].parts[1].type: missing"),
        (
            part(json!({"type": "text", "text": 1})),
            "messages[0].parts[1].text: expected a string, found a number",
        ),
        (
            part(json!({"type": "text", "text": "", "state": "x"})),
            "parts[1].state: state `x`",
        ),
        (
            part(json!({"type": "tool-a", "toolCallId": "c"})),
            "parts[1].state: missing",
        ),
        (
            part(json!({"type": "tool-a", "state": "x", "toolCallId": 1})),
            "parts[1].toolCallId: expected a string",
        ),
        (
            part(json!({"type": "tool-a", "state": "x", "approval": {"approved": "yes"}})),
            "parts[1].approval.approved: expected a boolean",
        ),
        (
            part(json!({"type": "tool-invocation", "toolInvocation": {}})),
            "part type `tool-invocation`",
        ),
        (part(json!({"type": "file"})), "parts[1].data: missing"),
        (
            part(json!({"type": "file", "url": "u"})),
            "parts[1].mediaType: missing",
        ),
    ] {
        let error = one(message.clone()).unwrap_err();
        assert!(error.contains(expected), "{message}: {error}");
    }
    assert_eq!(
        parse_messages(Json::from(json!({})).raw()).unwrap_err().at,
        "messages"
    );
}

#[test]
fn limits_are_named() {
    let many = vec![json!({"role": "user", "parts": []}); MAX_MESSAGES + 1];
    let error = parse_messages(Json::from(Value::from(many)).raw()).unwrap_err();
    assert_eq!(
        error.wrong,
        Defect::TooMany {
            found: MAX_MESSAGES + 1,
            limit: MAX_MESSAGES
        }
    );
    let parts = vec![json!({"type": "step-start"}); MAX_PARTS + 1];
    let error =
        parse_messages(Json::from(json!([{"role": "user", "parts": parts}])).raw()).unwrap_err();
    assert_eq!(
        (error.at.as_str(), error.to_string().contains("at most")),
        ("messages[0].parts", true)
    );
    let stored: Message = serde_json::from_value(json!({"role": "user", "parts": parts})).unwrap();
    assert_eq!(stored.parts.len(), MAX_PARTS + 1);
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let text = format!(
            r#"{{"role":"user","parts":[{{"type":"data-x","data":{}0{}}}]}}"#,
            open.repeat(100_000),
            close.repeat(100_000)
        );
        let error = serde_json::from_str::<Message>(&text).unwrap_err();
        assert!(error.to_string().contains("recursion limit"), "{error}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |n| n.is_finite())
            .prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(".{1,3}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn kept() -> impl Strategy<Value = Json> {
    value().prop_map(Json::from)
}

fn some_value() -> impl Strategy<Value = Option<Json>> {
    of(kept().prop_filter("null is absent", |value| !value.is_null()))
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("x[a-z]", value(), 0..2).prop_map(|map| map.into_iter().collect())
}

fn metadata() -> impl Strategy<Value = Option<Json>> {
    of(object().prop_map(|map| Value::Object(map).into()))
}

fn text_state() -> impl Strategy<Value = Option<TextState>> {
    prop::sample::select(vec![
        None,
        Some(TextState::Streaming),
        Some(TextState::Done),
    ])
}

fn tool() -> impl Strategy<Value = Part> {
    let approval = (of(".{0,3}"), of(any::<bool>()), of(".{0,3}"), object()).prop_map(
        |(id, approved, reason, extra)| ApprovalField {
            id: id.map(ApprovalId::from),
            approved,
            reason,
            extra: extra.into(),
        },
    );
    let state = prop::sample::select(vec![
        "input-streaming",
        "input-available",
        "output-error",
        "output-denied",
        "odd",
    ]);
    let encoding = prop::sample::select(vec![
        None,
        Some(InputEncoding::Json),
        Some(InputEncoding::Text),
    ]);
    (
        (".{0,3}", "[a-z-]{0,5}", any::<bool>(), state, encoding),
        (
            of(kept()),
            of(kept()),
            of(kept()),
            of(".{0,3}"),
            of(any::<bool>()),
            of(any::<bool>()),
        ),
        (
            of(".{0,3}"),
            metadata(),
            metadata(),
            metadata(),
            of(approval),
            object(),
        ),
    )
        .prop_map(|((call_id, name, dynamic, state, input_encoding), b, c)| {
            Part::Tool(Box::new(ToolPart {
                call_id: call_id.into(),
                name,
                dynamic,
                state: ToolState::from(state.to_owned()),
                input_encoding,
                input: b.0,
                raw_input: b.1,
                output: b.2,
                error_text: b.3,
                preliminary: b.4,
                provider_executed: b.5,
                title: c.0,
                tool_metadata: c.1,
                call_provider_metadata: c.2,
                result_provider_metadata: c.3,
                approval: c.4,
                extra: c.5.into(),
            }))
        })
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        (
            ".{0,9}",
            text_state(),
            metadata(),
            of(Just(json!([{}]).into())),
            object()
        )
            .prop_map(|(text, state, provider_metadata, citations, extra)| {
                Part::Text(TextPart {
                    text,
                    state,
                    provider_metadata,
                    citations,
                    extra: extra.into(),
                })
            }),
        (of(".{0,3}"), ".{0,9}", text_state(), metadata(), object()).prop_map(
            |(id, text, state, provider_metadata, extra)| {
                Part::Reasoning(ReasoningPart {
                    id,
                    text,
                    state,
                    provider_metadata,
                    extra: extra.into(),
                })
            }
        ),
        tool(),
        Just(Part::StepStart),
        (".{0,3}", ".{0,3}", of(".{0,3}"), metadata(), object()).prop_map(
            |(media_type, url, filename, provider_metadata, extra)| {
                Part::File(FilePart {
                    media_type,
                    url,
                    filename,
                    provider_metadata,
                    extra: extra.into(),
                })
            }
        ),
        (".{0,3}", ".{0,3}", of(".{0,3}"), metadata(), object()).prop_map(
            |(source_id, url, title, provider_metadata, extra)| {
                Part::SourceUrl(SourceUrlPart {
                    source_id,
                    url,
                    title,
                    provider_metadata,
                    extra: extra.into(),
                })
            }
        ),
        (".{0,3}", ".{0,3}", ".{0,3}", of(".{0,3}"), object()).prop_map(
            |(source_id, media_type, title, filename, extra)| {
                Part::SourceDocument(SourceDocumentPart {
                    source_id,
                    media_type,
                    title,
                    filename,
                    provider_metadata: None,
                    extra: extra.into(),
                })
            }
        ),
        ("data-[a-z]{0,3}", of(".{0,3}"), kept(), object()).prop_map(|(kind, id, data, extra)| {
            Part::Data(DataPart {
                kind,
                id,
                data,
                extra: extra.into(),
            })
        }),
        ("x[a-z]{0,3}", object()).prop_map(|(kind, mut fields)| {
            fields.insert("type".to_owned(), Value::String(kind));
            Part::Other(fields.into())
        }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let role = prop::sample::select(vec![Role::System, Role::User, Role::Assistant]);
    (
        ".{0,5}",
        role,
        some_value(),
        prop::collection::vec(part(), 0..6),
        object(),
    )
        .prop_map(|(id, role, metadata, parts, extra)| Message {
            id: id.into(),
            role,
            metadata,
            parts,
            extra: extra.into(),
        })
}

/// Every place in a value, so that one of them can be damaged.
fn places(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| places(item, format!("{at}/{index}"), found));
        }
        Value::Object(map) => map.iter().for_each(|(name, item)| {
            places(
                item,
                format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")),
                found,
            );
        }),
        _ => {}
    }
    found.push(at);
}

proptest! {
    #[test]
    fn what_is_written_reads_back_the_same(message in message()) {
        let text = serde_json::to_string(&message).unwrap();
        let read = serde_json::from_str::<Message>(&text).unwrap();
        prop_assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::to_value(&message).unwrap());
        prop_assert_eq!(read, message);
    }

    #[test]
    fn any_value_is_messages_or_an_error(value in value()) {
        let _ = parse_messages(Json::from(json!([value.clone()])).raw());
        let _ = parse_messages(Json::from(value).raw());
    }

    #[test]
    fn a_damaged_message_is_read_or_refused_and_never_changes_twice(
        message in message(), place in any::<prop::sample::Index>(), damage in value(),
    ) {
        let mut json = serde_json::to_value(&message).unwrap();
        let mut found = vec![];
        places(&json, String::new(), &mut found);
        *json.pointer_mut(&found[place.index(found.len())]).unwrap() = damage;
        match parse_messages(Json::from(json!([json])).raw()) {
            Ok(read) => {
                let again = serde_json::to_value(&read).unwrap();
                prop_assert_eq!(parse_messages(Json::from(again).raw()).unwrap(), read);
            }
            Err(error) => prop_assert!(error.at.starts_with("messages[0]")),
        }
    }
}
