//! Message lists with our idea of what the two stock predicates answer, so that the real ones can be asked too.
//!
//! `predicate_corpus FILE` writes one case per line: `{messages, toolCalls, approvalResponses}`.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    unreachable_pub,
    reason = "an example is a program, and the oracle is shared with the tests"
)]

#[path = "../tests/dice/mod.rs"]
mod dice;
#[path = "../tests/sim/predicates.rs"]
mod predicates;

use std::error::Error;

use adk_bridge_protocol::message::parse_messages;
use dice::Dice;
use predicates::{complete_with_approval_responses, complete_with_tool_calls};
use serde_json::{Value, json};

const CASES: usize = 4_000;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args()
        .nth(1)
        .ok_or("usage: predicate_corpus FILE")?;
    let mut dice = Dice::new(1);
    let mut lines = String::new();
    let mut counts = [[0_u32; 2]; 2];
    for _ in 0..CASES {
        let messages = messages(&mut dice);
        let parsed = parse_messages(messages.clone())?;
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
    // Both at once needs a provider's call that waits for nothing but an approval: rare, yet it can be.
    if counts.iter().flatten().any(|count| *count < 20) {
        return Err("every combination must occur often; change the generator".into());
    }
    std::fs::write(file, lines)?;
    Ok(())
}

fn messages(dice: &mut Dice) -> Value {
    let mut messages = Vec::new();
    for index in 0..dice.below(3) {
        let role = dice.pick(&["user", "assistant"]);
        messages.push(message(dice, &format!("m{index}"), role));
    }
    if !dice.one_in(20) {
        let role = if dice.one_in(12) {
            dice.pick(&["user", "system"])
        } else {
            "assistant"
        };
        messages.push(message(dice, "last", role));
    }
    Value::Array(messages)
}

fn message(dice: &mut Dice, id: &str, role: &str) -> Value {
    let mut parts = Vec::new();
    for _ in 0..dice.below(3) {
        if !dice.one_in(4) {
            parts.push(json!({"type": "step-start"}));
        }
        // Steps in which nothing is open must be frequent, or nothing is ever sent.
        let settled = dice.below(3) > 0;
        for _ in 0..dice.below(5) {
            let part = part(dice, parts.len(), settled);
            parts.push(part);
        }
    }
    json!({"id": id, "role": role, "parts": parts})
}

fn part(dice: &mut Dice, index: usize, settled: bool) -> Value {
    match dice.below(10) {
        0 | 1 => match dice.below(4) {
            0 => json!({"type": "text", "text": "a"}),
            1 => json!({"type": "text", "text": "a", "state": "streaming"}),
            _ => json!({"type": "text", "text": "a", "state": "done"}),
        },
        2 => json!({"type": "reasoning", "text": "a", "state": dice.pick(&["streaming", "done"])}),
        3 => dice
            .pick(&[
                json!({"type": "file", "mediaType": "image/png", "url": "https://a/b"}),
                json!({"type": "source-url", "sourceId": "s", "url": "https://a"}),
                json!({"type": "source-document", "sourceId": "s", "mediaType": "text/plain", "title": "t"}),
                json!({"type": "data-note", "data": {"type": "tool-x"}}),
                json!({"type": "hologram", "state": "output-available"}),
            ]),
        _ => tool(dice, index, settled),
    }
}

fn tool(dice: &mut Dice, index: usize, settled: bool) -> Value {
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
    let state = dice.pick(states);
    let mut part = json!({"toolCallId": format!("c{index}"), "state": state, "input": {}});
    let dynamic = dice.one_in(5);
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
            part["approval"] = json!({"id": "a", "approved": dice.one_in(2)});
        }
        "output-available" => {
            part["output"] = json!(1);
            if dice.one_in(5) {
                part["preliminary"] = json!(dice.one_in(2));
            }
        }
        "output-error" => part["errorText"] = json!("e"),
        _ => {}
    }
    if dice.one_in(3) {
        part["providerExecuted"] = json!(!dice.one_in(3));
    }
    part
}
