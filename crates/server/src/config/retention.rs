//! `[retention]`: how long things are kept.

use serde::{Deserialize, Serialize};

use super::{ConfigError, Span};

/// What has no age is kept until somebody deletes it.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// How long a chat is kept after its last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chats: Option<Span>,
    /// How long a file is kept, while its chat stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Span>,
    /// How long what was spoken is kept, while the words stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recordings: Option<Span>,
    /// How long rows of the audit are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<Span>,
    /// How long it is kept what users have used of agents on which day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Span>,
}

impl Retention {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        for (key, age) in [
            ("retention.chats", self.chats),
            ("retention.files", self.files),
            ("retention.recordings", self.recordings),
            ("retention.audit", self.audit),
            ("retention.usage", self.usage),
        ] {
            if age.is_some_and(|age| age.0.is_zero()) {
                let problem = "must be greater than 0s; leave the key out to keep everything";
                return Err(ConfigError::value(key, problem));
            }
        }
        Ok(())
    }
}
