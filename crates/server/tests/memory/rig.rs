//! A bridge with two users in a process of 2 GB, and what is measured of it.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::http::{Answer, Connection, Response};
use crate::support::users::{BOB, KEYS};
use crate::support::{Bridge, JSON, asking, text_of};

pub use crate::support::users::ALICE;
pub const MB: usize = 1_000_000;
/// What the process may use of memory, in use or not.
const ADDRESS_SPACE: u64 = 2 * 1024 * 1024 * 1024;
/// How far from where it began memory may stay.
const LEFT: usize = 50 * MB;
/// How long it may take to come back.
const SOON: Duration = Duration::from_secs(60);

pub struct Rig {
    pub bridge: Bridge,
    /// What it used before anything was tried.
    before: usize,
}

impl Rig {
    pub async fn start(limits: &str) -> Self {
        let bridge = Bridge::configured(&format!(
            "{KEYS}[server]\nmax_json_bytes = 33554432\n[limits]\n{limits}\n"
        ));
        let limited = Command::new("prlimit")
            .arg(format!("--pid={}", bridge.process()))
            .arg(format!("--as={ADDRESS_SPACE}"))
            .status();
        assert!(limited.unwrap().success());
        let mut rig = Self { bridge, before: 0 };
        rig.serves_bob().await;
        rig.before = rig.bridge.memory();
        rig
    }

    /// Bob writes, and is answered.
    pub async fn serves_bob(&self) {
        let body = asking("bob", "say Served.").to_string();
        let answer = self
            .bridge
            .send("POST", "/api/chat", &[JSON, BOB], body)
            .await;
        assert_eq!(answer.status, 200);
        let chat = self.bridge.send("GET", "/api/chats/bob", &[BOB], "").await;
        let message = chat.json()["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        assert!(text_of(&message).contains("Served"), "{message}");
    }

    /// The process lives and serves, and has given back what it held.
    pub async fn recovers(&mut self) {
        assert!(self.bridge.is_alive(), "{}", self.bridge.log());
        self.serves_bob().await;
        let back = async {
            while self.bridge.memory() > self.before + LEFT {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(SOON, back).await.is_err() {
            let (now, before) = (self.bridge.memory() / MB, self.before / MB);
            panic!("{now} MB are used, {before} MB before");
        }
    }

    /// The most that was ever used beyond the beginning.
    pub fn peak(&self) -> usize {
        self.status("status", "VmHWM:") * 1024 - self.before
    }

    /// How much the process has read, of files and of connections.
    pub fn read(&self) -> usize {
        self.status("io", "rchar:")
    }

    fn status(&self, file: &str, name: &str) -> usize {
        let path = format!("/proc/{}/{file}", self.bridge.process());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    }

    pub async fn get(&self, path: &str) -> Response {
        self.bridge.send("GET", path, &[ALICE], "").await
    }

    pub async fn post(&self, body: &Value) -> Response {
        let body = body.to_string();
        self.bridge
            .send("POST", "/api/chat", &[JSON, ALICE], body)
            .await
    }

    /// Sends a request and does not look at the answer.
    pub async fn begin(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Connection {
        let mut connection = self.bridge.connect().await;
        assert!(connection.request(method, path, headers, b"").await);
        connection
    }

    /// Reads the head of an answer and no more.
    pub async fn head(connection: Connection) -> Answer {
        connection.answer("GET").await
    }

    /// Uploads a picture, and gives its address.
    pub async fn upload(&self, chat: &str, bytes: usize) -> String {
        let mut picture = b"\x89PNG\r\n\x1a\n".to_vec();
        picture.resize(bytes, 7);
        let path = format!("/api/files?chat={chat}");
        let headers = [("content-type", "image/png"), ALICE];
        let answer = self.bridge.send("POST", &path, &headers, picture).await;
        assert_eq!(answer.status, 201);
        answer.json()["url"].as_str().unwrap().to_owned()
    }

    /// How many files have been stored.
    pub fn files(&self) -> usize {
        fn count(directory: &std::path::Path) -> usize {
            let entries = std::fs::read_dir(directory).unwrap();
            let entries = entries.map(|entry| entry.unwrap());
            let count_one = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
                true => count(&entry.path()),
                false => usize::from(entry.file_name() != "database-id"),
            };
            entries.map(count_one).sum()
        }
        count(&self.bridge.directory.path().join("data/files"))
    }
}

pub fn message(id: &str, role: &str, parts: Vec<Value>) -> Value {
    json!({"id": id, "role": role, "parts": parts})
}

pub fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub fn picture(url: &str) -> Value {
    json!({"type": "file", "mediaType": "image/png", "url": url})
}
