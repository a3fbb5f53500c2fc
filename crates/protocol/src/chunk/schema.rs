//! The schemas of the newest clients for chunks, as one table.

use serde_json::{Map, Value};

use super::ChunkError;

pub(super) fn check(kind: &str, object: &Map<String, Value>) -> Result<(), ChunkError> {
    let fields = fields(kind).ok_or_else(|| ChunkError::UnknownType(kind.to_owned()))?;
    for field in fields.split_ascii_whitespace() {
        let name = field.trim_end_matches('!');
        let (expected, fits) = rule(name);
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

/// The fields of a type; `!` marks required ones.
fn fields(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "start" => "messageId messageMetadata",
        "finish" => "finishReason messageMetadata",
        "abort" => "reason",
        "error" => "errorText!",
        "message-metadata" => "messageMetadata!",
        "start-step" | "finish-step" | "reset-step" => "",
        "text-start" | "reasoning-start" | "reasoning-end" => "id! providerMetadata",
        "text-delta" | "reasoning-delta" => "id! delta! providerMetadata",
        "text-end" => "id! providerMetadata citations",
        "tool-input-start" => {
            "toolCallId! toolName! inputEncoding providerExecuted providerMetadata toolMetadata dynamic title"
        }
        "tool-input-delta" => "toolCallId! inputTextDelta!",
        "tool-input-available" => {
            "toolCallId! toolName! input! providerExecuted providerMetadata toolMetadata dynamic title"
        }
        "tool-input-error" => {
            "toolCallId! toolName! input! errorText! providerExecuted providerMetadata toolMetadata dynamic title"
        }
        "tool-approval-request" => {
            "approvalId! toolCallId! approvalDescriptor inputSchemaInput signature reason isAutomatic"
        }
        "tool-approval-response" => {
            "approvalId! approved! reason providerExecuted providerMetadata"
        }
        "tool-output-available" => {
            "toolCallId! output! providerExecuted providerMetadata toolMetadata dynamic preliminary"
        }
        "tool-output-error" => {
            "toolCallId! errorText! providerExecuted providerMetadata toolMetadata dynamic"
        }
        "tool-output-denied" => "toolCallId!",
        "source-url" => "sourceId! url! title providerMetadata",
        "source-document" => "sourceId! mediaType! title! filename providerMetadata",
        "file" | "reasoning-file" => "url! mediaType! providerMetadata",
        "custom" => "kind! providerMetadata",
        "steering-message" => "id! parts!",
        _ if kind.starts_with("data-") => "id data! transient",
        _ => return None,
    })
}

type Rule = (&'static str, fn(&Value) -> bool);

/// The name of a field decides its type, whichever chunk it is in.
fn rule(name: &str) -> Rule {
    match name {
        "input" | "output" | "data" | "messageMetadata" | "approvalDescriptor"
        | "inputSchemaInput" => ("there (`null` for nothing)", |_| true),
        "providerExecuted" | "dynamic" | "preliminary" | "transient" | "approved"
        | "isAutomatic" => ("a boolean", Value::is_boolean),
        "toolMetadata" => ("an object", Value::is_object),
        "providerMetadata" => ("an object of objects", is_provider_metadata),
        "inputEncoding" => ("`json` or `text`", |value| {
            matches!(value.as_str(), Some("json" | "text"))
        }),
        "finishReason" => ("a finish reason of the AI SDK", is_finish_reason),
        "citations" => ("an array of citations", |value| each(value, is_citation)),
        "parts" => ("an array of text and file parts", |value| {
            each(value, is_steering_part)
        }),
        _ => ("a string", Value::is_string),
    }
}

fn is_provider_metadata(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|providers| providers.values().all(Value::is_object))
}

fn is_finish_reason(value: &Value) -> bool {
    const WORDS: [&str; 7] = [
        "stop",
        "length",
        "content-filter",
        "tool-calls",
        "error",
        "other",
        "interrupted",
    ];
    value.as_str().is_some_and(|word| WORDS.contains(&word))
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
