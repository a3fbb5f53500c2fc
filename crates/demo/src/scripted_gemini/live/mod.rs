//! The live part of the scripted Gemini: conversations over a WebSocket, spoken or written.
//!
//! It hears tones that spell words (`tones.rs`), distinguishes speech from silence by energy (`ears.rs`), and has its
//! own voice (`voice.rs`).

mod ears;
mod fields;
mod generation;
mod handles;
mod session;
mod setup;
mod speech;
pub mod tones;
pub mod voice;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::json_text::Json;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};

use super::error::ApiError;
use super::script::Line;
use super::{Scripted, VERSIONS, VERTEX_VERSIONS};
pub(super) use handles::Handles;
use session::{Effect, Session};
use setup::{INTERNAL, INVALID, Interface, Refusal, Setup};

/// How long a connection lasts at Google.
pub const CONNECTION_LIMIT: Duration = Duration::from_secs(600);
/// How long before its end a connection is warned.
const WARNING: Duration = Duration::from_secs(60);
/// A client sends its setup immediately after connecting.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// A client that does not read for this long is gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the client may take to close; its last messages must not turn a close into a reset.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest message: a picture from a camera is far smaller.
const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;
/// Audio arrives in messages of about a kilobyte.
const READ_BUFFER_BYTES: usize = 8 * 1024;
/// A close frame has no room for more.
const MAX_REASON_BYTES: usize = 120;
/// Google's reason when a connection has lasted too long.
const EXPIRED: &str = "Deadline expired before operation could complete.";

pub(super) async fn connect(
    State(scripted): State<Arc<Scripted>>,
    Path(service): Path<String>,
    Query(parameters): Query<HashMap<String, String>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    let version = service
        .strip_prefix("google.ai.generativelanguage.")
        .and_then(|rest| rest.strip_suffix(".GenerativeService.BidiGenerateContent"));
    let Some(version) = version
        .filter(|version| VERSIONS.contains(version))
        .map(str::to_owned)
    else {
        return ApiError::of_code(404).into_response();
    };
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(refusal) => return refusal.into_response(),
    };
    // Google accepts every connection and only then closes those that are not allowed.
    let admitted = scripted.admit(&version, &headers, &parameters);
    serve(
        upgrade,
        admitted,
        scripted,
        (Interface::Developers, version),
    )
}

/// The same in Vertex AI, which refuses a handshake without a token.
pub(super) async fn connect_vertex(
    State(scripted): State<Arc<Scripted>>,
    Path((service, method)): Path<(String, String)>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    let version = service
        .strip_prefix("google.cloud.aiplatform.")
        .and_then(|rest| rest.strip_suffix(".LlmBidiService"))
        .filter(|version| VERTEX_VERSIONS.contains(version));
    let Some(version) = version.filter(|_| method == "BidiGenerateContent") else {
        return ApiError::of_code(404).into_response();
    };
    if let Err(error) = scripted.admit_token(&headers) {
        return error.into_response();
    }
    let version = (Interface::Vertex, version.to_owned());
    match upgrade {
        Ok(upgrade) => serve(upgrade, Ok(()), scripted, version),
        Err(refusal) => refusal.into_response(),
    }
}

fn serve(
    upgrade: WebSocketUpgrade,
    admitted: Result<(), ApiError>,
    scripted: Arc<Scripted>,
    version: (Interface, String),
) -> Response {
    upgrade
        .max_message_size(MAX_MESSAGE_BYTES)
        .read_buffer_size(READ_BUFFER_BYTES)
        .on_upgrade(async move |mut socket| {
            let ending = match admitted {
                Ok(()) => converse(&mut socket, scripted, &version).await,
                Err(error) => Ending::Close(error.into()),
            };
            end(socket, ending).await;
        })
}

/// How a connection ends.
enum Ending {
    Close(Refusal),
    /// Without a close frame.
    Drop,
}

