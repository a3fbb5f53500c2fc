//! The store: what survives a restart.
//!
//! Everything in it belongs to a chat, and every chat to one user.
//!
//! [`Store`] is the trait that the rest of the server knows, [`sqlite`] and [`postgres`] implement it; `tests/store_suite`
//! tests what every store must do, and [`transfer`] moves one into the other. For every method, a chat of another user does not exist.
//!
//! ```text
//!   chat ──┬─ messages ── cut ones are kept and not shown
//!          │     └─ reply: its record, approvals, tool runs     written together by `commit`
//!          ├─ state    what tools remember
//!          ├─ events   what a remote agent said, by generation
//!          └─ files    rows here, content in `crate::files`
//!   audit ── append-only, outlives its chat
//!   logins ── of users with the page; they belong to no chat
//!   usage  ── of agents, by user and day; it outlives its chats
//! ```

mod chat_state;
mod data_dir;
mod encoded;
mod error;
mod page;
pub mod postgres;
pub mod sqlite;
mod title;
pub mod transfer;
mod usage;

use std::collections::HashSet;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::id::{ApprovalId, CallId, ChatId, MessageId, UserId};
use adk_bridge_protocol::message::{Growth, Message};
use adk_bridge_protocol::outbox::Audit;
use adk_bridge_protocol::reply::Record;
use adk_bridge_protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::AuditTrail;
use crate::audit::chain::ChainedRow;
use crate::audit::seal::Seal;
use crate::cluster::Epoch;

pub(crate) use postgres::stored as escaped;

pub use chat_state::StoreChatState;
pub use data_dir::DataDir;
pub(crate) use data_dir::make_private;
pub use error::{Conflict, Entity, StoreError, WriteProblem};
pub use title::{MAX_TITLE, title_from, title_of};
pub use usage::{ReplyUsage, Spent, TokenPrice, Tokens, UsageRow};

/// The longest list of chats in one page.
pub const MAX_LISTED: u32 = 200;

/// The most titles that are read at once.
pub const MAX_TITLES: u32 = 1_000;

/// The most rows of an audit in one page: a megabyte at most.
pub const MAX_AUDIT_ROWS: u32 = 1_000;

/// How many logins with the page one user may have: one for each browser of each device.
pub const MAX_LOGINS: u32 = 64;

/// The largest message or event. An answer has up to 16 MiB of text, which JSON can make six times as long, plus tool
/// outputs.
pub const MAX_BODY_BYTES: usize = 128 * 1024 * 1024;

/// What a method of a [`Store`] returns: a boxed future, so that a store can be chosen at start.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Maps a value to the value to store and the value to return.
pub type Change<'a> = Box<dyn FnOnce(Option<Value>) -> (Option<Value>, Value) + Send + 'a>;

/// What survives a restart.
pub trait Store: AuditTrail {
    /// Creates a chat, or finds it if the user has it already.
    fn create_chat<'a>(&'a self, chat: ChatRef<'a>, now: Timestamp) -> Pending<'a, Chat>;

    fn chat<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Option<Chat>>;

