//! The server: put together from its parts, started, and stopped in order.
//!
//! ```text
//!   builder ── config, agent, tools, store ──▶ build ──▶ Server ── serve_until(stop) ──▶ stopped
//!                                               │
//!                             agent, tools, store, files, chats, listener
//! ```

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_agents::agent::{Agent, AgentInfo, MemoryModel};
use adk_bridge_agents::error::AgentError;
use adk_bridge_agents::tool::{ServerTool, ToolSpec};
use adk_bridge_agents::tool_registry::{Offer, ToolRegistry, ToolRegistryError};
use adk_bridge_protocol::reply::Limits;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::admission::{Admission, AdmissionLimits};
use crate::agent_kinds::{AgentKinds, Constructed};
use crate::agent_list::{self, Assembly};
use crate::audit::seal::SealKey;
use crate::audit::{SealTask, Sealing};
use crate::auth::{self, Authenticator, RunningWays, Ways};
use crate::budget;
use crate::chat::loaded::LoadedMemory;
use crate::chat::toolbox::{Toolbox, ToolboxError};
use crate::chat::{Capacity, ChatSettings, Chats, Checkpoints, ClusterTasks, Shared, now};
use crate::cluster::{Cluster, JoinError, Ownership};
use crate::config::{Config, ConfigError, Current, FilesPlace};
use crate::connections::{self, Bounds, HEAD_TIME, Terms};
use crate::credentials::Credentials;
use crate::descriptors::{self, Shares};
use crate::files::address::Addresses;
use crate::files::{Files, OpenError, Quota};
use crate::forwarding::Forwarding;
use crate::known_users::KnownUsers;
use crate::mcp::McpServers;
use crate::metrics::Metrics;
use crate::process_memory;
use crate::reload::{Makers, Reloader};
use crate::retention::{Retention, RetentionTask};
use crate::router::{INFORMING, router};
use crate::shutdown::HangUp;
use crate::sockets::{SharedTickets, Sockets};
use crate::spending::Spending;
use crate::store::postgres::{PostgresConfig, PostgresStore};
use crate::store::sqlite::SqliteStore;
use crate::store::{DataDir, Store, StoreError};
use crate::telemetry::{Tracer, TracerError};
use crate::transport::App;
use crate::{secrets, shutdown};

/// How long stopping may take in total; service managers commonly wait ten seconds.
const GOING: Duration = Duration::from_secs(5);

/// How long a replica that is about to stop goes on as before, and only says that it is not ready: load balancers commonly
/// look every second or two.
const NOTICED: Duration = Duration::from_secs(2);

/// The secret of the store that replicas without `cluster.key` share.
const CLUSTER_KEY: &str = "cluster";

/// How old the count of what all users have stored may be, where other bridges store, too.
const RECOUNTED_EVERY: Duration = Duration::from_secs(5 * 60);
/// A bucket is put in order at the start and once a day.
const RECOUNTS_PER_SWEEP: u32 = 24 * 60 / 5;

/// The share of a user's connections that may be WebSockets.
const SOCKETS_SHARE: (usize, usize) = (3, 4);

/// A bridge that listens; it answers requests once it is served.
pub struct Server {
    app: App,
    listener: TcpListener,
    /// To be closed, unless it is shared within this process.
    store: Option<Arc<dyn Store>>,
    data_dir: PathBuf,
    reopened: usize,
    mcp: Arc<McpServers>,
    cluster: ClusterTasks,
    seals: SealTask,
    retention: RetentionTask,
    reloader: Arc<Reloader>,
    _upkeep: FilesUpkeep,
}

