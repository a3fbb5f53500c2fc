//! The frames of `/live`: what a client may send, the control frames of the server, and why a connection is closed.
//!
//! Everything else that the server sends is an SSE event ([`super::sse`]) or a [`BinaryFrame`].

mod binary;

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use super::frame::{self, Fields, FrameError, Trigger};
use crate::audio::MICROPHONE_SAMPLE_RATE;

pub use binary::{BinaryError, BinaryFrame, Flags, HEADER_BYTES, Kind, Sender};

/// The longest piece of speech in one frame: ten seconds at 16 kHz. Recorders send a tenth of a second.
pub const MAX_AUDIO_BYTES: usize = 320_000;

/// The longest picture: a full HD photograph at the best quality.
pub const MAX_VIDEO_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// One text frame of a client.
#[derive(Debug, Clone, PartialEq)]
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
    /// Is answered by [`ControlFrame::Pong`] with the same timestamp.
    Ping { timestamp: Value },
    /// Chooses how audio travels to the client.
    AudioConfig(AudioWire),
}

/// A chat request; `messages` is an array.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub id: Option<String>,
    pub messages: Value,
    pub trigger: Trigger,
    pub message_id: Option<String>,
    pub dialect: Option<String>,
    /// Every other field, in the order in which it came.
    pub extra: Map<String, Value>,
}

impl Message {
    /// What the client calls this request, to know it again in an error.
    pub fn request_id(&self) -> Option<&str> {
        self.extra.get(REQUEST_ID)?.as_str()
    }
}

const REQUEST_ID: &str = "requestId";

