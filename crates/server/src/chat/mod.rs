//! Chats: one task for each chat in use, found by user and id.

mod agent_runs;
mod attachments;
mod branch;
mod checkpoints;
mod command;
mod context;
mod conversation;
mod declared_tools;
mod engine;
pub mod error;
mod expiring;
pub(crate) mod fuzzing;
mod holds;
mod inlining;
mod late_answers;
mod listing;
pub mod live;
pub mod loaded;
mod owning;
mod plan;
mod policy;
pub mod readers;
mod ready;
pub mod request;
mod search;
mod session_state;
mod session_store;
mod task;
mod tool_result;
mod tool_runs;
pub mod toolbox;
mod trace;
mod turn;
mod unread;
mod user_answers;
pub mod user_data;
mod voice;
mod waiting;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use adk_bridge_agents::agent::{ChatKey, DeletedChat, MemoryModel};
use adk_bridge_agents::trace_context::TraceContext;
use adk_bridge_protocol::event::REQUEST_CREDENTIAL;
use adk_bridge_protocol::id::{CallId, ChatId, UserId};
use adk_bridge_protocol::message::{Message, Role};
use adk_bridge_protocol::time::Timestamp;
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{FutureExt as _, stream};
use tokio::sync::{mpsc, oneshot};

pub use crate::store::{AuditFilter, AuditPage, MAX_AUDIT_ROWS};
pub use checkpoints::Checkpoints;
pub use command::{Command, CredentialDecision};
pub use error::{ChatError, NotReady};
pub use listing::{Listing, RemainingMessages};
pub use owning::ClusterTasks;
pub use ready::Ready;
pub use task::new_id;

use crate::admission::{Admission, TurnStart};
use crate::agent_list::{Agents, ServedAgent};
use crate::audit::{self, Exported};
use crate::budget::Budget;
use crate::cluster::{Cluster, Owned};
use crate::config::Current;
use crate::credentials::{Credentials, Login, Question};
use crate::files::address::Addresses;
use crate::files::{ContentStream, FileDescription, Files};
use crate::known_users::KnownUsers;
use crate::metrics::{Metrics, OwnerChange};
use crate::spending::{BudgetState, Spending};
use crate::store::{
    AuditRow, Chat, ChatCursor, ChatRef, FileRow, ListedChat, MAX_LISTED, Store, StoreError,
    title_from,
};
use crate::telemetry::{Tracer, in_trace};
use command::Left;
use live::{LiveAsk, LiveCommand};
use loaded::LoadedMemory;
use owning::{Claims, TriedChats};
use ready::Readiness;
use request::ChatRequest;
use task::Task;

/// How many requests may wait for one chat; only a broken client sends more.
const COMMANDS: usize = 32;

/// How many rows of the audit lose their text at once: others write in between.
const ERASED_AT_ONCE: u32 = 1_000;

/// Some chats of a user, most recently changed first.
pub struct ChatPage {
    pub chats: Vec<ListedChat>,
    /// The end of these, if there may be more after it.
    pub next: Option<(Timestamp, ChatId)>,
}

/// What all chats share.
pub struct Shared {
    pub store: Arc<dyn Store>,
    pub agents: Arc<Agents>,
    pub users: Arc<KnownUsers>,
    pub files: Arc<Files>,
    pub addresses: Arc<Addresses>,
    pub credentials: Arc<Credentials>,
    pub checkpoints: Arc<Checkpoints>,
    pub metrics: Arc<Metrics>,
    pub tracer: Tracer,
    pub capacity: Capacity,
    /// What users have used of agents.
    pub spending: Spending,
    /// What the configuration says about chats; a reload may change it.
    pub settings: Current<ChatSettings>,
    /// The other replicas, if there may be any.
    pub cluster: Option<Arc<Cluster>>,
}

/// What all chats together may use.
pub struct Capacity {
    pub admission: Arc<Admission>,
    /// The memory of all chats.
    pub loaded: Arc<LoadedMemory>,
    /// Counts the bytes of unread answers.
    pub unread: Arc<Budget>,
}

