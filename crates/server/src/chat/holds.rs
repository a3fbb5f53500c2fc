//! Posts that bring nothing new to an ended reply: the answer is sent at once, and its end is delayed.
//!
//! A front end whose predicate stays true posts again as soon as its request has ended. A reply that is not over holds
//! the turn itself ([`Reply::hold_until`]); an ended reply opens no turn, so its answers are held here. Nothing else
//! waits for them: they end by timeout, with the next turn of the chat, or with the chat's task. How many there were is
//! remembered for as long as the longest hold after the last of them.
//!
//! [`Reply::hold_until`]: adk_bridge_protocol::reply::Reply::hold_until

use adk_bridge_protocol::reply::{LONGEST_HOLD, hold_after};
use tokio::time::Instant;
use uuid::Uuid;

use super::error::ChatError;
use super::readers::Readers;

/// How many answers of one chat may be held; each belongs to a page that keeps posting the same.
const MAX_HELD: usize = 32;

/// The answers of one chat that have been sent but not ended.
#[derive(Debug, Default)]
pub(super) struct Holds {
    held: Vec<HeldTurn>,
    /// How many posts in a row brought nothing new.
    repeats: u32,
    /// When the answer to the last of them ended.
    ended_at: Option<Instant>,
}

#[derive(Debug)]
struct HeldTurn {
    until: Instant,
    readers: Readers,
    /// The live connection that reads it, whose next stream waits for its end.
    connection: Option<Uuid>,
}

impl Holds {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// When the first of them is due to end.
    pub(super) fn due(&self) -> Option<Instant> {
        self.held.iter().map(|held| held.until).min()
    }

    /// Until when another post that brings nothing new counts as a repeat of the same front end.
    pub(super) fn remembered_until(&self) -> Option<Instant> {
        let ended_at = self.ended_at.filter(|_| self.repeats > 0)?;
        Some(ended_at + LONGEST_HOLD)
    }

    /// Refuses one more if too many are held, including the readers of the open turn: ending an older one instead would
    /// let its client post at once.
    pub(super) fn check_room(&mut self, reading: usize) -> Result<(), ChatError> {
        self.held.retain_mut(|held| held.readers.has_open_answers());
        if self.held.len() + reading < MAX_HELD {
            return Ok(());
        }
        Err(ChatError::TooManyHeld { most: MAX_HELD })
    }

    /// Refuses a second one for a live connection, whose streams follow each other: it would end the first at once, and
    /// its client could post as fast as it likes.
    pub(super) fn check_connection(&self, connection: Option<Uuid>) -> Result<(), ChatError> {
        let holds = |held: &HeldTurn| connection.is_some() && held.connection == connection;
        match self.held.iter().any(holds) {
            true => Err(ChatError::TooManyHeld { most: 1 }),
            false => Ok(()),
        }
    }

    /// Ends an answer to a post that brings nothing new: at once if its client lacked something, otherwise later.
    pub(super) fn hold(&mut self, mut readers: Readers, connection: Option<Uuid>, now: Instant) {
        let repeats = self.repeats;
        self.repeats = repeats.saturating_add(1);
        if readers.lacked() && repeats == 0 {
            self.ended_at = Some(now);
            return readers.finish();
        }
        readers.flush();
        self.held.push(HeldTurn {
            until: now + hold_after(repeats),
            readers,
            connection,
        });
    }

    /// Ends the answers that are due.
    pub(super) fn end_due(&mut self, now: Instant) {
        if self.end_where(|held| held.until <= now) {
            self.ended_at = Some(now);
        }
    }

    /// Ends the answer that a live connection reads, because its next stream follows.
    pub(super) fn end_of(&mut self, connection: Uuid) {
        self.end_where(|held| held.connection == Some(connection));
    }

    /// Ends them all, because there is something new.
    pub(super) fn end_all(&mut self) {
        self.repeats = 0;
        self.end_where(|_| true);
    }

