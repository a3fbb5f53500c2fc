//! Message → chunks: all of it for a reader that has nothing, or the missing rest for one that has a part.
//!
//! Both are [`catch_up`] from a [`Cursor`], which also serves resumes, lagging readers, requests that arrive after the
//! continuation ran, and the `adk` view of a running reply.
//!
//! A reader does not get what its version has no [`Feature`](crate::sdk::Feature) for: without responses to approvals,
//! for example, a part stays `approval-requested` until it has an output. In no version can chunks carry a file's name,
//! what was filled in with an approval, the raw input of a refused call if a client keeps it as `input`, fields that
//! the bridge does not know, or part types without their own chunk; [`Message`]s that are loaded as JSON have all of
//! these.

mod text;
mod tools;

use std::borrow::Cow;

use super::{Message, Part, ReasoningPart, TextPart};
use crate::chunk::{Chunk, DataChunk};
use crate::json_text::Json;
use crate::sdk::Sdk;

use text::{Prose, SeenText};
use tools::SeenCall;
pub use tools::{disown, orphans};

/// How much of a message a reader has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cursor {
    seen: Vec<Seen>,
    step_open: bool,
    steps: usize,
}

/// What a reader has of one part.
#[derive(Debug, Clone, PartialEq, Default)]
enum Seen {
    #[default]
    Unseen,
    Text(SeenText),
    Call(SeenCall),
    Whole,
    /// The reader lacks it, but it cannot be inserted before parts that the reader has.
    Skipped,
}

impl Cursor {
    /// For a reader that has nothing.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// For a reader that has everything so far and whose stream is still open.
    pub fn all_of(message: &Message, step_open: bool) -> Self {
        Self {
            seen: message.parts.iter().map(Seen::all_of).collect(),
            step_open,
            steps: 0,
        }
    }

