//! Writes the OpenAPI document.

use std::collections::{BTreeMap, BTreeSet};

use schemars::SchemaGenerator;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value, json};

use super::operation::{
    Answer, Content, Group, Operation, Parameter, RefusalForm, SchemaOfType, SchemaSource,
};
use super::refusals::Refusal;
use super::routes::Described;
use crate::auth::login_cookie;
use crate::config::Config;
use crate::transport::App;

/// What the document says of one server.
#[derive(Debug, Default)]
pub(super) struct Deployment {
    needs_credentials: bool,
    /// How a request shows who its user is, by the name of each way.
    schemes: Map<String, Value>,
    url: Option<String>,
}

impl Deployment {
    pub(super) fn of(app: &App) -> Self {
        let config = app.config();
        let url = config.server.public_url.as_deref();
        let needs_credentials = app.access().requires_credentials();
        Self {
            needs_credentials,
            schemes: match needs_credentials {
                true => security_schemes(&config),
                false => Map::new(),
            },
            url: url.map(|url| url.trim_end_matches('/').to_owned()),
        }
    }
}

const TITLE: &str = "adk-bridge";
const TEXT: &str = "Lets any AI SDK front end talk to ADK agents over HTTP and WebSocket.\n\nThis document is made from the \
                    routes that the server has. What things mean is in PROTOCOL.md; each operation names its heading there. \
                    HEAD is answered wherever GET is.";

/// The document of these routes.
pub(super) fn document(described: &[Described], deployment: &Deployment) -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    let mut ids = BTreeSet::new();
    for it in described {
        let id = free_id(it, &mut ids);
        let path = paths.entry(written(it.path)).or_insert_with(|| json!({}));
        let operation = operation(it, id, deployment, &mut schemas);
        path[it.method.as_str().to_ascii_lowercase()] = operation;
    }
    let tags: Vec<Value> = Group::ALL
        .iter()
        .map(|group| json!({"name": group.name(), "description": group.text()}))
        .collect();
    let mut components = json!({"schemas": schemas.into_components()});
    if !deployment.schemes.is_empty() {
        components["securitySchemes"] = Value::Object(deployment.schemes.clone());
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": env!("CARGO_PKG_VERSION"), "description": TEXT},
        "servers": [{"url": deployment.url.as_deref().unwrap_or("/")}],
        "tags": tags,
        "paths": paths,
        "components": components,
    })
}

/// The ways to log in of a configuration. A program's own way is most likely one with keys.
fn security_schemes(config: &Config) -> Map<String, Value> {
    let auth = &config.auth;
    let mut schemes = Map::new();
    let in_header = |name: &str, text: &str| json!({"type": "apiKey", "in": "header", "name": name, "description": text});
    for oidc in auth.oidc.iter().filter(|it| !it.audience.is_empty()) {
        let issuer = oidc.issuer.trim_end_matches('/');
        schemes.insert(
            format!("oidc-{}", oidc.name()),
            json!({
                "type": "openIdConnect",
                "openIdConnectUrl": format!("{issuer}/.well-known/openid-configuration"),
                "description": format!("A token of this provider for {:?}: Authorization: Bearer TOKEN.", oidc.audience.join(", ")),
            }),
        );
    }
    if let Some(proxy) = &auth.proxy {
        let text = "What the proxy signs, which it adds itself.";
        schemes.insert("proxy".into(), in_header(&proxy.header, text));
    }
    if auth.has_login() {
        let name = login_cookie(config.server.public_url.as_deref());
        let text = "A login with the page, which begins at /login. A request that changes something says in Origin which page \
                    has made it.";
        schemes.insert(
            "login".into(),
            json!({"type": "apiKey", "in": "cookie", "name": name, "description": text}),
        );
    }
    if schemes.is_empty() || !auth.api_keys.is_empty() {
        schemes.insert(
            "key".into(),
            json!({"type": "http", "scheme": "bearer", "description": "A key of a user."}),
        );
        if config.server.original_dialect().is_some() {
            schemes.insert("xApiKey".into(), in_header("x-api-key", "The same key."));
        }
    }
    schemes
}

/// A path as OpenAPI writes it.
fn written(path: &str) -> String {
    path.replace("{*", "{")
}

