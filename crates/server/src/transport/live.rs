//! `WS /live`: speech and text in both directions, one connection to one chat.
//!
//! ```text
//!   text frame ──▶ ClientFrame ──┬─ ping, audio_config: answered here
//!   binary frame ─▶ BinaryFrame ─┴─ everything else: a command to the chat ──▶ chat task
//!
//!   text frame ◀── one SSE event, byte for byte ◀── Turn: turn-start, its chunks, [DONE], turn-end
//!   text frame ◀── control frame ◀───────────────── Refused, Interrupted, Modality
//!   binary frame ◀─ data-pcm, where the client asked for binary audio
//! ```
//!
//! Clients of dialect `held` know only the stream that their `message` opened: what began without them ends for them with
//! their next message, and a refusal is a stream of its own.
//!
//! One loop reads and writes, so nothing is read from a client that takes nothing; credits limit the requests in
//! progress. Everything here belongs to the connection, except the chat's own view of it.

mod meter;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::chunk::Chunk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::sdk::Sdk;
use adk_bridge_protocol::wire::frame::FrameError;
use adk_bridge_protocol::wire::live::{
    AudioWire, BinaryFrame, ClientFrame, Close, ControlFrame, Kind, Message as ChatMessage, Sender,
    request_id_of,
};
use adk_bridge_protocol::wire::sse;
use axum::extract::{Query, Request, State};
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use uuid::Uuid;

use super::adk_stream_protocol;
use super::error::AppError;
use super::handshake::{Upgrades, Wanted};
use super::socket::{Incoming, LAST_CHUNKS, Socket, SocketEnd, shutdown, text};
use crate::auth::Identity;
use crate::budget::{BudgetError, Tally, TallyEntry};
use crate::chat::error::ChatError;
use crate::chat::live::{
    Credit, LiveAsk, LiveClient, LiveCommand, LiveInput, MAX_UNDER_WAY, OUTGOING, Outgoing,
};
use crate::chat::request::{
    ChatRequest, HandedInFields, MessageList, RequestFields, check_id, dialect_of, sdk_of,
};
use crate::chat::{Chats, Command, new_id};
use crate::config::{self, Config};
use crate::connections::WrittenMessages;
use crate::files::address::Base;
use crate::forwarding::Farewell;
use crate::parsing;
use crate::sockets::Place;
use crate::telemetry::{RequestTrace, in_trace};
use meter::Meter;
use stream::{Event, Stream, Streams};

/// When clients reconnect after a restart, spread so that they do not all come at once.
const RECONNECT_MS: std::ops::Range<u64> = 500..2_000;
/// The same where another replica goes on with the chat.
const MOVE_MS: std::ops::Range<u64> = 0..100;

/// Another replica lets go of a chat that only waits for its user within this time, and how often to look.
const LET_GO: Duration = Duration::from_secs(4);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The query parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Params {
    chat: Option<ChatId>,
    dialect: Option<String>,
    sdk: Option<Value>,
    agent: Option<String>,
    ticket: Option<String>,
}

pub async fn open(
    State(chats): State<Chats>,
    State(config): State<Arc<Config>>,
    State(upgrades): State<Upgrades>,
    Query(params): Query<Params>,
    base: Base,
    request: Request,
) -> Result<Response, AppError> {
    let original = original_dialect(&config, &request);
    let dialect = match original {
        Some(dialect) => dialect,
        None => dialect_of(params.dialect.as_deref())?,
    };
    let sdk = sdk_of(params.sdk.as_ref(), Sdk::default())?;
    if let Some(chat_id) = &params.chat {
        check_id("chat", chat_id.as_str())?;
    }
    if let Some(agent) = &params.agent {
        check_id("agent", agent)?;
    }
    let wanted = Wanted {
        ticket: params.ticket.as_deref(),
        chat: params.chat.as_ref(),
        base: &base.clone(),
    };
    let (named, agent) = (params.chat.clone(), params.agent);
    let trace = RequestTrace::of(&request);
    let context = trace.context.clone();
    let serve = move |socket, identity: Identity, place| {
        in_trace(context, async move {
            let client = Box::new(Client {
                id: Uuid::new_v4(),
                user: identity.user,
                is_named: named.is_some(),
                is_original: original.is_some(),
                chat_id: named.unwrap_or_else(|| new_id("chat").into()),
                dialect,
                sdk,
                agent,
                base,
                trace,
            });
            serve(chats, &config.live, client, socket, place).await;
        })
    };
    upgrades.open(request, wanted, serve).await
}

