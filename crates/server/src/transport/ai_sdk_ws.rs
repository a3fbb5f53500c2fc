//! `WS /api/chat/ws`, and `/api/chat`: the AI SDK's own WebSocket transport (v7), many requests of many chats over one socket.
//!
//! ```text
//!   send, resume ──▶ asked of its chat ──┬─ start, chunk 0, chunk 1, … end
//!   abort ─────────▶ the turn stops      ├─ no-active: nothing to resume
//!                                        └─ error
//! ```
//!
//! The client gives up the whole socket at an unknown frame, so no other frames are ever sent. Requests for chats of other
//! replicas take the way of `elsewhere`.

mod elsewhere;

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::Extra;
use adk_bridge_protocol::sdk::Sdk;
use adk_bridge_protocol::wire::ai_sdk_ws::{self as frames, ClientFrame, Resume, Send};
use adk_bridge_protocol::wire::live::Close;
use adk_bridge_protocol::wire::sse;
use axum::extract::{Path, Query, Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use super::chat::AgentPath;
use super::error::AppError;
use super::handshake::{Upgrades, Wanted};
use super::socket::{Incoming, LAST_CHUNKS, Socket, SocketEnd, shutdown, text};
use crate::auth::Identity;
use crate::budget::TallyEntry;
use crate::chat::live::{AnswerTo, RequestOrigin};
use crate::chat::request::{
    ChatRequest, HandedInFields, MAX_ID_BYTES, RequestFields, check_id, dialect_of, sdk_of,
};
use crate::chat::{ChatError, Chats, Command};
use crate::connections::WrittenMessages;
use crate::files::address::Base;
use crate::forwarding::Forwarding;
use crate::parsing;
use crate::sockets::Place;
use crate::telemetry::{RequestTrace, in_trace};
use elsewhere::{Answered, Lanes, Pieces};

/// How many requests of one socket may be in progress; the client has one for each chat on its page.
const MAX_REQUESTS: usize = 32;
/// How many may wait for their chats, aborted ones included; with more of them nothing is read.
const MAX_ASKING: usize = 2 * MAX_REQUESTS;

/// How long a socket that is about to close waits for chats, of other replicas too, to take what they were asked.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Params {
    ticket: Option<String>,
}

pub async fn open(
    State(chats): State<Chats>,
    State(upgrades): State<Upgrades>,
    State(forwarding): State<Option<Arc<Forwarding>>>,
    agent: Option<Path<AgentPath>>,
    Query(params): Query<Params>,
    base: Base,
    request: Request,
) -> Result<Response, AppError> {
    let agent = agent.and_then(|Path(path)| path.agent);
    let wanted = Wanted {
        ticket: params.ticket.as_deref(),
        // Its frames name chats, each with an owner of its own.
        chat: None,
        base: &base.clone(),
    };
    let trace = RequestTrace::of(&request);
    let serve = move |socket, identity: Identity, place| {
        let user = identity.user.clone();
        let from = (base.clone(), trace.context.clone());
        let lanes = forwarding.map(|it| Lanes::new(it, identity, from, agent.as_deref()));
        let context = trace.context.clone();
        let opened = Opened { base, agent, trace };
        in_trace(context, serve(chats, user, opened, (socket, lanes), place))
    };
    upgrades.open(request, wanted, serve).await
}

async fn serve(
    chats: Chats,
    user: UserId,
    opened: Opened,
    (mut socket, lanes): (Box<Socket>, Option<Lanes>),
    mut place: Place,
) {
    let id = Uuid::new_v4();
    tracing::info!(connection = %id, "connection {id} opens");
    let mut connection = Connection {
        chats,
        user,
        opened,
        id,
        socket: &mut socket,
        lanes,
        asked: FuturesUnordered::new(),
        asking: Vec::new(),
        running: Vec::new(),
        next: 0,
        written: WrittenMessages::default(),
    };
    let why = match connection.converse(&mut place.closing).await {
        Ok(never) => match never {},
        Err(why) => why,
    };
    if let SocketEnd::Refused(refusal, _) = &why {
        // The refused frame was not read, so its request is unknown.
        let telling = connection.error("", &refusal.message);
        let _ = tokio::time::timeout(LAST_CHUNKS, telling).await;
    }
    tracing::info!(connection = %id, "connection {id} ends: {why:?}");
    if let SocketEnd::Close(why) | SocketEnd::Refused(_, why) = why {
        socket.close(why).await;
    }
}

