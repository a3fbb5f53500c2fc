//! The outbox: the effects of a reply, in order; it is reused for every input, so that a delta costs no allocation.

use std::collections::VecDeque;
use std::ops::Range;

use crate::approval::Refusal;
use crate::calls::{Calls, IdSource};
use crate::chunk::Chunk;
use crate::id::{ApprovalId, CallId};
use crate::json_text::Json;
use crate::message::{Draft, FilePart};
use crate::reply::{Ignored, Record, ToolAnswer};
use crate::sdk::Sdk;
use crate::wire::sse;

/// Something to do for a reply. Effects are performed in order; those after a commit wait for it.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Store this, with its audit rows, in one transaction, before the next effect.
    Commit(Box<Commit>),
    /// Send these frames of the outbox to the readers of the turn.
    Frames(Range<usize>),
    /// Run the server tool of this call.
    RunTool {
        /// The call.
        call: CallId,
    },
    /// Give a running tool the answer to its question.
    AnswerTool {
        /// The question.
        question: CallId,
        /// The answer.
        answer: ToolAnswer,
    },
    /// Start a run of the agent.
    Ask(Ask),
    /// Stop the current run of the agent.
    CancelRun,
    /// An answer of the client changed nothing; the audit has it. `id` names the approval or the call.
    Refused {
        /// The id that the answer named.
        id: String,
        /// Why it was refused.
        refusal: Refusal,
    },
    /// The input was not legal in the state of the reply, and changed nothing.
    Ignored(Ignored),
    /// The user's speech as text.
    Heard {
        /// The words.
        text: String,
        /// Whether no more of them are to come.
        finished: bool,
    },
    /// The user spoke while the model was speaking: discard what is queued for the player.
    Interrupted,
    /// A live agent says that its turn is complete.
    TurnComplete,
    /// The turn is over: `[DONE]`.
    End,
}

/// What is stored in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// The reply as it is to be stored.
    pub record: Record,
    /// Rows for the audit, stored with it.
    pub audit: Vec<Audit>,
}

/// What the agent is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// One model call with the history of the chat, this reply included.
    History,
    /// A remote run that continues with results: first those of client tools, then confirmations, never both.
    Responses(Vec<Response>),
}

/// One result for a remote agent.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as in ADK, whose documentation describes them"
)]
pub struct Response {
    pub id: String,
    pub name: String,
    pub response: Json,
}

/// One row of the audit; the server adds the user, the origin and the time.
#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    /// What happened.
    pub kind: AuditKind,
    /// To which call.
    pub call_id: Option<CallId>,
    /// The name of its tool.
    pub tool: Option<String>,
    /// To which approval.
    pub approval_id: Option<ApprovalId>,
    /// Why, if somebody said so.
    pub reason: Option<String>,
    /// The hash of the arguments.
    pub input_hash: Option<String>,
}

/// What a row of the audit says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuditKind {
    /// A user was asked.
    ApprovalRequested,
    /// Somebody agreed.
    ApprovalApproved,
    /// Somebody refused.
    ApprovalDenied,
    /// Nobody answered in time.
    ApprovalExpired,
    /// The user wrote something else.
    ApprovalSuperseded,
    /// A tool ran that should have been asked about, and its server cannot ask.
    ApprovalUnsupported,
    /// An answer was not accepted.
    AnswerRefused,
    /// A tool was started.
    ToolStarted,
    /// A tool has an output.
    ToolFinished,
    /// A tool failed.
    ToolFailed,
    /// What a tool did is unknown, because the process ended.
    ToolOutcomeUnknown,
    /// A remote agent ran what was denied.
    ToolRanDespiteDenial,
}

/// One encoded frame of the outbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    bytes: Range<usize>,
    /// What it holds.
    pub kind: FrameKind,
}

/// What must be known about a frame without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A piece of text or of a tool's input.
    Delta,
    /// Names a file, which readers may get in another form or under another URL; see [`Outbox::file`].
    File(usize),
    /// Has fields for newer versions of the AI SDK; see [`Outbox::news`].
    News(usize),
    /// Anything else that changes the message.
    Body,
    /// Changes no message; it reaches every reader and is not repeated.
    Transient,
    /// The last chunk of a turn.
    Terminal,
}

/// The effects of one input, and the frames that they refer to.
#[derive(Debug, Default)]
pub struct Outbox {
    effects: VecDeque<Effect>,
    pub(crate) audit: Vec<Audit>,
    frames: Vec<Frame>,
    bytes: Vec<u8>,
    /// The files that frames name.
    files: Vec<FilePart>,
    /// Frames as the newest version gets them, if it gets more.
    news: Vec<Vec<u8>>,
    barrier: usize,
    /// Whether the input is an event of an agent, which may be one of many.
    pub(crate) is_event: bool,
}

