//! A model behind OpenAI's chat completions: OpenAI's own, or one that llama.cpp, Ollama, vLLM, LM Studio or a gateway
//! serves.
//!
//! One run is one streamed completion, read as ADK events.
//!
//! ```text
//!   contents ──▶ messages ──▶ POST {base_url}/chat/completions ──▶ chunks, or one JSON text ──▶ events
//! ```
//!
//! Servers differ in what they leave out, repeat and refuse; what is evened out is listed where it is read
//! (`response.rs`) and written (`request.rs`).

mod calls;
mod refusal;
mod request;
mod response;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::wire::sse::{Ending, MAX_EVENT_BYTES, SseError, SseParser};
use bytes::Bytes;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};

use crate::agent::{
    Agent, AgentInfo, AgentRequest, AgentRun, BoxFuture, ConversationRequest, EventSink,
    MemoryModel, Starting,
};
use crate::error::{AgentError, shortened, withheld};
use crate::http::{
    self, Failure, MODEL_SILENCE, broke_off, headers, model_client, other_kind, read_error_body,
    retry_after, send_with_token, silence_of, with_tries,
};
use crate::silence::Patience;
use crate::token::{TokenError, Tokens};
use crate::trace_context::TraceContext;
pub(crate) use refusal::{Credential, Refusal};
use request::Body;
pub(crate) use response::Assembly;

/// Where OpenAI serves its own models.
pub const OPENAI: &str = "https://api.openai.com/v1";

/// How long the usage, which follows the end of an answer, is waited for if the server does not close the connection.
const USAGE_WAIT: Duration = Duration::from_secs(5);

/// A model behind chat completions.
#[derive(Debug, Clone)]
pub struct OpenAi {
    client: reqwest::Client,
    settings: Settings,
    headers: HeaderMap,
    /// Where the model is called.
    url: Url,
    silence: Duration,
    habits: Arc<Habits>,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// Without `/chat/completions`.
    pub base_url: String,
    pub model: String,
    /// Local servers need none.
    pub api_key: Option<String>,
    /// Where the token of every request comes from, if the server takes one instead of a key.
    pub tokens: Option<Arc<Tokens>>,
    /// Added to every request.
    pub headers: Vec<(String, String)>,
    pub instruction: Option<String>,
    /// Whether the provider may store requests and answers; nothing is said if this is not set.
    pub store: Option<bool>,
}

/// What a server has shown of itself. Both only save a detour, so they are forgotten when the process ends.
#[derive(Debug, Default)]
struct Habits {
    /// It refuses requests that ask for the usage.
    refuses_usage: AtomicBool,
    /// It calls thoughts `reasoning`, and not `reasoning_content`.
    says_reasoning: AtomicBool,
}

/// One model call, read as it comes.
#[derive(Debug)]
pub struct OpenAiRun {
    response: reqwest::Response,
    url: Url,
    patience: Patience,
    form: Form,
    assembly: Assembly,
    habits: Arc<Habits>,
}

/// The form of an answer, which its first bytes tell: not every server streams, whatever it was asked for.
#[derive(Debug)]
enum Form {
    Unknown(SseParser),
    Events(SseParser),
    /// One JSON text.
    Whole(Vec<u8>),
}