/// The id of an operation, which may have several paths.
fn free_id(it: &Described, ids: &mut BTreeSet<String>) -> String {
    let mut id = it.operation.id.to_owned();
    if it.path.starts_with("/api/agents/{agent}/") {
        id += "OfAgent";
    }
    if it.path.ends_with('/') && it.path.len() > 1 {
        id += "WithSlash";
    }
    let first = id.clone();
    let mut number = 2;
    while !ids.insert(id.clone()) {
        id = format!("{first}{number}");
        number += 1;
    }
    id
}

fn operation(it: &Described, id: String, deployment: &Deployment, schemas: &mut Schemas) -> Value {
    let operation = &it.operation;
    let meaning = format!("Meaning: PROTOCOL.md, \"{}\".", operation.meaning);
    let text = match operation.text {
        "" => meaning,
        text => format!("{text}\n\n{meaning}"),
    };
    let mut written = json!({
        "operationId": id,
        "tags": [operation.group.name()],
        "summary": operation.summary,
        "description": text,
    });
    let parameters = parameters(it);
    if !parameters.is_empty() {
        written["parameters"] = Value::Array(parameters);
    }
    if !operation.body.is_empty() {
        let content = contents(&operation.body, schemas, Direction::In);
        written["requestBody"] = json!({"required": true, "content": content});
    }
    written["responses"] = responses(it, schemas);
    if deployment.needs_credentials {
        let mut ways = Vec::new();
        if operation.needs_user {
            ways.extend(deployment.schemes.keys().map(|name| json!({name: []})));
        }
        written["security"] = Value::Array(ways);
    }
    written
}

fn parameters(it: &Described) -> Vec<Value> {
    let given = &it.operation.parameters;
    let in_path = it.path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        Some(name.trim_start_matches('*'))
    });
    let in_path = in_path.map(|name| {
        let mut given = given.iter();
        let given = given.find(|known| known.place == "path" && known.name == name);
        given
            .cloned()
            .unwrap_or_else(|| usual_parameter(it.path, name))
    });
    let others = given.iter().filter(|known| known.place != "path").cloned();
    in_path.chain(others).map(parameter).collect()
}

fn parameter(given: Parameter) -> Value {
    let mut schema = given.schema;
    let mut written = json!({"name": given.name, "in": given.place, "required": given.is_required});
    if let Some(fields) = schema.as_object_mut() {
        if let Some(text) = fields.remove("description") {
            written["description"] = text;
        }
        if let Some(examples) = fields.remove("examples") {
            written["example"] = examples.get(0).cloned().unwrap_or_default();
        }
        // How a number is kept says nothing to who sends it.
        fields.remove("format");
        fields.remove("default");
    }
    written["schema"] = schema;
    written
}

/// A parameter of a path that has one meaning everywhere.
fn usual_parameter(path: &str, name: &str) -> Parameter {
    let (text, example) = match name {
        "agent" => ("The id of an agent.", "demo"),
        "id" if path.starts_with("/api/files/") => ("The id of a file.", "file_0123456789abcdef"),
        "id" if path.starts_with("/api/chat") || path.contains("/chat/") => {
            ("The id of a chat, which its client chose.", "chat-1")
        }
        "call" => ("The id of a tool call.", "call_1"),
        "path" => ("The name of a file.", "index.js"),
        _ => ("", ""),
    };
    Parameter {
        name: name.to_owned(),
        place: "path",
        is_required: true,
        schema: json!({"type": "string", "minLength": 1, "description": text, "examples": [example]}),
    }
}

fn responses(it: &Described, schemas: &mut Schemas) -> Value {
    let operation = &it.operation;
    let mut responses = BTreeMap::new();
    for answer in &operation.answers {
        responses.insert(answer.status, answer_of(answer, schemas));
    }
    let mut refusals: BTreeMap<u16, Vec<Refusal>> = BTreeMap::new();
    for refusal in &operation.refusals {
        refusals.entry(refusal.status).or_default().push(*refusal);
    }
    for (status, refusals) in refusals {
        responses.insert(status, refused(operation, status, &refusals, schemas));
    }
    let by_name = responses.into_iter();
    Value::Object(
        by_name
            .map(|(status, it)| (status.to_string(), it))
            .collect(),
    )
}

fn answer_of(answer: &Answer, schemas: &mut Schemas) -> Value {
    let mut written = json!({"description": answer.text});
    if !answer.headers.is_empty() {
        let headers = answer.headers.iter();
        let headers = headers.map(|(name, text)| {
            let header = json!({"description": text, "schema": {"type": "string"}});
            ((*name).to_owned(), header)
        });
        written["headers"] = Value::Object(headers.collect());
    }
    if !answer.contents.is_empty() {
        written["content"] = contents(&answer.contents, schemas, Direction::Out);
    }
    written
}

