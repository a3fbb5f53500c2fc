//! Who owns which chat, as the database knows it: what is asked of it, and what it answers.

use std::time::Duration;

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;
use url::Url;
use uuid::Uuid;

use crate::store::{ChatRef, Pending};

/// Who owns which chat. Every method is one statement or one transaction, and all times are the database's.
///
/// A replica is dead when its last heartbeat is older than its own [`Replica::lease`], whoever asks, or when it has no row.
pub trait Ownership: Send + Sync {
    /// Adds a replica. Another living one with its name refuses it; the row of a dead one with its name is replaced.
    fn join<'a>(&'a self, me: &'a Replica) -> Pending<'a, Joined>;

    /// Renews the lease of a replica, unless it has run out. `draining`: it takes no more chats.
    fn heartbeat<'a>(&'a self, me: &'a Replica, draining: bool) -> Pending<'a, Heartbeat>;

    /// Removes a replica: what it owned belongs to nobody.
    fn leave<'a>(&'a self, me: &'a Replica) -> Pending<'a, ()>;

    /// Takes a chat that nobody owns, that a dead replica owns, or that this one owns already, and begins a new epoch. The
    /// chat need not exist. A replica that is dead itself gets [`StoreError::Fenced`](crate::store::StoreError::Fenced).
    fn take<'a>(&'a self, chat: ChatRef<'a>, me: &'a Replica) -> Pending<'a, Claim>;

    /// Gives a chat back, if it is still owned in this epoch.
    fn release<'a>(&'a self, chat: ChatRef<'a>, epoch: Epoch, me: &'a Replica) -> Pending<'a, ()>;

    /// Chats with a reply that has not ended or has a tool running, and without a living owner. At most `limit`, and not the
    /// same ones for all that ask at the same moment, where that can be had.
    fn orphans(&self, limit: u32) -> Pending<'_, Vec<Orphan>>;

    /// Chats that a replica owns, in the order of their epochs: those after an epoch, at most `limit`.
    fn owned<'a>(
        &'a self,
        me: &'a Replica,
        after: Epoch,
        limit: u32,
    ) -> Pending<'a, Vec<OwnedChat>>;

    /// The living owner of a chat.
    fn owner<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Option<Peer>>;
}

/// A process in a cluster, as it presents itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Where others reach it, and what people call it.
    pub peer: Peer,
    pub instance: Instance,
    /// `cluster.lease`. Replicas differ in it while a new configuration replaces an old one.
    pub lease: Duration,
}

/// A replica as others reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// `cluster.name`.
    pub name: String,
    /// `server.advertise`.
    pub address: Url,
}

/// One life of a replica: a process that was restarted, or whose lease ran out, inherits nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instance(String);

impl Instance {
    #[must_use]
    pub fn new() -> Self {
        Self(Uuid::new_v4().simple().to_string())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Instance {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts how often a chat was taken: a writer with an older one is fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// Before every other.
    pub const FIRST: Self = Self(0);

    #[must_use]
    pub fn new(count: u64) -> Self {
        Self(count)
    }

    pub fn get(self) -> u64 {
        self.0
    }
}

/// What becomes of an attempt to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    Member {
        /// The time of the database.
        now: Timestamp,
    },
    /// A living replica has the name.
    NameTaken {
        by: Peer,
        /// Since its last heartbeat.
        silent: Duration,
        /// `cluster.lease` of that replica.
        lease: Duration,
    },
}

/// What a heartbeat tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heartbeat {
    Alive {
        /// The time of the database.
        now: Timestamp,
        /// The other living replicas that take chats, by name: those that are draining are not among them.
        peers: Vec<Peer>,
    },
    /// The lease has run out, or the row is gone: others may have taken everything.
    Dead,
}

/// What becomes of an attempt to take a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    Mine {
        epoch: Epoch,
        /// Since the last heartbeat of the owner before, if it is dead; none if it gave the chat back, or has left.
        silent: Option<Duration>,
    },
    OwnedBy(Peer),
}

/// A chat that a replica owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedChat {
    pub user: UserId,
    pub chat_id: ChatId,
    pub epoch: Epoch,
}

/// A chat that needs an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    pub user: UserId,
    pub chat_id: ChatId,
}
