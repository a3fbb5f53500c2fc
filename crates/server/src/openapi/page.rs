//! Writes the description as a page: no script, nothing from elsewhere, readable on a telephone and in the dark.

use std::fmt::Write as _;

use adk_bridge_protocol::base64;
use axum::http::HeaderValue;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("page.css");

/// A page and what a browser may do with it.
pub(super) struct Page {
    pub(super) html: String,
    pub(super) policy: HeaderValue,
}

/// The page of a document.
pub(super) fn page_of(document: &Value) -> Page {
    let mut html = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut html, document);
    let style = base64::encode(&Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let strictest = HeaderValue::from_static("default-src 'none'");
    Page {
        html,
        policy: policy.parse().unwrap_or(strictest),
    }
}

fn write_page(html: &mut String, document: &Value) -> std::fmt::Result {
    let info = &document["info"];
    let title = text(&info["title"]);
    write!(
        html,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}: API</title><style>{STYLE}</style></head>\n\
         <body><header><h1>{title} <small>{}</small></h1>{}\
         <p><a href=\"openapi.json\">openapi.json</a></p></header>\n<main>",
        text(&info["version"]),
        paragraphs(&info["description"]),
    )?;
    let groups: Vec<&Value> = items(&document["tags"]).collect();
    html.write_str("<nav><ul>")?;
    for group in groups
        .iter()
        .filter(|group| has_operations(document, group))
    {
        let name = text(&group["name"]);
        write!(html, "<li><a href=\"#{}\">{name}</a></li>", anchor(&name))?;
    }
    html.write_str("<li><a href=\"#schemas\">Schemas</a></li></ul></nav>\n")?;
    for group in groups
        .iter()
        .filter(|group| has_operations(document, group))
    {
        let name = text(&group["name"]);
        write!(
            html,
            "<section id=\"{}\"><h2>{name}</h2>{}",
            anchor(&name),
            paragraphs(&group["description"])
        )?;
        for (path, method, operation) in operations(document) {
            let paths = all_paths(document, method, operation);
            // One operation with several addresses is shown once.
            if operation["tags"][0] == group["name"] && paths.first() == Some(&path) {
                write_operation(html, &paths, method, operation)?;
            }
        }
        html.write_str("</section>\n")?;
    }
    html.write_str("<section id=\"schemas\"><h2>Schemas</h2>")?;
    for (name, schema) in fields(&document["components"]["schemas"]) {
        write!(
            html,
            "<details id=\"schema-{0}\"><summary><code>{0}</code></summary>{1}</details>",
            escaped(name),
            json_block(schema)
        )?;
    }
    html.write_str("</section></main></body></html>\n")
}

fn write_operation(
    html: &mut String,
    paths: &[&str],
    method: &str,
    operation: &Value,
) -> std::fmt::Result {
    let mut paths = paths.iter().map(|path| breakable(path));
    write!(
        html,
        "<details id=\"{}\"><summary><b class=\"{method}\">{}</b> <code>{}</code> <span>{}</span></summary>{}",
        text(&operation["operationId"]),
        method.to_ascii_uppercase(),
        paths.next().unwrap_or_default(),
        text(&operation["summary"]),
        paragraphs(&operation["description"]),
    )?;
    let others: Vec<String> = paths.map(|path| format!("<code>{path}</code>")).collect();
    if !others.is_empty() {
        write!(html, "<p>The same at {}.</p>", others.join(", "))?;
    }
    let parameters: Vec<&Value> = items(&operation["parameters"]).collect();
    if !parameters.is_empty() {
        html.write_str("<h3>Parameters</h3><dl>")?;
        for it in parameters {
            let required = if it["required"] == true {
                ", required"
            } else {
                ""
            };
            write!(
                html,
                "<dt><code>{}</code> <small>{}{required}{}</small></dt><dd>{}</dd>",
                text(&it["name"]),
                text(&it["in"]),
                allowed_values(&it["schema"]),
                inline(it["description"].as_str().unwrap_or_default()),
            )?;
        }
        html.write_str("</dl>")?;
    }
    if let Some(body) = operation.get("requestBody") {
        html.write_str("<h3>Request</h3>")?;
        write_contents(html, &body["content"])?;
    }
    html.write_str("<h3>Answers</h3>")?;
    for (status, answer) in fields(&operation["responses"]) {
        let is_refusal = status.starts_with(['4', '5']);
        write!(
            html,
            "<div class=\"answer\"><h4>{}</h4>{}",
            escaped(status),
            paragraphs(&answer["description"])
        )?;
        if !is_refusal {
            for (name, header) in fields(&answer["headers"]) {
                let said = inline(header["description"].as_str().unwrap_or_default());
                write!(html, "<p><code>{}</code>: {said}</p>", escaped(name))?;
            }
            write_contents(html, &answer["content"])?;
        }
        html.write_str("</div>")?;
    }
    html.write_str("</details>")
}

