//! A simulated bridge: a reply, its store, a scripted agent, tools, and a client that behaves like the AI SDK's `Chat`.

mod checks;
mod client;
pub mod predicates;
pub mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use adk_bridge_protocol::approval::ApprovalState;
use adk_bridge_protocol::calls::{Call, IdSource, Outcome, RunsOn, Settlement};
use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::dialect::{Dialect, Reader};
use adk_bridge_protocol::driver::Driver;
use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::id::{ApprovalId, CallId, MessageId};
use adk_bridge_protocol::message::fold::Fold;
use adk_bridge_protocol::message::{Message, Part, ToolPart};
use adk_bridge_protocol::outbox::{Ask, Audit, AuditKind, Effect, Response};
use adk_bridge_protocol::reply::{
    Answer, Audience, CloseReason, Context, Input, LaterResult, Limits, Policy, Record, Reply,
    RunEnd, Runner, ToolProgress, ToolQuestion, ToolRule, answers_of, later_results,
};
use adk_bridge_protocol::time::Timestamp;
use adk_bridge_protocol::wire::sse;
use serde_json::json;

pub const MINUTE: Duration = Duration::from_secs(60);

/// The agent's tools: their names say where they run and whether they need approval.
pub const TOOLS: [&str; 7] = [
    "server",
    "server_ask",
    "client",
    "client_ask",
    "idempotent",
    "nonsense",
    TICKET,
];

/// A tool of a remote agent that returns a ticket, and finishes later.
pub const TICKET: &str = "ticket";

pub struct Bridge {
    pub runner: Runner,
    pub dialect: Dialect,
    pub mode: Audience,
    pub now: Timestamp,
    pub driver: Driver,
    /// What a crash would leave.
    pub stored: Option<Record>,
    pub audit: Vec<Audit>,
    /// The agent's next events; `None` while it is not asked.
    pub script: Option<Vec<String>>,
    /// Decides the agent's answer to a question.
    pub agent: Box<Agent>,
    pub asked: Vec<Ask>,
    pub running: BTreeSet<CallId>,
    pub runs: BTreeMap<CallId, u32>,
    /// Questions that running tools wait for, and who asked.
    pub questions: BTreeMap<CallId, CallId>,
    pub client: Client,
    /// Approvals that the client really gave.
    pub consents: BTreeSet<ApprovalId>,
    /// Whether the reply was stopped, whatever had been decided.
    pub stopped: bool,
    /// Whether a newer message is ending the reply, which then takes no more answers.
    pub superseding: bool,
    pub streams: Vec<Stream>,
    /// Crashes during the next input, after this many effects.
    pub fuse: Option<usize>,
    last_crashed: bool,
    ids: Counter,
}

/// Turns a question into a script of events.
type Agent = dyn FnMut(&AgentQuestion) -> Vec<String>;

pub struct AgentQuestion {
    pub step: u32,
    pub responses: Vec<Response>,
}

/// One request of the client and its result.
#[derive(Debug, Clone)]
pub struct Stream {
    pub prior: Option<Message>,
    pub sse: Vec<u8>,
    pub over: bool,
    pub waiting: bool,
    pub message: Option<Message>,
    /// The message that was stored when the turn ended.
    pub stored: Option<Message>,
}

/// The state of a front end.
pub struct Client {
    pub sdk: Sdk,
    pub message: Message,
    fold: Option<Fold>,
    /// Whether a step was opened that it does not show yet.
    step_hidden: bool,
    reader: Option<Reader>,
    read: usize,
    pub streaming: bool,
    pub failed: bool,
    pub requests: u32,
    /// The decisions of each request: the predicate of `held` sends no set of them twice.
    sent: Vec<Vec<(ApprovalId, bool)>>,
}

impl Client {
    fn new(sdk: Sdk, message: Message) -> Self {
        Self {
            sdk,
            message,
            fold: None,
            step_hidden: false,
            reader: None,
            read: 0,
            streaming: false,
            failed: false,
            requests: 0,
            sent: Vec::new(),
        }
    }
}

