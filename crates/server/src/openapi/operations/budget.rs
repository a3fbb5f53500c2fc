//! What a user has used of agents, and may use.

use serde_json::json;

use crate::openapi::operation::{Content, Group, Operation};
use crate::openapi::refusals::{INTERNAL, READS, Refusal, TOO_MANY, only};
use crate::spending::BudgetState;
use crate::transport::budget::Of;

const FORBIDDEN: [Refusal; 1] = only(403, "role_needed", "the user is not an administrator");

pub fn state() -> Operation {
    let used = json!({
        "inputTokens": 9_000, "cachedInputTokens": 2_000, "outputTokens": 1_500, "tokens": 10_500, "cost": 0.006,
    });
    let mut of_agent = used.clone();
    of_agent["agent"] = json!("helper");
    let example = json!({
        "user": "alice", "counted": true, "day": "2026-11-19", "resetsAt": 1_795_132_800_000_u64, "currency": "USD",
        "used": used, "agents": [of_agent],
        "limits": [{
            "key": "budget.tokens_per_day", "unit": "tokens", "limit": 100_000.0, "used": 10_500.0, "left": 89_500.0,
        }],
        "isUsedUp": false,
    });
    Operation::new("getBudget", Group::Access, "Get what the user has used today, and what is left")
        .says("Without `[budget]` in the configuration nothing is counted. An administrator may ask for another `user`.")
        .query::<Of>()
        .answers(200, "The budget.", vec![Content::json::<BudgetState>(example)])
        .refuses(&[&FORBIDDEN, READS, TOO_MANY, INTERNAL])
}
