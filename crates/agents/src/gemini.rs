//! Gemini over REST: one run is one `streamGenerateContent`, read as ADK events.
//!
//! Text and thoughts come as partial events, complete calls as non-partial ones, and a last event says why the model
//! stopped; nothing is repeated. A call that fails before its first byte is tried again if Google says that this helps.

pub(crate) mod model_name;
mod request;
mod response;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::wire::sse::{Ending, MAX_EVENT_BYTES, SseError, SseParser};
use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{StatusCode, Url};

use crate::agent::{
    Agent, AgentInfo, AgentRequest, AgentRun, BoxFuture, ConversationRequest, EventSink,
    MemoryModel, Starting,
};
use crate::error::{AgentError, AgentErrorKind, shortened, withheld};
use crate::gemini_live::{GeminiLive, Generation};
use crate::http::{
    self, Failure, MODEL_SILENCE, broke_off, model_client, other_kind, read_error_body, silence_of,
    with_tries,
};
use crate::live::LiveAgent;
use crate::silence::Patience;
use crate::token::{Token, TokenError, Tokens};
use response::Assembly;

pub(crate) use response::Refusal;

/// A model behind Google's REST interface.
#[derive(Debug, Clone)]
pub struct Gemini {
    client: reqwest::Client,
    settings: Settings,
    credential: Credential,
    /// Where the model is called.
    url: Url,
    silence: Duration,
    storing: Storing,
    live: Option<GeminiLive>,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// Without `/v1beta`.
    pub base_url: String,
    pub model: String,
    pub api_key: String,
    pub instruction: Option<String>,
}

/// A place in Vertex AI, which takes a token instead of a key.
#[derive(Debug, Clone)]
pub struct Vertex {
    pub project: String,
    pub location: String,
    pub tokens: Arc<Tokens>,
}

/// How the bridge says who it is.
#[derive(Clone)]
enum Credential {
    Key(String),
    Tokens(Arc<Tokens>),
}

/// Whether Google keeps requests and answers in the logs of the key's project. New paid projects keep them for weeks
/// unless a request says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storing {
    #[default]
    Never,
    Always,
    /// The setting of the project decides. Also for servers that refuse the field, such as Vertex AI.
    ByProject,
}

/// One model call, read as it comes.
#[derive(Debug)]
pub struct GeminiRun {
    response: reqwest::Response,
    url: Url,
    patience: Patience,
    parser: SseParser,
    assembly: Assembly,
}

impl Gemini {
    pub fn new(settings: Settings) -> Result<Self, AgentError> {
        let path = format!("v1beta/models/{}", settings.model);
        let credential = Credential::Key(settings.api_key.clone());
        Self::at(settings, &path, credential)
    }

    /// A model in Vertex AI. The key in the settings is not used.
    pub fn on_vertex(settings: Settings, vertex: Vertex) -> Result<Self, AgentError> {
        let Vertex {
            project, location, ..
        } = &vertex;
        // Models of other publishers are named with them.
        let model = match settings.model.contains('/') {
            true => settings.model.clone(),
            false => format!("publishers/google/models/{}", settings.model),
        };
        let path = format!("v1/projects/{project}/locations/{location}/{model}");
        let gemini = Self::at(settings, &path, Credential::Tokens(vertex.tokens))?;
        // It refuses the field.
        Ok(gemini.storing(Storing::ByProject))
    }

    fn at(settings: Settings, path: &str, credential: Credential) -> Result<Self, AgentError> {
        let client = model_client(&settings.base_url)?;
        let url = format!(
            "{}/{path}:streamGenerateContent?alt=sse",
            settings.base_url.trim_end_matches('/'),
        );
        let url = Url::parse(&url).map_err(|error| {
            AgentError::rejected(
                "the address of the model is not a URL; correct agent.base_url",
                format!("{}: {error}", settings.base_url),
            )
        })?;
        Ok(Self {
            client,
            settings,
            credential,
            url,
            silence: MODEL_SILENCE,
            storing: Storing::default(),
            live: None,
        })
    }

    /// Adds speech, by this model of the same server.
    #[must_use]
    pub fn with_live_model(self, model: impl Into<String>) -> Self {
        let spoken = Settings {
            model: model.into(),
            ..self.settings.clone()
        };
        Self {
            live: Some(GeminiLive::new(spoken)),
            ..self
        }
    }

    /// Treats the live model as one of this generation, whatever its name says.
    #[must_use]
    pub fn with_live_generation(self, generation: Generation) -> Self {
        Self {
            live: self.live.map(|live| live.acting_like(generation)),
            ..self
        }
    }

    /// Says with every request whether Google may store it, instead of forbidding it.
    #[must_use]
    pub fn storing(self, storing: Storing) -> Self {
        Self { storing, ..self }
    }

    /// Gives up a call that is silent for this long, instead of three minutes.
    #[must_use]
    pub fn patient_for(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// Asks the model. Dropping the future, or the run, stops it.
    fn ask(
        &self,
        request: ConversationRequest<'_>,
    ) -> impl Future<Output = Result<GeminiRun, AgentError>> + Send + use<> {
        let body = request::body(request, &self.settings, self.storing);
        let url = self.url.clone();
        let (client, credential) = (self.client.clone(), self.credential.clone());
        let model = self.settings.model.clone();
        let silence = self.silence;
        async move {
            let body = Bytes::from(body?);
            let call = || send(&client, &url, &credential, &model, body.clone());
            let response = with_tries(silence, &url, call).await?;
            Ok(GeminiRun {
                response,
                url,
                patience: Patience::new(silence),
                parser: SseParser::new(MAX_EVENT_BYTES),
                assembly: Assembly::default(),
            })
        }
    }
}

impl Agent for Gemini {
    fn info(&self) -> AgentInfo {
        let mut info = AgentInfo::new("gemini");
        info.model = Some(self.settings.model.clone());
        if self.live.is_none() {
            info.limitations.push("speak".to_owned());
        }
        info
    }

