//! Connections to the model that end in every way at every moment of a call: the client's socket stays, the conversation
//! is known to the next connection, the call runs once, and each turn ends once.

use std::time::Duration;

use serde_json::json;

use crate::client::Client;
use crate::relay::{How, Model, Relay};
use crate::support::{Bridge, within};
use crate::voice::{Turn, answer, audit, speak, turn};

const HOW: [How; 5] = [
    How::Warned,
    How::Limit,
    How::Dropped,
    How::Closed(1011),
    How::Closed(1007),
];

/// Said at the beginning, so that it shows whether the conversation is kept.
const FIRST: &str = "say we began so";

/// The words of a payment, which needs an approval and takes a while.
const PAY: &str = "call process_payment {\"amount\": 5, \"recipient\": \"Ken\"}";
/// The words of a call that runs at once.
const ROLL: &str = "call roll_dice {\"count\": 2}";

#[tokio::test]
async fn before_a_call() {
    for how in HOW {
        let mut rig = Rig::start(how).await;
        rig.relay.end_at("roll_dice", how);
        rig.client.say(ROLL).await;
        let rolled = turn(&mut rig.client).await;
        assert!(rolled.text().contains("rolled"), "{how:?}: {rolled:?}");
        rig.check(&[rolled]).await;
    }
}

#[tokio::test]
async fn while_a_tool_runs() {
    for how in HOW {
        // A payment takes some hundred milliseconds; on a busy machine it may be over before its end is noticed.
        let mut hit = false;
        for _ in 0..20 {
            let mut rig = Rig::start(how).await;
            rig.client.say(PAY).await;
            let asks = turn(&mut rig.client).await;
            answer(&mut rig.client, asks.of("tool-approval-request")[0], true).await;
            rig.until_audited("tool.started").await;
            rig.relay.end(how);
            within(async {
                while !rig.relay.is_done() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
            .await;
            hit = !audit(&rig.bridge, "c")
                .await
                .contains(&"tool.finished".into());
            let paid = turn(&mut rig.client).await;
            assert!(paid.text().contains("Ken"), "{how:?}: {paid:?}");
            rig.check(&[asks, paid]).await;
            if hit {
                break;
            }
        }
        assert!(hit, "{how:?}: never in time");
    }
}

#[tokio::test]
async fn after_a_call() {
    for how in HOW {
        let mut rig = Rig::start(how).await;
        rig.relay.end_at("toolResponse", how);
        rig.client.say(ROLL).await;
        let rolled = turn(&mut rig.client).await;
        assert!(rolled.text().contains("rolled"), "{how:?}: {rolled:?}");
        rig.check(&[rolled]).await;
    }
}

#[tokio::test]
async fn while_an_approval_waits() {
    for how in HOW {
        let mut rig = Rig::start(how).await;
        rig.client.say(PAY).await;
        let asks = turn(&mut rig.client).await;
        rig.relay.end(how);
        if how != How::Warned {
            rig.until_renewed().await;
        }
        rig.client.check_alive().await;
        answer(&mut rig.client, asks.of("tool-approval-request")[0], true).await;
        let paid = turn(&mut rig.client).await;
        assert!(paid.text().contains("Ken"), "{how:?}: {paid:?}");
        rig.check(&[asks, paid]).await;
    }
}

/// The connection to the model is the chat's: it outlives the client's socket, and so does what is being said.
#[tokio::test]
async fn the_clients_socket_ends_and_the_models_stays() {
    let mut rig = Rig::start(How::Dropped).await;
    rig.client.say("slow 5 then say all of it").await;
    loop {
        let frame = rig.client.message().await;
        if String::from_utf8_lossy(&frame.payload).contains("word1") {
            break;
        }
    }
    rig.client = Client::open(&rig.bridge, "/live?chat=c").await;
    let whole = turn(&mut rig.client).await;
    assert!(whole.text().starts_with("word1 word2 "), "{}", whole.text());
    assert!(whole.text().ends_with("all of it"), "{}", whole.text());
    speak(&mut rig.client, "say the same").await;
    assert_eq!(turn(&mut rig.client).await.text(), "the same");
    assert_eq!(rig.relay.written().len(), 1);
}

struct Rig {
    how: How,
    _model: Model,
    relay: Relay,
    bridge: Bridge,
    client: Client,
}

impl Rig {
    /// A conversation that has begun.
    async fn start(how: How) -> Self {
        let model = Model::start(&[]);
        let relay = Relay::to(&model).await;
        let toml = format!(
            "[agent]\nkind = \"gemini\"\nbase_url = {:?}\ntools = [\"process_payment\", \"roll_dice\"]\n",
            relay.url
        );
        let bridge = Bridge::with(&toml, |command| {
            command.env("GEMINI_API_KEY", "key");
        });
        let mut client = Client::open(&bridge, "/live?chat=c").await;
        client
            .send(json!({"type": "modality", "modality": "audio"}))
            .await;
        client.say(FIRST).await;
        assert_eq!(turn(&mut client).await.text(), "we began so");
        Self {
            how,
            _model: model,
            relay,
            bridge,
            client,
        }
    }

    async fn until_audited(&self, kind: &str) {
        within(async {
            while !audit(&self.bridge, "c").await.iter().any(|it| it == kind) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Another connection is open, and what it was sent has reached the model.
    async fn until_renewed(&self) {
        within(async {
            while self.relay.written().len() < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    /// Holds after every case.
    async fn check(&mut self, turns: &[Turn]) {
        let how = self.how;
        for turn in turns {
            let ends = ["finish", "error", "abort"].map(|kind| turn.of(kind).len());
            assert_eq!(ends, [1, 0, 0], "{how:?}: {:?}", turn.chunks);
        }
        let outputs = turns.iter().map(|it| it.of("tool-output-available").len());
        assert_eq!(outputs.sum::<usize>(), 1, "{how:?}");
        let rows = audit(&self.bridge, "c").await;
        let runs = rows.iter().filter(|kind| *kind == "tool.started").count();
        assert_eq!(runs, 1, "{how:?}: {rows:?}");
        self.until_renewed().await;
        speak(&mut self.client, "say still here").await;
        let next = turn(&mut self.client).await;
        assert_eq!(next.text(), "still here", "{how:?}");
        assert!(!next.pcm.is_empty(), "{how:?}");
        // The connection that answered was sent the beginning, or resumed a session that knew it.
        let written = self.relay.written();
        let last = written.last().unwrap();
        let knows = last.contains(FIRST) || last.contains("\"handle\":\"scripted-session");
        assert!(knows, "{how:?}: {last}");
    }
}
