//! Live models that refuse or hang up: what their users see, how often they are tried, and what the log keeps to
//! itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use crate::client::Client;
use crate::support::Bridge;
use crate::support::stand_in::{self, redirected, switched};

const KEY: &str = "PLANTED-LIVE-KEY-0123456789";
const WORDS: &str = "nobody else should read this";

/// What a stand-in does with everybody who wants a live connection.
#[derive(Clone)]
enum Act {
    /// Answers the handshake like any request.
    Http(u16, String),
    /// Leads elsewhere.
    Redirect(String),
    /// Takes the first message, sends these, and closes with a code and a reason.
    Close(Vec<Value>, u16, String),
}

/// A live model, or an ADK server, that is asked again and again.
struct StandIn {
    url: String,
    asked: Arc<AtomicUsize>,
}

impl StandIn {
    async fn start(act: Act) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<AtomicUsize>::default();
        let count = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, act.clone(), count.clone()));
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// A bridge whose live model this is.
    fn gemini(&self) -> Bridge {
        let toml = format!("[agent]\nkind = \"gemini\"\nbase_url = {:?}\n", self.url);
        Bridge::with(&toml, |command| {
            command.env("GEMINI_API_KEY", KEY);
        })
    }

    /// A bridge whose ADK server this is.
    fn adk(&self) -> Bridge {
        let headers = format!("{{ authorization = \"Bearer {KEY}\" }}");
        let url = &self.url;
        Bridge::configured(&format!(
            "[agent]\nkind = \"adk\"\napp = \"app\"\nbase_url = {url:?}\nheaders = {headers}\n"
        ))
    }
}

async fn serve(mut stream: TcpStream, act: Act, asked: Arc<AtomicUsize>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim().to_owned())
    };
    let answer = |status: u16, body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
    };
    let Some(key) = header("sec-websocket-key") else {
        // An ADK server is asked for a session first.
        let length = header("content-length").map_or(0, |length| length.parse().unwrap());
        stream.read_exact(&mut vec![0; length]).await.unwrap();
        let answer = match head.starts_with("GET /run_live") {
            true => answer(426, "{}"),
            false => answer(200, r#"{"id":"s"}"#),
        };
        let _ = stream.write_all(answer.as_bytes()).await;
        return;
    };
    asked.fetch_add(1, Ordering::Relaxed);
    let (messages, code, reason) = match act {
        Act::Http(status, body) => {
            let _ = stream.write_all(answer(status, &body).as_bytes()).await;
            return;
        }
        Act::Redirect(place) => {
            let _ = stream.write_all(&redirected(302, &place)).await;
            return;
        }
        Act::Close(messages, code, reason) => (messages, code, reason),
    };
    stream.write_all(&switched(&key)).await.unwrap();
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    socket.next().await;
    for message in messages {
        let _ = socket.send(Message::text(message.to_string())).await;
    }
    let (code, reason) = (code.into(), reason.into());
    let _ = socket.close(Some(CloseFrame { code, reason })).await;
    // Until the other side has closed, too.
    while let Some(Ok(_)) = socket.next().await {}
}

/// Writes to a chat that is spoken with, and reads what comes until something failed.
async fn failed(bridge: &Bridge) -> String {
    let mut client = Client::open(bridge, "/live?chat=c").await;
    client
        .send(json!({"type": "modality", "modality": "text"}))
        .await;
    client.say(&format!("say {WORDS}")).await;
    loop {
        let said = String::from_utf8(client.message().await.payload).unwrap();
        assert!(!said.contains(&KEY[..12]), "{said}");
        let json = said.trim().trim_start_matches("data: ");
        let json: Value = serde_json::from_str(json).unwrap_or_default();
        // In a turn, or where none has begun yet.
        let failed = json["type"] == "error";
        if let Some(text) = json["errorText"]
            .as_str()
            .or(json["message"].as_str())
            .filter(|_| failed)
        {
            return text.to_owned();
        }
    }
}

