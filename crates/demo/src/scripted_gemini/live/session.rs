//! One live conversation: what each side has said, which side speaks, and which calls are open.
//!
//! ```text
//!           the user's turn ends                 the last word, or the calls
//!   Listening ─────────────────▶ Speaking ──────────────────────────────────▶ Listening, calls open or not
//!       ▲                            │                                              │
//!       └── speech, text, content ───┘ interrupted      toolResponse: Speaking  ◀───┤
//!                                                       speech, text: calls cancelled
//! ```
//!
//! Calls in the background (see [`Generation::is_background`]) change no state: the model goes on, nobody cancels them,
//! and each result is answered when the model is silent, unless it says otherwise.
//!
//! It never waits and has no clock: messages come in; messages to send immediately, and pieces to send at the model's
//! pace, go out.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::json_text::Json;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::Scripted;
use super::super::answer::{self, Answer, End};
use super::super::chunks;
use super::super::fields::decode;
use super::super::request::Request;
use super::super::rules;
use super::super::script::{Call, Line};
use super::ears::{Ears, SpeechEvent};
use super::generation::{Generation, declarations};
use super::setup::{INTERNAL, INVALID, NOT_FOUND, Refusal, Setup};
use super::speech::{Cue, Speech};
use super::voice;
use adk_bridge_protocol::audio::PcmFormat;

/// Older contents are forgotten, as by a model with a sliding window.
const MAX_CONTENTS: usize = 400;
/// One message of sound: 200 ms.
const SOUND_SAMPLES: usize = 4_800;
/// Google's count for a second of sound.
const TOKENS_PER_SECOND: u64 = 32;
/// What the model says while it thinks, or while a call is open.
const FILLER: &str = "One moment. ";

pub(super) struct Session {
    scripted: Arc<Scripted>,
    setup: Setup,
    contents: Vec<Json>,
    ears: Ears,
    speech: Option<Speech>,
    open: Vec<OpenCall>,
    background: Background,
    /// What the user said while the model could not be interrupted.
    waiting: VecDeque<Json>,
    /// The end of the user's transcription, which is sent later.
    late: Option<String>,
    /// The latest picture from the camera since the last turn.
    frame: Option<Value>,
    ready: VecDeque<Json>,
    calls_made: u64,
}

/// What is under way while the model speaks or listens.
#[derive(Default)]
struct Background {
    /// Calls whose results the model does not wait for.
    calls: Vec<OpenCall>,
    /// Results of such calls that are answered when the model is silent.
    results: Vec<Json>,
    /// The answer that follows what is said while thinking.
    answer: Option<Speech>,
}

impl Background {
    /// Whether nothing more follows unless the user speaks.
    fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.results.is_empty() && self.answer.is_none()
    }
}

struct OpenCall {
    id: String,
    name: String,
    /// The call as a part of the conversation.
    part: Json,
}

/// What a piece of the answer does in addition to being sent.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    None,
    Line(Line),
    Refused(Refusal),
    Drop,
}

impl Session {
    pub(super) fn open(scripted: Arc<Scripted>, setup: Setup) -> Result<Self, Refusal> {
        let contents = match &setup.handle {
            None => Vec::new(),
            Some(handle) => {
                let state = scripted.handles.take_up(handle).ok_or_else(|| {
                    Refusal::new(NOT_FOUND, "BidiGenerateContent session not found")
                })?;
                state.as_ref().clone()
            }
        };
        let mut session = Self {
            ears: Ears::new(setup.detects_activity, setup.silence_ms),
            scripted,
            setup,
            contents,
            speech: None,
            open: Vec::new(),
            background: Background::default(),
            waiting: VecDeque::new(),
            late: None,
            frame: None,
            ready: VecDeque::from([json!({"setupComplete": {}}).into()]),
            calls_made: 0,
        };
        session.give_handle();
        Ok(session)
    }

    /// Takes a checked message of the client.
    pub(super) fn take(&mut self, message: &Json) -> Result<(), Refusal> {
        if message.fields().len() != 1 {
            return Err(invalid());
        }
        if let Some(content) = message.get("clientContent") {
            return self.content(&content);
        }
        if let Some(input) = message.get("realtimeInput") {
            return self.realtime(&input.to_value());
        }
        if let Some(response) = message.get("toolResponse") {
            return self.responses(&response);
        }
        if let Some(update) = message.get("contextUpdate") {
            return self.update_context(&update.to_value());
        }
        Err(Refusal::new(INVALID, "setup must be sent once, and first."))
    }

