//! Endpoints for logging in and out with the page, and for who is logged in.
//!
//! ```text
//!   GET    /login?provider=…&to=…       ──▶ the provider's page
//!   GET    /login/callback?code=…       ──▶ back to where the user came from, with a cookie
//!   POST   /logout?everywhere=true      ──▶ {redirect}: where to log out of the provider, too
//!   GET    /api/session                 ──▶ who asks, and which ways there are to log in
//!   DELETE /api/users/{id}/logins     ──▶ logs somebody out everywhere; for admins
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::time::Timestamp;
use axum::extract::{Path, Query, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::access::{self, Access};
use super::credentials::{STYLE, escaped, is_japanese};
use super::error::AppError;
use crate::auth::{Identity, LoginError, LoginWay, Logins, Refusal, Role};
use crate::chat::Chats;
use crate::config::Config;
use crate::connections::Peer;
use crate::files::address::Base;
use crate::metrics::LoginResult;

#[derive(Deserialize, JsonSchema)]
pub struct Beginning {
    /// The name of the provider, if there are several.
    provider: Option<String>,
    /// Where to go after the login: a path, or a page of an allowed origin.
    to: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub struct Ending {
    /// Whether to end all logins of the user.
    #[serde(default)]
    everywhere: bool,
}

/// Who asks, and how to log in.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// None if the request brings no credentials.
    #[schemars(with = "Option<String>")]
    user: Option<UserId>,
    /// As the provider calls the user, for people.
    name: Option<String>,
    /// How the user was recognised.
    via: Option<Cow<'static, str>>,
    roles: Vec<Role>,
    /// When what proves it ends, in milliseconds since 1970.
    #[schemars(with = "Option<u64>")]
    expires_at: Option<Timestamp>,
    /// The providers with which users log in.
    login: Vec<LoginWay>,
    /// Whether keys are taken.
    keys: bool,
}

/// What is left to do after a login has ended.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LoggedOut {
    /// The page where the user logs out of the provider, too.
    redirect: Option<String>,
}

/// The logins of somebody have ended.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LoginsEnded {
    /// How many there were.
    ended: u64,
}

/// Sends the user to the page of a provider; lets the user choose if there are several.
pub async fn begin(
    State(logins): State<Option<Arc<Logins>>>,
    State(config): State<Arc<Config>>,
    Query(Beginning { provider, to }): Query<Beginning>,
    headers: HeaderMap,
) -> Response {
    let Some(logins) = logins.filter(|it| it.is_offered()) else {
        return no_login().into_response();
    };
    let to = to.filter(|to| is_ours(to, &config)).unwrap_or("/".into());
    if provider.is_none() && logins.ways().len() > 1 {
        return choice(&logins, &to, &headers);
    }
    let begun = match root(&config, &headers) {
        // The place is below the address of the bridge, or a page that may use it.
        Some(root) => {
            let to = match to.starts_with('/') {
                true => format!("{root}{to}"),
                false => to,
            };
            logins.begin(provider.as_deref(), &root, to, &headers).await
        }
        None => Err(LoginError::NoAddress),
    };
    match begun {
        Ok(step) => redirect(step.location, step.cookies),
        Err(error) => refused(&error, &headers),
    }
}

