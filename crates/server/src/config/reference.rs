//! docs/configuration.md, made of the types of the configuration and compared with it.
//!
//! `UPDATE_DOCUMENTS=1 cargo test -p adk-bridge --lib config::reference` writes it. What is said of a key is its doc comment,
//! its default is that of the type, and whether a reload takes it is found out with what a reload does.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use figment::Figment;
use figment::providers::{Format as _, Serialized, Toml};
use schemars::schema_for;
use serde_json::{Map, Value, json};

use super::reading::Reading;
use super::{Config, Span};
use crate::reload::is_taken_over;

const DOCUMENT: &str = "docs/configuration.md";
const EXAMPLE: &str = include_str!("../../../../adk-bridge.example.toml");
/// What asks for the document to be written.
const UPDATE: &str = "UPDATE_DOCUMENTS";
/// The longest line of prose in documents.
const WIDTH: usize = 140;

const INTRODUCTION: &str = r#"# Configuration

<!-- Made by crates/server/src/config/reference.rs of the comments in crates/server/src/config.rs: change those. -->

Every key of `adk-bridge.toml`. [adk-bridge.example.toml](../adk-bridge.example.toml) has the same keys to copy. Values come from the
file, then from environment variables, then from the command line (`--listen`, `--data-dir`, `--agent`). An unknown key is refused, and
`adk-bridge check-config` says everything that is wrong at once.

Below each key stand:

