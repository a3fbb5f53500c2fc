//! Dialect `adk`: an approval is a separate tool call, and the agent's text waits for the last answer.
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
//! Text, reasoning, images and outputs wait until the reply has ended: the predicate of this dialect's front ends
//! (docs/adr/0009) takes text in a step for the end of the answer. The text of an agent that never asks is streamed
//! immediately; only its images take the form of this dialect.

use std::borrow::Cow;

use super::withheld::{
    confirmed_as, hide_outcome, image_part, is_left_to_client, is_over, with_images, withheld,
};
use super::{Images, State, View};
use crate::approval::Approval;
use crate::event::REQUEST_CONFIRMATION;
use crate::json_text::Json;
use crate::message::{ApprovalField, FilePart, Message, Part, Role, ToolPart, ToolState};

/// How clients see an agent that may ask for approval.
#[derive(Debug)]
pub(super) struct Withholding;

impl View for Withholding {
    fn streams(&self) -> bool {
        false
    }

    fn message<'m>(&self, stored: Cow<'m, Message>, state: &State<'_>) -> Cow<'m, Message> {
        match stored.role {
            Role::Assistant => Cow::Owned(project(&stored, state)),
            Role::System | Role::User => stored,
        }
    }

    fn file(&self, file: &FilePart, images: Option<&dyn Images>) -> Option<Part> {
        image(file, images)
    }

    /// The calls know the wording of the question and where a call runs.
    fn needs_calls(&self, stored: &Message, has_ended: bool) -> bool {
        let mut tools = stored.parts.iter().filter_map(Part::as_tool);
        stored.role == Role::Assistant && (!has_ended || tools.any(|tool| tool.approval.is_some()))
    }

    fn inlines_images(&self) -> bool {
        true
    }

    /// An unanswered question is shown as not confirmed.
    fn shown_decision(&self, decided: Option<bool>) -> Option<bool> {
        decided.or(Some(false))
    }
}

/// How clients see an agent that never asks for approval.
#[derive(Debug)]
pub(super) struct Streaming;

impl View for Streaming {
    fn message<'m>(&self, stored: Cow<'m, Message>, state: &State<'_>) -> Cow<'m, Message> {
        with_images(stored, |file| image(file, state.images))
    }

    fn file(&self, file: &FilePart, images: Option<&dyn Images>) -> Option<Part> {
        image(file, images)
    }

    fn inlines_images(&self) -> bool {
        true
    }
}

fn project(message: &Message, state: &State<'_>) -> Message {
    let steps = message.parts.split(|part| matches!(part, Part::StepStart));
    let mut parts: Vec<Part> = steps.flat_map(|step| shown_calls(step, state)).collect();
    if state.has_ended {
        let withheld: Vec<Part> = withheld(message, |file| image(file, state.images)).collect();
        if !withheld.is_empty() || !parts.is_empty() {
            // A last step without tools leaves the client nothing to send.
            parts.push(Part::StepStart);
        }
        parts.extend(withheld);
    }
    Message {
        id: message.id.clone(),
        role: message.role,
        metadata: message.metadata.clone().filter(|_| state.has_ended),
        parts,
        extra: message.extra.clone(),
    }
}

/// The calls of a step, each with its confirmation.
///
/// The step that the agent is still writing is not shown: confirmations may still come between its calls, and a reader
/// cannot be sent a part that belongs before one that it already has.
fn shown_calls(step: &[Part], state: &State<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    let shows_outputs = state.has_ended || is_left_to_client(step, state.calls);
    for tool in step.iter().filter_map(Part::as_tool) {
        let call = state.calls.by_id(&tool.call_id);
        let is_of_step = |step| call.is_none_or(|call| call.step == step);
        if state.asking.is_some_and(is_of_step) {
            continue;
        }
        if parts.is_empty() {
            parts.push(Part::StepStart);
        }
        parts.push(Part::Tool(Box::new(shown_call(tool, shows_outputs))));
        if let Some(field) = &tool.approval {
            let approval = call.and_then(|call| call.approval.as_ref());
            let confirmation = confirmation(tool, field, approval, state.has_ended);
            parts.push(Part::Tool(Box::new(confirmation)));
        }
    }
    parts
}

/// The call itself: the confirmation has its approval, and its output may have to wait.
fn shown_call(tool: &ToolPart, shows_output: bool) -> ToolPart {
    let mut call = tool.clone();
    call.approval = None;
    if matches!(
        call.state,
        ToolState::ApprovalRequested | ToolState::ApprovalResponded
    ) {
        call.state = ToolState::InputAvailable;
    } else if !shows_output {
        hide_outcome(&mut call, ToolState::InputAvailable);
    }
    call
}

/// The call that asks for consent, in the form of ADK.
fn confirmation(
    tool: &ToolPart,
    field: &ApprovalField,
    approval: Option<&Approval>,
    has_ended: bool,
) -> ToolPart {
    let id = field.id.clone();
    let id = id.unwrap_or_else(|| tool.call_id.to_approval());
    let hint = approval.map_or_else(
        || crate::reply::default_hint(&tool.name),
        |approval| approval.hint.clone(),
    );
    let mut part = ToolPart::new(id.to_call(), REQUEST_CONFIRMATION);
    let original = Json::object([
        ("id", tool.call_id.as_str().into()),
        ("name", tool.name.as_str().into()),
        ("args", tool.input.clone().unwrap_or_else(Json::empty)),
    ]);
    let payload = approval.and_then(|approval| approval.payload.clone());
    let asked = [("hint", hint.as_str().into()), ("confirmed", false.into())]
        .into_iter()
        .chain(payload.map(|payload| ("payload", payload)));
    part.input = Some(Json::object([
        ("originalFunctionCall", original),
        ("toolConfirmation", Json::object(asked)),
    ]));
    part.approval = Some(ApprovalField {
        id: Some(id),
        approved: field.approved,
        reason: field.reason.clone(),
        extra: field
            .extra
            .get("payload")
            .map(|payload| ("payload", payload))
            .into_iter()
            .collect(),
    });
    part.state = match field.approved {
        Some(confirmed) if has_ended => {
            part.output = Some(confirmed_as(confirmed));
            ToolState::OutputAvailable
        }
        Some(_) => ToolState::ApprovalResponded,
        // There was no consent. An error would keep the client from sending its other answers of the step.
        None if has_ended || approval.is_some_and(is_over) => {
            part.output = Some(confirmed_as(false));
            ToolState::OutputAvailable
        }
        None => ToolState::ApprovalRequested,
    };
    part
}

fn image(file: &FilePart, images: Option<&dyn Images>) -> Option<Part> {
    image_part(file, images, &["data"])
}
