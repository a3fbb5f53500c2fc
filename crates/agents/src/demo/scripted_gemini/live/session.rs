//! One live conversation: what each side has said, who speaks, and which calls are open.
//!
//! ```text
//!           the user's turn ends                 the last word, or the calls
//!   Listening ─────────────────▶ Speaking ──────────────────────────────────▶ Listening, calls open or not
//!       ▲                            │                                              │
//!       └── speech, text, content ───┘ interrupted      toolResponse: Speaking  ◀───┤
//!                                                       speech, text: calls cancelled
//! ```
//!
//! It waits for nothing and knows no clock: messages come in, messages to be sent at once and pieces to be sent at the
//! model's pace go out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

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
use super::ears::{Ears, Heard};
use super::setup::{INTERNAL, INVALID, NOT_FOUND, Refusal, Setup};
use super::speech::{Cue, Speech};
use super::voice;
use adk_bridge_protocol::audio::PcmFormat;

/// More is forgotten from the beginning, as a model with a sliding window forgets.
const MAX_CONTENTS: usize = 400;
/// One message of sound: 200 ms.
const SOUND_SAMPLES: usize = 4_800;
/// What Google counts for a second of sound.
const TOKENS_PER_SECOND: u64 = 32;

pub(super) struct Session {
    scripted: Arc<Scripted>,
    setup: Setup,
    contents: Vec<Value>,
    ears: Ears,
    speech: Option<Speech>,
    open: Vec<OpenCall>,
    /// What the user said while the model would not be interrupted.
    waiting: VecDeque<Value>,
    /// The end of what was heard, which is told late.
    late: Option<String>,
    /// The newest picture of the camera since the last turn.
    frame: Option<Value>,
    ready: VecDeque<Value>,
    calls_made: u64,
}

struct OpenCall {
    id: String,
    name: String,
}

