//! What a front end receives: the chunks of an AI SDK UI message stream, with exactly the fields that its schema knows.
//!
//! Optional fields are absent, never `null`: every version of the client refuses `null` in a typed field. Fields of
//! type "unknown" (`input`, `output`, `data`, `messageMetadata`) are required if the table of the protocol says so, and
//! `null` means that there is no value.
//!
//! ```
//! use adk_bridge_protocol::chunk::{Chunk, ChunkError, Sdk};
//!
//! let chunk = Chunk::parse(r#"{"type":"text-delta","id":"t0","delta":"Hello"}"#)?;
//! assert_eq!(chunk, Chunk::text_delta("t0", "Hello"));
//!
//! // A client of an older version would stop at a chunk that it does not know, so it is not written.
//! let mut json = Vec::new();
//! assert!(chunk.write(Sdk::OLDEST, &mut json));
//! assert!(!Chunk::ResetStep.write(Sdk::OLDEST, &mut json));
//! assert_eq!(json, br#"{"type":"text-delta","id":"t0","delta":"Hello"}"#);
//! # Ok::<(), ChunkError>(())
//! ```

mod schema;

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;
use serde_with::skip_serializing_none;
use thiserror::Error;

use crate::json_text::Json;
use crate::sdk::Feature;

/// The version that a chunk is written for.
pub use crate::sdk::Sdk;

/// A string that is borrowed from its source for as long as possible.
///
/// Ids are such strings here, too: a chunk is made for every delta, is dropped once it has been written and folded, and
/// must not cost an allocation. Ids that are kept have their own types.
pub type Str<'a> = Cow<'a, str>;

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
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub enum Chunk<'a> {
    /// Opens a turn and names the message that it belongs to.
    Start {
        message_id: Option<Str<'a>>,
        message_metadata: Option<Json>,
    },
    /// Ends a turn.
    Finish {
        finish_reason: Option<FinishReason>,
        message_metadata: Option<Json>,
    },
    /// Ends a turn that was stopped.
    Abort {
        reason: Option<Str<'a>>,
    },
    /// Ends a turn that failed.
    Error {
        error_text: Str<'a>,
    },
    /// Merges into the metadata of the message.
    MessageMetadata {
        message_metadata: Json,
    },
    StartStep,
    FinishStep,
    TextStart {
        id: Str<'a>,
        provider_metadata: Option<Json>,
    },
    TextDelta {
        id: Str<'a>,
        delta: Str<'a>,
        provider_metadata: Option<Json>,
    },
    TextEnd {
        id: Str<'a>,
        provider_metadata: Option<Json>,
        /// See [`Feature::Citations`].
        citations: Option<Json>,
    },
    ReasoningStart {
        id: Str<'a>,
        provider_metadata: Option<Json>,
    },
    ReasoningDelta {
        id: Str<'a>,
        delta: Str<'a>,
        provider_metadata: Option<Json>,
    },
    ReasoningEnd {
        id: Str<'a>,
        provider_metadata: Option<Json>,
    },
    ToolInputStart {
        tool_call_id: Str<'a>,
        tool_name: Str<'a>,
        input_encoding: Option<InputEncoding>,
        provider_executed: Option<bool>,
        provider_metadata: Option<Json>,
        tool_metadata: Option<Json>,
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
        input: Json,
        provider_executed: Option<bool>,
        provider_metadata: Option<Json>,
        tool_metadata: Option<Json>,
        dynamic: Option<bool>,
        title: Option<Str<'a>>,
    },
    ToolInputError {
        tool_call_id: Str<'a>,
        tool_name: Str<'a>,
        input: Json,
        error_text: Str<'a>,
        provider_executed: Option<bool>,
        provider_metadata: Option<Json>,
        tool_metadata: Option<Json>,
        dynamic: Option<bool>,
        title: Option<Str<'a>>,
    },
    ToolApprovalRequest {
        approval_id: Str<'a>,
        tool_call_id: Str<'a>,
        approval_descriptor: Option<Json>,
        /// `null` is a value here: the client distinguishes it from an absent field.
        #[serde(default, deserialize_with = "present")]
        input_schema_input: Option<Json>,
        signature: Option<Str<'a>>,
        /// See [`Feature::RequestReasons`].
        reason: Option<Str<'a>>,
        /// See [`Feature::AutomaticRequests`].
        is_automatic: Option<bool>,
    },
    /// See [`Feature::ApprovalResponses`].
    ToolApprovalResponse {
        approval_id: Str<'a>,
        approved: bool,
        reason: Option<Str<'a>>,
        provider_executed: Option<bool>,
        provider_metadata: Option<Json>,
    },
    ToolOutputAvailable {
        tool_call_id: Str<'a>,
        output: Json,
        provider_executed: Option<bool>,
        provider_metadata: Option<Json>,
        tool_metadata: Option<Json>,
        dynamic: Option<bool>,
        preliminary: Option<bool>,
    },
    ToolOutputError {
        tool_call_id: Str<'a>,
        error_text: Str<'a>,
        provider_executed: Option<bool>,
        provider_metadata: Option<Json>,
        tool_metadata: Option<Json>,
        dynamic: Option<bool>,
    },
    ToolOutputDenied {
        tool_call_id: Str<'a>,
    },
    SourceUrl {
        source_id: Str<'a>,
        url: Str<'a>,
        title: Option<Str<'a>>,
        provider_metadata: Option<Json>,
    },
    SourceDocument {
        source_id: Str<'a>,
        media_type: Str<'a>,
        title: Str<'a>,
        filename: Option<Str<'a>>,
        provider_metadata: Option<Json>,
    },
    File {
        url: Str<'a>,
        media_type: Str<'a>,
        provider_metadata: Option<Json>,
    },
    /// See [`Feature::CustomParts`].
    Custom {
        kind: Str<'a>,
        provider_metadata: Option<Json>,
    },
    /// See [`Feature::ReasoningFiles`].
    ReasoningFile {
        url: Str<'a>,
        media_type: Str<'a>,
        provider_metadata: Option<Json>,
    },
    /// See [`Feature::StepResets`].
    ResetStep,
    /// See [`Feature::SteeringMessages`].
    SteeringMessage {
        id: Str<'a>,
        parts: Json,
    },
    /// `data-NAME`: a part that an application defines.
    #[serde(untagged)]
    Data(DataChunk<'a>),
}

