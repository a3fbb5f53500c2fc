//! What a remote agent is told again when it has forgotten a chat: the session that it had, and the past.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use adk_bridge_agents::agent::{Memory, Past, Recall};
use adk_bridge_protocol::message::{Message, Role};
use serde_json::{Value, json};

use super::kept;
use crate::files::Files;
use crate::store::{ChatRef, Store};

/// Where the chat's state holds the session.
const KEY: &str = "adkSession";

/// The session of a chat with its generation, as the task remembers it between runs.
pub(super) type Known = Arc<Mutex<Option<(u64, Value)>>>;

/// The memory of one chat, for one run.
pub(super) struct ChatMemory {
    pub(super) store: Arc<dyn Store>,
    pub(super) files: Arc<Files>,
    pub(super) user: String,
    pub(super) chat_id: String,
    pub(super) generation: u64,
    /// The message that is new: the past ends before it. Without one the news belong to the last message.
    pub(super) before: Option<String>,
    pub(super) known: Known,
}

impl ChatMemory {
    fn chat(&self) -> ChatRef<'_> {
        ChatRef {
            user: &self.user,
            id: &self.chat_id,
        }
    }

    fn note(&self, session: &Value) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((self.generation, session.clone()));
    }

    fn noted(&self) -> Option<Value> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (generation, session) = known.as_ref()?;
        (*generation == self.generation).then(|| session.clone())
    }
}

/// All sessions that a chat has had, and forgets with this.
pub(super) async fn take_sessions(store: &dyn Store, chat: ChatRef<'_>) -> Vec<Value> {
    let take = Box::new(|kept: Option<Value>| (None, kept.unwrap_or_default()));
    match store.update_state(chat, KEY, take).await {
        Ok(kept) => all_of(kept),
        Err(error) => {
            tracing::warn!(chat = %chat.id, %error, "the sessions of chat {} cannot be read", chat.id);
            Vec::new()
        }
    }
}

fn all_of(mut kept: Value) -> Vec<Value> {
    let mut sessions = match kept["earlier"].take() {
        Value::Array(earlier) => earlier,
        _ => Vec::new(),
    };
    if kept["session"].is_object() {
        sessions.push(kept["session"].take());
    }
    sessions
}

impl Memory for ChatMemory {
    fn session(&self) -> Recall<'_, Option<Value>> {
        Box::pin(async {
            if let Some(session) = self.noted() {
                return Ok(Some(session));
            }
            let read = Box::new(|kept: Option<Value>| {
                let found = kept.clone().unwrap_or_default();
                (kept, found)
            });
            let mut kept = self
                .store
                .update_state(self.chat(), KEY, read)
                .await
                .map_err(|error| error.to_string())?;
            if kept["generation"] != json!(self.generation) {
                return Ok(None);
            }
            let session = kept["session"].take();
            self.note(&session);
            Ok(Some(session))
        })
    }

    fn set_session(&self, session: Value) -> Recall<'_, ()> {
        Box::pin(async move {
            self.note(&session);
            let write = Box::new(|kept: Option<Value>| {
                // Those that it had before are named too, so that they can be deleted with the chat.
                let mut earlier = kept.map(all_of).unwrap_or_default();
                earlier.retain(|other| *other != session);
                let kept = json!({
                    "generation": self.generation, "session": session, "earlier": earlier,
                });
                (Some(kept), Value::Null)
            });
            self.store
                .update_state(self.chat(), KEY, write)
                .await
                .map(drop)
                .map_err(|error| error.to_string())
        })
    }

    fn past(&self) -> Recall<'_, Vec<Past>> {
        Box::pin(async {
            let text = |error: crate::store::StoreError| error.to_string();
            let stored = self.store.messages(self.chat()).await.map_err(text)?;
            let mut messages: Vec<_> = stored
                .into_iter()
                .map(|stored| Cow::<Message>::Owned(stored.message))
                .take_while(|message| Some(&message.id) != self.before.as_ref())
                .collect();
            if messages.is_empty() {
                return Ok(Vec::new());
            }
            kept::inline(&self.files, self.chat(), &mut messages).await;
            // What was said in a message was said in the generation that the message was made in.
            let mut said: HashMap<String, Vec<String>> = HashMap::new();
            for generation in 0..=self.generation {
                let events = self.store.events(self.chat(), generation).await;
                for event in events.map_err(text)? {
                    said.entry(event.message_id).or_default().push(event.body);
                }
            }
            Ok(messages
                .into_iter()
                .map(Cow::into_owned)
                .filter(|message| message.role != Role::System)
                .map(|message| Past {
                    said: said.remove(&message.id).unwrap_or_default(),
                    message,
                })
                .collect())
        })
    }
}
