//! The live upstream of a chat: the connection to a model that listens and speaks.
//!
//! ```text
//!            speech, a picture, a modality                 stands                     closed, warned, another modality
//!   Closed ───────────────────────────────▶ Opening ───────────────────▶ Open ───────────────────────────────┐
//!     ▲                                        ▲  │ refused                │                                  │
//!     │                                        │  ▼                       │                                  ▼
//!     │                                        └─ Pausing ◀────────────────┼────────────────────── Renewal decides
//!     └── nobody listens for 30 seconds; a turn is stopped; tried too often ┘
//! ```
//!
//! It belongs to the chat, not to a socket. What it says is fed to the reply like the events of a run, so that tools and
//! approvals need nothing of their own. `told` counts how much of the conversation the model knows: what is missing
//! (because an HTTP turn came in between, or a connection was lost) is told before anything else. While a connection is
//! being opened what is said waits.

mod input;
mod recording;
mod remote;
mod turn;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use adk_bridge_agents::agent::AgentError;
use adk_bridge_agents::gemini_live::renewal::{Plan, Renewal, Resumption};
use adk_bridge_agents::live::{
    Activity, ConnectError, LiveConnection, LiveInput as Sent, LiveSetup, Modality, NO_CODE, Read,
    Voice,
};
use adk_bridge_protocol::calls::Call;
use adk_bridge_protocol::event::Content;
use adk_bridge_protocol::history;
use adk_bridge_protocol::message::{Message, Part, Role};
use adk_bridge_protocol::outbox::{Ask, Response};
use adk_bridge_protocol::reply::{Input, Mode, Reply, RunEnd};
use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::kept;
use super::task::Task;
pub(super) use input::Waiting;
use recording::{Heard, Sounded};
use remote::Asked;
use turn::{Spoken, Turn};

/// How long the upstream is kept for a client that may come back.
const KEPT: Duration = Duration::from_secs(30);

type Opening = Pin<Box<dyn Future<Output = Result<LiveConnection, ConnectError>> + Send>>;

pub(super) struct Upstream {
    line: Line,
    renewal: Renewal<usize>,
    modality: Modality,
    activity: Activity,
    /// How many contents of the conversation the model knows.
    told: usize,
    /// How many of them it has surely taken in: a handle may have been given before the last were.
    sure: usize,
    /// Whether somebody else has added to the conversation.
    stale: bool,
    turn: Turn,
    waiting: VecDeque<Waiting>,
    /// How many bytes of audio wait.
    waiting_audio: usize,
    /// What begins a turn that cannot begin yet.
    held: Option<Bytes>,
    /// What the user has said in the current turn.
    spoken: Option<Spoken>,
    heard: Heard,
    sounded: Sounded,
    /// Whether the user holds a key to speak, and the audio that came while nobody did.
    holds_key: bool,
    unheld: Vec<u8>,
    /// Whether it was open when its turn was taken from it: it still answers what comes next.
    comes_back: bool,
    /// When to look again: at the plan, or whether anybody listens.
    look_at: Option<Instant>,
    leave_at: Option<Instant>,
    /// What an ADK server was asked, until it says something.
    asked: Option<Asked>,
    /// Whether an ADK server may be answering what was left unanswered: failing in it again and again is no progress.
    replays: bool,
    closing: Option<tokio::task::JoinHandle<()>>,
}

enum Line {
    Closed,
    /// It is to be opened when the run that is under way is over.
    Queued,
    Pausing(Instant),
    Opening {
        opening: Opening,
        sure: usize,
        told: usize,
        /// Whether it answers what it is told at once.
        asks: bool,
    },
    Open(Box<LiveConnection>),
}

/// What the upstream has come to.
pub(super) enum Brought {
    Opened(Box<LiveConnection>),
    Refused(ConnectError),
    Read(Read),
    Due,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            line: Line::Closed,
            renewal: Renewal::default(),
            modality: Modality::Audio,
            activity: Activity::Detected,
            told: 0,
            sure: 0,
            stale: false,
            turn: Turn::Rest,
            waiting: VecDeque::new(),
            waiting_audio: 0,
            held: None,
            spoken: None,
            heard: Heard::default(),
            sounded: Sounded::default(),
            holds_key: false,
            unheld: Vec::new(),
            comes_back: false,
            look_at: None,
            leave_at: None,
            asked: None,
            replays: false,
            closing: None,
        }
    }
}

