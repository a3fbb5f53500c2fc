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
    /// Who runs the tools.
    fn runner(&self) -> Runner;
    /// The rule for one tool, or nothing if it is unknown.
    fn tool(&self, name: &str) -> Option<ToolRule>;
    /// How long and how much.
    fn limits(&self) -> Limits;
}

/// What is known of a tool before it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolRule {
    /// Where it runs.
    pub runs_on: RunsOn,
    /// Whether a human is asked first.
    pub needs_approval: bool,
    /// Whether it may run again after a crash.
    pub idempotent: bool,
}

/// How long a reply waits, and how much it may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long a human may take to decide.
    pub approval_timeout: Duration,
    /// How long a front end may take to run a tool.
    pub client_timeout: Duration,
    /// How often the model is asked in one reply.
    pub max_steps: u32,
    /// How much one answer may hold.
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
