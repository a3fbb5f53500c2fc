//! What is known of a user besides the name: an e-mail address, groups, and the like.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// More than ID tokens commonly have.
const MAX_CLAIMS: usize = 64;
/// A claim goes into instructions, and is stored with every chat.
const MAX_CLAIM_BYTES: usize = 4 * 1024;

/// Claims about a user, by name. Whoever makes them has checked that they are true.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "BTreeMap<String, Value>")]
pub struct Claims(BTreeMap<String, Value>);

/// Claims that are too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    #[error(
        "there are more than {MAX_CLAIMS} claims; leave out those that agent.state does not name"
    )]
    TooMany,
    #[error("the claim {name:?} has more than {MAX_CLAIM_BYTES} bytes")]
    TooLarge { name: String },
}

impl Claims {
    pub fn new(
        claims: impl IntoIterator<Item = (impl Into<String>, impl Into<Value>)>,
    ) -> Result<Self, ClaimsError> {
        let claims = claims.into_iter();
        let claims: BTreeMap<String, Value> = claims
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        claims.try_into()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A claim; nothing counts as absent.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Only the claims with these names.
    pub(crate) fn named<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Self {
        let named = names.into_iter().filter_map(|name| {
            let value = self.get(name)?;
            Some((name.to_owned(), value.clone()))
        });
        Self(named.collect())
    }
}

impl TryFrom<BTreeMap<String, Value>> for Claims {
    type Error = ClaimsError;

    fn try_from(claims: BTreeMap<String, Value>) -> Result<Self, ClaimsError> {
        if claims.len() > MAX_CLAIMS {
            return Err(ClaimsError::TooMany);
        }
        let is_large =
            |name: &String, value: &Value| name.len() + value.to_string().len() > MAX_CLAIM_BYTES;
        match claims.iter().find(|(name, value)| is_large(name, value)) {
            None => Ok(Self(claims)),
            Some((name, _)) => Err(ClaimsError::TooLarge {
                name: name.chars().take(64).collect(),
            }),
        }
    }
}

/// Shows their names only: the values are personal.
impl fmt::Debug for Claims {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_are_bounded_and_not_shown() {
        let claims = Claims::new([("name", json!("Ann")), ("email", Value::Null)]).unwrap();
        assert_eq!(claims.get("name"), Some(&json!("Ann")));
        assert_eq!(claims.get("email"), None);
        assert_eq!(
            claims.named(["name", "x"]),
            Claims::new([("name", "Ann")]).unwrap()
        );
        assert_eq!(format!("{claims:?}"), "{\"email\", \"name\"}");
        let many = (0..=MAX_CLAIMS).map(|number| (number.to_string(), 1));
        assert_eq!(Claims::new(many), Err(ClaimsError::TooMany));
        let large = Claims::new([("a", "x".repeat(MAX_CLAIM_BYTES))]).unwrap_err();
        assert!(large.to_string().contains("\"a\""), "{large}");
    }
}
