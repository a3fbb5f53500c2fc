//! How a reply that only waits is set aside for speech or for a later result, and resumed.

use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::reply::{Input, Reply};

use super::Task;
use crate::chat::now;

impl Task {
    /// Sets the current reply aside if all that it does is wait. Returns whether it did.
    pub(super) fn set_aside(&mut self) -> bool {
        let waits =
            |reply: &Reply| reply.ended().is_none() && reply.turn().is_none() && reply.is_at_rest();
        if !self.waiting.has_room() || !self.engine.reply().is_some_and(waits) {
            return false;
        }
        if let Some(reply) = self.engine.replace(None) {
            self.conversation.push(reply.message().clone());
            self.waiting.push(reply);
        }
        true
    }

    /// Makes a waiting reply the current one, unless something runs. Returns whether it did.
    pub(super) fn take_up(&mut self, id: &MessageId) -> bool {
        if self.is_busy() {
            return false;
        }
        let Some(reply) = self.waiting.take(id) else {
            return false;
        };
        if let Some(current) = self.engine.replace(None) {
            self.conversation.push(current.message().clone());
            if current.ended().is_none() {
                self.waiting.push(current);
            }
        }
        if self.voice.is_some() {
            self.voice_takes_up(id);
        }
        self.conversation.remove(id);
        self.engine.replace(Some(reply));
        true
    }

    /// Makes one of the waiting replies the current one, unless something runs. Returns whether it did.
    pub(super) fn take_up_any(&mut self) -> bool {
        let first = self.waiting.first_id();
        first.is_some_and(|id| self.take_up(&id))
    }

    /// Settles questions that have expired.
    pub(super) async fn expire_waiting(&mut self) {
        while let Some(id) = self.waiting.due(now()) {
            if !self.take_up(&id) {
                return;
            }
            self.feed(Input::Tick).await;
        }
    }
}
