//! The parsers of foreign bytes, for the fuzz targets; nothing else may use them.

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;

pub use crate::adk_server::fuzzing::{adk_answer, adk_live};
pub use crate::mcp::fuzzing::{mcp_listing, mcp_message};
pub use crate::token::fuzzing::token_answer;

use crate::adk_server::engine_line;
use crate::error::{AgentError, MAX_SAID_BYTES};
use crate::trace_context::TraceContext;
use crate::{gemini as rest, gemini_live as live, mcp, openai as completions};

/// The bridge's own words around those of somebody else.
const MAX_WORDS_AROUND: usize = 300;

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

/// Reads an answer of chat completions that was not streamed.
pub fn openai_whole(json: &str) {
    let _ = completions::Assembly::after(0).whole(json, &mut |_| {});
}

/// Reads the body of a refusal, as those of models. Little of it is repeated.
pub fn refusal(text: &str) {
    let check = |error: &AgentError| {
        let most = MAX_SAID_BYTES + MAX_WORDS_AROUND;
        assert!(error.message().len() <= most, "{:?}", error.message());
    };
    let read = || completions::Refusal::read(text, "text/plain");
    check(&read().of_answer());
    for status in [400, 401, 404, 429, 503] {
        let status = StatusCode::from_u16(status).unwrap_or_default();
        let refused = read().of_request(status, None, "m", completions::Credential::Key);
        check(&refused.failure.error);
    }
    let _ = rest::Refusal::read(text);
}

/// Reads the context of a trace. What is passed on is valid, and means the same.
pub fn trace_context(parent: &str, state: &str) {
    let context = TraceContext::read(parent, state);
    let mut headers = HeaderMap::new();
    context.put(&mut headers);
    assert_eq!(TraceContext::of_headers(&headers), context);
    assert_eq!(headers.is_empty(), context.is_none());
}
