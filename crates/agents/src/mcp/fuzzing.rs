//! What the fuzz targets read of MCP servers: messages, however they come, and lists of tools.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use rmcp::model::{JsonRpcMessage, ServerJsonRpcMessage, ServerRequest};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use super::http::{events_in, read_message};
use super::listing::{self, List, MAX_TOOLS, is_tool_name};
use super::questions::{MAX_QUESTION_BYTES, RunningCalls, question_of};
use super::stdio::{Line, Lines};
use super::{Access, Approval, MAX_MESSAGE_BYTES, McpSettings};

/// Reads a text as a message, as lines of a program, and as events of a stream; it does not matter in which pieces it comes.
pub fn mcp_message(text: &[u8], split: usize) {
    let (begin, end) = text.split_at(split.min(text.len()));
    let lines = lines_of(&[], text);
    assert_eq!(lines, lines_of(begin, end), "pieces of lines do not matter");
    let (events, pieces) = (events_of(vec![text]), events_of(vec![begin, end]));
    // A stream that cannot be read to its end loses what came in the last piece.
    if events.is_some() && pieces.is_some() {
        assert_eq!(events, pieces, "pieces of events do not matter");
    }
    for text in [text]
        .into_iter()
        .chain(lines.iter().map(Vec::as_slice))
        .chain(events.iter().flatten().map(String::as_bytes))
    {
        if let Ok(message) = read_message(text) {
            note(message);
        }
    }
}

/// A question is bounded, and a message is the same when it is written and read again.
fn note(message: ServerJsonRpcMessage) {
    let written = serde_json::to_vec(&message).unwrap_or_default();
    let again = read_message(&written).map(|again| serde_json::to_vec(&again).unwrap_or_default());
    assert_eq!(
        again.ok().as_ref(),
        Some(&written),
        "what is written is read again"
    );
    if let JsonRpcMessage::Request(sent) = message
        && let ServerRequest::ElicitRequest(asked) = sent.request
        && let Some(question) = question_of("server", asked.params)
    {
        let bytes = question.message.len() + question.schema.text().len();
        assert!(bytes <= MAX_QUESTION_BYTES, "a question is bounded");
    }
}

fn lines_of(begin: &[u8], end: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Lines::new(begin.chain(end), MAX_MESSAGE_BYTES);
    let mut found = Vec::new();
    // What is in memory is never waited for.
    while let Some(Ok(Line::Whole(line))) = lines.next().now_or_never() {
        found.push(line.to_vec());
    }
    found
}

/// The events of a stream, if it can be read to its end.
fn events_of(pieces: Vec<&[u8]>) -> Option<Vec<String>> {
    let pieces = pieces.into_iter().map(Bytes::copy_from_slice).map(Ok);
    let pieces: Vec<reqwest::Result<Bytes>> = pieces.collect();
    let calls = Arc::new(RunningCalls::default());
    let mut events = events_in(stream::iter(pieces).boxed(), calls);
    let mut found = Vec::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        found.push(event.ok()?.data.unwrap_or_default());
    }
    Some(found)
}

/// Reads a page of a list of tools. Those that are offered have names that models take, and only one that says of itself that
/// it reads needs no approval.
pub fn mcp_listing(page: &Value) {
    let settings = McpSettings {
        name: "server".to_owned(),
        access: Access::Url {
            url: String::new(),
            headers: Vec::new(),
        },
        tools: None,
        approval: Approval::UnlessReadOnly,
    };
    let listed = page.get("tools").and_then(Value::as_array);
    let listed = listed.map(Vec::as_slice).unwrap_or_default();
    let mut list = List::default();
    list.tools.extend(listed.iter().filter_map(listing::read));
    let offered = listing::choose(&settings, &list).tools;
    assert!(offered.len() <= MAX_TOOLS, "tools are bounded");
    let names: HashSet<&str> = offered.iter().map(|(_, spec)| spec.name.as_str()).collect();
    assert_eq!(names.len(), offered.len(), "each tool is offered once");
    for (remote, spec) in &offered {
        assert!(is_tool_name(&spec.name), "models take {:?}", spec.name);
        let says_so = |tool: &&Value| {
            tool["name"] == **remote && tool["annotations"]["readOnlyHint"] == Value::Bool(true)
        };
        let reads_only = listed.iter().find(says_so).is_some();
        assert!(spec.needs_approval || reads_only, "{remote:?} is not asked");
    }
}
