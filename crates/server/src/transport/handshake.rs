//! How a WebSocket begins: who may open one, from which page, and how large its frames may be.
//!
//! axum's own upgrade hands out a finished WebSocket. Here the bytes below it are counted while they arrive (see
//! `arriving`), and clients get the reason of a refusal in a form that they can see; so the upgrade is hyper's and the
//! handshake tungstenite's.

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::base64;
use adk_bridge_protocol::id::ChatId;
use adk_bridge_protocol::wire::frame::MAX_TEXT_FRAME_BYTES;
use adk_bridge_protocol::wire::live::Close;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::access::Access;
use super::body::{Intake, NOBODY};
use super::error::AppError;
use super::socket::{Socket, shutdown};
use super::{forward, live};
use crate::auth::{Identity, Refusal};
use crate::chat::Chats;
use crate::cluster::Peer;
use crate::config::Config;
use crate::connections::ConnectionPlace;
use crate::files::address::Base;
use crate::forwarding::{Forwarded, Forwarding, Hopped, NOT_OWNER, OwnerCheck, Tunnel};
use crate::metrics::ForwardedKind;
use crate::sockets::{Place, Sockets, TICKET_LIFE};

/// Every idle connection has one; three audio frames of a client fit into it.
const READ_BUFFER_BYTES: usize = 2 * 1024;
/// Beyond this, frames are written without waiting for more.
const WRITE_BUFFER_BYTES: usize = 4 * 1024;

/// When a user with too many WebSockets may try again: one may be closed at any time.
const SOON: Duration = Duration::from_secs(2);
/// How long a refused client may take to answer the close: a few round trips of a slow network.
const PARTING: Duration = Duration::from_millis(500);

/// What a client sends with its request to open a WebSocket, before base64.
const NONCE_BYTES: usize = 16;

/// Opens one WebSocket, as `?ticket=`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    ticket: String,
    expires_in_ms: u64,
}

/// `POST /api/ticket`: browsers cannot send a key with a WebSocket.
pub async fn ticket(
    State(sockets): State<Arc<Sockets>>,
    identity: Identity,
) -> Result<Response, AppError> {
    let body = Ticket {
        ticket: sockets.ticket(identity)?,
        expires_in_ms: u64::try_from(TICKET_LIFE.as_millis()).unwrap_or(u64::MAX),
    };
    // No cache may keep a ticket.
    let no_store = [(header::CACHE_CONTROL, "no-store")];
    Ok((no_store, Json(body)).into_response())
}

/// Opens WebSockets.
#[derive(Clone)]
pub struct Upgrades {
    access: Arc<Access>,
    sockets: Arc<Sockets>,
    intake: Intake,
    heartbeat: Duration,
    /// Present in a cluster.
    passing: Option<(Arc<Forwarding>, Chats)>,
}

/// What a request to open a WebSocket asks for.
pub(super) struct Wanted<'a> {
    pub ticket: Option<&'a str>,
    /// The chat whose owner serves the socket, if it has one chat.
    pub chat: Option<&'a ChatId>,
    /// What URLs begin with for the client.
    pub base: &'a Base,
}

/// Who serves a WebSocket.
enum Way {
    Here,
    /// Another replica, to which bytes are copied.
    Through(Box<(TokioIo<Upgraded>, OwnerCheck)>),
}

impl Upgrades {
    pub fn new(
        config: &Config,
        access: Arc<Access>,
        sockets: Arc<Sockets>,
        intake: Intake,
    ) -> Self {
        Self {
            access,
            sockets,
            intake,
            heartbeat: config.live.heartbeat.0,
            passing: None,
        }
    }

    /// Passes sockets of chats that other replicas own to them.
    #[must_use]
    pub(super) fn passing(self, passing: Option<(Arc<Forwarding>, Chats)>) -> Self {
        Self { passing, ..self }
    }

