//! The servers under test: each runs in its own process on its own core, and the operating system reports its CPU time
//! and memory.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::{Add, Div, Sub};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use adk_bridge_testkit::postgres::Postgres;
use adk_bridge_testkit::process::Process;
use anyhow::{Context as _, bail};
use tempfile::TempDir;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::counter::{Counter, Counts};
use crate::reader::Shape;

/// The cores of the server and of the load, if there are two and `taskset` is installed.
const SERVER_CORE: &str = "0";
const LOAD_CORE: &str = "1";

/// Which server is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    Translator,
    /// The bridge, with its chats in SQLite.
    Bridge,
    /// The bridge, with its chats in PostgreSQL.
    Postgres,
    /// A replica that passes every request on to the replica that owns its chat. Only the first one is measured.
    Hop,
    /// A server of a front end, with the AI SDK of a version.
    AiSdk(u8),
    /// Google's own ADK server.
    GoogleAdk,
    /// Another build of the bridge.
    Other(PathBuf),
}

impl Kind {
    /// The servers that have a name.
    pub(crate) const KNOWN: [Self; 8] = [
        Self::Nginx,
        Self::Translator,
        Self::Bridge,
        Self::Postgres,
        Self::Hop,
        Self::AiSdk(6),
        Self::AiSdk(7),
        Self::GoogleAdk,
    ];

    /// Whether it is a build of the bridge.
    pub(crate) fn is_bridge(&self) -> bool {
        matches!(
            self,
            Self::Bridge | Self::Postgres | Self::Hop | Self::Other(_)
        )
    }

    /// Whether it takes ten times what others take, and more: a tenth of the load says enough.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self, Self::AiSdk(_) | Self::GoogleAdk)
    }

    fn shape(&self) -> Shape {
        match self {
            Self::Nginx => Shape::Gemini,
            Self::GoogleAdk => Shape::Adk,
            _ => Shape::Chunks,
        }
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Nginx => "nginx".to_owned(),
            Self::Translator => "translator".to_owned(),
            Self::Bridge => "adk-bridge".to_owned(),
            Self::Postgres => "adk-bridge-postgres".to_owned(),
            Self::Hop => "adk-bridge-hop".to_owned(),
            Self::AiSdk(version) => format!("node-ai-{version}"),
            Self::GoogleAdk => "google-adk".to_owned(),
            Self::Other(path) => path.display().to_string(),
        }
    }

    /// Why it cannot be measured on this machine, if so.
    pub(crate) fn obstacle(&self) -> Option<String> {
        let is_built = || bridge().is_ok_and(|path| path.is_file());
        let found = match self {
            Self::Nginx => Command::new("nginx")
                .arg("-v")
                .stderr(Stdio::null())
                .status()
                .is_ok(),
            Self::Translator => true,
            Self::Bridge => is_built(),
            Self::Postgres | Self::Hop => is_built() && Postgres::is_installed(),
            Self::AiSdk(version) => {
                let packages = project("web/bench-peers/node_modules");
                packages.join(format!("ai-{version}")).is_dir()
            }
            Self::GoogleAdk => python().is_ok_and(|path| path.is_file()),
            Self::Other(path) => path.is_file(),
        };
        (!found).then(|| match self {
            Self::Bridge => "not built: cargo build --release -p adk-bridge".to_owned(),
            Self::Postgres | Self::Hop => "not built, or PostgreSQL is not installed".to_owned(),
            Self::Other(_) => "no such file".to_owned(),
            Self::Nginx | Self::Translator => "not installed".to_owned(),
            Self::AiSdk(_) => "not installed: npm ci in web/bench-peers".to_owned(),
            Self::GoogleAdk => {
                "not installed: `cargo xtask test google` brings its packages".to_owned()
            }
        })
    }
}

/// A running server; dropping this ends it.
pub(crate) struct Server {
    process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) shape: Shape,
    owner: Option<Owner>,
    counter: Option<Counter>,
    spent: Mutex<Spent>,
    kept: Kept,
}

/// What a server writes to, and what outlives it.
pub(crate) struct Kept {
    directory: TempDir,
    /// The address of its database, if that is PostgreSQL.
    database: Option<String>,
}

impl Kept {
    pub(crate) fn new(kind: &Kind) -> anyhow::Result<Self> {
        let has_database = matches!(kind, Kind::Postgres | Kind::Hop);
        Ok(Self {
            directory: tempfile::tempdir()?,
            database: has_database.then(|| Postgres::shared().database()),
        })
    }
}

/// What the threads of a process have used. Of one that has ended, what it had used when it was last seen.
#[derive(Default)]
pub(crate) struct Spent {
    threads: HashMap<OsString, Used>,
    /// By threads whose number another one has got.
    ended: Used,
}

