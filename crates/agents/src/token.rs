//! Tokens that expire, for the requests to an agent: fetched, renewed before they end, and replaced when refused.
//!
//! ```text
//!             fetched                   its end is near
//!   Nothing ───────────▶ Held ◀────────────────────────────▶ fetched again; the old one serves until its end
//!      ▲                  │ the agent refuses it (401)
//!      └──────────────────┘ fetched once more, and the request is sent once more
//! ```
//!
//! All requests of an agent share one [`Tokens`]. The bridge's own token serves all users: whoever finds that it is due fetches
//! it, and the others wait for the same answer. Tokens of users cannot be fetched: each comes with its user's requests, and
//! serves that user only (`users.rs`). No token is written to the log: each is hidden there while it is in use (`secrets.rs`).

pub(crate) mod fuzzing;
mod google;
mod users;

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use adk_bridge_protocol::id::UserId;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::error::AgentError;
use crate::secrets;
use google::Google;
use users::UserTokens;

/// The scope that covers Google Cloud, Vertex AI included.
pub const CLOUD_PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";

/// A source that does not answer in this time counts as failed: a user waits for it.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a failure is the answer for all requests, so that a source that is down is not asked by each of them.
const FAILURE_HOLDS: Duration = Duration::from_secs(2);
/// How often a token is fetched from a server because an agent refused the last one: an agent that refuses all of them must not make the
/// bridge ask for another one with every request.
const REFUSAL_PAUSE: Duration = Duration::from_secs(10);
/// A token is renewed when a fifth of its life is left, but at most this long before its end. Google's metadata server hands
/// out the same token until four minutes before its end.
const LONGEST_MARGIN: Duration = Duration::from_secs(4 * 60);
/// What counts of the life that a token states: nobody needs more, and a clock that far ahead can still be written.
const LONGEST_LIFE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// The life of a token that does not tell.
const UNKNOWN_LIFE: Duration = Duration::from_secs(5 * 60);
/// Servers commonly accept headers of 8 to 16 KB; tokens have one or two.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Where the token of an agent comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// A Google ID token for this audience, as Cloud Run and Identity-Aware Proxy take it.
    GoogleIdToken { audience: String },
    /// A Google access token, as Google's own interfaces take it.
    GoogleAccessToken { scopes: Vec<String> },
    /// A file that somebody else renews. It is read for every request.
    File { path: PathBuf },
    /// The user's own, which comes in this header of the user's requests.
    User { from: HeaderName },
}

/// The current tokens of an agent.
pub struct Tokens {
    header: HeaderName,
    holder: Holder,
}

/// Whose tokens they are.
enum Holder {
    /// One for all users.
    Bridge(Mutex<State>),
    Users(UserTokens),
}

/// One token, as a header has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

struct State {
    source: Source,
    held: Option<Held>,
    failed: Option<(Instant, TokenError)>,
    /// When a token was last fetched because the one before was refused.
    replaced: Option<Instant>,
}

enum Source {
    Google(Box<Google>),
    File(PathBuf),
}

struct Held {
    token: Token,
    renew_at: Instant,
    ends_at: Instant,
}

/// What a source returned.
struct Fetched {
    token: String,
    /// How long it is used without asking the source again.
    life: Life,
}

enum Life {
    /// The source keeps its token, and is asked every time.
    OfSource,
    For(Duration),
}

/// Why there is no token. The text is for the operator, and names paths and hosts of this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TokenError {
    text: String,
    remedy: Remedy,
}

/// What helps where a token is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remedy {
    /// Nothing changes by waiting: the configuration or a file is wrong.
    Operator,
    /// Asking again may help.
    Time,
    /// The user has to sign in again.
    User,
}

