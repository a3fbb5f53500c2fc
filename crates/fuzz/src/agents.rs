//! Targets of the agents' crate.

use adk_bridge_agents::fuzzing;

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

pub(crate) fn mcp_result(data: &[u8]) {
    let Ok(result) = serde_json::from_slice(data) else {
        return;
    };
    fuzzing::mcp_result(result);
}