/// A `data-NAME` chunk.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub struct DataChunk<'a> {
    /// The whole type, `data-` included.
    #[serde(rename = "type", deserialize_with = "data_type")]
    pub kind: Str<'a>,
    pub id: Option<Str<'a>>,
    pub data: Json,
    /// A transient chunk reaches `onData` and leaves no part behind.
    pub transient: Option<bool>,
}

/// How the text of a streamed tool input is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub enum InputEncoding {
    Json,
    Text,
}

/// Why a turn ended, in the AI SDK's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub enum FinishReason {
    Stop,
    Length,
    ContentFilter,
    ToolCalls,
    Error,
    Other,
    /// See [`Feature::InterruptedFinish`].
    Interrupted,
}

/// Why a text is not a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says what it means")]
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
    /// The schema and the types disagree; a property test ensures that they do not.
    #[error("chunk `{kind}` cannot be read: {what}")]
    Form { kind: String, what: String },
}

impl Chunk<'_> {
    /// Reads a chunk as strictly as the newest clients do: every field of the protocol must have its type, which `null`
    /// never has; unknown fields are ignored.
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

    /// The JSON Schema of every chunk that [`Self::parse`] reads.
    pub fn json_schema() -> Value {
        schema::as_json_schema()
    }

    /// Returns the first version that knows this type of chunk.
    pub fn since(&self) -> Sdk {
        self.needs().map_or(Sdk::OLDEST, Feature::since)
    }

    /// Whether clients of this version know this type of chunk.
    pub fn is_known_to(&self, sdk: Sdk) -> bool {
        match self.needs() {
            Some(feature) => sdk.has(feature),
            None => true,
        }
    }

    /// Returns the feature that a client needs to read this type of chunk; `None` if every client can.
    fn needs(&self) -> Option<Feature> {
        match self {
            Self::ToolApprovalResponse { .. } => Some(Feature::ApprovalResponses),
            Self::Custom { .. } => Some(Feature::CustomParts),
            Self::ReasoningFile { .. } => Some(Feature::ReasoningFiles),
            Self::ResetStep => Some(Feature::StepResets),
            Self::SteeringMessage { .. } => Some(Feature::SteeringMessages),
            _ => None,
        }
    }

    /// Appends the chunk's JSON in the form that a client of this version knows: unknown fields and words are left out.
    /// Returns whether anything was written; a chunk of an unknown type is not.
    pub fn write(&self, sdk: Sdk, out: &mut Vec<u8>) -> bool {
        if !self.is_known_to(sdk) {
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
            _ => match self.without_news(sdk) {
                Some(known) => write_json(&known, out),
                None => write_json(self, out),
            },
        }
        true
    }

    /// Returns the chunk without the fields and words that a version does not know, if there are any.
    fn without_news(&self, sdk: Sdk) -> Option<Chunk<'_>> {
        match self {
            Self::TextEnd {
                id,
                provider_metadata,
                citations: Some(_),
            } if !sdk.has(Feature::Citations) => Some(Chunk::TextEnd {
                id: Cow::Borrowed(id),
                provider_metadata: provider_metadata.clone(),
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
                approval_descriptor: approval_descriptor.clone(),
                input_schema_input: input_schema_input.clone(),
                signature: signature.as_deref().map(Cow::Borrowed),
                reason: (reason.as_deref())
                    .filter(|_| sdk.has(Feature::RequestReasons))
                    .map(Cow::Borrowed),
                is_automatic: is_automatic.filter(|_| sdk.has(Feature::AutomaticRequests)),
            }),
            Self::Finish {
                finish_reason: Some(FinishReason::Interrupted),
                message_metadata,
            } if !sdk.has(Feature::InterruptedFinish) => Some(Chunk::Finish {
                finish_reason: Some(FinishReason::Other),
                message_metadata: message_metadata.clone(),
            }),
            _ if sdk.has(Feature::ToolMetadata) => None,
            _ => self.without_tool_metadata(),
        }
    }

    /// Returns the chunk without metadata of a tool, if it has any.
    fn without_tool_metadata(&self) -> Option<Chunk<'_>> {
        self.tool_metadata()?;
        let mut known = self.clone();
        if let Chunk::ToolInputStart { tool_metadata, .. }
        | Chunk::ToolInputAvailable { tool_metadata, .. }
        | Chunk::ToolInputError { tool_metadata, .. }
        | Chunk::ToolOutputAvailable { tool_metadata, .. }
        | Chunk::ToolOutputError { tool_metadata, .. } = &mut known
        {
            *tool_metadata = None;
        }
        Some(known)
    }

    /// What a front end gets to know about the tool of a call.
    pub fn tool_metadata(&self) -> Option<&Json> {
        match self {
            Self::ToolInputStart { tool_metadata, .. }
            | Self::ToolInputAvailable { tool_metadata, .. }
            | Self::ToolInputError { tool_metadata, .. }
            | Self::ToolOutputAvailable { tool_metadata, .. }
            | Self::ToolOutputError { tool_metadata, .. } => tool_metadata.as_ref(),
            _ => None,
        }
    }
}

