//! The two cookies of logins: an attempt until the provider has answered, and then the secret of a login.
//!
//! A cookie without our signature is not looked up: nobody makes the database work with cookies that were made up.

use std::time::Duration;

use adk_bridge_protocol::base64;
use adk_bridge_protocol::time::Timestamp;
use axum::http::{HeaderMap, HeaderValue, header};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use super::attempt::{Attempt, LIFE, url_safe};
use crate::credentials::Seal;
use crate::store::StoreError;

const SECRET_BYTES: usize = 32;
/// What the keys are derived for.
const ATTEMPTS: &str = "adk-bridge: attempts to log in, 1";
const SECRETS: &[u8] = b"adk-bridge: secrets of logins, 1";

/// Whether cookies are for encrypted connections only: where the bridge has such an address.
pub(super) fn are_secure(public_url: Option<&str>) -> bool {
    public_url.is_some_and(|url| url.starts_with("https://"))
}

/// The name of the cookie of a login, at a bridge with this address.
pub(crate) fn login_cookie(public_url: Option<&str>) -> &'static str {
    name(are_secure(public_url))
}

fn name(is_secure: bool) -> &'static str {
    match is_secure {
        true => "__Host-adk-bridge-login",
        false => "adk-bridge-login",
    }
}

/// Writes and reads cookies.
pub(super) struct Cookies {
    seal: Seal,
    mac: Hmac<Sha256>,
    is_secure: bool,
}

/// What the browser of a login holds.
pub(super) struct Secret([u8; SECRET_BYTES]);

impl Cookies {
    /// `key` is what the replicas share. Cookies are for encrypted connections only, if there are any.
    pub(super) fn new(key: &[u8], is_secure: bool) -> Result<Self, StoreError> {
        #[allow(clippy::expect_used, reason = "HMAC takes keys of every length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
        mac.update(SECRETS);
        let derived = mac.finalize().into_bytes();
        #[allow(clippy::expect_used, reason = "HMAC takes keys of every length")]
        let mac = Hmac::new_from_slice(&derived).expect("a key of any length");
        Ok(Self {
            seal: Seal::for_purpose(key, ATTEMPTS)?,
            mac,
            is_secure,
        })
    }

    pub(super) fn attempt(&self, attempt: &Attempt) -> Result<HeaderValue, StoreError> {
        let text = serde_json::to_vec(attempt).unwrap_or_default();
        let sealed = self.seal.close(ATTEMPTS, &text)?;
        Ok(self.cookie(self.attempt_name(), &sealed, LIFE))
    }

    pub(super) fn attempt_in(&self, headers: &HeaderMap, now: Timestamp) -> Option<Attempt> {
        let sealed = value_of(headers, self.attempt_name())?;
        let text = self.seal.open_text(ATTEMPTS, sealed)?;
        let attempt: Attempt = serde_json::from_slice(&text).ok()?;
        attempt.is_good(now).then_some(attempt)
    }

    pub(super) fn no_attempt(&self) -> HeaderValue {
        self.cookie(self.attempt_name(), "", Duration::ZERO)
    }

    pub(super) fn login(&self, secret: &Secret, life: Duration) -> HeaderValue {
        let mac = self.mac_of(secret).finalize().into_bytes();
        let value = url_safe(&[&secret.0[..], &mac[..]].concat());
        self.cookie(self.name(), &value, life)
    }

    pub(super) fn secret_in(&self, headers: &HeaderMap) -> Option<Secret> {
        let value = base64::decode(value_of(headers, self.name())?).ok()?;
        let (secret, mac) = value.split_first_chunk()?;
        let secret = Secret(*secret);
        self.mac_of(&secret).verify_slice(mac).ok()?;
        Some(secret)
    }

    pub(super) fn no_login(&self) -> HeaderValue {
        self.cookie(self.name(), "", Duration::ZERO)
    }

    fn mac_of(&self, secret: &Secret) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(&secret.0);
        mac
    }

    /// With this prefix, browsers take a cookie from this host over an encrypted connection only.
    fn name(&self) -> &'static str {
        name(self.is_secure)
    }

    fn attempt_name(&self) -> &'static str {
        match self.is_secure {
            true => "__Host-adk-bridge-attempt",
            false => "adk-bridge-attempt",
        }
    }

    fn cookie(&self, name: &str, value: &str, life: Duration) -> HeaderValue {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let cookie = format!(
            "{name}={value}; Path=/; Max-Age={}; HttpOnly; SameSite=Lax{secure}",
            life.as_secs()
        );
        // Nothing in it is more than ASCII.
        let mut cookie = HeaderValue::try_from(cookie).unwrap_or(HeaderValue::from_static(""));
        cookie.set_sensitive(true);
        cookie
    }
}

impl Secret {
    /// None if the system has no random numbers.
    pub(super) fn new() -> Option<Self> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// Its hash, by which the store knows the login.
    pub(super) fn id(&self) -> String {
        url_safe(&Sha256::digest(self.0))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The value of a cookie. Browsers send the one first that is meant for the longer path.
fn value_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(header::COOKIE).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';'));
    pairs.find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sent_back(cookie: &HeaderValue) -> HeaderMap {
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, format!("a=b; {pair}; c").parse().unwrap());
        headers
    }

    #[test]
    fn only_what_was_written_here_is_read() {
        let cookies = Cookies::new(b"key", false).unwrap();
        let stranger = Cookies::new(b"another", false).unwrap();
        let secret = Secret::new().unwrap();
        let cookie = cookies.login(&secret, Duration::from_secs(60));
        assert!(cookie.is_sensitive());
        let sent = sent_back(&cookie);
        assert_eq!(cookies.secret_in(&sent).unwrap().0, secret.0);
        assert!(stranger.secret_in(&sent).is_none());
        assert!(cookies.secret_in(&sent_back(&cookies.no_login())).is_none());
        assert!(cookies.secret_in(&HeaderMap::new()).is_none());
        for forged in ["x", "", &"A".repeat(86), &"A".repeat(43)] {
            let mut headers = HeaderMap::new();
            let cookie = format!("adk-bridge-login={forged}");
            headers.insert(header::COOKIE, cookie.parse().unwrap());
            assert!(cookies.secret_in(&headers).is_none(), "{forged}");
        }

        let now = Timestamp::from_millis(1);
        let attempt = Attempt::new("corp", "https://b", "/".into(), now).unwrap();
        let sent = sent_back(&cookies.attempt(&attempt).unwrap());
        assert_eq!(cookies.attempt_in(&sent, now), Some(attempt));
        assert_eq!(cookies.attempt_in(&sent, now + LIFE), None);
        assert_eq!(stranger.attempt_in(&sent, now), None);
    }

    #[test]
    fn cookies_are_for_this_host_and_no_script() {
        let secret = Secret([7; SECRET_BYTES]);
        for (is_secure, name, end) in [
            (true, "__Host-adk-bridge-login=", "; Secure"),
            (false, "adk-bridge-login=", "SameSite=Lax"),
        ] {
            let cookies = Cookies::new(b"key", is_secure).unwrap();
            let cookie = cookies.login(&secret, Duration::from_secs(60));
            let cookie = cookie.to_str().unwrap();
            assert!(cookie.starts_with(name), "{cookie}");
            assert!(cookie.ends_with(end), "{cookie}");
            let rest = "; Path=/; Max-Age=60; HttpOnly; SameSite=Lax";
            assert!(cookie.contains(rest), "{cookie}");
        }
    }
}
