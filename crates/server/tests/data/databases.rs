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
use crate::{FAST, OLD_FILE, end, refused, sql, upload};

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

/// A secret that an earlier version stored is gone after one start, from the rows and from the file.
#[tokio::test]
async fn credentials_that_were_stored_before_are_removed() {
    const SECRET: &str = "PLANTED-CLIENT-SECRET";
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let bridge = Bridge::serve(dir.path(), FAST);
    bridge.say("c", says("say hi"), "native").await;
    end(bridge, &data).await;

    let config = json!({"authScheme": {"type": "oauth2"}, "rawAuthCredential":
        {"authType": "oauth2", "oauth2": {"clientSecret": format!("{SECRET}{}", "x".repeat(9000))}}});
    let args = json!({"functionCallId": "f", "authConfig": config});
    let asked = json!({"content": {"parts": [{"functionCall": {"name": "adk_request_credential", "args": args}}]}});
    let fine = json!({"content": {"parts": [{"text": "fine"}]}, "actions": {"requestedAuthConfigs": {"c": config}}});
    let part = json!({"type": "tool-adk_request_credential", "toolCallId": "t", "state": "output-error", "input": args,
        "errorText": "no"});
    let calls = json!([{"name": "adk_request_credential", "input": args}]);
    let mine = json!({"id": "mine", "role": "user", "parts": says("my authConfig, client_secret")});
    let database = data.join(DATABASE);
    sql(
        &database,
        &format!(
            "DELETE FROM _sqlx_migrations WHERE version = 8;
             INSERT INTO events (chat, generation, message_id, body)
                 SELECT key, 0, 'm', value FROM chats, (SELECT '{asked}' AS value UNION ALL SELECT '{fine}');
             INSERT INTO messages (chat, id, state, body) SELECT key, 'mine', 'done', '{mine}' FROM chats;
             UPDATE messages SET
                 reply = CASE WHEN reply IS NULL THEN NULL ELSE json_set(reply, '$.x', json('{calls}')) END,
                 body = json_insert(body, '$.parts[#]', json('{part}')) WHERE body LIKE '%assistant%';
             CREATE TABLE scratch (x TEXT); INSERT INTO scratch VALUES ('{args}'); DROP TABLE scratch;
             UPDATE chats SET bytes =
                 (SELECT sum(octet_length(body) + coalesce(octet_length(reply), 0)) FROM messages)
                 + (SELECT sum(octet_length(body)) FROM events);"
        ),
    )
    .await;
    let holds = || {
        let files = ["", "-wal"].map(|suffix| data.join(format!("{DATABASE}{suffix}")));
        let read = files.iter().filter_map(|file| std::fs::read(file).ok());
        read.into_iter()
            .any(|bytes| String::from_utf8_lossy(&bytes).contains(SECRET))
    };
    assert!(holds());

    let bridge = Bridge::serve(dir.path(), FAST);
    let shown = bridge.json("/api/chats/c").await;
    let parts = shown["messages"][1]["parts"].as_array().unwrap();
    let part = parts.iter().find(|part| part["toolCallId"] == "t").unwrap();
    // The id of the call that waits is no secret.
    let shown_of_it = json!({"kind": "oauth2", "functionCallId": "f"});
    assert_eq!(part["input"], shown_of_it);
    assert_eq!(part["errorText"], "no");
    assert_eq!(shown["messages"][2]["parts"], mine["parts"]);
    end(bridge, &data).await;
    assert!(!holds());
    let left = sqlx_rows(&database, "SELECT body FROM events ORDER BY seq").await;
    assert_eq!(left.len(), 2);
    assert!(left[1].contains("fine"), "{left:?}");
    let sizes = "SELECT CAST(bytes - (SELECT sum(octet_length(body) + coalesce(octet_length(reply), 0)) FROM messages)
        - (SELECT sum(octet_length(body)) FROM events) AS TEXT) FROM chats";
    assert_eq!(sqlx_rows(&database, sizes).await, ["0"]);
    let tables = "SELECT name FROM sqlite_schema WHERE name = 'credentials'";
    assert!(sqlx_rows(&database, tables).await.is_empty());
}

async fn sqlx_rows(database: &Path, query: &'static str) -> Vec<String> {
    use sqlx::Connection as _;
    let url = format!("sqlite://{}", database.display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let rows = sqlx::query_scalar(query).fetch_all(&mut connection).await;
    connection.close().await.unwrap();
    rows.unwrap()
}
