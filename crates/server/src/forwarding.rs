//! Requests for chats of other replicas: passed to the owner as they are, and its answers passed back.
//!
//! ```text
//!   client ──▶ this replica ── claims the chat ──┬─ mine ──────────────▶ answered here
//!                   ▲                            └─ another owns it ───▶ one hop ──▶ answered by the owner
//!                   │                                                      │
//!                   └── wait a little, look again ◀── moved, unreachable ──┤
//!                                                                          └─ broken off: the client is cut off, or refused
//! ```
//!
//! A request that was passed on is never passed on again: a replica that does not own the chat and cannot have it answers
//! `409 not_owner`, and the first replica looks for the owner again. Only what has certainly not begun is sent twice.

mod answer;
mod passages;
mod signature;
mod tunnel;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_agents::trace_context::{TRACEPARENT, TRACESTATE, TraceContext};
use adk_bridge_protocol::id::{ChatId, UserId};
use axum::body::Body;
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::Instant;

pub use answer::{OwnerCheck, PassedOn};
pub use passages::{Passage, Passages};
pub use signature::{ForgedError, Forwarded, HEADER, Signatures};
pub(crate) use tunnel::Frames;
pub use tunnel::{Farewell, Tunnel, TunnelEnd};

use crate::chat::now;
use crate::cluster::{Cluster, Peer};
use crate::metrics::{ForwardingMetrics, HopFailure};
use crate::store::{ChatRef, StoreError};

/// The code of a refusal by a replica that does not own a chat. Nothing has happened to the request.
pub const NOT_OWNER: &str = "not_owner";
/// The code of a refusal by a replica that does not recognise another.
pub const FORGED: &str = "bad_forwarding";
/// The header with the code of a refusal.
const CODE: HeaderName = HeaderName::from_static("x-error-code");

/// Replicas are near each other: one that takes longer is not reachable.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// How long an owner may take to answer what can be sent again, before it is asked whether it is there at all.
const SAFE_PATIENCE: Duration = Duration::from_secs(1);
/// How long an unused connection is kept: clearly shorter than the minute after which a replica closes it, so that a request
/// is not written to a connection that is just being closed.
const IDLE_TIME: Duration = Duration::from_secs(20);
/// How many unused connections to one replica are kept.
const MAX_IDLE: usize = 64;
/// How much of an answer that its client does not read is held here; the rest waits at the owner.
const BUFFER_BYTES: usize = 64 * 1024;
/// Finds a machine that is gone without a word.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The pauses between attempts to reach the owner of a chat.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// How long to try beyond the lease of an owner that is gone: until the chat can be taken.
const BEYOND_LEASE: Duration = Duration::from_secs(1);
/// An owner that stops takes no more connections while it writes its last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The headers of a request that the owner gets: those that endpoints read. None of them shows who the client is; the signed
/// header does.
const PASSED_HEADERS: [HeaderName; 7] = [
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::CONTENT_TYPE,
    header::USER_AGENT,
    HeaderName::from_static("x-request-id"),
    TRACEPARENT,
    TRACESTATE,
];

/// The headers of an answer that concern one connection, or that the first replica writes itself.
const OWN_HEADERS: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::TRANSFER_ENCODING,
    header::TRAILER,
    header::UPGRADE,
    header::DATE,
    header::VARY,
    HeaderName::from_static("x-request-id"),
];
const CORS_HEADERS: &str = "access-control-";

/// Passes requests to the replicas that own their chats.
pub struct Forwarding {
    cluster: Arc<Cluster>,
    signatures: Signatures,
    client: Client<HttpConnector, Body>,
    metrics: Arc<ForwardingMetrics>,
    passages: Passages,
}

/// A request for the owner of a chat.
#[derive(Debug, Clone)]
pub struct Hop<'a> {
    pub method: &'a Method,
    /// The path with its query.
    pub path: &'a str,
    /// Those of the client; the owner gets a few of them.
    pub headers: &'a HeaderMap,
    pub body: Bytes,
    pub forwarded: Forwarded,
}

/// What has become of a hop.
#[derive(Debug)]
pub enum Hopped<T> {
    Done(T),
    /// Nothing has happened to the request: it can be sent again.
    NotBegun(HopFailure),
    /// The owner may have begun it: it can be sent again if that makes no difference.
    Broken,
    /// The owner did not recognise this replica.
    Refused,
}

