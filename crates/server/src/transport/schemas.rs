//! JSON Schemas of what is read and written by hand: chat requests, messages, chunks.

use std::borrow::Cow;

use adk_bridge_protocol::chunk;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::chat::request::MAX_ID_BYTES;

/// One of the dialects.
pub struct DialectName;
/// A version of the AI SDK.
pub struct SdkName;
/// What `useChat` posts.
pub struct ChatRequest;
/// A message of the AI SDK.
pub struct Message;
/// A part of a message.
pub struct Part;
/// A chunk of a stream.
pub struct Chunk;

/// Gives a type the schema that a function makes.
macro_rules! schemas {
    ($($type:ident: $schema:path, $inline:literal;)*) => {
        $(impl JsonSchema for $type {
            fn inline_schema() -> bool {
                $inline
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                $schema(generator)
            }
        })*
    };
}

schemas! {
    DialectName: dialect, true;
    SdkName: sdk, true;
    ChatRequest: chat_request, false;
    Message: message, false;
    Part: part, false;
    Chunk: chunk, false;
}

fn dialect(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": ["native", "adk", "held"]})
}

fn sdk(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": [6, 7]})
}

fn chat_request(generator: &mut SchemaGenerator) -> Schema {
    let message = generator.subschema_for::<Message>();
    let dialect = generator.subschema_for::<DialectName>();
    json_schema!({
        "description": "What `useChat` posts. Other fields are ignored.",
        "type": "object",
        "properties": {
            "id": {
                "description": "The chat, named by the client; without it every request starts a new chat.",
                "type": "string", "minLength": 1, "maxLength": MAX_ID_BYTES,
            },
            "messages": {
                "description": "The last one is taken; the server follows the ids of the others.",
                "type": "array", "minItems": 1, "items": message,
            },
            "message": {"description": "The last message, if `messages` is missing.", "allOf": [message]},
            "trigger": {"enum": ["submit-message", "regenerate-message"]},
            "messageId": {"type": "string"},
            "dialect": dialect,
            "agent": {
                "description": "The id of the agent that answers.",
                "type": "string", "minLength": 1, "maxLength": MAX_ID_BYTES,
            },
            "state": {"description": "Handed in to an ADK agent.", "type": "object"},
            "stateDelta": {"description": "Handed in to an ADK agent.", "type": "object"},
            "customMetadata": {"description": "Handed in to an ADK agent.", "type": "object"},
            "tools": {
                "description": "Tools of the page.",
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "description": {"type": "string"},
                        "inputSchema": {"type": "object"},
                    },
                    "required": ["name"],
                },
            },
            "sdk": generator.subschema_for::<SdkName>(),
        },
        "anyOf": [{"required": ["messages"]}, {"required": ["message"]}],
    })
}

fn message(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "A UI message of the AI SDK.",
        "type": "object",
        "properties": {
            "id": {"type": "string", "maxLength": MAX_ID_BYTES},
            "role": {"enum": ["user", "assistant"]},
            "metadata": {},
            "parts": {"type": "array", "items": generator.subschema_for::<Part>()},
        },
        "required": ["role", "parts"],
    })
}

fn part(_: &mut SchemaGenerator) -> Schema {
    let text = json!({"type": "string"});
    let url = json!({"type": "string", "description": "A URL, signed or not, or a data URL."});
    let state = json!({"enum": ["streaming", "done"]});
    let media_type = json!({"type": "string", "pattern": "/"});
    let kinds = [
        object("text", &[("text", &text, true), ("state", &state, false)]),
        object(
            "reasoning",
            &[("text", &text, true), ("state", &state, false)],
        ),
        object("step-start", &[]),
        object(
            "file",
            &[
                ("mediaType", &media_type, true),
                ("url", &url, true),
                ("filename", &text, false),
            ],
        ),
        object(
            "source-url",
            &[
                ("sourceId", &text, true),
                ("url", &text, true),
                ("title", &text, false),
            ],
        ),
        object(
            "source-document",
            &[
                ("sourceId", &text, true),
                ("mediaType", &text, true),
                ("title", &text, true),
            ],
        ),
    ];
    let tool = json!({
        "title": "tool-NAME",
        "type": "object",
        "properties": {
            "type": {"type": "string", "pattern": "^(tool-.+|dynamic-tool)$"},
            "toolName": {"type": "string", "description": "With the type `dynamic-tool`."},
            "toolCallId": text,
            "state": {"enum": [
                "input-streaming", "input-available", "approval-requested", "approval-responded", "output-available",
                "output-error", "output-denied",
            ]},
            "input": {},
            "output": {},
            "errorText": text,
            "approval": {
                "type": "object",
                "properties": {"id": text, "approved": {"type": "boolean"}, "reason": text},
            },
        },
        "required": ["type", "toolCallId", "state"],
    });
    let data = json!({
        "title": "data-NAME",
        "type": "object",
        "properties": {"type": {"type": "string", "pattern": "^data-."}, "id": text, "data": {}},
        "required": ["type", "data"],
    });
    let other = json!({
        "title": "another",
        "description": "A part of a type that is not known is kept as it came.",
        "type": "object",
        "properties": {"type": text},
        "required": ["type"],
    });
    let all: Vec<Value> = kinds.into_iter().chain([tool, data, other]).collect();
    json_schema!({"description": "A part of a UI message.", "anyOf": all})
}

fn object(kind: &str, fields: &[(&str, &Value, bool)]) -> Value {
    let mut properties = json!({"type": {"const": kind}});
    let mut required = vec!["type"];
    for (name, schema, is_required) in fields {
        properties[*name] = (*schema).clone();
        if *is_required {
            required.push(name);
        }
    }
    json!({"title": kind, "type": "object", "properties": properties, "required": required})
}

fn chunk(_: &mut SchemaGenerator) -> Schema {
    let Value::Object(mut schema) = chunk::Chunk::json_schema() else {
        return Schema::default();
    };
    let text = "A chunk of the AI SDK's UI message stream. A stream ends with `[DONE]`, which is not JSON.";
    schema.insert("description".to_owned(), json!(text));
    schema.into()
}
