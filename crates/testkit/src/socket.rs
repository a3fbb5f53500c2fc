//! A WebSocket client that can send anything, however invalid.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bridge::{Bridge, within};

pub const FIN: u8 = 0x80;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;
const MASK: [u8; 4] = [7, 42, 99, 255];

pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A frame of the server.
#[derive(Debug, PartialEq)]
pub struct Frame {
    /// With the bit that marks the last frame of a message.
    pub head: u8,
    pub payload: Vec<u8>,
}

/// The content of a text frame of `/live`.
#[derive(Debug, PartialEq)]
pub enum Said {
    Chunk(Value),
    Done,
    Control(Value),
}

impl Client {
    /// Opens a socket, which must succeed.
    pub async fn open(bridge: &Bridge, path: &str) -> Self {
        let (head, client) = Self::try_open(bridge, path, &[]).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        client
    }

    /// Asks for a socket; returns the head of the answer as well.
    pub async fn try_open(bridge: &Bridge, path: &str, headers: &[(&str, &str)]) -> (String, Self) {
        Self::try_open_at(bridge.address, path, headers).await
    }

    pub async fn try_open_at(
        address: SocketAddr,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (String, Self) {
        let host = address.to_string();
        let usual = [
            ("host", host.as_str()),
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let mut request = format!("GET {path} HTTP/1.1\r\n");
        let usual = usual
            .iter()
            .filter(|(name, _)| headers.iter().all(|(given, _)| given != name));
        for (name, value) in usual.chain(headers).filter(|(_, value)| !value.is_empty()) {
            request += &format!("{name}: {value}\r\n");
        }
        let mut client = Self {
            stream: TcpStream::connect(address).await.unwrap(),
            buffer: Vec::new(),
        };
        client.raw(format!("{request}\r\n").as_bytes()).await;
        let end = loop {
            let end = client
                .buffer
                .windows(4)
                .position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                break end + 4;
            }
            assert!(client.fill().await, "no answer to the handshake");
        };
        let head = client.buffer.drain(..end).collect();
        (String::from_utf8(head).unwrap(), client)
    }

    /// Writes bytes unchanged; a server that has closed may refuse them.
    pub async fn raw(&mut self, bytes: &[u8]) -> bool {
        within(self.stream.write_all(bytes)).await.is_ok()
    }

    pub async fn frame(&mut self, head: u8, payload: &[u8]) -> bool {
        self.raw(&masked(head, payload)).await
    }

    pub async fn text(&mut self, text: &str) {
        assert!(self.frame(FIN | TEXT, text.as_bytes()).await);
    }

    pub async fn send(&mut self, value: Value) {
        self.text(&value.to_string()).await;
    }

    /// Sends a message in the chat of the connection.
    pub async fn say(&mut self, text: &str) {
        let message = json!({"role": "user", "parts": [{"type": "text", "text": text}]});
        self.send(json!({"type": "message", "messages": [message]}))
            .await;
    }

    /// The next frame, pings included; `None` if the server has closed the connection.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some((frame, bytes)) = parse(&self.buffer) {
                self.buffer.drain(..bytes);
                return Some(frame);
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// The next text or binary frame; pings are answered.
    pub async fn message(&mut self) -> Frame {
        within(self.unhurried_message()).await
    }

    async fn unhurried_message(&mut self) -> Frame {
        loop {
            let frame = self.next().await.expect("the connection lives");
            match frame.head {
                head if head == FIN | PING => {
                    self.frame(FIN | PONG, &frame.payload).await;
                }
                head if head == FIN | PONG => {}
                _ => return frame,
            }
        }
    }

    pub async fn json(&mut self) -> Value {
        let frame = self.message().await;
        assert_eq!(frame.head, FIN | TEXT, "{frame:?}");
        serde_json::from_slice(&frame.payload).unwrap()
    }

    /// The next content from `/live`.
    pub async fn said(&mut self) -> Said {
        let frame = self.message().await;
        assert_eq!(frame.head, FIN | TEXT, "{frame:?}");
        let text = String::from_utf8(frame.payload).unwrap();
        match text.strip_prefix("data: ") {
            Some("[DONE]\n\n") => Said::Done,
            Some(event) => {
                let json = event.strip_suffix("\n\n").expect("a whole event");
                Said::Chunk(serde_json::from_str(json).unwrap())
            }
            None => Said::Control(serde_json::from_str(&text).unwrap()),
        }
    }

    pub async fn control(&mut self) -> Value {
        match self.said().await {
            Said::Control(control) => control,
            other => panic!("{other:?} is no control frame"),
        }
    }

    /// The chunks up to `[DONE]`, without control frames.
    pub async fn chunks(&mut self) -> Vec<Value> {
        let mut chunks = Vec::new();
        loop {
            match self.said().await {
                Said::Chunk(chunk) => chunks.push(chunk),
                Said::Done => return chunks,
                Said::Control(_) => {}
            }
        }
    }

    /// The chunks of a turn, which must be framed as one; returns the number of the turn too.
    pub async fn turn(&mut self) -> (Value, Vec<Value>) {
        let start = self.control().await;
        assert_eq!(start["type"], "turn-start", "{start}");
        let mut chunks = Vec::new();
        loop {
            match self.said().await {
                Said::Chunk(chunk) => chunks.push(chunk),
                Said::Done => break,
                Said::Control(control) => panic!("{control} in the middle of a turn"),
            }
        }
        let end = self.control().await;
        assert_eq!(end, json!({"type": "turn-end", "turn": start["turn"]}));
        (start["turn"].clone(), chunks)
    }

    /// Checks that the connection answers, and that nothing else comes before.
    pub async fn check_alive(&mut self) {
        self.send(json!({"type": "ping", "timestamp": "alive?"}))
            .await;
        assert_eq!(
            self.control().await,
            json!({"type": "pong", "timestamp": "alive?"})
        );
    }

    /// Reads until the server says why it closes, and answers the close.
    pub async fn closed(&mut self) -> (u16, String) {
        loop {
            let frame = self.next().await.expect("a reason");
            if frame.head == FIN | CLOSE {
                self.frame(FIN | CLOSE, &frame.payload).await;
                return reason(&frame);
            }
        }
    }

    /// Closes the connection, and waits for the answer and the end.
    pub async fn leave(mut self) {
        self.frame(FIN | CLOSE, &1000_u16.to_be_bytes()).await;
        while let Some(frame) = self.next().await {
            if frame.head == FIN | CLOSE {
                assert_eq!(reason(&frame).0, 1000);
            }
        }
    }

    async fn fill(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        match within(self.stream.read(&mut piece)).await {
            Ok(0) | Err(_) => false,
            Ok(bytes) => {
                self.buffer.extend_from_slice(&piece[..bytes]);
                true
            }
        }
    }
}

pub fn masked(head: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![head];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | length as u8),
        length @ 126..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&MASK);
    let cycle = MASK.iter().cycle();
    bytes.extend(payload.iter().zip(cycle).map(|(byte, mask)| byte ^ mask));
    bytes
}

pub fn reason(close: &Frame) -> (u16, String) {
    let Some((code, reason)) = close.payload.split_first_chunk::<2>() else {
        return (1005, String::new());
    };
    let reason = String::from_utf8(reason.to_vec()).unwrap();
    (u16::from_be_bytes(*code), reason)
}

fn parse(bytes: &[u8]) -> Option<(Frame, usize)> {
    let (&[head, length], rest) = bytes.split_first_chunk::<2>()?;
    assert_eq!(length & 0x80, 0, "a server does not mask");
    let (length, rest) = match length {
        126 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        127 => {
            let (length, rest) = rest.split_first_chunk::<8>()?;
            (usize::try_from(u64::from_be_bytes(*length)).unwrap(), rest)
        }
        length => (usize::from(length), rest),
    };
    let payload = rest.get(..length)?.to_vec();
    let used = bytes.len() - rest.len() + length;
    Some((Frame { head, payload }, used))
}
