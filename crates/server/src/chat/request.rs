//! A chat request of the AI SDK, as `useChat` posts it.

use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::message::{Message, Part, parse_messages};
use adk_bridge_protocol::wire::json;
use serde_json::{Map, Value};

use crate::error::AppError;

/// The longest id of a chat, a message or a call that is taken; the clients' own have 16 to 40 characters.
pub const MAX_ID_BYTES: usize = 200;

/// What a client asks for.
#[derive(Debug)]
pub struct ChatRequest {
    pub chat_id: String,
    pub messages: Vec<Message>,
    pub dialect: Dialect,
    pub sdk: Sdk,
}

impl ChatRequest {
    /// Reads a request's body. Fields that are not known are passed over: clients add new ones with every version.
    pub fn parse(body: &[u8]) -> Result<Self, AppError> {
        let Value::Object(fields) = read_json(body)? else {
            return Err(wrong("the body", "an object"));
        };
        Self::of(fields)
    }

    /// Takes a request whose JSON has been read.
    pub fn of(mut fields: Map<String, Value>) -> Result<Self, AppError> {
        let chat_id = string(&mut fields, "id")?
            .ok_or_else(|| AppError::unprocessable("missing_field", "the chat's id is missing"))?;
        check_id("id", &chat_id)?;
        // The last message says the same as the trigger: one that is known is answered anew.
        match string(&mut fields, "trigger")?.as_deref() {
            None | Some("submit-message" | "regenerate-message") => {}
            Some(other) => {
                return Err(AppError::unprocessable(
                    "bad_trigger",
                    format!(
                        "trigger is {other:?}; use \"submit-message\" or \"regenerate-message\""
                    ),
                ));
            }
        }
        let dialect = string(&mut fields, "dialect")?;
        // A front end that knows that the server keeps the history may send its last message alone.
        let alone = fields.remove("message").filter(|it| !it.is_null());
        let messages = fields
            .remove("messages")
            .or_else(|| alone.map(|message| Value::Array(vec![message])))
            .ok_or_else(|| {
                AppError::unprocessable(
                    "missing_field",
                    "messages are missing; send them, or the last one as message",
                )
            })?;
        let messages = parse_messages(messages)
            .map_err(|error| AppError::unprocessable("bad_message", error.to_string()))?;
        if messages.is_empty() {
            return Err(AppError::unprocessable(
                "missing_field",
                "a request needs at least one message",
            ));
        }
        messages.iter().try_for_each(check_ids)?;
        Ok(Self {
            chat_id,
            messages,
            dialect: dialect_of(dialect.as_deref())?,
            sdk: sdk_of(fields.get("sdk")),
        })
    }
}

/// The dialect that a client names; `native` where it names none.
pub fn dialect_of(word: Option<&str>) -> Result<Dialect, AppError> {
    word.unwrap_or("native")
        .parse()
        .map_err(|error| AppError::unprocessable("bad_dialect", format!("{error}")))
}

pub fn check_id(field: &str, id: &str) -> Result<(), AppError> {
    if id.is_empty() || id.len() > MAX_ID_BYTES {
        return Err(bad_id(field));
    }
    Ok(())
}

/// Reads a body; it may be cut off, not UTF-8, nested too deeply, or something else altogether.
pub fn read_json(body: &[u8]) -> Result<Value, AppError> {
    json::read(body).map_err(|error| {
        AppError::bad_request("bad_json", format!("the body is not JSON: {error}"))
    })
}

/// The ids that a message brings. They may be absent; what the store and the audit keep of them must be short.
fn check_ids(message: &Message) -> Result<(), AppError> {
    let too_long = |id: &str| id.len() > MAX_ID_BYTES;
    let mut tools = message.parts.iter().filter_map(Part::as_tool);
    let field = if too_long(&message.id) {
        "a message's id"
    } else if tools.any(|tool| {
        let approval = tool.approval.as_ref().and_then(|field| field.id.as_deref());
        too_long(&tool.call_id) || approval.is_some_and(too_long)
    }) {
        "a toolCallId or approval id"
    } else {
        return Ok(());
    };
    Err(bad_id(field))
}

fn bad_id(field: &str) -> AppError {
    AppError::unprocessable(
        "bad_id",
        format!("{field} must have 1 to {MAX_ID_BYTES} bytes"),
    )
}

fn sdk_of(value: Option<&Value>) -> Sdk {
    match value {
        Some(Value::Number(number)) if number.as_u64() == Some(7) => Sdk::V7,
        Some(Value::String(text)) if text == "7" => Sdk::V7,
        _ => Sdk::V6,
    }
}

fn string(fields: &mut Map<String, Value>, key: &str) -> Result<Option<String>, AppError> {
    match fields.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(key, "a string")),
    }
}

fn wrong(what: &str, expected: &str) -> AppError {
    AppError::unprocessable("wrong_type", format!("{what} must be {expected}"))
}
