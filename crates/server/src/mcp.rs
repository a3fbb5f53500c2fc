//! The MCP servers of the configuration: started with the bridge, and offered to the agents that it runs.

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_agents::mcp::McpServer;
use adk_bridge_agents::tool::ToolSource as _;
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::chat::toolbox::OfferedSource;
use crate::config::{Config, ConfigError};

/// How long the bridge waits for them when it starts; later ones are offered when they are there.
const START_TIME: Duration = Duration::from_secs(10);

/// All MCP servers.
#[derive(Default)]
pub struct McpServers(Vec<Arc<McpServer>>);

impl McpServers {
    /// Starts those of the configuration, and waits a moment for them. What cannot be started at all is said by name.
    pub(crate) async fn start(config: &Config) -> Result<Self, ConfigError> {
        let mut servers = Vec::new();
        for server in &config.tools.mcp {
            let started = McpServer::start(server.settings());
            let started = started.map_err(|error| ConfigError::OfMcp {
                name: server.name.clone(),
                problem: error.to_string(),
            })?;
            servers.push(Arc::new(started));
        }
        let tried = join_all(servers.iter().map(|server| server.tried()));
        if timeout(START_TIME, tried).await.is_err() {
            tracing::warn!(
                "some MCP servers are still starting; their tools are offered when they are there"
            );
        }
        Ok(Self(servers))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tools that an agent is offered: all, unless `agent.tools` names some. `NAME__*` stands for all of a server.
    pub(crate) fn offered(&self, config: &Config) -> Vec<OfferedSource> {
        let mut offered = Vec::new();
        for server in &self.0 {
            let of_server = |names: &[String]| -> Vec<String> {
                let own = names
                    .iter()
                    .filter(|name| name.starts_with(server.prefix()));
                own.cloned().collect()
            };
            let named = config.agent.tools.as_deref().map(of_server);
            let all = format!("{}*", server.prefix());
            let named = named.filter(|names| !names.contains(&all));
            if named.as_ref().is_some_and(Vec::is_empty) {
                continue;
            }
            offered.push(OfferedSource {
                source: server.clone(),
                named,
                approval: of_server(&config.approval.tools),
            });
        }
        offered
    }

    /// The names that are not those of a server's tools.
    pub(crate) fn without_own(&self, names: &[String]) -> Vec<String> {
        let is_own = |name: &str| {
            self.0
                .iter()
                .any(|server| name.starts_with(server.prefix()))
        };
        let others = names.iter().filter(|name| !is_own(name));
        others.cloned().collect()
    }

    /// Why some of them are not available.
    pub(crate) fn problems(&self) -> Vec<String> {
        let problems = self.0.iter();
        problems.filter_map(|server| server.problem()).collect()
    }

    /// Closes the connections, and lets programs end in order.
    pub(crate) async fn stop(&self) {
        join_all(self.0.iter().map(|server| server.stop())).await;
    }
}
