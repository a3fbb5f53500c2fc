//! Logins with the page: at a provider (OpenID Connect, authorization code with PKCE), and then by a cookie.
//!
//! ```text
//!   GET /login ──▶ an attempt, sealed in a cookie ──▶ the provider's page ──▶ GET /login/callback ──▶ a row, and its cookie
//!   requests with the cookie ──▶ the row, looked up every few seconds ──▶ the user
//! ```
//!
//! The cookie holds a random secret, and the store its hash. Nothing is stored before a provider has said who the user is.

mod attempt;
mod cookies;
mod exchange;
mod exchanges;
pub(crate) mod fuzzing;
mod remembered;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::time::Timestamp;
use arc_swap::ArcSwap;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use url::Url;

use super::claim_mapping::{Groups, display_name};
use super::jwt::Claims;
use super::oidc::{Problem, Provider};
use super::refused_tokens::RefusedTokens;
use super::{Authenticator, Identity, Refusal, SourcePolicy};
use crate::chat::now;
use crate::config::Config;
use crate::credentials::Seal;
use crate::store::{LoginRow, Store, StoreError};
use attempt::Attempt;
use cookies::{Cookies, Secret};
use exchanges::Exchanges;
use remembered::Remembered;

pub(crate) use attempt::CALLBACK;
pub(crate) use cookies::login_cookie;

const VIA: &str = "login";
const HELP: &str = "log in: GET /login";
const ENDED: &str = "your login has ended; log in again: GET /login";

/// The name under which the store keeps the key.
const SECRET: &str = "logins";
const KEY_BYTES: usize = 32;
/// What an ID token is sealed for, with a key that only the cookie holds.
const ID_TOKEN: &str = "adk-bridge: the ID token of a login, 1";

/// How often it is noted that a login is used, unless it may be unused only shortly.
const NOTED_EVERY: Duration = Duration::from_secs(60);
/// How often a connection looks whether its login has ended at another replica.
const CONNECTIONS_LOOK_EVERY: Duration = Duration::from_secs(30);
/// An ID token beyond this is not kept; it serves only to spare a question when the user logs out.
const MAX_ID_TOKEN_BYTES: usize = 8 * 1024;

/// The logins of a server.
pub struct Logins {
    settings: ArcSwap<Settings>,
    store: Arc<dyn Store>,
    cookies: Cookies,
    remembered: Remembered<Option<Arc<Login>>>,
    /// Whenever somebody logs out here.
    ended: Notify,
    exchanges: Exchanges,
    refused: RefusedTokens,
}

/// What a reload replaces.
struct Settings {
    providers: Vec<Arc<Provider>>,
    policy: SourcePolicy,
    idle: Duration,
    longest: Duration,
}

/// A login that was looked up.
#[derive(Debug)]
struct Login {
    identity: Identity,
    body: Body,
    seen: Mutex<Timestamp>,
    ends: Timestamp,
}

/// What the store keeps of a login.
#[derive(Debug, Serialize, Deserialize)]
struct Body {
    identity: Identity,
    /// The provider that said who it is.
    provider: String,
    /// What its roles come from. A login from before this was kept has the roles of its identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    groups: Option<Groups>,
    /// What a page may call the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Sealed with what the cookie holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id_token: Option<String>,
}

/// A way to log in, as pages show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LoginWay {
    /// The provider, as its users' ids begin.
    pub name: String,
    /// Where it begins, from the root of the bridge.
    pub path: String,
}

/// Where the browser goes next, and the cookies that it keeps.
#[derive(Debug)]
pub struct Step {
    pub location: String,
    pub cookies: Vec<HeaderValue>,
}

/// Why a login does not come about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    #[error("there is no such way to log in")]
    NoProvider,
    #[error("this login was not begun here, or too long ago; begin again")]
    Unknown,
    #[error("the identity provider did not log you in{0}")]
    Denied(String),
    #[error("what the identity provider said is not accepted; the server's log says why")]
    NotAccepted,
    #[error("the identity provider cannot be reached; try again in a moment")]
    Away,
    #[error("too many users log in at this moment; try again")]
    Busy,
    #[error(
        "too many logins from your address were not accepted (limits.wrong_keys_per_minute); wait, and begin again"
    )]
    TooMany(Duration),
    #[error("set server.public_url: the provider has to send you back to an address that it knows")]
    NoAddress,
    /// What the store says, for the log.
    #[error("{0}")]
    Store(String),
}

