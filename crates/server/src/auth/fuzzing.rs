//! What the fuzz targets read of those who say who a user is: keys, descriptions, tokens, and from where a request comes.

use std::collections::BTreeSet;

use adk_bridge_protocol::time::Timestamp;
use axum::http::{HeaderMap, Method, header};
use url::Url;

use super::claim_mapping::ClaimMapping;
use super::jwt::{Algorithm, Expected, KeySet, MAX_KEYS, Unverified};
use super::oidc::{Description, remote};
use super::{SourceError, SourcePolicy};
use crate::config::{RoleNames, Server};
use crate::transport::base::{is_elsewhere, own_origin};

const ISSUER: &str = "https://op.example";

/// Reads a token and checks it with keys that have signed `genuine` ones: no other passes, and its user is one of its source.
pub fn token(text: &str, keys: &[u8], genuine: &[&str], now: Timestamp) {
    let Ok(token) = Unverified::read(text) else {
        return;
    };
    let none = RoleNames::default();
    let mapping = ClaimMapping::new("corp", "sub", (Some("groups"), &none), &BTreeSet::new());
    if let Ok(identity) = mapping.identity(token.unchecked(), "oidc") {
        let user = identity.user.as_str();
        let is_plain = |byte: u8| !byte.is_ascii_control() && !b" \"#/<>?\\`".contains(&byte);
        assert!(user.starts_with("corp:"), "{user:?} is of another source");
        assert!(user.bytes().all(is_plain), "{user:?} is more than a name");
    }
    let audience = ["bridge".to_owned()];
    let expected = Expected {
        issuer: Some(ISSUER),
        audience: &audience,
        algorithms: &Algorithm::ALL,
        types: &["jwt"],
    };
    let keys = KeySet::read(keys).unwrap_or_default();
    let signed = |token: &str| token.rsplit_once('.').map(|(signed, _)| signed.to_owned());
    let is_genuine = genuine.iter().any(|it| signed(it) == signed(text));
    let is_good = token.verified(&keys, expected, now).is_ok();
    assert!(is_genuine || !is_good, "nobody has signed this");
    assert!(is_good || !genuine.contains(&text), "it was signed");
}

/// Reads what a provider publishes as its keys. They have signed a token only if its key is among them.
pub fn key_set(json: &[u8], genuine: &[&str], published: &[u8]) {
    let Some(keys) = KeySet::read(json) else {
        return;
    };
    assert!(keys.len() <= MAX_KEYS, "keys are bounded");
    let known = KeySet::read(published).unwrap_or_default();
    for token in genuine.iter().filter_map(|it| Unverified::read(it).ok()) {
        let has_signed = keys.check(&token).is_ok();
        assert!(!has_signed || keys.shares_a_key(&known), "a foreign key");
    }
}

/// Reads how a provider describes itself. What is taken is of that provider, and every address in it keeps secrets.
pub fn openid_description(json: &[u8]) {
    for issuer in [ISSUER, "http://localhost:8080/realms/test"] {
        let Ok(url) = Url::parse(issuer) else {
            continue;
        };
        if let Ok(description) = Description::read(json, issuer, &url) {
            let is_safe = description.addresses().all(|(_, url)| remote::is_safe(url));
            assert!(is_safe, "an address without encryption");
        }
    }
}

/// Decides about a request by the headers that say where it comes from, one in a line.
pub fn source(lines: &str) {
    let mut headers = HeaderMap::new();
    let mut alone = Vec::new();
    for (name, value) in lines.lines().filter_map(|line| line.split_once(": ")) {
        let name = name.parse::<header::HeaderName>();
        if let (Ok(name), Ok(value)) = (name, header::HeaderValue::from_str(value)) {
            headers.append(name.clone(), value.clone());
            alone.push(HeaderMap::from_iter([(name, value)]));
        }
    }
    let mut server = Server {
        allowed_origins: vec!["https://app.example".into()],
        ..Server::default()
    };
    let local = SourcePolicy::new(&server, false);
    // What one header says is not taken back by another one.
    let is_refused =
        |it: &HeaderMap| matches!(local.check_source(it), Err(SourceError::Forwarded { .. }));
    if alone.iter().any(is_refused) {
        assert!(local.check_source(&headers).is_err(), "{headers:?}");
    }
    server.public_url = Some("https://chat.example".into());
    let public = SourcePolicy::new(&server, true);
    for policy in [&local, &public] {
        if policy.check_cookie(&Method::POST, &headers).is_ok() {
            assert!(policy.check_origin(&headers).is_ok(), "{headers:?}");
            let says_who = ["origin", "sec-fetch-site"]
                .iter()
                .any(|name| headers.contains_key(*name));
            assert!(says_who, "nobody says which page it is");
        }
    }
    let _ = is_elsewhere(&headers);
    if let Some(base) = own_origin(&headers) {
        let url = base.url("/api/files/1");
        let (_, rest) = url.split_once("://").unwrap_or_default();
        assert!(rest.find('/') == rest.rfind("/api/files/1"), "{url:?}");
        assert!(!url.contains(['"', '\'', '<', '>', '\\', ' ']), "{url:?}");
    }
}
