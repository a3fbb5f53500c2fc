//! What of the configuration is hidden in the log, and from users: the bridge's own secrets, and the agent's address.

use std::net::IpAddr;

use adk_bridge_agents::secrets::HiddenStrings;
pub use adk_bridge_agents::secrets::{hide, hide_from_users};
use adk_bridge_protocol::base64;
use url::Url;

use crate::agent_kinds::{adk, gemini, openai};
use crate::config::{Agent, Config};
use crate::telemetry::secrets_of_environment;

/// The environment's credentials for buckets: a server may quote them in an error.
const BUCKET_VARIABLES: [&str; 3] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];

/// Hides what a configuration has to hide from now on, as well as that of other servers in this process.
pub fn keep(config: &Config) {
    adk_bridge_agents::secrets::keep(hidden_of(config));
}

fn hidden_of(config: &Config) -> HiddenStrings {
    HiddenStrings::new(secrets_of(config), addresses_of(config))
}

fn secrets_of(config: &Config) -> Vec<String> {
    let mut secrets: Vec<String> = Vec::new();
    let keys = config.auth.api_keys.iter();
    secrets.extend(keys.filter_map(|key| key.key.clone()));
    let providers = config.auth.oidc.iter();
    // One that is not set is reported when the provider is set up.
    secrets.extend(providers.filter_map(|it| it.client_secret().ok().flatten()));
    secrets.extend(config.cluster.shared_key());
    secrets.extend(config.audit.signing_key());
    for agent in config.each_agent() {
        let variable = match agent.kind.as_str() {
            "openai" => openai::key_variable(agent),
            _ => agent.api_key_env.as_deref().or(Some(gemini::KEY_VARIABLE)),
        };
        secrets.extend(variable.and_then(|variable| std::env::var(variable).ok()));
        for (_, value) in agent.headers.pairs() {
            // `Bearer` and its like are no secret, and what follows may be quoted alone.
            secrets.extend(value.split_once(' ').map(|(_, token)| token.to_owned()));
            secrets.push(value);
        }
        let base_url = agent.base_url.as_deref();
        if let Some((Some(user), _)) = base_url.and_then(authority_of) {
            secrets.push(base64::encode(user.as_bytes()));
            secrets.extend(
                user.split_once(':')
                    .map(|(_, password)| password.to_owned()),
            );
            secrets.push(user.to_owned());
        }
    }
    for server in &config.tools.mcp {
        for (_, value) in server.headers.pairs().into_iter().chain(server.env.pairs()) {
            secrets.extend(value.split_once(' ').map(|(_, token)| token.to_owned()));
            secrets.push(value);
        }
        if let Some((Some(user), _)) = server.url.as_deref().and_then(authority_of) {
            secrets.push(user.to_owned());
        }
    }
    if let Some(url) = config.store.url.as_deref() {
        secrets.extend(passwords_in(url));
    }
    if config.files.url.is_some() {
        let variables = BUCKET_VARIABLES.iter();
        secrets.extend(variables.filter_map(|variable| std::env::var(variable).ok()));
    }
    secrets.extend(secrets_of_environment());
    // As they look inside of JSON.
    let escaped: Vec<String> = (secrets.iter())
        .filter_map(|secret| serde_json::to_string(secret).ok())
        .map(|json| json.trim_matches('"').to_owned())
        .collect();
    secrets.extend(escaped);
    secrets
}

/// The names by which the agents are reached. A name without a port that may be an ordinary word is not hidden.
fn addresses_of(config: &Config) -> Vec<String> {
    let agents = config.each_agent().iter().filter_map(url_of);
    let servers = config.tools.mcp.iter();
    let servers = servers.filter_map(|server| server.url.as_deref());
    agents.chain(servers).flat_map(addresses_in).collect()
}

fn url_of(agent: &Agent) -> Option<&str> {
    let given = agent.base_url.as_deref();
    match agent.kind.as_str() {
        "demo" => None,
        "adk" => given.or(Some(adk::LOCAL)),
        // Google's and OpenAI's own addresses are no secret, and stand in their advice.
        _ => given,
    }
}

/// The names by which a server with this URL is reached.
fn addresses_in(url: &str) -> Vec<String> {
    let Some((_, address)) = authority_of(url) else {
        return Vec::new();
    };
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
        _ => (address, ""),
    };
    let bare = host.trim_matches(['[', ']']);
    let is_plain = match bare.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback() || ip.is_unspecified(),
        Err(_) => !bare.contains('.'),
    };
    let mut addresses = Vec::new();
    if !is_plain {
        addresses.push(host.to_owned());
    }
    if !port.is_empty() {
        addresses.push(address.to_owned());
    }
    addresses
}

