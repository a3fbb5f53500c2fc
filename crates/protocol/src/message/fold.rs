//! Builds a message out of chunks, exactly as `readUIMessageStream` of the AI SDK does.
//!
//! A chunk that the client would refuse is refused here, and leaves the message as it was.
//!
//! **Differences between the versions**, chosen by [`Sdk`]:
//!
//! | | v6 | v7 |
//! |---|---|---|
//! | `finish-step` | forgets the open text and reasoning parts: a later delta for them is refused | nothing |
//! | `tool-input-error` of a static tool | the input goes to `rawInput`, and `input` is absent | the input goes to `input` |
//! | `text-end` | – | keeps `citations` |
//! | `tool-approval-request` | – | keeps `reason` (as `requestReason`) and `isAutomatic`, if it is true |
//! | a streamed input that stands behind `[` | see [`partial_json`](super::partial_json) | |
//! | types that only v7 knows | refused | folded |
//!
//! **Streamed inputs.** A client parses the text of a tool's input anew at every delta. A server seldom looks, so a delta
//! only appends to the text here, and the value is made when the message is read ([`Fold::message`]) or when the call
//! moves on in a way that keeps it. A `tool-input-available` replaces the value, and then nothing was ever parsed.
//!
//! **Not followed**: the client keeps a `data-NAME` chunk itself as the part, fields included that no schema knows. Such
//! fields do not survive [`Chunk::parse`], and no part has them here.

mod metadata;
mod parts;
mod tools;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};
use thiserror::Error;

use self::parts::{fields, other};
use self::tools::{StreamedInput, Update};
use super::{
    ApprovalField, FilePart, Message, Part, ReasoningPart, Role, SourceDocumentPart, SourceUrlPart,
    TextPart, TextState, ToolState,
};
use crate::chunk::{Chunk, FinishReason, Json, Sdk, Str};

/// A message that chunks are being folded into.
#[derive(Debug, Clone)]
pub struct Fold {
    sdk: Sdk,
    message: Message,
    finish_reason: Option<FinishReason>,
    /// Where the open text parts are, by the id of their chunks.
    texts: BTreeMap<String, usize>,
    reasonings: BTreeMap<String, usize>,
    /// Inputs that were streamed, by call id. They stay when the call moves on, as a delta may still come.
    inputs: BTreeMap<String, StreamedInput>,
}

/// Why a chunk does not fit the message so far.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
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
    #[error("this chunk is known to v7 only; leave it out for a v6 client")]
    Newer,
    /// The stream says itself that the turn failed.
    #[error("{0}")]
    Reported(String),
}

impl Fold {
    /// Starts an assistant's message.
    pub fn new(sdk: Sdk, id: impl Into<String>) -> Self {
        Self {
            sdk,
            message: Message::assistant(id),
            finish_reason: None,
            texts: BTreeMap::new(),
            reasonings: BTreeMap::new(),
            inputs: BTreeMap::new(),
        }
    }

    /// Continues an assistant's message; after any other message it starts an empty one with the same id, as the AI SDK
    /// does. Text that is still open there stays as it is, a streamed input may go on.
    pub fn onto(sdk: Sdk, message: Message) -> Self {
        if message.role != Role::Assistant {
            return Self::new(sdk, message.id);
        }
        let mut fold = Self::new(sdk, String::new());
        fold.message = message;
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

    /// Returns the message so far. The inputs that are still arriving are given their values first.
    pub fn message(&mut self) -> &Message {
        self.settle();
        &self.message
    }

    /// Returns the message so far for a change. Parts may be changed and added, but must stay in their places.
    pub fn message_mut(&mut self) -> &mut Message {
        self.settle();
        &mut self.message
    }

    /// Returns the message so far without changing anything here: a copy of it where inputs are still arriving.
    pub fn snapshot(&self) -> Cow<'_, Message> {
        if self.inputs.values().any(StreamedInput::lags) {
            Cow::Owned(self.clone().into_message())
        } else {
            Cow::Borrowed(&self.message)
        }
    }

    /// Returns the message so far as it lies here: `input` and `rawInput` of a call in `input-streaming` may lag behind.
    pub fn unsettled(&self) -> &Message {
        &self.message
    }

    pub fn into_message(mut self) -> Message {
        self.settle();
        self.message
    }

