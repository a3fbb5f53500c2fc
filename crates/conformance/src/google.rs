//! What the bridge sends to an agent and what it has read from one, to be checked by Google's own types.
//!
//! `contents.jsonl` holds contents made from conversations; `events.jsonl` holds every recorded event, read and written
//! again.

use std::path::Path;

use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::history::contents;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::parse_messages;
use adk_bridge_protocol::wire::recording::Recording;
use adk_bridge_testkit::{conversations, fixtures};

const CONVERSATIONS: u64 = 500;

pub(crate) fn write(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)?;
    let contents = contents_sent()?;
    let read = read()?;
    println!("{} contents, {} events", contents.len(), read.len());
    std::fs::write(dir.join("contents.jsonl"), contents.concat())?;
    std::fs::write(dir.join("events.jsonl"), read.concat())?;
    Ok(())
}

fn contents_sent() -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    let generated = (0..CONVERSATIONS).map(conversations::generated);
    for conversation in std::iter::once(conversations::by_hand()).chain(generated) {
        for content in contents(&parse_messages(Json::from(conversation).raw())?) {
            lines.push(serde_json::to_string(&content)? + "\n");
        }
    }
    Ok(lines)
}

fn read() -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for folder in ["scripted", "gemini", "gemini_answers", "agents", "live"] {
        for path in fixtures::recordings_in(folder) {
            let bytes = std::fs::read(path)?;
            for recorded in Recording::new(&bytes)? {
                let recorded = recorded?;
                let event = Event::parse(&recorded.json)?;
                // The line that reports that a run has failed is not an event.
                if event.error.is_none() {
                    lines.push(serde_json::to_string(&event)? + "\n");
                }
            }
        }
    }
    Ok(lines)
}
