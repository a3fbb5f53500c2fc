//! What a server can be built of, and what is refused before it listens.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;
use std::net::SocketAddr;
use std::sync::Arc;

use adk_bridge::agents::agent::{Agent, AgentInfo, AgentRequest, BoxFuture, MemoryModel, Starting};
use adk_bridge::agents::error::AgentError;
use adk_bridge::agents::tool::{ServerTool, ToolCall, ToolSpec};
use adk_bridge::auth::{Authenticator, Identity, Refusal};
use adk_bridge::config::Config;
use adk_bridge::protocol::calls::Outcome;
use adk_bridge::store::sqlite::SqliteStore;
use adk_bridge::store::{ChatRef, DataDir, Store as _};
use adk_bridge::{Server, ServerBuilder};
use axum::http::request::Parts;
use serde_json::json;
use tempfile::TempDir;

/// An agent that is never asked.
struct Silent(MemoryModel);

impl Agent for Silent {
    fn info(&self) -> AgentInfo {
        AgentInfo::new("silent")
    }

    fn memory(&self) -> MemoryModel {
        self.0
    }

    fn start(&self, _request: AgentRequest<'_>) -> Starting {
        let silent = AgentError::rejected("it is silent", "");
        Box::pin(std::future::ready(Err(silent)))
    }
}

/// A login that knows everybody by their badge.
#[derive(Debug)]
struct Badges {
    required: bool,
}

impl Authenticator for Badges {
    fn authenticate<'a>(&'a self, _request: &'a Parts) -> BoxFuture<'a, Result<Identity, Refusal>> {
        Box::pin(std::future::ready(Ok(Identity::new("alice", "badge"))))
    }

    fn requires_credentials(&self) -> bool {
        self.required
    }
}

struct Named(ToolSpec);

impl ServerTool for Named {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn run(&self, _call: ToolCall) -> BoxFuture<'_, Outcome> {
        Box::pin(std::future::ready(Outcome::error("never run here")))
    }
}

fn tool(name: &str) -> Named {
    Named(ToolSpec::server(name, "", json!({"type": "object"})))
}

fn config(directory: &TempDir) -> Config {
    let mut config = Config::default();
    config.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.server.data_dir = directory.path().join("data");
    config
}

/// A builder with an agent that has no session.
fn builder(directory: &TempDir, change: impl FnOnce(&mut Config)) -> ServerBuilder {
    let mut config = config(directory);
    change(&mut config);
    let agent = Silent(MemoryModel::Stateless);
    Server::builder().config(config).agent(agent)
}

async fn refusal(builder: ServerBuilder) -> String {
    let built = builder.build().await;
    built
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default()
}

#[tokio::test]
async fn what_cannot_be_built_is_named() {
    let directory = TempDir::new().unwrap();
    let twice = builder(&directory, |_| {})
        .tool(tool("fly"))
        .tool(tool("fly"));
    let in_front_too = builder(&directory, |config| {
        config.agent.client_tools = serde_json::from_value(json!([{"name": "fly"}])).unwrap();
    });
    let unknown = |config: &mut Config| config.agent.tools = Some(vec!["swim".into()]);
    let unguarded = |config: &mut Config| config.approval.tools = vec!["swim".into()];
    let remembers = Server::builder()
        .config(config(&directory))
        .agent(Silent(MemoryModel::Session))
        .tool(tool("fly"));
    let mut open_to_all = config(&directory);
    open_to_all.server.listen = SocketAddr::from(([0, 0, 0, 0], 0));
    let mut no_oracle = config(&directory);
    no_oracle.agent.kind = "oracle".into();
    for (builder, words) in [
        (twice, "two tools are named \"fly\""),
        (in_front_too.tool(tool("fly")), "agent.client_tools"),
        (
            builder(&directory, unknown).tool(tool("fly")),
            "agent.tools",
        ),
        (
            builder(&directory, unguarded).tool(tool("fly")),
            "approval.tools",
        ),
        (remembers, "runs its own tools"),
        (Server::builder().config(open_to_all), "server.listen"),
        (Server::builder().config(no_oracle), "agent.kind"),
    ] {
        let said = refusal(builder).await;
        assert!(said.contains(words), "{words}: {said}");
    }
    // Nothing of this is left behind.
    assert_eq!(refusal(builder(&directory, |_| {})).await, "");
}

