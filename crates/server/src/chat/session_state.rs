//! What a front end hands in to the session of an ADK agent: `state`, `stateDelta` and `customMetadata` of its requests.
//!
//! ```text
//!   state ──────▶ stored ──▶ every session of the chat begins with it; one that began with another learns of it
//!   stateDelta ─▶ stored ──▶ the next run ──▶ forgotten: the events of the run have it
//! ```

use std::collections::BTreeMap;

use adk_bridge_agents::agent::HandedIn;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::wire::json;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::request::HandedInFields;
use crate::agent_list::ServedAgent;
use crate::auth::Claims;
use crate::config::SessionState as Configured;
use crate::store::{ChatRef, Store, StoreError};

/// The key of it in the chat's state.
const KEY: &str = "handedIn";
/// The most that one of the fields may take: it is sent to the agent's server, and stored there with every change.
const MAX_BYTES: usize = 64 * 1024;
/// How deep they may be nested; servers in other languages stop at a few dozen levels.
const MAX_DEPTH: usize = 16;
/// The longest key; agents write them into their instructions.
const MAX_KEY_BYTES: usize = 128;

/// What cannot be handed in, and what to do instead.
#[derive(Debug, thiserror::Error)]
pub enum HandedInError {
    #[error("{field} must be an object")]
    NotAnObject { field: &'static str },
    #[error("{field} is larger than {MAX_BYTES} bytes; hand in less, or let the agent look it up")]
    TooLarge { field: &'static str },
    #[error("{field} is nested more than {MAX_DEPTH} levels deep; make it flatter")]
    TooDeep { field: &'static str },
    #[error("{field} has the key {key:?}; a key has 1 to {MAX_KEY_BYTES} bytes")]
    BadKey { field: &'static str, key: String },
    #[error(
        "{field} has the key {key:?}: a front end sets keys of its own chat only, without a colon and without \"adk_\" at the \
         beginning; what holds for users is set in agent.state, what holds for all in the ADK agent"
    )]
    ReservedKey { field: &'static str, key: String },
    #[error(
        "{field} has the key {key:?}, which agent.state of the configuration sets; leave it out"
    )]
    ConfiguredKey { field: &'static str, key: String },
}

/// What requests have handed in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionState {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    state: BTreeMap<String, Json>,
    /// What no run has brought to the agent yet.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    delta: BTreeMap<String, Json>,
    /// The claims of the user that the configuration names, for runs while the user is not there.
    #[serde(skip_serializing_if = "Claims::is_empty")]
    claims: Claims,
    /// For the runs that the last request causes.
    #[serde(skip)]
    custom_metadata: Option<Json>,
}

/// The fields of one request, checked.
#[derive(Debug, Default)]
pub(super) struct NewState {
    state: Option<BTreeMap<String, Json>>,
    delta: BTreeMap<String, Json>,
    custom_metadata: Option<Json>,
}

impl NewState {
    /// Checks what a request hands in to this agent.
    pub(super) fn of(fields: &HandedInFields, agent: &ServedAgent) -> Result<Self, HandedInError> {
        let keys_of = |field, value: &Option<Json>| match present(value) {
            Some(value) => keys(field, value, agent).map(Some),
            None => Ok(None),
        };
        let custom_metadata = present(&fields.custom_metadata);
        if let Some(value) = custom_metadata {
            check_value("customMetadata", value)?;
        }
        Ok(Self {
            state: keys_of("state", &fields.state)?,
            delta: keys_of("stateDelta", &fields.state_delta)?.unwrap_or_default(),
            custom_metadata: custom_metadata
                .filter(|value| !value.fields().is_empty())
                .cloned(),
        })
    }
}

impl NewState {
    /// Whether there is nothing to store.
    pub(super) fn is_empty(&self) -> bool {
        self.state.as_ref().is_none_or(BTreeMap::is_empty) && self.delta.is_empty()
    }