/// What a handshake says of all requests of its connection.
struct Opened {
    /// What the URLs of files begin with for its page.
    base: Base,
    /// The agent of the address that it was opened with.
    agent: Option<String>,
    trace: RequestTrace,
}

struct Connection<'s> {
    chats: Chats,
    user: UserId,
    opened: Opened,
    id: Uuid,
    socket: &'s mut Socket,
    /// Present in a cluster.
    lanes: Option<Lanes>,
    /// Requests that their chats have not accepted yet.
    asked: FuturesUnordered<Pin<Box<dyn Future<Output = AnsweredRequest> + std::marker::Send>>>,
    /// The same, without their answers.
    asking: Vec<PendingRequest>,
    running: Vec<RunningRequest>,
    /// The request that is polled first for its next piece, so that none is starved.
    next: usize,
    written: WrittenMessages,
}

struct PendingRequest {
    request_id: String,
    chat_id: ChatId,
    aborted: bool,
    /// The bytes that it takes until its chat accepts it.
    _waiting: TallyEntry,
}

struct AnsweredRequest {
    request_id: String,
    chat_id: ChatId,
    answer: Answered,
}

/// A request whose chunks are being sent.
struct RunningRequest {
    request_id: String,
    chat_id: ChatId,
    answer: Pieces,
    sequence: u64,
}

