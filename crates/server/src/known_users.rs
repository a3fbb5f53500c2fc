//! What requests tell of their users besides who they are: claims for the state of sessions, and tokens for agents that are
//! asked with them.
//!
//! A turn may run when its user is not there. Claims are then those that the chat has stored; a token is the last one that
//! the user has brought, if it is still valid (`token/users.rs`).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adk_bridge_protocol::id::UserId;
use arc_swap::ArcSwap;
use axum::http::HeaderMap;
use tokio::time::Instant;

use crate::agent_list::Agents;
use crate::auth::{Claims, Identity};
use crate::config::Config;

/// How many users' claims are held; chats have a copy, so nothing is lost with the others.
const MAX_USERS: usize = 10_000;

/// What is known of the users who asked lately.
pub struct KnownUsers {
    agents: Arc<Agents>,
    /// The claims that the state of some agent's sessions names. No others are held.
    named: ArcSwap<BTreeSet<String>>,
    claims: Mutex<HashMap<UserId, (Claims, Instant)>>,
}

impl KnownUsers {
    pub fn new(config: &Config, agents: Arc<Agents>) -> Self {
        Self {
            agents,
            named: ArcSwap::from_pointee(named_by(config)),
            claims: Mutex::default(),
        }
    }

    /// Holds what the agents of this configuration need from here on.
    pub fn hold_for(&self, config: &Config) {
        self.named.store(Arc::new(named_by(config)));
    }

    /// Adds to an identity the tokens for agents that the headers of its request bring.
    pub fn with_tokens(&self, identity: Identity, headers: &HeaderMap) -> Identity {
        let tokens = self.agents.token_headers(headers);
        identity.with_token_headers(tokens)
    }

    /// Takes what a request tells.
    pub fn note(&self, identity: &Identity) {
        self.agents.note_tokens(identity);
        let named = self.named.load();
        if named.is_empty() {
            return;
        }
        let (now, claims) = (Instant::now(), identity.claims());
        let claims = claims.named(named.iter().map(String::as_str));
        let mut known = self.known();
        if known.len() >= MAX_USERS && !known.contains_key(&identity.user) {
            let longest_away = known.iter().min_by_key(|(_, (_, seen))| *seen);
            if let Some(user) = longest_away.map(|(user, _)| user.clone()) {
                known.remove(&user);
            }
        }
        known.insert(identity.user.clone(), (claims, now));
    }

    /// Forgets what the requests of a user brought.
    pub fn forget(&self, user: &UserId) {
        self.agents.forget_tokens(user);
        self.known().remove(user);
    }

    /// The claims of a user who has asked lately, as far as any agent needs them.
    pub fn claims(&self, user: &UserId) -> Option<Claims> {
        self.known().get(user).map(|(claims, _)| claims.clone())
    }

    /// Poisoning is ignored: no critical section can leave the map inconsistent.
    fn known(&self) -> MutexGuard<'_, HashMap<UserId, (Claims, Instant)>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The claims that the state of some agent's sessions names.
fn named_by(config: &Config) -> BTreeSet<String> {
    let states = config.each_agent().iter().map(|agent| &agent.state);
    states.flat_map(|state| state.claims()).collect()
}

impl std::fmt::Debug for KnownUsers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let users = self.known().len();
        write!(formatter, "KnownUsers({users})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_claims_of_the_newest_request_are_known() {
        let mut config = Config::default();
        config.agent.state = serde_json::from_str(r#"{"mail": "{claims.email}"}"#).unwrap();
        let users = KnownUsers::new(&config, Arc::new(Agents::new(Vec::new())));
        let ask = |user: &str, claims: &[(&str, &str)]| {
            let claims = Claims::new(claims.iter().copied()).unwrap();
            let identity = Identity::new(user, "test").with_claims(claims);
            users.note(&identity);
        };
        let mail = |user: &str| {
            let claims = users.claims(&user.into())?;
            claims.get("email").cloned()
        };
        ask("ann", &[("email", "old@x"), ("phone", "1")]);
        ask("ann", &[("email", "ann@x")]);
        ask("bob", &[("phone", "2")]);
        assert_eq!(mail("ann"), Some("ann@x".into()));
        assert_eq!(users.claims(&"bob".into()), Some(Claims::default()));
        assert_eq!(users.claims(&"eve".into()), None);
        users.forget(&"bob".into());
        assert_eq!(users.claims(&"bob".into()), None);
        for number in 0..MAX_USERS {
            ask(&number.to_string(), &[]);
        }
        assert!(users.known().len() <= MAX_USERS);
        assert_eq!(mail("ann"), None);
    }
}
