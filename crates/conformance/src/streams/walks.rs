//! The turns of random walks: streams that no test would think of.

use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::message::fold::Fold;
use adk_bridge_protocol::message::{Message, Part, ToolState};
use adk_bridge_protocol::reply::{Audience, Runner};
use adk_bridge_testkit::Random;
use adk_bridge_testkit::sim::walk::{Act, agent, check, drain, perform};
use adk_bridge_testkit::sim::{Bridge, Stream, TOOLS, chunks, predicates};

use super::case::Case;

/// The number of walks; each has a handful of turns.
const WALKS: u64 = 250;

pub(crate) fn write(cases: &mut Vec<Case>) {
    for seed in 0..WALKS {
        let mut random = Random::new(seed);
        let runner = random.pick(&[Runner::Bridge, Runner::Bridge, Runner::Remote]);
        let dialect = random.pick(Dialect::ALL);
        let mode = random.pick(&[
            Audience::Request,
            Audience::Request,
            Audience::Connection,
            Audience::Frame,
        ]);
        let sdk = random.pick(&[Sdk::V6, Sdk::V7]);
        let plan = (0..=random.below(4))
            .map(|_| {
                let tools = (0..random.below(4))
                    .map(|_| random.below(TOOLS.len()))
                    .collect();
                (random.below(3), tools)
            })
            .collect();
        let mut bridge = Bridge::new(runner, dialect, mode, sdk, agent(runner, plan));
        bridge.begin();
        for _ in 0..random.below(80) {
            perform(&mut bridge, &act(&mut random));
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

/// The message of a client that does nothing but read.
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
    let client_may_send = match dialect {
        // Next to an open client tool it sends earlier answers again, which the reply then holds.
        Dialect::Held => {
            let has_text = message
                .parts
                .iter()
                .any(|part| matches!(part, Part::Text(_)));
            !has_text && message.parts.iter().any(is_answered)
        }
        Dialect::Native | Dialect::Adk => {
            predicates::complete_with_tool_calls(messages)
                || predicates::complete_with_approval_responses(messages)
        }
    };
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

fn is_answered(part: &Part) -> bool {
    let answered = [ToolState::ApprovalResponded, ToolState::OutputAvailable];
    matches!(part, Part::Tool(tool) if answered.contains(&tool.state))
}

fn act(random: &mut Random) -> Act {
    let nth = random.below(6);
    let flag = random.below(4) == 0;
    match random.below(40) {
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
            seconds: random.below(400),
        },
        36 => Act::Crash,
        37 => Act::CrashDuring { effects: nth },
        38 => Act::Reload,
        _ if flag => Act::Stop,
        _ => Act::RunFails,
    }
}
