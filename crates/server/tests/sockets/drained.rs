//! A spoken conversation whose replica stops: it goes on at another one, which knows all of it.

use adk_bridge_testkit::fleet::{Fleet, name_of};
use adk_bridge_testkit::within;
use serde_json::json;

use crate::client::Client;
use crate::relay::{Model, Relay};
use crate::voice::{answer, sound, speak, speak_like_people, turn};

const CHAT: &str = "/live?chat=c";
/// Takes longer to say than a replica that is asked to stop goes on as before.
const LONG: &str = "say that this sentence takes longer than a replica waits for balancers";

#[tokio::test]
async fn who_speaks_while_a_replica_stops_is_understood_and_goes_on_elsewhere() {
    let model = Model::start(&[]);
    let relay = Relay::to(&model).await;
    let toml = format!(
        "[agent]\nkind = \"gemini\"\nbase_url = {:?}\ntools = [\"process_payment\"]\n[server]\ndrain = \"60s\"\n",
        relay.url
    );
    let fleet = Fleet::start_with(2, &toml, |_, command| {
        command.env("GEMINI_API_KEY", "key");
    });
    let mut client = Client::open(fleet.at(0), CHAT).await;
    speak(&mut client, "say good morning to you").await;
    assert_eq!(turn(&mut client).await.text(), "good morning to you");
    speak(&mut client, "pay Hanako 50 dollars").await;
    let asked = turn(&mut client).await;
    let question = asked.of("tool-approval-request")[0].clone();

    fleet.stop(0);
    speak_like_people(&mut client, LONG).await;
    let last = turn(&mut client).await;
    assert_eq!(last.heard(), LONG);
    let control = within(client.control()).await;
    assert_eq!(control["type"], "reconnect", "{control}");
    assert_eq!(client.closed().await.0, 1001);

    let mut client = Client::open(fleet.at(1), CHAT).await;
    // What it may have missed with the other one.
    let shown = client.chunks().await;
    assert_eq!(shown.last().unwrap()["type"], "finish", "{shown:?}");
    speak(&mut client, "say still here").await;
    let here = turn(&mut client).await;
    assert!(here.pcm == sound("still here"));
    let written = relay.written();
    assert_eq!(written.len(), 2, "one connection of each replica");
    for said in ["say good morning to you", "pay Hanako 50 dollars", LONG] {
        assert!(written[1].contains(said), "{}", written[1]);
    }
    answer(&mut client, &question, true).await;
    let paid = turn(&mut client).await;
    assert!(paid.text().contains("Paid 50 USD to Hanako."), "{paid:?}");
    let audit = fleet.at(1).get("/api/audit?chat=c").await.json();
    let started: Vec<_> = (audit.as_array().unwrap().iter())
        .filter(|row| row["kind"] == "tool.started")
        .collect();
    assert_eq!(started.len(), 1);
    assert_eq!(started[0]["replica"], json!(name_of(1)));
}