/// CPU time in microseconds, and how often a thread was exchanged for another one, because it waited or had to give way.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    pub(crate) micros: f64,
    pub(crate) switches: f64,
}

impl Add for Used {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            micros: self.micros + other.micros,
            switches: self.switches + other.switches,
        }
    }
}

impl Sub for Used {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            micros: self.micros - other.micros,
            switches: self.switches - other.switches,
        }
    }
}

impl Div<f64> for Used {
    type Output = Self;

    fn div(self, number: f64) -> Self {
        Self {
            micros: self.micros / number,
            switches: self.switches / number,
        }
    }
}

/// The replica that owns the chats of a measured one.
struct Owner {
    address: SocketAddr,
    _process: Process,
    _directory: TempDir,
}

/// A connection to the owner of a chat, who owns it as long as this is open.
pub(crate) struct Claim(#[expect(dead_code, reason = "held open")] Option<Socket>);

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

impl Server {
    /// Starts a fresh server in front of the stand-in.
    pub(crate) fn start(kind: &Kind, stand_in: SocketAddr) -> anyhow::Result<Self> {
        Self::start_with(kind, stand_in, None, &[], Kept::new(kind)?)
    }

    /// The same, with some keys of its configuration, named as in variables of the environment.
    pub(crate) fn start_configured(
        kind: &Kind,
        stand_in: SocketAddr,
        keys: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        Self::start_with(kind, stand_in, None, keys, Kept::new(kind)?)
    }

    /// Starts a bridge on what an earlier one has kept.
    pub(crate) fn start_on(kind: &Kind, stand_in: SocketAddr, kept: Kept) -> anyhow::Result<Self> {
        Self::start_with(kind, stand_in, None, &[], kept)
    }

    /// Ends it as a service manager does, and returns what it has kept.
    pub(crate) fn end(self) -> Kept {
        self.process.signal("-TERM");
        self.process.wait();
        self.kept
    }

    /// The same, with its instructions counted, which makes it some fifty times slower.
    pub(crate) fn start_counted(kind: &Kind, stand_in: SocketAddr) -> anyhow::Result<Self> {
        Self::start_with(kind, stand_in, Some(Counter::new()?), &[], Kept::new(kind)?)
    }

    fn start_with(
        kind: &Kind,
        stand_in: SocketAddr,
        counter: Option<Counter>,
        keys: &[(&str, String)],
        kept: Kept,
    ) -> anyhow::Result<Self> {
        let pinned = |program: &Path| pinned(program, counter.as_ref());
        let base_url = format!("http://{stand_in}");
        let Kept {
            directory,
            database,
        } = &kept;
        let owner = match (kind, database) {
            (Kind::Hop, Some(database)) => Some(Owner::start(&base_url, database)?),
            _ => None,
        };
        let (mut command, fixed) = match kind {
            Kind::Bridge | Kind::Postgres | Kind::Hop => {
                let mut command = pinned(&bridge()?);
                serve(&mut command, directory.path(), &base_url);
                if let Some(database) = database {
                    share(&mut command, "measured", database);
                }
                (command, None)
            }
            Kind::Other(program) => {
                let mut command = pinned(program);
                serve(&mut command, directory.path(), &base_url);
                (command, None)
            }
            Kind::Translator => {
                let mut command = pinned(&std::env::current_exe()?);
                command.args(["translator", &base_url]);
                (command, None)
            }
            Kind::AiSdk(version) => {
                let mut command = pinned(Path::new("node"));
                command
                    .arg(project("web/bench-peers/server.mjs"))
                    .args([&version.to_string(), &base_url])
                    .env("NODE_ENV", "production")
                    .stderr(Stdio::null());
                (command, None)
            }
            Kind::GoogleAdk => {
                let mut command = pinned(&python()?);
                command
                    .arg(project("python/bench_server.py"))
                    .arg(&base_url)
                    .env("PYTHONDONTWRITEBYTECODE", "1")
                    .current_dir(directory.path())
                    .stderr(Stdio::null());
                (command, None)
            }
            Kind::Nginx => {
                let address = free_address()?;
                let file = directory.path().join("nginx.conf");
                std::fs::write(&file, nginx_conf(address, stand_in, directory.path()))?;
                let mut command = pinned(Path::new("nginx"));
                command
                    .arg("-c")
                    .arg(&file)
                    .arg("-p")
                    .arg(directory.path())
                    .stderr(Stdio::null());
                (command, Some(address))
            }
        };
        for (name, value) in keys {
            command.env(format!("ADK_BRIDGE__{name}"), value);
        }
        let process = Process::launch(command.stdin(Stdio::null()));
        let (process, address) = match fixed {
            Some(address) => (process, wait_for(address)?),
            None => announced(process)?,
        };
        Ok(Self {
            process,
            address,
            shape: kind.shape(),
            owner,
            counter,
            spent: Mutex::default(),
            kept,
        })
    }

    /// Counts from here.
    pub(crate) fn begin_count(&self) -> anyhow::Result<()> {
        self.counter()?.begin(self.process.id())
    }

    /// What was executed since [`Self::begin_count`].
    pub(crate) fn end_count(&self) -> anyhow::Result<Counts> {
        self.counter()?.end(self.process.id())
    }

    fn counter(&self) -> anyhow::Result<&Counter> {
        self.counter.as_ref().context("nothing counts this server")
    }

    /// Has a chat owned by the replica that is not measured, if there is one.
    pub(crate) async fn claim(&self, chat: &str) -> anyhow::Result<Claim> {
        Ok(Claim(match &self.owner {
            Some(owner) => Some(open_live(owner.address, chat).await?),
            None => None,
        }))
    }

    /// The CPU time used so far, in microseconds.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        Ok(self.used()?.micros)
    }

    /// What it has used so far.
    pub(crate) fn used(&self) -> anyhow::Result<Used> {
        // Poisoning is ignored: numbers only grow.
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.look(self.process.id())?;
        Ok(spent.used())
    }

    /// The megabytes that it has read so far, from files and connections.
    pub(crate) fn read_megabytes(&self) -> anyhow::Result<f64> {
        let counts = self.read("io")?;
        let line = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
        let bytes: f64 = line.context("no count of what was read")?.parse()?;
        Ok(bytes / 1024.0 / 1024.0)
    }

    /// The memory in use, in megabytes.
    pub(crate) fn resident(&self) -> anyhow::Result<f64> {
        self.memory("VmRSS:")
    }

    /// The peak memory.
    pub(crate) fn peak(&self) -> anyhow::Result<f64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> anyhow::Result<f64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kilobytes: f64 = kilobytes.context("no such memory")?.trim().parse()?;
        Ok(kilobytes / 1024.0)
    }

    fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{file}", self.process.id());
        std::fs::read_to_string(&path)
            .with_context(|| format!("{path} cannot be read; this needs Linux"))
    }
}

