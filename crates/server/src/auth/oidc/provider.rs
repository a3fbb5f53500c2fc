//! One provider of the configuration: its keys, whom its tokens are for, and who its users are.

use std::collections::BTreeSet;
use std::sync::Arc;

use adk_bridge_protocol::time::Timestamp;

use super::{KeySource, Known, Problem, checked};
use crate::auth::claim_mapping::ClaimMapping;
use crate::auth::jwt::{Algorithm, Claims, Expected, Unverified};
use crate::config::{ConfigError, Oidc};

/// A provider whose tokens are taken, or with which users log in, or both.
#[derive(Debug)]
pub(in crate::auth) struct Provider {
    /// What the ids of its users begin with.
    pub(in crate::auth) name: String,
    pub(in crate::auth) issuer: String,
    /// Whom its tokens have to be for; none are taken if this is empty.
    pub(in crate::auth) audience: Vec<String>,
    pub(in crate::auth) keys: Arc<KeySource>,
    pub(in crate::auth) mapping: ClaimMapping,
    /// What the bridge is to it, if users log in with it.
    pub(in crate::auth) client: Option<Client>,
    algorithms: Vec<Algorithm>,
}

/// What the bridge is to a provider.
#[derive(Clone)]
pub(in crate::auth) struct Client {
    pub(in crate::auth) id: String,
    pub(in crate::auth) secret: Option<String>,
    pub(in crate::auth) scopes: String,
}

impl Provider {
    /// `kept` are the claims that some agent needs, `known` what is known of keys.
    pub(in crate::auth) fn new(
        oidc: &Oidc,
        kept: &BTreeSet<String>,
        known: &[Arc<KeySource>],
    ) -> Result<Self, ConfigError> {
        let keys = KeySource::of_issuer(&oidc.issuer, oidc.keys_max_age.0, known);
        let keys = keys.map_err(|error| {
            ConfigError::value("auth.oidc", format!("no connection can be set up: {error}"))
        })?;
        let roles = (oidc.roles_claim.as_deref(), &oidc.roles);
        Ok(Self {
            name: oidc.name(),
            issuer: oidc.issuer.clone(),
            audience: oidc.audience.clone(),
            keys,
            mapping: ClaimMapping::new(&oidc.name(), &oidc.user_claim, roles, kept),
            client: match &oidc.client_id {
                Some(id) => Some(Client {
                    id: id.clone(),
                    secret: oidc.client_secret()?,
                    scopes: oidc.scopes.join(" "),
                }),
                None => None,
            },
            algorithms: oidc.algorithms.clone(),
        })
    }

    /// What a token of this provider says, if it is good and for one of these.
    pub(in crate::auth) async fn checked<'t>(
        &self,
        token: &'t Unverified<'_>,
        audience: &[String],
        types: &[&str],
        now: Timestamp,
    ) -> Result<(&'t Claims, Arc<Known>), Problem> {
        let expected = Expected {
            issuer: Some(&self.issuer),
            audience,
            algorithms: &self.algorithms,
            types,
        };
        checked(token, &self.keys, expected, now).await
    }
}

/// Does not show the secret.
impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Client")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
