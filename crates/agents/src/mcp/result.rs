//! What the result of a call becomes: structured content is the output, pictures and other data are files.

use adk_bridge_protocol::base64;
use adk_bridge_protocol::calls::{File, Outcome};
use rmcp::model::ServerResult;
use serde_json::{Map, Value, json};

use crate::secrets;

/// The largest output without its files: the model reads all of it.
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// How much a failed tool may say: enough for a message of a database or a compiler.
const MAX_ERROR_BYTES: usize = 4 * 1024;
/// How many files one result may have.
const MAX_FILES: usize = 32;

/// The outcome of a call, or why its result cannot be used.
pub(super) fn outcome(result: ServerResult) -> Result<Outcome, String> {
    // Read leniently: content of an unknown kind does not hide the rest.
    let result = serde_json::to_value(result)
        .map_err(|_| "the tool ran, and its result cannot be read".to_owned())?;
    read(result)
}

pub(crate) fn read(result: Value) -> Result<Outcome, String> {
    let Value::Object(mut fields) = result else {
        return Err("the tool ran, and its result cannot be read".to_owned());
    };
    let structured = fields.remove("structuredContent");
    let is_error = fields.get("isError") == Some(&Value::Bool(true));
    let blocks = match fields.remove("content") {
        Some(Value::Array(blocks)) => blocks,
        None if structured.is_some() || is_error => Vec::new(),
        _ => return Err("the tool ran, and its result cannot be read".to_owned()),
    };
    let mut content = Content::default();
    for block in blocks {
        content.add(block);
    }
    if is_error {
        return Err(content.error(structured));
    }
    let value = structured.unwrap_or_else(|| content.value());
    let text = value.to_string();
    if text.len() > MAX_OUTPUT_BYTES {
        return Err(format!(
            "the tool ran, and its result of {} bytes is larger than {MAX_OUTPUT_BYTES}; ask for less at once",
            text.len()
        ));
    }
    Ok(Outcome::Output {
        value: value.into(),
        files: content.files,
    })
}

/// The content of a result, with data taken out of it as files.
#[derive(Default)]
struct Content {
    blocks: Vec<Value>,
    files: Vec<File>,
}

impl Content {
    fn add(&mut self, block: Value) {
        let Value::Object(mut block) = block else {
            return;
        };
        // For clients, not for models.
        block.remove("_meta");
        match block.get("type").and_then(Value::as_str) {
            Some("image" | "audio") => self.take_data(&mut block, "data"),
            Some("resource") => {
                if let Some(Value::Object(resource)) = block.get_mut("resource") {
                    resource.remove("_meta");
                    let mut resource = std::mem::take(resource);
                    self.take_data(&mut resource, "blob");
                    block.insert("resource".to_owned(), Value::Object(resource));
                }
            }
            _ => {}
        }
        self.blocks.push(Value::Object(block));
    }

    /// Makes a file of base64 in a field, and says in its place which file it is, counted from 1.
    fn take_data(&mut self, holder: &mut Map<String, Value>, field: &str) {
        let Some(Value::String(data)) = holder.remove(field) else {
            return;
        };
        let media_type = holder.get("mimeType").and_then(Value::as_str);
        let media_type = media_type.unwrap_or("application/octet-stream").to_owned();
        let problem = if self.files.len() == MAX_FILES {
            "left out: there are too many files"
        } else if !is_media_type(&media_type) || base64::decode(&data).is_err() {
            "left out: it cannot be read"
        } else {
            let data = base64::to_standard(&data);
            let url = format!("data:{media_type};base64,{data}");
            self.files.push(File { media_type, url });
            holder.insert("file".to_owned(), json!(self.files.len()));
            return;
        };
        holder.insert("file".to_owned(), json!(problem));
    }

    /// A single text is the output; anything else is a list of all content.
    fn value(&self) -> Value {
        match self.blocks.as_slice() {
            [block] if block["type"] == "text" && block["text"].is_string() => {
                block["text"].clone()
            }
            blocks => json!({"content": blocks}),
        }
    }

    /// What a tool says that has failed.
    fn error(&self, structured: Option<Value>) -> String {
        let texts = self
            .blocks
            .iter()
            .filter_map(|block| block["text"].as_str());
        let said: Vec<&str> = texts.collect();
        let said = match (said.is_empty(), structured) {
            (false, _) => said.join("\n"),
            (true, Some(structured)) => structured.to_string(),
            (true, None) => return "the tool failed, and does not say why".to_owned(),
        };
        // Secrets are hidden before the text is cut, so that none is cut in two.
        let said = secrets::hide_from_users(&said);
        let end = said.floor_char_boundary(MAX_ERROR_BYTES);
        said[..end].to_owned()
    }
}

