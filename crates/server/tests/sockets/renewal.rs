//! Conversations that outlive what they are held over: sentences that break off, connections that never stay, restarts.

use serde_json::json;

use crate::client::Client;
use crate::relay::Model;
use crate::support::Bridge;
use crate::voice::{answer, speak, turn};

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

/// The limit of ten minutes, shortened: the conversation outlives several connections.
#[tokio::test]
async fn a_conversation_outlives_its_connections() {
    let model = Model::start(&["--live-limit", "2s"]);
    let toml = format!(
        "[agent]\nkind = \"gemini\"\nbase_url = {:?}\ntools = [\"process_payment\"]\n",
        model.url()
    );
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
