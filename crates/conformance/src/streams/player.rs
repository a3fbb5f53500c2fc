//! Plays recorded runs of a remote agent to a reply, with readers that join, stall and continue at any time.

use adk_bridge_protocol::calls::IdSource;
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::{Dialect, Reader};
use adk_bridge_protocol::driver::Driver;
use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::{Ask, Effect, Response};
use adk_bridge_protocol::reply::{Context, Input, Limits, Policy, Reply, RunEnd, Runner, ToolRule};
use adk_bridge_protocol::time::Timestamp;
use adk_bridge_protocol::wire::recording::Recording;
use adk_bridge_protocol::wire::sse;
use adk_bridge_testkit::{Random, fixtures};

use super::case::{Case, carried, number, shown, terminal, word};

pub(crate) const EVERY_READER: [(Dialect, Sdk); 6] = [
    (Dialect::Native, Sdk::V6),
    (Dialect::Native, Sdk::V7),
    (Dialect::Adk, Sdk::V6),
    (Dialect::Adk, Sdk::V7),
    (Dialect::Held, Sdk::V6),
    (Dialect::Held, Sdk::V7),
];

/// How many readers join in the middle of a run: enough to meet every kind of event over all recordings.
const LATECOMERS: usize = 7;

pub(crate) struct Player {
    pub(crate) driver: Driver,
    ids: Names,
    readers: Vec<PlayerReader>,
    asked: Vec<Vec<Response>>,
    random: Random,
}

struct PlayerReader {
    name: String,
    dialect: Dialect,
    sdk: Sdk,
    prior: Option<Message>,
    reader: Reader,
    stalls: bool,
    is_lagging: bool,
    sse: Vec<u8>,
}

impl Player {
    pub(crate) fn new(ids: Names) -> Self {
        Self {
            driver: Driver::new(Reply::new("message-1")),
            ids,
            readers: Vec::new(),
            asked: Vec::new(),
            random: Random::new(1),
        }
    }

    /// Attaches a reader, with its client's copy of the message.
    pub(crate) fn attach(&mut self, name: &str, reader: (Dialect, Sdk), prior: Option<&Message>) {
        let (dialect, sdk) = reader;
        let mut reading = PlayerReader {
            name: format!("{name} ({}, v{})", word(dialect), number(sdk)),
            dialect,
            sdk,
            prior: prior.cloned(),
            reader: Reader::new(dialect, sdk, true),
            stalls: false,
            is_lagging: false,
            sse: Vec::new(),
        };
        reading
            .reader
            .attach(self.driver.reply(), prior, &mut reading.sse);
        self.readers.push(reading);
    }

    /// Attaches a reader that cannot always keep up.
    pub(crate) fn attach_stalling(
        &mut self,
        name: &str,
        reader: (Dialect, Sdk),
        prior: Option<&Message>,
    ) {
        self.attach(&format!("{name}, stalling"), reader, prior);
        if let Some(reading) = self.readers.last_mut() {
            reading.stalls = true;
        }
    }

    pub(crate) fn feed(&mut self, input: Input<'_>) {
        let mut given = Context {
            now: Timestamp::default(),
            ids: &mut self.ids,
            policy: &AnyTool,
        };
        let mut effects = self.driver.feed(input, &mut given);
        while let Some(effect) = effects.next() {
            match effect {
                Effect::Frames(range) => {
                    for reading in &mut self.readers {
                        let (reply, outbox) = (effects.reply(), effects.outbox());
                        let before = reading.sse.len();
                        reading
                            .reader
                            .frames(reply, outbox, range.clone(), &mut reading.sse);
                        assert!(
                            !reading.is_lagging || reading.sse.len() == before,
                            "{}: a lagging reader was written to",
                            reading.name
                        );
                    }
                }
                Effect::Ask(Ask::Responses(responses)) => self.asked.push(responses),
                _ => {}
            }
        }
    }

    /// Plays one run to its end or, with `until`, up to that event. Meanwhile readers stall and others join.
    pub(crate) fn run(
        &mut self,
        name: &str,
        recording: &str,
        until: Option<usize>,
    ) -> anyhow::Result<usize> {
        let bytes = std::fs::read(fixtures::recordings().join(recording))?;
        let events = Recording::new(&bytes)?.collect::<Result<Vec<_>, _>>()?;
        let steps = events.len().div_ceil(LATECOMERS).max(1);
        for (index, recorded) in events.iter().enumerate().take(until.unwrap_or(usize::MAX)) {
            self.stall_some();
            // A line that is not an event is skipped.
            if let Ok(event) = Event::parse(&recorded.json) {
                self.feed(Input::Event(&event));
            }
            if (index + 1) % steps == 0 && until.is_none() {
                for reader in EVERY_READER {
                    self.attach(&format!("{name}, from event {}", index + 1), reader, None);
                }
            }
        }
        self.catch_all_up();
        if until.is_none() {
            self.feed(Input::RunEnded(RunEnd::Done));
        }
        Ok(events.len())
    }

    /// What has been sent to the agent since the last call.
    pub(crate) fn take_asked(&mut self) -> Vec<Vec<Response>> {
        std::mem::take(&mut self.asked)
    }

    /// Ends the turn for all readers; each of them is a case.
    pub(crate) fn end(&mut self, cases: &mut Vec<Case>) {
        for mut reading in self.readers.drain(..) {
            reading.sse.extend_from_slice(sse::DONE);
            let message = shown(self.driver.reply(), reading.dialect);
            let message = match reading.prior {
                Some(_) => message,
                None => carried(&message, reading.sdk),
            };
            cases.push(Case {
                name: reading.name,
                dialect: reading.dialect,
                sdk: reading.sdk,
                prior: reading.prior,
                sse: reading.sse,
                message,
                ends: terminal(self.driver.reply().ended()),
                client_may_send: false,
            });
        }
    }

    fn stall_some(&mut self) {
        for reading in self.readers.iter_mut().filter(|reading| reading.stalls) {
            if self.random.one_in(2) {
                reading.turn_over(self.driver.reply());
            }
        }
    }

    fn catch_all_up(&mut self) {
        for reading in self.readers.iter_mut().filter(|reading| reading.is_lagging) {
            reading.turn_over(self.driver.reply());
        }
    }
}

impl PlayerReader {
    fn turn_over(&mut self, reply: &Reply) {
        if self.is_lagging {
            self.reader.catch_up(reply, &mut self.sse);
        } else {
            self.reader.fall_behind(reply);
        }
        self.is_lagging = !self.is_lagging;
    }
}

/// How calls and approvals are named.
pub(crate) enum Names {
    /// As in the recording.
    Recorded { made: u32 },
    /// As a bridge does: with its own ids.
    Own { made: u32 },
}

impl IdSource for Names {
    fn call(&mut self, given: Option<&str>) -> CallId {
        self.name("call", given).into()
    }

    fn approval(&mut self, given: Option<&str>) -> ApprovalId {
        self.name("approval", given).into()
    }
}

impl Names {
    fn name(&mut self, kind: &str, given: Option<&str>) -> String {
        let made = match (&mut *self, given) {
            (Self::Recorded { .. }, Some(id)) => return id.to_owned(),
            (Self::Recorded { made } | Self::Own { made }, _) => made,
        };
        *made += 1;
        format!("{kind}-{made}")
    }
}

/// The rules for a remote agent whose tools are unknown.
struct AnyTool;

impl Policy for AnyTool {
    fn runner(&self) -> Runner {
        Runner::Remote
    }

    fn tool(&self, _name: &str) -> Option<ToolRule> {
        None
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}
