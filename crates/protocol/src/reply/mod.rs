//! Reply: one assistant message and its tool calls, the durable unit between an agent and its readers.
//!
//! ```text
//!         Begin, or with a result   the run has ended, calls are open
//!     New ─────────▶ Asking ───────────────────────────────────────▶ Settling ◀──────────┐
//!                      │ ▲                                            │   │              │ answers, outputs,
//!                      │ └──────── every call of the step is settled ─┘   │ every open   │ expiry
//!                      │                                                  │ call waits   │
//!                      │ no calls                                         ▼ for the client
//!                      │                                               Waiting ──────────┘
//!                      ▼                                                  │
//!                    Ended ◀──────────── Superseding ◀────────────────────┘ a newer message, whose
//!                      ▲                                                    answers a remote agent acts on
//!                      └── from anywhere: stop, a newer message, a failure, too long
//! ```
//!
//! `Phase` is this diagram as a type. A reply is run by a [`Driver`](crate::driver::Driver): it takes one input at a
//! time and writes what is to be done into an [`Outbox`]. It has no clock and makes no ids. Whatever must be durable is
//! committed before the frames that report it. A turn is only an envelope: the reply outlives its turns, its readers
//! and (through [`Record`]) the process.
//!
//! A tool that needs approval runs after a clear yes, and not before:
//!
//! ```
//! # use adk_bridge_protocol::calls::{IdSource, RunsOn};
//! # use adk_bridge_protocol::id::{ApprovalId, CallId};
//! # use adk_bridge_protocol::reply::{Limits, Runner};
//! use adk_bridge_protocol::outbox::Effect;
//! use adk_bridge_protocol::reply::{Answer, Audience, Context, Input, Policy, RunEnd, ToolRule};
//! use adk_bridge_protocol::time::Timestamp;
//! use adk_bridge_protocol::{Driver, Event, Reply};
//!
//! # struct Ids;
//! # impl IdSource for Ids {
//! #     fn call(&mut self, _: Option<&str>) -> CallId {
//! #         "call-1".into()
//! #     }
//! #     fn approval(&mut self, _: Option<&str>) -> ApprovalId {
//! #         "approval-1".into()
//! #     }
//! # }
//! struct Asks;
//! impl Policy for Asks {
//!     fn tool(&self, name: &str) -> Option<ToolRule> {
//!         (name == "pay").then_some(ToolRule {
//!             runs_on: RunsOn::Server,
//!             needs_approval: true,
//!             idempotent: false,
//!         })
//!     }
//! #   fn runner(&self) -> Runner {
//! #       Runner::Bridge
//! #   }
//! #   fn limits(&self) -> Limits {
//! #       Limits::default()
//! #   }
//! }
//!
//! let mut driver = Driver::new(Reply::new("message-1"));
//! let mut feed = |input: Input<'_>| {
//!     let now = Timestamp::from_millis(0);
//!     let mut context = Context { now, ids: &mut Ids, policy: &Asks };
//!     let mut effects = driver.feed(input, &mut context);
//!     let mut done = Vec::new();
//!     while let Some(effect) = effects.next() {
//!         done.push(effect);
//!     }
//!     done
//! };
//! let runs = |effects: Vec<Effect>| effects.iter().any(|it| matches!(it, Effect::RunTool { .. }));
//! let event = r#"{"content":{"role":"model","parts":[{"functionCall":{"name":"pay","args":{"amount":5}}}]}}"#;
//!
//! feed(Input::Begin(Audience::Request));
//! feed(Input::Event(&Event::parse(event)?));
//! assert!(!runs(feed(Input::RunEnded(RunEnd::Done))));
//! let yes = Answer::Decision {
//!     approval_id: "approval-1".into(),
//!     approved: true,
//!     reason: None,
//!     payload: None,
//!     part: None,
//! };
//! assert!(runs(feed(Input::Answers(&[yes.clone()], Some(Audience::Request)))));
//! // It counts once.
//! assert!(!runs(feed(Input::Answers(&[yes], Some(Audience::Request)))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answers;
mod credentials;
mod input;
mod judge;
mod later;
mod phase;
mod policy;
mod questions;
mod record;
mod remote;
mod settle;
mod stance;
mod turn;

use std::borrow::Cow;
use std::sync::Arc;

