//! The session of a chat on an ADK server: found, created, or restored with the conversation so far.

use std::collections::BTreeMap;

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::json_text::Json;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::{AdkClient, Failure};
use super::restore::{RestoredSession, restore};
use super::retelling;
use crate::agent::{HandedIn, NewInput, SessionRequest, SessionStore};
use crate::error::{AgentError, AgentErrorKind};

/// The user and the session that show whether a server makes sessions by itself.
const PROBE: &str = "adk-bridge-probe";

/// The longest id of a session: it becomes part of URLs.
const MAX_ID_BYTES: usize = 1024;

/// A chat's session on the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    /// Questions of an earlier session that this one does not know, by id. ADK refuses restored events with questions,
    /// so the answers go to the calls that the questions were about.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) lost: BTreeMap<String, Original>,
    #[serde(default, skip_serializing_if = "Telling::is_as_events")]
    pub(super) telling: Telling,
    /// What was handed in when it began, or since.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    state: BTreeMap<String, Json>,
}

/// How a session learns what was said before it.
///
/// ```text
///   AsEvents      the server took the events, or there are none
///   NextMessage ── a run has begun ──▶ InMessage
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Telling {
    #[default]
    AsEvents,
    /// The next message has to tell it.
    NextMessage,
    /// A message has repeated it: the session knows none of the calls before.
    InMessage,
}

impl Telling {
    // The form that serde asks for.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn is_as_events(&self) -> bool {
        *self == Self::AsEvents
    }
}

/// A call in the restored history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Original {
    pub(super) id: String,
    pub(super) name: String,
}

impl Session {
    /// One in which nothing was said yet.
    pub(super) fn new(id: String) -> Self {
        Self {
            id,
            lost: BTreeMap::new(),
            telling: Telling::default(),
            state: BTreeMap::new(),
        }
    }

    /// What a run has to tell it of what is handed in.
    pub(super) fn state_delta(&self, handed_in: &HandedIn) -> BTreeMap<String, Json> {
        let is_new = |key: &String, value: &Json| self.state.get(key) != Some(value);
        let state = handed_in.state.iter();
        let news = state.filter(|(key, value)| is_new(key, value));
        let delta = news.chain(&handed_in.state_delta);
        delta
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// Notes that it has been sent what is handed in.
    pub(super) async fn note_sent(
        &mut self,
        client: &AdkClient,
        request: &SessionRequest,
    ) -> Result<(), AgentError> {
        if self.state == request.handed_in.state {
            return Ok(());
        }
        self.state.clone_from(&request.handed_in.state);
        keep(client, request, self).await
    }
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
    let mut restored = restored(client, request).await?;
    // What the agent has changed since counts.
    let handed_in = &request.handed_in.state;
    for (key, value) in handed_in {
        let state = restored.state.entry(key.clone());
        state.or_insert_with(|| value.clone());
    }
    let takes_events = client
        .known_traits()
        .is_none_or(|traits| traits.takes_events != Some(false));
    let past_events = std::mem::take(&mut restored.events);
    // The first session of a chat has the chat's id, so that people find it; after a cut the server chooses the id.
    let wanted = id.or_else(|| (request.generation == 0).then_some(request.chat.id.as_str()));
    let wanted = wanted.filter(|id| is_usable(id));
    let creation = Creation {
        client,
        user: &request.chat.user,
        state: &restored.state,
    };
    let events = if takes_events {
        past_events.as_slice()
    } else {
        &[]
    };
    let (created, is_new) = match (creation.send(wanted, events).await, wanted) {
        (Ok(created), _) => (created, true),
        (Err(Failure::Exists(_)), Some(wanted)) => (CreatedSession::existing(wanted), false),
        // Some servers insist on choosing all ids themselves, or do not take these events.
        (Err(Failure::Refused(_)), _) if wanted.is_some() || !events.is_empty() => {
            let again = match creation.send(None, events).await {
                Err(Failure::Refused(_)) if !events.is_empty() => creation.send(wanted, &[]).await,
                again => again,
            };
            (again.map_err(Failure::into_error)?, true)
        }
        (Err(failure), _) => return Err(failure.into_error()),
    };
    if let Some(wanted) = wanted.filter(|_| is_new) {
        let has_taken = created.id == wanted;
        client.learn(|traits| traits.takes_session_id = Some(has_taken));
    }
    let has_taken =
        past_events.is_empty() || !is_new || !events.is_empty() && creation.kept(&created).await;
    if is_new && !events.is_empty() {
        client.learn(|traits| traits.takes_events = Some(has_taken));
    }
    drop(past_events);
    let mut session = Session {
        id: created.id,
        lost: restored.lost,
        telling: Telling::default(),
        // One that was there already has not been sent anything.
        state: match is_new {
            true => handed_in.clone(),
            false => BTreeMap::new(),
        },
    };
    if !has_taken {
        session.telling = Telling::NextMessage;
        let open = restored.open.into_iter();
        let open = open.map(|call| (call.id.clone(), call));
        session.lost.extend(open);
    }
    keep(client, request, &session).await?;
    Ok(if is_new {
        OpenedSession::New(session)
    } else {
        OpenedSession::There(session)
    })
}

/// Stores the session of a chat.
pub(super) async fn keep(
    client: &AdkClient,
    request: &SessionRequest,
    session: &Session,
) -> Result<(), AgentError> {
    let kept = request.store.set_session(json!(session)).await;
    kept.map_err(|error| forgotten(client, error))
}

/// What was said before, as the beginning of a message.
pub(super) async fn preamble(
    client: &AdkClient,
    request: &SessionRequest,
) -> Result<Vec<Json>, AgentError> {
    let restored = restored(client, request).await?;
    Ok(retelling::parts(&restored.events))
}

/// What a server says about a session.
pub(super) enum Look {
    There(Json),
    Lost,
    /// It does not tell.
    Unclear,
}

/// Asks for a session that was there before.
pub(super) async fn look(client: &AdkClient, user: &UserId, id: &str) -> Look {
    let all = ["apps", client.app(), "users", user.as_str(), "sessions"];
    let one = [&all[..], &[id]].concat();
    match client.get(&one).await {
        Ok(found) => Look::There(found),
        Err(Failure::NotFound(_)) => Look::Lost,
        // Some servers fail instead, and only their list shows that the session is gone.
        Err(Failure::Other(error)) if error.kind() == AgentErrorKind::Broken => {
            let listed = client.get(&all).await.ok();
            // A server without sessions may write nothing at all.
            let is_list = |list: &Json| list.is_null() || list.items().is_some();
            match listed.filter(is_list) {
                Some(list) if !has_session(&list, id) => Look::Lost,
                _ => Look::Unclear,
            }
        }
        Err(_) => Look::Unclear,
    }
}

pub(super) fn has_session(list: &Json, id: &str) -> bool {
    let sessions = list.items().unwrap_or_default();
    let mut sessions = sessions
        .into_iter()
        .filter_map(|one| Json::read_raw(one).ok());
    sessions.any(|one| {
        one.get("id")
            .is_some_and(|it| it.as_str().as_deref() == Some(id))
    })
}

/// Whether the server makes a session for a run in one that it does not know, so that it never says that one was lost.
/// A run without a message is always refused, but such a server makes the session first.
pub(super) async fn are_made_by_server(client: &AdkClient) -> bool {
    client
        .makes_sessions(async {
            let body = json!({"appName": client.app(), "userId": PROBE, "sessionId": PROBE});
            match client.post(&["run"], &body).await {
                Err(Failure::NotFound(_) | Failure::Refused(_)) => return Some(false),
                Err(Failure::Other(error)) if error.kind() != AgentErrorKind::Broken => {
                    return None;
                }
                _ => {}
            }
            let path = ["apps", client.app(), "users", PROBE, "sessions", PROBE];
            let is_made = client.get(&path).await.is_ok();
            if is_made && client.delete(&path).await.is_err() {
                tracing::warn!("the session {PROBE} of the user {PROBE} remains on the ADK server");
            }
            Some(is_made)
        })
        .await
}

/// What was said before, as a new session takes it.
pub(super) async fn restored(
    client: &AdkClient,
    request: &SessionRequest,
) -> Result<RestoredSession, AgentError> {
    let past = request.store.past().await;
    let past = past.map_err(|error| forgotten(client, error))?;
    let responses = match &request.input {
        NewInput::Message(_) => None,
        NewInput::Responses(responses) => Some(responses.as_slice()),
    };
    // The past is dropped here: it may contain large files, and so does the result.
    Ok(restore(&past, responses, client.app()))
}

/// A session that is created.
struct Creation<'c> {
    client: &'c AdkClient,
    user: &'c UserId,
    state: &'c BTreeMap<String, Json>,
}

