//! A chat request of the AI SDK, as `useChat` posts it.

use std::borrow::Cow;
use std::fmt;

use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::{ApprovalId, ChatId, MessageId};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::parse::parse_message;
use adk_bridge_protocol::message::{Extra, Message, Part, Role, parse_messages};
use adk_bridge_protocol::sdk::Sdk;
use adk_bridge_protocol::wire::json;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::error::RequestError;
use super::new_id;
use crate::budget::Hold;
use crate::files::address::Base;
use crate::telemetry::RequestTrace;

/// The longest accepted id of a chat, a message or a call; those of stock clients have 16 to 40 characters.
pub const MAX_ID_BYTES: usize = 200;

/// How deep a body may be nested: as deep as `serde_json` reads.
pub(super) const MAX_DEPTH: usize = 127;

/// What a client asks for.
#[derive(Debug)]
pub struct ChatRequest {
    pub chat_id: ChatId,
    /// Whether an answer in it is for the chat that asked, and not for that of the request.
    pub finds_chat: bool,
    pub messages: Vec<Message>,
    pub dialect: Dialect,
    pub sdk: Sdk,
    /// The agent that it is for: by default that of the chat, or of the server.
    pub agent: Option<String>,
    pub from: RequestSource,
    pub list: MessageList,
    pub seen: SeenMessages,
    pub handed_in: HandedInFields,
    /// Answers in older messages of the user, as copies of the messages that they answer.
    pub(super) answered: Vec<Message>,
    pub(super) size: RequestSize,
}

/// Where a request comes from.
#[derive(Debug, Clone, Default)]
pub struct RequestSource {
    /// What the URLs of files begin with for this client.
    pub base: Base,
    pub trace: RequestTrace,
}

/// What is known about the messages that a client has.
#[derive(Debug, Default)]
pub struct SeenMessages {
    /// Those that its connection had delivered before.
    pub had: Vec<MessageId>,
    /// The message that was being streamed when the request came, unless it was read to the end: this client may not
    /// have it.
    pub(super) unread: Option<MessageId>,
}

/// What a request hands in to the agent, as it came: the agent decides what it takes.
#[derive(Debug, Clone, Default)]
pub struct HandedInFields {
    pub state: Option<Json>,
    pub state_delta: Option<Json>,
    pub custom_metadata: Option<Json>,
    /// Tools that the page runs.
    pub tools: Option<Json>,
}

/// What a request takes of the memory, and of its user's budget.
#[derive(Debug, Default)]
pub(super) struct RequestSize {
    /// Roughly how many bytes of JSON it was.
    pub(super) bytes: usize,
    /// Counts those bytes until the chat does.
    pub(super) hold: Option<Hold>,
    /// Whether the budget has been looked at: the request may wait for a tool since then.
    pub(super) within_budget: bool,
}

/// What the messages of a request are to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageList {
    /// Only the last one: the server has the others.
    Last,
    /// The last one, after others that the client shows.
    Recent,
    /// Everything that the client shows: it may have begun the conversation in another chat.
    Whole,
    /// The same. If nothing of it is known, the client begins another conversation in a chat whose id it uses again.
    WholeOrNew,
}

/// The raw fields of a request. Unknown ones are ignored: clients add new ones with every version.
#[derive(Debug, Default)]
pub struct RequestFields<'a> {
    pub id: Option<&'a RawValue>,
    pub trigger: Option<&'a RawValue>,
    pub dialect: Option<&'a RawValue>,
    pub sdk: Option<&'a RawValue>,
    pub agent: Option<&'a RawValue>,
    pub handed_in: HandedInFields,
    pub messages: Option<&'a RawValue>,
    /// A front end that relies on the server's history may send only its last message.
    pub message: Option<&'a RawValue>,
}

impl ChatRequest {
    /// Reads a request's body. A client that names no dialect gets `unnamed`.
    pub fn parse(body: &[u8], unnamed: Dialect) -> Result<Self, RequestError> {
        let body = checked_json(body)?;
        let fields = read_checked(&body, |_| wrong("the body", "an object"))?;
        let mut request = Self::of(&fields, unnamed)?;
        request.size.bytes = body.len();
        Ok(request)
    }

