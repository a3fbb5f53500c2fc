//! The chat that a task serves, and what all chats share.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use adk_bridge_agents::agent::Agent;
use adk_bridge_agents::tool::ToolSpec;
use adk_bridge_protocol::id::{ChatId, UserId};

use super::Shared;
use super::error::ChatError;
use super::readers::Readers;
use super::toolbox::Toolbox;
use super::unread::UnreadAnswers;
use crate::agent_list::ServedAgent;
use crate::cluster::Owned;
use crate::metrics::FencedBy;
use crate::store::{ChatRef, Store, StoreError};

/// One chat of one user, and what all chats share.
#[derive(Clone)]
pub(super) struct ChatContext {
    shared: Arc<Shared>,
    /// The store that all chats share; in a cluster, it refuses what an old owner would write to this one.
    pub(super) store: Arc<dyn Store>,
    owned: Option<Owned>,
    /// Whether the store has refused a write because the chat has another owner.
    fenced: Arc<AtomicBool>,
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
    /// `owned`: how this replica owns the chat, in a cluster.
    pub(super) fn new(
        shared: Arc<Shared>,
        user: &UserId,
        chat_id: &ChatId,
        owned: Option<Owned>,
    ) -> Self {
        let chat = ChatRef { user, id: chat_id };
        let store = match &owned {
            Some(owned) => shared.store.clone().fenced(chat, owned.epoch()),
            None => shared.store.clone(),
        };
        Self {
            shared,
            store,
            owned,
            fenced: Arc::default(),
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

    /// Whether the task may still store and tell anything. In a cluster, another replica may have the chat.
    pub(super) fn is_held(&self) -> bool {
        match &self.owned {
            Some(owned) => !self.fenced.load(Relaxed) && owned.is_held(),
            None => true,
        }
    }

    /// Whether another replica may take the chat over.
    pub(super) fn is_shared(&self) -> bool {
        self.owned.is_some()
    }

    /// The name of this replica, in a cluster.
    pub(super) fn replica(&self) -> Option<&str> {
        self.owned.as_ref().map(Owned::replica)
    }

    /// Gives the chat back: from here on nothing may be stored or sent.
    pub(super) async fn release(&self) {
        if let (Some(cluster), Some(owned)) = (&self.shared.cluster, &self.owned) {
            cluster.release(self.chat(), owned).await;
        }
    }

    /// Who noticed that the chat may have another owner.
    pub(super) fn fenced_by(&self) -> FencedBy {
        match self.fenced.load(Relaxed) {
            true => FencedBy::Store,
            false => FencedBy::Lease,
        }
    }

    /// Notes that the store has refused a write, if that is because the chat has another owner.
    pub(super) fn note_refused_write(&self, error: &StoreError) {
        if matches!(error, StoreError::Fenced) {
            self.fenced.store(true, Relaxed);
        }
    }

    /// Refuses what was just asked if the store has refused to write it, because the chat has another owner.
    pub(super) fn still_owned(&self) -> Result<(), ChatError> {
        match self.fenced.load(Relaxed) {
            true => Err(ChatError::Fenced),
            false => Ok(()),
        }
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
        let life = self.owned.as_ref().map(|owned| owned.life().clone());
        Readers::new(self.metrics.clone(), unread).of_life(life)
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
