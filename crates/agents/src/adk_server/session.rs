//! The session of a chat on an ADK server: found, created, or restored with the conversation so far.

use std::collections::BTreeMap;

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::json_text::Json;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::{AdkClient, Failure};
use super::restore::{RestoredSession, restore};
use crate::agent::{NewInput, SessionRequest, SessionStore};
use crate::error::AgentError;

/// A chat's session on the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    /// Questions of an earlier session that this one does not know, by id. ADK refuses restored events with questions,
    /// so the answers go to the calls that the questions were about.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) lost: BTreeMap<String, Original>,
}

/// A call in the restored history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Original {
    pub(super) id: String,
    pub(super) name: String,
}

pub(super) enum OpenedSession {
    New(Session),
    /// It existed already.
    There(Session),
}

impl OpenedSession {
    pub(super) fn into_session(self) -> Session {
        match self {
            Self::New(session) | Self::There(session) => session,
        }
    }
}

/// The session that the chat has, as far as the bridge knows.
pub(super) async fn known(
    client: &AdkClient,
    store: &dyn SessionStore,
) -> Result<Option<Session>, AgentError> {
    let kept = store
        .session()
        .await
        .map_err(|error| forgotten(client, error))?;
    // An unreadable one counts as absent.
    Ok(kept.and_then(|kept| serde_json::from_value(kept).ok()))
}

/// Creates the session of a chat; `id` is the one that it had.
pub(super) async fn open(
    client: &AdkClient,
    request: &SessionRequest,
    id: Option<&str>,
) -> Result<OpenedSession, AgentError> {
    let past = request
        .store
        .past()
        .await
        .map_err(|error| forgotten(client, error))?;
    let responses = match &request.input {
        NewInput::Message(_) => None,
        NewInput::Responses(responses) => Some(responses.as_slice()),
    };
    let restored = restore(&past, responses, client.app());
    // It may contain large files, and so does the request.
    drop(past);
    // The first session of a chat has the chat's id, so that people find it; after a cut the server chooses the id.
    let wanted = id.or_else(|| (request.generation == 0).then_some(request.chat.id.as_str()));
    let created = create(client, &request.chat.user, wanted, &restored).await;
    let (session, is_new) = match (created, wanted) {
        (Ok(id), _) => (id, true),
        (Err(Failure::Exists(_)), Some(wanted)) => (wanted.to_owned(), false),
        // Some servers insist on choosing all ids themselves.
        (Err(Failure::Refused(_)), Some(_)) => {
            let created = create(client, &request.chat.user, None, &restored).await;
            (created.map_err(Failure::into_error)?, true)
        }
        (Err(failure), _) => return Err(failure.into_error()),
    };
    let session = Session {
        id: session,
        lost: restored.lost,
    };
    request
        .store
        .set_session(json!(session))
        .await
        .map_err(|error| forgotten(client, error))?;
    Ok(if is_new {
        OpenedSession::New(session)
    } else {
        OpenedSession::There(session)
    })
}

async fn create(
    client: &AdkClient,
    user: &UserId,
    id: Option<&str>,
    restored: &RestoredSession,
) -> Result<String, Failure> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'b> {
        #[serde(skip_serializing_if = "Option::is_none")]
        session_id: Option<&'b str>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        state: &'b BTreeMap<String, Json>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        events: &'b [Json],
    }
    let body = Body {
        session_id: id,
        state: &restored.state,
        events: &restored.events,
    };
    let path = ["apps", client.app(), "users", user.as_str(), "sessions"];
    let made = client.post(&path, &body).await?.get("id");
    match (made.as_ref().and_then(Json::as_str), id) {
        (Some(given), _) => Ok(given.into_owned()),
        (None, Some(id)) => Ok(id.to_owned()),
        (None, None) => Err(Failure::Other(AgentError::broken(
            "the ADK server made a session without an id",
            client.shown(),
        ))),
    }
}

fn forgotten(client: &AdkClient, error: String) -> AgentError {
    AgentError::broken(
        "the conversation with the ADK server cannot be read from the store; try again",
        format!("{}: {error}", client.shown()),
    )
}
