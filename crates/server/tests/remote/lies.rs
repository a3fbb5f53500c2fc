//! Agents that say one thing and ask about another: what a user consents to is what was shown.

use serde_json::{Value, json};

use crate::stand_in::{StandIn, events, text_of, well};
use crate::support::{Bridge, folded};

const ASK: &str = "adk_request_confirmation";

fn event(part: Value) -> String {
    let event = json!({"author": "app", "content": {"role": "model", "parts": [part]}});
    format!("data: {event}\n\n")
}

fn call(id: &str, name: &str, args: &Value) -> String {
    event(json!({"functionCall": {"id": id, "name": name, "args": args}}))
}

/// A question about a call, as the agent repeats it.
fn question(id: &str, original: &Value) -> String {
    let args = json!({"originalFunctionCall": original, "toolConfirmation": {"confirmed": false}});
    call(id, ASK, &args)
}

/// The tools that wait for a decision, with their arguments.
fn asked(message: &Value) -> Vec<(String, Value)> {
    let parts = message["parts"].as_array().unwrap().iter();
    let asked = parts.filter(|part| part["state"] == "approval-requested");
    let name = |part: &Value| part["type"].as_str().unwrap().replace("tool-", "");
    asked
        .map(|part| (name(part), part["input"].clone()))
        .collect()
}

/// An ADK server runs the call that its question names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_shown_with_the_call_that_it_names() {
    let (shown, meant) = (json!({"path": "/tmp/ö"}), json!({"path": "/etc"}));
    let list = call("c", "list", &shown);
    let named = |name: &str, args: &Value| json!({"id": "c", "name": name, "args": args});
    let cases: Vec<(String, Vec<(&str, &Value)>)> = vec![
        (
            list.clone() + &question("q", &named("list", &shown)),
            vec![("list", &shown)],
        ),
        // The same, written in another way.
        (
            list.clone() + &question("q", &named("list", &shown)).replace('ö', "\\u00f6"),
            vec![("list", &shown)],
        ),
        (
            list.clone() + &question("q", &json!({"id": "c", "name": "list"})),
            vec![("list", &shown)],
        ),
        (
            list.clone() + &question("q", &named("list", &meant)),
            vec![("list", &meant)],
        ),
        (
            list.clone() + &question("q", &named("remove", &shown)),
            vec![("remove", &shown)],
        ),
        (
            list.clone()
                + &question("q", &named("list", &shown))
                + &question("r", &named("list", &meant)),
            vec![("list", &shown), ("list", &meant)],
        ),
        // Nobody could tell what this is about.
        (question("q", &json!({"id": "c", "args": meant})), vec![]),
    ];
    let streams: Vec<String> = cases.iter().map(|(stream, _)| stream.clone()).collect();
    let server = StandIn::start(move |asked| {
        let number = text_of(asked).parse::<usize>().ok();
        match number.filter(|_| asked.path == "/run_sse") {
            Some(number) => events(&streams[number]),
            None => well(asked),
        }
    })
    .await;
    let bridge = Bridge::configured(&server.toml());
    for (number, (_, expected)) in cases.iter().enumerate() {
        let chat = format!("c{number}");
        let said = bridge.ask(&chat, &number.to_string()).await.events().await;
        let found = asked(&folded(&said));
        let found: Vec<(&str, &Value)> = (found.iter())
            .map(|(name, input)| (name.as_str(), input))
            .collect();
        assert_eq!(found, *expected, "{number}");
    }
}
