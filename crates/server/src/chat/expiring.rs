//! Deletes chats that nobody uses any more, without ever taking one from somebody who does.
//!
//! A chat is taken first, as a request would take it: in a cluster this replica becomes its owner, and whoever asks for the
//! chat meanwhile waits, and then finds it gone or as it was.

use std::collections::VecDeque;

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;
use tokio::sync::mpsc;

use super::{COMMANDS, ChatError, Chats, Command};
use crate::cluster::Owned;
use crate::store::ChatRef;

/// A chat that is not in use and stays so until it is given back.
struct Taken {
    owned: Option<Owned>,
    /// What is asked of it meanwhile.
    commands: mpsc::Receiver<Box<Command>>,
}

impl Chats {
    /// Deletes a chat that has not changed since a time, with all its files, unless it is in use, here or elsewhere, or a
    /// reply of it has not ended: one that waits for an approval, or for a tool of the front end, ends when that expires.
    /// Returns whether the chat is deleted.
    pub async fn delete_if_older(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        before: Timestamp,
    ) -> Result<bool, ChatError> {
        let Some(taken) = self.take_unused(user, chat_id).await? else {
            return Ok(false);
        };
        let deleted = self.delete_taken(user, chat_id, before, &taken).await;
        let Taken { owned, commands } = taken;
        self.release(user, chat_id, owned).await;
        let (user, chat_id) = (user.clone(), chat_id.clone());
        self.task_ended(user, chat_id, VecDeque::new(), commands)
            .await;
        deleted
    }

    /// Takes a chat; none if it is in use.
    async fn take_unused(
        &self,
        user: &UserId,
        chat_id: &ChatId,
    ) -> Result<Option<Taken>, ChatError> {
        let chat = ChatRef { user, id: chat_id };
        let Some(cluster) = &self.shared.cluster else {
            return Ok(self.occupy(user, chat_id).map(|commands| Taken {
                owned: None,
                commands,
            }));
        };
        let claim = self.claims.begin(user, chat_id);
        let _alone = claim.gate().lock().await;
        if self.is_in_use(user, chat_id) {
            return Ok(None);
        }
        let Ok(owned) = cluster.claim(chat).await? else {
            return Ok(None);
        };
        // Nobody else here could begin a task while the claim was under way.
        match self.occupy(user, chat_id) {
            Some(commands) => Ok(Some(Taken {
                owned: Some(owned),
                commands,
            })),
            None => Ok(None),
        }
    }

    /// Stands in for the task of a chat that has none.
    fn occupy(&self, user: &UserId, chat_id: &ChatId) -> Option<mpsc::Receiver<Box<Command>>> {
        let key = (user.to_owned(), chat_id.to_owned());
        let mut tasks = self.lock();
        if tasks.get(&key).is_some_and(|task| !task.is_closed()) {
            return None;
        }
        let (sender, commands) = mpsc::channel(COMMANDS);
        tasks.insert(key, sender);
        Some(commands)
    }

    async fn delete_taken(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        before: Timestamp,
        taken: &Taken,
    ) -> Result<bool, ChatError> {
        let chat = ChatRef { user, id: chat_id };
        let store = &self.shared.store;
        // Looked at again: somebody may have used it a moment ago.
        let is_old = (store.chat(chat).await?).is_some_and(|stored| stored.updated < before);
        if !is_old || store.history_size(chat).await?.open > 0 {
            return Ok(false);
        }
        let files = match &taken.owned {
            None => self.shared.files.clone(),
            Some(owned) => {
                let store = store.clone().fenced(chat, owned.epoch());
                self.shared.files.written_through(store).into()
            }
        };
        self.delete_stored(chat, &files).await?;
        Ok(true)
    }
}
