//! Random walks through everything that can happen to a reply; the box they run in checks the invariants at every step.

#![allow(
    clippy::disallowed_methods,
    reason = "the number of cases may come from outside"
)]

mod sim;

use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::reply::{Mode, Runner};
use proptest::prelude::*;

use sim::walk::{Act, agent, check, drain, perform};
use sim::{Bridge, TOOLS};

fn act() -> impl Strategy<Value = Act> {
    let nth = 0..6usize;
    prop_oneof![
        30 => Just(Act::Agent),
        1 => Just(Act::RunFails),
        8 => (nth.clone(), prop::bool::weighted(0.2)).prop_map(|(nth, fails)| Act::ToolEnds { nth, fails }),
        10 => (nth.clone(), any::<bool>()).prop_map(|(nth, approved)| Act::Respond { nth, approved }),
        6 => (nth.clone(), prop::bool::weighted(0.2)).prop_map(|(nth, fails)| Act::ClientTool { nth, fails }),
        12 => Just(Act::AutoSend),
        2 => Just(Act::Post),
        2 => nth.clone().prop_map(|nth| Act::Forge { nth }),
        2 => nth.clone().prop_map(|nth| Act::Contradict { nth }),
        2 => nth.clone().prop_map(|nth| Act::ForgeOutput { nth }),
        2 => nth.clone().prop_map(|nth| Act::SideOutput { nth }),
        2 => (0..400u64).prop_map(|seconds| Act::Wait { seconds }),
        2 => Just(Act::Crash),
        2 => nth.prop_map(|effects| Act::CrashDuring { effects }),
        2 => Just(Act::Reload),
        1 => Just(Act::Stop),
        1 => Just(Act::Supersede),
    ]
}

/// What the agent does each time it is asked: how much it says and which tools it calls.
fn plan() -> impl Strategy<Value = Vec<(u8, Vec<usize>)>> {
    prop::collection::vec((0..3u8, prop::collection::vec(0..TOOLS.len(), 0..4)), 1..5)
}

fn setting() -> impl Strategy<Value = (Runner, Dialect, Mode, Sdk)> {
    (
        prop_oneof![3 => Just(Runner::Bridge), 2 => Just(Runner::Remote)],
        prop_oneof![Just(Dialect::Native), Just(Dialect::Adk)],
        prop_oneof![3 => Just(Mode::Http), 1 => Just(Mode::Live)],
        prop_oneof![Just(Sdk::V6), Just(Sdk::V7)],
    )
}

/// `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(1_500),
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_walk_keeps_the_invariants(
        (runner, dialect, mode, sdk) in setting(),
        plan in plan(),
        acts in prop::collection::vec(act(), 0..80),
    ) {
        let mut bridge = Bridge::new(runner, dialect, mode, sdk, agent(runner, plan));
        bridge.begin();
        for act in acts {
            perform(&mut bridge, &act);
            check(&bridge);
        }
        bridge.fuse = None;
        drain(&mut bridge);
    }
}

/// A page that is loaded while a remote model speaks beside an open call can fold what comes.
#[test]
fn a_reload_while_a_model_speaks_beside_an_open_call() {
    let plan = vec![(0, vec![4, 2])];
    let agent = agent(Runner::Remote, plan);
    let mut bridge = Bridge::new(Runner::Remote, Dialect::Native, Mode::Http, Sdk::V6, agent);
    bridge.begin();
    for act in [
        Act::Agent,
        Act::RunFails,
        Act::SideOutput { nth: 0 },
        Act::Agent,
        Act::Reload,
        Act::Agent,
    ] {
        perform(&mut bridge, &act);
        check(&bridge);
    }
    drain(&mut bridge);
}
