//! Turns an answer into the chunks of a stream, one by one as they are read.

use adk_bridge_protocol::json_text::{Json, Level, text_of};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answer::{Answer, End, Piece};
use super::script::Call;
use super::signature;

/// What all chunks of one answer have in common.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) model: String,
    pub(super) response_id: String,
    pub(super) prompt_tokens: Value,
    pub(super) prompt_token_count: u64,
    pub(super) max_output_tokens: Option<u64>,
    pub(super) streams_args: bool,
    pub(super) call_ids: bool,
}

/// What comes next on the wire.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Chunk(Json),
    /// The connection drops here.
    Cut,
}

pub(super) struct Chunks {
    frame: Frame,
    parts: std::iter::Peekable<Box<dyn Iterator<Item = CostedPart> + Send>>,
    end: Option<End>,
    grounding: Option<Value>,
    spoken_tokens: u64,
    thought_tokens: u64,
}

/// A part and its cost.
#[derive(Debug)]
struct CostedPart {
    part: Json,
    is_thought: bool,
    tokens: u64,
}

impl CostedPart {
    fn new(part: impl Into<Json>, tokens: u64) -> Self {
        Self {
            part: part.into(),
            is_thought: false,
            tokens,
        }
    }
}

/// Google's count for an image, and a rough figure for a call.
const IMAGE_TOKENS: u64 = 258;
const CALL_TOKENS: u64 = 6;

impl Chunks {
    pub(super) fn new(answer: Answer, frame: Frame) -> Self {
        let parts: Box<dyn Iterator<Item = CostedPart> + Send> = match answer.end {
            End::Blocked | End::Malformed | End::Refused(_) => Box::new(std::iter::empty()),
            _ => Box::new(parts(answer.pieces, answer.thought, &frame)),
        };
        Self {
            frame,
            parts: parts.peekable(),
            end: Some(answer.end),
            grounding: answer.grounding,
            spoken_tokens: 0,
            thought_tokens: 0,
        }
    }

    /// Whether there is a next part that exceeds the limit.
    fn is_full(&mut self) -> bool {
        let used = self.spoken_tokens + self.thought_tokens;
        match (self.parts.peek(), self.frame.max_output_tokens) {
            (Some(next), Some(limit)) => used + next.tokens > limit,
            _ => false,
        }
    }

    fn chunk(&self, part: Option<&Json>, finish: Option<&str>, grounding: Option<Json>) -> Json {
        let parts = part.map(|part| ("parts", Json::array([part])));
        let content = parts.into_iter().chain([("role", "model".into())]);
        let candidate = [("content", Json::object(content))].into_iter();
        let candidate = candidate
            .chain(finish.map(|reason| ("finishReason", reason.into())))
            .chain([("index", json!(0).into())])
            .chain(grounding.map(|grounding| ("groundingMetadata", grounding)));
        self.framed("candidates", Json::array([&Json::object(candidate)]))
    }

    fn framed(&self, name: &str, said: Json) -> Json {
        let mut usage = json!({"promptTokenCount": self.frame.prompt_token_count});
        if self.spoken_tokens > 0 {
            usage["candidatesTokenCount"] = json!(self.spoken_tokens);
        }
        usage["totalTokenCount"] =
            json!(self.frame.prompt_token_count + self.spoken_tokens + self.thought_tokens);
        usage["promptTokensDetails"] = self.frame.prompt_tokens.clone();
        if self.thought_tokens > 0 {
            usage["thoughtsTokenCount"] = json!(self.thought_tokens);
        }
        Json::object([
            (name, said),
            ("usageMetadata", usage.into()),
            ("modelVersion", self.frame.model.as_str().into()),
            ("responseId", self.frame.response_id.as_str().into()),
        ])
    }