impl From<StoreError> for LoginError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl Logins {
    pub(super) async fn open(
        config: &Config,
        providers: Vec<Arc<Provider>>,
        store: Arc<dyn Store>,
    ) -> Result<Self, StoreError> {
        let mut fresh = [0; KEY_BYTES];
        getrandom::fill(&mut fresh).map_err(|error| StoreError::Io {
            doing: "making a key for logins",
            why: Box::new(error),
        })?;
        let key = store.secret(SECRET, &fresh).await?;
        let public_url = config.server.public_url.as_deref();
        let is_secure = cookies::are_secure(public_url);
        Ok(Self {
            settings: ArcSwap::from_pointee(Settings::new(config, providers)),
            cookies: Cookies::new(&key, is_secure)?,
            store,
            remembered: Remembered::default(),
            ended: Notify::new(),
            exchanges: Exchanges::new(config.limits.wrong_keys_per_minute),
            refused: RefusedTokens::default(),
        })
    }

    /// Another configuration counts from here on. Connections of logins that it does not know are closed.
    pub(super) fn set(&self, config: &Config, providers: Vec<Arc<Provider>>) {
        self.settings
            .store(Arc::new(Settings::new(config, providers)));
        self.exchanges.limit(config.limits.wrong_keys_per_minute);
        self.ended.notify_waiters();
    }

    /// Whether anybody can log in.
    pub fn is_offered(&self) -> bool {
        !self.settings.load().providers.is_empty()
    }

    /// The ways to log in, as pages show them.
    pub fn ways(&self) -> Vec<LoginWay> {
        let settings = self.settings.load();
        let ways = settings.providers.iter().map(|provider| LoginWay {
            name: provider.name.clone(),
            path: format!("/login?provider={}", provider.name),
        });
        ways.collect()
    }

    /// Begins a login: the page of the provider, and the cookie that the browser comes back with, next to those of other tabs.
    /// `root` is the address of this bridge, and `to` where the user goes in the end.
    pub async fn begin(
        &self,
        provider: Option<&str>,
        root: &str,
        to: String,
        headers: &HeaderMap,
    ) -> Result<Step, LoginError> {
        let settings = self.settings.load_full();
        let provider = match (provider, settings.providers.as_slice()) {
            (None, [only]) => only,
            (Some(name), several) => {
                (several.iter().find(|it| it.name == name)).ok_or(LoginError::NoProvider)?
            }
            (None, _) => return Err(LoginError::NoProvider),
        };
        let attempt = Attempt::new(&provider.name, root, to, now()).ok_or(LoginError::Busy)?;
        let page = self.page_of(provider, &attempt).await?;
        Ok(Step {
            location: page.into(),
            cookies: self.cookies.attempt(&attempt, headers, now())?,
        })
    }

    /// Ends a login with what the provider sends back. The browser gets a new secret, and the one that it had serves no more.
    /// `peer` is where the request comes from.
    pub async fn finish(
        &self,
        query: &str,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
    ) -> Result<Step, LoginError> {
        let state = attempt::state_in(query).ok_or(LoginError::Unknown)?;
        let attempt = self.cookies.attempt_in(headers, &state, now());
        let attempt = attempt.ok_or(LoginError::Unknown)?;
        let answer = attempt.answer(query).ok_or(LoginError::Unknown)?;
        let settings = self.settings.load_full();
        let provider = settings.provider(&attempt.provider);
        let provider = provider.ok_or(LoginError::Unknown)?;
        let code = self.code(provider, answer).await?;
        let exchange = self.exchanges.begin(peer)?;
        let found = exchange::user_of(provider, &attempt, &code).await;
        let (identity, claims, id_token) = found.map_err(|problem| {
            let error = self.failed(provider, problem);
            match error {
                LoginError::NotAccepted => exchange.note_wrong_code().err().unwrap_or(error),
                _ => error,
            }
        })?;
        drop(exchange);
        if let Some(secret) = self.cookies.secret_in(headers) {
            self.end_one(&secret.id()).await?;
        }
        let cookie = self.add(provider, identity, &claims, &id_token).await?;
        Ok(Step {
            location: attempt.to,
            cookies: vec![cookie, self.cookies.no_attempt(&state)],
        })
    }