impl<'a> Chunk<'a> {
    /// Begins a message.
    pub fn start(message_id: impl Into<Str<'a>>) -> Self {
        Self::Start {
            message_id: Some(message_id.into()),
            message_metadata: None,
        }
    }

    /// Ends a turn.
    pub fn finish(reason: FinishReason) -> Self {
        Self::Finish {
            finish_reason: Some(reason),
            message_metadata: None,
        }
    }

    /// Says that something failed.
    pub fn error(text: impl Into<Str<'a>>) -> Self {
        Self::Error {
            error_text: text.into(),
        }
    }

    /// Makes a chunk with metadata of the message.
    pub fn metadata(metadata: &Json) -> Self {
        Self::MessageMetadata {
            message_metadata: metadata.clone(),
        }
    }

    /// Begins a text.
    pub fn text_start(id: impl Into<Str<'a>>) -> Self {
        Self::TextStart {
            id: id.into(),
            provider_metadata: None,
        }
    }

    /// Continues a text.
    pub fn text_delta(id: impl Into<Str<'a>>, delta: impl Into<Str<'a>>) -> Self {
        Self::TextDelta {
            id: id.into(),
            delta: delta.into(),
            provider_metadata: None,
        }
    }

    /// Continues a piece of reasoning.
    pub fn reasoning_delta(id: impl Into<Str<'a>>, delta: impl Into<Str<'a>>) -> Self {
        Self::ReasoningDelta {
            id: id.into(),
            delta: delta.into(),
            provider_metadata: None,
        }
    }

    /// A `data-NAME` chunk that leaves no part behind.
    pub fn transient(kind: impl Into<Str<'a>>, data: impl Into<Json>) -> Self {
        Self::Data(DataChunk {
            kind: kind.into(),
            id: None,
            data: data.into(),
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

/// Writes the most frequent chunk without the detour through the derived serializer.
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
    // A vector accepts every byte and all keys are strings, so nothing can fail.
    debug_assert!(written.is_ok(), "{written:?}");
}

/// Reads a field that is present, `null` included.
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
