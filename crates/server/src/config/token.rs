//! Where the token of an agent comes from: `{ kind = "google-id-token", audience = "…" }` and the like.

use std::path::PathBuf;

use adk_bridge_agents::token::TokenSource;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderName, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Agent, ConfigError};

/// Where the token comes from: `{ kind = "google-id-token" }`, for example. Google's tokens are made with the credentials
/// that Google's tools find: `GOOGLE_APPLICATION_CREDENTIALS` (a service account's key, workload identity federation), those
/// of gcloud (access tokens only), or the metadata server of Google Cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// What it is, and who renews it.
    pub kind: TokenKind,
    /// For `"google-id-token"`: whom it is for; by default the origin of `agent.base_url`. For Identity-Aware Proxy name the id
    /// of its OAuth client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// For `"google-access-token"`: what it may be used for; by default those of Google Cloud.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// For `"file"`: the file that holds the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub path: Option<PathBuf>,
    /// For `"user"`: the header of users' requests that holds their tokens, such as `"x-forwarded-access-token"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The header that carries it to the agent, after the word `Bearer`, such as `"x-serverless-authorization"`; by default
    /// `authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TokenKind {
    /// For agents behind Cloud Run or Identity-Aware Proxy.
    GoogleIdToken,
    /// For Google's own interfaces.
    GoogleAccessToken,
    /// A file that somebody else renews, such as a projected token of Kubernetes; it is read for every request.
    File,
    /// The user's own, which every request of the user brings in the header that `from` names: one that a proxy sets, such as
    /// oauth2-proxy, or the front end. It is held in memory, for this user only; give every person a key of their own.
    /// Without a valid one, the user is asked to sign in again.
    User,
}

impl Token {
    /// A Google access token, for kinds of agents that need one.
    pub fn of_google() -> Self {
        Self {
            kind: TokenKind::GoogleAccessToken,
            audience: None,
            scopes: Vec::new(),
            path: None,
            from: None,
            header: None,
        }
    }

    /// The source, for an agent at this URL.
    pub fn source(&self, base_url: &str) -> Result<TokenSource, ConfigError> {
        Ok(match (self.kind, &self.path) {
            (TokenKind::User, _) => TokenSource::User {
                from: self.from().ok_or_else(|| refused(NO_SOURCE))?,
            },
            (TokenKind::GoogleIdToken, _) => TokenSource::GoogleIdToken {
                audience: match &self.audience {
                    Some(audience) => audience.clone(),
                    None => origin(base_url).ok_or_else(|| {
                        refused("name the audience; it cannot be derived from agent.base_url")
                    })?,
                },
            },
            (TokenKind::GoogleAccessToken, _) => TokenSource::GoogleAccessToken {
                scopes: self.scopes.clone(),
            },
            (TokenKind::File, Some(path)) => TokenSource::File { path: path.clone() },
            (TokenKind::File, None) => return Err(refused("kind = \"file\" needs a path")),
        })
    }

    /// The header of users' requests that holds their tokens.
    pub(super) fn from(&self) -> Option<HeaderName> {
        self.from.as_deref()?.parse().ok()
    }

    /// The header that carries it, unless it is the usual one.
    pub fn header(&self) -> Option<HeaderName> {
        self.header.as_deref()?.parse().ok()
    }

    pub(super) fn check(&self, agent: &Agent) -> Vec<ConfigError> {
        let unwanted = match agent.kind.as_str() {
            "demo" => Some("kind = \"demo\" needs no token; remove this key"),
            "gemini" if agent.vertex.is_none() => Some(
                "kind = \"gemini\" takes a token only with agent.vertex; otherwise it takes a key (agent.api_key_env)",
            ),
            "openai" if agent.api_key_env.is_some() => Some(
                "kind = \"openai\" takes a token or a key (agent.api_key_env); remove one of them",
            ),
            _ => None,
        };
        // Nothing more is to be said of one that is to be removed.
        if let Some(problem) = unwanted {
            return vec![refused(problem)];
        }
        let has = |kind| self.kind == kind;
        let is_header_taken = agent.headers.has(&self.header().unwrap_or(AUTHORIZATION));
        let is_user_named = agent.base_url.as_deref().is_some_and(has_user);
        let rules = [
            (
                self.audience.as_deref().is_some_and(str::is_empty),
                "the audience is empty; name one, or leave it out",
            ),
            (
                self.audience.is_some() && !has(TokenKind::GoogleIdToken),
                "only kind = \"google-id-token\" has an audience",
            ),
            (
                !self.scopes.is_empty() && !has(TokenKind::GoogleAccessToken),
                "only kind = \"google-access-token\" has scopes",
            ),
            (
                self.path.is_some() != has(TokenKind::File),
                "kind = \"file\" needs a path, and no other kind has one",
            ),
            (
                self.from().is_some() != has(TokenKind::User)
                    || self.from.is_some() != has(TokenKind::User),
                NO_SOURCE,
            ),
            (
                self.header.is_some() && self.header().is_none(),
                "this is not the name of a header",
            ),
            (
                is_header_taken,
                "agent.headers has the header that the token goes to; remove it there",
            ),
            (
                is_user_named && self.header().is_none(),
                "agent.base_url has a user and a password, which go to the same header; remove them there",
            ),
        ];
        let broken = rules.iter().filter(|(is_broken, _)| *is_broken);
        broken.map(|(_, problem)| refused(problem)).collect()
    }
}

/// What is wrong with `from`.
const NO_SOURCE: &str = "kind = \"user\" needs the name of the header that holds the user's token, such as \
                         from = \"x-forwarded-access-token\", and no other kind has one";

fn refused(problem: &str) -> ConfigError {
    ConfigError::value("agent.token", problem)
}

/// Scheme, host and port, as Cloud Run takes them for an audience.
fn origin(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    let authority = url.authority()?.as_str().rsplit('@').next()?;
    Some(format!("{}://{authority}", url.scheme_str()?))
}

fn has_user(url: &str) -> bool {
    let url = url.parse::<Uri>().ok();
    let authority = url.and_then(|url| url.authority().cloned());
    authority.is_some_and(|authority| authority.as_str().contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audience_is_the_service_unless_named() {
        let mut token = Token {
            kind: TokenKind::GoogleIdToken,
            ..Token::of_google()
        };
        let audience = |token: &Token, url: &str| match token.source(url) {
            Ok(TokenSource::GoogleIdToken { audience }) => audience,
            other => panic!("{other:?}"),
        };
        for (url, expected) in [
            ("https://adk-x.a.run.app", "https://adk-x.a.run.app"),
            ("https://adk-x.a.run.app/api/", "https://adk-x.a.run.app"),
            ("http://u:p@127.0.0.1:80/x", "http://127.0.0.1:80"),
        ] {
            assert_eq!(audience(&token, url), expected);
        }
        token.audience = Some("123.apps.googleusercontent.com".into());
        assert_eq!(audience(&token, "x"), "123.apps.googleusercontent.com");
    }
}
