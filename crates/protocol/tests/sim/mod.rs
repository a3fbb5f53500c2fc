//! A bridge in a box: a reply, its store, a scripted agent, tools, and a client that behaves as the AI SDK's `Chat` does.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
#![allow(clippy::expect_used, clippy::panic, reason = "it is a test")]

pub mod predicates;
pub mod walk;

use std::collections::{BTreeMap, BTreeSet};

use adk_bridge_protocol::approval::{ApprovalState, Time};
use adk_bridge_protocol::calls::{CallState, Ids, Outcome, RunsOn, Settled};
use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::dialect::{Dialect, Reader, project};
use adk_bridge_protocol::event::{Event, REQUEST_CONFIRMATION};
use adk_bridge_protocol::message::fold::Fold;
use adk_bridge_protocol::message::{Message, Part, ToolPart, ToolState};
use adk_bridge_protocol::outbox::{Ask, Audit, AuditKind, Effect, Outbox, Response};
use adk_bridge_protocol::reply::{
    Answer, Given, Input, Limits, Mode, Record, Reply, Rules, RunEnd, Runner, ToolRule, Why,
    answers_of,
};
use adk_bridge_protocol::wire::sse;
use serde_json::{Value, json};

pub const MINUTE: Time = 60_000;

/// The agent's tools: where they run and whether they need approval is in their names.
pub const TOOLS: [&str; 6] = [
    "server",
    "server_ask",
    "client",
    "client_ask",
    "idempotent",
    "nonsense",
];

pub struct Bridge {
    pub runner: Runner,
    pub dialect: Dialect,
    pub mode: Mode,
    pub now: Time,
    pub reply: Reply,
    /// What would be there after a crash.
    pub stored: Option<Record>,
    pub audit: Vec<Audit>,
    /// What the agent will say, event by event; `None` while it is not asked.
    pub script: Option<Vec<String>>,
    /// Decides what the agent says when it is asked.
    pub agent: Box<Agent>,
    pub asked: Vec<Ask>,
    pub running: BTreeSet<String>,
    pub runs: BTreeMap<String, u32>,
    pub hold: Option<Time>,
    pub client: Client,
    /// Approvals that the client has really given.
    pub consents: BTreeSet<String>,
    pub streams: Vec<Stream>,
    /// Dies during the next input, after this many effects.
    pub fuse: Option<usize>,
    last_crashed: bool,
    outbox: Outbox,
    ids: Counter,
}

/// Turns a question into a script of events.
type Agent = dyn FnMut(&Asked) -> Vec<String>;

pub struct Asked {
    pub step: u32,
    pub responses: Vec<Response>,
}

/// One request of the client and what it got.
#[derive(Debug, Clone)]
pub struct Stream {
    pub prior: Option<Message>,
    pub sse: Vec<u8>,
    pub over: bool,
    pub waiting: bool,
    pub message: Option<Message>,
    /// What the bridge had stored when the turn ended.
    pub stored: Option<Message>,
}

/// What a front end has.
pub struct Client {
    pub sdk: Sdk,
    pub message: Message,
    fold: Option<Fold>,
    /// A step was opened that it does not show yet.
    step_hidden: bool,
    reader: Option<Reader>,
    read: usize,
    pub streaming: bool,
    pub failed: bool,
    pub requests: u32,
}

#[derive(Default)]
struct Counter(u32);

impl Ids for Counter {
    fn call(&mut self, _given: Option<&str>) -> String {
        self.0 += 1;
        format!("call-{}", self.0)
    }

    fn approval(&mut self, _given: Option<&str>) -> String {
        self.0 += 1;
        format!("approval-{}", self.0)
    }
}

pub struct House(pub Runner);

impl Rules for House {
    fn runner(&self) -> Runner {
        self.0
    }

    fn tool(&self, name: &str) -> Option<ToolRule> {
        if self.0 == Runner::Remote || name == "nonsense" {
            return None;
        }
        Some(ToolRule {
            runs_on: if is_client_tool(name) {
                RunsOn::Client
            } else {
                RunsOn::Server
            },
            needs_approval: needs_approval(name),
            idempotent: name == "idempotent",
        })
    }

    fn limits(&self) -> Limits {
        Limits {
            approval_timeout: 5 * MINUTE,
            client_timeout: 2 * MINUTE,
            max_steps: 8,
            max_answer_bytes: 1 << 20,
        }
    }
}

