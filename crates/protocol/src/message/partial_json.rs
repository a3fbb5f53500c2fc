//! Reads JSON that is still arriving, with the same result as the AI SDK's `parsePartialJson`.
//!
//! Valid JSON is read as it is. Any other text is cut after its last sound character, everything open there is closed,
//! and the result is read if it is JSON; a text that cannot be repaired has no value.
//!
//! The versions differ in one place: without [`Feature::UnfinishedArrays`] any character after `[` counts as sound, so
//! `[-` (the beginning of a negative number) has no value there; with it, the value is `[]`.
//!
//! JavaScript reads some texts that `serde_json` refuses. Half of a surrogate pair (`\ud83d`, as at the edge of two
//! deltas) becomes U+FFFD here, while JavaScript keeps the half. Numbers out of range and more than 128 levels of
//! nesting have no value. A `__proto__` key, or a `constructor` with a `prototype`, makes a text unreadable in both.

use std::borrow::Cow;

use serde_json::Value;

use crate::json_text::Json;
use crate::sdk::{Feature, Sdk};

/// Returns the value of a text whose end may be missing, in time proportional to its length.
pub fn parse(text: &str, sdk: Sdk) -> Option<Json> {
    read(text).or_else(|| read(&repair(text, sdk)))
}

/// Cuts and closes a text so that it becomes JSON, if possible.
pub fn repair(text: &str, sdk: Sdk) -> String {
    let mut scan = Scan {
        text,
        sdk,
        open: vec![Open::Root],
        sound: 0,
        literal: 0,
        digits: 0,
    };
    for (start, char) in text.char_indices() {
        // JavaScript scans UTF-16 units, and in invalid JSON one unit and two can give different results.
        for _ in 0..char.len_utf16() {
            scan.step(char, start, start + char.len_utf8());
        }
    }
    scan.close()
}

struct Scan<'a> {
    text: &'a str,
    sdk: Sdk,
    /// The open values, innermost last.
    open: Vec<Open>,
    /// Where the last sound character ends.
    sound: usize,
    /// Where the last literal starts.
    literal: usize,
    /// Digits of the current `\u` escape.
    digits: u8,
}

#[derive(Clone, Copy)]
enum Open {
    Root,
    Done,
    Object(InObject),
    Array(InArray),
    Text,
    Escape,
    Unicode,
    Literal,
    Number,
}

#[derive(Clone, Copy)]
enum InObject {
    Start,
    Key,
    AfterKey,
    BeforeValue,
    AfterValue,
    AfterComma,
}

#[derive(Clone, Copy)]
enum InArray {
    Start,
    AfterValue,
    AfterComma,
}

const LITERALS: [&str; 3] = ["true", "false", "null"];

