//! Event → chunks: the content of an agent's events in the form of the AI SDK.
//!
//! The translator writes the content of events (text, thoughts, files, code, sources, speech, tool inputs). What an
//! event means for the reply's calls is returned as [`Fact`]s; the reply decides what follows from them.
//!
//! What it evens out:
//! - partial events are deltas and the final one repeats the whole: the repeat is recognised by length and hash of what
//!   was streamed, because live agents give every delta an id of its own;
//! - several agents may write at once: each has a separate text part that grows next to the others;
//! - a server may send an event twice (once more for an artifact): recognised by the id of the last complete event;
//! - partial events may hold complete calls: only non-partial ones count, but streamed arguments are shown as they grow;
//! - an error comes as an event and again as a bare line: the first one counts.

mod author;
mod planner;
mod repeat;
mod tool_calls;

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use self::author::{Authors, Kind, OpenText};
use self::planner::Planner;
use self::repeat::{Repeat, Streamed};
use self::tool_calls::StreamingCall;
use crate::audio::PcmFormat;
use crate::base64;
use crate::calls::Origin;
use crate::chunk::{Chunk, DataChunk, FinishReason};
use crate::event::{
    Blob, Event, FunctionCall, FunctionResponse, Part, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL,
    Transcription,
};
use crate::id::MessageId;
use crate::json_text::Json;
use crate::message::{Draft, Message, text_id};
use crate::metadata::{Metadata, shown_sources, sources_of};
use crate::outbox::{Emitter, Outbox};

/// How much of a file's name is shown; file systems allow 255 bytes.
const MAX_NAME_CHARS: usize = 255;

/// What an event means beyond its content.
#[derive(Debug, PartialEq)]
pub enum Fact<'e> {
    /// A complete call; its index in the reply's calls.
    Called {
        /// Which of the calls.
        index: usize,
        /// Whether its result comes later.
        long_running: bool,
    },
    /// A remote agent asks a human about one of its calls.
    Confirmation {
        /// The agent's id of the call.
        remote_id: &'e str,
        /// The call that is asked about.
        original: Original,
        /// What is shown to the user.
        hint: String,
        /// What the human may fill in, as the tool suggests it.
        payload: Option<Json>,
    },
    /// A remote agent asks the user for credentials; the arguments hold secrets.
    CredentialRequest(&'e FunctionCall<'e>),
    /// A remote agent's tool has answered; a placeholder only says that a human must be asked first.
    Responded {
        /// The response.
        response: &'e FunctionResponse<'e>,
        /// Whether the real one is still to come.
        placeholder: bool,
        /// Whether it says no more than that the user has to grant something first.
        needs_login: bool,
        /// The URI of the app that shows the result.
        app: Option<&'e str>,
    },
    /// The user's speech as text.
    Heard {
        /// The words.
        text: &'e str,
        /// Whether no more are to come.
        finished: bool,
    },
    /// The user spoke while the model did.
    Interrupted,
    /// A live agent has finished its turn.
    TurnComplete,
}

/// The call that a confirmation is about, as the agent repeats it.
#[derive(Debug, Clone, PartialEq)]
pub struct Original {
    /// Its id, if the agent named it.
    pub id: Option<String>,
    /// The name of its tool.
    pub name: String,
    /// Nothing if the agent does not repeat them.
    pub args: Option<Json>,
}

/// Translates the events of one reply.
#[derive(Debug, Default)]
pub struct Translator {
    authors: Authors,
    /// The model's speech as text, streamed so far.
    transcribed: Streamed,
    streaming: Vec<StreamingCall>,
    scratch: String,
    step: Step,
    pub(crate) metadata: Metadata,
    outcome: Outcome,
    sources: Vec<String>,
    /// The number of the live turn, for the player.
    turn: u32,
    /// The message that the user's speech becomes.
    user_message: Option<MessageId>,
    /// Whether to hide what everybody writes, because the model that runs does not have all answers yet.
    muted: bool,
    bytes: usize,
}

