//! From where a request may come: its `Host`, its `Origin`, and what proxies say of the client behind them.
//!
//! If no credentials are required, every client that reaches the bridge is its user, so only this machine may reach it.
//! Others that could, and what stops them:
//!
//! | who | what stops them |
//! |---|---|
//! | a page elsewhere, in a browser of this machine | its `Origin` is never a loopback one |
//! | the same page after its name was pointed here (DNS rebinding) | its `Host` is its name; behind a proxy that writes the bridge's own `Host`, `X-Forwarded-Host` is |
//! | a client elsewhere, through a proxy or a tunnel on this machine | `X-Forwarded-For` and its relatives name their address |
//!
//! A page that this machine serves (`http://localhost:3000`) may use the bridge through the proxy of its development server,
//! which keeps the page's `Origin` and writes the bridge's `Host`. The page talks to its own origin, and browsers say so
//! (`Sec-Fetch-Site: same-origin`). When the same page calls the bridge's port directly, browsers say `same-site` or
//! `cross-site`, and `allowed_origins` must name it. Where a browser says nothing (WebSockets in some), the page of another
//! local port is accepted: the program that serves it could call the bridge itself.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, Method, header};

use crate::config::Server;

/// Headers of proxies and tunnels for the address of their client. `Forwarded` has a form of its own.
const CLIENT_HEADERS: [&str; 13] = [
    "x-forwarded-for",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded-for",
    "x-azure-clientip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
];
/// Their headers for the host that the client asked for.
const HOST_HEADERS: [&str; 2] = ["x-forwarded-host", "x-original-host"];
const FORWARDED: &str = "forwarded";

/// From where requests may come.
#[derive(Debug, Clone)]
pub struct SourcePolicy {
    /// Whether the bridge knows all of its names: those of this machine, and those allowed.
    checks_host: bool,
    /// Whether only this machine may ask, since no credentials are required.
    is_local_only: bool,
    allowed_hosts: Vec<String>,
    allowed_origins: Vec<String>,
    /// Whether pages of this bridge come over encrypted connections.
    is_secure: bool,
}

/// Why a request is refused for where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error(
        "this bridge is not served under the name {name:?}; add it to server.allowed_hosts, or have your proxy send the \
         bridge's own address as Host"
    )]
    Host { name: String },
    #[error(
        "pages of {origin:?} may not use this bridge; add the origin to server.allowed_origins, or have your proxy keep \
         the page's Host"
    )]
    Origin { origin: String },
    #[error(
        "a request with the cookie of a login must say which page has made it: send Origin, or use a key or a token"
    )]
    NoOrigin,
    #[error(
        "this bridge has no keys and serves this machine only, but {header} says that the request is for {client:?}; set \
         auth.api_keys and give every user a key"
    )]
    Forwarded {
        header: &'static str,
        client: String,
    },
}

impl SourcePolicy {
    pub fn new(server: &Server, requires_credentials: bool) -> Self {
        Self {
            // On other addresses a bridge has names that it cannot know, unless it is configured with them.
            checks_host: server.listen.ip().is_loopback() || !server.allowed_hosts.is_empty(),
            is_local_only: !requires_credentials,
            allowed_hosts: server.allowed_hosts.clone(),
            allowed_origins: server.allowed_origins.clone(),
            is_secure: (server.public_url.as_deref())
                .is_some_and(|url| url.starts_with("https://")),
        }
    }

    /// Refuses requests under a name that is not this bridge's and, where no credentials are required, those that were
    /// forwarded for clients elsewhere.
    pub fn check_source(&self, headers: &HeaderMap) -> Result<(), SourceError> {
        let host = text_of(headers, header::HOST.as_str());
        if self.checks_host && !host.is_empty() {
            self.check_host(host)?;
        }
        if self.is_local_only && is_forwarded(headers) {
            self.check_forwarded(headers)?;
        }
        Ok(())
    }

