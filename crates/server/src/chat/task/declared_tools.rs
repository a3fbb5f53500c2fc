//! How a chat takes the tools that its page declares.

use std::sync::Arc;

use adk_bridge_agents::agent::MemoryModel;
use adk_bridge_agents::tool::ToolSpec;

use super::Task;
use crate::chat::declared_tools::{self, DeclaredToolsError, declared};
use crate::chat::error::ChatError;
use crate::chat::now;
use crate::chat::request::ChatRequest;
use crate::store::StoreError;

impl Task {
    /// The tools that a request declares, if the agent of the chat takes them.
    pub(super) fn new_tools(
        &self,
        request: &ChatRequest,
    ) -> Result<Option<Vec<ToolSpec>>, DeclaredToolsError> {
        let Some(tools) = declared(request.handed_in.tools.as_ref())? else {
            return Ok(None);
        };
        let agent = self.context.served();
        if agent.agent().memory() == MemoryModel::Session {
            let agent = agent.id().to_owned();
            return match tools.is_empty() {
                true => Ok(None),
                false => Err(DeclaredToolsError::NotTaken { agent }),
            };
        }
        match tools.iter().find(|tool| agent.tools().may_have(&tool.name)) {
            Some(taken) => Err(DeclaredToolsError::Taken {
                name: taken.name.clone(),
            }),
            None => Ok(Some(tools)),
        }
    }

    /// Takes the tools that a request declares. They are stored before the model can call them.
    pub(super) async fn declare_tools(&mut self, request: &ChatRequest) -> Result<(), ChatError> {
        let Some(tools) = self.new_tools(request)? else {
            return Ok(());
        };
        if self.context.declared_tools() == tools {
            return Ok(());
        }
        let (store, chat) = (&self.context.store, self.context.chat());
        if !self.conversation.is_known() {
            // They belong to a chat, which the first message would create.
            store.create_chat(chat, now()).await?;
        }
        declared_tools::store(&**store, chat, &tools).await?;
        self.use_declared_tools(tools);
        Ok(())
    }

    /// Reads the tools of a chat that is being loaded.
    pub(super) async fn load_declared_tools(&mut self) -> Result<(), StoreError> {
        if self.context.agent().memory() == MemoryModel::Stateless {
            let (store, chat) = (&self.context.store, self.context.chat());
            let tools = declared_tools::load(&**store, chat).await?;
            self.use_declared_tools(tools);
        }
        Ok(())
    }

    fn use_declared_tools(&mut self, mut tools: Vec<ToolSpec>) {
        let agent = self.context.served();
        // The agent may have got tools since.
        tools.retain(|tool| !agent.tools().may_have(&tool.name));
        let toolbox = agent.tools().with_client_tools(&tools);
        self.context.set_declared_tools(tools, Arc::new(toolbox));
        self.engine.follow_agent();
    }
}
