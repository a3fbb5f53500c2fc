//! A real bridge whose files are in a bucket: over HTTP, without its server, and with credentials that it refuses.

use adk_bridge_testkit::postgres::Postgres;
use adk_bridge_testkit::process::binary;
use adk_bridge_testkit::served::{Bridge, of_type, read, refused, says, text};
use adk_bridge_testkit::within;
use reqwest::Method;
use serde_json::{Value, json};

use super::*;

fn config(server: &Server, scheme: &str) -> String {
    format!(
        "[demo]\npace = \"0ms\"\n[files]\nurl = \"{scheme}://chats/served\"\nendpoint = \"{}\"\nallow_http = true\n",
        server.url()
    )
}

/// Waits until `/ready` gives this answer: an earlier one is repeated for a moment.
async fn until_ready_is(bridge: &Bridge, expected: Value) {
    let wait = async {
        while bridge.json("/ready").await != expected {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(wait).await;
}

#[tokio::test]
#[ignore = "needs an S3 server: cargo xtask test buckets"]
async fn a_bridge_goes_on_without_its_bucket_and_has_its_files_when_it_is_back() {
    let mut server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let config = config(&server, "s3");
    let port = server.url().rsplit(':').next().unwrap().to_owned();
    let bridge = Bridge::serve(dir.path(), &config);
    let upload = async |bridge: &Bridge| {
        let sent = bridge.request(Method::POST, "/api/files?chat=c");
        let sent = sent.header("content-type", "image/png").body(content(5000));
        sent.send().await.unwrap()
    };
    let sent = upload(&bridge).await;
    assert_eq!(sent.status(), 201);
    let url = read(sent).await["url"].as_str().unwrap().to_owned();
    for (asked, status, range, part) in [
        (
            "bytes=10-19",
            206,
            "bytes 10-19/5000",
            &content(5000)[10..20],
        ),
        (
            "bytes=-5",
            206,
            "bytes 4995-4999/5000",
            &content(5000)[4995..],
        ),
        ("bytes=5000-", 416, "bytes */5000", &[]),
    ] {
        let got = bridge.request(Method::GET, &url).header("range", asked);
        let got = got.send().await.unwrap();
        assert_eq!(got.status(), status, "{asked}");
        assert_eq!(got.headers()["content-range"], range);
        if status == 206 {
            assert_eq!(got.bytes().await.unwrap(), part);
        }
    }
    assert_eq!(bridge.json("/ready").await, json!({"status": "ready"}));

    server.process.kill();
    let lost = bridge.get(&url).await;
    assert_eq!(
        (lost.status().as_u16(), &lost.headers()["retry-after"]),
        (503, &"10".parse().unwrap())
    );
    let why = read(lost).await["error"]["message"].to_string();
    assert!(why.contains("try again later"), "{why}");
    assert_eq!(upload(&bridge).await.status(), 503);
    until_ready_is(&bridge, json!({"status": "ready", "files": "unavailable"})).await;
    // A conversation without files does not notice; a file from the bucket is missing for the model only now.
    let answer = bridge.say("plain", says("hello"), "native").await;
    assert!(!text(&answer).is_empty());
    assert_eq!(of_type(&answer, "error").len(), 0);
    // Nor does a start.
    drop(bridge);
    let bridge = Bridge::serve(dir.path(), &config);
    assert_eq!(upload(&bridge).await.status(), 503);

    let server = Server::start(&[&port]);
    assert_eq!(upload(&bridge).await.status(), 201);
    until_ready_is(&bridge, json!({"status": "ready"})).await;
    // This one has lost what it had, which is not the bridge's fault, and no failure.
    assert_eq!(bridge.get(&url).await.status(), 404);
    drop(server);
}

#[tokio::test]
#[ignore = "needs an S3 server: cargo xtask test buckets"]
async fn a_bucket_that_cannot_be_used_is_refused_by_name() {
    let (server, denying) = (Server::start(&[]), Server::start(&["--deny"]));
    let foreign = tempfile::tempdir().unwrap();
    let bridge = Bridge::serve(foreign.path(), &config(&server, "s3"));
    let sent = bridge
        .request(Method::POST, "/api/files?chat=c")
        .body(content(50));
    assert_eq!(sent.send().await.unwrap().status(), 201);
    drop(bridge);

    let elsewhere = config(&server, "s3").replace("chats/served", "nowhere");
    for (name, config, words) in [
        (
            "denied",
            config(&denying, "s3"),
            ["files.url: s3://chats/served", "AWS_ACCESS_KEY_ID"],
        ),
        (
            "no bucket",
            elsewhere,
            ["files.url: ", "there is no bucket for s3://nowhere"],
        ),
        (
            "another database's",
            config(&server, "s3"),
            ["s3://chats/served", "do not belong to the database"],
        ),
        (
            "without encryption",
            config(&server, "s3").replace("allow_http = true", ""),
            ["files.endpoint: ", "files.allow_http"],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let said = refused(dir.path(), &config);
        for word in words {
            assert!(said.contains(word), "{name}: {said}");
        }
        assert!(!said.contains("PLANTED"), "{name}: {said}");
    }
}

#[tokio::test]
#[ignore = "needs an S3 server: cargo xtask test buckets"]
async fn files_are_in_the_bucket_to_which_a_store_has_moved() {
    let server = Server::start(&[]);
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bridge = Bridge::serve(old.path(), "");
    let sent = bridge.request(Method::POST, "/api/files?chat=c");
    let sent = sent.body(content(9 * MIB)).send().await.unwrap();
    assert_eq!(sent.status(), 201);
    let url = read(sent).await["url"].as_str().unwrap().to_owned();
    drop(bridge);

    let database = Postgres::shared().database();
    let mut migrate = Command::new(binary());
    migrate
        .args(["migrate-store"])
        .arg(old.path().join("data"))
        .args(["--files", "s3://chats/served"])
        .env("ADK_BRIDGE__STORE__URL", &database)
        .env("ADK_BRIDGE__FILES__ENDPOINT", server.url());
    let said = |command: &mut Command| {
        let done = command.output().unwrap();
        (
            done.status.success(),
            String::from_utf8(done.stderr).unwrap(),
        )
    };
    let (done, refusal) = said(&mut migrate);
    assert!(!done && refusal.contains("files.allow_http"), "{refusal}");
    migrate.env("ADK_BRIDGE__FILES__ALLOW_HTTP", "true");
    for counts in ["1 copied", "0 copied (0 bytes), 1 there already"] {
        let (done, report) = said(&mut migrate);
        assert!(done && report.contains(counts), "{report}");
    }

    let moved = format!("{}[store]\nurl = \"{database}\"\n", config(&server, "s3"));
    let bridge = Bridge::serve(new.path(), &moved);
    let got = bridge.get(&url).await;
    assert_eq!(got.status(), 200);
    assert!(got.bytes().await.unwrap() == content(9 * MIB));
}

#[tokio::test]
#[ignore = "needs an S3 server: cargo xtask test buckets"]
async fn bridges_with_one_database_share_files_addresses_and_quotas() {
    let server = Server::start(&[]);
    let shared = format!(
        "{}[store]\nurl = \"{}\"\n[cluster]\nkey = \"a-secret-of-the-fleet\"\n[limits]\nstored_bytes_per_user = 12000\n",
        config(&server, "s3"),
        Postgres::shared().database()
    );
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, two] = dirs
        .each_ref()
        .map(|dir| Bridge::serve(dir.path(), &shared));
    let upload = async |bridge: &Bridge| {
        let sent = bridge.request(Method::POST, "/api/files?chat=c");
        sent.body(content(5000)).send().await.unwrap()
    };
    // What one bridge has stored and signed is read at the other one, by its signature and by its owner.
    let sent = upload(&one).await;
    assert_eq!(sent.status(), 201);
    let sent = read(sent).await;
    for url in [
        sent["url"].as_str().unwrap(),
        &format!("/api/files/{}", sent["id"].as_str().unwrap()),
    ] {
        let got = two.get(url).await;
        assert_eq!(got.status(), 200, "{url}");
        assert_eq!(got.bytes().await.unwrap(), content(5000));
    }
    // A quota counts what was stored elsewhere, wherever the next file comes.
    assert_eq!(upload(&two).await.status(), 201);
    let refused = upload(&one).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(read(refused).await["error"]["code"], "storage_full");
    // Neither start has put aside what the other one wrote.
    for dir in &dirs {
        let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert!(!log.contains("are not known"), "{log}");
        assert!(!dir.path().join("data/credentials.key").exists());
    }
}
