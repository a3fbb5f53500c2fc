//! Chunk logs of adk-stream-protocol: one JSON object per line, with what crossed one place of that system.
//!
//! ```text
//! {"timestamp": …, "session_id": …, "mode": …, "location": …, "direction": …, "sequence_number": …, "chunk": …}
//! ```
//!
//! `chunk` is a chunk as an object, as the text of an SSE event, or the word `[DONE]`. What a front end sends, and what its
//! socket carries besides chunks, is logged in the same form. Its backend logs ADK events as Python prints them, which
//! nothing else can read.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json_text::text_of;

/// What one line of a log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEntry<'a> {
    /// The JSON of a chunk that was sent to a front end.
    Chunk(Cow<'a, str>),
    /// The end of a turn.
    Done,
    /// An ADK event, as Python prints it.
    PrintedEvent,
    /// Something that no front end was sent, or that the log has already.
    Other,
}

/// The types of what a socket carries besides chunks, in both directions. `direction` does not tell them apart: some logs
/// call what a front end received `out`.
const FRAMES: &[&str] = &[
    "message",
    "tool_result",
    "audio_control",
    "audio_chunk",
    "video_frame",
    "interrupt",
    "ping",
    "pong",
    "turn-start",
    "turn-end",
    "interrupted",
    "modality",
    "reconnect",
];

/// Reads the lines of one log. A chunk that was logged in several places counts in the first of them.
#[derive(Debug, Default)]
pub struct LogReader {
    location: Option<String>,
}

impl LogReader {
    /// Reads a line; `None` if it is not an entry of such a log.
    pub fn entry<'a>(&mut self, json: &'a str) -> Option<LogEntry<'a>> {
        let LoggedLine { location, chunk } = serde_json::from_str(json).ok()?;
        let entry = match (location.as_ref(), chunk) {
            ("backend-adk-event", _) => return Some(LogEntry::PrintedEvent),
            (_, chunk) if chunk.get().starts_with('{') => {
                LogEntry::Chunk(Cow::Borrowed(chunk.get()))
            }
            (_, chunk) => text_of(chunk).map_or(LogEntry::Other, of_text),
        };
        let entry = match entry {
            LogEntry::Chunk(chunk) if is_frame(&chunk) => LogEntry::Other,
            entry => entry,
        };
        if entry == LogEntry::Other {
            return Some(entry);
        }
        let first = self.location.get_or_insert_with(|| location.clone().into());
        Some(if *first == location {
            entry
        } else {
            LogEntry::Other
        })
    }
}

#[derive(Deserialize)]
struct LoggedLine<'a> {
    #[serde(borrow)]
    location: Cow<'a, str>,
    #[serde(borrow)]
    chunk: &'a RawValue,
}

fn is_frame(chunk: &str) -> bool {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    serde_json::from_str(chunk).is_ok_and(|Typed { kind }| FRAMES.contains(&&*kind))
}

fn of_text(text: Cow<'_, str>) -> LogEntry<'_> {
    let data = text.trim();
    let data = data.strip_prefix("data:").map_or(data, str::trim);
    match data {
        "[DONE]" => LogEntry::Done,
        data if data.starts_with('{') => LogEntry::Chunk(Cow::Owned(data.to_owned())),
        _ => LogEntry::Other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_form_of_a_chunk_is_read() {
        let chunk = r#"{"type":"text-end","id":"0"}"#;
        let is_chunk = || Some(LogEntry::Chunk(chunk.into()));
        let cases = [
            (
                json!({"location": "frontend-sse-chunk", "chunk": {"type": "text-end", "id": "0"}}),
                is_chunk(),
            ),
            (
                json!({"location": "backend-sse-event", "chunk": format!("data: {chunk}\n\n"), "mode": "adk-sse"}),
                is_chunk(),
            ),
            (
                json!({"location": "frontend-ws-chunk", "chunk": chunk}),
                is_chunk(),
            ),
            (
                json!({"location": "backend-sse-event", "chunk": "data: [DONE]\n\n"}),
                Some(LogEntry::Done),
            ),
            (
                json!({"location": "frontend-sse-event", "chunk": "[DONE]"}),
                Some(LogEntry::Done),
            ),
            (
                json!({"location": "backend-adk-event", "chunk": "Event(id='1')"}),
                Some(LogEntry::PrintedEvent),
            ),
            (
                json!({"location": "frontend-ws-chunk", "chunk": "hello"}),
                Some(LogEntry::Other),
            ),
            (
                json!({"location": "frontend-ws-chunk", "chunk": 1}),
                Some(LogEntry::Other),
            ),
            (
                json!({"location": "frontend-ws-chunk", "direction": "in", "chunk": {"type": "pong", "timestamp": 1}}),
                Some(LogEntry::Other),
            ),
            (
                json!({"location": "frontend-ws-chunk", "direction": "out", "chunk": {"type": "message", "messages": []}}),
                Some(LogEntry::Other),
            ),
            (
                json!({"location": "frontend-sse-event", "direction": "out", "chunk": chunk}),
                is_chunk(),
            ),
            (
                json!({"location": "backend-ws-event", "direction": "in", "chunk": {"type": "ping"}}),
                Some(LogEntry::Other),
            ),
            (json!({"chunk": "hello"}), None),
            (json!({"location": "x"}), None),
            (json!({"id": "e1", "author": "a", "content": {}}), None),
        ];
        for (line, expected) in cases {
            let found = line.to_string();
            assert_eq!(LogReader::default().entry(&found), expected, "{line}");
        }
    }

    #[test]
    fn a_chunk_that_was_logged_twice_is_read_once() {
        let mut log = LogReader::default();
        let line = |location: &str| json!({"location": location, "chunk": "[DONE]"}).to_string();
        let mut read = |location| log.entry(&line(location)) == Some(LogEntry::Done);
        assert!(read("frontend-ws-chunk"));
        assert!(!read("frontend-useChat-chunk"));
        assert!(read("frontend-ws-chunk"));
    }
}
