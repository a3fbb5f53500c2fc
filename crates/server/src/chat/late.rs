//! Answers that come when their reply is over and another one is current: they change nothing, and the audit shows them.
//!
//! They come by themselves, or ride along in the copies of older messages that every request brings.

use adk_bridge_protocol::approval::Refusal;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::message::{Message, Part, Role, ToolPart, ToolState};
use adk_bridge_protocol::outbox::{Audit, AuditKind};
use adk_bridge_protocol::reply::{Answer, answers_of};
use serde_json::Value;

use crate::store::AuditRow;

/// How many refusals one request may add. A client that holds more wrong answers than this was made to; a longer list
/// tells no more about it.
const MAX_RIDING: usize = 20;

/// The answers in a client's copy of a message that say something else than the stored one.
pub(super) fn refusals(theirs: &Message, stored: &Message, dialect: Dialect) -> Vec<Audit> {
    answers_of(theirs)
        .iter()
        .filter_map(|answer| refusal(answer, stored, dialect))
        .collect()
}

/// The same for the copies of older messages that come with a new one; `stored` finds ours.
pub(super) fn riding_along<'m>(
    copies: &[Message],
    stored: impl Fn(&str) -> Option<&'m Message>,
    dialect: Dialect,
) -> Vec<Audit> {
    copies
        .iter()
        .filter(|copy| copy.role == Role::Assistant)
        .filter_map(|copy| Some((copy, stored(&copy.id)?)))
        .flat_map(|(copy, ours)| refusals(copy, ours, dialect))
        .take(MAX_RIDING)
        .collect()
}

/// Whether the audit has a refusal already: clients send what they hold with every request, and once is enough.
pub(super) fn is_recorded(audit: &Audit, rows: &[AuditRow]) -> bool {
    rows.iter().any(|row| {
        row.kind == audit.kind.as_str()
            && row.tool_call_id == audit.call_id
            && row.approval_id == audit.approval_id
            && row.reason == audit.reason
    })
}

fn refusal(answer: &Answer<'_>, stored: &Message, dialect: Dialect) -> Option<Audit> {
    let mut tools = stored.parts.iter().filter_map(Part::as_tool);
    match *answer {
        Answer::Decision {
            approval_id,
            approved,
            ..
        } => {
            let asked = |tool: &&ToolPart| approval_of(tool) == Some(approval_id);
            let Some(tool) = tools.find(asked) else {
                return Some(audit(None, Some(approval_id), &Refusal::Unknown));
            };
            let verdict = tool.approval.as_ref().and_then(|field| field.approved);
            // The `adk` view itself shows a question that nobody answered as not confirmed.
            let shown = dialect == Dialect::Adk && verdict.is_none() && !approved;
            let why = match verdict {
                Some(_) => Refusal::Contradicts,
                None => Refusal::Superseded,
            };
            let same = verdict == Some(approved) || shown;
            (!same).then(|| audit(Some(tool), Some(approval_id), &why))
        }
        Answer::Output { call_id, output } => {
            let tool = tools.find(|tool| tool.call_id == call_id);
            let same = tool.is_some_and(|tool| {
                let ours = tool.output.as_ref().unwrap_or(&Value::Null);
                tool.state == ToolState::OutputAvailable && is_same(ours, output)
            });
            (!same).then(|| result(tool, call_id))
        }
        Answer::Failure { call_id, error } => {
            let tool = tools.find(|tool| tool.call_id == call_id);
            let same = tool.is_some_and(|tool| tool.error_text.as_deref() == Some(error));
            (!same).then(|| result(tool, call_id))
        }
    }
}

/// Whether two values are the same to JavaScript, which writes 1.0 as 1.
fn is_same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(ours), Value::Number(theirs)) => ours.as_f64() == theirs.as_f64(),
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            ours.len() == theirs.len()
                && ours
                    .iter()
                    .all(|(key, a)| theirs.get(key).is_some_and(|b| is_same(a, b)))
        }
        _ => ours == theirs,
    }
}

fn approval_of(tool: &ToolPart) -> Option<&str> {
    tool.approval.as_ref()?.id.as_deref()
}

