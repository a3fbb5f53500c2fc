//! The answer of an agent engine, one JSON value per line, as the stream of an ADK server's `/run_sse`.
//!
//! Engines write the names of fields with underscores, and ADK servers in camel case; what is stored and shown is the latter.
//! Names inside of what a tool, a user or an agent chose stay as they are.

use std::collections::VecDeque;
use std::time::Duration;

use adk_bridge_protocol::event::MAX_EVENT_BYTES;
use adk_bridge_protocol::json_text::{Json, fields_of, items_of};
use bytes::Bytes;
use serde_json::value::RawValue;

use crate::silence::Patience;

/// Fields whose values have names that are not ADK's.
const FOREIGN: [&str; 12] = [
    "agentState",
    "args",
    "artifactDelta",
    "customMetadata",
    "output",
    "partialArgs",
    "payload",
    "requestedAuthConfigs",
    "requestedToolConfirmations",
    "response",
    "responseSchema",
    "stateDelta",
];
/// ADK's own fields are at most this deep.
const MAX_DEPTH: usize = 16;

/// The lines of a run.
pub(in crate::adk_server) struct EngineLines {
    response: reqwest::Response,
    /// Until something has come; then its reader is patient.
    patience: Patience,
    /// The beginning of a line.
    line: Vec<u8>,
    /// Lines that were read ahead, as events.
    ready: VecDeque<Bytes>,
    session: Option<String>,
    /// Why nothing more can be read.
    failed: Option<reqwest::Error>,
    is_over: bool,
}

impl EngineLines {
    pub(super) fn new(response: reqwest::Response, silence: Duration) -> Self {
        Self {
            response,
            patience: Patience::new(silence),
            line: Vec::new(),
            ready: VecDeque::new(),
            session: None,
            failed: None,
            is_over: false,
        }
    }

    /// Reads until the first event, and returns whether there is one.
    pub(super) async fn has_begun(&mut self) -> bool {
        while self.ready.is_empty() && !self.is_over {
            let read = self.patience.wait_for(self.response.chunk()).await;
            match read {
                Ok(Ok(Some(piece))) => self.feed(&piece),
                Ok(Ok(None)) => self.end(),
                Ok(Err(error)) => {
                    self.failed = Some(error);
                    self.is_over = true;
                }
                // Whoever reads the run is patient once more.
                Err(_) => break,
            }
        }
        !self.ready.is_empty()
    }

    /// The session that the run is in, if the lines say it.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The next events, as server-sent ones. Cancel-safe.
    pub(in crate::adk_server) async fn chunk(&mut self) -> Result<Option<Bytes>, reqwest::Error> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            if self.is_over {
                return self.failed.take().map_or(Ok(None), Err);
            }
            match self.response.chunk().await? {
                Some(piece) => self.feed(&piece),
                None => self.end(),
            }
        }
    }

    fn feed(&mut self, mut piece: &[u8]) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&piece[..end]);
            piece = &piece[end + 1..];
            self.finish_line();
        }
        self.line.extend_from_slice(piece);
        // The reader of the events refuses what is too long, so it need not be complete.
        if self.line.len() > MAX_EVENT_BYTES {
            self.finish_line();
        }
    }

    fn end(&mut self) {
        self.finish_line();
        self.is_over = true;
    }

    fn finish_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let mut events = String::new();
        self.session = session_and_events(&line, &mut events).or(self.session.take());
        if !events.is_empty() {
            self.ready.push_back(events.into());
        }
    }
}

/// Appends the events of a line, and returns the id of the session that it names.
pub(crate) fn session_and_events(line: &str, events: &mut String) -> Option<String> {
    // Gateways may send the lines as server-sent events, or as the items of one array.
    let line = line.trim();
    let line = line.strip_prefix("data:").unwrap_or(line);
    let line = line.trim_start_matches(['[', ',', ' ']);
    let line = line.trim_end_matches([']', ',', ' ']);
    if line.is_empty() || line.starts_with(':') {
        return None;
    }
    let Ok(value) = Json::parse(line) else {
        // Whoever reads the events says that this is not one.
        event(line, events);
        return None;
    };
    let Some(listed) = value.get("events").filter(|it| it.items().is_some()) else {
        match is_failure(&value) {
            true => event(Json::object([("error", value)]).text(), events),
            false => event(&in_camel_case(value.raw()), events),
        }
        return None;
    };
    for item in listed.items().unwrap_or_default() {
        event(&in_camel_case(item), events);
    }
    let session = value.get("session_id");
    let session = session.as_ref().and_then(Json::as_str);
    session.map(|session| session.into_owned())
}

/// Google's form of an error: `{"code": …, "message": …}`.
fn is_failure(line: &Json) -> bool {
    let is_event = ["author", "content", "actions", "error"];
    let has = |name: &str| line.get(name).is_some();
    has("code") && has("message") && !is_event.into_iter().any(has)
}

