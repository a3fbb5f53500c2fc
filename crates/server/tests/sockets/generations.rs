//! Every generation of live models holds the same conversation, as far as a front end can tell.

use crate::client::Client;
use crate::support::Bridge;
use crate::voice::{answer, speak, turn};

/// One model of each generation.
const MODELS: [&str; 4] = [
    "gemini-live-2.5-flash",
    "gemini-3.1-flash-live-preview",
    "gemini-3.8-live",
    "gemini-3.8-live-extended-thinking",
];

#[tokio::test]
async fn all_of_them_hold_a_conversation() {
    for model in MODELS {
        let toml = format!("[agent]\nlive_model = \"{model}\"\n");
        let bridge = Bridge::with(&toml, |_| {});
        let mut client = Client::open(&bridge, "/live?chat=c").await;
        speak(&mut client, "say hello").await;
        let hello = turn(&mut client).await;
        assert_eq!(
            (hello.text().as_str(), hello.heard().as_str()),
            ("hello", "say hello"),
            "{model}"
        );
        assert!(!hello.pcm.is_empty());

        // A tool runs while the model waits, or speaks on.
        speak(&mut client, "what is the weather in Tokyo").await;
        let weather = turn(&mut client).await;
        assert_eq!(weather.of("tool-output-available").len(), 1, "{model}");
        assert!(
            weather.text().contains("in Tokyo"),
            "{model}: {}",
            weather.text()
        );

        // What was said elsewhere reaches the model before it is asked again.
        bridge.ask("c", "say over http").await.events().await;
        speak(&mut client, "say and back").await;
        assert_eq!(turn(&mut client).await.text(), "and back", "{model}");

        // A question waits, the conversation goes on, and the answer still counts.
        client.say("pay Hanako 50 dollars").await;
        let asks = turn(&mut client).await;
        let question = asks.of("tool-approval-request")[0].clone();
        answer(&mut client, &question, true).await;
        let paid = turn(&mut client).await;
        assert_eq!(
            paid.of("tool-output-available").len(),
            1,
            "{model}: {:?}",
            paid.chunks
        );
        assert!(
            paid.text().contains("Paid 50 USD to Hanako."),
            "{model}: {}",
            paid.text()
        );
    }
}
