//! Chats: one task for each that is in use, found by its user and id.

mod kept;
mod late;
pub mod live;
mod memory;
mod parked;
mod perform;
mod plan;
pub mod readers;
pub mod request;
mod requests;
mod run;
mod task;
pub mod toolbox;
mod upstream;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use adk_bridge_agents::agent::Agent;
use adk_bridge_agents::live::Voice;
use adk_bridge_agents::tool::ToolSpec;
use adk_bridge_protocol::approval::Time;
use adk_bridge_protocol::calls::Calls;
use adk_bridge_protocol::dialect::{Dialect, project};
use adk_bridge_protocol::message::{Message, Part, Role};
use tokio::sync::{mpsc, oneshot};

pub use task::{Command, new_id};

use crate::error::AppError;
use crate::files::{Described, Files};
use crate::metrics::Metrics;
use crate::store::{
    AuditRow, Before, Chat, ChatRef, FileRow, ListedChat, MAX_LISTED, MessageState, Store,
    StoreError, StoredMessage, Thing, title_from,
};
use task::Task;
use toolbox::Toolbox;

/// How many requests may wait for one chat; more come only from a client gone wild.
const COMMANDS: usize = 32;

/// What clients are told when the server is being stopped.
pub(crate) const GOING_AWAY: &str =
    "the server is being restarted; load the chat again in a moment";

/// Some chats of a user, the one that changed last first.
pub struct ChatPage {
    pub chats: Vec<ListedChat>,
    /// Whether there may be others behind these.
    pub is_full: bool,
}

/// What all chats share: nothing of it belongs to one of them.
pub struct Shared {
    pub store: Arc<dyn Store>,
    pub agent: Agent,
    /// Who is spoken with, where somebody can be.
    pub voice: Option<Voice>,
    pub keep_recordings: bool,
    pub tools: Arc<Toolbox>,
    pub tool_timeout: Duration,
    pub files: Arc<Files>,
    pub metrics: Arc<Metrics>,
}

/// The chats that are in use.
#[derive(Clone)]
pub struct Chats {
    shared: Arc<Shared>,
    tasks: Arc<Mutex<Tasks>>,
    /// Set when the server goes away: chats end, and none begins.
    closing: Arc<AtomicBool>,
}

/// The tasks by user and chat.
type Tasks = HashMap<(String, String), mpsc::Sender<Command>>;

impl Chats {
    pub fn new(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
            tasks: Arc::default(),
            closing: Arc::default(),
        }
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Sets going again what a restart interrupted, and what time has settled meanwhile.
    pub async fn boot(&self) -> Result<usize, StoreError> {
        let open = self.shared.store.open_replies().await?;
        for reply in &open {
            self.sender(&reply.user, &reply.chat_id);
        }
        Ok(open.len())
    }

