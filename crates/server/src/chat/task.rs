//! The task of one chat: it owns the reply, the agent's run, the tools that run and the readers.
//!
//! Doors only send it commands, so two things never happen to one chat at once. Its loop is thin: feed an input to the
//! reply, perform the effects that come out, in order.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_agents::agent::{AgentError, News, Request};
use adk_bridge_agents::gemini::GeminiRun;
use adk_bridge_agents::tool::ToolCall;
use adk_bridge_protocol::approval::Time;
use adk_bridge_protocol::calls::Outcome;
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::{Dialect, Reader};
use adk_bridge_protocol::event::Content;
use adk_bridge_protocol::history;
use adk_bridge_protocol::message::{Message, Role};
use adk_bridge_protocol::outbox::{Audit, AuditKind, Commit, Effect, Outbox};
use adk_bridge_protocol::reply::{
    Answer as ClientAnswer, Given, Input, Mode, Record, Reply, RunEnd, Why, answers_of,
};
use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::kept::{self, Pictures, ReplyIds};
use super::plan::{Plan, plan};
use super::readers::{Answer, Readers};
use super::request::ChatRequest;
use super::{GOING_AWAY, Shared, late, now};
use crate::error::AppError;
use crate::metrics::result_of;
use crate::failpoint::failpoint;
use crate::store::{AuditEntry, ChatRef, MessageState, StoreChatState, StoreError};

/// How often a streaming message is stored, so that a crash keeps the partial answer.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// How often an idle answer is kept alive; proxies commonly close after a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a page that was not given the running message may take to ask for it.
const LEFT_OUT: Duration = Duration::from_secs(10);
/// How many such pages are remembered: no user loads one chat more often at once.
const MAX_LEFT_OUT: usize = 16;
/// A task without anything to do goes away; its chat is in the store.
const IDLE: Duration = Duration::from_secs(60);
/// How long tools may go on when the server is being stopped; it has to be gone after five seconds.
const LAST_TOOLS: Duration = Duration::from_secs(3);

/// What doors ask of a chat.
pub enum Command {
    Post {
        request: ChatRequest,
        transport: &'static str,
        answer: oneshot::Sender<Result<Answer, AppError>>,
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
        outcome: Outcome,
        answer: oneshot::Sender<Result<(), AppError>>,
    },
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
    shared: Arc<Shared>,
    user: String,
    chat_id: String,
    /// The messages before the current reply.
    history: Vec<Message>,
    known: bool,
    reply: Option<Reply>,
    readers: Readers,
    outbox: Outbox,
    run: Run,
    tools: JoinSet<(String, Outcome)>,
    /// Requests that wait until started tools have ended.
    queue: VecDeque<Command>,
    /// The messages that pages were not given because they were running, and until when those may ask for them.
    left_out: VecDeque<(String, Instant)>,
    turn_id: String,
    origin: Origin,
    refused: usize,
    checkpointed: Instant,
    ids: ReplyIds,
    /// A commit failed: what is in memory is worth nothing any more.
    lost: bool,
    pictures: Arc<Pictures>,
    /// The turn that is open, for the log and the metrics.
    turn: Option<Turn>,
    /// When the request came that the next turn is for.
    arrived: Option<Instant>,
}

/// What is measured of a turn.
struct Turn {
    began: Instant,
    /// Whether the agent has said something.
    spoke: bool,
}

/// Where the current turn came from, for the audit.
#[derive(Debug, Clone, Copy)]
struct Origin {
    transport: &'static str,
    dialect: Dialect,
}

type Starting = Pin<Box<dyn Future<Output = Result<GeminiRun, AgentError>> + Send>>;

enum Run {
    Idle,
    Starting(Starting),
    Reading(Box<GeminiRun>),
}

