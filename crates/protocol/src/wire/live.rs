//! The frames of `/live`: what a client may send, the control frames of the server, and why a connection is closed.
//!
//! Everything else that the server sends is an SSE event ([`super::sse`]) or a [`BinaryFrame`].

mod binary;

use std::borrow::Cow;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::frame::{self, Fields, FrameError, Trigger};
use crate::audio::MICROPHONE_SAMPLE_RATE;
use crate::id::{CallId, ChatId, MessageId};
use crate::json_text::{Json, RawFields, fields_of};
use crate::message::Extra;

pub use binary::{BinaryError, BinaryFrame, Flags, HEADER_BYTES, Kind, Sender};

/// The longest piece of speech in one frame: ten seconds at 16 kHz. Recorders send a tenth of a second.
pub const MAX_AUDIO_BYTES: usize = 320_000;

/// The longest picture: a full HD photograph at the best quality.
pub const MAX_VIDEO_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// One text frame of a client.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as on the wire; PROTOCOL.md describes them"
)]
pub enum ClientFrame {
    /// A chat request.
    Message(Message),
    /// The output of a ClientTool, or the answer to an Approval.
    ToolResult(ToolResult),
    /// The user began or ended an utterance by hand.
    AudioControl(AudioAction),
    /// Microphone audio: 16-bit little-endian PCM, 16 kHz, mono.
    AudioChunk { pcm: Vec<u8> },
    /// A picture from the camera.
    VideoFrame { data: Vec<u8>, media_type: String },
    /// Stops what the model is saying.
    Interrupt { reason: Option<String> },
    /// Asks for text or for speech.
    Modality(Modality),
    /// Answered by [`ControlFrame::Pong`] with the same timestamp.
    Ping { timestamp: Json },
    /// Chooses how audio travels to the client.
    AudioConfig(AudioWire),
}

/// A chat request; `messages` is an array.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as on the wire; PROTOCOL.md describes them"
)]
pub struct Message {
    pub id: Option<ChatId>,
    pub messages: Json,
    pub trigger: Trigger,
    pub message_id: Option<MessageId>,
    pub dialect: Option<String>,
    /// All other fields, in their order.
    pub extra: Extra,
}

impl Message {
    /// The client's id for this request, which an error repeats.
    pub fn request_id(&self) -> Option<String> {
        let id = self.extra.get(REQUEST_ID)?;
        id.as_str().map(Cow::into_owned)
    }
}

const REQUEST_ID: &str = "requestId";

/// The output of a ClientTool, or the answer to an Approval; it has at least one of `result` and `status`.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as on the wire; PROTOCOL.md describes them"
)]
pub struct ToolResult {
    pub tool_call_id: CallId,
    pub result: Option<Json>,
    pub status: Option<ToolStatus>,
    /// Every other field. It must not contradict a decision.
    pub extra: Extra,
}

/// A decision in the words of the original front end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named as on the wire; PROTOCOL.md describes them"
)]
pub enum ToolStatus {
    Approved,
    Rejected,
    /// Any other word.
    Other(String),
}

/// What becomes of the microphone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named as on the wire; PROTOCOL.md describes them"
)]
pub enum AudioAction {
    Start,
    Stop,
}

/// How the agent answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(
    missing_docs,
    reason = "named as on the wire; PROTOCOL.md describes them"
)]
pub enum Modality {
    Text,
    Audio,
}

/// How audio travels; JSON unless the client asks otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    missing_docs,
    reason = "named as on the wire; PROTOCOL.md describes them"
)]
pub enum AudioWire {
    #[default]
    Json,
    Binary,
}

impl ClientFrame {
    /// Reads one text frame; its fields are next to `type` or in an object `data`.
    pub fn parse(text: &str) -> Result<Self, FrameError> {
        let text = frame::whole(text)?;
        let mut map = frame::object(&text)?;
        let found = frame::take_type(&mut map)?;
        let Some((name, marker, read)) = FRAMES.iter().find(|(name, ..)| *name == found) else {
            return Err(FrameError::UnknownFrame {
                found: frame::excerpt(&found),
                known: "message, tool_result, audio_control, audio_chunk, video_frame, interrupt, modality, ping and audio_config",
            });
        };
        check_said_once(name, &map)?;
        read(Fields {
            frame: name,
            map: flattened(map, marker),
        })
    }
}