    /// Ends the login that a request brings, or all logins of its user. Returns where the user can log out of the provider, and
    /// the cookie that replaces the one that it had.
    pub async fn end(
        &self,
        headers: &HeaderMap,
        everywhere: bool,
        root: Option<&str>,
    ) -> Result<(Option<Url>, HeaderValue), LoginError> {
        let gone = self.cookies.no_login();
        let Some(secret) = self.cookies.secret_in(headers) else {
            return Ok((None, gone));
        };
        let id = secret.id();
        let Some(login) = self.find(&id).await? else {
            return Ok((None, gone));
        };
        let user = &login.identity.user;
        match everywhere {
            true => {
                self.end_all_of(user).await?;
            }
            false => {
                self.end_one(&id).await?;
                tracing::info!(user = user.as_str(), "{user} has logged out");
            }
        }
        Ok((self.provider_logout(&login, &secret, root), gone))
    }

    /// Ends all logins of a user. Returns how many there were.
    pub async fn end_all_of(&self, user: &UserId) -> Result<u64, StoreError> {
        let ended = self.store.end_logins_of(user).await?;
        self.forget(user);
        tracing::info!(
            user = user.as_str(),
            ended,
            "{user} is logged out everywhere"
        );
        Ok(ended)
    }

    /// Forgets the logins of a user, which have ended in the store: nobody waits until they are looked up again.
    pub fn forget(&self, user: &UserId) {
        self.remembered
            .forget(|_, login| login.as_ref().is_some_and(|it| it.identity.user == *user));
        self.ended.notify_waiters();
    }

    /// What a page may call the user of a login.
    pub async fn display_name(&self, identity: &Identity) -> Option<String> {
        let login = self.find(identity.login.as_deref()?).await.ok()??;
        login.body.name.clone()
    }

    /// Refuses a request with a cookie that another page may have made the browser send.
    pub fn check_source(&self, request: &Parts) -> Result<(), Refusal> {
        let settings = self.settings.load();
        let checked = settings
            .policy
            .check_cookie(&request.method, &request.headers);
        checked.map_err(|error| Refusal::Forbidden(error.to_string().into()))
    }

    /// Returns when a login has ended.
    pub async fn has_ended(&self, id: &str) {
        loop {
            let ended = self.ended.notified();
            // A store that is away ends no connections.
            if matches!(self.find(id).await, Ok(None)) {
                return;
            }
            let _ = tokio::time::timeout(CONNECTIONS_LOOK_EVERY, ended).await;
        }
    }

    async fn identify(&self, request: &Parts) -> Result<Identity, Refusal> {
        let none = |help: &'static str| Refusal::NoCredentials(help.into());
        // What a request says of itself counts, and not what its browser adds.
        if request.headers.contains_key(header::AUTHORIZATION) {
            return Err(none(HELP));
        }
        let secret = self.cookies.secret_in(&request.headers);
        let secret = secret.ok_or_else(|| none(HELP))?;
        self.check_source(request)?;
        let id = secret.id();
        match self.find(&id).await {
            Ok(Some(login)) => {
                self.note_use(&id, &login);
                Ok(login.identity(&self.settings.load()))
            }
            Ok(None) => Err(none(ENDED)),
            Err(error) => {
                tracing::warn!(%error, "a login cannot be looked up");
                let message = "your login cannot be looked up; try again in a moment";
                Err(Refusal::Unavailable(message.into()))
            }
        }
    }

