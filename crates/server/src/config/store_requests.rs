//! Whether a model's provider may store requests: `false`, `true` or `"project"`.

use adk_bridge_agents::gemini::Storing;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What requests say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreRequests(pub Storing);

/// Leaves it to the project.
const PROJECT: &str = "project";

impl<'de> Deserialize<'de> for StoreRequests {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Bool(bool),
            Text(String),
        }
        match Form::deserialize(from) {
            Ok(Form::Bool(false)) => Ok(Self(Storing::Never)),
            Ok(Form::Bool(true)) => Ok(Self(Storing::Always)),
            Ok(Form::Text(text)) if text == PROJECT => Ok(Self(Storing::ByProject)),
            _ => Err(de::Error::custom("write false, true or \"project\"")),
        }
    }
}

impl JsonSchema for StoreRequests {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StoreRequests".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"enum": [false, true, PROJECT]})
    }
}

impl Serialize for StoreRequests {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Storing::Never => to.serialize_bool(false),
            Storing::Always => to.serialize_bool(true),
            Storing::ByProject => to.serialize_str(PROJECT),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn three_ways() {
        for (written, storing) in [
            (json!(false), Storing::Never),
            (json!(true), Storing::Always),
            (json!("project"), Storing::ByProject),
        ] {
            let read: StoreRequests = from_value(written.clone()).unwrap();
            assert_eq!(read, StoreRequests(storing));
            assert_eq!(serde_json::to_value(read).unwrap(), written);
        }
        for written in [json!("no"), json!(0), json!(null), json!([true])] {
            let read: Result<StoreRequests, _> = from_value(written.clone());
            assert!(
                read.unwrap_err().to_string().contains("write false"),
                "{written}"
            );
        }
    }
}
