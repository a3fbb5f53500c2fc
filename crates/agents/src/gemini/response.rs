//! The chunks of a streamed answer, as ADK events.

use std::borrow::Cow;
use std::time::Duration;

use adk_bridge_protocol::args;
use adk_bridge_protocol::chunk::FinishReason;
use adk_bridge_protocol::event::{Content, Event, FunctionCall, Part, Raw, raw, text};
use adk_bridge_protocol::wire::json::check;
use serde::Deserialize;
use serde_json::Value;

use crate::agent::EventSink;
use crate::error::{AgentError, AgentErrorKind, place_of, shortened, withheld};

/// The state between two chunks.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    /// Calls whose arguments are still being written.
    growing: Vec<GrowingCall>,
    begun: bool,
    ended: bool,
}

#[derive(Debug)]
struct GrowingCall {
    id: Option<String>,
    name: String,
    signature: Option<String>,
    args: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Chunk<'a> {
    #[serde(borrow)]
    candidates: Vec<Candidate<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    usage_metadata: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "text")]
    model_version: Option<Cow<'a, str>>,
    prompt_feedback: Option<PromptFeedback>,
    error: Option<GoogleError>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
    #[serde(borrow, deserialize_with = "text")]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    finish_message: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "raw")]
    grounding_metadata: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    citation_metadata: Option<Raw<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PromptFeedback {
    block_reason: Option<String>,
    block_reason_message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GoogleError {
    message: Option<String>,
    status: Option<String>,
    details: Vec<Value>,
}

impl Assembly {
    /// Passes the events of one chunk to the sink.
    pub(crate) fn chunk(&mut self, json: &str, sink: EventSink<'_>) -> Result<(), AgentError> {
        self.begun = true;
        // Gateways for models of several providers end every stream with this.
        if json == "[DONE]" {
            return Ok(());
        }
        check(json.as_bytes()).map_err(|error| {
            AgentError::broken(
                "the model's answer holds too many values at once",
                error.to_string(),
            )
        })?;
        let chunk: Chunk<'_> = serde_json::from_str(json).map_err(|error| {
            AgentError::broken(
                "the model's answer cannot be parsed",
                format!("{} in a chunk of {} bytes", place_of(&error), json.len()),
            )
        })?;
        if let Some(error) = chunk.error {
            return Err(AgentError::new(
                error.kind(),
                format!(
                    "the model aborted its answer: {}",
                    shortened(error.message.as_deref().unwrap_or("no reason was given"))
                ),
                match error.status.as_deref().unwrap_or_default() {
                    "" => "without a status".to_owned(),
                    status if is_code(status) => status.to_owned(),
                    other => withheld(other),
                },
            ));
        }
        if let Some(reason) = chunk
            .prompt_feedback
            .as_ref()
            .and_then(|feedback| feedback.block_reason.as_deref())
        {
            self.ended = true;
            let said = chunk
                .prompt_feedback
                .as_ref()
                .and_then(|feedback| feedback.block_reason_message.as_deref());
            sink(&Event {
                error_code: Some(Cow::Borrowed(reason)),
                error_message: said.map(Cow::Borrowed),
                ..Event::default()
            });
            return Ok(());
        }
        let Some(candidate) = chunk.candidates.into_iter().next() else {
            return Ok(());
        };
        let mut calls = Vec::new();
        if let Some(mut content) = candidate.content
            && !content.parts.is_empty()
        {
            if content
                .parts
                .iter()
                .any(|part| part.function_call.is_some())
            {
                let (with_calls, others): (Vec<_>, Vec<_>) = Vec::from(content.parts)
                    .into_iter()
                    .partition(|part| part.function_call.is_some());
                content.parts = others.into();
                calls = with_calls;
            }
            if !content.parts.is_empty() {
                sink(&Event {
                    content: Some(content),
                    partial: Some(true),
                    // All that is known if the answer is stopped.
                    usage_metadata: chunk.usage_metadata.clone(),
                    ..Event::default()
                });
            }
        }
        for call in calls {
            self.call(call, sink);
        }
        if candidate.finish_reason.is_some() {
            self.complete(sink);
            self.ended = true;
            // Such an answer has nothing to show, so its reason is shown.
            let failed = candidate
                .finish_reason
                .as_deref()
                .is_some_and(|reason| FinishReason::from_agent(reason) == FinishReason::Error);
            sink(&Event {
                error_code: candidate.finish_reason.clone().filter(|_| failed),
                error_message: candidate.finish_message.filter(|_| failed),
                finish_reason: candidate.finish_reason,
                model_version: chunk.model_version,
                usage_metadata: chunk.usage_metadata,
                grounding_metadata: candidate.grounding_metadata,
                citation_metadata: candidate.citation_metadata,
                ..Event::default()
            });
        }
        Ok(())
    }

    /// Whether anything that looks like a stream has come.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Ends the answer: what is unfinished stays so.
    pub(super) fn finish(&mut self, sink: EventSink<'_>) -> Result<(), AgentError> {
        self.complete(sink);
        if self.ended {
            return Ok(());
        }
        Err(AgentError::broken(
            "the model's answer was cut off; try again",
            "the stream ended without a finish reason",
        ))
    }

    fn call(&mut self, mut part: Part<'_>, sink: EventSink<'_>) {
        let Some(call) = part.function_call.take() else {
            return;
        };
        let grows = call.will_continue == Some(true) || call.partial_args.is_some();
        let begun = self.growing.last_mut().filter(|growing| {
            call.name.is_none() || Some(growing.name.as_str()) == call.name.as_deref() && grows
        });
        match begun {
            Some(growing) => {
                for arg in call.partial_args.iter().flatten() {
                    args::assign(arg, &mut growing.args);
                }
                let done = call.will_continue != Some(true);
                show(part, *call, true, sink);
                if done {
                    self.complete(sink);
                }
            }
            None if grows => {
                self.complete(sink);
                let mut args = Value::Object(serde_json::Map::new());
                for arg in call.partial_args.iter().flatten() {
                    args::assign(arg, &mut args);
                }
                self.growing.push(GrowingCall {
                    id: call.id.as_deref().map(str::to_owned),
                    name: call.name.as_deref().unwrap_or_default().to_owned(),
                    signature: part.thought_signature.as_deref().map(str::to_owned),
                    args,
                });
                show(part, *call, true, sink);
            }
            None => {
                self.complete(sink);
                show(part, *call, false, sink);
            }
        }
    }

    /// Passes on the calls that are complete.
    fn complete(&mut self, sink: EventSink<'_>) {
        for grown in self.growing.drain(..) {
            let part = Part {
                thought_signature: grown.signature.map(Cow::Owned),
                ..Part::default()
            };
            let call = FunctionCall {
                id: grown.id.map(Cow::Owned),
                name: Some(Cow::Owned(grown.name)),
                args: Some(grown.args.into()),
                ..FunctionCall::default()
            };
            show(part, call, false, sink);
        }
    }
}

