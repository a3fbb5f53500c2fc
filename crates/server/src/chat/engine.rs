//! The engine of a chat: feeds the current reply, performs its effects in order, and keeps its readers.
//!
//! ```text
//!   input ──▶ Driver ──▶ effects ──┬─ commit ────▶ store        what follows waits for it
//!                                  ├─ frames ────▶ readers
//!                                  ├─ run a tool ▶ tools ──▶ ToolFinished, ToolAsks
//!                                  └─ the rest ──▶ Action       for the task: ask the agent, tell the live client
//! ```
//!
//! There is no other way to feed a reply. If a commit fails the reply is abandoned: its memory is ahead of the store,
//! and none of that has been sent.

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_agents::tool::ToolCall;
use adk_bridge_agents::trace_context::TraceContext;
use adk_bridge_protocol::approval::Refusal;
use adk_bridge_protocol::calls::Outcome;
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::{Dialect, Reader};
use adk_bridge_protocol::driver::Driver;
use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::id::{CallId, MessageId};
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::{Ask, Audit, AuditKind, Commit, Effect};
use adk_bridge_protocol::reply::{Context, EndReason, Input, Policy as _, Record, Reply, Runner};
use adk_bridge_protocol::time::Timestamp;
use tokio::time::Instant;

use super::attachments::{self, Pictures, ReplyIds};
use super::checkpoints::ReplyCheckpoint;
use super::context::ChatContext;
use super::now;
use super::policy::ChatPolicy;
use super::readers::{Answer, Readers};
use super::tool_runs::{ToolEvent, ToolFinished, ToolRuns};
use super::turn::{TurnRecord, step_of};
use crate::failpoint::failpoint;
use crate::files::FileError;
use crate::files::address::Base;
use crate::metrics::StoreOperation;
use crate::spending::tokens_in;
use crate::store::{
    AuditEntry, CommittedSize, Opening, StoreChatState, StoreError, Tokens, WriteProblem,
};

/// How often a streaming message is stored, so that a crash keeps the partial answer.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// After a checkpoint of a whole message the next one waits this many times as long as it took, so that they become rarer
/// as an answer grows, and never take more than a fiftieth of its time.
const CHECKPOINT_REST: u32 = 49;

pub(super) struct ReplyEngine {
    context: ChatContext,
    policy: ChatPolicy,
    current: Option<Driver>,
    readers: Readers,
    turn: TurnRecord,
    tools: ToolRuns,
    ids: ReplyIds,
    pictures: Arc<Pictures>,
    /// The answers of the last input that were refused.
    refusals: Vec<Refusal>,
    checkpoint: ReplyCheckpoint,
    /// Of the current reply, if it was begun here.
    last: LastCommit,
    /// Whether a commit failed, so that the state in memory must not be used.
    abandoned: bool,
}

/// What the last commit of a reply has stored.
#[derive(Default)]
struct LastCommit {
    size: Option<CommittedSize>,
    /// The usage that was counted after it.
    counted: Option<Tokens>,
}

/// What the effects ask of the task.
pub(super) enum Action {
    /// Ask the agent.
    Ask(Ask),
    /// Stop the run that is under way.
    CancelRun,
    /// The user's speech as text.
    Heard { text: String, finished: bool },
    /// The user spoke while the model did.
    Interrupted,
    /// A live agent has ended its turn.
    TurnComplete,
    /// The turn is over.
    TurnEnded,
}

/// What the engine waits for.
pub(super) enum EngineEvent {
    Tool(ToolEvent),
    /// A reader has room again, or all that had none were dropped.
    ReadersHaveRoom,
}

/// Why a reply is not gone on with.
#[derive(Debug)]
pub(super) enum Abandoned {
    /// Something could not be stored, and why, where that is known.
    NotStored(Option<WriteProblem>),
    /// The chat has another owner, or may have one.
    Fenced,
}

