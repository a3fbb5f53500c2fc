//! What requests over HTTP have in common: headers, the client of a model, further tries, and the texts of refusals.

use std::future::Future;
use std::time::Duration;

use adk_bridge_protocol::id::UserId;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{StatusCode, Url};

use crate::error::AgentError;
use crate::loopback::is_loopback;
use crate::silence::{Patience, SilenceError};
use crate::token::{TokenError, Tokens};
use crate::trust;

/// How often a call of a model is tried; with the waits below a user waits at most four seconds for a busy one.
const TRIES: u32 = 4;
/// The first wait; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// If a model asks for a longer wait, it is better to report that it is busy.
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// A connection that is not open by then never will be.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How many idle connections are kept, and for how long: a burst of calls must not leave as many behind.
const MAX_IDLE: usize = 32;
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Headers that say where a request ends and what its connection is for: with another value, servers read other requests.
const OF_THE_CONNECTION: &[&str] = &[
    "connection",
    "content-length",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The longest errors, which name every wrong field of a request, have a few KB.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// A model that thinks may be silent for long, but not without end.
pub(crate) const MODEL_SILENCE: Duration = Duration::from_secs(180);

/// Why a call failed to begin, and whether (and after which pause) it may be tried again.
pub(crate) struct Failure {
    pub(crate) error: AgentError,
    pub(crate) again: Option<Option<Duration>>,
}

/// The client for a model at this address.
pub(crate) fn model_client(base_url: &str) -> Result<reqwest::Client, AgentError> {
    let mut builder = trust::http_client()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tcp_nodelay(true)
        // The key must not be sent to any other host.
        .redirect(reqwest::redirect::Policy::none());
    // A model on this machine, such as the demo's.
    if Url::parse(base_url).is_ok_and(|url| is_loopback(&url)) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| {
        AgentError::broken(
            "the connection to the model cannot be set up",
            error.to_string(),
        )
    })
}

/// Calls a model until it answers, refuses for good, or has been tried often enough.
pub(crate) async fn with_tries<F>(
    silence: Duration,
    url: &Url,
    mut call: impl FnMut() -> F,
) -> Result<reqwest::Response, AgentError>
where
    F: Future<Output = Result<reqwest::Response, Failure>>,
{
    let mut wait = FIRST_WAIT;
    let mut attempt = 1;
    loop {
        let called = Patience::new(silence).wait_for(call()).await;
        let Failure { error, again } = match called.map_err(|silent| silence_of(&silent, url))? {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        match again.map(|asked| asked.unwrap_or(wait)) {
            Some(pause) if attempt < TRIES && pause <= LONGEST_WAIT => {
                tracing::warn!(attempt, kind = %error.kind(), detail = error.detail(), "retrying the model");
                tokio::time::sleep(pause).await;
                wait *= 2;
                attempt += 1;
            }
            _ => return Err(error),
        }
    }
}

/// Sends one request to a model.
pub(crate) async fn send(
    request: reqwest::RequestBuilder,
    url: &Url,
) -> Result<reqwest::Response, Failure> {
    request.send().await.map_err(|error| Failure {
        // A timeout would only be repeated.
        again: (!error.is_timeout() && (error.is_connect() || error.is_request())).then_some(None),
        error: AgentError::unreachable(
            "the model cannot be reached; try again",
            format!("{url}: {error:?}"),
        ),
    })
}

/// Sends a request with a token, on behalf of a user. One that is refused because of its token is sent once more with another.
pub(crate) async fn send_with_token<F>(
    tokens: &Tokens,
    user: &UserId,
    post: impl Fn(HeaderMap) -> F,
) -> Result<reqwest::Response, Failure>
where
    F: Future<Output = Result<reqwest::Response, Failure>>,
{
    let token = tokens.token(Some(user)).await.map_err(|error| Failure {
        error: TokenError::into_agent_error(error),
        again: None,
    })?;
    let with = |token: Option<&_>| {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            tokens.put(token, &mut headers);
        }
        headers
    };
    let response = post(with(token.as_ref())).await?;
    let other = match (&token, response.status()) {
        (Some(refused), StatusCode::UNAUTHORIZED) => tokens.instead_of(refused, Some(user)).await,
        _ => None,
    };
    match other {
        Some(other) => post(with(Some(&other))).await,
        None => Ok(response),
    }
}

/// The beginning of an error's body.
pub(crate) async fn read_error_body(mut response: reqwest::Response) -> String {
    let mut text = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        let room = MAX_ERROR_BYTES - text.len();
        text.extend_from_slice(&piece[..piece.len().min(room)]);
        if text.len() == MAX_ERROR_BYTES {
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The content type of an answer, if it is not a stream of events.
pub(crate) fn other_kind(response: &reqwest::Response) -> Option<&str> {
    let kind = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next()?.trim();
    (!kind.eq_ignore_ascii_case("text/event-stream")).then_some(kind)
}

pub(crate) fn silence_of(SilenceError(time): &SilenceError, url: &Url) -> AgentError {
    AgentError::unreachable(
        format!(
            "the model sent nothing for {} seconds; try again",
            time.as_secs_f64()
        ),
        format!("{url}: silent"),
    )
}

/// The error for a connection that broke in the middle of an answer.
pub(crate) fn broke_off(error: &reqwest::Error, url: &Url) -> AgentError {
    AgentError::unreachable(
        "the connection to the model broke in the middle of the answer; try again",
        format!("{url}: {error:?}"),
    )
}

/// When to try again, if that is given in seconds.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    seconds.parse().ok().map(Duration::from_secs)
}

/// The headers that `agent.headers` adds to every request.
pub(crate) fn headers(given: &[(String, String)]) -> Result<HeaderMap, AgentError> {
    let bad = |name: &str| {
        let message = format!(
            "agent.headers: {name:?} is not a valid header name, or its value is not valid"
        );
        AgentError::rejected(message, "")
    };
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let mut value = HeaderValue::from_str(value).map_err(|_| bad(name))?;
        // Kept out of whatever is logged.
        value.set_sensitive(true);
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad(name))?;
        if OF_THE_CONNECTION.contains(&name.as_str()) {
            let message = format!("agent.headers: {name} belongs to the connection; remove it");
            return Err(AgentError::rejected(message, ""));
        }
        headers.append(name, value);
    }
    Ok(headers)
}
