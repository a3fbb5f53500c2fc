//! The table at the end of a run.

use std::fmt::Write as _;

use crate::load::Measured;
use crate::server::Kind;

/// A server, and its costs in each round.
pub(crate) struct Row<'p> {
    pub(crate) kind: &'p Kind,
    pub(crate) obstacle: Option<String>,
    pub(crate) rounds: Vec<Measured>,
}

impl<'p> Row<'p> {
    pub(crate) fn new(kind: &'p Kind) -> Self {
        Self {
            kind,
            obstacle: kind.obstacle(),
            rounds: Vec::new(),
        }
    }

    /// The median of a cost that every round measures; 0 without rounds.
    pub(crate) fn median_of(&self, cost: impl Fn(&Measured) -> f64) -> f64 {
        self.median(|it| Some(cost(it))).unwrap_or_default()
    }

    /// The median of one number over all rounds; `None` if it was not measured.
    pub(crate) fn median(&self, number: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
        let mut numbers: Vec<f64> = self.rounds.iter().filter_map(number).collect();
        numbers.sort_by(f64::total_cmp);
        let above = *numbers.get(numbers.len() / 2)?;
        let below = *numbers.get((numbers.len() - 1) / 2)?;
        Some((below + above) / 2.0)
    }
}

/// One line for each server; every number has its unit.
pub(crate) fn render(rows: &[Row<'_>]) -> String {
    let mut text = String::from(
        "\nCPU of the server process in µs, memory in MB; every delta was counted and its text compared.\n",
    );
    let rounds = rows.iter().map(|row| row.rounds.len()).max();
    if let Some(rounds @ 2..) = rounds {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "Each number is the median of {rounds} rounds.");
    }
    text += "\n\
        | server | flood µs/delta | paced µs/delta | µs/short turn | µs/delta, history 2 | history 400 | idle µs/s | \
        idle RSS | peak RSS | 200,000 deltas + | stalled reader + |\n\
        |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
    for row in rows {
        let _ = write!(text, "| {} |", row.kind.name());
        if let Some(reason) = &row.obstacle {
            let _ = writeln!(text, " not run: {reason} ||||||||||");
            continue;
        }
        for (digits, number) in columns(row) {
            let _ = match number {
                Some(number) => write!(text, " {number:.digits$} |"),
                None => write!(text, " - |"),
            };
        }
        text.push('\n');
    }
    text
}

/// The numbers of a row, each with its significant decimals.
fn columns(row: &Row<'_>) -> [(usize, Option<f64>); 10] {
    [
        (2, row.median(|it| Some(it.flood))),
        (1, row.median(|it| Some(it.paced))),
        (0, row.median(|it| Some(it.short_turn))),
        (2, row.median(|it| Some(it.history?[0]))),
        (2, row.median(|it| Some(it.history?[1]))),
        (0, row.median(|it| Some(it.idle_cpu))),
        (1, row.median(|it| Some(it.idle))),
        (1, row.median(|it| Some(it.peak))),
        (1, row.median(|it| Some(it.large?.steady))),
        (1, row.median(|it| Some(it.large?.stalled))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(flood: f64) -> Measured {
        Measured {
            flood,
            paced: 0.0,
            short_turn: 0.0,
            paced_switches: 0.0,
            short_turn_switches: 0.0,
            history: None,
            idle_cpu: 0.0,
            idle: 0.0,
            peak: 0.0,
            large: None,
        }
    }

    #[test]
    fn a_column_has_the_median_of_its_rounds() {
        for (floods, expected) in [
            (&[][..], None),
            (&[3.0], Some(3.0)),
            (&[9.0, 1.0], Some(5.0)),
            (&[9.0, 1.0, 2.0], Some(2.0)),
        ] {
            let row = Row {
                kind: &Kind::Translator,
                obstacle: None,
                rounds: floods.iter().copied().map(measured).collect(),
            };
            assert_eq!(row.median(|it| Some(it.flood)), expected, "{floods:?}");
            assert_eq!(row.median(|it| Some(it.large?.steady)), None);
        }
    }
}
