//! The live client of a chat: what it asks for, what it is sent, and which turns it reads.
//!
//! ```text
//!   socket ── LiveCommand ──▶ chat task ──┬─ message, tool result: what HTTP does with them
//!      ▲                                  ├─ interrupt: the running turn stops
//!      │                                  └─ input: speech, pictures, modality
//!      └──────── Outgoing ◀── LiveClient ◀── every turn that it begins, and every one that nobody began
//! ```
//!
//! One connection at a time is attached; a second takes over. It is a reader of turns like any other
//! ([`super::readers`]), so what it gets is what HTTP would get. Audio travels as transient `data-pcm` chunks of the turn,
//! which the endpoint turns into binary frames where its client asked for them.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::reply::Audience;
use adk_bridge_protocol::wire::live::{AudioAction, Close, Modality, ToolResult};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::engine::ReaderOptions;
use super::error::ChatError;
use super::readers::Answer;
use super::request::ChatRequest;
use super::unread::UnreadAnswer;
use crate::budget::{BudgetError, Tally, TallyEntry};
use crate::files::address::Base;
use crate::telemetry::RequestTrace;

/// How much may wait for a socket's writer: the answers to all requests that it may have under way, and turns that the
/// server starts.
pub const OUTGOING: usize = MAX_UNDER_WAY + 16;
/// How many requests of one socket may be under way; a client that sends more waits.
pub const MAX_UNDER_WAY: usize = 32;

/// How long speech is ignored after it was refused because a budget is used up: a microphone goes on sending.
const REFUSED_AGAIN: Duration = Duration::from_secs(5);

/// What a live connection asks of its chat.
pub enum LiveCommand {
    /// A connection becomes the chat's live client.
    Attach {
        client: LiveClient,
        answer: oneshot::Sender<Result<(), ChatError>>,
    },
    Ask {
        connection: Uuid,
        ask: LiveAsk,
        credit: Credit,
    },
}

pub enum LiveAsk {
    Message(Box<ChatRequest>),
    /// A message that was refused before it came to its chat.
    Refused(Box<ChatError>),
    ToolResult(Box<ToolResult>),
    Interrupt,
    Input(LiveInput),
}

/// Input for a live agent.
#[derive(Debug)]
pub enum LiveInput {
    /// 16-bit little-endian PCM, 16 kHz, mono.
    Audio {
        pcm: Bytes,
        pre_roll: bool,
    },
    AudioControl(AudioAction),
    Picture {
        data: Bytes,
        media_type: String,
    },
    Modality(Modality),
}

impl LiveInput {
    /// Counts speech and pictures until they are dropped.
    pub fn counted(self, tally: &Arc<Tally>) -> Result<Self, BudgetError> {
        Ok(match self {
            Self::Audio { pcm, pre_roll } => Self::Audio {
                pcm: tally.tie(pcm)?,
                pre_roll,
            },
            Self::Picture { data, media_type } => Self::Picture {
                data: tally.tie(data)?,
                media_type,
            },
            Self::AudioControl(_) | Self::Modality(_) => self,
        })
    }
}

/// The right to have one request under way; it is returned when the request has been answered.
pub struct Credit {
    pub permit: OwnedSemaphorePermit,
    /// What the client calls the request.
    pub request_id: Option<String>,
    /// Whether the request is a `message`, which is answered by a turn.
    pub is_message: bool,
    /// The bytes that the request takes until then, unless they are counted elsewhere.
    pub waiting: Option<TallyEntry>,
}

/// What a chat sends to a live connection.
pub enum Outgoing {
    /// A turn, until its answer ends. `is_asked`: whether a request of the client began or continues it.
    Turn {
        turn: u16,
        answer: Answer,
        is_asked: bool,
    },
    /// What the client missed: not a turn, only its chunks.
    Missed(Answer),
    /// A request was refused.
    Refused {
        error: ChatError,
        credit: Credit,
    },
    /// Something failed that no request asked for.
    Failed(ChatError),
    /// Discard what is queued for the player.
    Interrupted {
        turn: u16,
    },
    Modality(Modality),
    Close(Close),
}

