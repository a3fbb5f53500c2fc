//! The chat that a task serves, and what all chats share.

use std::sync::{Arc, PoisonError, RwLock};

use adk_bridge_agents::agent::Agent;
use adk_bridge_agents::tool::ToolSpec;
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
    page_tools: Arc<RwLock<Option<PageTools>>>,
}

/// The tools that a page declares, and those of the agent with them.
struct PageTools {
    declared: Vec<ToolSpec>,
    toolbox: Arc<Toolbox>,
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
            page_tools: Arc::default(),
        }
    }

    /// The agent of the chat.
    pub(super) fn agent(&self) -> Arc<dyn Agent> {
        self.served().agent().clone()
    }

    /// The tools of the chat's agent, and those of its page.
    pub(super) fn tools(&self) -> Arc<Toolbox> {
        let page = self.page_tools.read();
        match &*page.unwrap_or_else(PoisonError::into_inner) {
            Some(page) => page.toolbox.clone(),
            None => self.served().tools().clone(),
        }
    }

    /// The tools that the page of the chat declared.
    pub(super) fn declared_tools(&self) -> Vec<ToolSpec> {
        let page = self.page_tools.read();
        let page = page.unwrap_or_else(PoisonError::into_inner);
        page.as_ref()
            .map(|page| page.declared.clone())
            .unwrap_or_default()
    }

    /// Sets the tools that the page declared, with all tools of the chat.
    pub(super) fn set_declared_tools(&self, declared: Vec<ToolSpec>, toolbox: Arc<Toolbox>) {
        let page = (!declared.is_empty()).then_some(PageTools { declared, toolbox });
        self.set_page_tools(page);
    }

    /// Forgets them: the store has them.
    pub(super) fn release_declared_tools(&self) {
        self.set_page_tools(None);
    }

    fn set_page_tools(&self, page: Option<PageTools>) {
        let place = self.page_tools.write();
        *place.unwrap_or_else(PoisonError::into_inner) = page;
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
