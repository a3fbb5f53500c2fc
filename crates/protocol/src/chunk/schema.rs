//! The schemas of the newest clients for chunks, as one table.

use serde_json::{Map, Value, json};

use super::ChunkError;

/// Every type with its fields; `!` marks required ones.
const TYPES: &[(&str, &str)] = &[
    ("start", "messageId messageMetadata"),
    ("finish", "finishReason messageMetadata"),
    ("abort", "reason"),
    ("error", "errorText!"),
    ("message-metadata", "messageMetadata!"),
    ("start-step", ""),
    ("finish-step", ""),
    ("reset-step", ""),
    ("text-start", "id! providerMetadata"),
    ("reasoning-start", "id! providerMetadata"),
    ("reasoning-end", "id! providerMetadata"),
    ("text-delta", "id! delta! providerMetadata"),
    ("reasoning-delta", "id! delta! providerMetadata"),
    ("text-end", "id! providerMetadata citations"),
    (
        "tool-input-start",
        "toolCallId! toolName! inputEncoding providerExecuted providerMetadata toolMetadata dynamic title",
    ),
    ("tool-input-delta", "toolCallId! inputTextDelta!"),
    (
        "tool-input-available",
        "toolCallId! toolName! input! providerExecuted providerMetadata toolMetadata dynamic title",
    ),
    (
        "tool-input-error",
        "toolCallId! toolName! input! errorText! providerExecuted providerMetadata toolMetadata dynamic title",
    ),
    (
        "tool-approval-request",
        "approvalId! toolCallId! approvalDescriptor inputSchemaInput signature reason isAutomatic",
    ),
    (
        "tool-approval-response",
        "approvalId! approved! reason providerExecuted providerMetadata",
    ),
    (
        "tool-output-available",
        "toolCallId! output! providerExecuted providerMetadata toolMetadata dynamic preliminary",
    ),
    (
        "tool-output-error",
        "toolCallId! errorText! providerExecuted providerMetadata toolMetadata dynamic",
    ),
    ("tool-output-denied", "toolCallId!"),
    ("source-url", "sourceId! url! title providerMetadata"),
    (
        "source-document",
        "sourceId! mediaType! title! filename providerMetadata",
    ),
    ("file", "url! mediaType! providerMetadata"),
    ("reasoning-file", "url! mediaType! providerMetadata"),
    ("custom", "kind! providerMetadata"),
    ("steering-message", "id! parts!"),
];
/// The fields of every type that begins with [`DATA`].
const DATA_FIELDS: &str = "id data! transient";
/// What the types of data parts begin with.
const DATA: &str = "data-";

pub(super) fn check(kind: &str, object: &Map<String, Value>) -> Result<(), ChunkError> {
    let fields = fields(kind).ok_or_else(|| ChunkError::UnknownType(kind.to_owned()))?;
    for field in fields.split_ascii_whitespace() {
        let name = field.trim_end_matches('!');
        let (expected, fits, _) = rule(name);
        let good = match object.get(name) {
            Some(value) => fits(value),
            None => name.len() == field.len(),
        };
        if !good {
            return Err(ChunkError::Field {
                kind: kind.to_owned(),
                at: name.to_owned(),
                expected,
            });
        }
    }
    Ok(())
}

fn fields(kind: &str) -> Option<&'static str> {
    if kind.starts_with(DATA) {
        return Some(DATA_FIELDS);
    }
    let known = TYPES.iter().find(|(known, _)| *known == kind);
    known.map(|(_, fields)| *fields)
}

/// The JSON Schema of all of them. Extensions of citations and parts are left open: they are what an agent sends.
pub(super) fn as_json_schema() -> Value {
    let kinds = TYPES.iter().map(|(kind, fields)| {
        let of_type = json!({"const": kind});
        object_schema(kind, of_type, fields)
    });
    let of_data = json!({"type": "string", "pattern": format!("^{DATA}")});
    let data = object_schema("data-NAME", of_data, DATA_FIELDS);
    let all: Vec<Value> = kinds.chain([data]).collect();
    json!({ "oneOf": all })
}