- Its type. A duration is written `"90d"`, `"1h"`, `"5m"`, `"2s"` or `"300ms"`. A table in a line is written `{ name = "value" }`.
- Its default. A key that has none, and is not required, is not set by default.
- Whether a [reload](operations.md#change-the-configuration-while-it-runs) takes a new value, or only a restart.
- Its environment variable. There, texts of a list are separated by commas:
  `ADK_BRIDGE__SERVER__ALLOWED_HOSTS=chat.example.org,localhost`. Tables are written with braces:
  `ADK_BRIDGE__AUTH__API_KEYS=[{key="a-long-random-string",user="alice"}]`. Keys of the entries of a list have no variable of their own.
"#;

/// A configuration that has every section, so that every key can be given another value.
const EVERY_SECTION: &str = r#"
[server]
public_url = "https://chat.example.com"
[[auth.api_keys]]
key = "a-long-random-string"
user = "alice"
[[auth.oidc]]
issuer = "https://login.example.com"
audience = "a"
[auth.proxy]
header = "x-assertion"
jwks_url = "https://login.example.com/keys"
audience = "a"
[agent]
kind = "gemini"
vertex = { project = "p", location = "eu" }
token = { kind = "google-access-token" }
[[agent.client_tools]]
name = "a"
[[tools.mcp]]
name = "a"
command = "a"
[budget]
price = { input = 1.0, output = 1.0 }
[[budget.agents]]
id = "gemini"
price = { input = 1.0, output = 1.0 }
[store]
url = "postgres://localhost/a"
[cluster]
key = "another-long-random-string"
"#;

/// A table of the configuration.
struct Section {
    /// Its keys joined by dots: `auth.oidc`.
    path: String,
    /// Whether it is the entry of a list, as `[[auth.oidc]]`.
    is_entry: bool,
    says: String,
    /// Whether a reload takes another value, of a list.
    is_reloaded: Option<bool>,
    /// The section that has the same keys, which are described there.
    like: Option<String>,
    keys: Vec<Key>,
}

struct Key {
    path: String,
    schema: Value,
    is_required: bool,
    /// Whether it is a section, or a list of them.
    is_section: bool,
    /// Whether it belongs to an entry of a list.
    is_of_entry: bool,
    is_reloaded: bool,
}

/// The types of the configuration, as a JSON schema.
struct Types {
    schema: Value,
    /// The types that are described, each with its section.
    seen: Vec<(String, String)>,
    sections: Vec<Section>,
}

fn sections() -> Vec<Section> {
    let mut types = Types {
        schema: schema_for!(Config).into(),
        seen: Vec::new(),
        sections: Vec::new(),
    };
    for (name, schema) in properties(&types.schema) {
        let schema = types.resolved(&schema);
        let is_reloaded = schema["type"] == "array" && types.is_reloaded(&name, &schema);
        types.add(&name, &schema, false, is_reloaded);
    }
    types.sections
}

impl Types {
    /// Adds a section, and those in it. A reload takes a nested one as a whole, if at all.
    fn add(&mut self, path: &str, schema: &Value, of_entry: bool, reloaded: bool) {
        let is_entry = schema["type"] == "array";
        let table = match is_entry {
            true => self.resolved(&schema["items"]),
            false => schema.clone(),
        };
        // What is said of a key stands at the key.
        let is_nested = path.contains('.');
        let says = match (&schema["description"], &table["x-says"]) {
            (Value::String(says), _) if !is_nested => says.clone(),
            (_, says) => says.as_str().unwrap_or_default().to_owned(),
        };
        let name = table["x-name"].as_str().unwrap_or_default().to_owned();
        let like = self.seen.iter().find(|(seen, _)| *seen == name);
        let mut section = Section {
            path: path.to_owned(),
            is_entry,
            says,
            is_reloaded: (is_entry && !is_nested).then_some(reloaded),
            like: like.map(|(_, path)| path.clone()),
            keys: Vec::new(),
        };
        if section.like.is_some() {
            self.sections.push(section);
            return;
        }
        self.seen.push((name, path.to_owned()));
        let is_top = !is_nested && !is_entry;
        let of_entry = of_entry || is_entry;
        let required: Vec<&str> = (table["required"].as_array().into_iter().flatten())
            .filter_map(Value::as_str)
            .collect();
        let mut inner = Vec::new();
        for (name, schema) in properties(&table) {
            let schema = self.resolved(&schema);
            let key = Key {
                path: format!("{path}.{name}"),
                is_required: required.contains(&name.as_str()),
                is_section: self.is_section(&schema),
                is_of_entry: of_entry,
                is_reloaded: match is_top {
                    true => self.is_reloaded(&format!("{path}.{name}"), &schema),
                    false => reloaded,
                },
                schema,
            };
            if key.is_section {
                inner.push((key.path.clone(), key.schema.clone(), key.is_reloaded));
            }
            section.keys.push(key);
        }
        self.sections.push(section);
        for (path, schema, reloaded) in inner {
            self.add(&path, &schema, of_entry, reloaded);
        }
    }

    /// A schema without references, and without the alternative that there is nothing.
    fn resolved(&self, schema: &Value) -> Value {
        let mut found: Map<String, Value> = schema.as_object().cloned().unwrap_or_default();
        if let Some(Value::Array(mut forms)) = found.remove("anyOf") {
            forms.retain(|form| form["type"] != "null");
            match forms.as_slice() {
                [one] => add_missing(&mut found, self.resolved(one)),
                _ => {
                    let forms = forms.iter().map(|form| self.resolved(form)).collect();
                    found.insert("anyOf".to_owned(), Value::Array(forms));
                }
            }
        }
        if let Some(Value::Array(types)) = found.get("type") {
            let mut types = types.iter().filter(|it| *it != "null");
            let only = types.next().cloned().unwrap_or_default();
            found.insert("type".to_owned(), only);
        }
        if let Some(Value::String(reference)) = found.remove("$ref") {
            let name = reference.trim_start_matches("#/$defs/");
            let target = self.resolved(&self.schema["$defs"][name]);
            found.insert("x-name".to_owned(), name.into());
            found.insert("x-says".to_owned(), target["description"].clone());
            add_missing(&mut found, target);
        }
        if let Some(items) = found.get("items").cloned() {
            found.insert("items".to_owned(), self.resolved(&items));
        }
        found.into()
    }

    fn is_section(&self, schema: &Value) -> bool {
        let has_keys = |schema: &Value| schema["properties"].is_object();
        has_keys(schema) || has_keys(&schema["items"])
    }

    /// Whether a running server takes another value of this key, other things being equal.
    fn is_reloaded(&self, path: &str, schema: &Value) -> bool {
        let old = Config::default();
        let mut new = serde_json::to_value(&old).unwrap();
        let place = pointer(path);
        let default = new.pointer(&place).cloned().unwrap_or_default();
        set(&mut new, path, self.sample(schema, &default));
        is_taken_over(&old, &serde_json::from_value(new).unwrap())
    }

    /// A value of this type other than the default.
    fn sample(&self, schema: &Value, default: &Value) -> Value {
        let schema = &self.resolved(schema);
        let choices = choices(schema);
        if !choices.is_empty() {
            let mut others = choices.into_iter().map(|(value, _)| value);
            return others.find(|value| value != default).unwrap();
        }
        if let Some(forms) = schema["anyOf"].as_array() {
            return self.sample(&forms[0], default);
        }
        match schema["type"].as_str().unwrap() {
            "boolean" => json!(default != &json!(true)),
            "integer" => json!(default.as_u64().unwrap_or_default() + 1),
            "number" => json!(default.as_f64().unwrap_or_default() + 1.5),
            "string" if schema["format"] == "time" => json!("07:00+01:00"),
            "string" if schema["format"] == "duration" => json!("7s"),
            // An address, as the most special of texts.
            "string" => json!("127.0.0.1:7"),
            "array" => json!([self.sample(&schema["items"], &Value::Null)]),
            _ => {
                let required = schema["required"].as_array();
                let is_required =
                    |name: &str| required.is_some_and(|it| it.contains(&Value::from(name)));
                let keys = properties(schema);
                let keys = keys.iter().enumerate();
                let keys = keys.filter(|(index, (name, _))| *index == 0 || is_required(name));
                let mut table: Map<String, Value> = keys
                    .map(|(_, (name, schema))| (name.clone(), self.sample(schema, &Value::Null)))
                    .collect();
                if table.is_empty() {
                    table.insert("a".to_owned(), "b".into());
                }
                table.into()
            }
        }
    }
}

fn properties(schema: &Value) -> Vec<(String, Value)> {
    let keys = schema["properties"].as_object().into_iter().flatten();
    keys.map(|(name, schema)| (name.clone(), schema.clone()))
        .collect()
}

fn add_missing(schema: &mut Map<String, Value>, target: Value) {
    let Value::Object(target) = target else {
        return;
    };
    for (name, value) in target {
        schema.entry(name).or_insert(value);
    }
}

/// The values that a key may have, each with what is said of it, if it has only some.
fn choices(schema: &Value) -> Vec<(Value, Option<String>)> {
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| (value.clone(), None)).collect();
    }
    let forms = schema["oneOf"].as_array().into_iter().flatten();
    forms
        .flat_map(|form| {
            let says = form["description"].as_str();
            let values = match &form["const"] {
                Value::Null => choices(form),
                value => vec![(value.clone(), None)],
            };
            values
                .into_iter()
                .map(move |(value, _)| (value, says.map(continued)))
        })
        .collect()
}

