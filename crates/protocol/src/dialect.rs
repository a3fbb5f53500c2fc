//! Dialects: one stored reply as a client of either dialect sees it.
//!
//! `native` is the stored form itself. `adk` is a projection of it, nothing is kept twice:
//!
//! ```text
//!   stored (native)                       adk, while it goes on           adk, when it has ended
//!   ───────────────────────────           ───────────────────────         ──────────────────────────────
//!   step-start                            step-start                      step-start
//!   text "Let me look."                     –                               –
//!   tool search   output, approval        tool search   input             tool search   output
//!                                         tool adk_request_confirmation   tool adk_request_confirmation {confirmed}
//!   step-start                            step-start                      step-start
//!   tool update   approval-requested      tool update   input             tool update   output
//!                                         tool adk_request_confirmation   tool adk_request_confirmation {confirmed}
//!   step-start                              –                             step-start
//!   text "Found 10. Updated."               –                             text "Let me look.", text "Found 10. …"
//! ```
//!
//! Text, reasoning, images and outputs wait until the reply has ended: ADR 0006's predicate takes a text in the step for
//! the end of the answer. An agent that never asks streams at once; only its images take the form of this dialect.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::approval::{Approval, ApprovalState};
use crate::calls::{Call, Calls, RunsOn};
use crate::chunk::{Chunk, Sdk};
use crate::event::REQUEST_CONFIRMATION;
use crate::message::replay::{
    Cursor, catch_up, disown, finish_step, orphans, show_last_step, show_step, start,
};
use crate::message::{ApprovalField, DataPart, FilePart, Message, Part, ToolPart, ToolState};
use crate::outbox::{FrameKind, Outbox};
use crate::reply::{Reply, metadata_chunk};
use crate::wire::sse;

/// Which wire form a client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dialect {
    /// Only standard parts of the AI SDK.
    #[default]
    Native,
    /// The form of ADR 0004 to 0006: an approval is a tool call of its own.
    Adk,
}

impl Dialect {
    /// The word by which clients ask for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Adk => "adk",
        }
    }
}

/// A word that is no dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown dialect {0:?}; use \"native\" or \"adk\"")]
pub struct UnknownDialect(String);

impl std::str::FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(word: &str) -> Result<Self, UnknownDialect> {
        match word {
            "native" => Ok(Self::Native),
            "adk" => Ok(Self::Adk),
            other => Err(UnknownDialect(other.to_owned())),
        }
    }
}

/// Images that are kept outside of messages; this dialect shows them inside.
pub trait Images: Debug + Send + Sync {
    /// The base64 of the image at this address, where it is one of ours.
    fn base64(&self, url: &str) -> Option<String>;
}

/// How one reader of a turn sees it.
///
/// A reader is attached when its turn begins, or in the middle of it, and then given every [`Effect::Frames`] of the
/// turn. One that cannot keep up is [parked](Reader::park) and later brought up to date from the message.
///
/// [`Effect::Frames`]: crate::outbox::Effect::Frames
#[derive(Debug)]
pub struct Reader {
    view: View,
    sdk: Sdk,
    /// What it has, where it does not simply get every frame.
    cursor: Option<Cursor>,
    parked: bool,
    images: Option<Arc<dyn Images>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    /// Frames pass as they are.
    Native,
    /// Frames pass as they are, images excepted.
    Images,
    /// The reader gets what the projection shows, when it changes.
    Held,
}

impl Reader {
    /// For a client; `may_ask` says whether the agent has tools that need approval.
    pub fn new(dialect: Dialect, sdk: Sdk, may_ask: bool) -> Self {
        Self {
            view: match (dialect, may_ask) {
                (Dialect::Native, _) => View::Native,
                (Dialect::Adk, false) => View::Images,
                (Dialect::Adk, true) => View::Held,
            },
            sdk,
            cursor: None,
            parked: false,
            images: None,
        }
    }

    /// Says where images are found that are kept outside of the message.
    pub fn with_images(mut self, images: Arc<dyn Images>) -> Self {
        self.images = Some(images);
        self
    }