fn event(json: &str, events: &mut String) {
    events.push_str("data: ");
    events.push_str(json);
    events.push_str("\n\n");
}

/// The value with ADK's own names in camel case.
pub(in crate::adk_server) fn in_camel_case(value: &RawValue) -> String {
    let mut written = String::with_capacity(value.get().len());
    write(value, MAX_DEPTH, &mut written);
    written
}

fn write(value: &RawValue, depth: usize, out: &mut String) {
    let is_leaf = depth == 0 || !value.get().starts_with(['{', '[']);
    if let Some(fields) = fields_of(value).filter(|_| !is_leaf) {
        out.push('{');
        for (index, (name, value)) in fields.into_iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            let name = camel(&name);
            out.push_str(Json::from(name.as_str()).text());
            out.push(':');
            match FOREIGN.contains(&name.as_str()) {
                true => out.push_str(value.get()),
                false => write(value, depth - 1, out),
            }
        }
        out.push('}');
    } else if let Some(items) = items_of(value).filter(|_| !is_leaf) {
        out.push('[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            write(item, depth - 1, out);
        }
        out.push(']');
    } else {
        out.push_str(value.get());
    }
}

/// `function_call` as `functionCall`.
fn camel(name: &str) -> String {
    let mut written = String::with_capacity(name.len());
    let mut is_next = false;
    for letter in name.chars() {
        match letter {
            '_' if !written.is_empty() => is_next = true,
            letter if std::mem::take(&mut is_next) => written.push(letter.to_ascii_uppercase()),
            letter => written.push(letter),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_written_as_adk_servers_write_them() {
        let engine = r#"{"content": {"parts": [{"function_call": {"id": "c", "name": "do_it", "args": {"some_key": {"a_b": 1}}}}],
            "role": "model"}, "usage_metadata": {"prompt_token_count": 1.5}, "long_running_tool_ids": ["a_b"],
            "actions": {"state_delta": {"my_key": {"in_ner": 1}}, "requested_tool_confirmations": {"call_1": {"hint": "h"}}},
            "grounding_metadata": {"grounding_chunks": [{"web": {"page_title": "t_t"}}]}, "_x": null}"#;
        let server = r#"data: {"content":{"parts":[{"functionCall":{"id":"c","name":"do_it","args":{"some_key":{"a_b":1}}}}],"role":"model"},"usageMetadata":{"promptTokenCount":1.5},"longRunningToolIds":["a_b"],"actions":{"stateDelta":{"my_key":{"in_ner":1}},"requestedToolConfirmations":{"call_1":{"hint":"h"}}},"groundingMetadata":{"groundingChunks":[{"web":{"pageTitle":"t_t"}}]},"_x":null}

"#;
        let one_line = engine.replace('\n', "");
        let (mut camel, mut again) = (String::new(), String::new());
        session_and_events(&one_line, &mut camel);
        assert_eq!(camel, server);
        session_and_events(server.trim(), &mut again);
        assert_eq!(again, server, "what is in camel case stays");
    }

    #[test]
    fn lines_come_in_several_forms() {
        let event = "data: {\"a\":1}\n\n";
        for (line, expected, session) in [
            (r#"{"a": 1}"#, event.to_owned(), None),
            (r#"data: {"a": 1}"#, event.to_owned(), None),
            (r#"[{"a": 1},"#, event.to_owned(), None),
            (r#",{"a": 1}]"#, event.to_owned(), None),
            (
                r#"{"events": [{"a": 1}, {"a": 1}], "session_id": "s"}"#,
                event.repeat(2),
                Some("s"),
            ),
            (
                r#"{"events": [], "session_id": "s"}"#,
                String::new(),
                Some("s"),
            ),
            (
                r#"{"code": 498, "message": "no"}"#,
                "data: {\"error\":{\"code\":498,\"message\":\"no\"}}\n\n".to_owned(),
                None,
            ),
            ("", String::new(), None),
            ("]", String::new(), None),
            (": ping", String::new(), None),
            ("{cut", "data: {cut\n\n".to_owned(), None),
            (
                "Internal Error",
                "data: Internal Error\n\n".to_owned(),
                None,
            ),
        ] {
            let mut events = String::new();
            let found = session_and_events(line, &mut events);
            assert_eq!(events, expected, "{line}");
            assert_eq!(found.as_deref(), session, "{line}");
        }
    }

    #[test]
    fn deep_values_are_left_as_they_are() {
        let deep = format!("{}1{}", "{\"a_b\":".repeat(100), "}".repeat(100));
        let mut events = String::new();
        session_and_events(&deep, &mut events);
        assert_eq!(events.matches("aB").count(), MAX_DEPTH);
        assert_eq!(events.matches("a_b").count(), 100 - MAX_DEPTH);
    }
}
