//! An answer as the chunks of a stream, made one by one as they are read.

use serde_json::{Value, json};

use super::answer::{Answer, End, Piece};
use super::script::Call;
use super::signature;

/// What all chunks of one answer say.
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
    Chunk(Value),
    /// The connection drops here.
    Cut,
}

pub(super) struct Chunks {
    frame: Frame,
    parts: std::iter::Peekable<Box<dyn Iterator<Item = Spoken> + Send>>,
    end: Option<End>,
    grounding: Option<Value>,
    spoken_tokens: u64,
    thought_tokens: u64,
}

/// A part and what it costs.
#[derive(Debug)]
struct Spoken {
    part: Value,
    tokens: u64,
}

/// What Google counts for an image, and a rough figure for a call.
const IMAGE_TOKENS: u64 = 258;
const CALL_TOKENS: u64 = 6;

impl Chunks {
    pub(super) fn new(answer: Answer, frame: Frame) -> Self {
        let parts: Box<dyn Iterator<Item = Spoken> + Send> = match answer.end {
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

    /// Whether there is a next part that the limit leaves no room for.
    fn is_full(&mut self) -> bool {
        let used = self.spoken_tokens + self.thought_tokens;
        match (self.parts.peek(), self.frame.max_output_tokens) {
            (Some(next), Some(limit)) => used + next.tokens > limit,
            _ => false,
        }
    }

    fn chunk(&self, parts: Vec<Value>, finish: Option<&str>) -> Value {
        let content = match parts.is_empty() {
            true => json!({"role": "model"}),
            false => json!({"parts": parts, "role": "model"}),
        };
        let mut candidate = json!({"content": content});
        if let Some(reason) = finish {
            candidate["finishReason"] = json!(reason);
        }
        candidate["index"] = json!(0);
        self.framed(json!({"candidates": [candidate]}))
    }

    fn framed(&self, mut chunk: Value) -> Value {
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
        chunk["usageMetadata"] = usage;
        chunk["modelVersion"] = json!(self.frame.model);
        chunk["responseId"] = json!(self.frame.response_id);
        chunk
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
            End::Stop => self.chunk(Vec::new(), Some("STOP")),
            End::MaxTokens => self.chunk(Vec::new(), Some("MAX_TOKENS")),
            End::Safety => self.framed(json!({"candidates": [{
                "finishReason": "SAFETY", "index": 0, "safetyRatings": ratings(true),
            }]})),
            End::Malformed => self.framed(json!({"candidates": [{
                "content": {}, "finishReason": "MALFORMED_FUNCTION_CALL", "index": 0,
                "finishMessage": "Malformed function call: print(default_api.get_weather(location=",
            }]})),
            End::Blocked => self.framed(json!({"promptFeedback": {
                "blockReason": "PROHIBITED_CONTENT", "safetyRatings": ratings(false),
            }})),
            End::Broken(error) | End::Refused(error) => error.body(),
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
        match spoken.part["thought"] == true {
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
        let mut chunk = self.chunk(vec![spoken.part], reason);
        if reason.is_some() {
            self.end = None;
            if let Some(grounding) = self.grounding.take() {
                chunk["candidates"][0]["groundingMetadata"] = grounding;
            }
        }
        Some(Next::Chunk(chunk))
    }
}

/// All chunks as the one response of a call without streaming. `None`: the connection drops.
pub(super) fn whole(chunks: impl Iterator<Item = Next>) -> Option<Value> {
    let mut parts: Vec<Value> = Vec::new();
    let mut whole = Value::Null;
    for next in chunks {
        let Next::Chunk(mut chunk) = next else {
            return None;
        };
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
) -> impl Iterator<Item = Spoken> + Send + use<> {
    let has_calls = pieces.iter().any(|piece| matches!(piece, Piece::Call(_)));
    // Gemini 3 sends the signature of an answer in words last, with no words; earlier models with the first ones.
    let is_third = frame.model.starts_with("gemini-3");
    let mut first_text = thought && !has_calls && !is_third;
    let last_text = thought && !has_calls && is_third;
    let mut unsigned_call = true;
    let frame = frame.clone();
    let mut call_number = 0;
    let spoken =
        pieces
            .into_iter()
            .flat_map(move |piece| -> Box<dyn Iterator<Item = Spoken> + Send> {
                match piece {
                    Piece::Thought(text) => Box::new(words(text).map(|text| Spoken {
                        part: json!({"text": text, "thought": true}),
                        tokens: 1,
                    })),
                    Piece::Text(text) => {
                        let mut sign = std::mem::take(&mut first_text);
                        Box::new(words(text).map(move |text| {
                            let mut part = json!({"text": text});
                            if std::mem::take(&mut sign) {
                                part["thoughtSignature"] = json!(signature::of_text());
                            }
                            Spoken { part, tokens: 1 }
                        }))
                    }
                    Piece::Words(count) => Box::new((1..=count).map(move |number| {
                        let space = if number < count { " " } else { "." };
                        Spoken {
                            part: json!({"text": format!("word{number}{space}")}),
                            tokens: 1,
                        }
                    })),
                    Piece::Line(_) => Box::new(std::iter::empty()),
                    Piece::Whole(part) => Box::new(std::iter::once(Spoken {
                        part,
                        tokens: CALL_TOKENS,
                    })),
                    Piece::Picture(prompt) => {
                        Box::new(Piece::picture_part(&prompt).into_iter().map(|part| Spoken {
                            part,
                            tokens: IMAGE_TOKENS,
                        }))
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
            });
    let tail = last_text.then(|| Spoken {
        part: json!({"text": "", "thoughtSignature": signature::of_text()}),
        tokens: 0,
    });
    spoken.chain(tail)
}

fn call_parts(
    call: Call,
    id: Option<String>,
    signed: bool,
    streams: bool,
) -> std::vec::IntoIter<Spoken> {
    let signature = signed.then(|| signature::of_call(&call.name, &call.args));
    let mut partial = Vec::new();
    if streams {
        partial_args(&call.args, "$", &mut partial);
    }
    let mut first = json!({"name": call.name});
    if let Some(id) = id {
        first["id"] = json!(id);
    }
    match partial.is_empty() {
        true => first["args"] = call.args,
        false => first["willContinue"] = json!(true),
    }
    let mut opening = json!({"functionCall": first});
    if let Some(signature) = signature {
        opening["thoughtSignature"] = json!(signature);
    }
    let mut parts = vec![Spoken {
        part: opening,
        tokens: CALL_TOKENS,
    }];
    let streamed = !partial.is_empty();
    parts.extend(partial.into_iter().map(|arg| Spoken {
        part: json!({"functionCall": {"partialArgs": [arg], "willContinue": true}}),
        tokens: 1,
    }));
    if streamed {
        parts.push(Spoken {
            part: json!({"functionCall": {}}),
            tokens: 0,
        });
    }
    parts.into_iter()
}

/// The arguments as pieces with their places. Strings come in several; an empty list or object has no place.
fn partial_args(value: &Value, path: &str, out: &mut Vec<Value>) {
    match value {
        Value::Object(entries) => entries.iter().for_each(|(key, value)| {
            let plain = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !key.starts_with(|c: char| c.is_ascii_digit())
                && !key.is_empty();
            let path = match plain {
                true => format!("{path}.{key}"),
                false => format!("{path}[{}]", json!(key)),
            };
            partial_args(value, &path, out);
        }),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                partial_args(item, &format!("{path}[{index}]"), out);
            }
        }
        Value::String(text) => {
            let pieces: Vec<_> = letters(text).collect();
            let count = pieces.len();
            out.extend(pieces.into_iter().enumerate().map(|(index, piece)| {
                let mut arg = json!({"jsonPath": path, "stringValue": piece});
                if index + 1 < count {
                    arg["willContinue"] = json!(true);
                }
                arg
            }));
        }
        Value::Number(number) => out.push(json!({"jsonPath": path, "numberValue": number})),
        Value::Bool(bool) => out.push(json!({"jsonPath": path, "boolValue": bool})),
        Value::Null => out.push(json!({"jsonPath": path, "nullValue": "NULL_VALUE"})),
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

/// A text word by word, each with the white space that follows it; scripts without spaces a few letters at a time.
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
            // Letters of three bytes and more are those of scripts that put no spaces between words.
            wide += usize::from(letter.len_utf8() >= 3);
            end += letter.len_utf8();
        }
        at += end;
        (end > 0).then(|| rest[..end].to_owned())
    })
}

/// How many tokens contents have, by what they are made of, as Google reports it.
pub(super) fn count_tokens(contents: &Value) -> (u64, Value) {
    let (mut letters, mut images) = (0, 0);
    weigh(contents, &mut letters, &mut images);
    let text = letters.div_ceil(4).max(1);
    let mut details = vec![json!({"modality": "TEXT", "tokenCount": text})];
    if images > 0 {
        details.push(json!({"modality": "IMAGE", "tokenCount": images * IMAGE_TOKENS}));
    }
    (text + images * IMAGE_TOKENS, Value::Array(details))
}

fn weigh(value: &Value, letters: &mut u64, images: &mut u64) {
    match value {
        Value::Object(entries) => entries.iter().for_each(|(key, value)| match key.as_str() {
            "inlineData" | "fileData" => *images += 1,
            "thoughtSignature" | "role" => {}
            _ => weigh(value, letters, images),
        }),
        Value::Array(items) => items.iter().for_each(|item| weigh(item, letters, images)),
        Value::String(text) => *letters += text.chars().count() as u64,
        Value::Number(_) => *letters += 4,
        Value::Bool(_) | Value::Null => {}
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
            &json!({"city": "Tokyo", "days": 2, "on": true, "off": null, "list": [{"a b": ""}], "none": {}}),
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
