//! The client of an ADK server's HTTP interface, and its refusals as messages that a user can act on.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::json_text::Json;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde::Serialize;
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest as _};

use super::Settings;
use super::server_traits::{self, API, ServerTraits};
use crate::error::{AgentError, AgentErrorKind, shortened};
use crate::http::{headers, retry_after};
use crate::live::{ConnectError, Modality};
use crate::loopback::is_loopback;
use crate::silence::{Patience, SilenceError};
use crate::token::{Token, TokenError, Tokens};
use crate::trace_context::TraceContext;

/// A connection that is not open by then never will be.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The waits before a run is tried again that could not connect: a server that restarts is back soon, and otherwise the
/// user gets an error within four seconds.
const WAITS: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// Python's servers close a connection that was idle for five seconds; a request on a closing connection is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// How many connections are kept for the next requests.
const MAX_IDLE: usize = 32;
/// A run may be silent while one of its tools works; one that is silent for longer has died.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(300);
/// Everything except a run is answered from the server's own storage.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer except for runs: an artifact, as base64.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// How much of a refusal is read.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;
/// How much of an answer is read that only shows what a server is: a list of apps may be long.
const MAX_LOOK_BYTES: usize = 1024 * 1024;
/// A server that takes longer to say what it is counts as unknown for now.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// One app of one server, and how to reach it.
#[derive(Debug, Clone)]
pub(super) struct AdkClient {
    http: reqwest::Client,
    base: Url,
    shown: String,
    app: String,
    /// The headers of every request.
    headers: HeaderMap,
    /// The token of every request.
    tokens: Option<Arc<Tokens>>,
    caller: Caller,
    /// Where artifacts are asked for, if that is a method of an engine.
    pub(super) artifact_method: Option<Url>,
    /// Whether the connection of a run is left to it: a server that closes it when the run fails, without saying so before,
    /// would lose the next request.
    pub(super) closes_after_runs: bool,
    /// Whether the model has refused to answer with text in a live conversation.
    pub(super) only_speaks: Arc<AtomicBool>,
    /// What was found out about the server since it was last away.
    found: Arc<Mutex<Option<ServerTraits>>>,
    /// Held while that is found out, so that it is asked for once.
    finding: Arc<tokio::sync::Mutex<()>>,
}

/// Whose requests these are.
#[derive(Debug, Clone, Default)]
struct Caller {
    /// On whose behalf they ask, where users bring their own tokens.
    user: Option<UserId>,
    /// The trace that they belong to.
    trace: TraceContext,
}

/// An answer that shows what a server is.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is no such session, app or artifact.
    NotFound(AgentError),
    /// It exists already.
    Exists(AgentError),
    /// The server refuses the request.
    Refused(AgentError),
    Other(AgentError),
}

impl Failure {
    pub(super) fn into_error(self) -> AgentError {
        match self {
            Self::NotFound(error)
            | Self::Exists(error)
            | Self::Refused(error)
            | Self::Other(error) => error,
        }
    }
}

