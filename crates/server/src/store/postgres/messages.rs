//! The history of a chat: added to at its end, cut, read in order.

use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::time::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::text::{loaded, stored};
use super::{PostgresStore, chats, write_name};
use crate::store::encoded::{UnparsedMessage, count, decode_message, encode, from_sql, to_sql};
use crate::store::page::{PAGE_MESSAGES, Places};
use crate::store::{
    Chat, ChatOverview, ChatRef, Cut, Entity, HistorySize, MessagePage, MessageState, OutlineEntry,
    StoreError, title_of,
};

/// Messages as they are stored.
pub(super) struct EncodedMessages {
    pub(super) ids: Vec<String>,
    pub(super) bodies: Vec<String>,
    pub(super) title: Option<String>,
    pub(super) bytes: usize,
}

impl EncodedMessages {
    pub(super) fn new(messages: &[Message]) -> Result<Self, StoreError> {
        let bodies = messages.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            ids: texts(messages.iter().map(|message| message.id.as_str())),
            bytes: bodies.iter().map(String::len).sum(),
            bodies,
            title: messages.iter().find_map(title_of),
        })
    }
}

/// A cut, for SQL: what kind, from which message, and except which places.
pub(super) struct EncodedCut<'c> {
    pub(super) kind: &'static str,
    pub(super) at: Option<&'c str>,
    pub(super) places: Vec<i64>,
}

impl<'c> EncodedCut<'c> {
    pub(super) fn new(cut: Cut<'c>) -> Self {
        let (kind, at, places) = match cut {
            Cut::Nothing => ("nothing", None, &[][..]),
            Cut::After(id) => ("after", Some(id.as_str()), &[][..]),
            Cut::From(id) => ("from", Some(id.as_str()), &[][..]),
            Cut::AllBut(places) => ("all but", None, places),
        };
        Self {
            kind,
            at,
            places: places.iter().map(|place| to_sql(*place)).collect(),
        }
    }
}

/// The size of a chat, and its agent.
pub(super) async fn overview(
    store: &PostgresStore,
    chat: ChatRef<'_>,
) -> Result<ChatOverview, StoreError> {
    // The length is in the head of a row: no content is read for it. An open reply is loaded with what it has grown by.
    let rows = store.read(|| {
        sqlx::query(
            "SELECT count(m.seq), coalesce(sum(size.bytes), 0)::bigint, coalesce(max(size.bytes), 0)::bigint,
                    coalesce(max(c.bytes), 0), count(m.seq) FILTER (WHERE m.open), max(c.agent)
             FROM adk_bridge.chats c
             LEFT JOIN adk_bridge.messages m ON m.chat = c.key AND m.cut_in IS NULL
             CROSS JOIN LATERAL (SELECT octet_length(m.body) + CASE WHEN m.open
                 THEN (SELECT coalesce(sum(octet_length(g.text)), 0) FROM adk_bridge.grown_texts g WHERE g.message = m.seq)
                 ELSE 0 END AS bytes) AS size
             WHERE c.user_id = $1 AND c.id = $2",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
    });
    let rows = rows.await?;
    let Some(row) = rows.first() else {
        return Ok(ChatOverview::default());
    };
    let agent: Option<String> = row.try_get(5)?;
    Ok(ChatOverview {
        size: HistorySize {
            messages: count(row.try_get(0)?),
            bytes: count(row.try_get(1)?),
            largest: count(row.try_get(2)?),
            kept: from_sql(row.try_get(3)?),
            open: count(row.try_get(4)?),
        },
        agent: agent.map(loaded),
    })
}

pub(super) async fn rows(
    store: &PostgresStore,
    chat: ChatRef<'_>,
) -> Result<Vec<UnparsedMessage>, StoreError> {
    // A chat without messages is one row without a body; a chat that does not exist has no row.
    let rows = store.read(|| {
        sqlx::query(
            "SELECT m.seq, m.state, m.body, m.seen FROM adk_bridge.chats c
             LEFT JOIN adk_bridge.messages m ON m.chat = c.key AND m.cut_in IS NULL
             WHERE c.user_id = $1 AND c.id = $2 ORDER BY m.seq",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
    });
    unparsed(&rows.await?)
}

/// Which messages make a page, or nothing if there are no more.
pub(super) async fn places(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    page: MessagePage,
) -> Result<Option<Places>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT m.seq, m.bytes FROM adk_bridge.chats c
             LEFT JOIN LATERAL (
                 SELECT m.seq, octet_length(m.body)::bigint AS bytes FROM adk_bridge.messages m
                 WHERE m.chat = c.key AND m.seq > $3 AND m.cut_in IS NULL ORDER BY m.seq LIMIT $4
             ) m ON true
             WHERE c.user_id = $1 AND c.id = $2 ORDER BY m.seq",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(to_sql(page.after))
        .bind(PAGE_MESSAGES)
    });
    let rows = rows.await?;
    if rows.is_empty() {
        return Err(StoreError::NotFound(Entity::Chat));
    }
    // A chat without such messages has one row without a place.
    let sizes = rows.iter().filter_map(|row| {
        let size = || {
            let place: Option<i64> = row.try_get(0)?;
            let bytes = place.map(|_| row.try_get(1).map(count)).transpose()?;
            Ok(place.zip(bytes))
        };
        size().transpose()
    });
    Places::fitting(page, sizes)
}

