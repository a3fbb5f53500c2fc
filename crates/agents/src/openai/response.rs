//! The chunks of a completion, as ADK events.
//!
//! ```text
//!   open ── finish_reason ──▶ ended ── usage, [DONE] ──▶ done
//!     └──────────────── [DONE] ──────────────────────────▶
//! ```
//!
//! What differs between servers: thoughts are `reasoning_content`, `reasoning` or parts of the content; the usage comes with
//! the last chunk, after it, or not at all; `[DONE]` may be missing, or be all that ends an answer; the reason to finish is
//! `stop` in spite of calls; an answer that is not streamed has `message` in place of `delta`.

use std::borrow::Cow;

use adk_bridge_protocol::event::{Content, Event, Part, Raw, raw};
use adk_bridge_protocol::wire::json::{TooManyValues, whole};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::calls::{FunctionFragment, GrowingCalls, fragments, words};
use super::refusal::Refusal;
use super::unparsable;
use crate::agent::EventSink;
use crate::error::{AgentError, place_of, shortened};

/// Ends a stream.
const DONE: &str = "[DONE]";

/// The state between two chunks.
#[derive(Debug)]
pub(crate) struct Assembly {
    calls: GrowingCalls,
    stage: Stage,
    /// Whether anything that looks like a stream has come.
    begun: bool,
    /// Whether the model has said, thought or called anything.
    said: bool,
    /// Whether what it said is a refusal.
    refused: bool,
    says_reasoning: Option<bool>,
    finish_reason: Option<String>,
    usage: Option<Box<RawValue>>,
    model: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// The model has finished; only the usage may follow.
    Ended,
    Done,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, deserialize_with = "raw")]
    usage: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    model: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    object: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    error: Option<Raw<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    #[serde(borrow, deserialize_with = "raw")]
    index: Option<Raw<'a>>,
    #[serde(borrow)]
    delta: Option<Said<'a>>,
    #[serde(borrow)]
    message: Option<Said<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    finish_reason: Option<Raw<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said<'a> {
    #[serde(borrow, deserialize_with = "raw")]
    content: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    reasoning_content: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    reasoning: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    refusal: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    tool_calls: Option<Raw<'a>>,
    #[serde(borrow)]
    function_call: Option<FunctionFragment<'a>>,
}

/// A part of a content that is a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContentPart<'a> {
    #[serde(borrow, deserialize_with = "raw")]
    text: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    refusal: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    thinking: Option<Raw<'a>>,
}

impl Assembly {
    /// For an answer in a conversation that has this many calls.
    pub(crate) fn after(calls: usize) -> Self {
        Self {
            calls: GrowingCalls::after(calls),
            stage: Stage::Open,
            begun: false,
            said: false,
            refused: false,
            says_reasoning: None,
            finish_reason: None,
            usage: None,
            model: None,
        }
    }

    /// Passes on what one event of a stream adds.
    pub(crate) fn event(
        &mut self,
        name: &str,
        data: &str,
        sink: EventSink<'_>,
    ) -> Result<(), AgentError> {
        let data = data.trim();
        if data.is_empty() || self.is_done() {
            return Ok(());
        }
        self.begun = true;
        if data == DONE {
            self.stage = Stage::Done;
            return Ok(());
        }
        if name == "error" {
            return Err(Refusal::read(data, "").of_answer());
        }
        self.chunk(data, sink).map(|_| ())
    }

    /// Passes on an answer that was not streamed.
    pub(crate) fn whole(&mut self, json: &str, sink: EventSink<'_>) -> Result<(), AgentError> {
        self.begun = true;
        if !self.chunk(json, sink)? {
            return Err(AgentError::broken(
                "the configured server does not answer with chat completions; check agent.base_url",
                format!("{} bytes of other JSON", json.len()),
            ));
        }
        self.stage = Stage::Done;
        Ok(())
    }

    /// Whether anything that looks like a stream has come.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether the model has finished.
    pub(super) fn has_ended(&self) -> bool {
        self.stage >= Stage::Ended
    }

    /// Whether nothing more is to come.
    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Whether thoughts are called `reasoning`, if there were any.
    pub(super) fn says_reasoning(&self) -> Option<bool> {
        self.says_reasoning
    }