impl AdkClient {
    pub(super) fn new(settings: Settings) -> Result<Self, AgentError> {
        let mut base = Url::parse(&settings.base_url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                // It may contain a password.
                AgentError::rejected(
                    "agent.base_url: this is not the address of an ADK server; write http://HOST:PORT",
                    "",
                )
            })?;
        base.set_query(None);
        base.set_fragment(None);
        let mut shown = base.clone();
        // Neither can fail: the URL has a host.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        let headers = headers(&settings.headers)?;
        let mut builder = crate::trust::http_client()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_nodelay(true)
            // The headers may contain secrets, which are for this server only.
            .redirect(reqwest::redirect::Policy::none())
            .default_headers(headers.clone());
        if is_loopback(&base) {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| {
            AgentError::broken(
                "the connection to the ADK server cannot be set up",
                error.to_string(),
            )
        })?;
        Ok(Self {
            http,
            base,
            shown: shown.as_str().trim_end_matches('/').to_owned(),
            app: settings.app,
            headers,
            tokens: settings.tokens,
            caller: Caller::default(),
            artifact_method: None,
            closes_after_runs: false,
            only_speaks: Arc::default(),
            found: Arc::default(),
            finding: Arc::default(),
        })
    }

    /// The client that asks on behalf of this user, and as a part of this trace; both share what is known of the server.
    pub(super) fn for_user(self: &Arc<Self>, user: &UserId, trace: &TraceContext) -> Arc<Self> {
        if self.user_tokens().is_none() && trace.is_none() {
            return self.clone();
        }
        Arc::new(Self {
            caller: Caller {
                user: self.user_tokens().map(|_| user.clone()),
                trace: trace.clone(),
            },
            ..(**self).clone()
        })
    }

    /// Its tokens, if users bring their own.
    pub(super) fn user_tokens(&self) -> Option<&Tokens> {
        self.tokens
            .as_deref()
            .filter(|tokens| tokens.are_of_users())
    }

    pub(super) fn app(&self) -> &str {
        &self.app
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// What the server is, as far as it is known without asking.
    pub(super) fn known_traits(&self) -> Option<ServerTraits> {
        self.found().clone()
    }

    /// What the server is. It is asked once, and again after it was away. An error means that it cannot be reached.
    pub(super) async fn traits(&self) -> Result<ServerTraits, AgentError> {
        if let Some(known) = self.known_traits() {
            return Ok(known);
        }
        let _alone = self.finding.lock().await;
        if let Some(known) = self.known_traits() {
            return Ok(known);
        }
        let (traits, is_clear) = server_traits::find(self).await?;
        if !is_clear {
            return Ok(traits);
        }
        tracing::info!(
            language = traits.language().word(),
            version = traits.version(),
            prefix = traits.prefix(),
            "the ADK server at {} is {traits}",
            self.shown
        );
        *self.found() = Some(traits.clone());
        Ok(traits)
    }

    /// The same for a run, which waits for a server that restarts.
    pub(super) async fn traits_of_running(&self) -> Result<ServerTraits, AgentError> {
        for wait in WAITS {
            match self.traits().await {
                Err(error) if error.kind() == AgentErrorKind::Unreachable => {
                    tokio::time::sleep(wait).await;
                }
                found => return found,
            }
        }
        self.traits().await
    }

    /// Adds to what is known of the server what it has just shown.
    pub(super) fn learn(&self, note: impl FnOnce(&mut ServerTraits)) {
        if let Some(traits) = &mut *self.found() {
            note(traits);
        }
    }

    /// Finds out once whether the server makes sessions by itself. `ask` tries it.
    pub(super) async fn makes_sessions(&self, ask: impl Future<Output = Option<bool>>) -> bool {
        let known = || {
            self.known_traits()
                .and_then(|traits| traits.makes_sessions())
        };
        if let Some(known) = known() {
            return known;
        }
        let _alone = self.finding.lock().await;
        if let Some(known) = known() {
            return known;
        }
        let makes = ask.await;
        self.learn(|traits| traits.makes_sessions = makes);
        makes.unwrap_or(false)
    }

    /// Whether the configured URL leaves open that the endpoints are below `/api`.
    pub(super) fn may_be_below_api(&self) -> bool {
        let segments = self.base.path_segments();
        let mut segments = segments.into_iter().flatten().rev();
        segments.find(|segment| !segment.is_empty()) != Some(API)
    }

    /// What the server answers to a GET below the configured URL. Only a server that cannot be reached is an error.
    pub(super) async fn look(&self, path: &[&str]) -> Result<Answer, AgentError> {
        let token = self.token().await?;
        let request = self.http.get(self.below(path)).timeout(LOOK_TIMEOUT);
        let request = self.with_own_headers(request, token.as_ref());
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Err(self.unreachable(error)),
            // It is there, and does not tell.
            Err(_) => return Ok(Answer::nothing()),
        };
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = read(response, MAX_LOOK_BYTES).await;
        Ok(Answer {
            status,
            headers,
            body: body.ok().flatten().unwrap_or_default(),
        })
    }

    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// Sends a GET; the answer is JSON.
    pub(super) async fn get(&self, path: &[&str]) -> Result<Json, Failure> {
        let response = self.send(Method::GET, self.url(path)?, None, true).await?;
        self.json(response).await
    }

    pub(super) async fn post(&self, path: &[&str], body: &impl Serialize) -> Result<Json, Failure> {
        self.post_to(&self.url(path)?, body).await
    }

    pub(super) async fn post_to(&self, url: &Url, body: &impl Serialize) -> Result<Json, Failure> {
        let body = self.body(body)?;
        let sent = self.send(Method::POST, url.clone(), Some(body), true);
        self.json(sent.await?).await
    }

    pub(super) async fn delete(&self, path: &[&str]) -> Result<(), Failure> {
        let sent = self.send(Method::DELETE, self.url(path)?, None, true);
        sent.await.map(drop)
    }

    /// Begins a run; its events come with the response.
    pub(super) async fn stream(
        &self,
        path: &[&str],
        body: &impl Serialize,
        silence: Duration,
    ) -> Result<reqwest::Response, Failure> {
        let response = self.stream_from(&self.url(path)?, body, silence).await?;
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.is_empty() || kind.starts_with("text/event-stream") {
            return Ok(response);
        }
        Err(Failure::Other(AgentError::broken(
            format!(
                "the configured server is not an ADK server: it sent {:?} instead of events; check agent.base_url",
                shortened(kind)
            ),
            format!("{}: {} to /run_sse", self.shown, response.status()),
        )))
    }

    /// Begins a run; its response may have any form.
    pub(super) async fn stream_from(
        &self,
        url: &Url,
        body: &impl Serialize,
        silence: Duration,
    ) -> Result<reqwest::Response, Failure> {
        let body = self.body(body)?;
        let sent = self.send(Method::POST, url.clone(), Some(body), false);
        let sent = Patience::new(silence).wait_for(sent).await;
        sent.map_err(|silent| Failure::Other(self.silent(&silent)))?
    }

    /// The token for a request, if this server needs one.
    pub(super) async fn token(&self) -> Result<Option<Token>, AgentError> {
        match &self.tokens {
            None => Ok(None),
            Some(tokens) => {
                let token = tokens.token(self.caller.user.as_ref()).await;
                token.map_err(TokenError::into_agent_error)
            }
        }
    }

    /// Another token than one that was refused, if there is one.
    pub(super) async fn instead_of(&self, refused: Option<&Token>) -> Option<Token> {
        let tokens = self.tokens.as_ref()?;
        tokens.instead_of(refused?, self.caller.user.as_ref()).await
    }

    /// The handshake of `/run_live`.
    pub(super) fn live_request(
        &self,
        user: &UserId,
        session: &str,
        modality: Modality,
        token: Option<&Token>,
    ) -> Result<tungstenite::handshake::client::Request, ConnectError> {
        let mut url = self.below(&self.with_prefix(&["run_live"]));
        let modality = match modality {
            Modality::Audio => "AUDIO",
            Modality::Text => "TEXT",
        };
        url.query_pairs_mut()
            .append_pair("app_name", &self.app)
            .append_pair("user_id", user.as_str())
            .append_pair("session_id", session)
            .append_pair("modalities", modality);
        // Neither can fail: the URL has a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        // `http` becomes `ws`, and `https` `wss`.
        let address = url.as_str().replacen("http", "ws", 1);
        let broken = |error: &dyn std::fmt::Display| ConnectError {
            error: AgentError::rejected(
                "no URL for live connections can be derived from agent.base_url",
                format!("{}: {error}", self.shown),
            ),
            code: None,
        };
        let mut request = address
            .into_client_request()
            .map_err(|error| broken(&error))?;
        if !self.base.username().is_empty() || self.base.password().is_some() {
            let (user, password) = (self.base.username(), self.base.password());
            let pair = format!("{user}:{}", password.unwrap_or_default());
            let value = format!("Basic {}", STANDARD.encode(pair));
            let value = HeaderValue::from_str(&value).map_err(|error| broken(&error))?;
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        if let (Some(tokens), Some(token)) = (&self.tokens, token) {
            tokens.put(token, request.headers_mut());
        }
        self.caller.trace.put(request.headers_mut());
        Ok(request)
    }

    /// A connection that broke in the middle of an answer, after this time.
    pub(super) fn broken(&self, error: &reqwest::Error, after: Duration) -> AgentError {
        let why = self.known_traits().and_then(|traits| traits.why_cut(after));
        AgentError::unreachable(
            why.unwrap_or_else(|| {
                "the connection to the ADK server broke in the middle of the answer; try again"
                    .to_owned()
            }),
            format!("{} after {after:?}: {error:?}", self.shown),
        )
    }

    pub(super) fn silent(&self, SilenceError(time): &SilenceError) -> AgentError {
        AgentError::unreachable(
            format!(
                "the ADK server sent nothing for {} seconds; try again",
                time.as_secs_f64()
            ),
            format!("{}: silent", self.shown),
        )
    }

    /// What to do where the server does not let the bridge in.
    pub(super) fn advice(&self) -> &'static str {
        match &self.tokens {
            Some(tokens) => tokens.advice(),
            None => "see agent.headers",
        }
    }

    fn body(&self, body: &impl Serialize) -> Result<Bytes, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| {
            Failure::Other(AgentError::broken(
                "the message cannot be sent to the ADK server",
                error.to_string(),
            ))
        })?;
        Ok(body.into())
    }

    async fn send(
        &self,
        method: Method,
        url: Url,
        body: Option<Bytes>,
        brief: bool,
    ) -> Result<reqwest::Response, Failure> {
        let mut waits = WAITS.iter().filter(|_| method == Method::POST);
        let mut token = self.token().await.map_err(Failure::Other)?;
        let mut refused = false;
        let sent = loop {
            let request = self.http.request(method.clone(), url.clone());
            let mut request = self.with_own_headers(request, token.as_ref());
            if brief {
                request = request.timeout(ANSWER_TIMEOUT);
            } else if self.closes_after_runs {
                request = request.header(CONNECTION, "close");
            }
            if let Some(body) = body.clone() {
                request = request.header(CONTENT_TYPE, "application/json").body(body);
            }
            match (request.send().await, waits.next()) {
                // The server could not be reached, so the run has not begun.
                (Err(error), Some(wait)) if error.is_connect() && !error.is_timeout() => {
                    tokio::time::sleep(*wait).await
                }
                // Nothing has run: the token may have ended before its time.
                (Ok(response), _) if response.status() == StatusCode::UNAUTHORIZED && !refused => {
                    refused = true;
                    match self.instead_of(token.as_ref()).await {
                        Some(other) => token = Some(other),
                        None => break Ok(response),
                    }
                }
                (sent, _) => break sent,
            }
        };
        let response = sent.map_err(|error| Failure::Other(self.unreachable(error)))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    /// Adds what is not the same in every request: the token, and the trace.
    fn with_own_headers(&self, request: RequestBuilder, token: Option<&Token>) -> RequestBuilder {
        let mut headers = self.caller.trace.headers();
        if let (Some(tokens), Some(token)) = (&self.tokens, token) {
            tokens.put(token, &mut headers);
        }
        request.headers(headers)
    }

    /// An endpoint of the server, wherever it has them. What users, apps, sessions and artifacts are called is part of it:
    /// a path of dots, or nothing, would be another endpoint.
    fn url(&self, path: &[&str]) -> Result<Url, Failure> {
        if path.iter().any(|name| matches!(*name, "" | "." | "..")) {
            return Err(Failure::Other(AgentError::rejected(
                "the ADK server cannot be asked for this: a user, session, app or artifact is named \"\", \".\" or \"..\"",
                self.shown.clone(),
            )));
        }
        Ok(self.below(&self.with_prefix(path)))
    }

    fn with_prefix<'p>(&self, path: &[&'p str]) -> Vec<&'p str> {
        let prefix = self.found().as_ref().and_then(ServerTraits::prefix);
        prefix.into_iter().chain(path.iter().copied()).collect()
    }

    fn below(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    fn unreachable(&self, error: reqwest::Error) -> AgentError {
        if error.is_connect() {
            // Another one may come up in its place.
            *self.found() = None;
        }
        let what = if error.is_timeout() {
            "did not answer in time"
        } else {
            "cannot be reached"
        };
        AgentError::unreachable(
            format!("the ADK server {what}; is it running?"),
            // The URL may contain names chosen by an agent or a user.
            format!("{}: {:?}", self.shown, error.without_url()),
        )
    }

    /// Poisoning is ignored: no critical section can leave the value inconsistent.
    fn found(&self) -> MutexGuard<'_, Option<ServerTraits>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn json(&self, response: reqwest::Response) -> Result<Json, Failure> {
        let unreadable = |detail: String| {
            Failure::Other(AgentError::broken(
                "the response of the ADK server cannot be parsed",
                format!("{}: {detail}", self.shown),
            ))
        };
        let body = read(response, MAX_ANSWER_BYTES)
            .await
            .map_err(|error| unreadable(format!("{:?}", error.without_url())))?
            .ok_or_else(|| unreadable(format!("longer than {MAX_ANSWER_BYTES} bytes")))?;
        serde_json::from_slice(&body).map_err(|error| unreadable(error.to_string()))
    }

    async fn refusal(&self, response: reqwest::Response) -> Failure {
        let status = response.status();
        let kind = kind_of(status, retry_after(response.headers()));
        let is_text = response.headers().get(CONTENT_TYPE);
        let is_text = is_text.is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
        let body = read(response, MAX_REFUSAL_BYTES).await;
        let body = body.ok().flatten().unwrap_or_default();
        let plain = || plain_words(&body).filter(|_| is_text);
        let plain = || plain().map(|words| format!("{words} ({})", status.as_u16()));
        let words = words_of(&body).or_else(plain);
        let words = words.unwrap_or_else(|| status.to_string());
        // It may quote the request, and with it content.
        tracing::debug!(%status, answer = shortened(&String::from_utf8_lossy(&body)), "the ADK server's refusal");
        let message = match status.as_u16() {
            401 | 403 => {
                format!(
                    "the ADK server refuses the bridge: {words}; {}",
                    self.advice()
                )
            }
            300..=399 => {
                format!("the ADK server redirects the request ({status}); correct agent.base_url")
            }
            500..=599 => format!("the ADK server failed: {words}; try again"),
            _ => format!("the ADK server refused the request: {words}"),
        };
        let detail = format!("{}: {status}, {} bytes", self.shown, body.len());
        let error = AgentError::new(kind, message, detail);
        match status {
            StatusCode::NOT_FOUND => Failure::NotFound(error),
            StatusCode::CONFLICT => Failure::Exists(error),
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Failure::Refused(error),
            _ => Failure::Other(error),
        }
    }
}

