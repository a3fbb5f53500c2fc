//! The cookies of logins: an attempt in each tab until the provider has answered, and then the secret of a login.
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
/// How many attempts a browser keeps, one for each tab. Together they fit the 8 KB that proxies take as a header.
const MAX_ATTEMPTS: usize = 3;
/// How much of the hash of its state the name of an attempt has.
const NAME_BYTES: usize = 9;
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

    /// The cookie of an attempt, and what removes those of a browser that has too many: the oldest ones, and those that are over.
    pub(super) fn attempt(
        &self,
        attempt: &Attempt,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Vec<HeaderValue>, StoreError> {
        let text = serde_json::to_vec(attempt).unwrap_or_default();
        let sealed = self.seal.close(ATTEMPTS, &text)?;
        let mut others: Vec<(Option<u64>, &str)> = pairs(headers)
            .filter(|(name, _)| is_attempt(name, self.attempt_prefix()))
            .map(|(name, value)| (self.opened(value, now).map(|it| it.until), name))
            .collect();
        others.sort_unstable();
        others.dedup_by_key(|it| it.1);
        let good = others.iter().filter(|(until, _)| until.is_some()).count();
        let mut spare = good.saturating_sub(MAX_ATTEMPTS - 1);
        let mut cookies = vec![self.cookie(&self.attempt_name(&attempt.state), &sealed, LIFE)];
        // Those that are over come first.
        for (until, name) in others {
            let is_spare = until.is_none() || spare > 0;
            if until.is_some() {
                spare = spare.saturating_sub(1);
            }
            if is_spare {
                cookies.push(self.cookie(name, "", Duration::ZERO));
            }
        }
        Ok(cookies)
    }

    /// The attempt that an answer with this state is for.
    pub(super) fn attempt_in(
        &self,
        headers: &HeaderMap,
        state: &str,
        now: Timestamp,
    ) -> Option<Attempt> {
        let name = self.attempt_name(state);
        let attempt = self.opened(value_of(headers, &name)?, now)?;
        (attempt.state == state).then_some(attempt)
    }

    fn opened(&self, sealed: &str, now: Timestamp) -> Option<Attempt> {
        let text = self.seal.open_text(ATTEMPTS, sealed)?;
        let attempt: Attempt = serde_json::from_slice(&text).ok()?;
        attempt.is_good(now).then_some(attempt)
    }

    pub(super) fn no_attempt(&self, state: &str) -> HeaderValue {
        self.cookie(&self.attempt_name(state), "", Duration::ZERO)
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

    /// Each attempt has its own: two tabs do not overwrite each other's.
    fn attempt_name(&self, state: &str) -> String {
        let hash = Sha256::digest(state);
        format!("{}{}", self.attempt_prefix(), url_safe(&hash[..NAME_BYTES]))
    }

    fn attempt_prefix(&self) -> &'static str {
        match self.is_secure {
            true => "__Host-adk-bridge-attempt-",
            false => "adk-bridge-attempt-",
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
    let (_, value) = pairs(headers).find(|(key, _)| *key == name)?;
    Some(value)
}

/// The cookies of a request.
fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(header::COOKIE).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
}

/// Whether a cookie has the name of an attempt: its name is repeated to remove it.
fn is_attempt(name: &str, prefix: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_');
    let rest = name.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.len() == NAME_BYTES.div_ceil(3) * 4 && rest.bytes().all(is_plain))
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
        let written = cookies.attempt(&attempt, &HeaderMap::new(), now).unwrap();
        let sent = sent_back(&written[0]);
        let found = cookies.attempt_in(&sent, &attempt.state, now);
        assert_eq!(found, Some(attempt.clone()));
        assert_eq!(cookies.attempt_in(&sent, "another", now), None);
        assert_eq!(cookies.attempt_in(&sent, &attempt.state, now + LIFE), None);
        assert_eq!(stranger.attempt_in(&sent, &attempt.state, now), None);
    }

    /// What a browser holds after it was sent these cookies.
    fn keep(held: &mut Vec<(String, String)>, sent: &[HeaderValue]) -> HeaderMap {
        for cookie in sent {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            held.retain(|(it, _)| it != name);
            if !value.is_empty() {
                held.push((name.to_owned(), value.to_owned()));
            }
        }
        let pairs: Vec<_> = held
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, pairs.join("; ").parse().unwrap());
        headers
    }

    #[test]
    fn each_tab_has_its_attempt_and_a_browser_keeps_a_few() {
        let cookies = Cookies::new(b"key", true).unwrap();
        let at = |second: u64| Timestamp::from_millis(1_000 * second);
        let odd = format!("{}AAAABBBBCCCC", cookies.attempt_prefix());
        let mut held = vec![
            ("theme".to_owned(), "dark".to_owned()),
            (odd, "x".to_owned()),
        ];
        let mut headers = keep(&mut held, &[]);
        let mut attempts = Vec::new();
        for second in 0..5 {
            let attempt = Attempt::new("corp", "https://b", "/".into(), at(second)).unwrap();
            let sent = cookies.attempt(&attempt, &headers, at(second)).unwrap();
            headers = keep(&mut held, &sent);
            attempts.push(attempt);
        }
        let found = |attempt: &Attempt, headers: &HeaderMap| {
            cookies.attempt_in(headers, &attempt.state, at(5)).as_ref() == Some(attempt)
        };
        let kept: Vec<bool> = attempts.iter().map(|it| found(it, &headers)).collect();
        assert_eq!(kept, [false, false, true, true, true]);
        assert_eq!(held.len(), 1 + MAX_ATTEMPTS, "{held:?}");
        // One that has led to a login is gone, and the others are not.
        headers = keep(&mut held, &[cookies.no_attempt(&attempts[3].state)]);
        let kept: Vec<bool> = attempts.iter().map(|it| found(it, &headers)).collect();
        assert_eq!(kept, [false, false, true, false, true]);
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
