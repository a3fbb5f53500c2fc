//! The rig of the crash tests: a real server that dies, and a client that remembers what it was told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "../support/listening.rs"]
mod listening;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

/// Far longer than anything here takes: whoever waits so long waits for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// The build with failpoints.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_adk-bridge");

/// A server of its own process.
pub(crate) struct Server {
    child: Child,
    base: String,
}

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Client {
    base: String,
    http: reqwest::Client,
    /// All bytes that its answers have brought.
    pub(crate) received: Arc<AtomicU64>,
}

/// What one request brought before it ended or broke.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) chunks: Vec<Value>,
    /// Whether it came to its `[DONE]`.
    pub(crate) done: bool,
}

impl Server {
    /// Starts a server on `data`; `None` if it dies before it takes requests.
    pub(crate) fn try_start(data: &Path, settings: &[(&str, &str)]) -> Option<Self> {
        Self::launch(BINARY.as_ref(), data, settings).until_ready()
    }

    /// Starts any build of the server, and does not wait for it.
    pub(crate) fn launch(binary: &OsStr, data: &Path, settings: &[(&str, &str)]) -> Self {
        let child = Command::new(binary)
            .args(["serve", "--agent", "demo", "--listen", "127.0.0.1:0"])
            .arg("--data-dir")
            .arg(data)
            .current_dir(data)
            .env("ADK_BRIDGE__DEMO__PACE", "2ms")
            .env("RUST_LOG", "warn")
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            base: String::new(),
        }
    }

    /// Waits until it takes requests; `None` if it dies before.
    pub(crate) fn until_ready(mut self) -> Option<Self> {
        self.base = listening::url_of(&mut self.child)?;
        Some(self)
    }

    pub(crate) fn start(data: &Path, settings: &[(&str, &str)]) -> Self {
        Self::try_start(data, settings).expect("the server starts")
    }

    pub(crate) fn client(&self) -> Client {
        Client {
            base: self.base.clone(),
            http: reqwest::Client::new(),
            received: Arc::default(),
        }
    }

    /// Waits for a failpoint to do its work.
    pub(crate) async fn wait_for_death(mut self) {
        let waiting = tokio::task::spawn_blocking(move || {
            let status = self.child.wait().unwrap();
            assert!(!status.success());
        });
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .expect("the failpoint is reached")
            .unwrap();
    }

    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may have died by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl Client {
    /// Sends what the user wrote.
    pub(crate) async fn say(&self, chat: &str, id: &str, text: &str) -> Stream {
        self.post(chat, user(id, text)).await
    }

    /// Sends a message as the last one of the chat.
    pub(crate) async fn post(&self, chat: &str, message: Value) -> Stream {
        self.post_then(chat, message, async || {}).await
    }

    /// The same, and does something when the answer has begun.
    pub(crate) async fn post_then(
        &self,
        chat: &str,
        message: Value,
        begun: impl AsyncFnOnce(),
    ) -> Stream {
        let request = self
            .http
            .post(format!("{}/api/chat", self.base))
            .header("content-type", "application/json")
            .body(
                json!({"id": chat, "messages": [message], "trigger": "submit-message"}).to_string(),
            );
        self.read(request, begun).await.unwrap_or_default()
    }

    /// Reads what runs, until nothing does.
    pub(crate) async fn settle(&self, chat: &str) {
        let url = format!("{}/api/chat/{chat}/stream", self.base);
        while let Some(stream) = self.read(self.http.get(&url), async || {}).await {
            assert!(stream.done, "{chat}: {stream:?}");
        }
    }

    /// The same for a server that may die meanwhile.
    pub(crate) async fn settle_while_alive(&self, chat: &str) {
        let url = format!("{}/api/chat/{chat}/stream", self.base);
        while let Some(stream) = self.read(self.http.get(&url), async || {}).await {
            if !stream.done {
                return;
            }
        }
    }

    /// An answer that is no stream has no chunks; `None` where there is none at all.
    async fn read(
        &self,
        request: reqwest::RequestBuilder,
        begun: impl AsyncFnOnce(),
    ) -> Option<Stream> {
        let mut response = request.send().await.ok()?;
        if response.status() == 204 {
            return None;
        }
        let mut begun = Some(begun);
        let mut text = Vec::new();
        while let Ok(Ok(Some(piece))) = tokio::time::timeout(PATIENCE, response.chunk()).await {
            self.received
                .fetch_add(piece.len() as u64, Ordering::Relaxed);
            text.extend_from_slice(&piece);
            if let Some(begun) = begun.take() {
                begun().await;
            }
        }
        let mut stream = Stream::default();
        // What follows the last empty line was cut off.
        let text = String::from_utf8_lossy(&text);
        let whole = text.rfind("\n\n").map_or("", |end| &text[..end]);
        for data in whole.lines().filter_map(|line| line.strip_prefix("data: ")) {
            match data {
                "[DONE]" => stream.done = true,
                chunk => stream.chunks.push(serde_json::from_str(chunk).unwrap()),
            }
        }
        Some(stream)
    }

    pub(crate) async fn delete(&self, chat: &str) -> u16 {
        let url = format!("{}/api/chats/{chat}", self.base);
        self.http
            .delete(url)
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.try_get(path).await.expect("the server lives")
    }

    /// `None` where the server dies meanwhile.
    pub(crate) async fn try_get(&self, path: &str) -> Option<(u16, Value)> {
        let request = self.http.get(format!("{}{path}", self.base));
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        let body = response.bytes().await.ok()?;
        Some((status, serde_json::from_slice(&body).unwrap()))
    }

    /// The messages of a chat; none where there is no such chat.
    pub(crate) async fn messages(&self, chat: &str) -> Vec<Value> {
        let (status, body) = self.get(&format!("/api/chats/{chat}")).await;
        match status {
            200 => body["messages"].as_array().unwrap().clone(),
            _ => Vec::new(),
        }
    }

    /// How many approvals of a chat wait, as the list of chats says.
    pub(crate) async fn waiting(&self, chat: &str) -> u64 {
        let (_, list) = self.get("/api/chats").await;
        let rows = list.as_array().unwrap();
        let row = rows.iter().find(|row| row["id"] == chat);
        row.map_or(0, |row| row["pendingApprovals"].as_u64().unwrap())
    }

    /// The audit of a chat; nothing where there is no such chat.
    pub(crate) async fn audit(&self, chat: &str) -> Vec<Value> {
        let (status, rows) = self.get(&format!("/api/audit?chat={chat}")).await;
        match status {
            200 => rows.as_array().unwrap().clone(),
            _ => Vec::new(),
        }
    }

    /// Pays one dollar and says what the wallet held before.
    pub(crate) async fn balance(&self, chat: &str) -> i64 {
        let asked = self.say(chat, "probe", &pay(1)).await;
        assert!(asked.done, "{asked:?}");
        let copy = self.messages(chat).await.pop().unwrap();
        self.post(chat, answered(copy, true)).await;
        let last = self.messages(chat).await.pop().unwrap();
        let tool = tools(&last).pop().unwrap();
        tool["output"]["balance"]
            .as_i64()
            .unwrap_or_else(|| panic!("{tool}"))
            + 1
    }
}

