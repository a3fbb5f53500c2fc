//! What the URLs of files begin with for the client of a request.

use std::convert::Infallible;
use std::net::IpAddr;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};

use crate::chat::Chats;
use crate::files::address::Base;
use crate::forwarding::Forwarded;

/// `server.public_url` if it is set. Otherwise the origin under which the client reaches the bridge, if its page has
/// another origin, and nothing if it has the same: such a URL takes the same way as the request, proxies included. The first
/// replica decides it for a request that is passed on.
impl<S> FromRequestParts<S> for Base
where
    Chats: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        if let Some(Forwarded { base, .. }) = parts.extensions.get() {
            return Ok(base.clone());
        }
        let headers = &parts.headers;
        Ok(match Chats::from_ref(state).shared().addresses.public() {
            Some(public) => public,
            None if is_elsewhere(headers) => own_origin(headers).unwrap_or_default(),
            None => Self::relative(own_origin(headers)),
        })
    }
}

impl Base {
    /// The origin of a request that was made on this machine, to one of its names.
    pub(super) fn of_this_machine(headers: &HeaderMap) -> Option<Self> {
        let host = text(headers, header::HOST.as_str())?;
        is_local(host).then(|| own_origin(headers)).flatten()
    }
}

/// Whether the page has another origin. Current browsers say so.
pub(crate) fn is_elsewhere(headers: &HeaderMap) -> bool {
    if let Some(site) = text(headers, "sec-fetch-site") {
        return matches!(site, "same-site" | "cross-site");
    }
    let Some((_, page)) = text(headers, "origin").and_then(|origin| origin.split_once("://"))
    else {
        return false;
    };
    // A development server's proxy names itself as the host, or forwards the original host; others leave out the port.
    let same = |host: &str| {
        host.eq_ignore_ascii_case(page) || host.eq_ignore_ascii_case(without_port(page))
    };
    let mut hosts = ["host", "x-forwarded-host"]
        .into_iter()
        .filter_map(|name| text(headers, name));
    // A local host name in a request of a remote page was written by a proxy, not by the page.
    let is_rewritten = |host| is_local(host) && !is_local(page);
    !hosts.any(|host| same(host) || is_rewritten(host))
}

/// The origin that the client used. The proxy in front of the bridge says whether it was secure; a secure page shows
/// only secure files, unless they come from this machine.
pub(crate) fn own_origin(headers: &HeaderMap) -> Option<Base> {
    let host = text(headers, header::HOST.as_str())?;
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_host) {
        return None;
    }
    let secure_page = text(headers, "origin").is_some_and(|it| it.starts_with("https://"));
    let scheme = match text(headers, "x-forwarded-proto") {
        Some(scheme @ ("http" | "https")) => scheme,
        _ if secure_page && !is_local(host) => "https",
        _ => "http",
    };
    Some(Base::origin(&format!("{scheme}://{host}")))
}

/// Whether a host name means the local machine.
fn is_local(host: &str) -> bool {
    let name = without_port(host).to_ascii_lowercase();
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    name == "localhost"
        || name.ends_with(".localhost")
        || address.is_ok_and(|it| it.to_canonical().is_loopback())
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_absolute_where_the_page_is_elsewhere() {
        const BRIDGE: &str = "127.0.0.1:8080";
        for (sent, expected) in [
            // Programs, and the bridge's own page.
            (&[][..], None),
            (&[("origin", "http://127.0.0.1:8080")], None),
            (
                &[("origin", "null"), ("sec-fetch-site", "same-origin")],
                None,
            ),
            (&[("sec-fetch-site", "none")], None),
            // A page of another origin that asks the bridge itself.
            (
                &[("origin", "http://localhost:3000")],
                Some("http://127.0.0.1:8080"),
            ),
            (
                &[("sec-fetch-site", "cross-site")],
                Some("http://127.0.0.1:8080"),
            ),
            (
                &[
                    ("origin", "http://localhost:3000"),
                    ("sec-fetch-site", "same-site"),
                ],
                Some("http://127.0.0.1:8080"),
            ),
            (
                &[("origin", "https://a.example"), ("host", "bridge.example")],
                Some("https://bridge.example"),
            ),
            (
                &[
                    ("origin", "https://a.example"),
                    ("sec-fetch-site", "cross-site"),
                ],
                Some("http://127.0.0.1:8080"),
            ),
            (
                &[
                    ("origin", "http://a.example"),
                    ("host", "bridge.example"),
                    ("x-forwarded-proto", "https"),
                ],
                Some("https://bridge.example"),
            ),
            (
                &[
                    ("origin", "http://app.localhost:3000"),
                    ("x-forwarded-proto", "javascript"),
                ],
                Some("http://127.0.0.1:8080"),
            ),
            (
                &[("origin", "http://[::1]:3000"), ("host", "[::1]:8080")],
                Some("http://[::1]:8080"),
            ),
            // A proxy that keeps the page's origin: the page asks its own server.
            (
                &[
                    ("origin", "http://localhost:3000"),
                    ("sec-fetch-site", "same-origin"),
                ],
                None,
            ),
            (
                &[
                    ("origin", "http://localhost:3000"),
                    ("x-forwarded-host", "localhost:3000"),
                ],
                None,
            ),
            // One that leaves out the port, or writes the bridge's own host: the page used its own.
            (
                &[("origin", "http://localhost:3000"), ("host", "localhost")],
                None,
            ),
            (
                &[
                    ("origin", "http://chat.example:8088"),
                    ("host", "chat.example"),
                ],
                None,
            ),
            (&[("origin", "http://[::1]:3000"), ("host", "[::1]")], None),
            (&[("origin", "http://chat.example:8088")], None),
            (&[("origin", "https://a.example")], None),
            (
                &[("origin", "https://a.example"), ("host", "localhost:8080")],
                None,
            ),
            (
                &[
                    ("origin", "http://localhost.example"),
                    ("host", "127.example"),
                ],
                Some("http://127.example"),
            ),
            // Not a plain host name.
            (&[("origin", "http://a.example"), ("host", "x/\"y")], None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("host", BRIDGE.parse().unwrap());
            for (name, value) in sent {
                headers.insert(*name, value.parse().unwrap());
            }
            let found = is_elsewhere(&headers)
                .then(|| own_origin(&headers))
                .flatten();
            assert_eq!(found, expected.map(Base::origin), "{sent:?}");
        }
    }
}
