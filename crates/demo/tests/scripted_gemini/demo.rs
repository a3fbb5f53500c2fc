//! The demo's tools in the hands of the scripted Gemini: plain sentences to the last word of the answer.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adk_bridge_agents::tool::{ChatState, ServerTool, StateChange, ToolCall};
use adk_bridge_demo::tools::{Options, demo_tools};
use adk_bridge_protocol::calls::Outcome;
use serde_json::{Value, json};

use super::{STRICT_MODEL, Server, parts, text, user};

#[derive(Default)]
struct State(Mutex<HashMap<String, Value>>);

impl ChatState for State {
    fn update<'s>(
        &'s self,
        key: &'s str,
        change: StateChange<'s>,
    ) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 's>> {
        let mut values = self.0.lock().unwrap();
        let (stored, returned) = change(values.remove(key));
        values.extend(stored.map(|value| (key.to_owned(), value)));
        Box::pin(std::future::ready(Ok(returned)))
    }
}

#[tokio::test]
async fn sentences_are_carried_out() {
    let server = Server::start().await;
    let tools = demo_tools(Options {
        payment_time: Duration::ZERO,
        ..Options::default()
    });
    let declarations: Vec<_> = tools
        .specs()
        .into_iter()
        .map(|spec| {
            json!({
                "name": spec.name, "description": spec.description, "parametersJsonSchema": spec.input_schema,
            })
        })
        .collect();
    let state = Arc::new(State::default());
    let steps = [
        (
            "what is the weather in Tokyo?",
            "It is 21 °C and sunny in Tokyo.",
        ),
        (
            "東京と大阪の天気は？",
            "It is 21 °C and sunny in Tokyo. It is 22 °C and partly cloudy in Osaka.",
        ),
        (
            "weather in Atlantis",
            "get_weather did not work: \"Atlantis\" is not in my table of cities; try Tokyo, Osaka, Kyoto, Sapporo, Paris.",
        ),
        (
            "pay Hanako 50 dollars",
            "Paid 50 USD to Hanako. Your balance is 950 USD.",
        ),
        (
            "send 20 to Bob",
            "Paid 20 USD to Bob. Your balance is 930 USD.",
        ),
        (
            "pay Bob 2000 dollars",
            "process_payment did not work: the wallet holds 930 USD, which is not enough for 2000 USD.",
        ),
        (
            "search the database and update it",
            "Found 10 users. Database updated.",
        ),
        (
            "search the database for status = reviewed",
            "Found 10 users.",
        ),
        ("search the database for Tokyo", "Found 2 users."),
        ("draw a cat", "Here is your picture of a cat."),
        (
            "where am I",
            "get_location did not work: it runs in the front end.",
        ),
    ];
    let mut contents = Vec::new();
    for (words, expected) in steps {
        contents.push(user(words));
        let mut said = String::new();
        loop {
            let body =
                json!({"contents": contents, "tools": [{"functionDeclarations": declarations}]});
            let chunks = server.stream(STRICT_MODEL, &body).await;
            said.push_str(&text(&chunks));
            let answer = parts(&chunks);
            contents.push(json!({"role": "model", "parts": answer}));
            let mut responses = Vec::new();
            for call in answer.iter().filter_map(|part| part.get("functionCall")) {
                let response = run(&tools.server, call, &state).await;
                responses.push(
                    json!({"functionResponse": {"name": call["name"], "response": response}}),
                );
            }
            if responses.is_empty() {
                break;
            }
            contents.push(json!({"role": "user", "parts": responses}));
        }
        assert_eq!(said, expected, "{words}");
    }
}

async fn run(tools: &[Arc<dyn ServerTool>], call: &Value, state: &Arc<State>) -> Value {
    let Some(tool) = tools.iter().find(|tool| call["name"] == tool.spec().name) else {
        return json!({"error": "it runs in the front end"});
    };
    let call = ToolCall {
        user: "user".into(),
        chat_id: "chat".into(),
        call_id: "call".into(),
        input: call["args"].clone().into(),
        state: state.clone(),
        user_link: std::sync::Arc::new(adk_bridge_agents::tool::Nobody),
        trace: adk_bridge_agents::TraceContext::default(),
    };
    match tool.run(call).await {
        Outcome::Output { value, .. } => value.to_value(),
        Outcome::Error { text } => json!({"error": text}),
    }
}
