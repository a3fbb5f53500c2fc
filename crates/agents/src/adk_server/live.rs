//! `/run_live` of an ADK server: one connection held open for speech, in the session of its chat.
//!
//! ```text
//!            words, audio                         call of a tool of the server
//!   Resting ───────────────▶ Speaking ───────────────────────────────────────▶ Working
//!      ▲                      │   ▲                                             │  turnComplete: not meant
//!      └──── turnComplete ────┘   └──────────── words after the result ─────────┘
//! ```
//!
//! Models of the second family say `turnComplete` right after a call, so one that comes before any word about the result
//! counts only if nothing follows it. ADK renews its own connection to the model without a word and forgets the turn
//! that was under way, so a turn that has gone silent is over, too. The server tells models where speech ends by
//! itself, and one that is told so by a key hangs up; the end of the audio says the same.

mod reading;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use adk_bridge_protocol::audio::PcmFormat;
use adk_bridge_protocol::event::{Event, Part};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Error;

use super::artifact::{self, Place};
use super::run::{MAX_ARTIFACTS, Wanted, artifacts_of};
use super::session::{self, Opened};
use super::talk::{Failure, Talk};
use super::{AdkServer, part};
use crate::agent::{AgentError, SessionRequest};
use crate::gemini_live::{ConnectError, Incoming, IncomingSink, LiveInput, Modality, Speaker};
use crate::live_socket::{LiveSocket, Read};
use reading::{Awaited, Reading, says};

/// A connection that does not stand by then will not.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// A turn that was said to be complete before anything was said about a result is, if nothing follows for so long.
const MEANT: Duration = Duration::from_secs(5);
/// Speech comes faster than it is heard: a model that has been silent for so long in the middle of it was lost.
const LOST_WORDS: Duration = Duration::from_secs(15);
/// A question that nobody has begun to answer by then was lost: ADK does not tell when it takes another connection to the
/// model, which knows nothing of it. Models that listen begin within seconds.
const LOST_QUESTION: Duration = Duration::from_secs(30);
/// Closed because something went wrong behind the server; the reason begins with the model's own code.
const INTERNAL: u16 = 1011;
const INVALID_ARGUMENT: &str = "1007";
/// What a refusal that will not change is taken for.
const POLICY: u16 = 1008;

/// One connection to `/run_live`.
pub struct AdkConnection {
    socket: LiveSocket,
    talk: Arc<Talk>,
    modality: Modality,
    reading: Reading,
    awaited: Awaited,
    brought: bool,
    answers_history: bool,
    place: Place,
    /// What was saved and has not been brought; it comes before what the server says next.
    wanted: VecDeque<Wanted>,
    fetching: Option<Pin<Box<dyn Future<Output = Option<String>> + Send>>>,
    /// Whether the last message was an artifact, which is nobody's speech.
    is_artifact: bool,
}

impl AdkServer {
    /// Opens a connection in the session of a chat. Dropping the future gives up.
    pub async fn live(
        self,
        request: SessionRequest,
        modality: Modality,
    ) -> Result<AdkConnection, ConnectError> {
        let talk = self.talk;
        let (session, answers_history) = match in_session(&talk, &request).await {
            Ok(found) => found,
            // It was tried often enough.
            Err(error) => {
                let code = Some(POLICY);
                return Err(ConnectError { error, code });
            }
        };
        // A model that can only speak has said so by hanging up; what it says can be read all the same.
        let spoken = match talk.only_speaks.load(Ordering::Relaxed) {
            true => Modality::Audio,
            false => modality,
        };
        let opening = async {
            let request = talk.live_request(&request.user, &session, spoken)?;
            let opened = LiveSocket::open(request).await;
            opened.map_err(|error| refused(&talk, &error))
        };
        let socket = match timeout(CONNECT_TIMEOUT, opening).await {
            Ok(socket) => socket?,
            Err(_) => return Err(unreachable(&talk, "it did not answer in time")),
        };
        Ok(AdkConnection {
            socket,
            modality: spoken,
            reading: Reading {
                mute: spoken != modality,
                ..Reading::default()
            },
            talk,
            awaited: Awaited::Nothing,
            brought: false,
            answers_history,
            place: Place {
                user: request.user,
                session,
            },
            wanted: VecDeque::new(),
            fetching: None,
            is_artifact: false,
        })
    }
}