/// How the model's last answer ended.
#[derive(Debug, Default)]
struct Outcome {
    finish: Option<FinishReason>,
    error: Option<String>,
    /// Whether it was cut short by the user's speech.
    cut: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Step {
    /// None is open.
    #[default]
    Closed,
    /// Open, and still empty.
    Fresh,
    Used,
    /// Open, and its model call has ended.
    Ended,
}

impl Translator {
    /// Translates one event: emits chunks and returns facts.
    pub(crate) fn event<'e>(
        &mut self,
        event: &'e Event<'_>,
        emitter: &mut Emitter<'_>,
    ) -> Vec<Fact<'e>> {
        let mut facts = Vec::new();
        let partial = event.is_partial();
        self.note(event, partial);
        if !event.is_from_user()
            && let Some(open) = self.authors.switch_to(event)
        {
            emitter.emit(&open.end());
        }
        self.note_error(event);
        let actions = event.actions.as_deref();
        if actions.is_some_and(|did| did.agent_state.is_some()) {
            self.authors.current().resumes = true;
        }
        let repeated = !partial && self.is_repeat(event);
        if !event.is_from_user() && !repeated {
            let parts = event.parts();
            let mut repeat = Repeat::of(self.authors.current(), parts, partial);
            for part in parts {
                self.part(part, event, &mut repeat, emitter, &mut facts);
            }
            if !partial && !parts.is_empty() {
                repeat.forget_repeated(self.authors.current());
                if repeat.has_words() {
                    // The next text is a separate part.
                    self.close_text(emitter);
                    self.authors.current().planner = Planner::default();
                }
            }
            if let Some(result) = event.result() {
                self.say(Kind::Text, &words_of(result), None, false, emitter);
                self.close_text(emitter);
            }
        }
        self.transcriptions(event, emitter, &mut facts);
        if !partial {
            self.sources(event, emitter);
        }
        let says = !event.parts().is_empty() || event.output_transcription.is_some();
        if event.interrupted == Some(true) {
            self.outcome.cut = true;
            self.close_text(emitter);
            facts.push(Fact::Interrupted);
        } else if says && !event.is_from_user() {
            self.outcome.cut = false;
        }
        if event.turn_complete == Some(true) {
            self.end_model_calls(emitter);
            facts.push(Fact::TurnComplete);
        } else if !partial && event.finish_reason.is_some() {
            self.end_model_call(emitter);
        }
        facts
    }

    /// Opens a step before a model call.
    pub(crate) fn start_step(&mut self, emitter: &mut Emitter<'_>) {
        self.close(emitter.draft, emitter.out);
        emitter.emit(&Chunk::StartStep);
        self.step = Step::Fresh;
    }

    /// Ends the text and the step that are open, if any.
    pub(crate) fn close(&mut self, draft: &mut Draft, out: &mut Outbox) {
        for open in self.authors.take_open() {
            draft.emit(&open.end(), out);
        }
        if self.step != Step::Closed {
            draft.emit(&Chunk::FinishStep, out);
            self.step = Step::Closed;
        }
    }

    /// Continues a reply after a restart; `fresh` says that its last step is open and empty.
    pub(crate) fn resume(message: &Message, fresh: bool) -> Self {
        Self {
            step: if fresh { Step::Fresh } else { Step::Closed },
            metadata: Metadata::resume(message.metadata.as_ref()),
            sources: shown_sources(message),
            ..Self::default()
        }
    }

    /// Sets the number of the live turn, and the message that the user's speech becomes.
    pub(crate) fn set_live_turn(&mut self, turn: u32, user_message: Option<&MessageId>) {
        self.turn = turn;
        self.user_message = user_message.cloned();
    }

    /// Ends what a model call left open; the agent will not repeat any of it. Other agents may be in the middle of theirs.
    fn end_model_call(&mut self, emitter: &mut Emitter<'_>) {
        self.close_text(emitter);
        self.authors.current().forget_streamed();
        self.transcribed = Streamed::default();
        self.metadata.end_model_call();
        if self.step == Step::Used && !self.authors.others_have_open_text() {
            self.step = Step::Ended;
        }
    }

    /// Ends the model calls of all agents.
    fn end_model_calls(&mut self, emitter: &mut Emitter<'_>) {
        for open in self.authors.take_open() {
            emitter.emit(&open.end());
        }
        self.authors.forget_streamed();
        self.end_model_call(emitter);
    }

    pub(crate) fn is_step_open(&self) -> bool {
        self.step != Step::Closed
    }

    /// Ends a run of the agent: a call that it has not completed by then is never completed.
    pub(crate) fn end_run(&mut self, emitter: &mut Emitter<'_>) {
        self.end_model_calls(emitter);
        self.streaming.clear();
    }

    /// Hides what the agent writes that has just asked: it does not have the answer yet, and what it says next would be
    /// taken for an answer. Other agents go on.
    pub(crate) fn mute_asker(&mut self) {
        self.authors.current().muted = true;
    }

    /// Hides everything, or nothing any more.
    pub(crate) fn set_muted(&mut self, muted: bool) {
        self.muted = muted;
        self.authors.unmute();
    }

    fn is_muted(&mut self) -> bool {
        self.muted || self.authors.current().muted
    }

    /// The agent whose event is being translated.
    pub(crate) fn origin(&self) -> Option<Origin> {
        self.authors.origin()
    }

    /// Keeps a failure for the end of the reply.
    pub(crate) fn put_error(&mut self, message: String) {
        self.outcome.error = Some(message);
    }

    /// Takes the failure that the agent reported.
    pub(crate) fn take_error(&mut self) -> Option<String> {
        self.outcome.error.take()
    }

    pub(crate) fn take_cut(&mut self) -> bool {
        std::mem::take(&mut self.outcome.cut)
    }

    pub(crate) fn finish_reason(&self) -> FinishReason {
        self.outcome.finish.unwrap_or(FinishReason::Stop)
    }

    /// How many bytes of content have been translated.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn note(&mut self, event: &Event<'_>, partial: bool) {
        self.metadata.note(event, partial);
        if let Some(reason) = event.finish_reason.as_deref() {
            self.outcome.finish = Some(FinishReason::from_agent(reason));
        }
    }

    /// Notes the failure that an event reports. An answer that was stopped before it said anything has only its reason to
    /// show.
    fn note_error(&mut self, event: &Event<'_>) {
        let author = self.authors.current();
        let says = |part: &Part<'_>| part.text.as_deref().is_none_or(|text| !text.is_empty());
        let has_said = event.parts().iter().any(says) || author.has_streamed();
        let error = error_of(event, has_said);
        if self.outcome.error.is_none() {
            self.outcome.error = error;
        }
    }

    /// Whether an event with this id has been translated already.
    fn is_repeat(&mut self, event: &Event<'_>) -> bool {
        let says = !event.parts().is_empty() || event.result().is_some();
        let Some(id) = event.id.as_deref().filter(|_| says) else {
            return false;
        };
        let last = &mut self.authors.current().last_final;
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
        emitter: &mut Emitter<'_>,
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
            self.say(kind, fresh, signature, event.is_partial(), emitter);
        } else if let Some(blob) = &part.inline_data {
            if !repeat.skip_file() {
                self.blob(blob, emitter);
            }
        } else if let Some(file) = &part.file_data {
            let url = file.file_uri.as_deref();
            let url = url.filter(|_| !repeat.skip_file());
            if let Some(url) = url.filter(|url| is_address(url)) {
                let media_type = file.mime_type.as_deref().unwrap_or(OCTETS);
                self.file(url, media_type, file.display_name.as_deref(), emitter);
            }
        } else if let Some(call) = part.function_call.as_deref() {
            let signature = part.thought_signature.as_deref();
            if event.is_partial() {
                self.streamed_call(call, emitter);
            } else if call.name.as_deref() == Some(REQUEST_CONFIRMATION) {
                facts.extend(tool_calls::confirmation(call));
            } else if call.name.as_deref() == Some(REQUEST_CREDENTIAL) {
                self.bytes += call.args.as_ref().map_or(0, |args| args.text().len());
                facts.push(Fact::CredentialRequest(call));
            } else if let Some(index) = self.call(call, signature, emitter) {
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
                self.close_text(emitter);
                // A result leads to a new model call, which repeats nothing of the one before. The transcription is
                // not forgotten: it may lag behind.
                self.authors.current().forget_streamed();
                let names = |asked: &Option<Json>| match (&response.id, asked) {
                    (Some(id), Some(asked)) => asked.get(id).is_some(),
                    _ => false,
                };
                let did = event.actions.as_deref();
                let app = match (&response.id, did) {
                    (Some(id), Some(did)) => did.app_of(id),
                    _ => None,
                };
                facts.push(Fact::Responded {
                    response,
                    placeholder: did.is_some_and(|did| names(&did.requested_tool_confirmations)),
                    needs_login: did.is_some_and(|did| names(&did.requested_auth_configs)),
                    app,
                });
            }
        } else if let Some(code) = &part.executable_code {
            self.code("data-executable-code", code, repeat, emitter);
        } else if let Some(result) = &part.code_execution_result {
            self.code("data-code-execution-result", result, repeat, emitter);
        }
    }

    fn say(
        &mut self,
        kind: Kind,
        text: &str,
        signature: Option<&str>,
        partial: bool,
        emitter: &mut Emitter<'_>,
    ) {
        let author = self.authors.current();
        // Nobody plans after the answer has begun: a text about planners is only a text.
        let may_begin = kind == Kind::Thought || !author.has_streamed_text();
        let is_planned = author.planner.concerns(text, may_begin);
        if partial {
            author.streamed(kind).push(text);
        }
        if self.is_muted() {
            return;
        }
        if is_planned {
            for (kind, piece) in self.authors.current().planner.cut(kind, text) {
                self.emit_text(kind, &piece, emitter);
            }
        } else if !text.is_empty() {
            self.emit_text(kind, text, emitter);
        }
        // A signature may come with the last piece, or with an empty one after it.
        if let (Some(signature), Some(open)) = (signature, &mut self.authors.current().open)
            && open.kind == kind
        {
            open.signature = Some(signature.to_owned());
        }
    }

    fn emit_text(&mut self, kind: Kind, text: &str, emitter: &mut Emitter<'_>) {
        self.bytes += text.len();
        let open = &self.authors.current().open;
        // A planner leaves blanks where its tags were.
        if kind == Kind::Thought && open.is_none() && text.trim().is_empty() {
            return;
        }
        if open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close_text(emitter);
            self.enter_step(emitter);
            let id = text_id(emitter.draft.next_index());
            emitter.emit(&kind.start(&id));
            self.authors.current().open = Some(OpenText {
                id,
                kind,
                signature: None,
            });
        }
        if let Some(open) = &self.authors.current().open {
            emitter.emit(&kind.delta(&open.id, text));
        }
    }

    fn close_text(&mut self, emitter: &mut Emitter<'_>) {
        if let Some((kind, held)) = self.authors.current().planner.take_held() {
            self.emit_text(kind, &held, emitter);
        }
        if let Some(open) = self.authors.current().open.take() {
            emitter.emit(&open.end());
        }
    }

    /// Opens a step for the next content, if it needs a new one. A step never opens while a call of the current one is
    /// open: that would hide the waiting call from the client's predicates. The exception is a call that the writing
    /// agent works on: if that agent asked something in the same step, the call would block the predicates. Nor does a
    /// step open in the middle of another agent's text: clients forget an open text at the end of its step.
    fn enter_step(&mut self, emitter: &mut Emitter<'_>) {
        let done = match self.step {
            Step::Closed | Step::Ended => true,
            Step::Fresh => false,
            Step::Used => emitter.draft.step_has_tools(),
        };
        let first = self.step == Step::Closed && !emitter.draft.step_has_tools();
        let blocked =
            self.authors.any_awaited(emitter.calls) || self.authors.others_have_open_text();
        if first || done && !blocked {
            self.start_step(emitter);
        }
        if self.step != Step::Closed {
            self.step = Step::Used;
        }
    }

    fn blob(&mut self, blob: &Blob<'_>, emitter: &mut Emitter<'_>) {
        let (Some(data), media_type) = (
            blob.data.as_deref(),
            blob.mime_type.as_deref().unwrap_or(OCTETS),
        ) else {
            return;
        };
        let data = base64::to_standard(data);
        let name = blob.display_name.as_deref();
        if let Ok(format) = PcmFormat::from_media_type(media_type) {
            emitter.emit(&Chunk::Data(DataChunk {
                kind: Cow::Borrowed("data-pcm"),
                id: None,
                data: json!({
                    "chunk": data, "sampleRate": format.sample_rate(), "turn": self.turn,
                })
                .into(),
                transient: Some(true),
            }));
        } else if self.is_muted() {
            // Hidden content is not stored.
        } else if let Some(kept) = emitter.ids.file(media_type, &data) {
            self.bytes += data.len();
            self.file(&kept.url, &kept.media_type, name, emitter);
        } else {
            let url = format!("data:{media_type};base64,{data}");
            self.file(&url, media_type, name, emitter);
        }
    }

    fn file(&mut self, url: &str, media_type: &str, name: Option<&str>, emitter: &mut Emitter<'_>) {
        if self.is_muted() {
            return;
        }
        self.bytes += url.len();
        self.authors.current().files += 1;
        self.close_text(emitter);
        self.enter_step(emitter);
        emitter.emit(&Chunk::File {
            url: Cow::Borrowed(url),
            media_type: Cow::Borrowed(media_type),
            provider_metadata: name.and_then(named),
        });
    }

    fn code(
        &mut self,
        kind: &'static str,
        data: &Json,
        repeat: &mut Repeat,
        emitter: &mut Emitter<'_>,
    ) {
        if repeat.skip_code() || self.is_muted() {
            return;
        }
        self.authors.current().codes += 1;
        self.close_text(emitter);
        self.enter_step(emitter);
        emitter.emit(&Chunk::Data(DataChunk {
            kind: Cow::Borrowed(kind),
            id: None,
            data: data.clone(),
            transient: None,
        }));
    }

    fn transcriptions<'e>(
        &mut self,
        event: &'e Event<'_>,
        emitter: &mut Emitter<'_>,
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
            emitter.emit(&Chunk::Data(DataChunk {
                kind: Cow::Borrowed("data-transcription"),
                id: None,
                data: Value::Object(data).into(),
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
                let rest = self.transcribed.rest_of(text).unwrap_or_default();
                if !rest.is_empty() && !self.is_muted() {
                    self.emit_text(Kind::Text, rest, emitter);
                }
                self.transcribed = Streamed::default();
            } else if !text.is_empty() && !self.is_muted() {
                self.transcribed.push(text);
                self.emit_text(Kind::Text, text, emitter);
            }
        }
    }

    fn sources(&mut self, event: &Event<'_>, emitter: &mut Emitter<'_>) {
        if self.is_muted() {
            return;
        }
        for source in sources_of(event) {
            if self.sources.contains(&source.key) {
                continue;
            }
            self.close_text(emitter);
            self.enter_step(emitter);
            let id = format!("source-{}", self.sources.len() + 1);
            emitter.emit(&source.chunk(&id));
            self.sources.push(source.key);
        }
    }
}

