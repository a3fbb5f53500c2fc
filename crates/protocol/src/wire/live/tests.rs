//! The frames of `/live`: how flat and nested ones are read, and how refusals are worded.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

#[test]
fn reads_frames_flat_and_nested() {
    let text = |text: &str| Some(text.to_owned());
    let cases = [
        (
            json!({"type": "message", "id": "c", "messages": [1], "trigger": "regenerate-message", "messageId": "m", "dialect": "adk", "z": 1, "a": {}}),
            ClientFrame::Message(Message {
                id: Some("c".into()),
                messages: json!([1]).into(),
                trigger: Trigger::RegenerateMessage,
                message_id: Some("m".into()),
                dialect: text("adk"),
                extra: object(json!({"z": 1, "a": {}})).into(),
            }),
        ),
        (
            json!({"type": "message", "messages": [], "messageId": null}),
            ClientFrame::Message(Message {
                id: None,
                messages: json!([]).into(),
                trigger: Trigger::SubmitMessage,
                message_id: None,
                dialect: None,
                extra: Extra::default(),
            }),
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t", "result": null, "status": "rejected"}),
            ClientFrame::ToolResult(ToolResult {
                extra: Extra::default(),
                tool_call_id: "t".into(),
                result: Some(Json::null()),
                status: Some(ToolStatus::Rejected),
            }),
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t", "status": "approved"}),
            ClientFrame::ToolResult(ToolResult {
                extra: Extra::default(),
                tool_call_id: "t".into(),
                result: None,
                status: Some(ToolStatus::Approved),
            }),
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t", "result": {"ok": true}, "status": "done"}),
            ClientFrame::ToolResult(ToolResult {
                extra: Extra::default(),
                tool_call_id: "t".into(),
                result: Some(json!({"ok": true}).into()),
                status: Some(ToolStatus::Other("done".into())),
            }),
        ),
        (
            json!({"type": "audio_control", "action": "start"}),
            ClientFrame::AudioControl(AudioAction::Start),
        ),
        (
            json!({"type": "audio_control", "action": "stop"}),
            ClientFrame::AudioControl(AudioAction::Stop),
        ),
        (
            json!({"type": "audio_chunk", "chunk": "AQID-w"}),
            ClientFrame::AudioChunk {
                pcm: vec![1, 2, 3, 251],
            },
        ),
        (
            json!({"type": "audio_chunk", "chunk": "AQI=", "sampleRate": 16000, "channels": 1, "bitDepth": 16.0}),
            ClientFrame::AudioChunk { pcm: vec![1, 2] },
        ),
        (
            json!({"type": "video_frame", "data": "/9j/", "mediaType": "image/png"}),
            ClientFrame::VideoFrame {
                data: vec![0xff, 0xd8, 0xff],
                media_type: "image/png".into(),
            },
        ),
        (
            json!({"type": "video_frame", "data": "data:image/webp;base64,/9j/"}),
            ClientFrame::VideoFrame {
                data: vec![0xff, 0xd8, 0xff],
                media_type: "image/webp".into(),
            },
        ),
        (
            json!({"type": "video_frame", "data": "/9j/"}),
            ClientFrame::VideoFrame {
                data: vec![0xff, 0xd8, 0xff],
                media_type: "image/jpeg".into(),
            },
        ),
        (
            json!({"type": "interrupt"}),
            ClientFrame::Interrupt { reason: None },
        ),
        (
            json!({"type": "interrupt", "reason": "user"}),
            ClientFrame::Interrupt {
                reason: text("user"),
            },
        ),
        (
            json!({"type": "modality", "modality": "audio"}),
            ClientFrame::Modality(Modality::Audio),
        ),
        (
            json!({"type": "modality", "modality": "text"}),
            ClientFrame::Modality(Modality::Text),
        ),
        (
            json!({"type": "ping", "timestamp": {"t": 1}}),
            ClientFrame::Ping {
                timestamp: json!({"t": 1}).into(),
            },
        ),
        (
            json!({"type": "ping"}),
            ClientFrame::Ping {
                timestamp: Json::null(),
            },
        ),
        (
            json!({"type": "audio_config", "wire": "binary"}),
            ClientFrame::AudioConfig(AudioWire::Binary),
        ),
        (
            json!({"type": "audio_config", "wire": "json"}),
            ClientFrame::AudioConfig(AudioWire::Json),
        ),
    ];
    for (flat, expected) in cases {
        let nested = nested(&flat);
        assert_eq!(
            ClientFrame::parse(&flat.to_string()),
            Ok(expected.clone()),
            "{flat}"
        );
        assert_eq!(
            ClientFrame::parse(&nested.to_string()),
            Ok(expected),
            "{nested}"
        );
    }
}

