//! Open WebSockets: how many each user has, the tickets that open them, and how they close when the server stops.
//!
//! A ticket carries the identity that it was issued to, so it works with every authenticator. In a cluster it works at every
//! replica.

mod shared_tickets;

use adk_bridge_protocol::id::UserId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use crate::auth::Identity;
use crate::chat::now;
use crate::config::Current;
use crate::metrics::Metrics;
pub use shared_tickets::SharedTickets;

/// Long enough to open a connection, too short for anyone who later finds a ticket in a log.
pub const TICKET_LIFE: Duration = Duration::from_secs(30);
/// How many unused tickets a user may have: one for every tab that connects at the same time.
const MAX_TICKETS: usize = 64;

/// All open WebSockets and unused tickets.
#[derive(Debug)]
pub struct Sockets {
    limit: Current<usize>,
    users: Mutex<HashMap<UserId, OfUser>>,
    /// How many are open.
    open: watch::Sender<usize>,
    closing: watch::Sender<bool>,
    metrics: Arc<Metrics>,
    /// The tickets of a cluster.
    shared: Option<SharedTickets>,
}

/// The sockets and tickets of one user.
#[derive(Debug, Default)]
struct OfUser {
    open: usize,
    tickets: Vec<Ticket>,
}

#[derive(Debug)]
struct Ticket {
    secret: String,
    identity: Identity,
    expires: Instant,
}

/// One open socket, counted as long as this lives.
#[derive(Debug)]
pub struct Place {
    sockets: Arc<Sockets>,
    user: UserId,
    /// Becomes true when the server shuts down.
    pub closing: watch::Receiver<bool>,
}

/// A user has the most unused tickets that one user may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_TICKETS} tickets are unused; connect with one, or wait until they expire")]
pub struct TooManyTickets {
    /// Until the first of them expires.
    pub wait: Duration,
}

impl Sockets {
    /// `limit` is how many sockets one user may have open.
    pub fn new(limit: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Self::of_replica(limit, metrics, None)
    }

    /// The same with tickets that work at other replicas too.
    pub fn of_replica(
        limit: usize,
        metrics: Arc<Metrics>,
        shared: Option<SharedTickets>,
    ) -> Arc<Self> {
        Arc::new(Self {
            limit: Current::new(limit),
            users: Mutex::default(),
            open: watch::Sender::new(0),
            closing: watch::Sender::new(false),
            metrics,
            shared,
        })
    }

    /// A user may open this many from here on.
    pub fn limit(&self, limit: usize) {
        self.limit.set(limit);
    }

    /// Issues a ticket that opens one socket for this identity, once.
    pub fn ticket(&self, identity: Identity) -> Result<String, TooManyTickets> {
        let shared = self.shared.as_ref();
        match shared.and_then(|shared| shared.issue(&identity, now())) {
            Some(ticket) => Ok(ticket),
            None => self.ticket_at(identity, Instant::now()),
        }
    }

    /// The identity that a ticket was issued to. The ticket cannot be used again.
    pub fn redeem(&self, secret: &str) -> Option<Identity> {
        let shared = self.shared.as_ref();
        shared
            .and_then(|shared| shared.redeem(secret, now()))
            .or_else(|| self.redeem_at(secret, Instant::now()))
    }

    fn ticket_at(&self, identity: Identity, now: Instant) -> Result<String, TooManyTickets> {
        let mut users = self.lock();
        sweep(&mut users, now);
        let of_user = users.entry(identity.user.clone()).or_default();
        if of_user.tickets.len() >= MAX_TICKETS {
            let first = of_user.tickets.iter().map(|ticket| ticket.expires).min();
            return Err(TooManyTickets {
                wait: first.map_or(TICKET_LIFE, |at| at.saturating_duration_since(now)),
            });
        }
        // 122 random bits, from the operating system.
        let secret = Uuid::new_v4().simple().to_string();
        of_user.tickets.push(Ticket {
            secret: secret.clone(),
            identity,
            expires: now + TICKET_LIFE,
        });
        Ok(secret)
    }

    fn redeem_at(&self, secret: &str, now: Instant) -> Option<Identity> {
        let mut users = self.lock();
        sweep(&mut users, now);
        users.values_mut().find_map(|of_user| {
            let mut tickets = of_user.tickets.iter();
            let index = tickets.position(|ticket| ticket.secret == secret)?;
            Some(of_user.tickets.swap_remove(index).identity)
        })
    }

