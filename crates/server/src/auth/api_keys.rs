//! API keys: `Authorization: Bearer KEY`, with a user for every key.

use std::fmt;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use futures_util::future::{BoxFuture, ready};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Authenticator, Claims, Identity, Refusal};
use crate::config::ApiKey;

pub(super) const VIA: &str = "api_key";
const HELP: &str = "a valid key is needed: Authorization: Bearer KEY";

/// Recognises users by their keys.
pub struct ApiKeys {
    keys: Vec<Key>,
    /// Another header that may hold the key, without a scheme.
    header: Option<HeaderName>,
}

struct Key {
    /// All digests have the same length, so comparing them does not even reveal the length of a key.
    digest: [u8; 32],
    identity: Identity,
}

impl ApiKeys {
    /// Takes pairs of a key and its user.
    pub fn new<K: AsRef<str>, U: AsRef<str>>(keys: impl IntoIterator<Item = (K, U)>) -> Self {
        Self::with_claims((keys.into_iter()).map(|(key, user)| (key, user, Claims::default())))
    }

    /// Takes those of a configuration.
    pub fn configured(keys: &[ApiKey]) -> Self {
        let keys = keys.iter().filter_map(|key| {
            let identity = Identity::new(key.user.as_str(), VIA);
            Some(Key {
                digest: key.digest()?,
                identity: identity
                    .with_claims(key.claims.clone())
                    .with_roles(key.roles),
            })
        });
        Self {
            keys: keys.collect(),
            header: None,
        }
    }

    /// Takes keys, their users, and what is known of these.
    pub fn with_claims<K: AsRef<str>, U: AsRef<str>>(
        keys: impl IntoIterator<Item = (K, U, Claims)>,
    ) -> Self {
        let keys = keys.into_iter().map(|(key, user, claims)| Key {
            digest: Sha256::digest(key.as_ref()).into(),
            identity: Identity::new(user.as_ref(), VIA).with_claims(claims),
        });
        Self {
            keys: keys.collect(),
            header: None,
        }
    }

    /// Also accepts a key in this header, without a scheme, from clients that send no `Authorization`.
    pub fn with_header(self, header: HeaderName) -> Self {
        let header = Some(header);
        Self { header, ..self }
    }

    fn identify(&self, headers: &HeaderMap) -> Result<Identity, Refusal> {
        let other = || headers.get(self.header.as_ref()?);
        let given = if let Some(credentials) = headers.get(header::AUTHORIZATION) {
            match credentials.to_str().unwrap_or_default().split_once(' ') {
                Some((scheme, given)) if scheme.eq_ignore_ascii_case("bearer") => given.trim(),
                _ => return Err(Refusal::WrongCredentials(HELP.into())),
            }
        } else if let Some(key) = other() {
            key.to_str().unwrap_or_default()
        } else {
            return Err(Refusal::NoCredentials(HELP.into()));
        };
        let given = Sha256::digest(given);
        let mut keys = self.keys.iter();
        match keys.find(|key| key.digest.ct_eq(given.as_slice()).into()) {
            Some(key) => Ok(key.identity.clone()),
            None => Err(Refusal::WrongCredentials(HELP.into())),
        }
    }
}

impl Authenticator for ApiKeys {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Identity, Refusal>> {
        Box::pin(ready(self.identify(&request.headers)))
    }
}

/// Shows neither keys nor users.
impl fmt::Debug for ApiKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ApiKeys({})", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_key_stands_for_its_user_and_anything_else_for_nobody() {
        let keys = ApiKeys::new([("key-of-alice", "alice"), ("key-of-bob", "bob")]);
        let wrong = || Err(Refusal::WrongCredentials(HELP.into()));
        for (credentials, expected) in [
            ("Bearer key-of-alice", Ok(Identity::new("alice", VIA))),
            ("bearer  key-of-bob ", Ok(Identity::new("bob", VIA))),
            ("Bearer key-of-alic", wrong()),
            ("Bearer key-of-alicee", wrong()),
            ("Bearer", wrong()),
            ("Bearer ", wrong()),
            ("Basic key-of-alice", wrong()),
            ("key-of-alice", wrong()),
            ("Bearer é", wrong()),
        ] {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_bytes(credentials.as_bytes());
            headers.extend(value.map(|value| (header::AUTHORIZATION, value)));
            assert_eq!(keys.identify(&headers), expected, "{credentials:?}");
        }
        let none = Err(Refusal::NoCredentials(HELP.into()));
        assert_eq!(keys.identify(&HeaderMap::new()), none);
        assert_eq!(format!("{keys:?}"), "ApiKeys(2)");
    }
}