pub(crate) fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]})
}

pub(crate) fn pay(amount: u32) -> String {
    format!(r#"call process_payment {{"amount":{amount},"recipient":"a"}}"#)
}

/// The tool parts of a message.
pub(crate) fn tools(message: &Value) -> Vec<Value> {
    let parts = message["parts"].as_array().unwrap().iter();
    parts
        .filter(|part| {
            part["type"]
                .as_str()
                .is_some_and(|kind| kind.starts_with("tool-"))
        })
        .cloned()
        .collect()
}

/// All text of a message.
pub(crate) fn text(message: &Value) -> String {
    let parts = message["parts"].as_array().unwrap().iter();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// Whether a part waits for a human.
pub(crate) fn is_pending(tool: &Value) -> bool {
    tool["state"] == "approval-requested"
}

/// A client's copy of a message in which every open question has been answered.
pub(crate) fn answered(mut message: Value, approved: bool) -> Value {
    for part in message["parts"].as_array_mut().unwrap() {
        if is_pending(part) {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(approved);
        }
    }
    message
}

/// Everything that may happen to a call happens once; nobody is accused of anything here.
pub(crate) fn check_audit(rows: &[Value]) {
    let mut seen = HashSet::new();
    for row in rows {
        assert_ne!(row["kind"], "answer.refused", "{row}");
        let event = format!("{} {}", row["kind"], row["toolCallId"]);
        assert!(seen.insert(event), "{row} is there twice");
    }
}

pub(crate) fn count(rows: &[Value], kind: &str) -> usize {
    rows.iter().filter(|row| row["kind"] == kind).count()
}
