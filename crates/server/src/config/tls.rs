//! `[tls]`: whom the bridge trusts besides the well-known certificate authorities.

use std::io::Read as _;
use std::path::PathBuf;

use adk_bridge_agents::trust::Authorities;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// All authorities of the web are less than a megabyte.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Which servers the bridge trusts when it connects to them over TLS.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// A file with certificates of authorities in PEM, such as a company's own, that are trusted in addition to the well-known
    /// ones. It holds for all connections to agents, models, MCP servers, identity providers, collectors of spans and buckets;
    /// PostgreSQL has `sslrootcert` in `store.url`, and Google's libraries for tokens know the well-known ones only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ca_file: Option<PathBuf>,
}

impl Tls {
    /// From here on, the process trusts the authorities of the file.
    pub(crate) fn trust(&self) -> Result<(), ConfigError> {
        let Some(path) = &self.ca_file else {
            return Ok(());
        };
        let bad = |problem: String| {
            let problem = format!("{} cannot be used: {problem}", path.display());
            ConfigError::value("tls.ca_file", problem)
        };
        let file = std::fs::File::open(path).map_err(|error| bad(error.to_string()))?;
        let mut pem = Vec::new();
        let mut limited = file.take(MAX_BYTES);
        let read = limited.read_to_end(&mut pem);
        read.map_err(|error| bad(error.to_string()))?;
        let authorities = Authorities::read(&pem).map_err(|error| bad(error.to_string()))?;
        authorities.add();
        Ok(())
    }
}