impl Tokens {
    /// `header`: where the token goes, `authorization` by default.
    pub fn new(source: TokenSource, header: Option<HeaderName>) -> Self {
        let holder = match source {
            TokenSource::File { path } => Holder::of(Source::File(path)),
            TokenSource::GoogleIdToken { audience } => {
                Holder::of(Source::Google(Box::new(Google::id_token(audience))))
            }
            TokenSource::GoogleAccessToken { scopes } => {
                Holder::of(Source::Google(Box::new(Google::access_token(scopes))))
            }
            TokenSource::User { from } => Holder::Users(UserTokens::new(from)),
        };
        Self {
            header: header.unwrap_or(AUTHORIZATION),
            holder,
        }
    }

    /// The token for a request on behalf of a user. What the bridge asks for itself, without a user, has none if tokens are
    /// those of users.
    pub async fn token(&self, user: Option<&UserId>) -> Result<Option<Token>, TokenError> {
        match (&self.holder, user) {
            (Holder::Bridge(state), _) => state.lock().await.token().await.map(Some),
            (Holder::Users(users), Some(user)) => users.token(user).map(Some),
            (Holder::Users(_), None) => Ok(None),
        }
    }

    /// Another token than the one that was refused, if there is one.
    pub async fn instead_of(&self, refused: &Token, user: Option<&UserId>) -> Option<Token> {
        match &self.holder {
            Holder::Bridge(state) => state.lock().await.instead_of(refused).await,
            Holder::Users(users) => {
                let newest = users.token(user?).ok()?;
                (newest != *refused).then_some(newest)
            }
        }
    }

    /// Whether every user has an own token. They come with users' requests, see [`Tokens::note`].
    pub fn are_of_users(&self) -> bool {
        matches!(self.holder, Holder::Users(_))
    }

    /// The header that brings a user's token.
    pub fn brought_by(&self) -> Option<&HeaderName> {
        match &self.holder {
            Holder::Users(users) => Some(users.from()),
            Holder::Bridge(_) => None,
        }
    }

    /// Takes the token of a user from the headers of a request, or the one that proved who the user is.
    pub fn note(&self, user: &UserId, proof: Option<&Token>, headers: &HeaderMap) {
        if let Holder::Users(users) = &self.holder {
            users.note(user, proof, headers);
        }
    }

    /// Forgets the token of a user.
    pub fn forget(&self, user: &UserId) {
        if let Holder::Users(users) = &self.holder {
            users.forget(user);
        }
    }

    /// What to do about a token that the agent refuses.
    pub fn advice(&self) -> &'static str {
        match self.holder {
            Holder::Bridge(_) => "see agent.token",
            Holder::Users(_) => {
                "it was asked with your own sign-in: sign in again, or ask for access to it"
            }
        }
    }

    /// Adds a token to the headers of a request.
    pub fn put(&self, token: &Token, headers: &mut HeaderMap) {
        // What cannot stand in a header was refused when it was fetched.
        if let Ok(mut value) = HeaderValue::try_from(format!("Bearer {}", token.0)) {
            value.set_sensitive(true);
            headers.insert(self.header.clone(), value);
        }
    }
}

impl Holder {
    fn of(source: Source) -> Self {
        Self::Bridge(Mutex::new(State {
            source,
            held: None,
            failed: None,
            replaced: None,
        }))
    }
}

