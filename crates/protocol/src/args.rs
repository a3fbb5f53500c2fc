//! Streamed tool arguments (`partialArgs`) as growing JSON text, which is what `tool-input-delta` carries.
//!
//! ```text
//!   $.city "Rey" …        {"city":"Rey
//!   $.city "kjavik"       {"city":"Reykjavik
//!   $.days[0] 3           {"city":"Reykjavik","days":[3
//!   end                   {"city":"Reykjavik","days":[3]}
//! ```
//!
//! The text only ever grows, so arguments must arrive in document order. A path that goes back into a container which
//! has been left cannot be written; the stream of deltas then stops, and the complete input follows with the call.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::event::PartialArg;
use crate::json_text::Json;

/// The deepest path that is written; deeper ones come with the complete input.
const MAX_DEPTH: usize = 64;

/// Writes one call's arguments as they come.
#[derive(Debug, Default)]
pub struct ArgsWriter {
    open: Vec<Open>,
    in_string: bool,
    begun: bool,
    broken: bool,
    /// Entries of arrays that were skipped and then filled in.
    filled: usize,
}

#[derive(Debug, PartialEq)]
enum Open {
    Object { key: String, left: BTreeSet<String> },
    Array { index: usize },
}

#[derive(Debug, PartialEq)]
enum Step {
    Key(String),
    Index(usize),
}

impl ArgsWriter {
    /// Appends to `out` the text by which `arg` extends what has been written.
    pub fn push(&mut self, arg: &PartialArg<'_>, out: &mut String) {
        if self.broken {
            return;
        }
        let Some(path) = arg.json_path.as_deref().and_then(parse_path) else {
            self.broken = true;
            return;
        };
        let continues = self.in_string && self.is_at(&path);
        if !continues && !self.go_to(&path, out) {
            self.broken = true;
            return;
        }
        if let Some(text) = arg.string_value.as_deref() {
            if !continues {
                out.push('"');
            }
            push_escaped(text, out);
            self.in_string = true;
            if arg.will_continue != Some(true) {
                out.push('"');
                self.in_string = false;
            }
        } else if !continues {
            match (&arg.number_value, arg.bool_value) {
                (Some(number), _) if is_number(number) => out.push_str(number.text()),
                (_, Some(flag)) => out.push_str(if flag { "true" } else { "false" }),
                _ => out.push_str("null"),
            }
        }
    }

    /// Closes what is open, so that the text as a whole is JSON.
    pub fn finish(&mut self, out: &mut String) {
        if self.broken || !self.begun {
            return;
        }
        self.close_string(out);
        while let Some(open) = self.open.pop() {
            out.push(open.closing());
        }
        self.broken = true;
    }

    fn is_at(&self, path: &[Step]) -> bool {
        self.open.len() == path.len()
            && self
                .open
                .iter()
                .zip(path)
                .all(|(open, step)| open.is_at(step))
    }

    /// Leaves and enters containers until the value at `path` is next. Returns false if that would mean going back.
    fn go_to(&mut self, path: &[Step], out: &mut String) -> bool {
        if path.is_empty() || path.len() > MAX_DEPTH {
            return false;
        }
        self.close_string(out);
        let common = self
            .open
            .iter()
            .zip(path)
            .take_while(|(open, step)| open.is_at(step))
            .count();
        // The value that was written last is complete: the same place cannot be written again.
        if common == self.open.len() && common > 0 || common == path.len() {
            return false;
        }
        self.filled += self.gap(common, path);
        if self.filled > MAX_FILLED {
            return false;
        }
        let fresh = !self.begun;
        self.begun = true;
        while self.open.len() > common + 1 {
            if let Some(open) = self.open.pop() {
                out.push(open.closing());
            }
        }
        if let Some(open) = self.open.last_mut().filter(|_| !fresh) {
            if !open.advance(&path[common], out) {
                return false;
            }
        } else {
            self.open.push(Open::enter(&path[common], out));
        }
        for step in &path[common + 1..] {
            self.open.push(Open::enter(step, out));
        }
        true
    }

