//! Checks before a handler: a request names one `Host`, comes from an allowed source, and has a user.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::ExtensionRejection;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use tower::{Layer as _, ServiceExt as _};
use tower_http::cors::CorsLayer;

use super::cors;
use super::error::AppError;
use crate::auth::{
    Authenticator, Identity, Logins, Refusal, Role, RoleNeeded, SourceError, SourcePolicy,
    WrongKeys,
};
use crate::chat::now;
use crate::config::Config;
use crate::connections::{ConnectionPlace, Peer};
use crate::forwarding::Forwarded;
use crate::known_users::KnownUsers;
use crate::metrics::{Metrics, RefusedFor};

const METRICS: &str = "/metrics";
/// Endpoints outside of `/api/` whose answers are private.
const PRIVATE: [&str; 6] = [
    METRICS,
    "/stream",
    "/clear-sessions",
    "/login",
    "/login/callback",
    "/logout",
];
/// What an answer has that goes on, possibly for long.
const RESUMABLE: HeaderName = HeaderName::from_static("x-resumable-stream-id");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Who may use the server, and from where.
#[derive(Debug)]
pub struct Access {
    sources: ArcSwap<Sources>,
    authenticator: Arc<dyn Authenticator>,
    users: Arc<KnownUsers>,
    wrong_keys: WrongKeys,
    logins: Option<Arc<Logins>>,
    metrics: Arc<Metrics>,
}

/// From where requests may come.
#[derive(Debug)]
struct Sources {
    policy: SourcePolicy,
    /// For pages of other origins, if any are allowed.
    cors: Option<CorsLayer>,
}

impl Sources {
    fn new(config: &Config, requires_credentials: bool) -> Self {
        Self {
            policy: SourcePolicy::new(&config.server, requires_credentials),
            cors: cors::layer(&config.server.allowed_origins),
        }
    }
}

impl Access {
    pub fn new(
        config: &Config,
        authenticator: Arc<dyn Authenticator>,
        users: Arc<KnownUsers>,
    ) -> Self {
        Self {
            sources: ArcSwap::from_pointee(Sources::new(
                config,
                authenticator.requires_credentials(),
            )),
            authenticator,
            users,
            wrong_keys: WrongKeys::new(config.limits.wrong_keys_per_minute),
            logins: None,
            metrics: Arc::default(),
        }
    }

    /// Requests from here on may come from where this configuration says.
    pub fn allow(&self, config: &Config) {
        let requires_credentials = self.authenticator.requires_credentials();
        let sources = Sources::new(config, requires_credentials);
        self.sources.store(Arc::new(sources));
        self.wrong_keys.limit(config.limits.wrong_keys_per_minute);
    }

    pub fn requires_credentials(&self) -> bool {
        self.authenticator.requires_credentials()
    }

    /// Knows when logins with the page end.
    #[must_use]
    pub fn with_logins(self, logins: Option<Arc<Logins>>) -> Self {
        Self { logins, ..self }
    }

    /// Counts who is refused.
    #[must_use]
    pub fn counted_by(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
    }

