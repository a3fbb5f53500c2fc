//! Budgets of users: what they have used of agents on a day, and whether they may use more.
//!
//! ```text
//!   a reply is committed ──▶ count: what its usage has grown by ──▶ store, by user, agent and day
//!   a turn begins ──▶ check: the limits of [budget] ──▶ refused until the next day begins
//! ```
//!
//! What is counted is what agents report. A turn that has begun ends, whatever it uses: so a user can go over a limit by
//! what the turns use that run when it is reached, and `limits.turns_per_user` bounds them.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adk_bridge_protocol::id::{MessageId, UserId};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::time::Timestamp;
use arc_swap::ArcSwapOption;
use schemars::JsonSchema;
use serde::Serialize;

use crate::config::{Budget, DayBegins, Offset, Price};
use crate::metrics::Metrics;
use crate::store::{ChatRef, ReplyUsage, Spent, Store, StoreError, TokenPrice, Tokens, UsageRow};

const DAY: i64 = 24 * 60 * 60 * 1_000;
/// Of the units in which costs are stored, in one of the currency.
const BILLION: f64 = 1e9;
/// Prices are configured for a million tokens, and stored for one, in millionths of millionths.
const MILLION: f64 = 1e6;

/// Counts what users use, and refuses what is over their budget.
pub struct Spending {
    store: Arc<dyn Store>,
    /// Absent if nothing is counted.
    budget: ArcSwapOption<Budget>,
    metrics: Arc<Metrics>,
    /// The agents that were found not to report what they use.
    silent: Mutex<HashSet<String>>,
}

/// A day of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day {
    /// Days since 1970.
    pub number: u64,
    /// When the next one begins.
    pub ends: Timestamp,
    /// How far local time is ahead of UTC, in milliseconds.
    offset: i64,
}

/// Which budget is used up, and until when.
#[derive(Debug, Clone, PartialEq)]
pub struct Exceeded {
    limit: LimitState,
    currency: String,
    day: Day,
    /// How long the day still lasts.
    pub wait: Duration,
}

impl std::error::Error for Exceeded {}

#[cfg(test)]
impl Exceeded {
    /// A budget of tokens that begins again after some seconds.
    pub(crate) fn sample(seconds: u64) -> Self {
        let limit = LimitState {
            key: "budget.tokens_per_day",
            agent: None,
            unit: TOKENS,
            limit: 1.0,
            used: 1.0,
            left: 0.0,
        };
        Self {
            limit,
            currency: String::new(),
            day: Day::at(Timestamp::default(), DayBegins::default()),
            wait: Duration::from_secs(seconds),
        }
    }
}

/// A limit, and how much of it is used.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitState {
    /// The key of the configuration.
    pub key: &'static str,
    /// The agent that it is for; by default all of them together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// `tokens`, or `cost` in the currency of the budget.
    pub unit: &'static str,
    pub limit: f64,
    pub used: f64,
    /// What is left of it; 0 if it is used up.
    pub left: f64,
}

/// The budget of a user today.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetState {
    #[schemars(with = "String")]
    pub user: UserId,
    /// Whether usage is counted. Otherwise there are no limits.
    pub counted: bool,
    /// The day, such as `2026-11-19`.
    pub day: String,
    /// When the next day begins, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub resets_at: Timestamp,
    /// What the currency of costs is called; may be empty.
    pub currency: String,
    /// What was used today, of all agents together.
    pub used: UsageState,
    /// What was used today of each agent.
    pub agents: Vec<AgentUsage>,
    /// The limits that there are, each with what is left of it. Those of the user first.
    pub limits: Vec<LimitState>,
    /// Whether a new turn with every agent would be refused.
    pub is_used_up: bool,
}

/// What was used of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentUsage {
    /// The id of the agent.
    pub agent: String,
    #[serde(flatten)]
    pub used: UsageState,
}

/// Tokens, and what they cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageState {
    /// Tokens that went into models.
    pub input_tokens: u64,
    /// Those of them that a model had in its cache.
    pub cached_input_tokens: u64,
    /// Tokens that came out of models, thoughts included.
    pub output_tokens: u64,
    /// Tokens in and out: what limits of tokens count.
    pub tokens: u64,
    /// What they cost, as far as they have prices.
    pub cost: f64,
}

