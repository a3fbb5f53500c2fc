//! Requests for chats of other replicas: each is tried here, and passed on if another replica owns its chat.
//!
//! | endpoint | who answers it |
//! |---|---|
//! | chat requests, `/stream` | the owner: the turn is there |
//! | `…/stream`, `…/stop`, `…/tool-output` of a chat | the owner |
//! | `POST /api/credentials/{call}`, `/api/oauth/callback` | the owner of the chat that waits for it |
//! | `GET` and `DELETE /api/chats/{id}` | the owner if there is one: it knows what the client will have |
//! | `/live` | the owner, through a tunnel |
//! | `/api/chat/ws` | this replica, which passes each request of a chat to its owner |
//! | `/clear-sessions` | this replica, which passes each deletion on |
//! | titles, lists, audit, files, agents, tickets, the page, `/health`, `/ready`, `/metrics` | any replica |
//!
//! Signatures, sources, keys, tickets and the number of connections of a user are checked at the first replica; limits of
//! turns and of memory at the owner.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use adk_bridge_protocol::id::{ChatId, UserId};
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::MethodRouter;
use bytes::Bytes;
use hyper::body::Incoming;

use super::App;
use super::error::{AppError, Instead};
use super::percent;
use crate::auth::Identity;
use crate::chat::{ChatError, Chats, now};
use crate::cluster::Peer;
use crate::files::address::Base;
use crate::forwarding::{
    FORGED, ForgedError, Forwarded, Forwarding, HEADER, Hop, Hopped, NOT_OWNER, PassedOn,
};
use crate::metrics::ForwardedKind;

/// The header of a stream that names its chat.
const CHAT_ID: &str = "x-chat-id";

/// The body of a request, from the moment that it was read: the request may have to be sent on.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptBody(Arc<OnceLock<Bytes>>);

impl KeptBody {
    /// Shares the bytes; nothing is copied.
    pub(super) fn keep(&self, body: &Bytes) {
        // The body of a request is read once.
        let _ = self.0.set(body.clone());
    }

    fn bytes(&self) -> Bytes {
        self.0.get().cloned().unwrap_or_default()
    }
}

/// Notes who a request is for that another replica passes on. One that only says so is refused.
pub fn recognise(app: &App, request: &mut Request) -> Result<(), AppError> {
    let headers = request.headers();
    let mut given = headers.get_all(HEADER).iter();
    let Some(first) = given.next() else {
        return Ok(());
    };
    let forwarded = match (app.forwarding(), given.next()) {
        (Some(forwarding), None) => {
            let signatures = forwarding.signatures();
            signatures.verify(request.method(), request.uri(), first, now())
        }
        _ => Err(ForgedError::Wrong),
    };
    let forwarded = forwarded?;
    request.headers_mut().remove(HEADER);
    request.extensions_mut().insert(forwarded);
    Ok(())
}

/// Lets the owner of its chat answer an endpoint.
pub fn by_owner(
    app: &App,
    kind: ForwardedKind,
    route: MethodRouter<App>,
) -> MethodRouter<App, Infallible> {
    match app.forwarding() {
        Some(_) => route.layer(from_fn_with_state((app.clone(), kind), pass_on)),
        None => route,
    }
}

/// Refuses a chat that is not in use here and has another owner; without a cluster there is none.
pub(super) async fn check_owner(
    chats: &Chats,
    forwarding: Option<&Arc<Forwarding>>,
    (user, chat_id): (&UserId, &ChatId),
) -> Result<(), AppError> {
    let Some(forwarding) = forwarding.filter(|_| !chats.is_in_use(user, chat_id)) else {
        return Ok(());
    };
    match forwarding.elsewhere(user, chat_id).await? {
        Some(owner) => Err(ChatError::Elsewhere(owner).into()),
        None => Ok(()),
    }
}

/// Sends a request to the owner of a chat. One that nobody owns can be taken by this replica as well, which gets the request
/// like any other.
pub(super) async fn ask_owner(
    forwarding: &Forwarding,
    (user, chat_id): (&UserId, &ChatId),
    kind: ForwardedKind,
    hop: Hop<'_>,
) -> Result<(Peer, axum::http::Response<Incoming>), AppError> {
    let mut attempts = forwarding.attempts();
    loop {
        let owner = forwarding.elsewhere(user, chat_id).await?;
        let owner = owner.unwrap_or_else(|| forwarding.me());
        match forwarding.send(&owner, hop.clone()).await {
            Hopped::Done(response) => {
                forwarding.metrics().passed(kind);
                return Ok((owner, response));
            }
            Hopped::Broken if !hop.method.is_safe() => return Err(broken_off(&owner)),
            Hopped::Refused => return Err(not_recognised(&owner)),
            Hopped::NotBegun(_) | Hopped::Broken => {
                if !attempts.wait().await {
                    return Err(unreachable(&owner));
                }
            }
        }
    }
}

