//! Credentials that users grant to remote agents: kept sealed as long as their question is open, and handed to the agent.
//!
//! ```text
//!   the agent asks ──▶ kept: its configuration ──▶ the user grants ──▶ kept: the answer ──▶ sent to the agent, forgotten
//!                        │  link (in the message), state (at the provider)
//!                        └─ refused, expired, superseded, deleted ──▶ forgotten
//! ```
//!
//! Links and states are tokens that name user, chat and call. Only this server can make or read them. A state counts once,
//! because the question that it names is answered once.

pub(crate) mod fuzzing;
mod login;
mod seal;

use std::collections::HashMap;
use std::sync::Arc;

use adk_bridge_protocol::calls::{CredentialRequest, GrantBy};
use adk_bridge_protocol::id::{CallId, ChatId, UserId};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use login::{Callback, GivenSecret, Login};
pub use seal::{KEY_FILE, Seal};

use crate::files::address::Base;
use crate::store::{ChatRef, DataDir, Entity, Store, StoreError};

/// Where a user begins, and where a provider sends the user back to.
pub const AUTHORIZE: &str = "/api/oauth/authorize";
pub const CALLBACK: &str = "/api/oauth/callback";

/// The name under which a chat's state has them.
const STATE_KEY: &str = "adk-bridge/credentials";
/// What the key is derived for: `cluster.key` serves other purposes, too.
const PURPOSE: &str = "adk-bridge: credentials that users grant, 1";
/// What tokens are for: one cannot be used as another.
const LINK: &str = "link";
const STATE: &str = "state";

/// Keeps what questions need, and what users grant.
pub struct Credentials {
    store: Arc<dyn Store>,
    seal: Arc<Seal>,
}

/// The question that a token is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub user: UserId,
    pub chat: ChatId,
    pub call: CallId,
    pub expires: Timestamp,
}

/// A question that has just been asked.
pub struct Asked {
    call: CallId,
    login: Login,
}

/// What is kept of one question.
#[derive(Serialize, Deserialize)]
struct Kept {
    login: Login,
    /// What the agent is to be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<Value>,
}

impl Credentials {
    /// Reads the key from the data directory, which gets one at the first start.
    pub fn open(data: &DataDir, store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let seal = Arc::new(Seal::open(data)?);
        Ok(Self { store, seal })
    }

    /// Derives the key from a secret that several bridges share, so that each opens what another has kept.
    pub fn shared(secret: &str, store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let seal = Arc::new(Seal::for_purpose(secret.as_bytes(), PURPOSE)?);
        Ok(Self { store, seal })
    }

    /// The same, written through another store: that of a chat's owner.
    #[must_use]
    pub fn written_through(&self, store: Arc<dyn Store>) -> Self {
        let seal = self.seal.clone();
        Self { store, seal }
    }

    /// A new question, and how the user answers it; `None` if the agent asks for something that a user cannot grant here.
    pub fn ask(
        &self,
        chat: ChatRef<'_>,
        base: &Base,
        request: &CredentialRequest<'_>,
    ) -> Option<(Asked, GrantBy)> {
        let login = Login::of(request.args)?;
        let grant = match login.has_page() {
            false => GrantBy::Secret,
            true => {
                let question = Question {
                    user: chat.user.clone(),
                    chat: chat.id.clone(),
                    call: request.call.clone(),
                    expires: request.expires,
                };
                let token = self.token(LINK, &question)?;
                GrantBy::Link(base.url(&format!("{AUTHORIZE}?request={token}")))
            }
        };
        let call = request.call.clone();
        Some((Asked { call, login }, grant))
    }

    /// Keeps what a question needs until it is answered.
    pub async fn keep(&self, chat: ChatRef<'_>, asked: Asked) -> Result<(), StoreError> {
        let kept = Kept {
            login: asked.login,
            answer: None,
        };
        self.put(chat, &asked.call, &kept).await
    }

    /// The question that a link is for.
    pub fn of_link(&self, token: &str) -> Option<Question> {
        self.question(LINK, token)
    }

    /// The question that a provider's answer is for.
    pub fn of_state(&self, token: &str) -> Option<Question> {
        self.question(STATE, token)
    }

    /// The `state` that a provider is sent.
    pub fn state(&self, question: &Question) -> Option<String> {
        self.token(STATE, question)
    }

