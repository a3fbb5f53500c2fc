//! What is deleted because of its age, and because somebody is to be forgotten.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::served::{Bridge, PATIENCE, read, says};
use crate::{ALICE, BOB, DATABASE, FAST, count, keys, sql, upload};

const PAY: &str = "call process_payment {\"amount\": 5, \"recipient\": \"Hanako\"}";

/// Waits until the first look at what is too old is over.
async fn swept(bridge: &Bridge, what: &str, expected: u64) {
    let name = format!("adk_bridge_retention_deleted_total{{what=\"{what}\"}} {expected}");
    let found = async {
        loop {
            let text = bridge.get("/metrics").await.text().await.unwrap();
            if text.lines().any(|line| line == name) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap();
}

async fn ids(bridge: &Bridge) -> Vec<String> {
    let chats = bridge.json("/api/chats").await;
    let chats = chats.as_array().unwrap();
    let mut ids: Vec<String> = chats
        .iter()
        .map(|chat| chat["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn what_is_too_old_goes_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let database = data.join(DATABASE);
    let bridge = Bridge::serve(dir.path(), FAST);
    for chat in ["old", "young", "asks"] {
        bridge.say(chat, says("say hi"), "native").await;
    }
    bridge.say("asks", says(PAY), "adk").await;
    let (old_file, young_file) = (upload(&bridge, "old").await, upload(&bridge, "young").await);
    let aged = upload(&bridge, "young").await;
    bridge.say("talked", says(PAY), "native").await;
    bridge
        .request(Method::DELETE, "/api/chats/talked")
        .send()
        .await
        .unwrap();
    bridge.terminate();
    assert!(bridge.wait().await.success());
    let aged_id = aged.rsplit('/').next().unwrap();
    let day = 24 * 60 * 60 * 1000;
    sql(
        &database,
        &format!(
            "UPDATE chats SET updated_at = updated_at - 91 * {day} WHERE id IN ('old', 'asks');
             UPDATE files SET created_at = created_at - 31 * {day} WHERE id = '{aged_id}'"
        ),
    )
    .await;

    let ages = "[retention]\nchats = \"90d\"\nfiles = \"30d\"\naudit = \"365d\"\n";
    let bridge = Bridge::serve(dir.path(), &format!("{FAST}{ages}"));
    swept(&bridge, "chats", 1).await;
    swept(&bridge, "files", 1).await;
    // What waits for an answer is not too old.
    assert_eq!(ids(&bridge).await, ["asks", "young"]);
    for (url, status) in [(&old_file, 404), (&aged, 404), (&young_file, 200)] {
        assert_eq!(bridge.get(url).await.status(), status);
    }
    assert_eq!(count(&data.join("files")), 1);
    // A message whose file is gone is shown, and its chat goes on.
    bridge.say("young", says("say more"), "held").await;
    let rows = bridge.json("/api/audit?chat=talked").await;
    assert!(!rows.as_array().unwrap().is_empty());
    bridge.terminate();
    assert!(bridge.wait().await.success());
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(
        log.contains("too old, and deleted: 1 chats, 1 files"),
        "{log}"
    );

    // The audit on its own term. Its age is part of what is chained: this is what years would do.
    let ages = "[retention]\naudit = \"1ms\"\n";
    let bridge = Bridge::serve(dir.path(), &format!("{FAST}{ages}"));
    let rows = async || {
        let asks = bridge.json("/api/audit?chat=asks").await;
        asks.as_array().unwrap().len()
    };
    let gone = async {
        while rows().await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
    bridge.say("after", says(PAY), "native").await;
    bridge.terminate();
    assert!(bridge.wait().await.success());
    let verified = std::process::Command::new(adk_bridge_testkit::process::binary())
        .args(["audit", "verify", "data"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8(verified.stdout).unwrap();
    assert!(verified.status.success(), "{said}");
    assert!(said.contains("were removed because of their age"), "{said}");
}

#[tokio::test]
async fn usage_goes_by_its_age_and_outlives_its_chats() {
    const COUNTS: &str = "[budget]\ncount = true\n";
    let dir = TempDir::new().unwrap();
    let database = dir.path().join("data").join(DATABASE);
    let bridge = Bridge::serve(dir.path(), &format!("{FAST}{COUNTS}"));
    for chat in ["one", "two"] {
        bridge.say(chat, says("say hi"), "native").await;
        bridge
            .request(Method::DELETE, &format!("/api/chats/{chat}"))
            .send()
            .await
            .unwrap();
    }
    bridge.terminate();
    assert!(bridge.wait().await.success());
    sql(
        &database,
        "INSERT INTO usage SELECT user, day - 31, agent, input, cached, output, cost FROM usage;
         INSERT INTO usage SELECT user, day + 2, agent, input, cached, output, cost FROM usage WHERE day <
         (SELECT max(day) FROM usage)",
    )
    .await;
    let ages = "[retention]\nusage = \"30d\"\n";
    let bridge = Bridge::serve(dir.path(), &format!("{FAST}{COUNTS}{ages}"));
    swept(&bridge, "usage_rows", 1).await;
    let export = bridge.get("/api/export").await.text().await.unwrap();
    assert_eq!(export.matches("\"type\":\"usage\"").count(), 2, "{export}");
    let state = bridge.json("/api/budget").await;
    assert!(state["used"]["tokens"].as_u64() > Some(0), "{state}");
}

#[tokio::test]
async fn a_user_is_erased_and_gets_a_copy_before() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let mut bridge = Bridge::serve(dir.path(), &keys());
    let mut files = Vec::new();
    for (key, chat) in [(ALICE, "hers"), (ALICE, "again"), (BOB, "his")] {
        bridge.with_key(key);
        bridge.say(chat, says(PAY), "native").await;
        let mut asked = bridge.json(&format!("/api/chats/{chat}")).await["messages"][1].clone();
        let parts = asked["parts"].as_array_mut().unwrap();
        let part = parts
            .iter_mut()
            .find(|it| it["type"] == "tool-process_payment");
        let part = part.unwrap();
        part["state"] = json!("approval-responded");
        part["approval"]["approved"] = json!(false);
        part["approval"]["reason"] = json!("a reason of her own");
        let body = json!({"id": chat, "messages": [asked]});
        bridge.post("/api/chat", &body).await.text().await.unwrap();
        files.push(upload(&bridge, chat).await);
    }

    // A copy of what is hers.
    bridge.with_key(ALICE);
    let copy = bridge.get("/api/export").await;
    assert_eq!(copy.headers()["content-type"], "application/x-ndjson");
    let copy = copy.text().await.unwrap();
    let lines: Vec<Value> = copy
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert_eq!(
        (
            of("export"),
            of("chat"),
            of("message"),
            of("file"),
            of("audit")
        ),
        (1, 2, 4, 2, 4)
    );
    let end = lines.last().unwrap();
    assert_eq!(end["type"], "end");
    assert_eq!((&end["chats"], &end["messages"]), (&json!(2), &json!(4)));
    assert!(
        !copy.contains("\"his\"") && copy.contains("a reason of her own"),
        "{copy}"
    );
    let file = lines.iter().find(|line| line["type"] == "file").unwrap();
    let url = format!(
        "http://{}{}",
        bridge.address(),
        file["url"].as_str().unwrap()
    );
    assert_eq!(reqwest::get(url).await.unwrap().status(), 200);

    // A key makes nobody an administrator.
    for (key, user) in [(ALICE, "alice"), (BOB, "alice")] {
        bridge.with_key(key);
        let path = format!("/api/users/{user}");
        let refused = bridge.request(Method::DELETE, &path).send().await.unwrap();
        assert_eq!(refused.status(), 403);
        assert_eq!(read(refused).await["error"]["code"], "role_needed");
    }
    bridge.terminate();
    assert!(bridge.wait().await.success());

    // Whoever has the machine is one.
    let bridge = Bridge::serve(dir.path(), FAST);
    let erase = async || {
        let done = bridge
            .request(Method::DELETE, "/api/users/alice")
            .send()
            .await
            .unwrap();
        assert_eq!(done.status(), 200);
        read(done).await
    };
    let erased = erase().await;
    assert_eq!(
        (&erased["chats"], &erased["auditRows"]),
        (&json!(2), &json!(2))
    );
    assert!(erased["bytes"].as_u64().unwrap() > 100, "{erased}");
    // It can be repeated.
    assert_eq!(erase().await["chats"], json!(0));
    bridge.terminate();
    assert!(bridge.wait().await.success());
    assert_eq!(count(&data.join("files")), 1);
    let mut bridge = Bridge::serve(dir.path(), &keys());
    bridge.with_key(ALICE);
    assert_eq!(bridge.json("/api/chats").await, json!([]));
    assert_eq!(bridge.get(&files[0]).await.status(), 404);
    // What happened stays, without words.
    let rows = bridge.json("/api/audit?chat=hers").await;
    let kinds: Vec<&str> = (rows.as_array().unwrap().iter())
        .map(|row| row["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["approval.requested", "approval.denied"]);
    assert!(!rows.to_string().contains("of her own"), "{rows}");
    bridge.with_key(BOB);
    assert_eq!(ids(&bridge).await, ["his"]);
    assert!(
        bridge
            .json("/api/audit?chat=his")
            .await
            .to_string()
            .contains("of her own")
    );
    bridge.terminate();
    assert!(bridge.wait().await.success());
    let verified = std::process::Command::new(adk_bridge_testkit::process::binary())
        .args(["audit", "verify", "data"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");
}
