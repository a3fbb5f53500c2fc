//! The messages of a live server, as ADK events.
//!
//! The user's transcription comes in pieces, then whole with `finished`; later pieces lead to another whole. The
//! model's transcription comes in pieces only, and ends with the turn.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use adk_bridge_protocol::event::{Content, Event, FunctionCall, Part, Raw, Transcription};
use adk_bridge_protocol::wire::json::check;
use serde::Deserialize;
use serde_json::Value;

use super::background::{Background, CALL_PAUSE};
use super::generation::Generation;
use crate::error::{AgentError, place_of};
use crate::live::{Incoming, IncomingSink, LiveInput, Speaker};

/// How much of the user's transcription is remembered: hours of speech.
const MAX_HEARD_BYTES: usize = 256 * 1024;
/// Models of the second generation say that their turn is complete right after a call; it is true only if nothing
/// follows our response for this long. It also ends the turn of a model that waits for more input.
const QUIET: Duration = Duration::from_secs(5);
/// A model that still thinks when its turn is complete goes on, or says that it is done, within this time.
const THINKING: Duration = Duration::from_secs(120);

/// The state between two messages.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    /// What the user has said since the model's last turn.
    heard: String,
    /// Whether the whole has not been sent since the last piece.
    hearing: bool,
    /// Whether the next piece begins a new turn.
    heard_all: bool,
    /// The calls whose results the other side waits for.
    open: Vec<String>,
    /// The names of these calls.
    names: HashMap<String, String>,
    /// Calls that have to be answered with the next input: their results come later.
    left: Vec<(String, String)>,
    /// For models that speak during their calls.
    background: Option<Background>,
    /// Whether the model has made a call or got a result, and has not said anything since.
    awaits_words: bool,
    answered: bool,
    /// Whether the model says that it goes on, or waits for more input, and has not said anything since.
    lingers: bool,
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
    waiting_for_input: bool,
    #[serde(borrow)]
    interaction_status: Option<Cow<'a, str>>,
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
fn speaker(message: &[u8]) -> Option<Speaker> {
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
    pub(crate) fn new(generation: Generation, mute: bool, model_spoke_last: bool) -> Self {
        Self {
            background: generation.speaks_during_calls().then(Background::default),
            mute,
            model_spoke_last,
            heard_all: true,
            ..Self::default()
        }
    }

    pub(super) fn open_calls(&self) -> &[String] {
        &self.open
    }

    /// Whether the model owes more words.
    pub(super) fn awaits_words(&self) -> bool {
        self.awaits_words || self.lingers
    }

    /// Whether calls wait for the end of the words around them.
    pub(super) fn holds_calls(&self) -> bool {
        let background = self.background.as_ref();
        background.is_some_and(Background::holds_calls)
    }

    /// Who begins a turn with a message. A transcription while a call is open belongs to the speech before it, since
    /// new speech cancels calls; except for models that speak during their calls, and there are later words new.
    pub(super) fn speaker(&self, message: &[u8]) -> Option<Speaker> {
        let speaker = speaker(message)?;
        let counts = match (&self.background, speaker) {
            _ if self.open.is_empty() => true,
            (None, Speaker::Model) => true,
            (None, Speaker::User) | (Some(_), Speaker::Model) => false,
            (Some(background), Speaker::User) => background.is_new_speech(),
        };
        counts.then_some(speaker)
    }

    pub(super) fn model_spoke_last(&self) -> bool {
        self.model_spoke_last
    }

    /// Notes what is sent. Returns the calls, with their names, for which the model must first be informed that their
    /// results come later.
    pub(super) fn sent(&mut self, input: &LiveInput<'_>) -> Vec<(String, String)> {
        match input {
            LiveInput::Responses(responses) => {
                self.close_calls(|open| responses.iter().any(|response| response.id == open));
                self.awaits_words = true;
                self.answered = true;
                self.lingers = false;
            }
            LiveInput::Text(_) | LiveInput::ActivityStart => {
                self.model_spoke_last = false;
                self.lingers = false;
                self.leave_calls();
            }
            LiveInput::Contents { turns, answer } => {
                if *answer {
                    self.lingers = false;
                    self.leave_calls();
                }
                self.model_spoke_last = turns
                    .last()
                    .is_some_and(|turn| turn.role.as_deref() == Some("model"));
            }
            _ => {}
        }
        std::mem::take(&mut self.left)
    }

    /// Removes calls from those that are open.
    fn close_calls(&mut self, is_closed: impl Fn(&str) -> bool) {
        self.open.retain(|id| !is_closed(id));
        self.names.retain(|id, _| !is_closed(id));
    }

    /// The user goes on speaking during calls. Other models cancel them on their own.
    fn leave_calls(&mut self) {
        let Some(background) = &mut self.background else {
            return;
        };
        if self.open.is_empty() {
            return;
        }
        // It was said to pass the time until the results.
        drop(background.take_messages());
        let names = &mut self.names;
        self.left.extend(self.open.drain(..).map(|id| {
            let name = names.remove(&id).unwrap_or_default();
            (id, name)
        }));
        self.awaits_words = false;
        self.answered = false;
    }

    /// Passes on what one message says. Returns after how much silence [`Assembly::on_quiet`] is due, if the turn may
    /// be over.
    pub(crate) fn message(
        &mut self,
        json: &[u8],
        sink: IncomingSink<'_>,
    ) -> Result<Option<Duration>, AgentError> {
        if let Some(background) = &mut self.background {
            if !self.open.is_empty() && speaker(json) == Some(Speaker::Model) {
                background.hold_message(json);
                return Ok(None);
            }
            if self.open.is_empty() {
                for held in background.take_messages() {
                    self.pass_on(&held, sink)?;
                }
            }
        }
        self.pass_on(json, sink)
    }

    fn pass_on(
        &mut self,
        json: &[u8],
        sink: IncomingSink<'_>,
    ) -> Result<Option<Duration>, AgentError> {
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
        let mut quiet = None;
        let mut words_end = false;
        if let Some(content) = message.server_content {
            words_end = content.turn_complete || content.generation_complete || content.interrupted;
            quiet = self.content(content, &mut usage, sink);
        }
        if let Some(calls) = message.tool_call {
            match &mut self.background {
                Some(background) => background.hold_calls(&calls.function_calls),
                None => self.calls(calls.function_calls, sink),
            }
        }
        if let Some(usage) = usage {
            sink(Incoming::Event(&Event {
                usage_metadata: raw(&usage),
                ..Event::default()
            }));
        }
        if let Some(cancelled) = message.tool_call_cancellation {
            if let Some(background) = &mut self.background {
                background.cancel(&cancelled.ids);
            }
            self.close_calls(|open| cancelled.ids.iter().any(|id| id == open));
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
        if words_end {
            self.pass_on_calls(sink);
        }
        Ok(match self.holds_calls() {
            true => Some(CALL_PAUSE),
            false => quiet,
        })
    }

    /// Nothing followed: the words around a call have ended, or the turn has.
    pub(super) fn on_quiet(&mut self, sink: IncomingSink<'_>) {
        if self.holds_calls() {
            return self.pass_on_calls(sink);
        }
        self.lingers = false;
        if !self.open.is_empty() {
            return;
        }
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
    ) -> Option<Duration> {
        if let Some(heard) = content.input_transcription {
            let background = self.background.as_ref();
            if background.is_some_and(Background::is_new_speech) {
                self.leave_calls();
            }
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
            if let Some(background) = &mut self.background {
                drop(background.take_messages());
            }
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
        let status = content.interaction_status.as_deref();
        if status == Some("IN_PROGRESS") {
            self.lingers = true;
            return Some(THINKING);
        }
        if !content.turn_complete && status != Some("IDLE") {
            self.lingers |= content.waiting_for_input;
            return content.waiting_for_input.then_some(QUIET);
        }
        // It only says that the model waits for a result, or it was sent before our result arrived.
        if self.awaits_words && content.turn_complete_reason.is_none() {
            return self.answered.then_some(QUIET);
        }
        self.heard_all = true;
        self.answered = false;
        self.awaits_words = false;
        self.lingers = false;
        let (finish, error) = ending(content.turn_complete_reason.as_deref());
        sink(Incoming::Event(&Event {
            turn_complete: Some(true),
            finish_reason: finish.map(Cow::Borrowed),
            error_code: error.map(Cow::Owned),
            usage_metadata: usage.take().as_ref().and_then(raw),
            ..Event::default()
        }));
        None
    }

    fn take_transcription(&mut self, heard: &Transcription<'_>, sink: IncomingSink<'_>) {
        if let Some(text) = heard.text.as_deref().filter(|text| !text.is_empty()) {
            self.take_words(text, sink);
        }
        // Since the third generation, a transcription comes whole.
        if heard.finished == Some(true) {
            self.finish_hearing(sink);
        }
    }

    fn take_words(&mut self, text: &str, sink: IncomingSink<'_>) {
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
        for call in &calls {
            if let Some(id) = call.id.as_deref() {
                let name = call.name.as_deref().unwrap_or_default();
                self.names.insert(id.to_owned(), name.to_owned());
                self.open.push(id.to_owned());
            }
        }
        self.awaits_words = true;
        self.answered = false;
        self.lingers = false;
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

    /// Passes on the calls that were held.
    fn pass_on_calls(&mut self, sink: IncomingSink<'_>) {
        let Some(background) = self.background.as_mut().filter(|it| it.holds_calls()) else {
            return;
        };
        let calls = background.take_calls();
        let calls = calls.iter();
        let calls = calls.filter_map(|json| serde_json::from_str(json).ok());
        self.calls(calls.collect(), sink);
    }

    fn spoke(&mut self) {
        self.awaits_words = false;
        self.answered = false;
        self.lingers = false;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A model that says that it goes on, and then does not, has not the last word.
    #[test]
    fn a_model_that_thinks_without_end_is_done() {
        let mut assembly = Assembly::new(Generation::BackgroundThinking, false, false);
        let mut completed = 0;
        let mut sink = |incoming: Incoming<'_>| {
            if let Incoming::Event(event) = incoming {
                completed += usize::from(event.turn_complete == Some(true));
            }
        };
        let busy = br#"{"serverContent":{"turnComplete":true,"interactionStatus":"IN_PROGRESS"}}"#;
        let quiet = assembly.message(busy, &mut sink).ok().flatten();
        assert_eq!(quiet, Some(THINKING));
        // What says nothing does not change that.
        let usage = br#"{"usageMetadata":{"totalTokenCount":1}}"#;
        assert!(matches!(assembly.message(usage, &mut sink), Ok(None)));
        assert!(assembly.awaits_words());
        assembly.on_quiet(&mut sink);
        assert!(!assembly.awaits_words());
        assert_eq!(completed, 1);
    }

    /// While a call is open, neither its model's words nor late words of the user begin a turn.
    #[test]
    fn nobody_begins_a_turn_during_a_call() {
        let call = br#"{"toolCall":{"functionCalls":[{"id":"1","name":"a","args":{}}]}}"#;
        let model = br#"{"serverContent":{"outputTranscription":{"text":"hm"}}}"#;
        let user = br#"{"serverContent":{"inputTranscription":{"text":"hm"}}}"#;
        for (generation, spoken) in [
            (Generation::Second, Some(Speaker::Model)),
            (Generation::Third, Some(Speaker::Model)),
            (Generation::BackgroundThinking, None),
        ] {
            let mut assembly = Assembly::new(generation, false, false);
            assert_eq!(assembly.speaker(user), Some(Speaker::User));
            assert!(assembly.message(call, &mut |_| {}).is_ok());
            assembly.on_quiet(&mut |_| {});
            assert_eq!(assembly.open_calls(), ["1"]);
            assert_eq!(assembly.speaker(user), None, "{generation:?}");
            assert_eq!(assembly.speaker(model), spoken, "{generation:?}");
        }
    }

    /// Speech that comes well after the call is new, and the model is informed with the next input.
    #[tokio::test(start_paused = true)]
    async fn the_user_may_go_on_during_a_call() {
        let mut assembly = Assembly::new(Generation::BackgroundThinking, false, false);
        let call = br#"{"toolCall":{"functionCalls":[{"id":"1","name":"a","args":{}}]}}"#;
        let user = br#"{"serverContent":{"inputTranscription":{"text":"hm"}}}"#;
        assert!(assembly.message(call, &mut |_| {}).is_ok());
        assembly.on_quiet(&mut |_| {});
        assert!(assembly.message(user, &mut |_| {}).is_ok());
        assert_eq!(
            assembly.open_calls(),
            ["1"],
            "that was said before the call"
        );
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(assembly.speaker(user), Some(Speaker::User));
        assert!(assembly.message(user, &mut |_| {}).is_ok());
        assert!(assembly.open_calls().is_empty());
        let left = [("1".to_owned(), "a".to_owned())];
        assert_eq!(assembly.sent(&LiveInput::Audio(&[])), left);
        assert!(assembly.sent(&LiveInput::Audio(&[])).is_empty());
    }
}
