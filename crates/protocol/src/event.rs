//! What an ADK agent emits and accepts: events, contents and parts; lenient when read, exact when written.
//!
//! Strings and rarely used sub-trees are borrowed from the line they came in, and rare fields are boxed: a text delta
//! costs no allocation, or one if its text has escapes and one if the JSON reader skips nested values. Unknown fields
//! are skipped and `null` counts as absent, because servers in four languages and of every age send this JSON. The
//! translator handles repetitions and differences in order.

mod delta;
mod parts;

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;

pub use self::parts::Parts;
use crate::chunk::Str;
use crate::json_text::{Json, some_object};
use crate::wire::json::{self, TooManyValues};

/// The call by which an ADK agent asks a human for consent.
pub const REQUEST_CONFIRMATION: &str = "adk_request_confirmation";
/// The call by which an ADK agent asks the user for input.
pub const REQUEST_INPUT: &str = "adk_request_input";
/// The call by which an ADK agent asks for credentials.
pub const REQUEST_CREDENTIAL: &str = "adk_request_credential";

/// The longest event that is read: an image of 12 MB, the largest that models send in one event, as base64.
pub const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// The longest URI of an app: as long as an address may be in every browser.
const MAX_URI_BYTES: usize = 2048;

/// A JSON sub-tree that is kept as text until it is needed.
pub type Raw<'a> = Cow<'a, RawValue>;

/// One event of an agent.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    missing_docs,
    reason = "named as in ADK, whose documentation describes them"
)]
pub struct Event<'a> {
    #[serde(borrow, deserialize_with = "text")]
    pub id: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "text", alias = "invocation_id")]
    pub invocation_id: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "text")]
    pub author: Option<Str<'a>>,
    /// Names the source if several agents work at the same time.
    #[serde(borrow, deserialize_with = "text")]
    pub branch: Option<Str<'a>>,
    #[serde(borrow)]
    pub content: Option<Content<'a>>,
    pub partial: Option<bool>,
    #[serde(alias = "turn_complete")]
    pub turn_complete: Option<bool>,
    pub interrupted: Option<bool>,
    #[serde(borrow, deserialize_with = "text", alias = "finish_reason")]
    pub finish_reason: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "text", alias = "error_code")]
    pub error_code: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "text", alias = "error_message")]
    pub error_message: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "text", alias = "model_version")]
    pub model_version: Option<Str<'a>>,
    #[serde(
        alias = "long_running_tool_ids",
        deserialize_with = "or_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub long_running_tool_ids: Vec<String>,
    #[serde(deserialize_with = "actions")]
    pub actions: Option<Box<Actions>>,
    #[serde(borrow, deserialize_with = "raw", alias = "usage_metadata")]
    pub usage_metadata: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw", alias = "grounding_metadata")]
    pub grounding_metadata: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw", alias = "citation_metadata")]
    pub citation_metadata: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw", alias = "custom_metadata")]
    pub custom_metadata: Option<Raw<'a>>,
    #[serde(borrow, alias = "input_transcription")]
    pub input_transcription: Option<Transcription<'a>>,
    #[serde(borrow, alias = "output_transcription")]
    pub output_transcription: Option<Transcription<'a>>,
    /// The output of a workflow's node.
    #[serde(borrow, deserialize_with = "raw")]
    pub output: Option<Raw<'a>>,
    #[serde(alias = "node_info", deserialize_with = "node_info")]
    pub node_info: Option<Box<NodeInfo>>,
    #[serde(borrow, deserialize_with = "raw")]
    pub timestamp: Option<Raw<'a>>,
    /// Not a field of events: the line that an ADK server sends last if a run has failed.
    #[serde(borrow, deserialize_with = "raw")]
    pub error: Option<Raw<'a>>,
}

