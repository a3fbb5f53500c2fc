//! What the JSON frames of both WebSocket doors share: taking fields out by name, and saying what is wrong with them.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::base64::{self, Base64Error};

/// The longest text frame: a history with several photos as data URLs. A door may be configured to take less.
pub const MAX_TEXT_FRAME_BYTES: usize = 32 * 1024 * 1024;

/// Why the client asks for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trigger {
    #[default]
    SubmitMessage,
    RegenerateMessage,
}

impl Trigger {
    /// Every trigger with its name on the wire.
    pub const NAMES: &[(&str, Self)] = &[
        ("submit-message", Self::SubmitMessage),
        ("regenerate-message", Self::RegenerateMessage),
    ];
}

/// Why a frame was refused; the connection stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("{what} of {size} bytes is longer than {limit}; send less at once")]
    TooLarge {
        what: &'static str,
        size: usize,
        limit: usize,
    },
    #[error("not a JSON object: {0}")]
    BadJson(String),
    #[error("unknown frame type {found:?}; known are {known}")]
    UnknownFrame { found: String, known: &'static str },
    #[error("{frame} frame without {field:?}")]
    MissingField {
        frame: &'static str,
        field: &'static str,
    },
    #[error("{field:?} of the {frame} frame is {found}; send {expected}")]
    WrongType {
        frame: &'static str,
        field: &'static str,
        found: &'static str,
        expected: &'static str,
    },
    #[error("{field:?} of the {frame} frame is {found:?}; send {expected}")]
    BadValue {
        frame: &'static str,
        field: &'static str,
        found: String,
        expected: String,
    },
    #[error("{field:?} of the {frame} frame is not base64: {error}")]
    BadBase64 {
        frame: &'static str,
        field: &'static str,
        error: Base64Error,
    },
    #[error("{field:?} of the {frame} frame is {found}; send {expected}")]
    BadAudioFormat {
        frame: &'static str,
        field: &'static str,
        found: String,
        expected: String,
    },
}

impl FrameError {
    /// Returns the stable name of this error on the wire.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::BadJson(_) => "bad_json",
            Self::UnknownFrame { .. } => "unknown_frame",
            Self::MissingField { .. } => "missing_field",
            Self::WrongType { .. } => "wrong_type",
            Self::BadValue { .. } => "bad_value",
            Self::BadBase64 { .. } => "bad_base64",
            Self::BadAudioFormat { .. } => "bad_audio_format",
        }
    }
}

/// Parses the JSON object of a text frame.
pub(super) fn object(text: &str) -> Result<Map<String, Value>, FrameError> {
    if text.len() > MAX_TEXT_FRAME_BYTES {
        return Err(FrameError::TooLarge {
            what: "frame",
            size: text.len(),
            limit: MAX_TEXT_FRAME_BYTES,
        });
    }
    let error = match super::json::read(text.as_bytes()) {
        Ok(Value::Object(map)) => return Ok(map),
        Ok(other) => format!("found {}", kind(&other)),
        Err(error) => error.to_string(),
    };
    Err(FrameError::BadJson(error))
}

/// Takes the frame's type out of it.
pub(super) fn take_type(map: &mut Map<String, Value>) -> Result<String, FrameError> {
    let mut fields = Fields {
        frame: "client",
        map: std::mem::take(map),
    };
    let name = fields.string("type");
    *map = fields.map;
    name
}

/// The fields of one frame. `null` in an optional field is taken as absent.
pub(super) struct Fields {
    pub(super) frame: &'static str,
    pub(super) map: Map<String, Value>,
}

impl Fields {
    pub(super) fn take(&mut self, field: &'static str) -> Option<Value> {
        self.map.shift_remove(field)
    }

    pub(super) fn string(&mut self, field: &'static str) -> Result<String, FrameError> {
        self.optional_string(field)?.ok_or(self.missing(field))
    }

    pub(super) fn optional_string(
        &mut self,
        field: &'static str,
    ) -> Result<Option<String>, FrameError> {
        match self.take(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong_type(field, &other, "a string")),
        }
    }

    pub(super) fn array(&mut self, field: &'static str) -> Result<Value, FrameError> {
        match self.take(field) {
            None | Some(Value::Null) => Err(self.missing(field)),
            Some(array @ Value::Array(_)) => Ok(array),
            Some(other) => Err(self.wrong_type(field, &other, "an array")),
        }
    }

    pub(super) fn optional_object<T: DeserializeOwned + Default>(
        &mut self,
        field: &'static str,
        expected: &'static str,
    ) -> Result<T, FrameError> {
        match self.take(field) {
            None | Some(Value::Null) => Ok(T::default()),
            Some(value) => {
                let error = self.wrong_type(field, &value, expected);
                serde_json::from_value(value).map_err(|_| error)
            }
        }
    }

    /// Takes one of a few words.
    pub(super) fn optional_word<T: Copy>(
        &mut self,
        field: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, FrameError> {
        let Some(found) = self.optional_string(field)? else {
            return Ok(None);
        };
        let value = words.iter().find(|(word, _)| *word == found);
        value.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let expected: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            FrameError::BadValue {
                frame: self.frame,
                field,
                found: excerpt(&found),
                expected: expected.join(" or "),
            }
        })
    }

    pub(super) fn word<T: Copy>(
        &mut self,
        field: &'static str,
        words: &[(&str, T)],
    ) -> Result<T, FrameError> {
        self.optional_word(field, words)?.ok_or(self.missing(field))
    }

    /// Decodes base64 that must not be longer than `limit` bytes.
    pub(super) fn decode(
        &self,
        field: &'static str,
        text: &str,
        what: &'static str,
        limit: usize,
    ) -> Result<Vec<u8>, FrameError> {
        let size = base64::decoded_len(text);
        if size > limit {
            return Err(FrameError::TooLarge { what, size, limit });
        }
        base64::decode(text).map_err(|error| FrameError::BadBase64 {
            frame: self.frame,
            field,
            error,
        })
    }

    pub(super) fn missing(&self, field: &'static str) -> FrameError {
        FrameError::MissingField {
            frame: self.frame,
            field,
        }
    }

    pub(super) fn wrong_type(
        &self,
        field: &'static str,
        found: &Value,
        expected: &'static str,
    ) -> FrameError {
        FrameError::WrongType {
            frame: self.frame,
            field,
            found: kind(found),
            expected,
        }
    }
}

/// Shortens what an error message repeats of its cause.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Appends `value` as JSON.
pub(super) fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    #[expect(
        clippy::expect_used,
        reason = "a vector takes every write, and frames have string keys only"
    )]
    serde_json::to_writer(out, value).expect("frames are JSON");
}
