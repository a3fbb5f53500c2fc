//! What is stored for an agent with a session: its id, and the past in case the agent loses it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adk_bridge_agents::agent::{BoxFuture, PastMessage, SessionStore};
use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::message::{Message, Role};
use serde_json::{Value, json};

use super::attachments;
use super::context::ChatContext;
use super::loaded::{FilePurpose, FileRoom};
use crate::store::{ChatRef, Store, StoreError};

/// The key of the session in the chat's state.
const KEY: &str = "adkSession";

/// The session of a chat with its generation, kept between runs to avoid reading the store.
#[derive(Debug, Clone, Default)]
pub(super) struct RememberedSession(Arc<Mutex<Option<(u64, Value)>>>);

impl RememberedSession {
    fn set(&self, generation: u64, session: &Value) {
        *self.lock() = Some((generation, session.clone()));
    }

    fn of(&self, generation: u64) -> Option<Value> {
        let remembered = self.lock();
        let (known, session) = remembered.as_ref()?;
        (*known == generation).then(|| session.clone())
    }

    /// Poisoning is ignored: no critical section can leave the value inconsistent.
    fn lock(&self) -> MutexGuard<'_, Option<(u64, Value)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session of one chat and its past, for one run.
pub(super) struct ChatSessionStore {
    context: ChatContext,
    remembered: RememberedSession,
    generation: u64,
    /// The new message, where the past ends. Without one, the new input belongs to the last message.
    before: Option<MessageId>,
    /// How many messages the past has: what is written meanwhile does not belong to it.
    most: usize,
    /// What the files of the past take while the session is restored.
    room: Mutex<Option<FileRoom>>,
}

impl ChatSessionStore {
    pub(super) fn new(
        context: ChatContext,
        remembered: RememberedSession,
        generation: u64,
    ) -> Self {
        Self {
            context,
            remembered,
            generation,
            before: None,
            most: 0,
            room: Mutex::default(),
        }
    }

    /// Sets the past: at most this many messages, and none from `before` on.
    pub(super) fn with_past(self, before: Option<MessageId>, most: usize) -> Self {
        Self {
            before,
            most,
            ..self
        }
    }

    /// Sets the room that the past takes.
    fn set_room(&self, room: Option<FileRoom>) {
        // Poisoning is ignored: the room is only replaced.
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = room;
    }

    /// Stores the session that is remembered.
    pub(super) async fn store_remembered(&self) -> Result<(), String> {
        match self.remembered.of(self.generation) {
            Some(session) => self.set_session(session).await,
            None => Ok(()),
        }
    }
}

/// Takes all sessions that a chat has had, and forgets them.
pub(super) async fn take_sessions(store: &dyn Store, chat: ChatRef<'_>) -> Vec<Value> {
    let take = Box::new(|stored: Option<Value>| (None, stored.unwrap_or_default()));
    match store.update_state(chat, KEY, take).await {
        Ok(stored) => all_of(stored),
        Err(error) => {
            tracing::warn!(chat = %chat.id, %error, "the sessions of chat {} cannot be read", chat.id);
            Vec::new()
        }
    }
}

/// Whether both are the same session of the agent, which may note more about it with time.
fn is_same(one: &Value, other: &Value) -> bool {
    let named = |session: &Value| session["id"].as_str().map(str::to_owned);
    one == other || named(one).is_some() && named(one) == named(other)
}

fn all_of(mut stored: Value) -> Vec<Value> {
    let mut sessions = match stored["earlier"].take() {
        Value::Array(earlier) => earlier,
        _ => Vec::new(),
    };
    if stored["session"].is_object() {
        sessions.push(stored["session"].take());
    }
    sessions
}

impl SessionStore for ChatSessionStore {
    fn session(&self) -> BoxFuture<'_, Result<Option<Value>, String>> {
        Box::pin(async {
            if let Some(session) = self.remembered.of(self.generation) {
                return Ok(Some(session));
            }
            let read = Box::new(|stored: Option<Value>| {
                let found = stored.clone().unwrap_or_default();
                (stored, found)
            });
            let stored = self
                .context
                .store
                .update_state(self.context.chat(), KEY, read)
                .await;
            let mut stored = match stored {
                // A voice conversation may begin before anything is stored.
                Err(StoreError::NotFound(_)) => return Ok(None),
                stored => stored.map_err(|error| error.to_string())?,
            };
            if stored["generation"] != json!(self.generation) {
                return Ok(None);
            }
            let session = stored["session"].take();
            self.remembered.set(self.generation, &session);
            Ok(Some(session))
        })
    }

    fn set_session(&self, session: Value) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            // The agent has the past.
            self.set_room(None);
            self.remembered.set(self.generation, &session);
            let write = Box::new(|stored: Option<Value>| {
                // Earlier sessions are kept too, so that they can be deleted with the chat.
                let mut earlier = stored.map(all_of).unwrap_or_default();
                earlier.retain(|other| !is_same(other, &session));
                let stored = json!({
                    "generation": self.generation, "session": session, "earlier": earlier,
                });
                (Some(stored), Value::Null)
            });
            match self
                .context
                .store
                .update_state(self.context.chat(), KEY, write)
                .await
            {
                Ok(_) | Err(StoreError::NotFound(_)) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    fn past(&self) -> BoxFuture<'_, Result<Vec<PastMessage>, String>> {
        Box::pin(async {
            let text = |error: StoreError| error.to_string();
            let stored = match self.context.store.messages(self.context.chat()).await {
                Err(StoreError::NotFound(_)) => return Ok(Vec::new()),
                stored => stored.map_err(text)?,
            };
            let mut messages: Vec<_> = stored
                .into_iter()
                .map(|stored| Cow::<Message>::Owned(stored.message))
                .take(self.most)
                .take_while(|message| Some(&message.id) != self.before.as_ref())
                .collect();
            if messages.is_empty() {
                return Ok(Vec::new());
            }
            let room =
                attachments::inline(&self.context, &mut messages, FilePurpose::Restoring).await;
            self.set_room(Some(room));
            // The events of a message belong to the generation in which the message was made.
            let mut said: HashMap<MessageId, Vec<String>> = HashMap::new();
            for generation in 0..=self.generation {
                let events = self
                    .context
                    .store
                    .events(self.context.chat(), generation)
                    .await;
                for event in events.map_err(text)? {
                    said.entry(event.message_id).or_default().push(event.body);
                }
            }
            Ok(messages
                .into_iter()
                .map(Cow::into_owned)
                .filter(|message| message.role != Role::System)
                .map(|message| PastMessage {
                    said: said.remove(&message.id).unwrap_or_default(),
                    message,
                })
                .collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_remembered_for_its_generation_only() {
        let (remembered, session) = (RememberedSession::default(), json!({"id": "s"}));
        assert_eq!(remembered.of(0), None);
        remembered.set(1, &session);
        assert_eq!(remembered.of(1), Some(session));
        assert_eq!((remembered.of(0), remembered.of(2)), (None, None));
    }
}
