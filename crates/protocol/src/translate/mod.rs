//! Event → chunks: what an agent says, in the words of the AI SDK.
//!
//! The translator writes the content of events (text, thoughts, files, code, sources, speech, tool inputs) and hands
//! back as [`Fact`]s what an event means for the reply's calls; the reply decides what follows from those.
//!
//! What it evens out:
//! - partial events are deltas and the final one repeats the whole: the repeat is recognised by length and hash of what
//!   was streamed, because live agents give every delta an id of its own;
//! - several agents may speak at once: each has a text part of its own that grows beside the others;
//! - a server may send an event twice (once more for an artifact): the id of the last complete event tells;
//! - partial events may hold complete calls: only non-partial ones count, but streamed arguments are shown as they grow;
//! - an error comes as an event and again as a bare line: the first one counts.

mod repeat;
mod tool_calls;
mod voice;

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use self::repeat::{Repeat, Streamed};
use self::tool_calls::StreamingCall;
use self::voice::{Kind, OpenText, Voices};
use crate::audio::PcmFormat;
use crate::base64;
use crate::chunk::{Chunk, DataChunk, FinishReason};
use crate::event::{Blob, Event, FunctionResponse, Part, REQUEST_CONFIRMATION, Transcription};
use crate::message::Message;
use crate::metadata::{Metadata, shown_sources, sources_of};
use crate::outbox::{Draft, Outbox, Page};

/// What an event means beyond its content.
#[derive(Debug, PartialEq)]
pub enum Fact<'e> {
    /// A complete call; it is in the book of calls under this index.
    Called { index: usize, long_running: bool },
    /// A remote agent asks a human about one of its calls.
    Confirmation {
        remote_id: &'e str,
        original: Original,
        hint: String,
        /// What the human may fill in, as the tool suggests it.
        payload: Option<&'e Value>,
    },
    /// A remote agent's tool has answered; a placeholder only says that a human must be asked first.
    Responded {
        response: &'e FunctionResponse<'e>,
        placeholder: bool,
    },
    /// The user's speech as text.
    Heard { text: &'e str, finished: bool },
    /// The user spoke while the model did.
    Interrupted,
    /// A live agent has finished its turn.
    TurnComplete,
}

/// The call that a confirmation is about, as the agent repeats it.
#[derive(Debug, Clone, PartialEq)]
pub struct Original {
    pub id: Option<String>,
    pub name: String,
    pub args: Value,
}

