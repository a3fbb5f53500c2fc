//! How the calls of a reply are started, asked about and settled.

use std::borrow::Cow;

use super::credentials::NOT_GRANTED_IN_TIME;
use super::{Context, Reply, Runner};
use crate::approval::{Approval, ApprovalState, input_hash};
use crate::calls::{Call, CallState, Outcome, RunsOn, Settlement};
use crate::chunk::Chunk;
use crate::json_text::Json;
use crate::outbox::{AuditKind, Effect, Outbox};
use crate::translate::file_chunk;

/// Results of calls that ended without one of their own, for the model and the user.
pub(crate) const EXPIRED: &str = "the approval was not given in time";
pub(crate) const NOT_ANSWERED: &str = "not run: the conversation went on without an answer";
pub(crate) const NOT_REPORTED: &str =
    "not run: approved, but the answer ended before the approval reached the agent";
pub(crate) const STOPPED: &str = "not run: the user stopped the answer";
pub(crate) const NO_OUTPUT: &str = "the front end did not supply an output in time";
pub(crate) const NO_OUTPUT_BEFORE: &str = "approved, but no output came before the conversation went on; it may have run in the front end";
pub(crate) const NO_OUTPUT_BEFORE_STOP: &str = "approved, but no output came before the user stopped the answer; it may have run in the front end";
pub(crate) const UNKNOWN_OUTCOME: &str = "the outcome is unknown: the server restarted while the tool was running, and it was not run again";
pub(crate) const RUN_OVER: &str =
    "the outcome is unknown: the agent's run ended while the tool was running";
pub(crate) const UNFINISHED: &str = "the model did not finish this call";

/// Part of ADK's default hint, which explains to a program how to answer and is of no use to a human.
const FOR_PROGRAMS: &str = "by responding with a FunctionResponse";

/// A question that a remote agent asks.
pub(super) struct Question<'q> {
    pub(super) remote_id: &'q str,
    pub(super) hint: String,
    pub(super) payload: Option<Json>,
}

impl Reply {
    /// Starts the calls of a model call that has ended, and asks humans about those that need approval.
    pub(super) fn start_or_ask_calls(&mut self, context: &mut Context<'_>, out: &mut Outbox) {
        let fresh: Vec<usize> = (0..self.calls.len())
            .filter(|&index| {
                matches!(
                    self.calls[index].state,
                    CallState::Received | CallState::Streaming
                )
            })
            .collect();
        if fresh.is_empty() {
            return;
        }
        self.durably(out, |reply, out| {
            // Calls that need no human come first: they do not have to wait for one.
            let mut asked = Vec::new();
            for index in fresh {
                if reply.start_unless_asked(index, context, out) {
                    asked.push(index);
                }
            }
            for index in asked {
                reply.ask(index, None, context, out);
            }
        });
    }

    /// Starts a call, unless a human must be asked first. Returns whether one must.
    fn start_unless_asked(
        &mut self,
        index: usize,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) -> bool {
        if self.calls[index].state == CallState::Streaming {
            self.settle_with(index, Outcome::error(UNFINISHED), out);
            return false;
        }
        let name = self.calls[index].name.clone();
        let rule = context.policy.tool(&name);
        let call = &mut self.calls[index];
        match (context.policy.runner(), rule) {
            (Runner::Remote, rule) if call.runs_on == RunsOn::Client => {
                if rule.is_some_and(|rule| rule.needs_approval) {
                    return true;
                }
            }
            (Runner::Remote, _) => return false,
            (Runner::Bridge, None) => {
                let text = format!("there is no tool named {name:?}");
                self.settle_with(index, Outcome::error(text), out);
                return false;
            }
            (Runner::Bridge, Some(rule)) => {
                call.runs_on = rule.runs_on;
                call.idempotent = rule.idempotent;
                if !call.input.is_object() {
                    self.settle_with(
                        index,
                        Outcome::error("the arguments must be an object"),
                        out,
                    );
                    return false;
                }
                if rule.needs_approval {
                    return true;
                }
            }
        }
        self.start(index, context, out);
        false
    }

    /// Starts a call that nothing prevents from running.
    fn start(&mut self, index: usize, context: &mut Context<'_>, out: &mut Outbox) {
        match self.calls[index].runs_on {
            RunsOn::Server => {
                self.open_turn_if_none();
                self.calls[index].state = CallState::Running;
                out.audit
                    .push(self.audit(AuditKind::ToolStarted, &self.calls[index], None));
                out.want(Effect::RunTool {
                    call: self.calls[index].id.clone(),
                });
            }
            RunsOn::Client => match self.calls[index].early.take() {
                Some(outcome) => self.settle_with(index, outcome, out),
                None => {
                    let limits = context.policy.limits();
                    let time = match self.calls[index].asks_a_human() {
                        true => limits.approval_timeout,
                        false => limits.client_timeout,
                    };
                    let expires = context.now + time;
                    self.calls[index].state = CallState::AwaitingClient { expires };
                }
            },
            RunsOn::Remote => self.calls[index].state = CallState::Running,
        }
    }

