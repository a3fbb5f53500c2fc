//! The demo's tools: they really do what their names say, on a small scale.

mod client;
mod database;
mod dice;
mod image;
mod payment;
mod weather;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_agents::tool::{ServerTool, ToolSpec};
use adk_bridge_agents::tool_registry::{Offer, ToolRegistry, ToolRegistryError};
use adk_bridge_protocol::calls::Outcome;
use adk_bridge_protocol::json_text::Json;
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub use database::{DatabaseError, SampleDatabase};

/// How long a payment takes unless the options say otherwise: about as long as a real one.
pub const PAYMENT_TIME: Duration = Duration::from_millis(300);

/// How the demo's tools behave.
#[derive(Debug, Clone)]
pub struct Options {
    pub payment_time: Duration,
    /// The SQLite file of the sample users; without it, they live as long as the process.
    pub database: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            payment_time: PAYMENT_TIME,
            database: None,
        }
    }
}

/// The demo's tools, grouped by where they run.
pub struct DemoTools {
    pub server: Vec<Arc<dyn ServerTool>>,
    pub client: Vec<ToolSpec>,
}

impl DemoTools {
    /// The specs of all of them, for the model.
    pub fn specs(&self) -> Vec<ToolSpec> {
        let server = self.server.iter().map(|tool| tool.spec().clone());
        server.chain(self.client.iter().cloned()).collect()
    }
}

pub fn demo_tools(options: Options) -> DemoTools {
    let users = Arc::new(SampleDatabase::new(options.database));
    DemoTools {
        server: vec![
            Arc::new(weather::GetWeather::new()),
            Arc::new(dice::RollDice::new()),
            Arc::new(payment::ProcessPayment::new(options.payment_time)),
            Arc::new(database::SearchDatabase::new(users.clone())),
            Arc::new(database::UpdateDatabase::new(users)),
            Arc::new(image::GenerateImage::new()),
        ],
        client: client::specs(),
    }
}

/// Registers all of them.
pub fn register(
    registry: &mut ToolRegistry,
    options: Options,
    offer: Offer,
) -> Result<(), ToolRegistryError> {
    let tools = demo_tools(options);
    for tool in tools.server {
        registry.add(tool, offer)?;
    }
    for spec in tools.client {
        registry.add_client(spec, offer)?;
    }
    Ok(())
}

/// The schema of an object with these properties.
fn object(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn outcome(result: Result<Value, String>) -> Outcome {
    match result {
        Ok(value) => Outcome::Output {
            value: value.into(),
            files: Vec::new(),
        },
        Err(text) => Outcome::Error { text },
    }
}

/// The longest argument of these tools, except for texts.
const MAX_ARGUMENT_BYTES: usize = 4_096;

/// The arguments of a call. A list or object that is longer than any tool here accepts counts as empty.
fn arguments(input: &Json) -> Value {
    let argument = |raw: &RawValue| match raw.get() {
        text if text.len() <= MAX_ARGUMENT_BYTES || text.starts_with('"') => {
            serde_json::from_str(text).unwrap_or_default()
        }
        _ => json!([]),
    };
    if !input.is_object() {
        return argument(input.raw());
    }
    let fields = input.fields().into_iter();
    let fields = fields.map(|(name, raw)| (name.into_owned(), argument(raw)));
    Value::Object(fields.collect())
}

/// The trimmed text of an argument; `None` if it is absent or blank.
fn text_of<'v>(input: &'v Value, name: &str) -> Result<Option<&'v str>, String> {
    match input.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
        Some(_) => Err(format!("`{name}` must be a string")),
    }
}

fn required_text<'v>(input: &'v Value, name: &str) -> Result<&'v str, String> {
    text_of(input, name)?.ok_or_else(|| format!("`{name}` is missing"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::pin::Pin;
    use std::sync::Mutex;

    use adk_bridge_agents::tool::{ChatState, StateChange, ToolCall};
    use adk_bridge_protocol::calls::RunsOn;

    use super::*;

    /// The state of a chat, kept nowhere.
    #[derive(Default)]
    pub(super) struct MemoryState(Mutex<HashMap<String, Value>>);

    impl ChatState for MemoryState {
        fn update<'s>(
            &'s self,
            key: &'s str,
            change: StateChange<'s>,
        ) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 's>> {
            Box::pin(async move {
                let mut values = self.0.lock().unwrap();
                let (stored, returned) = change(values.get(key).cloned());
                match stored {
                    Some(value) => values.insert(key.to_owned(), value),
                    None => values.remove(key),
                };
                Ok(returned)
            })
        }
    }

    pub(super) fn call(input: Value, state: &Arc<MemoryState>) -> ToolCall {
        ToolCall {
            user: "user".into(),
            chat_id: "chat".into(),
            call_id: "call-1".into(),
            input: input.into(),
            state: state.clone(),
            user_link: Arc::new(adk_bridge_agents::tool::Nobody),
            trace: adk_bridge_agents::TraceContext::default(),
        }
    }

    /// Runs a tool once in a new chat.
    pub(super) async fn run(tool: &dyn ServerTool, input: Value) -> Result<Value, String> {
        run_in(tool, input, &Arc::default()).await
    }

    pub(super) async fn run_in(
        tool: &dyn ServerTool,
        input: Value,
        state: &Arc<MemoryState>,
    ) -> Result<Value, String> {
        match tool.run(call(input, state)).await {
            Outcome::Output { value, .. } => Ok(value.to_value()),
            Outcome::Error { text } => Err(text),
        }
    }

    #[test]
    fn the_tools_are_those_of_the_design() {
        let tools = demo_tools(Options::default());
        let mut found: Vec<_> = tools
            .specs()
            .into_iter()
            .map(|spec| (spec.name, spec.runs_on, spec.needs_approval))
            .collect();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = [
            ("change_bgm", RunsOn::Client, true),
            ("generate_image", RunsOn::Server, false),
            ("get_location", RunsOn::Client, true),
            ("get_weather", RunsOn::Server, false),
            ("process_payment", RunsOn::Server, true),
            ("roll_dice", RunsOn::Server, false),
            ("search_database", RunsOn::Server, true),
            ("take_photo", RunsOn::Client, true),
            ("update_database", RunsOn::Server, true),
        ];
        assert_eq!(
            found,
            expected.map(|(name, on, asks)| (name.to_owned(), on, asks))
        );
    }

    #[test]
    fn every_schema_describes_every_argument() {
        for spec in demo_tools(Options::default()).specs() {
            assert!(!spec.description.is_empty(), "{}", spec.name);
            assert_eq!(spec.input_schema["type"], "object", "{}", spec.name);
            let properties = spec.input_schema["properties"].as_object().unwrap();
            for (name, schema) in properties {
                assert!(schema["type"].is_string(), "{}.{name}", spec.name);
                assert!(schema["description"].is_string(), "{}.{name}", spec.name);
            }
            for name in spec.input_schema["required"].as_array().unwrap() {
                assert!(
                    properties.contains_key(name.as_str().unwrap()),
                    "{}",
                    spec.name
                );
            }
        }
    }

    #[tokio::test]
    async fn no_tool_takes_input_that_is_no_object() {
        for tool in demo_tools(Options::default()).server {
            let name = &tool.spec().name;
            for input in [json!(null), json!("text"), json!([1])] {
                let result = run(&*tool, input).await;
                // Dice need no arguments and use the defaults.
                assert_eq!(result.is_ok(), name == "roll_dice", "{name}: {result:?}");
            }
        }
    }
}