/// What a run has come to.
enum Progress {
    Started(Box<GeminiRun>),
    Piece(Bytes),
    Over,
    Failed(AgentError),
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
        if let Err(error) = task.load().await {
            tracing::error!(chat = %task.chat_id, %error, "the chat {} cannot be loaded", task.chat_id);
            return refuse_all(commands, &error).await;
        }
        task.feed(Input::Boot).await;
        loop {
            if task.lost {
                return task.let_go().await;
            }
            let deadline = task.deadline();
            let room = task.readers.have_room();
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::Close { answer }) => {
                        task.stop_everything().await;
                        let _ = answer.send(());
                        return;
                    }
                    Some(Command::ShutDown { answer }) => {
                        task.shut_down().await;
                        let _ = answer.send(());
                        return;
                    }
                    Some(command) => task.command(command).await,
                    None => return,
                },
                Some(done) = task.tools.join_next(), if !task.tools.is_empty() => {
                    task.tool_done(done).await;
                }
                progress = task.run.progress(), if room && task.run.is_active() => {
                    task.progress(progress).await;
                }
                () = task.readers.room(), if !room => {}
                () = tokio::time::sleep_until(deadline.at), if deadline.due => {
                    task.feed(Input::Tick).await;
                }
                () = tokio::time::sleep(KEEP_ALIVE), if !task.readers.is_empty() => {
                    task.readers.keep_alive();
                }
                () = tokio::time::sleep(IDLE), if task.is_idle() => {
                    if commands.is_empty() {
                        return;
                    }
                }
            }
            task.take_queued().await;
        }
    }

    fn new(shared: Arc<Shared>, user: String, chat_id: String) -> Self {
        Self {
            ids: ReplyIds::new(shared.files.clone()),
            readers: Readers::new(shared.metrics.clone()),
            pictures: Arc::default(),
            turn: None,
            arrived: None,
            shared,
            user,
            chat_id,
            history: Vec::new(),
            known: false,
            reply: None,
            outbox: Outbox::default(),
            run: Run::Idle,
            tools: JoinSet::new(),
            queue: VecDeque::new(),
            left_out: VecDeque::new(),
            turn_id: new_id("turn"),
            origin: Origin {
                transport: "none",
                dialect: Dialect::Native,
            },
            refused: 0,
            checkpointed: Instant::now(),
            lost: false,
        }
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        let store = self.shared.store.clone();
        let chat = ChatRef {
            user: &self.user,
            id: &self.chat_id,
        };
        if store.chat(chat).await?.is_none() {
            return Ok(());
        }
        let mut messages = store.messages(chat).await?;
        // A chat that has only files so far was begun by them.
        self.known = !messages.is_empty();
        if let Some(record) = store.open_reply(chat).await? {
            messages.retain(|stored| stored.message.id != record.message.id);
            self.reply = Some(Reply::restore(record));
        } else if let Some(last) = messages.pop_if(|stored| {
            stored.message.role == Role::Assistant && stored.state == MessageState::Done
        }) {
            // Clients repeat their old answers for as long as they like, and the record knows them.
            let record = store.reply(chat, &last.message.id).await?;
            self.reply = Some(record.map_or_else(|| ended(last.message), Reply::restore));
        }
        self.history = messages.into_iter().map(|stored| stored.message).collect();
        Ok(())
    }

    async fn command(&mut self, command: Command) {
        match command {
            Command::Post {
                request,
                transport,
                answer,
            } => self.post(request, transport, answer).await,
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
                if let Some(reply) = &self.reply
                    && last.as_deref() != Some(&reply.message().id)
                {
                    let until = Instant::now() + LEFT_OUT;
                    self.left_out.truncate(MAX_LEFT_OUT - 1);
                    self.left_out
                        .push_front((reply.message().id.clone(), until));
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
                let _ = answer.send(self.tool_output(&call_id, outcome).await);
            }
            Command::Close { .. } | Command::ShutDown { .. } => {}
        }
    }

    /// A reader for a client; one of dialect `adk` is shown images in the message itself.
    async fn reader(&mut self, dialect: Dialect, sdk: Sdk, older: Option<&Message>) -> Reader {
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

    fn chat(&self) -> ChatRef<'_> {
        ChatRef {
            user: &self.user,
            id: &self.chat_id,
        }
    }

    /// The running message, or one that was running when the page was given the others: it may have ended since.
    fn resume(&mut self, reader: Reader) -> Option<Answer> {
        let reply = self.reply.as_ref()?;
        let now = Instant::now();
        self.left_out
            .retain(|(id, until)| *until > now && *id == reply.message().id);
        let left_out = self.left_out.pop_back().is_some();
        if reply.turn().is_some() {
            return Some(self.readers.attach(reader, reply, None));
        }
        left_out.then(|| self.once(reader, reply, None))
    }

    async fn post(
        &mut self,
        mut request: ChatRequest,
        transport: &'static str,
        answer: oneshot::Sender<Result<Answer, AppError>>,
    ) {
        self.arrived = Some(Instant::now());
        if let Some(theirs) = request.messages.last_mut()
            && let Some(ours) = self.history.iter().find(|ours| ours.id == theirs.id)
        {
            kept::recognise(&self.shared.files, self.chat(), theirs, ours).await;
        }
        let current = self.reply.as_ref().map(Reply::message);
        match plan(&request, &self.history, current, self.known) {
            Plan::Answer(message) => {
                self.begin_turn(transport, request.dialect);
                let reader = self
                    .reader(request.dialect, request.sdk, message.as_ref())
                    .await;
                let reply = match (&mut self.reply, message) {
                    (Some(reply), _) if reply.message().id == request.last().id => reply,
                    (_, Some(older)) => {
                        // It has ended, and the client learns how.
                        let refused = late::refusals(request.last(), &older, request.dialect);
                        let stream = match self.append_audit(&refused).await {
                            Ok(()) => Ok(self.once(reader, &ended(older), Some(request.last()))),
                            Err(error) => Err(error.into()),
                        };
                        let _ = answer.send(stream);
                        return;
                    }
                    _ => return,
                };
                let theirs = request.last();
                let stream = self.readers.attach(reader, reply, Some(theirs));
                let _ = answer.send(Ok(stream));
                let answers = answers_of(theirs);
                self.feed(Input::Answers(&answers, Some(Mode::Http))).await;
            }
            Plan::Submit { .. } if self.is_unfinished() => {
                self.feed(Input::Close(Why::Superseded)).await;
                self.queue.push_back(Command::Post {
                    request,
                    transport,
                    answer,
                });
            }
            Plan::Submit { messages, cut } => {
                if let Err(error) = self.append(messages, cut.as_ref()).await {
                    let _ = answer.send(Err(error));
                    return;
                }
                self.begin_turn(transport, request.dialect);
                self.pictures.clear();
                let reader = self.reader(request.dialect, request.sdk, None).await;
                let reply = Reply::new(&new_id("msg"));
                let stream = self.readers.attach(reader, &reply, None);
                self.reply = Some(reply);
                let _ = answer.send(Ok(stream));
                self.feed(Input::Begin(Mode::Http)).await;
            }
            Plan::Refuse(error) => {
                let _ = answer.send(Err(error));
            }
        }
    }

    /// Answers a request that concerns a reply which has ended.
    fn once(&self, reader: Reader, reply: &Reply, theirs: Option<&Message>) -> Answer {
        let mut readers = Readers::new(self.shared.metrics.clone());
        let stream = readers.attach(reader, reply, theirs);
        readers.finish_with(reply);
        stream
    }

    /// Takes new messages into the history, in the store first.
    async fn append(
        &mut self,
        mut messages: Vec<Message>,
        cut: Option<&super::plan::CutAt>,
    ) -> Result<(), AppError> {
        let store = self.shared.store.clone();
        let chat = ChatRef {
            user: &self.user,
            id: &self.chat_id,
        };
        if !self.known {
            store.create_chat(chat, now()).await?;
        }
        kept::keep_messages(&self.shared.files, chat, &mut messages).await?;
        failpoint("before", "message");
        store
            .append(chat, &messages, super::plan::CutAt::for_store(cut), now())
            .await?;
        failpoint("after", "message");
        if let Some(reply) = self.reply.take() {
            self.history.push(reply.message().clone());
        }
        if let Some(cut) = cut {
            cut.apply(&mut self.history);
        }
        self.history.extend(messages);
        self.known = true;
        Ok(())
    }

    async fn tool_output(&mut self, call_id: &str, outcome: Outcome) -> Result<(), AppError> {
        let Some(reply) = &self.reply else {
            return Err(AppError::not_found("call"));
        };
        if reply.calls().by_id(call_id).is_none() {
            return Err(AppError::not_found("call"));
        }
        let refused = self.refused;
        let answer = match &outcome {
            Outcome::Output { value, .. } => ClientAnswer::Output {
                call_id,
                output: value,
            },
            Outcome::Error { text } => ClientAnswer::Failure {
                call_id,
                error: text,
            },
        };
        self.feed(Input::Answers(&[answer], None)).await;
        if self.refused > refused {
            return Err(AppError::conflict(
                "this output is not taken: the call runs on the server, or has an outcome already",
            ));
        }
        Ok(())
    }

    async fn progress(&mut self, progress: Progress) {
        match progress {
            Progress::Started(run) => self.run = Run::Reading(run),
            Progress::Piece(piece) => self.piece(&piece).await,
            Progress::Over => self.over().await,
            Progress::Failed(error) => self.run_failed(error).await,
        }
    }

    /// Feeds everything that one read brought, then sends it in one write.
    async fn piece(&mut self, piece: &[u8]) {
        let (Run::Reading(run), Some(reply)) = (&mut self.run, &mut self.reply) else {
            return;
        };
        self.readers.make_ready(reply);
        self.outbox.clear();
        let (outbox, ids, tools) = (&mut self.outbox, &mut self.ids, &*self.shared.tools);
        let read = run.events(piece, &mut |event| {
            let mut given = Given {
                now: now(),
                ids,
                rules: tools,
            };
            reply.handle(Input::Event(event), &mut given, outbox);
        });
        self.perform().await;
        self.note_first_chunk();
        failpoint("in", "model");
        match read {
            Ok(()) => self.checkpoint().await,
            Err(error) => self.run_failed(error).await,
        }
    }

    async fn over(&mut self) {
        let Run::Reading(mut run) = std::mem::replace(&mut self.run, Run::Idle) else {
            return;
        };
        let Some(reply) = &mut self.reply else {
            return;
        };
        self.readers.make_ready(reply);
        self.outbox.clear();
        let (outbox, ids, tools) = (&mut self.outbox, &mut self.ids, &*self.shared.tools);
        let finished = run.finish(&mut |event| {
            let mut given = Given {
                now: now(),
                ids,
                rules: tools,
            };
            reply.handle(Input::Event(event), &mut given, outbox);
        });
        self.perform().await;
        match finished {
            Ok(()) => self.feed(Input::RunEnded(RunEnd::Done)).await,
            Err(error) => self.run_failed(error).await,
        }
    }

    async fn run_failed(&mut self, error: AgentError) {
        self.run = Run::Idle;
        self.shared.metrics.agent_failed();
        let id = Uuid::new_v4().simple().to_string();
        let id = &id[..8];
        tracing::warn!(chat = %self.chat_id, error = id, detail = %error.detail, "the agent of chat {} failed (error {id})", self.chat_id);
        let message = format!("{} (error {id})", error.message);
        self.feed(Input::RunEnded(RunEnd::Failed(message))).await;
    }

    async fn tool_done(&mut self, done: Result<(String, Outcome), tokio::task::JoinError>) {
        match done {
            Ok((call, mut outcome)) => {
                let chat = ChatRef {
                    user: &self.user,
                    id: &self.chat_id,
                };
                let kept =
                    kept::keep_outcome(&self.shared.files, chat, &mut outcome, &self.pictures)
                        .await;
                if let Err(error) = kept {
                    // The tool has run, and what it came to must be told: the content stays in the message.
                    tracing::warn!(chat = %self.chat_id, %error, "a tool's file in chat {} cannot be stored", self.chat_id);
                }
                self.feed(Input::ToolFinished {
                    call: &call,
                    outcome,
                })
                .await;
            }
            Err(error) => tracing::error!(chat = %self.chat_id, %error, "a tool's task died"),
        }
    }

    /// Feeds one input to the reply and performs what comes of it.
    async fn feed(&mut self, input: Input<'_>) {
        let Some(reply) = &mut self.reply else {
            return;
        };
        self.readers.make_ready(reply);
        self.outbox.clear();
        {
            let mut given = Given {
                now: now(),
                ids: &mut self.ids,
                rules: &*self.shared.tools,
            };
            reply.handle(input, &mut given, &mut self.outbox);
        }
        self.perform().await;
    }

    async fn perform(&mut self) {
        if self.turn.is_none()
            && self
                .reply
                .as_ref()
                .is_some_and(|reply| reply.turn().is_some())
        {
            self.turn_begins();
        }
        let chat = ChatRef {
            user: &self.user,
            id: &self.chat_id,
        };
        if let Err(error) = self.ids.store_made(chat, &self.pictures).await {
            tracing::error!(chat = %self.chat_id, %error, "a file of chat {} cannot be stored", self.chat_id);
            return self.abandon();
        }
        let effects = std::mem::take(&mut self.outbox.effects);
        for effect in &effects {
            match effect {
                Effect::Commit(commit) => {
                    if let Err(error) = self.commit(commit).await {
                        tracing::error!(chat = %self.chat_id, %error, "the chat {} cannot be stored", self.chat_id);
                        self.abandon();
                        break;
                    }
                }
                Effect::Frames(range) => {
                    self.shared.metrics.chunks(range.len());
                    if let Some(reply) = &self.reply {
                        self.readers.frames(reply, &self.outbox, range.clone());
                    }
                }
                Effect::RunTool { call } => self.run_tool(call),
                Effect::Ask(_) => self.ask().await,
                Effect::CancelRun => self.run = Run::Idle,
                Effect::End => {
                    if let Some(reply) = &self.reply {
                        self.readers.end(reply);
                    }
                    self.turn_ends();
                }
                Effect::HoldUntil(_)
                | Effect::Heard { .. }
                | Effect::Artifact { .. }
                | Effect::Interrupted
                | Effect::TurnComplete => {}
            }
        }
        self.outbox.effects = effects;
        self.readers.flush();
        if self.outbox.effects.last() == Some(&Effect::End) {
            failpoint("after", "frames");
        }
    }

    async fn commit(&mut self, commit: &Commit) -> Result<(), StoreError> {
        let at = now();
        for row in &commit.audit {
            self.shared.metrics.audited(row.kind);
        }
        self.refused += commit
            .audit
            .iter()
            .filter(|row| row.kind == AuditKind::AnswerRefused)
            .count();
        let entries = self.entries(&commit.audit, at);
        let chat = ChatRef {
            user: &self.user,
            id: &self.chat_id,
        };
        self.checkpointed = Instant::now();
        let step = step_of(commit);
        failpoint("before", step);
        self.shared
            .store
            .commit(chat, &commit.record, &entries, at)
            .await?;
        failpoint("after", step);
        Ok(())
    }

    async fn append_audit(&mut self, audit: &[Audit]) -> Result<(), StoreError> {
        if audit.is_empty() {
            return Ok(());
        }
        let chat = ChatRef {
            user: &self.user,
            id: &self.chat_id,
        };
        let entries = self.entries(audit, now());
        self.shared.store.append_audit(chat, &entries).await
    }

    /// Rows of the audit with where they came from.
    fn entries(&self, audit: &[Audit], at: Time) -> Vec<AuditEntry> {
        let dialect = match self.origin.dialect {
            Dialect::Native => "native",
            Dialect::Adk => "adk",
        };
        audit
            .iter()
            .map(|audit| AuditEntry {
                at,
                turn_id: Some(self.turn_id.clone()),
                connection_id: None,
                transport: Some(self.origin.transport.to_owned()),
                dialect: Some(dialect.to_owned()),
                audit: audit.clone(),
            })
            .collect()
    }

    async fn checkpoint(&mut self) {
        if self.checkpointed.elapsed() < CHECKPOINT || !self.run.is_active() {
            return;
        }
        self.checkpointed = Instant::now();
        let Some(record) = self.reply.as_ref().map(Reply::record) else {
            return;
        };
        let chat = ChatRef {
            user: &self.user,
            id: &self.chat_id,
        };
        if let Err(error) = self.shared.store.checkpoint(chat, &record).await {
            tracing::warn!(chat = %self.chat_id, %error, "a checkpoint failed; the answer goes on");
        }
        failpoint("after", "checkpoint");
    }

    /// What cannot be stored must not be told: the readers hear that it failed, and the task ends, so that the next
    /// request reads the store anew.
    fn abandon(&mut self) {
        self.readers
            .fail("the answer could not be stored; load the chat again and see how far it came");
        self.run = Run::Idle;
        self.reply = None;
        self.turn = None;
        self.lost = true;
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

    fn run_tool(&mut self, id: &str) {
        let Some(call) = self
            .reply
            .as_ref()
            .and_then(|reply| reply.calls().by_id(id))
        else {
            return;
        };
        let Some(tool) = self.shared.tools.server_tool(&call.name) else {
            // Approved before a restart that took the tool away.
            let text = format!("there is no tool named {:?}", call.name);
            let done = (id.to_owned(), Outcome::error(text));
            self.tools.spawn(std::future::ready(done));
            return;
        };
        let chat = ChatRef {
            user: &self.user,
            id: &self.chat_id,
        };
        let run = ToolCall {
            chat_id: self.chat_id.clone(),
            call_id: id.to_owned(),
            input: call.input.clone(),
            state: Arc::new(StoreChatState::new(self.shared.store.clone(), chat)),
        };
        let (id, limit) = (id.to_owned(), self.shared.tool_timeout);
        self.tools.spawn(async move {
            failpoint("before", "tool");
            let run = AssertUnwindSafe(tool.run(run)).catch_unwind();
            let outcome = match tokio::time::timeout(limit, run).await {
                Ok(Ok(outcome)) => outcome,
                // A call that is never settled would block its chat.
                Ok(Err(_)) => Outcome::error("the tool broke down, and its outcome is unknown"),
                Err(_) => Outcome::error(format!(
                    "the tool gave no result within {} seconds",
                    limit.as_secs()
                )),
            };
            failpoint("after", "tool");
            (id, outcome)
        });
    }

    async fn ask(&mut self) {
        failpoint("before", "model");
        let mut messages = self.history.clone();
        if let Some(reply) = &self.reply
            && !reply.message().parts.is_empty()
        {
            messages.push(reply.message().clone());
        }
        kept::inline(&self.shared.files, self.chat(), &mut messages).await;
        let request = Request {
            chat_id: &self.chat_id,
            user: &self.user,
            contents: history::contents(&messages),
            news: News::Message(Content::default()),
            tools: self.shared.tools.specs(),
        };
        self.run = Run::Starting(Box::pin(self.shared.agent.start(&request)));
    }

    fn begin_turn(&mut self, transport: &'static str, dialect: Dialect) {
        self.turn_id = new_id("turn");
        self.origin = Origin { transport, dialect };
    }

    fn turn_begins(&mut self) {
        self.shared.metrics.turn_started();
        self.turn = Some(Turn {
            began: self.arrived.take().unwrap_or_else(Instant::now),
            spoke: false,
        });
    }

    fn note_first_chunk(&mut self) {
        if let Some(turn) = &mut self.turn
            && !turn.spoke
        {
            let says = |effect: &Effect| matches!(effect, Effect::Frames(_));
            if self.outbox.effects.iter().any(says) {
                turn.spoke = true;
                self.shared.metrics.first_chunk(turn.began.elapsed());
            }
        }
    }

    fn turn_ends(&mut self) {
        // One that began and ended with the same input.
        if self.turn.is_none() {
            self.turn_begins();
        }
        let ended = self.reply.as_ref().and_then(Reply::ended);
        self.shared.metrics.turn_ended(ended);
        let (chat, turn, result) = (&self.chat_id, &self.turn_id, result_of(ended));
        let millis = self
            .turn
            .take()
            .map(|turn| turn.began.elapsed().as_millis());
        tracing::info!(
            chat,
            turn,
            result,
            millis,
            "the turn {turn} of chat {chat} ended: {result}"
        );
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

    fn is_unfinished(&self) -> bool {
        self.reply
            .as_ref()
            .is_some_and(|reply| reply.ended().is_none() || !reply.is_at_rest())
    }

    fn is_idle(&self) -> bool {
        !self.run.is_active()
            && self.tools.is_empty()
            && self.readers.is_empty()
            && self.queue.is_empty()
            && self.reply.as_ref().and_then(Reply::deadline).is_none()
    }

    fn deadline(&self) -> Deadline {
        let at = self.reply.as_ref().and_then(Reply::deadline);
        let wait = at.map_or(0, |at: Time| at.saturating_sub(now()));
        Deadline {
            due: at.is_some(),
            at: Instant::now() + Duration::from_millis(wait),
        }
    }

    async fn stop_everything(&mut self) {
        self.feed(Input::Close(Why::Stopped)).await;
        self.run = Run::Idle;
        // A started tool is never cut off: the audit, which outlives the chat, tells what came of it.
        while let Some(done) = self.tools.join_next().await {
            self.tool_done(done).await;
        }
    }

    /// Stores how far the reply has come and ends its readers. The next start marks a partial answer as such, and a
    /// question stays open.
    async fn shut_down(&mut self) {
        let last = Instant::now() + LAST_TOOLS;
        while let Ok(Some(done)) = tokio::time::timeout_at(last, self.tools.join_next()).await {
            self.tool_done(done).await;
        }
        let asking = self.run.is_active();
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

struct Deadline {
    due: bool,
    at: Instant,
}

impl Run {
    fn is_active(&self) -> bool {
        !matches!(self, Self::Idle)
    }

    /// The next thing that a run brings. May be dropped and called again.
    async fn progress(&mut self) -> Progress {
        match self {
            Self::Idle => std::future::pending().await,
            Self::Starting(starting) => match starting.await {
                Ok(run) => Progress::Started(Box::new(run)),
                Err(error) => Progress::Failed(error),
            },
            Self::Reading(run) => match run.read().await {
                Ok(Some(piece)) => Progress::Piece(piece),
                Ok(None) => Progress::Over,
                Err(error) => Progress::Failed(error),
            },
        }
    }
}

/// What a commit makes durable, in a word.
fn step_of(commit: &Commit) -> &'static str {
    let record = &commit.record;
    let told = |kinds: &[AuditKind]| commit.audit.iter().any(|row| kinds.contains(&row.kind));
    if told(&[AuditKind::ApprovalRequested]) {
        "question"
    } else if told(&[AuditKind::ApprovalApproved, AuditKind::ApprovalDenied]) {
        "decision"
    } else if told(&[AuditKind::ToolStarted]) {
        "start"
    } else if told(&[AuditKind::ToolFinished, AuditKind::ToolFailed]) {
        "outcome"
    } else if record.ended.is_some() {
        "end"
    } else if record.asking {
        "asking"
    } else {
        "pause"
    }
}

pub fn new_id(kind: &str) -> String {
    format!("{kind}_{}", Uuid::new_v4().simple())
}

/// A reply of which only the message is left.
fn ended(message: Message) -> Reply {
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
async fn refuse_all(mut commands: mpsc::Receiver<Command>, error: &StoreError) {
    commands.close();
    while let Some(command) = commands.recv().await {
        let refusal = AppError::unavailable(format!("the chat cannot be loaded: {error}"));
        match command {
            Command::Post { answer, .. } => drop(answer.send(Err(refusal))),
            Command::ToolOutput { answer, .. } => drop(answer.send(Err(refusal))),
            Command::Resume { answer, .. } => drop(answer.send(None)),
            Command::Listed { answer, .. }
            | Command::Stop { answer }
            | Command::Close { answer }
            | Command::ShutDown { answer } => drop(answer.send(())),
        }
    }
}
