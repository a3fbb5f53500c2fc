//! `agent.state`: what the configuration sets in the session of every chat, with the user's name where it says so.

use std::collections::BTreeMap;

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::json_text::Json;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ConfigError;

/// The placeholder for the user who was authenticated.
const USER: &str = "user";
/// Scopes of ADK's state that no session may set: that of all users, and that of a single run.
const FOREIGN_SCOPES: [&str; 2] = ["app:", "temp:"];

/// Keys and values; texts may contain `{user}`, and `{{` or `}}` for a brace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionState(BTreeMap<String, Value>);

impl SessionState {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn sets(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The state of this user's sessions.
    pub fn of(&self, user: &UserId) -> BTreeMap<String, Json> {
        let filled = self.0.iter().map(|(key, value)| {
            // Checked at start.
            let value = filled(value, user.as_str()).unwrap_or_default();
            (key.clone(), value.into())
        });
        filled.collect()
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let bad = |problem| Err(ConfigError::value("agent.state", problem));
        for (key, value) in &self.0 {
            if key.is_empty() || FOREIGN_SCOPES.iter().any(|scope| key.starts_with(scope)) {
                return bad(format!(
                    "{key:?} cannot be set here: write a key of the session, or of the user with \"user:\"; what holds for \
                     all users belongs into the ADK agent"
                ));
            }
            if let Err(problem) = filled(value, "") {
                return bad(format!("{key}: {problem}"));
            }
        }
        Ok(())
    }
}

/// A value with its placeholders replaced.
fn filled(value: &Value, user: &str) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => Value::String(filled_text(text, user)?),
        Value::Array(items) => {
            Value::Array((items.iter().map(|item| filled(item, user))).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(key, value)| Ok((key.clone(), filled(value, user)?)));
            Value::Object(fields.collect::<Result<_, String>>()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

fn filled_text(text: &str, user: &str) -> Result<String, String> {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        written.push_str(&rest[..at]);
        let (brace, after) = rest[at..].split_at(1);
        rest = if let Some(after) = after.strip_prefix(brace) {
            written.push_str(brace);
            after
        } else if brace == "{"
            && let Some((USER, after)) = after.split_once('}')
        {
            written.push_str(user);
            after
        } else {
            return Err(format!(
                "{text:?} has a brace that does not belong to a placeholder; write {{user}}, or {{{{ and }}}} for braces"
            ));
        };
    }
    written.push_str(rest);
    Ok(written)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(value: Value) -> SessionState {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn texts_name_the_user_wherever_they_are() {
        let state = state(json!({
            "user_name": "{user}", "user:greeting": "Dear {user}, {{x}}",
            "plan": {"tier": 2, "of": ["{user}", true]},
        }));
        state.check().unwrap();
        let filled = state.of(&UserId::from("ann {user}"));
        assert_eq!(
            json!(filled),
            json!({
                "user_name": "ann {user}", "user:greeting": "Dear ann {user}, {x}",
                "plan": {"tier": 2, "of": ["ann {user}", true]},
            })
        );
    }

    #[test]
    fn what_cannot_be_set_is_refused_by_name() {
        for (value, word) in [
            (json!({"app:motto": "x"}), "app:motto"),
            (json!({"temp:x": 1}), "temp:x"),
            (json!({"": 1}), "\"\""),
            (json!({"a": "{name}"}), "{name}"),
            (json!({"a": "{user"}), "{user"),
            (json!({"a": "user}"}), "user}"),
            (json!({"a": {"b": ["{"]}}), "a:"),
        ] {
            let said = state(value).check().unwrap_err().to_string();
            assert!(
                said.contains(word) && said.contains("agent.state"),
                "{said}"
            );
        }
    }
}
