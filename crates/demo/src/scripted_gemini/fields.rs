//! The fields that a request may have; all others are refused as Google refuses them.
//!
//! Google accepts field names in snake case and in camel case; the output here is in camel case.

use adk_bridge_protocol::json_text::{Json, fields_of, items_of, text_of};
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::ApiError;

/// What a place in a request may contain.
pub(super) enum Shape {
    /// Any JSON.
    Any,
    Text,
    Bytes,
    Number,
    Bool,
    /// An object with any keys.
    Struct,
    /// Named values of one shape.
    Map(&'static Shape),
    List(&'static Shape),
    Message(&'static [(&'static str, Shape)]),
    /// The schema of a type, which may contain other schemas.
    Schema,
}

use Shape::{Any, Bool, Bytes, List, Message, Number, Struct, Text};

/// A checked body.
pub(super) struct Body {
    checked: Json,
    /// All of it except the contents, which may be long.
    pub(super) rest: Value,
}

impl Body {
    pub(super) fn contents(&self) -> &RawValue {
        let mut fields = self.checked.fields().into_iter();
        let contents = fields.find_map(|(name, it)| (name == CONTENTS).then_some(it));
        contents.unwrap_or(Json::nothing().raw())
    }
}

const CONTENTS: &str = "contents";

/// Checks the body of `generateContent` and `streamGenerateContent`.
pub(super) fn generate_request(body: &RawValue) -> Result<Body, ApiError> {
    let checked = check(body, &GENERATE)?;
    let fields = checked.fields().into_iter();
    let rest = fields
        .filter(|(name, _)| name != CONTENTS)
        .map(|(name, it)| {
            let value = serde_json::from_str(it.get()).unwrap_or_default();
            (name.into_owned(), value)
        });
    Ok(Body {
        rest: Value::Object(rest.collect()),
        checked,
    })
}

/// Checks the body of `countTokens`.
pub(super) fn count_request(body: &RawValue) -> Result<Json, ApiError> {
    check(body, &COUNT)
}

/// Decodes either alphabet, with or without padding, as Google does.
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
    ("enable_affective_dialog", Bool),
    ("translation_config", Any),
]);

/// Checks a value and converts the names of its fields to camel case.
pub(super) fn check(value: &RawValue, shape: &Shape) -> Result<Json, ApiError> {
    let mut checked = String::with_capacity(value.get().len());
    write_checked(value, shape, &mut String::new(), &mut checked)?;
    Json::parse(&checked)
        .map_err(|error| ApiError::invalid(format!("Invalid JSON payload received. {error}")))
}

fn write_checked(
    value: &RawValue,
    shape: &Shape,
    path: &mut String,
    out: &mut String,
) -> Result<(), ApiError> {
    let text = value.get();
    let fits = match shape {
        // Protocol buffers have no null: it means an absent field.
        _ if text == "null" => true,
        Any => true,
        Text => text.starts_with('"'),
        Bool => matches!(text, "true" | "false"),
        Struct => text.starts_with('{'),
        Number => match text_of(value) {
            Some(text) => text.parse::<f64>().is_ok(),
            None => serde_json::from_str::<serde_json::Number>(text).is_ok(),
        },
        Bytes => match text_of(value) {
            Some(text) if decode(&text).is_some() => true,
            Some(text) => {
                let found = format!("Base64 decoding failed for {:?}", excerpt(&text));
                return Err(wrong(path, "TYPE_BYTES", &found));
            }
            None => false,
        },
        Shape::Schema => return write_checked(value, &SCHEMA, path, out),
        Shape::Map(_) | List(_) | Message(_) => false,
    };
    if fits {
        out.push_str(text);
        return Ok(());
    }
    match shape {
        Shape::Map(inner) if let Some(entries) = fields_of(value) => {
            out.push('{');
            for (key, value) in entries {
                write_name(&key, out);
                within(path, &format!("[{key}]"), value, inner, out)?;
            }
            out.push('}');
        }
        List(inner) if let Some(items) = items_of(value) => {
            out.push('[');
            for (index, item) in items.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                within(path, &format!("[{index}]"), item, inner, out)?;
            }
            out.push(']');
        }
        Message(fields) if let Some(entries) = fields_of(value) => {
            out.push('{');
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
                write_name(&camel(name), out);
                within(path, &step, value, shape, out)?;
            }
            out.push('}');
        }
        _ => return Err(wrong(path, shape.name(), &excerpt(text))),
    }
    Ok(())
}

fn write_name(name: &str, out: &mut String) {
    if !out.ends_with('{') {
        out.push(',');
    }
    out.push_str(Json::from(name).text());
    out.push(':');
}

fn within(
    path: &mut String,
    step: &str,
    value: &RawValue,
    shape: &Shape,
    out: &mut String,
) -> Result<(), ApiError> {
    let length = path.len();
    path.push_str(step);
    write_checked(value, shape, path, out)?;
    path.truncate(length);
    Ok(())
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
