//! Agent Engine: an ADK app whose runs and sessions are methods of one resource.
//!
//! ```text
//!   session known? ── yes ──▶ async_stream_query ── nothing came, and it is not listed ──┐
//!        │ no                        ▲                                                   ▼
//!        └─ something was said? ─ no ┴─ async_create_session        streaming_agent_run_with_events
//!                    └──────── yes ────────────────────────────────▶ (makes a session of these events)
//! ```
//!
//! Events, questions, answers and what is stored are those of any ADK server; only the way of asking differs. The engine
//! chooses the ids of sessions, and takes state only when one begins.

mod lines;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::json_text::Json;
use reqwest::Url;
use serde::{Deserialize as _, Serialize};
use serde_json::json;

use super::artifact::{Place, SavedArtifact};
use super::client::{self, AdkClient, Failure};
use super::restore::RestoredSession;
use super::run::{AdkRun, Body};
use super::session::{self, Session};
use super::{RunStart, Settings, new_message};
use crate::agent::{
    Agent, AgentInfo, AgentRequest, AgentRun, BoxFuture, DeletedChat, MemoryModel, SessionRequest,
    Starting,
};
use crate::error::AgentError;
use crate::token::Tokens;
use crate::trace_context::TraceContext;
pub(super) use lines::EngineLines;
pub(crate) use lines::session_and_events as engine_line;

/// The part of a resource's path that names engines.
const ENGINES: &str = "/reasoningEngines/";

/// An app in Agent Engine, or in the container that `adk deploy agent_engine` makes.
#[derive(Debug, Clone)]
pub struct AgentEngine {
    client: Arc<AdkClient>,
    query: Url,
    stream: Url,
    silence: Duration,
}

/// A call of a method.
#[derive(Serialize)]
struct Call<'c, I> {
    class_method: &'c str,
    input: I,
}

/// An artifact as an ADK server would return it. Apps that were deployed with an old library do not have this method.
pub(super) async fn artifact(
    client: &AdkClient,
    query: &Url,
    place: &Place,
    wanted: &SavedArtifact,
) -> Result<Json, Failure> {
    let input = json!({
        "user_id": place.user.as_str(), "session_id": place.session, "filename": wanted.name, "version": wanted.version,
    });
    let found = call(client, query, "async_load_artifact", input).await?;
    Ok(Json::parse(&lines::in_camel_case(found.raw())).unwrap_or_default())
}

impl AgentEngine {
    /// `settings.base_url`: the address of a resource, `https://…/reasoningEngines/ID`, or of a container.
    pub fn new(settings: Settings) -> Result<Self, AgentError> {
        let mut client = AdkClient::new(settings)?;
        let base = client.base();
        let path = base.path().trim_end_matches('/');
        let (query, stream) = match path.contains(ENGINES) {
            true => (format!("{path}:query"), format!("{path}:streamQuery")),
            false => (
                format!("{path}/api/reasoning_engine"),
                format!("{path}/api/stream_reasoning_engine"),
            ),
        };
        let at = |path: &str| {
            let mut url = base.clone();
            url.set_path(path);
            url
        };
        let (query, mut stream) = (at(&query), at(&stream));
        match path.contains(ENGINES) {
            true => stream.set_query(Some("alt=sse")),
            // The container closes the connection of a run that fails.
            false => client.closes_after_runs = true,
        }
        client.artifact_method = Some(query.clone());
        Ok(Self {
            query,
            stream,
            client: Arc::new(client),
            silence: client::SILENCE_TIMEOUT,
        })
    }

