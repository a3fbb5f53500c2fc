//! Gemini Live: one open connection for speech, read as ADK events.
//!
//! Everything is read as [`Incoming`](crate::live::Incoming): events in the form of ADK's `run_live`, and notices about
//! the connection itself.

mod background;
mod generation;
mod incoming;
mod outgoing;

use std::future::Future;
use std::time::Duration;

use adk_bridge_protocol::id::UserId;
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::StatusCode;

use crate::agent::BoxFuture;
use crate::error::{AgentError, AgentErrorKind, shortened, withheld};
use crate::gemini::{Access, KEY_HEADER, Refusal, Settings, key_header};
use crate::live::{
    ConnectError, Connecting, IncomingSink, LiveAgent, LiveConnection, LiveInput, LiveRequest,
    LiveSetup, Modality, Read, Speaker,
};
use crate::live_socket::LiveSocket;
use crate::token::{Token, TokenError};
use crate::trace_context::TraceContext;
pub use generation::Generation;
pub(crate) use incoming::Assembly;

/// A connection that is not open and set up by then never will be.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const PATH: &str = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent";
const VERTEX_PATH: &str = "/ws/google.cloud.aiplatform.v1beta1.LlmBidiService/BidiGenerateContent";

/// A model behind Google's live interface.
#[derive(Debug, Clone)]
pub struct GeminiLive {
    settings: Settings,
    access: Access,
    generation: Generation,
}

/// One connection to such a model.
#[derive(Debug)]
pub struct GeminiConnection {
    socket: LiveSocket,
    assembly: Assembly,
    modality: Modality,
    generation: Generation,
    model: String,
}

impl GeminiLive {
    /// The model of these settings is the live one.
    pub fn new(settings: Settings) -> Self {
        let access = Access::Key(settings.api_key.clone());
        Self::with_access(settings, access)
    }

    pub(crate) fn with_access(settings: Settings, access: Access) -> Self {
        Self {
            generation: Generation::of(&settings.model),
            settings,
            access,
        }
    }

    /// Treats the model as one of this generation, whatever its name says.
    #[must_use]
    pub fn acting_like(self, generation: Generation) -> Self {
        Self { generation, ..self }
    }

    /// Opens a connection. Dropping the future gives up.
    pub fn open(
        &self,
        setup: &LiveSetup<'_>,
    ) -> impl Future<Output = Result<GeminiConnection, ConnectError>> + Send + use<> {
        let opening = Opening::new(self, setup);
        async move {
            let asked = match opening.generation.may_write() {
                true => opening.modality,
                false => Modality::Audio,
            };
            match opening.open(asked).await {
                // A model that can only speak refuses text; its speech has a transcription that can be used instead.
                Err(refused) if asked == Modality::Text && refused.code == Some(INVALID) => {
                    tracing::info!(
                        model = opening.settings.model,
                        detail = refused.error.detail(),
                        "the live model does not write text; its speech is transcribed"
                    );
                    opening.open(Modality::Audio).await
                }
                opened => opened,
            }
        }
    }
}

/// The codes for a message that was not understood, and for a model or a session that does not exist.
const INVALID: u16 = 1007;
const NOT_FOUND: u16 = 1008;
/// Since the third generation, models do not answer the history of a new connection, only new input; Google's own agent kit
/// sends the same text to make them answer.
const ANSWER_TRIGGER: &str = ".";

/// The first messages, in both modalities.
struct Opening {
    settings: Settings,
    access: Access,
    user: UserId,
    trace: TraceContext,
    generation: Generation,
    modality: Modality,
    spoken: Vec<u8>,
    written: Vec<u8>,
    contents: Option<Vec<u8>>,
    /// What makes the model answer these contents, if they alone do not.
    trigger: Option<Vec<u8>>,
    model_spoke_last: bool,
}

impl Opening {
    fn new(live: &GeminiLive, setup: &LiveSetup<'_>) -> Self {
        let (generation, contents) = (live.generation, &setup.contents);
        let model = live.access.model_path(&live.settings.model);
        let instruction = live.settings.instruction.as_deref();
        let message = |modality| outgoing::setup(&model, instruction, generation, setup, modality);
        let is_history = outgoing::has_history(generation, setup);
        Self {
            settings: live.settings.clone(),
            access: live.access.clone(),
            user: setup.user.clone(),
            trace: setup.trace.clone(),
            generation,
            modality: setup.modality,
            spoken: message(Modality::Audio),
            written: message(Modality::Text),
            // The model waits until a history is complete.
            contents: (!contents.is_empty() || setup.answer)
                .then(|| outgoing::contents(contents, setup.answer || is_history)),
            trigger: (setup.answer && is_history).then(|| outgoing::text(ANSWER_TRIGGER, true)),
            model_spoke_last: contents
                .last()
                .is_some_and(|content| content.role.as_deref() == Some("model")),
        }
    }

