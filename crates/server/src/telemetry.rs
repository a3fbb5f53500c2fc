//! One line in the log for every request, with an id that its answer carries.
//!
//! Nothing that anybody wrote is in it.

use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use crate::chat::new_id;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Those of proxies have 16 to 36 characters.
const MAX_REQUEST_ID: usize = 64;

/// Logs a request when its answer begins; what a turn came to is logged by its chat.
pub async fn log(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request
        .headers()
        .get(REQUEST_ID)
        .and_then(|id| id.to_str().ok())
        .filter(|id| is_harmless(id))
        .map_or_else(|| new_id("req"), str::to_owned);
    let method = request.method().clone();
    // Without the query, which may hold a ticket.
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    let status = response.status().as_u16();
    let millis = started.elapsed().as_millis();
    if matches!(path.as_str(), "/health" | "/ready" | "/metrics") {
        tracing::debug!(request = id, status, "{method} {path}: {status}");
    } else {
        tracing::info!(request = id, status, millis, "{method} {path}: {status}");
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// An id of somebody else's goes into the log only if it can be nothing but an id.
fn is_harmless(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= MAX_REQUEST_ID
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
