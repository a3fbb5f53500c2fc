//! The store in SQLite: one file in the data directory, written by one connection.

mod audit;
mod batch_thread;
mod branches;
mod chats;
mod connection;
mod credentials;
mod events;
mod files;
mod grown_texts;
mod inspect;
mod logins;
mod look;
mod messages;
mod replies;
mod reserve;
mod seals;
mod statement_batch;
mod sync;
mod tool_state;
mod usage;
mod whole_store;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::id::{ChatId, MessageId, UserId};
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::Audit;
use adk_bridge_protocol::reply::Record;
use adk_bridge_protocol::time::Timestamp;
use serde_json::Value;

use crate::audit::chain::ChainedRow;
use crate::audit::seal::Seal;
use crate::audit::{AuditState, AuditTrail};
use crate::cluster::Epoch;
use crate::parsing::{self, Room};

use super::encoded::{self, EncodedRecord};
use super::{
    AuditEntry, AuditFilter, AuditPage, AuditRow, Change, Chat, ChatCursor, ChatOverview, ChatRef,
    CommittedSize, Cut, DataDir, DeletedFile, FileRow, GrownReply, HistorySize, Identity,
    ListedChat, LoginRow, MessagePage, OldChat, OldFiles, OpenReply, Opening, OutlineEntry,
    Pending, PriorContents, ReplyUsage, Spent, Store, StoreError, StoredEvent, StoredMessage,
    UsageRow, WriteProblem, make_private,
};
use connection::{Durability, Readers, STORE, Writer};
use messages::EncodedOpening;
use replies::NewReply;
use reserve::{Released, Reserve, log_pages};

pub use inspect::{Inspected, KnownFile, ReadOnly, inspect};

/// The name of the database in the data directory.
pub const DATABASE: &str = "adk-bridge.db";

pub struct SqliteStore {
    path: PathBuf,
    writer: Writer,
    readers: Readers,
    reserve: Arc<Reserve>,
    /// Locked while the database is open.
    _locks: (Arc<DataDir>, Option<DataDir>),
}

impl SqliteStore {
    /// Opens the database in the data directory, or another one if the configuration names it.
    pub async fn open(data_dir: Arc<DataDir>, database: Option<&Path>) -> Result<Self, StoreError> {
        Self::open_if(data_dir, database, |_| Ok(())).await
    }

    /// The same, if the caller agrees to the contents of the database; nothing is changed before.
    pub async fn open_if(
        data_dir: Arc<DataDir>,
        database: Option<&Path>,
        agreed: impl Fn(&PriorContents) -> Result<(), StoreError>,
    ) -> Result<Self, StoreError> {
        let path = database.map_or_else(|| data_dir.path().join(DATABASE), Path::to_owned);
        let path = look::real(&path);
        let database_lock = Self::lock_database(&path, &data_dir)?;
        for suffix in ["", "-wal", "-shm", "-reserve"] {
            make_private(&with_suffix(&path, suffix));
        }
        let prepare = async || {
            if let Some(found) = look::look(&path).await? {
                agreed(&found)?;
            }
            connection::prepare(&path).await
        };
        let reserve = Arc::new(Reserve::next_to(&path));
        let mut released = None;
        match prepare().await {
            Err(StoreError::Unwritable(WriteProblem::Full)) => {
                released = Some(reserve.release().leaving_some());
                prepare().await?;
            }
            other => {
                other?;
                reserve.take();
            }
        }
        let kept = released.as_ref().map_or(reserve.bytes(), Released::bytes);
        let store = Self {
            writer: Writer::new(&path, reserve.clone(), log_pages(kept)),
            readers: Readers::new(&path),
            reserve: reserve.clone(),
            path,
            _locks: (data_dir, database_lock),
        };
        store.finish_deletions().await;
        if released.is_some() {
            // The room of the log is room for everything.
            store.shorten_log().await;
        }
        Ok(store)
    }

