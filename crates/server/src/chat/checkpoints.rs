//! Checkpoints of growing answers: what texts have grown by is stored for all chats together, and nobody waits for it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adk_bridge_protocol::message::{Extent, Growth, Message};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::context::ChatContext;
use crate::failpoint::failpoint;
use crate::store::{GrownReply, Store, StoreError};

/// How long to wait for more before writing: one transaction costs as much as all that is in it.
const GATHER: Duration = Duration::from_millis(200);
/// How much text may wait. A store that takes longer for it is one that chats have to wait for.
const MAX_WAITING_BYTES: usize = 8 * 1024 * 1024;

/// What is to be stored next, of all chats.
pub struct Checkpoints {
    store: Arc<dyn Store>,
    waiting: Mutex<Waiting>,
    /// Notified when something waits, and when nothing more will.
    come: Arc<Notify>,
    /// How often something was not stored: every message has to be stored whole then.
    losses: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    replies: Vec<GrownReply>,
    bytes: usize,
}

/// What of a growing reply is stored, and when more of it will be.
pub(super) struct ReplyCheckpoint {
    due: Instant,
    /// If it is known, with how often something was not stored by then.
    stored: Option<(Extent, u64)>,
}

impl Checkpoints {
    /// Stores what comes, for as long as anybody may bring something.
    pub fn storing_in(store: Arc<dyn Store>) -> Arc<Self> {
        let come = Arc::new(Notify::new());
        let this = Arc::new(Self {
            store,
            waiting: Mutex::default(),
            come: come.clone(),
            losses: AtomicU64::new(0),
        });
        // While it waits it keeps nothing open.
        let checkpoints = Arc::downgrade(&this);
        tokio::spawn(async move {
            loop {
                come.notified().await;
                sleep(GATHER).await;
                let Some(checkpoints) = checkpoints.upgrade() else {
                    return;
                };
                checkpoints.store().await;
            }
        });
        this
    }

    async fn store(&self) {
        let waiting = std::mem::take(&mut *self.lock());
        if waiting.replies.is_empty() {
            return;
        }
        match self.store.grow_replies(&waiting.replies).await {
            Ok(()) => failpoint("after", "checkpoint"),
            Err(error) => {
                self.losses.fetch_add(1, Relaxed);
                let answers = waiting.replies.len();
                match error {
                    // Somebody else was writing one of them.
                    StoreError::Busy => tracing::debug!(answers, "a checkpoint is incomplete"),
                    error => {
                        tracing::warn!(answers, %error, "what answers have grown by was not stored; they are stored whole next");
                    }
                }
            }
        }
    }

    /// Takes a reply that has grown. `false`: too much waits already.
    fn push(&self, reply: GrownReply) -> bool {
        let bytes: usize = reply.texts.iter().map(|growth| growth.text.len()).sum();
        let mut waiting = self.lock();
        if waiting.bytes + bytes > MAX_WAITING_BYTES {
            return false;
        }
        waiting.bytes += bytes;
        waiting.replies.push(reply);
        let is_first = waiting.replies.len() == 1;
        drop(waiting);
        if is_first {
            self.come.notify_one();
        }
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        // Poisoning is ignored: no critical section can leave it inconsistent.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.come.notify_one();
    }
}

impl ReplyCheckpoint {
    pub(super) fn new() -> Self {
        Self {
            due: Instant::now(),
            stored: None,
        }
    }

    pub(super) fn is_due(&self, at: Instant) -> bool {
        self.due <= at
    }

    /// Sets when the next one is due.
    pub(super) fn set_due(&mut self, due: Instant) {
        self.due = due;
    }

    /// Notes that the message is stored as it is.
    pub(super) fn note_stored(&mut self, message: &Message, context: &ChatContext) {
        let losses = context.checkpoints.losses.load(Relaxed);
        self.stored = Some((Extent::of(message), losses));
    }

    /// Nothing is known of what is stored.
    pub(super) fn forget(&mut self) {
        self.stored = None;
    }

    /// Has what a message has grown by stored soon. `false`: it has to be stored whole.
    pub(super) fn store_growth(&mut self, message: &Message, context: &ChatContext) -> bool {
        let checkpoints = &context.checkpoints;
        let grown = match &mut self.stored {
            Some((extent, losses)) if *losses == checkpoints.losses.load(Relaxed) => {
                extent.grow(message)
            }
            _ => None,
        };
        let taken = grown.is_some_and(|texts| {
            texts.is_empty() || checkpoints.push(context.grown_reply(message, texts))
        });
        if !taken {
            self.forget();
        }
        taken
    }
}

impl ChatContext {
    fn grown_reply(&self, message: &Message, texts: Vec<Growth>) -> GrownReply {
        GrownReply {
            user: self.user().clone(),
            chat_id: self.chat_id().clone(),
            epoch: self.epoch(),
            message_id: message.id.clone(),
            texts,
        }
    }
}
