//! Message → chunks: the whole of it for a reader that has nothing, or what is missing for one that has a part.
//!
//! Both are one thing, [`catch_up`] from a [`Cursor`]: resume, a reader that fell behind, a request that comes after the
//! continuation ran, and the `adk` view of a running reply all use it.
//!
//! What v6 cannot carry, and a v6 reader therefore does not get: the answer to an approval (`approval.approved` and
//! `reason`; the part stays `approval-requested` until it has an output), citations of a text, and v7-only parts. No
//! version can carry a file's name, what was filled in beside an approval, the raw input of a refused call in v7, fields
//! that this version does not know, or part types without a chunk of their own; [`crate::message::Message`]s that are
//! loaded as JSON have all of it.

mod tools;

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Message, Part, ReasoningPart, TextPart, TextState, ToolPart};
use crate::chunk::{Chunk, DataChunk, Sdk, Str};
use crate::reply::metadata_chunk;
use crate::translate::text_id;

pub use tools::{disown, orphans};
use tools::{rank, raw_len, update_tool};

/// How much of a message a reader has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cursor {
    seen: Vec<Seen>,
    step_open: bool,
    steps: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Seen {
    /// This many bytes; `open` while the reader can be sent more for the same part.
    Text {
        bytes: usize,
        open: bool,
    },
    /// The question is the one that was asked last: a tool may ask again when it was answered.
    Tool {
        rank: u8,
        raw: usize,
        question: Option<String>,
    },
    Whole,
    /// The reader lacks it, and it cannot be put before what the reader has.
    Never,
}

impl Cursor {
    /// For a reader that has nothing.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// For a reader that has everything so far, and whose stream is still open.
    pub fn all_of(message: &Message, step_open: bool) -> Self {
        Self {
            seen: message.parts.iter().map(Seen::all_of).collect(),
            step_open,
            steps: 0,
        }
    }

    /// How many steps it has been shown.
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

    /// For a client that sent its own copy of the message, possibly older or trimmed.
    pub fn of_client(theirs: &Message, ours: &Message) -> Self {
        let mut seen: Vec<Seen> = Vec::new();
        // A copy may have lost its boundaries.
        let has_steps = theirs.parts.contains(&Part::StepStart);
        let next_calls = next_calls(theirs, ours);
        for (part, next_call) in theirs.parts.iter().zip(next_calls) {
            let from = seen.len().min(ours.parts.len());
            let mut rest = &ours.parts[from..];
            // Only calls have a name of their own. Anything else may look like a part that came much later, and must
            // not be taken for it: what lies between would never be sent.
            if part.as_tool().is_none() {
                let is_end = |other: &Part| has_steps && matches!(other, Part::StepStart);
                let boundary = rest.iter().position(is_end).filter(|_| !is_end(part));
                let next_call = next_call.and_then(|at| at.checked_sub(from));
                let end = [boundary, next_call].into_iter().flatten().min();
                rest = &rest[..end.unwrap_or(rest.len())];
            }
            let found = rest.iter().position(|other| is_same(part, other));
            if let Some(offset) = found {
                seen.resize(from + offset, Seen::Never);
                seen.push(Seen::of_client(part));
            }
        }
        Self {
            seen,
            step_open: false,
            steps: 0,
        }
    }
}

/// For each of a client's parts, where the next call behind it lies in our message.
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

