//! The parsers of foreign bytes, for the fuzz targets; nothing else may use them.

use serde_json::Value;

use crate::adk_server::engine_line;
use crate::{gemini as rest, gemini_live as live, mcp, openai as completions};

/// Reads a piece of what a Gemini model streams.
pub fn gemini(json: &str) {
    let mut assembly = rest::Assembly::default();
    let _ = assembly.chunk(json, &mut |_| {});
}

/// Reads messages of a live Gemini model of every generation.
pub fn gemini_live<'a>(messages: impl Iterator<Item = &'a [u8]> + Clone) {
    for &generation in live::Generation::ALL {
        let mut assembly = live::Assembly::new(generation, false, false);
        for message in messages.clone() {
            let _ = assembly.message(message, &mut |_| {});
        }
    }
}

/// Reads the data of a stream of chat completions.
pub fn openai<'a>(events: impl Iterator<Item = &'a str>) {
    let mut assembly = completions::Assembly::after(0);
    for data in events {
        let _ = assembly.event("", data, &mut |_| {});
    }
    let _ = assembly.finish(&mut |_| {});
}

/// Reads lines of an agent engine.
pub fn engine_lines<'a>(lines: impl Iterator<Item = &'a str>) {
    let mut events = String::new();
    for line in lines {
        let _ = engine_line(line, &mut events);
    }
}

/// Reads the result of a tool.
pub fn mcp_result(result: Value) {
    let _ = mcp::read_result(result);
}
