//! The forms that messages had before `parts`: `content` as text or entries, and `experimental_attachments`.

use std::collections::BTreeSet;

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use serde_json::{Map, Value};

use super::{At, Fields, MessageError, Wrong, each, not_understood};
use crate::message::{FilePart, Part, TextPart};

/// The older form of a message's parts.
pub(super) enum Content {
    Text(String),
    Entries(Vec<Value>),
}

impl Content {
    pub(super) fn new(value: Value, at: &At<'_>) -> Result<Self, MessageError> {
        match value {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Array(entries) => Ok(Self::Entries(entries)),
            other => Err(at.wrong_type("a string or an array", &other)),
        }
    }

    pub(super) fn read_into(self, parts: &mut Vec<Part>, at: &At<'_>) -> Result<(), MessageError> {
        match self {
            Self::Text(text) if text.is_empty() => Ok(()),
            Self::Text(text) => {
                parts.push(Part::Text(TextPart {
                    text,
                    ..TextPart::default()
                }));
                Ok(())
            }
            Self::Entries(entries) => each(entries, at, |entry, at| {
                parts.push(entry_part(entry, at)?);
                Ok(())
            }),
        }
    }

    /// Tells whether the parts say the same already.
    pub(super) fn repeats(&self, parts: &[Part]) -> bool {
        match self {
            Self::Text(text) => text.is_empty() || *text == texts(parts).collect::<String>(),
            Self::Entries(entries) => entries.is_empty(),
        }
    }
}

impl From<Content> for Value {
    fn from(content: Content) -> Self {
        match content {
            Content::Text(text) => Self::String(text),
            Content::Entries(entries) => Self::Array(entries),
        }
    }
}

/// Reads attachments; their texts count only where the message does not have them already, as front ends put what was
/// typed into both places.
pub(super) fn read_attachments(
    entries: Vec<Value>,
    parts: &mut Vec<Part>,
    at: &At<'_>,
) -> Result<(), MessageError> {
    let typed: BTreeSet<String> = texts(parts).map(str::to_owned).collect();
    each(entries, at, |entry, at| {
        match entry_part(entry, at)? {
            Part::Text(text) if typed.contains(&text.text) => {}
            part => parts.push(part),
        }
        Ok(())
    })
}

fn texts(parts: &[Part]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.text.as_str()),
        _ => None,
    })
}

/// Reads an entry of `content` or of `experimental_attachments`.
fn entry_part(value: Value, at: &At<'_>) -> Result<Part, MessageError> {
    let mut fields = Fields::new(value, at)?;
    // The SDK's own attachments have no type.
    let attachment = !fields.map.contains_key("type") && fields.map.contains_key("url");
    let kind = if attachment {
        "file".to_owned()
    } else {
        fields.some_text("type")?
    };
    match kind.as_str() {
        "text" | "reasoning" => {
            fields.map.insert("type".to_owned(), Value::String(kind));
            Part::parse(Value::Object(fields.map), at)
        }
        "image" | "file" | "tool-call" | "tool-result" => fields.into_entry(kind),
        _ => Err(not_understood(
            at,
            "entry type",
            &kind,
            "text, image, file, tool-call or tool-result",
        )),
    }
}

