//! A request as operators see it: its line in the log, its span, and the trace that its work belongs to.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use adk_bridge_agents::trace_context::{TRACEPARENT, TRACESTATE, TraceContext};
use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};

use super::{Span, SpanKind, Tracer, attribute};
use crate::chat::new_id;
use crate::error::AppError;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Request ids of proxies have 16 to 36 characters.
const MAX_REQUEST_ID: usize = 64;

/// How much of a path is shown; the bridge's own paths have at most a few hundred characters.
const MAX_PATH_BYTES: usize = 300;

/// A request in the log, written when its answer begins; the chat logs the result of a turn. Its span ends with its answer.
pub struct RequestLine {
    started: Instant,
    id: String,
    method: Method,
    path: String,
    trace: TraceContext,
    span: Option<Span>,
}

/// The trace that a request belongs to.
#[derive(Debug, Clone, Default)]
pub struct RequestTrace {
    pub context: TraceContext,
    /// Whether the client has named it, rather than this server.
    pub is_given: bool,
}

impl RequestTrace {
    pub fn of(request: &Request) -> Self {
        let noted = request.extensions().get::<Self>();
        noted.cloned().unwrap_or_default()
    }
}

impl RequestLine {
    /// Whoever handles the request, or passes it on, finds the trace of the span that begins here in its headers.
    pub fn begin(request: &mut Request, tracer: &Tracer) -> Self {
        let id = request
            .headers()
            .get(REQUEST_ID)
            .and_then(|id| id.to_str().ok())
            .filter(|id| is_safe_request_id(id))
            .map_or_else(|| new_id("req"), str::to_owned);
        let method = request.method().clone();
        // Without the query, which may hold a ticket.
        let path = request.uri().path();
        let path = path[..path.floor_char_boundary(MAX_PATH_BYTES)].to_owned();
        tracing::trace!(request = id, "{method} {path} arrived");
        let given = TraceContext::of_headers(request.headers());
        let span = match is_informing(&path) {
            true => None,
            false => span_of(request, &id, tracer, &given),
        };
        let is_given = !given.is_none();
        let trace = span.as_ref().map_or(given, |span| span.context().clone());
        let headers = request.headers_mut();
        headers.remove(TRACEPARENT);
        headers.remove(TRACESTATE);
        if !trace.is_none() {
            trace.put(headers);
            request.extensions_mut().insert(RequestTrace {
                context: trace.clone(),
                is_given,
            });
        }
        Self {
            started: Instant::now(),
            id,
            method,
            path,
            trace,
            span,
        }
    }

    /// The trace that the work for the request belongs to.
    pub fn trace(&self) -> &TraceContext {
        &self.trace
    }

    /// Writes the line, puts the id of the request into its answer, and lets the span end with the answer.
    pub fn end(self, response: &mut Response) {
        let Self {
            started,
            id,
            method,
            path,
            span,
            ..
        } = self;
        let status = response.status().as_u16();
        let millis = started.elapsed().as_millis();
        let refusal = response.extensions().get::<AppError>();
        let code = refusal
            .map(|refusal| format!(" {}", refusal.code))
            .unwrap_or_default();
        if is_informing(&path) {
            tracing::debug!(request = id, status, "{method} {path}: {status}{code}");
        } else {
            tracing::info!(
                request = id,
                status,
                millis,
                "{method} {path}: {status}{code}"
            );
        }
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        let Some(mut span) = span else {
            return;
        };
        span.set("http.response.status_code", i64::from(status));
        if let Some(refusal) = response.extensions().get::<AppError>() {
            span.set("adk_bridge.error.code", refusal.code);
        }
        if status >= 500 {
            span.fail(status.to_string());
        }
        // An upgrade has no body, and a body that has ended keeps no span open.
        if !response.body().is_end_stream() && !response.status().is_informational() {
            let body = std::mem::take(response.body_mut());
            *response.body_mut() = Body::new(SpannedBody { body, _span: span });
        }
    }
}

/// The span of a request: nothing in it that the client has chosen, but the trace.
fn span_of(request: &Request, id: &str, tracer: &Tracer, given: &TraceContext) -> Option<Span> {
    let route = request.extensions().get::<MatchedPath>();
    let method = match request.method().as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => known,
        _ => "_OTHER",
    };
    tracer.start(SpanKind::Server, given, || {
        let mut attributes = vec![
            attribute("http.request.method", method.to_owned()),
            attribute("adk_bridge.request.id", id.to_owned()),
        ];
        let name = match route.map(MatchedPath::as_str) {
            Some(route) => {
                attributes.push(attribute("http.route", route.to_owned()));
                format!("{method} {route}")
            }
            None => method.to_owned(),
        };
        (name, attributes)
    })
}

/// What is asked so often, and says so little, that it is neither in the log nor in a trace.
fn is_informing(path: &str) -> bool {
    matches!(path, "/health" | "/ready" | "/metrics")
}

/// A client's request id is logged only if it can be nothing but an id.
fn is_safe_request_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= MAX_REQUEST_ID
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The body of an answer whose span ends with it: when it has been written, or its client is gone.
struct SpannedBody {
    body: Body,
    _span: Span,
}

impl hyper::body::Body for SpannedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
