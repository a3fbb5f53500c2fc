//! The bytes that a WebSocket client sends, before they are read as messages: counted while they arrive, given up when
//! they take too long, and split into pieces.
//!
//! ```text
//!   one frame of 31 MB ──▶ frame of 64 KiB, more follows ─▶ continuation of 64 KiB … ─▶ the last continuation
//! ```
//!
//! The WebSocket library allocates a frame when it is announced, and keeps that memory as long as the connection lives.
//! With a frame in pieces it holds only what has arrived, and only until the message is taken.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Sleep;

use super::error::AppError;
use crate::budget::{Hold, Tally};

/// A larger frame is split into pieces of this size. The masking key repeats every four bytes, so a piece whose length
/// is a multiple of four begins with the key's first byte.
const PIECE_BYTES: u64 = 64 * 1024;
/// This much of an unfinished message is not counted: every connection has a buffer of this size anyway.
const FREE_BYTES: u64 = 4 * 1024;
/// How much is read at once where frames begin.
const MAX_READ_BYTES: usize = 16 * 1024;
/// Two bytes, eight of a length, four of a mask.
const MAX_HEAD_BYTES: usize = 14;

const LAST: u8 = 0x80;
const CONTROL: u8 = 0x08;
const MASKED: u8 = 0x80;

/// How messages may arrive.
pub(super) struct Terms {
    pub(super) hold: Hold,
    /// Counts what has arrived, as long as its chat has not taken it.
    pub(super) waiting: Arc<Tally>,
    /// A larger frame is left to the library, which refuses it when it sees the head.
    pub(super) largest: usize,
    pub(super) time: Duration,
}

/// Why nothing more is read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct MessageRefusal(pub(super) AppError);

/// The messages that are arriving over one connection: the state between two reads.
pub(super) struct IncomingMessages {
    terms: Terms,
    frame: Frame,
    /// Bytes of the message that have been admitted.
    message: u64,
    /// Whether the message continues in another frame.
    is_open: bool,
    /// Runs while a message is unfinished.
    deadline: Option<Pin<Box<Sleep>>>,
    /// After a refusal the rest is passed on unchanged, to be discarded.
    is_over: bool,
}

enum Frame {
    /// The beginning of an incomplete head.
    Head(Head),
    /// The library has the head, and this many bytes are to come.
    Payload { left: u64, ends_message: bool },
    /// A frame in pieces.
    Pieces {
        head: Head,
        /// Bytes to come of this piece, and of the others.
        left: u64,
        rest: u64,
    },
    /// A head for the library, and what follows it.
    Made {
        head: Head,
        given: usize,
        then: Box<Frame>,
    },
}

#[derive(Clone, Copy, Default)]
struct Head {
    bytes: [u8; MAX_HEAD_BYTES],
    filled: usize,
}

impl Head {
    /// Takes bytes up to the end of the head; says how many.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let before = self.filled;
        for byte in bytes {
            if self.is_whole() {
                break;
            }
            self.bytes[self.filled] = *byte;
            self.filled += 1;
        }
        self.filled - before
    }

    fn is_whole(&self) -> bool {
        self.filled == self.needed()
    }

    /// How long it is, as far as is known.
    fn needed(&self) -> usize {
        if self.filled < 2 {
            return 2;
        }
        let mask = if self.is_masked() { 4 } else { 0 };
        match self.bytes[1] & !MASKED {
            126 => 4 + mask,
            127 => 10 + mask,
            _ => 2 + mask,
        }
    }

    /// How long the payload is.
    fn announces(&self) -> u64 {
        let [_, _, a, b, c, d, e, f, g, h, ..] = self.bytes;
        match self.bytes[1] & !MASKED {
            126 => u64::from(u16::from_be_bytes([a, b])),
            127 => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            length => u64::from(length),
        }
    }

    fn is_masked(&self) -> bool {
        self.bytes[1] & MASKED != 0
    }

    fn is_control(&self) -> bool {
        self.bytes[0] & CONTROL != 0
    }

    fn is_last(&self) -> bool {
        self.bytes[0] & LAST != 0
    }

    /// The head of a piece of this frame, which has its length in eight bytes.
    fn of_piece(mut self, bytes: u64, is_last: bool) -> Self {
        self.bytes[2..10].copy_from_slice(&bytes.to_be_bytes());
        if !is_last {
            self.bytes[0] &= !LAST;
        }
        self
    }

    /// The head of what follows the first piece.
    fn continuing(mut self) -> Self {
        self.bytes[0] &= LAST;
        self
    }
}

