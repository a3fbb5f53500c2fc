//! `process_payment`: pays from a wallet that belongs to the chat.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use adk_bridge_agents::tool::{ServerTool, ToolCall, ToolSpec};
use adk_bridge_protocol::calls::Outcome;
use serde_json::{Value, json};

use super::{arguments, object, outcome, required_text, text_of};

/// The key of the balance in the chat's state, in cents: sums of cents are exact.
const WALLET: &str = "demo.wallet.cents";
const STARTING_CENTS: i64 = 1000 * 100;
/// Far more than the wallet holds, and small enough for exact arithmetic.
const MAX_AMOUNT: f64 = 1_000_000.0;
const MAX_TEXT_CHARS: usize = 200;

/// The price of one unit in US cents. The rates are invented and never change.
const CURRENCIES: &[(&str, f64)] = &[("USD", 100.0), ("EUR", 110.0), ("GBP", 125.0), ("JPY", 0.7)];

pub(super) struct ProcessPayment {
    spec: ToolSpec,
    takes: Duration,
}

impl ProcessPayment {
    pub(super) fn new(takes: Duration) -> Self {
        let codes: Vec<_> = CURRENCIES.iter().map(|(code, _)| code).collect();
        let schema = object(
            json!({
                "amount": {
                    "type": "number", "exclusiveMinimum": 0, "maximum": MAX_AMOUNT,
                    "description": "How much is paid, in units of the currency.",
                },
                "recipient": {"type": "string", "description": "Who is paid."},
                "currency": {
                    "type": "string", "enum": codes, "default": "USD",
                    "description": "The currency of the amount. The wallet holds US dollars.",
                },
                "description": {"type": "string", "description": "What is paid for."},
            }),
            &["amount", "recipient"],
        );
        let spec = ToolSpec {
            needs_approval: true,
            ..ToolSpec::server(
                "process_payment",
                "Makes a payment from the user's wallet.",
                schema,
            )
        };
        Self { spec, takes }
    }
}

impl ServerTool for ProcessPayment {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: ToolCall) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move { outcome(self.pay(&call).await) })
    }
}

impl ProcessPayment {
    async fn pay(&self, call: &ToolCall) -> Result<Value, String> {
        let input = arguments(&call.input);
        let payment = Payment::read(&input)?;
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        // Checking the balance and taking from it is one step, since payments may run in parallel.
        let cents = payment.cents;
        let taken = call
            .state
            .update(
                WALLET,
                Box::new(move |stored| {
                    let balance = stored
                        .as_ref()
                        .and_then(Value::as_i64)
                        .unwrap_or(STARTING_CENTS);
                    if cents > balance {
                        return (stored, json!({"short": balance}));
                    }
                    (
                        Some(json!(balance - cents)),
                        json!({"left": balance - cents}),
                    )
                }),
            )
            .await?;
        let Some(left) = taken.get("left").and_then(Value::as_i64) else {
            let balance = taken
                .get("short")
                .and_then(Value::as_i64)
                .unwrap_or_default();
            return Err(format!(
                "the wallet holds {} USD, which is not enough for {} USD",
                dollars(balance),
                dollars(cents)
            ));
        };
        let mut receipt = json!({
            "status": "completed",
            "transactionId": format!("tx-{}", call.call_id),
            "amount": payment.amount,
            "currency": payment.currency,
            "recipient": payment.recipient,
            "charged": dollars(cents),
            "balance": dollars(left),
        });
        if let Some(description) = payment.description {
            receipt["description"] = json!(description);
        }
        Ok(receipt)
    }
}

struct Payment<'v> {
    amount: &'v Value,
    cents: i64,
    recipient: &'v str,
    currency: &'static str,
    description: Option<&'v str>,
}

impl<'v> Payment<'v> {
    fn read(input: &'v Value) -> Result<Self, String> {
        let amount = input
            .get("amount")
            .filter(|amount| !amount.is_null())
            .ok_or("`amount` is missing")?;
        let number = amount.as_f64().ok_or("`amount` must be a number")?;
        if !(number > 0.0 && number <= MAX_AMOUNT) {
            return Err(format!("`amount` must be above 0 and at most {MAX_AMOUNT}"));
        }
        let recipient = short(required_text(input, "recipient")?, "recipient")?;
        let description = match text_of(input, "description")? {
            Some(text) => Some(short(text, "description")?),
            None => None,
        };
        let wanted = text_of(input, "currency")?.unwrap_or("USD");
        let (currency, rate) = CURRENCIES
            .iter()
            .find(|(code, _)| code.eq_ignore_ascii_case(wanted))
            .ok_or_else(|| {
                format!("`currency` {wanted:?} is not known; use USD, EUR, GBP or JPY")
            })?;
        let cents = number * rate;
        if *currency == "USD" && (cents - cents.round()).abs() > 1e-6 {
            return Err("`amount` must be in whole cents".into());
        }
        Ok(Self {
            amount,
            // A fraction of a cent is rounded up, so that nothing is free.
            cents: (cents - 1e-6).ceil() as i64,
            recipient,
            currency,
            description,
        })
    }
}

fn short<'v>(text: &'v str, name: &str) -> Result<&'v str, String> {
    match text.chars().count() {
        0..=MAX_TEXT_CHARS => Ok(text),
        _ => Err(format!(
            "`{name}` is longer than {MAX_TEXT_CHARS} characters; shorten it"
        )),
    }
}