    async fn open(&self, modality: Modality) -> Result<GeminiConnection, ConnectError> {
        match timeout(CONNECT_TIMEOUT, self.try_open(modality)).await {
            Ok(opened) => opened,
            Err(_) => Err(not_opened(
                &self.settings,
                AgentErrorKind::Unreachable,
                "it did not answer in time",
            )),
        }
    }

    /// Opens the socket. A handshake that is refused because of its token is tried once more with another.
    async fn socket(&self) -> Result<LiveSocket, ConnectError> {
        let (access, user) = (&self.access, Some(&self.user));
        let refused = |error| refused_handshake(&self.settings, access, &error);
        let tokens = match access {
            Access::Key(key) => {
                let mut request = self.handshake()?;
                let key = key_header(key).ok_or_else(|| {
                    let detail = "the API key cannot be sent in a header";
                    not_opened(&self.settings, AgentErrorKind::Unauthorized, detail)
                })?;
                request.headers_mut().insert(KEY_HEADER, key);
                return LiveSocket::open(request).await.map_err(refused);
            }
            Access::Vertex(vertex) => &vertex.tokens,
        };
        let with = |token: Option<&Token>| {
            let mut request = self.handshake()?;
            if let Some(token) = token {
                tokens.put(token, request.headers_mut());
            }
            Ok(request)
        };
        let token = tokens.token(user).await.map_err(no_token)?;
        let mut opened = LiveSocket::open(with(token.as_ref())?).await;
        if let Err(Error::Http(response)) = &opened
            && response.status() == StatusCode::UNAUTHORIZED
            && let Some(token) = &token
            && let Some(other) = tokens.instead_of(token, user).await
        {
            opened = LiveSocket::open(with(Some(&other))?).await;
        }
        opened.map_err(refused)
    }

    fn handshake(&self) -> Result<Request, ConnectError> {
        let path = match self.access {
            Access::Key(_) => PATH,
            Access::Vertex(_) => VERTEX_PATH,
        };
        let url = address(&self.settings.base_url, path);
        let mut request = url.into_client_request().map_err(|error| {
            not_opened(&self.settings, AgentErrorKind::Rejected, &error.to_string())
        })?;
        self.trace.put(request.headers_mut());
        Ok(request)
    }

    async fn try_open(&self, modality: Modality) -> Result<GeminiConnection, ConnectError> {
        let settings = &self.settings;
        let socket = self.socket().await?;
        let mut connection = GeminiConnection {
            socket,
            assembly: Assembly::new(
                self.generation,
                modality != self.modality,
                self.model_spoke_last,
            ),
            modality,
            generation: self.generation,
            model: settings.model.clone(),
        };
        let setup = match modality {
            Modality::Audio => &self.spoken,
            Modality::Text => &self.written,
        };
        // A refusal may come before the setup is sent; its reason is the error that counts.
        let sent = connection.write(setup.clone()).await;
        loop {
            match connection.read().await {
                Read::Message(message) if incoming::is_setup_complete(&message) => break,
                Read::Message(_) | Read::Quiet => {}
                Read::Closed { code, reason } => {
                    let mut refused = refused(&settings.model, code, &reason);
                    if let Err(unsent) = sent {
                        refused.error = refused.error.and_detail(unsent.detail());
                    }
                    return Err(refused);
                }
            }
        }
        for message in self.contents.iter().chain(&self.trigger) {
            connection
                .write(message.clone())
                .await
                .map_err(|error| ConnectError { error, code: None })?;
        }
        Ok(connection)
    }
}

impl GeminiConnection {
    /// How the model really answers: one that only speaks is used by its transcription if text was requested.
    pub fn modality(&self) -> Modality {
        self.modality
    }

    async fn write(&mut self, message: Vec<u8>) -> Result<(), AgentError> {
        self.socket.write(message).await
    }
}

impl LiveAgent for GeminiLive {
    fn model(&self) -> Option<&str> {
        Some(&self.settings.model)
    }