/// Where a tool runs shows in its name, or it is one of the demo's.
pub fn is_client_tool(name: &str) -> bool {
    name.starts_with("client")
        || matches!(
            name,
            "change_bgm" | "get_location" | "take_photo" | "pick_color" | "adk_request_input"
        )
}

pub fn needs_approval(name: &str) -> bool {
    name.ends_with("_ask")
        || matches!(
            name,
            "search_database"
                | "update_database"
                | "process_payment"
                | "change_bgm"
                | "get_location"
                | "take_photo"
        )
}

impl Bridge {
    pub fn new(
        runner: Runner,
        dialect: Dialect,
        mode: Mode,
        sdk: Sdk,
        agent: impl FnMut(&Asked) -> Vec<String> + 'static,
    ) -> Self {
        Self {
            runner,
            dialect,
            mode,
            now: 1_000_000,
            reply: Reply::new("message-1"),
            stored: None,
            audit: Vec::new(),
            script: None,
            agent: Box::new(agent),
            asked: Vec::new(),
            running: BTreeSet::new(),
            runs: BTreeMap::new(),
            hold: None,
            client: Client {
                sdk,
                message: Message::assistant("message-1"),
                fold: None,
                step_hidden: false,
                reader: None,
                read: 0,
                streaming: false,
                failed: false,
                requests: 0,
            },
            consents: BTreeSet::new(),
            streams: Vec::new(),
            fuse: None,
            last_crashed: false,
            outbox: Outbox::default(),
            ids: Counter::default(),
        }
    }

    /// The user has written: the first request.
    pub fn begin(&mut self) {
        self.attach(None);
        self.feed(Input::Begin(self.mode));
    }

    /// The client posts its message, as an auto-send does.
    pub fn post(&mut self) {
        let mine = self.client.message.clone();
        let answers = answers_of(&mine);
        self.attach(Some(mine.clone()));
        self.feed(Input::Answers(&answers, Some(self.mode)));
    }

