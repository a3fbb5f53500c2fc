//! The live connection of a chat: who sits there, what it asks for, and how turns reach it.
//!
//! ```text
//!   socket ── LiveCommand ──▶ chat task ──┬─ message, tool result: what HTTP does with them
//!      ▲                                  ├─ interrupt: the running turn stops
//!      │                                  └─ input (speech, pictures, modality): Task::live_input
//!      └───────── Outgoing ◀── Seat ◀─────── every turn that the seat begins, and every one that nobody began
//! ```
//!
//! One connection at a time has the seat; a second takes it over. The seat is a reader of turns like any other
//! ([`super::readers`]), so what it gets is what HTTP would get. An upstream that is held open for speech plugs in at
//! three places: [`Task::live_input`] takes what goes to it, the events that it brings are fed to the reply like those
//! of a run, and [`Live::interrupted`] tells the player. Audio travels as transient `data-pcm` chunks of the turn, which
//! the door turns into binary frames where its client asked for them.

use std::future::pending;

use adk_bridge_protocol::calls::{Call, RunsOn};
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::outbox::Effect;
use adk_bridge_protocol::reply::{Answer as ClientAnswer, Input, Mode, Reply, Why};
use adk_bridge_protocol::wire::live::{AudioAction, Close, Modality, ToolResult, ToolStatus};
use axum::http::StatusCode;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use uuid::Uuid;

use super::readers::Answer;
use super::request::ChatRequest;
use super::task::Task;
use crate::error::AppError;

/// How much may wait for a socket's writer: the answers to all requests that it may have under way, and turns that the
/// server starts.
pub const OUTGOING: usize = MAX_UNDER_WAY + 16;
/// How many requests of one socket may be under way; a client that sends more waits.
pub const MAX_UNDER_WAY: usize = 32;

/// What a live connection asks of its chat.
pub enum LiveCommand {
    /// A connection takes the seat.
    Sit {
        seat: Seat,
        answer: oneshot::Sender<Result<(), AppError>>,
    },
    Ask {
        connection: Uuid,
        ask: LiveAsk,
        credit: Credit,
    },
}

pub enum LiveAsk {
    Message(Box<ChatRequest>),
    ToolResult(Box<ToolResult>),
    Interrupt,
    Input(LiveInput),
}

/// What goes to an agent that listens.
#[derive(Debug)]
pub enum LiveInput {
    /// 16-bit little-endian PCM, 16 kHz, mono.
    Audio {
        pcm: Vec<u8>,
        pre_roll: bool,
    },
    AudioControl(AudioAction),
    Picture {
        data: Vec<u8>,
        media_type: String,
    },
    Modality(Modality),
}

/// The right to have one request under way; it goes back when the request has been answered.
pub struct Credit {
    pub permit: OwnedSemaphorePermit,
    /// What the client calls the request.
    pub request_id: Option<String>,
}

/// What a live connection is sent, beside what its own door knows.
pub enum Outgoing {
    /// A turn, until its answer ends.
    Turn {
        turn: u16,
        answer: Answer,
    },
    /// What has happened already: not a turn, only its chunks.
    Missed(Answer),
    /// A request was refused.
    Refused {
        error: AppError,
        credit: Credit,
    },
    /// Something failed that nobody asked for.
    Failed(AppError),
    /// What is queued for the player is void.
    Interrupted {
        turn: u16,
    },
    Modality(Modality),
    Close(Close),
}

/// Where the answer to a request goes.
pub enum AnswerTo {
    /// To whoever waits for it.
    Request(oneshot::Sender<Result<Answer, AppError>>),
    /// To the live connection, if it still has the seat.
    Live { connection: Uuid, credit: Credit },
}

/// How a request came, for the turn that it begins and for the audit.
#[derive(Debug, Clone, Copy)]
pub struct Via {
    pub transport: &'static str,
    pub mode: Mode,
    pub connection: Option<Uuid>,
}

impl Via {
    pub const HTTP: Self = Self {
        transport: "http",
        mode: Mode::Http,
        connection: None,
    };

    /// Over the AI SDK's own WebSocket transport, whose requests end like those of HTTP.
    pub fn socket(connection: Uuid) -> Self {
        Self {
            transport: "ws",
            mode: Mode::Http,
            connection: Some(connection),
        }
    }

    pub fn live(connection: Uuid) -> Self {
        Self {
            transport: "live",
            mode: Mode::Live,
            connection: Some(connection),
        }
    }
}

