//! The chunks of a streamed answer, as ADK events.

use std::borrow::Cow;
use std::time::Duration;

use adk_bridge_protocol::args;
use adk_bridge_protocol::chunk::FinishReason;
use adk_bridge_protocol::event::{Content, Event, FunctionCall, Part, Raw};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::agent::{AgentError, EventSink};

/// What is carried from one chunk to the next.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// Calls whose arguments are still being written.
    growing: Vec<Growing>,
    begun: bool,
    ended: bool,
}

#[derive(Debug)]
struct Growing {
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
    #[serde(borrow)]
    model_version: Option<Cow<'a, str>>,
    prompt_feedback: Option<PromptFeedback>,
    error: Option<GoogleError>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
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
    /// Hands over the events of one chunk.
    pub(super) fn chunk(&mut self, json: &str, sink: EventSink<'_>) -> Result<(), AgentError> {
        self.begun = true;
        // Gateways that serve several makers' models end every stream so.
        if json == "[DONE]" {
            return Ok(());
        }
        let chunk: Chunk<'_> = serde_json::from_str(json).map_err(|error| AgentError {
            message: "the model's answer cannot be read".into(),
            // Not the chunk itself: what people and models say has no place in a log.
            detail: format!("{error} in a chunk of {} bytes", json.len()),
        })?;
        if let Some(error) = chunk.error {
            return Err(AgentError {
                message: format!(
                    "the model broke off its answer: {}",
                    error.message.as_deref().unwrap_or("it did not say why")
                ),
                detail: format!("{:?}", error.status),
            });
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
            // Nothing that a user could read comes of such an answer, so its reason is told.
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

    /// The answer is over: what is unfinished will stay so.
    pub(super) fn finish(&mut self, sink: EventSink<'_>) -> Result<(), AgentError> {
        self.complete(sink);
        if self.ended {
            return Ok(());
        }
        Err(AgentError {
            message: "the model's answer was cut off; try again".into(),
            detail: "the stream ended without a finish reason".into(),
        })
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
                self.growing.push(Growing {
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

    /// Hands over the calls that have grown to their end.
    fn complete(&mut self, sink: EventSink<'_>) {
        for grown in self.growing.drain(..) {
            let part = Part {
                thought_signature: grown.signature.map(Cow::Owned),
                ..Part::default()
            };
            let call = FunctionCall {
                id: grown.id.map(Cow::Owned),
                name: Some(Cow::Owned(grown.name)),
                args: Some(grown.args),
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

/// The message of an error answer, and how long Google asks to wait.
pub(super) fn error_of(text: &str) -> (Option<String>, Option<Duration>) {
    #[derive(Deserialize)]
    struct Answer {
        error: GoogleError,
    }
    // Without `alt=sse` errors may come inside an array.
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let Ok(Answer { error }) = serde_json::from_str(text) else {
        return (None, None);
    };
    let delay = error.details.iter().find_map(|detail| {
        let seconds = detail.get("retryDelay")?.as_str()?.strip_suffix('s')?;
        let seconds: f64 = seconds.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    });
    (error.message, delay)
}

fn raw<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<Raw<'a>>, D::Error> {
    Ok(Some(Cow::Borrowed(<&'a RawValue>::deserialize(from)?)))
}
