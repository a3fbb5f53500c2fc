//! Databases that were moved, restored or linked: a start that is refused has changed none of them.

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::time::Timestamp;
use std::path::Path;
use std::sync::Arc;

use adk_bridge::store::sqlite::{DATABASE, SqliteStore};
use adk_bridge::store::{ChatRef, Cut, DataDir, Store as _};
use serde_json::json;
use tempfile::TempDir;

use crate::served::{Bridge, says};
use crate::{FAST, OLD_FILE, refused, sql, upload};

const LOG: &str = "adk-bridge.db-wal";

/// How many chats there are before the crash.
const CHATS: usize = 30;

/// A data directory as a crash leaves it: the newest chats are in the log. Next to it is `backup.db`, which has the
/// first of them.
async fn crashed(dir: &Path) {
    let (made, data) = (dir.join("made"), dir.join("data"));
    let open = async || {
        let held = Arc::new(DataDir::open(&made).unwrap());
        SqliteStore::open(held, None).await.unwrap()
    };
    let store = open().await;
    write(&store, 0, "hi").await;
    store.close().await.unwrap();
    drop(store);
    std::fs::copy(made.join(DATABASE), dir.join("backup.db")).unwrap();
    let store = open().await;
    for number in 1..CHATS {
        // Enough for the log to be brought into the database and begun again.
        write(&store, number, &"x".repeat(400_000)).await;
    }
    std::fs::create_dir(&data).unwrap();
    for name in [DATABASE, LOG] {
        std::fs::copy(made.join(name), data.join(name)).unwrap();
    }
    assert!(std::fs::metadata(data.join(LOG)).unwrap().len() > 0);
}

async fn write(store: &SqliteStore, number: usize, text: &str) {
    let id = format!("c{number}").into();
    let chat = ChatRef {
        user: &UserId::literal("local"),
        id: &id,
    };
    let message = json!({"id": "m", "role": "user", "parts": says(text)});
    let message = serde_json::from_value(message).unwrap();
    store
        .create_chat(chat, Timestamp::from_millis(1))
        .await
        .unwrap();
    store
        .append(chat, &[message], Cut::Nothing, Timestamp::from_millis(1))
        .await
        .unwrap();
}

async fn chats(dir: &Path) -> usize {
    let bridge = Bridge::serve(dir, FAST);
    bridge.json("/api/chats").await.as_array().unwrap().len()
}

#[tokio::test]
async fn a_log_without_its_database_is_kept() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    crashed(dir.path()).await;
    let log = std::fs::read(data.join(LOG)).unwrap();
    std::fs::rename(data.join(DATABASE), dir.path().join("moved.db")).unwrap();
    for empty in [false, true] {
        if empty {
            std::fs::write(data.join(DATABASE), b"").unwrap();
        }
        let said = refused(dir.path(), FAST);
        for word in [LOG, "next to its log", "move the log away"] {
            assert!(said.contains(word), "{said}");
        }
        assert!(
            std::fs::read(data.join(LOG)).unwrap() == log,
            "it was changed"
        );
    }
    std::fs::rename(dir.path().join("moved.db"), data.join(DATABASE)).unwrap();
    assert_eq!(chats(dir.path()).await, CHATS);
}

#[tokio::test]
async fn a_backup_next_to_a_log_is_kept() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    crashed(dir.path()).await;
    std::fs::copy(dir.path().join("backup.db"), data.join(DATABASE)).unwrap();
    let [backup, log] = [DATABASE, LOG].map(|name| std::fs::read(data.join(name)).unwrap());
    let said = refused(dir.path(), FAST);
    for word in [LOG, "do not match", "move the log away"] {
        assert!(said.contains(word), "{said}");
    }
    assert!(
        std::fs::read(data.join(DATABASE)).unwrap() == backup,
        "it was changed"
    );
    assert!(
        std::fs::read(data.join(LOG)).unwrap() == log,
        "its log was changed"
    );
    // As the words say.
    std::fs::rename(data.join(LOG), dir.path().join("old-wal")).unwrap();
    assert_eq!(chats(dir.path()).await, 1);
}

#[tokio::test]
async fn a_database_of_other_files_is_not_migrated() {
    let dir = TempDir::new().unwrap();
    upload(&Bridge::serve(dir.path(), FAST), "c").await;
    let other = dir.path().join("other.db");
    let config = format!("{FAST}[store]\nurl = \"sqlite:other.db\"\n");
    let old = include_str!("../../../../fixtures/store/schema-2.sql");
    let mut before = Vec::new();
    for made in ["CREATE TABLE t (a); DROP TABLE t", old] {
        sql(&other, made).await;
        before = std::fs::read(&other).unwrap();
        let said = refused(dir.path(), &config);
        assert!(said.contains("data/files"), "{said}");
        assert!(std::fs::read(&other).unwrap() == before, "it was changed");
    }
    // With its own files it is.
    let shelf = dir.path().join("data/files").join(&OLD_FILE[..2]);
    std::fs::remove_dir_all(dir.path().join("data/files")).unwrap();
    std::fs::create_dir_all(&shelf).unwrap();
    std::fs::write(shelf.join(OLD_FILE), "content").unwrap();
    drop(Bridge::serve(dir.path(), &config));
    assert!(std::fs::read(&other).unwrap() != before);
}

#[cfg(unix)]
#[tokio::test]
async fn a_database_is_in_use_by_whichever_name() {
    let dir = TempDir::new().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    for place in [&first, &second] {
        std::fs::create_dir_all(place.join("data")).unwrap();
    }
    let database = first.join("data").join(DATABASE);
    let link = second.join("link.db");
    std::os::unix::fs::symlink(&database, &link).unwrap();
    // It is made by its link, which leads nowhere yet.
    let config = format!("{FAST}[store]\nurl = \"sqlite:link.db\"\n");
    let bridge = Bridge::serve(&second, &config);
    bridge.say("c", says("say hi"), "native").await;
    assert!(refused(&first, FAST).contains("is in use"));
    drop(bridge);
    let bridge = Bridge::serve(&first, FAST);
    assert!(refused(&second, &config).contains("is in use"));
    assert_eq!(bridge.json("/api/chats").await.as_array().unwrap().len(), 1);
}