    /// An answer by another way than the client's message.
    pub fn answer(&mut self, answers: &[Answer<'_>]) {
        self.feed(Input::Answers(answers, None));
    }

    /// The agent says its next word, or ends its run.
    pub fn agent_step(&mut self) -> bool {
        let Some(script) = &mut self.script else {
            return false;
        };
        if script.is_empty() {
            self.script = None;
            self.feed(Input::RunEnded(RunEnd::Done));
        } else {
            let line = script.remove(0);
            let event = Event::parse(&line).expect("the script is made of events");
            self.feed(Input::Event(&event));
        }
        true
    }

    pub fn fail_run(&mut self) -> bool {
        let asked = self.script.take().is_some();
        if asked {
            self.feed(Input::RunEnded(RunEnd::Failed("the line broke".into())));
        }
        asked
    }

    pub fn finish_tool(&mut self, nth: usize, fails: bool) -> bool {
        let Some(call) = self
            .running
            .iter()
            .nth(nth % self.running.len().max(1))
            .cloned()
        else {
            return false;
        };
        self.running.remove(&call);
        let outcome = if fails {
            Outcome::error("it broke")
        } else {
            Outcome::output(json!({"ran": call}))
        };
        self.feed(Input::ToolFinished {
            call: &call,
            outcome,
        });
        true
    }

    pub fn pass_time(&mut self, by: Time) {
        self.now += by;
        self.feed(Input::Tick);
    }

    pub fn close(&mut self, why: Why) {
        self.feed(Input::Close(why));
    }

    /// The process dies and comes back with what was stored.
    pub fn crash(&mut self) {
        let Some(record) = self.stored.clone() else {
            return;
        };
        let json = serde_json::to_string(&record).expect("a record is JSON");
        let record = serde_json::from_str(&json).expect("a record can be read back");
        self.reply = Reply::restore(record);
        self.running.clear();
        self.script = None;
        self.hold = None;
        self.client.cut();
        if let Some(stream) = self.streams.last_mut() {
            stream.over = true;
        }
        self.feed(Input::Boot);
    }

    /// The page is loaded anew: finished and waiting messages come as JSON, a running one by resume.
    pub fn reload(&mut self) {
        self.client.cut();
        if let Some(stream) = self.streams.last_mut() {
            stream.over = true;
        }
        if self.reply.turn().is_some() {
            self.client.message = Message::assistant("message-1");
            self.attach(None);
        } else {
            self.client.message = match self.dialect {
                Dialect::Native => self.reply.message().clone(),
                Dialect::Adk => project(
                    self.reply.message(),
                    self.reply.calls(),
                    self.reply.ended().is_some(),
                ),
            };
        }
    }

    fn attach(&mut self, theirs: Option<Message>) {
        self.client.requests += 1;
        let mut reader = Reader::new(self.dialect, self.client.sdk, true);
        let mut bytes = Vec::new();
        reader.attach(&self.reply, theirs.as_ref(), &mut bytes);
        let base = theirs.clone().unwrap_or(Message::assistant("message-1"));
        self.client.fold = Some(Fold::onto(self.client.sdk, base));
        self.client.reader = Some(reader);
        self.client.read = 0;
        self.client.streaming = true;
        self.client.failed = false;
        self.streams.push(Stream {
            prior: theirs,
            sse: bytes,
            over: false,
            waiting: false,
            message: None,
            stored: None,
        });
        self.client_reads();
    }

    fn feed(&mut self, input: Input<'_>) {
        self.outbox.clear();
        let mut outbox = std::mem::take(&mut self.outbox);
        let house = House(self.runner);
        let mut given = Given {
            now: self.now,
            ids: &mut self.ids,
            rules: &house,
        };
        self.reply.handle(input, &mut given, &mut outbox);
        let effects = std::mem::take(&mut outbox.effects);
        let fuse = self.fuse.take();
        self.last_crashed = fuse.is_some();
        for effect in effects.iter().take(fuse.unwrap_or(usize::MAX)) {
            self.perform(effect, &outbox);
        }
        outbox.effects = effects;
        self.outbox = outbox;
        if fuse.is_some() {
            self.crash();
            self.last_crashed = true;
        }
    }

    /// Whether the process died during the last input.
    pub fn crashed(&self) -> bool {
        self.last_crashed
    }

    fn perform(&mut self, effect: &Effect, outbox: &Outbox) {
        match effect {
            Effect::Commit(commit) => {
                self.stored = Some(commit.record.clone());
                self.audit.extend(commit.audit.iter().cloned());
            }
            Effect::Frames(range) => {
                self.check_durable(outbox, range.clone());
                if let (Some(reader), true) = (&mut self.client.reader, self.client.streaming) {
                    let stream = self.streams.last_mut().expect("a reader has a stream");
                    reader.frames(&self.reply, outbox, range.clone(), &mut stream.sse);
                    self.client_reads();
                }
            }
            Effect::RunTool { call } => {
                *self.runs.entry(call.clone()).or_default() += 1;
                self.check_consent(call);
                self.running.insert(call.clone());
            }
            Effect::Ask(ask) => {
                assert!(self.script.is_none(), "two runs at once");
                self.asked.push(ask.clone());
                let responses = match ask {
                    Ask::History => Vec::new(),
                    Ask::Responses(responses) => responses.clone(),
                };
                let asked = Asked {
                    step: self.asked.len() as u32,
                    responses,
                };
                self.script = Some((self.agent)(&asked));
            }
            Effect::CancelRun => self.script = None,
            Effect::HoldUntil(until) => self.hold = Some(*until),
            Effect::End => self.client_turn_ends(),
            _ => {}
        }
    }

    fn client_reads(&mut self) {
        let stream = self.streams.last().expect("a reader has a stream");
        let fresh = &stream.sse[self.client.read..];
        self.client.read = stream.sse.len();
        let Some(fold) = &mut self.client.fold else {
            return;
        };
        for chunk in chunks(fresh) {
            match &chunk {
                Chunk::Error { .. } => self.client.failed = true,
                // A step is shown with the next thing that is: so do the packages.
                Chunk::StartStep if !self.client.step_hidden => {
                    self.client.message = fold.message().clone();
                    self.client.step_hidden = true;
                }
                Chunk::StartStep | Chunk::FinishStep | Chunk::Abort { .. } => {}
                Chunk::Finish {
                    message_metadata: None,
                    ..
                } => {}
                _ => self.client.step_hidden = false,
            }
            let folded = fold.apply(&chunk);
            assert!(
                folded.is_ok() || matches!(chunk, Chunk::Error { .. }),
                "{folded:?} at {chunk:?} in\n{}",
                String::from_utf8_lossy(&stream.sse)
            );
        }
        if !self.client.step_hidden {
            self.client.message = fold.message().clone();
        }
    }

    fn client_turn_ends(&mut self) {
        self.hold = None;
        if !std::mem::take(&mut self.client.streaming) {
            return;
        }
        self.client.fold = None;
        self.client.step_hidden = false;
        self.client.reader = None;
        let waiting = self.reply.ended().is_none();
        let message = self.client.message.clone();
        let stream = self.streams.last_mut().expect("a reader has a stream");
        stream.sse.extend_from_slice(sse::DONE);
        stream.over = true;
        stream.waiting = waiting;
        stream.message = Some(message);
        stream.stored = Some(self.reply.message().clone());
        let stream = stream.clone();
        self.check_stream(&stream);
    }

    // What must hold at every moment.

    /// Whatever a frame tells of is in the store before it.
    fn check_durable(&self, outbox: &Outbox, range: std::ops::Range<usize>) {
        for frame in outbox.frames(range) {
            let text = std::str::from_utf8(outbox.json(frame)).expect("frames are text");
            let chunk = Chunk::parse(text).expect("frames are chunks");
            let told = match &chunk {
                Chunk::ToolApprovalRequest { tool_call_id, .. } => (tool_call_id, 3),
                Chunk::ToolOutputAvailable { tool_call_id, .. }
                | Chunk::ToolOutputError { tool_call_id, .. }
                | Chunk::ToolOutputDenied { tool_call_id } => (tool_call_id, 5),
                _ => continue,
            };
            let part = self
                .stored
                .as_ref()
                .and_then(|record| tool_part(&record.message, told.0))
                .unwrap_or_else(|| panic!("{chunk:?} is told and not stored"));
            assert!(rank(&part.state) >= told.1, "{chunk:?} told before stored");
        }
    }

    fn check_consent(&self, id: &str) {
        let call = self.reply.calls().by_id(id).expect("a call that exists");
        if call.name == "idempotent" {
            return;
        }
        assert_eq!(self.runs[id], 1, "{id} runs twice");
        let stored = self.stored.as_ref().expect("a run is journaled");
        let journaled = stored.calls.by_id(id).expect("a run is journaled");
        assert_eq!(journaled.state, CallState::Running);
        if let Some(approval) = &call.approval {
            assert!(
                self.consents.contains(&approval.id),
                "{id} runs without consent"
            );
        } else {
            assert!(!needs_approval(&call.name), "{id} runs unasked");
        }
    }

    fn check_stream(&self, stream: &Stream) {
        let text = String::from_utf8_lossy(&stream.sse);
        let chunks: Vec<Chunk<'_>> = chunks(&stream.sse).collect();
        assert!(
            matches!(
                chunks.first(),
                Some(Chunk::Start {
                    message_id: Some(_),
                    ..
                })
            ),
            "{text}"
        );
        let terminals = chunks.iter().filter(|chunk| is_terminal(chunk)).count();
        assert_eq!(terminals, 1, "{text}");
        assert!(chunks.last().is_some_and(is_terminal), "{text}");
        let steps: i32 = chunks
            .iter()
            .map(|chunk| match chunk {
                Chunk::StartStep => 1,
                Chunk::FinishStep => -1,
                _ => 0,
            })
            .sum();
        // A client that was cut off in the middle of a step has its beginning already.
        let begun = stream.prior.is_some() && steps == -1;
        assert!(steps == 0 || begun, "a step is left open\n{text}");
        if self.dialect == Dialect::Adk && stream.waiting {
            for chunk in &chunks {
                let early = match chunk {
                    Chunk::TextStart { .. } | Chunk::ReasoningStart { .. } | Chunk::File { .. } => {
                        true
                    }
                    // A confirmation that expired is over, and says so; a call's output is another matter.
                    Chunk::ToolOutputAvailable { tool_call_id, .. }
                    | Chunk::ToolOutputDenied { tool_call_id } => self
                        .reply
                        .calls()
                        .by_id(tool_call_id)
                        .is_some_and(|call| !self.is_left_to_client(call.step)),
                    _ => false,
                };
                assert!(!early, "in an intermediate response: {chunk:?}\n{text}");
            }
        }
        for call in self.reply.calls().iter() {
            assert!(
                call.state != CallState::Decided
                    || stream.waiting && call.runs_on == RunsOn::Remote,
                "an answered call stays open at the end of a turn: {call:?}"
            );
        }
        if self.reply.ended().is_some() {
            for call in self.reply.calls().iter() {
                assert!(
                    !call.is_open() || self.running.contains(&call.id),
                    "open in an ended reply: {call:?}"
                );
            }
        }
    }

    /// Whether a step asks nobody and has a client tool: only with all outputs of it does a client send.
    fn is_left_to_client(&self, step: u32) -> bool {
        let calls = || self.reply.calls().iter().filter(|call| call.step == step);
        calls().all(|call| call.approval.is_none())
            && calls().any(|call| call.runs_on == RunsOn::Client)
    }

    /// What the stored message and an up-to-date native client must agree on.
    pub fn check_agreement(&self) {
        if self.dialect == Dialect::Native && !self.client.streaming && !self.client.failed {
            let theirs = without_answers(&self.client.message);
            let ours = without_answers(self.reply.message());
            assert_eq!(theirs, ours);
        }
    }

    /// Whether the client has something that the bridge does not know, or must be asked again for.
    pub fn client_has_news(&self) -> bool {
        self.reply
            .calls()
            .iter()
            .any(|call| call.is_half_answered())
            || answers_of(&self.client.message)
                .iter()
                .any(|answer| match answer {
                    Answer::Decision { approval_id, .. } => self
                        .approval_state(approval_id)
                        .is_some_and(|state| *state == ApprovalState::Requested),
                    Answer::Output { call_id, .. } | Answer::Failure { call_id, .. } => self
                        .reply
                        .calls()
                        .by_id(call_id)
                        .is_some_and(|call| call.is_open()),
                })
    }

    pub fn approval_state(&self, id: &str) -> Option<&ApprovalState> {
        self.reply.calls().iter().find_map(|call| {
            let approval = call.approval.as_ref()?;
            (approval.id == id).then_some(&approval.state)
        })
    }

    pub fn audited(&self, kind: AuditKind) -> usize {
        self.audit.iter().filter(|row| row.kind == kind).count()
    }

    pub fn settled(&self, name: &str) -> Vec<Option<Settled>> {
        self.reply
            .calls()
            .iter()
            .filter(|call| call.name == name)
            .map(|call| call.settled())
            .collect()
    }
}

impl Client {
    /// The stream breaks: what was folded stays.
    fn cut(&mut self) {
        self.streaming = false;
        self.fold = None;
        self.reader = None;
    }