/// What a server is made of. The configuration decides everything that is not set here.
///
/// ```no_run
/// use adk_bridge::Server;
/// use adk_bridge::config::{Config, Overrides};
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::load(None, &Overrides::default())?;
/// Server::builder().config(config).serve().await?;
/// # Ok(())
/// # }
/// ```
pub struct ServerBuilder {
    config: Config,
    kinds: AgentKinds,
    agents: Vec<Arc<dyn Agent>>,
    tools: Vec<Arc<dyn ServerTool>>,
    client_tools: Vec<ToolSpec>,
    store: Option<OpenStore>,
    authenticator: Option<Arc<dyn Authenticator>>,
}

/// A store, and who owns its chats if several replicas share it.
struct OpenStore {
    store: Arc<dyn Store>,
    ownership: Option<Arc<dyn Ownership>>,
    /// Whether it belongs to this server alone, which closes it.
    is_own: bool,
}

/// Why a server does not start; the message names what to change.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Tools(#[from] ToolRegistryError),
    #[error(transparent)]
    Toolbox(#[from] ToolboxError),
    #[error("{0}: the agent runs its own tools, so it cannot be offered this one")]
    OwnTools(String),
    #[error(
        "tools.mcp: no agent can be offered these tools, because agents of ADK servers run their own"
    )]
    NoAgentForMcp,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("store.url")]
    Database(#[source] StoreError),
    #[error(transparent)]
    Cluster(#[from] JoinError),
    #[error(transparent)]
    Tracer(#[from] TracerError),
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("the handlers for stop signals cannot be installed")]
    Signals(#[source] std::io::Error),
}

impl Server {
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            config: Config::default(),
            kinds: AgentKinds::built_in(),
            agents: Vec::new(),
            tools: Vec::new(),
            client_tools: Vec::new(),
            store: None,
            authenticator: None,
        }
    }

    /// The address that it listens on, with the real port if the configuration leaves the choice to the system.
    pub fn address(&self) -> SocketAddr {
        self.app.config().server.listen
    }

    pub fn config(&self) -> Arc<Config> {
        self.app.config()
    }

    /// Gives it another configuration while it is served.
    pub fn reloader(&self) -> Arc<Reloader> {
        self.reloader.clone()
    }

    /// What its agents say about themselves, the default first. Those of an ADK server that cannot be reached yet are not
    /// among them; [`Server::agent_notes`] says so.
    pub fn agents(&self) -> Vec<AgentInfo> {
        let agents = &self.app.chats().shared().agents;
        agents.all().iter().map(|agent| agent.info()).collect()
    }

    /// What is wrong with agents that should be found by themselves, and with MCP servers.
    pub fn agent_notes(&self) -> Vec<String> {
        let mut notes = self.app.chats().shared().agents.notes();
        notes.extend(self.mcp.problems());
        notes
    }

    /// The directory for all data.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// How many replies that a restart interrupted are being continued.
    pub fn reopened(&self) -> usize {
        self.reopened
    }

    /// Serves until the process is asked to stop, by Ctrl-C or by the system.
    pub async fn serve(self) -> Result<(), StartError> {
        let stop = shutdown::requested(HangUp::Stops).map_err(StartError::Signals)?;
        self.serve_until(stop).await
    }

    /// Serves until `stop` is ready, then stops everything in progress and stores the state of the chats.
    pub async fn serve_until(self, stop: impl Future<Output = ()>) -> Result<(), StartError> {
        let (chats, sockets) = (self.app.chats().clone(), self.app.sockets().clone());
        let terms = Terms {
            head_time: HEAD_TIME,
            write_stall: self.app.config().limits.write_stall.0,
            bounds: self.reloader.bounds.clone(),
            informing: INFORMING,
        };
        let drain = self.app.config().server.drain.0;
        let passages = (self.app.forwarding()).map(|forwarding| forwarding.passages().clone());
        let (close, closed) = oneshot::channel::<()>();
        let serving = tokio::spawn(connections::serve(
            self.listener,
            router(self.app),
            terms,
            async {
                let _ = closed.await;
            },
        ));
        stop.await;
        tracing::info!("the server is shutting down");
        drop(self.retention);
        let cluster = chats.shared().cluster.clone();
        if let Some(cluster) = &cluster {
            cluster.drain();
            // Load balancers see that it is not ready, and send requests elsewhere.
            tokio::time::sleep(NOTICED).await;
            let until = Instant::now() + drain;
            chats.hand_over(until).await;
            if let Some(passages) = passages {
                // Answers of other replicas, which have a client here.
                let _ = timeout_at(until, passages.over()).await;
            }
        }
        let _ = close.send(());
        let gone = async {
            chats.shut_down().await;
            sockets.close().await;
            serving.await
        };
        match tokio::time::timeout(GOING, gone).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the task that serves connections failed"),
            Err(_) => tracing::warn!("some connections did not end in time and are closed"),
        }
        self.mcp.stop().await;
        chats.shared().tracer.shut_down().await;
        drop(self.cluster);
        if let Some(cluster) = cluster {
            cluster.leave().await;
        }
        self.seals.end().await;
        if let Some(store) = self.store {
            store.close().await?;
        }
        Ok(())
    }
}