/// Where a key is in a configuration. Of a list it is the first entry.
fn pointer(path: &str) -> String {
    let mut pointer = String::new();
    let parts: Vec<&str> = path.split('.').collect();
    for (index, part) in parts.iter().enumerate() {
        write!(pointer, "/{part}").unwrap();
        let so_far = parts[..=index].join(".");
        if is_list(&so_far) && index + 1 < parts.len() {
            pointer.push_str("/0");
        }
    }
    pointer
}

fn is_list(path: &str) -> bool {
    let lists = [
        "auth.api_keys",
        "auth.oidc",
        "agent.client_tools",
        "tools.mcp",
        "budget.agents",
    ];
    lists.contains(&path)
}

fn set(config: &mut Value, path: &str, value: Value) {
    let place = pointer(path);
    let (parent, name) = place.rsplit_once('/').unwrap();
    let parent = config.pointer_mut(parent);
    let parent = parent.and_then(Value::as_object_mut);
    parent.unwrap().insert(name.to_owned(), value);
}

/// The document.
fn document(sections: &[Section]) -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str("\n| section | what it is about |\n|---|---|\n");
    for section in sections {
        let says = linked(&one_line(&section.says));
        let end = says.find(". ").map_or(says.len(), |at| at + 1);
        let says = says[..end].trim_end_matches('.');
        let (title, anchor) = (title(section), anchor(&section.path));
        writeln!(text, "| [`{title}`](#{anchor}) | {says} |").unwrap();
    }
    for section in sections {
        write!(text, "\n## `{}`\n", title(section)).unwrap();
        if let Some(is_reloaded) = section.is_reloaded {
            let variable = variable(&section.path);
            let taken = taken_by(is_reloaded);
            write!(text, "\nlist of tables · {taken} · `{variable}`\n").unwrap();
        }
        write!(text, "\n{}", prose(&section.says)).unwrap();
        if let Some(like) = &section.like {
            let says = format!("The keys are those of [`[{like}]`](#{}).", anchor(like));
            write!(text, "\n{}", prose(&says)).unwrap();
        }
        for key in &section.keys {
            write!(text, "\n### {}\n\n{}", key.path, prose(&facts(key))).unwrap();
            write!(
                text,
                "\n{}",
                prose(key.schema["description"].as_str().unwrap())
            )
            .unwrap();
            let items = choices(&key.schema["items"]);
            let listed = choices(&key.schema).into_iter().chain(items);
            let listed: Vec<String> = listed
                .filter_map(|(value, says)| Some(format!("- `{}`: {}", toml(&value), says?)))
                .collect();
            if !listed.is_empty() {
                write!(text, "\n{}", prose(&listed.join("\n"))).unwrap();
            }
        }
    }
    text
}