    /// How much is to be stored.
    pub(super) fn bytes(&self) -> usize {
        let entries = self.state.iter().flatten().chain(&self.delta);
        entries
            .map(|(key, value)| key.len() + value.text().len())
            .sum()
    }
}

impl SessionState {
    pub(super) async fn load(store: &dyn Store, chat: ChatRef<'_>) -> Result<Self, StoreError> {
        match store.state(chat, KEY).await {
            Ok(None) => Ok(Self::default()),
            // What cannot be read counts as absent.
            Ok(Some(stored)) => Ok(serde_json::from_value(stored).unwrap_or_default()),
            // A voice conversation may begin before anything is stored.
            Err(StoreError::NotFound(_)) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Adds what a request hands in. Returns whether that must be stored.
    pub(super) fn add(&mut self, new: NewState) -> Result<bool, HandedInError> {
        let mut with = self.clone();
        with.custom_metadata = new.custom_metadata;
        if let Some(state) = new.state {
            with.state = state;
        }
        with.delta.extend(new.delta);
        let bytes = Json::of(&with.delta).map_or(0, |delta| delta.text().len());
        if bytes > MAX_BYTES {
            let field = "stateDelta";
            return Err(HandedInError::TooLarge { field });
        }
        let is_news = (&with.state, &with.delta) != (&self.state, &self.delta);
        *self = with;
        Ok(is_news)
    }

    /// Notes what is known of the user, as far as the configuration names it. Returns whether that must be stored.
    pub(super) fn note_claims(&mut self, configured: &Configured, claims: &Claims) -> bool {
        let names = configured.claims();
        let named = claims.named(names.iter().map(String::as_str));
        let is_news = named != self.claims;
        self.claims = named;
        is_news
    }

    pub(super) fn claims(&self) -> &Claims {
        &self.claims
    }

    pub(super) fn forget_marks(&mut self) {
        self.custom_metadata = None;
    }

    /// What a run is handed, next to what the configuration sets.
    pub(super) fn for_run(&self, configured: BTreeMap<String, Json>) -> HandedIn {
        let mut state = self.state.clone();
        state.extend(configured);
        HandedIn {
            state,
            state_delta: self.delta.clone(),
            custom_metadata: self.custom_metadata.clone(),
        }
    }

    /// Forgets changes that a run has brought to the agent. Returns whether that must be stored.
    pub(super) fn forget(&mut self, sent: &BTreeMap<String, Json>) -> bool {
        let before = self.delta.len();
        self.delta.retain(|key, value| sent.get(key) != Some(value));
        self.delta.len() != before
    }

    pub(super) async fn store(
        &self,
        store: &dyn Store,
        chat: ChatRef<'_>,
    ) -> Result<(), StoreError> {
        let value = (*self != Self::default()).then(|| json!(self));
        let write = Box::new(|_| (value, Value::Null));
        store.update_state(chat, KEY, write).await.map(drop)
    }
}

fn present(field: &Option<Json>) -> Option<&Json> {
    field.as_ref().filter(|value| !value.is_null())
}

fn check_value(field: &'static str, value: &Json) -> Result<(), HandedInError> {
    if !value.is_object() {
        return Err(HandedInError::NotAnObject { field });
    }
    if value.text().len() > MAX_BYTES {
        return Err(HandedInError::TooLarge { field });
    }
    if json::depth(value.text().as_bytes()) > MAX_DEPTH {
        return Err(HandedInError::TooDeep { field });
    }
    Ok(())
}

/// The keys of a state. Those with a scope are not the chat's (`user:`, `app:`), or belong to ADK, which keeps credentials
/// under such names (`temp:`, `adk_`).
fn keys(
    field: &'static str,
    value: &Json,
    agent: &ServedAgent,
) -> Result<BTreeMap<String, Json>, HandedInError> {
    check_value(field, value)?;
    let mut keys = BTreeMap::new();
    for (key, value) in value.fields() {
        let key = key.into_owned();
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(HandedInError::BadKey { field, key });
        }
        if agent.session_state().sets(&key) {
            return Err(HandedInError::ConfiguredKey { field, key });
        }
        let name = key.trim_start_matches('_').to_ascii_lowercase();
        if key.contains(':') || name.starts_with("adk_") {
            return Err(HandedInError::ReservedKey { field, key });
        }
        // It was read before.
        keys.insert(key, Json::read_raw(value).unwrap_or_default());
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_kept_for_runs_without_their_user() {
        let configured: Configured =
            serde_json::from_value(json!({"mail": "{claims.email}"})).unwrap();
        let claims = Claims::new([("email", "ann@x"), ("phone", "1")]).unwrap();
        let mut state = SessionState::default();
        assert!(state.note_claims(&configured, &claims));
        assert!(!state.note_claims(&configured, &claims));
        let stored = json!(state);
        assert_eq!(stored, json!({"claims": {"email": "ann@x"}}));
        let stored: SessionState = serde_json::from_value(stored).unwrap();
        let filled = configured.of(&"ann".into(), stored.claims());
        assert_eq!(json!(filled), json!({"mail": "ann@x"}));
    }
}
