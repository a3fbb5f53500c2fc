//! The body of a request: all of it, or the reason why not.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;

use crate::error::AppError;
use crate::router::App;

/// A client that sends nothing for so long in the middle of a body has gone away without saying so.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much of a body that is too large is read and thrown away: many clients read the answer only when they have sent
/// everything, and a connection closed before that loses it.
const MAX_DISCARDED_BYTES: usize = 64 * 1024 * 1024;

/// Every byte of a body that is not too large.
#[derive(Debug)]
pub struct WholeBody(pub Bytes);

impl FromRequest<App> for WholeBody {
    type Rejection = AppError;

    async fn from_request(request: Request, app: &App) -> Result<Self, AppError> {
        let (parts, body) = request.into_parts();
        let limit = app.config.server.max_body_bytes;
        whole(&parts.headers, body, limit).await.map(Self)
    }
}

/// Reads a body to its end.
pub(super) async fn whole(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Bytes, AppError> {
    let announced = usize::try_from(body.size_hint().lower());
    // Who asks before it sends can be refused at once.
    if headers.contains_key(header::EXPECT) && announced.is_ok_and(|bytes| bytes > limit) {
        return Err(too_large(limit));
    }
    let mut pieces = body.into_data_stream();
    let mut whole = BytesMut::new();
    let mut discarded = 0;
    loop {
        let piece = match tokio::time::timeout(PATIENCE, pieces.next()).await {
            Ok(Some(Ok(piece))) => piece,
            Ok(None) if discarded == 0 => return Ok(whole.freeze()),
            Ok(None) => return Err(too_large(limit)),
            Ok(Some(Err(_))) => {
                return Err(AppError::bad_request(
                    "bad_body",
                    "the body ended early; send it again",
                ));
            }
            Err(_) => {
                return Err(AppError::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "too_slow",
                    format!(
                        "nothing came for {} seconds; send it again",
                        PATIENCE.as_secs()
                    ),
                ));
            }
        };
        if discarded > 0 || whole.len() + piece.len() > limit {
            whole.clear();
            discarded += piece.len();
        } else {
            whole.extend_from_slice(&piece);
        }
        if discarded > MAX_DISCARDED_BYTES {
            return Err(too_large(limit));
        }
    }
}

fn too_large(limit: usize) -> AppError {
    AppError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        format!("the body has more than {limit} bytes; send less, or raise server.max_body_bytes"),
    )
}
