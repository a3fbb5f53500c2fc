//! Tool calls as chunks: a reader gets the stages of a call that it has not seen.
//!
//! | reader has ╲ there is | input streaming | input | question | decision | outcome |
//! |---|---|---|---|---|---|
//! | nothing | start, delta | start, input | start, input, request | …, response | …, outcome |
//! | a part of the input | delta | input | input, request | …, response | …, outcome |
//! | the input | | | request | request, response | …, outcome |
//! | the question | | | | response | response, outcome |
//! | the decision | | | | | outcome |
//! | the outcome | | | | | outcome, if it is another one |
//!
//! A call that broke off while its input was arriving goes from the input so far to the outcome; a call that was
//! refused for its input ends with that input.

use std::borrow::Cow;

use crate::chunk::{Chunk, Str};
use crate::id::{ApprovalId, CallId};
use crate::json_text::Json;
use crate::message::{ApprovalField, Message, Part, ToolPart, ToolState, is_pending};
use crate::sdk::{Feature, Sdk};

/// The calls that a client shows but the stored message lacks, because of a crash before they were stored.
pub fn orphans<'t>(theirs: &'t Message, ours: &Message) -> Vec<&'t ToolPart> {
    let is_ours = |tool: &ToolPart| {
        let mut known = ours.parts.iter().filter_map(Part::as_tool);
        known.any(|other| other.call_id == tool.call_id)
    };
    let shown = theirs.parts.iter().filter_map(Part::as_tool);
    shown.filter(|tool| !is_ours(tool)).collect()
}

/// Ends a call in the client that will never be answered.
pub fn disown(tool: &ToolPart, emit: &mut dyn FnMut(&Chunk<'_>)) {
    if Progress::of(tool) < Progress::Settled {
        let lost = "this call was lost when the server restarted";
        emit(&error(&tool.call_id, lost, tool.dynamic, None));
    }
}

/// How far a call has come; each stage is reached through the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Progress {
    #[default]
    Unseen,
    /// This many bytes of the input's text have arrived.
    InputStarted {
        bytes: usize,
    },
    Input,
    Asked,
    Answered,
    Settled,
}

impl Progress {
    fn of(tool: &ToolPart) -> Self {
        match tool.state {
            ToolState::InputStreaming => Self::InputStarted {
                bytes: streamed(tool).len(),
            },
            ToolState::InputAvailable | ToolState::Other(_) => Self::Input,
            ToolState::ApprovalRequested => Self::Asked,
            ToolState::ApprovalResponded => Self::Answered,
            ToolState::OutputAvailable | ToolState::OutputError | ToolState::OutputDenied => {
                Self::Settled
            }
        }
    }
}

/// What a reader has of a call.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct SeenCall {
    progress: Progress,
    /// The latest question: a tool may ask again after an answer.
    question: Option<ApprovalId>,
    /// The outcome that it was sent or came up with: a dialect may have shown an earlier one while the reply went on, and a
    /// client's own may not count.
    outcome: Option<ToolState>,
}

impl SeenCall {
    /// For a reader that has all of it.
    pub(super) fn all_of(tool: &ToolPart) -> Self {
        Self {
            progress: Progress::of(tool),
            question: question_of(tool).cloned(),
            outcome: None,
        }
    }

    /// For a client that has this of our call.
    pub(super) fn of_client(theirs: &ToolPart, ours: &ToolPart) -> Self {
        let seen = Self::all_of(theirs);
        if seen.progress != Progress::Settled {
            return seen;
        }
        let waits = |tool: &ToolPart| tool.output.as_ref().is_some_and(is_pending);
        match waits(theirs) && !waits(ours) {
            true => Self {
                progress: Progress::Answered,
                ..seen
            },
            false => Self {
                outcome: Some(theirs.state.clone()),
                ..seen
            },
        }
    }

