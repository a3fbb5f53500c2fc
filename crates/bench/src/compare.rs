//! What is compared at the end of a run: what forwarding costs, and whether PostgreSQL stays as cheap as SQLite.

use std::fmt::Write as _;

use crate::load::{Measured, PACED_PER_SECOND};
use crate::server::Kind;
use crate::table::Row;

/// Medians of fewer rounds differ by more than what is allowed.
const ENOUGH_ROUNDS: usize = 5;

/// A cost, and how much of SQLite's it may be with PostgreSQL. Deltas are not stored one by one, so that theirs is the same.
struct Cost {
    name: &'static str,
    of: fn(&Measured) -> f64,
    allowed: f64,
}

const COSTS: [Cost; 3] = [
    Cost {
        name: "a flooded delta",
        of: |it| it.flood,
        allowed: 1.05,
    },
    Cost {
        name: "a paced delta",
        // A column of its own has what a replica does without any delta, such as heartbeats.
        of: |it| it.paced - it.idle_cpu / PACED_PER_SECOND,
        allowed: 1.05,
    },
    Cost {
        name: "a short turn",
        of: |it| it.short_turn,
        allowed: 1.5,
    },
];

/// What passing a delta on costs, beside asking the owner itself and beside nginx. Nothing unless all of it was measured.
pub(crate) fn forwarding(rows: &[Row<'_>]) -> String {
    let [Some(hop), Some(direct), Some(nginx)] =
        [Kind::Hop, Kind::Postgres, Kind::Nginx].map(|kind| measured(rows, &kind))
    else {
        return String::new();
    };
    let mut text =
        String::from("\n| CPU in µs | passed on | nginx | at the owner |\n|---|--:|--:|--:|\n");
    for cost in &COSTS {
        let [hop, nginx, direct] = [hop, nginx, direct].map(|row| row.median_of(cost.of));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | + {hop:.1} | + {nginx:.1} | {direct:.1} |",
            cost.name
        );
    }
    text
}

/// What costs more with PostgreSQL than it may; nothing unless both stores were measured often enough.
pub(crate) fn too_expensive(rows: &[Row<'_>]) -> Vec<String> {
    let stores = [Kind::Postgres, Kind::Bridge].map(|kind| measured(rows, &kind));
    let [Some(postgres), Some(sqlite)] = stores else {
        return Vec::new();
    };
    if postgres.rounds.len() < ENOUGH_ROUNDS {
        return Vec::new();
    }
    let exceeded = |cost: &Cost| {
        let [dear, cheap] = [postgres, sqlite].map(|row| row.median_of(cost.of));
        let (share, allowed) = (dear / cheap, cost.allowed);
        (share > allowed).then(|| {
            format!(
                "{} takes {dear:.1} µs with PostgreSQL and {cheap:.1} µs with SQLite: {share:.2} times as much, and {allowed} \
                 is allowed",
                cost.name
            )
        })
    };
    COSTS.iter().filter_map(exceeded).collect()
}

/// The row of a server, if it was measured.
fn measured<'r, 'p>(rows: &'r [Row<'p>], kind: &Kind) -> Option<&'r Row<'p>> {
    let row = rows.iter().find(|row| row.kind.name() == kind.name())?;
    (!row.rounds.is_empty()).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &Kind, rounds: usize, costs: [f64; 3]) -> Row<'_> {
        let [flood, paced, short_turn] = costs;
        let measured = Measured {
            flood,
            paced,
            short_turn,
            ..Measured::default()
        };
        Row {
            kind,
            obstacle: None,
            rounds: vec![measured; rounds],
        }
    }

    #[test]
    fn what_is_dearer_than_it_may_be_is_named() {
        for (rounds, costs, names) in [
            (5, [10.0, 20.0, 100.0], &[][..]),
            (5, [10.4, 20.9, 149.0], &[]),
            (5, [10.6, 20.9, 149.0], &["a flooded delta"]),
            (
                5,
                [9.0, 21.1, 151.0],
                &["a paced delta takes 21.1", "a short turn"],
            ),
            (4, [90.0, 90.0, 900.0], &[]),
        ] {
            let rows = [
                row(&Kind::Bridge, rounds, [10.0, 20.0, 100.0]),
                row(&Kind::Postgres, rounds, costs),
            ];
            let said = too_expensive(&rows);
            assert_eq!(said.len(), names.len(), "{said:?}");
            for (said, name) in said.iter().zip(names) {
                assert!(said.starts_with(name), "{said}");
            }
            assert!(too_expensive(&rows[..1]).is_empty());
        }
    }

    #[test]
    fn forwarding_stands_beside_nginx_and_the_owner() {
        let rows = [
            row(&Kind::Nginx, 1, [0.6, 2.4, 35.0]),
            row(&Kind::Postgres, 1, [14.0, 37.0, 750.0]),
            row(&Kind::Hop, 1, [6.0, 17.0, 760.0]),
        ];
        let said = forwarding(&rows);
        assert!(
            said.contains("| a paced delta | + 17.0 | + 2.4 | 37.0 |\n"),
            "{said}"
        );
        assert_eq!(forwarding(&rows[1..]), "");
    }
}