    /// The chats of a user, most recently changed first; at most [`MAX_LISTED`]. The next page begins `before` the last
    /// one of this page.
    fn list_chats<'a>(
        &'a self,
        user: &'a UserId,
        limit: u32,
        before: Option<ChatCursor<'a>>,
    ) -> Pending<'a, Vec<ListedChat>>;

    /// The same chats without what waits in them, at most [`MAX_TITLES`]: what a search goes through.
    fn titles<'a>(
        &'a self,
        user: &'a UserId,
        limit: u32,
        before: Option<ChatCursor<'a>>,
    ) -> Pending<'a, Vec<Chat>>;

    /// Those of these chats that the user has, as [`Store::list_chats`] has them.
    fn listed<'a>(&'a self, user: &'a UserId, ids: &'a [ChatId]) -> Pending<'a, Vec<ListedChat>>;

    fn set_title<'a>(&'a self, chat: ChatRef<'a>, title: &'a str) -> Pending<'a, ()>;

    /// Deletes everything except the audit, on a full disk too. Returns the files whose content must be deleted; they
    /// are remembered as [`Store::deleted_files`] until it is.
    fn delete_chat<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<String>>;

    /// The size of a chat, without reading any message; zero if there is no such chat.
    fn history_size<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, HistorySize>;

    /// The same, with the agent of the chat.
    fn overview<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, ChatOverview>;

    /// The messages that are shown, in order.
    fn messages<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<StoredMessage>>;

    /// The shown messages after a place, in order: as many as fit the page, but at least one. None if there are no
    /// more.
    fn messages_after<'a>(
        &'a self,
        chat: ChatRef<'a>,
        page: MessagePage,
    ) -> Pending<'a, Vec<StoredMessage>>;

    /// Every message of a chat, shown or cut, in order.
    fn outline<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<OutlineEntry>>;

    /// The message at a place of the [outline](Store::outline).
    fn message_at<'a>(&'a self, chat: ChatRef<'a>, place: u64) -> Pending<'a, Option<Message>>;

    /// Notes that a client has received these messages: replies or spoken messages, since those that a client sent need
    /// no note. As durable as a checkpoint.
    fn mark_seen<'a>(&'a self, chat: ChatRef<'a>, ids: &'a [MessageId]) -> Pending<'a, ()>;

    /// Cuts the history and adds messages to its end; without messages it only cuts. The first text of the user becomes
    /// the title of the chat. A cut that removes a message begins a new generation.
    ///
    /// An unfinished reply cannot be cut: it has to be closed first.
    fn append<'a>(
        &'a self,
        chat: ChatRef<'a>,
        messages: &'a [Message],
        cut: Cut<'a>,
        now: Timestamp,
    ) -> Pending<'a, Chat>;

    /// Begins a reply: creates the chat if it does not exist, then does what [`Store::append`] does, then what
    /// [`Store::commit`] does with a new reply; all of it or nothing.
    fn begin<'a>(
        &'a self,
        chat: ChatRef<'a>,
        opening: Opening<'a>,
        record: &'a Record,
        audit: &'a [AuditEntry],
        now: Timestamp,
    ) -> Pending<'a, Chat>;

    /// Overwrites a message of the user that grows while the user speaks. It becomes the title of the chat like any
    /// other first text, and that title grows with it.
    fn revise<'a>(&'a self, chat: ChatRef<'a>, message: &'a Message) -> Pending<'a, ()>;

    /// Stores a reply with its message, approvals, tool runs and audit rows: all of it or, with
    /// [`StoreError::Conflict`], nothing. The first commit of a reply puts its message at the end of the chat.
    ///
    /// An approval is decided once, and a server tool runs once, whatever the record says. A commit with audit rows or
    /// with a running tool survives a crash of the machine when it returns; any other commit survives the end of every
    /// process, that of a database included, and a second later also a crash of the machine.
    fn commit<'a>(
        &'a self,
        chat: ChatRef<'a>,
        record: &'a Record,
        audit: &'a [AuditEntry],
        now: Timestamp,
    ) -> Pending<'a, CommittedSize>;

    /// Stores a growing reply, so that a crash keeps the partial answer. As durable as a commit without audit rows.
    fn checkpoint<'a>(&'a self, chat: ChatRef<'a>, record: &'a Record) -> Pending<'a, ()>;

    /// Stores what replies have grown by since they were stored whole; those that have ended, or belong to another owner, are
    /// left out. As durable as a checkpoint. [`Store::open_replies_of`] returns them grown. [`StoreError::Busy`] if some are missing
    /// because somebody else was writing them.
    fn grow_replies<'a>(&'a self, replies: &'a [GrownReply]) -> Pending<'a, ()>;

    /// The chats with a reply that has not ended or has a tool running.
    fn open_replies(&self) -> Pending<'_, Vec<OpenReply>>;

    /// The replies of a chat that have not ended or have a tool running, oldest first; all but at most one only wait.
    fn open_replies_of<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<Record>>;

    /// The record of a message that is a reply, ended or not.
    fn reply<'a>(
        &'a self,
        chat: ChatRef<'a>,
        message_id: &'a MessageId,
    ) -> Pending<'a, Option<Record>>;

    /// Adds audit rows without a commit, such as the refusal of an answer to an unknown question.
    fn append_audit<'a>(&'a self, chat: ChatRef<'a>, audit: &'a [AuditEntry]) -> Pending<'a, ()>;

    /// A page of the audit of a chat, oldest first, even of a deleted chat. A chat without rows must exist.
    fn audit<'a>(&'a self, chat: ChatRef<'a>, page: AuditPage) -> Pending<'a, Vec<AuditRow>>;

    /// A page of the audit of everybody, or of one user, or of a chat id, in the order of their ids. For auditors only.
    fn audit_of_all<'a>(
        &'a self,
        of: AuditFilter<'a>,
        page: AuditPage,
    ) -> Pending<'a, Vec<AuditRow>>;

    /// Whether the audit of a chat already has a refusal for the same call, approval and reason.
    fn has_refused<'a>(&'a self, chat: ChatRef<'a>, audit: &'a Audit) -> Pending<'a, bool>;

    /// The audit of a user, chat by chat: the rows after one of a chat, at most `limit`.
    fn audit_of_user<'a>(
        &'a self,
        user: &'a UserId,
        after: Option<(&'a ChatId, u64)>,
        limit: u32,
    ) -> Pending<'a, Vec<ChainedRow>>;

    /// Adds a seal, unless there is one with its number. Returns whether it was added.
    fn add_seal<'a>(&'a self, seal: &'a Seal) -> Pending<'a, bool>;

    /// Removes rows of the audit that the newest seal gives up, at most `limit`, and then the seals over them. Returns how
    /// many rows were removed.
    fn remove_audit(&self, limit: u32) -> Pending<'_, u64>;

    /// Erases the reasons in the audit of a user, which are free text, at most `limit`. Returns how many were erased.
    fn erase_reasons<'a>(&'a self, user: &'a UserId, limit: u32) -> Pending<'a, u64>;

    /// One value of the chat's state.
    fn state<'a>(&'a self, chat: ChatRef<'a>, key: &'a str) -> Pending<'a, Option<Value>>;

    /// Changes one value of the chat's state atomically. Returns what `change` returned.
    fn update_state<'a>(
        &'a self,
        chat: ChatRef<'a>,
        key: &'a str,
        change: Change<'a>,
    ) -> Pending<'a, Value>;

    /// Adds the events of a remote agent in the reply `message_id`.
    fn append_events<'a>(
        &'a self,
        chat: ChatRef<'a>,
        generation: u64,
        message_id: &'a MessageId,
        events: Vec<String>,
    ) -> Pending<'a, ()>;

    /// The events of a remote agent in one generation, in order.
    fn events<'a>(&'a self, chat: ChatRef<'a>, generation: u64) -> Pending<'a, Vec<StoredEvent>>;

    fn add_file<'a>(&'a self, file: &'a FileRow) -> Pending<'a, ()>;

    fn file<'a>(&'a self, user: &'a UserId, id: &'a str) -> Pending<'a, Option<FileRow>>;

    /// A file of any user, for requests with its signed URL.
    fn any_file<'a>(&'a self, id: &'a str) -> Pending<'a, Option<FileRow>>;

    /// The secret with this name. If there is none yet, `fresh` becomes it.
    fn secret<'a>(&'a self, name: &'a str, fresh: &'a [u8]) -> Pending<'a, Vec<u8>>;

    /// The files of a user after an id, in the order of their ids; at most `limit`.
    fn files_of_user<'a>(
        &'a self,
        user: &'a UserId,
        after: &'a str,
        limit: u32,
    ) -> Pending<'a, Vec<FileRow>>;

    /// Chats that have not changed since a time and have no reply that has not ended: those after a row, at most `limit`.
    fn old_chats(&self, before: Timestamp, after: u64, limit: u32) -> Pending<'_, Vec<OldChat>>;

    /// Forgets files that are older than a time, at most `limit`. Their content must be deleted; they are remembered as
    /// [`Store::deleted_files`] until it is.
    fn delete_old_files(
        &self,
        before: Timestamp,
        which: OldFiles,
        limit: u32,
    ) -> Pending<'_, Vec<DeletedFile>>;

    /// Takes a job that one of several processes does, for a while. Returns false if another one has taken it.
    fn begin_job<'a>(&'a self, name: &'a str, hold: Duration) -> Pending<'a, bool>;

    /// Adds a login with the page. Those that have ended, that were not used since then, and the oldest of a user who has more
    /// than [`MAX_LOGINS`] are removed.
    fn add_login<'a>(&'a self, login: &'a LoginRow, unused_since: Timestamp) -> Pending<'a, ()>;

    /// A login by its id, ended or not.
    fn login<'a>(&'a self, id: &'a str) -> Pending<'a, Option<LoginRow>>;

    /// All logins of a user, ended or not, the newest first; there are at most [`MAX_LOGINS`].
    fn logins_of<'a>(&'a self, user: &'a UserId) -> Pending<'a, Vec<LoginRow>>;

    /// Notes that a login was used.
    fn see_login<'a>(&'a self, id: &'a str, at: Timestamp) -> Pending<'a, ()>;

    /// Ends a login, if there is one with this id.
    fn end_login<'a>(&'a self, id: &'a str) -> Pending<'a, ()>;

    /// Ends all logins of a user. Returns how many there were.
    fn end_logins_of<'a>(&'a self, user: &'a UserId) -> Pending<'a, u64>;

    /// Counts what the usage of a reply has grown by since it was counted last, as used by the chat's user. Returns what is
    /// new: asked twice, or of two owners one after the other, nothing is counted twice. As durable as a checkpoint.
    fn count_usage<'a>(&'a self, chat: ChatRef<'a>, reply: ReplyUsage<'a>) -> Pending<'a, Spent>;

    /// What a user has used on a day, by agent.
    fn usage_of_day<'a>(&'a self, user: &'a UserId, day: u64) -> Pending<'a, Vec<UsageRow>>;

    /// What a user has used, by day and agent, after a row; at most `limit`.
    fn usage_of_user<'a>(
        &'a self,
        user: &'a UserId,
        after: Option<(u64, &'a str)>,
        limit: u32,
    ) -> Pending<'a, Vec<UsageRow>>;

    /// Forgets what was used before a day, at most `limit` rows. Returns how many there were.
    fn delete_old_usage(&self, before: u64, limit: u32) -> Pending<'_, u64>;

    /// Forgets what a user has used. Returns how many rows there were.
    fn erase_usage<'a>(&'a self, user: &'a UserId) -> Pending<'a, u64>;

    /// The ids of all files of all users.
    fn file_ids(&self) -> Pending<'_, Vec<String>>;

    /// Files of deleted chats whose content may still exist.
    fn deleted_files(&self) -> Pending<'_, Vec<String>>;

    /// Forgets deleted files whose content is gone.
    fn forget_deleted_files<'a>(&'a self, ids: &'a [String]) -> Pending<'a, ()>;

    /// Whether several processes may use this store at once.
    fn is_shared(&self) -> bool;

    /// How many bytes of files, messages and agents' events each user has. Reads the whole store.
    fn stored_bytes(&self) -> Pending<'_, Vec<(UserId, u64)>>;

    /// The same for one user. Asked for every upload if the store is shared.
    fn stored_bytes_of<'a>(&'a self, user: &'a UserId) -> Pending<'a, u64>;

    /// Which store this is.
    fn identity(&self) -> Pending<'_, Identity>;

    /// Writes a little, to check whether that is possible. Does not wait long.
    fn try_write(&self, now: Timestamp) -> Pending<'_, ()>;

    /// This store for the owner of a chat: what it would write to this chat is refused with [`StoreError::Fenced`] once the
    /// chat has another epoch. A store that has one process is not shared, and returns itself.
    fn fenced(self: Arc<Self>, chat: ChatRef<'_>, epoch: Epoch) -> Arc<dyn Store>;

    /// Writes everything to disk and releases the data.
    fn close(&self) -> Pending<'_, ()>;
}

