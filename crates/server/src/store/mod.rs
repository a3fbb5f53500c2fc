//! The store: what survives a restart.
//!
//! Everything in it belongs to a chat, and every chat to one user.
//!
//! [`Store`] is the trait that the rest of the server knows, [`sqlite`] the store behind it; `tests/store_suite` holds
//! what any store must do. A chat of another user does not exist, in every method.
//!
//! ```text
//!   chat ──┬─ messages ── cut ones are kept and not shown
//!          │     └─ reply: its record, approvals, tool runs     written together by `commit`
//!          ├─ state    what tools remember
//!          ├─ events   what a remote agent said, by generation
//!          └─ files    rows here, content in `crate::files`
//!   audit ── append-only, outlives its chat
//! ```

mod chat_state;
mod data_dir;
mod error;
pub mod sqlite;
mod title;

use std::future::Future;
use std::pin::Pin;

use adk_bridge_protocol::approval::Time;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::Audit;
use adk_bridge_protocol::reply::Record;
use serde::Serialize;
use serde_json::Value;

pub use chat_state::StoreChatState;
pub use data_dir::DataDir;
pub use error::{Conflict, StoreError, Thing};
pub use title::{MAX_TITLE, title_from, title_of};

/// The longest list that is given at once.
pub const MAX_LISTED: u32 = 200;

/// The largest message or event. An answer holds 16 MiB of text, which JSON can make six times as long; tool outputs
/// come on top.
pub const MAX_BODY_BYTES: usize = 128 * 1024 * 1024;

/// What a method of a [`Store`] returns: a future without a name, so that a store can be chosen at start.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Reads a value, and says what to store and what to return.
pub type Change<'a> = Box<dyn FnOnce(Option<Value>) -> (Option<Value>, Value) + Send + 'a>;

/// What survives.
pub trait Store: Send + Sync {
    /// Makes a chat, or finds it if the user has it already.
    fn create_chat<'a>(&'a self, chat: ChatRef<'a>, now: Time) -> Pending<'a, Chat>;

    fn chat<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Option<Chat>>;