/// The output of a ClientTool, or the answer to an Approval; at least one of `result` and `status` is there.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    pub tool_call_id: String,
    pub result: Option<Value>,
    pub status: Option<ToolStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolStatus {
    Approved,
    Rejected,
    /// A word of the client's own.
    Other(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AudioAction {
    Start,
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Modality {
    Text,
    Audio,
}

/// How audio travels; JSON unless the client asks otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AudioWire {
    #[default]
    Json,
    Binary,
}

impl ClientFrame {
    /// Reads one text frame; its fields lie beside `type` or in an object `data`.
    pub fn parse(text: &str) -> Result<Self, FrameError> {
        let mut map = frame::object(text)?;
        let found = frame::take_type(&mut map)?;
        let Some((name, marker, read)) = FRAMES.iter().find(|(name, ..)| *name == found) else {
            return Err(FrameError::UnknownFrame {
                found: frame::excerpt(&found),
                known: "message, tool_result, audio_control, audio_chunk, video_frame, interrupt, modality, ping and audio_config",
            });
        };
        read(Fields {
            frame: name,
            map: flattened(map, marker),
        })
    }
}

/// What a frame that could not be understood is called by its sender, as far as it can be read.
pub fn request_id_of(text: &str) -> Option<String> {
    let map = frame::object(text).ok()?;
    let nested = map.get("data").and_then(|data| data.get(REQUEST_ID));
    let id = map.get(REQUEST_ID).or(nested)?;
    id.as_str().map(str::to_owned)
}

type Read = fn(Fields) -> Result<ClientFrame, FrameError>;

/// Each type with the field that marks the flat form: a frame that has it beside `type` is flat, whatever its `data` is.
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

/// Moves the fields of a nested frame beside the others; where both have one, the nested one counts.
fn flattened(mut map: Map<String, Value>, marker: &Option<&str>) -> Map<String, Value> {
    if marker.is_some_and(|marker| map.contains_key(marker)) {
        return map;
    }
    match map.get_mut("data") {
        Some(Value::Object(nested)) => {
            let mut nested = std::mem::take(nested);
            map.shift_remove("data");
            nested.shift_remove("type");
            for (field, value) in map {
                nested.entry(field).or_insert(value);
            }
            nested
        }
        _ => map,
    }
}

fn message(mut fields: Fields) -> Result<ClientFrame, FrameError> {
    Ok(ClientFrame::Message(Message {
        id: fields.optional_string("id")?,
        messages: fields.array("messages")?,
        trigger: fields
            .optional_word("trigger", Trigger::NAMES)?
            .unwrap_or_default(),
        message_id: fields.optional_string("messageId")?,
        dialect: fields.optional_string("dialect")?,
        extra: fields.map,
    }))
}

fn tool_result(mut fields: Fields) -> Result<ClientFrame, FrameError> {
    let tool_call_id = fields.string("toolCallId")?;
    let result = fields.take("result");
    let status = fields
        .optional_string("status")?
        .map(|status| match status.as_str() {
            "approved" => ToolStatus::Approved,
            "rejected" => ToolStatus::Rejected,
            _ => ToolStatus::Other(status),
        });
    if result.is_none() && status.is_none() {
        return Err(fields.missing("result"));
    }
    Ok(ClientFrame::ToolResult(ToolResult {
        tool_call_id,
        result,
        status,
    }))
}

fn audio_control(mut fields: Fields) -> Result<ClientFrame, FrameError> {
    let actions = [("start", AudioAction::Start), ("stop", AudioAction::Stop)];
    Ok(ClientFrame::AudioControl(fields.word("action", &actions)?))
}

fn audio_chunk(mut fields: Fields) -> Result<ClientFrame, FrameError> {
    let expected = [
        ("sampleRate", MICROPHONE_SAMPLE_RATE),
        ("channels", 1),
        ("bitDepth", 16),
    ];
    for (field, expected) in expected {
        match fields.take(field) {
            None | Some(Value::Null) => {}
            Some(Value::Number(found)) if found.as_f64() == Some(expected.into()) => {}
            Some(Value::Number(found)) => {
                return Err(FrameError::BadAudioFormat {
                    frame: fields.frame,
                    field,
                    found: found.to_string(),
                    expected: expected.to_string(),
                });
            }
            Some(other) => return Err(fields.wrong_type(field, &other, "a number")),
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

fn video_frame(mut fields: Fields) -> Result<ClientFrame, FrameError> {
    let text = fields.string("data")?;
    let media_type = fields.optional_string("mediaType")?;
    // Canvases hand out data URLs.
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

fn interrupt(mut fields: Fields) -> Result<ClientFrame, FrameError> {
    Ok(ClientFrame::Interrupt {
        reason: fields.optional_string("reason")?,
    })
}

fn modality(mut fields: Fields) -> Result<ClientFrame, FrameError> {
    let modalities = [("text", Modality::Text), ("audio", Modality::Audio)];
    Ok(ClientFrame::Modality(fields.word("modality", &modalities)?))
}

fn ping(mut fields: Fields) -> Result<ClientFrame, FrameError> {
    Ok(ClientFrame::Ping {
        timestamp: fields.take("timestamp").unwrap_or_default(),
    })
}

fn audio_config(mut fields: Fields) -> Result<ClientFrame, FrameError> {
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
pub enum ControlFrame<'a> {
    Pong {
        timestamp: Cow<'a, Value>,
    },
    Error {
        code: &'a str,
        message: Cow<'a, str>,
        /// What the refused frame was called by its sender.
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<&'a str>,
    },
    /// The model begins to speak.
    TurnStart {
        turn: u16,
    },
    /// The model has spoken; the player plays what it has.
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
    /// The server goes away; the client connects again after this time.
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
    /// Tells that a text frame could not be understood.
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

/// Why the server closes a connection; clients tell by the code whether to connect again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Close {
    pub code: u16,
    pub reason: &'static str,
    /// Whether connecting again by itself helps.
    pub reconnect: bool,
}

impl Close {
    /// The server stops or restarts.
    pub const GOING_AWAY: Self = Self::new(1001, "the server goes away", true);
    /// A frame exceeds the limits, so that it could not be read at all.
    pub const TOO_LARGE: Self = Self::new(1009, "frame too large", false);
    /// A failure of the server's own; the log has it.
    pub const INTERNAL: Self = Self::new(1011, "internal error", true);
    /// No key, or a ticket that is used or expired.
    pub const UNAUTHORIZED: Self = Self::new(4401, "not authorised: get a new ticket", false);
    /// The chat does not exist or belongs to someone else.
    pub const NOT_FOUND: Self = Self::new(4404, "no such chat", false);
    /// The client answered no ping or read nothing for too long.
    pub const TIMEOUT: Self = Self::new(4408, "no sign of life from the client", true);
    /// Another connection opened the same chat; two that reconnect by themselves would take it from each other for ever.
    pub const TAKEN_OVER: Self = Self::new(4409, "the chat was opened elsewhere", false);
    /// Too many sockets of one user, or too much audio.
    pub const TOO_MANY: Self = Self::new(4429, "too many connections or too much audio", false);

    /// Every code in use.
    pub const ALL: &[Self] = &[
        Self::GOING_AWAY,
        Self::TOO_LARGE,
        Self::INTERNAL,
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
