//! `kill -9` at any moment of an approved payment: nothing is paid twice, nothing that was promised is lost.
//!
//! The binary under test has failpoints: the package is among its own dev-dependencies with the feature `failpoints`, so
//! `cargo test` builds it with them, from the same dependencies and in the same target directory, and `cargo build` does
//! without. No second build is needed, and no test starts cargo to get one.

#![cfg(feature = "demo")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "crash/random.rs"]
mod random;
#[path = "crash/rig.rs"]
mod rig;

use std::path::Path;
use std::process::Command;

use adk_bridge::store::sqlite::DATABASE;
use rig::{Client, Server, answered, check_audit, count, is_pending, pay, text, tools};
use serde_json::Value;
use sqlx::{Connection as _, SqliteConnection};

const FAILPOINT: &str = "ADK_BRIDGE_FAILPOINT";
const CHAT: &str = "chat-1";

/// What a crash may leave of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Nobody was promised anything: the user sends the message again.
    Nothing,
    /// The question waits, and can be answered.
    Question,
    /// The payment is made, once, and the reply comes to its end.
    Payment,
    /// It was started and is not started again. Only the test knows whether it was made.
    Unknown { made: bool },
}

const POINTS: &[(&str, Left)] = &[
    ("before-asking", Left::Nothing),
    ("after-asking", Left::Question),
    ("before-model", Left::Question),
    ("in-model", Left::Question),
    ("before-question", Left::Question),
    ("after-question", Left::Question),
    ("before-pause", Left::Question),
    ("after-pause", Left::Question),
    ("after-frames", Left::Question),
    ("before-decision", Left::Question),
    ("after-decision", Left::Payment),
    ("before-start", Left::Payment),
    ("after-start", Left::Unknown { made: false }),
    ("before-tool", Left::Unknown { made: false }),
    ("in-tool", Left::Unknown { made: true }),
    ("after-tool", Left::Unknown { made: true }),
    ("before-outcome", Left::Unknown { made: true }),
    ("after-outcome", Left::Payment),
    ("before-asking:2", Left::Payment),
    ("after-asking:2", Left::Payment),
    ("before-model:2", Left::Payment),
    // The first model call brings fewer pieces than that.
    ("in-model:5", Left::Payment),
    ("before-end", Left::Payment),
    ("after-end", Left::Payment),
    ("after-frames:2", Left::Payment),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_durable_step_of_a_payment() {
    let mut failed = Vec::new();
    // A few at a time: they mostly wait for the tool.
    for some in POINTS.chunks(3) {
        let runs: Vec<_> = some
            .iter()
            .map(|&(point, left)| (point, tokio::spawn(die_at(point, left))))
            .collect();
        for (point, run) in runs {
            if run.await.is_err() {
                failed.push(point);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_that_dies_leaves_nothing_in_the_way_of_the_next() {
    for point in [
        "before-migration",
        "after-migration",
        "before-database",
        "after-database",
    ] {
        let data = tempfile::tempdir().unwrap();
        assert!(
            Server::try_start(data.path(), &[(FAILPOINT, point)]).is_none(),
            "{point} is not reached"
        );
        let server = Server::start(data.path(), &[]);
        assert_eq!(server.client().balance(CHAT).await, 1000, "{point}");
        let names = std::fs::read_dir(data.path()).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(!names.any(|name| name.contains("-new")), "{point}");
    }
}

async fn die_at(point: &'static str, left: Left) {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[(FAILPOINT, point)]);
    ask_and_approve(&server.client()).await;
    server.wait_for_death().await;

    let server = Server::start(data.path(), &[]);
    let client = server.client();
    client.settle(CHAT).await;
    let messages = client.messages(CHAT).await;
    let reply = messages.get(1);
    let made = match left {
        Left::Nothing => {
            assert_eq!(reply, None, "{point}");
            client.say(CHAT, "u1", &pay(10)).await;
            approve(&client, point).await;
            true
        }
        Left::Question => {
            approve(&client, point).await;
            true
        }
        Left::Payment => {
            check_paid(reply.unwrap(), point);
            true
        }
        Left::Unknown { made } => {
            let tool = tools(reply.unwrap()).pop().unwrap();
            assert_eq!(tool["state"], "output-error", "{point}: {tool}");
            let error = tool["errorText"].as_str().unwrap();
            assert!(error.contains("outcome is unknown"), "{point}: {error}");
            check_ended(reply.unwrap(), point);
            made
        }
    };
    repeat(&client, point).await;
    let audit = client.audit(CHAT).await;
    check_audit(&audit);
    let unknown = matches!(left, Left::Unknown { .. });
    for (kind, expected) in [
        ("approval.requested", 1),
        ("approval.approved", 1),
        ("tool.started", 1),
        ("tool.finished", usize::from(!unknown)),
        ("tool.outcome_unknown", usize::from(unknown)),
    ] {
        assert_eq!(count(&audit, kind), expected, "{point}: {kind}: {audit:#?}");
    }
    let balance = if made { 990 } else { 1000 };
    assert_eq!(client.balance(CHAT).await, balance, "{point}");
}

/// One of two payments is approved, and the user writes on in the same request: the states of both after the next start,
/// and what is in the wallet.
const POINTS_OF_WRITING_ON: &[(&str, [&str; 2], i64)] = &[
    (
        "before-decision",
        ["approval-requested", "approval-requested"],
        1000,
    ),
    (
        "after-decision",
        ["output-available", "approval-requested"],
        990,
    ),
    (
        "before-start",
        ["output-available", "approval-requested"],
        990,
    ),
    ("after-start", ["output-error", "approval-requested"], 1000),
    ("before-end", ["output-error", "approval-requested"], 1000),
    ("after-outcome", ["output-available", "output-error"], 990),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_durable_step_of_a_decision_that_comes_with_a_newer_message() {
    for &(point, states, balance) in POINTS_OF_WRITING_ON {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), &[(FAILPOINT, point)]);
        let client = server.client();
        client
            .say(CHAT, "u1", &format!("{} && {}", pay(10), pay(20)))
            .await;
        let mut messages = client.messages(CHAT).await;
        let parts = messages[1]["parts"].as_array_mut().unwrap();
        let first = parts.iter_mut().find(|part| is_pending(part)).unwrap();
        first["state"] = "approval-responded".into();
        first["approval"]["approved"] = true.into();
        messages.push(rig::user("u2", "say go on"));
        client.post_all(CHAT, &messages, async || {}).await;
        server.wait_for_death().await;

        let server = Server::start(data.path(), &[]);
        let client = server.client();
        client.settle(CHAT).await;
        let found: Vec<_> = tools(&client.messages(CHAT).await[1])
            .iter()
            .map(|tool| tool["state"].clone())
            .collect();
        assert_eq!(found, states, "{point}");

        // The client sends again what it has no answer to. What was not decided before is decided now.
        let stream = client.post_all(CHAT, &messages, async || {}).await;
        assert!(stream.done, "{point}: {stream:?}");
        let balance = if point == "before-decision" {
            990
        } else {
            balance
        };
        let audit = client.audit(CHAT).await;
        check_audit(&audit);
        for (kind, expected) in [
            ("approval.approved", 1),
            ("approval.superseded", 1),
            ("tool.started", 1),
        ] {
            assert_eq!(count(&audit, kind), expected, "{point}: {kind}: {audit:#?}");
        }
        assert_eq!(client.balance(CHAT).await, balance, "{point}");
    }
}

/// Moments of a payment, and whether a crash there loses the usage of the last model call. Nothing is ever counted twice.
const POINTS_OF_COUNTING: &[(&str, bool)] = &[
    ("after-question", false),
    ("after-usage", false),
    ("after-outcome", false),
    ("before-model:2", false),
    ("before-end", false),
    ("after-end", true),
    ("after-usage:2", false),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_counted_once_whatever_a_crash_interrupts() {
    const COUNTED: (&str, &str) = ("ADK_BRIDGE__BUDGET__COUNT", "true");
    for &(point, loses) in POINTS_OF_COUNTING {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), &[COUNTED, (FAILPOINT, point)]);
        ask_and_approve(&server.client()).await;
        server.wait_for_death().await;

        let server = Server::start(data.path(), &[COUNTED]);
        let client = server.client();
        client.settle(CHAT).await;
        if client.waiting(CHAT).await > 0 {
            approve(&client, point).await;
        }
        let reply = client.messages(CHAT).await.pop().unwrap();
        check_paid(&reply, point);
        let usage = &reply["metadata"]["usage"];
        let (_, budget) = client.get("/api/budget").await;
        for name in ["inputTokens", "outputTokens"] {
            let all = usage[name].as_u64().unwrap();
            let counted = budget["used"][name].as_u64().unwrap();
            assert!(counted > 0, "{point}: {budget}");
            let is_right = if loses { counted < all } else { counted == all };
            assert!(is_right, "{point}: {counted} of {all} {name}");
        }
    }
}

/// Goes as far as the server lives.
async fn ask_and_approve(client: &Client) {
    let asked = client.say(CHAT, "u1", &pay(10)).await;
    let Some(question) = asked
        .chunks
        .iter()
        .find(|chunk| chunk["type"] == "tool-approval-request")
    else {
        return;
    };
    let id = &asked.chunks[0]["messageId"];
    let copy = serde_json::json!({"id": id, "role": "assistant", "parts": [
        {"type": "step-start"},
        {"type": "tool-process_payment", "toolCallId": question["toolCallId"],
         "state": "approval-responded", "input": {"amount": 10, "recipient": "a"},
         "approval": {"id": question["approvalId"], "approved": true}},
    ]});
    client.post(CHAT, copy).await;
}

/// Finds the question as a reloaded page does, and answers it.
async fn approve(client: &Client, point: &str) {
    assert_eq!(client.waiting(CHAT).await, 1, "{point}");
    let copy = client.messages(CHAT).await.pop().unwrap();
    assert!(tools(&copy).iter().any(is_pending), "{point}: {copy}");
    let stream = client.post(CHAT, answered(copy, true)).await;
    assert!(stream.done, "{point}: {stream:?}");
    assert_eq!(client.waiting(CHAT).await, 0, "{point}");
    check_paid(&client.messages(CHAT).await.pop().unwrap(), point);
}

fn check_paid(reply: &Value, point: &str) {
    let tools = tools(reply);
    assert_eq!(tools.len(), 1, "{point}: {reply}");
    assert_eq!(tools[0]["state"], "output-available", "{point}: {reply}");
    assert_eq!(tools[0]["output"]["balance"], 990, "{point}: {reply}");
    check_ended(reply, point);
}

/// The model had the last word, and nothing is marked as broken off.
fn check_ended(reply: &Value, point: &str) {
    assert!(!text(reply).is_empty(), "{point}: {reply}");
    assert_eq!(reply["metadata"]["ended"], Value::Null, "{point}: {reply}");
}

/// A client that posts its copy again and again learns what there is, and sets nothing going.
async fn repeat(client: &Client, point: &str) {
    let before = client.messages(CHAT).await;
    let copy = before.last().unwrap();
    for _ in 0..3 {
        let stream = client.post(CHAT, copy.clone()).await;
        assert!(stream.done, "{point}: {stream:?}");
        let steps = stream
            .chunks
            .iter()
            .filter(|chunk| chunk["type"] == "start-step");
        assert_eq!(steps.count(), 0, "{point}: {stream:?}");
    }
    assert_eq!(client.messages(CHAT).await, before, "{point}");
}

/// The first checkpoint stores the whole message, those that follow only what it has grown by.
#[tokio::test]
async fn a_partial_answer_is_kept_and_marked() {
    for (point, grown) in [("after-checkpoint", false), ("after-checkpoint:3", true)] {
        partial_answer(point, grown).await;
    }
}

async fn partial_answer(point: &str, grown: bool) {
    let data = tempfile::tempdir().unwrap();
    let slow = ("ADK_BRIDGE__DEMO__PACE", "20ms");
    let server = Server::start(data.path(), &[slow, (FAILPOINT, point)]);
    let seen = server.client().say(CHAT, "u1", "long 4000").await;
    assert!(!seen.done);
    server.wait_for_death().await;
    let whole = text(&stored_reply(data.path()).await);

    let server = Server::start(data.path(), &[]);
    let client = server.client();
    client.settle(CHAT).await;
    let messages = client.messages(CHAT).await;
    let kept = text(&messages[1]);
    assert!(kept.starts_with("word1 word2 "), "{kept:?}");
    assert!(kept.starts_with(&whole) && (kept.len() > whole.len()) == grown);
    assert_eq!(messages[1]["metadata"]["ended"], "interrupted");
    // Nothing of it is kept twice.
    assert_eq!(text(&stored_reply(data.path()).await), kept);
    assert!(client.say(CHAT, "u2", "say Hello.").await.done);
    assert_eq!(text(&client.messages(CHAT).await[3]), "Hello.");
}

/// The message of the reply as the database has it.
async fn stored_reply(data: &Path) -> Value {
    let url = format!("sqlite:{}", data.join(DATABASE).display());
    let mut database = SqliteConnection::connect(&url).await.unwrap();
    let body: String = sqlx::query_scalar("SELECT body FROM messages WHERE reply IS NOT NULL")
        .fetch_one(&mut database)
        .await
        .unwrap();
    database.close().await.unwrap();
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn a_model_call_that_is_lost_twice_is_not_asked_a_third_time() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[(FAILPOINT, "before-model")]);
    server.client().say(CHAT, "u1", "say Hello.").await;
    server.wait_for_death().await;
    if let Some(server) = Server::try_start(data.path(), &[(FAILPOINT, "before-model")]) {
        server.wait_for_death().await;
    }
    // Whoever asks the model a third time dies again.
    let server = Server::start(data.path(), &[(FAILPOINT, "before-model")]);
    let client = server.client();
    client.settle(CHAT).await;
    let reply = client.messages(CHAT).await.pop().unwrap();
    assert_eq!(reply["role"], "assistant");
    assert_eq!(reply["metadata"]["ended"], "interrupted", "{reply}");
}

#[tokio::test]
async fn an_approval_that_expires_while_nobody_is_there_is_settled_at_the_start() {
    let data = tempfile::tempdir().unwrap();
    let short = ("ADK_BRIDGE__APPROVAL__TIMEOUT", "1ms");
    let server = Server::start(data.path(), &[short, (FAILPOINT, "after-question")]);
    server.client().say(CHAT, "u1", &pay(10)).await;
    server.wait_for_death().await;

    let server = Server::start(data.path(), &[]);
    let client = server.client();
    client.settle(CHAT).await;
    let reply = client.messages(CHAT).await.pop().unwrap();
    assert_eq!(tools(&reply)[0]["state"], "output-error", "{reply}");
    check_ended(&reply, "expired");
    let audit = client.audit(CHAT).await;
    check_audit(&audit);
    assert_eq!(count(&audit, "approval.expired"), 1);
    assert_eq!(count(&audit, "tool.started"), 0);
    // An answer that comes too late gets an error of its own.
    let mut late = reply.clone();
    late["parts"][1]["approval"]["approved"] = true.into();
    assert!(client.post(CHAT, late).await.done);
    let refused = client.audit(CHAT).await.pop().unwrap();
    assert_eq!(refused["kind"], "answer.refused");
    assert!(
        refused["reason"].as_str().unwrap().contains("expired"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_message_that_waits_behind_a_tool_is_sent_again() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[(FAILPOINT, "in-tool")]);
    let client = server.client();
    client.say(CHAT, "u1", &pay(10)).await;
    let copy = answered(client.messages(CHAT).await.pop().unwrap(), true);
    let next = client.clone();
    client
        .post_then(CHAT, copy, async move || {
            let stream = next.say(CHAT, "u2", "say Hello.").await;
            assert!(!stream.done);
        })
        .await;
    server.wait_for_death().await;

    let server = Server::start(data.path(), &[]);
    let client = server.client();
    client.settle(CHAT).await;
    let reply = client.messages(CHAT).await.pop().unwrap();
    assert_eq!(reply["metadata"]["ended"], "superseded", "{reply}");
    let error = tools(&reply)[0]["errorText"].as_str().unwrap().to_owned();
    assert!(error.contains("outcome is unknown"), "{error}");
    assert!(client.say(CHAT, "u2", "say Hello.").await.done);
    assert_eq!(text(&client.messages(CHAT).await[3]), "Hello.");
    check_audit(&client.audit(CHAT).await);
    assert_eq!(client.balance(CHAT).await, 990);
}

#[tokio::test]
async fn an_approved_tool_that_is_gone_after_the_restart_fails() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[(FAILPOINT, "after-decision")]);
    ask_and_approve(&server.client()).await;
    server.wait_for_death().await;

    let server = Server::start(
        data.path(),
        &[("ADK_BRIDGE__AGENT__TOOLS", "[\"roll_dice\"]")],
    );
    let client = server.client();
    client.settle(CHAT).await;
    let reply = client.messages(CHAT).await.pop().unwrap();
    let error = tools(&reply)[0]["errorText"].as_str().unwrap().to_owned();
    assert!(error.contains("no tool named"), "{error}");
    check_ended(&reply, "gone");
    check_audit(&client.audit(CHAT).await);
}

#[tokio::test]
async fn a_chat_is_deleted_after_its_tool_has_ended() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let client = server.client();
    client.say(CHAT, "u1", &pay(10)).await;
    let copy = answered(client.messages(CHAT).await.pop().unwrap(), true);
    let other = client.clone();
    let stream = client
        .post_then(CHAT, copy, async move || {
            assert_eq!(other.delete(CHAT).await, 204);
        })
        .await;
    assert!(stream.done, "{stream:?}");
    assert_eq!(client.get(&format!("/api/chats/{CHAT}")).await.0, 404);
    let audit = client.audit(CHAT).await;
    assert_eq!(count(&audit, "tool.started"), 1);
    assert_eq!(count(&audit, "tool.finished"), 1, "{audit:#?}");
}