/// One live connection, as its chat sees it.
#[derive(Debug)]
pub struct Seat {
    connection: Uuid,
    dialect: Dialect,
    sdk: Sdk,
    out: mpsc::Sender<Outgoing>,
    /// Whether it reads the turn that is open.
    reads: bool,
    /// The message that its client has all of, as far as there is one.
    shown: Option<String>,
}

impl Seat {
    pub fn new(connection: Uuid, dialect: Dialect, sdk: Sdk, out: mpsc::Sender<Outgoing>) -> Self {
        Self {
            connection,
            dialect,
            sdk,
            out,
            reads: false,
            shown: None,
        }
    }

    /// Never waits: a queue that is full is that of a client that takes nothing, and its door gives up on it.
    fn send(&self, outgoing: Outgoing) {
        let _ = self.out.try_send(outgoing);
    }
}

/// The live side of a chat.
#[derive(Debug, Default)]
pub(super) struct Live {
    seat: Option<Seat>,
    /// The number of the turn that the seat reads or read last.
    turn: u32,
    /// Whether a turn, or its end, was lost on somebody who had the seat.
    missed: bool,
}

impl Live {
    /// Whether nobody sits there.
    pub(super) fn is_empty(&self) -> bool {
        self.seat.is_none()
    }

    /// Whether somebody sat there, who may come back for what he has missed.
    pub(super) fn was_used(&self) -> bool {
        self.turn > 0
    }

    /// The number of the current turn; players drop what comes late from an earlier one.
    pub(super) fn turn(&self) -> u16 {
        // It wraps: nobody compares turns that lie so far apart.
        (self.turn % (u32::from(u16::MAX) + 1)) as u16
    }

    /// Waits until whoever sits there has left. May be dropped and called again.
    pub(super) async fn gone(&self) {
        match &self.seat {
            Some(seat) => seat.out.closed().await,
            None => pending().await,
        }
    }

    /// The chat goes on without it, and so do its approvals and the turn that runs.
    pub(super) fn leave(&mut self) {
        if let Some(seat) = self.seat.take() {
            self.missed |= seat.reads;
            // The next turn is lost on it, whenever that comes.
            self.turn = self.turn.max(1);
        }
    }

    /// Ends the connection of whoever sits there.
    pub(super) fn close(&mut self, why: Close) {
        if let Some(seat) = self.seat.take() {
            seat.send(Outgoing::Close(why));
        }
    }

    /// To be called at the end of every turn.
    pub(super) fn turn_over(&mut self) {
        match &mut self.seat {
            Some(seat) => seat.reads = false,
            None => self.missed |= self.turn > 0,
        }
    }

    /// The player of whoever sits there stops at once.
    pub(super) fn interrupted(&self) {
        if let Some(seat) = &self.seat {
            let turn = self.turn();
            seat.send(Outgoing::Interrupted { turn });
        }
    }

    /// The number of the current turn, as it counts on.
    pub(super) fn number(&self) -> u32 {
        self.turn
    }

    /// How whoever sits there reads turns, and who it is.
    pub(super) fn reader_of_turns(&self) -> Option<(Dialect, Sdk, Uuid)> {
        let seat = self.seat.as_ref()?;
        Some((seat.dialect, seat.sdk, seat.connection))
    }

    /// Tells whoever sits there how the model answers from here on.
    pub(super) fn tell_modality(&self, modality: Modality) {
        if let Some(seat) = &self.seat {
            seat.send(Outgoing::Modality(modality));
        }
    }

    /// Tells whoever sits there that something failed which belongs to no turn.
    pub(super) fn refuse(&self, message: &str) {
        if let Some(seat) = &self.seat {
            seat.send(Outgoing::Failed(AppError::unavailable(message)));
        }
    }

    fn sits(&self, connection: Uuid) -> Option<&Seat> {
        self.seat
            .as_ref()
            .filter(|seat| seat.connection == connection)
    }

    /// Whether an answer to this request needs no stream: its connection reads the open turn already.
    pub(super) fn reads(&self, to: &AnswerTo) -> bool {
        match to {
            AnswerTo::Request(_) => false,
            AnswerTo::Live { connection, .. } => {
                self.sits(*connection).is_some_and(|seat| seat.reads)
            }
        }
    }

    pub(super) fn bring(&mut self, answer: Answer, message: Option<&str>) {
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn();
        if let Some(seat) = &mut self.seat {
            seat.send(Outgoing::Turn { turn, answer });
            if let Some(id) = message {
                seat.reads = true;
                seat.shown = Some(id.to_owned());
            }
        }
    }
}