fn refused(
    operation: &Operation,
    status: u16,
    refusals: &[Refusal],
    schemas: &mut Schemas,
) -> Value {
    let words: Vec<String> = refusals
        .iter()
        .map(|refusal| format!("`{}`: {}", refusal.code, refusal.when))
        .collect();
    let codes: Vec<&str> = refusals.iter().map(|refusal| refusal.code).collect();
    let code = json!({"properties": {"code": {"enum": codes}}});
    let schema = json!({"allOf": [schemas.refusal(), {"properties": {"error": code}}]});
    let examples = refusals.iter().map(|refusal| {
        let error = json!({"error": {"code": refusal.code, "message": refusal.when}});
        (refusal.code.to_owned(), json!({ "value": error }))
    });
    let examples: Map<String, Value> = examples.collect();
    let mut content = Map::from_iter([(
        "application/json".to_owned(),
        json!({"schema": schema, "examples": examples}),
    )]);
    let example = refusals.first().map_or("", |refusal| refusal.when);
    let other = match operation.refusal_form {
        RefusalForm::Json => None,
        RefusalForm::Words => Some(("text/plain", "The message alone.", example.to_owned())),
        RefusalForm::Page => Some((
            "text/html",
            "A page that says so.",
            format!("<!doctype html><title>{example}</title>"),
        )),
    };
    if let Some((kind, text, example)) = other {
        content.insert(
            kind.to_owned(),
            json!({"schema": {"type": "string", "description": text}, "example": example}),
        );
    }
    let mut headers = json!({
        "x-error-code": {"description": "The code.", "schema": {"enum": codes}},
    });
    if status == 429 || status == 503 {
        headers["retry-after"] = json!({
            "description": "After how many seconds to try again, if that is known.",
            "schema": {"type": "string", "pattern": "^[0-9]+$"},
        });
    }
    json!({"description": words.join("\n\n"), "headers": headers, "content": content})
}

#[derive(Clone, Copy)]
enum Direction {
    In,
    Out,
}

fn contents(contents: &[Content], schemas: &mut Schemas, direction: Direction) -> Value {
    let written = contents.iter().map(|content| {
        let mut media = match &content.schema {
            // OpenAPI 3.1 has no word for what a stream consists of; 3.2 calls it `itemSchema`.
            SchemaSource::Events(data) => json!({"x-itemSchema": {
                "type": "object",
                "properties": {"data": {
                    "type": "string",
                    "contentMediaType": "application/json",
                    "contentSchema": schemas.of_type(*data, direction),
                }},
                "required": ["data"],
            }}),
            SchemaSource::Type(schema) => json!({"schema": schemas.of_type(*schema, direction)}),
            SchemaSource::Inline(schema) => json!({ "schema": schema }),
        };
        let examples = content.examples.iter();
        let examples = examples.map(|(name, value)| ((*name).to_owned(), json!({"value": value})));
        media["examples"] = Value::Object(examples.collect());
        (content.media_type.to_owned(), media)
    });
    Value::Object(written.collect())
}

/// The schemas of types: those that are read may lack what those that are written always have.
struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

/// A refusal, as every endpoint writes it.
#[derive(schemars::JsonSchema)]
#[allow(
    dead_code,
    reason = "only its schema is needed: refusals are written in `transport/error.rs`"
)]
struct Refused {
    error: RefusedWith,
}

#[derive(schemars::JsonSchema)]
#[allow(dead_code, reason = "only its schema is needed")]
struct RefusedWith {
    /// For programs; also in the header `x-error-code`.
    code: String,
    /// What to do, for people.
    message: String,
}

impl Schemas {
    fn new() -> Self {
        let generator = |contract| {
            let settings = SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
                settings.contract = contract;
            });
            settings.into_generator()
        };
        Self {
            read: generator(Contract::Deserialize),
            written: generator(Contract::Serialize),
        }
    }

    fn of_type(&mut self, schema: SchemaOfType, direction: Direction) -> Value {
        let generator = match direction {
            Direction::In => &mut self.read,
            Direction::Out => &mut self.written,
        };
        schema(generator).to_value()
    }

    fn refusal(&mut self) -> Value {
        self.written.subschema_for::<Refused>().to_value()
    }

    fn into_components(mut self) -> Value {
        let mut all = self.read.take_definitions(true);
        all.extend(self.written.take_definitions(true));
        Value::Object(all)
    }
}