    /// Refuses requests of pages that may not use the bridge. Programs send no `Origin`, and pass.
    pub fn check_origin(&self, headers: &HeaderMap) -> Result<(), SourceError> {
        let Some(origin) = headers.get(header::ORIGIN) else {
            return Ok(());
        };
        let origin = origin.to_str().unwrap_or_default();
        let host = text_of(headers, header::HOST.as_str());
        let page = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        let is_same = page.is_some_and(|page| page == host);
        let is_listed = self.allowed_origins.iter().any(|it| it == origin);
        let is_behind_local_proxy = || {
            page.is_some_and(|page| is_loopback(name_of(page)))
                && is_loopback(name_of(host))
                && headers
                    .get("sec-fetch-site")
                    .is_none_or(|site| site == "same-origin")
        };
        if is_same || is_listed || is_behind_local_proxy() {
            return Ok(());
        }
        Err(SourceError::Origin {
            origin: origin.to_owned(),
        })
    }

    /// Refuses what another page may have made a browser send along with a cookie. Programs have no cookies: who made the
    /// request must be said, unless it only reads. A WebSocket can do more.
    pub fn check_cookie(&self, method: &Method, headers: &HeaderMap) -> Result<(), SourceError> {
        let upgrade = text_of(headers, header::UPGRADE.as_str());
        let is_socket = upgrade.eq_ignore_ascii_case("websocket");
        if matches!(*method, Method::GET | Method::HEAD) && !is_socket {
            return Ok(());
        }
        let is_same_site = text_of(headers, "sec-fetch-site") == "same-origin";
        let Some(origin) = headers.get(header::ORIGIN) else {
            return match is_same_site {
                true => Ok(()),
                false => Err(SourceError::NoOrigin),
            };
        };
        let origin = origin.to_str().unwrap_or_default();
        // Cookies do not know ports, so a page of another local port counts as foreign, unless its browser says
        // otherwise; and the same page without encryption may be anybody's.
        let (scheme, page) = origin.split_once("://").unwrap_or_default();
        let is_same = page == text_of(headers, header::HOST.as_str())
            && (scheme == "https" || scheme == "http" && !self.is_secure);
        let is_listed = self.allowed_origins.iter().any(|it| it == origin);
        match is_same || is_listed || is_same_site {
            true => self.check_origin(headers),
            false => Err(SourceError::Origin {
                origin: origin.to_owned(),
            }),
        }
    }

    fn check_host(&self, host: &str) -> Result<(), SourceError> {
        let name = name_of(host);
        let mut allowed = self.allowed_hosts.iter();
        if is_loopback(name) || allowed.any(|it| it.eq_ignore_ascii_case(name)) {
            return Ok(());
        }
        Err(SourceError::Host {
            name: name.to_owned(),
        })
    }

