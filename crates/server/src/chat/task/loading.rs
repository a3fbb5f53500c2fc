//! How a chat is loaded into memory and released.

use std::time::Duration;

use adk_bridge_agents::agent::MemoryModel;
use adk_bridge_protocol::calls::Call;
use adk_bridge_protocol::message::Role;
use adk_bridge_protocol::reply::{CloseReason, Input, LONGEST_HOLD, Record, Reply};
use tokio::time::Instant;

use super::alarm::IDLE;
use super::{Task, finished_reply};
use crate::chat::command::Command;
use crate::chat::error::ChatError;
use crate::chat::live::{LiveAsk, LiveCommand};
use crate::chat::loaded::NoRoom;
use crate::metrics::StoreOperation;
use crate::store::{Entity, HistorySize, MessageState, StoreError, StoredMessage};

/// How long a live client waits for its chat before it is refused.
const PATIENCE: Duration = Duration::from_secs(10);

impl Task {
    /// Loads the chat for a command that needs its history. Answers the command if it has to be refused.
    pub(super) async fn loaded_for(&mut self, command: Command) -> Option<Command> {
        let loaded = match &command {
            Command::Live(LiveCommand::Attach { .. }) => self.bring_back_for_live_client().await,
            // There is nothing to stop, and nothing to take.
            Command::Live(LiveCommand::Ask {
                ask: LiveAsk::Interrupt | LiveAsk::Refused(_),
                ..
            }) => Ok(()),
            Command::Post { .. }
            | Command::ToolOutput { .. }
            | Command::Credential { .. }
            | Command::Live(_) => self.bring_back().await,
            Command::Stop { .. } => {
                self.stop_elsewhere(false).await;
                Ok(())
            }
            Command::Boot => {
                self.loaded.want();
                Ok(())
            }
            Command::Resume { .. } | Command::Listed { .. } => self.bring_back_interrupted().await,
            // A closed chat was stopped before.
            Command::Close { .. }
            | Command::HandOver { .. }
            | Command::LetGo
            | Command::ShutDown { .. } => Ok(()),
        };
        match loaded {
            Ok(()) => Some(command),
            Err(refusal) => {
                self.refuse(command, refusal);
                None
            }
        }
    }

    /// Refuses a command for which the chat cannot be loaded.
    fn refuse(&mut self, command: Command, error: ChatError) {
        match command {
            Command::Post { answer, .. } => self.deliver(answer, Err(error), false),
            Command::Live(LiveCommand::Ask {
                connection, credit, ..
            }) => self.deliver_live(connection, credit, Err(error), false),
            other => other.refuse(error),
        }
    }

    /// Loads the chat if it is not in memory, and continues what was interrupted. Refuses if there is no room.
    async fn bring_back(&mut self) -> Result<(), ChatError> {
        if self.loaded.is_here() {
            return Ok(());
        }
        let stored = self.context.store.overview(self.context.chat()).await;
        let stored = stored.map_err(|error| self.not_loaded(&error))?;
        self.find_agent(&stored).await?;
        match self.loaded.take_room(stored.size) {
            Ok(()) => self.come_back().await,
            Err(NoRoom::Now(refusal)) => Err(refusal.into()),
            Err(NoRoom::Ever(refusal)) => Err(refusal.into()),
        }
    }

    /// The same for a client that wants what is running: a chat that is not in memory does not run, unless it had another
    /// owner, which may have left something open.
    async fn bring_back_interrupted(&mut self) -> Result<(), ChatError> {
        if !self.lifetime.is_unexamined() || self.loaded.is_here() {
            return Ok(());
        }
        let size = self.context.store.history_size(self.context.chat()).await;
        match size {
            Ok(size) if size.open == 0 => {
                self.lifetime.note_left(false);
                Ok(())
            }
            _ => self.bring_back().await,
        }
    }

    /// The same for a new live client, if there is something to show. It waits some time for room.
    async fn bring_back_for_live_client(&mut self) -> Result<(), ChatError> {
        let until = Instant::now() + PATIENCE;
        while !self.loaded.is_here() {
            let size = self.context.store.history_size(self.context.chat()).await;
            let has_missed = self.live.has_missed() || self.lifetime.expects_readers();
            if size.is_ok_and(|size| size.open == 0) && !has_missed {
                return Ok(());
            }
            match self.bring_back().await {
                Err(refusal) if refusal.is_temporary() && Instant::now() < until => {
                    self.loaded.room().await;
                }
                // There is nothing to continue; what the client asks for is refused with the reason.
                Err(ChatError::AgentGone { .. } | ChatError::NoAgent(_)) => return Ok(()),
                done => return done,
            }
        }
        Ok(())
    }