/// What a piece of the answer does beside being sent.
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
            waiting: VecDeque::new(),
            late: None,
            frame: None,
            ready: VecDeque::from([json!({"setupComplete": {}})]),
            calls_made: 0,
        };
        session.give_handle();
        Ok(session)
    }

    /// Takes a checked message of the client.
    pub(super) fn take(&mut self, mut message: Value) -> Result<(), Refusal> {
        let Some(fields) = message.as_object_mut().filter(|fields| fields.len() == 1) else {
            return Err(invalid());
        };
        if let Some(content) = fields.remove("clientContent") {
            return self.content(content);
        }
        if let Some(input) = fields.remove("realtimeInput") {
            return self.realtime(&input);
        }
        if let Some(response) = fields.remove("toolResponse") {
            return self.responses(response);
        }
        Err(Refusal::new(INVALID, "setup must be sent once, and first."))
    }

    /// The next message that is to be sent at once.
    pub(super) fn ready(&mut self) -> Option<Value> {
        self.ready.pop_front()
    }

    /// How long to wait before [`Session::speak`]; nothing when the model is silent.
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

    fn content(&mut self, content: Value) -> Result<(), Refusal> {
        self.interrupt();
        if let Value::Array(turns) = content["turns"].clone() {
            self.contents.extend(turns);
        }
        if content["turnComplete"] == true {
            return self.answer();
        }
        Ok(())
    }

    fn realtime(&mut self, input: &Value) -> Result<(), Refusal> {
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
        if ends && let Some(Heard::Ended(text)) = self.ears.close() {
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
            // Google's rate for audio that names none.
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
                Heard::Began => self.began(),
                Heard::Ended(text) => self.heard(&text)?,
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

    /// The user has begun to speak.
    fn began(&mut self) {
        if self.setup.interrupts {
            self.interrupt();
        }
    }

    /// The user has spoken.
    fn heard(&mut self, text: &str) -> Result<(), Refusal> {
        if self.setup.input_transcription {
            // The last word comes late, as it often does.
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
        let turn = json!({"role": "user", "parts": parts});
        if self.speech.is_some() || !self.open.is_empty() {
            self.waiting.push_back(turn);
            self.waiting.truncate(MAX_CONTENTS);
            return Ok(());
        }
        self.contents.push(turn);
        self.answer()
    }

    fn responses(&mut self, response: Value) -> Result<(), Refusal> {
        let Value::Array(responses) = response["functionResponses"].clone() else {
            return Err(invalid());
        };
        let mut parts = Vec::new();
        for mut response in responses {
            let id = response["id"].as_str().unwrap_or_default();
            let Some(call) = self.open.iter().find(|call| call.id == id) else {
                return Err(Refusal::new(
                    NOT_FOUND,
                    format!("Function call with id {id:?} was not found."),
                ));
            };
            if !response["response"].is_object() || is_answered(&parts, id) {
                return Err(invalid());
            }
            if response["name"].as_str().is_none_or(str::is_empty) {
                response["name"] = json!(call.name);
            }
            parts.push(json!({ "functionResponse": response }));
        }
        if parts.len() != self.open.len() || parts.is_empty() {
            return Err(Refusal::new(
                INVALID,
                "The number of function responses must be equal to the number of function calls.",
            ));
        }
        self.open.clear();
        self.contents.push(json!({"role": "user", "parts": parts}));
        self.answer()
    }

    fn answer(&mut self) -> Result<(), Refusal> {
        self.forget_oldest();
        let body = json!({
            "contents": self.contents,
            "tools": self.setup.tools,
            "generationConfig": self.setup.generation_config,
        });
        let mut request = Request::read(&body)?;
        // Live calls bear no signatures that could be lost, so no model asks for them.
        rules::check(&request.contents, "")?;
        request.live = true;
        let conversation = request.conversation();
        // The same question fails as often as it asks for, on whichever connection it comes.
        let question = json!([conversation.prompt, conversation.rounds.len()]);
        let answer = answer::decide(&request, &question, &self.scripted.failures);
        let options = &self.scripted.options;
        let pace = match answer.slow {
            true => options.slow_pace,
            false => options.pace,
        };
        self.speech = Some(match answer.end {
            End::Blocked | End::Refused(_) => Speech::new(
                Answer {
                    pieces: Vec::new(),
                    ..answer
                },
                pace,
            ),
            _ => Speech::new(answer, pace),
        });
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
        for piece in samples.chunks(SOUND_SAMPLES) {
            let bytes: Vec<u8> = piece.iter().flat_map(|it| it.to_le_bytes()).collect();
            self.send(
                json!({"serverContent": {"modelTurn": {"role": "model", "parts": [{"inlineData": {
                    "mimeType": PcmFormat::MODEL.to_string(), "data": STANDARD.encode(bytes),
                }}]}}}),
            );
        }
        if self.setup.output_transcription {
            self.send(json!({"serverContent": {"outputTranscription": {"text": words}}}));
        }
    }

    fn call(&mut self, calls: Vec<Call>) {
        let said = self.speech.take().map(|speech| speech.said);
        let mut parts: Vec<Value> = said
            .filter(|said| !said.is_empty())
            .map(|said| json!({"text": said}))
            .into_iter()
            .collect();
        let mut shown = Vec::new();
        for Call { name, args } in calls {
            self.calls_made += 1;
            let id = format!(
                "function-call-{}-{}",
                self.scripted.next_number(),
                self.calls_made
            );
            let call = json!({"id": id, "name": name, "args": args});
            parts.push(json!({"functionCall": call}));
            shown.push(call);
            self.open.push(OpenCall { id, name });
        }
        self.contents.push(json!({"role": "model", "parts": parts}));
        if self.setup.resumption {
            self.send(json!({"sessionResumptionUpdate": {"resumable": false}}));
        }
        self.send(json!({"toolCall": {"functionCalls": shown}}));
        if self.setup.completes_at_call() {
            self.turn_complete(None, 0, 0);
        }
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
        if let Some(next) = self.waiting.pop_front() {
            self.contents.push(next);
            // It was checked when it was queued behind a valid conversation, and nothing else joined it.
            drop(self.answer());
        }
    }

    /// The user, or something written, cuts the model short.
    fn interrupt(&mut self) {
        if let Some(speech) = self.speech.take() {
            self.send(json!({"serverContent": {"interrupted": true}}));
            self.turn_over(&speech, None);
        }
        if self.open.is_empty() {
            return;
        }
        let ids: Vec<_> = self.open.drain(..).map(|call| call.id).collect();
        self.send(json!({"toolCallCancellation": {"ids": ids}}));
        // What was cancelled was never asked.
        if let Some(Value::Array(mut parts)) = self.contents.pop().map(|mut it| it["parts"].take())
        {
            parts.retain(|part| part.get("functionCall").is_none());
            if !parts.is_empty() {
                self.contents.push(json!({"role": "model", "parts": parts}));
            }
        }
        if !self.setup.completes_at_call() {
            self.send(json!({"serverContent": {"interrupted": true}}));
            self.turn_complete(None, 0, 0);
        }
        self.give_handle();
    }

    fn turn_over(&mut self, speech: &Speech, reason: Option<&str>) {
        if !speech.said.is_empty() {
            self.contents
                .push(json!({"role": "model", "parts": [{"text": speech.said}]}));
        }
        let words = speech.said.split_whitespace().count() as u64;
        let sound = speech.sound().as_millis() as u64 * TOKENS_PER_SECOND / 1_000;
        self.turn_complete(reason, words, sound);
        self.give_handle();
    }

    fn turn_complete(&mut self, reason: Option<&str>, words: u64, sound: u64) {
        let (prompt, details) = chunks::count_tokens(&json!(self.contents));
        let (modality, response) = match self.setup.speaks {
            true => ("AUDIO", sound),
            false => ("TEXT", words),
        };
        let mut content = json!({"turnComplete": true});
        if let Some(reason) = reason {
            content["turnCompleteReason"] = json!(reason);
        }
        self.send(json!({"serverContent": content, "usageMetadata": {
            "promptTokenCount": prompt,
            "responseTokenCount": response,
            "totalTokenCount": prompt + response,
            "promptTokensDetails": details,
            "responseTokensDetails": [{"modality": modality, "tokenCount": response}],
        }}));
    }

    /// A conversation can be taken up again only where no call is open.
    fn give_handle(&mut self) {
        if self.setup.resumption && self.open.is_empty() {
            let handle = self.scripted.handles.give(&self.contents);
            self.send(json!({"sessionResumptionUpdate": {"newHandle": handle, "resumable": true}}));
        }
    }

    fn send(&mut self, message: Value) {
        self.ready.push_back(message);
    }

    fn forget_oldest(&mut self) {
        if self.contents.len() <= MAX_CONTENTS {
            return;
        }
        let surplus = self.contents.len() - MAX_CONTENTS;
        let is_turn =
            |content: &Value| content["role"] != "model" && content["parts"][0]["text"].is_string();
        let keep = self.contents.iter().skip(surplus).position(is_turn);
        self.contents
            .drain(..keep.map_or(surplus, |more| surplus + more));
    }
}

pub(super) fn seconds(span: Duration) -> String {
    format!("{}s", span.as_secs_f64())
}

fn is_answered(parts: &[Value], id: &str) -> bool {
    parts
        .iter()
        .any(|part| part["functionResponse"]["id"] == id)
}

fn invalid() -> Refusal {
    Refusal::new(INVALID, "Request contains an invalid argument.")
}

fn unsupported(mime_type: &str) -> Refusal {
    Refusal::new(INVALID, format!("Unsupported mime type: {mime_type:?}"))
}
