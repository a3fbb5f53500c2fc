//! A real bridge in a directory that a test keeps, and an ordinary HTTP client.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};

pub use crate::bridge::PATIENCE;
use crate::process::{Process, binary, refusal};

/// A running `adk-bridge`; dropping this ends it.
pub struct Bridge {
    process: Process,
    client: Client,
    key: Option<String>,
}

impl Bridge {
    /// Starts `adk-bridge serve` in a directory that holds all of its files.
    pub fn serve(dir: &Path, config: &str) -> Self {
        Self::serve_with(dir, config, &[])
    }

    pub fn serve_with(dir: &Path, config: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = command(dir, config);
        Self::start(dir, command.envs(variables.iter().copied()))
    }

    /// Starts a command that prints where it listens.
    pub fn start(dir: &Path, command: &mut Command) -> Self {
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let process = Process::start(command.current_dir(dir).stdin(Stdio::null()).stderr(log));
        let said = || std::fs::read_to_string(dir.join("log"));
        let process = process.unwrap_or_else(|| panic!("it did not start: {:?}", said()));
        Self {
            process,
            client: Client::new(),
            key: None,
        }
    }

    /// Uses the same server as the owner of this key.
    pub fn with_key(&mut self, key: &str) -> &mut Self {
        self.key = Some(key.to_owned());
        self
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self
            .client
            .request(method, format!("{}{path}", self.process.url()))
            .timeout(PATIENCE);
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    pub async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    pub async fn json(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        read(response).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.request(Method::POST, path)
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(body.to_string())
            .send()
            .await
            .unwrap()
    }

    /// Posts one message of the user and reads the answer to its end.
    pub async fn say(&self, chat: &str, parts: Value, dialect: &str) -> Vec<Value> {
        let message = json!({"id": format!("{chat}-{dialect}"), "role": "user", "parts": parts});
        let body = json!({"id": chat, "dialect": dialect, "messages": [message]});
        let response = self.post("/api/chat", &body).await;
        assert_eq!(response.status(), 200);
        chunks(&response.text().await.unwrap())
    }

    pub fn address(&self) -> SocketAddr {
        self.process.address()
    }

    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// The most memory that it has used, in bytes.
    pub fn peak(&self) -> usize {
        self.process.peak()
    }

    /// Asks it to stop, as an operating system does.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    pub async fn wait(mut self) -> ExitStatus {
        let ended = async {
            loop {
                if let Some(status) = self.process.ended() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.unwrap()
    }
}

/// The output of a bridge that must refuse to start.
pub fn refused(dir: &Path, config: &str) -> String {
    refusal(command(dir, config).current_dir(dir))
}

fn command(dir: &Path, config: &str) -> Command {
    std::fs::write(dir.join("bridge.toml"), config).unwrap();
    let mut command = Command::new(binary());
    command.args(["serve", "--config", "bridge.toml"]).args([
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        "data",
    ]);
    command
}

pub async fn read(response: Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

/// The chunks of a stream, which must be complete.
pub fn chunks(stream: &str) -> Vec<Value> {
    let mut events: Vec<&str> = stream
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "))
        .collect();
    assert_eq!(events.pop(), Some("[DONE]"), "{stream}");
    events
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect()
}

/// The chunks of one type.
pub fn of_type<'c>(chunks: &'c [Value], kind: &str) -> Vec<&'c Value> {
    chunks
        .iter()
        .filter(|chunk| chunk["type"] == kind)
        .collect()
}

pub fn text(chunks: &[Value]) -> String {
    let deltas = of_type(chunks, "text-delta");
    deltas
        .iter()
        .filter_map(|chunk| chunk["delta"].as_str())
        .collect()
}

pub fn says(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}
