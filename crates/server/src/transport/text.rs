//! An answer as plain text, for the AI SDK's `TextStreamChatTransport` and for terminals.
//!
//! Everything else is left out. If that leaves the reader without an answer, a note in brackets explains why: an open
//! question, or a failure, after which the connection is also aborted, so that programs notice.

use std::io;

use adk_bridge_protocol::wire::sse;
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde::Deserialize;

use crate::chat::readers::Answer;

/// The text of an answer, as it comes.
pub(super) fn of(answer: Answer) -> impl Stream<Item = Result<Bytes, io::Error>> {
    let state = State {
        answer,
        view: View::default(),
    };
    stream::unfold(Some(state), |state| async move {
        let mut state = state?;
        if state.view.has_failed {
            // Lets the reason be written first: a body that fails at once would lose it.
            tokio::task::yield_now().await;
            return Some((Err(io::Error::other("the answer failed")), None));
        }
        loop {
            let Some(piece) = state.answer.recv().await else {
                let cut = io::Error::other("the answer was cut off");
                return (!state.view.is_done).then_some((Err(cut), None));
            };
            let text = state.view.text_of(&piece);
            if !text.is_empty() {
                return Some((Ok(text), Some(state)));
            }
        }
    })
}

struct State {
    answer: Answer,
    view: View,
}

/// What has been read of an answer.
#[derive(Debug, Default)]
struct View {
    /// Calls that have no output yet, with their tools.
    open_calls: Vec<(String, String)>,
    has_text: bool,
    has_failed: bool,
    is_done: bool,
}

/// The fields of a chunk that count here.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Chunk {
    r#type: String,
    delta: String,
    tool_call_id: String,
    tool_name: String,
    finish_reason: String,
    error_text: String,
}

impl View {
    /// The text of a piece, which contains only whole events.
    fn text_of(&mut self, piece: &[u8]) -> Bytes {
        let mut text = String::new();
        for line in piece.split(|byte| *byte == b'\n') {
            let Some(json) = line.strip_prefix(b"data: ") else {
                continue; // A comment, or the empty line after an event.
            };
            if sse::DONE.starts_with(line) {
                self.is_done = true;
            } else if let Ok(chunk) = serde_json::from_slice(json) {
                self.take(chunk, &mut text);
            }
        }
        text.into()
    }

    fn take(&mut self, chunk: Chunk, text: &mut String) {
        match chunk.r#type.as_str() {
            "text-delta" => {
                self.has_text = true;
                text.push_str(&chunk.delta);
            }
            "tool-input-available" => self.open_calls.push((chunk.tool_call_id, chunk.tool_name)),
            "tool-output-available" | "tool-output-error" | "tool-output-denied" => {
                self.open_calls.retain(|(id, _)| *id != chunk.tool_call_id);
            }
            "finish" if chunk.finish_reason == "tool-calls" => {
                let tools: Vec<&str> = self.open_calls.iter().map(|(_, it)| it.as_str()).collect();
                self.note(
                    text,
                    &format!(
                        "This is waiting for your answer to {}, which cannot be sent as plain text: use a client of the UI \
                         message stream.",
                        tools.join(", ")
                    ),
                );
            }
            "error" => {
                self.has_failed = true;
                self.note(text, &chunk.error_text);
            }
            _ => {}
        }
    }

    fn note(&self, text: &mut String, note: &str) {
        if self.has_text {
            text.push_str("\n\n");
        }
        text.push('[');
        text.push_str(note);
        text.push(']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_and_what_the_reader_must_know_is_sent() {
        for (chunks, expected, has_failed) in [
            (
                r#"{"type":"start","messageId":"m"}
                {"type":"reasoning-delta","id":"t1","delta":"hm"}
                {"type":"text-delta","id":"t2","delta":"20 °C"}
                {"type":"text-delta","id":"t2","delta":" \"there\"\n"}
                {"type":"finish","finishReason":"stop"}"#,
                "20 °C \"there\"\n",
                false,
            ),
            (
                r#"{"type":"tool-input-available","toolCallId":"a","toolName":"get_weather","input":{}}
                {"type":"tool-input-available","toolCallId":"b","toolName":"process_payment","input":{}}
                {"type":"tool-output-available","toolCallId":"a","output":1}
                {"type":"finish","finishReason":"tool-calls"}"#,
                "[This is waiting for your answer to process_payment, which cannot be sent as plain text: use a client of \
                 the UI message stream.]",
                false,
            ),
            (
                r#"{"type":"text-delta","id":"t","delta":"Well"}
                {"type":"error","errorText":"the quota is used up"}"#,
                "Well\n\n[the quota is used up]",
                true,
            ),
        ] {
            let mut view = View::default();
            let events: String = chunks
                .lines()
                .map(|json| format!("data: {}\n\n", json.trim()))
                .collect();
            let text = view.text_of(format!(": keep-alive\n\n{events}").as_bytes());
            assert_eq!(String::from_utf8_lossy(&text), expected);
            assert_eq!(view.has_failed, has_failed);
            assert!(!view.is_done);
            view.text_of(sse::DONE);
            assert!(view.is_done);
        }
    }
}
