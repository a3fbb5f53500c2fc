//! The targets: every parser of bytes from outside, by name, with the recordings that a search begins from.
//!
//! A target panics if what it has been given breaks a promise. Refusing is no failure: most of what comes is nonsense.

#![expect(
    clippy::panic,
    reason = "a broken promise is reported by ending the process"
)]

mod agents;
mod protocol;
mod server;

/// A parser, and where the search begins.
pub struct Target {
    pub name: &'static str,
    /// What the parser reads.
    pub what: &'static str,
    /// Files and directories below `fixtures/`; a target without any begins with nothing.
    pub seeds: &'static [&'static str],
    pub run: fn(&[u8]),
}

/// All targets, sorted by name.
pub const TARGETS: &[Target] = &[
    Target {
        name: "ai-sdk-ws",
        what: "frames of the AI SDK's own WebSocket transport",
        seeds: &["scenarios"],
        run: protocol::ai_sdk_ws,
    },
    Target {
        name: "base64",
        what: "base64 in both alphabets",
        seeds: &[],
        run: protocol::base64,
    },
    Target {
        name: "chat-request",
        what: "the body of a chat request, in both forms",
        seeds: &["scenarios"],
        run: server::chat_request,
    },
    Target {
        name: "chunk",
        what: "a chunk of the AI SDK",
        seeds: &[],
        run: protocol::chunk,
    },
    Target {
        name: "chunk-log",
        what: "a log of chunks",
        seeds: &[],
        run: protocol::chunk_log,
    },
    Target {
        name: "configuration",
        what: "a configuration file",
        seeds: &[],
        run: server::configuration,
    },
    Target {
        name: "engine-lines",
        what: "what an agent engine streams",
        seeds: &["adk/scripted"],
        run: agents::engine_lines,
    },
    Target {
        name: "event",
        what: "an event of an ADK agent",
        seeds: &["adk/odd"],
        run: protocol::event,
    },
    Target {
        name: "form",
        what: "an answer to a form, after a line with its schema",
        seeds: &[],
        run: protocol::form,
    },
    Target {
        name: "gemini",
        what: "a piece of what a Gemini model streams",
        seeds: &["adk/gemini_answers"],
        run: agents::gemini,
    },
    Target {
        name: "gemini-live",
        what: "messages of a live Gemini model, one a line",
        seeds: &["adk/live"],
        run: agents::gemini_live,
    },
    Target {
        name: "json",
        what: "JSON before it becomes a tree",
        seeds: &["adk/odd", "scenarios"],
        run: protocol::json,
    },
    Target {
        name: "lines",
        what: "lines of JSON",
        seeds: &[],
        run: protocol::lines,
    },
    Target {
        name: "live-binary",
        what: "binary frames of /live",
        seeds: &[],
        run: protocol::live_binary,
    },
    Target {
        name: "live-frame",
        what: "text frames of /live",
        seeds: &["scenarios"],
        run: protocol::live_frame,
    },
    Target {
        name: "mcp-result",
        what: "the result of a tool of an MCP server",
        seeds: &[],
        run: agents::mcp_result,
    },
    Target {
        name: "media-type",
        what: "the media type of sound",
        seeds: &[],
        run: protocol::media_type,
    },
    Target {
        name: "messages",
        what: "the messages of a front end",
        seeds: &["scenarios"],
        run: protocol::messages,
    },
    Target {
        name: "openai",
        what: "a stream of chat completions",
        seeds: &["openai"],
        run: agents::openai,
    },
    Target {
        name: "partial-json",
        what: "JSON that is still arriving",
        seeds: &["adk/odd"],
        run: protocol::partial_json,
    },
    Target {
        name: "percent",
        what: "percent-encoded text",
        seeds: &[],
        run: server::percent,
    },
    Target {
        name: "recording",
        what: "a recorded run, translated in every dialect",
        seeds: &["adk/agents", "adk/scripted", "adk/gemini"],
        run: server::recording,
    },
    Target {
        name: "sse",
        what: "server-sent events, in one piece and in many",
        seeds: &["adk/scripted", "adk/gemini"],
        run: protocol::sse,
    },
    Target {
        name: "token",
        what: "a signed token, before its signature is checked",
        seeds: &[],
        run: server::token,
    },
];

/// The target of this name.
///
/// # Panics
///
/// If there is none.
pub fn target(name: &str) -> &'static Target {
    let found = TARGETS.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("there is no target `{name}`: see crates/fuzz/src/lib.rs"))
}
