//! Who asks, and whether from where they may: API keys, `Origin` and `Host`.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::error::AppError;
use crate::router::App;

/// The user of a bridge without keys.
pub const LOCAL: &str = "local";

/// The user on whose behalf a request is served.
#[derive(Debug, Clone)]
pub struct User(pub String);

/// Lets a request through that names a valid key (where keys are set) and comes from a page that may ask.
///
/// A page on the allow-list is elsewhere, and its browser shows it an answer only where the answer names it.
pub async fn guard(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let listed = listed_origin(&app, request.headers());
    let mut response = match admit(&app, &request) {
        Ok(_) if listed.is_some() && is_preflight(&request) => preflight(request.headers()),
        Ok(None) => unauthorized(),
        Ok(Some(user)) => {
            request.extensions_mut().insert(User(user));
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    };
    if !app.config.server.allowed_origins.is_empty() {
        let headers = response.headers_mut();
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = listed {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(
                header::ACCESS_CONTROL_EXPOSE_HEADERS,
                HeaderValue::from_static("x-vercel-ai-ui-message-stream"),
            );
        }
    }
    response
}

/// The user of a request from where it may come; none where its key is not valid.
fn admit(app: &App, request: &Request) -> Result<Option<String>, AppError> {
    check_host(app, request.headers())?;
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        check_origin(app, request.headers())?;
    }
    Ok(user_of(app, request.headers()))
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Browsers ask without a key before they send one. Whatever headers they name, a trusted page may set.
fn preflight(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, POST, PATCH, DELETE"),
    );
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static("600"),
    );
    response
}

pub fn unauthorized() -> Response {
    let refusal = AppError::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "a valid key is needed: Authorization: Bearer KEY",
    );
    let scheme = [(header::WWW_AUTHENTICATE, "Bearer")];
    (scheme, refusal).into_response()
}

/// A page elsewhere must not reach a bridge on this machine under a name of its own (DNS rebinding).
pub fn check_host(app: &App, headers: &HeaderMap) -> Result<(), AppError> {
    if !app.config.server.listen.ip().is_loopback() {
        return Ok(());
    }
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) {
            name
        } else {
            host
        }
    });
    let address = name.trim_start_matches('[').trim_end_matches(']');
    if name.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        || host.is_empty()
    {
        return Ok(());
    }
    Err(AppError::new(
        StatusCode::FORBIDDEN,
        "foreign_host",
        format!("this bridge serves this machine only, not {name:?}"),
    ))
}

/// A browser says where a request comes from; a program sends no origin and is let through.
pub fn check_origin(app: &App, headers: &HeaderMap) -> Result<(), AppError> {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let same = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"))
        .is_some_and(|rest| rest == host);
    if same || listed_origin(app, headers).is_some() {
        return Ok(());
    }
    Err(AppError::new(
        StatusCode::FORBIDDEN,
        "foreign_origin",
        format!("pages of {origin:?} may not use this bridge; add it to server.allowed_origins"),
    ))
}

/// The origin of a request, if it is on the allow-list.
fn listed_origin(app: &App, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let allowed = &app.config.server.allowed_origins;
    allowed
        .iter()
        .any(|allowed| allowed.as_bytes() == origin.as_bytes())
        .then(|| origin.clone())
}

/// The user whose key a request names.
pub fn user_of(app: &App, headers: &HeaderMap) -> Option<String> {
    let keys = &app.config.auth.api_keys;
    if keys.is_empty() {
        return Some(LOCAL.to_owned());
    }
    let (scheme, given) = headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    keys.iter()
        .find(|key| same(key.key.as_bytes(), given.trim().as_bytes()))
        .map(|key| key.user.clone())
}

/// Compares without telling by its time how much is right.
fn same(expected: &[u8], given: &[u8]) -> bool {
    let mut difference = expected.len() ^ given.len();
    for (index, byte) in expected.iter().enumerate() {
        difference |= usize::from(byte ^ given.get(index).copied().unwrap_or(0));
    }
    difference == 0
}
