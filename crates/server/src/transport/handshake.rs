//! How a WebSocket begins: who may open one, from which page, and how large its frames may be.

use adk_bridge_protocol::wire::frame::MAX_TEXT_FRAME_BYTES;
use adk_bridge_protocol::wire::live::Close;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::socket::Socket;
use crate::auth::{self, User};
use crate::error::AppError;
use crate::router::App;
use crate::sockets::{Place, TICKET_LIFE};

/// Every idle connection has one; three frames of an uplink's audio fit into it.
const READ_BUFFER_BYTES: usize = 2 * 1024;
/// Beyond it written frames go out without waiting for more.
const WRITE_BUFFER_BYTES: usize = 4 * 1024;

/// `POST /api/ticket`: browsers cannot send a key with a WebSocket.
pub async fn ticket(
    State(app): State<App>,
    Extension(User(user)): Extension<User>,
) -> Result<Response, AppError> {
    let body = json!({
        "ticket": app.sockets.ticket(&user)?,
        "expiresInMs": u64::try_from(TICKET_LIFE.as_millis()).unwrap_or(u64::MAX),
    });
    // Whoever keeps answers must not keep this one.
    let no_store = [(header::CACHE_CONTROL, "no-store")];
    Ok((no_store, Json(body)).into_response())
}

/// Opens a socket and hands it to its door; or says why not, in the way that the client can see.
///
/// A browser shows its page neither the status nor the body of a refusal, so that one with an `Origin` is let in and
/// closed with a code.
pub fn open<Door, Serving>(
    app: App,
    request: Request,
    ticket: Option<&str>,
    door: Door,
) -> Result<Response, AppError>
where
    Door: FnOnce(Socket, String, Place) -> Serving + Send + 'static,
    Serving: Future<Output = ()> + Send,
{
    let headers = request.headers();
    auth::check_host(&app, headers)?;
    auth::check_origin(&app, headers)?;
    let accept = check_upgrade(headers)?;
    let user = auth::user_of(&app, headers).or_else(|| app.sockets.redeem(ticket?));
    if user.is_none() && !headers.contains_key(header::ORIGIN) {
        return Ok(auth::unauthorized());
    }
    let response = switching(headers, accept)?;
    // Counted before the client can know that it is open.
    let place = user.as_deref().map(|user| app.sockets.enter(user));
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else {
            return; // The client has left before it began.
        };
        let largest = app.config.server.max_body_bytes.min(MAX_TEXT_FRAME_BYTES);
        let limits = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(WRITE_BUFFER_BYTES)
            .max_message_size(Some(largest))
            .max_frame_size(Some(largest));
        let heartbeat = app.config.live.heartbeat.0;
        let mut socket = Socket::new(TokioIo::new(upgraded), limits, heartbeat).await;
        match (user, place) {
            (Some(user), Some(Some(place))) => door(socket, user, place).await,
            (Some(_), _) => Box::pin(socket.close(Close::TOO_MANY)).await,
            (None, _) => Box::pin(socket.close(Close::UNAUTHORIZED)).await,
        }
    });
    Ok(response)
}

/// Reads what a client must send to open a WebSocket; returns what it must be sent back.
fn check_upgrade(headers: &HeaderMap) -> Result<HeaderValue, AppError> {
    let asks = |name: HeaderName, word: &str| {
        headers.get_all(name).iter().any(|value| {
            let words = value.to_str().unwrap_or_default().split(',');
            words
                .map(str::trim)
                .any(|one| one.eq_ignore_ascii_case(word))
        })
    };
    let version = headers.get(header::SEC_WEBSOCKET_VERSION);
    let key = headers.get(header::SEC_WEBSOCKET_KEY);
    let accept = key.and_then(|key| derive_accept_key(key.as_bytes()).parse().ok());
    match accept {
        Some(accept)
            if asks(header::CONNECTION, "upgrade")
                && asks(header::UPGRADE, "websocket")
                && version.is_some_and(|version| version == "13") =>
        {
            Ok(accept)
        }
        _ => Err(AppError::new(
            StatusCode::UPGRADE_REQUIRED,
            "not_a_websocket",
            "this door takes WebSockets only, of version 13",
        )),
    }
}

fn switching(headers: &HeaderMap, accept: HeaderValue) -> Result<Response, AppError> {
    let mut response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, accept);
    // A client that names subprotocols gives up unless one of them is chosen.
    let offered = headers
        .get(header::SEC_WEBSOCKET_PROTOCOL)
        .and_then(|offered| offered.to_str().ok())
        .and_then(|offered| offered.split(',').next());
    if let Some(first) = offered {
        response = response.header(header::SEC_WEBSOCKET_PROTOCOL, first.trim());
    }
    response
        .body(Body::empty())
        .map_err(|error| AppError::bad_request("bad_request", error.to_string()))
}
