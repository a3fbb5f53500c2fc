//! What the fuzz targets read of logins: cookies, the query that a provider sends a user back with, and its answers.

use adk_bridge_protocol::time::Timestamp;
use axum::http::{HeaderMap, HeaderValue, header};
use serde_json::{Map, Value, json};

use super::attempt::{Attempt, state_in};
use super::cookies::Cookies;
use super::exchange::{Tokens, more_in};
use crate::auth::jwt::Claims;
use crate::auth::oidc::remote::oauth_word;

/// The state of the attempt in `fixtures/foreign/cookie`.
const STATE: &str = "the-state";

/// Reads the cookies of a request, with a key that has written those of `genuine`: no others are taken.
pub fn cookie(value: &[u8], key: &[u8], genuine: &str, now: Timestamp) {
    let Ok(cookies) = Cookies::new(key, false) else {
        return;
    };
    let read = |value: &[u8]| {
        let mut headers = HeaderMap::new();
        headers.extend(HeaderValue::from_bytes(value).map(|value| (header::COOKIE, value)));
        let secret = cookies.secret_in(&headers).map(|it| it.bytes().to_vec());
        (secret, cookies.attempt_in(&headers, STATE, now))
    };
    let (secret, attempt) = read(value);
    let (our_secret, our_attempt) = read(genuine.as_bytes());
    assert!(our_secret.is_some() && our_attempt.is_some(), "ours");
    assert!(secret.is_none() || secret == our_secret, "a forged login");
    assert!(attempt.is_none() || attempt == our_attempt, "a forged one");
}

/// Reads the query with which a user comes back: it counts only with the state of the attempt, and says one thing.
pub fn login_answer(query: &str) {
    let attempt = json!({
        "provider": "corp", "to": "/", "redirect_uri": "https://b/login/callback", "state": "the-state",
        "nonce": "n", "verifier": "v", "until": u64::MAX,
    });
    let attempt: Option<Attempt> = serde_json::from_value(attempt).ok();
    if let Some(answer) = attempt.and_then(|attempt| attempt.answer(query)) {
        assert_eq!(
            state_in(query).as_deref(),
            Some("the-state"),
            "without a state"
        );
        let is_shown = |word: &str| !word.contains(['<', '"', '&']) && word.len() < 50;
        assert!(
            answer
                .code
                .map_or_else(|word| is_shown(&word), |code| !code.is_empty())
        );
    }
}

/// Reads the answers of a provider about its user. What it says of somebody else is not taken.
pub fn login_exchange(body: &[u8]) {
    if let Ok(tokens) = serde_json::from_slice::<Tokens>(body) {
        let _ = tokens.id_token;
    }
    let alice = Map::from_iter([("sub".to_owned(), Value::from("alice"))]);
    if let Some(more) = more_in(body, &Claims(alice)) {
        assert_eq!(more["sub"], "alice", "somebody else");
    }
    let word = oauth_word(body);
    let is_word = |it: u8| it.is_ascii_lowercase() || b" ()_".contains(&it);
    assert!(word.len() < 50 && word.bytes().all(is_word), "{word:?}");
}