impl Spending {
    pub fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>, budget: &Budget) -> Self {
        let spending = Self {
            store,
            budget: ArcSwapOption::empty(),
            metrics,
            silent: Mutex::default(),
        };
        spending.follow(budget);
        spending
    }

    /// Follows another budget from here on. What was counted stays as it is.
    pub fn follow(&self, budget: &Budget) {
        let counted = budget.counts().then(|| Arc::new(budget.clone()));
        self.budget.store(counted);
    }

    /// Names entries of agents that there are not: of apps that may come, or misspelt.
    pub fn note_unknown(&self, is_known: impl Fn(&str) -> bool) {
        let budget = self.budget.load_full().unwrap_or_default();
        let ids = budget.agents.iter().map(|agent| agent.id.as_str());
        let unknown: Vec<&str> = ids.filter(|id| !is_known(id)).collect();
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            tracing::warn!("[[budget.agents]] names agents that there are not: {unknown}");
        }
    }

    /// Whether anything has to be counted.
    pub fn counts(&self) -> bool {
        self.budget.load().is_some()
    }

    /// Counts what the usage of a reply has grown by. `store`: that of the owner of the chat.
    pub async fn count(
        &self,
        store: &dyn Store,
        chat: ChatRef<'_>,
        reply: (&MessageId, Tokens),
        agent: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(budget) = self.budget.load_full() else {
            return Ok(());
        };
        let (message_id, so_far) = reply;
        let usage = ReplyUsage {
            message_id,
            agent,
            day: Day::at(now, budget.day_begins).number,
            so_far,
            price: budget.price_of(agent).map(token_price).unwrap_or_default(),
        };
        let new = store.count_usage(chat, usage).await?;
        self.metrics.agent(agent).spent(new);
        Ok(())
    }

    /// Notes that an agent has answered and not reported what it used, so that its answers count nothing.
    pub fn note_silent(&self, agent: &str) {
        self.metrics.agent(agent).not_counted();
        // Poisoning is ignored: the set is only added to.
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if silent.insert(agent.to_owned()) {
            tracing::warn!(
                agent,
                "the agent {agent} does not report how many tokens it uses: its answers count nothing in [budget]"
            );
        }
    }

    /// Whether a user may begin a turn with an agent, or which limit is used up.
    pub async fn check(
        &self,
        user: &UserId,
        agent: &str,
        now: Timestamp,
    ) -> Result<Option<Exceeded>, StoreError> {
        let Some(budget) = self.budget.load_full().filter(|it| it.has_limits()) else {
            return Ok(None);
        };
        let day = Day::at(now, budget.day_begins);
        let rows = self.store.usage_of_day(user, day.number).await?;
        let concerns = |limit: &LimitState| limit.agent.as_deref().is_none_or(|own| own == agent);
        let mut limits = limits(&budget, &rows).into_iter().filter(concerns);
        let Some(limit) = limits.find(LimitState::is_used_up) else {
            return Ok(None);
        };
        self.metrics.over_budget(limit.unit);
        Ok(Some(Exceeded {
            limit,
            currency: budget.currency.clone(),
            wait: day.ends.since(now),
            day,
        }))
    }

    /// The budget of a user today.
    pub async fn state(&self, user: &UserId, now: Timestamp) -> Result<BudgetState, StoreError> {
        let budget = self.budget.load_full();
        let counted = budget.is_some();
        let budget = budget.unwrap_or_default();
        let day = Day::at(now, budget.day_begins);
        let rows = match counted {
            true => self.store.usage_of_day(user, day.number).await?,
            false => Vec::new(),
        };
        let mut all = Spent::default();
        for row in &rows {
            all += row.spent;
        }
        let limits = limits(&budget, &rows);
        Ok(BudgetState {
            user: user.clone(),
            counted,
            day: day.to_string(),
            resets_at: day.ends,
            currency: budget.currency.clone(),
            used: all.into(),
            agents: rows
                .into_iter()
                .map(|row| AgentUsage {
                    agent: row.agent,
                    used: row.spent.into(),
                })
                .collect(),
            is_used_up: limits
                .iter()
                .any(|limit| limit.agent.is_none() && limit.is_used_up()),
            limits,
        })
    }

    /// The day on which something so long ago was used, for what is too old.
    pub fn day_before(&self, at: Timestamp) -> u64 {
        let budget = self.budget.load_full().unwrap_or_default();
        Day::at(at, budget.day_begins).number
    }
}

