//! Random walks through everything that can happen to a reply; the box they run in checks the invariants at every step.

#![allow(
    clippy::disallowed_methods,
    reason = "the number of cases may come from outside"
)]

use std::time::Duration;

use adk_bridge_protocol::calls::{Call, Settlement};
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::event::REQUEST_INPUT;
use adk_bridge_protocol::outbox::{Ask, AuditKind};
use adk_bridge_protocol::reply::{Answer, Audience, EndReason, Runner};
use proptest::prelude::*;
use serde_json::json;

use adk_bridge_testkit::sim::walk::{Act, Plan, Wire, agent, check, drain, perform, team};
use adk_bridge_testkit::sim::{Bridge, TICKET, TOOLS};

fn act() -> impl Strategy<Value = Act> {
    let nth = 0..6usize;
    prop_oneof![
        30 => Just(Act::Agent),
        1 => Just(Act::RunFails),
        8 => (nth.clone(), prop::bool::weighted(0.2)).prop_map(|(nth, fails)| Act::ToolEnds { nth, fails }),
        5 => nth.clone().prop_map(|nth| Act::ToolAsks { nth }),
        1 => nth.clone().prop_map(|nth| Act::Withdraw { nth }),
        1 => nth.clone().prop_map(|nth| Act::Progress { nth }),
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
        2 => prop::collection::vec((0..6usize, any::<bool>()), 0..4)
            .prop_map(|answers| Act::WriteOn { answers }),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    prop::collection::vec((0..3u8, prop::collection::vec(0..TOOLS.len(), 0..4)), 1..5)
}

fn setting() -> impl Strategy<Value = (Runner, Dialect, Audience, Sdk)> {
    (
        prop_oneof![3 => Just(Runner::Bridge), 2 => Just(Runner::Remote)],
        prop::sample::select(Dialect::ALL),
        prop_oneof![3 => Just(Audience::Request), 1 => Just(Audience::Connection), 1 => Just(Audience::Frame)],
        prop_oneof![Just(Sdk::V6), Just(Sdk::V7)],
    )
}

/// Does all of this, and brings the reply to its end. Then tools that had returned a ticket finish, one after another, and
/// what follows from each takes the same course.
fn walk(mut bridge: Bridge, acts: &[Act]) {
    bridge.begin();
    for later in 0..2 {
        for act in acts {
            perform(&mut bridge, act);
            check(&bridge);
        }
        bridge.fuse = None;
        drain(&mut bridge);
        if !bridge.finish_later(later, later == 1) {
            return;
        }
    }
    drain(&mut bridge);
}

/// `PROPTEST_CASES` asks for more.
fn config(usual: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(usual),
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(1_500))]

    #[test]
    fn every_walk_keeps_the_invariants(
        (runner, dialect, mode, sdk) in setting(),
        plan in plan(),
        acts in prop::collection::vec(act(), 0..80),
    ) {
        let bridge = Bridge::new(runner, dialect, mode, sdk, agent(runner, plan));
        walk(bridge, &acts);
    }
}

fn members() -> impl Strategy<Value = Vec<(Wire, Plan)>> {
    let wire = prop::sample::select(vec![Wire::Python, Wire::A2a, Wire::TypeScript]);
    prop::collection::vec((wire, plan()), 2..4)
}

proptest! {
    #![proptest_config(config(600))]

    /// Several agents of an ADK server work and ask at once: no run has the answers for two of them, each decision reaches
    /// the agent that asked, and what was approved has run.
    #[test]
    fn every_walk_with_several_agents_keeps_the_invariants(
        (_, dialect, mode, sdk) in setting(),
        members in members(),
        order in prop::collection::vec(0..3usize, 1..12),
        acts in prop::collection::vec(act(), 0..80),
    ) {
        let bridge = Bridge::new(Runner::Remote, dialect, mode, sdk, team(members, order));
        walk(bridge, &acts);
    }
}

