//! Seals: each covers all rows of the audit up to one, says which there are, and holds on to the seal before.

use std::fmt;
use std::str::FromStr;

use adk_bridge_protocol::time::Timestamp;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

use super::chain::{ChainedRow, hex, push_field, sha256_hex};

const FORM: &str = "seal 1";
const SIGNED: &[u8] = b"adk-bridge: seals of the audit, 1\n";
const KEY_ID: &[u8] = b"adk-bridge: the id of a key, 1\n";
/// How many characters of a digest name a key.
const KEY_ID_LENGTH: usize = 16;

/// A seal. Its rows are those with an id after `after`, through `through`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seal {
    /// From 1, without a gap.
    pub number: u64,
    pub previous_hash: Option<String>,
    pub after: u64,
    pub through: u64,
    pub ids: Ids,
    /// Of the hashes of its rows.
    pub digest: String,
    /// Rows through this one are given up because of their age.
    pub removed: u64,
    /// Rows through this one may be older than chains.
    pub unchained: u64,
    pub at: Timestamp,
    pub hash: String,
    /// Which key signed it, if one did.
    pub key_id: Option<String>,
    pub signature: Option<String>,
}

/// What a seal holds on to besides its rows.
#[derive(Debug, Clone, Copy)]
pub struct SealContext<'s> {
    /// The id of the store.
    pub store: &'s str,
    pub before: Option<&'s Seal>,
    pub through: u64,
    pub removed: u64,
    pub unchained: u64,
    pub at: Timestamp,
    pub key: Option<&'s SealKey>,
}

/// The key that signs seals: who has only the database cannot make a seal again.
#[derive(Clone)]
pub struct SealKey {
    mac: Hmac<Sha256>,
    id: String,
}

/// Ids that only grow, kept as ranges: `1-5,8,10-12`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ids {
    ranges: Vec<(u64, u64)>,
    count: u64,
}

/// Rows as a seal covers them, while they are read.
#[derive(Debug, Default)]
pub struct Covered {
    ids: Ids,
    digest: Sha256,
}

impl Covered {
    pub fn push(&mut self, row: &ChainedRow) {
        let hash = row.link.as_ref().map_or("-", |link| link.hash.as_str());
        self.ids.push(row.row.id);
        self.digest.update(format!("{}:{hash}\n", row.row.id));
    }

    pub fn count(&self) -> u64 {
        self.ids.count
    }

    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    pub fn digest(self) -> (Ids, String) {
        (self.ids, hex(&self.digest.finalize()))
    }
}

impl Seal {
    /// Seals rows.
    pub fn new(covered: Covered, context: SealContext<'_>) -> Self {
        let (ids, digest) = covered.digest();
        let before = context.before;
        let mut seal = Self {
            number: before.map_or(1, |before| before.number + 1),
            previous_hash: before.map(|before| before.hash.clone()),
            after: before.map_or(0, |before| before.through),
            through: context.through,
            ids,
            digest,
            removed: context.removed,
            unchained: context.unchained,
            at: context.at,
            hash: String::new(),
            key_id: None,
            signature: None,
        };
        seal.hash = seal.hash_in(context.store);
        if let Some(key) = context.key {
            seal.key_id = Some(key.id.clone());
            seal.signature = Some(key.sign(&seal.hash));
        }
        seal
    }

    /// The hash that it has in the store with this id.
    pub fn hash_in(&self, store: &str) -> String {
        let mut text = FORM.to_owned();
        push_field(&mut text, self.previous_hash.as_deref());
        for number in [
            self.number,
            self.after,
            self.through,
            self.removed,
            self.unchained,
            self.at.as_millis(),
        ] {
            push_field(&mut text, Some(&number.to_string()));
        }
        push_field(&mut text, Some(&self.ids.to_string()));
        push_field(&mut text, Some(&self.digest));
        push_field(&mut text, Some(store));
        sha256_hex(&text)
    }

    /// What to note elsewhere: with it, a database that was cut off or rebuilt is found out.
    pub fn mark(&self) -> SealMark {
        SealMark {
            number: self.number,
            hash: self.hash.clone(),
        }
    }
}

/// The number and the hash of a seal: `12:5f3a…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealMark {
    pub number: u64,
    pub hash: String,
}

impl fmt::Display for SealMark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.number, self.hash)
    }
}

impl FromStr for SealMark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':');
        let read = parts.and_then(|(number, hash)| Some((number.parse().ok()?, hash)));
        match read {
            Some((number, hash)) if hash.len() == 64 => Ok(Self {
                number,
                hash: hash.to_owned(),
            }),
            _ => Err("a seal is noted as NUMBER:HASH, as the log shows it".to_owned()),
        }
    }
}

