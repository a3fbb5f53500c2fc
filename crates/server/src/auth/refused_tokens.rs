//! Why tokens are refused, for the log: each reason, but not without end.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How many refusals are logged in a minute: enough to find out what is wrong, too few to fill a disk.
const LOGGED_PER_MINUTE: u32 = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// Logs refusals of tokens.
#[derive(Debug, Default)]
pub(super) struct RefusedTokens(Mutex<Option<Counted>>);

#[derive(Debug)]
struct Counted {
    since: Instant,
    refused: u32,
}

impl RefusedTokens {
    /// The reason must hold nothing of the token that is secret.
    pub(super) fn note(&self, source: &str, reason: &dyn Display) {
        let (number, unlogged) = self.count(Instant::now());
        if unlogged > 0 {
            tracing::warn!("{unlogged} more tokens were refused in the minute before");
        }
        if number <= LOGGED_PER_MINUTE {
            tracing::warn!(source, "a token of {source} is refused: {reason}");
        }
    }

    /// The number of this refusal within its minute, and how many of the minute before were not logged.
    fn count(&self, now: Instant) -> (u32, u32) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unlogged = match counted.as_ref() {
            Some(counted) if now < counted.since + MINUTE => None,
            earlier => Some(earlier.map_or(0, |it| it.refused.saturating_sub(LOGGED_PER_MINUTE))),
        };
        if unlogged.is_some() {
            *counted = None;
        }
        let counted = counted.get_or_insert(Counted {
            since: now,
            refused: 0,
        });
        counted.refused = counted.refused.saturating_add(1);
        (counted.refused, unlogged.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_so_many_lines_and_the_next_says_how_many_are_missing() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        for number in 1..=LOGGED_PER_MINUTE + 5 {
            assert_eq!(refused.count(now), (number, 0));
        }
        assert_eq!(refused.count(now + MINUTE), (1, 5));
        assert_eq!(refused.count(now + MINUTE), (2, 0));
        assert_eq!(refused.count(now + 3 * MINUTE), (1, 0));
    }
}