    /// Sends a command to a chat and waits for its answer.
    pub async fn ask<T>(
        &self,
        user: &str,
        chat_id: &str,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, AppError> {
        let (answer, wait) = oneshot::channel();
        self.tell(user, chat_id, command(answer)).await?;
        wait.await.map_err(|_| lost())
    }

    /// Sends a command that answers elsewhere.
    pub async fn tell(
        &self,
        user: &str,
        chat_id: &str,
        mut command: Command,
    ) -> Result<(), AppError> {
        loop {
            if self.closing.load(Ordering::Relaxed) {
                return Err(AppError::unavailable(GOING_AWAY));
            }
            match self.sender(user, chat_id).send(command).await {
                Ok(()) => return Ok(()),
                // The task was just leaving; the next one takes it.
                Err(mpsc::error::SendError(back)) => command = back,
            }
        }
    }

    /// Stores what every chat has come to and ends it; tools that run get a moment to finish.
    pub async fn shut_down(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let tasks: Vec<mpsc::Sender<Command>> = self.lock().values().cloned().collect();
        let mut ends = Vec::with_capacity(tasks.len());
        for task in tasks {
            let (answer, end) = oneshot::channel();
            // A task that has left needs nothing more.
            if task.send(Command::ShutDown { answer }).await.is_ok() {
                ends.push(end);
            }
        }
        for end in ends {
            let _ = end.await;
        }
    }

    /// Whether a chat is in use, so that asking it costs no loading.
    pub fn is_in_use(&self, user: &str, chat_id: &str) -> bool {
        let key = (user.to_owned(), chat_id.to_owned());
        self.lock()
            .get(&key)
            .is_some_and(|sender| !sender.is_closed())
    }

    fn sender(&self, user: &str, chat_id: &str) -> mpsc::Sender<Command> {
        let key = (user.to_owned(), chat_id.to_owned());
        let mut tasks = self.lock();
        if let Some(sender) = tasks.get(&key).filter(|sender| !sender.is_closed()) {
            return sender.clone();
        }
        let (sender, commands) = mpsc::channel(COMMANDS);
        tasks.insert(key.clone(), sender.clone());
        let (shared, all) = (self.shared.clone(), self.tasks.clone());
        tokio::spawn(async move {
            let (user, chat_id) = key.clone();
            Task::serve(shared, user, chat_id, commands).await;
            let mut tasks = all.lock().unwrap_or_else(PoisonError::into_inner);
            if tasks.get(&key).is_some_and(mpsc::Sender::is_closed) {
                tasks.remove(&key);
            }
        });
        sender
    }

    /// Nothing in a locked section can panic half-way, so a poisoned map is still whole.
    fn lock(&self) -> std::sync::MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task of a chat ended before it answered.
pub(crate) fn lost() -> AppError {
    AppError::unavailable("the chat could not be stored or loaded; try again in a moment")
}

/// The time, in the protocol's unit.
pub fn now() -> Time {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(Thing::Chat) => Self::not_found("chat"),
            StoreError::NotFound(Thing::Message) => Self::not_found("message"),
            StoreError::NotFound(Thing::File) => Self::not_found("file"),
            StoreError::Conflict(conflict) => Self::conflict(conflict.to_string()),
            StoreError::TooLarge { .. } => Self::new(
                axum::http::StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                error.to_string(),
            ),
            other => {
                tracing::error!(%other, "the store failed");
                Self::unavailable("the store is not available; try again in a moment")
            }
        }
    }
}

/// What doors ask of chats beyond commands; the store is only known here.
impl Chats {
    /// Refuses what belongs to somebody else, or to nobody.
    pub async fn exists(&self, user: &str, chat_id: &str) -> Result<(), AppError> {
        match self
            .shared
            .store
            .chat(ChatRef { user, id: chat_id })
            .await?
        {
            Some(_) => Ok(()),
            None => Err(AppError::not_found("chat")),
        }
    }

    /// The newest chats of a user, or those behind the last one of a page: when it changed, and its id.
    pub async fn list(&self, user: &str, last: Option<(u64, &str)>) -> Result<ChatPage, AppError> {
        let before = last.map(|(updated, id)| Before { updated, id });
        let store = &self.shared.store;
        let chats = store.list_chats(user, MAX_LISTED, before).await?;
        let is_full = chats.len() == MAX_LISTED as usize;
        Ok(ChatPage { chats, is_full })
    }

