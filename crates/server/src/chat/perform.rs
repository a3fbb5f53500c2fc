//! How a reply is fed, and how the effects that come out are performed.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_agents::adk_server::AdkServer;
use adk_bridge_agents::agent::{
    Agent, AgentError, AgentRun, News, Request, SessionRequest, Starting,
};
use adk_bridge_agents::gemini::Gemini;
use adk_bridge_agents::tool::ToolCall;
use adk_bridge_protocol::approval::Time;
use adk_bridge_protocol::calls::Outcome;
use adk_bridge_protocol::event::Content;
use adk_bridge_protocol::history;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::{Ask, Audit, AuditKind, Commit, Effect, Outbox};
use adk_bridge_protocol::reply::{Given, Input, Reply, RunEnd};
use futures_util::FutureExt as _;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::kept;
use super::memory::ChatMemory;
use super::now;
use super::plan::CutAt;
use super::run::Run;
use super::task::{Task, Turn};
use crate::failpoint::failpoint;
use crate::metrics::result_of;
use crate::store::{AuditEntry, ChatRef, Opening, StoreChatState, StoreError};

/// How often a streaming message is stored, so that a crash keeps the partial answer.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// How many times as long as a checkpoint took the next one waits. Each writes the whole message: the longer an answer
/// gets, the rarer they become, so that they never take more than a fiftieth of the time that it takes.
const CHECKPOINT_REST: u32 = 49;

