//! The history of a chat: added to at its end, cut, read in order.

use adk_bridge_protocol::approval::Time;
use adk_bridge_protocol::message::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{Row as _, SqliteConnection};

use super::journey::{Done, Journey};
use super::replies::{NewReply, constraint};
use super::{chats, from_sql};
use crate::store::{
    Chat, ChatRef, Conflict, Cut, MAX_BODY_BYTES, MessageState, Opening, StoreError, StoredMessage,
    Thing, title_of,
};

/// A history up to this size is parsed where it is read; a longer one would keep other chats waiting.
const PARSE_IN_PLACE: usize = 64 * 1024;

/// How many messages are stored by one statement. A question is one; SQLite takes ten thousand, and the texts of
/// statements are kept.
const TOGETHER: usize = 50;

/// A message that has not been parsed.
pub(super) struct Row {
    state: String,
    body: String,
}

pub(super) async fn rows(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<Vec<Row>, StoreError> {
    // A chat without messages is one row without a body; one that is not there is none.
    let rows = sqlx::query(
        "SELECT state, body FROM chats
         LEFT JOIN messages ON messages.chat_id = chats.id AND cut_in IS NULL
         WHERE chats.id = ?1 AND user = ?2 ORDER BY seq",
    )
    .bind(chat.id)
    .bind(chat.user)
    .fetch_all(connection)
    .await?;
    if rows.is_empty() {
        return Err(StoreError::NotFound(Thing::Chat));
    }
    rows.into_iter()
        .filter_map(|row| {
            let read = || {
                Ok(match row.try_get(1)? {
                    None => None,
                    Some(body) => Some(Row {
                        state: row.try_get(0)?,
                        body,
                    }),
                })
            };
            read().transpose()
        })
        .collect()
}

pub(super) async fn parse(rows: Vec<Row>) -> Result<Vec<StoredMessage>, StoreError> {
    let parse = |rows: Vec<Row>| {
        rows.into_iter()
            .map(|row| {
                Ok(StoredMessage {
                    message: decode(&row.body, "a stored message")?,
                    state: MessageState::from_word(&row.state)?,
                })
            })
            .collect()
    };
    if rows.iter().map(|row| row.body.len()).sum::<usize>() <= PARSE_IN_PLACE {
        return parse(rows);
    }
    tokio::task::spawn_blocking(move || parse(rows))
        .await
        .map_err(|error| StoreError::Io {
            doing: "parsing the history",
            why: Box::new(error),
        })?
}

/// Writes over a message that is no reply.
pub(super) async fn revise(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    message: &Message,
) -> Result<(), StoreError> {
    chats::check(connection, chat).await?;
    let before = sqlx::query(
        "SELECT body FROM messages WHERE chat_id = ?1 AND id = ?2 AND cut_in IS NULL AND reply IS NULL",
    )
    .bind(chat.id)
    .bind(&message.id)
    .fetch_optional(&mut *connection)
    .await?
    .ok_or(StoreError::NotFound(Thing::Message))?;
    let before: Message = decode(before.try_get("body")?, "a stored message")?;
    sqlx::query("UPDATE messages SET body = ?3 WHERE chat_id = ?1 AND id = ?2")
        .bind(chat.id)
        .bind(&message.id)
        .bind(encode(message)?)
        .execute(&mut *connection)
        .await?;
    if let Some(title) = title_of(message) {
        // A title that the message gave grows with it; one that the user gave stays.
        sqlx::query("UPDATE chats SET title = ?2 WHERE id = ?1 AND (title IS NULL OR title = ?3)")
            .bind(chat.id)
            .bind(title)
            .bind(title_of(&before))
            .execute(connection)
            .await?;
    }
    Ok(())
}

/// Begins a transaction, marks the chat as changed, cuts its history and adds messages.
pub(super) async fn append(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    messages: &[Message],
    cut: Cut<'_>,
    now: Time,
) -> Result<Chat, StoreError> {
    let title = messages.iter().find_map(title_of);
    let begin = chats::touch(Journey::begin(), chat, title.as_deref(), now);
    let (chat, _) = add(connection, begin, chat, messages, cut, |journey| journey).await?;
    Ok(chat)
}

/// As [`append`], with the first commit of a reply at the end; a chat that is not there is made.
pub(super) async fn begin(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    Opening { messages, cut }: Opening<'_>,
    reply: NewReply<'_>,
    now: Time,
) -> Result<Chat, StoreError> {
    let title = messages.iter().find_map(title_of);
    let begin = chats::make_or_touch(Journey::begin(), chat, title.as_deref(), now);
    let id = reply.id;
    let insert = |journey| reply.insert(journey, chat);
    let (chat, last) = add(connection, begin, chat, messages, cut, insert).await?;
    match last {
        Some(done) if done.changed == 1 => Ok(chat),
        _ => Err(Conflict::MessageExists { id: id.to_owned() }.into()),
    }
}

/// Goes on with a transaction that touches the chat: cuts, adds, and does what `then` says with the last messages.
/// Returns what came of its statement.
async fn add(
    connection: &mut SqliteConnection,
    begin: Journey,
    chat: ChatRef<'_>,
    messages: &[Message],
    cut: Cut<'_>,
    then: impl FnOnce(Journey) -> Journey,
) -> Result<(Chat, Option<Done>), StoreError> {
    let mut found = None;
    let mut journey = begin;
    // What a question adds goes with the first journey; long histories and cuts are rare.
    if messages.len() > TOGETHER || cut != Cut::Nothing {
        found = Some(chats::found_in(journey.run(connection).await?.get(1))?);
        journey = Journey::new();
    }
    let cut = match cut {
        Cut::Nothing => None,
        Cut::After(id) => self::cut(connection, chat, id, 1).await?,
        Cut::From(id) => self::cut(connection, chat, id, 0).await?,
    };
    let (rest, last) = messages.split_at(messages.len().saturating_sub(TOGETHER));
    for some in rest.chunks(TOGETHER) {
        let journey = insert(Journey::new(), chat, some)?;
        let done = journey.run(connection).await.map_err(constraint)?;
        check_inserted(some, done.first())?;
    }
    let mut done = then(insert(journey, chat, last)?)
        .run(connection)
        .await
        .map_err(constraint)?
        .into_iter();
    let mut found = match found {
        Some(found) => found,
        // Behind the beginning of the transaction.
        None => chats::found_in(done.nth(1).as_ref())?,
    };
    if let Some(generation) = cut {
        found.generation = generation;
    }
    if !last.is_empty() {
        check_inserted(last, done.next().as_ref())?;
    }
    Ok((found, done.next()))
}

/// Adds a statement that puts messages at the end of a chat, if there are any.
fn insert(
    journey: Journey,
    chat: ChatRef<'_>,
    messages: &[Message],
) -> Result<Journey, StoreError> {
    if messages.is_empty() {
        return Ok(journey);
    }
    let rows = vec!["(?, ?, 'done', ?)"; messages.len()].join(", ");
    let journey = journey.then(&format!(
        "INSERT INTO messages (chat_id, id, state, body) VALUES {rows}
         ON CONFLICT DO NOTHING RETURNING id"
    ));
    messages.iter().try_fold(journey, |journey, message| {
        let body = encode(message)?;
        Ok(journey.bind(chat.id).bind(&message.id).bind(body))
    })
}

fn check_inserted(messages: &[Message], done: Option<&Done>) -> Result<(), StoreError> {
    let inserted: Vec<&str> = done
        .into_iter()
        .flat_map(|done| &done.rows)
        .map(|row| row.try_get(0))
        .collect::<Result<_, sqlx::Error>>()?;
    match messages
        .iter()
        .find(|message| !inserted.contains(&&*message.id))
    {
        Some(message) => {
            let id = message.id.clone();
            Err(Conflict::MessageExists { id }.into())
        }
        None if inserted.len() < messages.len() => {
            // Two of them have the same id.
            let id = inserted.last().copied().unwrap_or_default().to_owned();
            Err(Conflict::MessageExists { id }.into())
        }
        None => Ok(()),
    }
}

/// Hides the messages from `skip` behind the one with this id. Returns the generation that begins with it.
async fn cut(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    id: &str,
    skip: i64,
) -> Result<Option<u64>, StoreError> {
    let at: i64 = sqlx::query_scalar(
        "SELECT seq FROM messages WHERE chat_id = ?1 AND id = ?2 AND cut_in IS NULL",
    )
    .bind(chat.id)
    .bind(id)
    .fetch_optional(&mut *connection)
    .await?
    .ok_or(StoreError::NotFound(Thing::Message))?;
    let first = at + skip;
    let open = sqlx::query("SELECT 1 FROM messages WHERE chat_id = ?1 AND open = 1 AND seq >= ?2")
        .bind(chat.id)
        .bind(first)
        .fetch_optional(&mut *connection)
        .await?;
    if open.is_some() {
        return Err(Conflict::ReplyOpen.into());
    }
    let hidden = sqlx::query(
        "UPDATE messages
         SET cut_in = (SELECT generation + 1 FROM chats WHERE chats.id = messages.chat_id)
         WHERE chat_id = ?1 AND seq >= ?2 AND cut_in IS NULL",
    )
    .bind(chat.id)
    .bind(first)
    .execute(&mut *connection)
    .await?;
    if hidden.rows_affected() == 0 {
        return Ok(None);
    }
    let generation: i64 = sqlx::query_scalar(
        "UPDATE chats SET generation = generation + 1 WHERE id = ?1 RETURNING generation",
    )
    .bind(chat.id)
    .fetch_one(connection)
    .await?;
    Ok(Some(from_sql(generation)))
}

impl MessageState {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Waiting => "waiting",
            Self::Running => "running",
        }
    }

    fn from_word(word: &str) -> Result<Self, StoreError> {
        [Self::Done, Self::Waiting, Self::Running]
            .into_iter()
            .find(|state| state.word() == word)
            .ok_or_else(|| StoreError::Corrupt {
                what: format!("the state {word} of a stored message"),
            })
    }
}

/// Writes a value as JSON that is stored in one piece.
pub(super) fn encode(value: &impl Serialize) -> Result<String, StoreError> {
    let json = serde_json::to_string(value).map_err(|error| StoreError::Io {
        doing: "writing JSON",
        why: Box::new(error),
    })?;
    fits(json.len())?;
    Ok(json)
}

/// Reads stored JSON; `what` names it where it is broken. How deep a value may be was decided when it came in: inside of
/// a message it lies deeper than it did in the request.
pub(super) fn decode<T: DeserializeOwned>(json: &str, what: &str) -> Result<T, StoreError> {
    let mut reader = serde_json::Deserializer::from_str(json);
    reader.disable_recursion_limit();
    T::deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| StoreError::Corrupt {
            what: format!("{what} ({error})"),
        })
}

/// Refuses what cannot be kept in one piece.
pub(super) fn fits(bytes: usize) -> Result<(), StoreError> {
    if bytes > MAX_BODY_BYTES {
        return Err(StoreError::TooLarge {
            bytes,
            limit: MAX_BODY_BYTES,
        });
    }
    Ok(())
}
