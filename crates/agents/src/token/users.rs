//! Tokens that users bring with their requests: in memory only, and each for its own user.
//!
//! ```text
//!             a request brings one                 its end, or the user stays away
//!   Nothing ──────────────────────▶ Held ───────────────────────────────────────────▶ Nothing
//!                                    │ ▲ a request brings another
//!                                    └─┘
//! ```
//!
//! The bridge does not check who has issued a token: the agent does, and a user can only hand in what that user holds.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adk_bridge_protocol::id::UserId;
use reqwest::header::{HeaderMap, HeaderName};
use tokio::time::Instant;

use super::{Token, TokenError, stated_life};
use crate::secrets;

/// How many users' tokens are held, a few KB each; the user who has stayed away longest has to come back first.
const MAX_USERS: usize = 10_000;
/// How long a token is held whose user stays away and which does not say its end: a working day.
const LONGEST_ABSENCE: Duration = Duration::from_secs(12 * 60 * 60);
/// The scheme that a header may have before the token.
const SCHEME: &str = "bearer ";

/// The newest token of every user.
pub(super) struct UserTokens {
    from: HeaderName,
    held: Mutex<HashMap<UserId, Held>>,
}

struct Held {
    token: Token,
    /// When it ends, if it says so.
    ends_at: Option<Instant>,
    /// When a request last brought it.
    seen: Instant,
}

impl UserTokens {
    pub(super) fn new(from: HeaderName) -> Self {
        Self {
            from,
            held: Mutex::default(),
        }
    }

    pub(super) fn from(&self) -> &HeaderName {
        &self.from
    }

    /// Holds the token of a request; `proof` is the one by which its user was recognised, and counts first.
    pub(super) fn note(&self, user: &UserId, proof: Option<&Token>, headers: &HeaderMap) {
        let now = Instant::now();
        if let Some(token) = proof.cloned().or_else(|| self.read(headers)) {
            self.note_at(user, token, now);
        }
    }

    pub(super) fn forget(&self, user: &UserId) {
        self.held().remove(user);
    }

    fn note_at(&self, user: &UserId, token: Token, now: Instant) {
        let mut held = self.held();
        if let Some(same) = held.get_mut(user).filter(|it| it.token == token) {
            same.seen = now;
            return;
        }
        let life = stated_life(&token.0);
        // It would take the place of one that may still serve.
        if life.is_some_and(|life| life.is_zero()) {
            return;
        }
        if held.len() >= MAX_USERS && !held.contains_key(user) {
            held.retain(|_, it| it.serves(now));
            let longest_away = held.iter().min_by_key(|(_, it)| it.seen);
            if held.len() >= MAX_USERS
                && let Some(user) = longest_away.map(|(user, _)| user.clone())
            {
                held.remove(&user);
            }
        }
        held.insert(
            user.clone(),
            Held {
                ends_at: life.map(|life| now + life),
                token,
                seen: now,
            },
        );
    }

    pub(super) fn token(&self, user: &UserId) -> Result<Token, TokenError> {
        self.token_at(user, Instant::now())
    }

    fn token_at(&self, user: &UserId, now: Instant) -> Result<Token, TokenError> {
        let mut held = self.held();
        let Some(found) = held.get(user) else {
            return Err(TokenError::of_user(format!(
                "no request of the user has brought a token in {} since the bridge was started",
                self.from
            )));
        };
        if !found.serves(now) {
            held.remove(user);
            return Err(TokenError::of_user("the user's token has expired"));
        }
        // An agent may quote it in its answer.
        secrets::keep_token(&found.token.0);
        Ok(found.token.clone())
    }

    /// The token in the headers of a request, if there is exactly one.
    fn read(&self, headers: &HeaderMap) -> Option<Token> {
        let mut values = headers.get_all(&self.from).iter();
        let (value, None) = (values.next()?.to_str().ok()?, values.next()) else {
            return None;
        };
        let scheme = value.get(..SCHEME.len()).unwrap_or_default();
        let token = match scheme.eq_ignore_ascii_case(SCHEME) {
            true => &value[SCHEME.len()..],
            false => value,
        };
        Token::new(token).ok()
    }

