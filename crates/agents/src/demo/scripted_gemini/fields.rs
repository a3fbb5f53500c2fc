//! Which fields a request may have, and the refusal of all others, as Google refuses them.
//!
//! Google takes a field's name in snake case and in camel case; what leaves here is in camel case.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use super::error::ApiError;

/// What a place in a request may hold.
pub(super) enum Shape {
    /// Whatever JSON there is.
    Any,
    Text,
    Bytes,
    Number,
    Bool,
    /// An object whose keys are the sender's own.
    Struct,
    /// Named values of one shape.
    Map(&'static Shape),
    List(&'static Shape),
    Message(&'static [(&'static str, Shape)]),
    /// The message that describes a type, which may hold others of its kind.
    Schema,
}

use Shape::{Any, Bool, Bytes, List, Message, Number, Struct, Text};

/// Checks the body of `generateContent` and `streamGenerateContent`.
pub(super) fn generate_request(body: Value) -> Result<Value, ApiError> {
    check(body, &GENERATE, &mut String::new())
}

/// Checks the body of `countTokens`.
pub(super) fn count_request(body: Value) -> Result<Value, ApiError> {
    check(body, &COUNT, &mut String::new())
}

/// Bytes in either alphabet, padded or not: Google reads them all.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
    STANDARD
        .decode(text)
        .or_else(|_| URL_SAFE.decode(text))
        .ok()
}

static GENERATE: Shape = Message(&[
    ("model", Text),
    ("contents", List(&CONTENT)),
    ("system_instruction", CONTENT),
    ("tools", List(&TOOL)),
    ("tool_config", TOOL_CONFIG),
    (
        "safety_settings",
        List(&Message(&[("category", Text), ("threshold", Text)])),
    ),
    ("generation_config", GENERATION_CONFIG),
    ("cached_content", Text),
    ("labels", Struct),
    ("service_tier", Text),
    ("store", Bool),
]);

static COUNT: Shape = Message(&[
    ("model", Text),
    ("contents", List(&CONTENT)),
    (
        "generate_content_request",
        Shape::Message(&[
            ("model", Text),
            ("contents", List(&CONTENT)),
            ("system_instruction", CONTENT),
            ("tools", List(&TOOL)),
            ("tool_config", TOOL_CONFIG),
            ("safety_settings", List(&Any)),
            ("generation_config", GENERATION_CONFIG),
        ]),
    ),
]);

pub(super) const CONTENT: Shape = Message(&[("role", Text), ("parts", List(&PART))]);

const PART: Shape = Message(&[
    ("text", Text),
    ("thought", Bool),
    ("thought_signature", Bytes),
    ("inline_data", BLOB),
    ("file_data", FILE),
    (
        "function_call",
        Message(&[("id", Text), ("name", Text), ("args", Struct)]),
    ),
    (
        "function_response",
        Message(&[
            ("id", Text),
            ("name", Text),
            ("response", Struct),
            ("will_continue", Bool),
            ("scheduling", Text),
            (
                "parts",
                List(&Message(&[
                    ("inline_data", BLOB),
                    ("file_data", FILE),
                    ("media_processing", Any),
                ])),
            ),
        ]),
    ),
    (
        "executable_code",
        Message(&[("id", Text), ("language", Text), ("code", Text)]),
    ),
    (
        "code_execution_result",
        Message(&[("id", Text), ("outcome", Text), ("output", Text)]),
    ),
    ("tool_call", Any),
    ("tool_response", Any),
    ("video_metadata", Any),
    ("media_resolution", Any),
    ("media_processing", Any),
    ("part_metadata", Struct),
]);

pub(super) const BLOB: Shape =
    Message(&[("mime_type", Text), ("data", Bytes), ("display_name", Text)]);
const FILE: Shape = Message(&[
    ("mime_type", Text),
    ("file_uri", Text),
    ("display_name", Text),
]);

pub(super) const TOOL: Shape = Message(&[
    (
        "function_declarations",
        List(&Message(&[
            ("name", Text),
            ("description", Text),
            ("parameters", Shape::Schema),
            ("parameters_json_schema", Any),
            ("response", Shape::Schema),
            ("response_json_schema", Any),
            ("behavior", Text),
        ])),
    ),
    ("google_search", Struct),
    ("google_search_retrieval", Struct),
    ("google_maps", Struct),
    ("code_execution", Struct),
    ("url_context", Struct),
    ("file_search", Struct),
    ("computer_use", Struct),
    ("mcp_servers", List(&Any)),
]);

const SCHEMA: Shape = Message(&[
    ("type", Text),
    ("format", Text),
    ("title", Text),
    ("description", Text),
    ("nullable", Bool),
    ("enum", List(&Text)),
    ("items", Shape::Schema),
    ("min_items", Number),
    ("max_items", Number),
    ("properties", Shape::Map(&Shape::Schema)),
    ("required", List(&Text)),
    ("property_ordering", List(&Text)),
    ("min_properties", Number),
    ("max_properties", Number),
    ("min_length", Number),
    ("max_length", Number),
    ("minimum", Number),
    ("maximum", Number),
    ("pattern", Text),
    ("example", Any),
    ("default", Any),
    ("any_of", List(&Shape::Schema)),
    ("additional_properties", Any),
    ("defs", Any),
    ("ref", Text),
]);

