//! An MCP server over streamable HTTP: requests are POSTs, answered with JSON or with a stream of events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::wire::json;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use rmcp::model::{
    ClientJsonRpcMessage, ConstString as _, GetMeta as _, JsonRpcMessage,
    ProgressNotificationMethod, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use rmcp::transport::{StreamableHttpClientTransport, WorkerTransport};
use serde_json::Value;
use sse_stream::{Sse, SseStream};

use super::ending::Ending;
use super::questions::RunningCalls;
use super::{MAX_MESSAGE_BYTES, McpError};
use crate::loopback::is_loopback;
use crate::trace_context::{TRACEPARENT, TRACESTATE, TraceContext};

const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long an idle connection is used again. Servers made with Node close theirs after five seconds, and what came of a call
/// that is sent at that moment is unknown.
const IDLE_TIME: Duration = Duration::from_secs(3);
/// How many requests may wait for the beginning of their answers; users of one server share it.
const MAX_REQUESTS: usize = 64;
/// The largest report of progress that is shown.
const MAX_PROGRESS_BYTES: usize = 64 * 1024;
/// How much of the body of a refusal is read.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

const SESSION_ID: &str = "mcp-session-id";
const LAST_EVENT_ID: &str = "last-event-id";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
/// Headers that belong to the protocol.
const RESERVED: &[&str] = &[
    "accept",
    "content-length",
    "content-type",
    "host",
    LAST_EVENT_ID,
    "mcp-protocol-version",
    SESSION_ID,
];

pub(super) type HttpTransport = StreamableHttpClientTransport<HttpClient>;

/// Sends the requests of one connection.
#[derive(Clone)]
pub(super) struct HttpClient {
    http: reqwest::Client,
    ending: Ending,
    calls: Arc<RunningCalls>,
}

/// Where a server is, and what every request to it carries.
#[derive(Clone)]
pub(super) struct Place {
    http: reqwest::Client,
    url: Arc<str>,
    headers: HashMap<HeaderName, HeaderValue>,
}

/// Why a request got no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpFailure {
    #[error("it cannot be reached")]
    Unreachable,
    #[error("it redirects requests ({0}), which would get the headers; correct its url")]
    Redirect(StatusCode),
    #[error("it does not accept the credentials ({0}); check its headers")]
    Unauthorized(StatusCode),
    #[error("it answers with status {0}")]
    Status(StatusCode),
    #[error("its answer is neither JSON nor a stream of events")]
    Form,
    #[error("its answer has more than {} MB", MAX_MESSAGE_BYTES / (1024 * 1024))]
    TooLong,
    #[error("its answer has too many values")]
    TooManyValues,
    #[error("its answer is not a message of the protocol")]
    NotAMessage,
    #[error("its answer broke off")]
    BrokenOff,
}

impl Place {
    pub(super) fn new(url: &str, headers: &[(String, String)]) -> Result<Self, McpError> {
        let parsed = Url::parse(url).ok();
        let parsed = parsed
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                // It may contain a password.
                McpError::Url("url: write the address of the server, http://HOST:PORT/mcp".into())
            })?;
        let bad = |name: &str| {
            McpError::Url(format!(
                "headers: {name:?} and its value cannot be sent as a header; write another name, and one line of text"
            ))
        };
        let mut sent = HashMap::new();
        for (name, value) in headers {
            let header: HeaderName = name.parse().map_err(|_| bad(name))?;
            if RESERVED.contains(&header.as_str()) {
                return Err(bad(name));
            }
            let mut value = HeaderValue::from_str(value).map_err(|_| bad(name))?;
            value.set_sensitive(true);
            sent.insert(header, value);
        }
        let mut builder = crate::trust::http_client()
            .connect_timeout(CONNECT_TIME)
            .pool_idle_timeout(IDLE_TIME)
            .tcp_nodelay(true)
            // The headers may contain secrets, which are for this server only.
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(&parsed) {
            builder = builder.no_proxy();
        }
        let http = builder
            .build()
            .map_err(|error| McpError::Url(format!("the connection cannot be set up: {error}")))?;
        Ok(Self {
            http,
            url: parsed.as_str().into(),
            headers: sent,
        })
    }

    pub(super) fn transport(&self, ending: Ending, calls: Arc<RunningCalls>) -> HttpTransport {
        let config = StreamableHttpClientTransportConfig::with_uri(self.url.clone())
            .custom_headers(self.headers.clone())
            .max_sse_event_size(MAX_MESSAGE_BYTES)
            .max_concurrent_requests(MAX_REQUESTS)
            // It would send a call once more; a new connection is made instead.
            .reinit_on_expired_session(false);
        let client = HttpClient {
            http: self.http.clone(),
            ending,
            calls,
        };
        WorkerTransport::with_client(client, config)
    }
}