impl Token {
    /// A token that can stand in a header.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TokenError::passing("the token is empty"));
        }
        let is_sendable = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_sendable || text.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::permanent(format!(
                "this is not a token: one word of at most {MAX_TOKEN_BYTES} letters, digits and signs is expected"
            )));
        }
        Ok(Self(text.to_owned()))
    }

    /// The token itself, for whoever may have it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl State {
    async fn instead_of(&mut self, refused: &Token) -> Option<Token> {
        let now = Instant::now();
        if let Some(held) = &self.held
            && held.token != *refused
        {
            // Another request has fetched it already.
            return Some(held.token.clone());
        }
        let is_recent = |last| now.duration_since(last) < REFUSAL_PAUSE;
        if self.replaced.is_some_and(is_recent) && !matches!(self.source, Source::File(_)) {
            return None;
        }
        self.replaced = Some(now);
        self.held = None;
        self.failed = None;
        self.source.begin_again();
        let token = self.token().await.ok()?;
        (token != *refused).then_some(token)
    }

    async fn token(&mut self) -> Result<Token, TokenError> {
        let now = Instant::now();
        if let Some(held) = self.held.as_ref().filter(|held| now < held.renew_at) {
            return Ok(held.token.clone());
        }
        let error = match &self.failed {
            Some((at, error)) if at.elapsed() < FAILURE_HOLDS => error.clone(),
            _ => match self.fetch().await {
                Ok(token) => return Ok(token),
                Err(error) => error,
            },
        };
        match &self.held {
            Some(held) if Instant::now() < held.ends_at => Ok(held.token.clone()),
            _ => Err(error),
        }
    }

    async fn fetch(&mut self) -> Result<Token, TokenError> {
        let fetched = match timeout(FETCH_TIMEOUT, self.source.fetch()).await {
            Ok(fetched) => fetched.and_then(|it| Ok((Token::new(&it.token)?, it.life))),
            Err(_) => Err(TokenError::passing(format!(
                "there was no answer within {} seconds",
                FETCH_TIMEOUT.as_secs()
            ))),
        };
        let (token, life) = fetched.inspect_err(|error| {
            tracing::warn!(
                detail = error.text,
                "an agent's token could not be fetched; see agent.token"
            );
            self.source.begin_again();
            self.failed = Some((Instant::now(), error.clone()));
        })?;
        let now = Instant::now();
        let (renew_at, ends_at) = match life {
            Life::OfSource => (now, now),
            Life::For(life) => (now + life.saturating_sub(margin(life)), now + life),
        };
        secrets::keep_token(&token.0);
        self.failed = None;
        self.held = Some(Held {
            token: token.clone(),
            renew_at,
            ends_at,
        });
        Ok(token)
    }
}

impl Source {
    async fn fetch(&mut self) -> Result<Fetched, TokenError> {
        match self {
            Self::Google(google) => google.fetch().await,
            Self::File(path) => read(path).await,
        }
    }

    /// Forgets what it knows of earlier tokens.
    fn begin_again(&mut self) {
        if let Self::Google(google) = self {
            google.begin_again();
        }
    }
}

impl TokenError {
    fn permanent(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            remedy: Remedy::Operator,
        }
    }

    fn passing(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            remedy: Remedy::Time,
        }
    }

    fn of_user(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            remedy: Remedy::User,
        }
    }

    /// Whether waiting cannot help.
    pub fn is_permanent(&self) -> bool {
        self.remedy == Remedy::Operator
    }

    /// The error of a turn. Users learn what they can do, or who can help them; the log has the reason.
    pub fn into_agent_error(self) -> AgentError {
        let message = match self.remedy {
            Remedy::Operator | Remedy::Time => {
                "the bridge has no token for the agent; its operator finds the reason in the log (agent.token)"
            }
            Remedy::User => {
                "the agent is asked with your own sign-in, which is missing or has expired; sign in again, then send your message again"
            }
        };
        AgentError::unauthorized(message, self.text)
    }
}

async fn read(path: &Path) -> Result<Fetched, TokenError> {
    use tokio::io::AsyncReadExt as _;
    let problem = |error: std::io::Error| {
        TokenError::permanent(format!(
            "the token file {} cannot be read: {error}; see that it is there and readable",
            path.display()
        ))
    };
    let file = tokio::fs::File::open(path).await.map_err(problem)?;
    let mut text = String::new();
    // One more than allowed, so that a longer one is noticed.
    let mut start = file.take(MAX_TOKEN_BYTES as u64 + 2);
    start.read_to_string(&mut text).await.map_err(problem)?;
    Ok(Fetched {
        token: text,
        life: Life::OfSource,
    })
}

