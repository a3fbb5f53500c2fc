//! `WS /api/chat/ws`: the AI SDK's own WebSocket transport (v7), many requests of many chats over one socket.
//!
//! ```text
//!   send, resume ──▶ asked of its chat ──┬─ start, chunk 0, chunk 1, … end
//!   abort ─────────▶ the turn stops      ├─ no-active: nothing to resume
//!                                        └─ error
//! ```
//!
//! The client gives up the whole socket at a frame that it does not know, so that nothing else is ever sent.

use std::pin::Pin;
use std::task::Poll;

use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::wire::ai_sdk_ws::{self as frames, ClientFrame, Resume, Send};
use adk_bridge_protocol::wire::live::Close;
use adk_bridge_protocol::wire::sse;
use axum::extract::{Query, Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use super::handshake;
use super::socket::{Gone, Incoming, LAST_CHUNKS, Socket, text, told};
use crate::chat::live::{AnswerTo, Via};
use crate::chat::readers::Answer;
use crate::chat::request::{ChatRequest, MAX_ID_BYTES, check_id, dialect_of};
use crate::chat::{Chats, Command, lost};
use crate::error::AppError;
use crate::router::App;
use crate::sockets::Place;

/// How many requests of one socket may be under way; the client has one for each chat on its page.
const MAX_REQUESTS: usize = 32;
/// How many may wait for their chats, aborted ones included; with more of them nothing is read.
const MAX_ASKING: usize = 2 * MAX_REQUESTS;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Params {
    ticket: Option<String>,
}

pub async fn open(
    State(app): State<App>,
    Query(params): Query<Params>,
    request: Request,
) -> Result<Response, AppError> {
    let chats = app.chats.clone();
    let ticket = params.ticket.as_deref();
    handshake::open(app, request, ticket, move |socket, user, place| {
        serve(chats, user, socket, place)
    })
}

async fn serve(chats: Chats, user: String, mut socket: Socket, mut place: Place) {
    let id = Uuid::new_v4();
    tracing::info!(connection = %id, "connection {id} opens");
    let mut connection = Connection {
        chats,
        user,
        id,
        socket: &mut socket,
        asked: FuturesUnordered::new(),
        asking: Vec::new(),
        running: Vec::new(),
        turn: 0,
    };
    let why = match connection.converse(&mut place.closing).await {
        Ok(never) => match never {},
        Err(why) => why,
    };
    tracing::info!(connection = %id, "connection {id} ends: {why:?}");
    if let Gone::Close(why) = why {
        socket.close(why).await;
    }
}

struct Connection<'s> {
    chats: Chats,
    user: String,
    id: Uuid,
    socket: &'s mut Socket,
    /// Requests that their chats have not taken up.
    asked: FuturesUnordered<Pin<Box<dyn Future<Output = Asked> + std::marker::Send>>>,
    /// The same, without their answers.
    asking: Vec<Asking>,
    running: Vec<Running>,
    /// Whose turn it is to be read first, so that nobody waits for ever.
    turn: usize,
}

struct Asking {
    request_id: String,
    chat_id: String,
    aborted: bool,
}

struct Asked {
    request_id: String,
    chat_id: String,
    answer: Result<Option<Answer>, AppError>,
}

/// A request whose chunks are being sent.
struct Running {
    request_id: String,
    chat_id: String,
    answer: Answer,
    sequence: u64,
}

