//! The body of a chat completion: contents as messages.
//!
//! ```text
//!   user   { text, inlineData }              user       text, or a list with image_url, input_audio, file
//!   model  { thought, text, functionCall }   assistant  content, tool_calls
//!   user   { functionResponse, … }           tool, tool one for each call, directly after them
//!                                            user       the files of the results: a tool message has only text
//! ```
//!
//! What servers are strict about:
//! - every call needs exactly one result, and every result a call;
//! - ids of calls: some take nine letters and digits and nothing else, so calls are numbered through the conversation;
//! - many templates of local models want users and assistants to alternate: neighbours become one message;
//! - a schema of arguments has `properties`, even if it is empty;
//! - thoughts: those of the steps since the last question belong to its calls, and go back under the name that the server
//!   has for them. Older ones are left out, which all servers allow and some require.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use adk_bridge_protocol::base64;
use adk_bridge_protocol::event::{Blob, Content, FunctionResponse, Part};
use adk_bridge_protocol::history::UNANSWERED;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::{Habits, Settings};
use crate::agent::ConversationRequest;
use crate::error::AgentError;
use crate::tool::ToolSpec;

/// Room for the texts of an ordinary request.
const TEXT_BYTES: usize = 1024;

/// The wish for the usage. It is the last field, so that it can be cut off again.
const WISH: &[u8] = br#","stream_options":{"include_usage":true}}"#;

/// A request, written once for all tries.
#[derive(Debug)]
pub(super) struct Body(Bytes);

impl Body {
    pub(super) fn new(
        request: &ConversationRequest<'_>,
        settings: &Settings,
        habits: &Habits,
    ) -> Result<Self, AgentError> {
        let says_reasoning = habits.says_reasoning.load(Ordering::Relaxed);
        let body = Fields {
            model: &settings.model,
            messages: messages(
                &request.contents,
                settings.instruction.as_deref(),
                says_reasoning,
            ),
            tools: request.tools.iter().map(Tool::new).collect(),
            store: settings.store,
            stream: true,
        };
        // A buffer that grows would take up to twice the bytes of large files.
        let mut written = Vec::with_capacity(file_bytes(&request.contents) + TEXT_BYTES);
        serde_json::to_writer(&mut written, &body).map_err(|error| {
            AgentError::broken(
                "the conversation cannot be sent to the model",
                error.to_string(),
            )
        })?;
        written.pop();
        written.extend_from_slice(WISH);
        Ok(Self(written.into()))
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// The same request without the wish for the usage.
    pub(super) fn without_usage(&self) -> Bytes {
        let rest = self.0.strip_suffix(WISH).unwrap_or(&self.0);
        [rest, b"}"].concat().into()
    }
}

/// How many calls a conversation has. The next one gets the next number.
pub(super) fn count_calls(contents: &[Content<'_>]) -> usize {
    let parts = contents.iter().flat_map(|content| content.parts.iter());
    parts.filter(|part| part.function_call.is_some()).count()
}

/// The id of the nth call of a conversation, counted from one.
pub(super) fn call_id(number: usize) -> String {
    format!("call{number:05}")
}

#[derive(Serialize)]
struct Fields<'b> {
    model: &'b str,
    messages: Vec<Message<'b>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'b>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<bool>,
    stream: bool,
}

#[derive(Serialize)]
struct Tool<'b> {
    r#type: &'static str,
    function: Function<'b>,
}

#[derive(Serialize)]
struct Function<'b> {
    name: &'b str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'b str,
    parameters: Cow<'b, Value>,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message<'b> {
    System {
        content: &'b str,
    },
    User {
        #[serde(serialize_with = "said")]
        content: Vec<Piece<'b>>,
    },
    Assistant(Assistant<'b>),
    Tool(ToolResult<'b>),
}

#[derive(Serialize)]
struct ToolResult<'b> {
    tool_call_id: String,
    content: Cow<'b, str>,
}

#[derive(Serialize, Default)]
struct Assistant<'b> {
    content: Option<Cow<'b, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<Cow<'b, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Cow<'b, str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'b>>,
}

#[derive(Serialize)]
struct Call<'b> {
    id: String,
    r#type: &'static str,
    function: Called<'b>,
}

#[derive(Serialize)]
struct Called<'b> {
    name: &'b str,
    arguments: &'b str,
}

