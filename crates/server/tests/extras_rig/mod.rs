//! The real binary as a child, and a client for it.

#![allow(dead_code, reason = "every test file uses a part of it")]

#[path = "../support/listening.rs"]
mod listening;

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};

/// A test that waits longer has failed; a busy machine may need most of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running `adk-bridge`; ends with this.
pub(crate) struct Bridge {
    child: Child,
    address: String,
    client: Client,
    key: Option<String>,
}

impl Bridge {
    /// Starts `adk-bridge serve` in a directory that holds everything of it.
    pub(crate) fn serve(dir: &Path, config: &str) -> Self {
        Self::serve_with(dir, config, &[])
    }

    pub(crate) fn serve_with(dir: &Path, config: &str, variables: &[(&str, &str)]) -> Self {
        std::fs::write(dir.join("bridge.toml"), config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_adk-bridge"));
        command
            .args(["serve", "--config", "bridge.toml"])
            .args(["--listen", "127.0.0.1:0", "--data-dir", "data"])
            .envs(variables.iter().copied());
        Self::start(dir, &mut command)
    }

    /// Starts a command that says where it listens.
    pub(crate) fn start(dir: &Path, command: &mut Command) -> Self {
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let mut child = command
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let said = || std::fs::read_to_string(dir.join("log"));
        let address = listening::url_of(&mut child);
        let address = address.unwrap_or_else(|| panic!("it did not start: {:?}", said()));
        Self {
            child,
            address,
            client: Client::new(),
            key: None,
        }
    }

    /// The same server for the owner of a key.
    pub(crate) fn with_key(&mut self, key: &str) -> &mut Self {
        self.key = Some(key.to_owned());
        self
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self
            .client
            .request(method, format!("{}{path}", self.address))
            .timeout(PATIENCE);
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        read(response).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.request(Method::POST, path)
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
            .await
            .unwrap()
    }

    /// Posts one message of the user and reads the answer to its end.
    pub(crate) async fn say(&self, chat: &str, parts: Value, dialect: &str) -> Vec<Value> {
        let message = json!({"id": format!("{chat}-{dialect}"), "role": "user", "parts": parts});
        let body = json!({"id": chat, "dialect": dialect, "messages": [message]});
        let response = self.post("/api/chat", &body).await;
        assert_eq!(response.status(), 200);
        chunks(&response.text().await.unwrap())
    }

    /// Asks it to end, as an operating system does.
    pub(crate) fn terminate(&self) {
        let id = self.child.id().to_string();
        let done = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(done.success());
    }

    pub(crate) async fn wait(mut self) -> ExitStatus {
        let ended = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.unwrap()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) async fn read(response: Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

/// The chunks of a stream, which must have come to its end.
pub(crate) fn chunks(stream: &str) -> Vec<Value> {
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
pub(crate) fn of_type<'c>(chunks: &'c [Value], kind: &str) -> Vec<&'c Value> {
    chunks
        .iter()
        .filter(|chunk| chunk["type"] == kind)
        .collect()
}

pub(crate) fn text(chunks: &[Value]) -> String {
    let deltas = of_type(chunks, "text-delta");
    deltas
        .iter()
        .filter_map(|chunk| chunk["delta"].as_str())
        .collect()
}

pub(crate) fn says(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}
