//! A program that speaks MCP over its standard input and output, one JSON text per line.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adk_bridge_protocol::wire::json;
use bytes::BytesMut;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage, ServerNotification};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::MAX_MESSAGE_BYTES;
use super::ending::Ending;
use super::questions::RunningCalls;

/// What a program gets of the bridge's environment. Nothing else: keys of models and of users are in it.
const INHERITED: &[&str] = &[
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    // Without these, programs do not start on Windows.
    "APPDATA",
    "LOCALAPPDATA",
    "PATHEXT",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
];
/// How long a program may take to read a message that it is sent. A pipe holds 64 kB, so it reads nothing at all.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// How long a program may take to end after its input was closed, and after it was asked to end.
const END_TIME: Duration = Duration::from_secs(1);
/// How many of its requests a program may leave unread answers to.
const MAX_UNANSWERED: usize = 64;
/// How much of a line of a program's error output is logged.
const MAX_LOG_LINE: usize = 1000;
/// How much is read at once.
const READ_BYTES: usize = 16 * 1024;

/// A started program.
pub(super) struct ChildTransport {
    process: Process,
    lines: Lines<ChildStdout>,
    input: Arc<Mutex<Option<ChildStdin>>>,
    /// Requests of the program whose answers have not been written.
    unanswered: Arc<AtomicUsize>,
    ending: Ending,
    calls: Arc<RunningCalls>,
}

impl ChildTransport {
    pub(super) fn start(
        name: &str,
        command: &str,
        args: &[String],
        env: &[(String, String)],
        ending: Ending,
        calls: Arc<RunningCalls>,
    ) -> std::io::Result<Self> {
        let inherited = INHERITED.iter();
        let inherited = inherited.filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut started = Command::new(command);
        started
            .args(args)
            .env_clear()
            .envs(inherited)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // A launcher such as npx starts another program: they are ended together, and a Ctrl-C is for the bridge.
        #[cfg(unix)]
        started.process_group(0);
        let mut child = started.spawn()?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(std::io::Error::other(
                "its input and output cannot be opened",
            ));
        };
        tokio::spawn(log_lines(name.to_owned(), Lines::new(errors, MAX_LOG_LINE)));
        Ok(Self {
            process: Process::new(child),
            lines: Lines::new(output, MAX_MESSAGE_BYTES),
            input: Arc::new(Mutex::new(Some(input))),
            unanswered: Arc::default(),
            ending,
            calls,
        })
    }

    /// The next message that means something to the bridge; `None` when there are no more.
    async fn next_message(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            // A program that has ended says no more, even if something that it left behind holds its output open.
            let line = tokio::select! {
                biased;
                line = self.lines.next() => line,
                () = self.process.ended() => return None,
            };
            let line = match line {
                Ok(Line::Whole(line)) => line,
                Ok(Line::TooLong) => {
                    self.ending.note(format!(
                        "it sent a line of more than {} MB",
                        MAX_MESSAGE_BYTES / (1024 * 1024)
                    ));
                    return None;
                }
                Ok(Line::End) => return None,
                Err(error) => {
                    self.ending
                        .note(format!("its output cannot be read: {error}"));
                    return None;
                }
            };
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let Ok(text) = json::whole(line) else {
                self.ending.note("it sent a message of too many values");
                return None;
            };
            // Programs print other things to their output as well.
            let Ok(message) = json::read_whole::<ServerJsonRpcMessage>(&text) else {
                tracing::debug!(
                    bytes = line.len(),
                    "an MCP server has sent a line that is not a message"
                );
                continue;
            };
            match &message {
                JsonRpcMessage::Notification(sent) => match &sent.notification {
                    ServerNotification::ProgressNotification(said) => {
                        self.calls.report(&said.params);
                    }
                    other if is_of_interest(other) => return Some(message),
                    _ => {}
                },
                JsonRpcMessage::Request(_) => {
                    if self.unanswered.fetch_add(1, Ordering::Relaxed) >= MAX_UNANSWERED {
                        self.ending
                            .note("it sends requests and does not read their answers");
                        return None;
                    }
                    return Some(message);
                }
                _ => return Some(message),
            }
        }
    }
}

/// Log messages and the like would only be thrown away later.
fn is_of_interest(notification: &ServerNotification) -> bool {
    matches!(
        notification,
        ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::CancelledNotification(_)
            | ServerNotification::SubscriptionsAcknowledgedNotification(_)
    )
}

impl Transport<RoleClient> for ChildTransport {
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
        let (input, ending) = (self.input.clone(), self.ending.clone());
        let unanswered = self.unanswered.clone();
        async move {
            let is_answer = matches!(
                message,
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)
            );
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut input = input.lock().await;
            let Some(pipe) = input.as_mut() else {
                return Err(std::io::ErrorKind::NotConnected.into());
            };
            let written = timeout(WRITE_TIME, async {
                pipe.write_all(&line).await?;
                pipe.flush().await
            });
            match written.await {
                // A program that has ended takes nothing: reading its output finds out how it ended.
                Ok(Ok(()) | Err(_)) => {}
                Err(_) => {
                    ending.note("it does not read its input");
                    // Half a message may be written. Without its input the program ends.
                    *input = None;
                    return Err(std::io::ErrorKind::TimedOut.into());
                }
            }
            if is_answer {
                unanswered.fetch_sub(1, Ordering::Relaxed);
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let message = self.next_message().await;
        if message.is_none() {
            self.ending.note(self.process.end().await);
        }
        message
    }

