//! `adk-bridge migrate-store`: everything that a data directory holds is in PostgreSQL afterwards, however often the process
//! is killed on the way.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    unused_macros,
    reason = "a test that cannot go on has failed; it uses a part of the suite's tools"
)]

#[macro_use]
mod store_suite;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use adk_bridge::audit::{Sealing, seal_all};
use adk_bridge::store::postgres::{PostgresConfig, PostgresStore};
use adk_bridge::store::sqlite::SqliteStore;
use adk_bridge::store::{
    AuditPage, ChatRef, Cut, DataDir, FileRow, GrownReply, Opening, ReplyUsage, Store, StoreError,
    TokenPrice, Tokens,
};
use adk_bridge_protocol::id::{ChatId, MessageId, UserId};
use adk_bridge_protocol::message::Extent;
use adk_bridge_protocol::outbox::AuditKind;
use adk_bridge_testkit::postgres::{Postgres, database_of};
use adk_bridge_testkit::process::binary;
use serde_json::json;
use store_suite::{asking, at, audit, call, finished, record, user};
use tempfile::TempDir;

const USERS: [&str; 3] = ["alice", "bob", "nul\0and\ttab\\N"];
const CHATS: [&str; 3] = ["talk", "waits\n", "default"];

#[tokio::test]
async fn a_store_arrives_whole() {
    let source = TempDir::new().unwrap();
    let server = Postgres::start();
    let url = server.database();
    fill(source.path()).await;
    seal(source.path()).await;
    let before = everything(&*sqlite(source.path()).await).await;
    let grown = r#"paying\t\0 \\ \"now\""#;
    assert!(before.iter().any(|line| line.contains(grown)), "{before:?}");

    let mut killed = 0;
    loop {
        let done = migrate(source.path(), &url, Some("after-batch:1"));
        if done.status.success() {
            break;
        }
        killed += 1;
        assert!(killed < 50, "{done:?}");
        assert_eq!(done.status.code(), None, "{done:?}");
        // Nobody takes the half for the whole.
        let half = postgres(&url).await;
        assert!(
            matches!(half, Err(StoreError::Unfinished { .. })),
            "{:?}",
            half.err()
        );
    }
    assert!(killed >= 8, "it was killed {killed} times");
    let store = postgres(&url).await.unwrap();
    assert_same(&everything(&*store).await, &before);
    let holds = verified(&url);
    assert_eq!(holds.status.code(), Some(0), "{holds:?}");
    // The source is as it was, and a second run finds nothing to do.
    assert_same(&everything(&*sqlite(source.path()).await).await, &before);
    let again = migrate(source.path(), &url, None);
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(said.contains("nothing is left to do"), "{said}");

    // It goes on there.
    let user_id = UserId::from("alice");
    let chat = ChatRef {
        user: &user_id,
        id: &ChatId::literal("talk"),
    };
    let last = store.outline(chat).await.unwrap().last().unwrap().place;
    store
        .append(chat, &[user("new", "more")], Cut::Nothing, at(9))
        .await
        .unwrap();
    assert!(store.outline(chat).await.unwrap().last().unwrap().place > last);
    store
        .append_audit(chat, &[audit(AuditKind::ToolStarted, "later")])
        .await
        .unwrap();
    let waits = ChatRef {
        user: &user_id,
        id: &ChatId::literal("waits\n"),
    };
    // What was counted is not counted again.
    let reply = MessageId::literal("reply");
    let again = store.count_usage(waits, used(&reply, 9, 810)).await;
    assert_eq!(again.unwrap().tokens.total(), 10);
    // What was decided stays so.
    let state = json!({"state": "denied"});
    let denied = call("pay", json!({"is": "decided"}), Some(state));
    let denied = record("reply", "paying", json!([denied]), json!({}));
    let refused = store.commit(waits, &denied, &[], at(9)).await;
    assert!(
        matches!(refused, Err(StoreError::Conflict(_))),
        "{refused:?}"
    );
}