type Failed = StreamableHttpError<HttpFailure>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

impl HttpClient {
    /// Sends a request and refuses what no server should answer.
    async fn send(
        &self,
        request: RequestBuilder,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Response, Failed> {
        let mut request = request;
        if let Some(session) = session {
            request = request.header(SESSION_ID, session);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                let detail = error.without_url().to_string();
                tracing::debug!(detail, "a request to an MCP server failed");
                return Err(self.failed(HttpFailure::Unreachable));
            }
        };
        let status = response.status();
        if status.is_redirection() {
            return Err(self.failed(HttpFailure::Redirect(status)));
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(self.failed(HttpFailure::Unauthorized(status)));
        }
        Ok(response)
    }

    /// The events of a response, each within the bounds of a message. Those that say how far a call is end here.
    fn events(&self, response: Response) -> Events {
        events_in(response.bytes_stream().boxed(), self.calls.clone())
    }

    fn failed(&self, failure: HttpFailure) -> Failed {
        self.ending.note(failure.to_string());
        StreamableHttpError::Client(failure)
    }

    async fn post(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let request = (self.http.post(&*uri))
            .header(ACCEPT, format!("{JSON}, {EVENTS}"))
            .header(CONTENT_TYPE, JSON)
            .headers(trace_of(&message).headers())
            .body(serde_json::to_vec(&message)?);
        let response = self.send(request, session.as_deref(), headers).await?;
        let status = response.status();
        let wants_answer = matches!(message, JsonRpcMessage::Request(_));
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let given = header(&response, SESSION_ID);
        let form = header(&response, CONTENT_TYPE.as_str()).unwrap_or_default();
        if !status.is_success() {
            // A refusal may say why, as an answer.
            let body = bounded(response, MAX_REFUSAL_BYTES)
                .await
                .unwrap_or_default();
            return match read_message(&body) {
                Ok(answer @ JsonRpcMessage::Error(_)) => {
                    Ok(StreamableHttpPostResponse::Json(answer, given))
                }
                _ => Err(self.failed(HttpFailure::Status(status))),
            };
        }
        if form.starts_with(EVENTS) {
            return Ok(StreamableHttpPostResponse::Sse(
                self.events(response),
                given,
            ));
        }
        if !wants_answer {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !form.starts_with(JSON) {
            return Err(self.failed(HttpFailure::Form));
        }
        let body = bounded(response, MAX_MESSAGE_BYTES).await;
        let body = body.map_err(|failure| self.failed(failure))?;
        let answer = read_message(&body).map_err(|failure| self.failed(failure))?;
        Ok(StreamableHttpPostResponse::Json(answer, given))
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = HttpFailure;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        self.post(uri, message, session, headers).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failed> {
        let request = self.http.delete(&*uri);
        self.send(request, Some(&session), headers).await?;
        Ok(())
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Failed> {
        let mut request = self.http.get(&*uri).header(ACCEPT, EVENTS);
        if let Some(id) = last_event_id {
            request = request.header(LAST_EVENT_ID, id);
        }
        let response = self.send(request, session.as_deref(), headers).await?;
        let form = header(&response, CONTENT_TYPE.as_str()).unwrap_or_default();
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if !status.is_success() => {
                Err(StreamableHttpError::Client(HttpFailure::Status(status)))
            }
            _ if !form.starts_with(EVENTS) => Err(StreamableHttpError::Client(HttpFailure::Form)),
            _ => Ok(self.events(response)),
        }
    }
}

/// The trace that a message says it belongs to. Proxies and servers that do not read messages look for it in headers.
fn trace_of(message: &ClientJsonRpcMessage) -> TraceContext {
    let JsonRpcMessage::Request(request) = message else {
        return TraceContext::default();
    };
    let meta = request.request.get_meta();
    let field = |name: HeaderName| meta.get(name.as_str()).and_then(Value::as_str);
    let parent = field(TRACEPARENT).unwrap_or_default();
    TraceContext::read(parent, field(TRACESTATE).unwrap_or_default())
}

fn header(response: &Response, name: &str) -> Option<String> {
    let value = response.headers().get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

async fn bounded(response: Response, max_bytes: usize) -> Result<BytesMut, HttpFailure> {
    let mut response = response;
    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await.map_err(|_| HttpFailure::BrokenOff)? {
        if body.len() + piece.len() > max_bytes {
            return Err(HttpFailure::TooLong);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

pub(super) fn read_message(body: &[u8]) -> Result<ServerJsonRpcMessage, HttpFailure> {
    let text = json::whole(body).map_err(|_| HttpFailure::TooManyValues)?;
    json::read_whole(&text).map_err(|_| HttpFailure::NotAMessage)
}

/// The events of a stream of bytes.
pub(super) fn events_in(
    bytes: BoxStream<'static, reqwest::Result<Bytes>>,
    calls: Arc<RunningCalls>,
) -> Events {
    let events = SseStream::from_bytes_stream(within_events(bytes)).filter_map(move |event| {
        let passed = match event {
            Ok(event) => passed(event, &calls),
            Err(error) => Some(Err(error)),
        };
        std::future::ready(passed)
    });
    events.boxed()
}

/// An event that is for others.
fn passed(event: Sse, calls: &RunningCalls) -> Option<Result<Sse, SseError>> {
    let Some(data) = event.data.as_deref() else {
        return Some(Ok(event));
    };
    if json::check(data.as_bytes()).is_err() {
        return Some(Err(SseError::Body(Box::new(HttpFailure::TooManyValues))));
    }
    // Only what may be one is read twice.
    if data.len() <= MAX_PROGRESS_BYTES
        && data.contains(ProgressNotificationMethod::VALUE)
        && let Ok(JsonRpcMessage::Notification(sent)) = read_message(data.as_bytes())
        && let ServerNotification::ProgressNotification(said) = sent.notification
    {
        calls.report(&said.params);
        return None;
    }
    Some(Ok(event))
}

/// Ends a stream of events with an error where one is larger than a message may be.
fn within_events(
    bytes: BoxStream<'static, reqwest::Result<Bytes>>,
) -> impl Stream<Item = Result<Bytes, HttpFailure>> + Send {
    let begin = (Some(bytes), EventSize::default());
    stream::unfold(begin, |(bytes, mut size)| async move {
        let mut bytes = bytes?;
        match bytes.next().await? {
            Ok(piece) if size.takes(&piece) => Some((Ok(piece), (Some(bytes), size))),
            Ok(_) => Some((Err(HttpFailure::TooLong), (None, size))),
            Err(_) => Some((Err(HttpFailure::BrokenOff), (None, size))),
        }
    })
}

/// How much of an event has come.
#[derive(Default)]
struct EventSize {
    event: usize,
    line: usize,
}

impl EventSize {
    fn takes(&mut self, piece: &[u8]) -> bool {
        for byte in piece {
            match byte {
                b'\n' if self.line == 0 => self.event = 0,
                b'\n' => self.line = 0,
                b'\r' => {}
                _ => self.line += 1,
            }
            self.event += 1;
            if self.event > MAX_MESSAGE_BYTES {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_at_a_blank_line() {
        let mut size = EventSize::default();
        let half = vec![b'x'; MAX_MESSAGE_BYTES / 2];
        for _ in 0..4 {
            assert!(size.takes(&half));
            assert!(size.takes(b"\r\n\r\n"));
        }
        assert!(size.takes(&half));
        assert!(size.takes(b"\n"));
        assert!(!size.takes(&half));
    }

    #[test]
    fn headers_of_the_protocol_and_broken_ones_are_refused_by_name() {
        let refused = |url: &str, headers: &[(&str, &str)]| {
            let headers: Vec<_> = (headers.iter())
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            Place::new(url, &headers)
                .err()
                .map(|error| error.to_string())
        };
        let url = "http://127.0.0.1:1/mcp";
        assert_eq!(refused(url, &[("authorization", "Bearer a")]), None);
        for (name, value) in [
            ("Accept", "a"),
            ("Mcp-Session-Id", "a"),
            ("a b", "c"),
            ("a", "b\nc"),
        ] {
            let said = refused(url, &[(name, value)]).unwrap_or_default();
            assert!(said.starts_with(&format!("headers: {name:?}")), "{said}");
        }
        for url in ["", "localhost:1", "ftp://a/b", "http://"] {
            assert!(
                refused(url, &[]).is_some_and(|said| said.starts_with("url: ")),
                "{url}"
            );
        }
    }
}
