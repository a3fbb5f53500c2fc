//! The targets: every parser of bytes from outside, by name, with the recordings that a search begins from.
//!
//! A target panics if what it has been given breaks a promise. Refusing is no failure: most of what comes is nonsense.
//!
//! The tests build the targets, run each of them with everything that its search begins from, whole and damaged, and let
//! libFuzzer run one. `cargo xtask fuzz TARGET` searches, guided by which code has run; the tests do not build that, because
//! it is the same code compiled once more with other flags, dependencies included, which takes minutes. A test of `xtask`
//! sees to it that the compiler takes these flags and counts.
//!
//! What a collector of spans answers is read by the library that exports them, and is no target.

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
        name: "adk-answer",
        what: "what an ADK server answers about itself, its apps and its sessions",
        seeds: &["foreign/adk-answer"],
        run: agents::adk_answer,
    },
    Target {
        name: "adk-live",
        what: "frames of an ADK server's /run_live, one a line",
        seeds: &["adk/live"],
        run: agents::adk_live,
    },
    Target {
        name: "ai-sdk-ws",
        what: "frames of the AI SDK's own WebSocket transport",
        seeds: &["scenarios"],
        run: protocol::ai_sdk_ws,
    },
    Target {
        name: "approval-words",
        what: "a result, or a part of a message, that may approve a call",
        seeds: &["foreign/approval-words"],
        run: protocol::approval_words,
    },
    Target {
        name: "audit-export",
        what: "an export of the audit, as `adk-bridge audit verify` reads it",
        seeds: &["foreign/audit-export"],
        run: server::audit_export,
    },
    Target {
        name: "base64",
        what: "base64 in both alphabets",
        seeds: &["foreign/base64"],
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
        seeds: &["foreign/chunk"],
        run: protocol::chunk,
    },
    Target {
        name: "chunk-log",
        what: "a log of chunks",
        seeds: &["foreign/chunk-log"],
        run: protocol::chunk_log,
    },
    Target {
        name: "configuration",
        what: "a configuration file",
        seeds: &["foreign/configuration"],
        run: server::configuration,
    },
    Target {
        name: "cookie",
        what: "the cookies of a login",
        seeds: &["foreign/cookie"],
        run: server::cookie,
    },
    Target {
        name: "credential-callback",
        what: "the query with which a provider sends a user back who grants something to an agent",
        seeds: &["foreign/credential-callback", "foreign/login-answer"],
        run: server::credential_callback,
    },
    Target {
        name: "credential-request",
        what: "the arguments with which an agent asks for a login",
        seeds: &["foreign/credential-request"],
        run: server::credential_request,
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
        name: "file-address",
        what: "the signed address of a file",
        seeds: &["foreign/file-address"],
        run: server::file_address,
    },
    Target {
        name: "file-kind",
        what: "what a file is said to be, and after a line its content",
        seeds: &["foreign/file-kind"],
        run: server::file_kind,
    },
    Target {
        name: "form",
        what: "an answer to a form, after a line with its schema",
        seeds: &["foreign/form"],
        run: protocol::form,
    },
    Target {
        name: "forwarded-request",
        what: "the header of a request that another replica passes on",
        seeds: &["foreign/forwarded-request"],
        run: server::forwarded_request,
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
        name: "key-set",
        what: "the keys that a provider or a proxy publishes",
        seeds: &["foreign/key-set"],
        run: server::key_set,
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
        name: "login-answer",
        what: "the query with which a provider sends a user back",
        seeds: &["foreign/login-answer"],
        run: server::login_answer,
    },
    Target {
        name: "login-exchange",
        what: "a provider's answers about a user: tokens, userinfo, errors",
        seeds: &["foreign/login-exchange"],
        run: server::login_exchange,
    },
    Target {
        name: "mcp-listing",
        what: "a page of the tools of an MCP server",
        seeds: &["foreign/mcp-listing"],
        run: agents::mcp_listing,
    },
    Target {
        name: "mcp-message",
        what: "what an MCP server writes to its output, or answers over HTTP",
        seeds: &["foreign/mcp-message"],
        run: agents::mcp_message,
    },
    Target {
        name: "mcp-result",
        what: "the result of a tool of an MCP server",
        seeds: &["foreign/mcp-result"],
        run: agents::mcp_result,
    },
    Target {
        name: "media-type",
        what: "the media type of sound",
        seeds: &["foreign/media-type"],
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
        name: "openai-whole",
        what: "an answer of chat completions that is not streamed",
        seeds: &["foreign/openai-whole"],
        run: agents::openai_whole,
    },
    Target {
        name: "openid-description",
        what: "how an OpenID provider describes itself",
        seeds: &["foreign/openid-description"],
        run: server::openid_description,
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
        seeds: &["foreign/percent"],
        run: server::percent,
    },
    Target {
        name: "range",
        what: "a Range, or tags of If-None-Match, after a line with the size of the file",
        seeds: &["foreign/range"],
        run: server::range,
    },
    Target {
        name: "recording",
        what: "a recorded run, translated in every dialect",
        seeds: &["adk/agents", "adk/scripted", "adk/gemini"],
        run: server::recording,
    },
    Target {
        name: "refusal",
        what: "the body with which a model's server refuses a request",
        seeds: &["foreign/refusal"],
        run: agents::refusal,
    },
    Target {
        name: "source",
        what: "headers that say from where a request comes, one a line",
        seeds: &["foreign/source"],
        run: server::source,
    },
    Target {
        name: "sse",
        what: "server-sent events, in one piece and in many",
        seeds: &["adk/scripted", "adk/gemini"],
        run: protocol::sse,
    },
    Target {
        name: "ticket",
        what: "the ticket of a WebSocket",
        seeds: &["foreign/ticket"],
        run: server::ticket,
    },
    Target {
        name: "token",
        what: "a signed token, of a user or of a proxy",
        seeds: &["foreign/token"],
        run: server::token,
    },
    Target {
        name: "token-answer",
        what: "what a server of tokens answers to the bridge",
        seeds: &["foreign/token-answer"],
        run: agents::token_answer,
    },
    Target {
        name: "tool-result",
        what: "a frame of /live that may approve a call",
        seeds: &["foreign/tool-result"],
        run: server::tool_result,
    },
    Target {
        name: "trace-context",
        what: "a traceparent, and after a line a tracestate",
        seeds: &["foreign/trace-context"],
        run: agents::trace_context,
    },
    Target {
        name: "tunnel",
        what: "frames of a WebSocket that another replica serves",
        seeds: &["foreign/tunnel"],
        run: server::tunnel,
    },
    Target {
        name: "upload-form",
        what: "the form of an upload",
        seeds: &["foreign/upload-form"],
        run: server::upload_form,
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

/// Where a target breaks its bytes in two: any place, and the same one for the same bytes.
fn split_of(data: &[u8]) -> usize {
    let sum = data.iter().fold(0_usize, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(usize::from(*byte))
    });
    sum % (data.len() + 1)
}
