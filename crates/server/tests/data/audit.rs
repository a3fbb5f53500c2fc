//! `adk-bridge audit`: on the data of a bridge that runs, that has stopped, that an older version left, and on exports.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use adk_bridge_testkit::process::binary;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::served::{Bridge, says};
use crate::{ALICE, BOB, DATABASE, OLD_FILE, keys, sql};

const PAY: &str = "call process_payment {\"amount\": 5, \"recipient\": \"Hanako\"}";
const KEY: (&str, &str) = ("ADK_BRIDGE__AUDIT__KEY", "the key that signs the audit");

/// A payment that a user denies, with a reason.
async fn deny(bridge: &Bridge, chat: &str) {
    bridge.say(chat, says(PAY), "native").await;
    let mut asked = bridge.json(&format!("/api/chats/{chat}")).await["messages"][1].clone();
    let parts = asked["parts"].as_array_mut().unwrap();
    let part = parts
        .iter_mut()
        .find(|it| it["type"] == "tool-process_payment");
    let part = part.unwrap();
    part["state"] = json!("approval-responded");
    part["approval"]["approved"] = json!(false);
    part["approval"]["reason"] = json!("Hanako is not to be trusted");
    let body = json!({"id": chat, "messages": [asked]});
    let answer = bridge.post("/api/chat", &body).await;
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap();
}

fn audit(dir: &Path, arguments: &[&str], key: bool) -> Output {
    let mut command = Command::new(binary());
    command
        .current_dir(dir)
        .arg("audit")
        .args(arguments)
        .stdin(Stdio::null());
    if key {
        command.env(KEY.0, KEY.1);
    }
    command.output().unwrap()
}

#[track_caller]
fn verify(dir: &Path, arguments: &[&str], key: bool) -> (Option<i32>, String) {
    let done = audit(dir, &[&["verify"], arguments].concat(), key);
    let said = String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap();
    (done.status.code(), said)
}

#[track_caller]
fn holds(dir: &Path, arguments: &[&str], key: bool) -> String {
    let (status, said) = verify(dir, arguments, key);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("holds   yes"), "{said}");
    said
}

#[track_caller]
fn finds(dir: &Path, arguments: &[&str], problem: &str) {
    let (status, said) = verify(dir, arguments, true);
    assert_eq!(status, Some(3), "{problem}: {said}");
    assert!(said.contains(problem), "{problem}: {said}");
}

