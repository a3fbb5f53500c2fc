//! The policy of a reply: who runs its tools, which of them need approval, and how long everything may take.

use std::time::Duration;

use crate::calls::RunsOn;

/// Who runs the tools of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// The bridge: an agent's run is one model call.
    Bridge,
    /// A remote ADK server: a run continues until it needs a client.
    Remote,
}

/// The rules for the tools of an agent.
pub trait Policy: Sync {
    fn runner(&self) -> Runner;
    /// The rule for one tool, or nothing if it is unknown.
    fn tool(&self, name: &str) -> Option<ToolRule>;
    fn limits(&self) -> Limits;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolRule {
    pub runs_on: RunsOn,
    pub needs_approval: bool,
    pub idempotent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub approval_timeout: Duration,
    pub client_timeout: Duration,
    pub max_steps: u32,
    pub max_answer_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Long enough to read a request, short enough that nobody approves a forgotten one.
            approval_timeout: Duration::from_secs(5 * 60),
            // Leaves time for a browser's own permission prompt.
            client_timeout: Duration::from_secs(2 * 60),
            // A model without an answer by then is going round in circles.
            max_steps: 25,
            // How much one reader may make the server hold.
            max_answer_bytes: 16 * 1024 * 1024,
        }
    }
}