/// The media type of bytes of unknown kind.
pub(crate) const OCTETS: &str = "application/octet-stream";

/// Whether an agent's file may be shown as a link. Front ends turn files into links, and a link with some schemes would
/// run code.
fn is_address(url: &str) -> bool {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    ["data", "http", "https", "gs", "artifact"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(scheme))
}

pub(crate) fn file_chunk<'a>(url: &'a str, media_type: &'a str) -> Chunk<'a> {
    Chunk::File {
        url: Cow::Borrowed(url),
        media_type: Cow::Borrowed(media_type),
        provider_metadata: None,
    }
}

/// The name of a file, for which the AI SDK's chunk has no field.
fn named(name: &str) -> Option<Json> {
    let shown = name.chars().filter(|letter| !letter.is_control());
    let shown: String = shown.take(MAX_NAME_CHARS).collect();
    (!shown.trim().is_empty()).then(|| json!({"adk": {"filename": shown}}).into())
}

/// The place of a thought signature, as in the AI SDK's own Google provider.
pub(crate) fn signed(signature: impl Into<String>) -> Json {
    json!({"google": {"thoughtSignature": signature.into()}}).into()
}

/// The result of a workflow as text.
fn words_of(result: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str::<String>(result.get()) {
        Ok(text) => Cow::Owned(text),
        Err(_) => Cow::Borrowed(result.get()),
    }
}

/// The failure that an event reports. A blocked prompt is a failure; stopping for length or safety in the middle of an
/// answer is not.
fn error_of(event: &Event<'_>, has_said: bool) -> Option<String> {
    let reason = event.finish_reason.as_deref().map(FinishReason::from_agent);
    let has_reason = event.error_message.is_some();
    let stopped = match reason {
        Some(FinishReason::ContentFilter) => has_said,
        Some(FinishReason::Length | FinishReason::Stop) => has_said || !has_reason,
        _ => false,
    };
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
