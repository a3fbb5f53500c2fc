//! A request as the script sees it: the last question, what has followed it, and the tools that may be called.

use adk_bridge_protocol::event::{Blob, Content, Part};
use adk_bridge_protocol::json_text::Json;
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::ApiError;
use super::fields::decode;

/// A request, read from a checked body.
pub(super) struct Request<'v> {
    pub(super) contents: Vec<Content<'v>>,
    pub(super) tools: Tools,
    pub(super) max_output_tokens: Option<u64>,
    pub(super) wants_images: bool,
    pub(super) wants_thoughts: bool,
    pub(super) streams_args: bool,
    /// Whether it is from a live conversation.
    pub(super) live: bool,
}

/// The tools that the model may use.
#[derive(Default)]
pub(super) struct Tools {
    functions: Vec<Function>,
    pub(super) google_search: bool,
    pub(super) code_execution: bool,
}

pub(super) struct Function {
    name: String,
    properties: Vec<String>,
}

/// The user's last message and everything since.
pub(super) struct Conversation {
    pub(super) prompt: String,
    pub(super) attachments: Vec<Attachment>,
    /// The results for each model turn that called tools.
    pub(super) rounds: Vec<Vec<ToolResult>>,
}

/// Bytes in a message or a result.
pub(super) struct Attachment {
    pub(super) mime_type: String,
    /// A description: its size and, for pictures, width and height.
    pub(super) what: String,
}

pub(super) struct ToolResult {
    pub(super) name: String,
    pub(super) args: Json,
    pub(super) response: Json,
    pub(super) attachments: Vec<Attachment>,
}

impl<'v> Request<'v> {
    /// Reads a body whose fields have been checked; `body` is all of it except the contents.
    pub(super) fn read(contents: &'v RawValue, body: &Value) -> Result<Self, ApiError> {
        let config = &body["generationConfig"];
        let modalities = config["responseModalities"].as_array();
        Ok(Self {
            contents: read_contents(contents)?,
            tools: Tools::read(body),
            max_output_tokens: config["maxOutputTokens"]
                .as_u64()
                .filter(|tokens| *tokens > 0),
            wants_images: modalities.is_some_and(|modalities| {
                modalities.iter().any(|modality| {
                    modality
                        .as_str()
                        .is_some_and(|it| it.eq_ignore_ascii_case("image"))
                })
            }),
            wants_thoughts: config["thinkingConfig"]["includeThoughts"] == true,
            streams_args: body["toolConfig"]["functionCallingConfig"]["streamFunctionCallArguments"]
                == true,
            live: false,
        })
    }

    pub(super) fn conversation(&self) -> Conversation {
        let asked = self
            .contents
            .iter()
            .rposition(|content| !is_model(content) && !text_of(content).is_empty());
        let asked = asked.unwrap_or_default();
        let prompt = self.contents.get(asked);
        Conversation {
            prompt: prompt.map(text_of).unwrap_or_default(),
            attachments: prompt
                .map(|content| attachments(&content.parts))
                .unwrap_or_default(),
            rounds: rounds(self.contents.get(asked + 1..).unwrap_or_default()),
        }
    }
}

fn read_contents(contents: &RawValue) -> Result<Vec<Content<'_>>, ApiError> {
    serde_json::from_str::<Option<Vec<Content<'_>>>>(contents.get())
        .map(Option::unwrap_or_default)
        .map_err(|error| ApiError::invalid(format!("Invalid value at 'contents': {error}")))
}

pub(super) fn is_model(content: &Content<'_>) -> bool {
    content.role.as_deref() == Some("model")
}