impl Task {
    pub(super) async fn tool_done(
        &mut self,
        done: Result<(String, Outcome), tokio::task::JoinError>,
    ) {
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
    pub(super) async fn feed(&mut self, input: Input<'_>) {
        let standing_by = self.stand_by(&input).await;
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
        match standing_by {
            None => self.perform().await,
            Some(answer) => {
                self.stand_down(answer);
                self.perform().await;
                self.stand_at_ease();
            }
        }
    }

    /// Performs what an input brought, and sends what it says.
    pub(super) async fn perform(&mut self) {
        self.perform_unsent().await;
        self.send();
    }

    /// Sends what has been said.
    pub(super) fn send(&mut self) {
        self.readers.flush();
        if self.outbox.effects.last() == Some(&Effect::End) {
            // A chat that rests keeps no buffers.
            self.outbox = Outbox::default();
            failpoint("after", "frames");
        }
    }

    /// As [`Task::perform`], where more is about to come that can be sent together with it.
    pub(super) async fn perform_unsent(&mut self) {
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
                Effect::Ask(ask) => self.ask(ask).await,
                Effect::CancelRun => {
                    self.run = Run::Idle;
                    self.upstream.cut();
                }
                Effect::End => {
                    if let Some(reply) = &self.reply {
                        self.readers.end(reply);
                    }
                    self.turn_ends();
                }
                Effect::Heard { text, finished } => self.hear(text, *finished),
                Effect::Interrupted => {
                    self.readers.flush();
                    self.live.interrupted();
                    self.upstream.model_is_done(RunEnd::Cut);
                }
                Effect::TurnComplete => self.upstream.model_is_done(RunEnd::Done),
                // The deadline of the reply says the same.
                Effect::HoldUntil(_) => {}
            }
        }
        self.outbox.effects = effects;
    }

    pub(super) async fn commit(&mut self, commit: &Commit) -> Result<(), StoreError> {
        let (at, step) = (now(), step_of(commit));
        let entries = self.audited(commit, at);
        failpoint("before", step);
        self.shared
            .store
            .commit(self.chat(), &commit.record, &entries, at)
            .await?;
        failpoint("after", step);
        Ok(())
    }

    /// The first commit of a reply, together with what it answers.
    pub(super) async fn commit_opening(
        &mut self,
        commit: &Commit,
        messages: &[Message],
        cut: Option<&CutAt>,
    ) -> Result<(), StoreError> {
        let (at, step) = (now(), step_of(commit));
        let entries = self.audited(commit, at);
        let opening = Opening {
            messages,
            cut: CutAt::for_store(cut),
        };
        failpoint("before", step);
        self.shared
            .store
            .begin(self.chat(), opening, &commit.record, &entries, at)
            .await?;
        failpoint("after", step);
        Ok(())
    }

    /// Counts what a commit brings for the audit, and says where it came from.
    fn audited(&mut self, commit: &Commit, at: Time) -> Vec<AuditEntry> {
        for row in &commit.audit {
            self.shared.metrics.audited(row.kind);
        }
        self.refused += commit
            .audit
            .iter()
            .filter(|row| row.kind == AuditKind::AnswerRefused)
            .count();
        self.checkpoint_at = Instant::now() + CHECKPOINT;
        self.entries(&commit.audit, at)
    }

    pub(super) async fn append_audit(&mut self, audit: &[Audit]) -> Result<(), StoreError> {
        if audit.is_empty() {
            return Ok(());
        }
        for row in audit {
            self.shared.metrics.audited(row.kind);
        }
        let entries = self.entries(audit, now());
        self.shared.store.append_audit(self.chat(), &entries).await
    }

    /// Rows of the audit with where they came from.
    pub(super) fn entries(&self, audit: &[Audit], at: Time) -> Vec<AuditEntry> {
        let dialect = self.origin.dialect.as_str();
        audit
            .iter()
            .map(|audit| AuditEntry {
                at,
                turn_id: Some(self.turn_id.clone()),
                connection_id: self.origin.connection.map(|id| id.to_string()),
                transport: Some(self.origin.transport.to_owned()),
                dialect: Some(dialect.to_owned()),
                audit: audit.clone(),
            })
            .collect()
    }

    pub(super) async fn checkpoint(&mut self) {
        let asking = self.run.is_active() || self.upstream.speaks();
        if Instant::now() < self.checkpoint_at || !asking {
            return;
        }
        let Some(record) = self.reply.as_ref().map(Reply::record) else {
            return;
        };
        let began = Instant::now();
        if let Err(error) = self.shared.store.checkpoint(self.chat(), &record).await {
            tracing::warn!(chat = %self.chat_id, %error, "a checkpoint failed; the answer goes on");
        }
        self.checkpoint_at = Instant::now() + CHECKPOINT.max(began.elapsed() * CHECKPOINT_REST);
        failpoint("after", "checkpoint");
    }

    /// What cannot be stored must not be told: the readers hear that it failed, and the task ends, so that the next
    /// request reads the store anew.
    pub(super) fn abandon(&mut self) {
        self.readers
            .fail("the answer could not be stored; load the chat again and see how far it came");
        self.run = Run::Idle;
        self.reply = None;
        self.parked.clear();
        self.turn = None;
        self.live.turn_over();
        self.lost = true;
    }

    pub(super) fn run_tool(&mut self, id: &str) {
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
            // A tool may break down before it has made its future.
            let run = AssertUnwindSafe(async { tool.run(run).await }).catch_unwind();
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

    pub(super) async fn ask(&mut self, ask: &Ask) {
        failpoint("before", "model");
        if self.is_for_upstream(ask) {
            return Box::pin(self.ask_upstream(ask)).await;
        }
        self.upstream.note_other_turn();
        let shared = self.shared.clone();
        self.run = Run::Starting(match &shared.agent {
            Agent::Gemini(gemini) => self.ask_model(gemini).await,
            Agent::Adk(server) => {
                self.upstream.make_way();
                self.ask_server(server, ask).await
            }
        });
    }

    /// A model is told everything every time.
    async fn ask_model(&mut self, gemini: &Gemini) -> Starting {
        let current = self.reply.iter().map(Reply::message);
        let mut messages: Vec<Cow<'_, Message>> = self
            .history
            .iter()
            .chain(current.filter(|message| !message.parts.is_empty()))
            .map(Cow::Borrowed)
            .collect();
        kept::inline(&self.shared.files, self.chat(), &mut messages).await;
        let starting = gemini.start(&Request {
            contents: history::contents(messages.iter().map(Cow::as_ref)),
            tools: self.shared.tools.specs(),
        });
        Box::pin(async move { starting.await.map(AgentRun::Gemini) })
    }

    /// An ADK server remembers: it is told what is new.
    pub(super) async fn ask_server(&mut self, server: &AdkServer, ask: &Ask) -> Starting {
        let (news, before) = match ask {
            Ask::Responses(responses) => (News::Responses(responses.clone()), None),
            Ask::History => {
                let last = self.last_message().await;
                let parts = last.iter().flat_map(history::user_parts);
                let content = json!(Content::new("user", parts.collect::<Vec<_>>()));
                (News::Message(content), last.map(|last| last.id.clone()))
            }
        };
        let request = self.session_request(news, before).await;
        let (server, closing) = (server.clone(), self.upstream.take_closing());
        Box::pin(on_its_own(async move {
            if let Some(closing) = closing {
                let _ = closing.await;
            }
            server.start(request?).await.map(AgentRun::Adk)
        }))
    }

    /// What the user said last, with its files in it.
    pub(super) async fn last_message(&mut self) -> Option<Message> {
        let mut last: Vec<_> = self.history.last().map(Cow::Borrowed).into_iter().collect();
        kept::inline(&self.shared.files, self.chat(), &mut last).await;
        last.pop().map(Cow::into_owned)
    }

    /// What an agent is asked in its session; `before` names the message that is news.
    pub(super) async fn session_request(
        &mut self,
        news: News,
        before: Option<String>,
    ) -> Result<SessionRequest, AgentError> {
        match self.shared.store.chat(self.chat()).await {
            Ok(chat) => self.generation = chat.map_or(0, |chat| chat.generation),
            Err(error) => {
                return Err(AgentError {
                    message: "the chat cannot be read from the store; try again".into(),
                    detail: error.to_string(),
                });
            }
        }
        Ok(SessionRequest {
            chat_id: self.chat_id.clone(),
            user: self.user.clone(),
            generation: self.generation,
            news,
            memory: Arc::new(self.memory(before)),
        })
    }

    fn memory(&self, before: Option<String>) -> ChatMemory {
        ChatMemory {
            store: self.shared.store.clone(),
            files: self.shared.files.clone(),
            user: self.user.clone(),
            chat_id: self.chat_id.clone(),
            generation: self.generation,
            before,
            most: self.history.len() + usize::from(self.reply.is_some()),
            known: self.session.clone(),
        }
    }

    /// Keeps the session that was opened before the chat was stored.
    pub(super) async fn keep_session(&mut self) {
        if let Err(error) = self.memory(None).keep().await {
            tracing::warn!(chat = %self.chat_id, error, "the session of chat {} cannot be stored", self.chat_id);
        }
    }

    /// Keeps what a remote agent said, for the day that it has forgotten it.
    pub(super) async fn remember(&mut self, said: Vec<String>) {
        let Some(message_id) = self.reply.as_ref().map(|reply| reply.message().id.clone()) else {
            return;
        };
        let kept = self
            .shared
            .store
            .append_events(self.chat(), self.generation, &message_id, said)
            .await;
        if let Err(error) = kept {
            tracing::warn!(chat = %self.chat_id, %error, "what the agent of chat {} said cannot be kept word by word", self.chat_id);
        }
    }

    pub(super) fn turn_begins(&mut self) {
        self.shared.metrics.turn_started();
        self.turn = Some(Turn {
            began: self.arrived.take().unwrap_or_else(Instant::now),
            spoke: false,
        });
    }

    pub(super) fn note_first_chunk(&mut self) {
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

    pub(super) fn turn_ends(&mut self) {
        self.live.turn_over();
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
}

/// Lets something go on while the chat's task is busy: what asks the store for a session holds the store's only writer,
/// and the task would wait for itself. Dropping it stops it.
pub(super) async fn on_its_own<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let mut alone = JoinSet::new();
    alone.spawn(future);
    match alone.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Nobody but the set itself cancels it, and the set is dropped with this.
        _ => std::future::pending().await,
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
