//! The policy of one chat's replies: the rules for all chats, and how much room this chat has left.

use std::sync::Arc;

use adk_bridge_protocol::reply::{Limits, Policy, Runner, ToolRule};

use super::toolbox::Toolbox;

/// The rules for the tools of the agent, and for the length of an answer in this chat.
pub(super) struct ChatPolicy {
    tools: Arc<Toolbox>,
    room: usize,
}

impl ChatPolicy {
    pub(super) fn new(tools: Arc<Toolbox>) -> Self {
        let room = usize::MAX;
        Self { tools, room }
    }

    /// Takes the rules of another agent; the room stays.
    pub(super) fn use_tools(&mut self, tools: Arc<Toolbox>) {
        self.tools = tools;
    }

    /// Limits answers to the room that the chat has left.
    pub(super) fn limit_answer(&mut self, bytes: usize) {
        self.room = bytes;
    }
}

impl Policy for ChatPolicy {
    fn runner(&self) -> Runner {
        self.tools.runner()
    }

    fn tool(&self, name: &str) -> Option<ToolRule> {
        self.tools.tool(name)
    }

    fn limits(&self) -> Limits {
        let limits = self.tools.limits();
        Limits {
            max_answer_bytes: limits.max_answer_bytes.min(self.room),
            ..limits
        }
    }
}