    /// Poisoning is ignored: no critical section can leave the map inconsistent.
    fn held(&self) -> MutexGuard<'_, HashMap<UserId, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn serves(&self, now: Instant) -> bool {
        match self.ends_at {
            Some(end) => now < end,
            None => now.duration_since(self.seen) < LONGEST_ABSENCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use reqwest::header::HeaderValue;

    use super::*;

    const FROM: HeaderName = HeaderName::from_static("x-forwarded-access-token");

    /// A token that nobody signed, valid for so many seconds.
    fn jwt(name: &str, seconds: u64) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let claims = format!(
            "{{\"name\":\"{name}\",\"exp\":{}}}",
            now.unwrap().as_secs() + seconds
        );
        format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims))
    }

    fn with(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.append(FROM, HeaderValue::from_str(value).unwrap());
        headers
    }

    fn user(name: &str) -> UserId {
        UserId::from(name)
    }

    fn of(tokens: &UserTokens, name: &str, at: Instant) -> Option<String> {
        tokens.token_at(&user(name), at).ok().map(|token| token.0)
    }

    #[test]
    fn a_token_that_states_an_endless_life_is_taken() {
        let tokens = UserTokens::new(FROM);
        let claims = URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{}}}", u64::MAX));
        let token = format!("e30.{claims}.x");
        tokens.note(&user("ann"), None, &with(&token));
        assert_eq!(of(&tokens, "ann", Instant::now()), Some(token));
    }

    #[test]
    fn every_user_has_the_newest_of_the_own_tokens() {
        let tokens = UserTokens::new(FROM);
        let now = Instant::now();
        tokens.note(&user("ann"), None, &with("Bearer opaque-of-ann"));
        tokens.note(&user("bob"), None, &with("opaque-of-bob"));
        assert_eq!(of(&tokens, "ann", now).unwrap(), "opaque-of-ann");
        assert_eq!(of(&tokens, "bob", now).unwrap(), "opaque-of-bob");
        assert_eq!(of(&tokens, "eve", now), None);

        let (newer, proof) = (jwt("newer", 600), Token::new("proof-of-ann").unwrap());
        tokens.note(&user("ann"), None, &with(&newer));
        assert_eq!(of(&tokens, "ann", now).unwrap(), newer);
        // Neither an expired one nor one that is none takes its place.
        for bad in [&jwt("older", 0), "two words", "Bearer ", ""] {
            tokens.note(&user("ann"), None, &with(bad));
            assert_eq!(of(&tokens, "ann", now).unwrap(), newer, "{bad:?}");
        }
        let mut two = with("one-token");
        two.append(FROM, HeaderValue::from_static("another"));
        tokens.note(&user("ann"), None, &two);
        assert_eq!(of(&tokens, "ann", now).unwrap(), newer);
        tokens.note(&user("ann"), Some(&proof), &with("other"));
        assert_eq!(of(&tokens, "ann", now).unwrap(), "proof-of-ann");
    }

    #[test]
    fn a_token_ends_when_it_says_so_or_with_a_long_absence() {
        let tokens = UserTokens::new(FROM);
        let now = Instant::now();
        let token = Token::new(&jwt("a", 600)).unwrap();
        tokens.note_at(&user("ann"), token.clone(), now);
        assert!(of(&tokens, "ann", now + Duration::from_secs(590)).is_some());
        let error = tokens.token_at(&user("ann"), now + Duration::from_secs(601));
        let error = error.unwrap_err();
        assert!(!error.is_permanent());
        assert!(error.into_agent_error().message().contains("sign in again"));
        assert!(tokens.held().is_empty());

        let opaque = Token::new("opaque-token").unwrap();
        tokens.note_at(&user("ann"), opaque.clone(), now);
        let later = now + LONGEST_ABSENCE - Duration::from_secs(1);
        tokens.note_at(&user("ann"), opaque, later);
        assert!(of(&tokens, "ann", now + LONGEST_ABSENCE).is_some());
        assert!(of(&tokens, "ann", later + LONGEST_ABSENCE).is_none());
    }

    #[test]
    fn the_user_who_stayed_away_longest_makes_room() {
        let tokens = UserTokens::new(FROM);
        let now = Instant::now();
        let token = |number: usize| Token::new(&format!("token-{number}")).unwrap();
        for number in 0..=MAX_USERS {
            let at = now + Duration::from_millis(number as u64);
            tokens.note_at(&user(&number.to_string()), token(number), at);
        }
        assert_eq!(tokens.held().len(), MAX_USERS);
        let at = now + Duration::from_secs(60);
        assert_eq!(of(&tokens, "0", at), None);
        assert!(of(&tokens, "1", at).is_some());
    }
}