    /// Asks a human. The caller commits before the question is sent.
    pub(super) fn ask(
        &mut self,
        index: usize,
        question: Option<Question<'_>>,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let call = &mut self.calls[index];
        if let Some(question) = &question {
            self.translator.metadata.ask(&call.id, &question.shown());
        }
        let remote_id = question.as_ref().map(|question| question.remote_id);
        let approval = Approval {
            id: context.ids.approval(remote_id),
            remote_id: remote_id.map(str::to_owned),
            hint: question
                .as_ref()
                .map(|question| question.hint.clone())
                .filter(|hint| !hint.is_empty())
                .unwrap_or_else(|| default_hint(&call.name)),
            payload: question.and_then(|question| question.payload),
            filled_in: None,
            input_hash: input_hash(&call.input),
            asked_at: context.now,
            expires_at: context.now + context.policy.limits().approval_timeout,
            state: ApprovalState::Requested,
        };
        let chunk = Chunk::ToolApprovalRequest {
            approval_id: Cow::Borrowed(approval.id.as_str()),
            tool_call_id: Cow::Borrowed(call.id.as_str()),
            approval_descriptor: None,
            input_schema_input: None,
            signature: None,
            reason: None,
            is_automatic: None,
        };
        self.draft.emit(&chunk, out);
        call.state = CallState::Asked;
        call.announced = false;
        call.reported = false;
        call.approval = Some(approval);
        out.audit
            .push(self.audit(AuditKind::ApprovalRequested, &self.calls[index], None));
    }

    /// Acts on decisions.
    pub(super) fn start_decided(&mut self, context: &mut Context<'_>, out: &mut Outbox) {
        let decided: Vec<usize> = (0..self.calls.len())
            .filter(|&index| {
                let call = &self.calls[index];
                // A remote agent acts on decisions itself, once it has all of a step.
                call.state == CallState::Decided && call.runs_on != RunsOn::Remote
            })
            .collect();
        if decided.is_empty() {
            return;
        }
        self.durably(out, |reply, out| {
            for index in decided {
                let verdict = reply.calls[index]
                    .approval
                    .as_ref()
                    .and_then(Approval::verdict);
                if verdict == Some(true) {
                    reply.start(index, context, out);
                } else {
                    reply.settle_denied(index, out);
                }
            }
        });
    }

    /// Settles a denied call. The front end is informed only when the client tools of the same step are settled: a
    /// denied call in the step would keep the stock predicate from sending their output.
    pub(super) fn settle_denied(&mut self, index: usize, out: &mut Outbox) {
        self.calls[index].settle(Settlement::Denied);
        let defer = self.calls.open().any(|call| call.runs_on == RunsOn::Client);
        if !defer {
            self.announce_denial(index, out);
        }
    }

    /// Sends the denials that were withheld to the front end.
    pub(super) fn announce_deferred(&mut self, out: &mut Outbox) {
        if self.calls.iter().any(is_kept_back) {
            self.durably(out, |reply, out| reply.announce_denials(out));
        }
    }

    pub(super) fn announce_denials(&mut self, out: &mut Outbox) {
        for index in 0..self.calls.len() {
            if is_kept_back(&self.calls[index]) {
                self.announce_denial(index, out);
            }
        }
    }

    fn announce_denial(&mut self, index: usize, out: &mut Outbox) {
        self.calls[index].announced = true;
        self.draft.emit(
            &Chunk::ToolOutputDenied {
                tool_call_id: Cow::Borrowed(self.calls[index].id.as_str()),
            },
            out,
        );
    }

    /// Settles a call with a result and shows it. The caller commits.
    pub(super) fn settle_with(&mut self, index: usize, outcome: Outcome, out: &mut Outbox) {
        self.settle_and_describe(index, outcome, None, out);
    }

    /// The same, with metadata for whoever shows the output.
    pub(super) fn settle_and_describe(
        &mut self,
        index: usize,
        outcome: Outcome,
        tool_metadata: Option<Json>,
        out: &mut Outbox,
    ) {
        let kind = match outcome {
            Outcome::Output { .. } => AuditKind::ToolFinished,
            Outcome::Error { .. } => AuditKind::ToolFailed,
        };
        if self.calls[index].state != CallState::Streaming {
            let reason = match &outcome {
                Outcome::Error { text } => Some(text.as_str()),
                Outcome::Output { .. } => None,
            };
            out.audit.push(self.audit(kind, &self.calls[index], reason));
        }
        match outcome {
            Outcome::Output { value, files } => {
                self.calls[index].settle(Settlement::Output);
                self.calls[index].announced = true;
                self.draft.emit(
                    &Chunk::ToolOutputAvailable {
                        tool_call_id: Cow::Borrowed(self.calls[index].id.as_str()),
                        output: value,
                        provider_executed: None,
                        provider_metadata: None,
                        tool_metadata,
                        dynamic: None,
                        preliminary: None,
                    },
                    out,
                );
                for file in files {
                    self.draft
                        .emit(&file_chunk(&file.url, &file.media_type), out);
                }
            }
            Outcome::Error { text } => self.settle_failed(index, Settlement::Error, &text, out),
        }
    }