impl Upstream {
    /// Whether there is none, and none is wanted.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.line, Line::Closed)
    }

    /// Whether it is to be read.
    pub(super) fn is_read(&self) -> bool {
        !self.is_closed() && self.held.is_none()
    }

    /// Whether it has begun a turn that has to wait for another.
    pub(super) fn is_ahead(&self) -> bool {
        self.held.is_some()
    }

    /// Whether the running turn is its own.
    pub(super) fn speaks(&self) -> bool {
        self.turn.is_its_own()
    }

    /// The next thing that it brings. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Brought {
        let due = self.look_at.into_iter().chain(self.leave_at).min();
        let due = async move {
            match due {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        match &mut self.line {
            Line::Closed | Line::Queued => pending().await,
            Line::Pausing(at) => {
                sleep_until(*at).await;
                Brought::Due
            }
            Line::Opening { opening, .. } => match opening.await {
                Ok(connection) => Brought::Opened(Box::new(connection)),
                Err(error) => Brought::Refused(error),
            },
            Line::Open(connection) => tokio::select! {
                read = connection.read() => Brought::Read(read),
                () = due => Brought::Due,
            },
        }
    }

    /// Somebody sits there, or nobody does any more.
    pub(super) fn listened_to(&mut self, anybody: bool) {
        self.leave_at = (!anybody).then(|| Instant::now() + KEPT);
        if !anybody {
            self.holds_key = false;
        }
    }

    /// The model has ended its turn, or was interrupted in it.
    pub(super) fn model_is_done(&mut self, how: RunEnd) {
        if matches!(self.turn, Turn::Asked | Turn::Speaking) {
            self.turn = Turn::Over(how);
        }
    }

    /// Somebody else's turn has ended: the model does not know what was said in it.
    pub(super) fn note_other_turn(&mut self) {
        self.stale = true;
    }

    /// The conversation was changed behind it: it begins anew.
    pub(super) fn forget(&mut self) {
        let (modality, leave_at) = (self.modality, self.leave_at);
        self.hang_up();
        *self = Self {
            modality,
            leave_at,
            closing: self.closing.take(),
            ..Self::default()
        };
    }

    /// Its turn is taken from it. It would go on speaking, so the connection goes too; the next input opens another.
    pub(super) fn cut(&mut self) {
        if self.speaks() {
            self.turn = Turn::Rest;
            self.comes_back = true;
            // It was answered, as far as that went.
            self.heard.clear();
            self.sounded.clear();
            self.hang_up();
        }
    }

    fn hang_up(&mut self) {
        if let Line::Open(connection) = std::mem::replace(&mut self.line, Line::Closed) {
            self.closing = Some(tokio::spawn(connection.close()));
        }
        self.held = None;
        self.look_at = None;
    }
}

impl Task {
    pub(super) async fn upstream_brought(&mut self, brought: Brought) {
        match brought {
            Brought::Opened(connection) => self.upstream_opened(connection).await,
            Brought::Refused(refused) => {
                tracing::warn!(chat = %self.chat_id, detail = %refused.error.detail, "the live model refused a connection of chat {}", self.chat_id);
                self.upstream.renewal.refused(refused.code, Instant::now());
                self.follow_plan(Some(refused.error)).await;
            }
            Brought::Read(Read::Message(message)) => self.upstream_said(message).await,
            Brought::Read(Read::Quiet) => self.upstream_quiet().await,
            Brought::Read(Read::Closed { code, reason }) => {
                self.upstream_lost(code, &reason).await;
            }
            Brought::Due => {
                let now = Instant::now();
                let leaves = self.upstream.leave_at.is_some_and(|at| at <= now);
                if leaves && !self.upstream.speaks() {
                    self.upstream.hang_up();
                    self.upstream.comes_back = false;
                    self.upstream.leave_at = None;
                    return;
                }
                if leaves {
                    // It stays until its turn is over, and then as long as before.
                    self.upstream.leave_at = Some(now + KEPT);
                }
                self.follow_plan(None).await;
            }
        }
    }

    /// Asks the model that listens. What it does not know yet is told first, results included.
    pub(super) async fn ask_upstream(&mut self, ask: &Ask) {
        let by_ear = self.upstream.turn == Turn::ByEar;
        self.upstream.turn = Turn::Asked;
        if self.spoken_server().is_some() {
            return self.ask_remote(ask, by_ear).await;
        }
        if by_ear {
            return; // It has heard the question itself.
        }
        self.want_upstream().await;
        if !matches!(self.upstream.line, Line::Open(_)) {
            return; // It is asked as soon as it stands.
        }
        let messages = self.conversation().await;
        let contents = history::contents(&messages);
        let all = contents.len();
        let responses = self.known_responses(contents.last());
        let Line::Open(connection) = &mut self.upstream.line else {
            return;
        };
        let news = contents.get(self.upstream.told..).unwrap_or_default();
        let input = match (&responses, written(news)) {
            (Some(responses), _) => Sent::Responses(responses),
            (None, Some(text)) => Sent::Text(text),
            (None, None) => Sent::Contents {
                turns: news,
                answer: true,
            },
        };
        let sent = connection.send(input).await;
        self.upstream.told = all;
        self.upstream.stale = false;
        if let Err(error) = sent {
            self.upstream_lost(NO_CODE, &error.detail).await;
        }
    }