/// The client's id for a frame that could not be read, if it can be found. Everything else is skipped: the frame may
/// have been refused for its size.
pub fn request_id_of(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow, rename = "requestId")]
        request_id: Option<&'a RawValue>,
        #[serde(borrow)]
        data: Option<&'a RawValue>,
    }
    let named: Named<'_> = serde_json::from_str(text).ok()?;
    let nested = || {
        serde_json::from_str::<Named<'_>>(named.data?.get())
            .ok()?
            .request_id
    };
    let id = named.request_id.or_else(nested)?;
    serde_json::from_str(id.get()).ok()
}

type Read = fn(Fields<'_>) -> Result<ClientFrame, FrameError>;

/// Each type with the field that marks the flat form: a frame with this field next to `type` is flat, whatever its
/// `data` is.
const FRAMES: &[(&str, Option<&str>, Read)] = &[
    ("message", Some("messages"), message),
    ("tool_result", Some("toolCallId"), tool_result),
    ("audio_control", Some("action"), audio_control),
    ("audio_chunk", Some("chunk"), audio_chunk),
    ("video_frame", None, video_frame),
    ("interrupt", Some("reason"), interrupt),
    ("modality", Some("modality"), modality),
    ("ping", Some("timestamp"), ping),
    ("audio_config", Some("wire"), audio_config),
];

/// Fields that decide about a tool, or could be meant to.
const DECISIVE: [&str; 5] = ["toolCallId", "status", "result", "confirmed", "approved"];

/// Refuses a decision about a tool that is in both places, next to `type` and in `data`.
fn check_said_once(frame: &'static str, map: &RawFields<'_>) -> Result<(), FrameError> {
    let is_in = |place: &RawFields<'_>, field: &str| {
        frame::find(place, field).is_some_and(|value| value.get() != "null")
    };
    let nested = frame::find(map, "data").and_then(fields_of);
    let nested = nested.unwrap_or_default();
    let mut flat = DECISIVE.iter().filter(|field| is_in(map, field));
    let in_data = DECISIVE.iter().find(|field| is_in(&nested, field));
    match in_data {
        Some(field) if frame == "tool_result" && flat.next().is_some() => {
            Err(FrameError::BadValue {
                frame,
                field,
                found: "in data, and others are not".into(),
                expected: "all fields next to \"type\", or all in \"data\"".into(),
            })
        }
        _ => Ok(()),
    }
}

/// Checks that other fields only repeat a decision: it belongs in `status` or in `result`.
fn check_flag(
    fields: &mut Fields<'_>,
    field: &'static str,
    status: Option<&ToolStatus>,
) -> Result<(), FrameError> {
    let Some(flag) = fields.take(field) else {
        return Ok(());
    };
    let agrees = match status {
        Some(ToolStatus::Approved) => flag.get() == "true",
        Some(ToolStatus::Rejected) => flag.get() == "false",
        Some(ToolStatus::Other(_)) | None => false,
    };
    match agrees {
        true => Ok(()),
        false => Err(FrameError::BadValue {
            frame: fields.frame,
            field,
            found: frame::excerpt(flag.get()),
            expected: "the decision as \"status\", \"approved\" or \"rejected\"".into(),
        }),
    }
}

/// Moves the fields of a nested frame to the top level; if both levels have a field, the nested one counts.
fn flattened<'a>(map: RawFields<'a>, marker: &Option<&str>) -> RawFields<'a> {
    if marker.is_some_and(|marker| frame::find(&map, marker).is_some()) {
        return map;
    }
    let Some(mut nested) = frame::find(&map, "data").and_then(fields_of) else {
        return map;
    };
    nested.retain(|(field, _)| field != "type");
    let names: HashSet<_> = nested.iter().map(|(field, _)| field.clone()).collect();
    let outer = |(field, _): &(Cow<'a, str>, _)| field != "data" && !names.contains(field);
    nested.extend(map.into_iter().filter(outer));
    nested
}

