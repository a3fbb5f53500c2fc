//! A real bridge in a separate process, and a client that sends exactly the bytes that a test needs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::message::fold::Fold;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Answer, Connection, Response};
pub use crate::process::PATIENCE;
use crate::process::{Process, binary, refusal};

/// A running bridge; dropping this ends it.
pub struct Bridge {
    process: Process,
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
        Self::started(command, directory)
    }

    /// Starts with this many bytes of address space: an allocation beyond them fails, and ends the process.
    pub fn bounded(toml: &str, bytes: usize) -> Self {
        Self::with(toml, |command| {
            let mut bounded = Command::new("sh");
            bounded
                .args(["-c", "ulimit -v \"$0\"; exec \"$@\""])
                .arg((bytes / 1024).to_string())
                .arg(command.get_program())
                .args(command.get_args());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => bounded.env(name, value),
                    None => bounded.env_remove(name),
                };
            }
            let directory = command.get_current_dir().unwrap();
            let log = std::fs::File::create(directory.join("log")).unwrap();
            bounded
                .current_dir(directory)
                .stdin(Stdio::null())
                .stderr(log);
            *command = bounded;
        })
    }

    /// Starts with a limit on open files.
    pub fn with_files(toml: &str, limit: usize) -> Self {
        let directory = TempDir::new().unwrap();
        let inner = command(&directory, toml);
        let mut outer = Command::new("sh");
        outer
            .arg("-c")
            .arg(format!("ulimit -n {limit} && exec \"$0\" \"$@\""))
            .arg(inner.get_program())
            .args(inner.get_args())
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(log_of(&directory)).unwrap());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        Self::started(outer, directory)
    }

    fn started(mut command: Command, directory: TempDir) -> Self {
        let process = start(&mut command, &directory);
        Self {
            address: process.address(),
            process,
            directory,
        }
    }

    /// Simulates a crash and a restart with the same data and configuration.
    pub fn kill_and_restart(&mut self) {
        self.kill_and_restart_with(|_| {});
    }

    /// The same, with a change of the command, which is not remembered.
    pub fn kill_and_restart_with(&mut self, change: impl FnOnce(&mut Command)) {
        self.process.kill();
        let config = self.directory.path().join("test.toml");
        let toml = std::fs::read_to_string(config).unwrap();
        let mut command = command(&self.directory, &toml);
        change(&mut command);
        self.process = start(&mut command, &self.directory);
        self.address = self.process.address();
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Sends it a signal, such as `-TERM`.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    pub fn process(&self) -> u32 {
        self.process.id()
    }

    pub fn log(&self) -> String {
        read_log(&self.directory)
    }

    /// The memory of the process that is really in use, in bytes.
    pub fn memory(&self) -> usize {
        self.process.memory()
    }

    /// The most memory in use since the last [`Self::forget_peak`].
    pub fn peak(&self) -> usize {
        self.process.peak()
    }

    pub fn forget_peak(&self) {
        self.process.forget_peak();
    }

    pub fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }

    pub async fn connect(&self) -> Connection {
        Connection::open(self.address).await
    }

    /// Sends one request over a new connection and reads the whole answer.
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

    /// Asks in a chat; the answer can be read as it arrives.
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

    /// The last stored message of a chat.
    pub async fn last_message(&self, chat: &str) -> Value {
        let chat = self.get(&format!("/api/chats/{chat}")).await.json();
        chat["messages"].as_array().unwrap().last().unwrap().clone()
    }

    /// Asks for the last message until it is the assistant's and ready to be shown.
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

fn start(command: &mut Command, directory: &TempDir) -> Process {
    let process = Process::start(command);
    process.unwrap_or_else(|| panic!("it did not start: {}", read_log(directory)))
}

pub const JSON: (&str, &str) = ("content-type", "application/json");

/// The command before it is started. Its log goes to a file.
pub fn command(directory: &TempDir, toml: &str) -> Command {
    let mut command = command_without_address(directory, toml);
    command.args(["--listen", "127.0.0.1:0"]);
    command
}

pub fn command_without_address(directory: &TempDir, toml: &str) -> Command {
    let config = directory.path().join("test.toml");
    std::fs::write(&config, toml).unwrap();
    let log = std::fs::File::create(log_of(directory)).unwrap();
    let mut command = Command::new(binary());
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

/// Runs a bridge that must refuse to start, and returns its message.
pub fn refused(toml: &str, change: impl FnOnce(&mut Command)) -> String {
    let directory = TempDir::new().unwrap();
    refused_in(&directory, toml, change)
}

pub fn refused_in(directory: &TempDir, toml: &str, change: impl FnOnce(&mut Command)) -> String {
    let mut command = command(directory, toml);
    change(&mut command);
    refusal(&mut command)
}

/// A chat request with a text.
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

/// The message that a client of the AI SDK has after reading these events; `[DONE]` must be the last.
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

/// The types of the chunks, without repetitions in a row.
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
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("this hangs")
}

fn log_of(directory: &TempDir) -> PathBuf {
    directory.path().join("log")
}

fn read_log(directory: &TempDir) -> String {
    std::fs::read_to_string(log_of(directory)).unwrap_or_default()
}
