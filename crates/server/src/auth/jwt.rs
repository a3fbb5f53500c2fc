//! Signed tokens (JSON Web Tokens): read, and checked against the keys of whoever signs them.
//!
//! The signature counts, and nothing else that a token says of itself: the algorithm is one of three, a key serves one of them
//! only, and there is neither "none" nor a shared secret, so that a public key cannot be taken for one.

use std::time::Duration;

use adk_bridge_protocol::base64;
use adk_bridge_protocol::time::Timestamp;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Servers commonly accept headers of 8 to 16 KB.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// More keys than any provider publishes at once.
pub(super) const MAX_KEYS: usize = 64;
/// By how much the clock of whoever signs may differ.
pub(super) const MAX_SKEW: Duration = Duration::from_secs(60);
/// How much of a text of a token is shown in the log.
const MAX_SHOWN: usize = 80;

/// How a token is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Algorithm {
    #[serde(rename = "RS256")]
    Rs256,
    #[serde(rename = "ES256")]
    Es256,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// Why a token is refused, for the log. It has nothing of the token but short texts of its head and its claims.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("it is not a signed token of three parts")]
    Malformed,
    #[error("it is signed with {0}; only what auth lists under algorithms is taken")]
    Algorithm(String),
    #[error("it has the type {0}, and serves another purpose")]
    Type(String),
    #[error("its head has \"crit\": it must be read in a way that is not known")]
    Critical,
    #[error("its issuer is {0}, which is none of auth.oidc")]
    Issuer(String),
    #[error("the key {0} that signed it is none of the issuer's")]
    UnknownKey(String),
    #[error("its signature is wrong")]
    Signature,
    #[error("it is for the audience {0}")]
    Audience(String),
    #[error("it was made for another client (azp)")]
    Party,
    #[error("it says not until when it is good (exp)")]
    NoEnd,
    #[error("it expired {0} seconds ago")]
    Expired(u64),
    #[error("it is not good yet: {0} is {1} seconds ahead")]
    Early(&'static str, u64),
    #[error("it answers another login (nonce)")]
    Nonce,
    #[error("it has no claim {0:?} that could name a user: a text of 1 to 255 bytes")]
    NoUser(String),
    #[error("its e-mail address is not verified (email_verified)")]
    Unverified,
}

/// A token that was read and not checked.
#[derive(Debug)]
pub(crate) struct Unverified<'t> {
    algorithm: Algorithm,
    key: Option<String>,
    kind: Option<String>,
    signed: &'t str,
    signature: Vec<u8>,
    claims: Claims,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claims(pub(super) Map<String, Value>);

/// What is expected of a token besides its signature.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'e> {
    pub(super) issuer: Option<&'e str>,
    pub(super) audience: &'e [String],
    pub(super) algorithms: &'e [Algorithm],
    /// Types that the head may name; none is always good.
    pub(super) types: &'e [&'e str],
}

/// The keys of whoever signs.
#[derive(Debug, Default)]
pub(super) struct KeySet(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    public: Public,
}

#[derive(Debug, PartialEq)]
enum Public {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// A point of P-256, or a key of Ed25519.
    Bytes(Vec<u8>),
}

#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl TokenError {
    pub(super) fn unknown_issuer(issuer: &str) -> Self {
        Self::Issuer(shown(issuer))
    }
}

impl Algorithm {
    pub const ALL: [Self; 3] = [Self::Rs256, Self::Es256, Self::EdDsa];

    fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// Whether a text has the form of a signed token: a key of this bridge may have any other.
pub(super) fn is_token(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=');
    // Three parts, of which the last is empty if it is unsigned; the first is an object in base64.
    parts.len() == 3
        && parts[0].starts_with("ey")
        && parts.iter().all(|it| it.bytes().all(is_plain))
}

impl<'t> Unverified<'t> {
    pub(crate) fn read(token: &'t str) -> Result<Self, TokenError> {
        if token.len() > MAX_TOKEN_BYTES || !is_token(token) {
            return Err(TokenError::Malformed);
        }
        let malformed = |_| TokenError::Malformed;
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (head, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let head = base64::decode(head).map_err(malformed)?;
        let head: Head = serde_json::from_slice(&head).map_err(|_| TokenError::Malformed)?;
        let algorithm = Algorithm::named(&head.alg);
        let algorithm = algorithm.ok_or_else(|| TokenError::Algorithm(shown(&head.alg)))?;
        if head.crit.is_some() {
            return Err(TokenError::Critical);
        }
        let claims = base64::decode(claims).map_err(malformed)?;
        Ok(Self {
            algorithm,
            key: head.kid,
            kind: head.typ,
            signed,
            signature: base64::decode(signature).map_err(malformed)?,
            claims: Claims(serde_json::from_slice(&claims).map_err(|_| TokenError::Malformed)?),
        })
    }

    /// Who says to have signed it.
    pub(super) fn issuer(&self) -> &str {
        self.claims.text("iss").unwrap_or_default()
    }

    /// The name of the key that it says to be signed with.
    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// What it says, whoever has signed it.
    pub(super) fn unchecked(&self) -> &Claims {
        &self.claims
    }

    /// What it says, if one of these keys has signed it and it is what is expected.
    pub(super) fn verified(
        &self,
        keys: &KeySet,
        expected: Expected<'_>,
        now: Timestamp,
    ) -> Result<&Claims, TokenError> {
        if !expected.algorithms.contains(&self.algorithm) {
            return Err(TokenError::Algorithm(shown(self.algorithm.name())));
        }
        keys.check(self)?;
        self.check_type(expected.types)?;
        self.claims.check(expected, now)?;
        Ok(&self.claims)
    }

    /// Whether it would be good, if the right key had signed it.
    pub(super) fn may_be_good(&self, expected: Expected<'_>, now: Timestamp) -> bool {
        self.check_type(expected.types).is_ok() && self.claims.check(expected, now).is_ok()
    }

    fn check_type(&self, types: &[&str]) -> Result<(), TokenError> {
        let Some(kind) = &self.kind else {
            return Ok(());
        };
        let name = kind.to_ascii_lowercase();
        let name = name.strip_prefix("application/").unwrap_or(&name);
        match types.contains(&name) {
            true => Ok(()),
            false => Err(TokenError::Type(shown(kind))),
        }
    }
}

impl Claims {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// When it ends.
    pub(super) fn end(&self) -> Option<Timestamp> {
        self.time("exp")
    }

    fn check(&self, expected: Expected<'_>, now: Timestamp) -> Result<(), TokenError> {
        let issuer = self.text("iss").unwrap_or_default();
        if expected.issuer.is_some_and(|expected| expected != issuer) {
            return Err(TokenError::Issuer(shown(issuer)));
        }
        let audiences = self.audiences();
        let is_ours = |it: &&str| expected.audience.iter().any(|ours| ours == it);
        if !audiences.iter().any(is_ours) {
            return Err(TokenError::Audience(shown(&audiences.join(", "))));
        }
        let end = self.end().ok_or(TokenError::NoEnd)?;
        if end + MAX_SKEW <= now {
            return Err(TokenError::Expired(seconds(end, now)));
        }
        for name in ["nbf", "iat"] {
            // What is there and not a time is not good at any time.
            let begin = match self.0.get(name) {
                None => continue,
                Some(_) => self.time(name).unwrap_or(Timestamp::from_millis(u64::MAX)),
            };
            if begin > now + MAX_SKEW {
                return Err(TokenError::Early(name, seconds(now, begin)));
            }
        }
        Ok(())
    }

