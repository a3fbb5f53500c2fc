//! The header with which replicas pass requests on: for whom, to whom, and that nobody else wrote it.
//!
//! ```text
//!   x-adk-bridge-forwarded: PAYLOAD.MAC
//!     PAYLOAD   base64 of {to, expires, nonce, forwarded: {identity, base}}
//!     MAC       base64 of HMAC-SHA256 over method, path with query, and PAYLOAD
//! ```
//!
//! A header is good for one request, at one replica, for a few seconds.

use std::fmt;
use std::time::Duration;

use adk_bridge_protocol::base64;
use adk_bridge_protocol::time::Timestamp;
use axum::http::{HeaderName, HeaderValue, Method, Uri};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::auth::Identity;
use crate::files::address::Base;
use crate::nonce::{self, Nonce, UsedNonces};

/// The header of a request that another replica passes on.
pub const HEADER: HeaderName = HeaderName::from_static("x-adk-bridge-forwarded");

/// What the key is derived for: the same secret may serve other purposes one day.
const PURPOSE: &[u8] = b"adk-bridge: requests between replicas, 1";
/// How long a header is good: until a connection is there and the head of the request has arrived.
const LIFE: Duration = Duration::from_secs(10);
/// By how much the clocks of two replicas may differ.
const MAX_SKEW: Duration = Duration::from_secs(30);
/// As long as a header may be good, by any clock.
const LONGEST_LIFE: Duration = LIFE.saturating_add(MAX_SKEW).saturating_add(MAX_SKEW);

/// Who a passed-on request is for, as the replica knows that has authenticated it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forwarded {
    /// None where the address of a request says whose it is.
    pub identity: Option<Identity>,
    /// What URLs begin with for the client.
    pub base: Base,
}

/// Signs requests to other replicas, and recognises theirs.
pub struct Signatures {
    /// With the key in it.
    mac: Hmac<Sha256>,
    /// `cluster.name` of this replica.
    name: String,
    used: UsedNonces,
}

/// Why a request is not taken for one of another replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForgedError {
    #[error(
        "this request says that another replica passes it on, and none of this cluster does; clients leave out the header \
         x-adk-bridge-forwarded, and replicas share cluster.key"
    )]
    Wrong,
    #[error(
        "this request was passed on too long ago, or by a replica whose clock differs by more than {} seconds",
        MAX_SKEW.as_secs()
    )]
    Expired,
    #[error("this request was passed on before; each is passed on once")]
    Used,
}

#[derive(Serialize, Deserialize)]
struct Payload {
    /// The replica that is meant.
    to: String,
    /// Milliseconds since 1970.
    expires: u64,
    nonce: Nonce,
    forwarded: Forwarded,
}

impl Signatures {
    /// `key` is what the replicas share, `name` what this one is called.
    pub fn new(key: &[u8], name: &str) -> Self {
        let mut derived = mac_with(key);
        derived.update(PURPOSE);
        Self {
            mac: mac_with(&derived.finalize().into_bytes()),
            name: name.to_owned(),
            used: UsedNonces::new(LONGEST_LIFE),
        }
    }

    /// The header for one request to a replica; `None` if the system has no random numbers, or if the header is too long.
    pub fn sign(
        &self,
        to: &str,
        method: &Method,
        uri: &Uri,
        forwarded: Forwarded,
        now: Timestamp,
    ) -> Option<HeaderValue> {
        let payload = Payload {
            to: to.to_owned(),
            expires: (now + LIFE).as_millis(),
            nonce: nonce::new()?,
            forwarded,
        };
        let payload = base64::encode(&serde_json::to_vec(&payload).ok()?);
        let mac = self.mac_of(method, uri, &payload).finalize().into_bytes();
        HeaderValue::try_from(format!("{payload}.{}", base64::encode(&mac))).ok()
    }

    /// Who a request is for that has such a header. The header cannot be used again.
    pub fn verify(
        &self,
        method: &Method,
        uri: &Uri,
        header: &HeaderValue,
        now: Timestamp,
    ) -> Result<Forwarded, ForgedError> {
        let wrong = |_| ForgedError::Wrong;
        let text = header.to_str().map_err(|_| ForgedError::Wrong)?;
        let (payload, mac) = text.split_once('.').ok_or(ForgedError::Wrong)?;
        let given = base64::decode(mac).map_err(wrong)?;
        // The decoder takes other spellings of the same bytes; a header has one.
        if base64::encode(&given) != mac {
            return Err(ForgedError::Wrong);
        }
        // Compares in constant time, and before anything is read.
        let expected = self.mac_of(method, uri, payload);
        expected
            .verify_slice(&given)
            .map_err(|_| ForgedError::Wrong)?;
        let payload = base64::decode(payload).map_err(wrong)?;
        let payload: Payload = serde_json::from_slice(&payload).map_err(|_| ForgedError::Wrong)?;
        if payload.to != self.name {
            return Err(ForgedError::Wrong);
        }
        let expires = Timestamp::from_millis(payload.expires);
        if expires + MAX_SKEW <= now || expires > now + LIFE + MAX_SKEW {
            return Err(ForgedError::Expired);
        }
        match self.used.insert(payload.nonce, now) {
            true => Ok(payload.forwarded),
            false => Err(ForgedError::Used),
        }
    }

