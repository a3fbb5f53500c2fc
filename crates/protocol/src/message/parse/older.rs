//! The forms of messages before `parts`: `content` as text or entries, and `experimental_attachments`.

use std::collections::BTreeSet;

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use serde_json::value::RawValue;

use super::{Defect, Fields, Location, MessageError, each, not_understood};
use crate::json_text::{Json, fields_of, items_of, text_of};
use crate::message::{FilePart, Part, TextPart, ToolPart, ToolState};

/// The older form of a message's parts.
pub(super) struct Content<'v> {
    raw: &'v RawValue,
    form: Form<'v>,
}

enum Form<'v> {
    Text(String),
    Entries(Vec<&'v RawValue>),
}

impl<'v> Content<'v> {
    pub(super) fn new(raw: &'v RawValue, at: &Location<'_>) -> Result<Self, MessageError> {
        let text = text_of(raw).map(|text| Form::Text(text.into_owned()));
        match text.or_else(|| items_of(raw).map(Form::Entries)) {
            Some(form) => Ok(Self { raw, form }),
            None => Err(at.wrong_type("a string or an array", raw)),
        }
    }

    pub(super) fn raw(&self) -> &'v RawValue {
        self.raw
    }

    /// The number of entries.
    pub(super) fn entries(&self) -> usize {
        match &self.form {
            Form::Text(_) => 0,
            Form::Entries(entries) => entries.len(),
        }
    }

    pub(super) fn read_into(
        self,
        parts: &mut Vec<Part>,
        at: &Location<'_>,
    ) -> Result<(), MessageError> {
        match self.form {
            Form::Text(text) if text.is_empty() => Ok(()),
            Form::Text(text) => {
                parts.push(Part::Text(TextPart {
                    text,
                    ..TextPart::default()
                }));
                Ok(())
            }
            Form::Entries(entries) => each(entries, at, |entry, at| {
                parts.push(entry_part(entry, at)?);
                Ok(())
            }),
        }
    }

    /// Whether the parts already say the same.
    pub(super) fn repeats(&self, parts: &[Part]) -> bool {
        match &self.form {
            Form::Text(text) => text.is_empty() || *text == texts(parts).collect::<String>(),
            Form::Entries(entries) => entries.is_empty(),
        }
    }
}

/// Reads attachments. Their texts count only if the message does not have them already, since front ends put typed text
/// in both places.
pub(super) fn read_attachments(
    entries: Vec<&RawValue>,
    parts: &mut Vec<Part>,
    at: &Location<'_>,
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
fn entry_part(value: &RawValue, at: &Location<'_>) -> Result<Part, MessageError> {
    let mut fields = Fields::new(value, at)?;
    // The SDK's own attachments have no type.
    let attachment = !fields.has("type") && fields.has("url");
    let kind = if attachment {
        "file".to_owned()
    } else {
        fields.some_text("type")?
    };
    match kind.as_str() {
        "text" | "reasoning" => Part::parse(value, at),
        "image" | "file" | "tool-call" | "tool-result" => fields.into_entry(kind),
        _ => Err(not_understood(
            at,
            "entry type",
            &kind,
            "text, image, file, tool-call or tool-result",
        )),
    }
}

impl Fields<'_, '_> {
    /// Converts an entry of the older forms into the form of a part, and reads that.
    pub(super) fn into_entry(mut self, kind: String) -> Result<Part, MessageError> {
        match kind.as_str() {
            "tool-call" => {
                let input = self.any_json("args")?;
                let mut call = self.into_call_in(ToolState::InputAvailable)?;
                call.input = call.input.or(input);
                Ok(Part::Tool(Box::new(call)))
            }
            "tool-result" => {
                let failed = self.flag("isError")?.unwrap_or(false);
                let result = self.any_json("result")?;
                let output = self.any_json("output")?;
                let differ = result.is_some() && output.is_some() && result != output;
                let Some(result) = output.or(result).filter(|_| !differ) else {
                    return Err(Location::Field(self.at, "output")
                        .wrong(Defect::Missing("one of `output` and `result`")));
                };
                // No known client gives an entry a state; one that says something else than success must be seen.
                let state = self.text("state")?.map(ToolState::from);
                let state = state.filter(|state| !matches!(state, ToolState::Other(_)));
                let call = match Outcome::new(result, failed) {
                    Outcome::Output(output) => ToolPart {
                        output: Some(output),
                        ..self.into_call_in(state.unwrap_or(ToolState::OutputAvailable))?
                    },
                    Outcome::Error(text) => ToolPart {
                        error_text: Some(text),
                        ..self.into_call_in(ToolState::OutputError)?
                    },
                };
                Ok(Part::Tool(Box::new(call)))
            }
            _ => self.into_file(),
        }
    }

    fn into_call_in(mut self, state: ToolState) -> Result<ToolPart, MessageError> {
        let name = self.text("toolName")?.unwrap_or_default();
        self.take("state");
        self.into_call(name, false, state)
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
                    return Err(Location::Field(at, "mediaType").wrong(MEDIA_TYPE));
                };
                let base64 = standard_base64(&data, &Location::Field(at, "data"))?;
                (format!("data:{media_type};base64,{base64}"), None)
            }
            (Some(url), _) | (None, Some(url)) => standard_url(url, at)?,
            (None, None) => {
                let wrong = Defect::Missing("base64, a data URL or a URL");
                return Err(Location::Field(at, "data").wrong(wrong));
            }
        };
        let Some(media_type) = media_type.or(named) else {
            return Err(Location::Field(at, "mediaType").wrong(MEDIA_TYPE));
        };
        Ok(Part::File(FilePart {
            media_type,
            url,
            filename,
            provider_metadata: self.object("providerMetadata")?,
            extra: self.extra()?,
        }))
    }
}

/// The content of a `tool-result` entry.
enum Outcome {
    Output(Json),
    Error(String),
}

impl Outcome {
    /// Model messages of the SDK wrap a result as `{type, value}`; any other value is the result itself.
    fn new(mut result: Json, mut failed: bool) -> Self {
        if let (2, Some(kind), Some(value)) = (
            fields_of(result.raw()).map_or(0, |fields| fields.len()),
            result.get("type"),
            result.get("value"),
        ) {
            let kind = kind.as_str();
            let error = matches!(kind.as_deref(), Some("error-text" | "error-json"));
            if error || matches!(kind.as_deref(), Some("text" | "json" | "content")) {
                failed |= error;
                result = value;
            }
        }
        match failed {
            true => Self::Error(match result.as_str() {
                Some(text) => text.into_owned(),
                None => result.to_string(),
            }),
            false => Self::Output(result),
        }
    }
}

const MEDIA_TYPE: Defect = Defect::Missing("a media type such as `image/png`");

/// Returns the URL, in standard base64 if it is a data URL, and its media type.
fn standard_url(url: String, at: &Location<'_>) -> Result<(String, Option<String>), MessageError> {
    let Some(content) = after_scheme(&url, "data:") else {
        return Ok((url, None));
    };
    let at = Location::Field(at, "url");
    let (head, body) = content
        .split_once(',')
        .ok_or_else(|| at.wrong(Defect::Base64))?;
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

/// Accepts both alphabets, with or without padding, and line breaks.
fn standard_base64(text: &str, at: &Location<'_>) -> Result<String, MessageError> {
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
    let bytes = LENIENT
        .decode(plain)
        .map_err(|_| at.wrong(Defect::Base64))?;
    Ok(STANDARD.encode(bytes))
}
