//! The memory of chats: reserved before a chat is loaded, and released while nothing is under way.
//!
//! ```text
//!             a request, a deadline, a start of the server: when there is room
//!     Away ─────────────────────────────────────────────────────────────────▶ Here
//!      ▲                                                                        │
//!      └─────────── nothing is under way, and nobody waits for an answer ───────┘
//! ```
//!
//! The store has everything, so a chat that only waits, for a human or with a live client, holds nothing but the
//! deadlines of its questions. A request is refused if there is no room for it. What has begun continues: an answer
//! without room to grow waits, and one at a time may exceed the limits, so that all of them end.

mod sent_files;

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::time::Timestamp;
use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::request::ChatRequest;
use crate::budget::{self, Budget, BudgetError, Hold, LOADED_COPIES};
use crate::config::{Current, Limits};
use crate::store::{CommittedSize, HistorySize};
use sent_files::Exceptions;
pub(super) use sent_files::{FilePurpose, FileRoom};

/// The bytes of a message in addition to its text.
const MESSAGE_BYTES: usize = 512;
/// Never refused: an ordinary chat must work even if others are long. Turns are counted elsewhere.
const SMALL: usize = 256 * 1024;
/// A chat that holds more is released as soon as nothing is under way; for a smaller one, loading it again would cost
/// more than keeping it.
const LARGE: usize = 4 * 1024 * 1024;
/// An answer is counted in steps of this size.
const STEP: usize = 64 * 1024;
/// The answers to an open question may always have this size, and so may the agent's answer to them, so that what has
/// begun can end in a full chat too.
pub(super) const RESERVE: usize = 64 * 1024;
/// How often to check again while waiting for room.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The memory of all chats together.
pub struct LoadedMemory {
    budget: Arc<Budget>,
    /// Wakes tasks that wait for room.
    freed: Notify,
    /// The right to grow beyond the limits.
    beyond: Arc<Semaphore>,
    /// The right to load a chat beyond the limits, in order to stop or delete it.
    closing: Arc<Semaphore>,
    /// The right to send files beyond the limits.
    exceptions: Exceptions,
    chat_bytes: Current<usize>,
}

/// A chat has reached its maximum length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChatFull {
    #[error(
        "the messages of this chat have {bytes} bytes, and with this one they would have more than {limit} \
         (limits.chat_bytes); start a new chat"
    )]
    Message { bytes: usize, limit: usize },
    #[error(
        "the messages of this chat have {bytes} bytes, more than can be held in memory (limits.chat_bytes, \
         limits.loaded_bytes); start a new chat"
    )]
    Unloadable { bytes: usize },
}

/// Why a chat is not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoRoom {
    /// There may be room later.
    #[error(transparent)]
    Now(#[from] BudgetError),
    #[error(transparent)]
    Ever(#[from] ChatFull),
}

impl LoadedMemory {
    pub fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            budget: budget::loaded(limits),
            freed: Notify::new(),
            beyond: Arc::new(Semaphore::new(1)),
            closing: Arc::new(Semaphore::new(1)),
            exceptions: Exceptions::default(),
            chat_bytes: Current::new(limits.chat_bytes),
        })
    }

    /// What is loaded from here on is within these limits.
    pub fn limit(&self, limits: &Limits) {
        self.budget
            .limit(limits.loaded_bytes, limits.loaded_bytes_per_user);
        self.chat_bytes.set(limits.chat_bytes);
    }

    /// How many bytes are in use.
    pub fn held(&self) -> usize {
        self.budget.held()
    }

    /// Counts a request until its chat has taken it.
    pub(super) fn admit_request(
        &self,
        user: &UserId,
        request: &mut ChatRequest,
    ) -> Result<(), BudgetError> {
        if request.size.hold.is_some() {
            return Ok(());
        }
        if request.size.bytes == 0 {
            request.size.bytes = json_bytes(&request.messages);
        }
        let mut hold = self.budget.hold(user);
        take(&mut hold, request.size.bytes)?;
        request.size.hold = Some(hold);
        Ok(())
    }

    /// Waits until there may be room. Cancel-safe.
    async fn room(&self) {
        let _ = tokio::time::timeout(LOOK_AGAIN, self.freed.notified()).await;
    }
}