fn write_contents(html: &mut String, contents: &Value) -> std::fmt::Result {
    for (kind, content) in fields(contents) {
        let of = schema_link(&content["schema"]).or_else(|| {
            schema_link(&content["x-itemSchema"]["properties"]["data"]["contentSchema"])
        });
        let of = of.map(|link| format!(": {link}")).unwrap_or_default();
        write!(html, "<p><code>{}</code>{of}</p>", escaped(kind))?;
        if let Some(said) = content["schema"]["description"].as_str()
            && content["schema"].get("$ref").is_none()
        {
            write!(html, "<p>{}</p>", inline(said))?;
        }
        for (_, example) in fields(&content["examples"]) {
            match &example["value"] {
                Value::String(text) => {
                    write!(
                        html,
                        "<pre tabindex=\"0\">{}</pre>",
                        escaped(text.trim_end())
                    )?;
                }
                value => html.write_str(&json_block(value))?,
            }
        }
    }
    Ok(())
}

/// A link to the schema that this one refers to, or whose list it is.
fn schema_link(schema: &Value) -> Option<String> {
    let (schema, word) = match schema.get("items") {
        Some(items) => (items, "a list of "),
        None => (schema, ""),
    };
    let name = schema.get("$ref")?.as_str()?.rsplit('/').next()?;
    let name = escaped(name);
    Some(format!("{word}<a href=\"#schema-{name}\">{name}</a>"))
}

fn allowed_values(schema: &Value) -> String {
    let words: Vec<String> = items(&schema["enum"]).map(text).collect();
    match words.is_empty() {
        true => String::new(),
        false => format!(", one of {}", words.join(", ")),
    }
}

fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    fields(&document["paths"]).flat_map(|(path, methods)| {
        fields(methods).map(move |(method, operation)| (path, method, operation))
    })
}

/// The paths of an operation, the shortest first.
fn all_paths<'d>(document: &'d Value, method: &str, operation: &Value) -> Vec<&'d str> {
    let same = operations(document).filter(|(_, other_method, other)| {
        *other_method == method && other["summary"] == operation["summary"]
    });
    let mut paths: Vec<&str> = same.map(|(path, ..)| path).collect();
    paths.sort_by_key(|path| path.len());
    paths
}

fn has_operations(document: &Value, group: &Value) -> bool {
    operations(document).any(|(_, _, operation)| operation["tags"][0] == group["name"])
}

fn fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = value.as_object().into_iter().flat_map(Map::iter);
    fields.map(|(name, value)| (name.as_str(), value))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn anchor(name: &str) -> String {
    name.to_lowercase().replace(' ', "-")
}

/// The text of a value, for HTML.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => escaped(text),
        other => escaped(&other.to_string()),
    }
}

fn paragraphs(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    let paragraphs = text.split("\n\n").filter(|part| !part.is_empty());
    let paragraphs = paragraphs.map(|part| format!("<p>{}</p>", inline(part)));
    paragraphs.collect()
}

/// Text with code between backticks.
fn inline(text: &str) -> String {
    let pieces = text.split('`').enumerate().map(|(number, piece)| {
        let piece = escaped(piece);
        match number % 2 {
            0 => piece,
            _ => format!("<code>{piece}</code>"),
        }
    });
    pieces.collect()
}

/// A path that may be broken between its parts.
fn breakable(path: &str) -> String {
    escaped(path).replace('/', "/<wbr>")
}

fn json_block(value: &Value) -> String {
    let written = serde_json::to_string_pretty(value).unwrap_or_default();
    format!("<pre tabindex=\"0\">{}</pre>", escaped(&written))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('"', "&quot;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
