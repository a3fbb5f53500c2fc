//! What a chat may begin, how long that may take, and when it returns its permit.

use std::collections::HashSet;

use adk_bridge_agents::agent::MemoryModel;
use adk_bridge_agents::error::AgentError;
use adk_bridge_protocol::id::{CallId, MessageId};
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::reply::{Answer as ClientAnswer, Reply, answers_of};
use tokio::time::Instant;

use super::{Task, requests};
use crate::admission::TurnStart;
use crate::budget::BudgetError;
use crate::chat::attachments;
use crate::chat::error::ChatError;
use crate::chat::loaded::{ChatFull, RESERVE, json_bytes};
use crate::chat::plan::{CutAt, Plan};
use crate::chat::request::ChatRequest;

impl Task {
    /// Checks whether a plan may begin now. Nothing has been superseded for it yet.
    pub(super) async fn admit_plan(
        &mut self,
        plan: &Plan,
        request: &ChatRequest,
    ) -> Result<(), ChatError> {
        match plan {
            Plan::Submit { messages, cut } => {
                if let Some(reply) = self.engine.reply() {
                    let answers = requests::answers_to(reply, request.older_answers());
                    self.admit_answers(&answers)?;
                }
                self.admit_messages(messages, cut.as_ref(), request)?;
                self.check_sent_files(messages, cut.as_ref()).await?;
                self.admit(TurnStart::Message)
            }
            Plan::Answer(_) => {
                let id = &request.last().id;
                // An ended reply is only shown.
                let is_current = self.engine.message_id() == Some(id);
                if !is_current || !self.engine.is_unfinished() {
                    return Ok(());
                }
                self.admit_answers(&answers_of(request.last()))?;
                self.admit(TurnStart::Answer)
            }
            Plan::Refuse(_) => Ok(()),
        }
    }

    /// Takes a permit for a turn, unless this chat has one already.
    pub(super) fn admit(&mut self, begins: TurnStart) -> Result<(), ChatError> {
        if self.permit.is_none() {
            self.permit = Some(
                self.context
                    .capacity
                    .admission
                    .turn(self.context.user(), begins)?,
            );
        }
        Ok(())
    }

    /// Admits messages that a request adds to the chat, or refuses them.
    pub(super) fn admit_messages(
        &mut self,
        messages: &[Message],
        cut: Option<&CutAt>,
        request: &ChatRequest,
    ) -> Result<(), ChatError> {
        let bytes = attachments::message_bytes(messages);
        self.check_length(bytes, |history| match cut {
            Some(cut) => cut.bytes_left(history),
            // Messages that a longer request does not name are most likely cut.
            None if request.messages.len() > 1 => {
                let theirs: HashSet<&MessageId> =
                    request.messages.iter().map(|it| &it.id).collect();
                let named = history.filter(|message| theirs.contains(&message.id));
                named.map(json_bytes).sum()
            }
            None => history.map(json_bytes).sum(),
        })?;
        let stored = attachments::file_bytes(messages).saturating_add(bytes as u64);
        self.context.files.check_room(self.context.user(), stored)?;
        Ok(self.loaded.admit(bytes)?)
    }

    /// Refuses messages if there is no room for the files that the agent is sent with them.
    async fn check_sent_files(
        &mut self,
        messages: &[Message],
        cut: Option<&CutAt>,
    ) -> Result<(), BudgetError> {
        let history = self.conversation.messages().iter();
        let history = history.chain(self.engine.message()).collect();
        let mut sent = match cut {
            Some(cut) => cut.left(history),
            None => history,
        };
        sent.extend(messages);
        if self.context.agent().memory() == MemoryModel::Session {
            // It has the others.
            sent.drain(..sent.len().saturating_sub(1));
        }
        let (files, chat) = (&self.context.files, self.context.chat());
        let bytes = attachments::request_bytes(files, chat, &sent).await;
        self.loaded.check_files(bytes)
    }

