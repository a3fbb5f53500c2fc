//! Logins that agents ask for, answered in any order and in any way: only what was granted is reported as such, once, and
//! no secret is ever stored or shown.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use std::time::Duration;

use adk_bridge_protocol::calls::{Call, CredentialRequest, GrantBy, IdSource, Settlement};
use adk_bridge_protocol::driver::Driver;
use adk_bridge_protocol::event::{Event, REQUEST_CREDENTIAL};
use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::outbox::{Ask, Effect, Response};
use adk_bridge_protocol::reply::{
    Answer, Audience, CloseReason, Context, EndReason, Input, Limits, Policy, Record, Reply,
    RunEnd, Runner, ToolRule,
};
use adk_bridge_protocol::time::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

const SECRET: &str = "PLANTED-SECRET";

/// What happens to a question, or to all of them.
#[derive(Debug, Clone, Copy)]
enum Step {
    Granted(usize),
    Refused(usize),
    /// The client's outputs that say nothing.
    Done(usize),
    Restart,
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize).prop_map(Step::Granted),
        2 => (0..3_usize).prop_map(Step::Refused),
        2 => (0..3_usize).prop_map(Step::Done),
        1 => Just(Step::Restart),
        1 => Just(Step::Wait),
    ]
}

/// How the reply is ended if its questions are not all answered.
#[derive(Debug, Clone, Copy)]
enum End {
    Time,
    Stop,
    Message,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn only_what_was_granted_is_reported_and_once(
        authors in prop::collection::vec(0..2_usize, 1..4),
        steps in prop::collection::vec(step(), 0..8),
        end in prop_oneof![Just(End::Time), Just(End::Stop), Just(End::Message)],
    ) {
        let mut world = World::new();
        world.ask(&authors);
        let mut decided: Vec<Option<bool>> = vec![None; authors.len()];
        for step in steps {
            match step {
                Step::Granted(at) if at < authors.len() => {
                    world.answer(&Answer::Granted { call_id: &question(at) });
                    decided[at].get_or_insert(true);
                }
                Step::Refused(at) if at < authors.len() => {
                    let refusal = Json::object([("granted", false.into())]);
                    world.answer(&Answer::Output { call_id: &question(at), output: &refusal });
                    decided[at].get_or_insert(false);
                }
                Step::Done(at) if at < authors.len() => {
                    for said in [json!("done"), json!({"granted": true}), json!(null)] {
                        world.answer(&Answer::Output { call_id: &question(at), output: &said.into() });
                    }
                }
                Step::Restart => world.restart(),
                Step::Wait => world.now += Duration::from_secs(10),
                _ => {}
            }
        }
        let all = decided.iter().all(Option::is_some);
        match end {
            End::Time => {
                world.now += Limits::default().approval_timeout;
                world.feed(Input::Tick);
            }
            End::Stop => world.feed(Input::Close(CloseReason::Stopped)),
            End::Message => world.feed(Input::Supersede(&[])),
        }
        let reply = world.driver.reply();
        prop_assert!(reply.ended().is_some());
        if all {
            prop_assert_eq!(reply.ended(), Some(EndReason::Finished));
        }
        prop_assert!(reply.calls().iter().all(|call| !call.is_open()), "{:?}", reply.calls());
        for (at, decided) in decided.iter().enumerate() {
            let call = reply.calls().by_id(&question(at)).unwrap();
            let is_granted = call.settled() == Some(Settlement::Output);
            prop_assert_eq!(is_granted, *decided == Some(true));
            let sent = |name: &str, id: String| world.sent.iter().filter(|it| it.name == name && it.id == id).count();
            let grants = sent(REQUEST_CREDENTIAL, format!("r{at}"));
            prop_assert!(grants <= usize::from(is_granted), "{:?}", world.sent);
            // What one agent needs is complete, unless the reply was ended before.
            if all {
                prop_assert_eq!(grants, usize::from(is_granted));
                prop_assert_eq!(sent("use", format!("c{at}")), usize::from(!is_granted));
                let tool = reply.calls().by_id(&CallId::from(format!("c{at}"))).unwrap();
                prop_assert_eq!(tool.settled() == Some(Settlement::Output), is_granted);
            }
        }
        prop_assert!(!world.seen.contains(SECRET), "{}", world.seen);
    }
}

/// A login in a spoken conversation, and one that a user cannot grant, end where they begin.
#[test]
fn what_cannot_be_asked_ends_at_once() {
    let mut world = World::new();
    world.ids.refuses = true;
    world.ask(&[0]);
    let call = world.driver.reply().calls().by_id(&question(0)).unwrap();
    assert_eq!(call.settled(), Some(Settlement::Error));
    assert_eq!(world.driver.reply().ended(), Some(EndReason::Finished));
    let mut world = World::new();
    let asked = asking(0, 0).to_string();
    world.feed(Input::LiveEvent(&Event::parse(&asked).unwrap()));
    let call = world.driver.reply().calls().by_id(&question(0)).unwrap();
    assert_eq!(call.settled(), Some(Settlement::Error));
    assert!(world.ids.asked.is_empty() && !world.seen.contains(SECRET));
}

