//! What a front end receives: the chunks of an AI SDK UI message stream, with exactly the fields that its schema knows.
//!
//! Optional fields are absent, never `null`: every version of the client refuses `null` in a typed field. Fields whose
//! type is "unknown" (`input`, `output`, `data`, `messageMetadata`) are required where the table of the protocol says so
//! and carry `null` for "nothing".

mod schema;

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;
use serde_with::skip_serializing_none;
use thiserror::Error;

/// The version of the AI SDK that a client runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Sdk {
    /// `ai` 6, and every client that did not say otherwise.
    #[default]
    V6,
    /// `ai` 7.
    V7,
}

/// A string that is borrowed from where it came from for as long as it can be.
pub type Str<'a> = Cow<'a, str>;
/// A JSON value that is borrowed from where it came from for as long as it can be.
pub type Json<'a> = Cow<'a, Value>;

/// One chunk of a UI message stream.
///
/// `Deserialize` reads `null` as absent; [`Chunk::parse`] is as strict as a client.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum Chunk<'a> {
    /// Opens a turn and names the message that it belongs to.
    Start {
        message_id: Option<Str<'a>>,
        message_metadata: Option<Json<'a>>,
    },
    /// Ends a turn.
    Finish {
        finish_reason: Option<FinishReason>,
        message_metadata: Option<Json<'a>>,
    },
    /// Ends a turn that was stopped.
    Abort {
        reason: Option<Str<'a>>,
    },
    /// Ends a turn that failed.
    Error {
        error_text: Str<'a>,
    },
    /// Merges into the message's metadata.
    MessageMetadata {
        message_metadata: Json<'a>,
    },
    StartStep,
    FinishStep,
    TextStart {
        id: Str<'a>,
        provider_metadata: Option<Json<'a>>,
    },
    TextDelta {
        id: Str<'a>,
        delta: Str<'a>,
        provider_metadata: Option<Json<'a>>,
    },
    TextEnd {
        id: Str<'a>,
        provider_metadata: Option<Json<'a>>,
        /// Known to v7 only.
        citations: Option<Json<'a>>,
    },
    ReasoningStart {
        id: Str<'a>,
        provider_metadata: Option<Json<'a>>,
    },
    ReasoningDelta {
        id: Str<'a>,
        delta: Str<'a>,
        provider_metadata: Option<Json<'a>>,
    },
    ReasoningEnd {
        id: Str<'a>,
        provider_metadata: Option<Json<'a>>,
    },
    ToolInputStart {
        tool_call_id: Str<'a>,
        tool_name: Str<'a>,
        input_encoding: Option<InputEncoding>,
        provider_executed: Option<bool>,
        provider_metadata: Option<Json<'a>>,
        tool_metadata: Option<Json<'a>>,
        dynamic: Option<bool>,
        title: Option<Str<'a>>,
    },
    ToolInputDelta {
        tool_call_id: Str<'a>,
        input_text_delta: Str<'a>,
    },
    ToolInputAvailable {
        tool_call_id: Str<'a>,
        tool_name: Str<'a>,
        input: Json<'a>,
        provider_executed: Option<bool>,
        provider_metadata: Option<Json<'a>>,
        tool_metadata: Option<Json<'a>>,
        dynamic: Option<bool>,
        title: Option<Str<'a>>,
    },
    ToolInputError {
        tool_call_id: Str<'a>,
        tool_name: Str<'a>,
        input: Json<'a>,
        error_text: Str<'a>,
        provider_executed: Option<bool>,
        provider_metadata: Option<Json<'a>>,
        tool_metadata: Option<Json<'a>>,
        dynamic: Option<bool>,
        title: Option<Str<'a>>,
    },
    ToolApprovalRequest {
        approval_id: Str<'a>,
        tool_call_id: Str<'a>,
        approval_descriptor: Option<Json<'a>>,
        /// A `null` here is a value of its own: the client tells it from an absent field.
        #[serde(default, deserialize_with = "present")]
        input_schema_input: Option<Json<'a>>,
        signature: Option<Str<'a>>,
        /// Known to v7 only.
        reason: Option<Str<'a>>,
        /// Known to v7 only.
        is_automatic: Option<bool>,
    },
    /// Known to v7 only.
    ToolApprovalResponse {
        approval_id: Str<'a>,
        approved: bool,
        reason: Option<Str<'a>>,
        provider_executed: Option<bool>,
        provider_metadata: Option<Json<'a>>,
    },
    ToolOutputAvailable {
        tool_call_id: Str<'a>,
        output: Json<'a>,
        provider_executed: Option<bool>,
        provider_metadata: Option<Json<'a>>,
        tool_metadata: Option<Json<'a>>,
        dynamic: Option<bool>,
        preliminary: Option<bool>,
    },
    ToolOutputError {
        tool_call_id: Str<'a>,
        error_text: Str<'a>,
        provider_executed: Option<bool>,
        provider_metadata: Option<Json<'a>>,
        tool_metadata: Option<Json<'a>>,
        dynamic: Option<bool>,
    },
    ToolOutputDenied {
        tool_call_id: Str<'a>,
    },
    SourceUrl {
        source_id: Str<'a>,
        url: Str<'a>,
        title: Option<Str<'a>>,
        provider_metadata: Option<Json<'a>>,
    },
    SourceDocument {
        source_id: Str<'a>,
        media_type: Str<'a>,
        title: Str<'a>,
        filename: Option<Str<'a>>,
        provider_metadata: Option<Json<'a>>,
    },
    File {
        url: Str<'a>,
        media_type: Str<'a>,
        provider_metadata: Option<Json<'a>>,
    },
    /// Known to v7 only.
    Custom {
        kind: Str<'a>,
        provider_metadata: Option<Json<'a>>,
    },
    /// Known to v7 only.
    ReasoningFile {
        url: Str<'a>,
        media_type: Str<'a>,
        provider_metadata: Option<Json<'a>>,
    },
    /// Known to v7 only: takes back the parts of the current step.
    ResetStep,
    /// Known to v7 only, and experimental there.
    SteeringMessage {
        id: Str<'a>,
        parts: Json<'a>,
    },
    /// `data-NAME`: a part of the application's own.
    #[serde(untagged)]
    Data(DataChunk<'a>),
}