    /// Writes what a reader lacks of a call.
    pub(super) fn update(&mut self, tool: &ToolPart, sdk: Sdk, emit: &mut dyn FnMut(&Chunk<'_>)) {
        self.take_back_question(tool, emit);
        let (has, there_is) = (self.progress, Progress::of(tool));
        for stage in Stage::of(tool, has) {
            let reached = stage.reached(tool);
            if has < reached
                && reached <= there_is
                && let Some(chunk) = stage.chunk(tool, has, sdk)
            {
                emit(&chunk);
            }
        }
        self.progress = has.max(there_is);
        if there_is == Progress::Settled {
            let is_another = |shown: &ToolState| *shown != tool.state;
            if has == there_is && self.outcome.as_ref().is_some_and(is_another) {
                emit(&outcome(tool));
            }
            if has < there_is || self.outcome.is_some() {
                self.outcome = Some(tool.state.clone());
            }
        }
    }

    /// Goes back to before the question that the reader was shown, if the call has a different one.
    fn take_back_question(&mut self, tool: &ToolPart, emit: &mut dyn FnMut(&Chunk<'_>)) {
        let asked = question_of(tool);
        if self.question.as_ref() == asked {
            return;
        }
        let shown = std::mem::replace(&mut self.question, asked.cloned());
        // Messages written by hand do not name the question.
        let (Some(shown), Some(asked)) = (shown, asked) else {
            return;
        };
        let is_settled = self.progress == Progress::Settled;
        if tool.call_id == asked.to_call() {
            // The call is itself a question: another question would be another call.
            if !is_settled {
                let replaced = "this request was replaced by another one";
                emit(&error(&shown.to_call(), replaced, false, None));
            }
            self.progress = Progress::Unseen;
        } else if !is_settled {
            self.progress = self.progress.min(Progress::Input);
        }
    }
}

/// An event in the life of a call, sent as a chunk.
#[derive(Clone, Copy)]
enum Stage {
    Start,
    Delta,
    Input,
    Refusal,
    Request,
    Response,
    Outcome,
}

impl Stage {
    /// All events of this call, if it gets that far.
    fn of(tool: &ToolPart, has: Progress) -> &'static [Self] {
        let lacks_input = has < Progress::Input;
        if tool.state == ToolState::InputStreaming || lacks_input && broke_off(tool) {
            &[Self::Start, Self::Delta, Self::Outcome]
        } else if lacks_input && was_refused(tool) {
            &[Self::Start, Self::Refusal]
        } else {
            &[
                Self::Start,
                Self::Input,
                Self::Request,
                Self::Response,
                Self::Outcome,
            ]
        }
    }

    /// The progress of the call after the event.
    fn reached(self, tool: &ToolPart) -> Progress {
        match self {
            Self::Start => Progress::InputStarted { bytes: 0 },
            Self::Delta => Progress::InputStarted {
                bytes: streamed(tool).len(),
            },
            Self::Input => Progress::Input,
            Self::Request => Progress::Asked,
            Self::Response => Progress::Answered,
            Self::Refusal | Self::Outcome => Progress::Settled,
        }
    }

    /// The chunk that reports the event to a reader that has the call so far, if there is anything to report.
    fn chunk(self, tool: &ToolPart, has: Progress, sdk: Sdk) -> Option<Chunk<'_>> {
        match self {
            Self::Start => Some(start(tool)),
            Self::Delta => delta(tool, has),
            Self::Input => Some(input(tool)),
            Self::Refusal => Some(refusal(tool)),
            Self::Request => Some(request(tool, tool.approval.as_ref()?)),
            Self::Response if !sdk.has(Feature::ApprovalResponses) => None,
            Self::Response => response(tool, tool.approval.as_ref()?),
            Self::Outcome => Some(outcome(tool)),
        }
    }
}

/// Whether a call failed while its input was still arriving: the input so far is kept as text, or there was none.
fn broke_off(tool: &ToolPart) -> bool {
    tool.state == ToolState::OutputError && tool.input.is_some() == tool.raw_input.is_some()
}

/// Whether a call was refused for its input, and keeps the input as clients without [`Feature::RefusedInputs`] do.
fn was_refused(tool: &ToolPart) -> bool {
    tool.state == ToolState::OutputError && tool.input.is_none() && tool.raw_input.is_some()
}

/// The text of a streamed input, as far as it has arrived.
fn streamed(tool: &ToolPart) -> Cow<'_, str> {
    let text = tool.raw_input.as_ref().and_then(Json::as_str);
    text.unwrap_or_default()
}

fn question_of(tool: &ToolPart) -> Option<&ApprovalId> {
    tool.approval.as_ref()?.id.as_ref()
}

fn start(tool: &ToolPart) -> Chunk<'_> {
    let is_streaming = tool.state == ToolState::InputStreaming;
    Chunk::ToolInputStart {
        tool_call_id: Cow::Borrowed(tool.call_id.as_str()),
        tool_name: Cow::Borrowed(&tool.name),
        input_encoding: tool.input_encoding.filter(|_| is_streaming),
        provider_executed: tool.provider_executed,
        // Early versions accept it only with the complete input.
        provider_metadata: tool.call_provider_metadata.clone().filter(|_| is_streaming),
        tool_metadata: tool.tool_metadata.clone(),
        dynamic: tool.dynamic.then_some(true),
        title: title(tool),
    }
}