impl Connection<'_> {
    async fn converse(
        &mut self,
        closing: &mut watch::Receiver<bool>,
    ) -> Result<std::convert::Infallible, Gone> {
        loop {
            tokio::select! {
                incoming = self.socket.next(self.asking.len() < MAX_ASKING) => self.take(incoming?).await?,
                Some(asked) = self.asked.next(), if !self.asked.is_empty() => self.begin(asked).await?,
                (index, piece) = next_piece(&mut self.running, &mut self.turn) => {
                    self.write(index, piece).await?;
                }
                () = told(closing) => {
                    // Chats have ended theirs already.
                    let _ = tokio::time::timeout(LAST_CHUNKS, self.finish()).await;
                    return Err(Gone::Close(Close::GOING_AWAY));
                }
            }
        }
    }

    async fn take(&mut self, incoming: Incoming) -> Result<(), Gone> {
        let Incoming::Text(frame) = incoming else {
            return self.error("", "this door takes text frames only").await;
        };
        let frame = match ClientFrame::parse(&frame) {
            Ok(frame) => frame,
            Err(refused) => {
                // One that names no request reaches none.
                let id = refused.request_id.clone().unwrap_or_default();
                return self.error(&id, &refused.to_string()).await;
            }
        };
        let request_id = frame.request_id().to_owned();
        if request_id.len() > MAX_ID_BYTES {
            return self.error("", "the requestId is too long").await;
        }
        let waiting = self.asking.iter().filter(|asking| !asking.aborted);
        if !matches!(frame, ClientFrame::Abort { .. })
            && waiting.count() + self.running.len() >= MAX_REQUESTS
        {
            let message = format!("{MAX_REQUESTS} requests are under way; wait for one to end");
            return self.error(&request_id, &message).await;
        }
        match frame {
            ClientFrame::Send(send) => match request_of(send) {
                Ok(request) => self.post(request_id, request).await,
                Err(error) => self.error(&request_id, &error.message).await,
            },
            ClientFrame::Resume(resume) => match view_of(&resume) {
                Ok(dialect) => self.resume(request_id, resume, dialect).await,
                Err(error) => self.error(&request_id, &error.message).await,
            },
            ClientFrame::Abort { .. } => self.abort(&request_id).await,
        }
    }

    async fn post(&mut self, request_id: String, request: ChatRequest) -> Result<(), Gone> {
        let (sender, answer) = oneshot::channel();
        let chat_id = request.chat_id.clone();
        let command = Command::Post {
            request: Box::new(request),
            via: Via::socket(self.id),
            answer: AnswerTo::Request(sender),
        };
        self.tell(&chat_id, command).await?;
        self.await_answer(request_id, chat_id, async {
            answer
                .await
                .map_or_else(|_| Err(lost()), |answer| answer.map(Some))
        });
        Ok(())
    }

    async fn resume(
        &mut self,
        request_id: String,
        resume: Resume,
        dialect: Dialect,
    ) -> Result<(), Gone> {
        let chat_id = resume.id;
        // A chat without a task has nothing running: no need to load it for that answer.
        if !self.chats.is_in_use(&self.user, &chat_id) {
            return self.send(|out| frames::no_active(out, &request_id)).await;
        }
        let (sender, answer) = oneshot::channel();
        let command = Command::Resume {
            dialect,
            sdk: sdk_of(&resume.body),
            answer: sender,
        };
        self.tell(&chat_id, command).await?;
        self.await_answer(request_id, chat_id, async {
            answer.await.map_err(|_| lost())
        });
        Ok(())
    }

    /// The user pressed stop; in a tab that resumed the turn that is meant as well.
    async fn abort(&mut self, request_id: &str) -> Result<(), Gone> {
        let mut asking = self.asking.iter_mut();
        let chat_id = if let Some(asking) = asking.find(|asking| asking.request_id == request_id) {
            asking.aborted = true;
            asking.chat_id.clone()
        } else {
            let mut running = self.running.iter();
            let Some(index) = running.position(|running| running.request_id == request_id) else {
                return Ok(());
            };
            self.running.swap_remove(index).chat_id
        };
        let (answer, _) = oneshot::channel();
        self.tell(&chat_id, Command::Stop { answer }).await
    }

    /// Commands reach a chat in the order of their frames: a stop must not hit what is sent after it.
    async fn tell(&mut self, chat_id: &str, command: Command) -> Result<(), Gone> {
        self.chats
            .tell(&self.user, chat_id, command)
            .await
            .map_err(|_| Gone::Close(Close::GOING_AWAY))
    }

    fn await_answer(
        &mut self,
        request_id: String,
        chat_id: String,
        answer: impl Future<Output = Result<Option<Answer>, AppError>> + std::marker::Send + 'static,
    ) {
        self.asking.push(Asking {
            request_id: request_id.clone(),
            chat_id: chat_id.clone(),
            aborted: false,
        });
        self.asked.push(Box::pin(async move {
            Asked {
                request_id,
                chat_id,
                answer: answer.await,
            }
        }));
    }

    async fn begin(&mut self, asked: Asked) -> Result<(), Gone> {
        let mut asking = self.asking.iter();
        let index = asking.position(|asking| asking.request_id == asked.request_id);
        let aborted = index.is_some_and(|index| self.asking.swap_remove(index).aborted);
        match asked.answer {
            Ok(Some(_)) if aborted => Ok(()),
            Ok(Some(answer)) => {
                self.send(|out| frames::start(out, &asked.request_id))
                    .await?;
                self.running.push(Running {
                    request_id: asked.request_id,
                    chat_id: asked.chat_id,
                    answer,
                    sequence: 0,
                });
                Ok(())
            }
            Ok(None) => {
                self.send(|out| frames::no_active(out, &asked.request_id))
                    .await
            }
            Err(error) => self.error(&asked.request_id, &error.message).await,
        }
    }

    /// Writes one piece of a request, or its end.
    async fn write(&mut self, index: usize, piece: Option<Bytes>) -> Result<(), Gone> {
        let Some(piece) = piece else {
            let running = self.running.swap_remove(index);
            return self
                .error(
                    &running.request_id,
                    "this client fell behind; load the chat again",
                )
                .await;
        };
        let mut is_done = false;
        for event in piece.split_inclusive(|byte| *byte == b'\n') {
            // A comment, or the empty line after an event.
            let Some(json) = event.strip_prefix(b"data: ") else {
                continue;
            };
            let running = &mut self.running[index];
            let mut out = Vec::new();
            if sse::DONE.starts_with(event) {
                is_done = true;
                frames::end(&mut out, &running.request_id);
            } else {
                frames::chunk(
                    &mut out,
                    &running.request_id,
                    running.sequence,
                    json.trim_ascii_end(),
                );
                running.sequence += 1;
            }
            self.socket.feed(text(out)?).await?;
        }
        if is_done {
            self.running.swap_remove(index);
        }
        self.socket.flush().await
    }

    /// Brings what chats said last.
    async fn finish(&mut self) -> Result<(), Gone> {
        while !self.running.is_empty() {
            let (index, piece) = next_piece(&mut self.running, &mut self.turn).await;
            self.write(index, piece).await?;
        }
        Ok(())
    }

    async fn error(&mut self, request_id: &str, message: &str) -> Result<(), Gone> {
        self.send(|out| frames::error(out, request_id, message))
            .await
    }

    async fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Gone> {
        let mut out = Vec::new();
        write(&mut out);
        self.socket.send(text(out)?).await
    }
}