fn message(mut fields: Fields<'_>) -> Result<ClientFrame, FrameError> {
    Ok(ClientFrame::Message(Message {
        id: fields.optional_string("id")?.map(ChatId::from),
        messages: fields.array("messages")?,
        trigger: fields
            .optional_word("trigger", Trigger::NAMES)?
            .unwrap_or_default(),
        message_id: fields.optional_string("messageId")?.map(MessageId::from),
        dialect: fields.optional_string("dialect")?,
        extra: fields.extra(),
    }))
}

fn tool_result(mut fields: Fields<'_>) -> Result<ClientFrame, FrameError> {
    let tool_call_id = CallId::from(fields.string("toolCallId")?);
    let result = fields.json("result");
    let status = fields
        .optional_string("status")?
        .map(|status| match status.as_str() {
            "approved" => ToolStatus::Approved,
            "rejected" => ToolStatus::Rejected,
            _ => ToolStatus::Other(status),
        });
    check_flag(&mut fields, "confirmed", status.as_ref())?;
    check_flag(&mut fields, "approved", status.as_ref())?;
    if result.is_none() && status.is_none() {
        return Err(fields.missing("result"));
    }
    Ok(ClientFrame::ToolResult(ToolResult {
        tool_call_id,
        result,
        status,
        extra: fields.extra(),
    }))
}

fn audio_control(mut fields: Fields<'_>) -> Result<ClientFrame, FrameError> {
    let actions = [("start", AudioAction::Start), ("stop", AudioAction::Stop)];
    Ok(ClientFrame::AudioControl(fields.word("action", &actions)?))
}

fn audio_chunk(mut fields: Fields<'_>) -> Result<ClientFrame, FrameError> {
    let expected = [
        ("sampleRate", MICROPHONE_SAMPLE_RATE),
        ("channels", 1),
        ("bitDepth", 16),
    ];
    for (field, expected) in expected {
        let Some(value) = fields.some(field) else {
            continue;
        };
        match serde_json::from_str::<serde_json::Number>(value.get()) {
            Ok(found) if found.as_f64() == Some(expected.into()) => {}
            Ok(found) => {
                return Err(FrameError::BadAudioFormat {
                    frame: fields.frame,
                    field,
                    found: found.to_string(),
                    expected: expected.to_string(),
                });
            }
            Err(_) => return Err(fields.wrong_type(field, value, "a number")),
        }
    }
    let chunk = fields.string("chunk")?;
    let pcm = fields.decode("chunk", &chunk, "audio chunk", MAX_AUDIO_BYTES)?;
    if !pcm.len().is_multiple_of(2) {
        return Err(FrameError::BadAudioFormat {
            frame: fields.frame,
            field: "chunk",
            found: format!("{} bytes long", pcm.len()),
            expected: "whole samples of two bytes".into(),
        });
    }
    Ok(ClientFrame::AudioChunk { pcm })
}

fn video_frame(mut fields: Fields<'_>) -> Result<ClientFrame, FrameError> {
    let text = fields.string("data")?;
    let media_type = fields.optional_string("mediaType")?;
    // Canvases produce data URLs.
    let (media_type, text) = match text
        .strip_prefix("data:")
        .and_then(|url| url.split_once(";base64,"))
    {
        Some((named, rest)) => (media_type.unwrap_or_else(|| named.into()), rest),
        None => (media_type.unwrap_or_else(|| "image/jpeg".into()), &*text),
    };
    if !media_type.starts_with("image/") {
        return Err(FrameError::BadValue {
            frame: fields.frame,
            field: "mediaType",
            found: frame::excerpt(&media_type),
            expected: "an image, such as \"image/jpeg\"".into(),
        });
    }
    let data = fields.decode("data", text, "video frame", MAX_VIDEO_FRAME_BYTES)?;
    Ok(ClientFrame::VideoFrame { data, media_type })
}

fn interrupt(mut fields: Fields<'_>) -> Result<ClientFrame, FrameError> {
    Ok(ClientFrame::Interrupt {
        reason: fields.optional_string("reason")?,
    })
}

fn modality(mut fields: Fields<'_>) -> Result<ClientFrame, FrameError> {
    let modalities = [("text", Modality::Text), ("audio", Modality::Audio)];
    Ok(ClientFrame::Modality(fields.word("modality", &modalities)?))
}

