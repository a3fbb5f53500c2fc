//! Walks: random sequences of what can happen to a reply, performed in the simulation.

use std::collections::VecDeque;
use std::time::Duration;

use adk_bridge_protocol::approval::ApprovalState;
use adk_bridge_protocol::calls::{Call, CallState, RunsOn, Settlement};
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::event::REQUEST_CONFIRMATION;
use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::outbox::{AuditKind, Response};
use adk_bridge_protocol::reply::{Answer, CloseReason, EndReason, Runner};
use serde_json::{Value, json};

use super::{AgentQuestion, Bridge, MINUTE, TICKET, TOOLS};

/// One event of a walk. Numbers choose among what is possible at that moment.
#[derive(Debug, Clone)]
pub enum Act {
    Agent,
    RunFails,
    ToolEnds {
        nth: usize,
        fails: bool,
    },
    ToolAsks {
        nth: usize,
    },
    /// A tool does not wait for the answer to its question any more.
    Withdraw {
        nth: usize,
    },
    Progress {
        nth: usize,
    },
    Respond {
        nth: usize,
        approved: bool,
    },
    ClientTool {
        nth: usize,
        fails: bool,
    },
    AutoSend,
    /// Posts without a reason, as a second tab or an impatient user does.
    Post,
    Forge {
        nth: usize,
    },
    Contradict {
        nth: usize,
    },
    ForgeOutput {
        nth: usize,
    },
    SideOutput {
        nth: usize,
    },
    Wait {
        seconds: u64,
    },
    Crash,
    /// Crashes in the middle of the next event, after this many effects.
    CrashDuring {
        effects: usize,
    },
    Reload,
    Stop,
    Supersede,
    /// The user sends another message, with answers in the copy that were not sent before.
    WriteOn {
        answers: Vec<(usize, bool)>,
    },
}

pub fn perform(bridge: &mut Bridge, act: &Act) {
    match *act {
        Act::Agent => {
            bridge.agent_step();
        }
        Act::RunFails => {
            bridge.fail_run();
        }
        Act::ToolEnds { nth, fails } => {
            bridge.finish_tool(nth, fails);
        }
        Act::ToolAsks { nth } => {
            bridge.tool_asks(nth);
        }
        Act::Withdraw { nth } => bridge.withdraw(nth),
        Act::Progress { nth } => bridge.tool_tells_progress(nth),
        Act::Respond { nth, approved } => respond(bridge, nth, approved),
        Act::ClientTool { nth, fails } => {
            if let Some(call) = pick(&bridge.client.tools_to_run(), nth) {
                bridge.client.put_output(&call, fails);
            }
        }
        Act::AutoSend => {
            auto_send(bridge);
        }
        Act::Post => {
            if !bridge.client.streaming {
                bridge.post();
            }
        }
        Act::Forge { nth } => {
            let refused = bridge.audited(AuditKind::AnswerRefused);
            bridge.answer(&[Answer::Decision {
                approval_id: format!("forged-{nth}").into(),
                approved: true,
                reason: None,
                payload: None,
                part: None,
            }]);
            assert!(bridge.crashed() || bridge.audited(AuditKind::AnswerRefused) == refused + 1);
        }
        Act::Contradict { nth } => contradict(bridge, nth),
        Act::ForgeOutput { nth } => forge_output(bridge, nth),
        Act::SideOutput { nth } => {
            if let Some(call) = pick(&bridge.client.tools_to_run(), nth) {
                bridge.answer(&[Answer::Output {
                    call_id: &call,
                    output: &json!({"from": call}).into(),
                }]);
            }
        }
        Act::Wait { seconds } => bridge.pass_time(Duration::from_secs(seconds)),
        Act::Crash => bridge.crash(),
        Act::CrashDuring { effects } => bridge.fuse = Some(effects),
        Act::Reload => bridge.reload(),
        Act::Stop => bridge.close(CloseReason::Stopped),
        Act::Supersede => bridge.close(CloseReason::Superseded),
        Act::WriteOn { ref answers } => write_on(bridge, answers),
    }
}

