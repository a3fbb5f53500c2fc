//! The tools that a server is built with: an agent is offered those that its configuration names.

use std::sync::Arc;

use adk_bridge_protocol::calls::RunsOn;

use crate::tool::{ServerTool, ToolSpec};

/// Tools by name, in the order in which they were registered.
#[derive(Default)]
pub struct ToolRegistry {
    entries: Vec<Entry>,
}

/// When an agent is offered a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Unless the configuration names other tools.
    ByDefault,
    /// Only if the configuration names it.
    WhenNamed,
}

/// The tools that an agent is offered.
#[derive(Default)]
pub struct OfferedTools {
    /// Those that run in the bridge.
    pub server: Vec<Arc<dyn ServerTool>>,
    /// Those that the front end runs.
    pub client: Vec<ToolSpec>,
}

/// Why a tool cannot be registered or offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolRegistryError {
    #[error("two tools are named {0:?}; give one of them another name")]
    Twice(String),
    #[error("there is no tool named {name:?}; {}", known(.names))]
    Unknown { name: String, names: Vec<String> },
}

struct Entry {
    tool: Tool,
    offer: Offer,
}

enum Tool {
    Server(Arc<dyn ServerTool>),
    Client(ToolSpec),
}

impl ToolRegistry {
    /// Registers a tool that runs in the bridge.
    pub fn add(
        &mut self,
        tool: Arc<dyn ServerTool>,
        offer: Offer,
    ) -> Result<(), ToolRegistryError> {
        self.insert(Tool::Server(tool), offer)
    }

    /// Registers a tool that the front end runs.
    pub fn add_client(&mut self, spec: ToolSpec, offer: Offer) -> Result<(), ToolRegistryError> {
        let runs_on = RunsOn::Client;
        self.insert(Tool::Client(ToolSpec { runs_on, ..spec }), offer)
    }

    /// The specs of all registered tools.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.entries.iter().map(|entry| entry.tool.spec())
    }

    /// The tools with these names, or those that are offered by default.
    pub fn offered(&self, named: Option<&[String]>) -> Result<OfferedTools, ToolRegistryError> {
        let is_known = |name: &&String| self.specs().any(|spec| spec.name == **name);
        if let Some(name) = named.into_iter().flatten().find(|name| !is_known(name)) {
            return Err(ToolRegistryError::Unknown {
                name: name.clone(),
                names: self.specs().map(|spec| spec.name.clone()).collect(),
            });
        }
        let mut offered = OfferedTools::default();
        for Entry { tool, offer } in &self.entries {
            let is_offered = match named {
                Some(names) => names.contains(&tool.spec().name),
                None => *offer == Offer::ByDefault,
            };
            match tool {
                _ if !is_offered => {}
                Tool::Server(tool) => offered.server.push(tool.clone()),
                Tool::Client(spec) => offered.client.push(spec.clone()),
            }
        }
        Ok(offered)
    }

    /// A tool that is offered only when named is replaced by one with the same name that is offered by default.
    fn insert(&mut self, tool: Tool, offer: Offer) -> Result<(), ToolRegistryError> {
        let name = &tool.spec().name;
        let same = |entry: &Entry| entry.tool.spec().name == *name;
        if let Some(at) = self.entries.iter().position(same) {
            match (self.entries[at].offer, offer) {
                (Offer::ByDefault, Offer::WhenNamed) => return Ok(()),
                (Offer::WhenNamed, Offer::ByDefault) => drop(self.entries.remove(at)),
                _ => return Err(ToolRegistryError::Twice(name.clone())),
            }
        }
        self.entries.push(Entry { tool, offer });
        Ok(())
    }
}

impl Tool {
    fn spec(&self) -> &ToolSpec {
        match self {
            Self::Server(tool) => tool.spec(),
            Self::Client(spec) => spec,
        }
    }
}

fn known(names: &[String]) -> String {
    match names {
        [] => "none is registered".to_owned(),
        names => format!("use one of {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use adk_bridge_protocol::calls::Outcome;
    use serde_json::json;

    use super::*;
    use crate::agent::BoxFuture;
    use crate::tool::ToolCall;

    struct Named(ToolSpec);

    impl ServerTool for Named {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn run(&self, _call: ToolCall) -> BoxFuture<'_, Outcome> {
            Box::pin(std::future::ready(Outcome::error("never run here")))
        }
    }

    fn tool(name: &str, description: &str) -> Arc<dyn ServerTool> {
        let schema = json!({"type": "object"});
        Arc::new(Named(ToolSpec::server(name, description, schema)))
    }

    fn names(offered: &OfferedTools) -> Vec<&str> {
        let server = offered.server.iter().map(|tool| tool.spec());
        let specs = server.chain(&offered.client);
        specs.map(|spec| spec.name.as_str()).collect()
    }

    #[test]
    fn what_is_offered_is_named_or_offered_by_default() {
        let mut registry = ToolRegistry::default();
        registry.add(tool("own", ""), Offer::ByDefault).unwrap();
        registry.add(tool("pay", ""), Offer::WhenNamed).unwrap();
        let photo = ToolSpec::client("photo", "", json!({}));
        registry.add_client(photo, Offer::WhenNamed).unwrap();
        let offered = |names: Option<&[&str]>| {
            let names: Option<Vec<String>> =
                names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            registry.offered(names.as_deref())
        };
        assert_eq!(names(&offered(None).unwrap()), ["own"]);
        assert_eq!(names(&offered(Some(&[])).unwrap()), [""; 0]);
        assert_eq!(
            names(&offered(Some(&["photo", "pay"])).unwrap()),
            ["pay", "photo"]
        );
        let error = offered(Some(&["own", "fly"])).err().unwrap().to_string();
        assert_eq!(
            error,
            "there is no tool named \"fly\"; use one of own, pay, photo"
        );
    }

    #[test]
    fn a_name_is_taken_once_and_one_that_is_meant_wins() {
        for order in [[0, 1], [1, 0]] {
            let mut registry = ToolRegistry::default();
            for which in order {
                let (description, offer) =
                    [("mine", Offer::ByDefault), ("the demo's", Offer::WhenNamed)][which];
                registry.add(tool("pay", description), offer).unwrap();
            }
            let kept: Vec<_> = registry.specs().map(|spec| &*spec.description).collect();
            assert_eq!(kept, ["mine"]);
            let again = registry.add(tool("pay", ""), Offer::ByDefault);
            assert_eq!(again, Err(ToolRegistryError::Twice("pay".into())));
        }
    }
}