    /// The messages that have ended or wait for an answer; the one that is being streamed comes by resume.
    pub async fn messages(
        &self,
        user: &str,
        chat_id: &str,
        dialect: Dialect,
    ) -> Result<(Chat, Vec<Message>), AppError> {
        let chat = ChatRef { user, id: chat_id };
        let store = &self.shared.store;
        let found = store
            .chat(chat)
            .await?
            .ok_or_else(|| AppError::not_found("chat"))?;
        let mut shown = store.messages(chat).await?;
        shown.retain(|stored| stored.state != MessageState::Running);
        if self.is_in_use(user, chat_id) {
            let last = shown.last().map(|stored| stored.message.id.clone());
            self.ask(user, chat_id, |answer| Command::Listed { last, answer })
                .await?;
        }
        if dialect == Dialect::Adk {
            for stored in shown
                .iter_mut()
                .filter(|stored| stored.message.role == Role::Assistant)
            {
                kept::inline_images(&self.shared.files, chat, &mut stored.message).await;
            }
        }
        let mut messages = Vec::with_capacity(shown.len());
        for StoredMessage { message, state } in shown {
            if dialect == Dialect::Native || message.role != Role::Assistant {
                messages.push(message);
                continue;
            }
            let has_ended = state == MessageState::Done;
            let mut tools = message.parts.iter().filter_map(Part::as_tool);
            let calls = if !has_ended || tools.any(|tool| tool.approval.is_some()) {
                // The record knows in which words was asked, and where a call runs.
                let record = store.reply(chat, &message.id).await?;
                record.map(|record| record.calls).unwrap_or_default()
            } else {
                Calls::default()
            };
            messages.push(project(&message, &calls, has_ended));
        }
        Ok((found, messages))
    }

    pub async fn rename(&self, user: &str, chat_id: &str, title: &str) -> Result<(), AppError> {
        let title = title_from(title).ok_or_else(|| {
            AppError::unprocessable("bad_title", "the title is empty; write a few words")
        })?;
        let chat = ChatRef { user, id: chat_id };
        Ok(self.shared.store.set_title(chat, &title).await?)
    }

    pub async fn delete(&self, user: &str, chat_id: &str) -> Result<(), AppError> {
        self.exists(user, chat_id).await?;
        self.ask(user, chat_id, |answer| Command::Close { answer })
            .await?;
        let chat = ChatRef { user, id: chat_id };
        if let Agent::Adk(server) = &self.shared.agent {
            let sessions = memory::take_sessions(&*self.shared.store, chat).await;
            let (server, user) = (server.clone(), user.to_owned());
            // The chat is gone for its user whether the server can be reached or not.
            tokio::spawn(async move { server.forget(&user, &sessions).await });
        }
        self.shared.files.delete_chat(chat).await?;
        self.shared.tools.forget(chat_id).await;
        Ok(())
    }

    /// Takes a file for a chat, which begins with it if it is not there yet.
    pub async fn save_file(
        &self,
        user: &str,
        chat_id: &str,
        described: Described<'_>,
        content: &[u8],
    ) -> Result<FileRow, AppError> {
        let chat = ChatRef { user, id: chat_id };
        self.shared.store.create_chat(chat, now()).await?;
        Ok(self
            .shared
            .files
            .save(chat, described, content, now())
            .await?)
    }

    pub async fn file(&self, user: &str, id: &str) -> Result<(FileRow, tokio::fs::File), AppError> {
        Ok(self.shared.files.read(user, id).await?)
    }

    /// The tools of the agent; those of a remote one as far as it tells.
    pub async fn tools(&self) -> Vec<ToolSpec> {
        let Agent::Adk(server) = &self.shared.agent else {
            return self.shared.tools.specs().to_vec();
        };
        let info = server.app_info().await.unwrap_or_else(|error| {
            tracing::warn!(detail = %error.detail, "{error}");
            None
        });
        let mut tools = info.unwrap_or_default().tools;
        for tool in &mut tools {
            tool.needs_approval = self.shared.tools.is_guarded(&tool.name);
        }
        tools
    }

    /// Counters for Prometheus.
    pub fn metrics(&self) -> String {
        let open = self.lock().len();
        self.shared.metrics.text(open)
    }

    pub async fn audit(&self, user: &str, chat_id: &str) -> Result<Vec<AuditRow>, AppError> {
        Ok(self
            .shared
            .store
            .audit(ChatRef { user, id: chat_id })
            .await?)
    }
}
