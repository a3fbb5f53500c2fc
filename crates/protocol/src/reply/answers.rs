//! What a client answers: decisions on approvals and outputs of client tools, as they stand in the message it sends.

use serde_json::Value;

use super::{Given, Mode, Reply};
use crate::approval::{Answered, Approval, Refusal};
use crate::calls::{CallState, Outcome, RunsOn, Settled};
use crate::chunk::Chunk;
use crate::event::REQUEST_CONFIRMATION;
use crate::message::{Message, Part, ToolPart, ToolState};
use crate::outbox::{Audit, AuditKind, Outbox};

/// One answer of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer<'a> {
    Decision {
        approval_id: &'a str,
        approved: bool,
        reason: Option<&'a str>,
        /// What the human filled in, where a remote agent's tool asked for something.
        payload: Option<&'a Value>,
    },
    Output {
        call_id: &'a str,
        output: &'a Value,
    },
    Failure {
        call_id: &'a str,
        error: &'a str,
    },
}

/// The answers in a message: every request repeats the old ones, and the reply tells them apart.
pub fn answers_of(message: &Message) -> Vec<Answer<'_>> {
    message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Tool(tool) => Some(tool),
            _ => None,
        })
        .flat_map(|tool| decision_of(tool).into_iter().chain(result_of(tool)))
        .collect()
}

fn decision_of(tool: &ToolPart) -> Option<Answer<'_>> {
    let approval = tool.approval.as_ref()?;
    Some(Answer::Decision {
        // Messages written by hand name the confirmation by its call.
        approval_id: approval.id.as_deref().unwrap_or(&tool.call_id),
        approved: approval.approved?,
        reason: approval.reason.as_deref(),
        payload: approval.extra.get("payload"),
    })
}

fn result_of(tool: &ToolPart) -> Option<Answer<'_>> {
    let call_id = tool.call_id.as_str();
    match tool.state {
        ToolState::OutputAvailable if tool.preliminary != Some(true) => {
            let output = tool.output.as_ref().unwrap_or(&Value::Null);
            if tool.name == REQUEST_CONFIRMATION {
                return Some(Answer::Decision {
                    approval_id: call_id,
                    approved: output.get("confirmed")?.as_bool()?,
                    reason: None,
                    payload: output.get("payload"),
                });
            }
            Some(Answer::Output { call_id, output })
        }
        ToolState::OutputError => Some(Answer::Failure {
            call_id,
            error: tool.error_text.as_deref().unwrap_or("the tool failed"),
        }),
        _ => None,
    }
}

impl Reply {
    pub(super) fn take_answers(
        &mut self,
        answers: &[Answer<'_>],
        mode: Option<Mode>,
        given: &mut Given<'_>,
        out: &mut Outbox,
    ) {
        if let (Some(mode), None) = (mode, self.turn) {
            self.turn = Some(mode);
            self.without_news = true;
        }
        let mark = out.barrier();
        let mut changed = false;
        for answer in answers {
            match self.take_answer(answer, given, out) {
                Ok(Answered::Decided) => changed = true,
                Ok(Answered::Repeated) => {}
                Err((id, refusal)) => out.audit.push(Audit::refused(id, refusal)),
            }
        }
        if changed {
            self.holds = 0;
            self.hold_until = None;
            self.without_news = false;
        }
        if changed || !out.audit.is_empty() {
            self.commit_at(mark, out);
        }
        self.advance(given, out);
    }

    fn take_answer<'a>(
        &mut self,
        answer: &Answer<'a>,
        given: &mut Given<'_>,
        out: &mut Outbox,
    ) -> Result<Answered, (&'a str, Refusal)> {
        match *answer {
            Answer::Decision {
                approval_id,
                approved,
                reason,
                payload,
            } => self
                .decide(approval_id, approved, reason, payload, given, out)
                .map_err(|refusal| (approval_id, refusal)),
            Answer::Output { call_id, output } => {
                // An older form answers a confirmation by its output.
                if let Some(confirmed) = output.get("confirmed").and_then(Value::as_bool)
                    && self.calls.index_of(call_id).is_none()
                    && self.calls.index_of_approval(call_id).is_some()
                {
                    return self
                        .decide(call_id, confirmed, None, output.get("payload"), given, out)
                        .map_err(|refusal| (call_id, refusal));
                }
                let outcome = Outcome::Output {
                    value: output.clone(),
                    files: Vec::new(),
                };
                self.supply(call_id, outcome, out)
                    .map_err(|refusal| (call_id, refusal))
            }
            Answer::Failure { call_id, error } => {
                if self.calls.index_of_approval(call_id).is_some() {
                    return Ok(Answered::Repeated); // A confirmation that we ended ourselves.
                }
                let outcome = Outcome::Error {
                    text: error.to_owned(),
                };
                self.supply(call_id, outcome, out)
                    .map_err(|refusal| (call_id, refusal))
            }
        }
    }

