//! The session of a chat on an ADK server: found again, created, or created anew with what was said before.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::restore::{Restored, restore};
use super::talk::{Failure, Talk};
use crate::agent::{AgentError, Memory, News, SessionRequest};

/// How the server knows a chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    /// Questions that an earlier session asked and this one knows nothing of, by their ids. ADK takes no restored
    /// event that asks something, so their answers go to the calls that they were about.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) lost: BTreeMap<String, Original>,
}

/// A call in the words of the restored history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Original {
    pub(super) id: String,
    pub(super) name: String,
}

pub(super) enum Opened {
    New(Session),
    /// It was there already.
    There(Session),
}

impl Opened {
    pub(super) fn into_session(self) -> Session {
        match self {
            Self::New(session) | Self::There(session) => session,
        }
    }
}

/// The session that the chat has, as far as the bridge knows.
pub(super) async fn known(talk: &Talk, memory: &dyn Memory) -> Result<Option<Session>, AgentError> {
    let kept = memory
        .session()
        .await
        .map_err(|error| forgotten(talk, error))?;
    // One that cannot be read is none.
    Ok(kept.and_then(|kept| serde_json::from_value(kept).ok()))
}

/// Creates the session of a chat; `id` is the one that it had.
pub(super) async fn open(
    talk: &Talk,
    request: &SessionRequest,
    id: Option<&str>,
) -> Result<Opened, AgentError> {
    let past = request
        .memory
        .past()
        .await
        .map_err(|error| forgotten(talk, error))?;
    let responses = match &request.news {
        News::Message(_) => None,
        News::Responses(responses) => Some(responses.as_slice()),
    };
    let restored = restore(&past, responses, talk.app());
    // The first session of a chat has its name, so that people find it; the server names those that follow a cut.
    let wanted = id.or_else(|| (request.generation == 0).then_some(request.chat_id.as_str()));
    let created = create(talk, &request.user, wanted, &restored).await;
    let (session, is_new) = match (created, wanted) {
        (Ok(id), _) => (id, true),
        (Err(Failure::Exists(_)), Some(wanted)) => (wanted.to_owned(), false),
        // Some servers want to choose all names themselves.
        (Err(Failure::Refused(_)), Some(_)) => {
            let created = create(talk, &request.user, None, &restored).await;
            (created.map_err(Failure::into_error)?, true)
        }
        (Err(failure), _) => return Err(failure.into_error()),
    };
    let session = Session {
        id: session,
        lost: restored.lost,
    };
    request
        .memory
        .set_session(json!(session))
        .await
        .map_err(|error| forgotten(talk, error))?;
    Ok(if is_new {
        Opened::New(session)
    } else {
        Opened::There(session)
    })
}

async fn create(
    talk: &Talk,
    user: &str,
    id: Option<&str>,
    restored: &Restored,
) -> Result<String, Failure> {
    let mut body = Map::new();
    if let Some(id) = id {
        body.insert("sessionId".into(), json!(id));
    }
    if !restored.state.is_empty() {
        body.insert("state".into(), json!(restored.state));
    }
    if !restored.events.is_empty() {
        body.insert("events".into(), json!(restored.events));
    }
    let made = talk
        .post(
            &["apps", talk.app(), "users", user, "sessions"],
            &Value::Object(body),
        )
        .await?;
    match (made.get("id").and_then(Value::as_str), id) {
        (Some(given), _) => Ok(given.to_owned()),
        (None, Some(id)) => Ok(id.to_owned()),
        (None, None) => Err(Failure::Other(AgentError {
            message: format!(
                "the ADK server at {} made a session without an id",
                talk.shown()
            ),
            detail: String::new(),
        })),
    }
}

fn forgotten(talk: &Talk, error: String) -> AgentError {
    AgentError {
        message: format!(
            "the conversation with the ADK server at {} cannot be read from the store; try again",
            talk.shown()
        ),
        detail: error,
    }
}
