//! Tokens that name keys which a provider is not known to have: how often that is a reason to ask the provider.
//!
//! Whoever makes up tokens must not make the bridge ask as often, and a provider that has just rotated its keys must be asked
//! at once. So a few questions are free, and further ones have to wait. Meanwhile such a token is neither right nor wrong, unless
//! its key is one that was asked for in vain.

use std::collections::HashMap;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// How many questions are free: a rotation at any moment is noticed at once, next to some wrong tokens.
const FREE: u32 = 5;
/// How long one that was used takes to be free again, and how long the answer to one counts: providers that rotate publish a
/// key before they use it.
const PAUSE: Duration = Duration::from_secs(10);
/// How many keys are remembered that were asked for in vain; only a question adds some.
const MAX_ABSENT: usize = 64;

/// Which keys were asked for in vain, and how many questions are free.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    absent: HashMap<[u8; 32], Instant>,
    /// When all questions are free again.
    free_at: Option<Instant>,
}

/// Whether the provider may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Ask,
    TooOften,
}

impl Unknown {
    /// Uses a question, if one is free.
    pub(super) fn may_ask(&mut self, now: Instant) -> Verdict {
        let free_at = self.free_at.map_or(now, |at| at.max(now)) + PAUSE;
        if free_at > now + FREE * PAUSE {
            return Verdict::TooOften;
        }
        self.free_at = Some(free_at);
        Verdict::Ask
    }

    /// Notes that the provider has just been asked, and does not have this key.
    pub(super) fn note_absent(&mut self, key: Option<&str>, now: Instant) {
        // Tokens without the name of a key have nothing in common.
        let Some(key) = key.map(digest) else { return };
        if self.absent.len() >= MAX_ABSENT
            && !self.absent.contains_key(&key)
            && let Some(oldest) = self.absent.iter().min_by_key(|(_, at)| **at)
        {
            let oldest = *oldest.0;
            self.absent.remove(&oldest);
        }
        self.absent.insert(key, now);
    }

    /// Whether the provider was asked for this key a moment ago, in vain.
    pub(super) fn is_absent(&self, key: Option<&str>, now: Instant) -> bool {
        let at = key.and_then(|key| self.absent.get(&digest(key)));
        at.is_some_and(|at| now < *at + PAUSE)
    }

    /// The same, however long ago that was.
    pub(super) fn was_absent(&self, key: Option<&str>) -> bool {
        key.is_some_and(|key| self.absent.contains_key(&digest(key)))
    }
}

/// Names of keys come with tokens, and may be long.
fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_questions_are_free_and_then_one_now_and_then() {
        let (mut unknown, start) = (Unknown::default(), Instant::now());
        let mut asked = |seconds| unknown.may_ask(start + Duration::from_secs(seconds));
        for (seconds, verdict) in [
            (0, Verdict::Ask),
            (0, Verdict::Ask),
            (0, Verdict::Ask),
            (0, Verdict::Ask),
            (1, Verdict::Ask),
            (1, Verdict::TooOften),
            (9, Verdict::TooOften),
            (10, Verdict::Ask),
            (11, Verdict::TooOften),
            (20, Verdict::Ask),
            (100, Verdict::Ask),
            (100, Verdict::Ask),
            (100, Verdict::Ask),
            (100, Verdict::Ask),
            (100, Verdict::Ask),
            (100, Verdict::TooOften),
        ] {
            assert_eq!(asked(seconds), verdict, "{seconds}");
        }
    }

    #[test]
    fn a_key_that_was_asked_for_in_vain_is_remembered_for_a_while() {
        let (mut unknown, now) = (Unknown::default(), Instant::now());
        unknown.note_absent(None, now);
        assert!(!unknown.is_absent(None, now) && !unknown.was_absent(None));
        unknown.note_absent(Some("a"), now);
        assert!(unknown.is_absent(Some("a"), now) && !unknown.is_absent(Some("b"), now));
        assert!(!unknown.is_absent(Some("a"), now + PAUSE) && unknown.was_absent(Some("a")));
        for number in 0..2 * MAX_ABSENT as u64 {
            let later = now + Duration::from_millis(number + 1);
            unknown.note_absent(Some(&number.to_string()), later);
        }
        assert_eq!(unknown.absent.len(), MAX_ABSENT);
        assert!(!unknown.was_absent(Some("a")));
    }
}
