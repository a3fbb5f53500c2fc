//! The history of a chat: added to at its end, cut, read in order.

use std::sync::Arc;

use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::time::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection};

use super::branches::SEEN;
use super::chats::{Addition, FoundChat};
use super::connection::Writing;
use super::replies::{NewReply, constraint, is_constraint};
use super::statement_batch::{StatementBatch, StatementResult};
use super::{branches, chats};
use crate::store::encoded::{UnparsedMessage, count, decode_message, encode, from_sql, to_sql};
use crate::store::page::{PAGE_MESSAGES, Places};
use crate::store::{
    Chat, ChatOverview, ChatRef, Conflict, Cut, Entity, HistorySize, MessagePage, Opening,
    StoreError, title_of,
};

/// How many messages are stored by one statement. A question is one; SQLite would take ten thousand, but it caches the
/// texts of statements.
const TOGETHER: usize = 50;

/// The size of a chat.
pub(super) async fn size(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<HistorySize, StoreError> {
    Ok(overview(connection, chat).await?.size)
}

/// The size of a chat, and its agent.
pub(super) async fn overview(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<ChatOverview, StoreError> {
    // The length in bytes is in the head of a row: no content is read for it. An open reply is loaded with what it has grown by.
    let row = sqlx::query(
        "SELECT count(seq), coalesce(sum(size), 0), coalesce(max(size), 0), coalesce(max(kept), 0),
                count(seq) FILTER (WHERE open = 1), max(agent)
         FROM (SELECT seq, open, agent, chats.bytes AS kept, octet_length(body) + CASE WHEN open = 1
                   THEN (SELECT coalesce(sum(octet_length(text)), 0) FROM grown_texts WHERE message = seq)
                   ELSE 0 END AS size
               FROM chats LEFT JOIN messages ON messages.chat = chats.key AND cut_in IS NULL
               WHERE user = ?1 AND chats.id = ?2)",
    )
    .bind(chat.user.as_str())
    .bind(chat.id.as_str())
    .fetch_one(connection)
    .await?;
    Ok(ChatOverview {
        size: HistorySize {
            messages: count(row.try_get(0)?),
            bytes: count(row.try_get(1)?),
            largest: count(row.try_get(2)?),
            kept: from_sql(row.try_get(3)?),
            open: count(row.try_get(4)?),
        },
        agent: row.try_get(5)?,
    })
}

pub(super) async fn rows(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<Vec<UnparsedMessage>, StoreError> {
    // A chat without messages is one row without a body; a chat that does not exist has no row.
    let rows = sqlx::query(AssertSqlSafe(format!(
        "SELECT seq, state, body, {SEEN}
         FROM chats LEFT JOIN messages ON messages.chat = chats.key AND cut_in IS NULL
         WHERE user = ?1 AND chats.id = ?2 ORDER BY seq",
    )))
    .bind(chat.user.as_str())
    .bind(chat.id.as_str())
    .fetch_all(connection)
    .await?;
    if rows.is_empty() {
        return Err(StoreError::NotFound(Entity::Chat));
    }
    unparsed(rows)
}

/// Which messages make a page, or nothing if there are no more.
pub(super) async fn places(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    page: MessagePage,
) -> Result<Option<Places>, StoreError> {
    let key = chats::key_of(connection, chat).await?;
    let rows = sqlx::query(
        "SELECT seq, octet_length(body) FROM messages
         WHERE chat = ?1 AND seq > ?2 AND cut_in IS NULL ORDER BY seq LIMIT ?3",
    )
    .bind(key)
    .bind(to_sql(page.after))
    .bind(PAGE_MESSAGES)
    .fetch_all(connection)
    .await?;
    let sizes = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, count(row.try_get(1)?))));
    Places::fitting(page, sizes)
}

