//! Timestamps: moments are not durations, and the types keep them apart.

use std::ops::{Add, AddAssign};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment, in milliseconds since the Unix epoch. It is always passed as an argument.
///
/// Two moments cannot be added, and a number is not a moment:
///
/// ```compile_fail
/// # use adk_bridge_protocol::time::Timestamp;
/// Timestamp::from_millis(1) + Timestamp::from_millis(2);
/// ```
///
/// ```compile_fail
/// # use adk_bridge_protocol::time::Timestamp;
/// let expires: Timestamp = 5 * 60 * 1000;
/// ```
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Later than any real moment.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment so many milliseconds after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// How many milliseconds have passed since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How much later it is; zero if it is earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates at [`Timestamp::MAX`].
impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_durations() {
        let noon = Timestamp::from_millis(12);
        assert_eq!(noon + Duration::from_millis(3), Timestamp::from_millis(15));
        assert_eq!(noon + Duration::MAX, Timestamp::MAX);
        assert_eq!(
            Timestamp::MAX.since(noon).as_millis(),
            u128::from(u64::MAX - 12)
        );
        assert_eq!(noon.since(Timestamp::MAX), Duration::ZERO);
    }

    #[test]
    fn it_is_written_as_a_number() {
        assert_eq!(
            serde_json::to_string(&Timestamp::from_millis(7))
                .ok()
                .as_deref(),
            Some("7")
        );
        assert_eq!(
            serde_json::from_str("7").ok(),
            Some(Timestamp::from_millis(7))
        );
    }
}
