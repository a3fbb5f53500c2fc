//! The calls of a remote ADK server: what it says about them, and how results and decisions are reported to it.

use serde_json::value::RawValue;

use super::settle::Question;
use super::{Context, EndReason, Reply, Run};
use crate::approval::Approval;
use crate::base64;
use crate::calls::{Call, CallState, File, Outcome, RunsOn, Settlement};
use crate::event::{FunctionResponse, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL};
use crate::history::{DENIED, as_response, error};
use crate::json_text::{Json, is_same};
use crate::message::ToolState;
use crate::outbox::{Ask, AuditKind, Effect, Outbox, Response};
use crate::translate::Original;

const CANNOT_ASK: &str = "not run: this tool needs an approval, which the ADK server cannot ask for in a spoken conversation; \
                          ask for it in writing, with the spoken conversation closed";
/// The tool by which an ADK agent hands over to another one.
const TRANSFER: &str = "transfer_to_agent";
/// The media type of apps of MCP servers.
const APP: &str = "text/html;profile=mcp-app";
const REPLACED: &str = "not run: the agent asks about another call in its place";
const NO_RESULT: &str = "the agent reported no result for this call";

impl Reply {
    /// Takes a complete call.
    pub(super) fn take_call(&mut self, index: usize, long_running: bool, context: &Context<'_>) {
        let remote = self.is_remote(context);
        let call = &mut self.calls[index];
        if !remote {
            return; // The bridge acts when the model has finished speaking.
        }
        if long_running {
            call.runs_on = RunsOn::Client;
        } else {
            call.runs_on = RunsOn::Remote;
            call.state = CallState::Running;
        }
    }

    /// Takes a question of the agent about one of its calls, which may be unknown, known, or settled by a placeholder.
    pub(super) fn take_confirmation(
        &mut self,
        question: Question<'_>,
        original: &Original,
        context: &mut Context<'_>,
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
        let known = self.find(original.id.as_deref(), &original.name);
        let index = match known {
            Some(index) if Self::is_about(&self.calls[index], original) => index,
            _ if original.name.is_empty() => return, // Nobody could tell what they consent to.
            // What runs is what the question names, so that is what must be shown.
            _ => {
                if let Some(other) = known {
                    self.replace_call(other, out);
                }
                self.show_earlier_call(
                    original.id.as_deref(),
                    &original.name,
                    original.args.clone().unwrap_or_else(Json::empty),
                    context,
                    out,
                )
            }
        };
        self.durably(out, |reply, out| {
            reply.ask(index, Some(question), context, out);
        });
        self.translator.mute_asker();
    }

    /// Takes its id from a call that the agent replaces by another one. It does not run, unless a human is being asked about it.
    fn replace_call(&mut self, index: usize, out: &mut Outbox) {
        self.calls[index].model_id = None;
        if !self.calls[index].is_underway_elsewhere() {
            return;
        }
        self.durably(out, |reply, out| {
            reply.settle_failed(index, Settlement::Error, REPLACED, out);
            reply.calls[index].reported = true;
        });
    }

    /// Whether a question is about a call as it was shown. An agent that does not repeat the call means that.
    fn is_about(call: &Call, original: &Original) -> bool {
        let args = original.args.as_ref();
        (original.name.is_empty() || original.name == call.name)
            && args.is_none_or(|args| is_same(&call.input, args))
    }

