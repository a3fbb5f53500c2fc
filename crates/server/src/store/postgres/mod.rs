//! The store in PostgreSQL, which several replicas share.
//!
//! A method is one statement, most often a call of a function in `migrations/postgres`, so that a turn costs few journeys
//! and a process that is stopped in the middle of one holds no locks. Nothing depends on a session: a pooler may give every
//! transaction to another server process.

mod chats;
mod connection;
mod error;
mod grown_texts;
mod logins;
mod messages;
mod migrations;
mod ownership;
mod records;
mod replies;
mod seals;
mod text;
mod tool_state;
mod usage;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use adk_bridge_protocol::id::{ChatId, MessageId, UserId};
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::Audit;
use adk_bridge_protocol::reply::Record;
use adk_bridge_protocol::time::Timestamp;
use serde_json::Value;
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgRow};
use url::Url;
use uuid::Uuid;

use super::encoded;
use super::{
    AuditEntry, AuditFilter, AuditPage, AuditRow, Change, Chat, ChatCursor, ChatOverview, ChatRef,
    CommittedSize, Cut, DeletedFile, FileRow, GrownReply, HistorySize, Identity, ListedChat,
    LoginRow, MessagePage, OldChat, OldFiles, OpenReply, Opening, OutlineEntry, Pending,
    ReplyUsage, Spent, Store, StoreError, StoredEvent, StoredMessage, UsageRow,
};
use crate::audit::chain::ChainedRow;
use crate::audit::seal::Seal;
use crate::audit::{AuditState, AuditTrail};
use crate::cluster::Epoch;
use crate::parsing::{self, Room};
use connection::{Connections, Intent};

pub use migrations::Looked;

pub(super) use connection::Statement;
pub(crate) use text::stored;

/// How long a test write waits: a health check needs a quick answer.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);

/// The parameters of a URL that we know. Another one may be a misspelt password, and is not repeated in any message.
const PARAMETERS: [&str; 14] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "ssl-mode",
    "statement-cache-capacity",
    "user",
];

/// A database in PostgreSQL, as the configuration names it.
pub struct PostgresConfig<'c> {
    /// `postgres://user:password@host:port/database?…`.
    pub url: &'c str,
    /// How many connections are kept at most.
    pub connections: usize,
    /// Whether statements are prepared once for a connection; found out if it is not said.
    pub prepared_statements: Option<bool>,
}

/// The store, or the same store for the owner of a chat.
pub struct PostgresStore {
    shared: Arc<Shared>,
    fence: Option<Fence>,
}

struct Shared {
    connections: Connections,
    /// Of its own, so that a sign of life never waits for a chat.
    heartbeats: Connections,
    numbers: AtomicU64,
    /// The database without its password.
    place: String,
}

/// The chat that is written to in an epoch only.
struct Fence {
    user: UserId,
    chat_id: ChatId,
    epoch: Epoch,
}

impl PostgresStore {
    /// Looks at a database and changes nothing.
    pub async fn look(url: &str) -> Result<Looked, StoreError> {
        let (options, place) = options(url)?;
        migrations::look(&options, &place).await
    }

    /// Connects, and brings the schema up to date.
    pub async fn open(config: PostgresConfig<'_>) -> Result<Self, StoreError> {
        let store = Self::open_unfinished(config).await?;
        match records::is_unfinished(&store).await? {
            false => Ok(store),
            true => Err(StoreError::Unfinished {
                database: store.shared.place.clone().into(),
            }),
        }
    }

    /// The same for whoever moves a store here.
    pub(super) async fn open_unfinished(config: PostgresConfig<'_>) -> Result<Self, StoreError> {
        let (options, place) = options(config.url)?;
        migrations::apply(&options, &place).await?;
        Self::connect(config, options, place).await
    }

    /// The same for whoever only reads the audit: the schema stays as it is.
    pub async fn open_audit(config: PostgresConfig<'_>) -> Result<Self, StoreError> {
        let (options, place) = options(config.url)?;
        let store = Self::connect(config, options, place).await?;
        seals::check_known(&store).await?;
        Ok(store)
    }

