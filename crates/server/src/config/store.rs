//! `[store]`: where chats are kept.

use serde::{Deserialize, Serialize};

use super::ConfigError;

/// How many connections to PostgreSQL a process has at most: statements are short, and a server commonly allows 100.
const CONNECTIONS: usize = 16;

#[derive(Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// `sqlite:PATH`, or `postgres://…` for several replicas; by default `adk-bridge.db` in the data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// How many connections to PostgreSQL there are at most, besides one for signs of life.
    pub connections: usize,
    /// Whether PostgreSQL prepares a statement once for a connection; found out if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared_statements: Option<bool>,
}

impl Store {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.connections == 0 {
            let problem = "must be greater than 0";
            return Err(ConfigError::value("store.connections", problem));
        }
        Ok(())
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: None,
            connections: CONNECTIONS,
            prepared_statements: None,
        }
    }
}

/// Never prints the URL, which may hold a password.
impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Store")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}