fn ready() -> Vec<Value> {
    vec![json!({"setupComplete": {}})]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_model_that_is_not_to_be_had_is_named() {
    let google = json!({"error": {"message": "models/x is not found"}}).to_string();
    let close = |messages, reason: &str| Act::Close(messages, 1008, reason.to_owned());
    for (name, act, tried) in [
        ("404", Act::Http(404, google), 1),
        ("404 without words", Act::Http(404, String::new()), 1),
        ("503", Act::Http(503, "{}".into()), 5),
        ("1008", close(vec![], "models/x is not found"), 1),
        (
            "retired",
            close(vec![], "This model is no longer available"),
            1,
        ),
        (
            "of a project",
            close(vec![], "Publisher Model `x` was not found"),
            1,
        ),
        (
            "by name",
            close(vec![], "gemini-3.8-live: no such thing"),
            1,
        ),
        ("later", close(ready(), "models/x has been shut down"), 1),
    ] {
        let stand_in = StandIn::start(act).await;
        let shown = failed(&stand_in.gemini()).await;
        for words in ["gemini-3.8-live", "agent.live_model"] {
            assert!(shown.contains(words), "{name}: {shown}");
        }
        assert_eq!(stand_in.asked(), tried, "{name}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_refusals_are_what_they_say() {
    for (act, words, tried) in [
        (Act::Http(403, "{}".into()), "refuses the API key", 1),
        (
            Act::Close(vec![], 1008, "the key was reported as leaked".into()),
            "reported as leaked",
            1,
        ),
    ] {
        let stand_in = StandIn::start(act).await;
        let shown = failed(&stand_in.gemini()).await;
        assert!(shown.contains(words), "{shown}");
        assert!(!shown.contains("agent.live_model"), "{shown}");
        assert_eq!(stand_in.asked(), tried, "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_are_not_followed() {
    let elsewhere = stand_in::StandIn::start(|asked| switched(asked.key.as_deref().unwrap())).await;
    let place = format!("http://{}/", elsewhere.address);
    for (is_adk, words) in [
        (false, "correct agent.base_url"),
        (true, "the ADK server refused a live connection: 302"),
    ] {
        let leading = StandIn::start(Act::Redirect(place.clone())).await;
        let bridge = match is_adk {
            true => leading.adk(),
            false => leading.gemini(),
        };
        let shown = failed(&bridge).await;
        assert!(shown.contains(words), "{shown}");
        assert!(leading.asked() > 0 && elsewhere.asked("").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_live_upstream_says_is_not_logged() {
    let quoted = format!("ValueError: {WORDS} {KEY}");
    let failing = json!({"author": "app", "errorCode": quoted, "turnComplete": true});
    for (name, act, is_adk) in [
        ("refused", Act::Close(vec![], 1008, quoted.clone()), false),
        ("ended", Act::Close(ready(), 1011, quoted.clone()), false),
        ("handshake", Act::Http(400, quoted.clone()), false),
        ("adk ended", Act::Close(vec![], 1011, quoted.clone()), true),
        (
            "adk failed",
            Act::Close(vec![failing], 1000, quoted.clone()),
            true,
        ),
        ("adk handshake", Act::Http(400, quoted.clone()), true),
    ] {
        let stand_in = StandIn::start(act.clone()).await;
        let bridge = match is_adk {
            true => stand_in.adk(),
            false => stand_in.gemini(),
        };
        failed(&bridge).await;
        let log = bridge.log();
        assert!(
            !log.contains(WORDS) && !log.contains(&KEY[..12]),
            "{name}: {log}"
        );
        let code = match act {
            Act::Http(status, _) => status,
            Act::Redirect(_) => 302,
            Act::Close(_, code, _) => code,
        };
        assert!(log.contains(&code.to_string()), "{name}: {log}");
    }
}