    fn last(&mut self, end: End) -> Option<Next> {
        let ratings = |blocked: bool| {
            let mut rating =
                json!({"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH"});
            if blocked {
                rating["blocked"] = json!(true);
            }
            json!([rating])
        };
        let chunk = match end {
            End::Stop => self.chunk(None, Some("STOP"), None),
            End::MaxTokens => self.chunk(None, Some("MAX_TOKENS"), None),
            End::Safety => {
                let candidate = json!([{
                    "finishReason": "SAFETY", "index": 0, "safetyRatings": ratings(true),
                }]);
                self.framed("candidates", candidate.into())
            }
            End::Malformed => {
                let candidate = json!([{
                    "content": {}, "finishReason": "MALFORMED_FUNCTION_CALL", "index": 0,
                    "finishMessage": "Malformed function call: print(default_api.get_weather(location=",
                }]);
                self.framed("candidates", candidate.into())
            }
            End::Blocked => {
                let feedback = json!({
                    "blockReason": "PROHIBITED_CONTENT", "safetyRatings": ratings(false),
                });
                self.framed("promptFeedback", feedback.into())
            }
            End::Broken(error) | End::Refused(error) => error.body().into(),
            End::Cut => return Some(Next::Cut),
        };
        Some(Next::Chunk(chunk))
    }
}

impl Iterator for Chunks {
    type Item = Next;

    fn next(&mut self) -> Option<Next> {
        if self.end.is_some() && self.is_full() {
            self.end = None;
            return self.last(End::MaxTokens);
        }
        let end = self.end.as_ref()?;
        let Some(spoken) = self.parts.next() else {
            let end = end.clone();
            self.end = None;
            return self.last(end);
        };
        match spoken.is_thought {
            true => self.thought_tokens += spoken.tokens,
            false => self.spoken_tokens += spoken.tokens,
        }
        let is_full = self.is_full();
        let is_last = self.parts.peek().is_none();
        let reason = match &self.end {
            _ if is_full => Some("MAX_TOKENS"),
            Some(End::Stop) if is_last => Some("STOP"),
            Some(End::MaxTokens) if is_last => Some("MAX_TOKENS"),
            _ => None,
        };
        let mut grounding = None;
        if reason.is_some() {
            self.end = None;
            grounding = self.grounding.take().map(Json::from);
        }
        let chunk = self.chunk(Some(&spoken.part), reason, grounding);
        Some(Next::Chunk(chunk))
    }
}

/// All chunks as the single response of a call without streaming; `None` if the connection drops.
pub(super) fn whole(chunks: impl Iterator<Item = Next>) -> Option<Value> {
    let mut parts: Vec<Value> = Vec::new();
    let mut whole = Value::Null;
    for next in chunks {
        let Next::Chunk(chunk) = next else {
            return None;
        };
        let mut chunk = chunk.to_value();
        if let Some(Value::Array(new)) = chunk
            .pointer_mut("/candidates/0/content/parts")
            .map(Value::take)
        {
            new.into_iter().for_each(|part| join(&mut parts, part));
        }
        whole = chunk;
    }
    if !parts.is_empty()
        && let Some(candidate) = whole.pointer_mut("/candidates/0")
    {
        candidate["content"] = json!({"parts": parts, "role": "model"});
    }
    Some(whole)
}

fn join(parts: &mut Vec<Value>, part: Value) {
    let joins = |part: &Value| part["text"].is_string() && part.get("thoughtSignature").is_none();
    match parts.last_mut() {
        Some(last) if joins(last) && joins(&part) && last["thought"] == part["thought"] => {
            let text = [&last["text"], &part["text"]]
                .map(|text| text.as_str().unwrap_or_default())
                .concat();
            last["text"] = json!(text);
        }
        _ => parts.push(part),
    }
}

