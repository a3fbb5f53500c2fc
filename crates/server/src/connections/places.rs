//! Places for connections: which connections may stay, which may be used, and which leave first when places are short.
//!
//! ```text
//!   enter ──▶ Waiting ──── a request is there ────▶ Busy ──▶ upgraded: stays busy
//!                ▲ │                                 │ │
//!                │ │ places are short,               │ │ upgraded, and refused
//!                │ │ and it has waited longest       │ ▼
//!                │ └────────────────────────────▶ Parting ── no place is left ──▶ cut
//!                └─────────── answered ──────────────┘
//! ```
//!
//! A request for the state of the server makes its connection `Informed` instead of busy; those are not counted.
//!
//! A busy connection is never closed. A connection is busy until its request is answered. An answer to an unknown
//! client may be cut off, since anyone can ask for it and read it slowly.

use adk_bridge_protocol::id::UserId;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::Current;

/// How many connections there may be beyond those in use: clients that wait, that are refused, or that ask for the
/// state of the server. `descriptors` reserves open files for them.
pub(crate) const LOBBY: usize = 40;
/// How many of these places are kept free by asking connections to leave, so that their clients have time to read the
/// reason.
const CUSHION: usize = 16;
/// How many connections may have been cut but not be closed yet. A newcomer then does not have to wait for their tasks,
/// which may take long on a busy machine.
const GOING: usize = 8;
/// How long a connection must have waited before it is asked to leave: in a rush its request or answer may be on its
/// way.
const PATIENCE: Duration = Duration::from_millis(250);
/// Less patience than this counts as none. Every connection that is asked to leave halves the patience, so that idle
/// connections delay others by at most twice [`PATIENCE`], however many they are.
const LEAST_PATIENCE: Duration = Duration::from_millis(1);
/// The patience is restored when no connection had to be asked to leave for this long.
const CALM: Duration = Duration::from_secs(5);
/// How many refused WebSockets of one address may wait to be closed. All clients of a proxy share one address; any
/// beyond this limit get the reason as an HTTP status, which browsers do not show to their pages.
const REFUSED_PER_ADDRESS: usize = 16;

/// How many connections may be in use.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub in_use: usize,
    /// By one user; `None` if there is only one user.
    pub per_user: Option<usize>,
}

impl Bounds {
    /// The most connections that one user can have in use while no other user has any.
    pub fn of_one_user(self) -> usize {
        let fair = self.in_use.div_ceil(2);
        self.per_user
            .map_or(self.in_use, |per_user| per_user.min(fair))
    }
}

/// A user has the most connections that one user may have in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{held} of your connections are in use and {limit} may be now (limits.connections_per_user, and no more than are \
     free for others); close one, or try again in a moment"
)]
pub struct TooManyConnections {
    pub held: usize,
    pub limit: usize,
}

pub(super) type Id = u64;

/// All open connections.
#[derive(Debug)]
pub(super) struct Places {
    bounds: Arc<Current<Bounds>>,
    stages: HashMap<Id, Stage>,
    /// Connections that wait for their client, in the order in which they began to wait, with the time.
    waiting: BTreeMap<u64, (Id, Instant)>,
    /// Connections that were asked to leave, in that order.
    parting: BTreeMap<u64, Id>,
    /// How many connections are parting, including those that were cut but are not closed yet.
    leaving: usize,
    busy: usize,
    users: HashMap<UserId, usize>,
    /// Refused WebSockets by address.
    refused: HashMap<IpAddr, usize>,
    patience: Duration,
    /// When a connection was last asked to leave.
    asked: Option<Instant>,
    last: u64,
}

#[derive(Debug)]
enum Stage {
    /// Waits for its client. It may be asked to leave.
    Waiting { order: u64 },
    /// Has a request in progress, or is upgraded.
    Busy { user: Option<UserId> },
    /// Asks for the state of the server, which is answered however many connections are busy.
    Informed,
    /// Leaves as soon as its client has read the reason, or its place is needed.
    Parting { order: u64, refused: Option<IpAddr> },
}

/// What happens to a new connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entrance {
    Entered(Id),
    /// There is a place once this connection is cut.
    Cut(Id),
    /// There is a place when a connection has left, or at this time.
    Crowded(Option<Instant>),
}

/// Why a request may not begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotBegun {
    /// Its connection has been asked to leave.
    Parting,
    /// All connections are in use.
    Full,
}

impl Places {
    pub(super) fn new(bounds: Arc<Current<Bounds>>) -> Self {
        Self {
            bounds,
            stages: HashMap::new(),
            waiting: BTreeMap::new(),
            parting: BTreeMap::new(),
            leaving: 0,
            busy: 0,
            users: HashMap::new(),
            refused: HashMap::new(),
            patience: PATIENCE,
            asked: None,
            last: 0,
        }
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds.get()
    }

    /// Adds a connection, which waits for its client.
    pub(super) fn enter(&mut self, now: Instant) -> Entrance {
        let most = self.bounds().in_use.saturating_add(LOBBY);
        if self.stages.len() >= most {
            return Entrance::Crowded(None);
        }
        let going = self.leaving - self.parting.len();
        if self.stages.len() - going >= most - GOING {
            if self.parting.is_empty() {
                self.ask_one(now);
            }
            return match self.parting.pop_first() {
                Some((_, id)) => Entrance::Cut(id),
                None => Entrance::Crowded(self.next_ripe()),
            };
        }
        if self.asked.is_some_and(|asked| now >= asked + CALM) {
            self.patience = PATIENCE;
        }
        let id = self.next();
        self.stages.insert(id, Stage::Waiting { order: id });
        self.waiting.insert(id, (id, now));
        Entrance::Entered(id)
    }

