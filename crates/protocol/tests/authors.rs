//! Several agents that write at the same time: whatever the order of their events, each text comes once and whole, and v6
//! clients can read the stream too.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use std::collections::VecDeque;

use adk_bridge_protocol::calls::IdSource;
use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::dialect::{Dialect, Reader};
use adk_bridge_protocol::driver::Driver;
use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::message::fold::Fold;
use adk_bridge_protocol::message::{Part, ToolState};
use adk_bridge_protocol::outbox::Effect;
use adk_bridge_protocol::reply::{
    Audience, Context, Input, Limits, Policy, Reply, RunEnd, Runner, ToolRule,
};
use adk_bridge_protocol::time::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_text_comes_once_and_whole(
        agents in prop::collection::vec(prop::collection::vec(model_call(), 1..3), 1..6),
        order in prop::collection::vec(any::<prop::sample::Index>(), 120),
    ) {
        let agents: Vec<Vec<ModelCall>> = agents.into_iter().map(until_asked).collect();
        let mut expected: Vec<String> = agents.iter().flatten().map(|call| call.words.concat()).collect();
        let calls = agents.iter().flatten().filter(|call| call.tool && !call.asks).count();
        let mut waiting: Vec<VecDeque<Value>> = agents.iter().enumerate().map(events).collect();
        let mut run = Running::new();
        for at in order {
            waiting.retain(|events| !events.is_empty());
            if waiting.is_empty() {
                break;
            }
            let agent = at.index(waiting.len());
            let event = waiting[agent].pop_front().unwrap();
            run.feed(Input::Event(&Event::parse(&event.to_string()).unwrap()));
        }
        for event in waiting.into_iter().flatten() {
            run.feed(Input::Event(&Event::parse(&event.to_string()).unwrap()));
        }
        run.feed(Input::RunEnded(RunEnd::Done));

        let message = run.driver.reply().message();
        let mut texts: Vec<String> = message.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.text.clone()),
            _ => None,
        }).collect();
        texts.sort();
        expected.sort();
        prop_assert_eq!(texts, expected);
        let settled = message.parts.iter().filter(|part| {
            matches!(part, Part::Tool(tool) if tool.state == ToolState::OutputAvailable)
        });
        prop_assert_eq!(settled.count(), calls);

        let mut fold = Fold::new(Sdk::V6, "");
        for line in std::str::from_utf8(&run.stream).unwrap().split_terminator("\n\n") {
            fold.apply(&Chunk::parse(line.strip_prefix("data: ").unwrap()).unwrap()).unwrap();
        }
        prop_assert_eq!(fold.message(), message);
    }
}

/// What a model says in one call, and whether it calls a tool with it.
#[derive(Debug, Clone)]
struct ModelCall {
    words: Vec<String>,
    tool: bool,
    /// Whether the tool needs a human: the agent says nothing more until it has the answer.
    asks: bool,
}

fn model_call() -> impl Strategy<Value = ModelCall> {
    let words = prop::collection::vec("[a-c]{1,2} ", 1..6);
    let tool = (any::<bool>(), prop::bool::weighted(0.3));
    (words, tool).prop_map(|(words, (tool, asks))| ModelCall {
        words,
        tool,
        asks: tool && asks,
    })
}

/// What an agent says until it asks.
fn until_asked(mut said: Vec<ModelCall>) -> Vec<ModelCall> {
    if let Some(at) = said.iter().position(|call| call.asks) {
        said.truncate(at + 1);
    }
    said
}

/// The events of one agent, in their order.
fn events((agent, said): (usize, &Vec<ModelCall>)) -> VecDeque<Value> {
    let event = |parts: Value, partial: bool, id: String| {
        let mut event = json!({"author": "agent", "branch": format!("team.{agent}"), "id": id,
            "partial": partial, "content": {"role": "model", "parts": parts}});
        if !partial {
            event["finishReason"] = json!("STOP");
        }
        event
    };
    let mut all = VecDeque::new();
    for (number, call) in said.iter().enumerate() {
        let id = format!("{agent}-{number}");
        for word in &call.words {
            all.push_back(event(json!([{"text": word}]), true, id.clone()));
        }
        let mut whole = vec![json!({"text": call.words.concat()})];
        if call.tool {
            whole.push(json!({"functionCall": {"id": id, "name": "look", "args": {}}}));
        }
        all.push_back(event(json!(whole), false, id.clone()));
        if call.asks {
            let original = json!({"id": id, "name": "look", "args": {}});
            let args =
                json!({"originalFunctionCall": original, "toolConfirmation": {"confirmed": false}});
            let question = json!([{"functionCall": {"id": format!("{id}-q"), "name": "adk_request_confirmation", "args": args}}]);
            all.push_back(event(question, false, format!("{id}-question")));
            // What the model says of the placeholder is not for the user.
            all.push_back(event(
                json!([{"text": "I should have waited."}]),
                true,
                format!("{id}-early"),
            ));
        }
        if call.tool {
            let result = json!([{"functionResponse": {"id": id, "name": "look", "response": {}}}]);
            all.push_back(event(result, false, format!("{id}-result")));
        }
    }
    all
}

struct Running {
    driver: Driver,
    reader: Reader,
    stream: Vec<u8>,
}

impl Running {
    fn new() -> Self {
        let mut run = Self {
            driver: Driver::new(Reply::new("message-1")),
            reader: Reader::new(Dialect::Native, Sdk::V6, true),
            stream: Vec::new(),
        };
        run.reader.attach(run.driver.reply(), None, &mut run.stream);
        run.feed(Input::Begin(Audience::Request));
        run
    }

    fn feed(&mut self, input: Input<'_>) {
        let mut given = Context {
            now: Timestamp::default(),
            ids: &mut Names,
            policy: &Remote,
        };
        let mut effects = self.driver.feed(input, &mut given);
        while let Some(effect) = effects.next() {
            if let Effect::Frames(frames) = effect {
                let (reply, outbox) = (effects.reply(), effects.outbox());
                self.reader.frames(reply, outbox, frames, &mut self.stream);
            }
        }
    }
}

struct Names;

impl IdSource for Names {
    fn call(&mut self, given: Option<&str>) -> CallId {
        given.unwrap_or("call").into()
    }

    fn approval(&mut self, given: Option<&str>) -> ApprovalId {
        given.unwrap_or("approval").into()
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
