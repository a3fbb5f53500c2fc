//! Any ADK server as the agent: `/run_sse` in a session that belongs to one chat.
//!
//! ```text
//!   session known? ── no ──▶ create it, with what was said before ──┐
//!        │ yes                                                      ▼
//!        └──────────────────────────────────────────────────▶ POST /run_sse ──▶ AdkRun
//!                                                                   │ 404, or 500 and it is not there
//!                              create it again ◀── known before ────┤
//!                                                                   └── just created ──▶ the app is unknown
//! ```
//!
//! What was said before goes into a new session as events, or into the next message where the server does not take them. A
//! server that makes sessions by itself never answers 404, so it is asked for the session first.
//!
//! A voice conversation uses `/run_live` in the same session, never while a run is under way there. The ADK server
//! remembers the conversation; the bridge stores what it needs to restore it.

mod app_info;
mod artifact;
mod client;
mod engine;
pub(crate) mod fuzzing;
mod live;
mod restore;
mod retelling;
mod run;
mod server_traits;
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::event::{REQUEST_CONFIRMATION, REQUEST_CREDENTIAL};
use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::outbox::Response;
use serde::{Deserialize as _, Serialize};

use crate::agent::{
    Agent, AgentInfo, AgentRequest, AgentRun, BoxFuture, DeletedChat, MemoryModel, NewInput,
    SessionRequest, Starting,
};
use crate::error::{AgentError, AgentErrorKind};
use crate::live::LiveAgent;
use crate::token::Tokens;
use crate::tool::ToolSpec;
use crate::trace_context::TraceContext;
use client::{AdkClient, Failure};
use session::{Look, OpenedSession, Session, Telling};

pub use app_info::AppInfo;
pub use engine::AgentEngine;
pub(crate) use engine::engine_line;
pub use live::AdkConnection;
pub use run::AdkRun;
pub use server_traits::{Language, ServerTraits};

/// The name of a request for access that no call waits for, since ADK refuses its own name here.
const ACCESS: &str = "request_access";
/// The result of a call that was approved after the session was lost, for the model.
const LOST: &str = "not run: the agent's server lost the conversation before the approval reached it; \
                    call the tool again if it is still wanted";
/// The same for a call that waited for access.
const LOST_ACCESS: &str = "not run: the agent's server lost the conversation before the granted access reached it; \
                           call the tool again if it is still wanted";
/// ADK's own message for a call that was not confirmed.
const REJECTED: &str = "This tool call is rejected.";

/// An app of an ADK server.
#[derive(Debug, Clone)]
pub struct AdkServer {
    client: Arc<AdkClient>,
    app_info: Arc<app_info::Cache>,
    /// How long a run may be silent.
    silence: Duration,
}

#[derive(Clone)]
pub struct Settings {
    /// Without `/run_sse`.
    pub base_url: String,
    pub app: String,
    /// Added to every request.
    pub headers: Vec<(String, String)>,
    /// Where the token of every request comes from, if the server needs one.
    pub tokens: Option<Arc<Tokens>>,
}

/// The body of `/run_sse`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunRequest<'r> {
    app_name: &'r str,
    user_id: &'r UserId,
    session_id: &'r str,
    new_message: &'r Json,
    streaming: bool,
    // Servers of other languages refuse fields that they do not know.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    state_delta: &'r BTreeMap<String, Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom_metadata: Option<&'r Json>,
}

impl AdkServer {
    pub fn new(settings: Settings) -> Result<Self, AgentError> {
        Ok(Self {
            client: Arc::new(AdkClient::new(settings)?),
            app_info: Arc::default(),
            silence: client::SILENCE_TIMEOUT,
        })
    }

