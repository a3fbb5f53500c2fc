//! What everybody may see: the page, and whether the server lives.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::{Value, json};

use crate::auth::check_host;
use crate::error::AppError;
use crate::router::App;

const INDEX: &str = include_str!("page.html");
/// Nothing is loaded from elsewhere, and nothing may frame the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub async fn index(State(app): State<App>, headers: HeaderMap) -> Result<Response, AppError> {
    check_host(&app, &headers)?;
    let mut response = Html(INDEX).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    Ok(response)
}

pub async fn health() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// Whether requests can be served: the store answers.
pub async fn ready(State(app): State<App>) -> Result<Json<Value>, AppError> {
    app.chats.list(crate::auth::LOCAL).await?;
    Ok(Json(json!({"status": "ready"})))
}

pub async fn not_found() -> AppError {
    AppError::not_found("page or door")
}
