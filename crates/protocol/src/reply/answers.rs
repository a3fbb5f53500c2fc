//! The answers of a client: decisions on approvals and outputs of client tools, read from the message that it sends.

use std::borrow::Cow;

use super::credentials::{NOT_GRANTED, is_refusal};
use super::judge::{Verdict, judge};
use super::stance::{Stance, confirmed_by, is_confirmation, stance_in, stance_of};
use super::{Audience, Context, Reply, Turn};
use crate::approval::{Approval, Refusal};
use crate::calls::{Call, CallState, Outcome, RunsOn, Settlement};
use crate::chunk::Chunk;
use crate::id::{ApprovalId, CallId};
use crate::json_text::Json;
use crate::message::{Message, Part, ToolPart, ToolState};
use crate::outbox::{AuditKind, Outbox};

/// How many refused answers of one request are recorded. Only a manipulated client sends more than this, and a longer
/// list says nothing new about it.
pub const MAX_REFUSED: usize = 20;

/// One answer of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer<'a> {
    /// Yes or no.
    Decision {
        /// The question.
        approval_id: ApprovalId,
        /// Whether it is a yes.
        approved: bool,
        /// Why, if it was said.
        reason: Option<&'a str>,
        /// What the human filled in, if a remote agent's tool asked for something.
        payload: Option<Json>,
        /// The part that it came in, if any. The rest of that part must not contradict it.
        part: Option<&'a ToolPart>,
    },
    /// What a client tool returned.
    Output {
        /// Its call.
        call_id: &'a CallId,
        /// The output.
        output: &'a Json,
    },
    /// A client tool failed.
    Failure {
        /// Its call.
        call_id: &'a CallId,
        /// Why.
        error: &'a str,
    },
    /// The user has granted credentials. No client says so: whoever keeps them does.
    Granted {
        /// Its call.
        call_id: &'a CallId,
    },
    /// An answer to a question that is neither a clear yes nor a clear no; an open question stays open.
    Unclear {
        /// The question.
        approval_id: ApprovalId,
        /// The call whose part it is.
        call_id: &'a CallId,
        /// What the flag alone says, for a question that is no longer open.
        approved: Option<bool>,
    },
}

/// The answers in a message. Every request repeats old ones; the reply recognises them.
pub fn answers_of(message: &Message) -> Vec<Answer<'_>> {
    message
        .parts
        .iter()
        .filter_map(Part::as_tool)
        .flat_map(|tool| decision_of(tool).into_iter().chain(result_of(tool)))
        .collect()
}

/// What the output of the call itself says about its approval. A client tool's output may hold any words, so only a
/// plain yes or no counts.
fn stance_of_output(output: &Json, call: &Call) -> Stance {
    if call.runs_on != RunsOn::Client {
        return stance_of(output);
    }
    let word = |name: &str| output.get(name)?.as_bool();
    let said = |name| word(name).map_or(Stance::Absent, Stance::Clear);
    said("confirmed").and(said("approved"))
}

/// Whether the rest of a part agrees with its yes or no.
fn is_consistent(part: &ToolPart, approved: bool, call: &Call) -> bool {
    if is_confirmation(part) {
        return true; // Its output is the decision.
    }
    let failed = part.state == ToolState::OutputError && call.runs_on != RunsOn::Client;
    let outputs = [part.output.clone(), part.extra.get("result")];
    let said = outputs
        .iter()
        .flatten()
        .map(|it| stance_of_output(it, call));
    let said = said.fold(Stance::Clear(approved), Stance::and);
    !(failed && approved) && said == Stance::Clear(approved)
}

fn decision_of(tool: &ToolPart) -> Option<Answer<'_>> {
    let field = tool.approval.as_ref();
    // Messages written by hand name the confirmation by the id of its call.
    let approval_id = field.and_then(|field| field.id.clone());
    let approval_id = approval_id.unwrap_or_else(|| tool.call_id.to_approval());
    match stance_in(tool) {
        Stance::Absent => None,
        Stance::Clear(approved) => {
            let filled_in = field.and_then(|field| field.extra.get("payload"));
            let output = tool.output.as_ref().filter(|_| is_confirmation(tool));
            Some(Answer::Decision {
                approval_id,
                approved,
                reason: field.and_then(|field| field.reason.as_deref()),
                payload: filled_in.or_else(|| output?.get("payload")),
                part: Some(tool),
            })
        }
        Stance::Failed | Stance::Unclear => Some(Answer::Unclear {
            approval_id,
            call_id: &tool.call_id,
            approved: field.and_then(|field| field.approved),
        }),
    }
}