    /// Opens a socket and serves it, or refuses it in a form that the client can see.
    ///
    /// A browser hides the status and the body of a refusal from its page, so a client with an `Origin` is accepted and
    /// then closed with a code.
    pub(super) async fn open<Serving>(
        self,
        request: Request,
        wanted: Wanted<'_>,
        serve: impl FnOnce(Box<Socket>, Identity, Place) -> Serving + Send + 'static,
    ) -> Result<Response, AppError>
    where
        Serving: Future<Output = ()> + Send + 'static,
    {
        self.access.check_socket(&request)?;
        let response = switching(&request)?;
        let (parts, body) = request.into_parts();
        let identity = match self.access.authenticate(&parts).await {
            Ok(identity) => Ok(identity),
            // A ticket makes up for nothing that is wrong.
            Err(refusal @ (Refusal::WrongCredentials(_) | Refusal::Expired(_))) => Err(refusal),
            Err(refusal) => wanted
                .ticket
                .and_then(|ticket| self.sockets.redeem(ticket))
                .ok_or(refusal),
        };
        let connection = parts.extensions.get::<Arc<ConnectionPlace>>().cloned();
        let admitted = match identity {
            // Counted before the client knows that it is open.
            Ok(identity) => match self.admit(&identity, &parts, connection.as_deref()) {
                Ok(place) => match self.way(&identity, &parts, &wanted).await {
                    Ok(way) => Ok((identity, place, way)),
                    // Its replica tells the client.
                    Err(error) if error.code == NOT_OWNER => return Err(error),
                    Err(error) => Err((Close::from(&error), error)),
                },
                Err(error) => Err((Close::TOO_MANY, error)),
            },
            Err(refusal) => {
                let why = Close::from(&refusal);
                let error = self.access.refuse(refusal, &parts);
                if !parts.headers.contains_key(header::ORIGIN) {
                    return Err(error);
                }
                Err((why, error))
            }
        };
        // It takes up a connection until the client has read the reason.
        if let (Err((_, error)), Some(connection)) = (&admitted, &connection)
            && !connection.parts_refused()
        {
            return Err(error.clone());
        }
        let request = Request::from_parts(parts, body);
        tokio::spawn(async move {
            let Ok(upgraded) = hyper::upgrade::on(request).await else {
                return; // The client has left before it began.
            };
            let admitted = match admitted {
                Ok((_, place, Way::Through(owner))) => {
                    self.tunnel(TokioIo::new(upgraded), *owner, place).await;
                    return;
                }
                Ok((identity, place, Way::Here)) => Ok((identity, place)),
                Err(refused) => Err(refused),
            };
            let user = admitted.as_ref().map_or(NOBODY, |(it, _)| &it.user);
            let terms = self.intake.terms(user, MAX_TEXT_FRAME_BYTES);
            let limits = WebSocketConfig::default()
                .read_buffer_size(READ_BUFFER_BYTES)
                .write_buffer_size(WRITE_BUFFER_BYTES)
                .max_message_size(Some(terms.largest))
                .max_frame_size(Some(terms.largest));
            let stream = TokioIo::new(upgraded);
            let socket = Socket::new(stream, limits, terms, self.heartbeat).await;
            // Its task would reserve it several times.
            let mut socket = Box::new(socket);
            match admitted {
                // A task of its own: an idle connection needs less than the handshake.
                Ok((identity, place)) => drop(tokio::spawn(serve(socket, identity, place))),
                Err((why, _)) => {
                    let parting = Box::pin(timeout(PARTING, socket.close(why)));
                    tokio::select! {
                        // The reason is written first, even if the place is needed already.
                        biased;
                        _ = parting => {}
                        () = is_cut(connection) => {}
                    }
                }
            }
        });
        Ok(response)
    }

    fn admit(
        &self,
        identity: &Identity,
        parts: &Parts,
        connection: Option<&ConnectionPlace>,
    ) -> Result<Place, AppError> {
        let user = &identity.user;
        let is_passed_on = parts.extensions.get::<Forwarded>().is_some();
        if let Some(connection) = connection {
            match is_passed_on {
                true => connection.claim_for_replica(),
                false => connection.claim(user)?,
            }
        }
        let place = match is_passed_on {
            true => self.sockets.enter_passed_on(),
            false => self.sockets.enter(user),
        };
        let mut place = place.ok_or_else(|| {
            let message = "too many of your WebSockets are open (server.max_sockets); close one";
            AppError::too_many(message, SOON)
        })?;
        // What proves who it is for may end before the socket does; the first replica looks after that.
        if let (false, Some(end)) = (is_passed_on, self.access.end_of(identity)) {
            Sockets::close_after(&mut place, end);
        }
        Ok(place)
    }

