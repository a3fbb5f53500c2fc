//! Whether those who say who users are can be asked: what each publishes, or why it does not.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::oidc::{KeySource, Provider};
use crate::config::{Auth, Config, ConfigError, Oidc, Proxy};
use crate::findings::Finding;

const NO_KEYS: &str =
    "it publishes no key for RS256, ES256 or EdDSA, so that nothing it signs can be checked";

/// Asks every provider, and the proxy, for what a bridge needs of them to let users in.
pub(crate) async fn look(config: &Config) -> Vec<Finding> {
    let Auth { oidc, proxy, .. } = &config.auth;
    let mut found = join_all(oidc.iter().map(look_at_provider)).await;
    if let Some(proxy) = proxy {
        found.push(look_at_proxy(proxy).await);
    }
    found
}

async fn look_at_provider(oidc: &Oidc) -> Finding {
    let subject = format!("auth.oidc {}", oidc.name());
    let looked = async {
        let provider =
            Provider::new(oidc, &BTreeSet::new(), &[]).map_err(|error| error.to_string())?;
        let (keys, description) = provider.keys.look().await.map_err(|error| {
            format!("{error}; look whether the provider runs, and whether issuer is right")
        })?;
        if keys == 0 {
            return Err(NO_KEYS.to_owned());
        }
        let lacks = |has: bool, field| (oidc.client_id.is_some() && !has).then_some(field);
        let missing = description.and_then(|it| {
            lacks(
                it.authorization_endpoint.is_some(),
                "authorization_endpoint",
            )
            .or(lacks(it.token_endpoint.is_some(), "token_endpoint"))
        });
        match missing {
            None => Ok(keys),
            Some(field) => Err(format!(
                "its description names no {field}, so that nobody can log in with the page; correct issuer, or leave client_id \
                 out"
            )),
        }
    };
    finding(subject, looked.await)
}

async fn look_at_proxy(proxy: &Proxy) -> Finding {
    let looked = async {
        let text = |error: ConfigError| error.to_string();
        let keys = KeySource::of_keys(proxy.keys().map_err(text)?, proxy.keys_max_age.0, &[]);
        let keys = keys.map_err(|error| format!("no connection can be set up: {error}"))?;
        match keys.look().await {
            Ok((0, _)) => Err(NO_KEYS.to_owned()),
            Ok((keys, _)) => Ok(keys),
            Err(error) => Err(format!(
                "{error}; correct jwks_url, or look whether it is there"
            )),
        }
    };
    finding("auth.proxy".to_owned(), looked.await)
}

fn finding(subject: String, looked: Result<usize, String>) -> Finding {
    match looked {
        Ok(keys) => Finding::fine(subject, format!("it publishes {keys} keys")),
        Err(says) => Finding::problem(subject, says),
    }
}