    /// The connection to ask to leave because places are short, if there is one.
    pub(super) fn make_room(&mut self, now: Instant) -> Option<Id> {
        let most = self.bounds().in_use.saturating_add(LOBBY - GOING - CUSHION);
        if self.stages.len() - self.leaving <= most {
            return None;
        }
        self.ask_one(now)
    }

    /// Begins a request, if it may. Requests for the state of the server (`informed`) always may.
    pub(super) fn begin(&mut self, id: Id, informed: bool) -> Result<(), NotBegun> {
        let is_full = self.busy >= self.bounds().in_use;
        let Some(stage) = self.stages.get_mut(&id) else {
            return Err(NotBegun::Parting);
        };
        match stage {
            Stage::Parting { .. } => return Err(NotBegun::Parting),
            Stage::Busy { .. } | Stage::Informed => return Ok(()),
            Stage::Waiting { .. } if is_full && !informed => return Err(NotBegun::Full),
            Stage::Waiting { order } => self.waiting.remove(order),
        };
        *stage = match informed {
            true => Stage::Informed,
            false => Stage::Busy { user: None },
        };
        self.busy += usize::from(!informed);
        Ok(())
    }

    /// Counts the request, or the upgraded connection, for this user. A user may have at most as many as are free, so
    /// one is always left for a user who has none, and each can have fewer the more users there are.
    pub(super) fn claim(&mut self, id: Id, user: &UserId) -> Result<(), TooManyConnections> {
        let (Some(per_user), Some(Stage::Busy { user: of @ None })) =
            (self.bounds.get().per_user, self.stages.get_mut(&id))
        else {
            // There is only one user, or it is counted already, or not counted at all.
            return Ok(());
        };
        // Its own place was among the free ones.
        let free = self.bounds.get().in_use.saturating_sub(self.busy) + 1;
        let limit = per_user.min(free);
        let held = self.users.get(user).copied().unwrap_or_default();
        if held >= limit {
            return Err(TooManyConnections { held, limit });
        }
        *of = Some(user.to_owned());
        *self.users.entry(user.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Counts the request for the replicas, which have no limit of their own.
    pub(super) fn claim_for_replica(&mut self, id: Id) {
        const REPLICAS: UserId = UserId::literal("");
        if let Some(Stage::Busy { user: of @ None }) = self.stages.get_mut(&id) {
            *of = Some(REPLICAS);
            *self.users.entry(REPLICAS).or_default() += 1;
        }
    }

    /// Whether the request is known to be a user's. If not, its answer may be cut off when places are short.
    pub(super) fn is_claimed(&self, id: Id) -> bool {
        match self.stages.get(&id) {
            Some(Stage::Busy { user }) => user.is_some() || self.bounds().per_user.is_none(),
            _ => false,
        }
    }

    /// From now on, the connection waits for its client.
    pub(super) fn wait(&mut self, id: Id, now: Instant) {
        if matches!(self.stages.get(&id), None | Some(Stage::Parting { .. })) {
            return;
        }
        let order = self.next();
        self.change(id, Stage::Waiting { order });
        self.waiting.insert(order, (id, now));
    }

    /// The connection will not be used again.
    pub(super) fn part(&mut self, id: Id) {
        if !matches!(self.stages.get(&id), None | Some(Stage::Parting { .. })) {
            self.set_parting(id, None);
        }
    }

    /// Marks a WebSocket that is closed as soon as it is open. Returns false if its address has too many of them.
    pub(super) fn part_refused(&mut self, id: Id, address: IpAddr) -> bool {
        if !matches!(self.stages.get(&id), Some(Stage::Busy { .. })) {
            return false;
        }
        let refused = self.refused.entry(address).or_default();
        if *refused >= REFUSED_PER_ADDRESS {
            return false;
        }
        *refused += 1;
        self.set_parting(id, Some(address));
        true
    }

    /// The connection is closed.
    pub(super) fn leave(&mut self, id: Id) {
        if let Some(stage) = self.stages.remove(&id) {
            self.forget(stage);
        }
    }

    /// Asks the connection that has waited longest to leave, if it has waited long enough.
    fn ask_one(&mut self, now: Instant) -> Option<Id> {
        if self.next_ripe()? > now {
            return None;
        }
        let (_, &(id, _)) = self.waiting.first_key_value()?;
        self.set_parting(id, None);
        self.asked = Some(now);
        self.patience /= 2;
        if self.patience < LEAST_PATIENCE {
            self.patience = Duration::ZERO;
        }
        Some(id)
    }

    /// When the connection that has waited longest has waited long enough.
    fn next_ripe(&self) -> Option<Instant> {
        let (_, (_, since)) = self.waiting.first_key_value()?;
        Some(*since + self.patience)
    }

    fn set_parting(&mut self, id: Id, refused: Option<IpAddr>) {
        let order = self.next();
        self.change(id, Stage::Parting { order, refused });
        self.leaving += 1;
        self.parting.insert(order, id);
    }

    fn change(&mut self, id: Id, stage: Stage) {
        if let Some(before) = self.stages.insert(id, stage) {
            self.forget(before);
        }
    }

    /// Removes a stage from the counts.
    fn forget(&mut self, stage: Stage) {
        match stage {
            Stage::Waiting { order } => {
                self.waiting.remove(&order);
            }
            Stage::Busy { user } => {
                self.busy -= 1;
                if let Some(user) = user {
                    give_back(&mut self.users, user);
                }
            }
            Stage::Informed => {}
            Stage::Parting { order, refused } => {
                self.leaving -= 1;
                self.parting.remove(&order);
                if let Some(address) = refused {
                    give_back(&mut self.refused, address);
                }
            }
        }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

fn give_back<Key: std::hash::Hash + Eq>(counts: &mut HashMap<Key, usize>, key: Key) {
    use std::collections::hash_map::Entry;
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
