//! A stand-in for an ADK server, as bytes: an answer may be as invalid as a test needs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// The request that it received.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub path: String,
    pub head: String,
    /// What is not JSON is a string.
    pub body: Value,
    /// The key of a WebSocket's handshake.
    pub key: Option<String>,
}

/// Returns the bytes that answer a request, before the connection is closed.
type Answers = dyn Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync;

/// Returns what is sent for a message of a WebSocket that was opened with this request.
type Speaks = dyn Fn(&ReceivedRequest, Value) -> Vec<Value> + Send + Sync;

#[derive(Clone)]
pub struct StandIn {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl StandIn {
    pub async fn start(
        answers: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), answers).await
    }

    pub async fn start_at(
        address: SocketAddr,
        answers: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::serve(address, Arc::new(answers), Arc::new(|_, _| Vec::new()))
    }

    /// One that speaks over a WebSocket where its answer is [`switched`].
    pub async fn start_speaking(
        answers: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static,
        speaks: impl Fn(&ReceivedRequest, Value) -> Vec<Value> + Send + Sync + 'static,
    ) -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        Self::serve(address, Arc::new(answers), Arc::new(speaks))
    }

    fn serve(address: SocketAddr, answers: Arc<Answers>, speaks: Arc<Speaks>) -> Self {
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let serve = async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let (answers, speaks) = (answers.clone(), speaks.clone());
                tokio::spawn(answer(stream, answers, speaks, seen.clone()));
            }
        };
        // On a thread of its own: it answers while a test waits for a bridge to start.
        std::thread::spawn(|| {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build().unwrap().block_on(serve);
        });
        Self { address, asked }
    }

    /// The bridge's configuration for this server.
    pub fn toml(&self) -> String {
        toml(self.address)
    }

    pub fn asked(&self, path: &str) -> Vec<ReceivedRequest> {
        let asked = self.asked.lock().unwrap();
        let of_path = asked.iter().filter(|asked| asked.path.contains(path));
        of_path.cloned().collect()
    }
}

/// The bridge's configuration for a server at this address.
pub fn toml(address: SocketAddr) -> String {
    format!("[agent]\nkind = \"adk\"\nbase_url = \"http://{address}\"\napp = \"app\"\n")
}

/// The answer of a well-behaved server.
pub fn well(asked: &ReceivedRequest) -> Vec<u8> {
    match asked.path.as_str() {
        "/run_sse" => events(fine()),
        path if path.ends_with("/sessions") => session(asked),
        _ => refused(404, "application/json", r#"{"detail":"Not Found"}"#),
    }
}

/// The answer to a new session, with the id and the events that it was given.
pub fn session(asked: &ReceivedRequest) -> Vec<u8> {
    let of = |key: &str, instead: Value| asked.body.get(key).cloned().unwrap_or(instead);
    ok(&json!({"id": of("sessionId", json!("chosen")), "events": of("events", json!([]))}))
}

/// A stream that says "fine".
pub fn fine() -> String {
    let event = json!({"author": "app", "id": "e", "content": {"role": "model", "parts": [{"text": "fine"}]}});
    format!("data: {event}\n\n")
}

pub fn events(stream: impl AsRef<[u8]>) -> Vec<u8> {
    http("200 OK", "text/event-stream", stream.as_ref())
}

/// A stream whose events are separate pieces of its body, and arrive together.
pub fn pieces(stream: &[Value]) -> Vec<u8> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let events = stream.iter().map(|event| {
        let event = format!("data: {event}\n\n");
        format!("{:x}\r\n{event}\r\n", event.len())
    });
    let body: String = events.collect();
    format!("{head}{body}0\r\n\r\n").into_bytes()
}

pub fn ok(body: &Value) -> Vec<u8> {
    http("200 OK", "application/json", body.to_string().as_bytes())
}

pub fn refused(status: u16, kind: &str, body: &str) -> Vec<u8> {
    http(&format!("{status} Refused"), kind, body.as_bytes())
}

pub fn http(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// The answer that opens a WebSocket with this key.
pub fn switched(key: &str) -> Vec<u8> {
    let accepted = derive_accept_key(key.as_bytes());
    let head = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n";
    format!("{head}sec-websocket-accept: {accepted}\r\n\r\n").into_bytes()
}

/// An answer that leads elsewhere, keeping the method and the body with 307.
pub fn redirected(status: u16, place: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} Elsewhere\r\nlocation: {place}\r\n");
    format!("{head}content-length: 0\r\nconnection: close\r\n\r\n").into_bytes()
}

/// The user's text in a request to run.
pub fn text_of(asked: &ReceivedRequest) -> &str {
    let text = asked.body.pointer("/newMessage/parts/0/text");
    text.and_then(Value::as_str).unwrap_or_default()
}

async fn answer(
    mut stream: TcpStream,
    answers: Arc<Answers>,
    speaks: Arc<Speaks>,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
) {
    let mut bytes = Vec::new();
    let asked = loop {
        let mut piece = [0; 16 * 1024];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
        }
        if let Some(asked) = whole(&bytes) {
            break asked;
        }
    };
    let said = answers(&asked);
    seen.lock().unwrap().push(asked.clone());
    let _ = stream.write_all(&said).await;
    if !said.starts_with(b"HTTP/1.1 101") {
        let _ = stream.shutdown().await;
        return;
    }
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else {
            continue;
        };
        for event in speaks(&asked, serde_json::from_str(&text).unwrap()) {
            let _ = socket.send(Message::text(event.to_string())).await;
        }
    }
}

/// The request, if it is complete.
fn whole(bytes: &[u8]) -> Option<ReceivedRequest> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let body = bytes[end + 4..].get(..length)?;
    let raw = String::from_utf8_lossy(&bytes[..end]);
    let path = raw.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut fields = raw.lines().filter_map(|line| line.split_once(": "));
    let key = fields.find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"));
    Some(ReceivedRequest {
        path,
        head,
        body: match serde_json::from_slice(body) {
            Ok(json) => json,
            Err(_) if body.is_empty() => Value::Null,
            Err(_) => String::from_utf8_lossy(body).into(),
        },
        key: key.map(|(_, key)| key.to_owned()),
    })
}
