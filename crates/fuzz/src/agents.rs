//! Targets of the agents' crate.

use adk_bridge_agents::fuzzing;

use crate::split_of;

pub(crate) fn gemini(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::gemini(text);
}

pub(crate) fn gemini_live(data: &[u8]) {
    fuzzing::gemini_live(data.split(|byte| *byte == b'\n'));
}

pub(crate) fn openai(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::openai(text.lines());
}

pub(crate) fn engine_lines(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::engine_lines(text.lines());
}

pub(crate) fn adk_answer(data: &[u8]) {
    fuzzing::adk_answer(data);
}

pub(crate) fn adk_live(data: &[u8]) {
    fuzzing::adk_live(data.split(|byte| *byte == b'\n'));
}

pub(crate) fn openai_whole(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::openai_whole(text);
}

pub(crate) fn refusal(data: &[u8]) {
    fuzzing::refusal(&String::from_utf8_lossy(data));
}

pub(crate) fn token_answer(data: &[u8]) {
    fuzzing::token_answer(data);
}

pub(crate) fn trace_context(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (parent, state) = text.split_once('\n').unwrap_or((text, ""));
    fuzzing::trace_context(parent, state);
}

pub(crate) fn mcp_message(data: &[u8]) {
    fuzzing::mcp_message(data, split_of(data));
}

pub(crate) fn mcp_listing(data: &[u8]) {
    let Ok(page) = serde_json::from_slice(data) else {
        return;
    };
    fuzzing::mcp_listing(&page);
}

pub(crate) fn mcp_result(data: &[u8]) {
    let Ok(result) = serde_json::from_slice(data) else {
        return;
    };
    fuzzing::mcp_result(result);
}