/// The dialect of a connection of adk-stream-protocol's front end, which has no query.
fn original_dialect(config: &Config, request: &Request) -> Option<Dialect> {
    let dialect = config.server.original_dialect();
    dialect.filter(|_| request.uri().query().is_none())
}

/// Whose connection it is, and to which chat.
struct Client {
    id: Uuid,
    user: UserId,
    chat_id: ChatId,
    /// Whether the client chose the chat.
    is_named: bool,
    /// Whether it is the front end of adk-stream-protocol.
    is_original: bool,
    dialect: Dialect,
    sdk: Sdk,
    /// The agent that its messages are for, unless they name one.
    agent: Option<String>,
    /// What the URLs of files begin with for it.
    base: Base,
    /// That of the handshake: no frame has one.
    trace: RequestTrace,
}

impl Client {
    /// Whether its front end sees nothing but the stream that its last message opened.
    fn sees_only_streams(&self) -> bool {
        self.is_original || self.dialect == Dialect::Held
    }
}

async fn serve(
    chats: Chats,
    limits: &config::Live,
    client: Box<Client>,
    mut socket: Box<Socket>,
    mut place: Place,
) {
    let (connection, chat) = (client.id, client.chat_id.clone());
    tracing::info!(%connection, %chat, "live connection {connection} opens chat {chat}");
    // Boxed so that rare branches do not grow the future of an idle connection.
    let why = match Box::pin(attach(&chats, &client)).await {
        Err(error) => {
            tracing::warn!(%connection, %error, "live connection {connection} is refused");
            let error = AppError::from(error);
            let close = match error.retry_after {
                // Another replica was faster: the next connection finds it.
                _ if error.instead.is_some() => Close::GOING_AWAY,
                Some(_) => Close::from(&error),
                None => Close::INTERNAL,
            };
            Box::pin(socket.close(close)).await;
            return;
        }
        Ok(outgoing) => {
            let mut connection = Connection {
                chats,
                client,
                socket: &mut socket,
                outgoing,
                credits: Arc::new(Semaphore::new(MAX_UNDER_WAY)),
                credit: None,
                wire: AudioWire::default(),
                meter: Meter::new(limits, Instant::now()),
                streams: Streams::default(),
                silenced: None,
                sequence: 0,
                written: WrittenMessages::default(),
            };
            connection.run(&mut place.closing).await
        }
    };
    let reason = match &why {
        SocketEnd::Left => "the client left",
        SocketEnd::Close(close) | SocketEnd::Refused(_, close) => close.reason,
    };
    tracing::info!(%connection, %chat, "live connection {connection} ends: {reason}");
    if let SocketEnd::Close(why) | SocketEnd::Refused(_, why) = why {
        Box::pin(socket.close(why)).await;
    }
}

/// Makes the client the live client of its chat. Returns what the chat sends.
async fn attach(
    chats: &Chats,
    client: &Client,
) -> Result<mpsc::Receiver<Box<Outgoing>>, ChatError> {
    let (out, outgoing) = mpsc::channel(OUTGOING);
    let live = LiveClient::new(
        client.id,
        client.dialect,
        client.sdk,
        client.base.clone(),
        out,
    )
    .for_agent(client.agent.clone())
    .in_trace(client.trace.clone());
    let attached = chats.ask(&client.user, &client.chat_id, |answer| {
        let client = live;
        Command::Live(LiveCommand::Attach { client, answer })
    });
    attached.await.flatten()?;
    Ok(outgoing)
}

struct Connection<'s> {
    chats: Chats,
    client: Box<Client>,
    socket: &'s mut Socket,
    outgoing: mpsc::Receiver<Box<Outgoing>>,
    credits: Arc<Semaphore>,
    /// The credit for the next request; without one no frame is read.
    credit: Option<OwnedSemaphorePermit>,
    wire: AudioWire,
    meter: Meter,
    streams: Streams,
    /// The turn whose audio is discarded.
    silenced: Option<u16>,
    /// Counts binary frames.
    sequence: u32,
    written: WrittenMessages,
}

