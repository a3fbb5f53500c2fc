//! `adk-bridge doctor`: looks at this machine and at a configuration, and says what to do.
//!
//! The exit code is 0 if all is well, 1 if there are only warnings, 2 if there is a problem. Nothing is changed.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

use crate::check_config::{checked, is_writable, migrations, nearest, reach};
use crate::config::{Config, LogFormat, Overrides};
use crate::descriptors::{self, Shares};
use crate::findings::{self, Finding};
use crate::process_memory;
use crate::serve::file_of;
use crate::store::postgres::PostgresStore;
use crate::store::sqlite;
use crate::telemetry;

/// With less free than this, a day of conversations with files may fill a disk.
const LITTLE_ROOM: u64 = 1024 * 1024 * 1024;
/// A log that is larger is not being brought into the database.
const LONG_LOG: u64 = 512 * 1024 * 1024;
/// By how much the clocks of this machine and of the database may differ: approvals expire by them.
const CLOCK_SKEW: Duration = Duration::from_secs(1);
/// 1 January 2026: a clock that says less has not been set.
const NO_EARLIER: u64 = 1_767_225_600_000;
/// How long a server on the port may take to answer.
const LOCAL_TIME: Duration = Duration::from_secs(2);
/// How many files a turn has open at its agent, at most.
const PER_TURN: usize = 2;

pub fn run(file: Option<&Path>, overrides: &Overrides) -> anyhow::Result<ExitCode> {
    telemetry::set_up(LogFormat::Text);
    let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be started")?;
    let mut found = runtime.block_on(async {
        let mut found = vec![version()];
        let file = file_of(file);
        let (config, problems) = checked(file.as_deref(), overrides).await;
        found.extend(problems.iter().map(Finding::of_config));
        if problems.is_empty() {
            let says = file.map_or("the defaults".to_owned(), |it| it.display().to_string());
            found.push(Finding::fine(
                "configuration",
                format!("{says} can be used"),
            ));
        }
        found.push(open_files(&config));
        found.push(memory(&config));
        found.push(clock());
        found.extend(data_dir(&config));
        found.extend(database(&config).await);
        found.push(port(config.server.listen));
        if problems.is_empty() {
            found.extend(reach(&config).await);
        }
        found
    });
    findings::print(&mut found)?;
    Ok(findings::worst(&found).into())
}

fn version() -> Finding {
    let (version, os, processor) = (
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
    );
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Finding::fine(
        "version",
        format!("adk-bridge {version} on {os}, {processor}, {processors} processors"),
    )
}

fn open_files(config: &Config) -> Finding {
    let subject = "open files";
    let Some(limit) = descriptors::raise() else {
        return Finding::fine(subject, "there is no limit");
    };
    let wanted = Shares {
        connections: config.limits.connections,
        turns: config.limits.turns,
    };
    let Shares { connections, turns } = descriptors::shares(limit, wanted, PER_TURN);
    if (Shares { connections, turns }) == wanted {
        return Finding::fine(subject, format!("{limit} are enough for [limits]"));
    }
    Finding::warning(
        subject,
        format!(
            "only {limit} may be open, which is enough for {connections} connections and {turns} turns; raise the limit \
             (LimitNOFILE= of systemd, ulimit -Hn), or lower limits.connections and limits.turns"
        ),
    )
}

/// What clients can make the process hold, what there is, and when no further turn begins.
fn memory(config: &Config) -> Finding {
    let subject = "memory";
    let limits = &config.limits;
    let bound =
        limits.unfinished_bytes as u64 + limits.unread_bytes as u64 + limits.loaded_bytes as u64;
    let ceiling = match (limits.memory_bytes, process_memory::ceiling(None)) {
        (Some(bytes), _) => format!(
            "no turn begins beyond {} MiB (limits.memory_bytes)",
            mib(bytes)
        ),
        (None, Some(bytes)) => format!(
            "no turn begins beyond {} MiB, a share of what the container may use",
            mib(bytes)
        ),
        (None, None) => {
            "limits.memory_bytes is not set, and there is no container to take it from".to_owned()
        }
    };
    let Some(there) = memory_of_machine() else {
        let says = format!("[limits] allow {} MiB; {ceiling}", mib(bound));
        return Finding::fine(subject, says);
    };
    let says = format!(
        "[limits] allow clients {} MiB, and this process may use {} MiB",
        mib(bound),
        mib(there)
    );
    if bound > there / 4 * 3 {
        return Finding::warning(
            subject,
            format!(
                "{says}; lower limits.loaded_bytes, limits.unfinished_bytes and limits.unread_bytes, or give it more; {ceiling}"
            ),
        );
    }
    match limits.memory_bytes {
        Some(bytes) if bytes > there => Finding::warning(
            subject,
            format!(
                "limits.memory_bytes is {} MiB, and this process may use {} MiB: lower it, or it refuses nothing",
                mib(bytes),
                mib(there)
            ),
        ),
        _ => Finding::fine(subject, format!("{says}; {ceiling}")),
    }
}

/// The memory of the machine, or of the container.
fn memory_of_machine() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
        Some(kib * 1024)
    });
    let container = process_memory::container_limit();
    [container, machine].into_iter().flatten().min()
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

fn clock() -> Finding {
    match now() >= NO_EARLIER {
        true => Finding::fine("clock", "it is set"),
        false => Finding::problem(
            "clock",
            "it shows a time before 2026, so that tickets, signed URLs and approvals end at the wrong moment; start time \
             synchronisation",
        ),
    }
}