fn title(section: &Section) -> String {
    match section.is_entry {
        true => format!("[[{}]]", section.path),
        false => format!("[{}]", section.path),
    }
}

/// What code hosts make of a heading.
fn anchor(heading: &str) -> String {
    heading.replace('.', "")
}

/// What is to be known of a key besides what it is for, in one line.
fn facts(key: &Key) -> String {
    let mut facts = vec![kind(key, &key.schema)];
    match &key.schema["default"] {
        _ if key.is_required => facts.push("required".to_owned()),
        Value::Null => {}
        _ if key.is_section => {}
        // An empty text that the rules refuse is no default.
        value if value == "" && !refusal(&key.path, value.clone()).is_empty() => {
            facts.push("required".to_owned());
        }
        value => facts.push(format!("default `{}`{}", toml(value), size(key, value))),
    }
    facts.extend(range(key));
    facts.push(taken_by(key.is_reloaded).to_owned());
    if !key.is_of_entry {
        facts.push(format!("`{}`", variable(&key.path)));
    }
    facts.join(" · ")
}

fn taken_by(is_reloaded: bool) -> &'static str {
    if is_reloaded { "reload" } else { "restart" }
}

fn variable(path: &str) -> String {
    format!("ADK_BRIDGE__{}", path.replace('.', "__").to_uppercase())
}

fn kind(key: &Key, schema: &Value) -> String {
    let choices: Vec<String> = choices(schema)
        .iter()
        .map(|(value, _)| format!("`{}`", toml(value)))
        .collect();
    if let [first @ .., last] = choices.as_slice() {
        return format!("{} or {last}", first.join(", "));
    }
    if let Some(forms) = schema["anyOf"].as_array() {
        let forms: Vec<String> = forms.iter().map(|form| kind(key, form)).collect();
        return forms.join(", or ");
    }
    let name = key.path.rsplit('.').next().unwrap_or_default();
    match schema["type"].as_str() {
        Some("boolean") => "`true` or `false`".to_owned(),
        Some("integer") if name.ends_with("bytes_per_second") => "bytes per second".to_owned(),
        Some("integer") if name.contains("bytes") => "bytes".to_owned(),
        Some("integer" | "number") => "number".to_owned(),
        Some("string") if schema["format"] == "duration" => "duration".to_owned(),
        Some("string") if schema["format"] == "time" => "time of day".to_owned(),
        Some("string") => "text".to_owned(),
        Some("array") if key.is_section => {
            format!(
                "list of tables, [`[[{0}]]`](#{1})",
                key.path,
                anchor(&key.path)
            )
        }
        Some("array") => format!(
            "list of {}",
            kind(key, &schema["items"]).replace("text", "texts")
        ),
        Some("object") if key.is_section => {
            format!("table, [`[{0}]`](#{1})", key.path, anchor(&key.path))
        }
        Some("object") => "table".to_owned(),
        other => panic!("{}: {other:?} has no name for people", key.path),
    }
}

/// Large numbers of bytes, as people read them.
fn size(key: &Key, value: &Value) -> String {
    let Some(bytes) = value.as_u64().filter(|_| key.path.contains("bytes")) else {
        return String::new();
    };
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB")] {
        if bytes.is_multiple_of(unit) && bytes > 0 {
            return format!(" ({} {name})", bytes / unit);
        }
    }
    String::new()
}