impl Connection<'_> {
    /// Serves the connection until it ends.
    async fn run(&mut self, closing: &mut watch::Receiver<bool>) -> SocketEnd {
        let why = match self.converse(closing).await {
            Ok(never) => match never {},
            Err(why) => why,
        };
        if matches!(why, SocketEnd::Close(Close::GOING_AWAY)) {
            // A client that does not take this is gone.
            let _ = tokio::time::timeout(LAST_CHUNKS, Box::pin(self.say_farewell())).await;
        }
        if let SocketEnd::Refused(refusal, _) = &why {
            let telling = Box::pin(self.refuse_request(refusal, None, true));
            let _ = tokio::time::timeout(LAST_CHUNKS, telling).await;
        }
        why
    }

    async fn converse(
        &mut self,
        closing: &mut watch::Receiver<bool>,
    ) -> Result<std::convert::Infallible, SocketEnd> {
        if !self.client.is_named && !self.client.is_original {
            let chat = Chunk::transient("data-chat", json!({"id": self.client.chat_id}));
            let mut event = Vec::new();
            sse::chunk(&mut event, &chat, self.client.sdk);
            Box::pin(self.socket.send(text(event)?)).await?;
        }
        loop {
            let listen = self.credit.is_some();
            tokio::select! {
                outgoing = self.outgoing.recv() => match outgoing {
                    Some(outgoing) => Box::pin(self.pass_on(*outgoing)).await?,
                    None => return Err(SocketEnd::Close(Close::INTERNAL)),
                },
                () = self.streams.arrival() => {
                    // An interruption is sent before the end of the turn that it cuts.
                    while let Ok(outgoing) = self.outgoing.try_recv() {
                        Box::pin(self.pass_on(*outgoing)).await?;
                    }
                    if let Some(piece) = self.streams.arrived() {
                        self.write(piece).await?;
                    }
                }
                credit = self.credits.clone().acquire_owned(), if !listen => {
                    self.credit = credit.ok();
                }
                incoming = self.socket.next(listen) => Box::pin(self.take(incoming?)).await?,
                () = shutdown(closing) => return Err(SocketEnd::Close(Close::GOING_AWAY)),
            }
        }
    }

    /// Handles one frame of the client.
    async fn take(&mut self, incoming: Incoming) -> Result<(), SocketEnd> {
        let mut request_id = None;
        let bytes = incoming.len();
        let mut is_message = false;
        let ask = match incoming {
            Incoming::Text(text) => match read_frame(text).await {
                Ok(frame) => {
                    if let ClientFrame::Message(message) = &frame {
                        request_id = message.request_id();
                        is_message = true;
                    }
                    self.understand(frame, request_id.as_deref()).await?
                }
                // What cannot be read may have been a message.
                Err(FrameReadError::Refused(error, request_id)) => {
                    let refusal = ControlFrame::refusal(&error, request_id.as_deref());
                    self.control(&refusal).await?;
                    return self.end_awaited(&error.to_string()).await;
                }
                Err(FrameReadError::Failed(error)) => {
                    return self.refuse_request(&error, None, true).await;
                }
            },
            Incoming::Binary(bytes) => match BinaryFrame::parse(&bytes, Sender::Client) {
                Ok(frame) => Some(LiveAsk::Input(input_of(&frame))),
                Err(error) => return self.control(&ControlFrame::from(&error)).await,
            },
        };
        let Some(ask) = ask else {
            return Ok(());
        };
        if let LiveAsk::Input(input) = &ask
            && let Err(message) = self.meter.count(input, Instant::now())
        {
            let refusal = ControlFrame::Error {
                code: "too_much",
                message: message.into(),
                request_id: None,
            };
            self.control(&refusal).await?;
            return Err(SocketEnd::Close(Close::TOO_MANY));
        }
        let (ask, waiting) = match count(ask, bytes, self.socket.waiting()) {
            Ok(counted) => counted,
            Err(refusal) => {
                let request_id = request_id.as_deref();
                return self
                    .refuse_request(&refusal.into(), request_id, is_message)
                    .await;
            }
        };
        let Some(permit) = self.credit.take() else {
            return Ok(()); // Frames are read only with a credit at hand.
        };
        let credit = Credit {
            permit,
            request_id,
            is_message,
            waiting,
        };
        self.ask(ask, credit).await
    }

    async fn ask(&mut self, ask: LiveAsk, credit: Credit) -> Result<(), SocketEnd> {
        let command = LiveCommand::Ask {
            connection: self.client.id,
            ask,
            credit,
        };
        self.chats
            .send(
                &self.client.user,
                &self.client.chat_id,
                Command::Live(command),
            )
            .await
            .map_err(|_| SocketEnd::Close(Close::GOING_AWAY))
    }

    /// What a frame asks of the chat, if anything.
    async fn understand(
        &mut self,
        frame: ClientFrame,
        request_id: Option<&str>,
    ) -> Result<Option<LiveAsk>, SocketEnd> {
        let ask = match frame {
            ClientFrame::Message(message) => {
                if self.client.sees_only_streams() {
                    self.streams.drop_unasked();
                }
                match Box::pin(self.request_of(message)).await {
                    Ok(request) => LiveAsk::Message(Box::new(request)),
                    Err(error) => {
                        self.refuse_request(&error, request_id, true).await?;
                        return Ok(None);
                    }
                }
            }
            ClientFrame::ToolResult(result) => LiveAsk::ToolResult(Box::new(result)),
            ClientFrame::Interrupt { .. } => LiveAsk::Interrupt,
            ClientFrame::AudioControl(action) => LiveAsk::Input(LiveInput::AudioControl(action)),
            ClientFrame::AudioChunk { pcm } => LiveAsk::Input(LiveInput::Audio {
                pcm: pcm.into(),
                pre_roll: false,
            }),
            ClientFrame::VideoFrame { data, media_type } => {
                let data = data.into();
                LiveAsk::Input(LiveInput::Picture { data, media_type })
            }
            ClientFrame::Modality(modality) => LiveAsk::Input(LiveInput::Modality(modality)),
            ClientFrame::Ping { timestamp } => {
                self.control(&ControlFrame::Pong { timestamp }).await?;
                return Ok(None);
            }
            ClientFrame::AudioConfig(wire) => {
                self.wire = wire;
                return Ok(None);
            }
        };
        Ok(Some(ask))
    }

    /// Makes the connection one of the chat that waits for the answers in this message. Its front end asks and answers on
    /// several connections, and over HTTP.
    async fn find_chat(
        &mut self,
        last: &adk_bridge_protocol::message::Message,
    ) -> Result<(), ChatError> {
        let (user, chat_id) = (&self.client.user, &self.client.chat_id);
        let waiting = self.chats.that_waits_for(user, last).await?;
        let Some(waiting) = waiting.filter(|waiting| waiting != chat_id) else {
            return Ok(());
        };
        tracing::info!(connection = %self.client.id, chat = %waiting, "live connection {} goes to chat {waiting}", self.client.id);
        self.client.chat_id = waiting;
        let until = Instant::now() + LET_GO;
        loop {
            match attach(&self.chats, &self.client).await {
                Ok(outgoing) => {
                    self.outgoing = outgoing;
                    return Ok(());
                }
                Err(ChatError::Elsewhere(_)) if Instant::now() < until => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn request_of(&mut self, message: ChatMessage) -> Result<ChatRequest, AppError> {
        let chat_id = &self.client.chat_id;
        // A client whose chat was assigned may still use the id that it made up before.
        if let Some(id) = message
            .id
            .filter(|id| self.client.is_named && id != chat_id)
        {
            return Err(AppError::unprocessable(
                "wrong_chat",
                format!(
                    "this connection belongs to the chat {chat_id:?}; open another one for {id:?}"
                ),
            ));
        }
        let dialect = message.dialect.as_deref().map(Json::from);
        let id = Json::from(chat_id.as_str());
        let sdk = message.extra.get("sdk");
        let sdk = sdk.unwrap_or_else(|| Value::from(self.client.sdk.number()).into());
        let agent = message.extra.get("agent").filter(|named| !named.is_null());
        let agent = agent.or_else(|| self.client.agent.as_deref().map(Json::from));
        let fields = RequestFields {
            id: Some(id.raw()),
            dialect: dialect.as_ref().map(Json::raw),
            sdk: Some(sdk.raw()),
            agent: agent.as_ref().map(Json::raw),
            handed_in: HandedInFields::in_extra(&message.extra),
            messages: Some(message.messages.raw()),
            ..RequestFields::default()
        };
        let mut request = ChatRequest::of(&fields, self.client.dialect)?;
        request.from.base.clone_from(&self.client.base);
        request.from.trace.clone_from(&self.client.trace);
        request.seen.had = self.written.so_far();
        if self.client.is_original {
            adk_stream_protocol::complete(&mut request, MessageList::Whole);
            self.find_chat(request.last()).await?;
            request.chat_id = self.client.chat_id.clone();
        }
        Ok(request)
    }

    async fn pass_on(&mut self, outgoing: Outgoing) -> Result<(), SocketEnd> {
        match outgoing {
            Outgoing::Turn {
                turn,
                answer,
                is_asked,
            } => self.queue(Stream::of_turn(turn, answer, is_asked)),
            Outgoing::Missed(answer) => self.queue(Stream::missed(answer)),
            // Its credit is returned when the client has its answer.
            Outgoing::Refused { error, credit } => {
                let request_id = credit.request_id.as_deref();
                self.refuse_request(&error.into(), request_id, credit.is_message)
                    .await
            }
            Outgoing::Failed(error) => self.refuse(&error.into(), None).await,
            Outgoing::Interrupted { turn } => {
                self.silenced = Some(turn);
                // The text before it is short, so it is sent first.
                while let Some(piece) = self.streams.before_the_end(turn) {
                    self.write(Some(piece)).await?;
                }
                self.control(&ControlFrame::Interrupted { turn }).await
            }
            Outgoing::Modality(modality) => {
                self.control(&ControlFrame::Modality { modality }).await
            }
            Outgoing::Close(why) => Err(SocketEnd::Close(why)),
        }
    }

    fn queue(&mut self, stream: Stream) -> Result<(), SocketEnd> {
        match self.streams.push(stream) {
            true => Ok(()),
            false => Err(SocketEnd::Close(Close::TIMEOUT)),
        }
    }

    /// Writes one piece of the first stream, or its end.
    async fn write(&mut self, piece: Option<Bytes>) -> Result<(), SocketEnd> {
        let Some(stream) = self.streams.first() else {
            return Ok(());
        };
        let (turn, is_dropped) = (stream.turn, stream.is_dropped);
        let Some(piece) = piece else {
            let (is_whole, is_cut) = (stream.is_done, stream.is_cut());
            self.streams.end_first();
            if is_cut {
                return Err(SocketEnd::Close(Close::GOING_AWAY));
            }
            // The turn continues without a reader that was given up.
            if !is_whole {
                return Err(SocketEnd::Close(Close::TIMEOUT));
            }
            return match turn {
                Some(turn) => self.control(&ControlFrame::TurnEnd { turn }).await,
                None => Ok(()),
            };
        };
        if !std::mem::replace(&mut stream.has_begun, true)
            && let Some(turn) = turn
        {
            self.control(&ControlFrame::TurnStart { turn }).await?;
        }
        for event in stream::events(&piece, self.wire) {
            match event {
                Event::Done(event) => {
                    if !is_dropped {
                        self.socket.feed(text(event)?).await?;
                    }
                    if let Some(stream) = self.streams.first() {
                        stream.is_done = true;
                        if let Some(message) = stream.whole_message().filter(|_| !is_dropped) {
                            self.written.note(message);
                        }
                    }
                }
                Event::Chunk(_) | Event::Audio { .. } if is_dropped => {}
                Event::Chunk(event) => self.socket.feed(text(event)?).await?,
                Event::Audio { turn, .. } if self.silenced == Some(turn) => {}
                Event::Audio {
                    event, pcm: None, ..
                } => self.socket.feed(text(event)?).await?,
                Event::Audio {
                    turn,
                    pcm: Some(pcm),
                    ..
                } => {
                    let frame = BinaryFrame {
                        kind: Kind::Model,
                        flags: Default::default(),
                        turn,
                        sequence: self.sequence,
                        payload: &pcm,
                    };
                    self.sequence = self.sequence.wrapping_add(1);
                    let mut bytes = Vec::new();
                    frame.write(&mut bytes);
                    self.socket.feed(Message::Binary(bytes.into())).await?;
                }
            }
        }
        self.socket.flush().await
    }

    async fn refuse(
        &mut self,
        error: &AppError,
        request_id: Option<&str>,
    ) -> Result<(), SocketEnd> {
        let frame = ControlFrame::Error {
            code: error.code,
            message: error.message.as_str().into(),
            request_id,
        };
        self.control(&frame).await
    }

    /// Refuses a request. The front end of a `message` may see only streams.
    async fn refuse_request(
        &mut self,
        error: &AppError,
        request_id: Option<&str>,
        is_message: bool,
    ) -> Result<(), SocketEnd> {
        self.refuse(error, request_id).await?;
        match is_message {
            true => self.end_awaited(&error.message).await,
            false => Ok(()),
        }
    }

    /// Ends the stream that a refused client waits for, if it sees nothing else.
    async fn end_awaited(&mut self, reason: &str) -> Result<(), SocketEnd> {
        if !self.client.sees_only_streams() || self.streams.has_asked() {
            return Ok(());
        }
        self.streams.note_refused();
        let mut event = Vec::new();
        sse::chunk(&mut event, &Chunk::error(reason), self.client.sdk);
        self.socket.send(text(event)?).await?;
        self.socket.send(text(sse::DONE)?).await
    }

    async fn control(&mut self, frame: &ControlFrame<'_>) -> Result<(), SocketEnd> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.socket.send(text(bytes)?).await
    }

    /// Sends the chat's last chunks, and when to reconnect.
    async fn say_farewell(&mut self) -> Result<(), SocketEnd> {
        while let Ok(outgoing) = self.outgoing.try_recv() {
            if !matches!(*outgoing, Outgoing::Close(_)) {
                self.pass_on(*outgoing).await?;
            }
        }
        while !self.streams.is_empty() {
            self.streams.arrival().await;
            if let Some(piece) = self.streams.arrived() {
                match self.write(piece).await {
                    // It was cut, because the chat goes on elsewhere.
                    Err(SocketEnd::Close(Close::GOING_AWAY)) => {}
                    written => written?,
                }
            }
        }
        let reconnect = reconnect(&self.chats, self.client.id);
        self.control(&reconnect).await
    }
}

/// When a client reconnects.
fn reconnect(chats: &Chats, connection: Uuid) -> ControlFrame<'static> {
    let range = match &chats.shared().cluster {
        // Another replica is there already.
        Some(cluster) if !cluster.peers().is_empty() => MOVE_MS,
        _ => RECONNECT_MS,
    };
    let spread = range.end - range.start;
    let after_ms = range.start + connection.as_u64_pair().0 % spread;
    ControlFrame::Reconnect { after_ms }
}

/// What a client is sent whose connection goes through this replica to another one, when this one stops.
pub(super) fn farewell(chats: &Chats) -> Farewell {
    let mut text = Vec::new();
    reconnect(chats, Uuid::new_v4()).write(&mut text);
    Farewell {
        text: Some(text),
        close: Close::GOING_AWAY,
    }
}

/// Why a frame has not been read.
enum FrameReadError {
    /// It is invalid; with its request id, if it has one.
    Refused(FrameError, Option<String>),
    Failed(AppError),
}

async fn read_frame(text: Utf8Bytes) -> Result<ClientFrame, FrameReadError> {
    let cost = parsing::cost(std::iter::once(text.as_bytes()));
    let read = move || {
        ClientFrame::parse(&text)
            .map_err(|error| FrameReadError::Refused(error, request_id_of(&text)))
    };
    let read = parsing::read(cost, read).await;
    read.map_err(|error| FrameReadError::Failed(error.into()))?
}

/// Counts the bytes of a frame: speech and pictures until the agent has them, everything else until it is answered.
fn count(
    ask: LiveAsk,
    bytes: usize,
    waiting: &Arc<Tally>,
) -> Result<(LiveAsk, Option<TallyEntry>), BudgetError> {
    Ok(match ask {
        LiveAsk::Input(input) => (LiveAsk::Input(input.counted(waiting)?), None),
        ask => (ask, Some(waiting.hold(bytes)?)),
    })
}

fn input_of(frame: &BinaryFrame<'_>) -> LiveInput {
    // A copy, because the received bytes are a slice of a larger buffer.
    let data = Bytes::copy_from_slice(frame.payload);
    match frame.kind {
        Kind::Jpeg => LiveInput::Picture {
            data,
            media_type: "image/jpeg".to_owned(),
        },
        Kind::Microphone | Kind::Model => LiveInput::Audio {
            pcm: data,
            pre_roll: frame.flags.pre_roll,
        },
    }
}