    /// Ends the answer: passes on its calls, and why it ended.
    pub(crate) fn finish(&mut self, sink: EventSink<'_>) -> Result<(), AgentError> {
        let has_answered = self.said || !self.calls.is_empty();
        let ended = match self.finish_reason.as_deref() {
            Some(reason) => finish_reason(reason),
            None if self.is_done() && has_answered => Some("STOP"),
            None => {
                return Err(AgentError::broken(
                    "the model's answer was cut off; try again",
                    "the stream ended without a reason to finish",
                ));
            }
        };
        let Some(ended) = ended else {
            return Err(AgentError::unreachable(
                "the model failed in the middle of its answer; try again",
                "the reason to finish is an error",
            ));
        };
        let was_cut = matches!(ended, "MAX_TOKENS" | "SAFETY");
        self.calls.complete(was_cut, sink)?;
        let ended = match self.refused {
            true => "SAFETY",
            false => ended,
        };
        // An answer without content has only its reason to show.
        let is_filtered = ended == "SAFETY";
        sink(&Event {
            finish_reason: Some(Cow::Borrowed(ended)),
            error_code: is_filtered.then_some(Cow::Borrowed("content_filter")),
            error_message: is_filtered.then_some(Cow::Borrowed(
                "the filter of the model's provider stopped it",
            )),
            model_version: self.model.as_deref().map(Cow::Borrowed),
            usage_metadata: self.usage.take().map(Cow::Owned),
            ..Event::default()
        });
        Ok(())
    }

    /// Passes on what a chunk adds. Returns whether it was one.
    fn chunk(&mut self, json: &str, sink: EventSink<'_>) -> Result<bool, AgentError> {
        let json = whole(json.as_bytes()).map_err(|error: TooManyValues| {
            AgentError::broken(
                "the model's answer holds too many values at once",
                error.to_string(),
            )
        })?;
        let broken = |error: serde_json::Error| {
            unparsable(format!(
                "{} in a chunk of {} bytes",
                place_of(&error),
                json.len()
            ))
        };
        let chunk: Chunk<'_> = serde_json::from_slice(&json).map_err(broken)?;
        let is_error = words(chunk.object.as_ref()) == "error";
        if chunk.error.is_some() || is_error {
            let value: Value = serde_json::from_slice(&json).map_err(broken)?;
            if let Some(refusal) = Refusal::of_chunk(&value) {
                return Err(refusal.of_answer());
            }
        }
        if let Some(usage) = chunk.usage.as_deref().and_then(usage_of) {
            self.usage = Some(usage);
        }
        let model = words(chunk.model.as_ref());
        if self.model.is_none() && !model.is_empty() {
            self.model = Some(shortened(&model));
        }
        let Some(choices) = chunk.choices else {
            return Ok(false);
        };
        let is_first = |choice: &Choice<'_>| {
            let index = choice.index.as_ref().map(|index| index.get());
            index.is_none_or(|index| index == "0")
        };
        if let Some(choice) = choices.into_iter().find(is_first) {
            self.choice(&choice, sink)?;
        }
        Ok(true)
    }

    fn choice(&mut self, choice: &Choice<'_>, sink: EventSink<'_>) -> Result<(), AgentError> {
        if let Some(delta) = &choice.delta {
            self.say(delta, sink)?;
        }
        // The last chunk of some servers repeats the whole answer here.
        if let Some(message) = &choice.message
            && !self.said
            && self.calls.is_empty()
        {
            self.say(message, sink)?;
        }
        let reason = words(choice.finish_reason.as_ref());
        if !reason.is_empty() {
            self.finish_reason = Some(reason.into_owned());
            self.stage = self.stage.max(Stage::Ended);
        }
        Ok(())
    }

    fn say(&mut self, said: &Said<'_>, sink: EventSink<'_>) -> Result<(), AgentError> {
        // Some servers send both, with the same text.
        let thought = words(said.reasoning_content.as_ref());
        if !thought.is_empty() {
            self.says_reasoning = Some(false);
            self.text(&thought, true, sink);
        } else {
            let thought = words(said.reasoning.as_ref());
            if !thought.is_empty() {
                self.says_reasoning = Some(true);
                self.text(&thought, true, sink);
            }
        }
        if let Some(content) = &said.content {
            match content.get().starts_with('[') {
                true => self.parts(content, sink)?,
                false => self.text(&words(Some(content)), false, sink),
            }
        }
        self.refusal(said.refusal.as_ref(), sink);
        if let Some(list) = &said.tool_calls {
            for fragment in fragments(list)? {
                self.calls.push(&fragment, sink)?;
            }
        }
        if let Some(function) = &said.function_call {
            self.calls.push(&function.clone().into(), sink)?;
        }
        Ok(())
    }

    /// A content that is a list; thoughts are lists of texts in it.
    fn parts(&mut self, list: &Raw<'_>, sink: EventSink<'_>) -> Result<(), AgentError> {
        let broken = |error: serde_json::Error| unparsable(place_of(&error));
        let parts: Vec<ContentPart<'_>> = serde_json::from_str(list.get()).map_err(broken)?;
        for part in parts {
            if let Some(thinking) = &part.thinking {
                match thinking.get().starts_with('[') {
                    true => {
                        let thoughts: Vec<ContentPart<'_>> =
                            serde_json::from_str(thinking.get()).map_err(broken)?;
                        for thought in thoughts {
                            self.text(&words(thought.text.as_ref()), true, sink);
                        }
                    }
                    false => self.text(&words(Some(thinking)), true, sink),
                }
            }
            self.text(&words(part.text.as_ref()), false, sink);
            self.refusal(part.refusal.as_ref(), sink);
        }
        Ok(())
    }

    /// What a model says when it refuses is all that there is to show.
    fn refusal(&mut self, refusal: Option<&Raw<'_>>, sink: EventSink<'_>) {
        let refusal = words(refusal);
        self.refused |= !refusal.is_empty();
        self.text(&refusal, false, sink);
    }

    fn text(&mut self, text: &str, thought: bool, sink: EventSink<'_>) {
        if text.is_empty() {
            return;
        }
        self.said = true;
        let mut part = Part::text(text);
        part.thought = thought.then_some(true);
        sink(&Event {
            content: Some(Content::new("model", vec![part])),
            partial: Some(true),
            ..Event::default()
        });
    }
}