fn range(key: &Key) -> Option<String> {
    let least = match (&key.schema["x-at-least"], &key.schema["minimum"]) {
        (Value::String(span), _) if span == "1ms" => return Some("more than `0s`".to_owned()),
        (Value::String(text), _) if text.contains('`') => text.clone(),
        (Value::String(span), _) => format!("`{span}`"),
        (_, Value::Number(least)) if least.as_u64() != Some(0) => format!("`{least}`"),
        _ => return None,
    };
    Some(match key.schema["x-at-most"].as_str() {
        Some(most) => format!("{least} to `{most}`"),
        None => format!("at least {least}"),
    })
}

/// A value as a configuration file has it.
fn toml(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let fields: Vec<String> = (fields.iter())
                .map(|(name, value)| format!("{name} = {}", toml(value)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// A sentence that stands after a colon.
fn continued(text: &str) -> String {
    let text = one_line(text);
    let (first, rest) = text.split_at(1);
    format!("{}{rest}", first.to_lowercase())
}

/// Names of other documents, as links to them.
fn linked(text: &str) -> String {
    let mut parts = text.split("`docs/");
    let mut linked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(".md`").unwrap();
        write!(linked, "[{name}]({name}.md){rest}").unwrap();
    }
    linked
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Paragraphs and lists in lines that are not too long.
fn prose(text: &str) -> String {
    let mut paragraphs: Vec<String> = vec![String::new()];
    for line in linked(text).lines() {
        let is_item = line.starts_with("- ");
        if is_item || line.is_empty() {
            paragraphs.push(String::new());
        }
        let paragraph = paragraphs.last_mut().unwrap();
        if !paragraph.is_empty() {
            paragraph.push(' ');
        }
        paragraph.push_str(line.trim());
    }
    paragraphs.retain(|it| !it.is_empty());
    let mut written = String::new();
    for (index, paragraph) in paragraphs.iter().enumerate() {
        let is_item = paragraph.starts_with("- ");
        let is_first_item = is_item && !paragraphs[index.saturating_sub(1)].starts_with("- ");
        if index > 0 && (!is_item || is_first_item) {
            written.push('\n');
        }
        let mut length = 0;
        for word in paragraph.split(' ') {
            let width = word.chars().count();
            if length > 0 && length + 1 + width > WIDTH {
                written.push_str(if is_item { "\n  " } else { "\n" });
                length = if is_item { 2 } else { 0 };
            } else if length > 0 {
                written.push(' ');
                length += 1;
            }
            written.push_str(word);
            length += width;
        }
        written.push('\n');
    }
    written
}

#[test]
fn the_reference_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(DOCUMENT);
    let made = document(&sections());
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let mut lines = made.lines().zip(written.lines());
    let first = lines.find(|(made, written)| made != written);
    assert!(
        made == written,
        "{DOCUMENT} is old ({first:?}): run `{UPDATE}=1 cargo test -p adk-bridge --lib config::reference`"
    );
}

#[test]
fn everything_is_described_for_operators() {
    let sections = sections();
    let keys = sections.iter().flat_map(|section| &section.keys);
    let said = keys.map(|key| {
        let says = key.schema["description"].as_str();
        (key.path.clone(), says.unwrap_or_default().to_owned())
    });
    let of_sections = sections.iter();
    let of_sections = of_sections.map(|section| (section.path.clone(), section.says.clone()));
    let said: Vec<(String, String)> = said.chain(of_sections).collect();
    assert!(said.len() > 130, "only {} keys and sections", said.len());
    for (path, says) in said {
        assert!(says.ends_with('.'), "{path} needs a doc comment: {says:?}");
        // Neither links to the code nor its paths.
        assert!(
            !says.contains("[`") && !says.contains("::"),
            "{path}: {says}"
        );
    }
}

#[test]
fn the_example_has_every_key_and_no_other() {
    let sections = sections();
    let mut known: BTreeSet<String> = BTreeSet::new();
    for section in &sections {
        known.insert(section.path.clone());
        known.extend(section.keys.iter().map(|key| key.path.clone()));
    }
    let mut found = BTreeSet::new();
    let mut section = String::new();
    for line in EXAMPLE.lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        // What is not TOML is prose.
        let Ok(values) = Figment::from(Toml::string(line)).extract::<Value>() else {
            continue;
        };
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
            found.insert(section.clone());
            continue;
        }
        // Several agents have the keys of one.
        let section = match section.as_str() {
            "agents" => "agent",
            other => other,
        };
        found.extend(paths(section, &values, &known));
    }
    let lacks: Vec<_> = known.difference(&found).collect();
    let more: Vec<_> = found.difference(&known).collect();
    assert!(lacks.is_empty(), "adk-bridge.example.toml lacks {lacks:?}");
    assert!(
        more.is_empty(),
        "adk-bridge.example.toml has {more:?}, which are unknown"
    );
}