    /// The ids of approvals that wait for this client.
    pub fn requests_open(&self) -> Vec<String> {
        self.tools()
            .filter(|tool| tool.state == ToolState::ApprovalRequested)
            .filter_map(|tool| tool.approval.as_ref()?.id.clone())
            .collect()
    }

    /// Client tools that this client may run, as a front end decides it: after consent where consent is asked for.
    pub fn tools_to_run(&self) -> Vec<String> {
        let consented = |tool: &ToolPart| match tool.state {
            ToolState::InputAvailable => !self.awaits_consent(tool),
            ToolState::ApprovalResponded => {
                tool.approval.as_ref().and_then(|field| field.approved) == Some(true)
            }
            _ => false,
        };
        self.tools()
            .filter(|tool| is_client_tool(&tool.name) && consented(tool))
            .map(|tool| tool.call_id.clone())
            .collect()
    }

    /// In the `adk` dialect the consent lies on the confirmation beside the call.
    fn awaits_consent(&self, tool: &ToolPart) -> bool {
        self.confirmation_of(&tool.call_id)
            .map_or(needs_approval(&tool.name), |confirmation| {
                confirmation
                    .approval
                    .as_ref()
                    .and_then(|field| field.approved)
                    != Some(true)
            })
    }

    fn confirmation_of(&self, call_id: &str) -> Option<&ToolPart> {
        self.tools().find(|tool| {
            tool.name == REQUEST_CONFIRMATION
                && tool
                    .input
                    .as_ref()
                    .and_then(|input| input.pointer("/originalFunctionCall/id"))
                    .and_then(Value::as_str)
                    == Some(call_id)
        })
    }

