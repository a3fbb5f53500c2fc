//! The endpoints of the description itself, and the check that answers are as it says.

use std::sync::{Arc, OnceLock};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse as _, Response};
use axum::{Extension, Router};
use bytes::Bytes;

use super::document::{Deployment, document};
use super::operation::RefusalForm;
use super::page::{Page, page_of};
use super::routes::{Described, Routes};
use crate::transport::App;
use crate::transport::error::AppError;

/// What the routes of a server are. The document and the page are made when they are first asked for.
pub struct Description {
    deployment: Deployment,
    described: OnceLock<Vec<Described>>,
    json: OnceLock<Bytes>,
    page: OnceLock<Page>,
}

impl Description {
    pub fn new(app: &App) -> Arc<Self> {
        Arc::new(Self {
            deployment: Deployment::of(app),
            described: OnceLock::new(),
            json: OnceLock::new(),
            page: OnceLock::new(),
        })
    }

    /// Takes down what the routes say of themselves, and returns their router.
    pub fn of(&self, routes: Routes) -> Router<App> {
        let (router, described) = routes.into_parts();
        // A server has one router.
        let _ = self.described.set(described);
        router
    }

    fn described(&self) -> &[Described] {
        self.described.get().map_or(&[], Vec::as_slice)
    }

    fn json(&self) -> Bytes {
        let made = self.json.get_or_init(|| {
            let document = document(self.described(), &self.deployment);
            document.to_string().into()
        });
        made.clone()
    }

    fn page(&self) -> &Page {
        self.page
            .get_or_init(|| page_of(&document(self.described(), &self.deployment)))
    }

    /// What an answer has that the description of its operation has not.
    fn misses(&self, path: &str, method: &Method, answer: &Response) -> Option<String> {
        // An answer to HEAD is that to GET without its body.
        let method = if *method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        let all = self.described().iter();
        let Described {
            path, operation, ..
        } = all
            .filter(|it| it.method == *method && is_at(it.path, path))
            .min_by_key(|it| it.path.matches('{').count())?;
        let status = answer.status().as_u16();
        let kind = answer.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default();
        let place = format!("{method} {path}");
        let code = answer.headers().get("x-error-code");
        if let Some(code) = code.and_then(|code| code.to_str().ok()) {
            let form = operation.refusal_form;
            // What only replicas send each other is not for clients.
            let is_internal = code == crate::forwarding::NOT_OWNER;
            let mut refusals = operation.refusals.iter();
            let is_known = refusals.any(|it| (it.status, it.code) == (status, code));
            return if !is_known && !is_internal {
                Some(format!(
                    "{place} is refused with {status} and `{code}`, which its description lacks: add it to `refuses` of the \
                     operation {:?}, in crates/server/src/openapi/operations",
                    operation.id
                ))
            } else {
                let fits = match kind {
                    "application/json" => true,
                    "text/plain" => form == RefusalForm::Words,
                    "text/html" => form == RefusalForm::Page,
                    _ => false,
                };
                (!fits).then(|| {
                    format!("{place} refuses in the form {kind:?}, which its description lacks")
                })
            };
        }
        let mut answers = operation.answers.iter();
        // Refusals of the handler that are pages carry their code elsewhere.
        let refused = answer.extensions().get::<AppError>();
        if let (Some(refusal), RefusalForm::Page) = (refused, operation.refusal_form) {
            let mut refusals = operation.refusals.iter();
            let is_known = refusals.any(|it| it.status == status && it.code == refusal.code);
            return (!is_known).then(|| {
                format!(
                    "{place} shows a page for {status} and `{}`, which its description lacks",
                    refusal.code
                )
            });
        }
        let Some(known) = answers.find(|it| it.status == status) else {
            return Some(format!(
                "{place} is answered with {status}, which its description lacks: add it with `answers` to the operation \
                 {:?}, in crates/server/src/openapi/operations",
                operation.id
            ));
        };
        let mut kinds = known.contents.iter().map(|content| content.media_type);
        // What has not changed is not sent again, whatever its headers say.
        let fits = status == StatusCode::NOT_MODIFIED.as_u16()
            || kinds.any(|known| known == kind || known == "*/*");
        (!fits && (!known.contents.is_empty() || !kind.is_empty())).then(|| {
            format!("{place} is answered with {status} as {kind:?}, which its description lacks")
        })
    }
}

/// Whether a route is for a path.
fn is_at(route: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    for wanted in route.split('/') {
        match (wanted, parts.next()) {
            (_, None) => return false,
            (wanted, Some(part)) if wanted.starts_with("{*") => return !part.is_empty(),
            (wanted, Some(part)) if wanted.starts_with('{') && !part.is_empty() => {}
            (wanted, Some(part)) if wanted == part => {}
            _ => return false,
        }
    }
    parts.next().is_none()
}

/// `GET /api/openapi.json`
pub async fn json(Extension(description): Extension<Arc<Description>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, description.json()).into_response()
}

/// `GET /api/docs`
pub async fn page(Extension(description): Extension<Arc<Description>>) -> Response {
    let page = description.page();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_SECURITY_POLICY, page.policy.clone());
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    (headers, Html(page.html.clone())).into_response()
}

/// In debug builds, and so in tests, turns an answer that the description lacks into a failure that says what to add.
pub async fn hold_to_description(
    State(description): State<Arc<Description>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    let answer = next.run(request).await;
    match description.misses(&path, &method, &answer) {
        Some(missing) => {
            tracing::error!("{missing}");
            AppError::new(StatusCode::INTERNAL_SERVER_ERROR, "undescribed", missing).into_response()
        }
        None => answer,
    }
}