    /// How many entries of arrays have to be filled on the way to `path`.
    fn gap(&self, common: usize, path: &[Step]) -> usize {
        let passed = match self.open.get(common) {
            Some(Open::Array { index }) => index + 1,
            _ => 0,
        };
        let skipped = path[common..].iter().map(|step| match step {
            Step::Index(index) => *index,
            Step::Key(_) => 0,
        });
        skipped.sum::<usize>().saturating_sub(passed)
    }

    fn close_string(&mut self, out: &mut String) {
        if std::mem::take(&mut self.in_string) {
            out.push('"');
        }
    }
}

impl Open {
    fn enter(step: &Step, out: &mut String) -> Self {
        match step {
            Step::Key(key) => {
                out.push('{');
                push_key(key, out);
                Self::Object {
                    key: key.clone(),
                    left: BTreeSet::new(),
                }
            }
            Step::Index(index) => {
                out.push('[');
                (0..*index).for_each(|_| out.push_str("null,"));
                Self::Array { index: *index }
            }
        }
    }

    fn advance(&mut self, step: &Step, out: &mut String) -> bool {
        match (self, step) {
            (Self::Object { key, left }, Step::Key(next)) => {
                if key == next || left.contains(next) {
                    return false;
                }
                left.insert(std::mem::replace(key, next.clone()));
                out.push(',');
                push_key(next, out);
                true
            }
            (Self::Array { index }, Step::Index(next)) if *next > *index => {
                (*index + 1..*next).for_each(|_| out.push_str(",null"));
                out.push(',');
                *index = *next;
                true
            }
            _ => false,
        }
    }

    fn is_at(&self, step: &Step) -> bool {
        match (self, step) {
            (Self::Object { key, .. }, Step::Key(other)) => key == other,
            (Self::Array { index }, Step::Index(other)) => index == other,
            _ => false,
        }
    }

    fn closing(&self) -> char {
        match self {
            Self::Object { .. } => '}',
            Self::Array { .. } => ']',
        }
    }
}

/// Puts one piece of streamed arguments into the value that they grow to. Pieces of a string are joined.
pub fn assign(arg: &PartialArg<'_>, value: &mut Value) {
    let Some(path) = arg.json_path.as_deref().and_then(parse_path) else {
        return;
    };
    if path.len() > MAX_DEPTH {
        return;
    }
    let mut place = value;
    for step in &path {
        place = match step {
            Step::Key(key) => {
                if !place.is_object() {
                    *place = Value::Object(Map::new());
                }
                match place {
                    Value::Object(fields) => fields.entry(key.clone()).or_insert(Value::Null),
                    _ => return,
                }
            }
            Step::Index(index) => {
                if !place.is_array() {
                    *place = Value::Array(Vec::new());
                }
                match place {
                    // A model writes entries in order; a gap is a hostile index, which must not fill memory.
                    Value::Array(items) if *index < items.len() + MAX_GAP => {
                        if items.len() <= *index {
                            items.resize(*index + 1, Value::Null);
                        }
                        &mut items[*index]
                    }
                    _ => return,
                }
            }
        };
    }
    match (place, arg.string_value.as_deref()) {
        (Value::String(text), Some(more)) => text.push_str(more),
        (place, Some(text)) => *place = Value::String(text.to_owned()),
        (place, None) => {
            *place = match (&arg.number_value, arg.bool_value) {
                (Some(number), _) => number.to_value(),
                (None, Some(flag)) => Value::Bool(flag),
                (None, None) => Value::Null,
            };
        }
    }
}

fn is_number(json: &Json) -> bool {
    json.text()
        .starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// How many entries of an array one piece may skip.
const MAX_GAP: usize = 100;

/// The most entries that are filled in one call's arguments, because their array was entered behind them: a hostile
/// index must not fill memory.
const MAX_FILLED: usize = 10_000;

/// Reads `$.a.b[0]["c d"]`.
fn parse_path(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (key, after) = after.split_at(end);
            if key.is_empty() {
                return None;
            }
            steps.push(Step::Key(key.to_owned()));
            rest = after;
        } else {
            let inside = rest.strip_prefix('[')?;
            if let Some(quote @ ('"' | '\'')) = inside.chars().next() {
                let end = inside[1..].find([quote])? + 1;
                steps.push(Step::Key(inside[1..end].to_owned()));
                rest = inside[end + 1..].strip_prefix(']')?;
            } else {
                let (index, after) = inside.split_once(']')?;
                let index: u32 = index.parse().ok()?;
                steps.push(Step::Index(index as usize));
                rest = after;
            }
        }
    }
    Some(steps)
}