/// What an event does in addition to its content; most do nothing. An object without fields counts as absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    missing_docs,
    reason = "named as in ADK, whose documentation describes them"
)]
pub struct Actions {
    #[serde(
        alias = "state_delta",
        deserialize_with = "some_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub state_delta: Option<Json>,
    #[serde(
        alias = "artifact_delta",
        deserialize_with = "some_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub artifact_delta: Option<Json>,
    #[serde(
        alias = "requested_tool_confirmations",
        deserialize_with = "some_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub requested_tool_confirmations: Option<Json>,
    /// The logins that calls wait for. They hold secrets, so only whose they are is of interest.
    #[serde(
        alias = "requested_auth_configs",
        deserialize_with = "some_object",
        skip_serializing
    )]
    pub requested_auth_configs: Option<Json>,
    #[serde(alias = "transfer_to_agent", skip_serializing_if = "Option::is_none")]
    pub transfer_to_agent: Option<String>,
    /// What is to be shown next to results; an invalid list is none.
    #[serde(
        alias = "render_ui_widgets",
        deserialize_with = "widgets",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub render_ui_widgets: Vec<UiWidget>,
    /// Where a workflow has stopped, in an app that can be resumed.
    #[serde(
        alias = "agent_state",
        deserialize_with = "some_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub agent_state: Option<Json>,
}

/// A widget for the result of a call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    missing_docs,
    reason = "named as in ADK, whose documentation describes them"
)]
pub struct UiWidget {
    /// The id of the call.
    pub id: String,
    /// Who knows how to show it; `mcp` for an app of an MCP server.
    pub provider: String,
    pub payload: WidgetPayload,
}

/// What a widget consists of; the tool and its arguments, which stand here too, are those of the call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WidgetPayload {
    /// The `ui://` URI of the app, which its MCP server has.
    #[serde(alias = "resourceUri")]
    pub resource_uri: String,
}

/// The place of an event in a workflow; only the nodes that its output counts for are read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo {
    /// The nodes that the output belongs to, as paths: `app@1` is the workflow itself, `app@1/node@1` one of its nodes.
    #[serde(alias = "output_for")]
    pub output_for: Vec<String>,
}

/// What one side of a conversation says: the unit that models receive and return.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    missing_docs,
    reason = "named as in ADK, whose documentation describes them"
)]
pub struct Content<'a> {
    #[serde(borrow, deserialize_with = "text")]
    pub role: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "or_empty")]
    pub parts: Parts<'a>,
}

/// One part of a content. Agents set exactly one of its kinds.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    missing_docs,
    reason = "named as in ADK, whose documentation describes them"
)]
pub struct Part<'a> {
    #[serde(borrow, deserialize_with = "text")]
    pub text: Option<Str<'a>>,
    pub thought: Option<bool>,
    #[serde(borrow, deserialize_with = "text", alias = "thought_signature")]
    pub thought_signature: Option<Str<'a>>,
    #[serde(borrow, alias = "inline_data")]
    pub inline_data: Option<Box<Blob<'a>>>,
    #[serde(borrow, alias = "file_data")]
    pub file_data: Option<Box<FileData<'a>>>,
    #[serde(borrow, alias = "function_call")]
    pub function_call: Option<Box<FunctionCall<'a>>>,
    #[serde(borrow, alias = "function_response")]
    pub function_response: Option<Box<FunctionResponse<'a>>>,
    #[serde(alias = "executable_code")]
    pub executable_code: Option<Json>,
    #[serde(alias = "code_execution_result")]
    pub code_execution_result: Option<Json>,
}

/// Bytes inside a content, as base64 in either alphabet.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    missing_docs,
    reason = "named as in ADK, whose documentation describes them"
)]
pub struct Blob<'a> {
    #[serde(borrow, deserialize_with = "text", alias = "mime_type")]
    pub mime_type: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "text")]
    pub data: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "text", alias = "display_name")]
    pub display_name: Option<Str<'a>>,
}