/// Two agents ask at once: each gets its own answer, one after another, and both tools run.
#[test]
fn each_agent_gets_its_own_answers() {
    let of = |tool: &str| TOOLS.iter().position(|name| *name == tool).unwrap();
    for wire in [Wire::Python, Wire::A2a, Wire::TypeScript] {
        for &dialect in Dialect::ALL {
            let plan = vec![(1, vec![of("client"), of("server_ask"), of("server")])];
            let agent = team(vec![(wire, plan.clone()), (wire, plan)], vec![0, 1]);
            let mut bridge =
                Bridge::new(Runner::Remote, dialect, Audience::Request, Sdk::V6, agent);
            bridge.begin();
            drain_yes(&mut bridge);
            let sent: Vec<Vec<String>> = bridge.asked[1..]
                .iter()
                .map(|ask| match ask {
                    Ask::Responses(responses) => responses.iter().map(|it| it.id.clone()).collect(),
                    Ask::History => Vec::new(),
                })
                .collect();
            let expected = [
                "member-0/fc-1",
                "member-0/confirm-fc-2",
                "member-1/fc-1",
                "member-1/confirm-fc-2",
            ];
            assert_eq!(
                sent,
                expected.map(|id| vec![id.to_owned()]),
                "{wire:?} {dialect:?}"
            );
            assert_eq!(bridge.settled("server_ask"), [Some(Settlement::Output); 2]);
            assert_eq!(bridge.settled("client"), [Some(Settlement::Output); 2]);
            // What a server does not say is settled before the human is asked.
            let plain = match wire {
                Wire::TypeScript => Settlement::Error,
                _ => Settlement::Output,
            };
            assert_eq!(bridge.settled("server"), [Some(plain); 2], "{wire:?}");
        }
    }
}

/// Approves everything and brings all outputs, as a user does with a stock front end.
fn drain_yes(bridge: &mut Bridge) {
    for _ in 0..20 {
        while bridge.agent_step() {}
        while !bridge.client.requests_open().is_empty() {
            perform(
                bridge,
                &Act::Respond {
                    nth: 0,
                    approved: true,
                },
            );
        }
        for _ in 0..4 {
            perform(
                bridge,
                &Act::ClientTool {
                    nth: 0,
                    fails: false,
                },
            );
        }
        perform(bridge, &Act::AutoSend);
        perform(bridge, &Act::Wait { seconds: 1 });
    }
    assert_eq!(bridge.driver.reply().ended(), Some(EndReason::Finished));
}

/// A remote agent acts on its questions when all are answered: the one that is left open is not confirmed, the approved one
/// runs, and the reply ends with its outcome.
#[test]
fn a_remote_agent_gets_one_decision_and_runs_that_call() {
    for &dialect in Dialect::ALL {
        let ask = TOOLS.iter().position(|name| *name == "server_ask").unwrap();
        let agent = agent(Runner::Remote, vec![(0, vec![ask, ask])]);
        let mut bridge = Bridge::new(Runner::Remote, dialect, Audience::Request, Sdk::V6, agent);
        bridge.begin();
        while bridge.agent_step() {}
        let asked = bridge.asked.len();
        let answers = vec![(0, true)];
        perform(&mut bridge, &Act::WriteOn { answers });
        assert!(
            bridge.driver.reply().ended().is_none(),
            "the agent has to act first"
        );
        while bridge.agent_step() {}
        assert_eq!(bridge.driver.reply().ended(), Some(EndReason::Superseded));
        let confirmed: Vec<_> = bridge.asked[asked..]
            .iter()
            .flat_map(|ask| match ask {
                Ask::Responses(responses) => responses.as_slice(),
                Ask::History => &[],
            })
            .map(|response| response.response.to_value()["confirmed"].clone())
            .collect();
        assert_eq!(confirmed, [json!(true), json!(false)]);
        let settled = bridge.settled("server_ask");
        assert_eq!(
            settled,
            [Some(Settlement::Output), Some(Settlement::Superseded)]
        );
        for kind in [AuditKind::ApprovalApproved, AuditKind::ApprovalSuperseded] {
            assert_eq!(bridge.audited(kind), 1, "{kind:?}");
        }
    }
}