/// A piece of what a user says.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece<'b> {
    Text { text: Cow<'b, str> },
    ImageUrl { image_url: ImageUrl<'b> },
    InputAudio { input_audio: InputAudio<'b> },
    File { file: File<'b> },
}

#[derive(Serialize)]
struct ImageUrl<'b> {
    url: Address<'b>,
}

#[derive(Serialize)]
struct InputAudio<'b> {
    data: Cow<'b, str>,
    format: &'static str,
}

#[derive(Serialize)]
struct File<'b> {
    filename: Cow<'b, str>,
    file_data: Address<'b>,
}

/// Where a file is; a data URL is written without being built first.
enum Address<'b> {
    Elsewhere(&'b str),
    Inline {
        media_type: &'b str,
        data: Cow<'b, str>,
    },
}

impl Serialize for Address<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Elsewhere(url) => to.serialize_str(url),
            Self::Inline { media_type, data } => {
                to.collect_str(&format_args!("data:{media_type};base64,{data}"))
            }
        }
    }
}

/// Messages while they are put together.
struct Transcript<'b> {
    messages: Vec<Message<'b>>,
    /// How many calls there were.
    calls: usize,
    /// Those of the last message that have no result yet: the id and name in the contents, and the id that is sent.
    open: Vec<(&'b str, &'b str, String)>,
    /// The files of the results of that message.
    files: Vec<Piece<'b>>,
}

fn messages<'b>(
    contents: &'b [Content<'_>],
    instruction: Option<&'b str>,
    says_reasoning: bool,
) -> Vec<Message<'b>> {
    let mut transcript = Transcript {
        messages: Vec::with_capacity(contents.len() + 1),
        calls: 0,
        open: Vec::new(),
        files: Vec::new(),
    };
    if let Some(content) = instruction {
        transcript.messages.push(Message::System { content });
    }
    let is_question = |content: &Content<'_>| {
        let mut parts = content.parts.iter();
        !is_of_model(content) && parts.any(|part| part.function_response.is_none())
    };
    let question = contents.iter().rposition(is_question).unwrap_or(0);
    for (index, content) in contents.iter().enumerate() {
        match is_of_model(content) {
            true => {
                let thoughts = (index > question).then_some(says_reasoning);
                transcript.model(&content.parts, thoughts);
            }
            false => transcript.user(&content.parts),
        }
    }
    transcript.end_step();
    transcript.messages
}

fn is_of_model(content: &Content<'_>) -> bool {
    content.role.as_deref() == Some("model")
}

