//! The figures of a run as they stand in docs/performance.md: a column for each server.

use std::fmt::Write as _;

use crate::load::Measured;
use crate::server::Kind;
use crate::table::Row;

/// A line of the document: what it says, the number, and its significant decimals.
type Line = (&'static str, fn(&Measured) -> Option<f64>, usize);

const LINES: [Line; 11] = [
    (
        "flood (8 clients, turns of 1,000 deltas), µs per delta",
        |it| Some(it.flood),
        1,
    ),
    (
        "paced (10 turns, 30 deltas a second), µs per delta",
        |it| Some(it.paced),
        0,
    ),
    (
        "switches between threads per paced delta",
        |it| Some(it.paced_switches),
        2,
    ),
    (
        "a turn of 20 deltas in a new chat, µs",
        |it| Some(it.short_turn),
        0,
    ),
    (
        "switches between threads per turn",
        |it| Some(it.short_turn_switches),
        1,
    ),
    (
        "history of 2 messages, µs per delta",
        |it| Some(it.history?[0]),
        1,
    ),
    (
        "history of 400 messages, µs per delta",
        |it| Some(it.history?[1]),
        1,
    ),
    ("nothing to do, µs per second", |it| Some(it.idle_cpu), 0),
    ("peak RSS, MB", |it| Some(it.peak), 0),
    (
        "one answer of 200,000 deltas (5.6 MB), + MB",
        |it| Some(it.large?.steady),
        1,
    ),
    (
        "a reader that stops in it for 20 seconds, + MB",
        |it| Some(it.large?.stalled),
        1,
    ),
];

/// The tables of the document that these servers are enough for.
pub(crate) fn render(rows: &[Row<'_>]) -> String {
    let (measured, missing): (Vec<&Row<'_>>, Vec<_>) =
        rows.iter().partition(|row| !row.rounds.is_empty());
    let names = |rows: &[&Row<'_>]| {
        let names: Vec<String> = rows.iter().map(|row| title(row.kind)).collect();
        names.join(" | ")
    };
    // Writing to a string cannot fail.
    let mut text = format!(
        "\n| | {} |\n|---{}|\n",
        names(&measured),
        "|--:".repeat(measured.len())
    );
    for (what, number, digits) in LINES {
        let _ = write!(text, "| {what} |");
        for row in &measured {
            let _ = match row.median(number) {
                Some(number) => write!(text, " {number:.digits$} |"),
                None => write!(text, " |"),
            };
        }
        text.push('\n');
    }
    for row in missing {
        let reason = row.obstacle.as_deref().unwrap_or("not measured");
        let _ = writeln!(text, "\n{} was not run: {reason}", row.kind.name());
    }
    if measured.iter().any(|row| row.kind.is_slow()) {
        text += "\nThe AI SDK and google-adk had a twentieth of the load of the others.\n";
    }
    text + &shares(&measured)
}

/// What the document calls a server.
fn title(kind: &Kind) -> String {
    match kind {
        Kind::Translator => "bare translator".to_owned(),
        Kind::AiSdk(version) => format!("Node, `ai` v{version}"),
        other => other.name(),
    }
}

/// What a bridge takes otherwise than with SQLite, as a share of that.
fn shares(measured: &[&Row<'_>]) -> String {
    let find = |kind| measured.iter().find(|row| *row.kind == kind);
    let Some(alone) = find(Kind::Bridge) else {
        return String::new();
    };
    let mut text = String::new();
    for (what, kind) in [
        ("with PostgreSQL", Kind::Postgres),
        ("a replica that only passes answers on", Kind::Hop),
    ] {
        let Some(row) = find(kind) else { continue };
        if text.is_empty() {
            text += "\n| | a flooded delta | a paced delta | a short turn |\n|---|--:|--:|--:|\n";
        }
        let _ = write!(text, "| {what} |");
        for number in [
            |it: &Measured| it.flood,
            |it: &Measured| it.paced,
            |it: &Measured| it.short_turn,
        ] {
            let of = |row: &Row<'_>| row.median(|it| Some(number(it))).unwrap_or(f64::NAN);
            let _ = write!(text, " {:.0} % |", of(row) / of(alone) * 100.0);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &Kind, flood: f64) -> Row<'_> {
        let measured = Measured {
            flood,
            paced: 50.0,
            short_turn: 500.0,
            paced_switches: 1.0,
            short_turn_switches: 10.0,
            history: None,
            idle_cpu: 0.0,
            idle: 0.0,
            peak: 0.0,
            large: None,
        };
        Row {
            kind,
            obstacle: None,
            rounds: vec![measured],
        }
    }

    #[test]
    fn every_server_has_a_column() {
        let rows = [
            row(&Kind::Translator, 1.0),
            row(&Kind::Bridge, 4.0),
            row(&Kind::AiSdk(6), 90.0),
        ];
        let text = render(&rows);
        assert!(
            text.contains("| | bare translator | adk-bridge | Node, `ai` v6 |\n|---|--:|--:|--:|")
        );
        assert!(text.contains("turns of 1,000 deltas), µs per delta | 1.0 | 4.0 | 90.0 |"));
        assert!(text.contains("history of 2 messages, µs per delta | | | |"));
        assert!(!text.contains('%'));
    }

    #[test]
    fn what_was_not_run_has_a_reason() {
        let mut missing = row(&Kind::GoogleAdk, 0.0);
        missing.rounds.clear();
        missing.obstacle = Some("no Python".to_owned());
        let text = render(&[missing]);
        assert!(text.contains("google-adk was not run: no Python"));
    }

    #[test]
    fn stores_are_shares_of_the_usual_one() {
        let rows = [row(&Kind::Bridge, 4.0), row(&Kind::Postgres, 5.0)];
        assert!(render(&rows).contains("| with PostgreSQL | 125 % | 100 % | 100 % |"));
    }
}