/// The same if the decision came in a request of its own, before the user wrote: next to another question, or next to a
/// tool of the page whose output nobody has brought.
#[test]
fn a_remote_agent_gets_what_was_decided_before_the_user_wrote() {
    let of = |tool: &str| TOOLS.iter().position(|name| *name == tool).unwrap();
    let cases = (Dialect::ALL.iter())
        .flat_map(|&dialect| ["server_ask", "client"].map(|other| (dialect, other)))
        .flat_map(|(dialect, other)| [true, false].map(|yes| (dialect, other, yes)));
    for (dialect, other, approved) in cases {
        let agent = agent(Runner::Remote, vec![(0, vec![of("server_ask"), of(other)])]);
        let mut bridge = Bridge::new(Runner::Remote, dialect, Audience::Request, Sdk::V6, agent);
        bridge.begin();
        while bridge.agent_step() {}
        let asked = bridge.asked.len();
        perform(&mut bridge, &Act::Respond { nth: 0, approved });
        perform(&mut bridge, &Act::Post);
        assert_eq!(bridge.asked.len(), asked, "not all is answered yet");
        perform(&mut bridge, &Act::WriteOn { answers: vec![] });
        while bridge.agent_step() {}
        assert_eq!(bridge.driver.reply().ended(), Some(EndReason::Superseded));
        bridge.check_decisions();
        let sent = bridge.asked[asked..].iter().flat_map(|ask| match ask {
            Ask::Responses(responses) => responses.as_slice(),
            Ask::History => &[],
        });
        let sent: Vec<_> = sent
            .filter(|response| response.id == "confirm-fc-1")
            .map(|response| response.response.to_value()["confirmed"].clone())
            .collect();
        assert_eq!(sent, [json!(approved)], "{dialect:?} {other}");
        let expected = match approved {
            true => Settlement::Output,
            false => Settlement::Denied,
        };
        let settled = bridge.driver.reply().calls().iter().next();
        let settled = settled.and_then(Call::settled);
        assert_eq!(settled, Some(expected), "{dialect:?} {other}");
    }
}

