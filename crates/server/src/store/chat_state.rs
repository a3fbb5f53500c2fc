//! The state of one chat as its tools see it.

use adk_bridge_protocol::id::{ChatId, UserId};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use adk_bridge_agents::tool::ChatState;
use serde_json::Value;

use super::{Change, ChatRef, Store};
use crate::failpoint::failpoint;

/// Gives tools access to their chat's state in the store.
pub struct StoreChatState {
    store: Arc<dyn Store>,
    user: UserId,
    chat_id: ChatId,
}

impl StoreChatState {
    pub fn new(store: Arc<dyn Store>, chat: ChatRef<'_>) -> Self {
        Self {
            store,
            user: chat.user.to_owned(),
            chat_id: chat.id.to_owned(),
        }
    }
}

impl ChatState for StoreChatState {
    fn update<'s>(
        &'s self,
        key: &'s str,
        change: Change<'s>,
    ) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 's>> {
        Box::pin(async move {
            let chat = ChatRef {
                user: &self.user,
                id: &self.chat_id,
            };
            let result = self.store.update_state(chat, key, change).await;
            failpoint("in", "tool");
            result.map_err(|error| error.to_string())
        })
    }
}