fn result_of(tool: &ToolPart) -> Option<Answer<'_>> {
    let call_id = &tool.call_id;
    match tool.state {
        // The output of a confirmation is its decision.
        ToolState::OutputAvailable if is_confirmation(tool) => None,
        ToolState::OutputAvailable if tool.preliminary != Some(true) => Some(Answer::Output {
            call_id,
            output: tool.output.as_ref().unwrap_or(Json::nothing()),
        }),
        ToolState::OutputError => Some(Answer::Failure {
            call_id,
            error: tool.error_text.as_deref().unwrap_or("the tool failed"),
        }),
        _ => None,
    }
}

/// A clear yes or no to an approval.
struct Decision<'a> {
    approved: bool,
    reason: Option<&'a str>,
    payload: Option<Json>,
}

impl<'a> Answer<'a> {
    /// The decision on this call, if the answer is one: directly, or as the output of a confirmation.
    fn decision_on(&self, call: &Call) -> Option<Decision<'a>> {
        match self {
            Answer::Decision {
                approved,
                reason,
                payload,
                ..
            } => Some(Decision {
                approved: *approved,
                reason: *reason,
                payload: payload.clone(),
            }),
            Answer::Output { call_id, output } if **call_id != call.id => Some(Decision {
                approved: confirmed_by(output)?,
                reason: None,
                payload: output.get("payload"),
            }),
            _ => None,
        }
    }

    /// The outcome of a client tool, if the answer is one.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        match *self {
            Answer::Output { output, .. } => Some(Outcome::output(output.clone())),
            Answer::Failure { error, .. } => Some(Outcome::error(error)),
            _ => None,
        }
    }

    /// The id that it names, of an approval or of a call.
    pub fn id(&self) -> &str {
        match self {
            Answer::Decision { approval_id, .. } | Answer::Unclear { approval_id, .. } => {
                approval_id.as_str()
            }
            Answer::Output { call_id, .. }
            | Answer::Failure { call_id, .. }
            | Answer::Granted { call_id } => call_id.as_str(),
        }
    }

    /// What it says about the approval of this call; nothing if it is about another one.
    fn verdict_on(&self, call: &Call, approval: &Approval) -> Stance {
        let is_named = |id: &str| call.id == *id || approval.id == *id;
        let on_client = call.runs_on == RunsOn::Client;
        match self {
            Answer::Decision {
                approval_id,
                approved,
                part,
                ..
            } => {
                let named = part.map(|part| part.call_id.as_str());
                let named = named.filter(|id| !id.is_empty());
                // With another approval id, or none, it is still about this call.
                let concerns = is_named(approval_id.as_str()) || named.is_some_and(is_named);
                // An answer that names two calls decides neither.
                let is_clear = named.is_none_or(is_named)
                    && part.is_none_or(|part| {
                        approval.is_meant_by(&part.extra) && is_consistent(part, *approved, call)
                    });
                match (concerns, is_clear) {
                    (false, _) => Stance::Absent,
                    (true, false) => Stance::Unclear,
                    (true, true) => Stance::Clear(*approved),
                }
            }
            Answer::Output { call_id, output } if **call_id == call.id => {
                match stance_of_output(output, call) {
                    // The output of a client tool is kept until the decision.
                    Stance::Unclear if on_client => Stance::Absent,
                    said => said,
                }
            }
            // The same is true of its failure.
            Answer::Failure { call_id, .. } if **call_id == call.id && on_client => Stance::Absent,
            Answer::Failure { call_id, .. } if **call_id == call.id => Stance::Failed,
            Answer::Output { call_id, output } if approval.id == *call_id.as_str() => {
                confirmed_by(output).map_or(Stance::Unclear, Stance::Clear)
            }
            Answer::Failure { call_id, .. } if approval.id == *call_id.as_str() => Stance::Unclear,
            Answer::Unclear {
                approval_id,
                call_id,
                ..
            } if is_named(approval_id.as_str()) || is_named(call_id.as_str()) => Stance::Unclear,
            Answer::Output { .. }
            | Answer::Failure { .. }
            | Answer::Granted { .. }
            | Answer::Unclear { .. } => Stance::Absent,
        }
    }
}

