//! Message lists with the results that we expect of the two stock predicates, to be checked against the real ones.
//!
//! Each line is `{messages, toolCalls, approvalResponses}`.

use std::path::Path;

use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::parse_messages;
use adk_bridge_testkit::Random;
use adk_bridge_testkit::sim::predicates::{
    complete_with_approval_responses, complete_with_tool_calls,
};
use anyhow::bail;
use serde_json::{Value, json};

const CASES: usize = 4_000;

pub(crate) fn write(file: &Path) -> anyhow::Result<()> {
    let mut random = Random::new(1);
    let mut lines = String::new();
    let mut counts = [[0_u32; 2]; 2];
    for _ in 0..CASES {
        let messages = messages(&mut random);
        let parsed = parse_messages(Json::from(messages.clone()).raw())?;
        let tool_calls = complete_with_tool_calls(&parsed);
        let approval_responses = complete_with_approval_responses(&parsed);
        counts[usize::from(tool_calls)][usize::from(approval_responses)] += 1;
        let case = json!({
            "messages": messages, "toolCalls": tool_calls, "approvalResponses": approval_responses,
        });
        lines += &format!("{case}\n");
    }
    let [[neither, approvals], [calls, both]] = counts;
    println!(
        "{CASES} cases: neither {neither}, tool calls {calls}, approvals {approvals}, both {both}"
    );
    // Both at once needs a provider's call that waits only for an approval: rare, but possible.
    if counts.iter().flatten().any(|count| *count < 20) {
        bail!("every combination must occur often; change the generator");
    }
    std::fs::write(file, lines)?;
    Ok(())
}

fn messages(random: &mut Random) -> Value {
    let mut messages = Vec::new();
    for index in 0..random.below(3) {
        let role = random.pick(&["user", "assistant"]);
        messages.push(message(random, &format!("m{index}"), role));
    }
    if !random.one_in(20) {
        let role = if random.one_in(12) {
            random.pick(&["user", "system"])
        } else {
            "assistant"
        };
        messages.push(message(random, "last", role));
    }
    Value::Array(messages)
}

fn message(random: &mut Random, id: &str, role: &str) -> Value {
    let mut parts = Vec::new();
    for _ in 0..random.below(3) {
        if !random.one_in(4) {
            parts.push(json!({"type": "step-start"}));
        }
        // Steps without anything open must be frequent, or nothing is ever sent.
        let settled = random.below(3) > 0;
        for _ in 0..random.below(5) {
            let part = part(random, parts.len(), settled);
            parts.push(part);
        }
    }
    json!({"id": id, "role": role, "parts": parts})
}

fn part(random: &mut Random, index: usize, settled: bool) -> Value {
    match random.below(10) {
        0 | 1 => match random.below(4) {
            0 => json!({"type": "text", "text": "a"}),
            1 => json!({"type": "text", "text": "a", "state": "streaming"}),
            _ => json!({"type": "text", "text": "a", "state": "done"}),
        },
        2 => json!({"type": "reasoning", "text": "a", "state": random.pick(&["streaming", "done"])}),
        3 => random
            .pick(&[
                json!({"type": "file", "mediaType": "image/png", "url": "https://a/b"}),
                json!({"type": "source-url", "sourceId": "s", "url": "https://a"}),
                json!({"type": "source-document", "sourceId": "s", "mediaType": "text/plain", "title": "t"}),
                json!({"type": "data-note", "data": {"type": "tool-x"}}),
                json!({"type": "hologram", "state": "output-available"}),
            ]),
        _ => tool(random, index, settled),
    }
}

fn tool(random: &mut Random, index: usize, settled: bool) -> Value {
    let states: &[&str] = if settled {
        &[
            "output-available",
            "output-available",
            "output-error",
            "approval-responded",
            "output-denied",
        ]
    } else {
        &[
            "input-streaming",
            "input-available",
            "approval-requested",
            "approval-responded",
            "output-available",
            "output-error",
            "output-denied",
        ]
    };
    let state = random.pick(states);
    let mut part = json!({"toolCallId": format!("c{index}"), "state": state, "input": {}});
    let dynamic = random.one_in(5);
    part["type"] = json!(if dynamic {
        "dynamic-tool"
    } else {
        "tool-search"
    });
    if dynamic {
        part["toolName"] = json!("search");
    }
    match state {
        "approval-requested" => part["approval"] = json!({"id": "a"}),
        "approval-responded" | "output-denied" => {
            part["approval"] = json!({"id": "a", "approved": random.one_in(2)});
        }
        "output-available" => {
            part["output"] = json!(1);
            if random.one_in(5) {
                part["preliminary"] = json!(random.one_in(2));
            }
        }
        "output-error" => part["errorText"] = json!("e"),
        _ => {}
    }
    if random.one_in(3) {
        part["providerExecuted"] = json!(!random.one_in(3));
    }
    part
}
