//! The readers of a turn: each gets the frames at its own pace; the fastest one sets the pace of the turn.
//!
//! Unread bytes are counted for every endpoint. A reader with too many of them is given up; the turn continues without
//! it.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use adk_bridge_protocol::chunk::{Chunk, FinishReason};
use adk_bridge_protocol::dialect::Reader;
use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::{FrameKind, Outbox};
use adk_bridge_protocol::reply::Reply;
use adk_bridge_protocol::sdk::Sdk;
use adk_bridge_protocol::wire::sse;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::unread::{UnreadAnswer, UnreadAnswers};
use crate::budget::BudgetError;
use crate::cluster::Life;
use crate::metrics::Metrics;

/// How many pieces may wait for a reader before it counts as lagging. A piece is the result of one read from the agent.
const PIECES: usize = 16;
/// Pieces up to this size are copied out of the buffer, which stays for the next ones: growing another buffer costs more. A
/// chat that streams keeps this much for each reader.
const COPIED_BYTES: usize = 1024;
/// A reader that takes nothing for this long is gone, although its connection was not closed.
pub const STALL: Duration = Duration::from_secs(30);

/// What an endpoint gets: the bytes of its answer.
///
/// A piece counts as unread until the next one is requested, because an endpoint requests it after writing the previous
/// one.
#[derive(Debug)]
pub struct Answer {
    pieces: mpsc::Receiver<Bytes>,
    message: MessageId,
    unread: Arc<UnreadAnswer>,
    /// The length of the piece that is being written.
    writing: usize,
    /// The life of the replica that sends it, in a cluster: nothing is sent after it.
    life: Option<Arc<Life>>,
}

