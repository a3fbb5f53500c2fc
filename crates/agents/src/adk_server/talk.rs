//! How an ADK server is spoken to, and what its refusals mean in words that a user can act on.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use serde::Serialize;
use serde_json::Value;

use super::Settings;
use crate::agent::AgentError;

/// A connection that does not stand by then will not.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The waits before a run is tried again that found nobody: a server that is being restarted is there again soon, and
/// whoever waits for an answer is told within four seconds that it is not.
const WAITS: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// Python's servers close a connection that was idle for five seconds; a request on one that is being closed is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// A run may be silent while one of its tools works; one that is silent for longer has died.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(300);
/// Everything but a run is answered out of the server's own storage.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer that is no run: an artifact, as base64.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// How much of a refusal is read, and how much of it is shown.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;
const MAX_WORDS: usize = 500;

/// One app of one server, and how to reach it.
#[derive(Debug)]
pub(super) struct Talk {
    client: reqwest::Client,
    base: Url,
    shown: String,
    app: String,
}

/// Why a request was not answered with what was asked for.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is no such session, app or artifact.
    NotFound(AgentError),
    /// It is there already.
    Exists(AgentError),
    /// The server does not take what it was sent.
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

impl Talk {
    pub(super) fn new(settings: Settings) -> Result<Self, AgentError> {
        let mut base = Url::parse(&settings.base_url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| AgentError {
                message: format!(
                    "agent.base_url: {:?} is no address of an ADK server; write http://HOST:PORT",
                    settings.base_url
                ),
                detail: String::new(),
            })?;
        base.set_query(None);
        base.set_fragment(None);
        let mut shown = base.clone();
        // Neither can fail: the address has a host.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        let loopback = base
            .host_str()
            .is_some_and(|host| host == "localhost" || host.starts_with("127.") || host == "[::1]");
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_nodelay(true)
            // The headers may hold secrets, which are for this server only.
            .redirect(reqwest::redirect::Policy::none())
            .default_headers(headers(&settings.headers)?);
        if loopback {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| AgentError {
            message: "the connection to the ADK server cannot be set up".into(),
            detail: error.to_string(),
        })?;
        Ok(Self {
            client,
            base,
            shown: shown.as_str().trim_end_matches('/').to_owned(),
            app: settings.app,
        })
    }

