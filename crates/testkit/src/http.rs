//! HTTP/1.1 as bytes: a request may be as invalid, and an answer is read as slowly, as a test needs.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bridge::within;

pub struct Connection {
    pub stream: TcpStream,
    /// What was read but not used yet.
    buffer: Vec<u8>,
    host: String,
}

/// A whole answer.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// An answer whose head has been read.
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    connection: Connection,
    framing: Framing,
    /// Incomplete events.
    text: Vec<u8>,
    over: bool,
}

enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(address).await.unwrap(),
            buffer: Vec::new(),
            host: address.to_string(),
        }
    }

    /// Writes what it can; a server may refuse a request before it has read all of it.
    pub async fn write(&mut self, bytes: &[u8]) -> bool {
        within(self.stream.write_all(bytes)).await.is_ok()
    }

    pub async fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> bool {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        let given = |name: &str| headers.iter().any(|(given, _)| *given == name);
        if !given("host") {
            head += &format!("host: {}\r\n", self.host);
        }
        if !given("content-length") && !given("transfer-encoding") {
            head += &format!("content-length: {}\r\n", body.len());
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.write(&bytes).await
    }

    /// Reads the head of an answer, which must arrive.
    pub async fn answer(self, method: &str) -> Answer {
        self.try_answer(method).await.expect("an answer")
    }

    /// Reads the head of an answer; `None` if the connection ends before.
    pub async fn try_answer(mut self, method: &str) -> Option<Answer> {
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                if self.buffer.starts_with(b"HTTP/1.1 100") {
                    self.buffer.drain(..end + 4);
                    continue;
                }
                break end;
            }
            if !self.fill().await {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end + 4);
        let mut lines = head.lines();
        let status: u16 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length = header(&headers, "content-length").and_then(|length| length.parse().ok());
        let framing = match length {
            _ if method == "HEAD" || matches!(status, 204 | 304) => Framing::Length(0),
            Some(length) => Framing::Length(length),
            None if header(&headers, "transfer-encoding").is_some() => Framing::Chunked,
            None => Framing::UntilClose,
        };
        Some(Answer {
            status,
            headers,
            connection: self,
            framing,
            text: Vec::new(),
            over: false,
        })
    }

    /// Reads more; returns false at the end.
    async fn fill(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        match within(self.stream.read(&mut piece)).await {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.buffer.extend_from_slice(&piece[..read]);
                true
            }
        }
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// The next bytes of the body; `None` at its end, which must be a proper one.
    pub async fn piece(&mut self) -> Option<Vec<u8>> {
        if self.over {
            return None;
        }
        let connection = &mut self.connection;
        match &mut self.framing {
            Framing::Length(0) => None,
            Framing::Length(left) => {
                if connection.buffer.is_empty() {
                    assert!(connection.fill().await, "the body is cut off");
                }
                let take = connection.buffer.len().min(*left);
                *left -= take;
                Some(connection.buffer.drain(..take).collect())
            }
            Framing::Chunked => {
                let line = loop {
                    if let Some(line) = find(&connection.buffer, b"\r\n") {
                        break line;
                    }
                    assert!(connection.fill().await, "the body is cut off");
                };
                let size = std::str::from_utf8(&connection.buffer[..line]).unwrap();
                let size = usize::from_str_radix(size, 16).unwrap();
                while connection.buffer.len() < line + 2 + size + 2 {
                    assert!(connection.fill().await, "the body is cut off");
                }
                let piece = connection.buffer[line + 2..line + 2 + size].to_vec();
                connection.buffer.drain(..line + 2 + size + 2);
                self.over = size == 0;
                (size > 0).then_some(piece)
            }
            Framing::UntilClose => {
                if connection.buffer.is_empty() && !connection.fill().await {
                    return None;
                }
                Some(std::mem::take(&mut connection.buffer))
            }
        }
    }

    /// Reads what still comes until the body or the connection ends. Returns the bytes as they came, and whether the body
    /// ended in order.
    pub async fn to_the_end(mut self) -> (Vec<u8>, bool) {
        let connection = &mut self.connection;
        loop {
            if connection.buffer.ends_with(b"0\r\n\r\n") {
                return (std::mem::take(&mut connection.buffer), true);
            }
            if !connection.fill().await {
                return (std::mem::take(&mut connection.buffer), false);
            }
        }
    }

    /// Forgets what has arrived already.
    pub fn forget_arrived(&mut self) {
        self.connection.buffer.clear();
        self.text.clear();
        while matches!(self.connection.stream.try_read(&mut [0; 4096]), Ok(1..)) {}
    }

    /// Reads as long as something comes. Returns whether the body breaks off before its proper end.
    pub async fn breaks_off(mut self) -> bool {
        while self.connection.fill().await {}
        !self.connection.buffer.ends_with(b"0\r\n\r\n")
    }

    pub async fn whole(self) -> Response {
        self.whole_and_connection().await.0
    }

    /// Reads the rest, and returns the connection for the next request.
    pub async fn whole_and_connection(mut self) -> (Response, Connection) {
        let mut body = std::mem::take(&mut self.text);
        while let Some(piece) = self.piece().await {
            body.extend(piece);
        }
        let response = Response {
            status: self.status,
            headers: self.headers,
            body,
        };
        (response, self.connection)
    }

    /// The data of the next event; comments are skipped.
    pub async fn event(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.text, b"\n\n") {
                let event: Vec<u8> = self.text.drain(..end + 2).collect();
                let event = String::from_utf8(event).unwrap();
                match event.strip_prefix("data: ") {
                    Some(data) => return Some(data.trim_end().to_owned()),
                    None => assert!(event.starts_with(':'), "{event}"),
                }
                continue;
            }
            match self.piece().await {
                Some(piece) => self.text.extend(piece),
                None => {
                    assert!(self.text.is_empty(), "an event is cut off");
                    return None;
                }
            }
        }
    }

    /// Reads events up to and including the first that contains a word.
    pub async fn events_until(&mut self, word: &str) -> Vec<String> {
        let mut events = Vec::new();
        while let Some(event) = self.event().await {
            let found = event.contains(word);
            events.push(event);
            if found {
                return events;
            }
        }
        panic!("{word} never came: {:?}", events.last());
    }

    pub async fn events(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        while let Some(event) = self.event().await {
            events.push(event);
        }
        events
    }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The code of a refusal, which always has one of these two forms.
    pub fn code(&self) -> String {
        assert!((400..500).contains(&self.status), "{self:?}");
        let code = self.header("x-error-code").unwrap().to_owned();
        assert!(!self.message().is_empty());
        if !self.is_in_words() {
            let body = self.json();
            assert_eq!(self.header("content-type"), Some("application/json"));
            assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
            let error = body["error"].as_object().unwrap();
            assert_eq!(error.len(), 2, "{body}");
            assert_eq!(error["code"], code.as_str(), "{body}");
        }
        code
    }

    pub fn message(&self) -> String {
        if self.is_in_words() {
            return String::from_utf8(self.body.clone()).unwrap();
        }
        self.json()["error"]["message"].as_str().unwrap().to_owned()
    }

    pub fn is_in_words(&self) -> bool {
        self.header("content-type") == Some("text/plain; charset=utf-8")
    }
}

fn header<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    headers
        .iter()
        .find(|(given, _)| given == name)
        .map(|(_, value)| value.as_str())
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
