//! The turns of random walks: streams that nobody thought of.

use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::message::fold::Fold;
use adk_bridge_protocol::reply::{Mode, Runner};

use crate::case::Case;
use crate::sim::walk::{Act, agent, check, drain, perform};
use crate::sim::{Bridge, Stream, TOOLS, chunks, predicates};

/// How many walks; each has a handful of turns.
const WALKS: u64 = 250;

pub(crate) fn write(cases: &mut Vec<Case>) {
    for seed in 0..WALKS {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let runner = *dice.one_of(&[Runner::Bridge, Runner::Bridge, Runner::Remote]);
        let dialect = *dice.one_of(&[Dialect::Native, Dialect::Adk]);
        let mode = *dice.one_of(&[Mode::Http, Mode::Http, Mode::Live]);
        let sdk = *dice.one_of(&[Sdk::V6, Sdk::V7]);
        let plan = (0..=dice.below(4))
            .map(|_| {
                let tools = (0..dice.below(4))
                    .map(|_| dice.below(TOOLS.len()))
                    .collect();
                (u8::try_from(dice.below(3)).unwrap_or(0), tools)
            })
            .collect();
        let mut bridge = Bridge::new(runner, dialect, mode, sdk, agent(runner, plan));
        bridge.begin();
        for _ in 0..dice.below(80) {
            perform(&mut bridge, &dice.act());
            check(&bridge);
        }
        bridge.fuse = None;
        drain(&mut bridge);
        let complete = bridge
            .streams
            .iter()
            .filter(|stream| stream.message.is_some());
        cases.extend(
            complete.enumerate().map(|(turn, stream)| {
                case(format!("walk {seed}, turn {turn}"), stream, dialect, sdk)
            }),
        );
    }
}

/// What a client folds that touches nothing meanwhile.
fn case(name: String, stream: &Stream, dialect: Dialect, sdk: Sdk) -> Case {
    let prior = stream.prior.clone();
    let mut fold = Fold::onto(sdk, prior.clone().unwrap_or_else(|| Message::assistant("")));
    let mut ends = "finish";
    for chunk in chunks(&stream.sse) {
        match chunk {
            Chunk::Error { .. } => ends = "error",
            Chunk::Abort { .. } => ends = "abort",
            _ => {}
        }
        // An `error` chunk is refused by design, and is the last.
        let _ = fold.apply(&chunk);
    }
    let message = fold.into_message();
    let messages = std::slice::from_ref(&message);
    let client_may_send = predicates::complete_with_tool_calls(messages)
        || predicates::complete_with_approval_responses(messages);
    Case {
        name,
        dialect,
        sdk,
        prior,
        sse: stream.sse.clone(),
        message,
        ends,
        client_may_send,
    }
}

/// A small generator of our own (xorshift): a corpus must be the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }

    fn one_of<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }

    fn act(&mut self) -> Act {
        let nth = self.below(6);
        let flag = self.below(4) == 0;
        match self.below(40) {
            0..15 => Act::Agent,
            15..19 => Act::ToolEnds { nth, fails: flag },
            19..24 => Act::Respond {
                nth,
                approved: !flag,
            },
            24..27 => Act::ClientTool { nth, fails: flag },
            27..33 => Act::AutoSend,
            33 => Act::Post,
            34 => Act::SideOutput { nth },
            35 => Act::Wait {
                seconds: self.below(400) as u64,
            },
            36 => Act::Crash,
            37 => Act::CrashDuring { effects: nth },
            38 => Act::Reload,
            _ if flag => Act::Stop,
            _ => Act::RunFails,
        }
    }
}