/// Where the answer to a request goes.
pub enum AnswerTo {
    /// To the request that waits for it.
    Request(oneshot::Sender<Result<Answer, ChatError>>),
    /// To the live client, if it is still attached.
    Live { connection: Uuid, credit: Credit },
}

impl AnswerTo {
    /// The live connection that it goes to, if it goes to one.
    pub(super) fn connection(&self) -> Option<Uuid> {
        match self {
            Self::Request(_) => None,
            Self::Live { connection, .. } => Some(*connection),
        }
    }
}

/// How a request arrived, for the turn that it begins and for the audit.
#[derive(Debug, Clone, Copy)]
pub struct RequestOrigin {
    pub transport: &'static str,
    pub mode: Audience,
    pub connection: Option<Uuid>,
}

impl RequestOrigin {
    pub const HTTP: Self = Self {
        transport: "http",
        mode: Audience::Request,
        connection: None,
    };

    /// Over the AI SDK's own WebSocket transport, whose requests end like those of HTTP.
    pub fn socket(connection: Uuid) -> Self {
        Self {
            transport: "ws",
            mode: Audience::Request,
            connection: Some(connection),
        }
    }

    pub fn live(connection: Uuid) -> Self {
        Self {
            transport: "live",
            mode: Audience::Connection,
            connection: Some(connection),
        }
    }
}

/// One live connection, as its chat sees it.
#[derive(Debug)]
pub struct LiveClient {
    connection: Uuid,
    dialect: Dialect,
    sdk: Sdk,
    /// What the URLs of files begin with for it.
    base: Base,
    /// The agent that it named, if it did.
    agent: Option<String>,
    trace: RequestTrace,
    /// Boxed, since the channel of every connection has room for dozens.
    out: mpsc::Sender<Box<Outgoing>>,
    /// Whether it reads the turn that is open.
    reads: bool,
    /// Whether it asked for that turn.
    is_asked: bool,
    /// The message that it has in full, if there is one.
    shown: Option<MessageId>,
    /// The last answer that it was sent; if that was given up, the client does not have all of it.
    last: Option<Arc<UnreadAnswer>>,
}

impl LiveClient {
    pub fn new(
        connection: Uuid,
        dialect: Dialect,
        sdk: Sdk,
        base: Base,
        out: mpsc::Sender<Box<Outgoing>>,
    ) -> Self {
        Self {
            connection,
            dialect,
            sdk,
            base,
            agent: None,
            trace: RequestTrace::default(),
            out,
            reads: false,
            is_asked: false,
            shown: None,
            last: None,
        }
    }

    /// For this agent, if the client named one.
    #[must_use]
    pub fn for_agent(self, agent: Option<String>) -> Self {
        Self { agent, ..self }
    }

    /// As a part of this trace.
    #[must_use]
    pub fn in_trace(self, trace: RequestTrace) -> Self {
        Self { trace, ..self }
    }

    pub(super) fn trace(&self) -> &RequestTrace {
        &self.trace
    }

    pub(super) fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// How it reads turns.
    pub(super) fn options(&self) -> ReaderOptions<'_> {
        ReaderOptions {
            dialect: self.dialect,
            sdk: self.sdk,
            base: &self.base,
        }
    }

    pub(super) fn connection(&self) -> Uuid {
        self.connection
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Whether it reads the open turn, or was given up while reading it.
    pub(super) fn reads(&self) -> bool {
        self.reads
    }

    /// Whether it reads the open turn and was not given up.
    pub(super) fn reads_to_the_end(&self) -> bool {
        self.reads && !self.is_given_up()
    }

    /// Whether the answer to a request can continue the turn that it reads. Clients of dialect `held` see only what follows
    /// their request.
    pub(super) fn reads_on(&self) -> bool {
        self.reads_to_the_end() && (self.is_asked || self.dialect != Dialect::Held)
    }

    /// Whether its last answer ended early because too much was unread.
    pub(super) fn is_given_up(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.is_given_up())
    }

    /// Whether it has all of this message.
    pub(super) fn has_all_of(&self, message: &MessageId) -> bool {
        self.shown.as_ref() == Some(message) && !self.is_given_up()
    }

    /// Notes that it has all of this message.
    pub(super) fn note_shown(&mut self, message: MessageId) {
        self.shown = Some(message);
    }

    /// Sends what the client missed of a message that has ended.
    pub(super) fn send_missed(&mut self, answer: Answer) {
        self.last = Some(answer.unread().clone());
        self.send(Outgoing::Missed(answer));
    }

    /// Never waits: a full queue means that the client takes nothing, and its endpoint gives up on it.
    pub(super) fn send(&self, outgoing: Outgoing) {
        let _ = self.out.try_send(Box::new(outgoing));
    }
}

