//! Runs programs: with their output kept in a log and a sign of life, or in place of this one.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::report;

/// One program of a step may take this long; a hanging one must not eat the whole of CI's time.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// How often a running program is looked at: short enough that quick ones do not seem slow.
const POLL: Duration = Duration::from_millis(40);

/// On a terminal the newest line of output is shown this often.
const GLANCE: Duration = Duration::from_millis(500);

/// Where no terminal is, a line is printed this often, so that nobody thinks the run is dead.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// Wide enough to recognise a line, short enough not to wrap.
const GLANCE_WIDTH: usize = 90;

/// The output of one step: what its programs printed, in order.
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    is_watched: bool,
}

impl Log {
    /// Starts an empty log.
    pub(crate) fn create(path: PathBuf) -> Result<Self, String> {
        let describe = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(describe)?;
        }
        File::create(&path).map_err(describe)?;
        // Appending lets standard output and standard error share the file without overwriting.
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(describe)?;
        Ok(Self {
            path,
            file,
            is_watched: true,
        })
    }

    /// Shows no sign of life, which another program may write over.
    pub(crate) fn in_background(self) -> Self {
        Self {
            is_watched: false,
            ..self
        }
    }

    /// Adds a line of our own.
    pub(crate) fn note(&mut self, line: &str) {
        // A log that cannot be written shows up as an empty one; the step's result stands.
        let _ = writeln!(self.file, "{line}");
    }

    /// Everything that was printed.
    pub(crate) fn text(&self) -> String {
        std::fs::read(&self.path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Runs a program to its end, without standard input, its output going to this log.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result<(), String> {
        let shown = shown(command);
        self.note(&format!("$ {shown}"));
        let copy = |file: &File| {
            file.try_clone()
                .map_err(|e| format!("cannot write {}: {e}", self.path.display()))
        };
        let mut child = command
            .stdin(Stdio::null())
            .stdout(copy(&self.file)?)
            .stderr(copy(&self.file)?)
            .spawn()
            .map_err(|e| format!("cannot start `{shown}`: {e}"))?;
        let started = Instant::now();
        let mut watch = Watch::new(&self.path, started);
        loop {
            match child.try_wait() {
                Ok(Some(status)) => {
                    watch.clear();
                    return if status.success() {
                        Ok(())
                    } else {
                        Err(format!("`{shown}` failed: {status}"))
                    };
                }
                Ok(None) if started.elapsed() > LIMIT => {
                    watch.clear();
                    // The wait reaps the process; what it started itself may live on.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!(
                        "`{shown}` was stopped: it ran for more than {}",
                        report::duration(LIMIT)
                    ));
                }
                Ok(None) => {
                    if self.is_watched {
                        watch.tick();
                    }
                    std::thread::sleep(POLL);
                }
                Err(e) => return Err(format!("cannot wait for `{shown}`: {e}")),
            }
        }
    }
}

/// What a program prints on standard output, if it can be started and succeeds.
pub(crate) fn answer(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A command for a program that may be a script on Windows, such as npm.
pub(crate) fn script(name: &str) -> Command {
    if cfg!(windows) {
        Command::new(format!("{name}.cmd"))
    } else {
        Command::new(name)
    }
}

/// The cargo that started this program.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    without_package(&mut cargo);
    cargo
}

/// Hides what cargo tells this program of its package: build scripts that read it would run again, and everything behind
/// them be built again, whenever somebody calls cargo without this program in between.
pub(crate) fn without_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let of_package =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(of_package) {
            command.env_remove(name);
        }
    }
}

/// Runs a program to its end, its output being this one's.
pub(crate) fn finish(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{}` failed: {status}", shown(command))),
        Err(e) => Err(format!("cannot start `{}`: {e}", shown(command))),
    }
}

/// Lets a program take this one's place, so that signals and the exit code are its own.
#[cfg(unix)]
pub(crate) fn become_program(command: &mut Command) -> Result<ExitCode, String> {
    use std::os::unix::process::CommandExt as _;
    let problem = command.exec();
    Err(format!("cannot start `{}`: {problem}", shown(command)))
}

/// Runs a program to its end and hands on its exit code.
#[cfg(not(unix))]
pub(crate) fn become_program(command: &mut Command) -> Result<ExitCode, String> {
    let status = command
        .status()
        .map_err(|e| format!("cannot start `{}`: {e}", shown(command)))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut line = program
        .file_name()
        .unwrap_or(command.get_program())
        .to_string_lossy()
        .into_owned();
    for argument in command.get_args() {
        let _ = write!(line, " {}", argument.to_string_lossy());
    }
    line
}

/// Shows that a program is alive.
struct Watch<'a> {
    log: &'a Path,
    started: Instant,
    next: Instant,
    terminal: bool,
    drawn: bool,
}

impl<'a> Watch<'a> {
    fn new(log: &'a Path, started: Instant) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let first = if terminal { GLANCE } else { HEARTBEAT };
        Self {
            log,
            started,
            next: started + first,
            terminal,
            drawn: false,
        }
    }

    fn tick(&mut self) {
        if Instant::now() < self.next {
            return;
        }
        let elapsed = report::duration(self.started.elapsed());
        let line = last_line(self.log).unwrap_or_default();
        if self.terminal {
            self.next += GLANCE;
            print!("\r\x1b[2K      {elapsed}  {line}");
            let _ = std::io::stdout().flush();
            self.drawn = true;
        } else {
            self.next += HEARTBEAT;
            println!("      still running after {elapsed}: {line}");
        }
    }

    fn clear(&mut self) {
        if self.drawn {
            print!("\r\x1b[2K");
            let _ = std::io::stdout().flush();
            self.drawn = false;
        }
    }
}

fn last_line(log: &Path) -> Option<String> {
    const TAIL: u64 = 1024;
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))
        .ok()?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).ok()?;
    let text = String::from_utf8_lossy(&tail);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(
        line.chars()
            .filter(|c| !c.is_control())
            .take(GLANCE_WIDTH)
            .collect(),
    )
}
