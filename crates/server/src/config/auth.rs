//! Who may use the bridge: keys, OpenID providers, and a proxy that logs users in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::http::HeaderName;
use figment::error::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{ConfigError, Server, Span, list};
use crate::auth::oidc::remote::{is_local, is_safe};
use crate::auth::{Algorithm, Claims, Role, Roles};

/// A shorter key can be guessed.
const MIN_KEY_BYTES: usize = 16;
/// A provider should not be asked for its keys all the time.
const MIN_KEYS_AGE: Duration = Duration::from_secs(1);
/// The source of users whom a proxy names; no provider may have this name.
const PROXY: &str = "proxy";

/// Who may use the bridge. Without any way to log in, everyone on this machine is the user `local`, and the bridge listens
/// only on a loopback address.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// Each key identifies a user, who sees only their own chats. A reload takes other keys, but neither the first key nor the
    /// loss of the last one, and none while there are `auth.oidc` or `auth.proxy`.
    pub api_keys: Vec<ApiKey>,
    /// OpenID providers, whose tokens are taken (`audience`) or with which users log in with the page (`client_id`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub oidc: Vec<Oidc>,
    /// A proxy that logs users in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// How long a login with the page lasts.
    pub login: Login,
}

/// A key and its user: the key itself, or its hash.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiKey {
    /// The key, at least 16 characters. Write either this or `key_sha256`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The SHA-256 of the key in 64 hexadecimal digits, as `printf %s KEY | sha256sum` prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_sha256: Option<String>,
    /// The user whom the key identifies. Several keys may have the same.
    pub user: String,
    /// What the user may do besides using their own chats.
    #[serde(default, skip_serializing_if = "Roles::is_plain")]
    pub roles: Roles,
    /// What `agent.state` may name about the user, such as `{ email = "alice@example.com" }`: at most 64 claims of 4 KB, of any
    /// type.
    #[serde(default, skip_serializing_if = "Claims::is_empty")]
    pub claims: Claims,
}

/// An OpenID provider; `docs/access.md` says how to set one up.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Oidc {
    /// The address of the provider, exactly as its tokens and its description write it: `"https://login.example.com"`.
    pub issuer: String,
    /// What the ids of its users begin with; by default the host of the issuer. At most 64 letters, digits, `-`, `_` and `.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The audience that its tokens must have when programs send them as `Authorization: Bearer TOKEN`. Without it, no tokens
    /// are accepted.
    #[serde(
        default,
        deserialize_with = "list::words",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub audience: Vec<String>,
    /// The client id of the bridge at the provider, for logins with the page. Without it, users cannot log in with the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The environment variable that holds the secret of the client, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_env: Option<String>,
    /// The scopes that a login asks for; `openid` must be one of them.
    #[serde(default = "scopes", deserialize_with = "list::words")]
    pub scopes: Vec<String>,
    /// The claim that says who the user is, or a path to it: a text of 1 to 255 bytes that stays the same.
    #[serde(default = "subject")]
    pub user_claim: String,
    /// The claim that holds the groups of the user, such as `"groups"`, or a path to it, such as
    /// `"resource_access.my.client.roles"`. Set it together with `roles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles_claim: Option<String>,
    /// Which roles the groups stand for: `{ "group" = "approver" }`, with one role for a group, or a list of them (`user`,
    /// `approver`, `auditor`, `admin`).
    #[serde(default)]
    pub roles: RoleNames,
    /// How its tokens may be signed.
    #[serde(default = "algorithms")]
    pub algorithms: Vec<Algorithm>,
    /// How old its keys may become before they are looked up again.
    #[serde(default = "keys_max_age")]
    #[schemars(extend("x-at-least" = "1s"))]
    pub keys_max_age: Span,
}

/// A proxy that logs users in and signs who they are, such as Google's Identity-Aware Proxy; see `docs/access.md`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// The header with the signed assertion, such as `"x-goog-iap-jwt-assertion"`.
    pub header: String,
    /// Where the proxy publishes its keys, such as `"https://www.gstatic.com/iap/verify/public_key-jwk"`.
    pub jwks_url: String,
    /// The audience that its assertions must have.
    #[serde(deserialize_with = "list::words")]
    pub audience: Vec<String>,
    /// The issuer that its assertions must have, such as `"https://cloud.google.com/iap"`. Without it, the issuer is not
    /// checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The claim that says who the user is, or a path to it: a text of 1 to 255 bytes that stays the same.
    #[serde(default = "subject")]
    pub user_claim: String,
    /// The claim that holds the groups of the user. Set it together with `roles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles_claim: Option<String>,
    /// Which roles the groups stand for, as in `[[auth.oidc]]`.
    #[serde(default)]
    pub roles: RoleNames,
    /// How its assertions may be signed.
    #[serde(default = "algorithms")]
    pub algorithms: Vec<Algorithm>,
    /// How old its keys may become before they are looked up again.
    #[serde(default = "keys_max_age")]
    #[schemars(extend("x-at-least" = "1s"))]
    pub keys_max_age: Span,
}

