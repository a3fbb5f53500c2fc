//! Access to the server: an [`Authenticator`] recognises the user of a request, a [`SourcePolicy`] says from where it
//! may come.
//!
//! Another way to log in is another file next to `api_keys.rs`, and a line in [`configured`].

mod any_of;
mod api_keys;
mod claim_mapping;
mod claims;
pub(crate) mod fuzzing;
mod jwt;
mod local_user;
pub(crate) mod login;
mod look;
pub(crate) mod oidc;
mod passed_on;
mod proxy;
mod refused_tokens;
mod replaceable;
mod roles;
mod running;
mod source;
mod wrong_keys;

use adk_bridge_agents::token::Token;
use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::time::Timestamp;
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
pub use jwt::Algorithm;
pub use local_user::LocalUser;
pub(crate) use login::exported as exported_login;
pub(crate) use login::{CALLBACK as LOGIN_CALLBACK, login_cookie};
pub use login::{LoginError, LoginWay, Logins, Step};
pub(crate) use look::look;
pub use replaceable::Replaceable;
pub use roles::{Role, RoleNeeded, Roles};
pub(crate) use running::RunningWays;
pub use source::{SourceError, SourcePolicy, is_forwarded};
pub use wrong_keys::WrongKeys;
pub(crate) use wrong_keys::network_of;

use crate::config::{Config, ConfigError};
use crate::metrics::Metrics;
use login::LoginCookies;
use oidc::{KeySource, OidcTokens, Provider};
use proxy::ProxyAssertions;

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
    /// What the user may do besides using their own chats.
    #[serde(default, skip_serializing_if = "Roles::is_plain")]
    pub roles: Roles,
    /// When what proves the identity ends, in milliseconds since 1970: a connection does not outlive it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    /// The login with the page that proves it, by the id that the store has for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    login: Option<String>,
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
    /// Whether the request itself brought a key or a token of the bridge's, which no browser adds unasked.
    pub(crate) fn is_by_key_or_token(&self) -> bool {
        matches!(&*self.via, api_keys::VIA | oidc::VIA)
    }

    pub fn new(user: impl Into<UserId>, via: &'static str) -> Self {
        Self {
            user: user.into(),
            via: via.into(),
            roles: Roles::default(),
            expires: None,
            login: None,
            claims: Claims::default(),
            token: None,
            token_headers: HeaderMap::new(),
        }
    }

    #[must_use]
    pub fn with_roles(self, roles: Roles) -> Self {
        Self { roles, ..self }
    }

    /// Says when what proves it ends.
    #[must_use]
    pub fn expiring(self, at: Timestamp) -> Self {
        let expires = Some(at.as_millis());
        Self { expires, ..self }
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
        self.roles.has(Role::Admin) || self.via == LocalUser::VIA
    }

    /// Refuses what only others may do.
    pub fn require(&self, role: Role) -> Result<(), RoleNeeded> {
        match self.roles.has(role) {
            true => Ok(()),
            false => Err(RoleNeeded(role)),
        }
    }

    pub fn expires(&self) -> Option<Timestamp> {
        self.expires.map(Timestamp::from_millis)
    }

    /// The login with the page that proves it.
    pub(crate) fn login(&self) -> Option<&str> {
        self.login.as_deref()
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
    /// They were valid, and have ended. Nobody can guess them, so they are not counted: behind one address, many users may
    /// come with theirs at the same moment.
    #[error("{0}")]
    Expired(Cow<'static, str>),
    /// Its credentials are valid, and another page may have made the browser send them.
    #[error("{0}")]
    Forbidden(Cow<'static, str>),
    /// The service that checks credentials cannot be reached.
    #[error("{0}")]
    Unavailable(Cow<'static, str>),
}

/// The ways to log in that a configuration asks for, before there is a store.
#[derive(Default)]
pub struct Ways {
    ways: Vec<Arc<dyn Authenticator>>,
    providers: Vec<Arc<Provider>>,
    /// Looked up at the start, so that the first user does not wait for it.
    keys: Vec<Arc<KeySource>>,
}

/// The ways to log in that a configuration asks for.
pub fn configured(config: &Config) -> Result<Ways, ConfigError> {
    configured_with(config, &[])
}

/// The same for a running server: what it knows of providers and proxies that stay need not be looked up again.
fn configured_with(config: &Config, known: &[Arc<KeySource>]) -> Result<Ways, ConfigError> {
    let auth = &config.auth;
    let states = config.each_agent().iter().map(|agent| &agent.state);
    let kept = states.flat_map(|state| state.claims()).collect();
    let mut ways: Vec<Arc<dyn Authenticator>> = Vec::new();
    let providers = auth.oidc.iter();
    let providers = providers.map(|oidc| Provider::new(oidc, &kept, known).map(Arc::new));
    let providers = providers.collect::<Result<Vec<_>, _>>()?;
    let mut keys: Vec<_> = providers.iter().map(|it| it.keys.clone()).collect();
    // First, since a token is recognised by its form, and anything else may be a key.
    if let Some(tokens) = OidcTokens::new(&providers) {
        ways.push(Arc::new(match auth.api_keys.is_empty() {
            true => tokens,
            false => tokens.beside_keys(),
        }));
    }
    if !auth.api_keys.is_empty() {
        let keys = ApiKeys::configured(&auth.api_keys);
        ways.push(Arc::new(match config.server.original_dialect() {
            Some(_) => keys.with_header(HeaderName::from_static("x-api-key")),
            None => keys,
        }));
    }
    if let Some(proxy) = &auth.proxy {
        let proxy = ProxyAssertions::new(proxy, &kept, known)?;
        keys.push(proxy.keys().clone());
        ways.push(Arc::new(proxy));
    }
    Ok(Ways {
        ways,
        providers,
        keys,
    })
}

impl Ways {
    /// [`Authenticator::requires_credentials`] of all of them.
    pub fn requires_credentials(&self) -> bool {
        let has_login = self.providers.iter().any(|it| it.client.is_some());
        has_login || !self.ways.is_empty() && self.ways.iter().all(|it| it.requires_credentials())
    }

    /// Those with which users log in with the page.
    fn with_page(&self) -> Vec<Arc<Provider>> {
        let has_client = |it: &&Arc<Provider>| it.client.is_some();
        self.providers.iter().filter(has_client).cloned().collect()
    }

    /// Counts from here on when a provider's keys cannot be looked up.
    pub fn count(&self, metrics: &Arc<Metrics>) {
        for keys in &self.keys {
            keys.count(metrics);
        }
    }

    /// The authenticator that takes each of them.
    fn with_logins(mut self, logins: &Arc<Logins>) -> Arc<dyn Authenticator> {
        for keys in &self.keys {
            keys.warm_up();
        }
        if !self.with_page().is_empty() {
            self.ways.push(Arc::new(LoginCookies(logins.clone())));
        }
        match self.ways.is_empty() {
            true => Arc::new(LocalUser),
            false => Arc::new(AnyOf::new(self.ways)),
        }
    }
}