pub(super) async fn rows_at(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    places: &Places,
) -> Result<Vec<UnparsedMessage>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT m.seq, m.state, m.body, m.seen FROM adk_bridge.chats c
             LEFT JOIN adk_bridge.messages m
                 ON m.chat = c.key AND m.cut_in IS NULL AND m.seq BETWEEN $3 AND $4
             WHERE c.user_id = $1 AND c.id = $2 ORDER BY m.seq",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(places.first)
        .bind(places.last)
    });
    unparsed(&rows.await?)
}

/// The messages in rows; the row of a chat without messages has none.
fn unparsed(rows: &[PgRow]) -> Result<Vec<UnparsedMessage>, StoreError> {
    if rows.is_empty() {
        return Err(StoreError::NotFound(Entity::Chat));
    }
    rows.iter()
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

pub(super) async fn outline(
    store: &PostgresStore,
    chat: ChatRef<'_>,
) -> Result<Vec<OutlineEntry>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT m.seq, m.id, m.cut_in, m.state, m.reply IS NOT NULL, m.seen FROM adk_bridge.chats c
             LEFT JOIN adk_bridge.messages m ON m.chat = c.key
             WHERE c.user_id = $1 AND c.id = $2 ORDER BY m.seq",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
    });
    let rows = rows.await?;
    if rows.is_empty() {
        return Err(StoreError::NotFound(Entity::Chat));
    }
    let entry = |row: &PgRow| {
        let place: Option<i64> = row.try_get(0)?;
        let Some(place) = place else {
            return Ok(None);
        };
        let cut_in: Option<i64> = row.try_get(2)?;
        Ok(Some(OutlineEntry {
            place: from_sql(place),
            id: loaded(row.try_get(1)?).into(),
            cut_in: cut_in.map(from_sql),
            state: MessageState::from_word(row.try_get(3)?)?,
            is_reply: row.try_get(4)?,
            seen: row.try_get(5)?,
        }))
    };
    rows.iter()
        .filter_map(|row| entry(row).transpose())
        .collect()
}

pub(super) async fn at(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    place: u64,
) -> Result<Option<Message>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT m.body FROM adk_bridge.chats c
             LEFT JOIN adk_bridge.messages m ON m.chat = c.key AND m.seq = $3
             WHERE c.user_id = $1 AND c.id = $2",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(to_sql(place))
    });
    let rows = rows.await?;
    let row = rows.first().ok_or(StoreError::NotFound(Entity::Chat))?;
    let body: Option<&str> = row.try_get(0)?;
    body.map(|body| decode_message(body, "a stored message"))
        .transpose()
}

pub(super) async fn mark_seen(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    ids: &[MessageId],
) -> Result<(), StoreError> {
    let ids = texts(ids.iter().map(MessageId::as_str));
    let done = store.write(|| {
        sqlx::query("SELECT adk_bridge.mark_seen($1, $2, $3, $4)")
            .bind(stored(chat.user.as_str()))
            .bind(stored(chat.id.as_str()))
            .bind(store.epoch(chat))
            .bind(&ids)
    });
    done.await.map(|_| ())
}

pub(super) async fn append(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    messages: &[Message],
    cut: Cut<'_>,
    now: Timestamp,
) -> Result<Chat, StoreError> {
    let messages = EncodedMessages::new(messages)?;
    let (cut, name, number) = (EncodedCut::new(cut), write_name(), store.next_number());
    let rows = store.write(|| {
        sqlx::query(
            "SELECT id, title, created_at, updated_at, generation, agent
             FROM adk_bridge.append_messages($1, $2, $3, $4::uuid, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(store.epoch(chat))
        .bind(&name)
        .bind(number)
        .bind(to_sql(now.as_millis()))
        .bind(&messages.ids)
        .bind(&messages.bodies)
        .bind(messages.title.as_deref().map(stored))
        .bind(to_sql(messages.bytes as u64))
        .bind(cut.kind)
        .bind(cut.at.map(stored))
        .bind(&cut.places)
    });
    chats::first(&rows.await?)
}

/// Overwrites a message that is not a reply.
pub(super) async fn revise(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    message: &Message,
) -> Result<(), StoreError> {
    let body = encode(message)?;
    // The title that it gave the chat, if it did. Nobody else changes a message while its user speaks.
    let rows = store.read(|| {
        sqlx::query(
            "SELECT m.body FROM adk_bridge.chats c
             LEFT JOIN adk_bridge.messages m
                 ON m.chat = c.key AND m.id = $3 AND m.cut_in IS NULL AND m.reply IS NULL
             WHERE c.user_id = $1 AND c.id = $2",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(stored(message.id.as_str()))
    });
    let rows = rows.await?;
    let row = rows.first().ok_or(StoreError::NotFound(Entity::Chat))?;
    let before: Option<&str> = row.try_get(0)?;
    let before = before.ok_or(StoreError::NotFound(Entity::Message))?;
    let before = decode_message(before, "a stored message")?;
    let (title, title_before) = (title_of(message), title_of(&before));
    let number = store.next_number();
    let done = store.write(|| {
        sqlx::query("SELECT adk_bridge.revise_message($1, $2, $3, $4, $5, $6, $7, $8)")
            .bind(stored(chat.user.as_str()))
            .bind(stored(chat.id.as_str()))
            .bind(store.epoch(chat))
            .bind(number)
            .bind(stored(message.id.as_str()))
            .bind(&body)
            .bind(title.as_deref().map(stored))
            .bind(title_before.as_deref().map(stored))
    });
    done.await.map(|_| ())
}

/// Texts as they are stored.
pub(super) fn texts<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<String> {
    texts.map(|text| stored(text).into_owned()).collect()
}