    /// Ends them all without a last chunk.
    pub(super) fn cut(&mut self) {
        for mut held in self.held.drain(..) {
            held.readers.cut();
        }
    }

    /// Returns whether there were any.
    fn end_where(&mut self, ends: impl Fn(&HeldTurn) -> bool) -> bool {
        let before = self.held.len();
        for mut held in self.held.extract_if(.., |held| ends(held)) {
            held.readers.finish();
        }
        self.held.len() < before
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use adk_bridge_protocol::chunk::Sdk;
    use adk_bridge_protocol::dialect::{Dialect, Reader};
    use adk_bridge_protocol::reply::Reply;
    use adk_bridge_protocol::wire::sse;

    use super::*;
    use crate::chat::readers::Answer;
    use crate::chat::unread::UnreadAnswers;

    /// A post of a client that has the whole message, or nothing of it.
    fn post(holds: &mut Holds, connection: Option<Uuid>, knows: bool) -> Answer {
        let reply = Reply::restore(
            serde_json::from_value(serde_json::json!({
                "message": {"id": "m", "role": "assistant", "parts": [{"type": "text", "text": "hello"}]},
                "calls": [], "asking": false, "steps": 1, "retried": false, "ended": "finished",
            }))
            .unwrap(),
        );
        let mut readers = Readers::new(Arc::default(), UnreadAnswers::for_tests());
        let reader = Reader::new(Dialect::Native, Sdk::V6, false);
        let message = reply.message().clone();
        let mut empty = message.clone();
        empty.parts.clear();
        let answer = readers.attach(reader, &reply, Some(if knows { &message } else { &empty }));
        holds.hold(readers, connection, Instant::now());
        answer
    }

    fn has_ended(answer: &mut Answer) -> bool {
        let mut text = Vec::new();
        while let Some(piece) = answer.try_recv() {
            text.extend_from_slice(&piece);
        }
        text.ends_with(sse::DONE)
    }

    #[test]
    fn each_post_without_news_is_held_longer_than_the_one_before_until_there_is_news() {
        let mut holds = Holds::default();
        for wait in [250, 500, 1000, 2000, 4000, 5000, 5000, 250, 500] {
            if wait == 250 {
                holds.end_all();
            }
            let least = Instant::now();
            let mut answer = post(&mut holds, None, true);
            let most = Instant::now();
            let wait = Duration::from_millis(wait);
            let due = holds.due().unwrap();
            assert!(least + wait <= due && due <= most + wait);
            holds.end_due(due - Duration::from_millis(1));
            assert!(!has_ended(&mut answer));
            holds.end_due(due);
            assert!(holds.is_empty() && has_ended(&mut answer));
            let longest = LONGEST_HOLD;
            assert_eq!(holds.remembered_until(), Some(due + longest));
        }
    }

    #[test]
    fn who_lacks_something_is_answered_at_once_but_not_again_and_again() {
        let mut holds = Holds::default();
        assert!(has_ended(&mut post(&mut holds, None, false)));
        assert!(!has_ended(&mut post(&mut holds, None, false)));
        holds.end_all();
        assert!(has_ended(&mut post(&mut holds, None, false)));
    }

    #[test]
    fn a_chat_holds_a_bounded_number_and_forgets_who_left() {
        let mut holds = Holds::default();
        let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
        let mut mine = post(&mut holds, Some(one), true);
        let mut others = post(&mut holds, Some(other), true);
        assert!(holds.check_connection(Some(one)).is_err());
        assert!(holds.check_connection(None).is_ok());
        holds.end_of(one);
        assert!(holds.check_connection(Some(one)).is_ok());
        assert!(has_ended(&mut mine) && !has_ended(&mut others));
        let held: Vec<Answer> = (1..MAX_HELD)
            .map(|_| post(&mut holds, None, true))
            .collect();
        assert!(holds.check_room(0).is_err());
        drop(held);
        assert!(holds.check_room(MAX_HELD - 2).is_ok());
        assert!(holds.check_room(MAX_HELD - 1).is_err());
    }
}