    /// The same for work without a client: it waits for room as long as necessary.
    pub(super) async fn bring_back_wanted(&mut self) {
        if let Err(error) = self.bring_back().await
            && !error.is_temporary()
            && self.context.still_owned().is_ok()
        {
            let chat = self.context.chat_id().as_str();
            tracing::error!(chat, %error, "what was interrupted in chat {chat} cannot go on: {error}");
            self.loaded.give_up();
        }
    }

    /// Stops a chat that is not in memory while one of its replies waits. The chat is loaded beyond the limits for
    /// this. `all`: stop every reply, or only the current one.
    pub(super) async fn stop_elsewhere(&mut self, all: bool) {
        if self.loaded.is_here() {
            return;
        }
        let stored = self.context.store.overview(self.context.chat()).await;
        let stored = stored.unwrap_or_default();
        let size = stored.size;
        if size.open == 0 {
            return;
        }
        // Without its agent nothing of it runs, so that it can be stopped like any other.
        let _ = self.find_agent(&stored).await;
        let _alone = self.loaded.one_at_a_time().await;
        if let Err(error) = self.loaded.force_room(size) {
            let chat = self.context.chat_id().as_str();
            tracing::warn!(chat, %error, "the replies of chat {chat} are not stopped: {error}");
            return;
        }
        // The log says why it cannot be loaded.
        if self.come_back().await.is_ok() {
            match all {
                true => self.stop_everything().await,
                false => drop(self.feed(Input::Close(CloseReason::Stopped)).await),
            }
            if self.rests_at().is_some() {
                self.rest().await;
            }
        }
    }

    async fn come_back(&mut self) -> Result<(), ChatError> {
        if self.loaded.size().messages == 0 {
            // A new chat: there is nothing to read.
            self.conversation.note_unknown();
        } else if let Err(error) = self.load().await {
            self.loaded.give_back();
            return Err(self.not_loaded(&error));
        }
        self.loaded.come(self.engine.content_bytes());
        self.engine.limit_answer(self.loaded.answer_limit());
        self.feed(Input::Boot).await;
        Ok(())
    }

    pub(super) async fn load(&mut self) -> Result<(), StoreError> {
        match self.read().await {
            // Not there, or deleted while it was read.
            Err(StoreError::NotFound(Entity::Chat)) => {
                self.conversation.note_unknown();
                Ok(())
            }
            done => done,
        }
    }

    async fn read(&mut self) -> Result<(), StoreError> {
        let (store, chat) = (&self.context.store, self.context.chat());
        let _timed = self.context.metrics.store(StoreOperation::Load);
        let mut messages = store.messages(chat).await?;
        self.conversation.note_stored(&messages);
        let mut open = store.open_replies_of(chat).await?;
        let last = messages.last().map(|stored| stored.message.id.clone());
        // A reply that does more than wait continues first.
        let current = open
            .iter()
            .position(|record| record.asking || !waits(record))
            .or_else(|| {
                let ends = |record: &Record| Some(&record.message.id) == last.as_ref();
                open.iter().position(ends)
            });
        let left_open = current.is_some() || !open.is_empty();
        self.lifetime.note_left(left_open);
        let mut reply = None;
        if let Some(mut record) = current.map(|index| open.remove(index)) {
            if self.context.is_shared() && self.engine.asks_itself() && record.begin_step_again() {
                let chat = chat.id.as_str();
                tracing::info!(
                    chat,
                    "a step of chat {chat} that had another owner is asked for again"
                );
            }
            // Pieces that an owner before has stored count until this one has written anything: so it begins with the whole.
            let is_stored = |stored: &StoredMessage| stored.message == *record.message;
            if self.context.is_shared() && !messages.iter().any(is_stored) {
                store.checkpoint(chat, &record).await?;
            }
            messages.retain(|stored| stored.message.id != record.message.id);
            reply = Some(Reply::restore(record));
        } else if let Some(last) = messages.pop_if(|stored| {
            stored.message.role == Role::Assistant && stored.state == MessageState::Done
        }) {
            // Clients may repeat old answers at any time, and the record has them.
            let record = store.reply(chat, &last.message.id).await?;
            reply = Some(record.map_or_else(|| finished_reply(last.message), Reply::restore));
        }
        if reply.as_ref().is_some_and(|reply| reply.ended().is_none()) {
            self.context.trace().load(&self.context).await;
        }
        self.load_declared_tools().await?;
        let interrupted = reply.as_ref().and_then(Reply::asking_step).is_some();
        self.engine.replace(reply);
        self.waiting
            .load(open.into_iter().map(Reply::restore).collect());
        self.conversation.load(messages);
        self.note_open_credentials(interrupted).await;
        Ok(())
    }