/// `type/subtype` and nothing that could end a data URL's header.
fn is_media_type(text: &str) -> bool {
    let is_word = |word: &str| {
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !word.is_empty() && word.len() <= 127 && word.bytes().all(is_safe)
    };
    (text.split_once('/')).is_some_and(|(kind, subtype)| is_word(kind) && is_word(subtype))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png() -> Value {
        json!({"type": "image", "mimeType": "image/png", "data": "AAEC"})
    }

    fn output(result: Value) -> (Value, Vec<(String, String)>) {
        match read(result.clone()) {
            Ok(Outcome::Output { value, files }) => {
                let files = files.into_iter().map(|file| (file.media_type, file.url));
                (value.to_value(), files.collect())
            }
            other => panic!("{result}: {other:?}"),
        }
    }

    #[test]
    fn text_structure_and_files() {
        let text = |text: &str| json!({"type": "text", "text": text, "_meta": {"a": 1}});
        let file = (
            "image/png".to_owned(),
            "data:image/png;base64,AAEC".to_owned(),
        );
        let cases = [
            (json!({"content": [text("hello")]}), json!("hello"), 0),
            (
                json!({"content": [text("{\"a\":1}")], "structuredContent": {"a": 1}}),
                json!({"a": 1}),
                0,
            ),
            (json!({"structuredContent": null}), json!(null), 0),
            (json!({"content": []}), json!({"content": []}), 0),
            (
                json!({"content": [text("see"), png()]}),
                json!({"content": [
                    {"type": "text", "text": "see"},
                    {"type": "image", "mimeType": "image/png", "file": 1},
                ]}),
                1,
            ),
            (
                json!({"content": [png(), png()], "structuredContent": {"b": 2}}),
                json!({"b": 2}),
                2,
            ),
            (
                json!({"content": [{"type": "resource", "resource":
                    {"uri": "a:b", "mimeType": "image/png", "blob": "AAEC", "_meta": {}}}]}),
                json!({"content": [{"type": "resource", "resource":
                    {"uri": "a:b", "mimeType": "image/png", "file": 1}}]}),
                1,
            ),
            (
                json!({"content": [{"type": "resource_link", "uri": "a:b", "name": "c"}]}),
                json!({"content": [{"type": "resource_link", "uri": "a:b", "name": "c"}]}),
                0,
            ),
            (
                json!({"content": [{"type": "of tomorrow", "x": [1]}, 7]}),
                json!({"content": [{"type": "of tomorrow", "x": [1]}]}),
                0,
            ),
        ];
        for (result, value, files) in cases {
            assert_eq!(output(result), (value, vec![file.clone(); files]));
        }
    }

    #[test]
    fn data_that_cannot_be_read_is_left_out() {
        for (media_type, data) in [
            ("image/png", "not base64!"),
            ("image/png;base64,AAEC\" onload=", "AAEC"),
            ("image", "AAEC"),
            ("a/b/c", "AAEC"),
        ] {
            let block = json!({"type": "image", "mimeType": media_type, "data": data});
            let (value, files) = output(json!({"content": [block]}));
            assert!(files.is_empty(), "{media_type}");
            assert_eq!(value["content"][0]["file"], "left out: it cannot be read");
        }
        let (value, files) = output(json!({"content": vec![png(); MAX_FILES + 1]}));
        assert_eq!(files.len(), MAX_FILES);
        assert_eq!(
            value["content"][MAX_FILES]["file"],
            "left out: there are too many files"
        );
    }

    #[test]
    fn errors_say_what_the_tool_says() {
        let cases = [
            (
                json!({"isError": true, "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "way"}]}),
                "no\nway",
            ),
            (
                json!({"isError": true, "structuredContent": {"a": 1}}),
                "{\"a\":1}",
            ),
            (
                json!({"isError": true}),
                "the tool failed, and does not say why",
            ),
            (json!({}), "the tool ran, and its result cannot be read"),
            (
                json!({"content": "text"}),
                "the tool ran, and its result cannot be read",
            ),
            (json!([]), "the tool ran, and its result cannot be read"),
        ];
        for (result, expected) in cases {
            assert_eq!(read(result.clone()), Err(expected.to_owned()), "{result}");
        }
        let long = "x".repeat(MAX_OUTPUT_BYTES);
        let said = read(json!({"content": [{"type": "text", "text": long}]})).unwrap_err();
        assert!(said.contains("larger than"), "{said}");
    }
}
