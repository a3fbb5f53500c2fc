//! Answers to a reply that is no longer the current one: they change nothing, and go to the audit.
//!
//! They come in a request of their own, or in the copies of older messages that every request contains.

use adk_bridge_protocol::approval::Refusal;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::message::{Message, Role, ToolPart};
use adk_bridge_protocol::outbox::{Audit, AuditKind};
use adk_bridge_protocol::reply::{Answer, MAX_REFUSED, answers_of, judge_by_message, part_of};

/// The answers in a client's copy of a message that contradict the stored one.
pub(super) fn refusals(theirs: &Message, stored: &Message, dialect: Dialect) -> Vec<Audit> {
    answers_of(theirs)
        .iter()
        .filter_map(|answer| refusal(answer, stored, dialect))
        .take(MAX_REFUSED)
        .collect()
}

/// The same for the copies of older messages in a request with a new one; `stored` finds ours.
pub(super) fn in_older_messages<'m>(
    copies: &[Message],
    stored: impl Fn(&MessageId) -> Option<&'m Message>,
    dialect: Dialect,
) -> Vec<Audit> {
    copies
        .iter()
        .filter(|copy| copy.role == Role::Assistant)
        .filter_map(|copy| Some((copy, stored(&copy.id)?)))
        .flat_map(|(copy, ours)| refusals(copy, ours, dialect))
        .take(MAX_REFUSED)
        .collect()
}

/// The decisions in a message that the chat does not have, on approvals that were asked for in those that it has.
pub(super) fn misplaced<'m>(
    theirs: &Message,
    stored: impl Iterator<Item = &'m Message> + Clone,
) -> Vec<Audit> {
    let answers = answers_of(theirs);
    let decisions = answers
        .iter()
        .filter(|answer| matches!(answer, Answer::Decision { .. } | Answer::Unclear { .. }));
    decisions
        .filter_map(|answer| {
            let tool = stored.clone().find_map(|ours| part_of(answer, ours))?;
            Some(row(answer, Some(tool), Refusal::Unknown))
        })
        .take(MAX_REFUSED)
        .collect()
}

fn refusal(answer: &Answer<'_>, stored: &Message, dialect: Dialect) -> Option<Audit> {
    let refusal = judge_by_message(answer, stored).err()?;
    let tool = part_of(answer, stored);
    let denies = matches!(
        answer,
        Answer::Decision {
            approved: false,
            ..
        } | Answer::Unclear {
            approved: Some(false),
            ..
        }
    );
    // A view may show an unanswered question as not confirmed.
    let verdict = |tool: &ToolPart| tool.approval.as_ref()?.approved;
    let shown = tool.and_then(|tool| dialect.shown_decision(verdict(tool)));
    if denies && shown == Some(false) {
        return None;
    }
    Some(row(answer, tool, refusal))
}

fn row(answer: &Answer<'_>, tool: Option<&ToolPart>, refusal: Refusal) -> Audit {
    let (call_id, approval_id) = match answer {
        Answer::Output { call_id, .. }
        | Answer::Failure { call_id, .. }
        | Answer::Granted { call_id } => (Some(*call_id), None),
        Answer::Decision { approval_id, .. } | Answer::Unclear { approval_id, .. } => {
            (None, Some(approval_id))
        }
    };
    Audit {
        kind: AuditKind::AnswerRefused,
        call_id: tool.map(|tool| &tool.call_id).or(call_id).cloned(),
        tool: tool.map(|tool| tool.name.clone()),
        approval_id: approval_id.cloned(),
        reason: Some(refusal.to_string()),
        input_hash: None,
    }
}

#[cfg(test)]
mod tests {
    use adk_bridge_protocol::json_text::Json;
    use adk_bridge_protocol::message::parse_messages;
    use serde_json::{Value, json};

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
        parse_messages(Json::from(messages).raw())
            .unwrap()
            .remove(0)
    }
}