/// A file that is stored elsewhere.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    missing_docs,
    reason = "named as in ADK, whose documentation describes them"
)]
pub struct FileData<'a> {
    #[serde(borrow, deserialize_with = "text", alias = "mime_type")]
    pub mime_type: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "text", alias = "file_uri")]
    pub file_uri: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "text", alias = "display_name")]
    pub display_name: Option<Str<'a>>,
}

/// A tool call as the model makes it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    missing_docs,
    reason = "named as in ADK, whose documentation describes them"
)]
pub struct FunctionCall<'a> {
    #[serde(borrow, deserialize_with = "text")]
    pub id: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "text")]
    pub name: Option<Str<'a>>,
    pub args: Option<Json>,
    #[serde(borrow, alias = "partial_args")]
    pub partial_args: Option<Vec<PartialArg<'a>>>,
    /// Not a field of events: the next piece of the arguments, from a model that writes them as JSON text.
    #[serde(skip)]
    pub args_text: Option<Str<'a>>,
    #[serde(alias = "will_continue")]
    pub will_continue: Option<bool>,
}

/// A piece of a call's arguments while the model is still writing them.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    missing_docs,
    reason = "named as in ADK, whose documentation describes them"
)]
pub struct PartialArg<'a> {
    /// `$.city`, `$.items[0].name`.
    #[serde(borrow, deserialize_with = "text", alias = "json_path")]
    pub json_path: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "text", alias = "string_value")]
    pub string_value: Option<Str<'a>>,
    #[serde(alias = "number_value")]
    pub number_value: Option<Json>,
    #[serde(alias = "bool_value")]
    pub bool_value: Option<bool>,
    #[serde(alias = "will_continue")]
    pub will_continue: Option<bool>,
}

/// The result of a tool call, as the model gets it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    missing_docs,
    reason = "named as in ADK, whose documentation describes them"
)]
pub struct FunctionResponse<'a> {
    #[serde(borrow, deserialize_with = "text")]
    pub id: Option<Str<'a>>,
    #[serde(borrow, deserialize_with = "text")]
    pub name: Option<Str<'a>>,
    pub response: Option<Json>,
    /// Images and other bytes that belong to the result.
    #[serde(borrow)]
    pub parts: Option<Vec<Part<'a>>>,
}

/// What was heard or spoken, as text: deltas first, then the whole with `finished`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    missing_docs,
    reason = "named as in ADK, whose documentation describes them"
)]
pub struct Transcription<'a> {
    #[serde(borrow, deserialize_with = "text")]
    pub text: Option<Str<'a>>,
    pub finished: Option<bool>,
}

/// Why a line is not an event.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it means")]
pub enum EventError {
    #[error("an event is longer than {limit} bytes; send large content as a file")]
    TooLong { limit: usize },
    #[error("an event that cannot be accepted: {0}")]
    TooManyValues(TooManyValues),
    #[error("not an ADK event (line {line}, column {column}): {what}")]
    Malformed {
        line: usize,
        column: usize,
        what: String,
    },
}

impl<'a> Event<'a> {
    /// Reads one event, borrowing from `json`.
    pub fn parse(json: &'a str) -> Result<Self, EventError> {
        if json.len() > MAX_EVENT_BYTES {
            return Err(EventError::TooLong {
                limit: MAX_EVENT_BYTES,
            });
        }
        if let Some(event) = delta::read(json) {
            return Ok(event);
        }
        Self::parse_any(json)
    }