#[tokio::test]
async fn what_cannot_be_stored_is_not_sent_and_the_chat_continues() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let client = server.client();
    client.say(CHAT, "u1", &pay(10)).await;
    let copy = answered(client.messages(CHAT).await.pop().unwrap(), true);
    let path = data.path().to_owned();
    let stream = client
        .post_then(CHAT, copy.clone(), async move || {
            const FULL: &str = "CREATE TRIGGER full BEFORE UPDATE ON messages \
                                BEGIN SELECT RAISE(ABORT, 'full'); END";
            execute(&path, FULL).await;
        })
        .await;
    let last = stream.chunks.last().unwrap();
    assert_eq!(last["type"], "error", "{stream:?}");
    assert!(stream.done, "{stream:?}");
    let outputs = |chunk: &Value| chunk["type"] == "tool-output-available";
    assert!(!stream.chunks.iter().any(outputs), "{stream:?}");

    execute(data.path(), "DROP TRIGGER full").await;
    // Requests are refused until the payment has ended, and may be sent again.
    let again = async { while !client.post(CHAT, copy.clone()).await.done {} };
    tokio::time::timeout(adk_bridge_testkit::bridge::PATIENCE, again)
        .await
        .unwrap();
    client.settle(CHAT).await;
    let reply = client.messages(CHAT).await.pop().unwrap();
    let tool = tools(&reply).pop().unwrap();
    assert_eq!(tool["state"], "output-error", "{reply}");
    check_ended(&reply, "full");
    check_audit(&client.audit(CHAT).await);
    assert_eq!(client.balance(CHAT).await, 990);
}

