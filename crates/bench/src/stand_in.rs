//! A stand-in for Gemini: it answers every request with the same words, as many and as fast as the scenario demands.
//!
//! Every event is a separate HTTP chunk, as from a server that flushes after each event.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::words::{self, CYCLE};

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const TAIL: &[u8] = b"0\r\n\r\n";

/// When a delta is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As soon as the socket accepts it.
    Flood,
    /// This long after the one before.
    Every(Duration),
    /// The same, but the first one at once: what a reader waits for is the server alone.
    AtOnceThen(Duration),
    /// The first ones at once, and each of the others when the reader has the one before: every delta is a wake-up of its
    /// own, however slow the server is.
    InStep { at_once: usize },
}

/// What an answer consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) deltas: usize,
    pub(crate) pace: Pace,
}

/// What the stand-in sends next. The load sets it before each scenario.
#[derive(Debug)]
pub(crate) struct Script {
    answer: Mutex<Answer>,
    /// How many deltas of its answer the only reader has, for [`Pace::InStep`].
    read: watch::Sender<usize>,
    streams: Mutex<HashMap<String, Stream>>,
}

/// An answer of its own, for requests that contain its mark; when each of its deltas was sent is noted.
#[derive(Debug, Clone)]
struct Stream {
    answer: Answer,
    sent: Sent,
}

/// When deltas were sent that have not been taken out yet, in order.
pub(crate) type Sent = Arc<Mutex<VecDeque<Instant>>>;

/// A question that contains this is answered with a call of a tool that asks first.
pub(crate) const PAY: &str = "[pay]";
/// The tool of the demo that is called.
pub(crate) const PAYMENT: &str = "process_payment";

/// What stands before and after the name of a stream in the question that asks for it.
const MARK: (&str, &str) = ("[stream ", "]");

impl Script {
    pub(crate) fn new() -> Self {
        Self {
            answer: Mutex::new(Answer {
                deltas: 0,
                pace: Pace::Flood,
            }),
            read: watch::Sender::new(0),
            streams: Mutex::default(),
        }
    }

    /// Adds an answer, and returns the question that gets it.
    pub(crate) fn add_stream(&self, name: &str, answer: Answer) -> (String, Sent) {
        let sent = Sent::default();
        let stream = Stream {
            answer,
            sent: sent.clone(),
        };
        lock(&self.streams).insert(name.to_owned(), stream);
        (format!("Go on. {}{name}{}", MARK.0, MARK.1), sent)
    }

    pub(crate) fn set(&self, answer: Answer) {
        *lock(&self.answer) = answer;
    }

    /// Notes how much of its answer the reader has.
    pub(crate) fn note_read(&self, deltas: usize) {
        self.read.send_replace(deltas);
    }

    /// The answer to a request, and where to note when its deltas are sent.
    fn answer(&self, request: &[u8]) -> (Answer, Option<Sent>) {
        let name = memchr::memmem::rfind(request, MARK.0.as_bytes()).and_then(|at| {
            let rest = &request[at + MARK.0.len()..];
            let end = memchr::memmem::find(rest, MARK.1.as_bytes())?;
            std::str::from_utf8(&rest[..end]).ok()
        });
        match name.and_then(|name| lock(&self.streams).get(name).cloned()) {
            Some(Stream { answer, sent }) => (answer, Some(sent)),
            None => (*lock(&self.answer), None),
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    while let Some(request) = take_request(&mut stream, &mut buffer).await? {
        if memchr::memmem::find(&request, PAY.as_bytes()).is_some() {
            stream.write_all(&body.call).await?;
            continue;
        }
        let (Answer { deltas, pace }, sent) = script.answer(&request);
        match pace {
            Pace::Flood => {
                stream.write_all(HEAD).await?;
                for _ in 0..deltas / CYCLE {
                    stream.write_all(&body.cycle).await?;
                }
                stream.write_all(body.first(deltas % CYCLE)).await?;
            }
            Pace::Every(pause) | Pace::AtOnceThen(pause) => {
                stream.write_all(HEAD).await?;
                let first = match pace {
                    Pace::Every(pause) => Instant::now() + pause,
                    _ => Instant::now(),
                };
                let mut ticks = interval_at(first, pause);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                for index in 0..deltas {
                    ticks.tick().await;
                    if let Some(sent) = &sent {
                        lock(sent).push_back(Instant::now());
                    }
                    stream.write_all(body.delta(index)).await?;
                }
            }
            Pace::InStep { at_once } => {
                // One write, so that the server gets it in one piece.
                let mut beginning = HEAD.to_vec();
                for index in 0..at_once {
                    beginning.extend_from_slice(body.delta(index));
                }
                stream.write_all(&beginning).await?;
                let mut read = script.read.subscribe();
                for index in at_once..deltas {
                    // The script outlives its subscribers.
                    let _ = read.wait_for(|read| *read == index).await;
                    stream.write_all(body.delta(index)).await?;
                }
                let _ = read.wait_for(|read| *read == deltas).await;
            }
        }
        stream.write_all(&body.last).await?;
    }
    Ok(())
}

/// Reads one request; `None` if the other side has disconnected.
async fn take_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(head) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            let length = content_length(&buffer[..head]);
            let end = head + 4 + length;
            if buffer.len() >= end {
                return Ok(Some(buffer.drain(..end).collect()));
            }
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
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
    /// The event that ends an answer, and the end of the body.
    last: Vec<u8>,
    /// A whole answer that calls a tool.
    call: Vec<u8>,
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
        last.extend_from_slice(TAIL);
        let payment = json!({"functionCall": {
            "name": PAYMENT,
            "args": {"amount": 20, "recipient": "the owner of the bridge"},
        }});
        let mut call = HEAD.to_vec();
        frame(&event_of(payment, Some("STOP")), &mut call);
        call.extend_from_slice(TAIL);
        Self {
            cycle,
            ends,
            last,
            call,
        }
    }

    fn delta(&self, index: usize) -> &[u8] {
        let index = index % CYCLE;
        &self.cycle[self.ends[index]..self.ends[index + 1]]
    }

    /// The first deltas of a cycle.
    fn first(&self, deltas: usize) -> &[u8] {
        &self.cycle[..self.ends[deltas]]
    }
}

/// One event with text in Google's form.
fn event(text: &str, finish: Option<&str>) -> String {
    event_of(json!({"text": text}), finish)
}

fn event_of(part: Value, finish: Option<&str>) -> String {
    let mut candidate = json!({
        "content": {"parts": [part], "role": "model"},
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
