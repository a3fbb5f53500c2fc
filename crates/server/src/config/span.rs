//! A duration as people write it in a configuration.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// `"90d"`, `"1h"`, `"5m"`, `"2s"`, `"300ms"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

/// The units, the largest first, with their milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem = || format!("{text:?} is not a duration; write \"5m\", \"2s\" or \"300ms\"");
        let digits = text.find(|char: char| !char.is_ascii_digit());
        let (number, unit) = text.split_at(digits.ok_or_else(problem)?);
        let number: u64 = number.parse().map_err(|_| problem())?;
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, millis) = known.ok_or_else(problem)?;
        number
            .checked_mul(*millis)
            .map(|millis| Self(Duration::from_millis(millis)))
            .ok_or_else(problem)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(de::Error::custom)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// In the largest unit that needs no fraction.
impl std::fmt::Display for Span {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let millis = self.0.as_millis();
        let is_whole = |(_, unit): &&(&str, u64)| millis.is_multiple_of(u128::from(*unit));
        match UNITS.iter().find(is_whole) {
            Some((name, unit)) if millis > 0 => {
                write!(formatter, "{}{name}", millis / u128::from(*unit))
            }
            _ => formatter.write_str("0s"),
        }
    }
}

impl JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "duration"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in [
            ("5m", 300_000),
            ("2s", 2_000),
            ("300ms", 300),
            ("0ms", 0),
            ("1h", 3_600_000),
            ("90d", 7_776_000_000),
        ] {
            assert_eq!(
                text.parse::<Span>().map(|span| span.0.as_millis()),
                Ok(millis)
            );
        }
        for text in [
            "5m", "2s", "300ms", "0s", "1h", "90d", "90s", "36h", "1500ms",
        ] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("0ms".parse::<Span>().unwrap().to_string(), "0s");
        assert_eq!("60s".parse::<Span>().unwrap().to_string(), "1m");
        for text in [
            "",
            "5",
            "m",
            "5 m",
            "-1s",
            "1.5s",
            "99999999999999999999s",
            "5w",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
