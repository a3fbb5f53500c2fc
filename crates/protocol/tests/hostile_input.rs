//! Bad input everywhere: a parser says what is wrong and where, a reply goes on, and nothing panics.

#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test reads fixtures, and one that cannot go on has failed"
)]

#[path = "hostile_input/damage.rs"]
mod damage;
#[path = "hostile_input/reply.rs"]
mod reply;

use std::sync::LazyLock;

use adk_bridge_protocol::args::ArgsWriter;
use adk_bridge_protocol::audio::PcmFormat;
use adk_bridge_protocol::base64::{self, Base64Error};
use adk_bridge_protocol::chunk::{Chunk, ChunkError, Sdk};
use adk_bridge_protocol::event::{Event, EventError, MAX_EVENT_BYTES, PartialArg};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::{parse_messages, partial_json};

use adk_bridge_protocol::wire::live::{BinaryFrame, Sender};
use adk_bridge_protocol::wire::recording::{Recording, RecordingError};
use adk_bridge_protocol::wire::sse::{SseError, SseParser};
use adk_bridge_protocol::wire::{FrameError, LineReader, ai_sdk_ws, live};
use proptest::prelude::*;
use serde_json::{Value, json};

use adk_bridge_testkit::Random;

static RECORDED: LazyLock<Vec<Value>> = LazyLock::new(damage::recorded);

/// Feeds a text to every parser, and looks at where they say that it is wrong.
fn read_by_everyone(text: &str) {
    let lines = text.matches('\n').count() + 1;
    match Event::parse(text) {
        Err(EventError::Malformed { line, column, what }) => {
            assert!(
                (1..=lines).contains(&line) && column <= text.len(),
                "{line}:{column} {what}"
            );
            assert!(!what.is_empty());
        }
        Err(EventError::TooLong { .. } | EventError::TooManyValues(_)) | Ok(_) => {}
    }
    match Chunk::parse(text) {
        Err(ChunkError::Json { line, column, .. }) => {
            assert!(
                (1..=lines).contains(&line) && column <= text.len(),
                "{line}:{column}"
            );
        }
        Err(ChunkError::Field { at, .. }) => assert!(!at.is_empty()),
        Err(_) | Ok(_) => {}
    }
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        for value in [value.clone(), json!([value])] {
            if let Err(error) = parse_messages(Json::from(value).raw()) {
                assert!(error.at.starts_with("messages"), "{error}");
            }
        }
    }
    for error in [
        live::ClientFrame::parse(text).err(),
        ai_sdk_ws::ClientFrame::parse(text)
            .err()
            .map(|refused| refused.error),
    ] {
        match error {
            Some(FrameError::BadJson(what)) => {
                assert!(
                    what.contains("at line ") || what.starts_with("found "),
                    "{what}"
                );
            }
            Some(error) => assert!(!error.to_string().is_empty()),
            None => {}
        }
    }
    for sdk in [Sdk::V6, Sdk::V7] {
        partial_json::parse(text, sdk);
    }
    let _ = PcmFormat::from_media_type(text);
    base64::to_standard(text);
    match base64::decode(text) {
        Err(Base64Error::BadByte { at, .. } | Base64Error::BadPadding { at }) => {
            assert!(at <= text.len());
        }
        Err(Base64Error::BadLength { length }) => assert!(length <= text.len()),
        Ok(bytes) => assert!(bytes.len() <= base64::decoded_len(text)),
    }
}