    fn mac_of(&self, method: &Method, uri: &Uri, payload: &str) -> Hmac<Sha256> {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut mac = self.mac.clone();
        // None of them contains a line break.
        for line in [method.as_str(), path, payload] {
            mac.update(line.as_bytes());
            mac.update(b"\n");
        }
        mac
    }
}

/// Does not show the key.
impl fmt::Debug for Signatures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Signatures")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn mac_with(key: &[u8]) -> Hmac<Sha256> {
    #[allow(clippy::expect_used, reason = "HMAC takes keys of every length")]
    Hmac::new_from_slice(key).expect("a key of any length")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::auth::Role;

    const SECONDS: u64 = 1_000;

    fn alice() -> Forwarded {
        Forwarded {
            identity: Some(
                Identity::new("alice", "key").with_roles([Role::Admin].into_iter().collect()),
            ),
            base: Base::relative(Some(Base::origin("https://chat.example"))),
        }
    }

    #[test]
    fn a_header_is_good_once_for_one_request_at_one_replica() {
        let (a, b) = (
            Signatures::new(b"shared", "a"),
            Signatures::new(b"shared", "b"),
        );
        let stranger = Signatures::new(b"another", "a");
        let uri = "/api/chat/1/stream?sdk=6".parse().unwrap();
        let other: Uri = "/api/chat/2/stream?sdk=6".parse().unwrap();
        let now = Timestamp::from_millis(1_000_000_000);
        let sign = |who: &Signatures, to| who.sign(to, &Method::GET, &uri, alice(), now).unwrap();
        let verify = |header: &HeaderValue, now| b.verify(&Method::GET, &uri, header, now);

        let header = sign(&a, "b");
        assert_eq!(
            b.verify(&Method::POST, &uri, &header, now),
            Err(ForgedError::Wrong)
        );
        assert_eq!(
            b.verify(&Method::GET, &other, &header, now),
            Err(ForgedError::Wrong)
        );
        assert_eq!(verify(&header, now), Ok(alice()));
        assert_eq!(verify(&header, now), Err(ForgedError::Used));

        for (header, why) in [
            (sign(&stranger, "b"), "of another cluster"),
            (sign(&a, "c"), "for another replica"),
            (HeaderValue::from_static(""), "empty"),
            (HeaderValue::from_static("e30=.AAAA"), "no signature"),
            (HeaderValue::from_bytes(b"\xff").unwrap(), "not text"),
        ] {
            assert_eq!(verify(&header, now), Err(ForgedError::Wrong), "{why}");
        }
    }

    #[test]
    fn a_header_with_another_byte_is_wrong() {
        let (a, b) = (
            Signatures::new(b"shared", "a"),
            Signatures::new(b"shared", "b"),
        );
        let uri = "/api/chat".parse().unwrap();
        let now = Timestamp::from_millis(1_000_000_000);
        // Many headers: whether a changed byte decodes to the same bytes depends on the nonce.
        for _ in 0..64 {
            let header = a.sign("b", &Method::GET, &uri, alice(), now).unwrap();
            let text = header.to_str().unwrap();
            for index in 0..text.len() {
                let mut changed = text.as_bytes().to_vec();
                changed[index] ^= 1;
                if let Ok(changed) = HeaderValue::from_bytes(&changed) {
                    let verified = b.verify(&Method::GET, &uri, &changed, now);
                    assert_eq!(verified, Err(ForgedError::Wrong), "byte {index} of {text}");
                }
            }
        }
    }

    #[test]
    fn a_header_expires_and_its_nonce_is_remembered_until_then() {
        let (a, b) = (
            Signatures::new(b"shared", "a"),
            Signatures::new(b"shared", "b"),
        );
        let uri = "/api/chat".parse().unwrap();
        let at = |seconds| Timestamp::from_millis(1_000_000_000 + seconds * SECONDS);
        // The time at a, the time at b when it arrives.
        for (signed, arrives, expected) in [
            (0, 0, Ok(())),
            (0, 39, Ok(())),
            (0, 40, Err(ForgedError::Expired)),
            (30, 0, Ok(())),
            (31, 0, Err(ForgedError::Expired)),
        ] {
            let header = a
                .sign("b", &Method::POST, &uri, alice(), at(signed))
                .unwrap();
            let verify = |seconds| {
                b.verify(&Method::POST, &uri, &header, at(seconds))
                    .map(drop)
            };
            assert_eq!(verify(arrives), expected, "{signed} {arrives}");
            for later in (0..80).filter(|_| expected.is_ok()) {
                assert!(
                    verify(arrives + later).is_err(),
                    "{signed} {arrives} {later}"
                );
            }
        }
    }
}
