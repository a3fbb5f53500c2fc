//! What the server costs: its CPU per text delta and per turn, and its memory, beside a bare translator and nginx.
//!
//! `cargo xtask bench server [--quick] [nginx] [translator] [adk-bridge]`, or `cargo xtask bench server voice` for what
//! speech costs. The load, the stand-in for Gemini and every reader live in this process, on one core; the server under
//! test has the other. Only its CPU time counts, so that a busy machine makes the run longer, not the numbers larger.

#![allow(
    clippy::print_stdout,
    reason = "a command line tool talks to its user on standard output"
)]

mod load;
mod reader;
mod server;
mod stand_in;
mod table;
mod translator;
mod voice;
mod words;

use std::process::ExitCode;

use anyhow::bail;

use load::{Load, Size};
use server::Kind;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["translator", base_url] => translator::run(base_url),
        ["voice"] => measure_voice(),
        chosen => measure(chosen),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure_voice() -> anyhow::Result<()> {
    server::pin_load();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(voice::measure())
}

fn measure(words: &[&str]) -> anyhow::Result<()> {
    let (flags, names): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with('-'));
    let size = match flags.as_slice() {
        [] => Size::FULL,
        ["--quick"] => Size::QUICK,
        _ => bail!("usage: bench [--quick] [nginx] [translator] [adk-bridge], or bench voice"),
    };
    if let Some(unknown) = names
        .iter()
        .find(|name| Kind::ALL.iter().all(|kind| kind.name() != **name))
    {
        bail!("there is no server named {unknown:?}; name nginx, translator or adk-bridge");
    }
    server::pin_load();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let load = Load::new(size).await?;
        let mut rows = Vec::new();
        for kind in Kind::ALL {
            if !names.is_empty() && !names.contains(&kind.name()) {
                continue;
            }
            let measured = match kind.obstacle() {
                Some(reason) => Err(reason),
                None => Ok(load.measure(kind).await?),
            };
            rows.push((kind, measured));
        }
        print!("{}", table::render(&rows));
        Ok(())
    })
}
