//! Open WebSockets: how many each user has, the tickets that open them, and their end when the server stops.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::AppError;
use crate::metrics::Metrics;

/// Long enough to open a connection, too short for a log that somebody reads later.
pub const TICKET_LIFE: Duration = Duration::from_secs(30);
/// How many unused tickets a user may have: one for every tab that connects at the same time.
const MAX_TICKETS: usize = 64;

/// Everybody who is connected by a WebSocket.
#[derive(Debug)]
pub struct Sockets {
    limit: usize,
    users: Mutex<HashMap<String, Held>>,
    /// How many are open.
    open: watch::Sender<usize>,
    closing: watch::Sender<bool>,
    metrics: Arc<Metrics>,
}

/// What one user has.
#[derive(Debug, Default)]
struct Held {
    open: usize,
    tickets: Vec<(String, Instant)>,
}

/// One open socket; it is counted as long as this lives.
#[derive(Debug)]
pub struct Place {
    sockets: Arc<Sockets>,
    user: String,
    /// Turns to true when the server goes away.
    pub closing: watch::Receiver<bool>,
}

impl Sockets {
    /// `limit`: how many one user may have open.
    pub fn new(limit: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            users: Mutex::default(),
            open: watch::Sender::new(0),
            closing: watch::Sender::new(false),
            metrics,
        })
    }

    /// A ticket that opens one socket for this user, once.
    pub fn ticket(&self, user: &str) -> Result<String, AppError> {
        self.ticket_at(user, Instant::now())
    }

    /// The user of a ticket, which is used up by this.
    pub fn redeem(&self, ticket: &str) -> Option<String> {
        self.redeem_at(ticket, Instant::now())
    }

    fn ticket_at(&self, user: &str, now: Instant) -> Result<String, AppError> {
        let mut users = self.lock();
        sweep(&mut users, now);
        let held = users.entry(user.to_owned()).or_default();
        if held.tickets.len() >= MAX_TICKETS {
            return Err(AppError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many",
                format!(
                    "{MAX_TICKETS} tickets are unused; connect with one, or wait until they expire"
                ),
            ));
        }
        // 122 random bits, from the operating system.
        let ticket = Uuid::new_v4().simple().to_string();
        held.tickets.push((ticket.clone(), now + TICKET_LIFE));
        Ok(ticket)
    }

    fn redeem_at(&self, ticket: &str, now: Instant) -> Option<String> {
        let mut users = self.lock();
        sweep(&mut users, now);
        users.iter_mut().find_map(|(user, held)| {
            let index = held.tickets.iter().position(|(one, _)| one == ticket)?;
            held.tickets.swap_remove(index);
            Some(user.clone())
        })
    }

    /// A place for one more socket, unless the user has too many.
    pub fn enter(self: &Arc<Self>, user: &str) -> Option<Place> {
        let mut users = self.lock();
        let held = users.entry(user.to_owned()).or_default();
        if held.open >= self.limit {
            return None;
        }
        held.open += 1;
        drop(users);
        self.open.send_modify(|open| *open += 1);
        self.metrics.socket_opened();
        Some(Place {
            sockets: self.clone(),
            user: user.to_owned(),
            closing: self.closing.subscribe(),
        })
    }

    /// Tells every socket to end, and waits until all have.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        // The sender lives as long as this, so that waiting cannot fail.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// Nothing in a locked section can panic half-way, so a poisoned map is still whole.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets tickets that have expired, and users that have nothing.
fn sweep(users: &mut HashMap<String, Held>, now: Instant) {
    users.retain(|_, held| {
        held.tickets.retain(|(_, until)| *until > now);
        held.open > 0 || !held.tickets.is_empty()
    });
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = self.sockets.lock();
        if let Some(held) = users.get_mut(&self.user) {
            held.open -= 1;
            if held.open == 0 && held.tickets.is_empty() {
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
        let ticket = sockets.ticket_at("alice", now).unwrap();
        assert_eq!(sockets.redeem_at("something else", now), None);
        assert_eq!(sockets.redeem_at(&ticket, now).as_deref(), Some("alice"));
        assert_eq!(sockets.redeem_at(&ticket, now), None);
        let late = sockets.ticket_at("alice", now).unwrap();
        assert_eq!(sockets.redeem_at(&late, now + TICKET_LIFE), None);
        assert!(sockets.lock().is_empty(), "nothing is left of her");
    }

    #[test]
    fn unused_tickets_are_bounded_for_each_user() {
        let sockets = Sockets::new(1, Arc::default());
        let now = Instant::now();
        for _ in 0..MAX_TICKETS {
            sockets.ticket_at("alice", now).unwrap();
        }
        assert_eq!(
            sockets.ticket_at("alice", now).unwrap_err().code,
            "too_many"
        );
        assert!(sockets.ticket_at("bob", now).is_ok());
        assert!(sockets.ticket_at("alice", now + TICKET_LIFE).is_ok());
    }

    #[tokio::test]
    async fn places_are_counted_and_given_back() {
        let sockets = Sockets::new(2, Arc::default());
        let places: Vec<_> = (0..2).map(|_| sockets.enter("alice").unwrap()).collect();
        assert!(sockets.enter("alice").is_none());
        assert!(sockets.enter("bob").is_some());
        drop(places);
        let again = sockets.enter("alice").unwrap();
        let closing = again.closing.clone();
        let (_, seen) = tokio::join!(sockets.close(), async move {
            let mut closing = closing;
            closing.wait_for(|closing| *closing).await.unwrap();
            drop(again);
            true
        });
        assert!(seen);
    }
}