    /// How many steps the reader has been shown.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Shows the beginning of a step.
    pub(crate) fn open_step(&mut self, emit: &mut dyn FnMut(&Chunk<'_>)) {
        finish_step(self, emit);
        self.step_open = true;
        self.steps += 1;
        emit(&Chunk::StartStep);
    }

    /// For a client that sent its own copy of the message, which may be old or trimmed.
    pub fn of_client(theirs: &Message, ours: &Message) -> Self {
        let mut seen: Vec<Seen> = Vec::new();
        // A copy may have lost its step boundaries.
        let has_steps = theirs.parts.contains(&Part::StepStart);
        let next_calls = next_calls(theirs, ours);
        for (part, next_call) in theirs.parts.iter().zip(next_calls) {
            let from = seen.len().min(ours.parts.len());
            let mut rest = &ours.parts[from..];
            // Only calls have ids. Any other part may look like a much later one and must not be taken for it: the
            // parts in between would never be sent.
            if part.as_tool().is_none() {
                let is_end = |other: &Part| has_steps && matches!(other, Part::StepStart);
                let boundary = rest.iter().position(is_end).filter(|_| !is_end(part));
                let next_call = next_call.and_then(|at| at.checked_sub(from));
                let end = [boundary, next_call].into_iter().flatten().min();
                rest = &rest[..end.unwrap_or(rest.len())];
            }
            let found = rest.iter().position(|other| is_same(part, other));
            if let Some(offset) = found {
                seen.resize(from + offset, Seen::Skipped);
                seen.push(Seen::of_client(part, &rest[offset]));
            }
        }
        Self {
            seen,
            step_open: false,
            steps: 0,
        }
    }
}

/// For each of a client's parts, the index of the next call after it in our message.
fn next_calls(theirs: &Message, ours: &Message) -> Vec<Option<usize>> {
    let mut next = None;
    let mut found: Vec<_> = (theirs.parts.iter().rev())
        .map(|part| {
            let behind = next;
            if part.as_tool().is_some() {
                let place = ours.parts.iter().position(|other| is_same(part, other));
                next = place.or(next);
            }
            behind
        })
        .collect();
    found.reverse();
    found
}

/// Writes the chunks that turn a message without parts into this one.
pub fn replay(message: &Message, sdk: Sdk, emit: &mut dyn FnMut(&Chunk<'_>)) {
    start(message, emit);
    let mut cursor = Cursor::nothing();
    catch_up(message, &mut cursor, sdk, emit);
    finish_step(&mut cursor, emit);
    show_last_step(message, emit);
}

/// Writes the chunk that names the message and carries its metadata.
pub fn start(message: &Message, emit: &mut dyn FnMut(&Chunk<'_>)) {
    emit(&Chunk::Start {
        message_id: Some(Cow::Borrowed(message.id.as_str())),
        message_metadata: message.metadata.clone(),
    });
}

/// Ends the step that a catch-up left open.
pub fn finish_step(cursor: &mut Cursor, emit: &mut dyn FnMut(&Chunk<'_>)) {
    if std::mem::take(&mut cursor.step_open) {
        emit(&Chunk::FinishStep);
    }
}

/// Shows the last step of a message if it is empty.
pub(crate) fn show_last_step(message: &Message, emit: &mut dyn FnMut(&Chunk<'_>)) {
    if message.ends_with_a_step() {
        show_step(message, emit);
    }
}

/// Makes clients show a step that was opened. They show it only when another chunk of the message follows; until then,
/// their predicates would keep finding the calls of the step before it.
pub(crate) fn show_step(message: &Message, emit: &mut dyn FnMut(&Chunk<'_>)) {
    let nothing = Json::empty();
    emit(&Chunk::metadata(
        message.metadata.as_ref().unwrap_or(&nothing),
    ));
}

/// Writes what a reader lacks of a message, and moves its cursor to the end: first the changes in the parts that it
/// has, then the later parts.
pub fn catch_up(
    message: &Message,
    cursor: &mut Cursor,
    sdk: Sdk,
    emit: &mut dyn FnMut(&Chunk<'_>),
) {
    let known = cursor.seen.len().min(message.parts.len());
    let (had, new) = message.parts.split_at(known);
    for (index, (part, seen)) in had.iter().zip(&mut cursor.seen).enumerate() {
        seen.update(part, index, sdk, emit);
    }
    for (part, index) in new.iter().zip(known..) {
        if matches!(part, Part::StepStart) {
            cursor.open_step(emit);
        }
        let mut seen = Seen::Unseen;
        seen.update(part, index, sdk, emit);
        cursor.seen.push(seen);
    }
}

/// Writes a part that is a single chunk.
pub(crate) fn emit_whole(part: &Part, emit: &mut dyn FnMut(&Chunk<'_>)) {
    match part {
        Part::File(file) => emit(&Chunk::File {
            url: Cow::Borrowed(&file.url),
            media_type: Cow::Borrowed(&file.media_type),
            provider_metadata: file.provider_metadata.clone(),
        }),
        Part::SourceUrl(source) => emit(&Chunk::SourceUrl {
            source_id: Cow::Borrowed(&source.source_id),
            url: Cow::Borrowed(&source.url),
            title: source.title.as_deref().map(Cow::Borrowed),
            provider_metadata: source.provider_metadata.clone(),
        }),
        Part::SourceDocument(source) => emit(&Chunk::SourceDocument {
            source_id: Cow::Borrowed(&source.source_id),
            media_type: Cow::Borrowed(&source.media_type),
            title: Cow::Borrowed(&source.title),
            filename: source.filename.as_deref().map(Cow::Borrowed),
            provider_metadata: source.provider_metadata.clone(),
        }),
        Part::Data(data) => emit(&Chunk::Data(DataChunk {
            kind: Cow::Borrowed(&data.kind),
            id: data.id.as_deref().map(Cow::Borrowed),
            data: data.data.clone(),
            transient: None,
        })),
        // Parts of newer versions are kept unchanged, and are chunks of the same shape.
        Part::Other(fields) => {
            if let Ok(chunk) = Chunk::parse(fields.text()) {
                emit(&chunk);
            }
        }
        Part::StepStart | Part::Text(_) | Part::Reasoning(_) | Part::Tool(_) => {}
    }
}

fn is_same(theirs: &Part, ours: &Part) -> bool {
    match (theirs, ours) {
        (Part::Text(a), Part::Text(b)) => b.text.starts_with(&a.text),
        (Part::Reasoning(a), Part::Reasoning(b)) => b.text.starts_with(&a.text),
        (Part::Tool(a), Part::Tool(b)) => a.call_id == b.call_id,
        (Part::StepStart, Part::StepStart) => true,
        (Part::File(a), Part::File(b)) => a.url == b.url,
        (Part::SourceUrl(a), Part::SourceUrl(b)) => a.source_id == b.source_id,
        (Part::SourceDocument(a), Part::SourceDocument(b)) => a.source_id == b.source_id,
        (Part::Data(a), Part::Data(b)) => a.kind == b.kind && a.data == b.data,
        (Part::Other(a), Part::Other(b)) => a == b,
        _ => false,
    }
}

impl Seen {
    fn all_of(part: &Part) -> Self {
        match part {
            Part::Text(TextPart { text, state, .. })
            | Part::Reasoning(ReasoningPart { text, state, .. }) => {
                Self::Text(SeenText::all_of(text, *state))
            }
            Part::Tool(tool) => Self::Call(SeenCall::all_of(tool)),
            _ => Self::Whole,
        }
    }

    /// A client's text part cannot be continued by a new stream.
    fn of_client(theirs: &Part, ours: &Part) -> Self {
        match (Self::all_of(theirs), theirs, ours) {
            (Self::Text(seen), ..) => Self::Text(seen.closed()),
            (_, Part::Tool(theirs), Part::Tool(ours)) => {
                Self::Call(SeenCall::of_client(theirs, ours))
            }
            (other, ..) => other,
        }
    }

    /// Writes what the reader lacks of the part.
    fn update(&mut self, part: &Part, index: usize, sdk: Sdk, emit: &mut dyn FnMut(&Chunk<'_>)) {
        *self = match (part, std::mem::take(self)) {
            (_, Self::Skipped) => Self::Skipped,
            (_, Self::Whole) => Self::Whole,
            (Part::Text(text), seen) => {
                Self::Text(Prose::text(text, index).update(seen.text(), emit))
            }
            (Part::Reasoning(reasoning), seen) => {
                Self::Text(Prose::reasoning(reasoning, index).update(seen.text(), emit))
            }
            (Part::Tool(tool), seen) => {
                let mut call = seen.call();
                call.update(tool, sdk, emit);
                Self::Call(call)
            }
            (other, _) => {
                emit_whole(other, emit);
                Self::Whole
            }
        }
    }

    fn text(self) -> Option<SeenText> {
        match self {
            Self::Text(seen) => Some(seen),
            _ => None,
        }
    }

    fn call(self) -> SeenCall {
        match self {
            Self::Call(seen) => seen,
            _ => SeenCall::default(),
        }
    }
}
