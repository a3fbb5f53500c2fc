//! Judges an answer, for the current reply and for older ones: it decides, repeats, or is too late.

use super::answers::Answer;
use super::credentials::is_refusal;
use super::stance::confirmed_by;
use crate::approval::{Answered, Refusal};
use crate::calls::{Call, CallState, RunsOn, Settlement};
use crate::event::REQUEST_CREDENTIAL;
use crate::id::{ApprovalId, CallId};
use crate::json_text::is_same;
use crate::message::{Message, Part, ToolPart, ToolState, is_pending};
use crate::time::Timestamp;

/// What an answer that is not refused means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Something waited for it.
    Takes,
    /// It repeats what is known. Every request of a client repeats its old answers.
    Repeats,
}

/// Judges an answer by the record of its call and by the call's part in the stored message. Of a reply that ended long
/// ago there may be only the part.
pub fn judge(
    answer: &Answer<'_>,
    call: Option<&Call>,
    part: Option<&ToolPart>,
    now: Timestamp,
) -> Result<Verdict, Refusal> {
    match answer {
        Answer::Decision { approved, .. } => judge_decision(*approved, call, part, now),
        Answer::Unclear { approved, .. } => match approved {
            // The question is closed, so anything that was said about it is refused.
            Some(approved) => match judge_decision(*approved, call, part, now)? {
                Verdict::Takes => Err(Refusal::Unclear),
                Verdict::Repeats => Ok(Verdict::Repeats),
            },
            None => Ok(Verdict::Repeats),
        },
        Answer::Output { call_id, output } if names_approval(call_id, call, part) => {
            // In an older form the output of a confirmation is the answer.
            match confirmed_by(output) {
                Some(confirmed) => judge_decision(confirmed, call, part, now),
                None => Err(Refusal::UnknownCall),
            }
        }
        // A confirmation that the bridge ended itself.
        Answer::Failure { call_id, .. } if names_approval(call_id, call, part) => {
            Ok(Verdict::Repeats)
        }
        Answer::Output { .. } | Answer::Failure { .. } | Answer::Granted { .. } => {
            judge_outcome(answer, call, part)
        }
    }
}

/// Judges an answer by a stored message alone.
pub fn judge_by_message(answer: &Answer<'_>, message: &Message) -> Result<Verdict, Refusal> {
    judge(answer, None, part_of(answer, message), Timestamp::MAX)
}

/// The part of a message that an answer is about: the one it names, or the one whose approval it names.
pub fn part_of<'m>(answer: &Answer<'_>, message: &'m Message) -> Option<&'m ToolPart> {
    let tools = || message.parts.iter().rev().filter_map(Part::as_tool);
    let asked = |id: &ApprovalId| tools().find(|tool| approval_id(tool) == Some(id));
    match answer {
        Answer::Decision { approval_id, .. } | Answer::Unclear { approval_id, .. } => {
            asked(approval_id)
        }
        Answer::Output { call_id, .. }
        | Answer::Failure { call_id, .. }
        | Answer::Granted { call_id } => tools()
            .find(|tool| tool.call_id == **call_id)
            .or_else(|| asked(&call_id.to_approval())),
    }
}

fn judge_decision(
    approved: bool,
    call: Option<&Call>,
    part: Option<&ToolPart>,
    now: Timestamp,
) -> Result<Verdict, Refusal> {
    if let Some(approval) = call.and_then(|call| call.approval.as_ref()) {
        return match approval.judge(approved, now)? {
            Answered::Decided => Ok(Verdict::Takes),
            Answered::Repeated => Ok(Verdict::Repeats),
        };
    }
    let field = part.and_then(|part| part.approval.as_ref());
    match field.ok_or(Refusal::Unknown)?.approved {
        Some(decided) if decided == approved => Ok(Verdict::Repeats),
        Some(_) => Err(Refusal::Contradicts),
        None => Err(Refusal::Superseded),
    }
}

fn judge_outcome(
    answer: &Answer<'_>,
    call: Option<&Call>,
    part: Option<&ToolPart>,
) -> Result<Verdict, Refusal> {
    if part.is_some_and(|part| shows(part, answer)) {
        return Ok(Verdict::Repeats);
    }
    let asks = call.is_some_and(Call::asks_for_credentials)
        || part.is_some_and(|part| part.name == REQUEST_CREDENTIAL);
    match answer {
        // A front end says that its part is done, which says nothing about what the user did elsewhere.
        Answer::Output { output, .. } if asks && !is_refusal(output) => {
            return Ok(Verdict::Repeats);
        }
        Answer::Granted { .. } if !asks => return Err(Refusal::UnknownCall),
        _ => {}
    }
    if let Answer::Output { output, .. } = answer
        && part.is_some()
        && call.is_none_or(|call| call.runs_on != RunsOn::Client)
        && is_pending(output)
    {
        // It was shown this while the tool waited.
        return Ok(Verdict::Repeats);
    }
    let Some(call) = call else {
        return Err(match part {
            Some(_) => Refusal::AlreadySettled,
            None => Refusal::UnknownCall,
        });
    };
    if call.runs_on != RunsOn::Client {
        return Err(Refusal::NotAClientTool);
    }
    let approval = call.approval.as_ref();
    let approved = approval.is_none_or(|approval| approval.verdict() == Some(true));
    match &call.state {
        CallState::AwaitingClient { .. } => match answer {
            Answer::Output { output, .. } if call.misfit(output).is_some() => Err(Refusal::Unfit),
            _ => Ok(Verdict::Takes),
        },
        CallState::Decided if approved => Ok(Verdict::Takes),
        CallState::Asked => match &call.early {
            None => Ok(Verdict::Takes),
            Some(early) if answer.outcome().as_ref() == Some(early) => Ok(Verdict::Repeats),
            Some(_) => Err(Refusal::AlreadySettled),
        },
        CallState::Settled {
            how: Settlement::Expired,
        } => Err(Refusal::Expired),
        CallState::Settled {
            how: Settlement::Superseded,
        } => Err(Refusal::Superseded),
        _ => Err(Refusal::AlreadySettled),
    }
}

