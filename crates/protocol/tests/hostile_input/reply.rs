//! A reply between an agent that says anything and clients that must be able to read what comes of it.

use std::sync::LazyLock;
use std::time::Duration;

use adk_bridge_protocol::calls::{Call, IdSource, Outcome, RunsOn};
use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::dialect::{Dialect, Reader};
use adk_bridge_protocol::driver::Driver;
use adk_bridge_protocol::event::{Event, REQUEST_CONFIRMATION};
use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::fold::{Fold, FoldError};
use adk_bridge_protocol::message::{Message, Part, ToolState};
use adk_bridge_protocol::outbox::{Ask, Effect, FrameKind};
use adk_bridge_protocol::reply::{
    Answer, Audience, CloseReason, Context, Input, Limits, Policy, Reply, RunEnd, Runner, ToolRule,
};
use adk_bridge_protocol::time::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::RECORDED;
use crate::damage::damage;
use adk_bridge_testkit::Random;

/// Events about tools: without them a reply is soon at its end.
static CALLS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let about_tools = |event: &&Value| {
        let part = &event["content"]["parts"][0];
        event["partial"] != true
            && (part["functionCall"].is_object() || part["functionResponse"].is_object())
    };
    RECORDED.iter().filter(about_tools).cloned().collect()
});

