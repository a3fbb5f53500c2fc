//! Measures what a text delta costs from the agent's line to the reader's frames: time, allocations, bytes.
//!
//! The time is the best of many short rounds: on a machine that others use too it comes nearest to the CPU's own.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a bench measures time and tells a human"
)]

#[path = "../tests/delta/mod.rs"]
mod delta;

use std::hint::black_box;
use std::time::{Duration, Instant};

use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::reply::Runner;

use delta::{ADK, GEMINI, LONG, Turn, allocations};

/// Deltas of one turn: a long answer.
const DELTAS: u32 = 1_000;
/// Rounds of each case; the best one counts.
const ROUNDS: u32 = 500;

fn main() {
    // `cargo bench -- 1` runs every case that many times: for a profiler, which counts instead of measuring.
    let rounds = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(ROUNDS);
    println!(
        "{:34}{:>12}{:>10}{:>14}{:>8}{:>8}",
        "one text delta", "events/s", "ns/event", "allocs/event", "B in", "B out"
    );
    let (native, adk) = (Some(Dialect::Native), Some(Dialect::Adk));
    for (name, line, runner, reader) in [
        ("ADK, remote", ADK, Runner::Remote, None),
        ("ADK, bridge", ADK, Runner::Bridge, None),
        ("Gemini, bridge", GEMINI, Runner::Bridge, None),
        (
            "Gemini, bridge, native reader",
            GEMINI,
            Runner::Bridge,
            native,
        ),
        ("Gemini, bridge, adk reader", GEMINI, Runner::Bridge, adk),
        (
            "long Gemini, bridge, native reader",
            LONG,
            Runner::Bridge,
            native,
        ),
    ] {
        let case = Case {
            line,
            runner,
            reader,
        };
        let (took, sent) = (0..rounds).map(|_| case.round()).min().unwrap_or_default();
        let nanos = took.as_nanos() as f64 / f64::from(DELTAS);
        let allocs = case.allocations() as f64 / f64::from(DELTAS);
        println!(
            "{name:34}{:>12.0}{nanos:>10.0}{allocs:>14.3}{:>8}{:>8}",
            1e9 / nanos,
            line.len(),
            sent / DELTAS as usize,
        );
    }
}

struct Case {
    line: &'static str,
    runner: Runner,
    reader: Option<Dialect>,
}

impl Case {
    fn round(&self) -> (Duration, usize) {
        let mut turn = self.begun();
        let started = Instant::now();
        let sent = self.run(&mut turn);
        (started.elapsed(), sent)
    }

    fn allocations(&self) -> u64 {
        let mut turn = self.begun();
        allocations(|| {
            self.run(&mut turn);
        })
    }

    /// A turn whose step and text are open.
    fn begun(&self) -> Turn {
        let mut turn = Turn::new(self.runner, self.reader);
        turn.line(self.line);
        turn
    }

    fn run(&self, turn: &mut Turn) -> usize {
        (0..DELTAS)
            .map(|_| {
                turn.stream.clear();
                turn.line(black_box(self.line))
            })
            .sum()
    }
}