/// Writes the chunk that names the message and brings its metadata.
pub fn start(message: &Message, emit: &mut dyn FnMut(&Chunk<'_>)) {
    emit(&Chunk::Start {
        message_id: Some(Cow::Borrowed(&message.id)),
        message_metadata: message.metadata.as_ref().map(Cow::Borrowed),
    });
}

/// Ends the step that a catch-up left open.
pub fn finish_step(cursor: &mut Cursor, emit: &mut dyn FnMut(&Chunk<'_>)) {
    if std::mem::take(&mut cursor.step_open) {
        emit(&Chunk::FinishStep);
    }
}

/// Shows the last step of a message where there is nothing in it.
pub(crate) fn show_last_step(message: &Message, emit: &mut dyn FnMut(&Chunk<'_>)) {
    if message.ends_with_a_step() {
        show_step(message, emit);
    }
}

/// Makes clients show a step that was opened: they do not until something else of the message comes, and their
/// predicates would find the calls of the step before it for ever.
pub(crate) fn show_step(message: &Message, emit: &mut dyn FnMut(&Chunk<'_>)) {
    let nothing = Value::Object(Map::new());
    emit(&metadata_chunk(
        message.metadata.as_ref().unwrap_or(&nothing),
    ));
}

/// Writes what a reader misses of a message, and moves its cursor to the end: first what has changed in the parts that
/// it has, then the parts that came later.
pub fn catch_up(
    message: &Message,
    cursor: &mut Cursor,
    sdk: Sdk,
    emit: &mut dyn FnMut(&Chunk<'_>),
) {
    let known = cursor.seen.len().min(message.parts.len());
    for index in 0..known {
        update(
            &message.parts[index],
            index,
            &mut cursor.seen[index],
            sdk,
            emit,
        );
    }
    for (index, part) in message.parts.iter().enumerate().skip(known) {
        if matches!(part, Part::StepStart) {
            cursor.open_step(emit);
        }
        let mut seen = Seen::nothing_of(part);
        update(part, index, &mut seen, sdk, emit);
        cursor.seen.push(seen);
    }
}

fn update(part: &Part, index: usize, seen: &mut Seen, sdk: Sdk, emit: &mut dyn FnMut(&Chunk<'_>)) {
    match (part, &mut *seen) {
        (Part::Text(text), Seen::Text { bytes, open }) => {
            let part = Spoken::text(text, index);
            part.update(bytes, open, emit);
        }
        (Part::Reasoning(reasoning), Seen::Text { bytes, open }) => {
            let part = Spoken::reasoning(reasoning, index);
            part.update(bytes, open, emit);
        }
        (
            Part::Tool(tool),
            Seen::Tool {
                rank,
                raw,
                question,
            },
        ) => {
            let asked = question_of(tool);
            // Messages written by hand do not name the question.
            let another = question.is_some() && asked.is_some() && *question != asked;
            if another && asked.as_ref() == Some(&tool.call_id) {
                // A confirmation of the adk dialect is a call of its own: another question is another call.
                if let Some(old) = question.as_deref().filter(|_| *rank < SETTLED) {
                    emit(&Chunk::ToolOutputError {
                        tool_call_id: Cow::Borrowed(old),
                        error_text: Cow::Borrowed("this request was replaced by another one"),
                        provider_executed: None,
                        provider_metadata: None,
                        tool_metadata: None,
                        dynamic: None,
                    });
                }
                *rank = 0;
            } else if another && *rank < SETTLED {
                *rank = (*rank).min(ASKABLE);
            }
            *question = asked;
            update_tool(tool, rank, raw, sdk, emit);
        }
        (_, Seen::Whole | Seen::Never) => {}
        (part, _) => {
            emit_whole(part, emit);
            *seen = Seen::Whole;
        }
    }
}

/// What text and reasoning have in common.
struct Spoken<'p> {
    id: Str<'p>,
    text: &'p str,
    done: bool,
    metadata: Option<&'p Value>,
    citations: Option<&'p Value>,
    is_text: bool,
}

impl<'p> Spoken<'p> {
    fn text(part: &'p TextPart, index: usize) -> Self {
        Self {
            id: Cow::Owned(text_id(index)),
            text: &part.text,
            done: part.state != Some(TextState::Streaming),
            metadata: part.provider_metadata.as_ref(),
            citations: part.citations.as_ref(),
            is_text: true,
        }
    }

    fn reasoning(part: &'p ReasoningPart, index: usize) -> Self {
        Self {
            id: match &part.id {
                Some(id) => Cow::Borrowed(id),
                None => Cow::Owned(text_id(index)),
            },
            text: &part.text,
            done: part.state != Some(TextState::Streaming),
            metadata: part.provider_metadata.as_ref(),
            citations: None,
            is_text: false,
        }
    }

    fn update(&self, bytes: &mut usize, open: &mut bool, emit: &mut dyn FnMut(&Chunk<'_>)) {
        let unseen = *bytes == 0 && !*open;
        let rest = self.text.get(*bytes..).unwrap_or_default();
        // A part that still grows must be open to the reader, even if there is nothing new in it yet.
        if !*open && !unseen && rest.is_empty() && self.done {
            return;
        }
        let id = || Cow::Borrowed(self.id.as_ref());
        if !*open {
            // Metadata goes with the end where there is one: that is where signatures come.
            let provider_metadata = self.metadata.filter(|_| !self.done).map(Cow::Borrowed);
            emit(&match self.is_text {
                true => Chunk::TextStart {
                    id: id(),
                    provider_metadata,
                },
                false => Chunk::ReasoningStart {
                    id: id(),
                    provider_metadata,
                },
            });
            *open = true;
        }
        if !rest.is_empty() {
            let delta = Cow::Borrowed(rest);
            emit(&match self.is_text {
                true => Chunk::text_delta(id(), delta),
                false => Chunk::reasoning_delta(id(), delta),
            });
            *bytes = self.text.len();
        }
        if self.done {
            let provider_metadata = self.metadata.map(Cow::Borrowed);
            emit(&match self.is_text {
                true => Chunk::TextEnd {
                    id: id(),
                    provider_metadata,
                    citations: self.citations.map(Cow::Borrowed),
                },
                false => Chunk::ReasoningEnd {
                    id: id(),
                    provider_metadata,
                },
            });
            *open = false;
            // An empty part that has ended must not look unseen.
            *bytes = (*bytes).max(1);
        }
    }
}

/// The rank from which a call can be asked about.
const ASKABLE: u8 = 2;
/// The last rank.
const SETTLED: u8 = 5;

fn emit_whole(part: &Part, emit: &mut dyn FnMut(&Chunk<'_>)) {
    match part {
        Part::File(file) => emit(&Chunk::File {
            url: Cow::Borrowed(&file.url),
            media_type: Cow::Borrowed(&file.media_type),
            provider_metadata: file.provider_metadata.as_ref().map(Cow::Borrowed),
        }),
        Part::SourceUrl(source) => emit(&Chunk::SourceUrl {
            source_id: Cow::Borrowed(&source.source_id),
            url: Cow::Borrowed(&source.url),
            title: source.title.as_deref().map(Cow::Borrowed),
            provider_metadata: source.provider_metadata.as_ref().map(Cow::Borrowed),
        }),
        Part::SourceDocument(source) => emit(&Chunk::SourceDocument {
            source_id: Cow::Borrowed(&source.source_id),
            media_type: Cow::Borrowed(&source.media_type),
            title: Cow::Borrowed(&source.title),
            filename: source.filename.as_deref().map(Cow::Borrowed),
            provider_metadata: source.provider_metadata.as_ref().map(Cow::Borrowed),
        }),
        Part::Data(data) => emit(&Chunk::Data(DataChunk {
            kind: Cow::Borrowed(&data.kind),
            id: data.id.as_deref().map(Cow::Borrowed),
            data: Cow::Borrowed(&data.data),
            transient: None,
        })),
        // What v7 added is kept as it came, and is a chunk of the same shape.
        Part::Other(fields) => {
            if let Ok(chunk) = Chunk::parse(&Value::Object(fields.clone()).to_string()) {
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
    fn nothing_of(part: &Part) -> Self {
        match part {
            Part::Text(_) | Part::Reasoning(_) => Self::Text {
                bytes: 0,
                open: false,
            },
            Part::Tool(_) => Self::Tool {
                rank: 0,
                raw: 0,
                question: None,
            },
            Part::StepStart => Self::Whole,
            // Anything but `Whole` makes it be sent.
            _ => Self::Tool {
                rank: 0,
                raw: 0,
                question: None,
            },
        }
    }

    fn all_of(part: &Part) -> Self {
        match part {
            Part::Text(TextPart { text, state, .. })
            | Part::Reasoning(ReasoningPart { text, state, .. }) => Self::Text {
                bytes: text.len().max(1),
                open: *state == Some(TextState::Streaming),
            },
            Part::Tool(tool) => Self::Tool {
                rank: rank(&tool.state),
                raw: raw_len(tool),
                question: question_of(tool),
            },
            _ => Self::Whole,
        }
    }

    /// A client's text part cannot be continued by a new stream: what is missing comes as a part of its own.
    fn of_client(part: &Part) -> Self {
        match Self::all_of(part) {
            Self::Text { bytes, .. } => Self::Text { bytes, open: false },
            other => other,
        }
    }
}

fn question_of(tool: &ToolPart) -> Option<String> {
    tool.approval.as_ref()?.id.clone()
}