/// The kind of error of a refusal.
pub(super) fn kind_of(status: StatusCode, retry_after: Option<Duration>) -> AgentErrorKind {
    match status.as_u16() {
        401 | 403 => AgentErrorKind::Unauthorized,
        429 => AgentErrorKind::Quota { retry_after },
        // A proxy in front of the server cannot reach it.
        502..=504 => AgentErrorKind::Unreachable,
        500..=599 => AgentErrorKind::Broken,
        _ => AgentErrorKind::Rejected,
    }
}

/// The whole body, or nothing if it is too long.
async fn read(
    mut response: reqwest::Response,
    limit: usize,
) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if body.len() + piece.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}

/// The server's own message: `{"detail": …}` in Python, `{"error": …}` or `{"message": …}` elsewhere.
pub(super) fn words_of(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let said = ["detail", "error", "message"]
        .iter()
        .find_map(|key| body.get(key))?;
    let words = match said {
        serde_json::Value::String(text) => text.as_str(),
        serde_json::Value::Object(fields) => fields.get("message")?.as_str()?,
        // FastAPI's error for a request that it does not understand; another field quotes the request.
        serde_json::Value::Array(problems) => problems.first()?.get("msg")?.as_str()?,
        _ => return None,
    };
    Some(shortened(words))
}

/// A refusal in plain text, as servers in Go write it.
pub(super) fn plain_words(body: &[u8]) -> Option<String> {
    let words = std::str::from_utf8(body).ok()?.trim();
    let is_readable = !words.is_empty() && !words.contains(|letter: char| letter.is_control());
    is_readable.then(|| shortened(words))
}

impl Answer {
    /// An answer that tells nothing.
    fn nothing() -> Self {
        Self {
            status: 0,
            headers: HeaderMap::new(),
            body: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::RETRY_AFTER;

    use super::*;

    #[test]
    fn a_refusal_says_what_can_be_done() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_static(" 7 "));
        let soon = retry_after(&headers);
        assert_eq!(soon, Some(Duration::from_secs(7)));
        for (status, kind) in [
            (400, AgentErrorKind::Rejected),
            (401, AgentErrorKind::Unauthorized),
            (403, AgentErrorKind::Unauthorized),
            (404, AgentErrorKind::Rejected),
            (307, AgentErrorKind::Rejected),
            (429, AgentErrorKind::Quota { retry_after: soon }),
            (500, AgentErrorKind::Broken),
            (503, AgentErrorKind::Unreachable),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(kind_of(status, soon), kind, "{status}");
        }
    }
}
