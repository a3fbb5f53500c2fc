//! How the task of a chat ends: the chat is deleted, the server is stopped, or something cannot be stored.

use std::time::Duration;

use adk_bridge_protocol::reply::{CloseReason, Input};
use tokio::time::Instant;

use super::Task;
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
        let why = ChatError::ShuttingDown.to_string();
        self.engine.cut_off_readers(&why);
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