fn respond(bridge: &mut Bridge, nth: usize, approved: bool) {
    if let Some(id) = pick(&bridge.client.requests_open(), nth) {
        if approved {
            bridge.consents.insert(id.clone());
        }
        bridge.client.respond(&id, approved);
    }
}

/// Answers some questions and immediately sends another message: each of these answers counts, and what was approved
/// runs.
fn write_on(bridge: &mut Bridge, answers: &[(usize, bool)]) {
    for (nth, approved) in answers {
        respond(bridge, *nth, *approved);
    }
    let open = bridge.driver.reply().ended().is_none() && !bridge.superseding;
    let decided: Vec<(ApprovalId, bool)> = bridge
        .client
        .answered()
        .into_iter()
        .filter(|(id, _)| open && bridge.approval_state(id) == Some(&ApprovalState::Requested))
        .collect();
    bridge.write_on();
    if bridge.crashed() {
        return;
    }
    for (id, approved) in &decided {
        let call = bridge.driver.reply().calls().iter().find(|call| {
            let approval = call.approval.as_ref();
            approval.is_some_and(|approval| approval.id == *id)
        });
        let call = call.expect("a call that was asked about");
        let approval = call.approval.as_ref().expect("it was asked about");
        assert_eq!(approval.verdict(), Some(*approved), "{call:#?}");
        let superseded = call.settled() == Some(Settlement::Superseded);
        assert!(!superseded || call.runs_on == RunsOn::Client, "{call:#?}");
        if *approved && call.runs_on == RunsOn::Server {
            assert_eq!(call.state, CallState::Running, "{call:#?}");
        }
    }
    // Nothing waits any more, except for running tools, and for a remote agent that must be informed.
    let calls = || bridge.driver.reply().calls().iter();
    assert!(bridge.runner == Runner::Remote || bridge.driver.reply().ended().is_some());
    assert!(bridge.script.is_some() || !calls().any(Call::waits_for_client));
}

/// Contradicts a decision: nothing may change.
fn contradict(bridge: &mut Bridge, nth: usize) {
    let decided: Vec<(ApprovalId, bool)> = bridge
        .driver
        .reply()
        .calls()
        .iter()
        .filter_map(|call| {
            let approval = call.approval.as_ref()?;
            Some((approval.id.clone(), approval.verdict()?))
        })
        .collect();
    if let Some((id, verdict)) = pick(&decided, nth) {
        let before = bridge.driver.reply().record();
        let refused = bridge.audited(AuditKind::AnswerRefused);
        bridge.answer(&[Answer::Decision {
            approval_id: id.clone(),
            approved: !verdict,
            reason: None,
            payload: None,
            part: None,
        }]);
        assert!(bridge.crashed() || bridge.audited(AuditKind::AnswerRefused) == refused + 1);
        assert!(bridge.crashed() || bridge.driver.reply().record().calls == before.calls);
    }
}

/// Supplies an output for a call that the client may not answer, or that was answered before.
fn forge_output(bridge: &mut Bridge, nth: usize) {
    let foreign: Vec<CallId> = bridge
        .driver
        .reply()
        .calls()
        .iter()
        // A ticket that was not returned is a client tool like others.
        .filter(|call| call.runs_on != RunsOn::Client || !call.is_open())
        .map(|call| call.id.clone())
        .collect();
    if let Some(id) = pick(&foreign, nth) {
        let before = bridge.driver.reply().record();
        bridge.answer(&[Answer::Output {
            call_id: &id,
            output: &json!("forged").into(),
        }]);
        assert!(bridge.crashed() || bridge.driver.reply().record().calls == before.calls);
        assert!(bridge.crashed() || bridge.driver.reply().record().message == before.message);
    }
}

fn auto_send(bridge: &mut Bridge) -> bool {
    let sends = !bridge.client.streaming
        && !bridge.client.failed
        && bridge.client.would_send(bridge.dialect);
    if sends {
        bridge.post();
    }
    sends
}