/// Which store this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Random, created with the database, and part of every backup of it.
    pub id: String,
    pub place: PathBuf,
    /// Whether it has no chats.
    pub is_empty: bool,
}

/// The contents of a store before it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriorContents {
    /// Without an id if the store is older than ids.
    pub store: Identity,
    /// The ids of its files.
    pub files: HashSet<String>,
}

/// A chat and the user who asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatRef<'a> {
    pub user: &'a UserId,
    pub id: &'a ChatId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chat {
    pub id: ChatId,
    /// Absent until the user has written something.
    pub title: Option<String>,
    pub created: Timestamp,
    pub updated: Timestamp,
    /// How often the history was cut.
    pub generation: u64,
    /// The id of the agent of its first message. A chat with messages and without an agent is older than this field.
    pub agent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedChat {
    pub chat: Chat,
    /// Approvals that wait for an answer.
    pub waiting: u64,
    /// The tools whose outputs the front end owes, one for each call.
    pub owed: Vec<String>,
}

/// The last chat of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatCursor<'a> {
    pub updated: Timestamp,
    pub id: &'a ChatId,
}

impl ChatCursor<'_> {
    /// Before the first page.
    const START: Self = Self {
        updated: Timestamp::MAX,
        id: const { &ChatId::literal("") },
    };
}