fn request_of(send: Send) -> Result<ChatRequest, AppError> {
    let mut fields = send.body;
    fields.insert("id".into(), json!(send.id));
    fields.insert("messages".into(), send.messages);
    // The trigger was read with the frame.
    fields.remove("trigger");
    let sdk = sdk_of(&fields);
    let mut request = ChatRequest::of(fields)?;
    request.sdk = sdk;
    Ok(request)
}

fn view_of(resume: &Resume) -> Result<Dialect, AppError> {
    check_id("id", &resume.id)?;
    dialect_of(resume.body.get("dialect").and_then(Value::as_str))
}

/// The transport exists since v7, so that this is what its clients understand unless they say otherwise.
fn sdk_of(body: &Map<String, Value>) -> Sdk {
    match body.get("sdk").and_then(Value::as_u64) {
        Some(6) => Sdk::V6,
        _ => Sdk::V7,
    }
}

/// The next piece of any request. May be dropped and called again.
async fn next_piece(running: &mut [Running], turn: &mut usize) -> (usize, Option<Bytes>) {
    std::future::poll_fn(|context| {
        let count = running.len();
        for step in 0..count {
            let index = (*turn + step) % count;
            if let Poll::Ready(piece) = running[index].answer.poll_recv(context) {
                *turn = index + 1;
                return Poll::Ready((index, piece));
            }
        }
        Poll::Pending
    })
    .await
}
