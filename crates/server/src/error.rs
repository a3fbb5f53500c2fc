//! What a request is answered with when it cannot be served: a code for programs and a message for people.

use axum::Json;
use axum::body::to_bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A request that is refused. The message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AppError {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
}

impl AppError {
    pub fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub fn not_found(what: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            format!("there is no such {what}"),
        )
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    pub fn unprocessable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: shortened(message.into()),
        }
    }
}

/// A message quotes what was sent, which may be as long as a body.
const MAX_MESSAGE_BYTES: usize = 600;

fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        message.push('…');
    }
    message
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        let body = json!({"error": {"code": self.code, "message": self.message}});
        (self.status, Json(body)).into_response()
    }
}

/// A refusal of the framework is a sentence; a longer text is cut off.
const MAX_REASON_BYTES: usize = 1024;

/// Gives the refusals of the framework, which are plain text or empty, the form of all others. Their headers stay, since
/// `Allow` belongs to a 405.
pub async fn in_one_form(response: Response) -> Response {
    let status = response.status();
    let is_json = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !(status.is_client_error() || status.is_server_error()) || is_json {
        return response;
    }
    let (parts, body) = response.into_parts();
    let reason = to_bytes(body, MAX_REASON_BYTES).await.unwrap_or_default();
    let reason = String::from_utf8_lossy(&reason);
    let (code, otherwise) = match status {
        StatusCode::NOT_FOUND => ("not_found", "there is no such page or door"),
        StatusCode::METHOD_NOT_ALLOWED => (
            "method_not_allowed",
            "this door does not take this method; the header Allow names those that it takes",
        ),
        StatusCode::PAYLOAD_TOO_LARGE => ("too_large", "the body is too large; send less"),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ("bad_media_type", "send application/json"),
        status if status.is_server_error() => ("internal", "the bridge failed; try again"),
        _ => ("bad_request", "the request is not understood"),
    };
    let message = match reason.trim() {
        "" => otherwise,
        reason => reason,
    };
    let mut answer = AppError::new(status, code, message).into_response();
    for (name, value) in &parts.headers {
        if name != header::CONTENT_TYPE && name != header::CONTENT_LENGTH {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    answer
}
