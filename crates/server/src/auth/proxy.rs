//! A proxy that logs users in and signs who they are, such as Google's Identity-Aware Proxy.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::HeaderName;
use axum::http::request::Parts;
use futures_util::future::BoxFuture;

use super::claim_mapping::ClaimMapping;
use super::jwt::{Expected, MAX_SKEW, TokenError, Unverified};
use super::oidc::{KeySource, Problem, Verified, checked, digest};
use super::refused_tokens::RefusedTokens;
use super::{Authenticator, Identity, Refusal};
use crate::chat::now;
use crate::config::{ConfigError, Proxy};

pub(super) const VIA: &str = "proxy";
const HELP: &str = "come through the proxy that logs users in";
const NOT_ACCEPTED: &str = "the assertion of the proxy is not accepted; the server's log says why";
const EXPIRED: &str = "the assertion of the proxy has expired; send the request again";
const AWAY: &str = "the keys of the proxy cannot be looked up; try again in a moment";

const TYPES: [&str; 1] = ["jwt"];

/// Recognises users by what their proxy signs. A header that is not signed proves nothing.
#[derive(Debug)]
pub(super) struct ProxyAssertions {
    header: HeaderName,
    keys: Arc<KeySource>,
    config: Proxy,
    mapping: ClaimMapping,
    verified: Verified,
    refused: RefusedTokens,
}

impl ProxyAssertions {
    /// `kept` are the claims that some agent needs, `known` what is known of keys.
    pub(super) fn new(
        config: &Proxy,
        kept: &BTreeSet<String>,
        known: &[Arc<KeySource>],
    ) -> Result<Self, ConfigError> {
        let keys = KeySource::of_keys(config.keys()?, config.keys_max_age.0, known);
        let keys = keys.map_err(|error| {
            ConfigError::value(
                "auth.proxy",
                format!("no connection can be set up: {error}"),
            )
        })?;
        let roles = (config.roles_claim.as_deref(), &config.roles);
        Ok(Self {
            header: config.header()?,
            keys,
            mapping: ClaimMapping::new(VIA, &config.user_claim, roles, kept),
            config: config.clone(),
            verified: Verified::default(),
            refused: RefusedTokens::default(),
        })
    }

    pub(super) fn keys(&self) -> &Arc<KeySource> {
        &self.keys
    }

    async fn identify(&self, request: &Parts) -> Result<Identity, Refusal> {
        let none = || Refusal::NoCredentials(HELP.into());
        let assertion = request.headers.get(&self.header).ok_or_else(none)?;
        let assertion = assertion.to_str().unwrap_or_default();
        let (digest, now) = (digest(assertion), now());
        if let Some((identity, (_, generation))) = self.verified.get(&digest, now)
            && let Ok(known) = self.keys.known().await
            && known.generation == generation
        {
            return Ok(identity);
        }
        let token = Unverified::read(assertion).map_err(|error| self.refuse(&error))?;
        let expected = Expected {
            issuer: self.config.issuer.as_deref(),
            audience: &self.config.audience,
            algorithms: &self.config.algorithms,
            types: &TYPES,
        };
        let checked = checked(&token, &self.keys, expected, now).await;
        let (claims, known) = checked.map_err(|problem| match problem {
            Problem::Token(error) => self.refuse(&error),
            Problem::Remote(_) => Refusal::Unavailable(AWAY.into()),
        })?;
        let end = claims.end().unwrap_or(now) + MAX_SKEW;
        let identity = self.mapping.identity(claims, VIA);
        // Bound to its end: the proxy makes a new one for every request, and a WebSocket that ends is opened by another one.
        let identity = identity.map_err(|error| self.refuse(&error))?.expiring(end);
        self.verified
            .insert(digest, identity.clone(), end, (0, known.generation), now);
        Ok(identity)
    }

    fn refuse(&self, error: &TokenError) -> Refusal {
        self.refused.note("the proxy", error);
        match error {
            // Only an assertion that is good otherwise has expired.
            TokenError::Expired(_) => Refusal::Expired(EXPIRED.into()),
            _ => Refusal::WrongCredentials(NOT_ACCEPTED.into()),
        }
    }
}

impl Authenticator for ProxyAssertions {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Identity, Refusal>> {
        Box::pin(self.identify(request))
    }
}
