//! Reads messages in every form that clients send; an error names the place.
//!
//! Messages are kept as `parts`; `content` (text, or an array of entries) and `experimental_attachments` are converted.
//! Unknown fields and part types are kept as they are, `null` in an optional field counts as absent, and a missing
//! field is accepted if known clients omit it (`id`, `toolCallId`, `input`, `approval.id`). A form that cannot be
//! converted into parts is refused by name.
//!
//! Values are kept as text: nothing here builds a tree. Nesting is limited where the text arrives.

mod older;

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use thiserror::Error;

use older::{Content, read_attachments};

use super::{
    ApprovalField, DataPart, Extra, FilePart, Message, Part, ReasoningPart, Role,
    SourceDocumentPart, SourceUrlPart, TextPart, TextState, ToolPart, ToolState,
};
use crate::chunk::InputEncoding;
use crate::id::ApprovalId;
use crate::json_text::{Json, RawFields, fields_of, items_of, text_of};

/// The most messages in one request. A client sends its whole history each time, so this is the longest chat that the
/// bridge goes through for one new message.
pub const MAX_MESSAGES: usize = 10_000;

/// The most parts, entries or attachments of one message in a request. A reply with hundreds of tool calls has a few
/// thousand. Stored messages are read without this limit.
pub const MAX_PARTS: usize = 10_000;