/// What `adk-bridge audit verify` says of a database.
fn verified(url: &str) -> Output {
    let mut command = Command::new(binary());
    command.args(["audit", "verify", url]).output().unwrap()
}

/// The chains and seals of the source go on in PostgreSQL, and what is done to them there is found.
#[tokio::test]
async fn the_audit_can_be_verified_where_it_arrives() {
    let source = TempDir::new().unwrap();
    let server = Postgres::start();
    let url = server.database();
    fill(source.path()).await;
    seal(source.path()).await;
    assert!(migrate(source.path(), &url, None).status.success());
    let store = postgres(&url).await.unwrap();
    let user_id = UserId::from(USERS[2]);
    let chat = ChatRef {
        user: &user_id,
        id: &ChatId::literal("talk"),
    };
    for reason in ["later", "nul\0"] {
        let row = [audit(AuditKind::ToolStarted, reason)];
        store.append_audit(chat, &row).await.unwrap();
    }
    seal_all(&Sealing::new(store.clone(), None), at(2))
        .await
        .unwrap();
    let holds = verified(&url);
    let said = String::from_utf8(holds.stdout).unwrap();
    assert_eq!(holds.status.code(), Some(0), "{said}");
    assert!(said.contains("seals   2"), "{said}");
    let last = store.audit(chat, AuditPage::default()).await.unwrap();
    let last = last.last().unwrap().id;
    for (done, problem) in [
        (
            format!("UPDATE adk_bridge.audit SET kind = 'tool.failed' WHERE id = {last}"),
            format!("row {last} was changed"),
        ),
        (
            format!("DELETE FROM adk_bridge.audit WHERE id = {last}"),
            format!("row {last} is missing"),
        ),
    ] {
        // The bridge's user cannot do it.
        let refused = format!(
            "DO $$ BEGIN {done}; RAISE 'not refused'; EXCEPTION WHEN raise_exception THEN
                 IF SQLERRM <> 'the audit is append-only' THEN RAISE; END IF; END $$"
        );
        server.sql(database_of(&url), &refused);
        let forced = format!("SET session_replication_role = replica; {done}");
        server.sql(database_of(&url), &forced);
        let found = verified(&url);
        let said = String::from_utf8(found.stdout).unwrap();
        assert_eq!(found.status.code(), Some(3), "{said}");
        assert!(said.contains(&problem), "{problem}: {said}");
    }
}

#[tokio::test]
async fn the_content_of_files_arrives_with_it() {
    let (source, target) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let url = Postgres::shared().database();
    fill(source.path()).await;
    let alice = UserId::literal("alice");
    let chat = |id| ChatRef { user: &alice, id };
    let talk = chat(const { &ChatId::literal("talk") });
    let id = |user, id| file(user, id, talk).id;
    let put = |id: &str, content: &str| {
        let place = content_of(source.path(), id);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, content).unwrap();
    };
    // Nothing is there of the third user's; a chat was deleted, but its content not yet.
    let (ours, theirs, deleted) = (id("alice", "a"), id("bob", "a"), id("alice", "b"));
    put(&ours, "content");
    put(&theirs, "another");
    put(&deleted, "removed");
    let copy = |to: &str| {
        let done = command(source.path(), &url).args(["--files", to]).output();
        let done = done.unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        (done.status.success(), said)
    };
    let (done, said) = copy("https://PLANTED@bucket.example.org");
    assert!(!done && said.contains("--files: files.url: "), "{said}");
    assert!(
        !said.contains("chats: ") && !said.contains("PLANTED"),
        "{said}"
    );

    let to = target.path().to_str().unwrap();
    for counts in [
        "2 copied (14 bytes), 0 there already, 1 missing",
        "0 copied (0 bytes), 2 there already, 1 missing",
    ] {
        let (done, said) = copy(to);
        assert!(done && said.contains(counts), "{said}");
    }
    // The database was used with the files of the source in between.
    let store = postgres(&url).await.unwrap();
    let later = file("alice", "c", talk);
    store.add_file(&later).await.unwrap();
    store.close().await.unwrap();
    put(&later.id, "brought");
    let (done, said) = copy(&format!("file://{to}"));
    assert!(
        done && said.contains("1 copied (7 bytes), 2 there"),
        "{said}"
    );

    // From there to a third place.
    let third = TempDir::new().unwrap();
    let mut on = command(source.path(), &url);
    let on = on.args(["--files-from", to, "--files"]).arg(third.path());
    let on = String::from_utf8(on.output().unwrap().stderr).unwrap();
    assert!(on.contains("3 copied (21 bytes), 0 there"), "{on}");

    for (id, content) in [
        (&ours, Some("content")),
        (&theirs, Some("another")),
        (&later.id, Some("brought")),
        (&deleted, None),
    ] {
        let copied = fs::read_to_string(content_of(target.path(), id)).ok();
        assert_eq!(copied.as_deref(), content, "{id}");
        assert!(content_of(source.path(), id).exists(), "{id}");
    }
}

