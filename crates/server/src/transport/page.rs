//! What everybody may see: the page with its assets, and whether the server lives.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};
use serde_json::{Value, json};

use crate::auth::check_host;
use crate::error::AppError;
use crate::router::App;

/// What `web/ui` was built into, each text also compressed (`NAME.br`, `NAME.gz`). Empty where it was not built.
#[derive(RustEmbed)]
#[folder = "$CARGO_MANIFEST_DIR/../../web/ui/dist"]
#[allow_missing = true]
struct Built;

/// Shown where the page was not built.
const UNBUILT: &str = include_str!("page.html");
/// Nothing is loaded from elsewhere, nothing inline runs, and nothing may frame the page. Pictures and sounds that the
/// page makes itself have `blob:` and `data:` addresses; formulas are laid out by style attributes.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; \
                      font-src 'self'; connect-src 'self'; \
                      img-src 'self' data: blob:; media-src 'self' data: blob:; worker-src 'self'; \
                      manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// What the page's client tools and its voice ask the browser for.
const PERMISSIONS: &str =
    "camera=(self), microphone=(self), geolocation=(self), display-capture=(self)";
/// Assets are named after their content.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// The page itself names the assets of its build: it is looked for each time, and mostly found unchanged.
const LOOK_AGAIN: &str = "no-cache";
/// Compressed forms that a build leaves beside a file, the smallest first.
const ENCODINGS: [(&str, &str); 2] = [("br", ".br"), ("gzip", ".gz")];

pub async fn index(State(app): State<App>, headers: HeaderMap) -> Result<Response, AppError> {
    check_host(&app, &headers)?;
    let mut response = stored("index.html", LOOK_AGAIN, &headers)
        .unwrap_or_else(|| axum::response::Html(UNBUILT).into_response());
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
        .headers_mut()
        .insert("permissions-policy", HeaderValue::from_static(PERMISSIONS));
    nosniff(&mut response);
    Ok(response)
}

/// A script, style or picture of the page.
pub async fn asset(
    State(app): State<App>,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Result<Response, AppError> {
    check_host(&app, &headers)?;
    let mut response = stored(&format!("assets/{path}"), FOR_EVER, &headers)
        .ok_or_else(|| AppError::not_found("page or door"))?;
    nosniff(&mut response);
    Ok(response)
}

pub async fn health() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// Whether requests can be served: the store answers.
pub async fn ready(State(app): State<App>) -> Result<Json<Value>, AppError> {
    app.chats.list(crate::auth::LOCAL, None).await?;
    Ok(Json(json!({"status": "ready"})))
}

pub async fn not_found() -> AppError {
    AppError::not_found("page or door")
}

/// A file of the build in the form that the client takes, or word that it has it already.
fn stored(path: &str, keep: &'static str, asked: &HeaderMap) -> Option<Response> {
    let kind = media_type(path)?;
    let plain = Built::get(path)?;
    let accepted = asked
        .get(header::ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let packed = ENCODINGS
        .into_iter()
        .filter(|(name, _)| accepts(accepted, name))
        .find_map(|(name, suffix)| Some((name, Built::get(&format!("{path}{suffix}"))?)));
    let (encoding, file) = match packed {
        Some((name, file)) => (Some(name), file),
        None => (None, plain),
    };
    let tag = tag_of(&file);
    let known = asked
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|tags| tags.split(',').any(|known| known.trim() == tag));
    let mut response = match known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => Body::from(file.data.into_owned()).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(header::ETAG, tag);
    }
    if let Some(encoding) = encoding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    Some(response)
}

/// Tells whether a client takes this encoding: `br;q=0` says that it does not.
fn accepts(accepted: &str, name: &str) -> bool {
    accepted.split(',').any(|offer| {
        let mut words = offer.split(';').map(str::trim);
        let named = words
            .next()
            .is_some_and(|offered| offered.eq_ignore_ascii_case(name));
        let refused = words
            .filter_map(|word| word.strip_prefix("q="))
            .any(|weight| weight.parse() == Ok(0.0_f32));
        named && !refused
    })
}

fn tag_of(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    let short: String = hash
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("\"{short}\"")
}

/// What a build may hold; anything else, the compressed forms included, has no address. Nor has a path that leads
/// upwards: a debug build reads its files from the disk.
fn media_type(path: &str) -> Option<&'static str> {
    if path.split(['/', '\\']).any(|name| name == "..") {
        return None;
    }
    Some(match path.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "webmanifest" => "application/manifest+json",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "onnx" => "application/octet-stream",
        _ => return None,
    })
}

fn nosniff(response: &mut Response) {
    response.headers_mut().insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_taken_when_it_is_named_and_not_refused() {
        let cases = [
            ("gzip, deflate, br", "br", true),
            ("gzip, deflate, br", "gzip", true),
            ("GZIP;q=0.5", "gzip", true),
            ("br;q=0, gzip", "br", false),
            ("br; q=0.0", "br", false),
            ("br;q=0.001", "br", true),
            ("brotli", "br", false),
            ("", "gzip", false),
        ];
        for (accepted, name, expected) in cases {
            assert_eq!(accepts(accepted, name), expected, "{accepted}: {name}");
        }
    }

    #[test]
    fn only_what_a_page_is_made_of_has_an_address() {
        for path in ["index.html", "assets/index-1a2b.js", "assets/a.b.css"] {
            assert!(media_type(path).is_some(), "{path}");
        }
        for path in [
            "assets/index.js.br",
            "assets/index.js.gz",
            "assets/x",
            ".vite/manifest.json",
            "assets/../index.html",
        ] {
            assert!(media_type(path).is_none(), "{path}");
        }
    }
}
