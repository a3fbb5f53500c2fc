//! One WebSocket: frames in and out with patience but not for ever, signs of life, and an orderly end.
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

use crate::chat::readers::STALL;

/// How many pings in a row may go without a byte of the client: a tab in the background answers late.
const SILENT_BEATS: u32 = 3;
/// How long the last chunks of a server that goes away may take to reach a client.
pub(super) const LAST_CHUNKS: Duration = Duration::from_secs(1);
/// How long a client may take to answer our close before it is dropped.
const PARTING: Duration = Duration::from_secs(2);
/// What is thrown away of a client that goes on sending after it was closed, at a time.
const DISCARDED_BYTES: usize = 4 * 1024;

pub struct Socket {
    inner: WebSocketStream<Wire>,
    traffic: Arc<Traffic>,
    beats: Interval,
    silent: u32,
    heard: u64,
}

/// A frame of the client.
#[derive(Debug)]
pub enum Incoming {
    Text(Utf8Bytes),
    Binary(Bytes),
}

/// Why a socket is of no use any more.
#[derive(Debug)]
pub enum Gone {
    /// The client closed it, or its connection broke.
    Left,
    /// It is to be closed, and this is why.
    Close(Close),
}

impl Socket {
    pub async fn new(
        stream: TokioIo<Upgraded>,
        limits: WebSocketConfig,
        heartbeat: Duration,
    ) -> Self {
        let traffic = Arc::new(Traffic::default());
        let wire = Wire {
            stream,
            traffic: traffic.clone(),
        };
        let mut beats = tokio::time::interval_at(Instant::now() + heartbeat, heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            inner: WebSocketStream::from_raw_socket(wire, Role::Server, Some(limits)).await,
            traffic,
            beats,
            silent: 0,
            heard: 0,
        }
    }

    /// The next frame; none, every now and then, where nothing but a sign of life is wanted (`listen` is false). The
    /// client is pinged meanwhile. May be dropped and called again.
    pub async fn next(&mut self, listen: bool) -> Result<Incoming, Gone> {
        loop {
            tokio::select! {
                message = self.inner.next(), if listen => match message {
                    None => return Err(Gone::Left),
                    Some(Err(error)) => return Err(gone(&error)),
                    Some(Ok(Message::Text(text))) => return Ok(Incoming::Text(text)),
                    Some(Ok(Message::Binary(bytes))) => return Ok(Incoming::Binary(bytes)),
                    // A ping has been answered; after a close the end comes next.
                    Some(Ok(_)) => {}
                },
                _ = self.beats.tick() => self.beat(listen).await?,
            }
        }
    }

    /// Writes a frame; it may stay in the buffer until [`Self::flush`].
    pub async fn feed(&mut self, message: Message) -> Result<(), Gone> {
        patiently(self.inner.feed(message), &self.traffic).await
    }

    pub async fn flush(&mut self) -> Result<(), Gone> {
        patiently(self.inner.flush(), &self.traffic).await
    }

    pub async fn send(&mut self, message: Message) -> Result<(), Gone> {
        patiently(self.inner.send(message), &self.traffic).await
    }

    /// Says why it ends, and waits a moment for the client's answer: a connection that is cut at once loses the reason.
    pub async fn close(&mut self, why: Close) {
        let frame = CloseFrame {
            code: why.code.into(),
            reason: Utf8Bytes::from_static(why.reason),
        };
        let parting = async {
            self.inner.send(Message::Close(Some(frame))).await.ok()?;
            while let Some(Ok(_)) = self.inner.next().await {}
            // Frames that could not be read are still on their way.
            let wire = self.inner.get_mut();
            wire.shutdown().await.ok()?;
            let mut discarded = vec![0; DISCARDED_BYTES];
            while wire.read(&mut discarded).await.ok()? > 0 {}
            Some(())
        };
        let _ = timeout(PARTING, parting).await;
    }

    /// Asks for a sign of life, and gives up on a client that has given none for long; every byte is one, since the
    /// answer to a ping waits behind a large frame.
    async fn beat(&mut self, listen: bool) -> Result<(), Gone> {
        let heard = self.traffic.read.load(Relaxed);
        if heard != self.heard || !listen {
            self.heard = heard;
            self.silent = 0;
        }
        if self.silent >= SILENT_BEATS {
            return Err(Gone::Close(Close::TIMEOUT));
        }
        self.silent += 1;
        self.send(Message::Ping(Bytes::new())).await
    }
}

/// Waits until the server goes away.
pub(super) async fn told(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

/// A text frame; everything that is written is JSON, and so it is UTF-8.
pub(super) fn text(bytes: impl Into<Bytes>) -> Result<Message, Gone> {
    match Utf8Bytes::try_from(bytes.into()) {
        Ok(text) => Ok(Message::Text(text)),
        Err(_) => Err(Gone::Close(Close::INTERNAL)),
    }
}

/// A client that takes not a byte for so long has gone away without saying so; telling it why is of no use.
async fn patiently(
    writing: impl Future<Output = Result<(), WireError>>,
    traffic: &Traffic,
) -> Result<(), Gone> {
    let mut writing = pin!(writing);
    let mut written = traffic.written.load(Relaxed);
    loop {
        if let Ok(done) = timeout(STALL, &mut writing).await {
            return done.map_err(|_| Gone::Left);
        }
        let since = traffic.written.load(Relaxed);
        if since == std::mem::replace(&mut written, since) {
            return Err(Gone::Left);
        }
    }
}

/// What to say to a client that breaks the rules of the protocol.
fn gone(error: &WireError) -> Gone {
    match error {
        WireError::Protocol(_) => Gone::Close(BROKEN),
        WireError::Utf8(_) => Gone::Close(NOT_UTF8),
        WireError::Capacity(_) => Gone::Close(Close::TOO_LARGE),
        _ => Gone::Left,
    }
}

/// Codes of the WebSocket protocol itself.
const BROKEN: Close = Close {
    code: 1002,
    reason: "the WebSocket protocol was not kept",
    reconnect: false,
};
const NOT_UTF8: Close = Close {
    code: 1007,
    reason: "a text frame was not UTF-8",
    reconnect: false,
};

/// How many bytes have come and gone.
#[derive(Debug, Default)]
struct Traffic {
    read: AtomicU64,
    written: AtomicU64,
}

/// The connection below, with its bytes counted.
struct Wire {
    stream: TokioIo<Upgraded>,
    traffic: Arc<Traffic>,
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        let bytes = buffer.filled().len() - before;
        self.traffic.read.fetch_add(bytes as u64, Relaxed);
        Poll::Ready(read)
    }
}

impl AsyncWrite for Wire {
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
