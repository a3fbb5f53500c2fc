//! A place in Vertex AI: `{ project = "…", location = "…" }`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Agent, ConfigError};

/// Where in Vertex AI the model is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vertex {
    /// The project, as Google Cloud names it.
    pub project: String,
    /// The location, such as `"us-central1"`, `"eu"` or `"global"`.
    pub location: String,
}

impl Vertex {
    /// Where Google serves the models of this location.
    pub fn url(&self) -> String {
        match self.location.as_str() {
            "global" => "https://aiplatform.googleapis.com".to_owned(),
            // Places that span several regions.
            location @ ("us" | "eu") => format!("https://aiplatform.{location}.rep.googleapis.com"),
            location => format!("https://{location}-aiplatform.googleapis.com"),
        }
    }

    pub(super) fn check(&self, agent: &Agent) -> Vec<ConfigError> {
        // Both become parts of an address.
        let is_name = |name: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte);
            !name.is_empty() && name.bytes().all(is_part)
        };
        let problem = if agent.kind != "gemini" {
            "only kind = \"gemini\" has models in Vertex AI; remove this key"
        } else if !is_name(&self.project) || !is_name(&self.location) {
            "write { project = \"my-project\", location = \"us-central1\" }, as Google Cloud names them"
        } else {
            return Vec::new();
        };
        vec![ConfigError::value("agent.vertex", problem)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_location_has_an_address() {
        for (location, url) in [
            (
                "us-central1",
                "https://us-central1-aiplatform.googleapis.com",
            ),
            ("global", "https://aiplatform.googleapis.com"),
            ("eu", "https://aiplatform.eu.rep.googleapis.com"),
        ] {
            let vertex = Vertex {
                project: "p".into(),
                location: location.into(),
            };
            assert_eq!(vertex.url(), url);
        }
    }
}
