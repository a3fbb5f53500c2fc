//! One WebSocket: frames in and out within time limits, heartbeats, and an orderly end.
//!
//! ```text
//!   open ──┬─ a close of ours ─────▶ what the client still sends is thrown away ──▶ gone
//!          ├─ a close of theirs ───▶ answered ────────────────────────────────────▶ gone
//!          ├─ broken rules ────────▶ closed with 1002, 1007 or 1009 ──────────────▶ as a close of ours
//!          └─ no sign of life, or nothing taken for too long ──▶ closed with 4408, or just dropped
//! ```

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use adk_bridge_protocol::wire::live::Close;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WireError, Message, Utf8Bytes};

use super::error::AppError;
use super::incoming::{IncomingMessages, MessageRefusal, Terms};
use crate::budget::Tally;
use crate::chat::readers::STALL;

/// How many pings in a row may pass without a byte from the client: a tab in the background answers late.
const SILENT_BEATS: u32 = 3;
/// How long the last chunks of a stopping server may take to reach a client.
pub(super) const LAST_CHUNKS: Duration = Duration::from_secs(1);
/// How long a client may take to answer our close before it is dropped.
const PARTING: Duration = Duration::from_secs(2);
/// How much is discarded at a time from a client that keeps sending after the close.
const DISCARDED_BYTES: usize = 4 * 1024;

pub(super) struct Socket<S = TokioIo<Upgraded>> {
    inner: WebSocketStream<Wire<S>>,
    traffic: Arc<Traffic>,
    waiting: Arc<Tally>,
    beats: Interval,
    silent: u32,
    heard: u64,
    /// Whether a frame was read since other tasks last ran.
    has_read: bool,
}

/// A frame of the client.
#[derive(Debug)]
pub(super) enum Incoming {
    Text(Utf8Bytes),
    Binary(Bytes),
}

impl Incoming {
    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }
}

/// Why a socket ends.
#[derive(Debug)]
pub(super) enum SocketEnd {
    /// The client closed it, or its connection broke.
    Left,
    /// It has to be closed, with this reason.
    Close(Close),
    /// The same, and the client can be sent the details first.
    Refused(Box<AppError>, Close),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(super) async fn new(
        stream: S,
        limits: WebSocketConfig,
        terms: Terms,
        heartbeat: Duration,
    ) -> Self {
        let traffic = Arc::new(Traffic::default());
        let waiting = terms.waiting.clone();
        let wire = Wire {
            stream,
            incoming: IncomingMessages::new(terms),
            traffic: traffic.clone(),
        };
        let mut beats = tokio::time::interval_at(Instant::now() + heartbeat, heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            inner: WebSocketStream::from_raw_socket(wire, Role::Server, Some(limits)).await,
            traffic,
            waiting,
            beats,
            silent: 0,
            heard: 0,
            has_read: false,
        }
    }

    /// Counts what the client has sent until its chat accepts it.
    pub(super) fn waiting(&self) -> &Arc<Tally> {
        &self.waiting
    }

    /// The next frame. With `listen` false it only checks that the client is alive, and returns no frame now and then.
    /// The client is pinged meanwhile. Cancel-safe.
    pub(super) async fn next(&mut self, listen: bool) -> Result<Incoming, SocketEnd> {
        if std::mem::take(&mut self.has_read) {
            // A client that sends without a pause would keep others waiting while its frames are ready.
            tokio::task::yield_now().await;
        }
        loop {
            tokio::select! {
                message = self.inner.next(), if listen => match message {
                    None => return Err(SocketEnd::Left),
                    Some(Err(error)) => return Err(socket_end(error)),
                    Some(Ok(message)) => {
                        self.has_read = true;
                        match message {
                            Message::Text(text) => return Ok(Incoming::Text(text)),
                            Message::Binary(bytes) => return Ok(Incoming::Binary(bytes)),
                            // A ping has been answered; after a close the end comes next.
                            _ => tokio::task::yield_now().await,
                        }
                    }
                },
                _ = self.beats.tick() => self.beat(listen).await?,
            }
        }
    }

    /// Writes a frame; it may stay in the buffer until [`Self::flush`].
    pub(super) async fn feed(&mut self, message: Message) -> Result<(), SocketEnd> {
        patiently(self.inner.feed(message), &self.traffic).await
    }

    pub(super) async fn flush(&mut self) -> Result<(), SocketEnd> {
        patiently(self.inner.flush(), &self.traffic).await
    }

    pub(super) async fn send(&mut self, message: Message) -> Result<(), SocketEnd> {
        patiently(self.inner.send(message), &self.traffic).await
    }

    /// Sends the reason and waits a moment for the client's answer: a connection that is closed at once loses the
    /// reason.
    pub(super) async fn close(&mut self, why: Close) {
        let frame = CloseFrame {
            code: why.code.into(),
            reason: Utf8Bytes::from_static(why.reason),
        };
        let parting = async {
            self.inner.send(Message::Close(Some(frame))).await.ok()?;
            while let Some(Ok(_)) = self.inner.next().await {}
            // Frames that could not be read are still arriving.
            let wire = self.inner.get_mut();
            wire.shutdown().await.ok()?;
            let mut discarded = vec![0; DISCARDED_BYTES];
            while wire.read(&mut discarded).await.ok()? > 0 {}
            Some(())
        };
        let _ = timeout(PARTING, parting).await;
    }

