//! The memory of files on their way to an agent: reserved before they are read, and until the agent answers.
//!
//! A request is refused if its files find no room ([`Loaded::check_files`]). What has begun waits, and one at a time may
//! exceed the limits. Whoever has room never waits for more of the same purpose, so all of them end.

use std::sync::Arc;

use adk_bridge_protocol::id::UserId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Loaded, LoadedMemory, SMALL, take};
use crate::budget::{BudgetError, Hold, LOADED_COPIES};

/// What files are read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chat) enum FilePurpose {
    /// A question to the agent.
    Question,
    /// The past of a session that the agent has lost. The question may have room already.
    Restoring,
}

/// Room for the files of one request to an agent. It is released when this is dropped.
pub(in crate::chat) struct FileRoom {
    memory: Arc<LoadedMemory>,
    hold: Hold,
    beyond: Option<OwnedSemaphorePermit>,
    /// The bytes of the files, as base64.
    bytes: usize,
}

/// Who may exceed the limits, for each purpose one at a time.
pub(super) struct Exceptions {
    questions: Arc<Semaphore>,
    restored: Arc<Semaphore>,
}

impl Default for Exceptions {
    fn default() -> Self {
        Self {
            questions: Arc::new(Semaphore::new(1)),
            restored: Arc::new(Semaphore::new(1)),
        }
    }
}

impl LoadedMemory {
    /// Room for files of this many bytes; waits for it. Cancel-safe.
    pub(in crate::chat) async fn room_for_files(
        self: &Arc<Self>,
        user: &UserId,
        bytes: usize,
        purpose: FilePurpose,
    ) -> FileRoom {
        loop {
            match self.try_room_for_files(user, bytes, purpose) {
                Some(room) => return room,
                None => self.room().await,
            }
        }
    }

    /// The same, if there is room now.
    pub(in crate::chat) fn try_room_for_files(
        self: &Arc<Self>,
        user: &UserId,
        bytes: usize,
        purpose: FilePurpose,
    ) -> Option<FileRoom> {
        let mut hold = self.budget.hold(user);
        let mut beyond = None;
        if take(&mut hold, cost(bytes)).is_err() {
            let exceptions = match purpose {
                FilePurpose::Question => &self.exceptions.questions,
                FilePurpose::Restoring => &self.exceptions.restored,
            };
            beyond = Some(exceptions.clone().try_acquire_owned().ok()?);
            hold.force(cost(bytes));
        }
        Some(FileRoom {
            memory: self.clone(),
            hold,
            beyond,
            bytes,
        })
    }
}

impl FileRoom {
    /// The request is made; this many copies of the files are left.
    pub(in crate::chat) fn keep(&mut self, copies: usize) {
        self.hold.force(self.bytes.saturating_mul(copies));
        self.memory.freed.notify_waiters();
    }
}

impl Drop for FileRoom {
    fn drop(&mut self) {
        self.beyond = None;
        self.hold.force(0);
        self.memory.freed.notify_waiters();
    }
}

impl Loaded {
    /// Refuses a request with files of this many bytes if there is no room for them next to the chat.
    pub(in crate::chat) fn check_files(&mut self, bytes: usize) -> Result<(), BudgetError> {
        if cost(bytes) <= SMALL {
            return Ok(());
        }
        let held = self.hold.bytes();
        self.hold.resize(held.saturating_add(cost(bytes)))?;
        self.hold.force(held);
        Ok(())
    }
}

/// While a request is made, its files are there as often as the texts of a chat.
fn cost(bytes: usize) -> usize {
    bytes.saturating_mul(LOADED_COPIES)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use super::super::tests::{MIB, here, memory};
    use super::*;

    fn question(memory: &Arc<LoadedMemory>, user: &str, bytes: usize) -> Option<FileRoom> {
        memory.try_room_for_files(&user.into(), bytes, FilePurpose::Question)
    }

    #[test]
    fn files_find_room_or_one_question_at_a_time_goes_beyond_it() {
        let memory = memory(20 * MIB, 10 * MIB);
        let mut first = question(&memory, "alice", 2 * MIB).unwrap();
        assert_eq!(memory.held(), 6 * MIB);
        let beyond = question(&memory, "alice", 2 * MIB).unwrap();
        assert!(question(&memory, "alice", 2 * MIB).is_none());
        // Small files and other users do not wait for her.
        let small = question(&memory, "alice", SMALL / LOADED_COPIES).unwrap();
        let other = question(&memory, "bob", 2 * MIB).unwrap();
        drop((other, beyond));
        // What is left of a request that was made is counted.
        first.keep(1);
        assert_eq!(
            memory.held(),
            2 * MIB + SMALL / LOADED_COPIES * LOADED_COPIES
        );
        let second = question(&memory, "alice", 2 * MIB).unwrap();
        assert!(second.beyond.is_none());
        drop((first, second, small));
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn a_lost_session_is_restored_while_questions_wait() {
        let memory = memory(20 * MIB, 10 * MIB);
        let rooms = [3, 3].map(|mib| question(&memory, "alice", mib * MIB).unwrap());
        assert!(question(&memory, "alice", MIB).is_none());
        let alice = "alice".into();
        let restoring = || memory.try_room_for_files(&alice, MIB, FilePurpose::Restoring);
        let first = restoring().unwrap();
        assert!(restoring().is_none());
        drop(first);
        assert!(restoring().is_some());
        drop(rooms);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn a_request_with_files_is_refused_unless_only_its_own_chat_is_in_the_way() {
        let memory = memory(20 * MIB, 10 * MIB);
        let mut chat = here(&memory, "alice", 3 * MIB).unwrap();
        let held = memory.held();
        chat.check_files(3 * MIB).unwrap();
        assert_eq!(memory.held(), held);
        let room = question(&memory, "alice", MIB / 4).unwrap();
        let refused = chat.check_files(3 * MIB).unwrap_err();
        assert!(refused.to_string().contains("limits.loaded_bytes_per_user"));
        assert_eq!(memory.held(), held + 3 * MIB / 4);
        chat.check_files(SMALL / LOADED_COPIES).unwrap();
        drop(room);
        chat.check_files(3 * MIB).unwrap();
    }

    fn is_pending(room: &mut Pin<Box<impl Future<Output = FileRoom>>>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        room.as_mut().poll(&mut context).is_pending()
    }

    #[tokio::test]
    async fn who_waits_goes_on_when_room_is_released_and_leaves_nothing_when_cancelled() {
        let memory = memory(20 * MIB, 10 * MIB);
        let rooms = [3, 3].map(|mib| question(&memory, "alice", mib * MIB).unwrap());
        let held = memory.held();
        let alice = UserId::literal("alice");
        let mut waits = Box::pin(memory.room_for_files(&alice, 2 * MIB, FilePurpose::Question));
        let mut gives_up = Box::pin(memory.room_for_files(&alice, MIB, FilePurpose::Question));
        assert!(is_pending(&mut waits));
        assert!(is_pending(&mut gives_up));
        drop(gives_up);
        assert_eq!(memory.held(), held);
        drop(rooms);
        let room = waits.await;
        assert_eq!(memory.held(), 6 * MIB);
        drop(room);
        assert_eq!(memory.held(), 0);
    }
}
