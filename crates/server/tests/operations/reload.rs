//! SIGHUP: keys, limits, agents and origins change, and nothing that has begun is disturbed.

use std::time::Duration;

use adk_bridge_testkit::bridge::Bridge;
use adk_bridge_testkit::users::{ALICE, ALICE_KEY, BOB, BOB_KEY};
use adk_bridge_testkit::{JSON, asking, within};

const BEFORE: &str = r#"
[[auth.api_keys]]
key = "alice-secret-0123456789"
user = "alice"

[[agents]]
id = "one"
[[agents]]
id = "two"
"#;

const AFTER: &str = r#"
[server]
allowed_origins = ["https://page.example"]
max_body_bytes = 1000000

[[auth.api_keys]]
key = "bob-secret-9876543210"
user = "alice"

[limits]
turns_per_user = 1

[retention]
chats = "90d"

[store]
connections = 3

[[agents]]
id = "one"
[[agents]]
id = "three"
instruction = "PLANTED"
"#;

/// Writes another configuration, and waits until the bridge has taken note of it.
async fn reload(bridge: &Bridge, toml: &str, noted: &str) {
    let before = bridge.log().len();
    std::fs::write(bridge.directory.path().join("test.toml"), toml).unwrap();
    bridge.signal("-HUP");
    within(async {
        while !bridge.log()[before..].contains(noted) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

const LOADED: &str = "the configuration was loaded again";
const REFUSED: &str = "was not loaded again, and stays as it was";

#[tokio::test]
async fn another_configuration_counts_from_the_next_request_on() {
    let bridge = Bridge::with(BEFORE, |command| {
        command.env("ADK_BRIDGE__DEMO__PACE", "20ms");
    });
    let ask = |agent: &str, chat: &str, key, text: &str| {
        let path = format!("/api/agents/{agent}/chat");
        let body = asking(chat, text).to_string();
        let bridge = &bridge;
        async move { bridge.open("POST", &path, &[JSON, key], &body).await }
    };
    // A turn that goes on, and a connection that is kept.
    let mut running = ask("two", "running", ALICE, "long 12000").await;
    assert_eq!(running.status, 200);
    let mut events = running.events_until("word2").await;
    let mut kept = bridge.connect().await;
    kept.request("GET", "/api/chats", &[ALICE], b"").await;
    let (response, mut kept) = kept.answer("GET").await.whole_and_connection().await;
    assert_eq!(response.status, 200);

    reload(&bridge, AFTER, "only a restart changes").await;
    // One turn is allowed, and it runs.
    let refused = ask("one", "refused", BOB, "say hi").await.whole().await;
    assert_eq!(refused.status, 429, "{}", refused.message());
    assert!(refused.message().contains("turns_per_user = 1"));

    // What has begun goes on, with the agent that is gone, until somebody stops it.
    let stream = "/api/chat/running/stream";
    let resumed = bridge.open("GET", stream, &[BOB], "").await;
    assert_eq!(resumed.status, 200);
    let stop = "/api/chat/running/stop";
    let stopped = bridge.send("POST", stop, &[BOB], "").await;
    assert_eq!(stopped.status, 204);
    events.extend(running.events().await);
    assert_eq!(events.last().unwrap(), "[DONE]");

    // The same connection goes on; the old key does not.
    kept.request("GET", "/api/chats", &[ALICE], b"").await;
    let (response, mut kept) = kept.answer("GET").await.whole_and_connection().await;
    assert_eq!(response.status, 401);
    kept.request("GET", "/api/agents", &[BOB], b"").await;
    let (response, _kept) = kept.answer("GET").await.whole_and_connection().await;
    assert_eq!(response.status, 200);
    let agents = response.json();
    let agents = agents.as_array().unwrap().iter();
    let ids: Vec<_> = agents.map(|agent| agent["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["one", "three"]);

    // The chat of the agent that is gone can be read, and nothing new begins in it.
    let gone = ask("two", "running", BOB, "say hi").await.whole().await;
    assert_eq!((gone.status, gone.code().as_str()), (410, "agent_gone"));
    let unknown = ask("two", "another", BOB, "say hi").await.whole().await;
    assert_eq!(
        (unknown.status, unknown.code().as_str()),
        (404, "unknown_agent")
    );
    let read = bridge.send("GET", "/api/chats/running", &[BOB], "").await;
    assert_eq!(read.status, 200);
    let mut new = ask("three", "new", BOB, "say hi").await;
    assert_eq!(new.status, 200);
    assert!(!new.events().await.is_empty());

    // Pages of the new origin may use the bridge, and no others.
    for (origin, status) in [
        ("https://page.example", 200),
        ("https://other.example", 403),
    ] {
        let headers = [BOB, ("origin", origin)];
        let answer = bridge.send("POST", "/api/ticket", &headers, "").await;
        assert_eq!(answer.status, status, "{origin}");
        let allowed = answer
            .headers
            .iter()
            .find(|(name, _)| name == "access-control-allow-origin");
        assert_eq!(allowed.is_some(), status == 200, "{origin}");
    }

    let log = bridge.log();
    for word in [
        "auth.api_keys",
        "limits.turns_per_user",
        "server.allowed_origins",
        "agent three added",
        "agent two removed",
        "only a restart changes these keys: server.max_body_bytes, store.connections",
    ] {
        assert!(log.contains(word), "{word} in {log}");
    }
    for secret in [ALICE_KEY, BOB_KEY, "PLANTED"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[tokio::test]
async fn a_bad_file_is_reported_and_changes_nothing() {
    let mut bridge = Bridge::configured(BEFORE);
    for (bad, words) in [
        (
            "[auth]\napi_keys = [{ key = \"PLANTED-0123456789\" }]\n[limits]\nturns = 0",
            vec!["auth.api_keys", "limits.turns"],
        ),
        (
            "[[agents]]\nid = \"one\"\nkind = \"adk\"\n[[agents]]\nid = \"two\"\ntools = [\"fly\"]",
            vec!["agents \"one\": app"],
        ),
        ("[server\nPLANTED", vec!["line 1"]),
    ] {
        reload(&bridge, bad, REFUSED).await;
        within(async {
            while !words.iter().all(|word| bridge.log().contains(word)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let asked = bridge.send("GET", "/api/agents", &[ALICE], "").await;
        assert_eq!(asked.status, 200, "{bad}");
        assert_eq!(asked.json().as_array().unwrap().len(), 2);
    }
    // Without a key it would serve this machine only, which its clients did not begin with.
    reload(
        &bridge,
        "[[agents]]\nid = \"one\"",
        "only a restart changes these keys: auth.api_keys",
    )
    .await;
    let asked = bridge.send("GET", "/api/agents", &[ALICE], "").await;
    assert_eq!(asked.json().as_array().unwrap().len(), 1);
    let stranger = bridge.send("GET", "/api/agents", &[], "").await;
    assert_eq!(stranger.status, 401);
    reload(&bridge, BEFORE, LOADED).await;
    assert!(bridge.is_alive());
    let log = bridge.log();
    assert!(!log.contains("PLANTED"), "{log}");
}

#[tokio::test]
async fn ages_count_at_once_and_what_a_start_alone_can_change_is_said() {
    let mut bridge = Bridge::configured(BEFORE);
    let ask = asking("old", "say hi").to_string();
    let said = bridge.open("POST", "/api/chat", &[JSON, ALICE], &ask).await;
    assert_eq!(said.whole().await.status, 200);
    // What is in memory is in use, and not too old.
    bridge.kill_and_restart();
    let later = format!(
        "{BEFORE}\n[retention]\nchats = \"1ms\"\n[audit]\nkey = \"PLANTED-0123456789\"\n\
         [log]\nformat = \"json\"\n[telemetry]\ncontent = true\n"
    );
    reload(&bridge, &later, "only a restart changes").await;
    let log = bridge.log();
    assert!(log.contains("changed: retention.chats\n"), "{log}");
    let started = "only a restart changes these keys: audit.key, log.format, telemetry.content\n";
    assert!(log.contains(started), "{log}");
    assert!(!log.contains("PLANTED"), "{log}");
    // Looked for since the reload, not since the start.
    within(async {
        loop {
            let listed = bridge.send("GET", "/api/chats", &[ALICE], "").await;
            if listed.json().as_array().unwrap().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    // And no longer than until the next one.
    reload(&bridge, BEFORE, "changed: retention.chats").await;
}