pub fn check(bridge: &Bridge) {
    if bridge.client.streaming || bridge.client.failed {
        return;
    }
    // A client that was cut off, or that lags behind the bridge, may ask again; `drain` excludes loops.
    let up_to_date = bridge
        .streams
        .last()
        .and_then(|stream| stream.stored.as_ref())
        == Some(bridge.driver.reply().message());
    if up_to_date && !may_repeat(bridge) && bridge.client.would_send(bridge.dialect) {
        assert!(
            bridge.client_has_news(),
            "the client would send without anything to say:\n{:#?}",
            serde_json::to_value(&bridge.client.message)
        );
    }
}

/// The predicate of `held` takes every output of a client tool for a new one; what it sends without news is held. It
/// cannot see the end of a reply whose call still runs, but only looks at the last message. Nor can it see, after a reload,
/// that a question was answered before. No predicate knows that a ticket is waited for.
fn may_repeat(bridge: &Bridge) -> bool {
    let reply = bridge.driver.reply();
    let mut calls = reply.calls().iter();
    if calls.any(|call| call.name == TICKET && call.is_open()) {
        return true;
    }
    let is_last = reply.ended() != Some(EndReason::Superseded);
    let is_decided = |(id, _): &(ApprovalId, bool)| {
        let mut asked = reply
            .calls()
            .iter()
            .filter_map(|call| call.approval.as_ref());
        asked.any(|approval| approval.id == *id && approval.verdict().is_some())
    };
    let again = bridge.client.unsent_answers().iter().any(is_decided);
    bridge.dialect == Dialect::Held && (bridge.client.has_output() || !is_last || again)
}

/// Lets every part of the simulation act: the reply must end within a bounded number of requests.
pub fn drain(bridge: &mut Bridge) {
    let before = bridge.client.requests;
    for round in 0..600 {
        if bridge.driver.reply().ended().is_some()
            && bridge.running.is_empty()
            && !bridge.client.streaming
        {
            break;
        }
        while bridge.agent_step() || bridge.finish_unasking_tool() {}
        if let Some(until) = bridge.driver.reply().hold_until() {
            bridge.pass_time(until.since(bridge.now));
            continue;
        }
        if !bridge.client.streaming && bridge.client.failed {
            bridge.reload();
        }
        respond(bridge, 0, round % 2 == 0);
        if let Some(call) = pick(&bridge.client.tools_to_run(), 0) {
            bridge.client.put_output(&call, false);
        }
        let sends = auto_send(bridge);
        if sends && may_repeat(bridge) {
            // As if what it sends had been held: not every audience of the simulation is.
            bridge.pass_time(MINUTE);
        }
        if !sends && !bridge.client.streaming && bridge.client.requests_open().is_empty() {
            // This client cannot do anything, since it lost its place. Time settles what is open.
            bridge.pass_time(MINUTE);
            bridge.reload();
        } else if bridge.client.streaming
            && bridge.script.is_none()
            && bridge.unasking_tool().is_none()
        {
            // Only a frame of the client, or time, goes on from here.
            bridge.pass_time(MINUTE);
        }
    }
    assert!(
        bridge.driver.reply().ended().is_some(),
        "stuck:\n{:#?}\n{:#?}",
        bridge.driver.reply().calls(),
        serde_json::to_value(&bridge.client.message)
    );
    bridge.check_decisions();
    let requests = bridge.client.requests - before;
    assert!(requests < 200, "{requests} requests to come to an end");
    // The reply has ended: no predicate sends it again once the client is up to date.
    if !bridge.client.failed {
        for _ in 0..3 {
            auto_send(bridge);
        }
        assert!(
            !bridge.client.would_send(bridge.dialect),
            "it sends without end"
        );
        bridge.reload();
        assert!(
            !bridge.client.would_send(bridge.dialect),
            "{:#?}",
            serde_json::to_value(&bridge.client.message)
        );
        bridge.check_agreement();
    }
}