impl<'b> Transcript<'b> {
    /// Adds what the model said; `thoughts` says whether they are called `reasoning`, if they belong to it.
    fn model(&mut self, parts: &'b [Part<'_>], thoughts: Option<bool>) {
        self.end_step();
        let mut said = Assistant::default();
        let mut thought = None;
        let mut files = Vec::new();
        for part in parts {
            if let Some(call) = part.function_call.as_deref() {
                let name = call.name.as_deref().unwrap_or_default();
                self.calls += 1;
                let id = call_id(self.calls);
                let known = call.id.as_deref().unwrap_or_default();
                self.open.push((known, name, id.clone()));
                said.tool_calls.push(Call {
                    id,
                    r#type: "function",
                    function: Called {
                        name,
                        arguments: call.args.as_ref().map_or("{}", |args| args.text()),
                    },
                });
            } else if let Some(text) = part.text.as_deref() {
                match part.thought {
                    Some(true) => join(&mut thought, text, ""),
                    _ => join(&mut said.content, text, ""),
                }
            } else if let Some(code) = part.executable_code.as_ref() {
                join(&mut said.content, code.text(), "\n\n");
            } else if let Some(result) = part.code_execution_result.as_ref() {
                join(&mut said.content, result.text(), "\n\n");
            } else {
                files.extend(file_piece(part));
            }
        }
        if !said.tool_calls.is_empty() {
            match thoughts {
                Some(true) => said.reasoning = thought,
                Some(false) => said.reasoning_content = thought,
                None => {}
            }
        }
        if said.content.is_some() || !said.tool_calls.is_empty() {
            self.push_assistant(said);
        }
        if !files.is_empty() {
            self.add_files(Cow::Borrowed("The files of your answer:"), files);
        }
    }

    fn push_assistant(&mut self, said: Assistant<'b>) {
        if let Some(Message::Assistant(last)) = self.messages.last_mut()
            && last.tool_calls.is_empty()
        {
            if let Some(text) = said.content {
                join(&mut last.content, text, "\n\n");
            }
            last.reasoning = said.reasoning;
            last.reasoning_content = said.reasoning_content;
            last.tool_calls = said.tool_calls;
        } else {
            self.messages.push(Message::Assistant(said));
        }
    }

    fn user(&mut self, parts: &'b [Part<'_>]) {
        let mut pieces = Vec::new();
        for part in parts {
            if let Some(response) = part.function_response.as_deref() {
                self.result(response);
            } else if let Some(text) = part.text.as_deref() {
                let text = Cow::Borrowed(text);
                pieces.push(Piece::Text { text });
            } else {
                pieces.extend(file_piece(part));
            }
        }
        if !pieces.is_empty() {
            self.end_step();
            self.push_user(pieces);
        }
    }

    fn push_user(&mut self, pieces: Vec<Piece<'b>>) {
        match self.messages.last_mut() {
            Some(Message::User { content }) => content.extend(pieces),
            _ => self.messages.push(Message::User { content: pieces }),
        }
    }

    /// Adds the result of a call. One without a call becomes text, since no server would take it.
    fn result(&mut self, response: &'b FunctionResponse<'_>) {
        let name = response.name.as_deref().unwrap_or_default();
        let content = response.response.as_ref().map_or("{}", |json| json.text());
        let id = response.id.as_deref().unwrap_or_default();
        let mut open = self.open.iter();
        let place = open
            .position(|(known, ..)| !id.is_empty() && *known == id)
            .or_else(|| self.open.iter().position(|(_, called, _)| *called == name));
        match place {
            Some(place) => {
                let (.., tool_call_id) = self.open.remove(place);
                self.messages.push(Message::Tool(ToolResult {
                    tool_call_id,
                    content: Cow::Borrowed(content),
                }));
            }
            None => self.files.push(Piece::Text {
                text: Cow::Owned(format!("The result of {name}: {content}")),
            }),
        }
        let parts = response.parts.iter().flatten();
        let files: Vec<Piece<'b>> = parts.filter_map(file_piece).collect();
        if !files.is_empty() {
            let words = format!("The files of the result of {name}:");
            self.add_files(Cow::Owned(words), files);
        }
    }

    fn add_files(&mut self, words: Cow<'b, str>, files: Vec<Piece<'b>>) {
        self.files.push(Piece::Text { text: words });
        self.files.extend(files);
    }

    /// Gives the calls of the last message all that they need before another one may follow.
    fn end_step(&mut self) {
        for (.., tool_call_id) in std::mem::take(&mut self.open) {
            let content = json!({"error": UNANSWERED}).to_string();
            self.messages.push(Message::Tool(ToolResult {
                tool_call_id,
                content: Cow::Owned(content),
            }));
        }
        let files = std::mem::take(&mut self.files);
        if !files.is_empty() {
            self.push_user(files);
        }
    }
}

fn join<'b>(text: &mut Option<Cow<'b, str>>, more: impl Into<Cow<'b, str>>, between: &str) {
    let more = more.into();
    match text {
        Some(text) => {
            let text = text.to_mut();
            text.push_str(between);
            text.push_str(&more);
        }
        None if more.is_empty() => {}
        None => *text = Some(more),
    }
}

/// What a user says: as one text if it is only text, since not every model takes lists.
fn said<S: Serializer>(pieces: &[Piece<'_>], to: S) -> Result<S::Ok, S::Error> {
    let mut texts = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match piece {
            Piece::Text { text } => texts.push(text.as_ref()),
            _ => return pieces.serialize(to),
        }
    }
    match texts.as_slice() {
        [text] => to.serialize_str(text),
        texts => to.serialize_str(&texts.join("\n\n")),
    }
}

