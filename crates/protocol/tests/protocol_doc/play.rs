//! Plays the recorded examples of the document through a reply, with a stock client that approves everything.

use adk_bridge_protocol::calls::IdSource;
use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::dialect::{Dialect, Reader};
use adk_bridge_protocol::driver::Driver;
use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::message::fold::Fold;
use adk_bridge_protocol::message::{Message, Part, ToolState};
use adk_bridge_protocol::outbox::Effect;
use adk_bridge_protocol::reply::{
    Audience, Context, Input, Limits, Policy, Reply, RunEnd, Runner, ToolRule, answers_of,
};
use adk_bridge_protocol::time::Timestamp;
use adk_bridge_protocol::wire::sse;

use super::document::{blocks, data_lines};

/// The stream of one turn, the recorded ones before it being approved by a stock client.
pub(crate) fn play(name: &str, dialect: Dialect, turn: usize) -> Vec<u8> {
    let mut play = Play::new();
    let mut theirs: Option<Message> = None;
    for number in 1..=turn {
        let mut reader = Reader::new(dialect, Sdk::V6, true);
        play.stream.clear();
        reader.attach(play.driver.reply(), theirs.as_ref(), &mut play.stream);
        play.reader = Some(reader);
        match &theirs {
            None => play.feed(Input::Begin(Audience::Request)),
            Some(message) => play.feed(Input::Answers(
                &answers_of(message),
                Some(Audience::Request),
            )),
        }
        let info = format!("{name} {number}");
        let (_, events) = blocks("jsonl")
            .into_iter()
            .find(|(found, _)| *found == info)
            .unwrap_or_else(|| panic!("no block ```jsonl {info}"));
        for line in events.lines() {
            play.feed(Input::Event(&Event::parse(line).unwrap()));
        }
        play.feed(Input::RunEnded(RunEnd::Done));
        assert_eq!(play.ended, number, "every turn ends once");
        let mut fold = Fold::onto(
            Sdk::V6,
            theirs.take().unwrap_or_else(|| Message::assistant("")),
        );
        for line in data_lines(std::str::from_utf8(&play.stream).unwrap()) {
            fold.apply(&Chunk::parse(line).unwrap()).unwrap();
        }
        play.stream.extend_from_slice(sse::DONE);
        approve(fold.message_mut());
        theirs = Some(fold.into_message());
    }
    play.stream
}

fn approve(message: &mut Message) {
    for part in &mut message.parts {
        if let Part::Tool(tool) = part
            && tool.state == ToolState::ApprovalRequested
            && let Some(approval) = &mut tool.approval
        {
            approval.approved = Some(true);
            tool.state = ToolState::ApprovalResponded;
        }
    }
}

pub(crate) struct Play {
    pub(crate) driver: Driver,
    reader: Option<Reader>,
    stream: Vec<u8>,
    ended: usize,
}

impl Play {
    pub(crate) fn new() -> Self {
        Self {
            driver: Driver::new(Reply::new("message-1")),
            reader: None,
            stream: Vec::new(),
            ended: 0,
        }
    }

    pub(crate) fn feed(&mut self, input: Input<'_>) {
        let mut given = Context {
            now: Timestamp::default(),
            ids: &mut AsGiven,
            policy: &AdkServer,
        };
        let mut effects = self.driver.feed(input, &mut given);
        while let Some(effect) = effects.next() {
            match (effect, &mut self.reader) {
                (Effect::Frames(range), Some(reader)) => {
                    let (reply, outbox) = (effects.reply(), effects.outbox());
                    reader.frames(reply, outbox, range, &mut self.stream);
                }
                (Effect::End, _) => self.ended += 1,
                _ => {}
            }
        }
    }
}

struct AsGiven;

impl IdSource for AsGiven {
    fn call(&mut self, given: Option<&str>) -> CallId {
        given.expect("the examples name their calls").into()
    }

    fn approval(&mut self, given: Option<&str>) -> ApprovalId {
        given.expect("the examples name their questions").into()
    }
}

struct AdkServer;

impl Policy for AdkServer {
    fn runner(&self) -> Runner {
        Runner::Remote
    }

    fn tool(&self, _name: &str) -> Option<ToolRule> {
        None
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}