/// Where the events of an agent come from.
#[derive(Debug, Clone, Copy)]
pub(super) enum EventSource {
    Run,
    /// A live connection.
    Live,
}

/// What a reader needs to know about its client.
pub(super) struct ReaderOptions<'b> {
    pub(super) dialect: Dialect,
    pub(super) sdk: Sdk,
    pub(super) base: &'b Base,
}

impl ReplyEngine {
    pub(super) fn new(context: ChatContext) -> Self {
        Self {
            ids: ReplyIds::new(context.clone()),
            readers: context.new_readers(),
            policy: ChatPolicy::new(context.tools()),
            context,
            current: None,
            turn: TurnRecord::new(),
            tools: ToolRuns::new(),
            pictures: Arc::default(),
            refusals: Vec::new(),
            checkpoint: ReplyCheckpoint::new(),
            last: LastCommit::default(),
            abandoned: false,
        }
    }

    /// Follows the rules of the chat's agent from here on.
    pub(super) fn follow_agent(&mut self) {
        self.policy.use_tools(self.context.tools());
    }

    /// Whether the bridge asks the model and runs its tools, so that a step can be asked for again.
    pub(super) fn asks_itself(&self) -> bool {
        self.policy.runner() == Runner::Bridge
    }

    /// The current reply.
    pub(super) fn reply(&self) -> Option<&Reply> {
        self.current.as_ref().map(Driver::reply)
    }

    /// The message of the current reply.
    pub(super) fn message(&self) -> Option<&Message> {
        self.reply().map(Reply::message)
    }

    pub(super) fn message_id(&self) -> Option<&MessageId> {
        self.message().map(|message| &message.id)
    }

    /// Makes another reply the current one. Returns the one before.
    pub(super) fn replace(&mut self, reply: Option<Reply>) -> Option<Reply> {
        self.last = LastCommit::default();
        self.checkpoint.forget();
        std::mem::replace(&mut self.current, reply.map(Driver::new)).map(Driver::into_reply)
    }

    /// What the last commit of the current reply has stored.
    pub(super) fn committed(&self) -> Option<CommittedSize> {
        self.last.size
    }

    /// Releases the reply and its images: the store has them.
    pub(super) fn release(&mut self) {
        self.last = LastCommit::default();
        self.checkpoint.forget();
        self.current = None;
        self.pictures.clear();
    }

    /// How many bytes of content were translated for the current reply in this process.
    pub(super) fn content_bytes(&self) -> usize {
        self.reply().map_or(0, Reply::content_bytes)
    }

    /// Ends answers that become longer than this, as `server.max_answer_bytes` does.
    pub(super) fn limit_answer(&mut self, bytes: usize) {
        self.policy.limit_answer(bytes);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Whether the current reply asks, waits or runs tools.
    pub(super) fn is_unfinished(&self) -> bool {
        self.reply()
            .is_some_and(|reply| reply.ended().is_none() || !reply.is_at_rest())
    }

    /// Whether a turn of the current reply is open.
    pub(super) fn has_open_turn(&self) -> bool {
        self.reply().is_some_and(|reply| reply.turn().is_some())
    }

    pub(super) fn turn(&mut self) -> &mut TurnRecord {
        &mut self.turn
    }

    pub(super) fn turn_limit(&self) -> Option<Instant> {
        self.turn.limit(self.context.settings.get().turn_time)
    }

    pub(super) fn is_in_turn(&self) -> bool {
        self.turn.is_open()
    }

    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }

    pub(super) fn readers_mut(&mut self) -> &mut Readers {
        &mut self.readers
    }

    // Readers.