fn data_dir(config: &Config) -> Vec<Finding> {
    let (subject, path) = ("data directory", &config.server.data_dir);
    let shown = path.display();
    let Some(place) = nearest(path) else {
        return vec![Finding::problem(
            subject,
            format!("{shown} is below something that is not a directory; correct server.data_dir"),
        )];
    };
    let mut found = Vec::new();
    match (path.is_dir(), is_writable(&place)) {
        (true, true) => found.push(Finding::fine(subject, format!("{shown} can be written to"))),
        (false, true) => {
            found.push(Finding::fine(subject, format!("{shown} is made at the start")));
        }
        (_, false) => found.push(Finding::problem(
            subject,
            format!(
                "{} cannot be written to by this user; change its owner, or correct server.data_dir",
                place.display()
            ),
        )),
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(path).map_or(0, |found| found.permissions().mode());
        if mode & 0o077 != 0 {
            found.push(Finding::warning(
                subject,
                format!("others may look into {shown}; chmod 700 {shown}"),
            ));
        }
        if let Ok(disk) = rustix::fs::statvfs(&place) {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let says = format!("{} MiB are free", mib(free));
            found.push(match free {
                free if free < LITTLE_ROOM => Finding::problem(
                    "disk",
                    format!("only {says}; make room, or move server.data_dir"),
                ),
                free if free < config.limits.stored_bytes => Finding::warning(
                    "disk",
                    format!(
                        "{says}, less than limits.stored_bytes allows ({} MiB); lower that, or use a larger disk",
                        mib(config.limits.stored_bytes)
                    ),
                ),
                _ => Finding::fine("disk", says),
            });
        }
    }
    found
}

async fn database(config: &Config) -> Vec<Finding> {
    let subject = "database";
    if let Some(url) = config.store.url.as_deref().filter(|_| config.is_shared()) {
        let before = now();
        let looked = match PostgresStore::look(url).await {
            Ok(looked) => looked,
            Err(error) => return vec![Finding::problem(subject, error)],
        };
        let after = now();
        let says = migrations(looked.pending, looked.is_new);
        let mut found = vec![Finding::fine(subject, format!("{}: {says}", looked.place))];
        let skew = u64::try_from(CLOCK_SKEW.as_millis()).unwrap_or(u64::MAX);
        if looked.clock.saturating_add(skew) < before || looked.clock > after.saturating_add(skew) {
            let by = looked.clock.abs_diff(after);
            found.push(Finding::warning(
                "clock",
                format!(
                    "it differs from that of the database by {by} ms; synchronise both machines"
                ),
            ));
        }
        return found;
    }
    let path = match config.sqlite_path(&config.server.data_dir) {
        Ok(path) => path,
        Err(error) => return vec![Finding::of_config(&error)],
    };
    let looked = match sqlite::inspect(&path, true).await {
        Ok(Some(looked)) => looked,
        Ok(None) => {
            let says = format!("{} is made at the first start", path.display());
            return vec![Finding::fine(subject, says)];
        }
        Err(error) => return vec![Finding::problem(subject, error)],
    };
    let mut found = Vec::new();
    found.push(match &looked.damage {
        None => Finding::fine(
            subject,
            format!(
                "{} is sound ({} MiB), and {}",
                path.display(),
                mib(looked.bytes),
                migrations(looked.pending, false)
            ),
        ),
        Some(damage) => Finding::problem(
            subject,
            format!(
                "{} is damaged ({damage}); stop the bridge, keep a copy, and restore the last backup",
                path.display()
            ),
        ),
    });
    if looked.log_bytes > LONG_LOG {
        found.push(Finding::warning(
            subject,
            format!(
                "its log has {} MiB; a reader that never ends, or a full disk, keeps it from being shortened",
                mib(looked.log_bytes)
            ),
        ));
    }
    let skew = u64::try_from(CLOCK_SKEW.as_millis()).unwrap_or(u64::MAX);
    if looked
        .changed_last
        .is_some_and(|at| at > now().saturating_add(skew))
    {
        found.push(Finding::warning(
            "clock",
            "the newest chat is from the future: the clock was ahead, or is behind; synchronise it",
        ));
    }
    found
}

/// Whether the address can be bound, or a bridge listens there already.
fn port(listen: SocketAddr) -> Finding {
    let subject = "port";
    match TcpListener::bind(listen) {
        Ok(_) => Finding::fine(subject, format!("{listen} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => match is_bridge(listen) {
            true => Finding::fine(subject, format!("a bridge answers at {listen}")),
            false => Finding::problem(
                subject,
                format!("another program has {listen}; stop it, or correct server.listen"),
            ),
        },
        Err(error) => Finding::problem(
            subject,
            format!("{listen} cannot be bound ({error}); correct server.listen"),
        ),
    }
}

fn is_bridge(listen: SocketAddr) -> bool {
    let mut address = listen;
    if address.ip().is_unspecified() {
        address.set_ip(match address.is_ipv4() {
            true => std::net::Ipv4Addr::LOCALHOST.into(),
            false => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, LOCAL_TIME)?;
        stream.set_read_timeout(Some(LOCAL_TIME))?;
        stream.set_write_timeout(Some(LOCAL_TIME))?;
        write!(
            stream,
            "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )?;
        let mut answer = Vec::new();
        // More than a bridge's answer has.
        stream.take(4096).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    ask().is_ok_and(|answer| answer.contains("x-request-id: req_"))
}

fn mib(bytes: u64) -> u64 {
    bytes / (1024 * 1024)
}
