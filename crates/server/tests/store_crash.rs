//! `kill -9` between and during commits: what was acknowledged is there, and nothing is there by halves.
//!
//! Started with a directory the program is the victim: it commits without end and says so after each. Started without
//! one it is the test. It has no test harness, because it starts itself.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; the victim reports on its standard output"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use adk_bridge::store::sqlite::SqliteStore;
use adk_bridge::store::{AuditEntry, AuditPage, ChatRef, DataDir, Store, StoreError};
use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::message::Part;
use adk_bridge_protocol::outbox::{Audit, AuditKind};
use adk_bridge_protocol::reply::Record;
use adk_bridge_protocol::time::Timestamp;
use serde_json::json;

const CHAT: ChatRef<'static> = ChatRef {
    user: &UserId::literal("alice"),
    id: &ChatId::literal("chat-1"),
};

const VICTIM: &str = "ADK_BRIDGE_TEST_VICTIM";

/// After how many acknowledged commits the victim is killed. Every kill hits another moment of the next commit.
const KILLS: [u64; 12] = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144];

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Some(dir) = std::env::var_os(VICTIM) {
        return runtime.block_on(commit_without_end(Path::new(&dir)));
    }
    let dir = tempfile::tempdir().unwrap();
    for kill in KILLS {
        let acknowledged = run_victim(dir.path(), kill);
        runtime.block_on(check(dir.path(), acknowledged));
    }
    println!("{} kills, nothing lost", KILLS.len());
}

/// Runs the victim until it has acknowledged some more commits, kills it, and returns the number of the last one.
fn run_victim(dir: &Path, kill: u64) -> Option<u64> {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .env(VICTIM, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let held = DataDir::open(dir).unwrap_err();
    let by = format!("process {}", victim.id());
    assert!(
        matches!(&held, StoreError::InUse { by: holder, .. } if *holder == by),
        "{held}"
    );

    let mut last = None;
    for _ in 0..kill {
        last = Some(lines.next().unwrap().unwrap());
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    // What the victim said before it died counts, even if nobody had read it.
    lines
        .map(Result::unwrap)
        .last()
        .or(last)
        .map(|line| line.parse().unwrap())
}

async fn check(dir: &Path, acknowledged: Option<u64>) {
    let store = open(dir).await;
    let next = next_number(&*store).await;
    // The commit that was under way may have been written.
    let acknowledged = acknowledged.map_or(0, |last| last + 1);
    assert!(
        acknowledged <= next,
        "{acknowledged} commits, {next} stored"
    );
    let audit = store.audit(CHAT, AuditPage::default()).await.unwrap();
    let reasons: Vec<_> = audit.into_iter().filter_map(|row| row.reason).collect();
    let expected: Vec<_> = (0..next).map(|number| number.to_string()).collect();
    assert_eq!(reasons, expected, "a commit was written by halves");
    let waiting = store.list_chats(CHAT.user, 1, None).await.unwrap()[0].waiting;
    assert_eq!(waiting, next.min(1));
    store.close().await.unwrap();
}

async fn commit_without_end(dir: &Path) {
    let store = open(dir).await;
    println!("ready");
    let mut number = next_number(&*store).await;
    loop {
        store
            .commit(CHAT, &record(number), &[audit(number)], at(number))
            .await
            .unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "{number}").unwrap();
        out.flush().unwrap();
        number += 1;
    }
}

async fn open(dir: &Path) -> Arc<dyn Store> {
    let data_dir = Arc::new(DataDir::open(dir).unwrap());
    let store = SqliteStore::open(data_dir, None).await.unwrap();
    store.create_chat(CHAT, at(0)).await.unwrap();
    Arc::new(store)
}

/// The number of the next commit: the one before is the text of the message.
async fn next_number(store: &dyn Store) -> u64 {
    let Some(record) = store.open_replies_of(CHAT).await.unwrap().pop() else {
        return 0;
    };
    let number = record.message.parts.iter().find_map(|part| match part {
        Part::Text(text) => text.text.split(' ').next(),
        _ => None,
    });
    number.unwrap().parse::<u64>().unwrap() + 1
}

/// Large enough for a commit to take several pages.
fn record(number: u64) -> Record {
    serde_json::from_value(json!({
        "message": {"id": "m1", "role": "assistant", "parts": [
            {"type": "text", "text": format!("{number} {}", "x".repeat(20_000))},
        ]},
        "calls": [{
            "id": "call-1", "name": "process_payment", "input": {"amount": 50}, "step": 1,
            "runsOn": "server", "state": {"is": "asked"},
            "approval": {
                "id": "approval-1", "hint": "", "inputHash": "", "askedAt": 1, "expiresAt": 2,
                "state": {"state": "requested"},
            },
        }],
        "asking": false, "steps": 1, "retried": false,
    }))
    .unwrap()
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn audit(number: u64) -> AuditEntry {
    AuditEntry {
        at: at(number),
        turn_id: None,
        connection_id: None,
        transport: None,
        dialect: None,
        replica: None,
        audit: Audit {
            kind: AuditKind::ToolStarted,
            call_id: None,
            tool: None,
            approval_id: None,
            reason: Some(number.to_string()),
            input_hash: None,
        },
    }
}
