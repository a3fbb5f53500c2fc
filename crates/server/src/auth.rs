//! Who asks, and whether from where they may: API keys, `Origin` and `Host`.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::error::AppError;
use crate::router::App;

/// The user of a bridge without keys.
pub const LOCAL: &str = "local";

/// The user on whose behalf a request is served.
#[derive(Debug, Clone)]
pub struct User(pub String);

/// Lets a request through that names a valid key (where keys are set) and comes from a page that may ask.
pub async fn guard(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Result<Response, AppError> {
    check_host(&app, request.headers())?;
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        check_origin(&app, request.headers())?;
    }
    let user = user_of(&app, request.headers())?;
    request.extensions_mut().insert(User(user));
    Ok(next.run(request).await)
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
    if matches!(name, "localhost" | "127.0.0.1" | "[::1]") || host.is_empty() {
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
    if same
        || app
            .config
            .server
            .allowed_origins
            .iter()
            .any(|allowed| allowed == origin)
    {
        return Ok(());
    }
    Err(AppError::new(
        StatusCode::FORBIDDEN,
        "foreign_origin",
        format!("pages of {origin:?} may not use this bridge; add it to server.allowed_origins"),
    ))
}

fn user_of(app: &App, headers: &HeaderMap) -> Result<String, AppError> {
    let keys = &app.config.auth.api_keys;
    if keys.is_empty() {
        return Ok(LOCAL.to_owned());
    }
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    let found = keys
        .iter()
        .filter(|key| same(key.key.as_bytes(), given.as_bytes()))
        .map(|key| key.user.clone())
        .next();
    found.ok_or_else(|| {
        AppError::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "a valid key is needed: Authorization: Bearer KEY",
        )
    })
}

/// Compares without telling by its time how much is right.
fn same(expected: &[u8], given: &[u8]) -> bool {
    let mut difference = expected.len() ^ given.len();
    for (index, byte) in expected.iter().enumerate() {
        difference |= usize::from(byte ^ given.get(index).copied().unwrap_or(0));
    }
    difference == 0
}
