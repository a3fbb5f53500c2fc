//! Endpoints about users: an administrator erases one, and users get what is stored of them.

use std::io;
use std::sync::Arc;

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::AppError;
use super::{access, forward, percent};
use crate::audit::Exported;
use crate::auth::{Identity, Logins};
use crate::budget::Budget;
use crate::chat::error::ChatError;
use crate::chat::user_data::UserData;
use crate::chat::{Chats, now};
use crate::files::address::Base;
use crate::forwarding::{Forwarded, Forwarding, Hop, Hopped};

/// How an identity is recognised that stands for a user whose data is erased.
const ERASED: &str = "erasure";
/// How much of an export is held: a page of what is stored, and its text.
const HELD_BYTES: usize = 4 * 1024 * 1024;
const LINES: &str = "application/x-ndjson";

/// What was erased.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Erased {
    #[schemars(with = "String")]
    user: UserId,
    chats: u64,
    /// Bytes of messages and files.
    bytes: u64,
    /// Logins with the page that were ended.
    logins: u64,
    /// Rows of the audit that keep what happened, and lost what the user wrote.
    audit_rows: u64,
    /// Rows of what the user has used of agents, one for each day and agent.
    usage_rows: u64,
    /// The other replicas that have forgotten what they held in memory.
    replicas: Vec<String>,
    /// Those that could not be reached; what they hold goes when they stop.
    unreachable: Vec<String>,
}

/// `DELETE /api/users/{id}`: erases all that is stored of a user. It can be repeated.
pub async fn erase(
    State(chats): State<Chats>,
    State(forwarding): State<Option<Arc<Forwarding>>>,
    State(logins): State<Option<Arc<Logins>>>,
    identity: Identity,
    Path(user): Path<UserId>,
    request: Request,
) -> Result<Json<Erased>, AppError> {
    access::require_admin(&identity)?;
    let is_passed_on = request.extensions().get::<Forwarded>().is_some();
    // First, so that no page of the user begins anything new, and no replica looks up again what it forgets.
    let ended = match is_passed_on {
        true => 0,
        false => chats.shared().store.end_logins_of(&user).await?,
    };
    if let Some(logins) = &logins {
        logins.forget(&user);
    }
    chats.forget_user(&user);
    let mut erased = Erased {
        user: user.clone(),
        chats: 0,
        bytes: 0,
        logins: ended,
        audit_rows: 0,
        usage_rows: 0,
        replicas: Vec::new(),
        unreachable: Vec::new(),
    };
    // Another replica does the rest.
    if is_passed_on {
        return Ok(Json(erased));
    }
    if let Some(forwarding) = &forwarding {
        for peer in forwarding.peers() {
            let path = format!("/api/users/{}", percent::encoded(user.as_str()));
            let hop = Hop {
                method: &Method::DELETE,
                path: &path,
                headers: &HeaderMap::new(),
                body: Bytes::new(),
                forwarded: Forwarded {
                    identity: Some(identity.clone()),
                    base: Base::default(),
                },
            };
            match forwarding.send(&peer, hop).await {
                Hopped::Done(response) if response.status() == StatusCode::OK => {
                    erased.replicas.push(peer.name);
                }
                _ => erased.unreachable.push(peer.name),
            }
        }
    }
    let before = chats.stored_bytes_of(&user).await?;
    let theirs = Identity::new(user.clone(), ERASED);
    loop {
        let page = chats.list(&user, None::<(Timestamp, &ChatId)>).await?;
        for chat in &page.chats {
            let chat_id = &chat.chat.id;
            match (chats.delete(&user, chat_id).await, &forwarding) {
                (Ok(()), _) => erased.chats += 1,
                // Another request was faster.
                (Err(ChatError::NoSuchChat), _) => {}
                (Err(ChatError::Elsewhere(_)), Some(forwarding)) => {
                    forward::delete_at_owner(forwarding, &theirs, chat_id).await?;
                    erased.chats += 1;
                }
                (Err(error), _) => return Err(error.into()),
            }
        }
        if page.chats.is_empty() {
            break;
        }
    }
    erased.bytes = before.saturating_sub(chats.stored_bytes_of(&user).await?);
    erased.audit_rows = chats.erase_reasons(&user).await?;
    erased.usage_rows = chats.erase_usage(&user).await?;
    let admin = identity.user.as_str();
    tracing::info!(
        admin,
        user = user.as_str(),
        "{admin} has erased {user}: {} chats, {} bytes, {} logins; {} rows of the audit lost their text",
        erased.chats,
        erased.bytes,
        erased.logins,
        erased.audit_rows
    );
    Ok(Json(erased))
}

/// `GET /api/export`: everything that is stored of the user, as JSON lines.
pub async fn export(
    State(chats): State<Chats>,
    State(unread): State<Arc<Budget>>,
    Identity { user, .. }: Identity,
    base: Base,
) -> Result<Response, AppError> {
    let data = UserData::new(&chats, user.clone(), base, now());
    written((&unread, &user), "adk-bridge-export.jsonl", data)
}

/// Whose rows.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Whose {
    /// `all`: everybody's, for an auditor.
    users: Option<String>,
    /// The id of the row before the first one, for an auditor.
    after: Option<u64>,
}

/// `GET /api/audit/export`: the audit of the user, or of all users, as JSON lines that `adk-bridge audit verify` reads.
pub async fn audit(
    State(chats): State<Chats>,
    State(unread): State<Arc<Budget>>,
    identity: Identity,
    Query(Whose { users, after }): Query<Whose>,
) -> Result<Response, AppError> {
    let exported = match (users.as_deref(), after) {
        (None, None) => chats.own_audit(&identity.user),
        (Some("all"), after) => {
            access::require_auditor(&identity)?;
            chats.whole_audit(after.unwrap_or_default())
        }
        (None, Some(_)) => {
            return Err(AppError::bad_request(
                "bad_request",
                "`after` goes with `users=all`; the user's own rows are always exported whole",
            ));
        }
        (Some(_), _) => {
            return Err(AppError::bad_request(
                "bad_request",
                "`users` is \"all\", or left out for the user's own rows",
            ));
        }
    };
    written(
        (&unread, &identity.user),
        "adk-bridge-audit.jsonl",
        exported,
    )
}

/// What is written line by line.
trait Lines: Send + 'static {
    /// The next lines; none at the end.
    fn next_lines(&mut self) -> impl Future<Output = io::Result<Vec<u8>>> + Send;
}

impl Lines for Exported {
    async fn next_lines(&mut self) -> io::Result<Vec<u8>> {
        self.next_text().await.map_err(io::Error::other)
    }
}

impl Lines for UserData {
    async fn next_lines(&mut self) -> io::Result<Vec<u8>> {
        self.next_text().await.map_err(io::Error::other)
    }
}

/// An answer that is written while it is read. What it holds is counted.
fn written(
    (unread, user): (&Arc<Budget>, &UserId),
    name: &str,
    lines: impl Lines,
) -> Result<Response, AppError> {
    let mut hold = unread.hold(user);
    hold.resize(HELD_BYTES)?;
    let pieces = stream::unfold(Some((lines, hold)), |reading| async move {
        let (mut lines, hold) = reading?;
        match lines.next_lines().await {
            Ok(text) if text.is_empty() => None,
            Ok(text) => Some((Ok(Bytes::from(text)), Some((lines, hold)))),
            // Aborts the connection; the last line is missing, too.
            Err(error) => {
                tracing::error!(%error, "an export could not be written to its end");
                Some((Err(error), None))
            }
        }
    });
    let headers = [
        (header::CONTENT_TYPE, LINES.to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}\""),
        ),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}