    fn check_forwarded(&self, headers: &HeaderMap) -> Result<(), SourceError> {
        for name in CLIENT_HEADERS {
            for address in words(headers, name) {
                check_client(name, address)?;
            }
        }
        for name in HOST_HEADERS {
            for host in words(headers, name) {
                self.check_host(host)?;
            }
        }
        // An unreadable line may name any client.
        let mut lines = headers.get_all(FORWARDED).iter();
        if lines.any(|line| line.to_str().is_err()) {
            check_client(FORWARDED, "unknown")?;
        }
        let pairs = words(headers, FORWARDED).flat_map(|element| element.split(';'));
        for (key, value) in pairs.filter_map(|pair| pair.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match key.trim().to_ascii_lowercase().as_str() {
                "for" => check_client(FORWARDED, value)?,
                "host" => self.check_host(value)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether a proxy or a tunnel says that it forwards a request.
pub fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.keys().map(HeaderName::as_str).any(|name| {
        name.starts_with("x-forwarded")
            || CLIENT_HEADERS.contains(&name)
            || HOST_HEADERS.contains(&name)
            || [FORWARDED, "via"].contains(&name)
    })
}

/// A client that a proxy names must be this machine. A name that hides it is not.
fn check_client(header: &'static str, client: &str) -> Result<(), SourceError> {
    let is_here = client
        .parse()
        .or_else(|_| name_of(client).parse())
        .is_ok_and(is_here);
    if is_here || name_of(client).eq_ignore_ascii_case("localhost") {
        return Ok(());
    }
    Err(SourceError::Forwarded {
        header,
        client: client.to_owned(),
    })
}

/// A host without its port, and an IPv6 address without its brackets.
fn name_of(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && (name.ends_with(']') || !name.contains(':')) =>
        {
            name
        }
        _ => host,
    };
    name.strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name)
}

/// Names that always mean this machine; browsers resolve all of `.localhost` this way.
fn is_loopback(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse().is_ok_and(is_here)
}

fn is_here(address: IpAddr) -> bool {
    // Servers that listen on both write 127.0.0.1 as ::ffff:127.0.0.1.
    address.to_canonical().is_loopback()
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .map_or("", |value| value.to_str().unwrap_or("?"))
}

/// The words of a list that may be spread over several headers.
fn words<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        // A value that is not ASCII is not an address of this machine.
        .flat_map(|value| value.to_str().unwrap_or("?").split(','))
        .map(str::trim)
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn a_client_that_a_proxy_names_must_be_this_machine() {
        let policy = SourcePolicy::new(&Server::default(), false);
        for (name, value, passes) in [
            ("x-forwarded-for", "127.0.0.1", true),
            ("x-forwarded-for", "::1", true),
            ("x-forwarded-for", "::ffff:127.0.0.1", true),
            ("x-forwarded-for", "127.0.0.1:51234", true),
            ("x-forwarded-for", "[::1]:51234", true),
            ("x-forwarded-for", "::1, 127.0.0.1", true),
            ("x-forwarded-for", "", true),
            ("x-forwarded-for", "192.168.0.7", false),
            ("x-forwarded-for", "::ffff:192.168.0.7", false),
            ("x-forwarded-for", "127.0.0.1, 203.0.113.9", false),
            ("x-forwarded-for", "203.0.113.9, 127.0.0.1", false),
            ("x-forwarded-for", "unknown", false),
            ("x-real-ip", "203.0.113.9", false),
            ("cf-connecting-ip", "2001:db8::1", false),
            ("fly-client-ip", "203.0.113.9", false),
            // Bytes that are not ASCII.
            ("forwarded", "x=\"é\", for=203.0.113.9", false),
            ("forwarded", "é", false),
            ("x-forwarded-for", "é", false),
            ("forwarded", "for=127.0.0.1;proto=http", true),
            ("forwarded", "For=\"[::1]:4711\"", true),
            ("forwarded", "proto=https", true),
            ("forwarded", "for=127.0.0.1, for=203.0.113.9", false),
            ("forwarded", "for=\"[2001:db8::1]\"", false),
            ("forwarded", "for=_hidden", false),
            ("forwarded", "host=localhost:3000", true),
            ("forwarded", "for=127.0.0.1;host=evil.example", false),
            ("x-forwarded-host", "localhost:3000", true),
            ("x-forwarded-host", "app.localhost", true),
            ("x-forwarded-host", "evil.example:3000", false),
        ] {
            let checked = policy.check_source(&headers(&[(name, value)]));
            assert_eq!(checked.is_ok(), passes, "{name}: {value}");
        }
    }