pub(super) const TOOL_CONFIG: Shape = Message(&[
    (
        "function_calling_config",
        Message(&[
            ("mode", Text),
            ("allowed_function_names", List(&Text)),
            ("stream_function_call_arguments", Bool),
        ]),
    ),
    ("retrieval_config", Any),
    ("include_server_side_tool_invocations", Bool),
]);

pub(super) const GENERATION_CONFIG: Shape = Message(&[
    ("stop_sequences", List(&Text)),
    ("response_mime_type", Text),
    ("response_schema", Any),
    ("response_json_schema", Any),
    ("response_modalities", List(&Text)),
    ("response_format", Any),
    ("candidate_count", Number),
    ("max_output_tokens", Number),
    ("temperature", Number),
    ("top_p", Number),
    ("top_k", Number),
    ("seed", Number),
    ("presence_penalty", Number),
    ("frequency_penalty", Number),
    ("response_logprobs", Bool),
    ("logprobs", Number),
    ("enable_enhanced_civic_answers", Bool),
    ("speech_config", Any),
    (
        "thinking_config",
        Message(&[
            ("include_thoughts", Bool),
            ("thinking_budget", Number),
            ("thinking_level", Text),
        ]),
    ),
    ("image_config", Any),
    ("media_resolution", Text),
    ("audio_transcription_config", Any),
]);

/// Checks a value and gives its fields their names in camel case.
pub(super) fn check(value: Value, shape: &Shape, path: &mut String) -> Result<Value, ApiError> {
    // Protocol buffers know no null: it stands for an absent field.
    if value.is_null() {
        return Ok(value);
    }
    match (shape, value) {
        (Any, value) => Ok(value),
        (Shape::Schema, value) => check(value, &SCHEMA, path),
        (Text, value @ Value::String(_))
        | (Bool, value @ Value::Bool(_))
        | (Struct, value @ Value::Object(_)) => Ok(value),
        (Number, value @ Value::Number(_)) => Ok(value),
        (Number, Value::String(text)) if text.parse::<f64>().is_ok() => Ok(Value::String(text)),
        (Bytes, Value::String(text)) => match decode(&text) {
            Some(_) => Ok(Value::String(text)),
            None => Err(wrong(
                path,
                "TYPE_BYTES",
                &format!("Base64 decoding failed for {:?}", excerpt(&text)),
            )),
        },
        (Shape::Map(inner), Value::Object(entries)) => entries
            .into_iter()
            .map(|(key, value)| {
                Ok((
                    key.clone(),
                    within(path, &format!("[{key}]"), value, inner)?,
                ))
            })
            .collect::<Result<Map<_, _>, _>>()
            .map(Value::Object),
        (List(inner), Value::Array(items)) => items
            .into_iter()
            .enumerate()
            .map(|(index, item)| within(path, &format!("[{index}]"), item, inner))
            .collect::<Result<Vec<_>, _>>()
            .map(Value::Array),
        (Message(fields), Value::Object(entries)) => {
            let mut known = Map::new();
            for (key, value) in entries {
                let Some((name, shape)) = fields
                    .iter()
                    .find(|(name, _)| *name == key || camel(name) == key)
                else {
                    return Err(unknown(path, &key));
                };
                let step = if path.is_empty() {
                    (*name).to_owned()
                } else {
                    format!(".{name}")
                };
                known.insert(camel(name), within(path, &step, value, shape)?);
            }
            Ok(Value::Object(known))
        }
        (shape, value) => Err(wrong(path, shape.name(), &excerpt(&value.to_string()))),
    }
}

fn within(path: &mut String, step: &str, value: Value, shape: &Shape) -> Result<Value, ApiError> {
    let length = path.len();
    path.push_str(step);
    let checked = check(value, shape, path)?;
    path.truncate(length);
    Ok(checked)
}

fn unknown(path: &str, key: &str) -> ApiError {
    let place = match path {
        "" => String::new(),
        _ => format!(" at '{path}'"),
    };
    let message =
        format!("Invalid JSON payload received. Unknown name \"{key}\"{place}: Cannot find field.");
    ApiError::bad_field(path, message)
}

fn wrong(path: &str, kind: &str, found: &str) -> ApiError {
    ApiError::bad_field(path, format!("Invalid value at '{path}' ({kind}), {found}"))
}

fn excerpt(text: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    text.chars().take(SHOWN_CHARS).collect()
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

impl Shape {
    fn name(&self) -> &'static str {
        match self {
            Any | Struct | Message(_) | Self::Map(_) | Self::Schema | List(_) => "TYPE_MESSAGE",
            Text => "TYPE_STRING",
            Bytes => "TYPE_BYTES",
            Number => "TYPE_NUMBER",
            Bool => "TYPE_BOOL",
        }
    }
}
