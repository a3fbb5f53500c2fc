//! The task of one chat: it owns the reply, the agent's run, the tools that run and the readers.
//!
//! Doors only send it commands, so two things never happen to one chat at once. Its loop is thin: feed an input to the
//! reply, perform the effects that come out, in order.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::calls::{Call, Outcome};
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::{Dialect, Reader};
use adk_bridge_protocol::message::{Message, Role};
use adk_bridge_protocol::outbox::Outbox;
use adk_bridge_protocol::reply::{Input, Record, Reply, Why};
use adk_bridge_protocol::wire::live::Close;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::kept::{Pictures, ReplyIds};
use super::live::{AnswerTo, Live, LiveCommand, Via};
use super::memory::Known;
use super::readers::{Answer, Readers};
use super::request::ChatRequest;
use super::run::Run;
use super::upstream::Upstream;
use super::{GOING_AWAY, Shared, now};
use crate::error::AppError;
use crate::store::{ChatRef, MessageState, StoreError, Thing};

/// How often an idle answer is kept alive; proxies commonly close after a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a page that was not given the running message may take to ask for it.
const LEFT_OUT: Duration = Duration::from_secs(10);
/// How many such pages are remembered: no user loads one chat more often at once.
const MAX_LEFT_OUT: usize = 16;
/// A task without anything to do goes away; its chat is in the store. What follows a turn by itself, such as a client
/// tool's output, comes sooner than this, and what a human writes comes later than any time that is worth its memory.
const IDLE: Duration = Duration::from_secs(2);
/// How long what a live connection has missed is remembered for the next one.
const LIVE_IDLE: Duration = Duration::from_secs(60);
/// How long tools may go on when the server is being stopped; it has to be gone after five seconds.
const LAST_TOOLS: Duration = Duration::from_secs(3);

/// What doors ask of a chat. Small, since every chat in use has room for some dozens.
pub enum Command {
    Post {
        request: Box<ChatRequest>,
        via: Via,
        answer: AnswerTo,
    },
    Resume {
        dialect: Dialect,
        sdk: Sdk,
        answer: oneshot::Sender<Option<Answer>>,
    },
    /// A page was given the messages up to this one. If the current one was not among them it comes back for it.
    Listed {
        last: Option<String>,
        answer: oneshot::Sender<()>,
    },
    Stop {
        answer: oneshot::Sender<()>,
    },
    ToolOutput {
        call_id: String,
        outcome: Box<Outcome>,
        answer: oneshot::Sender<Result<(), AppError>>,
    },
    Live(LiveCommand),
    /// The chat is being deleted: everything stops.
    Close {
        answer: oneshot::Sender<()>,
    },
    /// The server is being stopped: what there is is stored, and the next start goes on from it.
    ShutDown {
        answer: oneshot::Sender<()>,
    },
}

pub(super) struct Task {
    pub(super) shared: Arc<Shared>,
    pub(super) user: String,
    pub(super) chat_id: String,
    /// The messages before the current reply.
    pub(super) history: Vec<Message>,
    pub(super) known: bool,
    /// How often the history was cut, as of the last time that a remote agent was asked.
    pub(super) generation: u64,
    /// How a remote agent knows the chat.
    pub(super) session: Known,
    pub(super) reply: Option<Reply>,
    /// Replies that wait while the conversation goes on by voice, and answers to them that wait for a turn to end.
    pub(super) parked: Vec<Reply>,
    pub(super) later: VecDeque<Command>,
    pub(super) readers: Readers,
    pub(super) outbox: Outbox,
    pub(super) run: Run,
    pub(super) tools: JoinSet<(String, Outcome)>,
    /// Requests that wait until started tools have ended.
    pub(super) queue: VecDeque<Command>,
    /// The messages that pages were not given because they were running, and until when those may ask for them.
    pub(super) left_out: VecDeque<(String, Instant)>,
    pub(super) turn_id: String,
    pub(super) origin: Origin,
    pub(super) refused: usize,
    /// When the message is stored next while the agent speaks.
    pub(super) checkpoint_at: Instant,
    /// When something last happened.
    active_at: Instant,
    /// When the agent's last piece came.
    pub(super) read_at: Option<Instant>,
    pub(super) ids: ReplyIds,
    /// A commit failed: what is in memory is worth nothing any more.
    pub(super) lost: bool,
    pub(super) pictures: Arc<Pictures>,
    pub(super) live: Live,
    pub(super) upstream: Upstream,
    /// The turn that is open, for the log and the metrics.
    pub(super) turn: Option<Turn>,
    /// When the request came that the next turn is for.
    pub(super) arrived: Option<Instant>,
}

/// What is measured of a turn.
pub(super) struct Turn {
    pub(super) began: Instant,
    /// Whether the agent has said something.
    pub(super) spoke: bool,
}

