//! One run of an ADK server: its events as they come, and the artifacts that they name.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::wire::sse::{Ending, MAX_EVENT_BYTES, SseError, SseParser};
use bytes::Bytes;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::RunStart;
use super::artifact::{Artifacts, MAX_ARTIFACTS, Place};
use super::client::AdkClient;
use super::engine::EngineLines;
use crate::agent::{AgentRun, BoxFuture, EventSink};
use crate::error::{AgentError, place_in_event, shortened};
use crate::silence::Patience;

/// How many complete events one run may have, and how long they may be together: each is stored, and real agents stay
/// far below.
const MAX_EVENTS: usize = 10_000;
const MAX_SAID_BYTES: usize = 128 * 1024 * 1024;

/// One run of an ADK server, read as it comes.
pub struct AdkRun {
    client: Arc<AdkClient>,
    body: Body,
    artifacts: Artifacts,
    patience: Patience,
    began: Instant,
    parser: SseParser,
    /// Events of the bridge itself, which come before those from the network.
    own: VecDeque<Bytes>,
    /// Whether the last piece was one of those.
    is_own: bool,
    said: Vec<String>,
    /// How many complete events there were, and how long they were.
    complete: (usize, usize),
    /// The first line that was not an event.
    unreadable: Option<String>,
    over: bool,
}

/// The answer to a run, as server-sent events.
pub(super) enum Body {
    Events(reqwest::Response),
    Lines(Box<EngineLines>),
}

impl Body {
    /// Cancel-safe.
    async fn chunk(&mut self) -> Result<Option<Bytes>, reqwest::Error> {
        match self {
            Self::Events(response) => response.chunk().await,
            Self::Lines(lines) => lines.chunk().await,
        }
    }
}

impl AdkRun {
    pub(super) fn new(
        client: Arc<AdkClient>,
        body: Body,
        place: Place,
        start: RunStart,
        silence: Duration,
    ) -> Self {
        Self {
            artifacts: Artifacts::new(client.clone(), place, MAX_ARTIFACTS),
            client,
            body,
            patience: Patience::new(silence),
            began: Instant::now(),
            parser: SseParser::new(MAX_EVENT_BYTES),
            own: start.answered.into_iter().map(Bytes::from).collect(),
            is_own: false,
            said: start.kept.into_iter().collect(),
            complete: (0, 0),
            unreadable: None,
            over: false,
        }
    }

    async fn read_piece(&mut self) -> Result<Option<Bytes>, AgentError> {
        if let Some(piece) = self.own.pop_front() {
            self.is_own = true;
            return Ok(Some(piece));
        }
        loop {
            if let Some(artifact) = self.artifacts.next().await {
                self.is_own = true;
                return Ok(Some(artifact.into()));
            }
            if self.over {
                return Ok(None);
            }
            let read = self.patience.wait_for(self.body.chunk()).await;
            let read = read.map_err(|silent| self.client.silent(&silent))?;
            match read.map_err(|error| self.client.broken(&error, self.began.elapsed()))? {
                Some(piece) => return Ok(Some(piece)),
                None => self.over = true,
            }
        }
    }

    fn broken(&self, error: &SseError) -> AgentError {
        AgentError::broken(
            "the answer of the ADK server cannot be parsed",
            error.to_string(),
        )
    }
}

impl AgentRun for AdkRun {
    fn read(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, AgentError>> {
        Box::pin(self.read_piece())
    }

    fn events(&mut self, piece: &[u8], sink: EventSink<'_>) -> Result<(), AgentError> {
        if std::mem::take(&mut self.is_own) {
            let event = std::str::from_utf8(piece).ok();
            if let Some(event) = event.and_then(|json| Event::parse(json).ok()) {
                sink(&event);
            }
            return Ok(());
        }
        let mut rest = piece;
        loop {
            let event = match self.parser.next(&mut rest) {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.broken(&error)),
            };
            self.patience.renew();
            match Event::parse(event.data) {
                Ok(event_read) => {
                    if !event_read.is_partial() {
                        self.complete.0 += 1;
                        self.complete.1 += event.data.len();
                        if self.complete.0 > MAX_EVENTS || self.complete.1 > MAX_SAID_BYTES {
                            return Err(AgentError::broken(
                                "the run of the ADK server does not end; try again with a more specific question",
                                format!("{:?} events and bytes", self.complete),
                            ));
                        }
                        self.said.push(event.data.to_owned());
                        if let Some(actions) = event_read.actions.as_deref() {
                            self.artifacts.note(actions);
                        }
                    }
                    sink(&event_read);
                }
                // Some servers mark the end.
                Err(_) if matches!(event.data.trim(), "" | "[DONE]") => {}
                // The run continues: its tools may be running.
                Err(error) => match unescaped_error(event.data) {
                    Some(said) => sink(&Event {
                        error: Some(Cow::Owned(said)),
                        ..Event::default()
                    }),
                    None => {
                        self.unreadable
                            .get_or_insert_with(|| place_in_event(&error));
                    }
                },
            }
        }
    }

    fn finish(&mut self, _sink: EventSink<'_>) -> Result<(), AgentError> {
        let cut = match self.parser.finish() {
            Ok(Ending::Complete) => false,
            Ok(Ending::Truncated { .. }) => true,
            Err(error) => return Err(self.broken(&error)),
        };
        if cut {
            return Err(AgentError::broken(
                "the answer of the ADK server was cut off; try again",
                "the stream ended in the middle of an event",
            ));
        }
        match self.unreadable.take() {
            None => Ok(()),
            Some(detail) => Err(AgentError::broken(
                "the ADK server sent something that is not an ADK event, so a part of the answer may be missing",
                detail,
            )),
        }
    }

    fn take_said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }
}

/// The failure of a run as google-adk before 1.25 writes it: `{"error": "WORDS"}` with the words as they are. Quotes make it
/// invalid, and a line break ends it.
fn unescaped_error(line: &str) -> Option<Box<RawValue>> {
    let rest = line.trim().strip_prefix('{')?.trim_start();
    let rest = rest.strip_prefix("\"error\"")?.trim_start();
    let rest = rest.strip_prefix(':')?.trim_start();
    let words = rest.strip_prefix('"')?;
    let words = words.strip_suffix('}').map_or(words, str::trim_end);
    let words = words.strip_suffix('"').unwrap_or(words);
    to_raw_value(&shortened(words.trim())).ok()
}

impl std::fmt::Debug for AdkRun {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AdkRun").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_was_not_escaped_is_read() {
        for (line, words) in [
            (
                r#"{"error": "Model "x" is unknown"}"#,
                Some(r#"Model "x" is unknown"#),
            ),
            (
                r#"{"error": "the first of two lines"#,
                Some("the first of two lines"),
            ),
            (r#" { "error" : "C:\new"} "#, Some(r"C:\new")),
            (r#"{"error": "he said "stop""}"#, Some(r#"he said "stop""#)),
            (r#"{"error": {"a": }"#, None),
            (r#"{"errors": "x"#, None),
            (r#"{"content": "error"#, None),
            ("", None),
        ] {
            let read =
                unescaped_error(line).map(|raw| serde_json::from_str::<String>(raw.get()).unwrap());
            assert_eq!(read.as_deref(), words, "{line}");
        }
        let long = format!("{{\"error\": \"{}", "x".repeat(100_000));
        assert!(unescaped_error(&long).unwrap().get().len() < 1_000);
    }
}
