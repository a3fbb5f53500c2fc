//! `adk-bridge serve`: the bridge as a server.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_agents::adk_server::{self, AdkServer};
use adk_bridge_agents::agent::Agent;
use adk_bridge_agents::demo::tools::{Options as ToolOptions, demo_tools};
use adk_bridge_agents::gemini::{Gemini, Settings};
use adk_bridge_agents::gemini_live::GeminiLive;
use adk_bridge_agents::tool::ToolSpec;
use adk_bridge_protocol::calls::RunsOn;
use adk_bridge_protocol::reply::Limits;
use anyhow::{Context as _, bail};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::chat::toolbox::Toolbox;
use crate::chat::{Chats, Shared};
use crate::config::{AgentKind, Config, Overrides};
use crate::connections::{self, HEAD_TIME};
use crate::files::Files;
use crate::router::{App, router};
use crate::sockets::Sockets;
use crate::store::DataDir;
use crate::store::sqlite::SqliteStore;

/// The file that is read where it exists and no other is named.
const DEFAULT_FILE: &str = "adk-bridge.toml";
/// How long everything may take when the server is stopped; who stops it waits commonly ten seconds.
const GOING: Duration = Duration::from_secs(5);

pub fn run(file: Option<&Path>, overrides: &Overrides) -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info")),
        )
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let default = PathBuf::from(DEFAULT_FILE);
    let file = file.or_else(|| default.is_file().then_some(default.as_path()));
    let config = Config::load(file, overrides)?;
    tokio::runtime::Runtime::new()
        .context("the runtime cannot be started")?
        .block_on(serve(config))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(mut config: Config) -> anyhow::Result<()> {
    let data = DataDir::open(&config.server.data_dir)?;
    let directory = data.path().to_owned();
    let database = match config.store.url.as_deref() {
        None => None,
        Some(url) => match url.strip_prefix("sqlite:") {
            Some(path) => Some(PathBuf::from(path)),
            None => bail!("store.url: {url:?} is no SQLite database; write sqlite:PATH"),
        },
    };
    let data = Arc::new(data);
    let store = Arc::new(SqliteStore::open(data.clone(), database.as_deref()).await?);
    let max_file_bytes = config.server.max_body_bytes as u64;
    let files = Arc::new(Files::open(&data, store.clone(), max_file_bytes).await?);
    let (agent, voice) = agent(&config).await?;
    let tools = Arc::new(toolbox(&config, &directory, &agent).await?);
    let chats = Chats::new(Shared {
        store: store.clone(),
        agent,
        voice,
        keep_recordings: config.live.keep_recordings,
        tools,
        tool_timeout: config.tools.timeout.0,
        files,
        metrics: Arc::default(),
    });
    let listener = TcpListener::bind(config.server.listen)
        .await
        .with_context(|| format!("{} cannot be listened on", config.server.listen))?;
    let address = listener.local_addr()?;
    config.server.listen = address;
    let open = chats.boot().await?;
    banner(&config, &directory, open);
    let sockets = Sockets::new(config.server.max_sockets, chats.shared().metrics.clone());
    let app = App {
        config: Arc::new(config),
        chats: chats.clone(),
        sockets: sockets.clone(),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(connections::serve(
        listener,
        router(app),
        HEAD_TIME,
        async {
            let _ = stopped.await;
        },
    ));
    announce(address)?;
    shutdown().await;
    tracing::info!("the server stops");
    let _ = stop.send(());
    let gone = async {
        chats.shut_down().await;
        sockets.close().await;
        serving.await
    };
    match tokio::time::timeout(GOING, gone).await {
        Ok(served) => served?,
        Err(_) => tracing::warn!("some connections did not end in time; they are cut"),
    }
    crate::store::Store::close(&*store).await?;
    Ok(())
}

/// Says, in a form that programs can wait for, that requests are taken.
pub(crate) fn announce(address: std::net::SocketAddr) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on http://{address}")?;
    out.flush()
}

/// What somebody who starts it wants to know at once.
fn banner(config: &Config, directory: &Path, open: usize) {
    eprintln!("adk-bridge {}", env!("CARGO_PKG_VERSION"));
    match (config.agent.kind, &config.agent.app) {
        (AgentKind::Adk, Some(app)) => {
            eprintln!("  agent      {app:?} of an ADK server");
        }
        (kind, _) => eprintln!("  agent      {kind:?}, model {}", config.agent.model),
    }
    eprintln!("  data       {}", directory.display());
    eprintln!("  page       http://{}/", config.server.listen);
    if config.auth.api_keys.is_empty() {
        eprintln!("  keys       none: this machine only");
    } else {
        eprintln!("  keys       {}", config.auth.api_keys.len());
    }
    if open > 0 {
        eprintln!("  going on   {open} replies that a restart interrupted");
    }
}

