//! How replicas tell each other the tokens of a user: as text, which nothing else makes of them.

use adk_bridge_agents::token::Token;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The token that proved who the user is.
pub(super) mod proof {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        token: &Option<Token>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        token.as_ref().map(Token::reveal).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Token>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| Token::new(&text))
            .transpose()
            .map_err(D::Error::custom)
    }
}

/// The headers that brought tokens for agents.
pub(super) mod headers {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(headers: &HeaderMap, to: S) -> Result<S::Ok, S::Error> {
        let texts = headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        to.collect_seq(texts)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<HeaderMap, D::Error> {
        let texts = Vec::<(String, String)>::deserialize(from)?;
        let mut headers = HeaderMap::new();
        for (name, value) in texts {
            let name = HeaderName::try_from(name).map_err(D::Error::custom)?;
            let mut value = HeaderValue::try_from(value).map_err(D::Error::custom)?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Ok(headers)
    }
}
