//! Who may store and tell, under every interleaving of heartbeats, pauses, take-overs and deaths.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::lease::{Lease, Moment};

const LEASE: Duration = Duration::from_secs(5);
const REPLICAS: usize = 3;

/// What the database knows: one chat, and who lives. Its clock is the real one.
#[derive(Default)]
struct Database {
    /// The last heartbeat of each instance.
    heartbeats: HashMap<u64, u64>,
    owner: Option<u64>,
    epoch: u64,
    /// The epochs of what was stored.
    written: Vec<u64>,
}

impl Database {
    fn is_alive(&self, instance: u64, now: u64) -> bool {
        let lease = u64::try_from(LEASE.as_millis()).unwrap_or_default();
        let heard = self.heartbeats.get(&instance);
        heard.is_some_and(|heard| heard + lease > now)
    }

    fn take(&mut self, instance: u64, now: u64) -> Option<u64> {
        let is_free =
            (self.owner).is_none_or(|owner| owner == instance || !self.is_alive(owner, now));
        if !self.is_alive(instance, now) || !is_free {
            return None;
        }
        self.owner = Some(instance);
        self.epoch += 1;
        Some(self.epoch)
    }

    /// What a fenced write does.
    fn write(&mut self, epoch: u64) -> bool {
        if self.epoch == epoch {
            self.written.push(epoch);
        }
        self.epoch == epoch
    }
}

/// A process: what it believes, on a clock that began at another time.
struct Process {
    clock_began: u64,
    is_paused: bool,
    instance: u64,
    lease: Option<Lease>,
    /// The epoch in which it believes to own the chat.
    owned: Option<u64>,
    /// Heartbeats under way: when each was sent, and whether the database has heard it as one of the living.
    beats: Vec<(u64, Option<bool>)>,
}

impl Process {
    fn moment(&self, now: u64) -> Moment {
        Moment::at(now - self.clock_began + 1)
    }

    fn is_held(&self, now: u64) -> bool {
        let moment = self.moment(now);
        (self.lease.as_ref()).is_some_and(|lease| lease.is_held_at(moment))
    }

    fn die(&mut self) {
        self.lease = None;
        self.owned = None;
        self.beats.clear();
    }
}

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Pause(usize),
    Continue(usize),
    Join(usize),
    SendBeat(usize),
    /// The database hears the oldest heartbeat that it has not heard.
    HearBeat(usize),
    /// The process gets the oldest answer.
    BeatAnswered(usize),
    Take(usize),
    Release(usize),
    Write(usize),
    Tell(usize),
    Crash(usize),
    Leave(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = || 0..REPLICAS;
    let step = prop_oneof![
        6 => (1_u64..1_500).prop_map(Step::Pass),
        1 => (3_000_u64..8_000).prop_map(Step::Pass),
        1 => who().prop_map(Step::Pause),
        2 => who().prop_map(Step::Continue),
        2 => who().prop_map(Step::Join),
        5 => who().prop_map(Step::SendBeat),
        5 => who().prop_map(Step::HearBeat),
        5 => who().prop_map(Step::BeatAnswered),
        4 => who().prop_map(Step::Take),
        1 => who().prop_map(Step::Release),
        4 => who().prop_map(Step::Write),
        6 => who().prop_map(Step::Tell),
        1 => who().prop_map(Step::Crash),
        1 => who().prop_map(Step::Leave),
    ];
    proptest::collection::vec(step, 1..200)
}

struct World {
    now: u64,
    instances: u64,
    database: Database,
    processes: Vec<Process>,
    sent: usize,
}

impl World {
    fn new() -> Self {
        let process = |index: usize| Process {
            clock_began: index as u64 * 1_000,
            is_paused: false,
            instance: 0,
            lease: None,
            owned: None,
            beats: Vec::new(),
        };
        Self {
            now: 10_000,
            instances: 0,
            database: Database::default(),
            processes: (0..REPLICAS).map(process).collect(),
            sent: 0,
        }
    }