    /// The results of the last step, under the model's own ids, if the connection waits for all of them.
    fn known_responses(&self, last: Option<&Content<'_>>) -> Option<Vec<Response>> {
        let reply = self.reply.as_ref()?;
        let step = reply.asking_step()?.checked_sub(1)?;
        let calls: Vec<&Call> = reply.calls().iter().filter(|it| it.step == step).collect();
        let Line::Open(connection) = &self.upstream.line else {
            return None;
        };
        let known = |call: &&Call| {
            call.model_id
                .as_deref()
                .is_some_and(|id| connection.knows(id))
        };
        if calls.is_empty() || !calls.iter().all(known) {
            return None;
        }
        let last = last?;
        calls
            .iter()
            .map(|call| {
                let part = last.parts.iter().find_map(|part| {
                    part.function_response
                        .as_deref()
                        .filter(|response| response.id.as_deref() == Some(&call.id))
                })?;
                Some(Response {
                    id: call.model_id.clone()?,
                    name: call.name.clone(),
                    response: part.response.clone().unwrap_or_default(),
                })
            })
            .collect()
    }

    /// Opens a connection if there is none.
    pub(super) async fn want_upstream(&mut self) {
        if self.upstream.is_closed() {
            self.upstream.renewal.wanted(Instant::now());
            self.follow_plan(None).await;
        }
    }

    /// Opens another connection in the place of this one.
    pub(super) async fn renew_upstream(&mut self) {
        self.upstream.hang_up();
        self.upstream.renewal.wanted(Instant::now());
        self.follow_plan(None).await;
    }

    async fn upstream_opened(&mut self, connection: Box<LiveConnection>) {
        let opened = std::mem::replace(&mut self.upstream.line, Line::Open(connection));
        let mut asked = false;
        if let Line::Opening {
            sure, told, asks, ..
        } = opened
        {
            self.upstream.sure = sure;
            self.upstream.told = told;
            asked = asks;
        }
        self.upstream.stale = false;
        self.upstream.comes_back = false;
        self.upstream.renewal.opened();
        if self.spoken_server().is_some() {
            self.remote_opened().await;
        } else if self.upstream.speaks() && !asked {
            // Somebody wrote while it was being opened.
            Box::pin(self.ask_upstream(&Ask::History)).await;
        }
        self.send_waiting().await;
    }

    async fn upstream_lost(&mut self, code: u16, reason: &str) {
        tracing::info!(chat = %self.chat_id, code, reason, "the live connection of chat {} ended: {code} {reason}", self.chat_id);
        let error = match &self.upstream.line {
            Line::Open(connection) => connection.lost(reason),
            _ => None,
        };
        self.upstream.hang_up();
        if self.upstream.turn.is_said() {
            // What it has said stays; it does not know where it stopped.
            self.upstream_turn_over(RunEnd::Cut).await;
        } else if self.upstream.speaks()
            && let Some(server) = self.spoken_server()
            && !self.remote_lost(&server).await
        {
            return;
        }
        if self.upstream.leave_at.is_some() && !self.upstream.speaks() {
            return; // Nobody listens: the next who comes opens another.
        }
        self.upstream.renewal.closed(code, Instant::now());
        self.follow_plan(error).await;
    }

    /// Does what the renewal decides.
    pub(super) async fn follow_plan(&mut self, error: Option<AgentError>) {
        let now = Instant::now();
        self.upstream.look_at = None;
        match self.upstream.renewal.plan(now) {
            Plan::Stay => {}
            Plan::StayUntil(at) => self.upstream.look_at = Some(at),
            Plan::Renew { at, .. } if at > now => {
                self.upstream.hang_up();
                self.upstream.line = Line::Pausing(at);
            }
            Plan::Renew { from, .. } => self.open_upstream(from).await,
            Plan::Lost => {
                self.upstream.forget();
                let error = error.unwrap_or_else(|| AgentError {
                    message: "the connection to the live model is lost; speak or write again"
                        .into(),
                    detail: "the live connection ended too often".into(),
                });
                if self.is_asking_upstream() {
                    self.run_failed(error).await;
                } else {
                    self.live.refuse(&error.message);
                }
            }
        }
    }

    /// Whether the reply waits for a model, and no run brings it.
    fn is_asking_upstream(&self) -> bool {
        let asking = self.reply.as_ref().and_then(Reply::asking_step).is_some();
        asking && !self.run.is_active()
    }