    /// `addToolApprovalResponse`.
    pub fn respond(&mut self, id: &str, approved: bool) {
        self.edit(|tool| {
            if let Some(field) = &mut tool.approval
                && field.id.as_deref() == Some(id)
                && tool.state == ToolState::ApprovalRequested
            {
                field.approved = Some(approved);
                tool.state = ToolState::ApprovalResponded;
            }
        });
    }

    /// `addToolOutput`.
    pub fn put_output(&mut self, call_id: &str, fails: bool) {
        self.edit(|tool| {
            if tool.call_id == call_id {
                if fails {
                    tool.state = ToolState::OutputError;
                    tool.error_text = Some("no camera".into());
                } else {
                    tool.state = ToolState::OutputAvailable;
                    tool.output = Some(json!({"from": call_id}));
                }
            }
        });
    }

    fn edit(&mut self, mut change: impl FnMut(&mut ToolPart)) {
        let message = match &mut self.fold {
            Some(fold) => fold.message_mut(),
            None => &mut self.message,
        };
        for part in &mut message.parts {
            if let Part::Tool(tool) = part {
                change(tool);
            }
        }
        if let Some(fold) = &mut self.fold {
            self.message = fold.message().clone();
        }
    }

    /// Whether `sendAutomaticallyWhen` says so: both stock helpers for `native`, the requirement's order for `adk`.
    pub fn would_send(&self, dialect: Dialect) -> bool {
        let messages = std::slice::from_ref(&self.message);
        if dialect == Dialect::Adk && self.last_step_has_confirmation() {
            return self.would_send_adk();
        }
        predicates::complete_with_tool_calls(messages)
            || predicates::complete_with_approval_responses(messages)
    }