    fn connect(&self, request: LiveRequest<'_>) -> Connecting {
        let opening = request.into_conversation().map(|setup| self.open(&setup));
        Box::pin(async move { Ok(Box::new(opening?.await?) as Box<dyn LiveConnection>) })
    }
}

impl LiveConnection for GeminiConnection {
    fn open_calls(&self) -> &[String] {
        self.assembly.open_calls()
    }

    fn send<'c>(&'c mut self, input: LiveInput<'c>) -> BoxFuture<'c, Result<(), AgentError>> {
        let message = match &input {
            LiveInput::Audio(pcm) => outgoing::audio(pcm),
            LiveInput::Video { media_type, data } => outgoing::video(media_type, data),
            LiveInput::Text(text) => outgoing::text(text, self.generation.has_realtime_text()),
            LiveInput::Contents { .. } if !self.generation.takes_turns() => {
                let detail = "this model accepts the conversation only when a connection opens";
                return Box::pin(std::future::ready(Err(AgentError::unreachable(
                    "the connection to the live model has to be renewed",
                    detail,
                ))));
            }
            LiveInput::Contents { turns, answer } => {
                outgoing::placed_contents(turns, *answer, self.assembly.model_spoke_last())
            }
            LiveInput::ActivityStart => outgoing::activity("activityStart"),
            LiveInput::ActivityEnd => outgoing::activity("activityEnd"),
            LiveInput::AudioStreamEnd => outgoing::audio_stream_end(),
            LiveInput::Responses(responses) => outgoing::responses(responses),
        };
        let left = self.assembly.sent(&input);
        let is_stream = matches!(input, LiveInput::Audio(_) | LiveInput::Video { .. });
        if !is_stream && !self.assembly.holds_calls() {
            self.socket.quiet_at = None;
        }
        Box::pin(async move {
            if !left.is_empty() {
                self.write(outgoing::no_results(&left)).await?;
            }
            self.write(message).await
        })
    }

    fn read(&mut self) -> BoxFuture<'_, Read> {
        Box::pin(self.socket.read())
    }

    fn speaker(&self, message: &[u8]) -> Option<Speaker> {
        self.assembly.speaker(message)
    }

    fn events(&mut self, message: &[u8], sink: IncomingSink<'_>) -> Result<(), AgentError> {
        match self.assembly.message(message, sink)? {
            Some(quiet) => self.socket.quiet_at = Some(Instant::now() + quiet),
            None if self.assembly.awaits_words() => {}
            None => self.socket.quiet_at = None,
        }
        Ok(())
    }

    fn on_quiet(&mut self, sink: IncomingSink<'_>) {
        self.assembly.on_quiet(sink);
    }

    /// Only if another try would fail in the same way, because the model is not available.
    fn explain_close(&self, code: u16, reason: &str) -> Option<ConnectError> {
        is_about_model(&self.model, code, reason).then(|| refused(&self.model, code, reason))
    }

    /// Does not wait for the other side.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(self.socket.close())
    }
}

/// The error of a connection that was closed before it was set up.
fn refused(model: &str, code: u16, reason: &str) -> ConnectError {
    let said = shortened(reason);
    let message = match is_about_model(model, code, reason) {
        true => retired(model, &said),
        false => format!("the live model refused the connection: {said}"),
    };
    let detail = format!("closed with {code}, {}", withheld(reason));
    ConnectError {
        error: AgentError::new(kind_of_close(code, reason), message, detail),
        code: Some(code),
    }
}

/// Whether the model does not exist, which is an error of the configuration, rather than a session.
fn is_about_model(model: &str, code: u16, reason: &str) -> bool {
    let reason = reason.to_lowercase();
    code == NOT_FOUND && (reason.contains("model") || reason.contains(&model.to_lowercase()))
}

fn retired(model: &str, said: &str) -> String {
    format!(
        "the live model {model:?} is unknown or has been retired: {said}; set agent.live_model to one that exists"
    )
}

