//! Replicas in one process, with one store and a table of owners in memory; each has threads of its own and can be killed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use adk_bridge::agents::tool::{ServerTool, ToolCall, ToolSpec};
use adk_bridge::cluster::{
    Claim, Epoch, Heartbeat, Instance, Joined, Orphan, OwnedChat, Ownership, Peer,
    Replica as Member,
};
use adk_bridge::config::{Config, Overrides};
use adk_bridge::protocol::calls::Outcome;
use adk_bridge::protocol::id::{ChatId, UserId};
use adk_bridge::protocol::time::Timestamp;
use adk_bridge::store::sqlite::SqliteStore;
use adk_bridge::store::{ChatRef, DataDir, Pending, Store, StoreError};
use adk_bridge::{Server, ServerBuilder};
use adk_bridge_testkit::http::{Answer, Connection, Response};
use adk_bridge_testkit::users::{ALICE, KEYS};
use adk_bridge_testkit::{JSON, asking, within};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// The shortest that the configuration allows.
pub const LEASE: Duration = Duration::from_secs(3);
/// The time between two pieces of an answer.
const PACE: Duration = Duration::from_millis(5);

/// Several replicas, and what they share.
pub struct Fleet {
    directory: TempDir,
    store: Arc<SqliteStore>,
    pub owners: Arc<Owners>,
}

/// One running replica; dropping it is like `kill -9`.
pub struct Replica {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Fleet {
    pub async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let data = Arc::new(DataDir::open(&directory.path().join("shared")).unwrap());
        let store = SqliteStore::open(data, None).await.unwrap();
        Self {
            directory,
            store: Arc::new(store),
            owners: Arc::default(),
        }
    }

    /// Two replicas with these additions to the configuration.
    pub async fn pair(toml: &str) -> (Self, Replica, Replica) {
        let fleet = Self::new().await;
        let (a, b) = (fleet.start("a", toml).await, fleet.start("b", toml).await);
        (fleet, a, b)
    }

    /// Starts a replica, with Alice's and Bob's keys.
    pub async fn start(&self, name: &str, toml: &str) -> Replica {
        self.start_with(name, toml, |builder| builder).await
    }

    /// The same; `change` adds to what it is built of.
    pub async fn start_with(
        &self,
        name: &str,
        toml: &str,
        change: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Replica {
        let file = self.directory.path().join(format!("{name}.toml"));
        std::fs::write(&file, format!("{toml}\n{KEYS}")).unwrap();
        let mut config = Config::load(Some(&file), &Overrides::default()).unwrap();
        config.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.server.data_dir = self.directory.path().join(name);
        config.demo.pace.0 = PACE;
        config.cluster.lease.0 = LEASE;
        let builder = change(Server::builder().config(config))
            .tool(Endless::default())
            .shared_store(self.store.clone(), self.owners.clone());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (said, address) = oneshot::channel();
        runtime.spawn(async move {
            let server = builder.build().await.unwrap();
            said.send(server.address()).unwrap();
            server.serve_until(async { drop(stopped.await) }).await
        });
        Replica {
            address: within(address).await.unwrap(),
            stop: Some(stop),
            runtime: Some(runtime),
        }
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }
}

/// A tool that runs until its replica ends.
struct Endless(ToolSpec);

impl Default for Endless {
    fn default() -> Self {
        Self(ToolSpec::server(
            "endless",
            "Never ends.",
            json!({"type": "object"}),
        ))
    }
}

impl ServerTool for Endless {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn run(&self, _: ToolCall) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Replica {
    /// Asks it to stop, as an operating system does.
    pub fn terminate(&mut self) {
        drop(self.stop.take());
    }

    pub async fn send(&self, method: &str, path: &str, body: impl AsRef<[u8]>) -> Response {
        self.send_with(method, path, &[ALICE, JSON], body).await
    }

    pub async fn send_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Response {
        let mut connection = Connection::open(self.address).await;
        connection
            .request(method, path, headers, body.as_ref())
            .await;
        connection.answer(method).await.whole().await
    }

    pub async fn open(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut connection = Connection::open(self.address).await;
        let headers = [ALICE, JSON];
        connection
            .request(method, path, &headers, body.as_bytes())
            .await;
        connection.answer(method).await
    }

    pub async fn ask(&self, chat: &str, text: &str) -> Answer {
        let body = asking(chat, text).to_string();
        self.open("POST", "/api/chat", &body).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, body.to_string()).await
    }

    /// A counter of its `/metrics`.
    pub async fn count(&self, name: &str) -> u64 {
        let metrics = self.send("GET", "/metrics", "").await;
        let text = String::from_utf8(metrics.body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let count = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        count.trim().parse().unwrap()
    }
}

/// Who owns which chat, in memory.
#[derive(Default)]
pub struct Owners(Mutex<State>);

#[derive(Default)]
struct State {
    /// Each with its last heartbeat.
    members: HashMap<Instance, (Peer, Instant, bool)>,
    owned: HashMap<(UserId, ChatId), (Option<Instance>, u64)>,
    /// What every claim is answered, for tests of what should not happen.
    lie: Option<Peer>,
    /// What claims wait for after they have succeeded, as answers of a slow database.
    slowness: Option<Arc<tokio::sync::Mutex<()>>>,
}

impl State {
    fn is_alive(&self, instance: &Instance) -> bool {
        let member = self.members.get(instance);
        member.is_some_and(|(_, heard, _)| heard.elapsed() < LEASE)
    }