impl Tools {
    fn read(body: &Value) -> Self {
        let config = &body["toolConfig"]["functionCallingConfig"];
        let allowed = config["allowedFunctionNames"].as_array();
        let may_call = |name: &str| {
            config["mode"] != "NONE"
                && allowed.is_none_or(|names| {
                    names.is_empty() || names.iter().any(|allowed| allowed == name)
                })
        };
        let mut tools = Self::default();
        for tool in body["tools"].as_array().into_iter().flatten() {
            tools.google_search |=
                tool["googleSearch"].is_object() || tool["googleSearchRetrieval"].is_object();
            tools.code_execution |= tool["codeExecution"].is_object();
            for declared in tool["functionDeclarations"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let Some(name) = declared["name"].as_str().filter(|name| may_call(name)) else {
                    continue;
                };
                let schemas = [&declared["parametersJsonSchema"], &declared["parameters"]];
                let properties = schemas
                    .iter()
                    .find_map(|schema| schema["properties"].as_object());
                tools.functions.push(Function {
                    name: name.to_owned(),
                    properties: properties
                        .map(|it| it.keys().cloned().collect())
                        .unwrap_or_default(),
                });
            }
        }
        tools
    }

    pub(super) fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }
}

impl Function {
    pub(super) fn takes(&self, property: &str) -> bool {
        self.properties.iter().any(|name| name == property)
    }
}

fn text_of(content: &Content<'_>) -> String {
    let texts = content.parts.iter().filter_map(|part| part.text.as_deref());
    let lines: Vec<_> = texts
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect();
    lines.join("\n")
}

fn rounds(contents: &[Content<'_>]) -> Vec<Vec<ToolResult>> {
    let mut rounds = Vec::new();
    for pair in contents.windows(2) {
        let calls: Vec<_> = pair[0]
            .parts
            .iter()
            .filter_map(|part| part.function_call.as_deref())
            .collect();
        if !is_model(&pair[0]) || calls.is_empty() {
            continue;
        }
        // Other parts next to the responses belong to them; they are counted with the first response.
        let mut others = attachments(&pair[1].parts);
        let responses = pair[1]
            .parts
            .iter()
            .filter_map(|part| part.function_response.as_deref());
        let results = responses.enumerate().map(|(index, response)| {
            let call = calls
                .iter()
                .find(|call| response.id.is_some() && call.id == response.id)
                .or_else(|| calls.get(index));
            let mut files = attachments(response.parts.as_deref().unwrap_or_default());
            files.append(&mut others);
            ToolResult {
                name: response.name.as_deref().unwrap_or_default().to_owned(),
                args: call.and_then(|call| call.args.clone()).unwrap_or_default(),
                response: response.response.clone().unwrap_or_default(),
                attachments: files,
            }
        });
        rounds.push(results.collect());
    }
    rounds
}

fn attachments(parts: &[Part<'_>]) -> Vec<Attachment> {
    parts
        .iter()
        .filter_map(|part| match (&part.inline_data, &part.file_data) {
            (Some(blob), _) => Some(Attachment::inline(blob)),
            (None, Some(file)) => Some(Attachment {
                mime_type: file.mime_type.as_deref().unwrap_or("file").to_owned(),
                what: format!("at {}", file.file_uri.as_deref().unwrap_or_default()),
            }),
            _ => None,
        })
        .collect()
}

impl Attachment {
    fn inline(blob: &Blob<'_>) -> Self {
        Self::new(
            blob.mime_type
                .as_deref()
                .unwrap_or("application/octet-stream"),
            &decode(blob.data.as_deref().unwrap_or_default()).unwrap_or_default(),
        )
    }

    /// Reads `data:TYPE;base64,DATA`.
    pub(super) fn of_data_url(url: &str) -> Option<Self> {
        let (mime_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
        Some(Self::new(mime_type, &decode(data)?))
    }

    fn new(mime_type: &str, bytes: &[u8]) -> Self {
        let size = format!("{} bytes", bytes.len());
        let what = match pixels(bytes) {
            Some((width, height)) => format!("{size}, {width}×{height} pixels"),
            None => size,
        };
        Self {
            mime_type: mime_type.to_owned(),
            what,
        }
    }

    pub(super) fn is_image(&self) -> bool {
        self.mime_type.starts_with("image/")
    }
}

/// Width and height of a PNG, which are at a fixed position.
fn pixels(bytes: &[u8]) -> Option<(u32, u32)> {
    let header = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n")?.get(8..16)?;
    let (width, height) = header.split_at(4);
    Some((
        u32::from_be_bytes(width.try_into().ok()?),
        u32::from_be_bytes(height.try_into().ok()?),
    ))
}
