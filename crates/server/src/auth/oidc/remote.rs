//! Requests to a provider: bounded in size and time, and never somewhere else.

use std::net::IpAddr;
use std::time::Duration;

use adk_bridge_agents::trust;
use reqwest::{Client, RequestBuilder};
use url::{Host, Url};

/// How long a request may take as a whole: somebody waits for it.
const TIME: Duration = Duration::from_secs(10);
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Keys and descriptions of providers have a few KB; certificates in them make it more.
const MAX_BYTES: usize = 256 * 1024;

/// Why a provider cannot be asked, for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RemoteError {
    #[error("{host} cannot be reached: {problem}")]
    Unreachable { host: String, problem: String },
    #[error("{host} answers {status}{error}")]
    Refused {
        host: String,
        status: u16,
        /// The word for it, of OAuth.
        error: String,
    },
    #[error("{host} answers with more than {MAX_BYTES} bytes")]
    TooLong { host: String },
    #[error("{host} answers something else than {expected}")]
    Unreadable {
        host: String,
        expected: &'static str,
    },
    #[error("the description of {issuer} says {said:?} for {field}; {expected}")]
    Contradiction {
        issuer: String,
        field: &'static str,
        said: String,
        expected: &'static str,
    },
    #[error("it was asked a moment ago in vain")]
    AskedBefore,
    #[error("it was asked for other keys several times a moment ago")]
    AskedOften,
    #[error("it takes too long to say its keys")]
    Slow,
}

impl RemoteError {
    /// Whether it may be over in a moment.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::AskedBefore | Self::AskedOften | Self::Slow => true,
            Self::Refused { status, .. } => *status >= 500,
            Self::TooLong { .. } | Self::Unreadable { .. } | Self::Contradiction { .. } => false,
        }
    }
}

/// A client for one provider.
pub(super) fn client(is_local: bool) -> reqwest::Result<Client> {
    let mut builder = trust::http_client()
        .connect_timeout(CONNECT_TIME)
        .timeout(TIME)
        // What it is sent is for this provider only, and so is what it says.
        .redirect(reqwest::redirect::Policy::none());
    if is_local {
        builder = builder.no_proxy();
    }
    builder.build()
}

/// The body of a successful answer.
pub(crate) async fn fetch(request: RequestBuilder, url: &Url) -> Result<Vec<u8>, RemoteError> {
    let host = host_of(url);
    let unreachable = |error: reqwest::Error| RemoteError::Unreachable {
        host: host_of(url),
        problem: match error.is_timeout() {
            true => "it takes too long".to_owned(),
            // Never the URL, whose query may hold secrets.
            false => innermost(&error.without_url()),
        },
    };
    let mut response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(unreachable)? {
        if body.len() + piece.len() > MAX_BYTES {
            return Err(RemoteError::TooLong { host });
        }
        body.extend_from_slice(&piece);
    }
    match status.is_success() {
        true => Ok(body),
        false => Err(RemoteError::Refused {
            host,
            status: status.as_u16(),
            error: oauth_word(&body),
        }),
    }
}

/// Whether what is sent to an address stays secret: it is encrypted, or does not leave this machine.
pub(crate) fn is_safe(url: &Url) -> bool {
    url.scheme() == "https" || url.scheme() == "http" && is_local(url)
}

/// Whether an address is on this machine.
pub(crate) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).to_canonical().is_loopback(),
        None => false,
    }
}

pub(crate) fn host_of(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (host, _) => host.unwrap_or_default().to_owned(),
    }
}

/// What a cause says that has no other.
fn innermost(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => innermost(cause),
        None => error.to_string(),
    }
}

/// The word that OAuth has for a refusal. Nothing else of the answer is repeated: it may quote what was sent.
pub(crate) fn oauth_word(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Refusal {
        error: String,
    }
    let is_word = |word: &str| {
        word.len() <= 40 && word.bytes().all(|it| it.is_ascii_lowercase() || it == b'_')
    };
    match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) if is_word(&refusal.error) => format!(" ({})", refusal.error),
        _ => String::new(),
    }
}