fn push_key(key: &str, out: &mut String) {
    out.push('"');
    push_escaped(key, out);
    out.push_str("\":");
}

/// Escapes as JSON does, without the quotes.
fn push_escaped(text: &str, out: &mut String) {
    use std::fmt::Write as _;
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => {
                // Writing into a String cannot fail.
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::json;

    use super::*;

    #[test]
    fn grows_to_the_complete_arguments() {
        let cases: &[(&[PartialArg<'_>], Value)] = &[
            (
                &[
                    string("$.city", "Rey\"k", true),
                    string("$.city", "jav\u{1}ik", true),
                ],
                json!({"city": "Rey\"kjav\u{1}ik"}),
            ),
            (
                &[
                    string("$.city", "Oslo", false),
                    number("$.days[0]", 3),
                    number("$.days[1]", 4),
                    string("$.who.name", "a", true),
                    string("$.who['last name']", "b", true),
                    PartialArg {
                        json_path: Some(Cow::Borrowed("$.ok")),
                        bool_value: Some(true),
                        ..PartialArg::default()
                    },
                ],
                json!({"city": "Oslo", "days": [3, 4], "who": {"name": "a", "last name": "b"}, "ok": true}),
            ),
            (
                &[
                    string("$.rows[0].a", "x", false),
                    string("$.rows[0].b", "y", false),
                    string("$.rows[2].a", "z", true),
                ],
                json!({"rows": [{"a": "x", "b": "y"}, null, {"a": "z"}]}),
            ),
        ];
        for (args, expected) in cases {
            let text = write(args);
            let mut value = Value::Null;
            for arg in *args {
                assign(arg, &mut value);
            }
            assert_eq!(&value, expected);
            assert_eq!(
                &serde_json::from_str::<Value>(&text).unwrap(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn stops_where_it_would_have_to_go_back() {
        let mut writer = ArgsWriter::default();
        let mut text = String::new();
        for arg in [
            string("$.a.x", "1", false),
            string("$.b", "2", false),
            string("$.a.y", "3", false),
            string("$.c", "4", false),
        ] {
            writer.push(&arg, &mut text);
        }
        writer.finish(&mut text);
        assert_eq!(text, r#"{"a":{"x":"1"},"b":"2""#);
    }

    #[test]
    fn refuses_odd_paths() {
        for path in [
            "",
            "city",
            "$..a",
            "$[",
            "$[x]",
            "$[99999999]",
            "$.a[",
            "$['a'",
        ] {
            let mut text = String::new();
            ArgsWriter::default().push(&string(path, "x", false), &mut text);
            assert_eq!(text, "", "{path}");
        }
    }

    #[test]
    fn fills_arrays_only_so_far() {
        let deep: Vec<String> = (0..100)
            .map(|key| format!("$.k{key}{}", "[999]".repeat(9)))
            .collect();
        let args: Vec<_> = deep.iter().map(|path| number(path, 1)).collect();
        let mut writer = ArgsWriter::default();
        let mut text = String::new();
        for arg in &args {
            writer.push(arg, &mut text);
        }
        assert!(text.contains("null"));
        assert!(text.len() < 6 * MAX_FILLED, "{} bytes", text.len());
    }

    fn write(args: &[PartialArg<'_>]) -> String {
        let mut writer = ArgsWriter::default();
        let mut text = String::new();
        for arg in args {
            writer.push(arg, &mut text);
        }
        writer.finish(&mut text);
        text
    }

    fn string<'a>(path: &'a str, value: &'a str, more: bool) -> PartialArg<'a> {
        PartialArg {
            json_path: Some(Cow::Borrowed(path)),
            string_value: Some(Cow::Borrowed(value)),
            will_continue: Some(more),
            ..PartialArg::default()
        }
    }

    fn number(path: &str, value: i64) -> PartialArg<'_> {
        PartialArg {
            json_path: Some(Cow::Borrowed(path)),
            number_value: Some(json!(value).into()),
            ..PartialArg::default()
        }
    }
}
