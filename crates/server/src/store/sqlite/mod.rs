//! The store in SQLite: one file beside the data, written by one connection.

mod chats;
mod connection;
mod extras;
mod journey;
mod messages;
mod replies;
mod sync;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adk_bridge_protocol::approval::Time;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::reply::Record;
use serde_json::Value;

use super::{
    AuditEntry, AuditRow, Before, Change, Chat, ChatRef, Cut, DataDir, FileRow, ListedChat,
    OpenReply, Opening, Pending, Store, StoreError, StoredEvent, StoredMessage,
};
use connection::{Durable, Readers, Writer};

/// The name of the database in the data directory.
pub const DATABASE: &str = "adk-bridge.db";

pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    /// Held as long as the database is.
    _held: (Arc<DataDir>, Option<DataDir>),
}

impl SqliteStore {
    /// Opens the database in the data directory, or another one if the configuration names it.
    pub async fn open(data_dir: Arc<DataDir>, database: Option<&Path>) -> Result<Self, StoreError> {
        let path = database.map_or_else(|| data_dir.path().join(DATABASE), Path::to_owned);
        let beside = Self::hold(&path, &data_dir)?;
        connection::prepare(&path).await?;
        Ok(Self {
            writer: Writer::new(&path),
            readers: Readers::new(&path),
            _held: (data_dir, beside),
        })
    }

    /// A database that lies elsewhere is held by itself: two data directories may name the same one.
    fn hold(database: &Path, data_dir: &DataDir) -> Result<Option<DataDir>, StoreError> {
        let parent = match database.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let same = parent
            .canonicalize()
            .is_ok_and(|parent| parent == data_dir.path());
        (!same).then(|| DataDir::open(&parent)).transpose()
    }
}

/// Runs `$work` in a transaction of the writer.
macro_rules! write {
    ($store:expr, $durable:expr, |$connection:ident| $work:expr) => {
        Box::pin(async move {
            let mut writing = $store.writer.begin($durable).await?;
            let $connection = writing.connection();
            let result = $work.await;
            writing.end(result).await
        })
    };
}

/// Runs `$work`, which is one statement or indifferent to what happens between its statements.
macro_rules! read {
    ($store:expr, |$connection:ident| $work:expr) => {
        Box::pin(async move {
            let mut reading = $store.readers.begin().await?;
            let $connection = reading.connection();
            let result = $work.await;
            reading.end(result)
        })
    };
}

impl Store for SqliteStore {
    fn create_chat<'a>(&'a self, chat: ChatRef<'a>, now: Time) -> Pending<'a, Chat> {
        write!(self, Durable::Machine, |connection| chats::create(
            connection, chat, now
        ))
    }

    fn chat<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Option<Chat>> {
        read!(self, |connection| chats::find(connection, chat))
    }