async fn converse(
    socket: &mut WebSocket,
    scripted: Arc<Scripted>,
    version: &(Interface, String),
) -> Ending {
    let opened = Instant::now();
    let mut session = match timeout(SETUP_TIMEOUT, open(socket, &scripted, version)).await {
        Ok(Ok(session)) => session,
        Ok(Err(ending)) => return ending,
        Err(_) => return Ending::Close(Refusal::new(INTERNAL, EXPIRED)),
    };
    let limit = scripted.options.live_limit;
    let mut warn_at = Some(opened + limit.saturating_sub(WARNING.min(limit / 4)));
    let mut end_at = (
        opened + limit,
        Line::Close {
            code: INTERNAL,
            after: Duration::ZERO,
        },
    );
    let mut speak_at = None;
    loop {
        while let Some(message) = session.ready() {
            if let Err(ending) = send(socket, &message).await {
                return ending;
            }
        }
        speak_at = session
            .pause()
            .map(|pause| speak_at.unwrap_or_else(|| Instant::now() + pause));
        tokio::select! {
            biased;
            // A busy machine may come to both at once.
            () = at(warn_at.filter(|at| *at < end_at.0)) => {
                warn_at = None;
                let left = end_at.0.saturating_duration_since(Instant::now());
                let warning = json!({"goAway": {"timeLeft": session::seconds(left)}});
                if let Err(ending) = send(socket, &warning.into()).await {
                    return ending;
                }
            }
            () = sleep_until(end_at.0) => return ending(end_at.1),
            message = receive(socket) => {
                let taken = match message {
                    Ok(message) => fields::client_message(&message).map_err(Refusal::from),
                    Err(ending) => return ending,
                };
                if let Err(refusal) = taken.and_then(|message| session.take(&message)) {
                    return Ending::Close(refusal);
                }
                if session.pause().is_none() {
                    speak_at = None;
                }
            }
            () = at(speak_at) => {
                speak_at = None;
                match session.speak() {
                    Effect::None => {}
                    Effect::Drop => {
                        flush(socket, &mut session).await;
                        return Ending::Drop;
                    }
                    Effect::Refused(refusal) => return Ending::Close(refusal),
                    Effect::Line(line) => {
                        let when = Instant::now() + after(line);
                        if when < end_at.0 {
                            end_at = (when, line);
                        }
                    }
                }
                // Sends pieces separately, even without a pace.
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn open(
    socket: &mut WebSocket,
    scripted: &Arc<Scripted>,
    (interface, version): &(Interface, String),
) -> Result<Session, Ending> {
    let message = receive(socket).await?;
    let message = fields::client_message(&message).map_err(|error| Ending::Close(error.into()))?;
    let setup = message.get("setup").filter(Json::is_object);
    let Some(setup) = setup.filter(|_| message.fields().len() == 1) else {
        let reason = "setup must be the first message and only the first.";
        return Err(Ending::Close(Refusal::new(INVALID, reason)));
    };
    Setup::read(*interface, version, &setup.to_value())
        .and_then(|setup| Session::open(Arc::clone(scripted), setup))
        .map_err(Ending::Close)
}

/// The next JSON of the client. This is cancellation-safe.
async fn receive(socket: &mut WebSocket) -> Result<Json, Ending> {
    loop {
        let json = match socket.recv().await {
            Some(Ok(Message::Text(text))) => text.as_bytes().to_vec(),
            Some(Ok(Message::Binary(bytes))) => bytes.to_vec(),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Ending::Drop),
        };
        return serde_json::from_slice(&json).map_err(|error| {
            Ending::Close(Refusal::new(
                INVALID,
                format!("Invalid JSON payload received. {error}"),
            ))
        });
    }
}

async fn send(socket: &mut WebSocket, message: &Json) -> Result<(), Ending> {
    let json = message.to_string().into_bytes();
    match timeout(SEND_TIMEOUT, socket.send(Message::Binary(json.into()))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Ending::Drop),
    }
}

async fn flush(socket: &mut WebSocket, session: &mut Session) {
    while let Some(message) = session.ready() {
        if send(socket, &message).await.is_err() {
            return;
        }
    }
}

async fn end(mut socket: WebSocket, ending: Ending) {
    let Ending::Close(Refusal { code, mut reason }) = ending else {
        return;
    };
    let fits = (0..=MAX_REASON_BYTES.min(reason.len())).rfind(|at| reason.is_char_boundary(*at));
    reason.truncate(fits.unwrap_or_default());
    let frame = Message::Close(Some(CloseFrame {
        code,
        reason: reason.into(),
    }));
    let _ = timeout(CLOSE_TIMEOUT, async {
        if socket.send(frame).await.is_ok() {
            while let Some(Ok(_)) = socket.recv().await {}
        }
    })
    .await;
}

fn ending(line: Line) -> Ending {
    match line {
        Line::Drop { .. } => Ending::Drop,
        Line::GoAway(_) => Ending::Close(Refusal::new(INTERNAL, EXPIRED)),
        Line::Close { code, .. } if code == INTERNAL => Ending::Close(Refusal::new(code, EXPIRED)),
        Line::Close { code, .. } => Ending::Close(Refusal::new(code, "Closed on demand.")),
    }
}

fn after(line: Line) -> Duration {
    match line {
        Line::GoAway(left) => left,
        Line::Drop { after } | Line::Close { after, .. } => after,
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
