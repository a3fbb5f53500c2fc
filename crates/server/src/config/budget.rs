//! `[budget]`: how many tokens, and how much money, a user may spend on agents in one day.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// What a million tokens may cost at most: above this, the price is most likely that of something else.
const MAX_PRICE: f64 = 1_000_000.0;
/// What a day may cost at most: the store counts billionths in 63 bits.
const MAX_COST: f64 = 1_000_000_000.0;
/// The longest label of a currency.
const MAX_CURRENCY: usize = 16;
const MINUTE: i64 = 60_000;
/// No place of the earth is further from UTC.
const MAX_OFFSET_HOURS: i64 = 14;

/// How much users may use agents in one day. Nothing is counted unless a limit is set, or `count` is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Whether usage is counted and shown even without a limit.
    pub count: bool,
    /// How many tokens, in and out, a user may use in one day with all agents together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub tokens_per_day: Option<u64>,
    /// How much a user may spend in one day on all agents together, in the currency of the prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_day: Option<f64>,
    /// What tokens cost for every agent without a price of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// What the currency of prices and costs is called. It is only shown.
    pub currency: String,
    /// When a day begins, such as "00:00" for midnight in UTC, or "04:00+09:00" with the offset of a time zone.
    #[schemars(with = "String", extend("format" = "time"))]
    pub day_begins: DayBegins,
    /// Limits and prices of single agents. Their limits count in addition to those of all agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentBudget>,
}

/// The budget of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentBudget {
    /// The id of the agent, as `GET /api/agents` lists it.
    pub id: String,
    /// How many tokens, in and out, a user may use in one day with this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub tokens_per_day: Option<u64>,
    /// How much a user may spend in one day on this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_day: Option<f64>,
    /// What its tokens cost, instead of `budget.price`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// What a million tokens cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens that go into the model.
    pub input: f64,
    /// Input tokens that the model has in its cache; by default they cost the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
    /// Tokens that come out of the model, thoughts included.
    pub output: f64,
}

/// When a day begins, as milliseconds between midnight in UTC and that moment; the offset is only shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DayBegins {
    /// After midnight, where the offset is.
    pub after_midnight: i64,
    /// How far local time is ahead of UTC.
    pub offset: i64,
}

impl Budget {
    /// Whether anything has to be counted.
    pub fn counts(&self) -> bool {
        self.count || self.has_limits()
    }

    /// Whether a request may be refused.
    pub fn has_limits(&self) -> bool {
        let of_agents = self.agents.iter();
        self.tokens_per_day.is_some()
            || self.cost_per_day.is_some()
            || of_agents
                .into_iter()
                .any(|agent| agent.tokens_per_day.is_some() || agent.cost_per_day.is_some())
    }

    /// What tokens of an agent cost, if that is known.
    pub fn price_of(&self, agent: &str) -> Option<Price> {
        let own = self.agents.iter().find(|own| own.id == agent);
        own.and_then(|own| own.price).or(self.price)
    }

    /// `agents`: the ids of all agents, if the configuration tells them.
    pub(super) fn check(&self, agents: Option<&[&str]>) -> Vec<ConfigError> {
        let mut problems = Vec::new();
        let mut bad = |key, problem: &str| problems.push(ConfigError::value(key, problem));
        let is_cost = |cost: f64| cost > 0.0 && cost <= MAX_COST;
        if self.tokens_per_day == Some(0) {
            bad("budget.tokens_per_day", POSITIVE);
        }
        if self.cost_per_day.is_some_and(|cost| !is_cost(cost)) {
            bad("budget.cost_per_day", BAD_COST);
        }
        if self.price.is_some_and(|price| !price.is_sound()) {
            bad("budget.price", BAD_PRICE);
        }
        if self.currency.chars().count() > MAX_CURRENCY
            || self.currency.chars().any(char::is_control)
        {
            bad(
                "budget.currency",
                "write a short name or sign, such as \"USD\"; at most 16 characters",
            );
        }
        let unpriced = |id: &&&str| self.price_of(id).is_none();
        let without_price = agents.map(|ids| ids.iter().find(unpriced));
        if self.cost_per_day.is_some() && self.price.is_none() {
            match without_price {
                Some(None) => {}
                Some(Some(id)) => bad(
                    "budget.cost_per_day",
                    &format!(
                        "the tokens of the agent {id:?} have no price; set budget.price, or price of its entry in [[budget.agents]]"
                    ),
                ),
                None => bad(
                    "budget.cost_per_day",
                    "agents may come that have no price; set budget.price",
                ),
            }
        }
        for (index, agent) in self.agents.iter().enumerate() {
            if agent.id.is_empty() {
                bad("budget.agents.id", "write the id of an agent");
            }
            if self.agents[..index].iter().any(|it| it.id == agent.id) {
                bad(
                    "budget.agents.id",
                    &format!("there are two entries for {:?}; make them one", agent.id),
                );
            }
            if agent.tokens_per_day == Some(0) {
                bad("budget.agents.tokens_per_day", POSITIVE);
            }
            if agent.cost_per_day.is_some_and(|cost| !is_cost(cost)) {
                bad("budget.agents.cost_per_day", BAD_COST);
            }
            if agent.price.is_some_and(|price| !price.is_sound()) {
                bad("budget.agents.price", BAD_PRICE);
            }
            if agent.cost_per_day.is_some() && self.price_of(&agent.id).is_none() {
                bad(
                    "budget.agents.cost_per_day",
                    "the tokens of this agent have no price; set price in its entry, or budget.price",
                );
            }
            if agents.is_some_and(|ids| !ids.contains(&agent.id.as_str())) {
                bad(
                    "budget.agents.id",
                    &format!("there is no agent {:?}", agent.id),
                );
            }
        }
        problems
    }
}

