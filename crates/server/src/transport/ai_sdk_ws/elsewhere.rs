//! Requests of a socket for chats that other replicas own: each becomes a request to the owner, in the order of their frames.
//!
//! ```text
//!   send, resume, abort of one chat ──▶ its lane ──▶ POST …/chat, GET …/stream, POST …/stop at the owner, one after the other
//!                                         └─ ends when nothing waits; the next frame looks for the owner again
//! ```

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use adk_bridge_protocol::id::{ChatId, MessageId};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::wire::ai_sdk_ws::Send;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::auth::Identity;
use crate::chat::readers::Answer;
use crate::files::address::Base;
use crate::forwarding::{Forwarded, Forwarding, Hop, PassedOn};
use crate::metrics::ForwardedKind;
use crate::telemetry::TraceContext;
use crate::transport::error::AppError;
use crate::transport::{forward, percent};

/// The longest event of an owner: more than any that it sends.
const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;
/// What an event ends with.
const END: &[u8] = b"\n\n";
/// The longest refusal of an owner.
const MAX_REFUSAL_BYTES: usize = 8 * 1024;

/// What became of a request: nothing if there is no turn to resume.
pub(super) type Answered = Result<Option<Pieces>, AppError>;

/// The pieces of a turn, from a chat of this replica or from that of another one.
pub(super) enum Pieces {
    Here(Answer),
    There(OwnerAnswer),
}

impl Pieces {
    pub(super) fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Self::Here(answer) => answer.poll_recv(context),
            Self::There(answer) => answer.poll_recv(context),
        }
    }

    /// The message that the client has in full after the last piece, if that is known.
    pub(super) fn whole_message(&self) -> Option<&MessageId> {
        match self {
            Self::Here(answer) => answer.whole_message(),
            Self::There(_) => None,
        }
    }

    /// Whether it ends without a last chunk although its client reads: the chat goes on at another replica.
    pub(super) fn is_cut(&self) -> bool {
        match self {
            Self::Here(answer) => answer.is_cut(),
            Self::There(_) => true,
        }
    }
}

/// The stream of an owner, in whole events.
pub(super) struct OwnerAnswer {
    body: Body,
    partial: BytesMut,
    /// How much of it was searched for the end of an event.
    searched: usize,
}

impl OwnerAnswer {
    fn new(body: Body) -> Self {
        Self {
            body,
            partial: BytesMut::new(),
            searched: 0,
        }
    }

    /// All whole events that have come. `None` if the stream ends or breaks off, or if an event is too long.
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let from = self.searched.saturating_sub(END.len() - 1);
            let mut ends = self.partial[from..].windows(END.len());
            if let Some(start) = ends.rposition(|bytes| bytes == END) {
                self.searched = 0;
                let whole = self.partial.split_to(from + start + END.len());
                return Poll::Ready(Some(whole.freeze()));
            }
            self.searched = self.partial.len();
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            let Some(Ok(frame)) = frame else {
                return Poll::Ready(None);
            };
            if let Ok(data) = frame.into_data() {
                self.partial.extend_from_slice(&data);
            }
            if self.partial.len() > MAX_EVENT_BYTES {
                return Poll::Ready(None);
            }
        }
    }
}

/// The ways of one socket to chats of other replicas.
pub(super) struct Lanes {
    forwarding: Arc<Forwarding>,
    forwarded: Forwarded,
    /// The trace that its requests belong to.
    trace: TraceContext,
    /// What the paths of its chats begin with: the agent of the address that the socket was opened with is in it.
    prefix: String,
    busy: HashMap<ChatId, mpsc::UnboundedSender<Errand>>,
}

/// One request to the owner of a chat.
struct Errand {
    kind: ForwardedKind,
    path: String,
    body: Bytes,
    answer: oneshot::Sender<Answered>,
}

impl Lanes {
    pub(super) fn new(
        forwarding: Arc<Forwarding>,
        identity: Identity,
        (base, trace): (Base, TraceContext),
        agent: Option<&str>,
    ) -> Self {
        let prefix = match agent {
            Some(agent) => format!("/api/agents/{}/chat", percent::encoded(agent)),
            None => "/api/chat".to_owned(),
        };
        Self {
            forwarding,
            forwarded: Forwarded {
                identity: Some(identity),
                base,
            },
            trace,
            prefix,
            busy: HashMap::new(),
        }
    }

    /// Whether requests of this chat are on their way to its owner: what comes after them must not overtake them.
    pub(super) fn is_busy(&self, chat_id: &ChatId) -> bool {
        self.busy.get(chat_id).is_some_and(|lane| !lane.is_closed())
    }

    pub(super) fn post(&mut self, send: &Send, sdk: u8) -> oneshot::Receiver<Answered> {
        let path = self.prefix.clone();
        self.go(&send.id, ForwardedKind::Chat, path, body_of(send, sdk))
    }

    pub(super) fn resume(
        &mut self,
        chat_id: &ChatId,
        (dialect, sdk): (&str, u8),
    ) -> oneshot::Receiver<Answered> {
        let id = percent::encoded(chat_id.as_str());
        let path = format!("{}/{id}/stream?dialect={dialect}&sdk={sdk}", self.prefix);
        self.go(chat_id, ForwardedKind::Resume, path, Bytes::new())
    }

    /// Nobody waits for the answer.
    pub(super) fn stop(&mut self, chat_id: &ChatId) {
        let path = format!(
            "{}/{}/stop",
            self.prefix,
            percent::encoded(chat_id.as_str())
        );
        drop(self.go(chat_id, ForwardedKind::Stop, path, Bytes::new()));
    }