    async fn close(&mut self) -> std::io::Result<()> {
        if let Ok(mut input) = self.input.try_lock() {
            *input = None;
        }
        self.process.end().await;
        Ok(())
    }
}

/// A process with all that it has started; dropping this kills them.
struct Process {
    child: Child,
    /// The process group, until it was ended: the system may give its number to others afterwards.
    #[cfg(unix)]
    group: Option<rustix::process::Pid>,
}

impl Process {
    fn new(child: Child) -> Self {
        #[cfg(unix)]
        let group = (child.id().and_then(|id| i32::try_from(id).ok()))
            .and_then(rustix::process::Pid::from_raw);
        Self {
            child,
            #[cfg(unix)]
            group,
        }
    }

    /// Until it has ended, and had time to be read to its last line. Cancel-safe: a new call waits that time again.
    async fn ended(&mut self) {
        let _ = self.child.wait().await;
        tokio::time::sleep(END_TIME).await;
    }

    /// Waits a moment for its end, then ends it with all that it has started. Says how it ended.
    async fn end(&mut self) -> String {
        let mut said = "it closed its output and was ended".to_owned();
        for signal in [Signal::Terminate, Signal::Kill] {
            match timeout(END_TIME, self.child.wait()).await {
                Ok(Ok(status)) => said = format!("it ended with {status}"),
                Ok(Err(error)) => said = format!("it cannot be waited for: {error}"),
                Err(_) => {
                    self.send(signal);
                    continue;
                }
            }
            break;
        }
        self.end_group();
        said
    }

    /// Kills what is left of the group.
    fn end_group(&mut self) {
        self.send(Signal::Kill);
        #[cfg(unix)]
        {
            self.group = None;
        }
    }

    fn send(&mut self, signal: Signal) {
        #[cfg(unix)]
        if let Some(group) = self.group {
            use rustix::process::{Signal as Unix, kill_process_group};
            let signal = match signal {
                Signal::Terminate => Unix::TERM,
                Signal::Kill => Unix::KILL,
            };
            // It may have ended in the meantime.
            let _ = kill_process_group(group, signal);
        }
        #[cfg(not(unix))]
        if let Signal::Kill = signal {
            let _ = self.child.start_kill();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end_group();
    }
}

#[derive(Clone, Copy)]
enum Signal {
    Terminate,
    Kill,
}

/// Reads lines within a bound. Every method can be cancelled without losing anything.
pub(super) struct Lines<R> {
    from: R,
    buffer: BytesMut,
    /// How much of the buffer holds no end of a line.
    searched: usize,
    max_bytes: usize,
}

pub(super) enum Line {
    Whole(BytesMut),
    TooLong,
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(from: R, max_bytes: usize) -> Self {
        Self {
            from,
            buffer: BytesMut::new(),
            searched: 0,
            max_bytes,
        }
    }

    pub(super) async fn next(&mut self) -> std::io::Result<Line> {
        loop {
            let rest = &self.buffer[self.searched..];
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let end = self.searched + at + 1;
                self.searched = 0;
                return Ok(Line::Whole(self.buffer.split_to(end)));
            }
            self.searched = self.buffer.len();
            if self.searched > self.max_bytes {
                return Ok(Line::TooLong);
            }
            self.buffer.reserve(READ_BYTES);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(Line::End);
            }
        }
    }

    /// Forgets the beginning of a line that is too long.
    fn forget(&mut self) {
        self.buffer.clear();
        self.searched = 0;
    }
}

/// Logs what a program writes to its error output, shortened: it may quote users.
async fn log_lines(server: String, mut lines: Lines<tokio::process::ChildStderr>) {
    loop {
        let line = match lines.next().await {
            Ok(Line::Whole(line)) => line,
            Ok(Line::TooLong) => {
                lines.forget();
                continue;
            }
            Ok(Line::End) | Err(_) => return,
        };
        let line = &line[..line.len().min(MAX_LOG_LINE)];
        let said = String::from_utf8_lossy(line.trim_ascii_end());
        tracing::debug!(server, %said, "error output of the MCP server {server}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_read_within_their_bound() {
        let mut lines = Lines::new(&b"one\n\ntwo\r\nthis is too long"[..], 8);
        for expected in [&b"one\n"[..], b"\n", b"two\r\n"] {
            let Ok(Line::Whole(line)) = lines.next().await else {
                panic!("no line");
            };
            assert_eq!(&line[..], expected);
        }
        assert!(matches!(lines.next().await, Ok(Line::TooLong)));
        lines.forget();
        assert!(matches!(lines.next().await, Ok(Line::End)));
    }

    #[tokio::test]
    async fn an_endless_line_is_given_up_at_its_bound() {
        let mut lines = Lines::new(tokio::io::repeat(b'x'), 100_000);
        assert!(matches!(lines.next().await, Ok(Line::TooLong)));
        assert!(lines.buffer.len() <= 100_000 + 2 * READ_BYTES);
    }
}