    #[test]
    fn a_cookie_counts_only_if_its_own_page_has_sent_it() {
        let mut server = Server {
            allowed_origins: vec!["https://app.example".into()],
            ..Server::default()
        };
        let plain = SourcePolicy::new(&server, true);
        server.public_url = Some("https://chat.example".into());
        let secure = SourcePolicy::new(&server, true);
        let local = ("host", "127.0.0.1:8080");
        let public = ("host", "chat.example");
        let socket = ("upgrade", "WebSocket");
        for (policy, method, sent, passes) in [
            (&plain, Method::GET, vec![local], true),
            (&plain, Method::POST, vec![local], false),
            (
                &plain,
                Method::DELETE,
                vec![local, ("sec-fetch-site", "none")],
                false,
            ),
            (
                &plain,
                Method::POST,
                vec![local, ("sec-fetch-site", "same-site")],
                false,
            ),
            (
                &plain,
                Method::POST,
                vec![local, ("sec-fetch-site", "same-origin")],
                true,
            ),
            (
                &plain,
                Method::POST,
                vec![local, ("origin", "http://127.0.0.1:8080")],
                true,
            ),
            (
                &plain,
                Method::POST,
                vec![local, ("origin", "http://127.0.0.1:3000")],
                false,
            ),
            (
                &plain,
                Method::POST,
                vec![local, ("origin", "http://localhost:8080")],
                false,
            ),
            (
                &plain,
                Method::POST,
                vec![
                    local,
                    ("origin", "http://localhost:3000"),
                    ("sec-fetch-site", "same-origin"),
                ],
                true,
            ),
            (
                &plain,
                Method::POST,
                vec![local, ("origin", "https://app.example")],
                true,
            ),
            (&plain, Method::POST, vec![local, ("origin", "null")], false),
            (&plain, Method::GET, vec![local, socket], false),
            (
                &plain,
                Method::GET,
                vec![local, socket, ("origin", "http://127.0.0.1:8080")],
                true,
            ),
            (
                &plain,
                Method::GET,
                vec![local, socket, ("origin", "http://127.0.0.1:1")],
                false,
            ),
            (
                &secure,
                Method::POST,
                vec![public, ("origin", "https://chat.example")],
                true,
            ),
            (
                &secure,
                Method::POST,
                vec![public, ("origin", "http://chat.example")],
                false,
            ),
            (
                &secure,
                Method::POST,
                vec![
                    public,
                    ("origin", "https://evil.example"),
                    ("sec-fetch-site", "same-origin"),
                ],
                false,
            ),
        ] {
            let checked = policy.check_cookie(&method, &headers(&sent));
            assert_eq!(checked.is_ok(), passes, "{method} {sent:?}");
        }
    }

    #[test]
    fn a_local_page_passes_through_its_own_proxy_and_not_across() {
        let policy = SourcePolicy::new(&Server::default(), true);
        for (origin, host, site, passes) in [
            ("http://localhost:3000", "127.0.0.1:8080", None, true),
            (
                "http://localhost:3000",
                "127.0.0.1:8080",
                Some("same-origin"),
                true,
            ),
            (
                "https://app.localhost",
                "localhost:8080",
                Some("same-origin"),
                true,
            ),
            ("http://[::1]:5173", "[::1]:8080", Some("same-origin"), true),
            (
                "http://localhost:3000",
                "localhost:8080",
                Some("same-site"),
                false,
            ),
            (
                "http://localhost:3000",
                "127.0.0.1:8080",
                Some("cross-site"),
                false,
            ),
            ("http://localhost:3000", "chat.example", None, false),
            (
                "http://evil.example",
                "127.0.0.1:8080",
                Some("same-origin"),
                false,
            ),
            (
                "http://localhost.evil.example",
                "127.0.0.1:8080",
                None,
                false,
            ),
            (
                "http://127.0.0.1.evil.example",
                "127.0.0.1:8080",
                None,
                false,
            ),
            (
                "http://localhost@evil.example",
                "127.0.0.1:8080",
                None,
                false,
            ),
            ("file://localhost", "127.0.0.1:8080", None, false),
            ("null", "127.0.0.1:8080", None, false),
            ("", "127.0.0.1:8080", None, false),
        ] {
            let mut sent = vec![("origin", origin), ("host", host)];
            sent.extend(site.map(|site| ("sec-fetch-site", site)));
            let checked = policy.check_origin(&headers(&sent));
            assert_eq!(checked.is_ok(), passes, "{sent:?}");
        }
    }
}