impl Task {
    pub(super) async fn live_command(&mut self, command: LiveCommand) {
        match command {
            LiveCommand::Sit { seat, answer } => {
                self.sit(seat).await;
                let _ = answer.send(Ok(()));
            }
            LiveCommand::Ask {
                connection,
                ask,
                credit,
            } => {
                // One that was taken over is being closed.
                if self.live.sits(connection).is_none() {
                    return;
                }
                let refusal = match ask {
                    LiveAsk::Message(request) => {
                        let to = AnswerTo::Live { connection, credit };
                        return self.post(request, Via::live(connection), to).await;
                    }
                    LiveAsk::ToolResult(result) => self.tool_result(connection, *result).await,
                    LiveAsk::Interrupt => {
                        self.interrupt().await;
                        Ok(())
                    }
                    LiveAsk::Input(input) => self.live_input(input).await,
                };
                if let (Err(error), Some(seat)) = (refusal, &self.live.seat) {
                    seat.send(Outgoing::Refused { error, credit });
                }
            }
        }
    }

    /// Gives the seat to a connection, which begins with what it may have missed.
    async fn sit(&mut self, mut seat: Seat) {
        self.live.close(Close::TAKEN_OVER);
        self.upstream.listened_to(true);
        let missed = std::mem::take(&mut self.live.missed);
        let reader = self.reader(seat.dialect, seat.sdk, None).await;
        let Some(reply) = &self.reply else {
            self.live.seat = Some(seat);
            return;
        };
        let id = reply.message().id.clone();
        if reply.turn().is_some() {
            let answer = self.readers.attach(reader, reply, None);
            self.live.seat = Some(seat);
            self.live.bring(answer, Some(&id));
            self.readers.flush();
            return;
        }
        if reply.ended().is_none() || missed {
            seat.send(Outgoing::Missed(self.once(reader, reply, None)));
        }
        seat.shown = Some(id);
        self.live.seat = Some(seat);
    }

    /// Stops the running turn; a question that waits goes on waiting.
    async fn interrupt(&mut self) {
        if self
            .reply
            .as_ref()
            .is_some_and(|reply| reply.turn().is_some())
        {
            self.live.interrupted();
            self.feed(Input::Close(Why::Stopped)).await;
        }
    }

    /// Sends the answer of a request to where it goes. `lasts`: whether it is the stream of the open turn.
    pub(super) fn deliver(&mut self, to: AnswerTo, answer: Result<Answer, AppError>, lasts: bool) {
        let (connection, credit) = match to {
            AnswerTo::Request(sender) => {
                let _ = sender.send(answer);
                return;
            }
            AnswerTo::Live { connection, credit } => (connection, credit),
        };
        if self.live.sits(connection).is_none() {
            return;
        }
        match answer {
            Ok(answer) => {
                let reply = self.reply.as_ref().filter(|_| lasts);
                let id = reply.map(|reply| reply.message().id.clone());
                self.live.bring(answer, id.as_deref());
            }
            Err(error) => {
                if let Some(seat) = &self.live.seat {
                    seat.send(Outgoing::Refused { error, credit });
                }
            }
        }
    }

    /// A message could not be taken into the chat.
    pub(super) fn not_begun(&mut self, to: AnswerTo, error: AppError) {
        match to {
            // Somebody else has a chat of this name.
            AnswerTo::Live { connection, .. } if error.status == StatusCode::NOT_FOUND => {
                if self.live.sits(connection).is_some() {
                    self.live.close(Close::NOT_FOUND);
                }
            }
            to => self.deliver(to, Err(error), false),
        }
    }

