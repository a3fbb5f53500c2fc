//! JSON as browsers write it, including half characters, with a limit on the number of values.
//!
//! A JavaScript string that was cut inside an emoji contains half of a surrogate pair. `JSON.stringify` writes it as an
//! escape, which `serde_json` refuses; here it is read as U+FFFD, which browsers show for it.
//!
//! An object with two fields of the same name is refused: readers differ in which of them they use.
//!
//! A tree of values takes up to 250 times the bytes of its text (`[[[` is the worst case), so values are counted before
//! anything is built.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use memchr::memchr2;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use thiserror::Error;

/// The most values in one JSON text. A history of 400 messages with tool calls has about 20,000, a table of 25,000 rows
/// and five columns 150,000. A tree of this many takes at most 64 MB.
pub const MAX_VALUES: usize = 150_000;

/// The most memory that one value takes in a tree: an object with one field.
pub const VALUE_BYTES: usize = 420;

/// A text has so many values that reading it would take much more memory than the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the JSON holds more than {MAX_VALUES} values; send fewer, or large data as text or as an uploaded file"
)]
pub struct TooManyValues;

/// What a scan finds in a text without building its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    /// Never less than the real number; an empty list or object may count as two.
    pub values: usize,
    /// Whether there are half characters.
    has_halves: bool,
}

/// Refuses a text in which an object has two fields of the same name.
pub fn check_names(json: &[u8]) -> serde_json::Result<()> {
    read_whole::<Unambiguous>(json).map(|_| ())
}

/// Reads something out of a text that [`whole`] returned.
pub fn read_whole<'a, T: Deserialize<'a>>(json: &'a [u8]) -> serde_json::Result<T> {
    serde_json::from_slice(json)
}

/// The text with U+FFFD in place of every half character, unless it has too many values.
pub fn whole(json: &[u8]) -> Result<Cow<'_, [u8]>, TooManyValues> {
    if !scan(json)?.has_halves {
        return Ok(Cow::Borrowed(json));
    }
    let mut json = json.to_vec();
    replace_halves(&mut json);
    Ok(Cow::Owned(json))
}

/// Refuses a text with too many values; a text that is too short for that is not scanned.
pub fn check(json: &[u8]) -> Result<(), TooManyValues> {
    if json.len() < MAX_VALUES {
        return Ok(());
    }
    scan(json).map(|_| ())
}

/// Counts the values of a text, which may be invalid in any way. Strings are skipped.
pub fn scan(json: &[u8]) -> Result<Scan, TooManyValues> {
    let mut found = Scan {
        values: 1,
        has_halves: false,
    };
    let mut rest = json;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => rest = after_string(after, &mut found.has_halves),
            b'[' | b'{' | b',' => {
                found.values += 1;
                if found.values > MAX_VALUES {
                    return Err(TooManyValues);
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Accepts a value without duplicate names; nothing of it is kept.
struct Unambiguous;

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NamesVisitor)
    }
}

struct NamesVisitor;

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = Unambiguous;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unambiguous, A::Error> {
        while items.next_element::<Unambiguous>()?.is_some() {}
        Ok(Unambiguous)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Unambiguous, A::Error> {
        let mut names = Names::default();
        while let Some(Name(name)) = fields.next_key()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format_args!(
                    "the field {:?} stands twice in one object; send it once",
                    name.chars().take(MAX_SHOWN).collect::<String>()
                )));
            }
            fields.next_value::<Unambiguous>()?;
            names.insert(name);
        }
        Ok(Unambiguous)
    }
}

/// Up to this many names are compared one by one.
const FEW: usize = 16;
/// How much of a name an error shows.
const MAX_SHOWN: usize = 60;

/// The names of one object.
#[derive(Default)]
pub(crate) struct Names<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

impl<'de> Names<'de> {
    fn contains(&self, name: &str) -> bool {
        self.few.iter().any(|it| it == name) || self.many.contains(name)
    }

    /// Returns whether the name is new.
    pub(crate) fn insert(&mut self, name: Cow<'de, str>) -> bool {
        if self.contains(&name) {
            return false;
        }
        // Searching a list is faster as long as it is short.
        match self.few.len() < FEW {
            true => self.few.push(name),
            false => drop(self.many.insert(name)),
        }
        true
    }
}

/// The name of a field, borrowed if it has no escapes.
pub(crate) struct Name<'de>(pub(crate) Cow<'de, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the name of a field")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// The deepest nesting of lists and objects.
pub fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut rest = json;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => rest = after_string(after, &mut false),
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The text after a string; `rest` begins inside the string.
fn after_string<'a>(mut rest: &'a [u8], has_halves: &mut bool) -> &'a [u8] {
    while let Some(at) = memchr2(b'"', b'\\', rest) {
        if rest[at] == b'"' {
            return &rest[at + 1..];
        }
        let (step, is_half) = escape(rest, at);
        *has_halves |= is_half;
        rest = rest.get(at + step..).unwrap_or_default();
    }
    &[]
}

/// Replaces every unpaired half with U+FFFD.
fn replace_halves(json: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = memchr::memchr(b'\\', &json[from..]) {
        let at = from + at;
        let (step, is_half) = escape(json, at);
        if is_half {
            json[at..at + ESCAPE].copy_from_slice(b"\\ufffd");
        }
        from = (at + step).min(json.len());
    }
}

