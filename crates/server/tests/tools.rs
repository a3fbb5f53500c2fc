//! Tools that do not do what they should: whatever happens to a tool, its call is settled and the chat goes on.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge::admission::{Admission, AdmissionLimits};
use adk_bridge::agent_list::{Agents, ServedAgent};
use adk_bridge::chat::live::{AnswerTo, RequestOrigin};
use adk_bridge::chat::loaded::LoadedMemory;
use adk_bridge::chat::readers::Answer;
use adk_bridge::chat::request::ChatRequest;
use adk_bridge::chat::toolbox::Toolbox;
use adk_bridge::chat::{Capacity, ChatError, ChatSettings, Chats, Checkpoints, Command, Shared};
use adk_bridge::config::Current;
use adk_bridge::credentials::Credentials;
use adk_bridge::files::Files;
use adk_bridge::files::address::Addresses;
use adk_bridge::known_users::KnownUsers;
use adk_bridge::spending::Spending;
use adk_bridge::store::DataDir;
use adk_bridge::store::sqlite::SqliteStore;
use adk_bridge::telemetry::Tracer;
use adk_bridge_agents::gemini::{Gemini, Settings};
use adk_bridge_agents::tool::{ServerTool, ToolCall, ToolSpec};
use adk_bridge_demo::scripted_gemini::{Options, serve};
use adk_bridge_protocol::calls::{Outcome, RunsOn};
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::reply::Limits;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// How a tool fails its caller.
#[derive(Clone, Copy)]
enum Fault {
    Panics,
    PanicsAtOnce,
    NeverEnds,
    /// As that, and says that it has begun.
    IsHeld,
}

static BEGUN: Notify = Notify::const_new();

struct Faulty(ToolSpec, Fault);

impl ServerTool for Faulty {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn run(&self, _call: ToolCall) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        match self.1 {
            Fault::Panics => Box::pin(async { panic!("broken") }),
            Fault::PanicsAtOnce => panic!("broken before it began"),
            Fault::NeverEnds => Box::pin(std::future::pending()),
            Fault::IsHeld => Box::pin(async {
                BEGUN.notify_one();
                std::future::pending().await
            }),
        }
    }
}

#[tokio::test]
async fn a_faulty_tool_settles_its_call() {
    for (fault, said) in [
        (Fault::Panics, "the tool crashed"),
        (Fault::PanicsAtOnce, "the tool crashed"),
        (Fault::NeverEnds, "returned no result"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let chats = chats(directory.path(), fault, Duration::from_millis(200)).await;
        let chunks = say(&chats, "u1", "call fails {}").await;
        let error = chunks
            .iter()
            .find(|chunk| chunk["type"] == "tool-output-error")
            .unwrap_or_else(|| panic!("{said}: {chunks:#?}"));
        let text = error["errorText"].as_str().unwrap();
        assert!(text.contains(said), "{text}");
        assert_eq!(chunks.last().unwrap()["type"], "finish", "{chunks:#?}");
        // The chat is not stuck behind it.
        let chunks = say(&chats, "u2", "say Hello.").await;
        assert_eq!(chunks.last().unwrap()["type"], "finish", "{chunks:#?}");
    }
}

#[tokio::test]
async fn messages_that_wait_for_a_tool_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let chats = chats(directory.path(), Fault::IsHeld, Duration::from_secs(600)).await;
    let mut turn = post(&chats, "u0", "call fails {}").await.unwrap();
    BEGUN.notified().await;
    let mut waiting = tokio::task::JoinSet::new();
    for number in 1..=40 {
        let chats = chats.clone();
        waiting.spawn(async move { post(&chats, &format!("u{number}"), "say Hello.").await });
    }
    for _ in 0..8 {
        let refused = tokio::time::timeout(Duration::from_secs(60), waiting.join_next());
        let refusal = refused.await.unwrap().unwrap().unwrap().unwrap_err();
        assert!(
            matches!(refusal, ChatError::QueueFull { .. }),
            "{refusal:?}"
        );
    }
    let next = tokio::time::timeout(Duration::ZERO, waiting.join_next()).await;
    assert!(next.is_err(), "the others wait");
    while turn.recv().await.is_some() {}
}

async fn chats(directory: &std::path::Path, fault: Fault, tool_timeout: Duration) -> Chats {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = Options {
        pace: Duration::ZERO,
        ..Options::default()
    };
    tokio::spawn(serve(listener, options, std::future::pending()));
    let data = Arc::new(DataDir::open(directory).unwrap());
    let store = Arc::new(SqliteStore::open(data.clone(), None).await.unwrap());
    let files = Files::open(&data, store.clone(), 1 << 20).await.unwrap();
    let tool = Faulty(
        ToolSpec {
            name: "fails".into(),
            description: "Fails.".into(),
            input_schema: json!({"type": "object"}),
            runs_on: RunsOn::Server,
            needs_approval: false,
            idempotent: false,
        },
        fault,
    );
    let limits = Limits::default();
    let tools = Toolbox::new(vec![Arc::new(tool)], Vec::new(), &[], limits);
    let gemini = Gemini::new(Settings {
        base_url: format!("http://{address}"),
        model: "gemini-3.8-flash".into(),
        api_key: "demo".into(),
        instruction: None,
    });
    let addresses = Addresses::open(&*store, None).await.unwrap();
    let defaults = adk_bridge::config::Limits::default();
    let credentials = Credentials::open(&data, store.clone()).unwrap();
    let agents = Arc::new(Agents::one(ServedAgent::new(
        "gemini",
        "gemini",
        Arc::new(gemini.unwrap()),
        tools.unwrap(),
    )));
    let config = adk_bridge::config::Config::default();
    Chats::new(Shared {
        users: Arc::new(KnownUsers::new(&config, agents.clone())),
        cluster: None,
        credentials: Arc::new(credentials),
        checkpoints: Checkpoints::storing_in(store.clone()),
        spending: Spending::new(store.clone(), Arc::default(), &config.budget),
        store,
        agents,
        files: Arc::new(files),
        addresses: Arc::new(addresses),
        metrics: Arc::default(),
        tracer: Tracer::default(),
        capacity: Capacity {
            admission: Admission::new(AdmissionLimits {
                turns: 100,
                turns_per_user: 100,
                uploads_per_user: 8,
                refused_answers_per_minute: 100,
                memory: None,
            }),
            loaded: LoadedMemory::new(&defaults),
            unread: adk_bridge::budget::unread(&defaults),
        },
        settings: Current::new(ChatSettings {
            keep_recordings: false,
            tool_timeout,
            turn_time: Duration::from_secs(600),
            files_per_request: 100,
        }),
    })
}

async fn post(chats: &Chats, id: &str, text: &str) -> Result<Answer, ChatError> {
    let body = json!({"id": "chat-1", "messages": [
        {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]},
    ]});
    let request = ChatRequest::parse(body.to_string().as_bytes(), Dialect::default()).unwrap();
    chats
        .ask(&"alice".into(), &"chat-1".into(), |answer| Command::Post {
            request: Box::new(request),
            origin: RequestOrigin::HTTP,
            answer: AnswerTo::Request(answer),
        })
        .await?
}

async fn say(chats: &Chats, id: &str, text: &str) -> Vec<Value> {
    let mut answer = post(chats, id, text).await.unwrap();
    let mut stream = Vec::new();
    while let Some(piece) = answer.recv().await {
        stream.extend_from_slice(&piece);
    }
    String::from_utf8(stream)
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}
