//! The data of a real bridge: what a start does with files, what an older version left, and disks that cannot be written to.

#![cfg(feature = "demo")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "data/audit.rs"]
mod audit;
#[path = "data/databases.rs"]
mod databases;
#[path = "data/disk.rs"]
mod disk;
#[path = "data/growth.rs"]
mod growth;
#[path = "data/overload.rs"]
mod overload;
#[path = "data/retention.rs"]
mod retention;
#[path = "data/version_before.rs"]
mod version_before;

use std::path::{Path, PathBuf};

use adk_bridge::store::sqlite::DATABASE;
use adk_bridge_protocol::base64;
use adk_bridge_testkit::served;
use adk_bridge_testkit::users::{ALICE_KEY as ALICE, BOB_KEY as BOB, KEYS};
use reqwest::Method;
use serde_json::{Value, json};
use served::{Bridge, read, refused};
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};
use tempfile::TempDir;

const FAST: &str = "[demo]\npace = \"0ms\"\n";
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";
/// The file of the old database.
const OLD_FILE: &str = "dc5d34b373f75d7d755c1fd488a74cb0";

/// What is done to the database while the bridge is down, and what the next start does.
struct Case {
    name: &'static str,
    config: &'static str,
    change: fn(&Path),
    /// The number of files that the start puts aside; none where it is refused.
    aside: Option<usize>,
}

const CASES: [Case; 6] = [
    Case {
        name: "moved away",
        config: "",
        change: |data| std::fs::remove_file(data.join(DATABASE)).unwrap(),
        aside: None,
    },
    Case {
        name: "emptied",
        config: "",
        change: |data| std::fs::write(data.join(DATABASE), b"").unwrap(),
        aside: None,
    },
    Case {
        name: "mistyped",
        config: "[store]\nurl = \"sqlite:data/adk-brigde.db\"\n",
        change: |_| {},
        aside: None,
    },
    Case {
        name: "another one's",
        config: "",
        change: |data| copy("another.db", data),
        aside: None,
    },
    Case {
        name: "from before the first file",
        config: "",
        change: |data| copy("first.db", data),
        aside: Some(5),
    },
    Case {
        name: "from before the last three",
        config: "",
        change: |data| copy("older.db", data),
        aside: Some(3),
    },
];

#[tokio::test]
async fn no_start_deletes_a_file() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let backup = |name: &str| {
        std::fs::copy(data.join(DATABASE), dir.path().join(name)).unwrap();
    };
    // A database of another bridge, which has chats and no files.
    let bridge = Bridge::serve(dir.path(), FAST);
    bridge.say("c", served::says("say hi"), "native").await;
    end(bridge, &data).await;
    backup("another.db");
    std::fs::remove_dir_all(&data).unwrap();

    let mut urls = Vec::new();
    for (files, name) in [(0, "first.db"), (2, "older.db"), (5, "whole.db")] {
        let bridge = Bridge::serve(dir.path(), FAST);
        while urls.len() < files {
            urls.push(upload(&bridge, "c").await);
        }
        end(bridge, &data).await;
        backup(name);
    }

    for case in CASES {
        let name = case.name;
        let config = format!("{FAST}{}", case.config);
        (case.change)(&data);
        match case.aside {
            None => {
                let said = refused(dir.path(), &config);
                for word in ["data/files", "store.url", "move that directory away"] {
                    assert!(said.contains(word), "{name}: {said}");
                }
                assert_eq!(count(&data.join("files")), 5, "{name}");
                assert!(!data.join("adk-brigde.db").exists(), "{name}");
                // However often one tries.
                refused(dir.path(), &config);
            }
            Some(aside) => {
                end(Bridge::serve(dir.path(), &config), &data).await;
                assert_eq!(count(&data.join("files")), 5 - aside, "{name}");
                assert_eq!(count(&data.join("lost-files")), aside, "{name}");
                let said = std::fs::read_to_string(dir.path().join("log")).unwrap();
                let expected = format!("{aside} files are not known");
                assert!(said.contains(&expected), "{name}: {said}");
                assert!(said.contains("data/lost-files"), "{name}: {said}");
            }
        }
        // Put back, as it was before.
        copy("whole.db", &data);
        let bridge = Bridge::serve(dir.path(), FAST);
        for url in &urls {
            assert_eq!(bridge.get(url).await.status(), 200, "{name}");
        }
        end(bridge, &data).await;
        assert_eq!(count(&data.join("lost-files")), 0, "{name}");
    }

    // Without the files, any database will do; and they can be brought back.
    std::fs::rename(data.join("files"), dir.path().join("moved")).unwrap();
    std::fs::remove_file(data.join(DATABASE)).unwrap();
    end(Bridge::serve(dir.path(), FAST), &data).await;
    copy("whole.db", &data);
    std::fs::remove_dir_all(data.join("files")).unwrap();
    std::fs::rename(dir.path().join("moved"), data.join("files")).unwrap();
    let bridge = Bridge::serve(dir.path(), FAST);
    // What a user deletes is deleted.
    let deleted = bridge.request(Method::DELETE, "/api/chats/c").send().await;
    assert_eq!(deleted.unwrap().status(), 204);
    assert_eq!(count(&data), 0);
}

