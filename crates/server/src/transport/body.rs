//! Reads whole bodies of requests, within limits.

use adk_bridge_protocol::id::UserId;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRef, FromRequest, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use super::error::AppError;
use super::forward::KeptBody;
use super::incoming::Terms;
use crate::auth::Identity;
use crate::budget::{self, Budget, Tally};
use crate::config::{Config, Limits};
use crate::parsing;

/// A client that sends nothing for this long in the middle of a body is gone, although its connection was not closed.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much of a body that is too large is read and discarded: many clients read the answer only after sending
/// everything, and would lose it if the connection were closed earlier.
const MAX_DISCARDED_BYTES: usize = 64 * 1024 * 1024;

/// Who sends what has to be read before it is known who sends it.
pub(super) const NOBODY: &UserId = &UserId::literal("");

/// How much may arrive, and how long that may take.
#[derive(Debug, Clone)]
pub struct Intake {
    /// Counts bodies and WebSocket messages that have not arrived completely.
    unfinished: Arc<Budget>,
    max_json: usize,
    max_file: usize,
    time: Duration,
}

impl Intake {
    pub fn new(config: &Config) -> Self {
        Self {
            unfinished: budget::unfinished(&config.limits),
            max_json: config.server.max_json(),
            max_file: config.server.max_body_bytes,
            time: config.limits.body_time.0,
        }
    }

    /// What arrives from here on is within these limits.
    pub(crate) fn limit(&self, limits: &Limits) {
        self.unfinished
            .limit(limits.unfinished_bytes, limits.unfinished_bytes_per_user);
    }

    pub(super) fn max_file(&self) -> usize {
        self.max_file
    }

    /// How the messages of a user's WebSocket may arrive, each at most as large as the transport allows.
    pub(super) fn terms(&self, user: &UserId, max_frame: usize) -> Terms {
        Terms {
            hold: self.unfinished.hold(user),
            waiting: Arc::new(Tally::new(self.unfinished.hold(user))),
            largest: self.max_json.min(max_frame),
            time: self.time,
        }
    }
}

/// The complete body of a JSON request.
#[derive(Debug)]
pub struct WholeBody(pub Bytes);

impl<S> FromRequest<S> for WholeBody
where
    Intake: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = AppError;

    async fn from_request(request: Request, state: &S) -> Result<Self, AppError> {
        let intake = Intake::from_ref(state);
        let (parts, body) = request.into_parts();
        let limit = intake.max_json;
        let read = whole(&parts, body, limit, &intake).await;
        read.map(Self).map_err(|error| match error.status {
            StatusCode::PAYLOAD_TOO_LARGE => too_much_json(limit),
            _ => error,
        })
    }
}

/// Reads the JSON of a body; waits for room if that is costly.
pub(super) async fn read_body<T, E>(
    body: Bytes,
    read: impl FnOnce(&[u8]) -> Result<T, E> + Send + 'static,
) -> Result<T, AppError>
where
    T: Send + 'static,
    E: Into<AppError> + Send + 'static,
{
    let cost = parsing::cost(std::iter::once(&*body));
    let read = parsing::read(cost, move || read(&body)).await?;
    read.map_err(Into::into)
}

/// Reads a body to its end. Its bytes count until they are dropped.
pub(super) async fn whole(
    parts: &Parts,
    body: Body,
    limit: usize,
    intake: &Intake,
) -> Result<Bytes, AppError> {
    let announced = usize::try_from(body.size_hint().lower());
    // A client that waits for `100 Continue` can be refused at once.
    if parts.headers.contains_key(header::EXPECT) && announced.is_ok_and(|bytes| bytes > limit) {
        return Err(too_large(limit));
    }
    let identity = parts.extensions.get::<Identity>();
    let user = identity.map_or(NOBODY, |identity| &identity.user);
    let mut hold = intake.unfinished.hold(user);
    let deadline = Instant::now() + intake.time;
    let mut pieces = body.into_data_stream();
    let mut whole = BytesMut::new();
    // The rest of a refused body is read and discarded.
    let mut refused = None;
    let mut discarded = 0;
    loop {
        let patience = deadline.min(Instant::now() + PATIENCE);
        let piece = match timeout_at(patience, pieces.next()).await {
            Ok(Some(Ok(piece))) => piece,
            Ok(None) => match refused {
                None => {
                    let whole = hold.tie_to(whole.freeze());
                    if let Some(kept) = parts.extensions.get::<KeptBody>() {
                        kept.keep(&whole);
                    }
                    return Ok(whole);
                }
                Some(refusal) => return Err(refusal),
            },
            Ok(Some(Err(_))) => {
                return Err(AppError::bad_request(
                    "bad_body",
                    "the body ended early; send it again",
                ));
            }
            Err(_) => return Err(refused.unwrap_or_else(|| too_slow(deadline, intake.time))),
        };
        if refused.is_none() {
            let bytes = whole.len() + piece.len();
            let taken = if bytes > limit {
                Err(too_large(limit))
            } else {
                hold.resize(bytes).map_err(AppError::from)
            };
            match taken {
                Ok(()) => whole.extend_from_slice(&piece),
                Err(refusal) => {
                    whole = BytesMut::new();
                    // Holding less is never refused.
                    let _ = hold.resize(0);
                    refused = Some(refusal);
                }
            }
        }
        if refused.is_some() {
            discarded += piece.len();
        }
        if discarded > MAX_DISCARDED_BYTES
            && let Some(refusal) = refused
        {
            return Err(refusal);
        }
    }
}

fn too_much_json(limit: usize) -> AppError {
    AppError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        format!(
            "the body has more than {limit} bytes; upload files with POST /api/files and send their addresses, or raise \
             server.max_json_bytes"
        ),
    )
}

fn too_slow(deadline: Instant, body_time: Duration) -> AppError {
    let message = if Instant::now() < deadline {
        format!(
            "nothing arrived for {} seconds; send it again",
            PATIENCE.as_secs()
        )
    } else {
        format!(
            "the body took longer than {body_time:?}; send less at once, or raise limits.body_time"
        )
    };
    AppError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
}

fn too_large(limit: usize) -> AppError {
    AppError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        format!("the body has more than {limit} bytes; send less, or raise server.max_body_bytes"),
    )
}
