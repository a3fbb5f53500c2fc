//! `[cluster]`: what replicas on one database agree on, and what each is called.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::check::is_http;
use super::{Config, ConfigError, Span};
use crate::cluster::Peer;

/// A shorter key can be guessed.
const MIN_KEY_BYTES: usize = 16;
/// Heartbeats come every second: with a shorter lease, one that is late would make a replica dead.
const MIN_LEASE: Duration = Duration::from_secs(3);
/// As long as this, a crashed replica's chats have no owner.
const MAX_LEASE: Duration = Duration::from_secs(60);
/// The longest name: it stands in log lines and audit rows.
const MAX_NAME: usize = 100;

/// Replicas: processes with the same PostgreSQL database (`store.url`). Each chat in use belongs to one of them, and requests
/// for it are passed on to that one. What one replica does is taken over by another if it stops or dies.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// What this replica is called, in the log, the audit and `/ready`; by default the host's name and the port. No two living
    /// replicas may have the same. At most 100 letters, digits, `-`, `_`, `.` and `:`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The secret that all replicas share, at least 16 characters. It is required unless the replica can be reached from its
    /// own machine only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The environment variable that holds the secret, instead of `cluster.key`, to keep it out of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// How long a replica counts as living without a sign of life; its chats are taken over after this time. Replicas may
    /// differ in it while a new configuration replaces an old one.
    #[schemars(extend("x-at-least" = "3s", "x-at-most" = "60s"))]
    pub lease: Span,
}

impl Cluster {
    /// The secret that all replicas share, if there is one.
    pub fn shared_key(&self) -> Option<String> {
        let variable = || std::env::var(self.key_env.as_deref()?).ok();
        self.key.clone().or_else(variable)
    }

    /// The keys that are set to something.
    fn set_keys(&self) -> impl Iterator<Item = &'static str> {
        let keys = [
            ("cluster.name", self.name.is_some()),
            ("cluster.key", self.key.is_some()),
            ("cluster.key_env", self.key_env.is_some()),
            ("cluster.lease", self.lease != Self::default().lease),
        ];
        keys.into_iter().filter_map(|(key, set)| set.then_some(key))
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            name: None,
            key: None,
            key_env: None,
            lease: Span(Duration::from_secs(5)),
        }
    }
}

/// Never prints the key.
impl std::fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Cluster")
            .field("name", &self.name)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// This process as one of several replicas. The port must be known.
    pub(crate) fn replica(&self) -> Result<Peer, ConfigError> {
        let listen = self.server.listen;
        let name = (self.cluster.name.clone())
            .unwrap_or_else(|| format!("{}:{}", host_name(), listen.port()));
        let address = match &self.server.advertise {
            Some(address) => address.clone(),
            None if listen.ip().is_unspecified() => {
                return Err(ConfigError::value(
                    "server.advertise",
                    "this process listens on all addresses of its machine; write the one at which other replicas reach it, \
                     such as \"http://10.0.0.5:8080\"",
                ));
            }
            None => format!("http://{listen}"),
        };
        let address = Url::parse(&address)
            .map_err(|error| ConfigError::value("server.advertise", error.to_string()))?;
        Ok(Peer { name, address })
    }

    /// Whether the database is one that several replicas can share.
    pub fn is_shared(&self) -> bool {
        let url = self.store.url.as_deref().unwrap_or_default();
        url.starts_with("postgres://") || url.starts_with("postgresql://")
    }
}

#[cfg(unix)]
fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "replica".to_owned())
}

/// What a cluster cannot use, and a cluster where there cannot be one.
pub(super) fn check(config: &Config) -> Vec<ConfigError> {
    let mut problems = Vec::new();
    let mut bad = |key, problem: &str| problems.push(ConfigError::value(key, problem));
    let (cluster, advertise) = (&config.cluster, config.server.advertise.as_deref());
    if !config.is_shared() {
        let alone = "SQLite has one process, which others cannot join";
        if advertise.is_some() {
            bad(
                "server.advertise",
                &format!("{alone}; set store.url = \"postgres://…\", or remove this key"),
            );
        }
        for key in cluster.set_keys() {
            bad(
                key,
                &format!("{alone}; set store.url = \"postgres://…\", or remove [cluster]"),
            );
        }
        return problems;
    }
    let is_name = |name: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_allowed)
    };
    if !cluster.name.as_deref().is_none_or(is_name) {
        bad(
            "cluster.name",
            "write a name of letters, digits, '-', '_', '.' and ':', at most 100 of them",
        );
    }
    if cluster.key.is_some() && cluster.key_env.is_some() {
        bad(
            "cluster.key_env",
            "set this key or cluster.key, but not both",
        );
    }
    let key = cluster.shared_key();
    if let Some(variable) = &cluster.key_env
        && key.is_none()
    {
        bad(
            "cluster.key_env",
            &format!(
                "the environment variable {variable} is not set; set it to the key of the cluster"
            ),
        );
    }
    if key.as_ref().is_some_and(|key| key.len() < MIN_KEY_BYTES) {
        bad("cluster.key", "a key must have at least 16 characters");
    }
    if !(MIN_LEASE..=MAX_LEASE).contains(&cluster.lease.0) {
        bad("cluster.lease", "write a time between 3s and 60s");
    }
    let is_plain = |url: &str| is_http(url) && url.starts_with("http://");
    let is_bad = |url: &str| !is_plain(url) || url.contains(['?', '#', '@']);
    if advertise.is_some_and(is_bad) {
        bad(
            "server.advertise",
            "write the address at which other replicas reach this one in their own network, such as \
             \"http://10.0.0.5:8080\"",
        );
    }
    // One that is named and not set was reported.
    let is_alone = advertise.is_none() && config.server.listen.ip().is_loopback();
    if key.is_none() && cluster.key_env.is_none() && !is_alone {
        bad(
            "cluster.key",
            "replicas that pass requests on to each other share a secret; set cluster.key or cluster.key_env, the same \
             everywhere",
        );
    }
    problems
}