impl SealKey {
    pub fn new(key: &str) -> Self {
        let mut id = Sha256::new();
        id.update(KEY_ID);
        id.update(key);
        let mut id = hex(&id.finalize());
        id.truncate(KEY_ID_LENGTH);
        #[allow(
            clippy::expect_used,
            reason = "HMAC takes keys of any length, so this cannot fail"
        )]
        let mac = Hmac::new_from_slice(key.as_bytes()).expect("a key of any length");
        Self { mac, id }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    fn sign(&self, hash: &str) -> String {
        hex(&self.mac_of(hash).finalize().into_bytes())
    }

    /// Whether it signed a seal; compared in constant time.
    pub fn signed(&self, seal: &Seal) -> bool {
        let signature = seal.signature.as_deref().and_then(unhex);
        signature.is_some_and(|it| self.mac_of(&seal.hash).verify_slice(&it).is_ok())
    }

    fn mac_of(&self, hash: &str) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(SIGNED);
        mac.update(hash.as_bytes());
        mac
    }
}

/// Never prints the key.
impl fmt::Debug for SealKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SealKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(byte).collect()
}

impl Ids {
    /// Adds an id, which is larger than all before.
    pub fn push(&mut self, id: u64) {
        self.count += 1;
        match self.ranges.last_mut() {
            Some((_, last)) if *last + 1 == id => *last = id,
            _ => self.ranges.push((id, id)),
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    pub fn contains(&self, id: u64) -> bool {
        let after = self.ranges.partition_point(|(first, _)| *first <= id);
        let range = after.checked_sub(1).and_then(|at| self.ranges.get(at));
        range.is_some_and(|(_, last)| id <= *last)
    }

    /// The ids after one.
    fn iter_after(&self, after: u64) -> impl Iterator<Item = u64> {
        let ranges = self.ranges.iter().filter(move |(_, last)| *last > after);
        // An id after another one is not the smallest.
        ranges.flat_map(move |(first, last)| (*first).max(after.saturating_add(1))..=*last)
    }

    /// The first id after one that only one of them has.
    pub fn first_difference(&self, other: &Self, after: u64) -> Option<u64> {
        let (mut mine, mut theirs) = (self.iter_after(after), other.iter_after(after));
        loop {
            match (mine.next(), theirs.next()) {
                (Some(one), Some(another)) if one == another => {}
                (Some(one), Some(another)) => return Some(one.min(another)),
                (one, another) => return one.or(another),
            }
        }
    }
}

impl fmt::Display for Ids {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            match first == last {
                true => write!(formatter, "{first}")?,
                false => write!(formatter, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Ids {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || "ids of rows grow, and are written as 1-5,8".to_owned();
        let mut ids = Self::default();
        let mut after = None;
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let first: u64 = first.parse().map_err(|_| bad())?;
            let last: u64 = last.parse().map_err(|_| bad())?;
            if last < first || after.is_some_and(|after| first <= after) {
                return Err(bad());
            }
            ids.count = (ids.count)
                .checked_add(last - first)
                .and_then(|count| count.checked_add(1))
                .ok_or_else(bad)?;
            ids.ranges.push((first, last));
            after = Some(last);
        }
        Ok(ids)
    }
}

impl Serialize for Ids {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for Ids {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_kept_as_ranges() {
        let mut ids = Ids::default();
        for id in [1, 2, 3, 7, 9, 10] {
            ids.push(id);
        }
        assert_eq!(ids.to_string(), "1-3,7,9-10");
        assert_eq!(ids.to_string().parse::<Ids>().unwrap(), ids);
        assert_eq!((ids.count(), ids.iter().sum::<u64>()), (6, 32));
        assert_eq!("".parse::<Ids>().unwrap(), Ids::default());
        let contained: Vec<u64> = (0..12).filter(|id| ids.contains(*id)).collect();
        assert_eq!(contained, ids.iter().collect::<Vec<_>>());
        for text in [
            "x",
            "3-1",
            "1,1",
            "5,3",
            "1-",
            "-",
            "0-18446744073709551615",
        ] {
            assert!(text.parse::<Ids>().is_err(), "{text}");
        }
        for (other, difference) in [
            ("1-3,7,9-10", None),
            ("1-3,7,9", Some(10)),
            ("1-2,7,9-10", Some(3)),
            ("1-3,7-10", Some(8)),
            ("", Some(1)),
        ] {
            let other: Ids = other.parse().unwrap();
            assert_eq!(ids.first_difference(&other, 0), difference);
            assert_eq!(other.first_difference(&ids, 0), difference);
            assert_eq!(ids.first_difference(&other, 10), None);
        }
    }

    #[test]
    fn only_the_key_signs() {
        let (key, other) = (SealKey::new("one key"), SealKey::new("another key"));
        let context = SealContext {
            store: "store-1",
            before: None,
            through: 0,
            removed: 0,
            unchained: 0,
            at: Timestamp::from_millis(1),
            key: Some(&key),
        };
        let seal = Seal::new(Covered::default(), context);
        assert!(key.signed(&seal) && !other.signed(&seal));
        for signature in [None, Some("00"), Some("zz"), Some("é")] {
            let signature = signature.map(str::to_owned);
            let forged = Seal {
                signature,
                ..seal.clone()
            };
            assert!(!key.signed(&forged));
        }
        assert_ne!(seal.hash_in("store-2"), seal.hash);
        assert!(!format!("{key:?}").contains("one key"));
    }
}