/// The length of the escape at `at`, where a whole pair counts as one, and whether it is an unpaired half.
fn escape(json: &[u8], at: usize) -> (usize, bool) {
    match code_unit(json, at) {
        Some(0xD800..=0xDBFF) if matches!(code_unit(json, at + ESCAPE), Some(0xDC00..=0xDFFF)) => {
            (2 * ESCAPE, false)
        }
        Some(0xD800..=0xDFFF) => (ESCAPE, true),
        // Another escape, such as that of a backslash: what follows does not begin an escape.
        _ => (2, false),
    }
}

/// The length of `\uXXXX`.
const ESCAPE: usize = 6;

fn code_unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn read(json: &[u8]) -> Result<Value, String> {
        let json = whole(json).map_err(|error| error.to_string())?;
        let value = check_names(&json).and_then(|()| read_whole(&json));
        value.map_err(|error| error.to_string())
    }

    #[test]
    fn half_characters_are_replaced_and_nothing_else() {
        let cases = [
            (r#""\ud83d""#, Some("\u{fffd}")),
            (r#""a\uD83D b""#, Some("a\u{fffd} b")),
            (r#""\ude00\ud83d""#, Some("\u{fffd}\u{fffd}")),
            (r#""\ud83d\ud83d\ude00""#, Some("\u{fffd}😀")),
            (r#""\ud83d\ude00 \ude00""#, Some("😀 \u{fffd}")),
            (r#""\\ud83d \ud83d""#, Some("\\ud83d \u{fffd}")),
            (r#""\\\ud83d\n""#, Some("\\\u{fffd}\n")),
            (r#""\ud83d"#, None),
            (r#""\ud83""#, None),
            (r#"\ud83d"#, None),
        ];
        for (json, text) in cases {
            let read = read(json.as_bytes()).ok();
            assert_eq!(read.as_ref().and_then(Value::as_str), text, "{json}");
        }
    }

    #[test]
    fn depth_is_measured_outside_of_text() {
        for (json, deepest) in [
            ("1", 0),
            (r#"["[[["]"#, 1),
            (r#"[{"a":[]},[]]"#, 3),
            ("]][", 1),
        ] {
            assert_eq!(depth(json.as_bytes()), deepest, "{json}");
        }
    }

    #[test]
    fn values_are_counted_outside_of_text() {
        let counted = [
            ("", 1),
            ("1", 1),
            ("[1,2,3]", 4),
            (r#"{"a":0}"#, 2),
            (r#"[{"a":0},{"a":0}]"#, 5),
            (r#"{"a":"[[[,,,{{{\",[","b":2}"#, 3),
            (r#""open ["#, 1),
            (r#""\"#, 1),
            ("[[[[", 5),
        ];
        for (json, values) in counted {
            assert_eq!(scan(json.as_bytes()).unwrap().values, values, "{json}");
        }
        let numbers = |count: usize| format!("[{}0]", "0,".repeat(count));
        assert!(read(numbers(MAX_VALUES - 2).as_bytes()).is_ok());
        for wrong in [
            numbers(MAX_VALUES - 1),
            "[".repeat(MAX_VALUES),
            format!(r#"{{"a":"\ud800",{}"#, "{},".repeat(MAX_VALUES)),
        ] {
            let error = read(wrong.as_bytes()).unwrap_err();
            assert_eq!(error, TooManyValues.to_string());
        }
        let text = serde_json::to_string(&"[".repeat(2 * MAX_VALUES)).unwrap();
        assert!(read(text.as_bytes()).is_ok());
    }

    #[test]
    fn nothing_is_said_twice() {
        let many: String = (0..40).map(|number| format!("\"f{number}\":0,")).collect();
        let refused = [
            r#"{"a":1,"a":1}"#.to_owned(),
            r#"{"a":{"approved":false,"appr\u006fved":true}}"#.to_owned(),
            r#"[0,{"b":[],"c":"","b":null}]"#.to_owned(),
            format!("{{{many}\"f39\":1}}"),
            format!("{{{many}\"f3\":1}}"),
        ];
        for json in refused {
            let error = read(json.as_bytes()).unwrap_err();
            assert!(error.contains("stands twice"), "{json}: {error}");
        }
        let taken = [
            r#"{"a":{"a":[{"a":1},{"a":-2.5e3}]},"b":true}"#.to_owned(),
            format!("{{{many}\"f\":18446744073709551616}}"),
            "null".to_owned(),
        ];
        for json in taken {
            assert!(read(json.as_bytes()).is_ok(), "{json}");
        }
    }

    proptest::proptest! {
        #[test]
        fn the_count_is_never_too_small(json in r#"([\[\]{},:0-9 ]|"[a\\\["]{0,3}"|null|\\"){0,24}"#) {
            fn values(value: &Value) -> usize {
                1 + match value {
                    Value::Array(items) => items.iter().map(values).sum(),
                    Value::Object(fields) => fields.values().map(values).sum(),
                    _ => 0,
                }
            }
            if let Ok(value) = serde_json::from_str::<Value>(&json) {
                proptest::prop_assert!(scan(json.as_bytes()).unwrap().values >= values(&value));
            }
        }

        #[test]
        fn every_string_of_javascript_is_read_as_browsers_show_it(units: Vec<u16>) {
            let json: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let read = read(format!("\"{json}\"").as_bytes()).unwrap();
            proptest::prop_assert_eq!(read, String::from_utf16_lossy(&units));
        }
    }
}
