//! The table that closes a run.

use std::fmt::Write as _;

use crate::load::Measured;
use crate::server::Kind;

/// One line for each server, every number with what it counts.
pub(crate) fn render(rows: &[(Kind, Result<Measured, String>)]) -> String {
    let mut text = String::from(
        "\nCPU of the server process in µs, memory in MB; every delta was counted and its text compared.\n\n\
         | server | flood µs/delta | paced µs/delta | µs/short turn | µs/delta, history 2 | history 400 | idle RSS | \
         peak RSS | 200,000 deltas + | stalled reader + |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (kind, measured) in rows {
        // Writing to a string cannot fail.
        let _ = match measured {
            Err(reason) => writeln!(text, "| {} | not run: {reason} ||||||||||", kind.name()),
            Ok(m) => {
                let [short, long] = m.history;
                let large = m.large.map_or_else(
                    || "- | -".to_owned(),
                    |large| format!("{:.1} | {:.1}", large.steady, large.stalled - large.steady),
                );
                writeln!(
                    text,
                    "| {} | {:.2} | {:.1} | {:.0} | {short:.2} | {long:.2} | {:.1} | {:.1} | {large} |",
                    kind.name(),
                    m.flood,
                    m.paced,
                    m.short_turn,
                    m.idle,
                    m.peak,
                )
            }
        };
    }
    text
}
