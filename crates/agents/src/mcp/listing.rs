//! The tools that a server lists: which of them are offered, under which name, and which of them need approval.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams};
use rmcp::service::{Peer, RoleClient};
use serde_json::Value;

use super::call::McpTool;
use super::{Approval, Connection, McpSettings, Phase, SEPARATOR, Shared};
use crate::error::shortened;
use crate::tool::{ServerTool, ToolSpec};

/// How many tools of one server are offered: models take about this many in all.
pub(super) const MAX_TOOLS: usize = 128;
/// How many pages a list may have.
const MAX_PAGES: usize = 32;
/// The longest name of a tool that models take.
const MAX_NAME: usize = 64;
/// The longest schema of a tool: it is sent with every request to the model.
const MAX_SCHEMA_BYTES: usize = 32 * 1024;
/// How much of a description the model gets.
const MAX_DESCRIPTION_BYTES: usize = 8 * 1024;
/// How much all descriptions and schemas of a server may have together.
const MAX_LIST_BYTES: usize = 512 * 1024;

/// How many things are said about one list: a server can send a new one every second.
const MAX_NOTES: usize = 8;

/// A tool as its server lists it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Listed {
    name: String,
    description: String,
    schema: Value,
    reads_only: bool,
}

/// What a server lists.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) tools: Vec<Listed>,
    /// How many tools have no name, or no schema.
    unreadable: usize,
    /// The same for equal lists, which may be long.
    pub(super) digest: u64,
}

/// The tools that are offered, and what is said about the others.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) tools: Vec<(String, ToolSpec)>,
    notes: Vec<String>,
}

/// Asks a server for all of its tools.
pub(super) async fn tools(peer: &Peer<RoleClient>) -> Result<List, String> {
    let mut list = List::default();
    let mut digest = DefaultHasher::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let request = ListToolsRequest::with_param(params);
        let answer = peer.send_request(ClientRequest::ListToolsRequest(request));
        let answer = answer.await.map_err(|error| match error {
            rmcp::ServiceError::McpError(error) => {
                format!("it does not list its tools: {}", shortened(&error.message))
            }
            _ => "it does not list its tools".to_owned(),
        })?;
        // Read leniently: one tool of an unknown form does not hide the others.
        let answer = serde_json::to_value(&answer).unwrap_or_default();
        let Some(page) = answer.get("tools").and_then(Value::as_array) else {
            return Err("its list of tools is not one".to_owned());
        };
        for tool in page {
            tool.hash(&mut digest);
            match read(tool) {
                Some(tool) => list.tools.push(tool),
                None => list.unreadable += 1,
            }
        }
        let next = answer.get("nextCursor").and_then(Value::as_str);
        match next {
            Some(next) if list.tools.len() <= MAX_TOOLS => cursor = Some(next.to_owned()),
            _ => break,
        }
    }
    list.digest = digest.finish();
    Ok(list)
}

pub(super) fn read(tool: &Value) -> Option<Listed> {
    let schema = tool
        .get("inputSchema")
        .filter(|schema| schema.is_object())?;
    let hint = tool
        .get("annotations")
        .and_then(|all| all.get("readOnlyHint"));
    Some(Listed {
        name: (tool.get("name")?.as_str())
            .filter(|name| !name.is_empty())?
            .to_owned(),
        description: tool
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        schema: schema.clone(),
        reads_only: hint == Some(&Value::Bool(true)),
    })
}

/// Offers what was listed from now on; with a connection, the server is ready.
pub(super) fn offer(shared: &Arc<Shared>, list: &List, ready: Option<Connection>) {
    let Choice { tools, notes } = choose(&shared.settings, list);
    let name = shared.name();
    for note in notes.iter().take(MAX_NOTES) {
        tracing::warn!(server = name, "the MCP server {name}: {note}");
    }
    if let Some(more) = notes.len().checked_sub(MAX_NOTES).filter(|more| *more > 0) {
        tracing::warn!(
            server = name,
            "the MCP server {name}: {more} more of its tools are left out"
        );
    }
    tracing::info!(
        server = name,
        "the MCP server {name} has {} tools",
        tools.len()
    );
    let tools: Arc<[Arc<dyn ServerTool>]> = tools
        .into_iter()
        .map(|(remote, spec)| -> Arc<dyn ServerTool> {
            Arc::new(McpTool::new(spec, remote, shared.clone()))
        })
        .collect();
    shared.change(|state| {
        state.tools = tools;
        if let Some(connection) = ready {
            state.phase = Phase::Ready(connection);
        }
    });
}

pub(super) fn choose(settings: &McpSettings, list: &List) -> Choice {
    let mut choice = Choice::default();
    let listed = &list.tools;
    if list.unreadable > 0 {
        let note = format!(
            "{} of its tools have no name or no schema, and are left out",
            list.unreadable
        );
        choice.notes.push(note);
    }
    let has = |name: &String| listed.iter().any(|tool| tool.name == *name);
    if let Some(unknown) = settings.tools.iter().flatten().find(|name| !has(name)) {
        let note = format!("it has no tool {unknown:?}, which its key tools names");
        choice.notes.push(note);
    }
    let misspelled = match &settings.approval {
        Approval::Named(names) => names.iter().find(|name| !has(name)),
        _ => None,
    };
    if let Some(unknown) = misspelled {
        choice.notes.push(format!(
            "it has no tool {unknown:?}, which its key approval names; until it has, all of its tools need approval"
        ));
    }
    let mut taken = HashSet::new();
    let mut bytes = 0;
    for tool in listed {
        let is_chosen = (settings.tools.as_ref()).is_none_or(|names| names.contains(&tool.name));
        if !is_chosen {
            continue;
        }
        let name = format!("{}{SEPARATOR}{}", settings.name, tool.name);
        let schema_bytes = tool.schema.to_string().len();
        let description = beginning(&tool.description);
        let size = schema_bytes + description.len();
        let shown = shortened(&name);
        let refusal = if !is_tool_name(&name) {
            Some(format!(
                "the tool {shown:?} is left out: a name is made of letters, digits, '_', '-' and '.', at most {MAX_NAME} of them"
            ))
        } else if !taken.insert(name.clone()) {
            Some(format!(
                "two of its tools are called {shown:?}; the second is left out"
            ))
        } else if schema_bytes > MAX_SCHEMA_BYTES {
            Some(format!(
                "the tool {shown:?} is left out: its schema has more than {MAX_SCHEMA_BYTES} bytes"
            ))
        } else if choice.tools.len() == MAX_TOOLS || bytes + size > MAX_LIST_BYTES {
            choice.notes.push(format!(
                "it has too many tools: {shown:?} and those after it are left out; choose some with its key tools"
            ));
            break;
        } else {
            None
        };
        if let Some(refusal) = refusal {
            choice.notes.push(refusal);
            continue;
        }
        bytes += size;
        let spec = ToolSpec {
            needs_approval: misspelled.is_some() || needs_approval(&settings.approval, tool),
            ..ToolSpec::server(name, description, tool.schema.clone())
        };
        choice.tools.push((tool.name.clone(), spec));
    }
    choice
}

fn needs_approval(approval: &Approval, tool: &Listed) -> bool {
    match approval {
        Approval::UnlessReadOnly => !tool.reads_only,
        Approval::Always => true,
        Approval::Never => false,
        Approval::Named(names) => names.contains(&tool.name),
    }
}

/// Whether models take this as the name of a function.
pub(super) fn is_tool_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && (name.bytes())
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

fn beginning(description: &str) -> String {
    let end = description.floor_char_boundary(MAX_DESCRIPTION_BYTES);
    description[..end].to_owned()
}
