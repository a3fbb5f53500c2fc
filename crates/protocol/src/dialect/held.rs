//! Dialect `held`: approvals on the calls themselves, while text, outcomes and images wait for the last answer.
//!
//! ```text
//!   stored (native)                       held, while it goes on          held, when it has ended
//!   ───────────────────────────           ───────────────────────         ──────────────────────────────
//!   step-start                              –                               –
//!   text "Let me look."                     –                               –
//!   tool search   output, approval        tool search   responded         tool search   output
//!   step-start                              –                               –
//!   tool update   denied, approval        tool update   responded         tool update   error
//!   step-start                              –                               –
//!   text "Found 10."                        –                             text "Let me look.", text "Found 10."
//! ```
//!
//! The predicate of this dialect's front ends (docs/adr/0019) does not know steps: it reads all parts of the message, and
//! takes an output next to a text, or an error, for the end of the answer. For the same reason an answer that ends
//! without a text gets an empty one: without it, outputs would be sent again and again.
//!
//! What an agent that never asks says is streamed immediately. Its readers keep the stored steps, so that texts have the
//! ids of the shared frames; the chunks of steps are left out when they are written.

use std::borrow::Cow;

use serde_json::json;

use super::speech::SPEECH;
use super::withheld::{confirmed_as, hide_outcome, image_part, is_over, with_images, withheld};
use super::{Images, Rewritten, State, View};
use crate::chunk::{Chunk, DataChunk};
use crate::json_text::Json;
use crate::message::{FilePart, Message, Part, Role, TextPart, TextState, ToolPart, ToolState};

/// How clients see a reply.
#[derive(Debug)]
pub(super) struct Held {
    /// Whether content waits for the end of the reply: the agent may ask, or leave a call to the client.
    pub(super) withholds: bool,
}

impl View for Held {
    fn streams(&self) -> bool {
        !self.withholds
    }

    fn message<'m>(&self, stored: Cow<'m, Message>, state: &State<'_>) -> Cow<'m, Message> {
        if self.withholds {
            return match stored.role {
                Role::Assistant => Cow::Owned(project(&stored, state)),
                Role::System | Role::User => stored,
            };
        }
        let mut message = with_images(stored, |file| image(file, state.images));
        if state.has_ended && lacks_text(&message.parts) {
            message.to_mut().parts.push(empty_text());
        }
        message
    }

    fn at_rest(&self, message: Message) -> Message {
        as_read(message)
    }

    fn rewritten<'c>(&self, chunk: &Chunk<'c>) -> Rewritten<'c> {
        rewritten(chunk)
    }

    fn rewrites(&self) -> bool {
        true
    }

    fn file(&self, file: &FilePart, images: Option<&dyn Images>) -> Option<Part> {
        image(file, images)
    }

    /// The calls know whether a question is over.
    fn needs_calls(&self, stored: &Message, has_ended: bool) -> bool {
        self.withholds && stored.role == Role::Assistant && !has_ended
    }

    fn inlines_images(&self) -> bool {
        true
    }
}

fn project(message: &Message, state: &State<'_>) -> Message {
    let calls = message.parts.iter().filter_map(Part::as_tool);
    let mut parts: Vec<Part> = calls
        .map(|call| Part::Tool(Box::new(shown(call, state))))
        .collect();
    if state.has_ended {
        parts.extend(withheld(message, |file| image(file, state.images)));
        if lacks_text(&parts) {
            parts.push(empty_text());
        }
    }
    Message {
        id: message.id.clone(),
        role: message.role,
        metadata: message.metadata.clone().filter(|_| state.has_ended),
        parts,
        extra: message.extra.clone(),
    }
}

