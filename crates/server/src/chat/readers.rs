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
use tokio::time::Instant;

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
    /// How long a reader may take nothing.
    stall: Duration,
    /// The last chunk of the turn, for readers that are parked when it comes.
    terminal: Vec<u8>,
}

#[derive(Debug)]
struct Attached {
    reader: Reader,
    sink: mpsc::Sender<Bytes>,
    buffer: Vec<u8>,
    parked: bool,
    /// Since when it has taken nothing. Kept across calls of [`Readers::room`], which may be given up at any time.
    full_since: Option<Instant>,
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
            stall: STALL,
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
            full_since: None,
        });
        answer
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Lets go of readers whose answer nobody holds any more.
    pub fn forget_who_left(&mut self) {
        self.all.retain(|attached| !attached.sink.is_closed());
    }

    /// To be called before every input: parks who cannot take its frames, and brings back who can again.
    pub fn make_ready(&mut self, reply: &Reply) {
        self.forget_who_left();
        self.let_go();
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
        self.let_go();
        let Some(first) = self.all.iter().filter_map(|one| one.full_since).min() else {
            return;
        };
        let mut waits: FuturesUnordered<_> = self
            .all
            .iter()
            .map(|attached| async { drop(attached.sink.reserve().await) })
            .collect();
        let waited = tokio::time::timeout_at(first + self.stall, waits.next()).await;
        drop(waits);
        if waited.is_err() {
            self.let_go();
        }
    }

    /// Notes who takes nothing, and drops who has done so for too long; the turn runs on without it.
    fn let_go(&mut self) {
        let (now, stall) = (Instant::now(), self.stall);
        self.all.retain_mut(|attached| {
            if attached.sink.capacity() > 0 {
                attached.full_since = None;
                return true;
            }
            let since = *attached.full_since.get_or_insert(now);
            let stays = now < since + stall;
            if !stays {
                tracing::info!("a reader that takes nothing is let go; the turn runs on");
            }
            stays
        });
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use adk_bridge_protocol::dialect::Dialect;

    /// Readers of a reply that has said nothing, each with its start in its sink.
    fn reading(count: usize, stall: Duration) -> (Readers, Vec<Answer>, Reply) {
        let reply = Reply::new("reply");
        let mut readers = Readers {
            stall,
            ..Readers::new(Arc::default())
        };
        let answers = (0..count)
            .map(|_| readers.attach(Reader::new(Dialect::Native, Sdk::V6, false), &reply, None))
            .collect();
        readers.flush();
        (readers, answers, reply)
    }

    fn fill(readers: &mut Readers) {
        for _ in 0..PIECES {
            readers.keep_alive();
        }
    }

    #[tokio::test]
    async fn a_comment_keeps_idle_readers_and_never_comes_before_their_start() {
        let (mut readers, mut answers, _reply) = reading(2, STALL);
        readers.keep_alive();
        for answer in &mut answers {
            assert!(answer.recv().await.unwrap().starts_with(b"data: "));
            assert_eq!(answer.recv().await.unwrap(), sse::KEEP_ALIVE);
        }
    }

    /// The loop of a chat gives up waiting for room whenever anything else happens, keep-alives included.
    #[tokio::test]
    async fn a_reader_that_takes_nothing_is_let_go_however_often_the_wait_is_given_up() {
        let (mut readers, _answers, _reply) = reading(1, Duration::from_millis(50));
        fill(&mut readers);
        assert!(!readers.have_room());
        while !readers.is_empty() {
            let _ = tokio::time::timeout(Duration::from_millis(5), readers.room()).await;
        }
        assert!(readers.have_room());
    }

    #[tokio::test]
    async fn only_who_takes_nothing_is_let_go() {
        let (mut readers, mut answers, reply) = reading(2, Duration::ZERO);
        fill(&mut readers);
        answers[1].recv().await.unwrap();
        readers.make_ready(&reply);
        assert_eq!(readers.all.len(), 1);
        assert!(readers.have_room());
    }

    #[tokio::test]
    async fn a_reader_that_takes_something_ends_the_wait() {
        let (mut readers, mut answers, _reply) = reading(1, STALL);
        fill(&mut readers);
        let (_, taken) = tokio::join!(readers.room(), answers[0].recv());
        assert!(taken.is_some());
        assert!(readers.have_room());
    }
}