/// Whether a last event is complete although its blank line is missing.
pub(super) fn is_whole(data: &str) -> bool {
    let data = data.trim();
    data == DONE || serde_json::from_str::<&RawValue>(data).is_ok()
}

/// A reason to finish in the words of events; `None` if it is a failure.
fn finish_reason(reason: &str) -> Option<&'static str> {
    Some(match reason.to_ascii_lowercase().as_str() {
        // Calls are what they are, whatever the reason says.
        "stop" | "tool_calls" | "function_call" | "tool_use" | "end_turn" | "eos"
        | "stop_sequence" => "STOP",
        "length" | "max_tokens" | "model_length" => "MAX_TOKENS",
        "content_filter" | "refusal" | "safety" | "sensitive" => "SAFETY",
        "error" | "abort" | "cancelled" | "network_error" | "insufficient_system_resource" => {
            return None;
        }
        _ => "OTHER",
    })
}

/// The usage in the words of events. Counts that are not numbers are left out.
fn usage_of(usage: &RawValue) -> Option<Box<RawValue>> {
    let usage: Value = serde_json::from_str(usage.get()).ok()?;
    let count = |place: &str| usage.pointer(place).and_then(Value::as_u64);
    let thoughts = count("/completion_tokens_details/reasoning_tokens");
    let written = count("/completion_tokens");
    let cached = count("/prompt_tokens_details/cached_tokens");
    let cached = cached.or_else(|| count("/prompt_cache_hit_tokens"));
    let counts = [
        ("promptTokenCount", count("/prompt_tokens")),
        (
            "candidatesTokenCount",
            // It includes the thoughts.
            written.map(|written| written.saturating_sub(thoughts.unwrap_or(0))),
        ),
        ("thoughtsTokenCount", thoughts.filter(|count| *count > 0)),
        ("cachedContentTokenCount", cached.filter(|count| *count > 0)),
        ("totalTokenCount", count("/total_tokens")),
    ];
    let counts = counts
        .into_iter()
        .filter_map(|(name, count)| Some((name.to_owned(), json!(count?))));
    let counts: serde_json::Map<String, Value> = counts.collect();
    match counts.is_empty() {
        true => None,
        false => to_raw_value(&counts).ok(),
    }
}