    pub(super) fn audiences(&self) -> Vec<&str> {
        match self.0.get("aud") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// A time in seconds since 1970, which may have a fraction.
    fn time(&self, name: &str) -> Option<Timestamp> {
        let seconds = self.0.get(name)?.as_f64()?;
        let is_time = seconds.is_finite() && (0.0..1e12).contains(&seconds);
        // Exact: the range is checked.
        is_time.then(|| Timestamp::from_millis((seconds * 1_000.0) as u64))
    }
}

impl KeySet {
    /// Reads what a provider publishes. Keys for other purposes and of other kinds are passed over.
    pub(super) fn read(json: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Published {
            keys: Vec<Value>,
        }
        let Published { keys } = serde_json::from_slice(json).ok()?;
        let keys = keys.into_iter().take(MAX_KEYS);
        Some(Self(keys.filter_map(Key::read).collect()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether some key is in both, whatever it is called.
    pub(super) fn shares_a_key(&self, other: &Self) -> bool {
        let is_there = |key: &Key| other.0.iter().any(|it| it.public == key.public);
        self.0.iter().any(is_there)
    }

    pub(super) fn check(&self, token: &Unverified<'_>) -> Result<(), TokenError> {
        let named = |key: &&Key| token.key.is_none() || key.id == token.key;
        let fitting = |key: &&Key| key.algorithm == token.algorithm;
        let mut candidates = self.0.iter().filter(named).filter(fitting).peekable();
        let is_known = candidates.peek().is_some();
        match candidates.any(|key| key.has_signed(token)) {
            true => Ok(()),
            // Without a name it may be a key that is not known yet.
            false if is_known && token.key.is_some() => Err(TokenError::Signature),
            false => {
                let name = token.key.as_deref();
                Err(TokenError::UnknownKey(
                    name.map_or_else(|| "without a name".to_owned(), shown),
                ))
            }
        }
    }
}

impl Key {
    fn read(json: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(json).ok()?;
        let signs = jwk.purpose.as_deref().is_none_or(|it| it == "sig")
            && (jwk.key_ops.as_ref()).is_none_or(|it| it.iter().any(|it| it == "verify"));
        let bytes = |text: &Option<String>| base64::decode(text.as_deref()?).ok();
        let (algorithm, public) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => {
                let (n, e) = (bytes(&jwk.n)?, bytes(&jwk.e)?);
                (Algorithm::Rs256, Public::Rsa { n, e })
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
                let point = [&[4], x.as_slice(), &y].concat();
                (Algorithm::Es256, Public::Bytes(point))
            }
            ("OKP", Some("Ed25519")) => (Algorithm::EdDsa, Public::Bytes(bytes(&jwk.x)?)),
            _ => return None,
        };
        let is_meant = jwk.alg.as_deref().is_none_or(|it| it == algorithm.name());
        (signs && is_meant).then_some(Self {
            id: jwk.kid,
            algorithm,
            public,
        })
    }

    fn has_signed(&self, token: &Unverified<'_>) -> bool {
        let (signed, signature) = (token.signed.as_bytes(), &token.signature);
        let verified = match (&self.public, self.algorithm) {
            (Public::Rsa { n, e }, _) => RsaPublicKeyComponents { n, e }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                signed,
                signature,
            ),
            (Public::Bytes(key), Algorithm::Es256) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(signed, signature)
            }
            (Public::Bytes(key), _) => {
                UnparsedPublicKey::new(&ED25519, key).verify(signed, signature)
            }
        };
        verified.is_ok()
    }
}

/// A text of a token as the log shows it: short, and in quotes.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(MAX_SHOWN).collect();
    format!("{short:?}")
}

fn seconds(from: Timestamp, to: Timestamp) -> u64 {
    to.as_millis().saturating_sub(from.as_millis()) / 1_000
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    };
    use serde_json::json;

    use super::*;

    /// Signs with a key of its own.
    pub(in crate::auth) struct Signer {
        id: &'static str,
        pair: Pair,
    }

    enum Pair {
        Ed(Ed25519KeyPair),
        Ec(EcdsaKeyPair),
    }

    impl Signer {
        pub(in crate::auth) fn ed25519(id: &'static str) -> Self {
            let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
            let pair = Pair::Ed(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap());
            Self { id, pair }
        }

        fn p256(id: &'static str) -> Self {
            let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
            let document = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).unwrap();
            Self {
                id,
                pair: Pair::Ec(pair),
            }
        }

        pub(in crate::auth) fn jwk(&self) -> Value {
            let encoded = |bytes: &[u8]| base64::encode(bytes);
            match &self.pair {
                Pair::Ed(pair) => {
                    json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": encoded(pair.public_key().as_ref())})
                }
                Pair::Ec(pair) => {
                    let point = pair.public_key().as_ref();
                    json!({"kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig", "alg": "ES256",
                           "x": encoded(&point[1..33]), "y": encoded(&point[33..])})
                }
            }
        }

        fn algorithm(&self) -> &'static str {
            match &self.pair {
                Pair::Ed(_) => "EdDSA",
                Pair::Ec(_) => "ES256",
            }
        }

