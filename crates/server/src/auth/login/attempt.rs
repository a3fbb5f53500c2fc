//! A login that was begun: what the browser keeps until it comes back from the provider.

use std::time::Duration;

use adk_bridge_protocol::base64;
use adk_bridge_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use url::{Url, form_urlencoded};

use crate::auth::oidc::Client;

/// Where providers send users back to.
pub(crate) const CALLBACK: &str = "/login/callback";

/// Long enough to find a telephone that shows a code.
pub(super) const LIFE: Duration = Duration::from_secs(15 * 60);

/// The longest place that a user can go back to; it travels in a cookie.
const MAX_PLACE_BYTES: usize = 1024;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub(super) provider: String,
    /// Where the user goes in the end.
    pub(super) to: String,
    /// The address that the provider sends the user back to.
    pub(super) redirect_uri: String,
    /// The answer must have it: nobody else's answer does.
    pub(super) state: String,
    /// The ID token must have it.
    pub(super) nonce: String,
    /// Proves to the provider that who exchanges the code has asked for it (PKCE).
    pub(super) verifier: String,
    /// Milliseconds since 1970.
    pub(super) until: u64,
}

/// What a provider sends a user back with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The code, or the word for why there is none.
    pub(super) code: Result<String, String>,
    pub(super) issuer: Option<String>,
}

impl Attempt {
    /// None if the system has no random numbers.
    pub(super) fn new(provider: &str, root: &str, to: String, now: Timestamp) -> Option<Self> {
        Some(Self {
            provider: provider.to_owned(),
            to: match to.len() <= MAX_PLACE_BYTES {
                true => to,
                false => format!("{root}/"),
            },
            redirect_uri: format!("{root}{CALLBACK}"),
            state: random()?,
            nonce: random()?,
            verifier: random()?,
            until: (now + LIFE).as_millis(),
        })
    }

    pub(super) fn is_good(&self, now: Timestamp) -> bool {
        now.as_millis() < self.until
    }

    /// The page of the provider, where the user logs in.
    pub(super) fn page(&self, mut page: Url, client: &Client) -> Url {
        let challenge = url_safe(&Sha256::digest(&self.verifier));
        page.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", &self.redirect_uri)
            .append_pair("scope", &client.scopes)
            .append_pair("state", &self.state)
            .append_pair("nonce", &self.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        page
    }

    /// What the provider says, if it is the answer to this attempt.
    pub(super) fn answer(&self, query: &str) -> Option<Answer> {
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect();
        let only = |name: &str| only(&pairs, name);
        let state = only("state")?;
        if !bool::from(state.as_bytes().ct_eq(self.state.as_bytes())) {
            return None;
        }
        let code = match (only("code"), only("error")) {
            (Some(code), None) if !code.is_empty() => Ok(code),
            (None, Some(word)) => Err(shown(&word)),
            _ => return None,
        };
        let issuer = only("iss");
        Some(Answer { code, issuer })
    }
}

/// The state that an answer is for.
pub(super) fn state_in(query: &str) -> Option<String> {
    let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    only(&pairs, "state")
}

/// The value of a field. One that occurs twice says nothing.
fn only(pairs: &[(String, String)], name: &str) -> Option<String> {
    let mut values = pairs.iter().filter(|(key, _)| key == name);
    let value = values.next()?;
    values.next().is_none().then(|| value.1.clone())
}

/// 256 random bits, as text for addresses.
fn random() -> Option<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).ok()?;
    Some(url_safe(&bytes))
}

/// Base64 that needs no escapes in an address.
pub(super) fn url_safe(bytes: &[u8]) -> String {
    let text = base64::encode(bytes);
    text.trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_")
}

/// A word of a provider for a refusal, if it is one.
fn shown(word: &str) -> String {
    let is_word = word.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
    match is_word && word.len() <= 40 {
        true => format!(" ({word})"),
        false => String::new(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_this_attempt_counts() {
        let now = Timestamp::from_millis(1_000);
        let new = || Attempt::new("corp", "https://b", "/#1".into(), now).unwrap();
        let (attempt, other) = (new(), new());
        assert!(attempt.is_good(now) && !attempt.is_good(now + LIFE));
        let with = |rest: &str| attempt.answer(&format!("state={}{rest}", attempt.state));
        let code = |answer: Option<Answer>| answer.map(|it| it.code);
        assert_eq!(code(with("&code=a%2Bb")), Some(Ok("a+b".into())));
        assert_eq!(
            code(with("&error=access_denied")),
            Some(Err(" (access_denied)".into()))
        );
        assert_eq!(code(with("&error=%3Cb%3E")), Some(Err(String::new())));
        for unclear in [
            "",
            "&code=",
            "&code=a&code=b",
            "&code=a&error=b",
            "&state=x&code=a",
        ] {
            assert_eq!(with(unclear), None, "{unclear}");
        }
        assert_eq!(attempt.answer("code=a"), None);
        let foreign = format!("state={}&code=a", other.state);
        assert_eq!(attempt.answer(&foreign), None);
        let issuer = with("&code=a&iss=https://op").unwrap().issuer;
        assert_eq!(issuer.as_deref(), Some("https://op"));
    }
}
