//! URLs of files: short ones in stored messages, signed ones for clients.
//!
//! ```text
//!   stored    /api/files/ID
//!   signed    [https://host]/api/files/ID?e=EXPIRY&s=SIGNATURE      shown by an <img>, which sends no key
//! ```

use std::fmt;
use std::sync::Arc;

use adk_bridge_protocol::dialect::{Addresses as ClientAddresses, Dialect};
use adk_bridge_protocol::time::Timestamp;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::store::{Store, StoreError};

/// Where files are served.
const PLACE: &str = "/api/files/";
/// How long a URL is valid at least: a page that is open for a day keeps showing its pictures.
const LIFE_SECONDS: u64 = 24 * 60 * 60;
/// The signed URL of a file stays the same for this long, because browsers cache by URL.
const STEP_SECONDS: u64 = 60 * 60;
/// The name under which the store keeps the key.
const SECRET: &str = "file addresses";
const KEY_BYTES: usize = 32;

/// What the URLs of a client begin with: an origin, or nothing if they are relative to its own page. Replicas tell it to each
/// other as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    origin: Option<Arc<str>>,
    /// The origin under which the client reaches the bridge, if its URLs are relative.
    own: Option<Arc<str>>,
}

impl Base {
    pub fn origin(origin: &str) -> Self {
        Self {
            origin: Some(origin.into()),
            own: None,
        }
    }

    /// For URLs that are relative, unless a [dialect](Base::in_dialect) needs this origin in them.
    pub fn relative(own: Option<Self>) -> Self {
        Self {
            origin: None,
            own: own.and_then(|own| own.origin),
        }
    }

    /// What URLs in this dialect begin with.
    pub fn in_dialect(&self, dialect: Dialect) -> Self {
        let own = self.own.clone().filter(|_| dialect.needs_absolute_urls());
        Self {
            origin: self.origin.clone().or(own),
            own: None,
        }
    }

    /// The address of a path for a browser that opens it in a window of its own: absolute, wherever that is known.
    pub fn url(&self, path: &str) -> String {
        let origin = self.origin.as_deref().or(self.own.as_deref());
        format!("{}{path}", origin.unwrap_or_default())
    }

    fn as_str(&self) -> &str {
        self.origin.as_deref().unwrap_or_default()
    }
}

/// Signs URLs of files, and recognises the ones that it signed.
pub struct Addresses {
    /// With the key in it.
    mac: Hmac<Sha256>,
    public_url: Option<String>,
}

/// Why a signed URL is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("this URL was not issued by this server, or was changed; load the chat again")]
    Wrong,
    #[error("this URL has expired; load the chat again to get a new one")]
    Expired,
}

/// Does not show the key.
impl fmt::Debug for Addresses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Addresses").finish_non_exhaustive()
    }
}

impl Addresses {
    /// Reads the key from the store, which makes one at the first start.
    pub async fn open(store: &dyn Store, public_url: Option<&str>) -> Result<Self, StoreError> {
        let mut fresh = [0; KEY_BYTES];
        getrandom::fill(&mut fresh).map_err(|error| StoreError::Io {
            doing: "making a key",
            why: Box::new(error),
        })?;
        let key = store.secret(SECRET, &fresh).await?;
        Ok(Self::new(&key, public_url))
    }

    pub(crate) fn new(key: &[u8], public_url: Option<&str>) -> Self {
        let public_url = public_url.map(|url| url.trim_end_matches('/').to_owned());
        let mac = Hmac::new_from_slice(key);
        Self {
            #[allow(clippy::expect_used, reason = "HMAC takes keys of every length")]
            mac: mac.expect("a key of any length"),
            public_url,
        }
    }

    /// What all URLs begin with, if the configuration says so.
    pub fn public(&self) -> Option<Base> {
        self.public_url.as_deref().map(Base::origin)
    }

