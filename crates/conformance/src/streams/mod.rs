//! Streams with the messages that clients must have at their ends, to be checked with the real AI SDK packages.
//!
//! One case per line, in the form that `web/conformance/streams.test.mjs` describes: every recording in both dialects,
//! conversations with their answers, every kind of resume, and the turns of random walks.

mod case;
mod conversations;
mod player;
mod recordings;
#[cfg(test)]
mod tests;
mod walks;

use std::path::Path;

use case::Case;

pub(crate) fn write(file: &Path) -> anyhow::Result<()> {
    let mut cases = Vec::new();
    recordings::write(&mut cases)?;
    conversations::write(&mut cases)?;
    walks::write(&mut cases);
    let lines: Vec<String> = cases.iter().map(Case::line).collect();
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, lines.concat())?;
    Ok(())
}