    /// Returns when what proves an identity has ended; `None` if it does not end.
    pub(super) fn end_of(
        &self,
        identity: &Identity,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let expires = identity.expires();
        let login = identity.login().map(str::to_owned);
        let login = login.and_then(|id| Some((self.logins.clone()?, id)));
        if expires.is_none() && login.is_none() {
            return None;
        }
        Some(async move {
            let expired = async {
                match expires {
                    Some(expires) => tokio::time::sleep(expires.since(now())).await,
                    None => std::future::pending().await,
                }
            };
            let logged_out = async {
                match login {
                    Some((logins, id)) => logins.has_ended(&id).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = expired => {}
                () = logged_out => {}
            }
        })
    }

    /// Refuses a WebSocket from a source that is not allowed.
    pub(super) fn check_socket(&self, request: &Request) -> Result<(), SourceError> {
        if is_checked(request) {
            return Ok(());
        }
        let sources = self.sources.load();
        sources.policy.check_source(request.headers())?;
        sources.policy.check_origin(request.headers())
    }

    /// The user of a request, as another replica knows it that passes the request on, or as the request proves it. What
    /// the request tells of that user is noted.
    pub(super) async fn authenticate(&self, request: &Parts) -> Result<Identity, Refusal> {
        let identity = match request.extensions.get::<Forwarded>() {
            Some(Forwarded { identity, .. }) => {
                let nobody = "this request was passed on for nobody";
                let identity = identity.clone();
                identity.ok_or_else(|| Refusal::NoCredentials(nobody.into()))?
            }
            None => {
                let identity = self.authenticator.authenticate(request).await?;
                self.users.with_tokens(identity, &request.headers)
            }
        };
        self.users.note(&identity);
        Ok(identity)
    }

    /// The answer to a request without an identity. An address that tries many wrong keys has to wait.
    pub(super) fn refuse(&self, refusal: Refusal, request: &Parts) -> AppError {
        self.metrics.refused(match &refusal {
            Refusal::NoCredentials(_) => RefusedFor::NoCredentials,
            Refusal::WrongCredentials(_) => RefusedFor::Wrong,
            Refusal::Expired(_) => RefusedFor::Expired,
            Refusal::Forbidden(_) => RefusedFor::Foreign,
            Refusal::Unavailable(_) => RefusedFor::Unavailable,
        });
        // What has expired was right: behind a proxy, one address has many users whose tokens end.
        if matches!(refusal, Refusal::WrongCredentials(_))
            && let Some(Peer(peer)) = request.extensions.get()
            && let Some(wait) = self.wrong_keys.note(*peer)
        {
            let message = "too many wrong keys came from your address (limits.wrong_keys_per_minute); wait, or use a valid one";
            return AppError::too_many(message, wait);
        }
        refusal.into()
    }
}

/// Refuses everybody but administrators.
pub fn require_admin(identity: &Identity) -> Result<(), RoleNeeded> {
    match identity.is_admin() {
        true => Ok(()),
        false => Err(RoleNeeded(Role::Admin)),
    }
}

/// Refuses everybody but auditors, and administrators.
pub fn require_auditor(identity: &Identity) -> Result<(), RoleNeeded> {
    match identity.is_admin() {
        true => Ok(()),
        false => identity.require(Role::Auditor),
    }
}

/// Refuses a request that does not name exactly one host: a proxy and this server could read different ones.
pub fn require_one_host(request: &Request) -> Result<(), AppError> {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    // HTTP/1.0 has no such header.
    let is_one = hosts == 1 || (hosts == 0 && request.version() < Version::HTTP_11);
    if !is_one {
        let message = "a request must have exactly one Host header";
        return Err(AppError::bad_request("bad_host", message));
    }
    Ok(())
}

/// Refuses pages that may not use the server. They may send read-only requests, since their browsers do not show them
/// the answer.
pub async fn check_origin(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Result<Response, AppError> {
    let sources = access.sources.load_full();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        sources.policy.check_origin(request.headers())?;
    }
    // CORS wraps the refusals too, so that a page can read the reason.
    Ok(match &sources.cors {
        None => next.run(request).await,
        Some(cors) => {
            let Ok(answer) = cors.layer(next).oneshot(request).await;
            cors::empty_preflight(answer)
        }
    })
}

/// Refuses requests under other host names, and those of clients that are not allowed.
pub async fn check_source(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Result<Response, AppError> {
    if !is_checked(&request) {
        access
            .sources
            .load()
            .policy
            .check_source(request.headers())?;
    }
    Ok(next.run(request).await)
}

/// Whether another replica has checked where a request comes from, and for whom: it passes the request on.
fn is_checked(request: &Request) -> bool {
    request.extensions().get::<Forwarded>().is_some()
}

/// Like [`check_source`], and passes only requests whose user is known and has not too many of them; handlers take the
/// user as an [`Identity`].
pub async fn authenticate(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Result<Response, AppError> {
    let is_checked = is_checked(&request);
    let source = match is_checked {
        true => Ok(()),
        false => access.sources.load().policy.check_source(request.headers()),
    };
    if !may_be_monitoring(&request) {
        source.clone()?;
    }
    let (mut parts, body) = request.into_parts();
    match access.authenticate(&parts).await {
        Ok(identity) => {
            if !identity.is_by_key_or_token() {
                source?;
            }
            tracing::trace!("a request is authenticated via {}", identity.via);
            // The replica that passes a request on looks after that.
            let end = (!is_checked).then(|| access.end_of(&identity)).flatten();
            if let Some(connection) = parts.extensions.get::<Arc<ConnectionPlace>>() {
                match is_checked {
                    true => connection.claim_for_replica(),
                    false => connection.claim(&identity.user)?,
                }
            }
            parts.extensions.insert(identity);
            let response = next.run(Request::from_parts(parts, body)).await;
            Ok(match end {
                Some(end) if response.headers().contains_key(&RESUMABLE) => until(end, response),
                _ => response,
            })
        }
        Err(refusal) => Err(access.refuse(refusal, &parts)),
    }
}

/// Whether this may be a program that monitors replicas: it asks each by its address, under no name of the bridge, with a key or a
/// token of its own. Elsewhere even these do not make up for a foreign name: a proxy may add a key to requests of any page.
fn may_be_monitoring(request: &Request) -> bool {
    request.uri().path() == METRICS && request.headers().contains_key(header::AUTHORIZATION)
}

/// An answer whose reader is cut when what proves who it is has ended: the connection breaks, so that nobody takes that for the
/// end of the answer. The turn goes on.
fn until(end: impl Future<Output = ()> + Send + 'static, response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let reading = (Box::pin(end), body.into_data_stream());
    let pieces = stream::unfold(reading, |(mut end, mut pieces)| async move {
        tokio::select! {
            biased;
            () = &mut end => {
                let cut = io::Error::other("what proved who reads this has ended");
                Some((Err(axum::Error::new(cut)), (end, pieces)))
            }
            piece = pieces.next() => piece.map(|piece| (piece, (end, pieces))),
        }
    });
    Response::from_parts(parts, Body::from_stream(pieces))
}

/// The user that [`authenticate`] found.
impl<S: Send + Sync> FromRequestParts<S> for Identity {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let Extension(identity) = Extension::from_request_parts(parts, state).await?;
        Ok(identity)
    }
}

/// Answers of the API are private: no cache keeps them, no browser guesses their type, and no page of another origin
/// embeds them. Files set their own caching, and may be embedded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privacy {
    Public,
    File,
    Private,
}

impl Privacy {
    pub fn of_answer_to(request: &Request) -> Self {
        match request.uri().path() {
            path if path.starts_with("/api/files/") => Self::File,
            path if path.starts_with("/api/") || PRIVATE.contains(&path) => Self::Private,
            _ => Self::Public,
        }
    }