pub(super) async fn rows_at(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    places: &Places,
) -> Result<Vec<UnparsedMessage>, StoreError> {
    let rows = sqlx::query(AssertSqlSafe(format!(
        "SELECT seq, state, body, {SEEN}
         FROM chats JOIN messages ON messages.chat = chats.key AND cut_in IS NULL
         WHERE user = ?1 AND chats.id = ?2 AND seq BETWEEN ?3 AND ?4 ORDER BY seq",
    )))
    .bind(chat.user.as_str())
    .bind(chat.id.as_str())
    .bind(places.first)
    .bind(places.last)
    .fetch_all(connection)
    .await?;
    unparsed(rows)
}

/// The messages in rows; the row of a chat without messages has none.
fn unparsed(rows: Vec<SqliteRow>) -> Result<Vec<UnparsedMessage>, StoreError> {
    rows.into_iter()
        .filter_map(|row| {
            let read = || {
                Ok(match row.try_get(2)? {
                    None => None,
                    Some(body) => Some(UnparsedMessage {
                        place: from_sql(row.try_get(0)?),
                        state: row.try_get(1)?,
                        body,
                        seen: row.try_get(3)?,
                    }),
                })
            };
            read().transpose()
        })
        .collect()
}

/// Overwrites a message that is not a reply.
pub(super) async fn revise(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    message: &Message,
) -> Result<(), StoreError> {
    let key = chats::key_of(connection, chat).await?;
    let before = sqlx::query(
        "SELECT body FROM messages WHERE chat = ?1 AND id = ?2 AND cut_in IS NULL AND reply IS NULL",
    )
    .bind(&key)
    .bind(message.id.as_str())
    .fetch_optional(&mut *connection)
    .await?
    .ok_or(StoreError::NotFound(Entity::Message))?;
    let before: String = before.try_get("body")?;
    let body = encode(message)?;
    let change = body.len() as i64 - before.len() as i64;
    let before = decode_message(&before, "a stored message")?;
    sqlx::query(
        "UPDATE messages SET body = ?3
         WHERE chat = ?1 AND id = ?2 AND cut_in IS NULL AND reply IS NULL",
    )
    .bind(&key)
    .bind(message.id.as_str())
    .bind(body)
    .execute(&mut *connection)
    .await?;
    sqlx::query("UPDATE chats SET bytes = bytes + ?2 WHERE key = ?1")
        .bind(&key)
        .bind(change)
        .execute(&mut *connection)
        .await?;
    if let Some(title) = title_of(message) {
        // A title from the message grows with it; one that the user chose stays.
        sqlx::query("UPDATE chats SET title = ?2 WHERE key = ?1 AND (title IS NULL OR title = ?3)")
            .bind(&key)
            .bind(title)
            .bind(title_of(&before))
            .execute(connection)
            .await?;
    }
    Ok(())
}

/// A message as it is stored.
pub(super) struct EncodedMessage<'m> {
    id: &'m MessageId,
    /// Shared with the statements that store it.
    body: Arc<str>,
    heard: bool,
}

impl<'m> EncodedMessage<'m> {
    fn all(messages: &'m [Message], heard: bool) -> Result<Vec<Self>, StoreError> {
        messages
            .iter()
            .map(|message| {
                Ok(Self {
                    id: &message.id,
                    body: encode(message)?.into(),
                    heard,
                })
            })
            .collect()
    }

    fn bytes(messages: &[Self]) -> usize {
        messages.iter().map(|message| message.body.len()).sum()
    }
}

/// Begins a transaction, marks the chat as changed, cuts its history and adds messages.
pub(super) async fn append(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    messages: &[Message],
    cut: Cut<'_>,
    now: Timestamp,
) -> Result<Chat, StoreError> {
    let title = messages.iter().find_map(title_of);
    let messages = EncodedMessage::all(messages, false)?;
    let addition = Addition {
        title: title.as_deref(),
        agent: None,
        bytes: EncodedMessage::bytes(&messages),
        now,
    };
    let begin = chats::touch(StatementBatch::begin(), chat, addition);
    let (found, _) = add(connection, begin, chat, &messages, cut, |batch| batch).await?;
    Ok(found.chat)
}