/// Translates the events of one reply.
#[derive(Debug, Default)]
pub struct Translator {
    voices: Voices,
    spoken: Streamed,
    streaming: Vec<StreamingCall>,
    scratch: String,
    step: Step,
    pub(crate) metadata: Metadata,
    finish: Option<FinishReason>,
    error: Option<String>,
    /// Whether what was said last was cut short by the user's speech.
    cut: bool,
    sources: Vec<String>,
    /// The number of the live turn, for the player.
    turn: u32,
    /// The message that the user's speech becomes.
    user_message: Option<String>,
    /// What a remote model says before it knows all results is not shown.
    pub(crate) muted: bool,
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Step {
    /// None is open.
    #[default]
    Closed,
    /// Open, and nothing has been said in it.
    Fresh,
    Used,
    /// Open, and its model call has ended.
    Ended,
}

impl Translator {
    /// Translates one event: chunks go to the page, facts are returned.
    pub(crate) fn event<'e>(&mut self, event: &'e Event<'_>, page: &mut Page<'_>) -> Vec<Fact<'e>> {
        let mut facts = Vec::new();
        let partial = event.is_partial();
        self.note(event, partial);
        if !event.is_from_user()
            && let Some(open) = self.voices.turn_to(event)
        {
            page.emit(&open.end());
        }
        let repeated = !partial && self.is_repeat(event);
        if !event.is_from_user() && !repeated {
            let parts = event.parts();
            let mut repeat = Repeat::of(self.voices.current(), parts, partial);
            for part in parts {
                self.part(part, event, &mut repeat, page, &mut facts);
            }
            if !partial && !parts.is_empty() {
                repeat.done(self.voices.current());
                if repeat.has_words() {
                    // What comes next was not said in the same breath.
                    self.close_text(page);
                }
            }
            if let Some(result) = event.result() {
                self.say(Kind::Text, &words_of(result), None, false, page);
                self.close_text(page);
            }
        }
        self.transcriptions(event, page, &mut facts);
        if !partial {
            self.sources(event, page);
        }
        let says = !event.parts().is_empty() || event.output_transcription.is_some();
        if event.interrupted == Some(true) {
            self.cut = true;
            self.close_text(page);
            facts.push(Fact::Interrupted);
        } else if says && !event.is_from_user() {
            self.cut = false;
        }
        if event.turn_complete == Some(true) {
            self.end_model_calls(page);
            facts.push(Fact::TurnComplete);
        } else if !partial && event.finish_reason.is_some() {
            self.end_model_call(page);
        }
        facts
    }

    /// Opens a step before a model call.
    pub(crate) fn start_step(&mut self, page: &mut Page<'_>) {
        self.close(page.draft, page.out);
        page.emit(&Chunk::StartStep);
        self.step = Step::Fresh;
    }

    /// Ends the text and the step that are open, if any.
    pub(crate) fn close(&mut self, draft: &mut Draft, out: &mut Outbox) {
        for open in self.voices.take_open() {
            draft.emit(&open.end(), out);
        }
        if self.step != Step::Closed {
            draft.emit(&Chunk::FinishStep, out);
            self.step = Step::Closed;
        }
    }

    /// Takes up a reply after a restart; `fresh` says that its last step is open and empty.
    pub(crate) fn resume(message: &Message, fresh: bool) -> Self {
        Self {
            step: if fresh { Step::Fresh } else { Step::Closed },
            metadata: Metadata::resume(message.metadata.as_ref()),
            sources: shown_sources(message),
            ..Self::default()
        }
    }

    /// Says which live turn is spoken in, and which message the user's speech becomes.
    pub(crate) fn speak_in(&mut self, turn: u32, user_message: Option<&str>) {
        self.turn = turn;
        self.user_message = user_message.map(str::to_owned);
    }

    /// Ends what a model call left open; nothing of it is repeated any more. Other agents may be in the middle of theirs.
    fn end_model_call(&mut self, page: &mut Page<'_>) {
        self.close_text(page);
        self.voices.current().forget_streamed();
        self.spoken = Streamed::default();
        self.metadata.end_model_call();
        if self.step == Step::Used && !self.voices.others_speak() {
            self.step = Step::Ended;
        }
    }

    /// Ends the model calls of all agents.
    fn end_model_calls(&mut self, page: &mut Page<'_>) {
        for open in self.voices.take_open() {
            page.emit(&open.end());
        }
        self.voices.forget_streamed();
        self.end_model_call(page);
    }

    pub(crate) fn is_step_open(&self) -> bool {
        self.step != Step::Closed
    }

    /// Ends a run of the agent: a call that it has not completed by then is never completed.
    pub(crate) fn end_run(&mut self, page: &mut Page<'_>) {
        self.end_model_calls(page);
        self.streaming.clear();
    }

    /// The failure that the agent reported, once.
    pub(crate) fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }

    pub(crate) fn take_cut(&mut self) -> bool {
        std::mem::take(&mut self.cut)
    }

    pub(crate) fn finish_reason(&self) -> FinishReason {
        self.finish.unwrap_or(FinishReason::Stop)
    }

    /// How many bytes of content have been translated.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn note(&mut self, event: &Event<'_>, partial: bool) {
        self.metadata.note(event, partial);
        if let Some(reason) = event.finish_reason.as_deref() {
            self.finish = Some(FinishReason::from_agent(reason));
        }
        if self.error.is_none() {
            self.error = error_of(event);
        }
    }

    /// Whether an event with this id has been taken in completely.
    fn is_repeat(&mut self, event: &Event<'_>) -> bool {
        let says = !event.parts().is_empty() || event.result().is_some();
        let Some(id) = event.id.as_deref().filter(|_| says) else {
            return false;
        };
        let last = &mut self.voices.current().last_final;
        if *last == id {
            return true;
        }
        last.clear();
        last.push_str(id);
        false
    }

    fn part<'e>(
        &mut self,
        part: &'e Part<'_>,
        event: &'e Event<'_>,
        repeat: &mut Repeat,
        page: &mut Page<'_>,
        facts: &mut Vec<Fact<'e>>,
    ) {
        if let Some(text) = part.text.as_deref() {
            let kind = if part.thought == Some(true) {
                Kind::Thought
            } else {
                Kind::Text
            };
            let fresh = repeat.rest(kind, text);
            let signature = part.thought_signature.as_deref();
            self.say(kind, fresh, signature, event.is_partial(), page);
        } else if let Some(blob) = &part.inline_data {
            if !repeat.skip_file() {
                self.blob(blob, page);
            }
        } else if let Some(file) = &part.file_data {
            if let (Some(url), false) = (file.file_uri.as_deref(), repeat.skip_file()) {
                let media_type = file.mime_type.as_deref().unwrap_or(OCTETS);
                self.file(url, media_type, page);
            }
        } else if let Some(call) = part.function_call.as_deref() {
            let signature = part.thought_signature.as_deref();
            if event.is_partial() {
                self.streamed_call(call, page);
            } else if call.name.as_deref() == Some(REQUEST_CONFIRMATION) {
                facts.extend(tool_calls::confirmation(call));
            } else if let Some(index) = self.call(call, signature, page) {
                let long_running = call
                    .id
                    .as_deref()
                    .is_some_and(|id| event.long_running_tool_ids.iter().any(|other| other == id));
                facts.push(Fact::Called {
                    index,
                    long_running,
                });
            }
        } else if let Some(response) = part.function_response.as_deref() {
            if !event.is_partial() {
                self.close_text(page);
                // A model that was told a result is called anew, and repeats nothing of the call before. A
                // transcription may lag behind that.
                self.voices.current().forget_streamed();
                let placeholder = match (&response.id, &event.actions) {
                    (Some(id), Some(did)) => {
                        did.requested_tool_confirmations.contains_key(id.as_ref())
                    }
                    _ => false,
                };
                facts.push(Fact::Responded {
                    response,
                    placeholder,
                });
            }
        } else if let Some(code) = part.executable_code.as_deref() {
            self.code("data-executable-code", code, repeat, page);
        } else if let Some(result) = part.code_execution_result.as_deref() {
            self.code("data-code-execution-result", result, repeat, page);
        }
    }

    fn say(
        &mut self,
        kind: Kind,
        text: &str,
        signature: Option<&str>,
        partial: bool,
        page: &mut Page<'_>,
    ) {
        if partial {
            self.voices.current().streamed(kind).push(text);
        }
        if self.muted {
            return;
        }
        if !text.is_empty() {
            self.speak(kind, text, page);
        }
        // A signature may come with the last piece, or with an empty one after it.
        if let (Some(signature), Some(open)) = (signature, &mut self.voices.current().open)
            && open.kind == kind
        {
            open.signature = Some(signature.to_owned());
        }
    }

    fn speak(&mut self, kind: Kind, text: &str, page: &mut Page<'_>) {
        self.bytes += text.len();
        let open = &self.voices.current().open;
        if open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close_text(page);
            self.enter_step(page);
            let id = text_id(page.draft.next_index());
            page.emit(&kind.start(&id));
            self.voices.current().open = Some(OpenText {
                id,
                kind,
                signature: None,
            });
        }
        if let Some(open) = &self.voices.current().open {
            page.emit(&kind.delta(&open.id, text));
        }
    }

    fn close_text(&mut self, page: &mut Page<'_>) {
        if let Some(open) = self.voices.current().open.take() {
            page.emit(&open.end());
        }
    }

    /// Makes sure that a step is open for what is said next. A step never opens while a call of the current one is
    /// open: that would hide the waiting call from the client's predicates. A call whose own agent is speaking is no
    /// such call, and it would block them if its agent asked something in the same step. Nor does it open in the middle of what
    /// another agent says: clients forget an open text at the end of its step.
    fn enter_step(&mut self, page: &mut Page<'_>) {
        let done = match self.step {
            Step::Closed | Step::Ended => true,
            Step::Fresh => false,
            Step::Used => page.draft.step_has_tools(),
        };
        let first = self.step == Step::Closed && !page.draft.step_has_tools();
        let held = self.voices.any_awaited(page.calls) || self.voices.others_speak();
        if first || done && !held {
            self.start_step(page);
        }
        if self.step != Step::Closed {
            self.step = Step::Used;
        }
    }

    fn blob(&mut self, blob: &Blob<'_>, page: &mut Page<'_>) {
        let (Some(data), media_type) = (
            blob.data.as_deref(),
            blob.mime_type.as_deref().unwrap_or(OCTETS),
        ) else {
            return;
        };
        let data = base64::to_standard(data);
        if let Ok(format) = PcmFormat::from_media_type(media_type) {
            page.emit(&Chunk::Data(DataChunk {
                kind: Cow::Borrowed("data-pcm"),
                id: None,
                data: Cow::Owned(json!({
                    "chunk": data, "sampleRate": format.sample_rate(), "turn": self.turn,
                })),
                transient: Some(true),
            }));
        } else if self.muted {
            // What is not shown is not kept.
        } else if let Some(kept) = page.ids.file(media_type, &data) {
            self.bytes += data.len();
            self.file(&kept.url, &kept.media_type, page);
        } else {
            let url = format!("data:{media_type};base64,{data}");
            self.file(&url, media_type, page);
        }
    }

    pub(crate) fn file(&mut self, url: &str, media_type: &str, page: &mut Page<'_>) {
        if self.muted {
            return;
        }
        self.bytes += url.len();
        self.voices.current().files += 1;
        self.close_text(page);
        self.enter_step(page);
        page.emit(&file_chunk(url, media_type));
    }

    fn code(&mut self, kind: &'static str, data: &Value, repeat: &mut Repeat, page: &mut Page<'_>) {
        if repeat.skip_code() || self.muted {
            return;
        }
        self.voices.current().codes += 1;
        self.close_text(page);
        self.enter_step(page);
        page.emit(&Chunk::Data(DataChunk {
            kind: Cow::Borrowed(kind),
            id: None,
            data: Cow::Borrowed(data),
            transient: None,
        }));
    }

    fn transcriptions<'e>(
        &mut self,
        event: &'e Event<'_>,
        page: &mut Page<'_>,
        facts: &mut Vec<Fact<'e>>,
    ) {
        if let Some(heard) = &event.input_transcription {
            let text = heard.text.as_deref().unwrap_or_default();
            let finished = heard.finished == Some(true);
            let mut data = Map::new();
            if let Some(id) = &self.user_message {
                data.insert("messageId".into(), json!(id));
            }
            data.insert("text".into(), json!(text));
            data.insert("final".into(), json!(finished));
            page.emit(&Chunk::Data(DataChunk {
                kind: Cow::Borrowed("data-transcription"),
                id: None,
                data: Cow::Owned(Value::Object(data)),
                transient: Some(true),
            }));
            facts.push(Fact::Heard { text, finished });
        }
        if let Some(Transcription {
            text: Some(text),
            finished,
        }) = &event.output_transcription
        {
            if *finished == Some(true) {
                let rest = self.spoken.rest_of(text).unwrap_or_default();
                if !rest.is_empty() && !self.muted {
                    self.speak(Kind::Text, rest, page);
                }
                self.spoken = Streamed::default();
            } else if !text.is_empty() && !self.muted {
                self.spoken.push(text);
                self.speak(Kind::Text, text, page);
            }
        }
    }

    fn sources(&mut self, event: &Event<'_>, page: &mut Page<'_>) {
        if self.muted {
            return;
        }
        for source in sources_of(event) {
            if self.sources.contains(&source.key) {
                continue;
            }
            self.close_text(page);
            self.enter_step(page);
            let id = format!("source-{}", self.sources.len() + 1);
            page.emit(&source.chunk(&id));
            self.sources.push(source.key);
        }
    }
}