fn show<'a>(mut part: Part<'a>, call: FunctionCall<'a>, partial: bool, sink: EventSink<'_>) {
    part.function_call = Some(Box::new(call));
    sink(&Event {
        content: Some(Content::new("model", vec![part])),
        partial: partial.then_some(true),
        ..Event::default()
    });
}

/// Google's codes have some twenty letters.
const MAX_CODE_BYTES: usize = 64;

/// Whether this can only be a code, such as `RESOURCE_EXHAUSTED`.
fn is_code(said: &str) -> bool {
    let is_of_code = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    said.len() <= MAX_CODE_BYTES && said.bytes().all(is_of_code)
}

/// What an error answer says.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    pub(crate) message: Option<String>,
    /// How long Google asks to wait.
    pub(crate) retry_after: Option<Duration>,
    /// Google refuses a wrong key as it refuses a wrong field, and names the reason.
    pub(crate) is_about_the_key: bool,
}

impl Refusal {
    pub(crate) fn read(text: &str) -> Self {
        #[derive(Deserialize)]
        struct Answer {
            error: GoogleError,
        }
        // Without `alt=sse` errors may come inside an array.
        let text = text.trim().trim_start_matches('[').trim_end_matches(']');
        let Ok(Answer { error }) = serde_json::from_str(text) else {
            return Self::default();
        };
        Self {
            retry_after: error.retry_after(),
            is_about_the_key: error
                .details
                .iter()
                .any(|detail| detail["reason"] == "API_KEY_INVALID"),
            message: error.message,
        }
    }
}

impl GoogleError {
    fn kind(&self) -> AgentErrorKind {
        match self.status.as_deref() {
            Some("UNAUTHENTICATED" | "PERMISSION_DENIED") => AgentErrorKind::Unauthorized,
            Some("RESOURCE_EXHAUSTED") => AgentErrorKind::Quota {
                retry_after: self.retry_after(),
            },
            Some("UNAVAILABLE" | "INTERNAL" | "DEADLINE_EXCEEDED") => AgentErrorKind::Unreachable,
            Some("INVALID_ARGUMENT" | "NOT_FOUND" | "FAILED_PRECONDITION") => {
                AgentErrorKind::Rejected
            }
            _ => AgentErrorKind::Broken,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        self.details.iter().find_map(|detail| {
            let seconds = detail.get("retryDelay")?.as_str()?.strip_suffix('s')?;
            let seconds: f64 = seconds.parse().ok()?;
            Duration::try_from_secs_f64(seconds).ok()
        })
    }
}
