//! Plays recorded runs of a remote agent to a reply, before readers that come, stall and go on at any time.

use adk_bridge_protocol::calls::Ids;
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::{Dialect, Reader};
use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::{Ask, Effect, Outbox, Response};
use adk_bridge_protocol::reply::{Given, Input, Limits, Reply, Rules, RunEnd, Runner, ToolRule};
use adk_bridge_protocol::wire::recording::Recording;
use adk_bridge_protocol::wire::sse;

use crate::case::{Case, Result, carried, fixtures, number, shown, terminal, word};

pub(crate) const EVERY_READER: [(Dialect, Sdk); 4] = [
    (Dialect::Native, Sdk::V6),
    (Dialect::Native, Sdk::V7),
    (Dialect::Adk, Sdk::V6),
    (Dialect::Adk, Sdk::V7),
];

/// How many readers come in the middle of a run: enough to fall on every kind of event over all recordings.
const LATECOMERS: usize = 7;

pub(crate) struct Player {
    pub(crate) reply: Reply,
    outbox: Outbox,
    ids: Names,
    seats: Vec<Seat>,
    asked: Vec<Vec<Response>>,
    random: u64,
}

struct Seat {
    name: String,
    dialect: Dialect,
    sdk: Sdk,
    prior: Option<Message>,
    reader: Reader,
    stalls: bool,
    parked: bool,
    sse: Vec<u8>,
}

impl Player {
    pub(crate) fn new(ids: Names) -> Self {
        Self {
            reply: Reply::new("message-1"),
            outbox: Outbox::default(),
            ids,
            seats: Vec::new(),
            asked: Vec::new(),
            random: 1,
        }
    }

    /// Lets a reader in, with the copy of the message that its client has.
    pub(crate) fn seat(&mut self, name: &str, reader: (Dialect, Sdk), prior: Option<&Message>) {
        let (dialect, sdk) = reader;
        let mut seat = Seat {
            name: format!("{name} ({}, v{})", word(dialect), number(sdk)),
            dialect,
            sdk,
            prior: prior.cloned(),
            reader: Reader::new(dialect, sdk, true),
            stalls: false,
            parked: false,
            sse: Vec::new(),
        };
        seat.reader.attach(&self.reply, prior, &mut seat.sse);
        self.seats.push(seat);
    }

    /// Lets a reader in that cannot always keep up.
    pub(crate) fn seat_stalling(
        &mut self,
        name: &str,
        reader: (Dialect, Sdk),
        prior: Option<&Message>,
    ) {
        self.seat(&format!("{name}, stalling"), reader, prior);
        if let Some(seat) = self.seats.last_mut() {
            seat.stalls = true;
        }
    }

    pub(crate) fn feed(&mut self, input: Input<'_>) {
        self.outbox.clear();
        let mut given = Given {
            now: 0,
            ids: &mut self.ids,
            rules: &AnyTool,
        };
        self.reply.handle(input, &mut given, &mut self.outbox);
        for effect in &self.outbox.effects {
            match effect {
                Effect::Frames(range) => {
                    for seat in &mut self.seats {
                        let (reply, outbox) = (&self.reply, &self.outbox);
                        let before = seat.sse.len();
                        seat.reader
                            .frames(reply, outbox, range.clone(), &mut seat.sse);
                        assert!(
                            !seat.parked || seat.sse.len() == before,
                            "{}: a parked reader was written to",
                            seat.name
                        );
                    }
                }
                Effect::Ask(Ask::Responses(responses)) => self.asked.push(responses.clone()),
                _ => {}
            }
        }
    }

    /// Plays one run up to its end, or, with `until`, up to that event. Readers stall, and others come in between.
    pub(crate) fn run(
        &mut self,
        name: &str,
        recording: &str,
        until: Option<usize>,
    ) -> Result<usize> {
        let bytes = std::fs::read(fixtures().join(recording))?;
        let events = Recording::new(&bytes)?.collect::<std::result::Result<Vec<_>, _>>()?;
        let steps = events.len().div_ceil(LATECOMERS).max(1);
        for (index, recorded) in events.iter().enumerate().take(until.unwrap_or(usize::MAX)) {
            self.stall_some();
            // What is no event costs only itself.
            if let Ok(event) = Event::parse(&recorded.json) {
                self.feed(Input::Event(&event));
            }
            if (index + 1) % steps == 0 && until.is_none() {
                for reader in EVERY_READER {
                    self.seat(&format!("{name}, from event {}", index + 1), reader, None);
                }
            }
        }
        self.catch_all_up();
        if until.is_none() {
            self.feed(Input::RunEnded(RunEnd::Done));
        }
        Ok(events.len())
    }

    /// What the agent was told since the last time.
    pub(crate) fn take_asked(&mut self) -> Vec<Vec<Response>> {
        std::mem::take(&mut self.asked)
    }

    /// Ends the turn for all readers; each of them is a case.
    pub(crate) fn end(&mut self, cases: &mut Vec<Case>) {
        for mut seat in self.seats.drain(..) {
            seat.sse.extend_from_slice(sse::DONE);
            let message = shown(&self.reply, seat.dialect);
            let message = match seat.prior {
                Some(_) => message,
                None => carried(&message, seat.sdk),
            };
            cases.push(Case {
                name: seat.name,
                dialect: seat.dialect,
                sdk: seat.sdk,
                prior: seat.prior,
                sse: seat.sse,
                message,
                ends: terminal(self.reply.ended()),
                client_may_send: false,
            });
        }
    }

    fn stall_some(&mut self) {
        for seat in self.seats.iter_mut().filter(|seat| seat.stalls) {
            // A linear congruential generator: the same corpus every time.
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if self.random >> 63 == 1 {
                seat.turn_over(&self.reply);
            }
        }
    }

    fn catch_all_up(&mut self) {
        for seat in self.seats.iter_mut().filter(|seat| seat.parked) {
            seat.turn_over(&self.reply);
        }
    }
}

impl Seat {
    fn turn_over(&mut self, reply: &Reply) {
        if self.parked {
            self.reader.unpark(reply, &mut self.sse);
        } else {
            self.reader.park(reply);
        }
        self.parked = !self.parked;
    }
}

/// How calls and approvals are named.
pub(crate) enum Names {
    /// As in the recording.
    Recorded { made: u32 },
    /// As a bridge does it: by ids of its own.
    Own { made: u32 },
}

impl Ids for Names {
    fn call(&mut self, given: Option<&str>) -> String {
        self.name("call", given)
    }

    fn approval(&mut self, given: Option<&str>) -> String {
        self.name("approval", given)
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

/// The rules of a remote agent of which nothing is known.
struct AnyTool;

impl Rules for AnyTool {
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
