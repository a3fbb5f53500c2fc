//! Endpoints for what is stored: chats, their messages, the audit.

use std::io;
use std::sync::Arc;

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::time::Timestamp;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header::LINK;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body::{WholeBody, read_body};
use super::chat::{View, check_json};
use super::error::AppError;
use super::{forward, percent, schemas};
use crate::auth::{Identity, Role};
use crate::budget::{Budget, Hold};
use crate::chat::request::{dialect_of, read_json};
use crate::chat::{AuditFilter, AuditPage, Chats, Listing, MAX_AUDIT_ROWS, RemainingMessages};
use crate::files::address::Base;
use crate::forwarding::Forwarding;

const JSON: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];
/// The end of a chat's JSON, whose last field is its messages.
const END: &str = "]}";

#[derive(Debug, Deserialize, JsonSchema)]
pub struct OfChat {
    /// The id of the chat. It is required.
    #[schemars(with = "String", length(min = 1, max = 200), example = &"chat-1")]
    pub chat: Option<ChatId>,
}

/// Which chats: the last chat of the page before, and what is searched for.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Page {
    /// The id of the last chat of the page before.
    #[schemars(with = "Option<String>")]
    before: Option<ChatId>,
    /// The `updatedAt` of that chat; required with `before`.
    #[schemars(with = "Option<u64>")]
    at: Option<String>,
    /// Only chats whose titles have all of these words, in any order and case.
    #[schemars(example = &"kyoto trip")]
    q: Option<String>,
}

/// The newest chats, or those after a page; a `Link` leads to the next page.
pub async fn list(
    State(chats): State<Chats>,
    State(unread): State<Arc<Budget>>,
    Identity { user, .. }: Identity,
    Query(Page { before, at, q }): Query<Page>,
) -> Result<(HeaderMap, Response), AppError> {
    let last = match (&before, at.map(|at| at.parse().map(Timestamp::from_millis))) {
        (None, None) => None,
        (Some(id), Some(Ok(updated))) => Some((updated, id)),
        _ => return Err(half_a_page()),
    };
    let query = q.as_deref().filter(|query| !query.trim().is_empty());
    let page = match query {
        Some(query) => chats.search(&user, query, last).await?,
        None => chats.list(&user, last).await?,
    };
    let mut headers = HeaderMap::new();
    if let Some((updated, id)) = &page.next {
        let query = query.map_or_else(String::new, |query| {
            format!("q={}&", percent::encoded(query))
        });
        let link = format!(
            "<?{query}before={}&at={}>; rel=\"next\"",
            percent::encoded(id.as_str()),
            updated.as_millis()
        );
        // Nothing in it is more than ASCII.
        headers.extend(link.parse().ok().map(|link| (LINK, link)));
    }
    let rows: Vec<ChatSummary> = page
        .chats
        .into_iter()
        .map(|listed| ChatSummary {
            agent: chats.agent_shown(&listed.chat),
            id: listed.chat.id,
            title: listed.chat.title,
            created_at: listed.chat.created,
            updated_at: listed.chat.updated,
            pending_approvals: listed.waiting,
            pending_outputs: listed.owed,
        })
        .collect();
    Ok((headers, held_json(unread.hold(&user), &rows)?))
}

/// A chat in the list of its user.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChatSummary {
    #[schemars(with = "String")]
    id: ChatId,
    /// Absent until the user has written something.
    title: Option<String>,
    /// Milliseconds since 1970.
    #[schemars(with = "u64")]
    created_at: Timestamp,
    #[schemars(with = "u64")]
    updated_at: Timestamp,
    /// The id of its agent; absent before its first message.
    agent: Option<String>,
    /// How many approvals wait for an answer.
    pending_approvals: u64,
    /// The names of client tools whose outputs are missing.
    pending_outputs: Vec<String>,
}

fn half_a_page() -> AppError {
    AppError::bad_request(
        "bad_request",
        "`before` and `at` are the id and `updatedAt` of the last chat of a page; send both",
    )
}

pub async fn messages(
    State(chats): State<Chats>,
    State(forwarding): State<Option<Arc<Forwarding>>>,
    State(unread): State<Arc<Budget>>,
    Identity { user, .. }: Identity,
    base: Base,
    Path(chat_id): Path<ChatId>,
    Query(view): Query<View>,
) -> Result<Response, AppError> {
    let dialect = dialect_of(view.dialect.as_deref())?;
    // The owner knows which messages this client will have.
    forward::check_owner(&chats, forwarding.as_ref(), (&user, &chat_id)).await?;
    let mut hold = unread.hold(&user);
    let admit = |bytes| hold.resize(bytes);
    let Listing { chat, first, rest } = chats
        .messages(&user, &chat_id, dialect, &base, admit)
        .await?;
    let stored = StoredChat {
        id: &chat.id,
        title: chat.title.as_deref(),
        created_at: chat.created,
        updated_at: chat.updated,
        agent: chats.agent_shown(&chat),
        messages: &first,
    };
    match rest {
        None => held_json(hold, &stored),
        Some(rest) => streamed_json(hold, &stored, rest),
    }
}

/// A chat with its messages, which are serialised directly: a tree of values would be many times as large.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StoredChat")]
#[serde(rename_all = "camelCase")]
pub struct StoredChat<'a> {
    #[schemars(with = "String")]
    id: &'a ChatId,
    title: Option<&'a str>,
    /// Milliseconds since 1970.
    #[schemars(with = "u64")]
    created_at: Timestamp,
    #[schemars(with = "u64")]
    updated_at: Timestamp,
    agent: Option<String>,
    #[schemars(with = "Vec<schemas::Message>")]
    messages: &'a [Message],
}

