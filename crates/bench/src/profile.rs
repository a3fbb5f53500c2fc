//! What a turn, a delta and a checkpoint take, in instructions and system calls, and which part of the server takes it.
//!
//! Each cost is a difference of two counts of one running server, so that its start is not in it.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::counter::{Cost, Counter, Counts};
use crate::guard::Compared;
use crate::load::{Load, Size, count};
use crate::reader::Stall;
use crate::server::{Kind, Server};
use crate::stand_in::{Answer, Pace};

const USAGE: &str = "usage: bench profile [--functions N] [--also PATH]... [SERVER]...

  SERVER         adk-bridge by default; nginx, translator, adk-bridge-postgres, adk-bridge-hop
  --functions N  list the N most expensive functions of each cost
  --also PATH    profile another build of adk-bridge as well, and compare the first server with it: before and after";

const SHORT_DELTAS: usize = 20;
const FLOOD_DELTAS: usize = 320;
const PACED_DELTAS: usize = 21;
const PACED_TURNS: usize = 50;
const LONG_DELTAS: usize = 600;
const CHECKPOINTS: usize = 8;
/// The bridge stores a growing answer when this much has passed.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// A turn that takes longer may have a checkpoint in it, whose cost is counted apart.
const WITHOUT_CHECKPOINT: Duration = Duration::from_millis(900);
/// So many turns are counted together, and dropped together if the machine was too slow for one of them.
const TURNS_TOGETHER: usize = 5;
/// How many counts are tried for each that is needed.
const ATTEMPTS: usize = 5;
/// In production, so many deltas arrive between two checkpoints.
const DELTAS_PER_CHECKPOINT: f64 = 30.0;

pub(crate) const SHORT_TURN: &str = "short turn";
pub(crate) const FLOODED_DELTA: &str = "flooded delta";
pub(crate) const PACED_DELTA: &str = "paced delta";
pub(crate) const SHORT_CHECKPOINT: &str = "checkpoint of a short answer";
pub(crate) const LONG_CHECKPOINT: &str = "checkpoint of a long answer";

/// What a server takes for one of something.
pub(crate) struct Taken {
    pub(crate) what: &'static str,
    pub(crate) counts: Counts,
}

/// Measures the servers that the words name, and prints tables.
pub(crate) async fn run(words: &[&str]) -> anyhow::Result<()> {
    if let Some(obstacle) = Counter::obstacle() {
        bail!(obstacle);
    }
    let (kinds, functions) = read(words)?;
    let others = kinds.iter().filter(|it| matches!(it, Kind::Other(_)));
    let named = kinds.len() - others.count();
    let load = Load::new(Size::QUICK).await?;
    let mut profiles = Vec::new();
    for kind in kinds {
        if let Some(obstacle) = kind.obstacle() {
            bail!("{}: {obstacle}", kind.name());
        }
        eprintln!("{}: counting", kind.name());
        profiles.push((kind.name(), measure(&load, &kind).await?));
    }
    println!("{}", summary(&profiles));
    println!("{}", thousands(&profiles));
    if let Some((newest, after)) = profiles.first() {
        for (earlier, before) in &profiles[named..] {
            println!("Before: {earlier}; after: {newest}\n");
            println!("{}\n|---|--:|--:|--:|--:|--:|", Compared::HEAD);
            for (before, after) in before.iter().zip(after) {
                println!("{}", Compared::of(before, after).cells());
            }
            println!();
        }
    }
    for (name, taken) in &profiles {
        println!("## {name}\n\n{}", breakdown(taken, functions));
    }
    Ok(())
}

fn read(words: &[&str]) -> anyhow::Result<(Vec<Kind>, usize)> {
    let (mut kinds, mut others, mut functions) = (Vec::new(), Vec::new(), 0);
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "--functions" => {
                let number = words.next().and_then(|number| number.parse().ok());
                functions = number.context(USAGE)?;
            }
            "--also" => others.push(Kind::Other(words.next().context(USAGE)?.into())),
            name => {
                let kind = Kind::KNOWN.into_iter().find(|kind| kind.name() == name);
                kinds.push(kind.filter(|kind| !kind.is_slow()).context(USAGE)?);
            }
        }
    }
    if kinds.is_empty() {
        kinds.push(Kind::Bridge);
    }
    kinds.extend(others);
    Ok((kinds, functions))
}