impl AdkConnection {
    pub(crate) fn open_calls(&self) -> &[String] {
        &self.reading.open
    }

    /// Whether the user, or a tool, had the last word in the session: the server then has it answered unasked.
    pub fn answers_history(&self) -> bool {
        self.answers_history
    }

    /// Something was asked before it stood: an answer is due.
    pub fn expect_answer(&mut self) {
        self.wait_for(Awaited::Answer);
    }

    pub(crate) async fn send(&mut self, input: LiveInput<'_>) -> Result<(), AgentError> {
        let Some(frame) = frame(&input) else {
            return Ok(());
        };
        match &input {
            LiveInput::Responses(responses) => {
                let answered = |open: &String| responses.iter().any(|it| it.id == *open);
                self.reading.open.retain(|open| !answered(open));
                self.reading.awaits_words = true;
                self.wait_for(Awaited::Answer);
            }
            LiveInput::Text(_) | LiveInput::Contents { .. } => self.wait_for(Awaited::Answer),
            _ => {}
        }
        self.socket.write(frame).await
    }

    /// May be dropped and called again.
    pub(crate) async fn read(&mut self) -> Read {
        while let Some(wanted) = self.next_wanted() {
            let artifact = wanted.await;
            self.fetching = None;
            if let Some(artifact) = artifact {
                self.is_artifact = true;
                return Read::Message(artifact.into());
            }
        }
        match self.socket.read().await {
            Read::Closed { code, reason } => {
                let refused = code == INTERNAL && reason.starts_with(INVALID_ARGUMENT);
                if refused && !self.brought && self.modality == Modality::Text {
                    self.talk.only_speaks.store(true, Ordering::Relaxed);
                }
                Read::Closed { code, reason }
            }
            read => read,
        }
    }

    fn next_wanted(&mut self) -> Option<&mut Pin<Box<dyn Future<Output = Option<String>> + Send>>> {
        if self.fetching.is_none() {
            let wanted = self.wanted.pop_front()?;
            let fetch = artifact::fetch(self.talk.clone(), self.place.clone(), wanted);
            self.fetching = Some(Box::pin(fetch));
        }
        self.fetching.as_mut()
    }

    pub(crate) fn speaker(&self, message: &[u8]) -> Option<Speaker> {
        if self.is_artifact {
            return None;
        }
        let event = std::str::from_utf8(message).ok();
        let event = event.and_then(|json| Event::parse(json).ok())?;
        let calls = |part: &Part<'_>| part.function_call.is_some() && !event.is_partial();
        if says(&event) || event.parts().iter().any(calls) && !event.is_from_user() {
            return Some(Speaker::Model);
        }
        let heard = event.input_transcription?;
        heard
            .text
            .is_some_and(|text| !text.is_empty())
            .then_some(Speaker::User)
    }

    pub(crate) fn events(
        &mut self,
        message: &[u8],
        sink: IncomingSink<'_>,
    ) -> Result<(), AgentError> {
        self.brought = true;
        let unreadable = |detail: String| AgentError {
            message: format!(
                "the ADK server at {} sent something that is no ADK event",
                self.talk.shown()
            ),
            detail,
        };
        let json = std::str::from_utf8(message).map_err(|error| unreadable(error.to_string()))?;
        let event = Event::parse(json).map_err(|error| unreadable(error.to_string()))?;
        if std::mem::take(&mut self.is_artifact) {
            sink(Incoming::Event(&event));
            return Ok(());
        }
        let actions = event.actions.as_deref().filter(|_| !event.is_partial());
        for wanted in actions.into_iter().flat_map(artifacts_of) {
            if self.wanted.len() < MAX_ARTIFACTS {
                self.wanted.push_back(wanted);
            }
        }
        if let Some(awaited) = self.reading.event(event, json, sink) {
            self.wait_for(awaited);
        }
        Ok(())
    }