#[tokio::test]
async fn what_was_touched_is_named() {
    let dir = TempDir::new().unwrap();
    let (home, data) = (dir.path(), dir.path().join("data"));
    let mut bridge = Bridge::serve_with(home, &keys(), &[KEY]);
    bridge.with_key(ALICE);
    for chat in ["one", "two"] {
        deny(&bridge, chat).await;
    }
    bridge.with_key(BOB);
    deny(&bridge, "his").await;
    // While it runs. It may not have sealed anything yet, so that a key would prove nothing.
    let said = holds(home, &["data"], false);
    assert!(said.contains("rows    6"), "{said}");

    // Her own, through the server; nobody else's.
    bridge.with_key(ALICE);
    let own = bridge.get("/api/audit/export").await;
    assert_eq!(own.headers()["content-type"], "application/x-ndjson");
    let own = own.text().await.unwrap();
    assert!(!own.contains("\"bob\""), "{own}");
    assert_eq!(own.lines().count(), 6, "{own}");
    std::fs::write(home.join("own.jsonl"), &own).unwrap();
    let said = holds(home, &["own.jsonl"], false);
    assert!(said.contains("the rows of one user, \"alice\""), "{said}");
    let everybodys = bridge.get("/api/audit/export?users=all").await;
    assert_eq!(everybodys.status(), 403);
    for query in ["users=none", "after=1"] {
        let refused = bridge.get(&format!("/api/audit/export?{query}")).await;
        assert_eq!(refused.status(), 400, "{query}");
    }
    bridge.terminate();
    assert!(bridge.wait().await.success());

    // What came last is sealed when it stops.
    let said = holds(home, &["data"], true);
    assert!(said.contains("through row 6; 0 rows are newer"), "{said}");
    let marked = |said: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix("newest  "));
        line.unwrap().to_owned()
    };
    let noted = marked(&said);
    let log = std::fs::read_to_string(home.join("log")).unwrap();
    assert!(log.contains(&noted), "{log}");
    holds(home, &["data", "--seal", &noted], true);
    let (_, said) = verify(home, &["data"], false);
    assert!(said.contains("signed  not checked"), "{said}");
    let wrong = Command::new(binary())
        .args(["audit", "verify", "data", "--key-env", "OTHER"])
        .env("OTHER", "another key, of before")
        .current_dir(home)
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(3));

    // An export says the same, and is found out as well.
    let whole = audit(home, &["export", "data", "--output", "audit.jsonl"], false);
    assert!(whole.status.success());
    holds(home, &["audit.jsonl", "--seal", &noted], true);
    let text = std::fs::read_to_string(home.join("audit.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let part = audit(home, &["export", "data", "--after", "2"], false);
    std::fs::write(home.join("part.jsonl"), &part.stdout).unwrap();
    let said = holds(home, &["part.jsonl"], true);
    assert!(said.contains("rows    4"), "{said}");
    assert!(
        said.contains("after   2: the rows through it are not here"),
        "{said}"
    );
    assert!(said.contains("the beginning is missing"), "{said}");
    let change = |name: &str, changed: Vec<String>| {
        std::fs::write(home.join(name), changed.join("\n") + "\n").unwrap();
    };
    let whole: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
    let at = |id: u64| {
        let is_row = |line: &&str| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["type"] == "row" && line["id"] == id
        };
        lines.iter().position(is_row).unwrap()
    };
    let mut changed = whole.clone();
    changed[at(4)] = changed[at(4)].replace("approval.denied", "approval.approved");
    change("changed.jsonl", changed);
    finds(home, &["changed.jsonl"], "row 4 was changed");
    let mut missing = whole.clone();
    missing.remove(at(5));
    change("missing.jsonl", missing);
    finds(home, &["missing.jsonl"], "row 5 is missing");
    let mut exchanged = whole.clone();
    exchanged.swap(at(1), at(2));
    change("exchanged.jsonl", exchanged);
    finds(home, &["exchanged.jsonl"], "row 1");
    change("short.jsonl", whole[..4].to_vec());
    finds(home, &["short.jsonl"], "the file has no end");
    change("garbage.jsonl", vec!["{".to_owned()]);
    finds(
        home,
        &["garbage.jsonl"],
        "line 1 of the file cannot be read",
    );

    // In the database, past the triggers.
    let database = data.join(DATABASE);
    let original = std::fs::read(&database).unwrap();
    let triggers = "DROP TRIGGER audit_is_not_changed; DROP TRIGGER audit_is_not_deleted;
                    DROP TRIGGER seals_are_not_changed; DROP TRIGGER seals_are_not_deleted;";
    for (done, problem) in [
        (
            "UPDATE audit SET kind = 'approval.approved' WHERE id = 2",
            "row 2 was changed",
        ),
        (
            "UPDATE audit SET reason = 'I agreed' WHERE id = 4",
            "row 4 was changed",
        ),
        ("DELETE FROM audit WHERE id = 3", "row 3 is missing"),
        (
            "DELETE FROM audit WHERE chat_id = 'two'",
            "row 3 is missing",
        ),
        ("DELETE FROM audit WHERE id = 6", "row 6 is missing"),
        (
            "INSERT INTO audit (id, at, user, chat_id, kind) VALUES (7, 1, 'alice', 'one', 'approval.approved')",
            "row 7 has no hash",
        ),
        (
            "UPDATE audit_seals SET at = 1 WHERE number = 1",
            "seal 1, over the rows from 1, was changed",
        ),
        (
            "UPDATE audit_seals SET signature = NULL, key_id = NULL",
            "is not signed with a key that was given",
        ),
        (
            "DELETE FROM audit_seals; DELETE FROM audit WHERE chat_id = 'two'",
            "row 3 is missing",
        ),
    ] {
        sql(&database, &format!("{triggers} {done}")).await;
        finds(home, &["data"], problem);
        std::fs::write(&database, &original).unwrap();
    }
    sql(
        &database,
        &format!("{triggers} DELETE FROM audit WHERE id > 2; DELETE FROM audit_seals"),
    )
    .await;
    finds(
        home,
        &["data"],
        "the rows from 3 through 6 are missing: the end was cut off",
    );
    let (status, said) = verify(home, &["data"], false);
    assert_eq!(status, Some(3), "{said}");
    // Whoever thinks of the counter of ids still has no seal.
    let counter = "UPDATE sqlite_sequence SET seq = 2 WHERE name = 'audit'";
    sql(&database, counter).await;
    finds(home, &["data"], "there is no seal");
    finds(
        home,
        &["data", "--seal", &noted],
        "missing: the end was cut off",
    );
    std::fs::write(&database, &original).unwrap();
    holds(home, &["data"], true);

    // Its newest seal and the rows under it, which no key misses.
    let mut bridge = Bridge::serve_with(home, &keys(), &[KEY]);
    bridge.with_key(ALICE);
    deny(&bridge, "three").await;
    bridge.terminate();
    assert!(bridge.wait().await.success());
    holds(home, &["data"], true);
    let cut = "DELETE FROM audit WHERE id > 6; DELETE FROM audit_seals WHERE through_row > 6";
    sql(&database, &format!("{triggers} {cut}")).await;
    finds(
        home,
        &["data"],
        "the rows from 7 through 8 are missing: the end was cut off",
    );
    std::fs::write(&database, &original).unwrap();

    // Rows of long ago, and no seal: without a key as well.
    let long_ago = lines.iter().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if line["type"] == "audit" {
            line["at"] = json!(line["at"].as_u64().unwrap() + 11 * 60 * 1_000);
        }
        line
    });
    let unsealed: Vec<String> = long_ago
        .filter(|line| line["type"] != "seal")
        .map(|mut line| {
            if line["type"] == "end" {
                line["seals"] = json!(0);
            }
            line.to_string()
        })
        .collect();
    change("unsealed.jsonl", unsealed);
    let (status, said) = verify(home, &["unsealed.jsonl"], false);
    assert_eq!(status, Some(3), "{said}");
    assert!(
        said.contains("row 1 has no seal, and is too old to have none"),
        "{said}"
    );

    // What cannot be read is another matter.
    let (status, said) = verify(home, &["nowhere"], true);
    assert_eq!(status, Some(1), "{said}");
    let (status, said) = verify(home, &["data", "--seal", "1"], true);
    assert_eq!(status, Some(2), "{said}");
    // Nothing was changed by looking, and the bridge goes on.
    let bridge = Bridge::serve_with(home, &keys(), &[KEY]);
    drop(bridge);
    holds(home, &["data"], true);
}

#[tokio::test]
async fn rows_from_before_are_not_chained() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let shelf = data.join("files").join(&OLD_FILE[..2]);
    std::fs::create_dir_all(&shelf).unwrap();
    std::fs::write(shelf.join(OLD_FILE), b"x").unwrap();
    let old = include_str!("../../../../fixtures/store/schema-2.sql");
    sql(&data.join(DATABASE), old).await;
    let (status, said) = verify(dir.path(), &["data"], false);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("start the bridge of this version"), "{said}");

    let mut bridge = Bridge::serve(dir.path(), &keys());
    bridge.with_key(ALICE);
    deny(&bridge, "new").await;
    bridge.terminate();
    assert!(bridge.wait().await.success());
    let said = holds(dir.path(), &["data"], false);
    assert!(said.contains("of them not chained"), "{said}");
    // They are sealed nevertheless: none can be removed without being missed.
    let triggers = "DROP TRIGGER audit_is_not_deleted;";
    let gone = format!("{triggers} DELETE FROM audit WHERE id = 1");
    sql(&data.join(DATABASE), &gone).await;
    let (status, said) = verify(dir.path(), &["data"], false);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("row 1 is missing"), "{said}");
}
