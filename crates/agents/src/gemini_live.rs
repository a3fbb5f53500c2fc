//! Gemini Live: one upstream connection held open for speech, read as ADK events.
//!
//! Everything is read as [`Incoming`]: events in the form in which ADK's `run_live` gives them, and notices about the
//! connection itself. Renewing a connection is decided in [`renewal`]; nothing here reconnects by itself.

mod incoming;
mod outgoing;
pub mod renewal;

use std::future::Future;
use std::time::Duration;

use adk_bridge_protocol::event::{Content, Event};
use adk_bridge_protocol::outbox::Response;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use crate::agent::AgentError;
use crate::gemini::Settings;
use crate::tool::ToolSpec;
use incoming::Assembly;

/// A connection that does not stand by then, setup included, will not.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// A message that the other side does not take by then never arrives.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// After so much silence the other side is asked whether it is there, and after twice as much it is not.
const SILENCE: Duration = Duration::from_secs(20);
/// Models of the second family say that their turn is complete right after a call; only if nothing follows our response
/// for so long was it meant.
const QUIET: Duration = Duration::from_secs(5);
/// Small, since most connections are silent most of the time; a message may be longer.
const READ_BUFFER_BYTES: usize = 8 * 1024;
const WRITE_BUFFER_BYTES: usize = 8 * 1024;
/// What may wait for the socket: a picture and a second of audio.
const MAX_WRITE_BUFFER_BYTES: usize = 16 * 1024 * 1024;
/// The longest message that is read: some seconds of speech are half a megabyte.
const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;
const PATH: &str = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent";

/// A close without a code, as when the line is cut.
pub const NO_CODE: u16 = 1006;

/// A model behind Google's live interface.
#[derive(Debug, Clone)]
pub struct GeminiLive {
    settings: Settings,
}

/// How a connection begins.
#[derive(Debug)]
pub struct LiveSetup<'s> {
    /// What was said before: everything, or, with a handle, what its session does not know.
    pub contents: Vec<Content<'s>>,
    /// Whether the model shall answer these contents.
    pub answer: bool,
    pub modality: Modality,
    pub activity: Activity,
    pub tools: &'s [ToolSpec],
    /// The session to take up again.
    pub handle: Option<&'s str>,
}

/// How the model answers. A connection has one for all its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modality {
    Audio,
    Text,
}

/// Who says where the user's speech begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// The model hears it.
    Detected,
    /// The user says it, by a key.
    Explicit,
}

/// What is sent.
#[derive(Debug)]
pub enum LiveInput<'i> {
    /// PCM16 mono, 16 kHz.
    Audio(&'i [u8]),
    Video {
        media_type: &'i str,
        data: &'i [u8],
    },
    /// The user's written words.
    Text(&'i str),
    /// Turns of the conversation, to be answered or only to be known.
    Contents {
        turns: &'i [Content<'i>],
        answer: bool,
    },
    ActivityStart,
    ActivityEnd,
    /// No more audio for the time being.
    AudioStreamEnd,
    /// The results of all calls that are open.
    Responses(&'i [Response]),
}

/// What a connection brings.
#[derive(Debug)]
pub enum Incoming<'e> {
    Event(&'e Event<'e>),
    /// The connection is closed in this time.
    GoAway(Duration),
    /// The newest handle; without one, the session cannot be taken up at this moment.
    Resumable(Option<String>),
    /// The model does not wait for the results of these calls any more.
    Cancelled(Vec<String>),
}

/// One side of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    User,
    Model,
}

/// One read of a connection.
#[derive(Debug)]
pub enum Read {
    Message(Bytes),
    /// Nothing came in the time in which something must.
    Quiet,
    Closed {
        code: u16,
        reason: String,
    },
}

/// Takes what a connection brings; it borrows from the message.
pub type IncomingSink<'s> = &'s mut (dyn FnMut(Incoming<'_>) + Send);

#[derive(Debug)]
pub struct LiveConnection {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    assembly: Assembly,
    modality: Modality,
    /// Models of the third family take written words as realtime input only.
    text_is_realtime: bool,
    heard_at: Instant,
    asked: bool,
    quiet_at: Option<Instant>,
}

/// Why a connection was not opened, and with which code the other side closed it.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ConnectError {
    pub error: AgentError,
    pub code: Option<u16>,
}

impl GeminiLive {
    /// The model of these settings is the live one.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    pub fn model(&self) -> &str {
        &self.settings.model
    }

    /// Opens a connection. Dropping the future gives up.
    pub fn connect(
        &self,
        setup: &LiveSetup<'_>,
    ) -> impl Future<Output = Result<LiveConnection, ConnectError>> + Send + use<> {
        let settings = self.settings.clone();
        let opening = Opening::new(&settings, setup);
        async move {
            let asked = opening.modality;
            match opening.open(&settings, asked).await {
                // A model that can only speak says so by refusing; what it says can be read all the same.
                Err(refused) if asked == Modality::Text && refused.code == Some(INVALID) => {
                    tracing::info!(model = settings.model, detail = %refused.error.detail, "the live model does not write; its words are read from its speech");
                    opening.open(&settings, Modality::Audio).await
                }
                opened => opened,
            }
        }
    }
}