impl Reply {
    /// The open questions that these answers leave unclear: neither a clear yes nor a clear no, or both.
    pub fn unclear(&self, answers: &[Answer<'_>]) -> Vec<ApprovalId> {
        let is_unclear = |call: &&Call| {
            let Some(approval) = call.approval.as_ref().filter(|it| it.is_open()) else {
                return false;
            };
            let verdicts = answers
                .iter()
                .map(|answer| answer.verdict_on(call, approval));
            let said = verdicts.fold(Stance::Absent, Stance::and);
            matches!(said, Stance::Failed | Stance::Unclear)
        };
        let approval_id = |call: &Call| call.approval.as_ref().map(|it| it.id.clone());
        let unclear = self.calls.iter().filter(is_unclear);
        unclear.filter_map(approval_id).collect()
    }

    /// The first of these answers that does not fit the form of an open question: why, in words for who gave it.
    pub fn misfit(&self, answers: &[Answer<'_>]) -> Option<String> {
        answers.iter().find_map(|answer| match answer {
            Answer::Output { call_id, output } => {
                let call = self.calls.by_id(call_id);
                call.filter(|call| call.is_open())?.misfit(output)
            }
            _ => None,
        })
    }

    /// Whether something still waits for one of these answers.
    pub fn waits_for(&self, answers: &[Answer<'_>]) -> bool {
        self.ended().is_none() && answers.iter().any(|answer| self.is_news(answer))
    }

    /// Takes those answers of a newer message that something waits for.
    pub(super) fn take_last_answers(
        &mut self,
        answers: &[Answer<'_>],
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let unclear = self.unclear(answers);
        let mark = out.barrier();
        let mut taken = false;
        for answer in answers {
            if self.is_news(answer) && !self.concerns(answer, &unclear) {
                taken |= self.take_answer(answer, context, out) == Ok(Verdict::Takes);
            }
        }
        if taken {
            self.end_holds();
            self.commit_at(mark, out);
        }
    }

    fn is_news(&self, answer: &Answer<'_>) -> bool {
        let waits = |call: &Call| match answer {
            Answer::Output { call_id, .. } | Answer::Failure { call_id, .. }
                if call.id == **call_id =>
            {
                let says_nothing = match answer {
                    Answer::Output { output, .. } => !is_refusal(output),
                    _ => false,
                };
                call.runs_on == RunsOn::Client
                    && call.is_open()
                    && !(call.asks_for_credentials() && says_nothing)
            }
            Answer::Granted { call_id } => call.id == **call_id && call.is_open(),
            _ => call.approval.as_ref().is_some_and(|approval| {
                approval.is_open() && !answer.verdict_on(call, approval).is_absent()
            }),
        };
        self.calls.iter().any(waits)
    }

    fn concerns(&self, answer: &Answer<'_>, questions: &[ApprovalId]) -> bool {
        self.calls.iter().any(|call| {
            call.approval.as_ref().is_some_and(|approval| {
                questions.contains(&approval.id) && !answer.verdict_on(call, approval).is_absent()
            })
        })
    }

    pub(super) fn take_answers(
        &mut self,
        answers: &[Answer<'_>],
        mode: Option<Audience>,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        if let Some(mode) = mode {
            let turn = self.turn.get_or_insert(Turn {
                without_news: mode != Audience::Frame,
                ..Turn::new(mode)
            });
            turn.awaited |= matches!(mode, Audience::Request | Audience::Connection);
        }
        let mark = out.barrier();
        let (mut changed, mut refused) = (false, 0);
        let unclear = self.unclear(answers);
        for answer in answers {
            let taken = match self.concerns(answer, &unclear) {
                true => Err(Refusal::Unclear),
                false => self.take_answer(answer, context, out),
            };
            match taken {
                Ok(Verdict::Takes) => changed = true,
                Ok(Verdict::Repeats) => {}
                Err(refusal) => {
                    // Each one is a permanent row of the audit.
                    if refused < MAX_REFUSED {
                        out.refuse(answer.id(), refusal);
                    }
                    refused += 1;
                }
            }
        }
        if changed {
            self.end_holds();
        }
        if changed || !out.audit.is_empty() {
            self.commit_at(mark, out);
        }
        self.continue_or_close(context, out);
    }

    fn take_answer(
        &mut self,
        answer: &Answer<'_>,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) -> Result<Verdict, Refusal> {
        let index = self.call_of(answer);
        let call = index.map(|index| &self.calls[index]);
        let part = call.and_then(|call| self.tool_part(&call.id));
        let verdict = judge(answer, call, part, context.now)?;
        if let (Verdict::Takes, Some(index)) = (verdict, index) {
            match answer.decision_on(&self.calls[index]) {
                Some(decision) => self.decide(index, &decision, context, out),
                None => self.take_outcome(index, answer, out),
            }
        }
        Ok(verdict)
    }

    /// The call that an answer is about: the one it names, or the one whose approval it names.
    fn call_of(&self, answer: &Answer<'_>) -> Option<usize> {
        let calls = &self.calls;
        match answer {
            Answer::Decision { approval_id, .. } | Answer::Unclear { approval_id, .. } => {
                calls.index_of_approval(approval_id)
            }
            Answer::Granted { call_id } => calls.index_of(call_id),
            Answer::Output { call_id, .. } | Answer::Failure { call_id, .. } => {
                let named = calls.index_of(call_id);
                named.or_else(|| calls.index_of_approval(&call_id.to_approval()))
            }
        }
    }

    fn decide(
        &mut self,
        index: usize,
        decision: &Decision<'_>,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let call = &mut self.calls[index];
        let Some(approval) = &mut call.approval else {
            return;
        };
        // The judge has found it open.
        let _ = approval.answer(decision.approved, decision.reason, context.now);
        // A tool that asked for nothing gets nothing filled in.
        let filled_in = decision.payload.as_ref();
        let filled_in = filled_in.filter(|_| approval.payload.is_some());
        approval.filled_in = filled_in.cloned();
        call.state = CallState::Decided;
        let approval_id = approval.id.clone();
        // The client that answered shows this already; the stored message must show it too.
        self.draft.apply(&Chunk::ToolApprovalResponse {
            approval_id: Cow::Borrowed(approval_id.as_str()),
            approved: decision.approved,
            reason: decision.reason.map(Into::into),
            provider_executed: None,
            provider_metadata: None,
        });
        if let Some(filled_in) = filled_in {
            self.draft.fill_in(&approval_id, filled_in);
        }
        let kind = match decision.approved {
            true => AuditKind::ApprovalApproved,
            false => AuditKind::ApprovalDenied,
        };
        let row = self.audit(kind, &self.calls[index], decision.reason);
        out.audit.push(row);
    }

    /// Takes a client tool's outcome.
    fn take_outcome(&mut self, index: usize, answer: &Answer<'_>, out: &mut Outbox) {
        if self.calls[index].asks_for_credentials() {
            return match answer {
                Answer::Granted { .. } => self.grant(index, out),
                Answer::Failure { error, .. } => {
                    self.refuse_grant(index, Settlement::Error, error, out);
                }
                _ => self.refuse_grant(index, Settlement::Error, NOT_GRANTED, out),
            };
        }
        let Some(outcome) = answer.outcome() else {
            return;
        };
        if self.calls[index].is_asked_by_a_tool() {
            return self.answer_question(index, outcome, out);
        }
        let call = &mut self.calls[index];
        match call.state {
            // It counts only after a human has approved the call.
            CallState::Asked => call.early = Some(outcome),
            _ => self.settle_with(index, outcome, out),
        }
    }

    pub(super) fn tool_part(&self, call_id: &CallId) -> Option<&ToolPart> {
        self.message()
            .parts
            .iter()
            .rev()
            .find_map(|part| match part {
                Part::Tool(tool) if tool.call_id == *call_id => Some(tool.as_ref()),
                _ => None,
            })
    }
}