    /// Returns what the last `finish` said.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        self.finish_reason
    }

    /// Folds one chunk into the message.
    pub fn apply(&mut self, chunk: &Chunk<'_>) -> Result<(), FoldError> {
        if chunk.since() > self.sdk {
            return Err(FoldError::Newer);
        }
        match chunk {
            Chunk::Start {
                message_id,
                message_metadata,
            } => {
                let other = message_id.as_deref().filter(|id| *id != self.message.id);
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
                if self.sdk == Sdk::V6 {
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
                self.message.parts.truncate(step.start);
            }

            Chunk::TextStart {
                id,
                provider_metadata,
            } => {
                self.texts.insert(owned(id), self.message.parts.len());
                self.push(Part::Text(TextPart {
                    state: Some(TextState::Streaming),
                    provider_metadata: value(provider_metadata),
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
                let keeps_citations = self.sdk >= Sdk::V7;
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
                    provider_metadata: value(provider_metadata),
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
                    tool_metadata: value(tool_metadata),
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
                        provider_metadata: value(provider_metadata),
                        tool_metadata: input.tool_metadata.clone(),
                        title: input.title.clone(),
                        ..Update::default()
                    },
                );
                self.inputs.insert(owned(tool_call_id), input);
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
                    input: Some(input.as_ref().clone()),
                    provider_executed: *provider_executed,
                    provider_metadata: value(provider_metadata),
                    tool_metadata: value(tool_metadata),
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
                // A part that is there already decides which kind it is.
                let dynamic = match self.find_in_step(tool_call_id, None) {
                    Some(at) => self.tool(at).is_some_and(|tool| tool.dynamic),
                    None => dynamic.unwrap_or(false),
                };
                let input = Some(input.as_ref().clone());
                let (input, raw_input) = if dynamic || self.sdk >= Sdk::V7 {
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
                        provider_metadata: value(provider_metadata),
                        tool_metadata: value(tool_metadata),
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
                let newer = self.sdk >= Sdk::V7;
                let tool = self.call(tool_call_id)?;
                tool.state = ToolState::ApprovalRequested;
                let descriptor = value(approval_descriptor).filter(|value| !value.is_null());
                let is_automatic = is_automatic.filter(|is| newer && *is);
                tool.approval = Some(ApprovalField {
                    id: Some(owned(approval_id)),
                    extra: fields([
                        ("descriptor", descriptor),
                        ("inputSchemaInput", value(input_schema_input)),
                        (
                            "requestReason",
                            reason.as_deref().filter(|_| newer).map(Value::from),
                        ),
                        ("isAutomatic", is_automatic.map(Value::from)),
                        ("signature", signature.as_deref().map(Value::from)),
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
                    output: Some(output.as_ref().clone()),
                    preliminary: *preliminary,
                    provider_executed: *provider_executed,
                    provider_metadata: value(provider_metadata),
                    tool_metadata: value(tool_metadata),
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
                    provider_metadata: value(provider_metadata),
                    tool_metadata: value(tool_metadata),
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
                    provider_metadata: value(provider_metadata),
                    extra: Map::new(),
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
                    provider_metadata: value(provider_metadata),
                    extra: Map::new(),
                }));
            }
            Chunk::File {
                url,
                media_type,
                provider_metadata,
            } => self.push(Part::File(FilePart {
                media_type: owned(media_type),
                url: owned(url),
                provider_metadata: value(provider_metadata),
                ..FilePart::default()
            })),
            Chunk::ReasoningFile {
                url,
                media_type,
                provider_metadata,
            } => self.push(other(
                "reasoning-file",
                [
                    ("mediaType", Some(Value::from(media_type.as_ref()))),
                    ("url", Some(Value::from(url.as_ref()))),
                    ("providerMetadata", value(provider_metadata)),
                ],
            )),
            Chunk::Custom {
                kind,
                provider_metadata,
            } => self.push(other(
                "custom",
                [
                    ("kind", Some(Value::from(kind.as_ref()))),
                    ("providerMetadata", value(provider_metadata)),
                ],
            )),
            Chunk::SteeringMessage { id, parts } => self.push(other(
                "steering-message",
                [
                    ("id", Some(Value::from(id.as_ref()))),
                    ("parts", Some(parts.as_ref().clone())),
                ],
            )),
            Chunk::Data(data) => self.data(data),
        }
        Ok(())
    }

    fn push(&mut self, part: Part) {
        self.message.parts.push(part);
    }

    fn text(&mut self, chunk: &'static str, id: &str) -> Result<&mut TextPart, FoldError> {
        let at = self.texts.get(id).copied().unwrap_or(usize::MAX);
        match self.message.parts.get_mut(at) {
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
        match self.message.parts.get_mut(at) {
            Some(Part::Reasoning(part)) => Ok(part),
            _ => Err(FoldError::NotOpen {
                chunk,
                first: "reasoning-start",
                id: id.to_owned(),
            }),
        }
    }

    fn merge_metadata(&mut self, metadata: &Option<Json<'_>>) -> Result<(), FoldError> {
        metadata
            .as_deref()
            .map_or(Ok(()), |metadata| self.merge(metadata))
    }

    fn merge(&mut self, metadata: &Value) -> Result<(), FoldError> {
        metadata::merge(&mut self.message.metadata, metadata)
    }
}

fn owned(text: &Str<'_>) -> String {
    text.as_ref().to_owned()
}

fn value(json: &Option<Json<'_>>) -> Option<Value> {
    json.as_deref().cloned()
}

fn replace(old: &mut Option<Value>, new: &Option<Json<'_>>) {
    if let Some(new) = new.as_deref() {
        *old = Some(new.clone());
    }
}
