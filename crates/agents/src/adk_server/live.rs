//! `/run_live` of an ADK server: one open connection for speech, in the session of its chat.
//!
//! ```text
//!            words, audio                         call of a tool of the server
//!   Resting ───────────────▶ Speaking ───────────────────────────────────────▶ Working
//!      ▲                      │   ▲                                             │  turnComplete: not meant
//!      └──── turnComplete ────┘   └──────────── words after the result ─────────┘
//! ```
//!
//! Models of the second generation send `turnComplete` right after a call, so one that comes before any text about the
//! result counts only if nothing follows it. ADK renews its own connection to the model without notice and forgets the
//! current turn, so a turn that falls silent is over, too. The server marks the end of speech for the model on its own,
//! and a model that also gets a key hangs up; the end of the audio has the same effect.

pub(super) mod reading;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use adk_bridge_protocol::audio::PcmFormat;
use adk_bridge_protocol::event::{Event, Part};
use adk_bridge_protocol::json_text::Json;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::StatusCode;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Error;

use super::artifact::{Artifacts, Place};
use super::client::{AdkClient, kind_of};
use super::session::{self, Look, OpenedSession, Session, Telling};
use super::{AdkServer, after, part, tell_of_loss, user_content};
use crate::agent::{BoxFuture, SessionRequest};
use crate::error::{AgentError, AgentErrorKind, place_in_event, shortened};
use crate::live::{
    ConnectError, Connecting, Incoming, IncomingSink, LiveAgent, LiveConnection, LiveInput,
    LiveRequest, Modality, Read, Speaker,
};
use crate::live_socket::LiveSocket;
use reading::{EventReader, Expectation, says};

/// A connection that does not stand by then will not.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// A `turnComplete` before any text about a result counts if nothing follows for this long.
const MEANT: Duration = Duration::from_secs(5);
/// Speech arrives faster than it is played: a model that is silent for this long in the middle of it was lost.
const LOST_WORDS: Duration = Duration::from_secs(15);
/// A question without the beginning of an answer by then was lost: ADK gives no notice when it opens another connection
/// to the model, which does not know the question. Live models begin within seconds.
const LOST_QUESTION: Duration = Duration::from_secs(30);
/// A model that says that it goes on does so, or says that it is done, within this time.
const THINKING: Duration = Duration::from_secs(120);
/// Closed because something went wrong behind the server; the reason begins with the model's own code.
const INTERNAL: u16 = 1011;
const INVALID_ARGUMENT: &str = "1007";
/// The code that stands for a permanent refusal.
const POLICY: u16 = 1008;

/// One connection to `/run_live`.
pub struct AdkConnection {
    socket: LiveSocket,
    client: Arc<AdkClient>,
    modality: Modality,
    reading: EventReader,
    awaited: Expectation,
    brought: bool,
    answers_history: bool,
    /// What the next written message repeats. The session is not known to keep it, so that the next run repeats it, too.
    preamble: Vec<Json>,
    /// They are read before the server's next message.
    artifacts: Artifacts,
    /// Whether the last message was an artifact, in which nobody speaks.
    is_artifact: bool,
}

impl LiveAgent for AdkServer {
    fn model(&self) -> Option<&str> {
        None
    }

    fn connect(&self, request: LiveRequest<'_>) -> Connecting {
        let request = request.into_session();
        let server = self.clone();
        Box::pin(async move {
            let (request, modality) = request?;
            let opened = server.open_live(request, modality).await?;
            Ok(Box::new(opened) as Box<dyn LiveConnection>)
        })
    }
}