fn dollars(cents: i64) -> Value {
    match cents % 100 {
        0 => json!(cents / 100),
        _ => json!(cents as f64 / 100.0),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::{MemoryState, call, run, run_in};
    use super::*;

    fn tool() -> ProcessPayment {
        ProcessPayment::new(Duration::ZERO)
    }

    #[tokio::test]
    async fn payments_are_taken_from_the_wallet() {
        let state = Arc::default();
        let steps = [
            (json!({"amount": 50, "recipient": "Hanako"}), Ok(json!(950))),
            (
                json!({"amount": 0.5, "recipient": "Bob", "currency": "usd"}),
                Ok(json!(949.5)),
            ),
            (
                json!({"amount": 100, "recipient": "Eva", "currency": "EUR"}),
                Ok(json!(839.5)),
            ),
            (
                json!({"amount": 1, "recipient": "花子", "currency": "JPY"}),
                Ok(json!(839.49)),
            ),
            (
                json!({"amount": 839.5, "recipient": "Bob"}),
                Err("the wallet holds 839.49 USD, which is not enough for 839.5 USD"),
            ),
            (json!({"amount": 839.49, "recipient": "Bob"}), Ok(json!(0))),
            (
                json!({"amount": 0.01, "recipient": "Bob"}),
                Err("the wallet holds 0 USD, which is not enough for 0.01 USD"),
            ),
        ];
        for (input, expected) in steps {
            let result = run_in(&tool(), input.clone(), &state).await;
            let balance = result.map(|receipt| receipt["balance"].clone());
            assert_eq!(balance, expected.map_err(str::to_owned), "{input}");
        }
    }

    #[tokio::test]
    async fn a_receipt_repeats_what_was_asked_for() {
        let input = json!({"amount": 12.5, "recipient": " Bob ", "description": "lunch"});
        let receipt = run(&tool(), input).await.unwrap();
        assert_eq!(
            receipt,
            json!({
                "status": "completed", "transactionId": "tx-call-1", "amount": 12.5, "currency": "USD",
                "recipient": "Bob", "charged": 12.5, "balance": 987.5, "description": "lunch",
            })
        );
    }

    #[tokio::test]
    async fn bad_input_costs_nothing() {
        let state: Arc<MemoryState> = Arc::default();
        let cases = [
            (json!({"recipient": "Bob"}), "`amount` is missing"),
            (
                json!({"amount": "50", "recipient": "Bob"}),
                "`amount` must be a number",
            ),
            (
                json!({"amount": 0, "recipient": "Bob"}),
                "`amount` must be above 0 and at most 1000000",
            ),
            (
                json!({"amount": -5, "recipient": "Bob"}),
                "`amount` must be above 0 and at most 1000000",
            ),
            (
                json!({"amount": 1e300, "recipient": "Bob"}),
                "`amount` must be above 0 and at most 1000000",
            ),
            (
                json!({"amount": 0.001, "recipient": "Bob"}),
                "`amount` must be in whole cents",
            ),
            (json!({"amount": 5}), "`recipient` is missing"),
            (
                json!({"amount": 5, "recipient": " "}),
                "`recipient` is missing",
            ),
            (
                json!({"amount": 5, "recipient": "x".repeat(201)}),
                "`recipient` is longer than 200 characters; shorten it",
            ),
            (
                json!({"amount": 5, "recipient": "Bob", "currency": "BTC"}),
                "`currency` \"BTC\" is not known; use USD, EUR, GBP or JPY",
            ),
            (
                json!({"amount": 5, "recipient": "Bob", "description": 7}),
                "`description` must be a string",
            ),
        ];
        for (input, expected) in cases {
            assert_eq!(
                run_in(&tool(), input.clone(), &state).await,
                Err(expected.to_owned()),
                "{input}"
            );
        }
        let receipt = run_in(&tool(), json!({"amount": 1, "recipient": "Bob"}), &state).await;
        assert_eq!(receipt.unwrap()["balance"], 999);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn payments_side_by_side_never_overdraw() {
        let state: Arc<MemoryState> = Arc::default();
        let tool = Arc::new(tool());
        let runs: Vec<_> = (0..40)
            .map(|_| {
                let (tool, state) = (tool.clone(), state.clone());
                tokio::spawn(async move {
                    run_in(&*tool, json!({"amount": 70, "recipient": "Bob"}), &state).await
                })
            })
            .collect();
        let mut balances = Vec::new();
        for run in runs {
            if let Ok(receipt) = run.await.unwrap() {
                balances.push(receipt["balance"].as_i64().unwrap());
            }
        }
        balances.sort_unstable_by(|one, other| other.cmp(one));
        let expected: Vec<i64> = (1..=14).map(|paid| 1000 - 70 * paid).collect();
        assert_eq!(balances, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_payment_takes_its_time_and_is_not_made_when_it_is_dropped() {
        let state: Arc<MemoryState> = Arc::default();
        let slow = ProcessPayment::new(super::super::PAYMENT_TIME);
        let start = tokio::time::Instant::now();
        let input = json!({"amount": 100, "recipient": "Bob"});
        let cut = tokio::time::timeout(
            Duration::from_millis(100),
            slow.run(call(input.clone(), &state)),
        );
        assert!(cut.await.is_err());
        assert_eq!(run_in(&slow, input, &state).await.unwrap()["balance"], 900);
        assert_eq!(start.elapsed(), Duration::from_millis(400));
    }
}
