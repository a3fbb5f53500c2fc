//! One of our programs in a separate process, which prints where it accepts requests.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// A test that waits longer hangs; a busy machine may need most of this time.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test: cargo builds it for the tests of its package, and says where it is.
pub fn binary() -> PathBuf {
    let known = std::env::var_os("CARGO_BIN_EXE_adk-bridge").map(PathBuf::from);
    known.unwrap_or_else(|| {
        // A test that is started without cargo is in `deps`, below the program.
        let test = std::env::current_exe().unwrap();
        test.parent().unwrap().with_file_name("adk-bridge")
    })
}

/// Runs a program that must refuse to start, and returns its message.
pub fn refusal(command: &mut Command) -> String {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    if !line.is_empty() {
        let _ = child.kill();
    }
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(line, "", "it started: {said}");
    assert_eq!(done.status.code(), Some(1), "{said}");
    said
}

/// A running program; dropping this kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Empty until the program has printed where it listens.
    url: String,
}

impl Process {
    /// Starts a program and waits until it accepts requests; `None` if it ends before.
    pub fn start(command: &mut Command) -> Option<Self> {
        Self::launch(command).listening()
    }

    /// Starts a program without waiting for it.
    pub fn launch(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        Self {
            child,
            url: String::new(),
        }
    }

    /// Waits until it accepts requests; `None` if it ends before, or prints something else.
    pub fn listening(mut self) -> Option<Self> {
        let stdout = self.child.stdout.take()?;
        let (said, first_line) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            // If the test has failed meanwhile, the receiver is gone.
            let _ = said.send(read.map(|_| line));
        });
        let line = first_line.recv_timeout(PATIENCE);
        let line = line.expect("the program neither listens nor ends").unwrap();
        self.url = line.trim_end().strip_prefix("listening on ")?.to_owned();
        Some(self)
    }

    /// Where it listens, with `http://` in front.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn address(&self) -> SocketAddr {
        self.url.trim_start_matches("http://").parse().unwrap()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as `-TERM`.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let done = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(done.success());
    }

    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn is_alive(&mut self) -> bool {
        self.ended().is_none()
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end, which something else causes.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// The memory that is really in use, in bytes.
    pub fn memory(&self) -> usize {
        self.count("status", "VmRSS:") * 1024
    }

    /// The most memory in use since the last [`Self::forget_peak`].
    pub fn peak(&self) -> usize {
        self.count("status", "VmHWM:") * 1024
    }

    pub fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.id()), "5").unwrap();
    }

    /// A number that the operating system reports about it.
    pub fn count(&self, file: &str, name: &str) -> usize {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.unwrap().trim().trim_end_matches(" kB");
        number.parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
