//! What a remote ADK server says about its calls, and how it is told of results and decisions.

use serde_json::{Value, json};

use super::settle::Question;
use super::{Ended, Given, Reply, Run};
use crate::approval::Approval;
use crate::base64;
use crate::calls::{Call, CallState, File, Outcome, RunsOn, Settled};
use crate::event::{FunctionResponse, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL};
use crate::message::ToolState;
use crate::outbox::{Ask, AuditKind, Effect, Outbox, Response};
use crate::translate::Original;

const NO_CREDENTIALS: &str =
    "the agent asks for credentials, which must be set up on the ADK server";
const CANNOT_ASK: &str = "not run: this tool needs an approval, which the ADK server cannot ask for in a spoken conversation; \
                          ask for it in writing, with the spoken conversation closed";
const NO_RESULT: &str = "the agent reported no result for this call";

impl Reply {
    /// A complete call has arrived.
    pub(super) fn called(
        &mut self,
        index: usize,
        long_running: bool,
        given: &mut Given<'_>,
        out: &mut Outbox,
    ) {
        let remote = self.is_remote(given);
        let call = &mut self.calls[index];
        if !remote {
            return; // The bridge acts when the model has finished speaking.
        }
        if call.name == REQUEST_CREDENTIAL {
            self.durably(out, |reply, out| {
                reply.settle_with(index, Outcome::error(NO_CREDENTIALS), out);
            });
        } else if long_running {
            call.runs_on = RunsOn::Client;
        } else {
            call.runs_on = RunsOn::Remote;
            call.state = CallState::Running;
        }
    }

    /// The agent asks a human about one of its calls, which may have been seen, settled by a placeholder, or not.
    pub(super) fn confirmation(
        &mut self,
        question: Question<'_>,
        original: &Original,
        given: &mut Given<'_>,
        out: &mut Outbox,
    ) {
        let asked_before = self.calls.iter().any(|call| {
            call.approval
                .as_ref()
                .is_some_and(|approval| approval.remote_id.as_deref() == Some(question.remote_id))
        });
        if asked_before {
            return;
        }
        let index = self.find(original.id.as_deref(), &original.name);
        let index = match index {
            Some(index) => index,
            None if original.name.is_empty() => return, // Nobody could tell what they consent to.
            None => self.invent(
                original.id.as_deref(),
                &original.name,
                original.args.clone(),
                given,
                out,
            ),
        };
        self.durably(out, |reply, out| {
            reply.ask(index, Some(question), given, out);
        });
        // What the model says next it says without the answer, and in the step of the question it would pass for one.
        self.translator.muted = true;
    }

    /// A tool of the agent has answered.
    pub(super) fn responded(
        &mut self,
        response: &FunctionResponse<'_>,
        placeholder: bool,
        given: &mut Given<'_>,
        out: &mut Outbox,
    ) {
        let name = response.name.as_deref().unwrap_or_default();
        if name == REQUEST_CONFIRMATION || placeholder && self.can_ask {
            return;
        }
        let index = match self.find(response.id.as_deref(), name) {
            Some(index) => index,
            None if name.is_empty() => return,
            None => self.invent(response.id.as_deref(), name, json!({}), given, out),
        };
        if placeholder {
            return self.cannot_ask(index, out);
        }
        let call = &self.calls[index];
        let verdict = call.approval.as_ref().and_then(Approval::verdict);
        let denied = verdict == Some(false) || call.settled() == Some(Settled::Expired);
        if denied && !is_rejection(response.response.as_ref()) {
            let row = self.audit(AuditKind::ToolRanDespiteDenial, call, None);
            out.audit.push(row);
            self.durably(out, |reply, out| reply.finish_denied(index, out));
            return;
        }
        if !call.is_open() {
            return;
        }
        let unasked = given
            .rules
            .tool(name)
            .is_some_and(|rule| rule.needs_approval)
            && call.approval.is_none();
        self.durably(out, |reply, out| {
            if verdict == Some(false) {
                reply.finish_denied(index, out);
            } else {
                if let Some(approval) = &mut reply.calls[index].approval {
                    approval.supersede(); // It was decided elsewhere.
                }
                reply.settle_with(index, outcome_of(response), out);
                // The agent's own words: a long-running tool tells the model itself how things stand.
                reply.calls[index].reported = true;
            }
            if unasked {
                let row = reply.audit(AuditKind::ApprovalUnsupported, &reply.calls[index], None);
                out.audit.push(row);
            }
        });
        if unasked {
            let message = format!(
                "the ADK server ran {name} without asking, although it is configured to need approval; \
                 give the tool require_confirmation on the server"
            );
            self.close(Ended::Failed, Some(message), out);
        }
    }

    /// The agent wants a human asked, and has no way to be told the answer: nobody is asked, and nothing runs.
    fn cannot_ask(&mut self, index: usize, out: &mut Outbox) {
        if !self.calls[index].is_open() {
            return;
        }
        self.durably(out, |reply, out| {
            let call = &reply.calls[index];
            let row = reply.audit(AuditKind::ApprovalUnsupported, call, Some(CANNOT_ASK));
            out.audit.push(row);
            reply.settle_failed(index, Settled::Error, CANNOT_ASK, out);
        });
    }