/// A place in a request, such as `messages[3].parts[2].text`.
#[derive(Debug, Clone, Copy)]
pub enum Location<'a> {
    /// The outermost value, by its name.
    Root(&'a str),
    /// A field of an object.
    Field(&'a Location<'a>, &'a str),
    /// An item of an array.
    Index(&'a Location<'a>, usize),
}

/// A message that cannot be read: the place, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{at}: {wrong}")]
pub struct MessageError {
    /// Where it is.
    pub at: String,
    /// What is wrong with it.
    pub wrong: Defect,
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says what it means")]
pub enum Defect {
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
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("{found} are too many; send at most {limit}")]
    TooMany { found: usize, limit: usize },
}

/// Reads the `messages` of a request.
pub fn parse_messages(messages: &RawValue) -> Result<Vec<Message>, MessageError> {
    let root = Location::Root("messages");
    let messages = array(messages, &root)?;
    limit(messages.len(), MAX_MESSAGES, &root)?;
    let messages = messages.into_iter().enumerate();
    messages
        .map(|(index, message)| parse_sent(message, &Location::Index(&root, index)))
        .collect()
}

/// Reads the only message of a request.
pub fn parse_message(message: &RawValue) -> Result<Message, MessageError> {
    parse_sent(message, &Location::Index(&Location::Root("messages"), 0))
}

fn parse_sent(message: &RawValue, at: &Location<'_>) -> Result<Message, MessageError> {
    Message::read(message, at, MAX_PARTS)
}

impl Message {
    /// Reads a message as it is stored.
    pub fn from_stored(text: &str) -> serde_json::Result<Self> {
        let raw: &RawValue = serde_json::from_str(text)?;
        Self::parse(raw, &Location::Root("message")).map_err(serde_json::Error::custom)
    }

    /// Reads one message; `at` is its place, for the error.
    pub fn parse(message: &RawValue, at: &Location<'_>) -> Result<Self, MessageError> {
        Self::read(message, at, usize::MAX)
    }

    /// `most` is how many parts, entries or attachments it may have.
    fn read(message: &RawValue, at: &Location<'_>, most: usize) -> Result<Self, MessageError> {
        let mut fields = Fields::new(message, at)?;
        let id = fields.text("id")?.unwrap_or_default();
        let role = role(fields.some_text("role")?, at)?;
        let metadata = fields.json("metadata")?;
        let given = fields.array("parts")?;
        let content = fields.value("content");
        let attachments = fields.array("experimental_attachments")?;
        if given.is_none() && content.is_none() && attachments.is_none() {
            return Err(Location::Field(at, "parts").wrong(Defect::Missing(
                "`parts`, `content` or `experimental_attachments`",
            )));
        }

        for (name, items) in [
            ("parts", &given),
            ("experimental_attachments", &attachments),
        ] {
            let count = items.as_ref().map_or(0, Vec::len);
            limit(count, most, &Location::Field(at, name))?;
        }

        let mut parts = Vec::new();
        each(
            given.unwrap_or_default(),
            &Location::Field(at, "parts"),
            |part, at| {
                parts.push(Part::parse(part, at)?);
                Ok(())
            },
        )?;
        if let Some(content) = content {
            let place = Location::Field(at, "content");
            let content = Content::new(content, &place)?;
            limit(content.entries(), most, &place)?;
            if parts.is_empty() {
                content.read_into(&mut parts, &place)?;
            } else if !content.repeats(&parts) {
                fields.map.push(("content".into(), content.raw()));
            }
        }
        if let Some(attachments) = attachments {
            let place = Location::Field(at, "experimental_attachments");
            read_attachments(attachments, &mut parts, &place)?;
        }
        if parts.is_empty()
            && let Some(calls) = fields.find("toolInvocations")
            && items_of(calls).is_some_and(|calls| !calls.is_empty())
        {
            return Err(not_understood(
                at,
                "the field",
                "toolInvocations",
                "tool calls as `parts`",
            ));
        }
        Ok(Self {
            id: id.into(),
            role,
            metadata,
            parts,
            extra: fields.extra()?,
        })
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(&raw, &Location::Root("message")).map_err(D::Error::custom)
    }
}

impl Part {
    /// Reads one part; `at` is its place, for the error.
    pub fn parse(part: &RawValue, at: &Location<'_>) -> Result<Self, MessageError> {
        let mut fields = Fields::new(part, at)?;
        let kind = fields.some_text("type")?;
        Ok(match kind.as_str() {
            "text" => Self::Text(TextPart {
                text: fields.some_text("text")?,
                state: fields.text_state()?,
                provider_metadata: fields.object("providerMetadata")?,
                citations: fields.array_json("citations")?,
                extra: fields.extra()?,
            }),
            "reasoning" => Self::Reasoning(ReasoningPart {
                id: fields.text("id")?,
                text: fields.some_text("text")?,
                state: fields.text_state()?,
                provider_metadata: fields.object("providerMetadata")?,
                extra: fields.extra()?,
            }),
            // No known client gives a step fields; one with fields is still a step.
            "step-start" => Self::StepStart,
            "source-url" => Self::SourceUrl(SourceUrlPart {
                source_id: fields.some_text("sourceId")?,
                url: fields.some_text("url")?,
                title: fields.text("title")?,
                provider_metadata: fields.object("providerMetadata")?,
                extra: fields.extra()?,
            }),
            "source-document" => Self::SourceDocument(SourceDocumentPart {
                source_id: fields.some_text("sourceId")?,
                media_type: fields.some_text("mediaType")?,
                title: fields.some_text("title")?,
                filename: fields.text("filename")?,
                provider_metadata: fields.object("providerMetadata")?,
                extra: fields.extra()?,
            }),
            "file" if fields.has("url") && fields.has("mediaType") => Self::File(FilePart {
                media_type: fields.some_text("mediaType")?,
                url: fields.some_text("url")?,
                filename: fields.text("filename")?,
                provider_metadata: fields.object("providerMetadata")?,
                extra: fields.extra()?,
            }),
            "file" | "image" => fields.into_entry(kind)?,
            "tool-call" | "tool-result" if !fields.has("state") => fields.into_entry(kind)?,
            "tool-invocation" if fields.has("toolInvocation") => {
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
                        data: fields.any_json("data")?.unwrap_or_default(),
                        kind,
                        extra: fields.extra()?,
                    })
                } else {
                    // Its type comes first.
                    let kind = Json::from(kind.as_str());
                    fields.map.insert(0, ("type".into(), kind.raw()));
                    Self::Other(fields.extra()?)
                }
            }
        })
    }
}

