//! OpenID Connect: tokens that providers issue to users, `Authorization: Bearer TOKEN`.
//!
//! ```text
//!   a token ─┬─ checked before, by keys that still count ───────────────────────────▶ its user
//!            └─ which provider? ─▶ its keys ─▶ signature, issuer, audience, times ──▶ its user
//!                                     └─ an unknown key: looked up again, a few times at most
//! ```

mod key_source;
mod provider;
pub(crate) mod remote;
mod unknown;
mod verified;

use std::sync::Arc;

use adk_bridge_protocol::time::Timestamp;
use axum::http::header;
use axum::http::request::Parts;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::jwt::{MAX_SKEW, TokenError, Unverified, is_token};
use super::refused_tokens::RefusedTokens;
use super::{Authenticator, Identity, Refusal};
use crate::chat::now;
pub(super) use key_source::{Description, KeySource, Known};
pub(super) use provider::{Client, Provider};
pub(super) use remote::RemoteError;
pub(super) use verified::{Verified, digest};

pub(super) const VIA: &str = "oidc";
const HELP: &str =
    "a valid token is needed: Authorization: Bearer TOKEN, or log in with the page (GET /login)";
const NOT_ACCEPTED: &str = "this token is not accepted; the server's log says why. Get a new one for this bridge, or log in again";
const EXPIRED: &str = "this token has expired; get a new one, or log in again";
const AWAY: &str =
    "the identity provider cannot be asked whether this token is valid; try again in a moment";

/// Types of tokens for an audience; an ID token and one for logging out are for somebody else.
const TYPES: [&str; 2] = ["jwt", "at+jwt"];

/// Recognises users by the tokens of their providers.
#[derive(Debug)]
pub(super) struct OidcTokens {
    providers: Vec<Arc<Provider>>,
    /// Whether what has another form may be a key of this bridge.
    has_keys: bool,
    verified: Verified,
    refused: RefusedTokens,
}

impl OidcTokens {
    /// Takes those of providers that name an audience.
    pub(super) fn new(providers: &[Arc<Provider>]) -> Option<Self> {
        let taken = providers.iter().filter(|it| !it.audience.is_empty());
        let providers: Vec<_> = taken.cloned().collect();
        (!providers.is_empty()).then(|| Self {
            providers,
            has_keys: false,
            verified: Verified::default(),
            refused: RefusedTokens::default(),
        })
    }

    /// Leaves what has not the form of a token to those who know keys.
    pub(super) fn beside_keys(self) -> Self {
        Self {
            has_keys: true,
            ..self
        }
    }

    async fn identify(&self, request: &Parts) -> Result<Identity, Refusal> {
        let none = || Refusal::NoCredentials(HELP.into());
        let no_token = || match self.has_keys {
            true => none(),
            false => Refusal::WrongCredentials(HELP.into()),
        };
        let credentials = request
            .headers
            .get(header::AUTHORIZATION)
            .ok_or_else(none)?;
        let credentials = credentials.to_str().unwrap_or_default();
        let token = match credentials.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => return Err(no_token()),
        };
        if !is_token(token) {
            return Err(no_token());
        }
        let (digest, now) = (digest(token), now());
        if let Some((identity, (place, generation))) = self.verified.get(&digest, now)
            && let Some(provider) = self.providers.get(place)
            && let Ok(known) = provider.keys.known().await
            && known.generation == generation
        {
            return Ok(identity);
        }
        let read = Unverified::read(token).and_then(|token| {
            let issuer = token.issuer();
            let mut providers = self.providers.iter();
            let place = providers.position(|it| it.issuer == issuer);
            let place = place.ok_or_else(|| TokenError::unknown_issuer(issuer))?;
            Ok((token, place))
        });
        let (token, place) = read.map_err(|error| self.refuse("an unknown issuer", &error))?;
        let provider = &self.providers[place];
        let (identity, end, generation) = self.check(provider, &token, now).await?;
        let identity = identity.expiring(end);
        self.verified
            .insert(digest, identity.clone(), end, (place, generation), now);
        Ok(identity)
    }

    /// The user, when the token ends, and which keys it was checked with.
    async fn check(
        &self,
        provider: &Provider,
        token: &Unverified<'_>,
        now: Timestamp,
    ) -> Result<(Identity, Timestamp, u64), Refusal> {
        let (claims, known) = provider
            .checked(token, &provider.audience, &TYPES, now)
            .await
            .map_err(|problem| match problem {
                Problem::Token(error) => self.refuse(&provider.name, &error),
                Problem::Remote(problem) => {
                    tracing::debug!("a token of {} cannot be checked: {problem}", provider.name);
                    Refusal::Unavailable(AWAY.into())
                }
            })?;
        let identity = provider.mapping.identity(claims, VIA);
        let identity = identity.map_err(|error| self.refuse(&provider.name, &error))?;
        let end = claims.end().unwrap_or(now) + MAX_SKEW;
        Ok((identity, end, known.generation))
    }

    fn refuse(&self, provider: &str, error: &TokenError) -> Refusal {
        self.refused.note(provider, error);
        match error {
            // Only a token that is good otherwise has expired.
            TokenError::Expired(_) => Refusal::Expired(EXPIRED.into()),
            _ => Refusal::WrongCredentials(NOT_ACCEPTED.into()),
        }
    }
}

/// Why a token cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Whether it is good cannot be found out.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

/// Checks a token by keys that are looked up again if its key is not among them.
pub(super) async fn checked<'t>(
    token: &'t Unverified<'_>,
    keys: &Arc<KeySource>,
    expected: super::jwt::Expected<'_>,
    now: Timestamp,
) -> Result<(&'t super::jwt::Claims, Arc<Known>), Problem> {
    let came = Instant::now();
    let mut known = keys.known().await?;
    loop {
        match token.verified(&known.keys, expected, now) {
            Ok(claims) => return Ok((claims, known)),
            // What was asked before the token came may lack its key.
            Err(error @ TokenError::UnknownKey(_))
                if known.asked < came && token.may_be_good(expected, now) =>
            {
                let newer = keys.newer_than(&known, token.key()).await?;
                known = newer.ok_or(error)?;
            }
            Err(error) => {
                // Only a look that began after the token came has shown that.
                if matches!(error, TokenError::UnknownKey(_)) && known.asked >= came {
                    keys.note_absent(token.key());
                }
                return Err(error.into());
            }
        }
    }
}

impl Authenticator for OidcTokens {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Identity, Refusal>> {
        Box::pin(self.identify(request))
    }
}