    /// Gives up a run that is silent for this long, instead of five minutes.
    #[must_use]
    pub fn patient_for(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    pub fn app(&self) -> &str {
        self.client.app()
    }

    /// Its URL, without secrets.
    pub fn url(&self) -> &str {
        self.client.shown()
    }

    /// What the server is: asked once, and again after it was away. An error means that it cannot be reached.
    pub async fn traits(&self) -> Result<ServerTraits, AgentError> {
        self.client.traits().await
    }

    /// What the server says about the app, possibly cached; nothing if the server does not have this endpoint.
    pub async fn app_info(&self) -> Result<Option<AppInfo>, AgentError> {
        self.app_info.get(&self.client).await
    }

    /// The names of all apps of the server; none if it does not list them.
    pub async fn apps(&self) -> Vec<String> {
        app_info::names(&self.client).await
    }

    /// The names of all apps of the server, or why they cannot be listed.
    pub async fn list_apps(&self) -> Result<Vec<String>, AgentError> {
        self.client.traits().await?;
        app_info::listed(&self.client).await
    }

    /// Asks the agent. Dropping the future, or the run, stops it.
    async fn run(self, request: SessionRequest) -> Result<AdkRun, AgentError> {
        let client = self.client.for_user(&request.chat.user, &request.trace);
        let silence = self.silence;
        let traits = client.traits_of_running().await?;
        let mut known = session::known(&client, &*request.store).await?;
        if let Some(session) = &known
            && session::are_made_by_server(&client).await
            && let Look::Lost = session::look(&client, &request.chat.user, &session.id).await
        {
            let opened = session::open(&client, &request, Some(&session.id)).await?;
            known = Some(opened.into_session());
            tell_of_loss(&request, known.as_ref());
        }
        let mut created = known.is_none();
        let mut session = match known {
            Some(session) => session,
            None => session::open(&client, &request, None).await?.into_session(),
        };
        loop {
            let preamble = match session.telling {
                Telling::NextMessage => session::preamble(&client, &request).await?,
                Telling::AsEvents | Telling::InMessage => Vec::new(),
            };
            let state_delta = session.state_delta(&request.handed_in);
            let start = new_message(&request.input, &session, preamble, &state_delta);
            let body = RunRequest {
                app_name: client.app(),
                user_id: &request.chat.user,
                session_id: &session.id,
                new_message: &start.message,
                streaming: true,
                state_delta: &state_delta,
                custom_metadata: (request.handed_in.custom_metadata.as_ref())
                    .filter(|_| traits.ignores_unknown_fields()),
            };
            let failure = match client.stream(&["run_sse"], &body, silence).await {
                Ok(response) => {
                    note_repeated(&client, &request, &mut session).await;
                    session.note_sent(&client, &request).await?;
                    let place = artifact::Place {
                        user: request.chat.user,
                        session: session.id,
                    };
                    let body = run::Body::Events(response);
                    return Ok(AdkRun::new(client, body, place, start, silence));
                }
                Err(failure) => failure,
            };
            let error = match failure {
                Failure::NotFound(error) => error,
                // Some servers look for the session too late to say that they do not have it.
                Failure::Other(error) if !created && error.kind() == AgentErrorKind::Broken => {
                    match session::look(&client, &request.chat.user, &session.id).await {
                        Look::Lost => error,
                        Look::There(_) | Look::Unclear => return Err(error),
                    }
                }
                failure => return Err(failure.into_error()),
            };
            if created {
                return Err(error);
            }
            created = true;
            session = match session::open(&client, &request, Some(&session.id)).await? {
                OpenedSession::New(session) => session,
                // The session exists, so something else was not found.
                OpenedSession::There(_) => return Err(error),
            };
            tell_of_loss(&request, Some(&session));
        }
    }
}

/// Says what became of a conversation whose session was lost.
fn tell_of_loss(request: &SessionRequest, session: Option<&Session>) {
    let (chat, session) = (
        &request.chat.id,
        session.map(|it| (it.id.as_str(), it.telling)),
    );
    let (id, telling) = session.unwrap_or_default();
    match telling {
        Telling::AsEvents => {
            tracing::warn!(%chat, session = id, "the ADK server had lost the session of chat {chat}; the conversation was restored");
        }
        Telling::NextMessage | Telling::InMessage => {
            tracing::warn!(%chat, session = id, "the ADK server had lost the session of chat {chat} and takes no events; the next message repeats the conversation as text");
        }
    }
}

/// Notes that a message has repeated the conversation. If that cannot be stored, it is repeated once more.
async fn note_repeated(client: &AdkClient, request: &SessionRequest, session: &mut Session) {
    if session.telling != Telling::NextMessage {
        return;
    }
    let chat = &request.chat.id;
    tracing::info!(%chat, session = session.id, "the ADK server takes no events: a message has repeated the conversation of chat {chat} as text");
    session.telling = Telling::InMessage;
    if let Err(error) = session::keep(client, request, session).await {
        tracing::warn!(%chat, detail = error.detail(), "the session of chat {chat} cannot be stored");
    }
}

impl Agent for AdkServer {
    fn info(&self) -> AgentInfo {
        let mut info = AgentInfo::new("adk");
        self.app().clone_into(&mut info.id);
        self.app().clone_into(&mut info.name);
        let traits = self.client.known_traits();
        info.limitations = traits.clone().unwrap_or_default().limitations();
        info.server = traits;
        // Artifacts are fetched while the run continues.
        info.descriptors_per_turn = 2;
        info
    }

