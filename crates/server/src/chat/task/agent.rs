//! Which agent answers in a chat: that of its first message, for as long as the chat exists.
//!
//! ```text
//!   loaded, no message yet ──▶ Free ── first message stored, or speech ──▶ Kept ◀── loaded, its agent is there
//!                                                                           ▲
//!   loaded, its agent is not there ──▶ Gone ── the agent is back ───────────┘
//! ```

use std::sync::Arc;

use crate::agent_list::Agents;
use crate::chat::context::AgentOfChat;
use crate::chat::error::ChatError;
use crate::chat::task::Task;
use crate::store::ChatOverview;

impl Task {
    /// Gives a chat that is being loaded its agent.
    pub(super) async fn find_agent(&mut self, stored: &ChatOverview) -> Result<(), ChatError> {
        let agents = self.context.agents.clone();
        let id = match &stored.agent {
            Some(id) => id.clone(),
            // The next message sets it.
            None if stored.size.messages == 0 => return Ok(()),
            // Older than the column.
            None => agents.default_or_look().await?.id().to_owned(),
        };
        match agents.find_or_look(&id).await {
            Some(agent) => {
                self.set_agent(AgentOfChat::Kept(agent));
                Ok(())
            }
            None => {
                self.set_agent(AgentOfChat::Gone { id: id.clone() });
                agents.may_be_away(&id)?;
                Err(ChatError::AgentGone { id })
            }
        }
    }

    /// Checks that a request is for the agent of the chat, or takes the agent that it names, if none has answered yet.
    pub(super) async fn choose_agent(&mut self, wanted: Option<&str>) -> Result<(), ChatError> {
        let agents = self.context.agents.clone();
        let current = self.context.agent_of_chat();
        let own = match &current {
            AgentOfChat::Free(_) => {
                let agent = match wanted {
                    Some(id) => match agents.find_or_look(id).await {
                        Some(agent) => agent,
                        None => return Err(unknown(&agents, id)),
                    },
                    None => agents.default_or_look().await?,
                };
                self.set_agent(AgentOfChat::Free(agent));
                return Ok(());
            }
            AgentOfChat::Kept(agent) => agent.id(),
            AgentOfChat::Gone { id } => id,
        };
        if let Some(id) = wanted.filter(|id| *id != own) {
            return Err(match agents.find_or_look(id).await {
                Some(_) => ChatError::OtherAgent {
                    own: own.to_owned(),
                    wanted: id.to_owned(),
                },
                None => unknown(&agents, id),
            });
        }
        let Some(agent) = agents.find_or_look(own).await else {
            agents.may_be_away(own)?;
            return Err(ChatError::AgentGone { id: own.to_owned() });
        };
        let is_other = match &current {
            // Another configuration may have made it again; what has begun ends with the one that began it.
            AgentOfChat::Kept(known) => !Arc::ptr_eq(known, &agent) && !self.engine.is_unfinished(),
            _ => true,
        };
        if is_other {
            self.set_agent(AgentOfChat::Kept(agent));
        }
        Ok(())
    }

    /// From here on no other agent answers in this chat.
    pub(super) fn keep_agent(&mut self) {
        self.context
            .set_agent(AgentOfChat::Kept(self.context.served()));
    }

    fn set_agent(&mut self, agent: AgentOfChat) {
        self.context.set_agent(agent);
        // Those of a chat that is loaded are read after its agent is known.
        self.context.release_declared_tools();
        self.engine.follow_agent();
    }
}

fn unknown(agents: &Agents, id: &str) -> ChatError {
    match agents.may_be_away(id) {
        Ok(()) => ChatError::UnknownAgent { id: id.to_owned() },
        Err(away) => away.into(),
    }
}
