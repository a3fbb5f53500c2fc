//! The kinds of agents that `agent.kind` can name, and how an agent of each is made from the configuration.

pub(crate) mod adk;
mod agent_engine;
#[cfg(feature = "demo")]
pub(crate) mod demo;
pub(crate) mod gemini;
pub(crate) mod openai;

use std::collections::BTreeMap;
use std::sync::Arc;

use adk_bridge_agents::agent::{Agent, BoxFuture};
use adk_bridge_agents::token::Tokens;

use crate::config::{self, Config, ConfigError};
use crate::server::StartError;

/// What a constructor comes to.
pub type Constructed<'c> = BoxFuture<'c, Result<Arc<dyn Agent>, StartError>>;

type Constructor = Box<dyn Fn(&Config) -> Constructed<'_> + Send + Sync>;

/// Constructors of agents by kind.
pub struct AgentKinds {
    constructors: BTreeMap<String, Constructor>,
    /// Those of the kinds whose agents can be made without asking anybody.
    unasked: BTreeMap<String, Unasked>,
}

type Unasked = fn(&Config) -> Result<Arc<dyn Agent>, StartError>;

/// What is said where the demo is wanted and was left out.
pub(crate) const NO_DEMO: &str =
    "this program was built without the demo; build it with the cargo feature `demo`";

impl AgentKinds {
    /// The kinds that the bridge comes with.
    pub fn built_in() -> Self {
        let mut kinds = Self {
            constructors: BTreeMap::new(),
            unasked: BTreeMap::new(),
        };
        kinds.register("adk", |config| Box::pin(adk::make(config)));
        kinds.register("agent-engine", |config| {
            Box::pin(agent_engine::make(config))
        });
        kinds.register("gemini", |config| Box::pin(gemini::make(config)));
        kinds.register("openai", |config| Box::pin(openai::make(config)));
        let unasked: [(&str, Unasked); 4] = [
            ("adk", adk::construct),
            ("agent-engine", agent_engine::construct),
            ("gemini", gemini::construct),
            ("openai", openai::construct),
        ];
        for (kind, construct) in unasked {
            kinds.unasked.insert(kind.to_owned(), construct);
        }
        #[cfg(feature = "demo")]
        kinds.register("demo", |config| Box::pin(demo::make(config)));
        kinds
    }

    /// Adds a kind, or takes the place of the one that has this name.
    pub fn register(
        &mut self,
        kind: impl Into<String>,
        constructor: impl Fn(&Config) -> Constructed<'_> + Send + Sync + 'static,
    ) {
        let kind = kind.into();
        self.unasked.remove(&kind);
        self.constructors.insert(kind, Box::new(constructor));
    }

    /// Makes the agent that the configuration names and asks nobody for it, as far as its kind can be made that way.
    pub(crate) async fn construct(&self, config: &Config) -> Result<Arc<dyn Agent>, StartError> {
        match self.unasked.get(&config.agent.kind) {
            Some(construct) => construct(config),
            None => self.make(config).await,
        }
    }

    /// Makes the agent that the configuration names.
    pub async fn make(&self, config: &Config) -> Result<Arc<dyn Agent>, StartError> {
        match self.constructors.get(&config.agent.kind) {
            Some(make) => make(config).await,
            None => Err(self.unknown(&config.agent.kind).into()),
        }
    }

    fn unknown(&self, kind: &str) -> ConfigError {
        let known: Vec<&str> = self.constructors.keys().map(String::as_str).collect();
        let known = known.join(", ");
        let problem = match kind {
            "demo" => format!("{NO_DEMO}, or set one of {known}"),
            _ => format!("there is no agent of kind {kind:?}; set one of {known}"),
        };
        ConfigError::value("agent.kind", problem)
    }
}

/// What the semantic conventions of OpenTelemetry call the provider behind a kind. Behind an ADK server there may be any.
pub(crate) fn provider_of(kind: &str) -> &str {
    match kind {
        "demo" | "gemini" => "gcp.gemini",
        "agent-engine" => "gcp.vertex_ai",
        other => other,
    }
}

/// The tokens of an agent at this URL, if it needs any.
fn tokens(
    token: Option<&config::Token>,
    base_url: &str,
) -> Result<Option<Arc<Tokens>>, StartError> {
    let Some(token) = token else {
        return Ok(None);
    };
    let source = token.source(base_url)?;
    Ok(Some(Arc::new(Tokens::new(source, token.header()))))
}