    async fn connect(
        config: PostgresConfig<'_>,
        options: PgConnectOptions,
        place: String,
    ) -> Result<Self, StoreError> {
        let prepares = match config.prepared_statements {
            Some(given) => given,
            None => {
                let keeps = connection::keeps_its_process(&options).await?;
                if !keeps {
                    tracing::info!(
                        "the database is reached through a connection pooler that changes connections between \
                         transactions: statements are prepared again each time"
                    );
                }
                keeps
            }
        };
        Ok(Self {
            shared: Arc::new(Shared {
                connections: Connections::new(options.clone(), config.connections, prepares),
                heartbeats: Connections::new(options, 1, prepares),
                numbers: AtomicU64::new(1),
                place,
            }),
            fence: None,
        })
    }

    async fn read<'s>(
        &self,
        statement: impl Fn() -> Statement<'s>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let connections = &self.shared.connections;
        connections.fetch(Intent::Read, statement).await
    }

    async fn write<'s>(
        &self,
        statement: impl Fn() -> Statement<'s>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let connections = &self.shared.connections;
        connections.fetch(Intent::Write, statement).await
    }

    /// Orders the writes of a chat's owner by when they were asked for.
    fn next_number(&self) -> i64 {
        encoded::to_sql(self.shared.numbers.fetch_add(1, Relaxed))
    }

    /// The epoch in which a chat has to be, for SQL.
    fn epoch(&self, chat: ChatRef<'_>) -> Option<i64> {
        let fence = self.fence.as_ref()?;
        (fence.user == *chat.user && fence.chat_id == *chat.id)
            .then(|| encoded::to_sql(fence.epoch.get()))
    }
}

/// How to connect, and the name of the database without its password.
pub(super) fn options(url: &str) -> Result<(PgConnectOptions, String), StoreError> {
    let unusable = |why: &str| StoreError::Io {
        doing: "reading store.url",
        why: why.into(),
    };
    let parsed = Url::parse(url).map_err(|error| unusable(&error.to_string()))?;
    for (name, _) in parsed.query_pairs() {
        let known = name.starts_with("options[") || PARAMETERS.contains(&&*name);
        if !known {
            return Err(unusable(
                "it has a parameter that is not known; the known ones are sslmode, sslrootcert, sslcert, sslkey, host, \
                 port, user, password, dbname, application_name and options",
            ));
        }
    }
    let options = PgConnectOptions::from_url(&parsed)
        .map_err(|_| unusable("write postgres://USER:PASSWORD@HOST:PORT/DATABASE"))?
        // Statements hold conversations.
        .disable_statement_logging()
        // Poolers refuse what they do not know.
        .extra_float_digits(None);
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("adk-bridge"),
    };
    let place = match options.get_database() {
        Some(database) => format!("{}/{database}", options.get_host()),
        None => options.get_host().to_owned(),
    };
    Ok((options, format!("postgres://{place}")))
}

/// Names a write, so that repeating it is noticed.
fn write_name() -> String {
    Uuid::new_v4().to_string()
}

impl Store for PostgresStore {
    fn create_chat<'a>(&'a self, chat: ChatRef<'a>, now: Timestamp) -> Pending<'a, Chat> {
        Box::pin(chats::create(self, chat, now))
    }

    fn chat<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Option<Chat>> {
        Box::pin(chats::find(self, chat))
    }

