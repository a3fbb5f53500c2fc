//! Reads messages in every form that clients send, and names the place when it cannot.
//!
//! `parts` is the form that is kept; `content` (text, or an array of entries) and `experimental_attachments` are turned
//! into it. Unknown fields and part types are kept as they came, `null` in an optional field reads as absent, and what a
//! message lacks is accepted where somebody is known to leave it out (`id`, `toolCallId`, `input`, `approval.id`).
//! A form that cannot be turned into parts is refused by name.
//!
//! Nesting is limited to 128 levels by `serde_json`, which reads the text before it comes here.

mod older;

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};
use thiserror::Error;

use older::{Content, read_attachments};

use super::{
    ApprovalField, DataPart, FilePart, Message, Part, ReasoningPart, Role, SourceDocumentPart,
    SourceUrlPart, TextPart, TextState, ToolPart, ToolState,
};
use crate::chunk::InputEncoding;

/// Messages in one request. A client sends its whole history each time, so this is the length of a chat that the bridge
/// will still go through for one new message.
pub const MAX_MESSAGES: usize = 10_000;

/// Parts, entries or attachments of one message in a request. A reply with hundreds of tool calls has a few thousand.
/// What the bridge has stored is read back without this limit.
pub const MAX_PARTS: usize = 10_000;