fn delta(tool: &ToolPart, has: Progress) -> Option<Chunk<'_>> {
    let bytes = match has {
        Progress::InputStarted { bytes } => bytes,
        _ => 0,
    };
    let rest = match streamed(tool) {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(bytes..)?),
        Cow::Owned(text) => Cow::Owned(text.get(bytes..)?.to_owned()),
    };
    if rest.is_empty() {
        return None;
    }
    Some(Chunk::ToolInputDelta {
        tool_call_id: Cow::Borrowed(tool.call_id.as_str()),
        input_text_delta: rest,
    })
}

fn input(tool: &ToolPart) -> Chunk<'_> {
    Chunk::ToolInputAvailable {
        tool_call_id: Cow::Borrowed(tool.call_id.as_str()),
        tool_name: Cow::Borrowed(&tool.name),
        input: or_null(&tool.input),
        provider_executed: tool.provider_executed,
        provider_metadata: tool.call_provider_metadata.clone(),
        tool_metadata: tool.tool_metadata.clone(),
        dynamic: tool.dynamic.then_some(true),
        title: title(tool),
    }
}

fn refusal(tool: &ToolPart) -> Chunk<'_> {
    Chunk::ToolInputError {
        tool_call_id: Cow::Borrowed(tool.call_id.as_str()),
        tool_name: Cow::Borrowed(&tool.name),
        input: or_null(&tool.raw_input),
        error_text: Cow::Borrowed(error_text(tool)),
        provider_executed: tool.provider_executed,
        provider_metadata: tool.call_provider_metadata.clone(),
        tool_metadata: tool.tool_metadata.clone(),
        dynamic: tool.dynamic.then_some(true),
        title: title(tool),
    }
}

fn request<'t>(tool: &'t ToolPart, approval: &'t ApprovalField) -> Chunk<'t> {
    let extra = |key: &str| approval.extra.get(key);
    let text = |key: &str| Some(Cow::Owned(extra(key)?.as_str()?.into_owned()));
    Chunk::ToolApprovalRequest {
        approval_id: approval_id(tool, approval),
        tool_call_id: Cow::Borrowed(tool.call_id.as_str()),
        approval_descriptor: extra("descriptor"),
        input_schema_input: extra("inputSchemaInput"),
        signature: text("signature"),
        reason: text("requestReason"),
        is_automatic: extra("isAutomatic").and_then(|flag| flag.as_bool()),
    }
}

fn response<'t>(tool: &'t ToolPart, approval: &'t ApprovalField) -> Option<Chunk<'t>> {
    Some(Chunk::ToolApprovalResponse {
        approval_id: approval_id(tool, approval),
        approved: approval.approved?,
        reason: approval.reason.as_deref().map(Cow::Borrowed),
        provider_executed: None,
        provider_metadata: None,
    })
}

fn outcome(tool: &ToolPart) -> Chunk<'_> {
    let metadata = tool.result_provider_metadata.clone();
    match tool.state {
        ToolState::OutputAvailable => Chunk::ToolOutputAvailable {
            tool_call_id: Cow::Borrowed(tool.call_id.as_str()),
            output: or_null(&tool.output),
            provider_executed: None,
            provider_metadata: metadata,
            // A client may have had the call before it was known what shows its output.
            tool_metadata: tool.tool_metadata.clone(),
            dynamic: tool.dynamic.then_some(true),
            preliminary: tool.preliminary,
        },
        ToolState::OutputError => error(&tool.call_id, error_text(tool), tool.dynamic, metadata),
        _ => Chunk::ToolOutputDenied {
            tool_call_id: Cow::Borrowed(tool.call_id.as_str()),
        },
    }
}

fn error<'t>(
    call_id: &'t CallId,
    text: &'t str,
    is_dynamic: bool,
    provider_metadata: Option<Json>,
) -> Chunk<'t> {
    Chunk::ToolOutputError {
        tool_call_id: Cow::Borrowed(call_id.as_str()),
        error_text: Cow::Borrowed(text),
        provider_executed: None,
        provider_metadata,
        tool_metadata: None,
        dynamic: is_dynamic.then_some(true),
    }
}

fn approval_id<'t>(tool: &'t ToolPart, approval: &'t ApprovalField) -> Str<'t> {
    let id = approval.id.as_ref().map(ApprovalId::as_str);
    Cow::Borrowed(id.unwrap_or(tool.call_id.as_str()))
}

fn error_text(tool: &ToolPart) -> &str {
    tool.error_text.as_deref().unwrap_or_default()
}

fn title(tool: &ToolPart) -> Option<Str<'_>> {
    tool.title.as_deref().map(Cow::Borrowed)
}

fn or_null(value: &Option<Json>) -> Json {
    value.clone().unwrap_or_default()
}
