//! The open connections, bounded in number: each has a place by the rules of `places`, and those that have to leave are
//! notified.

use adk_bridge_protocol::id::UserId;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{Response, StatusCode};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::Peer;
use super::places::{Bounds, Entrance, Id, NotBegun, Places, TooManyConnections};
use crate::auth::network_of;
use crate::config::Current;

/// How often to log that all connections are in use.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The connections that are open.
#[derive(Debug)]
pub(super) struct Crowd {
    inside: Mutex<CrowdState>,
    left: Notify,
}

#[derive(Debug)]
struct CrowdState {
    places: Places,
    open: HashMap<Id, Arc<ConnectionPlace>>,
    /// When it was last logged that all connections are in use.
    logged: Option<Instant>,
}

/// The place of one open connection. Requests carry it as an extension.
#[derive(Debug)]
pub struct ConnectionPlace {
    crowd: Arc<Crowd>,
    id: Id,
    /// The address that the connection counts for.
    network: IpAddr,
    /// Whether it may be waiting; checked on every write.
    waits: AtomicBool,
    leave: Notify,
    cut: Notify,
}

impl Crowd {
    pub(super) fn new(bounds: Arc<Current<Bounds>>) -> Arc<Self> {
        Arc::new(Self {
            inside: Mutex::new(CrowdState {
                places: Places::new(bounds),
                open: HashMap::new(),
                logged: None,
            }),
            left: Notify::new(),
        })
    }

    /// Adds a connection. It waits until there is a place, and so do the connections in the system's queue behind it.
    pub(super) async fn enter(self: &Arc<Self>, peer: Peer) -> Arc<ConnectionPlace> {
        loop {
            // Created before looking, so that no departure is missed.
            let left = self.left.notified();
            let entrance = self.lock().places.enter(Instant::now());
            match entrance {
                Entrance::Entered(id) => return self.add(id, peer),
                Entrance::Cut(id) => {
                    if let Some(place) = self.find(id) {
                        place.leave.notify_one();
                        place.cut.notify_one();
                    }
                }
                Entrance::Crowded(None) => left.await,
                Entrance::Crowded(Some(until)) => {
                    let _ = timeout_at(until, left).await;
                }
            }
        }
    }

    fn add(self: &Arc<Self>, id: Id, Peer(peer): Peer) -> Arc<ConnectionPlace> {
        let place = Arc::new(ConnectionPlace {
            crowd: self.clone(),
            id,
            network: network_of(peer),
            waits: AtomicBool::new(true),
            leave: Notify::new(),
            cut: Notify::new(),
        });
        let mut inside = self.lock();
        inside.open.insert(id, place.clone());
        let leaves = inside.places.make_room(Instant::now());
        let leaves = leaves.and_then(|id| inside.open.get(&id));
        if let Some(leaving) = leaves {
            leaving.leave.notify_one();
        }
        drop(inside);
        place
    }

    fn find(&self, id: Id) -> Option<Arc<ConnectionPlace>> {
        self.lock().open.get(&id).cloned()
    }

    /// Poisoning is ignored: no critical section can leave the counts inconsistent.
    fn lock(&self) -> MutexGuard<'_, CrowdState> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPlace {
    /// Counts the request, or the WebSocket that it opens, for a user, unless that user has too many.
    pub fn claim(&self, user: &UserId) -> Result<(), TooManyConnections> {
        self.crowd.lock().places.claim(self.id, user)
    }

    /// Keeps the request of another replica from being cut off. Its user is counted there.
    pub fn claim_for_replica(&self) {
        self.crowd.lock().places.claim_for_replica(self.id);
    }

    /// Gives up the place of a refused WebSocket as soon as it is needed. Returns false if the client's address has too
    /// many of them: then the WebSocket must not be opened.
    pub fn parts_refused(&self) -> bool {
        let mut inside = self.crowd.lock();
        inside.places.part_refused(self.id, self.network)
    }

    /// Returns when the place is needed immediately.
    pub async fn is_cut(&self) {
        self.cut.notified().await;
    }

    /// Returns when the place will be needed.
    pub(super) async fn is_asked_to_leave(&self) {
        self.leave.notified().await;
    }

    /// How many connections may be in use.
    pub(super) fn limit(&self) -> usize {
        self.crowd.lock().places.bounds().in_use
    }

    /// The connection will not be used again: its place may be taken.
    pub(super) fn parts(&self) {
        self.crowd.lock().places.part(self.id);
    }

    /// Begins a request, if it may.
    pub(super) fn begins(&self, informed: bool) -> Result<(), NotBegun> {
        let mut inside = self.crowd.lock();
        let begun = inside.places.begin(self.id, informed);
        match begun {
            Ok(()) => self.waits.store(false, Ordering::Relaxed),
            Err(NotBegun::Full) => {
                let now = Instant::now();
                inside.places.wait(self.id, now);
                inside.log_full(now);
            }
            Err(NotBegun::Parting) => {}
        }
        begun
    }

