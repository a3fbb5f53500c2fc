//! Access to the server: an [`Authenticator`] recognises the user of a request, a [`SourcePolicy`] says from where it
//! may come.
//!
//! Another way to log in is another file next to `api_keys.rs`, and a line in [`configured`].

mod any_of;
mod api_keys;
mod claims;
mod local_user;
mod passed_on;
mod replaceable;
mod source;
mod wrong_keys;

use adk_bridge_agents::token::Token;
use adk_bridge_protocol::id::UserId;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

pub use any_of::AnyOf;
pub use api_keys::ApiKeys;
pub use claims::{Claims, ClaimsError};
pub use local_user::LocalUser;
pub use replaceable::Replaceable;
pub use source::{SourceError, SourcePolicy, is_forwarded};
pub use wrong_keys::WrongKeys;
pub(crate) use wrong_keys::network_of;

use crate::config::Config;

/// Recognises the user of a request.
///
/// It is asked once for every request and every WebSocket, before the body is read. Browsers cannot send credentials
/// with a WebSocket: they ask for a ticket with a request, and the ticket stands for the [`Identity`] of that request.
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// The identity that the head of a request proves, or why it proves none.
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Identity, Refusal>>;

    /// Whether a request must bring credentials. If not, every client that reaches the server is its user, so it serves
    /// this machine only.
    fn requires_credentials(&self) -> bool {
        true
    }
}

/// The user on whose behalf a request is served, and what its credentials say of that user. Replicas tell it to each other as
/// JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Identity {
    pub user: UserId,
    /// How the user was recognised, in a word for logs.
    pub via: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "Claims::is_empty")]
    claims: Claims,
    #[serde(
        default,
        with = "passed_on::proof",
        skip_serializing_if = "Option::is_none"
    )]
    token: Option<Token>,
    /// The headers of the request that have tokens for agents.
    #[serde(
        default,
        with = "passed_on::headers",
        skip_serializing_if = "HeaderMap::is_empty"
    )]
    token_headers: HeaderMap,
}

impl Identity {
    pub fn new(user: impl Into<UserId>, via: &'static str) -> Self {
        Self {
            user: user.into(),
            via: via.into(),
            claims: Claims::default(),
            token: None,
            token_headers: HeaderMap::new(),
        }
    }

    /// Adds what is known of the user, for `agent.state`.
    #[must_use]
    pub fn with_claims(self, claims: Claims) -> Self {
        Self { claims, ..self }
    }

    /// Adds the token that proves who the user is, for agents that are asked with it (`agent.token` of kind `user`). It is
    /// sent to them, so it must not be a key of this server.
    #[must_use]
    pub fn with_token(self, token: Token) -> Self {
        let token = Some(token);
        Self { token, ..self }
    }

    /// Adds the headers that brought tokens for agents.
    #[must_use]
    pub(crate) fn with_token_headers(self, token_headers: HeaderMap) -> Self {
        Self {
            token_headers,
            ..self
        }
    }

    /// Whether the user may do what concerns others: erase them, and read everybody's audit. The local user is the only one
    /// that there is.
    pub fn is_admin(&self) -> bool {
        self.via == LocalUser::VIA
    }

    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    pub fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    pub(crate) fn token_headers(&self) -> &HeaderMap {
        &self.token_headers
    }
}

/// Why a request has no identity. The message tells the client what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request brings nothing that could identify its user.
    #[error("{0}")]
    NoCredentials(Cow<'static, str>),
    /// Its credentials are not valid. An address that tries this too often has to wait.
    #[error("{0}")]
    WrongCredentials(Cow<'static, str>),
    /// The service that checks credentials cannot be reached.
    #[error("{0}")]
    Unavailable(Cow<'static, str>),
}

/// The authenticator that a configuration asks for.
pub fn configured(config: &Config) -> Arc<dyn Authenticator> {
    let auth = &config.auth;
    let mut ways: Vec<Arc<dyn Authenticator>> = Vec::new();
    if !auth.api_keys.is_empty() {
        let keys = auth.api_keys.iter();
        let keys = keys.map(|key| (&key.key, &key.user, key.claims.clone()));
        let keys = ApiKeys::with_claims(keys);
        ways.push(Arc::new(match config.server.original_dialect() {
            Some(_) => keys.with_header(HeaderName::from_static("x-api-key")),
            None => keys,
        }));
    }
    match ways.is_empty() {
        true => Arc::new(LocalUser),
        false => Arc::new(AnyOf::new(ways)),
    }
}