/// The code for a message that was not understood.
const INVALID: u16 = 1007;

/// What is sent first, in both modalities.
struct Opening {
    modality: Modality,
    spoken: Vec<u8>,
    written: Vec<u8>,
    contents: Option<Vec<u8>>,
    model_spoke_last: bool,
}

impl Opening {
    fn new(settings: &Settings, setup: &LiveSetup<'_>) -> Self {
        let contents = &setup.contents;
        Self {
            modality: setup.modality,
            spoken: outgoing::setup(settings, setup, Modality::Audio),
            written: outgoing::setup(settings, setup, Modality::Text),
            contents: (!contents.is_empty() || setup.answer)
                .then(|| outgoing::contents(contents, setup.answer)),
            model_spoke_last: contents
                .last()
                .is_some_and(|content| content.role.as_deref() == Some("model")),
        }
    }

    async fn open(
        &self,
        settings: &Settings,
        modality: Modality,
    ) -> Result<LiveConnection, ConnectError> {
        match timeout(CONNECT_TIMEOUT, self.try_open(settings, modality)).await {
            Ok(opened) => opened,
            Err(_) => Err(unreachable(settings, "it did not answer in time")),
        }
    }

    async fn try_open(
        &self,
        settings: &Settings,
        modality: Modality,
    ) -> Result<LiveConnection, ConnectError> {
        let url = address(&settings.base_url);
        let mut request = url
            .as_str()
            .into_client_request()
            .map_err(|error| unreachable(settings, &error.to_string()))?;
        let key = HeaderValue::from_str(&settings.api_key)
            .map_err(|_| unreachable(settings, "the API key cannot be sent in a header"))?;
        request
            .headers_mut()
            .insert(HeaderName::from_static("x-goog-api-key"), key);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(WRITE_BUFFER_BYTES)
            .max_write_buffer_size(MAX_WRITE_BUFFER_BYTES)
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let (socket, _) = connect_async_with_config(request, Some(config), true)
            .await
            .map_err(|error| unreachable(settings, &error.to_string()))?;
        let mut connection = LiveConnection {
            socket,
            assembly: Assembly::new(modality != self.modality, self.model_spoke_last),
            modality,
            text_is_realtime: settings.model.contains("gemini-3"),
            heard_at: Instant::now(),
            asked: false,
            quiet_at: None,
        };
        let setup = match modality {
            Modality::Audio => &self.spoken,
            Modality::Text => &self.written,
        };
        // A refusal may come faster than the setup is sent: its reason is what counts.
        let sent = connection.write(setup.clone()).await;
        loop {
            match connection.read().await {
                Read::Message(message) if incoming::is_setup_complete(&message) => break,
                Read::Message(_) | Read::Quiet => {}
                Read::Closed { code, reason } => {
                    let detail = sent.err().map(|error| error.detail).unwrap_or_default();
                    return Err(ConnectError {
                        error: AgentError {
                            message: format!("the live model refused the connection: {reason}"),
                            detail: format!("closed with {code}: {reason} {detail}"),
                        },
                        code: Some(code),
                    });
                }
            }
        }
        if let Some(contents) = &self.contents {
            connection
                .write(contents.clone())
                .await
                .map_err(|error| ConnectError { error, code: None })?;
        }
        Ok(connection)
    }
}

impl LiveConnection {
    /// How the model really answers: one that only speaks is read where it was asked to write.
    pub fn modality(&self) -> Modality {
        self.modality
    }

    /// Whether the other side waits for the result of this call, named by its own id.
    pub fn knows(&self, call: &str) -> bool {
        self.assembly.knows(call)
    }

    pub fn open_calls(&self) -> &[String] {
        self.assembly.open_calls()
    }

    pub async fn send(&mut self, input: LiveInput<'_>) -> Result<(), AgentError> {
        let message = match &input {
            LiveInput::Audio(pcm) => outgoing::audio(pcm),
            LiveInput::Video { media_type, data } => outgoing::video(media_type, data),
            LiveInput::Text(text) => outgoing::text(text, self.text_is_realtime),
            LiveInput::Contents { turns, answer } => {
                outgoing::placed_contents(turns, *answer, self.assembly.model_spoke_last())
            }
            LiveInput::ActivityStart => outgoing::activity("activityStart"),
            LiveInput::ActivityEnd => outgoing::activity("activityEnd"),
            LiveInput::AudioStreamEnd => outgoing::audio_stream_end(),
            LiveInput::Responses(responses) => outgoing::responses(responses),
        };
        self.assembly.sent(&input);
        if !matches!(input, LiveInput::Audio(_) | LiveInput::Video { .. }) {
            self.quiet_at = None;
        }
        self.write(message).await
    }

