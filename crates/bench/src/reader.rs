//! A client that posts a chat, reads its answer to the end and checks that nothing is missing.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use memchr::{memchr, memmem};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::words::Tally;

/// So small that a server notices immediately when its reader stops.
const SMALL_WINDOW: u32 = 64 * 1024;
const READ: usize = 64 * 1024;

/// The form of a server's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A UI message stream.
    Chunks,
    /// The model's events, passed on.
    Gemini,
    /// The events of an ADK server, which ends with all of the text once more.
    Adk,
}

impl Shape {
    /// Whether clients send what was said before.
    pub(crate) fn takes_history(self) -> bool {
        self != Self::Adk
    }

    /// Where a chat is posted.
    fn path(self) -> &'static str {
        match self {
            Self::Chunks | Self::Gemini => "/api/chat",
            Self::Adk => "/run_sse",
        }
    }
}

/// A reader that stops for a while in the middle of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stall {
    pub(crate) after: usize,
    pub(crate) pause: Duration,
}

/// A connection that stays open from one turn to the next.
pub(crate) struct Reader {
    stream: TcpStream,
    shape: Shape,
    input: Vec<u8>,
    line: Vec<u8>,
    /// Called whenever something was read, with the number of deltas of this turn.
    progress: Option<Box<dyn FnMut(usize)>>,
}

/// What became of a request for a turn.
pub(crate) enum Attempt {
    Answered(Tally),
    Refused(Refused),
}

/// What a client gets that is not answered now.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    /// In seconds.
    pub(crate) retry_after: Option<u64>,
    pub(crate) text: String,
}

#[derive(Deserialize)]
struct Chunk<'c> {
    #[serde(borrow)]
    delta: Cow<'c, str>,
}

#[derive(Deserialize)]
struct Event<'e> {
    #[serde(borrow)]
    candidates: [Candidate<'e>; 1],
}

#[derive(Deserialize)]
struct AdkEvent<'e> {
    #[serde(borrow)]
    content: Content<'e>,
}

#[derive(Deserialize)]
struct Candidate<'e> {
    #[serde(borrow)]
    content: Content<'e>,
}

#[derive(Deserialize)]
struct Content<'e> {
    #[serde(borrow)]
    parts: [Part<'e>; 1],
}

#[derive(Deserialize)]
struct Part<'e> {
    #[serde(borrow)]
    text: Cow<'e, str>,
}

impl Reader {
    pub(crate) async fn connect(
        server: SocketAddr,
        shape: Shape,
        small: bool,
    ) -> anyhow::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if small {
            socket.set_recv_buffer_size(SMALL_WINDOW)?;
        }
        let stream = socket.connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            shape,
            input: Vec::new(),
            line: Vec::new(),
            progress: None,
        })
    }

    /// Has a function called whenever something was read, and before the beginning, with the number of deltas.
    pub(crate) fn telling(mut self, progress: impl FnMut(usize) + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Posts a chat and reads its answer.
    pub(crate) async fn turn(&mut self, body: &str, stall: Option<Stall>) -> anyhow::Result<Tally> {
        match self.attempt(body, stall).await? {
            Attempt::Answered(tally) => Ok(tally),
            Attempt::Refused(refused) => bail!("the server refused a chat: {refused:?}"),
        }
    }

    /// Posts a chat, and reads its answer if it gets one.
    pub(crate) async fn attempt(
        &mut self,
        body: &str,
        mut stall: Option<Stall>,
    ) -> anyhow::Result<Attempt> {
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.shape.path(),
            body.len()
        );
        let mut request = head.into_bytes();
        request.extend_from_slice(body.as_bytes());
        self.tell(&Tally::new());
        self.stream.write_all(&request).await?;
        if let Some(refused) = self.head().await? {
            return Ok(Attempt::Refused(refused));
        }
        let mut tally = Tally::new();
        let (mut pieces, mut input) = (Pieces::Size, std::mem::take(&mut self.input));
        loop {
            let taken = pieces.take(&input, |piece| self.piece(piece, &mut tally))?;
            input.drain(..taken);
            if let Some(due) = stall.take_if(|stall| tally.deltas >= stall.after) {
                tokio::time::sleep(due.pause).await;
            }
            self.tell(&tally);
            if pieces == Pieces::Done {
                break;
            }
            input.reserve(READ);
            let got = self.stream.read_buf(&mut input).await?;
            ensure!(
                got > 0,
                "the server closed the connection in the middle of an answer"
            );
        }
        self.input = input;
        Ok(Attempt::Answered(tally))
    }

    fn tell(&mut self, tally: &Tally) {
        if let Some(progress) = &mut self.progress {
            progress(tally.deltas);
        }
    }

    /// Reads the head of an answer, and the rest if it is a refusal.
    async fn head(&mut self) -> anyhow::Result<Option<Refused>> {
        let end = loop {
            if let Some(end) = memmem::find(&self.input, b"\r\n\r\n") {
                break end + 4;
            }
            let got = self.stream.read_buf(&mut self.input).await?;
            ensure!(
                got > 0,
                "the server closed the connection without an answer"
            );
        };
        let head = String::from_utf8_lossy(&self.input[..end]).to_ascii_lowercase();
        self.input.drain(..end);
        if head.starts_with("http/1.1 200") && head.contains("transfer-encoding: chunked") {
            return Ok(None);
        }
        let field = |name: &str| {
            let mut lines = head.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok())
        };
        let length = field("content-length").unwrap_or(0);
        while (self.input.len() as u64) < length {
            let got = self.stream.read_buf(&mut self.input).await?;
            ensure!(got > 0, "the server cut a refusal: {head}");
        }
        let text = String::from_utf8_lossy(&self.input).into_owned();
        self.input.clear();
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        Ok(Some(Refused {
            status: status.with_context(|| head.clone())?,
            retry_after: field("retry-after"),
            text,
        }))
    }

    /// Takes a piece of the body, which may end in the middle of a line.
    fn piece(&mut self, mut piece: &[u8], tally: &mut Tally) -> anyhow::Result<()> {
        while let Some(end) = memchr(b'\n', piece) {
            if self.line.is_empty() {
                check(self.shape, &piece[..end], tally)?;
            } else {
                self.line.extend_from_slice(&piece[..end]);
                check(self.shape, &self.line, tally)?;
                self.line.clear();
            }
            piece = &piece[end + 1..];
        }
        self.line.extend_from_slice(piece);
        Ok(())
    }
}

