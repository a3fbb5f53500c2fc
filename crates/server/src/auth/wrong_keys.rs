//! Wrong keys: how many an address has tried lately.
//!
//! Right keys are not counted, so that a client cannot lock out others behind the same address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::config::Current;

/// How many addresses are counted separately; further ones are counted together.
const ADDRESSES: usize = 4_096;
const MINUTE: Duration = Duration::from_secs(60);

/// Who has tried wrong keys.
#[derive(Debug)]
pub struct WrongKeys {
    per_minute: Current<u32>,
    tried: Mutex<HashMap<IpAddr, WrongKeyCount>>,
}

/// Wrong keys of one address, which are forgotten at a steady rate.
#[derive(Debug)]
struct WrongKeyCount {
    count: f64,
    at: Instant,
    /// When this was last logged, and how many keys were tried since.
    logged: Option<Instant>,
    unlogged: u64,
}

impl WrongKeys {
    pub fn new(per_minute: u32) -> Self {
        Self {
            per_minute: Current::new(per_minute),
            tried: Mutex::default(),
        }
    }

    /// An address may try this many from here on.
    pub fn limit(&self, per_minute: u32) {
        self.per_minute.set(per_minute);
    }

    /// Notes a wrong key. Returns how long to wait if there were too many.
    pub fn note(&self, peer: IpAddr) -> Option<Duration> {
        self.note_at(peer, Instant::now())
    }

    /// How long an address has to wait that has tried too many, without trying another one.
    pub fn wait(&self, peer: IpAddr) -> Option<Duration> {
        let limit = f64::from(self.per_minute.get());
        let rate = limit / 60.0;
        let tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let over = tried.get(&network_of(peer))?.left(rate, Instant::now()) - limit;
        // The next one would be too many.
        (over > -1.0).then(|| Duration::try_from_secs_f64((over + 1.0) / rate).ok())?
    }

    fn note_at(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        let limit = f64::from(self.per_minute.get());
        let rate = limit / 60.0;
        // Poisoning is ignored: no critical section can leave the counters inconsistent.
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place = network_of(peer);
        if !tried.contains_key(&place) && tried.len() >= ADDRESSES {
            tried.retain(|_, it| it.left(rate, now) > 0.0);
            if tried.len() >= ADDRESSES {
                place = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            }
        }
        let it = tried.entry(place).or_insert(WrongKeyCount {
            count: 0.0,
            at: now,
            logged: None,
            unlogged: 0,
        });
        // The count is capped: an address that keeps trying waits no longer than one that stopped at twice the limit.
        it.count = (it.left(rate, now) + 1.0).min(2.0 * limit);
        it.at = now;
        it.unlogged += 1;
        let over = it.count - limit;
        if over <= 0.0 {
            return None;
        }
        if it.logged.is_none_or(|logged| now >= logged + MINUTE) {
            tracing::warn!(peer = %place, count = it.unlogged, "{} wrong keys came from {place} (limits.wrong_keys_per_minute)", it.unlogged);
            it.logged = Some(now);
            it.unlogged = 0;
        }
        Duration::try_from_secs_f64(over / rate).ok()
    }
}

impl WrongKeyCount {
    fn left(&self, rate: f64, now: Instant) -> f64 {
        let forgotten = now.saturating_duration_since(self.at).as_secs_f64() * rate;
        (self.count - forgotten).max(0.0)
    }
}

/// One client of IPv6 commonly has 2^64 addresses.
pub(crate) fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let bits = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(bits))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_tries_too_many_has_to_wait() {
        let (keys, now) = (WrongKeys::new(3), Instant::now());
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        for _ in 0..3 {
            assert_eq!(keys.note_at(one, now), None);
        }
        assert_eq!(keys.note_at(one, now), Some(Duration::from_secs(20)));
        assert!(
            keys.wait(one)
                .is_some_and(|wait| wait > Duration::from_secs(20))
        );
        let other = "192.0.2.2".parse().unwrap();
        assert_eq!(keys.wait(other), None);
        assert_eq!(keys.note_at(other, now), None);
        assert_eq!(keys.wait(other), None);
        assert_eq!(keys.note_at(one, now + 3 * MINUTE), None);
    }

    #[test]
    fn the_table_is_bounded() {
        let (keys, now) = (WrongKeys::new(3), Instant::now());
        for number in 0..2 * ADDRESSES as u32 {
            keys.note_at(IpAddr::V4(Ipv4Addr::from(number + 1)), now);
        }
        assert!(keys.tried.lock().unwrap().len() <= ADDRESSES + 1);
        let (one, same) = ("2001:db8::1".parse(), "2001:db8::2".parse());
        assert_eq!(network_of(one.unwrap()), network_of(same.unwrap()));
    }
}
