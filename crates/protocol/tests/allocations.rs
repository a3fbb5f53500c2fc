//! What a text delta may cost: at most two allocations from the agent's line to the reader's frames.

mod delta;

use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::reply::Runner;

use delta::{ADK, GEMINI, LONG, Turn, allocations};

/// Enough that what a growing text costs now and then disappears in the average.
const DELTAS: u32 = 10_000;

#[test]
fn a_delta_costs_at_most_two() {
    // What the line itself makes inevitable: an escaped text must be copied, and the JSON reader notes nested brackets.
    for (name, line, most) in [("ADK", ADK, 0), ("Gemini", GEMINI, 1), ("long", LONG, 2)] {
        for runner in [Runner::Bridge, Runner::Remote] {
            let readers = Dialect::ALL.iter().copied().map(Some);
            for reader in readers.chain([None]) {
                let mut turn = Turn::new(runner, reader);
                turn.line(line);
                let made = allocations(|| {
                    for _ in 0..DELTAS {
                        turn.stream.clear();
                        turn.line(line);
                    }
                });
                let each = f64::from(u32::try_from(made).unwrap()) / f64::from(DELTAS);
                assert!(
                    each <= f64::from(most) + 0.01,
                    "{name}, {runner:?}, {reader:?}: {each} allocations for each delta"
                );
            }
        }
    }
}

/// The full reader stands in where a server writes its JSON in another way.
#[test]
fn a_delta_in_another_form_costs_at_most_two() {
    let mut turn = Turn::new(Runner::Remote, Some(Dialect::Native));
    let spaced = GEMINI.replace("\":", "\": ");
    turn.line(&spaced);
    let made = allocations(|| {
        for _ in 0..DELTAS {
            turn.stream.clear();
            turn.line(&spaced);
        }
    });
    assert!(made <= u64::from(2 * DELTAS + DELTAS / 100), "{made}");
}

/// Frames and effects are written into memory that the outbox has already: 5 bytes of text more fit into the message,
/// and then nothing is left that could grow.
#[test]
fn the_outbox_is_reused() {
    let mut turn = Turn::new(Runner::Bridge, None);
    // 65 pieces of 5 bytes lie in 640, the next size of a string that was doubled from 5.
    for _ in 0..65 {
        turn.line(ADK);
    }
    let made = allocations(|| {
        for _ in 0..8 {
            turn.line(ADK);
        }
    });
    assert_eq!(made, 0);
}
