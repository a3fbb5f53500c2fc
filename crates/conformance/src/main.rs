//! Writes corpora that the published AI SDK packages and Google's own types judge, and reads their results.
//!
//! `cargo xtask test fold ws streams predicates google` runs each corpus with its judge.

#![allow(
    clippy::print_stdout,
    reason = "a command line tool talks to its user on standard output"
)]

mod fold;
mod google;
mod predicates;
mod streams;
mod ws;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(about)]
enum Command {
    /// Generated streams, folded; `web/conformance/fold.test.mjs` compares them
    Fold {
        file: PathBuf,
        #[arg(default_value_t = 1)]
        seed: u64,
        #[arg(default_value_t = 3_000)]
        cases: u32,
    },
    /// Every stream that a client may get; `web/conformance/streams.test.mjs` reads them
    Streams { file: PathBuf },
    /// Messages with the expected results of the stock predicates; `web/conformance/predicates.test.mjs` checks them
    Predicates { file: PathBuf },
    /// Frames for the AI SDK's own WebSocket transport; `web/conformance/ws.test.mjs` passes them to it
    WsFrames { file: PathBuf },
    /// Reads the frames that this transport sent
    WsCheck { file: PathBuf },
    /// What is sent to agents and read from them; `python/test_google.py` reads both
    Google { directory: PathBuf },
}

fn main() -> anyhow::Result<ExitCode> {
    match Command::parse() {
        Command::Fold { file, seed, cases } => fold::write(&file, seed, cases)?,
        Command::Streams { file } => streams::write(&file)?,
        Command::Predicates { file } => predicates::write(&file)?,
        Command::WsFrames { file } => ws::write(&file)?,
        Command::WsCheck { file } => return ws::check(&file),
        Command::Google { directory } => google::write(&directory)?,
    }
    Ok(ExitCode::SUCCESS)
}
