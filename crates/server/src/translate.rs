//! `adk-bridge translate`: recorded ADK events in, the SSE stream of that turn out; or a log of chunks in, its streams out.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use adk_bridge_protocol::calls::IdSource;
use adk_bridge_protocol::chunk::{Chunk, Sdk};
use adk_bridge_protocol::dialect::{Dialect, Reader};
use adk_bridge_protocol::driver::Driver;
use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::outbox::Effect;
use adk_bridge_protocol::reply::{
    Audience, Context, Input, Limits, Policy, Reply, RunEnd, Runner, ToolRule,
};
use adk_bridge_protocol::time::Timestamp;
use adk_bridge_protocol::wire::chunk_log::{LogEntry, LogReader};
use adk_bridge_protocol::wire::recording::{
    MAX_RECORDING_BYTES, Recorded, Recording, RecordingError,
};
use adk_bridge_protocol::wire::sse;
use anyhow::{Context as _, bail};

/// Translates a file, or standard input for `-`. A line that is not an event is reported and skipped, as a bridge does.
pub fn run(dialect: Dialect, message_id: &str, file: &Path) -> anyhow::Result<ExitCode> {
    let bytes = read(file)?;
    let mut broken = Vec::new();
    let stream = translate(&bytes, dialect, message_id, &mut broken)
        .with_context(|| format!("{} is not a recording", file.display()))?;
    io::stdout()
        .write_all(&stream)
        .context("the stream cannot be written")?;
    for complaint in &broken {
        eprintln!("adk-bridge: {}: {complaint}", file.display());
    }
    Ok(if broken.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = MAX_RECORDING_BYTES as u64 + 1;
    if file == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file)
            .with_context(|| format!("{} cannot be opened", file.display()))?
            .take(limit)
            .read_to_end(&mut bytes)
    }
    .with_context(|| format!("{} cannot be read", file.display()))?;
    if bytes.len() > MAX_RECORDING_BYTES {
        bail!("a recording may have at most {MAX_RECORDING_BYTES} bytes; reduce it to one run");
    }
    Ok(bytes)
}

pub(crate) fn translate(
    recording: &[u8],
    dialect: Dialect,
    message_id: &str,
    broken: &mut Vec<String>,
) -> anyhow::Result<Vec<u8>> {
    if let Some(streams) = logged_streams(recording, broken)? {
        return Ok(streams);
    }
    let mut turn = Turn {
        driver: Driver::new(Reply::new(message_id)),
        // Whether an unknown agent asks for approval shows only in its events.
        reader: Reader::new(dialect, Sdk::default(), true),
        stream: Vec::new(),
        ids: RecordedIds::default(),
    };
    turn.reader
        .attach(turn.driver.reply(), None, &mut turn.stream);
    turn.feed(Input::Begin(Audience::Request));
    for recorded in Recording::new(recording)? {
        let recorded = recorded?;
        match Event::parse(&recorded.json) {
            Ok(event) => turn.feed(Input::Event(&event)),
            Err(error) => broken.push(format!("line {}: {error}", recorded.line)),
        }
    }
    turn.feed(Input::RunEnded(RunEnd::Done));
    turn.stream.extend_from_slice(sse::DONE);
    Ok(turn.stream)
}

/// The streams of a log that holds chunks, each with its end; `None` for any other recording.
fn logged_streams(
    recording: &[u8],
    broken: &mut Vec<String>,
) -> Result<Option<Vec<u8>>, RecordingError> {
    let mut stream = Vec::new();
    let mut log = LogReader::default();
    let (mut is_log, mut is_open) = (false, false);
    for recorded in Recording::new(recording)? {
        let Recorded { line, json } = recorded?;
        let Some(entry) = log.entry(&json) else {
            if is_log {
                broken.push(format!("line {line}: not an entry of a chunk log"));
                continue;
            }
            return Ok(None);
        };
        is_log = true;
        match entry {
            LogEntry::Chunk(json) => match Chunk::parse(&json) {
                // What a connection says outside of answers.
                Ok(Chunk::Data(_)) if !is_open => {}
                Ok(chunk) => {
                    // Logs of `useChat` lack the ends.
                    if is_open && matches!(chunk, Chunk::Start { .. }) {
                        stream.extend_from_slice(sse::DONE);
                    }
                    is_open = true;
                    sse::chunk(&mut stream, &chunk, Sdk::default());
                }
                Err(error) => broken.push(format!("line {line}: {error}")),
            },
            LogEntry::Done => {
                is_open = false;
                stream.extend_from_slice(sse::DONE);
            }
            LogEntry::PrintedEvent => broken.push(format!(
                "line {line}: an event as Python prints it cannot be read; use the log of SSE events"
            )),
            LogEntry::Other => {}
        }
    }
    if is_open {
        stream.extend_from_slice(sse::DONE);
    }
    Ok(is_log.then_some(stream))
}

struct Turn {
    driver: Driver,
    reader: Reader,
    stream: Vec<u8>,
    ids: RecordedIds,
}

impl Turn {
    fn feed(&mut self, input: Input<'_>) {
        let mut given = Context {
            // A recording has no time, and nothing in it expires.
            now: Timestamp::default(),
            ids: &mut self.ids,
            policy: &RecordedTools,
        };
        let mut effects = self.driver.feed(input, &mut given);
        while let Some(effect) = effects.next() {
            if let Effect::Frames(range) = effect {
                let (reply, outbox) = (effects.reply(), effects.outbox());
                self.reader.frames(reply, outbox, range, &mut self.stream);
            }
        }
    }
}

/// Keeps the ids of the recording, so that the stream can be compared with it.
#[derive(Debug, Default)]
struct RecordedIds {
    made: u32,
}

impl IdSource for RecordedIds {
    fn call(&mut self, given: Option<&str>) -> CallId {
        self.keep("call", given).into()
    }

    fn approval(&mut self, given: Option<&str>) -> ApprovalId {
        self.keep("approval", given).into()
    }
}

impl RecordedIds {
    fn keep(&mut self, kind: &str, given: Option<&str>) -> String {
        given.map_or_else(
            || {
                self.made += 1;
                format!("{kind}-{}", self.made)
            },
            str::to_owned,
        )
    }
}

/// The rules for tools that the agent has already run.
struct RecordedTools;

impl Policy for RecordedTools {
    fn runner(&self) -> Runner {
        Runner::Remote
    }

    fn tool(&self, _name: &str) -> Option<ToolRule> {
        None
    }

    fn limits(&self) -> Limits {
        Limits {
            max_answer_bytes: MAX_RECORDING_BYTES,
            ..Limits::default()
        }
    }
}