    /// A login that has not ended.
    async fn find(&self, id: &str) -> Result<Option<Arc<Login>>, StoreError> {
        let found = match self.remembered.get(id) {
            Some(login) => login,
            None => {
                let at = Instant::now();
                let row = self.store.login(id).await?;
                let login = row.and_then(Login::of).map(Arc::new);
                self.remembered.insert(id, login.clone(), at);
                login
            }
        };
        let settings = self.settings.load();
        Ok(found.filter(|login| login.is_good(&settings, now())))
    }

    /// Notes now and then that a login is used; nobody waits for it.
    fn note_use(&self, id: &str, login: &Login) {
        let now = now();
        {
            let mut seen = login.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if *seen + NOTED_EVERY.min(self.settings.load().idle / 4) > now {
                return;
            }
            *seen = now;
        }
        let (store, id) = (self.store.clone(), id.to_owned());
        tokio::spawn(async move {
            if let Err(error) = store.see_login(&id, now).await {
                tracing::warn!(%error, "the use of a login cannot be noted");
            }
        });
    }

    async fn add(
        &self,
        provider: &Provider,
        identity: Identity,
        claims: &Claims,
        id_token: &str,
    ) -> Result<HeaderValue, LoginError> {
        let secret = Secret::new().ok_or(LoginError::Busy)?;
        let (idle, longest) = {
            let settings = self.settings.load();
            (settings.idle, settings.longest)
        };
        let (id, created) = (secret.id(), now());
        let ends = created + longest;
        let mut identity = identity.expiring(ends);
        identity.login = Some(id.clone());
        let sealed = match id_token.len() <= MAX_ID_TOKEN_BYTES {
            true => Some(seal_of(&secret)?.close(ID_TOKEN, id_token.as_bytes())?),
            false => None,
        };
        let body = Body {
            identity: identity.clone(),
            provider: provider.name.clone(),
            groups: Some(provider.mapping.groups(claims)),
            name: display_name(claims),
            id_token: sealed,
        };
        let row = LoginRow {
            id,
            user: identity.user.clone(),
            body: serde_json::to_string(&body).map_err(|_| LoginError::NotAccepted)?,
            created,
            seen: created,
            ends,
        };
        let idle = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let unused_since = created.as_millis().saturating_sub(idle);
        self.store
            .add_login(&row, Timestamp::from_millis(unused_since))
            .await?;
        let (user, name) = (&row.user, &provider.name);
        tracing::info!(user = user.as_str(), "{user} has logged in at {name}");
        Ok(self.cookies.login(&secret, longest))
    }

    async fn end_one(&self, id: &str) -> Result<(), StoreError> {
        self.store.end_login(id).await?;
        self.remembered.forget(|it, _| it == id);
        self.ended.notify_waiters();
        Ok(())
    }

    async fn page_of(&self, provider: &Provider, attempt: &Attempt) -> Result<Url, LoginError> {
        let known = provider.keys.known().await.map_err(|_| LoginError::Away)?;
        let description = known.description.as_ref();
        let page = description.and_then(|it| it.authorization_endpoint.clone());
        let (Some(page), Some(client)) = (page, &provider.client) else {
            tracing::warn!("{} names no authorization_endpoint", provider.issuer);
            return Err(LoginError::NotAccepted);
        };
        Ok(attempt.page(page, client))
    }

    /// The code of an answer that comes from the right provider.
    async fn code(
        &self,
        provider: &Provider,
        answer: attempt::Answer,
    ) -> Result<String, LoginError> {
        let known = provider.keys.known().await.map_err(|_| LoginError::Away)?;
        let must_say = (known.description.as_ref())
            .is_some_and(|it| it.authorization_response_iss_parameter_supported);
        match &answer.issuer {
            Some(issuer) if *issuer != provider.issuer => return Err(LoginError::Unknown),
            None if must_say => return Err(LoginError::Unknown),
            _ => {}
        }
        answer.code.map_err(|word| {
            tracing::info!("{} has not logged a user in{word}", provider.name);
            LoginError::Denied(word)
        })
    }