/// The id of the text part at this index of a message.
pub(crate) fn text_id(index: usize) -> String {
    format!("t{index}")
}

/// A media type for bytes of which nothing is known.
pub(crate) const OCTETS: &str = "application/octet-stream";

/// A file that the front end can fetch or show.
pub(crate) fn file_chunk<'a>(url: &'a str, media_type: &'a str) -> Chunk<'a> {
    Chunk::File {
        url: Cow::Borrowed(url),
        media_type: Cow::Borrowed(media_type),
        provider_metadata: None,
    }
}

/// Where a thought signature travels: the place that the AI SDK's own Google provider uses.
pub(crate) fn signed(signature: impl Into<String>) -> Value {
    json!({"google": {"thoughtSignature": signature.into()}})
}

/// The result of a workflow as text.
fn words_of(result: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str::<String>(result.get()) {
        Ok(text) => Cow::Owned(text),
        Err(_) => Cow::Borrowed(result.get()),
    }
}

/// What an event reports as a failure. Stopping for length or safety is none, a blocked prompt is.
fn error_of(event: &Event<'_>) -> Option<String> {
    let stopped = event.finish_reason.as_deref().is_some_and(|reason| {
        matches!(
            FinishReason::from_agent(reason),
            FinishReason::Length | FinishReason::ContentFilter | FinishReason::Stop
        )
    });
    let code = event.error_code.as_deref().filter(|_| !stopped);
    match (code, event.error_message.as_deref(), &event.error) {
        (Some(code), Some(message), _) => Some(format!("{code}: {}", message.trim())),
        (Some(code), None, _) if event.finish_reason.is_none() => {
            Some(format!("the model refused the request ({code})"))
        }
        (Some(code), None, _) => Some(format!("the model ended with {code}")),
        (None, _, Some(raw)) => Some(match serde_json::from_str(raw.get()) {
            Ok(Value::String(text)) => text,
            Ok(Value::Object(fields)) => fields
                .get("message")
                .and_then(Value::as_str)
                .map_or_else(|| raw.get().to_owned(), str::to_owned),
            _ => raw.get().to_owned(),
        }),
        _ => None,
    }
}