/// Deletes a chat at the replica that owns it.
pub(super) async fn delete_at_owner(
    forwarding: &Forwarding,
    identity: &Identity,
    chat_id: &ChatId,
) -> Result<(), AppError> {
    let forwarded = Forwarded {
        identity: Some(identity.clone()),
        base: Base::default(),
    };
    let hop = Hop {
        method: &Method::DELETE,
        path: &format!("/api/chats/{}", percent::encoded(chat_id.as_str())),
        headers: &HeaderMap::new(),
        body: Bytes::new(),
        forwarded,
    };
    let chat = (&identity.user, chat_id);
    let (owner, response) = ask_owner(forwarding, chat, ForwardedKind::Stored, hop).await?;
    match response.status() {
        // Another request was faster.
        StatusCode::NO_CONTENT | StatusCode::NOT_FOUND => Ok(()),
        _ => Err(broken_off(&owner)),
    }
}

async fn pass_on(
    State((app, kind)): State<(App, ForwardedKind)>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(forwarding) = app.forwarding() else {
        return next.run(request).await;
    };
    if request.extensions().get::<Forwarded>().is_some() {
        let response = next.run(request).await;
        let refusal = response.extensions().get::<AppError>();
        return match refusal.and_then(|refusal| refusal.instead.as_ref()) {
            Some(_) => not_owner().into_response(),
            None => response,
        };
    }
    let kept = KeptBody::default();
    request.extensions_mut().insert(kept.clone());
    let (parts, body) = request.into_parts();
    let mut response = next
        .clone()
        .run(Request::from_parts(parts.clone(), body))
        .await;
    if owner_in(&response).is_none() {
        return response;
    }
    let passage = forwarding.passages().begin();
    let mut attempts = None;
    let is_safe = parts.method.is_safe();
    while let Some(owner) = owner_in(&response) {
        let hop = Hop {
            method: &parts.method,
            path: parts.uri.path_and_query().map_or("/", |path| path.as_str()),
            headers: &parts.headers,
            body: kept.bytes(),
            forwarded: forwarded_for(&app, &parts).await,
        };
        match forwarding.send(&owner, hop).await {
            Hopped::Done(answer) => {
                forwarding.metrics().passed(kind);
                let user = parts.extensions.get::<Identity>();
                let chat = chat_in(answer.headers());
                let check = user.zip(chat).map(|(identity, chat)| {
                    forwarding.check_of((*owner).clone(), identity.user.clone(), chat)
                });
                return PassedOn::answer(answer, passage, forwarding.metrics().clone(), check);
            }
            Hopped::Broken if !is_safe => return broken_off(&owner).into_response(),
            Hopped::Refused => return not_recognised(&owner).into_response(),
            Hopped::NotBegun(_) | Hopped::Broken => {
                let attempts = attempts.get_or_insert_with(|| forwarding.attempts());
                if !attempts.wait().await {
                    return unreachable(&owner).into_response();
                }
            }
        }
        // Perhaps the chat can be had here by now, or has another owner.
        let again = Request::from_parts(parts.clone(), Body::from(kept.bytes()));
        response = next.clone().run(again).await;
    }
    response
}

/// Who a request is for.
async fn forwarded_for(app: &App, parts: &Parts) -> Forwarded {
    let mut parts = parts.clone();
    let Ok(base) = Base::from_request_parts(&mut parts, app).await;
    Forwarded {
        identity: parts.extensions.remove(),
        base,
    }
}

fn owner_in(response: &Response) -> Option<Arc<Peer>> {
    match &response.extensions().get::<AppError>()?.instead {
        Some(Instead::Owner(owner)) => Some(owner.clone()),
        Some(Instead::Another) | None => None,
    }
}

fn chat_in(headers: &HeaderMap) -> Option<ChatId> {
    let id = headers.get(CHAT_ID)?.to_str().ok()?;
    Some(percent::decoded(id)?.as_str().into())
}

/// What a replica answers to a request that it was passed, for a chat that it does not own.
pub(super) fn not_owner() -> AppError {
    let message = "this replica does not own the chat; the one that passed the request on looks for the owner again";
    AppError::new(StatusCode::CONFLICT, NOT_OWNER, message)
}

/// After as many attempts as there may be.
pub(super) fn unreachable(owner: &Peer) -> AppError {
    let name = &owner.name;
    AppError::unavailable(format!(
        "this chat is in use at the replica {name:?}, which cannot be reached; try again in a moment"
    ))
}

pub(super) fn not_recognised(owner: &Peer) -> AppError {
    let name = &owner.name;
    AppError::unavailable(format!(
        "this chat is in use at the replica {name:?}, which does not recognise this one; ask the operator to give both the \
         same cluster.key, and clocks that agree"
    ))
}

/// The owner may have begun, so the request is not sent again.
pub(super) fn broken_off(owner: &Peer) -> AppError {
    let name = &owner.name;
    AppError::unavailable(format!(
        "the replica {name:?}, where this chat is in use, broke off before its answer; load the chat again"
    ))
}

impl From<ForgedError> for AppError {
    fn from(error: ForgedError) -> Self {
        Self::forbidden(FORGED, error.to_string())
    }
}