/// How long before its end a token is renewed. It differs from one process to the next: those that were started together
/// need not ask together.
fn margin(life: Duration) -> Duration {
    let most = (life / 5).min(LONGEST_MARGIN);
    let eighths = 4 + u32::try_from(RandomState::new().hash_one(0_u8) % 5).unwrap_or_default();
    most * eighths / 8
}

/// How long a JSON Web Token is still valid, as it says itself; others do not say.
fn stated_life(token: &str) -> Option<Duration> {
    #[derive(Deserialize)]
    struct Claims {
        exp: u64,
    }
    let claims = token.split('.').nth(1);
    let claims = claims.and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok());
    let claims = claims.and_then(|claims| serde_json::from_slice::<Claims>(&claims).ok());
    let Claims { exp } = claims?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let life = Duration::from_secs(exp).saturating_sub(now.unwrap_or_default());
    Some(life.min(LONGEST_LIFE))
}

fn life_of(token: &str) -> Duration {
    stated_life(token).unwrap_or(UNKNOWN_LIFE)
}

/// Never shows a token.
impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token")
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tokens")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_file(path: &Path) -> Tokens {
        let path = path.to_owned();
        Tokens::new(TokenSource::File { path }, None)
    }

    fn sent(tokens: &Tokens, token: &Token) -> String {
        let mut headers = HeaderMap::new();
        tokens.put(token, &mut headers);
        let value = &headers[AUTHORIZATION];
        assert!(value.is_sensitive());
        value.to_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_file_is_read_for_every_request() {
        let directory = std::env::temp_dir().join(format!("tokens-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("token");
        let tokens = of_file(&path);
        let forget_failure = async || {
            let Holder::Bridge(state) = &tokens.holder else {
                unreachable!()
            };
            state.lock().await.failed = None;
        };
        let missing = tokens.token(None).await.unwrap_err();
        assert!(missing.is_permanent());
        assert!(missing.to_string().contains("token"), "{missing}");
        let error = missing.into_agent_error();
        assert!(!error.message().contains("tokens-"), "{error}");

        std::fs::write(&path, "first\n").unwrap();
        forget_failure().await;
        let first = tokens.token(None).await.unwrap().unwrap();
        assert_eq!(sent(&tokens, &first), "Bearer first");
        // The same token would be refused again.
        assert_eq!(tokens.instead_of(&first, None).await, None);
        std::fs::write(&path, "second").unwrap();
        let second = tokens.token(None).await.unwrap().unwrap();
        assert_eq!(sent(&tokens, &second), "Bearer second");
        assert_eq!(tokens.instead_of(&first, None).await, Some(second));
        for bad in ["", " \n", "two words", "a\u{e4}", &"x".repeat(20_000)] {
            std::fs::write(&path, bad).unwrap();
            forget_failure().await;
            assert!(tokens.token(None).await.is_err(), "{bad:?}");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_token_says_how_long_it_lives() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap().as_secs();
        let token = |claims: String| format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims));
        let life = life_of(&token(format!("{{\"exp\":{}}}", now + 3600)));
        assert!((3590..=3600).contains(&life.as_secs()), "{life:?}");
        let over = life_of(&token(format!("{{\"exp\":{}}}", now - 5)));
        assert_eq!(over, Duration::ZERO);
        for odd in [
            token("{}".into()),
            token("[".into()),
            "opaque".into(),
            "a.%.c".into(),
        ] {
            assert_eq!(life_of(&odd), UNKNOWN_LIFE, "{odd}");
        }
    }

    #[test]
    fn tokens_are_renewed_before_they_end() {
        for (life, from, to) in [(3600, 120, 240), (600, 60, 120), (10, 1, 2), (0, 0, 0)] {
            for _ in 0..50 {
                let margin = margin(Duration::from_secs(life));
                assert!(
                    (Duration::from_secs(from)..=Duration::from_secs(to)).contains(&margin),
                    "{life}: {margin:?}"
                );
            }
        }
    }
}