    fn last_step(&self) -> &[Part] {
        let start = self
            .message
            .parts
            .iter()
            .rposition(|part| matches!(part, Part::StepStart))
            .map_or(0, |index| index + 1);
        &self.message.parts[start..]
    }

    fn last_step_has_confirmation(&self) -> bool {
        self.last_step()
            .iter()
            .any(|part| matches!(part, Part::Tool(tool) if tool.name == REQUEST_CONFIRMATION))
    }

    /// ADR 0006, in its order: text, responded, pending, error, output, else send; an approved client tool waits.
    fn would_send_adk(&self) -> bool {
        let step = self.last_step();
        let tools = || {
            step.iter().filter_map(|part| match part {
                Part::Tool(tool) => Some(tool.as_ref()),
                _ => None,
            })
        };
        let confirmations = || tools().filter(|tool| tool.name == REQUEST_CONFIRMATION);
        let others = || tools().filter(|tool| tool.name != REQUEST_CONFIRMATION);
        if step.iter().any(|part| matches!(part, Part::Text(_)))
            || !confirmations().any(|tool| tool.state == ToolState::ApprovalResponded)
            || confirmations().any(|tool| tool.state == ToolState::ApprovalRequested)
        {
            return false;
        }
        let own_error = |tool: &ToolPart| is_client_tool(&tool.name);
        if others().any(|tool| tool.state == ToolState::OutputError && !own_error(tool)) {
            return false;
        }
        !others().any(|tool| {
            is_client_tool(&tool.name)
                && tool.state == ToolState::InputAvailable
                && !self.is_denied(&tool.call_id)
        })
    }

    fn is_denied(&self, call_id: &str) -> bool {
        self.confirmation_of(call_id)
            .and_then(|tool| tool.approval.as_ref()?.approved)
            == Some(false)
    }

    pub fn tools(&self) -> impl Iterator<Item = &ToolPart> {
        self.message.parts.iter().filter_map(|part| match part {
            Part::Tool(tool) => Some(tool.as_ref()),
            _ => None,
        })
    }
}

/// The chunks of a piece of an SSE stream.
pub fn chunks(sse: &[u8]) -> impl Iterator<Item = Chunk<'static>> + '_ {
    std::str::from_utf8(sse)
        .expect("a stream is text")
        .split("\n\n")
        .filter_map(|frame| frame.strip_prefix("data: "))
        .filter(|json| *json != "[DONE]")
        .map(|json| Chunk::parse(json).unwrap_or_else(|error| panic!("{error}: {json}")))
}

pub fn is_terminal(chunk: &Chunk<'_>) -> bool {
    matches!(
        chunk,
        Chunk::Finish { .. } | Chunk::Error { .. } | Chunk::Abort { .. }
    )
}

pub fn tool_part<'m>(message: &'m Message, id: &str) -> Option<&'m ToolPart> {
    message.parts.iter().find_map(|part| match part {
        Part::Tool(tool) if tool.call_id == id => Some(tool.as_ref()),
        _ => None,
    })
}

fn rank(state: &ToolState) -> u8 {
    match state {
        ToolState::ApprovalRequested => 3,
        ToolState::ApprovalResponded => 4,
        ToolState::OutputAvailable | ToolState::OutputError | ToolState::OutputDenied => 5,
        _ => 1,
    }
}

/// A message without what only one side can know: the answers that a client has given.
fn without_answers(message: &Message) -> Value {
    let mut message = message.clone();
    for part in &mut message.parts {
        if let Part::Tool(tool) = part {
            if let Some(field) = &mut tool.approval {
                field.approved = None;
                field.reason = None;
            }
            if tool.state == ToolState::ApprovalResponded {
                tool.state = ToolState::ApprovalRequested;
            }
            tool.raw_input = None;
        }
    }
    serde_json::to_value(&message).expect("a message is JSON")
}
