//! One operation: what goes in, what comes out, and what is refused.

use axum::http::Method;
use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::refusals::{ADDRESS, ANY, Check, Refusal};

/// What an endpoint does with one method.
#[derive(Debug, Clone)]
pub struct Operation {
    pub(super) id: &'static str,
    pub(super) group: Group,
    pub(super) summary: &'static str,
    pub(super) text: &'static str,
    /// A heading of PROTOCOL.md.
    pub(super) meaning: &'static str,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Vec<Content>,
    pub(super) answers: Vec<Answer>,
    pub(super) refusals: Vec<Refusal>,
    pub(super) refusal_form: RefusalForm,
    pub(super) needs_user: bool,
}

/// What operations are for; the page shows them in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Chat,
    Chats,
    Files,
    Agents,
    Access,
    Sockets,
    State,
    Page,
}

/// In which forms a refusal is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalForm {
    Json,
    /// As plain text unless `Accept` names JSON.
    Words,
    /// As a page for the user, or as JSON before the handler is asked.
    Page,
}

#[derive(Debug, Clone)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) place: &'static str,
    pub(super) is_required: bool,
    pub(super) schema: Value,
}

#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) text: &'static str,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) contents: Vec<Content>,
}

/// A body in one media type, with examples.
#[derive(Debug, Clone)]
pub struct Content {
    pub(super) media_type: &'static str,
    pub(super) schema: SchemaSource,
    pub(super) examples: Vec<(&'static str, Value)>,
}

#[derive(Debug, Clone)]
pub(super) enum SchemaSource {
    Type(SchemaOfType),
    /// Server-sent events whose data is JSON of a type.
    Events(SchemaOfType),
    Inline(Value),
}

pub(super) type SchemaOfType = fn(&mut SchemaGenerator) -> Schema;

impl Operation {
    /// An operation is named for programs that are generated, and has a summary for readers.
    pub fn new(id: &'static str, group: Group, summary: &'static str) -> Self {
        Self {
            id,
            group,
            summary,
            text: "",
            meaning: "The endpoints",
            parameters: Vec::new(),
            body: Vec::new(),
            answers: Vec::new(),
            refusals: ANY.to_vec(),
            refusal_form: RefusalForm::Json,
            needs_user: false,
        }
    }

    /// Says more than the summary.
    pub fn says(self, text: &'static str) -> Self {
        Self { text, ..self }
    }

    /// Names the heading of PROTOCOL.md under which the rest is found.
    pub fn meaning(self, heading: &'static str) -> Self {
        Self {
            meaning: heading,
            ..self
        }
    }

    /// Adds the parameters of the query, which are the fields of a type.
    pub fn query<T: JsonSchema>(self) -> Self {
        self.parameters_of::<T>("query")
    }

    /// Adds headers that the handler reads, which are the fields of a type.
    pub fn headers<T: JsonSchema>(self) -> Self {
        self.parameters_of::<T>("header")
    }

    fn parameters_of<T: JsonSchema>(mut self, place: &'static str) -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.contract = Contract::Deserialize;
        });
        let schema = settings.into_generator().into_root_schema_for::<T>();
        let required = schema.get("required").cloned().unwrap_or_default();
        let is_required = |name: &str| {
            let mut required = required.as_array().into_iter().flatten();
            required.any(|it| it == name)
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            self.parameters.push(Parameter {
                name: name.clone(),
                place,
                is_required: is_required(name),
                schema: without_null(schema.clone()),
            });
        }
        self.refuses(&[ADDRESS])
    }

    /// Describes a parameter of the path; those that are not described get their usual description.
    pub fn path(mut self, name: &str, text: &str, example: &str) -> Self {
        self.parameters.push(Parameter {
            name: name.to_owned(),
            place: "path",
            is_required: true,
            schema: json!({"type": "string", "description": text, "examples": [example]}),
        });
        self.refuses(&[ADDRESS])
    }

    pub fn body(mut self, content: Content) -> Self {
        self.body.push(content);
        self
    }

    /// Adds an answer that is not a refusal.
    pub fn answers(mut self, status: u16, text: &'static str, contents: Vec<Content>) -> Self {
        self.answers.push(Answer {
            status,
            text,
            headers: Vec::new(),
            contents,
        });
        self
    }

    /// Adds a header to the last answer.
    pub fn with_header(mut self, name: &'static str, text: &'static str) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.headers.push((name, text));
        }
        self
    }

    pub fn refuses(mut self, groups: &[&[Refusal]]) -> Self {
        for refusal in groups.iter().copied().flatten() {
            let is_known =
                |known: &Refusal| (known.status, known.code) == (refusal.status, refusal.code);
            match self.refusals.iter_mut().find(|known| is_known(known)) {
                // The words of the operation are closer to it than those of a layer around it, which come later.
                Some(_) => {}
                None => self.refusals.push(*refusal),
            }
        }
        self
    }

    /// Refusals are plain text, for front ends that show them to their users.
    pub fn refuses_in_words(self) -> Self {
        Self {
            refusal_form: RefusalForm::Words,
            ..self
        }
    }

    /// Refusals of the handler are pages.
    pub fn refuses_with_pages(self) -> Self {
        Self {
            refusal_form: RefusalForm::Page,
            ..self
        }
    }

    /// Only known users are served, although no layer says so.
    pub fn needs_user(self) -> Self {
        let refused = Check::User.refusals(true);
        Self {
            needs_user: true,
            ..self.refuses(refused)
        }
    }

    /// What a layer around it adds.
    pub(super) fn behind(self, check: Check, method: &Method) -> Self {
        Self {
            needs_user: self.needs_user || check == Check::User,
            ..self
        }
        .refuses(check.refusals(method.is_safe()))
    }
}