fn parts(
    pieces: Vec<Piece>,
    thought: bool,
    frame: &Frame,
) -> impl Iterator<Item = CostedPart> + Send + use<> {
    let has_calls = pieces.iter().any(|piece| matches!(piece, Piece::Call(_)));
    // Gemini 3 sends the signature of an answer in words last, without words; earlier models send it with the first
    // words.
    let is_third = frame.model.starts_with("gemini-3");
    let mut first_text = thought && !has_calls && !is_third;
    let last_text = thought && !has_calls && is_third;
    let mut unsigned_call = true;
    let frame = frame.clone();
    let mut call_number = 0;
    let spoken = pieces.into_iter().flat_map(
        move |piece| -> Box<dyn Iterator<Item = CostedPart> + Send> {
            match piece {
                Piece::Thought(text) => Box::new(words(text).map(|text| CostedPart {
                    is_thought: true,
                    ..CostedPart::new(json!({"text": text, "thought": true}), 1)
                })),
                Piece::Text(text) => {
                    let mut sign = std::mem::take(&mut first_text);
                    Box::new(words(text).map(move |text| {
                        let mut part = json!({"text": text});
                        if std::mem::take(&mut sign) {
                            part["thoughtSignature"] = json!(signature::of_text());
                        }
                        CostedPart::new(part, 1)
                    }))
                }
                Piece::Words(count) => Box::new((1..=count).map(move |number| {
                    let space = if number < count { " " } else { "." };
                    CostedPart::new(json!({"text": format!("word{number}{space}")}), 1)
                })),
                Piece::Line(_) => Box::new(std::iter::empty()),
                Piece::Whole(part) => Box::new(std::iter::once(CostedPart::new(part, CALL_TOKENS))),
                Piece::Picture(prompt) => {
                    let part = Piece::picture_part(&prompt).into_iter();
                    Box::new(part.map(|part| CostedPart::new(part, IMAGE_TOKENS)))
                }
                Piece::Call(call) => {
                    call_number += 1;
                    let id = frame
                        .call_ids
                        .then(|| format!("call-{}-{call_number}", frame.response_id));
                    let signed = std::mem::take(&mut unsigned_call);
                    Box::new(call_parts(call, id, signed, frame.streams_args))
                }
            }
        },
    );
    let tail = last_text.then(|| {
        let part = json!({"text": "", "thoughtSignature": signature::of_text()});
        CostedPart::new(part, 0)
    });
    spoken.chain(tail)
}

fn call_parts(
    call: Call,
    id: Option<String>,
    signed: bool,
    streams: bool,
) -> std::vec::IntoIter<CostedPart> {
    let signature = signed.then(|| signature::of_call(&call.name, &call.args));
    let mut partial = Vec::new();
    if streams {
        partial_args(call.args.raw(), "$", &mut partial);
    }
    let rest = match partial.is_empty() {
        true => ("args", call.args),
        false => ("willContinue", true.into()),
    };
    let first = [("name", call.name.as_str().into())].into_iter();
    let id = id.map(|id| ("id", id.as_str().into()));
    let first = Json::object(first.chain(id).chain([rest]));
    let opening = [("functionCall", first)].into_iter();
    let signature = signature.map(|it| ("thoughtSignature", it.as_str().into()));
    let opening = Json::object(opening.chain(signature));
    let mut parts = vec![CostedPart::new(opening, CALL_TOKENS)];
    let streamed = !partial.is_empty();
    parts.extend(partial.into_iter().map(|arg| {
        let part = json!({"functionCall": {"partialArgs": [arg], "willContinue": true}});
        CostedPart::new(part, 1)
    }));
    if streamed {
        parts.push(CostedPart::new(json!({"functionCall": {}}), 0));
    }
    parts.into_iter()
}

/// The arguments as pieces with their paths. Strings come in several pieces; an empty list or object has no path.
fn partial_args(value: &RawValue, path: &str, out: &mut Vec<Value>) {
    match Level::of(value) {
        Level::Fields(fields) => fields.into_iter().for_each(|(key, value)| {
            let plain = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !key.starts_with(|c: char| c.is_ascii_digit())
                && !key.is_empty();
            let path = match plain {
                true => format!("{path}.{key}"),
                false => format!("{path}[{}]", json!(key)),
            };
            partial_args(value, &path, out);
        }),
        Level::Items(items) => {
            for (index, item) in items.into_iter().enumerate() {
                partial_args(item, &format!("{path}[{index}]"), out);
            }
        }
        Level::Leaf(leaf) => match serde_json::from_str(leaf).unwrap_or_default() {
            Value::String(text) => {
                let pieces: Vec<_> = letters(&text).collect();
                let count = pieces.len();
                out.extend(pieces.into_iter().enumerate().map(|(index, piece)| {
                    let mut arg = json!({"jsonPath": path, "stringValue": piece});
                    if index + 1 < count {
                        arg["willContinue"] = json!(true);
                    }
                    arg
                }));
            }
            Value::Bool(bool) => out.push(json!({"jsonPath": path, "boolValue": bool})),
            Value::Null => out.push(json!({"jsonPath": path, "nullValue": "NULL_VALUE"})),
            number => out.push(json!({"jsonPath": path, "numberValue": number})),
        },
    }
}

