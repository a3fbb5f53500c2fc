//! The outbox: what a reply wants done, in order; one is reused for every input, so that a delta costs no allocation.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use crate::approval::{Refusal, Time};
use crate::calls::{Calls, Ids};
use crate::chunk::{Chunk, Sdk};
use crate::message::fold::Fold;
use crate::message::{Message, Part};
use crate::reply::Record;
use crate::wire::sse;

/// Something to be done for a reply. Effects are performed in order; those after a commit wait for it.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Store this, with its audit rows, in one transaction, before going on.
    Commit(Box<Commit>),
    /// Send these frames of the outbox to the readers of the turn.
    Frames(Range<usize>),
    /// Run the server tool of this call.
    RunTool { call: String },
    /// Start a run of the agent.
    Ask(Ask),
    /// Stop the run of the agent that is under way.
    CancelRun,
    /// The turn waits for a client's output; a tick is due at this time.
    HoldUntil(Time),
    /// The user's speech as text.
    Heard { text: String, finished: bool },
    /// The user spoke while the model did: what is queued for the player is void.
    Interrupted,
    /// A live agent says that its turn is complete.
    TurnComplete,
    /// The turn is over: `[DONE]`.
    End,
}

/// What is stored together.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    pub record: Record,
    pub audit: Vec<Audit>,
}

/// What an agent is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// One model call with the history of the chat, this reply included.
    History,
    /// A remote run that takes up results: first those of client tools, then confirmations, never mixed.
    Responses(Vec<Response>),
}

/// One result for a remote agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    pub id: String,
    pub name: String,
    pub response: Value,
}

/// One row of the audit; the server adds who, where and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    pub kind: AuditKind,
    pub call_id: Option<String>,
    pub tool: Option<String>,
    pub approval_id: Option<String>,
    pub reason: Option<String>,
    pub input_hash: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuditKind {
    ApprovalRequested,
    ApprovalApproved,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalSuperseded,
    ApprovalUnsupported,
    AnswerRefused,
    ToolStarted,
    ToolFinished,
    ToolFailed,
    ToolOutcomeUnknown,
    ToolRanDespiteDenial,
}

/// One encoded frame of the outbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    bytes: Range<usize>,
    pub kind: FrameKind,
}

/// What a reader must know of a frame without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A piece of text or of a tool's input.
    Delta,
    /// Anything else that changes the message.
    Body,
    /// Changes no message: reaches every reader and is not repeated.
    Transient,
    /// The last chunk of a turn.
    Terminal,
}

/// The effects of one input, and the frames that they refer to.
#[derive(Debug, Default)]
pub struct Outbox {
    pub effects: Vec<Effect>,
    pub(crate) audit: Vec<Audit>,
    frames: Vec<Frame>,
    bytes: Vec<u8>,
    barrier: usize,
}

impl Outbox {
    /// Empties the outbox and keeps its memory.
    pub fn clear(&mut self) {
        self.effects.clear();
        self.audit.clear();
        self.frames.clear();
        self.bytes.clear();
        self.barrier = 0;
    }

    /// Takes out the commit that comes before everything else, if one does: the first of a reply is stored together with
    /// what it answers.
    pub fn take_commit(&mut self) -> Option<Commit> {
        match self.effects.first() {
            Some(Effect::Commit(_)) => match self.effects.remove(0) {
                Effect::Commit(commit) => Some(*commit),
                _ => None,
            },
            _ => None,
        }
    }

    pub fn frames(&self, range: Range<usize>) -> &[Frame] {
        &self.frames[range]
    }

    /// Consecutive frames as one piece, ready to be written to an SSE stream.
    pub fn sse(&self, frames: Range<usize>) -> &[u8] {
        match (self.frames.get(frames.start), frames.end.checked_sub(1)) {
            (Some(first), Some(last)) if last >= frames.start => {
                &self.bytes[first.bytes.start..self.frames[last].bytes.end]
            }
            _ => &[],
        }
    }

    /// The JSON of one frame, without the SSE framing.
    pub fn json(&self, frame: &Frame) -> &[u8] {
        sse::payload(&self.bytes[frame.bytes.clone()])
    }

    pub(crate) fn push(&mut self, chunk: &Chunk<'_>) {
        let start = self.bytes.len();
        if !sse::chunk(&mut self.bytes, chunk, Sdk::V6) {
            return;
        }
        let index = self.frames.len();
        self.frames.push(Frame {
            bytes: start..self.bytes.len(),
            kind: FrameKind::of(chunk),
        });
        let mergeable = self.effects.len() > self.barrier;
        match self.effects.last_mut() {
            Some(Effect::Frames(range)) if mergeable => range.end = index + 1,
            _ => self.effects.push(Effect::Frames(index..index + 1)),
        }
    }