/// A page that is loaded while a remote model speaks during an open call can fold what comes.
#[test]
fn a_reload_while_a_model_speaks_during_an_open_call() {
    let plan = vec![(0, vec![4, 2])];
    let agent = agent(Runner::Remote, plan);
    let mut bridge = Bridge::new(
        Runner::Remote,
        Dialect::Native,
        Audience::Request,
        Sdk::V6,
        agent,
    );
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

/// A denial waits for another call of its agent, and the client, which cannot know, has sent it twice. Time settles that
/// call: the reply goes on in the turn that was held, whether the hold is over at that moment or later.
#[test]
fn a_held_turn_goes_on_when_time_settles_what_it_was_held_for() {
    let of = |tool: &str| TOOLS.iter().position(|name| *name == tool).unwrap();
    let settings = (Dialect::ALL.iter())
        .flat_map(|&dialect| [Sdk::V6, Sdk::V7].map(|sdk| (dialect, sdk)))
        .flat_map(|(dialect, sdk)| [1, 100].map(|before| (dialect, sdk, before)));
    for (dialect, sdk, before) in settings {
        let plan = vec![(0, vec![of("server_ask"), of(TICKET)])];
        let agent = agent(Runner::Remote, plan);
        let mut bridge = Bridge::new(Runner::Remote, dialect, Audience::Request, sdk, agent);
        bridge.begin();
        for act in [Act::Agent, Act::Agent, Act::RunFails] {
            perform(&mut bridge, &act);
        }
        let expires = bridge.driver.reply().deadline().unwrap();
        let before = Duration::from_millis(before);
        bridge.pass_time(expires.since(bridge.now) - before);
        let (nth, approved) = (0, false);
        for act in [Act::Respond { nth, approved }, Act::Post, Act::Post] {
            perform(&mut bridge, &act);
        }
        let held = bridge.driver.reply().hold_until().expect("nothing is new");
        let asked = bridge.asked.len();
        // Once at the end of the call, and once at the end of the hold; or once after both.
        if before == Duration::from_millis(100) {
            bridge.pass_time(before);
            assert_eq!(bridge.asked.len(), asked + 1, "the agent has its answer");
        }
        bridge.pass_time(held.since(bridge.now));
        assert_eq!(bridge.asked.len(), asked + 1, "the agent has its answer");
        assert!(bridge.client.streaming, "{dialect:?} {before:?}");
        assert_eq!(bridge.driver.reply().deadline(), None);
        while bridge.agent_step() {}
        assert_eq!(bridge.driver.reply().ended(), Some(EndReason::Finished));
        let last = bridge.streams.last().unwrap();
        assert!(last.message.is_some(), "it has read the end");
        assert!(!bridge.client.would_send(dialect), "{dialect:?}");
    }
}

/// A tool waits for an answer next to an approved tool of a page that answers in frames: time settles both.
#[test]
fn a_question_next_to_an_output_that_never_comes() {
    let of = |tool: &str| TOOLS.iter().position(|name| *name == tool).unwrap();
    for &dialect in Dialect::ALL {
        let plan = vec![(0, vec![of("client_ask"), of("idempotent")])];
        let agent = agent(Runner::Bridge, plan);
        let mut bridge = Bridge::new(Runner::Bridge, dialect, Audience::Frame, Sdk::V6, agent);
        bridge.begin();
        let (nth, approved) = (0, true);
        for act in [
            Act::Agent,
            Act::Agent,
            Act::ToolAsks { nth },
            Act::Respond { nth, approved },
            Act::Post,
        ] {
            perform(&mut bridge, &act);
            check(&bridge);
        }
        assert!(bridge.client.streaming, "the turn waits for the output");
        drain(&mut bridge);
        assert_eq!(bridge.driver.reply().ended(), Some(EndReason::Finished));
    }
}

/// The same with the shortest walks that ended a held turn in the middle of a run: a call of one of two agents expires, a
/// newer message comes, and the tool that asked ends.
#[test]
fn no_hold_outlasts_the_wait_for_the_client() {
    let of = |tool: &str| TOOLS.iter().position(|name| *name == tool).unwrap();
    let asks = || vec![of("server_ask"), of(TICKET)];
    let new = |runner, agent: Box<dyn FnMut(&_) -> Vec<String>>| {
        Bridge::new(runner, Dialect::Adk, Audience::Request, Sdk::V6, agent)
    };
    let (nth, approved, fails) = (0, false, false);
    let deny = || Act::Respond { nth, approved };
    let run = |times| vec![Act::Agent; times];

    let members = vec![
        (Wire::Python, vec![(0, asks())]),
        (Wire::Python, vec![(0, vec![])]),
    ];
    let mut acts = run(3);
    acts.extend([Act::RunFails, deny(), Act::AutoSend, Act::AutoSend]);
    acts.push(Act::Wait { seconds: 120 });
    walk(new(Runner::Remote, Box::new(team(members, vec![1]))), &acts);

    let plan = vec![(1, asks())];
    let mut acts = run(3);
    acts.extend([Act::RunFails, deny(), Act::AutoSend, Act::AutoSend]);
    acts.push(Act::WriteOn { answers: vec![] });
    acts.push(Act::Wait { seconds: 1 });
    walk(
        new(Runner::Remote, Box::new(agent(Runner::Remote, plan))),
        &acts,
    );

    let server = of("server");
    let plan = vec![
        (0, vec![]),
        (0, vec![of("idempotent"), server]),
        (1, vec![server]),
    ];
    let mut acts = vec![Act::Crash];
    acts.extend(run(3));
    acts.extend([Act::ToolAsks { nth }, Act::Post]);
    acts.extend(vec![Act::ToolEnds { nth, fails }; 2]);
    acts.extend(run(2));
    acts.push(Act::Wait { seconds: 1 });
    walk(
        new(Runner::Bridge, Box::new(agent(Runner::Bridge, plan))),
        &acts,
    );
}

/// A client has a call of a run that a crash undid, and posts while the model has just made another one: that one is in the
/// last step when it waits, where stock predicates look for its output.
#[test]
fn a_lost_call_does_not_hide_the_one_that_waits() {
    let of = |tool: &str| TOOLS.iter().position(|name| *name == tool).unwrap();
    let (nth, fails) = (0, false);
    let plan = vec![(2, vec![of("client")]), (1, vec![of("client")])];
    let agent = agent(Runner::Bridge, plan);
    let mode = Audience::Request;
    let mut bridge = Bridge::new(Runner::Bridge, Dialect::Native, mode, Sdk::V6, agent);
    bridge.begin();
    let run = [Act::Agent, Act::Agent, Act::Agent, Act::Crash];
    let again = [Act::Agent, Act::Agent];
    let posts = [Act::ClientTool { nth, fails }, Act::AutoSend, Act::Agent];
    for act in run.into_iter().chain(again).chain(posts) {
        perform(&mut bridge, &act);
        check(&bridge);
    }
    assert!(!bridge.client.streaming, "its turn is over");
    perform(&mut bridge, &Act::ClientTool { nth, fails });
    assert!(bridge.client.would_send(Dialect::Native));
    drain(&mut bridge);
    assert_eq!(bridge.settled("client"), [Some(Settlement::Output)]);
}

/// A restart ends the tools that ask: their questions are closed, even if their time is over too, and nobody is answered.
#[test]
fn a_question_whose_time_is_over_at_a_restart() {
    let of = |tool: &str| TOOLS.iter().position(|name| *name == tool).unwrap();
    for tool in ["server", "idempotent"] {
        let plan = vec![(0, vec![of(tool)])];
        let agent = agent(Runner::Bridge, plan);
        let mode = Audience::Request;
        let mut bridge = Bridge::new(Runner::Bridge, Dialect::Native, mode, Sdk::V6, agent);
        bridge.begin();
        for act in [
            Act::Agent,
            Act::Agent,
            Act::ToolAsks { nth: 0 },
            Act::CrashDuring { effects: 0 },
            Act::Wait { seconds: 300 },
        ] {
            perform(&mut bridge, &act);
        }
        let settled = bridge.settled(REQUEST_INPUT);
        assert_eq!(settled, [Some(Settlement::Superseded)], "{tool}");
        drain(&mut bridge);
    }
}

/// A crash cuts off a newer message after the open questions were closed for it: the reply goes on, and the remote agent may
/// ask again.
#[test]
fn a_crash_while_a_newer_message_ends_the_reply() {
    let of = |tool: &str| TOOLS.iter().position(|name| *name == tool).unwrap();
    for (&dialect, effects) in (Dialect::ALL.iter()).flat_map(|it| [it; 6].into_iter().zip(0..)) {
        let first = vec![of("server_ask"), of("client"), of("server_ask")];
        let plan = vec![(0, first), (0, vec![of("server_ask")])];
        let agent = agent(Runner::Remote, plan);
        let mut bridge = Bridge::new(Runner::Remote, dialect, Audience::Request, Sdk::V6, agent);
        bridge.begin();
        let answers = vec![];
        let asks = [Act::Agent, Act::Agent, Act::Agent, Act::Agent];
        let crashes = [
            Act::Crash,
            Act::CrashDuring { effects },
            Act::WriteOn { answers },
        ];
        for act in asks.into_iter().chain(crashes) {
            perform(&mut bridge, &act);
            check(&bridge);
        }
        drain(&mut bridge);
    }
}

/// A tool returns a ticket, the reply ends, and the result comes: the next reply begins with it, shows it, and tells the
/// agent once. The ended reply refuses it, as it refuses every output.
#[test]
fn a_result_that_comes_later_begins_a_reply() {
    let ticket = TOOLS.iter().position(|name| *name == TICKET).unwrap();
    for &dialect in Dialect::ALL {
        for (fails, shown) in [(false, "output-available"), (true, "output-error")] {
            let agent = agent(Runner::Remote, vec![(1, vec![ticket]), (2, Vec::new())]);
            let mut bridge =
                Bridge::new(Runner::Remote, dialect, Audience::Request, Sdk::V6, agent);
            bridge.begin();
            drain(&mut bridge);
            assert_eq!(bridge.settled(TICKET), [Some(Settlement::Interim)]);
            let id = bridge
                .driver
                .reply()
                .calls()
                .iter()
                .next()
                .unwrap()
                .id
                .clone();
            let refused = bridge.audited(AuditKind::AnswerRefused);
            let output = json!("in the wrong place").into();
            let call_id = &id;
            bridge.answer(&[Answer::Output {
                call_id,
                output: &output,
            }]);
            assert_eq!(bridge.audited(AuditKind::AnswerRefused), refused + 1);
            let finished = bridge.audited(AuditKind::ToolFinished);

            assert!(bridge.finish_later(0, fails));
            drain(&mut bridge);
            let reply = bridge.driver.reply();
            assert_eq!(reply.ended(), Some(EndReason::Finished));
            let message = serde_json::to_value(reply.message()).unwrap();
            let part = &message["parts"][1];
            assert_eq!(part["type"], "tool-ticket", "{message}");
            assert_eq!(part["state"], shown, "{message}");
            assert_eq!(part["callProviderMetadata"]["adk"]["resultOf"], id.as_str());
            assert!(message["parts"].to_string().contains("word 1"), "{message}");
            let more = usize::from(!fails);
            assert_eq!(bridge.audited(AuditKind::ToolFinished), finished + more);
            // It is final: nothing more can come of it.
            assert!(!bridge.finish_later(0, false));
            assert_eq!(bridge.asked.len(), 2);
        }
    }
}