const POSITIVE: &str = "must be greater than 0; leave the key out for no limit";
const BAD_COST: &str =
    "must be greater than 0 and at most 1000000000; leave the key out for no limit";
const BAD_PRICE: &str =
    "write what a million tokens cost, such as { input = 0.3, cached = 0.075, output = 2.5 }";

impl Price {
    fn is_sound(&self) -> bool {
        let fits = |price: f64| (0.0..=MAX_PRICE).contains(&price);
        fits(self.input) && fits(self.output) && self.cached.is_none_or(fits)
    }
}

impl std::str::FromStr for DayBegins {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem = || {
            format!(
                "{text:?} is not a time of day; write \"00:00\", or with an offset from UTC \"04:00+09:00\""
            )
        };
        let (time, offset) = match text.find(['+', '-']) {
            Some(sign) => text.split_at(sign),
            None => (text, "+00:00"),
        };
        let (sign, offset) = offset.split_at_checked(1).ok_or_else(problem)?;
        let (time, offset) = (millis_of(time), millis_of(offset));
        let (Some(after_midnight), Some(offset)) = (time, offset) else {
            return Err(problem());
        };
        if offset > MAX_OFFSET_HOURS * 60 * MINUTE {
            return Err(problem());
        }
        Ok(Self {
            after_midnight,
            offset: match sign {
                "-" => -offset,
                _ => offset,
            },
        })
    }
}

/// `HH:MM` in milliseconds.
fn millis_of(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str, below: i64| {
        let is_plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| is_plain)?;
        (0..below).contains(&number).then_some(number)
    };
    Some((number(hours, 24)? * 60 + number(minutes, 60)?) * MINUTE)
}

impl std::fmt::Display for DayBegins {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let minutes = self.after_midnight / MINUTE;
        write!(formatter, "{:02}:{:02}", minutes / 60, minutes % 60)?;
        if self.offset == 0 {
            return Ok(());
        }
        write!(formatter, "{}", Offset(self.offset))
    }
}

/// An offset from UTC, such as `+09:00`.
pub struct Offset(pub i64);

impl std::fmt::Display for Offset {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let minutes = self.0.abs() / MINUTE;
        let sign = if self.0 < 0 { '-' } else { '+' };
        write!(formatter, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

impl<'de> Deserialize<'de> for DayBegins {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl Serialize for DayBegins {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day() {
        let hour = 60 * MINUTE;
        for (text, after_midnight, offset) in [
            ("00:00", 0, 0),
            ("04:30", 4 * hour + 30 * MINUTE, 0),
            ("00:00+09:00", 0, 9 * hour),
            ("23:59-03:30", 24 * hour - MINUTE, -3 * hour - 30 * MINUTE),
        ] {
            let begins = DayBegins {
                after_midnight,
                offset,
            };
            assert_eq!(text.parse(), Ok(begins), "{text}");
            assert_eq!(begins.to_string(), text);
        }
        for text in [
            "",
            "0:00",
            "24:00",
            "00:60",
            "00:00+15:00",
            "00:00+9",
            "noon",
            "00:00Z",
            "+0:00",
            "00:00+",
            "-1:00",
            "00:é0",
        ] {
            assert!(text.parse::<DayBegins>().is_err(), "{text}");
        }
    }
}