    /// Wraps an answer so that the connection waits again at its end. If the client is unknown, it waits from the
    /// beginning of the answer.
    pub(super) fn until_answered(self: &Arc<Self>, answer: Response<Body>) -> Response<Body> {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return answer;
        }
        if !self.crowd.lock().places.is_claimed(self.id) {
            self.wait();
        }
        let place = self.clone();
        answer.map(|inner| Body::new(CountedBody { inner, place }))
    }

    /// From now on, the connection waits for its client.
    fn wait(&self) {
        let mut inside = self.crowd.lock();
        inside.places.wait(self.id, Instant::now());
        self.waits.store(true, Ordering::Relaxed);
    }

    /// The client has read something: the rest of an answer may still be on its way.
    fn progressed(&self) {
        if self.waits.load(Ordering::Relaxed) {
            self.wait();
        }
    }

    fn leaves(&self) {
        let mut inside = self.crowd.lock();
        inside.places.leave(self.id);
        inside.open.remove(&self.id);
        drop(inside);
        self.crowd.left.notify_waiters();
    }
}

impl CrowdState {
    fn log_full(&mut self, now: Instant) {
        if self
            .logged
            .is_none_or(|logged| now >= logged + LOGGED_EVERY)
        {
            self.logged = Some(now);
            let limit = self.places.bounds().in_use;
            tracing::warn!(
                "all {limit} connections are in use (limits.connections); requests are refused"
            );
        }
    }
}

/// The body of an answer, which reports its end.
struct CountedBody {
    inner: Body,
    place: Arc<ConnectionPlace>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.place.wait();
    }
}

/// The stream of a connection, which counts as open as long as this lives: upgraded connections outlive their task.
#[derive(Debug)]
pub(super) struct CountedStream<Stream> {
    stream: Stream,
    place: Arc<ConnectionPlace>,
}

impl<Stream> CountedStream<Stream> {
    pub(super) fn new(stream: Stream, place: Arc<ConnectionPlace>) -> Self {
        Self { stream, place }
    }

    pub(super) fn get_ref(&self) -> &Stream {
        &self.stream
    }
}

impl<Stream> Drop for CountedStream<Stream> {
    fn drop(&mut self) {
        self.place.leaves();
    }
}

impl<Stream: AsyncRead + Unpin> AsyncRead for CountedStream<Stream> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<Stream: AsyncWrite + Unpin> AsyncWrite for CountedStream<Stream> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.place.progressed();
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        if written.is_ready() {
            self.place.progressed();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_one_that_waits_longest_gives_way_and_none_that_is_busy() {
        let crowd = Crowd::new(Arc::new(Current::new(Bounds {
            in_use: 2,
            per_user: None,
        })));
        let peer = Peer("192.0.2.1".parse().unwrap());
        let first = CountedStream::new((), crowd.enter(peer).await);
        let second = CountedStream::new((), crowd.enter(peer).await);
        let (first, second) = (&first.place, &second.place);
        assert_eq!(first.begins(false), Ok(()));
        let mut open = Vec::new();
        let is_cut = async {
            second.is_asked_to_leave().await;
            second.is_cut().await;
        };
        let come = async {
            loop {
                open.push(CountedStream::new((), crowd.enter(peer).await));
            }
        };
        tokio::select! {
            () = is_cut => {}
            () = come => {}
        }
        assert_eq!(second.begins(false), Err(NotBegun::Parting));
        let newest = open.pop().unwrap();
        assert_eq!(newest.place.begins(false), Ok(()));
        let last = open.last().unwrap().place.clone();
        assert_eq!(last.begins(false), Err(NotBegun::Full));
        drop(first.until_answered(Response::new(Body::empty())));
        assert_eq!(last.begins(false), Ok(()));
    }

    #[tokio::test]
    async fn an_answer_counts_until_its_end_if_its_user_is_known() {
        let crowd = Crowd::new(Arc::new(Current::new(Bounds {
            in_use: 1,
            per_user: Some(1),
        })));
        let peer = Peer("192.0.2.1".parse().unwrap());
        let one = CountedStream::new((), crowd.enter(peer).await);
        let other = CountedStream::new((), crowd.enter(peer).await);
        assert_eq!(one.place.begins(false), Ok(()));
        let to_anybody = one.place.until_answered(Response::new(Body::empty()));
        assert_eq!(other.place.begins(false), Ok(()));
        assert_eq!(other.place.claim(&UserId::literal("alice")), Ok(()));
        let hers = other.place.until_answered(Response::new(Body::empty()));
        drop(to_anybody);
        assert_eq!(one.place.begins(false), Err(NotBegun::Full));
        drop(hers);
        assert_eq!(one.place.begins(false), Ok(()));
    }
}
