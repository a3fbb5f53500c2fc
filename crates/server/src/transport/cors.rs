//! CORS: what browsers let pages of other origins send and read.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use tower_http::cors::{AllowCredentials, AllowHeaders, AllowOrigin, CorsLayer};

/// The headers of an answer that a page may read.
const EXPOSED: [HeaderName; 7] = [
    HeaderName::from_static("x-vercel-ai-ui-message-stream"),
    HeaderName::from_static("x-resumable-stream-id"),
    HeaderName::from_static("x-chat-id"),
    HeaderName::from_static("x-error-code"),
    HeaderName::from_static("x-request-id"),
    header::RETRY_AFTER,
    header::LINK,
];
/// How long browsers remember the answer to a preflight.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The CORS layer for pages of these origins; none if no origin is listed.
pub fn layer(origins: &[String]) -> Option<CorsLayer> {
    let listed: Vec<HeaderValue> = origins.iter().filter_map(|it| it.parse().ok()).collect();
    if listed.is_empty() {
        return None;
    }
    let methods = [Method::GET, Method::POST, Method::PATCH, Method::DELETE];
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::list(listed.clone()))
        // The page may be behind a login of its own, or log its users in here (`credentials: 'include'`).
        // `SourcePolicy::check_cookie` decides for whom a cookie counts.
        .allow_credentials(AllowCredentials::predicate(move |origin, _| {
            listed.contains(origin)
        }))
        .allow_methods(methods)
        // A trusted page may set whatever headers it likes.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(EXPOSED)
        .max_age(MAX_AGE)
        .vary([header::ORIGIN]);
    Some(cors)
}

/// The answer to a preflight has no body, which its status should say.
pub fn empty_preflight(mut response: Response) -> Response {
    if response
        .headers()
        .contains_key(header::ACCESS_CONTROL_ALLOW_METHODS)
    {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    response
}
