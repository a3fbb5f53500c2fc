//! One run of an ADK server: its events as they come, and the artifacts that they speak of.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use adk_bridge_protocol::event::{Actions, Event};
use adk_bridge_protocol::wire::sse::{Ending, MAX_EVENT_BYTES, SseError, SseParser};
use bytes::Bytes;

use super::Told;
use super::artifact::{self, Place};
use super::talk::Talk;
use crate::agent::{AgentError, EventSink};

/// How many complete events one run may have, and how long they may be together: each is kept, and no agent comes near.
const MAX_EVENTS: usize = 10_000;
const MAX_SAID_BYTES: usize = 128 * 1024 * 1024;
/// How many artifacts of one run are shown; a run that saves more is no answer to a person.
pub(super) const MAX_ARTIFACTS: usize = 64;

/// One answer of an ADK server, as it comes.
pub struct AdkRun {
    talk: Arc<Talk>,
    response: reqwest::Response,
    place: Place,
    parser: SseParser,
    /// Events of the bridge's own, which come before what the network brings.
    own: VecDeque<Bytes>,
    /// Whether the last piece was one of those.
    is_own: bool,
    wanted: VecDeque<Wanted>,
    artifacts: usize,
    fetching: Option<Pin<Box<dyn Future<Output = Option<String>> + Send>>>,
    said: Vec<String>,
    /// How many complete events there were, and how long they were.
    complete: (usize, usize),
    /// The first line that was no event.
    unreadable: Option<String>,
    over: bool,
}

/// An artifact that was saved.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) version: Option<u64>,
}

impl AdkRun {
    pub(super) fn new(
        talk: Arc<Talk>,
        response: reqwest::Response,
        place: Place,
        told: Told,
    ) -> Self {
        Self {
            talk,
            response,
            place,
            parser: SseParser::new(MAX_EVENT_BYTES),
            own: told.answered.into_iter().map(Bytes::from).collect(),
            is_own: false,
            wanted: VecDeque::new(),
            artifacts: 0,
            fetching: None,
            said: told.kept.into_iter().collect(),
            complete: (0, 0),
            unreadable: None,
            over: false,
        }
    }

    /// The next piece of the answer, as the network brings it; nothing at its end. May be dropped and called again.
    pub(crate) async fn read(&mut self) -> Result<Option<Bytes>, AgentError> {
        loop {
            if let Some(piece) = self.own.pop_front() {
                self.is_own = true;
                return Ok(Some(piece));
            }
            if self.fetching.is_none()
                && let Some(wanted) = self.wanted.pop_front()
            {
                let fetch = artifact::fetch(self.talk.clone(), self.place.clone(), wanted);
                self.fetching = Some(Box::pin(fetch));
            }
            if let Some(fetching) = &mut self.fetching {
                let fetched = fetching.await;
                self.fetching = None;
                self.own.extend(fetched.map(Bytes::from));
                continue;
            }
            if self.over {
                return Ok(None);
            }
            let read = self.response.chunk().await;
            match read.map_err(|error| self.talk.broken(&error))? {
                Some(piece) => return Ok(Some(piece)),
                None => self.over = true,
            }
        }
    }

    /// Hands the events of a piece to the sink.
    pub(crate) fn events(&mut self, piece: &[u8], sink: EventSink<'_>) -> Result<(), AgentError> {
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
            match Event::parse(event.data) {
                Ok(event_read) => {
                    if !event_read.is_partial() {
                        self.complete.0 += 1;
                        self.complete.1 += event.data.len();
                        if self.complete.0 > MAX_EVENTS || self.complete.1 > MAX_SAID_BYTES {
                            return Err(AgentError {
                                message: format!(
                                    "the run of the ADK server at {} does not come to an end; ask again or more precisely",
                                    self.talk.shown()
                                ),
                                detail: format!("{:?} events and bytes", self.complete),
                            });
                        }
                        self.said.push(event.data.to_owned());
                        let wanted = event_read.actions.as_deref().map(artifacts_of);
                        for wanted in wanted.into_iter().flatten() {
                            if self.artifacts < MAX_ARTIFACTS {
                                self.artifacts += 1;
                                self.wanted.push_back(wanted);
                            }
                        }
                    }
                    sink(&event_read);
                }
                // Some servers say that they are done.
                Err(_) if matches!(event.data.trim(), "" | "[DONE]") => {}
                // The run goes on: its tools may be at work.
                Err(error) => {
                    self.unreadable.get_or_insert_with(|| error.to_string());
                }
            }
        }
    }

    /// The answer is over: says whether all of it could be read.
    pub(crate) fn finish(&mut self) -> Result<(), AgentError> {
        let cut = match self.parser.finish() {
            Ok(Ending::Complete) => false,
            Ok(Ending::Truncated { .. }) => true,
            Err(error) => return Err(self.broken(&error)),
        };
        if cut {
            return Err(AgentError {
                message: format!(
                    "the answer of the ADK server at {} was cut off; try again",
                    self.talk.shown()
                ),
                detail: "the stream ended in the middle of an event".into(),
            });
        }
        match self.unreadable.take() {
            None => Ok(()),
            Some(detail) => Err(AgentError {
                message: format!(
                    "the ADK server at {} sent something that is no ADK event, so a part of the answer may be missing",
                    self.talk.shown()
                ),
                detail,
            }),
        }
    }

    /// What is to be remembered of the run since the last time.
    pub(crate) fn take_said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    fn broken(&self, error: &SseError) -> AgentError {
        AgentError {
            message: format!(
                "the answer of the ADK server at {} cannot be read",
                self.talk.shown()
            ),
            detail: error.to_string(),
        }
    }
}

pub(super) fn artifacts_of(actions: &Actions) -> impl Iterator<Item = Wanted> {
    actions.artifact_delta.iter().map(|(name, version)| Wanted {
        name: name.clone(),
        version: version.as_u64(),
    })
}

impl std::fmt::Debug for AdkRun {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("AdkRun")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}
