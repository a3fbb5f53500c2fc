//! Logins that wait for their providers: how many at once, and how many of one address.
//!
//! Anybody can begin a login and make up codes, so an address whose codes are not accepted has to wait before a provider is asked
//! again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::LoginError;
use crate::auth::{WrongKeys, network_of};

/// How many may wait at once; each is a request or two.
const MAX: usize = 32;
/// How many of them may come from one address: whoever makes up codes for a slow provider leaves room for others. All users
/// of a proxy share an address, so it is most of them.
const MAX_OF_ADDRESS: usize = 24;

/// Those that wait, by their addresses, and who came with wrong codes.
#[derive(Debug)]
pub(super) struct Exchanges {
    waiting: Mutex<HashMap<Option<IpAddr>, usize>>,
    wrong_codes: WrongKeys,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Exchange<'e> {
    of: &'e Exchanges,
    peer: Option<IpAddr>,
}

impl Exchanges {
    pub(super) fn new(wrong_codes_per_minute: u32) -> Self {
        Self {
            waiting: Mutex::default(),
            wrong_codes: WrongKeys::new(wrong_codes_per_minute),
        }
    }

    /// An address may try this many wrong codes from here on.
    pub(super) fn limit(&self, wrong_codes_per_minute: u32) {
        self.wrong_codes.limit(wrong_codes_per_minute);
    }

    /// Begins one, unless there are too many, or too many codes of this address were wrong.
    pub(super) fn begin(&self, peer: Option<IpAddr>) -> Result<Exchange<'_>, LoginError> {
        if let Some(wait) = peer.and_then(|peer| self.wrong_codes.wait(peer)) {
            return Err(LoginError::TooMany(wait));
        }
        let address = peer.map(network_of);
        let mut waiting = self.lock();
        let all: usize = waiting.values().sum();
        let count = waiting.get(&address).copied().unwrap_or_default();
        if all >= MAX || count >= MAX_OF_ADDRESS {
            return Err(LoginError::Busy);
        }
        waiting.insert(address, count + 1);
        Ok(Exchange { of: self, peer })
    }

    /// Poisoning is ignored: no critical section can leave the counts inconsistent.
    fn lock(&self) -> MutexGuard<'_, HashMap<Option<IpAddr>, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exchange<'_> {
    /// Notes that the code was not accepted. Refuses if there were too many.
    pub(super) fn note_wrong_code(&self) -> Result<(), LoginError> {
        let wait = self.peer.and_then(|peer| self.of.wrong_codes.note(peer));
        wait.map_or(Ok(()), |wait| Err(LoginError::TooMany(wait)))
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        let mut waiting = self.of.lock();
        if let Some(count) = waiting.get_mut(&self.peer.map(network_of)) {
            *count -= 1;
        }
        waiting.retain(|_, count| *count > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_room_for_others() {
        let exchanges = Exchanges::new(2);
        let [one, other] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(|it| Some(IpAddr::from(it)));
        let mut of_one = Vec::new();
        while let Ok(exchange) = exchanges.begin(one) {
            of_one.push(exchange);
        }
        assert_eq!(of_one.len(), MAX_OF_ADDRESS);
        let mut of_other = Vec::new();
        while let Ok(exchange) = exchanges.begin(other) {
            of_other.push(exchange);
        }
        assert_eq!(of_other.len(), MAX - MAX_OF_ADDRESS);
        of_one.pop();
        assert!(exchanges.begin(other).is_ok());
        drop((of_one, of_other));
        assert!(exchanges.lock().is_empty());
        for _ in 0..2 {
            exchanges.begin(one).unwrap().note_wrong_code().unwrap();
        }
        assert!(matches!(exchanges.begin(one), Err(LoginError::TooMany(_))));
        assert!(exchanges.begin(other).is_ok());
    }
}