/// What a bridge of schema 2 left: chats, a question that waits, a file, the audit of a deleted chat.
#[tokio::test]
async fn an_older_database_is_brought_along() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let shelf = data.join("files").join(&OLD_FILE[..2]);
    std::fs::create_dir_all(&shelf).unwrap();
    std::fs::write(shelf.join(OLD_FILE), base64::decode(PIXEL).unwrap()).unwrap();
    let old = include_str!("../../../fixtures/store/schema-2.sql");
    sql(&data.join(DATABASE), old).await;

    let mut bridge = Bridge::serve(dir.path(), &keys());
    assert_eq!(miscounted(&data).await, [0, 0]);
    bridge.with_key(ALICE);
    let ids = |list: Value| -> Vec<String> {
        let list = list.as_array().unwrap().clone();
        list.iter()
            .map(|chat| chat["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(bridge.json("/api/chats").await), ["pay", "default"]);
    let shown = bridge.json("/api/chats/default").await;
    assert_eq!(shown["messages"].as_array().unwrap().len(), 2);
    let picture = bridge.get(&format!("/api/files/{OLD_FILE}")).await;
    assert_eq!(picture.status(), 200);
    assert_eq!(base64::encode(&picture.bytes().await.unwrap()), PIXEL);
    let audit = async |bridge: &Bridge, chat: &str| -> Vec<String> {
        let rows = bridge.json(&format!("/api/audit?chat={chat}")).await;
        let rows = rows.as_array().unwrap().clone();
        rows.iter()
            .map(|row| row["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        audit(&bridge, "gone").await,
        ["approval.requested", "approval.superseded"]
    );

    // The question is answered, and the payment made once.
    let mut asked = bridge.json("/api/chats/pay").await["messages"][1].clone();
    let parts = asked["parts"].as_array_mut().unwrap();
    let part = parts
        .iter_mut()
        .find(|part| part["type"] == "tool-process_payment")
        .unwrap();
    assert_eq!(part["state"], "approval-requested");
    part["state"] = json!("approval-responded");
    part["approval"]["approved"] = json!(true);
    let body = json!({"id": "pay", "messages": [asked]});
    let paid = bridge.post("/api/chat", &body).await;
    assert_eq!(paid.status(), 200);
    paid.text().await.unwrap();
    assert_eq!(
        audit(&bridge, "pay").await,
        [
            "approval.requested",
            "approval.approved",
            "tool.started",
            "tool.finished"
        ]
    );

    // An id that somebody has is free for everybody else.
    bridge.with_key(BOB);
    assert_eq!(ids(bridge.json("/api/chats").await), ["his"]);
    bridge
        .say("default", served::says("say mine"), "native")
        .await;
    assert_eq!(ids(bridge.json("/api/chats").await), ["default", "his"]);
    bridge.with_key(ALICE);
    assert_eq!(bridge.json("/api/chats/default").await, shown);
    assert_eq!(miscounted(&data).await, [0, 0]);

    // What there was counts toward what a user may keep.
    drop(bridge);
    let limits = format!("{}[limits]\nstored_bytes_per_user = 500\n", keys());
    let mut bridge = Bridge::serve(dir.path(), &limits);
    bridge.with_key(ALICE);
    let more = json!({"id": "more", "messages": [{"role": "user", "parts": [{"type": "text", "text": "hi"}]}]});
    let refused = bridge.post("/api/chat", &more).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(read(refused).await["error"]["code"], "storage_full");
}

/// How many chats have another number of bytes than their messages and events, and how many have none at all.
async fn miscounted(data: &Path) -> [i64; 2] {
    let url = format!("sqlite://{}", data.join(DATABASE).display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let mut counts = [0; 2];
    for (count, condition) in counts.iter_mut().zip([
        "bytes <> (SELECT coalesce(sum(octet_length(body) + coalesce(octet_length(reply), 0)), 0)
                   FROM messages WHERE chat = key)
                + (SELECT coalesce(sum(octet_length(body)), 0) FROM events WHERE chat = key)
                + (SELECT coalesce(sum(octet_length(value)), 0) FROM chat_state WHERE chat = chats.key)",
        "bytes = 0",
    ]) {
        let query = format!("SELECT count(*) FROM chats WHERE {condition}");
        *count = sqlx::query_scalar(AssertSqlSafe(query))
            .fetch_one(&mut connection)
            .await
            .unwrap();
    }
    connection.close().await.unwrap();
    counts
}

/// Wherever the data directory comes from, nobody else reads what is in it.
#[cfg(unix)]
#[tokio::test]
async fn nobody_else_reads_the_data() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(&data, 0o755);
    for round in 0..2 {
        let bridge = Bridge::serve(dir.path(), FAST);
        upload(&bridge, "c").await;
        bridge
            .say(
                "c",
                served::says("call search_database {\"query\": \"users\"}"),
                "native",
            )
            .await;
        let found = all_in(&data);
        let names: Vec<_> = found
            .iter()
            .filter_map(|path| path.file_name()?.to_str())
            .collect();
        for name in [
            DATABASE,
            "adk-bridge.db-wal",
            "adk-bridge.db-shm",
            "lock",
            "files",
            "database-id",
        ] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
        for path in &found {
            let mode = std::fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(
                mode & 0o077,
                0,
                "round {round}: {} is {mode:o}",
                path.display()
            );
        }
        // As an earlier version left them; content was never readable for others.
        drop(bridge);
        for path in found.iter().filter(|path| !is_content(path)) {
            open(path, if path.is_dir() { 0o755 } else { 0o644 });
        }
    }
}

/// Ends a bridge, and brings its log into its database, which can be copied then.
async fn end(bridge: Bridge, data: &Path) {
    drop(bridge);
    sql(&data.join(DATABASE), "PRAGMA wal_checkpoint(TRUNCATE)").await;
}

async fn upload(bridge: &Bridge, chat: &str) -> String {
    let sent = bridge
        .request(Method::POST, &format!("/api/files?chat={chat}"))
        .header("content-type", "image/png")
        .body(base64::decode(PIXEL).unwrap())
        .send()
        .await
        .unwrap();
    assert_eq!(sent.status(), 201);
    format!("/api/files/{}", read(sent).await["id"].as_str().unwrap())
}

fn copy(name: &str, data: &Path) {
    let from = data.parent().unwrap().join(name);
    std::fs::copy(from, data.join(DATABASE)).unwrap();
}

/// How much content lies under a directory.
fn count(dir: &Path) -> usize {
    all_in(dir).iter().filter(|path| is_content(path)).count()
}

fn is_content(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.len() == 32)
}

fn all_in(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all_in(&path));
        }
        found.push(path);
    }
    found
}

async fn sql(database: &Path, sql: &str) {
    let url = format!("sqlite://{}?mode=rwc", database.display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

fn keys() -> String {
    format!("{KEYS}{FAST}")
}