/// The memory of one chat.
pub(super) struct Loaded {
    memory: Arc<LoadedMemory>,
    hold: Hold,
    beyond: Option<OwnedSemaphorePermit>,
    state: State,
    /// The size of the chat in the store, as far as it is known.
    size: HistorySize,
    answer: Growth,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Away {
        /// Whether one of its replies waits for a client, and until when.
        waits: bool,
        deadline: Option<Timestamp>,
        /// Whether to load it as soon as there is room.
        wanted: bool,
    },
    Here {
        changed: Change,
        /// Whether the answer has to wait for room.
        short: bool,
    },
}

/// How the stored size has changed since it was last known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// By a question and its answer at the end of the history.
    Turn,
    Any,
}

/// The growth of the current answer, in bytes of its content.
#[derive(Debug, Clone, Copy, Default)]
struct Growth {
    /// How much of it is in the size of the history.
    from: usize,
    /// How much of it is counted.
    to: usize,
}

impl Loaded {
    pub(super) fn new(memory: Arc<LoadedMemory>, user: &UserId) -> Self {
        Self {
            hold: memory.budget.hold(user),
            memory,
            beyond: None,
            state: State::Away {
                waits: false,
                deadline: None,
                wanted: false,
            },
            size: HistorySize::default(),
            answer: Growth::default(),
        }
    }

    pub(super) fn size(&self) -> HistorySize {
        self.size
    }

    /// How many bytes the messages of the chat may have.
    pub(super) fn longest(&self) -> usize {
        self.memory.chat_bytes.get()
    }

    // Away.

    pub(super) fn is_here(&self) -> bool {
        matches!(self.state, State::Here { .. })
    }

    /// Whether the chat is not in memory although one of its replies waits or has to continue.
    pub(super) fn waits_elsewhere(&self) -> bool {
        match self.state {
            State::Away { waits, wanted, .. } => waits || wanted,
            State::Here { .. } => false,
        }
    }