    /// Reads a request whose JSON has been checked.
    pub fn of(asked: &RequestFields<'_>, unnamed: Dialect) -> Result<Self, RequestError> {
        let named = string(asked.id, "id")?;
        // A client that names no chat begins a new one, unless it answers a question of an existing chat.
        let finds_chat = named.is_none();
        let chat_id = named.unwrap_or_else(|| new_id("chat"));
        check_id("id", &chat_id)?;
        // The trigger adds nothing to the last message: a known one gets a new answer.
        match string(asked.trigger, "trigger")?.as_deref() {
            None | Some("submit-message" | "regenerate-message") => {}
            Some(other) => {
                let trigger = other.to_owned();
                return Err(RequestError::UnknownTrigger { trigger });
            }
        }
        let dialect = string(asked.dialect, "dialect")?;
        let agent = string(asked.agent, "agent")?;
        agent.iter().try_for_each(|id| check_id("agent", id))?;
        let alone = asked.message.filter(|it| it.get() != "null");
        let messages = match (asked.messages, alone) {
            (Some(messages), _) => parse_messages(messages)?,
            (None, Some(message)) => vec![parse_message(message)?],
            (None, None) => return Err(RequestError::NoMessages),
        };
        let list = match asked.messages {
            Some(_) => MessageList::Recent,
            None => MessageList::Last,
        };
        if messages.is_empty() {
            return Err(RequestError::EmptyMessages);
        }
        if messages.iter().any(|message| message.role == Role::System) {
            return Err(RequestError::SystemMessage);
        }
        messages.iter().try_for_each(check_ids)?;
        Ok(Self {
            chat_id: chat_id.into(),
            finds_chat,
            messages,
            dialect: named_dialect(dialect.as_deref(), unnamed)?,
            sdk: sdk_of(asked.sdk.map(shallow).as_ref(), Sdk::default())?,
            agent,
            from: RequestSource::default(),
            list,
            seen: SeenMessages::default(),
            handed_in: asked.handed_in.clone(),
            answered: Vec::new(),
            size: RequestSize::default(),
        })
    }
}

impl ChatRequest {
    /// For the agent of the address that it was sent to. One that its body names has to be the same.
    pub fn for_agent(mut self, address: Option<&str>) -> Result<Self, RequestError> {
        let Some(address) = address else {
            return Ok(self);
        };
        check_id("agent", address)?;
        match self.agent.take() {
            Some(body) if body != address => Err(RequestError::AgentsDiffer {
                address: address.to_owned(),
                body,
            }),
            _ => Ok(Self {
                agent: Some(address.to_owned()),
                ..self
            }),
        }
    }
}

impl HandedInFields {
    const NAMES: [&str; 4] = ["state", "stateDelta", "customMetadata", "tools"];

    /// Those among the fields next to others.
    pub fn in_extra(extra: &Extra) -> Self {
        let mut fields = Self::default();
        for name in Self::NAMES {
            if let (Some(field), Some(value)) = (fields.named(name), extra.get(name)) {
                *field = Some(value);
            }
        }
        fields
    }

    fn named(&mut self, name: &str) -> Option<&mut Option<Json>> {
        Some(match name {
            "state" => &mut self.state,
            "stateDelta" => &mut self.state_delta,
            "customMetadata" => &mut self.custom_metadata,
            "tools" => &mut self.tools,
            _ => return None,
        })
    }
}

/// The dialect that a client names, or the usual one.
pub fn dialect_of(word: Option<&str>) -> Result<Dialect, RequestError> {
    named_dialect(word, Dialect::default())
}

fn named_dialect(word: Option<&str>, unnamed: Dialect) -> Result<Dialect, RequestError> {
    Ok(match word {
        Some(word) => word.parse()?,
        None => unnamed,
    })
}

pub fn check_id(field: &str, id: &str) -> Result<(), RequestError> {
    if id.is_empty() || id.len() > MAX_ID_BYTES {
        return Err(bad_id(field));
    }
    Ok(())
}