    fn not_loaded(&self, error: &StoreError) -> ChatError {
        self.context.note_refused_write(error);
        if let StoreError::Fenced = error {
            // The loop lets go of the chat.
            return ChatError::Fenced;
        }
        let chat = self.context.chat_id().as_str();
        tracing::error!(chat, %error, "the chat {chat} cannot be loaded");
        match error.trouble() {
            Some(trouble) => ChatError::Unwritable(trouble),
            None => ChatError::NotLoaded {
                why: error.to_string(),
            },
        }
    }

    /// When the chat can be released.
    pub(super) fn rests_at(&self) -> Option<Instant> {
        let is_needed = !self.loaded.is_here()
            || self.permit.is_some()
            || !self.is_at_rest()
            || self.voice.is_some()
            || self.waiting.has_deferred()
            || !self.engine.readers().is_empty()
            || self.engine.has_open_turn()
            || self.engine.is_abandoned();
        if is_needed {
            return None;
        }
        let is_open = |reply: &Reply| reply.ended().is_none();
        let after = if self.engine.reply().is_some_and(is_open) || !self.waiting.is_empty() {
            // A reply remembers this long how often its client posted nothing new.
            IDLE.max(LONGEST_HOLD)
        } else if self.loaded.is_large() {
            Duration::ZERO
        } else {
            IDLE
        };
        let at = self.lifetime.active_at + after;
        let asked_for = self.conversation.left_out_until();
        let known = asked_for
            .into_iter()
            .chain(self.lifetime.readers_back_until());
        Some(known.fold(at, Instant::max))
    }

    /// Releases everything except deadlines.
    pub(super) async fn rest(&mut self) {
        self.conversation.store_seen(&self.context).await;
        self.count().await;
        let deadline = self.engine.reply().and_then(Reply::deadline);
        let deadline = deadline.into_iter().chain(self.waiting.deadline()).min();
        let waits = deadline.is_some() || !self.waiting.is_empty();
        self.engine.release();
        self.waiting.clear();
        self.conversation.release();
        self.context.release_declared_tools();
        self.engine.follow_agent();
        self.loaded.leave(waits, deadline);
    }

    /// The size of the chat after a turn, unless it has to be measured: agents with a session store events as well,
    /// and a voice conversation has several replies.
    fn size_after_turn(&self) -> Option<HistorySize> {
        let is_plain = self.context.agent().memory() == MemoryModel::Stateless
            && self.voice.is_none()
            && self.waiting.is_empty();
        let answer = self.engine.committed().filter(|_| is_plain)?;
        self.loaded.size_after(answer)
    }

    /// Measures the stored chat, if it has changed.
    pub(super) async fn count(&mut self) {
        if !self.loaded.has_changed() {
            return;
        }
        let chat = self.context.chat();
        let size = match self.size_after_turn() {
            Some(size) => Ok(size),
            None => self.context.store.history_size(chat).await,
        };
        match size {
            Ok(size) => {
                let (files, before) = (&self.context.files, self.loaded.size().kept);
                files.count_messages(chat.user, before, size.kept);
                self.loaded.note_size(size, self.engine.content_bytes());
            }
            Err(error) => {
                tracing::warn!(chat = chat.id.as_str(), %error, "what chat {} takes cannot be counted", chat.id);
            }
        }
    }
}

/// Whether a reply does nothing but wait for its front end.
fn waits(record: &Record) -> bool {
    let mut open = record.calls.iter().filter(|call| call.is_open());
    record.ended.is_none() && open.all(Call::waits_for_client)
}