impl Forwarding {
    pub fn new(cluster: Arc<Cluster>, metrics: Arc<ForwardingMetrics>) -> Self {
        let mut connector = HttpConnector::new();
        // Deltas are small and must not wait for each other.
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIME));
        connector.set_keepalive(Some(KEEPALIVE));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(MAX_IDLE)
            .http1_max_buf_size(BUFFER_BYTES)
            .build(connector);
        Self {
            signatures: Signatures::new(cluster.key(), &cluster.me().name),
            cluster,
            client,
            metrics,
            passages: Passages::default(),
        }
    }

    pub fn signatures(&self) -> &Signatures {
        &self.signatures
    }

    pub fn metrics(&self) -> &Arc<ForwardingMetrics> {
        &self.metrics
    }

    /// What is being passed on, WebSockets aside.
    pub fn passages(&self) -> &Passages {
        &self.passages
    }

    /// This replica, as others reach it.
    pub fn me(&self) -> Peer {
        self.cluster.me()
    }

    /// The other replicas that live.
    pub fn peers(&self) -> Vec<Peer> {
        self.cluster.peers()
    }

    /// The replica that serves a chat, if it is not this one.
    pub async fn elsewhere(
        &self,
        user: &UserId,
        chat_id: &ChatId,
    ) -> Result<Option<Peer>, StoreError> {
        let chat = ChatRef { user, id: chat_id };
        self.cluster.elsewhere(chat).await
    }

    /// Whether a replica is the living owner of a chat.
    async fn is_owner(&self, owner: &Peer, chat: ChatRef<'_>) -> Result<bool, StoreError> {
        Ok(self.cluster.owner(chat).await?.as_ref() == Some(owner))
    }

    /// How long to look for the owner of a chat.
    pub fn attempts(&self) -> Attempts {
        Attempts {
            until: Instant::now() + self.lease() + BEYOND_LEASE,
            pause: FIRST_PAUSE,
        }
    }

    /// Sends a request to the owner of its chat, once.
    pub async fn send(&self, owner: &Peer, hop: Hop<'_>) -> Hopped<Response<Incoming>> {
        self.metrics.sent(hop.body.len());
        let Some(mut request) = self.request(owner, &hop) else {
            return Hopped::Broken;
        };
        for name in &PASSED_HEADERS {
            for value in hop.headers.get_all(name) {
                request.headers_mut().append(name, value.clone());
            }
        }
        *request.body_mut() = Body::from(hop.body);
        let mut response = match self.exchange(owner, request).await {
            Hopped::Done(response) => response,
            other => return other,
        };
        let headers = response.headers_mut();
        for name in &OWN_HEADERS {
            headers.remove(name);
        }
        let of_cors = |name: &&HeaderName| name.as_str().starts_with(CORS_HEADERS);
        let of_cors: Vec<HeaderName> = headers.keys().filter(of_cors).cloned().collect();
        for name in of_cors {
            headers.remove(name);
        }
        Hopped::Done(response)
    }

    /// Opens a WebSocket at the owner of a chat, or brings the owner's refusal. Of the client's headers, the owner gets the
    /// trace.
    pub async fn open(
        &self,
        owner: &Peer,
        path: &str,
        headers: &HeaderMap,
        forwarded: Forwarded,
    ) -> Hopped<Result<TokioIo<Upgraded>, Response<Incoming>>> {
        let hop = Hop {
            method: &Method::GET,
            path,
            headers: &HeaderMap::new(),
            body: Bytes::new(),
            forwarded,
        };
        let Some(mut request) = self.request(owner, &hop) else {
            return Hopped::Broken;
        };
        let key = tokio_tungstenite::tungstenite::handshake::client::generate_key();
        let Ok(key) = HeaderValue::try_from(key) else {
            return Hopped::Broken;
        };
        TraceContext::of_headers(headers).put(request.headers_mut());
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(
            header::SEC_WEBSOCKET_VERSION,
            HeaderValue::from_static("13"),
        );
        headers.insert(header::SEC_WEBSOCKET_KEY, key);
        let response = match self.exchange(owner, request).await {
            Hopped::Done(response) => response,
            Hopped::NotBegun(failure) => return Hopped::NotBegun(failure),
            Hopped::Broken => return Hopped::Broken,
            Hopped::Refused => return Hopped::Refused,
        };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Hopped::Done(Err(response));
        }
        match hyper::upgrade::on(response).await {
            Ok(upgraded) => Hopped::Done(Ok(TokioIo::new(upgraded))),
            Err(_) => {
                self.metrics.failed(HopFailure::Broken);
                Hopped::Broken
            }
        }
    }

    /// Looks whether a silent owner is alive, for a stream that it sends.
    pub fn check_of(self: &Arc<Self>, owner: Peer, user: UserId, chat_id: ChatId) -> OwnerCheck {
        OwnerCheck::new(self.clone(), owner, user, chat_id)
    }

    fn lease(&self) -> Duration {
        self.cluster.lease()
    }

    /// A signed request without the client's headers and body. `None` is never seen but for an address or a path that cannot
    /// be written.
    fn request(&self, owner: &Peer, hop: &Hop<'_>) -> Option<Request<Body>> {
        let base = owner.address.as_str().trim_end_matches('/');
        let uri: Uri = format!("{base}{}", hop.path).parse().ok()?;
        // What the owner sees, whatever is in front of it.
        let seen: Uri = hop.path.parse().ok()?;
        let forwarded = hop.forwarded.clone();
        let signed = self
            .signatures
            .sign(&owner.name, hop.method, &seen, forwarded, now())?;
        Request::builder()
            .method(hop.method)
            .uri(uri)
            .header(HEADER, signed)
            .body(Body::empty())
            .ok()
    }

    async fn exchange(&self, owner: &Peer, request: Request<Body>) -> Hopped<Response<Incoming>> {
        // What makes no difference when it is sent twice need not wait long for an owner that may be stopped.
        let patience = match request.method().is_safe() {
            true => SAFE_PATIENCE,
            false => self.lease(),
        };
        let mut answer = pin!(self.client.request(request));
        let answered = loop {
            match tokio::time::timeout(patience, &mut answer).await {
                Ok(answered) => break answered,
                Err(_) if self.cluster.reaches(owner).await => {}
                Err(_) => {
                    if let Ok(answered) = tokio::time::timeout(LAST_ANSWERS, &mut answer).await {
                        break answered;
                    }
                    tracing::warn!(replica = %owner.name, "the replica {} does not answer", owner.name);
                    self.metrics.failed(HopFailure::Broken);
                    return Hopped::Broken;
                }
            }
        };
        let failed = match answered {
            Ok(response) => match code_of(&response) {
                Some(NOT_OWNER) if response.status() == StatusCode::CONFLICT => {
                    Hopped::NotBegun(HopFailure::Moved)
                }
                Some(FORGED) => {
                    tracing::error!(
                        replica = owner.name,
                        "the replica {} refuses what this one passes on: they must have the same cluster.key, and clocks \
                         that agree",
                        owner.name
                    );
                    Hopped::Refused
                }
                _ => return Hopped::Done(response),
            },
            Err(error) => {
                let (name, why) = (&owner.name, said(&error));
                tracing::warn!(replica = %name, "a request cannot be passed to the replica {name}: {why}");
                match error.is_connect() {
                    true => Hopped::NotBegun(HopFailure::Unreachable),
                    false => Hopped::Broken,
                }
            }
        };
        self.metrics.failed(match &failed {
            Hopped::NotBegun(failure) => *failure,
            Hopped::Refused => HopFailure::Refused,
            Hopped::Broken | Hopped::Done(_) => HopFailure::Broken,
        });
        failed
    }
}

impl fmt::Debug for Forwarding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Forwarding")
            .field("me", &self.me())
            .finish_non_exhaustive()
    }
}

/// The attempts to reach the owner of one chat, with growing pauses between them.
#[derive(Debug)]
pub struct Attempts {
    until: Instant,
    pause: Duration,
}

impl Attempts {
    /// Waits for the next attempt. Returns false if there is none.
    pub async fn wait(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

fn code_of<B>(response: &Response<B>) -> Option<&str> {
    response.headers().get(CODE)?.to_str().ok()
}

/// An error with its causes, which say more than itself.
fn said(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push_str(": ");
        said.push_str(&error.to_string());
        cause = error.source();
    }
    said
}
