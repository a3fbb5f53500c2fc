//! `[audit]`: how the audit proves that it is whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// A shorter key can be guessed.
const MIN_KEY_BYTES: usize = 16;

/// How the audit shows that it is complete and unchanged. Its rows are chained by hash, and sealed once a minute: `adk-bridge
/// audit verify` finds the first row that was changed or is missing. With a key, seals are signed, and whoever can only write
/// to the database cannot rebuild the audit.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Audit {
    /// The key that signs the seals of the audit: at least 16 characters, the same at all replicas, and not in the database.
    /// Keep old keys: older seals need them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The environment variable that holds the key, instead of `audit.key`, to keep it out of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
}

impl Audit {
    /// The key that signs seals, if there is one.
    pub fn signing_key(&self) -> Option<String> {
        let variable = || std::env::var(self.key_env.as_deref()?).ok();
        self.key.clone().or_else(variable)
    }

    pub(super) fn check(&self) -> Vec<ConfigError> {
        let mut problems = Vec::new();
        let mut bad = |key, problem: &str| problems.push(ConfigError::value(key, problem));
        if self.key.is_some() && self.key_env.is_some() {
            bad("audit.key_env", "set this key or audit.key, but not both");
        }
        let key = self.signing_key();
        if let (Some(variable), None) = (&self.key_env, &key) {
            let problem = format!("the environment variable {variable} is not set");
            bad("audit.key_env", &problem);
        }
        if key.is_some_and(|key| key.len() < MIN_KEY_BYTES) {
            bad("audit.key", "a key must have at least 16 characters");
        }
        problems
    }
}

/// Never prints the key.
impl std::fmt::Debug for Audit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Audit").finish_non_exhaustive()
    }
}