/// What begins a reply, ready to be stored.
pub(super) struct EncodedOpening<'o> {
    messages: Vec<EncodedMessage<'o>>,
    title: Option<String>,
    agent: Option<&'o str>,
    cut: Cut<'o>,
    reply: NewReply<'o>,
}

impl<'o> EncodedOpening<'o> {
    pub(super) fn new(opening: Opening<'o>, reply: NewReply<'o>) -> Result<Self, StoreError> {
        Ok(Self {
            messages: EncodedMessage::all(opening.messages, opening.heard)?,
            title: opening.messages.iter().find_map(title_of),
            agent: opening.agent,
            cut: opening.cut,
            reply,
        })
    }

    fn addition(&self, now: Timestamp) -> Addition<'_> {
        Addition {
            title: self.title.as_deref(),
            agent: self.agent,
            bytes: EncodedMessage::bytes(&self.messages) + self.reply.bytes(),
            now,
        }
    }
}

/// What a statement does if the id of a new message is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IfTaken {
    /// It fails, and so does its batch.
    Fail,
    /// It stores nothing.
    Skip,
}

/// Like [`append`], with the first commit of a reply at the end, and commits the transaction, all in one batch; creates
/// the chat if it does not exist. `None` if that is not possible: then nothing has changed, and [`begin`] says why.
pub(super) async fn begin_at_once(
    writing: &mut Writing<'_>,
    chat: ChatRef<'_>,
    opening: &EncodedOpening<'_>,
    now: Timestamp,
) -> Result<Option<Chat>, StoreError> {
    if opening.messages.len() > TOGETHER || opening.cut != Cut::Nothing {
        return Ok(None);
    }
    let begin = chats::make_or_touch(StatementBatch::begin(), chat, opening.addition(now));
    let batch = insert(begin, chat, &opening.messages, IfTaken::Fail);
    let batch = opening.reply.insert(batch, chat, IfTaken::Fail);
    match writing.run(batch.then("COMMIT")).await {
        Ok(done) => Ok(Some(chats::found_in(done.get(1))?.chat)),
        Err(error) if is_constraint(&error) => {
            sqlx::query("ROLLBACK")
                .execute(writing.connection())
                .await?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The same for every opening, without the commit.
pub(super) async fn begin(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    opening: &EncodedOpening<'_>,
    now: Timestamp,
) -> Result<FoundChat, StoreError> {
    let begin = chats::make_or_touch(StatementBatch::begin(), chat, opening.addition(now));
    let insert = |batch| opening.reply.insert(batch, chat, IfTaken::Skip);
    let (found, last) = add(
        connection,
        begin,
        chat,
        &opening.messages,
        opening.cut,
        insert,
    )
    .await?;
    match last {
        Some(done) if done.changed == 1 => Ok(found),
        _ => {
            let id = opening.reply.id.to_owned();
            Err(Conflict::MessageExists { id }.into())
        }
    }
}

/// Continues a transaction that touches the chat: cuts, adds, and runs the statement of `then` with the last messages.
/// Returns the result of that statement.
async fn add(
    connection: &mut SqliteConnection,
    begin: StatementBatch,
    chat: ChatRef<'_>,
    messages: &[EncodedMessage<'_>],
    cut: Cut<'_>,
    then: impl FnOnce(StatementBatch) -> StatementBatch,
) -> Result<(FoundChat, Option<StatementResult>), StoreError> {
    let mut found = None;
    let mut batch = begin;
    // What a question adds is part of the first batch; long histories and cuts are rare.
    if messages.len() > TOGETHER || cut != Cut::Nothing {
        found = Some(chats::found_in(batch.run(connection).await?.get(1))?);
        batch = StatementBatch::new();
    }
    let cut = match cut {
        Cut::Nothing => None,
        Cut::After(id) => self::cut(connection, chat, id, 1).await?,
        Cut::From(id) => self::cut(connection, chat, id, 0).await?,
        Cut::AllBut(places) => branches::show(connection, chat, places).await?,
    };
    let (rest, last) = messages.split_at(messages.len().saturating_sub(TOGETHER));
    for some in rest.chunks(TOGETHER) {
        let batch = insert(StatementBatch::new(), chat, some, IfTaken::Skip);
        let done = batch.run(connection).await.map_err(constraint)?;
        check_inserted(some, done.first())?;
    }
    let mut done = then(insert(batch, chat, last, IfTaken::Skip))
        .run(connection)
        .await
        .map_err(constraint)?
        .into_iter();
    let mut found = match found {
        Some(found) => found,
        // After the statement that begins the transaction.
        None => chats::found_in(done.nth(1).as_ref())?,
    };
    if let Some(generation) = cut {
        found.chat.generation = generation;
    }
    if !last.is_empty() {
        check_inserted(last, done.next().as_ref())?;
    }
    Ok((found, done.next()))
}

/// Adds a statement that puts messages at the end of a chat, if there are any.
fn insert(
    batch: StatementBatch,
    chat: ChatRef<'_>,
    messages: &[EncodedMessage<'_>],
    if_taken: IfTaken,
) -> StatementBatch {
    if messages.is_empty() {
        return batch;
    }
    let rows = vec!["((SELECT key FROM found), ?, 'done', ?, ?)"; messages.len()].join(", ");
    let skip = match if_taken {
        IfTaken::Fail => "",
        IfTaken::Skip => "ON CONFLICT DO NOTHING RETURNING id",
    };
    let batch = batch
        .then(format!(
            "WITH found AS (SELECT key FROM chats WHERE user = ? AND id = ?)
             INSERT INTO messages (chat, id, state, body, heard) VALUES {rows} {skip}"
        ))
        .bind(chat.user.as_str())
        .bind(chat.id.as_str());
    messages.iter().fold(batch, |batch, message| {
        let batch = batch.bind(message.id.as_str()).bind(message.body.clone());
        batch.bind(message.heard)
    })
}

fn check_inserted(
    messages: &[EncodedMessage<'_>],
    done: Option<&StatementResult>,
) -> Result<(), StoreError> {
    let inserted: Vec<&str> = done
        .into_iter()
        .flat_map(|done| &done.rows)
        .filter_map(|row| row.text(0))
        .collect();
    match messages
        .iter()
        .find(|message| !inserted.contains(&message.id.as_str()))
    {
        Some(message) => {
            let id = message.id.to_owned();
            Err(Conflict::MessageExists { id }.into())
        }
        None if inserted.len() < messages.len() => {
            // Two of them have the same id.
            let id = inserted.last().copied().unwrap_or_default().to_owned();
            Err(Conflict::MessageExists { id: id.into() }.into())
        }
        None => Ok(()),
    }
}

/// Hides the messages from `skip` after the one with this id. Returns the generation that begins with the cut.
async fn cut(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    id: &MessageId,
    skip: i64,
) -> Result<Option<u64>, StoreError> {
    let key = chats::key_of(connection, chat).await?;
    let at: i64 = sqlx::query_scalar(
        "SELECT seq FROM messages WHERE chat = ?1 AND id = ?2 AND cut_in IS NULL",
    )
    .bind(&key)
    .bind(id.as_str())
    .fetch_optional(&mut *connection)
    .await?
    .ok_or(StoreError::NotFound(Entity::Message))?;
    let first = at + skip;
    let open = sqlx::query("SELECT 1 FROM messages WHERE chat = ?1 AND open = 1 AND seq >= ?2")
        .bind(&key)
        .bind(first)
        .fetch_optional(&mut *connection)
        .await?;
    if open.is_some() {
        return Err(Conflict::ReplyOpen.into());
    }
    let hidden = sqlx::query(
        "UPDATE messages
         SET cut_in = (SELECT generation + 1 FROM chats WHERE key = messages.chat)
         WHERE chat = ?1 AND seq >= ?2 AND cut_in IS NULL",
    )
    .bind(&key)
    .bind(first)
    .execute(&mut *connection)
    .await?;
    if hidden.rows_affected() == 0 {
        return Ok(None);
    }
    branches::next_generation(connection, &key).await.map(Some)
}
