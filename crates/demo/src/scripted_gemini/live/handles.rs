//! Handles: the states of conversations that can be resumed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adk_bridge_protocol::json_text::Json;
use tokio::time::Instant;

/// A test needs a few, a demo some dozens; beyond that, the oldest are of no use.
const MAX_HANDLES: usize = 512;
/// The lifetime of handles at Google.
const LIFETIME: Duration = Duration::from_secs(2 * 3_600);

/// The conversation up to the moment when a handle was given out.
pub(super) type State = Arc<Vec<Json>>;

#[derive(Default)]
pub(in super::super) struct Handles {
    kept: Mutex<VecDeque<(String, Instant, State)>>,
    given: AtomicU64,
}

impl Handles {
    pub(super) fn give(&self, contents: &[Json]) -> String {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        let handle = format!("scripted-session-{number}");
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_HANDLES {
            kept.pop_front();
        }
        kept.push_back((handle.clone(), Instant::now(), Arc::new(contents.to_vec())));
        handle
    }

    pub(super) fn take_up(&self, handle: &str) -> Option<State> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, since, _)| since.elapsed() < LIFETIME);
        kept.iter()
            .find(|(known, ..)| known == handle)
            .map(|(.., state)| Arc::clone(state))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn handles_are_kept_for_a_while_and_in_number() {
        let handles = Handles::default();
        let first = handles.give(&[json!("one").into()]);
        assert_eq!(*handles.take_up(&first).unwrap(), [json!("one")]);
        assert_eq!(handles.take_up("another"), None);
        tokio::time::advance(LIFETIME).await;
        assert_eq!(handles.take_up(&first), None);
        let second = handles.give(&[]);
        for _ in 0..MAX_HANDLES - 1 {
            handles.give(&[]);
        }
        assert!(handles.take_up(&second).is_some());
        handles.give(&[]);
        assert!(handles.take_up(&second).is_none());
    }
}
