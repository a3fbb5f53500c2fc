//! Measures the costs of the server: its CPU per text delta and per turn, and its memory, compared with a bare
//! translator, nginx, the AI SDK on Node.js and Google's own ADK server.
//!
//! `cargo xtask bench server [--quick] [--rounds N] [--also PATH] [SERVER]...`, or `cargo xtask bench server voice` for
//! the cost of speech. `--also` measures another build of the bridge as well. From five rounds on it fails if PostgreSQL costs more
//! than it may (`compare.rs`). `profile`, `guard`, `crowd`, `delay`, `data` and `overload` are commands of their own, described in
//! their files. The load, the stand-in for Gemini and all
//! readers run in this process on one core; the server under test has the other. Only its CPU time counts, so a busy
//! machine makes the run longer but not the numbers larger.

#![allow(
    clippy::print_stdout,
    reason = "a command line tool talks to its user on standard output"
)]

mod compare;
mod component;
mod counter;
mod crowd;
mod data;
mod document;
mod guard;
mod load;
mod overload;
mod plan;
mod profile;
mod reader;
mod server;
mod stand_in;
mod table;
mod translator;
mod voice;
mod words;

use std::process::ExitCode;

use load::Load;
use plan::Plan;
use table::Row;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["translator", base_url] => translator::run(base_url),
        ["voice"] => on_load_core(voice::measure()),
        ["crowd", words @ ..] => on_load_core(crowd::run(words)),
        ["data", words @ ..] => on_load_core(data::run(words)),
        ["delay", words @ ..] => on_load_core(crowd::delay(words)),
        ["guard", words @ ..] => on_load_core(guard::run(words)),
        ["overload", words @ ..] => on_load_core(overload::run(words)),
        ["profile", words @ ..] => on_load_core(profile::run(words)),
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

fn on_load_core(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    server::pin_load();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

fn measure(words: &[&str]) -> anyhow::Result<()> {
    let plan = Plan::read(words)?;
    on_load_core(async {
        let load = Load::new(plan.size).await?;
        let mut rows: Vec<Row> = plan.servers.iter().map(Row::new).collect();
        // The servers take turns, so that other work on the machine affects all of them.
        for _ in 0..plan.rounds {
            for row in rows.iter_mut().filter(|row| row.obstacle.is_none()) {
                row.rounds.push(load.measure(row.kind).await?);
            }
        }
        print!(
            "{}{}{}",
            table::render(&rows),
            document::render(&rows),
            compare::forwarding(&rows)
        );
        let too_expensive = compare::too_expensive(&rows);
        anyhow::ensure!(too_expensive.is_empty(), too_expensive.join("; "));
        Ok(())
    })
}