    /// Takes the response of an agent's tool.
    pub(super) fn take_response(
        &mut self,
        response: &FunctionResponse<'_>,
        app: Option<&str>,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let Some(index) = self.answered_call(response, context, out) else {
            return;
        };
        let name = response.name.as_deref().unwrap_or_default();
        let call = &self.calls[index];
        // Before the agent has the decision, all that a tool can return is that somebody must be asked.
        if matches!(call.state, CallState::Asked | CallState::Decided) {
            return;
        }
        let verdict = call.approval.as_ref().and_then(Approval::verdict);
        let not_answered = matches!(
            call.settled(),
            Some(Settlement::Expired | Settlement::Superseded)
        );
        let denied = verdict == Some(false) || not_answered;
        if denied && !is_rejection(response.response.as_ref()) {
            let row = self.audit(AuditKind::ToolRanDespiteDenial, call, None);
            out.audit.push(row);
            self.durably(out, |reply, out| reply.finish_denied(index, out));
            return;
        }
        if !call.is_open() {
            return;
        }
        let unasked = context
            .policy
            .tool(name)
            .is_some_and(|rule| rule.needs_approval)
            && call.approval.is_none();
        self.durably(out, |reply, out| {
            if verdict == Some(false) {
                reply.finish_denied(index, out);
            } else {
                let outcome = transfer_of(&reply.calls[index], response);
                let outcome = outcome.unwrap_or_else(|| outcome_of(response));
                reply.settle_and_describe(index, outcome, app.map(app_metadata), out);
                let call = &mut reply.calls[index];
                // Not to be reported: a long-running tool informs the model itself.
                call.reported = true;
                if call.runs_on == RunsOn::Client && call.settled() == Some(Settlement::Output) {
                    call.settle(Settlement::Interim);
                }
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
            self.close(EndReason::Failed, Some(message), out);
        }
    }

    /// The call that a tool of the agent answers; a call that was made before this reply is shown first.
    fn answered_call(
        &mut self,
        response: &FunctionResponse<'_>,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) -> Option<usize> {
        let name = response.name.as_deref().unwrap_or_default();
        // The answers to the agent's own questions, which some servers repeat, are not results; one may hold credentials.
        if matches!(name, REQUEST_CONFIRMATION | REQUEST_CREDENTIAL) {
            return None;
        }
        match self.find(response.id.as_deref(), name) {
            None if name.is_empty() => None,
            None => Some(self.show_earlier_call(
                response.id.as_deref(),
                name,
                Json::empty(),
                context,
                out,
            )),
            found => found,
        }
    }

    /// Refuses a question whose answer cannot be sent to the agent: no human is asked, and nothing runs.
    pub(super) fn refuse_question(
        &mut self,
        response: &FunctionResponse<'_>,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let call = self.answered_call(response, context, out);
        let Some(index) = call.filter(|&index| self.calls[index].is_open()) else {
            return;
        };
        self.durably(out, |reply, out| {
            let call = &reply.calls[index];
            let row = reply.audit(AuditKind::ApprovalUnsupported, call, Some(CANNOT_ASK));
            out.audit.push(row);
            reply.settle_failed(index, Settlement::Error, CANNOT_ASK, out);
        });
    }

    /// Starts a run that reports results to a remote agent, once everything that it waits for is there. Several agents
    /// get theirs one after another. Returns whether it did.
    pub(super) fn start_reporting_run(
        &mut self,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) -> bool {
        if !self.is_remote(context) {
            return false;
        }
        self.settle_silent(out);
        self.show_pending(out);
        let Some(Report { answered, run }) = self.next_report() else {
            return false;
        };
        self.open_turn_if_none();
        let responses = answered.iter().map(|&index| self.response(index)).collect();
        for &index in &answered {
            let call = &mut self.calls[index];
            call.reported = true;
            if call.state == CallState::Decided {
                call.state = CallState::Running;
            }
        }
        self.start_run(run);
        self.steps += 1;
        self.translator.set_muted(run == Run::Results);
        self.durably(out, |_, out| {
            out.want(Effect::Ask(Ask::Responses(responses)));
        });
        true
    }

    /// Whether an agent has all its answers, and none of them has been reported to it.
    pub(super) fn has_report(&self) -> bool {
        self.next_report().is_some()
    }

    /// What is reported next: the answers of one agent, in the order of asking. An ADK server resumes only the agent that
    /// the first answer of a run is for.
    fn next_report(&self) -> Option<Report> {
        let groups = self.unreported();
        let mut unreported: Vec<usize> = groups.iter().flatten().copied().collect();
        unreported.sort_unstable();
        let of = |call: &Call, index: &usize| self.calls[*index].is_answered_with(call);
        let first = unreported.into_iter().find(|index| {
            let waits = |call: &Call| call.waits_for_client() && of(call, index);
            !self.calls.iter().any(waits)
        })?;
        let first = &self.calls[first];
        let its = groups.map(|group| {
            let its = group.into_iter().filter(|index| of(first, index));
            its.collect::<Vec<_>>()
        });
        let mut its = its.into_iter().filter(|group| !group.is_empty());
        // Results would not reach the model in one message with answers to questions, and ADK acts on one kind of answer
        // only. A workflow, however, goes on after the first message: what was approved would not run.
        let in_workflow = first
            .origin
            .as_ref()
            .is_some_and(|origin| origin.in_workflow);
        let mut answered = its.next()?;
        let rest: Vec<usize> = its.flatten().collect();
        let run = match rest.is_empty() || in_workflow {
            true => Run::Answer,
            false => Run::Results,
        };
        if run == Run::Answer {
            answered.extend(rest);
        }
        Some(Report { answered, run })
    }

    /// Whether every answer has been reported to the agent, and everything that a human approved has ended.
    pub(super) fn has_acted_on_answers(&self) -> bool {
        let runs = |call: &Call| {
            call.is_open() && call.approval.as_ref().and_then(Approval::verdict) == Some(true)
        };
        self.unreported().iter().all(Vec::is_empty) && !self.calls.iter().any(runs)
    }

    /// The outcomes of client tools, the credentials, and the decisions that have not been reported to the agent, in the
    /// order in which it takes them.
    fn unreported(&self) -> [Vec<usize>; 3] {
        let indices = |wanted: &dyn Fn(&Call) -> bool| {
            (0..self.calls.len())
                .filter(|&index| !self.calls[index].reported && wanted(&self.calls[index]))
                .collect()
        };
        let is_answered = |call: &Call| {
            call.runs_on == RunsOn::Client && !call.is_open() && call.model_id.is_some()
        };
        let results = indices(&|call| is_answered(call) && !call.asks_for_credentials());
        // What was not granted is the result of the calls that wait for it.
        let grants = indices(&|call| {
            call.asks_for_credentials()
                && is_answered(call)
                && call.settled() == Some(Settlement::Output)
        });
        let confirmations = indices(&|call| {
            call.approval
                .as_ref()
                .is_some_and(|approval| approval.remote_id.is_some() && !approval.is_open())
                && matches!(
                    (&call.state, call.settled()),
                    (CallState::Decided, _)
                        | (_, Some(Settlement::Expired | Settlement::Superseded))
                )
        });
        [results, grants, confirmations]
    }

    pub(super) fn response(&self, index: usize) -> Response {
        let call = &self.calls[index];
        if let Some(approval) = call
            .approval
            .as_ref()
            .filter(|_| call.runs_on == RunsOn::Remote)
        {
            let verdict = approval.verdict() == Some(true);
            // A tool that asked for something to be filled in gets it, whatever the decision was.
            let payload = approval.filled_in.as_ref().or(approval.payload.as_ref());
            let payload = payload.map(|payload| ("payload", payload.clone()));
            let response = [("confirmed", verdict.into())].into_iter().chain(payload);
            return Response {
                id: approval.remote_id.clone().unwrap_or_default(),
                name: REQUEST_CONFIRMATION.to_owned(),
                response: Json::object(response),
            };
        }
        let response = match self.tool_part(&call.id) {
            Some(part) if part.state == ToolState::OutputAvailable => {
                as_response(&part.output.clone().unwrap_or_default())
            }
            Some(part) => error(part.error_text.as_deref().unwrap_or(DENIED)),
            None => error(DENIED),
        };
        Response {
            id: call.model_id.clone().unwrap_or_default(),
            name: call.name.clone(),
            response,
        }
    }

    /// Settles calls that a run has left without a response. While questions are open those are left that may still get
    /// one: the calls of an agent that waits for another one.
    fn settle_silent(&mut self, out: &mut Outbox) {
        let unreported = self.unreported();
        let is_waited_for = |&index: &usize| {
            let is_reported_next = unreported.iter().any(|group| group.contains(&index));
            self.calls[index].is_pending() || is_reported_next
        };
        let awaited: Vec<&Call> = (0..self.calls.len())
            .filter(is_waited_for)
            .map(|index| &self.calls[index])
            .collect();
        let may_be_answered = |call: &Call| {
            let asks = awaited.iter().any(|other| other.is_answered_with(call));
            let works = awaited.iter().any(|other| other.is_part_of(call));
            // Its agent runs it again with what the user grants.
            let needs_login = awaited
                .iter()
                .any(|other| other.asks_for_credentials() && other.is_answered_with(call));
            !awaited.is_empty() && (!asks || works || needs_login || call.approval.is_some())
        };
        let silent: Vec<usize> = (0..self.calls.len())
            .filter(|&index| {
                let call = &self.calls[index];
                call.state == CallState::Running
                    && call.runs_on == RunsOn::Remote
                    && !may_be_answered(call)
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
            self.settle_denied(index, out);
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
    fn show_earlier_call(
        &mut self,
        model_id: Option<&str>,
        name: &str,
        input: Json,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) -> usize {
        let call = Call {
            id: context.ids.call(model_id),
            model_id: model_id.map(str::to_owned),
            name: name.to_owned(),
            input,
            step: self.steps,
            origin: self.translator.origin(),
            asked_by: None,
            runs_on: RunsOn::Remote,
            idempotent: false,
            approval: None,
            state: CallState::Running,
            early: None,
            announced: false,
            reported: false,
        };
        let mut index = 0;
        self.with_emitter(context, out, |translator, emitter| {
            index = translator.add_call(call, None, emitter);
        });
        index
    }
}

/// Answers that are sent in one run.
struct Report {
    answered: Vec<usize>,
    run: Run,
}

/// Recognises ADK's messages that a human rejected a call, or that the call never ran.
fn is_rejection(response: Option<&Json>) -> bool {
    response.is_none_or(|response| {
        let fields = response.fields();
        response.is_object() && (fields.is_empty() || fields.len() == 1 && fields[0].0 == "error")
    })
}

/// The metadata of a call whose result an app shows, as the AI SDK's renderer of such apps expects it.
fn app_metadata(uri: &str) -> Json {
    serde_json::json!({"app": {"resourceUri": uri, "mimeType": APP}}).into()
}

/// The outcome of handing over to another agent: who that is. ADK's own result is empty.
fn transfer_of(call: &Call, response: &FunctionResponse<'_>) -> Option<Outcome> {
    if call.name != TRANSFER {
        return None;
    }
    let result = response.response.as_ref();
    let fields = result.map(Json::fields).unwrap_or_default();
    let is_empty = |(_, value): &(_, &RawValue)| value.get() == "null";
    let names = ["agent_name", "agentName"];
    let agent = names.iter().find_map(|name| call.input.get(name))?;
    let is_named = agent.as_str().is_some() && fields.iter().all(is_empty);
    is_named.then(|| Outcome::output(Json::object([("agent", agent)])))
}

fn outcome_of(response: &FunctionResponse<'_>) -> Outcome {
    let value = response.response.clone().unwrap_or_default();
    if value.fields().len() == 1
        && let Some(error) = value.get("error")
        && let Some(text) = error.as_str()
    {
        return Outcome::error(text);
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