    /// Finds out who serves a socket, and opens one there if it is another replica.
    async fn way(
        &self,
        identity: &Identity,
        parts: &Parts,
        wanted: &Wanted<'_>,
    ) -> Result<Way, AppError> {
        let (Some((forwarding, chats)), Some(chat_id)) = (&self.passing, wanted.chat) else {
            return Ok(Way::Here);
        };
        let user = &identity.user;
        let is_passed_on = parts.extensions.get::<Forwarded>().is_some();
        let mut attempts = forwarding.attempts();
        loop {
            if chats.is_in_use(user, chat_id) {
                return Ok(Way::Here);
            }
            let Some(owner) = forwarding.elsewhere(user, chat_id).await? else {
                return Ok(Way::Here);
            };
            if is_passed_on {
                return Err(forward::not_owner());
            }
            let forwarded = Forwarded {
                identity: Some(identity.clone()),
                base: wanted.base.clone(),
            };
            match forwarding
                .open(
                    &owner,
                    &without_ticket(&parts.uri),
                    &parts.headers,
                    forwarded,
                )
                .await
            {
                Hopped::Done(Ok(stream)) => {
                    forwarding.metrics().passed(ForwardedKind::Live);
                    let check = forwarding.check_of(owner, user.clone(), chat_id.clone());
                    return Ok(Way::Through(Box::new((stream, check))));
                }
                Hopped::Done(Err(refusal)) => return Err(refused_by(&owner, refusal.status())),
                Hopped::Refused => return Err(forward::not_recognised(&owner)),
                // Nothing has been said on it.
                Hopped::NotBegun(_) | Hopped::Broken => {
                    if !attempts.wait().await {
                        return Err(forward::unreachable(&owner));
                    }
                }
            }
        }
    }

    /// Copies the bytes of a client and of the owner of its chat to each other.
    async fn tunnel(
        &self,
        client: TokioIo<Upgraded>,
        (owner, check): (TokioIo<Upgraded>, OwnerCheck),
        mut place: Place,
    ) {
        let Some((forwarding, chats)) = &self.passing else {
            return; // Without a cluster there are no other owners.
        };
        let tunnel = Tunnel {
            client,
            owner,
            metrics: forwarding.metrics().clone(),
            check: Some(check),
        };
        let stop = async {
            shutdown(&mut place.closing).await;
            live::farewell(chats)
        };
        let end = tunnel.run(stop).await;
        tracing::debug!("a live connection through this replica ends: {end:?}");
    }
}

/// The path and query of a request, without a ticket that has been used.
fn without_ticket(uri: &Uri) -> String {
    let is_other = |pair: &&str| !pair.starts_with("ticket=");
    let query = uri.query().unwrap_or_default();
    let query: Vec<&str> = query.split('&').filter(is_other).collect();
    match query.concat().is_empty() {
        true => uri.path().to_owned(),
        false => format!("{}?{}", uri.path(), query.join("&")),
    }
}

/// The refusal of an owner, whose words are for this replica.
fn refused_by(owner: &Peer, status: StatusCode) -> AppError {
    let name = &owner.name;
    AppError::unavailable(format!(
        "the replica {name:?}, where this chat is in use, does not open a WebSocket now ({status}); try again in a moment"
    ))
}

/// Returns when the place of a refused WebSocket is needed.
async fn is_cut(connection: Option<Arc<ConnectionPlace>>) {
    match connection {
        Some(connection) => connection.is_cut().await,
        None => std::future::pending().await,
    }
}

/// The answer that opens a WebSocket.
fn switching(request: &Request) -> Result<Response, AppError> {
    let response = create_response_with_body(request, Body::empty);
    let (Ok(mut response), true) = (response, has_nonce(request.headers())) else {
        return Err(AppError::new(
            StatusCode::UPGRADE_REQUIRED,
            "not_a_websocket",
            "expected a WebSocket upgrade of version 13, over HTTP/1.1, with a Sec-WebSocket-Key of 16 bytes in base64",
        ));
    };
    // A client that names subprotocols gives up unless one of them is chosen.
    let offered = request
        .headers()
        .get(header::SEC_WEBSOCKET_PROTOCOL)
        .and_then(|offered| offered.to_str().ok())
        .and_then(|offered| offered.split(',').next()?.trim().parse().ok());
    if let Some(first) = offered {
        let headers = response.headers_mut();
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, first);
    }
    Ok(response)
}

/// The protocol requires it, and tungstenite does not check.
fn has_nonce(headers: &HeaderMap) -> bool {
    let key = headers.get(header::SEC_WEBSOCKET_KEY);
    let key = key.and_then(|key| key.to_str().ok());
    key.and_then(|key| base64::decode(key).ok())
        .is_some_and(|nonce| nonce.len() == NONCE_BYTES)
}
