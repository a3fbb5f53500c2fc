//! A bridge with an agent of your own, written in Rust: it repeats what the user wrote.
//!
//! ```text
//! cargo run --example own_agent
//! ```
//!
//! Open the page that it names, or point `useChat` at `/api/chat`. An agent that asks somebody over the network does so in
//! `start`, hands on what the network brings in `read`, and finds the events in it in `events`.

use std::collections::VecDeque;

use adk_bridge::agents::agent::{
    Agent, AgentInfo, AgentRequest, AgentRun, BoxFuture, ConversationRequest, EventSink,
    MemoryModel, Starting,
};
use adk_bridge::agents::error::AgentError;
use adk_bridge::config::{Config, Overrides};
use adk_bridge::protocol::event::{Content, Event, Part};
use adk_bridge::{Server, ServerBuilder};
use bytes::Bytes;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::load(None, &Overrides::default())?;
    let server = bridge(config).build().await?;
    eprintln!("listening on http://{}", server.address());
    server.serve().await?;
    Ok(())
}

pub fn bridge(config: Config) -> ServerBuilder {
    Server::builder().config(config).agent(Echo)
}

struct Echo;

impl Agent for Echo {
    fn info(&self) -> AgentInfo {
        AgentInfo::new("echo")
    }

    /// It gets the whole conversation every time.
    fn memory(&self) -> MemoryModel {
        MemoryModel::Stateless
    }

    fn start(&self, request: AgentRequest<'_>) -> Starting {
        // The future outlives the request, so what is needed of it is taken first.
        let words = request
            .into_conversation()
            .and_then(|request| last_words(&request));
        Box::pin(async move {
            let words = words?;
            let words = words.split_inclusive(' ').map(str::to_owned);
            let pieces = words.map(Bytes::from).collect();
            Ok(Box::new(EchoRun { pieces }) as Box<dyn AgentRun>)
        })
    }
}

/// What the user wrote last.
fn last_words(request: &ConversationRequest<'_>) -> Result<String, AgentError> {
    let last = request.contents.last();
    let parts = last.iter().flat_map(|content| content.parts.iter());
    let words: String = parts.filter_map(|part| part.text.as_deref()).collect();
    match words.is_empty() {
        true => Err(AgentError::rejected(
            "an echo needs words; write some",
            "a message without text",
        )),
        false => Ok(words),
    }
}

/// One answer, word by word.
struct EchoRun {
    pieces: VecDeque<Bytes>,
}

impl AgentRun for EchoRun {
    fn read(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, AgentError>> {
        Box::pin(std::future::ready(Ok(self.pieces.pop_front())))
    }

    fn events(&mut self, piece: &[u8], sink: EventSink<'_>) -> Result<(), AgentError> {
        let word = std::str::from_utf8(piece)
            .map_err(|error| AgentError::broken("the echo is garbled", error.to_string()))?;
        sink(&Event {
            content: Some(Content::new("model", vec![Part::text(word)])),
            partial: Some(true),
            ..Event::default()
        });
        Ok(())
    }

    fn finish(&mut self, sink: EventSink<'_>) -> Result<(), AgentError> {
        sink(&Event {
            finish_reason: Some("STOP".into()),
            ..Event::default()
        });
        Ok(())
    }
}