    /// Begins a reader's stream: `start`, then what it misses. `theirs` is the copy of the message that its client has.
    pub fn attach(&mut self, reply: &Reply, theirs: Option<&Message>, out: &mut Vec<u8>) {
        let ours = self.project(reply);
        let mut cursor = match theirs {
            Some(theirs) => Cursor::of_client(theirs, &ours),
            None => Cursor::nothing(),
        };
        let sdk = self.sdk;
        let mut emit = |chunk: &Chunk<'_>| encode(chunk, sdk, out);
        start(&ours, &mut emit);
        let orphans = theirs.map_or_else(Vec::new, |theirs| orphans(theirs, &ours));
        for orphan in &orphans {
            disown(orphan, &mut emit);
        }
        let steps = cursor.steps();
        let growing = ours.first_growing().filter(|_| !reply.is_step_open());
        if let Some(growing) = growing {
            // What is said beside an open call comes after the end of its step, and v6 forgets a text at that end.
            let mut before = ours.clone().into_owned();
            before.parts.truncate(growing);
            catch_up(&before, &mut cursor, sdk, &mut emit);
            finish_step(&mut cursor, &mut emit);
        }
        catch_up(&ours, &mut cursor, sdk, &mut emit);
        // What was lost must not stay in the last step, where the predicates would send it for ever; but a call that
        // waits there must stay visible.
        let waits = reply.calls().iter().any(Call::waits_for_client);
        if !orphans.is_empty() && cursor.steps() == steps && !waits {
            cursor.open_step(&mut emit);
            show_step(&ours, &mut emit);
        }
        // A step that is open goes on in the frames to come; the frame that ends it ends this one too.
        if !reply.is_step_open() || self.view == View::Held {
            finish_step(&mut cursor, &mut emit);
            if cursor.steps() > steps {
                show_last_step(&ours, &mut emit);
            }
        }
        self.cursor = (self.view == View::Held).then_some(cursor);
    }

    /// The message as its client has it when it has read everything so far.
    pub fn whole(&self, reply: &Reply) -> Message {
        self.project(reply).into_owned()
    }

    /// Passes on frames of the outbox, as far as this reader sees them.
    pub fn frames(
        &mut self,
        reply: &Reply,
        outbox: &Outbox,
        range: Range<usize>,
        out: &mut Vec<u8>,
    ) {
        if self.parked {
            return;
        }
        if self.view == View::Native {
            return out.extend_from_slice(outbox.sse(range));
        }
        for index in range {
            let frame = &outbox.frames(index..index + 1)[0];
            match (self.view, frame.kind) {
                (View::Held, FrameKind::Delta) => {}
                (View::Held, FrameKind::Body) => self.update(reply, false, out),
                (View::Held, FrameKind::Terminal) => {
                    self.update(reply, true, out);
                    out.extend_from_slice(outbox.sse(index..index + 1));
                }
                (View::Images, FrameKind::Body) => {
                    match image_frame(outbox.json(frame), self.images.as_deref()) {
                        Some(chunk) => encode(&chunk, self.sdk, out),
                        None => out.extend_from_slice(outbox.sse(index..index + 1)),
                    }
                }
                _ => out.extend_from_slice(outbox.sse(index..index + 1)),
            }
        }
    }

    /// Stops passing frames to a reader that cannot take them. Call it before the input whose frames it would miss.
    pub fn park(&mut self, reply: &Reply) {
        self.parked = true;
        if self.cursor.is_none() {
            let ours = self.project(reply);
            self.cursor = Some(Cursor::all_of(&ours, reply.is_step_open()));
        }
    }

    /// Brings a parked reader up to date; frames pass again from here on.
    pub fn unpark(&mut self, reply: &Reply, out: &mut Vec<u8>) {
        self.parked = false;
        if self.view == View::Held {
            return self.update(reply, false, out);
        }
        if let Some(mut cursor) = self.cursor.take() {
            let ours = self.project(reply);
            let sdk = self.sdk;
            catch_up(&ours, &mut cursor, sdk, &mut |chunk| {
                encode(chunk, sdk, out)
            });
        }
    }

    /// Ends the stream of a reader that is parked: what it misses, then the last chunk.
    pub fn finish(&mut self, reply: &Reply, terminal: &[u8], out: &mut Vec<u8>) {
        let ours = self.project(reply).into_owned();
        if let Some(mut cursor) = self.cursor.take() {
            let sdk = self.sdk;
            let mut emit = |chunk: &Chunk<'_>| encode(chunk, sdk, out);
            catch_up(&ours, &mut cursor, sdk, &mut emit);
            finish_step(&mut cursor, &mut emit);
            end_message(&ours, &mut emit);
        }
        out.extend_from_slice(terminal);
    }

