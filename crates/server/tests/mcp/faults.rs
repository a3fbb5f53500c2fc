//! Servers that end, hang, send too much, or are not there.

use serde_json::json;

use adk_bridge_testkit::Bridge;
use adk_bridge_testkit::served::Bridge as Served;
use tempfile::TempDir;

use crate::{bridge, call, calls, offered, received, scripted, until, until_available};

/// What a server under load may take in memory beyond a message: its buffers, and the tree of the message.
const ROOM: usize = 150 << 20;

#[tokio::test]
async fn a_server_that_crashes_is_started_again_and_its_call_is_not() {
    let (bridge, records) = bridge("all", "").await;
    for chat in ["first", "second"] {
        let part = call(&bridge, chat, "mine__crash", &json!({})).await;
        let said = part["errorText"].as_str().unwrap();
        assert!(
            said.contains("\"mine\" failed while the tool ran"),
            "{said}"
        );
        until_available(&bridge).await;
    }
    assert_eq!(calls(records.path(), "crash"), 2);
    let part = call(&bridge, "after", "mine__say", &json!({"text": "again"})).await;
    assert_eq!(part["output"], "again");
    assert!(bridge.log().contains("it ended with exit status: 7"));
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_cancelled() {
    let (bridge, records) = bridge("all", "[tools]\ntimeout = \"300ms\"").await;
    let part = call(&bridge, "hang", "mine__hang", &json!({})).await;
    let said = part["errorText"].as_str().unwrap();
    assert!(said.contains("returned no result within"), "{said}");
    until(|| async {
        let all = received(&records);
        let call = all.iter().find(|sent| sent["method"] == "tools/call");
        let id = &call.unwrap()["id"];
        let is_cancelled = |sent: &serde_json::Value| {
            sent["method"] == "notifications/cancelled" && sent["params"]["requestId"] == *id
        };
        all.iter().any(is_cancelled)
    })
    .await;
    let part = call(
        &bridge,
        "after",
        "mine__say",
        &json!({"text": "still here"}),
    )
    .await;
    assert_eq!(part["output"], "still here");
}

/// It may hold the output open, so that the end of its server cannot be read there.
#[tokio::test]
async fn what_a_server_leaves_behind_is_ended_with_it() {
    let records = TempDir::new().unwrap();
    let toml = scripted::server("idle", "leaves", records.path(), "")
        + &scripted::server("mine", "all", records.path(), "");
    let bridge = Bridge::configured(&toml);
    until(|| async { offered(&bridge, "mine__say").await.len() == 1 }).await;
    let part = call(&bridge, "desert", "mine__desert", &json!({})).await;
    let said = part["errorText"].as_str().unwrap();
    assert!(
        said.contains("\"mine\" failed while the tool ran"),
        "{said}"
    );
    let has_failed = || async {
        bridge
            .log()
            .contains("idle is not available: it ended with")
    };
    until(has_failed).await;
    for server in ["idle", "mine"] {
        let sent = scripted::received(server, records.path());
        let mut left = sent.iter().filter_map(|line| line["left"].as_u64());
        let left = u32::try_from(left.next().unwrap()).unwrap();
        until(|| async { !is_alive(left) }).await;
    }
}

/// A list with much to say about it, which the server says again and again that it has changed.
#[tokio::test]
async fn a_restless_server_does_not_fill_the_log() {
    let (bridge, records) = bridge("restless", "").await;
    until(|| async {
        let sent = received(&records);
        let lists = sent.iter().filter(|it| it["method"] == "tools/list");
        lists.count() >= 3
    })
    .await;
    let log = bridge.log();
    assert!(log.lines().count() < 50, "{}", log.lines().count());
    assert!(log.contains("more of its tools are left out"), "{log}");
}

/// An endless line, and requests without end whose answers nobody reads.
#[tokio::test]
async fn a_server_that_sends_too_much_is_ended() {
    for (tool, why) in [
        ("shout", "it sent a line of more than 16 MB"),
        (
            "babble",
            "it sends requests and does not read their answers",
        ),
        ("crowd", "it sent a message of too many values"),
    ] {
        let (bridge, records) = bridge("all", "").await;
        let before = bridge.memory();
        bridge.forget_peak();
        let part = call(&bridge, tool, &format!("mine__{tool}"), &json!({})).await;
        let said = part["errorText"].as_str().unwrap();
        assert!(
            said.contains("\"mine\" failed while the tool ran"),
            "{said}"
        );
        until_available(&bridge).await;
        assert!(bridge.peak() < before + ROOM, "{tool}: {}", bridge.peak());
        assert!(bridge.log().contains(why), "{tool}: {}", bridge.log());
        assert_eq!(calls(records.path(), tool), 1);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_everywhere() {
    for (manner, why) in [
        ("exits", "it ended with exit status: 3"),
        ("endless", "it sent a line of more than 16 MB"),
    ] {
        let records = TempDir::new().unwrap();
        let toml = scripted::server("mine", manner, records.path(), "");
        let bridge = Bridge::configured(&toml);
        let failed = || async { bridge.log().contains("is not available") };
        until(failed).await;
        let ready = bridge.get("/ready").await;
        assert_eq!(ready.status, 200);
        assert_eq!(ready.json()["status"], "ready");
        assert_eq!(ready.json()["unavailableTools"], json!(["mine"]));
        let agent = bridge.get("/api/agent").await.json();
        let said = agent["limitations"].to_string();
        assert!(said.contains("mine") && said.contains(why), "{said}");
        let part = call(&bridge, "any", "mine__unavailable", &json!({})).await;
        let said = part["errorText"].as_str().unwrap();
        let expected = format!("the MCP server \"mine\" is not available: {why}");
        assert_eq!(said, expected);
        assert!(bridge.log().contains(why), "{}", bridge.log());
    }
}

/// The bridge starts without it, and takes it along when it ends.
#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for() {
    let records = TempDir::new().unwrap();
    let toml = scripted::server("mine", "mute", records.path(), "");
    let bridge = Served::serve(records.path(), &toml);
    let ready = bridge.json("/ready").await;
    assert_eq!(ready["unavailableTools"], json!(["mine"]));
    let programs = children(bridge.process());
    assert_eq!(programs.len(), 1);
    bridge.terminate();
    bridge.wait().await;
    until(|| async { !is_alive(programs[0]) }).await;
}

/// The processes that this one has started.
fn children(process: u32) -> Vec<u32> {
    let mut all: Vec<u32> = Vec::new();
    // Any thread may have started one.
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    for task in tasks {
        let listed = task.unwrap().path().join("children");
        let ids = std::fs::read_to_string(listed).unwrap_or_default();
        all.extend(ids.split_whitespace().map(|id| id.parse::<u32>().unwrap()));
    }
    all
}

fn is_alive(process: u32) -> bool {
    std::fs::exists(format!("/proc/{process}")).unwrap()
}

#[tokio::test]
async fn one_server_does_not_stop_another() {
    let records = TempDir::new().unwrap();
    let toml = scripted::server("broken", "exits", records.path(), "")
        + &scripted::server("mine", "all", records.path(), "");
    let bridge = Bridge::configured(&toml);
    until(|| async { offered(&bridge, "mine__say").await.len() == 1 }).await;
    let part = call(&bridge, "chat", "mine__say", &json!({"text": "hello"})).await;
    assert_eq!(part["output"], "hello");
    let ready = bridge.get("/ready").await.json();
    assert_eq!(ready["unavailableTools"], json!(["broken"]));
    assert_eq!(offered(&bridge, "broken__").await, ["broken__unavailable"]);
}
