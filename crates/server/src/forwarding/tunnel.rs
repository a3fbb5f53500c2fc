//! A WebSocket of a client whose chat another replica owns: bytes are copied both ways, as they are.
//!
//! ```text
//!   client ═══ bytes ═══▶ owner        each way ends by itself: what the other still sends arrives
//!   client ◀══ bytes ════ owner
//!
//!   this replica stops:   the frame in progress is completed, then the client is asked to reconnect
//!   the owner is gone:    the client is cut off, as if the owner had been its server
//! ```

use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::wire::live::Close;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
};
use tokio::time::timeout;

use super::answer::OwnerCheck;
use crate::metrics::ForwardingMetrics;

/// How much is copied at once, and held for a side that does not read. Every tunnel has one of these for each way.
const BUFFER_BYTES: usize = 8 * 1024;
/// How long the frame in progress may take when this replica stops, and the client to answer the close.
const PARTING: Duration = Duration::from_secs(1);

/// Opcodes, with the bit that says that a frame is whole.
const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;

/// What a client is sent when this replica stops.
#[derive(Debug, Clone)]
pub struct Farewell {
    /// A text before the close.
    pub text: Option<Vec<u8>>,
    pub close: Close,
}

/// How a tunnel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelEnd {
    /// Both sides have said everything.
    Closed,
    /// One of them broke off.
    Broken,
    /// This replica stops.
    Stopped,
}

/// The two ends of a WebSocket that passes through this replica.
pub struct Tunnel<C, O> {
    pub client: C,
    pub owner: O,
    pub metrics: Arc<ForwardingMetrics>,
    pub check: Option<OwnerCheck>,
}

impl<C, O> Tunnel<C, O>
where
    C: AsyncRead + AsyncWrite + Unpin,
    O: AsyncRead + AsyncWrite + Unpin,
{
    /// Copies until both sides have ended, one breaks, or `stop` is ready.
    pub async fn run(self, stop: impl Future<Output = Farewell>) -> TunnelEnd {
        let (mut from_client, to_client) = tokio::io::split(self.client);
        let (from_owner, mut to_owner) = tokio::io::split(self.owner);
        let (metrics, mut check) = (self.metrics, self.check);
        let mut way_back = WayBack {
            from_owner,
            to_client,
            buffer: vec![0; BUFFER_BYTES],
            unwritten: 0..0,
            frames: Frames::default(),
        };
        let copied = async {
            let mut there = pin!(copy(&mut from_client, &mut to_owner, &metrics));
            let mut back = pin!(way_back.copy(&mut check, &metrics));
            tokio::select! {
                there = &mut there => {
                    there?;
                    back.await
                }
                back = &mut back => {
                    back?;
                    // The client answers the close, or does not.
                    timeout(PARTING, there).await.unwrap_or(Ok(()))
                }
            }
        };
        let farewell = tokio::select! {
            copied = copied => return match copied {
                Ok(()) => TunnelEnd::Closed,
                Err(_) => TunnelEnd::Broken,
            },
            farewell = stop => farewell,
        };
        let parting = async {
            if way_back.part(&farewell).await? {
                // A connection that is closed while its client still sends loses what was written to it.
                while from_client.read(&mut way_back.buffer).await? > 0 {}
            }
            io::Result::Ok(())
        };
        let _ = timeout(PARTING, parting).await;
        TunnelEnd::Stopped
    }
}

/// Copies what the client sends, to its end.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    metrics: &ForwardingMetrics,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        metrics.sent(read);
        to.write_all(&buffer[..read]).await?;
    }
}

/// From the owner to the client. It can be interrupted anywhere and knows which frame the client has a part of.
struct WayBack<O, C> {
    from_owner: ReadHalf<O>,
    to_client: WriteHalf<C>,
    buffer: Vec<u8>,
    /// What was read into the buffer and not written yet.
    unwritten: Range<usize>,
    /// Of what was written.
    frames: Frames,
}