impl Outbox {
    /// The next effect to perform.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The effects that have not been performed yet, in order.
    pub fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.effects.iter()
    }

    /// Empties the outbox but keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.effects.clear();
        self.audit.clear();
        self.frames.clear();
        self.bytes.clear();
        self.files.clear();
        self.news.clear();
        self.barrier = 0;
    }

    /// Whether one of the frames names a file, for which a reader may get another URL.
    pub fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Whether a newer version of the AI SDK gets more than the frames.
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// A [`FrameKind::News`] as the newest version gets it.
    pub fn news(&self, index: usize) -> &[u8] {
        &self.news[index]
    }

    /// The file of a [`FrameKind::File`].
    pub fn file(&self, index: usize) -> &FilePart {
        &self.files[index]
    }

    /// Takes the commit at the front, if there is one: the first commit of a reply is stored together with the messages
    /// that the reply answers.
    pub(crate) fn take_commit(&mut self) -> Option<Commit> {
        match self.effects.pop_front()? {
            Effect::Commit(commit) => Some(*commit),
            other => {
                self.effects.push_front(other);
                None
            }
        }
    }

    pub(crate) fn want(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Puts a commit, with the audit rows so far, in front of the effects since `mark`. Events that came at once are stored by
    /// the first commit, if all of them only have something to show: otherwise there would be a copy of the whole message for
    /// each. A decision and what is started for it stay apart.
    pub(crate) fn commit_at(&mut self, mark: usize, record: Record) {
        let mut audit = std::mem::take(&mut self.audit);
        let is_frames = |effect: &Effect| matches!(effect, Effect::Frames(_));
        let only_shows = self.is_event && self.effects.range(mark..).all(is_frames);
        let before = self.effects.range(..mark);
        let before = before.rev().position(|effect| !is_frames(effect));
        let before = before.map(|distance| mark - 1 - distance);
        let before = before.filter(|_| only_shows);
        if let Some(Effect::Commit(earlier)) = before.and_then(|at| self.effects.get_mut(at)) {
            earlier.record = record;
            earlier.audit.append(&mut audit);
            self.join_frames(mark);
            return;
        }
        let commit = Effect::Commit(Box::new(Commit { record, audit }));
        self.effects.insert(mark, commit);
    }

    /// Makes one effect of the frames on both sides of a place.
    fn join_frames(&mut self, place: usize) {
        let Some(Effect::Frames(after)) = self.effects.get(place).cloned() else {
            return;
        };
        if let Some(Effect::Frames(before)) =
            (place.checked_sub(1)).and_then(|before| self.effects.get_mut(before))
        {
            before.end = after.end;
            self.effects.remove(place);
        }
    }

    /// Reports an input that changed nothing; several of the same kind in a row are reported once.
    pub(crate) fn ignore(&mut self, why: Ignored) {
        if self.effects.back() != Some(&Effect::Ignored(why)) {
            self.effects.push_back(Effect::Ignored(why));
        }
    }

    /// Records a refused answer in the audit, and reports it to its sender.
    pub(crate) fn refuse(&mut self, id: &str, refusal: Refusal) {
        self.audit.push(Audit::refused(id, refusal));
        self.want(Effect::Refused {
            id: id.to_owned(),
            refusal,
        });
    }

    /// The frames of an effect.
    pub fn frames(&self, range: Range<usize>) -> &[Frame] {
        &self.frames[range]
    }

    /// Consecutive frames in one slice, ready to be written to an SSE stream.
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
        if !sse::chunk(&mut self.bytes, chunk, Sdk::OLDEST) {
            return;
        }
        let index = self.frames.len();
        let kind = match chunk.tool_metadata() {
            Some(_) => {
                let mut newest = Vec::new();
                sse::chunk(&mut newest, chunk, Sdk::NEWEST);
                self.news.push(newest);
                FrameKind::News(self.news.len() - 1)
            }
            None => FrameKind::of(chunk, &mut self.files),
        };
        self.frames.push(Frame {
            bytes: start..self.bytes.len(),
            kind,
        });
        let mergeable = self.effects.len() > self.barrier;
        match self.effects.back_mut() {
            Some(Effect::Frames(range)) if mergeable => range.end = index + 1,
            _ => self.want(Effect::Frames(index..index + 1)),
        }
    }

    /// Keeps later frames apart from earlier ones. Returns the position of the next effect.
    pub(crate) fn barrier(&mut self) -> usize {
        self.barrier = self.effects.len();
        self.barrier
    }
}

impl FrameKind {
    /// Stores the file that a chunk names.
    fn of(chunk: &Chunk<'_>, files: &mut Vec<FilePart>) -> Self {
        match chunk {
            Chunk::TextDelta { .. }
            | Chunk::ReasoningDelta { .. }
            | Chunk::ToolInputDelta { .. } => Self::Delta,
            Chunk::Finish { .. } | Chunk::Error { .. } | Chunk::Abort { .. } => Self::Terminal,
            Chunk::Data(data) if data.transient == Some(true) => Self::Transient,
            Chunk::File {
                url,
                media_type,
                provider_metadata,
            } => {
                files.push(FilePart {
                    url: url.as_ref().to_owned(),
                    media_type: media_type.as_ref().to_owned(),
                    provider_metadata: provider_metadata.clone(),
                    ..FilePart::default()
                });
                Self::File(files.len() - 1)
            }
            _ => Self::Body,
        }
    }
}

impl AuditKind {
    /// Its name in the audit.
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
            approval_id: Some(id.into()),
            reason: Some(refusal.to_string()),
            input_hash: None,
        }
    }
}

impl Draft {
    /// Folds a chunk and adds it to the outbox.
    pub(crate) fn emit(&mut self, chunk: &Chunk<'_>, out: &mut Outbox) {
        self.apply(chunk);
        out.push(chunk);
    }
}

/// Where a translation is written: the calls, the message and the outbox.
pub(crate) struct Emitter<'p> {
    pub(crate) calls: &'p mut Calls,
    pub(crate) ids: &'p mut dyn IdSource,
    pub(crate) draft: &'p mut Draft,
    pub(crate) out: &'p mut Outbox,
    /// The step of new calls.
    pub(crate) step: u32,
}

impl Emitter<'_> {
    pub(crate) fn emit(&mut self, chunk: &Chunk<'_>) {
        self.draft.emit(chunk, self.out);
    }
}