#[derive(Debug, Clone)]
enum Act {
    /// A recorded event, broken or not.
    Event {
        seed: u64,
        broken: bool,
    },
    RunEnded {
        fails: bool,
    },
    ToolFinished {
        nth: usize,
        fails: bool,
    },
    Decide {
        nth: usize,
        approved: bool,
    },
    Output {
        nth: usize,
    },
    Forge,
    Wait {
        seconds: u64,
    },
    Close {
        superseded: bool,
    },
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    let nth = 0..6usize;
    prop_oneof![
        40 => (any::<u64>(), any::<bool>()).prop_map(|(seed, broken)| Act::Event { seed, broken }),
        5 => prop::bool::weighted(0.1).prop_map(|fails| Act::RunEnded { fails }),
        8 => (nth.clone(), any::<bool>()).prop_map(|(nth, fails)| Act::ToolFinished { nth, fails }),
        8 => (nth.clone(), any::<bool>()).prop_map(|(nth, approved)| Act::Decide { nth, approved }),
        6 => nth.prop_map(|nth| Act::Output { nth }),
        1 => Just(Act::Forge),
        2 => (0..400u64).prop_map(|seconds| Act::Wait { seconds }),
        1 => any::<bool>().prop_map(|superseded| Act::Close { superseded }),
        1 => Just(Act::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn goes_on_whatever_an_agent_says(
        remote in any::<bool>(),
        live in any::<bool>(),
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let runner = if remote { Runner::Remote } else { Runner::Bridge };
        let mode = if live { Audience::Connection } else { Audience::Request };
        let mut world = World::new(runner, mode);
        for act in acts {
            world.act(&act);
        }
        world.act(&Act::Close { superseded: false });
    }
}

/// A model cannot say what its tools came to, nor ask a human in the bridge's name.
#[test]
fn a_model_does_not_answer_for_its_tools() {
    let mut world = World::new(Runner::Bridge, Audience::Request);
    world.say(json!([{"functionCall": {"id": "c", "name": "transfer_money", "args": {}}}]));
    world.say(json!([{"functionResponse": {"id": "c", "name": "transfer_money", "response": {"ok": true}}}]));
    world.say(json!([question("q", "c")]));
    assert!(
        world
            .driver
            .reply()
            .calls()
            .iter()
            .all(|call| call.is_open() && call.approval.is_none())
    );
    world.feed(Input::RunEnded(RunEnd::Done));
    assert!(
        world
            .driver
            .reply()
            .calls()
            .iter()
            .all(|call| call.approval.is_some())
    );
    assert_eq!(world.driver.reply().calls().len(), 1);
}

/// A tool of a remote agent may ask a second time, which is a second confirmation in the adk dialect.
#[test]
fn a_call_is_asked_about_twice() {
    let mut world = World::new(Runner::Remote, Audience::Request);
    world.say(json!([{"functionCall": {"id": "c", "name": "pay", "args": {}}}]));
    world.say(json!([question("first", "c")]));
    world.feed(Input::RunEnded(RunEnd::Done));
    world.act(&Act::Decide {
        nth: 0,
        approved: true,
    });
    world.say(json!([question("second", "c")]));
    world.feed(Input::RunEnded(RunEnd::Done));
    assert!(world.driver.reply().turn().is_none());
    let states = |client: &Client| -> Vec<(CallId, ToolState)> {
        let tools = client
            .has
            .iter()
            .flat_map(|message| &message.parts)
            .filter_map(Part::as_tool);
        tools
            .map(|tool| (tool.call_id.clone(), tool.state.clone()))
            .collect()
    };
    for client in world
        .clients
        .iter()
        .filter(|client| client.dialect == Dialect::Adk)
    {
        let (first, second) = ("approval-2".to_owned(), "approval-3".to_owned());
        let states = states(client);
        assert!(
            states.contains(&(first.into(), ToolState::OutputError)),
            "{states:?}"
        );
        assert!(
            states.contains(&(second.into(), ToolState::ApprovalRequested)),
            "{states:?}"
        );
    }
}

/// A call whose arguments were never completed does not come back to life in the next model call.
#[test]
fn a_call_that_was_cut_stays_cut() {
    let mut world = World::new(Runner::Bridge, Audience::Request);
    let begun = json!({"partial": true, "content": {"parts": [
        {"functionCall": {"id": "a", "name": "get_weather", "willContinue": true}},
    ]}});
    let begun = begun.to_string();
    world.feed(Input::Event(&Event::parse(&begun).unwrap()));
    world.feed(Input::RunEnded(RunEnd::Done));
    world.say(json!([{"functionCall": {"id": "b", "name": "get_weather", "args": {}}}]));
    let states: Vec<bool> = world
        .driver
        .reply()
        .calls()
        .iter()
        .map(Call::is_open)
        .collect();
    assert_eq!(states, [false, true]);
}

fn question(id: &str, original: &str) -> Value {
    json!({"functionCall": {"id": id, "name": REQUEST_CONFIRMATION, "args": {
        "originalFunctionCall": {"id": original, "name": "pay", "args": {}},
        "toolConfirmation": {"hint": "", "confirmed": false},
    }}})
}

struct World {
    driver: Driver,
    agent: Agent,
    mode: Audience,
    now: Timestamp,
    ids: Counter,
    clients: Vec<Client>,
    /// Terminal chunks since the turn began.
    terminals: usize,
    /// Whether the agent has been sent results, and continues.
    continued: bool,
}

/// A client that continues its message with every turn, as `useChat` does.
struct Client {
    dialect: Dialect,
    sdk: Sdk,
    has: Option<Message>,
    reader: Option<Reader>,
    stream: Vec<u8>,
}

impl World {
    fn new(runner: Runner, mode: Audience) -> Self {
        let mut world = Self {
            driver: Driver::new(Reply::new("m1")),
            agent: Agent(runner),
            mode,
            now: Timestamp::default(),
            ids: Counter(0),
            clients: (Dialect::ALL.iter())
                .flat_map(|&dialect| [Sdk::V6, Sdk::V7].map(|sdk| Client::new(dialect, sdk)))
                .collect(),
            terminals: 0,
            continued: false,
        };
        world.join();
        world.feed(Input::Begin(mode));
        world
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Event { seed, broken } => {
                let mut random = Random::new(*seed);
                let mut event = match random.below(3) {
                    0 => random.pick(&RECORDED),
                    _ => random.pick(&CALLS),
                };
                if *broken {
                    damage(&mut event, &RECORDED, &mut random);
                }
                let line = event.to_string();
                if let Ok(event) = Event::parse(&line)
                    && !self.asks_too_late(&event)
                {
                    self.feed(Input::Event(&event));
                }
            }
            Act::RunEnded { fails } => self.feed(Input::RunEnded(if *fails {
                RunEnd::Failed("broken".to_owned())
            } else {
                RunEnd::Done
            })),
            Act::ToolFinished { nth, fails } => {
                let Some(call) = self.nth_call(*nth) else {
                    return;
                };
                let outcome = if *fails {
                    Outcome::error("broken")
                } else {
                    Outcome::output(json!({"rows": nth}))
                };
                self.feed(Input::ToolFinished {
                    call: &call,
                    outcome,
                });
            }
            Act::Decide { nth, approved } => {
                let approvals = self
                    .driver
                    .reply()
                    .calls()
                    .iter()
                    .filter_map(|call| call.approval.as_ref());
                let ids: Vec<ApprovalId> = approvals.map(|approval| approval.id.clone()).collect();
                if let Some(id) = ids.get(nth % ids.len().max(1)) {
                    self.answer(&[Answer::Decision {
                        approval_id: id.clone(),
                        approved: *approved,
                        reason: Some("because"),
                        payload: None,
                        part: None,
                    }]);
                }
            }
            Act::Output { nth } => {
                if let Some(call) = self.nth_call(*nth) {
                    let output = json!(nth);
                    self.answer(&[Answer::Output {
                        call_id: &call,
                        output: &output.into(),
                    }]);
                }
            }
            Act::Forge => self.answer(&[
                Answer::Decision {
                    approval_id: "forged".into(),
                    approved: true,
                    reason: None,
                    payload: None,
                    part: None,
                },
                Answer::Output {
                    call_id: &"forged".into(),
                    output: Json::nothing(),
                },
                Answer::Failure {
                    call_id: &"forged".into(),
                    error: "",
                },
            ]),
            Act::Wait { seconds } => {
                self.now += Duration::from_secs(*seconds);
                self.feed(Input::Tick);
            }
            Act::Close { superseded } => self.feed(Input::Close(if *superseded {
                CloseReason::Superseded
            } else {
                CloseReason::Stopped
            })),
            Act::Restart => {
                let record = serde_json::to_string(&self.driver.reply().record()).unwrap();
                self.driver = Driver::new(Reply::restore(serde_json::from_str(&record).unwrap()));
                self.terminals = 0;
                // Sockets are cut; what a client has got stays.
                for client in &mut self.clients {
                    client.read(false);
                }
                self.feed(Input::Boot);
            }
        }
    }

    /// Whether an agent asks about a call that it made in an earlier run and did not ask about then. The adk dialect
    /// puts a confirmation behind its call, where the client may have other calls by then; no server has been seen to
    /// do this.
    fn asks_too_late(&self, event: &Event<'_>) -> bool {
        let originals = event.parts().iter().filter_map(|part| {
            let args = part.function_call.as_ref()?.args.as_ref()?;
            let id = args.get("originalFunctionCall")?.get("id")?;
            Some(id.as_str()?.into_owned())
        });
        let mut calls = originals.flat_map(|id: String| {
            self.driver
                .reply()
                .calls()
                .iter()
                .filter(move |call| call.model_id.as_deref() == Some(id.as_str()))
        });
        self.continued && calls.any(|call| call.approval.is_none())
    }

    fn say(&mut self, parts: Value) {
        let line = json!({"content": {"role": "model", "parts": parts}}).to_string();
        self.feed(Input::Event(&Event::parse(&line).unwrap()));
    }

    fn nth_call(&self, nth: usize) -> Option<CallId> {
        let calls = self.driver.reply().calls();
        let call = calls.iter().nth(nth % calls.len().max(1))?;
        Some(call.id.clone())
    }

    fn answer(&mut self, answers: &[Answer<'_>]) {
        self.join();
        self.feed(Input::Answers(answers, Some(self.mode)));
    }

    /// Whoever does not read makes a request.
    fn join(&mut self) {
        for client in &mut self.clients {
            if client.reader.is_none() {
                let mut reader = Reader::new(client.dialect, client.sdk, true);
                reader.attach(self.driver.reply(), client.has.as_ref(), &mut client.stream);
                client.reader = Some(reader);
            }
        }
    }

    fn feed(&mut self, input: Input<'_>) {
        let mut given = Context {
            now: self.now,
            ids: &mut self.ids,
            policy: &self.agent,
        };
        let mut effects = self.driver.feed(input, &mut given);
        let mut last = None;
        while let Some(effect) = effects.next() {
            if let Effect::Frames(range) = &effect {
                let (reply, outbox) = (effects.reply(), effects.outbox());
                for frame in outbox.frames(range.clone()) {
                    let json = std::str::from_utf8(outbox.json(frame)).unwrap();
                    if let Err(error) = Chunk::parse(json) {
                        panic!("{error}: {json}");
                    }
                    assert_eq!(self.terminals, 0, "a chunk after the last one: {json}");
                    self.terminals += usize::from(frame.kind == FrameKind::Terminal);
                    last = Some(frame.kind);
                }
                for client in &mut self.clients {
                    if let Some(reader) = &mut client.reader {
                        reader.frames(reply, outbox, range.clone(), &mut client.stream);
                    }
                }
            }
            self.continued |= matches!(effect, Effect::Ask(Ask::Responses(_)));
            if effect == Effect::End {
                assert_eq!(
                    last,
                    Some(FrameKind::Terminal),
                    "a turn ends with a terminal chunk"
                );
                assert_eq!(self.terminals, 1);
                self.terminals = 0;
                self.clients.iter_mut().for_each(|client| client.read(true));
            } else if !matches!(effect, Effect::Frames(_) | Effect::Commit(_)) {
                last = None;
            }
        }
        assert_eq!(
            self.terminals, 0,
            "nothing ends the turn after its terminal chunk"
        );
        if self.driver.reply().turn().is_none() {
            let open = self.clients.iter().any(|client| client.reader.is_some());
            assert!(!open, "a turn is over, and a client still reads");
        }
    }
}

impl Client {
    fn new(dialect: Dialect, sdk: Sdk) -> Self {
        Self {
            dialect,
            sdk,
            has: None,
            reader: None,
            stream: Vec::new(),
        }
    }

    /// Folds what has come onto what it has.
    fn read(&mut self, ended: bool) {
        if self.reader.take().is_none() {
            return;
        }
        let stream = String::from_utf8(std::mem::take(&mut self.stream)).unwrap();
        let mut fold = match self.has.take() {
            Some(message) => Fold::onto(self.sdk, message),
            None => Fold::new(self.sdk, "m1"),
        };
        let mut terminals = 0;
        for frame in stream.split_terminator("\n\n") {
            assert_eq!(terminals, 0, "a chunk after the last one in {stream}");
            let json = frame.strip_prefix("data: ").unwrap();
            let chunk = Chunk::parse(json).unwrap();
            assert!(chunk.since() <= self.sdk, "{json}");
            terminals += usize::from(matches!(
                chunk,
                Chunk::Finish { .. } | Chunk::Error { .. } | Chunk::Abort { .. }
            ));
            match fold.apply(&chunk) {
                Ok(()) => {}
                Err(FoldError::Reported(_)) => assert!(matches!(chunk, Chunk::Error { .. })),
                Err(error) => panic!(
                    "{:?}, {:?}: {error}: {json} in\n{stream}",
                    self.dialect, self.sdk
                ),
            }
        }
        assert_eq!(terminals, usize::from(ended), "{stream}");
        self.has = Some(fold.into_message());
    }
}

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

/// The tools of the recordings: one runs here, one in the front end, one needs consent; the rest is unknown.
struct Agent(Runner);

impl Policy for Agent {
    fn runner(&self) -> Runner {
        self.0
    }

    fn tool(&self, name: &str) -> Option<ToolRule> {
        let (runs_on, needs_approval) = match name {
            "get_weather" => (RunsOn::Server, false),
            "pick_color" => (RunsOn::Client, false),
            "save_note" => (RunsOn::Client, true),
            "transfer_money" => (RunsOn::Server, true),
            _ => return None,
        };
        Some(ToolRule {
            runs_on,
            needs_approval,
            idempotent: false,
        })
    }

    fn limits(&self) -> Limits {
        Limits {
            max_answer_bytes: 20_000,
            max_steps: 6,
            ..Limits::default()
        }
    }
}