    /// Counts one more socket, unless the user has too many.
    pub fn enter(self: &Arc<Self>, user: &UserId) -> Option<Place> {
        self.enter_within(user, self.limit.get())
    }

    /// Counts a socket that another replica passes on, where it has been counted for its user.
    pub fn enter_passed_on(self: &Arc<Self>) -> Option<Place> {
        self.enter_within(&UserId::literal(""), usize::MAX)
    }

    fn enter_within(self: &Arc<Self>, user: &UserId, limit: usize) -> Option<Place> {
        let mut users = self.lock();
        let of_user = users.entry(user.to_owned()).or_default();
        if of_user.open >= limit {
            return None;
        }
        of_user.open += 1;
        drop(users);
        self.open.send_modify(|open| *open += 1);
        self.metrics.socket_opened();
        Some(Place {
            sockets: self.clone(),
            user: user.to_owned(),
            closing: self.closing.subscribe(),
        })
    }

    /// Asks a socket to close when something ends, too.
    pub fn close_after(place: &mut Place, end: impl Future<Output = ()> + Send + 'static) {
        let (sender, closing) = watch::channel(false);
        let mut server = std::mem::replace(&mut place.closing, closing);
        tokio::spawn(async move {
            tokio::select! {
                _ = server.wait_for(|closing| *closing) => {}
                () = end => {}
                // The socket has closed.
                () = sender.closed() => {}
            }
            sender.send_replace(true);
        });
    }

    /// Asks every socket to close, and waits until all have closed.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// Poisoning is ignored: no critical section can leave the map inconsistent.
    fn lock(&self) -> MutexGuard<'_, HashMap<UserId, OfUser>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes expired tickets, and users without sockets and tickets.
fn sweep(users: &mut HashMap<UserId, OfUser>, now: Instant) {
    users.retain(|_, of_user| {
        of_user.tickets.retain(|ticket| ticket.expires > now);
        of_user.open > 0 || !of_user.tickets.is_empty()
    });
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = self.sockets.lock();
        if let Some(of_user) = users.get_mut(&self.user) {
            of_user.open -= 1;
            if of_user.open == 0 && of_user.tickets.is_empty() {
                users.remove(&self.user);
            }
        }
        drop(users);
        self.sockets.open.send_modify(|open| *open -= 1);
        self.sockets.metrics.socket_closed();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_opens_once_and_not_for_long() {
        let sockets = Sockets::new(1, Arc::default());
        let now = Instant::now();
        let ticket = sockets.ticket_at(alice(), now).unwrap();
        assert_eq!(sockets.redeem_at("something else", now), None);
        assert_eq!(sockets.redeem_at(&ticket, now), Some(alice()));
        assert_eq!(sockets.redeem_at(&ticket, now), None);
        let late = sockets.ticket_at(alice(), now).unwrap();
        assert_eq!(sockets.redeem_at(&late, now + TICKET_LIFE), None);
        assert!(sockets.lock().is_empty(), "nothing is left of her");
    }

    #[test]
    fn unused_tickets_are_bounded_for_each_user() {
        let sockets = Sockets::new(1, Arc::default());
        let now = Instant::now();
        for _ in 0..MAX_TICKETS {
            sockets.ticket_at(alice(), now).unwrap();
        }
        let refused = sockets.ticket_at(alice(), now).unwrap_err();
        assert_eq!(refused.wait, TICKET_LIFE);
        assert!(sockets.ticket_at(Identity::new("bob", "test"), now).is_ok());
        assert!(sockets.ticket_at(alice(), now + TICKET_LIFE).is_ok());
    }

    #[tokio::test]
    async fn places_are_counted_and_given_back() {
        let sockets = Sockets::new(2, Arc::default());
        let places: Vec<_> = (0..2)
            .map(|_| sockets.enter(&UserId::literal("alice")).unwrap())
            .collect();
        assert!(sockets.enter(&UserId::literal("alice")).is_none());
        assert!(sockets.enter(&UserId::literal("bob")).is_some());
        drop(places);
        let again = sockets.enter(&UserId::literal("alice")).unwrap();
        let closing = again.closing.clone();
        let (_, seen) = tokio::join!(sockets.close(), async move {
            let mut closing = closing;
            closing.wait_for(|closing| *closing).await.unwrap();
            drop(again);
            true
        });
        assert!(seen);
    }

    fn alice() -> Identity {
        Identity::new("alice", "test")
    }
}