/// What the configuration says about chats.
#[derive(Debug, Clone, Copy)]
pub struct ChatSettings {
    pub keep_recordings: bool,
    pub tool_timeout: Duration,
    /// How long one turn may take.
    pub turn_time: Duration,
    /// How many files the messages of one request may add to a chat.
    pub files_per_request: usize,
}

/// The chats that are in use.
#[derive(Clone)]
pub struct Chats {
    shared: Arc<Shared>,
    tasks: Arc<Mutex<Tasks>>,
    /// Set when the server stops: chats end, and no new one begins.
    closing: Arc<AtomicBool>,
    readiness: Arc<Readiness>,
    claims: Arc<Claims>,
}

/// The tasks by user and chat.
type Tasks = HashMap<(UserId, ChatId), mpsc::Sender<Box<Command>>>;

impl Chats {
    pub fn new(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
            tasks: Arc::default(),
            closing: Arc::default(),
            readiness: Arc::default(),
            claims: Arc::default(),
        }
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Continues what a restart interrupted, and handles deadlines that passed meanwhile.
    pub async fn boot(&self) -> Result<usize, StoreError> {
        if self.shared.cluster.is_some() {
            return self.take_over(&mut TriedChats::default()).await;
        }
        let open = self.shared.store.open_replies().await?;
        for reply in &open {
            let task = self.task_or_new(&reply.user, &reply.chat_id, None);
            // A task with a full queue is awake already.
            let _ = task.try_send(Box::new(Command::Boot));
        }
        Ok(open.len())
    }

