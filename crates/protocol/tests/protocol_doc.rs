//! PROTOCOL.md against the code: it fails when the wire changes and the document does not.
//!
//! - Tables: the rows under a heading name exactly what the code knows, with exactly its fields or values.
//! - ` ```sse ` blocks: every `data:` line is a chunk that clients accept.
//! - ` ```sse stream … ` blocks: whole streams, which fold in both versions. Where a name follows, the stream is what
//!   the reply says for the ` ```jsonl ` blocks of that name; a failing comparison prints the stream to put there.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "protocol_doc/chunks.rs"]
mod chunks;
#[path = "protocol_doc/document.rs"]
mod document;
#[path = "protocol_doc/play.rs"]
mod play;

use std::collections::BTreeSet;
use std::time::Duration;

use adk_bridge_protocol::approval::Refusal;
use adk_bridge_protocol::chunk::{Chunk, FinishReason, Sdk};
use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::message::fold::Fold;
use adk_bridge_protocol::outbox::AuditKind;
use adk_bridge_protocol::reply::{Audience, CloseReason, Input, Limits};
use adk_bridge_protocol::wire::live::{BinaryError, Close, ControlFrame, Kind, Modality};
use adk_bridge_protocol::wire::{FrameError, Trigger, ai_sdk_ws, json, live, sse};
use adk_bridge_protocol::{audio, event, message, reply, wire};
use serde_json::Value;

use chunks::every_chunk;
use document::{
    DOCUMENT, Rows, blocks, code_words, data_lines, first_column, list, rows, section, table,
    turn_of,
};
use play::{Play, play};

#[test]
fn every_chunk_with_its_fields() {
    let written = every_chunk().iter().map(type_and_fields).collect();
    assert_same_rows("Every chunk type", &table("Every chunk type"), &written);
}

#[test]
fn chunks_that_only_v7_gets() {
    let newer = |row: &&Vec<String>| row[2].contains("v7 only");
    let documented: BTreeSet<String> = rows("Every chunk type")
        .iter()
        .filter(newer)
        .map(|row| code_words(&row[0]).remove(0))
        .collect();
    let known: BTreeSet<String> = every_chunk()
        .iter()
        .filter(|chunk| chunk.since() == Sdk::V7)
        .map(|chunk| type_and_fields(chunk).0)
        .collect();
    assert_eq!(documented, known);
}

#[test]
fn every_finish_reason() {
    let known: BTreeSet<String> = [
        FinishReason::Stop,
        FinishReason::Length,
        FinishReason::ContentFilter,
        FinishReason::ToolCalls,
        FinishReason::Error,
        FinishReason::Other,
        FinishReason::Interrupted,
    ]
    .iter()
    .map(|reason| {
        // A new one does not compile here until it stands in the list above.
        match reason {
            FinishReason::Stop
            | FinishReason::Length
            | FinishReason::ContentFilter
            | FinishReason::ToolCalls
            | FinishReason::Error
            | FinishReason::Other
            | FinishReason::Interrupted => {}
        }
        word(reason)
    })
    .collect();
    assert_eq!(first_column("Finish reasons"), known);
}

#[test]
fn every_metadata_key() {
    let mut play = Play::new();
    play.feed(Input::Begin(Audience::Request));
    let event = Event::parse(
        r#"{"author":"a","modelVersion":"m","finishReason":"STOP","content":{"parts":[{"text":"x"},
                {"functionCall":{"id":"q","name":"adk_request_confirmation","args":{
                    "originalFunctionCall":{"id":"c","name":"pay"},"toolConfirmation":{"hint":"May I?"}}}}]},
            "usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"thoughtsTokenCount":1,
                "cachedContentTokenCount":1,"toolUsePromptTokenCount":1,"totalTokenCount":4},
            "groundingMetadata":{"a":1},"citationMetadata":{"a":1},"customMetadata":{"a":1},
            "actions":{"stateDelta":{"a":1}}}"#,
    )
    .unwrap();
    play.feed(Input::Event(&event));
    play.feed(Input::Close(CloseReason::Stopped));
    let metadata = play.driver.reply().message().metadata.clone();
    let metadata = metadata.unwrap().to_value();
    let mut known: BTreeSet<String> = metadata.as_object().unwrap().keys().cloned().collect();
    known.extend(
        metadata["usage"]
            .as_object()
            .unwrap()
            .keys()
            .map(|key| format!("usage.{key}")),
    );
    assert_eq!(first_column("Message metadata"), known);
}