    pub(crate) fn quiet(&mut self, sink: IncomingSink<'_>) {
        let lost = std::mem::take(&mut self.awaited) == Awaited::Answer;
        self.reading.awaits_words = false;
        self.reading.speaking = false;
        sink(Incoming::Event(&Event {
            error_code: lost.then(|| "NO_ANSWER".into()),
            error_message: lost.then(|| "the agent did not answer; say it again".into()),
            turn_complete: Some(true),
            ..Event::default()
        }));
    }

    pub(crate) fn take_said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.reading.said)
    }

    /// Why it is of no use to a user, in words to act on.
    pub fn lost(&self, reason: &str) -> AgentError {
        AgentError {
            message: match reason.trim() {
                "" => format!(
                    "the live connection to the ADK server at {} is lost; speak or write again",
                    self.talk.shown()
                ),
                reason => format!(
                    "the ADK server at {} ended the live connection: {reason}",
                    self.talk.shown()
                ),
            },
            detail: reason.to_owned(),
        }
    }

    pub(crate) async fn close(mut self) {
        let _ = self.socket.write(bytes(&json!({"close": true}))).await;
        self.socket.hang_up().await;
    }

    fn wait_for(&mut self, awaited: Awaited) {
        self.awaited = awaited;
        let wait = match awaited {
            Awaited::Nothing => None,
            Awaited::Answer => Some(LOST_QUESTION),
            Awaited::Words => Some(LOST_WORDS),
            Awaited::End => Some(MEANT),
        };
        self.socket.quiet_at = wait.map(|wait| Instant::now() + wait);
    }
}

/// The session of the chat, and whether the user, or a tool, had the last word in it.
async fn in_session(talk: &Talk, request: &SessionRequest) -> Result<(String, bool), AgentError> {
    let Some(known) = session::known(talk, &*request.memory).await? else {
        let opened = session::open(talk, request, None).await?;
        return Ok((opened.into_session().id, false));
    };
    let path = [
        "apps",
        talk.app(),
        "users",
        &request.user,
        "sessions",
        &known.id,
    ];
    match talk.get(&path).await {
        Ok(found) => {
            let events = found.get("events").and_then(Value::as_array);
            let said = |event: &&Value| event["content"].is_object();
            let last = events.and_then(|events| events.iter().rfind(said));
            let users = last.is_some_and(|event| event["content"]["role"] == "user");
            Ok((known.id, users))
        }
        Err(Failure::NotFound(_)) => match session::open(talk, request, Some(&known.id)).await? {
            Opened::New(session) => {
                tracing::warn!(chat = %request.chat_id, session = %session.id, "the ADK server had lost the session of chat {}; it was told the conversation again", request.chat_id);
                Ok((session.id, false))
            }
            Opened::There(session) => Ok((session.id, false)),
        },
        // Whoever cannot be asked about a session may still take up a conversation.
        Err(_) => Ok((known.id, false)),
    }
}

