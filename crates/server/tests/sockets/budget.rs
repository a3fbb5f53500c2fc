//! Budgets on `/live`: messages and speech are refused, and a spoken turn that runs comes to its end.

use serde_json::Value;

use crate::client::{Client, Said};
use crate::support::Bridge;
use crate::voice::{sound, speak, turn};

const SMALL: &str = "[budget]\ntokens_per_day = 1\n";

/// The next refusal; what else comes is left out.
async fn refused(client: &mut Client) -> Value {
    loop {
        if let Said::Control(control) = client.said().await
            && control["type"] == "error"
        {
            return control;
        }
    }
}

async fn tokens(bridge: &Bridge) -> u64 {
    let state = bridge.get("/api/budget").await.json();
    state["used"]["tokens"].as_u64().unwrap()
}

#[tokio::test]
async fn a_written_turn_is_refused_when_the_budget_is_used_up() {
    let bridge = Bridge::configured(SMALL);
    let mut client = Client::open(&bridge, "/live?chat=written").await;
    client.say("say hi").await;
    assert_eq!(turn(&mut client).await.text(), "hi");
    assert!(tokens(&bridge).await > 1);
    client.say("say more").await;
    let error = refused(&mut client).await;
    assert_eq!(error["code"], "budget_exceeded", "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("it begins again at"), "{message}");
    assert_eq!(
        bridge.get("/api/chats/written").await.json()["messages"][1]["role"],
        "assistant"
    );
}

#[tokio::test]
async fn a_spoken_turn_ends_and_the_next_is_refused() {
    let bridge = Bridge::configured(SMALL);
    let mut client = Client::open(&bridge, "/live?chat=spoken").await;
    speak(&mut client, "say hello").await;
    assert!(turn(&mut client).await.pcm == sound("hello"));
    let used = tokens(&bridge).await;
    assert!(used > 1, "{used}");
    speak(&mut client, "say more").await;
    let error = refused(&mut client).await;
    assert_eq!(error["code"], "budget_exceeded", "{error}");
    assert_eq!(tokens(&bridge).await, used);
    let stored = bridge.get("/api/chats/spoken").await.json();
    assert_eq!(stored["messages"].as_array().unwrap().len(), 2, "{stored}");
}
