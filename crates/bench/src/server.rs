//! The servers under test: each runs in its own process on its own core, and the operating system reports its CPU time
//! and memory.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener, TcpStream};
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
    /// Another build of the bridge.
    Other(PathBuf),
}

impl Kind {
    /// The servers that have a name.
    pub(crate) const KNOWN: [Self; 5] = [
        Self::Nginx,
        Self::Translator,
        Self::Bridge,
        Self::Postgres,
        Self::Hop,
    ];

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Nginx => "nginx".to_owned(),
            Self::Translator => "translator".to_owned(),
            Self::Bridge => "adk-bridge".to_owned(),
            Self::Postgres => "adk-bridge-postgres".to_owned(),
            Self::Hop => "adk-bridge-hop".to_owned(),
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
            Self::Other(path) => path.is_file(),
        };
        (!found).then(|| match self {
            Self::Bridge => "not built: cargo build --release -p adk-bridge".to_owned(),
            Self::Postgres | Self::Hop => "not built, or PostgreSQL is not installed".to_owned(),
            Self::Other(_) => "no such file".to_owned(),
            Self::Nginx | Self::Translator => "not installed".to_owned(),
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
    _directory: TempDir,
}

/// The CPU time of the threads of a process, in nanoseconds. Of one that has ended, what it had used when it was last seen.
#[derive(Default)]
struct Spent {
    threads: HashMap<OsString, u64>,
    /// Of threads whose number another one has got.
    ended: u64,
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
        Self::start_with(kind, stand_in, None, &[])
    }

    /// The same, with some limits of its own.
    pub(crate) fn start_limited(
        kind: &Kind,
        stand_in: SocketAddr,
        limits: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        Self::start_with(kind, stand_in, None, limits)
    }

    /// The same, with its instructions counted, which makes it some fifty times slower.
    pub(crate) fn start_counted(kind: &Kind, stand_in: SocketAddr) -> anyhow::Result<Self> {
        Self::start_with(kind, stand_in, Some(Counter::new()?), &[])
    }

    fn start_with(
        kind: &Kind,
        stand_in: SocketAddr,
        counter: Option<Counter>,
        limits: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        let pinned = |program: &Path| pinned(program, counter.as_ref());
        let directory = tempfile::tempdir()?;
        let base_url = format!("http://{stand_in}");
        let (owner, database) = match kind {
            Kind::Postgres => (None, Some(Postgres::shared().database())),
            Kind::Hop => {
                let database = Postgres::shared().database();
                (Some(Owner::start(&base_url, &database)?), Some(database))
            }
            _ => (None, None),
        };
        let (mut command, fixed) = match kind {
            Kind::Bridge | Kind::Postgres | Kind::Hop => {
                let mut command = pinned(&bridge()?);
                serve(&mut command, directory.path(), &base_url);
                if let Some(database) = &database {
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
        for (name, value) in limits {
            command.env(format!("ADK_BRIDGE__LIMITS__{name}"), value);
        }
        let process = Process::launch(command.stdin(Stdio::null()));
        let (process, address) = match fixed {
            Some(address) => (process, wait_for(address)?),
            None => announced(process)?,
        };
        Ok(Self {
            process,
            address,
            shape: if *kind == Kind::Nginx {
                Shape::Gemini
            } else {
                Shape::Chunks
            },
            owner,
            counter,
            spent: Mutex::default(),
            _directory: directory,
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

    /// The CPU time used so far, in microseconds. Linux counts that of a whole process in hundredths of a second, and that of
    /// each thread in nanoseconds.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        let tasks = format!("/proc/{}/task", self.process.id());
        let threads = std::fs::read_dir(&tasks)
            .with_context(|| format!("{tasks} cannot be read; this needs Linux"))?;
        // Poisoning is ignored: numbers only grow.
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads {
            let thread = thread?;
            // One that has just ended.
            let Ok(stat) = std::fs::read_to_string(thread.path().join("schedstat")) else {
                continue;
            };
            let nanos = stat
                .split_whitespace()
                .next()
                .and_then(|it| it.parse().ok());
            spent.note(thread.file_name(), nanos.context("a short schedstat line")?);
        }
        Ok(spent.micros())
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
    fn note(&mut self, thread: OsString, nanos: u64) {
        match self.threads.insert(thread, nanos) {
            Some(before) if before > nanos => self.ended += before,
            _ => {}
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a float holds hours of nanoseconds exactly"
    )]
    fn micros(&self) -> f64 {
        (self.ended + self.threads.values().sum::<u64>()) as f64 / 1e3
    }
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

/// Lets this process, and those that it starts, have as many open files as a crowd needs. Returns how many it has.
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
        for (thread, nanos, micros) in [("1", 5_000, 5.0), ("2", 2_000, 7.0), ("1", 6_000, 8.0)] {
            spent.note(thread.into(), nanos);
            assert!((spent.micros() - micros).abs() < 1e-9);
        }
        // Its number was given to another one.
        spent.note("2".into(), 1_000);
        assert!((spent.micros() - 9.0).abs() < 1e-9);
    }
}