    fn list_chats<'a>(
        &'a self,
        user: &'a str,
        limit: u32,
        before: Option<Before<'a>>,
    ) -> Pending<'a, Vec<ListedChat>> {
        read!(self, |connection| chats::list(
            connection, user, limit, before
        ))
    }

    fn set_title<'a>(&'a self, chat: ChatRef<'a>, title: &'a str) -> Pending<'a, ()> {
        write!(self, Durable::Machine, |connection| chats::set_title(
            connection, chat, title
        ))
    }

    fn delete_chat<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<String>> {
        write!(self, Durable::Machine, |connection| chats::delete(
            connection, chat
        ))
    }

    fn messages<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<StoredMessage>> {
        Box::pin(async move {
            let mut reading = self.readers.begin().await?;
            let rows = messages::rows(reading.connection(), chat).await;
            messages::parse(reading.end(rows)?).await
        })
    }

    fn append<'a>(
        &'a self,
        chat: ChatRef<'a>,
        messages: &'a [Message],
        cut: Cut<'a>,
        now: Time,
    ) -> Pending<'a, Chat> {
        Box::pin(async move {
            let mut writing = self.writer.turn(Durable::Process).await?;
            let result = messages::append(writing.connection(), chat, messages, cut, now).await;
            writing.end(result).await
        })
    }

    fn revise<'a>(&'a self, chat: ChatRef<'a>, message: &'a Message) -> Pending<'a, ()> {
        write!(self, Durable::Process, |connection| messages::revise(
            connection, chat, message
        ))
    }

    fn begin<'a>(
        &'a self,
        chat: ChatRef<'a>,
        opening: Opening<'a>,
        record: &'a Record,
        audit: &'a [AuditEntry],
        now: Time,
    ) -> Pending<'a, Chat> {
        Box::pin(async move {
            let encoded = replies::Encoded::new(record)?;
            let mut writing = self.writer.turn(durable(record, audit)).await?;
            let connection = writing.connection();
            let result =
                replies::begin(connection, chat, opening, record, encoded, audit, now).await;
            writing.end(result).await
        })
    }

    fn commit<'a>(
        &'a self,
        chat: ChatRef<'a>,
        record: &'a Record,
        audit: &'a [AuditEntry],
        now: Time,
    ) -> Pending<'a, ()> {
        Box::pin(async move {
            // Long messages are written out before others are kept waiting.
            let mut encoded = replies::Encoded::new(record)?;
            let mut writing = self.writer.turn(durable(record, audit)).await?;
            if replies::is_plain(record, audit) {
                let connection = writing.connection();
                let done = replies::rewrite(connection, chat, record, encoded, now).await;
                if !matches!(done, Ok(false)) {
                    return writing.ended(done.map(|_| ()));
                }
                encoded = replies::Encoded::new(record)?;
            }
            let result =
                replies::commit(writing.connection(), chat, record, encoded, audit, now).await;
            writing.end(result).await
        })
    }

    fn checkpoint<'a>(&'a self, chat: ChatRef<'a>, record: &'a Record) -> Pending<'a, ()> {
        Box::pin(async move {
            let encoded = replies::Encoded::new(record)?;
            let mut writing = self.writer.turn(Durable::Process).await?;
            let result = replies::checkpoint(writing.connection(), chat, record, encoded).await;
            writing.ended(result)
        })
    }

    fn open_replies(&self) -> Pending<'_, Vec<OpenReply>> {
        read!(self, |connection| replies::open_all(connection))
    }

    fn open_replies_of<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<Record>> {
        read!(self, |connection| replies::open_in(connection, chat))
    }

    fn reply<'a>(&'a self, chat: ChatRef<'a>, message_id: &'a str) -> Pending<'a, Option<Record>> {
        read!(self, |connection| replies::of_message(
            connection, chat, message_id
        ))
    }

    fn append_audit<'a>(&'a self, chat: ChatRef<'a>, audit: &'a [AuditEntry]) -> Pending<'a, ()> {
        write!(self, Durable::Machine, |connection| extras::append_audit(
            connection, chat, audit
        ))
    }

    fn audit<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<AuditRow>> {
        read!(self, |connection| extras::audit(connection, chat))
    }

    fn update_state<'a>(
        &'a self,
        chat: ChatRef<'a>,
        key: &'a str,
        change: Change<'a>,
    ) -> Pending<'a, Value> {
        write!(self, Durable::Machine, |connection| extras::update_state(
            connection, chat, key, change
        ))
    }

    fn append_events<'a>(
        &'a self,
        chat: ChatRef<'a>,
        generation: u64,
        message_id: &'a str,
        events: Vec<String>,
    ) -> Pending<'a, ()> {
        // The commit of the reply that they belong to follows and makes them durable with it.
        write!(self, Durable::Process, |connection| extras::append_events(
            connection, chat, generation, message_id, events
        ))
    }

    fn events<'a>(&'a self, chat: ChatRef<'a>, generation: u64) -> Pending<'a, Vec<StoredEvent>> {
        read!(self, |connection| extras::events(
            connection, chat, generation
        ))
    }

    fn add_file<'a>(&'a self, file: &'a FileRow) -> Pending<'a, ()> {
        write!(self, Durable::Machine, |connection| extras::add_file(
            connection, file
        ))
    }

    fn file<'a>(&'a self, user: &'a str, id: &'a str) -> Pending<'a, Option<FileRow>> {
        read!(self, |connection| extras::file(connection, user, id))
    }

    fn file_ids(&self) -> Pending<'_, Vec<String>> {
        read!(self, |connection| extras::file_ids(connection))
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.readers.close().await?;
            // The last connection to close brings the log into the database.
            self.writer.close().await
        })
    }
}

/// What was decided, or runs, is on the disk before anybody goes on; what was only said may be a moment behind.
fn durable(record: &Record, audit: &[AuditEntry]) -> Durable {
    if replies::must_last(record, audit) {
        Durable::Machine
    } else {
        Durable::Process
    }
}

/// Times are far below the largest signed number; one that is not was made up by somebody.
fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Nothing negative is stored.
fn from_sql(number: i64) -> u64 {
    number.try_into().unwrap_or(0)
}
