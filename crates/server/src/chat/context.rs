//! The chat that a task serves, and what all chats share.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use adk_bridge_agents::agent::Agent;
use adk_bridge_agents::tool::ToolSpec;
use adk_bridge_protocol::id::{ChatId, UserId};

use super::Shared;
use super::error::ChatError;
use super::now;
use super::readers::Readers;
use super::toolbox::Toolbox;
use super::trace::ChatTrace;
use super::unread::UnreadAnswers;
use crate::agent_list::ServedAgent;
use crate::cluster::{Epoch, Owned};
use crate::credentials::Credentials;
use crate::files::Files;
use crate::metrics::FencedBy;
use crate::store::{ChatRef, Store, StoreError};

/// One chat of one user, and what all chats share.
#[derive(Clone)]
pub(super) struct ChatContext {
    shared: Arc<Shared>,
    /// The store that all chats share; in a cluster, it refuses what an old owner would write to this one.
    pub(super) store: Arc<dyn Store>,
    /// Both write through that store.
    pub(super) files: Arc<Files>,
    pub(super) credentials: Arc<Credentials>,
    owned: Option<Owned>,
    /// Whether the store has refused a write because the chat has another owner.
    fenced: Arc<AtomicBool>,
    user: Arc<UserId>,
    chat_id: Arc<ChatId>,
    agent: Arc<RwLock<AgentOfChat>>,
    trace: ChatTrace,
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
        let (store, files, credentials) = match &owned {
            Some(owned) => {
                let store = shared.store.clone().fenced(chat, owned.epoch());
                let files = shared.files.written_through(store.clone());
                let credentials = shared.credentials.written_through(store.clone());
                (store, Arc::new(files), Arc::new(credentials))
            }
            None => (
                shared.store.clone(),
                shared.files.clone(),
                shared.credentials.clone(),
            ),
        };
        Self {
            trace: ChatTrace::new(shared.tracer.clone()),
            shared,
            store,
            files,
            credentials,
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

    /// The trace that its turns belong to.
    pub(super) fn trace(&self) -> &ChatTrace {
        &self.trace
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

    /// The epoch of the chat, in a cluster.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.owned.as_ref().map(Owned::epoch)
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
            self.metrics.cluster().fenced();
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

    /// Refuses what would begin although the budget of the user is used up. What has begun goes on.
    pub(super) async fn check_budget(&self) -> Result<(), ChatError> {
        let agent = self.served();
        let checked = self.spending.check(self.user(), agent.id(), now());
        match checked.await? {
            Some(exceeded) => Err(ChatError::OverBudget(Box::new(exceeded))),
            None => Ok(()),
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

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::time::Duration;

    use adk_bridge_protocol::calls::CredentialRequest;
    use adk_bridge_protocol::id::CallId;
    use adk_bridge_protocol::time::Timestamp;
    use adk_bridge_testkit::postgres::{Postgres, database_of};
    use serde_json::json;

    use super::*;
    use crate::chat::tests::shared;
    use crate::cluster::{Cluster, Peer};
    use crate::credentials::Asked;
    use crate::files::address::Base;
    use crate::files::{FileDescription, FileError};
    use crate::store::DataDir;
    use crate::store::postgres::{PostgresConfig, PostgresStore};

    #[tokio::test]
    async fn an_owner_of_before_keeps_neither_files_nor_credentials() {
        let url = Postgres::shared().database();
        let directory = tempfile::tempdir().unwrap();
        let (user, chat_id) = (UserId::from("alice"), ChatId::from("chat-1"));
        let chat = ChatRef {
            user: &user,
            id: &chat_id,
        };
        let config = PostgresConfig {
            url: &url,
            connections: 4,
            prepared_statements: None,
        };
        let store = Arc::new(PostgresStore::open(config).await.unwrap());
        store.create_chat(chat, now()).await.unwrap();
        let data = DataDir::open(directory.path()).unwrap();
        let shared = Arc::new(shared(&data, store.clone()).await);
        let owner = async |name: &str| {
            let me = Peer {
                name: name.to_owned(),
                address: format!("http://{name}:8080").parse().unwrap(),
            };
            let lease = Duration::from_secs(3_600);
            let cluster = Cluster::join(store.clone(), me, lease, Vec::new(), Arc::default());
            let owned = cluster.await.unwrap().claim(chat).await.unwrap().unwrap();
            ChatContext::new(shared.clone(), &user, &chat_id, Some(owned))
        };

        let zombie = owner("a").await;
        // It is paused here, for so long that it is dead to the others.
        let buried = "UPDATE adk_bridge.replicas SET heartbeat = heartbeat - interval '2 hours'";
        Postgres::shared().sql(database_of(&url), buried);
        let owner = owner("b").await;
        let call = CallId::from("call-1");
        let kept = owner.credentials.keep(chat, asked(&owner, &call));
        kept.await.unwrap();
        let granted = json!({"granted": true});
        assert!(
            (owner.credentials.answer(chat, &call, granted.clone()).await).is_ok_and(|known| known)
        );

        let (files, credentials) = (&zombie.files, &zombie.credentials);
        let made = files.prepare(Some("text/plain"), b"text".to_vec()).unwrap();
        let described = FileDescription::default();
        let content = futures_util::stream::iter([Ok(bytes::Bytes::from_static(b"text"))]);
        let other = asked(&zombie, &CallId::from("call-2"));
        let calls = std::slice::from_ref(&call);
        let refused = [
            ("forget others", credentials.forget_others(chat, &[]).await),
            ("forget", credentials.forget(chat, calls).await),
            ("take", credentials.take_answer(chat, &call).await.map(drop)),
            ("keep", credentials.keep(chat, other).await),
            (
                "answer",
                credentials.answer(chat, &call, json!(1)).await.map(drop),
            ),
            (
                "file",
                of_store(files.store(chat, &made, None, now()).await),
            ),
            (
                "recording",
                of_store(files.save(chat, described, content, now()).await),
            ),
        ];
        for (what, result) in refused {
            assert!(
                matches!(result, Err(StoreError::Fenced)),
                "{what}: {result:?}"
            );
        }
        assert!(owner.files.row(&user, &made.id).await.is_err());
        let taken = owner.credentials.take_answer(chat, &call).await.unwrap();
        assert_eq!(taken.unwrap().to_value(), granted);
    }

    fn asked(context: &ChatContext, call: &CallId) -> Asked {
        let args = json!({"functionCallId": "c1", "authConfig": {
            "authScheme": {"type": "apiKey", "in": "header", "name": "x-key"},
            "rawAuthCredential": {"authType": "apiKey"},
            "credentialKey": "k",
        }});
        let request = CredentialRequest {
            call,
            args: &args.into(),
            expires: Timestamp::default(),
        };
        let asked = context
            .credentials
            .ask(context.chat(), &Base::default(), &request);
        asked.unwrap().0
    }

    fn of_store<T>(result: Result<T, FileError>) -> Result<(), StoreError> {
        match result {
            Ok(_) => Ok(()),
            Err(FileError::Store(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }
}