impl AdkServer {
    /// Opens a connection in the session of a chat. Dropping the future cancels that.
    async fn open_live(
        self,
        request: SessionRequest,
        modality: Modality,
    ) -> Result<AdkConnection, ConnectError> {
        let client = self.client.for_user(&request.chat.user, &request.trace);
        // A server that cannot be reached is reported by what follows.
        let _ = client.traits().await;
        // It was tried often enough.
        let given_up = |error| ConnectError {
            error,
            code: Some(POLICY),
        };
        let found = in_session(&client, &request).await;
        let (session, answers_history) = found.map_err(given_up)?;
        let preamble = preamble(&client, &request, &session).await;
        let preamble = preamble.map_err(given_up)?;
        // And with it what the files of the past have taken.
        drop(request.store);
        let session = session.id;
        // A model that can only speak closes the connection; its speech has a transcription that can be used instead.
        let traits = client.known_traits().unwrap_or_default();
        let spoken = match traits.only_speaks() || client.only_speaks.load(Ordering::Relaxed) {
            true => Modality::Audio,
            false => modality,
        };
        let opening = async {
            let user = &request.chat.user;
            let token = client
                .token()
                .await
                .map_err(|error| ConnectError { error, code: None })?;
            let request = client.live_request(user, &session, spoken, token.as_ref())?;
            let mut opened = LiveSocket::open(request).await;
            if let Err(Error::Http(response)) = &opened
                && response.status() == StatusCode::UNAUTHORIZED
                && let Some(other) = client.instead_of(token.as_ref()).await
            {
                let request = client.live_request(user, &session, spoken, Some(&other))?;
                opened = LiveSocket::open(request).await;
            }
            opened.map_err(|error| refused(&client, &error))
        };
        let socket = match timeout(CONNECT_TIMEOUT, opening).await {
            Ok(socket) => socket?,
            Err(_) => return Err(unreachable(&client, "it did not answer in time")),
        };
        let place = Place {
            user: request.chat.user,
            session,
        };
        Ok(AdkConnection {
            socket,
            modality: spoken,
            reading: EventReader {
                mute: spoken != modality,
                ..EventReader::default()
            },
            // A connection lasts as long as the conversation, so only the number of waiting ones is bounded.
            artifacts: Artifacts::new(client.clone(), place, usize::MAX),
            client,
            awaited: Expectation::Nothing,
            brought: false,
            answers_history,
            preamble,
            is_artifact: false,
        })
    }
}

impl AdkConnection {
    /// Cancel-safe.
    async fn read_message(&mut self) -> Read {
        if let Some(artifact) = self.artifacts.next().await {
            self.is_artifact = true;
            return Read::Message(artifact.into());
        }
        match self.socket.read().await {
            Read::Closed { code, reason } => {
                let refused = code == INTERNAL && reason.starts_with(INVALID_ARGUMENT);
                if refused && !self.brought && self.modality == Modality::Text {
                    self.client.only_speaks.store(true, Ordering::Relaxed);
                }
                Read::Closed { code, reason }
            }
            read => read,
        }
    }

    fn wait_for(&mut self, awaited: Expectation) {
        self.awaited = awaited;
        let wait = match awaited {
            Expectation::Nothing => None,
            Expectation::Answer => Some(LOST_QUESTION),
            Expectation::Words => Some(LOST_WORDS),
            Expectation::End => Some(MEANT),
            Expectation::More => Some(THINKING),
        };
        self.socket.quiet_at = wait.map(|wait| Instant::now() + wait);
    }
}

impl LiveConnection for AdkConnection {
    fn open_calls(&self) -> &[String] {
        &self.reading.open
    }

    fn send<'c>(&'c mut self, input: LiveInput<'c>) -> BoxFuture<'c, Result<(), AgentError>> {
        let Some(frame) = frame(&input, &mut self.preamble) else {
            return Box::pin(std::future::ready(Ok(())));
        };
        match &input {
            LiveInput::Responses(responses) => {
                let answered = |open: &String| responses.iter().any(|it| it.id == *open);
                self.reading.open.retain(|open| !answered(open));
                self.reading.awaits_words = true;
                self.wait_for(Expectation::Answer);
            }
            LiveInput::Text(_) | LiveInput::Contents { .. } => self.wait_for(Expectation::Answer),
            _ => {}
        }
        Box::pin(self.socket.write(frame))
    }