    /// Sends a command to a chat and waits for its answer.
    pub async fn ask<T>(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, ChatError> {
        let (answer, wait) = oneshot::channel();
        self.send(user, chat_id, command(answer)).await?;
        wait.await.map_err(|_| ChatError::TaskEnded)
    }

    /// Sends a command without waiting for its answer.
    pub async fn send(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        command: Command,
    ) -> Result<(), ChatError> {
        let sent = self.send_or_return(user, chat_id, command).await;
        sent.map_err(|refused| refused.0)
    }

    /// The same; returns the command if it is refused.
    async fn send_or_return(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        mut command: Command,
    ) -> Result<(), Box<(ChatError, Command)>> {
        loop {
            if self.closing.load(Ordering::Relaxed) {
                return Err(Box::new((ChatError::ShuttingDown, command)));
            }
            if let Err(error) = self.refuse_early(user, chat_id, &mut command) {
                // The limits of a turn are those of the replica that has it.
                let error = self.elsewhere_or(user, chat_id, error).await;
                return Err(Box::new((error, command)));
            }
            let task = match self.task_of(user, chat_id, OwnerChange::Request).await {
                Ok(task) => task,
                Err(error) => return Err(Box::new((error, command))),
            };
            let waiting = task.max_capacity() - task.capacity();
            self.shared.metrics.command_queued(waiting);
            match task.send(Box::new(command)).await {
                Ok(()) => return Ok(()),
                // The task was just ending; the next one takes the command.
                Err(mpsc::error::SendError(back)) => command = *back,
            }
        }
    }

    /// Refuses, before the chat is loaded, what the chat would refuse, and what there is no memory for.
    fn refuse_early(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        command: &mut Command,
    ) -> Result<(), ChatError> {
        match command {
            Command::Post { request, .. } => self.admit_post(user, chat_id, request),
            Command::Live(LiveCommand::Ask { ask, .. }) => {
                // The chat reports it to the connection, if that is still the live client.
                if let Err(refusal) = self.admit_live(user, ask) {
                    *ask = LiveAsk::Refused(Box::new(refusal));
                }
                Ok(())
            }
            Command::ToolOutput { .. } | Command::Credential { .. } => {
                Ok(self.shared.capacity.admission.check_refused(user)?)
            }
            _ => Ok(()),
        }
    }

    fn admit_live(&self, user: &UserId, ask: &mut LiveAsk) -> Result<(), ChatError> {
        match ask {
            LiveAsk::Message(request) => {
                self.shared.capacity.admission.check_refused(user)?;
                Ok(self.shared.capacity.loaded.admit_request(user, request)?)
            }
            LiveAsk::ToolResult(_) => Ok(self.shared.capacity.admission.check_refused(user)?),
            LiveAsk::Refused(_) | LiveAsk::Interrupt | LiveAsk::Input(_) => Ok(()),
        }
    }

    fn admit_post(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        request: &mut ChatRequest,
    ) -> Result<(), ChatError> {
        self.shared.capacity.admission.check_refused(user)?;
        let begins = match request.last().role {
            Role::Assistant => TurnStart::Answer,
            Role::User | Role::System => TurnStart::Message,
        };
        // A chat in use may have a turn under way already, which this request takes over.
        if !self.is_in_use(user, chat_id) {
            self.shared.capacity.admission.has_room(user, begins)?;
        }
        Ok(self.shared.capacity.loaded.admit_request(user, request)?)
    }

    /// Stores the state of every chat and ends it; running tools get a moment to finish.
    pub async fn shut_down(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.tell_all(|answer| Command::ShutDown { answer }).await;
    }

    /// Gives all tasks a command, and waits until each has answered it or has ended. None waits for another.
    async fn tell_all(&self, command: impl Fn(oneshot::Sender<()>) -> Command) {
        let tasks: Vec<mpsc::Sender<Box<Command>>> = self.lock().values().cloned().collect();
        let command = &command;
        let informed = tasks.into_iter().map(|task| async move {
            let (answer, end) = oneshot::channel();
            if task.send(Box::new(command(answer))).await.is_ok() {
                let _ = end.await;
            }
        });
        join_all(informed).await;
    }

    /// Whether a chat is in use, so that it need not be loaded.
    pub fn is_in_use(&self, user: &UserId, chat_id: &ChatId) -> bool {
        let key = (user.to_owned(), chat_id.to_owned());
        self.lock()
            .get(&key)
            .is_some_and(|sender| !sender.is_closed())
    }

    /// The task of a chat; begins one if there is none. `owned`: how this replica owns the chat, in a cluster.
    fn task_or_new(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        owned: Option<Owned>,
    ) -> mpsc::Sender<Box<Command>> {
        let key = (user.to_owned(), chat_id.to_owned());
        let mut tasks = self.lock();
        if let Some(sender) = tasks.get(&key).filter(|sender| !sender.is_closed()) {
            return sender.clone();
        }
        let (sender, mut commands) = mpsc::channel(COMMANDS);
        tasks.insert(key.clone(), sender.clone());
        let chats = self.clone();
        // What it logs belongs to the trace of its turn.
        tokio::spawn(in_trace(TraceContext::default(), async move {
            let (user, chat_id) = key;
            let shared = chats.shared.clone();
            let (mut left, mine) = (Left::default(), owned.clone());
            let serving = Task::serve(shared, &user, &chat_id, mine, &mut commands, &mut left);
            // A bug in one task must not keep its chat from the next one, here or at another replica.
            if AssertUnwindSafe(serving).catch_unwind().await.is_err() {
                tracing::error!(chat = %chat_id, "the task of chat {chat_id} has panicked");
            }
            chats.release(&user, &chat_id, owned).await;
            let _waiting = left.waiting;
            chats
                .task_ended(user, chat_id, left.commands, commands)
                .await;
        }));
        sender
    }

    /// Forgets a task, and hands what it has not begun, and what was sent to it in its last moment, to the next one.
    async fn task_ended(
        &self,
        user: UserId,
        chat_id: ChatId,
        mut left: VecDeque<Command>,
        mut commands: mpsc::Receiver<Box<Command>>,
    ) {
        commands.close();
        let key = (user, chat_id);
        {
            let mut tasks = self.lock();
            if tasks.get(&key).is_some_and(mpsc::Sender::is_closed) {
                tasks.remove(&key);
            }
        }
        let (user, chat_id) = key;
        while let Some(command) = commands.recv().await {
            left.push_back(*command);
        }
        for command in left {
            if let Err(refused) = self.send_or_return(&user, &chat_id, command).await {
                let (error, command) = *refused;
                tracing::debug!(chat = %chat_id, %error, "a command for chat {chat_id} came too late");
                command.refuse(error);
            }
        }
    }

    /// Poisoning is ignored: no critical section can leave the map inconsistent.
    fn lock(&self) -> std::sync::MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time, as the protocol has it.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::default() + since.unwrap_or_default()
}

/// What endpoints ask of chats without a command, so that they need not know the store.
impl Chats {
    /// Refuses a chat that does not exist, or belongs to another user.
    pub async fn exists(&self, user: &UserId, chat_id: &ChatId) -> Result<(), ChatError> {
        match self
            .shared
            .store
            .chat(ChatRef { user, id: chat_id })
            .await?
        {
            Some(_) => Ok(()),
            None => Err(ChatError::NoSuchChat),
        }
    }

