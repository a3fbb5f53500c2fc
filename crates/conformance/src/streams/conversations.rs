//! Whole conversations: a run that asks, the client's answer as the AI SDK writes it, and the run that follows.
//!
//! What the bridge sends to the agent is compared with what was sent in the recording.

use adk_bridge_protocol::calls::Call;
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::event::REQUEST_CONFIRMATION;
use adk_bridge_protocol::id::ApprovalId;
use adk_bridge_protocol::message::{Message, Part, ToolPart, ToolState};
use adk_bridge_protocol::outbox::Response;
use adk_bridge_protocol::reply::{Audience, CloseReason, Input, Reply, answers_of};
use adk_bridge_testkit::fixtures;
use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::case::{Case, resumes, shown};
use super::player::{EVERY_READER, Names, Player};

pub(crate) fn write(cases: &mut Vec<Case>) -> Result<()> {
    let text = std::fs::read_to_string(fixtures::recordings().join("conversations.json"))?;
    let data: Value = serde_json::from_str(&text)?;
    for &dialect in Dialect::ALL {
        for conversation in list(&data, "answered") {
            answered(conversation, dialect, cases)?;
        }
        for conversation in list(&data, "superseded") {
            superseded(conversation, dialect, cases)?;
        }
    }
    Ok(())
}

fn answered(conversation: &Value, dialect: Dialect, cases: &mut Vec<Case>) -> Result<()> {
    let title = text(conversation, "name")?;
    let mut player = Player::new(Names::Own { made: 0 });
    let mut client = None;
    for (number, turn) in list(conversation, "turns").iter().enumerate() {
        let name = format!("{title}, turn {}", number + 1);
        let runs = list(turn, "runs");
        let responses: Vec<Response> = runs
            .iter()
            .flat_map(|run| list(run, "asked"))
            .map(response)
            .collect::<Result<_>>()?;
        let prior = client.take().map(|message| {
            let answer = answer(message, &responses, player.driver.reply())?;
            let waiting = format!("{name}, answered");
            cases.extend(resumes(&waiting, dialect, &answer, true));
            anyhow::Ok(answer)
        });
        let prior = prior.transpose()?;
        open(&mut player, &name, dialect, prior.as_ref());
        for run in runs {
            let recording = text(run, "recording")?;
            let expected: Vec<Vec<Response>> = match run.get("asked") {
                Some(_) => vec![
                    list(run, "asked")
                        .iter()
                        .map(response)
                        .collect::<Result<_>>()?,
                ],
                None => Vec::new(),
            };
            let asked = player.take_asked();
            if asked != expected {
                bail!("{name}: asked {asked:?}, recorded {expected:?}");
            }
            player.run(&name, recording, None)?;
        }
        player.end(cases);
        let message = shown(player.driver.reply(), dialect);
        cases.extend(resumes(&name, dialect, &message, false));
        if let Some(prior) = prior {
            // The same request again, from a client that missed the turn.
            open(
                &mut player,
                &format!("{name}, asked again"),
                dialect,
                Some(&prior),
            );
            player.end(cases);
        }
        client = Some(message);
    }
    Ok(())
}

/// The user sends another message while the agent waits: nothing in the old message is answered any more.
fn superseded(conversation: &Value, dialect: Dialect, cases: &mut Vec<Case>) -> Result<()> {
    let name = text(conversation, "name")?;
    let mut player = Player::new(Names::Own { made: 0 });
    open(&mut player, name, dialect, None);
    player.run(name, text(conversation, "recording")?, None)?;
    player.end(cases);
    let prior = shown(player.driver.reply(), dialect);
    player.feed(Input::Close(CloseReason::Superseded));
    let message = shown(player.driver.reply(), dialect);
    cases.extend(resumes(name, dialect, &message, false));
    // A client that does not know of it and asks for the rest: that turn ends well.
    let reader = (dialect, Sdk::V6);
    player.attach(&format!("{name}, caught up"), reader, Some(&prior));
    player.feed(Input::Answers(&answers_of(&prior), Some(Audience::Request)));
    let first = cases.len();
    player.end(cases);
    for case in &mut cases[first..] {
        case.ends = "finish";
    }
    Ok(())
}

/// Opens a turn for the client that asked for it; all other readers have nothing of the message.
fn open(player: &mut Player, name: &str, dialect: Dialect, prior: Option<&Message>) {
    for reader in EVERY_READER
        .into_iter()
        .filter(|reader| reader.0 == dialect)
    {
        player.attach(name, reader, prior);
        player.attach_stalling(name, reader, prior);
    }
    match prior {
        None => player.feed(Input::Begin(Audience::Request)),
        Some(message) => player.feed(Input::Answers(
            &answers_of(message),
            Some(Audience::Request),
        )),
    }
}

/// A client's message after `addToolApprovalResponse` and `addToolOutput`, with what the user filled in.
fn answer(mut message: Message, responses: &[Response], reply: &Reply) -> Result<Message> {
    for response in responses {
        let call = reply
            .calls()
            .iter()
            .find(|call| is_meant(call, &response.id));
        let call = call.with_context(|| format!("no call for {response:?}"))?;
        let approval = call.approval.as_ref().map(|approval| &approval.id);
        let is_decision = response.name == REQUEST_CONFIRMATION;
        let tools = message.parts.iter_mut().filter_map(|part| match part {
            Part::Tool(tool) => Some(tool),
            _ => None,
        });
        let part = tools.into_iter().find(|tool| match is_decision {
            true => asks(tool, approval),
            false => tool.call_id == call.id,
        });
        let part = part.with_context(|| format!("the client was not asked {response:?}"))?;
        if is_decision {
            part.state = ToolState::ApprovalResponded;
            if let Some(approval) = &mut part.approval {
                approval.approved = response
                    .response
                    .get("confirmed")
                    .and_then(|it| it.as_bool());
                if let Some(payload) = response.response.get("payload") {
                    approval.extra.insert("payload", &payload);
                }
            }
        } else {
            part.state = ToolState::OutputAvailable;
            part.output = Some(response.response.clone());
        }
    }
    Ok(message)
}

fn is_meant(call: &Call, remote_id: &str) -> bool {
    let asked = call
        .approval
        .as_ref()
        .and_then(|approval| approval.remote_id.as_deref());
    call.model_id.as_deref() == Some(remote_id) || asked == Some(remote_id)
}

fn asks(tool: &ToolPart, approval_id: Option<&ApprovalId>) -> bool {
    let id = tool
        .approval
        .as_ref()
        .and_then(|approval| approval.id.as_ref());
    tool.state == ToolState::ApprovalRequested && id == approval_id
}

fn response(value: &Value) -> Result<Response> {
    Ok(Response {
        id: text(value, "id")?.to_owned(),
        name: text(value, "name")?.to_owned(),
        response: value["response"].clone().into(),
    })
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, key: &str) -> Result<&'v str> {
    let text = value.get(key).and_then(Value::as_str);
    text.with_context(|| format!("`{key}` is missing in {value}"))
}