    /// Admits answers to the current reply, or refuses them. Small ones are always accepted.
    pub(super) fn admit_answers(&mut self, answers: &[ClientAnswer<'_>]) -> Result<(), ChatError> {
        let Some(reply) = self.engine.reply() else {
            return Ok(());
        };
        let waits = |call: &CallId| {
            let call = reply.calls().by_id(call);
            call.is_some_and(|call| call.is_open())
        };
        let brought = answers.iter().map(|answer| match answer {
            ClientAnswer::Output { call_id, output } if waits(call_id) => json_bytes(output),
            ClientAnswer::Failure { call_id, error } if waits(call_id) => error.len(),
            ClientAnswer::Decision {
                payload: Some(payload),
                ..
            } => json_bytes(payload),
            _ => 0,
        });
        self.admit_bytes(brought.sum())
    }

    /// Admits so many bytes of an answer, or refuses them. A few are always accepted.
    pub(super) fn admit_bytes(&mut self, bytes: usize) -> Result<(), ChatError> {
        if bytes <= RESERVE {
            return Ok(());
        }
        self.check_length(bytes, |history| history.map(json_bytes).sum())?;
        let user = self.context.user();
        self.context.files.check_room(user, bytes as u64)?;
        Ok(self.loaded.admit(bytes)?)
    }

    /// Checks whether messages fit after the history that remains after a cut.
    pub(super) fn check_room_after(
        &self,
        messages: &[Message],
        cut: Option<&CutAt>,
    ) -> Result<(), ChatFull> {
        self.check_length(attachments::message_bytes(messages), |history| match cut {
            Some(cut) => cut.bytes_left(history),
            None => history.map(json_bytes).sum(),
        })
    }

    /// Checks whether this many bytes fit after the remaining history, which is measured only if necessary.
    fn check_length(
        &self,
        more: usize,
        stays: impl FnOnce(&mut dyn Iterator<Item = &Message>) -> usize,
    ) -> Result<(), ChatFull> {
        let limit = self.loaded.longest();
        let mut bytes = self.loaded.size().bytes;
        if bytes.saturating_add(more) > limit {
            let current = self.engine.message();
            bytes = stays(&mut self.conversation.messages().iter().chain(current));
        }
        match bytes.saturating_add(more) > limit {
            true => Err(ChatFull::Message { bytes, limit }),
            false => Ok(()),
        }
    }

    /// Counts stored messages, and limits the answer to the room that is left.
    pub(super) fn note_begun(&mut self, bytes: usize, is_one: bool) {
        let before = self.loaded.size().kept;
        self.loaded.note_begun(bytes, is_one);
        let (files, kept) = (&self.context.files, self.loaded.size().kept);
        files.count_messages(self.context.user(), before, kept);
        self.engine.limit_answer(self.loaded.answer_limit());
    }

    /// Reserves room for what the answer has grown by, or makes it wait.
    pub(super) fn grow(&mut self) {
        self.loaded.grow(self.engine.content_bytes());
    }

    /// Whether nothing is under way that needs an agent, now or next.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.engine.is_in_turn()
            && !self.runs.is_active()
            && !self.is_spoken_with()
            && !self.engine.is_running_tools()
            && self.queue.is_empty()
    }

    /// Whether running tools wait for the user, and nothing else is under way.
    pub(super) fn only_asks(&self) -> bool {
        let asks = |reply: &Reply| reply.has_open_questions();
        self.engine.reply().is_some_and(asks)
            && !self.engine.is_in_turn()
            && !self.is_spoken_with()
            && self.queue.is_empty()
    }

    /// When the run of the agent must be over, if there is one.
    pub(super) fn turn_limit(&self) -> Option<Instant> {
        self.engine.turn_limit().filter(|_| self.runs.is_active())
    }

    pub(super) async fn turn_took_too_long(&mut self) {
        let limit = self.context.settings.get().turn_time;
        self.run_failed(AgentError::broken(
            format!(
                "the answer took longer than {} seconds and was cancelled; try again with a more specific question",
                limit.as_secs_f64()
            ),
            "limits.turn_time exceeded",
        ))
        .await;
    }
}
