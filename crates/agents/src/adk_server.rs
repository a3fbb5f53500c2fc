//! Any ADK server as the agent: `/run_sse` in a session that belongs to one chat.
//!
//! ```text
//!   session known? ── no ──▶ create it, with what was said before ──┐
//!        │ yes                                                      ▼
//!        └──────────────────────────────────────────────────▶ POST /run_sse ──▶ AdkRun
//!                                                                   │ 404
//!                              create it again ◀── known before ────┤
//!                                                                   └── just created ──▶ the app is unknown
//! ```
//!
//! A voice conversation uses `/run_live` in the same session, never while a run is under way there. The ADK server
//! remembers the conversation; the bridge stores what it needs to restore it.

mod app_info;
mod artifact;
mod client;
mod live;
mod restore;
mod run;
mod session;

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::event::REQUEST_CONFIRMATION;
use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::outbox::Response;
use serde::{Deserialize as _, Serialize};

use crate::agent::{
    Agent, AgentInfo, AgentRequest, AgentRun, BoxFuture, DeletedChat, MemoryModel, NewInput,
    SessionRequest, Starting,
};
use crate::error::AgentError;
use crate::live::LiveAgent;
use crate::tool::ToolSpec;
use client::{AdkClient, Failure};
use session::{OpenedSession, Session};

pub use app_info::AppInfo;
pub use live::AdkConnection;
pub use run::AdkRun;

/// The result of a call that was approved after the session was lost, for the model.
const LOST: &str = "not run: the agent's server lost the conversation before the approval reached it; \
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
        app_info::listed(&self.client).await
    }

    /// Asks the agent. Dropping the future, or the run, stops it.
    async fn run(self, request: SessionRequest) -> Result<AdkRun, AgentError> {
        let (client, silence) = (self.client, self.silence);
        let known = session::known(&client, &*request.store).await?;
        let mut created = known.is_none();
        let mut session = match known {
            Some(session) => session,
            None => session::open(&client, &request, None).await?.into_session(),
        };
        loop {
            let start = new_message(&request.input, &session);
            let body = RunRequest {
                app_name: client.app(),
                user_id: &request.chat.user,
                session_id: &session.id,
                new_message: &start.message,
                streaming: true,
            };
            let failure = match client.stream(&["run_sse"], &body, silence).await {
                Ok(response) => {
                    let place = artifact::Place {
                        user: request.chat.user,
                        session: session.id,
                    };
                    return Ok(AdkRun::new(client, response, place, start, silence));
                }
                Err(failure) => failure,
            };
            let Failure::NotFound(error) = failure else {
                return Err(failure.into_error());
            };
            if created {
                return Err(error);
            }
            created = true;
            session = match session::open(&client, &request, Some(&session.id)).await? {
                OpenedSession::New(session) => {
                    tracing::warn!(chat = %request.chat.id, session = %session.id, "the ADK server had lost the session of chat {}; the conversation was restored", request.chat.id);
                    session
                }
                // The session exists, so something else was not found.
                OpenedSession::There(_) => return Err(error),
            };
        }
    }
}

impl Agent for AdkServer {
    fn info(&self) -> AgentInfo {
        let mut info = AgentInfo::new("adk");
        self.app().clone_into(&mut info.id);
        self.app().clone_into(&mut info.name);
        info.limitations = vec!["ask for approval in a spoken conversation".to_owned()];
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
        Some(self)
    }

    fn tools(&self) -> BoxFuture<'_, Result<Vec<ToolSpec>, AgentError>> {
        Box::pin(async { Ok(self.app_info().await?.unwrap_or_default().tools) })
    }

    fn forget(&self, DeletedChat { chat, sessions }: DeletedChat) -> BoxFuture<'static, ()> {
        let client = self.client.clone();
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
    /// The event to store for it; a user's message is in the chat already.
    kept: Option<String>,
    /// The bridge's own responses to calls of a lost session, as an event.
    answered: Option<String>,
}

fn new_message(input: &NewInput, session: &Session) -> RunStart {
    let responses = match input {
        NewInput::Message(content) => {
            return RunStart {
                message: content.clone(),
                kept: None,
                answered: None,
            };
        }
        NewInput::Responses(responses) => responses,
    };
    let mut answered = Vec::new();
    let parts: Vec<Json> = responses
        .iter()
        .map(|response| {
            let Some(original) = session.lost.get(&response.id) else {
                return part(response);
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
            part(&instead)
        })
        .collect();
    let message = user_content(&parts);
    let answered = (!answered.is_empty()).then(|| user_content(&answered));
    RunStart {
        kept: Some(
            Json::object([("author", "user".into()), ("content", message.clone())]).to_string(),
        ),
        answered: answered.map(|content| Json::object([("content", content)]).to_string()),
        message,
    }
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