/// A `data-NAME` chunk.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataChunk<'a> {
    /// The whole type, `data-` included.
    #[serde(rename = "type", deserialize_with = "data_type")]
    pub kind: Str<'a>,
    pub id: Option<Str<'a>>,
    pub data: Json<'a>,
    /// A transient chunk reaches `onData` and leaves no part behind.
    pub transient: Option<bool>,
}

/// How the text of a streamed tool input is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputEncoding {
    Json,
    Text,
}

/// Why a turn ended, in the AI SDK's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FinishReason {
    Stop,
    Length,
    ContentFilter,
    ToolCalls,
    Error,
    Other,
    /// Known to v7 only; a v6 client is told `other`.
    Interrupted,
}

/// Why a text is no chunk.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChunkError {
    #[error("a chunk must be JSON: {what} at line {line} column {column}")]
    Json {
        what: String,
        line: usize,
        column: usize,
    },
    #[error("a chunk must be a JSON object with a string in `type`")]
    NoType,
    #[error("chunk type `{0}` is unknown; types of your own start with `data-`")]
    UnknownType(String),
    #[error("`{at}` of chunk `{kind}` must be {expected}")]
    Field {
        kind: String,
        at: String,
        expected: &'static str,
    },
    /// The schema and the types disagree; a property test holds that they do not.
    #[error("chunk `{kind}` cannot be read: {what}")]
    Form { kind: String, what: String },
}

impl Chunk<'_> {
    /// Reads a chunk as strictly as the newest clients do: every field of the protocol must have its type (`null` is
    /// none of them), fields that it does not know are ignored.
    ///
    /// A lone surrogate (`"\ud800"`), which JavaScript tolerates, and nesting of more than 128 levels are refused.
    pub fn parse(json: &str) -> Result<Chunk<'static>, ChunkError> {
        let value: Value = serde_json::from_str(json).map_err(|error| ChunkError::Json {
            what: error.to_string(),
            line: error.line(),
            column: error.column(),
        })?;
        let object = value.as_object().ok_or(ChunkError::NoType)?;
        let kind = object
            .get("type")
            .and_then(Value::as_str)
            .ok_or(ChunkError::NoType)?
            .to_owned();
        schema::check(&kind, object)?;
        Chunk::deserialize(value).map_err(|error| ChunkError::Form {
            kind,
            what: error.to_string(),
        })
    }

    /// Returns the first version that knows this type of chunk.
    pub fn since(&self) -> Sdk {
        match self {
            Self::ToolApprovalResponse { .. }
            | Self::Custom { .. }
            | Self::ReasoningFile { .. }
            | Self::ResetStep
            | Self::SteeringMessage { .. } => Sdk::V7,
            _ => Sdk::V6,
        }
    }

    /// Appends the chunk's JSON as a client of this version may see it, and tells whether there was anything to write:
    /// a type that the version does not know is left out, and so are fields and words.
    pub fn write(&self, sdk: Sdk, out: &mut Vec<u8>) -> bool {
        if self.since() > sdk {
            return false;
        }
        match self {
            Self::TextDelta {
                id,
                delta,
                provider_metadata: None,
            } => {
                write_delta(br#"{"type":"text-delta","id":"#, id, delta, out);
            }
            Self::ReasoningDelta {
                id,
                delta,
                provider_metadata: None,
            } => {
                write_delta(br#"{"type":"reasoning-delta","id":"#, id, delta, out);
            }
            _ if sdk == Sdk::V6 => match self.for_v6() {
                Some(older) => write_json(&older, out),
                None => write_json(self, out),
            },
            _ => write_json(self, out),
        }
        true
    }

    /// Returns the chunk without what only v7 knows, if there is anything of that kind in it.
    fn for_v6(&self) -> Option<Chunk<'_>> {
        match self {
            Self::TextEnd {
                id,
                provider_metadata,
                citations: Some(_),
            } => Some(Chunk::TextEnd {
                id: Cow::Borrowed(id),
                provider_metadata: lend(provider_metadata),
                citations: None,
            }),
            Self::ToolApprovalRequest {
                approval_id,
                tool_call_id,
                approval_descriptor,
                input_schema_input,
                signature,
                reason,
                is_automatic,
            } if reason.is_some() || is_automatic.is_some() => Some(Chunk::ToolApprovalRequest {
                approval_id: Cow::Borrowed(approval_id),
                tool_call_id: Cow::Borrowed(tool_call_id),
                approval_descriptor: lend(approval_descriptor),
                input_schema_input: lend(input_schema_input),
                signature: signature.as_deref().map(Cow::Borrowed),
                reason: None,
                is_automatic: None,
            }),
            Self::Finish {
                finish_reason: Some(FinishReason::Interrupted),
                message_metadata,
            } => Some(Chunk::Finish {
                finish_reason: Some(FinishReason::Other),
                message_metadata: lend(message_metadata),
            }),
            _ => None,
        }
    }
}