/// A file in the form that fits it; in place of one that no model reads stands a text that says so.
fn file_piece<'b>(part: &'b Part<'_>) -> Option<Piece<'b>> {
    if let Some(blob) = part.inline_data.as_deref() {
        return Some(inline_piece(blob));
    }
    let file = part.file_data.as_deref()?;
    let url = file.file_uri.as_deref()?;
    let media_type = file.mime_type.as_deref().unwrap_or_default();
    let is_on_the_web = url.starts_with("https://") || url.starts_with("http://");
    Some(match is_image(media_type) && is_on_the_web {
        true => Piece::ImageUrl {
            image_url: ImageUrl {
                url: Address::Elsewhere(url),
            },
        },
        false => unreadable(media_type),
    })
}

fn inline_piece<'b>(blob: &'b Blob<'_>) -> Piece<'b> {
    let media_type = blob.mime_type.as_deref().unwrap_or_default();
    let data = blob.data.as_deref().unwrap_or_default();
    let inline = || Address::Inline {
        media_type,
        data: base64::to_standard(data),
    };
    if is_image(media_type) {
        return Piece::ImageUrl {
            image_url: ImageUrl { url: inline() },
        };
    }
    if let Some(format) = audio_format(media_type) {
        return Piece::InputAudio {
            input_audio: InputAudio {
                data: base64::to_standard(data),
                format,
            },
        };
    }
    if essence(media_type).eq_ignore_ascii_case("application/pdf") {
        let name = blob.display_name.as_deref();
        return Piece::File {
            file: File {
                filename: Cow::Borrowed(name.unwrap_or("document.pdf")),
                file_data: inline(),
            },
        };
    }
    let text = is_text(media_type)
        .then(|| base64::decode(data).ok())
        .flatten()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    match text {
        Some(text) => Piece::Text {
            text: Cow::Owned(text),
        },
        None => unreadable(media_type),
    }
}

fn unreadable<'b>(media_type: &str) -> Piece<'b> {
    let kind = match media_type.is_empty() {
        true => "of an unknown type".to_owned(),
        false => format!("of type {media_type}"),
    };
    Piece::Text {
        text: Cow::Owned(format!(
            "[Here is a file {kind}, which you cannot read. Say so if it matters.]"
        )),
    }
}

/// A media type without its parameters.
fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

/// Pictures are made of pixels: the others are texts.
fn is_image(media_type: &str) -> bool {
    let kind = essence(media_type).to_ascii_lowercase();
    kind.starts_with("image/") && kind != "image/svg+xml"
}

/// The sound formats of chat completions.
fn audio_format(media_type: &str) -> Option<&'static str> {
    match essence(media_type).to_ascii_lowercase().as_str() {
        "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => Some("wav"),
        "audio/mpeg" | "audio/mp3" => Some("mp3"),
        _ => None,
    }
}

fn is_text(media_type: &str) -> bool {
    let kind = essence(media_type).to_ascii_lowercase();
    kind.starts_with("text/")
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
        || matches!(
            kind.as_str(),
            "application/json"
                | "application/xml"
                | "application/yaml"
                | "application/x-yaml"
                | "application/toml"
                | "application/javascript"
                | "application/sql"
        )
}

/// The bytes of all inline data.
fn file_bytes(contents: &[Content<'_>]) -> usize {
    let parts = contents.iter().flat_map(|content| content.parts.iter());
    let all = parts.flat_map(|part| {
        let response = part.function_response.as_deref();
        let of_response = response.and_then(|response| response.parts.as_deref());
        std::iter::once(part).chain(of_response.into_iter().flatten())
    });
    all.filter_map(|part| Some(part.inline_data.as_deref()?.data.as_ref()?.len()))
        .sum()
}

impl<'b> Tool<'b> {
    fn new(spec: &'b ToolSpec) -> Self {
        Self {
            r#type: "function",
            function: Function {
                name: &spec.name,
                description: &spec.description,
                parameters: with_properties(&spec.input_schema),
            },
        }
    }
}

/// The schema of an object, with `type` and `properties`.
fn with_properties(schema: &Value) -> Cow<'_, Value> {
    let is_whole = schema["type"] == "object" && schema["properties"].is_object();
    if is_whole {
        return Cow::Borrowed(schema);
    }
    let mut fields = schema.as_object().cloned().unwrap_or_default();
    fields.insert("type".to_owned(), json!("object"));
    if !fields.get("properties").is_some_and(Value::is_object) {
        fields.insert("properties".to_owned(), json!({}));
    }
    Cow::Owned(fields.into())
}