fn check(shape: Shape, line: &[u8], tally: &mut Tally) -> anyhow::Result<()> {
    let Some(data) = line.strip_prefix(b"data: ") else {
        return Ok(());
    };
    let shown = || String::from_utf8_lossy(data).into_owned();
    match shape {
        Shape::Chunks if memmem::find(data, br#""text-delta""#).is_some() => {
            let chunk: Chunk<'_> = serde_json::from_slice(data).with_context(shown)?;
            tally.add(&chunk.delta);
        }
        Shape::Chunks if memmem::find(data, br#""tool-approval-request""#).is_some() => {
            tally.questions += 1;
        }
        Shape::Chunks if memmem::find(data, br#""type":"error""#).is_some() => bail!(shown()),
        Shape::Chunks => {}
        Shape::Adk if memmem::find(data, br#""partial":true"#).is_some() => {
            let event: AdkEvent<'_> = serde_json::from_slice(data).with_context(shown)?;
            let text = &event.content.parts[0].text;
            if !text.is_empty() {
                tally.add(text);
            }
        }
        Shape::Adk if memmem::find(data, br#""error"#).is_some() => bail!(shown()),
        Shape::Adk => {}
        Shape::Gemini => {
            let event: Event<'_> = serde_json::from_slice(data).with_context(shown)?;
            let text = &event.candidates[0].content.parts[0].text;
            if !text.is_empty() {
                tally.add(text);
            }
        }
    }
    Ok(())
}

/// The position in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pieces {
    Size,
    Data(usize),
    Done,
}

impl Pieces {
    /// Passes on the data in the input, and returns how much of the input was used.
    fn take(
        &mut self,
        input: &[u8],
        mut piece: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<usize> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match *self {
                Self::Size => {
                    let Some(end) = memmem::find(rest, b"\r\n") else {
                        return Ok(at);
                    };
                    let digits = std::str::from_utf8(&rest[..end])?;
                    let size = usize::from_str_radix(digits, 16)
                        .with_context(|| format!("{digits:?} is not a chunk size"))?;
                    if size == 0 {
                        if rest.len() < end + 4 {
                            return Ok(at);
                        }
                        *self = Self::Done;
                        return Ok(at + end + 4);
                    }
                    at += end + 2;
                    *self = Self::Data(size);
                }
                Self::Data(0) => {
                    if rest.len() < 2 {
                        return Ok(at);
                    }
                    at += 2;
                    *self = Self::Size;
                }
                Self::Data(left) => {
                    let here = left.min(rest.len());
                    if here == 0 {
                        return Ok(at);
                    }
                    piece(&rest[..here])?;
                    at += here;
                    *self = Self::Data(left - here);
                }
                Self::Done => return Ok(at),
            }
        }
    }
}
