//! Reply: one assistant message and its tool calls, the durable unit between an agent and its readers.
//!
//! ```text
//!    Begin ─▶ asking the agent ◀──────── every call of the step is settled ───────┐
//!                 │                                                              │
//!                 │ the run has ended                                            │
//!                 ├── no calls ──▶ Ended(Finished)                               │
//!                 └── calls ─────▶ settling: tools run, humans decide ───────────┤
//!                                    │        ▲                                  │
//!                    every open call │        │ answers, outputs, expiry         │
//!                    waits for the   ▼        │                                  │
//!                    client:       the turn ends, the reply waits ───────────────┘
//!
//!    anywhere: stop, a newer message, a failure, too long ──▶ Ended(..): the model is never asked again
//! ```
//!
//! [`Reply::handle`] takes one input and writes what is to be done into an [`Outbox`]. It knows no clock and makes no
//! ids. Whatever must be durable comes as a commit in front of the frames that tell of it. A turn is only an envelope:
//! the reply outlives its turns, its readers and (through [`Record`]) the process.

mod answers;
mod remote;
mod settle;
mod turn;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use answers::{Answer, answers_of};
use settle::Question;
pub(crate) use settle::default_hint;
pub(crate) use turn::metadata_chunk;
pub use turn::{FIRST_HOLD, LONGEST_HOLD};

use crate::approval::Time;
use crate::calls::{Call, CallState, Calls, Ids, Outcome, RunsOn};
use crate::event::Event;
use crate::message::{Message, Part, TextState};
use crate::outbox::{Ask, Audit, AuditKind, Draft, Effect, Outbox, Page};
use crate::translate::{Fact, Translator};

/// One assistant message in the making.
#[derive(Debug)]
pub struct Reply {
    draft: Draft,
    translator: Translator,
    calls: Calls,
    run: Option<Run>,
    turn: Option<Mode>,
    /// Whether the request that opened the turn brought nothing that was not known.
    without_news: bool,
    ended: Option<Ended>,
    steps: u32,
    retried: bool,
    holds: u32,
    hold_until: Option<Time>,
    sent_metadata: Option<serde_json::Value>,
    /// Whether what the agent said last was cut short.
    cut: bool,
    /// Whether a remote agent can have a human asked in what is being said.
    can_ask: bool,
}

/// What is stored of a reply: enough to go on after a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub message: Message,
    pub calls: Calls,
    /// Whether a run of the agent was under way.
    pub asking: bool,
    pub steps: u32,
    pub retried: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ended {
    Finished,
    Failed,
    Stopped,
    Superseded,
    /// The answer grew beyond its limit.
    TooLong,
    /// The process went away while the model was speaking.
    Interrupted,
    /// The user's speech, or the end of a live connection, came before the end of the answer.
    Cut,
}

/// Something that happened to a reply.
#[derive(Debug)]
pub enum Input<'a> {
    /// The user has written; the agent is to answer.
    Begin(Mode),
    /// The agent said something.
    Event(&'a Event<'a>),
    /// The agent said something in a conversation held open for speech, in which it cannot ask a human.
    LiveEvent(&'a Event<'a>),
    /// The agent's run is over.
    RunEnded(RunEnd),
    /// A request brought answers of the client, possibly old ones. `None`: it wants no turn.
    Answers(&'a [Answer<'a>], Option<Mode>),
    /// A server tool is done.
    ToolFinished { call: &'a str, outcome: Outcome },
    /// Time has passed.
    Tick,
    /// The reply is to end.
    Close(Why),
    /// The process has started again.
    Boot,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    Done,
    /// In the middle of what the agent had to say.
    Cut,
    /// With a message that a user can act on.
    Failed(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The user pressed stop.
    Stopped,
    /// A newer message took its place.
    Superseded,
}

/// Who is at the other end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A request whose answer ends with the turn.
    Http,
    /// A connection that stays.
    Live,
    /// Nobody: the turn was opened by time or by a restart.
    Alone,
}