    fn list_chats<'a>(
        &'a self,
        user: &'a UserId,
        limit: u32,
        before: Option<ChatCursor<'a>>,
    ) -> Pending<'a, Vec<ListedChat>> {
        Box::pin(chats::list(self, user, limit, before))
    }

    fn titles<'a>(
        &'a self,
        user: &'a UserId,
        limit: u32,
        before: Option<ChatCursor<'a>>,
    ) -> Pending<'a, Vec<Chat>> {
        Box::pin(chats::titles(self, user, limit, before))
    }

    fn listed<'a>(&'a self, user: &'a UserId, ids: &'a [ChatId]) -> Pending<'a, Vec<ListedChat>> {
        Box::pin(chats::listed(self, user, ids))
    }

    fn set_title<'a>(&'a self, chat: ChatRef<'a>, title: &'a str) -> Pending<'a, ()> {
        Box::pin(chats::set_title(self, chat, title))
    }

    fn delete_chat<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<String>> {
        Box::pin(chats::delete(self, chat))
    }

    fn history_size<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, HistorySize> {
        Box::pin(async move { Ok(messages::overview(self, chat).await?.size) })
    }

    fn overview<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, ChatOverview> {
        Box::pin(messages::overview(self, chat))
    }

    fn messages<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<StoredMessage>> {
        Box::pin(async move {
            let bytes = messages::overview(self, chat).await?.size.bytes;
            let room = room_for(bytes).await?;
            encoded::parse(messages::rows(self, chat).await?, room).await
        })
    }

    fn messages_after<'a>(
        &'a self,
        chat: ChatRef<'a>,
        page: MessagePage,
    ) -> Pending<'a, Vec<StoredMessage>> {
        Box::pin(async move {
            let Some(places) = messages::places(self, chat, page).await? else {
                return Ok(Vec::new());
            };
            let room = room_for(places.bytes).await?;
            encoded::parse(messages::rows_at(self, chat, &places).await?, room).await
        })
    }

    fn outline<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<OutlineEntry>> {
        Box::pin(messages::outline(self, chat))
    }

    fn message_at<'a>(&'a self, chat: ChatRef<'a>, place: u64) -> Pending<'a, Option<Message>> {
        Box::pin(messages::at(self, chat, place))
    }

    fn mark_seen<'a>(&'a self, chat: ChatRef<'a>, ids: &'a [MessageId]) -> Pending<'a, ()> {
        Box::pin(messages::mark_seen(self, chat, ids))
    }

    fn append<'a>(
        &'a self,
        chat: ChatRef<'a>,
        messages: &'a [Message],
        cut: Cut<'a>,
        now: Timestamp,
    ) -> Pending<'a, Chat> {
        Box::pin(messages::append(self, chat, messages, cut, now))
    }

    fn begin<'a>(
        &'a self,
        chat: ChatRef<'a>,
        opening: Opening<'a>,
        record: &'a Record,
        audit: &'a [AuditEntry],
        now: Timestamp,
    ) -> Pending<'a, Chat> {
        Box::pin(replies::begin(self, chat, opening, record, audit, now))
    }

    fn revise<'a>(&'a self, chat: ChatRef<'a>, message: &'a Message) -> Pending<'a, ()> {
        Box::pin(messages::revise(self, chat, message))
    }

    fn commit<'a>(
        &'a self,
        chat: ChatRef<'a>,
        record: &'a Record,
        audit: &'a [AuditEntry],
        now: Timestamp,
    ) -> Pending<'a, CommittedSize> {
        Box::pin(replies::commit(self, chat, record, audit, now))
    }

    fn checkpoint<'a>(&'a self, chat: ChatRef<'a>, record: &'a Record) -> Pending<'a, ()> {
        Box::pin(replies::checkpoint(self, chat, record))
    }

    fn grow_replies<'a>(&'a self, replies: &'a [GrownReply]) -> Pending<'a, ()> {
        Box::pin(grown_texts::insert(self, replies))
    }

    fn open_replies(&self) -> Pending<'_, Vec<OpenReply>> {
        Box::pin(replies::open_all(self))
    }

    fn open_replies_of<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Vec<Record>> {
        Box::pin(replies::open_in(self, chat))
    }

    fn reply<'a>(
        &'a self,
        chat: ChatRef<'a>,
        message_id: &'a MessageId,
    ) -> Pending<'a, Option<Record>> {
        Box::pin(replies::of_message(self, chat, message_id))
    }

    fn append_audit<'a>(&'a self, chat: ChatRef<'a>, audit: &'a [AuditEntry]) -> Pending<'a, ()> {
        Box::pin(records::append_audit(self, chat, audit))
    }

    fn audit<'a>(&'a self, chat: ChatRef<'a>, page: AuditPage) -> Pending<'a, Vec<AuditRow>> {
        Box::pin(records::audit(self, chat, page))
    }

    fn audit_of_all<'a>(
        &'a self,
        of: AuditFilter<'a>,
        page: AuditPage,
    ) -> Pending<'a, Vec<AuditRow>> {
        Box::pin(records::audit_of_all(self, of, page))
    }

    fn has_refused<'a>(&'a self, chat: ChatRef<'a>, audit: &'a Audit) -> Pending<'a, bool> {
        Box::pin(records::has_refused(self, chat, audit))
    }

    fn audit_of_user<'a>(
        &'a self,
        user: &'a UserId,
        after: Option<(&'a ChatId, u64)>,
        limit: u32,
    ) -> Pending<'a, Vec<ChainedRow>> {
        Box::pin(seals::of_user(self, user, after, limit))
    }

    fn add_seal<'a>(&'a self, seal: &'a Seal) -> Pending<'a, bool> {
        Box::pin(seals::add(self, seal))
    }

    fn remove_audit(&self, limit: u32) -> Pending<'_, u64> {
        Box::pin(seals::remove_rows(self, limit))
    }

    fn erase_reasons<'a>(&'a self, user: &'a UserId, limit: u32) -> Pending<'a, u64> {
        Box::pin(seals::erase_reasons(self, user, limit))
    }

    fn state<'a>(&'a self, chat: ChatRef<'a>, key: &'a str) -> Pending<'a, Option<Value>> {
        Box::pin(tool_state::get(self, chat, key))
    }

    fn update_state<'a>(
        &'a self,
        chat: ChatRef<'a>,
        key: &'a str,
        change: Change<'a>,
    ) -> Pending<'a, Value> {
        Box::pin(tool_state::update(self, chat, key, change))
    }

    fn append_events<'a>(
        &'a self,
        chat: ChatRef<'a>,
        generation: u64,
        message_id: &'a MessageId,
        events: Vec<String>,
    ) -> Pending<'a, ()> {
        Box::pin(records::append_events(
            self, chat, generation, message_id, events,
        ))
    }

    fn events<'a>(&'a self, chat: ChatRef<'a>, generation: u64) -> Pending<'a, Vec<StoredEvent>> {
        Box::pin(records::events(self, chat, generation))
    }

    fn add_file<'a>(&'a self, file: &'a FileRow) -> Pending<'a, ()> {
        Box::pin(records::add_file(self, file))
    }

    fn file<'a>(&'a self, user: &'a UserId, id: &'a str) -> Pending<'a, Option<FileRow>> {
        Box::pin(records::file(self, Some(user), id))
    }

    fn any_file<'a>(&'a self, id: &'a str) -> Pending<'a, Option<FileRow>> {
        Box::pin(records::file(self, None, id))
    }

    fn secret<'a>(&'a self, name: &'a str, fresh: &'a [u8]) -> Pending<'a, Vec<u8>> {
        Box::pin(records::secret(self, name, fresh))
    }

    fn files_of_user<'a>(
        &'a self,
        user: &'a UserId,
        after: &'a str,
        limit: u32,
    ) -> Pending<'a, Vec<FileRow>> {
        Box::pin(records::files_of_user(self, user, after, limit))
    }

    fn old_chats(&self, before: Timestamp, after: u64, limit: u32) -> Pending<'_, Vec<OldChat>> {
        Box::pin(chats::old(self, before, after, limit))
    }

    fn delete_old_files(
        &self,
        before: Timestamp,
        which: OldFiles,
        limit: u32,
    ) -> Pending<'_, Vec<DeletedFile>> {
        Box::pin(records::delete_old_files(self, before, which, limit))
    }

    fn begin_job<'a>(&'a self, name: &'a str, hold: Duration) -> Pending<'a, bool> {
        Box::pin(records::begin_job(self, name, hold))
    }

    fn add_login<'a>(&'a self, login: &'a LoginRow, unused_since: Timestamp) -> Pending<'a, ()> {
        Box::pin(logins::add(self, login, unused_since))
    }

    fn login<'a>(&'a self, id: &'a str) -> Pending<'a, Option<LoginRow>> {
        Box::pin(logins::find(self, id))
    }

    fn logins_of<'a>(&'a self, user: &'a UserId) -> Pending<'a, Vec<LoginRow>> {
        Box::pin(logins::of_user(self, user))
    }

    fn see_login<'a>(&'a self, id: &'a str, at: Timestamp) -> Pending<'a, ()> {
        Box::pin(logins::see(self, id, at))
    }

    fn end_login<'a>(&'a self, id: &'a str) -> Pending<'a, ()> {
        Box::pin(logins::end(self, id))
    }

    fn end_logins_of<'a>(&'a self, user: &'a UserId) -> Pending<'a, u64> {
        Box::pin(logins::end_all_of(self, user))
    }

    fn count_usage<'a>(&'a self, chat: ChatRef<'a>, reply: ReplyUsage<'a>) -> Pending<'a, Spent> {
        Box::pin(usage::count(self, chat, reply))
    }

    fn usage_of_day<'a>(&'a self, user: &'a UserId, day: u64) -> Pending<'a, Vec<UsageRow>> {
        Box::pin(usage::of_day(self, user, day))
    }

    fn usage_of_user<'a>(
        &'a self,
        user: &'a UserId,
        after: Option<(u64, &'a str)>,
        limit: u32,
    ) -> Pending<'a, Vec<UsageRow>> {
        Box::pin(usage::of_user(self, user, after, limit))
    }

    fn delete_old_usage(&self, before: u64, limit: u32) -> Pending<'_, u64> {
        Box::pin(usage::delete_before(self, before, limit))
    }

    fn erase_usage<'a>(&'a self, user: &'a UserId) -> Pending<'a, u64> {
        Box::pin(usage::erase(self, user))
    }

    fn file_ids(&self) -> Pending<'_, Vec<String>> {
        Box::pin(records::file_ids(self))
    }

    fn deleted_files(&self) -> Pending<'_, Vec<String>> {
        Box::pin(records::deleted_files(self))
    }

    fn forget_deleted_files<'a>(&'a self, ids: &'a [String]) -> Pending<'a, ()> {
        Box::pin(records::forget_deleted_files(self, ids))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn stored_bytes(&self) -> Pending<'_, Vec<(UserId, u64)>> {
        Box::pin(records::stored_bytes(self))
    }

    fn stored_bytes_of<'a>(&'a self, user: &'a UserId) -> Pending<'a, u64> {
        Box::pin(records::stored_bytes_of(self, user))
    }

    fn identity(&self) -> Pending<'_, Identity> {
        Box::pin(async move {
            let (id, is_empty) = records::identity(self).await?;
            Ok(Identity {
                id,
                place: PathBuf::from(&self.shared.place),
                is_empty,
            })
        })
    }

    fn try_write(&self, now: Timestamp) -> Pending<'_, ()> {
        Box::pin(async move {
            let statement = sqlx::query("UPDATE adk_bridge.store SET tried_at = $1")
                .bind(encoded::to_sql(now.as_millis()));
            let connections = &self.shared.connections;
            connections.fetch_once(statement, TRY_TIMEOUT).await?;
            Ok(())
        })
    }

    fn fenced(self: Arc<Self>, chat: ChatRef<'_>, epoch: Epoch) -> Arc<dyn Store> {
        Arc::new(Self {
            shared: self.shared.clone(),
            fence: Some(Fence {
                user: chat.user.clone(),
                chat_id: chat.id.clone(),
                epoch,
            }),
        })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            tokio::join!(
                self.shared.connections.close(),
                self.shared.heartbeats.close()
            );
            Ok(())
        })
    }
}

impl AuditTrail for PostgresStore {
    fn audit_state(&self) -> Pending<'_, AuditState> {
        Box::pin(seals::state(self))
    }

    fn audit_end(&self) -> Pending<'_, u64> {
        Box::pin(seals::end(self))
    }

    fn audit_rows(&self, after: u64, limit: u32) -> Pending<'_, Vec<ChainedRow>> {
        Box::pin(seals::all(self, after, limit))
    }

    fn audit_seals(&self, after: u64, limit: u32) -> Pending<'_, Vec<Seal>> {
        Box::pin(seals::list(self, after, limit))
    }
}

/// Room for a history that is large; nothing is loaded before there is room for it.
async fn room_for(bytes: usize) -> Result<Room, StoreError> {
    match parsing::is_large(bytes) {
        true => parsing::room_for(bytes).await.map_err(encoded::unread),
        false => Ok(Room::default()),
    }
}
