//! How long the store waits for a database that is away, by who asks.

use std::time::Duration;

/// How long a statement is tried. A database that is away for longer is not being restarted.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How long something is tried to be read for a request. Its client sees nothing until then, may have given up after as long, and
/// can ask again; a restart of the database on the same machine takes less.
pub(super) const FOR_A_REQUEST: Duration = Duration::from_secs(5);

tokio::task_local! {
    /// Set in the task of a request, and not in those that it starts: what tasks of chats do is not given up.
    static IS_REQUEST: ();
}

/// Answers a request: what is read meanwhile is given up sooner.
pub(crate) async fn in_request<T>(answer: impl Future<Output = T>) -> T {
    IS_REQUEST.scope((), answer).await
}

/// How long something is tried to be read.
pub(super) fn of_reads() -> Duration {
    match IS_REQUEST.try_with(|()| ()) {
        Ok(()) => FOR_A_REQUEST,
        Err(_) => PATIENCE,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_waits_less_than_what_it_starts() {
        assert_eq!(of_reads(), PATIENCE);
        let (own, started) = in_request(async {
            let started = tokio::spawn(async { of_reads() });
            (of_reads(), started.await.unwrap())
        })
        .await;
        assert_eq!((own, started), (FOR_A_REQUEST, PATIENCE));
    }
}