    fn update(&mut self, reply: &Reply, last: bool, out: &mut Vec<u8>) {
        let ours = self.project(reply).into_owned();
        let sdk = self.sdk;
        if let Some(cursor) = &mut self.cursor {
            let mut emit = |chunk: &Chunk<'_>| encode(chunk, sdk, out);
            catch_up(&ours, cursor, sdk, &mut emit);
            if last {
                finish_step(cursor, &mut emit);
                end_message(&ours, &mut emit);
            }
        }
    }

    fn project<'r>(&self, reply: &'r Reply) -> Cow<'r, Message> {
        match self.view {
            View::Native => reply.snapshot(),
            View::Images => Cow::Owned(with_images(&reply.snapshot(), self.images.as_deref())),
            View::Held => Cow::Owned(project_but(
                &reply.snapshot(),
                reply.calls(),
                reply.ended().is_some(),
                reply.asking_step(),
                self.images.as_deref(),
            )),
        }
    }
}

/// Brings the metadata that a message ends with.
fn end_message(ours: &Message, emit: &mut dyn FnMut(&Chunk<'_>)) {
    match &ours.metadata {
        Some(metadata) => emit(&metadata_chunk(metadata)),
        None => show_last_step(ours, emit),
    }
}

/// A message in the `adk` dialect. `ended`: whether its reply has come to its end, so that nothing is held back.
pub fn project(message: &Message, calls: &Calls, ended: bool) -> Message {
    project_but(message, calls, ended, None, None)
}

/// Leaves out the calls of the step that the agent is still speaking in: confirmations may yet come between them, and
/// a reader cannot be sent a part that belongs before one that it has.
fn project_but(
    message: &Message,
    calls: &Calls,
    ended: bool,
    asking: Option<u32>,
    images: Option<&dyn Images>,
) -> Message {
    let mut parts = Vec::new();
    let mut held = Vec::new();
    for step in message.parts.split(|part| matches!(part, Part::StepStart)) {
        let mut opened = false;
        let shown = ended || is_left_to_client(step, calls);
        for part in step {
            match part {
                Part::Tool(tool) if is_in(tool, calls, asking) => {}
                Part::Tool(tool) => {
                    if !std::mem::replace(&mut opened, true) {
                        parts.push(Part::StepStart);
                    }
                    let approval = calls
                        .by_id(&tool.call_id)
                        .and_then(|call| call.approval.as_ref());
                    parts.push(Part::Tool(Box::new(project_call(tool, shown))));
                    if let Some(field) = &tool.approval {
                        parts.push(Part::Tool(Box::new(confirmation(
                            tool, field, approval, ended,
                        ))));
                    }
                }
                Part::StepStart => {}
                // It is not shown yet, and an image is much to copy.
                _ if !ended => {}
                Part::File(file) => {
                    held.push(image_part(file, images).unwrap_or_else(|| part.clone()));
                }
                other => held.push(other.clone()),
            }
        }
    }
    if ended {
        if !held.is_empty() || !parts.is_empty() {
            // A last step without tools: the client has nothing to send any more.
            parts.push(Part::StepStart);
        }
        parts.append(&mut held);
    }
    Message {
        id: message.id.clone(),
        role: message.role,
        metadata: message.metadata.clone().filter(|_| ended),
        parts,
        extra: message.extra.clone(),
    }
}

/// Whether a step waits for client tools and asks nobody: its client sends when it has every output of the step.
fn is_left_to_client(step: &[Part], calls: &Calls) -> bool {
    let mut tools = step.iter().filter_map(Part::as_tool);
    let runs_in_client = |tool: &ToolPart| {
        calls
            .by_id(&tool.call_id)
            .is_some_and(|call| call.runs_on == RunsOn::Client)
    };
    tools.clone().all(|tool| tool.approval.is_none()) && tools.any(runs_in_client)
}

fn is_in(tool: &ToolPart, calls: &Calls, step: Option<u32>) -> bool {
    step.is_some()
        && calls
            .by_id(&tool.call_id)
            .is_none_or(|call| Some(call.step) == step)
}

/// The call itself: its approval sits on the confirmation, and its output may be held back.
fn project_call(tool: &ToolPart, shown: bool) -> ToolPart {
    let mut call = tool.clone();
    call.approval = None;
    match call.state {
        ToolState::OutputAvailable | ToolState::OutputError | ToolState::OutputDenied if shown => {}
        ToolState::InputStreaming => {}
        _ => {
            call.state = ToolState::InputAvailable;
            call.output = None;
            call.error_text = None;
        }
    }
    call
}

/// The call by which consent is asked for, in the words of ADK.
fn confirmation(
    tool: &ToolPart,
    field: &ApprovalField,
    approval: Option<&Approval>,
    ended: bool,
) -> ToolPart {
    let id = field.id.as_deref().unwrap_or(&tool.call_id);
    let hint = approval.map_or_else(
        || crate::reply::default_hint(&tool.name),
        |approval| approval.hint.clone(),
    );
    let mut part = ToolPart::new(id.to_owned(), REQUEST_CONFIRMATION);
    part.input = Some(json!({
        "originalFunctionCall": {
            "id": tool.call_id,
            "name": tool.name,
            "args": tool.input.clone().unwrap_or_else(|| json!({})),
        },
        "toolConfirmation": {"hint": hint, "confirmed": false},
    }));
    let payload = approval.and_then(|approval| approval.payload.as_ref());
    if let (Some(payload), Some(input)) = (payload, &mut part.input) {
        input["toolConfirmation"]["payload"] = payload.clone();
    }
    part.approval = Some(ApprovalField {
        id: Some(id.to_owned()),
        approved: field.approved,
        reason: field.reason.clone(),
        extra: field
            .extra
            .get("payload")
            .map(|payload| ("payload".to_owned(), payload.clone()))
            .into_iter()
            .collect(),
    });
    part.state = match field.approved {
        Some(confirmed) if ended => {
            part.output = Some(json!({"confirmed": confirmed}));
            ToolState::OutputAvailable
        }
        Some(_) => ToolState::ApprovalResponded,
        // Nobody consented. An error would keep the client from sending its other answers of the step.
        None if ended || approval.is_some_and(is_over) => {
            part.output = Some(json!({"confirmed": false}));
            ToolState::OutputAvailable
        }
        None => ToolState::ApprovalRequested,
    };
    part
}

fn is_over(approval: &Approval) -> bool {
    matches!(
        approval.state,
        ApprovalState::Expired | ApprovalState::Superseded
    )
}

fn with_images(message: &Message, images: Option<&dyn Images>) -> Message {
    let mut message = message.clone();
    for part in &mut message.parts {
        if let Part::File(file) = part
            && let Some(image) = image_part(file, images)
        {
            *part = image;
        }
    }
    message
}

fn image_part(file: &FilePart, images: Option<&dyn Images>) -> Option<Part> {
    Some(Part::Data(DataPart {
        kind: "data-image".to_owned(),
        id: None,
        data: image_data(&file.media_type, &file.url, images)?,
        extra: Map::new(),
    }))
}

/// An image in the form of this dialect. One that lies elsewhere is named by its address.
fn image_data(media_type: &str, url: &str, images: Option<&dyn Images>) -> Option<Value> {
    if !media_type.starts_with("image/") {
        return None;
    }
    let inline = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"));
    let data = match inline {
        Some((_, data)) => Some(Cow::Borrowed(data)),
        None => images.and_then(|images| images.base64(url)).map(Cow::Owned),
    };
    Some(match data {
        Some(data) => json!({"mediaType": media_type, "data": data}),
        None => json!({"mediaType": media_type, "url": url}),
    })
}

fn image_frame(json: &[u8], images: Option<&dyn Images>) -> Option<Chunk<'static>> {
    if !json.starts_with(br#"{"type":"file""#) {
        return None;
    }
    let chunk: Value = serde_json::from_slice(json).ok()?;
    let data = image_data(
        chunk.get("mediaType")?.as_str()?,
        chunk.get("url")?.as_str()?,
        images,
    )?;
    Some(Chunk::Data(crate::chunk::DataChunk {
        kind: Cow::Borrowed("data-image"),
        id: None,
        data: Cow::Owned(data),
        transient: None,
    }))
}

fn encode(chunk: &Chunk<'_>, sdk: Sdk, out: &mut Vec<u8>) {
    sse::chunk(out, chunk, sdk);
}
