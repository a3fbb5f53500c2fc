//! Bodies of refusals: JSON, or plain text where a stock front end shows the body to its user.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::error::AppError;
use crate::forwarding::PassedOn;

/// A refusal of the framework is a sentence; a longer text is cut off.
const MAX_REASON_BYTES: usize = 1024;

/// The form of the body if a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorForm {
    Json,
    Text,
}

impl ErrorForm {
    pub fn of_answer_to(request: &Request) -> Self {
        match is_shown_to_users(request) && !accepts(request.headers(), "application/json") {
            true => Self::Text,
            false => Self::Json,
        }
    }

    /// Gives an answer this form, if it is a refusal.
    pub async fn apply(self, response: Response) -> Response {
        let mut response = as_app_error(response).await;
        if self == Self::Text
            && let Some(error) = response.extensions().get::<AppError>()
        {
            let body = Body::from(error.message.clone());
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, plain);
            headers.remove(header::CONTENT_LENGTH);
            *response.body_mut() = body;
        }
        response
    }
}

/// Whether an `Accept` header names this media type.
pub(super) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    accepted
        .flat_map(|value| value.to_str().unwrap_or_default().split(','))
        .filter_map(|range| range.split(';').next())
        .any(|range| range.trim().eq_ignore_ascii_case(media_type))
}

/// The AI SDK's transports make the whole body of these answers the message of their error.
fn is_shown_to_users(request: &Request) -> bool {
    let path = request.uri().path();
    let path = path.strip_suffix('/').unwrap_or(path);
    // The chat of one agent: what follows its id is what follows `/api`.
    let of_agent = path
        .strip_prefix("/api/agents/")
        .and_then(|rest| rest.split_once('/'));
    let rest = match of_agent {
        Some((_, rest)) => Some(rest),
        None => path.strip_prefix("/api/"),
    };
    match *request.method() {
        Method::POST => path == "/stream" || rest == Some("chat"),
        Method::GET => rest.is_some_and(|it| it.starts_with("chat/") && it.ends_with("/stream")),
        _ => false,
    }
}

/// Turns the framework's refusals, which are plain text or empty, into ours. Keeps their headers, since a 405 needs
/// `Allow`.
async fn as_app_error(response: Response) -> Response {
    let status = response.status();
    let is_ours = response.extensions().get::<AppError>().is_some()
        || response.extensions().get::<PassedOn>().is_some();
    if !(status.is_client_error() || status.is_server_error()) || is_ours {
        return response;
    }
    let (parts, body) = response.into_parts();
    let reason = to_bytes(body, MAX_REASON_BYTES).await.unwrap_or_default();
    let reason = String::from_utf8_lossy(&reason);
    let (code, otherwise) = match status {
        StatusCode::NOT_FOUND => ("not_found", "there is no such page or endpoint"),
        StatusCode::METHOD_NOT_ALLOWED => (
            "method_not_allowed",
            "this endpoint does not accept this method; the Allow header lists those that it does",
        ),
        StatusCode::PAYLOAD_TOO_LARGE => ("too_large", "the body is too large; send less"),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ("bad_media_type", "send application/json"),
        status if status.is_server_error() => ("internal", "the server failed; try again"),
        _ => ("bad_request", "the request could not be understood"),
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