    /// What a question that is open needs.
    pub async fn login(
        &self,
        chat: ChatRef<'_>,
        call: &CallId,
    ) -> Result<Option<Login>, StoreError> {
        let kept = self.get(chat, call).await?;
        Ok(kept.map(|kept| kept.login))
    }

    /// Keeps what the agent is to be sent. Returns whether the question is known.
    pub async fn answer(
        &self,
        chat: ChatRef<'_>,
        call: &CallId,
        answer: Value,
    ) -> Result<bool, StoreError> {
        let Some(mut kept) = self.get(chat, call).await? else {
            return Ok(false);
        };
        kept.answer = Some(answer);
        self.put(chat, call, &kept).await?;
        Ok(true)
    }

    /// Takes what the agent is to be sent: nobody has it any more after this.
    pub async fn take_answer(
        &self,
        chat: ChatRef<'_>,
        call: &CallId,
    ) -> Result<Option<Json>, StoreError> {
        let kept = self.get(chat, call).await?;
        self.forget(chat, std::slice::from_ref(call)).await?;
        Ok(kept.and_then(|kept| kept.answer).map(Json::from))
    }

    /// Forgets questions that are closed.
    pub async fn forget(&self, chat: ChatRef<'_>, calls: &[CallId]) -> Result<(), StoreError> {
        self.retain(chat, |call| !calls.iter().any(|gone| *gone == *call))
            .await
    }

    /// Forgets all questions but those that are open.
    pub async fn forget_others(
        &self,
        chat: ChatRef<'_>,
        open: &[CallId],
    ) -> Result<(), StoreError> {
        self.retain(chat, |call| open.iter().any(|open| *open == *call))
            .await
    }

    async fn retain(
        &self,
        chat: ChatRef<'_>,
        keep: impl Fn(&str) -> bool + Send,
    ) -> Result<(), StoreError> {
        let change = Box::new(move |before: Option<Value>| {
            let mut all = sealed_in(before);
            all.retain(|call, _| keep(call));
            ((!all.is_empty()).then(|| json!(all)), Value::Null)
        });
        match self.store.update_state(chat, STATE_KEY, change).await {
            // With the chat, everything of it is gone.
            Err(StoreError::NotFound(Entity::Chat)) => Ok(()),
            done => done.map(drop),
        }
    }

    async fn put(&self, chat: ChatRef<'_>, call: &CallId, kept: &Kept) -> Result<(), StoreError> {
        let text = serde_json::to_vec(kept).map_err(|error| StoreError::Io {
            doing: "writing a credential",
            why: Box::new(error),
        })?;
        let sealed = self.seal.close(&purpose(chat, call), &text)?;
        let call = call.as_str().to_owned();
        let change = Box::new(move |before: Option<Value>| {
            let mut all = sealed_in(before);
            all.insert(call, sealed);
            (Some(json!(all)), Value::Null)
        });
        let stored = self.store.update_state(chat, STATE_KEY, change).await;
        stored.map(drop)
    }

    async fn get(&self, chat: ChatRef<'_>, call: &CallId) -> Result<Option<Kept>, StoreError> {
        let name = call.as_str().to_owned();
        let change = Box::new(move |before: Option<Value>| {
            let sealed = before.as_ref().and_then(|all| all.get(&name)).cloned();
            (before, sealed.unwrap_or_default())
        });
        let sealed = match self.store.update_state(chat, STATE_KEY, change).await {
            Err(StoreError::NotFound(Entity::Chat)) => return Ok(None),
            sealed => sealed?,
        };
        let text = (sealed.as_str()).and_then(|it| self.seal.open_text(&purpose(chat, call), it));
        // What cannot be read was sealed with another key: its question cannot be answered any more.
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    fn token(&self, what: &str, question: &Question) -> Option<String> {
        let text = serde_json::to_vec(question).ok()?;
        self.seal.close(what, &text).ok()
    }

    fn question(&self, what: &str, token: &str) -> Option<Question> {
        serde_json::from_slice(&self.seal.open_text(what, token)?).ok()
    }
}

impl Asked {
    pub fn call(&self) -> &CallId {
        &self.call
    }
}

/// What a sealed text is for: that of another question, or of another user, cannot take its place.
fn purpose(chat: ChatRef<'_>, call: &CallId) -> String {
    json!(["credential", chat.user, chat.id, call]).to_string()
}

fn sealed_in(state: Option<Value>) -> HashMap<String, String> {
    state
        .and_then(|all| serde_json::from_value(all).ok())
        .unwrap_or_default()
}