/// Reads a body, which may be cut off, not UTF-8, nested too deeply, or hold too many values; `other` makes the error
/// for JSON that does not fit `T`.
pub fn read_json<T: DeserializeOwned, E: From<RequestError>>(
    body: &[u8],
    other: impl FnOnce(serde_json::Error) -> E,
) -> Result<T, E> {
    read_checked(&checked_json(body)?, other)
}

fn checked_json(body: &[u8]) -> Result<Cow<'_, [u8]>, RequestError> {
    let body = json::whole(body)?;
    // Ignored fields have no limit of their own.
    if json::depth(&body) > MAX_DEPTH {
        return Err(RequestError::TooDeep);
    }
    if let Err(error) = json::check_names(&body)
        && error.classify() == Category::Data
    {
        return Err(RequestError::AmbiguousJson(error));
    }
    Ok(body)
}

fn read_checked<'a, T: Deserialize<'a>, E: From<RequestError>>(
    body: &'a [u8],
    other: impl FnOnce(serde_json::Error) -> E,
) -> Result<T, E> {
    json::read_whole(body).map_err(|error| match error.classify() {
        Category::Data => other(error),
        _ => RequestError::NotJson(error).into(),
    })
}

impl<'de> Deserialize<'de> for RequestFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RequestFieldsVisitor)
    }
}

struct RequestFieldsVisitor;

impl<'de> Visitor<'de> for RequestFieldsVisitor {
    type Value = RequestFields<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RequestFields<'de>, A::Error> {
        let mut asked = RequestFields::default();
        while let Some(name) = entries.next_key::<String>()? {
            if let Some(field) = asked.handed_in.named(&name) {
                *field = Some(entries.next_value()?);
                continue;
            }
            let value = Some(entries.next_value()?);
            match name.as_str() {
                "id" => asked.id = value,
                "trigger" => asked.trigger = value,
                "dialect" => asked.dialect = value,
                "sdk" => asked.sdk = value,
                "agent" => asked.agent = value,
                "messages" => asked.messages = value,
                "message" => asked.message = value,
                _ => {}
            }
        }
        Ok(asked)
    }
}

/// A field that is neither a list nor an object; those are read as empty.
fn shallow(raw: &RawValue) -> Value {
    match raw.get().as_bytes().first() {
        Some(b'[') => Value::Array(Vec::new()),
        Some(b'{') => Value::Object(Map::new()),
        // A number that is too large for any field counts as absent.
        _ => serde_json::from_str(raw.get()).unwrap_or_default(),
    }
}

/// Checks the ids in a message. They may be absent, but must be short, because the store and the audit keep them.
fn check_ids(message: &Message) -> Result<(), RequestError> {
    let too_long = |id: &str| id.len() > MAX_ID_BYTES;
    let mut tools = message.parts.iter().filter_map(Part::as_tool);
    let field = if too_long(message.id.as_str()) {
        "a message's id"
    } else if tools.any(|tool| {
        let approval = tool.approval.as_ref().and_then(|field| field.id.as_ref());
        let approval = approval.map(ApprovalId::as_str);
        too_long(tool.call_id.as_str()) || approval.is_some_and(too_long)
    }) {
        "a toolCallId or approval id"
    } else {
        return Ok(());
    };
    Err(bad_id(field))
}

fn bad_id(field: &str) -> RequestError {
    RequestError::BadId {
        field: field.to_owned(),
    }
}

/// The version of the AI SDK that a client names, or `unnamed`.
pub fn sdk_of(named: Option<&Value>, unnamed: Sdk) -> Result<Sdk, RequestError> {
    Ok(Sdk::from_json(named)?.unwrap_or(unnamed))
}

fn string(field: Option<&RawValue>, key: &str) -> Result<Option<String>, RequestError> {
    match field.map(shallow) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(key, "a string")),
    }
}

fn wrong(field: &str, expected: &'static str) -> RequestError {
    RequestError::WrongType {
        field: field.to_owned(),
        expected,
    }
}