impl Content {
    /// JSON of a type.
    pub fn json<T: JsonSchema>(example: Value) -> Self {
        Self {
            media_type: "application/json",
            schema: SchemaSource::Type(|generator| generator.subschema_for::<T>()),
            examples: vec![("example", example)],
        }
    }

    /// Text or bytes.
    pub fn text(media_type: &'static str, text: &str, example: &str) -> Self {
        Self {
            media_type,
            schema: SchemaSource::Inline(json!({"type": "string", "description": text})),
            examples: vec![("example", json!(example))],
        }
    }

    /// Server-sent events whose data is JSON of a type.
    pub fn events<T: JsonSchema>(example: &str) -> Self {
        Self {
            media_type: "text/event-stream",
            schema: SchemaSource::Events(|generator| generator.subschema_for::<T>()),
            examples: vec![("example", json!(example))],
        }
    }

    /// Another example, with a name for it.
    pub fn or(mut self, name: &'static str, example: Value) -> Self {
        self.examples.push((name, example));
        self
    }
}

impl Group {
    pub(super) const ALL: [Self; 8] = [
        Self::Chat,
        Self::Chats,
        Self::Files,
        Self::Agents,
        Self::Access,
        Self::Sockets,
        Self::State,
        Self::Page,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Chat => "Chat",
            Self::Chats => "Stored chats",
            Self::Files => "Files",
            Self::Agents => "Agents",
            Self::Access => "Tickets and credentials",
            Self::Sockets => "WebSockets",
            Self::State => "State of the server",
            Self::Page => "Pages",
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Chat => {
                "Requests of the AI SDK's chats. Answers are streams of its UI message chunks, as server-sent events."
            }
            Self::Chats => "What is stored of a user's chats, and what was done in them.",
            Self::Files => "Binary content of chats.",
            Self::Agents => "Who answers.",
            Self::Access => "What opens a WebSocket, and what users grant to agents.",
            Self::Sockets => {
                "Described here is only how they are opened. Their frames are in PROTOCOL.md: \"`/live` frames\" and \"The stock \
                 WebSocket frames\"."
            }
            Self::State => "For load balancers, monitoring and programs.",
            Self::Page => "For browsers.",
        }
    }
}

/// A parameter that is absent is not null.
fn without_null(mut schema: Value) -> Value {
    if let Some(kinds) = schema.get_mut("type")
        && let Some(list) = kinds.as_array_mut()
    {
        list.retain(|kind| kind != "null");
        if let [only] = &list[..] {
            *kinds = only.clone();
        }
    }
    let values = schema.get_mut("enum").and_then(Value::as_array_mut);
    if let Some(values) = values {
        values.retain(|value| !value.is_null());
    }
    let ways = schema.get_mut("anyOf").and_then(Value::as_array_mut);
    let only = ways.and_then(|ways| {
        ways.retain(|way| way["type"] != "null");
        (ways.len() == 1).then(|| ways.remove(0))
    });
    if let (Some(Value::Object(only)), Some(fields)) = (only, schema.as_object_mut()) {
        fields.remove("anyOf");
        fields.extend(only);
    }
    schema
}