async fn execute(data: &Path, statement: &'static str) {
    use sqlx::{Connection as _, Executor as _};
    let url = format!("sqlite:{}", data.join(DATABASE).display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    connection.execute(statement).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn many_open_replies_are_taken_up_at_once() {
    const CHATS: usize = 150;
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let client = server.client();
    let chats: Vec<String> = (0..CHATS).map(|number| format!("many-{number}")).collect();
    for chat in &chats {
        assert!(client.say(chat, "u1", &pay(10)).await.done);
    }
    server.kill();
    // Time passes: every question has expired when the server is there again.
    execute(
        data.path(),
        "UPDATE messages SET reply = json_replace(reply, '$.calls[0].approval.expiresAt', 1) WHERE open = 1",
    )
    .await;
    let server = Server::start(data.path(), &[]);
    let client = server.client();
    for chat in &chats {
        client.settle(chat).await;
        let reply = client.messages(chat).await.pop().unwrap();
        assert_eq!(reply["role"], "assistant");
        assert_eq!(tools(&reply)[0]["state"], "output-error", "{reply}");
        check_ended(&reply, chat);
    }
}

/// A normal build has no failpoints. The module is compiled on its own, with and without them, and the package is asked
/// what it is built with when nobody asks for more: both together are a normal build at a fraction of its cost.
#[test]
fn a_normal_build_ignores_the_variable() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let features = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--locked",
            "--edges",
            "no-dev",
            "--depth",
            "0",
        ])
        .args(["--format", "features: {f}", "--manifest-path"])
        .arg(package.join("Cargo.toml"))
        .output()
        .unwrap();
    let features = String::from_utf8(features.stdout).unwrap();
    assert!(features.starts_with("features:"), "{features}");
    assert!(!features.contains("failpoints"), "{features}");

    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("probe.rs");
    let module = package.join("src/failpoint.rs");
    let program = format!(
        "#[path = {module:?}] pub mod failpoint;\nfn main() {{ failpoint::failpoint(\"before\", \"start\"); }}"
    );
    std::fs::write(&source, program).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let survives = |with: &[&str], value: &str| {
        let probe = dir.path().join("probe");
        let built = Command::new(&rustc)
            .args(["--edition", "2024", "--crate-name", "probe", "-o"])
            .arg(&probe)
            .arg(&source)
            .args(with)
            .status()
            .unwrap();
        assert!(built.success());
        Command::new(probe)
            .env(FAILPOINT, value)
            .status()
            .unwrap()
            .success()
    };
    let with = ["--cfg", "feature=\"failpoints\""];
    assert!(!survives(&with, "before-start"));
    assert!(survives(&with, "before-start:2"));
    assert!(survives(&[], "before-start"));
}