    fn decide(
        &mut self,
        approval_id: &str,
        approved: bool,
        reason: Option<&str>,
        payload: Option<&Value>,
        given: &mut Given<'_>,
        out: &mut Outbox,
    ) -> Result<Answered, Refusal> {
        let index = self
            .calls
            .index_of_approval(approval_id)
            .ok_or(Refusal::Unknown)?;
        let call = &mut self.calls[index];
        let Some(approval) = &mut call.approval else {
            return Err(Refusal::Unknown);
        };
        let answered = approval.answer(approved, reason, given.now)?;
        if answered == Answered::Decided {
            // A tool that asked for nothing is told nothing.
            approval.filled_in = payload.filter(|_| approval.payload.is_some()).cloned();
            let filled_in = approval.filled_in.clone();
            call.state = CallState::Decided;
            let kind = if approved {
                AuditKind::ApprovalApproved
            } else {
                AuditKind::ApprovalDenied
            };
            // The client that answered shows this already; the stored message must show it too.
            self.draft.apply(&Chunk::ToolApprovalResponse {
                approval_id: approval_id.into(),
                approved,
                reason: reason.map(Into::into),
                provider_executed: None,
                provider_metadata: None,
            });
            if let Some(filled_in) = filled_in {
                self.draft.fill_in(approval_id, filled_in);
            }
            let row = self.audit(kind, &self.calls[index], reason);
            out.audit.push(row);
        }
        Ok(answered)
    }

    /// Takes a client tool's outcome.
    fn supply(
        &mut self,
        call_id: &str,
        outcome: Outcome,
        out: &mut Outbox,
    ) -> Result<Answered, Refusal> {
        let index = self.calls.index_of(call_id).ok_or(Refusal::UnknownCall)?;
        if self.repeats(call_id, &outcome) {
            return Ok(Answered::Repeated);
        }
        let call = &mut self.calls[index];
        if call.runs_on != RunsOn::Client {
            return Err(Refusal::NotAClientTool);
        }
        let approved = call
            .approval
            .as_ref()
            .is_none_or(|approval| Approval::verdict(approval) == Some(true));
        match &call.state {
            CallState::AwaitingClient { .. } => {}
            CallState::Decided if approved => {}
            CallState::Asked if call.early.is_none() => {
                call.early = Some(outcome);
                return Ok(Answered::Decided);
            }
            CallState::Asked if call.early.as_ref() == Some(&outcome) => {
                return Ok(Answered::Repeated);
            }
            CallState::Settled {
                how: Settled::Expired,
            } => return Err(Refusal::Expired),
            CallState::Settled {
                how: Settled::Superseded,
            } => return Err(Refusal::Superseded),
            _ => return Err(Refusal::AlreadySettled),
        }
        self.settle_with(index, outcome, out);
        Ok(Answered::Decided)
    }

    /// Whether a client merely shows what the message says already.
    fn repeats(&self, call_id: &str, outcome: &Outcome) -> bool {
        self.tool_part(call_id)
            .is_some_and(|part| match (outcome, &part.state) {
                (Outcome::Output { value, .. }, ToolState::OutputAvailable) => {
                    part.output.as_ref().unwrap_or(&Value::Null) == value
                }
                (Outcome::Error { text }, ToolState::OutputError) => {
                    part.error_text.as_ref() == Some(text)
                }
                _ => false,
            })
    }

    pub(super) fn tool_part(&self, call_id: &str) -> Option<&ToolPart> {
        self.message()
            .parts
            .iter()
            .rev()
            .find_map(|part| match part {
                Part::Tool(tool) if tool.call_id == call_id => Some(tool.as_ref()),
                _ => None,
            })
    }
}