    /// The next message to send immediately.
    pub(super) fn ready(&mut self) -> Option<Json> {
        self.ready.pop_front()
    }

    /// How long to wait before [`Session::speak`]; `None` if the model is silent.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.speech.as_ref().map(Speech::pause)
    }

    /// Says the next piece of the answer.
    pub(super) fn speak(&mut self) -> Effect {
        let Some(cue) = self.speech.as_mut().map(Speech::next) else {
            return Effect::None;
        };
        let mut effect = Effect::None;
        match cue {
            Cue::Words(words) => self.say(&words),
            Cue::Part(part) => self.send(json!({"serverContent": {"modelTurn": {
                "role": "model", "parts": [part],
            }}})),
            Cue::Calls(calls) => self.call(calls),
            Cue::Line(line) => {
                if let Line::GoAway(left) = line {
                    self.send(json!({"goAway": {"timeLeft": seconds(left)}}));
                }
                effect = Effect::Line(line);
            }
            Cue::Generated => {
                self.send(json!({"serverContent": {"generationComplete": true}}));
            }
            Cue::Complete(end, grounding) => match end {
                End::Cut => effect = Effect::Drop,
                End::Broken(error) | End::Refused(error) => {
                    effect = Effect::Refused(Refusal::new(INTERNAL, error.message()));
                }
                end => self.complete(&end, grounding),
            },
        }
        if let Some(late) = self.late.take() {
            self.send(json!({"serverContent": {"inputTranscription": {"text": late}}}));
        }
        effect
    }

    /// New tools replace the old ones; the instruction plays no part in a script.
    fn update_context(&mut self, update: &Value) -> Result<(), Refusal> {
        if self.setup.generation < Generation::Third {
            return Err(invalid());
        }
        let tools = &update["tools"];
        if tools.is_object() {
            self.setup.generation.check_tools(&tools["tools"])?;
            self.setup.tools = tools["tools"].clone();
        }
        Ok(())
    }

    fn content(&mut self, content: &Json) -> Result<(), Refusal> {
        if self.setup.generation == Generation::EarlyThird && !self.setup.begins_with_history {
            return Err(invalid());
        }
        self.interrupt();
        let turns = content.get("turns").unwrap_or_default();
        let turns = turns.items().unwrap_or_default().into_iter();
        self.contents
            .extend(turns.filter_map(|turn| Json::read_raw(turn).ok()));
        if content.get("turnComplete") != Some(true.into()) {
            return Ok(());
        }
        // The model knows its history and waits for the user.
        if std::mem::take(&mut self.setup.begins_with_history) {
            return Ok(());
        }
        self.answer()
    }

    fn realtime(&mut self, input: &Value) -> Result<(), Refusal> {
        if self.setup.begins_with_history {
            return Err(Refusal::new(
                INVALID,
                "The initial history must be complete before realtime input is sent.",
            ));
        }
        let chunks = input["mediaChunks"].as_array();
        if chunks.is_some() && !self.setup.completes_at_call() {
            return Err(Refusal::new(
                INVALID,
                "realtime_input.media_chunks is deprecated. Use audio, video, or text instead.",
            ));
        }
        let explicit = ["activityStart", "activityEnd"]
            .iter()
            .any(|field| input[*field].is_object());
        if explicit && self.setup.detects_activity {
            return Err(Refusal::new(
                INVALID,
                "Explicit activity control is not supported when automatic activity detection is enabled.",
            ));
        }
        if input["activityStart"].is_object() && self.ears.open() {
            self.began();
        }
        for blob in chunks.into_iter().flatten().chain([&input["audio"]]) {
            self.hear(blob)?;
        }
        if input["video"].is_object() {
            self.see(&input["video"])?;
        }
        let ends = input["activityEnd"].is_object()
            || input["audioStreamEnd"] == true && self.setup.detects_activity;
        if ends && let Some(SpeechEvent::Ended(text)) = self.ears.close() {
            self.heard(&text)?;
        }
        match input["text"].as_str() {
            Some(text) => {
                self.interrupt();
                self.user_turn(text)
            }
            None => Ok(()),
        }
    }

    fn hear(&mut self, blob: &Value) -> Result<(), Refusal> {
        let Some(bytes) = blob["data"].as_str().and_then(decode) else {
            return Ok(());
        };
        let mime_type = blob["mimeType"].as_str().unwrap_or_default();
        if mime_type.starts_with("image/") {
            return self.see(blob);
        }
        let format = match mime_type {
            // Google's default rate.
            "audio/pcm" => PcmFormat::MICROPHONE,
            other => PcmFormat::from_media_type(other).map_err(|_| unsupported(other))?,
        };
        if format.channels() != 1 || !bytes.len().is_multiple_of(2) {
            return Err(invalid());
        }
        let samples: Vec<i16> = bytes
            .chunks_exact(2)
            .map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
            .collect();
        for heard in self.ears.hear(&samples, format.sample_rate()) {
            match heard {
                SpeechEvent::Began => self.began(),
                SpeechEvent::Ended(text) => self.heard(&text)?,
            }
        }
        Ok(())
    }

    fn see(&mut self, blob: &Value) -> Result<(), Refusal> {
        let mime_type = blob["mimeType"].as_str().unwrap_or_default();
        if !mime_type.starts_with("image/") {
            return Err(unsupported(mime_type));
        }
        self.frame = Some(blob.clone());
        Ok(())
    }

    /// The user begins to speak.
    fn began(&mut self) {
        if self.setup.interrupts {
            self.interrupt();
        }
    }

    /// The user has spoken.
    fn heard(&mut self, text: &str) -> Result<(), Refusal> {
        if self.setup.input_transcription {
            if self.setup.generation != Generation::Second {
                let whole = json!({"text": text, "finished": true});
                self.send(json!({"serverContent": {"inputTranscription": whole}}));
                return self.user_turn(text);
            }
            // The last word often arrives late.
            let start = text.trim_end().rfind(' ').map_or(0, |at| at + 1);
            let (first, last) = text.split_at(start);
            if !first.is_empty() {
                self.send(json!({"serverContent": {"inputTranscription": {"text": first}}}));
            }
            self.late = Some(last.to_owned()).filter(|last| !last.is_empty());
        }
        self.user_turn(text)
    }

    fn user_turn(&mut self, text: &str) -> Result<(), Refusal> {
        let mut parts = vec![json!({"text": text})];
        if let Some(frame) = self.frame.take() {
            parts.push(json!({"inlineData": frame}));
        }
        let turn = Json::from(json!({"role": "user", "parts": parts}));
        if self.speech.is_some() || !self.open.is_empty() {
            self.waiting.push_back(turn);
            self.waiting.truncate(MAX_CONTENTS);
            return Ok(());
        }
        // A text without words only makes the model answer what it already has.
        let has_words = text.contains(char::is_alphanumeric);
        if has_words || !self.waits_for_an_answer() {
            self.contents.push(turn);
        }
        self.answer()
    }

    fn waits_for_an_answer(&self) -> bool {
        let role = self.contents.last().and_then(|it| it.get("role"));
        role == Some("user".into())
    }

    fn responses(&mut self, response: &Json) -> Result<(), Refusal> {
        let responses = response.get("functionResponses").unwrap_or_default();
        let Some(responses) = responses.items() else {
            return Err(invalid());
        };
        let (mut parts, mut answered) = (Vec::new(), HashSet::new());
        let mut results = Vec::new();
        let mut scheduling = Value::Null;
        for response in responses {
            let mut response = Json::read_raw(response).unwrap_or_default();
            let text = |name: &str| Some(response.get(name)?.as_str()?.into_owned());
            let (id, name) = (text("id").unwrap_or_default(), text("name"));
            let is_waited_for = self.open.iter().any(|call| call.id == id);
            let mut calls = self.open.iter().chain(&self.background.calls);
            let Some(call) = calls.find(|call| call.id == id) else {
                return Err(Refusal::new(
                    NOT_FOUND,
                    format!("Function call with id {id:?} was not found."),
                ));
            };
            let brings = response.get("response").is_some_and(|it| it.is_object());
            if !brings || !answered.insert(id.clone()) {
                return Err(invalid());
            }
            let schedules = response.get("scheduling").filter(|it| !it.is_null());
            if let Some(schedules) = schedules {
                if self.setup.generation == Generation::Thinking {
                    return Err(Refusal::new(
                        INVALID,
                        "Function response scheduling is not supported for this model.",
                    ));
                }
                scheduling = schedules.to_value();
            }
            if name.is_none_or(|name| name.is_empty()) {
                response = response.with("name", &call.name.as_str().into());
            }
            let part = Json::object([("functionResponse", response)]);
            match is_waited_for {
                true => parts.push(part),
                false => results.push((id, part)),
            }
        }
        if parts.is_empty() && !results.is_empty() {
            return self.background_results(results, &scheduling);
        }
        if parts.len() != self.open.len() || parts.is_empty() || !results.is_empty() {
            return Err(Refusal::new(
                INVALID,
                "The number of function responses must be equal to the number of function calls.",
            ));
        }
        self.open.clear();
        self.contents.push(content_of("user", &parts));
        self.answer()
    }

    /// Takes results that the model has not waited for.
    fn background_results(
        &mut self,
        results: Vec<(String, Json)>,
        scheduling: &Value,
    ) -> Result<(), Refusal> {
        let (mut calls, mut responses) = (Vec::new(), Vec::new());
        for (id, part) in results {
            let at = self.background.calls.iter().position(|call| call.id == id);
            calls.extend(at.map(|at| self.background.calls.remove(at).part));
            responses.push(part);
        }
        self.background.results.push(content_of("model", &calls));
        self.background.results.push(content_of("user", &responses));
        if scheduling == "INTERRUPT" {
            self.interrupt();
        }
        if scheduling == "SILENT" {
            self.take_up_results();
            return Ok(());
        }
        match self.speech {
            Some(_) => Ok(()),
            None => self.answer_results(),
        }
    }

    fn answer_results(&mut self) -> Result<(), Refusal> {
        self.take_up_results();
        self.answer()
    }

    /// Adds the results of calls in the background to the conversation.
    fn take_up_results(&mut self) {
        for content in std::mem::take(&mut self.background.results) {
            self.add_content(content);
        }
    }

    /// Adds a content; two of the model are one.
    fn add_content(&mut self, content: Json) {
        let is_model = |it: &Json| it.get("role") == Some("model".into());
        let joins = is_model(&content) && self.contents.last().is_some_and(is_model);
        if !joins {
            return self.contents.push(content);
        }
        let before = self.contents.pop().unwrap_or_default();
        let parts: Vec<Json> = [before, content]
            .iter()
            .filter_map(|it| it.get("parts"))
            .flat_map(|parts| {
                let items = parts.items().unwrap_or_default().into_iter();
                let items = items.filter_map(|part| Json::read_raw(part).ok());
                items.collect::<Vec<_>>()
            })
            .collect();
        self.contents.push(content_of("model", &parts));
    }

    fn answer(&mut self) -> Result<(), Refusal> {
        self.forget_oldest();
        let contents = Json::array(&self.contents);
        let body = json!({
            "tools": self.setup.tools,
            "generationConfig": self.setup.generation_config,
        });
        let mut request = Request::read(contents.raw(), &body)?;
        // Live calls have no signatures, so no model requires them.
        rules::check(&request.contents, "")?;
        request.live = true;
        let conversation = request.conversation();
        // The same question fails as often as it asks to, even on different connections.
        let question = Json::from(json!([conversation.prompt, conversation.rounds.len()]));
        let answer = answer::decide(&request, question.raw(), &self.scripted.failures);
        let options = &self.scripted.options;
        let pace = match answer.slow {
            true => options.slow_pace,
            false => options.pace,
        };
        let thinks = answer.thought && self.setup.generation == Generation::Thinking;
        let speech = match answer.end {
            End::Blocked | End::Refused(_) => Speech::new(
                Answer {
                    pieces: Vec::new(),
                    ..answer
                },
                pace,
            ),
            _ => Speech::new(answer, pace),
        };
        self.speech = Some(speech);
        if thinks {
            self.background.answer = self.speech.replace(Speech::of_words(FILLER, pace));
        }
        Ok(())
    }

    fn say(&mut self, words: &str) {
        let Some(speech) = &mut self.speech else {
            return;
        };
        speech.said.push_str(words);
        if !self.setup.speaks {
            self.send(json!({"serverContent": {"modelTurn": {
                "role": "model", "parts": [{"text": words}],
            }}}));
            return;
        }
        let samples = voice::sound(words);
        speech.sounded(samples.len());
        let sounds = samples.chunks(SOUND_SAMPLES).map(|piece| {
            let bytes: Vec<u8> = piece.iter().flat_map(|it| it.to_le_bytes()).collect();
            json!({"inlineData": {
                "mimeType": PcmFormat::MODEL.to_string(), "data": STANDARD.encode(bytes),
            }})
        });
        let transcription = (self.setup.output_transcription).then(|| json!({"text": words}));
        if self.setup.generation != Generation::Second {
            // One message has it all.
            let parts: Vec<Value> = sounds.collect();
            let mut content = json!({"modelTurn": {"role": "model", "parts": parts}});
            if let Some(transcription) = transcription {
                content["outputTranscription"] = transcription;
            }
            return self.send(json!({ "serverContent": content }));
        }
        let turns = sounds.map(|sound| json!({"modelTurn": {"role": "model", "parts": [sound]}}));
        let words = transcription.map(|words| json!({ "outputTranscription": words }));
        for content in turns.chain(words) {
            self.send(json!({ "serverContent": content }));
        }
    }

    fn call(&mut self, calls: Vec<Call>) {
        let pace = self.scripted.options.pace;
        let said = self.speech.take().map(|speech| speech.said);
        let mut parts: Vec<Json> = said
            .filter(|said| !said.is_empty())
            .map(|said| json!({"text": said}).into())
            .into_iter()
            .collect();
        let (mut shown, mut waits) = (Vec::new(), false);
        for Call { name, args } in calls {
            self.calls_made += 1;
            let id = format!(
                "function-call-{}-{}",
                self.scripted.next_number(),
                self.calls_made
            );
            let call = Json::object([
                ("id", id.as_str().into()),
                ("name", name.as_str().into()),
                ("args", args),
            ]);
            let part = Json::object([("functionCall", call.clone())]);
            shown.push(call);
            let is_background = self.is_background(&name);
            let call = OpenCall {
                id,
                name,
                part: part.clone(),
            };
            match is_background {
                true => self.background.calls.push(call),
                false => {
                    parts.push(part);
                    self.open.push(call);
                    waits = true;
                }
            }
        }
        if !parts.is_empty() {
            self.add_content(content_of("model", &parts));
        }
        if self.setup.resumption {
            self.send(json!({"sessionResumptionUpdate": {"resumable": false}}));
        }
        let shown = Json::object([("functionCalls", Json::array(&shown))]);
        self.ready.push_back(Json::object([("toolCall", shown)]));
        if self.setup.completes_at_call() {
            self.turn_complete(None, 0, 0);
        } else if !waits {
            self.speech = Some(Speech::of_words(FILLER, pace));
        }
    }

    fn is_background(&self, tool: &str) -> bool {
        let declared = declarations(&self.setup.tools).find(|it| it["name"] == tool);
        let behavior = declared.map_or(&Value::Null, |it| &it["behavior"]);
        self.setup.generation.is_background(behavior)
    }

    fn complete(&mut self, end: &End, grounding: Option<Value>) {
        let Some(speech) = self.speech.take() else {
            return;
        };
        let reason = match end {
            End::Blocked => Some("PROHIBITED_INPUT_CONTENT"),
            End::Safety => Some("RESPONSE_REJECTED"),
            End::Malformed => Some("MALFORMED_FUNCTION_CALL"),
            _ => None,
        };
        if let Some(grounding) = grounding {
            self.send(json!({"serverContent": {"groundingMetadata": grounding}}));
        }
        self.turn_over(&speech, reason);
        if let Some(answer) = self.background.answer.take() {
            self.speech = Some(answer);
            return;
        }
        if !self.background.results.is_empty() {
            // They were checked when they came.
            drop(self.answer_results());
            return;
        }
        if let Some(next) = self.waiting.pop_front() {
            self.contents.push(next);
            // It was checked when it was queued after a valid conversation, and nothing else was added.
            drop(self.answer());
        }
    }

    /// The user's speech or text interrupts the model.
    fn interrupt(&mut self) {
        if let Some(speech) = self.speech.take() {
            self.background.answer = None;
            self.send(json!({"serverContent": {"interrupted": true}}));
            self.turn_over(&speech, None);
        }
        if self.open.is_empty() {
            return;
        }
        let ids: Vec<_> = self.open.drain(..).map(|call| call.id).collect();
        self.send(json!({"toolCallCancellation": {"ids": ids}}));
        // The history keeps the words, but not the cancelled calls.
        let parts = self.contents.pop().and_then(|content| content.get("parts"));
        let parts = parts.unwrap_or_default();
        let parts = parts.items().unwrap_or_default().into_iter();
        let said: Vec<Json> = parts
            .filter_map(|part| Json::read_raw(part).ok())
            .filter(|part| part.get("functionCall").is_none())
            .collect();
        if !said.is_empty() {
            self.contents.push(content_of("model", &said));
        }
        if !self.setup.completes_at_call() {
            self.send(json!({"serverContent": {"interrupted": true}}));
            self.turn_complete(None, 0, 0);
        }
        self.give_handle();
    }

    fn turn_over(&mut self, speech: &Speech, reason: Option<&str>) {
        if !speech.said.is_empty() {
            let said = json!({"role": "model", "parts": [{"text": speech.said}]});
            self.add_content(said.into());
        }
        let words = speech.said.split_whitespace().count() as u64;
        let sound = speech.sound().as_millis() as u64 * TOKENS_PER_SECOND / 1_000;
        self.turn_complete(reason, words, sound);
        self.give_handle();
    }

    fn turn_complete(&mut self, reason: Option<&str>, words: u64, sound: u64) {
        let (prompt, details) = chunks::count_tokens(self.contents.iter().map(Json::raw));
        let (modality, response) = match self.setup.speaks {
            true => ("AUDIO", sound),
            false => ("TEXT", words),
        };
        let mut content = json!({"turnComplete": true});
        if let Some(reason) = reason {
            content["turnCompleteReason"] = json!(reason);
        }
        if self.setup.generation >= Generation::Third {
            let status = match self.background.is_idle() {
                true => "IDLE",
                false => "IN_PROGRESS",
            };
            content["interactionStatus"] = json!(status);
        }
        self.send(json!({"serverContent": content, "usageMetadata": {
            "promptTokenCount": prompt,
            "responseTokenCount": response,
            "totalTokenCount": prompt + response,
            "promptTokensDetails": details,
            "responseTokensDetails": [{"modality": modality, "tokenCount": response}],
        }}));
    }

    /// A conversation can be resumed only if no call is open.
    fn give_handle(&mut self) {
        if self.setup.resumption && self.open.is_empty() && self.background.is_idle() {
            let handle = self.scripted.handles.give(&self.contents);
            self.send(json!({"sessionResumptionUpdate": {"newHandle": handle, "resumable": true}}));
        }
    }

    fn send(&mut self, message: Value) {
        self.ready.push_back(message.into());
    }

    fn forget_oldest(&mut self) {
        if self.contents.len() <= MAX_CONTENTS {
            return;
        }
        let surplus = self.contents.len() - MAX_CONTENTS;
        let is_turn = |content: &Json| {
            let parts = content.get("parts").unwrap_or_default();
            let first = parts.items().unwrap_or_default().first().copied();
            let first = first.and_then(|first| Json::read_raw(first).ok());
            let text = first.and_then(|first| first.get("text"));
            content.get("role") != Some("model".into())
                && text.is_some_and(|text| text.as_str().is_some())
        };
        let keep = self.contents.iter().skip(surplus).position(is_turn);
        self.contents
            .drain(..keep.map_or(surplus, |more| surplus + more));
    }
}

pub(super) fn seconds(span: Duration) -> String {
    format!("{}s", span.as_secs_f64())
}

fn content_of(role: &str, parts: &[Json]) -> Json {
    Json::object([("role", role.into()), ("parts", Json::array(parts))])
}

fn invalid() -> Refusal {
    Refusal::new(INVALID, "Request contains an invalid argument.")
}

fn unsupported(mime_type: &str) -> Refusal {
    Refusal::new(INVALID, format!("Unsupported mime type: {mime_type:?}"))
}