impl Location<'_> {
    fn wrong(&self, wrong: Defect) -> MessageError {
        MessageError {
            at: self.to_string(),
            wrong,
        }
    }

    fn wrong_type(&self, expected: &'static str, value: &RawValue) -> MessageError {
        let found = match value.get().as_bytes().first() {
            Some(b'n') => "null",
            Some(b't' | b'f') => "a boolean",
            Some(b'"') => "another string",
            Some(b'[') => "an array",
            Some(b'{') => "an object",
            _ => "a number",
        };
        self.wrong(Defect::Type { expected, found })
    }

    /// The error for a value that is valid JSON but cannot be represented, such as a number out of range.
    fn unreadable(&self, error: &serde_json::Error) -> MessageError {
        self.wrong(Defect::Unreadable(error.to_string()))
    }
}

impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// The fields of an object. Fields that are read are taken out, so the rest is unknown.
struct Fields<'v, 'a> {
    map: RawFields<'v>,
    at: &'a Location<'a>,
}

impl<'v, 'a> Fields<'v, 'a> {
    fn new(value: &'v RawValue, at: &'a Location<'a>) -> Result<Self, MessageError> {
        match fields_of(value) {
            Some(map) => Ok(Self { map, at }),
            None => Err(at.wrong_type("an object", value)),
        }
    }

    fn find(&self, name: &str) -> Option<&'v RawValue> {
        let mut fields = self.map.iter();
        fields.find_map(|(other, value)| (other == name).then_some(*value))
    }

    fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Takes out a field, `null` included.
    fn take(&mut self, name: &str) -> Option<&'v RawValue> {
        let place = self.map.iter().position(|(other, _)| other == name)?;
        Some(self.map.remove(place).1)
    }

    fn value(&mut self, name: &str) -> Option<&'v RawValue> {
        self.take(name).filter(|value| value.get() != "null")
    }

    fn json(&mut self, name: &str) -> Result<Option<Json>, MessageError> {
        let value = self.value(name);
        value.map(|value| self.kept(name, value)).transpose()
    }

    /// Takes out a field in which `null` is a value like any other.
    fn any_json(&mut self, name: &str) -> Result<Option<Json>, MessageError> {
        let value = self.take(name);
        value.map(|value| self.kept(name, value)).transpose()
    }

    fn kept(&self, name: &str, value: &RawValue) -> Result<Json, MessageError> {
        Json::read_raw(value).map_err(|error| Location::Field(self.at, name).unreadable(&error))
    }

    /// All fields that were not taken out.
    fn extra(&self) -> Result<Extra, MessageError> {
        Extra::read(&self.map).map_err(|error| self.at.unreadable(&error))
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, MessageError> {
        match self.value(name) {
            None => Ok(None),
            Some(value) => match text_of(value) {
                Some(text) => Ok(Some(text.into_owned())),
                None => Err(Location::Field(self.at, name).wrong_type("a string", value)),
            },
        }
    }

    fn some_text(&mut self, name: &str) -> Result<String, MessageError> {
        self.text(name)?
            .ok_or_else(|| Location::Field(self.at, name).wrong(Defect::Missing("a string")))
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>, MessageError> {
        match self.value(name).map(|value| (value.get(), value)) {
            None => Ok(None),
            Some(("true", _)) => Ok(Some(true)),
            Some(("false", _)) => Ok(Some(false)),
            Some((_, other)) => Err(Location::Field(self.at, name).wrong_type("a boolean", other)),
        }
    }

    fn object(&mut self, name: &str) -> Result<Option<Json>, MessageError> {
        match self.find(name) {
            Some(other) if !other.get().starts_with(['{', 'n']) => {
                Err(Location::Field(self.at, name).wrong_type("an object", other))
            }
            _ => self.json(name),
        }
    }

    fn array(&mut self, name: &str) -> Result<Option<Vec<&'v RawValue>>, MessageError> {
        self.value(name)
            .map(|value| array(value, &Location::Field(self.at, name)))
            .transpose()
    }

    fn array_json(&mut self, name: &str) -> Result<Option<Json>, MessageError> {
        match self.find(name) {
            Some(other) if !other.get().starts_with(['[', 'n']) => {
                Err(Location::Field(self.at, name).wrong_type("an array", other))
            }
            _ => self.json(name),
        }
    }

    /// Takes out the fields of all these names, and returns the first string.
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
                let at = Location::Field(self.at, "state");
                Err(not_understood(&at, "state", other, "`streaming` or `done`"))
            }
        }
    }

    fn into_tool(mut self, name: String, dynamic: bool) -> Result<ToolPart, MessageError> {
        let state = ToolState::from(self.some_text("state")?);
        self.into_call(name, dynamic, state)
    }

    fn into_call(
        mut self,
        name: String,
        dynamic: bool,
        state: ToolState,
    ) -> Result<ToolPart, MessageError> {
        let input_encoding = match self.text("inputEncoding")?.as_deref() {
            None => None,
            Some("json") => Some(InputEncoding::Json),
            Some("text") => Some(InputEncoding::Text),
            Some(other) => {
                let at = Location::Field(self.at, "inputEncoding");
                return Err(not_understood(&at, "encoding", other, "`json` or `text`"));
            }
        };
        let approval = self.value("approval");
        Ok(ToolPart {
            call_id: self.text("toolCallId")?.unwrap_or_default().into(),
            name,
            dynamic,
            state,
            // `null` is an input, and an output, like any other.
            input: self.any_json("input")?,
            raw_input: self.any_json("rawInput")?,
            input_encoding,
            output: self.any_json("output")?,
            error_text: self.text("errorText")?,
            preliminary: self.flag("preliminary")?,
            provider_executed: self.flag("providerExecuted")?,
            title: self.text("title")?,
            tool_metadata: self.object("toolMetadata")?,
            call_provider_metadata: self.object("callProviderMetadata")?,
            result_provider_metadata: self.object("resultProviderMetadata")?,
            approval: approval
                .map(|value| approval_field(value, &Location::Field(self.at, "approval")))
                .transpose()?,
            extra: self.extra()?,
        })
    }
}

