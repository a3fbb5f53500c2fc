//! Google's ID and access tokens, from the credentials that Google's own tools find in the environment.
//!
//! | credentials | access token | ID token |
//! |---|---|---|
//! | none: the metadata server of Cloud Run, GKE or a virtual machine | asked here | asked here |
//! | the key of a service account | `google-cloud-auth` | signed by `google-cloud-auth`, exchanged here |
//! | another identity that acts as a service account (workload identity federation, impersonation) | `google-cloud-auth` | its access token, exchanged here |
//! | `gcloud auth application-default login` | `google-cloud-auth` | – |
//!
//! The library gives no ID token for some of these, and sends requests for others to fixed addresses only; both parts are
//! one request each.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use google_cloud_auth::credentials::{
    AccessTokenCredentials, external_account, impersonated, service_account, user_account,
};
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{CLOUD_PLATFORM, Fetched, LONGEST_LIFE, Life, TokenError, UNKNOWN_LIFE, life_of};
use crate::error::shortened;
use crate::loopback::is_loopback;
use crate::secrets;

/// Names the file with credentials, and the metadata server, for all of Google's tools.
const CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";
const METADATA_HOST: &str = "GCE_METADATA_HOST";
const METADATA: &str = "metadata.google.internal";
const ACCOUNT: &str = "computeMetadata/v1/instance/service-accounts/default";
/// How long a signed request for a token is valid: Google accepts at most this.
const ASSERTION_LIFE: Duration = Duration::from_secs(3600);
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Where service accounts get their tokens unless their key says otherwise.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// A connection to a token server that is not open by then never will be.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer of a token server that is read; tokens have a few KB.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Fetches one kind of token.
pub(super) struct Google {
    wanted: Wanted,
    /// What the library knows of the credentials; it renews access tokens itself.
    library: Option<AccessTokenCredentials>,
}

enum Wanted {
    IdToken { audience: String },
    AccessToken { scopes: Vec<String> },
}

/// Another identity that gets tokens of a service account.
struct Impersonation {
    /// The address of its method `generateIdToken`.
    url: String,
    source: AccessTokenCredentials,
    delegates: Value,
}

impl Google {
    pub(super) fn id_token(audience: String) -> Self {
        Self {
            wanted: Wanted::IdToken { audience },
            library: None,
        }
    }

    /// Without scopes: that of Google Cloud.
    pub(super) fn access_token(mut scopes: Vec<String>) -> Self {
        if scopes.is_empty() {
            scopes.push(CLOUD_PLATFORM.to_owned());
        }
        Self {
            wanted: Wanted::AccessToken { scopes },
            library: None,
        }
    }

    pub(super) fn begin_again(&mut self) {
        self.library = None;
    }

    pub(super) async fn fetch(&mut self) -> Result<Fetched, TokenError> {
        match &self.wanted {
            Wanted::AccessToken { scopes } => {
                if self.library.is_none() {
                    let Some(found) = credentials().await? else {
                        return metadata_access_token(scopes).await;
                    };
                    self.library = Some(access_credentials(&found, scopes)?);
                }
                let Some(library) = self.library.clone() else {
                    return metadata_access_token(scopes).await;
                };
                Ok(Fetched {
                    token: of_library(library).await?,
                    life: Life::OfSource,
                })
            }
            Wanted::IdToken { audience } => {
                let token = match credentials().await? {
                    None => metadata_id_token(audience).await?,
                    Some(found) => match kind_of(&found) {
                        "service_account" => exchanged(&found, audience).await?,
                        _ => generated(&found, audience).await?,
                    },
                };
                Ok(Fetched {
                    life: Life::For(life_of(&token)),
                    token,
                })
            }
        }
    }
}

/// The file with credentials: the one that the environment names, or the one that `gcloud` writes.
async fn credentials() -> Result<Option<Value>, TokenError> {
    let named = std::env::var_os(CREDENTIALS).filter(|path| !path.is_empty());
    let (path, is_named) = match named {
        Some(path) => (PathBuf::from(path), true),
        None => match well_known() {
            Some(path) => (path, false),
            None => return Ok(None),
        },
    };
    let text = match tokio::fs::read(&path).await {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_named => return Ok(None),
        Err(error) => {
            return Err(TokenError::permanent(format!(
                "the credentials in {} cannot be read: {error}; correct {CREDENTIALS}",
                path.display()
            )));
        }
    };
    let found: Option<Value> = serde_json::from_slice(&text).ok();
    match found.filter(|found| found.get("type").is_some_and(Value::is_string)) {
        Some(found) => Ok(Some(found)),
        None => Err(TokenError::permanent(format!(
            "{} holds no credentials of Google: JSON with a `type` is expected; correct {CREDENTIALS}",
            path.display()
        ))),
    }
}

/// Where `gcloud auth application-default login` puts credentials.
fn well_known() -> Option<PathBuf> {
    let configured = std::env::var_os("CLOUDSDK_CONFIG").map(PathBuf::from);
    let directory = match (configured, cfg!(windows)) {
        (Some(directory), _) => directory,
        (None, true) => PathBuf::from(std::env::var_os("APPDATA")?).join("gcloud"),
        (None, false) => PathBuf::from(std::env::var_os("HOME")?).join(".config/gcloud"),
    };
    Some(directory.join("application_default_credentials.json"))
}