/// Counts everything for one server.
pub(crate) async fn measure(load: &Load, kind: &Kind) -> anyhow::Result<Vec<Taken>> {
    let counting = Counting::start(load, kind).await?;
    let short = counting.per_turn(30, flood(SHORT_DELTAS)).await?;
    let long = counting.per_turn(30, flood(FLOOD_DELTAS)).await?;
    let flooded = long
        .minus(&short)
        .times(1.0 / count(FLOOD_DELTAS - SHORT_DELTAS));
    let few = counting.per_turn(PACED_TURNS, in_step(1, 1)).await?;
    let many = counting
        .per_turn(PACED_TURNS, in_step(PACED_DELTAS, 1))
        .await?;
    let paced = many.minus(&few).times(1.0 / count(PACED_DELTAS - 1));
    let mut taken = vec![
        Taken {
            what: SHORT_TURN,
            counts: short,
        },
        Taken {
            what: FLOODED_DELTA,
            counts: flooded,
        },
        Taken {
            what: PACED_DELTA,
            counts: paced,
        },
    ];
    if kind.is_bridge() {
        let first = counting.checkpoint(in_step(PACED_DELTAS, 1)).await?;
        let late = counting
            .checkpoint(in_step(LONG_DELTAS + 1, LONG_DELTAS))
            .await?;
        taken.push(Taken {
            what: SHORT_CHECKPOINT,
            counts: first,
        });
        taken.push(Taken {
            what: LONG_CHECKPOINT,
            counts: late,
        });
    }
    Ok(taken)
}

fn in_step(deltas: usize, at_once: usize) -> Answer {
    Answer {
        deltas,
        pace: Pace::InStep { at_once },
    }
}

/// In one piece: if the server gets several, chance decides how often it wakes up.
fn flood(deltas: usize) -> Answer {
    in_step(deltas, deltas)
}

struct Counting<'l> {
    load: &'l Load,
    server: Server,
}

impl<'l> Counting<'l> {
    async fn start(load: &'l Load, kind: &Kind) -> anyhow::Result<Self> {
        let server = Server::start_counted(kind, load.stand_in)?;
        // Connections, statements and memory are created on first use.
        server.begin_count()?;
        for answer in [flood(SHORT_DELTAS), in_step(SHORT_DELTAS, 1)] {
            load.one_by_one(&server, 5, answer, None).await?;
        }
        Ok(Self { load, server })
    }

    async fn per_turn(&self, turns: usize, answer: Answer) -> anyhow::Result<Counts> {
        let mut sum = Counts::default();
        let mut counted = 0;
        for _ in 0..turns.div_ceil(TURNS_TOGETHER) * ATTEMPTS {
            self.server.begin_count()?;
            let longest = self
                .load
                .one_by_one(&self.server, TURNS_TOGETHER, answer, None);
            let longest = longest.await?;
            let counts = self.server.end_count()?;
            if longest < WITHOUT_CHECKPOINT {
                sum.add(&counts);
                counted += TURNS_TOGETHER;
            }
            if counted >= turns {
                return Ok(sum.times(1.0 / count(counted)));
            }
        }
        bail!("this machine is too busy to count: turns that take a tenth of a second took one")
    }

    /// The difference that it makes to a turn if it rests before its last delta.
    async fn checkpoint(&self, answer: Answer) -> anyhow::Result<Counts> {
        let without = self.per_turn(CHECKPOINTS, answer).await?;
        let rest = Stall {
            after: answer.deltas - 1,
            pause: CHECKPOINT,
        };
        self.server.begin_count()?;
        let turns = self
            .load
            .one_by_one(&self.server, CHECKPOINTS, answer, Some(rest));
        turns.await?;
        let with = self.server.end_count()?;
        Ok(with.times(1.0 / count(CHECKPOINTS)).minus(&without))
    }
}

/// A line for each server and cost.
fn summary(profiles: &[(String, Vec<Taken>)]) -> String {
    let mut text = String::from(
        "\nCounted by callgrind, on one core. A short turn is one of 20 deltas in a new chat; a paced delta is a wake-up of\n\
         its own; kernel time is measured, not counted. At 30 deltas a second there is a checkpoint for every 30 deltas.\n\n\
         | server | per | instructions | system calls | clock reads | kernel µs |\n|---|---|--:|--:|--:|--:|\n",
    );
    for (name, taken) in profiles {
        let mut line = |what: &str, cost: Cost| {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {name} | {what} | {:.0} | {:.2} | {:.1} | {:.1} |",
                cost.instructions,
                cost.system_calls,
                cost.clock_reads,
                cost.kernel_nanos / 1e3
            );
        };
        for one in taken {
            line(one.what, one.counts.total());
        }
        let find = |what| {
            let found = taken.iter().find(|one| one.what == what);
            found.map(|one| one.counts.total())
        };
        if let (Some(mut delta), Some(checkpoint)) = (find(PACED_DELTA), find(SHORT_CHECKPOINT)) {
            delta += checkpoint * (1.0 / DELTAS_PER_CHECKPOINT);
            line("paced delta, with its part of a checkpoint", delta);
        }
    }
    text
}

