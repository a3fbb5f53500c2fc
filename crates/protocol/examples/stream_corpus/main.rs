//! Writes a corpus of streams, so that the real AI SDK packages can be asked whether they understand them.
//!
//! `stream_corpus FILE` writes one case per line, in the form that `web/conformance/streams.mjs` describes: every
//! recording in both dialects, conversations with their answers, every kind of resume, and the turns of random walks.
#![expect(
    clippy::disallowed_methods,
    reason = "an example is a program, not the protocol"
)]

mod case;
mod conversations;
mod player;
mod recordings;
#[path = "../../tests/sim/mod.rs"]
mod sim;
mod walks;

use std::path::Path;

use case::{Case, Result};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file] = arguments.as_slice() else {
        return Err("usage: stream_corpus FILE".into());
    };
    let mut cases = Vec::new();
    recordings::write(&mut cases)?;
    conversations::write(&mut cases)?;
    walks::write(&mut cases);
    let lines: Vec<String> = cases.iter().map(Case::line).collect();
    if let Some(folder) = Path::new(file).parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, lines.concat())?;
    Ok(())
}