impl Spent {
    /// Looks at the threads of a process. Linux counts the CPU time of a whole process in hundredths of a second, and that of
    /// each thread in nanoseconds.
    pub(crate) fn look(&mut self, process: u32) -> anyhow::Result<()> {
        let tasks = format!("/proc/{process}/task");
        let threads = std::fs::read_dir(&tasks)
            .with_context(|| format!("{tasks} cannot be read; this needs Linux"))?;
        for thread in threads {
            let thread = thread?;
            let read = |file| std::fs::read_to_string(thread.path().join(file));
            // One that has just ended.
            let (Ok(times), Ok(status)) = (read("schedstat"), read("status")) else {
                continue;
            };
            let nanos = times.split_whitespace().next();
            let nanos: f64 = nanos.context("a short schedstat line")?.parse()?;
            let used = Used {
                micros: nanos / 1e3,
                switches: switches(&status),
            };
            self.note(thread.file_name(), used);
        }
        Ok(())
    }

    fn note(&mut self, thread: OsString, used: Used) {
        match self.threads.insert(thread, used) {
            Some(before) if before.micros > used.micros => self.ended = self.ended + before,
            _ => {}
        }
    }

    pub(crate) fn used(&self) -> Used {
        self.threads.values().copied().fold(self.ended, Add::add)
    }
}

/// Both kinds of switches that the status of a thread counts: it waited, or had to give way.
fn switches(status: &str) -> f64 {
    let counts = status.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        name.ends_with("voluntary_ctxt_switches")
            .then(|| count.trim().parse().unwrap_or(0.0))
    });
    counts.sum()
}

impl Owner {
    /// On the core of the load.
    fn start(base_url: &str, database: &str) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut command = Command::new(bridge()?);
        serve(&mut command, directory.path(), base_url);
        share(&mut command, "owner", database);
        let (process, address) = announced(Process::launch(command.stdin(Stdio::null())))?;
        Ok(Self {
            address,
            _process: process,
            _directory: directory,
        })
    }
}

/// Opens a live connection of a chat.
pub(crate) async fn open_live(server: SocketAddr, chat: &str) -> anyhow::Result<Socket> {
    let url = format!("ws://{server}/live?chat={chat}");
    Ok(connect_async(url).await?.0)
}

/// The scripted Gemini in a separate process; dropping this ends it.
pub(crate) struct Model {
    _process: Process,
    pub(crate) address: SocketAddr,
}

impl Model {
    pub(crate) fn start() -> anyhow::Result<Self> {
        if let Some(obstacle) = Kind::Bridge.obstacle() {
            bail!("adk-bridge is {obstacle}");
        }
        let mut command = Command::new(bridge()?);
        command
            .args(["fake-gemini", "--pace=0ms"])
            .stdin(Stdio::null());
        let (process, address) = announced(Process::launch(&mut command))?;
        Ok(Self {
            _process: process,
            address,
        })
    }
}

