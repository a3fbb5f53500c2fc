//! `fixtures/scenarios` over `/live`: the same conversations that the reply machine is held to, on the wire.

use std::collections::HashMap;

use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::message::fold::Fold;
use adk_bridge_testkit::scenarios::{self, Scenario};
use serde_json::{Value, json};

use crate::client::{Client, Said};
use crate::support::Bridge;

const CONFIRMATION: &str = "adk_request_confirmation";

#[tokio::test]
async fn every_scenario_that_needs_no_other_clock() {
    let bridge = Bridge::configured("[[agent.client_tools]]\nname = \"pick_color\"");
    let mut played = 0;
    for Scenario { name, case } in scenarios::all() {
        let text = case.to_string();
        // A tool that breaks is no tool of the demo's; a stop of nothing is no interruption; what has to happen while a
        // request is held would race with the end of the hold.
        let http = case["mode"] == "http";
        if ["\"wait ", "\"type\"", "broken_"]
            .iter()
            .any(|word| text.contains(word))
            || http && text.contains("\"stop\"")
            || text.contains("held ") && text.contains("side-output")
        {
            continue;
        }
        Player::open(&bridge, &name, &case).await.play(&case).await;
        played += 1;
    }
    assert!(played >= 25, "only {played} scenarios were played");
}

struct Player {
    name: String,
    /// Whether decisions go as `tool_result` frames.
    frames: bool,
    client: Client,
    message: Option<Message>,
    /// The same, while a turn is read.
    fold: Option<Fold>,
    /// What the ids of calls are called: the tool, and whether it is the question about it.
    calls: HashMap<String, (String, bool)>,
}

impl Player {
    async fn open(bridge: &Bridge, name: &str, scenario: &Value) -> Self {
        let dialect = scenario["dialect"].as_str().unwrap();
        let path = format!("/live?chat={name}&dialect={dialect}");
        Self {
            name: name.to_owned(),
            frames: scenario["mode"] == "frames",
            client: Client::open(bridge, &path).await,
            message: None,
            fold: None,
            calls: HashMap::new(),
        }
    }

    async fn play(mut self, scenario: &Value) {
        for (number, turn) in scenario["turns"].as_array().unwrap().iter().enumerate() {
            for act in turn["client"].as_array().unwrap() {
                self.perform(act.as_str().unwrap(), scenario).await;
            }
            if turn["sends"] == true && !self.frames {
                self.post().await;
            }
            let expected = turn["expect"].as_array().unwrap();
            let mut shapes = Vec::new();
            while shapes.len() < expected.len() {
                let next = expected[shapes.len()].as_str().unwrap();
                if next.starts_with("held") {
                    if next == "held" {
                        self.client.check_alive().await;
                    }
                    // A hold that times out is recognised by what comes next: its end, and nothing of the call.
                    shapes.push(next.to_owned());
                    continue;
                }
                match self.client.said().await {
                    Said::Chunk(chunk) => {
                        self.fold(&chunk);
                        shapes.extend(self.shape(&chunk));
                    }
                    Said::Done => shapes.push("[DONE]".to_owned()),
                    Said::Control(control) => {
                        let kind = control["type"].as_str().unwrap();
                        assert!(
                            kind.starts_with("turn-") || kind == "interrupted",
                            "{control}"
                        );
                    }
                }
            }
            assert_eq!(json!(shapes), turn["expect"], "{} turn {number}", self.name);
            if expected.last().is_some_and(|last| last == "[DONE]") {
                assert_eq!(self.client.control().await["type"], "turn-end");
            }
        }
        self.client.check_alive().await;
    }

    async fn perform(&mut self, act: &str, scenario: &Value) {
        let (verb, tool) = act.split_once(' ').unwrap_or((act, ""));
        match verb {
            "user" => self.client.say(&script(&scenario["agent"])).await,
            "approve" | "deny" if self.frames => {
                let mut calls = self.calls.iter();
                let (id, _) = calls.find(|(_, (name, _))| name == tool).unwrap();
                let status = match verb {
                    "approve" => "approved",
                    _ => "rejected",
                };
                let frame = json!({"type": "tool_result", "toolCallId": id, "status": status});
                self.client.send(frame).await;
            }
            "approve" | "deny" => {
                let approved = verb == "approve";
                self.change(tool, true, |part| {
                    part["state"] = json!("approval-responded");
                    part["approval"]["approved"] = json!(approved);
                });
            }
            "output" => self.change(tool, false, |part| {
                part["state"] = json!("output-available");
                part["output"] = json!({"from": "here"});
            }),
            "fail" => self.change(tool, false, |part| {
                part["state"] = json!("output-error");
                part["errorText"] = json!("no camera");
            }),
            "side-output" => {
                let mut calls = self.calls.iter();
                let (id, _) = calls
                    .find(|(_, call)| **call == (tool.to_owned(), false))
                    .unwrap();
                let frame =
                    json!({"type": "tool_result", "toolCallId": id, "result": {"from": "aside"}});
                self.client.send(frame).await;
            }
            "post" => self.post().await,
            "hold" => {}
            "stop" => self.client.send(json!({"type": "interrupt"})).await,
            other => panic!("unknown act {other}"),
        }
    }