    fn failed(&self, provider: &Provider, problem: Problem) -> LoginError {
        match problem {
            Problem::Token(error) => {
                self.refused.note(&provider.name, &error);
                LoginError::NotAccepted
            }
            Problem::Remote(error) if error.is_passing() => {
                tracing::warn!("a user cannot log in at {}: {error}", provider.name);
                LoginError::Away
            }
            Problem::Remote(error) => {
                tracing::warn!("a user cannot log in at {}: {error}", provider.name);
                LoginError::NotAccepted
            }
        }
    }

    /// Where the user can log out of the provider, too.
    fn provider_logout(&self, login: &Login, secret: &Secret, root: Option<&str>) -> Option<Url> {
        let settings = self.settings.load();
        let provider = settings.provider(&login.body.provider)?;
        let known = provider.keys.at_hand()?;
        let mut page = known.description.as_ref()?.end_session_endpoint.clone()?;
        let sealed = login.body.id_token.as_deref();
        let hint = sealed.and_then(|sealed| seal_of(secret).ok()?.open_text(ID_TOKEN, sealed));
        let mut query = page.query_pairs_mut();
        if let Some(hint) = hint.and_then(|hint| String::from_utf8(hint).ok()) {
            query.append_pair("id_token_hint", &hint);
        }
        query.append_pair("client_id", &provider.client.as_ref()?.id);
        if let Some(root) = root {
            query.append_pair("post_logout_redirect_uri", &format!("{root}/"));
        }
        drop(query);
        Some(page)
    }
}

impl Login {
    fn of(row: LoginRow) -> Option<Self> {
        let body: Body = serde_json::from_str(&row.body).ok()?;
        Some(Self {
            identity: body.identity.clone(),
            body,
            seen: Mutex::new(row.seen),
            ends: row.ends,
        })
    }

    /// Who it is, with the roles that the configuration gives now.
    fn identity(&self, settings: &Settings) -> Identity {
        let provider = settings.provider(&self.body.provider);
        let identity = self.identity.clone();
        match (provider, &self.body.groups) {
            (Some(provider), Some(groups)) => {
                identity.with_roles(provider.mapping.roles_of(groups))
            }
            _ => identity,
        }
    }

    /// One with a provider that the configuration does not name any more has ended.
    fn is_good(&self, settings: &Settings, now: Timestamp) -> bool {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = settings.provider(&self.body.provider).is_some();
        is_known && now < self.ends && now < seen + settings.idle
    }
}

impl Settings {
    fn new(config: &Config, providers: Vec<Arc<Provider>>) -> Self {
        Self {
            providers,
            policy: SourcePolicy::new(&config.server, true),
            idle: config.auth.login.idle.0,
            longest: config.auth.login.longest.0,
        }
    }

    fn provider(&self, name: &str) -> Option<&Arc<Provider>> {
        self.providers.iter().find(|it| it.name == name)
    }
}

/// A login as its user gets it with all that is stored of them: neither its id nor a token.
pub(crate) fn exported(row: &LoginRow) -> Value {
    let body: Option<Body> = serde_json::from_str(&row.body).ok();
    let body = body.as_ref();
    let identity = body.map(|it| &it.identity);
    json!({
        "type": "login",
        "provider": body.map(|it| &it.provider), "name": body.and_then(|it| it.name.as_ref()),
        "groups": body.and_then(|it| it.groups.as_ref()).map(Groups::words),
        "roles": identity.map(|it| it.roles), "claims": identity.map(|it| &it.claims),
        "createdAt": row.created, "usedAt": row.seen, "endsAt": row.ends,
    })
}

/// Recognises users by the cookies of their logins.
#[derive(Debug)]
pub(super) struct LoginCookies(pub(super) Arc<Logins>);

impl Authenticator for LoginCookies {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Identity, Refusal>> {
        Box::pin(self.0.identify(request))
    }
}

fn seal_of(secret: &Secret) -> Result<Seal, StoreError> {
    Seal::for_purpose(secret.bytes(), ID_TOKEN)
}

/// Shows no login.
impl fmt::Debug for Logins {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Logins").finish_non_exhaustive()
    }
}
