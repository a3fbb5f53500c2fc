//! Writes streams of chunks with the messages that the fold makes of them, for a comparison with the real AI SDK.
//!
//! `cargo run --example fold_corpus -- FILE [SEED] [CASES]`, then `node web/conformance/fold.mjs FILE`. Each line is
//! `{name, only?, prior, chunks, v6, v7}`, where `v6` and `v7` are `{message}` or `{error}`.

#![allow(
    clippy::disallowed_methods,
    reason = "the protocol does no I/O; this program around it does"
)]

mod damage;
mod random;
mod stream;

use std::error::Error;
use std::fmt::Write as _;

use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::message::fold::Fold;
use adk_bridge_protocol::message::{At, Message};
use serde_json::{Value, json};

use crate::damage::damage;
use crate::random::Random;
use crate::stream::Stream;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("say where to write the corpus")?;
    let seed = arguments.next().map_or(Ok(1), |seed| seed.parse())?;
    let cases = arguments.next().map_or(Ok(3_000), |cases| cases.parse())?;
    let mut random = Random::new(seed);
    let mut corpus = String::new();
    for index in 0..cases {
        writeln!(corpus, "{}", case(&mut random, index))?;
    }
    std::fs::write(path, corpus)?;
    Ok(())
}

fn case(random: &mut Random, index: u32) -> Value {
    let v7 = random.chance(4);
    let prior = random.chance(3).then(|| prior(random, v7));
    let mut stream = Stream::new(random, v7, prior.as_ref());
    if stream.random.chance(8) {
        stream.cut_input();
    } else {
        for _ in 0..stream.random.below(28) + 1 {
            stream.step();
        }
    }
    let mut chunks = stream.chunks;
    let kind = if random.chance(5) {
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
        Some(prior) => Fold::onto(sdk, Message::parse(prior.clone(), &At::Root("prior"))?),
        None => Fold::new(sdk, ""),
    };
    for (index, chunk) in chunks.iter().enumerate() {
        fold.apply(&Chunk::parse(&chunk.to_string())?)?;
        // Whether and when the message is looked at must not change it.
        if index % 7 == chunks.len() % 7 {
            fold.message();
        }
    }
    Ok(fold.into_message())
}

/// A message to be continued: what an earlier stream left, and what a client then does to it.
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
    if random.chance(12) {
        message["role"] = json!("user");
    }
    message["vendor"] = json!({"kept": true});
    for part in message["parts"].as_array_mut().into_iter().flatten() {
        if part["state"] == "approval-requested" && random.chance(2) {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(random.chance(2));
        }
    }
    message
}
