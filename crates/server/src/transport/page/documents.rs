//! The documents as a site, which is built in `web/docs`.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse as _, Redirect, Response};

use super::embedded::Build;
use super::{IMMUTABLE, REVALIDATED, file};
use crate::transport::error::AppError;

/// Below it lies the site.
const PLACE: &str = "/docs/";
/// Shown if the site was not built.
const UNBUILT: &str = include_str!("documents.html");
/// Nothing is loaded from elsewhere, no inline script runs, and nothing may frame it. The colours of code are style attributes,
/// and icons of styles have `data:` addresses.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; \
                      connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// The site's own addresses are relative to its folder; this one is, too, whatever a proxy puts in front of it.
pub async fn enter() -> Redirect {
    Redirect::permanent("docs/")
}

/// A page or another file of the site.
pub async fn open(mut request: Request) -> Response {
    let path = request.uri().path();
    let path = path.strip_prefix(PLACE).unwrap_or_default().to_owned();
    let (name, cache) = file_of(&path);
    let mut response = match Uri::try_from(format!("/{name}")) {
        Ok(uri) if Build::Documents.is_there() => {
            *request.uri_mut() = uri;
            let found = file(Build::Documents, request, cache).await;
            match found.map_err(|refusal| refusal.into_response()) {
                Ok(response) | Err(response) if response.status() != StatusCode::NOT_FOUND => {
                    response
                }
                _ => missing(&path),
            }
        }
        _ => missing(&path),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The file for a path below `/docs/`, and how long clients keep it. The addresses of pages have no ending, and no folders.
fn file_of(path: &str) -> (String, &'static str) {
    match path {
        "" => ("index.html".to_owned(), REVALIDATED),
        _ if path.starts_with("assets/") => (path.to_owned(), IMMUTABLE),
        _ if !path.contains(['.', '/', '%']) => (format!("{path}.html"), REVALIDATED),
        // A page has one address.
        _ if path.ends_with(".html") => (String::new(), REVALIDATED),
        _ => (path.to_owned(), REVALIDATED),
    }
}

/// Says that there is no such page, or none at all.
fn missing(path: &str) -> Response {
    let page = Build::Documents.text("404.html");
    let headers = [(header::CACHE_CONTROL, REVALIDATED)];
    let html = Html(words_for_missing(path, page));
    let mut response = (StatusCode::NOT_FOUND, headers, html).into_response();
    let refusal = AppError::not_found("document");
    response.extensions_mut().insert(refusal);
    response
}

/// The site's own page for it is written for the folder that all pages are in.
fn words_for_missing(path: &str, page: Option<String>) -> String {
    let up = "../".repeat(path.matches('/').count());
    match page {
        Some(page) => page.replace("=\"./", &format!("=\"./{up}")),
        None => UNBUILT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_no_ending_and_assets_are_kept() {
        for (path, name, cache) in [
            ("", "index.html", REVALIDATED),
            ("front-ends", "front-ends.html", REVALIDATED),
            ("assets/app.1a2b.js", "assets/app.1a2b.js", IMMUTABLE),
            ("icon.svg", "icon.svg", REVALIDATED),
            ("front-ends.html", "", REVALIDATED),
            ("front-ends/", "front-ends/", REVALIDATED),
            ("%2e%2e", "%2e%2e", REVALIDATED),
        ] {
            assert_eq!(file_of(path), (name.to_owned(), cache), "{path}");
        }
    }

    #[test]
    fn what_is_missing_is_said_at_any_depth_and_how_to_build_it() {
        let page = || Some("<a href=\"./\"><script src=\"./assets/a.js\">".to_owned());
        for (path, found) in [
            ("nothing", "<a href=\"./\"><script src=\"./assets/a.js\">"),
            (
                "a/b/",
                "<a href=\"./../../\"><script src=\"./../../assets/a.js\">",
            ),
        ] {
            assert_eq!(words_for_missing(path, page()), found);
        }
        let unbuilt = words_for_missing("", None);
        assert!(unbuilt.contains("npm run build"), "{unbuilt}");
    }
}
