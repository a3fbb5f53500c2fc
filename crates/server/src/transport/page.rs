//! Public endpoints: the page with its assets, and whether the server is alive.

pub mod documents;
mod embedded;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::Serialize;

use super::error::AppError;
use crate::chat::{Chats, Ready};
use crate::cluster::{ClusterState, PROBE};
use crate::config::Config;

use embedded::Build;

/// Shown if the page was not built.
const UNBUILT: &str = include_str!("page.html");
/// Nothing is loaded from elsewhere, nothing inline runs, and nothing may frame the page. Pictures and sounds that the
/// page makes itself have `blob:` and `data:` addresses; formulas are laid out by style attributes.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; \
                      font-src 'self'; connect-src 'self'; \
                      img-src 'self' data: blob:; media-src 'self' data: blob:; worker-src 'self'; \
                      manifest-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The frame for apps of MCP servers has no origin, even if somebody opens it directly, and only the page may frame it. The
/// file itself says what may be loaded in it.
const APP_FRAME_POLICY: &str = "sandbox allow-scripts; frame-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
/// What the page's client tools and its voice ask the browser for.
const PERMISSIONS: &str =
    "camera=(self), microphone=(self), geolocation=(self), display-capture=(self)";
/// Assets are named after their content.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// The page itself names the assets of its build: browsers ask for it each time, and mostly have it already.
const REVALIDATED: &str = "no-cache";

pub async fn index(State(config): State<Arc<Config>>, mut request: Request) -> Response {
    let mut response = if is_built() {
        *request.uri_mut() = Uri::from_static("/index.html");
        file(Build::Page, request, REVALIDATED)
            .await
            .into_response()
    } else {
        Html(UNBUILT).into_response()
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::REFERRER_POLICY.as_str(), "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS.as_str(), "nosniff"),
        ("permissions-policy", PERMISSIONS),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policy = content_policy(config.server.public_url.as_deref());
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// The frame in which the page shows apps of MCP servers.
pub async fn app_frame(request: Request) -> Result<Response, AppError> {
    let mut response = file(Build::Page, request, REVALIDATED).await?;
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, APP_FRAME_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// A script, style or picture of the page.
pub async fn asset(request: Request) -> Result<Response, AppError> {
    file(Build::Page, request, IMMUTABLE).await
}

/// Whether the page is part of this program.
pub fn is_built() -> bool {
    Build::Page.is_there()
}

/// Whether the process answers; other replicas look whether it is the one that they mean.
pub async fn health(State(chats): State<Chats>, headers: HeaderMap) -> Response {
    let mut response = Json(Health { status: "ok" }).into_response();
    let word = headers.get(PROBE).and_then(|word| word.to_str().ok());
    if let (Some(cluster), Some(word)) = (&chats.shared().cluster, word)
        && let Some(answer) = cluster.answer_probe(word)
        && let Ok(answer) = HeaderValue::try_from(answer)
    {
        response.headers_mut().insert(PROBE, answer);
    }
    response
}

/// What `/ready` says of a server that is; lists without an entry are left out.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    #[schemars(extend("const" = "ready"))]
    status: &'static str,
    /// `unavailable` if the bucket of `files.url` does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = "unavailable"))]
    files: Option<&'static str>,
    /// The agents whose servers cannot be reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreachable: Vec<String>,
    /// The agents whose server does not list their app.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_apps: Vec<String>,
    /// The agents that the bridge has no token for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without_token: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterState>,
    /// The MCP servers that are not available.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unavailable_tools: Vec<String>,
}

/// Whether requests can be served, that is, stored.
pub async fn ready(State(chats): State<Chats>) -> Result<Json<Readiness>, AppError> {
    let Ready {
        has_files,
        without_token,
    } = chats.ready().await?;
    let agents = &chats.shared().agents;
    Ok(Json(Readiness {
        status: "ready",
        files: (!has_files).then_some("unavailable"),
        unreachable: agents.unreachable(),
        missing_apps: agents.missing_apps(),
        without_token,
        cluster: chats.cluster_state(),
        unavailable_tools: agents.without_tools(),
    }))
}

/// What `/health` says as long as the process answers.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Health {
    #[schemars(extend("const" = "ok"))]
    status: &'static str,
}

pub async fn not_found() -> AppError {
    AppError::not_found("page or endpoint")
}

/// Files have URLs below the public one, under whichever name the page was opened.
fn content_policy(public_url: Option<&str>) -> HeaderValue {
    let Some(url) = public_url else {
        return HeaderValue::from_static(POLICY);
    };
    let url = url.trim_end_matches('/');
    let policy = ["img", "media", "connect"]
        .iter()
        .fold(POLICY.to_owned(), |policy, kind| {
            let own = format!("{kind}-src 'self'");
            policy.replace(&own, &format!("{own} {url}"))
        });
    policy.parse().unwrap_or(HeaderValue::from_static(POLICY))
}

/// A file of the build, encoded as the client accepts it, or a 304 if the client has it already.
async fn file(build: Build, request: Request, cache: &'static str) -> Result<Response, AppError> {
    let Some(kind) = media_type(request.uri().path()) else {
        return Err(not_found().await);
    };
    let mut response = build.serve(request).await;
    if !(response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED) {
        return Ok(response);
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, cache),
        (header::CONTENT_TYPE, kind),
        (header::VARY, "accept-encoding"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// The media types of a build's files; anything else, including the compressed forms, is not served.
fn media_type(path: &str) -> Option<&'static str> {
    Some(match path.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        // By it, an open page of the documents finds the scripts of a newer build.
        "json" if path == "/hashmap.json" => "application/json",
        "webmanifest" => "application/manifest+json",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "onnx" => "application/octet-stream",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_page_is_made_of_has_an_address() {
        for path in ["/index.html", "/assets/index-1a2b.js", "/assets/a.b.css"] {
            assert!(media_type(path).is_some(), "{path}");
        }
        for path in [
            "/assets/index.js.br",
            "/assets/index.js.gz",
            "/assets/x",
            "/.vite/manifest.json",
        ] {
            assert!(media_type(path).is_none(), "{path}");
        }
    }

    #[test]
    fn files_may_be_shown_from_the_public_address() {
        let policy = content_policy(Some("https://chat.example/"));
        let policy = policy.to_str().unwrap_or_default();
        for source in ["img-src", "media-src", "connect-src"] {
            let allowed = format!("{source} 'self' https://chat.example");
            assert!(policy.contains(&allowed), "{policy}");
        }
        assert!(!policy.contains("script-src 'self' https"), "{policy}");
    }
}