fn bytes_by_everyone(bytes: &[u8], cut: usize) {
    let lines = bytes
        .iter()
        .filter(|byte| **byte == b'\n' || **byte == b'\r')
        .count()
        + 1;
    let recording = Recording::new(bytes).map(|events| events.collect::<Result<Vec<_>, _>>());
    match recording {
        Err(error) | Ok(Err(error)) => match error {
            RecordingError::NotUtf8 { line }
            | RecordingError::BadArray { line, .. }
            | RecordingError::UnknownLine { line, .. } => {
                assert!((1..=lines).contains(&line), "{error}");
            }
            RecordingError::TooLong { .. } => panic!("{error}"),
        },
        Ok(Ok(events)) => assert!(events.iter().all(|event| event.line <= lines)),
    }
    let (head, tail) = bytes.split_at(cut.min(bytes.len()));
    let mut events = SseParser::new(64);
    let mut json_lines = LineReader::new(64);
    for piece in [head, tail] {
        let mut rest = piece;
        while let Some(event) = found(events.next(&mut rest), bytes) {
            assert!(event.at <= bytes.len() as u64);
        }
        let mut rest = piece;
        while let Some(line) = found(json_lines.next(&mut rest), bytes) {
            assert!(line.number <= lines as u64);
        }
    }
    let _ = (events.finish(), json_lines.finish());
    for sender in [Sender::Client, Sender::Server] {
        let _ = BinaryFrame::parse(bytes, sender);
    }
}

fn found<T>(read: Result<Option<T>, SseError>, bytes: &[u8]) -> Option<T> {
    match read {
        Ok(found) => found,
        Err(SseError::TooLong { at, .. } | SseError::NotUtf8 { at }) => {
            assert!(at <= bytes.len() as u64, "{at}");
            None
        }
        Err(SseError::Finished) => panic!("the stream has not been finished"),
    }
}

proptest! {
    #[test]
    fn any_text(text in any::<String>()) {
        read_by_everyone(&text);
        bytes_by_everyone(text.as_bytes(), text.len() / 2);
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0..300usize) {
        bytes_by_everyone(&bytes, cut);
        if let Ok(text) = std::str::from_utf8(&bytes) {
            read_by_everyone(text);
        }
    }

    #[test]
    fn json_of_some_kind(text in r#"[{}\[\]",:0-9a-fu\\ \n\-.]{0,80}"#) {
        read_by_everyone(&text);
        bytes_by_everyone(text.as_bytes(), text.len() / 3);
    }

    #[test]
    fn recorded_events_with_something_broken(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let mut event = random.pick(&RECORDED);
        damage::damage(&mut event, &RECORDED, &mut random);
        let text = event.to_string();
        read_by_everyone(&text);
        let text = damage::damage_text(&text, &mut random);
        read_by_everyone(&text);
        let cut = random.below(200_usize);
        bytes_by_everyone(format!("data: {text}\n\n").as_bytes(), cut);
    }

    /// What is written of streamed arguments stays within reason, and is JSON unless a path went back.
    #[test]
    fn streamed_arguments(args in prop::collection::vec(arg(), 0..8)) {
        let mut writer = ArgsWriter::default();
        let mut text = String::new();
        for arg in &args {
            let before = text.clone();
            writer.push(arg, &mut text);
            prop_assert!(text.starts_with(&before));
        }
        prop_assert!(text.len() < 1 << 20, "{} bytes", text.len());
        writer.finish(&mut text);
        if let Some(value) = partial_json::parse(&text, Sdk::V7) {
            prop_assert!(value.text().starts_with(['{', '[']), "{text}");
        } else {
            prop_assert_eq!(text, "");
        }
    }
}

fn arg() -> impl Strategy<Value = PartialArg<'static>> {
    let path = prop_oneof![
        r#"\$(\.[a-c]|\[[0-2]\]|\['[a-c .]'\]){0,4}"#,
        r"\$(\.[a-b]|\[9{1,5}\]){0,70}",
        any::<String>(),
    ];
    let value = prop_oneof![
        any::<String>().prop_map(Value::String),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::Bool),
        Just(Value::Null),
    ];
    (path, value, any::<Option<bool>>()).prop_map(|(path, value, more)| PartialArg {
        json_path: Some(path.into()),
        bool_value: value.as_bool(),
        string_value: value.as_str().map(|text| text.to_owned().into()),
        number_value: value.is_number().then(|| value.into()),
        will_continue: more,
    })
}