#[test]
fn every_audit_word() {
    let kinds = [
        AuditKind::ApprovalRequested,
        AuditKind::ApprovalApproved,
        AuditKind::ApprovalDenied,
        AuditKind::ApprovalExpired,
        AuditKind::ApprovalSuperseded,
        AuditKind::ApprovalUnsupported,
        AuditKind::AnswerRefused,
        AuditKind::ToolStarted,
        AuditKind::ToolFinished,
        AuditKind::ToolFailed,
        AuditKind::ToolOutcomeUnknown,
        AuditKind::ToolRanDespiteDenial,
    ];
    for kind in kinds {
        // As above: a new word does not compile until it stands in the list.
        match kind {
            AuditKind::ApprovalRequested
            | AuditKind::ApprovalApproved
            | AuditKind::ApprovalDenied
            | AuditKind::ApprovalExpired
            | AuditKind::ApprovalSuperseded
            | AuditKind::ApprovalUnsupported
            | AuditKind::AnswerRefused
            | AuditKind::ToolStarted
            | AuditKind::ToolFinished
            | AuditKind::ToolFailed
            | AuditKind::ToolOutcomeUnknown
            | AuditKind::ToolRanDespiteDenial => {}
        }
    }
    let known = kinds.iter().map(|kind| kind.as_str().to_owned()).collect();
    assert_eq!(first_column("Audit kinds"), known);
}

#[test]
fn every_refusal() {
    let refusals = [
        Refusal::Unknown,
        Refusal::Contradicts,
        Refusal::Expired,
        Refusal::Superseded,
        Refusal::NotAClientTool,
        Refusal::AlreadySettled,
        Refusal::UnknownCall,
        Refusal::Unclear,
        Refusal::Unfit,
    ];
    for refusal in refusals {
        match refusal {
            Refusal::Unknown
            | Refusal::Contradicts
            | Refusal::Expired
            | Refusal::Superseded
            | Refusal::NotAClientTool
            | Refusal::AlreadySettled
            | Refusal::UnknownCall
            | Refusal::Unclear
            | Refusal::Unfit => {}
        }
    }
    let known = refusals.iter().map(Refusal::to_string).collect();
    assert_eq!(first_column("Refused answers"), known);
}