fn kind_of(credentials: &Value) -> &str {
    let kind = credentials.get("type").and_then(Value::as_str);
    kind.unwrap_or_default()
}

/// Access tokens of any credentials.
fn access_credentials(
    found: &Value,
    scopes: &[String],
) -> Result<AccessTokenCredentials, TokenError> {
    use service_account::AccessSpecifier;
    // The library wants a choice, since there are several; the bridge's other connections use this one as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (own, scopes) = (found.clone(), scopes.to_vec());
    let built = match kind_of(found) {
        "service_account" => service_account::Builder::new(own)
            .with_access_specifier(AccessSpecifier::from_scopes(scopes))
            .build_access_token_credentials(),
        "external_account" => external_account::Builder::new(own)
            .with_scopes(scopes)
            .build_access_token_credentials(),
        "impersonated_service_account" => impersonated::Builder::new(own)
            .with_scopes(scopes)
            .build_access_token_credentials(),
        "authorized_user" => {
            // A login has its scopes already.
            user_account::Builder::new(own).build_access_token_credentials()
        }
        other => {
            return Err(TokenError::permanent(format!(
                "credentials of type {other:?} are not supported; use those of a service account or of workload \
                 identity federation"
            )));
        }
    };
    built.map_err(|error| {
        TokenError::permanent(format!(
            "the credentials in {CREDENTIALS} cannot be used: {}",
            shortened(&error.to_string())
        ))
    })
}

/// The library's own client panics on a machine without any root certificates.
async fn of_library(library: AccessTokenCredentials) -> Result<String, TokenError> {
    let asked = tokio::spawn(async move { library.access_token().await });
    match asked.await {
        Ok(Ok(token)) => Ok(token.token),
        Ok(Err(error)) => {
            use std::error::Error as _;
            let source = error.source().map(ToString::to_string).unwrap_or_default();
            Err(TokenError::passing(format!(
                "Google gave no token: {}",
                shortened(&format!("{error}: {source}"))
            )))
        }
        Err(_) => Err(TokenError::permanent(
            "no connection to Google can be set up; are the root certificates of this system installed (ca-certificates)?",
        )),
    }
}

async fn metadata_access_token(scopes: &[String]) -> Result<Fetched, TokenError> {
    let answer = metadata("token", &[("scopes", &scopes.join(","))]).await?;
    access_token_in(&answer)
}

/// The access token in an answer of the metadata server.
pub(super) fn access_token_in(answer: &[u8]) -> Result<Fetched, TokenError> {
    #[derive(Deserialize)]
    struct Answer {
        access_token: String,
        expires_in: Option<u64>,
    }
    let answer: Answer = serde_json::from_slice(answer)
        .map_err(|_| TokenError::passing("the metadata server's answer holds no access token"))?;
    let life = answer.expires_in.map(Duration::from_secs);
    Ok(Fetched {
        token: answer.access_token,
        life: Life::For(life.unwrap_or(UNKNOWN_LIFE).min(LONGEST_LIFE)),
    })
}

async fn metadata_id_token(audience: &str) -> Result<String, TokenError> {
    let query = [("audience", audience), ("format", "full")];
    let answer = metadata("identity", &query).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

async fn metadata(what: &str, query: &[(&str, &str)]) -> Result<Vec<u8>, TokenError> {
    let host = std::env::var(METADATA_HOST).ok();
    let host = host.filter(|host| !host.trim().is_empty());
    let host = host.as_deref().unwrap_or(METADATA);
    let url = format!("http://{host}/{ACCOUNT}/{what}");
    let url = Url::parse_with_params(&url, query).map_err(|_| {
        TokenError::permanent(format!(
            "{METADATA_HOST} is not a host: write HOST or HOST:PORT"
        ))
    })?;
    // It is a part of this machine or of its network.
    let client = client(true)?;
    let request = client.get(url).header("metadata-flavor", "Google");
    answer(request, "the metadata server").await.map_err(|mut error| {
        error.text += &format!(
            " (without {CREDENTIALS} the bridge must run on Google Cloud, with a service account)"
        );
        error
    })
}

/// An ID token for the key of a service account.
async fn exchanged(key: &Value, audience: &str) -> Result<String, TokenError> {
    let unusable = |why: String| {
        TokenError::permanent(format!(
            "the key of the service account in {CREDENTIALS} cannot be used: {}",
            shortened(&why)
        ))
    };
    let email = key.get("client_email").and_then(Value::as_str);
    let email = email.ok_or_else(|| unusable("it has no client_email".into()))?;
    let token_uri = key.get("token_uri").and_then(Value::as_str);
    let token_uri = token_uri.unwrap_or(TOKEN_URI);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let signer = service_account::Builder::new(key.clone())
        .build_signer()
        .map_err(|error| unusable(error.to_string()))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let head = json!({"alg": "RS256", "typ": "JWT", "kid": key.get("private_key_id")});
    let claims = json!({
        "iss": email, "sub": email, "aud": token_uri, "target_audience": audience,
        "iat": now, "exp": now + ASSERTION_LIFE.as_secs(),
    });
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&head), encode(&claims));
    let signature = signer.sign(signed.as_bytes()).await;
    let signature = signature.map_err(|error| unusable(error.to_string()))?;
    let assertion = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(&signature));
    // Whoever reads it can get tokens with it.
    secrets::keep_token(&assertion);
    let url = address(token_uri)?;
    let form = [("grant_type", JWT_BEARER), ("assertion", &assertion)];
    let request = client(is_loopback(&url))?.post(url).form(&form);
    id_token_in(&answer(request, "the token server").await?)
}