    /// Pings the client, and gives up on one that has been silent for too long. Every byte counts as a sign of life,
    /// since the answer to a ping waits behind a large frame.
    async fn beat(&mut self, listen: bool) -> Result<(), SocketEnd> {
        let heard = self.traffic.read.load(Relaxed);
        if heard != self.heard || !listen {
            self.heard = heard;
            self.silent = 0;
        }
        if self.silent >= SILENT_BEATS {
            return Err(SocketEnd::Close(Close::TIMEOUT));
        }
        self.silent += 1;
        self.send(Message::Ping(Bytes::new())).await
    }
}

/// Waits until the server shuts down.
pub(super) async fn shutdown(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

/// A text frame; everything that is written is JSON, and so it is UTF-8.
pub(super) fn text(bytes: impl Into<Bytes>) -> Result<Message, SocketEnd> {
    match Utf8Bytes::try_from(bytes.into()) {
        Ok(text) => Ok(Message::Text(text)),
        Err(_) => Err(SocketEnd::Close(Close::INTERNAL)),
    }
}

/// A client that takes no byte for this long is gone, so it is not sent a reason.
async fn patiently(
    writing: impl Future<Output = Result<(), WireError>>,
    traffic: &Traffic,
) -> Result<(), SocketEnd> {
    let mut writing = pin!(writing);
    let mut written = traffic.written.load(Relaxed);
    loop {
        if let Ok(done) = timeout(STALL, &mut writing).await {
            return done.map_err(|_| SocketEnd::Left);
        }
        let since = traffic.written.load(Relaxed);
        if since == std::mem::replace(&mut written, since) {
            return Err(SocketEnd::Left);
        }
    }
}

/// The end of a socket whose client broke the rules of the protocol.
fn socket_end(error: WireError) -> SocketEnd {
    match error {
        WireError::Io(error) => match error.downcast::<MessageRefusal>() {
            Ok(MessageRefusal(refusal)) => {
                let why = Close::from(&refusal);
                SocketEnd::Refused(Box::new(refusal), why)
            }
            Err(_) => SocketEnd::Left,
        },
        WireError::Protocol(_) => SocketEnd::Close(BROKEN),
        WireError::Utf8(_) => SocketEnd::Close(NOT_UTF8),
        WireError::Capacity(_) => SocketEnd::Close(Close::TOO_LARGE),
        _ => SocketEnd::Left,
    }
}

/// Codes of the WebSocket protocol itself.
const BROKEN: Close = Close {
    code: 1002,
    reason: "the client violated the WebSocket protocol",
    reconnect: false,
};
const NOT_UTF8: Close = Close {
    code: 1007,
    reason: "a text frame was not UTF-8",
    reconnect: false,
};

/// How many bytes were read and written.
#[derive(Debug, Default)]
struct Traffic {
    read: AtomicU64,
    written: AtomicU64,
}

/// The connection below, with its bytes counted.
struct Wire<S> {
    stream: S,
    incoming: IncomingMessages,
    traffic: Arc<Traffic>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let stream = Pin::new(&mut this.stream);
        let read = ready!(this.incoming.poll_read(stream, context, buffer));
        let bytes = buffer.filled().len() - before;
        this.traffic.read.fetch_add(bytes as u64, Relaxed);
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        if let Ok(bytes) = written {
            self.traffic.written.fetch_add(bytes as u64, Relaxed);
        }
        Poll::Ready(written)
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
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::budget;
    use crate::config::Limits;

    /// Pings, which are answered without being passed on, and texts of one letter; masked with nothing.
    const FRAMES: &[u8] = b"\x89\x80\0\0\0\0\x81\x81\0\0\0\0a";
    const COUNT: usize = 1_000;

    #[tokio::test]
    async fn whoever_sends_without_a_pause_lets_others_work_after_every_frame() {
        let budget = budget::unfinished(&Limits::default());
        let terms = Terms {
            hold: budget.hold(&"alice".into()),
            waiting: Arc::new(Tally::new(budget.hold(&"alice".into()))),
            largest: 1_000,
            time: Duration::from_secs(60),
        };
        let (mut client, server) = tokio::io::duplex(COUNT * FRAMES.len());
        client.write_all(&FRAMES.repeat(COUNT)).await.unwrap();
        let limits = WebSocketConfig::default();
        let mut socket = Socket::new(server, limits, terms, Duration::from_secs(60)).await;
        let turns = Rc::new(Cell::new(0));
        let others = {
            let turns = turns.clone();
            async move {
                loop {
                    turns.set(turns.get() + 1);
                    tokio::task::yield_now().await;
                }
            }
        };
        let local = tokio::task::LocalSet::new();
        local.spawn_local(others);
        let read = local.run_until(async {
            for _ in 0..COUNT {
                assert!(matches!(
                    socket.next(true).await.unwrap(),
                    Incoming::Text(_)
                ));
            }
        });
        read.await;
        assert!(turns.get() >= 2 * COUNT - 1, "{}", turns.get());
    }
}