/// The tokens in the metadata of a message, if its agent has reported them.
pub fn tokens_in(metadata: Option<&Json>) -> Option<Tokens> {
    let usage = metadata?.get("usage")?;
    let count = |name: &str| usage.get(name).and_then(|count| count.read::<u64>().ok());
    let (input, output, total) = (
        count("inputTokens"),
        count("outputTokens"),
        count("totalTokens"),
    );
    if input.is_none() && output.is_none() && total.is_none() {
        return None;
    }
    // Some report the sum, and only one of its parts.
    let total = total.unwrap_or_default();
    let input = input.unwrap_or_else(|| total.saturating_sub(output.unwrap_or_default()));
    Some(Tokens {
        input,
        cached: count("cachedInputTokens").unwrap_or_default().min(input),
        output: output.unwrap_or_else(|| total.saturating_sub(input)),
    })
}

/// The limits of a budget, with what is used of each.
fn limits(budget: &Budget, rows: &[UsageRow]) -> Vec<LimitState> {
    let used = |agent: Option<&str>| {
        let mut sum = Spent::default();
        for row in rows {
            if agent.is_none_or(|agent| row.agent == agent) {
                sum += row.spent;
            }
        }
        sum
    };
    let mut limits = Vec::new();
    let mut add = |agent: Option<&str>, [of_tokens, of_cost]: [&'static str; 2], tokens, cost| {
        let used: UsageState = used(agent).into();
        let mut push = |key, unit, limit: f64, used: f64| {
            limits.push(LimitState {
                key,
                agent: agent.map(str::to_owned),
                unit,
                limit,
                used,
                left: (limit - used).max(0.0),
            });
        };
        if let Some(limit) = tokens {
            push(of_tokens, TOKENS, float(limit), float(used.tokens));
        }
        if let Some(limit) = cost {
            push(of_cost, COST, limit, used.cost);
        }
    };
    add(
        None,
        ["budget.tokens_per_day", "budget.cost_per_day"],
        budget.tokens_per_day,
        budget.cost_per_day,
    );
    for agent in &budget.agents {
        add(
            Some(&agent.id),
            ["budget.agents.tokens_per_day", "budget.agents.cost_per_day"],
            agent.tokens_per_day,
            agent.cost_per_day,
        );
    }
    limits
}

const TOKENS: &str = "tokens";
const COST: &str = "cost";

impl LimitState {
    fn is_used_up(&self) -> bool {
        self.used >= self.limit
    }
}

impl From<Spent> for UsageState {
    fn from(Spent { tokens, cost }: Spent) -> Self {
        Self {
            input_tokens: tokens.input,
            cached_input_tokens: tokens.cached,
            output_tokens: tokens.output,
            tokens: tokens.total(),
            cost: float(cost) / BILLION,
        }
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LimitState {
            key, limit, used, ..
        } = &self.limit;
        formatter.write_str("your budget")?;
        if let Some(agent) = &self.limit.agent {
            write!(formatter, " for the agent {agent:?}")?;
        }
        formatter.write_str(" for today is used up: ")?;
        match self.limit.unit {
            TOKENS => write!(formatter, "{used} of {limit} tokens")?,
            _ => write!(
                formatter,
                "{} of {}{}{}",
                Money(*used),
                Money(*limit),
                if self.currency.is_empty() { "" } else { " " },
                self.currency
            )?,
        }
        let (moment, minutes) = (self.day.end(), self.wait.as_secs().div_ceil(60));
        write!(
            formatter,
            " ({key}); it begins again at {moment}, in {} h {} min",
            minutes / 60,
            minutes % 60
        )
    }
}

/// An amount of money with as many digits as it needs, and at least two.
struct Money(f64);

impl fmt::Display for Money {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.6}", self.0);
        let kept = text.trim_end_matches('0').len();
        let least = text.find('.').map_or(text.len(), |point| point + 3);
        formatter.write_str(&text[..kept.max(least)])
    }
}

impl Day {
    /// The day of a moment.
    pub fn at(now: Timestamp, begins: DayBegins) -> Self {
        let shift = begins.offset - begins.after_midnight;
        let local = signed(now) + shift;
        let number = local.div_euclid(DAY).max(0);
        Self {
            number: number.unsigned_abs(),
            ends: Timestamp::from_millis(u64::try_from((number + 1) * DAY - shift).unwrap_or(0)),
            offset: begins.offset,
        }
    }

    /// When it ends, as it is written where the budget's offset holds.
    fn end(&self) -> String {
        let local = signed(self.ends) + self.offset;
        let minutes = local.rem_euclid(DAY) / 60_000;
        let date = Date(local.div_euclid(DAY));
        let zone = match self.offset {
            0 => "UTC".to_owned(),
            offset => Offset(offset).to_string(),
        };
        format!("{date} {:02}:{:02} {zone}", minutes / 60, minutes % 60)
    }
}

/// The date on which it begins.
impl fmt::Display for Day {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        date_of(self.number).fmt(formatter)
    }
}

