//! `[retention]`: how long things are kept.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigError, Span};

/// How long things are kept, such as `"90d"`; without an age, until somebody deletes them. The bridge checks every ten minutes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// How long a chat is kept after its last message, with its files. One that is in use stays, and so does one that waits for
    /// an answer, until that has come or the question has expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-at-least" = "1ms"))]
    pub chats: Option<Span>,
    /// How long files are kept, while their chat and its words stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-at-least" = "1ms"))]
    pub files: Option<Span>,
    /// How long recordings of what was spoken are kept, while the words stay. WAV files without a name count as recordings.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-at-least" = "1ms"))]
    pub recordings: Option<Span>,
    /// How long rows of the audit are kept, which outlive their chats. What is left can still be verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-at-least" = "1ms"))]
    pub audit: Option<Span>,
    /// How long the daily usage of users is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-at-least" = "1ms"))]
    pub usage: Option<Span>,
}

impl Retention {
    pub(crate) fn keeps_everything(&self) -> bool {
        let Self {
            chats,
            files,
            recordings,
            audit,
            usage,
        } = self;
        [chats, files, recordings, audit, usage]
            .iter()
            .all(|age| age.is_none())
    }

    pub(super) fn check(&self) -> Vec<ConfigError> {
        let ages = [
            ("retention.chats", self.chats),
            ("retention.files", self.files),
            ("retention.recordings", self.recordings),
            ("retention.audit", self.audit),
            ("retention.usage", self.usage),
        ];
        let empty = ages
            .iter()
            .filter(|(_, age)| age.is_some_and(|age| age.0.is_zero()));
        let problem = "must be greater than 0s; leave the key out to keep everything";
        empty
            .map(|(key, _)| ConfigError::value(key, problem))
            .collect()
    }
}