#[tokio::test]
async fn what_would_mix_or_tear_stores_is_refused() {
    let source = TempDir::new().unwrap();
    let url = Postgres::shared().database();
    let refusal = |from: &Path, url: &str| {
        let done = migrate(from, url, None);
        assert!(!done.status.success(), "{done:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let said = refusal(source.path(), &url);
    assert!(said.contains("has no database"), "{said}");
    let running = sqlite(source.path()).await;
    let said = refusal(source.path(), &url);
    assert!(said.contains("is in use by process"), "{said}");
    running.close().await.unwrap();
    drop(running);
    let said = refusal(source.path(), "mysql://root:PLANTED@localhost/x");
    assert!(
        said.contains("not PostgreSQL") && !said.contains("PLANTED"),
        "{said}"
    );
    let store = postgres(&url).await.unwrap();
    let other = ChatRef {
        user: &UserId::literal("carol"),
        id: &ChatId::literal("own"),
    };
    store.create_chat(other, at(1)).await.unwrap();
    let said = refusal(source.path(), &url);
    assert!(said.contains("name an empty database"), "{said}");
}

fn migrate(from: &Path, url: &str, failpoint: Option<&str>) -> Output {
    let mut command = command(from, url);
    if let Some(failpoint) = failpoint {
        command.env("ADK_BRIDGE_FAILPOINT", failpoint);
    }
    command.output().unwrap()
}

fn command(from: &Path, url: &str) -> Command {
    let mut command = Command::new(binary());
    command
        .arg("migrate-store")
        .arg(from)
        .env("ADK_BRIDGE__STORE__URL", url);
    command
}

/// Where the content of a file is below a data directory.
fn content_of(dir: &Path, id: &str) -> PathBuf {
    dir.join("files").join(&id[..2]).join(id)
}

async fn sqlite(dir: &Path) -> Arc<dyn Store> {
    let data = Arc::new(DataDir::open(dir).unwrap());
    Arc::new(SqliteStore::open(data, None).await.unwrap())
}

async fn postgres(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    let config = PostgresConfig {
        url,
        connections: 2,
        prepared_statements: None,
    };
    Ok(Arc::new(PostgresStore::open(config).await?))
}

/// A payment that was started.
fn running(id: &str) -> adk_bridge_protocol::reply::Record {
    let call = call(
        id,
        json!({"is": "running"}),
        Some(json!({"state": "approved", "reason": "yes\0"})),
    );
    record("reply", "paying", json!([call]), json!({}))
}

/// Seals the audit, as a bridge does while it runs.
async fn seal(dir: &Path) {
    let store = sqlite(dir).await;
    let sealing = Sealing::new(store.clone(), None);
    seal_all(&sealing, at(1)).await.unwrap();
    store.close().await.unwrap();
}

/// Some of everything that a store can hold.
async fn fill(dir: &Path) {
    let store = sqlite(dir).await;
    store.secret("files", b"\x00secret\xff").await.unwrap();
    for name in USERS {
        let user_id = UserId::from(name);
        let chat = |id: &'static ChatId| ChatRef { user: &user_id, id };
        let talk = chat(const { &ChatId::literal("talk") });
        let waits = chat(const { &ChatId::literal("waits\n") });
        let default = chat(const { &ChatId::literal("default") });
        let gone = chat(const { &ChatId::literal("gone") });
        let entry = |reason: &str| [audit(AuditKind::AnswerRefused, reason)];

        // Branches, what was seen, events of two generations.
        store.create_chat(talk, at(1)).await.unwrap();
        let question = [user("m1", "a\ttab, a \\ and \u{0}\u{10FFFE}")];
        store
            .append(talk, &question, Cut::Nothing, at(2))
            .await
            .unwrap();
        store
            .commit(talk, &finished("m2", "first"), &entry("1"), at(3))
            .await
            .unwrap();
        store
            .append_events(talk, 0, &"m2".into(), vec!["{\"a\":1}".into(), "\0".into()])
            .await
            .unwrap();
        store.mark_seen(talk, &["m2".into()]).await.unwrap();
        store
            .append(
                talk,
                &[user("m3", "edited")],
                Cut::From(&"m2".into()),
                at(4),
            )
            .await
            .unwrap();
        store
            .commit(talk, &finished("m4", "second"), &[], at(5))
            .await
            .unwrap();
        store
            .append_events(talk, 1, &"m4".into(), vec!["{}".into()])
            .await
            .unwrap();
        store
            .update_state(
                talk,
                "wallet",
                Box::new(|_| (Some(json!({"n\0": 1.5})), json!(0))),
            )
            .await
            .unwrap();
        store.set_title(talk, "a title").await.unwrap();
        store.add_file(&file(name, "a", talk)).await.unwrap();

        // A payment that runs, and a question that waits beside it.
        let opening = Opening {
            messages: &question,
            cut: Cut::Nothing,
            heard: true,
            agent: Some("payer"),
        };
        store
            .begin(
                waits,
                opening,
                &asking("open", &["later"]),
                &entry("2"),
                at(6),
            )
            .await
            .unwrap();
        store
            .commit(waits, &running("pay"), &entry("3"), at(7))
            .await
            .unwrap();
        // Its text has grown since.
        let mut extent = Extent::of(&running("pay").message);
        for text in ["paying\t\0", "paying\t\0 \\ \"now\""] {
            let grown = record("reply", text, json!([]), json!({})).message;
            let grown = GrownReply {
                user: user_id.clone(),
                chat_id: waits.id.clone(),
                epoch: None,
                message_id: grown.id.clone(),
                texts: extent.grow(&grown).unwrap(),
            };
            store.grow_replies(&[grown]).await.unwrap();
        }
        for day in [7, 8] {
            let running = running("pay");
            let used = used(&running.message.id, day, 100 * day);
            store.count_usage(waits, used).await.unwrap();
        }

        // One that the front end owes.
        let owed = json!([{
            "id": "c", "name": "locate\0", "input": {}, "step": 1, "runsOn": "client",
            "state": {"is": "awaitingClient", "expires": 99_000},
        }]);
        store.create_chat(default, at(8)).await.unwrap();
        store
            .commit(default, &record("owes", "", owed, json!({})), &[], at(8))
            .await
            .unwrap();

        store.create_chat(gone, at(1)).await.unwrap();
        store.append_audit(gone, &entry("outlives")).await.unwrap();
        store.add_file(&file(name, "b", gone)).await.unwrap();
        store.delete_chat(gone).await.unwrap();
    }
    store.close().await.unwrap();
}

fn used(message_id: &MessageId, day: u64, input: u64) -> ReplyUsage<'_> {
    ReplyUsage {
        message_id,
        agent: "payer\u{0}",
        day,
        so_far: Tokens {
            input,
            cached: 5,
            output: 6,
        },
        price: TokenPrice {
            input: 1_000_000,
            cached: 0,
            output: 7_000_000,
        },
    }
}

fn file(user: &str, id: &str, chat: ChatRef<'_>) -> FileRow {
    FileRow {
        id: format!("{:0>31}{id}", user.len()),
        chat_id: chat.id.clone(),
        user: chat.user.clone(),
        media_type: "image/png".to_owned(),
        bytes: 7,
        name: Some(format!("{user}.png")),
        created: at(3),
    }
}

/// All that the trait tells of a store.
async fn everything(store: &dyn Store) -> Vec<String> {
    let mut all = Vec::new();
    let mut sorted = |what: &str, mut lines: Vec<String>| {
        lines.sort();
        all.push(format!("{what}: {}", lines.join("\n  ")));
    };
    sorted("files", store.file_ids().await.unwrap());
    sorted("deleted", store.deleted_files().await.unwrap());
    sorted(
        "secret",
        vec![format!("{:?}", store.secret("files", b"").await.unwrap())],
    );
    let bytes = store.stored_bytes().await.unwrap();
    sorted("bytes", bytes.iter().map(|of| format!("{of:?}")).collect());
    let open = store.open_replies().await.unwrap();
    sorted("open", open.iter().map(|of| format!("{of:?}")).collect());
    let identity = store.identity().await.unwrap();
    sorted("identity", vec![identity.id, identity.is_empty.to_string()]);
    let mut files = store.file_ids().await.unwrap();
    files.sort();
    for id in files {
        sorted(
            "file",
            vec![format!("{:?}", store.any_file(&id).await.unwrap())],
        );
    }
    for user in USERS {
        let user_id = UserId::from(user);
        let used = store.usage_of_user(&user_id, None, 10).await.unwrap();
        sorted("usage", used.iter().map(|of| format!("{of:?}")).collect());
        sorted(
            "list",
            vec![format!(
                "{:?}",
                store.list_chats(&user_id, 10, None).await.unwrap()
            )],
        );
        for id in CHATS.iter().chain(&["gone"]) {
            let id = ChatId::from(*id);
            let chat = ChatRef {
                user: &user_id,
                id: &id,
            };
            let audit = store
                .audit(chat, AuditPage::default())
                .await
                .unwrap_or_default();
            sorted("audit", vec![format!("{audit:?}")]);
            sorted(
                "chat",
                vec![format!("{:?}", store.chat(chat).await.unwrap())],
            );
            let Ok(outline) = store.outline(chat).await else {
                continue;
            };
            for entry in &outline {
                let message = store.message_at(chat, entry.place).await.unwrap();
                let reply = store
                    .reply(chat, &MessageId::from(entry.id.as_str()))
                    .await
                    .unwrap();
                sorted("message", vec![format!("{entry:?} {message:?} {reply:?}")]);
            }
            sorted(
                "messages",
                vec![format!("{:?}", store.messages(chat).await.unwrap())],
            );
            sorted(
                "overview",
                vec![format!("{:?}", store.overview(chat).await.unwrap())],
            );
            sorted(
                "open",
                vec![format!("{:?}", store.open_replies_of(chat).await.unwrap())],
            );
            for generation in 0..3 {
                sorted(
                    "events",
                    vec![format!(
                        "{:?}",
                        store.events(chat, generation).await.unwrap()
                    )],
                );
            }
            sorted(
                "state",
                vec![format!("{:?}", store.state(chat, "wallet").await.unwrap())],
            );
        }
    }
    all
}

#[track_caller]
fn assert_same(found: &[String], expected: &[String]) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}
