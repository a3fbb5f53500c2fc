//! The scripted Gemini over a real socket: what it answers, how it fails, and what it refuses.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod answers;
mod demo;
mod live;
mod refusals;
mod wire;

use std::time::Duration;

use adk_bridge_demo::scripted_gemini::{Options, serve};
use serde_json::{Value, json};

/// A scripted Gemini that listens until it is dropped.
struct Server {
    url: String,
    http: reqwest::Client,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

const MODEL: &str = "gemini-2.5-pro";
const STRICT_MODEL: &str = "gemini-3.8-flash";

impl Server {
    async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// Starts one without any waiting.
    async fn with(options: Options) -> Self {
        Self::paced(Options {
            pace: Duration::ZERO,
            slow_pace: Duration::ZERO,
            ..options
        })
        .await
    }

    async fn paced(options: Options) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(serve(listener, options, std::future::pending()));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { url, http, task }
    }

    async fn post(&self, target: &str, body: &Value) -> reqwest::Response {
        self.http
            .post(format!("{}/v1beta/models/{target}", self.url))
            .header("x-goog-api-key", "key")
            .json(body)
            .send()
            .await
            .unwrap()
    }

    /// The chunks of a stream that ends well.
    async fn stream(&self, model: &str, body: &Value) -> Vec<Value> {
        let response = self
            .post(&format!("{model}:streamGenerateContent?alt=sse"), body)
            .await;
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, 200, "{text}");
        events(&text)
    }

    /// The code and the body of an error.
    async fn refusal(&self, model: &str, body: &Value) -> (u16, Value) {
        let response = self.post(&format!("{model}:generateContent"), body).await;
        (response.status().as_u16(), response.json().await.unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn events(text: &str) -> Vec<Value> {
    let events = text.split("\r\n\r\n").filter(|event| !event.is_empty());
    events
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "parts": [{"text": text}]})
}

/// A request with these contents that declares these tools, each with one argument of its own name.
fn ask(contents: Value, tools: &[&str]) -> Value {
    let declarations: Vec<_> = tools
        .iter()
        .map(|name| json!({"name": name, "parametersJsonSchema": {"type": "object", "properties": {}}}))
        .collect();
    match declarations.is_empty() {
        true => json!({"contents": contents}),
        false => json!({"contents": contents, "tools": [{"functionDeclarations": declarations}]}),
    }
}

fn prompt(text: &str, tools: &[&str]) -> Value {
    ask(json!([user(text)]), tools)
}

fn parts(chunks: &[Value]) -> Vec<Value> {
    let parts = chunks
        .iter()
        .filter_map(|chunk| chunk["candidates"][0]["content"]["parts"].as_array());
    parts.flatten().cloned().collect()
}

fn text(chunks: &[Value]) -> String {
    let parts = parts(chunks);
    parts
        .iter()
        .filter(|part| part["thought"] != true)
        .filter_map(|part| part["text"].as_str())
        .collect()
}

/// An answer in one line: `"text" name{args} … REASON`, neighbouring texts joined.
fn outline(chunks: &[Value]) -> String {
    let mut items: Vec<(String, String)> = Vec::new();
    for part in parts(chunks) {
        let (kind, item) = match (&part["text"], &part["functionCall"]) {
            (Value::String(text), _) if part["thought"] == true => ("thought", text.clone()),
            (Value::String(text), _) => ("text", text.clone()),
            (_, Value::Object(call)) => (
                "",
                format!("{}{}", call["name"].as_str().unwrap(), call["args"]),
            ),
            _ => ("", part.as_object().unwrap().keys().next().unwrap().clone()),
        };
        match items.last_mut() {
            Some((last, joined)) if last == kind && !kind.is_empty() => joined.push_str(&item),
            _ => items.push((kind.into(), item)),
        }
    }
    let mut line: Vec<_> = items
        .into_iter()
        .map(|(kind, item)| match kind.as_str() {
            "text" => format!("{item:?}"),
            "thought" => "thoughts".into(),
            _ => item,
        })
        .collect();
    let reasons = chunks
        .iter()
        .filter_map(|chunk| chunk["candidates"][0]["finishReason"].as_str());
    line.extend(reasons.map(str::to_owned));
    line.join(" ")
}