/// The keys of a line, and those of sections that are written in it.
fn paths(section: &str, values: &Value, known: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in values.as_object().into_iter().flatten() {
        let path = format!("{section}.{name}");
        let is_section = known.iter().any(|key| key.starts_with(&format!("{path}.")));
        if is_section {
            found.extend(paths(&path, value, known));
        }
        found.push(path);
    }
    found
}

/// A configuration with every section.
fn every_section() -> Value {
    let figment = Figment::from(Serialized::defaults(Config::default()));
    let config: Config = figment
        .merge(Toml::string(EVERY_SECTION))
        .extract()
        .unwrap();
    assert_eq!(said(config.problems()), "");
    serde_json::to_value(config).unwrap()
}

fn said(problems: Vec<super::ConfigError>) -> String {
    let lines = problems.iter().map(|problem| format!("{problem}\n"));
    lines.collect()
}

/// What is said of a configuration with this value.
fn refusal(path: &str, value: Value) -> String {
    let mut config = every_section();
    set(&mut config, path, value);
    let reading = Reading::of(&Figment::from(Serialized::defaults(config)));
    let (_, problems) = reading.with_rules().into_parts();
    said(problems)
}

#[test]
fn ranges_are_those_that_are_checked() {
    let mut looked_at = 0;
    for key in sections().iter().flat_map(|section| &section.keys) {
        let name = key.path.rsplit('.').next().unwrap();
        let taken = |value: Value| {
            let said = refusal(&key.path, value.clone());
            assert!(
                said.is_empty() || said.contains(name),
                "{}: {said}",
                key.path
            );
            said.is_empty()
        };
        let millis = |name: &str| {
            let span = key.schema[name].as_str()?.parse::<Span>().ok()?;
            Some(u64::try_from(span.0.as_millis()).unwrap())
        };
        let span = |millis: u64| json!(format!("{millis}ms"));
        if key.schema["format"] == "duration" {
            looked_at += 1;
            let least = millis("x-at-least").unwrap_or(0);
            assert!(taken(span(least)), "{} may be {least}ms", key.path);
            assert!(
                least == 0 || !taken(span(least - 1)),
                "{} below {least}ms",
                key.path
            );
            if let Some(most) = millis("x-at-most") {
                assert!(taken(span(most)) && !taken(span(most + 1)), "{}", key.path);
            }
        } else if key.schema["x-at-least"].is_string() {
            assert!(!taken(json!(0)), "{} may be 0", key.path);
        } else if key.schema["type"] == "integer" {
            looked_at += 1;
            let least = key.schema["minimum"].as_u64().unwrap();
            assert!(taken(json!(least)), "{} may be {least}", key.path);
            assert!(
                least == 0 || !taken(json!(least - 1)),
                "{} below {least}",
                key.path
            );
        }
    }
    assert!(looked_at > 40, "only {looked_at} numbers and durations");
}

#[test]
fn whatever_is_wrong_is_named() {
    for section in sections().iter().filter(|section| section.like.is_none()) {
        let unknown = refusal(&format!("{}.no_key", section.path), json!(true));
        assert!(unknown.contains("no_key"), "[{}]: {unknown}", section.path);
        for key in &section.keys {
            let name = key.path.rsplit('.').next().unwrap();
            // Fits no key.
            let said = refusal(&key.path, json!([{"wrong": [5]}]));
            assert!(said.contains(name), "{}: {said}", key.path);
            if key.is_required {
                let mut config = every_section();
                let place = pointer(&key.path);
                let parent = config.pointer_mut(place.rsplit_once('/').unwrap().0);
                parent.unwrap().as_object_mut().unwrap().remove(name);
                let figment = Figment::from(Serialized::defaults(config));
                let (_, problems) = Reading::of(&figment).with_rules().into_parts();
                let said = self::said(problems);
                assert!(said.contains(name), "without {}: {said}", key.path);
            }
        }
    }
}
