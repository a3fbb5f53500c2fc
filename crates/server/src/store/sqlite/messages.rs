//! The history of a chat: added to at its end, cut, read in order.

use adk_bridge_protocol::approval::Time;
use adk_bridge_protocol::message::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{Row as _, SqliteConnection};

use super::chats;
use crate::store::{
    Chat, ChatRef, Conflict, Cut, MAX_BODY_BYTES, MessageState, StoreError, StoredMessage, Thing,
    title_of,
};

/// A history up to this size is parsed where it is read; a longer one would keep other chats waiting.
const PARSE_IN_PLACE: usize = 64 * 1024;

/// A message that has not been parsed.
pub(super) struct Row {
    state: String,
    body: String,
}

pub(super) async fn rows(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
) -> Result<Vec<Row>, StoreError> {
    chats::check(connection, chat).await?;
    sqlx::query(
        "SELECT state, body FROM messages WHERE chat_id = ?1 AND cut_in IS NULL ORDER BY seq",
    )
    .bind(chat.id)
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(|row| {
        Ok(Row {
            state: row.try_get(0)?,
            body: row.try_get(1)?,
        })
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
            source: Box::new(error),
        })?
}

pub(super) async fn append(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    messages: &[Message],
    cut: Cut<'_>,
    now: Time,
) -> Result<Chat, StoreError> {
    chats::touch(connection, chat, now).await?;
    match cut {
        Cut::Nothing => {}
        Cut::After(id) => self::cut(connection, chat, id, 1).await?,
        Cut::From(id) => self::cut(connection, chat, id, 0).await?,
    }
    for message in messages {
        let body = encode(message)?;
        let inserted = sqlx::query(
            "INSERT INTO messages (chat_id, id, state, body) VALUES (?1, ?2, 'done', ?3)
             ON CONFLICT DO NOTHING",
        )
        .bind(chat.id)
        .bind(&message.id)
        .bind(body)
        .execute(&mut *connection)
        .await?;
        if inserted.rows_affected() == 0 {
            let id = message.id.clone();
            return Err(Conflict::MessageExists { id }.into());
        }
    }
    if let Some(title) = messages.iter().find_map(title_of) {
        sqlx::query("UPDATE chats SET title = ?2 WHERE id = ?1 AND title IS NULL")
            .bind(chat.id)
            .bind(title)
            .execute(&mut *connection)
            .await?;
    }
    chats::find(connection, chat)
        .await?
        .ok_or(StoreError::NotFound(Thing::Chat))
}

/// Hides the messages from `skip` behind the one with this id.
async fn cut(
    connection: &mut SqliteConnection,
    chat: ChatRef<'_>,
    id: &str,
    skip: i64,
) -> Result<(), StoreError> {
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
    if hidden.rows_affected() > 0 {
        sqlx::query("UPDATE chats SET generation = generation + 1 WHERE id = ?1")
            .bind(chat.id)
            .execute(connection)
            .await?;
    }
    Ok(())
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
        source: Box::new(error),
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