    /// Deletes a chat with the reserved room: first the chat is hidden, which takes almost none, then its rows are
    /// deleted a few at a time. The next start finishes what fails after that: for its user the chat is gone.
    async fn delete_on_full_disk(&self, chat: ChatRef<'_>) -> Result<Vec<String>, StoreError> {
        let mut writing = self.writer.turn(chat.user, Durability::Machine).await?;
        // Other writers wait, so that the room is only for this; and it is not spent on a checkpoint of the log, which
        // may need more.
        let _released = self.reserve.release();
        writing.keep_log().await?;
        sqlx::query("BEGIN IMMEDIATE")
            .execute(writing.connection())
            .await?;
        let hidden = chats::hide(writing.connection(), chat).await;
        let files = writing.end(hidden).await?;
        if self.shorten_log().await {
            self.finish_deletions().await;
        }
        Ok(files)
    }

    /// Checkpoints and truncates the log. Returns whether there was room to do so: the database may have to grow first.
    async fn shorten_log(&self) -> bool {
        let log = std::fs::metadata(with_suffix(&self.path, "-wal"));
        let has_room = self.reserve.has_room_for(log.map_or(0, |log| log.len()));
        if has_room {
            self.writer.shorten_log().await;
        }
        has_room
    }

    /// Deletes the rows of hidden chats, as far as possible.
    async fn finish_deletions(&self) {
        loop {
            let deleted = async {
                let mut writing = self.writer.begin(STORE, Durability::Process).await?;
                let result = chats::delete_hidden(writing.connection()).await;
                writing.end(result).await
            };
            match deleted.await {
                Ok(true) if self.shorten_log().await => {}
                Ok(true) => {
                    tracing::warn!(
                        "the disk is too full to delete all rows of deleted chats; the next start continues"
                    );
                    return;
                }
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, "the remaining rows of deleted chats stay until the next start");
                    return;
                }
            }
        }
    }

    /// Locks a database outside of the data directory separately: two data directories may name the same one.
    fn lock_database(database: &Path, data_dir: &DataDir) -> Result<Option<DataDir>, StoreError> {
        let parent = look::directory_of(database);
        let same = parent
            .canonicalize()
            .is_ok_and(|parent| parent == data_dir.path());
        (!same).then(|| DataDir::open(parent)).transpose()
    }
}

/// Runs `$work` in a transaction of the writer, when the writer is free for `$user`.
macro_rules! write {
    ($store:expr, $user:expr, $durable:expr, |$connection:ident| $work:expr) => {
        Box::pin(async move {
            let mut writing = $store.writer.begin($user, $durable).await?;
            let $connection = writing.connection();
            let result = $work.await;
            writing.end(result).await
        })
    };
}

