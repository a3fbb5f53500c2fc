//! How many requests are on their way through this replica: it waits for them before it stops.

use std::sync::Arc;

use tokio::sync::watch;

/// All requests that are being passed on.
#[derive(Debug, Clone, Default)]
pub struct Passages(Arc<watch::Sender<usize>>);

/// One of them, until its answer has come to its end, or its client has left.
#[derive(Debug)]
pub struct Passage(Arc<watch::Sender<usize>>);

impl Passages {
    pub fn begin(&self) -> Passage {
        self.0.send_modify(|count| *count += 1);
        Passage(self.0.clone())
    }

    /// Waits until there are none.
    pub async fn over(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