    /// Tells a remote agent what it waits for, when all of it is there. Returns whether a run was started.
    pub(super) fn report(&mut self, given: &mut Given<'_>, out: &mut Outbox) -> bool {
        if !self.is_remote(given) {
            return false;
        }
        if self.calls.iter().any(Call::waits_for_client) {
            return false;
        }
        let (results, confirmations) = self.unreported();
        if results.is_empty() && confirmations.is_empty() {
            self.settle_silent(out);
            return false;
        }
        self.turn.get_or_insert(super::Mode::Alone);
        let first = if results.is_empty() {
            &confirmations
        } else {
            &results
        };
        let only_results = !results.is_empty() && !confirmations.is_empty();
        let responses: Vec<Response> = first.iter().map(|&index| self.response(index)).collect();
        for &index in first {
            let call = &mut self.calls[index];
            call.reported = true;
            if call.state == CallState::Decided {
                call.state = CallState::Running;
            }
        }
        self.run = Some(if only_results {
            Run::Results
        } else {
            Run::Answer
        });
        self.steps += 1;
        self.translator.muted = only_results;
        self.durably(out, |_, out| {
            out.effects.push(Effect::Ask(Ask::Responses(responses)));
        });
        true
    }

    /// The outcomes of client tools, and the decisions, of which the agent has not been told.
    fn unreported(&self) -> (Vec<usize>, Vec<usize>) {
        let indices = |wanted: &dyn Fn(&Call) -> bool| {
            (0..self.calls.len())
                .filter(|&index| !self.calls[index].reported && wanted(&self.calls[index]))
                .collect()
        };
        let results = indices(&|call| {
            call.runs_on == RunsOn::Client && !call.is_open() && call.model_id.is_some()
        });
        let confirmations = indices(&|call| {
            call.approval
                .as_ref()
                .is_some_and(|approval| approval.remote_id.is_some() && !approval.is_open())
                && matches!(
                    (&call.state, call.settled()),
                    (CallState::Decided, _) | (_, Some(Settled::Expired))
                )
        });
        (results, confirmations)
    }

    fn response(&self, index: usize) -> Response {
        let call = &self.calls[index];
        if let Some(approval) = call
            .approval
            .as_ref()
            .filter(|_| call.runs_on == RunsOn::Remote)
        {
            let mut response = json!({"confirmed": approval.verdict() == Some(true)});
            // A tool that asked for something to be filled in reads it, whatever the decision was.
            if let Some(payload) = approval.filled_in.as_ref().or(approval.payload.as_ref()) {
                response["payload"] = payload.clone();
            }
            return Response {
                id: approval.remote_id.clone().unwrap_or_default(),
                name: REQUEST_CONFIRMATION.to_owned(),
                response,
            };
        }
        let response = match self.tool_part(&call.id) {
            Some(part) if part.state == ToolState::OutputAvailable => {
                crate::history::as_response(part.output.as_ref().unwrap_or(&Value::Null))
            }
            Some(part) if part.error_text.is_some() => json!({"error": part.error_text}),
            _ => json!({"error": crate::history::DENIED}),
        };
        Response {
            id: call.model_id.clone().unwrap_or_default(),
            name: call.name.clone(),
            response,
        }
    }

    /// A run that has ended will not answer any more.
    fn settle_silent(&mut self, out: &mut Outbox) {
        let silent: Vec<usize> = (0..self.calls.len())
            .filter(|&index| {
                self.calls[index].state == CallState::Running
                    && self.calls[index].runs_on == RunsOn::Remote
            })
            .collect();
        if silent.is_empty() {
            return;
        }
        self.durably(out, |reply, out| {
            for index in silent {
                let verdict = reply.calls[index]
                    .approval
                    .as_ref()
                    .and_then(Approval::verdict);
                if verdict == Some(false) {
                    reply.finish_denied(index, out);
                } else {
                    reply.settle_with(index, Outcome::error(NO_RESULT), out);
                }
            }
        });
    }

    fn finish_denied(&mut self, index: usize, out: &mut Outbox) {
        if self.calls[index].is_open() {
            self.deny(index, out);
        }
    }

    fn find(&self, id: Option<&str>, name: &str) -> Option<usize> {
        match id {
            Some(id) => self.calls.index_of_model_id(id),
            // Some servers leave ids out; calls are then answered in order.
            None => (0..self.calls.len())
                .find(|&index| self.calls[index].name == name && self.calls[index].is_open()),
        }
    }

    /// Shows a call that was made before this reply, or before its recording began.
    fn invent(
        &mut self,
        model_id: Option<&str>,
        name: &str,
        input: Value,
        given: &mut Given<'_>,
        out: &mut Outbox,
    ) -> usize {
        let call = Call {
            id: given.ids.call(model_id),
            model_id: model_id.map(str::to_owned),
            name: name.to_owned(),
            input,
            step: self.steps,
            runs_on: RunsOn::Remote,
            idempotent: false,
            approval: None,
            state: CallState::Running,
            early: None,
            announced: false,
            reported: false,
        };
        let mut index = 0;
        self.on_page(given, out, |translator, page| {
            index = translator.add_call(call, page);
        });
        index
    }
}

/// The words by which ADK says that a tool was not run because a human said no, or that the call never got so far.
fn is_rejection(response: Option<&Value>) -> bool {
    response.is_none_or(|response| {
        response.as_object().is_some_and(|fields| {
            fields.is_empty() || fields.contains_key("error") && fields.len() == 1
        })
    })
}

fn outcome_of(response: &FunctionResponse<'_>) -> Outcome {
    let value = response.response.clone().unwrap_or(Value::Null);
    if let Value::Object(fields) = &value
        && fields.len() == 1
        && let Some(Value::String(text)) = fields.get("error")
    {
        return Outcome::error(text.clone());
    }
    let files = response
        .parts
        .iter()
        .flatten()
        .filter_map(|part| {
            let blob = part.inline_data.as_ref()?;
            let media_type = blob.mime_type.as_deref()?.to_owned();
            let data = base64::to_standard(blob.data.as_deref()?);
            Some(File {
                url: format!("data:{media_type};base64,{data}"),
                media_type,
            })
        })
        .collect();
    Outcome::Output { value, files }
}