    /// Makes a reader for a client, with the images if its dialect shows them inside messages.
    pub(super) async fn reader(
        &mut self,
        options: ReaderOptions<'_>,
        older: Option<&Message>,
    ) -> Reader {
        let context = &self.context;
        let base = options.base.in_dialect(options.dialect);
        let reader = Reader::new(
            options.dialect,
            options.sdk,
            context.tools().withholds(options.dialect),
        )
        .with_addresses(context.addresses.for_reader(&base, now()));
        if !options.dialect.inlines_images() {
            return reader;
        }
        let pictures = match older {
            // Readers of the current reply do not need them.
            Some(_) => Arc::default(),
            None => self.pictures.clone(),
        };
        let message = older.or_else(|| self.message());
        pictures.load(&context.files, context.chat(), message).await;
        reader.with_images(pictures)
    }

    /// Attaches a reader to the current reply. `has`: what its client has of the message.
    pub(super) fn attach(&mut self, reader: Reader, has: Option<&Message>) -> Option<Answer> {
        let reply = self.current.as_ref()?.reply();
        Some(self.readers.attach(reader, reply, has))
    }

    /// Attaches a reader to the current reply whose client has all of it so far.
    pub(super) fn attach_up_to_date(&mut self, reader: Reader) -> Option<Answer> {
        let has = reader.whole(self.reply()?);
        self.attach(reader, Some(&has))
    }

    /// Attaches a reader to a reply that has just begun; it sees everything from the beginning.
    pub(super) fn attach_to_begun(&mut self, reader: Reader) -> Option<Answer> {
        let begun = Reply::new(self.message_id()?.clone());
        Some(self.readers.attach(reader, &begun, None))
    }

    /// Shows the current reply to a reader once, and ends its answer.
    pub(super) fn show_once(&self, reader: Reader) -> Option<Answer> {
        let reply = self.reply()?;
        let mut readers = self.context.new_readers();
        let answer = readers.attach(reader, reply, None);
        readers.finish_with(reply);
        Some(answer)
    }

    /// Ends the answers of readers that were sent chunks outside of a turn.
    pub(super) fn finish_readers(&mut self) {
        if let Some(driver) = &self.current {
            self.readers.finish_with(driver.reply());
        }
    }

    /// Ends the turn for all readers before its own end.
    pub(super) fn cut_off_readers(&mut self, why: &str) {
        if let Some(driver) = &self.current {
            self.readers.cut_off(driver.reply(), why);
        }
    }

    // Inputs.

    /// Feeds one input; [`ReplyEngine::next_action`] performs its effects.
    pub(super) fn feed(&mut self, input: Input<'_>) {
        self.refusals.clear();
        let Some(driver) = &mut self.current else {
            return;
        };
        self.readers.make_ready(driver.reply());
        let mut context = input_context(&mut self.ids, &self.policy);
        driver.feed(input, &mut context).defer();
    }

