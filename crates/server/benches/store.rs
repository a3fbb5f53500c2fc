//! What the store costs: a commit, a checkpoint, and reading a long history.

#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot go on has nothing to measure"
)]

use std::sync::Arc;

use adk_bridge::store::sqlite::SqliteStore;
use adk_bridge::store::{ChatRef, Cut, DataDir, Store};
use adk_bridge_protocol::id::ChatId;
use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::reply::Record;
use adk_bridge_protocol::time::Timestamp;
use divan::Bencher;
use divan::counter::ItemsCount;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

const NOW: Timestamp = Timestamp::from_millis(1);
const USER: &UserId = &UserId::literal("alice");
/// As many as stream at once in the load test.
const CHATS: usize = 200;
const FIRST: &ChatId = &ChatId::literal("chat-0");
const HISTORY: usize = 2_000;

fn main() {
    divan::main();
}

/// One after the other, each waiting for the disk; the chat has a history of this length.
#[divan::bench(args = [0, HISTORY])]
fn commit(bencher: Bencher<'_, '_>, history: usize) {
    let place = Place::new();
    place.fill(history);
    let record = record("answer", 1_000);
    bencher.bench_local(|| place.run(place.store.commit(chat(FIRST), &record, &[], NOW)));
}

/// From all chats at once.
#[divan::bench]
fn commits_at_once(bencher: Bencher<'_, '_>) {
    let place = Place::new();
    at_once(bencher, &place, |store, id| {
        Box::pin(async move {
            let record = record("answer", 1_000);
            store.commit(chat(&id), &record, &[], NOW).await.unwrap();
        })
    });
}

#[divan::bench]
fn checkpoints_at_once(bencher: Bencher<'_, '_>) {
    let place = Place::new();
    for id in ids() {
        place.run(
            place
                .store
                .commit(chat(&id), &record("answer", 0), &[], NOW),
        );
    }
    at_once(bencher, &place, |store, id| {
        Box::pin(async move {
            let record = record("answer", 1_000);
            store.checkpoint(chat(&id), &record).await.unwrap();
        })
    });
}

#[divan::bench(args = [1_000, 100_000, 1_000_000])]
fn checkpoint(bencher: Bencher<'_, '_>, bytes: usize) {
    let place = Place::new();
    let record = record("answer", bytes);
    place.run(place.store.commit(chat(FIRST), &record, &[], NOW));
    bencher.bench_local(|| place.run(place.store.checkpoint(chat(FIRST), &record)));
}

#[divan::bench]
fn messages(bencher: Bencher<'_, '_>) {
    let place = Place::new();
    place.fill(HISTORY);
    bencher.bench_local(|| place.run(place.store.messages(chat(FIRST))));
}

struct Place {
    _dir: TempDir,
    runtime: Runtime,
    store: Arc<dyn Store>,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let store = runtime.block_on(async {
            let data_dir = Arc::new(DataDir::open(dir.path()).unwrap());
            let store = SqliteStore::open(data_dir, None).await.unwrap();
            for id in ids() {
                store.create_chat(chat(&id), NOW).await.unwrap();
            }
            store
        });
        Self {
            _dir: dir,
            runtime,
            store: Arc::new(store),
        }
    }

    fn run<T>(&self, pending: adk_bridge::store::Pending<'_, T>) -> T {
        self.runtime.block_on(pending).unwrap()
    }

    /// A history of messages of a thousand bytes each.
    fn fill(&self, messages: usize) {
        let messages: Vec<Message> = (0..messages)
            .map(|n| Message::clone(&record(&format!("m{n}"), 1_000).message))
            .collect();
        self.run(self.store.append(chat(FIRST), &messages, Cut::Nothing, NOW));
    }
}

type Job = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn at_once(
    bencher: Bencher<'_, '_>,
    place: &Place,
    job: impl Fn(Arc<dyn Store>, ChatId) -> Job + Sync,
) {
    bencher.counter(ItemsCount::new(CHATS)).bench_local(|| {
        place.runtime.block_on(async {
            let mut jobs = tokio::task::JoinSet::new();
            for id in ids() {
                jobs.spawn(job(place.store.clone(), id));
            }
            jobs.join_all().await;
        });
    });
}

fn ids() -> impl Iterator<Item = ChatId> {
    (0..CHATS).map(|n| format!("chat-{n}").into())
}

fn chat(id: &ChatId) -> ChatRef<'_> {
    ChatRef { user: USER, id }
}

fn record(id: &str, bytes: usize) -> Record {
    serde_json::from_value(json!({
        "message": {"id": id, "role": "assistant", "parts": [
            {"type": "step-start"},
            {"type": "text", "text": "x".repeat(bytes), "state": "streaming"},
        ]},
        "calls": [], "asking": true, "steps": 1, "retried": false,
    }))
    .unwrap()
}
