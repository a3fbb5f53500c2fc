//! The readers of a turn: each gets the frames at its own pace, the fastest sets that of the turn.

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::chunk::{Chunk, FinishReason, Sdk};
use adk_bridge_protocol::dialect::Reader;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::{FrameKind, Outbox};
use adk_bridge_protocol::reply::Reply;
use adk_bridge_protocol::wire::sse;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;

use crate::metrics::Metrics;

/// How many pieces a reader may lag behind before it is parked. A piece is what one read from the agent brought.
const PIECES: usize = 16;
/// A reader that takes nothing for so long has gone away without saying so.
pub const STALL: Duration = Duration::from_secs(30);

/// What a door gets: the bytes of its answer.
pub type Answer = mpsc::Receiver<Bytes>;

/// Everybody who reads the current turn.
#[derive(Debug)]
pub struct Readers {
    metrics: Arc<Metrics>,
    all: Vec<Attached>,
    /// The last chunk of the turn, for readers that are parked when it comes.
    terminal: Vec<u8>,
}

#[derive(Debug)]
struct Attached {
    reader: Reader,
    sink: mpsc::Sender<Bytes>,
    buffer: Vec<u8>,
    parked: bool,
    _counted: Counted,
}

/// One reader in the metrics, as long as this lives.
#[derive(Debug)]
struct Counted(Arc<Metrics>);

impl Counted {
    fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.reader_came();
        Self(metrics.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.reader_went();
    }
}

impl Readers {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            all: Vec::new(),
            terminal: Vec::new(),
        }
    }

    /// Adds a reader; its answer begins with what its client misses.
    pub fn attach(
        &mut self,
        mut reader: Reader,
        reply: &Reply,
        theirs: Option<&Message>,
    ) -> Answer {
        let (sink, answer) = mpsc::channel(PIECES);
        let mut buffer = Vec::new();
        reader.attach(reply, theirs, &mut buffer);
        self.all.push(Attached {
            reader,
            sink,
            buffer,
            parked: false,
            _counted: Counted::new(&self.metrics),
        });
        answer
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// To be called before every input: parks who cannot take its frames, and brings back who can again.
    pub fn make_ready(&mut self, reply: &Reply) {
        self.all.retain(|attached| !attached.sink.is_closed());
        for attached in &mut self.all {
            match (attached.parked, attached.sink.capacity() > 0) {
                (false, false) => {
                    attached.reader.park(reply);
                    attached.parked = true;
                }
                (true, true) => {
                    attached.reader.unpark(reply, &mut attached.buffer);
                    attached.parked = false;
                }
                _ => {}
            }
        }
    }

    /// Takes frames of the outbox.
    pub fn frames(&mut self, reply: &Reply, outbox: &Outbox, range: std::ops::Range<usize>) {
        for index in range.clone() {
            if outbox.frames(index..index + 1)[0].kind == FrameKind::Terminal {
                self.terminal.clear();
                self.terminal
                    .extend_from_slice(outbox.sse(index..index + 1));
            }
        }
        for attached in self.all.iter_mut().filter(|attached| !attached.parked) {
            attached
                .reader
                .frames(reply, outbox, range.clone(), &mut attached.buffer);
        }
    }

    /// Sends what has been taken.
    pub fn flush(&mut self) {
        for attached in &mut self.all {
            if !attached.buffer.is_empty() && !attached.parked {
                let piece = Bytes::from(std::mem::take(&mut attached.buffer));
                let bytes = piece.len();
                // `make_ready` has seen to it that there is room; a closed sink is dropped there.
                if let Err(mpsc::error::TrySendError::Full(piece)) = attached.sink.try_send(piece) {
                    attached.buffer = piece.into();
                } else {
                    self.metrics.sent(bytes);
                }
            }
        }
    }

    /// Ends the turn for everybody.
    pub fn end(&mut self, reply: &Reply) {
        for mut attached in self.all.drain(..) {
            if attached.parked {
                attached
                    .reader
                    .finish(reply, &self.terminal, &mut attached.buffer);
            }
            self.metrics.sent(attached.send_last());
        }
    }

    /// Ends a turn of a reply that has ended before: there is nothing to come but the end.
    pub fn finish_with(&mut self, reply: &Reply) {
        self.end_with(reply, &Chunk::finish(FinishReason::Stop));
    }

    /// Ends the turn for everybody although it has not come to its end.
    pub fn cut_off(&mut self, reply: &Reply, why: &str) {
        self.end_with(reply, &Chunk::error(why));
    }

    fn end_with(&mut self, reply: &Reply, last: &Chunk<'_>) {
        self.terminal.clear();
        sse::chunk(&mut self.terminal, last, Sdk::V6);
        for attached in self.all.iter_mut().filter(|attached| !attached.parked) {
            attached.buffer.extend_from_slice(&self.terminal);
        }
        self.end(reply);
    }

    /// Ends the turn for everybody with a message that a user can act on.
    pub fn fail(&mut self, message: &str) {
        for mut attached in self.all.drain(..) {
            sse::chunk(&mut attached.buffer, &Chunk::error(message), Sdk::V6);
            self.metrics.sent(attached.send_last());
        }
    }

    /// Whether the agent may go on: somebody can take what it says, or nobody listens.
    pub fn have_room(&self) -> bool {
        self.all.is_empty() || self.all.iter().any(|attached| attached.sink.capacity() > 0)
    }

    /// Waits until somebody has room again. Lets go of readers that take nothing.
    pub async fn room(&mut self) {
        let stalled = {
            let mut waits: FuturesUnordered<_> = self
                .all
                .iter()
                .map(|attached| async { drop(attached.sink.reserve().await) })
                .collect();
            tokio::time::timeout(STALL, waits.next()).await.is_err()
        };
        if stalled {
            tracing::info!("readers that take nothing are let go; the turn runs on");
            self.all.clear();
        }
    }

    /// Sends a comment to everybody, so that nothing on the way closes an idle connection.
    pub fn keep_alive(&mut self) {
        for attached in &self.all {
            let _ = attached.sink.try_send(Bytes::from_static(sse::KEEP_ALIVE));
        }
    }
}

impl Attached {
    /// Sends what is left and the end; says how much. Who is behind gets it in peace.
    fn send_last(mut self) -> usize {
        self.buffer.extend_from_slice(sse::DONE);
        let (sink, piece) = (self.sink, Bytes::from(self.buffer));
        let bytes = piece.len();
        if let Err(mpsc::error::TrySendError::Full(piece)) = sink.try_send(piece) {
            tokio::spawn(async move { sink.send_timeout(piece, STALL).await });
        }
        bytes
    }
}