    /// The newest chats of a user, or those after the last one of a page, given by its time of change and id.
    pub async fn list(
        &self,
        user: &UserId,
        last: Option<(Timestamp, &ChatId)>,
    ) -> Result<ChatPage, ChatError> {
        let before = last.map(|(updated, id)| ChatCursor { updated, id });
        let store = &self.shared.store;
        let chats = store.list_chats(user, MAX_LISTED, before).await?;
        let is_full = chats.len() == MAX_LISTED as usize;
        let end = chats.last().filter(|_| is_full);
        let next = end.map(|end| (end.chat.updated, end.chat.id.clone()));
        Ok(ChatPage { chats, next })
    }

    /// The chat that waits for the answers in a message, among the newest of a user.
    pub async fn that_waits_for(
        &self,
        user: &UserId,
        message: &Message,
    ) -> Result<Option<ChatId>, ChatError> {
        let names = user_answers::named_in(message);
        if names.is_empty() {
            return Ok(None);
        }
        let store = &self.shared.store;
        for listed in store.list_chats(user, MAX_LISTED, None).await? {
            if listed.waiting == 0 && listed.owed.is_empty() {
                continue;
            }
            let id = listed.chat.id;
            let open = store.open_replies_of(ChatRef { user, id: &id }).await?;
            if open
                .iter()
                .any(|reply| user_answers::are_of(&names, &reply.message))
            {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// The chat that waits for what a user grants under this id, among the newest of a user.
    pub async fn that_asks(
        &self,
        user: &UserId,
        call_id: &CallId,
    ) -> Result<Option<ChatId>, ChatError> {
        let store = &self.shared.store;
        for listed in store.list_chats(user, MAX_LISTED, None).await? {
            if !listed.owed.iter().any(|tool| tool == REQUEST_CREDENTIAL) {
                continue;
            }
            let id = listed.chat.id;
            let open = store.open_replies_of(ChatRef { user, id: &id }).await?;
            if open
                .iter()
                .any(|reply| reply.calls.by_id(call_id).is_some())
            {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// What a question for credentials needs, if it is open.
    pub async fn login(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        call_id: &CallId,
    ) -> Result<Login, ChatError> {
        let chat = ChatRef { user, id: chat_id };
        let kept = self.shared.credentials.login(chat, call_id);
        kept.await?.ok_or(ChatError::QuestionAnswered)
    }

    /// The same for a question that a token is for.
    pub async fn login_for(&self, question: &Question) -> Result<Login, ChatError> {
        if question.expires <= now() {
            return Err(ChatError::QuestionExpired);
        }
        let Question {
            user, chat, call, ..
        } = question;
        self.login(user, chat, call).await
    }

    /// The id of a chat's agent, as front ends see it: none before the first message. A chat that is older than agents in
    /// chats belongs to the default; its title shows that it has a message.
    pub fn agent_shown(&self, chat: &Chat) -> Option<String> {
        let default = || self.shared.agents.default_agent().ok();
        let is_older = chat.agent.is_none() && chat.title.is_some();
        match is_older {
            true => default().map(|agent| agent.id().to_owned()),
            false => chat.agent.clone(),
        }
    }

    pub async fn rename(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        title: &str,
    ) -> Result<(), ChatError> {
        let title = title_from(title).ok_or(ChatError::EmptyTitle)?;
        let chat = ChatRef { user, id: chat_id };
        Ok(self.shared.store.set_title(chat, &title).await?)
    }

    pub async fn delete(&self, user: &UserId, chat_id: &ChatId) -> Result<(), ChatError> {
        self.exists(user, chat_id).await?;
        let (answer, closed) = oneshot::channel();
        self.send(user, chat_id, Command::Close { answer }).await?;
        // A failure to store the end of the chat does not matter: on a full disk, deleting is what helps.
        if let Ok(Err(error)) = closed.await
            && error.has_other_owner()
        {
            return Err(error);
        }
        let chat = ChatRef { user, id: chat_id };
        self.delete_stored(chat, &self.shared.files).await
    }

    /// Deletes a chat that has no task.
    async fn delete_stored(&self, chat: ChatRef<'_>, files: &Files) -> Result<(), ChatError> {
        let ChatRef { user, id: chat_id } = chat;
        let agent = self.agent_of(chat).await?;
        match &agent {
            // The chat is gone for its user even if the agent cannot be reached.
            Some(agent) => {
                let sessions = match agent.agent().memory() {
                    MemoryModel::Session => {
                        session_store::take_sessions(&*self.shared.store, chat).await
                    }
                    MemoryModel::Stateless => Vec::new(),
                };
                tokio::spawn(agent.agent().forget(DeletedChat {
                    chat: ChatKey {
                        user: user.to_owned(),
                        id: chat_id.to_owned(),
                    },
                    sessions,
                }));
            }
            None => {
                tracing::warn!(chat = %chat_id, "the agent of the deleted chat {chat_id} is not there, and keeps what it has of it");
            }
        }
        files.delete_chat(chat).await?;
        if let Some(agent) = agent {
            agent.tools().forget(user, chat_id).await;
        }
        Ok(())
    }

    /// Forgets what requests brought of a user, and is held in memory.
    pub fn forget_user(&self, user: &UserId) {
        self.shared.users.forget(user);
    }

    /// Erases what a user wrote into the audit, whose rows stay. Returns how many rows had something.
    pub async fn erase_reasons(&self, user: &UserId) -> Result<u64, ChatError> {
        let mut erased = 0;
        loop {
            match self
                .shared
                .store
                .erase_reasons(user, ERASED_AT_ONCE)
                .await?
            {
                0 => return Ok(erased),
                some => erased += some,
            }
        }
    }

    /// The budget of a user today.
    pub async fn budget_of(&self, user: &UserId) -> Result<BudgetState, ChatError> {
        Ok(self.shared.spending.state(user, now()).await?)
    }

    /// Names budgets of agents that there are not, in the log.
    pub fn note_budgets(&self) {
        let shared = &self.shared;
        let is_known = |id: &str| shared.agents.find(id).is_some();
        shared.spending.note_unknown(is_known);
    }

    /// Forgets what a user has used. Returns how many rows there were, one for each day and agent.
    pub async fn erase_usage(&self, user: &UserId) -> Result<u64, ChatError> {
        Ok(self.shared.store.erase_usage(user).await?)
    }

    /// The audit of a user, as JSON lines.
    pub fn own_audit(&self, user: &UserId) -> Exported {
        Exported::of_user(self.shared.store.clone(), user.clone(), now())
    }

    /// Everybody's audit after a row, as JSON lines.
    pub fn whole_audit(&self, after: u64) -> Exported {
        audit::whole_audit(self.shared.store.clone(), after, now())
    }

    /// How many bytes of files and messages a user has.
    pub async fn stored_bytes_of(&self, user: &UserId) -> Result<u64, ChatError> {
        Ok(self.shared.store.stored_bytes_of(user).await?)
    }

    /// The agent of a stored chat, if it is there.
    async fn agent_of(&self, chat: ChatRef<'_>) -> Result<Option<Arc<ServedAgent>>, ChatError> {
        let stored = self.shared.store.chat(chat).await?;
        Ok(match stored.and_then(|stored| stored.agent) {
            Some(id) => self.shared.agents.find(&id),
            None => self.shared.agents.default_agent().ok(),
        })
    }

    /// Stores a file of a chat, which is created if it does not exist yet.
    pub async fn save_file(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        described: FileDescription<'_>,
        content: Bytes,
    ) -> Result<FileRow, ChatError> {
        let chat = ChatRef { user, id: chat_id };
        let files = &self.shared.files;
        files.recount_user(user).await?;
        files.check_room(user, content.len() as u64)?;
        self.shared.store.create_chat(chat, now()).await?;
        let content = stream::iter([Ok(content)]);
        Ok(files.save(chat, described, content, now()).await?)
    }

    /// A file of a user, without its content.
    pub async fn file(&self, user: &UserId, id: &str) -> Result<FileRow, ChatError> {
        Ok(self.shared.files.row(user, id).await?)
    }

    /// A file for a request with its signed URL, without its content.
    pub async fn signed_file(&self, id: &str) -> Result<FileRow, ChatError> {
        Ok(self.shared.files.signed_row(id).await?)
    }

    /// A part of a file's content. The range lies within the file.
    pub async fn file_content(
        &self,
        row: &FileRow,
        range: Range<u64>,
    ) -> Result<ContentStream, ChatError> {
        Ok(self.shared.files.read(row, range).await?)
    }

    /// Whether requests can be served, that is, stored and answered, and what is missing nevertheless.
    pub async fn ready(&self) -> Result<Ready, NotReady> {
        if let Some(cluster) = self.cluster_state() {
            if cluster.is_draining {
                return Err(NotReady::Draining);
            }
            if !cluster.is_member {
                return Err(NotReady::Alone);
            }
        }
        let agents = self.shared.agents.all().len();
        if agents == 0 {
            return Err(NotReady::NoAgent(self.shared.agents.unreachable()));
        }
        let without_token = self.shared.agents.without_token().await;
        if without_token.len() >= agents {
            return Err(NotReady::NoToken(without_token));
        }
        let (shared, readiness) = (self.shared.clone(), self.readiness.clone());
        // In a task of its own, so that the check is not repeated when a caller leaves early.
        let looked =
            tokio::spawn(async move { readiness.look(&*shared.store, &shared.files).await });
        Ok(Ready {
            has_files: looked.await.unwrap_or(Err(NotReady::NotTried))?,
            without_token,
        })
    }

    /// Counters for Prometheus.
    pub fn metrics(&self) -> String {
        let open = self.lock().len();
        let loaded = self.shared.capacity.loaded.held();
        let cluster = self.shared.cluster.as_ref().map(|it| it.figures());
        self.shared.metrics.text(open, loaded, cluster)
    }

    /// A page of the audit of others; whoever asks is an auditor.
    pub async fn audit_of_all(
        &self,
        of: AuditFilter<'_>,
        page: AuditPage,
    ) -> Result<Vec<AuditRow>, ChatError> {
        Ok(self.shared.store.audit_of_all(of, page).await?)
    }

    pub async fn audit(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        page: AuditPage,
    ) -> Result<Vec<AuditRow>, ChatError> {
        let chat = ChatRef { user, id: chat_id };
        Ok(self.shared.store.audit(chat, page).await?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use adk_bridge_agents::gemini::{Gemini, Settings};
    use adk_bridge_protocol::chunk::Sdk;
    use adk_bridge_protocol::dialect::Dialect;
    use adk_bridge_protocol::reply::Limits;

    use super::toolbox::Toolbox;
    use super::*;
    use crate::admission::AdmissionLimits;
    use crate::files::address::Base;
    use crate::store::DataDir;
    use crate::store::sqlite::SqliteStore;

    #[tokio::test]
    async fn a_command_for_a_task_that_is_leaving_is_served_by_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let chats = chats(directory.path()).await;
        let (sender, commands) = mpsc::channel(COMMANDS);
        let (user, chat) = (UserId::from("alice"), ChatId::from("chat-1"));
        chats
            .lock()
            .insert((user.clone(), chat.clone()), sender.clone());
        let (answer, stopped) = oneshot::channel();
        assert!(sender.try_send(Box::new(Command::Stop { answer })).is_ok());
        drop(sender);
        let left = VecDeque::new();
        chats
            .task_ended(user.clone(), chat.clone(), left, commands)
            .await;
        stopped.await.unwrap().unwrap();
        assert!(chats.is_in_use(&user, &chat));
    }

    #[tokio::test]
    async fn a_command_that_no_task_takes_is_refused_and_not_answered() {
        let directory = tempfile::tempdir().unwrap();
        let chats = chats(directory.path()).await;
        let (sender, commands) = mpsc::channel(COMMANDS);
        let ((stop, stopped), (resume, resumed)) = (oneshot::channel(), oneshot::channel());
        let resume = Command::Resume {
            dialect: Dialect::Native,
            sdk: Sdk::V6,
            base: Base::origin("http://localhost"),
            answer: resume,
        };
        for command in [Command::Stop { answer: stop }, resume] {
            assert!(sender.try_send(Box::new(command)).is_ok());
        }
        chats.closing.store(true, Ordering::Relaxed);
        chats
            .task_ended("alice".into(), "chat-1".into(), VecDeque::new(), commands)
            .await;
        let stopped = stopped.await.unwrap();
        assert!(matches!(stopped, Err(ChatError::ShuttingDown)));
        let resumed = resumed.await.unwrap();
        assert!(matches!(resumed, Err(ChatError::ShuttingDown)));
    }

    /// Chats of an agent that is never asked.
    async fn chats(directory: &std::path::Path) -> Chats {
        let data = Arc::new(DataDir::open(directory).unwrap());
        let store = Arc::new(SqliteStore::open(data.clone(), None).await.unwrap());
        Chats::new(shared(&data, store).await)
    }

    /// What chats of an agent that is never asked share.
    pub(super) async fn shared(data: &DataDir, store: Arc<dyn Store>) -> Shared {
        let files = Files::open(data, store.clone(), 1 << 20).await.unwrap();
        let tools = Toolbox::new(Vec::new(), Vec::new(), &[], Limits::default());
        let gemini = Gemini::new(Settings {
            base_url: "http://127.0.0.1:9".into(),
            model: "none".into(),
            api_key: "none".into(),
            instruction: None,
        });
        let gemini = Arc::new(gemini.unwrap());
        let limits = crate::config::Limits::default();
        let agents = Arc::new(Agents::one(ServedAgent::new(
            "a",
            "a",
            gemini,
            tools.unwrap(),
        )));
        let config = crate::config::Config::default();
        Shared {
            spending: Spending::new(store.clone(), Arc::default(), &config.budget),
            users: Arc::new(KnownUsers::new(&config, agents.clone())),
            addresses: Arc::new(Addresses::open(&*store, None).await.unwrap()),
            credentials: Arc::new(Credentials::open(data, store.clone()).unwrap()),
            checkpoints: Checkpoints::storing_in(store.clone()),
            store,
            agents,
            files: Arc::new(files),
            metrics: Arc::default(),
            tracer: Tracer::default(),
            capacity: Capacity {
                admission: Admission::new(AdmissionLimits {
                    turns: 10,
                    turns_per_user: 10,
                    uploads_per_user: 10,
                    refused_answers_per_minute: 10,
                    memory: None,
                }),
                loaded: LoadedMemory::new(&limits),
                unread: crate::budget::unread(&limits),
            },
            settings: Current::new(ChatSettings {
                keep_recordings: false,
                tool_timeout: Duration::from_secs(60),
                turn_time: Duration::from_secs(600),
                files_per_request: 100,
            }),
            cluster: None,
        }
    }
}
