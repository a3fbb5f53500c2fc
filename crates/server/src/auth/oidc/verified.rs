//! Tokens that were checked, so that each is checked once: the next request with it costs a hash.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use adk_bridge_protocol::time::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::auth::Identity;

/// How many are remembered; one that is forgotten is checked again.
const MAX_TOKENS: usize = 10_000;

/// A token as it is remembered: nobody can make the token of it.
pub(crate) type Digest = [u8; 32];

/// Tokens that are good, as long as the keys stay that they were checked with.
#[derive(Default)]
pub(crate) struct Verified(Mutex<HashMap<Digest, Entry>>);

struct Entry {
    identity: Identity,
    until: Timestamp,
    keys: Keys,
}

/// Whose keys, and their [`Known::generation`](super::key_source::Known).
pub(crate) type Keys = (usize, u64);

pub(crate) fn digest(token: &str) -> Digest {
    Sha256::digest(token).into()
}

impl Verified {
    /// The user of a token that was checked, and by which keys: it counts only while these do.
    pub(crate) fn get(&self, token: &Digest, now: Timestamp) -> Option<(Identity, Keys)> {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = tokens.get(token).filter(|entry| now < entry.until)?;
        Some((entry.identity.clone(), entry.keys))
    }

    pub(crate) fn insert(
        &self,
        token: Digest,
        identity: Identity,
        until: Timestamp,
        keys: Keys,
        now: Timestamp,
    ) {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MAX_TOKENS && !tokens.contains_key(&token) {
            tokens.retain(|_, entry| entry.until > now);
            if tokens.len() >= MAX_TOKENS {
                tokens.clear();
            }
        }
        let entry = Entry {
            identity,
            until,
            keys,
        };
        tokens.insert(token, entry);
    }
}

impl fmt::Debug for Verified {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Verified")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_until_it_ends() {
        let verified = Verified::default();
        let at = Timestamp::from_millis;
        let alice = Identity::new("corp:alice", "oidc");
        let token = digest("a token");
        assert_eq!(verified.get(&token, at(1)), None);
        verified.insert(token, alice.clone(), at(100), (2, 7), at(1));
        let known = Some((alice.clone(), (2, 7)));
        assert_eq!(verified.get(&token, at(99)), known);
        assert_eq!(verified.get(&token, at(100)), None);
        for number in 0..2 * MAX_TOKENS {
            let other = digest(&number.to_string());
            verified.insert(other, alice.clone(), at(100), (2, 7), at(1));
        }
        let held = verified.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(held.len() <= MAX_TOKENS);
    }
}
