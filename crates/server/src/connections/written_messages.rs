//! The messages that were written completely to a connection.
//!
//! That does not prove that they arrived: a relay may have accepted and lost them. A further request over the same
//! connection proves it.

use adk_bridge_protocol::id::MessageId;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// How many messages are remembered for each connection; a client's next request holds the ones that it has.
const MOST: usize = 64;

/// The messages that were written to one connection, the newest last.
#[derive(Debug, Clone, Default)]
pub struct WrittenMessages(Arc<Mutex<VecDeque<MessageId>>>);

impl WrittenMessages {
    /// Notes that a message was written up to the end of a turn.
    pub fn note(&self, message: &MessageId) {
        let mut messages = self.lock();
        messages.retain(|noted| noted != message);
        if messages.len() == MOST {
            messages.pop_front();
        }
        messages.push_back(message.clone());
    }

    /// The messages that the client has if it sends a request now.
    pub fn so_far(&self) -> Vec<MessageId> {
        self.lock().iter().cloned().collect()
    }

    /// Poisoning is ignored: no critical section can leave the list inconsistent.
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<MessageId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_once_each() {
        let written = WrittenMessages::default();
        for number in (0..MOST).chain([1, MOST]) {
            written.note(&number.to_string().into());
        }
        let found = written.so_far();
        assert_eq!(found.len(), MOST);
        assert_eq!(found[0], "2");
        assert_eq!(
            found[MOST - 2..],
            ["1".into(), MessageId::from(MOST.to_string())]
        );
    }
}
