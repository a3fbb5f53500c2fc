//! The chat that a task serves, and what all chats share.

use adk_bridge_protocol::id::{ChatId, UserId};
use std::sync::Arc;

use super::Shared;
use super::readers::Readers;
use super::unread::UnreadAnswers;
use crate::store::ChatRef;

/// One chat of one user, and what all chats share.
#[derive(Clone)]
pub(super) struct ChatContext {
    shared: Arc<Shared>,
    user: Arc<UserId>,
    chat_id: Arc<ChatId>,
}

impl ChatContext {
    pub(super) fn new(shared: Arc<Shared>, user: &UserId, chat_id: &ChatId) -> Self {
        Self {
            shared,
            user: Arc::new(user.clone()),
            chat_id: Arc::new(chat_id.clone()),
        }
    }

    /// How the store names the chat.
    pub(super) fn chat(&self) -> ChatRef<'_> {
        ChatRef {
            user: &self.user,
            id: &self.chat_id,
        }
    }

    /// An empty set of readers for the chat.
    pub(super) fn new_readers(&self) -> Readers {
        let unread = UnreadAnswers::new(self.capacity.unread.clone(), self.user.clone());
        Readers::new(self.metrics.clone(), unread)
    }

    pub(super) fn user(&self) -> &UserId {
        &self.user
    }

    pub(super) fn chat_id(&self) -> &ChatId {
        &self.chat_id
    }
}

impl std::ops::Deref for ChatContext {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}
