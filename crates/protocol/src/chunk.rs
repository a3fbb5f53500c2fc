//! What a front end receives: the chunks of an AI SDK UI message stream, with exactly the fields that its schema knows.
//!
//! Optional fields are absent, never `null`: every version of the client refuses `null` in a typed field. Fields whose
//! type is "unknown" (`input`, `output`, `data`, `messageMetadata`) are required where the table of the protocol says so
//! and carry `null` for "nothing".

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum Chunk<'a> {
    /// Opens a turn and names the message that it belongs to.
    Start {
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        message_id: Option<Str<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        message_metadata: Option<Json<'a>>,
    },
    /// Ends a turn.
    Finish {
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        finish_reason: Option<FinishReason>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        message_metadata: Option<Json<'a>>,
    },
    /// Ends a turn that was stopped.
    Abort {
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        reason: Option<Str<'a>>,
    },
    /// Ends a turn that failed.
    Error { error_text: Str<'a> },
    /// Merges into the message's metadata.
    MessageMetadata { message_metadata: Json<'a> },
    StartStep,
    FinishStep,
    TextStart {
        id: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
    },
    TextDelta {
        id: Str<'a>,
        delta: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
    },
    TextEnd {
        id: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
        /// Known to v7 only.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        citations: Option<Json<'a>>,
    },
    ReasoningStart {
        id: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
    },
    ReasoningDelta {
        id: Str<'a>,
        delta: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
    },
    ReasoningEnd {
        id: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
    },
    ToolInputStart {
        tool_call_id: Str<'a>,
        tool_name: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        input_encoding: Option<InputEncoding>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_executed: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        tool_metadata: Option<Json<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        dynamic: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
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
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_executed: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        tool_metadata: Option<Json<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        dynamic: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        title: Option<Str<'a>>,
    },
    ToolInputError {
        tool_call_id: Str<'a>,
        tool_name: Str<'a>,
        input: Json<'a>,
        error_text: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_executed: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        tool_metadata: Option<Json<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        dynamic: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        title: Option<Str<'a>>,
    },
    ToolApprovalRequest {
        approval_id: Str<'a>,
        tool_call_id: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        approval_descriptor: Option<Json<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        input_schema_input: Option<Json<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        signature: Option<Str<'a>>,
        /// Known to v7 only.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        reason: Option<Str<'a>>,
        /// Known to v7 only.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        is_automatic: Option<bool>,
    },
    /// Known to v7 only.
    ToolApprovalResponse {
        approval_id: Str<'a>,
        approved: bool,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        reason: Option<Str<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_executed: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
    },
    ToolOutputAvailable {
        tool_call_id: Str<'a>,
        output: Json<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_executed: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        tool_metadata: Option<Json<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        dynamic: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        preliminary: Option<bool>,
    },
    ToolOutputError {
        tool_call_id: Str<'a>,
        error_text: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_executed: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        tool_metadata: Option<Json<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        dynamic: Option<bool>,
    },
    ToolOutputDenied {
        tool_call_id: Str<'a>,
    },
    SourceUrl {
        source_id: Str<'a>,
        url: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        title: Option<Str<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
    },
    SourceDocument {
        source_id: Str<'a>,
        media_type: Str<'a>,
        title: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        filename: Option<Str<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
    },
    File {
        url: Str<'a>,
        media_type: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
    },
    /// Known to v7 only.
    Custom {
        kind: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
    },
    /// Known to v7 only.
    ReasoningFile {
        url: Str<'a>,
        media_type: Str<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        provider_metadata: Option<Json<'a>>,
    },
    /// Known to v7 only: takes back the parts of the current step.
    ResetStep,
    /// Known to v7 only, and experimental there.
    SteeringMessage { id: Str<'a>, parts: Json<'a> },
    /// `data-NAME`: a part of the application's own.
    #[serde(untagged)]
    Data(DataChunk<'a>),
}

/// A `data-NAME` chunk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataChunk<'a> {
    /// The whole type, `data-` included.
    #[serde(rename = "type", deserialize_with = "data_type")]
    pub kind: Str<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub id: Option<Str<'a>>,
    pub data: Json<'a>,
    /// A transient chunk reaches `onData` and leaves no part behind.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
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
