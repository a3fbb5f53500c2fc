//! Targets of the protocol crate.

use adk_bridge_protocol::audio::PcmFormat;
use adk_bridge_protocol::base64 as encoding;
use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::form as forms;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::{Part, parse_messages, partial_json as partial};
use adk_bridge_protocol::reply::{Stance, stance_in, stance_of, stance_of_result};
use adk_bridge_protocol::wire::chunk_log::LogReader;
use adk_bridge_protocol::wire::live::{BinaryFrame, ClientFrame, Sender};
use adk_bridge_protocol::wire::sse::SseParser;
use adk_bridge_protocol::wire::{LineReader, ai_sdk_ws as ws, json as texts};
use serde_json::Value;
use serde_json::value::RawValue;

/// Small enough that a search meets it.
const MAX_EVENT: usize = 512;

pub(crate) fn sse(data: &[u8]) {
    let (size, rest) = data
        .split_first()
        .map_or((1, data), |(size, rest)| (usize::from(*size) + 1, rest));
    let pieces: Vec<&[u8]> = rest.chunks(size).collect();
    assert_eq!(
        events_of(&pieces),
        events_of(&[rest]),
        "pieces do not matter"
    );
}

/// The events of a stream, or where it cannot be read.
fn events_of(pieces: &[&[u8]]) -> Vec<String> {
    let mut parser = SseParser::new(MAX_EVENT);
    let mut found = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            match parser.next(&mut rest) {
                Ok(Some(event)) => {
                    found.push(format!("{}:{}@{}", event.name, event.data, event.at))
                }
                Ok(None) => break,
                Err(error) => {
                    found.push(error.to_string());
                    return found;
                }
            }
        }
    }
    found.push(format!("{:?}", parser.finish()));
    found
}

pub(crate) fn lines(data: &[u8]) {
    let mut reader = LineReader::new(MAX_EVENT);
    let mut rest = data;
    while let Ok(Some(line)) = reader.next(&mut rest) {
        assert!(!line.text.trim().is_empty(), "an empty line is none");
    }
    let _ = reader.finish();
}

pub(crate) fn event(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(event) = Event::parse(text) {
        let _ = (event.is_partial(), event.result(), event.parts().len());
    }
}

pub(crate) fn chunk(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(chunk) = Chunk::parse(text) else {
        return;
    };
    let mut written = Vec::new();
    chunk.write(Sdk::NEWEST, &mut written);
    let again = std::str::from_utf8(&written).map(Chunk::parse);
    assert!(
        matches!(&again, Ok(Ok(again)) if *again == chunk),
        "what is written is read again: {chunk:?}"
    );
}

pub(crate) fn chunk_log(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut reader = LogReader::default();
    for line in text.lines() {
        let _ = reader.entry(line);
    }
}

pub(crate) fn messages(data: &[u8]) {
    let Ok(raw) = serde_json::from_slice::<&RawValue>(data) else {
        return;
    };
    let _ = parse_messages(raw);
}

pub(crate) fn live_frame(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let _ = ClientFrame::parse(text);
}

pub(crate) fn live_binary(data: &[u8]) {
    for sender in [Sender::Client, Sender::Server] {
        if let Ok(frame) = BinaryFrame::parse(data, sender) {
            let mut written = Vec::new();
            frame.write(&mut written);
            assert_eq!(written, data, "a frame is written as it was read");
        }
    }
}

pub(crate) fn ai_sdk_ws(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let _ = ws::ClientFrame::parse(text);
}

pub(crate) fn json(data: &[u8]) {
    let depth = texts::depth(data);
    assert!(depth <= data.len(), "each level is a byte");
    let is_checked = texts::check(data).is_ok();
    if is_checked && depth < 128 {
        let _ = texts::read_whole::<Value>(data);
    }
    let _ = (
        texts::check_names(data),
        texts::whole(data),
        texts::scan(data),
    );
}

pub(crate) fn partial_json(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for &sdk in Sdk::ALL {
        let repaired = partial::repair(text, sdk);
        assert!(
            repaired.len() <= 2 * text.len() + 8,
            "closing takes a byte for each level"
        );
        let _ = partial::parse(text, sdk);
    }
}

pub(crate) fn base64(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(bytes) = encoding::decode(text) {
        assert_eq!(
            encoding::decode(&encoding::encode(&bytes)),
            Ok(bytes),
            "encoded bytes are the same bytes"
        );
    }
}

pub(crate) fn form(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (schema, answer) = text.split_once('\n').unwrap_or((text, "null"));
    if let (Ok(schema), Ok(answer)) = (
        serde_json::from_str(schema),
        serde_json::from_str::<Value>(answer),
    ) {
        let _ = forms::problem(&schema, &answer);
    }
}

pub(crate) fn media_type(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(format) = PcmFormat::from_media_type(text) {
        assert!(
            format.sample_rate() > 0 && format.channels() > 0,
            "silence has no format"
        );
    }
}

pub(crate) fn approval_words(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // Refused wherever answers come in.
    if texts::check_names(data).is_err() {
        return;
    }
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return;
    };
    if let Ok(result) = Json::parse(text) {
        let is_yes = stance_of(&result) == Stance::Clear(true);
        assert!(!is_yes || says(&value, &YES), "nobody has said yes: {text}");
        assert!(
            !is_yes || !says(&value, &NO),
            "somebody has said no: {text}"
        );
    }
    let message = format!("[{{\"id\":\"m\",\"role\":\"assistant\",\"parts\":[{text}]}}]");
    let Ok(messages) = RawValue::from_string(message) else {
        return;
    };
    let parts = parse_messages(&messages).unwrap_or_default();
    let tools = parts
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            Part::Tool(tool) => Some(tool),
            _ => None,
        });
    for tool in tools {
        for stance in [stance_in(tool), stance_of_result(tool)] {
            let is_yes = stance == Stance::Clear(true);
            assert!(!is_yes || says(&value, &YES), "nobody has said yes: {text}");
        }
    }
}

/// Words and values of which each says yes, or no.
const YES: [(&str, &str); 5] = [
    ("approved", "true"),
    ("confirmed", "true"),
    ("rejected", "false"),
    ("denied", "false"),
    ("status", "\"approved\""),
];
const NO: [(&str, &str); 5] = [
    ("approved", "false"),
    ("confirmed", "false"),
    ("rejected", "true"),
    ("denied", "true"),
    ("status", "\"rejected\""),
];

/// Whether one of these stands in an object, or in one of the fields that repeat an answer.
fn says(value: &Value, words: &[(&str, &str)]) -> bool {
    let repeats = ["result", "output", "value", "approval", "data"];
    let Value::Object(fields) = value else {
        return false;
    };
    fields.iter().any(|(name, value)| {
        words.contains(&(name.as_str(), value.to_string().as_str()))
            || repeats.contains(&name.as_str()) && says(value, words)
    })
}