impl Answer {
    /// Pieces of a turn of this message.
    fn new(pieces: mpsc::Receiver<Bytes>, message: &MessageId, unread: Arc<UnreadAnswer>) -> Self {
        Self {
            pieces,
            message: message.clone(),
            unread,
            writing: 0,
            life: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(pieces: mpsc::Receiver<Bytes>, message: &MessageId) -> Self {
        Self::new(pieces, message, UnreadAnswers::for_tests().begin())
    }

    /// The message that the reader has in full after the last piece, unless the answer was given up.
    pub fn whole_message(&self) -> Option<&MessageId> {
        (!self.unread.is_given_up() && !self.is_cut()).then_some(&self.message)
    }

    /// Whether it ended without a last chunk, because the chat goes on at another replica or with another task. Its
    /// connection has to break, so that the client notices.
    pub fn is_cut(&self) -> bool {
        self.unread.is_cut()
    }

    /// Its unread bytes.
    pub(super) fn unread(&self) -> &Arc<UnreadAnswer> {
        &self.unread
    }

    /// Cancel-safe.
    pub async fn recv(&mut self) -> Option<Bytes> {
        std::future::poll_fn(|context| self.poll_recv(context)).await
    }

    pub fn poll_recv(&mut self, context: &mut std::task::Context<'_>) -> Poll<Option<Bytes>> {
        self.note_written();
        self.pieces
            .poll_recv(context)
            .map(|piece| self.taken(piece))
    }

    pub fn try_recv(&mut self) -> Option<Bytes> {
        self.note_written();
        let piece = self.pieces.try_recv().ok();
        self.taken(piece)
    }

    fn taken(&mut self, mut piece: Option<Bytes>) -> Option<Bytes> {
        if piece.is_some() && self.life.as_ref().is_some_and(|life| !life.is_held()) {
            self.unread.cut();
            self.pieces.close();
            piece = None;
        }
        self.writing = piece.as_ref().map_or(0, Bytes::len);
        piece
    }

    fn note_written(&mut self) {
        match std::mem::take(&mut self.writing) {
            0 => {}
            written => self.unread.tally.remove(written),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // The chat notices only later that the reader is gone.
        self.unread.tally.clear();
    }
}

/// All readers of the current turn.
#[derive(Debug)]
pub struct Readers {
    metrics: Arc<Metrics>,
    unread: UnreadAnswers,
    all: Vec<AttachedReader>,
    /// How long a reader may take nothing.
    stall: Duration,
    /// The last chunk of the turn, for readers that lag when it comes.
    terminal: Vec<u8>,
    life: Option<Arc<Life>>,
}

#[derive(Debug)]
struct AttachedReader {
    reader: Reader,
    sink: mpsc::Sender<Bytes>,
    buffer: Vec<u8>,
    unread: Arc<UnreadAnswer>,
    /// How much of the buffer counts as unread.
    counted: usize,
    is_lagging: bool,
    /// Whether its client lacked content when the reader was attached.
    lacked: bool,
    /// Since when it has taken nothing. Kept across calls of [`Readers::room`], which may be cancelled at any time.
    full_since: Option<Instant>,
    _present: ReaderCount,
}

/// Counts one reader in the metrics until it is dropped.
#[derive(Debug)]
struct ReaderCount(Arc<Metrics>);

impl ReaderCount {
    fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.reader_came();
        Self(metrics.clone())
    }
}

impl Drop for ReaderCount {
    fn drop(&mut self) {
        self.0.reader_went();
    }
}

impl Readers {
    pub fn new(metrics: Arc<Metrics>, unread: UnreadAnswers) -> Self {
        Self {
            metrics,
            unread,
            all: Vec::new(),
            stall: STALL,
            terminal: Vec::new(),
            life: None,
        }
    }

    /// Sends nothing after the end of this life.
    #[must_use]
    pub fn of_life(mut self, life: Option<Arc<Life>>) -> Self {
        self.life = life;
        self
    }

    /// Adds a reader; its answer begins with what its client lacks.
    pub fn attach(
        &mut self,
        mut reader: Reader,
        reply: &Reply,
        theirs: Option<&Message>,
    ) -> Answer {
        let (sink, pieces) = mpsc::channel(PIECES);
        let mut buffer = Vec::new();
        let lacked = reader.attach(reply, theirs, &mut buffer);
        let unread = self.unread.begin();
        let mut answer = Answer::new(pieces, &reply.message().id, unread.clone());
        answer.life = self.life.clone();
        let mut attached = AttachedReader {
            reader,
            sink,
            buffer,
            unread,
            counted: 0,
            is_lagging: false,
            lacked,
            full_since: None,
            _present: ReaderCount::new(&self.metrics),
        };
        // Counted at once: the buffer may hold the whole message, and more readers may come before it is sent.
        if attached.has_room_to_read(&self.metrics) {
            self.all.push(attached);
        }
        answer
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many readers still hold their answer.
    pub fn count(&self) -> usize {
        let held = |attached: &&AttachedReader| !attached.sink.is_closed();
        self.all.iter().filter(held).count()
    }

    /// Whether any reader was sent content when it was attached, and not only the id of the message.
    pub fn lacked(&self) -> bool {
        self.all.iter().any(|attached| attached.lacked)
    }

    /// Whether any reader still holds its answer.
    pub fn has_open_answers(&self) -> bool {
        self.all.iter().any(|attached| !attached.sink.is_closed())
    }

    /// Drops readers whose answer was dropped.
    pub fn drop_closed(&mut self) {
        self.all.retain(|attached| !attached.sink.is_closed());
    }

    /// To be called before every input. A reader without room for its frames starts to lag; one that has room again
    /// catches up.
    pub fn make_ready(&mut self, reply: &Reply) {
        self.drop_closed();
        self.drop_stalled();
        let metrics = &self.metrics;
        self.all.retain_mut(|attached| {
            match (attached.is_lagging, attached.sink.capacity() > 0) {
                (false, false) => {
                    attached.reader.fall_behind(reply);
                    attached.is_lagging = true;
                }
                (true, true) => {
                    attached.reader.catch_up(reply, &mut attached.buffer);
                    attached.is_lagging = false;
                    // Counted as in `attach`.
                    return attached.has_room_to_read(metrics);
                }
                _ => {}
            }
            true
        });
    }

    /// Writes frames of the outbox to the buffers of all readers that do not lag.
    pub fn frames(&mut self, reply: &Reply, outbox: &Outbox, range: std::ops::Range<usize>) {
        for index in range.clone() {
            if outbox.frames(index..index + 1)[0].kind == FrameKind::Terminal {
                self.terminal.clear();
                self.terminal
                    .extend_from_slice(outbox.sse(index..index + 1));
            }
        }
        for attached in self.all.iter_mut().filter(|attached| !attached.is_lagging) {
            attached
                .reader
                .frames(reply, outbox, range.clone(), &mut attached.buffer);
        }
    }

    /// Sends what has been written to the buffers.
    pub fn flush(&mut self) {
        let metrics = &self.metrics;
        self.all.retain_mut(|attached| {
            attached.buffer.is_empty() || attached.is_lagging || attached.send(metrics)
        });
    }

    /// Ends the turn for all readers.
    pub fn end(&mut self, reply: &Reply) {
        for mut attached in self.all.drain(..) {
            if attached.is_lagging {
                attached
                    .reader
                    .finish(reply, &self.terminal, &mut attached.buffer);
            }
            attached.send_last(&self.metrics);
        }
    }

    /// Ends a turn of a reply that had ended before it began.
    pub fn finish_with(&mut self, reply: &Reply) {
        self.end_with(reply, &Chunk::finish(FinishReason::Stop));
    }

    /// Ends the answers of readers that were sent everything when they were attached.
    pub fn finish(&mut self) {
        for mut attached in self.all.drain(..) {
            sse::chunk(
                &mut attached.buffer,
                &Chunk::finish(FinishReason::Stop),
                Sdk::OLDEST,
            );
            attached.send_last(&self.metrics);
        }
    }

    /// Ends the turn for all readers before its own end.
    pub fn cut_off(&mut self, reply: &Reply, why: &str) {
        self.end_with(reply, &Chunk::error(why));
    }

    fn end_with(&mut self, reply: &Reply, last: &Chunk<'_>) {
        self.terminal.clear();
        sse::chunk(&mut self.terminal, last, Sdk::OLDEST);
        for attached in self.all.iter_mut().filter(|attached| !attached.is_lagging) {
            attached.buffer.extend_from_slice(&self.terminal);
        }
        self.end(reply);
    }

    /// Ends the answers of all readers without a last chunk: they go on at another replica, or with the next task.
    pub fn cut(&mut self) {
        for attached in self.all.drain(..) {
            attached.unread.cut();
        }
    }

    /// Ends the turn for all readers with a message that a user can act on.
    pub fn fail(&mut self, message: &str) {
        for mut attached in self.all.drain(..) {
            sse::chunk(&mut attached.buffer, &Chunk::error(message), Sdk::OLDEST);
            attached.send_last(&self.metrics);
        }
    }

    /// Whether the agent may continue: at least one reader has room, or there are none.
    pub fn have_room(&self) -> bool {
        self.all.is_empty() || self.all.iter().any(|attached| attached.sink.capacity() > 0)
    }

    /// Waits until any reader has room. Drops readers that have taken nothing for too long.
    pub async fn room(&mut self) {
        self.drop_stalled();
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
            self.drop_stalled();
        }
    }

    /// Notes which readers take nothing, and drops those that have done so for too long; the turn continues without
    /// them.
    fn drop_stalled(&mut self) {
        let is_reading = |it: &AttachedReader| it.full_since.is_none() && it.sink.capacity() > 0;
        if self.all.iter().all(is_reading) {
            return;
        }
        let (now, stall) = (Instant::now(), self.stall);
        self.all.retain_mut(|attached| {
            if attached.sink.capacity() > 0 {
                attached.full_since = None;
                return true;
            }
            let since = *attached.full_since.get_or_insert(now);
            let stays = now < since + stall;
            if !stays {
                tracing::info!("a reader that reads nothing is detached; the turn continues");
            }
            stays
        });
    }

    /// Sends a comment to all readers, so that no proxy closes an idle connection.
    pub fn keep_alive(&mut self) {
        let comment = Bytes::from_static(sse::KEEP_ALIVE);
        for attached in &self.all {
            attached.unread.tally.add_a_few(comment.len());
            if attached.sink.try_send(comment.clone()).is_err() {
                attached.unread.tally.remove(comment.len());
            }
        }
    }
}

impl Drop for Readers {
    /// Whoever is still reading has lost its task, by a panic or the end of the process: a part must not look like the whole.
    fn drop(&mut self) {
        self.cut();
    }
}

impl AttachedReader {
    /// Sends the buffer. Returns whether the reader stays.
    fn send(&mut self, metrics: &Metrics) -> bool {
        if !self.has_room_to_read(metrics) {
            return false;
        }
        let piece = self.take_buffer();
        let bytes = piece.len();
        // `make_ready` has made sure that there is room, and drops closed sinks.
        if let Err(mpsc::error::TrySendError::Full(piece)) = self.sink.try_send(piece) {
            self.buffer = piece.into();
        } else {
            self.counted = 0;
            metrics.sent(bytes);
        }
        true
    }

    /// What was written to the buffer, which is empty then.
    fn take_buffer(&mut self) -> Bytes {
        if self.buffer.len() > COPIED_BYTES {
            return std::mem::take(&mut self.buffer).into();
        }
        let piece = Bytes::copy_from_slice(&self.buffer);
        self.buffer.clear();
        piece
    }

    /// Sends the rest of the buffer and the end; a task of its own waits for a reader that has no room.
    fn send_last(&mut self, metrics: &Metrics) {
        self.buffer.extend_from_slice(sse::DONE);
        if self.has_room_to_read(metrics) {
            self.send_end(metrics);
        }
    }

    /// Counts what has been written for the reader. Gives it up if too much is unread.
    fn has_room_to_read(&mut self, metrics: &Metrics) -> bool {
        let counted = self.unread.tally.add(self.buffer.len() - self.counted);
        if let Err(refusal) = counted {
            self.give_up(&refusal, metrics);
            return false;
        }
        self.counted = self.buffer.len();
        true
    }

    /// Ends the answer; the turn continues and can be resumed.
    fn give_up(&mut self, refusal: &BudgetError, metrics: &Metrics) {
        tracing::info!(
            "a response that is not read is ended early, and its turn continues: {refusal}"
        );
        self.unread.give_up();
        self.unread.tally.remove(self.counted);
        self.buffer = Vec::new();
        sse::chunk(
            &mut self.buffer,
            &Chunk::error(why_given_up(refusal)),
            Sdk::OLDEST,
        );
        self.buffer.extend_from_slice(sse::DONE);
        self.unread.tally.add_a_few(self.buffer.len());
        self.send_end(metrics);
    }

    fn send_end(&mut self, metrics: &Metrics) {
        let piece = Bytes::from(std::mem::take(&mut self.buffer));
        metrics.sent(piece.len());
        if let Err(mpsc::error::TrySendError::Full(piece)) = self.sink.try_send(piece) {
            let sink = self.sink.clone();
            tokio::spawn(async move { sink.send_timeout(piece, STALL).await });
        }
    }
}

/// Does not suggest asking again, which would only begin another turn.
fn why_given_up(refusal: &BudgetError) -> String {
    let (whose, key) = match refusal {
        BudgetError::User { key, .. } => ("this user", key),
        BudgetError::Total { key, .. } => ("all users", key),
    };
    format!(
        "too many bytes of unread answers are held for {whose} ({key}); the turn continues and its message is stored: load \
         the chat again in a moment"
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use adk_bridge_protocol::dialect::Dialect;

    use crate::budget::Budget;

    /// Readers of a reply that has said nothing, each with its start in its sink.
    fn reading(count: usize, stall: Duration) -> (Readers, Vec<Answer>, Reply) {
        let reply = Reply::new("reply");
        let mut readers = Readers::new(Arc::default(), UnreadAnswers::for_tests());
        readers.stall = stall;
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

    /// Readers of a user who may leave this many bytes unread, in all answers together.
    fn limited(bytes: usize) -> (Readers, Arc<Budget>) {
        let limits = crate::config::Limits {
            unread_bytes_per_user: bytes,
            ..Default::default()
        };
        let budget = crate::budget::unread(&limits);
        let unread = UnreadAnswers::new(budget.clone(), Arc::new("alice".into()));
        (Readers::new(Arc::default(), unread), budget)
    }

    fn said(text: &str) -> Reply {
        Reply::restore(
            serde_json::from_value(serde_json::json!({
                "message": {"id": "m", "role": "assistant", "parts": [{"type": "text", "text": text}]},
                "calls": [], "asking": false, "steps": 1, "retried": false, "ended": null,
            }))
            .unwrap(),
        )
    }

    fn read(answer: &mut Answer) -> String {
        let pieces = std::iter::from_fn(|| answer.try_recv());
        let all: Vec<u8> = pieces.flatten().collect();
        String::from_utf8(all).unwrap()
    }

    /// Whether this many more bytes may be unread.
    fn has_room(budget: &Arc<Budget>, bytes: usize) -> bool {
        budget.hold(&"alice".into()).resize(bytes).is_ok()
    }

    #[tokio::test]
    async fn what_is_not_read_is_counted_from_its_making_to_the_next_piece() {
        let (mut readers, budget) = limited(100_000);
        let reply = said(&"x".repeat(60_000));
        let reader = || Reader::new(Dialect::Native, Sdk::V6, false);
        let mut answer = readers.attach(reader(), &reply, None);
        assert!(!has_room(&budget, 50_000), "made");
        readers.flush();
        let piece = answer.recv().await.unwrap();
        assert!(!has_room(&budget, 50_000), "taken");
        drop(piece);
        readers.keep_alive();
        assert_eq!(answer.recv().await.unwrap(), sse::KEEP_ALIVE);
        assert!(has_room(&budget, 100_000), "written");
        let other = readers.attach(reader(), &reply, None);
        assert!(!has_room(&budget, 50_000));
        drop(other);
        assert!(has_room(&budget, 100_000), "nobody has it");
    }

    #[tokio::test]
    async fn a_reader_with_too_much_unread_gets_an_error_and_is_dropped() {
        let (mut readers, budget) = limited(100_000);
        let (reply, nothing) = (said(&"x".repeat(60_000)), Reply::new("m"));
        let reader = || Reader::new(Dialect::Native, Sdk::V6, false);
        // One that lags when the turn ends, and one that is attached when there is no room.
        let mut behind = readers.attach(reader(), &nothing, None);
        readers.flush();
        fill(&mut readers);
        readers.make_ready(&nothing);
        let mut first = readers.attach(reader(), &reply, None);
        let mut late = readers.attach(reader(), &reply, None);
        readers.cut_off(&reply, "stopped");
        for given_up in [&mut late, &mut behind] {
            let mut received = read(given_up);
            // The rest comes when there is room.
            tokio::task::yield_now().await;
            received += &read(given_up);
            assert!(
                received.contains("limits.unread_bytes_per_user"),
                "{received}"
            );
            assert!(received.ends_with("data: [DONE]\n\n") && received.len() < 2_000);
            assert_eq!(given_up.whole_message(), None);
        }
        let received = read(&mut first);
        assert!(received.len() > 60_000 && received.contains("stopped"));
        assert_eq!(first.whole_message(), Some(&"m".into()));
        drop((first, late, behind));
        assert!(has_room(&budget, 100_000));
    }
}