/// Who runs the tools of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// The bridge: an agent's run is one model call.
    Bridge,
    /// A remote ADK server: a run goes on until it needs a client.
    Remote,
}

/// What holds for the tools of an agent.
pub trait Rules {
    fn runner(&self) -> Runner;
    /// What holds for one tool; nothing where it is unknown.
    fn tool(&self, name: &str) -> Option<ToolRule>;
    fn limits(&self) -> Limits;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolRule {
    pub runs_on: RunsOn,
    pub needs_approval: bool,
    pub idempotent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub approval_timeout: Time,
    pub client_timeout: Time,
    pub max_steps: u32,
    pub max_answer_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Long enough to read a request, short enough that no consent is given for a forgotten one.
            approval_timeout: 5 * 60 * 1000,
            // A browser's own permission prompt comes in between.
            client_timeout: 2 * 60 * 1000,
            // A model that has not come to an answer by then is going round in circles.
            max_steps: 25,
            // What one reader may make the server hold.
            max_answer_bytes: 16 * 1024 * 1024,
        }
    }
}

/// What a reply needs from outside with every input.
pub struct Given<'g> {
    pub now: Time,
    pub ids: &'g mut dyn Ids,
    pub rules: &'g dyn Rules,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Answer,
    /// Client results on their way to a remote agent that still misses our confirmations.
    Results,
}

impl Reply {
    pub fn new(message_id: &str) -> Self {
        Self::from_draft(Draft::new(message_id))
    }

    /// Takes up a stored reply; [`Input::Boot`] sets it going again.
    pub fn restore(record: Record) -> Self {
        let mut message = record.message;
        close_texts(&mut message);
        let fresh = matches!(message.parts.last(), Some(Part::StepStart));
        let mut reply = Self::from_draft(Draft::onto(message));
        reply.translator = Translator::resume(reply.message(), record.asking && fresh);
        reply.sent_metadata = reply.message().metadata.clone();
        reply.calls = record.calls;
        reply.run = record.asking.then_some(Run::Answer);
        reply.steps = record.steps;
        reply.retried = record.retried;
        reply.ended = record.ended;
        reply
    }

    pub fn record(&self) -> Record {
        Record {
            message: self.snapshot().into_owned(),
            calls: self.calls.clone(),
            asking: self.run.is_some(),
            steps: self.steps,
            retried: self.retried,
            ended: self.ended,
        }
    }

    /// The message so far, in its native form. The input of a call that the model is still writing may lag behind.
    pub fn message(&self) -> &Message {
        self.draft.message()
    }

    /// What is left of a reply when another one begins.
    pub fn into_message(self) -> Message {
        self.draft.into_message()
    }