/// An agent that is never asked, with a name of its own.
struct Another(&'static str, MemoryModel);

impl Agent for Another {
    fn info(&self) -> AgentInfo {
        let mut info = AgentInfo::new("another");
        info.id = self.0.to_owned();
        info
    }

    fn memory(&self) -> MemoryModel {
        self.1
    }

    fn start(&self, request: AgentRequest<'_>) -> Starting {
        Silent(self.1).start(request)
    }
}

#[tokio::test]
async fn several_agents_are_served() {
    let directory = TempDir::new().unwrap();
    let built = builder(&directory, |config| {
        config.approval.tools = vec!["fly".into()];
    })
    .agent(Another("second", MemoryModel::Stateless))
    .agent(Another("third", MemoryModel::Session))
    .tool(tool("fly"));
    let server = built.build().await.unwrap();
    let ids: Vec<String> = server.agents().into_iter().map(|info| info.id).collect();
    assert_eq!(ids, ["silent", "second", "third"]);
    let address = server.address();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve_until(async {
        let _ = stopped.await;
    }));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let listed = http
        .get(format!("http://{address}/api/agents"))
        .send()
        .await;
    let listed = listed.unwrap().text().await.unwrap();
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let tools = |of: usize| listed[of]["tools"].as_array().unwrap().len();
    // The one that runs its own tools leaves the program's to the others.
    assert_eq!((tools(0), tools(1), tools(2)), (1, 1, 0), "{listed}");
    assert_eq!(listed[1]["tools"][0]["needsApproval"], true);
    assert_eq!(listed[0]["default"], true);
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();

    for (id, words) in [
        ("silent", "two agents have the id \"silent\""),
        ("a b", "URL"),
    ] {
        let twice = builder(&directory, |_| {}).agent(Another(id, MemoryModel::Stateless));
        let said = refusal(twice).await;
        assert!(said.contains(words), "{said}");
    }
}

#[tokio::test]
async fn another_store_is_used() {
    let directory = TempDir::new().unwrap();
    let elsewhere = TempDir::new().unwrap();
    let data = Arc::new(DataDir::open(elsewhere.path()).unwrap());
    let store = Arc::new(SqliteStore::open(data, None).await.unwrap());
    let chat = ChatRef {
        user: &UserId::literal("local"),
        id: &ChatId::literal("c"),
    };
    store
        .create_chat(chat, Timestamp::from_millis(1))
        .await
        .unwrap();
    let server = builder(&directory, |_| {})
        .store(store)
        .build()
        .await
        .unwrap();
    let address = server.address();
    let database = directory.path().join("data/adk-bridge.db");
    assert!(!database.exists(), "{}", database.display());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve_until(async {
        let _ = stopped.await;
    }));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let chats = http.get(format!("http://{address}/api/chats")).send().await;
    let chats = chats.unwrap().text().await.unwrap();
    assert!(chats.contains("\"id\":\"c\""), "{chats}");
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn only_a_login_opens_the_server_to_other_machines() {
    let directory = TempDir::new().unwrap();
    let everywhere = |config: &mut Config| {
        config.server.listen = SocketAddr::from(([0, 0, 0, 0], 0));
    };
    for (required, words) in [(true, ""), (false, "server.listen")] {
        let builder = builder(&directory, everywhere).authenticator(Badges { required });
        let said = refusal(builder).await;
        assert_eq!(said.is_empty(), words.is_empty(), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