    /// Gives up a run that is silent for this long, instead of five minutes.
    #[must_use]
    pub fn patient_for(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// Its URL, without secrets.
    pub fn url(&self) -> &str {
        self.client.shown()
    }

    /// Asks the agent. Dropping the future, or the run, stops it.
    async fn run(self, request: SessionRequest) -> Result<AdkRun, AgentError> {
        let this = self.for_user(&request.chat.user, &request.trace);
        this.run_in_session(request).await
    }

    /// The engine that is asked on behalf of this user.
    fn for_user(self, user: &UserId, trace: &TraceContext) -> Self {
        let client = self.client.for_user(user, trace);
        Self { client, ..self }
    }

    async fn run_in_session(self, request: SessionRequest) -> Result<AdkRun, AgentError> {
        if let Some(session) = session::known(&self.client, &*request.store).await? {
            let start = new_message(&request.input, &session, Vec::new(), &BTreeMap::new());
            let mut asked = self.ask(&request, &session.id, &start).await;
            let has_begun = match &mut asked {
                Ok(lines) => lines.has_begun().await,
                Err(_) => false,
            };
            // An engine fails, or falls silent, where a session is gone.
            if has_begun || !self.has_lost(&request, &session.id).await {
                let lines = asked.map_err(Failure::into_error)?;
                return Ok(self.begun(request, session.id, start, lines));
            }
            tracing::warn!(chat = %request.chat.id, session = %session.id, "the agent engine had lost the session of chat {}; the conversation is restored", request.chat.id);
        }
        let mut restored = session::restored(&self.client, &request).await?;
        // What the agent has changed since counts.
        for (key, value) in request.handed_in.at_start() {
            restored.state.entry(key).or_insert(value);
        }
        match restored.events.is_empty() {
            true => self.run_first(request).await,
            false => self.run_restored(request, restored).await,
        }
    }

    /// The first run of a conversation.
    async fn run_first(self, request: SessionRequest) -> Result<AdkRun, AgentError> {
        let mut input = json!({"user_id": request.chat.user.as_str()});
        let state = request.handed_in.at_start();
        if !state.is_empty() {
            input["state"] = json!(state);
        }
        let made = self.call("async_create_session", input).await;
        let made = made.map_err(Failure::into_error)?;
        let id = made.get("id");
        let id = id.as_ref().and_then(Json::as_str).ok_or_else(|| {
            AgentError::broken("the agent engine made a session without an id", self.url())
        })?;
        let session = Session::new(id.into_owned());
        session::keep(&self.client, &request, &session).await?;
        let start = new_message(&request.input, &session, Vec::new(), &BTreeMap::new());
        let lines = self.ask(&request, &session.id, &start).await;
        let lines = lines.map_err(Failure::into_error)?;
        Ok(self.begun(request, session.id, start, lines))
    }

    /// A run that begins with what was said before, in a session that the engine makes of it.
    async fn run_restored(
        self,
        request: SessionRequest,
        restored: RestoredSession,
    ) -> Result<AdkRun, AgentError> {
        let mut session = Session::new(String::new());
        session.lost = restored.lost;
        let start = new_message(&request.input, &session, Vec::new(), &BTreeMap::new());
        let mut events = restored.events;
        if !restored.state.is_empty() {
            let delta = Json::of(&restored.state).unwrap_or_default();
            let actions = Json::object([("stateDelta", delta)]);
            let event = Json::object([("author", "user".into()), ("actions", actions)]);
            events.insert(0, event);
        }
        let asked = Json::object([
            ("user_id", request.chat.user.as_str().into()),
            // The engine makes a session if it does not know this one, and says its id.
            (
                "session_id",
                uuid::Uuid::new_v4().to_string().as_str().into(),
            ),
            ("events", Json::array(&events)),
            ("message", start.message.clone()),
        ]);
        drop(events);
        let input = json!({"request_json": asked.text()});
        let lines = self.begin("streaming_agent_run_with_events", input).await;
        let mut lines = lines.map_err(Failure::into_error)?;
        lines.has_begun().await;
        session.id = lines.session().unwrap_or_default().to_owned();
        if session.id.is_empty() {
            return Err(AgentError::broken(
                "the agent engine could not continue the conversation; try again, or start a new chat",
                format!("{}: no session was made of the conversation", self.url()),
            ));
        }
        session::keep(&self.client, &request, &session).await?;
        Ok(self.begun(request, session.id, start, lines))
    }

    fn begun(
        self,
        request: SessionRequest,
        session: String,
        start: RunStart,
        lines: EngineLines,
    ) -> AdkRun {
        let place = Place {
            user: request.chat.user,
            session,
        };
        let body = Body::Lines(Box::new(lines));
        AdkRun::new(self.client, body, place, start, self.silence)
    }

    /// A run in a session.
    async fn ask(
        &self,
        request: &SessionRequest,
        session: &str,
        start: &RunStart,
    ) -> Result<EngineLines, Failure> {
        let input = Json::object([
            ("user_id", request.chat.user.as_str().into()),
            ("session_id", session.into()),
            ("message", start.message.clone()),
            ("run_config", json!({"streaming_mode": "sse"}).into()),
        ]);
        self.begin("async_stream_query", input).await
    }

    async fn begin(&self, method: &str, input: impl Serialize) -> Result<EngineLines, Failure> {
        let call = Call {
            class_method: method,
            input,
        };
        let response = self
            .client
            .stream_from(&self.stream, &call, self.silence)
            .await?;
        Ok(EngineLines::new(response, self.silence))
    }

    async fn call(&self, method: &str, input: impl Serialize) -> Result<Json, Failure> {
        call(&self.client, &self.query, method, input).await
    }

    /// Whether the engine no longer has this session, which it does not say when it is asked to continue one.
    async fn has_lost(&self, request: &SessionRequest, session: &str) -> bool {
        let input = json!({"user_id": request.chat.user.as_str()});
        let Ok(listed) = self.call("async_list_sessions", input).await else {
            return false;
        };
        let Some(sessions) = listed.get("sessions") else {
            return false;
        };
        let mut ids = (sessions.items().unwrap_or_default().into_iter())
            .filter_map(|listed| Json::read_raw(listed).ok()?.get("id"));
        !ids.any(|id| id.as_str().as_deref() == Some(session))
    }
}

/// What a method returns.
async fn call(
    client: &AdkClient,
    query: &Url,
    method: &str,
    input: impl Serialize,
) -> Result<Json, Failure> {
    let call = Call {
        class_method: method,
        input,
    };
    let answer = client.post_to(query, &call).await?;
    Ok(answer.get("output").unwrap_or_default())
}

impl Agent for AgentEngine {
    fn info(&self) -> AgentInfo {
        let mut info = AgentInfo::new("agent-engine");
        info.id = self.client.app().to_owned();
        info.name = self.client.app().to_owned();
        info.limitations = vec!["speak".to_owned()];
        // Artifacts are fetched while the run continues.
        info.descriptors_per_turn = 2;
        info
    }