/// The size of a chat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistorySize {
    /// The messages that are shown.
    pub messages: usize,
    /// Their size as JSON, and that of the largest.
    pub bytes: usize,
    pub largest: usize,
    /// Its replies that have not ended or have a tool running.
    pub open: usize,
    /// All stored bytes of the chat without its files: shown and cut messages, the records of replies, and a remote
    /// agent's events.
    pub kept: u64,
}

/// What is known of a chat before it is loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChatOverview {
    pub size: HistorySize,
    /// [`Chat::agent`].
    pub agent: Option<String>,
}

/// A reply whose texts have grown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrownReply {
    pub user: UserId,
    pub chat_id: ChatId,
    /// Of the chat, if the store is shared.
    pub epoch: Option<Epoch>,
    pub message_id: MessageId,
    pub texts: Vec<Growth>,
}

/// What a commit has stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedSize {
    /// The message of the reply, as JSON.
    pub message: usize,
    /// [`HistorySize::kept`] of the chat.
    pub kept: u64,
}

/// A page of a chat's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagePage {
    /// The place of the last message of the previous page; 0 for the first page.
    pub after: u64,
    /// How many bytes of JSON they may take together, unless a single one takes more.
    pub max_bytes: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StoredMessage {
    /// Where it is in the [outline](Store::outline) of its chat.
    pub place: u64,
    pub message: Message,
    pub state: MessageState,
    /// Whether a client has received it.
    pub seen: bool,
}