    /// Keeps later frames apart from earlier ones. Returns the place of what comes next.
    pub(crate) fn barrier(&mut self) -> usize {
        self.barrier = self.effects.len();
        self.barrier
    }
}

impl FrameKind {
    fn of(chunk: &Chunk<'_>) -> Self {
        match chunk {
            Chunk::TextDelta { .. }
            | Chunk::ReasoningDelta { .. }
            | Chunk::ToolInputDelta { .. } => Self::Delta,
            Chunk::Finish { .. } | Chunk::Error { .. } | Chunk::Abort { .. } => Self::Terminal,
            Chunk::Data(data) if data.transient == Some(true) => Self::Transient,
            _ => Self::Body,
        }
    }
}

impl AuditKind {
    /// The word under which the audit shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalRequested => "approval.requested",
            Self::ApprovalApproved => "approval.approved",
            Self::ApprovalDenied => "approval.denied",
            Self::ApprovalExpired => "approval.expired",
            Self::ApprovalSuperseded => "approval.superseded",
            Self::ApprovalUnsupported => "approval.unsupported",
            Self::AnswerRefused => "answer.refused",
            Self::ToolStarted => "tool.started",
            Self::ToolFinished => "tool.finished",
            Self::ToolFailed => "tool.failed",
            Self::ToolOutcomeUnknown => "tool.outcome_unknown",
            Self::ToolRanDespiteDenial => "tool.ran_despite_denial",
        }
    }
}

impl Audit {
    pub(crate) fn refused(id: &str, refusal: Refusal) -> Self {
        Self {
            kind: AuditKind::AnswerRefused,
            call_id: None,
            tool: None,
            approval_id: Some(id.to_owned()),
            reason: Some(refusal.to_string()),
            input_hash: None,
        }
    }
}

/// The message in the making: every chunk that is sent is also folded into it, so that the two cannot differ.
#[derive(Debug)]
pub(crate) struct Draft {
    fold: Fold,
}

impl Draft {
    pub(crate) fn new(id: &str) -> Self {
        Self {
            fold: Fold::new(Sdk::V7, id),
        }
    }

    pub(crate) fn onto(message: Message) -> Self {
        Self {
            fold: Fold::onto(Sdk::V7, message),
        }
    }

    pub(crate) fn message(&self) -> &Message {
        self.fold.unsettled()
    }

    pub(crate) fn into_message(self) -> Message {
        self.fold.into_message()
    }

    /// The message with the inputs that are still arriving.
    pub(crate) fn snapshot(&self) -> Cow<'_, Message> {
        self.fold.snapshot()
    }

    /// Folds a chunk and puts it into the outbox.
    pub(crate) fn emit(&mut self, chunk: &Chunk<'_>, out: &mut Outbox) {
        self.apply(chunk);
        out.push(chunk);
    }

    /// Folds a chunk that only the stored message shows.
    pub(crate) fn apply(&mut self, chunk: &Chunk<'_>) {
        let folded = self.fold.apply(chunk);
        // An `error` chunk ends a fold by design; anything else would be a chunk that no client accepts.
        debug_assert!(
            folded.is_ok() || matches!(chunk, Chunk::Error { .. }),
            "{folded:?} {chunk:?}"
        );
    }

    /// Keeps what a human filled in beside a decision, where the client has it too.
    pub(crate) fn fill_in(&mut self, approval_id: &str, payload: Value) {
        let parts = &mut self.fold.message_mut().parts;
        let mut approvals = parts.iter_mut().rev().filter_map(|part| match part {
            Part::Tool(tool) => tool.approval.as_mut(),
            _ => None,
        });
        if let Some(approval) = approvals.find(|other| other.id.as_deref() == Some(approval_id)) {
            approval.extra.insert("payload".into(), payload);
        }
    }

    /// The index of the next part, from which ids of text parts are made: a replay of the message finds the same ids.
    pub(crate) fn next_index(&self) -> usize {
        self.message().parts.len()
    }

    /// Whether the current step holds a tool call: the stock predicates look at nothing else.
    pub(crate) fn step_has_tools(&self) -> bool {
        self.message()
            .parts
            .iter()
            .rev()
            .take_while(|part| !matches!(part, Part::StepStart))
            .any(|part| matches!(part, Part::Tool(_)))
    }
}

/// Where a translation is written: the book of calls, the message, and the outbox.
pub(crate) struct Page<'p> {
    pub(crate) calls: &'p mut Calls,
    pub(crate) ids: &'p mut dyn Ids,
    pub(crate) draft: &'p mut Draft,
    pub(crate) out: &'p mut Outbox,
    /// The number of the step that calls are made in.
    pub(crate) step: u32,
}

impl Page<'_> {
    pub(crate) fn emit(&mut self, chunk: &Chunk<'_>) {
        self.draft.emit(chunk, self.out);
    }
}
