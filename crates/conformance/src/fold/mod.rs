//! Streams of chunks with the messages that they fold to, for a comparison with the real AI SDK.
//!
//! Each line is `{name, only?, prior, chunks, v6, v7}`, where `v6` and `v7` are `{message}` or `{error}`.

mod damage;
mod stream;
mod values;

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::fold::Fold;
use adk_bridge_protocol::message::{Location, Message};
use adk_bridge_testkit::Random;
use serde_json::{Value, json};

use damage::damage;
use stream::Stream;

pub(crate) fn write(file: &Path, seed: u64, cases: u32) -> anyhow::Result<()> {
    let mut random = Random::new(seed);
    let mut corpus = String::new();
    for index in 0..cases {
        writeln!(corpus, "{}", case(&mut random, index))?;
    }
    std::fs::write(file, corpus)?;
    Ok(())
}

fn case(random: &mut Random, index: u32) -> Value {
    let v7 = random.one_in(4);
    let prior = random.one_in(3).then(|| prior(random, v7));
    let mut stream = Stream::new(random, v7, prior.as_ref());
    if stream.random.one_in(8) {
        stream.cut_input();
    } else {
        for _ in 0..stream.random.below(28) + 1 {
            stream.step();
        }
    }
    let mut chunks = stream.chunks;
    let kind = if random.one_in(5) {
        damage(random, &mut chunks, v7)
    } else {
        "legal"
    };
    // A client shows its message only when a chunk makes it do so.
    chunks.push(json!({"type": "message-metadata", "messageMetadata": {"end": true}}));
    let mut case = json!({"name": format!("{kind}-{index}"), "prior": prior, "chunks": chunks});
    if v7 {
        case["only"] = json!("v7");
    } else {
        case["v6"] = outcome(Sdk::V6, prior.as_ref(), &chunks);
    }
    case["v7"] = outcome(Sdk::V7, prior.as_ref(), &chunks);
    case
}

fn outcome(sdk: Sdk, prior: Option<&Value>, chunks: &[Value]) -> Value {
    match fold(sdk, prior, chunks) {
        Ok(message) => json!({"message": message}),
        Err(error) => json!({"error": error.to_string()}),
    }
}

fn fold(sdk: Sdk, prior: Option<&Value>, chunks: &[Value]) -> Result<Message, Box<dyn Error>> {
    let mut fold = match prior {
        Some(prior) => Fold::onto(
            sdk,
            Message::parse(Json::from(prior.clone()).raw(), &Location::Root("prior"))?,
        ),
        None => Fold::new(sdk, ""),
    };
    for (index, chunk) in chunks.iter().enumerate() {
        fold.apply(&Chunk::parse(&chunk.to_string())?)?;
        // Whether and when the message is read must not change it.
        if index % 7 == chunks.len() % 7 {
            fold.message();
        }
    }
    Ok(fold.into_message())
}

/// A message to continue: what an earlier stream left, and what a client then did to it.
fn prior(random: &mut Random, v7: bool) -> Value {
    let mut stream = Stream::new(random, v7, None);
    for _ in 0..stream.random.below(14) + 1 {
        stream.step();
    }
    let chunks = stream.chunks;
    let sdk = if v7 { Sdk::V7 } else { Sdk::V6 };
    let message = fold(sdk, None, &chunks).unwrap_or_else(|_| Message::assistant("m0"));
    let mut message = serde_json::to_value(message).unwrap_or_default();
    if message["id"] == "" {
        message["id"] = json!("m0");
    }
    if random.one_in(12) {
        message["role"] = json!("user");
    }
    message["vendor"] = json!({"kept": true});
    for part in message["parts"].as_array_mut().into_iter().flatten() {
        if part["state"] == "approval-requested" && random.one_in(2) {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(random.one_in(2));
        }
    }
    message
}
