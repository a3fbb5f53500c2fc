//! The generations of live models, and what each of them refuses.

use serde_json::Value;

use super::super::models;
use super::setup::{INVALID, Refusal};

/// A generation, as Google's models have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Generation {
    /// Gemini 2: its turn is complete as soon as it has made a call.
    Second,
    /// Gemini 3.0 to 3.7: takes contents only as the history of a new connection.
    EarlyThird,
    /// Gemini 3.8 and newer: does not wait for the results of its calls unless their tools say so.
    Third,
    /// Thinks in the background: never waits for results, and its turns may be followed by others.
    Thinking,
}

/// The levels of thinking that exist for live models.
const LEVELS: [&str; 3] = ["LOW", "MEDIUM", "HIGH"];

impl Generation {
    pub(super) fn of(model: &str) -> Self {
        if model.contains("extended-thinking") {
            return Self::Thinking;
        }
        match models::version(model) {
            Some((..3, _)) => Self::Second,
            Some((3, ..8)) => Self::EarlyThird,
            _ => Self::Third,
        }
    }

    /// Whether the calls of a tool that is declared so are answered in the background.
    pub(super) fn is_background(self, behavior: &Value) -> bool {
        match self {
            Self::Second => behavior == "NON_BLOCKING",
            Self::EarlyThird => false,
            Self::Third => behavior != "BLOCKING",
            Self::Thinking => true,
        }
    }

    /// Checks a setup for what only other generations take.
    pub(super) fn check(self, setup: &Value) -> Result<(), Refusal> {
        let config = &setup["generationConfig"];
        self.check_thinking(&config["thinkingConfig"])?;
        let modalities = config["responseModalities"].as_array();
        let writes = modalities.is_some_and(|all| all.iter().any(|one| one == "TEXT"));
        if writes && self != Self::Second {
            return refuse("Cannot extract voices from a non-audio request.");
        }
        if !config["enableAffectiveDialog"].is_null() && self != Self::Second {
            return refuse("Affective dialog is not supported by this model.");
        }
        let proactive = &setup["proactivity"]["proactiveAudio"];
        match self {
            Self::EarlyThird if setup["proactivity"].is_object() => {
                return refuse("Proactivity is not supported by this model.");
            }
            Self::Third | Self::Thinking if proactive == false => {
                return refuse("Proactive audio cannot be disabled for this model.");
            }
            _ => {}
        }
        self.check_tools(&setup["tools"])
    }

    pub(super) fn check_tools(self, tools: &Value) -> Result<(), Refusal> {
        let refused = match self {
            Self::Second | Self::Third => return Ok(()),
            Self::EarlyThird => "NON_BLOCKING",
            Self::Thinking => "BLOCKING",
        };
        match declarations(tools).any(|it| it["behavior"] == refused) {
            true => refuse(format!(
                "{refused} function calls are not supported for this model."
            )),
            false => Ok(()),
        }
    }

    fn check_thinking(self, thinking: &Value) -> Result<(), Refusal> {
        let (level, budget) = (&thinking["thinkingLevel"], &thinking["thinkingBudget"]);
        if self != Self::Thinking {
            return match level.is_null() && budget.is_null() {
                true => Ok(()),
                false => refuse("Thinking config is not supported by this model."),
            };
        }
        if level.is_null() == budget.is_null() {
            return refuse(
                "Exactly one of thinking_level and thinking_budget must be set for this model.",
            );
        }
        match level.as_str() {
            Some(level) if !LEVELS.contains(&level.to_ascii_uppercase().as_str()) => refuse(
                format!("Thinking level {level} is not supported for this model."),
            ),
            _ => Ok(()),
        }
    }
}

/// The functions in a list of tools.
pub(super) fn declarations(tools: &Value) -> impl Iterator<Item = &Value> {
    let tools = tools.as_array().into_iter().flatten();
    tools.flat_map(|tool| {
        tool["functionDeclarations"]
            .as_array()
            .into_iter()
            .flatten()
    })
}

fn refuse(reason: impl Into<String>) -> Result<(), Refusal> {
    Err(Refusal::new(INVALID, reason))
}