    async fn open_upstream(&mut self, from: Option<Resumption<usize>>) {
        if matches!(self.upstream.line, Line::Open(_)) {
            tracing::info!(chat = %self.chat_id, "the live connection of chat {} is renewed", self.chat_id);
        }
        self.upstream.hang_up();
        self.say_again();
        let shared = self.shared.clone();
        let voice = match &shared.voice {
            None => return,
            Some(Voice::Adk(server)) => return self.open_remote(server).await,
            Some(Voice::Gemini(voice)) => voice,
        };
        let messages = self.conversation().await;
        let contents = history::contents(&messages);
        let told = contents.len();
        let mark = from.as_ref().map_or(0, |from| from.mark.min(told));
        let asks = self.upstream.turn.is_unanswered();
        let opening = voice.connect(&LiveSetup {
            contents: contents.get(mark..).unwrap_or_default().to_vec(),
            answer: asks,
            modality: self.upstream.modality,
            activity: self.upstream.activity,
            tools: shared.tools.specs(),
            handle: from.as_ref().map(|from| from.handle.as_str()),
        });
        self.upstream.line = Line::Opening {
            opening: Box::pin(async { opening.await.map(LiveConnection::Gemini) }),
            sure: mark,
            told,
            asks,
        };
    }

    /// The conversation as far as it can be told: a step whose calls are open has no results yet.
    async fn conversation(&mut self) -> Vec<Message> {
        let mut messages: Vec<Cow<'_, Message>> = self.past().into_iter().map(Cow::Owned).collect();
        kept::inline(&self.shared.files, self.chat(), &mut messages).await;
        messages.into_iter().map(Cow::into_owned).collect()
    }

    fn past(&self) -> Vec<Message> {
        let mut messages = self.history.clone();
        if let Some(reply) = &self.reply {
            let mut message = reply.message().clone();
            if reply.calls().iter().any(Call::is_open) {
                let step = |part: &Part| matches!(part, Part::StepStart);
                let last = message.parts.iter().rposition(step);
                message.parts.truncate(last.unwrap_or_default());
            }
            if !message.parts.is_empty() {
                messages.push(message);
            }
        }
        for message in &mut messages {
            let role = message.role;
            message.parts.retain(|part| !kept::is_recording(part, role));
        }
        messages
    }

    /// How much of the conversation the model knows when it has just heard or said the last of it.
    fn note_told(&mut self) {
        self.upstream.told = history::contents(&self.past()).len();
        self.upstream.sure = self.upstream.told;
    }

    /// A reply was taken up again, and what comes of it is news.
    pub(super) fn upstream_reordered(&mut self) {
        let known = history::contents(&self.past()).len();
        // What others have said meanwhile is still to be told.
        self.upstream.told = match self.upstream.stale {
            true => self.upstream.told.min(known),
            false => known,
        };
        self.upstream.sure = self.upstream.told;
        self.upstream.renewal.forget_handle();
    }

    /// Whether the turn that is to be answered is one for the model that listens.
    pub(super) fn is_for_upstream(&self, ask: &Ask) -> bool {
        let over_http = self.reply.as_ref().and_then(Reply::turn) == Some(Mode::Http);
        // What it says next belongs to another turn, which waits for this one: the ordinary agent takes this one up.
        let is_ahead = self.upstream.is_ahead();
        let answers = match self.spoken_server() {
            None => !self.upstream.is_closed() || self.upstream.comes_back,
            // In another connection it would first answer again what it was stopped in; a run does not.
            Some(_) => !self.upstream.is_closed() && self.upstream.can_tell(ask),
        };
        !over_http && !is_ahead && answers
    }

    /// The model has ended its turn, or its turn has ended it.
    pub(super) async fn upstream_turn_over(&mut self, how: RunEnd) {
        self.keep_recordings().await;
        self.upstream.turn = Turn::Rest;
        self.feed(Input::RunEnded(how)).await;
        self.note_told();
        if self.live.is_empty() && self.upstream.leave_at.is_none() {
            self.upstream.listened_to(false);
        }
    }
}

/// The news, where they are nothing but words of the user.
fn written<'n>(news: &'n [Content<'_>]) -> Option<&'n str> {
    match news {
        [only] if only.role.as_deref() == Some("user") => match &only.parts[..] {
            [part] => part.text.as_deref(),
            _ => None,
        },
        _ => None,
    }
}

/// A message of the user that has no words yet.
fn unheard(id: String) -> Message {
    Message {
        id,
        role: Role::User,
        metadata: None,
        parts: Vec::new(),
        extra: serde_json::Map::new(),
    }
}