impl<'a> Chunk<'a> {
    pub fn start(message_id: impl Into<Str<'a>>) -> Self {
        Self::Start {
            message_id: Some(message_id.into()),
            message_metadata: None,
        }
    }

    pub fn finish(reason: FinishReason) -> Self {
        Self::Finish {
            finish_reason: Some(reason),
            message_metadata: None,
        }
    }

    pub fn error(text: impl Into<Str<'a>>) -> Self {
        Self::Error {
            error_text: text.into(),
        }
    }

    pub fn text_start(id: impl Into<Str<'a>>) -> Self {
        Self::TextStart {
            id: id.into(),
            provider_metadata: None,
        }
    }

    pub fn text_delta(id: impl Into<Str<'a>>, delta: impl Into<Str<'a>>) -> Self {
        Self::TextDelta {
            id: id.into(),
            delta: delta.into(),
            provider_metadata: None,
        }
    }

    pub fn reasoning_delta(id: impl Into<Str<'a>>, delta: impl Into<Str<'a>>) -> Self {
        Self::ReasoningDelta {
            id: id.into(),
            delta: delta.into(),
            provider_metadata: None,
        }
    }

    /// A `data-NAME` chunk that leaves no part behind.
    pub fn transient(kind: impl Into<Str<'a>>, data: Value) -> Self {
        Self::Data(DataChunk {
            kind: kind.into(),
            id: None,
            data: Cow::Owned(data),
            transient: Some(true),
        })
    }
}

impl FinishReason {
    /// Returns the AI SDK's word for a finish reason of Gemini or ADK.
    pub fn from_agent(reason: &str) -> Self {
        match reason {
            "STOP" => Self::Stop,
            "MAX_TOKENS" => Self::Length,
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "LANGUAGE"
            | "MODEL_ARMOR"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION" => Self::ContentFilter,
            "MALFORMED_FUNCTION_CALL"
            | "UNEXPECTED_TOOL_CALL"
            | "TOO_MANY_TOOL_CALLS"
            | "MALFORMED_RESPONSE"
            | "MISSING_THOUGHT_SIGNATURE" => Self::Error,
            _ => Self::Other,
        }
    }
}

fn lend<'a>(value: &'a Option<Json<'_>>) -> Option<Json<'a>> {
    value.as_deref().map(Cow::Borrowed)
}

/// The chunk that nearly every turn consists of: written without the detour through the derived serializer.
fn write_delta(head: &[u8], id: &str, delta: &str, out: &mut Vec<u8>) {
    out.reserve(head.len() + id.len() + delta.len() + 16);
    out.extend_from_slice(head);
    write_json(id, out);
    out.extend_from_slice(br#","delta":"#);
    write_json(delta, out);
    out.push(b'}');
}

fn write_json<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    let written = serde_json::to_writer(out, value);
    // A vector takes every byte and all keys are strings, which leaves nothing to fail.
    debug_assert!(written.is_ok(), "{written:?}");
}

/// Reads a field that is there, `null` included.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn data_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Str<'static>, D::Error> {
    let kind = String::deserialize(deserializer)?;
    if kind.starts_with("data-") {
        Ok(Cow::Owned(kind))
    } else {
        Err(de::Error::custom(format_args!(
            "chunk type `{kind}` is unknown"
        )))
    }
}