    /// The address of a file for a client. It is the same for an hour.
    pub fn signed(&self, base: &Base, id: &str, now: Timestamp) -> String {
        let expiry = (seconds(now) / STEP_SECONDS + 1) * STEP_SECONDS + LIFE_SECONDS;
        let signature = self.mac_of(id, expiry).finalize().into_bytes();
        let signature: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}{PLACE}{id}?e={expiry}&s={signature}", base.as_str())
    }

    /// The signed form of a stored URL, or nothing if it does not name a file of ours.
    pub fn signed_url(&self, base: &Base, url: &str, now: Timestamp) -> Option<String> {
        Some(self.signed(base, id_of(url)?, now))
    }

    /// Signs URLs for one reader, as of now.
    pub fn for_reader(self: &Arc<Self>, base: &Base, now: Timestamp) -> Arc<dyn ClientAddresses> {
        Arc::new(SignedUrls {
            addresses: self.clone(),
            base: base.clone(),
            now,
        })
    }

    /// Whether a request for a file has a signature, and whether that is valid.
    pub fn check(
        &self,
        id: &str,
        query: Option<&str>,
        now: Timestamp,
    ) -> Option<Result<(), SignatureError>> {
        let signed = SignedQuery::of(query?)?;
        Some(if !self.is_made_here(id, &signed) {
            Err(SignatureError::Wrong)
        } else if signed.expiry.parse().unwrap_or(0) <= seconds(now) {
            Err(SignatureError::Expired)
        } else {
            Ok(())
        })
    }

    /// The stored form of a URL that a client sends back, from whichever origin it came: a valid signature, expired or
    /// not, shows that it is ours. An unsigned one is ours if it begins like the client's URLs.
    pub fn stored_url(&self, base: &Base, url: &str) -> Option<String> {
        let at = url.find(PLACE)?;
        let (origin, rest) = (&url[..at], &url[at + PLACE.len()..]);
        let (id, query) = match rest.split_once('?') {
            Some((id, query)) => (id, Some(query)),
            None => (rest, None),
        };
        let is_host = |origin: &str| {
            let host = origin
                .strip_prefix("https://")
                .or_else(|| origin.strip_prefix("http://"));
            host.is_some_and(|host| !host.contains('/'))
        };
        let signed = query.and_then(SignedQuery::of);
        let is_ours = origin.is_empty()
            || origin == base.as_str()
            || self.public_url.as_deref() == Some(origin)
            || (is_host(origin) && signed.is_some_and(|signed| self.is_made_here(id, &signed)));
        (is_ours && !id.is_empty()).then(|| url_of(id))
    }

    fn is_made_here(&self, id: &str, signed: &SignedQuery<'_>) -> bool {
        let (Ok(expiry), Some(given)) = (signed.expiry.parse(), bytes_of(signed.signature)) else {
            return false;
        };
        // Compares in constant time.
        self.mac_of(id, expiry).verify_slice(&given).is_ok()
    }

    fn mac_of(&self, id: &str, expiry: u64) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(format!("GET {PLACE}{id}\n{expiry}").as_bytes());
        mac
    }
}

/// The URL that is stored in messages.
pub fn url_of(id: &str) -> String {
    format!("{PLACE}{id}")
}

/// The id of the file that a stored URL names.
pub fn id_of(url: &str) -> Option<&str> {
    url.strip_prefix(PLACE)
}

fn seconds(time: Timestamp) -> u64 {
    time.as_millis() / 1000
}

/// Signs URLs for one reader, all as of the same time, so that they are the same from its first chunk to its last.
#[derive(Debug)]
struct SignedUrls {
    addresses: Arc<Addresses>,
    base: Base,
    now: Timestamp,
}

impl ClientAddresses for SignedUrls {
    fn client_url(&self, url: &str) -> Option<String> {
        self.addresses.signed_url(&self.base, url, self.now)
    }
}

/// The two parameters of a signed URL.
struct SignedQuery<'q> {
    expiry: &'q str,
    signature: &'q str,
}

impl<'q> SignedQuery<'q> {
    fn of(query: &'q str) -> Option<Self> {
        let find = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        match (find("e"), find("s")) {
            (None, None) => None,
            // Half of it is a broken one.
            (expiry, signature) => Some(Self {
                expiry: expiry.unwrap_or_default(),
                signature: signature.unwrap_or_default(),
            }),
        }
    }
}