fn shown(tool: &ToolPart, state: &State<'_>) -> ToolPart {
    let mut call = tool.clone();
    if state.has_ended {
        return call;
    }
    let decided = tool
        .approval
        .as_ref()
        .and_then(|approval| approval.approved);
    let asked = state
        .calls
        .by_id(&tool.call_id)
        .and_then(|call| call.approval.as_ref());
    if tool.approval.is_some() && decided.is_none() && asked.is_some_and(is_over) {
        // The question must not keep the client from sending its other answers, as an open one or an error would.
        call.state = ToolState::OutputAvailable;
        call.output = Some(confirmed_as(false));
        call.error_text = None;
        return call;
    }
    let before = match decided {
        Some(_) => ToolState::ApprovalResponded,
        None => ToolState::InputAvailable,
    };
    hide_outcome(&mut call, before);
    call
}

/// Whether a client that takes a text for the end of the answer would find none. It may show calls that were lost.
fn lacks_text(parts: &[Part]) -> bool {
    !parts.iter().any(|part| matches!(part, Part::Text(_)))
}

fn empty_text() -> Part {
    Part::Text(TextPart {
        state: Some(TextState::Done),
        ..TextPart::default()
    })
}

/// The message as a client has it: without steps, denials as errors, and with these clients' names for what was used.
fn as_read(mut message: Message) -> Message {
    if message.role != Role::Assistant {
        return message;
    }
    message
        .parts
        .retain(|part| !matches!(part, Part::StepStart));
    for part in &mut message.parts {
        if let Part::Tool(call) = part
            && call.state == ToolState::OutputDenied
        {
            call.state = ToolState::OutputError;
            call.error_text = Some(DENIED.to_owned());
        }
    }
    message.metadata = message.metadata.map(|metadata| with_usage(&metadata));
    message
}

/// What a denied call says.
const DENIED: &str = "the user denied this call";

fn rewritten<'c>(chunk: &Chunk<'c>) -> Rewritten<'c> {
    match chunk {
        Chunk::StartStep | Chunk::FinishStep => Rewritten::LeftOut,
        Chunk::ToolOutputDenied { tool_call_id } => Rewritten::Changed(Chunk::ToolOutputError {
            tool_call_id: tool_call_id.clone(),
            error_text: Cow::Borrowed(DENIED),
            provider_executed: None,
            provider_metadata: None,
            tool_metadata: None,
            dynamic: None,
        }),
        Chunk::Start {
            message_id,
            message_metadata: Some(metadata),
        } => Rewritten::Changed(Chunk::Start {
            message_id: message_id.clone(),
            message_metadata: Some(with_usage(metadata)),
        }),
        Chunk::MessageMetadata { message_metadata } => {
            Rewritten::Changed(Chunk::metadata(&with_usage(message_metadata)))
        }
        Chunk::Data(data) if data.kind == SPEECH => Rewritten::Changed(Chunk::Data(speech(data))),
        _ => Rewritten::Unchanged,
    }
}

/// A piece of speech with these clients' names next to ours.
fn speech<'c>(chunk: &DataChunk<'c>) -> DataChunk<'c> {
    let samples = chunk.data.get("chunk").unwrap_or_else(Json::null);
    let (channels, bit_depth) = (json!(1).into(), json!(16).into());
    let data = chunk.data.with("content", &samples);
    DataChunk {
        data: data
            .with("channels", &channels)
            .with("bitDepth", &bit_depth),
        ..chunk.clone()
    }
}

/// Metadata with these clients' names for tokens next to ours.
fn with_usage(metadata: &Json) -> Json {
    let Some(usage) = metadata.get("usage") else {
        return metadata.clone();
    };
    let names = [
        ("promptTokens", "inputTokens"),
        ("completionTokens", "outputTokens"),
    ];
    let usage = names
        .into_iter()
        .fold(usage.clone(), |all, (theirs, ours)| {
            let count = usage.get(ours);
            count.map_or_else(|| all.clone(), |count| all.with(theirs, &count))
        });
    metadata.with("usage", &usage)
}

fn image(file: &FilePart, images: Option<&dyn Images>) -> Option<Part> {
    image_part(file, images, &["data", "content"])
}
