//! UIMessage: what a conversation consists of for a front end.
//!
//! [`parse`] reads every form that clients send, [`fold`] builds a message out of chunks exactly as the AI SDK does
//! (inputs that are still arriving by [`partial_json`]), and `replay` turns a message into chunks again.

pub mod fold;
pub mod parse;
pub mod partial_json;
pub mod replay;
mod serialize;

use serde_json::{Map, Value};

use crate::chunk::InputEncoding;

pub use parse::{At, MessageError, parse_messages};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub id: String,
    pub role: Role,
    pub metadata: Option<Value>,
    pub parts: Vec<Part>,
    /// Fields that this version does not know; they are kept.
    pub extra: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    System,
    User,
    Assistant,
}

impl Message {
    /// An assistant's message without anything in it.
    pub fn assistant(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            role: Role::Assistant,
            metadata: None,
            parts: Vec::new(),
            extra: Map::new(),
        }
    }

    /// Where its first text lies that goes on.
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

    /// Whether a step was opened after others and has nothing in it.
    pub(crate) fn ends_with_a_step(&self) -> bool {
        self.parts.len() > 1 && matches!(self.parts.last(), Some(Part::StepStart))
    }
}

impl Role {
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
    Other(Map<String, Value>),
}

impl Part {
    /// The tool call, if it is one.
    pub fn as_tool(&self) -> Option<&ToolPart> {
        match self {
            Self::Tool(tool) => Some(tool),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextPart {
    pub text: String,
    pub state: Option<TextState>,
    pub provider_metadata: Option<Value>,
    /// Known to v7 only.
    pub citations: Option<Value>,
    pub extra: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReasoningPart {
    pub id: Option<String>,
    pub text: String,
    pub state: Option<TextState>,
    pub provider_metadata: Option<Value>,
    pub extra: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextState {
    Streaming,
    Done,
}

/// A tool call and what became of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolPart {
    pub call_id: String,
    pub name: String,
    /// `dynamic-tool` instead of `tool-NAME`.
    pub dynamic: bool,
    pub state: ToolState,
    pub input: Option<Value>,
    /// The text so far of a streamed input, or (v6) the input of a call that was refused.
    pub raw_input: Option<Value>,
    pub input_encoding: Option<InputEncoding>,
    pub output: Option<Value>,
    pub error_text: Option<String>,
    pub preliminary: Option<bool>,
    pub provider_executed: Option<bool>,
    pub title: Option<String>,
    pub tool_metadata: Option<Value>,
    pub call_provider_metadata: Option<Value>,
    pub result_provider_metadata: Option<Value>,
    pub approval: Option<ApprovalField>,
    pub extra: Map<String, Value>,
}

impl ToolPart {
    /// A call of which only id and name are known.
    pub fn new(call_id: String, name: &str) -> Self {
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
            extra: Map::new(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolState {
    #[default]
    InputStreaming,
    InputAvailable,
    ApprovalRequested,
    ApprovalResponded,
    OutputAvailable,
    OutputError,
    OutputDenied,
    /// A state that this version does not know (`call` of older clients, for one).
    Other(String),
}

impl ToolState {
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
pub struct ApprovalField {
    /// Absent only in messages written by hand.
    pub id: Option<String>,
    pub approved: Option<bool>,
    pub reason: Option<String>,
    /// `descriptor`, `signature`, `inputSchemaInput`, `requestReason`, `isAutomatic` and whatever comes later.
    pub extra: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct FilePart {
    pub media_type: String,
    pub url: String,
    pub filename: Option<String>,
    pub provider_metadata: Option<Value>,
    pub extra: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SourceUrlPart {
    pub source_id: String,
    pub url: String,
    pub title: Option<String>,
    pub provider_metadata: Option<Value>,
    pub extra: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SourceDocumentPart {
    pub source_id: String,
    pub media_type: String,
    pub title: String,
    pub filename: Option<String>,
    pub provider_metadata: Option<Value>,
    pub extra: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DataPart {
    /// The whole type, `data-` included.
    pub kind: String,
    pub id: Option<String>,
    pub data: Value,
    pub extra: Map<String, Value>,
}