#[test]
fn every_client_frame_of_live() {
    let refused = live::ClientFrame::parse(r#"{"type":"?"}"#);
    let Err(FrameError::UnknownFrame { known, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(first_column("Client frames"), list(known));
}

#[test]
fn every_control_frame_of_live() {
    let frames = [
        ControlFrame::Pong {
            timestamp: Json::null(),
        },
        ControlFrame::Error {
            code: "",
            message: "".into(),
            request_id: Some(""),
        },
        ControlFrame::TurnStart { turn: 0 },
        ControlFrame::TurnEnd { turn: 0 },
        ControlFrame::Interrupted { turn: 0 },
        ControlFrame::Modality {
            modality: Modality::Text,
        },
        ControlFrame::Reconnect { after_ms: 0 },
    ];
    let known = frames
        .iter()
        .map(|frame| {
            match frame {
                ControlFrame::Pong { .. }
                | ControlFrame::Error { .. }
                | ControlFrame::TurnStart { .. }
                | ControlFrame::TurnEnd { .. }
                | ControlFrame::Interrupted { .. }
                | ControlFrame::Modality { .. }
                | ControlFrame::Reconnect { .. } => {}
            }
            type_and_fields(frame)
        })
        .collect();
    assert_same_rows("Control frames", &table("Control frames"), &known);
}

#[test]
fn every_close_code() {
    let documented: BTreeSet<(String, String, String)> = rows("Close codes")
        .iter()
        .map(|row| (row[0].clone(), row[1].clone(), row[2].clone()))
        .collect();
    let known = Close::ALL
        .iter()
        .map(|close| {
            let again = if close.reconnect { "yes" } else { "no" };
            (
                close.code.to_string(),
                close.reason.to_owned(),
                again.to_owned(),
            )
        })
        .collect();
    assert_eq!(documented, known);
}

#[test]
fn the_binary_frame() {
    let documented: BTreeSet<String> = rows("Binary frames")
        .iter()
        .map(|row| row[0].clone())
        .collect();
    let known = [Kind::Microphone, Kind::Model, Kind::Jpeg]
        .map(|kind| (kind as u8).to_string())
        .into();
    assert_eq!(documented, known);
    assert!(
        section("Binary frames").contains("`[u8 kind][u8 flags][u16 turn][u32 sequence][payload]`")
    );
}

#[test]
fn every_error_code() {
    let frame = "";
    let field = "";
    let frames = [
        FrameError::TooLarge {
            what: "",
            size: 0,
            limit: 0,
        },
        FrameError::BadJson(String::new()),
        FrameError::UnknownFrame {
            found: String::new(),
            known: "",
        },
        FrameError::MissingField { frame, field },
        FrameError::WrongType {
            frame,
            field,
            found: "",
            expected: "",
        },
        FrameError::BadValue {
            frame,
            field,
            found: String::new(),
            expected: String::new(),
        },
        FrameError::TooManyValues(json::TooManyValues),
        FrameError::BadBase64 {
            frame,
            field,
            error: adk_bridge_protocol::base64::decode("!").unwrap_err(),
        },
        FrameError::BadAudioFormat {
            frame,
            field,
            found: String::new(),
            expected: String::new(),
        },
    ];
    let mut known: BTreeSet<String> = frames.iter().map(|error| error.code().to_owned()).collect();
    let binary = [
        BinaryError::TooShort { size: 0 },
        BinaryError::UnknownKind(9),
        BinaryError::CutSample { size: 1 },
        BinaryError::TooLarge { size: 1, limit: 0 },
    ];
    known.extend(binary.iter().map(|error| error.code().to_owned()));
    assert_eq!(first_column("Error codes"), known);
}

#[test]
fn every_frame_of_the_stock_transport() {
    let refused = ai_sdk_ws::ClientFrame::parse(r#"{"type":"?"}"#).unwrap_err();
    let FrameError::UnknownFrame { known, .. } = refused.error else {
        panic!("{refused}");
    };
    let mut words = list(known);
    type Write = fn(&mut Vec<u8>);
    let writers: [Write; 5] = [
        |out| ai_sdk_ws::start(out, "r"),
        |out| ai_sdk_ws::chunk(out, "r", 0, b"{}"),
        |out| ai_sdk_ws::end(out, "r"),
        |out| ai_sdk_ws::error(out, "r", ""),
        |out| ai_sdk_ws::no_active(out, "r"),
    ];
    for write in writers {
        let mut out = Vec::new();
        write(&mut out);
        let frame: Value = serde_json::from_slice(&out).unwrap();
        words.insert(frame["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(first_column("The stock WebSocket frames"), words);
    for (trigger, _) in Trigger::NAMES {
        assert!(DOCUMENT.contains(&format!("`{trigger}`")), "{trigger}");
    }
}

#[test]
fn every_limit() {
    fn millis(duration: Duration) -> usize {
        usize::try_from(duration.as_millis()).unwrap()
    }
    fn hertz(rate: u32) -> usize {
        usize::try_from(rate).unwrap()
    }
    let Limits {
        approval_timeout,
        client_timeout,
        max_steps,
        max_answer_bytes,
    } = Limits::default();
    let known = [
        ("`approval.timeout`", millis(approval_timeout)),
        ("`tools.client_timeout`", millis(client_timeout)),
        ("`agent.max_steps`", usize::try_from(max_steps).unwrap()),
        ("`server.max_answer_bytes`", max_answer_bytes),
        ("first hold", millis(reply::FIRST_HOLD)),
        ("longest hold", millis(reply::LONGEST_HOLD)),
        ("event of an agent", event::MAX_EVENT_BYTES),
        ("messages in a request", message::parse::MAX_MESSAGES),
        ("parts of a message", message::parse::MAX_PARTS),
        (
            "event of a stream that the bridge reads",
            sse::MAX_EVENT_BYTES,
        ),
        ("name of such an event", sse::MAX_NAME_BYTES),
        ("JSON values", json::MAX_VALUES),
        ("WebSocket text frame", wire::MAX_TEXT_FRAME_BYTES),
        ("header of a binary frame", live::HEADER_BYTES),
        ("piece of speech", live::MAX_AUDIO_BYTES),
        ("picture in a frame", live::MAX_VIDEO_FRAME_BYTES),
        (
            "sample rate of a microphone",
            hertz(audio::MICROPHONE_SAMPLE_RATE),
        ),
        ("sample rate of a model", hertz(audio::MODEL_SAMPLE_RATE)),
        ("lowest sample rate", hertz(audio::MIN_SAMPLE_RATE)),
        ("highest sample rate", hertz(audio::MAX_SAMPLE_RATE)),
        ("channels", usize::from(audio::MAX_CHANNELS)),
        ("header of a WAV file", audio::WAV_HEADER_BYTES),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_string()));
    let documented: BTreeSet<(String, String)> = rows("Limits")
        .iter()
        .map(|row| (row[0].clone(), row[1].replace(' ', "")))
        .collect();
    assert_eq!(BTreeSet::from(known), documented);
}

#[test]
fn every_line_is_a_chunk_and_every_stream_folds() {
    let mut lines = 0;
    let mut streams = 0;
    let mut before: Option<Message> = None;
    for (info, block) in blocks("sse") {
        let data = data_lines(block);
        assert!(!data.is_empty(), "an sse block without data lines: {block}");
        lines += data.len();
        let chunks: Vec<Chunk<'_>> = data
            .iter()
            .filter(|line| **line != "[DONE]")
            .map(|line| Chunk::parse(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect();
        if !info.starts_with("stream") {
            continue;
        }
        streams += 1;
        assert_eq!(data.last(), Some(&"[DONE]"), "{info}");
        let prior = before.take().filter(|_| turn_of(info) > 1);
        for sdk in [Sdk::V6, Sdk::V7] {
            let mut fold = prior
                .clone()
                .map_or_else(|| Fold::new(sdk, "unnamed"), |prior| Fold::onto(sdk, prior));
            for chunk in &chunks {
                fold.apply(chunk)
                    .unwrap_or_else(|error| panic!("{info}: {error}: {chunk:?}"));
            }
            before = Some(fold.into_message());
        }
    }
    assert!(lines > 0 && streams > 0, "the document has examples");
}

#[test]
fn named_streams_are_what_the_reply_says() {
    let mut compared = 0;
    let mut outdated = String::new();
    for (info, block) in blocks("sse") {
        let words: Vec<&str> = info.split(' ').collect();
        let ["stream", name, dialect, ..] = words[..] else {
            continue;
        };
        compared += 1;
        let said = play(name, dialect.parse().unwrap(), turn_of(info));
        let said = std::str::from_utf8(&said).unwrap().replace("\n\n", "\n");
        if said.trim_end() != block.trim_end() {
            outdated.push_str(&format!("```sse {info}\n{said}```\n\n"));
        }
    }
    assert!(compared > 0, "the document has named streams");
    assert!(
        outdated.is_empty(),
        "put these into PROTOCOL.md:\n\n{outdated}"
    );
}

fn assert_same_rows(heading: &str, documented: &Rows, known: &Rows) {
    let missing: Vec<_> = known.difference(documented).collect();
    let wrong: Vec<_> = documented.difference(known).collect();
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "PROTOCOL.md, {heading}: missing {missing:#?}, to be removed {wrong:#?}"
    );
}

fn type_and_fields(value: &impl serde::Serialize) -> (String, BTreeSet<String>) {
    let Value::Object(mut fields) = serde_json::to_value(value).unwrap() else {
        panic!("chunks and frames are objects");
    };
    let kind = fields.remove("type").unwrap();
    let fields = fields.into_iter().map(|(name, _)| name).collect();
    (kind.as_str().unwrap().to_owned(), fields)
}

fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap();
    value.as_str().unwrap().to_owned()
}