/// Who answers, and who can be spoken with.
async fn agent(config: &Config) -> anyhow::Result<(Agent, Option<GeminiLive>)> {
    let settings = &config.agent;
    let (base_url, api_key) = match settings.kind {
        AgentKind::Demo => (scripted_gemini(config).await?, "demo".to_owned()),
        AgentKind::Gemini => (
            settings.base_url().to_owned(),
            std::env::var(&settings.api_key_env).with_context(|| {
                format!("agent.api_key_env: {} is not set", settings.api_key_env)
            })?,
        ),
        AgentKind::Adk => {
            let server = AdkServer::new(adk_server::Settings {
                base_url: settings.base_url().to_owned(),
                app: settings.app.clone().unwrap_or_default(),
                headers: settings.headers.pairs(),
            })?;
            return Ok((Agent::Adk(server), None));
        }
    };
    let written = Settings {
        base_url,
        model: settings.model.clone(),
        api_key,
        instruction: settings.instruction.clone(),
    };
    let spoken = Settings {
        model: settings.live_model.clone(),
        ..written.clone()
    };
    let agent = Agent::Gemini(Gemini::new(written)?);
    Ok((agent, Some(GeminiLive::new(spoken))))
}

/// The demo runs the code that production runs, pointed at a model that plays by a script.
async fn scripted_gemini(config: &Config) -> anyhow::Result<String> {
    use adk_bridge_agents::demo::scripted_gemini::{Options, serve};
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let options = Options {
        pace: config.demo.pace.0,
        ..Options::default()
    };
    tokio::spawn(serve(listener, options, std::future::pending()));
    Ok(format!("http://{address}"))
}

async fn toolbox(config: &Config, directory: &Path, agent: &Agent) -> anyhow::Result<Toolbox> {
    let limits = Limits {
        approval_timeout: config.approval.timeout.millis(),
        client_timeout: config.tools.client_timeout.millis(),
        max_steps: config.agent.max_steps,
        max_answer_bytes: config.server.max_answer_bytes,
    };
    if let Agent::Adk(server) = agent {
        let guarded = config.approval.tools.clone();
        if guarded.is_empty() {
            // There are only warnings to give, and the server need not be there yet.
            let server = server.clone();
            tokio::spawn(async move { look_at(&server, &[]).await });
        } else {
            look_at(server, &guarded).await?;
        }
        return Ok(Toolbox::remote(config.approval.tools.clone(), limits));
    }
    let demo = demo_tools(ToolOptions {
        database: Some(directory.join("sample.sqlite")),
        ..ToolOptions::default()
    });
    let chosen = |name: &str| {
        config
            .agent
            .tools
            .as_ref()
            .is_none_or(|names| names.iter().any(|wanted| wanted == name))
    };
    if let Some(unknown) = config
        .agent
        .tools
        .iter()
        .flatten()
        .find(|name| demo.specs().iter().all(|spec| spec.name != **name))
    {
        bail!("agent.tools: there is no tool named {unknown:?}");
    }
    let mut client: Vec<ToolSpec> = demo.client;
    client.retain(|spec| chosen(&spec.name));
    client.extend(config.agent.client_tools.iter().map(|tool| ToolSpec {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        runs_on: RunsOn::Client,
        needs_approval: tool.approval,
        idempotent: false,
    }));
    let server = demo
        .server
        .into_iter()
        .filter(|tool| chosen(&tool.spec().name))
        .collect();
    Ok(Toolbox::new(
        server,
        client,
        &config.approval.tools,
        limits,
    )?)
}

/// Says at once what would go wrong later, as far as the ADK server tells; it may come up after the bridge.
async fn look_at(server: &AdkServer, guarded: &[String]) -> anyhow::Result<()> {
    let (app, url) = (server.app(), server.url());
    let info = match server.app_info().await {
        Ok(info) => info,
        Err(error) => {
            tracing::warn!(detail = %error.detail, "{error}");
            None
        }
    };
    if info.is_none() {
        let apps = server.apps().await;
        if !apps.is_empty() && apps.iter().all(|name| name != app) {
            tracing::warn!(
                "the ADK server at {url} has no app {app:?}, only {}; correct agent.app",
                apps.join(", ")
            );
        }
    }
    let Some(info) = info else {
        if !guarded.is_empty() {
            tracing::warn!(
                "the ADK server at {url} does not tell the tools of {app:?}: a tool of approval.tools that it runs \
                 without asking ends the answer with an error"
            );
        }
        return Ok(());
    };
    for name in guarded {
        match info.tools.iter().find(|tool| tool.name == *name) {
            None => bail!("approval.tools: the app {app:?} has no tool named {name:?}"),
            Some(tool) if tool.runs_on == RunsOn::Client => {}
            Some(_) => tracing::info!(
                "{name} is run by the ADK server, which must ask for confirmation itself (require_confirmation); a run \
                 without it ends the answer with an error"
            ),
        }
    }
    Ok(())
}

/// Ends with Ctrl-C, or when the operating system asks.
pub(crate) async fn shutdown() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        _ = interrupt => {}
        () = terminate => {}
    }
}