impl Scan<'_> {
    fn step(&mut self, char: char, start: usize, end: usize) {
        match self.open.last().copied().unwrap_or(Open::Done) {
            Open::Root => self.value(char, start, end, Open::Done),
            Open::Done => {}
            Open::Object(place) => match (place, char) {
                (InObject::Start | InObject::AfterComma, '"') => {
                    self.turn(Open::Object(InObject::Key))
                }
                (InObject::Start, '}') => self.shut(end),
                (InObject::Key, '"') => self.turn(Open::Object(InObject::AfterKey)),
                (InObject::AfterKey, ':') => self.turn(Open::Object(InObject::BeforeValue)),
                (InObject::BeforeValue, _) => {
                    self.value(char, start, end, Open::Object(InObject::AfterValue))
                }
                (InObject::AfterValue, _) => self.after_value(char, end),
                _ => {}
            },
            Open::Array(InArray::Start) if char == ']' => self.shut(end),
            Open::Array(InArray::Start) => {
                if !self.sdk.has(Feature::UnfinishedArrays) {
                    self.sound = end;
                }
                self.value(char, start, end, Open::Array(InArray::AfterValue));
            }
            Open::Array(InArray::AfterValue) => {
                if char != ',' {
                    self.sound = end;
                }
                self.after_value(char, end);
            }
            Open::Array(InArray::AfterComma) => {
                self.value(char, start, end, Open::Array(InArray::AfterValue))
            }
            Open::Text => match char {
                '"' => self.shut(end),
                '\\' => self.open.push(Open::Escape),
                _ => self.sound = end,
            },
            Open::Escape if char == 'u' => {
                self.digits = 0;
                self.turn(Open::Unicode);
            }
            Open::Escape => self.shut(end),
            Open::Unicode if char.is_ascii_hexdigit() => {
                self.digits += 1;
                if self.digits == 4 {
                    self.shut(end);
                }
            }
            Open::Unicode => {}
            Open::Number => match char {
                '0'..='9' => self.sound = end,
                'e' | 'E' | '-' | '.' => {}
                _ => {
                    self.open.pop();
                    self.after_value(char, end);
                }
            },
            Open::Literal => {
                let so_far = &self.text[self.literal..end];
                if LITERALS.iter().any(|literal| literal.starts_with(so_far)) {
                    self.sound = end;
                } else {
                    self.open.pop();
                    self.after_value(char, end);
                }
            }
        }
    }

    /// Opens a value if one starts here; `then` is the state after it.
    fn value(&mut self, char: char, start: usize, end: usize, then: Open) {
        let inner = match char {
            '"' => Open::Text,
            'f' | 't' | 'n' => {
                self.literal = start;
                Open::Literal
            }
            '-' | '0'..='9' => Open::Number,
            '{' => Open::Object(InObject::Start),
            '[' => Open::Array(InArray::Start),
            _ => return,
        };
        if char != '-' {
            self.sound = end;
        }
        self.turn(then);
        self.open.push(inner);
    }

    fn after_value(&mut self, char: char, end: usize) {
        match (self.open.last(), char) {
            (Some(Open::Object(InObject::AfterValue)), ',') => {
                self.turn(Open::Object(InObject::AfterComma))
            }
            (Some(Open::Array(InArray::AfterValue)), ',') => {
                self.turn(Open::Array(InArray::AfterComma))
            }
            (Some(Open::Object(InObject::AfterValue)), '}')
            | (Some(Open::Array(InArray::AfterValue)), ']') => {
                self.shut(end);
            }
            _ => {}
        }
    }

    fn turn(&mut self, into: Open) {
        self.open.pop();
        self.open.push(into);
    }

    fn shut(&mut self, end: usize) {
        self.sound = end;
        self.open.pop();
    }

    fn close(self) -> String {
        let mut result = self.text[..self.sound].to_owned();
        for open in self.open.iter().rev() {
            match open {
                Open::Text => result.push('"'),
                Open::Object(_) => result.push('}'),
                Open::Array(_) => result.push(']'),
                Open::Literal => {
                    let so_far = &self.text[self.literal..];
                    let rest = LITERALS
                        .iter()
                        .find_map(|literal| literal.strip_prefix(so_far));
                    result.push_str(rest.unwrap_or_default());
                }
                Open::Root | Open::Done | Open::Escape | Open::Unicode | Open::Number => {}
            }
        }
        result
    }
}

fn read(text: &str) -> Option<Json> {
    let json = Json::parse(text)
        .or_else(|error| match mend_surrogates(text) {
            Cow::Owned(mended) => Json::parse(&mended),
            Cow::Borrowed(_) => Err(error),
        })
        .ok()?;
    // The kept text does not escape letters.
    let may_reach = ["__proto__", "constructor"]
        .iter()
        .any(|name| json.text().contains(name));
    (!may_reach || !reaches_prototype(&json.to_value())).then_some(json)
}

fn reaches_prototype(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(reaches_prototype),
        Value::Object(map) => {
            map.contains_key("__proto__")
                || map
                    .get("constructor")
                    .is_some_and(|constructor| constructor.get("prototype").is_some())
                || map.values().any(reaches_prototype)
        }
        _ => false,
    }
}

/// Replaces `\u` escapes of unpaired surrogates.
fn mend_surrogates(text: &str) -> Cow<'_, str> {
    let mut mended = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        at += found;
        match unit(text, at) {
            Some(0xd800..=0xdbff) if matches!(unit(text, at + 6), Some(0xdc00..=0xdfff)) => {
                at += 12
            }
            Some(0xd800..=0xdfff) => {
                mended.push_str(&text[copied..at]);
                mended.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            // The character after a backslash may be a backslash.
            _ => at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    mended.push_str(&text[copied..]);
    Cow::Owned(mended)
}

/// Returns the UTF-16 unit of the `\u` escape that starts here, if one does.
fn unit(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u16::from_str_radix(digits, 16).ok())?
}
