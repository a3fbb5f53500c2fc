//! `roll_dice`: rolls dice with real randomness.

use std::future::Future;
use std::pin::Pin;

use adk_bridge_agents::tool::{ServerTool, ToolCall, ToolSpec};
use adk_bridge_protocol::calls::Outcome;
use serde_json::{Value, json};

use super::{arguments, object, outcome};

/// There are no dice with more sides.
const MAX_SIDES: u64 = 1000;
/// A reader has no use for more results.
const MAX_COUNT: u64 = 100;

pub(super) struct RollDice(ToolSpec);

impl RollDice {
    pub(super) fn new() -> Self {
        let schema = object(
            json!({
                "sides": {
                    "type": "integer", "minimum": 2, "maximum": MAX_SIDES, "default": 6,
                    "description": "How many sides each die has.",
                },
                "count": {
                    "type": "integer", "minimum": 1, "maximum": MAX_COUNT, "default": 1,
                    "description": "How many dice are rolled.",
                },
            }),
            &[],
        );
        Self(ToolSpec::server(
            "roll_dice",
            "Rolls dice and returns the results and their sum.",
            schema,
        ))
    }
}

impl ServerTool for RollDice {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn run(&self, call: ToolCall) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move { outcome(roll(&arguments(&call.input))) })
    }
}

fn roll(input: &Value) -> Result<Value, String> {
    let sides = whole(input, "sides", 6, 2..=MAX_SIDES)?;
    let count = whole(input, "count", 1, 1..=MAX_COUNT)?;
    let rolls = (0..count)
        .map(|_| one_to(sides))
        .collect::<Result<Vec<_>, _>>()?;
    let total: u64 = rolls.iter().sum();
    Ok(json!({"sides": sides, "rolls": rolls, "total": total}))
}

fn whole(
    input: &Value,
    name: &str,
    default: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, String> {
    let value = match input.get(name) {
        None | Some(Value::Null) => return Ok(default),
        Some(value) => value,
    };
    // Models sometimes write whole numbers as 6.0.
    let number = value.as_u64().or_else(|| {
        value
            .as_f64()
            .filter(|n| n.fract() == 0.0 && *n >= 0.0)
            .map(|n| n as u64)
    });
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            format!(
                "`{name}` must be a whole number from {} to {}",
                range.start(),
                range.end()
            )
        })
}

fn one_to(sides: u64) -> Result<u64, String> {
    // Numbers beyond the last full range would make low results more likely.
    let usable = u64::MAX - u64::MAX % sides;
    loop {
        let number = getrandom::u64().map_err(|error| format!("no randomness: {error}"))?;
        if number < usable {
            return Ok(number % sides + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;

    #[tokio::test]
    async fn rolls_stay_within_their_dice() {
        let cases = [
            (json!({}), Ok((6, 1))),
            (json!({"count": 2}), Ok((6, 2))),
            (json!({"sides": 20.0, "count": 100}), Ok((20, 100))),
            (json!({"sides": 2, "count": null}), Ok((2, 1))),
            (
                json!({"sides": 1}),
                Err("`sides` must be a whole number from 2 to 1000"),
            ),
            (
                json!({"sides": 6.5}),
                Err("`sides` must be a whole number from 2 to 1000"),
            ),
            (
                json!({"sides": "six"}),
                Err("`sides` must be a whole number from 2 to 1000"),
            ),
            (
                json!({"count": 0}),
                Err("`count` must be a whole number from 1 to 100"),
            ),
            (
                json!({"count": -3}),
                Err("`count` must be a whole number from 1 to 100"),
            ),
            (
                json!({"count": 1e30}),
                Err("`count` must be a whole number from 1 to 100"),
            ),
        ];
        for (input, expected) in cases {
            let result = run(&RollDice::new(), input.clone()).await;
            match (result, expected) {
                (Ok(value), Ok((sides, count))) => {
                    let rolls: Vec<u64> = serde_json::from_value(value["rolls"].clone()).unwrap();
                    assert_eq!(rolls.len(), count, "{input}");
                    assert!(
                        rolls.iter().all(|roll| (1..=sides).contains(roll)),
                        "{value}"
                    );
                    assert_eq!(value["total"], rolls.iter().sum::<u64>());
                }
                (result, expected) => {
                    assert_eq!(result.err().as_deref(), expected.err(), "{input}")
                }
            }
        }
    }

    #[test]
    fn every_side_comes_up() {
        // One of six sides is missing from 1,000 rolls once in 10^79 runs.
        let seen: std::collections::BTreeSet<u64> = (0..1000).map(|_| one_to(6).unwrap()).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    }
}