    fn memory(&self) -> MemoryModel {
        MemoryModel::Session
    }

    fn start(&self, request: AgentRequest<'_>) -> Starting {
        let request = request.into_session();
        let server = self.clone();
        Box::pin(async move { Ok(Box::new(server.run(request?).await?) as Box<dyn AgentRun>) })
    }

    fn live(&self) -> Option<&dyn LiveAgent> {
        let traits = self.client.known_traits();
        let has_voice = traits.is_none_or(|traits| traits.has_voice());
        has_voice.then_some(self as &dyn LiveAgent)
    }

    fn tools(&self) -> BoxFuture<'_, Result<Vec<ToolSpec>, AgentError>> {
        Box::pin(async { Ok(self.app_info().await?.unwrap_or_default().tools) })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async { self.client.token().await.map(drop) })
    }

    /// Asks which apps the server has; some servers do not say.
    fn reach(&self) -> BoxFuture<'_, Result<(), AgentError>> {
        if self.user_tokens().is_some() {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async {
            let apps = match self.list_apps().await {
                Ok(apps) => apps,
                Err(error) => {
                    return match error.kind() {
                        AgentErrorKind::Unreachable | AgentErrorKind::Unauthorized => Err(error),
                        _ => Ok(()),
                    };
                }
            };
            let app = self.app();
            // The one that lists the apps of a server is of none.
            if app.is_empty() || apps.is_empty() || apps.iter().any(|it| it == app) {
                return Ok(());
            }
            let message = format!("the ADK server has no app {app:?}; correct agent.app");
            Err(AgentError::rejected(message, self.url()))
        })
    }

    fn user_tokens(&self) -> Option<&Tokens> {
        self.client.user_tokens()
    }

    fn adk_server(&self) -> Option<&AdkServer> {
        Some(self)
    }

    fn forget(&self, DeletedChat { chat, sessions }: DeletedChat) -> BoxFuture<'static, ()> {
        // The user does not wait for it.
        let client = (self.client).for_user(&chat.user, &TraceContext::default());
        Box::pin(async move {
            for session in sessions {
                let Ok(session) = Session::deserialize(&session) else {
                    continue;
                };
                let app = client.app();
                let path = [
                    "apps",
                    app,
                    "users",
                    chat.user.as_str(),
                    "sessions",
                    &session.id,
                ];
                if let Err(failure) = client.delete(&path).await {
                    let error = failure.into_error();
                    tracing::warn!(session = %session.id, kind = %error.kind(), detail = error.detail(), "a session of a deleted chat remains");
                }
            }
        })
    }
}

