//! The rig of the crash tests: a real server that dies, and a client that remembers what it received.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adk_bridge_testkit::bridge::{PATIENCE, within};
use adk_bridge_testkit::process::{Process, binary};
use serde_json::{Value, json};

/// More turns than a chat can have left to do.
const MAX_TURNS: u32 = 20;

/// A server of its own process.
pub(crate) struct Server {
    process: Process,
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
        Self::launch(binary().as_os_str(), data, settings).until_ready()
    }

    /// Starts any build of the server, and does not wait for it.
    pub(crate) fn launch(binary: &OsStr, data: &Path, settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary);
        command
            .args(["serve", "--agent", "demo", "--listen", "127.0.0.1:0"])
            .arg("--data-dir")
            .arg(data)
            .current_dir(data)
            .env("ADK_BRIDGE__DEMO__PACE", "2ms")
            .env("RUST_LOG", "warn")
            .envs(settings.iter().copied())
            .stderr(Stdio::null());
        let process = Process::launch(&mut command);
        Self { process }
    }

    /// Waits until it takes requests; `None` if it dies before.
    pub(crate) fn until_ready(self) -> Option<Self> {
        let process = self.process.listening()?;
        Some(Self { process })
    }

    pub(crate) fn start(data: &Path, settings: &[(&str, &str)]) -> Self {
        Self::try_start(data, settings).expect("the server starts")
    }

    pub(crate) fn client(&self) -> Client {
        Client {
            base: self.process.url().to_owned(),
            http: reqwest::Client::new(),
            received: Arc::default(),
        }
    }

    /// Waits for a failpoint to do its work.
    pub(crate) async fn wait_for_death(self) {
        let waiting = tokio::task::spawn_blocking(move || {
            let status = self.process.wait();
            assert!(!status.success());
        });
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .expect("the failpoint is reached")
            .unwrap();
    }

    pub(crate) fn kill(mut self) {
        self.process.kill();
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
        self.post_all(chat, &[message], begun).await
    }

    /// Sends several messages, as a client does that has them all.
    pub(crate) async fn post_all(
        &self,
        chat: &str,
        messages: &[Value],
        begun: impl AsyncFnOnce(),
    ) -> Stream {
        let request = self
            .http
            .post(format!("{}/api/chat", self.base))
            .header("content-type", "application/json")
            .body(
                json!({"id": chat, "messages": messages, "trigger": "submit-message"}).to_string(),
            );
        self.read(request, begun).await.unwrap_or_default()
    }

    /// Reads what runs, until nothing does.
    pub(crate) async fn settle(&self, chat: &str) {
        let url = format!("{}/api/chat/{chat}/stream", self.base);
        for _ in 0..MAX_TURNS {
            let Some(stream) = self.read(self.http.get(&url), async || {}).await else {
                return;
            };
            assert!(stream.done, "{chat}: {stream:?}");
        }
        panic!("{chat} is not settled after {MAX_TURNS} turns");
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
        let mut response = within(request.send()).await.ok()?;
        let url = response.url().to_string();
        if response.status() == 204 {
            return None;
        }
        let mut begun = Some(begun);
        let mut text = Vec::new();
        let whole = async {
            while let Ok(Some(piece)) = response.chunk().await {
                self.received
                    .fetch_add(piece.len() as u64, Ordering::Relaxed);
                text.extend_from_slice(&piece);
                if let Some(begun) = begun.take() {
                    begun().await;
                }
            }
        };
        // Comments keep the connection of a turn that never ends alive, so that only the whole can be waited for.
        if tokio::time::timeout(PATIENCE, whole).await.is_err() {
            panic!("{url} does not end: {}", String::from_utf8_lossy(&text));
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
        let response = within(request.send()).await.ok()?;
        let status = response.status().as_u16();
        let body = within(response.bytes()).await.ok()?;
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
