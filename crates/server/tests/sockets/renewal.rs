//! Upstreams that end, in every way and at every moment: the client's socket stays, and so does the conversation.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::client::Client;
use crate::support::Bridge;
use crate::voice::{Turn, answer, audit, speak, turn};

/// How a connection to the model ends, in the words that make it so.
const ENDINGS: [&str; 5] = [
    "go away 1s",
    "drop after 300ms once",
    "close 1011 after 300ms once",
    "close 1007 after 300ms once",
    "drop after 1ms once",
];

fn started(turns: &[&Turn]) -> usize {
    let outputs = turns.iter().map(|it| it.of("tool-output-available").len());
    outputs.sum()
}

/// The connection ends while a human is asked; the answer comes when it is gone.
#[tokio::test]
async fn an_upstream_ends_while_an_approval_waits() {
    let bridge = Bridge::start();
    for (number, ending) in ENDINGS.iter().enumerate() {
        let chat = format!("waits-{number}");
        let mut client = Client::open(&bridge, &format!("/live?chat={chat}")).await;
        speak(&mut client, "say hello").await;
        assert_eq!(turn(&mut client).await.text(), "hello");
        let recipient = format!("r{number}");
        client
            .say(&format!(
                "{ending} then call process_payment {{\"amount\": 5, \"recipient\": \"{recipient}\"}}"
            ))
            .await;
        let asks = turn(&mut client).await;
        let question = asks.of("tool-approval-request")[0].clone();
        gone(&bridge, &chat).await;
        answer(&mut client, &question, true).await;
        let paid = turn(&mut client).await;
        assert_eq!(started(&[&paid]), 1, "{ending}: {:?}", paid.chunks);
        assert!(
            paid.text().contains(&recipient),
            "{ending}: {}",
            paid.text()
        );
        assert!(!paid.pcm.is_empty(), "{ending}");
        assert_eq!(paid.last(), "finish");
        let rows = audit(&bridge, &chat).await;
        let runs = rows.iter().filter(|kind| *kind == "tool.started").count();
        assert_eq!(runs, 1, "{ending}");
        speak(&mut client, "say still here").await;
        assert_eq!(turn(&mut client).await.text(), "still here", "{ending}");
    }
}

/// Waits until the log tells that the connection has ended.
async fn gone(bridge: &Bridge, chat: &str) {
    let told = format!("the live connection of chat {chat} ended");
    let renewed = format!("the live connection of chat {chat} is renewed");
    crate::support::within(async {
        loop {
            let log = bridge.log();
            if log.contains(&told) || log.contains(&renewed) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_upstream_ends_before_and_after_a_call() {
    let bridge = Bridge::start();
    let call = "call roll_dice {\"count\": 2}";
    for (number, how) in ["drop once", "close 1011 once", "close 1007 once"]
        .iter()
        .enumerate()
    {
        for (place, words) in [
            ("before", format!("{how} then {call}")),
            (
                "after",
                format!("{call} then {how} then say rolled {number}"),
            ),
        ] {
            let chat = format!("{place}-{number}");
            let mut client = Client::open(&bridge, &format!("/live?chat={chat}")).await;
            speak(&mut client, "say hello").await;
            assert_eq!(turn(&mut client).await.text(), "hello");
            client.say(&words).await;
            let rolled = turn(&mut client).await;
            assert_eq!(started(&[&rolled]), 1, "{words}: {:?}", rolled.chunks);
            assert_eq!(rolled.last(), "finish", "{words}: {:?}", rolled.chunks);
            assert!(rolled.text().to_lowercase().contains("rolled"), "{words}");
            speak(&mut client, "say and on").await;
            assert_eq!(turn(&mut client).await.text(), "and on", "{words}");
        }
    }
}

/// What breaks in the middle of a sentence stays as it is, and the turn ends once.
#[tokio::test]
async fn an_upstream_ends_in_the_middle_of_a_sentence() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=middle").await;
    speak(&mut client, "say half a sentence then cut").await;
    let half = turn(&mut client).await;
    assert_eq!(half.text(), "half a sentence");
    assert_eq!(half.last(), "finish");
    let stored = bridge.last_message("middle").await;
    assert_eq!(stored["metadata"]["ended"], "interrupted");
    speak(&mut client, "say the rest").await;
    assert_eq!(turn(&mut client).await.text(), "the rest");
}

/// A model that never stays is given up, with one error.
#[tokio::test]
async fn an_upstream_that_never_stays_is_given_up() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=never").await;
    speak(&mut client, "say hello").await;
    assert_eq!(turn(&mut client).await.text(), "hello");
    client.say("close 1011").await;
    let failed = turn(&mut client).await;
    assert_eq!(failed.last(), "error");
    client.say("say well again").await;
    assert_eq!(turn(&mut client).await.text(), "well again");
}

/// A scripted Gemini in a process of its own.
struct Model {
    child: Child,
    url: String,
}

impl Model {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_adk-bridge"))
            .args(["fake-gemini", "--pace", "0ms"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap()
            .to_owned();
        Self { child, url }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The limit of ten minutes, shortened: the conversation outlives several connections.
#[tokio::test]
async fn a_conversation_outlives_its_connections() {
    let model = Model::start(&["--live-limit", "2s"]);
    let toml = format!("[agent]\nkind = \"gemini\"\nbase_url = {:?}\n", model.url);
    let bridge = Bridge::with(&toml, |command| {
        command.env("GEMINI_API_KEY", "key");
    });
    let mut client = Client::open(&bridge, "/live?chat=long").await;
    for number in 0..4 {
        speak(&mut client, &format!("say number {number}")).await;
        assert_eq!(turn(&mut client).await.text(), format!("number {number}"));
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    }
    client.check_alive().await;
    client
        .say("call process_payment {\"amount\": 1, \"recipient\": \"Ken\"}")
        .await;
    let question = turn(&mut client).await.of("tool-approval-request")[0].clone();
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    answer(&mut client, &question, true).await;
    let paid = turn(&mut client).await;
    assert!(paid.text().contains("Ken"), "{}", paid.text());
}

/// The bridge is killed in the middle of a spoken conversation, with a question open.
#[tokio::test]
async fn a_restart_in_the_middle() {
    let mut bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=killed").await;
    speak(&mut client, "say hello").await;
    turn(&mut client).await;
    speak(&mut client, "pay Hanako 50 dollars").await;
    let question = turn(&mut client).await.of("tool-approval-request")[0].clone();
    bridge.kill_and_restart();
    let mut client = Client::open(&bridge, "/live?chat=killed").await;
    let missed = client.chunks().await;
    assert!(
        missed
            .iter()
            .any(|it| it["type"] == "tool-approval-request")
    );
    client
        .send(json!({"type": "modality", "modality": "audio"}))
        .await;
    answer(&mut client, &question, true).await;
    let paid = turn(&mut client).await;
    assert!(
        paid.text().contains("Paid 50 USD to Hanako."),
        "{}",
        paid.text()
    );
    speak(&mut client, "say still here").await;
    assert_eq!(turn(&mut client).await.text(), "still here");
}