/// A message in the outline of its chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlineEntry {
    /// Increases with every message, including cut ones: the order of the chat.
    pub place: u64,
    pub id: MessageId,
    /// The generation that began by cutting it, unless it is shown.
    pub cut_in: Option<u64>,
    pub state: MessageState,
    /// Whether it is a reply that was made here.
    pub is_reply: bool,
    /// Whether a client has received it.
    pub seen: bool,
}

impl OutlineEntry {
    pub fn is_shown(&self) -> bool {
        self.cut_in.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// A message of the user, or an ended reply.
    Done,
    /// A reply that continues when the client has answered.
    Waiting,
    /// A reply with a run or tool under way.
    Running,
}

/// What is stored before a new reply.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    pub messages: &'a [Message],
    pub cut: Cut<'a>,
    /// Whether the messages were spoken: no client sent them, and no client has them.
    pub heard: bool,
    /// The agent of the chat, unless it has one: a chat keeps its first.
    pub agent: Option<&'a str>,
}

/// What is removed from a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut<'a> {
    Nothing,
    /// What follows this message.
    After(&'a MessageId),
    /// This message and what follows it.
    From(&'a MessageId),
    /// Everything except the messages at these places. Those that were cut are shown again. A new generation begins even
    /// if nothing changes: what is added may be a part of the history.
    AllBut(&'a [u64]),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenReply {
    pub user: UserId,
    pub chat_id: ChatId,
}

/// A new row of the audit, without the chat and its user.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    pub at: Timestamp,
    pub turn_id: Option<String>,
    pub connection_id: Option<String>,
    pub transport: Option<String>,
    pub dialect: Option<String>,
    /// The name of the replica, in a cluster.
    pub replica: Option<String>,
    pub audit: Audit,
}

/// A page of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditPage {
    /// The last row of the previous page; 0 for the first page.
    pub after: u64,
    /// At most [`MAX_AUDIT_ROWS`].
    pub limit: u32,
}

