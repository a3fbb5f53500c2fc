//! How long an agent may be silent: only content counts, not bytes that keep the connection alive.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// The remaining patience with an agent. It shrinks only while the run is read: a run that waits for its readers is not
/// silent.
#[derive(Debug)]
pub(crate) struct Patience {
    whole: Duration,
    left: Duration,
}

/// The agent has said nothing for too long.
#[derive(Debug)]
pub(crate) struct SilenceError(pub(crate) Duration);

impl Patience {
    pub(crate) fn new(whole: Duration) -> Self {
        Self { whole, left: whole }
    }

    /// Starts again, because the agent said something.
    pub(crate) fn renew(&mut self) {
        self.left = self.whole;
    }

    /// Waits for a future. Cancel-safe if the future is.
    pub(crate) async fn wait_for<T>(
        &mut self,
        something: impl Future<Output = T>,
    ) -> Result<T, SilenceError> {
        let whole = self.whole;
        let waiting = WaitTimer {
            since: Instant::now(),
            patience: self,
        };
        timeout(waiting.patience.left, something)
            .await
            .map_err(|_| SilenceError(whole))
    }
}

/// Subtracts its lifetime from the patience.
struct WaitTimer<'p> {
    since: Instant,
    patience: &'p mut Patience,
}

impl Drop for WaitTimer<'_> {
    fn drop(&mut self) {
        let left = self.patience.left;
        self.patience.left = left.saturating_sub(self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn runs_out(patience: &mut Patience, time: Duration) -> bool {
        let wait = patience.wait_for(pending::<()>());
        matches!(timeout(time, wait).await, Ok(Err(SilenceError(_))))
    }

    #[tokio::test(start_paused = true)]
    async fn only_time_that_was_listened_counts_and_only_words_renew_it() {
        let mut patience = Patience::new(10 * SECOND);
        assert!(!runs_out(&mut patience, 6 * SECOND).await);
        tokio::time::sleep(100 * SECOND).await;
        assert!(patience.wait_for(ready(())).await.is_ok(), "bytes came");
        assert!(runs_out(&mut patience, 6 * SECOND).await);
        patience.renew();
        assert!(!runs_out(&mut patience, 6 * SECOND).await);
    }
}
