//! What spans may hold of what others write: ids that can be nothing else, and messages if the configuration asks for them.

use adk_bridge_protocol::event::{Content, Part};
use adk_bridge_protocol::json_text::Json;
use serde_json::{Value, json};

use crate::secrets;

/// The longest id: those of stock clients and agents have 16 to 64 characters.
const MAX_ID_BYTES: usize = 200;
/// How much of a message, of arguments and of a result a span holds, if it does: the queue of the exporter has thousands of spans.
const MAX_TEXT_BYTES: usize = 4 * 1024;
/// How many bytes of messages a span holds: the newest.
const MAX_MESSAGES_BYTES: usize = 16 * 1024;

/// An id, a name of a tool or of a model, if it can be nothing else. Secrets of the bridge are hidden in it.
pub(super) fn as_id(text: &str) -> Option<String> {
    let of_id = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@+".contains(&byte);
    let is_id = (1..=MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(of_id);
    is_id.then(|| secrets::hide(text).into())
}

/// A word such as `MAX_TOKENS`.
pub(super) fn as_word(text: &str) -> Option<String> {
    let of_word = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_word = (1..=40).contains(&text.len()) && text.bytes().all(of_word);
    is_word.then(|| secrets::hide(text).into())
}

/// A text without secrets of the bridge, shortened.
pub(super) fn text(text: &str) -> String {
    let hidden = secrets::hide(text);
    let end = hidden.floor_char_boundary(MAX_TEXT_BYTES);
    match end < hidden.len() {
        true => format!("{}…", &hidden[..end]),
        false => hidden.into(),
    }
}

/// The same for a JSON text.
pub(super) fn json(value: &Json) -> String {
    text(value.text())
}

/// Messages as the semantic conventions write them: the newest, as many as there is room for.
pub(super) fn messages<'c, 'd: 'c>(
    contents: impl DoubleEndedIterator<Item = &'c Content<'d>>,
) -> String {
    let (mut newest, mut bytes) = (Vec::new(), 0);
    for content in contents.rev() {
        let role = match content.role.as_deref() {
            Some("model") => "assistant",
            _ => "user",
        };
        let parts: Vec<Value> = content.parts.iter().filter_map(part).collect();
        let message = json!({"role": role, "parts": parts});
        bytes += message.to_string().len();
        if bytes > MAX_MESSAGES_BYTES && !newest.is_empty() {
            break;
        }
        newest.push(message);
    }
    newest.reverse();
    Value::Array(newest).to_string()
}

/// One message of the model.
pub(super) fn answer(said: &str, calls: &[Value]) -> String {
    let said = (!said.is_empty()).then(|| json!({"type": "text", "content": text(said)}));
    let parts: Vec<Value> = said.into_iter().chain(calls.iter().cloned()).collect();
    json!([{"role": "assistant", "parts": parts}]).to_string()
}

pub(super) fn part(part: &Part<'_>) -> Option<Value> {
    if let Some(said) = part.text.as_deref().filter(|said| !said.is_empty()) {
        let kind = if part.thought == Some(true) {
            "reasoning"
        } else {
            "text"
        };
        return Some(json!({"type": kind, "content": text(said)}));
    }
    if let Some(call) = &part.function_call {
        let arguments = call.args.as_ref().map(json);
        return Some(
            json!({"type": "tool_call", "id": call.id.as_deref().and_then(as_id), "name": call.name.as_deref().and_then(as_id), "arguments": arguments}),
        );
    }
    if let Some(response) = &part.function_response {
        let said = response.response.as_ref().map(json);
        return Some(
            json!({"type": "tool_call_response", "id": response.id.as_deref().and_then(as_id), "response": said}),
        );
    }
    // Pictures and sounds are too long for a span.
    let media_type = part
        .inline_data
        .as_ref()
        .and_then(|blob| blob.mime_type.as_deref());
    media_type.map(|media_type| json!({"type": "blob", "mime_type": text(media_type)}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_can_be_nothing_else() {
        for id in ["call-1", "adk-3f:x", "gpt-5.1/turbo@a+b", "a"] {
            assert_eq!(as_id(id).as_deref(), Some(id));
        }
        for text in [
            "",
            "two words",
            "a\nb",
            "größe",
            "{\"a\":1}",
            &"x".repeat(201),
        ] {
            assert_eq!(as_id(text), None, "{text}");
        }
        assert_eq!(as_word("MAX_TOKENS").as_deref(), Some("MAX_TOKENS"));
        for text in ["", "MAX TOKENS", "abc1", &"x".repeat(41)] {
            assert_eq!(as_word(text), None, "{text}");
        }
    }

    #[test]
    fn messages_are_bounded() {
        let long = "ä".repeat(MAX_TEXT_BYTES);
        let contents: Vec<Content<'_>> = (0..100)
            .map(|_| Content::new("user", vec![Part::text(&long)]))
            .collect();
        let shown = messages(contents.iter());
        assert!(
            shown.len() <= MAX_MESSAGES_BYTES + 2 * MAX_TEXT_BYTES,
            "{}",
            shown.len()
        );
        let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
        assert!(shown.as_array().is_some_and(|shown| shown.len() > 1));
    }
}