impl Fields<'_> {
    /// Brings an entry of the older forms into the form of a part, and reads that.
    pub(super) fn into_entry(mut self, kind: String) -> Result<Part, MessageError> {
        match kind.as_str() {
            "tool-call" => {
                let input = self.map.shift_remove("args");
                self.into_call("input-available", |map| {
                    if let Some(input) = input {
                        map.entry("input").or_insert(input);
                    }
                })
            }
            "tool-result" => {
                let failed = self.flag("isError")?.unwrap_or(false);
                let result = self.map.shift_remove("result");
                let Some(result) = self.map.shift_remove("output").or(result) else {
                    return Err(
                        At::Field(self.at, "output").wrong(Wrong::Missing("`output` or `result`"))
                    );
                };
                match Outcome::new(result, failed) {
                    Outcome::Output(output) => self.into_call("output-available", |map| {
                        map.insert("output".to_owned(), output);
                    }),
                    Outcome::Error(text) => self.into_call("output-error", |map| {
                        map.insert("errorText".to_owned(), Value::String(text));
                    }),
                }
            }
            _ => self.into_file(),
        }
    }

    fn into_call(
        mut self,
        state: &str,
        fill: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<Part, MessageError> {
        let name = self.text("toolName")?.unwrap_or_default();
        self.map
            .insert("state".to_owned(), Value::String(state.to_owned()));
        fill(&mut self.map);
        Ok(Part::Tool(Box::new(self.into_tool(name, false)?)))
    }

    fn into_file(mut self) -> Result<Part, MessageError> {
        let at = self.at;
        let media_type = self.any_text(&["mediaType", "media_type", "mimeType", "contentType"])?;
        let filename = self.any_text(&["filename", "name"])?;
        let url = self.text("url")?;
        let data = self.any_text(&["image", "data"])?;
        let (url, named) = match (data, url) {
            (Some(data), _) if !is_url(&data) => {
                let Some(media_type) = &media_type else {
                    return Err(At::Field(at, "mediaType").wrong(MEDIA_TYPE));
                };
                let base64 = standard_base64(&data, &At::Field(at, "data"))?;
                (format!("data:{media_type};base64,{base64}"), None)
            }
            (Some(url), _) | (None, Some(url)) => standard_url(url, at)?,
            (None, None) => {
                let wrong = Wrong::Missing("base64, a data URL or a URL");
                return Err(At::Field(at, "data").wrong(wrong));
            }
        };
        let Some(media_type) = media_type.or(named) else {
            return Err(At::Field(at, "mediaType").wrong(MEDIA_TYPE));
        };
        Ok(Part::File(FilePart {
            media_type,
            url,
            filename,
            provider_metadata: self.object("providerMetadata")?,
            extra: self.map,
        }))
    }
}

/// What a `tool-result` entry says.
enum Outcome {
    Output(Value),
    Error(String),
}

impl Outcome {
    /// Model messages of the SDK wrap a result as `{type, value}`; everything else is the result itself.
    fn new(mut result: Value, mut failed: bool) -> Self {
        if let Some(wrapped) = result
            .as_object_mut()
            .filter(|map| map.len() == 2 && map.contains_key("value"))
        {
            let kind = wrapped.get("type").and_then(Value::as_str);
            let error = matches!(kind, Some("error-text" | "error-json"));
            if error || matches!(kind, Some("text" | "json" | "content")) {
                failed |= error;
                result = wrapped.shift_remove("value").unwrap_or(Value::Null);
            }
        }
        match result {
            Value::String(text) if failed => Self::Error(text),
            other if failed => Self::Error(other.to_string()),
            output => Self::Output(output),
        }
    }
}

const MEDIA_TYPE: Wrong = Wrong::Missing("a media type such as `image/png`");

/// Returns the URL, in standard base64 if it is a data URL, and the media type that it names.
fn standard_url(url: String, at: &At<'_>) -> Result<(String, Option<String>), MessageError> {
    let Some(content) = after_scheme(&url, "data:") else {
        return Ok((url, None));
    };
    let at = At::Field(at, "url");
    let (head, body) = content
        .split_once(',')
        .ok_or_else(|| at.wrong(Wrong::Base64))?;
    let named = head.split(';').next().unwrap_or_default();
    let named = (!named.is_empty()).then(|| named.to_owned());
    match head.strip_suffix(";base64") {
        Some(head) => {
            let base64 = standard_base64(body, &at)?;
            Ok((format!("data:{head};base64,{base64}"), named))
        }
        None => Ok((url, named)),
    }
}

fn is_url(text: &str) -> bool {
    ["data:", "http:", "https:"]
        .iter()
        .any(|scheme| after_scheme(text, scheme).is_some())
}

fn after_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// Accepts both alphabets, with padding or without, and line breaks.
fn standard_base64(text: &str, at: &At<'_>) -> Result<String, MessageError> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &ALPHABET,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::Indifferent)
            .with_decode_allow_trailing_bits(true),
    );
    let plain: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        })
        .collect();
    let bytes = LENIENT.decode(plain).map_err(|_| at.wrong(Wrong::Base64))?;
    Ok(STANDARD.encode(bytes))
}