    fn check(&self) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async {
            match &self.credential {
                Credential::Key(_) => Ok(()),
                Credential::Tokens(tokens) => {
                    let token = tokens.token().await.map(drop);
                    token.map_err(TokenError::into_agent_error)
                }
            }
        })
    }

    fn memory(&self) -> MemoryModel {
        MemoryModel::Stateless
    }

    fn start(&self, request: AgentRequest<'_>) -> Starting {
        let run = request
            .into_conversation()
            .map(|conversation| self.ask(conversation));
        Box::pin(async move { Ok(Box::new(run?.await?) as Box<dyn AgentRun>) })
    }

    fn live(&self) -> Option<&dyn LiveAgent> {
        self.live.as_ref().map(|live| live as &dyn LiveAgent)
    }
}

impl AgentRun for GeminiRun {
    fn read(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, AgentError>> {
        Box::pin(async {
            let read = self.patience.wait_for(self.response.chunk()).await;
            let read = read.map_err(|silent| silence_of(&silent, &self.url))?;
            read.map_err(|error| broke_off(&error, &self.url))
        })
    }

    fn events(&mut self, piece: &[u8], sink: EventSink<'_>) -> Result<(), AgentError> {
        let mut rest = piece;
        while let Some(event) = self.parser.next(&mut rest).map_err(unreadable)? {
            self.patience.renew();
            self.assembly.chunk(event.data, sink)?;
        }
        Ok(())
    }

    fn finish(&mut self, sink: EventSink<'_>) -> Result<(), AgentError> {
        if let Some(kind) = other_kind(&self.response)
            && !self.assembly.has_begun()
        {
            return Err(AgentError::broken(
                format!(
                    "the configured server is not a Gemini model: it sent {} instead of events; check agent.base_url",
                    shortened(kind)
                ),
                format!("{}: another kind of answer, {}", self.url, withheld(kind)),
            ));
        }
        if let Ending::Truncated { .. } = self.parser.finish().map_err(unreadable)? {
            return Err(AgentError::broken(
                "the model's answer was cut off; try again",
                format!("{}: the stream ended in the middle of an event", self.url),
            ));
        }
        self.assembly.finish(sink)
    }
}

fn unreadable(error: SseError) -> AgentError {
    AgentError::broken("the model's answer cannot be parsed", error.to_string())
}

/// Sends a request. One that is refused because of its token is sent once more with another.
async fn send(
    client: &reqwest::Client,
    url: &Url,
    credential: &Credential,
    model: &str,
    body: Bytes,
) -> Result<reqwest::Response, Failure> {
    let post = |headers: HeaderMap| {
        let request = client.post(url.clone()).headers(headers);
        let request = request.header("content-type", "application/json");
        http::send(request.body(body.clone()), url)
    };
    let with = |tokens: &Tokens, token: &Token| {
        let mut headers = HeaderMap::new();
        tokens.put(token, &mut headers);
        headers
    };
    let response = match credential {
        Credential::Key(key) => {
            let mut headers = HeaderMap::new();
            if let Ok(mut key) = HeaderValue::from_str(key) {
                key.set_sensitive(true);
                headers.insert("x-goog-api-key", key);
            }
            post(headers).await?
        }
        Credential::Tokens(tokens) => {
            let token = tokens.token().await.map_err(|error| Failure {
                error: error.into_agent_error(),
                again: None,
            })?;
            let response = post(with(tokens, &token)).await?;
            let other = match response.status() {
                StatusCode::UNAUTHORIZED => tokens.instead_of(&token).await,
                _ => None,
            };
            match other {
                Some(other) => post(with(tokens, &other)).await?,
                None => response,
            }
        }
    };
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = read_error_body(response).await;
    let refusal = Refusal::read(&text);
    let retry_after = refusal.retry_after;
    let again = matches!(status.as_u16(), 429 | 500 | 503).then_some(retry_after);
    let kind = match status.as_u16() {
        401 | 403 => AgentErrorKind::Unauthorized,
        400 if refusal.is_about_the_key => AgentErrorKind::Unauthorized,
        429 => AgentErrorKind::Quota { retry_after },
        500..=599 => AgentErrorKind::Unreachable,
        _ => AgentErrorKind::Rejected,
    };
    // It may quote the request, and with it content.
    tracing::debug!(%status, answer = shortened(&text), "the model's refusal");
    let said = refusal.message;
    let said = said.map_or_else(|| status.to_string(), |said| shortened(&said));
    let advice = match status.as_u16() {
        300..=399 => {
            format!("the model's server redirects the request ({said}); correct agent.base_url")
        }
        401 | 403 => match credential {
            Credential::Key(_) => format!("the model refuses the API key: {said}"),
            Credential::Tokens(_) => {
                format!("the model refuses the token: {said}; see agent.token")
            }
        },
        404 => format!(
            "the model {model:?} is unknown or has been retired: {said}; set agent.model to one that exists"
        ),
        429 => format!("the model's quota is used up, try again later: {said}"),
        // A model that was shut down may always answer with this status.
        503 => format!(
            "the model {model:?} is not available, try again, or set agent.model to another: {said}"
        ),
        500..=599 => format!("the model is not available, try again: {said}"),
        _ => format!("the model refused the request: {said}"),
    };
    Err(Failure {
        error: AgentError::new(
            kind,
            advice,
            format!("{url}: {status}, {} bytes", text.len()),
        ),
        again,
    })
}

/// Never shows a key.
impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Key(_) => "Key",
            Self::Tokens(_) => "Tokens",
        })
    }
}
