//! The chat that a task serves, and what all chats share.

use std::sync::{Arc, PoisonError, RwLock};

use adk_bridge_agents::agent::Agent;
use adk_bridge_protocol::id::{ChatId, UserId};

use super::Shared;
use super::readers::Readers;
use super::toolbox::Toolbox;
use super::unread::UnreadAnswers;
use crate::agent_list::ServedAgent;
use crate::store::ChatRef;

/// One chat of one user, and what all chats share.
#[derive(Clone)]
pub(super) struct ChatContext {
    shared: Arc<Shared>,
    user: Arc<UserId>,
    chat_id: Arc<ChatId>,
    agent: Arc<RwLock<AgentOfChat>>,
}

/// How far the agent of a chat is decided; `task/agent.rs` does it.
#[derive(Clone)]
pub(super) enum AgentOfChat {
    /// The next message decides; this one would answer it.
    Free(Arc<ServedAgent>),
    Kept(Arc<ServedAgent>),
    /// The chat has an agent that is not there. It is only loaded to be stopped.
    Gone {
        id: String,
    },
}

impl ChatContext {
    pub(super) fn new(shared: Arc<Shared>, user: &UserId, chat_id: &ChatId) -> Self {
        Self {
            shared,
            user: Arc::new(user.clone()),
            chat_id: Arc::new(chat_id.clone()),
            // The task sets it when it knows, and nothing runs before.
            agent: Arc::new(RwLock::new(AgentOfChat::Free(ServedAgent::nobody()))),
        }
    }

    /// The agent of the chat.
    pub(super) fn agent(&self) -> Arc<dyn Agent> {
        self.served().agent().clone()
    }

    /// The tools of the chat's agent.
    pub(super) fn tools(&self) -> Arc<Toolbox> {
        self.served().tools().clone()
    }

    pub(super) fn served(&self) -> Arc<ServedAgent> {
        match self.agent_of_chat() {
            AgentOfChat::Free(agent) | AgentOfChat::Kept(agent) => agent,
            AgentOfChat::Gone { .. } => ServedAgent::nobody(),
        }
    }

    pub(super) fn agent_of_chat(&self) -> AgentOfChat {
        // Poisoning is ignored: the value is replaced whole.
        let agent = self.agent.read().unwrap_or_else(PoisonError::into_inner);
        agent.clone()
    }

    pub(super) fn set_agent(&self, agent: AgentOfChat) {
        *self.agent.write().unwrap_or_else(PoisonError::into_inner) = agent;
    }

    /// How the store names the chat.
    pub(super) fn chat(&self) -> ChatRef<'_> {
        ChatRef {
            user: &self.user,
            id: &self.chat_id,
        }
    }

    /// An empty set of readers for the chat.
    pub(super) fn new_readers(&self) -> Readers {
        let unread = UnreadAnswers::new(self.capacity.unread.clone(), self.user.clone());
        Readers::new(self.metrics.clone(), unread)
    }

    pub(super) fn user(&self) -> &UserId {
        &self.user
    }

    pub(super) fn chat_id(&self) -> &ChatId {
        &self.chat_id
    }
}

impl std::ops::Deref for ChatContext {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}