/// How long a login with the page lasts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Login {
    /// How long it may be unused.
    #[schemars(extend("x-at-least" = "1ms"))]
    pub idle: Span,
    /// How long it lasts at most: then the provider is asked again who the user is.
    #[schemars(extend("x-at-least" = "1ms"))]
    pub longest: Span,
}

/// Which roles the groups of a provider stand for: a role, or several.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RoleNames(BTreeMap<String, OneOrSeveral>);

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum OneOrSeveral {
    One(Role),
    Several(Vec<Role>),
}

impl RoleNames {
    /// The roles of a group.
    pub fn of(&self, group: &str) -> Vec<Role> {
        match self.0.get(group) {
            None => Vec::new(),
            Some(OneOrSeveral::One(role)) => vec![*role],
            Some(OneOrSeveral::Several(roles)) => roles.clone(),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl ApiKey {
    /// The hash of the key.
    pub fn digest(&self) -> Option<[u8; 32]> {
        use sha2::{Digest as _, Sha256};

        match (&self.key, &self.key_sha256) {
            (Some(key), None) => Some(Sha256::digest(key).into()),
            (None, Some(hex)) => bytes_of(hex),
            _ => None,
        }
    }
}

impl Oidc {
    pub fn name(&self) -> String {
        let host = || {
            let url = Url::parse(&self.issuer).ok()?;
            let host = url.host_str()?.trim_matches(['[', ']']).replace(':', "-");
            Some(match url.port() {
                Some(port) => format!("{host}-{port}"),
                None => host,
            })
        };
        self.name.clone().or_else(host).unwrap_or_default()
    }

    /// The secret of the client, from the environment.
    pub fn client_secret(&self) -> Result<Option<String>, ConfigError> {
        let Some(variable) = &self.client_secret_env else {
            return Ok(None);
        };
        match std::env::var(variable) {
            Ok(secret) if !secret.trim().is_empty() => Ok(Some(secret.trim().to_owned())),
            _ => Err(ConfigError::value(
                "auth.oidc",
                format!(
                    "client_secret_env names the environment variable {variable}, which is not set; set it to the secret of \
                     the client, or leave the key out if it has none"
                ),
            )),
        }
    }

    fn problems(&self) -> Vec<String> {
        let name = self.name();
        let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
        let is_name = |name: &str| {
            !name.is_empty() && name.len() <= 64 && name.chars().all(is_plain) && name != PROXY
        };
        let is_issuer = Url::parse(&self.issuer).is_ok_and(|url| {
            is_safe(&url)
                && url.query().is_none()
                && url.fragment().is_none()
                && url.password().is_none()
        });
        let mut problems = Vec::new();
        let mut bad = |problem: &str| problems.push(problem.to_owned());
        if !is_issuer {
            bad(
                "issuer: write it as the provider does, such as \"https://login.example.com\"; http:// is taken on this machine \
                 only",
            );
        }
        // Without a name of its own it has that of its issuer.
        if !is_name(&name) && (is_issuer || self.name.is_some()) {
            bad(&format!(
                "name {name:?}: write 1 to 64 letters, digits, '-', '_' and '.'; \"{PROXY}\" is taken"
            ));
        }
        if self.audience.is_empty() && self.client_id.is_none() {
            bad("set audience for tokens of programs, client_id for the page, or both");
        }
        if self.audience.iter().any(String::is_empty) {
            bad("audience: \"\" is nobody; name whom the tokens are for");
        }
        if self.client_id.is_none() && self.client_secret_env.is_some() {
            bad("client_secret_env needs client_id");
        }
        if !self.scopes.iter().any(|scope| scope == "openid") {
            bad("scopes must have \"openid\"");
        }
        problems.extend(problems_of_tokens(
            &self.algorithms,
            self.keys_max_age,
            (self.roles_claim.as_deref(), &self.roles),
        ));
        problems
    }
}

impl Proxy {
    pub fn header(&self) -> Result<HeaderName, ConfigError> {
        let bad = |_| ConfigError::value("auth.proxy", "header: write the name of a header");
        self.header.parse().map_err(bad)
    }

    pub fn keys(&self) -> Result<Url, ConfigError> {
        let url = Url::parse(&self.jwks_url).ok().filter(is_safe);
        let problem = "jwks_url: write an https:// address; http:// is taken on this machine only";
        url.ok_or_else(|| ConfigError::value("auth.proxy", problem))
    }

    fn check(&self) -> Vec<ConfigError> {
        let bad = |problem: String| ConfigError::value("auth.proxy", problem);
        let header = self.header();
        let taken = header.as_ref().ok().filter(|header| {
            ["authorization", "cookie", "host", "origin"].contains(&header.as_str())
        });
        let taken = taken.map(|header| bad(format!("header: {header} holds something else")));
        let mut problems: Vec<ConfigError> = taken.into_iter().collect();
        problems.extend(header.err());
        problems.extend(self.keys().err());
        if self.audience.is_empty() || self.audience.iter().any(String::is_empty) {
            problems.push(bad("audience: name whom the assertions are for".into()));
        }
        let roles = (self.roles_claim.as_deref(), &self.roles);
        let tokens = problems_of_tokens(&self.algorithms, self.keys_max_age, roles);
        problems.extend(tokens.into_iter().map(bad));
        problems
    }
}

impl Auth {
    /// Whether users can log in with the page.
    pub fn has_login(&self) -> bool {
        self.oidc.iter().any(|it| it.client_id.is_some())
    }

    pub(crate) fn check(&self, server: &Server) -> Vec<ConfigError> {
        let mut problems = self.check_keys();
        problems.extend(self.check_providers());
        problems.extend(self.proxy.as_ref().map_or_else(Vec::new, Proxy::check));
        for (key, span) in [
            ("auth.login.idle", self.login.idle),
            ("auth.login.longest", self.login.longest),
        ] {
            if span.0.is_zero() {
                problems.push(ConfigError::value(key, "must be greater than 0"));
            }
        }
        if self.has_login() {
            problems.extend(check_public_url(server).err());
        }
        problems
    }

    fn check_providers(&self) -> Vec<ConfigError> {
        let bad = |problem: String| ConfigError::value("auth.oidc", problem);
        let mut problems = Vec::new();
        let (mut names, mut issuers) = (BTreeSet::new(), BTreeSet::new());
        for oidc in &self.oidc {
            let name = oidc.name();
            // One of several says which it is.
            let whose = match self.oidc.len() {
                1 => String::new(),
                _ => format!(" (provider {name:?})"),
            };
            let of_it = oidc.problems().into_iter();
            problems.extend(of_it.map(|problem| bad(format!("{problem}{whose}"))));
            problems.extend(oidc.client_secret().err());
            if !names.insert(name.clone()) {
                problems.push(bad(format!(
                    "two providers have the name {name:?}, with which the ids of their users begin; give each its own name"
                )));
            }
            if !issuers.insert(&oidc.issuer) {
                let problem = "the issuer occurs twice; leave one of them out";
                problems.push(bad(format!("{problem}{whose}")));
            }
        }
        problems
    }

    fn check_keys(&self) -> Vec<ConfigError> {
        let mut problems = BTreeSet::new();
        let mut known = BTreeSet::new();
        for key in &self.api_keys {
            if key.key.is_some() == key.key_sha256.is_some() {
                problems.insert("write either key or key_sha256 for every user");
            } else if (key.key.as_ref()).is_some_and(|key| key.len() < MIN_KEY_BYTES) {
                problems.insert("a key must have at least 16 characters");
            }
            let digest = key.digest();
            if digest.is_none() && key.key.is_none() && key.key_sha256.is_some() {
                problems.insert(
                    "key_sha256 is the SHA-256 of the key in 64 hexadecimal digits, as `printf %s KEY | sha256sum` prints it",
                );
            }
            let occurs_twice = digest.is_some_and(|digest| !known.insert(digest));
            if key.user.is_empty() || occurs_twice {
                problems.insert("every key needs a user, and no key may occur twice");
            }
        }
        // One line stands for all keys: what could tell them apart may be a secret.
        let said = |problem: &str| ConfigError::value("auth.api_keys", problem);
        problems.into_iter().map(said).collect()
    }
}

/// What is wrong below `auth`, without the value: it may be a key, or the secret of a client.
pub(super) fn without_secrets(error: &figment::Error) -> ConfigError {
    let wrong = wrong_key(error);
    let key = error.path.get(1).map_or("", String::as_str);
    let (key, problem) = match key {
        "oidc" => (
            "auth.oidc",
            "write [[auth.oidc]] with issuer = \"https://…\", audience or client_id, and where they are needed name, \
             client_secret_env (the name of an environment variable; the secret itself does not stand here), scopes, \
             user_claim, roles_claim, roles = { \"group\" = \"approver\" } (user, approver, auditor or admin), algorithms \
             (RS256, ES256 and EdDSA) and keys_max_age",
        ),
        "proxy" => (
            "auth.proxy",
            "write header = \"…\", jwks_url = \"https://…\" and audience = \"…\", and where they are needed issuer, user_claim, \
             roles_claim, roles = { \"group\" = \"approver\" }, algorithms (RS256, ES256 and EdDSA) and keys_max_age",
        ),
        "login" => (
            "auth.login",
            "write idle = \"8h\" and longest = \"24h\", and nothing else",
        ),
        _ => (
            "auth.api_keys",
            "write a list of { key = \"…\", user = \"…\" }, or { key_sha256 = \"…\", user = \"…\" }, with roles = [\"auditor\"] and \
             claims = { NAME = \"…\" } where they are needed (at most 64 of 4 KB), and nothing else in [auth] but oidc, proxy \
             and login",
        ),
    };
    ConfigError::value(key, format!("{wrong}{problem}"))
}

/// Which key an error is about, to begin a sentence with. What may be a secret in the place of a key is not named.
pub(super) fn wrong_key(error: &figment::Error) -> String {
    let is_plain = |name: &str| {
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        name.starts_with(|it: char| it.is_ascii_lowercase()) && name.bytes().all(is_part)
    };
    match &error.kind {
        Kind::UnknownField(name, _) if name.len() < MIN_KEY_BYTES && is_plain(name) => {
            format!("{name:?} is unknown; ")
        }
        Kind::UnknownField(..) => "one of its keys is unknown; ".to_owned(),
        Kind::MissingField(name) => format!("{name} is missing; "),
        _ => {
            // The second is the section, and numbers are entries of a list.
            let mut names = error.path.iter().skip(2).rev();
            let name = names.find(|name| is_plain(name));
            name.map(|name| format!("the value of {name} has another form; "))
                .unwrap_or_default()
        }
    }
}

/// Providers send users back to an address that they know.
fn check_public_url(server: &Server) -> Result<(), ConfigError> {
    let bad = |problem| Err(ConfigError::value("server.public_url", problem));
    match server.public_url.as_deref().map(Url::parse) {
        None if server.listen.ip().is_loopback() => Ok(()),
        None => bad(
            "logins with the page need it, as providers send users back to it; write \"https://chat.example.com\"",
        ),
        Some(Ok(url)) if url.scheme() == "https" || is_local(&url) => Ok(()),
        Some(_) => bad(
            "logins with the page need an https:// address, so that nobody else reads their cookies; http:// is taken on this \
             machine only",
        ),
    }
}

fn problems_of_tokens(
    algorithms: &[Algorithm],
    keys_max_age: Span,
    (claim, roles): (Option<&str>, &RoleNames),
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut bad = |problem: &str| problems.push(problem.to_owned());
    if algorithms.is_empty() {
        bad("algorithms: name at least one of RS256, ES256 and EdDSA");
    }
    if keys_max_age.0 < MIN_KEYS_AGE {
        bad("keys_max_age must be at least 1s");
    }
    if claim.is_some() == roles.is_empty() {
        bad(
            "roles_claim names the claim that holds groups, and roles says what they stand for: set both or neither",
        );
    }
    problems
}

fn bytes_of(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.bytes().all(|it| it.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

fn scopes() -> Vec<String> {
    ["openid", "profile", "email"].map(str::to_owned).into()
}

fn subject() -> String {
    "sub".into()
}

fn algorithms() -> Vec<Algorithm> {
    Algorithm::ALL.into()
}

fn keys_max_age() -> Span {
    Span(Duration::from_secs(5 * 60))
}

impl Default for Login {
    fn default() -> Self {
        Self {
            // A working day, with its breaks.
            idle: Span(Duration::from_secs(8 * 60 * 60)),
            // Whoever leaves the company is out by the next day.
            longest: Span(Duration::from_secs(24 * 60 * 60)),
        }
    }
}

/// Never prints a key.
impl std::fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ApiKey")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
