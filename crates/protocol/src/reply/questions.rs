//! Questions that a running tool asks the user: shown as a client tool of their own, whose answer goes to the tool.
//!
//! ```text
//!                      an output that fits the form ──▶ output, ToolAnswer::Accepted
//!     AwaitingClient ──┤ an error ────────────────────▶ an error, Declined
//!                      └ too late, stopped, superseded ▶ an error, Cancelled
//!                      └ withdrawn, tool over, restart ▶ an error; nobody waits for an answer
//! ```
//!
//! The tool goes on running: what it waits for is kept at its own end. While a question is open the turn is over, so that
//! the front end can answer it as any other client tool.

use std::borrow::Cow;

use super::{Context, EndReason, Ignored, Reply};
use crate::calls::{Call, CallState, Outcome, RunsOn, Settlement};
use crate::chunk::{Chunk, DataChunk};
use crate::credentials::CALL;
use crate::event::REQUEST_INPUT;
use crate::form;
use crate::id::CallId;
use crate::json_text::Json;
use crate::message::{Part, ToolState};
use crate::outbox::{AuditKind, Effect, Outbox};

/// How many questions of tools may be open in one reply. Nobody fills in more forms at once.
const MAX_OPEN: usize = 8;
/// How many questions the tools of one reply may ask. A tool that asks more often is going round in circles.
const MAX_ASKED: usize = 64;

const EXPIRED: &str = "expired: the question was not answered in time";
const STOPPED: &str = "not answered: the user stopped the answer";
const WENT_ON: &str = "not answered: the conversation went on without an answer";
const WITHDRAWN: &str = "withdrawn: the tool that asked does not wait for an answer any more";
const RESTARTED: &str =
    "withdrawn: the server restarted while the tool that asked was waiting for the answer";

/// The field of a question that says which MCP server asks.
pub const SERVER: &str = "server";
const MESSAGE: &str = "message";
const SCHEMA: &str = "response_schema";
/// The type of the chunk that says how far a tool is.
const PROGRESS: &str = "data-tool-progress";

/// What a running tool asks the user.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolQuestion {
    /// The id that the question gets.
    pub id: CallId,
    /// Who asks, by the name that the configuration gives to it.
    pub server: String,
    /// What the user is asked.
    pub message: String,
    /// JSON Schema of the answer.
    pub schema: Json,
}

/// What a tool is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolAnswer {
    /// The user has filled in the form.
    Accepted(Json),
    /// The user has said no.
    Declined,
    /// The user has said nothing.
    Cancelled,
}

/// How far a tool is.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProgress {
    /// How much is done.
    pub progress: f64,
    /// How much there is, if that is known.
    pub total: Option<f64>,
    /// What is being done.
    pub message: Option<String>,
}

impl Reply {
    /// Takes a question of a running tool: the user is asked, unless nobody can be.
    pub(super) fn take_tool_question(
        &mut self,
        asker: &CallId,
        question: &ToolQuestion,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let asked = || self.calls.iter().filter(|call| call.is_asked_by_a_tool());
        let may_ask = self.ended().is_none()
            && !self.is_superseding()
            && self.is_running_tools()
            && asked().count() < MAX_ASKED
            && asked().filter(|call| call.is_open()).count() < MAX_OPEN;
        if !may_ask {
            return out.want(Effect::AnswerTool {
                question: question.id.clone(),
                answer: ToolAnswer::Cancelled,
            });
        }
        let expires = context.now + context.policy.limits().approval_timeout;
        let call = Call {
            id: question.id.clone(),
            model_id: None,
            name: REQUEST_INPUT.to_owned(),
            input: Json::object([
                (SERVER, question.server.as_str().into()),
                (MESSAGE, question.message.as_str().into()),
                (SCHEMA, question.schema.clone()),
                (CALL, asker.as_str().into()),
            ]),
            step: self.steps,
            origin: None,
            asked_by: Some(asker.clone()),
            runs_on: RunsOn::Client,
            idempotent: false,
            approval: None,
            state: CallState::AwaitingClient { expires },
            early: None,
            announced: false,
            reported: false,
        };
        self.durably(out, |reply, out| {
            // Stock predicates do not send a step with a denied call.
            if reply.step_has_denials() {
                reply.with_emitter(context, out, |translator, emitter| {
                    translator.start_step(emitter);
                });
            }
            reply.with_emitter(context, out, |translator, emitter| {
                translator.add_call(call, None, emitter);
            });
        });
        self.continue_or_close(context, out);
    }

    /// Closes a question whose tool does not wait for it any more.
    pub(super) fn withdraw_question(
        &mut self,
        question: &CallId,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let index = self.calls.index_of(question);
        let open = index
            .filter(|&index| self.calls[index].is_asked_by_a_tool() && self.calls[index].is_open());
        let Some(index) = open else {
            return out.ignore(Ignored::StrayQuestion);
        };
        self.durably(out, |reply, out| {
            reply.close_question(index, Settlement::Superseded, WITHDRAWN, None, out);
        });
        self.continue_or_close(context, out);
    }

    /// Closes the questions of tools when none of them runs any more.
    pub(super) fn close_orphaned_questions(&mut self, out: &mut Outbox) {
        if self.is_running_tools() {
            return;
        }
        for index in self.open_questions() {
            self.close_question(index, Settlement::Superseded, WITHDRAWN, None, out);
        }
    }

    /// Closes the questions of tools that a restart has ended.
    pub(super) fn close_lost_questions(&mut self, out: &mut Outbox) {
        let open = self.open_questions();
        if open.is_empty() {
            return;
        }
        self.durably(out, |reply, out| {
            for index in open {
                reply.close_question(index, Settlement::Superseded, RESTARTED, None, out);
            }
        });
    }