impl OpenAi {
    pub fn new(settings: Settings) -> Result<Self, AgentError> {
        let mut headers = headers(&settings.headers)?;
        if let Some(key) = &settings.api_key
            && !headers.contains_key(AUTHORIZATION)
        {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| {
                AgentError::rejected(
                    "the model's API key contains characters that no header can carry; correct the variable that agent.api_key_env names",
                    "",
                )
            })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Self {
            client: model_client(&settings.base_url)?,
            url: address(&settings.base_url)?,
            settings,
            headers,
            silence: MODEL_SILENCE,
            habits: Arc::default(),
        })
    }

    /// Gives up a call that is silent for this long, instead of three minutes.
    #[must_use]
    pub fn patient_for(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// Asks the model. Dropping the future, or the run, stops it.
    fn ask(
        &self,
        request: &ConversationRequest<'_>,
    ) -> impl Future<Output = Result<OpenAiRun, AgentError>> + Send + use<> {
        let body = Body::new(request, &self.settings, &self.habits);
        let assembly = Assembly::after(request::count_calls(&request.contents));
        let (agent, user) = (self.clone(), request.chat.user.clone());
        let trace = request.trace.clone();
        async move {
            let body = body?;
            let call = || agent.send((&user, &trace), &body);
            let response = with_tries(agent.silence, &agent.url, call).await?;
            Ok(OpenAiRun {
                response,
                patience: Patience::new(agent.silence),
                form: Form::Unknown(SseParser::new(MAX_EVENT_BYTES)),
                assembly,
                url: agent.url,
                habits: agent.habits,
            })
        }
    }

    /// Sends the request, and once more without the wish for the usage if the server refuses that.
    async fn send(
        &self,
        caller: (&UserId, &TraceContext),
        body: &Body,
    ) -> Result<reqwest::Response, Failure> {
        let wants_usage = !self.habits.refuses_usage.load(Ordering::Relaxed);
        let sent = match wants_usage {
            true => body.bytes(),
            false => body.without_usage(),
        };
        let response = self.post(caller, sent).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let failure = self.refused(response).await;
        if !(wants_usage && failure.names_usage) {
            return Err(failure.failure);
        }
        let response = self.post(caller, body.without_usage()).await?;
        if !response.status().is_success() {
            return Err(self.refused(response).await.failure);
        }
        self.habits.refuses_usage.store(true, Ordering::Relaxed);
        Ok(response)
    }

    async fn post(
        &self,
        (user, trace): (&UserId, &TraceContext),
        body: Bytes,
    ) -> Result<reqwest::Response, Failure> {
        let post = |headers: HeaderMap| {
            let request = self
                .client
                .post(self.url.clone())
                .headers(self.headers.clone())
                .headers(trace.headers())
                .headers(headers)
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone());
            http::send(request, &self.url)
        };
        match &self.settings.tokens {
            None => post(HeaderMap::new()).await,
            Some(tokens) => send_with_token(tokens, user, post).await,
        }
    }

    async fn refused(&self, response: reqwest::Response) -> refusal::Refused {
        let status = response.status();
        let kind = other_kind(&response).unwrap_or_default().to_owned();
        let waits = retry_after(response.headers());
        let text = read_error_body(response).await;
        // It may quote the request, and with it content.
        tracing::debug!(%status, answer = shortened(&text), "the model's refusal");
        let refusal = Refusal::read(&text, &kind);
        let credential = match &self.settings.tokens {
            Some(tokens) => Credential::Token {
                advice: tokens.advice(),
            },
            None if self.headers.contains_key(AUTHORIZATION) => Credential::Key,
            None => Credential::None,
        };
        let mut refused = refusal.of_request(status, waits, &self.settings.model, credential);
        let place = format!("{}: {status}, {} bytes", self.url, text.len());
        refused.failure.error = refused.failure.error.and_detail(&place);
        refused
    }
}

impl Agent for OpenAi {
    fn info(&self) -> AgentInfo {
        let mut info = AgentInfo::new("openai");
        info.model = Some(self.settings.model.clone());
        info
    }

    fn memory(&self) -> MemoryModel {
        MemoryModel::Stateless
    }

    fn check(&self) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async {
            match &self.settings.tokens {
                None => Ok(()),
                Some(tokens) => {
                    let token = tokens.token(None).await.map(drop);
                    token.map_err(TokenError::into_agent_error)
                }
            }
        })
    }

    /// Asks for the list of models, which not every server has.
    fn reach(&self) -> BoxFuture<'_, Result<(), AgentError>> {
        if self.user_tokens().is_some() {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async {
            let mut url = self.url.clone();
            let path = url.path().trim_end_matches("chat/completions");
            let path = format!("{path}models");
            url.set_path(&path);
            let get = |headers: HeaderMap| {
                let request = self.client.get(url.clone()).headers(self.headers.clone());
                http::send(request.headers(headers), &url)
            };
            let response = match &self.settings.tokens {
                None => get(HeaderMap::new()).await,
                Some(tokens) => send_with_token(tokens, &UserId::literal(""), get).await,
            };
            let response = response.map_err(|failure| failure.error)?;
            match response.status().as_u16() {
                200..=299 | 404 | 405 | 501 => Ok(()),
                _ => Err(self.refused(response).await.failure.error),
            }
        })
    }

    fn user_tokens(&self) -> Option<&Tokens> {
        let tokens = self.settings.tokens.as_deref();
        tokens.filter(|tokens| tokens.are_of_users())
    }

    fn start(&self, request: AgentRequest<'_>) -> Starting {
        let run = request
            .into_conversation()
            .map(|conversation| self.ask(&conversation));
        Box::pin(async move { Ok(Box::new(run?.await?) as Box<dyn AgentRun>) })
    }
}

