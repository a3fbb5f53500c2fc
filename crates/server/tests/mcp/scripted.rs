//! An MCP server that does what a test needs: a program that is this test itself, started again.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// The variable that holds how it behaves.
const MANNER: &str = "SCRIPTED_MCP";
/// The variable that holds where it writes what it is sent.
const RECORD: &str = "SCRIPTED_MCP_RECORD";

/// The configuration of a server named `name` that behaves like this and records in this directory.
pub(crate) fn server(name: &str, manner: &str, directory: &Path, more: &str) -> String {
    let this = std::env::current_exe().unwrap();
    let mut toml = format!("[[tools.mcp]]\nname = {name:?}\ncommand = {this:?}\n");
    let record = directory.join(name);
    let _ = write!(
        toml,
        "args = [\"--exact\", \"--ignored\", \"--nocapture\", \"scripted::program\"]\n\
         env = {{ {MANNER} = {manner:?}, {RECORD} = {record:?} }}\n{more}\n"
    );
    toml
}

/// What a server of this name was sent, in all of its lives.
pub(crate) fn received(name: &str, directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// How often it was asked to do this.
pub(crate) fn calls(name: &str, tool: &str, directory: &Path) -> usize {
    let all = received(name, directory);
    let calls = all.iter().filter(|sent| sent["method"] == "tools/call");
    calls.filter(|call| call["params"]["name"] == tool).count()
}

#[test]
#[ignore = "a program that the bridge starts"]
fn program() {
    let Ok(manner) = std::env::var(MANNER) else {
        panic!("this is started by the bridge");
    };
    match manner.as_str() {
        "exits" => std::process::exit(3),
        "leaves" => {
            leave_behind();
            std::process::exit(3);
        }
        "mute" => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
        "endless" => loop {
            write(&"x".repeat(1 << 16));
        },
        _ => {}
    }
    let mut tools = tools(&manner);
    // Calls that wait for answers of the user, by the ids of their questions, with how many are still to be asked.
    let mut asking: HashMap<String, (Value, u64)> = HashMap::new();
    let mut lines = std::io::stdin().lock().lines();
    while let Some(Ok(line)) = lines.next() {
        record(&line);
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let (id, params) = (&message["id"], &message["params"]);
        match message["method"].as_str() {
            Some("initialize") => answer(
                id,
                json!({
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": {"name": "scripted", "version": "1"},
                }),
            ),
            Some("tools/list") => {
                answer(id, json!({"tools": tools}));
                if manner == "restless" {
                    list_changed();
                }
            }
            Some("tools/call") if params["name"] == "ask" => {
                let left = params["arguments"]["times"].as_u64().unwrap_or(1);
                asking.insert(ask(id, left), (id.clone(), left));
            }
            Some("tools/call") => call(id, params, &mut tools),
            None => {
                let Some((call, left)) = id.as_str().and_then(|id| asking.remove(id)) else {
                    continue;
                };
                if left > 1 && message["result"]["action"] == "accept" {
                    asking.insert(ask(&call, left - 1), (call, left - 1));
                } else {
                    answer(
                        &call,
                        json!({"content": [], "structuredContent": message["result"]}),
                    );
                }
            }
            // As a server should that does not know what it is asked.
            Some(_) if !id.is_null() => send(&json!({
                "jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "unknown"},
            })),
            Some(_) => {}
        }
    }
}

/// Asks the user something for a call. Returns the id of the question.
fn ask(call: &Value, left: u64) -> String {
    let id = format!("question {call} {left}");
    send(
        &json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {
            "message": format!("How many? ({left})"),
            "requestedSchema": {
                "type": "object",
                "properties": {"guests": {"type": "integer", "minimum": 1, "maximum": 9}, "vegan": {"type": "boolean"}},
                "required": ["guests"],
            },
        }}),
    );
    id
}

fn tools(manner: &str) -> Vec<Value> {
    let tool = |name: &str, reads: bool| {
        json!({
            "name": name,
            "description": format!("does {name}"),
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
            "annotations": {"readOnlyHint": reads},
        })
    };
    if manner == "restless" {
        let odd = |number| tool(&format!("odd name {number}"), true);
        return (0..5000).map(odd).collect();
    }
    if manner == "crowded" {
        let mut tools: Vec<Value> = vec![
            tool("same", true),
            tool("same", true),
            tool("", true),
            tool("with space", true),
            tool(&"long".repeat(20), true),
            json!({"name": "no_schema"}),
            json!({"name": "odd_hint", "inputSchema": {}, "annotations": {"readOnlyHint": "true"}}),
            json!({"name": "huge", "inputSchema": {"description": "x".repeat(100_000)}}),
            json!("not a tool"),
        ];
        tools.extend((0..200).map(|number| tool(&format!("t{number}"), true)));
        return tools;
    }
    let reading = [
        "say",
        "ask",
        "dawdle",
        "crash",
        "desert",
        "hang",
        "grow",
        "shrink",
        "fail",
        "refuse",
        "picture",
        "structure",
        "meta",
        "environment",
        "confuse",
        "flood",
        "shout",
        "babble",
        "crowd",
        "oversized",
    ];
    let mut tools: Vec<Value> = reading.iter().map(|name| tool(name, true)).collect();
    let mut silent = tool("write", true);
    silent.as_object_mut().unwrap().remove("annotations");
    tools.push(silent);
    tools
}