    fn owner(&self, chat: ChatRef<'_>) -> Option<Peer> {
        let key = (chat.user.clone(), chat.id.clone());
        let (owner, _) = self.owned.get(&key)?;
        let owner = owner.as_ref().filter(|owner| self.is_alive(owner))?;
        Some(self.members[owner].0.clone())
    }

    fn now() -> Timestamp {
        adk_bridge::chat::now()
    }
}

impl Owners {
    /// The name of a chat's owner.
    pub fn owner_of(&self, chat: &str) -> Option<SocketAddr> {
        let (user, id) = (UserId::from("alice"), ChatId::from(chat));
        let state = self.0.lock().unwrap();
        let owner = state.owner(ChatRef {
            user: &user,
            id: &id,
        })?;
        Some(owner.address.socket_addrs(|| None).unwrap()[0])
    }

    /// Gives a chat to a replica that has not asked for it.
    pub fn give(&self, chat: &str, to: SocketAddr) {
        let mut state = self.0.lock().unwrap();
        let is_meant = |peer: &Peer| peer.address.port() == Some(to.port());
        let mut members = state.members.iter();
        let instance = members.find_map(|(it, (peer, ..))| is_meant(peer).then(|| it.clone()));
        let key = (UserId::from("alice"), ChatId::from(chat));
        let (owner, epoch) = state.owned.entry(key).or_default();
        (*owner, *epoch) = (instance, *epoch + 1);
    }

    /// Claims succeed from now on, and are answered when what is returned is dropped.
    pub fn delay_claims(&self) -> tokio::sync::OwnedMutexGuard<()> {
        let slowness: Arc<tokio::sync::Mutex<()>> = Arc::default();
        let held = slowness.clone().try_lock_owned().unwrap();
        self.0.lock().unwrap().slowness = Some(slowness);
        held
    }

    /// Says from now on that this replica owns every chat.
    pub fn lie(&self, address: Option<SocketAddr>) {
        let mut state = self.0.lock().unwrap();
        state.lie = address.map(|address| Peer {
            name: "nowhere".into(),
            address: format!("http://{address}").parse().unwrap(),
        });
    }
}

fn done<'a, T: Send + 'a>(value: T) -> Pending<'a, T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Ownership for Owners {
    fn join<'a>(&'a self, me: &'a Member) -> Pending<'a, Joined> {
        let mut state = self.0.lock().unwrap();
        let member = (me.peer.clone(), Instant::now(), false);
        state.members.insert(me.instance.clone(), member);
        done(Joined::Member { now: State::now() })
    }

    fn heartbeat<'a>(&'a self, me: &'a Member, draining: bool) -> Pending<'a, Heartbeat> {
        let mut state = self.0.lock().unwrap();
        if !state.is_alive(&me.instance) {
            return done(Heartbeat::Dead);
        }
        let member = (me.peer.clone(), Instant::now(), draining);
        state.members.insert(me.instance.clone(), member);
        let others = state.members.iter();
        let others = others.filter(|(instance, (_, _, draining))| {
            **instance != me.instance && !draining && state.is_alive(instance)
        });
        done(Heartbeat::Alive {
            now: State::now(),
            peers: others.map(|(_, (peer, ..))| peer.clone()).collect(),
        })
    }

    fn leave<'a>(&'a self, me: &'a Member) -> Pending<'a, ()> {
        self.0.lock().unwrap().members.remove(&me.instance);
        done(())
    }

    fn take<'a>(&'a self, chat: ChatRef<'a>, me: &'a Member) -> Pending<'a, Claim> {
        let mut state = self.0.lock().unwrap();
        if let Some(lie) = &state.lie {
            return done(Claim::OwnedBy(lie.clone()));
        }
        if !state.is_alive(&me.instance) {
            return Box::pin(std::future::ready(Err(StoreError::Fenced)));
        }
        match state.owner(chat) {
            Some(owner) if owner != me.peer => done(Claim::OwnedBy(owner)),
            _ => {
                let key = (chat.user.clone(), chat.id.clone());
                let (owner, epoch) = state.owned.entry(key).or_default();
                *owner = Some(me.instance.clone());
                *epoch += 1;
                let mine = Claim::Mine {
                    epoch: Epoch::new(*epoch),
                    silent: None,
                };
                let slowness = state.slowness.clone().unwrap_or_default();
                Box::pin(async move {
                    let _ = slowness.lock().await;
                    Ok(mine)
                })
            }
        }
    }

    fn release<'a>(&'a self, chat: ChatRef<'a>, epoch: Epoch, _me: &'a Member) -> Pending<'a, ()> {
        let key = (chat.user.clone(), chat.id.clone());
        let mut state = self.0.lock().unwrap();
        if let Some((owner, current)) = state.owned.get_mut(&key)
            && *current == epoch.get()
        {
            *owner = None;
        }
        done(())
    }

    fn orphans(&self, _limit: u32) -> Pending<'_, Vec<Orphan>> {
        done(Vec::new())
    }

    fn owned<'a>(
        &'a self,
        me: &'a Member,
        after: Epoch,
        _limit: u32,
    ) -> Pending<'a, Vec<OwnedChat>> {
        let state = self.0.lock().unwrap();
        let mine = state.owned.iter().filter(|(_, (owner, epoch))| {
            owner.as_ref() == Some(&me.instance) && *epoch > after.get()
        });
        let mine = mine.map(|((user, chat_id), (_, epoch))| OwnedChat {
            user: user.clone(),
            chat_id: chat_id.clone(),
            epoch: Epoch::new(*epoch),
        });
        done(mine.collect())
    }

    fn owner<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Option<Peer>> {
        let state = self.0.lock().unwrap();
        done(state.lie.clone().or_else(|| state.owner(chat)))
    }
}