    fn read(&mut self) -> BoxFuture<'_, Read> {
        Box::pin(self.read_message())
    }

    fn speaker(&self, message: &[u8]) -> Option<Speaker> {
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
        // While a call is open it belongs to the speech before it: new speech would have cancelled the call.
        let is_new = self.open_calls().is_empty();
        heard
            .text
            .is_some_and(|text| !text.is_empty() && is_new)
            .then_some(Speaker::User)
    }

    fn events(&mut self, message: &[u8], sink: IncomingSink<'_>) -> Result<(), AgentError> {
        self.brought = true;
        let unreadable = |detail: String| {
            AgentError::broken(
                "the ADK server sent something that is not an ADK event",
                detail,
            )
        };
        let json = std::str::from_utf8(message).map_err(|error| unreadable(error.to_string()))?;
        let event = Event::parse(json).map_err(|error| unreadable(place_in_event(&error)))?;
        if std::mem::take(&mut self.is_artifact) {
            sink(Incoming::Event(&event));
            return Ok(());
        }
        if let Some(actions) = event.actions.as_deref().filter(|_| !event.is_partial()) {
            self.artifacts.note(actions);
        }
        if let Some(awaited) = self.reading.event(event, json, sink) {
            self.wait_for(awaited);
        }
        Ok(())
    }

    fn on_quiet(&mut self, sink: IncomingSink<'_>) {
        let lost = std::mem::take(&mut self.awaited) == Expectation::Answer;
        self.reading.awaits_words = false;
        self.reading.speaking = false;
        sink(Incoming::Event(&Event {
            error_code: lost.then(|| "NO_ANSWER".into()),
            error_message: lost.then(|| "the agent did not answer; say it again".into()),
            turn_complete: Some(true),
            ..Event::default()
        }));
    }

    fn take_said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.reading.said)
    }

    fn explain_close(&self, code: u16, reason: &str) -> Option<ConnectError> {
        let message = match reason.trim() {
            "" => "the live connection to the ADK server is lost; speak or write again".to_owned(),
            reason => format!(
                "the ADK server ended the live connection: {}",
                shortened(reason)
            ),
        };
        let detail = format!("closed with {code}, {} bytes of text", reason.len());
        Some(ConnectError {
            error: AgentError::unreachable(message, detail),
            code: None,
        })
    }

    /// Whether the last event of the session is from the user or a tool.
    fn answers_history(&self) -> bool {
        self.answers_history
    }

    fn expect_answer(&mut self) {
        self.wait_for(Expectation::Answer);
    }

    /// Waits for the server: its session has one writer at a time.
    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = self.socket.write(bytes(&json!({"close": true}))).await;
            self.socket.hang_up().await;
        })
    }
}

/// The session of the chat, and whether its last event is from the user or a tool.
async fn in_session(
    client: &AdkClient,
    request: &SessionRequest,
) -> Result<(Session, bool), AgentError> {
    let (session, is_asked) = match session::known(client, &*request.store).await? {
        None => (open(client, request, None).await?, false),
        Some(known) => match session::look(client, &request.chat.user, &known.id).await {
            Look::There(found) => {
                let events = found.get("events").unwrap_or_default();
                let contents = events.items().unwrap_or_default().into_iter().rev();
                let mut contents = contents.filter_map(content_of);
                let role = contents.next().and_then(|content| content.get("role"));
                (known, role == Some("user".into()))
            }
            Look::Lost => (open(client, request, Some(&known.id)).await?, false),
            // A server that does not list its sessions may still continue one.
            Look::Unclear => (known, false),
        },
    };
    Ok((session, is_asked))
}

/// What the first written message of a connection has to repeat, which spoken words cannot. Files would make it longer than
/// servers take, and are left out.
async fn preamble(
    client: &AdkClient,
    request: &SessionRequest,
    session: &Session,
) -> Result<Vec<Json>, AgentError> {
    if session.telling != Telling::NextMessage {
        return Ok(Vec::new());
    }
    let chat = &request.chat.id;
    tracing::warn!(
        %chat,
        session = session.id,
        "the ADK server takes no events: the spoken conversation in chat {chat} does not know what was said before; the next written message repeats it as text"
    );
    let mut parts = session::preamble(client, request).await?;
    parts.retain(|part| part.get("text").is_some());
    Ok(parts)
}

