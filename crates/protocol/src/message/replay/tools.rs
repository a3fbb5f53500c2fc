//! Tool calls as chunks: from what a reader has of a call to what became of it.

use std::borrow::Cow;

use serde_json::Value;

use crate::chunk::{Chunk, Sdk};
use crate::message::{Message, Part, ToolPart, ToolState};

/// The calls that a client shows and the stored message does not know: a crash took them before they were stored.
pub fn orphans<'t>(theirs: &'t Message, ours: &Message) -> Vec<&'t ToolPart> {
    let tools = |message: &'t Message| message.parts.iter().filter_map(Part::as_tool);
    tools(theirs)
        .filter(|tool| {
            !ours
                .parts
                .iter()
                .filter_map(Part::as_tool)
                .any(|other| other.call_id == tool.call_id)
        })
        .collect()
}

/// Tells a client that a call which it shows will not be answered.
pub fn disown(tool: &ToolPart, emit: &mut dyn FnMut(&Chunk<'_>)) {
    if rank(&tool.state) < 5 {
        emit(&Chunk::ToolOutputError {
            tool_call_id: Cow::Borrowed(&tool.call_id),
            error_text: Cow::Borrowed("this call was lost when the server restarted"),
            provider_executed: None,
            provider_metadata: None,
            tool_metadata: None,
            dynamic: tool.dynamic.then_some(true),
        });
    }
}

/// How far a call has come; each rank is reached through the ones below it.
pub(super) fn rank(state: &ToolState) -> u8 {
    match state {
        ToolState::InputStreaming => 1,
        ToolState::InputAvailable | ToolState::Other(_) => 2,
        ToolState::ApprovalRequested => 3,
        ToolState::ApprovalResponded => 4,
        ToolState::OutputAvailable | ToolState::OutputError | ToolState::OutputDenied => 5,
    }
}

pub(super) fn update_tool(
    tool: &ToolPart,
    seen: &mut u8,
    raw: &mut usize,
    sdk: Sdk,
    emit: &mut dyn FnMut(&Chunk<'_>),
) {
    let target = rank(&tool.state);
    let id = || Cow::Borrowed(tool.call_id.as_str());
    let name = || Cow::Borrowed(tool.name.as_str());
    let borrowed = |value: &'_ Option<Value>| value.clone().map(Cow::Owned);
    let dynamic = tool.dynamic.then_some(true);
    let title = || tool.title.as_deref().map(Cow::Borrowed);
    let null = Value::Null;
    // In v6 a call that was refused for its input keeps that input as `rawInput`.
    let refused = tool.state == ToolState::OutputError && tool.input.is_none();
    if *seen == 0 {
        emit(&Chunk::ToolInputStart {
            tool_call_id: id(),
            tool_name: name(),
            input_encoding: tool.input_encoding.filter(|_| target == 1),
            provider_executed: tool.provider_executed,
            // Early versions know it only on the complete input.
            provider_metadata: borrowed(&tool.call_provider_metadata).filter(|_| target == 1),
            tool_metadata: borrowed(&tool.tool_metadata),
            dynamic,
            title: title(),
        });
        *seen = 1;
    }
    // A call that ended before its input was complete goes from the one to the other without anything between.
    let unfinished = is_unfinished(tool) && *seen == 1;
    if target == 1 || unfinished {
        let text = tool.raw_input.as_ref().and_then(Value::as_str);
        if let Some(rest) = text.and_then(|text| text.get(*raw..))
            && !rest.is_empty()
        {
            emit(&Chunk::ToolInputDelta {
                tool_call_id: id(),
                input_text_delta: Cow::Borrowed(rest),
            });
            *raw += rest.len();
        }
        if !unfinished {
            return;
        }
        *seen = 4;
    }
    if let (true, true, Some(input)) = (refused, *seen < 2, &tool.raw_input) {
        emit(&Chunk::ToolInputError {
            tool_call_id: id(),
            tool_name: name(),
            input: Cow::Borrowed(input),
            error_text: Cow::Borrowed(tool.error_text.as_deref().unwrap_or_default()),
            provider_executed: tool.provider_executed,
            provider_metadata: borrowed(&tool.call_provider_metadata),
            tool_metadata: borrowed(&tool.tool_metadata),
            dynamic,
            title: title(),
        });
        *seen = 5;
        return;
    }
    if *seen < 2 {
        emit(&Chunk::ToolInputAvailable {
            tool_call_id: id(),
            tool_name: name(),
            input: Cow::Borrowed(tool.input.as_ref().unwrap_or(&null)),
            provider_executed: tool.provider_executed,
            provider_metadata: borrowed(&tool.call_provider_metadata),
            tool_metadata: borrowed(&tool.tool_metadata),
            dynamic,
            title: title(),
        });
        *seen = 2;
    }
    if let Some(approval) = &tool.approval {
        let approval_id = || Cow::Borrowed(approval.id.as_deref().unwrap_or(&tool.call_id));
        let extra = |key: &str| approval.extra.get(key);
        let text = |key: &str| extra(key).and_then(Value::as_str).map(Cow::Borrowed);
        if *seen < 3 && target >= 3 {
            emit(&Chunk::ToolApprovalRequest {
                approval_id: approval_id(),
                tool_call_id: id(),
                approval_descriptor: extra("descriptor").map(Cow::Borrowed),
                input_schema_input: extra("inputSchemaInput").map(Cow::Borrowed),
                signature: text("signature"),
                reason: text("requestReason"),
                is_automatic: extra("isAutomatic").and_then(Value::as_bool),
            });
            *seen = 3;
        }
        if let (Sdk::V7, true, true, Some(approved)) =
            (sdk, *seen < 4, target >= 4, approval.approved)
        {
            emit(&Chunk::ToolApprovalResponse {
                approval_id: approval_id(),
                approved,
                reason: approval.reason.as_deref().map(Cow::Borrowed),
                provider_executed: None,
                provider_metadata: None,
            });
            *seen = 4;
        }
    }
    if target == 5 && *seen < 5 {
        let provider_metadata = borrowed(&tool.result_provider_metadata);
        emit(&match tool.state {
            ToolState::OutputAvailable => Chunk::ToolOutputAvailable {
                tool_call_id: id(),
                output: Cow::Borrowed(tool.output.as_ref().unwrap_or(&null)),
                provider_executed: None,
                provider_metadata,
                tool_metadata: None,
                dynamic,
                preliminary: tool.preliminary,
            },
            ToolState::OutputError => Chunk::ToolOutputError {
                tool_call_id: id(),
                error_text: Cow::Borrowed(tool.error_text.as_deref().unwrap_or_default()),
                provider_executed: None,
                provider_metadata,
                tool_metadata: None,
                dynamic,
            },
            _ => Chunk::ToolOutputDenied { tool_call_id: id() },
        });
        *seen = 5;
    }
    *seen = (*seen).max(target);
}

pub(super) fn raw_len(tool: &ToolPart) -> usize {
    tool.raw_input
        .as_ref()
        .and_then(Value::as_str)
        .map_or(0, str::len)
}

/// Whether a call failed while its input was still arriving: what there was of it is kept as text, or there was nothing.
fn is_unfinished(tool: &ToolPart) -> bool {
    tool.state == ToolState::OutputError && tool.input.is_some() == tool.raw_input.is_some()
}