fn result(tool: Option<&ToolPart>, call_id: &str) -> Audit {
    match tool {
        Some(_) => audit(tool, None, &Refusal::AlreadySettled),
        None => Audit {
            call_id: Some(call_id.to_owned()),
            ..audit(None, None, &Refusal::UnknownCall)
        },
    }
}

fn audit(tool: Option<&ToolPart>, approval_id: Option<&str>, why: &Refusal) -> Audit {
    Audit {
        kind: AuditKind::AnswerRefused,
        call_id: tool.map(|tool| tool.call_id.clone()),
        tool: tool.map(|tool| tool.name.clone()),
        approval_id: approval_id.map(str::to_owned),
        reason: Some(why.to_string()),
        input_hash: None,
    }
}

#[cfg(test)]
mod tests {
    use adk_bridge_protocol::message::parse_messages;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_refused() {
        let stored = json!({"type": "tool-pay", "toolCallId": "c1", "state": "output-error", "input": {},
                            "errorText": "not run", "approval": {"id": "a1"}});
        let run = json!({"type": "tool-pay", "toolCallId": "c1", "state": "output-available", "input": {},
                         "output": 1, "approval": {"id": "a1", "approved": true}});
        let answered = |id: &str, approved: bool| {
            json!({"type": "tool-pay", "toolCallId": "c1", "state": "approval-responded", "input": {},
                   "approval": {"id": id, "approved": approved}})
        };
        let output = |call: &str, output: u8| {
            json!({"type": "tool-pay", "toolCallId": call, "state": "output-available", "input": {},
                   "output": output})
        };
        let output_float = json!({"type": "tool-pay", "toolCallId": "c1", "state": "output-available", "input": {},
                                  "output": 1.0, "approval": {"id": "a1", "approved": true}});
        let confirmed = |confirmed: bool| {
            json!({"type": "tool-adk_request_confirmation", "toolCallId": "a1", "state": "output-available",
                   "input": {}, "output": {"confirmed": confirmed}})
        };
        let cases = [
            (&stored, stored.clone(), Dialect::Native, None),
            (
                &stored,
                answered("a1", true),
                Dialect::Native,
                Some(Refusal::Superseded),
            ),
            (
                &stored,
                answered("a1", false),
                Dialect::Native,
                Some(Refusal::Superseded),
            ),
            (
                &stored,
                answered("a2", true),
                Dialect::Native,
                Some(Refusal::Unknown),
            ),
            (
                &stored,
                output("c1", 1),
                Dialect::Native,
                Some(Refusal::AlreadySettled),
            ),
            (
                &stored,
                output("c2", 1),
                Dialect::Native,
                Some(Refusal::UnknownCall),
            ),
            (&stored, confirmed(false), Dialect::Adk, None),
            (
                &stored,
                confirmed(true),
                Dialect::Adk,
                Some(Refusal::Superseded),
            ),
            (&run, run.clone(), Dialect::Native, None),
            (&run, output_float.clone(), Dialect::Native, None),
            (&run, answered("a1", true), Dialect::Native, None),
            (
                &run,
                answered("a1", false),
                Dialect::Native,
                Some(Refusal::Contradicts),
            ),
            (
                &run,
                output("c1", 2),
                Dialect::Native,
                Some(Refusal::AlreadySettled),
            ),
            (
                &run,
                confirmed(false),
                Dialect::Adk,
                Some(Refusal::Contradicts),
            ),
        ];
        for (ours, theirs, dialect, expected) in cases {
            let found = refusals(&message(&theirs), &message(ours), dialect);
            let reasons: Vec<_> = found.iter().filter_map(|row| row.reason.clone()).collect();
            let expected: Vec<_> = expected.iter().map(Refusal::to_string).collect();
            assert_eq!(reasons, expected, "{theirs}");
        }
    }

    fn message(part: &Value) -> Message {
        let messages =
            json!([{"id": "m1", "role": "assistant", "parts": [{"type": "step-start"}, part]}]);
        parse_messages(messages).unwrap().remove(0)
    }
}