/// Moves this process to the core of the load.
pub(crate) fn pin_load() {
    if has_two_cores() {
        let id = std::process::id().to_string();
        // Without `taskset` the numbers are noisier, but still right.
        let _ = Command::new("taskset")
            .args(["-p", "-c", LOAD_CORE, &id])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// Lets this process, and those that it starts, have as many open files as a crowd needs. Returns how many they have.
pub(crate) fn allow_open_files(wanted: usize) -> anyhow::Result<usize> {
    let id = std::process::id().to_string();
    // Only root may have more than the system's administrator allows.
    let _ = Command::new("prlimit")
        .args(["--pid", &id, &format!("--nofile={wanted}:{wanted}")])
        .stderr(Stdio::null())
        .status();
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    Ok(soft.context("no limit of open files")?.parse()?)
}

/// The bridge in front of a model without tools: earlier versions offer the demo's tools by default.
fn serve(command: &mut Command, data: &Path, base_url: &str) {
    command
        .args([
            "serve",
            "--agent=gemini",
            "--listen=127.0.0.1:0",
            "--data-dir",
        ])
        .arg(data)
        .env("ADK_BRIDGE__AGENT__BASE_URL", base_url)
        .env("ADK_BRIDGE__AGENT__API_KEY_ENV", "BENCH_KEY")
        .env("ADK_BRIDGE__AGENT__TOOLS", "[]")
        // A crowd is one user here.
        .env("ADK_BRIDGE__LIMITS__CONNECTIONS", "60000")
        .env("ADK_BRIDGE__LIMITS__TURNS", "20000")
        .env("BENCH_KEY", "bench")
        .stderr(Stdio::null());
}

/// Makes a bridge one of several on a database.
fn share(command: &mut Command, name: &str, database: &str) {
    command
        .env("ADK_BRIDGE__STORE__URL", database)
        .env("ADK_BRIDGE__CLUSTER__NAME", name);
}

fn pinned(program: &Path, counter: Option<&Counter>) -> Command {
    let mut words: Vec<OsString> = counter.map(Counter::wrapper).unwrap_or_default();
    words.push(program.into());
    let taskset = || {
        Command::new("taskset")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok()
    };
    if taskset() {
        let mut command = Command::new("taskset");
        command.args(["-c", SERVER_CORE]).args(words);
        command
    } else {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }
}

fn has_two_cores() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
}

/// The server's binary is in the same directory as this one.
fn bridge() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.with_file_name("adk-bridge"))
}

/// A path of the project's sources.
fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// The Python that has Google's packages is in the directory of the builds.
fn python() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let builds = own.ancestors().nth(2);
    Ok(builds
        .context("this program is not in a directory of builds")?
        .join("venv/bin/python"))
}

fn announced(process: Process) -> anyhow::Result<(Process, SocketAddr)> {
    let process = process.listening();
    let process = process.context("the server ended before it listened")?;
    let address = process.address();
    Ok((process, address))
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

fn wait_for(address: SocketAddr) -> anyhow::Result<SocketAddr> {
    for _ in 0..100 {
        if TcpStream::connect(address).is_ok() {
            return Ok(address);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("nothing listens at {address}")
}

/// A single process that passes on bytes as they arrive.
fn nginx_conf(listen: SocketAddr, stand_in: SocketAddr, directory: &Path) -> String {
    let directory = directory.display();
    format!(
        "daemon off; master_process off; pid {directory}/pid; error_log /dev/null;
events {{ worker_connections 32768; }}
http {{
  access_log off;
  client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi; uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;
  client_max_body_size 16m; client_body_buffer_size 1m; keepalive_requests 1000000;
  upstream model {{ server {stand_in}; keepalive 64; keepalive_requests 1000000; }}
  server {{
    listen {listen};
    location / {{
      proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_buffering off;
    }}
  }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_have_ended_are_not_forgotten() {
        let mut spent = Spent::default();
        for (thread, micros, switches, expected) in [
            ("1", 5.0, 1.0, (5.0, 1.0)),
            ("2", 2.0, 2.0, (7.0, 3.0)),
            ("1", 6.0, 4.0, (8.0, 6.0)),
            // Its number was given to another one.
            ("2", 1.0, 1.0, (9.0, 7.0)),
        ] {
            spent.note(thread.into(), Used { micros, switches });
            let used = spent.used();
            assert!((used.micros - expected.0).abs() < 1e-9, "{used:?}");
            assert!((used.switches - expected.1).abs() < 1e-9, "{used:?}");
        }
    }

    #[test]
    fn both_kinds_of_switches_count() {
        let status =
            "Name:\tbridge\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        assert!((switches(status) - 42.0).abs() < 1e-9);
        assert!(switches("").abs() < 1e-9);
    }
}