#[derive(Default)]
struct Counter(u32);

impl IdSource for Counter {
    fn call(&mut self, _given: Option<&str>) -> CallId {
        self.0 += 1;
        format!("call-{}", self.0).into()
    }

    fn approval(&mut self, _given: Option<&str>) -> ApprovalId {
        self.0 += 1;
        format!("approval-{}", self.0).into()
    }
}

pub struct House(pub Runner);

impl Policy for House {
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

/// Whether a tool runs in the client: its name says so, or it is one of the demo's client tools.
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
        mode: Audience,
        sdk: Sdk,
        agent: impl FnMut(&AgentQuestion) -> Vec<String> + 'static,
    ) -> Self {
        Self {
            runner,
            dialect,
            mode,
            now: Timestamp::from_millis(1_000_000),
            driver: Driver::new(Reply::new("message-1")),
            stored: None,
            audit: Vec::new(),
            script: None,
            agent: Box::new(agent),
            asked: Vec::new(),
            running: BTreeSet::new(),
            runs: BTreeMap::new(),
            questions: BTreeMap::new(),
            client: Client::new(sdk, Message::assistant("message-1")),
            consents: BTreeSet::new(),
            stopped: false,
            superseding: false,
            streams: Vec::new(),
            fuse: None,
            last_crashed: false,
            ids: Counter::default(),
        }
    }

    /// The user has written: the first request.
    pub fn begin(&mut self) {
        self.attach(None);
        self.feed(Input::Begin(self.mode));
    }

    /// A tool of the reply, which has ended, has its result: the next reply begins with it, and a client that resumes reads
    /// it. Returns whether there is such a tool.
    pub fn finish_later(&mut self, nth: usize, fails: bool) -> bool {
        assert!(self.driver.reply().ended().is_some());
        let calls = self.driver.reply().calls().iter();
        let open: Vec<Call> = calls
            .filter(|call| call.may_finish_later())
            .cloned()
            .collect();
        let Some(call) = open.get(nth % open.len().max(1)) else {
            return false;
        };
        let outcome = match fails {
            true => Outcome::error("it broke later"),
            false => Outcome::output(json!({"finished": call.id})),
        };
        let result = LaterResult::of(call, outcome).expect("it may finish");
        let before = self.driver.reply().message().id.clone();
        let id = MessageId::from(format!("after-{before}"));
        self.driver = Driver::new(Reply::new(id.clone()));
        self.client = Client::new(self.client.sdk, Message::assistant(id));
        self.stored = None;
        self.streams.clear();
        (self.stopped, self.superseding, self.fuse) = (false, false, None);
        self.attach(None);
        self.feed(Input::BeginWithResult(&result, Audience::Unattended));
        let sent = match self.asked.last() {
            Some(Ask::Responses(responses)) => responses.as_slice(),
            _ => &[],
        };
        let ids: Vec<_> = sent
            .iter()
            .map(|response| Some(response.id.clone()))
            .collect();
        assert_eq!(ids, std::slice::from_ref(&call.model_id));
        let stored = self.stored.as_ref().expect("it is stored first");
        assert!(later_results(&stored.message).eq([call.id.clone()]));
        true
    }

    /// The client posts its message, as an auto-send does.
    pub fn post(&mut self) {
        let mine = self.client.message.clone();
        self.client.sent.push(self.client.answered());
        let answers = answers_of(&mine);
        self.attach(Some(mine.clone()));
        self.feed(Input::Answers(&answers, Some(self.mode)));
    }

    /// Answers in another way than through the client's message.
    pub fn answer(&mut self, answers: &[Answer<'_>]) {
        self.feed(Input::Answers(answers, None));
    }

    /// Feeds the agent's next event, or ends its run.
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
        if self.running.is_empty() {
            self.questions.clear();
        }
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

    /// A running tool asks the user something.
    pub fn tool_asks(&mut self, nth: usize) -> bool {
        let running: Vec<CallId> = self.running.iter().cloned().collect();
        let Some(call) = running.get(nth % running.len().max(1)) else {
            return false;
        };
        let question = ToolQuestion {
            id: self.ids.call(None),
            server: "sim".to_owned(),
            message: "Which one?".to_owned(),
            schema: json!({"type": "object", "properties": {"from": {"type": "string"}}}).into(),
        };
        self.questions.insert(question.id.clone(), call.clone());
        let question = &question;
        self.feed(Input::ToolAsks { call, question });
        true
    }

    /// A tool does not wait for the answer to its question any more.
    pub fn withdraw(&mut self, nth: usize) {
        let open: Vec<CallId> = self.questions.keys().cloned().collect();
        if let Some(question) = open.get(nth % open.len().max(1)) {
            self.questions.remove(question);
            self.feed(Input::QuestionWithdrawn { question });
        }
    }

    /// Finishes a tool that waits for no answer, as most do.
    pub fn finish_unasking_tool(&mut self) -> bool {
        let free = self.unasking_tool();
        free.is_some_and(|nth| self.finish_tool(nth, false))
    }

    /// A running tool that waits for no answer.
    pub fn unasking_tool(&self) -> Option<usize> {
        let waits = |call: &CallId| self.questions.values().any(|asker| asker == call);
        self.running.iter().position(|call| !waits(call))
    }

    pub fn tool_tells_progress(&mut self, nth: usize) {
        if let Some(call) = self.running.iter().nth(nth % self.running.len().max(1)) {
            let progress = &ToolProgress {
                progress: 1.0,
                total: Some(2.0),
                message: Some("half".to_owned()),
            };
            let call = &call.clone();
            self.feed(Input::ToolProgress { call, progress });
        }
    }

    pub fn pass_time(&mut self, by: Duration) {
        self.now += by;
        self.feed(Input::Tick);
    }

    pub fn close(&mut self, why: CloseReason) {
        self.stopped |= self.driver.reply().ended().is_none();
        self.feed(Input::Close(why));
    }

    /// The user sends another message: the request carries the client's copy of this one.
    pub fn write_on(&mut self) {
        let mine = self.client.message.clone();
        self.superseding = true;
        self.feed(Input::Supersede(&answers_of(&mine)));
    }

    /// The process crashes and restarts with what was stored.
    pub fn crash(&mut self) {
        let Some(record) = self.stored.clone() else {
            return;
        };
        let json = serde_json::to_string(&record).expect("a record is JSON");
        let record = serde_json::from_str(&json).expect("a record can be read back");
        self.driver = Driver::new(Reply::restore(record));
        self.superseding = false;
        self.running.clear();
        self.questions.clear();
        self.script = None;
        self.client.cut();
        if let Some(stream) = self.streams.last_mut() {
            stream.over = true;
        }
        self.feed(Input::Boot);
    }

    /// The page is reloaded: finished and waiting messages come as JSON, a running one by resume.
    pub fn reload(&mut self) {
        self.client.cut();
        if let Some(stream) = self.streams.last_mut() {
            stream.over = true;
        }
        if self.driver.reply().turn().is_some() {
            self.client.message = self.empty_message();
            self.attach(None);
        } else {
            self.client.message = self.dialect.show(
                self.driver.reply().message().clone(),
                self.driver.reply().calls(),
                self.driver.reply().ended().is_some(),
            );
        }
    }

    fn empty_message(&self) -> Message {
        Message::assistant(self.driver.reply().message().id.clone())
    }

    fn attach(&mut self, theirs: Option<Message>) {
        self.client.requests += 1;
        let mut reader = Reader::new(self.dialect, self.client.sdk, true);
        let mut bytes = Vec::new();
        reader.attach(self.driver.reply(), theirs.as_ref(), &mut bytes);
        let base = theirs.clone().unwrap_or(self.empty_message());
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
        let house = House(self.runner);
        let mut given = Context {
            now: self.now,
            ids: &mut self.ids,
            policy: &house,
        };
        self.driver.feed(input, &mut given).defer();
        let fuse = self.fuse.take();
        self.last_crashed = fuse.is_some();
        for _ in 0..fuse.unwrap_or(usize::MAX) {
            let Some(effect) = self.driver.effects().next() else {
                break;
            };
            self.perform(effect);
        }
        if fuse.is_some() {
            self.crash();
            self.last_crashed = true;
        }
    }

    /// Whether the process crashed during the last input.
    pub fn crashed(&self) -> bool {
        self.last_crashed
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Commit(commit) => {
                self.stored = Some(commit.record);
                self.audit.extend(commit.audit);
            }
            Effect::Frames(range) => {
                self.check_durable(range.clone());
                if let (Some(reader), true) = (&mut self.client.reader, self.client.streaming) {
                    let stream = self.streams.last_mut().expect("a reader has a stream");
                    let (reply, outbox) = (self.driver.reply(), self.driver.outbox());
                    reader.frames(reply, outbox, range, &mut stream.sse);
                    self.client_reads();
                }
            }
            Effect::RunTool { call } => {
                *self.runs.entry(call.clone()).or_default() += 1;
                self.check_consent(&call);
                self.running.insert(call);
            }
            Effect::Ask(ask) => {
                assert!(self.script.is_none(), "two runs at once");
                self.asked.push(ask.clone());
                let responses = match ask {
                    Ask::History => Vec::new(),
                    Ask::Responses(responses) => responses,
                };
                let asked = AgentQuestion {
                    step: self.asked.len() as u32,
                    responses,
                };
                self.script = Some((self.agent)(&asked));
            }
            Effect::AnswerTool { question, answer } => self.check_tool_answer(&question, &answer),
            Effect::CancelRun => self.script = None,
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
                // As in the packages, a step is shown together with the next visible chunk.
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
        if !std::mem::take(&mut self.client.streaming) {
            return;
        }
        self.client.fold = None;
        self.client.step_hidden = false;
        self.client.reader = None;
        let waiting = self.driver.reply().ended().is_none();
        let message = self.client.message.clone();
        let stream = self.streams.last_mut().expect("a reader has a stream");
        stream.sse.extend_from_slice(sse::DONE);
        stream.over = true;
        stream.waiting = waiting;
        stream.message = Some(message);
        stream.stored = Some(self.driver.reply().message().clone());
        let stream = stream.clone();
        self.check_stream(&stream);
    }

    /// Whether the client has something that the bridge does not know, or must ask for again.
    pub fn client_has_news(&self) -> bool {
        self.driver
            .reply()
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
                        .driver
                        .reply()
                        .calls()
                        .by_id(call_id)
                        .is_some_and(|call| call.is_open()),
                    Answer::Granted { .. } | Answer::Unclear { .. } => false,
                })
    }

    pub fn approval_state(&self, id: &ApprovalId) -> Option<&ApprovalState> {
        self.driver.reply().calls().iter().find_map(|call| {
            let approval = call.approval.as_ref()?;
            (approval.id == *id).then_some(&approval.state)
        })
    }

    pub fn audited(&self, kind: AuditKind) -> usize {
        self.audit.iter().filter(|row| row.kind == kind).count()
    }

    pub fn settled(&self, name: &str) -> Vec<Option<Settlement>> {
        self.driver
            .reply()
            .calls()
            .iter()
            .filter(|call| call.name == name)
            .map(|call| call.settled())
            .collect()
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

pub fn tool_part<'m>(message: &'m Message, id: &CallId) -> Option<&'m ToolPart> {
    message.parts.iter().find_map(|part| match part {
        Part::Tool(tool) if tool.call_id == *id => Some(tool.as_ref()),
        _ => None,
    })
}
