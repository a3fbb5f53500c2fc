//! A bridge with a tool of your own, written in Rust and run only after a human has agreed.
//!
//! ```text
//! cargo run                                       # the demo's model, no key needed
//! GEMINI_API_KEY=… ADK_BRIDGE__AGENT__KIND=gemini cargo run
//! ```
//!
//! Open the page that it names, or point `useChat` at `/api/chat`, and write `refund 25 dollars for order A-17`. To the
//! demo's model, which plays by a script, write `call refund_order {"order": "A-17", "amount": 25}`. The front end is asked
//! for approval; nothing of that is in this file, and the tool never waits for anybody.

use adk_bridge::agents::agent::BoxFuture;
use adk_bridge::agents::tool::{ServerTool, ToolCall, ToolSpec};
use adk_bridge::config::{Config, Overrides};
use adk_bridge::protocol::calls::Outcome;
use adk_bridge::{Server, ServerBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // What adk-bridge.example.toml lists, from environment variables such as ADK_BRIDGE__SERVER__LISTEN.
    let config = Config::load(None, &Overrides::default())?;
    let server = bridge(config).build().await?;
    eprintln!("listening on http://{}", server.address());
    server.serve().await?;
    Ok(())
}

pub fn bridge(config: Config) -> ServerBuilder {
    Server::builder().config(config).tool(RefundOrder::new())
}

/// Gives the money for an order back. A real one would hold the client of a payment service.
struct RefundOrder {
    spec: ToolSpec,
}

impl RefundOrder {
    fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "order": {"type": "string", "description": "The number of the order, such as A-17."},
                "amount": {"type": "number", "description": "How many dollars are given back."},
            },
            "required": ["order", "amount"],
        });
        let spec = ToolSpec::server("refund_order", "Gives money for an order back.", schema);
        Self {
            spec: spec.with_approval(),
        }
    }
}

impl ServerTool for RefundOrder {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Called once the user has agreed, with the arguments that the user saw.
    fn run(&self, call: ToolCall) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            refund(&call).await.map_or_else(Outcome::error, |refunded| {
                Outcome::output(json!({"refunded": refunded}))
            })
        })
    }
}

/// The arguments, as the schema describes them.
#[derive(Deserialize)]
struct Refund {
    order: String,
    amount: f64,
}

/// What was given back for an order in this chat, all in all. The model and the user see an error.
async fn refund(call: &ToolCall) -> Result<Value, String> {
    let read: Result<Refund, _> = call.input.read();
    let Refund { order, amount } = read.map_err(|error| error.to_string())?;
    if !amount.is_finite() || amount <= 0.0 {
        return Err("`amount` must be greater than 0".into());
    }
    // The state of the chat is in the store: it survives a restart, and goes with the chat.
    let key = format!("refunds.{order}");
    let add = Box::new(move |before: Option<Value>| {
        let before = before.and_then(|total| total.as_f64()).unwrap_or_default();
        let total = json!(before + amount);
        (Some(total.clone()), total)
    });
    call.state.update(&key, add).await
}