    /// The message so far, with all that readers have been sent.
    pub fn snapshot(&self) -> Cow<'_, Message> {
        self.draft.snapshot()
    }

    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Whether a turn is open.
    pub fn turn(&self) -> Option<Mode> {
        self.turn
    }

    /// Whether a step has been opened in this turn and not ended.
    pub fn is_step_open(&self) -> bool {
        self.translator.is_step_open()
    }

    /// The number of the step in which the agent is speaking, if it is.
    pub fn asking_step(&self) -> Option<u32> {
        self.run.map(|_| self.steps)
    }

    /// Whether nothing of it runs any more: the next reply of the chat may begin.
    pub fn is_at_rest(&self) -> bool {
        self.run.is_none() && !self.is_running_tools()
    }

    /// Says which turn of a live conversation comes next, and which message the user's speech becomes.
    pub fn speak_in(&mut self, turn: u32, user_message: Option<&str>) {
        self.translator.speak_in(turn, user_message);
    }

    /// When a [`Input::Tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        self.calls
            .iter()
            .filter_map(Call::deadline)
            .chain(self.hold_until)
            .min()
    }

    /// Takes one input; what is to be done is appended to `out`.
    pub fn handle(&mut self, input: Input<'_>, given: &mut Given<'_>, out: &mut Outbox) {
        self.expire(given, out);
        match input {
            Input::Begin(mode) => self.begin(mode, given, out),
            Input::Event(event) => self.event(event, given, out),
            Input::LiveEvent(event) => {
                self.can_ask = false;
                self.event(event, given, out);
                self.can_ask = true;
            }
            Input::RunEnded(end) => self.run_ended(end, given, out),
            Input::Answers(answers, mode) => self.take_answers(answers, mode, given, out),
            Input::ToolFinished { call, outcome } => {
                self.tool_finished(call, outcome, given, out);
            }
            Input::Tick => self.tick(given, out),
            Input::Close(why) => self.close(
                match why {
                    Why::Stopped => Ended::Stopped,
                    Why::Superseded => Ended::Superseded,
                },
                None,
                out,
            ),
            Input::Boot => self.boot(given, out),
        }
    }

    fn from_draft(draft: Draft) -> Self {
        Self {
            draft,
            translator: Translator::default(),
            calls: Calls::default(),
            run: None,
            turn: None,
            without_news: false,
            ended: None,
            steps: 0,
            retried: false,
            holds: 0,
            hold_until: None,
            sent_metadata: None,
            cut: false,
            can_ask: true,
        }
    }

    fn begin(&mut self, mode: Mode, given: &mut Given<'_>, out: &mut Outbox) {
        if self.steps == 0 && self.ended.is_none() {
            self.turn = Some(mode);
            self.ask_model(given, out);
        }
    }

    fn event(&mut self, event: &Event<'_>, given: &mut Given<'_>, out: &mut Outbox) {
        if self.run.is_none() || self.ended.is_some() {
            return; // A straggler of a run that was cancelled.
        }
        let mut page = Page {
            calls: &mut self.calls,
            ids: given.ids,
            draft: &mut self.draft,
            out,
            step: self.steps,
        };
        let facts = self.translator.event(event, &mut page);
        for fact in facts {
            self.fact(fact, given, out);
        }
        if self.translator.bytes() > given.rules.limits().max_answer_bytes {
            self.close(Ended::TooLong, None, out);
        }
    }

    fn fact(&mut self, fact: Fact<'_>, given: &mut Given<'_>, out: &mut Outbox) {
        match fact {
            Fact::Called {
                index,
                long_running,
            } => self.called(index, long_running, given, out),
            // A model whose tools the bridge runs has no say in what they came to, nor in who is asked.
            Fact::Confirmation { .. } | Fact::Responded { .. } if !self.is_remote(given) => {}
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
                self.confirmation(question, &original, given, out);
            }
            Fact::Responded {
                response,
                placeholder,
            } => self.responded(response, placeholder, given, out),
            Fact::Heard { text, finished } => out.effects.push(Effect::Heard {
                text: text.to_owned(),
                finished,
            }),
            Fact::Interrupted => out.effects.push(Effect::Interrupted),
            Fact::TurnComplete => out.effects.push(Effect::TurnComplete),
        }
    }

    fn run_ended(&mut self, end: RunEnd, given: &mut Given<'_>, out: &mut Outbox) {
        let Some(run) = self.run.take().filter(|_| self.ended.is_none()) else {
            return;
        };
        self.on_page(given, out, |translator, page| translator.end_run(page));
        self.translator.muted = false;
        self.cut = self.translator.take_cut() || end == RunEnd::Cut;
        let failure = match end {
            RunEnd::Done | RunEnd::Cut => self.translator.take_error(),
            RunEnd::Failed(message) => Some(self.translator.take_error().unwrap_or(message)),
        };
        // A remote model that was called before it had every result may fail for that very reason; the run that brings
        // the missing ones is the one that counts.
        let waits = |call: &Call| {
            call.waits_for_client() || call.runs_on == RunsOn::Client && call.is_open()
        };
        let premature = run == Run::Results || self.calls.iter().any(waits);
        match failure {
            Some(message) if !premature => self.close(Ended::Failed, Some(message), out),
            _ => {
                self.classify(given, out);
                self.advance(given, out);
            }
        }
    }

    fn tick(&mut self, given: &mut Given<'_>, out: &mut Outbox) {
        if self.hold_until.is_some_and(|until| until <= given.now) {
            self.hold_until = None;
            // Time may have settled the call that the turn was held for.
            if self.is_held_for_client() {
                self.end_waiting(out);
            }
        }
        self.advance(given, out);
    }

    fn boot(&mut self, given: &mut Given<'_>, out: &mut Outbox) {
        let asking = self.run.take().is_some();
        self.recover_calls(asking, given, out);
        if self.ended.is_some() {
            return self.advance(given, out);
        }
        let untouched = matches!(self.message().parts.last(), Some(Part::StepStart));
        let again = given.rules.runner() == Runner::Bridge && untouched && !self.retried;
        match (asking, again) {
            (true, true) => {
                self.retried = true;
                self.turn = Some(Mode::Alone);
                self.run = Some(Run::Answer);
                self.durably(out, |_, out| out.effects.push(Effect::Ask(Ask::History)));
            }
            (true, false) if !self.calls.iter().any(Call::waits_for_client) => {
                self.close(Ended::Interrupted, None, out);
            }
            _ => self.advance(given, out),
        }
    }

    /// Goes on as far as possible without anybody else.
    fn advance(&mut self, given: &mut Given<'_>, out: &mut Outbox) {
        if self.ended.is_some() {
            return self.end_closed(out);
        }
        if self.run.is_some() {
            return;
        }
        self.start_decided(given, out);
        if self.is_running_tools() || self.report(given, out) {
            return;
        }
        if self.calls.any_open() {
            return self.wait(given, out);
        }
        self.announce_deferred(out);
        if self.calls.iter().any(|call| call.step == self.steps) && !self.is_remote(given) {
            self.ask_model(given, out);
        } else {
            let how = match self.cut {
                true => Ended::Cut,
                false => Ended::Finished,
            };
            self.close(how, None, out);
        }
    }

    fn ask_model(&mut self, given: &mut Given<'_>, out: &mut Outbox) {
        if self.steps >= given.rules.limits().max_steps {
            let message = format!(
                "the agent called tools in {} steps without coming to an answer; ask again or more precisely",
                self.steps
            );
            return self.close(Ended::Failed, Some(message), out);
        }
        self.turn.get_or_insert(Mode::Alone);
        self.steps += 1;
        self.run = Some(Run::Answer);
        self.retried = false;
        let remote = self.is_remote(given);
        let ids = &mut *given.ids;
        self.durably(out, |reply, out| {
            if !remote {
                let mut page = Page {
                    calls: &mut reply.calls,
                    ids,
                    draft: &mut reply.draft,
                    out,
                    step: reply.steps,
                };
                reply.translator.start_step(&mut page);
            }
            out.effects.push(Effect::Ask(Ask::History));
        });
    }

    fn is_remote(&self, given: &Given<'_>) -> bool {
        given.rules.runner() == Runner::Remote
    }

    fn is_running_tools(&self) -> bool {
        self.calls
            .iter()
            .any(|call| call.state == CallState::Running && call.runs_on == RunsOn::Server)
    }

    /// Runs `change` and puts a commit of its result in front of everything that it wants done.
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

    fn on_page(
        &mut self,
        given: &mut Given<'_>,
        out: &mut Outbox,
        write: impl FnOnce(&mut Translator, &mut Page<'_>),
    ) {
        let mut page = Page {
            calls: &mut self.calls,
            ids: given.ids,
            draft: &mut self.draft,
            out,
            step: self.steps,
        };
        write(&mut self.translator, &mut page);
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

/// A text that a crash cut off will not go on.
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