impl Connection<'_> {
    async fn converse(
        &mut self,
        closing: &mut watch::Receiver<bool>,
    ) -> Result<std::convert::Infallible, SocketEnd> {
        loop {
            tokio::select! {
                incoming = self.socket.next(self.asking.len() < MAX_ASKING) => self.take(incoming?).await?,
                Some(asked) = self.asked.next(), if !self.asked.is_empty() => self.begin(asked).await?,
                (index, piece) = next_piece(&mut self.running, &mut self.next) => {
                    self.write(index, piece).await?;
                }
                () = shutdown(closing) => {
                    let _ = tokio::time::timeout(LAST_ANSWERS, self.finish_asking()).await;
                    // The chats have ended their turns already.
                    let _ = tokio::time::timeout(LAST_CHUNKS, self.finish()).await;
                    return Err(SocketEnd::Close(Close::GOING_AWAY));
                }
            }
        }
    }

    async fn take(&mut self, incoming: Incoming) -> Result<(), SocketEnd> {
        let Incoming::Text(frame) = incoming else {
            return self
                .error("", "this endpoint accepts text frames only")
                .await;
        };
        let bytes = frame.len();
        let cost = parsing::cost(std::iter::once(frame.as_bytes()));
        let frame = match parsing::read(cost, move || ClientFrame::parse(&frame)).await {
            Ok(frame) => frame,
            Err(error) => return self.error("", &error.to_string()).await,
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(refused) => {
                // A frame without a request id concerns no request.
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
            let message = format!("{MAX_REQUESTS} requests are in progress; wait for one to end");
            return self.error(&request_id, &message).await;
        }
        let waiting = match self.socket.waiting().hold(bytes) {
            Ok(waiting) => waiting,
            Err(refusal) => return self.error(&request_id, &refusal.to_string()).await,
        };
        match frame {
            ClientFrame::Send(send) => match request_of(&send, self.opened.agent.as_deref()) {
                Ok(request) => self.post(send, request, waiting).await,
                Err(error) => self.error(&request_id, &error.message).await,
            },
            ClientFrame::Resume(resume) => match view_of(&resume) {
                Ok(view) => self.resume(request_id, resume, view, waiting).await,
                Err(error) => self.error(&request_id, &error.message).await,
            },
            ClientFrame::Abort { .. } => self.abort(&request_id).await,
        }
    }

    async fn post(
        &mut self,
        send: Send,
        mut request: ChatRequest,
        waiting: TallyEntry,
    ) -> Result<(), SocketEnd> {
        request.from.base.clone_from(&self.opened.base);
        request.from.trace.clone_from(&self.opened.trace);
        request.seen.had = self.written.so_far();
        let (sender, answer) = oneshot::channel();
        let (chat_id, sdk) = (request.chat_id.clone(), request.sdk);
        let command = Command::Post {
            request: Box::new(request),
            origin: RequestOrigin::socket(self.id),
            answer: AnswerTo::Request(sender),
        };
        match self.command(&chat_id, command).await {
            Ok(()) => self.await_answer(send.request_id, chat_id, waiting, async {
                let answer = answer.await.unwrap_or(Err(ChatError::TaskEnded));
                Ok(Some(Pieces::Here(answer?)))
            }),
            Err(NotSent::Elsewhere(lanes)) => {
                let answer = lanes.post(&send, sdk.number());
                self.await_answer(send.request_id, chat_id, waiting, answer_of_owner(answer));
            }
            // What HTTP refuses before a chat is loaded is refused here too; the other requests continue.
            Err(NotSent::Refused(error)) => {
                let error = AppError::from(error);
                return self.error(&send.request_id, &error.message).await;
            }
        }
        Ok(())
    }

    async fn resume(
        &mut self,
        request_id: String,
        resume: Resume,
        (dialect, sdk): (Dialect, Sdk),
        waiting: TallyEntry,
    ) -> Result<(), SocketEnd> {
        let chat_id = resume.id;
        // A chat that has nothing running need not be loaded.
        let running = self.chats.may_be_running(&self.user, &chat_id).await;
        if matches!(running, Ok(false)) {
            return self.send(|out| frames::no_active(out, &request_id)).await;
        }
        let (sender, answer) = oneshot::channel();
        let command = Command::Resume {
            dialect,
            sdk,
            base: self.opened.base.clone(),
            answer: sender,
        };
        match self.command(&chat_id, command).await {
            Ok(()) => self.await_answer(request_id, chat_id, waiting, async {
                let answer = answer.await.map_err(|_| ChatError::TaskEnded)??;
                Ok(answer.map(Pieces::Here))
            }),
            Err(NotSent::Elsewhere(lanes)) => {
                let answer = lanes.resume(&chat_id, (dialect.as_str(), sdk.number()));
                self.await_answer(request_id, chat_id, waiting, answer_of_owner(answer));
            }
            Err(NotSent::Refused(_)) => return Err(SocketEnd::Close(Close::GOING_AWAY)),
        }
        Ok(())
    }

    /// The user pressed stop, which also means a turn that this tab resumed.
    async fn abort(&mut self, request_id: &str) -> Result<(), SocketEnd> {
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
        match self.command(&chat_id, Command::Stop { answer }).await {
            Ok(()) => {}
            Err(NotSent::Elsewhere(lanes)) => lanes.stop(&chat_id),
            Err(NotSent::Refused(_)) => return Err(SocketEnd::Close(Close::GOING_AWAY)),
        }
        Ok(())
    }

    /// Sends a command to a chat of this replica. Commands reach a chat in the order of their frames: a stop must not affect
    /// what is sent after it.
    async fn command(&mut self, chat_id: &ChatId, command: Command) -> Result<(), NotSent<'_>> {
        let Some(lanes) = &mut self.lanes else {
            let sent = self.chats.send(&self.user, chat_id, command).await;
            return sent.map_err(NotSent::Refused);
        };
        if lanes.is_busy(chat_id) {
            return Err(NotSent::Elsewhere(lanes));
        }
        match self.chats.send(&self.user, chat_id, command).await {
            Err(ChatError::Elsewhere(_)) => Err(NotSent::Elsewhere(lanes)),
            sent => sent.map_err(NotSent::Refused),
        }
    }

    fn await_answer(
        &mut self,
        request_id: String,
        chat_id: ChatId,
        waiting: TallyEntry,
        answer: impl Future<Output = Answered> + std::marker::Send + 'static,
    ) {
        self.asking.push(PendingRequest {
            request_id: request_id.clone(),
            chat_id: chat_id.clone(),
            aborted: false,
            _waiting: waiting,
        });
        self.asked.push(Box::pin(async move {
            AnsweredRequest {
                request_id,
                chat_id,
                answer: answer.await,
            }
        }));
    }

    async fn begin(&mut self, asked: AnsweredRequest) -> Result<(), SocketEnd> {
        let mut asking = self.asking.iter();
        let index = asking.position(|asking| asking.request_id == asked.request_id);
        let aborted = index.is_some_and(|index| self.asking.swap_remove(index).aborted);
        match asked.answer {
            Ok(Some(_)) if aborted => Ok(()),
            Ok(Some(answer)) => {
                self.send(|out| frames::start(out, &asked.request_id))
                    .await?;
                self.running.push(RunningRequest {
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
    async fn write(&mut self, index: usize, piece: Option<Bytes>) -> Result<(), SocketEnd> {
        let Some(piece) = piece else {
            let running = self.running.swap_remove(index);
            return self
                .error(
                    &running.request_id,
                    match running.answer.is_cut() {
                        true => "the chat goes on at another replica; resume it",
                        false => "this client fell behind; load the chat again",
                    },
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
        // Unwritten bytes count until the answer is dropped.
        self.socket.flush().await?;
        if is_done {
            let done = self.running.swap_remove(index);
            if let Some(message) = done.answer.whole_message() {
                self.written.note(message);
            }
        }
        Ok(())
    }

    /// Sends what became of every request that a chat has: a client that hears nothing sends its message again, and both
    /// would be answered.
    async fn finish_asking(&mut self) -> Result<(), SocketEnd> {
        while let Some(asked) = self.asked.next().await {
            self.begin(asked).await?;
        }
        Ok(())
    }

    /// Sends the last chunks of all chats.
    async fn finish(&mut self) -> Result<(), SocketEnd> {
        while !self.running.is_empty() {
            let (index, piece) = next_piece(&mut self.running, &mut self.next).await;
            self.write(index, piece).await?;
        }
        Ok(())
    }

    async fn error(&mut self, request_id: &str, message: &str) -> Result<(), SocketEnd> {
        self.send(|out| frames::error(out, request_id, message))
            .await
    }

    async fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), SocketEnd> {
        let mut out = Vec::new();
        write(&mut out);
        self.socket.send(text(out)?).await
    }
}

/// Why a command has not reached a chat of this replica.
enum NotSent<'l> {
    /// The chat is in use at another replica, or its requests are on their way there.
    Elsewhere(&'l mut Lanes),
    Refused(ChatError),
}

async fn answer_of_owner(answer: oneshot::Receiver<Answered>) -> Answered {
    answer
        .await
        .unwrap_or_else(|_| Err(ChatError::TaskEnded.into()))
}

fn request_of(send: &Send, address: Option<&str>) -> Result<ChatRequest, AppError> {
    let id = Json::from(send.id.as_str());
    let (dialect, agent) = (send.body.get("dialect"), send.body.get("agent"));
    let handed_in = HandedInFields::in_extra(&send.body);
    let fields = RequestFields {
        id: Some(id.raw()),
        dialect: dialect.as_ref().map(Json::raw),
        agent: agent.as_ref().map(Json::raw),
        handed_in,
        messages: Some(send.messages.raw()),
        // The trigger was read with the frame, and the version has a default of its own.
        ..RequestFields::default()
    };
    let mut request = ChatRequest::of(&fields, Dialect::default())?.for_agent(address)?;
    request.sdk = version_of(&send.body)?;
    Ok(request)
}

fn view_of(resume: &Resume) -> Result<(Dialect, Sdk), AppError> {
    check_id("id", resume.id.as_str())?;
    let dialect = resume.body.get("dialect");
    let word = dialect.as_ref().and_then(Json::as_str);
    let dialect = dialect_of(word.as_deref())?;
    Ok((dialect, version_of(&resume.body)?))
}

fn version_of(body: &Extra) -> Result<Sdk, AppError> {
    let named = body.get("sdk").map(|named| named.to_value());
    Ok(sdk_of(named.as_ref(), Sdk::FIRST_WITH_WEB_SOCKETS)?)
}

/// The next piece of any request. Cancel-safe.
async fn next_piece(running: &mut [RunningRequest], next: &mut usize) -> (usize, Option<Bytes>) {
    std::future::poll_fn(|context| {
        let count = running.len();
        for step in 0..count {
            let index = (*next + step) % count;
            if let Poll::Ready(piece) = running[index].answer.poll_recv(context) {
                *next = index + 1;
                return Poll::Ready((index, piece));
            }
        }
        Poll::Pending
    })
    .await
}
