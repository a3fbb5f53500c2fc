//! `[log]` and `[telemetry]`: the form of the log, and what traces hold.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a line of the log looks like; the environment variable `RUST_LOG` sets the level.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// What traces hold. The standard variables decide whether and where they are sent, such as `OTEL_EXPORTER_OTLP_ENDPOINT`;
/// see `docs/telemetry.md`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// Whether spans hold messages, and the arguments and results of tools.
    pub content: bool,
}
