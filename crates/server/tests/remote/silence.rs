//! Agents that do not come to an end: comments are silence, and so is an answer that never begins.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{Bridge, folded, text_of};

/// What an ADK server says to a request for a session.
const SESSION: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\nconnection: close\r\n\r\n{\"id\":\"s\"}";
const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// A server that sends this first, and then this again and again, until its client leaves. Counts its requests.
async fn endless(first: &'static str, again: String) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (again, count) = (again.clone(), count.clone());
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let read = stream.read(&mut request).await.unwrap_or_default();
                let head = String::from_utf8_lossy(&request[..read]).into_owned();
                let runs = ["run_sse", "streamGenerateContent", "/chat/completions"];
                if !runs.iter().any(|path| head.contains(path)) {
                    let _ = stream.write_all(SESSION.as_bytes()).await;
                    return;
                }
                count.fetch_add(1, Ordering::Relaxed);
                let mut said = first;
                while stream.write_all(said.as_bytes()).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    said = &again;
                }
            });
        }
    });
    (address, asked)
}

async fn error_of(bridge: &Bridge) -> String {
    let events = bridge.ask("silent", "say hi").await.events().await;
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    let errors: Vec<String> = events
        .iter()
        .filter_map(|event| serde_json::from_str::<Value>(event).ok())
        .filter_map(|chunk| chunk["errorText"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(errors.len(), 1, "{events:?}");
    errors[0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_endlessness_has_an_end() {
    let text = json!({"role": "model", "parts": [{"text": "on and on "}]});
    let choice = json!({"delta": {"content": "on and on "}});
    let speaks = json!({"candidates": [{"content": text}], "choices": [choice], "content": text});
    let speaks = format!("data: {speaks}\n\n");
    let silent = "agent_silence = \"1s\"";
    let long = "turn_time = \"2s\"";
    let cases = [
        (
            "comments",
            HEAD,
            ": ping\n\n".to_owned(),
            silent,
            "sent nothing for 1 seconds",
        ),
        (
            "no head",
            "",
            String::new(),
            silent,
            "sent nothing for 1 seconds",
        ),
        (
            "half a head",
            "HTTP/1.1 200 OK\r\n",
            String::new(),
            silent,
            "sent nothing for 1 seconds",
        ),
        (
            "words without end",
            HEAD,
            speaks,
            long,
            "took longer than 2 seconds",
        ),
        (
            "comments without end",
            HEAD,
            ": ping\n\n".to_owned(),
            long,
            "took longer than 2 seconds",
        ),
        (
            "no head at all",
            "",
            String::new(),
            long,
            "took longer than 2 seconds",
        ),
    ];
    for (name, first, again, limit, words) in cases {
        let (address, asked) = endless(first, again).await;
        for kind in [
            "kind = \"gemini\"",
            "kind = \"openai\"\nmodel = \"m\"",
            "kind = \"adk\"\napp = \"app\"",
        ] {
            asked.store(0, Ordering::Relaxed);
            let toml =
                format!("[agent]\n{kind}\nbase_url = \"http://{address}\"\n[limits]\n{limit}\n");
            let bridge = Bridge::with(&toml, |command| {
                command.env("GEMINI_API_KEY", "a-key-of-google");
            });
            let error = error_of(&bridge).await;
            assert!(error.contains(words), "{name}, {kind}: {error}");
            let times = asked.load(Ordering::Relaxed);
            assert_eq!(times, 1, "{name}, {kind}: it was asked once");
        }
    }
}

/// The end of an answer is its end, whatever the connection does then. Without `[DONE]` only the usage is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_stays_open_keeps_nobody_waiting() {
    const ENDED: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"fine\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    const OPEN: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"fine\"},\"finish_reason\":\"stop\"}]}\n\n";
    for first in [ENDED, OPEN] {
        let (address, _) = endless(first, ": ping\n\n".to_owned()).await;
        let toml =
            format!("[agent]\nkind = \"openai\"\nmodel = \"m\"\nbase_url = \"http://{address}\"\n");
        let bridge = Bridge::configured(&toml);
        let events = bridge.ask("c", "hello").await.events().await;
        assert_eq!(text_of(&folded(&events)), "fine", "{events:?}");
    }
}