/// A call for credentials without an id could not be answered, and one that comes twice is one.
#[test]
fn a_question_has_an_id_of_its_own() {
    let mut world = World::new();
    let asked = asking(0, 0).to_string();
    for text in [&asked, &asked, &asked.replace("\"id\":\"r0\",", "")] {
        world.feed(Input::Event(&Event::parse(text).unwrap()));
    }
    let calls: Vec<&Call> = world.driver.reply().calls().iter().collect();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls[0].waits_for_client() && !calls[1].is_open());
    assert_eq!(world.ids.asked, ["r0"]);
}

fn question(at: usize) -> CallId {
    format!("r{at}").into()
}

fn asking(at: usize, author: usize) -> Value {
    let config = json!({"authScheme": {"type": "apiKey", "name": "k", "in": "header"}, "rawAuthCredential": {"apiKey": SECRET}});
    said(
        author,
        json!({"functionCall": {"id": format!("r{at}"), "name": REQUEST_CREDENTIAL,
            "args": {"functionCallId": format!("c{at}"), "authConfig": config}}}),
    )
}

fn said(author: usize, part: Value) -> Value {
    json!({"author": format!("agent{author}"), "branch": format!("agent{author}"), "content": {"role": "model", "parts": [part]}})
}

struct World {
    driver: Driver,
    now: Timestamp,
    ids: Ids,
    /// What the agents were sent.
    sent: Vec<Response>,
    /// All that was stored or shown.
    seen: String,
    authors: Vec<usize>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            driver: Driver::new(Reply::new("message-1")),
            now: Timestamp::from_millis(1_000_000),
            ids: Ids::default(),
            sent: Vec::new(),
            seen: String::new(),
            authors: Vec::new(),
        };
        world.feed(Input::Begin(Audience::Request));
        world
    }

    /// A run in which agents call tools that need a login each.
    fn ask(&mut self, authors: &[usize]) {
        self.authors = authors.to_vec();
        for (at, author) in authors.iter().enumerate() {
            let call = json!({"functionCall": {"id": format!("c{at}"), "name": "use", "args": {}}});
            self.event(&said(*author, call));
            self.event(&asking(at, *author));
            let id = format!("c{at}");
            let mut pending = said(
                *author,
                json!({"functionResponse": {"id": id, "name": "use", "response": {"pending": true}}}),
            );
            pending["actions"] =
                json!({"requestedAuthConfigs": {id: {"rawAuthCredential": {"apiKey": SECRET}}}});
            self.event(&pending);
        }
        self.feed(Input::RunEnded(RunEnd::Done));
    }

    fn event(&mut self, event: &Value) {
        self.feed(Input::Event(&Event::parse(&event.to_string()).unwrap()));
    }

    fn answer(&mut self, answer: &Answer<'_>) {
        self.feed(Input::Answers(std::slice::from_ref(answer), None));
    }

    fn restart(&mut self) {
        let record = serde_json::to_string(&self.driver.reply().record()).unwrap();
        let record: Record = serde_json::from_str(&record).unwrap();
        self.driver = Driver::new(Reply::restore(record));
        self.feed(Input::Boot);
    }

    /// Feeds an input, and plays the agent that is asked for more.
    fn feed(&mut self, input: Input<'_>) {
        let mut asked = Vec::new();
        {
            let mut given = Context {
                now: self.now,
                ids: &mut self.ids,
                policy: &Remote,
            };
            let mut effects = self.driver.feed(input, &mut given);
            while let Some(effect) = effects.next() {
                match effect {
                    Effect::Commit(commit) => self.seen += &format!("{commit:?}"),
                    Effect::Frames(frames) => {
                        self.seen += &String::from_utf8_lossy(effects.outbox().sse(frames));
                    }
                    Effect::Ask(Ask::Responses(responses)) => asked.push(responses),
                    _ => {}
                }
            }
        }
        for responses in asked {
            for response in &responses {
                let used = response
                    .id
                    .strip_prefix('r')
                    .filter(|_| response.name == REQUEST_CREDENTIAL);
                if let Some(at) = used {
                    let author = self.authors[at.parse::<usize>().unwrap()];
                    let result = json!({"functionResponse": {"id": format!("c{at}"), "name": "use", "response": {"used": at}}});
                    self.event(&said(author, result));
                }
            }
            self.sent.extend(responses);
            self.feed(Input::RunEnded(RunEnd::Done));
        }
    }
}

#[derive(Default)]
struct Ids {
    asked: Vec<String>,
    refuses: bool,
}

impl IdSource for Ids {
    fn call(&mut self, given: Option<&str>) -> CallId {
        given.unwrap_or("call").into()
    }

    fn approval(&mut self, given: Option<&str>) -> ApprovalId {
        given.unwrap_or("approval").into()
    }

    fn credential(&mut self, request: &CredentialRequest<'_>) -> Option<GrantBy> {
        assert!(
            request.args.text().contains(SECRET),
            "whoever keeps it gets all of it"
        );
        self.asked.push(request.call.to_string());
        (!self.refuses).then_some(GrantBy::Secret)
    }
}

struct Remote;

impl Policy for Remote {
    fn runner(&self) -> Runner {
        Runner::Remote
    }

    fn tool(&self, _: &str) -> Option<ToolRule> {
        None
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}
