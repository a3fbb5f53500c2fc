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
//! The ADK server remembers the conversation; the bridge keeps what it needs to tell it again.

mod app_info;
mod artifact;
mod restore;
mod run;
mod session;
mod talk;

use std::sync::Arc;

use adk_bridge_protocol::event::REQUEST_CONFIRMATION;
use adk_bridge_protocol::outbox::Response;
use serde::{Deserialize as _, Serialize};
use serde_json::{Value, json};

use crate::agent::{AgentError, News, SessionRequest};
use session::{Opened, Session};
use talk::{Failure, Talk};

pub use app_info::AppInfo;
pub use run::AdkRun;

/// What a model is told of a call that was approved after the session was lost.
const LOST: &str = "not run: the agent's server lost the conversation before the approval reached it; \
                    call the tool again if it is still wanted";
/// ADK's own words for a call that was not confirmed.
const REJECTED: &str = "This tool call is rejected.";

/// An app of an ADK server.
#[derive(Debug, Clone)]
pub struct AdkServer {
    talk: Arc<Talk>,
}

#[derive(Clone)]
pub struct Settings {
    /// Up to and without `/run_sse`.
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
    user_id: &'r str,
    session_id: &'r str,
    new_message: &'r Value,
    streaming: bool,
}

impl AdkServer {
    pub fn new(settings: Settings) -> Result<Self, AgentError> {
        Ok(Self {
            talk: Arc::new(Talk::new(settings)?),
        })
    }

    pub fn app(&self) -> &str {
        self.talk.app()
    }

    /// Where it is, without anything secret.
    pub fn url(&self) -> &str {
        self.talk.shown()
    }

    /// What the server tells of the app; nothing where it does not know such a question.
    pub async fn app_info(&self) -> Result<Option<AppInfo>, AgentError> {
        app_info::ask(&self.talk).await
    }

    /// The names of all apps of the server; none where it does not tell.
    pub async fn apps(&self) -> Vec<String> {
        app_info::names(&self.talk).await
    }

    /// Deletes what the server remembers of a chat; `sessions` are those that its memory was given.
    pub async fn forget(&self, user: &str, sessions: &[Value]) {
        for session in sessions {
            let Ok(session) = Session::deserialize(session) else {
                continue;
            };
            let path = ["apps", self.app(), "users", user, "sessions", &session.id];
            if let Err(failure) = self.talk.delete(&path).await {
                let error = failure.into_error();
                tracing::warn!(session = %session.id, detail = %error.detail, "a session of a deleted chat remains: {error}");
            }
        }
    }

    /// Asks the agent. Dropping the future, or the run, stops it.
    pub async fn start(self, request: SessionRequest) -> Result<AdkRun, AgentError> {
        let talk = self.talk;
        let known = session::known(&talk, &*request.memory).await?;
        let mut created = known.is_none();
        let mut session = match known {
            Some(session) => session,
            None => session::open(&talk, &request, None).await?.into_session(),
        };
        loop {
            let told = new_message(&request.news, &session);
            let body = RunRequest {
                app_name: talk.app(),
                user_id: &request.user,
                session_id: &session.id,
                new_message: &told.message,
                streaming: true,
            };
            let failure = match talk.stream(&["run_sse"], &body).await {
                Ok(response) => {
                    let place = artifact::Place {
                        user: request.user,
                        session: session.id,
                    };
                    return Ok(AdkRun::new(talk, response, place, told));
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
            session = match session::open(&talk, &request, Some(&session.id)).await? {
                Opened::New(session) => {
                    tracing::warn!(chat = %request.chat_id, session = %session.id, "the ADK server had lost the session of chat {}; it was told the conversation again", request.chat_id);
                    session
                }
                // The session is there, so something else was not found.
                Opened::There(_) => return Err(error),
            };
        }
    }
}

/// What a run begins with.
pub(crate) struct Told {
    /// The `newMessage`.
    message: Value,
    /// What is kept of it; a user's message is in the chat already.
    kept: Option<String>,
    /// What the bridge itself has to say about calls of a session that was lost, as an event.
    answered: Option<String>,
}

fn new_message(news: &News, session: &Session) -> Told {
    let responses = match news {
        News::Message(content) => {
            return Told {
                message: content.clone(),
                kept: None,
                answered: None,
            };
        }
        News::Responses(responses) => responses,
    };
    let mut answered = Vec::new();
    let parts: Vec<Value> = responses
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
                let yes = response.response.get("confirmed") == Some(&json!(true));
                instead.response = json!({"error": if yes { LOST } else { REJECTED }});
                answered.push(part(&instead));
            }
            part(&instead)
        })
        .collect();
    let message = json!({"role": "user", "parts": parts});
    Told {
        kept: Some(json!({"author": "user", "content": message}).to_string()),
        answered: (!answered.is_empty())
            .then(|| json!({"content": {"role": "user", "parts": answered}}).to_string()),
        message,
    }
}

fn part(response: &Response) -> Value {
    json!({"functionResponse": {"id": response.id, "name": response.name, "response": response.response}})
}

/// Shows where it is, never what it is told.
impl std::fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Settings")
            .field("app", &self.app)
            .finish_non_exhaustive()
    }
}