impl<O, C> WayBack<O, C>
where
    O: AsyncRead,
    C: AsyncWrite,
{
    async fn copy(
        &mut self,
        check: &mut Option<OwnerCheck>,
        metrics: &ForwardingMetrics,
    ) -> io::Result<()> {
        loop {
            self.write().await?;
            let read = tokio::select! {
                read = self.from_owner.read(&mut self.buffer) => read?,
                dead = is_dead(check) => return Err(dead),
            };
            if read == 0 {
                self.to_client.shutdown().await?;
                // An owner that says no reason has died: its client must not wait for more.
                return match self.frames.has_closed {
                    true => Ok(()),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
            if let Some(check) = check {
                check.heard();
            }
            metrics.received(read);
            self.unwritten = 0..read;
        }
    }

    /// Writes what was read.
    async fn write(&mut self) -> io::Result<()> {
        while !self.unwritten.is_empty() {
            let piece = &self.buffer[self.unwritten.clone()];
            let written = self.to_client.write(piece).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.frames.take(&piece[..written]);
            self.unwritten.start += written;
        }
        Ok(())
    }

    /// Completes the frame in progress and says farewell. Returns whether the client is still there to answer.
    async fn part(&mut self, farewell: &Farewell) -> io::Result<bool> {
        self.write().await?;
        while !self.frames.is_between() {
            let missing = usize::try_from(self.frames.missing()).unwrap_or(BUFFER_BYTES);
            let piece = &mut self.buffer[..missing.min(BUFFER_BYTES)];
            let read = self.from_owner.read(piece).await?;
            if read == 0 {
                return Ok(false);
            }
            self.unwritten = 0..read;
            self.write().await?;
        }
        if self.frames.has_closed {
            return Ok(true);
        }
        let bytes = farewell.bytes(self.frames.in_message);
        self.to_client.write_all(&bytes).await?;
        self.to_client.shutdown().await?;
        Ok(true)
    }
}

impl Farewell {
    fn bytes(&self, in_message: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Between the parts of a message there may be a close, but no other text.
        if let Some(text) = self.text.as_ref().filter(|_| !in_message) {
            write_frame(&mut bytes, TEXT, text);
        }
        let mut reason = self.close.code.to_be_bytes().to_vec();
        reason.extend_from_slice(self.close.reason.as_bytes());
        write_frame(&mut bytes, CLOSE, &reason);
        bytes
    }
}

/// A frame of a server, which is not masked.
fn write_frame(out: &mut Vec<u8>, head: u8, payload: &[u8]) {
    out.push(head);
    match u8::try_from(payload.len()) {
        Ok(length @ 0..126) => out.push(length),
        _ => {
            // Nothing that is said here is longer than this.
            let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
            out.push(126);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

async fn is_dead(check: &mut Option<OwnerCheck>) -> io::Error {
    match check {
        Some(check) => std::future::poll_fn(|context| check.poll_dead(context)).await,
        None => std::future::pending().await,
    }
}

/// Where in the frames of a server a stream of bytes is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Frames {
    /// The head of the current frame, as far as it has come.
    head: Vec<u8>,
    /// How much of its payload is missing.
    payload: u64,
    /// Whether a message has begun whose last part is missing.
    in_message: bool,
    has_closed: bool,
}

impl Frames {
    fn is_between(&self) -> bool {
        self.head.is_empty() && self.payload == 0
    }

    /// How many bytes are certainly missing in the current frame.
    fn missing(&self) -> u64 {
        self.payload.max(1)
    }

    pub(crate) fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.payload > 0 {
                let taken = self.payload.min(bytes.len() as u64);
                self.payload -= taken;
                bytes = bytes.get(taken as usize..).unwrap_or_default();
                continue;
            }
            self.head.push(bytes[0]);
            bytes = &bytes[1..];
            if let Some(payload) = payload_of(&self.head) {
                self.note(self.head[0]);
                self.payload = payload;
                self.head.clear();
            }
        }
    }

    fn note(&mut self, first: u8) {
        let (is_last, opcode) = (first & 0x80 != 0, first & 0x0f);
        match opcode {
            0x8 => self.has_closed = true,
            // Pings and pongs come between the parts of a message.
            0x9..=0xf => {}
            _ => self.in_message = !is_last,
        }
    }
}

/// The length of the payload, if the head is complete.
fn payload_of(head: &[u8]) -> Option<u64> {
    let (&[_, length], rest) = head.split_first_chunk::<2>()?;
    let (is_masked, length) = (length & 0x80 != 0, length & 0x7f);
    let (payload, rest) = match length {
        126 => {
            let (length, rest) = rest.split_first_chunk()?;
            (u64::from(u16::from_be_bytes(*length)), rest)
        }
        127 => {
            let (length, rest) = rest.split_first_chunk()?;
            (u64::from_be_bytes(*length), rest)
        }
        length => (u64::from(length), rest),
    };
    (!is_masked || rest.len() == 4).then_some(payload)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{DuplexStream, duplex};
    use tokio::sync::oneshot;

    use super::*;

    const SMALL: usize = 16;

    struct Rig {
        client: DuplexStream,
        owner: DuplexStream,
        stop: oneshot::Sender<()>,
        ended: tokio::task::JoinHandle<TunnelEnd>,
        metrics: Arc<ForwardingMetrics>,
    }

    /// A tunnel whose ends hold only a few bytes.
    fn rig() -> Rig {
        let (client, here) = duplex(SMALL);
        let (owner, there) = duplex(SMALL);
        let (stop, stopped) = oneshot::channel();
        let metrics = Arc::<ForwardingMetrics>::default();
        let tunnel = Tunnel {
            client: here,
            owner: there,
            metrics: metrics.clone(),
            check: None,
        };
        let farewell = Farewell {
            text: Some(b"later".to_vec()),
            close: Close::GOING_AWAY,
        };
        let stopped = async {
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
            farewell
        };
        Rig {
            client,
            owner,
            stop,
            ended: tokio::spawn(tunnel.run(stopped)),
            metrics,
        }
    }

    fn frame(head: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, head, payload);
        bytes
    }

    #[tokio::test]
    async fn bytes_go_both_ways_and_each_way_ends_by_itself() {
        let mut rig = rig();
        rig.client.write_all(b"question").await.unwrap();
        rig.client.shutdown().await.unwrap();
        let mut heard = Vec::new();
        rig.owner.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"question");
        let said = frame(CLOSE, b"\x03\xe8");
        rig.owner.write_all(&said).await.unwrap();
        drop(rig.owner);
        heard.clear();
        rig.client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, said);
        assert_eq!(rig.ended.await.unwrap(), TunnelEnd::Closed);
        assert_eq!(rig.metrics.bytes(), (8, said.len() as u64));
    }

    #[tokio::test]
    async fn a_client_is_cut_off_when_its_owner_dies() {
        let mut rig = rig();
        rig.owner.write_all(&[TEXT, 5, b'h', b'a']).await.unwrap();
        drop(rig.owner);
        let mut heard = Vec::new();
        rig.client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, [TEXT, 5, b'h', b'a'], "no close is made up");
        assert_eq!(rig.ended.await.unwrap(), TunnelEnd::Broken);
    }

    /// Nobody holds what a client does not read.
    #[tokio::test]
    async fn an_owner_waits_for_a_client_that_does_not_read() {
        let mut rig = rig();
        let piece = vec![0; BUFFER_BYTES];
        let mut written = 0;
        while let Ok(more) = timeout(Duration::from_millis(200), rig.owner.write(&piece)).await {
            written += more.unwrap();
        }
        assert!(written <= BUFFER_BYTES + 2 * SMALL, "{written}");
        rig.ended.abort();
    }

    /// Wherever in a frame it happens, the client gets whole frames, then the farewell.
    #[tokio::test]
    async fn a_replica_that_stops_completes_the_frame_first() {
        let long = vec![b'x'; 300];
        let message = [frame(0x01, b"part"), frame(TEXT - 1, &long)].concat();
        let sent = [frame(TEXT, b"hello"), frame(0x82, &long), message].concat();
        let ends: Vec<usize> = {
            let mut frames = Frames::default();
            let is_end = |(index, byte): (usize, &u8)| {
                frames.take(&[*byte]);
                frames.is_between().then_some(index + 1)
            };
            sent.iter().enumerate().filter_map(is_end).collect()
        };
        assert_eq!(ends.len(), 4);
        for cut in 1..sent.len() {
            let Rig {
                mut client,
                mut owner,
                stop,
                ended,
                ..
            } = rig();
            let mut heard = vec![0; cut];
            let (first, rest) = sent.split_at(cut);
            let (wrote, read) = tokio::join!(owner.write_all(first), client.read_exact(&mut heard));
            assert!(wrote.is_ok() && read.is_ok());
            stop.send(()).unwrap();
            let mut rest_heard = Vec::new();
            let more = async {
                let _ = owner.write_all(rest).await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                read = client.read_to_end(&mut rest_heard) => drop(read.unwrap()),
                () = more => {}
            }
            heard.extend(rest_heard);
            assert!(heard.starts_with(first));
            let farewell = Farewell {
                text: Some(b"later".to_vec()),
                close: Close::GOING_AWAY,
            };
            let is_whole = ends.iter().filter(|end| **end >= cut).any(|end| {
                let in_message = ends[2] == *end;
                heard == [&sent[..*end], &farewell.bytes(in_message)].concat()
            });
            assert!(is_whole, "after {cut} bytes: {heard:?}");
            drop((client, owner));
            assert_eq!(ended.await.unwrap(), TunnelEnd::Stopped);
        }
    }
}