impl IncomingMessages {
    pub(super) fn new(terms: Terms) -> Self {
        Self {
            terms,
            frame: Frame::Head(Head::default()),
            message: 0,
            is_open: false,
            deadline: None,
            is_over: false,
        }
    }

    /// Reads for the WebSocket library.
    pub(super) fn poll_read(
        &mut self,
        stream: Pin<&mut (impl AsyncRead + Unpin)>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = stream.get_mut();
        if self.is_over || buffer.remaining() == 0 {
            return Pin::new(stream).poll_read(context, buffer);
        }
        let before = buffer.filled().len();
        loop {
            let read = self.poll_some(stream, context, buffer);
            if read.is_pending() {
                ready!(self.poll_deadline(context));
                let took = format!(
                    "a message took longer than {:?} to arrive; send less at once, or raise limits.body_time",
                    self.terms.time
                );
                let status = axum::http::StatusCode::REQUEST_TIMEOUT;
                return self.refuse(AppError::new(status, "too_slow", took));
            }
            match ready!(read) {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) if buffer.filled().len() > before => return Poll::Ready(Ok(())),
                // A part of a head, which is held back.
                Ok(false) => {}
                Err(error) => {
                    return match error.downcast::<MessageRefusal>() {
                        Ok(MessageRefusal(refusal)) => self.refuse(refusal),
                        Err(error) => Poll::Ready(Err(error)),
                    };
                }
            }
        }
    }

    fn refuse(&mut self, refusal: AppError) -> Poll<io::Result<()>> {
        self.is_over = true;
        self.deadline = None;
        // Holding less is never refused.
        let _ = self.terms.hold.resize(0);
        Poll::Ready(Err(io::Error::other(MessageRefusal(refusal))))
    }

    /// Returns whether the connection has ended.
    fn poll_some(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        // The next piece may be refused, and nothing may be passed on together with a refusal.
        self.pass_end()?;
        let room = buffer.remaining();
        match &mut self.frame {
            Frame::Made { head, given, then } => {
                let bytes = &head.bytes[*given..head.filled];
                let bytes = &bytes[..bytes.len().min(room)];
                buffer.put_slice(bytes);
                *given += bytes.len();
                if *given == head.filled {
                    self.frame = std::mem::replace(&mut **then, Frame::Head(Head::default()));
                    self.pass_end()?;
                }
                Poll::Ready(Ok(false))
            }
            Frame::Head(head) if head.filled > 0 => {
                let mut bytes = [0; MAX_HEAD_BYTES];
                let missing = head.needed() - head.filled;
                let mut part = ReadBuf::new(&mut bytes[..missing]);
                ready!(Pin::new(stream).poll_read(context, &mut part))?;
                let is_end = part.filled().is_empty();
                head.take(part.filled());
                if head.is_whole() {
                    let head = *head;
                    let (made, then) = self.begin(head)?;
                    self.frame = Frame::Made {
                        head: made,
                        given: 0,
                        then: Box::new(then),
                    };
                }
                Poll::Ready(Ok(is_end))
            }
            Frame::Pieces { left, .. } => {
                let most = usize::try_from(*left).map_or(room, |left| left.min(room));
                let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
                ready!(Pin::new(stream).poll_read(context, &mut part))?;
                let bytes = part.filled().len();
                buffer.advance(bytes);
                *left -= bytes as u64;
                Poll::Ready(Ok(bytes == 0))
            }
            Frame::Head(_) | Frame::Payload { .. } => {
                // Less than a piece, so that none that begins in it ends in it.
                let most = room.min(MAX_READ_BYTES);
                let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
                ready!(Pin::new(stream).poll_read(context, &mut part))?;
                let bytes = part.filled_mut();
                let is_end = bytes.is_empty();
                let passed = self.scan(bytes)?;
                buffer.advance(passed);
                Poll::Ready(Ok(is_end))
            }
        }
    }

    /// Follows frames through bytes, and rewrites the heads of those in pieces; returns how many bytes may be passed on.
    fn scan(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut at = 0;
        while at < bytes.len() {
            match &mut self.frame {
                Frame::Head(head) => {
                    let begin = at;
                    at += head.take(&bytes[at..]);
                    if !head.is_whole() {
                        return Ok(begin);
                    }
                    let head = *head;
                    let (made, then) = self.begin(head)?;
                    bytes[begin..at].copy_from_slice(&made.bytes[..made.filled]);
                    self.frame = then;
                }
                Frame::Payload { left, .. } | Frame::Pieces { left, .. } => {
                    let passed =
                        (bytes.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= passed as u64;
                    at += passed;
                }
                Frame::Made { .. } => return Ok(at),
            }
            self.pass_end()?;
        }
        Ok(at)
    }

    /// The head that the library sees of a frame, and what follows it.
    fn begin(&mut self, head: Head) -> io::Result<(Head, Frame)> {
        let bytes = head.announces();
        if head.is_control() {
            let payload = Frame::Payload {
                left: bytes,
                ends_message: false,
            };
            return Ok((head, payload));
        }
        if self.message.saturating_add(bytes) > self.terms.largest as u64 {
            // The library refuses it now.
            self.is_open = !head.is_last();
            let payload = Frame::Payload {
                left: bytes,
                ends_message: head.is_last(),
            };
            return Ok((head, payload));
        }
        if bytes <= PIECE_BYTES || !head.is_masked() {
            self.let_in(bytes)?;
            self.is_open = !head.is_last();
            let payload = Frame::Payload {
                left: bytes,
                ends_message: head.is_last(),
            };
            return Ok((head, payload));
        }
        self.let_in(PIECE_BYTES)?;
        self.is_open = true;
        let pieces = Frame::Pieces {
            head: head.continuing(),
            left: PIECE_BYTES,
            rest: bytes - PIECE_BYTES,
        };
        Ok((head.of_piece(PIECE_BYTES, false), pieces))
    }

    /// Advances past a frame or a piece whose last byte has come.
    fn pass_end(&mut self) -> io::Result<()> {
        match self.frame {
            Frame::Payload {
                left: 0,
                ends_message,
            } => {
                self.frame = Frame::Head(Head::default());
                if ends_message {
                    self.message = 0;
                    // Holding less is never refused.
                    let _ = self.terms.hold.resize(0);
                }
            }
            Frame::Pieces {
                head,
                left: 0,
                rest,
            } => {
                let left = rest.min(PIECE_BYTES);
                self.let_in(left)?;
                let is_end = left == rest;
                let then = if is_end {
                    self.is_open = !head.is_last();
                    Frame::Payload {
                        left,
                        ends_message: head.is_last(),
                    }
                } else {
                    Frame::Pieces {
                        head,
                        left,
                        rest: rest - left,
                    }
                };
                self.frame = Frame::Made {
                    head: head.of_piece(left, is_end && head.is_last()),
                    given: 0,
                    then: Box::new(then),
                };
            }
            _ => {}
        }
        if self.is_idle() {
            self.deadline = None;
        }
        Ok(())
    }

    fn let_in(&mut self, bytes: u64) -> io::Result<()> {
        self.message += bytes;
        if self.message > FREE_BYTES {
            let held = usize::try_from(self.message).unwrap_or(usize::MAX);
            let resized = self.terms.hold.resize(held);
            resized.map_err(|error| io::Error::other(MessageRefusal(error.into())))?;
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        !self.is_open && matches!(self.frame, Frame::Head(head) if head.filled == 0)
    }

    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_idle() {
            return Poll::Pending;
        }
        let time = self.terms.time;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        deadline.as_mut().poll(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::budget::{self, Budget};
    use crate::config::Limits;

    /// A reader that takes a few bytes at a time, of a stream that brings a few at a time.
    struct Wire<S> {
        stream: S,
        incoming: IncomingMessages,
    }

    impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let this = self.get_mut();
            let stream = Pin::new(&mut this.stream);
            this.incoming.poll_read(stream, context, buffer)
        }
    }

    fn wire<S>(stream: S, budget: &Arc<Budget>) -> Wire<S> {
        let incoming = IncomingMessages::new(Terms {
            hold: budget.hold(&"alice".into()),
            waiting: Arc::new(Tally::new(budget.hold(&"alice".into()))),
            largest: 1_000_000,
            time: Duration::from_millis(10),
        });
        Wire { stream, incoming }
    }

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload.len() {
            length @ 0..126 => bytes.push(MASKED | length as u8),
            length @ 126..65536 => {
                bytes.push(MASKED | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            length => {
                bytes.push(MASKED | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend([1, 2, 3, 4]);
        bytes.extend(mask(payload));
        bytes
    }

    fn mask(payload: &[u8]) -> impl Iterator<Item = u8> {
        payload
            .iter()
            .zip([1, 2, 3, 4].iter().cycle())
            .map(|(byte, key)| byte ^ key)
    }

    /// Frames as the library sees them: first byte and payload.
    fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let mut head = Head::default();
            let length = head.take(bytes);
            assert!(head.is_whole());
            let end = length + head.announces() as usize;
            all.push((head.bytes[0], mask(&bytes[length..end]).collect()));
            bytes = &bytes[end..];
        }
        all
    }

    #[tokio::test]
    async fn every_byte_arrives_in_the_order_of_its_message() {
        let payload =
            |length: usize| -> Vec<u8> { (0..length).map(|at| (at % 251) as u8).collect() };
        // What a client sends, and the largest frames that the library sees.
        let sent = [
            (0x81, payload(0)),
            (0x82, payload(5)),
            (0x01, payload(70_000)),
            (0x89, payload(125)),
            (0x00, payload(3)),
            (0x80, payload(140_000)),
            (0x82, payload(65_536)),
            (0x82, payload(65_537)),
            (0x8a, payload(0)),
            (0x82, payload(65_535)),
        ];
        let bytes: Vec<u8> = sent
            .iter()
            .flat_map(|(first, payload)| frame(*first, payload))
            .collect();
        // Three bytes at a time bring every head in parts.
        for (bring, take) in [(3, 2048), (509, 64), (997, 15), (4096, 2048), (100_000, 16)] {
            let budget = budget::unfinished(&Limits::default());
            let (client, server) = tokio::io::duplex(bring);
            let all = bytes.clone();
            tokio::spawn(async move {
                let mut client = client;
                tokio::io::AsyncWriteExt::write_all(&mut client, &all)
                    .await
                    .unwrap();
            });
            let mut wire = wire(server, &budget);
            wire.incoming.terms.time = Duration::from_secs(60);
            let mut seen = Vec::new();
            let mut piece = vec![0; take];
            loop {
                match wire.read(&mut piece).await.unwrap() {
                    0 => break,
                    read => seen.extend_from_slice(&piece[..read]),
                }
            }
            let seen = frames(&seen);
            assert!(
                seen.iter()
                    .all(|(_, payload)| payload.len() <= PIECE_BYTES as usize)
            );
            let messages = |frames: &[(u8, Vec<u8>)]| {
                let mut all: Vec<(u8, Vec<u8>)> = Vec::new();
                let mut open: Option<(u8, Vec<u8>)> = None;
                for (first, payload) in frames {
                    if first & CONTROL != 0 {
                        all.push((*first, payload.clone()));
                        continue;
                    }
                    let message = open.get_or_insert((*first & 0x0f, Vec::new()));
                    message.1.extend(payload);
                    if first & LAST != 0 {
                        all.extend(open.take());
                    }
                }
                assert!(open.is_none());
                all
            };
            assert!(messages(&seen) == messages(&sent), "{bring} {take}");
            assert!(wire.incoming.is_idle());
            // Nothing is held any more.
            budget.hold(&"bob".into()).resize(usize::MAX).unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_too_much_or_too_slow_is_refused() {
        let limits = Limits {
            unfinished_bytes: 100_000,
            ..Limits::default()
        };
        let budget = budget::unfinished(&limits);
        let mut other = budget.hold(&"bob".into());
        other.resize(1).unwrap();
        let large = frame(0x82, &[7; 200_000]);
        let slow = frame(0x82, &[7; 200])[..50].to_vec();
        for (bytes, code) in [(large, "unavailable"), (slow, "too_slow")] {
            let (mut client, server) = tokio::io::duplex(1_000_000);
            tokio::io::AsyncWriteExt::write_all(&mut client, &bytes)
                .await
                .unwrap();
            let mut wire = wire(server, &budget);
            let error = wire.read_to_end(&mut Vec::new()).await.unwrap_err();
            let MessageRefusal(refusal) = error.downcast::<MessageRefusal>().unwrap();
            assert_eq!(refusal.code, code);
            // The rest can be discarded.
            drop(client);
            wire.read_to_end(&mut Vec::new()).await.unwrap();
            budget.hold(&"carol".into()).resize(99_999).unwrap();
        }
    }
}
