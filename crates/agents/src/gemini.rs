//! Gemini over REST: one run is one `streamGenerateContent`, read as ADK events.
//!
//! Text and thoughts come as partial events, complete calls as non-partial ones, and a last event says why the model
//! stopped; nothing is repeated. A call that fails before its first byte is tried again where Google says that helps.

mod request;
mod response;

use std::future::Future;
use std::time::Duration;

use adk_bridge_protocol::wire::sse::{Ending, MAX_EVENT_BYTES, SseError, SseParser};
use bytes::Bytes;

use crate::agent::{AgentError, EventSink, Request};
use response::Assembly;

/// How often a call is tried; with the waits below a user waits at most four seconds for a busy model.
const TRIES: u32 = 4;
/// The first wait; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// A longer wait that Google asks for is not worth the user's time: better to say that the model is busy.
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// A connection that does not stand by then will not.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A model that thinks may be silent for long, but not for ever.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(180);

/// Google's longest errors, which name every field of a request that is wrong, have a few KB.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// A model behind Google's REST interface.
#[derive(Debug, Clone)]
pub struct Gemini {
    client: reqwest::Client,
    settings: Settings,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// Up to and without `/v1beta`.
    pub base_url: String,
    pub model: String,
    pub api_key: String,
    pub instruction: Option<String>,
}

/// One answer of the model, as it comes.
#[derive(Debug)]
pub struct GeminiRun {
    response: reqwest::Response,
    url: String,
    parser: SseParser,
    assembly: Assembly,
}

impl Gemini {
    pub fn new(settings: Settings) -> Result<Self, AgentError> {
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_TIMEOUT)
            .tcp_nodelay(true)
            // The key is for the host that was named, and for no other.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| AgentError {
                message: "the connection to the model cannot be set up".into(),
                detail: error.to_string(),
            })?;
        Ok(Self { client, settings })
    }

    pub fn model(&self) -> &str {
        &self.settings.model
    }

    /// Asks the model. Dropping the future, or the run, stops it.
    pub fn start(
        &self,
        request: &Request<'_>,
    ) -> impl Future<Output = Result<GeminiRun, AgentError>> + Send + use<> {
        let body = request::body(request, self.settings.instruction.as_deref());
        let url = format!(
            "{}/v1beta/models/{}:streamGenerateContent?alt=sse",
            self.settings.base_url.trim_end_matches('/'),
            self.settings.model
        );
        let (client, key) = (self.client.clone(), self.settings.api_key.clone());
        async move {
            let body = Bytes::from(body?);
            let mut wait = FIRST_WAIT;
            let mut attempt = 1;
            loop {
                match send(&client, &url, &key, body.clone()).await {
                    Ok(response) => {
                        return Ok(GeminiRun {
                            response,
                            url,
                            parser: SseParser::new(MAX_EVENT_BYTES),
                            assembly: Assembly::default(),
                        });
                    }
                    Err(Failure { error, again }) => {
                        let pause = again.map(|asked| asked.unwrap_or(wait));
                        match pause {
                            Some(pause) if attempt < TRIES && pause <= LONGEST_WAIT => {
                                tracing::warn!(attempt, detail = %error.detail, "the model is tried again");
                                tokio::time::sleep(pause).await;
                                wait *= 2;
                                attempt += 1;
                            }
                            _ => return Err(error),
                        }
                    }
                }
            }
        }
    }
}

impl GeminiRun {
    /// The next piece of the answer, as the network brings it; nothing at its end. May be dropped and called again.
    pub async fn read(&mut self) -> Result<Option<Bytes>, AgentError> {
        self.response.chunk().await.map_err(|error| AgentError {
            message: "the connection to the model broke in the middle of the answer; try again"
                .into(),
            detail: format!("{}: {error:?}", self.url),
        })
    }

    /// Hands the events of a piece to the sink.
    pub fn events(&mut self, piece: &[u8], sink: EventSink<'_>) -> Result<(), AgentError> {
        let mut rest = piece;
        while let Some(event) = self.parser.next(&mut rest).map_err(unreadable)? {
            self.assembly.chunk(event.data, sink)?;
        }
        Ok(())
    }

    /// Hands over what the end of the answer completes.
    pub fn finish(&mut self, sink: EventSink<'_>) -> Result<(), AgentError> {
        if let Some(kind) = other_kind(&self.response)
            && !self.assembly.has_begun()
        {
            return Err(AgentError {
                message: format!(
                    "what answers at {} is no Gemini model: it sent {kind}, not events; check agent.base_url",
                    host(&self.url)
                ),
                detail: format!("{}: {kind}", self.url),
            });
        }
        if let Ending::Truncated { .. } = self.parser.finish().map_err(unreadable)? {
            return Err(AgentError {
                message: "the model's answer was cut off; try again".into(),
                detail: format!("{}: the stream ended in the middle of an event", self.url),
            });
        }
        self.assembly.finish(sink)
    }
}

/// The content type of an answer that says to be something else than a stream of events.
fn other_kind(response: &reqwest::Response) -> Option<&str> {
    let kind = response.headers().get("content-type")?.to_str().ok()?;
    let kind = kind.split(';').next()?.trim();
    (!kind.eq_ignore_ascii_case("text/event-stream")).then_some(kind)
}

fn unreadable(error: SseError) -> AgentError {
    AgentError {
        message: "the model's answer cannot be read".into(),
        detail: error.to_string(),
    }
}

/// Why a call did not begin, and whether (and after which pause) it may be tried again.
struct Failure {
    error: AgentError,
    again: Option<Option<Duration>>,
}

async fn send(
    client: &reqwest::Client,
    url: &str,
    key: &str,
    body: Bytes,
) -> Result<reqwest::Response, Failure> {
    let response = client
        .post(url)
        .header("x-goog-api-key", key)
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await
        .map_err(|error| Failure {
            again: (error.is_connect() || error.is_request()).then_some(None),
            error: AgentError {
                message: format!("the model at {} cannot be reached", host(url)),
                detail: format!("{error:?}"),
            },
        })?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = beginning(response).await;
    let (message, retry_after) = response::error_of(&text);
    let again = matches!(status.as_u16(), 429 | 500 | 503).then_some(retry_after);
    let said = message.unwrap_or_else(|| status.to_string());
    let advice = match status.as_u16() {
        300..=399 => format!(
            "{} sends the request elsewhere ({said}); correct agent.base_url",
            host(url)
        ),
        401 | 403 => format!("the model refuses the API key: {said}"),
        404 => format!("the model is unknown at {}: {said}", host(url)),
        429 => format!("the model's quota is used up, try again later: {said}"),
        500..=599 => format!("the model is not available, try again: {said}"),
        _ => format!("the model refused the request: {said}"),
    };
    Err(Failure {
        error: AgentError {
            message: advice,
            detail: format!("{url}: {status}: {text}"),
        },
        again,
    })
}

/// What an error answer says, as far as anybody will read it.
async fn beginning(mut response: reqwest::Response) -> String {
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

/// What a user may see of an address.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}