    /// Feeds the events of an agent that `read` hands to its sink, as one batch. More may follow before
    /// [`ReplyEngine::next_action`] performs their effects.
    pub(super) fn feed_events<T>(
        &mut self,
        source: EventSource,
        read: impl FnOnce(&mut (dyn FnMut(&Event<'_>) + Send)) -> T,
    ) -> T {
        let Some(driver) = &mut self.current else {
            return read(&mut |_| {});
        };
        let mut context = input_context(&mut self.ids, &self.policy);
        let mut batch = if driver.outbox().effects().next().is_none() {
            self.readers.make_ready(driver.reply());
            driver.batch(&mut context)
        } else {
            // No reader may catch up now: it would get what has not been sent once more.
            driver.extend(&mut context)
        };
        let result = read(&mut |event| {
            let hidden = super::agent_runs::without_secrets(event);
            let event = hidden.as_ref().unwrap_or(event);
            batch.feed(match source {
                EventSource::Run => Input::Event(event),
                EventSource::Live => Input::LiveEvent(event),
            });
        });
        let says = |effect: &Effect| matches!(effect, Effect::Frames(_));
        let effects = batch.effects();
        if effects.peek().any(says) {
            self.turn.chunk_sent();
        }
        effects.defer();
        result
    }

    /// Sets the number of the live turn that comes next, and the message that the user's speech becomes.
    pub(super) fn set_live_turn(&mut self, turn: u32, user_message: Option<&MessageId>) {
        if let Some(driver) = &mut self.current {
            driver.set_live_turn(turn, user_message);
        }
    }

    /// Begins a reply with an input and stores its first commit together with the messages that it answers, so that a crash leaves no
    /// question without an answer. The reply becomes the current one; returns the one before. Its other effects are
    /// performed later, so that a reader can be attached in between.
    pub(super) async fn begin(
        &mut self,
        id: &MessageId,
        input: Input<'_>,
        opening: Opening<'_>,
    ) -> Result<Option<Reply>, StoreError> {
        let mut driver = Driver::new(Reply::new(id.clone()));
        let mut context = input_context(&mut self.ids, &self.policy);
        driver.feed(input, &mut context).defer();
        let commit = driver.take_commit().unwrap_or_else(|| Commit {
            record: driver.reply().record(),
            audit: Vec::new(),
        });
        let (at, step) = (now(), step_of(&commit));
        let entries = self.audit_entries(&commit.audit, at);
        failpoint("before", step);
        let (store, chat) = (&self.context.store, self.context.chat());
        let _timed = self.context.metrics.store(StoreOperation::Begin);
        store
            .begin(chat, opening, &commit.record, &entries, at)
            .await
            .inspect_err(|error| self.context.note_refused_write(error))?;
        failpoint("after", step);
        self.checkpoint.set_due(Instant::now() + CHECKPOINT);
        self.last = LastCommit::default();
        self.checkpoint.forget();
        self.pictures.clear();
        let before = self.current.replace(driver);
        Ok(before.map(Driver::into_reply))
    }

    // Effects.

    /// Performs effects, in order, up to one that the task has to perform; `None` when all are done.
    pub(super) async fn next_action(&mut self) -> Result<Option<Action>, Abandoned> {
        self.store_made_files().await?;
        self.store_asked().await?;
        while let Some(driver) = &mut self.current
            && let Some(effect) = driver.effects().next()
        {
            match effect {
                Effect::Commit(commit) => self.commit(&commit).await?,
                // Another owner may go on already.
                Effect::Frames(_)
                | Effect::End
                | Effect::RunTool { .. }
                | Effect::AnswerTool { .. }
                | Effect::Ask(_)
                    if !self.context.is_held() =>
                {
                    return Err(Abandoned::Fenced);
                }
                Effect::Frames(range) => {
                    self.context.metrics.chunks(range.len());
                    self.readers.frames(driver.reply(), driver.outbox(), range);
                }
                Effect::RunTool { call } => self.run_tool(&call),
                Effect::AnswerTool { question, answer } => self.tools.answer(&question, answer),
                Effect::Refused { refusal, .. } => self.refusals.push(refusal),
                Effect::Ignored(why) => {
                    let chat = self.context.chat_id().as_str();
                    tracing::debug!(chat, %why, "an input to the reply of chat {chat} was ignored: {why}");
                }
                Effect::End => {
                    self.end_turn();
                    self.context.trace().keep(&self.context).await;
                    return Ok(Some(Action::TurnEnded));
                }
                Effect::Ask(ask) => return Ok(Some(Action::Ask(ask))),
                Effect::CancelRun => return Ok(Some(Action::CancelRun)),
                Effect::Heard { text, finished } => {
                    return Ok(Some(Action::Heard { text, finished }));
                }
                Effect::Interrupted => return Ok(Some(Action::Interrupted)),
                Effect::TurnComplete => return Ok(Some(Action::TurnComplete)),
            }
        }
        Ok(None)
    }

    /// Whether there is nothing to be done but to send frames in an open turn, as [`ReplyEngine::pass_on`] does.
    pub(super) fn only_streams(&self) -> bool {
        let is_frames = |effect: &Effect| matches!(effect, Effect::Frames(_));
        let outbox = self.current.as_ref().map(Driver::outbox);
        outbox.is_some_and(|outbox| outbox.effects().all(is_frames))
            && self.turn.is_open()
            && !self.ids.has_news()
            && self.context.is_held()
    }

    /// Sends the frames, if there is nothing else to be done: see [`ReplyEngine::only_streams`].
    pub(super) fn pass_on(&mut self) {
        while let Some(driver) = &mut self.current
            && let Some(Effect::Frames(range)) = driver.effects().next()
        {
            self.context.metrics.chunks(range.len());
            self.readers.frames(driver.reply(), driver.outbox(), range);
        }
        self.readers.flush();
    }

    /// Whether the input has begun a turn. Call it before the effects are performed.
    pub(super) fn begins_turn(&mut self) -> bool {
        let begins = !self.turn.is_open() && self.has_open_turn();
        if begins {
            let reply = self
                .current
                .as_ref()
                .map(|driver| &driver.reply().message().id);
            self.turn.begin(&self.context, reply);
        }
        begins
    }

    /// Whether the next effects send anything to readers.
    pub(super) fn has_news_for_readers(&self) -> bool {
        let tells = |effect: &Effect| matches!(effect, Effect::Frames(_) | Effect::End);
        let driver = self.current.as_ref();
        driver.is_some_and(|driver| driver.outbox().effects().any(tells))
    }

    /// The answers of the last input that were refused.
    pub(super) fn take_refusals(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.refusals)
    }

    /// Sends readers what has been written for them.
    pub(super) fn flush(&mut self) {
        self.readers.flush();
    }

    /// Lets go of everything, since another replica goes on with the chat: readers are cut, and what tools do is not heard
    /// of any more. A started tool is not aborted.
    pub(super) fn let_go(&mut self) {
        self.readers.cut();
        self.tools.detach();
        self.current = None;
        self.turn.abandon();
    }

    pub(super) fn is_checkpoint_due(&self, at: Instant) -> bool {
        self.checkpoint.is_due(at)
    }

    /// Stores the message as it is, if that is due.
    pub(super) async fn checkpoint(&mut self) {
        let began = Instant::now();
        if !self.is_checkpoint_due(began) {
            return;
        }
        let message = self.current.as_ref().map(|driver| driver.reply().message());
        if message.is_some_and(|message| self.checkpoint.store_growth(message, &self.context)) {
            self.checkpoint.set_due(began + CHECKPOINT);
            return;
        }
        if let Err(error) = self.store_record().await {
            let chat = self.context.chat_id().as_str();
            self.context.note_refused_write(&error);
            tracing::warn!(chat, %error, "a checkpoint failed");
        }
        self.checkpoint
            .set_due(Instant::now() + CHECKPOINT.max(began.elapsed() * CHECKPOINT_REST));
        failpoint("after", "checkpoint");
    }

    /// Stores the message as it is.
    pub(super) async fn store_record(&mut self) -> Result<(), StoreError> {
        let Some(record) = self.reply().map(Reply::record) else {
            return Ok(());
        };
        let (store, chat) = (&self.context.store, self.context.chat());
        let timed = self.context.metrics.store(StoreOperation::Checkpoint);
        store.checkpoint(chat, &record).await?;
        drop(timed);
        self.checkpoint.note_stored(&record.message);
        Ok(())
    }

    /// Adds rows to the audit that belong to no change of the reply.
    pub(super) async fn append_audit(&mut self, audit: &[Audit]) -> Result<(), StoreError> {
        if audit.is_empty() {
            return Ok(());
        }
        let entries = self.audit_entries(audit, now());
        let (store, chat) = (&self.context.store, self.context.chat());
        let appended = store.append_audit(chat, &entries).await;
        appended.inspect_err(|error| self.context.note_refused_write(error))
    }

    /// Drops a reply that could not be stored, because nothing may be sent that is not stored. Readers get an error,
    /// and the next request reads the store.
    pub(super) fn abandon(&mut self, why: Option<WriteProblem>) {
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        self.readers.fail(&format!(
            "the answer could not be stored{why}; load the chat again to see what was stored"
        ));
        self.current = None;
        self.turn.abandon();
        self.abandoned = true;
    }

    async fn store_made_files(&mut self) -> Result<(), Abandoned> {
        let chat = self.context.chat();
        let stored = self.ids.store_made(&self.pictures).await;
        stored.map_err(|error| {
            match &error {
                FileError::Store(error) => self.context.abandoned(error, "a file"),
                error => {
                    tracing::error!(chat = chat.id.as_str(), %error, "a file of chat {} cannot be stored", chat.id);
                    Abandoned::NotStored(None)
                }
            }
        })
    }

    /// What addresses for the client of a request begin with.
    pub(super) fn note_base(&mut self, base: &Base) {
        self.ids.note_base(base);
    }

    /// Notes that the store keeps credentials for these calls.
    pub(super) fn note_credentials(&mut self, calls: Vec<CallId>) {
        self.ids.note_credentials(calls);
    }

    async fn store_asked(&mut self) -> Result<(), Abandoned> {
        self.ids
            .store_asked()
            .await
            .map_err(|error| self.context.abandoned(&error, "a question of the agent"))
    }

    async fn commit(&mut self, commit: &Commit) -> Result<(), Abandoned> {
        let (at, step) = (now(), step_of(commit));
        let entries = self.audit_entries(&commit.audit, at);
        self.checkpoint.set_due(Instant::now() + CHECKPOINT);
        failpoint("before", step);
        let (store, chat) = (&self.context.store, self.context.chat());
        let timed = self.context.metrics.store(StoreOperation::Commit);
        let stored = store.commit(chat, &commit.record, &entries, at).await;
        drop(timed);
        let stored = stored.map_err(|error| self.context.abandoned(&error, "the chat"))?;
        self.last.size = Some(stored);
        if commit.record.ended.is_none() {
            self.checkpoint.note_stored(&commit.record.message);
        }
        failpoint("after", step);
        if self.context.spending.counts() {
            self.count_usage(&commit.record).await;
        }
        self.ids.forget_closed(&commit.record).await;
        Ok(())
    }

    /// Counts what the reply has used since it was counted last. What cannot be counted is part of what the next commit
    /// counts; at the end of a reply it is lost.
    async fn count_usage(&mut self, record: &Record) {
        let (context, message) = (&self.context, &record.message);
        let served = context.served();
        let Some(so_far) = tokens_in(message.metadata.as_ref()) else {
            if record.ended == Some(EndReason::Finished) {
                context.spending.note_silent(served.id());
            }
            return;
        };
        if self.last.counted == Some(so_far) {
            return;
        }
        let (chat, reply) = (context.chat(), (&message.id, so_far));
        let counting = context
            .spending
            .count(&*context.store, chat, reply, served.id(), now());
        match counting.await {
            Ok(()) => self.last.counted = Some(so_far),
            Err(error) => {
                context.note_refused_write(&error);
                tracing::warn!(chat = chat.id.as_str(), %error, "the usage of a reply in chat {} cannot be counted", chat.id);
            }
        }
        failpoint("after", "usage");
    }

    /// Counts rows of the audit, and adds where they came from.
    fn audit_entries(&self, audit: &[Audit], at: Timestamp) -> Vec<AuditEntry> {
        for row in audit {
            self.context.metrics.audited(row.kind);
            self.context.trace().audited(row, at);
        }
        let is_refusal = |row: &&Audit| row.kind == AuditKind::AnswerRefused;
        let refused = audit.iter().filter(is_refusal).count();
        let admission = &self.context.capacity.admission;
        admission.note_refused(self.context.user(), refused);
        self.turn.audit_entries(audit, at, self.context.replica())
    }

    fn end_turn(&mut self) {
        let Some(driver) = &mut self.current else {
            return;
        };
        self.readers.end(driver.reply());
        // A chat at rest keeps no buffers.
        if driver.effects().peek().next().is_none() {
            driver.shrink();
        }
        self.turn.end(driver.reply(), &self.context);
        failpoint("after", "frames");
    }

    // Tools.

    pub(super) fn is_running_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    /// Whether [`ReplyEngine::next_event`] may bring anything.
    pub(super) fn expects_event(&self) -> bool {
        self.tools.may_say_more() || !self.readers.have_room()
    }

    /// The next event that no command brings. Cancel-safe.
    pub(super) async fn next_event(&mut self) -> EngineEvent {
        let is_full = !self.readers.have_room();
        tokio::select! {
            biased;
            event = self.tools.next() => EngineEvent::Tool(event),
            () = self.readers.room(), if is_full => EngineEvent::ReadersHaveRoom,
        }
    }

    /// The next tool that finishes; `None` when none runs. Tools cannot ask the user any more.
    pub(super) async fn next_tool(&mut self) -> Option<ToolFinished> {
        self.tools.next_finished().await
    }

    /// The questions that running tools wait for.
    pub(super) fn open_questions(&self) -> Vec<CallId> {
        self.tools.open_questions()
    }

    /// The outcome of a tool, with the content of its files stored.
    pub(super) async fn tool_outcome(&self, finished: ToolFinished) -> Option<(CallId, Outcome)> {
        let chat = self.context.chat();
        let (call, mut outcome) = match finished {
            Ok(finished) => finished,
            Err(error) => {
                tracing::error!(chat = chat.id.as_str(), %error, "a tool's task panicked");
                return None;
            }
        };
        let kept = attachments::keep_outcome(&self.context, &mut outcome, &self.pictures).await;
        if let Err(error) = kept {
            // The tool has run and its outcome must be reported, so the content stays in the message.
            tracing::warn!(chat = chat.id.as_str(), %error, "a tool's file in chat {} cannot be stored", chat.id);
        }
        Some((call, outcome))
    }

    fn run_tool(&mut self, id: &CallId) {
        let reply = self.current.as_ref().map(Driver::reply);
        let Some(call) = reply.and_then(|reply| reply.calls().by_id(id)) else {
            return;
        };
        let tools = self.context.tools();
        let tool = match tools.runner_of(&call.name, call.is_approved()) {
            Ok(tool) => tool,
            Err(text) => return self.tools.finish(id.to_owned(), Outcome::error(text)),
        };
        let (store, chat) = (self.context.store.clone(), self.context.chat());
        let link = self.tools.link(id);
        let run = ToolCall {
            user: chat.user.to_owned(),
            chat_id: chat.id.to_owned(),
            call_id: id.to_owned(),
            input: call.input.clone(),
            state: Arc::new(StoreChatState::new(store, chat)),
            user_link: link.clone(),
            trace: TraceContext::default(),
        };
        let (tool, run) = self.context.trace().tool(tool, run);
        let limit = self.context.settings.get().tool_timeout;
        self.tools.start(tool, run, &link, limit);
    }
}

impl ChatContext {
    /// What becomes of a reply that could not be stored.
    fn abandoned(&self, error: &StoreError, what: &str) -> Abandoned {
        self.note_refused_write(error);
        match error {
            // The task says that it lets go of the chat.
            StoreError::Fenced => Abandoned::Fenced,
            error => {
                let chat = self.chat_id().as_str();
                tracing::error!(chat, %error, "{what} cannot be stored in chat {chat}");
                Abandoned::NotStored(error.trouble())
            }
        }
    }
}

/// The context of every input: the time, ids, and the policy for its tools.
fn input_context<'c>(ids: &'c mut ReplyIds, policy: &'c ChatPolicy) -> Context<'c> {
    Context {
        now: now(),
        ids,
        policy,
    }
}