/// An answer whose bytes are counted until the client has taken them.
fn held_json(mut hold: Hold, value: &impl Serialize) -> Result<Response, AppError> {
    let bytes = written(value)?;
    hold.resize(bytes.len())?;
    Ok((JSON, hold.tie_to(bytes.into())).into_response())
}

/// The same for a chat with many messages, which are written as they are read. Their memory was counted before.
fn streamed_json(
    hold: Hold,
    chat: &StoredChat<'_>,
    rest: RemainingMessages,
) -> Result<Response, AppError> {
    let mut head = written(chat)?;
    head.truncate(head.len() - END.len());
    let head = stream::once(std::future::ready(io::Result::Ok(Bytes::from(head))));
    let pieces = stream::unfold(Some((rest, hold)), |reading| async move {
        let (mut rest, hold) = reading?;
        let piece = match rest.next().await {
            Ok(messages) if messages.is_empty() => return Some((Ok(END.into()), None)),
            Ok(messages) => written(&messages).map_err(io::Error::other),
            Err(error) => Err(io::Error::other(error)),
        };
        Some(match piece {
            Ok(mut piece) => {
                // Turns a list into the continuation of the previous one.
                piece[0] = b',';
                piece.pop();
                (Ok(piece.into()), Some((rest, hold)))
            }
            // Aborts the connection, so that an incomplete list is not taken for a complete one.
            Err(error) => {
                tracing::error!(%error, "a chat could not be written to its end");
                (Err(error), None)
            }
        })
    });
    Ok((JSON, Body::from_stream(head.chain(pieces))).into_response())
}

fn written(value: &impl Serialize) -> Result<Vec<u8>, AppError> {
    serde_json::to_vec(value).map_err(|error| {
        tracing::error!(%error, "a response could not be serialized");
        AppError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the server failed; try again",
        )
    })
}

pub async fn delete(
    State(chats): State<Chats>,
    Identity { user, .. }: Identity,
    Path(chat_id): Path<ChatId>,
) -> Result<StatusCode, AppError> {
    chats.delete(&user, &chat_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, JsonSchema)]
pub struct TitleBody {
    /// One line; more than 60 characters are cut.
    #[schemars(length(min = 1))]
    title: String,
}

/// Gives a chat another title.
pub async fn rename(
    State(chats): State<Chats>,
    Identity { user, .. }: Identity,
    Path(chat_id): Path<ChatId>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Result<StatusCode, AppError> {
    check_json(&headers)?;
    let read = |body: &[u8]| {
        read_json(body, |error| {
            AppError::unprocessable(
                "bad_title",
                format!("the body could not be understood: {error}"),
            )
        })
    };
    let TitleBody { title } = read_body(body, read).await?;
    chats.rename(&user, &chat_id, &title).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which rows of which audit.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct OfAudit {
    /// The id of the chat. It is required.
    #[schemars(with = "String", length(min = 1), example = &"chat-1")]
    chat: Option<ChatId>,
    /// Whose audit, for auditors.
    #[schemars(with = "Option<String>")]
    user: Option<UserId>,
    /// The `id` of the last row of the page before.
    after: Option<u64>,
    /// How many rows there may be on the page.
    #[schemars(range(min = 1))]
    limit: Option<u32>,
}

/// The audit of a chat, oldest first; a `Link` leads to the rows after these. Auditors also see that of other users, and of all.
pub async fn audit(
    State(chats): State<Chats>,
    State(unread): State<Arc<Budget>>,
    identity: Identity,
    Query(asked): Query<OfAudit>,
) -> Result<Response, AppError> {
    let limit = asked.limit.unwrap_or(MAX_AUDIT_ROWS);
    if limit == 0 {
        return Err(AppError::bad_request(
            "bad_request",
            format!("`limit` is the number of rows; send 1 to {MAX_AUDIT_ROWS}"),
        ));
    }
    let page = AuditPage {
        after: asked.after.unwrap_or_default(),
        limit: limit.min(MAX_AUDIT_ROWS),
    };
    let rows = match &asked {
        OfAudit {
            chat: Some(chat),
            user: None,
            ..
        } => chats.audit(&identity.user, chat, page).await?,
        OfAudit {
            chat: None,
            user: None,
            ..
        } if !identity.roles.has(Role::Auditor) => {
            let message = "name the chat: /api/audit?chat=ID";
            return Err(AppError::unprocessable("missing_field", message));
        }
        OfAudit { chat, user, .. } => {
            if *user != Some(identity.user.clone()) {
                identity.require(Role::Auditor)?;
            }
            let (user, chat) = (user.as_ref(), chat.as_ref());
            chats.audit_of_all(AuditFilter { user, chat }, page).await?
        }
    };
    let mut response = held_json(unread.hold(&identity.user), &rows)?;
    if let Some(last) = rows.last().filter(|_| rows.len() == page.limit as usize) {
        let named = |name: &str, value: Option<&str>| {
            value.map(|value| format!("{name}={}&", percent::encoded(value)))
        };
        let link = format!(
            "<?{}{}after={}&limit={}>; rel=\"next\"",
            named("chat", asked.chat.as_ref().map(ChatId::as_str)).unwrap_or_default(),
            named("user", asked.user.as_ref().map(UserId::as_str)).unwrap_or_default(),
            last.id,
            page.limit
        );
        // Nothing in it is more than ASCII.
        let link = link.parse().ok().map(|link| (LINK, link));
        response.headers_mut().extend(link);
    }
    Ok(response)
}

/// Counters for Prometheus.
pub async fn metrics(State(chats): State<Chats>) -> ([(&'static str, &'static str); 1], String) {
    let kind = [("content-type", "text/plain; version=0.0.4; charset=utf-8")];
    (kind, chats.metrics())
}
