//! Files on their way to an agent that takes none of them: many turns at once, each with a large picture.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::rig::{ALICE, MB, Rig, message, picture, text};
use crate::support::http::Answer;
use crate::support::{JSON, within};

/// As base64 nearly all that one request to a model may have.
const LARGE: usize = 14 * MB;
const CHATS: usize = 16;
/// What one user's requests may take by default, with one beyond the limit.
const MOST: usize = 250 * MB;

/// An agent that answers short requests and takes nothing of long ones.
#[derive(Clone)]
struct PickyAgent {
    address: SocketAddr,
    /// How many long requests have come.
    long: Arc<AtomicUsize>,
}

impl PickyAgent {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let agent = Self {
            address: listener.local_addr().unwrap(),
            long: Arc::default(),
        };
        let picky = agent.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(picky.clone().serve(stream));
            }
        });
        agent
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        if length > MB {
            self.long.fetch_add(1, SeqCst);
            // It ends when the bridge gives up.
            return std::future::pending().await;
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let content = json!({"role": "model", "parts": [{"text": "Served."}]});
        let (kind, body) = if head.contains(":streamGenerateContent") {
            let chunk = json!({"candidates": [{"content": content, "finishReason": "STOP"}]});
            ("text/event-stream", format!("data: {chunk}\n\n"))
        } else if head.contains("/run_sse") {
            let event = json!({"author": "app", "id": "e", "content": content});
            ("text/event-stream", format!("data: {event}\n\n"))
        } else {
            let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
            let session = json!({"id": asked["sessionId"]});
            ("application/json", session.to_string())
        };
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let _ = stream.write_all(answer.as_bytes()).await;
    }

    async fn has_long(&self, count: usize) {
        let come = async {
            while self.long.load(SeqCst) < count {
                tokio::task::yield_now().await;
            }
        };
        within(come).await;
    }
}

/// Begins a turn with a picture.
async fn begin(rig: &Rig, chat: &str, url: &str) -> Answer {
    let parts = vec![text("What is this?"), picture(url)];
    let body = json!({"id": chat, "messages": [message("u", "user", parts)]}).to_string();
    let length = body.len().to_string();
    let headers = [JSON, ALICE, ("content-length", length.as_str())];
    let mut connection = rig.begin("POST", "/api/chat", &headers).await;
    assert!(connection.write(body.as_bytes()).await);
    connection.answer("POST").await
}

/// Begins many turns with pictures. Returns those that are not refused.
async fn begin_many(rig: &Rig, agent: &PickyAgent) -> Vec<(String, Answer)> {
    let mut uploaded = Vec::new();
    for number in 0..CHATS {
        let chat = format!("c{number}");
        let url = rig.upload(&chat, LARGE).await;
        uploaded.push((chat, url));
    }
    rig.bridge.forget_peak();
    let (mut taken, mut refused) = (Vec::new(), 0);
    for (chat, url) in uploaded {
        let answer = begin(rig, &chat, &url).await;
        if answer.status == 200 {
            taken.push((chat, answer));
            continue;
        }
        assert!(answer.header("retry-after").is_some());
        let answer = answer.whole().await;
        assert_eq!((answer.status, answer.code().as_str()), (429, "too_many"));
        let said = answer.message();
        assert!(said.contains("limits.loaded_bytes_per_user"), "{said}");
        refused += 1;
        if refused == 1 {
            rig.serves_bob().await;
        }
    }
    agent.has_long(2).await;
    rig.serves_bob().await;
    assert!(rig.peak() < MOST, "{} MB", rig.peak() / MB);
    assert!(refused > 0 && taken.len() > 1, "{refused} are refused");
    taken
}

async fn stop(rig: &Rig, chat: &str) {
    let path = format!("/api/chat/{chat}/stop");
    let stopped = rig.bridge.send("POST", &path, &[ALICE], "").await;
    assert_eq!(stopped.status, 204);
}

#[tokio::test]
async fn pictures_for_a_model_that_does_not_read_are_bounded_and_stopping_releases_them() {
    let agent = PickyAgent::start().await;
    let mut rig = Rig::start(&format!(
        "\n[agent]\nkind = \"gemini\"\napi_key_env = \"PATH\"\nbase_url = \"http://{}\"",
        agent.address
    ))
    .await;
    for (chat, mut answer) in begin_many(&rig, &agent).await {
        stop(&rig, &chat).await;
        assert!(answer.events().await.concat().contains("abort"));
    }
    rig.recovers().await;
    // There is room again.
    let long = agent.long.load(SeqCst);
    let url = rig.upload("next", LARGE).await;
    let next = begin(&rig, "next", &url).await;
    assert_eq!(next.status, 200);
    agent.has_long(long + 1).await;
    stop(&rig, "next").await;
    rig.recovers().await;
}

#[tokio::test]
async fn pictures_for_a_silent_adk_server_are_bounded_and_released_when_their_turns_end() {
    let agent = PickyAgent::start().await;
    let mut rig = Rig::start(&format!(
        "agent_silence = \"2s\"\n[agent]\nkind = \"adk\"\napp = \"app\"\nbase_url = \"http://{}\"",
        agent.address
    ))
    .await;
    // The clients leave, and what waits for room goes on.
    let turns = begin_many(&rig, &agent).await.len();
    agent.has_long(turns).await;
    rig.recovers().await;
}