    pub fn apply(self, headers: &mut HeaderMap) {
        let mut set_default = |name: HeaderName, value: &'static str| {
            headers
                .entry(name)
                .or_insert(HeaderValue::from_static(value));
        };
        if self != Self::Public {
            set_default(header::CACHE_CONTROL, "no-store");
            set_default(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        }
        if self == Self::Private {
            set_default(RESOURCE_POLICY, "same-origin");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::Router;
    use axum::body::to_bytes;
    use axum::http::StatusCode;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use futures_util::future::{BoxFuture, ready};
    use tower::ServiceExt as _;

    use super::*;
    use crate::agent_list::Agents;
    use crate::sockets::Sockets;
    use crate::transport::handshake::ticket;

    /// Trusts the header of a proxy, as a user of the library may.
    #[derive(Debug)]
    struct ProxyHeader;

    impl Authenticator for ProxyHeader {
        fn authenticate<'a>(
            &'a self,
            request: &'a Parts,
        ) -> BoxFuture<'a, Result<Identity, Refusal>> {
            let user = request.headers.get("x-user");
            let user = user.map(|user| user.to_str().unwrap_or_default());
            Box::pin(ready(match user {
                None => Err(Refusal::NoCredentials("log in at the proxy".into())),
                Some("") => Err(Refusal::WrongCredentials("not a user".into())),
                Some("?") => Err(Refusal::Unavailable("the directory is away".into())),
                Some(user) => Ok(Identity::new(user, "proxy")),
            }))
        }
    }

    async fn send(router: &Router, path: &str, user: Option<&str>) -> Response {
        let mut request = Request::get(path);
        if let Some(user) = user {
            request = request.header("x-user", user);
        }
        let mut request = request.body(Body::empty()).unwrap();
        request
            .extensions_mut()
            .insert(Peer("192.0.2.1".parse().unwrap()));
        router.clone().oneshot(request).await.unwrap()
    }

    async fn body(response: Response) -> String {
        let bytes = to_bytes(response.into_body(), 1000).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn any_authenticator_finds_the_user_and_its_tickets_carry_the_identity() {
        let mut config = Config::default();
        config.limits.wrong_keys_per_minute = 1;
        let agents = Arc::new(Agents::new(Vec::new()));
        let users = Arc::new(KnownUsers::new(&config, agents));
        let access = Arc::new(Access::new(&config, Arc::new(ProxyHeader), users));
        let sockets = Sockets::new(1, Arc::default());
        let router = Router::new()
            .route(
                "/",
                get(|identity: Identity| async move { identity.user.to_string() }),
            )
            .route("/ticket", get(ticket).with_state(sockets.clone()))
            .layer(from_fn_with_state(access, authenticate));

        let answer = send(&router, "/", Some("alice")).await;
        assert_eq!(body(answer).await, "alice");
        let refused = send(&router, "/", None).await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(refused.headers()[header::WWW_AUTHENTICATE], "Bearer");
        assert!(body(refused).await.contains("log in at the proxy"));
        let away = send(&router, "/", Some("?")).await;
        assert_eq!(away.status(), StatusCode::SERVICE_UNAVAILABLE);
        for status in [StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS] {
            assert_eq!(send(&router, "/", Some("")).await.status(), status);
        }
        // Requests with valid credentials are not affected.
        let issued = body(send(&router, "/ticket", Some("alice")).await).await;
        let issued: serde_json::Value = serde_json::from_str(&issued).unwrap();
        let redeemed = sockets.redeem(issued["ticket"].as_str().unwrap());
        assert_eq!(redeemed, Some(Identity::new("alice", "proxy")));
    }
}
