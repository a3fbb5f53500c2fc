//! What is counted of the usage of agents: tokens, what they cost, and on which day.

use adk_bridge_protocol::id::MessageId;

/// No reply uses more tokens; more would only make sums overflow.
const MOST_TOKENS: u64 = 1 << 50;
/// No reply costs more, in billionths.
const MOST_COST: u64 = 1_000_000_000_000_000_000;

/// How many tokens were used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Those that went into the model.
    pub input: u64,
    /// Those of them that the model had in its cache.
    pub cached: u64,
    /// Those that came out of it, thoughts included.
    pub output: u64,
}

/// What a token costs, in millionths of millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenPrice {
    pub input: u64,
    pub cached: u64,
    pub output: u64,
}

/// The usage of a reply so far.
#[derive(Debug, Clone, Copy)]
pub struct ReplyUsage<'a> {
    pub message_id: &'a MessageId,
    pub agent: &'a str,
    /// The day on which it is counted, in days since 1970.
    pub day: u64,
    pub so_far: Tokens,
    pub price: TokenPrice,
}

/// What was used, and what it cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    pub tokens: Tokens,
    /// In billionths.
    pub cost: u64,
}

/// What a user has used of an agent on a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    pub day: u64,
    pub agent: String,
    pub spent: Spent,
}

impl Tokens {
    /// Tokens in and out.
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// The same, within what can be added up.
    #[must_use]
    pub fn bounded(self) -> Self {
        let input = self.input.min(MOST_TOKENS);
        Self {
            input,
            cached: self.cached.min(input),
            output: self.output.min(MOST_TOKENS),
        }
    }

    /// What has come to those that were counted before. Nothing is taken back.
    pub(super) fn since(self, before: Self) -> Self {
        let input = self.input.saturating_sub(before.input);
        Self {
            input,
            cached: self.cached.saturating_sub(before.cached).min(input),
            output: self.output.saturating_sub(before.output),
        }
    }

    /// What they cost.
    pub(super) fn at(self, price: TokenPrice) -> Spent {
        let cost = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let cost = cost(self.input - self.cached, price.input)
            + cost(self.cached, price.cached)
            + cost(self.output, price.output);
        let cost = u64::try_from(cost / 1_000).unwrap_or(MOST_COST);
        Spent {
            tokens: self,
            cost: cost.min(MOST_COST),
        }
    }
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.tokens.input, more.tokens.input);
        add(&mut self.tokens.cached, more.tokens.cached);
        add(&mut self.tokens.output, more.tokens.output);
        add(&mut self.cost, more.cost);
    }
}