/// The error of a refused handshake, in the words for refused requests.
fn refused_handshake(settings: &Settings, access: &Access, error: &Error) -> ConnectError {
    let Error::Http(response) = error else {
        return not_opened(settings, AgentErrorKind::Unreachable, &error.to_string());
    };
    let (status, model) = (response.status(), &settings.model);
    let body = response.body().as_deref().unwrap_or_default();
    let body = String::from_utf8_lossy(body);
    let refusal = Refusal::read(&body);
    let kind = kind_of(status, &refusal);
    let said = refusal
        .message
        .map_or_else(|| status.to_string(), |said| shortened(&said));
    let message = match status.as_u16() {
        300..=399 => format!(
            "the live model's server redirects the request ({said}); correct agent.base_url"
        ),
        401 | 403 => access.refused(&said),
        404 => retired(model, &said),
        429 => format!("the live model's quota is used up, try again later: {said}"),
        500..=599 => format!(
            "the live model {model:?} is not available, try again, or set agent.live_model to another: {said}"
        ),
        _ => format!("the live model refused the connection: {said}"),
    };
    let is_final = status.is_redirection() || status.is_client_error() && status.as_u16() != 429;
    let detail = format!("{}: {status}, {}", host(settings), withheld(&body));
    ConnectError {
        error: AgentError::new(kind, message, detail),
        code: is_final.then_some(NOT_FOUND),
    }
}

/// The URL of the live interface, given that of the model.
fn address(base: &str, path: &str) -> String {
    let base = base.trim_end_matches('/');
    let base = match base.split_once("://") {
        Some(("http", rest)) => format!("ws://{rest}"),
        Some(("https", rest)) => format!("wss://{rest}"),
        _ => base.to_owned(),
    };
    base + path
}

/// No try helps until there is a token.
fn no_token(error: TokenError) -> ConnectError {
    ConnectError {
        error: error.into_agent_error(),
        code: Some(NOT_FOUND),
    }
}

/// The error of a connection that failed without a reason from the other side.
fn not_opened(settings: &Settings, kind: AgentErrorKind, detail: &str) -> ConnectError {
    ConnectError {
        error: AgentError::new(
            kind,
            "the live model cannot be reached; try again",
            format!("{}: {detail}", host(settings)),
        ),
        code: None,
    }
}

fn host(settings: &Settings) -> &str {
    let base = &settings.base_url;
    let host = base.split_once("://").map_or(base.as_str(), |it| it.1);
    host.split(['/', '?']).next().unwrap_or(host)
}

/// The kind of error of a failed handshake.
fn kind_of(status: StatusCode, refusal: &Refusal) -> AgentErrorKind {
    match status.as_u16() {
        401 | 403 => AgentErrorKind::Unauthorized,
        _ if refusal.is_about_the_key => AgentErrorKind::Unauthorized,
        429 => AgentErrorKind::Quota {
            retry_after: refusal.retry_after,
        },
        300..=499 => AgentErrorKind::Rejected,
        _ => AgentErrorKind::Unreachable,
    }
}

/// The kind of error of a connection that is closed before it is set up. Google has no codes for keys and quotas, only
/// words.
fn kind_of_close(code: u16, reason: &str) -> AgentErrorKind {
    match code {
        _ if reason.contains("quota") => AgentErrorKind::Quota { retry_after: None },
        _ if reason.contains("API key") => AgentErrorKind::Unauthorized,
        INVALID | NOT_FOUND => AgentErrorKind::Rejected,
        _ => AgentErrorKind::Unreachable,
    }
}

/// Google's name for a response's token count in a live session, and the name that is used everywhere else.
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
    use crate::live::NO_CODE;

    #[test]
    fn a_close_says_what_can_be_done() {
        let quota = AgentErrorKind::Quota { retry_after: None };
        for (code, reason, kind) in [
            (
                INVALID,
                "Request contains an invalid argument.",
                AgentErrorKind::Rejected,
            ),
            (
                INVALID,
                "API key not valid. Please pass one.",
                AgentErrorKind::Unauthorized,
            ),
            (NOT_FOUND, "models/x is not found", AgentErrorKind::Rejected),
            (1011, "You exceeded your current quota", quota),
            (
                1011,
                "Internal error encountered.",
                AgentErrorKind::Unreachable,
            ),
            (
                NO_CODE,
                "the connection was cut",
                AgentErrorKind::Unreachable,
            ),
        ] {
            assert_eq!(kind_of_close(code, reason), kind, "{code}: {reason}");
        }
    }

    #[test]
    fn addresses() {
        for (base, expected) in [
            ("https://example.com", "wss://example.com"),
            ("http://127.0.0.1:1/", "ws://127.0.0.1:1"),
            ("ws://127.0.0.1:1", "ws://127.0.0.1:1"),
            ("wss://example.com/proxy", "wss://example.com/proxy"),
        ] {
            assert_eq!(address(base, PATH), format!("{expected}{PATH}"));
        }
    }
}