pub use answers::{Answer, MAX_REFUSED, answers_of};
pub use input::{Audience, CloseReason, Context, Ignored, Input, RunEnd};
pub use judge::{Verdict, judge, judge_by_message, part_of};
pub use later::{LaterResult, later_results};
use phase::{Channel, Phase, Run, Turn};
pub use policy::{Limits, Policy, Runner, ToolRule};
pub use questions::{SERVER, ToolAnswer, ToolProgress, ToolQuestion};
pub use record::{EndReason, Record, Retries};
use settle::Question;
pub(crate) use settle::default_hint;
pub use stance::{Stance, stance_in, stance_of, stance_of_fields, stance_of_result};
pub use turn::{FIRST_HOLD, LONGEST_HOLD, hold_after};

use crate::calls::{Call, CallState, Calls, RunsOn};
use crate::chunk::Chunk;
use crate::event::Event;
use crate::id::{CallId, MessageId};
use crate::json_text::Json;
use crate::message::{Draft, Message, Part, TextState};
use crate::outbox::{Ask, Audit, AuditKind, Effect, Emitter, Outbox};
use crate::time::Timestamp;
use crate::translate::{Fact, Translator};

/// One assistant message, from its first model call to its end.
#[derive(Debug)]
pub struct Reply {
    draft: Draft,
    translator: Translator,
    calls: Calls,
    phase: Phase,
    turn: Option<Turn>,
    /// How many model calls were made.
    steps: u32,
    /// How many turns in a row were held without anything new.
    holds: u32,
    sent_metadata: Option<Json>,
}

impl Reply {
    /// Makes a reply that has not begun.
    pub fn new(message_id: impl Into<MessageId>) -> Self {
        Self::from_draft(Draft::new(message_id))
    }

    /// Restores a stored reply; [`Input::Boot`] continues it.
    pub fn restore(record: Record) -> Self {
        let mut message = Arc::unwrap_or_clone(record.message);
        close_texts(&mut message);
        let fresh = matches!(message.parts.last(), Some(Part::StepStart));
        let mut reply = Self::from_draft(Draft::onto(message));
        reply.translator = Translator::resume(reply.message(), record.asking && fresh);
        reply.sent_metadata = reply.message().metadata.clone();
        reply.calls = record.calls;
        reply.steps = record.steps;
        reply.phase = match record.ended {
            Some(how) => Phase::Ended(how),
            None if record.asking => Phase::Asking {
                run: Run::Answer,
                retried: record.retried,
            },
            None => Phase::Waiting { cut: false },
        };
        reply
    }

    /// What is stored of the reply.
    pub fn record(&self) -> Record {
        Record {
            message: self.draft.share(),
            calls: self.calls.clone(),
            asking: self.run().is_some(),
            steps: self.steps,
            retried: match self.phase {
                Phase::Asking { retried, .. } => retried,
                _ => Retries::default(),
            },
            ended: self.ended(),
        }
    }

    /// The message so far, in its native form. The input of a call that the model is still writing may lag behind.
    pub fn message(&self) -> &Message {
        self.draft.message()
    }

    /// The message that remains of a reply when another one begins.
    pub fn into_message(self) -> Message {
        self.draft.into_message()
    }