/// The table of docs/performance.md: a column for each server.
fn thousands(profiles: &[(String, Vec<Taken>)]) -> String {
    let names: Vec<&str> = profiles.iter().map(|(name, _)| name.as_str()).collect();
    let mut text = format!(
        "| thousands of instructions, system calls | {} |\n|---{}|\n",
        names.join(" | "),
        "|--:".repeat(names.len())
    );
    let mut kinds: Vec<&str> = Vec::new();
    for one in profiles.iter().flat_map(|(_, taken)| taken) {
        if !kinds.contains(&one.what) {
            kinds.push(one.what);
        }
    }
    for what in kinds {
        let _ = write!(text, "| a {what} |");
        for (_, taken) in profiles {
            let found = taken.iter().find(|one| one.what == what);
            let _ = match found.map(|one| one.counts.total()) {
                Some(cost) => write!(
                    text,
                    " {:.1}, {:.2} |",
                    cost.instructions / 1e3,
                    cost.system_calls
                ),
                None => write!(text, " |"),
            };
        }
        text.push('\n');
    }
    text
}

/// Tables of one server: a column for each cost, a line for each component, thread and kind of system call.
fn breakdown(taken: &[Taken], functions: usize) -> String {
    let heads: Vec<&str> = taken.iter().map(|one| one.what).collect();
    let head = |first: &str| {
        format!(
            "| {first} | {} |\n|---{}|\n",
            heads.join(" | "),
            "|--:".repeat(heads.len())
        )
    };
    let mut text = head("instructions by component");
    text += &lines(
        taken,
        |it| it.component.clone(),
        |cost| cost.instructions,
        0.01,
    );
    text += &format!("\n{}", head("instructions by thread"));
    text += &lines(
        taken,
        |it| format!("thread {}", it.thread),
        |cost| cost.instructions,
        0.002,
    );
    text += &format!("\n{}", head("system calls by function of libc"));
    text += &lines(
        taken,
        |it| it.function.clone(),
        |cost| cost.system_calls,
        0.005,
    );
    for one in taken.iter().filter(|_| functions > 0) {
        let _ = writeln!(text, "\nFunctions of a {}:\n", one.what);
        let by = one.counts.by(|it| (it.function.clone(), it.thread));
        let mut all: Vec<_> = by.into_iter().collect();
        all.sort_by(|a, b| b.1.instructions.total_cmp(&a.1.instructions));
        for ((function, thread), cost) in all.into_iter().take(functions) {
            let _ = writeln!(
                text,
                "{:>12.1}  thread {thread}  {function}",
                cost.instructions
            );
        }
    }
    text
}

/// A line for each key that makes a certain part of some column, the most expensive first.
fn lines(
    taken: &[Taken],
    key: impl Fn(&crate::counter::Place) -> String + Copy,
    number: impl Fn(&Cost) -> f64 + Copy,
    least: f64,
) -> String {
    let columns: Vec<_> = taken.iter().map(|one| one.counts.by(key)).collect();
    let totals: Vec<f64> = taken.iter().map(|it| number(&it.counts.total())).collect();
    let mut keys: Vec<&String> = columns.iter().flat_map(|column| column.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let value = |column: usize, key: &String| columns[column].get(key).map_or(0.0, number);
    let share = |column: usize, key: &String| value(column, key) / totals[column].max(1e-9);
    let largest = |key: &String| {
        let shares = (0..columns.len()).map(|column| share(column, key));
        shares.fold(0.0, f64::max)
    };
    keys.retain(|key| largest(key) >= least);
    keys.sort_by(|a, b| {
        let sum = |key: &String| -> f64 { (0..columns.len()).map(|it| share(it, key)).sum() };
        sum(b).total_cmp(&sum(a))
    });
    let mut text = String::new();
    for key in keys {
        let _ = write!(text, "| {key} |");
        for (column, total) in totals.iter().enumerate() {
            let digits = if *total < 100.0 { 2 } else { 0 };
            let _ = write!(text, " {:.digits$} |", value(column, key));
        }
        text.push('\n');
    }
    text
}
