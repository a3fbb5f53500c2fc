//! The stock predicates of the AI SDK, as an oracle.

use adk_bridge_protocol::message::{Message, Part, Role, TextState, ToolPart, ToolState};

pub fn complete_with_approval_responses(messages: &[Message]) -> bool {
    let Some(step) = last_step(messages) else {
        return false;
    };
    let tools: Vec<&ToolPart> = step.iter().filter_map(tool).collect();
    tools
        .iter()
        .any(|tool| tool.state == ToolState::ApprovalResponded)
        && tools.iter().all(|tool| {
            is_complete(tool)
                || matches!(
                    tool.state,
                    ToolState::OutputDenied | ToolState::ApprovalResponded
                )
        })
}

pub fn complete_with_tool_calls(messages: &[Message]) -> bool {
    let Some(step) = last_step(messages) else {
        return false;
    };
    let counts = |part: &Part| tool(part).is_some_and(|tool| tool.provider_executed != Some(true));
    let Some(last) = step.iter().rposition(counts) else {
        return false;
    };
    let speaking = step[last + 1..]
        .iter()
        .any(|part| matches!(part, Part::Text(text) if text.state != Some(TextState::Done)));
    !speaking
        && step
            .iter()
            .filter(|part| counts(part))
            .filter_map(tool)
            .all(is_complete)
}

fn last_step(messages: &[Message]) -> Option<&[Part]> {
    let message = messages
        .last()
        .filter(|message| message.role == Role::Assistant)?;
    let start = message
        .parts
        .iter()
        .rposition(|part| matches!(part, Part::StepStart))
        .map_or(0, |index| index + 1);
    Some(&message.parts[start..])
}

fn tool(part: &Part) -> Option<&ToolPart> {
    match part {
        Part::Tool(tool) => Some(tool),
        _ => None,
    }
}

fn is_complete(tool: &ToolPart) -> bool {
    match tool.state {
        ToolState::OutputAvailable => tool.preliminary != Some(true),
        ToolState::OutputError => true,
        _ => false,
    }
}