/// The live client of a chat, and what earlier ones have missed.
#[derive(Debug, Default)]
pub(super) struct LiveClients {
    attached: Option<LiveClient>,
    /// The number of the turn that a live client reads or read last.
    turn: u32,
    /// Whether an attached client missed a turn, or its end.
    missed: bool,
    /// The message whose last outcomes are not sent: its client waits for another message, and would take them for that
    /// one.
    withheld: Option<MessageId>,
    /// When speech was refused last because the user's budget is used up.
    speech_refused: Option<Instant>,
}

impl LiveClients {
    /// Notes that speech was refused because the user's budget is used up.
    pub(super) fn note_refused_speech(&mut self) {
        self.speech_refused = Some(Instant::now());
    }

    /// Whether that was just now: every frame of a microphone would be refused on its own.
    pub(super) fn refused_speech_just_now(&self) -> bool {
        (self.speech_refused).is_some_and(|at| at.elapsed() < REFUSED_AGAIN)
    }

    pub(super) fn attached(&self) -> Option<&LiveClient> {
        self.attached.as_ref()
    }

    /// The live client, if it is the one of this connection.
    pub(super) fn attached_by(&self, connection: Uuid) -> Option<&LiveClient> {
        self.attached()
            .filter(|client| client.connection == connection)
    }

    /// Whether there has been a client, which may return for what it missed.
    pub(super) fn was_used(&self) -> bool {
        self.turn > 0
    }

    /// The number of the current turn, which does not wrap.
    pub(super) fn number(&self) -> u32 {
        self.turn
    }

    /// The number of the current turn; players drop what comes late from an earlier one.
    fn turn(&self) -> u16 {
        // It may wrap, because turns that far apart are never compared.
        (self.turn % (u32::from(u16::MAX) + 1)) as u16
    }

    pub(super) fn attach(&mut self, client: LiveClient) {
        self.attached = Some(client);
    }

    /// Whether a turn, or its end, was missed; resets the flag.
    pub(super) fn take_missed(&mut self) -> bool {
        std::mem::take(&mut self.missed)
    }

    /// Whether a turn, or its end, was missed.
    pub(super) fn has_missed(&self) -> bool {
        self.missed
    }

    /// Waits until the client has left. Cancel-safe.
    pub(super) async fn wait_until_gone(&self) {
        match &self.attached {
            Some(client) => client.out.closed().await,
            None => pending().await,
        }
    }

    /// Detaches the client; the chat, its approvals and the running turn continue without it.
    pub(super) fn detach(&mut self) {
        if let Some(client) = self.attached.take() {
            self.missed |= client.reads || client.is_given_up();
            // It misses the next turn, whenever that comes.
            self.turn = self.turn.max(1);
        }
    }

    /// Ends the connection of the client.
    pub(super) fn close(&mut self, why: Close) {
        if let Some(client) = self.attached.take() {
            client.send(Outgoing::Close(why));
        }
    }

    /// To be called at the end of every turn.
    pub(super) fn turn_ended(&mut self) {
        match &mut self.attached {
            Some(client) => client.reads = false,
            None => self.missed |= self.turn > 0,
        }
    }

    /// Sends the client the stream of a turn that it asked for. `message`: the message that the turn continues, if it
    /// stays open.
    pub(super) fn answer_turn(&mut self, answer: Answer, message: Option<&MessageId>) {
        self.send_turn(answer, message, true);
    }

    /// The same for a turn that the client did not ask for.
    pub(super) fn begin_turn(&mut self, answer: Answer, message: Option<&MessageId>) {
        self.send_turn(answer, message, false);
    }