/// Runs `$work`, which is one statement, or does not depend on what happens between its statements.
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
    fn create_chat<'a>(&'a self, chat: ChatRef<'a>, now: Timestamp) -> Pending<'a, Chat> {
        write!(self, chat.user, Durability::Machine, |connection| {
            chats::create(connection, chat, now)
        })
    }

    fn chat<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Option<Chat>> {
        read!(self, |connection| chats::find(connection, chat))
    }

    fn list_chats<'a>(
        &'a self,
        user: &'a UserId,
        limit: u32,
        before: Option<ChatCursor<'a>>,
    ) -> Pending<'a, Vec<ListedChat>> {
        read!(self, |connection| chats::list(
            connection, user, limit, before
        ))
    }

    fn titles<'a>(
        &'a self,
        user: &'a UserId,
        limit: u32,
        before: Option<ChatCursor<'a>>,
    ) -> Pending<'a, Vec<Chat>> {
        read!(self, |connection| chats::titles(
            connection, user, limit, before
        ))
    }

    fn listed<'a>(&'a self, user: &'a UserId, ids: &'a [ChatId]) -> Pending<'a, Vec<ListedChat>> {
        read!(self, |connection| chats::listed(connection, user, ids))
    }

    fn set_title<'a>(&'a self, chat: ChatRef<'a>, title: &'a str) -> Pending<'a, ()> {
        write!(self, chat.user, Durability::Machine, |connection| {
            chats::set_title(connection, chat, title)
        })
    }

    fn delete_chat<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<String>> {
        Box::pin(async move {
            let mut writing = self.writer.begin(chat.user, Durability::Machine).await?;
            let result = chats::delete(writing.connection(), chat).await;
            match writing.end(result).await {
                Err(StoreError::Unwritable(WriteProblem::Full)) => {
                    self.delete_on_full_disk(chat).await
                }
                other => other,
            }
        })
    }

    fn history_size<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, HistorySize> {
        read!(self, |connection| messages::size(connection, chat))
    }

    fn overview<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, ChatOverview> {
        read!(self, |connection| messages::overview(connection, chat))
    }

    fn messages<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<StoredMessage>> {
        Box::pin(async move {
            let mut reading = self.readers.begin().await?;
            let bytes = messages::size(reading.connection(), chat).await?.bytes;
            let mut room = Room::default();
            if parsing::is_large(bytes) {
                // Other reads continue while it waits.
                reading.end(Ok(()))?;
                room = parsing::room_for(bytes).await.map_err(encoded::unread)?;
                reading = self.readers.begin().await?;
            }
            let rows = messages::rows(reading.connection(), chat).await;
            encoded::parse(reading.end(rows)?, room).await
        })
    }

    fn messages_after<'a>(
        &'a self,
        chat: ChatRef<'a>,
        page: MessagePage,
    ) -> Pending<'a, Vec<StoredMessage>> {
        Box::pin(async move {
            let mut reading = self.readers.begin().await?;
            let places = match messages::places(reading.connection(), chat, page).await {
                Ok(Some(places)) => places,
                none => return reading.end(none.map(|_| Vec::new())),
            };
            let mut room = Room::default();
            if parsing::is_large(places.bytes) {
                // Other reads continue while it waits.
                reading.end(Ok(()))?;
                room = parsing::room_for(places.bytes)
                    .await
                    .map_err(encoded::unread)?;
                reading = self.readers.begin().await?;
            }
            let rows = messages::rows_at(reading.connection(), chat, &places).await;
            encoded::parse(reading.end(rows)?, room).await
        })
    }

    fn outline<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<OutlineEntry>> {
        read!(self, |connection| branches::outline(connection, chat))
    }

    fn message_at<'a>(&'a self, chat: ChatRef<'a>, place: u64) -> Pending<'a, Option<Message>> {
        read!(self, |connection| branches::message_at(
            connection, chat, place
        ))
    }

    fn mark_seen<'a>(&'a self, chat: ChatRef<'a>, ids: &'a [MessageId]) -> Pending<'a, ()> {
        Box::pin(async move {
            let mut writing = self.writer.turn(chat.user, Durability::Process).await?;
            let result = branches::mark_seen(&mut writing, chat, ids).await;
            writing.release_after(result)
        })
    }

    fn append<'a>(
        &'a self,
        chat: ChatRef<'a>,
        messages: &'a [Message],
        cut: Cut<'a>,
        now: Timestamp,
    ) -> Pending<'a, Chat> {
        Box::pin(async move {
            let mut writing = self.writer.turn(chat.user, Durability::Process).await?;
            let result = messages::append(writing.connection(), chat, messages, cut, now).await;
            writing.end(result).await
        })
    }

    fn revise<'a>(&'a self, chat: ChatRef<'a>, message: &'a Message) -> Pending<'a, ()> {
        write!(self, chat.user, Durability::Process, |connection| {
            messages::revise(connection, chat, message)
        })
    }

    fn begin<'a>(
        &'a self,
        chat: ChatRef<'a>,
        opening: Opening<'a>,
        record: &'a Record,
        audit: &'a [AuditEntry],
        now: Timestamp,
    ) -> Pending<'a, Chat> {
        Box::pin(async move {
            // Long messages are serialised before the writer is taken.
            let reply = NewReply::new(record, EncodedRecord::new(record)?);
            let opening = EncodedOpening::new(opening, reply)?;
            let mut writing = self.writer.turn(chat.user, durable(record, audit)).await?;
            if encoded::is_plain(record, audit) {
                let done = messages::begin_at_once(&mut writing, chat, &opening, now).await;
                if let Some(done) = done.transpose() {
                    return writing.release_after(done);
                }
            }
            let connection = writing.connection();
            let result = replies::begin(connection, chat, &opening, record, audit, now).await;
            writing.end(result).await
        })
    }

    fn commit<'a>(
        &'a self,
        chat: ChatRef<'a>,
        record: &'a Record,
        audit: &'a [AuditEntry],
        now: Timestamp,
    ) -> Pending<'a, CommittedSize> {
        Box::pin(async move {
            // Long messages are serialised before the writer is taken.
            let encoded = EncodedRecord::new(record)?;
            let mut writing = self.writer.turn(chat.user, durable(record, audit)).await?;
            if encoded::is_plain(record, audit) {
                let done =
                    replies::overwrite(&mut writing, chat, record, &encoded, Some(now)).await;
                if let Some(done) = done.transpose() {
                    return writing.release_after(done);
                }
            }
            let result =
                replies::commit(writing.connection(), chat, record, encoded, audit, now).await;
            writing.end(result).await
        })
    }

    fn checkpoint<'a>(&'a self, chat: ChatRef<'a>, record: &'a Record) -> Pending<'a, ()> {
        Box::pin(async move {
            let encoded = EncodedRecord::new(record)?;
            let mut writing = self.writer.turn(chat.user, Durability::Process).await?;
            let result = replies::checkpoint(&mut writing, chat, record, &encoded).await;
            writing.release_after(result)
        })
    }

    fn grow_replies<'a>(&'a self, replies: &'a [GrownReply]) -> Pending<'a, ()> {
        Box::pin(async move {
            let rows = grown_texts::encoded(replies)?;
            let mut writing = self.writer.turn(STORE, Durability::Process).await?;
            let result = grown_texts::insert(writing.connection(), rows).await;
            writing.release_after(result)
        })
    }

    fn open_replies(&self) -> Pending<'_, Vec<OpenReply>> {
        read!(self, |connection| replies::open_all(connection))
    }

    fn open_replies_of<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<Record>> {
        read!(self, |connection| replies::open_in(connection, chat))
    }

    fn reply<'a>(
        &'a self,
        chat: ChatRef<'a>,
        message_id: &'a MessageId,
    ) -> Pending<'a, Option<Record>> {
        read!(self, |connection| replies::of_message(
            connection, chat, message_id
        ))
    }

    fn append_audit<'a>(&'a self, chat: ChatRef<'a>, audit: &'a [AuditEntry]) -> Pending<'a, ()> {
        write!(self, chat.user, Durability::Machine, |connection| {
            audit::append(connection, chat, audit)
        })
    }

    fn audit<'a>(&'a self, chat: ChatRef<'a>, page: AuditPage) -> Pending<'a, Vec<AuditRow>> {
        read!(self, |connection| audit::list(connection, chat, page))
    }

    fn audit_of_all<'a>(
        &'a self,
        of: AuditFilter<'a>,
        page: AuditPage,
    ) -> Pending<'a, Vec<AuditRow>> {
        read!(self, |connection| audit::list_all(connection, of, page))
    }

    fn has_refused<'a>(&'a self, chat: ChatRef<'a>, audit: &'a Audit) -> Pending<'a, bool> {
        read!(self, |connection| audit::has_refused(
            connection, chat, audit
        ))
    }

    fn audit_of_user<'a>(
        &'a self,
        user: &'a UserId,
        after: Option<(&'a ChatId, u64)>,
        limit: u32,
    ) -> Pending<'a, Vec<ChainedRow>> {
        read!(self, |connection| audit::of_user(
            connection, user, after, limit
        ))
    }

    fn add_seal<'a>(&'a self, seal: &'a Seal) -> Pending<'a, bool> {
        write!(self, STORE, Durability::Machine, |connection| seals::add(
            connection, seal
        ))
    }

    fn remove_audit(&self, limit: u32) -> Pending<'_, u64> {
        write!(self, STORE, Durability::Process, |connection| {
            seals::remove_rows(connection, limit)
        })
    }

    fn erase_reasons<'a>(&'a self, user: &'a UserId, limit: u32) -> Pending<'a, u64> {
        write!(self, user, Durability::Machine, |connection| {
            audit::erase_reasons(connection, user, limit)
        })
    }

    fn state<'a>(&'a self, chat: ChatRef<'a>, key: &'a str) -> Pending<'a, Option<Value>> {
        read!(self, |connection| tool_state::get(connection, chat, key))
    }

    fn update_state<'a>(
        &'a self,
        chat: ChatRef<'a>,
        key: &'a str,
        change: Change<'a>,
    ) -> Pending<'a, Value> {
        write!(self, chat.user, Durability::Machine, |connection| {
            tool_state::update(connection, chat, key, change)
        })
    }

    fn append_events<'a>(
        &'a self,
        chat: ChatRef<'a>,
        generation: u64,
        message_id: &'a MessageId,
        events: Vec<String>,
    ) -> Pending<'a, ()> {
        // The commit of the reply that they belong to follows and makes them durable with it.
        write!(self, chat.user, Durability::Process, |connection| {
            events::append(connection, chat, generation, message_id, events)
        })
    }

    fn events<'a>(&'a self, chat: ChatRef<'a>, generation: u64) -> Pending<'a, Vec<StoredEvent>> {
        read!(self, |connection| events::list(
            connection, chat, generation
        ))
    }

    fn add_file<'a>(&'a self, file: &'a FileRow) -> Pending<'a, ()> {
        write!(self, &file.user, Durability::Machine, |connection| {
            files::add(connection, file)
        })
    }

    fn file<'a>(&'a self, user: &'a UserId, id: &'a str) -> Pending<'a, Option<FileRow>> {
        read!(self, |connection| files::get(connection, Some(user), id))
    }

    fn any_file<'a>(&'a self, id: &'a str) -> Pending<'a, Option<FileRow>> {
        read!(self, |connection| files::get(connection, None, id))
    }

    fn secret<'a>(&'a self, name: &'a str, fresh: &'a [u8]) -> Pending<'a, Vec<u8>> {
        write!(self, STORE, Durability::Machine, |connection| {
            whole_store::secret(connection, name, fresh)
        })
    }

    fn files_of_user<'a>(
        &'a self,
        user: &'a UserId,
        after: &'a str,
        limit: u32,
    ) -> Pending<'a, Vec<FileRow>> {
        read!(self, |connection| files::of_user(
            connection, user, after, limit
        ))
    }

    fn old_chats(&self, before: Timestamp, after: u64, limit: u32) -> Pending<'_, Vec<OldChat>> {
        read!(self, |connection| chats::old(
            connection, before, after, limit
        ))
    }

    fn delete_old_files(
        &self,
        before: Timestamp,
        which: OldFiles,
        limit: u32,
    ) -> Pending<'_, Vec<DeletedFile>> {
        write!(self, STORE, Durability::Process, |connection| {
            files::delete_old(connection, before, which, limit)
        })
    }

    fn begin_job<'a>(&'a self, _: &'a str, _: Duration) -> Pending<'a, bool> {
        // There is one process.
        Box::pin(async { Ok(true) })
    }

    fn add_login<'a>(&'a self, login: &'a LoginRow, unused_since: Timestamp) -> Pending<'a, ()> {
        write!(self, &login.user, Durability::Machine, |connection| {
            logins::add(connection, login, unused_since)
        })
    }

    fn login<'a>(&'a self, id: &'a str) -> Pending<'a, Option<LoginRow>> {
        read!(self, |connection| logins::find(connection, id))
    }

    fn logins_of<'a>(&'a self, user: &'a UserId) -> Pending<'a, Vec<LoginRow>> {
        read!(self, |connection| logins::of_user(connection, user))
    }

    fn see_login<'a>(&'a self, id: &'a str, at: Timestamp) -> Pending<'a, ()> {
        write!(self, STORE, Durability::Process, |connection| {
            logins::see(connection, id, at)
        })
    }

    fn end_login<'a>(&'a self, id: &'a str) -> Pending<'a, ()> {
        write!(self, STORE, Durability::Machine, |connection| {
            logins::end(connection, id)
        })
    }

    fn end_logins_of<'a>(&'a self, user: &'a UserId) -> Pending<'a, u64> {
        write!(self, user, Durability::Machine, |connection| {
            logins::end_all_of(connection, user)
        })
    }

    fn count_usage<'a>(&'a self, chat: ChatRef<'a>, reply: ReplyUsage<'a>) -> Pending<'a, Spent> {
        write!(self, chat.user, Durability::Process, |connection| {
            usage::count(connection, chat, reply)
        })
    }

    fn usage_of_day<'a>(&'a self, user: &'a UserId, day: u64) -> Pending<'a, Vec<UsageRow>> {
        read!(self, |connection| usage::of_day(connection, user, day))
    }

    fn usage_of_user<'a>(
        &'a self,
        user: &'a UserId,
        after: Option<(u64, &'a str)>,
        limit: u32,
    ) -> Pending<'a, Vec<UsageRow>> {
        read!(self, |connection| usage::of_user(
            connection, user, after, limit
        ))
    }

    fn delete_old_usage(&self, before: u64, limit: u32) -> Pending<'_, u64> {
        write!(self, STORE, Durability::Process, |connection| {
            usage::delete_before(connection, before, limit)
        })
    }

    fn erase_usage<'a>(&'a self, user: &'a UserId) -> Pending<'a, u64> {
        write!(self, user, Durability::Machine, |connection| {
            usage::erase(connection, user)
        })
    }

    fn file_ids(&self) -> Pending<'_, Vec<String>> {
        read!(self, |connection| files::ids(connection))
    }

    fn deleted_files(&self) -> Pending<'_, Vec<String>> {
        read!(self, |connection| files::deleted(connection))
    }

    fn forget_deleted_files<'a>(&'a self, ids: &'a [String]) -> Pending<'a, ()> {
        write!(self, STORE, Durability::Process, |connection| {
            files::forget_deleted(connection, ids)
        })
    }

    fn identity(&self) -> Pending<'_, Identity> {
        Box::pin(async move {
            let mut reading = self.readers.begin().await?;
            let found = whole_store::identity(reading.connection()).await;
            let (id, is_empty) = reading.end(found)?;
            let place = self.path.clone();
            Ok(Identity {
                id,
                place,
                is_empty,
            })
        })
    }

    fn try_write(&self, now: Timestamp) -> Pending<'_, ()> {
        Box::pin(async move {
            self.writer.try_write(now).await?;
            // There may be more room than before.
            self.reserve.take();
            Ok(())
        })
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn stored_bytes(&self) -> Pending<'_, Vec<(UserId, u64)>> {
        read!(self, |connection| whole_store::stored_bytes(connection))
    }

    fn stored_bytes_of<'a>(&'a self, user: &'a UserId) -> Pending<'a, u64> {
        read!(self, |connection| whole_store::stored_bytes_of(
            connection, user
        ))
    }

    fn fenced(self: Arc<Self>, _: ChatRef<'_>, _: Epoch) -> Arc<dyn Store> {
        self
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.readers.close().await?;
            // The last connection to close brings the log into the database.
            self.writer.close().await
        })
    }
}