/// The bytes of a text in hexadecimal.
fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|it| it.len() == 2)?;
            u8::from_str_radix(pair, 16).ok()
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";
    const HOUR: Duration = Duration::from_secs(60 * 60);
    const MIDNIGHT: Timestamp = Timestamp::from_millis(0);
    const ONE: Timestamp = Timestamp::from_millis(60 * 60 * 1000);

    fn query(url: &str) -> Option<&str> {
        Some(url.split_once('?')?.1)
    }

    #[test]
    fn an_address_is_good_for_a_day_and_the_same_for_an_hour() {
        let addresses = Addresses::new(b"key", None);
        let base = Base::default();
        let millis = Duration::from_millis;
        for (hours, more) in [
            (0, millis(0)),
            (0, HOUR - millis(1)),
            (1, millis(0)),
            (5, millis(7)),
        ] {
            let hour = MIDNIGHT + hours * HOUR;
            let url = addresses.signed(&base, ID, hour + more);
            assert!(url.starts_with(&format!("/api/files/{ID}?e=")), "{url}");
            assert_eq!(url, addresses.signed(&base, ID, hour));
            assert_ne!(url, addresses.signed(&base, ID, hour + HOUR));
            for (later, is_good) in [(0, true), (24, true), (25, false)] {
                let checked = addresses
                    .check(ID, query(&url), hour + later * HOUR)
                    .unwrap();
                assert_eq!(checked.is_ok(), is_good, "{hours} {more:?} {later}");
            }
        }
    }

    #[test]
    fn only_its_own_signature_opens_a_file() {
        let addresses = Addresses::new(b"key", None);
        let url = addresses.signed(&Base::default(), ID, ONE);
        let signed = query(&url).unwrap();
        assert!(addresses.check(ID, Some(signed), ONE).unwrap().is_ok());
        let other = Addresses::new(b"other", None);
        assert!(other.check(ID, Some(signed), ONE).unwrap().is_err());
        let foreign = "1123456789abcdef0123456789abcdef";
        assert!(
            addresses
                .check(foreign, Some(signed), ONE)
                .unwrap()
                .is_err()
        );
        let (expiry, signature) = signed.split_once('&').unwrap();
        for wrong in [
            expiry.to_owned(),
            signature.to_owned(),
            format!("{expiry}0&{signature}"),
            format!("{signed}0"),
            signed.replace("s=", "s=+"),
            signed[..signed.len() - 2].to_owned(),
            "e=&s=".to_owned(),
            "e=x&s=é".to_owned(),
        ] {
            let checked = addresses.check(ID, Some(&wrong), ONE);
            assert!(checked.is_some_and(|it| it.is_err()), "{wrong}");
        }
        for unsigned in [None, Some(""), Some("download=1")] {
            assert!(addresses.check(ID, unsigned, ONE).is_none());
        }
    }

    #[test]
    fn addresses_that_come_back_are_known() {
        let addresses = Addresses::new(b"key", Some("https://chat.example/"));
        let base = Base::origin("http://127.0.0.1:8080");
        let signed = addresses.signed(&Base::default(), ID, MIDNIGHT);
        let bare = url_of(ID);
        for (url, is_ours) in [
            (bare.clone(), true),
            (signed.clone(), true),
            (format!("{bare}?e=1&s=2"), true),
            (format!("http://127.0.0.1:8080{bare}"), true),
            (format!("https://chat.example{bare}"), true),
            (format!("https://chat.example{signed}"), true),
            // Its host has another name by now.
            (format!("http://old.example{signed}"), true),
            (format!("http://old.example{bare}"), false),
            (format!("http://old.example{signed}0"), false),
            (format!("http://old.example/x{signed}"), false),
            (format!("ftp://old.example{signed}"), false),
            (format!("data:text/plain,{signed}"), false),
            ("https://example.org/a.png".to_owned(), false),
            ("/api/files/".to_owned(), false),
        ] {
            let expected = is_ours.then(|| bare.clone());
            assert_eq!(addresses.stored_url(&base, &url), expected, "{url}");
        }
    }
}
