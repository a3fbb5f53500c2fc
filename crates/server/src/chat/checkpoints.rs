//! Checkpoints of growing answers: what texts have grown by is stored for all chats together, and nobody waits for it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adk_bridge_protocol::message::{Extent, Growth, Message};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::context::ChatContext;
use crate::failpoint::failpoint;
use crate::store::{GrownReply, Store};

/// How long to wait for more before writing: one statement costs as much as the rows of many chats. A crash loses this much more.
const GATHER: Duration = Duration::from_millis(500);
/// How much text may wait. A store that takes longer for it is one that chats have to wait for.
const MAX_WAITING_BYTES: usize = 8 * 1024 * 1024;

/// What is to be stored next, of all chats.
pub struct Checkpoints {
    store: Arc<dyn Store>,
    waiting: Mutex<Waiting>,
    /// Notified when something waits, and when nothing more will.
    come: Arc<Notify>,
}

#[derive(Default)]
struct Waiting {
    replies: Vec<GrownReply>,
    /// One for each of them.
    losses: Vec<Loss>,
    bytes: usize,
}

/// Whether something that a message has grown by was not stored: the message has to be stored whole then.
#[derive(Clone, Default)]
struct Loss(Arc<AtomicBool>);

impl Loss {
    fn note(&self) {
        self.0.store(true, Relaxed);
    }

    fn is_noted(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// What of a growing reply is stored, and when more of it will be.
pub(super) struct ReplyCheckpoint {
    due: Instant,
    /// If it is known, and whether anything has been lost since.
    stored: Option<(Extent, Loss)>,
}

impl Checkpoints {
    /// Stores what comes, for as long as anybody may bring something.
    pub fn storing_in(store: Arc<dyn Store>) -> Arc<Self> {
        let come = Arc::new(Notify::new());
        let this = Arc::new(Self {
            store,
            waiting: Mutex::default(),
            come: come.clone(),
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
            Ok(left_out) => {
                failpoint("after", "checkpoint");
                let lost = left_out
                    .iter()
                    .filter_map(|place| waiting.losses.get(*place));
                lost.for_each(Loss::note);
            }
            Err(error) => {
                let answers = waiting.replies.len();
                tracing::warn!(answers, %error, "what answers have grown by was not stored; they are stored whole next");
                waiting.losses.iter().for_each(Loss::note);
            }
        }
    }

    /// Takes a reply that has grown, and notes if it is lost. `false`: too much waits already.
    fn push(&self, reply: GrownReply, loss: &Loss) -> bool {
        let bytes: usize = reply.texts.iter().map(|growth| growth.text.len()).sum();
        let mut waiting = self.lock();
        if waiting.bytes + bytes > MAX_WAITING_BYTES {
            return false;
        }
        waiting.bytes += bytes;
        waiting.replies.push(reply);
        waiting.losses.push(loss.clone());
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
    pub(super) fn note_stored(&mut self, message: &Message) {
        self.stored = Some((Extent::of(message), Loss::default()));
    }

    /// Nothing is known of what is stored.
    pub(super) fn forget(&mut self) {
        self.stored = None;
    }

    /// Has what a message has grown by stored soon. `false`: it has to be stored whole.
    pub(super) fn store_growth(&mut self, message: &Message, context: &ChatContext) -> bool {
        let taken = match &mut self.stored {
            Some((extent, loss)) if !loss.is_noted() => extent.grow(message).is_some_and(|texts| {
                let push = |grown| context.checkpoints.push(grown, loss);
                texts.is_empty() || push(context.grown_reply(message, texts))
            }),
            _ => false,
        };
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

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use adk_bridge_protocol::id::{ChatId, UserId};
    use adk_bridge_protocol::reply::Record;
    use adk_bridge_testkit::postgres::Postgres;
    use serde_json::json;
    use sqlx::{Connection as _, Executor as _, PgConnection};

    use super::*;
    use crate::chat::now;
    use crate::chat::tests::shared;
    use crate::store::DataDir;
    use crate::store::postgres::{PostgresConfig, PostgresStore};

    /// A row that somebody else is writing costs its own chat a whole message, and no other.
    #[tokio::test]
    async fn only_what_was_left_out_is_stored_whole() {
        let url = Postgres::shared().database();
        let directory = tempfile::tempdir().unwrap();
        let config = PostgresConfig {
            url: &url,
            connections: 2,
            prepared_statements: None,
        };
        let store = Arc::new(PostgresStore::open(config).await.unwrap());
        let data = DataDir::open(directory.path()).unwrap();
        let shared = Arc::new(shared(&data, store.clone()).await);
        let user = UserId::from("alice");
        let mut chats = Vec::new();
        for id in ["being-written", "other"] {
            let context = ChatContext::new(shared.clone(), &user, &ChatId::from(id), None);
            let record = record("so");
            store.create_chat(context.chat(), now()).await.unwrap();
            store
                .commit(context.chat(), &record, &[], now())
                .await
                .unwrap();
            let mut checkpoint = ReplyCheckpoint::new();
            checkpoint.note_stored(&record.message);
            chats.push((context, checkpoint));
        }
        let mut others = PgConnection::connect(&url).await.unwrap();
        let mut others = others.begin().await.unwrap();
        let writing = "UPDATE adk_bridge.messages SET seen = seen WHERE chat =
                       (SELECT key FROM adk_bridge.chats WHERE id = 'being-written')";
        others.execute(writing).await.unwrap();
        let mut grow = |text: &str| {
            let message = record(text).message;
            let grown = |(context, checkpoint): &mut (ChatContext, ReplyCheckpoint)| {
                checkpoint.store_growth(&message, context)
            };
            chats.iter_mut().map(grown).collect::<Vec<_>>()
        };
        assert_eq!(grow("so far"), [true, true]);
        shared.checkpoints.store().await;
        others.commit().await.unwrap();
        assert_eq!(grow("so far so"), [false, true]);
    }

    fn record(text: &str) -> Record {
        let text = json!({"type": "text", "text": text, "state": "streaming"});
        let record = json!({
            "message": {"id": "m1", "role": "assistant", "parts": [{"type": "step-start"}, text]},
            "calls": [],
            "asking": true,
            "steps": 1,
        });
        serde_json::from_value(record).unwrap()
    }
}