/// The server reads names of one form only at the top, and drops what has another.
fn frame(input: &LiveInput<'_>) -> Option<Vec<u8>> {
    Some(match input {
        LiveInput::Audio(pcm) => {
            // Made by hand: this is the frame that comes fifty times a second.
            let mut frame = format!(
                r#"{{"blob":{{"mime_type":"{}","data":""#,
                PcmFormat::MICROPHONE
            );
            STANDARD.encode_string(pcm, &mut frame);
            frame.push_str(r#""}}"#);
            frame.into_bytes()
        }
        LiveInput::Video { media_type, data } => {
            bytes(&json!({"blob": {"mime_type": media_type, "data": STANDARD.encode(data)}}))
        }
        LiveInput::Text(text) => {
            bytes(&json!({"content": {"role": "user", "parts": [{"text": text}]}}))
        }
        // The session knows the rest.
        LiveInput::Contents { turns, .. } => bytes(&json!({"content": turns.last()?})),
        LiveInput::Responses(responses) => {
            let parts: Vec<Value> = responses.iter().map(part).collect();
            bytes(&json!({"content": {"role": "user", "parts": parts}}))
        }
        LiveInput::ActivityStart => return None,
        LiveInput::ActivityEnd | LiveInput::AudioStreamEnd => {
            bytes(&json!({"audio_stream_end": true}))
        }
    })
}

/// What is made here has text for keys and fits into memory, so it can be written.
fn bytes(frame: &Value) -> Vec<u8> {
    frame.to_string().into_bytes()
}

fn refused(talk: &Talk, error: &Error) -> ConnectError {
    let Error::Http(response) = error else {
        return unreachable(talk, &error.to_string());
    };
    let status = response.status();
    let (place, detail) = (talk.shown(), status.to_string());
    let message = match status.as_u16() {
        401 | 403 => format!(
            "the ADK server at {place} refuses a live connection ({status}); see agent.headers"
        ),
        404 | 405 | 501 => {
            format!("the ADK server at {place} cannot be spoken with; write to it instead")
        }
        _ => format!("the ADK server at {place} refused a live connection: {status}"),
    };
    ConnectError {
        error: AgentError { message, detail },
        code: status.is_client_error().then_some(POLICY),
    }
}

fn unreachable(talk: &Talk, detail: &str) -> ConnectError {
    ConnectError {
        error: AgentError {
            message: format!(
                "the ADK server at {} cannot be reached for a live connection; is it running?",
                talk.shown()
            ),
            detail: detail.to_owned(),
        },
        code: None,
    }
}

impl std::fmt::Debug for AdkConnection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("AdkConnection")
            .field("modality", &self.modality)
            .field("awaited", &self.awaited)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use adk_bridge_protocol::event::Content;
    use adk_bridge_protocol::outbox::Response;

    use super::*;

    #[test]
    fn frames_have_the_names_that_are_read() {
        let responses = [Response {
            id: "1".into(),
            name: "t".into(),
            response: json!({"a": 1}),
        }];
        let turns = [Content::new("user", vec![Part::text("hi")])];
        for (input, expected) in [
            (
                LiveInput::Audio(&[1, 0]),
                Some(json!({"blob": {"mime_type": "audio/pcm;rate=16000", "data": "AQA="}})),
            ),
            (
                LiveInput::Video {
                    media_type: "image/png",
                    data: &[255],
                },
                Some(json!({"blob": {"mime_type": "image/png", "data": "/w=="}})),
            ),
            (
                LiveInput::Text("hi"),
                Some(json!({"content": {"role": "user", "parts": [{"text": "hi"}]}})),
            ),
            (
                LiveInput::Contents {
                    turns: &turns,
                    answer: true,
                },
                Some(json!({"content": {"role": "user", "parts": [{"text": "hi"}]}})),
            ),
            (
                LiveInput::Responses(&responses),
                Some(json!({"content": {"role": "user", "parts": [
                    {"functionResponse": {"id": "1", "name": "t", "response": {"a": 1}}},
                ]}})),
            ),
            (
                LiveInput::AudioStreamEnd,
                Some(json!({"audio_stream_end": true})),
            ),
            (
                LiveInput::ActivityEnd,
                Some(json!({"audio_stream_end": true})),
            ),
            (LiveInput::ActivityStart, None),
        ] {
            let frame = frame(&input).map(|frame| serde_json::from_slice::<Value>(&frame).unwrap());
            assert_eq!(frame, expected, "{input:?}");
        }
    }
}