/// Creates the session of the chat; `lost` is the id of one that the server does not have any more.
async fn open(
    client: &AdkClient,
    request: &SessionRequest,
    lost: Option<&str>,
) -> Result<Session, AgentError> {
    let opened = session::open(client, request, lost).await?;
    if let OpenedSession::New(session) = &opened
        && lost.is_some()
    {
        match session.telling {
            Telling::AsEvents => tell_of_loss(request, Some(session)),
            Telling::NextMessage | Telling::InMessage => {
                let chat = &request.chat.id;
                tracing::warn!(%chat, session = session.id, "the ADK server had lost the session of chat {chat}");
            }
        }
    }
    Ok(opened.into_session())
}

/// At the top level the server reads names in one form only, and drops others. `preamble` is taken by written words.
fn frame(input: &LiveInput<'_>, preamble: &mut Vec<Json>) -> Option<Vec<u8>> {
    let mut written = |content: &Json| {
        let content = after(std::mem::take(preamble), content);
        bytes(&Json::object([("content", content)]))
    };
    Some(match input {
        LiveInput::Audio(pcm) => {
            // Written by hand, since this frame is sent fifty times a second.
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
            written(&user_content(&[Json::object([("text", (*text).into())])]))
        }
        // The session knows the rest.
        LiveInput::Contents { turns, .. } => written(&Json::of(turns.last()?).unwrap_or_default()),
        LiveInput::Responses(responses) => {
            let parts: Vec<Json> = responses.iter().map(part).collect();
            bytes(&Json::object([("content", user_content(&parts))]))
        }
        LiveInput::ActivityStart => return None,
        LiveInput::ActivityEnd | LiveInput::AudioStreamEnd => {
            bytes(&json!({"audio_stream_end": true}))
        }
    })
}

/// Cannot fail: keys are strings.
fn bytes(frame: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(frame).unwrap_or_default()
}

/// The content of a session's event.
fn content_of(event: &RawValue) -> Option<Json> {
    let content = Json::read_raw(event).ok()?.get("content")?;
    content.is_object().then_some(content)
}

fn refused(client: &AdkClient, error: &Error) -> ConnectError {
    let Error::Http(response) = error else {
        return unreachable(client, &error.to_string());
    };
    let status = response.status();
    let detail = format!("{}: {status}", client.shown());
    let message = match status.as_u16() {
        401 | 403 => {
            let advice = client.advice();
            format!("the ADK server refuses a live connection ({status}); {advice}")
        }
        404 | 405 | 501 => "the ADK server does not support speech; send text instead".to_owned(),
        _ => format!("the ADK server refused a live connection: {status}"),
    };
    let kind = match status.as_u16() {
        // The server does not have this endpoint.
        501 => AgentErrorKind::Rejected,
        _ => kind_of(status, None),
    };
    ConnectError {
        error: AgentError::new(kind, message, detail),
        code: status.is_client_error().then_some(POLICY),
    }
}

fn unreachable(client: &AdkClient, detail: &str) -> ConnectError {
    ConnectError {
        error: AgentError::unreachable(
            "the ADK server cannot be reached for a live connection; is it running?",
            format!("{}: {detail}", client.shown()),
        ),
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
            response: json!({"a": 1}).into(),
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
            let frame = frame(&input, &mut Vec::new())
                .map(|frame| serde_json::from_slice::<serde_json::Value>(&frame).unwrap());
            assert_eq!(frame, expected, "{input:?}");
        }
    }

    #[test]
    fn what_was_said_before_is_repeated_once_and_in_writing() {
        let mut preamble = vec![Json::from(json!({"text": "before"}))];
        frame(&LiveInput::Audio(&[1, 0]), &mut preamble);
        assert_eq!(preamble.len(), 1);
        let mut parts = |text| {
            let frame = frame(&LiveInput::Text(text), &mut preamble).unwrap();
            serde_json::from_slice::<serde_json::Value>(&frame).unwrap()["content"]["parts"].take()
        };
        assert_eq!(parts("hi"), json!([{"text": "before"}, {"text": "hi"}]));
        assert_eq!(parts("so"), json!([{"text": "so"}]));
    }
}