/// A place in a request, such as `messages[3].parts[2].text`.
#[derive(Debug, Clone, Copy)]
pub enum At<'a> {
    Root(&'a str),
    Field(&'a At<'a>, &'a str),
    Index(&'a At<'a>, usize),
}

/// A message that cannot be read: where, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{at}: {wrong}")]
pub struct MessageError {
    pub at: String,
    pub wrong: Wrong,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Wrong {
    #[error("expected {expected}, found {found}")]
    Type {
        expected: &'static str,
        found: &'static str,
    },
    #[error("missing; send {0}")]
    Missing(&'static str),
    #[error("{what} `{name}` is not understood; send {instead}")]
    NotUnderstood {
        what: &'static str,
        name: String,
        instead: &'static str,
    },
    #[error("expected base64, a data URL or an http(s) URL")]
    Base64,
    #[error("{found} are too many; send at most {limit}")]
    TooMany { found: usize, limit: usize },
}

/// Reads the `messages` of a request.
pub fn parse_messages(value: Value) -> Result<Vec<Message>, MessageError> {
    let root = At::Root("messages");
    let messages = array(value, &root)?;
    limit(messages.len(), MAX_MESSAGES, &root)?;
    messages
        .into_iter()
        .enumerate()
        .map(|(index, message)| {
            let at = At::Index(&root, index);
            for name in ["parts", "content", "experimental_attachments"] {
                if let Some(Value::Array(items)) = message.get(name) {
                    limit(items.len(), MAX_PARTS, &At::Field(&at, name))?;
                }
            }
            Message::parse(message, &at)
        })
        .collect()
}

impl Message {
    /// Reads one message; `at` is where it stands, for the error.
    pub fn parse(value: Value, at: &At<'_>) -> Result<Self, MessageError> {
        let mut fields = Fields::new(value, at)?;
        let id = fields.text("id")?.unwrap_or_default();
        let role = role(fields.some_text("role")?, at)?;
        let metadata = fields.value("metadata");
        let given = fields.array("parts")?;
        let content = fields.value("content");
        let attachments = fields.array("experimental_attachments")?;
        if given.is_none() && content.is_none() && attachments.is_none() {
            return Err(At::Field(at, "parts").wrong(Wrong::Missing(
                "`parts`, `content` or `experimental_attachments`",
            )));
        }

        let mut parts = Vec::new();
        each(
            given.unwrap_or_default(),
            &At::Field(at, "parts"),
            |part, at| {
                parts.push(Part::parse(part, at)?);
                Ok(())
            },
        )?;
        if let Some(content) = content {
            let place = At::Field(at, "content");
            let content = Content::new(content, &place)?;
            if parts.is_empty() {
                content.read_into(&mut parts, &place)?;
            } else if !content.repeats(&parts) {
                fields.map.insert("content".to_owned(), content.into());
            }
        }
        if let Some(attachments) = attachments {
            let place = At::Field(at, "experimental_attachments");
            read_attachments(attachments, &mut parts, &place)?;
        }
        if parts.is_empty()
            && fields
                .map
                .get("toolInvocations")
                .and_then(Value::as_array)
                .is_some_and(|a| !a.is_empty())
        {
            return Err(not_understood(
                at,
                "the field",
                "toolInvocations",
                "tool calls as `parts`",
            ));
        }
        Ok(Self {
            id,
            role,
            metadata,
            parts,
            extra: fields.map,
        })
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::parse(value, &At::Root("message")).map_err(de::Error::custom)
    }
}

impl Part {
    /// Reads one part; `at` is where it stands, for the error.
    pub fn parse(value: Value, at: &At<'_>) -> Result<Self, MessageError> {
        let mut fields = Fields::new(value, at)?;
        let kind = fields.some_text("type")?;
        Ok(match kind.as_str() {
            "text" => Self::Text(TextPart {
                text: fields.some_text("text")?,
                state: fields.text_state()?,
                provider_metadata: fields.object("providerMetadata")?,
                citations: fields.array("citations")?.map(Value::Array),
                extra: fields.map,
            }),
            "reasoning" => Self::Reasoning(ReasoningPart {
                id: fields.text("id")?,
                text: fields.some_text("text")?,
                state: fields.text_state()?,
                provider_metadata: fields.object("providerMetadata")?,
                extra: fields.map,
            }),
            // Nobody is known to give a step fields, and a step with some is a step all the same.
            "step-start" => Self::StepStart,
            "source-url" => Self::SourceUrl(SourceUrlPart {
                source_id: fields.some_text("sourceId")?,
                url: fields.some_text("url")?,
                title: fields.text("title")?,
                provider_metadata: fields.object("providerMetadata")?,
                extra: fields.map,
            }),
            "source-document" => Self::SourceDocument(SourceDocumentPart {
                source_id: fields.some_text("sourceId")?,
                media_type: fields.some_text("mediaType")?,
                title: fields.some_text("title")?,
                filename: fields.text("filename")?,
                provider_metadata: fields.object("providerMetadata")?,
                extra: fields.map,
            }),
            "file" if fields.map.contains_key("url") && fields.map.contains_key("mediaType") => {
                Self::File(FilePart {
                    media_type: fields.some_text("mediaType")?,
                    url: fields.some_text("url")?,
                    filename: fields.text("filename")?,
                    provider_metadata: fields.object("providerMetadata")?,
                    extra: fields.map,
                })
            }
            "file" | "image" => fields.into_entry(kind)?,
            "tool-call" | "tool-result" if !fields.map.contains_key("state") => {
                fields.into_entry(kind)?
            }
            "tool-invocation" if fields.map.contains_key("toolInvocation") => {
                return Err(not_understood(
                    at,
                    "part type",
                    "tool-invocation",
                    "`tool-NAME` parts",
                ));
            }
            "dynamic-tool" => {
                let name = fields.some_text("toolName")?;
                Self::Tool(Box::new(fields.into_tool(name, true)?))
            }
            _ => {
                if let Some(name) = kind.strip_prefix("tool-") {
                    Self::Tool(Box::new(fields.into_tool(name.to_owned(), false)?))
                } else if kind.starts_with("data-") {
                    Self::Data(DataPart {
                        id: fields.text("id")?,
                        data: fields.map.shift_remove("data").unwrap_or(Value::Null),
                        kind,
                        extra: fields.map,
                    })
                } else {
                    fields
                        .map
                        .shift_insert(0, "type".to_owned(), Value::String(kind));
                    Self::Other(fields.map)
                }
            }
        })
    }
}

impl At<'_> {
    fn wrong(&self, wrong: Wrong) -> MessageError {
        MessageError {
            at: self.to_string(),
            wrong,
        }
    }

    fn wrong_type(&self, expected: &'static str, value: &Value) -> MessageError {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "another string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        self.wrong(Wrong::Type { expected, found })
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// The fields of an object; those that are read are taken out, so that what remains is unknown.
struct Fields<'a> {
    map: Map<String, Value>,
    at: &'a At<'a>,
}

impl<'a> Fields<'a> {
    fn new(value: Value, at: &'a At<'a>) -> Result<Self, MessageError> {
        match value {
            Value::Object(map) => Ok(Self { map, at }),
            other => Err(at.wrong_type("an object", &other)),
        }
    }

    fn value(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, MessageError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(At::Field(self.at, name).wrong_type("a string", &other)),
        }
    }

    fn some_text(&mut self, name: &str) -> Result<String, MessageError> {
        self.text(name)?
            .ok_or_else(|| At::Field(self.at, name).wrong(Wrong::Missing("a string")))
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>, MessageError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(At::Field(self.at, name).wrong_type("a boolean", &other)),
        }
    }

    fn object(&mut self, name: &str) -> Result<Option<Value>, MessageError> {
        match self.value(name) {
            Some(other) if !other.is_object() => {
                Err(At::Field(self.at, name).wrong_type("an object", &other))
            }
            value => Ok(value),
        }
    }

    fn array(&mut self, name: &str) -> Result<Option<Vec<Value>>, MessageError> {
        self.value(name)
            .map(|value| array(value, &At::Field(self.at, name)))
            .transpose()
    }

    /// Takes a string out from under the first of several names.
    fn any_text(&mut self, names: &[&str]) -> Result<Option<String>, MessageError> {
        let mut first = None;
        for name in names {
            let text = self.text(name)?;
            first = first.or(text);
        }
        Ok(first)
    }

    fn text_state(&mut self) -> Result<Option<TextState>, MessageError> {
        match self.text("state")?.as_deref() {
            None => Ok(None),
            Some("streaming") => Ok(Some(TextState::Streaming)),
            Some("done") => Ok(Some(TextState::Done)),
            Some(other) => {
                let at = At::Field(self.at, "state");
                Err(not_understood(&at, "state", other, "`streaming` or `done`"))
            }
        }
    }

    fn into_tool(mut self, name: String, dynamic: bool) -> Result<ToolPart, MessageError> {
        let input_encoding = match self.text("inputEncoding")?.as_deref() {
            None => None,
            Some("json") => Some(InputEncoding::Json),
            Some("text") => Some(InputEncoding::Text),
            Some(other) => {
                let at = At::Field(self.at, "inputEncoding");
                return Err(not_understood(&at, "encoding", other, "`json` or `text`"));
            }
        };
        let approval = self.object("approval")?;
        Ok(ToolPart {
            call_id: self.text("toolCallId")?.unwrap_or_default(),
            name,
            dynamic,
            state: ToolState::from(self.some_text("state")?),
            // `null` is an input, and an output, like any other.
            input: self.map.shift_remove("input"),
            raw_input: self.map.shift_remove("rawInput"),
            input_encoding,
            output: self.map.shift_remove("output"),
            error_text: self.text("errorText")?,
            preliminary: self.flag("preliminary")?,
            provider_executed: self.flag("providerExecuted")?,
            title: self.text("title")?,
            tool_metadata: self.object("toolMetadata")?,
            call_provider_metadata: self.object("callProviderMetadata")?,
            result_provider_metadata: self.object("resultProviderMetadata")?,
            approval: approval
                .map(|value| approval_field(value, &At::Field(self.at, "approval")))
                .transpose()?,
            extra: self.map,
        })
    }
}

fn approval_field(value: Value, at: &At<'_>) -> Result<ApprovalField, MessageError> {
    let mut fields = Fields::new(value, at)?;
    Ok(ApprovalField {
        id: fields.text("id")?,
        approved: fields.flag("approved")?,
        reason: fields.text("reason")?,
        extra: fields.map,
    })
}

fn role(role: String, at: &At<'_>) -> Result<Role, MessageError> {
    match role.as_str() {
        "system" => Ok(Role::System),
        "user" => Ok(Role::User),
        "assistant" => Ok(Role::Assistant),
        _ => {
            let at = At::Field(at, "role");
            Err(not_understood(
                &at,
                "role",
                &role,
                "system, user or assistant (tool results are parts of the assistant's message)",
            ))
        }
    }
}

fn array(value: Value, at: &At<'_>) -> Result<Vec<Value>, MessageError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(at.wrong_type("an array", &other)),
    }
}

fn each(
    items: Vec<Value>,
    at: &At<'_>,
    mut read: impl FnMut(Value, &At<'_>) -> Result<(), MessageError>,
) -> Result<(), MessageError> {
    items
        .into_iter()
        .enumerate()
        .try_for_each(|(index, item)| read(item, &At::Index(at, index)))
}

fn limit(found: usize, limit: usize, at: &At<'_>) -> Result<(), MessageError> {
    if found > limit {
        Err(at.wrong(Wrong::TooMany { found, limit }))
    } else {
        Ok(())
    }
}

fn not_understood(
    at: &At<'_>,
    what: &'static str,
    name: &str,
    instead: &'static str,
) -> MessageError {
    at.wrong(Wrong::NotUnderstood {
        what,
        name: name.to_owned(),
        instead,
    })
}
