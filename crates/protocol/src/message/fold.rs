//! Builds a message out of chunks, exactly as the AI SDK's `readUIMessageStream` does.
//!
//! A chunk that the client would refuse is refused here too, and leaves the message unchanged.
//!
//! Differences of older versions are [`Feature`]s that these versions lack.
//!
//! **Streamed inputs.** A client parses the whole text of a tool's input again at every delta. A server rarely needs
//! the value, so here a delta only appends to the text. The value is made when the message is read ([`Fold::message`]),
//! or when the call continues with this input. If a `tool-input-available` replaces the value first, nothing is parsed
//! at all.
//!
//! **Different from the SDK**: a client keeps a `data-NAME` chunk itself as the part, including fields outside of the
//! schema. [`Chunk::parse`] drops such fields, so no part has them here.
//!
//! ```
//! use adk_bridge_protocol::chunk::Sdk;
//! use adk_bridge_protocol::message::{Part, ToolState};
//! use adk_bridge_protocol::{Chunk, Fold};
//!
//! let mut fold = Fold::new(Sdk::NEWEST, "m1");
//! for chunk in [
//!     r#"{"type":"start-step"}"#,
//!     r#"{"type":"tool-input-available","toolCallId":"c1","toolName":"pay","input":{"amount":5}}"#,
//!     r#"{"type":"tool-approval-request","toolCallId":"c1","approvalId":"a1"}"#,
//! ] {
//!     fold.apply(&Chunk::parse(chunk)?)?;
//! }
//! // Chunks that a client would refuse change nothing.
//! assert!(fold.apply(&Chunk::text_delta("t9", "never begun")).is_err());
//! let message = fold.into_message();
//! let tool = message.parts.iter().find_map(Part::as_tool);
//! assert_eq!(tool.map(|tool| &tool.state), Some(&ToolState::ApprovalRequested));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod metadata;
mod parts;
mod tools;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use self::parts::{fields, other};
use self::tools::{StreamedInput, Update};
use super::{
    ApprovalField, Extra, FilePart, Message, Part, ReasoningPart, Role, SourceDocumentPart,
    SourceUrlPart, TextPart, TextState, ToolState,
};
use crate::chunk::{Chunk, FinishReason, Str};
use crate::id::{CallId, MessageId};
use crate::json_text::Json;
use crate::sdk::{Feature, Sdk};

/// A message that chunks are being folded into.
#[derive(Debug, Clone)]
pub struct Fold {
    sdk: Sdk,
    /// Shared with what is being stored of it.
    message: Arc<Message>,
    finish_reason: Option<FinishReason>,
    /// Where the open text parts are, by the id of their chunks.
    texts: BTreeMap<String, usize>,
    reasonings: BTreeMap<String, usize>,
    /// Streamed inputs by call id. They are kept when the call moves on, since a delta may still arrive.
    inputs: BTreeMap<CallId, StreamedInput>,
}

/// Why a chunk does not fit the message so far.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says what it means")]
pub enum FoldError {
    #[error("`{id}` is not open for a `{chunk}`; send a `{first}` before it")]
    NotOpen {
        chunk: &'static str,
        first: &'static str,
        id: String,
    },
    #[error("no tool call has the id `{0}`; send its input first")]
    UnknownCall(String),
    #[error("no tool call has the approval id `{0}`; send the request first")]
    UnknownApproval(String),
    #[error(
        "metadata that is a plain value cannot be merged with fields; send an object from the start"
    )]
    Metadata,
    #[error("clients of this version do not know this chunk; leave it out for them")]
    Newer,
    /// The stream itself reports that the turn failed.
    #[error("{0}")]
    Reported(String),
}

impl Fold {
    /// Starts an assistant's message.
    pub fn new(sdk: Sdk, id: impl Into<MessageId>) -> Self {
        Self {
            sdk,
            message: Message::assistant(id).into(),
            finish_reason: None,
            texts: BTreeMap::new(),
            reasonings: BTreeMap::new(),
            inputs: BTreeMap::new(),
        }
    }