    fn memory(&self) -> MemoryModel {
        MemoryModel::Session
    }

    fn start(&self, request: AgentRequest<'_>) -> Starting {
        let request = request.into_session();
        let engine = self.clone();
        Box::pin(async move { Ok(Box::new(engine.run(request?).await?) as Box<dyn AgentRun>) })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async { self.client.token().await.map(drop) })
    }

    /// Lists the sessions of a user who has none.
    fn reach(&self) -> BoxFuture<'_, Result<(), AgentError>> {
        if self.user_tokens().is_some() {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async {
            let input = json!({"user_id": "adk-bridge-check-config"});
            let listed = self.call("async_list_sessions", input).await;
            listed.map(drop).map_err(Failure::into_error)
        })
    }

    fn user_tokens(&self) -> Option<&Tokens> {
        self.client.user_tokens()
    }

    fn forget(&self, DeletedChat { chat, sessions }: DeletedChat) -> BoxFuture<'static, ()> {
        let engine = self.clone().for_user(&chat.user, &TraceContext::default());
        Box::pin(async move {
            for session in sessions {
                let Ok(session) = Session::deserialize(&session) else {
                    continue;
                };
                let input = json!({"user_id": chat.user.as_str(), "session_id": session.id});
                if let Err(failure) = engine.call("async_delete_session", input).await {
                    let error = failure.into_error();
                    tracing::warn!(session = %session.id, kind = %error.kind(), detail = error.detail(), "a session of a deleted chat remains");
                }
            }
        })
    }
}