/// A few letters at a time; an empty text is one empty piece.
fn letters(text: &str) -> impl Iterator<Item = String> {
    const LETTERS: usize = 3;
    let letters: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = match letters.is_empty() {
        true => vec![String::new()],
        false => letters
            .chunks(LETTERS)
            .map(|piece| piece.iter().collect())
            .collect(),
    };
    pieces.into_iter()
}

/// A text word by word, each with the white space after it; scripts without spaces come a few letters at a time.
pub(super) fn words(text: String) -> impl Iterator<Item = String> + Send {
    const LONGEST: usize = 16;
    const WIDE: usize = 4;
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let (mut end, mut count, mut wide, mut spaced) = (0, 0, 0, false);
        for letter in rest.chars() {
            let full = count >= LONGEST || wide >= WIDE;
            if !letter.is_whitespace() && (spaced || full) {
                break;
            }
            spaced |= letter.is_whitespace();
            count += 1;
            // Letters of three bytes and more belong to scripts without spaces between words.
            wide += usize::from(letter.len_utf8() >= 3);
            end += letter.len_utf8();
        }
        at += end;
        (end > 0).then(|| rest[..end].to_owned())
    })
}

/// The number of tokens of contents, by kind, as Google reports it.
pub(super) fn count_tokens<'c>(contents: impl IntoIterator<Item = &'c RawValue>) -> (u64, Value) {
    let (mut letters, mut images) = (0, 0);
    for content in contents {
        weigh(content, &mut letters, &mut images);
    }
    let text = letters.div_ceil(4).max(1);
    let mut details = vec![json!({"modality": "TEXT", "tokenCount": text})];
    if images > 0 {
        details.push(json!({"modality": "IMAGE", "tokenCount": images * IMAGE_TOKENS}));
    }
    (text + images * IMAGE_TOKENS, Value::Array(details))
}

fn weigh(value: &RawValue, letters: &mut u64, images: &mut u64) {
    match Level::of(value) {
        Level::Fields(fields) => fields.iter().for_each(|(key, value)| match &**key {
            "inlineData" | "fileData" => *images += 1,
            "thoughtSignature" | "role" => {}
            _ => weigh(value, letters, images),
        }),
        Level::Items(items) => items.iter().for_each(|item| weigh(item, letters, images)),
        Level::Leaf("null" | "true" | "false") => {}
        Level::Leaf(_) => {
            *letters += text_of(value).map_or(4, |text| text.chars().count() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn words_lose_nothing(text in "[a-z日本 \n]{0,60}") {
            let pieces: Vec<_> = words(text.clone()).collect();
            proptest::prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
            proptest::prop_assert_eq!(pieces.concat(), text);
        }
    }

    #[test]
    fn arguments_are_cut_into_places() {
        let mut found = Vec::new();
        partial_args(
            Json::from(json!({"city": "Tokyo", "days": 2, "on": true, "off": null, "list": [{"a b": ""}], "none": {}})).raw(),
            "$",
            &mut found,
        );
        assert_eq!(
            Value::Array(found),
            json!([
                {"jsonPath": "$.city", "stringValue": "Tok", "willContinue": true},
                {"jsonPath": "$.city", "stringValue": "yo"},
                {"jsonPath": "$.days", "numberValue": 2},
                {"jsonPath": "$.on", "boolValue": true},
                {"jsonPath": "$.off", "nullValue": "NULL_VALUE"},
                {"jsonPath": "$.list[0][\"a b\"]", "stringValue": ""},
            ])
        );
    }
}