/// The passwords in the URL of a database, as they stand in it and as they are.
fn passwords_in(url: &str) -> Vec<String> {
    let Ok(url) = Url::parse(url) else {
        return Vec::new();
    };
    let named = |name: &str| name == "password";
    let parameters = url.query_pairs().filter(|(name, _)| named(name));
    let mut passwords: Vec<String> = parameters.map(|(_, value)| value.into_owned()).collect();
    if let Some(password) = url.password() {
        let plain = percent_encoding::percent_decode_str(password).decode_utf8_lossy();
        passwords.extend([password.to_owned(), plain.into_owned()]);
    }
    passwords
}

/// The `user:password` of an address, and its `host:port`.
fn authority_of(url: &str) -> Option<(Option<&str>, &str)> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    Some(match authority.rsplit_once('@') {
        Some((user, address)) => (Some(user), address),
        None => (None, authority),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ApiKey;

    #[test]
    fn secrets_are_hidden_wherever_they_stand() {
        let mut config = Config::default();
        config.auth.api_keys.push(ApiKey {
            key: Some("a-key-of-alice-0123".into()),
            user: "alice".into(),
            ..ApiKey::default()
        });
        config.agent.kind = "adk".into();
        config.agent.base_url = Some("http://bridge:p4ssw0rd!@adk.internal:8000/x".into());
        let headers = r#"{"authorization": "Bearer to\"ken-12345678", "x-short": "abc"}"#;
        config.agent.headers = serde_json::from_str(headers).unwrap();
        let database = "postgres://me:p%40ss-of-postgres@db/x?password=other-pass-123";
        config.store.url = Some(database.to_owned());
        let hidden = hidden_of(&config);
        let cases = [
            ("wrong: p@ss-of-postgres", "wrong: [hidden]"),
            (
                "postgres://me:p%40ss-of-postgres@db",
                "postgres://me:[hidden]@db",
            ),
            ("password=other-pass-123", "password=[hidden]"),
            ("nothing to hide, alice: abc", "nothing to hide, alice: abc"),
            ("key=a-key-of-alice-0123.", "key=[hidden]."),
            ("Bearer to\"ken-12345678", "[hidden]"),
            ("bearer to\"ken-12345678", "bearer [hidden]"),
            (r#"{"a":"Bearer to\"ken-12345678"}"#, r#"{"a":"[hidden]"}"#),
            ("http://bridge:p4ssw0rd!@adk", "http://[hidden]@adk"),
            ("Basic YnJpZGdlOnA0c3N3MHJkIQ==", "Basic [hidden]"),
        ];
        for (text, shown) in cases {
            assert_eq!(hidden.hide(text), shown);
        }
    }

    #[test]
    fn every_agent_has_secrets() {
        let mut config = Config::default();
        for (id, port) in [("one", 8001), ("two", 8002)] {
            let headers = format!(r#"{{"authorization": "Bearer token-of-{id}-123"}}"#);
            config.agents.push(Agent {
                kind: "adk".into(),
                id: Some(id.into()),
                base_url: Some(format!("http://u:password-{id}@adk:{port}")),
                headers: serde_json::from_str(&headers).unwrap(),
                ..Agent::default()
            });
        }
        let hidden = hidden_of(&config);
        for id in ["one", "two"] {
            let said = format!("token-of-{id}-123 and password-{id}.");
            assert_eq!(hidden.hide(&said), "[hidden] and [hidden].");
        }
        assert_eq!(addresses_of(&config), ["adk:8001", "adk:8002"]);
    }

    #[test]
    fn the_address_of_an_agent_is_what_no_text_has_by_chance() {
        let hidden = |url: &str| {
            let mut config = Config::default();
            config.agent.kind = "adk".into();
            config.agent.base_url = Some(url.to_owned());
            addresses_of(&config)
        };
        for (url, addresses) in [
            ("http://127.0.0.1:8000", vec!["127.0.0.1:8000"]),
            ("http://localhost:8000/x", vec!["localhost:8000"]),
            ("http://localhost", vec![]),
            ("http://u:p@adk:80/", vec!["adk:80"]),
            ("http://[::1]:8000", vec!["[::1]:8000"]),
            ("http://[fd00::1]/", vec!["[fd00::1]"]),
            ("https://adk.example?x", vec!["adk.example"]),
            ("http://10.0.0.7:8000", vec!["10.0.0.7", "10.0.0.7:8000"]),
        ] {
            assert_eq!(hidden(url), addresses, "{url}");
        }
        let mut google = Config::default();
        google.agent.kind = "gemini".into();
        assert!(addresses_of(&google).is_empty());
    }
}