    fn send_turn(&mut self, answer: Answer, message: Option<&MessageId>, is_asked: bool) {
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn();
        if let Some(client) = &mut self.attached {
            client.last = Some(answer.unread().clone());
            client.send(Outgoing::Turn {
                turn,
                answer,
                is_asked,
            });
            if let Some(id) = message {
                client.reads = true;
                client.is_asked = is_asked;
                client.shown = Some(id.to_owned());
            }
        }
    }

    /// Stops the player at once.
    pub(super) fn interrupt(&self) {
        let turn = self.turn();
        self.send(Outgoing::Interrupted { turn });
    }

    /// Withholds the rest of this message from a client that has sent a newer one.
    pub(super) fn withhold(&mut self, message: &MessageId) {
        self.withheld = Some(message.to_owned());
    }

    pub(super) fn withholds(&self, message: &MessageId) -> bool {
        self.withheld.as_ref() == Some(message)
    }

    /// Sends to the client, if there is one.
    pub(super) fn send(&self, outgoing: Outgoing) {
        if let Some(client) = &self.attached {
            client.send(outgoing);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const M: &MessageId = &MessageId::literal("m");

    fn client() -> (LiveClient, mpsc::Receiver<Box<Outgoing>>) {
        let (out, outgoing) = mpsc::channel(OUTGOING);
        let (dialect, sdk, base) = (Dialect::Native, Sdk::default(), Base::default());
        let client = LiveClient::new(Uuid::new_v4(), dialect, sdk, base, out);
        (client, outgoing)
    }

    fn answer() -> Answer {
        Answer::for_tests(mpsc::channel(1).1, M)
    }

    #[test]
    fn who_leaves_in_a_turn_has_missed_its_end_and_is_shown_it_once() {
        let mut live = LiveClients::default();
        let (first, _outgoing) = client();
        live.attach(first);
        live.begin_turn(answer(), Some(M));
        assert!(live.attached().unwrap().reads() && live.attached().unwrap().has_all_of(M));
        live.detach();
        assert!(live.attached().is_none() && live.was_used());
        assert!(live.take_missed());
        assert!(!live.take_missed());
    }

    #[test]
    fn who_is_given_up_has_missed_the_turn_and_reads_it_from_its_start() {
        let mut live = LiveClients::default();
        let (first, _outgoing) = client();
        live.attach(first);
        let answer = answer();
        let unread = answer.unread().clone();
        live.begin_turn(answer, Some(M));
        assert!(live.attached().unwrap().reads_to_the_end());
        unread.give_up();
        let given_up = live.attached().unwrap();
        assert!(given_up.reads() && !given_up.reads_to_the_end());
        assert!(!given_up.has_all_of(M));
        live.turn_ended();
        live.detach();
        assert!(live.take_missed());
    }

    #[test]
    fn a_turn_that_ends_without_a_client_is_missed_only_where_there_was_one() {
        let mut live = LiveClients::default();
        live.turn_ended();
        assert!(!live.take_missed() && !live.was_used());
        let (first, _outgoing) = client();
        live.attach(first);
        live.detach();
        assert!(!live.take_missed(), "it read nothing");
        live.turn_ended();
        assert!(live.take_missed());
    }

    #[test]
    fn who_is_taken_over_is_closed_and_asks_for_nothing_any_more() {
        let mut live = LiveClients::default();
        let ((first, mut outgoing), (second, _other)) = (client(), client());
        let (old, new) = (first.connection(), second.connection());
        live.attach(first);
        live.close(Close::TAKEN_OVER);
        live.attach(second);
        let closed = outgoing.try_recv().unwrap();
        assert!(matches!(*closed, Outgoing::Close(Close::TAKEN_OVER)));
        assert!(live.attached_by(old).is_none() && live.attached_by(new).is_some());
    }

    #[test]
    fn what_is_answered_at_once_is_no_turn_that_is_read() {
        let mut live = LiveClients::default();
        let (first, mut outgoing) = client();
        live.attach(first);
        live.begin_turn(answer(), None);
        let sent = outgoing.try_recv().unwrap();
        assert!(matches!(*sent, Outgoing::Turn { turn: 1, .. }));
        assert!(!live.attached().unwrap().reads());
    }
}
