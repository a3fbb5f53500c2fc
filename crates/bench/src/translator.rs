//! The bare translator: the least code that turns a model's answer into a UI message stream, without the storage,
//! checks and guarantees of the bridge.
//!
//! The cost of the bridge is compared with it.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::stream;
use memchr::memchr;
use serde_json::{Value, json};
use tokio::net::TcpListener;

struct Upstream {
    client: reqwest::Client,
    url: String,
}

/// Serves until the process ends.
pub(crate) fn run(base_url: &str) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let upstream = Upstream {
            client: reqwest::Client::new(),
            url: format!("{base_url}/v1beta/models/bench:streamGenerateContent?alt=sse"),
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let mut out = std::io::stdout();
        writeln!(out, "listening on http://{}", listener.local_addr()?)?;
        out.flush()?;
        let router = Router::new()
            .route("/api/chat", post(chat))
            .with_state(Arc::new(upstream));
        axum::serve(listener, router)
            .await
            .context("the translator stopped")
    })
}

async fn chat(State(upstream): State<Arc<Upstream>>, body: Bytes) -> Response {
    match ask(&upstream, &body).await {
        Ok(response) => translated(response),
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    }
}

async fn ask(upstream: &Upstream, body: &[u8]) -> anyhow::Result<reqwest::Response> {
    let request: Value = serde_json::from_slice(body)?;
    let messages = request["messages"]
        .as_array()
        .context("messages are missing")?;
    let contents: Vec<Value> = messages
        .iter()
        .map(|message| {
            let role = if message["role"] == "user" {
                "user"
            } else {
                "model"
            };
            let parts = message["parts"].as_array().into_iter().flatten();
            let parts: Vec<Value> = parts.map(|part| json!({"text": part["text"]})).collect();
            json!({"role": role, "parts": parts})
        })
        .collect();
    let response = upstream
        .client
        .post(&upstream.url)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&json!({"contents": contents}))?)
        .send()
        .await?
        .error_for_status()?;
    Ok(response)
}

struct Translation {
    response: reqwest::Response,
    line: Vec<u8>,
    begun: bool,
    done: bool,
}

fn translated(response: reqwest::Response) -> Response {
    let translation = Translation {
        response,
        line: Vec::new(),
        begun: false,
        done: false,
    };
    let pieces = stream::unfold(translation, |mut translation| async move {
        let piece = translation.next().await?;
        Some((Ok::<_, Infallible>(piece), translation))
    });
    (
        [
            ("content-type", "text/event-stream"),
            ("x-vercel-ai-ui-message-stream", "v1"),
        ],
        Body::from_stream(pieces),
    )
        .into_response()
}

impl Translation {
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = String::new();
        while out.is_empty() {
            if self.done {
                return None;
            }
            if !std::mem::replace(&mut self.begun, true) {
                write(&mut out, &json!({"type": "start"}));
                write(&mut out, &json!({"type": "start-step"}));
                write(&mut out, &json!({"type": "text-start", "id": "0"}));
            }
            // The load counts broken answers.
            match self.response.chunk().await.ok().flatten() {
                Some(piece) => self.piece(&piece, &mut out),
                None => {
                    self.done = true;
                    write(&mut out, &json!({"type": "text-end", "id": "0"}));
                    write(&mut out, &json!({"type": "finish-step"}));
                    write(&mut out, &json!({"type": "finish"}));
                    out.push_str("data: [DONE]\n\n");
                }
            }
        }
        Some(Bytes::from(out))
    }

    fn piece(&mut self, mut piece: &[u8], out: &mut String) {
        while let Some(end) = memchr(b'\n', piece) {
            self.line.extend_from_slice(&piece[..end]);
            if let Some(data) = self.line.strip_prefix(b"data: ")
                && let Ok(event) = serde_json::from_slice::<Value>(data)
                && let Some(text) = event["candidates"][0]["content"]["parts"][0]["text"].as_str()
                && !text.is_empty()
            {
                write(
                    out,
                    &json!({"type": "text-delta", "id": "0", "delta": text}),
                );
            }
            self.line.clear();
            piece = &piece[end + 1..];
        }
        self.line.extend_from_slice(piece);
    }
}

fn write(out: &mut String, chunk: &Value) {
    out.push_str("data: ");
    out.push_str(&chunk.to_string());
    out.push_str("\n\n");
}
