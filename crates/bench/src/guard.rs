//! Compares two builds of the bridge by counted work, and fails if the newer one takes more.
//!
//! Both are measured in turns under the same conditions. Chance only adds work, such as a wake-up that two pieces might
//! have shared, so of several rounds the least counts; more than one is needed only where the first leaves a doubt.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{bail, ensure};

use crate::counter::{Cost, Counter};
use crate::load::{Load, Size};
use crate::profile::{self, FLOODED_DELTA, LONG_CHECKPOINT, PACED_DELTA, SHORT_CHECKPOINT, Taken};
use crate::server::Kind;

const USAGE: &str = "usage: bench guard BASE NEW: two builds of adk-bridge";

/// How much more a build may take than its base.
const TOLERANCE: f64 = 0.03;
/// The same for a checkpoint, which is the small difference between two turns; and SQLite moves its log now and then.
const CHECKPOINT_TOLERANCE: f64 = 0.3;
/// So few system calls of a turn are no more than chance: whether a worker looks for events once or twice. For a delta, of
/// which a thousand are counted, chance leaves less.
const FEW_CALLS: f64 = 0.6;
const FEW_CALLS_OF_DELTA: f64 = 0.1;
const ROUNDS: usize = 3;

/// Fails if the second build takes more than the first.
pub(crate) async fn run(words: &[&str]) -> anyhow::Result<()> {
    let &[base, new] = words else { bail!(USAGE) };
    if let Some(obstacle) = Counter::obstacle() {
        bail!(obstacle);
    }
    let builds = [base, new].map(|path| Kind::Other(PathBuf::from(path)));
    for build in &builds {
        if let Some(obstacle) = build.obstacle() {
            bail!("{}: {obstacle}", build.name());
        }
    }
    let load = Load::new(Size::QUICK).await?;
    let mut least: Vec<Compared> = Vec::new();
    for round in 1..=ROUNDS {
        eprintln!("counting, round {round} of at most {ROUNDS}");
        let base = profile::measure(&load, &builds[0]).await?;
        let new = profile::measure(&load, &builds[1]).await?;
        let now = base
            .iter()
            .zip(&new)
            .map(|(base, new)| Compared::of(base, new));
        least = match least.is_empty() {
            true => now.collect(),
            false => least.iter().zip(now).map(|(a, b)| a.least(b)).collect(),
        };
        println!("{}", table(&least));
        if least.iter().all(Compared::is_fine) {
            break;
        }
    }
    let worse = least.iter().filter(|it| !it.is_fine()).count();
    ensure!(
        worse == 0,
        "{worse} costs are too far above those of the base; `cargo xtask bench profile --also {base}` shows where"
    );
    Ok(())
}

/// One cost of both builds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compared {
    what: &'static str,
    base: Cost,
    new: Cost,
}

impl Compared {
    /// The cells of [`Self::cells`].
    pub(crate) const HEAD: &str =
        "| per | instructions: before | after | | system calls: before | after |";

    pub(crate) fn of(base: &Taken, new: &Taken) -> Self {
        Self {
            what: base.what,
            base: base.counts.total(),
            new: new.counts.total(),
        }
    }

    fn least(self, other: Self) -> Self {
        Self {
            what: self.what,
            base: self.base.least(other.base),
            new: self.new.least(other.new),
        }
    }

    pub(crate) fn cells(&self) -> String {
        let change = (self.new.instructions / self.base.instructions - 1.0) * 100.0;
        format!(
            "| {} | {:.0} | {:.0} | {change:+.1} % | {:.2} | {:.2} |",
            self.what,
            self.base.instructions,
            self.new.instructions,
            self.base.system_calls,
            self.new.system_calls,
        )
    }

    fn is_fine(&self) -> bool {
        let most = 1.0 + self.tolerance();
        self.new.instructions <= self.base.instructions * most
            && self.new.system_calls <= self.base.system_calls * most + self.few_calls()
    }

    fn few_calls(&self) -> f64 {
        match self.what {
            FLOODED_DELTA | PACED_DELTA => FEW_CALLS_OF_DELTA,
            _ => FEW_CALLS,
        }
    }

    fn tolerance(&self) -> f64 {
        match self.what {
            SHORT_CHECKPOINT | LONG_CHECKPOINT => CHECKPOINT_TOLERANCE,
            _ => TOLERANCE,
        }
    }
}

fn table(all: &[Compared]) -> String {
    let mut text = format!("\n{} |\n|---|--:|--:|--:|--:|--:|---|\n", Compared::HEAD);
    for one in all {
        let verdict = if one.is_fine() { "" } else { "too much" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {verdict} |", one.cells());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::SHORT_TURN;

    fn cost(instructions: f64, system_calls: f64) -> Cost {
        Cost {
            instructions,
            system_calls,
            ..Cost::default()
        }
    }

    #[test]
    fn more_than_chance_is_too_much() {
        for (what, base, new, is_fine) in [
            (SHORT_TURN, cost(1000.0, 4.0), cost(1000.0, 4.0), true),
            (SHORT_TURN, cost(1000.0, 4.0), cost(500.0, 2.0), true),
            (SHORT_TURN, cost(1000.0, 4.0), cost(1029.0, 4.0), true),
            (SHORT_TURN, cost(1000.0, 4.0), cost(1031.0, 4.0), false),
            (SHORT_TURN, cost(1000.0, 4.0), cost(1000.0, 4.7), true),
            (SHORT_TURN, cost(1000.0, 4.0), cost(1000.0, 5.0), false),
            (SHORT_TURN, cost(1000.0, 0.0), cost(1000.0, 0.5), true),
            (PACED_DELTA, cost(1000.0, 4.0), cost(1000.0, 4.2), true),
            (PACED_DELTA, cost(1000.0, 4.0), cost(1000.0, 4.3), false),
            (FLOODED_DELTA, cost(1000.0, 0.0), cost(1000.0, 0.5), false),
            (SHORT_CHECKPOINT, cost(1000.0, 4.0), cost(1290.0, 5.0), true),
        ] {
            let compared = Compared { what, base, new };
            assert_eq!(compared.is_fine(), is_fine, "{compared:?}");
        }
    }

    #[test]
    fn the_least_of_all_rounds_counts() {
        let first = Compared {
            what: SHORT_TURN,
            base: cost(1000.0, 4.0),
            new: cost(1100.0, 3.0),
        };
        let second = Compared {
            what: SHORT_TURN,
            base: cost(1200.0, 3.0),
            new: cost(1010.0, 5.0),
        };
        assert!(!first.is_fine() && !second.least(second).is_fine());
        let least = first.least(second);
        assert_eq!(
            (least.base, least.new),
            (cost(1000.0, 3.0), cost(1010.0, 3.0))
        );
        assert!(least.is_fine());
    }
}
