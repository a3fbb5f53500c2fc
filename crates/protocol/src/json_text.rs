//! JSON that is kept as text: a tree of its values could take 250 times the bytes.
//!
//! Code that needs to look into a value builds a tree of it, or of one field, and drops it again.

mod escaped;
mod writer;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

pub(crate) use escaped::unescape;
pub(crate) use writer::{Text, some_object};

use crate::wire::json::{self, Name};

/// How deep a text that was accepted before may be: much deeper than any text is when it is accepted, and still no
/// danger to the stack.
const MAX_DEPTH: usize = 512;

static NULL: LazyLock<Json> = LazyLock::new(|| Value::Null.into());
static EMPTY: LazyLock<Json> = LazyLock::new(|| Json::object(std::iter::empty()));

/// A JSON value that does not change. It is kept as `serde_json` writes it, without spaces, and clones share it.
#[derive(Clone)]
pub struct Json(Arc<Box<RawValue>>);

/// The fields of an object in their order, each value as it is written.
pub type RawFields<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// The contents of a value, one level deep.
pub enum Level<'a> {
    /// A value that contains no others.
    Leaf(&'a str),
    /// An array.
    Items(Vec<&'a RawValue>),
    /// An object.
    Fields(RawFields<'a>),
}

impl Json {
    /// `null`.
    pub fn null() -> Self {
        NULL.clone()
    }

    /// The same, as a reference.
    pub fn nothing() -> &'static Self {
        &NULL
    }

    /// An object without fields.
    pub fn empty() -> Self {
        EMPTY.clone()
    }

    /// Writes any value that has a form in JSON.
    pub fn of(value: &impl Serialize) -> serde_json::Result<Self> {
        to_raw_value(value).map(Self::kept)
    }

    /// Reads a text from outside, which may be nested as deeply as `serde_json` allows.
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// Reads a value out of a text that was accepted before. It may be nested more deeply there than when it was
    /// accepted.
    pub fn read_raw(raw: &RawValue) -> serde_json::Result<Self> {
        let mut text = Text::default();
        text.append(raw)?;
        Ok(text.into())
    }

    /// An object of these fields, whose names must differ.
    pub fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        let mut text = Text::open_object();
        for (name, value) in fields {
            text.name(name);
            text.append_kept(value.raw());
        }
        text.close_object()
    }

    /// An array of these items.
    pub fn array<'a>(items: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut text = Text::open_array();
        for item in items {
            text.item(item.raw());
        }
        text.close_array()
    }

    /// The text, as it came.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The text, as `serde_json` passes it on.
    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// The tree, for as long as it is needed.
    pub fn to_value(&self) -> Value {
        tree(self.raw()).unwrap_or_default()
    }

    /// Reads the value as a type.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.text())
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        self.text() == "null"
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.text().starts_with('{')
    }

    /// The value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self.text() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The value of a string.
    pub fn as_str(&self) -> Option<Cow<'_, str>> {
        text_of(self.raw())
    }

    /// A field of an object.
    pub fn get(&self, name: &str) -> Option<Self> {
        let mut fields = self.fields().into_iter();
        fields.find_map(|(other, raw)| (other == name).then(|| Self::kept(raw.to_owned())))
    }

    /// The fields of an object; none for any other value.
    pub fn fields(&self) -> RawFields<'_> {
        fields_of(self.raw()).unwrap_or_default()
    }

    /// The object with another value in this field; a new field comes last.
    pub fn with(&self, name: &str, value: &Self) -> Self {
        let mut fields = self.fields();
        match fields.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => *old = value.raw(),
            None => fields.push((Cow::Borrowed(name), value.raw())),
        }
        let mut text = Text::open_object();
        for (name, raw) in fields {
            text.name(&name);
            text.append_kept(raw);
        }
        text.close_object()
    }

    /// The items of an array, each as it is written; `None` for any other value.
    pub fn items(&self) -> Option<Vec<&RawValue>> {
        items_of(self.raw())
    }

    fn kept(raw: Box<RawValue>) -> Self {
        Self(Arc::new(raw))
    }
}