/// Whether a client only repeats what the message already shows.
fn shows(part: &ToolPart, answer: &Answer<'_>) -> bool {
    match (answer, &part.state) {
        (Answer::Output { output, .. }, ToolState::OutputAvailable) => {
            is_same(&part.output.clone().unwrap_or_default(), output)
        }
        (Answer::Failure { error, .. }, ToolState::OutputError) => {
            part.error_text.as_deref() == Some(*error)
        }
        _ => false,
    }
}

fn names_approval(id: &CallId, call: Option<&Call>, part: Option<&ToolPart>) -> bool {
    let asked = call.and_then(|call| call.approval.as_ref());
    let asked = asked.map(|approval| &approval.id);
    asked.or_else(|| approval_id(part?)) == Some(&id.to_approval())
}

fn approval_id(part: &ToolPart) -> Option<&ApprovalId> {
    part.approval.as_ref()?.id.as_ref()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::json_text::Json;
    use crate::message::parse_messages;
    use crate::reply::answers_of;

    fn message(part: &Value) -> Message {
        let messages =
            json!([{"id": "m1", "role": "assistant", "parts": [{"type": "step-start"}, part]}]);
        parse_messages(Json::from(messages).raw())
            .unwrap()
            .remove(0)
    }

    fn tool(call: &str, state: &str, rest: Value) -> Value {
        let mut part = json!({"type": "tool-pay", "toolCallId": call, "state": state, "input": {}});
        let fields = rest.as_object().cloned().unwrap_or_default();
        part.as_object_mut().unwrap().extend(fields);
        part
    }

    /// What a client shows of a reply that is over is judged by the stored message alone.
    #[test]
    fn a_stored_message_judges_what_clients_repeat() {
        let unanswered = tool(
            "c1",
            "output-error",
            json!({"errorText": "not run", "approval": {"id": "a1"}}),
        );
        let ran = tool(
            "c1",
            "output-available",
            json!({"output": {"n": 7.0}, "approval": {"id": "a1", "approved": true}}),
        );
        let answered = |id: &str, approved: bool| {
            tool(
                "c1",
                "approval-responded",
                json!({"approval": {"id": id, "approved": approved}}),
            )
        };
        let output =
            |call: &str, value: Value| tool(call, "output-available", json!({"output": value}));
        let confirmed = |confirmed: bool| {
            json!({"type": "tool-adk_request_confirmation", "toolCallId": "a1", "state": "output-available",
                   "input": {}, "output": {"confirmed": confirmed}})
        };
        let repeats = vec![Ok(Verdict::Repeats)];
        let refused = |refusal| vec![Err(refusal)];
        let cases = [
            (&unanswered, unanswered.clone(), repeats.clone()),
            (
                &unanswered,
                answered("a1", true),
                refused(Refusal::Superseded),
            ),
            (
                &unanswered,
                answered("a1", false),
                refused(Refusal::Superseded),
            ),
            (&unanswered, answered("a2", true), refused(Refusal::Unknown)),
            (
                &unanswered,
                output("c1", json!(1)),
                refused(Refusal::AlreadySettled),
            ),
            (
                &unanswered,
                output("c2", json!(1)),
                refused(Refusal::UnknownCall),
            ),
            (&unanswered, confirmed(true), refused(Refusal::Superseded)),
            (
                &ran,
                ran.clone(),
                [repeats.clone(), repeats.clone()].concat(),
            ),
            // JavaScript has no 7.0.
            (&ran, output("c1", json!({"n": 7})), repeats.clone()),
            (&ran, answered("a1", true), repeats.clone()),
            (&ran, answered("a1", false), refused(Refusal::Contradicts)),
            (
                &ran,
                output("c1", json!({"n": 8})),
                refused(Refusal::AlreadySettled),
            ),
            // What was shown while the tool waited.
            (
                &ran,
                output("c1", json!({"pending": true})),
                repeats.clone(),
            ),
            (
                &ran,
                output("c2", json!({"pending": true})),
                refused(Refusal::UnknownCall),
            ),
            (&ran, confirmed(true), repeats),
            (&ran, confirmed(false), refused(Refusal::Contradicts)),
        ];
        for (ours, theirs, expected) in cases {
            let theirs = message(&theirs);
            let found: Vec<_> = answers_of(&theirs)
                .iter()
                .map(|answer| judge_by_message(answer, &message(ours)))
                .collect();
            assert_eq!(found, expected, "{theirs:?}");
        }
    }
}