impl AuditTrail for SqliteStore {
    fn audit_state(&self) -> Pending<'_, AuditState> {
        read!(self, |connection| seals::state(connection))
    }

    fn audit_end(&self) -> Pending<'_, u64> {
        // There is one writer, so rows come in the order of their ids.
        read!(self, |connection| audit::end(connection))
    }

    fn audit_rows(&self, after: u64, limit: u32) -> Pending<'_, Vec<ChainedRow>> {
        read!(self, |connection| audit::all(connection, after, limit))
    }

    fn audit_seals(&self, after: u64, limit: u32) -> Pending<'_, Vec<Seal>> {
        read!(self, |connection| seals::list(connection, after, limit))
    }
}

/// The audit in a database that a server may be using, or none. Nothing is changed, and nothing is locked.
pub struct SqliteAudit {
    readers: Readers,
}

impl SqliteAudit {
    /// Opens a database of this version.
    pub async fn open(database: &Path) -> Result<Self, StoreError> {
        let database = look::real(database);
        let audit = Self {
            readers: Readers::of_unchanged(&database),
        };
        let mut reading = audit.readers.begin().await?;
        let found = seals::are_known(reading.connection()).await;
        match reading.end(found)? {
            true => Ok(audit),
            false => Err(StoreError::NotChained { database }),
        }
    }
}

impl AuditTrail for SqliteAudit {
    fn audit_state(&self) -> Pending<'_, AuditState> {
        read!(self, |connection| seals::state(connection))
    }

    fn audit_end(&self) -> Pending<'_, u64> {
        read!(self, |connection| audit::end(connection))
    }

    fn audit_rows(&self, after: u64, limit: u32) -> Pending<'_, Vec<ChainedRow>> {
        read!(self, |connection| audit::all(connection, after, limit))
    }

    fn audit_seals(&self, after: u64, limit: u32) -> Pending<'_, Vec<Seal>> {
        read!(self, |connection| seals::list(connection, after, limit))
    }
}

/// Decisions and running tools are on the disk before anything follows; text may be a moment behind.
fn durable(record: &Record, audit: &[AuditEntry]) -> Durability {
    if encoded::must_last(record, audit) {
        Durability::Machine
    } else {
        Durability::Process
    }
}

/// The name of a file that belongs to the database.
fn with_suffix(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