    /// The chats of a user, the one that changed last first; at most [`MAX_LISTED`]. The next page begins `before` the
    /// last one of this.
    fn list_chats<'a>(
        &'a self,
        user: &'a str,
        limit: u32,
        before: Option<Before<'a>>,
    ) -> Pending<'a, Vec<ListedChat>>;

    fn set_title<'a>(&'a self, chat: ChatRef<'a>, title: &'a str) -> Pending<'a, ()>;

    /// Deletes everything but the audit. Returns the files whose content may go.
    fn delete_chat<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<String>>;

    /// The messages that are shown, in order.
    fn messages<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<StoredMessage>>;

    /// Cuts the history and adds messages to its end; without messages it only cuts. The first text of the user gives
    /// the chat its title. A cut that takes a message away begins a new generation.
    ///
    /// A reply in the making cannot be cut: it is closed first.
    fn append<'a>(
        &'a self,
        chat: ChatRef<'a>,
        messages: &'a [Message],
        cut: Cut<'a>,
        now: Time,
    ) -> Pending<'a, Chat>;

    /// Begins a reply: makes the chat if it is not there, does what [`Store::append`] does and then what
    /// [`Store::commit`] does with a reply that is not in the store, all of it or nothing.
    fn begin<'a>(
        &'a self,
        chat: ChatRef<'a>,
        opening: Opening<'a>,
        record: &'a Record,
        audit: &'a [AuditEntry],
        now: Time,
    ) -> Pending<'a, Chat>;

    /// Writes over a message of the user that grows while it is heard. It gives the chat its title, as others do, and a
    /// title that it gave grows with it.
    fn revise<'a>(&'a self, chat: ChatRef<'a>, message: &'a Message) -> Pending<'a, ()>;

    /// Stores a reply with its message, approvals, tool runs and audit rows: all of it or, with
    /// [`StoreError::Conflict`], nothing. The first commit of a reply puts its message at the end of the chat.
    ///
    /// An approval is decided once, and a server tool runs once, whatever the record says. A commit with audit rows or
    /// with a tool that runs survives the end of the machine when it returns; any other survives the end of the process,
    /// and that of the machine a second later.
    fn commit<'a>(
        &'a self,
        chat: ChatRef<'a>,
        record: &'a Record,
        audit: &'a [AuditEntry],
        now: Time,
    ) -> Pending<'a, ()>;

    /// Stores how far a reply has come, so that a crash keeps the partial answer. Survives what a
    /// commit without audit rows does.
    fn checkpoint<'a>(&'a self, chat: ChatRef<'a>, record: &'a Record) -> Pending<'a, ()>;

    /// The chats with a reply that has not ended or has a tool running.
    fn open_replies(&self) -> Pending<'_, Vec<OpenReply>>;

    /// The replies of a chat that have not ended or have a tool running, oldest first: at most one does not wait.
    fn open_replies_of<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<Record>>;

    /// The record of a message that is a reply, ended or not.
    fn reply<'a>(&'a self, chat: ChatRef<'a>, message_id: &'a str) -> Pending<'a, Option<Record>>;

    /// Adds audit rows that come with no commit, such as the refusal of an answer to nothing.
    fn append_audit<'a>(&'a self, chat: ChatRef<'a>, audit: &'a [AuditEntry]) -> Pending<'a, ()>;

    /// The audit of a chat, oldest first; that of a deleted chat too. A chat that has none must be there.
    fn audit<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<AuditRow>>;

    /// Changes one value of the chat's state with nothing in between. Returns what `change` returned.
    fn update_state<'a>(
        &'a self,
        chat: ChatRef<'a>,
        key: &'a str,
        change: Change<'a>,
    ) -> Pending<'a, Value>;

    /// Adds what a remote agent said in the reply `message_id`.
    fn append_events<'a>(
        &'a self,
        chat: ChatRef<'a>,
        generation: u64,
        message_id: &'a str,
        events: Vec<String>,
    ) -> Pending<'a, ()>;

    /// What a remote agent said in one generation, in order.
    fn events<'a>(&'a self, chat: ChatRef<'a>, generation: u64) -> Pending<'a, Vec<StoredEvent>>;

    fn add_file<'a>(&'a self, file: &'a FileRow) -> Pending<'a, ()>;

    fn file<'a>(&'a self, user: &'a str, id: &'a str) -> Pending<'a, Option<FileRow>>;

    /// The ids of all files of all users, for the sweep at start.
    fn file_ids(&self) -> Pending<'_, Vec<String>>;

    /// Writes back what is in memory and lets go of the data.
    fn close(&self) -> Pending<'_, ()>;
}

/// A chat and who asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatRef<'a> {
    pub user: &'a str,
    pub id: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chat {
    pub id: String,
    /// Absent until the user has written something.
    pub title: Option<String>,
    pub created: Time,
    pub updated: Time,
    /// How often the history was cut.
    pub generation: u64,
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
pub struct Before<'a> {
    pub updated: Time,
    pub id: &'a str,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StoredMessage {
    pub message: Message,
    pub state: MessageState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// The user's, or a reply that has ended.
    Done,
    /// A reply that goes on when the client has answered.
    Waiting,
    /// A reply that is being made.
    Running,
}

/// What comes before a reply.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    pub messages: &'a [Message],
    pub cut: Cut<'a>,
}

/// What is taken away from the end of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut<'a> {
    Nothing,
    /// What follows this message.
    After(&'a str),
    /// This message and what follows it.
    From(&'a str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenReply {
    pub user: String,
    pub chat_id: String,
}

/// What is to be added to the audit; the chat and its user come with it.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    pub at: Time,
    pub turn_id: Option<String>,
    pub connection_id: Option<String>,
    pub transport: Option<String>,
    pub dialect: Option<String>,
    pub audit: Audit,
}

/// One row of the audit, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRow {
    pub id: u64,
    pub at: Time,
    pub chat_id: String,
    pub turn_id: Option<String>,
    pub connection_id: Option<String>,
    pub kind: String,
    pub tool_call_id: Option<String>,
    pub tool_name: Option<String>,
    pub approval_id: Option<String>,
    pub user: String,
    pub transport: Option<String>,
    pub dialect: Option<String>,
    pub reason: Option<String>,
    pub input_hash: Option<String>,
}

/// Something that a remote agent said, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    pub message_id: String,
    pub body: String,
}

/// What is known of a file besides its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    pub id: String,
    pub chat_id: String,
    pub user: String,
    pub media_type: String,
    pub bytes: u64,
    pub name: Option<String>,
    pub created: Time,
}