#[test]
fn a_field_called_data_does_not_make_a_flat_message_nested() {
    let frame = json!({"type": "message", "messages": [], "data": {"messages": [1], "x": 1}});
    let Ok(ClientFrame::Message(message)) = ClientFrame::parse(&frame.to_string()) else {
        panic!("{frame}");
    };
    assert_eq!(message.messages, json!([]));
    assert_eq!(
        Value::Object(message.extra.map()),
        json!({"data": {"messages": [1], "x": 1}})
    );
}

#[test]
fn fields_next_to_a_nested_payload_count() {
    let frame = json!({"type": "message", "dialect": "adk", "id": "outer", "data": {"messages": [], "id": "inner", "type": "x"}});
    let Ok(ClientFrame::Message(message)) = ClientFrame::parse(&frame.to_string()) else {
        panic!("{frame}");
    };
    assert_eq!(message.dialect.as_deref(), Some("adk"));
    assert_eq!(message.id, Some("inner".into()));
    assert!(message.extra.is_empty());
}

#[test]
fn names_what_is_wrong() {
    let long = "A".repeat(MAX_AUDIO_BYTES * 2);
    let picture = "A".repeat(MAX_VIDEO_FRAME_BYTES * 2);
    let cases = [
        (json!("x"), "bad_json", "not a JSON object: found a string"),
        (
            json!({"type": "shout"}),
            "unknown_frame",
            "unknown frame type \"shout\"; known are message, tool_result,",
        ),
        (
            json!({"messages": []}),
            "missing_field",
            "client frame without \"type\"",
        ),
        (
            json!({"type": null}),
            "missing_field",
            "client frame without \"type\"",
        ),
        (
            json!({"type": "message"}),
            "missing_field",
            "message frame without \"messages\"",
        ),
        (
            json!({"type": "message", "messages": "x"}),
            "wrong_type",
            "\"messages\" of the message frame is a string; send an array",
        ),
        (
            json!({"type": "message", "messages": [], "trigger": "poke"}),
            "bad_value",
            "\"trigger\" of the message frame is \"poke\"; send \"submit-message\" or \"regenerate-message\"",
        ),
        (
            json!({"type": "message", "messages": [], "id": 5}),
            "wrong_type",
            "\"id\" of the message frame is a number",
        ),
        (
            json!({"type": "tool_result", "result": 1}),
            "missing_field",
            "tool_result frame without \"toolCallId\"",
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t"}),
            "missing_field",
            "tool_result frame without \"result\"",
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t", "status": "approved", "data": {"status": "rejected"}}),
            "bad_value",
            "\"status\" of the tool_result frame is \"in data, and others are not\"",
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t", "status": "approved", "data": {"status": "approved"}}),
            "bad_value",
            "\"status\" of the tool_result frame is \"in data, and others are not\"",
        ),
        (
            json!({"type": "tool_result", "status": "rejected", "data": {"toolCallId": "t", "status": "approved"}}),
            "bad_value",
            "\"toolCallId\" of the tool_result frame is \"in data, and others are not\"",
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t", "status": "approved", "data": {"result": {"confirmed": false}}}),
            "bad_value",
            "\"result\" of the tool_result frame is \"in data, and others are not\"",
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t", "result": {"confirmed": true}, "data": {"status": "rejected"}}),
            "bad_value",
            "\"status\" of the tool_result frame is \"in data, and others are not\"",
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t", "status": "approved", "data": {"confirmed": false}}),
            "bad_value",
            "\"confirmed\" of the tool_result frame is \"in data, and others are not\"",
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t", "status": "approved", "confirmed": false}),
            "bad_value",
            "\"confirmed\" of the tool_result frame is \"false\"; send the decision as",
        ),
        (
            json!({"type": "tool_result", "data": {"toolCallId": "t", "status": "approved", "approved": false}}),
            "bad_value",
            "\"approved\" of the tool_result frame is \"false\"; send the decision as",
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t", "status": "rejected", "approved": true}),
            "bad_value",
            "\"approved\" of the tool_result frame is \"true\"; send the decision as",
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t", "result": {"confirmed": true}, "approved": null}),
            "bad_value",
            "\"approved\" of the tool_result frame is \"null\"; send the decision as",
        ),
        (
            json!({"type": "tool_result", "toolCallId": "t", "status": true}),
            "wrong_type",
            "\"status\" of the tool_result frame is a boolean; send a string",
        ),
        (
            json!({"type": "audio_control", "action": "pause"}),
            "bad_value",
            "\"action\" of the audio_control frame is \"pause\"; send \"start\" or \"stop\"",
        ),
        (
            json!({"type": "audio_chunk"}),
            "missing_field",
            "audio_chunk frame without \"chunk\"",
        ),
        (
            json!({"type": "audio_chunk", "chunk": "A A="}),
            "bad_base64",
            "\"chunk\" of the audio_chunk frame is not base64: byte 0x20 at position 1",
        ),
        (
            json!({"type": "audio_chunk", "chunk": "AQ=="}),
            "bad_audio_format",
            "\"chunk\" of the audio_chunk frame is 1 bytes long; send whole samples",
        ),
        (
            json!({"type": "audio_chunk", "chunk": "", "sampleRate": 44100}),
            "bad_audio_format",
            "\"sampleRate\" of the audio_chunk frame is 44100; send 16000",
        ),
        (
            json!({"type": "audio_chunk", "chunk": "", "channels": 2}),
            "bad_audio_format",
            "\"channels\" of the audio_chunk frame is 2; send 1",
        ),
        (
            json!({"type": "audio_chunk", "chunk": "", "bitDepth": 24}),
            "bad_audio_format",
            "\"bitDepth\" of the audio_chunk frame is 24; send 16",
        ),
        (
            json!({"type": "audio_chunk", "chunk": "", "bitDepth": "16"}),
            "wrong_type",
            "\"bitDepth\" of the audio_chunk frame is a string; send a number",
        ),
        (
            json!({"type": "audio_chunk", "chunk": long}),
            "too_large",
            "audio chunk of 480000 bytes is longer than 320000",
        ),
        (
            json!({"type": "video_frame"}),
            "missing_field",
            "video_frame frame without \"data\"",
        ),
        (
            json!({"type": "video_frame", "data": "*"}),
            "bad_base64",
            "\"data\" of the video_frame frame",
        ),
        (
            json!({"type": "video_frame", "data": "", "mediaType": "text/html"}),
            "bad_value",
            "\"mediaType\" of the video_frame frame is \"text/html\"; send an image",
        ),
        (
            json!({"type": "video_frame", "data": picture}),
            "too_large",
            "video frame of",
        ),
        (
            json!({"type": "modality", "modality": "smell"}),
            "bad_value",
            "\"modality\" of the modality frame is \"smell\"",
        ),
        (
            json!({"type": "modality"}),
            "missing_field",
            "modality frame without \"modality\"",
        ),
        (
            json!({"type": "audio_config", "wire": true}),
            "wrong_type",
            "\"wire\" of the audio_config frame is a boolean",
        ),
    ];
    for (frame, code, message) in cases {
        let error = ClientFrame::parse(&frame.to_string()).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().starts_with(message), "{error}");
    }
    let error = ClientFrame::parse("{\"type\":").unwrap_err();
    assert_eq!(error.code(), "bad_json");
    let error = ClientFrame::parse(&" ".repeat(frame::MAX_TEXT_FRAME_BYTES + 1)).unwrap_err();
    assert_eq!(error.code(), "too_large");
    let deep = format!("{{\"type\":\"ping\",\"timestamp\":{}", "[".repeat(100_000));
    assert_eq!(ClientFrame::parse(&deep).unwrap_err().code(), "bad_json");
    let shout = json!({"type": "x".repeat(10_000)}).to_string();
    assert!(ClientFrame::parse(&shout).unwrap_err().to_string().len() < 300);
}