    fn perform(&mut self, step: &Step) {
        let now = self.now;
        let (process, database) = match step {
            Step::Pass(millis) => {
                self.now += millis;
                return;
            }
            Step::Continue(who) => {
                self.processes[*who].is_paused = false;
                return;
            }
            // What is under way goes on while its sender is paused.
            Step::HearBeat(who) => {
                let process = &mut self.processes[*who];
                let alive = self.database.is_alive(process.instance, now);
                if let Some((_, heard)) = process.beats.iter_mut().find(|beat| beat.1.is_none()) {
                    *heard = Some(alive);
                    if alive {
                        self.database.heartbeats.insert(process.instance, now);
                    }
                }
                return;
            }
            Step::Pause(who)
            | Step::Join(who)
            | Step::SendBeat(who)
            | Step::BeatAnswered(who)
            | Step::Take(who)
            | Step::Release(who)
            | Step::Write(who)
            | Step::Tell(who)
            | Step::Crash(who)
            | Step::Leave(who) => (&mut self.processes[*who], &mut self.database),
        };
        if process.is_paused && !matches!(step, Step::Crash(_)) {
            return;
        }
        match step {
            Step::Pause(_) => process.is_paused = true,
            Step::Join(_) if !process.is_held(now) => {
                process.die();
                self.instances += 1;
                process.instance = self.instances;
                database.heartbeats.insert(process.instance, now);
                process.lease = Some(Lease::new(process.moment(now), LEASE));
            }
            Step::SendBeat(_) if process.lease.is_some() => process.beats.push((now, None)),
            Step::BeatAnswered(_) => {
                let heard = process.beats.first().copied();
                if let Some((sent, Some(alive))) = heard {
                    process.beats.remove(0);
                    let (sent, moment) = (process.moment(sent), process.moment(now));
                    let lives = (process.lease.as_ref())
                        .is_some_and(|lease| alive && lease.renew_at(sent, moment));
                    if !lives {
                        process.die();
                    }
                }
            }
            Step::Take(_) if process.is_held(now) && process.owned.is_none() => {
                process.owned = database.take(process.instance, now);
            }
            Step::Release(_) => {
                let epoch = process.owned.take();
                if epoch == Some(database.epoch) && database.owner == Some(process.instance) {
                    database.owner = None;
                }
            }
            // A write may be tried whatever the lease says: the store decides.
            Step::Write(_) => {
                if let Some(epoch) = process.owned
                    && !database.write(epoch)
                {
                    process.owned = None;
                }
            }
            Step::Tell(_) if process.is_held(now) => {
                if let Some(epoch) = process.owned {
                    assert_eq!(epoch, database.epoch, "only the owner tells");
                    self.sent += 1;
                }
            }
            Step::Crash(_) => {
                process.die();
                process.is_paused = false;
            }
            Step::Leave(_) => {
                database.heartbeats.remove(&process.instance);
                process.die();
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn only_the_owner_stores_and_tells(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.perform(step);
        }
        let written = &world.database.written;
        prop_assert!(written.is_sorted(), "an old owner has written: {written:?}");
    }
}

#[test]
fn a_replica_that_was_paused_beyond_its_lease_tells_nothing() {
    let mut world = World::new();
    for step in [
        Step::Join(0),
        Step::Join(1),
        Step::Take(0),
        Step::Tell(0),
        Step::SendBeat(0),
        Step::Pause(0),
        Step::Pass(3_000),
        Step::SendBeat(1),
        Step::HearBeat(1),
        Step::BeatAnswered(1),
        Step::Pass(2_500),
        Step::Take(1),
        Step::Tell(1),
        // The database heard it too late, and says so.
        Step::HearBeat(0),
        Step::Continue(0),
        Step::Tell(0),
        Step::BeatAnswered(0),
        Step::Tell(0),
        Step::Write(0),
    ] {
        world.perform(&step);
    }
    assert_eq!(world.sent, 2, "once each");
    assert_eq!(world.processes[1].owned, Some(2));
    assert!(world.database.written.is_empty());
}
