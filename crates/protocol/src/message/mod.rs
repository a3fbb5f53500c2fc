//! UIMessage: what a conversation consists of for a front end.
//!
//! [`parse`] reads every form that clients send, [`fold`] builds a message out of chunks exactly as the AI SDK does
//! (with [`partial_json`] for inputs that are still arriving), and `replay` turns a message into chunks again.

mod draft;
mod extra;
pub mod fold;
mod growth;
pub mod parse;
pub mod partial_json;
pub mod replay;
mod serialize;

use crate::chunk::InputEncoding;
use crate::id::{ApprovalId, CallId, MessageId};
use crate::json_text::Json;

pub(crate) use draft::Draft;
pub use extra::Extra;
#[doc(hidden)]
pub use growth::{Extent, Growth};
pub use parse::{Location, MessageError, parse_messages};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub struct Message {
    pub id: MessageId,
    pub role: Role,
    pub metadata: Option<Json>,
    pub parts: Vec<Part>,
    /// Fields that this version does not know; they are kept.
    pub extra: Extra,
}

/// Who a message is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub enum Role {
    System,
    User,
    Assistant,
}

impl Message {
    /// An empty message of an assistant.
    pub fn assistant(id: impl Into<MessageId>) -> Self {
        Self {
            id: id.into(),
            role: Role::Assistant,
            metadata: None,
            parts: Vec::new(),
            extra: Extra::default(),
        }
    }

    /// The index of its first text that is still growing.
    pub(crate) fn first_growing(&self) -> Option<usize> {
        self.parts.iter().position(|part| {
            let state = match part {
                Part::Text(text) => text.state,
                Part::Reasoning(reasoning) => reasoning.state,
                _ => None,
            };
            state == Some(TextState::Streaming)
        })
    }

    /// Whether its last step is empty and follows others.
    pub(crate) fn ends_with_a_step(&self) -> bool {
        self.parts.len() > 1 && matches!(self.parts.last(), Some(Part::StepStart))
    }
}

impl Role {
    /// The word for it in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub enum Part {
    Text(TextPart),
    Reasoning(ReasoningPart),
    Tool(Box<ToolPart>),
    /// The boundary between two model calls.
    StepStart,
    File(FilePart),
    SourceUrl(SourceUrlPart),
    SourceDocument(SourceDocumentPart),
    Data(DataPart),
    /// A part type that this version does not know, kept as it came.
    Other(Extra),
}

impl Part {
    /// The tool call, if the part is one.
    pub fn as_tool(&self) -> Option<&ToolPart> {
        match self {
            Self::Tool(tool) => Some(tool),
            _ => None,
        }
    }
}

/// Whether this is what a call shows whose output is still to come.
pub(crate) fn is_pending(output: &Json) -> bool {
    output.get("pending").and_then(|it| it.as_bool()) == Some(true)
}

/// The id by which chunks name the text part at this index of a message.
pub(crate) fn text_id(index: usize) -> String {
    format!("t{index}")
}

/// A text.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub struct TextPart {
    pub text: String,
    pub state: Option<TextState>,
    pub provider_metadata: Option<Json>,
    /// Kept by clients that know [`Feature::Citations`](crate::sdk::Feature::Citations).
    pub citations: Option<Json>,
    pub extra: Extra,
}

/// What the model thought.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub struct ReasoningPart {
    pub id: Option<String>,
    pub text: String,
    pub state: Option<TextState>,
    pub provider_metadata: Option<Json>,
    pub extra: Extra,
}

/// Whether a text may still grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub enum TextState {
    Streaming,
    Done,
}

/// A tool call and its outcome.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub struct ToolPart {
    pub call_id: CallId,
    pub name: String,
    /// `dynamic-tool` instead of `tool-NAME`.
    pub dynamic: bool,
    pub state: ToolState,
    pub input: Option<Json>,
    /// The text so far of a streamed input, or the input of a refused call, as clients without
    /// [`Feature::RefusedInputs`](crate::sdk::Feature::RefusedInputs) keep it.
    pub raw_input: Option<Json>,
    pub input_encoding: Option<InputEncoding>,
    pub output: Option<Json>,
    pub error_text: Option<String>,
    pub preliminary: Option<bool>,
    pub provider_executed: Option<bool>,
    pub title: Option<String>,
    pub tool_metadata: Option<Json>,
    pub call_provider_metadata: Option<Json>,
    pub result_provider_metadata: Option<Json>,
    pub approval: Option<ApprovalField>,
    pub extra: Extra,
}

impl ToolPart {
    /// A call with only its id and name.
    pub fn new(call_id: CallId, name: &str) -> Self {
        Self {
            call_id,
            name: name.to_owned(),
            dynamic: false,
            state: ToolState::InputAvailable,
            input: None,
            raw_input: None,
            input_encoding: None,
            output: None,
            error_text: None,
            preliminary: None,
            provider_executed: None,
            title: None,
            tool_metadata: None,
            call_provider_metadata: None,
            result_provider_metadata: None,
            approval: None,
            extra: Extra::default(),
        }
    }
}

/// How far a call is, as a front end sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub enum ToolState {
    #[default]
    InputStreaming,
    InputAvailable,
    ApprovalRequested,
    ApprovalResponded,
    OutputAvailable,
    OutputError,
    OutputDenied,
    /// A state that this version does not know, such as `call` of older clients.
    Other(String),
}

impl ToolState {
    /// The word for it in JSON.
    pub fn as_str(&self) -> &str {
        match self {
            Self::InputStreaming => "input-streaming",
            Self::InputAvailable => "input-available",
            Self::ApprovalRequested => "approval-requested",
            Self::ApprovalResponded => "approval-responded",
            Self::OutputAvailable => "output-available",
            Self::OutputError => "output-error",
            Self::OutputDenied => "output-denied",
            Self::Other(state) => state,
        }
    }
}

impl From<String> for ToolState {
    fn from(state: String) -> Self {
        match state.as_str() {
            "input-streaming" => Self::InputStreaming,
            "input-available" => Self::InputAvailable,
            "approval-requested" => Self::ApprovalRequested,
            "approval-responded" => Self::ApprovalResponded,
            "output-available" => Self::OutputAvailable,
            "output-error" => Self::OutputError,
            "output-denied" => Self::OutputDenied,
            _ => Self::Other(state),
        }
    }
}

/// The `approval` field of a tool part.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub struct ApprovalField {
    /// Absent only in messages written by hand.
    pub id: Option<ApprovalId>,
    pub approved: Option<bool>,
    pub reason: Option<String>,
    /// `descriptor`, `signature`, `inputSchemaInput`, `requestReason`, `isAutomatic` and all later additions.
    pub extra: Extra,
}

/// A file.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub struct FilePart {
    pub media_type: String,
    pub url: String,
    pub filename: Option<String>,
    pub provider_metadata: Option<Json>,
    pub extra: Extra,
}

/// A web page that an answer relies on.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub struct SourceUrlPart {
    pub source_id: String,
    pub url: String,
    pub title: Option<String>,
    pub provider_metadata: Option<Json>,
    pub extra: Extra,
}

/// A document that an answer relies on.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub struct SourceDocumentPart {
    pub source_id: String,
    pub media_type: String,
    pub title: String,
    pub filename: Option<String>,
    pub provider_metadata: Option<Json>,
    pub extra: Extra,
}

/// Data of an application.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as in the AI SDK, whose documentation describes them"
)]
pub struct DataPart {
    /// The whole type, `data-` included.
    pub kind: String,
    pub id: Option<String>,
    pub data: Json,
    pub extra: Extra,
}