fn pick<T: Clone>(from: &[T], nth: usize) -> Option<T> {
    from.get(nth % from.len().max(1)).cloned()
}

/// What an agent does each time it is asked: how much it says, and which tools it calls.
pub type Plan = Vec<(u8, Vec<usize>)>;

/// An agent that follows its plan and then says goodbye. A remote agent runs its own tools and asks for confirmation.
pub fn agent(runner: Runner, plan: Plan) -> impl FnMut(&AgentQuestion) -> Vec<String> {
    let mut plan = plan.into_iter();
    let mut made = 0;
    let mut confirming: Vec<(String, String, String)> = Vec::new();
    move |asked| {
        let mut script = Vec::new();
        for response in &asked.responses {
            if let Some(position) = confirming.iter().position(|(id, ..)| *id == response.id) {
                let (_, call, name) = confirming.remove(position);
                let result = if response.response.get("confirmed") == Some(true.into()) {
                    json!({"done": call})
                } else {
                    json!({"error": "This tool call is rejected."})
                };
                script.push(responded(&call, &name, result, None));
            }
        }
        if !confirming.is_empty() {
            script.push(said("I should have waited.", true));
            return script;
        }
        let (words, tools) = plan.next().unwrap_or((1, Vec::new()));
        let mut whole = String::new();
        for word in 0..words {
            let text = format!("word {word} ");
            whole.push_str(&text);
            script.push(said(&text, true));
        }
        let mut parts = Vec::new();
        let mut long_running = Vec::new();
        let mut remote = Vec::new();
        if !whole.is_empty() {
            parts.push(json!({"text": whole}));
        }
        for tool in tools {
            made += 1;
            let (id, name) = (format!("fc-{made}"), TOOLS[tool]);
            parts.push(json!({"functionCall": {"id": id, "name": name, "args": {"n": made}}}));
            if name.starts_with("client") {
                long_running.push(id);
            } else {
                if name == TICKET {
                    long_running.push(id.clone());
                }
                remote.push((id, name, made));
            }
        }
        script.push(
            json!({
                "content": {"role": "model", "parts": parts}, "partial": false, "finishReason": "STOP",
                "longRunningToolIds": long_running, "id": format!("e-{made}-{}", asked.step), "author": "agent",
            })
            .to_string(),
        );
        if runner == Runner::Remote {
            for (id, name, n) in remote {
                if name.ends_with("_ask") {
                    let confirmation = format!("confirm-{id}");
                    script.push(confirmation_request(&confirmation, &id, name, n));
                    script.push(responded(
                        &id,
                        name,
                        json!({"error": "This tool call requires confirmation, please approve or reject."}),
                        Some(&id),
                    ));
                    confirming.push((confirmation, id, name.to_owned()));
                } else {
                    script.push(responded(&id, name, json!({"done": id}), None));
                }
            }
        }
        script
    }
}

/// How servers differ when a tool needs to be confirmed.
#[derive(Debug, Clone, Copy)]
pub enum Wire {
    /// The result of the tool is a placeholder that the actions name.
    Python,
    /// The same through A2A: the actions name nothing.
    A2a,
    /// Nothing of the step has a result, not even the tools that run without asking.
    TypeScript,
}

