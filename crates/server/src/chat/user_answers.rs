//! Answers in a message of the user, as older front ends write them, converted to the current form: the assistant's
//! message with the answered calls.
//!
//! ```text
//!   {"role": "user", "content": [{"type": "tool-result", "toolCallId": CALL, "result": {"approved": true}}]}
//!   {"role": "user", "parts": [{"type": "tool-adk_request_confirmation", "approval": {"id": ID, "approved": true}, …}]}
//! ```
//!
//! Only a clear word decides a question; anything else is refused and changes nothing. A part with an `approval` is
//! judged like one of the assistant's message. A `tool-result` entry is a decision, or an output:
//!
//! | the call | the result | is |
//! |---|---|---|
//! | asks, or is named by its question | `confirmed` or `approved`, clearly, finished and without an error | the decision |
//! | | anything else in these words | refused |
//! | asks, and runs elsewhere than in the page | anything else | refused |
//! | is a client tool | anything else; anything, when it does not ask any more | its output |

use adk_bridge_protocol::event::REQUEST_CONFIRMATION;
use adk_bridge_protocol::history::user_parts;
use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::message::{Extra, Message, Part, Role, ToolPart, ToolState};
use adk_bridge_protocol::reply::{Stance, stance_in, stance_of_result};

use super::error::ChatError;

/// The fields in which a front end may put its yes or no.
const VERDICTS: [&str; 2] = ["confirmed", "approved"];

/// Whether a message of the user contains answers.
pub(super) fn are_in(message: &Message) -> bool {
    message.role == Role::User && message.parts.iter().any(|part| part.as_tool().is_some())
}

/// The calls and questions that a message's answers name.
pub(super) fn named_in(message: &Message) -> Vec<&str> {
    message
        .parts
        .iter()
        .filter_map(Part::as_tool)
        .flat_map(names_of)
        .filter(|name| !name.is_empty())
        .collect()
}

/// Whether one of these calls or questions belongs to this message.
pub(super) fn are_of(names: &[&str], message: &Message) -> bool {
    let mut tools = message.parts.iter().filter_map(Part::as_tool);
    tools.any(|tool| names_of(tool).any(|name| names.contains(&name)))
}

/// The same answers in a copy of the assistant's message that they are for, which is one of these. `is_client` says
/// whether the page runs a call.
pub(super) fn as_answer<'m>(
    theirs: &Message,
    mut ours: impl Iterator<Item = &'m Message>,
    is_client: impl Fn(&CallId) -> bool,
) -> Result<Message, ChatError> {
    if !user_parts(theirs).is_empty() {
        return Err(ChatError::AnswersAmongWords);
    }
    let names = named_in(theirs);
    let asked = ours
        .find(|message| message.role == Role::Assistant && are_of(&names, message))
        .ok_or(ChatError::CallsNotInChat)?;
    let mut answer = Message {
        id: asked.id.clone(),
        role: Role::Assistant,
        metadata: None,
        parts: Vec::new(),
        extra: Extra::default(),
    };
    for tool in theirs.parts.iter().filter_map(Part::as_tool) {
        let mut calls = asked.parts.iter().filter_map(Part::as_tool);
        let names: Vec<&str> = names_of(tool).collect();
        let call = calls
            .find(|call| names_of(call).any(|name| names.contains(&name)))
            .ok_or_else(|| ChatError::AnswersToSeveralMessages {
                call: tool.call_id.clone(),
            })?;
        let part = answered(tool, call, is_client(&call.call_id))?;
        answer.parts.push(Part::Tool(Box::new(part)));
    }
    Ok(answer)
}

/// Our call with the client's answer.
fn answered(theirs: &ToolPart, ours: &ToolPart, is_client: bool) -> Result<ToolPart, ChatError> {
    let question = question_of(ours);
    // An answer that names two calls decides neither.
    let is_ours = |name: &str| {
        name.is_empty() || ours.call_id == *name || question.is_some_and(|id| id == name)
    };
    if !names_of(theirs).all(is_ours) {
        return Err(unclear(ours));
    }
    let verdict = match &theirs.approval {
        Some(_) if theirs.name != REQUEST_CONFIRMATION => None,
        Some(_) => match stance_in(theirs) {
            Stance::Clear(approved) => Some(approved),
            Stance::Absent if theirs.state != ToolState::OutputError || !is_open(ours) => None,
            Stance::Absent | Stance::Failed | Stance::Unclear => return Err(unclear(ours)),
        },
        None => decided_by(theirs, ours, is_client)?,
    };
    let mut part = ToolPart::new(ours.call_id.clone(), &ours.name);
    part.input.clone_from(&ours.input);
    part.approval = theirs.approval.clone().or_else(|| {
        let decides = verdict.is_some();
        decides.then(Default::default)
    });
    if let Some(field) = &mut part.approval {
        field.id = question.cloned();
    }
    match (verdict, &mut part.approval) {
        (Some(approved), Some(field)) => {
            part.state = ToolState::ApprovalResponded;
            field.approved = Some(approved);
            let payload = theirs.output.as_ref().and_then(|it| it.get("payload"));
            if let Some(payload) = payload.filter(|_| field.extra.get("payload").is_none()) {
                field.extra.insert("payload", &payload);
            }
        }
        // Judged as a part of the assistant's message.
        _ => {
            part.state.clone_from(&theirs.state);
            part.output.clone_from(&theirs.output);
            part.error_text.clone_from(&theirs.error_text);
            part.preliminary = theirs.preliminary;
        }
    }
    part.extra.clone_from(&theirs.extra);
    Ok(part)
}

/// The decision in a result without an `approval`, or nothing if it is an output.
fn decided_by(
    theirs: &ToolPart,
    ours: &ToolPart,
    is_client: bool,
) -> Result<Option<bool>, ChatError> {
    let question = question_of(ours);
    let is_result = matches!(
        theirs.state,
        ToolState::OutputAvailable | ToolState::OutputError
    );
    if question.is_none() || !is_result {
        return Ok(None);
    }
    let is_open = is_open(ours);
    // A result that names the question can only be an answer to it.
    let by_question = question == Some(&theirs.call_id.to_approval());
    if is_client && !is_open && !by_question {
        return Ok(None);
    }
    let output = theirs.output.as_ref();
    let speaks = output.is_some_and(|it| VERDICTS.iter().any(|word| it.get(word).is_some()));
    match stance_of_result(theirs) {
        Stance::Clear(approved) if speaks => Ok(Some(approved)),
        _ if speaks || by_question || is_open && !is_client => Err(unclear(ours)),
        _ => Ok(None),
    }
}

/// Whether a human has to decide about this call of ours.
fn is_open(ours: &ToolPart) -> bool {
    ours.state == ToolState::ApprovalRequested
}

fn names_of(tool: &ToolPart) -> impl Iterator<Item = &str> {
    let question = question_of(tool).map(ApprovalId::as_str);
    std::iter::once(tool.call_id.as_str()).chain(question)
}

fn question_of(tool: &ToolPart) -> Option<&ApprovalId> {
    tool.approval.as_ref()?.id.as_ref()
}

fn unclear(call: &ToolPart) -> ChatError {
    ChatError::UnclearUserAnswer {
        tool: call.name.to_string(),
    }
}
