//! What is known of the agents.

use serde_json::{Value, json};

use crate::openapi::operation::{Content, Group, Operation};
use crate::openapi::refusals::{AGENT, UNAVAILABLE, only};
use crate::transport::agents::ShownAgent;

fn example() -> Value {
    json!({
        "id": "demo", "name": "demo", "kind": "demo", "model": "scripted", "liveModel": null, "modalities": ["text"],
        "tools": [{
            "name": "process_payment", "description": "Pays somebody.", "inputSchema": {"type": "object"},
            "runsOn": "server", "needsApproval": true,
        }],
        "limitations": [], "server": null, "default": true, "status": "ready", "approvalTimeoutMs": 300_000,
        "instance": "instance_1",
    })
}

pub fn list() -> Operation {
    let agents = Content::json::<Vec<ShownAgent>>(json!([example()]));
    Operation::new(
        "listAgents",
        Group::Agents,
        "List the agents, the default first",
    )
    .meaning("Agents")
    .answers(200, "All agents that are there.", vec![agents])
}

pub fn default() -> Operation {
    Operation::new(
        "getDefaultAgent",
        Group::Agents,
        "Read what the default agent is",
    )
    .meaning("Agents")
    .answers(
        200,
        "The agent.",
        vec![Content::json::<ShownAgent>(example())],
    )
    .refuses(&[AGENT, UNAVAILABLE])
}

pub fn one() -> Operation {
    Operation::new("getAgent", Group::Agents, "Read what an agent is")
        .meaning("Agents")
        .answers(
            200,
            "The agent.",
            vec![Content::json::<ShownAgent>(example())],
        )
        .refuses(&[
            AGENT,
            &only(422, "bad_id", "the id is too long"),
            UNAVAILABLE,
        ])
}