#[test]
fn writes_control_frames() {
    let error = ClientFrame::parse("{\"type\":\"ping").unwrap_err();
    let short = BinaryFrame::parse(&[], Sender::Client).unwrap_err();
    let cases = [
        (
            ControlFrame::Pong {
                timestamp: json!(12.5).into(),
            },
            json!({"type": "pong", "timestamp": 12.5}),
        ),
        (
            ControlFrame::refusal(&error, None),
            json!({"type": "error", "code": "bad_json", "message": error.to_string()}),
        ),
        (
            ControlFrame::refusal(&error, Some("r1")),
            json!({"type": "error", "code": "bad_json", "message": error.to_string(), "requestId": "r1"}),
        ),
        (
            ControlFrame::from(&short),
            json!({"type": "error", "code": "bad_binary", "message": short.to_string()}),
        ),
        (
            ControlFrame::TurnStart { turn: 1 },
            json!({"type": "turn-start", "turn": 1}),
        ),
        (
            ControlFrame::TurnEnd { turn: 2 },
            json!({"type": "turn-end", "turn": 2}),
        ),
        (
            ControlFrame::Interrupted { turn: 3 },
            json!({"type": "interrupted", "turn": 3}),
        ),
        (
            ControlFrame::Modality {
                modality: Modality::Audio,
            },
            json!({"type": "modality", "modality": "audio"}),
        ),
        (
            ControlFrame::Reconnect { after_ms: 500 },
            json!({"type": "reconnect", "afterMs": 500}),
        ),
    ];
    for (frame, expected) in cases {
        let mut out = Vec::new();
        frame.write(&mut out);
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expected);
        assert!(out.starts_with(b"{\"type\":\""));
    }
}

