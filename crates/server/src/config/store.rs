//! `[store]`: where chats are kept.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, ConfigError};
use crate::store::sqlite::DATABASE;

/// How many connections to PostgreSQL a process has at most: statements are short, and a server commonly allows 100.
const CONNECTIONS: usize = 16;

/// Does not quote the URL: that of another database may hold a password.
const NO_DATABASE: &str = "this is not the URL of a database; write sqlite:PATH or postgres://…";

/// The database, in which chats are kept.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// `"sqlite:PATH"`, or `"postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=verify-full"`: a PostgreSQL database (version 13 or
    /// newer), which several replicas can share (`[cluster]`), with everything in its schema `adk_bridge`. By default
    /// `adk-bridge.db` in the data directory. The environment variable of this key, or `PGPASSWORD`, keeps the password out of
    /// the file. `adk-bridge migrate-store DATA-DIRECTORY` moves a SQLite database there. A database that knows none of the files
    /// in the data directory is refused, so that a wrong name deletes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// How many connections to PostgreSQL this process may have, not counting one for signs of life.
    #[schemars(range(min = 1))]
    pub connections: usize,
    /// Whether PostgreSQL prepares a statement once for a connection. A pooler in transaction mode, such as pgbouncer before
    /// 1.21, does not support that. By default the bridge detects whether there is one; a statement then takes more round
    /// trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared_statements: Option<bool>,
}

impl Store {
    pub(super) fn check(&self) -> Vec<ConfigError> {
        let mut problems = Vec::new();
        if self.connections == 0 {
            let problem = "must be greater than 0";
            problems.push(ConfigError::value("store.connections", problem));
        }
        let url = self.url.as_deref().unwrap_or("sqlite:");
        let known = ["sqlite:", "postgres://", "postgresql://"];
        if !known.iter().any(|scheme| url.starts_with(scheme)) {
            problems.push(ConfigError::value("store.url", NO_DATABASE));
        }
        problems
    }
}

impl Config {
    /// The SQLite database that the configuration names.
    pub(crate) fn sqlite_path(&self, data_dir: &Path) -> Result<PathBuf, ConfigError> {
        let Some(url) = self.store.url.as_deref() else {
            return Ok(data_dir.join(DATABASE));
        };
        match url.strip_prefix("sqlite:") {
            Some(path) => Ok(PathBuf::from(path)),
            None => Err(ConfigError::value("store.url", NO_DATABASE)),
        }
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