fn approval_field(value: &RawValue, at: &Location<'_>) -> Result<ApprovalField, MessageError> {
    let mut fields = Fields::new(value, at)?;
    Ok(ApprovalField {
        id: fields.text("id")?.map(ApprovalId::from),
        approved: fields.flag("approved")?,
        reason: fields.text("reason")?,
        extra: fields.extra()?,
    })
}

fn role(role: String, at: &Location<'_>) -> Result<Role, MessageError> {
    match role.as_str() {
        "system" => Ok(Role::System),
        "user" => Ok(Role::User),
        "assistant" => Ok(Role::Assistant),
        _ => {
            let at = Location::Field(at, "role");
            Err(not_understood(
                &at,
                "role",
                &role,
                "system, user or assistant (tool results are parts of the assistant's message)",
            ))
        }
    }
}

fn array<'v>(value: &'v RawValue, at: &Location<'_>) -> Result<Vec<&'v RawValue>, MessageError> {
    items_of(value).ok_or_else(|| at.wrong_type("an array", value))
}

fn each<'v>(
    items: Vec<&'v RawValue>,
    at: &Location<'_>,
    mut read: impl FnMut(&'v RawValue, &Location<'_>) -> Result<(), MessageError>,
) -> Result<(), MessageError> {
    items
        .into_iter()
        .enumerate()
        .try_for_each(|(index, item)| read(item, &Location::Index(at, index)))
}

fn limit(found: usize, limit: usize, at: &Location<'_>) -> Result<(), MessageError> {
    if found > limit {
        Err(at.wrong(Defect::TooMany { found, limit }))
    } else {
        Ok(())
    }
}

fn not_understood(
    at: &Location<'_>,
    what: &'static str,
    name: &str,
    instead: &'static str,
) -> MessageError {
    at.wrong(Defect::NotUnderstood {
        what,
        name: name.to_owned(),
        instead,
    })
}