fn object_schema(title: &str, of_type: Value, fields: &str) -> Value {
    let mut properties = Map::from_iter([("type".to_owned(), of_type)]);
    let mut required = vec!["type"];
    for field in fields.split_ascii_whitespace() {
        let name = field.trim_end_matches('!');
        if name.len() < field.len() {
            required.push(name);
        }
        let (_, _, schema) = rule(name);
        properties.insert(name.to_owned(), schema());
    }
    json!({"title": title, "type": "object", "properties": properties, "required": required})
}

/// What a field must be, in words, as a check and as a JSON Schema.
type Rule = (&'static str, fn(&Value) -> bool, fn() -> Value);

/// The name of a field decides its type, whichever chunk it is in.
fn rule(name: &str) -> Rule {
    match name {
        "input" | "output" | "data" | "messageMetadata" | "approvalDescriptor"
        | "inputSchemaInput" => ("there (`null` for nothing)", |_| true, || json!({})),
        "providerExecuted" | "dynamic" | "preliminary" | "transient" | "approved"
        | "isAutomatic" => (
            "a boolean",
            Value::is_boolean,
            || json!({"type": "boolean"}),
        ),
        "toolMetadata" => ("an object", Value::is_object, || json!({"type": "object"})),
        "providerMetadata" => (
            "an object of objects",
            is_provider_metadata,
            || json!({"type": "object", "additionalProperties": {"type": "object"}}),
        ),
        "inputEncoding" => (
            "`json` or `text`",
            |value| matches!(value.as_str(), Some("json" | "text")),
            || json!({"enum": ["json", "text"]}),
        ),
        "finishReason" => (
            "a finish reason of the AI SDK",
            is_finish_reason,
            || json!({"enum": FINISH_REASONS}),
        ),
        "citations" => (
            "an array of citations",
            |value| each(value, is_citation),
            || json!({"type": "array", "items": {"type": "object", "required": ["source"]}}),
        ),
        "parts" => (
            "an array of text and file parts",
            |value| each(value, is_steering_part),
            || {
                let kinds = json!({"type": {"enum": ["text", "file"]}});
                let part = json!({"type": "object", "properties": kinds, "required": ["type"]});
                json!({"type": "array", "items": part})
            },
        ),
        _ => ("a string", Value::is_string, || json!({"type": "string"})),
    }
}

const FINISH_REASONS: [&str; 7] = [
    "stop",
    "length",
    "content-filter",
    "tool-calls",
    "error",
    "other",
    "interrupted",
];

fn is_provider_metadata(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|providers| providers.values().all(Value::is_object))
}

fn is_finish_reason(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|word| FINISH_REASONS.contains(&word))
}

fn is_citation(value: &Value) -> bool {
    let source = &value["source"];
    let document = match source["sourceType"].as_str() {
        Some("url") => source["url"].is_string() && text_or_absent(source, "title"),
        Some("document") => {
            source["mediaType"].is_string()
                && source["title"].is_string()
                && text_or_absent(source, "filename")
        }
        _ => false,
    };
    document
        && source["type"] == "source"
        && source["id"].is_string()
        && metadata_or_absent(source)
        && ["startIndex", "endIndex"]
            .iter()
            .all(|at| value.get(at).is_none_or(Value::is_u64))
        && text_or_absent(value, "citedText")
}

fn is_steering_part(part: &Value) -> bool {
    let content = match part["type"].as_str() {
        Some("text") => part["text"].is_string(),
        Some("file") => {
            part["mediaType"].is_string()
                && part["url"].is_string()
                && text_or_absent(part, "filename")
                && part.get("providerReference").is_none_or(|reference| {
                    reference
                        .as_object()
                        .is_some_and(|ids| ids.values().all(Value::is_string))
                })
        }
        _ => false,
    };
    content && metadata_or_absent(part)
}

fn each(value: &Value, fits: fn(&Value) -> bool) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(fits))
}

fn text_or_absent(value: &Value, name: &str) -> bool {
    value.get(name).is_none_or(Value::is_string)
}

fn metadata_or_absent(value: &Value) -> bool {
    value
        .get("providerMetadata")
        .is_none_or(is_provider_metadata)
}