/// Fetches the first token, so that what is wrong with its source is said at once. What may pass is only logged.
async fn try_token(tokens: Option<&Tokens>) -> Result<(), StartError> {
    match tokens {
        None => Ok(()),
        Some(tokens) => match tokens.token(None).await {
            Err(error) if error.is_permanent() => Err(refused("agent.token", &error.to_string())),
            _ => Ok(()),
        },
    }
}

/// A key that agents of this kind do not take, or take in another form.
fn refused(key: &'static str, problem: &str) -> StartError {
    ConfigError::value(key, problem).into()
}

#[cfg(test)]
mod tests {
    use adk_bridge_agents::agent::{AgentInfo, AgentRequest, MemoryModel, Starting};
    use adk_bridge_agents::error::AgentError;

    use super::*;

    struct Oracle;

    impl Agent for Oracle {
        fn info(&self) -> AgentInfo {
            AgentInfo::new("oracle")
        }

        fn memory(&self) -> MemoryModel {
            MemoryModel::Stateless
        }

        fn start(&self, _request: AgentRequest<'_>) -> Starting {
            let silent = AgentError::rejected("it is silent", "");
            Box::pin(std::future::ready(Err(silent)))
        }
    }

    fn config(toml: &str) -> Config {
        use figment::providers::{Format as _, Serialized, Toml};
        let defaults = figment::Figment::from(Serialized::defaults(Config::default()));
        defaults.merge(Toml::string(toml)).extract().unwrap()
    }

    async fn refusal(kinds: &AgentKinds, toml: &str) -> String {
        let made = kinds.make(&config(toml)).await;
        made.err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[tokio::test]
    async fn a_kind_is_made_once_it_is_registered() {
        let mut kinds = AgentKinds::built_in();
        let oracle = "[agent]\nkind = \"oracle\"";
        let said = refusal(&kinds, oracle).await;
        for word in ["agent.kind", "\"oracle\"", "adk", "gemini", "openai"] {
            assert!(said.contains(word), "{said}");
        }
        assert_eq!(said.contains("demo"), cfg!(feature = "demo"), "{said}");
        kinds.register("oracle", |_| {
            Box::pin(async { Ok(Arc::new(Oracle) as Arc<dyn Agent>) })
        });
        let made = kinds.make(&config(oracle)).await.ok().unwrap();
        assert_eq!(made.info().kind, "oracle");
    }

    #[tokio::test]
    async fn what_a_kind_does_not_take_is_named() {
        let kinds = AgentKinds::built_in();
        let adk = "[agent]\nkind = \"adk\"\napp = \"a\"\n";
        let openai =
            "[agent]\nkind = \"openai\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:1\"\n";
        for (toml, key) in [
            ("[agent]\nkind = \"adk\"".to_owned(), "agent.app"),
            (format!("{adk}instruction = \"b\""), "agent.instruction"),
            (format!("{adk}tools = []"), "agent.tools"),
            (
                format!("{adk}[[agent.client_tools]]\nname = \"b\""),
                "agent.client_tools",
            ),
            (
                format!("{adk}headers = {{ \"a b\" = \"c\" }}"),
                "agent.headers",
            ),
            (
                "[agent]\nkind = \"agent-engine\"".to_owned(),
                "agent.base_url",
            ),
            (
                "[agent]\nkind = \"agent-engine\"\nbase_url = \"http://127.0.0.1:1\"\ninstruction = \"b\""
                    .to_owned(),
                "agent.instruction",
            ),
            (
                "[agent]\nkind = \"gemini\"\napi_key_env = \"NO_SUCH_VARIABLE\"".to_owned(),
                "agent.api_key_env",
            ),
            ("[agent]\nkind = \"openai\"".to_owned(), "agent.model"),
            (
                "[agent]\nkind = \"openai\"\nmodel = \"m\"\napi_key_env = \"NO_SUCH_VARIABLE\""
                    .to_owned(),
                "agent.api_key_env",
            ),
            (
                format!("{openai}headers = {{ \"a b\" = \"c\" }}"),
                "agent.headers",
            ),
        ] {
            let said = refusal(&kinds, &toml).await;
            assert!(said.contains(key), "{toml}: {said}");
        }
    }

    #[cfg(not(feature = "demo"))]
    #[tokio::test]
    async fn without_the_demo_its_kind_says_why_it_is_missing() {
        let said = refusal(&AgentKinds::built_in(), "").await;
        for word in [
            "agent.kind",
            "cargo feature `demo`",
            "adk, agent-engine, gemini, openai",
        ] {
            assert!(said.contains(word), "{said}");
        }
    }
}