impl<'a> Level<'a> {
    /// Looks at the outermost value.
    pub fn of(raw: &'a RawValue) -> Self {
        match raw.get().as_bytes().first() {
            Some(b'{') => Self::Fields(fields_of(raw).unwrap_or_default()),
            Some(b'[') => Self::Items(items_of(raw).unwrap_or_default()),
            _ => Self::Leaf(raw.get()),
        }
    }
}

/// The fields of an object as they are written; `None` for any other value.
pub fn fields_of(raw: &RawValue) -> Option<RawFields<'_>> {
    struct Fields;
    impl<'de> Visitor<'de> for Fields {
        type Value = RawFields<'de>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some((Name(name), value)) = map.next_entry()? {
                fields.push((name, value));
            }
            Ok(fields)
        }
    }
    serde_json::Deserializer::from_str(raw.get())
        .deserialize_map(Fields)
        .ok()
}

/// The items of an array as they are written; `None` for any other value.
pub fn items_of(raw: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(raw.get()).ok()
}

/// The text of a string; `None` for any other value.
pub fn text_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    unescape(raw.get().strip_prefix('"')?.strip_suffix('"')?)
}

/// The tree of a text that was accepted before.
fn tree(raw: &RawValue) -> serde_json::Result<Value> {
    unlimited(raw, |reader| Value::deserialize(reader))
}

/// Reads a text that was accepted before. It may be nested more deeply here than when it was accepted.
fn unlimited<'r, T>(
    raw: &'r RawValue,
    read: impl FnOnce(
        &mut serde_json::Deserializer<serde_json::de::StrRead<'r>>,
    ) -> serde_json::Result<T>,
) -> serde_json::Result<T> {
    if json::depth(raw.get().as_bytes()) > MAX_DEPTH {
        return Err(serde_json::Error::custom("recursion limit exceeded"));
    }
    let mut reader = serde_json::Deserializer::from_str(raw.get());
    reader.disable_recursion_limit();
    read(&mut reader)
}

/// Whether two values are equal; `equal` compares numbers.
fn is_equal(
    one: &RawValue,
    other: &RawValue,
    equal: fn(&serde_json::Number, &serde_json::Number) -> bool,
) -> bool {
    if one.get() == other.get() {
        return true;
    }
    match (Level::of(one), Level::of(other)) {
        (Level::Leaf(first), Level::Leaf(second)) => {
            let number = |text| serde_json::from_str(text).ok();
            match (number(first), number(second)) {
                (Some(one), Some(other)) => equal(&one, &other),
                // The same letters may be written as escapes.
                _ => text_of(one).is_some_and(|text| text_of(other) == Some(text)),
            }
        }
        (Level::Items(one), Level::Items(other)) => {
            let mut pairs = one.iter().zip(&other);
            one.len() == other.len() && pairs.all(|(one, other)| is_equal(one, other, equal))
        }
        (Level::Fields(mut one), Level::Fields(mut other)) => {
            let by_name =
                |a: &(Cow<'_, str>, _), b: &(Cow<'_, str>, _)| -> Ordering { a.0.cmp(&b.0) };
            one.sort_unstable_by(by_name);
            other.sort_unstable_by(by_name);
            let mut pairs = one.iter().zip(&other);
            one.len() == other.len()
                && pairs
                    .all(|((name, one), (same, other))| name == same && is_equal(one, other, equal))
        }
        _ => false,
    }
}

/// Whether two values are the same to JavaScript, which writes 1.0 as 1 and ignores the order of fields.
pub fn is_same(ours: &Json, theirs: &Json) -> bool {
    is_equal(ours.raw(), theirs.raw(), |ours, theirs| {
        ours.as_f64() == theirs.as_f64()
    })
}

/// The order of fields makes no difference.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || is_equal(self.raw(), other.raw(), |a, b| a == b)
    }
}

impl PartialEq<Value> for Json {
    fn eq(&self, other: &Value) -> bool {
        self.eq(&Self::from(other))
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::null()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        #[expect(
            clippy::expect_used,
            reason = "a tree has texts for names, so it can be written"
        )]
        let raw = to_raw_value(value).expect("a tree is JSON");
        Self::kept(raw)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        let mut json = Text::default();
        json.string(text);
        json.into()
    }
}

