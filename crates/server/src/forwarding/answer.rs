//! The answer of an owner on its way to the client: counted, and cut off when its owner is dead.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use adk_bridge_protocol::id::{ChatId, UserId};
use axum::body::{Body, HttpBody};
use axum::http::Response;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};

use super::{Forwarding, Passage};
use crate::cluster::Peer;
use crate::metrics::ForwardingMetrics;
use crate::store::ChatRef;

/// Marks an answer that another replica has written: its form is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassedOn;

impl PassedOn {
    /// The answer for the client. It breaks off where the owner's does, so that no client takes a part for the whole.
    pub fn answer(
        response: Response<Incoming>,
        passage: Passage,
        metrics: Arc<ForwardingMetrics>,
        check: Option<OwnerCheck>,
    ) -> Response<Body> {
        let mut response = response.map(|inner| {
            Body::new(PassedBody {
                inner,
                metrics,
                check,
                _passage: passage,
            })
        });
        response.extensions_mut().insert(Self);
        response
    }
}

struct PassedBody {
    inner: Incoming,
    metrics: Arc<ForwardingMetrics>,
    check: Option<OwnerCheck>,
    _passage: Passage,
}

impl HttpBody for PassedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) else {
            let Some(check) = &mut this.check else {
                return Poll::Pending;
            };
            let dead = ready!(check.poll_dead(context));
            return Poll::Ready(Some(Err(axum::Error::new(dead))));
        };
        if let Some(check) = &mut this.check {
            check.heard();
        }
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.metrics.received(data.len());
        }
        Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Asks the database about an owner that has sent nothing for a lease: it may be stopped, or its machine gone, without the
/// connection showing it.
pub struct OwnerCheck {
    forwarding: Arc<Forwarding>,
    owner: Peer,
    chat: (UserId, ChatId),
    /// Whether something came since the timer was set; the timer itself is not touched for each piece.
    has_heard: bool,
    timer: Pin<Box<Sleep>>,
    asking: Option<BoxFuture<'static, bool>>,
}

impl OwnerCheck {
    pub(super) fn new(
        forwarding: Arc<Forwarding>,
        owner: Peer,
        user: UserId,
        chat_id: ChatId,
    ) -> Self {
        Self {
            timer: Box::pin(sleep(forwarding.lease())),
            forwarding,
            owner,
            chat: (user, chat_id),
            has_heard: false,
            asking: None,
        }
    }

    /// The owner has sent something.
    pub fn heard(&mut self) {
        self.has_heard = true;
    }

    /// Ready when the owner does not own the chat any more.
    pub fn poll_dead(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            if let Some(asking) = &mut self.asking {
                let is_owner = ready!(asking.as_mut().poll(context));
                self.asking = None;
                if !is_owner && !self.has_heard {
                    let name = &self.owner.name;
                    tracing::warn!(replica = %name, chat = %self.chat.1, "the replica {name} does not own the chat {} any more", self.chat.1);
                    return Poll::Ready(io::Error::other("the owner of the chat is gone"));
                }
                self.reset();
            }
            ready!(self.timer.as_mut().poll(context));
            match std::mem::take(&mut self.has_heard) {
                true => self.reset(),
                false => self.asking = Some(self.ask()),
            }
        }
    }

    fn reset(&mut self) {
        let lease = self.forwarding.lease();
        self.timer
            .as_mut()
            .reset(tokio::time::Instant::now() + lease);
    }

    fn ask(&self) -> BoxFuture<'static, bool> {
        let (forwarding, owner) = (self.forwarding.clone(), self.owner.clone());
        let (user, chat_id) = self.chat.clone();
        Box::pin(async move {
            let chat = ChatRef {
                user: &user,
                id: &chat_id,
            };
            let is_owner = forwarding.is_owner(&owner, chat).await;
            // Nobody can take the chat while the database cannot be asked.
            is_owner.unwrap_or(true)
        })
    }
}
