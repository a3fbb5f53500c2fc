//! `adk-bridge translate`: recorded ADK events in, the SSE stream of that turn out.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use adk_bridge_protocol::calls::Ids;
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::{Dialect, Reader};
use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::outbox::{Effect, Outbox};
use adk_bridge_protocol::reply::{
    Given, Input, Limits, Mode, Reply, Rules, RunEnd, Runner, ToolRule,
};
use adk_bridge_protocol::wire::recording::{MAX_RECORDING_BYTES, Recording};
use adk_bridge_protocol::wire::sse;
use anyhow::{Context as _, bail};

/// Translates a file, or standard input for `-`. A line that is no event is reported and passed over, as a bridge does.
pub fn run(dialect: Dialect, message_id: &str, file: &Path) -> anyhow::Result<ExitCode> {
    let bytes = read(file)?;
    let mut broken = Vec::new();
    let stream = translate(&bytes, dialect, message_id, &mut broken)
        .with_context(|| format!("{} is no recording", file.display()))?;
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
        bail!("a recording may hold {MAX_RECORDING_BYTES} bytes; cut it down to one run");
    }
    Ok(bytes)
}

fn translate(
    recording: &[u8],
    dialect: Dialect,
    message_id: &str,
    broken: &mut Vec<String>,
) -> anyhow::Result<Vec<u8>> {
    let mut turn = Turn {
        reply: Reply::new(message_id),
        // Whether an unknown agent asks shows only in what it says.
        reader: Reader::new(dialect, Sdk::V6, true),
        outbox: Outbox::default(),
        stream: Vec::new(),
        ids: Recorded::default(),
    };
    turn.reader.attach(&turn.reply, None, &mut turn.stream);
    turn.feed(Input::Begin(Mode::Http));
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

struct Turn {
    reply: Reply,
    reader: Reader,
    outbox: Outbox,
    stream: Vec<u8>,
    ids: Recorded,
}

impl Turn {
    fn feed(&mut self, input: Input<'_>) {
        self.outbox.clear();
        let mut given = Given {
            // A recording has no time of its own, and nothing in it expires.
            now: 0,
            ids: &mut self.ids,
            rules: &AsRecorded,
        };
        self.reply.handle(input, &mut given, &mut self.outbox);
        for effect in &self.outbox.effects {
            if let Effect::Frames(range) = effect {
                self.reader
                    .frames(&self.reply, &self.outbox, range.clone(), &mut self.stream);
            }
        }
    }
}

/// Keeps the ids of the recording, so that the stream can be compared with it.
#[derive(Debug, Default)]
struct Recorded {
    made: u32,
}

impl Ids for Recorded {
    fn call(&mut self, given: Option<&str>) -> String {
        self.keep("call", given)
    }

    fn approval(&mut self, given: Option<&str>) -> String {
        self.keep("approval", given)
    }
}

impl Recorded {
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

/// The agent has run its tools already.
struct AsRecorded;

impl Rules for AsRecorded {
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