        pub(in crate::auth) fn sign(&self, claims: &Value) -> String {
            let head = json!({"alg": self.algorithm(), "kid": self.id, "typ": "JWT"});
            self.sign_with(&head, claims)
        }

        fn sign_with(&self, head: &Value, claims: &Value) -> String {
            let encoded = |bytes: &[u8]| {
                let text = base64::encode(bytes).replace('+', "-").replace('/', "_");
                text.trim_end_matches('=').to_owned()
            };
            let signed = [head, claims].map(|part| encoded(part.to_string().as_bytes()));
            let signed = signed.join(".");
            let signature = match &self.pair {
                Pair::Ed(pair) => encoded(pair.sign(signed.as_bytes()).as_ref()),
                Pair::Ec(pair) => {
                    let random = SystemRandom::new();
                    encoded(pair.sign(&random, signed.as_bytes()).unwrap().as_ref())
                }
            };
            format!("{signed}.{signature}")
        }
    }

    const NOW: u64 = 1_800_000_000;

    fn keys(signers: &[&Signer]) -> KeySet {
        let keys: Vec<_> = signers.iter().map(|it| it.jwk()).collect();
        KeySet::read(json!({"keys": keys}).to_string().as_bytes()).unwrap()
    }

    fn checked(token: &str, keys: &KeySet) -> Result<Claims, TokenError> {
        let expected = Expected {
            issuer: Some("https://issuer.example"),
            audience: &["bridge".to_owned()],
            algorithms: &Algorithm::ALL,
            types: &["jwt", "at+jwt"],
        };
        let now = Timestamp::from_millis(NOW * 1_000);
        Unverified::read(token)?
            .verified(keys, expected, now)
            .cloned()
    }

    fn good() -> Value {
        json!({"iss": "https://issuer.example", "aud": "bridge", "sub": "alice", "exp": NOW + 300, "iat": NOW})
    }

    #[test]
    fn what_is_signed_and_meant_for_us_is_taken_and_everything_else_is_refused_for_its_reason() {
        let (ed, ec) = (Signer::ed25519("ed"), Signer::p256("ec"));
        let keys = keys(&[&ed, &ec]);
        for (change, refused) in [
            (json!({}), None),
            (json!({"aud": ["other", "bridge"]}), None),
            (json!({"exp": NOW - 59}), None),
            (json!({"exp": NOW as f64 + 0.5}), None),
            (json!({"nbf": NOW + 59}), None),
            (json!({"exp": NOW - 60}), Some("expired 60 seconds")),
            (json!({"exp": null}), Some("until when")),
            (json!({"exp": "soon"}), Some("until when")),
            (json!({"exp": -1}), Some("until when")),
            (json!({"exp": 1e300}), Some("until when")),
            (json!({"nbf": NOW + 61}), Some("nbf")),
            (json!({"nbf": "x"}), Some("nbf")),
            (json!({"iat": NOW + 3_600}), Some("iat")),
            (json!({"aud": "bridge2"}), Some("audience")),
            (json!({"aud": []}), Some("audience")),
            (json!({"aud": {"bridge": true}}), Some("audience")),
            (json!({"iss": "https://issuer.example/"}), Some("issuer")),
            (json!({"iss": null}), Some("issuer")),
        ] {
            let mut claims = good();
            for (name, value) in change.as_object().unwrap() {
                claims[name] = value.clone();
            }
            for signer in [&ed, &ec] {
                let found = checked(&signer.sign(&claims), &keys);
                match refused {
                    None => assert_eq!(found.unwrap().text("sub"), Some("alice"), "{change}"),
                    Some(word) => {
                        let error = found.unwrap_err().to_string();
                        assert!(error.contains(word), "{change}: {error}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_head_talks_its_way_past_the_signature() {
        let (ed, ec, other) = (
            Signer::ed25519("ed"),
            Signer::p256("ec"),
            Signer::ed25519("ed"),
        );
        let keys = keys(&[&ed, &ec]);
        for (head, refused) in [
            (json!({"alg": "EdDSA", "kid": "ed"}), None),
            (json!({"alg": "EdDSA"}), None),
            (json!({"alg": "EdDSA", "kid": "ed", "typ": "at+jwt"}), None),
            (
                json!({"alg": "EdDSA", "kid": "ed", "typ": "application/at+JWT"}),
                None,
            ),
            (json!({"alg": "none"}), Some("signed with \"none\"")),
            (json!({"alg": "None"}), Some("signed with")),
            (json!({"alg": "HS256", "kid": "ed"}), Some("\"HS256\"")),
            (json!({"alg": "RS512", "kid": "ed"}), Some("\"RS512\"")),
            (json!({"alg": "RS256", "kid": "ed"}), Some("key \"ed\"")),
            (json!({"alg": "ES256", "kid": "ec"}), Some("signature")),
            (json!({"alg": "EdDSA", "kid": "new"}), Some("key \"new\"")),
            (
                json!({"alg": "EdDSA", "kid": "ed", "crit": ["b64"]}),
                Some("crit"),
            ),
            (
                json!({"alg": "EdDSA", "kid": "ed", "typ": "logout+jwt"}),
                Some("type"),
            ),
            (
                json!({"alg": "EdDSA", "kid": "new", "jwk": ed.jwk()}),
                Some("key \"new\""),
            ),
            (json!({"alg": ["EdDSA"]}), Some("three parts")),
        ] {
            let found = checked(&ed.sign_with(&head, &good()), &keys);
            let found = found.map(|_| ()).map_err(|error| error.to_string());
            match refused {
                None => assert_eq!(found, Ok(()), "{head}"),
                Some(word) => assert!(found.unwrap_err().contains(word), "{head}"),
            }
        }
        let error = |token: &str| checked(token, &keys).unwrap_err();
        assert_eq!(error(&other.sign(&good())), TokenError::Signature);
        let token = ed.sign(&good());
        let (signed, signature) = token.rsplit_once('.').unwrap();
        assert_eq!(error(&format!("{signed}.")), TokenError::Signature);
        let audience = ["bridge".to_owned()];
        let others = Expected {
            issuer: None,
            audience: &audience,
            algorithms: &[Algorithm::Es256],
            types: &[],
        };
        let now = Timestamp::from_millis(NOW * 1_000);
        let only = Unverified::read(&token)
            .unwrap()
            .verified(&keys, others, now)
            .cloned();
        assert_eq!(only, Err(TokenError::Algorithm("\"EdDSA\"".into())));
        for forged in [
            signed.to_owned(),
            format!("{token}.x"),
            format!("{signed}x.{signature}é"),
            "ey.ey.ey".to_owned(),
            String::new(),
            format!("{signed}.{}", "A".repeat(MAX_TOKEN_BYTES)),
        ] {
            assert_eq!(error(&forged), TokenError::Malformed, "{forged:.80}");
        }
        // Any other byte changes what was signed.
        for place in (0..signed.len()).step_by(7) {
            let mut forged = token.clone();
            let changed = if &token[place..=place] == "A" {
                "B"
            } else {
                "A"
            };
            forged.replace_range(place..=place, changed);
            assert!(checked(&forged, &keys).is_err(), "{place}");
        }
    }

    #[test]
    fn keys_for_other_purposes_are_passed_over() {
        let ed = Signer::ed25519("ed");
        for (change, count) in [
            (json!({}), 1),
            (json!({"use": "sig"}), 1),
            (json!({"use": "enc"}), 0),
            (json!({"key_ops": ["verify"]}), 1),
            (json!({"key_ops": ["sign"]}), 0),
            (json!({"alg": "EdDSA"}), 1),
            (json!({"alg": "HS256"}), 0),
            (json!({"kty": "oct", "k": "AAAA"}), 0),
            (json!({"crv": "X25519"}), 0),
            (json!({"x": 5}), 0),
        ] {
            let mut key = ed.jwk();
            for (name, value) in change.as_object().unwrap() {
                key[name] = value.clone();
            }
            let set = json!({"keys": [key, 5, null]}).to_string();
            assert_eq!(
                KeySet::read(set.as_bytes()).unwrap().len(),
                count,
                "{change}"
            );
        }
        assert!(KeySet::read(b"{}").is_none());
        let many = json!({"keys": vec![ed.jwk(); 2 * MAX_KEYS]}).to_string();
        assert_eq!(KeySet::read(many.as_bytes()).unwrap().len(), MAX_KEYS);
    }
}