/// What a run begins with.
pub(crate) struct RunStart {
    /// The `newMessage`.
    message: Json,
    /// The event to store for it; a user's message is in the chat already, what it changes in the state is not.
    kept: Option<String>,
    /// The bridge's own responses to calls of a lost session, as an event.
    answered: Option<String>,
}

/// `preamble`: the parts that repeat what was said before.
fn new_message(
    input: &NewInput,
    session: &Session,
    preamble: Vec<Json>,
    state_delta: &BTreeMap<String, Json>,
) -> RunStart {
    let event = |content: Option<&Json>| {
        let delta = Json::of(state_delta).unwrap_or_default();
        let actions = Json::object([("stateDelta", delta)]);
        let actions = (!state_delta.is_empty()).then_some(("actions", actions));
        let content = content.map(|content| ("content", content.clone()));
        let fields = content.into_iter().chain(actions);
        Json::object(std::iter::once(("author", "user".into())).chain(fields)).to_string()
    };
    let responses = match input {
        NewInput::Message(content) => {
            return RunStart {
                message: after(preamble, content),
                kept: (!state_delta.is_empty()).then(|| event(None)),
                answered: None,
            };
        }
        NewInput::Responses(responses) => responses,
    };
    let mut answered = Vec::new();
    // Results of calls that the session knows, and those of calls that it has only read about.
    let (mut known, mut in_words) = (Vec::new(), Vec::new());
    let mut kept = Vec::new();
    for response in responses {
        let Some(original) = session.lost.get(&response.id) else {
            kept.push(part(response));
            known.push(part(response));
            continue;
        };
        let mut instead = Response {
            id: original.id.clone(),
            name: original.name.clone(),
            response: response.response.clone(),
        };
        if response.name == REQUEST_CONFIRMATION {
            let yes = response.response.get("confirmed") == Some(true.into());
            let error = if yes { LOST } else { REJECTED };
            instead.response = Json::object([("error", error.into())]);
            answered.push(part(&instead));
        }
        if response.name == REQUEST_CREDENTIAL {
            // What was granted is for the session that has asked.
            instead.response = Json::object([("error", LOST_ACCESS.into())]);
            if original.name.is_empty() {
                instead.name = ACCESS.to_owned();
                in_words.push(instead);
                continue;
            }
            answered.push(part(&instead));
        }
        kept.push(part(&instead));
        match session.telling {
            Telling::AsEvents => known.push(part(&instead)),
            Telling::NextMessage | Telling::InMessage => in_words.push(instead),
        }
    }
    let in_words = (!in_words.is_empty()).then(|| retelling::results(&in_words));
    let parts: Vec<Json> = preamble.into_iter().chain(in_words).chain(known).collect();
    let answered = (!answered.is_empty()).then(|| user_content(&answered));
    RunStart {
        kept: Some(event(Some(&user_content(&kept)))),
        answered: answered.map(|content| Json::object([("content", content)]).to_string()),
        message: user_content(&parts),
    }
}

/// A user's content after what has to be repeated before it.
fn after(preamble: Vec<Json>, content: &Json) -> Json {
    if preamble.is_empty() {
        return content.clone();
    }
    let parts = content.get("parts").unwrap_or_default();
    let parts = parts.items().unwrap_or_default().into_iter();
    let parts = parts.filter_map(|part| Json::read_raw(part).ok());
    user_content(&preamble.into_iter().chain(parts).collect::<Vec<_>>())
}

fn user_content(parts: &[Json]) -> Json {
    Json::object([("role", "user".into()), ("parts", Json::array(parts))])
}

fn part(response: &Response) -> Json {
    let fields = [
        ("id", response.id.as_str().into()),
        ("name", response.name.as_str().into()),
        ("response", response.response.clone()),
    ];
    Json::object([("functionResponse", Json::object(fields))])
}

/// Shows neither the URL nor the headers, which may contain secrets.
impl std::fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Settings")
            .field("app", &self.app)
            .finish_non_exhaustive()
    }
}