fn call(id: &Value, params: &Value, tools: &mut Vec<Value>) {
    let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    let said = params["arguments"]["text"].as_str().unwrap_or_default();
    match params["name"].as_str().unwrap_or_default() {
        "say" | "write" => answer(id, text(said)),
        "crash" => std::process::exit(7),
        "desert" => {
            leave_behind();
            std::process::exit(7);
        }
        "hang" => {}
        "dawdle" => send(&json!({
            "jsonrpc": "2.0", "method": "notifications/progress", "params": {
                "progressToken": params["_meta"]["progressToken"], "progress": 1.5, "total": 4, "message": "reading",
            },
        })),
        "grow" | "shrink" => {
            tools.retain(|tool| tool["name"] != "grown");
            if params["name"] == "grow" {
                tools.push(json!({"name": "grown", "inputSchema": {"type": "object"}}));
            }
            list_changed();
            answer(id, text("done"));
        }
        "grown" => answer(id, text("grown")),
        "fail" => answer(
            id,
            json!({"isError": true, "content": [{"type": "text", "text": "it is broken"}]}),
        ),
        "refuse" => send(&json!({
            "jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "not like this"},
        })),
        "picture" => answer(
            id,
            json!({"content": [
                {"type": "text", "text": "a dot"},
                {"type": "image", "mimeType": "image/png", "data": PNG},
            ]}),
        ),
        "structure" => answer(
            id,
            json!({
                "content": [{"type": "text", "text": "{\"degrees\":21.5}"}],
                "structuredContent": {"degrees": 21.5, "near": ["a", "b"]},
            }),
        ),
        "meta" => answer(
            id,
            json!({"content": [], "structuredContent": params["_meta"]}),
        ),
        "environment" => {
            let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
            answer(
                id,
                json!({"content": [], "structuredContent": {"names": names}}),
            );
        }
        "confuse" => {
            write("this is not JSON {\n");
            answer(&json!(4711), text("for nobody"));
            answer(&json!("no such id"), text("for nobody"));
            send(
                &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}}),
            );
            send(
                &json!({"jsonrpc": "2.0", "id": 2, "method": "sampling/createMessage", "params":
                {"messages": [], "maxTokens": 1}}),
            );
            send(
                &json!({"jsonrpc": "2.0", "id": 3, "method": "elicitation/create", "params":
                {"message": "your password?", "requestedSchema": {"type": "object", "properties": {}}}}),
            );
            send(&json!({"jsonrpc": "2.0", "id": 4, "method": "roots/list"}));
            send(&json!({"jsonrpc": "1.0", "method": 7}));
            send(&json!([1, 2]));
            answer(id, text("clear"));
            answer(id, text("twice"));
        }
        "flood" => {
            for number in 0..20_000 {
                send(
                    &json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": params["_meta"]["progressToken"], "progress": number}}),
                );
            }
            answer(id, text("dry"));
        }
        "shout" => loop {
            write(&"x".repeat(1 << 16));
        },
        "babble" => loop {
            send(&json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}));
        },
        "crowd" => {
            let values = vec![0; 200_000];
            answer(
                id,
                json!({"content": [], "structuredContent": {"values": values}}),
            );
        }
        "oversized" => answer(id, text(&"x".repeat(2 << 20))),
        _ => send(&json!({
            "jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "unknown tool"},
        })),
    }
}

fn list_changed() {
    send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
}

/// Starts a program that holds the output open and does not end when it is asked to, and records its id.
fn leave_behind() {
    let mut left = std::process::Command::new("sh");
    left.args(["-c", "trap '' TERM HUP; while :; do sleep 1; done"]);
    let id = left.spawn().unwrap().id();
    record(&json!({"left": id}).to_string());
}

/// A picture of one dot.
pub(crate) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn answer(id: &Value, result: Value) {
    send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn send(message: &Value) {
    write(&format!("{message}\n"));
}

fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    // The bridge may have closed the pipe.
    if written.is_err() {
        std::process::exit(0);
    }
}

fn record(line: &str) {
    if let Ok(path) = std::env::var(RECORD) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.unwrap(), "{line}").unwrap();
    }
}