/// Takes the answer of a provider.
pub async fn callback(
    State(logins): State<Option<Arc<Logins>>>,
    State(chats): State<Chats>,
    RawQuery(query): RawQuery,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Response {
    let Some(logins) = logins.filter(|it| it.is_offered()) else {
        return no_login().into_response();
    };
    let peer = peer.map(|Extension(Peer(peer))| peer);
    let query = query.unwrap_or_default();
    let finished = logins.finish(&query, &headers, peer).await;
    chats.shared().metrics.login(match &finished {
        Ok(_) => LoginResult::Completed,
        Err(LoginError::Denied(_)) => LoginResult::Denied,
        Err(LoginError::NotAccepted | LoginError::TooMany(_)) => LoginResult::NotAccepted,
        Err(LoginError::Away | LoginError::Busy | LoginError::Store(_)) => LoginResult::Unavailable,
        Err(LoginError::Unknown | LoginError::NoProvider | LoginError::NoAddress) => {
            LoginResult::Unknown
        }
    });
    match finished {
        Ok(step) => redirect(step.location, step.cookies),
        Err(error) => refused(&error, &headers),
    }
}

/// Logs the user out here, or everywhere.
pub async fn end(
    State(logins): State<Option<Arc<Logins>>>,
    State(config): State<Arc<Config>>,
    Query(Ending { everywhere }): Query<Ending>,
    request: Request,
) -> Result<Response, AppError> {
    let logins = logins.filter(|it| it.is_offered());
    let logins = logins.ok_or_else(no_login)?;
    let (parts, _) = request.into_parts();
    logins.check_source(&parts)?;
    let root = root(&config, &parts.headers);
    let ended = logins.end(&parts.headers, everywhere, root.as_deref());
    let (page, cookie) = ended.await.map_err(|error| error_of(&error))?;
    let redirect = page.map(String::from);
    let mut response = Json(LoggedOut { redirect }).into_response();
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

/// Who asks, and how to log in. Pages ask it before they know whether they may use the bridge.
pub async fn session(
    State(logins): State<Option<Arc<Logins>>>,
    State(access): State<Arc<Access>>,
    State(config): State<Arc<Config>>,
    request: Request,
) -> Result<Json<Session>, AppError> {
    let (parts, _) = request.into_parts();
    let identity = match access.authenticate(&parts).await {
        Ok(identity) => Some(identity),
        Err(Refusal::NoCredentials(_)) => None,
        Err(refusal) => return Err(access.refuse(refusal, &parts)),
    };
    let mut name = None;
    if let (Some(logins), Some(identity)) = (&logins, &identity) {
        name = logins.display_name(identity).await;
    }
    let ways = logins.map(|logins| logins.ways()).unwrap_or_default();
    let identity = identity.as_ref();
    let roles: Option<Vec<Role>> = identity.map(|it| {
        // Everybody is a user, said or not.
        let others = it.roles.given().filter(|role| *role != Role::User);
        std::iter::once(Role::User).chain(others).collect()
    });
    Ok(Json(Session {
        user: identity.map(|it| it.user.clone()),
        name,
        via: identity.map(|it| it.via.clone()),
        roles: roles.unwrap_or_default(),
        expires_at: identity.and_then(Identity::expires),
        login: ways,
        keys: !config.auth.api_keys.is_empty(),
    }))
}

/// Logs a user out everywhere.
pub async fn end_all_of(
    State(logins): State<Option<Arc<Logins>>>,
    identity: Identity,
    Path(user): Path<UserId>,
) -> Result<Json<LoginsEnded>, AppError> {
    access::require_admin(&identity)?;
    let ended = match logins {
        Some(logins) => logins.end_all_of(&user).await?,
        None => 0,
    };
    Ok(Json(LoginsEnded { ended }))
}

/// The address of this bridge, which providers know: the configured one, or that of a request to this machine.
fn root(config: &Config, headers: &HeaderMap) -> Option<String> {
    if let Some(url) = &config.server.public_url {
        return Some(url.trim_end_matches('/').to_owned());
    }
    let base = Base::of_this_machine(headers)?;
    Some(base.url(""))
}

/// Whether users may be sent to a place after a login: a path of this bridge, or a page that may use it.
fn is_ours(to: &str, config: &Config) -> bool {
    // Browsers take a backslash for a slash, and leave out line breaks.
    let is_plain = to.bytes().all(|it| it.is_ascii_graphic() && it != b'\\');
    let is_path = to.starts_with('/') && !to.starts_with("//");
    let is_listed = || {
        let origins = config.server.allowed_origins.iter();
        let mut rests = origins.filter_map(|origin| to.strip_prefix(origin.as_str()));
        rests.any(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
    };
    is_plain && (is_path || is_listed())
}

fn no_login() -> AppError {
    let message = "nobody logs in with this bridge; set client_id in auth.oidc";
    AppError::new(StatusCode::NOT_FOUND, "not_found", message)
}

fn redirect(location: String, cookies: Vec<HeaderValue>) -> Response {
    let Ok(location) = HeaderValue::try_from(location) else {
        return refused(&LoginError::Unknown, &HeaderMap::new());
    };
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, location);
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    for cookie in cookies {
        headers.append(header::SET_COOKIE, cookie);
    }
    response
}

fn error_of(error: &LoginError) -> AppError {
    let message = error.to_string();
    match error {
        LoginError::NoProvider => AppError::new(StatusCode::NOT_FOUND, "not_found", message),
        LoginError::Unknown => AppError::bad_request("unknown_login", message),
        LoginError::Denied(_) => AppError::forbidden("login_denied", message),
        LoginError::NotAccepted => {
            AppError::new(StatusCode::BAD_GATEWAY, "login_not_accepted", message)
        }
        LoginError::TooMany(wait) => AppError::too_many(message, *wait),
        LoginError::NoAddress => AppError::forbidden("no_public_url", message),
        LoginError::Away | LoginError::Busy => AppError::unavailable(message),
        LoginError::Store(_) => {
            tracing::error!(%error, "a login cannot be stored");
            AppError::unavailable("your login cannot be stored; try again in a moment")
        }
    }
}

/// A page that says what went wrong, and leads back to the beginning.
fn refused(error: &LoginError, headers: &HeaderMap) -> Response {
    let refusal = error_of(error);
    let (title, again) = match is_japanese(headers) {
        true => ("ログインできませんでした", "もう一度ログインする"),
        false => ("You are not logged in", "Log in again"),
    };
    let text = escaped(&refusal.message);
    let text = format!("<p>{text}</p><p><a href=\"/login\">{again}</a></p>");
    let mut response = shown(refusal.status, title, &text, headers);
    refusal.write_retry_after(response.headers_mut());
    response.extensions_mut().insert(refusal);
    response
}

/// A page with a link for each way to log in.
fn choice(logins: &Logins, to: &str, headers: &HeaderMap) -> Response {
    let title = match is_japanese(headers) {
        true => "ログイン",
        false => "Log in",
    };
    let to = super::percent::encoded(to);
    let links = logins.ways().into_iter().map(|way| {
        let (path, name) = (escaped(&way.path), escaped(&way.name));
        format!("<p><a href=\"{path}&amp;to={to}\">{name}</a></p>")
    });
    shown(StatusCode::OK, title, &links.collect::<String>(), headers)
}

fn shown(status: StatusCode, title: &str, text: &str, headers: &HeaderMap) -> Response {
    let language = if is_japanese(headers) { "ja" } else { "en" };
    let nonce = Uuid::new_v4().simple();
    let body = format!(
        "<!doctype html>\n<html lang=\"{language}\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style nonce=\"{nonce}\">{STYLE}</style></head>\n\
         <body><main><h1>{title}</h1>{text}</main></body></html>\n"
    );
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let mut response = (status, Html(body)).into_response();
    let headers = response.headers_mut();
    if let Ok(policy) = policy.parse() {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere_after_a_login() {
        let mut config = Config::default();
        config.server.allowed_origins = vec!["https://app.example".into()];
        for (to, is_good) in [
            ("/", true),
            ("/#chat-1", true),
            ("/?dialect=adk#1", true),
            ("https://app.example", true),
            ("https://app.example/x", true),
            ("", false),
            ("//evil.example", false),
            ("/\\evil.example", false),
            ("/\n/evil.example", false),
            ("https://evil.example", false),
            ("https://app.example.evil.example", false),
            ("https://app.example@evil.example", false),
            ("https://app.example:8443", false),
            ("javascript:alert(1)", false),
            ("#1", false),
        ] {
            assert_eq!(is_ours(to, &config), is_good, "{to}");
        }
    }
}