    fn go(
        &mut self,
        chat_id: &ChatId,
        kind: ForwardedKind,
        path: String,
        body: Bytes,
    ) -> oneshot::Receiver<Answered> {
        let (answer, answered) = oneshot::channel();
        let mut errand = Errand {
            kind,
            path,
            body,
            answer,
        };
        if let Some(lane) = self.busy.get(chat_id) {
            match lane.send(errand) {
                Ok(()) => return answered,
                // It has just ended.
                Err(mpsc::error::SendError(back)) => errand = back,
            }
        }
        self.busy.retain(|_, lane| !lane.is_closed());
        // Bounded by the number of requests that a socket may have in progress.
        let (lane, errands) = mpsc::unbounded_channel();
        let _ = lane.send(errand);
        self.busy.insert(chat_id.clone(), lane);
        let (forwarding, forwarded) = (self.forwarding.clone(), self.forwarded.clone());
        let trace = self.trace.clone();
        tokio::spawn(run(
            forwarding,
            (forwarded, trace),
            chat_id.clone(),
            errands,
        ));
        answered
    }
}

/// Runs errands until none waits.
async fn run(
    forwarding: Arc<Forwarding>,
    (forwarded, trace): (Forwarded, TraceContext),
    chat_id: ChatId,
    mut errands: mpsc::UnboundedReceiver<Errand>,
) {
    while let Some(errand) = next(&mut errands) {
        let answer = pass_on(&forwarding, (&forwarded, &trace), &chat_id, &errand).await;
        // The socket may be gone.
        let _ = errand.answer.send(answer);
    }
}

fn next(errands: &mut mpsc::UnboundedReceiver<Errand>) -> Option<Errand> {
    errands.try_recv().ok().or_else(|| {
        errands.close();
        errands.try_recv().ok()
    })
}

async fn pass_on(
    forwarding: &Arc<Forwarding>,
    (forwarded, trace): (&Forwarded, &TraceContext),
    chat_id: &ChatId,
    errand: &Errand,
) -> Answered {
    let method = match errand.kind {
        ForwardedKind::Resume => Method::GET,
        _ => Method::POST,
    };
    let Some(user) = forwarded.identity.as_ref().map(|it| &it.user) else {
        return Ok(None); // A socket always has a user.
    };
    let hop = Hop {
        method: &method,
        path: &errand.path,
        headers: &headers(trace),
        body: errand.body.clone(),
        forwarded: forwarded.clone(),
    };
    let chat = (user, chat_id);
    let passage = forwarding.passages().begin();
    let (owner, response) = forward::ask_owner(forwarding, chat, errand.kind, hop).await?;
    let check = forwarding.check_of(owner, user.clone(), chat_id.clone());
    let passed_on = |it| PassedOn::answer(it, passage, forwarding.metrics().clone(), Some(check));
    answer_in(response, passed_on).await
}

async fn answer_in(
    response: Response<Incoming>,
    passed_on: impl FnOnce(Response<Incoming>) -> Response<Body>,
) -> Answered {
    let status = response.status();
    let body = passed_on(response).into_body();
    match status {
        StatusCode::OK => Ok(Some(Pieces::There(OwnerAnswer::new(body)))),
        StatusCode::NO_CONTENT => Ok(None),
        _ => {
            let refusal = to_bytes(body, MAX_REFUSAL_BYTES).await.unwrap_or_default();
            let refusal: Value = serde_json::from_slice(&refusal).unwrap_or_default();
            let message = refusal["error"]["message"].as_str();
            let message = message.unwrap_or("the replica that owns this chat refused; try again");
            Err(AppError::new(status, "refused", message))
        }
    }
}

/// The body of the chat request that a frame stands for.
fn body_of(send: &Send, sdk: u8) -> Bytes {
    let mut fields = send.body.clone();
    fields.insert("id", &Json::from(send.id.as_str()));
    fields.insert("sdk", &Value::from(sdk).into());
    fields.insert("messages", &send.messages);
    fields.text().to_owned().into()
}

fn headers(trace: &TraceContext) -> HeaderMap {
    let json = HeaderValue::from_static("application/json");
    let accepted = HeaderValue::from_static("text/event-stream, application/json");
    let own = [(header::CONTENT_TYPE, json), (header::ACCEPT, accepted)];
    let mut headers = HeaderMap::from_iter(own);
    trace.put(&mut headers);
    headers
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;

    /// However the bytes of a stream are cut, they come out as whole events.
    #[tokio::test]
    async fn pieces_are_whole_events() {
        let sent = "data: {\"a\":1}\n\n: still here\n\ndata: two\n\ndata: [DONE]\n\n";
        for size in 1..=sent.len() {
            let pieces = sent.as_bytes().chunks(size).map(Bytes::from_static);
            let pieces = pieces.map(Ok::<_, Infallible>);
            let mut answer = OwnerAnswer::new(Body::from_stream(stream::iter(pieces)));
            let mut heard = Vec::new();
            while let Some(piece) = std::future::poll_fn(|context| answer.poll_recv(context)).await
            {
                assert!(piece.ends_with(END), "{piece:?}");
                heard.extend_from_slice(&piece);
            }
            assert_eq!(heard, sent.as_bytes());
        }
        let broken = Body::from("data: {\"half\":");
        let mut answer = OwnerAnswer::new(broken);
        let piece = std::future::poll_fn(|context| answer.poll_recv(context)).await;
        assert_eq!(piece, None);
    }
}
