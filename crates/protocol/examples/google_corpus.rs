//! What the bridge says to an agent, and what it has read of one, so that Google's own types can look at it.
//!
//! `google_corpus DIR` writes `DIR/contents.jsonl`, the contents made from conversations, and `DIR/events.jsonl`, every
//! recorded event as it is written after it has been read.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example is a program, not the protocol"
)]

#[path = "../tests/conversations/mod.rs"]
mod conversations;
#[path = "../tests/dice/mod.rs"]
mod dice;

use std::error::Error;
use std::path::{Path, PathBuf};

use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::history::contents;
use adk_bridge_protocol::message::parse_messages;
use adk_bridge_protocol::wire::recording::Recording;

const CONVERSATIONS: u64 = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: google_corpus DIR")?;
    let dir = Path::new(&dir);
    std::fs::create_dir_all(dir)?;
    let told = told()?;
    let read = read()?;
    println!("{} contents, {} events", told.len(), read.len());
    std::fs::write(dir.join("contents.jsonl"), told.concat())?;
    std::fs::write(dir.join("events.jsonl"), read.concat())?;
    Ok(())
}

fn told() -> Result<Vec<String>, Box<dyn Error>> {
    let mut lines = Vec::new();
    let generated = (0..CONVERSATIONS).map(conversations::generated);
    for conversation in std::iter::once(conversations::by_hand()).chain(generated) {
        for content in contents(&parse_messages(conversation)?) {
            lines.push(serde_json::to_string(&content)? + "\n");
        }
    }
    Ok(lines)
}

fn read() -> Result<Vec<String>, Box<dyn Error>> {
    let mut lines = Vec::new();
    for folder in ["scripted", "gemini", "gemini_answers", "live"] {
        for path in recordings(folder)? {
            let bytes = std::fs::read(path)?;
            for recorded in Recording::new(&bytes)? {
                let recorded = recorded?;
                let event = Event::parse(&recorded.json)?;
                // The line that says that a run has died is no event.
                if event.error.is_none() {
                    lines.push(serde_json::to_string(&event)? + "\n");
                }
            }
        }
    }
    Ok(lines)
}

fn recordings(folder: &str) -> std::io::Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/adk")
        .join(folder);
    let mut paths = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