    /// Settles a call that has no result and shows why.
    pub(super) fn settle_failed(
        &mut self,
        index: usize,
        how: Settlement,
        text: &str,
        out: &mut Outbox,
    ) {
        self.calls[index].settle(how);
        self.calls[index].announced = true;
        self.draft.emit(
            &Chunk::ToolOutputError {
                tool_call_id: Cow::Borrowed(self.calls[index].id.as_str()),
                error_text: Cow::Borrowed(text),
                provider_executed: None,
                provider_metadata: None,
                tool_metadata: None,
                dynamic: None,
            },
            out,
        );
    }

    pub(super) fn tool_finished(
        &mut self,
        index: usize,
        outcome: Outcome,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        self.durably(out, |reply, out| {
            reply.settle_with(index, outcome, out);
            reply.close_orphaned_questions(out);
        });
        self.continue_or_close(context, out);
    }

    /// Settles calls whose time has run out.
    pub(super) fn expire(&mut self, context: &Context<'_>, out: &mut Outbox) {
        let due = |call: &Call| call.is_due(context.now);
        if !self.calls.iter().any(due) {
            return;
        }
        self.durably(out, |reply, out| {
            for index in 0..reply.calls.len() {
                if !due(&reply.calls[index]) {
                    continue;
                }
                let expired = reply.calls[index]
                    .approval
                    .as_mut()
                    .is_some_and(|approval| approval.expire(context.now));
                if expired {
                    out.audit.push(reply.audit(
                        AuditKind::ApprovalExpired,
                        &reply.calls[index],
                        None,
                    ));
                    reply.settle_failed(index, Settlement::Expired, EXPIRED, out);
                } else if reply.calls[index].asks_for_credentials() {
                    reply.refuse_grant(index, Settlement::Expired, NOT_GRANTED_IN_TIME, out);
                } else if reply.calls[index].is_asked_by_a_tool() {
                    reply.expire_question(index, out);
                } else {
                    reply.settle_with(index, Outcome::error(NO_OUTPUT), out);
                }
            }
        });
    }

    /// Settles calls that a crash interrupted. A started tool is not started again unless it is idempotent. A remote
    /// agent that waited for an answer has not noticed the crash.
    pub(super) fn recover_calls(
        &mut self,
        asking: bool,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let waits = !asking && self.calls.iter().any(Call::waits_for_client);
        let cut: Vec<usize> = (0..self.calls.len())
            .filter(|&index| {
                matches!(
                    self.calls[index].state,
                    CallState::Running | CallState::Streaming | CallState::Received
                ) && !(waits && self.calls[index].is_underway_elsewhere())
            })
            .collect();
        if cut.is_empty() {
            return;
        }
        self.durably(out, |reply, out| {
            for index in cut {
                let call = &reply.calls[index];
                match call.state {
                    CallState::Running if call.idempotent && reply.ended().is_none() => {
                        reply.start(index, context, out);
                    }
                    CallState::Running => {
                        out.audit
                            .push(reply.audit(AuditKind::ToolOutcomeUnknown, call, None));
                        reply.settle_failed(index, Settlement::Unknown, UNKNOWN_OUTCOME, out);
                    }
                    _ => reply.settle_failed(index, Settlement::Error, UNFINISHED, out),
                }
            }
        });
    }
}

impl Question<'_> {
    /// What a front end sees of the question in addition to the call.
    fn shown(&self) -> Json {
        let is_telling = !self.hint.is_empty() && !self.hint.contains(FOR_PROGRAMS);
        let hint = is_telling.then(|| self.hint.as_str().into());
        let fields = [("hint", hint), ("payload", self.payload.clone())];
        Json::object(
            fields
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?))),
        )
    }
}

impl Outcome {
    /// A failure, as it is reported to the model and the user.
    pub fn error(text: impl Into<String>) -> Self {
        Self::Error { text: text.into() }
    }

    /// An output without files.
    pub fn output(value: impl Into<Json>) -> Self {
        Self::Output {
            value: value.into(),
            files: Vec::new(),
        }
    }
}

fn is_kept_back(call: &Call) -> bool {
    call.settled() == Some(Settlement::Denied) && !call.announced
}

/// The hint that a human sees if the tool has none.
pub(crate) fn default_hint(tool: &str) -> String {
    format!("Allow the assistant to run {tool}?")
}
