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

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::wire::sse::{Ending, MAX_EVENT_BYTES, SseError, SseParser};
use bytes::Bytes;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::agent::{
    Agent, AgentInfo, AgentRequest, AgentRun, BoxFuture, ConversationRequest, EventSink,
    MemoryModel, Starting,
};
use crate::error::{AgentError, AgentErrorKind, shortened, withheld};
use crate::gemini_live::{GeminiLive, Generation};
use crate::http::{
    self, Failure, MODEL_SILENCE, broke_off, model_client, other_kind, read_error_body,
    send_with_token, silence_of, with_tries,
};
use crate::live::LiveAgent;
use crate::silence::Patience;
use crate::token::{TokenError, Tokens};
use crate::trace_context::TraceContext;
pub(crate) use response::Assembly;

pub(crate) use response::Refusal;

/// A model behind Google's REST interface.
#[derive(Debug, Clone)]
pub struct Gemini {
    client: reqwest::Client,
    settings: Settings,
    access: Access,
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

/// How the bridge is let in, and what that place calls its models.
#[derive(Clone)]
pub(crate) enum Access {
    /// Google's own interface for developers.
    Key(String),
    Vertex(Vertex),
}

pub(crate) const KEY_HEADER: HeaderName = HeaderName::from_static("x-goog-api-key");

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
        let access = Access::Key(settings.api_key.clone());
        Self::at(settings, access)
    }

    /// A model in Vertex AI. The key in the settings is not used.
    pub fn on_vertex(settings: Settings, vertex: Vertex) -> Result<Self, AgentError> {
        let gemini = Self::at(settings, Access::Vertex(vertex))?;
        // It refuses the field.
        Ok(gemini.storing(Storing::ByProject))
    }

    fn at(settings: Settings, access: Access) -> Result<Self, AgentError> {
        let client = model_client(&settings.base_url)?;
        let version = match access {
            Access::Key(_) => "v1beta",
            Access::Vertex(_) => "v1",
        };
        let url = format!(
            "{}/{version}/{}:streamGenerateContent?alt=sse",
            settings.base_url.trim_end_matches('/'),
            access.model_path(&settings.model),
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
            access,
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
            live: Some(GeminiLive::with_access(spoken, self.access.clone())),
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
        let (user, trace) = (request.chat.user.clone(), request.trace.clone());
        let body = request::body(request, &self.settings, self.storing);
        let url = self.url.clone();
        let (client, access) = (self.client.clone(), self.access.clone());
        let model = self.settings.model.clone();
        let silence = self.silence;
        async move {
            let body = Bytes::from(body?);
            let caller = (&access, &user, &trace);
            let call = || send(&client, &url, caller, &model, Some(body.clone()));
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
            match self.access.tokens() {
                None => Ok(()),
                Some(tokens) => {
                    let token = tokens.token(None).await.map(drop);
                    token.map_err(TokenError::into_agent_error)
                }
            }
        })
    }

    /// Asks what the model is, which tells whether the place, the credentials and the name are right.
    fn reach(&self) -> BoxFuture<'_, Result<(), AgentError>> {
        if self.user_tokens().is_some() {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async {
            let mut url = self.url.clone();
            let path = url.path().trim_end_matches(":streamGenerateContent");
            let path = path.to_owned();
            url.set_path(&path);
            url.set_query(None);
            let (access, nobody) = (&self.access, &UserId::literal(""));
            let untraced = TraceContext::default();
            let asked = send(
                &self.client,
                &url,
                (access, nobody, &untraced),
                &self.settings.model,
                None,
            );
            asked.await.map(drop).map_err(|failure| failure.error)
        })
    }

    fn user_tokens(&self) -> Option<&Tokens> {
        let tokens = self.access.tokens();
        tokens.filter(|tokens| tokens.are_of_users())
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

/// Posts a body, or asks what the model is.
async fn send(
    client: &reqwest::Client,
    url: &Url,
    (access, user, trace): (&Access, &UserId, &TraceContext),
    model: &str,
    body: Option<Bytes>,
) -> Result<reqwest::Response, Failure> {
    let post = |headers: HeaderMap| {
        let request = match body.clone() {
            Some(body) => client
                .post(url.clone())
                .header("content-type", "application/json")
                .body(body),
            None => client.get(url.clone()),
        };
        http::send(request.headers(trace.headers()).headers(headers), url)
    };
    let response = match access {
        Access::Key(key) => {
            let mut headers = HeaderMap::new();
            headers.extend(key_header(key).map(|key| (KEY_HEADER, key)));
            post(headers).await?
        }
        Access::Vertex(Vertex { tokens, .. }) => send_with_token(tokens, user, post).await?,
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
        401 | 403 => access.refused(&said),
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

impl Access {
    /// A model, as a URL names it.
    pub(crate) fn model_path(&self, model: &str) -> String {
        let model = model.trim_start_matches("models/");
        match self {
            Self::Key(_) => format!("models/{model}"),
            Self::Vertex(Vertex {
                project, location, ..
            }) => {
                // Models of other publishers are named with them.
                let model = match model.contains('/') {
                    true => model.to_owned(),
                    false => format!("publishers/google/models/{model}"),
                };
                format!("projects/{project}/locations/{location}/{model}")
            }
        }
    }

    pub(crate) fn tokens(&self) -> Option<&Tokens> {
        match self {
            Self::Key(_) => None,
            Self::Vertex(vertex) => Some(&vertex.tokens),
        }
    }

    /// What is said where the bridge is not let in.
    pub(crate) fn refused(&self, said: &str) -> String {
        match self.tokens() {
            None => format!("the model refuses the API key: {said}"),
            Some(tokens) => format!("the model refuses the token: {said}; {}", tokens.advice()),
        }
    }
}

/// Nothing if it cannot stand in a header.
pub(crate) fn key_header(key: &str) -> Option<HeaderValue> {
    let mut key = HeaderValue::from_str(key).ok()?;
    key.set_sensitive(true);
    Some(key)
}

/// Never shows a key.
impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Key(_) => "Key",
            Self::Vertex(_) => "Vertex",
        })
    }
}