/// The ID token in an answer of a token server.
pub(super) fn id_token_in(answer: &[u8]) -> Result<String, TokenError> {
    #[derive(Deserialize)]
    struct Answer {
        id_token: String,
    }
    let answer: Answer = serde_json::from_slice(answer)
        .map_err(|_| TokenError::passing("the token server's answer holds no ID token"))?;
    Ok(answer.id_token)
}

/// An ID token of the service account that another identity may act as.
async fn generated(found: &Value, audience: &str) -> Result<String, TokenError> {
    let Impersonation {
        url,
        source,
        delegates,
    } = impersonation(found)?;
    let bearer = of_library(source).await?;
    let body = json!({"audience": audience, "includeEmail": true, "delegates": delegates});
    let url = address(&url)?;
    let request = client(is_loopback(&url))?
        .post(url)
        .bearer_auth(bearer)
        .header("content-type", "application/json")
        .body(body.to_string());
    generated_token_in(&answer(request, "the IAM credentials server").await?)
}

/// The ID token in an answer of the IAM credentials server.
pub(super) fn generated_token_in(answer: &[u8]) -> Result<String, TokenError> {
    #[derive(Deserialize)]
    struct Answer {
        token: String,
    }
    let answer: Answer = serde_json::from_slice(answer).map_err(|_| {
        TokenError::passing("the answer of the IAM credentials server holds no ID token")
    })?;
    Ok(answer.token)
}

fn impersonation(found: &Value) -> Result<Impersonation, TokenError> {
    let needless = "an ID token needs a service account: set service_account_impersonation_url in the credentials, or use the key \
                    of a service account";
    let url = found.get("service_account_impersonation_url");
    let url = url.and_then(Value::as_str);
    let url = url.ok_or_else(|| TokenError::permanent(needless))?;
    let url = url.replace(":generateAccessToken", ":generateIdToken");
    let scopes = [CLOUD_PLATFORM.to_owned()];
    let source = match found.get("source_credentials") {
        Some(source) => source.clone(),
        None => {
            // The identity itself, which the library would turn into the service account.
            let mut own = found.clone();
            if let Some(fields) = own.as_object_mut() {
                fields.remove("service_account_impersonation_url");
                fields.remove("service_account_impersonation");
            }
            own
        }
    };
    Ok(Impersonation {
        url,
        source: access_credentials(&source, &scopes)?,
        delegates: found.get("delegates").cloned().unwrap_or(json!([])),
    })
}

fn address(url: &str) -> Result<Url, TokenError> {
    Url::parse(url).map_err(|_| {
        TokenError::permanent(format!(
            "the credentials in {CREDENTIALS} name an address that is not a URL"
        ))
    })
}

fn client(is_near: bool) -> Result<reqwest::Client, TokenError> {
    let mut builder = crate::trust::http_client()
        .connect_timeout(CONNECT_TIMEOUT)
        // What is sent is for this server only.
        .redirect(reqwest::redirect::Policy::none());
    if is_near {
        builder = builder.no_proxy();
    }
    builder
        .build()
        .map_err(|error| TokenError::permanent(format!("no connection can be set up: {error}")))
}

/// The body of an answer, which is a token if all is well.
async fn answer(request: reqwest::RequestBuilder, who: &str) -> Result<Vec<u8>, TokenError> {
    let sent = request.send().await;
    let mut response = sent.map_err(|error| {
        let what = if error.is_connect() {
            "cannot be reached"
        } else {
            "does not answer"
        };
        TokenError::passing(format!("{who} {what}: {}", error.without_url()))
    })?;
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        if body.len() + piece.len() > MAX_ANSWER_BYTES {
            return Err(TokenError::passing(format!(
                "the answer of {who} is too long"
            )));
        }
        body.extend_from_slice(&piece);
    }
    let status = response.status();
    if status.is_success() {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body);
    Err(TokenError::passing(format!(
        "{who} refuses ({status}): {}",
        shortened(text.trim())
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_an_endless_life_is_taken() {
        let answer = format!("{{\"access_token\":\"a\",\"expires_in\":{}}}", u64::MAX);
        let fetched = access_token_in(answer.as_bytes()).unwrap();
        assert!(matches!(fetched.life, Life::For(life) if life == LONGEST_LIFE));
    }
}