/// Where the current turn came from, for the audit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) transport: &'static str,
    pub(super) connection: Option<Uuid>,
    pub(super) dialect: Dialect,
}

impl Task {
    /// Loads the chat and serves it until nobody needs it any more.
    pub(super) async fn serve(
        shared: Arc<Shared>,
        user: String,
        chat_id: String,
        mut commands: mpsc::Receiver<Command>,
    ) {
        let mut task = Self::new(shared, user, chat_id);
        // Boxed, as is everything that happens now and then: an idle chat is as large as the largest of what is not.
        if let Err(error) = Box::pin(task.load()).await {
            tracing::error!(chat = %task.chat_id, %error, "the chat {} cannot be loaded", task.chat_id);
            let refusal = AppError::unavailable(format!("the chat cannot be loaded: {error}"));
            return Box::pin(refuse_all(task.queue, commands, refusal)).await;
        }
        Box::pin(task.feed(Input::Boot)).await;
        // One alarm for everything that time brings. It may ring too early, and is then set anew: setting it costs more
        // than a look at the clock, and most of what it is set for is put off by whatever happens.
        let mut alarm = pin!(tokio::time::sleep(KEEP_ALIVE));
        let mut rang = false;
        loop {
            if task.lost {
                return Box::pin(task.let_go()).await;
            }
            let room = task.readers.have_room();
            if !std::mem::take(&mut rang) {
                task.active_at = Instant::now();
            }
            if let Some(due) = task.due()
                && due < alarm.deadline()
            {
                alarm.as_mut().reset(due);
            }
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::Close { answer }) => {
                        Box::pin(task.stop_everything()).await;
                        task.live.close(Close::NOT_FOUND);
                        let _ = answer.send(());
                        let refusal = AppError::not_found("chat");
                        return Box::pin(refuse_all(task.queue, commands, refusal)).await;
                    }
                    Some(Command::ShutDown { answer }) => {
                        Box::pin(task.shut_down()).await;
                        task.live.close(Close::GOING_AWAY);
                        let _ = answer.send(());
                        return;
                    }
                    Some(command) => Box::pin(task.command(command)).await,
                    None => return,
                },
                Some(done) = task.tools.join_next(), if !task.tools.is_empty() => {
                    Box::pin(task.tool_done(done)).await;
                }
                progress = task.run.progress(), if room && task.run.is_active() => {
                    Box::pin(task.progress(progress)).await;
                }
                () = task.readers.room(), if !room => {}
                brought = task.upstream.next(), if room && task.upstream.is_read() => {
                    Box::pin(task.upstream_brought(brought)).await;
                }
                () = task.live.gone() => {
                    task.live.leave();
                    task.upstream.listened_to(false);
                }
                () = alarm.as_mut() => {
                    if Box::pin(task.ring()).await && commands.is_empty() {
                        return;
                    }
                    rang = true;
                    alarm.as_mut().reset(Instant::now() + KEEP_ALIVE);
                }
            }
            if !task.queue.is_empty() {
                Box::pin(task.take_queued()).await;
            }
            while let Some(command) = task.next_later() {
                Box::pin(task.command(command)).await;
            }
            if task.upstream.is_ahead() {
                Box::pin(task.take_held()).await;
            }
        }
    }

    fn new(shared: Arc<Shared>, user: String, chat_id: String) -> Self {
        Self {
            ids: ReplyIds::new(shared.files.clone()),
            readers: Readers::new(shared.metrics.clone()),
            pictures: Arc::default(),
            live: Live::default(),
            upstream: Upstream::default(),
            turn: None,
            arrived: None,
            shared,
            user,
            chat_id,
            history: Vec::new(),
            known: false,
            generation: 0,
            session: Known::default(),
            reply: None,
            parked: Vec::new(),
            later: VecDeque::new(),
            outbox: Outbox::default(),
            run: Run::Idle,
            tools: JoinSet::new(),
            queue: VecDeque::new(),
            left_out: VecDeque::new(),
            turn_id: new_id("turn"),
            origin: Origin {
                transport: "none",
                connection: None,
                dialect: Dialect::Native,
            },
            refused: 0,
            checkpoint_at: Instant::now(),
            active_at: Instant::now(),
            read_at: None,
            lost: false,
        }
    }

    pub(super) async fn load(&mut self) -> Result<(), StoreError> {
        match self.read().await {
            // Not there, or deleted while it was read.
            Err(StoreError::NotFound(Thing::Chat)) => {
                self.known = false;
                Ok(())
            }
            done => done,
        }
    }

    async fn read(&mut self) -> Result<(), StoreError> {
        let store = self.shared.store.clone();
        let chat = ChatRef {
            user: &self.user,
            id: &self.chat_id,
        };
        let mut messages = store.messages(chat).await?;
        // A chat that has only files so far was begun by them.
        self.known = !messages.is_empty();
        let mut open = store.open_replies_of(chat).await?;
        let last = messages.last().map(|stored| stored.message.id.clone());
        // One that does more than wait goes on first.
        let current = open
            .iter()
            .position(|record| record.asking || !waits(record))
            .or_else(|| {
                let ends = |record: &Record| Some(&record.message.id) == last.as_ref();
                open.iter().position(ends)
            });
        if let Some(record) = current.map(|index| open.remove(index)) {
            messages.retain(|stored| stored.message.id != record.message.id);
            self.reply = Some(Reply::restore(record));
        } else if let Some(last) = messages.pop_if(|stored| {
            stored.message.role == Role::Assistant && stored.state == MessageState::Done
        }) {
            // Clients repeat their old answers for as long as they like, and the record knows them.
            let record = store.reply(chat, &last.message.id).await?;
            self.reply = Some(record.map_or_else(|| ended(last.message), Reply::restore));
        }
        self.parked = open.into_iter().map(Reply::restore).collect();
        self.history = messages.into_iter().map(|stored| stored.message).collect();
        Ok(())
    }

    async fn command(&mut self, command: Command) {
        let Some(command) = self.take_up_for(command) else {
            return;
        };
        match command {
            Command::Post {
                request,
                via,
                answer,
            } => self.post(request, via, answer).await,
            Command::Resume {
                dialect,
                sdk,
                answer,
            } => {
                let reader = self.reader(dialect, sdk, None).await;
                let stream = self.resume(reader);
                let _ = answer.send(stream);
                self.readers.flush();
            }
            Command::Listed { last, answer } => {
                let current = self.reply.as_ref().map(|reply| &reply.message().id);
                if let Some(id) = current.filter(|id| Some(*id) != last.as_ref()) {
                    let until = Instant::now() + LEFT_OUT;
                    self.left_out.truncate(MAX_LEFT_OUT - 1);
                    self.left_out.push_front((id.clone(), until));
                } else {
                    // Who looks again sees all of it.
                    self.left_out.clear();
                }
                let _ = answer.send(());
            }
            Command::Stop { answer } => {
                self.feed(Input::Close(Why::Stopped)).await;
                let _ = answer.send(());
            }
            Command::ToolOutput {
                call_id,
                outcome,
                answer,
            } => {
                let _ = answer.send(self.tool_output(&call_id, *outcome).await);
            }
            Command::Live(command) => Box::pin(self.live_command(command)).await,
            Command::Close { .. } | Command::ShutDown { .. } => {}
        }
    }

    /// A reader for a client; one of dialect `adk` is shown images in the message itself.
    pub(super) async fn reader(
        &mut self,
        dialect: Dialect,
        sdk: Sdk,
        older: Option<&Message>,
    ) -> Reader {
        let reader = Reader::new(dialect, sdk, self.shared.tools.may_ask());
        if dialect == Dialect::Native {
            return reader;
        }
        let message = older.or_else(|| self.reply.as_ref().map(Reply::message));
        self.pictures
            .load(&self.shared.files, self.chat(), message)
            .await;
        reader.with_images(self.pictures.clone())
    }

    pub(super) fn chat(&self) -> ChatRef<'_> {
        ChatRef {
            user: &self.user,
            id: &self.chat_id,
        }
    }

    /// Waits for started tools before another task may take the chat, and stores what came of them if that is possible.
    /// Requests that came meanwhile are refused; clients send them again.
    async fn let_go(mut self) {
        let mut outcomes = Vec::new();
        while let Some(done) = self.tools.join_next().await {
            outcomes.extend(done.ok());
        }
        if outcomes.is_empty() || self.load().await.is_err() {
            return;
        }
        for (call, outcome) in outcomes {
            self.feed(Input::ToolFinished {
                call: &call,
                outcome,
            })
            .await;
        }
    }

    pub(super) fn begin_turn(&mut self, via: Via, dialect: Dialect) {
        self.turn_id = new_id("turn");
        self.origin = Origin {
            transport: via.transport,
            connection: via.connection,
            dialect,
        };
    }

    /// Goes on with requests that waited for started tools.
    async fn take_queued(&mut self) {
        while !self.is_unfinished() {
            let Some(command) = self.queue.pop_front() else {
                return;
            };
            self.command(command).await;
        }
    }

    pub(super) fn is_unfinished(&self) -> bool {
        self.reply
            .as_ref()
            .is_some_and(|reply| reply.ended().is_none() || !reply.is_at_rest())
    }

    fn is_idle(&self) -> bool {
        !self.run.is_active()
            && self.upstream.is_closed()
            && self.parked.is_empty()
            && self.tools.is_empty()
            && self.readers.is_empty()
            && self.live.is_empty()
            && self.queue.is_empty()
            && self.reply.as_ref().and_then(Reply::deadline).is_none()
    }

    /// When the alarm has to ring at the latest.
    fn due(&self) -> Option<Instant> {
        let deadline = self.reply.as_ref().and_then(Reply::deadline);
        let deadline = deadline.into_iter().chain(self.parked_deadline()).min();
        let tick = deadline.map(|at| {
            let wait = at.saturating_sub(now());
            Instant::now() + Duration::from_millis(wait)
        });
        let comment = (!self.readers.is_empty()).then(|| self.active_at + KEEP_ALIVE);
        let end = self.is_idle().then(|| self.idle_until());
        tick.into_iter().chain(comment).chain(end).min()
    }

    /// Does what time brings. Says whether the task may leave.
    async fn ring(&mut self) -> bool {
        let at = Instant::now();
        let tick = self.reply.as_ref().and_then(Reply::deadline);
        if tick.is_some_and(|tick| tick <= now()) {
            self.feed(Input::Tick).await;
            self.active_at = at;
        }
        self.expire_parked().await;
        if !self.readers.is_empty() && at >= self.active_at + KEEP_ALIVE {
            self.readers.keep_alive();
            self.active_at = at;
        }
        self.is_idle() && at >= self.idle_until()
    }

    fn idle_until(&self) -> Instant {
        // The newest page that was not given the last message stands first, and only this task knows of it.
        let asked_for = self.left_out.front().map(|(_, until)| *until);
        let idle = if self.live.was_used() {
            LIVE_IDLE
        } else {
            IDLE
        };
        (self.active_at + idle).max(asked_for.unwrap_or(self.active_at))
    }

    async fn stop_everything(&mut self) {
        self.feed(Input::Close(Why::Stopped)).await;
        self.run = Run::Idle;
        // A started tool is never cut off: the audit, which outlives the chat, tells what came of it.
        while let Some(done) = self.tools.join_next().await {
            self.tool_done(done).await;
        }
        while self.close_parked(Why::Stopped).await {}
    }

    /// Stores how far the reply has come and ends its readers. The next start marks a partial answer as such, and a
    /// question stays open.
    async fn shut_down(&mut self) {
        let last = Instant::now() + LAST_TOOLS;
        while let Ok(Some(done)) = tokio::time::timeout_at(last, self.tools.join_next()).await {
            self.tool_done(done).await;
        }
        let asking = self.run.is_active() || self.upstream.speaks();
        self.run = Run::Idle;
        let Some(reply) = &self.reply else {
            return;
        };
        if asking
            && let Err(error) = self
                .shared
                .store
                .checkpoint(self.chat(), &reply.record())
                .await
        {
            tracing::error!(chat = %self.chat_id, %error, "the chat {} cannot be stored", self.chat_id);
        }
        self.readers.cut_off(reply, GOING_AWAY);
    }
}

