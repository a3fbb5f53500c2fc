//! Tickets of a cluster: each replica opens what any of them has sealed.

use adk_bridge_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::TICKET_LIFE;
use crate::auth::Identity;
use crate::credentials::Seal;
use crate::nonce::{self, Nonce, UsedNonces};
use crate::store::StoreError;

/// What the key is derived for, and what a ticket is sealed for.
const PURPOSE: &str = "adk-bridge: tickets for WebSockets, 1";

/// Tickets that hold their identity, sealed. A replica takes each once; how often it was taken elsewhere is not known, so that
/// it is good for [`TICKET_LIFE`] only.
pub struct SharedTickets {
    seal: Seal,
    used: UsedNonces,
}

#[derive(Serialize, Deserialize)]
struct Ticket {
    identity: Identity,
    /// Milliseconds since 1970.
    expires: u64,
    nonce: Nonce,
}

impl SharedTickets {
    /// `secret` is what the replicas share.
    pub fn new(secret: &[u8]) -> Result<Self, StoreError> {
        Ok(Self {
            seal: Seal::for_purpose(secret, PURPOSE)?,
            used: UsedNonces::new(2 * TICKET_LIFE),
        })
    }

    /// None if the system has no random numbers.
    pub(super) fn issue(&self, identity: &Identity, now: Timestamp) -> Option<String> {
        let ticket = Ticket {
            identity: identity.clone(),
            expires: (now + TICKET_LIFE).as_millis(),
            nonce: nonce::new()?,
        };
        let text = serde_json::to_vec(&ticket).ok()?;
        self.seal.close(PURPOSE, &text).ok()
    }

    pub(crate) fn redeem(&self, sealed: &str, now: Timestamp) -> Option<Identity> {
        let text = self.seal.open_text(PURPOSE, sealed)?;
        let ticket: Ticket = serde_json::from_slice(&text).ok()?;
        let expires = Timestamp::from_millis(ticket.expires);
        // One from a clock that is ahead is not good for longer.
        let is_good = now < expires && expires <= now + 2 * TICKET_LIFE;
        (is_good && self.used.insert(ticket.nonce, now)).then_some(ticket.identity)
    }
}

/// Does not show the key.
impl std::fmt::Debug for SharedTickets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SharedTickets")
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_of_one_replica_opens_once_at_another_and_not_for_long() {
        let [one, other] = [b"shared", b"shared"].map(|it| SharedTickets::new(it).unwrap());
        let stranger = SharedTickets::new(b"another").unwrap();
        let at = |seconds: u64| Timestamp::from_millis(1_000_000_000 + seconds * 1_000);
        let alice = Identity::new("alice", "key");
        let ticket = one.issue(&alice, at(0)).unwrap();
        assert!(!ticket.contains("alice"));
        assert_eq!(stranger.redeem(&ticket, at(1)), None);
        assert_eq!(other.redeem("something else", at(1)), None);
        assert_eq!(other.redeem(&ticket, at(1)), Some(alice.clone()));
        assert_eq!(other.redeem(&ticket, at(1)), None);
        let late = one.issue(&alice, at(0)).unwrap();
        assert_eq!(other.redeem(&late, at(30)), None);
        // A replica whose clock is behind opens it, one whose clock is wrong does not.
        assert_eq!(other.redeem(&late, at(0)), Some(alice.clone()));
        let ahead = one.issue(&alice, at(31)).unwrap();
        assert_eq!(other.redeem(&ahead, at(0)), None);
    }
}
