//! Tools that a page declares in its requests (`tools`), and runs: client tools of its chat until a request declares others.

use std::collections::HashSet;

use adk_bridge_agents::tool::{ToolSpec, is_tool_name};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::wire::json;
use serde_json::{Value, json};

use crate::store::{ChatRef, Store, StoreError};

/// The key of them in the chat's state.
const KEY: &str = "declaredTools";
/// How many tools a page may declare: models choose badly among more.
const MAX_TOOLS: usize = 64;
/// How many bytes they may have: they are sent with every model call.
const MAX_BYTES: usize = 64 * 1024;
/// How many values they may hold, which bounds their memory.
const MAX_VALUES: usize = 8 * 1024;
/// How deep they may be nested.
const MAX_DEPTH: usize = 32;
/// Names that begin with this mean something in a message: `adk_request_confirmation` is a question.
const RESERVED: &str = "adk_";

/// Tools that cannot be declared, and what to do instead.
#[derive(Debug, thiserror::Error)]
pub enum DeclaredToolsError {
    #[error(
        "tools: the agent {agent:?} has its own tools and takes none from a page; make a tool for the page a \
         LongRunningFunctionTool of the ADK agent"
    )]
    NotTaken { agent: String },
    #[error("tools: {count} are declared; declare at most {MAX_TOOLS}")]
    TooMany { count: usize },
    #[error(
        "tools: they are larger than {MAX_BYTES} bytes or hold more than {MAX_VALUES} values; declare fewer, or shorten their \
         schemas"
    )]
    TooLarge,
    #[error("tools: they are nested more than {MAX_DEPTH} levels deep; make their schemas flatter")]
    TooDeep,
    #[error("tools[{index}]{field} must be {expected}")]
    WrongType {
        index: usize,
        field: &'static str,
        expected: &'static str,
    },
    #[error(
        "tools[{index}].name is {name:?}; a name has 1 to 64 letters, digits, '_', '-' and '.', begins with a letter or '_', \
         and not with {RESERVED:?}"
    )]
    BadName { index: usize, name: String },
    #[error("tools: two are named {name:?}; give each its own name")]
    Twice { name: String },
    #[error("tools: the agent has a tool named {name:?}; give yours another name")]
    Taken { name: String },
}

/// The tools that a request declares, checked; nothing if it says nothing about tools. Some front ends send an object under
/// this name, which is not meant for the bridge.
pub(super) fn declared(field: Option<&Json>) -> Result<Option<Vec<ToolSpec>>, DeclaredToolsError> {
    let Some(field) = field.filter(|field| field.text().starts_with('[')) else {
        return Ok(None);
    };
    let text = field.text().as_bytes();
    let few_values = || json::scan(text).is_ok_and(|found| found.values <= MAX_VALUES);
    if text.len() > MAX_BYTES || !few_values() {
        return Err(DeclaredToolsError::TooLarge);
    }
    if json::depth(text) > MAX_DEPTH {
        return Err(DeclaredToolsError::TooDeep);
    }
    let Value::Array(items) = field.to_value() else {
        return Ok(None);
    };
    if items.len() > MAX_TOOLS {
        return Err(DeclaredToolsError::TooMany { count: items.len() });
    }
    let tools = items.into_iter().enumerate();
    let tools: Vec<ToolSpec> = tools
        .map(|(index, item)| tool(index, item))
        .collect::<Result<_, _>>()?;
    let mut names = HashSet::new();
    if let Some(twice) = tools.iter().find(|tool| !names.insert(&tool.name)) {
        let name = twice.name.clone();
        return Err(DeclaredToolsError::Twice { name });
    }
    Ok(Some(tools))
}

fn tool(index: usize, mut item: Value) -> Result<ToolSpec, DeclaredToolsError> {
    let wrong = |field, expected| DeclaredToolsError::WrongType {
        index,
        field,
        expected,
    };
    if !item.is_object() {
        return Err(wrong("", "an object with a name"));
    }
    let name = match item["name"].take() {
        Value::String(name) => name,
        _ => return Err(wrong(".name", "a string")),
    };
    if !is_tool_name(&name) || name.starts_with(RESERVED) {
        return Err(DeclaredToolsError::BadName { index, name });
    }
    let description = match item["description"].take() {
        Value::String(description) => description,
        Value::Null => String::new(),
        _ => return Err(wrong(".description", "a string")),
    };
    let schema = match item["inputSchema"].take() {
        Value::Null => json!({"type": "object", "properties": {}}),
        schema if schema.is_object() => schema,
        _ => return Err(wrong(".inputSchema", "a JSON schema of an object")),
    };
    if !matches!(schema.get("type"), None | Some(Value::Null)) && schema["type"] != "object" {
        return Err(wrong(
            ".inputSchema",
            "a JSON schema of an object, with the type \"object\"",
        ));
    }
    let spec = ToolSpec::client(name, description, schema);
    match item["approval"] {
        Value::Bool(true) => Ok(spec.with_approval()),
        Value::Bool(false) | Value::Null => Ok(spec),
        _ => Err(wrong(".approval", "true or false")),
    }
}