fn ping(mut fields: Fields<'_>) -> Result<ClientFrame, FrameError> {
    Ok(ClientFrame::Ping {
        timestamp: fields.json("timestamp").unwrap_or_default(),
    })
}

fn audio_config(mut fields: Fields<'_>) -> Result<ClientFrame, FrameError> {
    let wires = [("binary", AudioWire::Binary), ("json", AudioWire::Json)];
    Ok(ClientFrame::AudioConfig(fields.word("wire", &wires)?))
}

/// A text frame of the server that is not an SSE event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
#[expect(
    missing_docs,
    reason = "named as on the wire; PROTOCOL.md describes them"
)]
pub enum ControlFrame<'a> {
    Pong {
        timestamp: Json,
    },
    Error {
        code: &'a str,
        message: Cow<'a, str>,
        /// The client's id for the refused frame.
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<&'a str>,
    },
    /// The model begins to speak.
    TurnStart {
        turn: u16,
    },
    /// The model has finished speaking; the player plays what it has.
    TurnEnd {
        turn: u16,
    },
    /// The player stops at once.
    Interrupted {
        turn: u16,
    },
    Modality {
        modality: Modality,
    },
    /// The server shuts down; the client connects again after this time.
    Reconnect {
        after_ms: u64,
    },
}

impl ControlFrame<'_> {
    /// Appends the frame.
    pub fn write(&self, out: &mut Vec<u8>) {
        frame::write_json(out, self);
    }
}

impl<'a> ControlFrame<'a> {
    /// Reports that a text frame could not be understood.
    pub fn refusal(error: &FrameError, request_id: Option<&'a str>) -> Self {
        Self::Error {
            code: error.code(),
            message: error.to_string().into(),
            request_id,
        }
    }
}

impl From<&BinaryError> for ControlFrame<'static> {
    fn from(error: &BinaryError) -> Self {
        Self::Error {
            code: error.code(),
            message: error.to_string().into(),
            request_id: None,
        }
    }
}

/// Why the server closes a connection; the code tells clients whether to connect again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Close {
    /// The code of the WebSocket protocol.
    pub code: u16,
    /// Why, for who reads the log.
    pub reason: &'static str,
    /// Whether reconnecting automatically helps.
    pub reconnect: bool,
}

impl Close {
    /// The server stops or restarts.
    pub const GOING_AWAY: Self = Self::new(1001, "the server is shutting down", true);
    /// A frame exceeds the limits and could not be read at all.
    pub const TOO_LARGE: Self = Self::new(1009, "frame too large", false);
    /// A failure of the server; see its log.
    pub const INTERNAL: Self = Self::new(1011, "internal error", true);
    /// Too much data is being sent at once, by this user or by all users.
    pub const BUSY: Self = Self::new(
        1013,
        "too much is being sent at once: try again later",
        true,
    );
    /// There is no key, or the ticket was used or has expired.
    pub const UNAUTHORIZED: Self = Self::new(4401, "not authorised: get a new ticket", false);
    /// The chat does not exist or belongs to another user.
    pub const NOT_FOUND: Self = Self::new(4404, "no such chat", false);
    /// The client answered no ping or read nothing for too long.
    pub const TIMEOUT: Self = Self::new(4408, "the client did not respond in time", true);
    /// Another connection opened the same chat. Two clients that reconnect automatically would take it from each other
    /// without end.
    pub const TAKEN_OVER: Self = Self::new(4409, "the chat was opened elsewhere", false);
    /// The user has too many sockets, or sends too much audio.
    pub const TOO_MANY: Self = Self::new(4429, "too many connections or too much audio", false);

    /// Every code in use.
    pub const ALL: &[Self] = &[
        Self::GOING_AWAY,
        Self::TOO_LARGE,
        Self::INTERNAL,
        Self::BUSY,
        Self::UNAUTHORIZED,
        Self::NOT_FOUND,
        Self::TIMEOUT,
        Self::TAKEN_OVER,
        Self::TOO_MANY,
    ];

    const fn new(code: u16, reason: &'static str, reconnect: bool) -> Self {
        Self {
            code,
            reason,
            reconnect,
        }
    }
}

#[cfg(test)]
mod tests;