    /// Answers an approval, brings the output of a client tool, or does both.
    async fn tool_result(&mut self, connection: Uuid, given: ToolResult) -> Result<(), AppError> {
        let calls = self.reply.as_ref().map(Reply::calls);
        let Some(call) = calls.and_then(|calls| {
            let id = given.tool_call_id.as_str();
            let asks = |call: &&Call| call.approval.as_ref().is_some_and(|asked| asked.id == id);
            calls.by_id(id).or_else(|| calls.iter().rev().find(asks))
        }) else {
            return Err(AppError::not_found("call"));
        };
        let approval = call.approval.as_ref().map(|approval| approval.id.clone());
        let half = call.is_half_answered();
        let opens = call.waits_for_client();
        let (call_id, runs_on) = (call.id.clone(), call.runs_on);
        let by_call = given.tool_call_id == call_id;
        // The older form of an answer, under the confirmation's id or for a tool that has no output of the client's.
        let confirmed = given
            .result
            .as_ref()
            .filter(|_| !by_call || runs_on != RunsOn::Client)
            .and_then(|result| result.get("confirmed"))
            .and_then(Value::as_bool);
        let rejected = match &given.status {
            Some(ToolStatus::Rejected) => true,
            Some(_) => false,
            None => confirmed == Some(false),
        };
        let reason = given.result.as_ref().and_then(Value::as_str);
        let mut answers = Vec::new();
        match &approval {
            Some(approval_id) if !(rejected && half) => answers.push(ClientAnswer::Decision {
                approval_id,
                approved: !rejected,
                reason: reason.filter(|_| rejected),
                payload: (given.result.as_ref())
                    .filter(|_| confirmed.is_some())
                    .and_then(|result| result.get("payload")),
            }),
            _ if rejected => answers.push(ClientAnswer::Failure {
                call_id: &call_id,
                error: reason.unwrap_or("the user rejected it"),
            }),
            _ => {}
        }
        if let Some(output) = given
            .result
            .as_ref()
            .filter(|_| !rejected && confirmed.is_none())
        {
            answers.push(ClientAnswer::Output {
                call_id: &call_id,
                output,
            });
        }
        if answers.is_empty() {
            return Err(AppError::unprocessable(
                "missing_field",
                "the tool_result frame brings no result; nobody has to approve this call",
            ));
        }
        if opens {
            self.read_along(connection).await;
        }
        let refused = self.refused;
        let mode = opens.then_some(Mode::Live);
        self.feed(Input::Answers(&answers, mode)).await;
        if self.refused > refused {
            return Err(AppError::conflict(
                "not all of this is taken: the call has an outcome already, or only the server can give it one",
            ));
        }
        Ok(())
    }

    /// Makes the seat a reader of the turn that its answer is about to begin.
    async fn read_along(&mut self, connection: Uuid) {
        let Some((dialect, sdk, reads)) = self
            .live
            .seat
            .as_ref()
            .map(|seat| (seat.dialect, seat.sdk, seat.reads))
        else {
            return;
        };
        self.begin_turn(Via::live(connection), dialect);
        if reads {
            return;
        }
        let reader = self.reader(dialect, sdk, None).await;
        if let Some(reply) = &self.reply {
            let theirs = reader.whole(reply);
            let answer = self.readers.attach(reader, reply, Some(&theirs));
            let id = reply.message().id.clone();
            self.live.bring(answer, Some(&id));
        }
    }

    /// Before an input that may begin a turn which nobody asked for: somebody who sits there is about to read it.
    pub(super) async fn stand_by(&mut self, input: &Input<'_>) -> Option<Answer> {
        let may_begin = matches!(
            input,
            Input::Tick | Input::ToolFinished { .. } | Input::Answers(_, None)
        );
        let seat = self.live.seat.as_ref().filter(|seat| !seat.reads)?;
        if !may_begin || self.reply.as_ref()?.turn().is_some() {
            return None;
        }
        let (dialect, sdk, shown) = (seat.dialect, seat.sdk, seat.shown.clone());
        let reader = self.reader(dialect, sdk, None).await;
        let reply = self.reply.as_ref()?;
        let theirs = (shown.as_ref() == Some(&reply.message().id)).then(|| reader.whole(reply));
        Some(self.readers.attach(reader, reply, theirs.as_ref()))
    }

    /// After the input: brings the turn if one has begun, or at least the chunks that came without one.
    pub(super) fn stand_down(&mut self, answer: Answer) {
        let told = |effect: &Effect| matches!(effect, Effect::Frames(_) | Effect::End);
        let reply = self.reply.as_ref();
        let turn = reply.is_some_and(|reply| reply.turn().is_some());
        match reply.map(|reply| reply.message().id.clone()) {
            Some(id) if turn || self.outbox.effects.iter().any(told) => {
                self.live.bring(answer, Some(&id));
            }
            _ => {
                drop(answer);
                self.readers.forget_who_left();
            }
        }
    }

    /// After the effects of the input: chunks that came without a turn need an end too.
    pub(super) fn stand_at_ease(&mut self) {
        if let Some(reply) = self.reply.as_ref().filter(|reply| reply.turn().is_none())
            && self.live.seat.as_ref().is_some_and(|seat| seat.reads)
        {
            self.readers.finish_with(reply);
            self.live.turn_over();
        }
    }
}
