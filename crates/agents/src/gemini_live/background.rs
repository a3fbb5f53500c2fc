//! Calls of a model that goes on speaking while they are open.
//!
//! ```text
//!   Idle ── call ──▶ Held ── its words end ──▶ passed on, open ── results ──▶ Idle
//! ```
//!
//! A reply has one order: words, calls, results, words. So a call is held until the words around it end, and what the
//! model says while a call is open is held until there is a result. If the user goes on speaking before that, the model
//! is informed that the result comes later: from then on it is as if the calls were cancelled.

use std::collections::VecDeque;
use std::time::Duration;

use adk_bridge_protocol::event::FunctionCall;
use tokio::time::Instant;

/// A model that says nothing for this long after a call has no more words for it.
pub(super) const CALL_PAUSE: Duration = Duration::from_millis(500);
/// A transcription that comes later than this after a call is of new speech, not of the speech before the call.
const LATE_WORDS: Duration = Duration::from_secs(3);
/// How much of what the model says during a call is kept: some twenty seconds of sound. The rest is not heard.
const MAX_HELD_BYTES: usize = 2 * 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Background {
    /// Calls that are not passed on yet: their ids and their JSON.
    calls: Vec<(Option<String>, String)>,
    /// When the calls that are open were passed on.
    passed_at: Option<Instant>,
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Background {
    pub(super) fn hold_calls(&mut self, calls: &[FunctionCall<'_>]) {
        self.calls.extend(calls.iter().filter_map(|call| {
            let json = serde_json::to_string(call).ok()?;
            Some((call.id.as_deref().map(str::to_owned), json))
        }));
    }

    pub(super) fn holds_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The calls, to be passed on now.
    pub(super) fn take_calls(&mut self) -> Vec<String> {
        self.passed_at = Some(Instant::now());
        let calls = std::mem::take(&mut self.calls);
        calls.into_iter().map(|(_, json)| json).collect()
    }

    /// Forgets calls that the model has taken back.
    pub(super) fn cancel(&mut self, ids: &[String]) {
        let is_left = |id: &Option<String>| id.as_ref().is_none_or(|id| !ids.contains(id));
        self.calls.retain(|(id, _)| is_left(id));
    }

    /// Whether a transcription that comes now is of speech since the calls that are open.
    pub(super) fn is_new_speech(&self) -> bool {
        self.passed_at.is_some_and(|at| at.elapsed() >= LATE_WORDS)
    }

    pub(super) fn hold_message(&mut self, message: &[u8]) {
        if self.bytes + message.len() > MAX_HELD_BYTES {
            tracing::warn!(
                "the live model says more during a call than is kept; the rest is dropped"
            );
            return;
        }
        self.bytes += message.len();
        self.messages.push_back(message.to_vec());
    }

    /// What the model said while calls were open.
    pub(super) fn take_messages(&mut self) -> VecDeque<Vec<u8>> {
        self.bytes = 0;
        std::mem::take(&mut self.messages)
    }
}
