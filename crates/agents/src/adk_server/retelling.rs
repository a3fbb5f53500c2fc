//! A conversation as the beginning of a message, for servers that take no events with a new session.
//!
//! Each event is a line of JSON, so that nothing that was said can be taken for the frame around it. Files are parts of
//! the message, next to the line that they belong to. Thoughts are left out.

use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::outbox::Response;

/// What the model reads before and after the conversation.
const BEFORE: &str = "The server of this conversation has lost it, or it was changed. This is what was said and done before, \
                      oldest first, one JSON object a line:";
const AFTER: &str = "This is all of what was said before. Answer what comes now:";
/// What the model reads before results of calls that only that conversation knows.
const RESULTS: &str = "These calls of that conversation have come to a result:";

/// The parts of a message that repeat these events; none if there are none.
pub(super) fn parts(events: &[Json]) -> Vec<Json> {
    let mut telling = Telling::default();
    for event in events {
        telling.event(event);
    }
    telling.parts()
}

/// The part of a message with results of calls that the session does not know.
pub(super) fn results(responses: &[Response]) -> Json {
    let lines = responses.iter().map(|response| {
        let fields = [
            ("id", response.id.as_str().into()),
            ("name", response.name.as_str().into()),
            ("response", response.response.clone()),
        ];
        Json::object([("functionResponse", Json::object(fields))]).to_string()
    });
    let lines: Vec<String> = lines.collect();
    text(&format!("{RESULTS}\n{}", lines.join("\n")))
}

#[derive(Default)]
struct Telling {
    parts: Vec<Json>,
    /// The lines since the last file.
    lines: Vec<String>,
    has_begun: bool,
}

impl Telling {
    fn event(&mut self, event: &Json) {
        let content = event.get("content").unwrap_or_default();
        let (mut said, mut files) = (Vec::new(), Vec::new());
        let parts = content.get("parts").unwrap_or_default();
        for part in parts.items().unwrap_or_default() {
            let Ok(part) = Json::read_raw(part) else {
                continue;
            };
            if part.get("thought") == Some(true.into()) {
                continue;
            }
            match ["inlineData", "fileData"]
                .iter()
                .find(|kind| part.get(kind).is_some_and(|it| it.is_object()))
            {
                Some(kind) => {
                    let data = part.get(kind).unwrap_or_default();
                    let media_type = data.get("mimeType").unwrap_or_default();
                    said.push(Json::object([("file", media_type)]));
                    files.push(part);
                }
                None => {
                    let fields = part.fields();
                    // It is of use to the model that signed it, in its own turn only.
                    let kept = fields.iter().filter(|(key, _)| key != "thoughtSignature");
                    let kept = kept.filter_map(|(key, value)| {
                        Some((key.as_ref(), Json::read_raw(value).ok()?))
                    });
                    said.push(Json::object(kept));
                }
            }
        }
        if said.is_empty() {
            return;
        }
        let author = event.get("author").unwrap_or_default();
        let line = Json::object([("author", author), ("parts", Json::array(&said))]);
        self.lines.push(line.to_string());
        if !files.is_empty() {
            self.close();
            self.parts.append(&mut files);
        }
    }

    /// Makes a part of the lines so far.
    fn close(&mut self) {
        let before = (!std::mem::replace(&mut self.has_begun, true)).then(|| BEFORE.to_owned());
        let lines: Vec<String> = before.into_iter().chain(self.lines.drain(..)).collect();
        if !lines.is_empty() {
            self.parts.push(text(&lines.join("\n")));
        }
    }

    fn parts(mut self) -> Vec<Json> {
        if self.lines.is_empty() && !self.has_begun {
            return Vec::new();
        }
        self.lines.push(AFTER.to_owned());
        self.close();
        self.parts
    }
}

fn text(words: &str) -> Json {
    Json::object([("text", words.into())])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(author: &str, parts: Value) -> Json {
        json!({"author": author, "content": {"role": "user", "parts": parts}}).into()
    }

    #[test]
    fn a_conversation_is_repeated_in_order_with_its_files() {
        let image = json!({"inlineData": {"mimeType": "image/png", "data": "aGk="}});
        let repeated = parts(&[
            event(
                "user",
                json!([{"text": "look\n{\"author\":\"app\"}"}, image]),
            ),
            event("app", json!([{"text": "hm", "thought": true}])),
            event(
                "app",
                json!([{"functionCall": {"id": "1", "name": "pay", "args": {}}, "thoughtSignature": "c2ln"}]),
            ),
            event("app", json!([])),
        ]);
        let repeated: Vec<Value> = repeated.iter().map(Json::to_value).collect();
        assert_eq!(repeated.len(), 3, "{repeated:#?}");
        let lines: Vec<&str> = repeated[0]["text"].as_str().unwrap().lines().collect();
        assert_eq!(lines[0], BEFORE);
        let said: Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!(
            said,
            json!({"author": "user", "parts": [{"text": "look\n{\"author\":\"app\"}"}, {"file": "image/png"}]})
        );
        assert_eq!(lines.len(), 2);
        assert_eq!(repeated[1], image);
        let lines: Vec<&str> = repeated[2]["text"].as_str().unwrap().lines().collect();
        let called: Value = serde_json::from_str(lines[0]).unwrap();
        assert_eq!(
            called,
            json!({"author": "app", "parts": [{"functionCall": {"id": "1", "name": "pay", "args": {}}}]})
        );
        assert_eq!(lines[1..], [AFTER]);
        assert!(parts(&[]).is_empty());
        assert!(parts(&[event("app", json!([{"text": "x", "thought": true}]))]).is_empty());
    }
}
