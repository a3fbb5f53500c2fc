//! From the code of a provider to its user: the ID token, and what the provider says of the user if the token says too little.

use serde::Deserialize;
use serde_json::{Map, Value};
use url::{Url, form_urlencoded};

use super::VIA;
use super::attempt::Attempt;
use crate::auth::Identity;
use crate::auth::claim_mapping::complete;
use crate::auth::jwt::{Claims, TokenError, Unverified};
use crate::auth::oidc::remote::{fetch, host_of};
use crate::auth::oidc::{Client, Problem, Provider, RemoteError};
use crate::chat::now;

/// Types that an ID token may have.
const TYPES: [&str; 1] = ["jwt"];

/// What a token endpoint answers.
#[derive(Deserialize)]
pub(super) struct Tokens {
    pub(super) id_token: String,
    #[serde(default)]
    access_token: String,
}

/// The user of a login, what is known of the user, and the ID token that says so.
pub(super) async fn user_of(
    provider: &Provider,
    attempt: &Attempt,
    code: &str,
) -> Result<(Identity, Claims, String), Problem> {
    let client = provider.client.as_ref().ok_or(TokenError::Party)?;
    let Tokens {
        id_token,
        access_token,
    } = exchanged(provider, client, attempt, code).await?;
    let token = Unverified::read(&id_token)?;
    let audience = [client.id.clone()];
    let (claims, known) = provider.checked(&token, &audience, &TYPES, now()).await?;
    check(claims, client, attempt)?;
    let mut claims = claims.clone();
    let userinfo = known.description.as_ref();
    let userinfo = userinfo.and_then(|it| it.userinfo_endpoint.as_ref());
    if let (false, Some(url)) = (provider.mapping.is_complete(&claims), userinfo) {
        match more_of(provider, url, &access_token, &claims).await {
            Ok(more) => complete(&mut claims, more),
            // A claim that is needed and missing is missed below.
            Err(error) => tracing::warn!("{} says no more of a user: {error}", provider.name),
        }
    }
    let identity = provider.mapping.identity(&claims, VIA)?;
    Ok((identity, claims, id_token))
}

fn check(claims: &Claims, client: &Client, attempt: &Attempt) -> Result<(), TokenError> {
    if claims.text("nonce") != Some(attempt.nonce.as_str()) {
        return Err(TokenError::Nonce);
    }
    // A token for several must say for whom it was made.
    match claims.0.get("azp").map(Value::as_str) {
        Some(party) if party != Some(&client.id) => Err(TokenError::Party),
        None if claims.audiences().len() > 1 => Err(TokenError::Party),
        _ => Ok(()),
    }
}

async fn exchanged(
    provider: &Provider,
    client: &Client,
    attempt: &Attempt,
    code: &str,
) -> Result<Tokens, Problem> {
    let known = provider.keys.known().await?;
    let description = known.description.as_ref();
    let missing = || RemoteError::Unreadable {
        host: provider.name.clone(),
        expected: "a description with a token_endpoint",
    };
    let description = description.ok_or_else(missing)?;
    let url = description.token_endpoint.as_ref().ok_or_else(missing)?;
    let mut form = vec![
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", &attempt.redirect_uri),
        ("code_verifier", &attempt.verifier),
        ("client_id", &client.id),
    ];
    let mut request = provider.keys.client().post(url.clone());
    let methods = &description.token_endpoint_auth_methods_supported;
    // The usual way where the provider names none.
    let takes_header = (methods.as_ref())
        .is_none_or(|methods| methods.iter().any(|it| it == "client_secret_basic"));
    match &client.secret {
        Some(secret) if takes_header => {
            request = request.basic_auth(encoded(&client.id), Some(encoded(secret)));
        }
        Some(secret) => form.push(("client_secret", secret)),
        None => {}
    }
    let body = fetch(request.form(&form), url).await?;
    let tokens = serde_json::from_slice(&body).map_err(|_| RemoteError::Unreadable {
        host: host_of(url),
        expected: "an ID token",
    })?;
    Ok(tokens)
}

/// What the provider says of the user besides what its token does.
async fn more_of(
    provider: &Provider,
    url: &Url,
    access_token: &str,
    claims: &Claims,
) -> Result<Map<String, Value>, RemoteError> {
    let request = provider.keys.client().get(url.clone());
    let body = fetch(request.bearer_auth(access_token), url).await?;
    more_in(&body, claims).ok_or_else(|| RemoteError::Unreadable {
        host: host_of(url),
        expected: "what is known of the same user",
    })
}

/// What an answer says of the same user: it may be of somebody else.
pub(super) fn more_in(body: &[u8], claims: &Claims) -> Option<Map<String, Value>> {
    let more: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let more = Claims(more);
    let is_same = more.text("sub").is_some() && more.text("sub") == claims.text("sub");
    is_same.then_some(more.0)
}

/// As OAuth wants names and passwords in a header.
fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