impl AgentRun for OpenAiRun {
    fn read(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, AgentError>> {
        Box::pin(async {
            if self.assembly.is_done() {
                return Ok(None);
            }
            let has_ended = self.assembly.has_ended();
            let read = self.patience.wait_for(self.response.chunk()).await;
            match read {
                Ok(Ok(piece)) => Ok(piece),
                // What is missing is only the usage.
                _ if has_ended => Ok(None),
                Ok(Err(error)) => Err(broke_off(&error, &self.url)),
                Err(silent) => Err(silence_of(&silent, &self.url)),
            }
        })
    }

    fn events(&mut self, piece: &[u8], sink: EventSink<'_>) -> Result<(), AgentError> {
        self.form.begin(piece);
        let parser = match &mut self.form {
            Form::Unknown(parser) | Form::Events(parser) => parser,
            Form::Whole(text) => {
                self.patience.renew();
                if text.len() + piece.len() > MAX_EVENT_BYTES {
                    return Err(AgentError::broken(
                        "the model's answer is too long",
                        format!("{}: more than {MAX_EVENT_BYTES} bytes of JSON", self.url),
                    ));
                }
                text.extend_from_slice(piece);
                return Ok(());
            }
        };
        let had_ended = self.assembly.has_ended();
        let mut rest = piece;
        while let Some(event) = parser.next(&mut rest).map_err(unreadable)? {
            self.patience.renew();
            self.assembly.event(event.name, event.data, sink)?;
        }
        if self.assembly.has_ended() && !had_ended {
            self.patience = Patience::new(USAGE_WAIT);
        }
        if let Some(says_reasoning) = self.assembly.says_reasoning() {
            let habit = &self.habits.says_reasoning;
            habit.store(says_reasoning, Ordering::Relaxed);
        }
        Ok(())
    }

    fn finish(&mut self, sink: EventSink<'_>) -> Result<(), AgentError> {
        match &mut self.form {
            Form::Whole(text) => {
                let text = std::mem::take(text);
                let text = String::from_utf8(text)
                    .map_err(|error| unparsable(error.utf8_error().to_string()))?;
                self.assembly.whole(&text, sink)?;
            }
            Form::Unknown(parser) | Form::Events(parser) => {
                if let Some(kind) = other_kind(&self.response)
                    && !self.assembly.has_begun()
                {
                    return Err(AgentError::broken(
                        format!(
                            "the configured server does not answer with chat completions: it sent {}; check agent.base_url",
                            shortened(kind)
                        ),
                        format!("{}: another kind of answer, {}", self.url, withheld(kind)),
                    ));
                }
                let ending = match self.assembly.is_done() {
                    true => Ending::Complete,
                    false => parser.finish().map_err(unreadable)?,
                };
                // Not every server writes the blank line after its last event.
                if let Ending::Truncated { data, .. } = ending
                    && let Ok(data) = std::str::from_utf8(data)
                    && response::is_whole(data)
                {
                    self.assembly.event("", data, sink)?;
                }
            }
        }
        self.assembly.finish(sink)
    }
}

impl Form {
    /// Decides by the first bytes that are not white space.
    fn begin(&mut self, piece: &[u8]) {
        if let Self::Unknown(parser) = self
            && let Some(first) = piece.iter().find(|byte| !byte.is_ascii_whitespace())
        {
            *self = match first {
                b'{' | b'[' => Self::Whole(Vec::new()),
                _ => Self::Events(std::mem::take(parser)),
            };
        }
    }
}

/// The address of the completions, with the query of the base, which some gateways need.
fn address(base_url: &str) -> Result<Url, AgentError> {
    let bad = |why: String| {
        AgentError::rejected(
            "the address of the model is not a URL; correct agent.base_url",
            format!("{base_url}: {why}"),
        )
    };
    let mut url = Url::parse(base_url).map_err(|error| bad(error.to_string()))?;
    url.path_segments_mut()
        .map_err(|()| bad("it has no path".to_owned()))?
        .pop_if_empty()
        .extend(["chat", "completions"]);
    Ok(url)
}

fn unreadable(error: SseError) -> AgentError {
    unparsable(error.to_string())
}

fn unparsable(detail: impl Into<String>) -> AgentError {
    AgentError::broken("the model's answer cannot be parsed", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_follows_the_base() {
        for (base, url) in [
            (OPENAI, "https://api.openai.com/v1/chat/completions"),
            (
                "http://127.0.0.1:11434/v1/",
                "http://127.0.0.1:11434/v1/chat/completions",
            ),
            (
                "http://localhost:8080",
                "http://localhost:8080/chat/completions",
            ),
            (
                "https://a.example/openai/deployments/d?api-version=1",
                "https://a.example/openai/deployments/d/chat/completions?api-version=1",
            ),
        ] {
            assert_eq!(address(base).unwrap().as_str(), url);
        }
        assert!(address("nowhere").is_err() && address("mailto:a@b").is_err());
    }
}
