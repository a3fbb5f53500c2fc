//! Conversations as data: every case of `fixtures/scenarios` against the reply machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "it is a test"
)]
use std::time::Duration;

use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::event::REQUEST_CONFIRMATION;
use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::reply::{Answer, Audience, CloseReason, Runner};
use serde_json::{Value, json};

use adk_bridge_testkit::scenarios::{self, Scenario};
use adk_bridge_testkit::sim::{AgentQuestion, Bridge, chunks};

#[test]
fn every_scenario() {
    let scenarios = scenarios::all();
    let mut failures = Vec::new();
    for Scenario { name, case } in &scenarios {
        for sdk in [Sdk::V6, Sdk::V7] {
            if let Err(difference) = play(case, sdk) {
                failures.push(format!("{name} ({sdk:?}): {difference}"));
            }
        }
    }
    let played = scenarios.len();
    assert!(played >= 45, "only {played} scenarios were found");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

fn play(scenario: &Value, sdk: Sdk) -> Result<(), String> {
    let dialect: Dialect = scenario["dialect"].as_str().unwrap().parse().unwrap();
    let mode = match scenario["mode"].as_str().unwrap() {
        "live" => Audience::Connection,
        "frames" => Audience::Frame,
        _ => Audience::Request,
    };
    let plan = scenario["agent"].as_array().unwrap().clone();
    let mut bridge = Bridge::new(Runner::Bridge, dialect, mode, sdk, agent(plan));
    for (number, turn) in scenario["turns"].as_array().unwrap().iter().enumerate() {
        let mark = bridge.streams.last().map_or(0, |stream| stream.sse.len());
        let streams = bridge.streams.len();
        for act in turn["client"].as_array().unwrap() {
            perform(&mut bridge, act.as_str().unwrap());
        }
        if let Some(expected) = turn["sends"].as_bool() {
            let sends = !bridge.client.streaming && bridge.client.would_send(dialect);
            if sends != expected {
                return Err(format!("turn {number}: the client sends: {sends}"));
            }
            if sends {
                bridge.post();
                settle(&mut bridge);
            }
        }
        let fresh = if bridge.streams.len() > streams {
            0
        } else {
            mark
        };
        let mut got = bridge
            .streams
            .last()
            .map_or_else(Vec::new, |stream| shapes(&stream.sse[fresh..], &bridge));
        if bridge.client.streaming && bridge.driver.reply().turn().is_some() && !got.is_empty() {
            got.push(match bridge.driver.reply().hold_until() {
                Some(until) => format!("held {}", until.since(bridge.now).as_millis()),
                None => "held".to_owned(),
            });
        }
        let expected: Vec<&str> = turn["expect"]
            .as_array()
            .unwrap()
            .iter()
            .map(|shape| shape.as_str().unwrap())
            .collect();
        if got != expected {
            return Err(format!(
                "turn {number}\n expected {expected:?}\n      got {got:?}"
            ));
        }
    }
    if bridge.driver.reply().ended().is_none() {
        return Err("the reply has not ended".into());
    }
    if bridge.client.would_send(dialect) {
        return Err("the client would send again".into());
    }
    Ok(())
}

fn perform(bridge: &mut Bridge, act: &str) {
    let (verb, object) = act.split_once(' ').unwrap_or((act, ""));
    match verb {
        "user" => bridge.begin(),
        "approve" | "deny" => {
            let id = approval_of(bridge, object);
            let approved = verb == "approve";
            if approved {
                bridge.consents.insert(id.clone());
            }
            bridge.client.respond(&id, approved);
            return;
        }
        "output" | "fail" => {
            let call = call_of(bridge, object);
            bridge.client.put_output(&call, verb == "fail");
            return;
        }
        "side-output" => {
            let call = call_of(bridge, object);
            bridge.answer(&[Answer::Output {
                call_id: &call,
                output: &json!({"from": call}).into(),
            }]);
        }
        "hold" => {
            let until = bridge.driver.reply().hold_until().expect("a turn is held");
            bridge.pass_time(until.since(bridge.now));
        }
        "wait" => bridge.pass_time(Duration::from_secs(object.parse().unwrap())),
        "post" => bridge.post(),
        "type" => bridge.close(CloseReason::Superseded),
        "stop" => bridge.close(CloseReason::Stopped),
        other => panic!("unknown act {other}"),
    }
    settle(bridge);
}

/// Lets the agent speak and the tools run until only the client can go on.
fn settle(bridge: &mut Bridge) {
    while bridge.agent_step() || finish_tool(bridge) {}
}

fn finish_tool(bridge: &mut Bridge) -> bool {
    let fails = bridge.running.iter().next().is_some_and(|id| {
        bridge
            .driver
            .reply()
            .calls()
            .by_id(id)
            .is_some_and(|call| call.name.starts_with("broken"))
    });
    bridge.finish_tool(0, fails)
}

fn approval_of(bridge: &Bridge, tool: &str) -> ApprovalId {
    let calls = bridge.driver.reply().calls();
    let call = calls.iter().rfind(|call| call.name == tool).unwrap();
    call.approval.as_ref().unwrap().id.clone()
}

fn call_of(bridge: &Bridge, tool: &str) -> CallId {
    let calls = bridge.driver.reply().calls();
    calls
        .iter()
        .rfind(|call| call.name == tool)
        .unwrap()
        .id
        .clone()
}

fn agent(plan: Vec<Value>) -> impl FnMut(&AgentQuestion) -> Vec<String> {
    let mut plan = plan.into_iter();
    move |asked| {
        let step = plan
            .next()
            .expect("the agent is asked more often than planned");
        let mut script = Vec::new();
        let mut parts = Vec::new();
        if let Some(text) = step["text"].as_str() {
            let (begin, rest) = text.split_at(text.len() / 2);
            for piece in [begin, rest] {
                script.push(
                    json!({"content": {"role": "model", "parts": [{"text": piece}]}, "partial": true}).to_string(),
                );
            }
            parts.push(json!({"text": text}));
        }
        for name in step["calls"].as_array().into_iter().flatten() {
            parts.push(json!({"functionCall": {"name": name, "args": {}}}));
        }
        script.push(
            json!({
                "id": format!("event-{}", asked.step), "finishReason": "STOP",
                "content": {"role": "model", "parts": parts},
            })
            .to_string(),
        );
        script
    }
}

fn shapes(sse: &[u8], bridge: &Bridge) -> Vec<String> {
    let mut shapes: Vec<String> = chunks(sse)
        .filter_map(|chunk| shape(&chunk, bridge))
        .collect();
    if sse.ends_with(b"data: [DONE]\n\n") {
        shapes.push("[DONE]".into());
    }
    shapes
}

fn shape(chunk: &Chunk<'_>, bridge: &Bridge) -> Option<String> {
    let call = |verb: &str, confirm: &str, id: &str| {
        let calls = bridge.driver.reply().calls();
        Some(match calls.by_id(&id.into()) {
            Some(call) => format!("{verb} {}", call.name),
            None => {
                let asked = calls.iter().find(|call| {
                    call.approval
                        .as_ref()
                        .is_some_and(|approval| approval.id == id)
                });
                format!("{confirm} {}", asked.map_or("?", |call| call.name.as_str()))
            }
        })
    };
    match chunk {
        Chunk::Start { .. } => Some("start".into()),
        Chunk::StartStep => Some("step".into()),
        Chunk::FinishStep => Some("end".into()),
        Chunk::TextStart { .. } => Some("text".into()),
        Chunk::ToolInputAvailable {
            tool_call_id,
            tool_name,
            ..
        } => {
            let shape = call("call", "confirm", tool_call_id);
            let is_confirmation = tool_name == REQUEST_CONFIRMATION;
            assert_eq!(
                shape
                    .as_ref()
                    .is_some_and(|shape| shape.starts_with("confirm")),
                is_confirmation
            );
            shape
        }
        Chunk::ToolApprovalRequest { tool_call_id, .. } => call("ask", "ask", tool_call_id),
        Chunk::ToolOutputAvailable { tool_call_id, .. } => {
            call("output", "confirmed", tool_call_id)
        }
        Chunk::ToolOutputError { tool_call_id, .. } => call("error", "unconfirmed", tool_call_id),
        Chunk::ToolOutputDenied { tool_call_id } => call("denied", "denied", tool_call_id),
        Chunk::Finish { finish_reason, .. } => {
            let reason = serde_json::to_value(finish_reason).unwrap();
            Some(format!("finish {}", reason.as_str().unwrap_or_default()))
        }
        Chunk::Error { .. } => Some("error".into()),
        Chunk::Abort { .. } => Some("abort".into()),
        _ => None,
    }
}
