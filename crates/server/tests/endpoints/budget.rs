//! Budgets: what is refused and until when, what goes on all the same, and what users see of it.

use std::time::Duration;

use adk_bridge::protocol::time::Timestamp;
use serde_json::{Value, json};
use sqlx::{Connection as _, SqliteConnection};

use crate::support::http::Response;
use crate::support::stand_in::{StandIn, well};
use crate::support::users::{ALICE, BOB, KEYS};
use crate::support::{Bridge, JSON, asking, folded, text_of, within};

/// A few words with the scripted model take more than this.
const SMALL: &str = "[budget]\ntokens_per_day = 1\n";
const PAYMENT: &str = r#"call process_payment {"amount": 5, "recipient": "Hanako"}"#;

fn budget(toml: &str) -> Bridge {
    Bridge::configured(&format!("{KEYS}{toml}"))
}

async fn state(bridge: &Bridge, headers: &[(&str, &str)]) -> Value {
    let answer = bridge.send("GET", "/api/budget", headers, "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn ask(bridge: &Bridge, chat: &str, text: &str) -> Response {
    let body = asking(chat, text).to_string();
    bridge.send("POST", "/api/chat", &[JSON, ALICE], body).await
}

fn message(answer: &Response) -> String {
    String::from_utf8(answer.body.clone()).unwrap()
}

#[tokio::test]
async fn a_turn_over_the_budget_is_refused_until_the_next_day() {
    let bridge = budget(SMALL);
    let before = state(&bridge, &[ALICE]).await;
    assert_eq!(before["used"]["tokens"], 0);
    assert_eq!(before["isUsedUp"], false);
    assert_eq!(ask(&bridge, "c", "say hi").await.status, 200);

    let used = state(&bridge, &[ALICE]).await;
    let counted = used["used"]["tokens"].as_u64().unwrap();
    assert!(counted > 1, "{used}");
    let stored = bridge
        .send("GET", "/api/chats/c", &[ALICE], "")
        .await
        .json();
    let usage = &stored["messages"][1]["metadata"]["usage"];
    assert_eq!(
        usage["inputTokens"], used["used"]["inputTokens"],
        "{stored}"
    );
    assert_eq!(usage["outputTokens"], used["used"]["outputTokens"]);
    assert_eq!(used["limits"][0]["left"], 0.0);
    assert_eq!(used["isUsedUp"], true);

    for chat in ["c", "new"] {
        let refused = ask(&bridge, chat, "say more").await;
        assert_eq!(refused.status, 429);
        assert_eq!(refused.code(), "budget_exceeded");
        let said = message(&refused);
        let used = format!("{counted} of 1 tokens (budget.tokens_per_day); it begins again at ");
        assert!(said.contains(&used), "{said}");
        assert!(said.contains(" 00:00 UTC, in "), "{said}");
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        let resets =
            Timestamp::from_millis(state(&bridge, &[ALICE]).await["resetsAt"].as_u64().unwrap());
        assert!(wait > 0 && wait <= 24 * 60 * 60, "{wait}");
        let now = adk_bridge::chat::now();
        assert!(resets.since(now) <= Duration::from_secs(wait), "{wait}");
    }
    // Nothing of it was stored.
    let stored = bridge.send("GET", "/api/chats", &[ALICE], "").await.json();
    assert_eq!(stored.as_array().unwrap().len(), 1, "{stored}");
    let stored = bridge.send("GET", "/api/chats/c", &[ALICE], "").await;
    assert_eq!(stored.json()["messages"].as_array().unwrap().len(), 2);

    // Another user has a budget of their own, and sees nobody else's.
    let other = asking("c", "say hi").to_string();
    let answer = bridge.send("POST", "/api/chat", &[JSON, BOB], other).await;
    assert_eq!(answer.status, 200);
    let foreign = bridge.send("GET", "/api/budget?user=alice", &[BOB], "");
    assert_eq!(foreign.await.status, 403);

    let metrics = String::from_utf8(bridge.send("GET", "/metrics", &[ALICE], "").await.body);
    let metrics = metrics.unwrap();
    assert!(metrics.contains("adk_bridge_budget_refused_total{limit=\"tokens\"} 2\n"));
    assert!(metrics.contains("adk_bridge_uncounted_replies_total{agent=\"demo\"} 0\n"));
}

/// A day later, as far as the store is concerned.
#[tokio::test]
async fn another_day_is_another_budget() {
    let mut bridge = Bridge::configured(SMALL);
    assert_eq!(
        bridge
            .post("/api/chat", &asking("c", "say hi"))
            .await
            .status,
        200
    );
    assert_eq!(
        bridge
            .post("/api/chat", &asking("c", "say hi"))
            .await
            .status,
        429
    );
    bridge.kill();
    let database = bridge.directory.path().join("data/adk-bridge.db");
    let url = format!("sqlite://{}", database.display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let aged = sqlx::query("UPDATE usage SET day = day - 1");
    aged.execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    bridge.kill_and_restart();
    assert_eq!(
        bridge
            .post("/api/chat", &asking("c", "say hi"))
            .await
            .status,
        200
    );
    assert_eq!(
        bridge
            .post("/api/chat", &asking("c", "say hi"))
            .await
            .status,
        429
    );
    // Both days are the user's, until the user is erased or they are too old.
    let export = String::from_utf8(bridge.get("/api/export").await.body).unwrap();
    let lines = export
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let days: Vec<Value> = lines
        .filter(|line: &Value| line["type"] == "usage")
        .collect();
    assert_eq!(days.len(), 2, "{export}");
    assert!(
        days[0]["day"].as_str() < days[1]["day"].as_str(),
        "{export}"
    );
    assert_eq!(days[0]["agent"], "demo");
    let end: Value = serde_json::from_str(export.lines().last().unwrap()).unwrap();
    assert_eq!(end["usageRows"], 2);
}

/// A decision counts, its tool runs, and the reply comes to its end, whatever it uses.
#[tokio::test]
async fn what_has_begun_goes_on() {
    let bridge = budget(SMALL);
    let asked = ask(&bridge, "c", PAYMENT).await;
    assert_eq!(asked.status, 200);
    let refused = ask(&bridge, "c", "say something else").await;
    assert_eq!(refused.code(), "budget_exceeded");
    // The question was not withdrawn for it.
    let stored = bridge
        .send("GET", "/api/chats/c", &[ALICE], "")
        .await
        .json();
    let mut question = stored["messages"][1].clone();
    let parts = question["parts"].as_array_mut().unwrap();
    let part = parts
        .iter_mut()
        .find(|part| part["state"] == "approval-requested")
        .unwrap();
    part["state"] = json!("approval-responded");
    part["approval"]["approved"] = json!(true);
    let body = json!({"id": "c", "messages": [question]}).to_string();
    let before = state(&bridge, &[ALICE]).await["used"]["tokens"].as_u64();
    let answer = bridge.send("POST", "/api/chat", &[JSON, ALICE], body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let said = message(&answer);
    assert!(said.contains("tool-output-available"), "{said}");
    assert!(said.contains("\"finish\""), "{said}");
    let after = state(&bridge, &[ALICE]).await["used"]["tokens"].as_u64();
    assert!(after > before, "{after:?}");
}

/// What a model has reported counts, also if its answer is stopped.
#[tokio::test]
async fn a_turn_that_is_stopped_counts() {
    let bridge = Bridge::with(SMALL, |command| {
        command.env("ADK_BRIDGE__DEMO__PACE", "5ms");
    });
    let mut running = bridge.ask("c", "slow 100000").await;
    running.events_until("text-delta").await;
    assert_eq!(state(&bridge, &[]).await["used"]["tokens"], 0);
    assert_eq!(
        bridge
            .send("POST", "/api/chat/c/stop", &[], "")
            .await
            .status,
        204
    );
    running.events().await;
    let used = state(&bridge, &[]).await;
    assert!(used["used"]["inputTokens"].as_u64() > Some(0), "{used}");
    assert_eq!(
        bridge
            .post("/api/chat", &asking("c", "say hi"))
            .await
            .status,
        429
    );
}

const AGENTS: &str = "
[[agents]]
id = \"dear\"
[[agents]]
id = \"cheap\"
[budget]
currency = \"EUR\"
price = { input = 1, output = 1 }
cost_per_day = 1000
[[budget.agents]]
id = \"dear\"
cost_per_day = 0.001
price = { input = 1000, output = 2000 }
";

#[tokio::test]
async fn each_agent_has_its_price_and_its_limit() {
    let bridge = Bridge::configured(AGENTS);
    let ask = async |agent: &str| {
        let path = format!("/api/agents/{agent}/chat");
        bridge.post(&path, &asking(agent, "say hi")).await
    };
    assert_eq!(ask("dear").await.status, 200);
    let refused = ask("dear").await;
    let said = message(&refused);
    assert!(
        said.contains("your budget for the agent \"dear\""),
        "{said}"
    );
    assert!(
        said.contains(" of 0.001 EUR (budget.agents.cost_per_day)"),
        "{said}"
    );
    assert_eq!(ask("cheap").await.status, 200);

    let found = state(&bridge, &[]).await;
    let [cheap, dear] = found["agents"].as_array().unwrap().as_slice() else {
        panic!("{found}");
    };
    assert_eq!(
        (&cheap["agent"], &dear["agent"]),
        (&json!("cheap"), &json!("dear"))
    );
    let cost = |of: &Value| of["cost"].as_f64().unwrap();
    let count = |of: &Value, name: &str| of[name].as_f64().unwrap();
    let expected = count(dear, "inputTokens") * 0.001 + count(dear, "outputTokens") * 0.002;
    assert!((cost(dear) - expected).abs() < 1e-9, "{found}");
    assert!(cost(cheap) > 0.0 && cost(cheap) < cost(dear), "{found}");
    // One agent that is used up does not end the others.
    assert_eq!(found["isUsedUp"], false);
    let limits = found["limits"].as_array().unwrap();
    assert_eq!(limits.len(), 2);
    assert_eq!(
        (&limits[1]["agent"], &limits[1]["left"]),
        (&json!("dear"), &json!(0.0))
    );
    let metrics = String::from_utf8(bridge.get("/metrics").await.body).unwrap();
    assert!(metrics.contains("adk_bridge_budget_refused_total{limit=\"cost\"} 1\n"));
    assert!(metrics.contains("adk_bridge_spent_cost_total{agent=\"dear\"} 0."));
}

/// Limits come and go while the bridge runs, and what was counted stays.
#[tokio::test]
async fn a_reload_takes_another_budget() {
    let bridge = Bridge::configured("");
    assert_eq!(
        bridge
            .post("/api/chat", &asking("c", "say hi"))
            .await
            .status,
        200
    );
    let without = state(&bridge, &[]).await;
    assert_eq!(
        (&without["counted"], &without["used"]["tokens"]),
        (&json!(false), &json!(0))
    );
    let reload = async |toml: &str, limit: Option<f64>| {
        std::fs::write(bridge.directory.path().join("test.toml"), toml).unwrap();
        bridge.signal("-HUP");
        within(async {
            while state(&bridge, &[]).await["limits"][0]["limit"].as_f64() != limit {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    };
    reload(SMALL, Some(1.0)).await;
    // What came before was not counted.
    assert_eq!(
        bridge
            .post("/api/chat", &asking("c", "say hi"))
            .await
            .status,
        200
    );
    assert_eq!(
        bridge
            .post("/api/chat", &asking("c", "say hi"))
            .await
            .status,
        429
    );
    reload("[budget]\ntokens_per_day = 1000000\n", Some(1e6)).await;
    assert_eq!(
        bridge
            .post("/api/chat", &asking("c", "say hi"))
            .await
            .status,
        200
    );
    reload("", None).await;
    assert_eq!(
        bridge
            .post("/api/chat", &asking("c", "say hi"))
            .await
            .status,
        200
    );
    reload(SMALL, Some(1.0)).await;
    assert_eq!(
        bridge
            .post("/api/chat", &asking("c", "say hi"))
            .await
            .status,
        429
    );
}

#[tokio::test]
async fn an_administrator_sees_and_erases_what_others_have_used() {
    let admin = "[[auth.api_keys]]\nkey = \"admin-secret-0123456789\"\nuser = \"admin\"\nroles = [\"admin\"]\n";
    let bridge = budget(&format!("{admin}{SMALL}"));
    let as_admin = [("authorization", "Bearer admin-secret-0123456789")];
    let own = state(&bridge, &as_admin).await;
    assert_eq!(own["user"], "admin");
    assert_eq!(ask(&bridge, "c", "say hi").await.status, 200);
    let hers = bridge.send("GET", "/api/budget?user=alice", &as_admin, "");
    let hers = hers.await.json();
    assert_eq!(
        (&hers["user"], &hers["isUsedUp"]),
        (&json!("alice"), &json!(true))
    );
    let erased = bridge.send("DELETE", "/api/users/alice", &as_admin, "");
    assert_eq!(erased.await.json()["usageRows"], 1);
    assert_eq!(state(&bridge, &[ALICE]).await["used"]["tokens"], 0);
    assert_eq!(ask(&bridge, "c", "say hi").await.status, 200);
}

/// Two messages of two chats at the same moment: both begin, and nothing after them.
#[tokio::test]
async fn turns_that_run_end_whatever_they_use() {
    let bridge = Bridge::with(SMALL, |command| {
        command.env("ADK_BRIDGE__DEMO__PACE", "20ms");
    });
    let mut one = bridge.ask("one", "long 50").await;
    let mut two = bridge.ask("two", "long 50").await;
    assert_eq!((one.status, two.status), (200, 200));
    for answer in [&mut one, &mut two] {
        let events = answer.events().await;
        assert!(text_of(&folded(&events)).ends_with("word50."));
    }
    assert_eq!(bridge.ask("three", "long 50").await.status, 429);
    let used = state(&bridge, &[]).await["used"]["outputTokens"].as_u64();
    assert!(used >= Some(100), "{used:?}");
}

/// An agent that does not say what it uses is named, once in the log and with each of its answers in the metrics.
#[tokio::test]
async fn an_agent_that_reports_nothing_is_named() {
    let server = StandIn::start(well).await;
    let bridge = Bridge::configured(&format!("{SMALL}{}id = \"silent\"\n", server.toml()));
    for _ in 0..2 {
        assert_eq!(
            bridge.post("/api/chat", &asking("c", "hi")).await.status,
            200
        );
    }
    let log = bridge.log();
    let said = "the agent silent does not report how many tokens it uses";
    assert_eq!(log.matches(said).count(), 1, "{log}");
    let metrics = String::from_utf8(bridge.get("/metrics").await.body).unwrap();
    assert!(metrics.contains("adk_bridge_uncounted_replies_total{agent=\"silent\"} 2\n"));
}