    pub(super) fn app(&self) -> &str {
        &self.app
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Asks for something; an answer of JSON comes back.
    pub(super) async fn get(&self, path: &[&str]) -> Result<Value, Failure> {
        let response = self.send(Method::GET, path, None, true).await?;
        self.json(response).await
    }

    pub(super) async fn post(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<Value, Failure> {
        let body = self.body(body)?;
        let response = self.send(Method::POST, path, Some(body), true).await?;
        self.json(response).await
    }

    pub(super) async fn delete(&self, path: &[&str]) -> Result<(), Failure> {
        self.send(Method::DELETE, path, None, true).await.map(drop)
    }

    /// Begins a run; its events come with the response.
    pub(super) async fn stream(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<reqwest::Response, Failure> {
        let body = self.body(body)?;
        let response = self.send(Method::POST, path, Some(body), false).await?;
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.is_empty() || kind.starts_with("text/event-stream") {
            return Ok(response);
        }
        Err(Failure::Other(AgentError {
            message: format!(
                "what answers at {} is no ADK server: it sent {kind:?} instead of events; see agent.base_url",
                self.shown
            ),
            detail: format!("{} to /run_sse", response.status()),
        }))
    }

    pub(super) fn broken(&self, error: &reqwest::Error) -> AgentError {
        let what = if error.is_timeout() {
            "said nothing for too long and was given up"
        } else {
            "broke off in the middle of the answer"
        };
        AgentError {
            message: format!("the ADK server at {} {what}; try again", self.shown),
            detail: format!("{error:?}"),
        }
    }

    fn body(&self, body: &impl Serialize) -> Result<Bytes, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| {
            Failure::Other(AgentError {
                message: "the message cannot be sent to the ADK server".into(),
                detail: error.to_string(),
            })
        })?;
        Ok(body.into())
    }

    async fn send(
        &self,
        method: Method,
        path: &[&str],
        body: Option<Bytes>,
        brief: bool,
    ) -> Result<reqwest::Response, Failure> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let mut waits = WAITS.iter().filter(|_| method == Method::POST);
        let sent = loop {
            let mut request = self.client.request(method.clone(), url.clone());
            if brief {
                request = request.timeout(ANSWER_TIMEOUT);
            }
            if let Some(body) = body.clone() {
                request = request.header(CONTENT_TYPE, "application/json").body(body);
            }
            match (request.send().await, waits.next()) {
                // Nobody was there, so nothing was asked.
                (Err(error), Some(wait)) if error.is_connect() && !error.is_timeout() => {
                    tokio::time::sleep(*wait).await
                }
                (sent, _) => break sent,
            }
        };
        let response = sent.map_err(|error| {
            let what = if error.is_timeout() {
                "did not answer in time"
            } else {
                "cannot be reached"
            };
            Failure::Other(AgentError {
                message: format!("the ADK server at {} {what}; is it running?", self.shown),
                detail: format!("{error:?}"),
            })
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    async fn json(&self, response: reqwest::Response) -> Result<Value, Failure> {
        let unreadable = |detail: String| {
            Failure::Other(AgentError {
                message: format!(
                    "the ADK server at {} gave an answer that cannot be read",
                    self.shown
                ),
                detail,
            })
        };
        let body = read(response, MAX_ANSWER_BYTES)
            .await
            .map_err(|error| unreadable(format!("{error:?}")))?
            .ok_or_else(|| unreadable(format!("longer than {MAX_ANSWER_BYTES} bytes")))?;
        serde_json::from_slice(&body).map_err(|error| unreadable(error.to_string()))
    }

    async fn refusal(&self, response: reqwest::Response) -> Failure {
        let status = response.status();
        let body = read(response, MAX_REFUSAL_BYTES).await;
        let body = body.ok().flatten().unwrap_or_default();
        let words = words_of(&body).unwrap_or_else(|| status.to_string());
        let place = &self.shown;
        let message = match status.as_u16() {
            401 | 403 => {
                format!("the ADK server at {place} refuses the bridge: {words}; see agent.headers")
            }
            300..=399 => format!(
                "the ADK server at {place} is somewhere else ({status}); correct agent.base_url"
            ),
            500..=599 => format!("the ADK server at {place} failed: {words}; try again"),
            _ => format!("the ADK server at {place} refused the request: {words}"),
        };
        let error = AgentError {
            message,
            detail: format!("{status}: {} bytes", body.len()),
        };
        match status {
            StatusCode::NOT_FOUND => Failure::NotFound(error),
            StatusCode::CONFLICT => Failure::Exists(error),
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Failure::Refused(error),
            _ => Failure::Other(error),
        }
    }
}

/// The whole body, or nothing where it is longer than it may be.
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

/// The server's own words: `{"detail": …}` in Python, `{"error": …}` or `{"message": …}` elsewhere.
fn words_of(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let said = ["detail", "error", "message"]
        .iter()
        .find_map(|key| body.get(key))?;
    let words = match said {
        Value::String(text) => text.clone(),
        Value::Object(fields) => match fields.get("message") {
            Some(Value::String(text)) => text.clone(),
            _ => said.to_string(),
        },
        other => other.to_string(),
    };
    Some(words.chars().take(MAX_WORDS).collect())
}

fn headers(given: &[(String, String)]) -> Result<HeaderMap, AgentError> {
    let bad = |name: &str| AgentError {
        message: format!("agent.headers: {name:?} is no header, or has a value that none can have"),
        detail: String::new(),
    };
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let mut value = HeaderValue::from_str(value).map_err(|_| bad(name))?;
        // Kept out of whatever is logged.
        value.set_sensitive(true);
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad(name))?;
        headers.append(name, value);
    }
    Ok(headers)
}