    fn parse_any(json: &'a str) -> Result<Self, EventError> {
        json::check(json.as_bytes()).map_err(EventError::TooManyValues)?;
        serde_json::from_str(json).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let mut what = error.to_string();
            // The error has the position in separate fields.
            if let Some(at) = what.rfind(&format!(" at line {line} column {column}")) {
                what.truncate(at);
            }
            EventError::Malformed { line, column, what }
        })
    }

    /// Whether more of the same is to come.
    pub fn is_partial(&self) -> bool {
        self.partial == Some(true)
    }

    /// The parts of the content; empty without content.
    pub fn parts(&self) -> &[Part<'a>] {
        self.content.as_ref().map_or(&[], |content| &content.parts)
    }

    /// The output of a whole workflow without content: the answer of an app that ends with a function.
    pub fn result(&self) -> Option<&RawValue> {
        let info = self.node_info.as_deref()?;
        let of_the_whole = info.output_for.iter().any(|path| !path.contains('/'));
        let unsaid = !self.is_partial() && self.parts().is_empty();
        self.output.as_deref().filter(|_| of_the_whole && unsaid)
    }

    /// Whether a user wrote it: the history of a session contains such events, a reply does not.
    pub fn is_from_user(&self) -> bool {
        self.author.as_deref() == Some("user")
    }
}

impl Actions {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.state_delta.is_none()
            && self.artifact_delta.is_none()
            && self.requested_tool_confirmations.is_none()
            && self.requested_auth_configs.is_none()
            && self.transfer_to_agent.is_none()
            && self.agent_state.is_none()
            && self.render_ui_widgets.is_empty()
    }

    /// The URI of the app that belongs to the result of a call.
    pub fn app_of(&self, call_id: &str) -> Option<&str> {
        let mut widgets = self.render_ui_widgets.iter();
        let widget = widgets.find(|widget| widget.id == call_id && widget.provider == "mcp")?;
        let uri = widget.payload.resource_uri.as_str();
        let is_safe = uri.len() <= MAX_URI_BYTES && !uri.contains(char::is_control);
        (is_safe && uri.starts_with("ui://")).then_some(uri)
    }
}

impl<'a> Content<'a> {
    /// Content of this role.
    pub fn new(role: &'static str, parts: impl Into<Parts<'a>>) -> Self {
        Self {
            role: Some(Cow::Borrowed(role)),
            parts: parts.into(),
        }
    }
}

impl<'a> Part<'a> {
    /// A part of text.
    pub fn text(text: impl Into<Str<'a>>) -> Self {
        Self {
            text: Some(text.into()),
            ..Self::default()
        }
    }

    /// A part with the response to a call.
    pub fn function_response(id: &'a str, name: &'a str, response: Json) -> Self {
        Self {
            function_response: Some(Box::new(FunctionResponse {
                id: Some(Cow::Borrowed(id)),
                name: Some(Cow::Borrowed(name)),
                response: Some(response),
                parts: None,
            })),
            ..Self::default()
        }
    }
}

/// Reads a string for `deserialize_with`: `#[serde(borrow)]` on `Option<Cow<str>>` would copy, this borrows.
#[doc(hidden)]
pub fn text<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<Str<'a>>, D::Error> {
    #[derive(Deserialize)]
    struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
    Ok(Option::<Borrowed<'a>>::deserialize(from)?.map(|text| text.0))
}

/// The same for a value that is not looked into; `null` is none.
#[doc(hidden)]
pub fn raw<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<Raw<'a>>, D::Error> {
    let raw = <&'a RawValue>::deserialize(from)?;
    Ok((raw.get() != "null").then_some(Cow::Borrowed(raw)))
}

fn actions<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<Actions>>, D::Error> {
    let actions = Option::<Actions>::deserialize(from)?;
    Ok(actions.filter(|did| !did.is_empty()).map(Box::new))
}

fn widgets<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<UiWidget>, D::Error> {
    let raw = <Box<RawValue>>::deserialize(from)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// Few events have anything useful here, so an invalid value is ignored.
fn node_info<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<NodeInfo>>, D::Error> {
    let raw = <&RawValue>::deserialize(from)?;
    let info = serde_json::from_str::<NodeInfo>(raw.get()).ok();
    Ok(info
        .filter(|info| !info.output_for.is_empty())
        .map(Box::new))
}

fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}