    /// The message so far, with all that readers have been sent.
    pub fn snapshot(&self) -> Cow<'_, Message> {
        self.draft.snapshot()
    }

    /// How many bytes of content were translated for it in this process.
    pub fn content_bytes(&self) -> usize {
        self.translator.bytes()
    }

    /// The calls of the reply.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// How the reply ended.
    pub fn ended(&self) -> Option<EndReason> {
        match self.phase {
            Phase::Ended(how) => Some(how),
            _ => None,
        }
    }

    /// Who reads the turn, if one is open.
    pub fn turn(&self) -> Option<Audience> {
        self.turn.map(|turn| turn.audience)
    }

    /// Whether a step has been opened in this turn and not ended.
    pub fn is_step_open(&self) -> bool {
        self.translator.is_step_open()
    }

    /// The number of the step that the agent is writing, if a run is under way.
    pub fn asking_step(&self) -> Option<u32> {
        self.run().map(|_| self.steps)
    }

    /// Whether nothing runs any more, so that the next reply of the chat may begin.
    pub fn is_at_rest(&self) -> bool {
        self.run().is_none() && !self.is_running_tools()
    }

    /// Sets the number of the live turn that comes next, and the message that the user's speech becomes.
    pub fn set_live_turn(&mut self, turn: u32, user_message: Option<&MessageId>) {
        self.translator.set_live_turn(turn, user_message);
    }

    /// Until when the end of the open turn is delayed, because its client would post again at once.
    pub fn hold_until(&self) -> Option<Timestamp> {
        self.turn?.hold_until
    }

    /// When an [`Input::Tick`] is due.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.calls
            .iter()
            .filter_map(Call::deadline)
            .chain(self.hold_until())
            .min()
    }

    /// Handles one input; its effects are appended to `out`.
    pub(crate) fn handle(&mut self, input: Input<'_>, context: &mut Context<'_>, out: &mut Outbox) {
        out.is_event = matches!(input, Input::Event(_));
        if matches!(input, Input::Boot) {
            // Before their time can run out: nobody waits for the answer any more.
            self.close_lost_questions(out);
        }
        self.expire(context, out);
        match (self.phase, input) {
            (Phase::New, Input::Begin(mode)) => self.begin(mode, context, out),
            (Phase::New, Input::BeginWithResult(result, mode)) => {
                self.begin_with_result(result, mode, context, out);
            }
            (Phase::Asking { .. } | Phase::Superseding { run: Some(_) }, Input::Event(event)) => {
                self.event(event, Channel::Run, context, out);
            }
            (
                Phase::Asking { .. } | Phase::Superseding { run: Some(_) },
                Input::LiveEvent(event),
            ) => self.event(event, Channel::Live, context, out),
            (
                Phase::Asking { run, .. } | Phase::Superseding { run: Some(run) },
                Input::RunEnded(end),
            ) => self.run_ended(run, end, context, out),
            (_, Input::Answers(answers, mode)) => self.take_answers(answers, mode, context, out),
            (_, Input::ToolFinished { call, outcome }) => match self.running_call(call) {
                Some(index) => self.tool_finished(index, outcome, context, out),
                None => out.ignore(Ignored::StrayOutcome),
            },
            (_, Input::ToolAsks { call, question }) => {
                self.take_tool_question(call, question, context, out);
            }
            (_, Input::QuestionWithdrawn { question }) => {
                self.withdraw_question(question, context, out);
            }
            (_, Input::ToolProgress { call, progress }) => self.show_progress(call, progress, out),
            (_, Input::Tick) => self.continue_or_close(context, out),
            (_, Input::EndHold) => {
                if self.take_hold() {
                    self.end_waiting(out);
                }
            }
            (_, Input::Boot) => self.boot(context, out),
            (Phase::Ended(_), Input::Close(_) | Input::Supersede(_)) => {
                out.ignore(Ignored::AlreadyEnded);
            }
            (_, Input::Close(why)) => self.close(why.into(), None, out),
            // A newer message is ending the reply already; it takes no more answers.
            (Phase::Superseding { .. }, Input::Supersede(_)) => out.ignore(Ignored::AlreadyEnded),
            (_, Input::Supersede(answers)) => self.supersede(answers, context, out),
            (_, Input::Begin(_) | Input::BeginWithResult(..)) => {
                out.ignore(Ignored::AlreadyBegun);
            }
            (_, Input::Event(_) | Input::LiveEvent(_)) => out.ignore(Ignored::StrayEvent),
            (_, Input::RunEnded(_)) => out.ignore(Ignored::StrayRunEnd),
        }
    }

    fn from_draft(draft: Draft) -> Self {
        Self {
            draft,
            translator: Translator::default(),
            calls: Calls::default(),
            phase: Phase::New,
            turn: None,
            steps: 0,
            holds: 0,
            sent_metadata: None,
        }
    }

    /// The run that is under way.
    fn run(&self) -> Option<Run> {
        match self.phase {
            Phase::Asking { run, .. } => Some(run),
            Phase::Superseding { run } => run,
            _ => None,
        }
    }

    /// Records that a run of the agent begins.
    fn start_run(&mut self, run: Run) {
        self.end_holds();
        self.phase = match self.phase {
            Phase::Superseding { .. } => Phase::Superseding { run: Some(run) },
            _ => Phase::Asking {
                run,
                retried: Retries::default(),
            },
        };
    }

    /// Records that the run of the agent is over: its calls are settled next.
    fn end_run(&mut self, cut: bool) {
        self.phase = match self.phase {
            Phase::Superseding { .. } => Phase::Superseding { run: None },
            _ => Phase::Settling { cut },
        };
    }

    /// Whether the agent's last answer was cut short.
    fn was_cut(&self) -> bool {
        matches!(
            self.phase,
            Phase::Settling { cut: true } | Phase::Waiting { cut: true }
        )
    }

    fn is_superseding(&self) -> bool {
        matches!(self.phase, Phase::Superseding { .. })
    }

    /// Ends the delay of the turn's end. Returns whether there was one.
    fn take_hold(&mut self) -> bool {
        let turn = self.turn.as_mut();
        turn.and_then(|turn| turn.hold_until.take()).is_some()
    }

    fn begin(&mut self, mode: Audience, context: &mut Context<'_>, out: &mut Outbox) {
        self.turn = Some(Turn::new(mode));
        self.ask_model(context, out);
    }

    fn event(
        &mut self,
        event: &Event<'_>,
        channel: Channel,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let mut emitter = Emitter {
            calls: &mut self.calls,
            ids: context.ids,
            draft: &mut self.draft,
            out,
            step: self.steps,
        };
        let facts = self.translator.event(event, &mut emitter);
        for fact in facts {
            self.fact(fact, channel, context, out);
        }
        if self.is_superseding() && self.has_acted_on_answers() {
            self.close(EndReason::Superseded, None, out);
        }
        if self.translator.bytes() > context.policy.limits().max_answer_bytes {
            self.close(EndReason::TooLong, None, out);
        }
    }

    fn fact(
        &mut self,
        fact: Fact<'_>,
        channel: Channel,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        match fact {
            Fact::Called {
                index,
                long_running,
            } => self.take_call(index, long_running, context),
            // A model whose tools the bridge runs decides neither their outcomes nor who is asked.
            Fact::Confirmation { .. } | Fact::Responded { .. } if !self.is_remote(context) => {}
            Fact::CredentialRequest(call) => {
                self.take_credential_request(call, channel, context, out);
            }
            Fact::Confirmation {
                remote_id,
                original,
                hint,
                payload,
            } => {
                let question = Question {
                    remote_id,
                    hint,
                    payload,
                };
                self.take_confirmation(question, &original, context, out);
            }
            Fact::Responded {
                needs_login: true, ..
            } if channel == Channel::Run => {}
            Fact::Responded {
                response,
                placeholder,
                needs_login: _,
                app,
            } => match (placeholder, channel) {
                (false, _) => self.take_response(response, app, context, out),
                // The question itself follows.
                (true, Channel::Run) => {}
                (true, Channel::Live) => self.refuse_question(response, context, out),
            },
            Fact::Heard { text, finished } => out.want(Effect::Heard {
                text: text.to_owned(),
                finished,
            }),
            Fact::Interrupted => out.want(Effect::Interrupted),
            Fact::TurnComplete => out.want(Effect::TurnComplete),
        }
    }

    fn run_ended(&mut self, run: Run, end: RunEnd, context: &mut Context<'_>, out: &mut Outbox) {
        self.with_emitter(context, out, |translator, emitter| {
            translator.end_run(emitter)
        });
        // Stored with the step, so that whoever goes on after a crash counts its usage.
        if let Some(metadata) = self.translator.metadata.value() {
            self.draft.apply(&Chunk::metadata(&metadata));
        }
        self.translator.set_muted(false);
        let cut = self.translator.take_cut() || end == RunEnd::Cut;
        self.end_run(cut);
        let failure = match end {
            RunEnd::Done | RunEnd::Cut => self.translator.take_error(),
            RunEnd::Failed(message) => Some(self.translator.take_error().unwrap_or(message)),
        };
        // A remote model that was called before it had every result may fail for that reason; only the run that brings
        // the missing results counts.
        let waits =
            |call: &Call| call.is_pending() || call.runs_on == RunsOn::Client && call.is_open();
        match failure {
            Some(_) if run == Run::Results => {}
            // Another agent is to act on its answers first.
            Some(message) if self.has_report() => self.translator.put_error(message),
            Some(_) if self.calls.iter().any(waits) => {}
            Some(message) => return self.close(EndReason::Failed, Some(message), out),
            None => {}
        }
        self.start_or_ask_calls(context, out);
        self.continue_or_close(context, out);
    }

    fn boot(&mut self, context: &mut Context<'_>, out: &mut Outbox) {
        let (asking, retried) = match self.phase {
            Phase::Asking { retried, .. } => (true, retried),
            _ => (false, Retries::default()),
        };
        if asking {
            self.end_run(false);
        }
        self.recover_calls(asking, context, out);
        if self.ended().is_some() {
            return self.continue_or_close(context, out);
        }
        let untouched = matches!(self.message().parts.last(), Some(Part::StepStart));
        let again = context.policy.runner() == Runner::Bridge && untouched && retried.may_ask();
        match (asking, again) {
            (true, true) => {
                self.turn = Some(Turn::new(Audience::Unattended));
                self.phase = Phase::Asking {
                    run: Run::Answer,
                    retried: retried.and_one_more(),
                };
                self.durably(out, |_, out| out.want(Effect::Ask(Ask::History)));
            }
            (true, false) if !self.calls.iter().any(Call::is_pending) => {
                self.close(EndReason::Interrupted, None, out);
            }
            _ => self.continue_or_close(context, out),
        }
    }

    /// Continues as far as possible without input from outside; may ask the model again or end the reply.
    fn continue_or_close(&mut self, context: &mut Context<'_>, out: &mut Outbox) {
        match self.phase {
            Phase::New | Phase::Asking { .. } | Phase::Superseding { run: Some(_) } => return,
            Phase::Ended(_) => return self.end_turn_after_close(out),
            Phase::Settling { .. } | Phase::Waiting { .. } | Phase::Superseding { run: None } => {}
        }
        self.start_decided(context, out);
        let (cut, superseding) = (self.was_cut(), self.is_superseding());
        if superseding {
            self.settle_waiting(out);
        }
        if self.is_running_tools() && self.has_open_questions() {
            // Only the client's answer lets the tool go on.
            self.phase = Phase::Waiting { cut };
            self.show_running_as_pending(out);
            return self.hold_or_end_turn(context, out);
        }
        if self.is_running_tools() {
            self.end_holds();
            if !superseding {
                self.phase = Phase::Settling { cut };
            }
            return;
        }
        if self.start_reporting_run(context, out) {
            return;
        }
        if superseding {
            return self.close(EndReason::Superseded, None, out);
        }
        if self.calls.any_open() {
            self.phase = Phase::Waiting { cut };
            return self.hold_or_end_turn(context, out);
        }
        self.announce_deferred(out);
        if self.calls.iter().any(|call| call.step == self.steps) && !self.is_remote(context) {
            self.ask_model(context, out);
        } else {
            let how = match cut {
                true => EndReason::Cut,
                false => EndReason::Finished,
            };
            self.close(how, None, out);
        }
    }

    fn ask_model(&mut self, context: &mut Context<'_>, out: &mut Outbox) {
        if self.steps >= context.policy.limits().max_steps {
            let message = format!(
                "the agent called tools in {} steps without reaching an answer; try again with a more specific question",
                self.steps
            );
            return self.close(EndReason::Failed, Some(message), out);
        }
        self.open_turn_if_none();
        self.steps += 1;
        self.start_run(Run::Answer);
        let remote = self.is_remote(context);
        let ids = &mut *context.ids;
        self.durably(out, |reply, out| {
            if !remote {
                let mut emitter = Emitter {
                    calls: &mut reply.calls,
                    ids,
                    draft: &mut reply.draft,
                    out,
                    step: reply.steps,
                };
                reply.translator.start_step(&mut emitter);
            }
            out.want(Effect::Ask(Ask::History));
        });
    }

    /// Work that no request began has a turn too, so that a page that is loaded meanwhile can resume it.
    fn open_turn_if_none(&mut self) {
        self.turn
            .get_or_insert_with(|| Turn::new(Audience::Unattended));
    }

    fn running_call(&self, id: &CallId) -> Option<usize> {
        let index = self.calls.index_of(id)?;
        (self.calls[index].state == CallState::Running).then_some(index)
    }

    fn is_remote(&self, context: &Context<'_>) -> bool {
        context.policy.runner() == Runner::Remote
    }

    fn is_running_tools(&self) -> bool {
        self.calls
            .iter()
            .any(|call| call.state == CallState::Running && call.runs_on == RunsOn::Server)
    }

    /// Runs `change` and puts a commit of the result in front of the effects that it added.
    fn durably<T>(
        &mut self,
        out: &mut Outbox,
        change: impl FnOnce(&mut Self, &mut Outbox) -> T,
    ) -> T {
        let mark = out.barrier();
        let result = change(self, out);
        self.commit_at(mark, out);
        result
    }

    fn with_emitter(
        &mut self,
        context: &mut Context<'_>,
        out: &mut Outbox,
        write: impl FnOnce(&mut Translator, &mut Emitter<'_>),
    ) {
        let mut emitter = Emitter {
            calls: &mut self.calls,
            ids: context.ids,
            draft: &mut self.draft,
            out,
            step: self.steps,
        };
        write(&mut self.translator, &mut emitter);
    }

    fn audit(&self, kind: AuditKind, call: &Call, reason: Option<&str>) -> Audit {
        Audit {
            kind,
            call_id: Some(call.id.clone()),
            tool: Some(call.name.clone()),
            approval_id: call.approval.as_ref().map(|approval| approval.id.clone()),
            reason: reason.map(str::to_owned),
            input_hash: Some(crate::approval::input_hash(&call.input)),
        }
    }
}

/// Marks texts that a crash cut off as done.
fn close_texts(message: &mut Message) {
    for part in &mut message.parts {
        let state = match part {
            Part::Text(text) => &mut text.state,
            Part::Reasoning(reasoning) => &mut reasoning.state,
            _ => continue,
        };
        if *state == Some(TextState::Streaming) {
            *state = Some(TextState::Done);
        }
    }
}
