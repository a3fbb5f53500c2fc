//! What stands between a bridge and its live model: a relay that ends connections when and how a test wants.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::client::{CLOSE, FIN, TEXT};
use crate::support::process::{Process, binary};

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// A warning that leaves plenty of time.
    Warned,
    /// A warning that leaves a second, and then the end.
    Limit,
    /// Without a word.
    Dropped,
    Closed(u16),
}

/// A scripted Gemini in a process of its own.
pub struct Model {
    process: Process,
}

pub struct Relay {
    pub url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    order: Mutex<Option<(String, How)>>,
    ordered: Notify,
    /// What the bridge has written on each connection.
    written: Mutex<Vec<String>>,
}

impl Model {
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command
            .args(["fake-gemini", "--pace", "0ms"])
            .args(arguments);
        let process = Process::start(&mut command).unwrap();
        Self { process }
    }

    pub fn url(&self) -> &str {
        self.process.url()
    }
}

impl Relay {
    pub async fn to(model: &Model) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::<Shared>::default();
        let (model, state) = (
            model.url().trim_start_matches("http://").to_owned(),
            shared.clone(),
        );
        tokio::spawn(async move {
            while let Ok((bridge, _)) = listener.accept().await {
                let model = TcpStream::connect(&model).await.unwrap();
                tokio::spawn(relay(bridge, model, state.clone()));
            }
        });
        Self { url, shared }
    }

    /// Ends the connection as soon as the bridge has written this.
    pub fn end_at(&self, written: &str, how: How) {
        *self.shared.order.lock().unwrap() = Some((written.to_owned(), how));
    }

    /// Ends the connection now.
    pub fn end(&self, how: How) {
        self.end_at("", how);
        self.shared.ordered.notify_one();
    }

    /// Whether the last order has been carried out.
    pub fn is_done(&self) -> bool {
        self.shared.order.lock().unwrap().is_none()
    }

    /// What the bridge has written on each connection so far, without its audio.
    pub fn written(&self) -> Vec<String> {
        self.shared.written.lock().unwrap().clone()
    }
}

impl Shared {
    fn order(&self, written: &str) -> Option<How> {
        let mut order = self.order.lock().unwrap();
        let (_, how) = order.take_if(|(at, _)| written.contains(at.as_str()))?;
        Some(how)
    }
}

async fn relay(bridge: TcpStream, model: TcpStream, shared: Arc<Shared>) {
    let (mut from_bridge, mut to_bridge) = bridge.into_split();
    let (mut from_model, mut to_model) = model.into_split();
    pass_head(&mut from_bridge, &mut to_model).await;
    pass_head(&mut from_model, &mut to_bridge).await;
    let number = {
        let mut written = shared.written.lock().unwrap();
        written.push(String::new());
        written.len() - 1
    };
    let (mut asked, mut said) = (Vec::new(), Vec::new());
    let mut end_at = None;
    loop {
        let mut how = None;
        tokio::select! {
            read = from_bridge.read_buf(&mut asked) => {
                if !matches!(read, Ok(1..)) {
                    return;
                }
                while let Some(frame) = whole_frame(&asked) {
                    let frame: Vec<u8> = asked.drain(..frame).collect();
                    let text = unmasked(&frame);
                    if !text.contains("\"audio\":") {
                        shared.written.lock().unwrap()[number] += &text;
                    }
                    if how.is_none() && !text.is_empty() {
                        how = shared.order(&text);
                    }
                    if to_model.write_all(&frame).await.is_err() {
                        return;
                    }
                }
            }
            read = from_model.read_buf(&mut said) => {
                if !matches!(read, Ok(1..)) {
                    return;
                }
                while let Some(frame) = whole_frame(&said) {
                    let frame: Vec<u8> = said.drain(..frame).collect();
                    if to_bridge.write_all(&frame).await.is_err() {
                        return;
                    }
                }
            }
            () = shared.ordered.notified() => how = shared.order(""),
            () = async { sleep_until(end_at.unwrap()).await }, if end_at.is_some() => {
                return close(1011, from_bridge, to_bridge).await;
            }
        }
        match how {
            None => {}
            Some(How::Dropped) => return,
            Some(How::Closed(code)) => return close(code, from_bridge, to_bridge).await,
            Some(warned) => {
                let left = if warned == How::Warned { "60s" } else { "1s" };
                let warning = format!("{{\"goAway\":{{\"timeLeft\":\"{left}\"}}}}");
                let mut frame = vec![FIN | TEXT, warning.len() as u8];
                frame.extend(warning.as_bytes());
                let _ = to_bridge.write_all(&frame).await;
                if warned == How::Limit {
                    end_at = Some(Instant::now() + Duration::from_secs(1));
                }
            }
        }
    }
}

async fn pass_head(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = from.read_u8().await else {
            return;
        };
        head.push(byte);
    }
    let _ = to.write_all(&head).await;
}

async fn close(code: u16, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut frame = vec![FIN | CLOSE, 2];
    frame.extend(code.to_be_bytes());
    let _ = to.write_all(&frame).await;
    // What the bridge still writes must not turn the close into a reset.
    let mut rest = Vec::new();
    let _ = timeout(Duration::from_secs(2), from.read_to_end(&mut rest)).await;
}

/// How long the first frame is, if all of it is there.
fn whole_frame(bytes: &[u8]) -> Option<usize> {
    let (head, payload) = lengths(bytes)?;
    (bytes.len() >= head + payload).then_some(head + payload)
}

/// The length of the header, mask included, and of the payload.
fn lengths(bytes: &[u8]) -> Option<(usize, usize)> {
    let mask = if bytes.get(1)? & 0x80 == 0 { 0 } else { 4 };
    let (head, payload) = match bytes[1] & 0x7f {
        126 => (4, bytes.get(2..4)?),
        127 => (10, bytes.get(2..10)?),
        _ => (2, &bytes[1..2]),
    };
    let length = payload
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let length = if head == 2 { length & 0x7f } else { length };
    Some((head + mask, length))
}

/// What a text or binary frame of the bridge says.
fn unmasked(frame: &[u8]) -> String {
    let Some((head, length)) = lengths(frame).filter(|_| frame[0] & 0x0f <= 2) else {
        return String::new();
    };
    let mask = frame[head - 4..head].iter().cycle();
    let payload = frame[head..head + length].iter().zip(mask);
    let payload: Vec<u8> = payload.map(|(byte, mask)| byte ^ mask).collect();
    String::from_utf8_lossy(&payload).into_owned()
}