/// The date of a day, such as `2026-11-19`.
pub fn date_of(day: u64) -> impl fmt::Display {
    Date(i64::try_from(day).unwrap_or(i64::MAX / DAY))
}

/// A number of days since 1970, written as a date.
struct Date(i64);

impl fmt::Display for Date {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Years begin in March here, so that a leap day is the last of its year; 400 years have 146097 days.
        let days = self.0 + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = (march_month + 2) % 12 + 1;
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        write!(formatter, "{year:04}-{month:02}-{day:02}")
    }
}

fn signed(at: Timestamp) -> i64 {
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX / 2)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the configuration bounds prices"
)]
fn token_price(price: Price) -> TokenPrice {
    let of_token = |of_million: f64| (of_million * MILLION).round() as u64;
    TokenPrice {
        input: of_token(price.input),
        cached: of_token(price.cached.unwrap_or(price.input)),
        output: of_token(price.output),
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is shown to people")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use adk_bridge_protocol::id::ChatId;
    use adk_bridge_protocol::reply::Record;
    use serde_json::json;

    use super::*;
    use crate::store::sqlite::SqliteStore;
    use crate::store::{Cut, DataDir, Opening};

    const HOUR: u64 = 3_600_000;
    /// 2026-11-19 in UTC.
    const TODAY: u64 = 20_776 * 24 * HOUR;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn budget(toml: &str) -> Budget {
        let (config, problems) = crate::config::Config::read_text(toml);
        assert!(problems.is_empty(), "{problems:?}");
        config.budget
    }

    fn tokens(input: u64, cached: u64, output: u64) -> Tokens {
        Tokens {
            input,
            cached,
            output,
        }
    }

    /// A user with a reply in a chat.
    struct World {
        spending: Spending,
        user: UserId,
        chat: ChatId,
        reply: MessageId,
        _directory: tempfile::TempDir,
    }

    impl World {
        async fn new(toml: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let data = Arc::new(DataDir::open(directory.path()).unwrap());
            let store = Arc::new(SqliteStore::open(data, None).await.unwrap());
            let (user, chat) = (UserId::from("alice"), ChatId::from("chat-1"));
            let record: Record = serde_json::from_value(json!({
                "message": {"id": "m1", "role": "assistant", "parts": []},
                "calls": [], "asking": true, "steps": 1, "retried": false,
            }))
            .unwrap();
            let opening = Opening {
                messages: &[],
                cut: Cut::Nothing,
                heard: false,
                agent: Some("a"),
            };
            let of = ChatRef {
                user: &user,
                id: &chat,
            };
            store.begin(of, opening, &record, &[], at(0)).await.unwrap();
            Self {
                spending: Spending::new(store, Arc::default(), &budget(toml)),
                reply: record.message.id.clone(),
                user,
                chat,
                _directory: directory,
            }
        }

        async fn use_up(&self, agent: &str, so_far: Tokens, now: u64) {
            let chat = ChatRef {
                user: &self.user,
                id: &self.chat,
            };
            let spending = &self.spending;
            let counted = spending.count(
                &*spending.store,
                chat,
                (&self.reply, so_far),
                agent,
                at(now),
            );
            counted.await.unwrap();
        }

        async fn check(&self, agent: &str, now: u64) -> Option<String> {
            let checked = self.spending.check(&self.user, agent, at(now));
            checked.await.unwrap().map(|exceeded| exceeded.to_string())
        }
    }

    #[tokio::test]
    async fn a_budget_of_tokens_lasts_for_a_day() {
        let world = World::new("[budget]\ntokens_per_day = 100").await;
        assert_eq!(world.check("a", TODAY).await, None);
        world.use_up("a", tokens(90, 0, 9), TODAY + HOUR).await;
        assert_eq!(world.check("a", TODAY + HOUR).await, None);
        world.use_up("a", tokens(90, 0, 11), TODAY + 2 * HOUR).await;
        assert_eq!(
            world.check("b", TODAY + 21 * HOUR + 1).await.unwrap(),
            "your budget for today is used up: 101 of 100 tokens (budget.tokens_per_day); it begins again at \
             2026-11-20 00:00 UTC, in 3 h 0 min"
        );
        let last = world
            .spending
            .check(&world.user, "a", at(TODAY + 24 * HOUR - 1));
        let wait = last.await.unwrap().unwrap().wait;
        assert_eq!(wait, Duration::from_millis(1));
        assert_eq!(world.check("a", TODAY + 24 * HOUR).await, None);
        // The reply goes on: what is new belongs to the new day.
        world
            .use_up("a", tokens(150, 0, 51), TODAY + 25 * HOUR)
            .await;
        assert!(world.check("a", TODAY + 25 * HOUR).await.is_some());
        let state = world.spending.state(&world.user, at(TODAY + 25 * HOUR));
        let state = state.await.unwrap();
        assert_eq!((state.used.tokens, state.is_used_up), (100, true));
        assert_eq!(
            (state.day.as_str(), state.limits[0].left),
            ("2026-11-20", 0.0)
        );
        let nobody = UserId::from("bob");
        assert_eq!(
            world.spending.check(&nobody, "a", at(TODAY)).await.unwrap(),
            None
        );
    }

    #[tokio::test]
    async fn a_budget_of_money_follows_the_prices() {
        let world = World::new(
            "[budget]\ncost_per_day = 2\ncurrency = \"EUR\"\nday_begins = \"04:00+09:00\"\n\
             price = { input = 10, output = 30 }\n\
             [[budget.agents]]\nid = \"b\"\ncost_per_day = 0.5\nprice = { input = 0.0375, cached = 0.01, output = 1 }",
        )
        .await;
        world
            .use_up("b", tokens(10_000_000, 4_000_000, 300_000), TODAY)
            .await;
        let state = world.spending.state(&world.user, at(TODAY)).await.unwrap();
        assert!((state.used.cost - 0.565).abs() < 1e-9, "{state:?}");
        // 04:00 there is 19:00 in UTC, so that the day began on the 19th.
        assert_eq!(state.day, "2026-11-19");
        assert_eq!(
            world.check("b", TODAY).await.unwrap(),
            "your budget for the agent \"b\" for today is used up: 0.565 of 0.50 EUR (budget.agents.cost_per_day); it \
             begins again at 2026-11-20 04:00 +09:00, in 19 h 0 min"
        );
        assert_eq!(world.check("a", TODAY).await, None);
        world
            .use_up("a", tokens(10_100_000, 4_000_000, 350_000), TODAY)
            .await;
        let refused = world.check("a", TODAY).await.unwrap();
        assert!(
            refused.contains(": 3.065 of 2.00 EUR (budget.cost_per_day);"),
            "{refused}"
        );
        world.spending.follow(&budget(
            "[budget]\ncost_per_day = 3.07\nprice = { input = 1, output = 1 }\nday_begins = \"04:00+09:00\"",
        ));
        assert_eq!(world.check("a", TODAY).await, None);
        world.spending.follow(&Budget::default());
        assert!(!world.spending.counts());
        assert_eq!(world.check("a", TODAY).await, None);
    }

    #[tokio::test]
    async fn nothing_is_stored_without_a_budget() {
        let world = World::new("").await;
        world.use_up("a", tokens(1, 0, 1), TODAY).await;
        let spending = &world.spending;
        let stored = spending.store.usage_of_user(&world.user, None, 10);
        assert_eq!(stored.await.unwrap(), []);
        spending.follow(&budget("[budget]\ncount = true"));
        world.use_up("a", tokens(1, 0, 1), TODAY).await;
        assert_eq!(world.check("a", TODAY).await, None);
        let state = spending.state(&world.user, at(TODAY)).await.unwrap();
        assert_eq!((state.used.tokens, state.limits.len()), (2, 0));
    }

    #[test]
    fn what_agents_report_is_read() {
        let read = |usage: serde_json::Value| tokens_in(Some(&json!({"usage": usage}).into()));
        let all =
            json!({"inputTokens": 7, "outputTokens": 5, "cachedInputTokens": 3, "totalTokens": 12});
        assert_eq!(read(all), Some(tokens(7, 3, 5)));
        assert_eq!(read(json!({"totalTokens": 12})), Some(tokens(12, 0, 0)));
        assert_eq!(
            read(json!({"inputTokens": 7, "totalTokens": 12})),
            Some(tokens(7, 0, 5))
        );
        assert_eq!(read(json!({"inputTokens": -1})), None);
        assert_eq!(read(json!({})), None);
        assert_eq!(tokens_in(None), None);
    }

    #[test]
    fn days_have_dates() {
        for (day, date) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_776, "2026-11-19"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(date_of(day).to_string(), date, "{day}");
        }
    }

    #[test]
    fn money_has_the_digits_that_it_needs() {
        for (amount, shown) in [
            (5.0, "5.00"),
            (0.5, "0.50"),
            (0.000_125, "0.000125"),
            (1e6, "1000000.00"),
        ] {
            assert_eq!(Money(amount).to_string(), shown);
        }
    }
}