    /// Gives the user's answer to the tool. The judge has found that it fits.
    pub(super) fn answer_question(&mut self, index: usize, outcome: Outcome, out: &mut Outbox) {
        let answer = match &outcome {
            Outcome::Output { value, .. } => ToolAnswer::Accepted(value.clone()),
            Outcome::Error { .. } => ToolAnswer::Declined,
        };
        self.settle_with(index, outcome, out);
        self.tell_tool(index, answer, out);
    }

    /// Closes a question that nobody answered in time.
    pub(super) fn expire_question(&mut self, index: usize, out: &mut Outbox) {
        let answer = Some(ToolAnswer::Cancelled);
        self.close_question(index, Settlement::Expired, EXPIRED, answer, out);
    }

    /// Closes a question of a reply that ends without its answer.
    pub(super) fn cancel_question(&mut self, index: usize, how: EndReason, out: &mut Outbox) {
        let text = match how {
            EndReason::Stopped => STOPPED,
            _ => WENT_ON,
        };
        let answer = Some(ToolAnswer::Cancelled);
        self.close_question(index, Settlement::Superseded, text, answer, out);
    }

    /// Shows how far a running tool is. That is not stored.
    pub(super) fn show_progress(&mut self, call: &CallId, said: &ToolProgress, out: &mut Outbox) {
        if self.turn.is_none() || self.running_call(call).is_none() {
            return out.ignore(Ignored::StrayProgress);
        }
        let total = said.total.map(|total| ("total", number(total)));
        let message = said.message.as_deref();
        let message = message.map(|message| ("message", message.into()));
        let fields = [
            ("toolCallId", call.as_str().into()),
            ("progress", number(said.progress)),
        ];
        let chunk = Chunk::Data(DataChunk {
            kind: Cow::Borrowed(PROGRESS),
            id: None,
            data: Json::object(fields.into_iter().chain(total).chain(message)),
            transient: Some(true),
        });
        self.draft.emit(&chunk, out);
    }

    /// Whether running tools wait for the user.
    pub fn has_open_questions(&self) -> bool {
        let mut open = self.calls.open();
        open.any(Call::is_asked_by_a_tool)
    }

    /// Shows of running tools that they wait: stock predicates send the answers of a step only when every call in it has an
    /// output. The result takes its place.
    pub(super) fn show_running_as_pending(&mut self, out: &mut Outbox) {
        let shows_nothing = |call: &Call| {
            let part = self.tool_part(&call.id);
            part.is_some_and(|part| {
                matches!(
                    part.state,
                    ToolState::InputAvailable | ToolState::ApprovalResponded
                )
            })
        };
        let runs = |call: &Call| call.state == CallState::Running && call.runs_on == RunsOn::Server;
        let running = (self.calls.iter()).filter(|call| runs(call) && shows_nothing(call));
        let running: Vec<CallId> = running.map(|call| call.id.clone()).collect();
        if !running.is_empty() {
            self.durably(out, |reply, out| {
                for id in running {
                    reply.show_one_pending(&id, out);
                }
            });
        }
    }

    /// Shows of a call that its output is still to come.
    pub(super) fn show_one_pending(&mut self, id: &CallId, out: &mut Outbox) {
        let chunk = Chunk::ToolOutputAvailable {
            tool_call_id: Cow::Borrowed(id.as_str()),
            output: Json::object([("pending", true.into())]),
            provider_executed: None,
            provider_metadata: None,
            tool_metadata: None,
            dynamic: None,
            preliminary: None,
        };
        self.draft.emit(&chunk, out);
    }

    fn open_questions(&self) -> Vec<usize> {
        (0..self.calls.len())
            .filter(|&index| self.calls[index].is_asked_by_a_tool() && self.calls[index].is_open())
            .collect()
    }

    fn step_has_denials(&self) -> bool {
        let parts = self.message().parts.iter().rev();
        let mut step = parts.take_while(|part| !matches!(part, Part::StepStart));
        step.any(|part| {
            let tool = part.as_tool();
            tool.is_some_and(|tool| tool.state == ToolState::OutputDenied)
        })
    }

    /// Settles a question without the user's answer.
    fn close_question(
        &mut self,
        index: usize,
        how: Settlement,
        text: &str,
        answer: Option<ToolAnswer>,
        out: &mut Outbox,
    ) {
        let row = self.audit(AuditKind::ToolFailed, &self.calls[index], Some(text));
        out.audit.push(row);
        self.settle_failed(index, how, text, out);
        if let Some(answer) = answer {
            self.tell_tool(index, answer, out);
        }
    }

    fn tell_tool(&self, index: usize, answer: ToolAnswer, out: &mut Outbox) {
        out.want(Effect::AnswerTool {
            question: self.calls[index].id.clone(),
            answer,
        });
    }
}

impl Call {
    /// Whether a running tool asks this: the answer goes to the tool, and no agent learns of it.
    pub fn is_asked_by_a_tool(&self) -> bool {
        self.asked_by.is_some()
    }

    /// Why an output does not answer this question, in words for who gave it; nothing if it does, or if this is none.
    pub fn misfit(&self, output: &Json) -> Option<String> {
        self.asked_by.as_ref()?;
        let schema = self.input.get(SCHEMA).unwrap_or_default();
        form::problem(&schema.to_value(), &output.to_value())
    }
}

fn number(value: f64) -> Json {
    serde_json::Value::from(value).into()
}
