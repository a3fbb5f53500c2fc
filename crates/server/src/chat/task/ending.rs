//! How the task of a chat ends: the chat is deleted, the server is stopped, or something cannot be stored.

use std::collections::VecDeque;
use std::time::Duration;

use adk_bridge_protocol::reply::{CloseReason, Input};
use adk_bridge_protocol::wire::live::Close;
use tokio::time::Instant;

use super::Task;
use crate::chat::command::Command;
use crate::chat::error::ChatError;

/// How long tools may continue when the server stops, which must not take longer than five seconds.
const LAST_TOOLS: Duration = Duration::from_secs(3);

impl Task {
    pub(super) async fn stop_everything(&mut self) {
        self.holds.end_all();
        self.feed(Input::Close(CloseReason::Stopped)).await;
        self.runs.cancel();
        // A started tool is never aborted: its outcome goes to the audit, which outlives the chat.
        while let Some(finished) = self.engine.next_tool().await {
            self.tool_finished(finished).await;
        }
        while self.take_up_any() {
            self.feed(Input::Close(CloseReason::Stopped)).await;
        }
    }

    /// Stores the reply and ends its readers. The next start marks a partial answer as such; a question stays open.
    pub(super) async fn shut_down(&mut self) {
        self.holds.end_all();
        // A tool that waits for the user would be lost; one that learns that nobody answers may come to an end.
        for question in self.engine.open_questions() {
            let question = &question;
            self.feed(Input::QuestionWithdrawn { question }).await;
        }
        let last = Instant::now() + LAST_TOOLS;
        while let Ok(Some(finished)) = tokio::time::timeout_at(last, self.engine.next_tool()).await
        {
            self.tool_finished(finished).await;
        }
        let asking = self.runs.is_active() || self.is_voice_asked();
        self.runs.cancel();
        self.conversation.store_seen(&self.context).await;
        if asking && let Err(error) = self.engine.store_record().await {
            let chat = self.context.chat_id().as_str();
            tracing::error!(chat, %error, "the chat {chat} cannot be stored");
        }
        match self.context.is_shared() {
            // They go on at another replica.
            true => self.engine.let_go(),
            false => {
                let why = ChatError::ShuttingDown.to_string();
                self.engine.cut_off_readers(&why);
            }
        }
    }

    /// Whether the task may give its chat to another replica: nothing is under way, and nobody is in the middle of a sentence.
    pub(super) fn may_leave(&self) -> bool {
        !self.is_busy()
            && !self.is_voice_asked()
            && !self.is_spoken_to()
            && self.queue.is_empty()
            && !self.waiting.has_deferred()
            && self.loaded.is_settled()
    }

    /// Gives the chat to another replica: stores what is under way, and ends its readers and its live client, which find it
    /// there. Returns the commands that are for its next owner.
    pub(super) async fn hand_over(mut self) -> VecDeque<Command> {
        self.holds.end_all();
        let asking = self.runs.is_active() || self.is_voice_asked();
        self.runs.cancel();
        // What another replica may own is not written.
        if self.context.is_held() {
            self.conversation.store_seen(&self.context).await;
        }
        if asking
            && self.context.is_held()
            && let Err(error) = self.engine.store_record().await
        {
            let chat = self.context.chat_id().as_str();
            tracing::warn!(chat, %error, "what is under way in chat {chat} is not stored; another replica goes on with less");
        }
        self.count().await;
        // First, so that whoever comes back finds another owner.
        self.context.release().await;
        self.engine.let_go();
        self.live.close(Close::GOING_AWAY);
        self.not_begun_commands()
    }

    /// Lets go of a chat that another replica may have: nothing more is stored or sent. Returns the commands that are for its
    /// next owner.
    pub(super) async fn let_go(mut self) -> VecDeque<Command> {
        let (chat, by) = (self.context.chat_id().as_str(), self.context.fenced_by());
        tracing::warn!(
            chat,
            ?by,
            "the chat {chat} may have another owner; it is let go of"
        );
        self.context.metrics.cluster().let_go(by);
        self.holds.cut();
        self.runs.cancel();
        self.engine.let_go();
        self.live.close(Close::GOING_AWAY);
        self.not_begun_commands()
    }

    /// The commands that waited here, except for those of the live client, whose connection ends.
    fn not_begun_commands(mut self) -> VecDeque<Command> {
        while let Some(command) = self.waiting.next_deferred() {
            self.queue.push_back(command);
        }
        self.queue.retain(|command| !command.is_live());
        self.queue
    }

    /// Waits for started tools before another task may take the chat, and stores their outcomes if possible. The
    /// next task takes the commands that came meanwhile.
    pub(super) async fn finish_tools(mut self) {
        let mut outcomes = Vec::new();
        while let Some(finished) = self.engine.next_tool().await {
            outcomes.extend(finished.ok());
        }
        if outcomes.is_empty() || self.load().await.is_err() {
            return;
        }
        for (call, outcome) in outcomes {
            let call = &call;
            self.feed(Input::ToolFinished { call, outcome }).await;
        }
        self.count().await;
    }
}