    /// The next message. May be dropped and called again. After [`Read::Closed`] there is nothing more.
    pub async fn read(&mut self) -> Read {
        loop {
            let deadline = self.heard_at + if self.asked { 2 * SILENCE } else { SILENCE };
            let quiet_at = self.quiet_at.unwrap_or(deadline);
            tokio::select! {
                biased;
                message = self.socket.next() => {
                    self.heard_at = Instant::now();
                    self.asked = false;
                    match message {
                        Some(Ok(Message::Text(text))) => return Read::Message(text.into()),
                        Some(Ok(Message::Binary(bytes))) => return Read::Message(bytes),
                        Some(Ok(Message::Close(frame))) => {
                            let (code, reason) = frame.map_or((NO_CODE, String::new()), |frame| {
                                (frame.code.into(), frame.reason.as_str().to_owned())
                            });
                            return Read::Closed { code, reason };
                        }
                        Some(Ok(_)) => {}
                        Some(Err(error)) => return Read::Closed { code: NO_CODE, reason: error.to_string() },
                        None => return Read::Closed { code: NO_CODE, reason: "the line was cut".into() },
                    }
                }
                () = sleep_until(quiet_at), if self.quiet_at.is_some() => {
                    self.quiet_at = None;
                    return Read::Quiet;
                }
                () = sleep_until(deadline) => {
                    if self.asked {
                        return Read::Closed { code: NO_CODE, reason: "the live model has gone silent".into() };
                    }
                    self.asked = true;
                    if let Err(error) = self.socket.send(Message::Ping(Bytes::new())).await {
                        return Read::Closed { code: NO_CODE, reason: error.to_string() };
                    }
                }
            }
        }
    }

    /// Hands over what a message says.
    pub fn events(&mut self, message: &[u8], sink: IncomingSink<'_>) -> Result<(), AgentError> {
        if self.assembly.message(message, sink)? {
            self.quiet_at = Some(Instant::now() + QUIET);
        } else if !self.assembly.awaits_words() {
            self.quiet_at = None;
        }
        Ok(())
    }

    /// Nothing followed our response: the turn that was said to be complete was.
    pub fn quiet(&mut self, sink: IncomingSink<'_>) {
        self.assembly.quiet(sink);
    }

    /// Says goodbye. The other side is not waited for.
    pub async fn close(mut self) {
        let _ = timeout(Duration::from_secs(1), self.socket.close(None)).await;
    }

    async fn write(&mut self, message: Vec<u8>) -> Result<(), AgentError> {
        // JSON that was just made is UTF-8.
        let text = String::from_utf8(message).map_err(|error| broken(&error.to_string()))?;
        match timeout(SEND_TIMEOUT, self.socket.send(Message::text(text))).await {
            Ok(Ok(())) => Ok(()),
            // The close frame that explains it is still to be read.
            Ok(Err(Error::ConnectionClosed | Error::AlreadyClosed)) => Err(broken("it is closed")),
            Ok(Err(error)) => Err(broken(&error.to_string())),
            Err(_) => Err(broken("it does not take what is sent")),
        }
    }
}

/// Who speaks in a message, if anybody does: where nobody spoke, a turn begins with it.
pub fn speaker(message: &[u8]) -> Option<Speaker> {
    incoming::speaker(message)
}

/// Where the live interface is, given where the model is.
fn address(base: &str) -> String {
    let base = base.trim_end_matches('/');
    let base = match base.split_once("://") {
        Some(("http", rest)) => format!("ws://{rest}"),
        Some(("https", rest)) => format!("wss://{rest}"),
        _ => base.to_owned(),
    };
    base + PATH
}

fn unreachable(settings: &Settings, detail: &str) -> ConnectError {
    let base = &settings.base_url;
    let host = base.split_once("://").map_or(base.as_str(), |it| it.1);
    let host = host.split(['/', '?']).next().unwrap_or(host);
    ConnectError {
        error: AgentError {
            message: format!("the live model at {host} cannot be reached"),
            detail: detail.to_owned(),
        },
        code: None,
    }
}

fn broken(detail: &str) -> AgentError {
    AgentError {
        message: "the connection to the live model broke".into(),
        detail: detail.to_owned(),
    }
}

/// Google's name for a response's token count in a live session, and the one that everybody else uses.
const USAGE_NAMES: [(&str, &str); 2] = [
    ("responseTokenCount", "candidatesTokenCount"),
    ("responseTokensDetails", "candidatesTokensDetails"),
];

fn usage(mut usage: Value) -> Value {
    if let Some(fields) = usage.as_object_mut() {
        for (live, usual) in USAGE_NAMES {
            if let Some(value) = fields.remove(live) {
                fields.insert(usual.into(), value);
            }
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (base, expected) in [
            ("https://example.com", "wss://example.com"),
            ("http://127.0.0.1:1/", "ws://127.0.0.1:1"),
            ("ws://127.0.0.1:1", "ws://127.0.0.1:1"),
            ("wss://example.com/proxy", "wss://example.com/proxy"),
        ] {
            assert_eq!(address(base), format!("{expected}{PATH}"));
        }
    }
}
