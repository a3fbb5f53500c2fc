//! A stand-in for Gemini: it answers every request with the same words, as many and as fast as the scenario demands.
//!
//! Every event is a separate HTTP chunk, as from a server that flushes after each event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::words::{self, CYCLE};

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const TAIL: &[u8] = b"0\r\n\r\n";

/// What the stand-in sends next. The load sets it before each scenario.
#[derive(Debug, Default)]
pub(crate) struct Script {
    deltas: AtomicUsize,
    /// The time between two deltas; 0 means as fast as the socket accepts them.
    pause_micros: AtomicU64,
}

impl Script {
    pub(crate) fn set(&self, deltas: usize, pause: Duration) {
        self.deltas.store(deltas, Ordering::Relaxed);
        let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        self.pause_micros.store(micros, Ordering::Relaxed);
    }
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, script: Arc<Script>) {
    let body = Arc::new(Body::new());
    while let Ok((stream, _)) = listener.accept().await {
        let (script, body) = (script.clone(), body.clone());
        // The load notices a server under test that disconnects, so it is ignored here.
        tokio::spawn(async move { drop(converse(stream, &script, &body).await) });
    }
}

async fn converse(mut stream: TcpStream, script: &Script, body: &Body) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while take_request(&mut stream, &mut buffer).await? {
        let deltas = script.deltas.load(Ordering::Relaxed);
        let pause = Duration::from_micros(script.pause_micros.load(Ordering::Relaxed));
        stream.write_all(HEAD).await?;
        if pause.is_zero() {
            for _ in 0..deltas / CYCLE {
                stream.write_all(&body.cycle).await?;
            }
            stream
                .write_all(&body.cycle[..body.ends[deltas % CYCLE]])
                .await?;
        } else {
            let mut ticks = interval_at(Instant::now() + pause, pause);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for index in 0..deltas {
                ticks.tick().await;
                let index = index % CYCLE;
                let event = &body.cycle[body.ends[index]..body.ends[index + 1]];
                stream.write_all(event).await?;
            }
        }
        stream.write_all(&body.last).await?;
        stream.write_all(TAIL).await?;
    }
    Ok(())
}

/// Reads one request and drops it; returns false if the other side has disconnected.
async fn take_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<bool> {
    loop {
        if let Some(head) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            let length = content_length(&buffer[..head]);
            let end = head + 4 + length;
            if buffer.len() >= end {
                buffer.drain(..end);
                return Ok(true);
            }
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(false);
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    String::from_utf8_lossy(head)
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

/// All bytes that are ever sent, ready for the socket.
struct Body {
    cycle: Vec<u8>,
    /// The end of each delta of the cycle; the first entry is the beginning of the first delta.
    ends: Vec<usize>,
    last: Vec<u8>,
}

impl Body {
    fn new() -> Self {
        let mut cycle = Vec::new();
        let mut ends = vec![0];
        for index in 0..CYCLE {
            frame(&event(&words::delta(index), None), &mut cycle);
            ends.push(cycle.len());
        }
        let mut last = Vec::new();
        frame(&event("", Some("STOP")), &mut last);
        Self { cycle, ends, last }
    }
}

/// One event in Google's form.
fn event(text: &str, finish: Option<&str>) -> String {
    let mut candidate = json!({
        "content": {"parts": [{"text": text}], "role": "model"},
        "index": 0,
    });
    if let Some(reason) = finish {
        candidate["finishReason"] = json!(reason);
    }
    let event = json!({
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": 1210,
            "candidatesTokenCount": 318,
            "totalTokenCount": 1528,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1210}],
        },
        "modelVersion": "gemini-3.8-flash",
        "responseId": "pMpYaLv3G5mU1PIP1vKZ-A8",
    });
    format!("data: {event}\r\n\r\n")
}

fn frame(event: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
}