#[test]
fn close_codes_are_distinct_and_fit() {
    let mut codes: Vec<u16> = Close::ALL.iter().map(|close| close.code).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), Close::ALL.len());
    assert_eq!(Close::TAKEN_OVER.code, 4409);
    for close in Close::ALL {
        // A close frame holds 125 bytes, two of them the code.
        assert!(close.reason.len() <= 123);
    }
}

proptest! {
    #[test]
    fn any_json_is_read_or_refused_and_nesting_does_not_matter(
        name in prop_oneof![
            prop::sample::select(FRAMES.iter().map(|frame| frame.0).collect::<Vec<_>>()).prop_map(str::to_owned),
            ".{0,6}",
        ],
        fields in proptest::collection::hash_map(field(), json(), 0..6),
    ) {
        let mut flat = Map::from_iter(fields);
        flat.insert("type".into(), json!(name));
        let flat = Value::Object(flat);
        let read = ClientFrame::parse(&flat.to_string());
        // A payload with an object called `data` cannot be distinguished from a nested one.
        if !flat["data"].is_object() {
            prop_assert_eq!(ClientFrame::parse(&nested(&flat).to_string()), read);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[{}\\[\\]\":,a-z0-9\u{e9}]{0,40}") {
        if let Err(error) = ClientFrame::parse(&text) {
            prop_assert!(!error.code().is_empty());
        }
    }
}

fn field() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "id",
        "messages",
        "trigger",
        "messageId",
        "dialect",
        "toolCallId",
        "result",
        "status",
        "action",
        "chunk",
        "sampleRate",
        "channels",
        "bitDepth",
        "data",
        "mediaType",
        "reason",
        "modality",
        "timestamp",
        "wire",
        "extra",
    ])
    .prop_map(str::to_owned)
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![Just(16_000), Just(1), Just(16), any::<i64>()].prop_map(Value::from),
        prop_oneof![
            Just("start"),
            Just("text"),
            Just("binary"),
            Just("submit-message"),
            Just("rejected"),
            Just("AQI="),
            Just("AQ"),
            Just("image/png"),
        ]
        .prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map(".{0,4}", inner, 0..4)
                .prop_map(|map| Value::Object(Map::from_iter(map))),
        ]
    })
}

/// The same frame with its payload under `data`.
fn nested(flat: &Value) -> Value {
    let mut payload = object(flat.clone());
    let name = payload.shift_remove("type").unwrap();
    json!({"type": name, "data": payload})
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other}"),
    }
}