/// The tools that a page declared in this chat before.
pub(super) async fn load(
    store: &dyn Store,
    chat: ChatRef<'_>,
) -> Result<Vec<ToolSpec>, StoreError> {
    let Some(stored) = store.state(chat, KEY).await? else {
        return Ok(Vec::new());
    };
    // They were checked before they were stored.
    let tools = declared(Some(&stored.into())).ok().flatten();
    Ok(tools.unwrap_or_default())
}

pub(super) async fn store(
    store: &dyn Store,
    chat: ChatRef<'_>,
    tools: &[ToolSpec],
) -> Result<(), StoreError> {
    let written = tools.iter().map(|tool| {
        json!({
            "name": tool.name, "description": tool.description, "inputSchema": tool.input_schema,
            "approval": tool.needs_approval,
        })
    });
    let value = (!tools.is_empty()).then(|| written.collect::<Value>());
    let write = Box::new(|_| (value, Value::Null));
    store.update_state(chat, KEY, write).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<Option<Vec<ToolSpec>>, DeclaredToolsError> {
        declared(Some(&value.into()))
    }

    #[test]
    fn tools_are_read_with_what_may_be_left_out() {
        let schema = json!({"type": "object", "properties": {"to": {"type": "string"}}});
        let tools = read(json!([
            {"name": "open_tab", "description": "Opens a tab.", "inputSchema": schema, "approval": true},
            {"name": "_x", "type": "function", "inputSchema": {"properties": {}}, "approval": false},
            {"name": "close", "description": null, "inputSchema": null},
        ]));
        let tools = tools.unwrap().unwrap();
        assert_eq!(
            tools[0],
            ToolSpec::client("open_tab", "Opens a tab.", schema).with_approval()
        );
        let empty = json!({"type": "object", "properties": {}});
        assert_eq!(tools[2], ToolSpec::client("close", "", empty));
        assert!(read(json!([])).unwrap().unwrap().is_empty());
        // What other systems send under this name is not for the bridge.
        for other in [json!({"a": {"parameters": {}}}), json!(null), json!("auto")] {
            assert!(read(other).unwrap().is_none());
        }
    }

    #[test]
    fn tools_that_cannot_be_declared_are_refused_by_name() {
        let named = |name: &str| json!([{"name": name}]);
        let many: Vec<Value> = (0..65).map(|n| json!({"name": format!("t{n}")})).collect();
        let mut deep = json!({"type": "object"});
        for _ in 0..40 {
            deep = json!({"type": "object", "properties": {"a": deep}});
        }
        let wide = json!([{"name": "a", "inputSchema": {"enum": vec![0; 10_000]}}]);
        for (tools, word) in [
            (json!([7]), "tools[0] must be an object"),
            (json!([{}]), "tools[0].name must be a string"),
            (json!([{"name": "a"}, {"name": 7}]), "tools[1].name"),
            (named(""), "\"\""),
            (named("no spaces"), "no spaces"),
            (named("1st"), "1st"),
            (named("-x"), "-x"),
            (named("ünï"), "ünï"),
            (named(&"x".repeat(65)), "xxx"),
            (named("adk_request_confirmation"), "adk_"),
            (json!([{"name": "a", "description": 1}]), "description"),
            (json!([{"name": "a", "inputSchema": []}]), "inputSchema"),
            (
                json!([{"name": "a", "inputSchema": {"type": "string"}}]),
                "inputSchema",
            ),
            (json!([{"name": "a", "approval": "true"}]), "approval"),
            (json!([{"name": "a", "approval": 1}]), "approval"),
            (json!([{"name": "a"}, {"name": "a"}]), "\"a\""),
            (json!(many), "65"),
            (
                json!([{"name": "a", "description": "x".repeat(MAX_BYTES)}]),
                "larger",
            ),
            (wide, "values"),
            (json!([{"name": "a", "inputSchema": deep}]), "deep"),
        ] {
            let said = read(tools).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
    }
}
