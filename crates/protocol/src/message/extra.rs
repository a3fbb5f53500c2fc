//! Fields that are kept without being understood.

use std::borrow::Cow;
use std::fmt;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::json_text::{Json, RawFields, Text};

/// Fields of an object, kept as text.
#[derive(Clone, Default)]
pub struct Extra(Option<Json>);

impl Extra {
    /// Reads fields that were accepted before.
    pub(crate) fn read(fields: &RawFields<'_>) -> serde_json::Result<Self> {
        if fields.is_empty() {
            return Ok(Self(None));
        }
        let mut text = Text::open_object();
        for (name, raw) in fields {
            text.name(name);
            text.append(raw)?;
        }
        Ok(Self(Some(text.close_object())))
    }

    /// Whether there is no such field.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The fields as values, for as long as they are needed.
    pub fn map(&self) -> Map<String, Value> {
        match self.0.as_ref().map(Json::to_value) {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        }
    }

    /// The field of this name.
    pub fn get(&self, name: &str) -> Option<Json> {
        self.0.as_ref()?.get(name)
    }

    /// Sets a field; a new field comes last.
    pub fn insert(&mut self, name: &str, value: &Json) {
        let object = self.0.take().unwrap_or_else(Json::empty);
        self.0 = Some(object.with(name, value));
    }

    /// The object as JSON.
    pub fn text(&self) -> &str {
        self.0.as_ref().map_or("{}", Json::text)
    }

    /// The fields in their order, each as it is written.
    pub(crate) fn entries(&self) -> Vec<(Cow<'_, str>, &RawValue)> {
        self.0.as_ref().map(Json::fields).unwrap_or_default()
    }
}

impl From<Map<String, Value>> for Extra {
    fn from(map: Map<String, Value>) -> Self {
        Self((!map.is_empty()).then(|| Value::Object(map).into()))
    }
}

impl FromIterator<(String, Value)> for Extra {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(fields: I) -> Self {
        Map::from_iter(fields).into()
    }
}

impl<'a> FromIterator<(&'a str, Json)> for Extra {
    fn from_iter<I: IntoIterator<Item = (&'a str, Json)>>(fields: I) -> Self {
        let object = Json::object(fields);
        Self((object.text() != "{}").then_some(object))
    }
}

/// The order of fields makes no difference.
impl PartialEq for Extra {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl fmt::Debug for Extra {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_come_back_in_their_order() {
        let mut extra: Extra = [("z", json!([1, {"b": null}])), ("a", json!("x"))]
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect();
        assert_eq!(extra.text(), r#"{"z":[1,{"b":null}],"a":"x"}"#);
        extra.insert("m", &json!(2.5).into());
        assert_eq!(extra.get("m"), Some(json!(2.5).into()));
        assert_eq!(extra.text(), r#"{"z":[1,{"b":null}],"a":"x","m":2.5}"#);
        extra.insert("a", &Json::null());
        assert_eq!(extra.text(), r#"{"z":[1,{"b":null}],"a":null,"m":2.5}"#);
        let mut map = extra.map();
        map.sort_keys();
        assert_eq!(Extra::from(map.clone()), extra);
        map.clear();
        assert!(Extra::from(map).is_empty());
    }
}