impl ServerBuilder {
    #[must_use]
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Uses this agent, whatever the configuration says about agents except for their tools and limits. Called several
    /// times, it adds agents, which need different ids; the first is the default.
    #[must_use]
    pub fn agent(mut self, agent: impl Agent + 'static) -> Self {
        self.agents.push(Arc::new(agent));
        self
    }

    /// Adds a kind of agent that `agent.kind` can name. The constructor finds the settings of its agent in `config.agent`.
    #[must_use]
    pub fn agent_kind(
        mut self,
        kind: impl Into<String>,
        constructor: impl Fn(&Config) -> Constructed<'_> + Send + Sync + 'static,
    ) -> Self {
        self.kinds.register(kind, constructor);
        self
    }

    /// Offers the agent a tool that runs in this process, unless `agent.tools` names others.
    #[must_use]
    pub fn tool(mut self, tool: impl ServerTool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Offers the agent a tool that the front end runs, unless `agent.tools` names others.
    #[must_use]
    pub fn client_tool(mut self, spec: ToolSpec) -> Self {
        self.client_tools.push(spec);
        self
    }

    /// Keeps chats in this store instead of the SQLite database that `store.url` names. Files stay in the data directory.
    #[must_use]
    pub fn store(self, store: Arc<dyn Store>) -> Self {
        let store = Some(OpenStore {
            store,
            ownership: None,
            is_own: true,
        });
        Self { store, ..self }
    }

    /// The same for a store that several replicas share, with who owns its chats. It is not closed when one of them stops.
    #[must_use]
    pub fn shared_store(self, store: Arc<dyn Store>, ownership: Arc<dyn Ownership>) -> Self {
        let store = Some(OpenStore {
            store,
            ownership: Some(ownership),
            is_own: false,
        });
        Self { store, ..self }
    }

    /// Authenticates users with this instead of the configuration's `[auth]`.
    #[must_use]
    pub fn authenticator(self, authenticator: impl Authenticator + 'static) -> Self {
        Self {
            authenticator: Some(Arc::new(authenticator)),
            ..self
        }
    }

    /// Builds the server and serves it until the process is asked to stop.
    pub async fn serve(self) -> Result<(), StartError> {
        self.build().await?.serve().await
    }

    /// Opens what the server needs, and listens. Requests wait until it is served.
    pub async fn build(self) -> Result<Server, StartError> {
        let mut config = self.config;
        match self.store {
            Some(_) => config.check_with_own_store()?,
            None => config.check()?,
        }
        // First: whom connections trust is decided when their clients are made.
        config.tls.trust()?;
        let given = config.clone();
        let login = match self.authenticator {
            Some(own) => Login::Own(own),
            None => Login::Configured(auth::configured(&config)?),
        };
        config.check_address(match &login {
            Login::Own(own) => own.requires_credentials(),
            Login::Configured(ways) => ways.requires_credentials(),
        })?;
        secrets::keep(&config);
        let metrics: Arc<Metrics> = Arc::default();
        let tracer = Tracer::from_environment(
            config.telemetry.content,
            config.cluster.name.as_deref(),
            metrics.span_exports().clone(),
        )?;
        let has_own_agents = !self.agents.is_empty();
        let drafts = match self.agents.is_empty() {
            true => agent_list::drafts(&self.kinds, &config).await?,
            false => agent_list::drafts_of(self.agents, &config),
        };
        let data = Arc::new(DataDir::open(&config.server.data_dir)?);
        let mcp = Arc::new(McpServers::start(&config).await?);
        let makers = Makers {
            kinds: Arc::new(self.kinds),
            tools: self.tools,
            client_tools: self.client_tools,
            mcp: mcp.clone(),
            directory: data.path().to_owned(),
        };
        let assembly = Assembly::new(config.clone(), makers.clone());
        let agents = Arc::new(assembly.agents(drafts).await?);
        for info in agents.all().iter().map(|agent| agent.info()) {
            for limitation in &info.limitations {
                tracing::info!(agent = info.id, "the agent {} cannot {limitation}", info.id);
            }
        }
        let shares = shares(&config, agents.descriptors_per_turn());
        let OpenStore {
            store,
            ownership,
            is_own,
        } = match self.store {
            Some(open) => open,
            None => open_store(&config, &data).await?,
        };
        let files = match open_files(&config, &data, &store).await {
            Ok(files) => files,
            Err(error) => {
                // A log that is left behind would be applied to a database that is restored in its place.
                store.close().await?;
                return Err(error);
            }
        };
        let addresses = Addresses::open(&*store, config.server.public_url.as_deref()).await?;
        let credentials = open_credentials(&config, &data, &store)?;
        let (authenticator, login) = match login {
            Login::Own(own) => (own, None),
            Login::Configured(ways) => {
                ways.count(&metrics);
                let running = RunningWays::open(ways, &config, &store).await?;
                (running.authenticator(), Some(running))
            }
        };
        let logins = login.as_ref().map(|login| login.logins().clone());
        let listening = TcpListener::bind(config.server.listen).await;
        let listening = listening.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = listening.map_err(|source| StartError::Listen {
            address: config.server.listen,
            source,
        })?;
        config.server.listen = address;
        let cluster = match ownership {
            Some(ownership) => Some(join(&config, &*store, ownership, &metrics).await?),
            None => None,
        };
        if let Some(cluster) = &cluster {
            cluster.note_own_files(config.files.place()? == FilesPlace::DataDir);
        }
        let counted = metrics.admission().clone();
        let chats = Chats::new(Shared {
            credentials: Arc::new(credentials),
            checkpoints: Checkpoints::storing_in(store.clone()),
            store: store.clone(),
            spending: Spending::new(store.clone(), metrics.clone(), &config.budget),
            users: Arc::new(KnownUsers::new(&config, agents.clone())),
            agents,
            files: Arc::new(files),
            addresses: Arc::new(addresses),
            metrics,
            tracer,
            cluster,
            capacity: Capacity {
                admission: Admission::counted(
                    allowed(&config, authenticator.requires_credentials(), shares.turns),
                    counted,
                ),
                loaded: LoadedMemory::new(&config.limits),
                unread: budget::unread(&config.limits),
            },
            settings: Current::new(chat_settings(&config)),
        });
        chats.note_budgets();
        let cluster = chats.live_in_cluster();
        let reopened = chats.boot().await?;
        let watch = AgentWatch::begin(&chats);
        let upkeep = FilesUpkeep::begin(&chats);
        let key = config.audit.signing_key();
        let key = key.as_deref().map(SealKey::new);
        let seals = Sealing::new(store.clone(), key);
        let seals = seals.begin(
            chats.shared().cluster.clone(),
            chats.shared().metrics.clone(),
        );
        let sealing = seals.sealing().clone();
        let retention = Retention::new(chats.clone(), sealing, config.retention).begin();
        let connections = bounds(&config, authenticator.requires_credentials(), shares);
        let sockets = sockets_per_user(config.server.max_sockets, connections);
        let shared = chats.shared();
        let (tickets, forwarding) = match &shared.cluster {
            Some(cluster) => {
                let metrics = shared.metrics.forwarding().clone();
                let forwarding = Forwarding::new(cluster.clone(), metrics);
                let tickets = SharedTickets::new(cluster.key())?;
                (Some(tickets), Some(Arc::new(forwarding)))
            }
            None => (None, None),
        };
        let sockets = Sockets::of_replica(sockets, shared.metrics.clone(), tickets);
        let app = App::new(
            Arc::new(config),
            chats,
            sockets,
            authenticator,
            logins,
            forwarding,
        );
        let reloader = Reloader {
            app: app.clone(),
            login,
            makers: (!has_own_agents).then_some(makers),
            bounds: Arc::new(Current::new(connections)),
            watch: std::sync::Mutex::new(watch),
            retention: retention.ages(),
            current: tokio::sync::Mutex::new(given),
        };
        Ok(Server {
            app,
            listener,
            store: is_own.then_some(store),
            data_dir: data.path().to_owned(),
            reopened,
            mcp,
            cluster,
            seals,
            retention,
            reloader: Arc::new(reloader),
            _upkeep: upkeep,
        })
    }
}

/// Who recognises users.
enum Login {
    /// The program that the server is built into.
    Own(Arc<dyn Authenticator>),
    Configured(Ways),
}

/// Looks for apps that come and go, until it is dropped.
pub(crate) struct AgentWatch(Vec<JoinHandle<()>>);

impl AgentWatch {
    pub(crate) fn begin(chats: &Chats) -> Self {
        let agents = chats.shared().agents.clone();
        let watched = agents.watched().into_iter();
        let mut tasks: Vec<_> = watched
            .map(|agent| tokio::spawn(async move { agent.watch().await }))
            .collect();
        if agents.next_look().is_none() {
            return Self(tasks);
        }
        let chats = chats.clone();
        tasks.push(tokio::spawn(async move {
            while let Some(wait) = agents.next_look() {
                if !agents.have_come(wait).await {
                    continue;
                }
                // What was interrupted in their chats goes on.
                if let Err(error) = chats.boot().await {
                    tracing::warn!(%error, "the chats of agents that have come cannot be continued yet");
                }
            }
        }));
        Self(tasks)
    }
}

impl Drop for AgentWatch {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

/// Counts what other bridges store, and puts a bucket in order, until it is dropped.
struct FilesUpkeep(Option<JoinHandle<()>>);

impl FilesUpkeep {
    fn begin(chats: &Chats) -> Self {
        let (files, store) = (chats.shared().files.clone(), chats.shared().store.clone());
        if !files.is_remote() && !store.is_shared() {
            return Self(None);
        }
        Self(Some(tokio::spawn(async move {
            loop {
                // What fails is said by the files, and tried again.
                let _ = files.sweep(now()).await;
                for _ in 0..RECOUNTS_PER_SWEEP {
                    tokio::time::sleep(RECOUNTED_EVERY).await;
                    if let Err(error) = files.recount().await {
                        tracing::warn!(%error, "what users have stored cannot be counted");
                    }
                }
            }
        })))
    }
}

impl Drop for FilesUpkeep {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// How many connections and turns there may be; this depends on how many files may be open.
pub(crate) fn shares(config: &Config, per_turn: usize) -> Shares {
    let wanted = Shares {
        connections: config.limits.connections,
        turns: config.limits.turns,
    };
    let Some(limit) = descriptors::raise() else {
        return wanted;
    };
    let shares = descriptors::shares(limit, wanted, per_turn.max(1));
    if shares != wanted {
        let Shares { connections, turns } = shares;
        tracing::info!(
            "only {limit} files may be open (ulimit -n): {connections} connections and {turns} turns at once are allowed, \
             instead of limits.connections = {} and limits.turns = {}",
            wanted.connections,
            wanted.turns
        );
    }
    shares
}

/// How many WebSockets one user may have; some connections are left for the user's requests.
pub(crate) fn sockets_per_user(wanted: usize, connections: Bounds) -> usize {
    let (part, of) = SOCKETS_SHARE;
    let most = (connections.of_one_user().saturating_mul(part) / of).max(1);
    if wanted > most {
        tracing::info!(
            "only {} connections may be in use: a user may have {most} WebSockets open, instead of \
             server.max_sockets = {wanted}",
            connections.in_use
        );
    }
    wanted.min(most)
}

/// How many connections there may be, and of one user.
pub(crate) fn bounds(config: &Config, requires_credentials: bool, shares: Shares) -> Bounds {
    Bounds {
        in_use: shares.connections,
        per_user: requires_credentials.then_some(config.limits.connections_per_user),
    }
}

pub(crate) fn chat_settings(config: &Config) -> ChatSettings {
    ChatSettings {
        keep_recordings: config.live.keep_recordings,
        tool_timeout: config.tools.timeout.0,
        turn_time: config.limits.turn_time.0,
        files_per_request: config.limits.files_per_request,
    }
}

pub(crate) fn quota(config: &Config) -> Quota {
    Quota {
        in_all: config.limits.stored_bytes,
        per_user: config.limits.stored_bytes_per_user,
    }
}

pub(crate) fn allowed(
    config: &Config,
    requires_credentials: bool,
    turns: usize,
) -> AdmissionLimits {
    AdmissionLimits {
        turns,
        // Without logins there is only one user.
        turns_per_user: match requires_credentials {
            true => config.limits.turns_per_user,
            false => usize::MAX,
        },
        uploads_per_user: config.limits.uploads_per_user,
        refused_answers_per_minute: config.limits.refused_answers_per_minute,
        memory: process_memory::ceiling(config.limits.memory_bytes),
    }
}

/// The database of the configuration.
async fn open_store(config: &Config, data: &Arc<DataDir>) -> Result<OpenStore, StartError> {
    if let Some(url) = config.store.url.as_deref().filter(|_| config.is_shared()) {
        let store = PostgresStore::open(PostgresConfig {
            url,
            connections: config.store.connections,
            prepared_statements: config.store.prepared_statements,
        });
        let store = Arc::new(store.await.map_err(StartError::Database)?);
        return Ok(OpenStore {
            store: store.clone(),
            ownership: Some(store),
            is_own: true,
        });
    }
    let place = config.sqlite_path(data.path())?;
    // A bucket is looked at when its files are opened.
    let root = Files::root(&config.files, data)?;
    if let Some(root) = &root {
        Files::check_new_database(root, &place)?;
    }
    let store = SqliteStore::open_if(data.clone(), Some(&place), |found| match &root {
        Some(root) => Files::check_database(root, found),
        None => Ok(()),
    });
    Ok(OpenStore {
        store: Arc::new(store.await?),
        ownership: None,
        is_own: true,
    })
}

/// Replicas share a key that is in no database, so that a copy of the database alone tells nothing.
fn open_credentials(
    config: &Config,
    data: &DataDir,
    store: &Arc<dyn Store>,
) -> Result<Credentials, StoreError> {
    match config.cluster.shared_key().filter(|_| store.is_shared()) {
        Some(key) => Credentials::shared(&key, store.clone()),
        None => {
            if store.is_shared() {
                tracing::warn!(
                    "cluster.key is not set: what users grant to agents can be used by this replica only"
                );
            }
            Credentials::open(data, store.clone())
        }
    }
}

/// Makes this process one of several replicas.
async fn join(
    config: &Config,
    store: &dyn Store,
    ownership: Arc<dyn Ownership>,
    metrics: &Arc<Metrics>,
) -> Result<Arc<Cluster>, StartError> {
    let key = match config.cluster.shared_key() {
        Some(key) => key.into_bytes(),
        // Replicas on one machine share what the database keeps.
        None => {
            let mut fresh = [0; 32];
            getrandom::fill(&mut fresh).map_err(|error| StoreError::Io {
                doing: "making a key",
                why: Box::new(std::io::Error::other(error)),
            })?;
            store.secret(CLUSTER_KEY, &fresh).await?
        }
    };
    let me = config.replica()?;
    let lease = config.cluster.lease.0;
    Ok(Cluster::join(ownership, me, lease, key, metrics.clone()).await?)
}

async fn open_files(
    config: &Config,
    data: &DataDir,
    store: &Arc<dyn Store>,
) -> Result<Files, StartError> {
    let max_bytes = config.server.max_body_bytes as u64;
    let files = Files::open_configured(&config.files, data, store.clone(), max_bytes).await;
    let files = files.map_err(|error| match error {
        OpenError::Config(error) => StartError::Config(error),
        OpenError::Store(error) => StartError::Store(error),
    })?;
    Ok(files.bounded(quota(config)).await?)
}

/// All tools: those that the server was built with, and the demo's.
#[cfg_attr(
    not(feature = "demo"),
    expect(unused_variables, reason = "only the demo's tools depend on them")
)]
pub(crate) fn registry(
    tools: Vec<Arc<dyn ServerTool>>,
    client_tools: Vec<ToolSpec>,
    agent: &dyn Agent,
    directory: &Path,
) -> Result<ToolRegistry, ToolRegistryError> {
    let mut registry = ToolRegistry::default();
    for tool in tools {
        registry.add(tool, Offer::ByDefault)?;
    }
    for spec in client_tools {
        registry.add_client(spec, Offer::ByDefault)?;
    }
    #[cfg(feature = "demo")]
    crate::agent_kinds::demo::register_tools(&mut registry, agent, directory)?;
    Ok(registry)
}

/// The tools that the agent is offered, with their rules.
pub(crate) fn toolbox(
    config: &Config,
    agent: &dyn Agent,
    registry: &ToolRegistry,
    mcp: &McpServers,
) -> Result<Toolbox, StartError> {
    let limits = Limits {
        approval_timeout: config.approval.timeout.0,
        client_timeout: config.tools.client_timeout.0,
        max_steps: config.agent.max_steps,
        max_answer_bytes: config.server.max_answer_bytes,
    };
    let named = config.agent.tools.as_deref();
    let named = named.map(|names| mcp.without_own(names));
    let approval = mcp.without_own(&config.approval.tools);
    let mut offered = registry
        .offered(named.as_deref())
        .map_err(|unknown| ConfigError::value("agent.tools", unknown.to_string()))?;
    let own = config.agent.client_tools.iter().map(|tool| {
        let spec = ToolSpec::client(
            tool.name.clone(),
            tool.description.clone(),
            tool.input_schema.clone(),
        );
        ToolSpec {
            needs_approval: tool.approval,
            ..spec
        }
    });
    offered.client.extend(own);
    let toolbox = match agent.memory() {
        MemoryModel::Stateless => Toolbox::new(offered.server, offered.client, &approval, limits)?
            .offering(mcp.offered(config))?,
        MemoryModel::Session => {
            let server = offered.server.iter().map(|tool| tool.spec());
            match server.chain(&offered.client).next() {
                None => Toolbox::remote(config.approval.tools.clone(), limits),
                Some(spec) => return Err(StartError::OwnTools(spec.name.clone())),
            }
        }
    };
    Ok(match config.approval.may_ask {
        true => toolbox,
        false => toolbox.that_never_asks()?,
    })
}