/// Several agents of one app that work at once: each follows its own plan and asks its own questions. As on an ADK server
/// only the agent that the first answer is for goes on, so a run must not have answers for two of them.
pub fn team(
    plans: Vec<(Wire, Plan)>,
    order: Vec<usize>,
) -> impl FnMut(&AgentQuestion) -> Vec<String> {
    let mut members: Vec<_> = plans
        .into_iter()
        .enumerate()
        .map(|(number, (wire, plan))| {
            (
                format!("member-{number}"),
                wire,
                agent(Runner::Remote, plan),
            )
        })
        .collect();
    move |asked| {
        let owner =
            |response: &Response| response.id.split('/').next().unwrap_or_default().to_owned();
        let mut owners: Vec<String> = asked.responses.iter().map(owner).collect();
        owners.dedup();
        assert!(owners.len() <= 1, "one run has the answers for {owners:?}");
        let mut scripts: Vec<VecDeque<String>> = Vec::new();
        for (name, wire, member) in &mut members {
            if owners.first().is_some_and(|owner| owner != name) {
                continue;
            }
            let mine = asked.responses.iter().map(|response| Response {
                id: response.id.replacen(&format!("{name}/"), "", 1),
                ..response.clone()
            });
            let script = member(&AgentQuestion {
                step: asked.step,
                responses: mine.collect(),
            });
            let asks = script
                .iter()
                .any(|line| line.contains(REQUEST_CONFIRMATION));
            let script = script
                .iter()
                .filter_map(|line| spoken_by(name, *wire, asks, line));
            scripts.push(script.collect());
        }
        let mut merged = Vec::new();
        for turn in 0.. {
            scripts.retain(|script| !script.is_empty());
            if scripts.is_empty() {
                break;
            }
            let at = order
                .get(turn % order.len().max(1))
                .copied()
                .unwrap_or(turn)
                % scripts.len();
            merged.extend(scripts[at].pop_front());
        }
        merged
    }
}

/// An event of one member of a team; nothing if its server would not send it.
fn spoken_by(name: &str, wire: Wire, asks: bool, line: &str) -> Option<String> {
    let mut event: Value = serde_json::from_str(line).ok()?;
    let response = &event["content"]["parts"][0]["functionResponse"];
    let is_response = response.is_object();
    // Without its response a ticket is a tool that nobody here runs: only time would settle it.
    let is_ticket = response["name"] == TICKET;
    match wire {
        Wire::TypeScript if asks && is_response && !is_ticket => return None,
        Wire::A2a if is_response => event["actions"] = json!({"requestedToolConfirmations": {}}),
        _ => {}
    }
    event["author"] = json!(name);
    event["branch"] = json!(format!("team.{name}"));
    // Ids are those of the whole app.
    let mine = |id: &mut Value| {
        if let Some(text) = id.as_str() {
            *id = json!(format!("{name}/{text}"));
        }
    };
    for part in event["content"]["parts"].as_array_mut()? {
        for kind in ["functionCall", "functionResponse"] {
            if let Some(call) = part.get_mut(kind) {
                mine(&mut call["id"]);
                if let Some(original) = call.pointer_mut("/args/originalFunctionCall/id") {
                    mine(original);
                }
            }
        }
    }
    for id in event["longRunningToolIds"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        mine(id);
    }
    if let Some(asked) = event
        .pointer_mut("/actions/requestedToolConfirmations")
        .and_then(Value::as_object_mut)
    {
        *asked = std::mem::take(asked)
            .into_iter()
            .map(|(id, value)| (format!("{name}/{id}"), value))
            .collect();
    }
    if event["id"].is_string() {
        mine(&mut event["id"]);
    }
    Some(event.to_string())
}

fn said(text: &str, partial: bool) -> String {
    json!({"content": {"role": "model", "parts": [{"text": text}]}, "partial": partial, "author": "agent"}).to_string()
}

fn responded(id: &str, name: &str, response: Value, placeholder: Option<&str>) -> String {
    let mut event = json!({
        "content": {"role": "user", "parts": [{"functionResponse": {"id": id, "name": name, "response": response}}]},
        "author": "agent",
    });
    if let Some(id) = placeholder {
        event["actions"] = json!({"requestedToolConfirmations": {id: {"confirmed": false}}});
    }
    event.to_string()
}

fn confirmation_request(id: &str, call: &str, name: &str, n: usize) -> String {
    json!({
        "content": {"role": "model", "parts": [{"functionCall": {
            "id": id, "name": REQUEST_CONFIRMATION,
            "args": {"originalFunctionCall": {"id": call, "name": name, "args": {"n": n}}, "toolConfirmation": {"hint": "", "confirmed": false}},
        }}]},
        "longRunningToolIds": [id], "author": "agent",
    })
    .to_string()
}