/// A session as the server made it.
struct CreatedSession {
    id: String,
    /// How many events it has, if the server says so.
    events: Option<usize>,
}

impl CreatedSession {
    fn existing(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            events: None,
        }
    }
}

impl Creation<'_> {
    async fn send(&self, id: Option<&str>, events: &[Json]) -> Result<CreatedSession, Failure> {
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
        let (client, state) = (self.client, self.state);
        let body = Body {
            session_id: id,
            state,
            events,
        };
        let user = self.user.as_str();
        let path = ["apps", client.app(), "users", user, "sessions"];
        let made = client.post(&path, &body).await?;
        let events = made.get("events");
        let events = events.and_then(|events| Some(events.items()?.len()));
        let given = made.get("id");
        match (given.as_ref().and_then(Json::as_str), id) {
            (Some(given), _) if !is_usable(&given) => Err(Failure::Other(AgentError::broken(
                "the ADK server made a session whose id cannot be part of a URL",
                client.shown(),
            ))),
            (Some(given), _) => Ok(CreatedSession {
                id: given.into_owned(),
                events,
            }),
            (None, Some(id)) => Ok(CreatedSession {
                id: id.to_owned(),
                events,
            }),
            (None, None) => Err(Failure::Other(AgentError::broken(
                "the ADK server made a session without an id",
                client.shown(),
            ))),
        }
    }

    /// Whether the server has kept events that it was sent.
    async fn kept(&self, created: &CreatedSession) -> bool {
        if let Some(count) = created.events {
            return count > 0;
        }
        match look(self.client, self.user, &created.id).await {
            Look::There(session) => {
                let events = session.get("events").unwrap_or_default();
                events.items().is_some_and(|events| !events.is_empty())
            }
            Look::Lost | Look::Unclear => false,
        }
    }
}

/// Whether the id of a session can be part of a URL, in which dots mean another place.
fn is_usable(id: &str) -> bool {
    id.len() <= MAX_ID_BYTES && !matches!(id, "" | "." | "..")
}

fn forgotten(client: &AdkClient, error: String) -> AgentError {
    AgentError::broken(
        "the conversation with the ADK server cannot be read from the store; try again",
        format!("{}: {error}", client.shown()),
    )
}
