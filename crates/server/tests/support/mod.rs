//! A real bridge in a process of its own, and a client that sends exactly the bytes that a test wants.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub
)]

pub mod http;
pub mod listening;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::message::fold::Fold;
use serde_json::{Value, json};
use tempfile::TempDir;

use http::{Answer, Connection, Response};

/// Nothing in these tests takes so long; what does hangs.
pub const DEADLINE: Duration = Duration::from_secs(40);

/// A running bridge. It ends with this value.
pub struct Bridge {
    child: Child,
    pub address: SocketAddr,
    pub directory: TempDir,
}

impl Bridge {
    pub fn start() -> Self {
        Self::configured("")
    }

    /// Starts with a configuration file.
    pub fn configured(toml: &str) -> Self {
        Self::with(toml, |_| {})
    }

    pub fn with(toml: &str, change: impl FnOnce(&mut Command)) -> Self {
        let directory = TempDir::new().unwrap();
        let mut command = command(&directory, toml);
        change(&mut command);
        let (child, address) = started(command, &directory);
        Self {
            child,
            address,
            directory,
        }
    }

    /// What a crash and the next start are, with the same data and configuration.
    pub fn kill_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let config = self.directory.path().join("test.toml");
        let toml = std::fs::read_to_string(config).unwrap();
        (self.child, self.address) = started(command(&self.directory, &toml), &self.directory);
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        read_log(&self.directory)
    }

    /// Memory of the process that is really in use, in bytes.
    pub fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
        kib * 1024
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub async fn connect(&self) -> Connection {
        Connection::open(self.address).await
    }

    /// Sends one request over a connection of its own and reads the whole answer.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Response {
        let mut connection = self.connect().await;
        connection
            .request(method, path, headers, body.as_ref())
            .await;
        connection.answer(method).await.whole().await
    }

    pub async fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], "").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, &[JSON], body.to_string()).await
    }

    /// Asks in a chat; the answer can be read as it comes.
    pub async fn ask(&self, chat: &str, text: &str) -> Answer {
        self.open(
            "POST",
            "/api/chat",
            &[JSON],
            &asking(chat, text).to_string(),
        )
        .await
    }

    pub async fn resume(&self, chat: &str) -> Answer {
        self.open("GET", &format!("/api/chat/{chat}/stream"), &[], "")
            .await
    }

    pub async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut connection = self.connect().await;
        connection
            .request(method, path, headers, body.as_bytes())
            .await;
        connection.answer(method).await
    }

    /// The last message of a chat, as it is stored.
    pub async fn last_message(&self, chat: &str) -> Value {
        let chat = self.get(&format!("/api/chats/{chat}")).await.json();
        chat["messages"].as_array().unwrap().last().unwrap().clone()
    }

    /// Asks for the last message until it is the assistant's and fit to be shown.
    pub async fn settled_message(&self, chat: &str) -> Value {
        let wait = async {
            loop {
                let message = self.last_message(chat).await;
                if message["role"] == "assistant" {
                    return message;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(wait).await
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn started(mut command: Command, directory: &TempDir) -> (Child, SocketAddr) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let url = listening::url_of(&mut child);
    let url = url.unwrap_or_else(|| panic!("it did not start: {}", read_log(directory)));
    let address = url.trim_start_matches("http://").parse().unwrap();
    (child, address)
}

pub const JSON: (&str, &str) = ("content-type", "application/json");

/// The command, before it is started. Its log goes to a file.
pub fn command(directory: &TempDir, toml: &str) -> Command {
    let mut command = command_without_address(directory, toml);
    command.args(["--listen", "127.0.0.1:0"]);
    command
}

pub fn command_without_address(directory: &TempDir, toml: &str) -> Command {
    let config = directory.path().join("test.toml");
    std::fs::write(&config, toml).unwrap();
    let log = std::fs::File::create(log_of(directory)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_adk-bridge"));
    command
        .args(["serve", "--config"])
        .arg(config)
        .arg("--data-dir")
        .arg(directory.path().join("data"))
        .current_dir(directory.path())
        .env("ADK_BRIDGE__DEMO__PACE", "0ms")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stderr(log);
    command
}

/// Runs a bridge that must refuse to start, and returns what it says.
pub fn refused(toml: &str, change: impl FnOnce(&mut Command)) -> String {
    let directory = TempDir::new().unwrap();
    refused_in(&directory, toml, change)
}

pub fn refused_in(directory: &TempDir, toml: &str, change: impl FnOnce(&mut Command)) -> String {
    let mut command = command(directory, toml);
    change(&mut command);
    refused_by(command, directory)
}

pub fn refused_by(mut command: Command, directory: &TempDir) -> String {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    if !line.is_empty() {
        let _ = child.kill();
    }
    let status = child.wait().unwrap();
    assert_eq!(line, "", "it started");
    assert_eq!(status.code(), Some(1), "{}", read_log(directory));
    read_log(directory)
}

/// A chat request that says something.
pub fn asking(chat: &str, text: &str) -> Value {
    json!({
        "id": chat,
        "trigger": "submit-message",
        "messages": [{"role": "user", "parts": [{"type": "text", "text": text}]}],
    })
}

/// The text of a `long` answer.
pub fn words(count: usize) -> String {
    let mut text = String::new();
    for number in 1..=count {
        text += &format!("word{number}{}", if number < count { " " } else { "." });
    }
    text
}

/// The message that a client of the AI SDK has when it has read these events; `[DONE]` must be the last.
pub fn folded(events: &[String]) -> Value {
    let (done, chunks) = events.split_last().expect("there are events");
    assert_eq!(done, "[DONE]");
    let mut fold = Fold::new(Sdk::V6, "none");
    for json in chunks {
        let chunk = Chunk::parse(json).unwrap_or_else(|error| panic!("{error}: {json}"));
        fold.apply(&chunk)
            .unwrap_or_else(|error| panic!("{error}: {json}"));
    }
    json!(fold.into_message())
}

/// All text of a message.
pub fn text_of(message: &Value) -> String {
    let parts = message["parts"].as_array().unwrap();
    parts
        .iter()
        .filter(|part| part["type"] == "text")
        .filter_map(|part| part["text"].as_str())
        .collect()
}

/// The types of the chunks, equal neighbours once.
pub fn types(events: &[String]) -> Vec<String> {
    let mut types: Vec<String> = events
        .iter()
        .map(|json| match serde_json::from_str::<Value>(json) {
            Ok(chunk) => chunk["type"].as_str().unwrap().to_owned(),
            Err(_) => json.clone(),
        })
        .collect();
    types.dedup();
    types
}

pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("this hangs")
}

fn log_of(directory: &TempDir) -> PathBuf {
    directory.path().join("log")
}

fn read_log(directory: &TempDir) -> String {
    std::fs::read_to_string(log_of(directory)).unwrap_or_default()
}
