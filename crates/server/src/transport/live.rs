//! `WS /live`: the bidirectional door, one connection to one chat.
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
//! One loop reads and writes, so that a client which takes nothing is not listened to either; requests that it may have
//! under way are counted by credits. Everything belongs to the connection but the seat, which the chat has.

mod meter;
mod stream;

use std::collections::VecDeque;
use std::sync::Arc;

use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::dialect::Dialect;
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
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use super::handshake;
use super::socket::{Gone, Incoming, LAST_CHUNKS, Socket, text, told};
use crate::chat::live::{
    Credit, LiveAsk, LiveCommand, LiveInput, MAX_UNDER_WAY, OUTGOING, Outgoing, Seat,
};
use crate::chat::request::{ChatRequest, check_id, dialect_of};
use crate::chat::{Chats, Command, new_id};
use crate::config;
use crate::error::AppError;
use crate::router::App;
use crate::sockets::Place;
use meter::Meter;
use stream::{Event, Stream};

/// How many turns may wait to be written; a client that is so far behind has no use for them.
const MAX_TURNS: usize = 16;
/// When clients connect again after a restart, spread so that they do not come at once.
const RECONNECT_MS: std::ops::Range<u64> = 500..2_000;

/// What a client says in the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Params {
    chat: Option<String>,
    dialect: Option<String>,
    sdk: Option<u8>,
    ticket: Option<String>,
}

pub async fn open(
    State(app): State<App>,
    Query(params): Query<Params>,
    request: Request,
) -> Result<Response, AppError> {
    let dialect = dialect_of(params.dialect.as_deref())?;
    let sdk = match params.sdk {
        Some(7) => Sdk::V7,
        _ => Sdk::V6,
    };
    if let Some(chat_id) = &params.chat {
        check_id("chat", chat_id)?;
    }
    let (chats, config) = (app.chats.clone(), app.config.clone());
    let ticket = params.ticket.as_deref();
    let named = params.chat.clone();
    handshake::open(
        app,
        request,
        ticket,
        move |socket, user, place| async move {
            let who = Who {
                id: Uuid::new_v4(),
                user,
                is_named: named.is_some(),
                chat_id: named.unwrap_or_else(|| new_id("chat")),
                dialect,
                sdk,
            };
            serve(chats, &config.live, who, socket, place).await;
        },
    )
}

/// Whose connection it is, and to which chat.
struct Who {
    id: Uuid,
    user: String,
    chat_id: String,
    /// Whether the client chose the chat.
    is_named: bool,
    dialect: Dialect,
    sdk: Sdk,
}

async fn serve(
    chats: Chats,
    limits: &config::Live,
    who: Who,
    mut socket: Socket,
    mut place: Place,
) {
    let (connection, chat) = (who.id, who.chat_id.clone());
    tracing::info!(%connection, %chat, "live connection {connection} opens chat {chat}");
    let (out, outgoing) = mpsc::channel(OUTGOING);
    let seat = Seat::new(who.id, who.dialect, who.sdk, out);
    // Boxed, as is everything that happens now and then: an idle connection is as large as the largest of what is not.
    let seated = Box::pin(chats.ask(&who.user, &who.chat_id, |answer| {
        Command::Live(LiveCommand::Sit { seat, answer })
    }));
    let why = match seated.await.flatten() {
        Err(error) => {
            tracing::warn!(%connection, %error, "live connection {connection} is refused");
            Box::pin(socket.close(Close::INTERNAL)).await;
            return;
        }
        Ok(()) => {
            let mut connection = Connection {
                chats,
                who,
                socket: &mut socket,
                outgoing,
                credits: Arc::new(Semaphore::new(MAX_UNDER_WAY)),
                credit: None,
                wire: AudioWire::default(),
                meter: Meter::new(limits, Instant::now()),
                streams: VecDeque::new(),
                silenced: None,
                sequence: 0,
            };
            connection.run(&mut place.closing).await
        }
    };
    let reason = match &why {
        Gone::Left => "the client left",
        Gone::Close(close) => close.reason,
    };
    tracing::info!(%connection, %chat, "live connection {connection} ends: {reason}");
    if let Gone::Close(why) = why {
        Box::pin(socket.close(why)).await;
    }
}