    /// Continues an assistant's message; after any other message it starts an empty one with the same id, as the AI SDK
    /// does. Text that is open in the message stays as it is; a streamed input may continue.
    pub fn onto(sdk: Sdk, message: Message) -> Self {
        if message.role != Role::Assistant {
            return Self::new(sdk, message.id);
        }
        let mut fold = Self::new(sdk, MessageId::default());
        fold.message = message.into();
        for part in &fold.message.parts[fold.current_step()] {
            if let Part::Tool(tool) = part
                && tool.state == ToolState::InputStreaming
            {
                fold.inputs
                    .insert(tool.call_id.clone(), StreamedInput::of(tool));
            }
        }
        fold
    }

    /// Returns the message so far, after updating the inputs that are still arriving.
    pub fn message(&mut self) -> &Message {
        self.settle();
        &self.message
    }

    /// Returns the message so far to be changed. Parts may be changed and added, but must not move.
    pub fn message_mut(&mut self) -> &mut Message {
        self.settle();
        self.edited()
    }

    /// The message to be changed; a copy of it if what is stored of it is still shared.
    fn edited(&mut self) -> &mut Message {
        Arc::make_mut(&mut self.message)
    }

    /// Returns the message so far without changing `self`: a copy if inputs are still arriving.
    pub fn snapshot(&self) -> Cow<'_, Message> {
        if self.inputs.values().any(StreamedInput::lags) {
            Cow::Owned(self.clone().into_message())
        } else {
            Cow::Borrowed(&self.message)
        }
    }

    /// Returns the message so far, as [`Fold::snapshot`] does, and shares it: it is copied when the next chunk changes it,
    /// unless the shared one was dropped by then.
    pub fn share(&self) -> Arc<Message> {
        match self.snapshot() {
            Cow::Owned(message) => message.into(),
            Cow::Borrowed(_) => self.message.clone(),
        }
    }

    /// Returns the message so far without updating it: `input` and `rawInput` of a call in `input-streaming` may lag
    /// behind.
    pub fn unsettled(&self) -> &Message {
        &self.message
    }

    /// Gives the message that the chunks have made.
    pub fn into_message(mut self) -> Message {
        self.settle();
        Arc::unwrap_or_clone(self.message)
    }

    /// Returns the latest finish reason.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        self.finish_reason
    }

    /// Folds one chunk into the message.
    pub fn apply(&mut self, chunk: &Chunk<'_>) -> Result<(), FoldError> {
        if !chunk.is_known_to(self.sdk) {
            return Err(FoldError::Newer);
        }
        match chunk {
            Chunk::Start {
                message_id,
                message_metadata,
            } => {
                let other = message_id.as_deref().filter(|id| self.message.id != *id);
                if let Some(id) = other {
                    *self = Self::new(self.sdk, id);
                }
                self.merge_metadata(message_metadata)?;
            }
            Chunk::Finish {
                finish_reason,
                message_metadata,
            } => {
                self.merge_metadata(message_metadata)?;
                self.finish_reason = finish_reason.or(self.finish_reason);
            }
            Chunk::MessageMetadata { message_metadata } => self.merge(message_metadata)?,
            Chunk::Abort { .. } => {}
            Chunk::Error { error_text } => return Err(FoldError::Reported(owned(error_text))),
            Chunk::StartStep => self.push(Part::StepStart),
            Chunk::FinishStep => {
                if !self.sdk.has(Feature::TextsAcrossSteps) {
                    self.texts.clear();
                    self.reasonings.clear();
                }
            }
            Chunk::ResetStep => {
                self.settle();
                self.texts.clear();
                self.reasonings.clear();
                self.inputs.clear();
                let step = self.current_step();
                self.edited().parts.truncate(step.start);
            }

            Chunk::TextStart {
                id,
                provider_metadata,
            } => {
                self.texts.insert(owned(id), self.message.parts.len());
                self.push(Part::Text(TextPart {
                    state: Some(TextState::Streaming),
                    provider_metadata: provider_metadata.clone(),
                    ..TextPart::default()
                }));
            }
            Chunk::TextDelta {
                id,
                delta,
                provider_metadata,
            } => {
                let part = self.text("text-delta", id)?;
                part.text.push_str(delta);
                replace(&mut part.provider_metadata, provider_metadata);
            }
            Chunk::TextEnd {
                id,
                provider_metadata,
                citations,
            } => {
                let keeps_citations = self.sdk.has(Feature::Citations);
                let part = self.text("text-end", id)?;
                part.state = Some(TextState::Done);
                replace(&mut part.provider_metadata, provider_metadata);
                if keeps_citations {
                    replace(&mut part.citations, citations);
                }
                self.texts.remove(id.as_ref());
            }
            Chunk::ReasoningStart {
                id,
                provider_metadata,
            } => {
                self.reasonings.insert(owned(id), self.message.parts.len());
                self.push(Part::Reasoning(ReasoningPart {
                    id: Some(owned(id)),
                    state: Some(TextState::Streaming),
                    provider_metadata: provider_metadata.clone(),
                    ..ReasoningPart::default()
                }));
            }
            Chunk::ReasoningDelta {
                id,
                delta,
                provider_metadata,
            } => {
                let part = self.reasoning("reasoning-delta", id)?;
                part.text.push_str(delta);
                replace(&mut part.provider_metadata, provider_metadata);
            }
            Chunk::ReasoningEnd {
                id,
                provider_metadata,
            } => {
                let part = self.reasoning("reasoning-end", id)?;
                part.state = Some(TextState::Done);
                replace(&mut part.provider_metadata, provider_metadata);
                self.reasonings.remove(id.as_ref());
            }

            Chunk::ToolInputStart {
                tool_call_id,
                tool_name,
                input_encoding,
                provider_executed,
                provider_metadata,
                tool_metadata,
                dynamic,
                title,
            } => {
                // The text so far may belong to a part of an earlier step, which keeps it.
                self.settle_call(tool_call_id);
                let input = StreamedInput {
                    text: String::new(),
                    encoding: *input_encoding,
                    name: owned(tool_name),
                    dynamic: dynamic.unwrap_or(false),
                    title: title.as_ref().map(owned),
                    tool_metadata: tool_metadata.clone(),
                    unsettled: None,
                };
                self.place(
                    tool_call_id,
                    input.dynamic,
                    Update {
                        name: input.name.clone(),
                        state: ToolState::InputStreaming,
                        input_encoding: *input_encoding,
                        provider_executed: *provider_executed,
                        provider_metadata: provider_metadata.clone(),
                        tool_metadata: input.tool_metadata.clone(),
                        title: input.title.clone(),
                        ..Update::default()
                    },
                );
                self.inputs.insert(tool_call_id.as_ref().into(), input);
            }
            Chunk::ToolInputDelta {
                tool_call_id,
                input_text_delta,
            } => {
                self.input_delta(tool_call_id, input_text_delta)?;
            }
            Chunk::ToolInputAvailable {
                tool_call_id,
                tool_name,
                input,
                provider_executed,
                provider_metadata,
                tool_metadata,
                dynamic,
                title,
            } => self.place(
                tool_call_id,
                dynamic.unwrap_or(false),
                Update {
                    name: owned(tool_name),
                    state: ToolState::InputAvailable,
                    input: Some(input.clone()),
                    provider_executed: *provider_executed,
                    provider_metadata: provider_metadata.clone(),
                    tool_metadata: tool_metadata.clone(),
                    title: title.as_ref().map(owned),
                    ..Update::default()
                },
            ),
            Chunk::ToolInputError {
                tool_call_id,
                tool_name,
                input,
                error_text,
                provider_executed,
                provider_metadata,
                tool_metadata,
                dynamic,
                title: _,
            } => {
                // An existing part decides the kind.
                let dynamic = match self.find_in_step(tool_call_id, None) {
                    Some(at) => self.tool(at).is_some_and(|tool| tool.dynamic),
                    None => dynamic.unwrap_or(false),
                };
                let input = Some(input.clone());
                let (input, raw_input) = if dynamic || self.sdk.has(Feature::RefusedInputs) {
                    (input, None)
                } else {
                    (None, input)
                };
                self.place(
                    tool_call_id,
                    dynamic,
                    Update {
                        name: owned(tool_name),
                        state: ToolState::OutputError,
                        input,
                        raw_input,
                        error_text: Some(owned(error_text)),
                        provider_executed: *provider_executed,
                        provider_metadata: provider_metadata.clone(),
                        tool_metadata: tool_metadata.clone(),
                        ..Update::default()
                    },
                );
            }

            Chunk::ToolApprovalRequest {
                approval_id,
                tool_call_id,
                approval_descriptor,
                input_schema_input,
                signature,
                reason,
                is_automatic,
            } => {
                let sdk = self.sdk;
                let tool = self.call(tool_call_id)?;
                tool.state = ToolState::ApprovalRequested;
                let descriptor = approval_descriptor.clone().filter(|value| !value.is_null());
                let reason = reason.as_deref().map(Json::from);
                let is_automatic = is_automatic.filter(|is| *is).map(Json::from);
                tool.approval = Some(ApprovalField {
                    id: Some(approval_id.as_ref().into()),
                    extra: fields([
                        ("descriptor", descriptor),
                        ("inputSchemaInput", input_schema_input.clone()),
                        (
                            "requestReason",
                            reason.filter(|_| sdk.has(Feature::RequestReasons)),
                        ),
                        (
                            "isAutomatic",
                            is_automatic.filter(|_| sdk.has(Feature::AutomaticRequests)),
                        ),
                        ("signature", signature.as_deref().map(Json::from)),
                    ]),
                    ..ApprovalField::default()
                });
            }
            Chunk::ToolApprovalResponse {
                approval_id,
                approved,
                reason,
                provider_executed,
                provider_metadata,
            } => {
                let tool = self.call_by_approval(approval_id)?;
                tool.state = ToolState::ApprovalResponded;
                let approval = tool.approval.get_or_insert_default();
                approval.approved = Some(*approved);
                if let Some(reason) = reason {
                    approval.reason = Some(owned(reason));
                }
                tool.provider_executed = provider_executed.or(tool.provider_executed);
                replace(&mut tool.call_provider_metadata, provider_metadata);
            }
            Chunk::ToolOutputDenied { tool_call_id } => {
                self.call(tool_call_id)?.state = ToolState::OutputDenied;
            }
            Chunk::ToolOutputAvailable {
                tool_call_id,
                output,
                provider_executed,
                provider_metadata,
                tool_metadata,
                dynamic: _,
                preliminary,
            } => {
                let tool = self.settled_call(tool_call_id)?;
                let update = Update {
                    output: Some(output.clone()),
                    preliminary: *preliminary,
                    provider_executed: *provider_executed,
                    provider_metadata: provider_metadata.clone(),
                    tool_metadata: tool_metadata.clone(),
                    ..Update::moving_on(tool, ToolState::OutputAvailable)
                };
                update.onto(tool);
            }
            Chunk::ToolOutputError {
                tool_call_id,
                error_text,
                provider_executed,
                provider_metadata,
                tool_metadata,
                dynamic: _,
            } => {
                let tool = self.settled_call(tool_call_id)?;
                let raw_input = if tool.dynamic {
                    None
                } else {
                    tool.raw_input.take()
                };
                let update = Update {
                    raw_input,
                    error_text: Some(owned(error_text)),
                    provider_executed: *provider_executed,
                    provider_metadata: provider_metadata.clone(),
                    tool_metadata: tool_metadata.clone(),
                    ..Update::moving_on(tool, ToolState::OutputError)
                };
                update.onto(tool);
            }

            Chunk::SourceUrl {
                source_id,
                url,
                title,
                provider_metadata,
            } => {
                self.push(Part::SourceUrl(SourceUrlPart {
                    source_id: owned(source_id),
                    url: owned(url),
                    title: title.as_ref().map(owned),
                    provider_metadata: provider_metadata.clone(),
                    extra: Extra::default(),
                }));
            }
            Chunk::SourceDocument {
                source_id,
                media_type,
                title,
                filename,
                provider_metadata,
            } => {
                self.push(Part::SourceDocument(SourceDocumentPart {
                    source_id: owned(source_id),
                    media_type: owned(media_type),
                    title: owned(title),
                    filename: filename.as_ref().map(owned),
                    provider_metadata: provider_metadata.clone(),
                    extra: Extra::default(),
                }));
            }
            Chunk::File {
                url,
                media_type,
                provider_metadata,
            } => self.push(Part::File(FilePart {
                media_type: owned(media_type),
                url: owned(url),
                provider_metadata: provider_metadata.clone(),
                ..FilePart::default()
            })),
            Chunk::ReasoningFile {
                url,
                media_type,
                provider_metadata,
            } => self.push(other(
                "reasoning-file",
                [
                    ("mediaType", Some(Json::from(media_type.as_ref()))),
                    ("url", Some(Json::from(url.as_ref()))),
                    ("providerMetadata", provider_metadata.clone()),
                ],
            )),
            Chunk::Custom {
                kind,
                provider_metadata,
            } => self.push(other(
                "custom",
                [
                    ("kind", Some(Json::from(kind.as_ref()))),
                    ("providerMetadata", provider_metadata.clone()),
                ],
            )),
            Chunk::SteeringMessage { id, parts } => self.push(other(
                "steering-message",
                [
                    ("id", Some(Json::from(id.as_ref()))),
                    ("parts", Some(parts.clone())),
                ],
            )),
            Chunk::Data(data) => self.data(data),
        }
        Ok(())
    }

    fn push(&mut self, part: Part) {
        self.edited().parts.push(part);
    }

    fn text(&mut self, chunk: &'static str, id: &str) -> Result<&mut TextPart, FoldError> {
        let at = self.texts.get(id).copied().unwrap_or(usize::MAX);
        match self.edited().parts.get_mut(at) {
            Some(Part::Text(part)) => Ok(part),
            _ => Err(FoldError::NotOpen {
                chunk,
                first: "text-start",
                id: id.to_owned(),
            }),
        }
    }

    fn reasoning(
        &mut self,
        chunk: &'static str,
        id: &str,
    ) -> Result<&mut ReasoningPart, FoldError> {
        let at = self.reasonings.get(id).copied().unwrap_or(usize::MAX);
        match self.edited().parts.get_mut(at) {
            Some(Part::Reasoning(part)) => Ok(part),
            _ => Err(FoldError::NotOpen {
                chunk,
                first: "reasoning-start",
                id: id.to_owned(),
            }),
        }
    }

    fn merge_metadata(&mut self, metadata: &Option<Json>) -> Result<(), FoldError> {
        metadata
            .as_ref()
            .map_or(Ok(()), |metadata| self.merge(metadata))
    }

    fn merge(&mut self, metadata: &Json) -> Result<(), FoldError> {
        metadata::merge(&mut self.edited().metadata, metadata)
    }
}

fn owned(text: &Str<'_>) -> String {
    text.as_ref().to_owned()
}

fn replace(old: &mut Option<Json>, new: &Option<Json>) {
    if new.is_some() {
        old.clone_from(new);
    }
}