    /// Changes the part of a call; an answer goes to the question about it where that is a call of its own.
    fn change(&mut self, tool: &str, answer: bool, change: impl FnOnce(&mut Value)) {
        self.settle();
        let mut message = json!(self.message);
        let asked = |part: &Value| {
            part["type"] == json!(format!("tool-{CONFIRMATION}"))
                && part["input"]["originalFunctionCall"]["name"] == tool
        };
        let parts = message["parts"].as_array_mut().unwrap();
        let question = parts.iter().rposition(asked).filter(|_| answer);
        let own = parts
            .iter()
            .rposition(|part| part["type"] == json!(format!("tool-{tool}")));
        change(&mut parts[question.or(own).unwrap()]);
        self.message = Some(serde_json::from_value(message).unwrap());
    }

    async fn post(&mut self) {
        self.settle();
        let frame = json!({"type": "message", "data": {"messages": [self.message]}});
        self.client.send(frame).await;
    }

    fn fold(&mut self, chunk: &Value) {
        let json = chunk.to_string();
        let chunk = Chunk::parse(&json).unwrap();
        let fold = self.fold.get_or_insert_with(|| match self.message.take() {
            Some(message) => Fold::onto(Sdk::V6, message),
            None => Fold::new(Sdk::V6, "none"),
        });
        fold.apply(&chunk)
            .unwrap_or_else(|error| panic!("{}: {error}: {json}", self.name));
    }

    /// The message, with all that has come.
    fn settle(&mut self) {
        if let Some(fold) = self.fold.take() {
            self.message = Some(fold.into_message());
        }
    }

    fn shape(&mut self, chunk: &Value) -> Option<String> {
        let call = |own: &str, question: &str| {
            let (tool, asks) = &self.calls[chunk["toolCallId"].as_str().unwrap()];
            Some(format!("{} {tool}", if *asks { question } else { own }))
        };
        match chunk["type"].as_str().unwrap() {
            "start" => Some("start".to_owned()),
            "start-step" => Some("step".to_owned()),
            "finish-step" => Some("end".to_owned()),
            "text-start" => Some("text".to_owned()),
            "tool-input-available" => {
                let name = chunk["toolName"].as_str().unwrap();
                let asks = name == CONFIRMATION;
                let about = chunk["input"]["originalFunctionCall"]["name"].as_str();
                let tool = about.filter(|_| asks).unwrap_or(name).to_owned();
                let shape = format!("{} {tool}", if asks { "confirm" } else { "call" });
                let id = chunk["toolCallId"].as_str().unwrap().to_owned();
                self.calls.insert(id, (tool, asks));
                Some(shape)
            }
            "tool-approval-request" => call("ask", "ask"),
            "tool-output-available" => call("output", "confirmed"),
            "tool-output-error" => call("error", "unconfirmed"),
            "tool-output-denied" => call("denied", "denied"),
            "finish" => Some(format!(
                "finish {}",
                chunk["finishReason"].as_str().unwrap()
            )),
            "error" => Some("error".to_owned()),
            "abort" => Some("abort".to_owned()),
            _ => None,
        }
    }
}

/// What to write so that the scripted model does it.
fn script(agent: &Value) -> String {
    let mut steps = Vec::new();
    for step in agent.as_array().unwrap() {
        if let Some(text) = step["text"].as_str() {
            steps.push(format!("say {}", text.trim()));
        }
        let calls = step["calls"].as_array().into_iter().flatten();
        let calls: Vec<String> = calls
            .map(|tool| {
                let tool = tool.as_str().unwrap();
                let input = match tool {
                    "process_payment" => json!({"amount": 5, "recipient": "Hanako"}),
                    "search_database" => json!({"query": "users"}),
                    "update_database" => json!({"query": "users", "set": {"status": "seen"}}),
                    "get_weather" => json!({"location": "Tokyo"}),
                    _ => json!({}),
                };
                format!("call {tool} {input}")
            })
            .collect();
        if !calls.is_empty() {
            steps.push(calls.join(" && "));
        }
    }
    steps.join(" then ")
}