#[test]
fn a_line_of_100_megabytes() {
    let long = "x".repeat(100 * 1024 * 1024);
    let event = format!(r#"{{"content":{{"parts":[{{"text":"{long}"}}]}}}}"#);
    assert!(matches!(
        Event::parse(&event),
        Err(EventError::TooLong {
            limit: MAX_EVENT_BYTES
        })
    ));
    let mut parser = SseParser::default();
    let line = format!("data: {event}\n\n");
    let error = parser.next(&mut line.as_bytes()).unwrap_err();
    assert!(
        matches!(error, SseError::TooLong { at, .. } if at <= line.len() as u64),
        "{error}"
    );
    let error = LineReader::default()
        .next(&mut event.as_bytes())
        .unwrap_err();
    assert!(matches!(error, SseError::TooLong { .. }), "{error}");
    for error in [
        live::ClientFrame::parse(&event).unwrap_err(),
        ai_sdk_ws::ClientFrame::parse(&event).unwrap_err().error,
    ] {
        assert_eq!(error.code(), "too_large");
    }
    assert!(BinaryFrame::parse(event.as_bytes(), Sender::Client).is_err());
    // A recording may be as long; its events may not.
    let recorded = Recording::new(event.as_bytes())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert!(Event::parse(&recorded.json).is_err());
}

#[test]
fn a_million_brackets() {
    // Fewer are read, as far as they go; more are not even begun.
    let counts = [(50_000, "bad_json"), (1_000_000, "too_many_values")];
    let opens = ["[", "{\"a\":", "[{\"a\":"];
    for (open, (count, code)) in opens
        .into_iter()
        .flat_map(|open| counts.map(|it| (open, it)))
    {
        let deep = open.repeat(count);
        for text in [
            deep.clone(),
            format!(r#"{{"usageMetadata":{deep}"#),
            format!(r#"{{"content":{{"parts":[{{"functionCall":{{"args":{deep}"#),
            format!(r#"{{"type":"message","messages":{deep}"#),
            format!(r#"{{"type":"data-x","data":{deep}"#),
        ] {
            let error = Event::parse(&text).unwrap_err();
            let is_right = match error {
                EventError::Malformed { line, column, .. } => {
                    code == "bad_json" && line == 1 && column > 0
                }
                EventError::TooManyValues(_) => code == "too_many_values",
                EventError::TooLong { .. } => false,
            };
            assert!(is_right, "{error}");
            let error = Chunk::parse(&text).unwrap_err();
            assert!(
                matches!(error, ChunkError::Json { line: 1, column, .. } if column > 0),
                "{error}"
            );
            assert_eq!(live::ClientFrame::parse(&text).unwrap_err().code(), code);
            assert_eq!(
                ai_sdk_ws::ClientFrame::parse(&text).unwrap_err().code(),
                code
            );
            for sdk in [Sdk::V6, Sdk::V7] {
                partial_json::parse(&text, sdk);
            }
            let recorded: Result<Vec<_>, _> = Recording::new(text.as_bytes())
                .into_iter()
                .flatten()
                .collect();
            if let Ok(events) = recorded {
                assert!(
                    events
                        .iter()
                        .all(|event| Event::parse(&event.json).is_err())
                );
            }
        }
    }
}

/// Truncated at every byte, a recorded event is refused at its end.
#[test]
fn cut_anywhere() {
    let event = RECORDED
        .iter()
        .find(|event| event["usageMetadata"].is_object())
        .unwrap();
    let text = event.to_string();
    assert!(text.is_ascii());
    for end in 0..text.len() {
        match Event::parse(&text[..end]) {
            Err(EventError::Malformed {
                line: 1, column, ..
            }) => assert_eq!(column, end),
            other => panic!("{other:?}"),
        }
    }
}
