//! `agent.state`: what the configuration sets in the session of every chat, with the user's name and claims where it says so.

use std::collections::{BTreeMap, BTreeSet};

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::json_text::Json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ConfigError;
use crate::auth::Claims;

/// The placeholder for the user who was authenticated.
const USER: &str = "user";
/// What begins the placeholder for a claim of the user, before its name.
const CLAIM: &str = "claims.";
/// Scopes of ADK's state that no session may set: that of all users, and that of a single run.
const FOREIGN_SCOPES: [&str; 2] = ["app:", "temp:"];

/// Keys and values; texts may contain `{user}` and `{claims.NAME}`, and `{{` or `}}` for a brace.
///
/// A key whose value names a claim that the user does not have is left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    pub fn of(&self, user: &UserId, claims: &Claims) -> BTreeMap<String, Json> {
        let mut find = |placeholder: &Placeholder<'_>| match placeholder {
            Placeholder::User => Some(Value::from(user.as_str())),
            Placeholder::Claim(name) => claims.get(name).cloned(),
        };
        let filled = self.0.iter().filter_map(|(key, value)| {
            let value = filled(value, &mut find).ok()?;
            Some((key.clone(), value.into()))
        });
        filled.collect()
    }

    /// The claims that it names.
    pub fn claims(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut note = |placeholder: &Placeholder<'_>| {
            if let Placeholder::Claim(name) = placeholder {
                names.insert((*name).to_owned());
            }
            Some(Value::from(""))
        };
        for value in self.0.values() {
            // Checked at start.
            let _ = filled(value, &mut note);
        }
        names
    }

    pub(super) fn check(&self) -> Vec<ConfigError> {
        let mut problems = Vec::new();
        let mut bad = |problem| problems.push(ConfigError::value("agent.state", problem));
        for (key, value) in &self.0 {
            if key.is_empty() || FOREIGN_SCOPES.iter().any(|scope| key.starts_with(scope)) {
                bad(format!(
                    "{key:?} cannot be set here: write a key of the session, or of the user with \"user:\"; what holds for \
                     all users belongs into the ADK agent"
                ));
            }
            if let Err(FillError::BadText(problem)) = filled(value, &mut |_| Some(Value::from("")))
            {
                bad(format!("{key}: {problem}"));
            }
        }
        problems
    }
}

/// What a text may name.
enum Placeholder<'t> {
    User,
    Claim(&'t str),
}

impl<'t> Placeholder<'t> {
    fn read(name: &'t str) -> Option<Self> {
        match (name, name.strip_prefix(CLAIM)) {
            (USER, _) => Some(Self::User),
            (_, Some(name)) if !name.is_empty() && !name.contains('{') => Some(Self::Claim(name)),
            _ => None,
        }
    }
}

/// Why a value has no form for a user.
enum FillError {
    /// The user does not have a claim that it names.
    Absent,
    BadText(String),
}

/// What a placeholder stands for; nothing if the user does not have it.
type Find<'f> = &'f mut dyn FnMut(&Placeholder<'_>) -> Option<Value>;

/// A value with its placeholders replaced.
fn filled(value: &Value, find: Find<'_>) -> Result<Value, FillError> {
    Ok(match value {
        Value::String(text) => filled_text(text, find)?,
        Value::Array(items) => {
            let items = items.iter().map(|item| filled(item, find));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(key, value)| Ok((key.clone(), filled(value, find)?)));
            Value::Object(fields.collect::<Result<_, FillError>>()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

/// A text that is nothing but a placeholder becomes what that stands for, of whatever type; others stay texts.
fn filled_text(text: &str, find: Find<'_>) -> Result<Value, FillError> {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        written.push_str(&rest[..at]);
        let (brace, after) = rest[at..].split_at(1);
        rest = if let Some(after) = after.strip_prefix(brace) {
            written.push_str(brace);
            after
        } else if brace == "{"
            && let Some((name, after)) = after.split_once('}')
            && let Some(placeholder) = Placeholder::read(name)
        {
            let value = find(&placeholder).ok_or(FillError::Absent)?;
            match value {
                whole if name.len() + 2 == text.len() => return Ok(whole),
                Value::String(part) => written.push_str(&part),
                part => written.push_str(&part.to_string()),
            }
            after
        } else {
            return Err(FillError::BadText(format!(
                "{text:?} has a brace that does not belong to a placeholder; write {{user}} or {{claims.NAME}}, or {{{{ and \
                 }}}} for braces"
            )));
        };
    }
    written.push_str(rest);
    Ok(Value::String(written))
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
        assert!(state.check().is_empty());
        let filled = state.of(&UserId::from("ann {user}"), &Claims::default());
        assert_eq!(
            json!(filled),
            json!({
                "user_name": "ann {user}", "user:greeting": "Dear ann {user}, {x}",
                "plan": {"tier": 2, "of": ["ann {user}", true]},
            })
        );
    }

    #[test]
    fn what_names_a_claim_is_there_if_the_user_has_it() {
        let state = state(json!({
            "mail": "{claims.email}", "all": "{user} <{claims.email}> {claims.age}",
            "groups": "{claims.https://x.example/groups}", "deep": {"of": ["{claims.absent}"]}, "none": "{claims.empty}",
        }));
        assert!(state.check().is_empty());
        let names = [
            "absent",
            "age",
            "email",
            "empty",
            "https://x.example/groups",
        ];
        assert_eq!(state.claims(), names.map(str::to_owned).into());
        let claims = Claims::new([
            ("email", json!("{user}@x")),
            ("age", json!(7)),
            ("https://x.example/groups", json!(["a", "b"])),
            ("empty", Value::Null),
        ]);
        let ann = UserId::from("ann");
        assert_eq!(
            json!(state.of(&ann, &claims.unwrap())),
            json!({"mail": "{user}@x", "all": "ann <{user}@x> 7", "groups": ["a", "b"]})
        );
        assert_eq!(json!(state.of(&ann, &Claims::default())), json!({}));
    }

    #[test]
    fn what_cannot_be_set_is_refused_by_name() {
        for (value, word) in [
            (json!({"app:motto": "x"}), "app:motto"),
            (json!({"temp:x": 1}), "temp:x"),
            (json!({"": 1}), "\"\""),
            (json!({"a": "{name}"}), "{name}"),
            (json!({"a": "{claims.}"}), "{claims.}"),
            (json!({"a": "{claims.{user}}"}), "{claims."),
            (json!({"a": "{user"}), "{user"),
            (json!({"a": "user}"}), "user}"),
            (json!({"a": {"b": ["{"]}}), "a:"),
        ] {
            let said = state(value).check()[0].to_string();
            assert!(
                said.contains(word) && said.contains("agent.state"),
                "{said}"
            );
        }
    }
}
