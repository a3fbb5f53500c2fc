//! What the JSON frames of both WebSocket endpoints share: taking out fields by name, and reporting what is wrong with
//! them.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::json::{self, TooManyValues};
use crate::base64::{self, Base64Error};
use crate::json_text::{Json, RawFields, fields_of, text_of};
use crate::message::Extra;

/// The longest text frame: a history with several photos as data URLs. An endpoint may be configured to accept less.
pub const MAX_TEXT_FRAME_BYTES: usize = 32 * 1024 * 1024;

/// Why the client asks for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
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

/// Why a frame was refused; the connection stays open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it means")]
pub enum FrameError {
    #[error("{what} of {size} bytes is longer than {limit}; send less at once")]
    TooLarge {
        what: &'static str,
        size: usize,
        limit: usize,
    },
    #[error("not a JSON object: {0}")]
    BadJson(String),
    #[error(transparent)]
    TooManyValues(TooManyValues),
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
            Self::TooManyValues(_) => "too_many_values",
            Self::UnknownFrame { .. } => "unknown_frame",
            Self::MissingField { .. } => "missing_field",
            Self::WrongType { .. } => "wrong_type",
            Self::BadValue { .. } => "bad_value",
            Self::BadBase64 { .. } => "bad_base64",
            Self::BadAudioFormat { .. } => "bad_audio_format",
        }
    }
}

/// The text of a frame, if it can be read.
pub(super) fn whole(text: &str) -> Result<Cow<'_, [u8]>, FrameError> {
    if text.len() > MAX_TEXT_FRAME_BYTES {
        return Err(FrameError::TooLarge {
            what: "frame",
            size: text.len(),
            limit: MAX_TEXT_FRAME_BYTES,
        });
    }
    let text = json::whole(text.as_bytes()).map_err(FrameError::TooManyValues)?;
    json::check_names(&text).map_err(|error| FrameError::BadJson(error.to_string()))?;
    Ok(text)
}

/// The fields of a frame, each as it is written.
pub(super) fn object(text: &[u8]) -> Result<RawFields<'_>, FrameError> {
    let raw: &RawValue =
        json::read_whole(text).map_err(|error| FrameError::BadJson(error.to_string()))?;
    fields_of(raw).ok_or_else(|| FrameError::BadJson(format!("found {}", kind(raw))))
}

/// Takes out the frame's type.
pub(super) fn take_type(map: &mut RawFields<'_>) -> Result<String, FrameError> {
    let mut fields = Fields {
        frame: "client",
        map: std::mem::take(map),
    };
    let name = fields.string("type");
    *map = fields.map;
    name
}

/// A field of a frame.
pub(super) fn find<'a>(map: &RawFields<'a>, field: &str) -> Option<&'a RawValue> {
    let mut fields = map.iter();
    fields.find_map(|(name, value)| (name == field).then_some(*value))
}

/// The fields of one frame. `null` in an optional field counts as absent.
pub(super) struct Fields<'a> {
    pub(super) frame: &'static str,
    pub(super) map: RawFields<'a>,
}

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, field: &'static str) -> Option<&'a RawValue> {
        let place = self.map.iter().position(|(name, _)| name == field)?;
        Some(self.map.remove(place).1)
    }

    /// Takes out a field unless it is `null`.
    pub(super) fn some(&mut self, field: &'static str) -> Option<&'a RawValue> {
        self.take(field).filter(|value| value.get() != "null")
    }

    /// Takes out a field that may have any value, including `null`.
    pub(super) fn json(&mut self, field: &'static str) -> Option<Json> {
        // The names of its fields were checked, and with them everything else.
        self.take(field)
            .map(|raw| Json::read_raw(raw).unwrap_or_default())
    }

    /// All fields that were not taken out.
    pub(super) fn extra(&self) -> Extra {
        Extra::read(&self.map).unwrap_or_default()
    }

    pub(super) fn string(&mut self, field: &'static str) -> Result<String, FrameError> {
        self.optional_string(field)?.ok_or(self.missing(field))
    }

    pub(super) fn optional_string(
        &mut self,
        field: &'static str,
    ) -> Result<Option<String>, FrameError> {
        match self.some(field) {
            None => Ok(None),
            Some(value) => match text_of(value) {
                Some(text) => Ok(Some(text.into_owned())),
                None => Err(self.wrong_type(field, value, "a string")),
            },
        }
    }

    pub(super) fn array(&mut self, field: &'static str) -> Result<Json, FrameError> {
        match find(&self.map, field) {
            Some(array) if array.get().starts_with('[') => Ok(self.json(field).unwrap_or_default()),
            None => Err(self.missing(field)),
            Some(null) if null.get() == "null" => Err(self.missing(field)),
            Some(other) => Err(self.wrong_type(field, other, "an array")),
        }
    }

    pub(super) fn optional_object(&mut self, field: &'static str) -> Result<Extra, FrameError> {
        match self.some(field) {
            None => Ok(Extra::default()),
            Some(value) => match fields_of(value) {
                Some(fields) => Ok(Extra::read(&fields).unwrap_or_default()),
                None => Err(self.wrong_type(field, value, "an object")),
            },
        }
    }

    /// Takes out a field whose value is one of a few words.
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

    /// Decodes base64 of at most `limit` bytes.
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
        found: &RawValue,
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

/// Shortens text from outside for an error message.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

pub(super) fn kind(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'n') => "null",
        Some(b't' | b'f') => "a boolean",
        Some(b'"') => "a string",
        Some(b'[') => "an array",
        Some(b'{') => "an object",
        _ => "a number",
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