/// Whether a reply does nothing but wait for its front end.
fn waits(record: &Record) -> bool {
    let mut open = record.calls.iter().filter(|call| call.is_open());
    record.ended.is_none() && open.all(Call::waits_for_client)
}

pub fn new_id(kind: &str) -> String {
    format!("{kind}_{}", Uuid::new_v4().simple())
}

/// A reply of which only the message is left.
pub(super) fn ended(message: Message) -> Reply {
    Reply::restore(Record {
        message,
        calls: adk_bridge_protocol::calls::Calls::default(),
        asking: false,
        steps: 0,
        retried: false,
        ended: Some(adk_bridge_protocol::reply::Ended::Finished),
    })
}

/// Tells everybody who asks that the chat cannot be served.
async fn refuse_all(
    mut queue: VecDeque<Command>,
    mut commands: mpsc::Receiver<Command>,
    refusal: AppError,
) {
    commands.close();
    while let Some(command) = commands.recv().await {
        queue.push_back(command);
    }
    for command in queue {
        match command {
            Command::Post {
                answer: AnswerTo::Request(answer),
                ..
            } => drop(answer.send(Err(refusal.clone()))),
            Command::Live(LiveCommand::Sit { answer, .. }) => {
                drop(answer.send(Err(refusal.clone())));
            }
            // The connection is being closed.
            Command::Post { .. } | Command::Live(_) => {}
            Command::ToolOutput { answer, .. } => drop(answer.send(Err(refusal.clone()))),
            Command::Resume { answer, .. } => drop(answer.send(None)),
            Command::Listed { answer, .. }
            | Command::Stop { answer }
            | Command::Close { answer }
            | Command::ShutDown { answer } => drop(answer.send(())),
        }
    }
}