    /// When a chat that is not in memory has to be loaded.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        match self.state {
            State::Away {
                deadline,
                wanted: false,
                ..
            } => deadline,
            _ => None,
        }
    }

    /// Whether to load the chat as soon as there is room.
    pub(super) fn is_wanted(&self) -> bool {
        matches!(self.state, State::Away { wanted: true, .. })
    }

    /// Whether nothing waits to be loaded.
    pub(super) fn is_settled(&self) -> bool {
        !self.is_wanted()
    }

    pub(super) fn want(&mut self) {
        if let State::Away { wanted, .. } = &mut self.state {
            *wanted = true;
        }
    }

    /// Gives up loading the chat; the next command gets the reason.
    pub(super) fn give_up(&mut self) {
        if let State::Away {
            wanted, deadline, ..
        } = &mut self.state
        {
            (*wanted, *deadline) = (false, None);
        }
    }

    /// Waits until there may be room. Cancel-safe.
    pub(super) async fn room(&self) {
        self.memory.room().await;
    }

    /// Reserves room for a history of this size.
    pub(super) fn take_room(&mut self, size: HistorySize) -> Result<(), NoRoom> {
        let cost = self.cost_of(size)?;
        Ok(take(&mut self.hold, cost)?)
    }

    /// The same beyond the limits, to stop or delete a chat.
    pub(super) fn force_room(&mut self, size: HistorySize) -> Result<(), ChatFull> {
        let cost = self.cost_of(size)?;
        self.hold.force(cost);
        Ok(())
    }

    /// The bytes that a history of this size takes, unless that is more than can ever be free.
    fn cost_of(&mut self, size: HistorySize) -> Result<usize, ChatFull> {
        self.size = size;
        let (cost, bytes) = (self.cost(0), size.bytes);
        match cost > self.memory.budget.total() && bytes > self.longest() {
            true => Err(ChatFull::Unloadable { bytes }),
            false => Ok(cost),
        }
    }

    /// Chats are loaded beyond the limits one at a time: while this permit is held.
    pub(super) async fn one_at_a_time(&self) -> Option<OwnedSemaphorePermit> {
        self.memory.closing.clone().acquire_owned().await.ok()
    }

    /// Notes that the chat is in memory. `content`: bytes of content of its current reply.
    pub(super) fn come(&mut self, content: usize) {
        self.answer = Growth {
            from: content,
            to: content,
        };
        self.state = State::Here {
            changed: Change::None,
            short: false,
        };
    }

    pub(super) fn give_back(&mut self) {
        self.beyond = None;
        self.hold.force(0);
        self.memory.freed.notify_waiters();
    }

    // Here.

    /// Notes that the chat is no longer in memory.
    pub(super) fn leave(&mut self, waits: bool, deadline: Option<Timestamp>) {
        self.state = State::Away {
            waits,
            deadline,
            wanted: false,
        };
        self.give_back();
    }

    /// Whether it is so large that it should be released as soon as possible.
    pub(super) fn is_large(&self) -> bool {
        self.hold.bytes() > LARGE
    }

    /// Notes that the stored size has changed.
    pub(super) fn note_change(&mut self) {
        if let State::Here { changed, .. } = &mut self.state
            && *changed == Change::None
        {
            *changed = Change::Any;
        }
    }

    pub(super) fn has_changed(&self) -> bool {
        matches!(self.state, State::Here { changed, .. } if changed != Change::None)
    }

    /// The stored size after a turn, if nothing else has changed it: what the last commit of the answer has stored is
    /// known, and no query is needed.
    pub(super) fn size_after(&self, answer: CommittedSize) -> Option<HistorySize> {
        let State::Here {
            changed: Change::Turn,
            ..
        } = self.state
        else {
            return None;
        };
        Some(HistorySize {
            messages: self.size.messages + 1,
            bytes: self.size.bytes.saturating_add(answer.message),
            largest: self.size.largest.max(answer.message),
            kept: answer.kept,
            open: self.size.open,
        })
    }

    /// Notes the stored size of the chat. `content`: bytes of content of its current reply.
    pub(super) fn note_size(&mut self, size: HistorySize, content: usize) {
        self.size = size;
        self.come(content);
        self.beyond = None;
        // It is in memory already, and will be released soon.
        self.hold.force(self.cost(0));
        self.memory.freed.notify_waiters();
    }

    /// Notes that messages of this many bytes were stored and an answer to them begins. `is_one`: whether it is a single
    /// message, and no other was removed.
    pub(super) fn note_begun(&mut self, bytes: usize, is_one: bool) {
        self.size.messages += 1;
        self.size.bytes = self.size.bytes.saturating_add(bytes);
        self.size.largest = self.size.largest.max(bytes);
        self.size.kept = self.size.kept.saturating_add(bytes as u64);
        self.answer = Growth::default();
        if let State::Here { changed, .. } = &mut self.state {
            *changed = match changed {
                Change::None if is_one => Change::Turn,
                _ => Change::Any,
            };
        }
    }

    /// How much content the answer may have before the chat is full.
    pub(super) fn answer_limit(&self) -> usize {
        let left = self.longest().saturating_sub(self.size.bytes);
        self.answer.from.saturating_add(left.max(RESERVE))
    }

    /// Reserves room for messages or outputs that are added to the chat.
    pub(super) fn admit(&mut self, bytes: usize) -> Result<(), BudgetError> {
        let cost = self.cost(bytes);
        if cost > self.hold.bytes() {
            take(&mut self.hold, cost)?;
        }
        Ok(())
    }

    /// Whether the answer may grow.
    pub(super) fn may_grow(&self) -> bool {
        !matches!(self.state, State::Here { short: true, .. })
    }

    /// Reserves room for what the answer has grown by, or makes it wait.
    pub(super) fn grow(&mut self, content: usize) {
        let is_much = content >= self.answer.to.saturating_add(STEP);
        if !self.is_here() || self.may_grow() && !is_much {
            return;
        }
        self.answer.to = content;
        let cost = self.cost(0);
        let mut fits = take(&mut self.hold, cost).is_ok();
        if !fits {
            let beyond = self.beyond.take();
            self.beyond = beyond.or_else(|| self.memory.beyond.clone().try_acquire_owned().ok());
            fits = self.beyond.is_some();
            if fits {
                self.hold.force(cost);
            }
        }
        if let State::Here { short, .. } = &mut self.state {
            *short = !fits;
        }
    }

    /// The bytes that the chat takes with this many more bytes of messages.
    fn cost(&self, more: usize) -> usize {
        let answer = self.answer.to.saturating_sub(self.answer.from);
        let bytes = self.size.bytes.saturating_add(answer).saturating_add(more);
        let messages = self.size.messages.saturating_mul(MESSAGE_BYTES);
        bytes.saturating_mul(LOADED_COPIES).saturating_add(messages)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Reserves this many bytes; a small number is never refused.
fn take(hold: &mut Hold, bytes: usize) -> Result<(), BudgetError> {
    if bytes <= SMALL {
        hold.force(bytes);
        return Ok(());
    }
    hold.resize(bytes)
}

/// The length of a value as JSON.
pub(super) fn json_bytes(value: &(impl Serialize + ?Sized)) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // A value that cannot be serialised is refused when it is stored.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    pub(super) const MIB: usize = 1024 * 1024;

    pub(super) fn memory(total: usize, per_user: usize) -> Arc<LoadedMemory> {
        LoadedMemory::new(&Limits {
            chat_bytes: 4 * MIB,
            loaded_bytes: total,
            loaded_bytes_per_user: per_user,
            ..Limits::default()
        })
    }

    fn of(bytes: usize) -> HistorySize {
        HistorySize {
            messages: 1,
            bytes,
            largest: bytes,
            open: 0,
            kept: bytes as u64,
        }
    }

    /// A chat of this many bytes in memory.
    pub(super) fn here(
        memory: &Arc<LoadedMemory>,
        user: &str,
        bytes: usize,
    ) -> Result<Loaded, NoRoom> {
        let mut chat = Loaded::new(memory.clone(), &user.into());
        chat.take_room(of(bytes))?;
        chat.come(0);
        Ok(chat)
    }

    #[test]
    fn long_chats_find_room_or_not_and_short_ones_always_do() {
        let memory = memory(20 * MIB, 10 * MIB);
        let mut first = here(&memory, "alice", 2 * MIB).unwrap();
        assert!(matches!(
            here(&memory, "alice", 2 * MIB),
            Err(NoRoom::Now(BudgetError::User { .. }))
        ));
        let _second = here(&memory, "bob", 3 * MIB).unwrap();
        assert!(matches!(
            here(&memory, "carol", 3 * MIB),
            Err(NoRoom::Now(BudgetError::Total { .. }))
        ));
        let _short: Vec<_> = (0..100)
            .map(|_| here(&memory, "alice", 10_000).unwrap())
            .collect();
        // Its memory is returned when it is released, and when it is dropped.
        first.leave(true, Some(Timestamp::from_millis(7)));
        assert_eq!(
            (first.hold.bytes(), first.deadline()),
            (0, Some(Timestamp::from_millis(7)))
        );
        assert!(first.waits_elsewhere() && !first.is_here());
        drop(here(&memory, "alice", MIB).unwrap());
        drop(here(&memory, "alice", 2 * MIB).unwrap());
    }

    #[test]
    fn what_never_fits_is_not_loaded() {
        let memory = memory(20 * MIB, 10 * MIB);
        let bytes = 8 * MIB;
        let refused = here(&memory, "alice", bytes).err().unwrap();
        assert_eq!(refused, NoRoom::Ever(ChatFull::Unloadable { bytes }));
        assert!(refused.to_string().contains("limits.chat_bytes"));
        // A chat beyond its maximum length is still loaded, so that its questions can be answered.
        here(&memory, "alice", 5 * MIB).unwrap();
    }

    #[test]
    fn answers_that_wait_for_each_other_come_to_an_end() {
        let memory = memory(30 * MIB, 7 * MIB);
        let mut chats: Vec<_> = (0..3)
            .map(|_| here(&memory, "alice", 1_000).unwrap())
            .collect();
        for chat in &mut chats {
            chat.grow(MIB / 2);
            assert!(chat.may_grow());
        }
        // The first one without room exceeds the limit, and the others wait for it.
        for chat in &mut chats {
            chat.grow(MIB);
        }
        assert_eq!(
            chats.iter().map(Loaded::may_grow).collect::<Vec<_>>(),
            [true, true, false]
        );
        chats[0].grow(4 * MIB);
        chats[1].grow(4 * MIB);
        let growing: Vec<_> = chats.iter().map(Loaded::may_grow).collect();
        assert_eq!(growing.iter().filter(|grows| **grows).count(), 1);
        let first = growing.iter().position(|grows| *grows).unwrap();
        drop(chats.remove(first));
        for chat in &mut chats {
            chat.grow(4 * MIB);
        }
        assert!(chats.iter().any(Loaded::may_grow));
        let first = chats.iter().position(Loaded::may_grow).unwrap();
        drop(chats.remove(first));
        chats[0].grow(4 * MIB);
        assert!(chats[0].may_grow());
    }

    #[test]
    fn an_answer_has_what_is_left_of_its_chat_and_a_few_words_in_any_case() {
        let memory = memory(30 * MIB, 30 * MIB);
        let mut chat = here(&memory, "alice", MIB).unwrap();
        assert_eq!(chat.answer_limit(), 3 * MIB);
        chat.note_begun(MIB, false);
        assert_eq!((chat.size().bytes, chat.answer_limit()), (2 * MIB, 2 * MIB));
        assert!(chat.has_changed());
        // The reply continues in another turn: its content so far is part of the history.
        chat.note_size(of(3 * MIB), MIB);
        assert_eq!(chat.answer_limit(), 2 * MIB);
        chat.note_size(of(5 * MIB), 0);
        assert_eq!(chat.answer_limit(), RESERVE);
    }

    #[test]
    fn the_size_after_a_turn_is_known_if_nothing_else_has_changed() {
        let memory = memory(30 * MIB, 30 * MIB);
        let answer = CommittedSize {
            message: 100,
            kept: 5_000,
        };
        let mut chat = here(&memory, "alice", 1_000).unwrap();
        assert_eq!(chat.size_after(answer), None);
        let messages = chat.size().messages;
        chat.note_begun(10, true);
        chat.note_change();
        let size = chat.size_after(answer).unwrap();
        assert_eq!(
            (size.messages, size.bytes, size.kept),
            (messages + 2, 1_110, 5_000)
        );
        // A second turn, a cut, or anything before the turn.
        chat.note_begun(10, true);
        assert_eq!(chat.size_after(answer), None);
        chat.note_size(of(1_000), 0);
        chat.note_begun(10, false);
        assert_eq!(chat.size_after(answer), None);
        chat.note_size(of(1_000), 0);
        chat.note_change();
        chat.note_begun(10, true);
        assert_eq!(chat.size_after(answer), None);
    }

    #[test]
    fn the_length_of_json_is_that_of_its_text() {
        for value in [
            serde_json::json!({"a": ["é\n", 1, null]}),
            serde_json::json!(""),
        ] {
            assert_eq!(json_bytes(&value), value.to_string().len());
        }
    }
}