struct Connection<'s> {
    chats: Chats,
    who: Who,
    socket: &'s mut Socket,
    outgoing: mpsc::Receiver<Outgoing>,
    credits: Arc<Semaphore>,
    /// What the next request is paid with; without it no frame is read.
    credit: Option<OwnedSemaphorePermit>,
    wire: AudioWire,
    meter: Meter,
    /// The first is being written.
    streams: VecDeque<Stream>,
    /// The turn whose audio is void.
    silenced: Option<u16>,
    /// Counts binary frames.
    sequence: u32,
}

impl Connection<'_> {
    /// Serves the connection until it ends.
    async fn run(&mut self, closing: &mut watch::Receiver<bool>) -> Gone {
        let why = match self.converse(closing).await {
            Ok(never) => match never {},
            Err(why) => why,
        };
        if matches!(why, Gone::Close(Close::GOING_AWAY)) {
            // Who cannot be told this can be told nothing.
            let _ = tokio::time::timeout(LAST_CHUNKS, Box::pin(self.say_farewell())).await;
        }
        why
    }

    async fn converse(
        &mut self,
        closing: &mut watch::Receiver<bool>,
    ) -> Result<std::convert::Infallible, Gone> {
        if !self.who.is_named {
            let chat = Chunk::transient("data-chat", json!({"id": self.who.chat_id}));
            let mut event = Vec::new();
            sse::chunk(&mut event, &chat, self.who.sdk);
            Box::pin(self.socket.send(text(event)?)).await?;
        }
        loop {
            let listen = self.credit.is_some();
            tokio::select! {
                outgoing = self.outgoing.recv() => match outgoing {
                    Some(outgoing) => Box::pin(self.pass_on(outgoing)).await?,
                    None => return Err(Gone::Close(Close::INTERNAL)),
                },
                () = stream::arrival(&mut self.streams) => {
                    // An interruption is told before the end of the turn that it cuts.
                    while let Ok(outgoing) = self.outgoing.try_recv() {
                        Box::pin(self.pass_on(outgoing)).await?;
                    }
                    if let Some(piece) = stream::arrived(&mut self.streams) {
                        self.write(piece).await?;
                    }
                }
                credit = self.credits.clone().acquire_owned(), if !listen => {
                    self.credit = credit.ok();
                }
                incoming = self.socket.next(listen) => Box::pin(self.take(incoming?)).await?,
                () = told(closing) => return Err(Gone::Close(Close::GOING_AWAY)),
            }
        }
    }

    /// Takes one frame of the client.
    async fn take(&mut self, incoming: Incoming) -> Result<(), Gone> {
        let mut request_id = None;
        let ask = match incoming {
            Incoming::Text(text) => match ClientFrame::parse(&text) {
                Ok(frame) => {
                    if let ClientFrame::Message(message) = &frame {
                        request_id = message.request_id().map(str::to_owned);
                    }
                    self.understand(frame, request_id.as_deref()).await?
                }
                Err(error) => {
                    let request_id = request_id_of(&text);
                    let refusal = ControlFrame::refusal(&error, request_id.as_deref());
                    return self.control(&refusal).await;
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
            return Err(Gone::Close(Close::TOO_MANY));
        }
        match self.credit.take() {
            Some(permit) => self.ask(ask, Credit { permit, request_id }).await,
            None => Ok(()), // Frames are read only with a credit at hand.
        }
    }

    async fn ask(&mut self, ask: LiveAsk, credit: Credit) -> Result<(), Gone> {
        let command = LiveCommand::Ask {
            connection: self.who.id,
            ask,
            credit,
        };
        self.chats
            .tell(&self.who.user, &self.who.chat_id, Command::Live(command))
            .await
            .map_err(|_| Gone::Close(Close::GOING_AWAY))
    }

    /// What a frame asks of the chat, if anything.
    async fn understand(
        &mut self,
        frame: ClientFrame,
        request_id: Option<&str>,
    ) -> Result<Option<LiveAsk>, Gone> {
        let ask = match frame {
            ClientFrame::Message(message) => match self.request_of(message) {
                Ok(request) => LiveAsk::Message(Box::new(request)),
                Err(error) => {
                    self.refuse(&error, request_id).await?;
                    return Ok(None);
                }
            },
            ClientFrame::ToolResult(result) => LiveAsk::ToolResult(Box::new(result)),
            ClientFrame::Interrupt { .. } => LiveAsk::Interrupt,
            ClientFrame::AudioControl(action) => LiveAsk::Input(LiveInput::AudioControl(action)),
            ClientFrame::AudioChunk { pcm } => LiveAsk::Input(LiveInput::Audio {
                pcm,
                pre_roll: false,
            }),
            ClientFrame::VideoFrame { data, media_type } => {
                LiveAsk::Input(LiveInput::Picture { data, media_type })
            }
            ClientFrame::Modality(modality) => LiveAsk::Input(LiveInput::Modality(modality)),
            ClientFrame::Ping { timestamp } => {
                let timestamp = std::borrow::Cow::Owned(timestamp);
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

    fn request_of(&self, message: ChatMessage) -> Result<ChatRequest, AppError> {
        let chat_id = &self.who.chat_id;
        // A client that was given its chat has one of another name, which it made up before it was told.
        if let Some(id) = message.id.filter(|id| self.who.is_named && id != chat_id) {
            return Err(AppError::unprocessable(
                "wrong_chat",
                format!("this connection is for the chat {chat_id:?}; open another one for {id:?}"),
            ));
        }
        let mut fields = message.extra;
        fields.insert("id".into(), json!(chat_id));
        fields.insert("messages".into(), message.messages);
        let dialect = message.dialect.as_deref();
        let dialect = dialect.unwrap_or(self.who.dialect.as_str());
        fields.insert("dialect".into(), json!(dialect));
        if self.who.sdk == Sdk::V7 {
            fields.entry("sdk").or_insert(Value::from(7));
        }
        ChatRequest::of(fields)
    }

    async fn pass_on(&mut self, outgoing: Outgoing) -> Result<(), Gone> {
        match outgoing {
            Outgoing::Turn { turn, answer } => self.queue(Stream::of_turn(turn, answer)),
            Outgoing::Missed(answer) => self.queue(Stream::missed(answer)),
            // Its credit goes back when the client has been told.
            Outgoing::Refused { error, credit } => {
                self.refuse(&error, credit.request_id.as_deref()).await
            }
            Outgoing::Failed(error) => self.refuse(&error, None).await,
            Outgoing::Interrupted { turn } => {
                self.silenced = Some(turn);
                // What was said before it is text, and short.
                while let Some(piece) = stream::before_the_end(&mut self.streams, turn) {
                    self.write(Some(piece)).await?;
                }
                self.control(&ControlFrame::Interrupted { turn }).await
            }
            Outgoing::Modality(modality) => {
                self.control(&ControlFrame::Modality { modality }).await
            }
            Outgoing::Close(why) => Err(Gone::Close(why)),
        }
    }

    fn queue(&mut self, stream: Stream) -> Result<(), Gone> {
        if self.streams.len() >= MAX_TURNS {
            return Err(Gone::Close(Close::TIMEOUT));
        }
        self.streams.push_back(stream);
        Ok(())
    }

    /// Writes one piece of the first stream, or its end.
    async fn write(&mut self, piece: Option<Bytes>) -> Result<(), Gone> {
        let Some(stream) = self.streams.front_mut() else {
            return Ok(());
        };
        let turn = stream.turn;
        let Some(piece) = piece else {
            let is_whole = stream.is_done;
            self.streams.pop_front();
            // The turn goes on without a reader that fell too far behind.
            if !is_whole {
                return Err(Gone::Close(Close::TIMEOUT));
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
                    if let Some(stream) = self.streams.front_mut() {
                        stream.is_done = true;
                    }
                    self.socket.feed(text(event)?).await?;
                }
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

    async fn refuse(&mut self, error: &AppError, request_id: Option<&str>) -> Result<(), Gone> {
        let frame = ControlFrame::Error {
            code: error.code,
            message: error.message.as_str().into(),
            request_id,
        };
        self.control(&frame).await
    }

    async fn control(&mut self, frame: &ControlFrame<'_>) -> Result<(), Gone> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.socket.send(text(bytes)?).await
    }

    /// Brings what the chat said last, and when to come back.
    async fn say_farewell(&mut self) -> Result<(), Gone> {
        while let Ok(outgoing) = self.outgoing.try_recv() {
            if !matches!(outgoing, Outgoing::Close(_)) {
                self.pass_on(outgoing).await?;
            }
        }
        while !self.streams.is_empty() {
            stream::arrival(&mut self.streams).await;
            if let Some(piece) = stream::arrived(&mut self.streams) {
                self.write(piece).await?;
            }
        }
        let spread = RECONNECT_MS.end - RECONNECT_MS.start;
        let after_ms = RECONNECT_MS.start + self.who.id.as_u64_pair().0 % spread;
        self.control(&ControlFrame::Reconnect { after_ms }).await
    }
}

fn input_of(frame: &BinaryFrame<'_>) -> LiveInput {
    let data = frame.payload.to_vec();
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