impl From<bool> for Json {
    fn from(flag: bool) -> Self {
        Value::Bool(flag).into()
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = Text::default();
        deserializer.deserialize_any(text.writer())?;
        Ok(text.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_what_a_tree_would_be_written_as() {
        let cases = [
            (" null ", "null"),
            ("[ 1 , -2.50,1e3,-0 ]", "[1,-2.5,1000.0,-0.0]"),
            (r#"{"b": "\u00e9\/\n", "a": {}}"#, r#"{"b":"é/\n","a":{}}"#),
            (r#"[[],{},[[]],["[",","]]"#, r#"[[],{},[[]],["[",","]]"#),
            // If a name occurs twice, the last value counts, in the place of the first.
            (r#"{"a":1,"b":[2],"a":{"c":3}}"#, r#"{"a":{"c":3},"b":[2]}"#),
        ];
        for (text, kept) in cases {
            let json = Json::parse(text).unwrap();
            assert_eq!(json.text(), kept);
            let tree: Value = serde_json::from_str(text).unwrap();
            assert_eq!(tree.to_string(), kept);
            assert_eq!(json.to_value(), tree);
            assert_eq!(Json::deserialize(tree.clone()).unwrap().text(), kept);
            assert_eq!(serde_json::to_string(&[json]).unwrap(), format!("[{kept}]"));
        }
        for wrong in ["", "{", "1e999", r#""\ud800""#, "nul", "[1,]"] {
            assert!(Json::parse(wrong).is_err(), "{wrong}");
        }
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Json::parse(&deep(127)).is_ok());
        assert!(Json::parse(&deep(128)).is_err());
        let raw = RawValue::from_string(deep(500)).unwrap();
        assert!(Json::read_raw(&raw).is_ok());
        let raw = RawValue::from_string(deep(100_000)).unwrap();
        assert!(Json::read_raw(&raw).is_err());
    }

    #[test]
    fn looks_into_values() {
        let json = Json::from(json!({"a": {"b": "x\ny"}, "c": true, "d": null}));
        assert_eq!(
            json.get("a").unwrap().get("b").unwrap().as_str().unwrap(),
            "x\ny"
        );
        assert_eq!(json.get("c").unwrap().as_bool(), Some(true));
        assert!(json.get("d").unwrap().is_null());
        assert!(json.get("e").is_none() && Json::null().get("e").is_none());
        assert!(json.is_object() && !Json::null().is_object());
        assert_eq!(json.as_str(), None);
        assert_eq!(Json::from("a\"b").text(), r#""a\"b""#);
        assert_eq!(
            Json::object([("a", Json::empty()), ("b", Json::null())]),
            json!({"b": null, "a": {}})
        );
    }

    #[test]
    fn javascript_tells_no_whole_number_from_a_float() {
        let cases = [
            ("7.0", "7", true),
            (r#"{"a":[7.0],"b":1}"#, r#"{"b":1.0,"a":[7]}"#, true),
            ("7", "7.5", false),
            ("[7]", "[7,7]", false),
            (r#"{"a":1}"#, r#"{"b":1}"#, false),
            (r#"{"a":1}"#, "[1]", false),
            (r#""7""#, "7", false),
            (r#"["\u00f6"]"#, r#"["ö"]"#, true),
            (r#""\u00f6""#, r#""o""#, false),
            ("null", "false", false),
        ];
        for (one, other, same) in cases {
            let (one, other) = (Json::parse(one).unwrap(), Json::parse(other).unwrap());
            assert_eq!(is_same(&one, &other), same, "{one} {other}");
            assert_eq!(is_same(&other, &one), same, "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn says_what_a_tree_says(one in any_value(), other in any_value()) {
            let (a, b) = (Json::from(&one), Json::from(&other));
            prop_assert_eq!(a == b, one == other);
            prop_assert_eq!(&a.to_value(), &one);
            prop_assert_eq!(a.is_object(), one.is_object());
            prop_assert_eq!(a.as_str().map(Cow::into_owned), one.as_str().map(str::to_owned));
            for name in ["a", "b"] {
                let field = one.get(name).cloned().map(Json::from);
                prop_assert_eq!(a.get(name), field);
            }
            let pretty = serde_json::to_string_pretty(&one).unwrap();
            let read = Json::parse(&pretty).unwrap();
            prop_assert_eq!(read.text(), a.text());
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-2..3i64).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[ab\\\\\"\n\u{1}é😀]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec(("[abc]", inner), 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }
}
