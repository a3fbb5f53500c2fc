//! The messages of a live server, as ADK events.
//!
//! The user's transcription comes in pieces, then whole with `finished`; later pieces lead to another whole. The
//! model's transcription comes in pieces only, and ends with the turn.

use std::borrow::Cow;
use std::time::Duration;

use adk_bridge_protocol::event::{Content, Event, FunctionCall, Part, Raw, Transcription};
use adk_bridge_protocol::wire::json::check;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{AgentError, place_of};
use crate::live::{Incoming, IncomingSink, LiveInput, Speaker};

/// How much of the user's transcription is remembered: hours of speech.
const MAX_HEARD_BYTES: usize = 256 * 1024;

/// The state between two messages.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// What the user has said since the model's last turn.
    heard: String,
    /// Whether the whole has not been sent since the last piece.
    hearing: bool,
    /// Whether the next piece begins a new turn.
    heard_all: bool,
    /// The calls whose results the other side waits for.
    open: Vec<String>,
    /// Whether the model has made a call or got a result, and has not said anything since.
    awaits_words: bool,
    answered: bool,
    model_spoke_last: bool,
    /// Whether audio is left out, because text was requested.
    mute: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Message<'a> {
    #[serde(borrow)]
    server_content: Option<ServerContent<'a>>,
    #[serde(borrow)]
    tool_call: Option<ToolCall<'a>>,
    tool_call_cancellation: Option<Cancellation>,
    usage_metadata: Option<Value>,
    session_resumption_update: Option<Resumption>,
    go_away: Option<GoAway>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServerContent<'a> {
    #[serde(borrow)]
    model_turn: Option<Content<'a>>,
    #[serde(borrow)]
    input_transcription: Option<Transcription<'a>>,
    #[serde(borrow)]
    output_transcription: Option<Transcription<'a>>,
    #[serde(borrow)]
    grounding_metadata: Option<Raw<'a>>,
    interrupted: bool,
    generation_complete: bool,
    turn_complete: bool,
    #[serde(borrow)]
    turn_complete_reason: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ToolCall<'a> {
    #[serde(borrow)]
    function_calls: Vec<FunctionCall<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cancellation {
    ids: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Resumption {
    new_handle: Option<String>,
    resumable: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GoAway {
    time_left: Option<String>,
}

/// Whether this is the answer to a setup.
pub(super) fn is_setup_complete(message: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct SetupComplete {
        #[serde(rename = "setupComplete")]
        _it: serde::de::IgnoredAny,
    }
    serde_json::from_slice::<SetupComplete>(message).is_ok()
}

/// Who speaks in a message, if anyone does.
pub(super) fn speaker(message: &[u8]) -> Option<Speaker> {
    let message: Message<'_> = serde_json::from_slice(message).ok()?;
    let calls = message
        .tool_call
        .is_some_and(|it| !it.function_calls.is_empty());
    let content = message.server_content.unwrap_or_default();
    if calls || content.model_turn.is_some() || content.output_transcription.is_some() {
        return Some(Speaker::Model);
    }
    content.input_transcription.map(|_| Speaker::User)
}

impl Assembly {
    pub(super) fn new(mute: bool, model_spoke_last: bool) -> Self {
        Self {
            mute,
            model_spoke_last,
            heard_all: true,
            ..Self::default()
        }
    }

    pub(super) fn open_calls(&self) -> &[String] {
        &self.open
    }

    /// Whether the model owes an answer to a result.
    pub(super) fn awaits_words(&self) -> bool {
        self.awaits_words
    }

    pub(super) fn model_spoke_last(&self) -> bool {
        self.model_spoke_last
    }

    /// Notes what is sent.
    pub(super) fn sent(&mut self, input: &LiveInput<'_>) {
        match input {
            LiveInput::Responses(responses) => {
                self.open
                    .retain(|open| !responses.iter().any(|response| response.id == *open));
                self.awaits_words = true;
                self.answered = true;
            }
            LiveInput::Text(_) | LiveInput::ActivityStart => self.model_spoke_last = false,
            LiveInput::Contents { turns, .. } => {
                self.model_spoke_last = turns
                    .last()
                    .is_some_and(|turn| turn.role.as_deref() == Some("model"));
            }
            _ => {}
        }
    }

    /// Passes on what one message says. Returns whether something must follow soon, or the turn is over.
    pub(super) fn message(
        &mut self,
        json: &[u8],
        sink: IncomingSink<'_>,
    ) -> Result<bool, AgentError> {
        check(json).map_err(|error| {
            AgentError::broken(
                "the live model sent too many values at once",
                error.to_string(),
            )
        })?;
        let message: Message<'_> = serde_json::from_slice(json).map_err(|error| {
            AgentError::broken(
                "the live model's message cannot be parsed",
                format!("{} in a message of {} bytes", place_of(&error), json.len()),
            )
        })?;
        let mut usage = message.usage_metadata.map(super::usage);
        let mut waits = false;
        if let Some(content) = message.server_content {
            waits = self.content(content, &mut usage, sink);
        }
        if let Some(calls) = message.tool_call {
            self.calls(calls.function_calls, sink);
        }
        if let Some(usage) = usage {
            sink(Incoming::Event(&Event {
                usage_metadata: raw(&usage),
                ..Event::default()
            }));
        }
        if let Some(cancelled) = message.tool_call_cancellation {
            self.open.retain(|open| !cancelled.ids.contains(open));
            self.awaits_words = false;
            sink(Incoming::Cancelled(cancelled.ids));
        }
        if let Some(resumption) = message.session_resumption_update {
            let handle = resumption.new_handle.filter(|handle| !handle.is_empty());
            sink(Incoming::Resumable(handle.filter(|_| resumption.resumable)));
        }
        if let Some(go_away) = message.go_away {
            let left = go_away.time_left.as_deref().and_then(seconds);
            sink(Incoming::GoAway(left.unwrap_or_default()));
        }
        Ok(waits)
    }

    pub(super) fn on_quiet(&mut self, sink: IncomingSink<'_>) {
        self.awaits_words = false;
        self.answered = false;
        self.heard_all = true;
        sink(Incoming::Event(&Event {
            turn_complete: Some(true),
            ..Event::default()
        }));
    }

    fn content(
        &mut self,
        content: ServerContent<'_>,
        usage: &mut Option<Value>,
        sink: IncomingSink<'_>,
    ) -> bool {
        if let Some(heard) = content.input_transcription {
            self.take_transcription(&heard, sink);
        }
        if let Some(turn) = content.model_turn {
            self.model_turn(turn, sink);
        }
        if let Some(Transcription {
            text: Some(text), ..
        }) = content.output_transcription
            && !text.is_empty()
        {
            self.spoke();
            sink(Incoming::Event(&Event {
                output_transcription: Some(Transcription {
                    text: Some(text),
                    finished: Some(false),
                }),
                partial: Some(true),
                ..Event::default()
            }));
        }
        if content.interrupted {
            self.heard_all = true;
            self.awaits_words = false;
            sink(Incoming::Event(&Event {
                interrupted: Some(true),
                ..Event::default()
            }));
        }
        if content.generation_complete || content.turn_complete {
            self.finish_hearing(sink);
        }
        if let Some(grounding) = content.grounding_metadata {
            sink(Incoming::Event(&Event {
                grounding_metadata: Some(grounding),
                ..Event::default()
            }));
        }
        if !content.turn_complete {
            return false;
        }
        // It only says that the model waits for a result, or it was sent before our result arrived.
        if self.awaits_words && content.turn_complete_reason.is_none() {
            return self.answered;
        }
        self.heard_all = true;
        self.answered = false;
        self.awaits_words = false;
        let (finish, error) = ending(content.turn_complete_reason.as_deref());
        sink(Incoming::Event(&Event {
            turn_complete: Some(true),
            finish_reason: finish.map(Cow::Borrowed),
            error_code: error.map(Cow::Owned),
            usage_metadata: usage.take().as_ref().and_then(raw),
            ..Event::default()
        }));
        false
    }

    fn take_transcription(&mut self, heard: &Transcription<'_>, sink: IncomingSink<'_>) {
        let Some(text) = heard.text.as_deref().filter(|text| !text.is_empty()) else {
            return;
        };
        if std::mem::take(&mut self.heard_all) {
            // Sends the whole for a last piece, before the next turn begins.
            self.finish_hearing(sink);
            self.heard.clear();
            self.model_spoke_last = false;
        }
        if self.heard.len() + text.len() <= MAX_HEARD_BYTES {
            self.heard.push_str(text);
        }
        self.hearing = true;
        tell_heard(text, false, sink);
    }

    fn finish_hearing(&mut self, sink: IncomingSink<'_>) {
        if std::mem::take(&mut self.hearing) {
            tell_heard(&self.heard, true, sink);
        }
    }

    fn model_turn(&mut self, turn: Content<'_>, sink: IncomingSink<'_>) {
        let is_sound = |part: &Part<'_>| {
            part.inline_data.as_ref().is_some_and(|blob| {
                blob.mime_type
                    .as_deref()
                    .is_some_and(|kind| kind.starts_with("audio/"))
            })
        };
        let (sounds, others): (Vec<_>, Vec<_>) =
            Vec::from(turn.parts).into_iter().partition(is_sound);
        if sounds.is_empty() && others.is_empty() {
            return;
        }
        self.spoke();
        if !others.is_empty() {
            sink(Incoming::Event(&Event {
                content: Some(Content::new("model", others)),
                partial: Some(true),
                ..Event::default()
            }));
        }
        if !sounds.is_empty() && !self.mute {
            sink(Incoming::Event(&Event {
                content: Some(Content::new("model", sounds)),
                ..Event::default()
            }));
        }
    }

    fn calls(&mut self, calls: Vec<FunctionCall<'_>>, sink: IncomingSink<'_>) {
        if calls.is_empty() {
            return;
        }
        self.finish_hearing(sink);
        let ids = calls.iter().filter_map(|call| call.id.as_deref());
        self.open.extend(ids.map(str::to_owned));
        self.awaits_words = true;
        self.answered = false;
        let parts: Vec<_> = calls
            .into_iter()
            .map(|call| Part {
                function_call: Some(Box::new(call)),
                ..Part::default()
            })
            .collect();
        sink(Incoming::Event(&Event {
            content: Some(Content::new("model", parts)),
            ..Event::default()
        }));
    }

    fn spoke(&mut self) {
        self.awaits_words = false;
        self.answered = false;
        self.model_spoke_last = true;
    }
}

fn tell_heard(text: &str, finished: bool, sink: IncomingSink<'_>) {
    sink(Incoming::Event(&Event {
        author: Some(Cow::Borrowed("user")),
        input_transcription: Some(Transcription {
            text: Some(Cow::Borrowed(text)),
            finished: Some(finished),
        }),
        partial: Some(!finished),
        ..Event::default()
    }));
}

/// Why a turn ended, in the words of a model call: a reason to stop, or a failure.
fn ending(reason: Option<&str>) -> (Option<&'static str>, Option<String>) {
    match reason {
        None | Some("TURN_COMPLETE_REASON_UNSPECIFIED" | "NEED_MORE_INPUT") => (None, None),
        Some("RESPONSE_REJECTED") => (Some("SAFETY"), None),
        Some(reason) if reason.starts_with("GENERATED_") => (Some("SAFETY"), None),
        Some(reason) => (None, Some(reason.to_owned())),
    }
}

fn raw(value: &Value) -> Option<Raw<'static>> {
    serde_json::value::to_raw_value(value).ok().map(Cow::Owned)
}

/// `49.5s`, as protocol buffers write spans.
fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
