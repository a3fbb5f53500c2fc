//! How long an agent may be silent: only content counts, not bytes that keep the connection alive.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// The remaining patience with an agent. It shrinks only while the run is read: a run that waits for its readers is not
/// silent.
#[derive(Debug)]
pub(crate) struct Patience {
    whole: Duration,
    left: Duration,
    /// One for all waits. It may ring too early and is then set again: every piece that an agent sends moves the
    /// deadline, and setting a timer costs more than reading the clock.
    alarm: Option<Pin<Box<Sleep>>>,
}

/// The agent has said nothing for too long.
#[derive(Debug)]
pub(crate) struct SilenceError(pub(crate) Duration);

impl Patience {
    pub(crate) fn new(whole: Duration) -> Self {
        Self {
            whole,
            left: whole,
            alarm: None,
        }
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
        let since = Instant::now();
        let deadline = since + self.left;
        let waiting = WaitTimer {
            since,
            left: &mut self.left,
        };
        let mut something = pin!(something);
        let alarm = &mut self.alarm;
        let done = poll_fn(|context| {
            if let Poll::Ready(done) = something.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            let alarm = alarm.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if alarm.deadline() > deadline {
                alarm.as_mut().reset(deadline);
            }
            while alarm.as_mut().poll(context).is_ready() {
                if alarm.deadline() >= deadline {
                    return Poll::Ready(None);
                }
                alarm.as_mut().reset(deadline);
            }
            Poll::Pending
        });
        let done = done.await;
        drop(waiting);
        done.ok_or(SilenceError(self.whole))
    }
}

/// Subtracts its lifetime from the patience.
struct WaitTimer<'p> {
    since: Instant,
    left: &'p mut Duration,
}

impl Drop for WaitTimer<'_> {
    fn drop(&mut self) {
        *self.left = self.left.saturating_sub(self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::timeout;

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
        // The alarm of an earlier wait rings before the deadline of this one.
        patience.renew();
        assert!(!runs_out(&mut patience, 9 * SECOND).await);
        assert!(runs_out(&mut patience, 2 * SECOND).await);
    }
}
