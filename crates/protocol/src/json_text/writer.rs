//! Writes JSON in the form in which it is kept while it is being read, without building a tree.

use std::fmt;

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Json, tree, unlimited};
use crate::wire::json::{Name, Names};

/// A value that is being written.
#[derive(Default)]
pub(crate) struct Text {
    out: Vec<u8>,
    /// Whether an object has two fields of the same name; the last one counts.
    is_ambiguous: bool,
}

impl Text {
    pub(crate) fn open_object() -> Self {
        Self {
            out: vec![b'{'],
            is_ambiguous: false,
        }
    }

    pub(super) fn open_array() -> Self {
        Self {
            out: vec![b'['],
            is_ambiguous: false,
        }
    }

    /// Appends an item, which is in the kept form already, to the open array.
    pub(super) fn item(&mut self, raw: &RawValue) {
        if self.out.last() != Some(&b'[') {
            self.out.push(b',');
        }
        self.append_kept(raw);
    }

    pub(super) fn close_array(mut self) -> Json {
        self.out.push(b']');
        self.into()
    }

    /// Begins a field of the open object.
    pub(crate) fn name(&mut self, name: &str) {
        if self.out.last().is_some_and(|last| *last != b'{') {
            self.out.push(b',');
        }
        self.string(name);
        self.out.push(b':');
    }

    /// Appends a value that is part of a kept value.
    pub(super) fn append_kept(&mut self, raw: &RawValue) {
        self.out.extend_from_slice(raw.get().as_bytes());
    }

    /// Appends a value that was accepted before.
    pub(crate) fn append(&mut self, raw: &RawValue) -> serde_json::Result<()> {
        unlimited(raw, |reader| reader.deserialize_any(self.writer()))
    }

    fn append_fields<'de, A: MapAccess<'de>>(&mut self, mut fields: A) -> Result<(), A::Error> {
        let mut names = Names::default();
        while let Some(Name(name)) = fields.next_key()? {
            self.name(&name);
            fields.next_value_seed(self.writer())?;
            self.is_ambiguous |= !names.insert(name);
        }
        Ok(())
    }

    pub(crate) fn close_object(mut self) -> Json {
        self.out.push(b'}');
        self.into()
    }

    pub(super) fn string(&mut self, text: &str) {
        self.write(text);
    }

    fn write<T: Serialize + ?Sized>(&mut self, leaf: &T) {
        let written = serde_json::to_writer(&mut self.out, leaf);
        // A vector accepts every byte, and all texts and numbers have a form in JSON.
        debug_assert!(written.is_ok(), "{written:?}");
    }

    pub(super) fn writer(&mut self) -> Writer<'_> {
        Writer(self)
    }
}

impl From<Text> for Json {
    fn from(text: Text) -> Self {
        #[expect(clippy::expect_used, reason = "it was written as JSON, which is UTF-8")]
        let raw = String::from_utf8(text.out)
            .map_err(serde_json::Error::custom)
            .and_then(RawValue::from_string)
            .expect("what was written is JSON");
        match text.is_ambiguous {
            // A tree has every name once.
            true => tree(&raw).unwrap_or_default().into(),
            false => Self::kept(raw),
        }
    }
}

/// Writes a value while it is being read, so that no tree is built.
pub(super) struct Writer<'t>(&'t mut Text);

impl<'de> DeserializeSeed<'de> for Writer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Writer<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.write(&());
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        self.0.write(&());
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, some: D) -> Result<(), D::Error> {
        some.deserialize_any(self)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<(), E> {
        self.0.write(&flag);
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.0.write(&number);
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.0.write(&number);
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.0.write(&number);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.string(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let text = self.0;
        text.out.push(b'[');
        while items.next_element_seed(Item(text))?.is_some() {}
        text.out.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        self.0.out.push(b'{');
        self.0.append_fields(fields)?;
        self.0.out.push(b'}');
        Ok(())
    }
}

/// Reads an object; `None`, without an allocation, if it is `null` or has no fields.
pub(crate) fn some_object<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    struct SomeObject;
    impl<'de> Visitor<'de> for SomeObject {
        type Value = Option<Json>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
            let mut text = Text::default();
            text.append_fields(fields)?;
            if text.out.is_empty() {
                return Ok(None);
            }
            text.out.insert(0, b'{');
            Ok(Some(text.close_object()))
        }
    }
    from.deserialize_any(SomeObject)
}

/// One item of an array, with the comma before it.
struct Item<'t>(&'t mut Text);

impl<'de> DeserializeSeed<'de> for Item<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.0.out.last() != Some(&b'[') {
            self.0.out.push(b',');
        }
        deserializer.deserialize_any(self.0.writer())
    }
}
