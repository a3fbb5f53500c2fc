//! A PostgreSQL server for tests, in a directory of its own, and pgbouncer in front of it.
//!
//! Both listen on a socket in that directory, so no port is taken. They are children of a shell that waits for the end of
//! its input: when the tests end, however they end, so do they, and the directory is removed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::process::PATIENCE;

/// Where Debian puts the programs of the server.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Fast, and as little as tests need. What a crash of the machine would lose is lost.
const SETTINGS: &str = "
listen_addresses = ''
max_connections = 300
shared_buffers = 64MB
fsync = off
full_page_writes = off
log_min_messages = fatal
";

/// A server.
pub struct Postgres {
    directory: PathBuf,
    programs: PathBuf,
    _supervisor: Supervisor,
}

/// pgbouncer in transaction mode, in front of a server.
pub struct Pgbouncer {
    directory: PathBuf,
    _supervisor: Supervisor,
}

/// Ends a server when this is dropped, or when the process ends.
struct Supervisor {
    shell: Child,
    stdin: Option<ChildStdin>,
}

impl Postgres {
    /// The server that all tests of this process share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Whether a server can be started on this machine.
    pub fn is_installed() -> bool {
        find_programs().is_some()
    }

    /// A server for one test, which may stop it.
    pub fn start() -> Self {
        let programs = programs();
        let directory = directory("postgres");
        let data = directory.join("data");
        let initdb = as_user(&programs.join("initdb"))
            .args([
                "--auth=trust",
                "--username=postgres",
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C",
            ])
            .arg("--pgdata")
            .arg(&data)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            initdb.status.success(),
            "{}",
            String::from_utf8_lossy(&initdb.stderr)
        );
        // Through the same user, to whom the file belongs.
        let settings = format!(
            "{SETTINGS}unix_socket_directories = '{}'\n",
            directory.display()
        );
        write_as_user(&data.join("postgresql.auto.conf"), &settings);
        let stop = format!(
            "'{}' --pgdata '{}' --mode immediate stop",
            programs.join("pg_ctl").display(),
            data.display()
        );
        let server = Self {
            _supervisor: Supervisor::start("", &stop, &directory),
            directory,
            programs,
        };
        server.resume();
        server
    }

    /// Keeps for long in memory what nobody waits for, so that a crash certainly loses it.
    #[must_use]
    pub fn forgetful(self) -> Self {
        self.sql("postgres", "ALTER SYSTEM SET wal_writer_delay = '10s'");
        self.stop(false);
        self.resume();
        self
    }

    /// Crashes and starts again.
    pub fn crash(&self) {
        self.stop(true);
        self.resume();
    }

    /// Makes an empty database, and returns its URL.
    pub fn database(&self) -> String {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("test{}", MADE.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        url(&self.directory, database)
    }

    /// Runs SQL, and returns what it prints: rows as lines, columns with `|` between them.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let done = Command::new(self.programs.join("psql"))
            .args([
                "--no-psqlrc",
                "--quiet",
                "--no-align",
                "--tuples-only",
                "--username=postgres",
            ])
            .arg("--host")
            .arg(&self.directory)
            .args([
                "--dbname",
                database,
                "--set=ON_ERROR_STOP=1",
                "--command",
                sql,
            ])
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{sql}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        String::from_utf8(done.stdout).unwrap()
    }

    /// Stops it: at once, as if it had crashed, or after its clients were informed.
    pub fn stop(&self, at_once: bool) {
        let mode = if at_once { "immediate" } else { "fast" };
        self.control(&["--mode", mode, "stop"]);
    }

    /// Starts it again.
    pub fn resume(&self) {
        let log = self.directory.join("log");
        self.control(&["--wait", "--log", log.to_str().unwrap(), "start"]);
    }

    fn control(&self, arguments: &[&str]) {
        let done = as_user(&self.programs.join("pg_ctl"))
            .arg("--pgdata")
            .arg(self.directory.join("data"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .status()
            .unwrap();
        let log = || std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        assert!(done.success(), "{arguments:?}: {}", log());
    }
}

impl Pgbouncer {
    /// The one that all tests of this process share, in front of the shared server.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Pgbouncer> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Postgres::shared()))
    }

    /// Few connections to the server, so that clients get each other's.
    pub fn start(server: &Postgres) -> Self {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"]
            .into_iter()
            .map(PathBuf::from)
            .find(|path| path.exists());
        let program = program.unwrap_or_else(|| missing("pgbouncer"));
        let directory = directory("pgbouncer");
        let settings = directory.join("pgbouncer.ini");
        let (at, of) = (directory.display(), server.directory.display());
        write_as_user(&directory.join("users.txt"), "\"postgres\" \"\"\n");
        write_as_user(
            &settings,
            &format!(
                "[databases]\n* = host={of} port=5432\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = {at}\n\
                 listen_port = 5432\nauth_type = trust\nauth_file = {at}/users.txt\npool_mode = transaction\n\
                 default_pool_size = 4\nmax_client_conn = 1000\nlogfile = {at}/log\npidfile = {at}/pid\n"
            ),
        );
        let run = format!("'{}' '{}' &\npid=$!", program.display(), settings.display());
        let started = Self {
            _supervisor: Supervisor::start(&run, "kill -INT $pid; wait $pid", &directory),
            directory,
        };
        let socket = started.directory.join(".s.PGSQL.5432");
        let until = Instant::now() + PATIENCE;
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            let log = || std::fs::read_to_string(started.directory.join("log")).unwrap_or_default();
            assert!(
                Instant::now() < until,
                "pgbouncer does not listen: {}",
                log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        started
    }

    /// The URL of a database through it.
    pub fn url(&self, database: &str) -> String {
        url(&self.directory, database)
    }
}

impl Supervisor {
    /// Runs something now, and something else at the end.
    fn start(run: &str, stop: &str, directory: &Path) -> Self {
        let script = format!(
            "{run}
cat >/dev/null; {{ {stop}; }} >/dev/null 2>&1; rm -rf '{}'",
            directory.display()
        );
        let mut shell = as_user(Path::new("/bin/sh"));
        let mut shell = own_group(&mut shell)
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = shell.stdin.take();
        Self { shell, stdin }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Ctrl-C ends the tests, and so their end of the pipe: the shell has work left to do.
fn own_group(command: &mut Command) -> &mut Command {
    std::os::unix::process::CommandExt::process_group(command, 0)
}

/// The name of a database in a URL of ours.
pub fn database_of(url: &str) -> &str {
    let (_, rest) = url.split_once("localhost/").unwrap();
    rest.split('?').next().unwrap()
}

fn url(directory: &Path, database: &str) -> String {
    format!(
        "postgres://postgres@localhost/{database}?host={}",
        directory.display()
    )
}

fn programs() -> PathBuf {
    find_programs().unwrap_or_else(|| missing("postgresql"))
}

/// Where the programs of the server are.
fn find_programs() -> Option<PathBuf> {
    let has_server = |directory: &PathBuf| {
        ["initdb", "pg_ctl", "postgres", "psql"]
            .iter()
            .all(|program| directory.join(program).exists())
    };
    let mut debian: Vec<PathBuf> = std::fs::read_dir(DEBIAN)
        .into_iter()
        .flatten()
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .collect();
    debian.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = debian.into_iter().rev().chain(std::env::split_paths(&path));
    found.find(has_server)
}

fn missing(package: &str) -> ! {
    panic!(
        "{package} is not installed: `cargo xtask test test` installs it on Debian, or run apt-get install {package}"
    )
}

/// PostgreSQL does not run as root.
fn as_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program);
    command.current_dir("/");
    command
}

fn write_as_user(path: &Path, text: &str) {
    let mut child = as_user(Path::new("/usr/bin/tee"))
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
}

/// A new directory that belongs to whom the server runs as. Its name is short, as that of a socket has to be.
fn directory(of: &str) -> PathBuf {
    let template = std::env::temp_dir().join(format!("adk-bridge-{of}-XXXXXX"));
    let made = as_user(Path::new("mktemp"))
        .arg("-d")
        .arg(template)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim_end())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout == b"0\n")
}