/// Whose audit an auditor wants to see; by default everybody's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuditFilter<'a> {
    pub user: Option<&'a UserId>,
    pub chat: Option<&'a ChatId>,
}

impl Default for AuditPage {
    fn default() -> Self {
        Self {
            after: 0,
            limit: MAX_AUDIT_ROWS,
        }
    }
}

/// One row of the audit, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditRow {
    pub id: u64,
    /// Milliseconds since 1970.
    #[schemars(with = "u64")]
    pub at: Timestamp,
    #[schemars(with = "String")]
    pub chat_id: ChatId,
    pub turn_id: Option<String>,
    pub connection_id: Option<String>,
    pub kind: String,
    #[schemars(with = "Option<String>")]
    pub tool_call_id: Option<CallId>,
    pub tool_name: Option<String>,
    #[schemars(with = "Option<String>")]
    pub approval_id: Option<ApprovalId>,
    #[schemars(with = "String")]
    pub user: UserId,
    pub transport: Option<String>,
    pub dialect: Option<String>,
    pub reason: Option<String>,
    pub input_hash: Option<String>,
    /// The name of the replica, in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
}

/// A chat that has not changed for long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldChat {
    /// Where the next ones are looked for.
    pub row: u64,
    pub user: UserId,
    pub chat_id: ChatId,
}

/// Which files are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldFiles {
    All,
    /// What was spoken: a WAV file that nobody has named.
    Recordings,
}

/// A file whose row is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedFile {
    pub user: UserId,
    pub id: String,
}

/// An event of a remote agent, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    pub message_id: MessageId,
    pub body: String,
}

/// A login with the page.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginRow {
    /// The hash of what the browser holds.
    pub id: String,
    pub user: UserId,
    /// Who has logged in, as JSON.
    pub body: String,
    pub created: Timestamp,
    /// When it was last used, roughly.
    pub seen: Timestamp,
    /// When it ends, however much it is used.
    pub ends: Timestamp,
}

/// Shows nothing personal.
impl std::fmt::Debug for LoginRow {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("LoginRow")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// A file without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    pub id: String,
    pub chat_id: ChatId,
    pub user: UserId,
    pub media_type: String,
    pub bytes: u64,
    pub name: Option<String>,
    pub created: Timestamp,
}
